//! Names, files and lines of Go functions, by Go's own table, which stripped programs have too.

use std::ops::Range;

use crate::model::vocabulary::go_functions::{is_wrapper, shown};
use crate::model::vocabulary::role::Origin;
use crate::model::vocabulary::text::{NAME_CAP, clean_bytes};
use crate::pclntab::modules::Modules;
use crate::pclntab::{ALIGNMENT, BEGINS, HEADER, Header, MODULE_TEXT, MODULE_TREES, Table};
use crate::symbols::step::Step;

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
    /// Offset in the file from which those of trees of inlined functions count.
    trees: Option<usize>,
    modules: Modules,
    wrapper_id: Option<u8>,
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
        let table = Table::new(header, text, table)?;
        let trees = trees(elf, bytes, address, &header, &table);
        let modules = Modules::parse(elf.data(".go.buildinfo", bytes));
        Some(GoNames { header, text, place, trees, modules, wrapper_id: table.wrapper_id() })
    }

    /// Returns addresses and name of the function at an address of the file.
    pub fn range(&self, bytes: &[u8], address: u64) -> Option<(Range<u64>, String)> {
        let table = Table::new(self.header, self.text, bytes.get(self.place.clone())?)?;
        let function = table.function(address)?;
        let name = table.name(&function)?;
        Some((function.start..function.end, shown(&clean_bytes(&name, NAME_CAP))))
    }

    /// Returns the function at an address of the file and what is inlined there, outermost first.
    pub fn name(&self, bytes: &[u8], address: u64) -> Option<Vec<Step>> {
        let table = Table::new(self.header, self.text, bytes.get(self.place.clone())?)?;
        let function = table.function(address)?;
        let trees = self.trees.and_then(|trees| bytes.get(trees..));
        let text = |raw: Vec<u8>| clean_bytes(&raw, NAME_CAP);
        let is_made = |id: u8, function: &str, file: Option<&str>| match self.wrapper_id {
            Some(wrapper) => id == wrapper,
            None => is_wrapper(function, file),
        };
        let steps = table.positions(&function, address, trees.as_ref())?.into_iter().map(|at| {
            let function = shown(&text(at.name));
            let (file, line) = at.line.map(|(file, line)| (text(file), line)).unzip();
            Step {
                origin: Some(match is_made(at.id, &function, file.as_deref()) {
                    true => Origin::Runtime,
                    false => self.modules.origin(&function),
                }),
                function,
                file,
                line: line.filter(|line| *line > 0),
            }
        });
        Some(steps.collect())
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
    [".go.buildinfo", ".note.go.buildid"].into_iter().find_map(|name| elf.section(name))?;
    let section = elf.section(".data.rel.ro")?;
    let range = section.range(bytes.len());
    let words = bytes.get(range.clone())?.chunks_exact(ALIGNMENT);
    let number = words.into_iter().position(|word| BEGINS.iter().any(|begin| word == begin))?;
    let into = number * ALIGNMENT;
    Some((range.start + into..range.end, section.address.checked_add(into as u64)?))
}

/// Finds the offset in the file from which those of trees of inlined functions count, by the module
/// data. `address`: of the table.
fn trees(
    elf: &Elf,
    bytes: &[u8],
    address: u64,
    header: &Header,
    table: &Table<&[u8]>,
) -> Option<usize> {
    let module = match elf.section(".go.module") {
        Some(section) => section.address,
        None => module_data(elf, bytes, address, header)?,
    };
    MODULE_TREES.into_iter().find_map(|word| {
        let at = module.checked_add(8 * word)?;
        let written = u64_at(elf.bytes_at(at, bytes)?, 0).filter(|address| *address != 0);
        let begin = elf.bytes_at(written.or_else(|| relocated(elf, bytes, at))?, bytes)?;
        let offset = (begin.as_ptr() as usize).checked_sub(bytes.as_ptr() as usize)?;
        table.fits(&begin).then_some(offset)
    })
}

/// Finds the module data, which is no section of its own before Go 1.26: it begins with the
/// addresses of the table and of its names.
fn module_data(elf: &Elf, bytes: &[u8], address: u64, header: &Header) -> Option<u64> {
    let names = address.checked_add(header.names())?;
    [".noptrdata", ".data", ".data.rel.ro", ".go.module"].into_iter().find_map(|name| {
        let section = elf.section(name)?;
        let data = elf.data(name, bytes);
        let found = data
            .chunks_exact(8)
            .zip(data.chunks_exact(8).skip(1))
            .position(|(a, b)| u64_at(a, 0) == Some(address) && u64_at(b, 0) == Some(names));
        section.address.checked_add(8 * found? as u64)
    })
}

/// Returns the addend of the relocation for `address`, to which the loader adds the program's base.
fn relocated(elf: &Elf, bytes: &[u8], address: u64) -> Option<u64> {
    let all = elf.data(".rela.dyn", bytes).chunks_exact(RELOCATION_SIZE).take(RELOCATIONS_MAX);
    let mut here = all.filter(|entry| {
        u64_at(entry, 0) == Some(address) && u32_at(entry, 8) == Some(R_X86_64_RELATIVE)
    });
    u64_at(here.next()?, 16)
}
