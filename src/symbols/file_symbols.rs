//! The names of one mapped file. The best source comes first:
//!
//! debug info (its own, or of its debug file), Go's own table of functions, .symtab (of the same
//! two), .dynsym, `name@plt`. Then `libx.so!fn_1a40`: the start of the unwind entry around the
//! address, which is the same in every run. Without an entry, `libx.so!gap_1a40`: the end of the
//! last function before it whose end is known. So hand-written assembly is one row per gap. A
//! symbol with a size never names an address behind its end: in a stripped file that is nearly
//! always wrong.

use std::cell::OnceCell;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::debugfile::{Found, Root, SearchPath, find};
use super::dwarf::{Debug, Place};
use super::go_names::GoNames;
use super::step::Step;
use super::symtab::{Bounds, Plt, SymbolTable};
use super::unwind_entry::UnwindEntries;
use super::{demangle, vdso};
use crate::elf::{Elf, hex};
use crate::process::filebytes::{FileBytes, Version};

/// How much of a file is trusted. Each step down follows a failure of the one above.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Trust {
    /// It changed or was truncated while it was read, or even its unwind entries crashed the
    /// parser.
    Nothing,
    /// Debug info or symbols crashed the parser: unwind entries only.
    Entries,
    Full,
}

/// An address to be named: offset in the file, and whether it is executing or a return address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Spot {
    pub offset: u64,
    pub exact: bool,
}

/// Why a file has no names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoNames {
    /// It is missing, damaged, or has changed since it was mapped.
    Unreadable,
    /// It is no ELF file: code that a program generated into a file (a memfd).
    Generated,
}

/// The name of code of which only the functions before and behind it are known.
const GAP: &str = "code between known functions";

/// The addresses of a function, and its name; empty where it has none.
pub struct FunctionRange {
    pub range: Range<u64>,
    pub name: String,
}

/// The bytes of a file.
enum Bytes {
    Mapped(FileBytes),
    /// A copy that no other process can change.
    Own(Vec<u8>),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Mapped(mapped) => mapped.bytes(),
            Bytes::Own(bytes) => bytes,
        }
    }

    fn unchanged(&self) -> bool {
        match self {
            Bytes::Mapped(mapped) => mapped.unchanged(),
            Bytes::Own(_) => true,
        }
    }
}

/// The sources of names of one file. See the module's documentation.
pub struct FileNames {
    module: String,
    bytes: Bytes,
    elf: Elf,
    debug_file: Option<Found>,
    debug: Option<Debug>,
    symbols: SymbolTable,
    /// `symbols` belongs to the debug file.
    symbols_elsewhere: bool,
    dynamic: SymbolTable,
    plt: Plt,
    go: Option<GoNames>,
    /// Read at the first use: a file with symbols may never need them.
    entries: OnceCell<UnwindEntries>,
}

impl FileNames {
    /// Opens a file. `path` is its path beneath the first of `roots`; `version` its version when it
    /// was first opened.
    pub fn open(
        module: &str,
        file: File,
        version: Version,
        path: &Path,
        roots: &[&Root],
        search: &SearchPath,
        trust: Trust,
    ) -> Result<FileNames, NoNames> {
        let mapped = FileBytes::map(file).map_err(|_| NoNames::Unreadable)?;
        if mapped.version() != version {
            return Err(NoNames::Unreadable);
        }
        let elf = mapped.bytes().starts_with(b"\x7fELF");
        if !elf && mapped.unchanged() {
            return Err(NoNames::Generated);
        }
        FileNames::load(module, Bytes::Mapped(mapped), path, roots, search, trust)
            .ok_or(NoNames::Unreadable)
    }

    /// Reads the vDSO from our own process: there is one vDSO per kernel.
    pub fn vdso(module: &str) -> Option<FileNames> {
        FileNames::of_image(module, vdso::image()?)
    }

    /// Reads a whole file in memory; no debug file is searched for.
    pub fn of_image(module: &str, image: Vec<u8>) -> Option<FileNames> {
        let bytes = Bytes::Own(image);
        let search = SearchPath { debug_dirs: Vec::new(), caches: Vec::new() };
        FileNames::load(module, bytes, &PathBuf::new(), &[], &search, Trust::Full)
    }

    fn load(
        module: &str,
        bytes: Bytes,
        path: &Path,
        roots: &[&Root],
        search: &SearchPath,
        trust: Trust,
    ) -> Option<FileNames> {
        if trust == Trust::Nothing {
            return None;
        }
        let elf = Elf::parse(bytes.get())?;
        let mut names = FileNames {
            module: module.into(),
            entries: OnceCell::new(),
            debug_file: None,
            debug: None,
            symbols: SymbolTable::default(),
            symbols_elsewhere: false,
            dynamic: SymbolTable::default(),
            plt: Plt::default(),
            go: None,
            bytes,
            elf,
        };
        if trust == Trust::Full {
            names.load_symbols(path, roots, search);
        }
        Some(names)
    }

    fn load_symbols(&mut self, path: &Path, roots: &[&Root], search: &SearchPath) {
        let bytes = self.bytes.get();
        self.debug = Debug::load(&self.elf, bytes);
        self.symbols = SymbolTable::read(&self.elf, bytes, ".symtab");
        self.dynamic = SymbolTable::read(&self.elf, bytes, ".dynsym");
        self.plt = Plt::read(&self.elf, bytes);
        self.go = GoNames::read(&self.elf, bytes);
        if self.debug.is_none() {
            self.debug_file = find(&self.elf, bytes, path, roots, search);
            if let Some(found) = &self.debug_file {
                self.debug = Debug::load(&found.elf, found.bytes.bytes());
                if self.symbols.is_empty() {
                    self.symbols = SymbolTable::read(&found.elf, found.bytes.bytes(), ".symtab");
                    self.symbols_elsewhere = true;
                }
            }
        }
    }

    /// Whether everything read so far is valid: no file was changed or truncated meanwhile.
    pub fn unchanged(&self) -> bool {
        self.bytes.unchanged()
            && self.debug_file.as_ref().is_none_or(|found| found.bytes.unchanged())
    }

    /// Returns the build id of the file itself, in hexadecimal digits.
    pub fn build_id(&self) -> Option<String> {
        self.elf.build_id().map(hex)
    }

    /// Returns whether the file is a program and no shared object.
    pub fn is_program(&self) -> bool {
        self.elf.is_program(self.bytes.get())
    }

    /// Returns the bytes of memory used, without mapped files.
    pub fn weight(&self) -> usize {
        let tables = self.symbols.weight() + self.dynamic.weight() + self.plt.weight();
        let entries = self.entries.get().map_or(0, UnwindEntries::weight);
        tables + entries + self.debug.as_ref().map_or(0, Debug::weight)
    }

    /// Names places, in the given order (ascending is fastest). Returns for each the function and
    /// what is inlined there, outermost first, never empty. Debug info that is damaged beyond use
    /// is dropped and counted in `damaged`.
    pub fn name(
        &mut self,
        spots: &[Spot],
        damaged: &mut usize,
        found: &mut dyn FnMut(Spot, Vec<Step>),
    ) {
        // Debug info of Go code says less: its line tables name inlined functions elsewhere, and it
        // is slow to read.
        let go: Vec<Option<Vec<Step>>> =
            spots.iter().map(|spot| self.go_functions(*spot)).collect();
        let is_other = |(_, go): &(&Spot, &Option<Vec<Step>>)| go.is_none();
        let others: Vec<Spot> =
            spots.iter().zip(&go).filter(is_other).map(|(spot, _)| *spot).collect();
        let mut places: Vec<Vec<Place>> = Vec::with_capacity(others.len());
        let debug_elf =
            self.debug_file.as_ref().filter(|found| found.elf.section(".debug_info").is_some());
        let debug_bytes = debug_elf.map_or(self.bytes.get(), |found| found.bytes.bytes());
        if let Some(debug) = self.debug.as_mut().filter(|_| !others.is_empty()) {
            let addresses = others.iter().map(|spot| lookup_address(&self.elf, *spot).unwrap_or(0));
            let done = debug
                .resolve(debug_bytes, &self.elf, addresses, &mut |_, chain| places.push(chain));
            if done.is_err() {
                self.debug = None;
                *damaged += 1;
            }
        }
        let mut places = places.into_iter();
        for (spot, go) in spots.iter().zip(go) {
            let steps = go.unwrap_or_else(|| self.steps(*spot, places.next().unwrap_or_default()));
            found(*spot, steps);
        }
    }

    fn steps(&self, spot: Spot, chain: Vec<Place>) -> Vec<Step> {
        if chain.is_empty() {
            let function = self.fallback(spot);
            return vec![Step { function, file: None, line: None, origin: None }];
        }
        chain
            .into_iter()
            .enumerate()
            .map(|(depth, place)| {
                let function = match place.name {
                    // Compilers omit the linkage name of functions with internal linkage. The
                    // symbol table still has it, and with it the scopes.
                    Some(name) if depth == 0 && !place.linkage => {
                        let symbol = self
                            .symbol(spot)
                            .filter(|s| s.starts_with(b"_Z") || s.starts_with(b"_R"));
                        readable(symbol.unwrap_or(&name))
                    }
                    Some(name) => readable(&name),
                    None => None,
                };
                // Lines without a function (assembly), or a function without a name.
                let function = function.unwrap_or_else(|| match depth {
                    0 => self.fallback(spot),
                    _ => "[inlined]".into(),
                });
                Step { function, file: place.file, line: place.line, origin: None }
            })
            .collect()
    }

    /// Names by Go's own table, whose names are not mangled.
    fn go_functions(&self, spot: Spot) -> Option<Vec<Step>> {
        let go = self.go.as_ref()?;
        let steps = go.name(self.bytes.get(), lookup_address(&self.elf, spot)?)?;
        Some(steps).filter(|steps| steps.iter().all(|step| !step.function.is_empty()))
    }

    fn entries(&self) -> &UnwindEntries {
        self.entries.get_or_init(|| UnwindEntries::read(&self.elf, self.bytes.get()))
    }

    /// Returns the bytes of the file that contains .symtab.
    fn symbol_bytes(&self) -> &[u8] {
        match &self.debug_file {
            Some(found) if self.symbols_elsewhere => found.bytes.bytes(),
            _ => self.bytes.get(),
        }
    }

    /// Returns the raw name from .symtab.
    fn symbol(&self, spot: Spot) -> Option<&[u8]> {
        self.symbols.name(self.symbol_bytes(), lookup_address(&self.elf, spot)?, self)
    }

    /// Returns the start of the gap between known functions that contains an address; the same for
    /// all of the gap. `None` outside code.
    fn gap(&self, address: u64) -> Option<u64> {
        let code = self.elf.code_range(address).or_else(|| self.elf.code_segment(address))?;
        let ends = [
            self.entries().end_before(address),
            self.symbols.end_before(self.symbol_bytes(), address),
            self.dynamic.end_before(self.bytes.get(), address),
        ];
        Some(ends.into_iter().flatten().fold(code.start, u64::max))
    }

    /// Returns the name of the symbol or the stub at an address.
    pub(super) fn symbol_name(&self, address: u64) -> Option<String> {
        let bytes = self.bytes.get();
        let symbol = self.symbols.name(self.symbol_bytes(), address, self);
        symbol
            .and_then(readable)
            .or_else(|| self.dynamic.name(bytes, address, self).and_then(readable))
            .or_else(|| self.plt.name(&self.elf, bytes, address).and_then(|name| readable(&name)))
    }

    /// Returns the name of the function that a slot of the global offset table is for.
    pub(super) fn name_of_slot(&self, slot: u64) -> Option<String> {
        self.plt.of_slot(&self.elf, self.bytes.get(), slot).and_then(readable)
    }

    /// Returns the function around an address: by its symbol, Go's table, its unwind entry, or what
    /// lies between known functions.
    pub(super) fn function_range(&self, address: u64) -> Option<FunctionRange> {
        let bytes = self.bytes.get();
        let by_symbol = self.symbols.range(self.symbol_bytes(), address);
        let by_symbol = by_symbol.or_else(|| self.dynamic.range(bytes, address));
        if let Some(range) = by_symbol {
            let name = self.symbol_name(range.start).unwrap_or_default();
            return Some(FunctionRange { range, name });
        }
        if let Some((range, name)) = self.go.as_ref().and_then(|go| go.range(bytes, address)) {
            return Some(FunctionRange { range, name });
        }
        let entry = self.entry(address);
        let start = entry.or_else(|| self.gap(address))?;
        let name = match entry {
            Some(start) => self.symbol_name(start).unwrap_or_default(),
            None => self.symbol_name(start).unwrap_or_else(|| GAP.into()),
        };
        let range = start..self.end(start);
        range.contains(&address).then_some(FunctionRange { range, name })
    }

    /// Returns the name of a function that is called at its start; without one `fn_1a40`, if its
    /// unwind entry is known.
    pub(super) fn name_of_target(&self, address: u64) -> Option<String> {
        let go = || {
            let (range, name) = self.go.as_ref()?.range(self.bytes.get(), address)?;
            Some(name).filter(|_| range.start == address)
        };
        let entry = || (self.entry(address)? == address).then(|| format!("fn_{address:x}"));
        self.symbol_name(address).or_else(go).or_else(entry)
    }

    /// Returns the bytes of code from an address to the end of its segment.
    pub(super) fn code_at(&self, address: u64) -> &[u8] {
        self.elf.bytes_at(address, self.bytes.get()).unwrap_or(&[])
    }

    pub(super) fn elf(&self) -> &Elf {
        &self.elf
    }

    /// Returns the name without debug info.
    fn fallback(&self, spot: Spot) -> String {
        let Some(address) = lookup_address(&self.elf, spot) else {
            return format!("{}!{:#x}", self.module, spot.offset);
        };
        if let Some(name) = self.symbol_name(address) {
            return name;
        }
        match (self.entry(address), self.gap(address)) {
            (Some(start), _) => format!("{}!fn_{start:x}", self.module),
            (None, Some(start)) => format!("{}!gap_{start:x}", self.module),
            (None, None) => {
                format!("{}!{:#x}", self.module, address.wrapping_add(u64::from(!spot.exact)))
            }
        }
    }
}

impl Bounds for FileNames {
    fn entry(&self, address: u64) -> Option<u64> {
        self.entries().start(address)
    }

    fn end(&self, start: u64) -> u64 {
        let code = self.elf.code_range(start).map_or(start, |code| code.end);
        self.entries().end(start).min(code)
    }
}

/// Demangles a name; `None` if none of its characters is printable.
fn readable(raw: &[u8]) -> Option<String> {
    Some(demangle::readable(raw)).filter(|name| !name.is_empty())
}

/// Returns the ELF address at which names and lines are looked up: a return address belongs to the
/// call before it.
fn lookup_address(elf: &Elf, spot: Spot) -> Option<u64> {
    elf.address_of(spot.offset.checked_sub(u64::from(!spot.exact))?)
}
