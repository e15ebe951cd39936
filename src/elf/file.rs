//! A whole ELF file as bytes: sections by name, addresses, build id, debug link.
//!
//! Everything is copied out into plain data and checked once. No offset is trusted when it is used
//! later either, because the file may change under its mapping (`process::filebytes`).

use std::borrow::Cow;
use std::ops::Range;

use object::read::{CompressedData, CompressionFormat};

use super::{
    ET_EXEC, Headers, PT_DYNAMIC, PT_GNU_EH_FRAME, PT_LOAD, PT_NOTE, SECTIONS_MAX, SHF_ALLOC,
    SHF_COMPRESSED, SHF_EXECINSTR, SHT_NOBITS, SHT_NOTE, Section, Segment, u32_at, u64_at,
};

/// Maximum bytes of an inflated section; one that claims to be larger stays compressed.
const INFLATED_CAP: u64 = 1 << 30;

const NT_GNU_BUILD_ID: u32 = 3;

impl Section {
    /// Returns the section's range in a file of `len` bytes; empty for a section without bytes or
    /// outside the file.
    pub fn range(&self, len: usize) -> Range<usize> {
        if self.kind == SHT_NOBITS {
            return 0..0;
        }
        file_range(self.offset, self.size, len).unwrap_or(0..0)
    }

    pub fn executable(&self) -> bool {
        self.flags & SHF_EXECINSTR != 0
    }
}

#[derive(Clone, Debug, Default)]
pub struct Elf {
    pub sections: Vec<Section>,
    segments: Vec<Segment>,
    build_id: Option<Vec<u8>>,
    /// ET_EXEC, ...
    kind: u16,
    /// EM_X86_64, ...
    pub machine: u16,
}

impl Elf {
    /// `None` when this is no 64-bit little-endian ELF file, or its segments lie outside it.
    pub fn parse(bytes: &[u8]) -> Option<Elf> {
        let read = |at: u64, buf: &mut [u8]| {
            let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or(&[]);
            let count = rest.len().min(buf.len());
            buf[..count].copy_from_slice(&rest[..count]);
            count
        };
        let headers = Headers::read(&read)?;
        let sections = headers.sections(&read, SECTIONS_MAX).unwrap_or_default();
        let Headers { segments, kind, machine, .. } = headers;
        let mut elf = Elf { sections, segments, build_id: None, kind, machine };
        elf.build_id = elf.find_build_id(bytes);
        Some(elf)
    }

    /// Returns whether the file is an executable: linked for fixed addresses, or with the flag
    /// DF_1_PIE (binutils 2.26 and later). Some shared objects can be started too, as the C
    /// library, so an interpreter proves nothing.
    pub fn is_program(&self, bytes: &[u8]) -> bool {
        const DT_FLAGS_1: u64 = 0x6fff_fffb;
        const DF_1_PIE: u64 = 0x0800_0000;
        let dynamic = || {
            let segment = self.segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
            let range = file_range(segment.offset, segment.file_size, bytes.len())?;
            bytes.get(range)
        };
        self.kind == ET_EXEC
            || dynamic().unwrap_or(&[]).chunks_exact(16).any(|entry| {
                u64_at(entry, 0) == Some(DT_FLAGS_1)
                    && u64_at(entry, 8).is_some_and(|flags| flags & DF_1_PIE != 0)
            })
    }

    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// Returns the bytes of a section as they are in the file; empty if there is none.
    pub fn data<'a>(&self, name: &str, bytes: &'a [u8]) -> &'a [u8] {
        self.section(name).and_then(|section| bytes.get(section.range(bytes.len()))).unwrap_or(&[])
    }

    /// Returns the bytes of a section, inflated if necessary; empty if there is none or its
    /// declared size exceeds 1 GiB.
    pub fn inflated<'a>(&self, name: &str, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(section) = self.section(name) else { return Cow::Borrowed(&[]) };
        let data = bytes.get(section.range(bytes.len())).unwrap_or(&[]);
        if section.flags & SHF_COMPRESSED == 0 {
            return Cow::Borrowed(data);
        }
        inflate(data).map_or(Cow::Borrowed(&[]), Cow::Owned)
    }

    /// Returns the ELF virtual address of a file offset that is mapped executable.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let loaded = || self.segments.iter().filter(|s| s.kind == PT_LOAD);
        let exact = |s: &&Segment| offset.checked_sub(s.offset).is_some_and(|d| d < s.file_size);
        // Mappings begin and end at page boundaries, segments do not. An offset in no segment
        // belongs to the executable one whose pages cover it.
        let page = |s: &&Segment| {
            offset >= s.offset & !0xfff
                && offset < s.offset.saturating_add(s.file_size).saturating_add(0xfff) & !0xfff
        };
        let segment = loaded()
            .filter(|s| s.is_code())
            .find(exact)
            .or_else(|| loaded().filter(|s| s.is_code()).find(page))
            .or_else(|| loaded().find(exact))?;
        Some(segment.address.wrapping_add(offset.wrapping_sub(segment.offset)))
    }

    /// Whether an address is inside executable code. Debug info of functions that the linker
    /// dropped has address 0 or -1.
    pub fn is_code(&self, address: u64) -> bool {
        self.segments.iter().any(|s| {
            s.is_code() && address.checked_sub(s.address).is_some_and(|d| d < s.memory_size)
        })
    }

    /// Returns the code section that contains an address.
    pub fn code_section(&self, address: u64) -> Option<&Section> {
        self.sections.iter().find(|s| {
            s.flags & SHF_ALLOC != 0
                && s.executable()
                && address.checked_sub(s.address).is_some_and(|into| into < s.size)
        })
    }

    /// Returns the address range of the code section that contains an address, or of its segment
    /// where there are no section headers.
    pub fn code_range(&self, address: u64) -> Option<Range<u64>> {
        if let Some(section) = self.code_section(address) {
            return Some(section.address..section.address.saturating_add(section.size));
        }
        self.code_segment(address).filter(|_| self.sections.iter().all(|s| !s.executable()))
    }

    /// Returns the address range of the executable segment that contains an address.
    pub fn code_segment(&self, address: u64) -> Option<Range<u64>> {
        let holds =
            |s: &&Segment| address.checked_sub(s.address).is_some_and(|into| into < s.memory_size);
        let mut code = self.segments.iter().filter(|s| s.is_code());
        let segment = code.find(holds)?;
        Some(segment.address..segment.address.saturating_add(segment.memory_size))
    }

    /// Returns .eh_frame_hdr's bytes and address, found by segment (which exists even without
    /// section headers).
    pub fn eh_frame_header<'a>(&self, bytes: &'a [u8]) -> Option<(&'a [u8], u64)> {
        let segment = self.segments.iter().find(|s| s.kind == PT_GNU_EH_FRAME)?;
        let range = file_range(segment.offset, segment.file_size, bytes.len())?;
        Some((bytes.get(range)?, segment.address))
    }

    /// Returns the bytes from a virtual address to the end of its segment.
    pub fn bytes_at<'a>(&self, address: u64, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let segment = self.segments.iter().find(|s| {
            s.kind == PT_LOAD && address.checked_sub(s.address).is_some_and(|d| d < s.file_size)
        })?;
        let into = address - segment.address;
        let range =
            file_range(segment.offset.checked_add(into)?, segment.file_size - into, bytes.len())?;
        bytes.get(range)
    }

    /// Returns the build id, 1 to 64 bytes.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// Returns name and CRC-32 of the debug file that .gnu_debuglink names.
    pub fn debug_link<'a>(&self, bytes: &'a [u8]) -> Option<(&'a [u8], u32)> {
        let data = self.data(".gnu_debuglink", bytes);
        let end = data.iter().take(4096).position(|b| *b == 0)?;
        let name = data.get(..end).filter(|name| !name.is_empty())?;
        let crc = u32_at(data, (end + 1).next_multiple_of(4))?;
        Some((name, crc))
    }

    fn find_build_id(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let sections =
            self.sections.iter().filter(|s| s.kind == SHT_NOTE).map(|s| s.range(bytes.len()));
        let segments = self
            .segments
            .iter()
            .filter(|s| s.kind == PT_NOTE)
            .filter_map(|s| file_range(s.offset, s.file_size, bytes.len()));
        sections.chain(segments).take(64).find_map(|range| build_id_note(bytes.get(range)?))
    }
}

/// Inflates an SHF_COMPRESSED section (Elf64_Chdr, then zlib or zstd).
fn inflate(data: &[u8]) -> Option<Vec<u8>> {
    let format = match u32_at(data, 0)? {
        1 => CompressionFormat::Zlib,
        2 => CompressionFormat::Zstandard,
        _ => return None,
    };
    let uncompressed_size = u64_at(data, 8)?;
    let data = data.get(24..)?;
    // Deflate compresses at most 1032-fold; a larger declared size is false, to make us allocate.
    if uncompressed_size > INFLATED_CAP
        || (format == CompressionFormat::Zlib && uncompressed_size / 1100 > data.len() as u64)
    {
        return None;
    }
    CompressedData { format, data, uncompressed_size }.decompress().ok().map(Cow::into_owned)
}

/// Maximum notes that are read.
const NOTES_MAX: usize = 64;

/// The GNU build id among notes, 1 to 64 bytes.
pub fn build_id_note(notes: &[u8]) -> Option<Vec<u8>> {
    let is_it = |(name, kind, id): &(&[u8], u32, &[u8])| {
        *name == b"GNU\0" && *kind == NT_GNU_BUILD_ID && (1..=64).contains(&id.len())
    };
    Notes(notes).take(NOTES_MAX).find(is_it).map(|(_, _, id)| id.to_vec())
}

/// Returns whether there is a note of this owner and type.
pub fn has_note(notes: &[u8], owner: &[u8], kind: u32) -> bool {
    Notes(notes).take(NOTES_MAX).any(|(name, of, _)| name == owner && of == kind)
}

/// Notes one behind the other: owner, type, text.
struct Notes<'a>(&'a [u8]);

impl<'a> Iterator for Notes<'a> {
    type Item = (&'a [u8], u32, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let notes = std::mem::take(&mut self.0);
        let (name_size, size) = (u32_at(notes, 0)? as usize, u32_at(notes, 4)? as usize);
        let name = notes.get(12..)?.get(..name_size)?;
        let at = 12 + name_size.checked_next_multiple_of(4)?;
        let text = notes.get(at..)?.get(..size)?;
        let next = size.checked_next_multiple_of(4).and_then(|size| at.checked_add(size));
        self.0 = next.and_then(|next| notes.get(next..)).unwrap_or(&[]);
        Some((name, u32_at(notes, 8)?, text))
    }
}

/// Formats a build id as tools do.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file_range(offset: u64, size: u64, len: usize) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (end <= len).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_binary_has_what_every_binary_has() {
        let bytes = std::fs::read("/proc/self/exe").expect("we can read ourselves");
        let elf = Elf::parse(&bytes).expect("and we are an ELF file");
        let text = elf.section(".text").expect("with code");
        assert_eq!(elf.address_of(text.offset), Some(text.address));
        assert!(elf.is_code(text.address) && !elf.is_code(0) && !elf.is_code(u64::MAX));
        assert_eq!(elf.code_section(text.address + 1).map(|s| s.name.as_str()), Some(".text"));
        assert!(!elf.data(".eh_frame", &bytes).is_empty());
        let (header, address) = elf.eh_frame_header(&bytes).expect("an index of unwind entries");
        assert_eq!(header[0], 1);
        assert_eq!(elf.bytes_at(address, &bytes).map(|b| &b[..4]), Some(&header[..4]));
    }

    #[test]
    fn a_program_differs_from_a_shared_object_that_can_be_started() {
        let is_program = |path: &std::path::Path| {
            let bytes = std::fs::read(path).expect("readable");
            Elf::parse(&bytes).expect("an ELF file").is_program(&bytes)
        };
        assert!(is_program(&std::env::current_exe().expect("we run")));
        let maps = std::fs::read_to_string("/proc/self/maps").expect("our mappings");
        let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let libc =
            paths.into_iter().find(|path| path.contains("/libc.so") || path.contains("/ld-"));
        if let Some(libc) = libc {
            assert!(!is_program(std::path::Path::new(libc)), "{libc}");
        } else {
            // Linked statically.
            assert!(!maps.contains(".so"));
        }
    }

    #[test]
    fn a_compressed_section_that_lies_about_its_size_is_left_alone() {
        let mut data = vec![1, 0, 0, 0, 0, 0, 0, 0];
        data.extend((INFLATED_CAP - 1).to_le_bytes());
        data.extend(1u64.to_le_bytes());
        data.extend([0x78, 0x9c, 3, 0, 0, 0, 0, 1]);
        assert_eq!(inflate(&data), None);
        data[8..16].copy_from_slice(&0u64.to_le_bytes());
        assert_eq!(inflate(&data), Some(Vec::new()));
    }

    #[test]
    fn notes_that_overrun_are_no_build_id() {
        let mut note = Vec::new();
        note.extend(4u32.to_le_bytes());
        note.extend(3u32.to_le_bytes());
        note.extend(NT_GNU_BUILD_ID.to_le_bytes());
        note.extend(b"GNU\0abc");
        assert_eq!(build_id_note(&note), Some(b"abc".to_vec()));
        note[4] = 200;
        assert_eq!(build_id_note(&note), None);
        note[0..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(build_id_note(&note), None);
    }
}
