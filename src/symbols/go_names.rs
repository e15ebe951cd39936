//! Names, files and lines of Go functions, by Go's own table, which stripped programs have too.

use std::ops::Range;

use crate::model::vocabulary::text::{NAME_CAP, clean_bytes};
use crate::pclntab::{ALIGNMENT, BEGINS, HEADER, Header, MODULE_TEXT, Table};

use crate::elf::{Elf, u32_at, u64_at};

/// Maximum relocations searched.
const RELOCATIONS_MAX: usize = 1 << 22;
const RELOCATION_SIZE: usize = 24;
const R_X86_64_RELATIVE: u32 = 8;

/// The function table of a file.
pub struct GoNames {
    header: Header,
    text: u64,
    /// Its range in the file.
    place: Range<usize>,
}

impl GoNames {
    /// Finds the table; `None` for a file without one, or without section headers.
    pub fn read(elf: &Elf, bytes: &[u8]) -> Option<GoNames> {
        /// Index of the text address in the module data, and in the table's header.
        const WORD: u64 = 8;
        const HEADER_TEXT: u64 = 3;
        let (place, address) = find(elf, bytes)?;
        let table = bytes.get(place.clone())?;
        let header = Header::parse(table.get(..HEADER)?.try_into().ok()?)?;
        let module = elf.section(".go.module").map(|module| module.address);
        // A position-independent program has a relocation there, with or without the address
        // itself.
        let texts = [
            Some(header.text),
            relocated(elf, bytes, address.checked_add(WORD * HEADER_TEXT)?),
            u64_at(elf.data(".go.module", bytes), (WORD * MODULE_TEXT) as usize),
            module
                .and_then(|module| relocated(elf, bytes, module.checked_add(WORD * MODULE_TEXT)?)),
        ];
        let text = texts.into_iter().flatten().find(|text| elf.is_code(*text))?;
        Table::new(header, text, table)?;
        Some(GoNames { header, text, place })
    }

    /// Returns addresses and name of the function at an address of the file.
    pub fn range(&self, bytes: &[u8], address: u64) -> Option<(Range<u64>, String)> {
        let table = Table::new(self.header, self.text, bytes.get(self.place.clone())?)?;
        let function = table.function(address)?;
        let name = table.name(&function)?;
        Some((function.start..function.end, clean_bytes(&name, NAME_CAP)))
    }

    /// Returns the function at an address of the file; file and line where they are known.
    pub fn name(
        &self,
        bytes: &[u8],
        address: u64,
    ) -> Option<(String, Option<String>, Option<u32>)> {
        let table = Table::new(self.header, self.text, bytes.get(self.place.clone())?)?;
        let function = table.function(address)?;
        let text = |raw: Vec<u8>| clean_bytes(&raw, NAME_CAP);
        let (file, line) =
            table.line(&function, address).map(|(file, line)| (text(file), line)).unzip();
        Some((text(table.name(&function)?), file, line.filter(|line| *line > 0)))
    }
}

/// Finds the table's range in the file, and its address.
fn find(elf: &Elf, bytes: &[u8]) -> Option<(Range<usize>, u64)> {
    if let Some(section) =
        [".gopclntab", ".data.rel.ro.gopclntab"].into_iter().find_map(|name| elf.section(name))
    {
        return Some((section.range(bytes.len()), section.address));
    }
    // Linkers other than Go's put it into a section with other data.
    elf.section(".go.buildinfo")?;
    let section = elf.section(".data.rel.ro")?;
    let range = section.range(bytes.len());
    let words = bytes.get(range.clone())?.chunks_exact(ALIGNMENT);
    let number = words.into_iter().position(|word| BEGINS.iter().any(|begin| word == begin))?;
    let into = number * ALIGNMENT;
    Some((range.start + into..range.end, section.address.checked_add(into as u64)?))
}

/// Returns the addend of the relocation for `address`, to which the loader adds the program's base.
fn relocated(elf: &Elf, bytes: &[u8], address: u64) -> Option<u64> {
    let all = elf.data(".rela.dyn", bytes).chunks_exact(RELOCATION_SIZE).take(RELOCATIONS_MAX);
    let mut here = all.filter(|entry| {
        u64_at(entry, 0) == Some(address) && u32_at(entry, 8) == Some(R_X86_64_RELATIVE)
    });
    u64_at(here.next()?, 16)
}
