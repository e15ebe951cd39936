//! Stack depth at an instruction, by following a function's code from its start. It is for code
//! without unwind information (musl's, hand-written assembly).
//!
//! Compiled code has one depth at each instruction, on all paths. All paths that are found must
//! agree. An unknown instruction ends a path, or makes the depth unknown.

use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::process::memory::ReadMemory;
use crate::unwinder::framehop::unwind_tables::{Context, READ};

mod functions;
mod tail_jump;
mod way_back;

pub use functions::FollowedFunctions;
pub use tail_jump::jumps_away;
pub use way_back::{CallerRbp, WayBack, way_back};

/// Maximum instructions followed, each with each state of the stack; the longest functions without
/// unwind information have some hundred.
const INSTRUCTIONS_MAX: usize = 2048;
/// As [`INSTRUCTIONS_MAX`], for functions that are followed once. The longest of V8 has 13,268
/// (`KeyedStoreIC` of Node 24).
const REMEMBERED_MAX: usize = 1 << 14;
/// Maximum functions that jump to each other.
const ENTRIES_MAX: usize = 16;
/// Maximum pieces of code read. `KeyedStoreIC`, with what it jumps to, has 154.
const PIECES_MAX: usize = 256;
/// Bytes of code read at a time; a page has a whole number of them.
const PIECE: u64 = 256;
/// Longest instruction, bytes (Intel SDM 2.3.11).
const LONGEST: usize = 15;
/// Maximum size of a frame, bytes.
const DEPTH_MAX: i64 = 1 << 20;

/// State of the stack before an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct State {
    /// Bytes between the stack pointer and the return address; `None` where unknown, as after an
    /// alignment of the stack.
    depth: Option<i64>,
    /// Where rbp was saved, in bytes below the return address.
    saved: Option<i64>,
    /// The depth that rbp points at, if it is a frame pointer.
    frame: Option<i64>,
}

/// Result of following a function's code to one instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flow {
    /// A path reaches it.
    pub reached: bool,
    /// Bytes between the stack pointer and the return address there, on all paths.
    pub depth: Option<u64>,
    /// Where rbp was saved, in bytes below the return address; `None`: rbp is still the caller's.
    pub saved: Option<u64>,
    /// rbp points at a frame record there: the caller's rbp with the return address right above.
    pub framed: bool,
    /// A path ends in a tail call of an unknown function.
    pub jumps_away: bool,
}

/// Follows the code from `start`, and returns the state of the stack at `pc`.
pub fn follow(memory: &impl ReadMemory, start: u64, pc: u64, context: &mut Context) -> Flow {
    let Some(paths) = Paths::follow(memory, start, Convention::System, context) else {
        return Flow::default();
    };
    let there = paths.states.iter().filter(|(at, _)| *at == pc).map(|(_, state)| *state);
    let flow = Flow::of(there, paths.jumps_away);
    flow.unwrap_or(Flow { jumps_away: paths.jumps_away, ..Flow::default() })
}

/// Follows code of a runtime from `start`, and returns the states of the stack at all instructions
/// that are reached, in order. `None`: some of it could not be read now.
fn flows(
    memory: &impl ReadMemory,
    start: u64,
    context: &mut Context,
) -> Option<Box<[(u64, Flow)]>> {
    let Some(paths) = Paths::follow(memory, start, Convention::Runtime, context) else {
        return Some(Box::default());
    };
    if !paths.all_read {
        return None;
    }
    let mut states: Vec<(u64, State)> = paths.states.into_iter().collect();
    states.sort_unstable_by_key(|(at, _)| *at);
    let of_instruction = |states: &[(u64, State)]| {
        let flow = Flow::of(states.iter().map(|(_, state)| *state), paths.jumps_away);
        (states[0].0, flow.unwrap_or_default())
    };
    Some(states.chunk_by(|one, next| one.0 == next.0).map(of_instruction).collect())
}

/// How functions call each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Convention {
    /// As the system's ABI says: a call leaves the stack as it was.
    System,
    /// A call may take its arguments from the stack (V8). Then the depth is unknown behind it, and
    /// only the frame pointer is right.
    Runtime,
}

/// All paths through a function.
struct Paths {
    /// Addresses of instructions, with the states in which they are reached.
    states: FxHashSet<(u64, State)>,
    jumps_away: bool,
    /// Every path was followed to an end that was read.
    all_read: bool,
}

impl Paths {
    /// `None`: the function is too long, or `context` used up.
    fn follow(
        memory: &impl ReadMemory,
        start: u64,
        convention: Convention,
        context: &mut Context,
    ) -> Option<Paths> {
        let most = match convention {
            Convention::System => INSTRUCTIONS_MAX,
            Convention::Runtime => REMEMBERED_MAX,
        };
        let mut code = Code::new(memory);
        let mut open = vec![(start, State { depth: Some(0), ..State::default() })];
        let mut paths = Paths { states: FxHashSet::default(), jumps_away: false, all_read: true };
        let mut with_frame = FxHashMap::default();
        // Starts of functions. A call that does not return is followed by the next function, which
        // may jump to this one.
        let mut entries = vec![start];
        while let Some((at, mut state)) = open.pop() {
            // In a loop that leaves another depth in each turn a frame pointer is right all the
            // same.
            if state.frame.is_some() {
                let of = (at, state.saved, state.frame);
                let first = *with_frame.entry(of).or_insert(state.depth);
                state.depth = state.depth.filter(|_| first == state.depth);
            }
            let jumped_into = state.depth != Some(0) && entries.contains(&at);
            if jumped_into || !paths.states.insert((at, state)) {
                continue;
            }
            if paths.states.len() > most {
                return None;
            }
            context.spend(8)?;
            let Some(bytes) = code.bytes(at, context) else {
                paths.all_read = false;
                continue;
            };
            let Some(instruction) = decode(bytes) else {
                paths.all_read &= bytes.len() >= LONGEST;
                continue;
            };
            let next = at.wrapping_add(instruction.length as u64);
            let Some(state) = apply(state, instruction.effect) else { continue };
            match instruction.goes {
                Goes::Elsewhere if convention == Convention::Runtime && state.frame.is_some() => {
                    open.push((next, State { depth: None, ..state }));
                }
                Goes::On | Goes::Elsewhere => open.push((next, state)),
                Goes::Back | Goes::Nowhere => {}
                Goes::Either(by) => {
                    open.extend([(next, state), (next.wrapping_add_signed(by), state)]);
                }
                Goes::To(by) => {
                    let target = next.wrapping_add_signed(by);
                    if state.depth == Some(0) && entries.len() < ENTRIES_MAX {
                        entries.push(target);
                    }
                    open.push((target, state));
                }
                Goes::Through(by) => match memory.read_u64(next.wrapping_add_signed(by)) {
                    Some(target) if context.spend(READ).is_some() => open.push((target, state)),
                    _ => {}
                },
                Goes::Away => paths.jumps_away |= state.depth == Some(0),
            }
        }
        Some(paths)
    }
}

impl Flow {
    /// Returns what all states of the stack at one instruction have in common; `None`: there are
    /// none.
    fn of(states: impl IntoIterator<Item = State>, jumps_away: bool) -> Option<Flow> {
        let both = |a: Option<i64>, b| a.filter(|_| a == b);
        let mut states = states.into_iter();
        let mut there = states.next()?;
        for state in states {
            if there.saved != state.saved {
                return Some(Flow { reached: true, ..Flow::default() });
            }
            // A frame pointer is right whatever a call took from the stack.
            there.depth = both(there.depth, state.depth);
            there.frame = both(there.frame, state.frame);
        }
        let bytes = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        Some(Flow {
            reached: true,
            depth: bytes(there.depth).filter(|depth| depth.is_multiple_of(8)),
            saved: bytes(there.saved),
            framed: there.frame == Some(8) && there.saved == Some(8),
            jumps_away,
        })
    }
}

/// Reads code by pieces.
struct Code<'m, M> {
    memory: &'m M,
    /// By their place, in pieces. Each has the rest of its last instruction.
    pieces: FxHashMap<u64, Vec<u8>>,
}

impl<'m, M: ReadMemory> Code<'m, M> {
    fn new(memory: &'m M) -> Code<'m, M> {
        Code { memory, pieces: FxHashMap::default() }
    }

    fn bytes(&mut self, at: u64, context: &mut Context) -> Option<&[u8]> {
        let (place, into) = (at / PIECE, at % PIECE);
        let known = self.pieces.len();
        let piece = match self.pieces.entry(place) {
            Entry::Occupied(piece) => piece.into_mut(),
            Entry::Vacant(_) if known == PIECES_MAX => return None,
            Entry::Vacant(empty) => {
                context.spend(READ)?;
                let mut piece = vec![0; PIECE as usize + LONGEST - 1];
                let read = self.memory.read(place * PIECE, &mut piece);
                piece.truncate(read);
                empty.insert(piece)
            }
        };
        piece.get(into as usize..).filter(|bytes| !bytes.is_empty())
    }
}

/// The effect of an instruction on the stack pointer and rbp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    Nothing,
    /// Moves the stack pointer down by this number of bytes.
    Down(i64),
    PushRbp,
    PopRbp,
    /// rbp = rsp
    Frame,
    /// rsp = rbp
    Unframe,
    Leave,
    /// rbp = the word that it points at
    Link,
    /// Sets the stack pointer to an unknown value.
    Lost,
    /// Sets rbp to an unknown value.
    NoFrame,
}

/// Where execution continues; distances of jumps are from the end of the instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Goes {
    On,
    /// In other code or in the kernel, and then behind the instruction, if that returns.
    Elsewhere,
    /// At the return address on top of the stack.
    Back,
    Nowhere,
    Either(i64),
    To(i64),
    /// Through the word at this distance.
    Through(i64),
    Away,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Instruction {
    length: usize,
    effect: Effect,
    goes: Goes,
}

fn apply(state: State, effect: Effect) -> Option<State> {
    let mut next = state;
    match effect {
        Effect::Nothing => {}
        Effect::Down(by) => next.depth = state.depth.map(|depth| depth + by),
        Effect::PushRbp => {
            next.depth = state.depth.map(|depth| depth + 8);
            // A second push does not save the caller's rbp.
            next.saved = state.saved.or(next.depth);
        }
        Effect::PopRbp => {
            next.depth = state.depth.map(|depth| depth - 8);
            next.frame = None;
            if state.saved == state.depth {
                next.saved = None;
            }
        }
        Effect::Frame => next.frame = state.depth,
        Effect::Unframe => next.depth = state.frame,
        Effect::Leave => {
            next.depth = state.frame.map(|frame| frame - 8);
            if state.saved == state.frame {
                next.saved = None;
            }
            next.frame = None;
        }
        Effect::Link => {
            if state.saved == state.frame {
                next.saved = None;
            }
            next.frame = None;
        }
        Effect::Lost => next.depth = None,
        Effect::NoFrame => next.frame = None,
    }
    next.depth.is_none_or(|depth| (0..=DEPTH_MAX).contains(&depth)).then_some(next)
}

/// Decodes the first instruction of `code`. `None` for one that does not occur in plain compiled
/// code, or is truncated.
fn decode(code: &[u8]) -> Option<Instruction> {
    let byte = |at: usize| code.get(at).copied();
    let (mut at, mut narrow) = (0, false);
    while matches!(byte(at)?, 0x66 | 0xf2 | 0xf3 | 0xf0 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65) {
        narrow |= byte(at)? == 0x66;
        at += 1;
        if at == LONGEST {
            return None;
        }
    }
    let rex = byte(at).filter(|byte| byte & 0xf0 == 0x40);
    at += usize::from(rex.is_some());
    let (wide, high_reg, high_rm) = (
        rex.is_some_and(|r| r & 8 != 0),
        rex.is_some_and(|r| r & 4 != 0),
        rex.is_some_and(|r| r & 1 != 0),
    );
    let opcode = byte(at)?;
    at += 1;
    // Bytes of the immediate operand behind the opcode.
    let full = if narrow { 2 } else { 4 };
    let plain = |length: usize, effect, goes| {
        (length <= code.len()).then_some(Instruction { length, effect, goes })
    };
    let signed = |at: usize, size: usize| -> Option<i64> {
        let bytes = code.get(at..at + size)?;
        Some(match size {
            1 => i64::from(bytes[0] as i8),
            _ => i64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
        })
    };
    let on = |length| plain(length, Effect::Nothing, Goes::On);
    match opcode {
        0x50..=0x57 => {
            let effect = if opcode == 0x55 && !high_rm { Effect::PushRbp } else { Effect::Down(8) };
            return plain(at, effect, Goes::On);
        }
        0x5c if !high_rm => return plain(at, Effect::Lost, Goes::On),
        0x58..=0x5f => {
            let effect = if opcode == 0x5d && !high_rm { Effect::PopRbp } else { Effect::Down(-8) };
            return plain(at, effect, Goes::On);
        }
        0x6a => return plain(at + 1, Effect::Down(8), Goes::On),
        0x68 => return plain(at + 4, Effect::Down(8), Goes::On),
        0x9c => return plain(at, Effect::Down(8), Goes::On),
        0x9d => return plain(at, Effect::Down(-8), Goes::On),
        0x70..=0x7f | 0xe0..=0xe3 => {
            return plain(at + 1, Effect::Nothing, Goes::Either(signed(at, 1)?));
        }
        0xeb => return plain(at + 1, Effect::Nothing, Goes::To(signed(at, 1)?)),
        0xe9 => return plain(at + 4, Effect::Nothing, Goes::To(signed(at, 4)?)),
        0xe8 => return plain(at + 4, Effect::Nothing, Goes::Elsewhere),
        0xc3 => return plain(at, Effect::Nothing, Goes::Back),
        0xf4 => return plain(at, Effect::Nothing, Goes::Nowhere),
        0xc2 => return plain(at + 2, Effect::Nothing, Goes::Nowhere),
        0xc9 => return plain(at, Effect::Leave, Goes::On),
        0x90..=0x99 | 0xa4..=0xa7 | 0xaa..=0xaf | 0xf5 | 0xf8 | 0xf9 | 0xfc | 0xfd => {
            return on(at);
        }
        0x04 | 0x0c | 0x14 | 0x1c | 0x24 | 0x2c | 0x34 | 0x3c | 0xa8 | 0xb0..=0xb7 => {
            return on(at + 1);
        }
        0x05 | 0x0d | 0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0xa9 => return on(at + full),
        0xbd if !high_rm => {
            return plain(at + if wide { 8 } else { full }, Effect::NoFrame, Goes::On);
        }
        0xb8..=0xbf => return on(at + if wide { 8 } else { full }),
        _ => {}
    }
    // The others have a ModRM byte.
    let (two, opcode) = if opcode == 0x0f { (true, byte(at)?) } else { (false, opcode) };
    at += usize::from(two);
    let mut immediate = 0;
    if two {
        match opcode {
            0x05 => return plain(at, Effect::Nothing, Goes::Elsewhere),
            0x31 | 0xa2 | 0x77 | 0xc8..=0xcf => return on(at),
            0x0b => return plain(at, Effect::Nothing, Goes::Nowhere),
            0x80..=0x8f => return plain(at + 4, Effect::Nothing, Goes::Either(signed(at, 4)?)),
            0x38 => at += 1,
            0x3a => (at, immediate) = (at + 1, 1),
            0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => immediate = 1,
            0x10..=0x1f | 0x28..=0x2f | 0x40..=0x6f | 0x74..=0x76 | 0x78..=0x7f | 0x90..=0x9f => {}
            0xa3
            | 0xa5
            | 0xab
            | 0xad..=0xb1
            | 0xb3
            | 0xb6..=0xb8
            | 0xbb..=0xc1
            | 0xc7
            | 0xd0..=0xff => {}
            _ => return None,
        }
    } else {
        match opcode {
            0x00..=0x3f if opcode & 7 < 4 => {}
            0x63 | 0x84..=0x8b | 0x8d | 0x8f | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe | 0xff => {}
            0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => immediate = 1,
            0x69 | 0x81 | 0xc7 => immediate = full,
            0xf6 | 0xf7 => {}
            _ => return None,
        }
    }
    let modrm = byte(at)?;
    let (mode, reg, rm) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
    if !two && reg < 2 {
        immediate = match opcode {
            0xf6 => 1,
            0xf7 => full,
            _ => immediate,
        };
    }
    let behind = at + super::call_sites::modrm_length(modrm, byte(at + 1));
    let length = behind + immediate;
    let direct = mode == 3;
    if two {
        // Conditional moves, and moves of smaller values.
        let sets = matches!(opcode, 0x40..=0x4f | 0xaf | 0xb6..=0xbf) && reg == 4 && !high_reg;
        return plain(length, if sets { Effect::Lost } else { Effect::Nothing }, Goes::On);
    }
    let goes = match (opcode, reg) {
        // Through a word relative to the next instruction, or through an unknown pointer.
        (0xff, 4) if mode == 0 && rm == 5 => Goes::Through(signed(at + 1, 4)?),
        (0xff, 4 | 5) => Goes::Away,
        (0xff, 2 | 3) => Goes::Elsewhere,
        _ => Goes::On,
    };
    let (rsp_rm, rsp_reg) = (direct && rm == 4 && !high_rm, reg == 4 && !high_reg);
    let (rbp_rm, rbp_reg) = (direct && rm == 5 && !high_rm, reg == 5 && !high_reg);
    let compares = matches!(opcode, 0x81 | 0x83) && reg == 7 || opcode == 0xf7 && reg < 2;
    let effect = match opcode {
        0xff if reg == 6 => Effect::Down(8),
        0x8f => Effect::Down(-8),
        0x81 | 0x83 if rsp_rm && wide && reg == 5 => Effect::Down(signed(behind, immediate)?),
        0x81 | 0x83 if rsp_rm && wide && reg == 0 => Effect::Down(-signed(behind, immediate)?),
        0x81 | 0x83 if rsp_rm && reg != 7 => Effect::Lost,
        // lea rsp, [rsp + n]
        0x8d if rsp_reg
            && !high_rm
            && rm == 4
            && byte(at + 1) == Some(0x24)
            && (mode == 1 || mode == 2) =>
        {
            Effect::Down(-signed(at + 2, if mode == 1 { 1 } else { 4 })?)
        }
        0x89 if direct && wide && modrm == 0xe5 && !high_reg && !high_rm => Effect::Frame,
        0x8b if direct && wide && modrm == 0xec && !high_reg && !high_rm => Effect::Frame,
        0x89 if direct && wide && modrm == 0xec && !high_reg && !high_rm => Effect::Unframe,
        0x8b if direct && wide && modrm == 0xe5 && !high_reg && !high_rm => Effect::Unframe,
        // mov rbp, [rbp + 0]
        0x8b if wide && modrm == 0x6d && !high_reg && !high_rm && byte(at + 1) == Some(0) => {
            Effect::Link
        }
        // Instructions with a result of 32 or 64 bits in a register: the second operand, or the
        // first.
        0x01 | 0x09 | 0x11 | 0x19 | 0x21 | 0x29 | 0x31 | 0x87 | 0x89 | 0xc1 | 0xc7 | 0xd1
        | 0xd3 | 0xf7
            if rsp_rm =>
        {
            Effect::Lost
        }
        0xff if rsp_rm && reg < 2 => Effect::Lost,
        0x03 | 0x0b | 0x13 | 0x1b | 0x23 | 0x2b | 0x33 | 0x63 | 0x69 | 0x6b | 0x87 | 0x8b
        | 0x8d
            if rsp_reg =>
        {
            Effect::Lost
        }
        0x01 | 0x09 | 0x11 | 0x19 | 0x21 | 0x29 | 0x31 | 0x81 | 0x83 | 0x87 | 0x89 | 0xc1
        | 0xc7 | 0xd1 | 0xd3 | 0xf7
            if rbp_rm && !compares =>
        {
            Effect::NoFrame
        }
        0x03 | 0x0b | 0x13 | 0x1b | 0x23 | 0x2b | 0x33 | 0x63 | 0x69 | 0x6b | 0x87 | 0x8b
        | 0x8d
            if rbp_reg =>
        {
            Effect::NoFrame
        }
        _ => Effect::Nothing,
    };
    plain(length, effect, goes)
}

#[cfg(test)]
mod tests;
