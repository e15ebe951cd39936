//! Frames of interpreters that the kernel takes with each sample of their threads
//! (interpreter.bpf.h).

use crate::model::vocabulary::frame::Marker;
use crate::unwinder::interpreted::{InterpreterFrame, InterpreterLayout, Taken};

/// Words of `struct layout`.
pub const LAYOUT: usize = 28;
/// Of `struct taken_frames`: bytes between its head and the frames, and of a frame.
const HEAD: usize = 176;
const FRAME: usize = 40;
/// Frames kept at both ends of a deep list.
const INNERMOST: usize = 400;
const OUTERMOST: usize = 396;

/// Returns the words of `struct layout`.
pub fn words(layout: &InterpreterLayout) -> [u64; LAYOUT] {
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

/// Decodes `struct taken_frames` behind its head; `visited`: the number of frames visited. `None`
/// for garbage.
pub fn decode(visited: usize, bytes: &[u8]) -> Option<Taken> {
    let (head, frames) = bytes.split_at_checked(HEAD)?;
    let word = |at: usize| Some(u64::from_ne_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let end = word(0)?;
    let holds_lock = word(8)? == 1;
    let name = &head[16..];
    let is_named = name.iter().any(|byte| *byte != 0);
    let task_name = if is_named { name.to_vec() } else { Vec::new() };
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
    Some(Taken { frames, gap, end, task_name, holds_lock })
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

    /// Makes a record of a list of `visited` frames as the program writes it, without its head; the
    /// address of a frame is its place in the list.
    fn written(visited: usize, end: u64) -> Vec<u8> {
        let kept = INNERMOST + OUTERMOST;
        let mut frames = vec![[0u8; FRAME]; visited.min(kept)];
        for index in 0..visited {
            let place =
                if index < INNERMOST { index } else { INNERMOST + (index - INNERMOST) % OUTERMOST };
            let words = [index as u64, 2, 3, 4, 5 << 32 | 1 << 8 | 6].map(u64::to_ne_bytes);
            frames[place].copy_from_slice(words.as_flattened());
        }
        let mut bytes = [end, 1].map(u64::to_ne_bytes).concat();
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
        let taken = decode(2, &written(2, 0)).expect("a record");
        let frame = |address| InterpreterFrame {
            address,
            code: 2,
            position: 3,
            fingerprint: 4,
            owner: 6,
            is_entry: true,
            copy: 5,
        };
        assert_eq!((taken.gap, taken.end), (None, None));
        assert_eq!((taken.task_name, taken.holds_lock), (vec![88; 160], true));
        assert_eq!(taken.frames, [frame(0), frame(1)]);
        let taken = |visited, end| decode(visited, &written(visited, end)).expect("a record");
        assert!(taken(3, 0).task_name.is_empty());
        let end = |code| taken(1, code).end;
        assert_eq!([end(1), end(2)], [Some(Marker::PageMissing), Some(Marker::TooDeep)]);
    }

    #[test]
    fn a_deep_list_keeps_both_ends_in_order() {
        for visited in [796, 797, 999, 1_192, 1_193, 4_096] {
            let taken = decode(visited, &written(visited, 0)).expect("a record");
            let found: Vec<u64> = taken.frames.iter().map(|frame| frame.address).collect();
            let outermost = (visited - OUTERMOST) as u64..visited as u64;
            let expected: Vec<u64> = (0..INNERMOST as u64).chain(outermost).collect();
            assert_eq!(found, expected, "{visited}");
            assert_eq!(taken.gap, (visited > 796).then_some(INNERMOST));
        }
    }

    #[test]
    fn garbage_is_no_list() {
        let whole = written(3, 0);
        for length in 0..whole.len() {
            assert_eq!(decode(3, &whole[..length]), None, "{length}");
        }
    }
}
