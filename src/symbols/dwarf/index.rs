//! Address -> compilation unit.

use std::collections::HashMap;

use gimli::{DebugArangesOffset, UnitType};

use super::open_units::OpenUnits;
use super::{Budget, Reader, Unusable, unit};
use crate::elf::Elf;

const UNITS_CAP: usize = 1 << 22;
const RANGES_CAP: usize = 1 << 23;
/// Maximum units that claim the same address; more than a few are a mistake.
const CLAIMS_CAP: usize = 16;
/// Maximum ranges before an address that are tried.
const NESTING: usize = 4096;

#[derive(Clone, Copy)]
struct Claim {
    begin: u64,
    end: u64,
    /// The highest `end` of all claims up to this one.
    reach: u64,
    unit: u32,
}

/// All units of a file. A unit's number is its position in `offsets`.
pub struct Index {
    /// Offset of each unit in .debug_info, ascending.
    offsets: Vec<usize>,
    claims: Vec<Claim>,
}

impl Index {
    /// Builds the index. A unit's ranges come from .debug_aranges if it is listed there (it need
    /// not be opened), else from its first entry, else from its lines.
    pub fn build(
        dwarf: &gimli::Dwarf<Reader<'_>>,
        elf: &Elf,
        budget: &mut Budget,
    ) -> Result<Index, Unusable> {
        let mut listed: HashMap<usize, Vec<DebugArangesOffset>> = HashMap::new();
        let mut headers = dwarf.debug_aranges.headers();
        while let Ok(Some(header)) = headers.next() {
            budget.step()?;
            listed.entry(header.debug_info_offset().0).or_default().push(header.offset());
        }
        let mut index = Index { offsets: Vec::new(), claims: Vec::new() };
        let mut open = OpenUnits::default();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            budget.step()?;
            let Some(offset) = header.debug_info_offset() else { continue };
            if index.offsets.len() >= UNITS_CAP || index.claims.len() >= RANGES_CAP {
                return Err(Unusable);
            }
            let number = index.offsets.len() as u32;
            index.offsets.push(offset.0);
            if !matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_)) {
                continue;
            }
            let before = index.claims.len();
            for set in listed.get(&offset.0).into_iter().flatten() {
                let Ok(header) = dwarf.debug_aranges.header(*set) else { continue };
                let mut entries = header.entries();
                // An entry that overflows is skipped; the iterator ends itself after an invalid
                // one.
                while let Some(entry) = entries.next().transpose() {
                    budget.step()?;
                    if let Ok(entry) = entry {
                        index.claim(elf, entry.range(), number)?;
                    }
                }
            }
            if index.claims.len() == before {
                budget.check()?;
                let Some(unit) = open.briefly(dwarf, header) else { continue };
                for range in unit::ranges(dwarf, &unit, elf, budget)? {
                    index.claim(elf, range, number)?;
                }
            }
        }
        index.claims.sort_unstable_by_key(|claim| (claim.begin, claim.unit));
        let mut reach = 0;
        for claim in &mut index.claims {
            reach = reach.max(claim.end);
            claim.reach = reach;
        }
        Ok(index)
    }

    fn claim(&mut self, elf: &Elf, range: gimli::Range, unit: u32) -> Result<(), Unusable> {
        if self.claims.len() >= RANGES_CAP {
            return Err(Unusable);
        }
        if range.begin < range.end && elf.is_code(range.begin) {
            self.claims.push(Claim { begin: range.begin, end: range.end, reach: 0, unit });
        }
        Ok(())
    }

    /// Returns the units that claim an address, the one with the nearest start first.
    pub fn units_at(&self, address: u64) -> Vec<usize> {
        let after = self.claims.partition_point(|claim| claim.begin <= address);
        let mut units = Vec::new();
        for claim in self.claims[after.saturating_sub(NESTING)..after].iter().rev() {
            if claim.reach <= address || units.len() >= CLAIMS_CAP {
                break;
            }
            let unit = claim.unit as usize;
            if claim.end > address && !units.contains(&unit) {
                units.push(unit);
            }
        }
        units
    }

    /// Returns the offset of a unit in .debug_info.
    pub fn offset(&self, unit: usize) -> Option<usize> {
        self.offsets.get(unit).copied()
    }

    /// Splits an offset in .debug_info into unit and offset in that unit.
    pub fn entry(&self, offset: usize) -> Option<(usize, usize)> {
        let unit = self.offsets.partition_point(|begin| *begin <= offset).checked_sub(1)?;
        Some((unit, offset - self.offsets[unit]))
    }

    pub fn weight(&self) -> usize {
        self.offsets.capacity() * 8 + self.claims.capacity() * size_of::<Claim>()
    }
}
