//! Reads the range once: every fact is put into its group, and either shown or counted as hidden.

use rustc_hash::FxHashMap;

use super::filter::Verdicts;
use super::group::{Groups, thread_label};
use super::rows::Rows;
use super::{Hidden, Totals};
use crate::model::facts::{FactKey, Weights};
use crate::model::frame::{Ns, ThreadKey};
use crate::model::settings::{Grouping, Settings};
use crate::model::snapshot::Snapshot;
use crate::model::state::State;
use crate::model::tables::{NameId, StackId};

/// What one stack holds in one group.
pub(super) struct Cell {
    pub group: u32,
    pub stack: StackId,
    idle: bool,
    pub totals: Totals,
}

/// A thread was seen with a cell's stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seen {
    pub thread: u32,
    pub cell: u32,
    pub name: NameId,
}

/// What is shown of a range, and what is not.
pub(super) struct Shown {
    pub from: Ns,
    pub till: Ns,
    pub cells: Vec<Cell>,
    /// Sorted, each once.
    pub seen: Vec<Seen>,
    /// What [`Seen::thread`] counts.
    pub threads: Vec<ThreadKey>,
    pub hidden: Hidden,
    pub only_idle: bool,
}

/// Calls its argument with every fact and returns what was read, `(from, till)`.
pub(super) type ReadFacts<'a> = dyn FnMut(&mut dyn FnMut(&FactKey, &Weights)) -> (Ns, Ns) + 'a;

pub(super) struct Reader<'a> {
    snapshot: &'a Snapshot,
    settings: &'a Settings,
    rows: &'a Rows,
    verdicts: &'a Verdicts,
    groups: &'a mut Groups,
    cells: Vec<Cell>,
    by_stack: FxHashMap<(u32, StackId, bool), u32>,
    seen: Vec<Seen>,
    threads: Vec<ThreadKey>,
    by_thread: FxHashMap<ThreadKey, u32>,
    /// Per thread: some of its time is hidden as idle; some of its time is not idle.
    idle: Vec<(bool, bool)>,
    /// What the thread filter says of a name in a group.
    chosen: FxHashMap<(NameId, u32), bool>,
    hidden: Hidden,
    left: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        settings: &'a Settings,
        rows: &'a Rows,
        verdicts: &'a Verdicts,
        groups: &'a mut Groups,
    ) -> Reader<'a> {
        Reader {
            snapshot,
            settings,
            rows,
            verdicts,
            groups,
            cells: Vec::new(),
            by_stack: FxHashMap::default(),
            seen: Vec::new(),
            threads: Vec::new(),
            by_thread: FxHashMap::default(),
            idle: Vec::new(),
            chosen: FxHashMap::default(),
            hidden: Hidden::default(),
            left: false,
        }
    }

    pub(super) fn read(mut self, facts: &mut ReadFacts<'_>) -> Shown {
        let (from, till) = facts(&mut |key, weights| self.fact(key, weights));
        let only_idle = !self.left && !self.hidden.idle.is_empty();
        if only_idle {
            self.hidden.idle = Totals::default();
        } else {
            let cells = &self.cells;
            self.seen.retain(|seen| !cells[seen.cell as usize].idle);
            self.hidden.idle_threads = self.idle.iter().filter(|(idle, busy)| *idle && !*busy).count() as u32;
        }
        self.seen.sort_unstable();
        self.seen.dedup();
        if !only_idle {
            drop_idle(&mut self.cells, &mut self.seen);
        }
        Shown { from, till, cells: self.cells, seen: self.seen, threads: self.threads, hidden: self.hidden, only_idle }
    }

    fn fact(&mut self, key: &FactKey, weights: &Weights) {
        // Ids are read in the tables they came with; a stack they do not have has no frames.
        let known = (key.stack.0 as usize) < self.snapshot.tables.stack_count();
        let stack = if known { key.stack } else { StackId::EMPTY };
        let path = self.verdicts.of_stack(stack);
        let state = key.state.resolve(self.snapshot.tables.futex_kind(stack));
        let who = (key.thread, key.name);
        let group = self.groups.of(self.snapshot, self.settings, self.rows, who, path.group);
        let thread = self.thread(key.thread);
        let is_idle = path.wait.is_idle(state);
        if !is_idle && (weights.wall_ns > 0 || weights.cpu_ns > 0) {
            self.idle[thread as usize].1 = true;
        }

        let filters = &self.settings.filters;
        if !self.is_chosen(key, group) {
            add(&mut self.hidden.threads, state, weights);
        } else if filters.focus.active().is_some() && !path.focus {
            add(&mut self.hidden.focus, state, weights);
        } else if path.ignore {
            add(&mut self.hidden.ignore, state, weights);
        } else {
            let hide = is_idle && !self.settings.idle;
            if hide {
                add(&mut self.hidden.idle, state, weights);
                self.idle[thread as usize].0 = true;
            } else {
                self.left |= weights.wall_ns > 0 || weights.cpu_ns > 0;
            }
            let next = self.cells.len() as u32;
            let cell = *self.by_stack.entry((group, stack, hide)).or_insert(next);
            if cell == next {
                self.cells.push(Cell { group, stack, idle: hide, totals: Totals::default() });
            }
            add(&mut self.cells[cell as usize].totals, state, weights);
            self.seen.push(Seen { thread, cell, name: key.name });
        }
    }

    fn thread(&mut self, key: ThreadKey) -> u32 {
        let next = self.threads.len() as u32;
        let thread = *self.by_thread.entry(key).or_insert(next);
        if thread == next {
            self.threads.push(key);
            self.idle.push((false, false));
        }
        thread
    }

    /// The thread filter: a thread's name then, or its group, matches.
    fn is_chosen(&mut self, key: &FactKey, group: u32) -> bool {
        let Some(pattern) = self.settings.filters.threads.active() else { return true };
        *self.chosen.entry((key.name, group)).or_insert_with(|| {
            let name = self.snapshot.tables.name(key.name);
            let by_group = match self.settings.grouping {
                Grouping::Thread => pattern.is_match(&thread_label(name, key.thread)),
                _ => pattern.is_match(self.groups.label(group)),
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

/// Takes the idle cells out; nobody in `seen` refers to one.
fn drop_idle(cells: &mut Vec<Cell>, seen: &mut [Seen]) {
    let mut place = Vec::with_capacity(cells.len());
    let mut kept = 0;
    for cell in cells.iter() {
        place.push(kept);
        kept += u32::from(!cell.idle);
    }
    for seen in seen.iter_mut() {
        seen.cell = place[seen.cell as usize];
    }
    cells.retain(|cell| !cell.idle);
}
