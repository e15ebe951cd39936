//! The distance between CLOCK_MONOTONIC and the scheduler's clock, in which the kernel keeps the
//! time at which a thread was put on its core.
//!
//! No call reads the scheduler's clock. But sampletop's own thread was put on its core before it
//! made a pass, and the kernel has the time of that: the program in the kernel subtracts it from
//! CLOCK_MONOTONIC. What it finds is too much by the time from then to the first thread of the
//! pass. So the least of several passes counts. CLOCK_MONOTONIC is adjusted and drifts away from
//! the scheduler's clock, by some 50 us a second, so old ones do not count.

/// Number of passes.
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
    /// Takes what a pass found, ns.
    pub fn take(&mut self, ahead: u64) {
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
        clock.take(700);
        (0..NEWEST as u64 - 1).for_each(|late| clock.take(720 + late));
        assert_eq!(clock.ahead(), 700);
        clock.take(800);
        assert_eq!(clock.ahead(), 720, "700 is old");
    }
}
