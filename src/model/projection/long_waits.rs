//! The long waits of a range, one by one.
//!
//! A wait that lasts for several buckets has a fact in each of them, with the same start and a
//! growing duration. These are joined while facts are read: buckets come in order of time, and of a
//! thread's waits only the last one continues in the next bucket.

use std::cell::LazyCell;
use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::columns::NONE;
use super::filter::Verdicts;
use super::holder_words::held_by;
use super::locks::{held_in, noun, with_several_threads};
use super::places::Places;
use super::rows::Rows;
use crate::model::facts::fact::{FactKey, Weights};
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::{Blocker, BlockerId, Holder, Location, NameId, StackId};
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::frame::{Ns, SECOND, ThreadKey};
use crate::model::vocabulary::qualified::simple_class;
use crate::model::vocabulary::state::State;

/// Minimum duration of a long wait, ns.
const MIN_LONG: Ns = SECOND / 100;
/// Maximum long waits of a range, the longest ones: as many as one scrolls through.
const MAX_LONG: usize = 1000;
/// Number of waits that are kept while facts are read, as a multiple of the maximum. Dropping the
/// shortest ones takes a sort, which must be rare.
const ROOM: usize = 4;

/// A long wait of one thread.
#[derive(Clone, PartialEq, Debug)]
pub struct LongWait {
    pub thread: ThreadKey,
    /// The thread's name at that time.
    pub name: Arc<str>,
    /// Where it waited: all frames, also those that are not shown.
    pub stack: StackId,
    pub state: State,
    /// What it waited for; see [`LongWait::what`] and [`LongWait::held_by`].
    pub blocker: BlockerId,
    /// The function in which the holder was when the wait was observed: the user's innermost one,
    /// or else a library's.
    pub held_in: Option<Arc<Location>>,
    /// The start, on CLOCK_MONOTONIC. It may be before the range.
    pub from_ns: Ns,
    /// The whole duration so far, ns, also of the part before the range.
    pub duration_ns: Ns,
    /// It goes on at the end of the range.
    pub goes_on: bool,
    /// An index into [`super::Projection::groups`].
    pub group: u32,
    /// The node at which the stack ends; `None` if none of its frames is shown.
    pub node: Option<u32>,
}

impl LongWait {
    /// Returns what it waited for: `monitor of TaxTable`, `end of worker-3`, `recv -> db[812]`.
    /// `None` if that is not known.
    pub fn what(&self, snapshot: &Snapshot) -> Option<String> {
        if let Some(blocker) = snapshot.tables.blocker(self.blocker) {
            let class = blocker.class.as_deref().map(simple_class);
            return Some(match (blocker.kind, blocker.holder) {
                (BlockerKind::ThreadEnd, Holder::Thread { name, .. }) => {
                    format!("end of {}", snapshot.tables.name(name))
                }
                (kind, _) => noun(kind, class),
            });
        }
        let till = self.from_ns.saturating_add(self.duration_ns);
        let mut observed = snapshot.observed_waits.iter();
        let observed = observed.find(|wait| {
            (wait.thread, wait.stack) == (self.thread, self.stack)
                && (self.from_ns..=till).contains(&wait.at)
        });
        match observed {
            Some(wait) => Some(wait.waits_for.to_string()),
            None => Some(snapshot.tables.kernel_lock(self.stack)?.text(None)),
        }
    }

    /// Returns who held it, if that is known: `held by timer`.
    pub fn held_by(&self, snapshot: &Snapshot) -> Option<String> {
        let Blocker { kind, pid, holder, .. } = snapshot.tables.blocker(self.blocker)?;
        match holder {
            // Already said by what it waited for. That it was just released says nothing of the
            // time before.
            Holder::Thread { .. } if *kind == BlockerKind::ThreadEnd => None,
            Holder::Free if kind.is_held() => None,
            Holder::Thread { name, .. } => {
                held_by(*kind, *holder, snapshot.tables.name(*name), *pid)
            }
            _ => held_by(*kind, *holder, "", *pid),
        }
    }
}

/// A wait as far as facts tell.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// As numbered while facts are read.
    thread: u32,
    from: Ns,
    ns: Ns,
    stack: StackId,
    state: State,
    /// Its blockers, and the time for which facts say so, ns.
    blockers: Blockers,
    name: NameId,
    cell: u32,
}

/// The blockers of a wait, at most four that are known. Further ones take the place of the one with
/// the least time.
#[derive(Clone, Copy, Debug, Default)]
struct Blockers([(BlockerId, u64); 4]);

impl Blockers {
    fn of(blocker: BlockerId, ns: u64) -> Blockers {
        let mut blockers = Blockers::default();
        blockers.add(blocker, ns);
        blockers
    }

    fn add(&mut self, blocker: BlockerId, ns: u64) {
        if blocker == BlockerId::NONE {
            return;
        }
        if let Some(known) = self.0.iter_mut().find(|(known, _)| *known == blocker) {
            known.1 += ns;
            return;
        }
        let least = self.0.iter_mut().min_by_key(|(_, ns)| *ns);
        if let Some(least) = least.filter(|least| least.0 == BlockerId::NONE || least.1 < ns) {
            *least = (blocker, ns);
        }
    }

    /// Returns the one of most of the wait; a known one before none.
    fn main(&self) -> BlockerId {
        let rank = |(blocker, ns): &&(BlockerId, u64)| (*blocker != BlockerId::NONE, *ns, *blocker);
        self.0.iter().max_by_key(rank).map_or(BlockerId::NONE, |(blocker, _)| *blocker)
    }
}

impl Found {
    /// Replaces it by a fact of the same wait with a longer duration. Of equal ones the same is
    /// kept whatever their order. The times of blockers are summed: the last holder of many may
    /// have had the lock for a moment.
    fn join(&mut self, other: &Found) {
        let mut blockers = self.blockers;
        other.blockers.0.iter().for_each(|(blocker, ns)| blockers.add(*blocker, *ns));
        let rank = |of: &Found| (of.ns, of.stack, of.state, of.name, of.cell);
        if rank(other) > rank(self) {
            *self = *other;
        }
        self.blockers = blockers;
    }
}

/// The last wait of a thread.
#[derive(Clone, Copy)]
struct Last {
    from: Ns,
    /// Its index in the list, or [`NONE`] if it was dropped.
    at: u32,
}

/// The longest waits so far, of different threads or starts.
struct Longest {
    /// Maximum number of waits of the result.
    max: usize,
    found: Vec<Found>,
    /// By thread; its start is [`Ns::MAX`] if the thread has none.
    last: Vec<Last>,
    /// Shorter waits are dropped: as many longer ones as needed were found. ns.
    floor: Ns,
    /// Number of waits that were dropped. One is counted again if it continues in the next bucket,
    /// and a later wait of its thread comes before it there.
    dropped: u64,
}

const NO_LAST: Last = Last { from: Ns::MAX, at: NONE };

impl Longest {
    fn new(max: usize) -> Longest {
        Longest { max, found: Vec::new(), last: Vec::new(), floor: 0, dropped: 0 }
    }

    /// Adds the longest wait of a fact.
    fn add(&mut self, wait: Found) {
        let thread = wait.thread as usize;
        if thread >= self.last.len() {
            self.last.resize(thread + 1, NO_LAST);
        }
        let last = &mut self.last[thread];
        let continues = last.from == wait.from;
        if continues && let Some(known) = self.found.get_mut(last.at as usize) {
            known.join(&wait);
            return;
        }
        let at = if wait.ns < self.floor { NONE } else { self.found.len() as u32 };
        match (continues, at) {
            // It was counted before.
            (true, NONE) => {}
            (true, _) => self.dropped = self.dropped.saturating_sub(1),
            (false, NONE) => self.dropped += 1,
            (false, _) => {}
        }
        if continues || last.from == Ns::MAX || wait.from > last.from {
            *last = Last { from: wait.from, at };
        }
        if at != NONE {
            self.found.push(wait);
            if self.found.len() >= self.max * ROOM {
                self.shrink();
            }
        }
    }

    /// Joins what belongs to one wait, and keeps the longest ones.
    fn shrink(&mut self) {
        self.found.sort_unstable_by_key(|wait| (wait.thread, wait.from));
        self.found.dedup_by(|next, kept| {
            let is_same = (next.thread, next.from) == (kept.thread, kept.from);
            if is_same {
                kept.join(next);
            }
            is_same
        });
        if self.found.len() > self.max {
            let rank = |wait: &Found| (Reverse(wait.ns), wait.from, wait.thread);
            let (_, shortest, _) = self.found.select_nth_unstable_by_key(self.max - 1, rank);
            self.floor = shortest.ns;
            self.dropped += (self.found.len() - self.max) as u64;
            self.found.truncate(self.max);
        }
        // What is not found below was dropped.
        self.last.iter_mut().for_each(|last| last.at = NONE);
        for (at, wait) in (0..).zip(&self.found) {
            let last = &mut self.last[wait.thread as usize];
            if last.from == wait.from {
                last.at = at;
            }
        }
    }
}

/// The long waits of the facts that are read.
pub(super) struct LongWaits {
    /// Minimum duration of a long wait, ns.
    pub min_ns: Ns,
    shown: Longest,
    /// Those that are hidden as idle, unless nothing else is left.
    idle: Longest,
}

impl Default for LongWaits {
    fn default() -> LongWaits {
        LongWaits { min_ns: MIN_LONG, shown: Longest::new(MAX_LONG), idle: Longest::new(MAX_LONG) }
    }
}

impl LongWaits {
    pub(super) fn new(snapshot: &Snapshot) -> LongWaits {
        LongWaits { min_ns: MIN_LONG.max(snapshot.resolution()), ..LongWaits::default() }
    }

    /// Adds a fact of this thread and cell whose longest wait is long. `is_idle`: hidden as idle,
    /// unless nothing else is left.
    #[cold]
    pub(super) fn add(
        &mut self,
        key: &FactKey,
        weights: &Weights,
        state: State,
        (thread, cell, is_idle): (u32, u32, bool),
    ) {
        if matches!(state, State::Run | State::Rdy) {
            return;
        }
        let &FactKey { stack, blocker, name, .. } = key;
        let Weights { longest_ns: ns, longest_from: from, .. } = *weights;
        let longest = if is_idle { &mut self.idle } else { &mut self.shown };
        let blockers = Blockers::of(blocker, weights.wall_ns);
        longest.add(Found { thread, from, ns, stack, state, blockers, name, cell });
    }

    /// Shows those that are hidden as idle, too.
    pub(super) fn show_idle(&mut self) {
        let idle = std::mem::replace(&mut self.idle, Longest::new(MAX_LONG));
        self.shown.dropped += idle.dropped;
        idle.found.into_iter().for_each(|wait| self.shown.add(wait));
    }

    /// Returns the long waits, the longest first, and the number of others, which are dropped.
    /// `threads`: by their numbers; `past_till`: the end of a range that is past; `place`: a cell's
    /// group, an index in the projection, and its node, or [`NONE`].
    pub(super) fn list(
        self,
        (snapshot, rows, verdicts): (&Snapshot, &Rows, &Verdicts),
        (threads, past_till): (&[ThreadKey], Option<Ns>),
        place: impl Fn(u32) -> (u32, u32),
    ) -> (Vec<LongWait>, u64) {
        let mut longest = self.shown;
        longest.shrink();
        if longest.found.is_empty() {
            return (Vec::new(), longest.dropped);
        }
        let waiting = snapshot.threads.iter().filter(|now| {
            let state = snapshot.tables.state(now.state, now.stack);
            !matches!(state, State::Run | State::Rdy)
        });
        let waiting: FxHashMap<ThreadKey, Ns> =
            waiting.map(|now| (now.thread, now.since)).collect();
        let mut places = Places::new(snapshot, rows, verdicts);
        let with_others = LazyCell::new(|| with_several_threads(snapshot, threads));
        let mut known: FxHashMap<BlockerId, Option<Arc<Location>>> = FxHashMap::default();
        let mut held_in = |id: BlockerId| {
            let find = || {
                let blocker = snapshot.tables.blocker(id)?;
                let stack = held_in(blocker, |pid| with_others.contains(&pid))?;
                let innermost = *places.of(stack).last()?;
                Some(rows.location(innermost).clone())
            };
            known.entry(id).or_insert_with(find).clone()
        };
        let wait = |found: Found| {
            let thread = threads[found.thread as usize];
            let (group, node) = place(found.cell);
            let since = waiting.get(&thread).copied();
            // Where visits are rationed, `since` is later by the time that is not known to belong
            // to the wait.
            let is_now = |since: &Ns| {
                *since == found.from || since.checked_add(found.ns) == Some(snapshot.at)
            };
            let since = since.filter(is_now);
            let known_ns = since.map_or(0, |since| snapshot.at.saturating_sub(since));
            LongWait {
                thread,
                name: snapshot.tables.name(found.name).clone(),
                stack: found.stack,
                state: found.state,
                blocker: found.blockers.main(),
                held_in: held_in(found.blockers.main()),
                from_ns: found.from,
                duration_ns: found.ns.max(known_ns),
                // A wait that goes on is booked up to the end of the range's last bucket.
                goes_on: since.is_some()
                    || past_till.is_some_and(|till| found.from.saturating_add(found.ns) >= till),
                group,
                node: Some(node).filter(|node| *node != NONE),
            }
        };
        let mut waits: Vec<LongWait> = longest.found.into_iter().map(wait).collect();
        waits.sort_unstable_by_key(|wait| (Reverse(wait.duration_ns), wait.from_ns, wait.thread));
        (waits, longest.dropped)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn found(thread: u32, from: Ns, ns: Ns) -> Found {
        let (stack, blockers, name) = (StackId(1), Blockers::default(), NameId(0));
        Found { thread, from, ns, stack, state: State::Lock, blockers, name, cell: 0 }
    }

    /// Returns duration, start and thread of the waits that are kept, and the number of others.
    fn longest(max: usize, waits: &[Found]) -> (Vec<(Ns, Ns, u32)>, u64) {
        let mut longest = Longest::new(max);
        for wait in waits {
            longest.add(*wait);
            assert!(longest.found.len() < max * ROOM, "bounded");
        }
        longest.shrink();
        let mut kept: Vec<_> = longest.found.iter().map(|w| (w.ns, w.from, w.thread)).collect();
        kept.sort_unstable_by_key(|(ns, from, thread)| (Reverse(*ns), *from, *thread));
        (kept, longest.dropped)
    }

    #[test]
    fn the_longest_are_kept_and_the_others_counted() {
        let waits: Vec<Found> =
            (0..5000).map(|nth| found(nth % 7, nth.into(), 5000 - u64::from(nth))).collect();
        let (kept, dropped) = longest(MAX_LONG, &waits);
        assert_eq!((kept.len(), dropped), (1000, 4000));
        assert_eq!((kept[0], kept[999]), ((5000, 0, 0), (4001, 999, 5)));
        // The shortest first: each of them is found before those that it gives way to.
        let reversed: Vec<Found> = waits.iter().rev().copied().collect();
        assert_eq!(longest(MAX_LONG, &reversed), (kept, 4000));
        // Of equal ones those that began first.
        let equal: Vec<Found> =
            (0..4).map(|thread| found(thread, 9 - u64::from(thread), 5)).collect();
        assert_eq!(longest(3, &equal), (vec![(5, 6, 3), (5, 7, 2), (5, 8, 1)], 1));
    }

    #[test]
    fn the_blocker_is_that_of_most_of_the_wait() {
        let by = |blocker: u32, ns, blocked_ns| Found {
            blockers: Blockers::of(BlockerId(blocker), blocked_ns),
            ..found(0, 5, ns)
        };
        // Three holders in turn, one in two buckets, the last for a moment; and for a moment it was
        // not known.
        let facts = [
            by(3, 500, 500),
            by(4, 1_100, 600),
            by(3, 1_550, 450),
            by(7, 1_560, 10),
            by(0, 1_570, 9),
        ];
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1]] {
            let mut longest = Longest::new(2);
            order.into_iter().for_each(|at: usize| longest.add(facts[at]));
            longest.shrink();
            let kept: Vec<_> =
                longest.found.iter().map(|wait| (wait.ns, wait.blockers.main())).collect();
            assert_eq!(kept, [(1_570, BlockerId(3))], "{order:?}");
        }
    }

    #[test]
    fn a_wait_that_was_dropped_comes_back_when_it_is_longer() {
        let others: Vec<Found> = (1..8).map(|thread| found(thread, 0, 50)).collect();
        let mut waits = [&[found(0, 0, 10)][..], &others].concat();
        assert_eq!(longest(2, &waits).1, 6);
        // Dropped, found again in a later bucket, and longer than the others at last.
        waits.push(found(0, 0, 20));
        assert_eq!(longest(2, &waits), (vec![(50, 0, 1), (50, 0, 2)], 6));
        waits.push(found(0, 0, 60));
        assert_eq!(longest(2, &waits), (vec![(60, 0, 0), (50, 0, 1)], 6));
    }

    #[test]
    fn of_the_facts_of_one_wait_the_one_with_a_known_blocker_is_kept() {
        let unknown = found(0, 3, 10);
        let known = Found { blockers: Blockers::of(BlockerId(4), 10), ..unknown };
        let shorter = Found { blockers: Blockers::of(BlockerId(5), 9), ns: 9, ..unknown };
        for facts in [[unknown, known, shorter], [shorter, known, unknown]] {
            let mut longest = Longest::new(9);
            facts.into_iter().for_each(|fact| longest.add(fact));
            let blocker = longest.found[0].blockers.main();
            assert_eq!((longest.found.len(), blocker), (1, BlockerId(4)));
        }
    }

    #[test]
    fn only_the_last_wait_of_a_thread_is_joined_without_a_sort() {
        let mut longest = Longest::new(9);
        for (from, ns) in [(50, 10), (20, 15), (50, 40), (20, 25)] {
            longest.add(found(3, from, ns));
        }
        let found = |longest: &Longest| -> Vec<(Ns, Ns)> {
            longest.found.iter().map(|wait| (wait.from, wait.ns)).collect()
        };
        assert_eq!(found(&longest), [(50, 40), (20, 15), (20, 25)]);
        longest.shrink();
        assert_eq!(found(&longest), [(20, 25), (50, 40)]);
    }

    proptest! {
        #[test]
        fn the_list_is_what_sorting_all_waits_gives(
            // Of each thread: gaps and durations of its waits, in thirds of a bucket.
            threads in prop::collection::vec(prop::collection::vec((1u64..9, 1u64..20), 0..12), 1..8),
            max in 1usize..6,
            reversed in any::<bool>(),
        ) {
            let mut facts = Vec::new();
            let mut all: BTreeMap<(u32, Ns), Ns> = BTreeMap::new();
            for (thread, waits) in (0u32..).zip(&threads) {
                let mut at = 0;
                for (gap, ns) in waits {
                    let (from, till) = (at + gap, at + gap + ns);
                    for bucket in from / 3..=(till - 1) / 3 {
                        facts.push((bucket, found(thread, from, till.min(3 * bucket + 3) - from)));
                    }
                    all.insert((thread, from), *ns);
                    at = till;
                }
            }
            match reversed {
                true => facts.sort_by_key(|(bucket, fact)| (*bucket, Reverse(fact.from))),
                false => facts.sort_by_key(|(bucket, _)| *bucket),
            }
            let facts: Vec<Found> = facts.into_iter().map(|(_, fact)| fact).collect();
            let (kept, dropped) = longest(max, &facts);
            let counted = kept.len() as u64 + dropped;
            prop_assert!(counted == all.len() as u64 || (reversed && counted > all.len() as u64));
            prop_assert_eq!(kept.len(), all.len().min(max));
            let mut durations: Vec<Ns> = all.values().copied().collect();
            durations.sort_unstable_by_key(|ns| Reverse(*ns));
            durations.truncate(max);
            prop_assert_eq!(kept.iter().map(|(ns, ..)| *ns).collect::<Vec<_>>(), durations);
            for (ns, from, thread) in kept {
                prop_assert_eq!(all.get(&(thread, from)), Some(&ns));
            }
        }
    }
}
