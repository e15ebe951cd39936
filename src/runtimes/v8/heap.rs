//! Objects on V8's heap: tagged words, types, strings, arrays.
//!
//! A word is a small integer (in its upper half) or the address of an object plus 1. Everything is
//! read while the program runs and the collector moves objects. So the type of each object is
//! checked.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::model::vocabulary::frame::Ns;
use crate::process::memory::ReadMemory;
use crate::runtimes::v8::layout::{ELEMENTS, LENGTH, Layout};

const PAGE: u64 = 4096;
/// Maximum pages read in one walk.
const PAGES_MAX: usize = 4096;
/// Bytes that may be read in large pieces: at most this at once, and this more a second. The
/// longest scripts have some 10 MB.
const LARGE_MAX: u64 = 32 << 20;
const LARGE_A_SECOND: u64 = 16 << 20;
/// Maximum pieces of one string.
const PIECES_MAX: usize = 64;

/// Offsets in strings, equal in all versions.
const STRING_LENGTH: u64 = 12;
const FIRST: u64 = 16;
const SECOND: u64 = 24;
/// Where an external string keeps the address of its text, unless its type says that it does not.
const EXTERNAL_TEXT: u64 = 24;
/// Types of strings are below this; their bits.
const STRINGS: u16 = 128;
const REPRESENTATION: u16 = 7;
const ONE_BYTE: u16 = 8;
const WITHOUT_ADDRESS: u16 = 16;

/// Returns the small integer in a word.
pub fn small(word: u64) -> Option<i32> {
    (word & 0xffff_ffff == 0).then_some((word >> 32) as i32)
}

/// Returns the address of the object that a word refers to; weakly or not.
pub fn object(word: u64) -> Option<u64> {
    // A cleared weak reference has no address.
    (word & 1 == 1 && word > 3).then_some(word & !3)
}

/// Characters of a string in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Text {
    pub at: u64,
    /// In characters.
    pub length: u32,
    /// Bytes of a character: 1 (Latin-1) or 2 (UTF-16).
    pub width: u64,
}

#[derive(Default)]
struct State {
    pages: FxHashMap<u64, Option<Box<[u8]>>>,
    /// Bytes that may still be read in large pieces.
    large: u64,
    refilled: Ns,
}

/// The memory of a process with V8's heap in it. Pages are read once a walk.
pub struct Heap<M> {
    pub memory: M,
    state: RefCell<State>,
}

impl<M: ReadMemory> Heap<M> {
    pub fn new(memory: M) -> Heap<M> {
        let state = State { large: LARGE_MAX, ..State::default() };
        Heap { memory, state: RefCell::new(state) }
    }

    /// Starts a walk: what was read before is read again.
    pub fn begin(&self, now: Ns) {
        let mut state = self.state.borrow_mut();
        state.pages.clear();
        let since = now.saturating_sub(state.refilled).min(2_000_000_000);
        state.large = (state.large + LARGE_A_SECOND * since / 1_000_000_000).min(LARGE_MAX);
        state.refilled = now;
    }

    /// Reads a piece by pages.
    pub fn read(&self, at: u64, buf: &mut [u8]) -> Option<()> {
        let mut state = self.state.borrow_mut();
        let mut done = 0;
        while done < buf.len() {
            let address = at.checked_add(done as u64)?;
            let (page, into) = (address / PAGE, (address % PAGE) as usize);
            if !state.pages.contains_key(&page) {
                if state.pages.len() >= PAGES_MAX {
                    return None;
                }
                let mut bytes = vec![0; PAGE as usize].into_boxed_slice();
                let read = self.memory.read_exact(page * PAGE, &mut bytes);
                state.pages.insert(page, read.map(|()| bytes));
            }
            let bytes = state.pages.get(&page)?.as_deref()?;
            let length = (bytes.len() - into).min(buf.len() - done);
            buf[done..done + length].copy_from_slice(&bytes[into..into + length]);
            done += length;
        }
        Some(())
    }

    pub fn word(&self, at: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.read(at, &mut word)?;
        Some(u64::from_le_bytes(word))
    }

    pub fn half(&self, at: u64) -> Option<u32> {
        let mut word = [0; 4];
        self.read(at, &mut word)?;
        Some(u32::from_le_bytes(word))
    }

    /// Returns the object that the word at `at` refers to.
    pub fn object(&self, at: u64) -> Option<u64> {
        object(self.word(at)?)
    }

    /// Returns whether the limit allows a large piece of this length now.
    pub fn has_room(&self, length: u64) -> bool {
        self.state.borrow().large >= length
    }

    /// Reads a large piece, if the limit allows it.
    pub fn large(&self, at: u64, length: u64) -> Option<Vec<u8>> {
        let mut state = self.state.borrow_mut();
        state.large = state.large.checked_sub(length)?;
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        self.memory.read_exact(at, &mut bytes)?;
        Some(bytes)
    }

    /// Returns the type of an object.
    pub fn kind(&self, layout: &Layout, object: u64) -> Option<u16> {
        let map = self.object(object)?;
        let mut kind = [0; 2];
        self.read(map.checked_add(layout.instance_type)?, &mut kind)?;
        Some(u16::from_le_bytes(kind))
    }

    /// Whether an object has this type.
    pub fn is(&self, layout: &Layout, object: u64, kind: u16) -> bool {
        self.kind(layout, object) == Some(kind)
    }

    /// Returns where an object is that the collector may have moved: there it has left the new
    /// address in the place of the map.
    pub fn moved(&self, object: u64) -> u64 {
        match self.word(object) {
            Some(to) if to & 3 == 0 && to != 0 => to,
            _ => object,
        }
    }

    /// Returns the length of an array of objects.
    pub fn array(&self, layout: &Layout, array: u64) -> Option<u32> {
        let kind = self.kind(layout, array)?;
        let length = small(self.word(array.checked_add(LENGTH)?)?)?;
        u32::try_from(length).ok().filter(|_| layout.types.arrays.contains(&kind))
    }

    /// Returns an element of an array of objects.
    pub fn element(&self, layout: &Layout, array: u64, index: u64) -> Option<u64> {
        let length = self.array(layout, array)?;
        (index < u64::from(length)).then_some(())?;
        self.word(array.checked_add(ELEMENTS + 8 * index)?)
    }

    /// Returns the bytes of an array of bytes, up to `max` bytes.
    pub fn bytes(&self, layout: &Layout, array: u64, max: u32) -> Option<Vec<u8>> {
        let kind = self.kind(layout, array)?;
        let length = small(self.word(array.checked_add(LENGTH)?)?)?;
        let length = u32::try_from(length).ok().filter(|length| *length <= max)?;
        layout.types.byte_arrays.contains(&kind).then_some(())?;
        let mut bytes = vec![0; length as usize];
        self.read(array.checked_add(ELEMENTS)?, &mut bytes)?;
        Some(bytes)
    }

    /// Returns where the text of a string is, if it is in one piece.
    pub fn text(&self, layout: &Layout, string: u64) -> Option<Text> {
        let (mut string, mut skipped) = (string, 0u64);
        let length = self.half(string.checked_add(STRING_LENGTH)?)?;
        for _ in 0..PIECES_MAX {
            let kind = self.kind(layout, string).filter(|kind| *kind < STRINGS)?;
            let width = if kind & ONE_BYTE != 0 { 1 } else { 2 };
            let begin = match kind & REPRESENTATION {
                0 => string.checked_add(FIRST)?,
                1 => {
                    // Flattened: the second piece is empty.
                    let second = self.object(string.checked_add(SECOND)?)?;
                    (self.half(second.checked_add(STRING_LENGTH)?)? == 0).then_some(())?;
                    string = self.object(string.checked_add(FIRST)?)?;
                    continue;
                }
                2 if kind & WITHOUT_ADDRESS == 0 => {
                    self.word(string.checked_add(EXTERNAL_TEXT)?)?
                }
                3 => {
                    let offset = small(self.word(string.checked_add(SECOND)?)?)?;
                    skipped = skipped.checked_add(u64::try_from(offset).ok()?)?;
                    string = self.object(string.checked_add(FIRST)?)?;
                    continue;
                }
                5 => {
                    string = self.object(string.checked_add(FIRST)?)?;
                    continue;
                }
                _ => return None,
            };
            let at = begin.checked_add(skipped.checked_mul(width)?)?;
            return Some(Text { at, length, width });
        }
        None
    }

    /// Returns a string of at most `max` characters; more are cut.
    pub fn string(&self, layout: &Layout, string: u64, max: u32) -> Option<String> {
        let (mut out, mut todo) = (String::new(), vec![string]);
        let mut left = max;
        for _ in 0..PIECES_MAX {
            let Some(string) = todo.pop().filter(|_| left > 0) else { return Some(out) };
            let kind = self.kind(layout, string).filter(|kind| *kind < STRINGS)?;
            if kind & REPRESENTATION == 1 {
                todo.push(self.object(string.checked_add(SECOND)?)?);
                todo.push(self.object(string.checked_add(FIRST)?)?);
                continue;
            }
            let Text { at, length, width } = self.text(layout, string)?;
            let length = length.min(left);
            left -= length;
            let mut bytes = vec![0; (u64::from(length) * width) as usize];
            self.read(at, &mut bytes)?;
            match width {
                1 => out.extend(bytes.iter().map(|byte| char::from(*byte))),
                _ => {
                    let units =
                        bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
                    out.extend(char::decode_utf16(units).map(|c| c.unwrap_or('\u{fffd}')));
                }
            }
        }
        Some(out)
    }
}
