//! Tables that lead from code to the source.

use crate::runtimes::v8::bytecode_sizes::Sizes;

/// A place in the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Characters from the script's start.
    pub offset: u32,
    /// Number of the inlined call that it belongs to, from 0 on; `None`: it is in the function
    /// itself.
    pub inlined: Option<u32>,
}

impl Position {
    /// Decodes V8's `SourcePosition`: a flag, the offset plus 1 (30 bits), the inlined call's
    /// number plus 1 (16 bits). `None`: it is no place in a script.
    pub fn of(raw: i64) -> Option<Position> {
        let raw = u64::try_from(raw).ok()?;
        let is_external = raw & 1 != 0;
        let offset = (raw >> 1 & 0x3fff_ffff).checked_sub(1).filter(|_| !is_external)?;
        let inlined = (raw >> 31 & 0xffff).checked_sub(1);
        Some(Position { offset: offset as u32, inlined: inlined.map(|number| number as u32) })
    }
}

/// Reads numbers of 7 bits a byte, the lowest first.
struct Numbers<'t> {
    bytes: &'t [u8],
}

impl Numbers<'_> {
    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

/// Returns the position of the code at `offset`: that of the last entry at or before it. `flagged`:
/// code offsets have one more flag.
pub fn position(table: &[u8], offset: u32, flagged: bool) -> Option<Position> {
    let mut numbers = Numbers { bytes: table };
    let (mut at, mut raw, mut found) = (-1i64, 0i64, None);
    while !numbers.bytes.is_empty() {
        let (code, source) = (numbers.signed()?, numbers.signed()?);
        // Places that are no statements are negative.
        let code = if code >= 0 { code } else { -(code + 1) };
        at = at.checked_add(if flagged { code >> 1 } else { code })?;
        raw = raw.checked_add(source)?;
        if at > i64::from(offset) {
            break;
        }
        found = Some(raw);
    }
    Position::of(found?)
}

/// Returns the offset of the bytecode that the baseline code at `offset` executes. `table` has the
/// length of each bytecode's code. `None` in the code before the first.
pub fn bytecode_offset(table: &[u8], bytecodes: &[u8], sizes: &Sizes, offset: u32) -> Option<u32> {
    let mut numbers = Numbers { bytes: table };
    let (mut end, mut next, mut found) = (numbers.unsigned()?, 0, None);
    while end <= u64::from(offset) {
        let (length, prefix) = sizes.length(bytecodes.get(next..)?)?;
        found = u32::try_from(next + prefix).ok();
        next += length;
        end = end.checked_add(numbers.unsigned()?)?;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::v8::bytecode_sizes;
    use proptest::prelude::*;

    fn write(out: &mut Vec<u8>, mut value: u64) {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }

    fn write_signed(out: &mut Vec<u8>, value: i64) {
        write(out, (value << 1 ^ value >> 63) as u64);
    }

    /// Encodes entries: code offset, raw position, whether it is a statement.
    fn table(entries: &[(u32, i64, bool)], flagged: bool) -> Vec<u8> {
        let (mut out, mut at, mut raw) = (Vec::new(), -1, 0);
        for (code, position, is_statement) in entries {
            let delta = (i64::from(*code) - at) << i64::from(flagged);
            write_signed(&mut out, if *is_statement { delta } else { -delta - 1 });
            write_signed(&mut out, position - raw);
            (at, raw) = (i64::from(*code), *position);
        }
        out
    }

    fn raw(offset: u32, inlined: Option<u32>) -> i64 {
        (i64::from(offset) + 1) << 1 | inlined.map_or(0, |number| i64::from(number + 1)) << 31
    }

    #[test]
    fn the_last_entry_before_the_code_is_its_position() {
        for flagged in [false, true] {
            let entries = [
                (0, raw(100, None), true),
                (3, raw(70_000, Some(2)), false),
                (40, raw(5, None), true),
            ];
            let table = table(&entries, flagged);
            let at = |code| position(&table, code, flagged).map(|p| (p.offset, p.inlined));
            assert_eq!([at(0), at(2)], [Some((100, None)); 2]);
            assert_eq!([at(3), at(39)], [Some((70_000, Some(2))); 2]);
            assert_eq!(at(4_000), Some((5, None)));
        }
        let late = table(&[(7, raw(100, None), true)], false);
        assert_eq!(position(&late, 6, false), None);
        assert_eq!(position(&[], 6, false), None);
        let external = table(&[(0, raw(1, None) | 1, true)], false);
        assert_eq!(position(&external, 6, false), None);
    }

    #[test]
    fn baseline_code_leads_to_its_bytecode() {
        let sizes = bytecode_sizes::of((11, 3)).expect("known");
        // 20 bytes before the first; then one of 1 byte, a wide one of 4, one of 2.
        let (mut table, bytecodes) = (Vec::new(), [13, 0, 5, 1, 1, 5, 9]);
        for length in [20, 4, 300, 8] {
            write(&mut table, length);
        }
        let at = |offset| bytecode_offset(&table, &bytecodes, sizes, offset);
        assert_eq!([at(0), at(19), at(20), at(23)], [None, None, Some(0), Some(0)]);
        assert_eq!([at(24), at(323), at(324), at(331)], [Some(2), Some(2), Some(5), Some(5)]);
        assert_eq!(at(332), None, "behind the last");
    }

    proptest! {
        #[test]
        fn any_entries_are_read_back(
            entries in prop::collection::btree_map(0u32..5_000, (0u32..0x3fff_fffe, prop::option::of(0u32..0xfffe), any::<bool>()), 1..60),
            flagged in any::<bool>(), code in 0u32..6_000,
        ) {
            let list: Vec<_> = entries.iter().map(|(code, (offset, inlined, statement))| (*code, raw(*offset, *inlined), *statement)).collect();
            let expected = entries.range(..=code).next_back().map(|(_, (offset, inlined, _))| Position { offset: *offset, inlined: *inlined });
            prop_assert_eq!(position(&table(&list, flagged), code, flagged), expected);
        }

        #[test]
        fn any_bytes_are_tables(table in prop::collection::vec(any::<u8>(), 0..300), code in prop::collection::vec(any::<u8>(), 0..60), offset in any::<u32>(), flagged in any::<bool>()) {
            position(&table, offset, flagged);
            for version in [(11, 3), (14, 6)] {
                bytecode_offset(&table, &code, bytecode_sizes::of(version).expect("known"), offset);
            }
        }
    }
}
