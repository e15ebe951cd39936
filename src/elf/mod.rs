//! Reads ELF files of 64 bits, little-endian: from bytes, from an open file, or as they are loaded
//! in a target's memory.
//!
//! ```text
//! mod    headers, segments and sections, through a function that reads
//! file   a whole file: names of sections, build id, debug link, compressed sections
//! ```
//!
//! The bytes are hostile: every count and length is bounded, and no offset is trusted.

mod file;

pub use file::{Elf, build_id_note, has_note, hex};

/// Maximum segments that are read; real files have some 15.
const SEGMENTS_MAX: u16 = 1 << 10;
/// Maximum sections that are read. A large C++ program linked with -ffunction-sections has tens of
/// thousands.
pub const SECTIONS_MAX: usize = 1 << 17;
/// Maximum bytes of all names of sections.
const NAMES_MAX: u64 = 16 << 20;
/// Maximum bytes of one name.
const NAME_MAX: usize = 64;

/// Bytes of the file's header, of a segment's and of a section's.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const SECTION: usize = 64;

pub const ET_EXEC: u16 = 2;
pub const EM_X86_64: u16 = 62;
pub const PT_LOAD: u32 = 1;
pub const PT_DYNAMIC: u32 = 2;
pub const PT_INTERP: u32 = 3;
pub const PT_NOTE: u32 = 4;
pub const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
pub const PF_X: u32 = 1;
pub const PF_W: u32 = 2;
pub const SHT_SYMTAB: u32 = 2;
pub const SHT_NOTE: u32 = 7;
pub const SHT_NOBITS: u32 = 8;
pub const SHF_ALLOC: u64 = 2;
pub const SHF_EXECINSTR: u64 = 4;
pub const SHF_COMPRESSED: u64 = 0x800;

/// Reads a prefix of the buffer at an offset of the file, or of its image in memory. Returns the
/// number of bytes.
pub type ReadAt<'a> = dyn Fn(u64, &mut [u8]) -> usize + 'a;

/// Reads up to `length` bytes; `None` if there is not one.
pub fn read_some(read: &ReadAt<'_>, at: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    let count = read(at, &mut bytes).min(bytes.len());
    bytes.truncate(count);
    (count > 0).then_some(bytes)
}

#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// PT_LOAD, ...
    pub kind: u32,
    /// PF_X, ...
    pub flags: u32,
    pub offset: u64,
    pub address: u64,
    pub file_size: u64,
    pub memory_size: u64,
}

impl Segment {
    pub fn is_code(&self) -> bool {
        self.kind == PT_LOAD && self.flags & PF_X != 0
    }
}

#[derive(Clone, Debug)]
pub struct Section {
    pub name: String,
    /// SHT_NOTE, ...
    pub kind: u32,
    /// SHF_ALLOC, ...
    pub flags: u64,
    pub address: u64,
    pub offset: u64,
    pub size: u64,
    pub link: u32,
    pub entry_size: u64,
}

/// The file's header and its segments.
#[derive(Clone, Debug, Default)]
pub struct Headers {
    /// ET_EXEC, ...
    pub kind: u16,
    /// EM_X86_64, ...
    pub machine: u16,
    /// Address at which the program begins.
    pub entry: u64,
    pub segments: Vec<Segment>,
    table: SectionTable,
}

/// The section headers, as the file's header describes them.
#[derive(Clone, Copy, Debug, Default)]
struct SectionTable {
    offset: u64,
    entry_size: u16,
    count: u16,
    /// Index of the section with the names.
    names: u16,
}

impl Headers {
    /// `None` for anything but a 64-bit little-endian ELF file whose segments can be read.
    pub fn read(read: &ReadAt<'_>) -> Option<Headers> {
        let mut header = [0; HEADER];
        if read(0, &mut header) < HEADER || !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (size, count) = (u16_at(&header, 54)?, u16_at(&header, 56)?.min(SEGMENTS_MAX));
        let mut segments = Vec::new();
        if count > 0 {
            let length = SEGMENT * usize::from(count);
            let table = read_some(read, u64_at(&header, 32)?, length as u64)?;
            if usize::from(size) != SEGMENT || table.len() < length {
                return None;
            }
            segments = table.chunks_exact(SEGMENT).filter_map(segment).collect();
        }
        Some(Headers {
            kind: u16_at(&header, 16)?,
            machine: u16_at(&header, 18)?,
            entry: u64_at(&header, 24)?,
            segments,
            table: SectionTable {
                offset: u64_at(&header, 40)?,
                entry_size: u16_at(&header, 58)?,
                count: u16_at(&header, 60)?,
                names: u16_at(&header, 62)?,
            },
        })
    }

    /// Returns the sections but the first, which is none; of a file that was cut off those that are
    /// there. `None` where there are no section headers, or more than `max`.
    pub fn sections(&self, read: &ReadAt<'_>, max: usize) -> Option<Vec<Section>> {
        let SectionTable { offset, entry_size, count, names } = self.table;
        // With larger entries a count within its limit would still claim gigabytes.
        if offset == 0 || usize::from(entry_size) != SECTION {
            return None;
        }
        let header = |index: u64| {
            let mut header = [0; SECTION];
            let at = offset.checked_add(index.checked_mul(SECTION as u64)?)?;
            (read(at, &mut header) == SECTION).then_some(header)
        };
        // Counts beyond 16 bits are kept in section 0 (elf(5)).
        let first = header(0)?;
        let count = match count {
            0 => usize::try_from(u64_at(&first, 32)?).ok()?,
            count => count.into(),
        };
        if count > max {
            return None;
        }
        let names = header(match names {
            0xffff => u32_at(&first, 40)?.into(),
            index => index.into(),
        })?;
        let names = read_some(read, u64_at(&names, 24)?, u64_at(&names, 32)?.min(NAMES_MAX))?;
        let table = read_some(read, offset, (SECTION * count) as u64)?;
        let headers = table.chunks_exact(SECTION).skip(1);
        Some(headers.filter_map(|header| section(header, &names)).collect())
    }
}

fn segment(header: &[u8]) -> Option<Segment> {
    Some(Segment {
        kind: u32_at(header, 0)?,
        flags: u32_at(header, 4)?,
        offset: u64_at(header, 8)?,
        address: u64_at(header, 16)?,
        file_size: u64_at(header, 32)?,
        memory_size: u64_at(header, 40)?,
    })
}

fn section(header: &[u8], names: &[u8]) -> Option<Section> {
    let name = names.get(u32_at(header, 0)? as usize..).unwrap_or(&[]);
    let end = name.iter().take(NAME_MAX).position(|byte| *byte == 0).unwrap_or(0);
    Some(Section {
        name: String::from_utf8_lossy(&name[..end]).into_owned(),
        kind: u32_at(header, 4)?,
        flags: u64_at(header, 8)?,
        address: u64_at(header, 16)?,
        offset: u64_at(header, 24)?,
        size: u64_at(header, 32)?,
        link: u32_at(header, 40)?,
        entry_size: u64_at(header, 56)?,
    })
}

pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file with the given size and number of section headers, and notes the longest read.
    fn longest_read(entry_size: u16, count: u16) -> usize {
        let mut file = vec![0; 256];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[40..48].copy_from_slice(&64_u64.to_le_bytes());
        file[58..60].copy_from_slice(&entry_size.to_le_bytes());
        file[60..62].copy_from_slice(&count.to_le_bytes());
        // Section 0, which has the names here too, claims the largest count and as many bytes.
        file[64 + 32..64 + 40].copy_from_slice(&(SECTIONS_MAX as u64).to_le_bytes());
        let longest = std::cell::Cell::new(0);
        let read = |at: u64, buf: &mut [u8]| {
            longest.set(longest.get().max(buf.len()));
            let rest = usize::try_from(at).ok().and_then(|at| file.get(at..)).unwrap_or(&[]);
            let count = rest.len().min(buf.len());
            buf[..count].copy_from_slice(&rest[..count]);
            count
        };
        let headers = Headers::read(&read).expect("headers without segments");
        headers.sections(&read, SECTIONS_MAX);
        longest.get()
    }

    #[test]
    fn claimed_sizes_have_a_limit() {
        for (entry_size, count) in [(64, 0), (64, u16::MAX), (u16::MAX, 0), (u16::MAX, u16::MAX)] {
            let longest = longest_read(entry_size, count);
            assert!(longest <= 16 << 20, "{entry_size} {count}: {longest}");
        }
        assert_eq!(longest_read(64, 0), SECTION * SECTIONS_MAX, "the table is read");
    }
}
