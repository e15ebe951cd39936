//! Unwinding: turns registers and stack bytes into frames, and says how the stack ended.

pub mod awaiting;
pub mod framehop;
pub mod interpreted;
#[cfg(feature = "libunwind")]
pub mod libunwind;

use rustc_hash::FxHashSet;

use crate::model::vocabulary::blocker::RawBlocker;
use crate::model::vocabulary::frame::{Marker, Ns, RawFrame, RawName};
use crate::process::code_generations::CodeMapping;
use crate::process::maps::Maps;
use awaiting::{AwaitLayout, TakenObjects};
use interpreted::{Evaluations, InterpreterLayout, StackOwner, Taken};

/// User-mode registers of a thread, x86-64. `rbp` is `None` where the capture backend cannot know
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

/// The stack of a goroutine that waits for code which its thread executes on another stack, from
/// where the goroutine left it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GoroutineStack {
    pub base: u64,
    pub bytes: Vec<u8>,
}

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    /// `None`: proven whole (outermost return address undefined by CFI, or 0 at a start routine,
    /// and the stack pointer rose inside one mapping all the way). Otherwise the marker that the
    /// frames already end with, or that stands for a gap.
    pub end: Option<Marker>,
    /// rbp was recovered by searching for linked frame records.
    pub recovered: bool,
}

/// Registers that runtimes use for their own state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct General {
    pub rax: u64,
    pub rbx: u64,
    pub r9: u64,
    pub r12: u64,
    pub r13: u64,
}

/// A frame of generated code that is to be left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub pc: u64,
    /// `pc` itself is executing; otherwise it is a return address.
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
    /// Leave it as any code: by unwind information where there is any, else by frame records.
    AsCode {
        /// Start of the function's code.
        start: u64,
        setup: FrameSetup,
    },
    /// The runtime does not know this code after all; nothing was appended.
    Unknown,
    /// The walk ends here, for this reason.
    End(Marker),
}

/// How code without unwind information builds its frame record. It matters for the executing
/// function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameSetup {
    /// By `push rbp; mov rbp, rsp`, before anything else of it runs.
    Plain,
    /// By a function that it calls first.
    ByCall,
    /// Like `Plain`, but only on some paths; then a small even number lies below the record (V8's
    /// own functions).
    Marked,
    /// It is unknown.
    Hidden,
}

/// Code that a runtime generated while the program ran. It has no unwind information; the runtime
/// knows how to leave its frames.
pub trait Generated: Send {
    /// Starts a walk of a stack that was copied at `copied`; `running`: of a thread that ran on.
    /// Frames are named by the code of that instant, or the walk ends in [`Marker::CodeReplaced`].
    fn begin(&mut self, copied: Ns, running: bool);

    /// Sets whose stack is walked next, before [`Generated::begin`].
    fn set_owner(&mut self, _owner: StackOwner) {}

    /// Reports the mappings that were read last.
    fn mapped(&mut self, _: &Maps) {}

    /// See [`Unwinder::thread_names`].
    fn thread_names(&mut self, moved: Option<&FxHashSet<u32>>) -> Vec<(u32, RawName)>;

    /// Returns the name of the thread that owns the stack that was walked last, copied at `at`, if
    /// it is not the thread that runs it.
    fn thread_name(&mut self, _at: Ns) -> Option<RawName> {
        None
    }

    /// Whether `pc` lies in generated code.
    fn covers(&self, pc: u64) -> bool;

    /// Finds the last frame of generated code before a frame at `sp` that cannot be left. Appends
    /// it to `out` and returns where it ended and where its caller is. Only for blocked threads.
    fn resume(
        &mut self,
        _sp: u64,
        _word: &mut dyn FnMut(u64) -> Option<u64>,
        _out: &mut Vec<RawFrame>,
    ) -> Option<(u64, Leave)> {
        None
    }

    /// Returns a frame for what a blocked thread waits for, where only the runtime's own records
    /// say it. It belongs between the generated code and the native code at `callee`, which that
    /// has called. `sp`: the generated code's stack pointer there.
    fn waits_for(&mut self, _sp: u64, _callee: u64) -> Option<RawFrame> {
        None
    }

    /// Returns what a blocked thread waits for, by the runtime's own records, and who holds it. The
    /// holder's thread id is one of the process's own PID namespace. It is read now, so the check
    /// that the thread has not run meanwhile belongs after it.
    fn blocker(&mut self, _owner: StackOwner) -> Option<RawBlocker> {
        None
    }

    /// Whether `pc` lies in the native function that executes an interpreter's frames.
    fn evaluates(&self, _pc: u64) -> bool {
        false
    }

    /// Returns whether a library, by its file's name, exchanges parts of native stacks to switch
    /// between coroutines of the interpreter.
    fn exchanges_stacks(&self, _library: &str) -> bool {
        false
    }

    /// Returns the interpreter's frames of the thread whose stack is walked. `taken`: what the
    /// kernel took of a running thread; `None`: the thread is blocked, and they are read now. So
    /// the check that the thread has not run meanwhile belongs after it. `None` for a thread that
    /// has no such frames.
    fn interpreted(&mut self, _owner: StackOwner, _taken: Option<&Taken>) -> Option<Evaluations> {
        None
    }

    /// Returns the frames of the functions that await an async one on the stack that was walked
    /// last, and a marker before them; innermost first. They stand for its outermost callers. A
    /// stack of a running thread has changed since it was copied: where it is not proven that they
    /// awaited it then, there are none. `taken`: objects that the kernel took with it.
    fn awaiters(&mut self, _taken: Option<&TakenObjects>) -> Vec<RawFrame> {
        Vec::new()
    }

    /// Returns which objects the kernel shall take for [`Generated::awaiters`].
    fn await_layout(&self) -> Option<&AwaitLayout> {
        None
    }

    /// Returns where the kernel finds the interpreter's frames.
    fn interpreter_layout(&self) -> Option<InterpreterLayout> {
        None
    }

    /// Whether [`Generated::resume`] may find something.
    fn can_resume(&self) -> bool {
        false
    }

    /// Appends the frame at `place` to `out`, and returns where its caller is. `word` reads the
    /// thread's stack.
    fn leave(
        &mut self,
        place: Place,
        word: &mut dyn FnMut(u64) -> Option<u64>,
        out: &mut Vec<RawFrame>,
    ) -> Leave;
}

/// Result of a search for runtimes.
pub enum Detected {
    Nothing,
    /// There is one that cannot be read yet.
    Starting,
    Runtime(Box<dyn Generated>),
}

/// Searches a runtime whose code this process runs. Called again when its mappings have changed,
/// and while it is starting.
pub type Detect = Box<dyn FnMut(&Maps) -> Detected + Send>;

/// An unwinder. One per target process and sampler; it holds its caches.
pub trait Unwinder {
    /// Appends frames to `out`, innermost first; if the stack is not proven whole the last one is a
    /// marker. `rip` is exact. Never panics on garbage; bounded work. Of deep stacks the innermost
    /// and the outermost frames are appended, at most 1,024, with a marker between them.
    ///
    /// `rbp: None` means that the thread is blocked and its stack may be read from memory beyond
    /// the copied bytes during the walk. So the check that the thread has not run meanwhile belongs
    /// *after* it.
    fn walk(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        out: &mut Vec<RawFrame>,
    ) -> Walk;

    /// As [`Unwinder::walk`], for a thread that runs on. Memory beyond the copied bytes is read
    /// now, and counts only where it was the same before. `room`: bytes that were requested.
    fn walk_running(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        _room: usize,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        self.walk(registers, stack, out)
    }

    /// Returns the threads that a runtime has names for: their ids in the process's own PID
    /// namespace, and the names. `moved`: the ids of those that have run since the last call. The
    /// names of others have likely not changed, and may be stale for some time. `None`: unknown.
    fn thread_names(&mut self, _moved: Option<&FxHashSet<u32>>) -> Vec<(u32, RawName)> {
        Vec::new()
    }

    /// Returns the name of the virtual thread that owns the stack that was walked last, copied at
    /// `at`.
    fn thread_name(&mut self, _at: Ns) -> Option<RawName> {
        None
    }

    /// Returns what the blocked thread that was walked last waits for, where only a runtime's own
    /// records say it: a frame, and the index of the appended frame that it belongs before. It is
    /// read now, so the check that the thread has not run meanwhile belongs after it.
    fn waits_for(&mut self) -> Option<(usize, RawFrame)> {
        None
    }

    /// Whether [`Unwinder::blocker`] may find something.
    fn reads_blockers(&self) -> bool {
        false
    }

    /// Returns what a blocked thread waits for by the records of its runtime; see
    /// [`Generated::blocker`].
    fn blocker(&mut self, _owner: StackOwner) -> Option<RawBlocker> {
        None
    }

    /// Sets whose stack is walked next. `taken`: the frames of an interpreter that the kernel took
    /// with it; of no meaning for a blocked thread.
    fn set_owner(&mut self, _owner: StackOwner, _taken: Taken) {}

    /// Sets the goroutine's stack that was copied together with the one that is walked next. To be
    /// called after [`Unwinder::set_owner`], which sets that there is none.
    fn set_goroutine_stack(&mut self, _stack: Option<GoroutineStack>) {}

    /// Sets the objects that were taken together with the stack that is walked next; the order as
    /// in [`Unwinder::set_goroutine_stack`].
    fn set_awaiting(&mut self, _taken: Option<TakenObjects>) {}

    /// Returns which objects the kernel shall take for [`Unwinder::set_awaiting`].
    fn await_layout(&self) -> Option<&AwaitLayout> {
        None
    }

    /// Returns whether stacks of goroutines may be needed: the process runs code of Go.
    fn is_go(&self) -> bool {
        false
    }

    /// Appends the frames of an interpreter as they are in memory now, without native ones. They
    /// hold only if the thread does not run meanwhile. `None`: it has no such frames.
    fn read_interpreted(&mut self, _owner: StackOwner, _out: &mut Vec<RawFrame>) -> Option<Walk> {
        None
    }

    /// Returns whether the last walk has read frames of an interpreter from memory. They hold only
    /// if the thread has not run since its stack was copied.
    fn has_read_frames(&self) -> bool {
        false
    }

    /// Returns where the kernel finds frames of the process's interpreter.
    fn interpreter_layout(&self) -> Option<InterpreterLayout> {
        None
    }

    /// Sets when the stacks that are walked next were copied: they are named by the code of that
    /// instant.
    fn set_instant(&mut self, _at: Ns) {}

    /// Whether `new` replaces code that may occur in stacks copied before.
    fn would_replace(&self, _new: &CodeMapping) -> bool {
        false
    }

    /// Reports new code of the process, in order of time.
    fn report(&mut self, _new: &CodeMapping) {}

    /// Reads the mappings again if it is time; called between walks, when everything was reported.
    /// `reported`: new code is reported; `lost`: some reports are missing.
    fn revalidate(&mut self, _reported: bool, _lost: bool) {}

    /// Records an exec: stacks copied before it belong to another program.
    fn follows_exec(&mut self) {}

    /// Whether a walk that ended for lack of unwind information may continue as
    /// [`Unwinder::walk_blocked`].
    fn can_resume(&self) -> bool {
        false
    }

    /// As [`Unwinder::walk`], for a blocked thread that is read from memory although its rbp is
    /// known.
    fn walk_blocked(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        self.walk(registers, stack, out)
    }
}
