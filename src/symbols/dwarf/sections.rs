//! The sections of debug info, and gimli's view of them.

use std::borrow::Cow;
use std::ops::Range;

use gimli::{EndianSlice, LittleEndian, SectionId};

use super::Reader;
use crate::elf::Elf;

/// Maximum bytes of inflated sections, which take memory for as long as the file is in use; larger
/// debug info is ignored.
const INFLATED_CAP: usize = 768 << 20;

/// The sections that lookups read.
const USED: [SectionId; 10] = [
    SectionId::DebugInfo,
    SectionId::DebugAbbrev,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
];

enum Data {
    /// Position in the file.
    Mapped(Range<usize>),
    Inflated(Vec<u8>),
}

pub struct Sections {
    data: [Data; USED.len()],
}

impl Sections {
    /// Loads the sections; `None` where there is no .debug_info.
    pub fn load(elf: &Elf, bytes: &[u8]) -> Option<Sections> {
        let info = elf.section(SectionId::DebugInfo.name())?;
        if info.range(bytes.len()).is_empty() {
            return None;
        }
        let mut inflated = 0;
        let data = USED.map(|id| match elf.inflated(id.name(), bytes) {
            Cow::Borrowed([]) => Data::Mapped(0..0),
            Cow::Borrowed(_) => {
                Data::Mapped(elf.section(id.name()).map_or(0..0, |s| s.range(bytes.len())))
            }
            Cow::Owned(data) if inflated + data.len() <= INFLATED_CAP => {
                inflated += data.len();
                Data::Inflated(data)
            }
            Cow::Owned(_) => Data::Mapped(0..0),
        });
        Some(Sections { data })
    }

    /// Returns a view for one batch.
    pub fn dwarf<'a>(&'a self, bytes: &'a [u8]) -> gimli::Dwarf<Reader<'a>> {
        let section = |id: SectionId| -> Result<Reader<'a>, std::convert::Infallible> {
            let data = match USED.iter().position(|used| *used == id).map(|at| &self.data[at]) {
                Some(Data::Mapped(range)) => bytes.get(range.clone()).unwrap_or(&[]),
                Some(Data::Inflated(data)) => data,
                None => &[],
            };
            Ok(EndianSlice::new(data, LittleEndian))
        };
        match gimli::Dwarf::load(section) {
            Ok(dwarf) => dwarf,
            Err(never) => match never {},
        }
    }

    /// Returns the bytes of all sections, inflated.
    pub fn size(&self) -> usize {
        let size = |data: &Data| match data {
            Data::Mapped(range) => range.len(),
            Data::Inflated(data) => data.len(),
        };
        self.data.iter().map(size).sum()
    }

    pub fn weight(&self) -> usize {
        self.data
            .iter()
            .map(|data| match data {
                Data::Mapped(_) => 0,
                Data::Inflated(data) => data.len(),
            })
            .sum()
    }
}
