//! Registers + stack bytes -> frames and how the stack ended.

pub mod framehop;
#[cfg(feature = "libunwind")]
pub mod libunwind;

use rustc_hash::FxHashSet;

use crate::model::vocabulary::frame::{Marker, Ns, RawFrame, RawName};
use crate::process::generations::CodeMapping;
use crate::process::maps::Maps;

/// User-mode registers of a thread, x86-64. `rbp` is `None` where the way of capture cannot know
/// it.
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
    /// `None`: proven whole (outermost return address undefined by CFI, or 0 at a start routine,
    /// and the stack pointer rose inside one mapping all the way). Otherwise the marker that the
    /// frames already end with, or that stands where a gap is.
    pub end: Option<Marker>,
    /// rbp was recovered by searching for linked frame records.
    pub recovered: bool,
}

/// Registers in which runtimes keep what is theirs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct General {
    pub rax: u64,
    pub rbx: u64,
    pub r13: u64,
}

/// A frame of generated code that is to be left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub pc: u64,
    /// `pc` itself is executing; else it is a return address.
    pub exact: bool,
    pub sp: u64,
    pub rbp: Option<u64>,
    /// Known only where `exact`.
    pub general: Option<General>,
}

/// What follows a frame of generated code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    To {
        pc: u64,
        sp: u64,
        rbp: Option<u64>,
    },
    /// Like a frame of any code: by unwind information where there is any, else by frame records.
    AsCode {
        /// Where the function's code begins.
        start: u64,
        habit: Habit,
    },
    /// The runtime does not know this code after all; nothing was appended.
    Unknown,
    /// The walk ends here, for this reason.
    End(Marker),
}

/// How code without unwind information comes to have a frame record, which matters where it is
/// executing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Habit {
    /// By `push rbp; mov rbp, rsp`, before anything else of it runs.
    Plain,
    /// By a function that it calls first of all.
    ByCall,
    /// Like `Plain`, but only on some of its ways; then a small even number lies below the record
    /// (V8's own functions).
    Marked,
    /// It is unknown.
    Hidden,
}

/// Code that a runtime made while the program ran: it has no unwind information, the runtime knows
/// how its frames are left.
pub trait Generated: Send {
    /// A walk begins, of a stack that was copied at `copied`; `running`: of a thread that ran on.
    /// Frames are named by the code of that instant, or the walk ends in [`Marker::CodeReplaced`].
    fn begin(&mut self, copied: Ns, running: bool);

    /// What the process has mapped, as it was read last.
    fn mapped(&mut self, _: &Maps) {}

    /// See [`Unwinder::thread_names`].
    fn thread_names(&mut self, moved: Option<&FxHashSet<u32>>) -> Vec<(u32, RawName)>;

    /// The name of whom the stack that was walked last, and was copied at `at`, belongs to, if not
    /// to the thread that it was found on.
    fn thread_name(&mut self, _at: Ns) -> Option<RawName> {
        None
    }

    /// Whether `pc` lies in such code.
    fn covers(&self, pc: u64) -> bool;

    /// The frame by which such code was left for other code, last before a frame at `sp` that
    /// no reader can leave: appended to `out`, and where it ended and where its caller is.
    /// Only of threads at rest.
    fn resume(
        &mut self,
        _sp: u64,
        _word: &mut dyn FnMut(u64) -> Option<u64>,
        _out: &mut Vec<RawFrame>,
    ) -> Option<(u64, Leave)> {
        None
    }

    /// What a thread at rest waits for, where only the runtime's own notes tell that: the frame
    /// that stands for it, between that of such code and native code at `callee`, which it has
    /// called. `sp`: its own stack pointer there.
    fn waits_for(&mut self, _sp: u64, _callee: u64) -> Option<RawFrame> {
        None
    }

    /// Whether [`Generated::resume`] may know something.
    fn can_resume(&self) -> bool {
        false
    }

    /// Appends the frame at `place` to `out`, and says where its caller is. `word` reads the
    /// thread's stack.
    fn leave(
        &mut self,
        place: Place,
        word: &mut dyn FnMut(u64) -> Option<u64>,
        out: &mut Vec<RawFrame>,
    ) -> Leave;
}

/// What a look for runtimes found.
pub enum Detected {
    Nothing,
    /// There is one, and it is not far enough yet to be read.
    Starting,
    Runtime(Box<dyn Generated>),
}

/// Looks for a runtime whose code this process runs. Called again when its mappings have changed,
/// and while it is starting.
pub type Detect = Box<dyn FnMut(&Maps) -> Detected + Send>;

/// A way of walking. One per target process and sampler; holds its caches.
pub trait Unwinder {
    /// Appends frames to `out`, innermost first; if the stack is not proven whole the last one is a
    /// marker. `rip` is exact. Never panics on garbage; bounded work. Of deep stacks the innermost
    /// and the outermost frames are appended, at most 1,024, with a marker between them.
    ///
    /// `rbp: None` says that the thread is blocked and read as it lies: memory beyond the copied
    /// bytes may then be read from the target during the walk, so the check that the thread has not
    /// run meanwhile belongs *after* it.
    fn walk(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        out: &mut Vec<RawFrame>,
    ) -> Walk;

    /// As [`Unwinder::walk`], for a thread that runs on. What lies beyond the copied bytes is read
    /// now, and counts only where it was the same before. `room`: bytes that were asked for.
    fn walk_running(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        _room: usize,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        self.walk(registers, stack, out)
    }

    /// Threads that a runtime knows by names of its own: their ids, as their process numbers them,
    /// and the names. `moved`: those that have run since the last time, by the same ids; another's
    /// name is likely what it was, and may be told as it was for some time. `None`: that is not
    /// known.
    fn thread_names(&mut self, _moved: Option<&FxHashSet<u32>>) -> Vec<(u32, RawName)> {
        Vec::new()
    }

    /// The name of whom the stack that was walked last, and was copied at `at`, belongs to, if not
    /// to the thread that it was found on: of a virtual thread.
    fn thread_name(&mut self, _at: Ns) -> Option<RawName> {
        None
    }

    /// What the blocked thread that was walked last waits for, where only a runtime's own notes
    /// tell that: a frame, and in front of which of those that the walk has appended it belongs. It
    /// is read now, so the check that the thread has not run meanwhile belongs after it.
    fn waits_for(&mut self) -> Option<(usize, RawFrame)> {
        None
    }

    /// The stacks that are walked next were copied at `at`: they are named by the code of that
    /// instant.
    fn set_instant(&mut self, _at: Ns) {}

    /// Whether `new` takes the place of code that stacks copied before it may name.
    fn would_replace(&self, _new: &CodeMapping) -> bool {
        false
    }

    /// The process has new code; told in order of time.
    fn report(&mut self, _new: &CodeMapping) {}

    /// Between walks, when all that was reported has been told: reads the mappings again if it is
    /// time. `reported`: new code is reported; `lost`: some of it was not.
    fn revalidate(&mut self, _reported: bool, _lost: bool) {}

    /// What is mapped has replaced another program: stacks copied before that do not mean it.
    fn follows_exec(&mut self) {}

    /// Whether a walk that ended for want of unwind information may come further as
    /// [`Unwinder::walk_blocked`].
    fn can_resume(&self) -> bool {
        false
    }

    /// As [`Unwinder::walk`], for a thread that is read as it lies although its rbp is known.
    fn walk_blocked(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        self.walk(registers, stack, out)
    }
}
