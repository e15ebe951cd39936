//! How long a round is: the time from one scan of the threads to the next.
//!
//! The kernel takes samples of running code by itself, with their times, and they wait in its
//! rings. So the scan need not be as frequent as the samples: each round costs a wake-up, cold
//! caches, and a core that a saturated machine has no time for. What a longer round costs is the
//! number of looks at waits, see docs/design/capture.md.

use crate::model::vocabulary::frame::{Ns, SECOND};

const MS: Ns = 1_000_000;

/// A round while threads run.
const BUSY: Ns = 50 * MS;
/// A round while the targets stand still.
const STILL: Ns = 125 * MS;
/// The longest round, however much the interval is stretched: less than the time after which
/// [`crate::model::facts::weigh`] takes silence for a gap.
const LONGEST: Ns = 250 * MS;
/// Time without activity after which the targets stand still.
const STILL_AFTER: Ns = 250 * MS;
/// Share of the time that threads may run in a target that stands still: 1 / this.
const STILL_SHARE: u64 = 100;
/// Time after an event for which rounds are as short as the interval.
const PROMPT_FOR: Ns = SECOND;

/// What a backend can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Means {
    /// The kernel takes samples by itself.
    pub samples: bool,
    /// A sample can wake us: [`crate::capture::bpf::Bpf::ring_at_sample`].
    pub bell: bool,
}

pub struct Rounds {
    /// Until this time rounds are as short as the interval.
    prompt_until: Ns,
    /// The newest activity of any kind.
    active: Ns,
    /// The last scan.
    scanned: Ns,
}

impl Rounds {
    /// Begins with prompt rounds, since the user waits for the first rows.
    pub fn new(now: Ns) -> Rounds {
        Rounds { prompt_until: now + PROMPT_FOR, active: now, scanned: now }
    }

    /// Asks for prompt rounds for a while: the targets change, their threads live shorter than a
    /// round, or their code is replaced before samples of it are walked.
    pub fn prompt(&mut self, now: Ns) {
        self.prompt_until = self.prompt_until.max(now + PROMPT_FOR);
    }

    /// Takes a sample.
    pub fn sampled(&mut self, at: Ns) {
        self.active = self.active.max(at);
    }

    /// Takes the run time of all threads since the last scan, ns.
    pub fn ran(&mut self, now: Ns, ran: Ns) {
        if ran.saturating_mul(STILL_SHARE) > now.saturating_sub(self.scanned) {
            self.active = now;
        }
        self.scanned = now;
    }

    /// Returns whether nothing has run for a while.
    pub fn is_still(&self, now: Ns) -> bool {
        now >= self.active + STILL_AFTER && now >= self.prompt_until
    }

    /// Returns the length of the next round. `interval`: of samples, which is `asked` or longer.
    pub fn length(&self, now: Ns, interval: Ns, asked: Ns, means: Means) -> Ns {
        if !means.samples || now < self.prompt_until {
            return interval;
        }
        let usual = if means.bell && self.is_still(now) { STILL } else { BUSY };
        // A longer interval shall cost less in proportion.
        let stretched = u128::from(usual) * u128::from(interval) / u128::from(asked.max(1));
        interval.max(Ns::try_from(stretched).unwrap_or(LONGEST).clamp(usual, LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Means = Means { samples: true, bell: true };

    fn length(rounds: &Rounds, now: Ns, means: Means) -> Ns {
        rounds.length(now, 10 * MS, 10 * MS, means) / MS
    }

    #[test]
    fn rounds_begin_prompt_and_grow_as_the_target_calms_down() {
        let mut rounds = Rounds::new(0);
        assert_eq!(length(&rounds, SECOND - 1, ALL), 10);
        rounds.sampled(2 * SECOND);
        assert_eq!(length(&rounds, 2 * SECOND + STILL_AFTER - 1, ALL), 50);
        assert_eq!(length(&rounds, 2 * SECOND + STILL_AFTER, ALL), 125);
        assert_eq!(length(&rounds, 3 * SECOND, Means { bell: false, ..ALL }), 50);
        assert_eq!(length(&rounds, 3 * SECOND, Means { samples: false, ..ALL }), 10);
        rounds.prompt(3 * SECOND);
        assert_eq!(length(&rounds, 3 * SECOND, ALL), 10);
    }

    #[test]
    fn a_hundredth_of_a_core_is_no_activity() {
        let mut rounds = Rounds::new(0);
        rounds.ran(2 * SECOND, 0);
        for (at, ran, still) in
            [(2100, 1, true), (2200, 2, false), (2300, 1, false), (2500, 2, true)]
        {
            rounds.ran(at * MS, ran * MS);
            assert_eq!(rounds.is_still(at * MS), still, "{at}");
        }
    }

    #[test]
    fn rounds_follow_the_interval() {
        let rounds = Rounds { active: SECOND, ..Rounds::new(0) };
        let length = |interval, asked| rounds.length(SECOND, interval * MS, asked * MS, ALL) / MS;
        assert_eq!([length(1, 1), length(20, 20), length(100, 100)], [50, 50, 100]);
        assert_eq!([length(15, 10), length(50, 10), length(70, 10)], [75, 250, 250]);
        assert_eq!([length(500, 10), length(3, 1)], [500, 150]);
    }
}
