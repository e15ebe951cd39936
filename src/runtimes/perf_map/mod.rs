//! Code of other JIT compilers, named by a *perf map*: a file `/tmp/perf-PID.map` of lines `START
//! SIZE NAME`. The program appends to it what it compiles (Node with --perf-basic-prof, .NET,
//! Erlang).
//!
//! ```text
//! code_ranges     address ranges of code
//! function_names  parses the names
//! ```
//!
//! The file is searched for on a thread of its own, which may hang on a remote file system. The
//! sampler reads it further only where it lies on a local one. Appended lines are read before
//! stacks are walked, so a name is the one that the code has then. Code that has just replaced
//! other code has no name: the stack may be from before.

mod code_ranges;
mod function_names;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use crate::model::vocabulary::frame::{Ns, RawFrame, RawName};
use crate::process::maps::{Backing, Mapping, Maps};
use crate::process::pid_namespaces::pid_inside;
use crate::process::target::{Status, unix_ns_of};
use crate::process::target_files::open_beneath;
use crate::process::{privileges, process_list};
use crate::runtimes::frame_and_thread_names::Names;
use crate::unwinder::{Detected, FrameSetup, Generated, Leave, Place};
use code_ranges::{ParsedName, Table};

/// Maximum bytes read of a map; a large program's has some 10 MB.
const FILE_MAX: u64 = 64 << 20;
/// Maximum bytes read at once, on the sampler's thread.
const CHUNK: usize = 256 << 10;
/// Minimum time between two reads of the map.
const READ_AGAIN: Duration = Duration::from_millis(1);
/// Maximum time between the copy of a stack and its walk.
const SETTLED: Duration = Duration::from_millis(100);
/// Maximum times a map may begin anew; after that it is untrusted.
const RESTARTS_MAX: u32 = 16;
/// Maximum length of a line with its numbers and name, bytes.
const LINE_MAX: usize = 8 << 10;
/// Longest pause before a process without a map is checked again: 10 ms, then twice as long each
/// time.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Maximum wait for the first answer: a blocked thread's stack is walked only once.
const FIRST: Duration = Duration::from_millis(200);

/// The perf map of a process.
pub struct PerfMap {
    file: File,
    names: Names,
    table: Table,
    /// Offset up to which the file was read, the end of a line.
    read: u64,
    restarts: u32,
    now: Instant,
    observed_at: Option<Instant>,
    /// Code of a file that is mapped a second time, and its distance from the first mapping. V8
    /// moves its builtins near to the code it generates, but writes their old addresses.
    again: Vec<(Range<u64>, u64)>,
    /// The map was read completely, so it is trusted.
    trusted: bool,
}

impl PerfMap {
    /// Creates the map of a file that may be read; nothing is read yet.
    pub fn new(file: File, names: Names) -> PerfMap {
        let now = Instant::now();
        PerfMap {
            file,
            names,
            table: Table::default(),
            read: 0,
            restarts: 0,
            now,
            observed_at: None,
            again: Vec::new(),
            trusted: false,
        }
    }

    /// Starts a walk at this time.
    pub fn begin_at(&mut self, now: Instant) {
        self.now = now;
        if self.observed_at.is_none_or(|at| self.now.duration_since(at) >= READ_AGAIN) {
            self.observed_at = Some(self.now);
            self.observe(CHUNK as u64);
        }
    }

    /// Reads up to `max` bytes of what was appended.
    fn observe(&mut self, max: u64) {
        self.trusted = false;
        let Ok(length) = self.file.metadata().map(|meta| meta.len()) else { return };
        if length < self.read {
            (self.read, self.restarts) = (0, self.restarts + 1);
            self.table.clear();
        }
        if length > FILE_MAX || self.restarts > RESTARTS_MAX {
            return;
        }
        let goal = length.min(self.read + max);
        // Usually nothing was appended.
        let mut bytes = if self.read < goal { vec![0; CHUNK] } else { Vec::new() };
        while self.read < goal {
            let Ok(count @ 1..) = self.file.read_at(&mut bytes, self.read) else { return };
            let Some(end) = bytes[..count].iter().rposition(|byte| *byte == b'\n') else {
                // The last line is still being written; a longer one is invalid.
                self.trusted = count < CHUNK;
                return;
            };
            let mut at = self.read;
            for line in bytes[..=end].split_inclusive(|byte| *byte == b'\n') {
                self.table.line(line, at, self.now);
                at += line.len() as u64;
            }
            self.read = at;
        }
        self.trusted = self.read >= length;
    }

    /// Returns the distance of the code at `pc` from its address in the map.
    fn moved(&self, pc: u64) -> u64 {
        self.again.iter().find(|(range, _)| range.contains(&pc)).map_or(0, |(_, by)| *by)
    }

    /// Returns the name of the code at `pc`.
    fn parsed_name(&mut self, pc: u64) -> Option<(u64, ParsedName)> {
        let piece = self.table.find_mut(pc)?;
        if let Some(parsed) = piece.parsed_name {
            return Some((piece.start, parsed));
        }
        let mut line = vec![0; LINE_MAX];
        let count = self.file.read_at(&mut line, piece.line).ok()?;
        let end = line[..count].iter().position(|byte| *byte == b'\n').unwrap_or(count);
        let (start, size, name) = code_ranges::parse(&line[..end])?;
        if (start, size) != (piece.start, piece.size) {
            return None;
        }
        let (location, setup) = function_names::read(name);
        let parsed = ParsedName { frame: self.names.frame(vec![location]), setup };
        piece.parsed_name = Some(parsed);
        Some((start, parsed))
    }
}

impl Generated for PerfMap {
    fn begin(&mut self, _: Ns, _: bool) {
        self.begin_at(Instant::now());
    }

    fn mapped(&mut self, maps: &Maps) {
        self.again = mapped_again(maps);
    }

    fn thread_names(&mut self, _: Option<&FxHashSet<u32>>) -> Vec<(u32, RawName)> {
        Vec::new()
    }

    fn covers(&self, pc: u64) -> bool {
        let settled = |replaced: Instant| self.now.saturating_duration_since(replaced) >= SETTLED;
        self.trusted
            && self
                .table
                .find(pc.wrapping_sub(self.moved(pc)))
                .is_some_and(|piece| piece.replaced.is_none_or(settled))
    }

    fn leave(
        &mut self,
        place: Place,
        _: &mut dyn FnMut(u64) -> Option<u64>,
        out: &mut Vec<RawFrame>,
    ) -> Leave {
        let address = if place.exact { place.pc } else { place.pc.wrapping_sub(1) };
        let moved = self.moved(address);
        match self.parsed_name(address.wrapping_sub(moved)) {
            Some((start, parsed)) => {
                out.push(parsed.frame);
                Leave::AsCode { start: start.wrapping_add(moved), setup: parsed.setup }
            }
            None => Leave::Unknown,
        }
    }
}

/// Looks for the map of a process until there is one.
#[derive(Default)]
pub struct Finder {
    asked: Option<Receiver<io::Result<PerfMap>>>,
    made: u32,
    next: Option<Instant>,
}

impl Finder {
    /// Returns the map if it was found. Otherwise it is searched for where the process has
    /// generated code.
    pub fn observe(&mut self, pid: u32, maps: &Maps, names: &Names) -> Detected {
        let now = Instant::now();
        let detected = |found: io::Result<PerfMap>| match found {
            Ok(map) => Detected::Runtime(Box::new(map)),
            Err(_) => Detected::Starting,
        };
        if let Some(asked) = &self.asked {
            return match asked.try_recv() {
                Err(TryRecvError::Empty) => Detected::Starting,
                answer => {
                    self.asked = None;
                    answer.map_or(Detected::Starting, detected)
                }
            };
        }
        if self.next.is_some_and(|next| now < next) {
            return Detected::Starting;
        }
        if !makes_code(maps) {
            return Detected::Nothing;
        }
        self.next =
            Some(now + (Duration::from_millis(10) * 2u32.pow(self.made.min(16))).min(PAUSE_MAX));
        self.made += 1;
        let (answer, asked) = channel();
        let names = names.clone();
        let finding = move || {
            let _ = answer.send(privileges::lower().and_then(|()| find(pid, names)));
        };
        if std::thread::Builder::new().name("perf map".into()).spawn(finding).is_err() {
            return Detected::Starting;
        }
        if self.made == 1
            && let Ok(found) = asked.recv_timeout(FIRST)
        {
            return detected(found);
        }
        self.asked = Some(asked);
        Detected::Starting
    }
}

/// Whether there is executable memory that no file on disk is mapped to.
fn makes_code(maps: &Maps) -> bool {
    maps.iter().any(|mapping| {
        mapping.executable
            && match mapping.backing {
                Backing::Anonymous => true,
                Backing::File => {
                    mapping.path.starts_with("/memfd:") || mapping.path.starts_with("/dev/shm")
                }
                Backing::Vdso | Backing::Vsyscall | Backing::MainStack => false,
            }
    })
}

/// Returns code of files that is mapped in two places: the higher one, and its distance from the
/// lower.
fn mapped_again(maps: &Maps) -> Vec<(Range<u64>, u64)> {
    /// Maximum mappings compared, each with each; no program has this number.
    const MAPPINGS_MAX: usize = 256;
    let is_code = |mapping: &&Mapping| mapping.executable && mapping.backing == Backing::File;
    let code: Vec<&Mapping> = maps.iter().filter(is_code).take(MAPPINGS_MAX).collect();
    let mut again = Vec::new();
    for (number, mapping) in code.iter().enumerate() {
        let first = code[..number].iter().find(|first| {
            (first.device, first.inode) == (mapping.device, mapping.inode)
                && (first.offset..first.offset + (first.end - first.start))
                    .contains(&mapping.offset)
        });
        if let Some(first) = first {
            let was = first.start + (mapping.offset - first.offset);
            again.push((
                mapping.start..mapping.end.min(mapping.start + (first.end - was)),
                mapping.start - was,
            ));
        }
    }
    again
}

/// Opens and reads the map that the process itself has written since it began, at its own path.
fn find(pid: u32, names: Names) -> io::Result<PerfMap> {
    let refused = |why| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let inside = pid_inside(pid).ok_or(io::ErrorKind::NotFound)?;
    let file = open_beneath(pid, Path::new(&format!("/tmp/perf-{inside}.map")))?;
    let meta = file.metadata()?;
    if !Status::read(pid)?.uids.contains(&meta.uid()) {
        return refused("another user's");
    }
    let stat = std::fs::read(format!("/proc/{pid}/stat"))?;
    let started =
        unix_ns_of(process_list::Stat::parse(&stat).ok_or(io::ErrorKind::InvalidData)?.start);
    let written = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
    // Times of files lag by a tick of the kernel; the start of a process has a resolution of 10 ms.
    if written + 100_000_000 < started {
        return refused("of a process of before");
    }
    if !is_local(&file)? {
        return refused("on a file system that may keep its readers waiting");
    }
    let mut map = PerfMap::new(file, names);
    // Existing lines were written at that time or before.
    let age = std::time::SystemTime::now().duration_since(meta.modified()?).unwrap_or_default();
    map.now = map.now.checked_sub(age.min(SETTLED)).unwrap_or(map.now);
    map.observe(FILE_MAX);
    Ok(map)
}

/// Whether reading the file waits for this machine's disks only.
fn is_local(file: &File) -> io::Result<bool> {
    // statfs(2): ext2 to ext4, xfs, btrfs, f2fs, zfs, bcachefs; tmpfs, ramfs; overlayfs, whose
    // writes go to one of these.
    const LOCAL: [u64; 9] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0xf2f5_2010,
        0x2fc1_2fc1,
        0xca45_1a4e,
        0x0102_1994,
        0x8584_58f6,
        0x794c_7630,
    ];
    let kind = rustix::fs::fstatfs(file)?.f_type as u64 & 0xffff_ffff;
    Ok(LOCAL.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn map(text: &str) -> (PerfMap, File) {
        let path = std::env::temp_dir().join(format!(
            "perf-map-test-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        let map = PerfMap::new(File::open(&path).expect("opened"), Names::default());
        std::fs::remove_file(&path).expect("removed");
        (map, file)
    }

    fn name(map: &mut PerfMap, pc: u64) -> Option<String> {
        if !map.covers(pc) {
            return None;
        }
        let (_, parsed) = map.parsed_name(pc.wrapping_sub(map.moved(pc)))?;
        Some(map.names.named(parsed.frame)?.locations[0].function.to_string())
    }

    /// Walks as the unwinder does, later.
    fn walk(map: &mut PerfMap) {
        map.observed_at = None;
        map.begin(Ns::MAX, false);
    }

    #[test]
    fn what_is_appended_is_read_line_by_line() {
        let (mut map, mut file) = map("1000 100 first\n2000 10");
        walk(&mut map);
        assert_eq!((name(&mut map, 0x10ff), name(&mut map, 0x2000)), (Some("first".into()), None));
        file.write_all(b"0 second\n").expect("written");
        walk(&mut map);
        assert_eq!(
            (name(&mut map, 0x10ff), name(&mut map, 0x20ff)),
            (Some("first".into()), Some("second".into()))
        );
    }

    #[test]
    fn code_in_the_place_of_other_code_is_unnamed_for_a_while() {
        let (mut map, mut file) = map("1000 100 first\n3000 100 other\n");
        walk(&mut map);
        assert_eq!(name(&mut map, 0x1000), Some("first".into()));
        file.write_all(b"1000 80 second\n").expect("written");
        walk(&mut map);
        assert_eq!((name(&mut map, 0x1000), name(&mut map, 0x3000)), (None, Some("other".into())));
        map.now += SETTLED;
        assert_eq!(name(&mut map, 0x1000), Some("second".into()));
    }

    #[test]
    fn a_map_that_begins_anew_is_read_anew_and_not_for_ever() {
        let (mut map, mut file) = map("1000 100 first\n2000 100 gone\n");
        walk(&mut map);
        for restart in 0..=RESTARTS_MAX + 1 {
            use std::io::Seek;
            file.set_len(0).expect("shortened");
            file.rewind().expect("rewound");
            walk(&mut map);
            assert_eq!(name(&mut map, 0x2000), None);
            file.write_all(format!("1000 100 again{restart}\n").as_bytes()).expect("written");
            walk(&mut map);
            let expected = (restart < RESTARTS_MAX).then(|| format!("again{restart}"));
            assert_eq!(name(&mut map, 0x1000), expected, "{restart}");
        }
    }

    #[test]
    fn a_map_over_the_size_limit_is_untrusted() {
        let (mut map, mut file) = map("1000 100 first\n");
        file.write_all(&vec![b'x'; 2 * CHUNK]).expect("written");
        walk(&mut map);
        walk(&mut map);
        assert_eq!(name(&mut map, 0x1000), None, "a line without an end");
        file.set_len(FILE_MAX + 1).expect("lengthened");
        walk(&mut map);
        assert_eq!(name(&mut map, 0x1000), None, "too long");
    }

    #[test]
    fn code_that_is_mapped_again_has_its_names_there() {
        let maps = "1000-3000 r-xp 00005000 fd:01 7 /node\n3000-4000 r--p 00000000 fd:01 7 /node\n\
                    9000-a000 r-xp 00006000 fd:01 7 /node\nb000-c000 r-xp 00006000 fd:01 8 /node\n\
                    d000-f000 r-xp 00006800 fd:01 7 /node\n";
        let (mut map, _file) = map("2000 100 builtin\n");
        map.mapped(&Maps::parse(maps.as_bytes()));
        walk(&mut map);
        let mut name = |pc| name(&mut map, pc);
        assert_eq!(
            [0x2010, 0x9010].map(&mut name),
            [Some("builtin".into()), Some("builtin".into())]
        );
        assert_eq!([0x1010, 0x9110, 0xb010, 0xd010].map(&mut name), [None, None, None, None]);
        let place = Place { pc: 0x9010, exact: true, sp: 0, rbp: None, general: None };
        let left = map.leave(place, &mut |_| None, &mut Vec::new());
        assert_eq!(left, Leave::AsCode { start: 0x9000, setup: FrameSetup::Plain });
        assert_eq!(map.again, [(0x9000..0xa000, 0x7000), (0xd000..0xd800, 0xa800)]);
    }

    #[test]
    fn a_line_that_has_changed_names_nothing() {
        let (mut map, file) = map("1000 100 first\n");
        walk(&mut map);
        file.write_at(b"1001", 0).expect("written");
        assert_eq!(map.parsed_name(0x1000).map(|(start, _)| start), None);
    }
}
