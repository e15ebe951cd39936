//! Lines of instructions: the tables of CPython's code objects, in the formats of 3.8 to 3.15.
//! Pure: it reads foreign bytes, and gives no line where they are corrupt.

/// How a version of CPython keeps lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineFormat {
    /// 3.8, 3.9: `co_lnotab` (Objects/lnotab_notes.txt).
    Lnotab,
    /// 3.10: `co_linetable` as ranges with a line or without one (PEP 626).
    Ranges,
    /// 3.11 on: `co_linetable` with columns (Objects/locations.md).
    Locations,
}

/// What a table's entry covers: bytes of code, and its line.
type Covered = (u32, Option<i64>);

impl LineFormat {
    /// Returns the format of a version, `(3, minor)`.
    pub fn of_minor(minor: u8) -> LineFormat {
        match minor {
            0..=9 => LineFormat::Lnotab,
            10 => LineFormat::Ranges,
            _ => LineFormat::Locations,
        }
    }

    /// Returns the line of the instruction at this offset, in bytes of code. `None` where it has
    /// none, or the table is corrupt.
    pub fn line(self, table: &[u8], first_line: u32, offset: u32) -> Option<u32> {
        let mut line = i64::from(first_line);
        let mut rest = table;
        let mut start = 0u32;
        if self == LineFormat::Lnotab {
            return lnotab(table, line, offset);
        }
        while !rest.is_empty() {
            let (length, of_entry) = match self {
                LineFormat::Ranges => range(&mut rest, &mut line)?,
                _ => location(&mut rest, &mut line)?,
            };
            let end = start.checked_add(length)?;
            if (start..end).contains(&offset) {
                return of_entry.and_then(|line| u32::try_from(line).ok());
            }
            start = end;
        }
        None
    }
}

/// Pairs of bytes to go on, and of lines to add from there on.
fn lnotab(table: &[u8], first_line: i64, offset: u32) -> Option<u32> {
    let (mut line, mut start) = (first_line, 0u32);
    for pair in table.chunks_exact(2) {
        start += u32::from(pair[0]);
        if start > offset {
            break;
        }
        line += i64::from(pair[1].cast_signed());
    }
    u32::try_from(line).ok()
}

/// A range without a line has this in place of its difference.
const NO_LINE: i8 = -128;

fn range(rest: &mut &[u8], line: &mut i64) -> Option<Covered> {
    let (pair, after) = rest.split_at_checked(2)?;
    *rest = after;
    let difference = pair[1].cast_signed();
    if difference == NO_LINE {
        return Some((pair[0].into(), None));
    }
    *line += i64::from(difference);
    Some((pair[0].into(), Some(*line)))
}

/// Bytes of a code unit.
const UNIT: u32 = 2;

fn location(rest: &mut &[u8], line: &mut i64) -> Option<Covered> {
    let first = take(rest)?;
    // Each entry begins with a byte that has this bit, and no other byte of it has.
    if first & 0x80 == 0 {
        return None;
    }
    let length = (u32::from(first & 7) + 1) * UNIT;
    let columns = match (first >> 3) & 15 {
        0..=9 => 1,
        kind @ 10..=12 => {
            *line += i64::from(kind - 10);
            2
        }
        13 => {
            *line += signed(rest)?;
            0
        }
        14 => {
            *line += signed(rest)?;
            // The end's line, and both columns.
            for _ in 0..3 {
                varint(rest)?;
            }
            0
        }
        _ => return Some((length, None)),
    };
    for _ in 0..columns {
        take(rest)?;
    }
    Some((length, Some(*line)))
}

fn take(rest: &mut &[u8]) -> Option<u8> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    Some(*first)
}

/// Reads a number in groups of six bits, the lowest first.
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let byte = take(rest)?;
        value |= u64::from(byte & 63) << shift;
        shift += 6;
        if byte & 64 == 0 {
            return Some(value);
        }
        // A line has 32 bits.
        if shift > 36 {
            return None;
        }
    }
}

/// Reads a number whose lowest bit is its sign.
fn signed(rest: &mut &[u8]) -> Option<i64> {
    let value = varint(rest)?;
    let amount = (value >> 1).cast_signed();
    Some(if value & 1 == 0 { amount } else { -amount })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A function's table as an interpreter made it, its first line, and the lines that the
    /// interpreter itself tells: the first byte of a part of its code, and the line; 0: none.
    struct Known {
        format: LineFormat,
        table: &'static str,
        lines: &'static [(u32, u32)],
        end: u32,
    }

    const KNOWN: &[Known] = &[
        // 3.8.18
        Known {
            format: LineFormat::Lnotab,
            table: "00010a0206fe06030401020102ff040302010401020102fe0a030e01060104010a010801167f007f0030",
            lines: &[
                (0, 3),
                (10, 5),
                (16, 3),
                (22, 6),
                (26, 7),
                (28, 8),
                (30, 7),
                (34, 10),
                (36, 11),
                (40, 12),
                (42, 13),
                (44, 11),
                (54, 14),
                (68, 15),
                (74, 16),
                (78, 17),
                (88, 18),
                (96, 19),
                (118, 321),
            ],
            end: 122,
        },
        // 3.10.13
        Known {
            format: LineFormat::Ranges,
            table: "0a01060206fe04030201020104ff02030401020102010afe0c03040102ff0402080104ff0802020120ff007f007f0431",
            lines: &[
                (0, 3),
                (10, 5),
                (16, 3),
                (22, 6),
                (26, 7),
                (28, 8),
                (30, 7),
                (34, 10),
                (36, 11),
                (40, 12),
                (42, 13),
                (44, 11),
                (54, 14),
                (66, 15),
                (70, 14),
                (72, 16),
                (76, 17),
                (84, 16),
                (88, 18),
                (96, 19),
                (98, 18),
                (130, 321),
            ],
            end: 134,
        },
        // 3.11.7
        Known {
            format: LineFormat::Locations,
            table: "f88000f00202091cf00002091cf00002091cf00002091ce51217980191289428f00502091cf10002091cf40002091c8041f006000809f000020513d81011d81011f003011013f000010913f00605050ddd0c0d8861d80e0fd81011f005020d13f100020d13f400020d1388018801f8f506000c16f00001050df00001050df00001050dd8080c8804f00301050df8f8f8e00a0bf00001050fd80809885189068801f003000b0cf00001050fe5090a89138c13f0000105119001d80f10f003010511f000010511f000010511f000010511f100010511f400010511f000010511f000010511f000010511f000010511f000010511f000010511f8f8f8f000010511f000010511f000010511f000010511f05e09000c0d8831",
            lines: &[
                (0, 0),
                (2, 2),
                (4, 3),
                (12, 5),
                (40, 3),
                (58, 6),
                (62, 7),
                (64, 8),
                (66, 7),
                (70, 10),
                (72, 11),
                (86, 12),
                (88, 13),
                (90, 11),
                (110, 0),
                (112, 14),
                (130, 15),
                (134, 14),
                (136, 0),
                (142, 16),
                (146, 17),
                (156, 16),
                (160, 18),
                (190, 19),
                (192, 18),
                (226, 0),
                (232, 18),
                (240, 321),
            ],
            end: 244,
        },
        // 3.13.0
        Known {
            format: LineFormat::Locations,
            table: "8000f40600131898019428f30502091ce1121a8851f005000a0bd80b0cf403010a0de1121af005000506f00002091cf606000809d81011d81011f003011013f000010913f00605050ddc0c0d8861d80e0fd81011f105020d138801f60a000b0cd80809885189068801f703000b0c8821e4090a8c139001d80f10f703000a0d8913f9f21f02091cf8f416000c16f30001050dd9080cf00301050dfaf708000a0d8c13f05e09000c0dfa",
            lines: &[
                (0, 2),
                (2, 5),
                (24, 3),
                (32, 5),
                (38, 3),
                (40, 4),
                (42, 3),
                (52, 5),
                (56, 3),
                (60, 6),
                (74, 7),
                (76, 8),
                (78, 7),
                (82, 10),
                (84, 11),
                (96, 12),
                (98, 13),
                (100, 11),
                (106, 16),
                (120, 17),
                (130, 16),
                (148, 18),
                (170, 19),
                (172, 18),
                (192, 0),
                (196, 3),
                (202, 0),
                (204, 14),
                (222, 15),
                (226, 14),
                (228, 0),
                (234, 18),
                (260, 321),
                (262, 0),
            ],
            end: 268,
        },
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
        (0..hex.len()).step_by(2).map(byte).collect()
    }

    #[test]
    fn lines_are_those_that_the_interpreter_tells() {
        for (nth, Known { format, table, lines, end }) in KNOWN.iter().enumerate() {
            let table = bytes(table);
            for offset in (0..*end).step_by(2) {
                let expected =
                    lines.iter().rfind(|(from, _)| *from <= offset).map(|(_, line)| *line);
                let expected = expected.filter(|line| *line > 0);
                assert_eq!(format.line(&table, 2, offset), expected, "table {nth}, byte {offset}");
            }
        }
    }

    #[test]
    fn an_instruction_behind_the_table_has_no_line() {
        for Known { format, table, end, .. } in &KNOWN[1..] {
            assert_eq!(format.line(&bytes(table), 2, *end), None);
        }
        // The last line of the oldest format goes on.
        assert_eq!(LineFormat::Lnotab.line(&bytes(KNOWN[0].table), 2, 999), Some(321));
    }

    #[test]
    fn corrupt_tables_have_no_line() {
        let line = |table: &[u8]| LineFormat::Locations.line(table, 5, 0);
        assert_eq!(line(&[]), None);
        assert_eq!(line(&[0x00, 1]), None, "no entry begins so");
        assert_eq!(line(&[0x80]), None, "the column is missing");
        assert_eq!(line(&[0xf0, 0x02]), None, "columns are missing");
        assert_eq!(line(&[0xe8, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x01]), None, "too long");
        assert_eq!(line(&[0xe8, 0x0d]), None, "before the first line of a file");
        assert_eq!(LineFormat::Ranges.line(&[4], 5, 0), None);
        assert_eq!(LineFormat::Ranges.line(&[4, 0x80, 2, 1], 5, 0), None, "no line");
        assert_eq!(LineFormat::Ranges.line(&[4, 0x80, 2, 1], 5, 4), Some(6));
    }

    /// Entries of a table: code units, 1 to 8; the line, or none.
    fn written(entries: &[(u8, Option<u32>)], first_line: u32) -> Vec<u8> {
        let (mut table, mut before) = (Vec::new(), i64::from(first_line));
        for (units, line) in entries {
            let head = |kind: u8| 0x80 | kind << 3 | (units - 1);
            match line.map(i64::from) {
                None => table.push(head(15)),
                Some(line) => {
                    match line - before {
                        0 => table.extend([head(3), 0x11]),
                        ahead @ 1..=2 => table.extend([head(10 + ahead as u8), 4, 9]),
                        other => {
                            table.push(head(if other % 2 == 0 { 13 } else { 14 }));
                            let number = other.unsigned_abs() << 1 | u64::from(other < 0);
                            put(&mut table, number);
                            if other % 2 != 0 {
                                [0, 70, 1].into_iter().for_each(|number| put(&mut table, number));
                            }
                        }
                    }
                    before = line;
                }
            }
        }
        table
    }

    fn put(table: &mut Vec<u8>, mut number: u64) {
        while number >= 64 {
            table.push((number & 63) as u8 | 64);
            number >>= 6;
        }
        table.push(number as u8);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            entries in prop::collection::vec((1u8..=8, prop::option::of(1u32..100_000)), 0..40),
            first_line in 1u32..50_000,
        ) {
            let table = written(&entries, first_line);
            let mut offset = 0;
            for (units, line) in entries {
                for unit in 0..u32::from(units) {
                    let read = LineFormat::Locations.line(&table, first_line, offset + unit * UNIT);
                    prop_assert_eq!(read, line);
                }
                offset += u32::from(units) * UNIT;
            }
            prop_assert_eq!(LineFormat::Locations.line(&table, first_line, offset), None);
        }

        #[test]
        fn any_bytes_give_a_line_or_none(
            table in prop::collection::vec(any::<u8>(), 0..200),
            first_line in any::<u32>(),
            offset in any::<u32>(),
        ) {
            for format in [LineFormat::Lnotab, LineFormat::Ranges, LineFormat::Locations] {
                format.line(&table, first_line, offset);
            }
        }
    }
}
