//! What the threads of a group did when: by columns of time, and as a sequence of runs.

use std::cell::Cell as Shared;
use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::columns::NONE;
use super::fact_reader::{Placed, Reader};
use super::projector::Projector;
use super::shown_stacks::Walker;
use super::{Group, Projection};
use crate::model::facts::fact::Weights;
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::{Location, StackId};
use crate::model::projection::settings::{Range, Settings};
use crate::model::vocabulary::frame::{Ns, ThreadKey};
use crate::model::vocabulary::state::State;

/// Maximum threads; those that were busy for the shortest time are dropped first.
pub const MAX_THREADS: usize = 500;
/// Maximum runs of one thread, and of all.
pub const MAX_RUNS: usize = 10_000;
const MAX_ALL_RUNS: usize = 100_000;
/// Runs for which each thread has room, however many the others have.
const LEAST_RUNS: usize = MAX_ALL_RUNS / MAX_THREADS;

/// The threads of a group: its name, and theirs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Members {
    pub group: Arc<str>,
    pub threads: Vec<(ThreadKey, Arc<str>)>,
}

impl Members {
    /// Returns the threads of a group that are told apart.
    pub fn of(group: &Group) -> Members {
        let known = group.threads.iter().filter(|of| !of.thread.is_unknown());
        let threads = known.map(|of| (of.thread, of.name.clone())).collect();
        Members { group: group.name.clone(), threads }
    }

    /// Returns the thread's name, with its number where another thread has the same one.
    fn name_of(&self, thread: ThreadKey, name: &Arc<str>) -> Arc<str> {
        match self.threads.iter().filter(|(_, other)| other == name).nth(1) {
            Some(_) => format!("{name} {}", thread.shown_id()).into(),
            None => name.clone(),
        }
    }
}

/// A thread that is busy for this part of a column is shown as busy.
const BUSY_PART: Ns = 10;

/// Threads with this part of the busy time of the busiest one stand before the others.
const MAIN_PART: Ns = 8;

/// What a thread does at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Doing {
    pub state: State,
    /// It waits for work, and such time is hidden.
    pub is_idle: bool,
    /// The innermost shown function, an index into [`Timeline::functions`]; `None` if none is
    /// shown. Always `None` where it is idle: one idle wait is as good as another.
    pub function: Option<u32>,
}

/// A row's function.
#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    pub location: Arc<Location>,
    /// What it calls elsewhere, where the thread was in that.
    pub calls: Option<Arc<Location>>,
}

/// Time of one thread in one column, ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// What it did for most of it, and how long. A thread that was busy for a tenth of the time
    /// counts as busy: a hiccup shall be seen among waits for work.
    pub doing: Doing,
    pub ns: Ns,
    /// All of its time there.
    pub all_ns: Ns,
}

/// A time in which a thread did one thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub from: Ns,
    pub ns: Ns,
    pub doing: Doing,
    /// It is no wait, or one alone. Otherwise the thread was seen waiting at moments, and may have
    /// done other things between them, or waited several times.
    pub is_one: bool,
}

/// One thread.
#[derive(Clone, PartialEq, Debug)]
pub struct ThreadLine {
    pub thread: ThreadKey,
    /// Its newest name in the range.
    pub name: Arc<str>,
    /// By column; `None` where nothing is known of it.
    pub cells: Vec<Option<Cell>>,
    /// What it did in order; no two in a row are equal, unless a time of which nothing is known is
    /// between them.
    pub runs: Vec<Run>,
    /// Number and time of earlier runs, for which there was no room.
    pub dropped: usize,
    pub dropped_ns: Ns,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Timeline {
    /// The name of the group.
    pub group: Arc<str>,
    /// Where columns begin, and where the last one ends.
    pub edges: Vec<Ns>,
    /// The order is known. Otherwise only whole seconds are, or older buckets: within one, runs are
    /// ordered by their time.
    pub is_exact: bool,
    /// Those that did more than wait for work come first.
    pub threads: Vec<ThreadLine>,
    /// Number of other threads, for which there was no room.
    pub threads_dropped: usize,
    pub functions: Vec<Function>,
}

impl Timeline {
    /// Returns the threads that it is of.
    pub fn members(&self) -> Members {
        let threads = self.threads.iter().map(|line| (line.thread, line.name.clone())).collect();
        Members { group: self.group.clone(), threads }
    }

    /// Returns the range, `(from, till)`.
    pub fn span(&self) -> (Ns, Ns) {
        (self.edges.first().copied().unwrap_or(0), self.edges.last().copied().unwrap_or(0))
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.edges.len().saturating_sub(1)
    }

    /// Returns the column of a moment; the nearest of one that is outside.
    pub fn column_of(&self, at: Ns) -> usize {
        let after = self.edges.partition_point(|edge| *edge <= at);
        after.saturating_sub(1).min(self.columns().saturating_sub(1))
    }

    /// Returns where columns of one width begin, and that width, ns. The last column of the range
    /// may be narrower than those before it. Where history is older, its buckets are wider.
    pub fn widths(&self) -> Vec<(usize, Ns)> {
        let mut widths: Vec<(usize, Ns)> = Vec::new();
        let last = self.columns().saturating_sub(1);
        for (column, edges) in self.edges.windows(2).enumerate() {
            let width = edges[1] - edges[0];
            // Even columns differ by a nanosecond where their time does not divide.
            let is_same = |before: Ns| {
                width.abs_diff(before) <= 1 || column == last && column > 0 && width < before
            };
            if !widths.last().is_some_and(|(_, before)| is_same(*before)) {
                widths.push((column, width));
            }
        }
        widths
    }

    pub fn function(&self, doing: Doing) -> Option<&Function> {
        self.functions.get(doing.function? as usize)
    }
}

impl ThreadLine {
    /// Returns the index of the run at a moment, or of the last one before.
    pub fn run_at(&self, at: Ns) -> Option<usize> {
        self.runs.partition_point(|run| run.from <= at).checked_sub(1)
    }
}

/// A thread's time in the range, ns.
#[derive(Clone, Copy, Default)]
struct Time {
    busy: Ns,
    idle: Ns,
}

/// Time that a thread spent with one thing.
#[derive(Clone, Copy)]
struct Piece {
    /// The index of the thread's line.
    line: u32,
    /// Of an exact one; else the bucket's start.
    from: Ns,
    ns: Ns,
    doing: Doing,
    since: Option<Ns>,
}

/// Returns the start of the wait that reaches over the part; of a part in which the thread did not
/// wait, its own. `None`: it may have been several waits.
pub(super) fn since(state: State, (from, ns): (Ns, Ns), weights: &Weights) -> Option<Ns> {
    // Clocks are read one after the other, and a thread goes through the kernel before it waits.
    let most = ns - ns / 20;
    let till = from + ns;
    let wait_end = weights.longest_from.saturating_add(weights.longest_ns);
    let waited = wait_end.min(till).saturating_sub(weights.longest_from.max(from));
    match state {
        State::Run | State::Rdy => Some(from),
        _ => (weights.longest_ns > 0 && waited >= most).then_some(weights.longest_from),
    }
}

impl Projector {
    /// Returns what these threads did when, in at most `columns` columns. `projection`: of the same
    /// snapshot and settings. Time that filters hide is not in it; a thread's time is all that it
    /// did, whichever group that belongs to.
    pub fn timeline(
        &mut self,
        snapshot: &Snapshot,
        settings: &Settings,
        projection: &Projection,
        members: &Members,
        columns: usize,
    ) -> Timeline {
        let known = members.threads.iter();
        let index: FxHashMap<ThreadKey, u32> =
            known.map(|(thread, _)| *thread).zip(0u32..).collect();

        let history = &snapshot.history;
        let (from, till) = (projection.from, projection.till);
        let is_exact = from >= history.spans().from() && from < till;
        let range = match settings.range {
            // The table of all time has no times.
            Range::Cumulative { since: None } => Range::Rolling(Ns::MAX),
            range => range,
        };
        let buckets = if is_exact { Vec::new() } else { history.buckets(range, snapshot.at) };
        let edges = match is_exact {
            true => even_edges(from, till, columns),
            false => bucket_edges(&buckets, columns),
        };

        // The part of the range that the present fact is of.
        let part = Shared::new((from, 0));
        let of_part = Shared::new(Weights::default());
        let shows_idle = settings.idle || projection.only_idle;
        self.update(snapshot, settings);
        let Projector { rows, verdicts, groups, facts, stacks, .. } = self;
        // Calls the function with the index of each fact's thread, its place, and its part.
        let mut each = |f: &mut dyn FnMut(u32, bool, Placed, (Ns, Ns))| {
            Reader::new(snapshot, settings, rows, verdicts, groups, facts).each(
                &mut |f| {
                    if is_exact {
                        history.spans().read(from, till, &mut |span, weights| {
                            if weights.wall_ns > 0 && index.contains_key(&span.key.thread) {
                                part.set((span.from.max(from), weights.wall_ns));
                                of_part.set(*weights);
                                f(0, &span.key, weights);
                            }
                        });
                        return (from, till);
                    }
                    history.read_by_bucket(range, snapshot.at, &mut |bucket, key, weights| {
                        if weights.wall_ns > 0 && index.contains_key(&key.thread) {
                            let start = buckets.get(bucket).map_or(from, |(start, _)| *start);
                            part.set((start, weights.wall_ns));
                            f(bucket, key, weights);
                        }
                    })
                },
                |key, placed, _| {
                    let Some(thread) = index.get(&key.thread).copied() else { return };
                    f(thread, placed.is_idle && !shows_idle, placed, part.get());
                },
            );
        };

        // All threads are read to find those for which there is room, and where they were.
        let mut times = vec![Time::default(); members.threads.len()];
        let mut functions_of: FxHashMap<StackId, Option<u32>> = FxHashMap::default();
        each(&mut |thread, is_idle, placed, (_, ns)| {
            let time = &mut times[thread as usize];
            if is_idle {
                time.idle += ns;
            } else {
                time.busy += ns;
                functions_of.insert(placed.stack, None);
            }
        });
        let (chosen, threads_dropped) = choose(&times, members);
        let mut lines: Vec<Option<u32>> = vec![None; times.len()];
        chosen.iter().zip(0..).for_each(|(thread, line)| lines[*thread as usize] = Some(line));

        let walker = Walker { tables: &snapshot.tables, settings, rows, verdicts };
        // In order, so that equal facts have equal timelines.
        let mut busy_stacks: Vec<_> = functions_of.iter_mut().collect();
        busy_stacks.sort_unstable_by_key(|(stack, _)| **stack);
        stacks.update(&walker, busy_stacks.iter().map(|(stack, _)| **stack));
        let mut functions: Vec<Function> = Vec::new();
        let mut of_rows: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        for (stack, function) in busy_stacks {
            let mut at = stacks.attach(*stack);
            if at == NONE {
                continue;
            }
            let entry = |at: u32| stacks.entries()[at as usize];
            let row = |at: u32| rows.row(entry(at).location, settings.roll_up);
            // As a row names it: the function, and what it itself calls elsewhere.
            let mut inner = None;
            while entry(at).is_entry && entry(at).parent != NONE {
                inner = Some(row(at));
                at = entry(at).parent;
            }
            let outer = row(at);
            let key = (outer.0, inner.map_or(NONE, |(row, _)| row));
            *function = Some(*of_rows.entry(key).or_insert_with(|| {
                let location = |of: u32| rows.location(of).clone();
                let calls = inner.map(|(_, of)| location(of));
                functions.push(Function { location: location(outer.1), calls });
                functions.len() as u32 - 1
            }));
        }

        let mut pieces: Vec<Piece> = Vec::new();
        // What is not in order is summed at once: there may be many buckets.
        let mut sums: FxHashMap<(u32, Ns, Doing), Ns> = FxHashMap::default();
        each(&mut |thread, is_idle, placed, (from, ns)| {
            let Some(line) = lines[thread as usize] else { return };
            let function = if is_idle { None } else { functions_of[&placed.stack] };
            let doing = Doing { state: placed.state, is_idle, function };
            match is_exact {
                true => {
                    let since = since(doing.state, (from, ns), &of_part.get());
                    pieces.push(Piece { line, from, ns, doing, since });
                }
                false => *sums.entry((line, from, doing)).or_default() += ns,
            }
        });
        let sums = sums.into_iter();
        let piece = |((line, from, doing), ns)| Piece { line, from, ns, doing, since: None };
        pieces.extend(sums.map(piece));
        pieces.sort_unstable_by_key(|piece| {
            let weight = if is_exact { 0 } else { piece.ns };
            (piece.line, piece.from, Reverse(weight), piece.doing)
        });

        let mut timeline = Timeline {
            group: members.group.clone(),
            edges,
            is_exact,
            functions,
            threads_dropped,
            ..Timeline::default()
        };
        let (mut room, mut others) = (MAX_ALL_RUNS, chosen.len());
        for of_thread in pieces.chunk_by(|a, b| a.line == b.line) {
            let thread = chosen[of_thread[0].line as usize];
            let (thread, name) = &members.threads[thread as usize];
            let mut runs = runs(of_thread, is_exact);
            let cells = match is_exact {
                true => timeline.cells(runs.iter().copied()),
                // Merged runs extend over several columns in an unknown way.
                false => timeline.cells(of_thread.iter().map(Piece::run)),
            };
            others -= 1;
            let kept = runs.len().min(MAX_RUNS).min(room - LEAST_RUNS * others);
            room -= kept;
            let dropped = runs.len() - kept;
            let dropped_ns = runs.drain(..dropped).map(|run| run.ns).sum();
            runs.shrink_to_fit();
            let (thread, name) = (*thread, members.name_of(*thread, name));
            timeline.threads.push(ThreadLine { thread, name, cells, runs, dropped, dropped_ns });
        }
        timeline
    }
}

/// Returns the indexes of the threads for which there is room, in the order of their lines, and the
/// number of others that have any time.
fn choose(times: &[Time], members: &Members) -> (Vec<u32>, usize) {
    let key = |thread: u32| members.threads[thread as usize].0;
    let time = |thread: u32| times[thread as usize];
    let has_time = |thread: &u32| time(*thread).busy + time(*thread).idle > 0;
    let mut threads: Vec<u32> = (0..times.len() as u32).filter(has_time).collect();
    threads.sort_unstable_by_key(|thread| (Reverse(time(*thread).busy), key(*thread)));
    let dropped = threads.len().saturating_sub(MAX_THREADS);
    threads.truncate(MAX_THREADS);
    // The busiest are seen without scrolling, and keep their places while they are about as busy.
    let most = threads.iter().map(|thread| time(*thread).busy).max().unwrap_or(0);
    let rank = |busy: Ns| match busy {
        0 => 2,
        busy => u8::from(busy < most / MAIN_PART),
    };
    threads.sort_unstable_by_key(|thread| (rank(time(*thread).busy), key(*thread)));
    (threads, dropped)
}

impl Timeline {
    /// Returns what a thread did for most of each column. `runs`: in order.
    fn cells(&self, runs: impl Iterator<Item = Run>) -> Vec<Option<Cell>> {
        let mut cells = vec![None; self.columns()];
        let mut times: FxHashMap<Doing, Ns> = FxHashMap::default();
        let mut current = 0;
        let mut add = |column: usize, doing, ns| {
            if column != current {
                cells[current] = most(&times);
                times.clear();
                current = column;
            }
            *times.entry(doing).or_default() += ns;
        };
        for Run { from, ns, doing, .. } in runs {
            let mut column = self.column_of(from);
            if !self.is_exact {
                add(column, doing, ns);
                continue;
            }
            let (mut at, till) = (from, from + ns);
            while at < till && column < self.columns() {
                let next = self.edges[column + 1].min(till);
                add(column, doing, next - at);
                (at, column) = (next, column + 1);
            }
        }
        if let Some(cell) = cells.get_mut(current) {
            *cell = most(&times);
        }
        cells
    }
}

/// Returns what a thread did for most of a column.
fn most(times: &FxHashMap<Doing, Ns>) -> Option<Cell> {
    let all_ns: Ns = times.values().sum();
    let is_busy = |(doing, _): &(&Doing, &Ns)| !doing.is_idle;
    let busy_ns: Ns = times.iter().filter(is_busy).map(|(_, ns)| ns).sum();
    let tells = |time: &(&Doing, &Ns)| busy_ns < all_ns / BUSY_PART || is_busy(time);
    let times = times.iter().filter(tells);
    let (doing, ns) = times.max_by_key(|(doing, ns)| (**ns, Reverse(**doing)))?;
    Some(Cell { doing: *doing, ns: *ns, all_ns })
}

impl Piece {
    fn run(&self) -> Run {
        let is_one = self.since.is_some();
        Run { from: self.from, ns: self.ns, doing: self.doing, is_one }
    }
}

/// Merges consecutive equal ones. `pieces`: of one thread, in order.
fn runs(pieces: &[Piece], is_exact: bool) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut since = None;
    for piece in pieces {
        match runs.last_mut() {
            Some(last)
                if last.doing == piece.doing
                    && (!is_exact || last.from + last.ns == piece.from) =>
            {
                // Two waits, one after the other, are two.
                let is_wait = !matches!(piece.doing.state, State::Run | State::Rdy);
                last.is_one &= piece.since.is_some() && (!is_wait || piece.since == since);
                last.ns += piece.ns;
            }
            _ => runs.push(piece.run()),
        }
        since = piece.since;
    }
    runs
}

/// Returns the edges of columns of one width, as far as nanoseconds allow.
fn even_edges(from: Ns, till: Ns, columns: usize) -> Vec<Ns> {
    let length = till - from;
    let columns = (columns.max(1) as u64).min(length);
    let edge =
        |nth: u64| from + (u128::from(length) * u128::from(nth) / u128::from(columns)) as u64;
    (0..=columns).map(edge).collect()
}

/// Returns the edges of columns of one or more whole buckets.
fn bucket_edges(buckets: &[(Ns, Ns)], columns: usize) -> Vec<Ns> {
    let each = buckets.len().div_ceil(columns.max(1)).max(1);
    let starts = buckets.iter().step_by(each).map(|(start, _)| *start);
    starts.chain(buckets.last().map(|(_, end)| *end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_those_of_columns() {
        let widths = |edges: Vec<Ns>| Timeline { edges, ..Timeline::default() }.widths();
        assert_eq!(widths(even_edges(0, 100, 7)), [(0, 14)]);
        // Three buckets of 10, five of 1: two in each column.
        let buckets: Vec<(Ns, Ns)> =
            (0..3).map(|n| (10 * n, 10 * n + 10)).chain((30..35).map(|n| (n, n + 1))).collect();
        assert_eq!(bucket_edges(&buckets, 4), [0, 20, 31, 33, 35]);
        assert_eq!(widths(bucket_edges(&buckets, 4)), [(0, 20), (1, 11), (2, 2)]);
        // The last column has fewer buckets.
        let even: Vec<(Ns, Ns)> = (0..7).map(|n| (n * 5, n * 5 + 5)).collect();
        assert_eq!(widths(bucket_edges(&even, 4)), [(0, 10)]);
        assert_eq!(widths(vec![0, 10]), [(0, 10)]);
        assert_eq!(widths(Vec::new()), []);
    }

    #[test]
    fn the_busiest_threads_are_chosen() {
        let members = |count: u32| {
            let thread = |tid| (ThreadKey { pid: 1, tid, start: 1 }, "pool".into());
            Members { threads: (0..count).map(thread).collect(), ..Members::default() }
        };
        let (idle, busy) = (Time { busy: 0, idle: 9 }, |busy| Time { busy, idle: 1 });
        let mut times = vec![idle, busy(1), Time::default(), busy(2), idle];
        assert_eq!(choose(&times, &members(5)), (vec![1, 3, 0, 4], 0));
        times.extend(vec![busy(2); MAX_THREADS]);
        let (chosen, dropped) = choose(&times, &members(times.len() as u32));
        let expected: Vec<u32> = [3].into_iter().chain(5..MAX_THREADS as u32 + 4).collect();
        assert_eq!((chosen, dropped), (expected, 4));
        // Those that were hardly busy stand after the others, those that were not at the end.
        let times = [idle, busy(2), busy(80), idle, busy(11), busy(10), busy(9)];
        assert_eq!(choose(&times, &members(7)).0, vec![2, 4, 5, 1, 6, 0, 3]);
    }

    #[test]
    fn threads_of_one_name_have_their_numbers() {
        let thread = |tid, name: &str| (ThreadKey { pid: 1, tid, start: 1 }, name.into());
        let threads = vec![thread(7, "pool"), thread(8, "main"), thread(9, "pool")];
        let members = Members { threads, ..Members::default() };
        let names = members.threads.iter().map(|(key, name)| members.name_of(*key, name));
        assert_eq!(names.collect::<Vec<_>>(), ["pool 7", "main", "pool 9"].map(Arc::from));
    }
}
