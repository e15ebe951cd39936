//! Where CPython keeps what a stack is made of: offsets in its structures, in bytes, for release
//! builds on 64-bit Linux.
//!
//! From 3.13 on an interpreter describes itself; see [`crate::runtimes::cpython::described`]. The
//! layouts of 3.8 to 3.12 are in a table, by offsetof of each version's own headers (3.8.18,
//! 3.9.18, 3.10.13, 3.11.7, 3.12.1). A build that differs is found by the checks of attaching, and
//! is not read.

use crate::unwinder::interpreted::{self, InterpreterLayout};

/// A version, `PY_VERSION_HEX`: `0x030d00f0` is 3.13.0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub u32);

impl Version {
    /// Returns the minor version of a 3.
    pub fn minor(self) -> Option<u8> {
        (self.0 >> 24 == 3).then_some((self.0 >> 16) as u8)
    }

    /// Returns some version with this minor one.
    pub fn of_minor(minor: u8) -> Version {
        Version(3 << 24 | u32::from(minor) << 16)
    }

    /// Parses the beginning of a text like `3.9.18 (main, ...`.
    pub fn written(text: &[u8]) -> Option<Version> {
        let (version, _) = text.split_at(text.windows(2).position(|pair| pair == b" (")?);
        let mut numbers = version.split(|byte| *byte == b'.');
        let mut number = || -> Option<u32> {
            let digits = numbers.next().filter(|digits| digits.len() <= 2)?;
            let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
            std::str::from_utf8(digits).ok()?.parse().ok()
        };
        let (major, minor, micro) = (number()?, number()?, number()?);
        (major == 3 && numbers.next().is_none())
            .then_some(Version(3 << 24 | minor << 16 | micro << 8))
    }

    /// `3.13.0`
    pub fn words(self) -> String {
        format!("{}.{}.{}", self.0 >> 24, self.0 >> 16 & 255, self.0 >> 8 & 255)
    }
}

/// How a thread leads to its innermost frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Top {
    /// 3.8 to 3.10: the thread has a pointer to a frame object. 3.13 on: to an interpreter frame.
    Thread { frame: u64 },
    /// 3.11, 3.12: to a structure on the C stack, which has the frame.
    CFrame { cframe: u64, frame: u64 },
}

/// How a frame says where it is in its code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// 3.8, 3.9: a number of bytes (i32), -1 before the first instruction.
    Bytes,
    /// 3.10: a number of code units of 2 bytes.
    Units,
    /// 3.11 on: an address in the code.
    Address,
}

/// Offsets, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub minor: u8,
    /// Built without a GIL.
    pub free_threaded: bool,
    /// In `_PyRuntime`: the first interpreter.
    pub interpreters: u64,
    pub interpreter: Interpreter,
    pub thread: Thread,
    pub frame: Frame,
    pub code: Code,
    pub object: Object,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interpreter {
    pub next: u64,
    pub id: u64,
    pub threads: u64,
    /// The dictionary of modules.
    pub modules: u64,
    pub gil: Gil,
}

/// Where the GIL is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GilAt {
    /// Up to 3.11 it is in `_PyRuntime`.
    Runtime(u64),
    /// Since then each interpreter has a pointer to one.
    Interpreter(u64),
}

/// In the GIL's structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gil {
    pub at: GilAt,
    /// The thread that has it, or had it last.
    pub holder: u64,
    /// Whether it is locked (i32).
    pub locked: u64,
    /// How often another thread got it (u64).
    pub switches: u64,
}

/// That of builds that do not describe themselves.
const fn gil(at: GilAt) -> Gil {
    Gil { at, holder: 8, locked: 16, switches: 24 }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thread {
    pub next: u64,
    pub interpreter: u64,
    pub top: Top,
    /// pthread_t.
    pub pthread: u64,
    /// The kernel's id in the namespace of the target; 3.11 on.
    pub native_id: Option<u64>,
    /// A number that no other thread state of the process has: CPython's own or, since 3.13, the
    /// kernel's id.
    pub unique: u64,
    /// The newest part of the data stack; 3.11 on.
    pub chunk: Option<u64>,
    /// The task of asyncio that it executes; 3.14 on, once asyncio is loaded.
    pub task: Option<RunningTask>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunningTask {
    /// In a thread.
    pub of_thread: u64,
    /// In a task: its name.
    pub name: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    pub previous: u64,
    /// The code object; in some versions with tags in its lowest two bits.
    pub code: u64,
    pub position: u64,
    pub how: Position,
    /// Who owns the frame's memory (u8); 3.11 on.
    pub owner: Option<u64>,
    /// The frame is the first of its evaluation (u8); 3.11.
    pub is_entry: Option<u64>,
    /// Which copy of the code a thread runs (i32); builds without a GIL since 3.14.
    pub copy: Option<u64>,
    /// Its first local variable; in some versions with tags in the lowest two bits.
    pub locals: u64,
}

/// From this owner on a frame is no function: it marks where C calls Python. 3.12 on.
const SHIM_OWNER: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    pub file: u64,
    pub name: u64,
    /// 3.11 on.
    pub qualified_name: Option<u64>,
    pub first_line: u64,
    /// A bytes object.
    pub lines: u64,
    /// Where instructions begin; 3.11 on.
    pub instructions: Option<u64>,
    /// The copies for threads; builds without a GIL since 3.14.
    pub copies: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    pub kind: u64,
    /// In a type.
    pub type_name: u64,
    /// In a bytes object: its length, and its bytes.
    pub bytes_length: u64,
    pub bytes: u64,
    /// In a string: its length, its state, and where characters begin: of ASCII ones, and of
    /// others.
    pub text_length: u64,
    pub text_state: u64,
    pub ascii: u64,
    pub characters: u64,
    /// How many bits of the state say whether a string is interned: 2; 8 in builds without a GIL
    /// since 3.14.
    pub interned_bits: u32,
}

/// Objects of builds with a GIL, but for where characters begin.
const fn object(ascii: u64) -> Object {
    Object {
        kind: 8,
        type_name: 24,
        bytes_length: 16,
        bytes: 32,
        text_length: 16,
        text_state: 32,
        ascii,
        characters: ascii + if ascii == 48 { 24 } else { 16 },
        interned_bits: 2,
    }
}

const fn old_code(name: u64) -> Code {
    Code {
        file: name - 8,
        name,
        qualified_name: None,
        first_line: 40,
        lines: name + 8,
        instructions: None,
        copies: None,
    }
}

const fn old_frame(position: u64, how: Position, locals: u64) -> Frame {
    let (previous, code) = (24, 32);
    Frame { previous, code, position, how, owner: None, is_entry: None, copy: None, locals }
}

const fn old_thread() -> Thread {
    Thread {
        next: 8,
        interpreter: 16,
        top: Top::Thread { frame: 24 },
        pthread: 176,
        native_id: None,
        unique: 256,
        chunk: None,
        task: None,
    }
}

/// 3.8 to 3.12.
const KNOWN: [Layout; 5] = [
    Layout {
        minor: 8,
        free_threaded: false,
        interpreters: 32,
        interpreter: Interpreter {
            next: 0,
            id: 16,
            threads: 8,
            modules: 56,
            gil: gil(GilAt::Runtime(1152)),
        },
        thread: old_thread(),
        frame: old_frame(104, Position::Bytes, 360),
        code: old_code(112),
        object: object(48),
    },
    Layout {
        minor: 9,
        free_threaded: false,
        interpreters: 32,
        interpreter: Interpreter {
            next: 0,
            id: 24,
            threads: 8,
            modules: 856,
            gil: gil(GilAt::Runtime(352)),
        },
        thread: old_thread(),
        frame: old_frame(104, Position::Bytes, 360),
        code: old_code(112),
        object: object(48),
    },
    Layout {
        minor: 10,
        free_threaded: false,
        interpreters: 32,
        interpreter: Interpreter {
            next: 0,
            id: 24,
            threads: 8,
            modules: 856,
            gil: gil(GilAt::Runtime(352)),
        },
        thread: old_thread(),
        frame: old_frame(96, Position::Units, 352),
        code: old_code(112),
        object: object(48),
    },
    Layout {
        minor: 11,
        free_threaded: false,
        interpreters: 40,
        interpreter: Interpreter {
            next: 0,
            id: 48,
            threads: 16,
            modules: 888,
            gil: gil(GilAt::Runtime(360)),
        },
        thread: Thread {
            next: 8,
            interpreter: 16,
            top: Top::CFrame { cframe: 56, frame: 8 },
            pthread: 152,
            native_id: Some(160),
            unique: 240,
            chunk: Some(296),
            task: None,
        },
        frame: Frame {
            previous: 48,
            code: 32,
            position: 56,
            how: Position::Address,
            owner: Some(69),
            is_entry: Some(68),
            copy: None,
            locals: 72,
        },
        code: Code {
            file: 112,
            name: 120,
            qualified_name: Some(128),
            first_line: 72,
            lines: 136,
            instructions: Some(184),
            copies: None,
        },
        object: object(48),
    },
    Layout {
        minor: 12,
        free_threaded: false,
        interpreters: 40,
        interpreter: Interpreter {
            next: 0,
            id: 8,
            threads: 72,
            modules: 944,
            gil: gil(GilAt::Interpreter(384)),
        },
        thread: Thread {
            next: 8,
            interpreter: 16,
            top: Top::CFrame { cframe: 56, frame: 0 },
            pthread: 136,
            native_id: Some(144),
            unique: 224,
            chunk: Some(232),
            task: None,
        },
        frame: Frame {
            previous: 8,
            code: 0,
            position: 56,
            how: Position::Address,
            owner: Some(70),
            is_entry: None,
            copy: None,
            locals: 72,
        },
        code: Code {
            file: 112,
            name: 120,
            qualified_name: Some(128),
            first_line: 68,
            lines: 136,
            instructions: Some(192),
            copies: None,
        },
        object: object(40),
    },
];

/// Maximum bytes of a frame and of a code object that the program in the kernel reads.
const KERNEL_FRAME_MAX: u32 = 128;
const KERNEL_CODE_MAX: u32 = 256;

impl Thread {
    /// Returns the number of bytes from a thread's start that have all that is read of it.
    pub fn span(&self) -> usize {
        let top = match self.top {
            Top::Thread { frame } => frame,
            Top::CFrame { cframe, .. } => cframe,
        };
        let fields = [
            self.next,
            self.interpreter,
            top,
            self.pthread,
            self.unique,
            self.native_id.unwrap_or(0),
            // Behind the newest part of the data stack is the end of what is used of it.
            self.chunk.map_or(0, |chunk| chunk + 8),
        ];
        span(&fields)
    }
}

impl Frame {
    /// Returns the number of bytes from a frame's start that have all that is read of it.
    pub fn span(&self) -> usize {
        let narrow = [self.owner, self.is_entry, self.copy].map(|at| at.unwrap_or(0) as usize + 4);
        let narrow = narrow.into_iter().max().unwrap_or(0);
        span(&[self.previous, self.code, self.position]).max(narrow)
    }
}

impl Code {
    /// Returns where the name is that is shown.
    pub fn shown_name(&self) -> u64 {
        self.qualified_name.unwrap_or(self.name)
    }

    /// Returns the range of bytes that identify a code object: they never change.
    pub fn identity(&self) -> (u64, usize) {
        let fields = [self.file, self.shown_name(), self.lines, self.first_line];
        let start = fields.iter().copied().min().unwrap_or(0);
        (start, span(&fields) - start as usize)
    }
}

fn span(fields: &[u64]) -> usize {
    fields.iter().copied().max().unwrap_or(0) as usize + 8
}

impl Layout {
    /// Returns the layout of a version that does not describe itself.
    pub fn known(version: Version) -> Option<Layout> {
        let minor = version.minor()?;
        KNOWN.into_iter().find(|known| known.minor == minor)
    }

    /// Whether a frame of this owner is no function, but marks where C calls Python.
    pub fn is_shim(&self, owner: u8) -> bool {
        self.minor >= 12 && owner >= SHIM_OWNER
    }

    /// Returns what the program in the kernel needs. `runtime`: address of `_PyRuntime`; `lock`: of
    /// the main interpreter's GIL, or 0. `None` where the structures are longer than it reads.
    pub fn for_kernel(&self, runtime: u64, lock: u64) -> Option<InterpreterLayout> {
        let (thread, frame, code) = (&self.thread, &self.frame, &self.code);
        let offset = |offset: u64| u32::try_from(offset).ok();
        let some = |at: Option<u64>| at.map_or(Some(None), |at| offset(at).map(Some));
        let (innermost, indirect) = match thread.top {
            Top::Thread { frame } => (offset(frame)?, None),
            Top::CFrame { cframe, frame } => (offset(cframe)?, Some(offset(frame)?)),
        };
        let (start, length) = code.identity();
        let code_size = u32::try_from(start as usize + length).ok()?;
        let frame_size = u32::try_from(frame.span()).ok()?.next_multiple_of(8);
        Some(InterpreterLayout {
            interpreters: runtime.checked_add(self.interpreters)?,
            lock,
            lock_holder: offset(self.interpreter.gil.holder)?,
            lock_locked: offset(self.interpreter.gil.locked)?,
            interpreter_lock: match self.interpreter.gil.at {
                GilAt::Runtime(_) => None,
                GilAt::Interpreter(at) => Some(offset(at)?),
            },
            next_interpreter: offset(self.interpreter.next)?,
            first_thread: offset(self.interpreter.threads)?,
            next_thread: offset(thread.next)?,
            thread_interpreter: offset(thread.interpreter)?,
            pthread: offset(thread.pthread)?,
            innermost,
            indirect,
            running_task: match thread.task {
                None => None,
                Some(task) => Some(interpreted::RunningTask {
                    of_thread: offset(task.of_thread)?,
                    name: offset(task.name)?,
                }),
            },
            frame_size,
            frame_caller: offset(frame.previous)?,
            frame_code: offset(frame.code)?,
            frame_position: offset(frame.position)?,
            position_is_short: frame.how != Position::Address,
            frame_owner: some(frame.owner)?,
            frame_is_entry: some(frame.is_entry)?,
            frame_copy: some(frame.copy)?,
            shim_owner: (self.minor >= 12).then_some(SHIM_OWNER),
            code_size,
            code_file: offset(code.file)?,
            code_name: offset(code.shown_name())?,
            code_lines: offset(code.lines)?,
            code_first_line: offset(code.first_line)?,
        })
        .filter(|layout| {
            layout.frame_size <= KERNEL_FRAME_MAX && layout.code_size <= KERNEL_CODE_MAX
        })
    }
}
