//! Where asyncio's module keeps what it knows of tasks, as it describes itself: the structure
//! `Py_AsyncioModuleDebugOffsets` in its section `.AsyncioDebug` (Modules/_asynciomodule.c).
//!
//! A file's section headers are not in memory. But the structure is in the module's data, and
//! contains the size of an interpreter, which the interpreter describes too. So the data is
//! searched for it, and no file is opened.

use std::ops::Range;

use crate::elf::u64_at;
use crate::process::memory::ReadMemory;
use crate::runtimes::cpython::described::DESCRIPTION;
use crate::runtimes::cpython::layout::Layout;

/// Words of the structure, and the word that has the size of an interpreter.
const WORDS: usize = 13;
const INTERPRETER_SIZE: usize = 7;
/// Positions of the sizes of an interpreter and of a thread's state in the interpreter's own
/// description (see [`crate::runtimes::cpython::described`]); the same in 3.14 and 3.15.
const DESCRIBED_INTERPRETER: usize = 48;
const DESCRIBED_THREAD: usize = 176;

/// Maximum bytes of data that are searched; CPython 3.15, which has the module in it, has 1 MiB.
const DATA_MAX: u64 = 16 << 20;
/// Bytes read at once of it.
const BLOCK: usize = 256 << 10;
/// Minimum and maximum bytes of a task, and the maximum of the state of a thread.
const TASK_SIZE: Range<u64> = 64..1025;
const THREAD_MAX: u64 = 1 << 16;

/// Offsets, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offsets {
    pub task: Task,
    /// In an interpreter: the list of the tasks of threads that have ended.
    pub tasks_of_interpreter: u64,
    /// In the state of a thread: the task that it executes, and the list of the tasks of its event
    /// loops.
    pub running_task: u64,
    pub tasks_of_thread: u64,
    pub generator: Generator,
    pub set: Set,
}

/// In a task. All but the coroutine, the name and the node are also in any future.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// Bytes of it.
    pub size: u64,
    /// An int, of tasks that the program gave no name; else a string.
    pub name: u64,
    /// What awaits it: nothing, a future, or a set of these.
    pub awaited_by: u64,
    pub awaited_by_is_set: u64,
    /// Whether it is a task (u8).
    pub is_task: u64,
    pub coroutine: u64,
    /// Its place in the list: the next and the previous one.
    pub node: u64,
}

/// In a generator or coroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generator {
    pub frame: u64,
    /// An i8; see [`Generator::state`].
    pub state: u64,
    /// In its frame: where its stack of values ends.
    pub stack_pointer: u64,
    /// Words from there down to what it awaits.
    pub awaited: u64,
    /// The values of its state are those of 3.15.
    is_renumbered: bool,
}

/// In a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Set {
    pub used: u64,
    pub table: u64,
    pub mask: u64,
}

/// What a generator or coroutine does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It has not begun, or waits for no other object.
    Alone,
    /// It awaits an object.
    Awaits,
    Executes,
    Ended,
}

impl Generator {
    /// Returns what this value means (Include/internal/pycore_frame.h). `None`: it means nothing.
    pub fn state(&self, value: u8) -> Option<State> {
        Some(match (self.is_renumbered, value.cast_signed()) {
            (false, -3 | -2) | (true, 0 | 1) => State::Alone,
            (false, -1) | (true, 2 | 3) => State::Awaits,
            (false, 0) | (true, 4) => State::Executes,
            (false, 1 | 4) | (true, 5) => State::Ended,
            _ => return None,
        })
    }
}

/// Where the interpreter's description has offsets in generators and sets: of a set its fields in
/// use, its table and its mask, in a row; of a generator its frame and its state.
struct Positions {
    stack_pointer: usize,
    set: usize,
    generator: usize,
}

/// 3.14, 3.15 (Include/internal/pycore_debug_offsets.h).
const POSITIONS: [Positions; 2] = [
    Positions { stack_pointer: 296, set: 504, generator: 680 },
    Positions { stack_pointer: 360, set: 600, generator: 808 },
];

/// Searches these address ranges for the structure. `runtime`: address of `_PyRuntime`.
pub fn search<M: ReadMemory>(
    memory: &M,
    layout: &Layout,
    runtime: u64,
    data: &[Range<u64>],
) -> Option<Offsets> {
    let mut description = vec![0; DESCRIPTION];
    let length = memory.read(runtime, &mut description);
    description.truncate(length);
    let size = u64_at(&description, DESCRIBED_INTERPRETER)?;
    let mut left = DATA_MAX;
    let mut block = vec![0; BLOCK + 8 * WORDS];
    for Range { start, end } in data {
        let mut at = start.checked_next_multiple_of(8)?;
        while at < *end && left > 0 {
            let wanted = ((end - at) as usize).min(block.len());
            let length = memory.read(at, &mut block[..wanted]);
            let bytes = &block[..length];
            let places = (0..length.min(BLOCK)).step_by(8);
            let found = places
                .filter(|place| u64_at(bytes, place + 8 * INTERPRETER_SIZE) == Some(size))
                .find_map(|place| parse(bytes.get(place..)?, &description, layout.minor));
            if found.is_some() {
                return found;
            }
            at = at.saturating_add(BLOCK as u64);
            left = left.saturating_sub(BLOCK as u64);
        }
    }
    None
}

/// Returns the offsets in these bytes, which have the size of an interpreter in the right place, if
/// they are such a structure. `description`: the beginning of `_PyRuntime`.
fn parse(bytes: &[u8], description: &[u8], minor: u8) -> Option<Offsets> {
    let word = |nth: usize| u64_at(bytes, 8 * nth);
    let described = |at: usize| u64_at(description, at);
    let size = word(0).filter(|size| TASK_SIZE.contains(size) && size.is_multiple_of(8))?;
    let byte = |nth: usize| word(nth).filter(|at| *at < size);
    // Behind the head of an object.
    let pointer = |nth: usize| byte(nth).filter(|at| at.is_multiple_of(8) && *at >= 16);
    let interpreter = described(DESCRIBED_INTERPRETER)?;
    let within = |nth: usize, size: u64, from: u64| {
        word(nth).filter(|at| at.is_multiple_of(8) && *at >= from && *at < size)
    };
    let thread = described(DESCRIBED_THREAD)?;
    let is_thread = |size: &u64| size.is_multiple_of(8) && (thread..THREAD_MAX).contains(size);
    let whole_thread = word(9).filter(is_thread)?;
    let near = |at: usize| described(at).filter(|offset| (8..4096).contains(offset));
    let at = POSITIONS.get(usize::from(minor.checked_sub(14)?))?;
    within(10, whole_thread, thread)?;
    Some(Offsets {
        task: Task {
            size,
            name: pointer(1)?,
            awaited_by: pointer(2)?,
            is_task: byte(3)?,
            awaited_by_is_set: byte(4)?,
            coroutine: pointer(5)?,
            node: pointer(6).filter(|node| node + 16 <= size)?,
        },
        tasks_of_interpreter: within(8, interpreter, 8)?,
        running_task: within(11, whole_thread, thread)?,
        tasks_of_thread: within(12, whole_thread.checked_sub(8)?, thread)?,
        generator: Generator {
            frame: near(at.generator)?,
            state: near(at.generator + 8)?,
            stack_pointer: near(at.stack_pointer)?,
            awaited: if minor >= 15 { 2 } else { 1 },
            is_renumbered: minor >= 15,
        },
        set: Set { used: near(at.set)?, table: near(at.set + 8)?, mask: near(at.set + 16)? },
    })
}
