//! Threads that have waited for a while: they are looked at in rotation, so that what they cost is
//! bounded.
//!
//! Up to a round's turns (50 at 100 Hz) nothing changes: each is looked at in every round. 500 are
//! each looked at every 100 ms, and that is the error of when such a wait ends, unless a sample of
//! perf's tells earlier. The sampler asks for a full scan once a second, right
//! after it has read the process's clock (its time must not be taken for that of threads that are
//! gone), and wherever what is silent must be proven: after a gap, and at the end.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use crate::model::vocabulary::frame::{Ns, SECOND};

/// Time after which a thread that waits and does not move is parked.
pub const PARKED_AFTER: Ns = SECOND / 4;

/// Time within which a thread that moves again was parked in vain: it is observed at every tick
/// until it has waited for that long. A JVM has two threads that move every quarter of a second:
/// each time every thread was observed.
pub const RESTLESS: Ns = SECOND;
/// Maximum at a time.
const RESTLESS_MOST: usize = 16;

/// Looks a second at all that are parked. A look is one read, 0.8 to 1.4 us where all cores are
/// busy: 0.7 % of a core at most.
const LOOKS_PER_SECOND: u64 = 5_000;

/// The number of parked threads that have their turn at a tick.
pub fn turns(interval: Ns) -> usize {
    let turns = u128::from(LOOKS_PER_SECOND) * u128::from(interval) / u128::from(SECOND);
    turns.clamp(1, usize::MAX as u128) as usize
}

/// First observations a second, of all processes: with nine system calls and a walk each a third of
/// a core.
const FIRST_PER_SECOND: u64 = 10_000;

/// Number of threads observed for the first time in a round.
pub fn first_observations(interval: Ns) -> usize {
    let number = u128::from(FIRST_PER_SECOND) * u128::from(interval) / u128::from(SECOND);
    number.clamp(1, usize::MAX as u128) as usize
}

/// Who is parked, and whose turn was last.
#[derive(Default)]
pub struct Parked {
    tids: BTreeSet<u32>,
    last: u32,
    restless: Vec<u32>,
}

impl Parked {
    /// For how long a thread has to have waited.
    pub fn after(&self, tid: u32) -> Ns {
        if self.restless.contains(&tid) { RESTLESS } else { PARKED_AFTER }
    }

    pub fn add(&mut self, tid: u32) {
        self.tids.insert(tid);
        self.restless.retain(|restless| *restless != tid);
    }

    /// It has moved, after it had waited for this time, ns.
    pub fn woke(&mut self, tid: u32, waited: Ns) {
        if self.tids.remove(&tid) && waited < RESTLESS && self.restless.len() < RESTLESS_MOST {
            self.restless.push(tid);
        }
    }

    /// It has ended.
    pub fn forget(&mut self, tid: u32) {
        self.tids.remove(&tid);
        self.restless.retain(|restless| *restless != tid);
    }

    pub fn len(&self) -> usize {
        self.tids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tids.is_empty()
    }

    pub fn clear(&mut self) {
        self.tids.clear();
        self.restless.clear();
    }

    /// Replaces `out` with those whose turn it is now, at most `most`, and none twice. In the order
    /// of their ids from the one after the last turn: whichever thread comes or goes, none is
    /// passed over.
    pub fn take_turns(&mut self, most: usize, out: &mut Vec<u32>) {
        out.clear();
        let after = self.tids.range((Excluded(self.last), Unbounded));
        let before = self.tids.range(..=self.last);
        out.extend(after.chain(before).take(most));
        if let Some(last) = out.last() {
            self.last = *last;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn turns_follow_the_interval() {
        assert_eq!((turns(10_000_000), first_observations(10_000_000)), (50, 100));
        assert_eq!(turns(1_000_000), 5);
        assert_eq!((turns(1), turns(0), first_observations(0)), (1, 1, 1));
        assert_eq!(turns(10 * SECOND), 50_000);
        assert!(turns(Ns::MAX) > 1 << 40);
    }

    #[test]
    fn a_few_have_their_turn_every_time_and_once() {
        let mut parked = Parked::default();
        [5, 1, 9].into_iter().for_each(|tid| parked.add(tid));
        let mut out = vec![77];
        for _ in 0..3 {
            parked.take_turns(3, &mut out);
            out.sort_unstable();
            assert_eq!(out, [1, 5, 9]);
        }
        parked.clear();
        parked.take_turns(3, &mut out);
        assert!(out.is_empty());
    }

    #[test]
    fn one_that_moves_again_soon_is_parked_later_and_only_some_are() {
        let mut parked = Parked::default();
        let mut out = Vec::new();
        assert_eq!(parked.after(7), PARKED_AFTER);
        parked.woke(7, PARKED_AFTER);
        assert_eq!(parked.after(7), PARKED_AFTER, "it was not parked");
        parked.add(7);
        parked.woke(7, RESTLESS);
        assert_eq!(parked.after(7), PARKED_AFTER, "it had waited for long");
        parked.add(7);
        parked.woke(7, RESTLESS - 1);
        assert_eq!((parked.after(7), parked.after(8), parked.len()), (RESTLESS, PARKED_AFTER, 0));
        parked.add(7);
        assert_eq!(parked.after(7), PARKED_AFTER, "it has waited for long now");
        for tid in 0..100 {
            parked.add(tid);
            parked.woke(tid, 0);
        }
        let restless =
            |parked: &Parked| (0..100).filter(|tid| parked.after(*tid) == RESTLESS).count();
        assert_eq!(restless(&parked), RESTLESS_MOST);
        (0..4).for_each(|tid| parked.forget(tid));
        assert_eq!(restless(&parked), RESTLESS_MOST - 4);
        parked.take_turns(3, &mut out);
        assert!(out.is_empty());
        parked.clear();
        assert_eq!(restless(&parked), 0);
    }

    proptest! {
        /// Whoever stays parked has a turn within as many rounds as the most that were ever parked
        /// need, whoever else comes and goes meanwhile.
        #[test]
        fn nobody_is_passed_over(
            first in proptest::collection::btree_set(0u32..500, 1..200),
            rounds in proptest::collection::vec(proptest::collection::vec((0u32..500, any::<bool>()), 0..10), 1..100),
            most in 1usize..50,
        ) {
            let mut parked = Parked::default();
            // When each came, or had its turn.
            let mut waiting: HashMap<u32, usize> = first.iter().map(|tid| (*tid, 0)).collect();
            first.iter().for_each(|tid| parked.add(*tid));
            // At each tick at most this number comes that the rotation meets before it is complete.
            let (mut ever, mut out) = (first.len(), Vec::new());
            for (round, changes) in rounds.iter().enumerate() {
                for (tid, comes) in changes {
                    if *comes {
                        parked.add(*tid);
                        waiting.entry(*tid).or_insert_with(|| { ever += 1; round });
                    } else {
                        parked.woke(*tid, SECOND);
                        waiting.remove(tid);
                    }
                }
                parked.take_turns(most, &mut out);
                prop_assert_eq!(out.len(), most.min(waiting.len()));
                for tid in &out {
                    prop_assert!(waiting.contains_key(tid));
                    waiting.insert(*tid, round + 1);
                }
                let longest = waiting.values().map(|since| round + 1 - since).max().unwrap_or(0);
                prop_assert!(longest <= ever.div_ceil(most), "{} rounds, {} of {}", longest, ever, most);
            }
        }
    }
}
