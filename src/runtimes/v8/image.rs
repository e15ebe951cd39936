//! The mapped file that contains V8: `node`, `libnode.so`, or another program. Its constants, and
//! its built-in code.
//!
//! All is read from the image in memory. No file is opened.

use crate::process::maps::{Backing, Mapping, Maps};
use crate::process::memory::ReadMemory;
use crate::runtimes::dynsym::Exports;
use crate::runtimes::v8::builtins::Table;
use crate::runtimes::v8::bytecode_sizes::Version;
use crate::runtimes::v8::layout::Layout;
use crate::runtimes::v8::unreadable::Unreadable;

/// The name of Node's program, and the beginning of its library's.
const PROGRAM: &str = "node";
const LIBRARY: &str = "libnode.so";
/// A symbol that every V8 with constants for debuggers exports.
const EXPORTED: &str = "v8dbg_SmiShiftSize";
/// Its value where pointers are not compressed.
const WHOLE_POINTERS: i32 = 31;

/// Maximum images that were searched in vain and are remembered.
const SEARCHED_MAX: usize = 64;

/// What identifies a mapped file at its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key {
    start: u64,
    device: (u32, u32),
    inode: u64,
}

/// The search for V8 in a process. Files that were searched are remembered.
#[derive(Default)]
pub struct Search {
    without: Vec<Key>,
    found: Option<Key>,
}

impl Search {
    /// Returns where the first byte of the file is mapped that has V8, if there is one.
    pub fn find<M: ReadMemory>(&mut self, memory: &M, maps: &Maps) -> Option<u64> {
        candidates(maps).find(|mapping| self.has(memory, mapping)).map(|mapping| mapping.start)
    }

    fn has<M: ReadMemory>(&mut self, memory: &M, mapping: &Mapping) -> bool {
        let Mapping { start, device, inode, .. } = *mapping;
        let key = Key { start, device, inode };
        if self.found == Some(key) {
            return true;
        }
        if self.without.contains(&key) {
            return false;
        }
        // While a library is being loaded its exports cannot be read yet.
        let Some(exports) = Exports::of(memory, start) else { return false };
        if exports.find(EXPORTED).is_some() {
            self.found = Some(key);
            return true;
        }
        if self.without.len() >= SEARCHED_MAX {
            self.without.clear();
        }
        self.without.push(key);
        false
    }
}

/// Returns the mapped files that may have V8: by their names, and the program that runs, which is
/// nearly always the first one in memory.
fn candidates(maps: &Maps) -> impl Iterator<Item = &Mapping> {
    let first = |mapping: &&Mapping| mapping.offset == 0 && mapping.backing == Backing::File;
    let named = |mapping: &&Mapping| {
        let name = mapping.path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name == PROGRAM || name.starts_with(LIBRARY))
    };
    maps.iter().filter(first).filter(named).chain(maps.iter().find(first))
}

/// Reads the constants of the V8 whose file is mapped at `image`.
pub fn layout<M: ReadMemory>(memory: &M, image: u64) -> Result<Layout, Unreadable> {
    let exports = Exports::of(memory, image).ok_or(Unreadable::Starting("exported symbols"))?;
    let number = |name: &str| {
        let mut bytes = [0; 4];
        memory.read_exact(exports.find(name)?, &mut bytes)?;
        Some(i32::from_le_bytes(bytes))
    };
    let version = version(&number).ok_or_else(|| {
        Unreadable::Refused("it does not export the version of its V8".to_owned())
    })?;
    let constant = |name: &str| number(&format!("v8dbg_{name}"));
    if constant("SmiShiftSize") != Some(WHOLE_POINTERS) {
        return Err(Unreadable::Refused("its V8 compresses pointers".into()));
    }
    Layout::of(version, &constant)
}

fn version(number: &impl Fn(&str) -> Option<i32>) -> Option<Version> {
    let part = |name: &str| number(&format!("_ZN2v88internal7Version{name}E"));
    Some((part("6major_")?, part("6minor_")?))
}

/// Functions that return where the built-in code is, and where its table is.
const BLOB: [&str; 2] = [
    "_ZN2v88internal7Isolate23CurrentEmbeddedBlobCodeEv",
    "_ZN2v88internal7Isolate23CurrentEmbeddedBlobDataEv",
];
/// A function of V8's interface that calls both of them.
const CALLER: &str = "_ZN2v87Isolate20GetEmbeddedCodeRangeEPPKvPm";
/// Bytes of that function in which its calls are.
const CALLER_SIZE: usize = 96;

/// Returns V8's built-in code.
pub fn builtins<M: ReadMemory>(memory: &M, image: u64) -> Result<Table, Unreadable> {
    let exports = Exports::of(memory, image).ok_or(Unreadable::Starting("exported symbols"))?;
    let exported = BLOB.iter().filter_map(|name| exports.find(name));
    let mut functions: Vec<u64> = exported.collect();
    if functions.len() < BLOB.len() {
        functions = exports.find(CALLER).map_or(Vec::new(), |caller| calls(memory, caller));
    }
    let pointers: Vec<u64> =
        functions.iter().filter_map(|function| returned(memory, *function)).collect();
    if pointers.contains(&0) {
        return Err(Unreadable::Starting("built-in code"));
    }
    // Which of them is the table shows in what it says.
    let pairs = pointers.iter().flat_map(|code| pointers.iter().map(move |data| (*code, *data)));
    pairs
        .filter(|(code, data)| code != data)
        .find_map(|(code, data)| Table::read(memory, code, data))
        .ok_or_else(|| Unreadable::Refused("its built-in code was not found".into()))
}

/// Returns the functions that the function at `caller` calls directly.
fn calls<M: ReadMemory>(memory: &M, caller: u64) -> Vec<u64> {
    let mut code = [0; CALLER_SIZE];
    let length = memory.read(caller, &mut code);
    let found = code[..length].windows(5).enumerate().filter(|(_, bytes)| bytes[0] == 0xe8);
    found.map(|(at, bytes)| relative(caller + at as u64 + 5, &bytes[1..])).collect()
}

/// Returns the pointer that a function returns which does nothing else: `mov rax, [rip + N]`.
fn returned<M: ReadMemory>(memory: &M, function: u64) -> Option<u64> {
    let mut code = [0; 24];
    let length = memory.read(function, &mut code);
    let code = &code[..length];
    let at = code.windows(7).take(9).position(|bytes| bytes[..3] == [0x48, 0x8b, 0x05])?;
    // It returns directly behind that.
    code.get(at + 7..)?.iter().take(6).find(|byte| **byte == 0xc3)?;
    memory.read_u64(relative(function + at as u64 + 7, &code[at + 3..at + 7]))
}

fn relative(from: u64, distance: &[u8]) -> u64 {
    let distance = i32::from_le_bytes(distance.try_into().expect("4 bytes"));
    from.wrapping_add_signed(distance.into())
}
