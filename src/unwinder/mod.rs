//! Registers + stack bytes -> frames and how the stack ended.

pub mod framehop;
#[cfg(feature = "libunwind")]
pub mod libunwind;

use crate::model::frame::{Marker, RawFrame};

/// User-mode registers of a thread, x86-64. `rbp` is `None` where the way of capture cannot know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Registers {
    pub rip: u64,
    pub rsp: u64,
    pub rbp: Option<u64>,
    /// rax rbx rcx rdx rsi rdi r8..r15, for runtimes; zeros where unknown (`general_known`).
    pub general: [u64; 14],
    pub general_known: bool,
}

/// Bytes copied from a thread's stack, starting at `base` (= rsp, or rsp rounded down).
#[derive(Clone, Copy, Debug)]
pub struct StackBytes<'a> {
    pub base: u64,
    pub bytes: &'a [u8],
}

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    /// `None`: proven whole (outermost return address undefined by CFI, or 0 at a start routine, and the stack
    /// pointer rose inside one mapping all the way). Otherwise the marker that the frames already end with.
    pub end: Option<Marker>,
    /// rbp was recovered by searching for linked frame records.
    pub recovered: bool,
}

/// A way of walking. One per target process and sampler; holds its caches.
pub trait Unwinder {
    /// Appends frames to `out`, innermost first; if the stack is not proven whole the last one is a marker.
    /// `rip` is exact. Never panics on garbage; bounded work (at most 1,024 frames).
    ///
    /// `rbp: None` says that the thread is blocked and read as it lies: memory beyond the copied bytes may then be
    /// read from the target during the walk, so the check that the thread has not run meanwhile belongs *after* it.
    fn walk(&mut self, registers: &Registers, stack: StackBytes<'_>, out: &mut Vec<RawFrame>) -> Walk;

    /// The same for a thread that is read as it lies although its rbp is known.
    fn walk_blocked(&mut self, registers: &Registers, stack: StackBytes<'_>, out: &mut Vec<RawFrame>) -> Walk {
        self.walk(registers, stack, out)
    }
}
