//! One compilation unit's line table: address -> file number and line; file number -> path.

use gimli::Reader as _;

use super::{Budget, Reader, Unusable};
use crate::elf::Elf;
use crate::model::vocabulary::text::{NAME_CAP, clean_bytes};

const ROWS_CAP: usize = 1 << 22;

/// A row of the line table: from `address` to the next row's.
#[derive(Clone, Copy)]
struct Row {
    address: u64,
    file: u32,
    /// 0: no line. The end of a sequence has `file` [`END`].
    line: u32,
}

const END: u32 = u32::MAX;

/// The rows of a unit, sorted. An address belongs to the last row at or before it, unless that row
/// ends a sequence.
pub struct Lines {
    rows: Vec<Row>,
}

impl Lines {
    pub fn read(
        unit: &gimli::Unit<Reader<'_>>,
        elf: &Elf,
        budget: &mut Budget,
    ) -> Result<Lines, Unusable> {
        let mut rows: Vec<Row> = Vec::new();
        let Some(program) = unit.line_program.clone() else { return Ok(Lines { rows }) };
        let mut walk = program.rows();
        // Start of the current sequence's rows. Sequences are sorted as a whole; in ELF they never
        // overlap.
        let mut begin = 0;
        while let Ok(Some((_, row))) = walk.next_row() {
            budget.step()?;
            if rows.len() >= ROWS_CAP {
                break;
            }
            let next = Row {
                address: row.address(),
                file: match row.end_sequence() {
                    true => END,
                    false => u32::try_from(row.file_index()).map_or(0, |file| file.min(END - 1)),
                },
                line: row.line().map_or(0, |line| u32::try_from(line.get()).unwrap_or(0)),
            };
            // Columns and statement flags are dropped, so most rows repeat the one before.
            match rows[begin..].last_mut() {
                Some(last) if last.address == next.address && next.file != END => *last = next,
                Some(last) if (last.file, last.line) == (next.file, next.line) => {}
                _ => rows.push(next),
            }
            if next.file == END {
                // A function that the linker dropped keeps its lines, at address 0.
                if !rows[begin..].first().is_some_and(|first| elf.is_code(first.address)) {
                    rows.truncate(begin);
                }
                begin = rows.len();
            }
        }
        rows.truncate(begin);
        // The sort is stable, and an end sorts before a beginning at the same address.
        rows.sort_by_key(|row| (row.address, row.file != END));
        Ok(Lines { rows })
    }

    /// Returns file number and line.
    pub fn find(&self, address: u64) -> Option<(u64, Option<u32>)> {
        let after = self.rows.partition_point(|row| row.address <= address);
        let row = self.rows.get(after.checked_sub(1)?)?;
        (row.file != END).then_some((u64::from(row.file), (row.line != 0).then_some(row.line)))
    }

    /// Returns the ranges of code with lines.
    pub fn ranges(&self) -> impl Iterator<Item = gimli::Range> + '_ {
        self.rows.split_inclusive(|row| row.file == END).filter_map(|sequence| {
            let (first, last) = (sequence.first()?, sequence.last()?);
            Some(gimli::Range { begin: first.address, end: last.address })
        })
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }
}

/// Returns the path of a file of the unit's line program: directory of compilation, directory,
/// name.
pub fn path(
    dwarf: &gimli::Dwarf<Reader<'_>>,
    unit: &gimli::Unit<Reader<'_>>,
    file: u64,
) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(file)?;
    let text = |value| -> Option<Vec<u8>> {
        let text: Reader<'_> = dwarf.attr_string(unit, value).ok()?;
        let text = text.slice();
        Some(text[..text.len().min(NAME_CAP)].to_vec())
    };
    let mut path = text(file.path_name())?;
    if !path.starts_with(b"/")
        && file.directory_index() != 0
        && let Some(directory) = file.directory(header).and_then(text).filter(|d| !d.is_empty())
    {
        path = [&directory, &b"/"[..], &path].concat();
    }
    if !path.starts_with(b"/")
        && let Some(directory) = unit.comp_dir.as_ref().map(|d| d.slice()).filter(|d| !d.is_empty())
    {
        let directory = &directory[..directory.len().min(NAME_CAP)];
        path = [directory, b"/", &path].concat();
    }
    Some(clean_bytes(&path, NAME_CAP)).filter(|path| !path.is_empty())
}

/// Maximum bytes of a line program's header (the names of all files of a unit): gimli turns each
/// byte into up to a hundred.
const HEADER_CAP: usize = 1 << 20;

/// Returns the length of a line program's header. `None` if it is longer than [`HEADER_CAP`], or
/// its tables have entries without bytes. From version 5 on tables are counted, not terminated, so
/// an entry whose forms take no bytes could be repeated 2^64 times.
pub fn header_len(program: &[u8]) -> Option<usize> {
    let mut rest = gimli::EndianSlice::new(program, gimli::LittleEndian);
    let mut sane = || -> gimli::Result<(usize, bool)> {
        let (_, format) = rest.read_initial_length()?;
        let version = rest.read_u16()?;
        if version >= 5 {
            // Sizes of address and segment selector.
            rest.skip(2)?;
        }
        let len = rest.read_length(format)?;
        rest.truncate(len)?;
        if len > HEADER_CAP || version < 5 {
            return Ok((len, len <= HEADER_CAP));
        }
        // Instruction length, operations, default statement, line base and range, then the operand
        // counts.
        rest.skip(5)?;
        let opcodes = rest.read_u8()?;
        rest.skip(usize::from(opcodes.saturating_sub(1)))?;
        Ok((len, table_is_sane(&mut rest, format)? && table_is_sane(&mut rest, format)?))
    };
    sane().ok().filter(|(_, sane)| *sane).map(|(len, _)| len)
}

/// Skips a counted table (directories or files); false if its entries have unknown forms, or none.
fn table_is_sane(rest: &mut Reader<'_>, format: gimli::Format) -> gimli::Result<bool> {
    let mut forms = Vec::new();
    for _ in 0..rest.read_u8()? {
        rest.skip_leb128()?;
        forms.push(gimli::DwForm(u16::try_from(rest.read_uleb128()?).unwrap_or(0)));
    }
    let count = rest.read_uleb128()?;
    if forms.is_empty() {
        return Ok(count == 0);
    }
    for _ in 0..count {
        for form in &forms {
            match *form {
                gimli::DW_FORM_string => drop(rest.read_null_terminated_slice()?),
                gimli::DW_FORM_line_strp | gimli::DW_FORM_strp | gimli::DW_FORM_strp_sup => {
                    rest.skip(usize::from(format.word_size()))?;
                }
                gimli::DW_FORM_udata | gimli::DW_FORM_strx => rest.skip_leb128()?,
                gimli::DW_FORM_data1 | gimli::DW_FORM_strx1 => rest.skip(1)?,
                gimli::DW_FORM_data2 | gimli::DW_FORM_strx2 => rest.skip(2)?,
                gimli::DW_FORM_strx3 => rest.skip(3)?,
                gimli::DW_FORM_data4 | gimli::DW_FORM_strx4 => rest.skip(4)?,
                gimli::DW_FORM_data8 => rest.skip(8)?,
                gimli::DW_FORM_data16 => rest.skip(16)?,
                gimli::DW_FORM_block => {
                    let len = rest.read_uleb128()?;
                    rest.skip(usize::try_from(len).unwrap_or(usize::MAX))?;
                }
                _ => return Ok(false),
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A version 5 header with a directory and a file table given as bytes.
    fn header(tables: &[u8]) -> Vec<u8> {
        let mut rest = vec![1, 1, 1, 0xfb, 14, 1];
        rest.extend(tables);
        let mut program = Vec::new();
        program.extend((rest.len() as u32 + 8).to_le_bytes());
        program.extend([5, 0, 8, 0]);
        program.extend((rest.len() as u32).to_le_bytes());
        program.extend(rest);
        program
    }

    #[test]
    fn entries_made_of_nothing_are_refused() {
        // One directory "d", one file "f" in directory 0.
        let good = [1, 1, 8, 1, b'd', 0, 2, 1, 8, 2, 0x0b, 1, b'f', 0, 0];
        assert_eq!(header_len(&header(&good)), Some(6 + good.len()));
        // A million directories, each the form flag_present, which has no bytes.
        assert_eq!(header_len(&header(&[1, 1, 0x19, 0xc0, 0x84, 0x3d, 0, 0])), None);
        // The same for files.
        assert_eq!(header_len(&header(&[1, 1, 8, 1, b'd', 0, 1, 1, 0x19, 0xc0, 0x84, 0x3d])), None);
        // No form at all, and a table that ends early.
        assert_eq!(header_len(&header(&[0, 0x7f, 0, 0])), None);
        assert_eq!(header_len(&header(&[1, 1, 8, 2, b'd', 0])), None);
    }
}
