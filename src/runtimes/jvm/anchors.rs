//! Where Java code was left: the virtual machine notes it of each thread that goes into native code
//! (`JavaFrameAnchor`), and keeps the notes of outer ones where native code calls Java again
//! (`JavaCallWrapper`). So the stack of a blocked thread goes on behind native code that cannot be
//! walk. Of a thread that runs the notes are of another moment than its stack.

use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::vocabulary::frame::RawFrame;
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::Jvm;
use crate::runtimes::jvm::heap::Kind;
use crate::runtimes::jvm::structs::Structs;
use crate::runtimes::jvm::walk::Here;
use crate::unwinder::{Leave, Place};

/// Threads whose stacks are remembered.
const KNOWN_MAX: usize = 50_000;

/// It was a thread's of any kind once (JDK 8, 11).
const PENDING: (&str, &str) = ("JavaThread", "_current_pending_monitor");
/// What stands for the functions by which a monitor is entered, where these have no names.
pub const MONITOR: &str = "monitor enter";
/// Where threads have their stacks is not read again sooner.
const STACKS_AGAIN: Duration = Duration::from_millis(100);

/// Where the notes are.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// In a thread: where its stack begins, the higher end, and its size.
    base: u64,
    size: u64,
    /// In a thread, and in a wrapper.
    in_thread: u64,
    in_wrapper: u64,
    /// From rbp of the frame by which Java was entered, words: the pointer to the wrapper.
    wrapper: i64,
    sp: u64,
    pc: u64,
    fp: u64,
    /// In a thread: the monitor that it waits to enter.
    pending: Option<u64>,
}

impl Places {
    /// `None`, where the tables do not say: then walks end where they end.
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

/// What is known of stacks and of the walk that is made.
#[derive(Default)]
pub struct Anchors {
    places: Option<Places>,
    /// Base and size, by thread.
    stacks: FxHashMap<u64, (u64, u64)>,
    /// When they were read last.
    stacks_read: Option<Instant>,
    /// The wrapper of the outermost entry into Java that was walked so far.
    wrapper: Option<u64>,
}

impl Anchors {
    pub fn new(places: Option<Places>) -> Anchors {
        Anchors { places, ..Anchors::default() }
    }

    /// A walk begins.
    pub fn begin(&mut self) {
        self.wrapper = None;
    }
}

impl<M: ReadMemory> Jvm<M> {
    /// The frame by which Java was entered is left.
    pub fn note_entry(&mut self, here: &mut Here<'_>) {
        let wrapper = self
            .anchors
            .places
            .zip(here.place.rbp)
            .and_then(|(places, rbp)| here.slot(rbp, places.wrapper));
        // Without it nothing is known of outer Java code: no thread lies there.
        self.anchors.wrapper = Some(wrapper.unwrap_or(0));
    }

    /// The frame by which Java was left last before the native code at `sp`, of a thread at rest:
    /// where it ends, and where its caller is. It is appended to `out`.
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
        let read = |at: u64| self.memory.read_u64(anchor.checked_add(at)?);
        let (java_sp, pc, fp) = (read(places.sp)?, read(places.pc)?, read(places.fp)?);
        if java_sp <= sp || !java_sp.is_multiple_of(8) {
            return None;
        }
        // Where it is not noted it was pushed by the call.
        let pc = if pc == 0 { word(java_sp - 8)? } else { pc };
        if !self.code.contains(pc.wrapping_sub(1)) {
            return None;
        }
        let blob = self.blob(pc.wrapping_sub(1))?;
        // What calls a native method notes a place of its own that is no return address.
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
        Some((java_sp, self.leave_blob(&blob, Here { place, word }, out)))
    }

    /// Whether the thread whose stack `sp` lies in, and which is at rest in a function of the
    /// virtual machine at `callee`, waits to enter a monitor: it notes which before it does, and
    /// that it has ceased to. Only asked where functions have no names that would tell.
    pub fn waits_for_monitor(&mut self, sp: u64, callee: u64) -> Option<RawFrame> {
        self.nameless.as_ref().filter(|library| library.contains(&callee))?;
        let places = self.anchors.places?;
        let pending = places.pending?;
        let thread = match self.on_known_stack(sp) {
            Some(thread) => thread,
            None if self.anchors.stacks_read.is_some_and(|at| at.elapsed() < STACKS_AGAIN) => {
                return None;
            }
            None => {
                self.anchors.stacks_read = Some(Instant::now());
                self.thread_with(sp, places)?
            }
        };
        let mut words = [[0; 8]; 3];
        let pieces: [(u64, usize); 3] =
            [places.base, places.size, pending].map(|at| (thread.wrapping_add(at), 8));
        self.memory.read_pieces(&pieces, words.as_flattened_mut())?;
        let [base, size, monitor] = words.map(u64::from_le_bytes);
        (holds((base, size), sp) && monitor != 0).then(|| self.stub_frame(MONITOR))
    }

    fn on_known_stack(&self, sp: u64) -> Option<u64> {
        self.anchors.stacks.iter().find(|(_, stack)| holds(**stack, sp)).map(|(thread, _)| *thread)
    }

    /// Others have ended.
    pub fn threads_are(&mut self, threads: &[u64]) {
        if !self.anchors.stacks.is_empty() {
            let threads: FxHashSet<u64> = threads.iter().copied().collect();
            self.anchors.stacks.retain(|thread, _| threads.contains(thread));
        }
    }

    /// The Java thread whose stack `sp` lies in.
    fn thread_with(&mut self, sp: u64, places: Places) -> Option<u64> {
        let threads = self.thread_pointers();
        let read = |thread: u64| {
            let (base, size) = (thread.checked_add(places.base)?, thread.checked_add(places.size)?);
            Some((self.memory.read_u64(base)?, self.memory.read_u64(size)?))
        };
        let known = threads
            .iter()
            .find(|thread| self.anchors.stacks.get(thread).is_some_and(|stack| holds(*stack, sp)));
        if let Some(thread) = known
            && read(*thread).is_some_and(|stack| holds(stack, sp))
        {
            return Some(*thread);
        }
        let stacks =
            threads.iter().take(KNOWN_MAX).filter_map(|thread| Some((*thread, read(*thread)?)));
        self.anchors.stacks = stacks.collect();
        self.anchors.stacks.iter().find(|(_, stack)| holds(**stack, sp)).map(|(thread, _)| *thread)
    }
}

/// Whether an address lies in a stack with this base, its higher end, and of this size.
fn holds((base, size): (u64, u64), sp: u64) -> bool {
    sp < base && base - sp <= size
}
