//! Reads the range once: assigns every fact to its group and counts it as shown or hidden.

use rustc_hash::FxHashMap;

use super::busy_time::BusyTime;
use super::columns::NONE;
use super::filter::Verdicts;
use super::group::{Groups, thread_label};
use super::locks::{Waited, is_held_lock};
use super::rows::Rows;
use super::trend::Trend;
use super::{Hidden, Totals};
use crate::model::facts::history::{FactKey, Weights};
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::{NameId, StackId};
use crate::model::projection::settings::{Grouping, Level, Settings};
use crate::model::vocabulary::frame::{Ns, ThreadKey, ThreadKind};
use crate::model::vocabulary::state::State;
use crate::model::vocabulary::thread_name_rules::is_collector;

/// The time of one stack in one group.
pub(super) struct Cell {
    pub group: u32,
    pub stack: StackId,
    pub kind: CellKind,
    /// The last thread and name seen with it.
    seen: (u32, NameId),
    pub totals: Totals,
}

/// What the time of a cell is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum CellKind {
    Plain,
    /// Hidden as idle, unless nothing else is left.
    Idle,
    /// Of threads that waited for work and have no core yet.
    Woken,
}

/// The thread with most CPU time in a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BusiestThread {
    pub thread: u32,
    pub name: NameId,
    pub cpu_ns: u64,
}

/// A thread with a cell's stack; may occur repeatedly.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub thread: u32,
    pub cell: u32,
    pub name: NameId,
}

/// The place of a fact that passes the filters.
pub(super) struct Placed {
    pub group: u32,
    pub thread: u32,
    pub stack: StackId,
    pub state: State,
    /// Time spent waiting for work.
    pub is_idle: bool,
}

/// Memory that is reused for the next projection.
#[derive(Default)]
pub(super) struct Scratch {
    cells: Vec<Cell>,
    /// By [`StackId`]: its newest cell or [`NONE`], with the flag [`MANY`] if it has others.
    newest: Vec<u32>,
    /// Cells of stacks with several cells.
    others: FxHashMap<(u32, StackId, CellKind), u32>,
    seen: Vec<Seen>,
}

const MANY: u32 = 1 << 31;

/// A program whose threads are busy for a smaller part of the time in all is at rest: 2 % of one
/// thread.
pub(super) const AT_REST: f64 = 0.02;

impl Scratch {
    fn clear(&mut self, stack_count: usize) {
        self.cells.clear();
        self.newest.clear();
        self.newest.resize(stack_count.max(1), NONE);
        self.others.clear();
        self.seen.clear();
    }

    /// Returns the cell, created empty if missing. Most stacks have a single cell, which is found
    /// without hashing.
    fn cell(&mut self, group: u32, stack: StackId, kind: CellKind) -> u32 {
        let newest = &mut self.newest[stack.0 as usize];
        let next = self.cells.len() as u32;
        let is = |cell: &Cell| (cell.group, cell.kind) == (group, kind);
        let found = match *newest {
            NONE => next,
            cell if is(&self.cells[(cell & !MANY) as usize]) => return cell & !MANY,
            cell => {
                if cell & MANY == 0 {
                    let before = &self.cells[cell as usize];
                    self.others.insert((before.group, stack, before.kind), cell);
                }
                *self.others.entry((group, stack, kind)).or_insert(next)
            }
        };
        *newest = if *newest == NONE { found } else { found | MANY };
        if found == next {
            let none = (u32::MAX, NameId(u32::MAX));
            self.cells.push(Cell { group, stack, kind, seen: none, totals: Totals::default() });
        }
        found
    }
}

/// The shown and hidden facts of a range.
pub(super) struct Shown {
    pub from: Ns,
    pub till: Ns,
    pub cells: Vec<Cell>,
    /// For the shown cells, ordered by thread.
    pub seen: Vec<Seen>,
    /// The threads that [`Seen::thread`] refers to.
    pub threads: Vec<ThreadKey>,
    pub hidden: Hidden,
    pub only_idle: bool,
    pub collectors_cpu_ns: u64,
    /// The shown thread of the program, not of a runtime, with most CPU time.
    pub busiest: Option<BusiestThread>,
    /// Waits whose blockers are known, of the threads that are shown.
    pub waited: Waited,
    pub busy: BusyTime,
    pub trend: Option<Trend>,
}

impl Shown {
    /// Returns false for cells counted in [`Hidden::idle`].
    pub fn is_shown(&self, cell: &Cell) -> bool {
        self.only_idle || cell.kind != CellKind::Idle
    }

    /// Returns the memory for reuse.
    pub fn done(self, scratch: &mut Scratch) {
        scratch.cells = self.cells;
    }
}

/// Calls its argument with every fact and the number of its bucket. Returns the range that was
/// read, `(from, till)`.
pub(super) type ReadFacts<'a> =
    dyn FnMut(&mut dyn FnMut(usize, &FactKey, &Weights)) -> (Ns, Ns) + 'a;

pub(super) struct Reader<'a> {
    snapshot: &'a Snapshot,
    settings: &'a Settings,
    rows: &'a Rows,
    verdicts: &'a Verdicts,
    groups: &'a mut Groups,
    scratch: &'a mut Scratch,
    threads: Vec<ThreadKey>,
    by_thread: FxHashMap<ThreadKey, u32>,
    /// By thread.
    of_threads: Vec<OfThread>,
    /// Result of the thread filter for a name in a group.
    chosen: FxHashMap<(NameId, u32), bool>,
    hidden: Hidden,
    left: bool,
    collectors: Collectors,
    waited: Waited,
    busy: BusyTime,
    trend: Option<Trend>,
}

/// What is known of a thread of the range.
struct OfThread {
    /// Some of its time is hidden as idle.
    hidden_idle: bool,
    /// Some of its time is not idle.
    busy: bool,
    /// CPU time that is shown, ns; none of a runtime's own threads.
    cpu_ns: u64,
    /// Its newest name.
    name: NameId,
}

/// The CPU time of threads that collect garbage, whatever the filters.
#[derive(Default)]
struct Collectors {
    /// By name: whether threads of this name collect.
    known: FxHashMap<NameId, bool>,
    cpu_ns: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        settings: &'a Settings,
        rows: &'a Rows,
        verdicts: &'a Verdicts,
        groups: &'a mut Groups,
        scratch: &'a mut Scratch,
    ) -> Reader<'a> {
        scratch.clear(snapshot.tables.stack_count());
        Reader {
            snapshot,
            settings,
            rows,
            verdicts,
            groups,
            scratch,
            threads: Vec::new(),
            by_thread: FxHashMap::default(),
            of_threads: Vec::new(),
            chosen: FxHashMap::default(),
            hidden: Hidden::default(),
            left: false,
            collectors: Collectors::default(),
            waited: Waited::default(),
            busy: BusyTime::default(),
            trend: None,
        }
    }

    /// Books time by slices too, if wanted.
    pub(super) fn with_trend(self, trend: Option<Trend>) -> Reader<'a> {
        Reader { trend, ..self }
    }

    pub(super) fn read(mut self, facts: &mut ReadFacts<'_>) -> Shown {
        let (from, till) = facts(&mut |bucket, key, weights| {
            if let Some(trend) = &mut self.trend {
                trend.set_bucket(bucket);
            }
            self.fact(key, weights);
        });
        if self.is_at_rest(till.saturating_sub(from)) {
            self.hide_upkeep();
        }
        // The user's own view says that there is nothing to see.
        let may_show_idle = self.settings.level != Level::Mine;
        let only_idle = may_show_idle && !self.left && !self.hidden.idle.is_empty();
        if only_idle {
            self.hidden.idle = Totals::default();
        } else {
            self.hidden.idle_threads =
                self.of_threads.iter().filter(|of| of.hidden_idle && !of.busy).count() as u32;
        }
        let busiest = (0..).zip(&self.of_threads).max_by_key(|(_, of)| of.cpu_ns).map(
            |(thread, OfThread { cpu_ns, name, .. })| BusiestThread {
                thread,
                name: *name,
                cpu_ns: *cpu_ns,
            },
        );
        let Reader { scratch, threads, mut hidden, collectors, waited, busy, trend, .. } = self;
        let collectors_cpu_ns = collectors.cpu_ns;
        hidden.settle_off();
        let cells = std::mem::take(&mut scratch.cells);
        if !only_idle {
            scratch.seen.retain(|seen| cells[seen.cell as usize].kind != CellKind::Idle);
        }
        let seen = by_counting(&scratch.seen, threads.len(), |seen| seen.thread);
        Shown {
            from,
            till,
            cells,
            seen,
            threads,
            hidden,
            only_idle,
            collectors_cpu_ns,
            busiest,
            waited,
            busy,
            trend,
        }
    }

    /// Returns whether all that is left is what runtimes and libraries do for themselves in a
    /// program at rest: little, and nothing of it below a function of the user. `elapsed`: of the
    /// range.
    fn is_at_rest(&self, elapsed: Ns) -> bool {
        let Settings { level, idle, filters, .. } = self.settings;
        let nobody_asked = *level == Level::Mine
            && !*idle
            && filters.threads.active().is_none()
            && filters.focus.active().is_none();
        let mut busy_ns = 0;
        nobody_asked
            && self.left
            && self.scratch.cells.iter().filter(|cell| cell.kind != CellKind::Idle).all(|cell| {
                busy_ns += cell.totals.wall_ns.max(cell.totals.cpu_ns);
                (busy_ns as f64) < elapsed as f64 * AT_REST
                    && !self.verdicts.of_stack(cell.stack).has_app
            })
    }

    /// Counts all that is left as waiting for work.
    fn hide_upkeep(&mut self) {
        for cell in self.scratch.cells.iter_mut().filter(|cell| cell.kind != CellKind::Idle) {
            cell.kind = CellKind::Idle;
            self.hidden.idle.add(&cell.totals);
        }
        self.of_threads.iter_mut().for_each(|of| {
            of.hidden_idle |= of.busy;
            of.busy = false;
        });
        self.waited = Waited::default();
        self.busy = BusyTime::default();
    }

    fn fact(&mut self, key: &FactKey, weights: &Weights) {
        let Some(Placed { group, thread, stack, state, is_idle }) = self.place(key, weights) else {
            return;
        };
        let tables = &self.snapshot.tables;
        let is_internal = tables.kind(key.name) == ThreadKind::Internal;
        let (stack, kind) = match self.settings.level {
            _ if is_idle && !self.settings.idle => (stack, CellKind::Idle),
            // The function in which a thread waited for work is not what takes the time until it
            // has a core.
            Level::Mine | Level::Chains
                if state == State::Rdy
                    && !is_internal
                    && self
                        .verdicts
                        .of_stack(stack)
                        .is_woken_from_idle(tables.futex_kind(stack)) =>
            {
                (StackId::EMPTY, CellKind::Woken)
            }
            // What a runtime does in its own threads is no more the user's than the frames by which
            // it runs his.
            Level::Mine if is_internal => (StackId::EMPTY, CellKind::Plain),
            Level::Mine | Level::Chains | Level::All => (stack, CellKind::Plain),
        };
        if !is_internal {
            let of = &mut self.of_threads[thread as usize];
            of.cpu_ns += weights.cpu_ns;
            of.name = key.name;
        }
        let at = self.scratch.cell(group, stack, kind);
        if kind != CellKind::Idle {
            self.waited.add(key, at, weights);
        }
        if !is_idle {
            let exit = self.verdicts.exits().number(stack);
            let of_stack = (&self.verdicts.of_stack(stack), exit);
            let blocker = tables.blocker(key.blocker);
            let is_locked = blocker.is_some_and(is_held_lock);
            self.busy.add(of_stack, (group, thread), state, weights, is_locked);
        }
        let Scratch { cells, seen, .. } = &mut *self.scratch;
        let cell = &mut cells[at as usize];
        add(&mut cell.totals, state, weights);
        if let Some(trend) = &mut self.trend {
            trend.add(at, state, weights);
        }
        if std::mem::replace(&mut cell.seen, (thread, key.name)) != (thread, key.name) {
            seen.push(Seen { thread, cell: at, name: key.name });
        }
    }

    /// Returns the place of a fact, or counts it as hidden by a filter. Idle time is counted as
    /// hidden but placed too, since it is shown if nothing else is left.
    fn place(&mut self, key: &FactKey, weights: &Weights) -> Option<Placed> {
        // A stack that these tables do not have has no frames.
        let known = (key.stack.0 as usize) < self.snapshot.tables.stack_count();
        let stack = if known { key.stack } else { StackId::EMPTY };
        let path = self.verdicts.of_stack(stack);
        let state = key.state.resolve(self.snapshot.tables.futex_kind(stack));
        if let Some(trend) = &mut self.trend {
            trend.count(state, weights);
        }
        let Reader { snapshot, settings, rows, .. } = *self;
        let group = self.groups.of(snapshot, settings, rows, key, state, path.group);
        let thread = self.thread(key.thread);
        let kind = self.snapshot.tables.kind(key.name);
        if kind == ThreadKind::Internal && weights.cpu_ns > 0 {
            let Collectors { known, cpu_ns } = &mut self.collectors;
            let name = || is_collector(self.snapshot.tables.name(key.name));
            if *known.entry(key.name).or_insert_with(name) {
                *cpu_ns += weights.cpu_ns;
            }
        }
        let is_idle = path.is_idle(kind, state);
        if !is_idle && (weights.wall_ns > 0 || weights.cpu_ns > 0) {
            self.of_threads[thread as usize].busy = true;
        }

        let filters = &self.settings.filters;
        let hidden = if !self.is_chosen(key, group) {
            &mut self.hidden.threads
        } else if filters.skip_daemon && kind != ThreadKind::Plain {
            &mut self.hidden.daemons
        } else if filters.focus.active().is_some() && !path.focus {
            &mut self.hidden.focus
        } else if path.ignore {
            &mut self.hidden.ignore
        } else {
            if is_idle && !self.settings.idle {
                add(&mut self.hidden.idle, state, weights);
                self.of_threads[thread as usize].hidden_idle = true;
            } else {
                self.left |= weights.wall_ns > 0 || weights.cpu_ns > 0;
            }
            return Some(Placed { group, thread, stack, state, is_idle });
        };
        add(hidden, state, weights);
        None
    }

    /// Calls `f` with every fact that passes the filters and its place, without creating cells.
    /// Returns the range that was read.
    pub(super) fn each(
        mut self,
        facts: &mut ReadFacts<'_>,
        mut f: impl FnMut(&FactKey, Placed, &Weights),
    ) -> (Ns, Ns) {
        facts(&mut |_, key, weights| {
            if let Some(placed) = self.place(key, weights) {
                f(key, placed, weights);
            }
        })
    }

    fn thread(&mut self, key: ThreadKey) -> u32 {
        let next = self.threads.len() as u32;
        let thread = *self.by_thread.entry(key).or_insert(next);
        if thread == next {
            self.threads.push(key);
            let name = NameId(0);
            self.of_threads.push(OfThread { hidden_idle: false, busy: false, cpu_ns: 0, name });
        }
        thread
    }

    /// Returns whether the thread filter matches the thread's name at that time, or its group.
    fn is_chosen(&mut self, key: &FactKey, group: u32) -> bool {
        let Some(pattern) = self.settings.filters.threads.active() else { return true };
        *self.chosen.entry((key.name, group)).or_insert_with(|| {
            let name = self.snapshot.tables.name(key.name);
            let by_group = match self.settings.grouping {
                Grouping::Thread => pattern.is_match(&thread_label(name, key.thread)),
                _ => self.groups.label(group).names().any(|name| pattern.is_match(name)),
            };
            by_group || pattern.is_match(name)
        })
    }
}

fn add(totals: &mut Totals, state: State, weights: &Weights) {
    totals.wall_ns += weights.wall_ns;
    totals.cpu_ns += weights.cpu_ns;
    totals.hits += u64::from(weights.hits);
    totals.cpu_hits += u64::from(weights.cpu_hits);
    totals.states_ns[state as usize] += weights.wall_ns;
    totals.add_longest(weights.longest_ns, weights.longest_from);
}

/// Sorts by a small number, in one pass; stable.
pub(super) fn by_counting<T: Copy>(
    items: &[T],
    numbers: usize,
    number: impl Fn(&T) -> u32,
) -> Vec<T> {
    let Some(any) = items.first() else { return Vec::new() };
    let mut places = vec![0; numbers];
    items.iter().for_each(|item| places[number(item) as usize] += 1);
    let mut start = 0;
    for place in &mut places {
        start += std::mem::replace(place, start);
    }
    let mut sorted = vec![*any; items.len()];
    for item in items {
        let place: &mut usize = &mut places[number(item) as usize];
        sorted[*place] = *item;
        *place += 1;
    }
    sorted
}
