//! Threads that have waited for a while. They are observed in rotation, so that their cost is
//! bounded.
//!
//! With up to 50 parked threads at 100 Hz each is observed at every tick. Of 500, each is observed
//! every 100 ms. That is the error of the end of such a wait, unless a perf sample shows it
//! earlier.
//!
//! The sampler forces a full scan once a second, right after it has read the process clock.
//! Otherwise run time of parked threads would be booked to exited ones. It also forces one where a
//! thread without an observation must be proven to wait: after a gap, and at the end. Where visits
//! are rationed, there is no scan once a second: a rotation takes the visit interval, and the clock
//! is read again after three of them.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use crate::model::vocabulary::frame::{Ns, SECOND};

/// Time without run time after which a waiting thread is parked.
pub const PARKED_AFTER: Ns = SECOND / 4;

/// A thread that runs within this time after it was parked is restless. It is observed at every
/// tick until it has waited for this long. A JVM has two threads that run every quarter of a
/// second. Without this rule each such wake would make the scan observe every thread.
pub const RESTLESS: Ns = SECOND;
/// Maximum restless threads of a process.
const MAX_RESTLESS: usize = 16;

/// Maximum observations of parked threads per second. Each is one read, 0.8 to 1.4 us where all
/// cores are busy: 0.7 % of a core at most.
const MAX_PARKED_OBSERVATIONS_PER_SECOND: u64 = 5_000;

/// Returns the maximum visits of parked threads per tick.
pub fn turns(interval: Ns) -> usize {
    let turns =
        u128::from(MAX_PARKED_OBSERVATIONS_PER_SECOND) * u128::from(interval) / u128::from(SECOND);
    turns.clamp(1, usize::MAX as u128) as usize
}

/// Maximum first observations per second, over all processes. Each takes nine system calls and a
/// walk; together a third of a core.
const MAX_FIRST_OBSERVATIONS_PER_SECOND: u64 = 10_000;

/// Returns the maximum first observations per tick.
pub fn first_observations(interval: Ns) -> usize {
    let number =
        u128::from(MAX_FIRST_OBSERVATIONS_PER_SECOND) * u128::from(interval) / u128::from(SECOND);
    number.clamp(1, usize::MAX as u128) as usize
}

/// The parked threads, in rotation.
#[derive(Default)]
pub struct ParkedRotation {
    tids: BTreeSet<u32>,
    last: u32,
    restless: Vec<u32>,
}

impl ParkedRotation {
    /// Returns how long a thread must have waited to be parked.
    pub fn after(&self, tid: u32) -> Ns {
        if self.restless.contains(&tid) { RESTLESS } else { PARKED_AFTER }
    }

    pub fn add(&mut self, tid: u32) {
        self.tids.insert(tid);
        self.restless.retain(|restless| *restless != tid);
    }

    /// Removes a thread that has run, after it had waited for this time, ns.
    pub fn woke(&mut self, tid: u32, waited: Ns) {
        if self.tids.remove(&tid) && waited < RESTLESS && self.restless.len() < MAX_RESTLESS {
            self.restless.push(tid);
        }
    }

    /// Removes a thread that has exited.
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

    /// Replaces `out` with the next threads of the rotation: at most `max`, and none twice. The
    /// order is that of ids, from the one after the last turn. So no thread is skipped, whichever
    /// others come or go.
    pub fn take_turns(&mut self, max: usize, out: &mut Vec<u32>) {
        out.clear();
        let after = self.tids.range((Excluded(self.last), Unbounded));
        let before = self.tids.range(..=self.last);
        out.extend(after.chain(before).take(max));
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
    fn few_parked_threads_have_one_turn_at_every_tick() {
        let mut parked = ParkedRotation::default();
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
    fn a_limited_number_of_restless_threads_is_parked_later() {
        let mut parked = ParkedRotation::default();
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
            |parked: &ParkedRotation| (0..100).filter(|tid| parked.after(*tid) == RESTLESS).count();
        assert_eq!(restless(&parked), MAX_RESTLESS);
        (0..4).for_each(|tid| parked.forget(tid));
        assert_eq!(restless(&parked), MAX_RESTLESS - 4);
        parked.take_turns(3, &mut out);
        assert!(out.is_empty());
        parked.clear();
        assert_eq!(restless(&parked), 0);
    }

    proptest! {
        /// A thread that stays parked has a turn within one rotation of the largest number ever
        /// parked, whichever others come and go.
        #[test]
        fn every_parked_thread_has_a_turn(
            first in proptest::collection::btree_set(0u32..500, 1..200),
            ticks in proptest::collection::vec(proptest::collection::vec((0u32..500, any::<bool>()), 0..10), 1..100),
            max in 1usize..50,
        ) {
            let mut parked = ParkedRotation::default();
            // Tick at which each thread was parked, or had its last turn.
            let mut waiting: HashMap<u32, usize> = first.iter().map(|tid| (*tid, 0)).collect();
            first.iter().for_each(|tid| parked.add(*tid));
            // Threads parked so far: the rotation can meet at most this number before it is
            // complete.
            let (mut ever, mut out) = (first.len(), Vec::new());
            for (tick, changes) in ticks.iter().enumerate() {
                for (tid, comes) in changes {
                    if *comes {
                        parked.add(*tid);
                        waiting.entry(*tid).or_insert_with(|| { ever += 1; tick });
                    } else {
                        parked.woke(*tid, SECOND);
                        waiting.remove(tid);
                    }
                }
                parked.take_turns(max, &mut out);
                prop_assert_eq!(out.len(), max.min(waiting.len()));
                for tid in &out {
                    prop_assert!(waiting.contains_key(tid));
                    waiting.insert(*tid, tick + 1);
                }
                let longest = waiting.values().map(|since| tick + 1 - since).max().unwrap_or(0);
                prop_assert!(longest <= ever.div_ceil(max), "{} ticks, {} of {}", longest, ever, max);
            }
        }
    }
}
