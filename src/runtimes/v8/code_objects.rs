//! Generated code by address: baseline and optimised code of functions, with what was inlined.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::model::vocabulary::frame::RawFrame;
use crate::process::memory::ReadMemory;
use crate::runtimes::v8::functions::{TABLE_MAX, bytecode_of, shared_of};
use crate::runtimes::v8::heap::{Heap, object, small};
use crate::runtimes::v8::layout::{LENGTH, Layout};
use crate::runtimes::v8::positions::{Position, bytecode_offset, position};

/// Maximum bytes before an address in which the start of its code is searched for.
const SEARCHED: u64 = 256 << 10;
/// Bytes searched at once.
const PAGE: u64 = 4096;
/// Maximum code objects remembered, and frames of all of them.
const CODES_MAX: usize = 1 << 15;
const FRAMES_MAX: usize = 1 << 18;
/// Maximum addresses remembered that are in no code; they are forgotten with each second.
const UNKNOWN_MAX: usize = 4096;
/// Maximum size of code, bytes.
const SIZE_MAX: u64 = 16 << 20;
/// Maximum calls inlined in one function.
const INLINED_MAX: u64 = 4096;
/// Bytes of one of them: its position, its function.
const INLINED_SIZE: usize = 16;
/// Maximum depth of inlining.
pub const DEPTH_MAX: usize = 64;
/// Bytes of a `Code` object that are compared.
const CODE_SIZE: usize = 64;

/// An inlined call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inlined {
    /// Where it is called; `None`: unknown.
    call: Option<Position>,
    /// The function that is called.
    shared: u64,
}

/// What code is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    Baseline {
        /// Address of the bytecode it was compiled from, and the bytecode.
        bytecode: u64,
        bytes: Vec<u8>,
        /// Lengths of its parts.
        table: Vec<u8>,
    },
    Optimized {
        shared: u64,
        inlined: Vec<Inlined>,
        positions: Vec<u8>,
    },
    /// Of no function of JavaScript: a regular expression, WebAssembly.
    Other,
}

/// One function of an optimised frame, and where it executes, as offset in its script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    pub shared: u64,
    pub source: Option<u32>,
}

/// Words that say which code it is.
type Words = [u64; 7];

pub struct Code {
    /// Address range of the instructions.
    pub range: Range<u64>,
    /// Address of the `Code` object.
    at: u64,
    words: Words,
    pub kind: Kind,
    checked: u64,
    used: u64,
    /// By address.
    frames: FxHashMap<u64, RawFrame>,
}

impl Code {
    /// Returns the functions at this address of optimised code, the innermost first.
    pub fn parts(&self, layout: &Layout, address: u64) -> Option<Vec<Part>> {
        let Kind::Optimized { shared, inlined, positions } = &self.kind else { return None };
        let offset = u32::try_from(address.checked_sub(self.range.start)?).ok()?;
        let mut next = position(positions, offset, layout.flagged);
        let mut parts = Vec::new();
        while let Some(Position { offset, inlined: Some(number) }) = next {
            let inlined = inlined.get(number as usize)?;
            parts.push(Part { shared: inlined.shared, source: Some(offset) });
            next = inlined.call;
            (parts.len() < DEPTH_MAX).then_some(())?;
        }
        parts.push(Part { shared: *shared, source: next.map(|position| position.offset) });
        Some(parts)
    }

    /// Returns the offset of the bytecode that baseline code at this address executes.
    pub fn bytecode_offset(&self, layout: &Layout, address: u64) -> Option<u32> {
        let Kind::Baseline { bytes, table, .. } = &self.kind else { return None };
        let offset = u32::try_from(address.checked_sub(self.range.start)?).ok()?;
        bytecode_offset(table, bytes, layout.sizes, offset)
    }
}

/// Code by address.
#[derive(Default)]
pub struct Codes {
    /// By the start of the instructions.
    known: BTreeMap<u64, Code>,
    /// The map of all `InstructionStream`s, as a word.
    stream_map: Option<u64>,
    unknown: FxHashMap<u64, u64>,
    frames: usize,
    pub epoch: u64,
    /// A number that changes every second.
    pub second: u64,
    /// Starts of code that was used in this epoch.
    pub used: Vec<u64>,
    /// Places where other code was than before.
    pub replaced: Vec<Range<u64>>,
}

fn word_at(bytes: &[u8], offset: u64) -> Option<u64> {
    let bytes = bytes.get(offset as usize..offset as usize + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

/// Picks the words that say which code it is from its object and the head of its instructions.
fn words(layout: &Layout, bytes: &[u8]) -> Option<Words> {
    let of_code = |offset| word_at(bytes.get(..CODE_SIZE)?, offset);
    let head = bytes.get(CODE_SIZE..)?;
    let Layout { code, .. } = layout;
    let size = of_code(code.size & !7)?;
    // A number of four bytes.
    let size = if code.size % 8 == 0 { size & 0xffff_ffff } else { size >> 32 };
    Some([
        of_code(0)?,
        of_code(code.deopt)?,
        of_code(code.positions)?,
        of_code(code.start)?,
        size,
        word_at(head, 0)?,
        word_at(head, 8)?,
    ])
}

impl Codes {
    /// Returns where the words are that say which code begins at `start`.
    pub fn evidence(&self, layout: &Layout, start: u64) -> Option<[(u64, usize); 2]> {
        let known = self.known.get(&start)?;
        Some([(known.at, CODE_SIZE), (start - layout.code.header, 16)])
    }

    /// Compares code with what is in memory now.
    pub fn found(&mut self, layout: &Layout, start: u64, bytes: &[u8]) {
        if let Some(known) = self.known.get_mut(&start)
            && words(layout, bytes) == Some(known.words)
        {
            known.checked = self.epoch;
        }
    }

    /// Returns the code at this address.
    pub fn get<M: ReadMemory>(
        &mut self,
        heap: &Heap<M>,
        layout: &Layout,
        address: u64,
    ) -> Option<&mut Code> {
        let start = match self.valid(heap, layout, address) {
            Some(start) => start,
            None => {
                if self.unknown.get(&address) == Some(&self.second) {
                    return None;
                }
                let Some(code) = self.search(heap, layout, address) else {
                    if self.unknown.len() >= UNKNOWN_MAX {
                        self.unknown.clear();
                    }
                    self.unknown.insert(address, self.second);
                    return None;
                };
                self.insert(code)
            }
        };
        let known = self.known.get_mut(&start)?;
        if known.used != self.epoch {
            self.used.push(start);
        }
        (known.checked, known.used) = (self.epoch, self.epoch);
        Some(known)
    }

    /// Returns the start of known code at this address, if it is still there.
    fn valid<M: ReadMemory>(
        &mut self,
        heap: &Heap<M>,
        layout: &Layout,
        address: u64,
    ) -> Option<u64> {
        let (start, known) = self.known.range(..=address).next_back()?;
        let start = *start;
        known.range.contains(&address).then_some(())?;
        if known.checked == self.epoch || self.compare(heap, layout, start).is_some() {
            return Some(start);
        }
        self.forget(start);
        None
    }

    fn compare<M: ReadMemory>(&self, heap: &Heap<M>, layout: &Layout, start: u64) -> Option<()> {
        let pieces = self.evidence(layout, start)?;
        let mut bytes = vec![0; pieces.iter().map(|(_, length)| length).sum()];
        let (first, second) = bytes.split_at_mut(CODE_SIZE);
        heap.read(pieces[0].0, first)?;
        heap.read(pieces[1].0, second)?;
        (words(layout, &bytes)? == self.known.get(&start)?.words).then_some(())
    }

    fn forget(&mut self, start: u64) {
        if let Some(known) = self.known.remove(&start) {
            self.frames -= known.frames.len();
            self.replaced.push(known.range);
        }
    }

    /// Adds code, in the place of all that was there.
    fn insert(&mut self, code: Code) -> u64 {
        while let Some((start, known)) = self.known.range(..code.range.end).next_back()
            && known.range.end > code.range.start
        {
            let start = *start;
            self.forget(start);
        }
        if self.known.len() >= CODES_MAX {
            self.known.clear();
            self.frames = 0;
        }
        let start = code.range.start;
        self.known.insert(start, code);
        start
    }

    /// Searches the code that contains an address, backwards from there.
    fn search<M: ReadMemory>(
        &mut self,
        heap: &Heap<M>,
        layout: &Layout,
        address: u64,
    ) -> Option<Code> {
        let mut page = address & !(PAGE - 1);
        let (mut bytes, mut later) = (vec![0; PAGE as usize], 0);
        while address - page < SEARCHED {
            heap.read(page, &mut bytes)?;
            for (nth, word) in bytes.chunks_exact(8).enumerate().rev() {
                let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
                let at = page + 8 * nth as u64;
                let next = std::mem::replace(&mut later, word);
                let may_be = match self.stream_map {
                    Some(map) => word == map,
                    None => word & 3 == 1 && next & 3 == 1,
                };
                if may_be
                    && at < address
                    && let Some(code) = self.code(heap, layout, at, word, next)
                {
                    // Otherwise the address lies behind the end of the code before it.
                    return code.range.contains(&address).then_some(code);
                }
            }
            page = page.checked_sub(PAGE)?;
        }
        None
    }

    /// Reads the code whose instructions have their head at `at`: a map, and the `Code` object.
    fn code<M: ReadMemory>(
        &mut self,
        heap: &Heap<M>,
        layout: &Layout,
        at: u64,
        map: u64,
        code: u64,
    ) -> Option<Code> {
        let object_at = object(code)?;
        let start = at.checked_add(layout.code.header)?;
        heap.is(layout, object_at, layout.types.code).then_some(())?;
        let mut bytes = vec![0; CODE_SIZE];
        heap.read(object_at, &mut bytes)?;
        bytes.extend(map.to_le_bytes());
        bytes.extend(code.to_le_bytes());
        let words = words(layout, &bytes)?;
        let [_, deopt, positions, found, size, ..] = words;
        (found == start && (1..SIZE_MAX).contains(&size)).then_some(())?;
        if self.stream_map.is_none() {
            heap.is(layout, at, layout.types.stream).then_some(())?;
            self.stream_map = Some(map);
        }
        let flags = heap.half(object_at.checked_add(layout.code.flags)?)?;
        let kind = flags & layout.kinds;
        let kind = if kind == layout.baseline {
            baseline(heap, layout, deopt, positions)?
        } else if kind > layout.baseline {
            optimized(heap, layout, deopt, positions)?
        } else {
            Kind::Other
        };
        let range = start..start + size;
        Some(Code {
            range,
            at: object_at,
            words,
            kind,
            checked: 0,
            used: 0,
            frames: Default::default(),
        })
    }

    /// Returns the frame at an address of known code.
    pub fn frame(&self, start: u64, address: u64) -> Option<RawFrame> {
        self.known.get(&start)?.frames.get(&address).copied()
    }

    /// Forgets all frames, as a function in them has another name now.
    pub fn forget_frames(&mut self) {
        self.known.values_mut().for_each(|known| known.frames.clear());
        self.frames = 0;
    }

    /// Remembers the frame at an address of known code.
    pub fn remember(&mut self, start: u64, address: u64, frame: RawFrame) {
        if self.frames >= FRAMES_MAX {
            self.forget_frames();
        }
        if let Some(known) = self.known.get_mut(&start)
            && known.frames.insert(address, frame).is_none()
        {
            self.frames += 1;
        }
    }
}

fn baseline<M: ReadMemory>(heap: &Heap<M>, layout: &Layout, data: u64, table: u64) -> Option<Kind> {
    let bytecode = bytecode_of(heap, layout, object(data)?)?;
    let length = heap.word(bytecode.checked_add(LENGTH)?)?;
    let length = u32::try_from(small(length)?).ok()?;
    let mut bytes = vec![0; length.min(TABLE_MAX) as usize];
    heap.read(bytecode.checked_add(layout.bytecode_data)?, &mut bytes)?;
    // Without the table it has a name all the same.
    let table = object(table).and_then(|table| heap.bytes(layout, table, TABLE_MAX));
    Some(Kind::Baseline { bytecode, bytes, table: table.unwrap_or_default() })
}

fn optimized<M: ReadMemory>(
    heap: &Heap<M>,
    layout: &Layout,
    data: u64,
    table: u64,
) -> Option<Kind> {
    let data = object(data)?;
    let element = |index| object(heap.element(layout, data, index)?);
    let shared = shared_of(heap, layout, element(layout.deopt.shared)?)?;
    let table = object(table).and_then(|table| heap.bytes(layout, table, TABLE_MAX));
    let literals = element(layout.deopt.literals)?;
    let calls = element(layout.deopt.inlining)
        .and_then(|calls| heap.bytes(layout, calls, (INLINED_MAX as usize * INLINED_SIZE) as u32));
    let mut inlined = Vec::new();
    for call in calls.unwrap_or_default().chunks_exact(INLINED_SIZE) {
        let position = i64::from_le_bytes(call[..8].try_into().expect("eight bytes"));
        let number = i32::from_le_bytes(call[8..12].try_into().expect("four bytes"));
        let called = match u64::try_from(number) {
            Ok(number) => {
                shared_of(heap, layout, object(heap.element(layout, literals, number)?)?)?
            }
            // It is the function itself.
            Err(_) => shared,
        };
        inlined.push(Inlined { call: Position::of(position), shared: called });
    }
    Some(Kind::Optimized { shared, inlined, positions: table.unwrap_or_default() })
}
