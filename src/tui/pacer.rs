//! Decides when to draw: at once after a key, at most twice a second for new numbers alone. The
//! first rows and their names are drawn more often. Numbers of a large screen are drawn so that
//! they take half of a slow link at most, because keys are answered over it too.
//!
//! A held key requests 30 drawings a second. Over a link of 10 KB/s they would pile up. The view
//! went on moving for 13 s after 3 s of a held `m` (80x24, 1.8 KB each). So the written bytes are
//! counted. Once more than [`AHEAD`] may be in flight, drawings after keys are spaced.

use std::time::{Duration, Instant};

/// Minimum time between two drawings for new numbers alone.
pub const DATA_EVERY: Duration = Duration::from_millis(500);

/// The same during [`FIRST`], the time after the first numbers.
const FIRST_EVERY: Duration = Duration::from_millis(100);
const FIRST: Duration = Duration::from_secs(1);
/// Maximum time between two drawings for new numbers, however many bytes they have.
const DATA_LATEST: Duration = Duration::from_secs(2);

/// Maximum bytes in flight before keys are spaced: 8 to 20 whole redraws at 80x24.
const AHEAD: u64 = 32 << 10;
/// Assumed rate of the slowest supported link, bytes a second.
const LINK: u64 = 12 << 10;
/// Minimum time between two drawings after keys while more than [`AHEAD`] may be in flight.
const KEYS_EVERY: Duration = Duration::from_millis(150);

/// Decides how long the session's loop may sleep and whether to draw.
#[derive(Debug, Default)]
pub struct Pacer {
    /// When the first numbers were drawn.
    first: Option<Instant>,
    /// When numbers were drawn last.
    drawn: Option<Instant>,
    /// Bytes written for numbers alone the last time.
    bytes: u64,
    wanted: Wanted,
    under_way: UnderWay,
}

/// The bytes that a slow link may not have transmitted yet.
#[derive(Clone, Copy, Debug, Default)]
struct UnderWay {
    bytes: u64,
    /// When `bytes` was computed: at the last drawing.
    at: Option<Instant>,
}

impl UnderWay {
    fn now(self, now: Instant) -> u64 {
        let since = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.bytes.saturating_sub(
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX).saturating_mul(LINK) / 1000,
        )
    }

    fn add(&mut self, bytes: u64, now: Instant) {
        // Capped, so that the effect of a flood ends soon.
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
    /// Requests a drawing now, after a key, a resize or a message.
    pub fn urgent(&mut self) {
        self.wanted = Wanted::Now;
    }

    /// Requests a drawing for new numbers.
    pub fn data(&mut self) {
        self.wanted = self.wanted.max(Wanted::Data);
    }

    /// Returns the time until a drawing is due: zero = now, `None` = nothing to draw.
    pub fn due_in(&self, now: Instant) -> Option<Duration> {
        match (self.wanted, self.drawn) {
            (Wanted::Nothing, _) => None,
            (Wanted::Now, _) => Some(self.under_way.next_key(now)),
            (Wanted::Data, None) => Some(Duration::ZERO),
            (Wanted::Data, Some(drawn)) => {
                Some(self.every(now).saturating_sub(now.saturating_duration_since(drawn)))
            }
        }
    }

    /// Notes a drawing and the bytes written for it.
    pub fn drawn(&mut self, now: Instant, bytes: u64) {
        self.under_way.add(bytes, now);
        // A key between two drawings of numbers does not delay the next of these.
        let numbers = match self.drawn {
            // The first one and those after keys change more cells than numbers do.
            Some(_) if self.wanted == Wanted::Data => {
                self.bytes = bytes;
                true
            }
            None => self.wanted == Wanted::Data,
            Some(drawn) => now.saturating_duration_since(drawn) >= self.every(now),
        };
        if numbers {
            self.first.get_or_insert(now);
            self.drawn = Some(now);
        }
        self.wanted = Wanted::Nothing;
    }

    fn every(&self, now: Instant) -> Duration {
        let young = self.first.is_none_or(|first| now.saturating_duration_since(first) < FIRST);
        if young && self.under_way.now(now) <= AHEAD / 2 {
            return FIRST_EVERY;
        }
        let half_of_link = Duration::from_millis((self.bytes * 2000 / LINK).min(10_000));
        half_of_link.clamp(DATA_EVERY, DATA_LATEST)
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
        pacer.drawn(at(1000), 3000);
        pacer.data();
        assert_eq!(pacer.due_in(at(1100)), Some(Duration::from_millis(400)));
        pacer.urgent();
        assert_eq!(pacer.due_in(at(1100)), Some(Duration::ZERO));
        pacer.drawn(at(1100), 3000);
        pacer.data();
        assert_eq!(
            pacer.due_in(at(1100)),
            Some(Duration::from_millis(400)),
            "a key puts the numbers off"
        );
        assert_eq!(pacer.due_in(at(1700)), Some(Duration::ZERO));
    }

    #[test]
    fn the_first_rows_do_not_wait_for_the_second_ones() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pacer = Pacer::default();
        // The empty screen, then rows, then their names.
        pacer.urgent();
        assert_eq!(pacer.due_in(at(0)), Some(Duration::ZERO));
        pacer.drawn(at(0), 3000);
        pacer.data();
        assert_eq!(pacer.due_in(at(60)), Some(Duration::ZERO));
        pacer.drawn(at(60), 3000);
        pacer.data();
        assert_eq!(pacer.due_in(at(60)), Some(FIRST_EVERY));
        pacer.drawn(at(1060), 3000);
        pacer.data();
        assert_eq!(pacer.due_in(at(1060)), Some(DATA_EVERY));
    }

    /// Simulates a key held for `seconds`, 30 times a second, each drawing `bytes` long. Returns
    /// the bytes written.
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
        // The last press is drawn soon, and the next key at once after the link had time to drain.
        pacer.urgent();
        assert!(pacer.due_in(start + Duration::from_secs(3)).expect("wanted") <= KEYS_EVERY);
        assert_eq!(pacer.due_in(start + Duration::from_secs(6)), Some(Duration::ZERO));
    }

    /// Returns the bytes that numbers write in 10 s if they always wait to be drawn.
    fn numbers(bytes: u64) -> u64 {
        let start = Instant::now();
        let mut pacer = Pacer::default();
        let mut written = 0;
        for ms in 0..10_000 {
            pacer.data();
            let now = start + Duration::from_millis(ms);
            if pacer.due_in(now) == Some(Duration::ZERO) {
                pacer.drawn(now, bytes);
                written += bytes;
            }
        }
        written
    }

    #[test]
    fn numbers_leave_half_of_a_slow_link_to_keys() {
        // 80x24: twice a second, and ten times in the first one.
        assert!((28 * 800..=30 * 800).contains(&numbers(800)), "{}", numbers(800));
        // 200x60: what the link takes in the first second and what may be ahead of it then; half
        // of what it takes afterwards.
        let (written, first) = (numbers(5_500), LINK + AHEAD / 2 + 5_500);
        assert!((8 * LINK / 2..=9 * LINK / 2 + first).contains(&written), "{written}");
        // However much it is, it is drawn.
        assert!(numbers(100_000) >= 5 * 100_000);
    }

    #[test]
    fn a_whole_screen_does_not_put_numbers_off() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pacer = Pacer::default();
        // The first rows, then their names.
        pacer.data();
        pacer.drawn(at(0), 14_000);
        pacer.data();
        assert_eq!(pacer.due_in(at(100)), Some(Duration::ZERO));
        pacer.drawn(at(1000), 3_000);
        // Another view, which shows new numbers too.
        pacer.urgent();
        pacer.drawn(at(2000), 14_000);
        pacer.data();
        assert_eq!(pacer.due_in(at(2000)), Some(DATA_EVERY));
    }

    #[test]
    fn moving_the_selection_is_never_held_back() {
        let start = Instant::now();
        let mut pacer = Pacer::default();
        assert!(held(&mut pacer, start, 10, 250) >= 10 * 30 * 250);
    }
}
