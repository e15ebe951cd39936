//! Labels of goroutines (`runtime/pprof.Do`, `SetGoroutineLabels`).
//!
//! A goroutine's structure has the address of a set of labels, or none. A program does not change a
//! set once a goroutine has it; it makes another one. So the set is of the instant at which the
//! address was read, if the goroutine still has that address afterwards, or could not run
//! meanwhile.
//!
//! Sets are lists since Go 1.24; before they are maps.

use std::collections::{HashMap, HashSet};

use crate::elf::u64_at;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::frame::RawFrame;
use crate::model::vocabulary::labels;
use crate::model::vocabulary::text::{NAME_CAP, clean_bytes};
use crate::process::maps::Maps;
use crate::process::memory::{Memory, ReadMemory};
use crate::runtimes::frame_and_thread_names::Names;
use crate::runtimes::go::detection::is_go;
use crate::runtimes::go::program::Program;

/// Maximum labels of a set; of one with more none is read.
pub const LABELS_MAX: usize = 16;
/// Maximum bytes of a key and of a value that are read.
pub const KEY_MAX: usize = 64;
pub const VALUE_MAX: usize = 184;
/// Stands for the rest of a longer text.
const REST: &str = "…";

/// Maximum offset of their address in a goroutine's structure, of which no more is read.
const OFFSET_MAX: u16 = 432;

/// Maximum keys of a process, and values of one key: a program may have a value for each request.
const KEYS_MAX: usize = 64;
const VALUES_MAX: usize = 200;
/// Maximum different sets of labels of a process.
const SETS_MAX: usize = 1000;

/// Where a program has the labels of its goroutines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LabelsLayout {
    /// In a goroutine's structure: the address of the set. Not 0.
    pub offset: u16,
    pub form: Form,
}

/// What a set of labels is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Map,
    List,
}

/// The labels of a goroutine, as they are in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum RawLabels {
    #[default]
    None,
    /// Keys and values, in any order.
    All(Vec<(Vec<u8>, Vec<u8>)>),
    /// They could not be read, or there are too many.
    Unknown,
}

/// Returns the part of a text that is shown. `bytes`: its beginning, at least `most` bytes of a
/// longer one; `size`: of the whole text.
pub fn shown_part(mut bytes: Vec<u8>, size: u64, most: usize) -> Vec<u8> {
    if size > most as u64 {
        bytes.truncate(most);
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            bytes.truncate(error.valid_up_to());
        }
        bytes.extend_from_slice(REST.as_bytes());
    }
    bytes
}

/// Finds where a program has labels. `None`: it sets none.
pub fn find<M: ReadMemory>(program: &Program<M>) -> Option<LabelsLayout> {
    /// `mov [REGISTER+DISTANCE], rax`: the register holds the goroutine, rax the argument. The last
    /// three bits of the third byte choose the register, with the last bit of the first one.
    const STORES: [u8; 3] = [0x48, 0x89, 0x80];
    const DISTANCE: usize = 4;
    /// These bits stand for no register alone.
    const OTHER: u8 = 4;
    let code = program.code_of("runtime/pprof.runtime_setProfLabel");
    let instructions = code.iter().flat_map(|(_, code)| code.windows(STORES.len() + DISTANCE));
    let mut offsets: Vec<u16> = instructions
        .filter_map(|bytes| {
            let ([first, second, third], distance) = bytes.split_first_chunk()?;
            let is_store = [first & !1, *second, third & !7] == STORES && third & 7 != OTHER;
            let offset = u32::from_le_bytes(distance.try_into().ok().filter(|_| is_store)?);
            u16::try_from(offset).ok()
        })
        .filter(|offset| (1..=OFFSET_MAX).contains(offset) && offset.is_multiple_of(8))
        .collect();
    offsets.sort_unstable();
    offsets.dedup();
    let [offset] = offsets[..] else { return None };
    // It makes a list of two.
    let form = match program.has_function("runtime/pprof.mergeLabelSets") {
        true => Form::List,
        false => Form::Map,
    };
    Some(LabelsLayout { offset, form })
}

/// Returns the set at an address, as it is now; 0: there is none.
pub fn read(memory: &impl ReadMemory, form: Form, at: u64) -> RawLabels {
    let described = match (at, form) {
        (0, _) => return RawLabels::None,
        (_, Form::List) => in_list(memory, at),
        (_, Form::Map) => in_map(memory, at),
    };
    match described.and_then(|described| texts(memory, &described)) {
        Some(all) if all.is_empty() => RawLabels::None,
        Some(all) => RawLabels::All(all),
        None => RawLabels::Unknown,
    }
}

/// A text in memory: its address and its size.
type Text = (u64, u64);

/// Returns the keys and values of a list.
fn in_list(memory: &impl ReadMemory, at: u64) -> Option<Vec<(Text, Text)>> {
    const LABEL: usize = 32;
    let mut list = [0; 16];
    memory.read_exact(at, &mut list)?;
    let (first, count) = (u64_at(&list, 0)?, u64_at(&list, 8)?);
    let count = usize::try_from(count).ok().filter(|count| *count <= LABELS_MAX)?;
    let mut labels = vec![0; count * LABEL];
    memory.read_exact(first, &mut labels)?;
    let label = |label: &[u8]| Some((text(label, 0)?, text(label, 16)?));
    labels.chunks_exact(LABEL).map(label).collect()
}

/// Returns the keys and values of a map (`runtime.hmap`).
fn in_map(memory: &impl ReadMemory, at: u64) -> Option<Vec<(Text, Text)>> {
    const MAP: usize = 32;
    /// Entries of a bucket; where it has their keys, their values, and the address of a further
    /// bucket; its size.
    const ENTRIES: usize = 8;
    const KEYS: usize = 8;
    const VALUES: usize = 136;
    const MORE: usize = 264;
    const BUCKET: usize = 272;
    /// Entries with lower marks are empty.
    const MARK_MIN: u8 = 5;
    /// Maximum buckets, and logarithm of the number of those that are no further ones.
    const BUCKETS_MAX: usize = 8;
    const LOGARITHM_MAX: u8 = 2;
    let mut map = [0; MAP];
    memory.read_exact(memory.read_u64(at)?, &mut map)?;
    let count = u64_at(&map, 0)?;
    let (first, old) = (u64_at(&map, 16)?, u64_at(&map, 24)?);
    // It grows step by step only with more entries.
    if count > LABELS_MAX as u64 || map[9] > LOGARITHM_MAX || old != 0 {
        return None;
    }
    let mut found = Vec::new();
    let (mut nth, mut next) = (0, first);
    for _ in 0..BUCKETS_MAX {
        if found.len() as u64 >= count {
            break;
        }
        let mut bucket = [0; BUCKET];
        memory.read_exact(next, &mut bucket)?;
        for entry in (0..ENTRIES).filter(|entry| bucket[*entry] >= MARK_MIN) {
            found.push((text(&bucket, KEYS + 16 * entry)?, text(&bucket, VALUES + 16 * entry)?));
        }
        next = u64_at(&bucket, MORE)?;
        if next == 0 {
            nth += 1;
            if nth >> map[9] > 0 {
                break;
            }
            next = first.checked_add((nth * BUCKET) as u64)?;
        }
    }
    (found.len() as u64 == count).then_some(found)
}

fn text(bytes: &[u8], at: usize) -> Option<Text> {
    Some((u64_at(bytes, at)?, u64_at(bytes, at + 8)?))
}

/// Reads keys and values.
fn texts(memory: &impl ReadMemory, described: &[(Text, Text)]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let read_part = |size: u64, most: usize| size.min(most as u64) as usize;
    let pieces: Vec<(u64, usize)> = described
        .iter()
        .flat_map(|(key, value)| {
            [(key.0, read_part(key.1, KEY_MAX)), (value.0, read_part(value.1, VALUE_MAX))]
        })
        .collect();
    // An empty text has no address.
    let some: Vec<(u64, usize)> = pieces.iter().copied().filter(|(_, size)| *size > 0).collect();
    let mut bytes = vec![0; some.iter().map(|(_, size)| size).sum()];
    memory.read_pieces(&some, &mut bytes)?;
    let mut rest = &bytes[..];
    let mut take = |size: usize| {
        let (text, behind) = rest.split_at_checked(size)?;
        rest = behind;
        Some(text.to_vec())
    };
    let label = |(key, value): &(Text, Text)| {
        let of_key = take(read_part(key.1, KEY_MAX))?;
        let of_value = take(read_part(value.1, VALUE_MAX))?;
        Some((shown_part(of_key, key.1, KEY_MAX), shown_part(of_value, value.1, VALUE_MAX)))
    };
    described.iter().map(label).collect()
}

/// Returns the text of the frame that carries these labels; `None`: there are none.
pub fn text_of(raw: &RawLabels) -> Option<String> {
    text_with(raw, |_, value| value)
}

/// Does the same; `value`: what is shown of the value of a key.
fn text_with(raw: &RawLabels, mut value: impl FnMut(&str, String) -> String) -> Option<String> {
    let all = match raw {
        RawLabels::None => return None,
        RawLabels::Unknown => return Some(labels::text_of_others()),
        RawLabels::All(all) => all,
    };
    let clean = |(key, of_key): &(Vec<u8>, Vec<u8>)| {
        let [key, of_key] = [key, of_key].map(|raw| clean_bytes(raw, NAME_CAP));
        let shown = value(&key, of_key);
        (key, shown)
    };
    let mut all: Vec<(String, String)> = all.iter().map(clean).collect();
    all.sort_unstable();
    Some(labels::text(&all))
}

/// The frames that carry labels of one process. Their number is limited: labels of which a program
/// has ever new ones are not told apart from some number on.
pub struct LabelFrames {
    names: Names,
    /// By the text of the labels.
    frames: HashMap<String, RawFrame>,
    /// By key.
    values: HashMap<String, HashSet<String>>,
}

impl LabelFrames {
    pub fn new(names: Names) -> LabelFrames {
        LabelFrames { names, frames: HashMap::new(), values: HashMap::new() }
    }

    /// Returns the frame that carries these labels; `None`: there are none.
    pub fn frame(&mut self, raw: &RawLabels) -> Option<RawFrame> {
        let text = text_with(raw, |key, value| self.told_apart(key, value))?;
        let is_room = self.frames.len() < SETS_MAX || self.frames.contains_key(&text);
        Some(self.named(if is_room { text } else { labels::text_of_others() }))
    }

    /// Returns the value that is shown of a label: its own, or what stands for the rest.
    fn told_apart(&mut self, key: &str, value: String) -> String {
        if !self.values.contains_key(key) && self.values.len() < KEYS_MAX {
            self.values.insert(key.to_owned(), HashSet::new());
        }
        let known = self.values.get_mut(key);
        let is_told_apart = known.is_some_and(|known| {
            known.contains(&value) || known.len() < VALUES_MAX && known.insert(value.clone())
        });
        if is_told_apart { value } else { labels::OTHER.to_owned() }
    }

    fn named(&mut self, text: String) -> RawFrame {
        let LabelFrames { names, frames, .. } = self;
        let location = Location::named(&text, FrameKind::Marker);
        *frames.entry(text).or_insert_with(|| names.frame(vec![location]))
    }
}

/// The labels of the goroutines that threads of a process execute.
pub struct RunningLabels {
    memory: Memory,
    pub frames: LabelFrames,
    /// `None`: the program sets none, or it is not known yet where.
    pub layout: Option<LabelsLayout>,
}

impl RunningLabels {
    pub fn new(memory: Memory, names: Names) -> RunningLabels {
        RunningLabels { memory, frames: LabelFrames::new(names), layout: None }
    }

    /// Searches now where the program has labels. That may take some tenths of a second.
    pub fn search(&mut self) {
        let pid = self.memory.pid();
        if is_go(pid) {
            let program = || Program::find(self.memory.clone(), &Maps::read(pid).ok()?, pid);
            self.layout = program().and_then(|program| find(&program));
        }
    }

    /// Returns the frame that carries the labels of the goroutine that a thread executes, as they
    /// are now. They hold only if the thread does not run meanwhile. `fs_base`: the base of its
    /// segment fs; `r14`: that register, in which code of Go has its goroutine.
    pub fn of_thread(&mut self, fs_base: u64, r14: u64) -> Option<RawFrame> {
        let LabelsLayout { offset, form } = self.layout?;
        let goroutine = executed_by(&self.memory, fs_base, r14)?;
        let at = self.memory.read_u64(goroutine.checked_add(offset.into())?)?;
        self.frames.frame(&read(&self.memory, form, at))
    }
}

/// Returns the goroutine that a thread executes; goroutine.bpf.h does the same.
fn executed_by(memory: &impl ReadMemory, fs_base: u64, r14: u64) -> Option<u64> {
    /// Below the base of the segment fs: the thread's goroutine.
    const TLS: u64 = 8;
    /// In a goroutine: its thread's `m`. In that: the goroutine whose stack is the thread's, and
    /// the one that the thread executes, since Go 1.25 and before.
    const THREAD: u64 = 48;
    const G0: u64 = 0;
    const CURRENT: [u64; 2] = [184, 192];
    let word = |at: u64, offset: u64| memory.read_u64(at.checked_add(offset)?);
    let executed = |goroutine: u64| {
        let thread = word(goroutine, THREAD).filter(|thread| *thread != 0)?;
        let is_of_thread = |goroutine: &u64| word(*goroutine, THREAD) == Some(thread);
        let g0 = word(thread, G0).filter(is_of_thread)?;
        let current = CURRENT.into_iter().filter_map(|offset| word(thread, offset));
        current.filter(|current| ![0, g0].contains(current)).find(is_of_thread)
    };
    let of_variable = memory.read_u64(fs_base.wrapping_sub(TLS)).and_then(executed);
    of_variable.or_else(|| executed(r14))
}

#[cfg(test)]
mod tests;
