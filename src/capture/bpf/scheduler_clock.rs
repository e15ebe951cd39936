//! The distance between CLOCK_MONOTONIC and the scheduler's clock. By the latter the kernel keeps
//! the time at which a thread was put on its core (`sched_info.last_arrival`).
//!
//! No call reads the scheduler's clock. But the kernel has that time of the sampler itself, and the
//! program in the kernel subtracts it from CLOCK_MONOTONIC. The difference is too large by the time
//! from there to the first thread of the pass, so the minimum of several passes counts.
//! CLOCK_MONOTONIC is adjusted (NTP), so only the newest passes do.

/// Number of passes that count.
const NEWEST: usize = 16;

pub struct SchedulerClock {
    newest: [u64; NEWEST],
    next: usize,
}

impl Default for SchedulerClock {
    fn default() -> SchedulerClock {
        SchedulerClock { newest: [u64::MAX; NEWEST], next: 0 }
    }
}

impl SchedulerClock {
    /// Adds the difference of a pass, ns.
    pub fn add(&mut self, ahead: u64) {
        self.newest[self.next] = ahead;
        self.next = (self.next + 1) % NEWEST;
    }

    /// Returns CLOCK_MONOTONIC minus the scheduler's clock, ns; the largest number if it is not
    /// known yet.
    pub fn ahead(&self) -> u64 {
        self.newest.iter().copied().min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_the_newest_passes_counts() {
        let mut clock = SchedulerClock::default();
        assert_eq!(clock.ahead(), u64::MAX);
        clock.add(700);
        (0..NEWEST as u64 - 1).for_each(|late| clock.add(720 + late));
        assert_eq!(clock.ahead(), 700);
        clock.add(800);
        assert_eq!(clock.ahead(), 720, "700 is old");
    }
}
