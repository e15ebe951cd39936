//! Opens units, and limits their memory while they are open. gimli turns a byte of an abbreviation
//! table into some thirty, one of a line program's header into up to a hundred, and any number of
//! units can refer to the same bytes.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{Abbreviations, AttributeValue, Reader as _, Section as _, UnitHeader};

use super::Reader;
use super::lines::header_len;

pub type Unit<'a> = gimli::Unit<Reader<'a>>;
pub type Dwarf<'a> = gimli::Dwarf<Reader<'a>>;

/// Maximum bytes of a unit's abbreviation table; those of large programs, shared by all their
/// units, have some 100 KB.
const ABBREVIATIONS_CAP: usize = 1 << 20;
/// Approximate maximum memory of all open units, bytes; the unit in use may exceed it alone.
const OPEN_CAP: usize = 256 << 20;
/// Bytes of memory per byte of an abbreviation table, of a line program's header, and per unit.
const PER_ABBREVIATION: usize = 32;
const PER_HEADER: usize = 100;
const PER_UNIT: usize = 1024;

/// The open units of a file, by number, and the abbreviations they share: with link-time
/// optimisation all units of a program have the same.
#[derive(Default)]
pub struct OpenUnits<'a> {
    units: HashMap<usize, Option<Rc<Unit<'a>>>>,
    abbreviations: HashMap<usize, Option<Arc<Abbreviations>>>,
    memory: usize,
}

impl<'a> OpenUnits<'a> {
    /// Returns the result of opening this unit, if it is still cached.
    pub fn known(&self, number: usize) -> Option<&Option<Rc<Unit<'a>>>> {
        self.units.get(&number)
    }

    /// Opens a unit that stays open; `None` if it is unreadable, or would take disproportionate
    /// memory.
    pub fn unit(
        &mut self,
        dwarf: &Dwarf<'a>,
        number: usize,
        header: Option<UnitHeader<Reader<'a>>>,
    ) -> Option<Rc<Unit<'a>>> {
        let unit = header.and_then(|header| self.briefly(dwarf, header)).map(Rc::new);
        self.memory += PER_UNIT;
        self.units.insert(number, unit.clone());
        unit
    }

    /// Opens a unit that is not needed again.
    pub fn briefly(
        &mut self,
        dwarf: &Dwarf<'a>,
        header: UnitHeader<Reader<'a>>,
    ) -> Option<Unit<'a>> {
        if self.memory > OPEN_CAP {
            *self = OpenUnits::default();
        }
        let abbreviations = self.abbreviations(dwarf, &header)?;
        let mut entries = header.entries_raw(&abbreviations, None).ok()?;
        for spec in entries.read_abbreviation().ok()??.attributes() {
            let attribute = entries.read_attribute(*spec).ok()?;
            if let (gimli::DW_AT_stmt_list, AttributeValue::DebugLineRef(offset)) =
                (attribute.name(), attribute.value())
            {
                let mut lines = *dwarf.debug_line.reader();
                lines.skip(offset.0).ok()?;
                self.memory += PER_HEADER * header_len(lines.slice())?;
            }
        }
        gimli::Unit::new_with_abbreviations(dwarf, header, abbreviations).ok()
    }

    fn abbreviations(
        &mut self,
        dwarf: &Dwarf<'a>,
        header: &UnitHeader<Reader<'a>>,
    ) -> Option<Arc<Abbreviations>> {
        let offset = header.debug_abbrev_offset();
        if let Some(known) = self.abbreviations.get(&offset.0) {
            return known.clone();
        }
        let mut table = *dwarf.debug_abbrev.reader();
        table.skip(offset.0).ok()?;
        let len = table_len(table.slice());
        self.memory += PER_ABBREVIATION * len.unwrap_or(0) + PER_UNIT;
        let read = len.and_then(|_| dwarf.abbreviations(header).ok());
        self.abbreviations.insert(offset.0, read.clone());
        read
    }
}

/// Returns the length of an abbreviation table; `None` if it exceeds [`ABBREVIATIONS_CAP`].
fn table_len(table: &[u8]) -> Option<usize> {
    let whole = &table[..table.len().min(ABBREVIATIONS_CAP)];
    let mut table = gimli::EndianSlice::new(whole, gimli::LittleEndian);
    let mut entry = || -> gimli::Result<bool> {
        if table.read_uleb128()? == 0 {
            return Ok(false);
        }
        table.skip_leb128()?;
        table.read_u8()?;
        loop {
            let (name, form) = (table.read_uleb128()?, table.read_uleb128()?);
            if form == u64::from(gimli::DW_FORM_implicit_const.0) {
                table.skip_leb128()?;
            }
            if name == 0 && form == 0 {
                return Ok(true);
            }
        }
    };
    while entry().ok()? {}
    Some(whole.len() - table.slice().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_end_within_their_cap() {
        // Abbreviation 1: a unit without children, with a name (string); then the end.
        let table = [1, 0x11, 0, 0x03, 0x08, 0, 0, 0];
        assert_eq!(table_len(&[&table[..], &[9, 9]].concat()), Some(table.len()));
        assert_eq!(table_len(&table[..7]), None);
        let endless = [1, 0x11, 0, 0, 0].repeat(ABBREVIATIONS_CAP);
        assert_eq!(table_len(&endless), None);
    }
}
