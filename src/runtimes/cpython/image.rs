//! The mapped file that has the interpreter, `libpython3.N.so` or the program itself: where its
//! data is, its version, and the function that executes Python's frames.
//!
//! All is read from the image in memory. No file is opened.

use std::ops::Range;

use crate::elf::{Headers, PT_GNU_EH_FRAME, PT_LOAD, u32_at};
use crate::process::maps::{Backing, Mapping, Maps};
use crate::process::memory::ReadMemory;
use crate::runtimes::cpython::described::DESCRIPTION;
use crate::runtimes::cpython::layout::{Layout, Version};
use crate::runtimes::cpython::unreadable::Unreadable;
use crate::runtimes::dynsym::Exports;

/// The name of a shared library of CPython has this in it.
const LIBRARY: &str = "libpython3.";
/// The name of CPython's own program begins with this.
const PROGRAM: &str = "python";
/// The interpreter's data, and the function that executes Python's frames.
const RUNTIME: &str = "_PyRuntime";
const EVALUATION: &str = "_PyEval_EvalFrameDefault";

/// Maximum images that were searched in vain and are remembered.
const SEARCHED_MAX: usize = 64;
/// Maximum searches in turn for a library that is still being loaded; one is made every 10 ms.
const LOADING_MAX: u32 = 200;
/// Maximum bytes of data that are searched for the version; CPython 3.8 to 3.10 has 1 MiB.
const DATA_MAX: u64 = 16 << 20;
/// Bytes read at once of it.
const BLOCK: usize = 256 << 10;
/// Maximum functions of an image; CPython has some 15,000.
const FUNCTIONS_MAX: u32 = 1 << 18;
/// The function that executes frames is at least this long, bytes: it has 34,000 to 85,000. Where
/// the exported one is shorter than the second number it is only the beginning.
const EVALUATION_MIN: u64 = 32 << 10;
const BEGINNING_MAX: u64 = 8 << 10;
/// Maximum functions whose length is read to find the longest one.
const LONGEST_TRIED: usize = 16;

/// What identifies a mapped file at its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key {
    start: u64,
    device: (u32, u32),
    inode: u64,
}

/// A mapped file that has an interpreter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// Where its first byte is mapped.
    pub start: u64,
    /// Address of `_PyRuntime`.
    pub runtime: u64,
    /// The minor version in its name.
    minor: Option<u8>,
    /// Its writable memory.
    data: Vec<Range<u64>>,
}

/// The search for the image in a process. Files that were searched are remembered.
#[derive(Default)]
pub struct Search {
    without: Vec<Key>,
    found: Option<(Key, u64)>,
    /// How often in turn a library was mapped whose exports could not be read yet.
    loading: u32,
}

impl Search {
    /// Returns the image of the interpreter, if there is one.
    pub fn find<M: ReadMemory>(&mut self, memory: &M, maps: &Maps) -> Option<Image> {
        let before = self.loading;
        let found = candidates(maps).find_map(|mapping| {
            let runtime = self.runtime(memory, mapping)?;
            Some(Image {
                start: mapping.start,
                runtime,
                minor: minor_of(mapping),
                data: data(maps, mapping),
            })
        });
        // Its mapping may have been tried twice.
        self.loading = if self.loading == before { 0 } else { before.saturating_add(1) };
        found
    }

    /// Whether a library was found that may have the interpreter, and that is still being loaded:
    /// no report of new code follows when it is.
    pub fn is_loading(&self) -> bool {
        (1..LOADING_MAX).contains(&self.loading)
    }

    fn runtime<M: ReadMemory>(&mut self, memory: &M, mapping: &Mapping) -> Option<u64> {
        let Mapping { start, device, inode, .. } = *mapping;
        let key = Key { start, device, inode };
        if let Some((_, runtime)) = self.found.filter(|(found, _)| *found == key) {
            return Some(runtime);
        }
        if self.without.contains(&key) {
            return None;
        }
        let Some(exports) = Exports::of(memory, start) else {
            let is_library = name_of(mapping).is_some_and(|name| name.contains(LIBRARY));
            self.loading = self.loading.saturating_add(is_library.into());
            return None;
        };
        let runtime = exports.find(RUNTIME);
        match runtime {
            Some(runtime) => self.found = Some((key, runtime)),
            None => {
                if self.without.len() >= SEARCHED_MAX {
                    self.without.clear();
                }
                self.without.push(key);
            }
        }
        runtime
    }
}

/// Returns the mapped files that may have an interpreter: libraries and programs by their names,
/// and the program that runs, which is nearly always the first one in memory.
pub fn candidates(maps: &Maps) -> impl Iterator<Item = &Mapping> {
    let first = |mapping: &&Mapping| mapping.offset == 0 && mapping.backing == Backing::File;
    let named = |is: fn(&str) -> bool| {
        let named = move |mapping: &&Mapping| name_of(mapping).is_some_and(is);
        maps.iter().filter(first).filter(named)
    };
    named(|name| name.contains(LIBRARY))
        .chain(named(|name| name.starts_with(PROGRAM)))
        .chain(maps.iter().find(first))
}

fn name_of(mapping: &Mapping) -> Option<&str> {
    mapping.path.file_name()?.to_str()
}

/// Returns the minor version in a name like `libpython3.9.so.1.0` or `python3.9`.
fn minor_of(mapping: &Mapping) -> Option<u8> {
    let (_, behind) = name_of(mapping)?.split_once("python3.")?;
    let end = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
    behind[..end].parse().ok()
}

/// Returns the image's writable memory, with that behind it that is zero when it is loaded.
fn data(maps: &Maps, mapping: &Mapping) -> Vec<Range<u64>> {
    let loaded = maps.loaded_with(mapping);
    let mut data: Vec<_> = loaded.iter().filter(|m| m.writable).map(|m| m.start..m.end).collect();
    let end = loaded.last().map_or(mapping.end, |last| last.end);
    data.extend(
        maps.find(end)
            .filter(|m| m.start == end && m.backing == Backing::Anonymous && m.writable)
            .map(|m| m.start..m.end),
    );
    data
}

impl Image {
    /// Returns an image for tests.
    #[cfg(test)]
    pub fn made_up(start: u64, runtime: u64, minor: Option<u8>, data: Range<u64>) -> Image {
        Image { start, runtime, minor, data: [data].into() }
    }

    /// Returns its writable memory.
    pub fn data(&self) -> &[Range<u64>] {
        &self.data
    }

    /// Returns the version, and the layout of its structures.
    pub fn layout<M: ReadMemory>(&self, memory: &M) -> Result<(Version, Layout), Unreadable> {
        let mut description = vec![0; DESCRIPTION];
        let length = memory.read(self.runtime, &mut description);
        description.truncate(length);
        if let Some(described) = Layout::described(&description) {
            return Ok(described);
        }
        let version = Version::described(&description)
            .or_else(|| self.exported_version(memory))
            .or_else(|| self.written_version(memory))
            .or_else(|| self.minor.map(Version::of_minor))
            .ok_or_else(|| Unreadable::Refused("its version is not known".into()))?;
        let layout = Layout::known(version).ok_or_else(|| {
            Unreadable::Refused(format!("the layout of version {} is not known", version.words()))
        })?;
        Ok((version, layout))
    }

    /// Returns the version that is exported since 3.11.
    fn exported_version<M: ReadMemory>(&self, memory: &M) -> Option<Version> {
        let at = Exports::of(memory, self.start)?.find("Py_Version")?;
        let mut version = [0; 4];
        memory.read_exact(at, &mut version)?;
        Some(Version(u32::from_le_bytes(version)))
    }

    /// Searches the data for the text that `Py_GetVersion` makes: `3.9.18 (main, ...`.
    fn written_version<M: ReadMemory>(&self, memory: &M) -> Option<Version> {
        /// Longest beginning of the text that has the version.
        const TEXT_MAX: usize = 16;
        let mut left = DATA_MAX;
        let mut block = vec![0; BLOCK + TEXT_MAX];
        for Range { start, end } in &self.data {
            let mut at = *start;
            while at < *end && left > 0 {
                let wanted = ((end - at) as usize).min(block.len());
                let length = memory.read(at, &mut block[..wanted]);
                let bytes = &block[..length];
                let digits = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'3');
                let mut texts = digits.filter_map(|(at, _)| bytes.get(at..at + TEXT_MAX));
                let text = texts.find_map(Version::written);
                if text.is_some() {
                    return text;
                }
                at += BLOCK as u64;
                left = left.saturating_sub(BLOCK as u64);
            }
        }
        None
    }

    /// Returns the address ranges of the native function that executes Python's frames. In some
    /// builds the exported symbol is only its beginning. The rest is a function without a symbol,
    /// the longest of the file.
    pub fn evaluation<M: ReadMemory>(&self, memory: &M) -> Vec<Range<u64>> {
        let find = || {
            let exported = Exports::of(memory, self.start)?.find(EVALUATION);
            let functions = Functions::read(memory, self.start)?;
            let exported = exported.and_then(|at| functions.around(memory, at));
            let mut found: Vec<_> = exported.into_iter().collect();
            if found.iter().all(|range| range.end - range.start < BEGINNING_MAX) {
                found.extend(functions.longest(memory));
            }
            Some(found)
        };
        find().unwrap_or_default()
    }
}

/// The functions of an image, by the search table of its unwind information (`.eh_frame_hdr`).
pub struct Functions {
    /// Start of a function, address of its entry; by start.
    entries: Vec<(u64, u64)>,
}

impl Functions {
    pub fn read<M: ReadMemory>(memory: &M, image: u64) -> Option<Functions> {
        let read =
            |at: u64, buf: &mut [u8]| image.checked_add(at).map_or(0, |at| memory.read(at, buf));
        let segments = Headers::read(&read)?.segments;
        let address = |kind| segments.iter().find(|s| s.kind == kind).map(|s| s.address);
        let table = image.wrapping_sub(address(PT_LOAD)?).wrapping_add(address(PT_GNU_EH_FRAME)?);
        let mut head = [0; 12];
        memory.read_exact(table, &mut head)?;
        // Version 1; how `.eh_frame`, the number of entries and the entries are written (DW_EH_PE):
        // relative to here, unsigned, relative to this table. All linkers write it so.
        if head[..4] != [1, 0x1b, 0x03, 0x3b] {
            return None;
        }
        let count = u32_at(&head, 8)?.min(FUNCTIONS_MAX);
        let mut bytes = vec![0; 8 * count as usize];
        let length = memory.read(table.checked_add(12)?, &mut bytes);
        let place = |bytes: &[u8]| {
            let distance = i32::from_le_bytes(bytes.try_into().expect("4 bytes"));
            table.wrapping_add_signed(distance.into())
        };
        let entry = |entry: &[u8]| (place(&entry[..4]), place(&entry[4..]));
        let mut entries: Vec<_> = bytes[..length].chunks_exact(8).map(entry).collect();
        entries.sort_unstable();
        Some(Functions { entries })
    }

    /// Returns the range of the function that contains this address.
    pub fn around<M: ReadMemory>(&self, memory: &M, address: u64) -> Option<Range<u64>> {
        let after = self.entries.partition_point(|(start, _)| *start <= address);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        range(memory, *entry).filter(|range| range.contains(&address))
    }

    /// Returns the range of the longest function, if it is long enough.
    pub fn longest<M: ReadMemory>(&self, memory: &M) -> Option<Range<u64>> {
        // A function is at most as long as it is to the next one.
        let mut rooms: Vec<(u64, usize)> = self
            .entries
            .windows(2)
            .enumerate()
            .map(|(at, pair)| (pair[1].0 - pair[0].0, at))
            .filter(|(room, _)| *room >= EVALUATION_MIN)
            .collect();
        rooms.sort_unstable_by(|a, b| b.cmp(a));
        let last = self.entries.len().checked_sub(1);
        let tried = rooms.into_iter().take(LONGEST_TRIED).map(|(_, at)| at).chain(last);
        let ranges = tried.filter_map(|at| range(memory, self.entries[at]));
        ranges
            .filter(|range| range.end - range.start >= EVALUATION_MIN)
            .max_by_key(|range| range.end - range.start)
    }
}

/// Reads the range of a function from its entry: length, distance of the common part, start
/// relative to its own place, length of the function; each has 4 bytes.
fn range<M: ReadMemory>(memory: &M, (start, entry): (u64, u64)) -> Option<Range<u64>> {
    let mut head = [0; 16];
    memory.read_exact(entry, &mut head)?;
    let distance = u32_at(&head, 8)?.cast_signed();
    let own = entry.wrapping_add(8).wrapping_add_signed(distance.into());
    let end = start.checked_add(u32_at(&head, 12)?.into())?;
    (own == start).then_some(start..end)
}
