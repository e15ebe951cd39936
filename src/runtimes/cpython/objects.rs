//! Python objects in the target's memory: strings, bytes, the name of an object's type.

use std::ops::Range;

use crate::elf::{u32_at, u64_at};
use crate::process::memory::ReadMemory;
use crate::runtimes::cpython::layout::Object;

/// Maximum characters of a string; longer ones are no names.
const TEXT_MAX: u64 = 64 << 10;
/// Bytes read in the first attempt: with most names in them.
const FIRST: usize = 160;

impl Object {
    /// Returns where a string's hash is. It never changes once it is computed.
    pub fn text_hash(&self) -> u64 {
        self.text_length + 8
    }

    /// Reads a string.
    pub fn text<M: ReadMemory>(&self, memory: &M, at: u64) -> Option<String> {
        let at = Some(at).filter(|at| *at != 0)?;
        let mut bytes = vec![0; FIRST.max(self.characters as usize)];
        let read = memory.read(at, &mut bytes);
        bytes.truncate(read);
        let (_, all) = self.characters_in(&bytes)?;
        if bytes.len() < all.end {
            bytes.resize(all.end, 0);
            memory.read_exact(at, &mut bytes)?;
        }
        self.text_in(&bytes)
    }

    /// Returns the bytes of a character, and where all characters are. `bytes`: the string's head,
    /// and more.
    fn characters_in(&self, bytes: &[u8]) -> Option<(usize, Range<usize>)> {
        let length = u64_at(bytes, self.text_length as usize)?;
        // How it is written: interned (several bits), bytes of a character (3 bits), compact,
        // ASCII.
        let state = u32_at(bytes, self.text_state as usize)? >> self.interned_bits;
        let (kind, compact, ascii) = (state & 7, state >> 3 & 1 == 1, state >> 4 & 1 == 1);
        if !compact || length > TEXT_MAX || !matches!(kind, 1 | 2 | 4) || (ascii && kind != 1) {
            return None;
        }
        let start = if ascii { self.ascii } else { self.characters } as usize;
        Some((kind as usize, start..start + length as usize * kind as usize))
    }

    /// Returns the text of a string that begins with these bytes. What is missing of it is `...`.
    /// `None` where all of it is missing.
    pub fn text_in(&self, bytes: &[u8]) -> Option<String> {
        let (kind, all) = self.characters_in(bytes)?;
        let there = bytes.get(all.start..all.end.min(bytes.len()))?;
        if there.is_empty() && !all.is_empty() {
            return None;
        }
        let text = characters(kind, there);
        Some(if bytes.len() < all.end { text + "..." } else { text })
    }

    /// Reads a bytes object of at most `max` bytes.
    pub fn byte_string<M: ReadMemory>(&self, memory: &M, at: u64, max: u64) -> Option<Vec<u8>> {
        let at = Some(at).filter(|at| *at != 0)?;
        let length = memory.read_u64(at.checked_add(self.bytes_length)?)?;
        let mut bytes = vec![0; usize::try_from(length).ok().filter(|_| length <= max)?];
        memory.read_exact(at.checked_add(self.bytes)?, &mut bytes)?;
        Some(bytes)
    }

    /// Whether an object is in use. A freed one keeps most of its bytes while its strings are
    /// already others; but both allocators put a pointer, or a small hash of one, in place of the
    /// number of references (Objects/obmalloc.c, glibc's malloc). True where references are
    /// counted otherwise (builds without a GIL).
    pub fn is_referenced<M: ReadMemory>(&self, memory: &M, at: u64) -> bool {
        // References of usual objects, and of those that live for ever: 999,999,999 and around in
        // 3.11, 2^30 - 1 and more since. Behind it are flags since 3.14.
        const USUAL_MAX: u32 = 1 << 20;
        const FOR_EVER: u32 = 900_000_000;
        if self.kind > 8 {
            return true;
        }
        let Some(word) = memory.read_u64(at) else { return false };
        let count = word as u32;
        (word >> 32) as u16 == 0 && (matches!(count, 1..=USUAL_MAX) || count >= FOR_EVER)
    }

    /// Returns the address of an object's type.
    pub fn type_of<M: ReadMemory>(&self, memory: &M, at: u64) -> Option<u64> {
        memory.read_u64(at.checked_add(self.kind)?)
    }

    /// Whether a type has this name.
    pub fn is_named<M: ReadMemory>(&self, memory: &M, kind: u64, name: &[u8]) -> bool {
        let named = || {
            let at = memory.read_u64(kind.checked_add(self.type_name)?)?;
            let mut text = vec![0; name.len() + 1];
            memory.read_exact(at, &mut text)?;
            (text.split_last()? == (&0, name)).then_some(())
        };
        named().is_some()
    }
}

/// Decodes characters of this number of bytes each.
fn characters(kind: usize, bytes: &[u8]) -> String {
    let wide = |code: u32| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    match kind {
        1 => bytes.iter().map(|byte| char::from(*byte)).collect(),
        2 => bytes
            .chunks_exact(2)
            .map(|two| wide(u16::from_le_bytes([two[0], two[1]]).into()))
            .collect(),
        _ => bytes
            .chunks_exact(4)
            .map(|four| wide(u32::from_le_bytes(four.try_into().expect("4 bytes"))))
            .collect(),
    }
}
