//! The frames of a blocked thread, read from its memory in few calls.
//!
//! Since 3.11 most frames lie in the thread's *data stack*, a list of chunks that are read whole.
//! Frames of generators lie in these, and frames of earlier versions are objects of their own. They
//! are read together where the thread had them the last time, else one by one.

use rustc_hash::FxHashMap;

use crate::elf::{u32_at, u64_at};
use crate::model::vocabulary::frame::Marker;
use crate::process::memory::ReadMemory;
use crate::runtimes::cpython::layout::{Layout, Position, Top};
use crate::runtimes::cpython::threads::ThreadState;
use crate::unwinder::interpreted::InterpreterFrame;

/// Maximum frames visited of a thread.
pub const DEPTH_MAX: usize = 20_000;
/// Maximum chunks, and bytes of all that are read at once.
const CHUNKS_MAX: usize = 512;
const CHUNKS_SIZE_MAX: u64 = 4 << 20;
/// In a chunk: the previous one, its bytes, and the words used in it if there is a newer one. Then
/// frames begin.
const CHUNK_PREVIOUS: u64 = 0;
const CHUNK_SIZE: u64 = 8;
const CHUNK_USED: u64 = 16;
const CHUNK_HEAD: u64 = 24;
/// Bytes read behind what was used of the newest chunk the last time.
const SLACK: u64 = 1024;
/// Maximum frames outside the data stack that are read together.
const TOGETHER_MAX: usize = 4096;
/// Maximum pieces of one call.
const PIECES_MAX: usize = 1000;

/// The low bits of a pointer to a code object are tags in some versions. Objects are 8-aligned.
const TAGS: u64 = 7;

/// What is known of where a thread's frames are.
#[derive(Default)]
struct Places {
    /// 3.11, 3.12: the structure on the C stack.
    cframe: Option<u64>,
    /// Address and bytes.
    chunks: Vec<(u64, u64)>,
    frames: Vec<u64>,
    /// The task that the thread executed.
    task: u64,
}

/// Readers of the frames of all threads.
#[derive(Default)]
pub struct FrameLists {
    /// By the address of the thread state.
    places: FxHashMap<u64, Places>,
    copy: Copied,
}

/// Pieces of memory that were copied.
#[derive(Default)]
struct Copied {
    /// Address, length and place in `bytes`, by address.
    pieces: Vec<(u64, usize, usize)>,
    bytes: Vec<u8>,
    last: usize,
}

impl Copied {
    /// Copies these pieces, all or none.
    fn read<M: ReadMemory>(&mut self, memory: &M, pieces: &mut [(u64, usize)]) -> Option<()> {
        pieces.sort_unstable();
        self.pieces.clear();
        self.last = 0;
        let mut length = 0;
        for (at, size) in pieces.iter() {
            self.pieces.push((*at, *size, length));
            length += size;
        }
        self.bytes.resize(length, 0);
        let mut rest = &mut self.bytes[..];
        for pieces in pieces.chunks(PIECES_MAX) {
            let size = pieces.iter().map(|(_, size)| size).sum();
            let (part, behind) = rest.split_at_mut(size);
            rest = behind;
            memory.read_pieces(pieces, part)?;
        }
        Some(())
    }

    /// Adds a piece.
    fn add<M: ReadMemory>(&mut self, memory: &M, at: u64, size: usize) -> Option<()> {
        let from = self.bytes.len();
        self.bytes.resize(from + size, 0);
        if memory.read_exact(at, &mut self.bytes[from..]).is_none() {
            self.bytes.truncate(from);
            return None;
        }
        let after = self.pieces.partition_point(|(start, ..)| *start <= at);
        self.pieces.insert(after, (at, size, from));
        self.last = after;
        Some(())
    }

    /// Returns bytes if all of them are in one piece.
    fn get(&mut self, at: u64, size: usize) -> Option<&[u8]> {
        let within = |(start, length, place): (u64, usize, usize)| {
            let distance = usize::try_from(at.checked_sub(start)?).ok()?;
            (distance.checked_add(size)? <= length).then_some(place + distance)
        };
        let place = match self.pieces.get(self.last).copied().and_then(within) {
            Some(place) => place,
            None => {
                let after = self.pieces.partition_point(|(start, ..)| *start <= at);
                self.last = after.checked_sub(1)?;
                within(self.pieces[self.last])?
            }
        };
        self.bytes.get(place..place + size)
    }

    fn word(&mut self, at: u64) -> Option<u64> {
        u64_at(self.get(at, 8)?, 0)
    }
}

impl FrameLists {
    /// Forgets threads that are not among these.
    pub fn retain(&mut self, states: &[ThreadState]) {
        if self.places.len() > states.len() {
            let kept: rustc_hash::FxHashSet<u64> =
                states.iter().map(|state| state.address).collect();
            self.places.retain(|thread, _| kept.contains(thread));
        }
    }

    /// Returns where the structure on the C stack was that led to the frames, when they were read.
    pub fn cframe(&self, thread: &ThreadState) -> Option<u64> {
        self.places.get(&thread.address)?.cframe
    }

    /// Returns the task that the thread executed when its frames were read; 0: none.
    pub fn task(&self, thread: &ThreadState) -> u64 {
        self.places.get(&thread.address).map_or(0, |places| places.task)
    }

    /// Appends the frames of a thread to `out`, innermost first, with those that mark where C calls
    /// Python. Returns why there are no more, if they do not end by themselves. `None`: the thread
    /// state is not this thread's any more.
    pub fn read<M: ReadMemory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        thread: &ThreadState,
        out: &mut Vec<InterpreterFrame>,
    ) -> Option<Option<Marker>> {
        let mut places = self.places.remove(&thread.address).unwrap_or_default();
        let copy = &mut self.copy;
        let mut pieces = places.pieces(layout, thread);
        if copy.read(memory, &mut pieces).is_none() {
            // Some of it is not there any more.
            places = Places::default();
            copy.read(memory, &mut places.pieces(layout, thread))?;
        }
        let bytes = copy.get(thread.address, layout.thread.span())?;
        if !thread.is_in(bytes, layout) {
            return None;
        }
        let task = layout.thread.task.map(|task| thread.address.wrapping_add(task.of_thread));
        places.task = task.and_then(|at| copy.word(at)).unwrap_or(0);
        let end = walk(memory, layout, thread, copy, &mut places, out);
        self.places.insert(thread.address, places);
        Some(end)
    }
}

impl Places {
    fn pieces(&self, layout: &Layout, thread: &ThreadState) -> Vec<(u64, usize)> {
        let frame = layout.frame.span();
        let mut pieces = Vec::with_capacity(2 + self.chunks.len() + self.frames.len());
        pieces.push((thread.address, layout.thread.span()));
        // Far behind all else.
        pieces.extend(
            layout.thread.task.map(|task| (thread.address.wrapping_add(task.of_thread), 8)),
        );
        if let (Some(at), Top::CFrame { frame, .. }) = (self.cframe, layout.thread.top) {
            pieces.push((at, frame as usize + 8));
        }
        pieces.extend(self.chunks.iter().map(|(at, size)| (*at, *size as usize)));
        pieces.extend(self.frames.iter().map(|at| (*at, frame)));
        pieces
    }
}

/// Follows the list in what was copied, and reads what is missing.
fn walk<M: ReadMemory>(
    memory: &M,
    layout: &Layout,
    thread: &ThreadState,
    copy: &mut Copied,
    places: &mut Places,
    out: &mut Vec<InterpreterFrame>,
) -> Option<Marker> {
    const TORN: Option<Marker> = Some(Marker::Torn);
    let of_thread = |offset: u64| thread.address.wrapping_add(offset);
    let innermost = match layout.thread.top {
        Top::Thread { frame } => copy.word(of_thread(frame)),
        Top::CFrame { cframe, frame } => match copy.word(of_thread(cframe)) {
            None | Some(0) => Some(0),
            Some(at) => {
                places.cframe = Some(at);
                let place = at.wrapping_add(frame);
                copy.word(place).or_else(|| memory.read_u64(place))
            }
        },
    };
    let Some(mut address) = innermost else { return TORN };
    if address == 0 {
        return None;
    }
    if let Some(chunk) = layout.thread.chunk {
        let newest = copy.word(of_thread(chunk)).unwrap_or(0);
        let top = copy.word(of_thread(chunk + 8)).unwrap_or(0);
        read_chunks(memory, copy, places, newest, top);
    }
    places.frames.clear();
    let span = layout.frame.span();
    let mut single = vec![0; span];
    let mut visited = 0;
    while address != 0 {
        visited += 1;
        if visited > DEPTH_MAX {
            return Some(Marker::TooDeep);
        }
        let outside = !places
            .chunks
            .iter()
            .any(|(at, size)| (*at..at.saturating_add(*size)).contains(&address));
        if outside && places.frames.len() < TOGETHER_MAX {
            places.frames.push(address);
        }
        let bytes = match copy.get(address, span) {
            Some(bytes) => bytes,
            None => {
                if memory.read_exact(address, &mut single).is_none() {
                    return TORN;
                }
                &single
            }
        };
        let Some((frame, caller)) = parse(layout, address, bytes) else { return TORN };
        out.push(frame);
        address = caller;
    }
    None
}

/// Copies the chunks that are not copied yet, or not as far as they are used now.
fn read_chunks<M: ReadMemory>(
    memory: &M,
    copy: &mut Copied,
    places: &mut Places,
    newest: u64,
    top: u64,
) {
    places.chunks.clear();
    let (mut chunk, mut used) = (newest, top.wrapping_sub(newest));
    let mut left = CHUNKS_SIZE_MAX;
    while chunk != 0 && places.chunks.len() < CHUNKS_MAX {
        if used < CHUNK_HEAD || used > left {
            return;
        }
        left -= used;
        if copy.get(chunk, used as usize).is_none() {
            copy.add(memory, chunk, used as usize);
        }
        let Some(head) = copy.get(chunk, CHUNK_HEAD as usize) else { return };
        let word = |at: u64| u64_at(head, at as usize).unwrap_or(0);
        let (previous, size) = (word(CHUNK_PREVIOUS), word(CHUNK_SIZE));
        // What is pushed next is read along the next time.
        let ahead = if places.chunks.is_empty() { SLACK } else { 0 };
        places.chunks.push((chunk, (used + ahead).min(size.max(used))));
        if previous == 0 {
            return;
        }
        let place = previous.wrapping_add(CHUNK_USED);
        let Some(words) = copy.word(place).or_else(|| memory.read_u64(place)) else { return };
        chunk = previous;
        used = words.saturating_mul(8).saturating_add(CHUNK_HEAD);
    }
}

/// Returns the frame that these bytes are, and the address of its caller.
pub fn parse(layout: &Layout, address: u64, bytes: &[u8]) -> Option<(InterpreterFrame, u64)> {
    let l = &layout.frame;
    let word = |at: u64| u64_at(bytes, at as usize);
    let byte = |at: Option<u64>| at.map_or(Some(0), |at| bytes.get(at as usize).copied());
    let position = match l.how {
        Position::Address => word(l.position)?,
        Position::Bytes | Position::Units => u32_at(bytes, l.position as usize)?.into(),
    };
    let owner = byte(l.owner)?;
    let frame = InterpreterFrame {
        address,
        code: if layout.is_shim(owner) { 0 } else { word(l.code)? & !TAGS },
        position,
        owner,
        is_entry: byte(l.is_entry)? != 0,
        copy: l.copy.map_or(Some(0), |at| u32_at(bytes, at as usize))?,
        fingerprint: 0,
    };
    Some((frame, word(l.previous)?))
}
