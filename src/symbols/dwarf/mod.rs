//! DWARF: address -> function, inlined functions, file and line.
//!
//! The debug info belongs to the target, so it may be an attack. The existing resolvers do not
//! survive that. They recurse once per nested inlined function: 2 MB of debug info with a million
//! levels end the process by a stack overflow that cannot be caught. Here nothing recurses, and
//! every table has a cap. A [`Budget`] of CPU time limits the rest; a file that exceeds it is named
//! from its symbol table.
//!
//! ```text
//! sections    where the .debug_* sections are; inflated if compressed
//! index       address -> compilation unit
//! open_units  opening units, bounded in memory
//! unit        one unit: its functions, what is inlined into one of them, names of entries
//! lines       one unit: address -> file and line
//! ```
//! Only plain numbers are kept between batches. gimli's views are created anew for each batch from
//! the mapped bytes, which costs nothing and leaves no borrow behind.
//! the mapped bytes, which costs nothing and leaves no borrow behind.

mod index;
mod lines;
mod open_units;
mod sections;
mod unit;

use std::collections::HashMap;
use std::rc::Rc;

use self::index::Index;
use self::lines::Lines;
use self::open_units::{Dwarf, OpenUnits, Unit};
use self::sections::Sections;
use self::unit::Functions;
use super::demangle;
use crate::clock::thread_cpu;
use crate::elf::Elf;

type Reader<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;

/// Maximum functions and line rows kept of all units of a file (about 100 MB); above it all are
/// dropped.
const ROWS_KEPT: usize = 4 << 20;
/// CPU time limit of one batch, ns: a constant and a part per byte of debug info (ten times what
/// honest files need), up to a maximum. A 1 GB debug file takes some seconds for its index.
const BATCH_CPU_NS: u64 = 500_000_000;
const BATCH_CPU_NS_PER_BYTE: u64 = 50;
const BATCH_CPU_NS_MAX: u64 = 20_000_000_000;

/// Maximum depth of functions within types within functions.
const FUNCTIONS_DEEP: usize = 8;

/// One function at an address: its name in the debug info, not yet demangled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub name: Option<Vec<u8>>,
    /// The name is the linkage name, with its scopes; false for a plain one (C, or C++ without
    /// linkage).
    pub linkage: bool,
    pub file: Option<String>,
    pub line: Option<u32>,
}

/// The debug info of one file.
pub struct Debug {
    sections: Sections,
    /// Built at the first request.
    index: Option<Index>,
    tables: HashMap<usize, Tables>,
}

/// The tables kept of a unit.
#[derive(Default)]
struct Tables {
    functions: Option<Functions>,
    lines: Option<Lines>,
}

impl Debug {
    /// Loads the debug info; `None` for a file without any.
    pub fn load(elf: &Elf, bytes: &[u8]) -> Option<Debug> {
        let sections = Sections::load(elf, bytes)?;
        Some(Debug { sections, index: None, tables: HashMap::new() })
    }

    /// Resolves addresses, fastest in ascending order. Returns for each the function and what is
    /// inlined there, outermost first; empty where the debug info has nothing. A line without a
    /// function gives one unnamed [`Place`]. `Err` when the debug info is unusable.
    pub fn resolve(
        &mut self,
        bytes: &[u8],
        elf: &Elf,
        addresses: impl Iterator<Item = u64>,
        found: &mut dyn FnMut(u64, Vec<Place>),
    ) -> Result<(), Unusable> {
        let bytes_ns = BATCH_CPU_NS_PER_BYTE.saturating_mul(self.sections.size() as u64);
        let mut budget = Budget::new(BATCH_CPU_NS.saturating_add(bytes_ns).min(BATCH_CPU_NS_MAX));
        let dwarf = self.sections.dwarf(bytes);
        if self.index.is_none() {
            self.index = Some(Index::build(&dwarf, elf, &mut budget)?);
        }
        let Some(index) = &self.index else { return Err(Unusable) };
        let mut batch =
            Batch { dwarf: &dwarf, elf, index, open: OpenUnits::default(), budget, inlined: None };
        for address in addresses {
            if self.tables.values().map(Tables::rows).sum::<usize>() > ROWS_KEPT {
                self.tables.clear();
            }
            let chain = batch.chain(address, &mut self.tables)?;
            found(address, chain);
        }
        Ok(())
    }

    /// Returns the bytes of memory used, without mapped files.
    pub fn weight(&self) -> usize {
        let rows: usize = self.tables.values().map(Tables::rows).sum();
        self.sections.weight() + self.index.as_ref().map_or(0, Index::weight) + rows * 24
    }
}

impl Tables {
    fn rows(&self) -> usize {
        self.functions.as_ref().map_or(0, Functions::len)
            + self.lines.as_ref().map_or(0, Lines::len)
            + 8
    }
}

/// The debug info is damaged beyond use, or an attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unusable;

/// A limit of CPU time. The clock is read rarely enough to cost nothing.
pub struct Budget {
    deadline: u64,
    steps: usize,
}

impl Budget {
    fn new(cpu_ns: u64) -> Budget {
        Budget { deadline: thread_cpu().saturating_add(cpu_ns), steps: 0 }
    }

    /// Counts one small step (an entry, a row, a range).
    fn step(&mut self) -> Result<(), Unusable> {
        self.steps(1)
    }

    /// Counts several steps.
    fn steps(&mut self, count: usize) -> Result<(), Unusable> {
        self.steps = self.steps.saturating_add(count);
        if self.steps < 4096 {
            return Ok(());
        }
        self.check()
    }

    /// Reads the clock; before and after work of unknown size.
    fn check(&mut self) -> Result<(), Unusable> {
        self.steps = 0;
        if thread_cpu() < self.deadline { Ok(()) } else { Err(Unusable) }
    }
}

/// A run of lookups in one file.
struct Batch<'a> {
    dwarf: &'a Dwarf<'a>,
    elf: &'a Elf,
    index: &'a Index,
    open: OpenUnits<'a>,
    budget: Budget,
    /// What is inlined into the function of the last lookup: neighbouring addresses use the same.
    inlined: Option<((usize, usize), unit::Inlined)>,
}

impl<'a> Batch<'a> {
    fn chain(
        &mut self,
        address: u64,
        tables: &mut HashMap<usize, Tables>,
    ) -> Result<Vec<Place>, Unusable> {
        let mut line_only = None;
        for number in self.index.units_at(address) {
            let Some(unit) = self.unit(number)? else { continue };
            self.read_functions(number, &unit, tables)?;
            let table = tables.entry(number).or_default();
            if table.lines.is_none() {
                table.lines = Some(Lines::read(&unit, self.elf, &mut self.budget)?);
            }
            let at = table.lines.as_ref().and_then(|lines| lines.find(address));
            let at = at.map(|(file, line)| (lines::path(self.dwarf, &unit, file), line));
            match table.functions.as_ref().and_then(|functions| functions.find(address)) {
                Some(function) => return self.inside(number, &unit, function, address, at, tables),
                None => line_only = line_only.or(at),
            }
        }
        Ok(line_only.map_or(Vec::new(), |(file, line)| {
            vec![Place { name: None, linkage: false, file, line }]
        }))
    }

    fn read_functions(
        &mut self,
        number: usize,
        unit: &Rc<Unit<'a>>,
        tables: &mut HashMap<usize, Tables>,
    ) -> Result<(), Unusable> {
        let table = tables.entry(number).or_default();
        if table.functions.is_none() {
            table.functions = Some(Functions::read(self.dwarf, unit, self.elf, &mut self.budget)?);
        }
        Ok(())
    }

    /// Returns the function at entry `function` and what is inlined into it at `address`; `at` is
    /// the executing line.
    fn inside(
        &mut self,
        number: usize,
        unit: &Rc<Unit<'a>>,
        function: usize,
        address: u64,
        at: Option<(Option<String>, Option<u32>)>,
        tables: &mut HashMap<usize, Tables>,
    ) -> Result<Vec<Place>, Unusable> {
        if self.inlined.as_ref().is_none_or(|(key, _)| *key != (number, function)) {
            let inlined = unit::Inlined::read(self.dwarf, unit, function, &mut self.budget)?;
            self.inlined = Some(((number, function), inlined));
        }
        let calls = self.inlined.as_ref().map_or(Vec::new(), |(_, inlined)| inlined.find(address));
        let mut places = vec![self.place(number, function, tables)?];
        for call in calls {
            // The line of the outer function is that of the inlined call.
            if let Some(outer) = places.last_mut() {
                outer.file = call.file.and_then(|file| lines::path(self.dwarf, unit, file));
                outer.line = call.line;
            }
            places.push(self.place(number, call.entry, tables)?);
        }
        if let (Some(last), Some((file, line))) = (places.last_mut(), at) {
            last.file = file;
            last.line = line;
        }
        Ok(places)
    }

    /// Returns an entry without a line. Its name is the linkage name from anywhere in the chain of
    /// origins, else the plain name behind its scopes.
    fn place(
        &mut self,
        number: usize,
        entry: usize,
        tables: &mut HashMap<usize, Tables>,
    ) -> Result<Place, Unusable> {
        let (name, linkage) = match self.called(number, entry)? {
            Called::Linkage(name) => (Some(name), true),
            Called::Plain { name, number, entry } => {
                (Some(self.scoped(name, number, entry, tables)?), false)
            }
            Called::Nothing => (None, false),
        };
        Ok(Place { name, linkage, file: None, line: None })
    }

    fn called(&mut self, number: usize, entry: usize) -> Result<Called, Unusable> {
        let (mut number, mut entry) = (number, entry);
        let mut called = Called::Nothing;
        // The chain concrete -> abstract -> declaration has 3 entries; more is a loop.
        for _ in 0..16 {
            let Some(unit) = self.unit(number)? else { break };
            let Some(described) = unit::describe(self.dwarf, &unit, entry) else { break };
            self.budget.steps(described.steps)?;
            if let Some(name) = described.linkage_name {
                return Ok(Called::Linkage(name));
            }
            if let (Called::Nothing, Some(name)) = (&called, described.name) {
                called = Called::Plain { name, number, entry };
            }
            match described.origin {
                Some(unit::Origin::SameUnit(next)) => entry = next,
                Some(unit::Origin::DebugInfo(offset)) => match self.index.entry(offset) {
                    Some(next) => (number, entry) = next,
                    None => break,
                },
                None => break,
            }
        }
        Ok(called)
    }

    /// Puts scopes before a name: `work` -> `shop::(anonymous namespace)::work`. A lambda's
    /// `operator()` becomes `shop::work::{lambda:17}::operator()`, with its line. C has no scopes,
    /// so its names stay.
    fn scoped(
        &mut self,
        name: Vec<u8>,
        number: usize,
        entry: usize,
        tables: &mut HashMap<usize, Tables>,
    ) -> Result<Vec<u8>, Unusable> {
        let (mut name, mut number, mut entry) = (name, number, entry);
        // Each iteration reaches the next enclosing function.
        for _ in 0..FUNCTIONS_DEEP {
            let Some(unit) = self.unit(number)? else { break };
            self.read_functions(number, &unit, tables)?;
            let scopes = tables.get(&number).and_then(|table| table.functions.as_ref());
            let mut around = None;
            for scope in scopes.map_or(Vec::new(), |functions| functions.scopes(entry)) {
                let Some(described) = unit::describe(self.dwarf, &unit, scope) else {
                    return Ok(name);
                };
                self.budget.steps(described.steps)?;
                let outer = match (described.name, described.tag) {
                    (_, gimli::DW_TAG_subprogram) => {
                        around = Some(scope);
                        break;
                    }
                    (Some(outer), _) => outer,
                    (None, gimli::DW_TAG_namespace) => b"(anonymous namespace)".to_vec(),
                    (None, _) => unnamed(&name, described.line),
                };
                if !prefix(&mut name, &outer) {
                    return Ok(name);
                }
            }
            let Some(function) = around else { break };
            match self.called(number, function)? {
                Called::Linkage(linkage) => {
                    prefix(&mut name, demangle::readable(&linkage).as_bytes());
                    break;
                }
                Called::Plain { name: outer, number: next, entry: at }
                    if prefix(&mut name, &outer) =>
                {
                    (number, entry) = (next, at);
                }
                Called::Plain { .. } | Called::Nothing => break,
            }
        }
        Ok(name)
    }

    fn unit(&mut self, number: usize) -> Result<Option<Rc<Unit<'a>>>, Unusable> {
        if let Some(unit) = self.open.known(number) {
            return Ok(unit.clone());
        }
        self.budget.check()?;
        let header = self
            .index
            .offset(number)
            .and_then(|at| self.dwarf.unit_header(gimli::DebugInfoOffset(at)).ok());
        Ok(self.open.unit(self.dwarf, number, header))
    }
}

/// The name of an entry.
enum Called {
    Linkage(Vec<u8>),
    /// A name without its scopes, which are those of this entry.
    Plain {
        name: Vec<u8>,
        number: usize,
        entry: usize,
    },
    Nothing,
}

/// Names an unnamed type around `inner`: a lambda if `inner` is its call operator.
fn unnamed(inner: &[u8], line: Option<u64>) -> Vec<u8> {
    let what = if inner.starts_with(b"operator()") { "lambda" } else { "unnamed" };
    line.map_or_else(|| format!("{{{what}}}"), |line| format!("{{{what}:{line}}}")).into_bytes()
}

/// Puts a scope before a name; `false` if that would be too long.
fn prefix(name: &mut Vec<u8>, outer: &[u8]) -> bool {
    let fits = outer.len() + name.len() <= super::symtab::RAW_NAME_CAP;
    if fits {
        *name = [outer, b"::", name].concat();
    }
    fits
}
