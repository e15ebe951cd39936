//! Interned stacks and names. Ids only ever grow and never change meaning, so a newer `Tables` can stand in for
//! an older one (a frozen snapshot gets names that were found later).
//!
//! Stacks are a prefix tree: (caller's stack, frame), so a parent's id is always lower than its children's and
//! a whole tree is summed in one backward pass. Everything is held in fixed-size shared chunks, so that cloning a
//! `Tables` for a snapshot costs a pointer per chunk, and a change copies one chunk.

use std::sync::Arc;

use super::frame::RawFrame;
use super::state::FutexKind;

/// A whole stack: a node of the prefix tree. 0 is the empty stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StackId(pub u32);

impl StackId {
    pub const EMPTY: StackId = StackId(0);
}

/// An interned [`RawFrame`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FrameId(pub u32);

/// An interned, cleaned thread name (control characters stripped, invalid UTF-8 replaced).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NameId(pub u32);

/// What kind of code a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FrameKind {
    Native,
    Kernel,
    Java,
    Python,
    Jit,
    Marker,
}

impl FrameKind {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            FrameKind::Native => "native",
            FrameKind::Kernel => "kernel",
            FrameKind::Java => "java",
            FrameKind::Python => "python",
            FrameKind::Jit => "jit",
            FrameKind::Marker => "marker",
        }
    }
}

/// How a frame's code came to be run; `None` in a [`Function`] where there is nothing to say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Tier {
    Interpreted,
    C1,
    C2,
    Inlined,
    Native,
}

impl Tier {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Tier::Interpreted => "interpreted",
            Tier::C1 => "c1",
            Tier::C2 => "c2",
            Tier::Inlined => "inlined",
            Tier::Native => "native",
        }
    }
}

/// One named frame. Strings are shared, cleaned (no control or bidi characters) and capped at 4 KiB.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Location {
    /// Demangled, without parameter list or hash: `ns::Type<T>::method`.
    pub function: Arc<str>,
    /// Shared object, class or Python module: `libc.so.6`.
    pub module: Arc<str>,
    pub file: Option<Arc<str>>,
    pub line: Option<u32>,
    pub kind: FrameKind,
    pub tier: Option<Tier>,
}

/// What one raw frame stands for: outermost function first, then what was inlined into it. Never empty.
/// While its symbols are still being loaded it is one [`Location`] named `module!0xoffset`, and `pending`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    pub locations: Arc<[Location]>,
    pub pending: bool,
}

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub struct Tables {}

impl Tables {
    pub fn intern_stack(&mut self, innermost_first: &[RawFrame]) -> StackId {
        let _ = innermost_first;
        StackId::EMPTY
    }

    /// What a futex wait under this stack is; [`FutexKind::Wait`] until its names are known.
    pub fn futex_kind(&self, stack: StackId) -> FutexKind {
        let _ = stack;
        FutexKind::Wait
    }
}
