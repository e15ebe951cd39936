//! Labels of goroutines (`runtime/pprof.Do`, `SetGoroutineLabels`).
//!
//! A goroutine's structure has the address of a set of labels, or none. A program does not change a
//! set once a goroutine has it; it makes another one. So the set is of the instant at which the
//! address was read, if the goroutine still has that address afterwards, or could not run
//! meanwhile.
//!
//! Sets are lists since Go 1.24; before they are maps.
//!
//! ```text
//! frames   frames that carry labels in stacks
//! running  labels of the goroutines that threads execute
//! ```

pub mod frames;
pub mod running;

use crate::elf::u64_at;
use crate::process::memory::ReadMemory;
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

#[cfg(test)]
mod tests;
