//! How long the tick interval is: the time from one thread scan to the next.
//!
//! The kernel takes samples of running code by itself, with their times, and they wait in its
//! rings. So a thread scan need not be as frequent as the samples: each tick costs a wake-up, cold
//! caches, and a core that a saturated machine has no time for. What longer tick intervals cost is
//! the number of observations of waits, see docs/design/capture.md.

use crate::model::vocabulary::frame::{Ns, SECOND};

const MS: Ns = 1_000_000;

/// The tick interval while threads run.
const BUSY: Ns = 50 * MS;
/// The tick interval while the targets are idle.
const IDLE: Ns = 125 * MS;
/// Maximum tick interval, however much the sampling interval is stretched: less than the time
/// after which [`crate::model::facts::weigh`] takes silence for a gap.
const MAX: Ns = 250 * MS;
/// Time without activity after which the targets are idle.
const IDLE_AFTER: Ns = 250 * MS;
/// Inverse of the share of the time that the threads of an idle target may run.
const IDLE_SHARE: u64 = 100;
/// Time after an event for which the tick interval is the sampling interval.
const PROMPT_FOR: Ns = SECOND;

/// What the backend supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Support {
    /// The kernel takes samples by itself.
    pub samples: bool,
    /// A sample can wake the sampler: [`crate::capture::bpf::Bpf::request_wakeup`].
    pub wakeup: bool,
}

pub struct TickInterval {
    /// Until this time the tick interval is the sampling interval.
    prompt_until: Ns,
    /// The newest activity of any kind.
    active: Ns,
    /// The last thread scan.
    scanned: Ns,
}

impl TickInterval {
    /// Begins with prompt ticks, since the user waits for the first rows.
    pub fn new(now: Ns) -> TickInterval {
        TickInterval { prompt_until: now + PROMPT_FOR, active: now, scanned: now }
    }

    /// Asks for prompt ticks for a while: the targets change, their threads live shorter than a
    /// tick interval, or their code is replaced before samples of it are walked.
    pub fn prompt(&mut self, now: Ns) {
        self.prompt_until = self.prompt_until.max(now + PROMPT_FOR);
    }

    /// Records a sample.
    pub fn sampled(&mut self, at: Ns) {
        self.active = self.active.max(at);
    }

    /// Records the run time of all threads since the last thread scan, ns.
    pub fn ran(&mut self, now: Ns, ran: Ns) {
        if ran.saturating_mul(IDLE_SHARE) > now.saturating_sub(self.scanned) {
            self.active = now;
        }
        self.scanned = now;
    }

    /// Returns whether the targets have been idle for a while.
    pub fn is_idle(&self, now: Ns) -> bool {
        now >= self.active + IDLE_AFTER && now >= self.prompt_until
    }

    /// Returns the next tick interval, ns. `interval`: of samples; `asked`: the one asked for, at
    /// most as long.
    pub fn next(&self, now: Ns, interval: Ns, asked: Ns, support: Support) -> Ns {
        if !support.samples || now < self.prompt_until {
            return interval;
        }
        let usual = if support.wakeup && self.is_idle(now) { IDLE } else { BUSY };
        // A stretched interval has to cost less in proportion.
        let stretched = u128::from(usual) * u128::from(interval) / u128::from(asked.max(1));
        interval.max(Ns::try_from(stretched).unwrap_or(MAX).clamp(usual, MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Support = Support { samples: true, wakeup: true };

    fn next(ticks: &TickInterval, now: Ns, support: Support) -> Ns {
        ticks.next(now, 10 * MS, 10 * MS, support) / MS
    }

    #[test]
    fn ticks_begin_prompt_and_become_rare_as_the_target_becomes_idle() {
        let mut ticks = TickInterval::new(0);
        assert_eq!(next(&ticks, SECOND - 1, ALL), 10);
        ticks.sampled(2 * SECOND);
        assert_eq!(next(&ticks, 2 * SECOND + IDLE_AFTER - 1, ALL), 50);
        assert_eq!(next(&ticks, 2 * SECOND + IDLE_AFTER, ALL), 125);
        assert_eq!(next(&ticks, 3 * SECOND, Support { wakeup: false, ..ALL }), 50);
        assert_eq!(next(&ticks, 3 * SECOND, Support { samples: false, ..ALL }), 10);
        ticks.prompt(3 * SECOND);
        assert_eq!(next(&ticks, 3 * SECOND, ALL), 10);
    }

    #[test]
    fn a_hundredth_of_a_core_is_no_activity() {
        let mut ticks = TickInterval::new(0);
        ticks.ran(2 * SECOND, 0);
        for (at, ran, idle) in
            [(2100, 1, true), (2200, 2, false), (2300, 1, false), (2500, 2, true)]
        {
            ticks.ran(at * MS, ran * MS);
            assert_eq!(ticks.is_idle(at * MS), idle, "{at}");
        }
    }

    #[test]
    fn the_tick_interval_follows_the_sampling_interval() {
        let ticks = TickInterval { active: SECOND, ..TickInterval::new(0) };
        let next = |interval, asked| ticks.next(SECOND, interval * MS, asked * MS, ALL) / MS;
        assert_eq!([next(1, 1), next(20, 20), next(100, 100)], [50, 50, 100]);
        assert_eq!([next(15, 10), next(50, 10), next(70, 10)], [75, 250, 250]);
        assert_eq!([next(500, 10), next(3, 1)], [500, 150]);
    }
}
