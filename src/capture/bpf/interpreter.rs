//! Frames of interpreters that the kernel takes with each sample of their threads
//! (interpreter.bpf.h).

use std::collections::VecDeque;
use std::io;

use aya::maps::{HashMap, MapData, RingBuf};
use rustc_hash::FxHashMap;

use crate::model::vocabulary::frame::{Marker, Ns};
use crate::unwinder::interpreted::{InterpreterFrame, InterpreterLayout, Taken};

/// Words of `struct layout`.
const LAYOUT: usize = 28;
/// Of `struct taken`: bytes before the frames, and of a frame.
const HEAD: usize = 192;
const FRAME: usize = 40;
/// Frames kept at both ends of a deep list.
const INNERMOST: usize = 400;
const OUTERMOST: usize = 396;
/// Maximum distance of the times of a sample and of its frames. Both are taken in one interrupt;
/// the least interval of samples is longer.
const APART: Ns = 200_000;
/// Maximum records kept for one processor; those without a sample are dropped.
const KEPT: usize = 256;

/// Reads what the kernel takes of interpreters' threads.
pub struct Interpreters {
    layouts: HashMap<MapData, u32, [u64; LAYOUT]>,
    ring: RingBuf<MapData>,
    waiting: Waiting,
}

/// What was taken and waits for its sample, by processor, in order of time.
#[derive(Default)]
struct Waiting(FxHashMap<u32, VecDeque<Record>>);

#[derive(Debug, PartialEq)]
struct Record {
    at: Ns,
    /// The thread's id in the initial pid namespace.
    thread: u32,
    taken: Taken,
}

impl Interpreters {
    pub(super) fn new(
        layouts: HashMap<MapData, u32, [u64; LAYOUT]>,
        ring: RingBuf<MapData>,
    ) -> Interpreters {
        Interpreters { layouts, ring, waiting: Waiting::default() }
    }

    /// Sets where the interpreter of a process keeps its frames; `None`: it has none. `process`:
    /// its id in the initial pid namespace.
    pub fn set(&mut self, process: u32, layout: Option<&InterpreterLayout>) -> io::Result<()> {
        match layout {
            Some(layout) => {
                self.layouts.insert(process, words(layout), 0).map_err(io::Error::other)
            }
            None => {
                let _ = self.layouts.remove(&process);
                Ok(())
            }
        }
    }

    /// Takes from the ring what is there. To be called before the samples are read: the kernel
    /// writes their frames first.
    pub fn receive(&mut self) {
        while let Some(bytes) = self.ring.next() {
            if let Some((processor, record)) = decode(&bytes) {
                self.waiting.add(processor, record);
            }
        }
    }

    /// Returns the frames that belong to a sample of a thread. `thread`: its id in the initial pid
    /// namespace, where that is known. Samples of one processor are asked for in order of time.
    pub fn of_sample(&mut self, processor: u32, at: Ns, thread: Option<u32>) -> Taken {
        self.waiting.of_sample(processor, at, thread).unwrap_or_else(Taken::nothing)
    }
}

impl Waiting {
    fn add(&mut self, processor: u32, record: Record) {
        let waiting = self.0.entry(processor).or_default();
        if waiting.len() >= KEPT {
            waiting.pop_front();
        }
        waiting.push_back(record);
    }

    fn of_sample(&mut self, processor: u32, at: Ns, thread: Option<u32>) -> Option<Taken> {
        let waiting = self.0.get_mut(&processor)?;
        while waiting.front().is_some_and(|record| record.at.saturating_add(APART) < at) {
            waiting.pop_front();
        }
        // Where a sample was lost, its record is still there, of another thread perhaps.
        let is_its = |record: &Record| thread.is_none_or(|thread| record.thread == thread);
        let near = waiting.iter().take_while(|record| record.at <= at.saturating_add(APART));
        let place = near.into_iter().position(is_its)?;
        waiting.drain(..place);
        waiting.pop_front().map(|record| record.taken)
    }
}

fn words(layout: &InterpreterLayout) -> [u64; LAYOUT] {
    const NONE: u64 = u64::MAX;
    let optional = |offset: Option<u32>| offset.map_or(NONE, u64::from);
    [
        layout.interpreters,
        layout.lock,
        layout.lock_holder.into(),
        layout.lock_locked.into(),
        optional(layout.interpreter_lock),
        layout.next_interpreter.into(),
        layout.first_thread.into(),
        layout.next_thread.into(),
        layout.thread_interpreter.into(),
        layout.pthread.into(),
        layout.innermost.into(),
        optional(layout.indirect),
        optional(layout.running_task.map(|task| task.of_thread)),
        layout.running_task.map_or(0, |task| task.name).into(),
        layout.frame_size.into(),
        layout.frame_caller.into(),
        layout.frame_code.into(),
        layout.frame_position.into(),
        layout.position_is_short.into(),
        optional(layout.frame_owner),
        optional(layout.frame_is_entry),
        optional(layout.frame_copy),
        layout.shim_owner.map_or(NONE, u64::from),
        layout.code_size.into(),
        layout.code_file.into(),
        layout.code_name.into(),
        layout.code_lines.into(),
        layout.code_first_line.into(),
    ]
}

/// Decodes `struct taken`: the processor, and what was taken there. `None` for garbage.
fn decode(bytes: &[u8]) -> Option<(u32, Record)> {
    let (head, frames) = bytes.split_at_checked(HEAD)?;
    let word = |at: usize| Some(u64::from_ne_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let (at, place, ended) = (word(0)?, word(8)?, word(16)?);
    let (processor, thread) = (place as u32, (place >> 32) as u32);
    let holds_lock = word(24)? == 1;
    let name = &head[32..];
    let is_named = name.iter().any(|byte| *byte != 0);
    let task_name = if is_named { name.to_vec() } else { Vec::new() };
    let (visited, end) = (ended as u32 as usize, (ended >> 32) as u32);
    let mut frames: Vec<InterpreterFrame> = frames.chunks_exact(FRAME).map(frame).collect();
    if frames.len() < visited.min(INNERMOST + OUTERMOST) {
        return None;
    }
    // The outermost frames were written round and round; the oldest one goes first.
    let deep = visited > INNERMOST + OUTERMOST;
    if deep {
        frames[INNERMOST..].rotate_left((visited - INNERMOST) % OUTERMOST);
    }
    let end = match end {
        0 => None,
        1 => Some(Marker::PageMissing),
        _ => Some(Marker::TooDeep),
    };
    let gap = deep.then_some(INNERMOST);
    let taken = Taken { frames, gap, end, task_name, holds_lock };
    Some((processor, Record { at, thread, taken }))
}

fn frame(bytes: &[u8]) -> InterpreterFrame {
    let word = |at: usize| {
        let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
        u64::from_ne_bytes(word.unwrap_or_default())
    };
    let [address, code, position, fingerprint, last] = [0, 8, 16, 24, 32].map(word);
    InterpreterFrame {
        address,
        code,
        position,
        fingerprint,
        owner: last as u8,
        is_entry: last >> 8 & 1 == 1,
        copy: (last >> 32) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwinder::interpreted::RunningTask;

    /// Makes a record of a list of `visited` frames as the program writes it; the address of a
    /// frame is its place in the list.
    fn written(visited: u32, end: u32) -> Vec<u8> {
        let kept = INNERMOST + OUTERMOST;
        let mut frames = vec![[0u8; FRAME]; (visited as usize).min(kept)];
        for index in 0..visited as usize {
            let place =
                if index < INNERMOST { index } else { INNERMOST + (index - INNERMOST) % OUTERMOST };
            let words = [index as u64, 2, 3, 4, 5 << 32 | 1 << 8 | 6].map(u64::to_ne_bytes);
            frames[place].copy_from_slice(words.as_flattened());
        }
        let mut bytes = 77u64.to_ne_bytes().to_vec();
        bytes.extend([3u32, 4_711, visited, end].map(u32::to_ne_bytes).concat());
        bytes.extend(1u64.to_ne_bytes());
        bytes.extend([if visited == 2 { 88 } else { 0 }; 160]);
        bytes.extend(frames.concat());
        bytes
    }

    #[test]
    fn the_kernel_finds_each_offset_in_its_place() {
        let layout = InterpreterLayout {
            interpreters: 1,
            lock: 2,
            lock_holder: 3,
            lock_locked: 4,
            interpreter_lock: Some(5),
            next_interpreter: 6,
            first_thread: 7,
            next_thread: 8,
            thread_interpreter: 9,
            pthread: 10,
            innermost: 11,
            indirect: Some(12),
            running_task: Some(RunningTask { of_thread: 13, name: 14 }),
            frame_size: 15,
            frame_caller: 16,
            frame_code: 17,
            frame_position: 18,
            position_is_short: true,
            frame_owner: Some(20),
            frame_is_entry: Some(21),
            frame_copy: Some(22),
            shim_owner: Some(23),
            code_size: 24,
            code_file: 25,
            code_name: 26,
            code_lines: 27,
            code_first_line: 28,
        };
        let (_, fields) = include_str!("interpreter.bpf.h").split_once("struct layout {").unwrap();
        let fields = fields.split_once("};").unwrap().0.lines().map(str::trim);
        let fields = fields.filter_map(|line| line.strip_prefix("u64 ")?.strip_suffix(';'));
        let names: Vec<&str> = fields.flat_map(|names| names.split(", ")).collect();
        let expected = [
            ("interpreters", 1),
            ("lock", 2),
            ("lock_holder", 3),
            ("lock_locked", 4),
            ("interpreter_lock", 5),
            ("next_interpreter", 6),
            ("first_thread", 7),
            ("next_thread", 8),
            ("thread_interpreter", 9),
            ("pthread", 10),
            ("innermost", 11),
            ("indirect", 12),
            ("task", 13),
            ("task_name", 14),
            ("frame_size", 15),
            ("caller", 16),
            ("code", 17),
            ("position", 18),
            ("short_position", 1),
            ("owner", 20),
            ("is_entry", 21),
            ("copy", 22),
            ("shim_owner", 23),
            ("code_size", 24),
            ("file", 25),
            ("name", 26),
            ("lines", 27),
            ("first_line", 28),
        ];
        let written: Vec<(&str, u64)> = names.into_iter().zip(words(&layout)).collect();
        assert_eq!(written, expected);
    }

    #[test]
    fn a_list_is_decoded() {
        let (processor, Record { at, thread, taken }) = decode(&written(2, 0)).expect("a record");
        let frame = |address| InterpreterFrame {
            address,
            code: 2,
            position: 3,
            fingerprint: 4,
            owner: 6,
            is_entry: true,
            copy: 5,
        };
        assert_eq!((processor, thread, at), (3, 4_711, 77));
        assert_eq!((taken.gap, taken.end), (None, None));
        assert_eq!((taken.task_name, taken.holds_lock), (vec![88; 160], true));
        assert_eq!(taken.frames, [frame(0), frame(1)]);
        let taken = |visited, end| decode(&written(visited, end)).expect("a record").1.taken;
        assert!(taken(3, 0).task_name.is_empty());
        let end = |code| taken(1, code).end;
        assert_eq!([end(1), end(2)], [Some(Marker::PageMissing), Some(Marker::TooDeep)]);
    }

    #[test]
    fn a_deep_list_keeps_both_ends_in_order() {
        for visited in [796, 797, 999, 1_192, 1_193, 4_096] {
            let (_, Record { taken, .. }) = decode(&written(visited, 0)).expect("a record");
            let found: Vec<u64> = taken.frames.iter().map(|frame| frame.address).collect();
            let outermost = u64::from(visited) - OUTERMOST as u64..u64::from(visited);
            let expected: Vec<u64> = (0..INNERMOST as u64).chain(outermost).collect();
            assert_eq!(found, expected, "{visited}");
            assert_eq!(taken.gap, (visited > 796).then_some(INNERMOST));
        }
    }

    #[test]
    fn a_sample_has_the_frames_of_its_own_instant_and_thread() {
        let mut waiting = Waiting::default();
        let mut add = |at, thread| {
            let taken = Taken { gap: Some(at as usize), ..Taken::nothing() };
            waiting.add(0, Record { at, thread, taken });
        };
        let records: [(Ns, u32); 5] =
            [(1_000_000, 7), (1_010_000, 8), (1_020_000, 7), (9_000_000, 7), (9_100_000, 8)];
        records.into_iter().for_each(|(at, thread)| add(at, thread));
        let mut of = |at, thread| waiting.of_sample(0, at, thread).and_then(|taken| taken.gap);
        assert_eq!(of(1_010_100, Some(9)), None, "whose record was lost");
        assert_eq!(of(1_010_100, Some(8)), Some(1_010_000), "the first one's sample was lost");
        assert_eq!(of(1_020_100, Some(7)), Some(1_020_000));
        assert_eq!(of(8_000_000, Some(7)), None, "the next is of later");
        assert_eq!(of(9_000_100, None), Some(9_000_000), "in another namespace");
        assert_eq!(of(9_400_000, Some(8)), None, "that is too long ago");
        assert_eq!(waiting.of_sample(1, 9_100_000, None), None, "another processor");
    }

    #[test]
    fn garbage_is_no_list() {
        let whole = written(3, 0);
        for length in 0..whole.len() {
            assert_eq!(decode(&whole[..length]), None, "{length}");
        }
    }
}
