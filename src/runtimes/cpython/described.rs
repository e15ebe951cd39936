//! How an interpreter describes itself since 3.13: `_Py_DebugOffsets`, at `_PyRuntime`.

use crate::elf::u64_at;
use crate::runtimes::cpython::layout::{
    Code, Frame, Gil, GilAt, Interpreter, Layout, Object, Position, Thread, Top, Version,
};

/// Versions whose descriptions are known: 3.13 to this minor.
const NEWEST_MINOR: u8 = 15;

/// What `_Py_DebugOffsets` begins with, and the positions of its version and of the flag of builds
/// without a GIL.
const COOKIE: &[u8] = b"xdebugpy";
const VERSION: usize = 8;
const FREE_THREADED: usize = 16;

/// Bytes of the description that are read: those of 3.15, and some more.
pub const DESCRIPTION: usize = 1024;

/// Where the description has each offset, a u64, by version: the structure grew in its middle.
struct Positions {
    modules: usize,
    /// Behind the pointer to the lock: where the main interpreter has its own.
    gil: usize,
    gil_locked: usize,
    gil_holder: usize,
    /// Those of the next thread, of the interpreter and of the innermost frame are in a row.
    thread: usize,
    /// pthread_t, the kernel's id, the data stack.
    thread_ids: usize,
    /// Size (not used), previous frame, code, position in the code, local variables, owner.
    frame: usize,
    copy: Option<usize>,
    /// Size (not used), file, name, qualified name, lines, first line.
    code: usize,
    instructions: usize,
    copies: Option<usize>,
    kind: usize,
    type_name: usize,
    /// Length, bytes.
    bytes: usize,
    /// State, length, size of the head of an ASCII string.
    text: usize,
}

/// 3.13, 3.14, 3.15 (Include/internal/pycore_debug_offsets.h).
const POSITIONS: [Positions; 3] = [
    Positions {
        modules: 88,
        gil: 112,
        gil_locked: 136,
        gil_holder: 144,
        thread: 168,
        thread_ids: 192,
        frame: 224,
        copy: None,
        code: 272,
        instructions: 344,
        copies: None,
        kind: 360,
        type_name: 376,
        bytes: 520,
        text: 544,
    },
    Positions {
        modules: 96,
        gil: 120,
        gil_locked: 144,
        gil_holder: 152,
        thread: 192,
        thread_ids: 216,
        frame: 248,
        copy: Some(304),
        code: 312,
        instructions: 384,
        copies: Some(392),
        kind: 408,
        type_name: 424,
        bytes: 600,
        text: 624,
    },
    Positions {
        modules: 96,
        gil: 120,
        gil_locked: 144,
        gil_holder: 152,
        thread: 192,
        thread_ids: 240,
        frame: 312,
        copy: Some(368),
        code: 376,
        instructions: 448,
        copies: Some(456),
        kind: 472,
        type_name: 488,
        bytes: 696,
        text: 720,
    },
];

/// Maximum offset in an interpreter, and in the other structures. What is beyond is garbage.
const INTERPRETER_MAX: u64 = 1 << 20;
const OBJECT_MAX: u64 = 4096;

impl Version {
    /// Returns the version that an interpreter describes, known or not. `bytes`: the beginning of
    /// `_PyRuntime`.
    pub fn described(bytes: &[u8]) -> Option<Version> {
        let version = u64_at(bytes, VERSION).filter(|_| bytes.starts_with(COOKIE))?;
        Some(Version(u32::try_from(version).ok()?))
    }
}

impl Layout {
    /// Returns the layout that an interpreter describes, and its version. `bytes`: the beginning of
    /// `_PyRuntime`. `None` before 3.13, of versions that are not known, and of garbage.
    pub fn described(bytes: &[u8]) -> Option<(Version, Layout)> {
        let word = |at: usize| u64_at(bytes, at);
        let version = Version::described(bytes)?;
        let minor = version.minor().filter(|minor| (13..=NEWEST_MINOR).contains(minor))?;
        let free_threaded = word(FREE_THREADED)? != 0;
        let at = &POSITIONS[usize::from(minor - 13)];
        let far = |position: usize| word(position).filter(|offset| *offset < INTERPRETER_MAX);
        let near = |position: usize| word(position).filter(|offset| *offset < OBJECT_MAX);
        let optional = |position: Option<usize>| match position.filter(|_| free_threaded) {
            Some(position) => near(position).map(Some),
            None => Some(None),
        };
        // The lock's fields are described by their place in the main interpreter, which has it.
        let in_gil = |position: usize| {
            let field = far(position)?.checked_sub(far(at.gil + 8)?)?;
            Some(field).filter(|offset| *offset < OBJECT_MAX)
        };
        let gil_locked = in_gil(at.gil_locked)?;
        let first_line = near(at.code + 40)?;
        let ascii = near(at.text + 16)?;
        let layout = Layout {
            minor,
            free_threaded,
            interpreters: far(40)?,
            interpreter: Interpreter {
                id: far(56)?,
                next: far(64)?,
                threads: far(72)?,
                modules: far(at.modules)?,
                gil: Gil {
                    at: GilAt::Interpreter(far(at.gil)?),
                    holder: in_gil(at.gil_holder)?,
                    locked: gil_locked,
                    // A lock and a condition variable are behind these.
                    switches: gil_locked + 8,
                },
            },
            thread: Thread {
                next: near(at.thread)?,
                interpreter: near(at.thread + 8)?,
                top: Top::Thread { frame: near(at.thread + 16)? },
                pthread: near(at.thread_ids)?,
                native_id: Some(near(at.thread_ids + 8)?),
                unique: near(at.thread_ids + 8)?,
                chunk: Some(near(at.thread_ids + 16)?),
                task: None,
            },
            frame: Frame {
                previous: near(at.frame + 8)?,
                code: near(at.frame + 16)?,
                position: near(at.frame + 24)?,
                how: Position::Address,
                owner: Some(near(at.frame + 40)?),
                is_entry: None,
                copy: optional(at.copy)?,
                locals: near(at.frame + 32)?,
            },
            code: Code {
                file: near(at.code + 8)?,
                name: near(at.code + 16)?,
                qualified_name: Some(near(at.code + 24)?),
                lines: near(at.code + 32)?,
                first_line,
                instructions: Some(near(at.instructions)?),
                copies: optional(at.copies)?,
            },
            object: Object {
                kind: near(at.kind)?,
                type_name: near(at.type_name)?,
                bytes_length: near(at.bytes)?,
                bytes: near(at.bytes + 8)?,
                text_state: near(at.text)?,
                text_length: near(at.text + 8)?,
                ascii,
                // Behind the head of a string that is not ASCII are two words more.
                characters: ascii + 16,
                interned_bits: if free_threaded && minor >= 14 { 8 } else { 2 },
            },
        };
        Some((version, layout))
    }
}
