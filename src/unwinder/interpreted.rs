//! Frames of an interpreter (CPython): what a runtime, a capture backend and the unwinder tell each
//! other about them.
//!
//! An interpreter executes its frames in a function of native code, which has unwind information.
//! So its native stack is walked like any other. The interpreter's own frames are a linked list in
//! the target's memory. It is read by the runtime, of a blocked thread; of a running one it is
//! taken by the kernel in the interrupt that takes the sample.

use crate::model::vocabulary::frame::{FrameCode, Marker, RawFrame};
use crate::unwinder::Walk;

/// A frame of an interpreter as its memory says it at one instant; the runtime finds its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InterpreterFrame {
    /// Where its structure is.
    pub address: u64,
    /// Its code object.
    pub code: u64,
    /// Where in the code it is: an address, or a number of bytes or instructions.
    pub position: u64,
    /// Who owns the structure's memory; 0 where the version does not say.
    pub owner: u8,
    /// It is the first frame of its evaluation; false where the version does not say.
    pub is_entry: bool,
    /// Which copy of the code it executes.
    pub copy: u32,
    /// See [`fingerprint`]; 0: the code object was not read.
    pub fingerprint: u64,
}

/// Returns what tells one code object from another at the same address: its pointers to file, name
/// and lines, and its first line (u32). The program in the kernel computes the same.
pub fn fingerprint(file: u64, name: u64, lines: u64, first_line: u64) -> u64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    [file, name, lines, first_line]
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, word| (hash ^ word).wrapping_mul(PRIME))
}

/// Where the program in the kernel finds the frames of a thread. Offsets are bytes in the
/// interpreter's structures; `None`: this version has no such field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterpreterLayout {
    /// Address of the word that points to the first interpreter.
    pub interpreters: u64,
    /// Address of the main interpreter's lock (GIL); 0: it has none.
    pub lock: u64,
    /// In the lock: which thread has it, or had it last.
    pub lock_holder: u32,
    /// In the lock: whether it is locked (i32).
    pub lock_locked: u32,
    /// In an interpreter: the address of its lock, where each may have its own.
    pub interpreter_lock: Option<u32>,
    /// In an interpreter: the next one, the first thread.
    pub next_interpreter: u32,
    pub first_thread: u32,
    /// In a thread: the next one, its interpreter, its pthread_t, its innermost frame.
    pub next_thread: u32,
    pub thread_interpreter: u32,
    pub pthread: u32,
    pub innermost: u32,
    /// The thread's `innermost` points to a structure that has the frame's address here.
    pub indirect: Option<u32>,
    pub running_task: Option<RunningTask>,
    /// Bytes of a frame that are read, at most 128; the other offsets lie in them.
    pub frame_size: u32,
    pub frame_caller: u32,
    pub frame_code: u32,
    pub frame_position: u32,
    /// The position is an i32, else a u64.
    pub position_is_short: bool,
    pub frame_owner: Option<u32>,
    pub frame_is_entry: Option<u32>,
    pub frame_copy: Option<u32>,
    /// Frames of this owner or a greater one have no code.
    pub shim_owner: Option<u8>,
    /// Bytes of a code object that are read, at most 256; the other offsets lie in them.
    pub code_size: u32,
    pub code_file: u32,
    pub code_name: u32,
    pub code_lines: u32,
    pub code_first_line: u32,
}

/// Where the kernel finds the asyncio task that a thread executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunningTask {
    /// In a thread.
    pub of_thread: u32,
    /// In a task: the object that is its name.
    pub name: u32,
}

/// The frames that the kernel took of a running thread, innermost first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    pub frames: Vec<InterpreterFrame>,
    /// How many of `frames` are the innermost ones: behind them some are missing.
    pub gap: Option<usize>,
    /// Why there are no more.
    pub end: Option<Marker>,
    /// The beginning of the object that is the name of the asyncio task which the thread executed,
    /// and zeros behind what could be read; empty: there is none.
    pub task_name: Vec<u8>,
    /// The thread held its interpreter's lock.
    pub holds_lock: bool,
}

impl Taken {
    /// Of a thread that has frames, of which none was taken.
    pub fn nothing() -> Taken {
        Taken { end: Some(Marker::Torn), ..Taken::default() }
    }

    pub fn is_nothing(&self) -> bool {
        *self == Taken::nothing()
    }
}

/// The thread whose stack is walked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StackOwner {
    /// In sampletop's own pid namespace.
    pub tid: u32,
    /// Its pthread_t, which is the base of its segment fs; `None`: unknown.
    pub fs_base: Option<u64>,
    /// Its stack pointer; 0: unknown.
    pub sp: u64,
    /// The address of the futex that it is blocked in.
    pub futex: Option<u64>,
}

/// Named frames of an interpreter, in evaluations: the frames that one call of its native function
/// executes. Innermost first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Evaluations {
    pub frames: Vec<RawFrame>,
    /// By evaluation, the index behind its last frame. Some have no frame. Frames behind the last
    /// end belong to an evaluation that was not read to its end.
    pub ends: Vec<usize>,
    /// Why there are no more.
    pub end: Option<Marker>,
    /// Stands for the native code in which the thread waits for the interpreter's own lock, or for
    /// one of the program.
    pub waits: Option<RawFrame>,
    /// Names the task that the thread executes.
    pub task: Option<RawFrame>,
}

impl Evaluations {
    fn count(&self) -> usize {
        self.ends.len()
    }

    fn of(&self, index: usize) -> &[RawFrame] {
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.frames[begin..self.ends[index]]
    }

    /// Frames from the evaluation of this index on.
    fn rest(&self, index: usize) -> &[RawFrame] {
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.frames[begin..]
    }
}

/// How the evaluations of an interpreter and those of the native stack belong together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fit {
    /// One to one, from the innermost on, behind this number of native ones. Such a one has just
    /// been entered and has no frame yet, or is about to return and has none any more.
    Pairs(usize),
    /// One to one from the innermost on, as far as the native stack goes.
    NativeEnds,
    /// One to one from the innermost on, as far as the interpreter's frames go.
    InterpreterEnds,
    /// One to one up to where a library has exchanged the stack; `behind` as in [`Fit::Pairs`].
    /// Further out is the stack of another coroutine.
    Exchanged { behind: usize, at: Exchange },
    /// They do not fit.
    Apart,
}

/// Functions in a row, of a library that exchanges stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Exchange {
    /// Its first frame, and the one behind its last.
    from: usize,
    to: usize,
    /// Number of native evaluations further in.
    native: usize,
}

/// Returns where functions that exchange stacks are, innermost first; `native`: the native
/// evaluations.
fn exchanges_in(
    stack: &[RawFrame],
    native: &[usize],
    exchanges: &impl Fn(RawFrame) -> bool,
) -> Vec<Exchange> {
    let mut found: Vec<Exchange> = Vec::new();
    for (at, _) in stack.iter().enumerate().filter(|(_, frame)| exchanges(**frame)) {
        match found.last_mut().filter(|last| last.to == at) {
            Some(last) => last.to += 1,
            None => {
                let native = native.partition_point(|of| *of < at);
                found.push(Exchange { from: at, to: at + 1, native });
            }
        }
    }
    found
}

/// `exchanged`: where the native stack has functions of a library that exchanges stacks.
fn fit(
    native: usize,
    native_ends: bool,
    evaluations: &Evaluations,
    exchanged: impl FnOnce() -> Vec<Exchange>,
) -> Fit {
    let own = evaluations.count();
    match native {
        _ if evaluations.end.is_some() && native >= own => return Fit::InterpreterEnds,
        _ if native < own && native_ends => return Fit::NativeEnds,
        _ if native < own => return Fit::Apart,
        _ if native == own && !native_ends => return Fit::Pairs(0),
        _ => {}
    }
    let exchanged = exchanged();
    // In the middle of an exchange the interpreter's frames may be linked otherwise, or be another
    // coroutine's. The innermost evaluation calls the library then, so it has not just begun.
    let in_exchange = exchanged.first().is_some_and(|at| at.native == 0);
    // Not just the innermost: the library also calls functions that trace the coroutine.
    let up_to = |behind| {
        let at = *exchanged.iter().find(|at| at.native == own + behind)?;
        Some(Fit::Exchanged { behind, at })
    };
    up_to(0).unwrap_or(match native - own {
        0 => Fit::NativeEnds,
        _ if in_exchange => Fit::Apart,
        1 if !native_ends && exchanged.is_empty() => Fit::Pairs(1),
        _ => up_to(1).unwrap_or(Fit::Apart),
    })
}

/// Puts an interpreter's frames in the places of the native frames that execute them: `out[first +
/// index]` for each index of `native`, innermost first. Where the native stack was cut, the rest of
/// the interpreter's frames follows behind a marker. Where they do not fit, the interpreter's
/// frames stand in one piece, behind the native code that its innermost function has called, and a
/// marker says so. [`Evaluations::waits`] replaces the native frames in front of the innermost
/// evaluation.
///
/// Libraries of coroutines (greenlet) exchange parts of the native stack. The part of the one that
/// runs ends in functions of the library, which has started it there; `exchanges`: whether a frame
/// is one of these. The interpreter's frames end there too. Further out is what another coroutine
/// has left, of which nothing is shown but how the thread began. Where the native stack ends
/// before the thread's beginning, not even that: what is further out may be of any coroutine.
///
/// [`Evaluations::task`] stands behind all frames.
pub fn place(
    native: &[usize],
    evaluations: Evaluations,
    walk: Walk,
    first: usize,
    exchanges: impl Fn(RawFrame) -> bool,
    out: &mut Vec<RawFrame>,
) -> Walk {
    let task = evaluations.task;
    let walk = place_frames(native, evaluations, walk, first, exchanges, out);
    place_task(task, walk, out);
    walk
}

/// Appends the task that a thread executes to its frames; see [`place_outermost`].
pub fn place_task(task: Option<RawFrame>, walk: Walk, out: &mut Vec<RawFrame>) {
    place_outermost(task.as_slice(), walk, out);
}

/// Appends frames behind all others, but before a marker at their end: the last frame of a stack
/// that was cut says why.
pub fn place_outermost(frames: &[RawFrame], walk: Walk, out: &mut Vec<RawFrame>) {
    let is_end = |last: &&RawFrame| matches!(last.decode(), FrameCode::Marker { .. });
    let is_cut = walk.end.is_some() && out.last().as_ref().is_some_and(is_end);
    let end = if is_cut { out.pop() } else { None };
    out.extend_from_slice(frames);
    out.extend(end);
}

fn place_frames(
    native: &[usize],
    evaluations: Evaluations,
    walk: Walk,
    first: usize,
    exchanges: impl Fn(RawFrame) -> bool,
    out: &mut Vec<RawFrame>,
) -> Walk {
    let stack = out.split_off(first);
    let exchanged = || exchanges_in(&stack, native, &exchanges);
    let fit = fit(native.len(), walk.end.is_some(), &evaluations, exchanged);
    let mut from = 0;
    if let (Some(waits), Some(innermost)) = (evaluations.waits, native.first()) {
        out.push(waits);
        from = *innermost;
    }
    match fit {
        Fit::Pairs(behind) => {
            for (number, at) in native.iter().enumerate() {
                out.extend_from_slice(&stack[from..*at]);
                if let Some(number) = number.checked_sub(behind) {
                    out.extend_from_slice(evaluations.of(number));
                }
                from = at + 1;
            }
            out.extend_from_slice(&stack[from..]);
            walk
        }
        Fit::Exchanged { behind, at: exchange } => {
            for (number, at) in native[..exchange.native].iter().enumerate() {
                out.extend_from_slice(&stack[from..*at]);
                if let Some(number) = number.checked_sub(behind) {
                    out.extend_from_slice(evaluations.of(number));
                }
                from = at + 1;
            }
            out.extend_from_slice(&stack[from..exchange.to.max(from)]);
            if walk.end.is_some() {
                // All of the coroutine that runs is known.
                return Walk { end: None, recovered: true };
            }
            let of_library = stack.iter().rposition(|frame| exchanges(*frame));
            let outermost = of_library.max(native.last().copied());
            out.extend_from_slice(&stack[outermost.map_or(0, |at| at + 1)..]);
            walk
        }
        Fit::InterpreterEnds => {
            let read = evaluations.count();
            for (number, at) in native.iter().enumerate() {
                out.extend_from_slice(&stack[from..*at]);
                match number {
                    _ if number < read => out.extend_from_slice(evaluations.of(number)),
                    _ if number == read => {
                        out.extend_from_slice(evaluations.rest(read));
                        out.extend(evaluations.end.map(RawFrame::marker));
                    }
                    _ => out.push(stack[*at]),
                }
                from = at + 1;
            }
            out.extend_from_slice(&stack[from..]);
            // Of a native stack that was cut before the first evaluation, too, frames are missing
            // that only the interpreter knows.
            let missing = native.len() > read || walk.end.is_some();
            Walk { end: evaluations.end.filter(|_| missing), ..walk }
        }
        Fit::NativeEnds => {
            for (number, at) in native.iter().enumerate() {
                out.extend_from_slice(&stack[from..*at]);
                out.extend_from_slice(evaluations.of(number));
                from = at + 1;
            }
            out.extend_from_slice(&stack[from..]);
            // The functions of the program are known all the same.
            let short = matches!(
                walk.end,
                Some(Marker::Truncated | Marker::PageMissing | Marker::NotCopied)
            );
            if short {
                out.pop();
                out.push(RawFrame::marker(Marker::NotCopied));
            }
            out.extend_from_slice(evaluations.rest(native.len()));
            if short { Walk { end: None, recovered: true } } else { walk }
        }
        Fit::Apart => {
            let (inner, outer) = match (native.first(), native.last()) {
                (Some(innermost), Some(outermost)) => (*innermost, outermost + 1),
                _ => (0, 0),
            };
            out.extend_from_slice(&stack[from..inner]);
            out.extend_from_slice(&evaluations.frames);
            out.push(RawFrame::marker(Marker::NotPlaced));
            out.extend_from_slice(&stack[outer..]);
            walk
        }
    }
}

#[cfg(test)]
mod tests;
