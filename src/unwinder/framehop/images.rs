//! Loads the unwind tables of mapped files: from the target's memory where they are loaded (that is
//! the file that runs, deleted or not), else from the file.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::elf::{
    EM_X86_64, ET_EXEC, Headers, PF_X, PT_GNU_EH_FRAME, PT_INTERP, PT_LOAD, PT_NOTE, ReadAt,
    SHF_COMPRESSED, SHT_NOBITS, read_some,
};
use crate::process::maps::{Backing, Mapping, Maps};
use crate::process::memory::ReadMemory;
use crate::process::target_files::open_mapped;
use crate::unwinder::framehop::go::{GoTable, Loaded};
use crate::unwinder::framehop::unwind_tables::Tables;

/// Maximum bytes of one table; the largest known programs have about 30 MB.
const TABLE_MAX: u64 = 128 << 20;
/// Maximum bytes of all tables of one process; later images get none.
pub const TABLES_MAX: usize = 256 << 20;
/// Maximum sections of a file whose tables are not loaded; more are not searched.
const SECTIONS_MAX: usize = 4096;
const PAGE: u64 = 4096;

/// One ELF file as it is loaded in the process.
pub struct Image {
    /// The mappings it was loaded from; if they change it is another image.
    pieces: Vec<Mapping>,
    /// Entry point of the program or library (ELF entry); 0 if unknown.
    pub entry: u64,
    pub tables: Option<Tables>,
    /// Go's own description of its functions.
    pub go: Option<GoTable>,
    /// The beginning of the file; it usually includes the build id.
    header: Vec<u8>,
}

/// Maximum bytes of [`Image::header`].
const HEADER: usize = 4096;

impl Image {
    /// Loads the image of `mapping`, which is executable and mapped now. It has no tables where
    /// there is no ELF file, or none with unwind tables.
    pub fn load(
        memory: &impl ReadMemory,
        maps: &Maps,
        mapping: &Mapping,
        pid: u32,
        budget: usize,
    ) -> Image {
        let loaded = maps.loaded_with(mapping);
        let pieces = if loaded.is_empty() { vec![mapping.clone()] } else { loaded.to_vec() };
        let elf = loaded
            .first()
            .and_then(|first| ElfFile::read(&|at, buf| memory.read(first.start + at, buf)));
        let bias = elf.as_ref().and_then(|elf| elf.bias(mapping));
        let mut image = Image { pieces, entry: 0, tables: None, go: None, header: Vec::new() };
        if let (Some(elf), Some(bias)) = (&elf, bias) {
            image.entry = bias.wrapping_add(elf.headers.entry);
            image.tables = elf.tables_in_memory(memory, bias, budget as u64);
            image.go = GoTable::find(memory, &elf.loaded(memory, bias), mapping, pid);
        }
        if let Some(at) = image.header_in_memory() {
            image.header =
                read_some(&|at, buf| memory.read(at, buf), at, HEADER as u64).unwrap_or_default();
        }
        if image.tables.is_none() && mapping.backing == Backing::File {
            image.read_file(mapping, pid);
        }
        image.tables = image.tables.filter(|tables| tables.size() <= budget);
        image
    }

    /// Loads the image of a former mapping from the file alone.
    pub fn of_file(mapping: &Mapping, pid: u32, budget: usize) -> Image {
        let mut image = Image {
            pieces: vec![mapping.clone()],
            entry: 0,
            tables: None,
            go: None,
            header: Vec::new(),
        };
        if mapping.backing == Backing::File {
            image.read_file(mapping, pid);
        }
        image.tables = image.tables.filter(|tables| tables.size() <= budget);
        image
    }

    fn read_file(&mut self, mapping: &Mapping, pid: u32) {
        let Ok(file) = open_mapped(&mapping.mapped_file(pid)) else { return };
        let read = |at, buf: &mut [u8]| read_at(&file, at, buf);
        let Some(elf) = ElfFile::read(&read) else { return };
        let Some(bias) = elf.bias(mapping) else { return };
        self.entry = bias.wrapping_add(elf.headers.entry);
        self.tables = elf.tables_in_file(&read, bias);
        if self.header.is_empty() {
            self.header = read_some(&read, 0, HEADER as u64).unwrap_or_default();
        }
    }

    fn header_in_memory(&self) -> Option<u64> {
        let first = &self.pieces[0];
        (first.offset == 0 && first.readable).then_some(first.start)
    }

    /// Whether `mapping`, which is mapped again, has the same beginning. A file may be rewritten in
    /// place, or another may get its inode.
    pub fn is_unchanged(&self, memory: &impl ReadMemory, mapping: &Mapping, pid: u32) -> bool {
        let same = |read: &ReadAt<'_>, at| {
            !self.header.is_empty()
                && read_some(read, at, self.header.len() as u64).as_ref() == Some(&self.header)
        };
        if let Some(at) = self.header_in_memory()
            && same(&|at, buf: &mut [u8]| memory.read(at, buf), at)
        {
            return true;
        }
        open_mapped(&mapping.mapped_file(pid))
            .is_ok_and(|file| same(&|at, buf: &mut [u8]| read_at(&file, at, buf), 0))
    }

    /// Whether it was loaded from `mapping`.
    pub fn maps(&self, mapping: &Mapping) -> bool {
        self.pieces.iter().any(|piece| piece == mapping)
    }

    /// Returns the bytes of its tables.
    pub fn size(&self) -> usize {
        self.tables.as_ref().map_or(0, Tables::size)
    }

    /// Returns the lowest address, which identifies an image.
    pub fn start(&self) -> u64 {
        self.pieces[0].start
    }

    pub fn end(&self) -> u64 {
        self.pieces[self.pieces.len() - 1].end
    }

    /// Whether it is still mapped as before.
    pub fn still_in(&self, maps: &Maps) -> bool {
        self.pieces.iter().all(|piece| maps.find(piece.start) == Some(piece))
    }
}

/// Returns Go's table of functions of the image of `mapping`, which is executable and mapped now.
/// `None`: it is no Go program.
pub fn go_table(
    memory: &impl ReadMemory,
    maps: &Maps,
    mapping: &Mapping,
    pid: u32,
) -> Option<GoTable> {
    let first = maps.loaded_with(mapping).first()?;
    let elf = ElfFile::read(&|at, buf| memory.read(first.start + at, buf))?;
    let bias = elf.bias(mapping)?;
    GoTable::find(memory, &elf.loaded(memory, bias), mapping, pid)
}

fn read_at(file: &File, at: u64, buf: &mut [u8]) -> usize {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], at.saturating_add(done as u64)) {
            Ok(0) | Err(_) => break,
            Ok(n) => done += n,
        }
    }
    done
}

/// An ELF file, in memory or on disk.
struct ElfFile {
    headers: Headers,
}

impl ElfFile {
    /// `None` for anything but a 64-bit little-endian x86-64 ELF file.
    fn read(read: &ReadAt<'_>) -> Option<ElfFile> {
        let headers = Headers::read(read)?;
        (headers.machine == EM_X86_64).then_some(ElfFile { headers })
    }

    /// Returns the difference between addresses in the process and in the file, from an executable
    /// mapping of it.
    fn bias(&self, mapping: &Mapping) -> Option<u64> {
        let code = self.headers.segments.iter().find(|s| {
            let from = s.offset & !(PAGE - 1);
            s.kind == PT_LOAD
                && s.flags & PF_X != 0
                && from <= mapping.offset
                && mapping.offset < s.offset.saturating_add(s.file_size)
        })?;
        let shift = code.address.wrapping_sub(code.offset);
        Some(mapping.start.wrapping_sub(mapping.offset).wrapping_sub(shift))
    }

    /// Returns the properties that the search for Go's table needs.
    fn loaded(&self, memory: &impl ReadMemory, bias: u64) -> Loaded {
        let segments = |code: bool| {
            let wanted = self
                .headers
                .segments
                .iter()
                .filter(move |s| s.kind == PT_LOAD && (s.flags & PF_X != 0) == code);
            wanted.map(|s| (bias.wrapping_add(s.address), s.file_size)).collect()
        };
        let has = |kind| self.headers.segments.iter().any(|s| s.kind == kind);
        Loaded {
            bias,
            likely: self.has_go_note(memory, bias) || !has(PT_GNU_EH_FRAME),
            // One that is static and moved about looks like a library.
            program: self.headers.kind == ET_EXEC || has(PT_INTERP),
            code: segments(true),
            data: segments(false),
        }
    }

    /// Whether there is the note of Go's linker: owner `Go`, kind 4.
    fn has_go_note(&self, memory: &impl ReadMemory, bias: u64) -> bool {
        const NOTE: [u8; 16] = *b"\x04\0\0\0....\x04\0\0\0Go\0\0";
        self.headers.segments.iter().filter(|s| s.kind == PT_NOTE).any(|s| {
            let mut notes = [0; 512];
            let read = memory.read(bias.wrapping_add(s.address), &mut notes);
            let is_note = |w: &[u8]| w[..4] == NOTE[..4] && w[8..] == NOTE[8..];
            notes[..read].windows(NOTE.len()).step_by(4).any(is_note)
        })
    }

    /// Returns the lowest loaded address.
    fn base(&self, bias: u64) -> Option<u64> {
        let lowest = self
            .headers
            .segments
            .iter()
            .filter(|s| s.kind == PT_LOAD)
            .map(|s| s.address & !(PAGE - 1))
            .min()?;
        Some(bias.wrapping_add(lowest))
    }

    fn tables_in_memory(&self, memory: &impl ReadMemory, bias: u64, budget: u64) -> Option<Tables> {
        let hdr = self
            .headers
            .segments
            .iter()
            .find(|s| s.kind == PT_GNU_EH_FRAME && s.memory_size <= TABLE_MAX.min(budget))?;
        let hdr_at = bias.wrapping_add(hdr.address);
        let read = |at: u64, buf: &mut [u8]| memory.read(at, buf);
        let hdr = read_some(&read, hdr_at, hdr.memory_size)?;
        Tables::from_hdr(self.base(bias)?, &hdr, hdr_at, |at, wanted| {
            let segment = self.headers.segments.iter().find(|s| {
                let start = bias.wrapping_add(s.address);
                s.kind == PT_LOAD && at.checked_sub(start).is_some_and(|o| o < s.file_size)
            })?;
            let left = segment.file_size - (at - bias.wrapping_add(segment.address));
            read_some(&read, at, left.min(wanted).min(TABLE_MAX).min(budget))
        })
    }

    fn tables_in_file(&self, read: &ReadAt<'_>, bias: u64) -> Option<Tables> {
        let sections = self.headers.sections(read, SECTIONS_MAX)?;
        let section = sections.iter().find(|section| {
            section.name == ".eh_frame"
                && section.kind != SHT_NOBITS
                && section.flags & SHF_COMPRESSED == 0
        })?;
        let eh_frame = read_some(read, section.offset, section.size.min(TABLE_MAX))?;
        Tables::from_eh_frame(self.base(bias)?, eh_frame, bias.wrapping_add(section.address))
    }
}
