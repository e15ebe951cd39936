//! Java frame anchors. HotSpot records where Java code was left when a thread goes into native code
//! (`JavaFrameAnchor`). It keeps the outer anchors where native code calls Java again
//! (`JavaCallWrapper`). So the stack of a blocked thread can be continued behind native code that
//! cannot be unwound. For a running thread the anchors are of another moment than its stack.

use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::vocabulary::frame::RawFrame;
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::Jvm;
use crate::runtimes::jvm::code_cache::Kind;
use crate::runtimes::jvm::vm_structs::Structs;
use crate::runtimes::jvm::walk::StackCursor;
use crate::unwinder::{Leave, Place};

/// Maximum threads whose stack bounds are remembered.
const KNOWN_MAX: usize = 50_000;

/// Before, the field belonged to threads of any kind (JDK 8, 11).
const PENDING: (&str, &str) = ("JavaThread", "_current_pending_monitor");
/// The frame shown for the functions that enter a monitor, where these have no symbols.
pub const MONITOR: &str = "monitor enter";
/// Minimum time between two reads of all threads' stack bounds: reading them takes time.
const STACKS_AGAIN: Duration = Duration::from_millis(100);
/// The same for a stack pointer that was outside of all Java stacks before. The virtual machine's
/// own threads wake up often, and each waits in one place.
const MISSED_AGAIN: Duration = Duration::from_secs(1);

/// Offsets at which the anchors are found.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// In a thread: the stack's base (its higher end) and its size.
    pub base: u64,
    pub size: u64,
    /// Offsets of the anchor in a thread and in a call wrapper.
    in_thread: u64,
    in_wrapper: u64,
    /// From rbp of the frame that entered Java, in words: the pointer to the call wrapper.
    wrapper: i64,
    sp: u64,
    pc: u64,
    fp: u64,
    /// In a thread: the monitor that it is waiting to enter.
    pending: Option<u64>,
}

impl Places {
    /// Returns `None` where the tables lack a field; then walks end at the native code.
    pub fn of(s: &Structs) -> Option<Places> {
        Some(Places {
            base: s
                .offset("JavaThread", "_stack_base")
                .or_else(|_| s.offset("Thread", "_stack_base"))
                .ok()?,
            size: s
                .offset("JavaThread", "_stack_size")
                .or_else(|_| s.offset("Thread", "_stack_size"))
                .ok()?,
            in_thread: s.offset("JavaThread", "_anchor").ok()?,
            in_wrapper: s.offset("JavaCallWrapper", "_anchor").ok()?,
            wrapper: s
                .constant("frame::entry_frame_call_wrapper_offset")
                .filter(|at| (-64..0).contains(at))?,
            sp: s.offset("JavaFrameAnchor", "_last_Java_sp").ok()?,
            pc: s.offset("JavaFrameAnchor", "_last_Java_pc").ok()?,
            fp: s.offset("JavaFrameAnchor", "_last_Java_fp").ok()?,
            pending: s.offset_of_any(&[PENDING, ("Thread", PENDING.1)]).ok(),
        })
    }
}

/// Stack bounds of the threads, and the state of the current walk.
#[derive(Default)]
pub struct Anchors {
    pub places: Option<Places>,
    /// Base and size, by thread address.
    stacks: FxHashMap<u64, (u64, u64)>,
    /// Stack pointers that were outside of all Java stacks.
    not_java: FxHashSet<u64>,
    /// When all stack bounds were last read.
    pub(super) stacks_read: Option<Instant>,
    /// The call wrapper of the outermost entry into Java that was walked so far.
    wrapper: Option<u64>,
}

impl Anchors {
    pub fn new(places: Option<Places>) -> Anchors {
        Anchors { places, ..Anchors::default() }
    }

    /// Starts a walk.
    pub fn begin(&mut self) {
        self.wrapper = None;
    }
}

impl<M: ReadMemory> Jvm<M> {
    /// Records that the walk passes the frame by which Java was entered.
    pub fn note_entry(&mut self, cursor: &mut StackCursor<'_>) {
        let wrapper = self
            .anchors
            .places
            .zip(cursor.place.rbp)
            .and_then(|(places, rbp)| cursor.slot(rbp, places.wrapper));
        // Without the wrapper the outer Java code is unknown: 0 is no thread's wrapper.
        self.anchors.wrapper = Some(wrapper.unwrap_or(0));
    }

    /// Finds the last Java frame before the native code at `sp`, of a blocked thread. Returns where
    /// that frame ends and where its caller is, and appends the frame to `out`.
    pub fn resume_at_anchor(
        &mut self,
        sp: u64,
        word: &mut dyn FnMut(u64) -> Option<u64>,
        out: &mut Vec<RawFrame>,
    ) -> Option<(u64, Leave)> {
        let places = self.anchors.places?;
        let anchor = match self.anchors.wrapper {
            Some(wrapper) => wrapper.checked_add(places.in_wrapper)?,
            None => self.thread_with(sp, places)?.checked_add(places.in_thread)?,
        };
        self.resume_from(anchor, sp, word, out)
    }

    /// Like [`Jvm::resume_at_anchor`], for the innermost Java frame of this thread.
    pub fn resume_in_thread(
        &mut self,
        thread: u64,
        sp: u64,
        word: &mut dyn FnMut(u64) -> Option<u64>,
        out: &mut Vec<RawFrame>,
    ) -> Option<Leave> {
        let anchor = thread.checked_add(self.anchors.places?.in_thread)?;
        self.resume_from(anchor, sp, word, out).map(|(_, left)| left)
    }

    fn resume_from(
        &mut self,
        anchor: u64,
        sp: u64,
        word: &mut dyn FnMut(u64) -> Option<u64>,
        out: &mut Vec<RawFrame>,
    ) -> Option<(u64, Leave)> {
        let places = self.anchors.places?;
        let read = |at: u64| self.memory.read_u64(anchor.checked_add(at)?);
        let (java_sp, pc, fp) = (read(places.sp)?, read(places.pc)?, read(places.fp)?);
        if java_sp <= sp || !java_sp.is_multiple_of(8) {
            return None;
        }
        // Where the anchor has no pc, the call pushed it.
        let pc = if pc == 0 { word(java_sp - 8)? } else { pc };
        if !self.code.contains(pc.wrapping_sub(1)) {
            return None;
        }
        let blob = self.blob(pc.wrapping_sub(1))?;
        // A native wrapper records an address of its own, which is no return address.
        let noted = matches!(blob.kind, Kind::NativeWrapper(_))
            && (blob.code..=blob.code_end).contains(&pc);
        if !noted && !self.returns_to(pc) {
            return None;
        }
        let place = Place {
            pc,
            exact: false,
            sp: java_sp,
            rbp: Some(fp).filter(|fp| *fp != 0),
            general: None,
        };
        Some((java_sp, self.leave_blob(&blob, StackCursor { place, word }, out)))
    }

    /// Returns a monitor frame if the thread with the stack at `sp` waits to enter a monitor. The
    /// thread is blocked in a function of libjvm at `callee`. HotSpot sets the pending monitor
    /// before the wait and clears it afterwards. It is only asked where functions have no symbols
    /// that would say it.
    pub fn waits_for_monitor(&mut self, sp: u64, callee: u64) -> Option<RawFrame> {
        self.nameless.as_ref().filter(|library| library.contains(&callee))?;
        let places = self.anchors.places?;
        let pending = places.pending?;
        let thread = self.thread_on_stack(sp)?;
        let mut words = [[0; 8]; 3];
        let pieces: [(u64, usize); 3] =
            [places.base, places.size, pending].map(|at| (thread.wrapping_add(at), 8));
        self.memory.read_pieces(&pieces, words.as_flattened_mut())?;
        let [base, size, monitor] = words.map(u64::from_le_bytes);
        (holds((base, size), sp) && monitor != 0).then(|| self.stub_frame(MONITOR))
    }

    /// Returns the Java thread whose stack contains `sp`, as last read. The bounds of all stacks
    /// are read again at most every [`STACKS_AGAIN`], and for one that they did not contain before
    /// every [`MISSED_AGAIN`].
    pub fn thread_on_stack(&mut self, sp: u64) -> Option<u64> {
        let places = self.anchors.places?;
        if let Some(thread) = self.on_known_stack(sp) {
            return Some(thread);
        }
        let anchors = &mut self.anchors;
        let pause = if anchors.not_java.contains(&sp) { MISSED_AGAIN } else { STACKS_AGAIN };
        if anchors.stacks_read.is_some_and(|at| at.elapsed() < pause) {
            return None;
        }
        let found = self.thread_with(sp, places);
        if found.is_none() {
            let not_java = &mut self.anchors.not_java;
            if not_java.len() >= KNOWN_MAX {
                not_java.clear();
            }
            not_java.insert(sp);
        }
        found
    }

    /// Forgets the stack of a thread that has exited, or has another stack now.
    pub fn forget_stack(&mut self, thread: u64) {
        self.anchors.stacks.remove(&thread);
    }

    pub fn on_known_stack(&self, sp: u64) -> Option<u64> {
        self.anchors.stacks.iter().find(|(_, stack)| holds(**stack, sp)).map(|(thread, _)| *thread)
    }

    /// Forgets the stack bounds of threads that have ended.
    pub fn retain_threads(&mut self, threads: &[u64]) {
        if !self.anchors.stacks.is_empty() {
            let threads: FxHashSet<u64> = threads.iter().copied().collect();
            self.anchors.stacks.retain(|thread, _| threads.contains(thread));
        }
    }

    /// Returns the Java thread whose stack contains `sp`.
    pub fn thread_with(&mut self, sp: u64, places: Places) -> Option<u64> {
        let mut threads = self.thread_pointers();
        threads.truncate(KNOWN_MAX);
        let stacks = &self.anchors.stacks;
        let known = threads
            .iter()
            .find(|thread| stacks.get(thread).is_some_and(|stack| holds(*stack, sp)))
            .copied();
        if let Some(thread) = known
            && self.stacks_of(&[thread], places).iter().any(|(_, stack)| holds(*stack, sp))
        {
            return Some(thread);
        }
        self.anchors.stacks_read = Some(Instant::now());
        let stacks = self.stacks_of(&threads, places);
        // Nothing can be read beyond the limit of reads: what is known stays.
        if !stacks.is_empty() {
            self.anchors.stacks = stacks.into_iter().collect();
        }
        self.on_known_stack(sp)
    }

    /// Reads the stack bounds of these threads. Those that have ended are missing.
    fn stacks_of(&self, threads: &[u64], places: Places) -> Vec<(u64, (u64, u64))> {
        let bounds =
            |thread: &u64| [places.base, places.size].map(|at| Some((thread.checked_add(at)?, 8)));
        let words = self.words(&threads.iter().flat_map(bounds).collect::<Vec<_>>());
        let stacks = words.chunks_exact(2).map(|words| Some((words[0]?, words[1]?)));
        let stacks = threads.iter().zip(stacks);
        stacks.filter_map(|(thread, stack)| Some((*thread, stack?))).collect()
    }
}

/// Whether an address lies in a stack with this base (its higher end) and size.
pub fn holds((base, size): (u64, u64), sp: u64) -> bool {
    sp < base && base - sp <= size
}
