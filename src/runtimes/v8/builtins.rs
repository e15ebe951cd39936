//! V8's built-in code: functions of the language (`Array.prototype.map`), the interpreter's
//! handlers, and what calls lead through. It is part of the file; the loader maps it a second time,
//! near to generated code. V8 has a table of its functions.

use std::ops::Range;

use crate::model::vocabulary::frame::{FileId, FrameCode, RawFrame};
use crate::process::mapped_files::Files;
use crate::process::maps::{Backing, Maps};
use crate::process::memory::ReadMemory;

/// Bytes of the table's head: hashes.
const HEAD: u64 = 24;
/// Lengths of an entry in known versions, bytes; it begins with offset and length of the code.
const ENTRIES: [u64; 2] = [12, 32];
/// Fewest and most functions; real ones are some 2,200.
const FEWEST: usize = 500;
const MOST: u64 = 1 << 14;
/// Maximum size of all code.
const CODE_MAX: u64 = 16 << 20;

/// The functions by V8's own numbers: offset and length of their code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    code: u64,
    functions: Vec<(u64, u64)>,
}

impl Table {
    /// Reads the table at `data` of code at `code`. `None` if there is no such table.
    pub fn read<M: ReadMemory>(memory: &M, code: u64, data: u64) -> Option<Table> {
        ENTRIES.iter().find_map(|entry| {
            let mut bytes = vec![0; (entry * MOST) as usize];
            let length = memory.read(data.checked_add(HEAD)?, &mut bytes);
            let number =
                |bytes: &[u8]| u64::from(u32::from_le_bytes(bytes.try_into().expect("four bytes")));
            let mut functions: Vec<(u64, u64)> = Vec::new();
            for entry in bytes[..length].chunks_exact(*entry as usize) {
                let (offset, length) = (number(&entry[..4]), number(&entry[4..8]));
                // The functions stand one behind the other, aligned, from 0 on.
                let end = functions.last().map_or(0, |(offset, length)| offset + length);
                let fits = offset.is_multiple_of(32)
                    && (end..end + 256).contains(&offset)
                    && (1..CODE_MAX).contains(&length)
                    && offset + length < CODE_MAX
                    && (offset == 0) == functions.is_empty();
                if !fits {
                    break;
                }
                functions.push((offset, length));
            }
            (functions.len() >= FEWEST).then_some(Table { code, functions })
        })
    }

    /// Returns a table for tests.
    #[cfg(test)]
    pub fn made_up() -> Table {
        Table { code: 0, functions: Vec::new() }
    }

    fn size(&self) -> u64 {
        self.functions.last().map_or(0, |(offset, length)| offset + length)
    }

    /// Returns the number of the function that contains this offset.
    fn at(&self, offset: u64) -> Option<usize> {
        let after = self.functions.partition_point(|(start, _)| *start <= offset);
        let number = after.checked_sub(1)?;
        let (start, length) = self.functions[number];
        (offset - start < length).then_some(number)
    }
}

/// One of the places at which the code is mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    range: Range<u64>,
    /// Address of the code's first byte, if it were there.
    code: u64,
    file: FileId,
    /// Offset in the file of the range's start.
    offset: u64,
}

/// An address in built-in code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Builtin {
    /// V8's number of the function.
    pub number: usize,
    /// Address at which the function begins.
    pub start: u64,
}

/// The built-in code of a process.
pub struct Builtins {
    table: Table,
    places: Vec<Place>,
}

impl Builtins {
    pub fn new(table: Table) -> Builtins {
        Builtins { table, places: Vec::new() }
    }

    /// Finds where the code is mapped. `pid`: the process.
    pub fn mapped(&mut self, maps: &Maps, files: &Files, pid: u32) {
        self.places.clear();
        let Some(first) = maps.find(self.table.code).filter(|m| m.backing == Backing::File) else {
            return;
        };
        let begin = first.offset_of(self.table.code);
        let end = begin + self.table.size();
        for mapping in maps.iter() {
            let length = mapping.end - mapping.start;
            let (from, to) = (mapping.offset.max(begin), (mapping.offset + length).min(end));
            let same = mapping.executable
                && (mapping.backing, mapping.device, mapping.inode)
                    == (first.backing, first.device, first.inode);
            if !same || from >= to {
                continue;
            }
            let Some(file) = files.register(mapping.mapped_file(pid)) else { continue };
            let start = mapping.start + (from - mapping.offset);
            let code = start.wrapping_sub(from - begin);
            self.places.push(Place { range: start..start + (to - from), code, file, offset: from });
        }
    }

    /// Returns the number of functions.
    pub fn count(&self) -> usize {
        self.table.functions.len()
    }

    pub fn covers(&self, pc: u64) -> bool {
        self.places.iter().any(|place| place.range.contains(&pc))
    }

    /// Returns the function at this address.
    pub fn at(&self, pc: u64) -> Option<Builtin> {
        let place = self.places.iter().find(|place| place.range.contains(&pc))?;
        let number = self.table.at(pc.wrapping_sub(place.code))?;
        let start = place.code.wrapping_add(self.table.functions[number].0);
        Some(Builtin { number, start })
    }

    /// Returns the frame of built-in code at this address, which the file's symbols name. `exact`:
    /// it is executing; otherwise it is a return address.
    pub fn frame(&self, pc: u64, exact: bool) -> Option<RawFrame> {
        let address = if exact { pc } else { pc.wrapping_sub(1) };
        let place = self.places.iter().find(|place| place.range.contains(&address))?;
        let offset = place.offset + (pc - place.range.start);
        Some(RawFrame::new(FrameCode::Code { file: place.file, offset, exact }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let functions = (0..600).map(|number| (64 * number, 40)).collect();
        Table { code: 0x5000_0100, functions }
    }

    #[test]
    fn code_is_found_at_each_place_where_it_is_mapped() {
        let mut builtins = Builtins::new(table());
        let maps = "50000000-50010000 r-xp 00003000 fd:01 7 /node\n\
                    50010000-50020000 r--p 00013000 fd:01 7 /node\n\
                    70000000-70003000 r-xp 00004000 fd:01 7 /node\n\
                    70003000-70004000 r-xp 00004000 fd:01 8 /other\n";
        assert!(!builtins.covers(0x5000_0100), "no mappings yet");
        builtins.mapped(&Maps::parse(maps.as_bytes()), &Files::default(), 1);
        let at = |pc| builtins.at(pc).map(|builtin| (builtin.number, builtin.start));
        assert_eq!(at(0x5000_0100), Some((0, 0x5000_0100)));
        assert_eq!(at(0x5000_0100 + 64 * 599 + 39), Some((599, 0x5000_0100 + 64 * 599)));
        assert_eq!([at(0x5000_00ff), at(0x5000_0128), at(0x5000_0100 + 64 * 600)], [None; 3]);
        // The second place begins 0xf00 bytes into the code.
        assert_eq!(at(0x7000_0000), Some((60, 0x7000_0000)));
        assert_eq!(at(0x7000_0041), Some((61, 0x7000_0040)));
        assert!(!builtins.covers(0x7000_3000) && builtins.covers(0x7000_2fff));
        let offset = |pc, exact| match builtins.frame(pc, exact)?.decode() {
            FrameCode::Code { offset, .. } => Some(offset),
            _ => None,
        };
        assert_eq!(offset(0x5000_0141, true), Some(0x3141));
        assert_eq!(offset(0x7000_0041, true), Some(0x4041), "by the place in the file");
        assert_eq!((offset(0x7000_3000, false), offset(0x7000_3000, true)), (Some(0x7000), None));
    }

    #[test]
    fn only_a_table_of_ascending_functions_is_one() {
        struct Bytes(Vec<u8>);
        impl ReadMemory for Bytes {
            fn read(&self, address: u64, buf: &mut [u8]) -> usize {
                let from = (address as usize).min(self.0.len());
                let length = buf.len().min(self.0.len() - from);
                buf[..length].copy_from_slice(&self.0[from..from + length]);
                length
            }
        }
        let bytes = |entry: usize, wrong: Option<usize>| {
            let mut bytes = vec![0xee; 24];
            for number in 0..700u32 {
                let offset = if wrong == Some(number as usize) { 7 } else { 64 * number };
                bytes.extend([offset.to_le_bytes(), 50u32.to_le_bytes()].concat());
                bytes.resize(bytes.len() + entry - 8, 0);
            }
            Bytes(bytes)
        };
        for entry in [12, 32] {
            let table = Table::read(&bytes(entry, None), 0x1000, 0).expect("a table");
            assert_eq!((table.functions.len(), table.at(64 * 5 + 3)), (700, Some(5)));
            assert_eq!(Table::read(&bytes(entry, Some(3)), 0x1000, 0), None);
            let cut = Table::read(&bytes(entry, Some(600)), 0x1000, 0).expect("a table");
            assert_eq!(cut.functions.len(), 600);
        }
        assert_eq!(Table::read(&bytes(16, None), 0x1000, 0), None);
        assert_eq!(Table::read(&Bytes(Vec::new()), 0x1000, u64::MAX - 3), None);
    }
}
