//! Names from .symtab, .dynsym and the procedure linkage table, each within its own bounds. An
//! address behind the end of a symbol has no name, however near the symbol is.
//!
//! Hand-written assembly often omits the size of its functions. A symbol of size 0 extends to the
//! next symbol, but not beyond the bound set by the unwind table and the sections.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use crate::elf::{Elf, Section, u32_at, u64_at};

const SYMBOL_SIZE: usize = 24;
const RELOCATION_SIZE: usize = 24;
/// Maximum symbols read (400 MB of table).
const SYMBOLS_CAP: usize = 1 << 24;
/// Maximum symbols before an address that are tried, and so the maximum nesting of symbols.
const NESTING: usize = 256;
/// Maximum functions with named stubs.
const STUBS_CAP: usize = 1 << 18;
/// Maximum bytes of a raw name; longer ones are cut before they are demangled.
pub const RAW_NAME_CAP: usize = 64 << 10;

const STT_NOTYPE: u8 = 0;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
const STB_LOCAL: u8 = 0;
const STB_GLOBAL: u8 = 1;
const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;

/// The code symbols of one table, sorted by address. Only indices are stored; the symbols stay in
/// the file.
#[derive(Default)]
pub struct SymbolTable {
    symbols: Option<Section>,
    strings: Option<Section>,
    /// Indices of the symbols that name code, by (address, size).
    order: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Symbol {
    name: u32,
    kind: u8,
    binding: u8,
    section: u16,
    address: u64,
    size: u64,
}

impl SymbolTable {
    /// Reads the table `name`, which is `.symtab` or `.dynsym`; empty for a file without it.
    pub fn read(elf: &Elf, bytes: &[u8], name: &str) -> SymbolTable {
        let Some(symbols) = elf.section(name).cloned() else { return SymbolTable::default() };
        let Some(strings) =
            (symbols.link as usize).checked_sub(1).and_then(|i| elf.sections.get(i)).cloned()
        else {
            return SymbolTable::default();
        };
        let data = bytes.get(symbols.range(bytes.len())).unwrap_or(&[]);
        let names = bytes.get(strings.range(bytes.len())).unwrap_or(&[]);
        let mut found = Vec::new();
        for index in 0..(data.len() / SYMBOL_SIZE).min(SYMBOLS_CAP) {
            let Some(symbol) = symbol_at(data, index) else { break };
            let named = symbol.name != 0 && symbol.section != 0;
            let code = match symbol.kind {
                STT_FUNC | STT_GNU_IFUNC => true,
                STT_NOTYPE => symbol.size > 0 || is_untyped_function(elf, &symbol, names),
                _ => false,
            };
            if named && code && elf.is_code(symbol.address) {
                found.push((symbol.address, symbol.size, index as u32));
            }
        }
        found.sort_unstable();
        let order = found.into_iter().map(|(_, _, index)| index).collect();
        SymbolTable { symbols: Some(symbols), strings: Some(strings), order }
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Returns the raw name of the symbol that contains an address. It is the innermost one with a
    /// known end, by its size or by the unwind entry that it begins. Otherwise it is the last
    /// symbol without a size before the address, if `bounds` allows that distance. Among several at
    /// the same address [`Preference`] decides.
    pub fn name<'a>(&self, bytes: &'a [u8], address: u64, bounds: &dyn Bounds) -> Option<&'a [u8]> {
        let (data, strings) = self.tables(bytes)?;
        let mut best: Option<(u64, Preference<'a>)> = None;
        let mut open: Option<(u64, Preference<'a>)> = None;
        // Start of the last symbol before the address: a symbol without a size ends there.
        let mut last = None;
        // A function with a known end begins there, and ends before the address.
        let mut ended = false;
        for symbol in self.before(data, address) {
            if best.as_ref().is_some_and(|(start, _)| symbol.address < *start) {
                break;
            }
            let last = *last.get_or_insert(symbol.address);
            let contains = match symbol.size {
                0 => bounds.entry(address) == Some(symbol.address),
                size => address - symbol.address < size,
            };
            let kept = match contains {
                true => &mut best,
                false if symbol.size == 0 && symbol.address == last => &mut open,
                false => {
                    ended |= symbol.address.saturating_add(symbol.size) > last;
                    continue;
                }
            };
            let Some(name) = string_at(strings, symbol.name) else { continue };
            let preference = Preference::of(&symbol, name);
            if kept.as_ref().is_none_or(|(_, other)| preference < *other) {
                *kept = Some((symbol.address, preference));
            }
        }
        let open = || open.filter(|(start, _)| !ended && address < bounds.end(*start));
        best.or_else(open).map(|(_, preference)| preference.name)
    }

    /// Returns the range of the innermost symbol with a size that contains an address.
    pub fn range(&self, bytes: &[u8], address: u64) -> Option<Range<u64>> {
        let (data, _) = self.tables(bytes)?;
        let mut symbols = self.before(data, address);
        let symbol = symbols.find(|symbol| address - symbol.address < symbol.size)?;
        Some(symbol.address..symbol.address.saturating_add(symbol.size))
    }

    /// Returns the end of the last symbol with a size before an address.
    pub fn end_before(&self, bytes: &[u8], address: u64) -> Option<u64> {
        let (data, _) = self.tables(bytes)?;
        let ends = self.before(data, address).filter(|symbol| symbol.size > 0);
        ends.filter_map(|symbol| symbol.address.checked_add(symbol.size))
            .filter(|end| *end <= address)
            .max()
    }

    /// Returns the table's bytes and its strings.
    fn tables<'a>(&self, bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let part = |section: &Option<Section>| bytes.get(section.as_ref()?.range(bytes.len()));
        Some((part(&self.symbols)?, part(&self.strings)?))
    }

    /// Iterates over the symbols that begin at or before an address, the last first.
    fn before<'a>(&'a self, data: &'a [u8], address: u64) -> impl Iterator<Item = Symbol> + 'a {
        let begins_before =
            |index: &u32| symbol_at(data, *index as usize).is_some_and(|s| s.address <= address);
        let after = self.order.partition_point(begins_before);
        let tried = &self.order[after.saturating_sub(NESTING)..after];
        let symbols = tried.iter().rev().filter_map(|index| symbol_at(data, *index as usize));
        // The file may have changed since its symbols were sorted.
        symbols.filter(move |symbol| symbol.address <= address)
    }

    /// Returns the bytes of memory used.
    pub fn weight(&self) -> usize {
        self.order.capacity() * size_of::<u32>()
    }
}

/// Bounds of code whose symbol has no size.
pub trait Bounds {
    /// Returns the start of the unwind entry that covers an address.
    fn entry(&self, address: u64) -> Option<u64>;
    /// Returns the latest possible end of code that begins at an address.
    fn end(&self, start: u64) -> u64;
}

/// Whether a label without type and size may name a function: it is in code, and is neither a jump
/// target inside a function (`.L1`, `copy.loop`) nor an assembler's mark (`$x`).
fn is_untyped_function(elf: &Elf, symbol: &Symbol, names: &[u8]) -> bool {
    let section =
        usize::from(symbol.section).checked_sub(1).and_then(|index| elf.sections.get(index));
    let is_inner = || {
        let name = string_at(names, symbol.name).unwrap_or(b"$");
        symbol.binding == STB_LOCAL && (name.contains(&b'.') || name.starts_with(b"$"))
    };
    section.is_some_and(Section::executable) && !is_inner()
}

/// Rank of a symbol, lower is better: with a size, global, a function, then the plainest name.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Preference<'a> {
    sized: Reverse<bool>,
    not_global: bool,
    label: bool,
    underscores: usize,
    len: usize,
    name: &'a [u8],
}

impl<'a> Preference<'a> {
    fn of(symbol: &Symbol, name: &'a [u8]) -> Preference<'a> {
        Preference {
            sized: Reverse(symbol.size > 0),
            not_global: symbol.binding != STB_GLOBAL,
            label: symbol.kind == STT_NOTYPE,
            underscores: name.iter().take_while(|b| **b == b'_').count(),
            len: name.len(),
            name,
        }
    }
}

fn symbol_at(data: &[u8], index: usize) -> Option<Symbol> {
    let at = index.checked_mul(SYMBOL_SIZE)?;
    let symbol = data.get(at..at.checked_add(SYMBOL_SIZE)?)?;
    Some(Symbol {
        name: u32_at(symbol, 0)?,
        kind: symbol[4] & 15,
        binding: symbol[4] >> 4,
        section: u16::from_le_bytes([symbol[6], symbol[7]]),
        address: u64_at(symbol, 8)?,
        size: u64_at(symbol, 16)?,
    })
}

/// Returns a string of a table, without its version (`@@GLIBC_2.2.5`), cut at [`RAW_NAME_CAP`];
/// `None` for an empty one.
fn string_at(strings: &[u8], at: u32) -> Option<&[u8]> {
    let text = strings.get(at as usize..)?;
    let text = &text[..text.len().min(RAW_NAME_CAP)];
    let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
    let text = &text[..end];
    let version = text.iter().skip(1).position(|b| *b == b'@').map_or(text.len(), |at| at + 1);
    Some(&text[..version]).filter(|text| !text.is_empty())
}

/// The stubs through which a program calls functions of other files.
#[derive(Default)]
pub struct Plt {
    /// Address of a slot of the global offset table -> offset of the called function's name in
    /// .dynstr.
    slots: HashMap<u64, u32>,
    /// The slots of .rela.plt in order, for stubs that push their number and do not contain their
    /// slot.
    order: Vec<u64>,
}

impl Plt {
    pub fn read(elf: &Elf, bytes: &[u8]) -> Plt {
        let mut plt = Plt::default();
        let symbols = elf.data(".dynsym", bytes);
        for table in [".rela.plt", ".rela.dyn"] {
            for entry in elf.data(table, bytes).chunks_exact(RELOCATION_SIZE).take(SYMBOLS_CAP) {
                let (Some(slot), Some(kind), Some(symbol)) =
                    (u64_at(entry, 0), u32_at(entry, 8), u32_at(entry, 12))
                else {
                    break;
                };
                if plt.slots.len() >= STUBS_CAP {
                    return plt;
                }
                if table == ".rela.plt" && plt.order.len() < STUBS_CAP {
                    plt.order.push(slot);
                }
                if let R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT = kind
                    && let Some(symbol) = symbol_at(symbols, symbol as usize)
                {
                    plt.slots.insert(slot, symbol.name);
                }
            }
        }
        plt
    }

    /// Returns `name@plt` for an address inside a stub.
    pub fn name(&self, elf: &Elf, bytes: &[u8], address: u64) -> Option<Vec<u8>> {
        let section = elf.code_section(address).filter(|s| s.name.starts_with(".plt"))?;
        let size = match section.entry_size {
            size @ (8 | 16) => size,
            _ => 16,
        };
        let index = (address - section.address) / size;
        let code = bytes.get(section.range(bytes.len()))?;
        let start = usize::try_from(index * size).ok()?;
        let stub = code.get(start..code.len().min(start.checked_add(size as usize)?))?;
        let slot = match stub.windows(6).position(|w| w[..2] == [0xff, 0x25]) {
            // jmp *displacement(%rip)
            Some(at) => {
                let displacement = u32_at(stub, at + 2)? as i32;
                let next = section.address.checked_add(index * size + at as u64 + 6)?;
                next.wrapping_add_signed(i64::from(displacement))
            }
            // push $number; jmp to the first stub (with branch tracking the jump through the slot
            // is in .plt.sec)
            None => {
                let at = stub.windows(5).position(|w| w[0] == 0x68)?;
                *self.order.get(u32_at(stub, at + 1)? as usize)?
            }
        };
        Some([self.of_slot(elf, bytes, slot)?, b"@plt"].concat())
    }

    /// Returns the raw name of the function that a slot of the global offset table is for.
    pub fn of_slot<'a>(&self, elf: &Elf, bytes: &'a [u8], slot: u64) -> Option<&'a [u8]> {
        string_at(elf.data(".dynstr", bytes), *self.slots.get(&slot)?)
    }

    /// Returns the approximate bytes of memory used.
    pub fn weight(&self) -> usize {
        self.order.capacity() * 8 + self.slots.capacity() * 24
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_at_zero_version_or_cap() {
        assert_eq!(string_at(b"\0read@@GLIBC_2.2.5\0next", 1), Some(&b"read"[..]));
        assert_eq!(string_at(b"\0@odd\0", 1), Some(&b"@odd"[..]));
        assert_eq!(string_at(b"\0\0", 1), None);
        assert_eq!(string_at(b"\0", 99), None);
        let long = vec![b'a'; 1 << 20];
        assert_eq!(string_at(&long, 0).map(<[u8]>::len), Some(RAW_NAME_CAP));
    }

    #[test]
    fn of_aliases_the_plainest_global_function_wins() {
        let symbol =
            |kind, binding, size| Symbol { name: 1, kind, binding, section: 1, address: 0, size };
        let plain = Preference::of(&symbol(STT_FUNC, STB_GLOBAL, 1), b"read");
        assert!(plain < Preference::of(&symbol(STT_FUNC, STB_GLOBAL, 1), b"__read"));
        assert!(plain < Preference::of(&symbol(STT_FUNC, 2, 1), b"abc"));
        assert!(plain < Preference::of(&symbol(STT_NOTYPE, STB_GLOBAL, 1), b"abc"));
        assert!(plain < Preference::of(&symbol(STT_FUNC, STB_GLOBAL, 0), b"abc"));
    }
}
