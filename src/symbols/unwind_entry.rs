//! Starts and ends of functions in the unwind table: the only boundaries that a stripped file
//! keeps.

use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, LittleEndian, UnwindSection};

use crate::elf::Elf;

/// Maximum entries read; no program has more functions.
const ENTRIES_CAP: usize = 1 << 22;

/// All unwind entries (FDEs) of a file, by address.
pub struct UnwindEntries {
    /// (first address, length), sorted.
    entries: Vec<(u64, u64)>,
}

impl UnwindEntries {
    pub fn read(elf: &Elf, bytes: &[u8]) -> UnwindEntries {
        let mut entries = Vec::new();
        let mut bases = BaseAddresses::default();
        let mut frames: &[u8] = &[];
        if let Some(section) = elf.section(".eh_frame") {
            frames = bytes.get(section.range(bytes.len())).unwrap_or(&[]);
            bases = bases.set_eh_frame(section.address);
        }
        if let (true, Some((header, address))) = (frames.is_empty(), elf.eh_frame_header(bytes)) {
            // There are no section headers, or .eh_frame is in a debug file: the index points to
            // the table.
            bases = bases.set_eh_frame_hdr(address);
            if let Ok(parsed) = EhFrameHdr::new(header, LittleEndian).parse(&bases, 8)
                && let Ok(start) = parsed.eh_frame_ptr().direct()
            {
                frames = elf.bytes_at(start, bytes).unwrap_or(&[]);
                bases = bases.set_eh_frame(start);
            }
        }
        if let Some(text) = elf.section(".text") {
            bases = bases.set_text(text.address);
        }
        let frames = EhFrame::new(frames, LittleEndian);
        let mut walk = frames.entries(&bases);
        while let Ok(Some(entry)) = walk.next() {
            if entries.len() >= ENTRIES_CAP {
                break;
            }
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) =
                partial.parse(|frames, bases, offset| frames.cie_from_offset(bases, offset))
            else {
                continue;
            };
            if fde.len() > 0 && elf.is_code(fde.initial_address()) {
                entries.push((fde.initial_address(), fde.len()));
            }
        }
        entries.sort_unstable();
        entries.dedup_by_key(|(start, _)| *start);
        UnwindEntries { entries }
    }

    /// Returns the start of the entry that covers an address.
    pub fn start(&self, address: u64) -> Option<u64> {
        let after = self.entries.partition_point(|(start, _)| *start <= address);
        let (start, len) = *self.entries.get(after.checked_sub(1)?)?;
        (address - start < len).then_some(start)
    }

    /// Returns the latest possible end of code that begins at an address: that of the entry that
    /// covers it, else the start of the next one.
    pub fn end(&self, address: u64) -> u64 {
        let after = self.entries.partition_point(|(start, _)| *start <= address);
        let covers = |(start, len): &&(u64, u64)| address - start < *len;
        match after.checked_sub(1).and_then(|at| self.entries.get(at)).filter(covers) {
            Some((start, len)) => start.saturating_add(*len),
            None => self.entries.get(after).map_or(u64::MAX, |(start, _)| *start),
        }
    }

    /// Returns the end of the last entry that begins before an address.
    pub fn end_before(&self, address: u64) -> Option<u64> {
        let after = self.entries.partition_point(|(start, _)| *start <= address);
        let (start, len) = self.entries.get(after.checked_sub(1)?)?;
        start.checked_add(*len).filter(|end| *end <= address)
    }

    /// Returns the bytes of memory used.
    pub fn weight(&self) -> usize {
        self.entries.capacity() * size_of::<(u64, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_covers_its_length_and_no_more() {
        let entries = UnwindEntries { entries: vec![(0x1000, 0x20), (0x1040, 0x10)] };
        assert_eq!(entries.start(0xfff), None);
        assert_eq!(entries.start(0x1000), Some(0x1000));
        assert_eq!(entries.start(0x101f), Some(0x1000));
        assert_eq!(entries.start(0x1020), None);
        assert_eq!(entries.start(0x104f), Some(0x1040));
        assert_eq!(entries.start(0x1050), None);
        assert_eq!(
            [0xfff, 0x1000, 0x101f, 0x1020, 0x104f].map(|a| entries.end(a)),
            [0x1000, 0x1020, 0x1020, 0x1040, 0x1050]
        );
        assert_eq!(entries.end(0x1050), u64::MAX);
        assert_eq!(
            [0xfff, 0x1010, 0x1020, 0x103f].map(|a| entries.end_before(a)),
            [None, None, Some(0x1020), Some(0x1020)]
        );
    }

    #[test]
    fn sections_and_segments_lead_to_the_same_entries() {
        let bytes = std::fs::read("/proc/self/exe").expect("we can read ourselves");
        let mut elf = Elf::parse(&bytes).expect("and we are an ELF file");
        let by_section = UnwindEntries::read(&elf, &bytes).entries;
        assert!(by_section.len() > 1000);
        elf.sections.clear();
        assert_eq!(UnwindEntries::read(&elf, &bytes).entries, by_section);
    }
}
