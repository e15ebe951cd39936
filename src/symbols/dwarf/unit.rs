//! One compilation unit: its ranges, its functions, what is inlined into one of them, names of
//! entries.

use gimli::{AttributeValue, UnitOffset};

use super::lines::Lines;
use super::open_units::{Dwarf, Unit};
use super::{Budget, Reader, Unusable};
use crate::elf::Elf;

const FUNCTIONS_CAP: usize = 1 << 21;
const SCOPES_CAP: usize = 1 << 22;
/// Maximum depth of nested scopes.
const SCOPES_DEEP: usize = 32;
const INLINED_CAP: usize = 1 << 20;
/// Maximum depth of inlining; deeper calls are dropped.
const DEPTH_CAP: usize = 128;

/// Returns the code that a unit claims: by its first entry, else by its lines.
pub fn ranges(
    dwarf: &Dwarf<'_>,
    unit: &Unit<'_>,
    elf: &Elf,
    budget: &mut Budget,
) -> Result<Vec<gimli::Range>, Unusable> {
    let mut found = Vec::new();
    let first = |found: &mut Vec<gimli::Range>,
                 budget: &mut Budget|
     -> gimli::Result<Result<(), Unusable>> {
        let mut entries = unit.entries_raw(None)?;
        let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(Ok(())) };
        let mut code = Code::default();
        for spec in abbreviation.attributes() {
            code.take(&entries.read_attribute(*spec)?);
        }
        Ok(code.each(dwarf, unit, budget, &mut |range| found.push(range)))
    };
    if let Ok(done) = first(&mut found, budget) {
        done?;
    }
    if found.is_empty() {
        found.extend(Lines::read(unit, elf, budget)?.ranges());
    }
    Ok(found)
}

/// The attributes of an entry that give its code.
#[derive(Default)]
struct Code<'a> {
    low: Option<AttributeValue<Reader<'a>>>,
    high: Option<AttributeValue<Reader<'a>>>,
    ranges: Option<AttributeValue<Reader<'a>>>,
}

impl<'a> Code<'a> {
    fn take(&mut self, attribute: &gimli::Attribute<Reader<'a>>) {
        match attribute.name() {
            gimli::DW_AT_low_pc => self.low = Some(attribute.value()),
            gimli::DW_AT_high_pc => self.high = Some(attribute.value()),
            gimli::DW_AT_ranges => self.ranges = Some(attribute.value()),
            _ => {}
        }
    }

    fn each(
        self,
        dwarf: &Dwarf<'a>,
        unit: &Unit<'a>,
        budget: &mut Budget,
        found: &mut dyn FnMut(gimli::Range),
    ) -> Result<(), Unusable> {
        if let Some(ranges) = self.ranges
            && let Ok(Some(mut ranges)) = dwarf.attr_ranges(unit, ranges)
        {
            while let Ok(Some(range)) = ranges.next() {
                budget.step()?;
                found(range);
            }
            return Ok(());
        }
        let low = self.low.and_then(|low| dwarf.attr_address(unit, low).ok().flatten());
        let (Some(begin), Some(high)) = (low, self.high) else { return Ok(()) };
        let end = match high.udata_value() {
            Some(size) => begin.checked_add(size),
            None => dwarf.attr_address(unit, high).ok().flatten(),
        };
        if let Some(end) = end {
            found(gimli::Range { begin, end });
        }
        Ok(())
    }
}

/// The functions of a unit by address, and the scopes for names without linkage.
#[derive(Default)]
pub struct Functions {
    /// (begin, end, offset of the entry in the unit), sorted.
    ranges: Vec<(u64, u64, usize)>,
    /// Namespaces and types, in the order of their entries.
    scopes: Vec<Scope>,
}

/// An entry whose name is part of the names inside it. All numbers are below 2^32: larger units
/// have no scopes.
#[derive(Clone, Copy)]
struct Scope {
    /// Offset of the entry, and of the first one behind its children.
    begin: u32,
    end: u32,
    /// Index of the enclosing scope; [`OUTERMOST`] for none.
    parent: u32,
    /// Offset of the entry of the innermost enclosing function within `parent`; [`OUTERMOST`] for
    /// none.
    function: u32,
}

const OUTERMOST: u32 = u32::MAX;

impl Functions {
    pub fn read(
        dwarf: &Dwarf<'_>,
        unit: &Unit<'_>,
        elf: &Elf,
        budget: &mut Budget,
    ) -> Result<Functions, Unusable> {
        let mut functions = Functions::default();
        // Entries before a damaged one are kept.
        if let Ok(Err(unusable)) = functions.walk(dwarf, unit, elf, budget) {
            return Err(unusable);
        }
        functions.ranges.sort_unstable();
        Ok(functions)
    }

    fn walk(
        &mut self,
        dwarf: &Dwarf<'_>,
        unit: &Unit<'_>,
        elf: &Elf,
        budget: &mut Budget,
    ) -> gimli::Result<Result<(), Unusable>> {
        let mut entries = unit.entries_raw(None)?;
        // The scopes around the current entry, with their depth.
        let mut open: Vec<(isize, u32)> = Vec::new();
        // The functions around it, with their depth: a function's name is part of those of the
        // types in it.
        let mut inside: Vec<(isize, u32)> = Vec::new();
        while !entries.is_empty() {
            let (depth, entry) = (entries.next_depth(), entries.next_offset().0);
            let abbreviation = entries.read_abbreviation()?;
            if let Err(unusable) =
                budget.steps(1 + abbreviation.map_or(0, |a| a.attributes().len()))
            {
                return Ok(Err(unusable));
            }
            let Some(abbreviation) = abbreviation else { continue };
            while open.last().is_some_and(|(outer, _)| *outer >= depth) {
                if let Some((_, scope)) = open.pop() {
                    self.scopes[scope as usize].end = u32::try_from(entry).unwrap_or(u32::MAX);
                }
            }
            while inside.last().is_some_and(|(outer, _)| *outer >= depth) {
                inside.pop();
            }
            if abbreviation.tag() != gimli::DW_TAG_subprogram {
                if is_scope(abbreviation)
                    && open.len() < SCOPES_DEEP
                    && self.scopes.len() < SCOPES_CAP
                {
                    let (outside, parent) = open.last().copied().unwrap_or((isize::MIN, OUTERMOST));
                    let function = inside
                        .last()
                        .filter(|(at, _)| *at > outside)
                        .map_or(OUTERMOST, |(_, entry)| *entry);
                    open.push((depth, self.scopes.len() as u32));
                    let begin = u32::try_from(entry).unwrap_or(u32::MAX);
                    self.scopes.push(Scope { begin, end: u32::MAX, parent, function });
                }
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            if abbreviation.has_children() && inside.len() < SCOPES_DEEP {
                inside.push((depth, u32::try_from(entry).unwrap_or(OUTERMOST)));
            }
            let mut code = Code::default();
            for spec in abbreviation.attributes() {
                code.take(&entries.read_attribute(*spec)?);
            }
            let ranges = &mut self.ranges;
            let done = code.each(dwarf, unit, budget, &mut |range| {
                if range.begin < range.end
                    && elf.is_code(range.begin)
                    && ranges.len() < FUNCTIONS_CAP
                {
                    ranges.push((range.begin, range.end, entry));
                }
            });
            if done.is_err() || self.ranges.len() >= FUNCTIONS_CAP {
                return Ok(done);
            }
        }
        Ok(Ok(()))
    }

    /// Returns the entries of the scopes around an entry, innermost first, up to that of a function
    /// that contains one of them.
    pub fn scopes(&self, entry: usize) -> Vec<usize> {
        let Ok(entry) = u32::try_from(entry) else { return Vec::new() };
        let mut around = Vec::new();
        let before = self.scopes.partition_point(|scope| scope.begin < entry);
        let mut next = before.checked_sub(1).map_or(OUTERMOST, |last| last as u32);
        while let Some(scope) = self.scopes.get(next as usize) {
            if scope.end > entry {
                around.push(scope.begin as usize);
                if scope.function != OUTERMOST {
                    around.push(scope.function as usize);
                    break;
                }
            }
            // A parent always stands before its children.
            next = scope.parent;
        }
        around
    }

    /// Returns the entry of the function at an address; of several, the one that begins last.
    pub fn find(&self, address: u64) -> Option<usize> {
        let after = self.ranges.partition_point(|(begin, ..)| *begin <= address);
        let near = &self.ranges[after.saturating_sub(64)..after];
        near.iter().rev().find(|(_, end, _)| address < *end).map(|(.., entry)| *entry)
    }

    pub fn len(&self) -> usize {
        self.ranges.len() + self.scopes.len() / 2
    }
}

/// Whether this is a namespace or type with children.
fn is_scope(abbreviation: &gimli::Abbreviation) -> bool {
    let tags = [
        gimli::DW_TAG_namespace,
        gimli::DW_TAG_class_type,
        gimli::DW_TAG_structure_type,
        gimli::DW_TAG_union_type,
        gimli::DW_TAG_enumeration_type,
    ];
    abbreviation.has_children() && tags.contains(&abbreviation.tag())
}

/// An inlined call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Offset in the unit of the inlined function's entry.
    pub entry: usize,
    /// File number and line of the call.
    pub file: Option<u64>,
    pub line: Option<u32>,
}

/// All calls inlined into one function, in the order of the entries (a call before those inlined
/// into it).
#[derive(Default)]
pub struct Inlined {
    calls: Vec<(isize, Call)>,
    /// (index in `calls`, begin, end), by index.
    ranges: Vec<(u32, u64, u64)>,
}

impl Inlined {
    pub fn read(
        dwarf: &Dwarf<'_>,
        unit: &Unit<'_>,
        function: usize,
        budget: &mut Budget,
    ) -> Result<Inlined, Unusable> {
        let mut inlined = Inlined::default();
        if let Ok(Err(unusable)) = inlined.walk(dwarf, unit, function, budget) {
            return Err(unusable);
        }
        Ok(inlined)
    }

    fn walk(
        &mut self,
        dwarf: &Dwarf<'_>,
        unit: &Unit<'_>,
        function: usize,
        budget: &mut Budget,
    ) -> gimli::Result<Result<(), Unusable>> {
        let mut entries = unit.entries_raw(Some(UnitOffset(function)))?;
        let top = entries.next_depth();
        if let Some(abbreviation) = entries.read_abbreviation()? {
            entries.skip_attributes(abbreviation.attributes())?;
        }
        // A function inside the function (a member of a local class) is not part of it: its entries
        // are skipped.
        let mut foreign: Option<isize> = None;
        while !entries.is_empty() && entries.next_depth() > top && self.ranges.len() < INLINED_CAP {
            let depth = entries.next_depth();
            let entry = entries.next_offset().0;
            let abbreviation = entries.read_abbreviation()?;
            if let Err(unusable) =
                budget.steps(1 + abbreviation.map_or(0, |a| a.attributes().len()))
            {
                return Ok(Err(unusable));
            }
            let Some(abbreviation) = abbreviation else { continue };
            if foreign.is_some_and(|outside| depth <= outside) {
                foreign = None;
            }
            if foreign.is_none() && abbreviation.tag() == gimli::DW_TAG_subprogram {
                foreign = Some(depth);
            }
            if foreign.is_some() || abbreviation.tag() != gimli::DW_TAG_inlined_subroutine {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let mut code = Code::default();
            let mut call = Call { entry, file: None, line: None };
            for spec in abbreviation.attributes() {
                let attribute = entries.read_attribute(*spec)?;
                match attribute.name() {
                    gimli::DW_AT_call_file => match attribute.value() {
                        AttributeValue::FileIndex(file) => call.file = Some(file),
                        value => call.file = value.udata_value(),
                    },
                    gimli::DW_AT_call_line => {
                        call.line =
                            attribute.udata_value().and_then(|line| u32::try_from(line).ok());
                    }
                    _ => code.take(&attribute),
                }
            }
            let position = self.calls.len() as u32;
            self.calls.push((depth, call));
            let ranges = &mut self.ranges;
            let done = code.each(dwarf, unit, budget, &mut |range| {
                if ranges.len() < INLINED_CAP {
                    ranges.push((position, range.begin, range.end));
                }
            });
            if done.is_err() {
                return Ok(done);
            }
        }
        Ok(Ok(()))
    }

    /// Returns the inlined calls at an address, outermost first.
    pub fn find(&self, address: u64) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        let mut inside: Option<(u32, isize)> = None;
        for (position, begin, end) in &self.ranges {
            if !(*begin..*end).contains(&address)
                || inside.is_some_and(|(last, _)| last == *position)
            {
                continue;
            }
            let (depth, call) = self.calls[*position as usize];
            // Entries are in order, so a deeper one that also contains the address is inside the
            // last; siblings never contain it both.
            if inside.is_some_and(|(_, last)| depth <= last) || calls.len() >= DEPTH_CAP {
                break;
            }
            inside = Some((*position, depth));
            calls.push(call);
        }
        calls
    }
}

/// Another entry that may have the name.
pub enum Origin {
    /// An offset in the same unit.
    SameUnit(usize),
    /// An offset in .debug_info.
    DebugInfo(usize),
}

pub struct Described {
    pub linkage_name: Option<Vec<u8>>,
    pub name: Option<Vec<u8>>,
    pub origin: Option<Origin>,
    /// The line of its declaration.
    pub line: Option<u64>,
    pub tag: gimli::DwTag,
    /// Steps it took, for a [`Budget`].
    pub steps: usize,
}

/// Reads the name attributes of an entry; `None` if there is no such entry.
pub fn describe(dwarf: &Dwarf<'_>, unit: &Unit<'_>, entry: usize) -> Option<Described> {
    let mut entries = unit.entries_raw(Some(UnitOffset(entry))).ok()?;
    let abbreviation = entries.read_abbreviation().ok()??;
    let (tag, attributes) = (abbreviation.tag(), abbreviation.attributes());
    let steps = 1 + attributes.len();
    let mut described =
        Described { linkage_name: None, name: None, origin: None, line: None, tag, steps };
    let mut searched = 0;
    let mut text = |value| {
        let text: Reader<'_> = dwarf.attr_string(unit, value).ok()?;
        let text = text.slice();
        searched += text.len();
        // One byte more than is kept, so that truncation is detected.
        let text = &text[..text.len().min(crate::symbols::symtab::RAW_NAME_CAP + 1)];
        (!text.is_empty()).then(|| text.to_vec())
    };
    for spec in attributes {
        let attribute = entries.read_attribute(*spec).ok()?;
        match attribute.name() {
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                described.linkage_name = text(attribute.value());
            }
            gimli::DW_AT_name => described.name = text(attribute.value()),
            gimli::DW_AT_decl_line => described.line = attribute.udata_value(),
            gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                described.origin = match attribute.value() {
                    AttributeValue::UnitRef(offset) => Some(Origin::SameUnit(offset.0)),
                    AttributeValue::DebugInfoRef(offset) => Some(Origin::DebugInfo(offset.0)),
                    _ => None,
                };
            }
            _ => {}
        }
    }
    // The search for the end of a text is fast, but the end may be a gigabyte away.
    described.steps += searched / 64;
    Some(described)
}
