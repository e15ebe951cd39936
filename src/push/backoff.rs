//! Decides when to retry. Pure: the caller passes time and random numbers.

use std::time::Duration;

/// Maximum pause after the first failure; it doubles with each further one.
pub const FIRST: Duration = Duration::from_secs(1);
/// Maximum pause after any number of failures.
pub const PAUSE_MAX: Duration = Duration::from_secs(300);
/// Maximum pause that a server may request.
pub const REQUESTED_MAX: Duration = Duration::from_secs(3600);

/// Doubles the pause after each failure and randomizes it, so that not all hosts return to a
/// restarted server at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Returns the pause after one more failure; `chance` is from 0 to 1.
    pub fn failed(&mut self, asked: Option<Duration>, chance: f64) -> Duration {
        let longest = FIRST.saturating_mul(1 << self.failures.min(20)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        let pause = longest.mul_f64(0.5 + 0.5 * chance);
        match asked {
            // Never earlier than requested, and not all hosts at that moment.
            Some(asked) => pause.max(asked.min(REQUESTED_MAX) + FIRST.mul_f64(chance)),
            None => pause,
        }
    }

    /// Returns the pause after a refusal that only a person can fix.
    pub fn barred(&self, chance: f64) -> Duration {
        PAUSE_MAX.mul_f64(0.5 + 0.5 * chance)
    }

    pub fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_begin_again() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..11).map(|_| backoff.failed(None, 1.0).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        backoff.succeeded();
        assert_eq!(backoff.failed(None, 0.0), Duration::from_millis(500));
        assert_eq!(backoff.barred(0.0), Duration::from_secs(150));
    }

    proptest! {
        #[test]
        fn a_pause_is_within_its_bounds(failures in 0u32..100, asked in proptest::option::of(0u64..10_000), chance in 0.0f64..=1.0) {
            let mut backoff = Backoff { failures };
            let asked = asked.map(Duration::from_secs);
            let pause = backoff.failed(asked, chance);
            prop_assert!(pause >= FIRST / 2 && pause <= PAUSE_MAX.max(REQUESTED_MAX) + FIRST);
            if let Some(asked) = asked {
                prop_assert!(pause >= asked.min(REQUESTED_MAX));
            }
        }
    }
}
