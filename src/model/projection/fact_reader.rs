//! Reads the range once: assigns every fact to its group and counts it as shown or hidden.

use rustc_hash::FxHashMap;

use super::busy_time::BusyTime;
use super::collection::Collection;
use super::columns::{Columns, NONE};
use super::filter::{Gap, Path, Verdicts};
use super::group::Groups;
use super::locks::{Waited, is_held_lock};
use super::long_waits::LongWaits;
use super::rows::Rows;
use super::trend::Trend;
use super::{Hidden, Totals};
use crate::model::facts::history::{FactKey, Weights};
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::{NameId, StackId};
use crate::model::projection::settings::{Grouping, Level, Metric, Settings};
use crate::model::vocabulary::frame::{Ns, ThreadKey, ThreadKind};
use crate::model::vocabulary::state::State;
use crate::model::vocabulary::thread_name_rules::is_collector;

/// One stack in one group. Its time is apart: most readers need no more than this.
pub(super) struct Cell {
    pub group: u32,
    pub stack: StackId,
    pub kind: CellKind,
    /// The last thread and name seen with it.
    seen: (u32, NameId),
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
    /// Of the cell.
    pub group: u32,
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
    /// By cell.
    pub sums: Columns,
    /// By [`StackId`]: its newest cell or [`NONE`], with the flag [`MANY`] if it has others.
    newest: Vec<u32>,
    /// Cells of stacks with several cells.
    others: FxHashMap<(u32, StackId, CellKind), u32>,
    seen: Vec<Seen>,
    /// In cells that are hidden as idle.
    seen_idle: Vec<Seen>,
}

const MANY: u32 = 1 << 31;

/// Number of facts that are read at a time. The results for their stacks lie anywhere in memory;
/// they are fetched in one go, so that the processor waits for all of them at once.
const AT_A_TIME: usize = 32;

/// A program whose threads are busy for a smaller part of the time in all is at rest: 2 % of one
/// thread.
pub(super) const AT_REST: f64 = 0.02;

impl Scratch {
    fn clear(&mut self, stack_count: usize) {
        self.cells.clear();
        self.sums.clear();
        self.newest.clear();
        self.newest.resize(stack_count.max(1), NONE);
        self.others.clear();
        self.seen.clear();
        self.seen_idle.clear();
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
            self.cells.push(Cell { group, stack, kind, seen: none });
            self.sums.push();
        }
        found
    }
}

/// The shown and hidden facts of a range.
pub(super) struct Shown {
    pub from: Ns,
    pub till: Ns,
    pub cells: Vec<Cell>,
    /// The time of each cell, until a tree has it.
    pub sums: Columns,
    /// For the shown cells, ordered by thread.
    pub seen: Vec<Seen>,
    /// The threads that [`Seen::thread`] refers to.
    pub threads: Vec<ThreadKey>,
    pub hidden: Hidden,
    pub only_idle: bool,
    pub collection: Collection,
    pub short_lived_cpu_ns: u64,
    /// See [`super::Projection::unobserved_ns`].
    pub unobserved_ns: u64,
    /// The shown thread of the program, not of a runtime, with most CPU time.
    pub busiest: Option<BusiestThread>,
    /// Waits whose blockers are known, of the threads that are shown.
    pub waited: Waited,
    pub long_waits: LongWaits,
    pub busy: BusyTime,
    pub trend: Option<Trend>,
}

impl Shown {
    /// Returns false for cells counted in [`Hidden::idle`].
    pub fn is_shown(&self, cell: &Cell) -> bool {
        self.only_idle || cell.kind != CellKind::Idle
    }

    /// Returns the memory for reuse. `sums`: as the tree has them; the next ones get these columns.
    pub fn done(self, scratch: &mut Scratch, sums: &Columns) {
        scratch.cells = self.cells;
        scratch.sums = sums.without_rows();
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
    who: Vec<Who>,
    by_who: FxHashMap<(ThreadKey, NameId), u32>,
    /// The last one that was asked for.
    last_who: Option<((ThreadKey, NameId), u32)>,
    /// By thread.
    of_threads: Vec<OfThread>,
    /// Result of the thread filter for a name in a group.
    chosen: FxHashMap<(NameId, u32), bool>,
    hidden: Hidden,
    left: bool,
    collection: Collection,
    short_lived_cpu_ns: u64,
    /// Time that was not observed, ns, of threads that pass the filters.
    unobserved_ns: u64,
    waited: Waited,
    long_waits: LongWaits,
    busy: BusyTime,
    trend: Option<Trend>,
}

/// A thread under one of its names.
#[derive(Clone, Copy)]
struct Who {
    thread: u32,
    kind: ThreadKind,
    /// It collects garbage.
    collects: bool,
    /// Its group, where that depends on neither state nor stack.
    group: Option<u32>,
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
            who: Vec::new(),
            by_who: FxHashMap::default(),
            last_who: None,
            of_threads: Vec::new(),
            chosen: FxHashMap::default(),
            hidden: Hidden::default(),
            left: false,
            collection: Collection::default(),
            short_lived_cpu_ns: 0,
            unobserved_ns: 0,
            waited: Waited::default(),
            long_waits: LongWaits::new(snapshot),
            busy: BusyTime::default(),
            trend: None,
        }
    }

    /// Books time by slices too, if wanted.
    pub(super) fn with_trend(self, trend: Option<Trend>) -> Reader<'a> {
        Reader { trend, ..self }
    }

    pub(super) fn read(mut self, facts: &mut ReadFacts<'_>) -> Shown {
        let mut next = Vec::with_capacity(AT_A_TIME);
        let (from, till) = facts(&mut |bucket, key, weights| {
            next.push((bucket, *key, *weights));
            if next.len() == AT_A_TIME {
                self.facts(&next);
                next.clear();
            }
        });
        self.facts(&next);
        if self.is_at_rest(till.saturating_sub(from)) {
            self.hide_upkeep();
        }
        // The user's own view says that there is nothing to see.
        let may_show_idle = self.settings.level != Level::Mine;
        let only_idle = may_show_idle && !self.left && !self.hidden.idle.is_empty();
        if only_idle {
            self.hidden.idle = Totals::default();
            self.long_waits.show_idle();
        } else {
            self.hidden.idle_threads =
                self.of_threads.iter().filter(|of| of.hidden_idle && !of.busy).count() as u32;
        }
        // Exited threads that were put together are no thread.
        let one = |thread: u32| !self.threads[thread as usize].is_unknown();
        let of_threads = (0..).zip(&self.of_threads).filter(|(thread, _)| one(*thread));
        let busiest = of_threads.max_by_key(|(_, of)| of.cpu_ns).map(
            |(thread, OfThread { cpu_ns, name, .. })| BusiestThread {
                thread,
                name: *name,
                cpu_ns: *cpu_ns,
            },
        );
        let Reader { scratch, threads, mut hidden, waited, long_waits, busy, trend, .. } = self;
        hidden.settle_off();
        let cells = std::mem::take(&mut scratch.cells);
        let sums = std::mem::take(&mut scratch.sums);
        if only_idle {
            scratch.seen.append(&mut scratch.seen_idle);
        }
        let seen = by_counting(&scratch.seen, threads.len(), |seen| seen.thread);
        Shown {
            from,
            till,
            cells,
            sums,
            seen,
            threads,
            hidden,
            only_idle,
            collection: self.collection,
            short_lived_cpu_ns: self.short_lived_cpu_ns,
            unobserved_ns: self.unobserved_ns,
            busiest,
            waited,
            long_waits,
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
            && (0..).zip(&self.scratch.cells).filter(|(_, c)| c.kind != CellKind::Idle).all(
                |(at, cell)| {
                    let sums = &self.scratch.sums;
                    busy_ns += sums.value(at, Metric::Wall).max(sums.value(at, Metric::Cpu));
                    (busy_ns as f64) < elapsed as f64 * AT_REST
                        && !self.verdicts.of_stack(cell.stack).has_app
                },
            )
    }

    /// Counts all that is left as waiting for work.
    fn hide_upkeep(&mut self) {
        let Scratch { cells, sums, seen, .. } = &mut *self.scratch;
        seen.clear();
        for (at, cell) in (0..).zip(cells).filter(|(_, cell)| cell.kind != CellKind::Idle) {
            cell.kind = CellKind::Idle;
            self.hidden.idle.add(&sums.get(at));
        }
        self.of_threads.iter_mut().for_each(|of| {
            of.hidden_idle |= of.busy;
            of.busy = false;
        });
        self.waited = Waited::default();
        self.long_waits = LongWaits::new(self.snapshot);
        self.busy = BusyTime::default();
    }

    /// Reads up to [`AT_A_TIME`] facts, each with the number of its bucket.
    fn facts(&mut self, facts: &[(usize, FactKey, Weights)]) {
        let mut paths = [Path::default(); AT_A_TIME];
        for (path, (_, key, _)) in paths.iter_mut().zip(facts) {
            *path = *self.verdicts.of_stack(self.stack(key));
        }
        for (path, (bucket, key, weights)) in paths.iter().zip(facts) {
            if let Some(trend) = &mut self.trend {
                trend.set_bucket(*bucket);
            }
            self.fact(key, path, weights);
        }
    }

    /// Returns the fact's stack. One that these tables do not have has no frames.
    fn stack(&self, key: &FactKey) -> StackId {
        let known = (key.stack.0 as usize) < self.snapshot.tables.stack_count();
        if known { key.stack } else { StackId::EMPTY }
    }

    fn fact(&mut self, key: &FactKey, path: &Path, weights: &Weights) {
        let Some((placed, is_internal)) = self.place(key, path, weights) else { return };
        let Placed { group, thread, stack, state, is_idle } = placed;
        let (tables, verdicts) = (&self.snapshot.tables, self.verdicts);
        let (stack, kind) = match self.settings.level {
            _ if is_idle && !self.settings.idle => (stack, CellKind::Idle),
            // The function in which a thread waited for work is not what takes the time until it
            // has a core.
            Level::Mine | Level::Chains
                if state == State::Rdy
                    && !is_internal
                    && verdicts.of_stack(stack).is_woken_from_idle(tables.futex_kind(stack)) =>
            {
                (StackId::EMPTY, CellKind::Woken)
            }
            // What a runtime does in its own threads is no more the user's than the frames by which
            // it runs his.
            Level::Mine if is_internal || Groups::is_of_go_runtime(self.settings, path) => {
                (StackId::EMPTY, CellKind::Plain)
            }
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
        // Of what is idle none will be shown if something else is.
        let is_hidden = kind == CellKind::Idle;
        if weights.longest_ns >= self.long_waits.min_ns && !(is_hidden && self.left) {
            self.long_waits.add(key, weights, state, (thread, at, is_hidden));
        }
        if path.gap == Gap::NotObserved {
            self.unobserved_ns += weights.wall_ns;
        } else if !is_idle {
            let of_stack = (verdicts.of_stack(stack), verdicts.exits());
            let blocker = tables.blocker(key.blocker);
            let is_locked = blocker.is_some_and(is_held_lock);
            self.busy.add(stack, of_stack, (group, thread), state, weights, is_locked);
        }
        let Scratch { cells, sums, seen, seen_idle, .. } = &mut *self.scratch;
        sums.add_fact(at, state, weights);
        if let Some(trend) = &mut self.trend {
            trend.add(at, state, weights);
        }
        let name = key.name;
        if std::mem::replace(&mut cells[at as usize].seen, (thread, name)) != (thread, name) {
            let seen = if kind == CellKind::Idle { seen_idle } else { seen };
            seen.push(Seen { thread, cell: at, name, group });
        }
    }

    /// Returns the place of a fact, or counts it as hidden by a filter. Idle time is counted as
    /// hidden but placed too, since it is shown if nothing else is left. Also returns whether the
    /// thread is a runtime's own. `path`: the result for its stack.
    fn place(&mut self, key: &FactKey, path: &Path, weights: &Weights) -> Option<(Placed, bool)> {
        let stack = self.stack(key);
        let state = self.snapshot.tables.state(key.state, stack);
        if let Some(trend) = &mut self.trend {
            trend.count(state, weights);
        }
        let Who { thread, kind, collects, group } = self.who(key);
        let group = group
            .filter(|_| !Groups::is_by_stack(self.settings, path))
            .unwrap_or_else(|| self.group(key, state, path));
        self.collection.add(collects, path.collects(), weights);
        if key.is_of_unobserved() {
            self.short_lived_cpu_ns += weights.cpu_ns;
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
        } else if filters.gil && !path.gil {
            &mut self.hidden.gil
        } else {
            if is_idle && !self.settings.idle {
                add(&mut self.hidden.idle, state, weights);
                self.of_threads[thread as usize].hidden_idle = true;
            } else {
                self.left |= weights.wall_ns > 0 || weights.cpu_ns > 0;
            }
            let placed = Placed { group, thread, stack, state, is_idle };
            return Some((placed, kind == ThreadKind::Internal));
        };
        let is_hidden_anyway = is_idle && !self.settings.idle;
        let hidden = if is_hidden_anyway { &mut self.hidden.filtered_idle } else { hidden };
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
            let path = *self.verdicts.of_stack(self.stack(key));
            if let Some((placed, _)) = self.place(key, &path, weights) {
                f(key, placed, weights);
            }
        })
    }

    /// Returns the fact's thread under its name at that time.
    fn who(&mut self, key: &FactKey) -> Who {
        let meant = (key.thread, key.name);
        if let Some((_, at)) = self.last_who.filter(|(last, _)| *last == meant) {
            return self.who[at as usize];
        }
        let at = match self.by_who.get(&meant) {
            Some(at) => *at,
            None => {
                let thread = self.thread(key.thread);
                let tables = &self.snapshot.tables;
                let kind = tables.kind(key.name);
                let collects = kind == ThreadKind::Internal && is_collector(tables.name(key.name));
                let of_fact = matches!(
                    self.settings.grouping,
                    Grouping::Blocker | Grouping::Label(_) | Grouping::Frame(_)
                );
                let group = (!of_fact).then(|| self.group(key, State::Run, &Path::default()));
                self.who.push(Who { thread, kind, collects, group });
                let at = self.who.len() as u32 - 1;
                self.by_who.insert(meant, at);
                at
            }
        };
        self.last_who = Some((meant, at));
        self.who[at as usize]
    }

    fn group(&mut self, key: &FactKey, state: State, path: &Path) -> u32 {
        let Reader { snapshot, settings, rows, .. } = *self;
        self.groups.of(snapshot, settings, rows, key, state, path)
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
        if self.settings.filters.threads.active().is_none() {
            return true;
        }
        *self.chosen.entry((key.name, group)).or_insert_with(|| {
            let thread = (key.thread, key.name);
            self.groups.is_chosen(self.snapshot, self.settings, thread, group)
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

/// Sorts by a small number, in two passes; stable. Does nothing for what is in order.
pub(super) fn by_counting<T: Copy>(
    items: &[T],
    numbers: usize,
    number: impl Fn(&T) -> u32,
) -> Vec<T> {
    let Some(any) = items.first() else { return Vec::new() };
    if items.is_sorted_by_key(&number) {
        return items.to_vec();
    }
    let mut places = vec![0u32; numbers];
    items.iter().for_each(|item| places[number(item) as usize] += 1);
    let mut start = 0;
    for place in &mut places {
        start += std::mem::replace(place, start);
    }
    let mut sorted = vec![*any; items.len()];
    for item in items {
        let place = &mut places[number(item) as usize];
        sorted[*place as usize] = *item;
        *place += 1;
    }
    sorted
}
