//! The mappings of a process (`/proc/PID/maps`), and which of them contain code or a stack.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::model::vocabulary::frame::FileId;
use crate::process::mapped_files::{FileKind, Files, MappedFile};
use crate::process::target;

/// Maximum mappings kept of one process; vm.max_map_count is 65,530 unless raised (databases raise
/// it to 262,144).
pub const MAPPINGS_MAX: usize = 1 << 18;
/// Maximum bytes of `/proc/PID/maps` read.
const TEXT_MAX: u64 = 64 << 20;
/// Bytes of the text for which memory is reserved.
const TEXT_USUAL: usize = 64 << 10;
/// Maximum length of a line. A path is at most PATH_MAX (4096) bytes, each escaped as up to four.
const LINE_MAX: usize = 4 * 4096 + 128;

/// What a mapping maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// A file with an inode: on disk, deleted, or in memory (memfd, shared memory).
    File,
    Vdso,
    /// The page of the old system calls, at the same address in every process.
    Vsyscall,
    /// The main thread's stack: it grows downward automatically.
    MainStack,
    Anonymous,
}

/// One line of `/proc/PID/maps`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    /// File offset of `start`; 0 where there is no file.
    pub offset: u64,
    pub device: (u32, u32),
    pub inode: u64,
    pub backing: Backing,
    /// Without ` (deleted)`, line breaks unescaped; empty for most anonymous memory.
    pub path: Arc<Path>,
    pub deleted: bool,
}

impl Mapping {
    pub fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    fn same_file(&self, other: &Mapping) -> bool {
        self.backing == other.backing
            && self.inode == other.inode
            && self.device == other.device
            && (Arc::ptr_eq(&self.path, &other.path) || self.path == other.path)
    }

    /// Returns the offset that frames at `address` carry beside the file's id: in the file, or from
    /// the region's start.
    pub fn offset_of(&self, address: u64) -> u64 {
        let from_start = address.wrapping_sub(self.start);
        if self.backing == Backing::File {
            self.offset.wrapping_add(from_start)
        } else {
            from_start
        }
    }

    /// Returns the entry for the registry of files.
    pub fn mapped_file(&self, pid: u32) -> MappedFile {
        let kind = match self.backing {
            Backing::File => FileKind::Regular,
            Backing::Vdso => FileKind::Vdso,
            Backing::Vsyscall | Backing::MainStack | Backing::Anonymous => FileKind::Anonymous,
        };
        MappedFile {
            kind,
            pid,
            path: self.path.to_path_buf(),
            deleted: self.deleted,
            device: self.device,
            inode: self.inode,
            start: self.start,
            end: self.end,
            offset: self.offset,
        }
    }
}

/// All mappings of a process at one moment, by address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Maps {
    mappings: Vec<Mapping>,
    /// There were more than [`MAPPINGS_MAX`] mappings, or invalid lines.
    incomplete: bool,
}

impl Maps {
    /// Reads `/proc/PID/maps`; where the leader is a zombie, those of a living thread. Empty for a
    /// process without memory (kernel thread, zombie).
    pub fn read(pid: u32) -> io::Result<Maps> {
        let maps = Maps::read_as(pid)?;
        if maps.mappings.is_empty()
            && let Some(other) = target::thread_with_memory(pid)
            && other != pid
        {
            return Maps::read_as(other);
        }
        Ok(maps)
    }

    fn read_as(id: u32) -> io::Result<Maps> {
        // The kernel fills at most a page at each call, a growing vector asks for less.
        let mut text = Vec::with_capacity(TEXT_USUAL);
        File::open(format!("/proc/{id}/maps"))?.take(TEXT_MAX).read_to_end(&mut text)?;
        Ok(Maps::parse(&text))
    }

    /// Parses the text of `/proc/PID/maps`. Invalid lines are skipped.
    pub fn parse(text: &[u8]) -> Maps {
        let mut maps = Maps { mappings: Vec::new(), incomplete: text.len() as u64 >= TEXT_MAX };
        let nothing: Arc<Path> = Arc::from(Path::new(""));
        for line in text.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            if maps.mappings.len() == MAPPINGS_MAX {
                maps.incomplete = true;
                break;
            }
            let before = maps.mappings.last();
            match parse_line(line, before.map_or(&nothing, |m| &m.path), &nothing) {
                // The file is read in pieces while the process runs on: overlapping mappings have
                // moved meanwhile.
                Some(mapping) if before.is_none_or(|b| b.end <= mapping.start) => {
                    maps.mappings.push(mapping)
                }
                _ => maps.incomplete = true,
            }
        }
        maps
    }

    pub fn is_empty(&self) -> bool {
        self.mappings.is_empty()
    }

    pub fn incomplete(&self) -> bool {
        self.incomplete
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Mapping> {
        self.mappings.iter()
    }

    /// Returns the mapping that contains `address`.
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        self.index_of(address).map(|i| &self.mappings[i])
    }

    fn index_of(&self, address: u64) -> Option<usize> {
        let after = self.mappings.partition_point(|m| m.start <= address);
        let index = after.checked_sub(1)?;
        self.mappings[index].contains(address).then_some(index)
    }

    pub fn find_code(&self, address: u64) -> Option<&Mapping> {
        self.find(address).filter(|m| m.executable)
    }

    /// Returns the mapping that contains `address`, and its end; or `None`, and where the next one
    /// begins.
    pub fn piece(&self, address: u64) -> (Option<&Mapping>, u64) {
        let after = self.mappings.partition_point(|m| m.start <= address);
        match after.checked_sub(1).map(|i| &self.mappings[i]) {
            Some(mapping) if mapping.contains(address) => (Some(mapping), mapping.end),
            _ => (None, self.mappings.get(after).map_or(u64::MAX, |next| next.start)),
        }
    }

    /// Returns the mapping of the stack that contains this stack pointer: readable and writable. An
    /// address just under the main stack belongs to it too, as that may have grown since the maps
    /// were read.
    pub fn stack_of(&self, sp: u64) -> Option<&Mapping> {
        if let Some(mapping) = self.find(sp) {
            return (mapping.readable && mapping.writable).then_some(mapping);
        }
        let above = &self.mappings.get(self.mappings.partition_point(|m| m.start <= sp))?;
        /// Maximum growth of the main stack since: its limit is 8 MiB by default.
        const GROWTH: u64 = 8 << 20;
        (above.backing == Backing::MainStack && above.start - sp <= GROWTH).then_some(*above)
    }

    /// Returns all mappings of the file that `mapping` maps, as it was loaded there: from the
    /// nearest one at or below that begins at offset 0, with rising offsets. Empty if there is no
    /// such beginning.
    pub fn loaded_with(&self, mapping: &Mapping) -> &[Mapping] {
        let Some(at) = self.index_of(mapping.start) else { return &[] };
        let mut first = at;
        // Maximum other mappings between the pieces (anonymous memory for .bss, text remapped to
        // huge pages).
        const GAPS: usize = 64;
        // Maximum pieces: no loader creates more mappings than this. Programs that generate code
        // map one file in thousands of pieces, and this function is called often.
        const PIECES: usize = 256;
        let mut gaps = 0;
        for i in (0..=at).rev().take(PIECES) {
            let m = &self.mappings[i];
            if m.same_file(mapping) {
                if m.offset > self.mappings[first].offset {
                    break;
                }
                first = i;
                if m.offset == 0 {
                    break;
                }
            } else {
                gaps += 1;
                if gaps > GAPS {
                    break;
                }
            }
        }
        if self.mappings[first].offset != 0 {
            return &[];
        }
        let mut last = at;
        for (i, m) in self.mappings.iter().enumerate().skip(at + 1).take(GAPS) {
            if m.same_file(mapping) {
                if m.offset < self.mappings[last].offset || m.offset == 0 {
                    break;
                }
                last = i;
            }
        }
        &self.mappings[first..=last]
    }

    /// Whether both have the same code at the same places.
    pub fn same_code(&self, other: &Maps) -> bool {
        let code = |maps: &'_ Maps| -> Vec<Mapping> {
            maps.iter().filter(|m| m.executable).cloned().collect()
        };
        code(self) == code(other)
    }

    /// Returns the file and offset that `address` executes in, registered in `files`; `None`
    /// outside executable mappings.
    pub fn locate(&self, address: u64, files: &Files, pid: u32) -> Option<(FileId, u64)> {
        let mapping = self.find_code(address)?;
        Some((files.register(mapping.mapped_file(pid))?, mapping.offset_of(address)))
    }
}

/// Parses `START-END PERMS OFFSET MAJOR:MINOR INODE   PATH`, all but the inode in hexadecimal.
/// `before` is the path of the previous line: the pieces of one file share it.
fn parse_line(line: &[u8], before: &Arc<Path>, nothing: &Arc<Path>) -> Option<Mapping> {
    if line.len() > LINE_MAX {
        return None;
    }
    let mut rest = line;
    let (start, end) = split(word(&mut rest)?, b'-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let perms = word(&mut rest)?;
    let offset = hex(word(&mut rest)?)?;
    let (major, minor) = split(word(&mut rest)?, b':')?;
    let device = (u32::try_from(hex(major)?).ok()?, u32::try_from(hex(minor)?).ok()?);
    let inode = std::str::from_utf8(word(&mut rest)?).ok()?.parse().ok()?;
    if start >= end || perms.len() < 4 {
        return None;
    }
    let path = rest.trim_ascii_start();
    let (path, deleted) = match path.strip_suffix(b" (deleted)") {
        Some(path) if inode != 0 => (path, true),
        _ => (path, false),
    };
    let backing = match path {
        _ if inode != 0 => Backing::File,
        b"[vdso]" => Backing::Vdso,
        b"[vsyscall]" => Backing::Vsyscall,
        b"[stack]" => Backing::MainStack,
        _ => Backing::Anonymous,
    };
    let path = if path.is_empty() {
        nothing.clone()
    } else if path == before.as_os_str().as_bytes() {
        before.clone()
    } else {
        Arc::from(unescape(path))
    };
    Some(Mapping {
        start,
        end,
        readable: perms[0] == b'r',
        writable: perms[1] == b'w',
        executable: perms[2] == b'x',
        offset,
        device,
        inode,
        backing,
        path,
        deleted,
    })
}

fn word<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let text = rest.trim_ascii_start();
    let end = text.iter().position(|b| *b == b' ').unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    *rest = after;
    (!word.is_empty()).then_some(word)
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let i = text.iter().position(|b| *b == at)?;
    Some((&text[..i], &text[i + 1..]))
}

fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits
        .iter()
        .try_fold(0, |value, digit| Some(value << 4 | u64::from(char::from(*digit).to_digit(16)?)))
}

/// Unescapes a path. The kernel writes a line break as `\012`, and escapes nothing else
/// (fs/proc/task_mmu.c).
fn unescape(path: &[u8]) -> PathBuf {
    const BREAK: &[u8] = b"\\012";
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(byte) = rest.first() {
        if rest.starts_with(BREAK) {
            out.push(b'\n');
            rest = &rest[BREAK.len()..];
        } else {
            out.push(*byte);
            rest = &rest[1..];
        }
    }
    PathBuf::from(OsStr::from_bytes(&out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
55d0a1c00000-55d0a1c28000 r--p 00000000 fd:01 393 /usr/bin/ba sh
55d0a1c28000-55d0a1cd0000 r-xp 00028000 fd:01 393 /usr/bin/ba sh
55d0a1cd0000-55d0a1cd4000 rw-p 000d0000 fd:01 393 /usr/bin/ba sh
55d0a1cd4000-55d0a1ce0000 rw-p 00000000 00:00 0
55d0a2000000-55d0a2021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 rwxp 00000000 00:00 0
7f0000010000-7f0000020000 r-xs 00001000 00:01 77                         /memfd:jit (deleted)
7f0000030000-7f0000031000 r-xp 00000000 fd:01 400                        /tmp/a\\012b (deleted)
7ffd10000000-7ffd10021000 rw-p 00000000 00:00 0                          [stack]
7ffd10111000-7ffd10113000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn lines_are_understood() {
        let maps = Maps::parse(TEXT.as_bytes());
        assert!(!maps.incomplete());
        assert_eq!(maps.iter().len(), 11);
        let text = maps.find_code(0x55d0_a1c2_8010).unwrap();
        assert_eq!(text.path.as_os_str(), "/usr/bin/ba sh");
        assert_eq!((text.device, text.inode, text.backing), ((0xfd, 1), 393, Backing::File));
        assert_eq!(text.offset_of(0x55d0_a1c2_8010), 0x28010);
        assert_eq!(maps.find(0x55d0_a1c2_8000 - 1).unwrap().offset, 0);
        assert!(maps.find(0x55d0_a1ce_0000).is_none(), "the end is outside");
        assert!(maps.find_code(0x55d0_a1c0_0000).is_none(), "not executable");
        let memfd = maps.find(0x7f00_0001_0000).unwrap();
        assert_eq!((memfd.path.as_os_str(), memfd.deleted), ("/memfd:jit".as_ref(), true));
        assert_eq!(maps.find(0x7f00_0003_0000).unwrap().path.as_os_str(), "/tmp/a\nb");
        assert_eq!(maps.find(0x7ffd_1011_1000).unwrap().backing, Backing::Vdso);
        assert_eq!(maps.find_code(0xffff_ffff_ff60_0400).unwrap().backing, Backing::Vsyscall);
        assert_eq!(maps.find(u64::MAX), None);
    }

    #[test]
    fn frames_are_located_in_registered_files() {
        let (maps, files) = (Maps::parse(TEXT.as_bytes()), Files::default());
        let (bash, offset) = maps.locate(0x55d0_a1c2_8010, &files, 9).unwrap();
        assert_eq!((files.get(bash).unwrap().kind, offset), (FileKind::Regular, 0x28010));
        let (jit, offset) = maps.locate(0x7f00_0000_0123, &files, 9).unwrap();
        assert_eq!((files.get(jit).unwrap().kind, offset), (FileKind::Anonymous, 0x123));
        let (vdso, offset) = maps.locate(0x7ffd_1011_1020, &files, 9).unwrap();
        assert_eq!((files.get(vdso).unwrap().kind, offset), (FileKind::Vdso, 0x20));
        assert_eq!(maps.locate(0x7ffd_1000_0000, &files, 9), None, "the stack is no code");
    }

    #[test]
    fn the_stack_of_an_address() {
        let maps = Maps::parse(TEXT.as_bytes());
        assert_eq!(maps.stack_of(0x7ffd_1000_0100).unwrap().backing, Backing::MainStack);
        assert_eq!(
            maps.stack_of(0x7ffd_0fff_ff00).unwrap().backing,
            Backing::MainStack,
            "grown since"
        );
        assert_eq!(maps.stack_of(0x7ffd_0000_0000), None, "too far below");
        assert_eq!(maps.stack_of(0x55d0_a1c2_8000), None, "code is no stack");
        assert!(
            maps.stack_of(0x55d0_a200_0008).is_some(),
            "a coroutine's stack may be on the heap"
        );
    }

    #[test]
    fn the_pieces_of_a_loaded_file() {
        let maps = Maps::parse(TEXT.as_bytes());
        let pieces = maps.loaded_with(maps.find(0x55d0_a1c2_8000).unwrap());
        assert_eq!(pieces.iter().map(|m| m.offset).collect::<Vec<_>>(), [0, 0x28000, 0xd0000]);
        let memfd = maps.loaded_with(maps.find(0x7f00_0001_0000).unwrap());
        assert!(memfd.is_empty(), "its beginning is not mapped");
        // The same file loaded twice, side by side.
        let twice = "1000-2000 r--p 0 8:1 5 /a\n2000-3000 r-xp 1000 8:1 5 /a\n\
                     3000-4000 r--p 0 8:1 5 /a\n4000-5000 r-xp 1000 8:1 5 /a\n";
        let maps = Maps::parse(twice.as_bytes());
        assert_eq!(maps.loaded_with(maps.find(0x2000).unwrap()).first().unwrap().start, 0x1000);
        assert_eq!(maps.loaded_with(maps.find(0x2000).unwrap()).len(), 2);
        assert_eq!(maps.loaded_with(maps.find(0x4000).unwrap()).first().unwrap().start, 0x3000);
    }

    #[test]
    fn a_file_in_thousands_of_pieces_is_not_gone_through_for_each() {
        let line = |n: u64| {
            format!(
                "{:x}-{:x} r-xp {:x} 8:1 5 /memfd:code\n",
                n << 12,
                (n + 1) << 12,
                (n - 1) << 12
            )
        };
        let maps = Maps::parse((1..60_001).map(line).collect::<String>().as_bytes());
        assert_eq!(maps.iter().len(), 60_000);
        assert_eq!(maps.loaded_with(maps.find(100 << 12).unwrap())[0].start, 1 << 12);
        assert!(
            maps.loaded_with(maps.find(1000 << 12).unwrap()).is_empty(),
            "its beginning is too far away"
        );
        // All of them, each back to the first, would be 2 billion steps.
        assert!(maps.iter().filter(|mapping| !maps.loaded_with(mapping).is_empty()).count() < 1000);
    }

    #[test]
    fn a_change_of_code_is_seen() {
        let maps = Maps::parse(TEXT.as_bytes());
        assert!(
            maps.same_code(&Maps::parse(TEXT.replace("55d0a2021000", "55d0a2921000").as_bytes())),
            "heap grew"
        );
        assert!(
            !maps.same_code(&Maps::parse(TEXT.replace("fd:01 400", "fd:01 401").as_bytes())),
            "another file"
        );
        assert!(
            !maps.same_code(&Maps::parse(
                TEXT.replace("7f0000030000-7f0000031000 r-xp", "7f0000030000-7f0000031000 r--p")
                    .as_bytes()
            ))
        );
    }

    #[test]
    fn this_process_is_read() {
        let maps = Maps::read(std::process::id()).unwrap();
        let here = this_process_is_read as fn() as usize as u64;
        assert!(maps.find_code(here).unwrap().path.is_absolute());
        let local = 0u64;
        assert!(maps.stack_of(&raw const local as u64).is_some());
        assert!(maps.iter().any(|m| m.backing == Backing::Vdso));
        assert!(Maps::read(1 << 23).is_err());
    }

    #[test]
    fn invalid_lines_are_skipped() {
        for line in [
            "",
            "-",
            "1000-",
            "2000-1000 r-xp 0 0:0 0",
            "1000-1000 r-xp 0 0:0 0",
            "1000-2000 r-x 0 0:0 0",
            "1000-2000 r-xp 0 0:0",
            "1000-2000 r-xp 0 00 0",
            "1000-2000 r-xp 0 0:0 -1",
            "11111111111111111-2000 r-xp 0 0:0 0",
            "é-2000 r-xp 0 0:0 0",
        ] {
            let maps = Maps::parse(line.as_bytes());
            assert!(maps.is_empty(), "{line:?}");
            assert_eq!(maps.incomplete(), !line.is_empty(), "{line:?}");
        }
        let overlapping = "1000-3000 r-xp 0 0:0 0\n2000-4000 r-xp 0 0:0 0\n";
        assert_eq!(Maps::parse(overlapping.as_bytes()).iter().len(), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_to_ordered_mappings(text in proptest::collection::vec(any::<u8>(), 0..4096)) {
            check(&Maps::parse(&text));
        }

        /// Damaged real text: more of it passes the first fields.
        #[test]
        fn damaged_lines_parse_to_ordered_mappings(
            hits in proptest::collection::vec((0..TEXT.len(), any::<u8>()), 0..40),
            cut in 0..TEXT.len(),
        ) {
            let mut text = TEXT.as_bytes().to_vec();
            for (at, byte) in hits {
                text[at] = byte;
            }
            check(&Maps::parse(&text[cut..]));
        }
    }

    fn check(maps: &Maps) {
        let mut end = 0;
        for mapping in maps.iter() {
            assert!(mapping.start >= end && mapping.start < mapping.end);
            end = mapping.end;
            assert_eq!(maps.find(mapping.start), Some(mapping));
            assert_eq!(maps.find(mapping.end - 1), Some(mapping));
            let _ = (
                maps.loaded_with(mapping),
                maps.stack_of(mapping.start),
                mapping.offset_of(mapping.end - 1),
            );
        }
    }
}
