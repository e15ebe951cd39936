//! Whether a process executes a Go program, by what Go's linker puts into every program: a note
//! with the build's id, or the build information. Few bytes are read, and no file of the program,
//! which may be on a server that does not answer.

use std::fs::File;
use std::io::Read;

use crate::elf::{Headers, PF_W, PT_LOAD, PT_NOTE, Segment, has_note, u64_at};
use crate::pclntab::modules::MAGIC;
use crate::process::memory::{Memory, ReadMemory};

/// Bytes of the auxiliary vector; the kernel's has some 400.
const VECTOR_MAX: u64 = 4096;
/// The entry with the address of the program's headers, which lie behind that of the file
/// (elf.h, ld.so).
const AT_PHDR: u64 = 3;
const FILE_HEADER: u64 = 64;
/// Bytes of the program's beginning: its headers, and in what linkers make its notes.
const BEGINNING: usize = 4096;
/// Owner and type of the note (cmd/internal/buildid).
const OWNER: &[u8] = b"Go\0\0";
const BUILD_ID: u32 = 4;
/// The build information is at such an address (debug/buildinfo).
const ALIGNMENT: u64 = 16;

/// Returns whether a process executes a Go program; false where it cannot be read.
pub fn is_go(pid: u32) -> bool {
    let mut vector = Vec::new();
    let read = File::open(format!("/proc/{pid}/auxv"))
        .and_then(|file| file.take(VECTOR_MAX).read_to_end(&mut vector));
    read.is_ok() && is_program_of_go(&Memory::new(pid), &vector).unwrap_or(false)
}

/// Returns the same of a process with this memory. `vector`: its auxiliary vector. `None` where
/// what is there is no program.
pub fn is_program_of_go(memory: &impl ReadMemory, vector: &[u8]) -> Option<bool> {
    let entry = |entry: &[u8]| (u64_at(entry, 0) == Some(AT_PHDR)).then(|| u64_at(entry, 8))?;
    let headers = vector.chunks_exact(16).find_map(entry)?;
    let start = headers.checked_sub(FILE_HEADER)?;
    let mut beginning = vec![0; BEGINNING];
    let length = memory.read(start, &mut beginning);
    beginning.truncate(length);
    let headers = Headers::read(&|at, buf| {
        let rest = usize::try_from(at).ok().and_then(|at| beginning.get(at..)).unwrap_or(&[]);
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        count
    })?;
    let segments = &headers.segments;
    let notes = |offset: u64, size: u64| {
        let from = usize::try_from(offset).ok()?;
        let to = from.saturating_add(usize::try_from(size).ok()?).min(beginning.len());
        beginning.get(from..to)
    };
    let mut of_notes = segments.iter().filter(|segment| segment.kind == PT_NOTE);
    let is_of_go = |notes: &[u8]| has_note(notes, OWNER, BUILD_ID);
    if of_notes.any(|of| notes(of.offset, of.file_size).is_some_and(is_of_go)) {
        return Some(true);
    }
    // Without an id there is still the information, at the beginning of data.
    let loaded = |segment: &&Segment| segment.kind == PT_LOAD;
    let first = segments.iter().filter(loaded).find(|segment| segment.offset == 0)?;
    let data = segments.iter().filter(loaded).find(|segment| segment.flags & PF_W != 0)?;
    let data = start.wrapping_sub(first.address).wrapping_add(data.address);
    let mut magic = vec![0; MAGIC.len()];
    memory.read_exact(data.checked_next_multiple_of(ALIGNMENT)?, &mut magic)?;
    Some(magic == MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program at 0x400000 with the given notes and data at 0x401000.
    struct Program(Vec<u8>);

    const START: u64 = 0x40_0000;
    const NOTES: usize = 512;

    impl Program {
        fn new(notes: &[u8], data: &[u8]) -> Program {
            let mut bytes = vec![0; 0x1000];
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            let mut put =
                |at: usize, value: &[u8]| bytes[at..][..value.len()].copy_from_slice(value);
            put(32, &64u64.to_le_bytes());
            put(54, &56u16.to_le_bytes());
            put(56, &3u16.to_le_bytes());
            let length = notes.len() as u64;
            for (nth, (kind, flags, offset, address, size)) in [
                (PT_LOAD, 5, 0, START, 0x1000),
                (PT_NOTE, 4, NOTES as u64, START + NOTES as u64, length),
                (PT_LOAD, 6, 0x1000, START + 0x1000 - 8, 64),
            ]
            .into_iter()
            .enumerate()
            {
                let at = 64 + 56 * nth;
                put(at, &u32::to_le_bytes(kind));
                put(at + 4, &u32::to_le_bytes(flags));
                for (place, value) in [(8, offset), (16, address), (32, size), (40, size)] {
                    put(at + place, &u64::to_le_bytes(value));
                }
            }
            put(NOTES, notes);
            bytes.extend_from_slice(data);
            Program(bytes)
        }

        fn is_go_with(&self, vector: &[u64]) -> Option<bool> {
            let vector: Vec<u8> = vector.iter().flat_map(|word| word.to_le_bytes()).collect();
            is_program_of_go(self, &vector)
        }

        fn is_go(&self) -> Option<bool> {
            self.is_go_with(&[6, 4096, AT_PHDR, START + 64, 0, 0])
        }
    }

    impl ReadMemory for Program {
        fn read(&self, address: u64, buf: &mut [u8]) -> usize {
            let at = address.checked_sub(START).and_then(|at| usize::try_from(at).ok());
            let rest = at.and_then(|at| self.0.get(at..)).unwrap_or(&[]);
            let count = rest.len().min(buf.len());
            buf[..count].copy_from_slice(&rest[..count]);
            count
        }
    }

    fn note(owner: &[u8], kind: u32, text: &[u8]) -> Vec<u8> {
        let sizes = [owner.len() as u32, text.len() as u32, kind];
        let mut note: Vec<u8> = sizes.iter().flat_map(|word| word.to_le_bytes()).collect();
        for part in [owner, text] {
            note.extend_from_slice(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn a_go_program_has_a_note_or_build_information() {
        let id = note(OWNER, BUILD_ID, b"h-8/x");
        let gnu = note(b"GNU\0", 3, &[7; 20]);
        for (notes, data, expected) in [
            (&id[..], &b"data of some kind"[..], true),
            (&[&gnu[..], &id].concat(), b"data of some kind", true),
            (&gnu, b"data of some kind", false),
            (&note(OWNER, 1, b"x"), b"data of some kind", false),
            (&note(b"Gos\0", BUILD_ID, b"x"), b"data of some kind", false),
            (&[], MAGIC, true),
            (&[], b"\xff Go buildinf!!", false),
        ] {
            assert_eq!(Program::new(notes, data).is_go(), Some(expected), "{notes:?} {data:?}");
        }
        assert_eq!(Program::new(&[], b"short").is_go(), None);
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let program = Program::new(&note(OWNER, BUILD_ID, b"x"), MAGIC);
        assert_eq!(program.is_go_with(&[AT_PHDR, START + 64]), Some(true));
        for vector in [&[][..], &[AT_PHDR], &[6, 4096], &[AT_PHDR, 3], &[AT_PHDR, START + 72]] {
            assert_eq!(program.is_go_with(vector), None, "{vector:x?}");
        }
        // Offsets and sizes may be anything.
        for at in 64..64 + 3 * 56 {
            for value in [0, 0x7f, 0xff] {
                let mut damaged = Program(program.0.clone());
                damaged.0[at..at + 4].fill(value);
                damaged.is_go();
            }
        }
        for length in 0..program.0.len() / 16 {
            Program(program.0[..length * 16].to_vec()).is_go();
        }
    }
}
