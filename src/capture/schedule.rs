//! When to observe: ticks with jitter, their lateness, and gaps without observation. The interval
//! here is that of ticks: see [`crate::capture::tick_interval`].

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use crate::clock::monotonic;
use crate::model::vocabulary::frame::{Ns, SECOND};

/// splitmix64: enough to keep ticks and sampling periods out of phase with the target.
pub struct Random(u64);

impl Random {
    pub fn seeded() -> Random {
        // The per-process keys of the standard library: they differ from run to run, which
        // suffices.
        Random(RandomState::new().build_hasher().finish() ^ monotonic())
    }

    #[cfg(test)]
    pub fn from_seed(seed: u64) -> Random {
        Random(seed)
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 up to, not including, `limit` (at least 1).
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(limit.max(1))) >> 64) as u64
    }
}

/// Timing of a tick that begins now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TickTiming {
    /// Planned time since the tick before, without jitter, ns. For a hastened tick the actual one.
    pub planned: Ns,
    /// Lateness against the plan, ns.
    pub late: Ns,
    /// The tick is more than one interval late.
    pub missed: bool,
    /// No observation was made since this time.
    pub gap_from: Option<Ns>,
}

pub struct Schedule {
    interval: Ns,
    /// Longest interval in force since the last tick.
    longest: Ns,
    /// Time of the next tick.
    due: Ns,
    last: Ns,
    /// The next tick is sooner than planned.
    hastened: bool,
    random: Random,
}

impl Schedule {
    /// Makes a schedule whose first tick is due at once.
    pub fn new(interval: Ns, random: Random, now: Ns) -> Schedule {
        Schedule {
            interval: interval.max(1),
            longest: interval,
            due: now,
            last: now,
            hastened: false,
            random,
        }
    }

    pub fn interval(&self) -> Ns {
        self.interval
    }

    pub fn due(&self) -> Ns {
        self.due
    }

    /// Sets the interval at once: a wait that is under way becomes shorter or longer.
    pub fn set_interval(&mut self, interval: Ns) {
        self.interval = interval.max(1);
        self.longest = self.longest.max(self.interval);
        self.due = self.last + self.step();
    }

    /// Makes the next tick due now, if it is not yet.
    pub fn hasten(&mut self, now: Ns) {
        if now < self.due {
            (self.due, self.hastened) = (now, true);
        }
    }

    /// Begins a tick and plans the next one. A tick that is more than an interval late is not made
    /// up for.
    pub fn begin(&mut self, now: Ns) -> TickTiming {
        let planned = match std::mem::take(&mut self.hastened) {
            true => now.saturating_sub(self.last),
            false => self.interval,
        };
        let late = now.saturating_sub(self.due);
        let unseen = now.saturating_sub(self.last);
        let gap_from = (unseen > SECOND.max(5 * self.longest)).then_some(self.last);
        self.longest = self.interval;
        let missed = late > self.interval;
        // From the planned time, not from now: lateness must not stretch the mean interval.
        let from = if missed { now } else { self.due };
        self.due = from + self.step();
        self.last = now;
        TickTiming { planned, late, missed, gap_from }
    }

    /// Ends a pause that began at the last tick; the next tick is due now. Returns the start of the
    /// pause.
    pub fn resume(&mut self, now: Ns) -> Ns {
        let from = self.last;
        self.last = now;
        self.due = now;
        from
    }

    /// Returns the interval, 10 % more or less: a fixed one would stay in phase with timers of the
    /// target.
    fn step(&mut self) -> Ns {
        let tenth = self.interval / 10;
        self.interval - tenth + self.random.below(2 * tenth + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;

    #[test]
    fn steps_jitter_by_a_tenth_and_keep_the_mean() {
        let mut schedule = Schedule::new(10 * MS, Random::from_seed(1), 0);
        let mut previous = 0;
        schedule.begin(0);
        let ticks = 10_000;
        for _ in 0..ticks {
            let due = schedule.due();
            let step = due - previous;
            assert!((9 * MS..=11 * MS).contains(&step), "{step}");
            // 300 us late each time: no drift.
            assert_eq!(
                schedule.begin(due + MS * 3 / 10),
                TickTiming { planned: 10 * MS, late: MS * 3 / 10, missed: false, gap_from: None }
            );
            previous = due;
        }
        // The sum of 10,000 uniform steps of +-1 ms: standard deviation 58 ms; 5 of them.
        let error = previous.abs_diff(ticks * 10 * MS);
        assert!(error < 290 * MS, "{error}");
    }

    #[test]
    fn a_hastened_tick_was_planned_for_when_it_is() {
        let mut schedule = Schedule::new(100 * MS, Random::from_seed(7), 0);
        schedule.begin(0);
        schedule.hasten(30 * MS);
        assert_eq!(schedule.due(), 30 * MS);
        let timing = schedule.begin(31 * MS);
        assert_eq!((timing.planned, timing.late, timing.missed), (31 * MS, MS, false));
        let due = schedule.due();
        schedule.hasten(due + 1);
        assert_eq!(schedule.due(), due, "it is due already");
        assert_eq!(schedule.begin(due + 1).planned, 100 * MS);
    }

    #[test]
    fn a_missed_tick_is_not_made_up_for() {
        let mut schedule = Schedule::new(10 * MS, Random::from_seed(2), 0);
        schedule.begin(0);
        let timing = schedule.begin(500 * MS);
        assert!(timing.missed && timing.late >= 489 * MS && timing.gap_from.is_none());
        assert!(schedule.due() >= 509 * MS);
    }

    #[test]
    fn a_gap_is_more_than_a_second_and_five_intervals() {
        let mut schedule = Schedule::new(10 * MS, Random::from_seed(3), 0);
        schedule.begin(0);
        assert_eq!(schedule.begin(SECOND).gap_from, None);
        assert_eq!(schedule.begin(2 * SECOND + 1).gap_from, Some(SECOND));
        let mut slow = Schedule::new(SECOND, Random::from_seed(4), 0);
        slow.begin(0);
        assert_eq!(slow.begin(5 * SECOND).gap_from, None);
        assert_eq!(slow.begin(10 * SECOND + 1).gap_from, Some(5 * SECOND));
    }

    #[test]
    fn a_new_interval_takes_effect_at_once() {
        let mut schedule = Schedule::new(60 * SECOND, Random::from_seed(5), 0);
        schedule.begin(0);
        schedule.set_interval(10 * MS);
        assert!(schedule.due() <= 11 * MS);
        // A planned wait is no gap, even if the interval has become shorter since.
        assert_eq!(schedule.begin(30 * SECOND).gap_from, None);
        assert_eq!(schedule.begin(31 * SECOND + 1).gap_from, Some(30 * SECOND));
    }

    #[test]
    fn random_numbers_fill_their_range() {
        let mut random = Random::from_seed(6);
        let mut seen = [0u32; 8];
        for _ in 0..8_000 {
            seen[random.below(8) as usize] += 1;
        }
        // Binomial(8000, 1/8): mean 1000, standard deviation 30; 6 of them.
        assert!(seen.iter().all(|n| n.abs_diff(1_000) < 180), "{seen:?}");
        assert_eq!(random.below(1), 0);
    }
}
