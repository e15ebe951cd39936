//! Joins escape sequences that a slow link splits.
//!
//! crossterm 0.29 (`event/sys/unix/parse.rs`) reports Esc at once when no byte follows in the same
//! read. The rest of the sequence then arrives as plain characters: Esc, `[`, `D` instead of Left.
//! This module joins what follows Esc within [`ESC_WAIT`]. It is a pure state machine: times arrive
//! with the keys.

use std::time::{Duration, Instant};

use crate::app::key::{Key, Mouse, MouseKind};

/// Maximum delay after Esc at which a byte still continues its sequence.
pub const ESC_WAIT: Duration = Duration::from_millis(100);
/// Maximum delay of the rest after `Esc [` or `Esc O`, which no user types.
const REST_WAIT: Duration = Duration::from_millis(500);
/// Time after an Esc reported as the key during which `[` or `O` still begin the rest of a
/// sequence. Neither is bound to an action, but the letter after them may be (`C` closes all rows).
const LATE: Duration = Duration::from_secs(1);
/// Maximum characters of a sequence; the longest known one, a mouse report, has 16.
const LONGEST: usize = 32;

/// What the joiner emits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joined {
    Key(Key),
    Mouse(Mouse),
}

#[derive(Debug, Default)]
pub struct Joiner {
    /// What followed a waiting Esc.
    pending: Option<Pending>,
    /// When the last Esc that became the key was pressed; cleared by any other key.
    late: Option<Instant>,
}

#[derive(Debug)]
struct Pending {
    text: String,
    last: Instant,
}

impl Pending {
    fn till(&self) -> Instant {
        self.last + if self.text.is_empty() { ESC_WAIT } else { REST_WAIT }
    }
}

impl Joiner {
    /// Takes one key that arrived at `at`; appends what is certain now to `out`.
    pub fn key(&mut self, key: Key, at: Instant, out: &mut Vec<Joined>) {
        self.expire(at, out);
        let Some(pending) = &mut self.pending else {
            let late = self.late.take().is_some_and(|esc| at < esc + LATE);
            match key {
                Key::Esc => self.pending = Some(Pending { text: String::new(), last: at }),
                Key::Char(c @ ('[' | 'O')) if late => {
                    self.pending = Some(Pending { text: c.into(), last: at })
                }
                _ => out.push(Joined::Key(key)),
            }
            return;
        };
        let continues = match key {
            Key::Char(c) if pending.text.is_empty() => matches!(c, '[' | 'O'),
            Key::Char(c) => c.is_ascii_graphic() || c == ' ',
            _ => false,
        };
        if !continues {
            self.give_up(out);
            self.key(key, at, out);
            return;
        }
        if let Key::Char(c) = key {
            pending.text.push(c);
            pending.last = at;
        }
        if is_complete(&pending.text) {
            out.extend(decode(&pending.text));
            self.pending = None;
        } else if pending.text.len() >= LONGEST {
            self.pending = None;
        }
    }

    /// Gives up on a late sequence. Call it when [`Joiner::deadline`] has passed without a key.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<Joined>) {
        if self.pending.as_ref().is_some_and(|p| now >= p.till()) {
            self.give_up(out);
        }
    }

    /// Returns when a waiting Esc becomes the Esc key.
    pub fn deadline(&self) -> Option<Instant> {
        self.pending.as_ref().map(Pending::till)
    }

    /// Ends the waiting: a lone Esc is the key; an incomplete sequence is dropped, since its
    /// letters were not typed.
    fn give_up(&mut self, out: &mut Vec<Joined>) {
        if let Some(pending) = self.pending.take().filter(|p| p.text.is_empty()) {
            self.late = Some(pending.last);
            out.push(Joined::Key(Key::Esc));
        }
    }
}

/// Returns whether the sequence is complete. ECMA-48: `[`, parameters and intermediates, one final
/// byte; or `O` and one byte. The Linux console sends `[[A` for F1.
fn is_complete(text: &str) -> bool {
    let bytes = text.as_bytes();
    match bytes {
        [] | [_] => false,
        [b'O', ..] | [b'[', b'[', _, ..] => true,
        [b'[', b'['] => false,
        [.., last] => (0x40..=0x7e).contains(last),
    }
}

fn decode(text: &str) -> Option<Joined> {
    let bytes = text.as_bytes();
    let (&last, rest) = bytes.split_last()?;
    if rest.starts_with(b"[<") {
        return decode_mouse(&text[2..text.len() - 1], last);
    }
    if rest == b"[[" {
        return (b'A'..=b'E').contains(&last).then(|| Joined::Key(Key::F(last - b'A' + 1)));
    }
    let key = match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        b'Z' => Key::BackTab,
        b'M' if rest == b"O" => Key::Enter,
        b'P'..=b'S' => Key::F(last - b'P' + 1),
        b'~' => {
            let number = text[1..text.len() - 1].split(';').next()?.parse::<u8>().ok()?;
            match number {
                1 | 7 => Key::Home,
                2 => Key::Insert,
                3 => Key::Delete,
                4 | 8 => Key::End,
                5 => Key::PageUp,
                6 => Key::PageDown,
                11..=15 => Key::F(number - 10),
                17..=21 => Key::F(number - 11),
                23 | 24 => Key::F(number - 12),
                _ => return None,
            }
        }
        _ => return None,
    };
    Some(Joined::Key(key))
}

/// Decodes xterm's SGR report: `button;column;row`, `M` for a press.
fn decode_mouse(parameters: &str, last: u8) -> Option<Joined> {
    let mut numbers = parameters.split(';').map(|n| n.parse::<u16>().ok());
    let (button, column, row) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let kind = match (button, last) {
        (0, b'M') => MouseKind::Press,
        (64, _) => MouseKind::WheelUp,
        (65, _) => MouseKind::WheelDown,
        _ => return None,
    };
    Some(Joined::Mouse(Mouse {
        kind,
        column: column.saturating_sub(1),
        row: row.saturating_sub(1),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds (ms, key) pairs and lets everything expire at the end.
    fn run(keys: &[(u64, Key)]) -> Vec<Joined> {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let (mut joiner, mut out) = (Joiner::default(), Vec::new());
        for (ms, key) in keys {
            joiner.key(*key, at(*ms), &mut out);
        }
        joiner.expire(at(1_000_000), &mut out);
        assert_eq!(joiner.deadline(), None);
        out
    }

    fn torn(text: &str, every_ms: u64) -> Vec<(u64, Key)> {
        let keys = std::iter::once(Key::Esc).chain(text.chars().map(Key::Char));
        keys.enumerate().map(|(i, key)| (i as u64 * every_ms, key)).collect()
    }

    #[test]
    fn a_torn_sequence_is_one_key() {
        for (text, key) in [
            ("[A", Key::Up),
            ("[B", Key::Down),
            ("[C", Key::Right),
            ("[D", Key::Left),
            ("OD", Key::Left),
            ("OH", Key::Home),
            ("[F", Key::End),
            ("[5~", Key::PageUp),
            ("[6~", Key::PageDown),
            ("[1;5D", Key::Left),
            ("[3~", Key::Delete),
            ("OP", Key::F(1)),
            ("[[A", Key::F(1)),
            ("[15~", Key::F(5)),
            ("[24~", Key::F(12)),
            ("[Z", Key::BackTab),
        ] {
            for gap in [0, 1, 60, 99] {
                assert_eq!(
                    run(&torn(text, gap)),
                    [Joined::Key(key)],
                    "Esc {text} with {gap} ms between"
                );
            }
        }
    }

    #[test]
    fn esc_alone_is_esc_after_its_time() {
        let start = Instant::now();
        let (mut joiner, mut out) = (Joiner::default(), Vec::new());
        joiner.key(Key::Esc, start, &mut out);
        assert_eq!(out, []);
        assert_eq!(joiner.deadline(), Some(start + ESC_WAIT));
        joiner.expire(start + Duration::from_millis(99), &mut out);
        assert_eq!(out, []);
        joiner.expire(start + ESC_WAIT, &mut out);
        assert_eq!(out, [Joined::Key(Key::Esc)]);
    }

    #[test]
    fn what_comes_later_or_is_no_sequence_stays_itself() {
        use Joined::Key as K;
        assert_eq!(
            run(&[(0, Key::Esc), (1_000, Key::Char('[')), (1_020, Key::Char('D'))]),
            [K(Key::Esc), K(Key::Char('[')), K(Key::Char('D'))]
        );
        assert_eq!(
            run(&[
                (0, Key::Esc),
                (200, Key::Char('/')),
                (300, Key::Char('O')),
                (320, Key::Char('C'))
            ]),
            [K(Key::Esc), K(Key::Char('/')), K(Key::Char('O')), K(Key::Char('C'))]
        );
        assert_eq!(run(&[(0, Key::Esc), (10, Key::Char('q'))]), [K(Key::Esc), K(Key::Char('q'))]);
        assert_eq!(run(&[(0, Key::Esc), (10, Key::Esc)]), [K(Key::Esc), K(Key::Esc)]);
        assert_eq!(run(&[(0, Key::Char('j')), (5, Key::Down)]), [K(Key::Char('j')), K(Key::Down)]);
    }

    /// The link stalls for longer than the Esc key is delayed. The letter must still not act as a
    /// key.
    #[test]
    fn what_follows_an_esc_late_is_still_no_letter() {
        use Joined::Key as K;
        for (text, key) in [("[C", Key::Right), ("OA", Key::Up), ("[6~", Key::PageDown)] {
            for gap in [100, 150, 450] {
                assert_eq!(
                    run(&torn(text, gap)),
                    [K(Key::Esc), K(key)],
                    "Esc {text} with {gap} ms between"
                );
            }
        }
        assert_eq!(run(&[(0, Key::Esc), (300, Key::Char('['))]), [K(Key::Esc)]);
    }

    #[test]
    fn a_sequence_torn_beyond_hope_presses_nothing() {
        assert_eq!(run(&[(0, Key::Esc), (10, Key::Char('['))]), []);
        assert_eq!(run(&torn(&format!("[{}", "1".repeat(40)), 1)).len(), 40 - (LONGEST - 1));
    }

    #[test]
    fn mouse_reports() {
        let mouse = |kind, column, row| [Joined::Mouse(Mouse { kind, column, row })];
        assert_eq!(run(&torn("[<0;10;5M", 9)), mouse(MouseKind::Press, 9, 4));
        assert_eq!(run(&torn("[<65;1;1M", 9)), mouse(MouseKind::WheelDown, 0, 0));
        assert_eq!(run(&torn("[<0;10;5m", 9)), []);
    }

    proptest! {
        /// No key is delayed for longer than the maximum delays, and plain keys are never lost.
        #[test]
        fn plain_keys_pass(gaps in prop::collection::vec((0u64..300, prop::sample::select(vec!['j', 'k', 'q', 'x', '1'])), 0..40)) {
            let mut at = 0;
            let keys: Vec<_> = gaps.iter().map(|(gap, c)| { at += gap; (at, Key::Char(*c)) }).collect();
            let expected: Vec<_> = keys.iter().map(|(_, key)| Joined::Key(*key)).collect();
            prop_assert_eq!(run(&keys), expected);
        }
    }
}
