//! Code objects: names, files and lines of Python functions.
//!
//! What was read of one is kept with the bytes that identify it. An address is given to another
//! code object once its own is freed. So the bytes are compared again before a stack is named by
//! it.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::elf::{u32_at, u64_at};
use crate::model::facts::tables::{FrameKind, Location, Tier};
use crate::model::vocabulary::frame::{Ns, RawFrame};
use crate::model::vocabulary::text::{NAME_CAP, clean};
use crate::process::memory::ReadMemory;
use crate::runtimes::cpython::layout::{Layout, Position};
use crate::runtimes::cpython::line_table::LineFormat;
use crate::runtimes::cpython::module_names::module_of;
use crate::runtimes::frame_and_thread_names::Names;
use crate::unwinder::interpreted::{InterpreterFrame, fingerprint};

/// Maximum code objects remembered, and bytes of what is known of them.
const CODES_MAX: usize = 1 << 16;
const BYTES_MAX: usize = 32 << 20;
/// Maximum frames remembered: places in code objects.
const FRAMES_MAX: usize = 1 << 18;
/// Maximum bytes of a line table.
const LINES_MAX: u64 = 1 << 20;
/// Maximum bytes of line tables that are decoded for one stack; beyond, frames have no lines.
const DECODED_MAX: usize = 8 << 20;
/// Maximum code objects compared in one call; each is up to three pieces.
const BATCH_MAX: usize = 300;
/// Bytes of a line table that are compared: those of another one nearly always differ.
const COMPARED: usize = 32;
/// Maximum code objects remembered that were at the address of another one.
const BEFORE_MAX: usize = 4;
/// Maximum addresses remembered where there was a code object.
const GONE_MAX: usize = 4096;
/// Maximum threads' copies of a code object.
const COPIES_MAX: u64 = 1 << 16;
/// The value of a string's hash while it is not computed.
const NO_HASH: u64 = u64::MAX;

/// What is known of a code object.
struct Code {
    identity: Identity,
    /// See [`fingerprint`].
    fingerprint: u64,
    function: Arc<str>,
    module: Arc<str>,
    file: Option<Arc<str>>,
    first_line: u32,
    lines: Vec<u8>,
    /// A time before the last comparison with memory.
    checked: Ns,
    /// What was at its address before.
    before: Before,
    /// By position, copy, and whether the thread holds the interpreter's lock.
    frames: FxHashMap<(u64, u32, bool), RawFrame>,
}

/// Code objects that were at an address, as far as they are remembered.
#[derive(Clone, Default)]
struct Before {
    /// Their fingerprints, and when each was found to be replaced; the last one last.
    found: VecDeque<(u64, Ns)>,
    /// When one that is not remembered was found to be replaced.
    forgotten: Ns,
}

impl Before {
    fn add(&mut self, fingerprint: u64, now: Ns) {
        if self.found.len() >= BEFORE_MAX
            && let Some((_, at)) = self.found.pop_front()
        {
            self.forgotten = at;
        }
        self.found.push_back((fingerprint, now));
    }

    /// Whether a stack that was copied at `copied`, with this fingerprint (0: unknown), may have
    /// had one of them.
    fn may_be(&self, fingerprint: u64, copied: Ns) -> bool {
        let same = |of: u64| fingerprint == 0 || of == fingerprint;
        copied < self.forgotten || self.found.iter().any(|(of, found)| copied < *found && same(*of))
    }
}

impl Code {
    fn size(&self) -> usize {
        self.lines.len() + self.identity.bytes.len() + self.function.len() + 256
    }
}

/// Pieces of memory that never change while a code object exists, and what is in them.
#[derive(PartialEq, Eq)]
struct Identity {
    pieces: Vec<(u64, usize)>,
    bytes: Vec<u8>,
    /// Where in `bytes` the hash of its name is.
    hash: usize,
}

impl Identity {
    /// Whether these bytes identify the same. A hash may have been computed meanwhile.
    fn is(&self, now: &[u8]) -> bool {
        let hash = self.hash..self.hash + 8;
        let (Some(before), Some(after)) = (self.bytes.get(hash.clone()), now.get(hash.clone()))
        else {
            return false;
        };
        self.bytes.len() == now.len()
            && self.bytes[..hash.start] == now[..hash.start]
            && self.bytes[hash.end..] == now[hash.end..]
            && (before == after || before == NO_HASH.to_le_bytes())
    }
}

/// Why a frame has no name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nameless {
    /// There is no code object.
    Unreadable,
    /// The one that was executed is not there any more, or may not be.
    Replaced,
}

/// A cache of code objects.
#[derive(Default)]
pub struct Codes {
    known: FxHashMap<u64, Code>,
    size: usize,
    frames: usize,
    /// The type of code objects.
    kind: Option<u64>,
    /// Bytes of line tables that may still be decoded for this stack.
    decode: usize,
    /// What was at addresses where there is no code object now.
    gone: FxHashMap<u64, Before>,
    /// When some of this was last forgotten.
    forgotten: Ns,
}

/// The stack whose frames are named.
#[derive(Clone, Copy)]
pub struct Instant {
    /// What was compared with memory before this is compared again.
    pub since: Ns,
    /// When the stack was copied; `None`: of a blocked thread.
    pub copied: Option<Ns>,
    pub now: Ns,
}

impl Codes {
    /// Compares what is known of these frames' code objects with memory, in few calls.
    pub fn validate<M: ReadMemory>(
        &mut self,
        memory: &M,
        frames: &[InterpreterFrame],
        instant: Instant,
    ) {
        self.decode = DECODED_MAX;
        let mut seen = FxHashSet::default();
        let stale: Vec<u64> = frames
            .iter()
            .map(|frame| frame.code)
            .filter(|code| {
                self.known.get(code).is_some_and(|known| known.checked < instant.since)
                    && seen.insert(*code)
            })
            .collect();
        let (mut pieces, mut ends, mut now) = (Vec::new(), Vec::new(), Vec::new());
        for stale in stale.chunks(BATCH_MAX) {
            pieces.clear();
            ends.clear();
            let mut length = 0;
            for code in stale {
                let identity = &self.known[code].identity;
                pieces.extend_from_slice(&identity.pieces);
                length += identity.bytes.len();
                ends.push(length);
            }
            now.resize(length, 0);
            if memory.read_pieces(&pieces, &mut now).is_none() {
                // One by one, in `get`.
                continue;
            }
            let mut from = 0;
            for (code, to) in stale.iter().zip(&ends) {
                if let Some(known) = self.known.get_mut(code)
                    && known.identity.is(&now[from..*to])
                {
                    known.checked = instant.now;
                }
                from = *to;
            }
        }
    }

    /// Returns the frame of a function at a place; `holds_lock`: its thread holds the interpreter's
    /// lock. [`Codes::validate`] comes before it.
    pub fn frame<M: ReadMemory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        names: &Names,
        frame: &InterpreterFrame,
        holds_lock: bool,
        instant: Instant,
    ) -> Result<RawFrame, Nameless> {
        let is_valid = |known: &Code| known.checked >= instant.since;
        if !self.known.get(&frame.code).is_some_and(is_valid) {
            // The kernel has read it: it was there.
            let was_there = frame.fingerprint != 0;
            let why = if was_there { Nameless::Replaced } else { Nameless::Unreadable };
            self.read(memory, layout, frame.code, instant.now).ok_or(why)?;
        }
        let Codes { known, decode, frames, .. } = self;
        let code = known.get_mut(&frame.code).ok_or(Nameless::Unreadable)?;
        let other = frame.fingerprint != 0 && frame.fingerprint != code.fingerprint;
        let may_be_older = |copied: Ns| code.before.may_be(frame.fingerprint, copied);
        if other || instant.copied.is_some_and(may_be_older) {
            return Err(Nameless::Replaced);
        }
        let key = (frame.position, frame.copy, holds_lock);
        if let Some(known) = code.frames.get(&key) {
            return Ok(*known);
        }
        let line = match decode.checked_sub(code.lines.len()) {
            Some(left) => {
                *decode = left;
                offset(memory, layout, frame).and_then(|offset| code.line(layout, offset))
            }
            None => None,
        };
        let named = names.frame(vec![Location {
            function: code.function.clone(),
            module: code.module.clone(),
            file: code.file.clone(),
            line,
            kind: FrameKind::Python,
            tier: holds_lock.then_some(Tier::Gil),
        }]);
        if *frames < FRAMES_MAX {
            code.frames.insert(key, named);
            *frames += 1;
        }
        Ok(named)
    }

    /// Reads a code object again. Afterwards it is known and checked, or there is none.
    fn read<M: ReadMemory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        address: u64,
        now: Ns,
    ) -> Option<()> {
        let before = self.known.remove(&address);
        if let Some(before) = &before {
            self.size -= before.size();
            self.frames -= before.frames.len();
        }
        let Some(mut code) = read(memory, layout, address, &mut self.kind) else {
            if let Some(mut before) = before {
                before.before.add(before.fingerprint, now);
                if self.gone.len() >= GONE_MAX {
                    self.forget_gone(now);
                }
                self.gone.insert(address, before.before);
            }
            return None;
        };
        code.checked = now;
        match before {
            // Something changed that does not identify it.
            Some(before) if code.is_as(&before) => {
                (code.before, code.frames) = (before.before, before.frames);
            }
            Some(before) => {
                code.before = before.before;
                code.before.add(before.fingerprint, now);
            }
            None => {
                let nothing = Before { forgotten: self.forgotten, ..Before::default() };
                code.before = self.gone.remove(&address).unwrap_or(nothing);
            }
        }
        if self.known.len() >= CODES_MAX
            || self.size + code.size() > BYTES_MAX
            || self.frames + code.frames.len() > FRAMES_MAX
        {
            self.known.clear();
            (self.size, self.frames) = (0, 0);
            self.forget_gone(now);
        }
        self.size += code.size();
        self.frames += code.frames.len();
        self.known.insert(address, code);
        Some(())
    }

    fn forget_gone(&mut self, now: Ns) {
        self.gone.clear();
        self.forgotten = now;
    }
}

impl Code {
    fn is_as(&self, other: &Code) -> bool {
        self.identity.pieces == other.identity.pieces
            && self.function == other.function
            && self.file == other.file
            && self.first_line == other.first_line
            && self.lines == other.lines
    }

    /// Returns the line of the instruction at an offset of bytes; -1 and below: before the first
    /// one.
    fn line(&self, layout: &Layout, offset: i64) -> Option<u32> {
        if offset < 0 {
            return Some(self.first_line);
        }
        let offset = u32::try_from(offset).ok()?;
        LineFormat::of_minor(layout.minor).line(&self.lines, self.first_line, offset)
    }
}

/// Returns the offset in bytes of the instruction that a frame executes.
fn offset<M: ReadMemory>(memory: &M, layout: &Layout, frame: &InterpreterFrame) -> Option<i64> {
    let short = i64::from(frame.position as u32 as i32);
    match (layout.frame.how, layout.code.instructions) {
        (Position::Bytes, _) => Some(short),
        (Position::Units, _) => Some(2 * short),
        (Position::Address, None) => None,
        (Position::Address, Some(instructions)) => {
            let first = match layout.code.copies.filter(|_| frame.copy != 0) {
                None => frame.code.checked_add(instructions)?,
                Some(copies) => copy(memory, frame.code.checked_add(copies)?, frame.copy)?,
            };
            Some(frame.position.wrapping_sub(first).cast_signed())
                .filter(|offset| (-2..i64::from(u32::MAX)).contains(offset))
        }
    }
}

/// Returns where a thread's own copy of the instructions begins. `place` has the address of a list:
/// how many there are, then the copies.
fn copy<M: ReadMemory>(memory: &M, place: u64, nth: u32) -> Option<u64> {
    let list = memory.read_u64(place)?;
    let nth = u64::from(nth);
    let count = memory.read_u64(list)?.min(COPIES_MAX);
    (nth < count).then_some(())?;
    memory.read_u64(list.checked_add(8 * (nth + 1))?).filter(|at| *at != 0)
}

/// Reads a code object. `kind`: the type of code objects, once it is known.
fn read<M: ReadMemory>(
    memory: &M,
    layout: &Layout,
    address: u64,
    kind: &mut Option<u64>,
) -> Option<Code> {
    let (l, object) = (&layout.code, &layout.object);
    if address == 0 || !address.is_multiple_of(8) {
        return None;
    }
    let found = object.type_of(memory, address)?;
    match *kind {
        Some(kind) if kind == found => {}
        Some(_) => return None,
        None if object.is_named(memory, found, b"code") => *kind = Some(found),
        None => return None,
    }
    let (start, size) = l.identity();
    let at = address.checked_add(start)?;
    let mut bytes = vec![0; size];
    memory.read_exact(at, &mut bytes)?;
    let word = |offset: u64| u64_at(&bytes, (offset - start) as usize);
    let (file, name, lines) = (word(l.file)?, word(l.shown_name())?, word(l.lines)?);
    let first_line = u32_at(&bytes, (l.first_line - start) as usize)?;
    let table = object.byte_string(memory, lines, LINES_MAX)?;
    let hash = name.checked_add(object.text_hash())?;
    let table_at = lines.checked_add(object.bytes_length)?;
    let compared = (object.bytes - object.bytes_length) as usize + table.len().min(COMPARED);
    let pieces = vec![(at, size), (hash, 8), (table_at, compared)];
    let mut identity = Identity { pieces, bytes: vec![0; size + 8 + compared], hash: size };
    let text = |at| object.text(memory, at);
    let (file_name, qualified) = (text(file)?, text(name)?);
    // Meanwhile it may be another one.
    memory.read_pieces(&identity.pieces, &mut identity.bytes)?;
    if !identity.bytes.starts_with(&bytes) || !object.is_referenced(memory, address) {
        return None;
    }
    let module = module_of(&file_name);
    let function = clean(&qualified, NAME_CAP);
    let function = if function.is_empty() { "?".into() } else { function };
    let function = match &module {
        Some(module) => format!("{module}.{function}"),
        None => function.into_owned(),
    };
    let file_name = clean(&file_name, NAME_CAP);
    Some(Code {
        identity,
        fingerprint: fingerprint(file, name, lines, first_line.into()),
        function: clean(&function, NAME_CAP).into(),
        module: module.unwrap_or_default().into(),
        file: (!file_name.is_empty()).then(|| file_name.into()),
        first_line,
        lines: table,
        checked: 0,
        before: Before::default(),
        frames: FxHashMap::default(),
    })
}
