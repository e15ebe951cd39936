//! When to draw: at once after a key, at most twice a second where only numbers move.
//!
//! A key that is held down asks for 30 drawings a second. Over a link of 10 KB/s they would pile up: the view went on
//! moving for 13 s after 3 s of a held `m` (80x24, 1.8 KB each). So what is written is counted, and once more than
//! [`AHEAD`] may be under way, the drawings that keys ask for are spaced.

use std::time::{Duration, Instant};

/// The least time between two drawings that only new numbers ask for.
pub const DATA_EVERY: Duration = Duration::from_millis(500);

/// Bytes that are written ahead without thought for the link: 8 to 20 whole redraws at 80x24.
const AHEAD: u64 = 32 << 10;
/// How many bytes a second the slowest link that is cared for takes.
const LINK: u64 = 12 << 10;
/// The least time between two drawings after keys while more than [`AHEAD`] may be under way.
const KEYS_EVERY: Duration = Duration::from_millis(150);

/// Tells the session's loop how long it may sleep and whether to draw.
#[derive(Debug, Default)]
pub struct Pacer {
    drawn: Option<Instant>,
    wanted: Wanted,
    under_way: UnderWay,
}

/// The bytes that a slow link may not have taken yet.
#[derive(Clone, Copy, Debug, Default)]
struct UnderWay {
    bytes: u64,
    /// When `bytes` were so many: at the last drawing.
    at: Option<Instant>,
}

impl UnderWay {
    fn now(self, now: Instant) -> u64 {
        let since = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.bytes.saturating_sub(u64::try_from(since.as_millis()).unwrap_or(u64::MAX).saturating_mul(LINK) / 1000)
    }

    fn add(&mut self, bytes: u64, now: Instant) {
        // Not more than twice what is cared about, so that a flood is forgotten soon.
        *self = UnderWay { bytes: (self.now(now) + bytes).min(2 * AHEAD), at: Some(now) };
    }

    fn next_key(self, now: Instant) -> Duration {
        let since = self.at.map_or(Duration::MAX, |at| now.saturating_duration_since(at));
        if self.now(now) > AHEAD { KEYS_EVERY.saturating_sub(since) } else { Duration::ZERO }
    }
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
            (_, None) => Some(Duration::ZERO),
            (Wanted::Now, _) => Some(self.under_way.next_key(now)),
            (Wanted::Data, Some(drawn)) => Some(DATA_EVERY.saturating_sub(now.saturating_duration_since(drawn))),
        }
    }

    /// A drawing was made, and so many bytes were written for it.
    pub fn drawn(&mut self, now: Instant, bytes: u64) {
        self.under_way.add(bytes, now);
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
        pacer.drawn(at(0), 3000);
        pacer.data();
        assert_eq!(pacer.due_in(at(100)), Some(Duration::from_millis(400)));
        pacer.urgent();
        assert_eq!(pacer.due_in(at(100)), Some(Duration::ZERO));
        pacer.drawn(at(100), 3000);
        pacer.data();
        assert_eq!(pacer.due_in(at(100)), Some(Duration::from_millis(400)), "a key puts the numbers off");
        assert_eq!(pacer.due_in(at(700)), Some(Duration::ZERO));
    }
    /// A key held down for `seconds`, 30 times a second, each drawing `bytes` long; the bytes written.
    fn held(pacer: &mut Pacer, start: Instant, seconds: u64, bytes: u64) -> u64 {
        let mut written = 0;
        for ms in 0..seconds * 1000 {
            let now = start + Duration::from_millis(ms);
            if ms % 33 == 0 {
                pacer.urgent();
            }
            if pacer.due_in(now) == Some(Duration::ZERO) {
                pacer.drawn(now, bytes);
                written += bytes;
            }
        }
        written
    }

    #[test]
    fn a_held_key_does_not_fill_a_slow_link() {
        let start = Instant::now();
        let mut pacer = Pacer::default();
        // Without a limit 3 s are 164 KB, and 16 s on a link of 10 KB/s.
        let written = held(&mut pacer, start, 3, 1_800);
        assert!((AHEAD..AHEAD + 3 * LINK + 2 * 1_800).contains(&written), "{written}");
        // The last press is drawn soon, and the next key at once when the link has had its time.
        pacer.urgent();
        assert!(pacer.due_in(start + Duration::from_secs(3)).expect("wanted") <= KEYS_EVERY);
        assert_eq!(pacer.due_in(start + Duration::from_secs(6)), Some(Duration::ZERO));
    }

    #[test]
    fn moving_the_selection_is_never_held_back() {
        let start = Instant::now();
        let mut pacer = Pacer::default();
        assert!(held(&mut pacer, start, 10, 250) >= 10 * 30 * 250);
    }
}
