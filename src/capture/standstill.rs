//! Proves from the process clock that no waiting thread has run, without reading any of them. The
//! clock sums the run time of all threads. If it grew by exactly the run time of the observed
//! threads, no other thread ran.
//!
//! The clock is read after the counters, so observed threads that run may have added a little more
//! to it. One difference therefore proves nothing. Two in a row make the scan visit every thread.
//!
//! Reading the clock adds up the counters of all threads: 125 ns for each whose counters are not in
//! the CPU cache. Observing a thread takes 600 to 1,400 ns. So the clock is read once per rotation
//! of the waiting threads.

use crate::model::vocabulary::frame::Ns;

/// Consecutive differences after which the proof no longer holds.
const DOUBTS: u32 = 2;
/// Consecutive reads without a proof, after which the clock is not read for [`REST`] ticks. Threads
/// come and go then, or many wake now and then.
const IN_VAIN: u32 = 50;
const REST: usize = 200;

/// The proof, as far as it has come.
#[derive(Default)]
pub struct Standstill {
    /// Process clock minus the run time of the known threads, ns, when all waiting threads had been
    /// observed.
    proven: Option<i128>,
    /// Consecutive reads with another difference.
    doubts: u32,
    /// The latest other difference, and how many waiting threads must still be observed while it
    /// stays the same.
    next: Option<(i128, usize)>,
    /// Ticks until the clock is read again.
    rest: usize,
}

impl Standstill {
    /// Returns whether to read the clock after every thread of this tick has been observed, and to
    /// call [`Standstill::answered`].
    pub fn asks(&mut self) -> bool {
        self.rest = self.rest.saturating_sub(1);
        self.rest == 0
    }

    /// Takes the clock, if there is one. `ran`: run time of all threads at their last observation,
    /// ns; `waiting`: number of waiting threads; `turns`: how many of them this scan visited;
    /// `affordable`: how many it may visit.
    pub fn answered(
        &mut self,
        clock: Option<Ns>,
        ran: u128,
        waiting: usize,
        turns: usize,
        affordable: usize,
    ) {
        let Some(beyond) = clock.and_then(|clock| i128::from(clock).checked_sub_unsigned(ran))
        else {
            *self = Standstill { rest: REST, ..Standstill::default() };
            return;
        };
        let every = waiting.div_ceil(affordable.max(1));
        if self.proven == Some(beyond) {
            (self.doubts, self.next, self.rest) = (0, None, every);
            return;
        }
        self.doubts += 1;
        self.next = match self.next {
            Some((same, left)) if same == beyond => Some((same, left.saturating_sub(turns))),
            _ => Some((beyond, waiting)),
        };
        if self.next == Some((beyond, 0)) {
            *self = Standstill { proven: Some(beyond), rest: every, ..Standstill::default() };
        } else if self.doubts >= IN_VAIN {
            *self = Standstill { rest: REST, ..Standstill::default() };
        }
    }

    /// Counts one more waiting thread.
    pub fn joined(&mut self) {
        if let Some((_, left)) = &mut self.next {
            *left += 1;
        }
    }

    /// Returns whether no waiting thread has run until the last tick, or the one before it.
    pub fn holds(&self) -> bool {
        self.proven.is_some() && self.doubts < DOUBTS
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs `rounds` ticks with process clock `clock` and thread run time `ran`; ten threads wait.
    fn after(still: &mut Standstill, rounds: usize, clock: Ns, ran: u128, turns: usize) -> bool {
        for _ in 0..rounds {
            if still.asks() {
                still.answered(Some(clock), ran, 10, turns, 10);
            }
        }
        still.holds()
    }

    #[test]
    fn nobody_runs_once_all_were_looked_at_and_the_clock_says_the_same() {
        let mut still = Standstill::default();
        assert!(!after(&mut still, 1, 1000, 400, 10), "what they did before is not known");
        assert!(!after(&mut still, 1, 1000, 400, 9));
        assert!(after(&mut still, 1, 1000, 400, 1), "the tenth");
        assert!(after(&mut still, 20, 5000, 4400, 0), "those that run are looked at");
        still.answered(None, 4400, 10, 0, 10);
        assert!(!still.holds(), "without a clock nothing is known");
    }

    #[test]
    fn a_difference_that_goes_away_was_of_one_that_ran_and_one_that_stays_was_not() {
        let mut still = Standstill::default();
        assert!(after(&mut still, 2, 1000, 400, 10));
        assert!(
            after(&mut still, 1, 1003, 400, 0) && after(&mut still, 1, 1003, 403, 0),
            "its counters came a moment early"
        );
        assert!(after(&mut still, 1, 1010, 403, 0), "once");
        assert!(!after(&mut still, 1, 1010, 403, 0), "twice");
        assert!(!after(&mut still, 1, 1010, 403, 9));
        assert!(after(&mut still, 1, 1010, 410, 1), "it was found, and all is as it was");
    }

    #[test]
    fn what_runs_between_two_turns_is_not_passed_over() {
        let mut still = Standstill::default();
        assert!(!after(&mut still, 2, 1000, 400, 5));
        // One of the first five threads has run.
        assert!(!after(&mut still, 1, 1001, 400, 5));
        assert!(!after(&mut still, 1, 1001, 400, 5));
        still.joined();
        assert!(!after(&mut still, 1, 1001, 400, 5), "another one waits, and has not had its turn");
        assert!(after(&mut still, 1, 1001, 400, 5));
    }

    #[test]
    fn it_is_asked_as_often_as_each_would_have_its_turn_and_at_once_when_in_doubt() {
        let mut still = Standstill::default();
        // Returns for each tick whether the clock was read, with 95 waiting threads and 20 visits
        // per tick.
        let mut rounds = |clock: Ns, number: usize| -> Vec<bool> {
            let round = |_| {
                let asks = still.asks();
                if asks {
                    still.answered(Some(clock), 0, 95, 95, 20);
                }
                asks
            };
            (0..number).map(round).collect()
        };
        let (yes, no) = (true, false);
        assert_eq!(rounds(7, 8), [yes, yes, no, no, no, no, yes, no]);
        assert_eq!(rounds(8, 6), [no, no, no, yes, yes, no], "all are looked at again");
    }

    #[test]
    fn where_it_is_in_vain_it_is_tried_seldom() {
        let (mut still, mut asked) = (Standstill::default(), 0);
        for round in 0..1000 {
            if still.asks() {
                asked += 1;
                still.answered(Some(round), 0, 10, 5, 5);
            }
            assert!(!still.holds());
        }
        assert_eq!(asked, 4 * 50 + 4);
    }

    proptest! {
        /// Ten threads with exact counters. Each may run between any two observations, never twice
        /// for the same time. A thread that ran stays unobserved for at most one rotation and one
        /// tick.
        #[test]
        fn who_has_run_is_looked_at(
            rounds in proptest::collection::vec((0usize..40, 0usize..40), 1..300),
            most in 1usize..12,
        ) {
            let (mut still, mut clock, mut next, mut random) = (Standstill::default(), 0u64, 0, 1u64);
            let (mut ran, mut told, mut silent) = ([0u64; 10], [0u64; 10], 0);
            for (before, after) in rounds {
                let mut run = |ran: &mut [u64; 10], thread: usize| {
                    if let Some(ran) = ran.get_mut(thread) {
                        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                        *ran += random >> 32;
                        clock += random >> 32;
                    }
                };
                run(&mut ran, before);
                let turns = if still.holds() { 0 } else { most.min(10) };
                for _ in 0..turns {
                    told[next] = ran[next];
                    next = (next + 1) % 10;
                }
                run(&mut ran, after);
                if still.asks() {
                    still.answered(Some(clock), told.iter().map(|ran| u128::from(*ran)).sum(), 10, turns, most);
                }
                silent = if told != ran && still.holds() { silent + 1 } else { 0 };
                prop_assert!(silent <= 10usize.div_ceil(most), "{told:?} of {ran:?}");
            }
        }
    }
}
