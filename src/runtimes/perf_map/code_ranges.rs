//! Address ranges of code, from the lines of a perf map: `START SIZE NAME`, numbers in hexadecimal.
//! Code is freed and its addresses are reused, so a later line overrides earlier ones.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::model::vocabulary::frame::RawFrame;

/// Maximum pieces of code remembered.
const PIECES_MAX: usize = 1 << 20;
/// Maximum size of one piece of code: 1 GiB.
const SIZE_MAX: u64 = 1 << 30;
/// Addresses of user code end here (x86-64, four- and five-level paging alike).
const USER_END: u64 = 1 << 56;

/// One line of the map, or what later lines have left of it.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Start of the whole code, as the line says.
    pub start: u64,
    pub size: u64,
    /// The end of this piece; its key is its beginning.
    end: u64,
    /// Offset of the line in the file.
    pub line: u64,
    /// When this code was found to replace other code.
    pub replaced: Option<Instant>,
    /// Its parsed name, once that was asked for.
    pub parsed_name: Option<ParsedName>,
}

/// The parsed name of a piece.
#[derive(Clone, Copy, Debug)]
pub struct ParsedName {
    pub frame: RawFrame,
    pub setup: super::FrameSetup,
}

#[derive(Default)]
pub struct Table {
    /// Pieces by address, not overlapping.
    pieces: BTreeMap<u64, Piece>,
    /// There were too many pieces: no look-up is reliable.
    full: bool,
}

impl Table {
    /// Adds the line that begins at `at` in the file; an invalid line is skipped.
    pub fn line(&mut self, line: &[u8], at: u64, now: Instant) {
        let Some((start, size, _)) = parse(line) else { return };
        let end = start + size;
        let replaced = self.cut(start, end);
        if self.pieces.len() >= PIECES_MAX {
            self.full = true;
            return;
        }
        let replaced = replaced.then_some(now);
        self.pieces
            .insert(start, Piece { start, size, end, line: at, replaced, parsed_name: None });
    }

    /// Removes `start..end` from the existing pieces; returns whether any was there.
    fn cut(&mut self, start: u64, end: u64) -> bool {
        let mut any = false;
        while let Some((at, piece)) =
            self.pieces.range(..end).next_back().filter(|(_, piece)| piece.end > start)
        {
            let (at, piece) = (*at, piece.clone());
            any = true;
            self.pieces.remove(&at);
            if at < start {
                self.pieces.insert(at, Piece { end: start, ..piece.clone() });
            }
            if piece.end > end {
                self.pieces.insert(end, piece);
            }
        }
        any
    }

    pub fn find(&self, pc: u64) -> Option<&Piece> {
        let (_, piece) = self.pieces.range(..=pc).next_back()?;
        (pc < piece.end && !self.full).then_some(piece)
    }

    pub fn find_mut(&mut self, pc: u64) -> Option<&mut Piece> {
        let (_, piece) = self.pieces.range_mut(..=pc).next_back()?;
        (pc < piece.end && !self.full).then_some(piece)
    }

    pub fn clear(&mut self) {
        *self = Table::default();
    }
}

/// Parses start, size and name of a line.
pub fn parse(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (start, rest) = number(line)?;
    let (size, name) = number(rest)?;
    let name = name.trim_ascii();
    let sane =
        (1..=SIZE_MAX).contains(&size) && start.checked_add(size)? <= USER_END && !name.is_empty();
    sane.then_some((start, size, name))
}

/// Parses a hexadecimal number, with or without 0x, and returns it with the text behind the space.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|byte| *byte == b' ' || *byte == b'\t')?;
    let digits = text[..end].strip_prefix(b"0x").unwrap_or(&text[..end]);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let value = digits.iter().try_fold(0, |value, digit| {
        Some(value << 4 | u64::from(char::from(*digit).to_digit(16)?))
    })?;
    Some((value, &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(lines: &[&str]) -> Table {
        let mut table = Table::default();
        for (number, line) in lines.iter().enumerate() {
            table.line(line.as_bytes(), number as u64, Instant::now());
        }
        table
    }

    fn found(table: &Table, pc: u64) -> Option<(u64, bool)> {
        table.find(pc).map(|piece| (piece.line, piece.replaced.is_some()))
    }

    #[test]
    fn lines_are_numbers_and_a_name() {
        assert_eq!(
            parse(b"7f00 1a JS:*f a b.js:4:15"),
            Some((0x7f00, 0x1a, &b"JS:*f a b.js:4:15"[..]))
        );
        assert_eq!(parse(b"0x7f00  0x1a\tname "), Some((0x7f00, 0x1a, &b"name"[..])));
        for line in [
            &b""[..],
            b"\n",
            b"7f00",
            b"7f00 1a",
            b"7f00 1a ",
            b"7g00 1a x",
            b"7f00 0 x",
            b" 1 x",
            b"ffffffffffffffff 1 x",
            b"ffffffffffffffff ffffffffffffffff x",
            b"00000000000000001 1 x",
            b"7f00 40000001 x",
            b"\xff\xfe \x00 x",
        ] {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_later_line_is_right_about_what_it_covers() {
        let table = table(&["1000 100 a", "1200 100 b", "1080 200 c", "10c0 10 d"]);
        let expected = [
            (0xfff, None),
            (0x1000, Some((0, false))),
            (0x107f, Some((0, false))),
            (0x1080, Some((2, true))),
            (0x10bf, Some((2, true))),
            (0x10c0, Some((3, true))),
            (0x10cf, Some((3, true))),
            (0x10d0, Some((2, true))),
            (0x127f, Some((2, true))),
            (0x1280, Some((1, false))),
            (0x12ff, Some((1, false))),
            (0x1300, None),
        ];
        for (pc, piece) in expected {
            assert_eq!(found(&table, pc), piece, "{pc:x}");
        }
        let whole = table.find(0x1280).expect("a piece");
        assert_eq!(
            (whole.start, whole.size),
            (0x1200, 0x100),
            "the function is still where it began"
        );
    }

    proptest! {
        #[test]
        fn looking_up_is_as_going_through_all_lines_backwards(
            lines in prop::collection::vec((0u64..200, 1u64..60), 0..60)
        ) {
            let mut table = Table::default();
            for (number, (start, size)) in lines.iter().enumerate() {
                table.line(format!("{start:x} {size:x} f").as_bytes(), number as u64, Instant::now());
            }
            for pc in 0..300 {
                let last = lines.iter().rposition(|(start, size)| (*start..start + size).contains(&pc));
                prop_assert_eq!(table.find(pc).map(|piece| piece.line), last.map(|line| line as u64));
            }
        }

        #[test]
        fn any_bytes_are_a_line(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..20)) {
            let mut table = Table::default();
            for line in lines {
                table.line(&line, 0, Instant::now());
            }
        }
    }
}
