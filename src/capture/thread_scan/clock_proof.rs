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
const DIFFERENCES_TO_DISPROVE: u32 = 2;
/// Consecutive reads without a proof, after which the clock is not read for [`PAUSE_TICKS`] ticks.
/// Threads come and go then, or many wake now and then.
const MAX_FAILED_READS: u32 = 50;
const PAUSE_TICKS: usize = 200;

/// The proof, as far as it has come.
#[derive(Default)]
pub struct ClockProof {
    /// Process clock minus the run time of the known threads, ns, when all waiting threads had been
    /// observed.
    proven: Option<i128>,
    /// Consecutive reads with another difference.
    differences: u32,
    /// The latest other difference, and how many waiting threads must still be observed while it
    /// stays the same.
    next: Option<(i128, usize)>,
    /// Ticks until the clock is read again.
    pause: usize,
}

impl ClockProof {
    /// Returns whether to read the clock after every thread of this tick has been observed, and to
    /// call [`ClockProof::update`].
    pub fn needs_clock(&mut self) -> bool {
        self.pause = self.pause.saturating_sub(1);
        self.pause == 0
    }

    /// Takes the clock, if there is one. `ran`: run time of all threads at their last observation,
    /// ns; `waiting`: number of waiting threads; `turns`: how many of them this scan visited;
    /// `affordable`: how many it may visit.
    pub fn update(
        &mut self,
        clock: Option<Ns>,
        ran: u128,
        waiting: usize,
        turns: usize,
        affordable: usize,
    ) {
        let Some(beyond) = clock.and_then(|clock| i128::from(clock).checked_sub_unsigned(ran))
        else {
            *self = ClockProof { pause: PAUSE_TICKS, ..ClockProof::default() };
            return;
        };
        let every = waiting.div_ceil(affordable.max(1));
        if self.proven == Some(beyond) {
            (self.differences, self.next, self.pause) = (0, None, every);
            return;
        }
        self.differences += 1;
        self.next = match self.next {
            Some((same, left)) if same == beyond => Some((same, left.saturating_sub(turns))),
            _ => Some((beyond, waiting)),
        };
        if self.next == Some((beyond, 0)) {
            *self = ClockProof { proven: Some(beyond), pause: every, ..ClockProof::default() };
        } else if self.differences >= MAX_FAILED_READS {
            *self = ClockProof { pause: PAUSE_TICKS, ..ClockProof::default() };
        }
    }

    /// Counts one more waiting thread.
    pub fn add_waiting(&mut self) {
        if let Some((_, left)) = &mut self.next {
            *left += 1;
        }
    }

    /// Returns whether no waiting thread has run until the last tick, or the one before it.
    pub fn holds(&self) -> bool {
        self.proven.is_some() && self.differences < DIFFERENCES_TO_DISPROVE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs `ticks` ticks with process clock `clock` and thread run time `ran`; ten threads wait.
    fn after(proof: &mut ClockProof, ticks: usize, clock: Ns, ran: u128, turns: usize) -> bool {
        for _ in 0..ticks {
            if proof.needs_clock() {
                proof.update(Some(clock), ran, 10, turns, 10);
            }
        }
        proof.holds()
    }

    #[test]
    fn an_unchanged_difference_proves_a_wait_once_all_were_observed() {
        let mut proof = ClockProof::default();
        assert!(!after(&mut proof, 1, 1000, 400, 10), "what they did before is not known");
        assert!(!after(&mut proof, 1, 1000, 400, 9));
        assert!(after(&mut proof, 1, 1000, 400, 1), "the tenth");
        assert!(after(&mut proof, 20, 5000, 4400, 0), "running threads are observed");
        proof.update(None, 4400, 10, 0, 10);
        assert!(!proof.holds(), "without a clock nothing is known");
    }

    #[test]
    fn a_lasting_difference_ends_the_proof() {
        let mut proof = ClockProof::default();
        assert!(after(&mut proof, 2, 1000, 400, 10));
        assert!(
            after(&mut proof, 1, 1003, 400, 0) && after(&mut proof, 1, 1003, 403, 0),
            "its counters came a moment early"
        );
        assert!(after(&mut proof, 1, 1010, 403, 0), "once");
        assert!(!after(&mut proof, 1, 1010, 403, 0), "twice");
        assert!(!after(&mut proof, 1, 1010, 403, 9));
        assert!(after(&mut proof, 1, 1010, 410, 1), "it was found, and all is as it was");
    }

    #[test]
    fn a_run_between_two_turns_delays_the_proof() {
        let mut proof = ClockProof::default();
        assert!(!after(&mut proof, 2, 1000, 400, 5));
        // One of the first five threads has run.
        assert!(!after(&mut proof, 1, 1001, 400, 5));
        assert!(!after(&mut proof, 1, 1001, 400, 5));
        proof.add_waiting();
        assert!(!after(&mut proof, 1, 1001, 400, 5), "another one waits, and has not had its turn");
        assert!(after(&mut proof, 1, 1001, 400, 5));
    }

    #[test]
    fn the_clock_is_read_once_per_rotation_and_at_once_after_a_difference() {
        let mut proof = ClockProof::default();
        // Returns for each tick whether the clock was read, with 95 waiting threads and 20 visits
        // per tick.
        let mut ticks = |clock: Ns, number: usize| -> Vec<bool> {
            let tick = |_| {
                let needs_clock = proof.needs_clock();
                if needs_clock {
                    proof.update(Some(clock), 0, 95, 95, 20);
                }
                needs_clock
            };
            (0..number).map(tick).collect()
        };
        let (yes, no) = (true, false);
        assert_eq!(ticks(7, 8), [yes, yes, no, no, no, no, yes, no]);
        assert_eq!(ticks(8, 6), [no, no, no, yes, yes, no], "all are observed again");
    }

    #[test]
    fn after_many_failed_reads_the_clock_is_read_seldom() {
        let (mut proof, mut asked) = (ClockProof::default(), 0);
        for tick in 0..1000 {
            if proof.needs_clock() {
                asked += 1;
                proof.update(Some(tick), 0, 10, 5, 5);
            }
            assert!(!proof.holds());
        }
        assert_eq!(asked, 4 * 50 + 4);
    }

    proptest! {
        /// Ten threads with exact counters. Each may run between any two observations, never twice
        /// for the same time. A thread that ran stays unobserved for at most one rotation and one
        /// tick.
        #[test]
        fn a_thread_that_ran_is_observed(
            ticks in proptest::collection::vec((0usize..40, 0usize..40), 1..300),
            max in 1usize..12,
        ) {
            let (mut proof, mut clock, mut next, mut random) = (ClockProof::default(), 0u64, 0, 1u64);
            let (mut ran, mut observed, mut silent) = ([0u64; 10], [0u64; 10], 0);
            for (before, after) in ticks {
                let mut run = |ran: &mut [u64; 10], thread: usize| {
                    if let Some(ran) = ran.get_mut(thread) {
                        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                        *ran += random >> 32;
                        clock += random >> 32;
                    }
                };
                run(&mut ran, before);
                let turns = if proof.holds() { 0 } else { max.min(10) };
                for _ in 0..turns {
                    observed[next] = ran[next];
                    next = (next + 1) % 10;
                }
                run(&mut ran, after);
                if proof.needs_clock() {
                    proof.update(Some(clock), observed.iter().map(|ran| u128::from(*ran)).sum(), 10, turns, max);
                }
                silent = if observed != ran && proof.holds() { silent + 1 } else { 0 };
                prop_assert!(silent <= 10usize.div_ceil(max), "{observed:?} of {ran:?}");
            }
        }
    }
}
