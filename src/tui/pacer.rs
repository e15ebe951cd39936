//! When to draw: at once after a key, at most twice a second where only numbers move.

use std::time::{Duration, Instant};

/// The least time between two drawings that only new numbers ask for.
pub const DATA_EVERY: Duration = Duration::from_millis(500);

/// Tells the session's loop how long it may sleep and whether to draw.
#[derive(Debug, Default)]
pub struct Pacer {
    drawn: Option<Instant>,
    wanted: Wanted,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Wanted {
    #[default]
    Nothing,
    Data,
    Now,
}

impl Pacer {
    /// A key, a resize, a message: the next drawing is due now.
    pub fn urgent(&mut self) {
        self.wanted = Wanted::Now;
    }

    /// New numbers came in.
    pub fn data(&mut self) {
        self.wanted = self.wanted.max(Wanted::Data);
    }

    /// How long until a drawing is due: zero = now, `None` = nothing to draw.
    pub fn due_in(&self, now: Instant) -> Option<Duration> {
        match (self.wanted, self.drawn) {
            (Wanted::Nothing, _) => None,
            (Wanted::Now, _) | (_, None) => Some(Duration::ZERO),
            (Wanted::Data, Some(drawn)) => Some(DATA_EVERY.saturating_sub(now.saturating_duration_since(drawn))),
        }
    }

    /// A drawing was made.
    pub fn drawn(&mut self, now: Instant) {
        // A key between two drawings of numbers does not put the next of these off.
        if self.wanted != Wanted::Now || self.drawn.is_none_or(|d| now.saturating_duration_since(d) >= DATA_EVERY) {
            self.drawn = Some(now);
        }
        self.wanted = Wanted::Nothing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wait_and_keys_do_not() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pacer = Pacer::default();
        assert_eq!(pacer.due_in(at(0)), None);
        pacer.data();
        assert_eq!(pacer.due_in(at(0)), Some(Duration::ZERO));
        pacer.drawn(at(0));
        pacer.data();
        assert_eq!(pacer.due_in(at(100)), Some(Duration::from_millis(400)));
        pacer.urgent();
        assert_eq!(pacer.due_in(at(100)), Some(Duration::ZERO));
        pacer.drawn(at(100));
        pacer.data();
        assert_eq!(pacer.due_in(at(100)), Some(Duration::from_millis(400)), "a key puts the numbers off");
        assert_eq!(pacer.due_in(at(700)), Some(Duration::ZERO));
    }
}
