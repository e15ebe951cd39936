//! The default unwinder: walks copied stack bytes with the target's own unwind tables.
//!
//! ```text
//! walk             one frame after the other; why a walk ends
//! code             mappings, images, cached rules; framehop's own modules and caches
//! images           loads unwind tables from the target's memory, or its files
//! unwind_tables    the checked tables of one image: functions, rules
//! unwind_rows      evaluates rows that framehop cannot step over
//! go               frames of Go code, by Go's own table
//! goroutine        leaves Go frames, also from one stack to another
//! frame_records    frame records: validated, or searched for where rbp is unknown
//! stack_depth      stack depth at an instruction, by following code to it or to its return
//! walk_by_code     leaves frames by that depth
//! call_sites       decodes the call before a return address, and prologues
//! prologue_stage   how far generated code has built its frame
//! deep_stacks      shortens deep stacks
//! outermost_frames those of running threads, where they were not copied
//! missing_pages    pages of stacks that were not in memory when the kernel copied
//! stack            words of the stack: copied, or read from a blocked thread
//! ```
//!
//! framehop takes the ordinary steps, from its cache. But without unwind information for an
//! address, or outside of its modules, it silently falls back to frame pointers. A stack walked
//! like that may be wrong and look whole. So each address is classified first (once, then cached).
//! framehop only gets those that it steps over by unwind information.

mod call_sites;
pub(super) mod code;
pub(super) mod deep_stacks;
mod frame_records;
mod go;
mod goroutine;
mod images;
mod missing_pages;
mod outermost_frames;
mod prologue_stage;
mod stack;
mod stack_depth;
mod unwind_rows;
pub(super) mod unwind_tables;
pub(super) mod walk;
mod walk_by_code;

pub use go::{GoTable, InMemory, Role};
pub use images::go_table;

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use crate::model::vocabulary::blocker::RawBlocker;
use crate::model::vocabulary::frame::{Marker, Ns, RawFrame, RawName};
use crate::process::code_generations::CodeMapping;
use crate::process::mapped_files::Files;
use crate::process::maps::Maps;
use crate::process::memory::ReadMemory;
use crate::unwinder::awaiting::{AwaitLayout, TakenObjects};
use crate::unwinder::interpreted::{self, InterpreterLayout, StackOwner, Taken};
use crate::unwinder::{
    Detect, Detected, Generated, GoroutineStack, Registers, StackBytes, Unwinder, Walk,
};

use code::{Code, Source};
use missing_pages::{PageReader, missing_pages};
use outermost_frames::OutermostFrames;
use stack::{Stack, Trace};
use unwind_rows::Left;
use walk::{Crossing, Walker};

/// Maximum attempts at a walk: it is repeated if the images it loaded are not what is mapped.
const ATTEMPTS: usize = 3;

/// Walks the stacks of one process.
pub struct FramehopUnwinder<M> {
    memory: M,
    code: Code,
    runtime: Runtime,
    // Buffers that are reused for each walk.
    left: Vec<Left>,
    window: Vec<u8>,
    evaluations: Vec<usize>,
    /// Whose stack is walked, and what the kernel took of its interpreter.
    owner: StackOwner,
    taken: Taken,
    /// Copied together with the stack that is walked.
    goroutine_stack: GoroutineStack,
    awaiting: Option<TakenObjects>,
    /// The last walk has read an interpreter's frames from memory.
    has_read_frames: bool,
    /// Of the last walk.
    crossing: Option<Crossing>,
    /// Of a traced walk: what it has read, and the end of the mapping that it ended in.
    trace: Option<(Trace, u64)>,
    /// The end of the stack that the last walk ended on.
    ended_in: u64,
    outermost_frames: OutermostFrames,
    /// When a stack beyond what was copied may be walked again.
    outer_due: Option<Instant>,
    /// Reads pages of stacks.
    pages: PageReader,
}

/// Walks of running threads' stacks to their ends take at most 1 part in this number of the time.
const OUTER_SHARE: u32 = 50;

/// How a walk reads the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    /// Only copied bytes.
    Copied,
    /// Only copied bytes, of a thread that runs on.
    Running,
    /// Only copied bytes; reads are recorded.
    Traced,
    /// The thread is blocked: what was not copied is read from memory.
    Blocked,
    /// The thread runs: what was not copied is read as it is now, and recorded.
    Moving,
}

impl<M: ReadMemory> FramehopUnwinder<M> {
    /// Creates an unwinder; frames name their files by ids from `files`.
    pub fn new(memory: M, files: Files, pid: u32) -> FramehopUnwinder<M> {
        FramehopUnwinder::with_maps(memory, files, pid, Box::new(move || Maps::read(pid)))
    }

    /// Creates one with another source of mappings than /proc.
    pub fn with_maps(memory: M, files: Files, pid: u32, source: Source) -> FramehopUnwinder<M> {
        FramehopUnwinder {
            memory,
            code: Code::new(files, pid, source),
            runtime: Runtime::default(),
            left: Vec::new(),
            window: Vec::new(),
            evaluations: Vec::new(),
            owner: StackOwner::default(),
            taken: Taken::nothing(),
            goroutine_stack: GoroutineStack::default(),
            awaiting: None,
            has_read_frames: false,
            crossing: None,
            trace: None,
            ended_in: 0,
            outermost_frames: OutermostFrames::default(),
            outer_due: None,
            pages: PageReader::default(),
        }
    }

    /// Leaves frames of generated code by the runtime that `detect` finds.
    pub fn with_runtimes(mut self, detect: Detect) -> FramehopUnwinder<M> {
        self.runtime.detect = Some(detect);
        self
    }

    /// Drops everything known about the process's code: after an exec, or when mappings are known
    /// to have changed.
    pub fn invalidate(&mut self) {
        self.code.invalidate();
        self.outermost_frames.clear();
        self.outer_due = None;
        self.runtime = Runtime { detect: self.runtime.detect.take(), ..Runtime::default() };
    }
}

/// Time between attempts to read a runtime that is starting.
const STARTING: Duration = Duration::from_millis(10);

/// The runtime whose code the process runs, if any.
#[derive(Default)]
struct Runtime {
    detect: Option<Detect>,
    found: Option<Box<dyn Generated>>,
    /// The mappings in which a runtime was last searched for, by [`Code::newest`].
    searched_at: u64,
    /// The mappings that were last reported to the runtime.
    mapped: u64,
    /// When it was last found to be starting.
    starting: Option<Instant>,
}

impl Runtime {
    /// Starts a walk.
    fn begin(
        &mut self,
        code: &Code,
        now: Instant,
        reading: Reading,
        owner: StackOwner,
    ) -> Option<&mut dyn Generated> {
        let again = self.starting.is_some_and(|at| now.duration_since(at) >= STARTING);
        let (maps, number) = code.newest();
        if self.found.is_none()
            && (again || self.searched_at != number)
            && let Some(detect) = &mut self.detect
        {
            self.searched_at = number;
            self.starting = None;
            match detect(maps) {
                Detected::Nothing => {}
                Detected::Starting => self.starting = Some(now),
                Detected::Runtime(found) => self.found = Some(found),
            }
        }
        let found = self.found.as_deref_mut()?;
        if self.mapped != code.readings {
            self.mapped = code.readings;
            found.mapped(code.maps.read_last());
        }
        found.set_owner(owner);
        // What stands on the stack of a blocked thread has not been replaced meanwhile.
        let copied = if reading == Reading::Blocked { Ns::MAX } else { code.at };
        found
            .begin(copied, matches!(reading, Reading::Running | Reading::Traced | Reading::Moving));
        Some(found)
    }
}

impl<M: ReadMemory> Unwinder for FramehopUnwinder<M> {
    fn walk(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        // Only a blocked thread that is read from memory is still where it was when its stack was
        // copied.
        self.walk_copy(
            registers,
            stack,
            if registers.rbp.is_none() { Reading::Blocked } else { Reading::Copied },
            out,
        )
    }

    fn walk_running(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        room: usize,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        let now = Instant::now();
        let walk = self.walk_running_at(registers, stack, now, out);
        if walk.end == Some(Marker::Truncated) {
            self.explain_truncated(stack, room, now, out)
        } else {
            walk
        }
    }

    fn thread_names(&mut self, moved: Option<&FxHashSet<u32>>) -> Vec<(u32, RawName)> {
        self.runtime.found.as_deref_mut().map(|found| found.thread_names(moved)).unwrap_or_default()
    }

    fn thread_name(&mut self, at: Ns) -> Option<RawName> {
        self.runtime.found.as_deref_mut()?.thread_name(at)
    }

    fn waits_for(&mut self) -> Option<(usize, RawFrame)> {
        let Crossing { frame, sp, callee } = self.crossing.take()?;
        Some((frame, self.runtime.found.as_deref_mut()?.waits_for(sp, callee)?))
    }

    fn reads_blockers(&self) -> bool {
        self.runtime.found.is_some()
    }

    fn blocker(&mut self, owner: StackOwner) -> Option<RawBlocker> {
        self.runtime.found.as_deref_mut()?.blocker(owner)
    }

    fn set_owner(&mut self, owner: StackOwner, taken: Taken) {
        (self.owner, self.taken) = (owner, taken);
        self.goroutine_stack = GoroutineStack::default();
        self.awaiting = None;
    }

    fn set_goroutine_stack(&mut self, stack: Option<GoroutineStack>) {
        self.goroutine_stack = stack.unwrap_or_default();
    }

    fn set_awaiting(&mut self, taken: Option<TakenObjects>) {
        self.awaiting = taken;
    }

    fn await_layout(&self) -> Option<&AwaitLayout> {
        self.runtime.found.as_deref()?.await_layout()
    }

    fn is_go(&self) -> bool {
        self.code.has_go()
    }

    fn read_interpreted(&mut self, owner: StackOwner, out: &mut Vec<RawFrame>) -> Option<Walk> {
        let found = self.runtime.found.as_deref_mut()?.interpreted(owner, None)?;
        let first = out.len();
        out.extend(found.frames);
        out.extend(found.end.map(RawFrame::marker));
        let walk = Walk { end: found.end, recovered: false };
        interpreted::place_task(found.task, walk, out);
        self.fold(first, out);
        Some(walk)
    }

    fn has_read_frames(&self) -> bool {
        self.has_read_frames
    }

    fn interpreter_layout(&self) -> Option<InterpreterLayout> {
        self.runtime.found.as_deref()?.interpreter_layout()
    }

    fn set_instant(&mut self, at: Ns) {
        self.code.at = at;
    }

    fn would_replace(&self, new: &CodeMapping) -> bool {
        self.code.maps.would_replace(new)
    }

    fn report(&mut self, new: &CodeMapping) {
        self.code.report(new);
    }

    fn revalidate(&mut self, reported: bool, lost: bool) {
        self.code.revalidate(reported, lost);
    }

    fn follows_exec(&mut self) {
        self.code.maps.follows_exec();
    }

    fn can_resume(&self) -> bool {
        self.runtime.found.as_deref().is_some_and(Generated::can_resume)
    }

    fn walk_blocked(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        self.walk_copy(registers, stack, Reading::Blocked, out)
    }
}

impl<M: ReadMemory> FramehopUnwinder<M> {
    fn walk_copy(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        reading: Reading,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        let first = out.len();
        let walk = self.walk_unfolded(registers, stack, reading, out);
        self.fold(first, out);
        // The caller walks it again, with what was not copied.
        if reading != Reading::Copied || walk.end != Some(Marker::Truncated) {
            self.place_awaiters(walk, out);
        }
        walk
    }

    /// Appends the functions that await an async one on the stack.
    fn place_awaiters(&mut self, walk: Walk, out: &mut Vec<RawFrame>) {
        if let Some(runtime) = self.runtime.found.as_deref_mut() {
            let awaiters = runtime.awaiters(self.awaiting.as_ref());
            interpreted::place_outermost(&awaiters, walk, out);
        }
    }

    fn walk_running_at(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        now: Instant,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        let first = out.len();
        let maps = &self.code.maps;
        let end = || maps.stack_of(registers.rsp).map(|mapping| mapping.end);
        let reading =
            if self.outermost_frames.follows(end) { Reading::Traced } else { Reading::Running };
        let walk = self.walk_unfolded(registers, stack, reading, out);
        let walk = match walk.end {
            Some(Marker::Truncated) => self.beyond_copy(registers, stack, walk, now, first, out),
            end => {
                if let (None, Some((trace, at))) = (end, self.trace.take()) {
                    self.outermost_frames.walked(at, &out[first..], &trace, now);
                }
                walk
            }
        };
        self.fold(first, out);
        self.place_awaiters(walk, out);
        walk
    }

    /// Replaces the marker at the end of a truncated stack by the reason why its copy ended. Pages
    /// that were not in memory are read, so that the next sample has them.
    fn explain_truncated(
        &mut self,
        stack: StackBytes<'_>,
        room: usize,
        now: Instant,
        out: &mut [RawFrame],
    ) -> Walk {
        let mut walk = Walk { end: Some(Marker::Truncated), recovered: false };
        let end = self.code.maps.stack_of(stack.base).map(|mapping| mapping.end);
        // The walk had switched to another stack, which was not to be copied.
        let (Some(marker), Some(end)) = (out.last_mut(), end.filter(|end| *end == self.ended_in))
        else {
            return walk;
        };
        match missing_pages(stack, room, end) {
            Some(missing) => {
                walk.end = Some(Marker::PageMissing);
                *marker = RawFrame::marker(Marker::PageMissing);
                self.pages.read(&self.memory, missing, now);
            }
            None => *marker = RawFrame::truncated((stack.bytes.len() >> 10) as u32),
        }
        walk
    }

    fn fold(&mut self, first: usize, out: &mut Vec<RawFrame>) {
        let before = out.len();
        deep_stacks::fold(out, first);
        if out.len() != before {
            self.forget_folded(first, out);
        }
    }

    /// Drops the crossing if it lies among frames that are not kept.
    fn forget_folded(&mut self, first: usize, out: &[RawFrame]) {
        let missing = [Marker::Folded, Marker::NotCopied].map(RawFrame::marker);
        let kept = out[first..].iter().position(|frame| missing.contains(frame));
        self.crossing =
            self.crossing.filter(|crossing| kept.is_none_or(|kept| crossing.frame < kept));
    }

    /// Appends the known outermost frames of a running thread whose stack continues beyond the
    /// copied bytes.
    fn beyond_copy(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        walk: Walk,
        now: Instant,
        first: usize,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        let Some(end) = self.code.maps.stack_of(registers.rsp).map(|mapping| mapping.end) else {
            return walk;
        };
        if self.ended_in != end {
            // The walk had switched to another stack, whose outermost frames these are not.
            return walk;
        }
        let outer = self.outermost_frames.of_sample(end, &self.memory, now);
        if self.outermost_frames.wants_walk(end, now) && self.outer_due.is_none_or(|due| now >= due)
        {
            let began = Instant::now();
            let mut frames = Vec::new();
            let whole =
                self.walk_unfolded(registers, stack, Reading::Moving, &mut frames).end.is_none();
            if let Some((trace, at)) = self.trace.take()
                && whole
                && at == end
            {
                self.outermost_frames.walked(end, &frames, &trace, now);
            }
            self.outer_due = Some(now + began.elapsed() * OUTER_SHARE);
            // The state kept from the last walk must be that of the sample.
            out.truncate(first);
            let again = self.walk_unfolded(registers, stack, Reading::Running, out);
            if again.end != Some(Marker::Truncated) {
                return again;
            }
        }
        if outer.is_empty() {
            return walk;
        }
        // Replaces the marker.
        out.pop();
        deep_stacks::join(out, first, Marker::NotCopied, &outer);
        self.forget_folded(first, out);
        Walk { end: None, recovered: true }
    }

    fn walk_unfolded(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        reading: Reading,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        let now = Instant::now();
        self.code.refresh(now);
        let first = out.len();
        self.has_read_frames = false;
        for _ in 0..ATTEMPTS {
            let walk = self.walk_once(registers, stack, reading, now, out);
            if self.code.settle() {
                return self.place_interpreted(walk, reading, first, out);
            }
            out.truncate(first);
        }
        self.trace = None;
        out.push(RawFrame::marker(Marker::BadUnwind));
        Walk { end: Some(Marker::BadUnwind), recovered: false }
    }

    /// Puts the frames of the process's interpreter into a stack.
    fn place_interpreted(
        &mut self,
        walk: Walk,
        reading: Reading,
        first: usize,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        let Some(runtime) = self.runtime.found.as_deref_mut() else { return walk };
        let taken = match reading {
            // Its outer end is read for later samples, which have frames of their own.
            Reading::Moving => return walk,
            // The caller walks it again, with what was not copied.
            Reading::Copied if walk.end == Some(Marker::Truncated) => return walk,
            Reading::Blocked | Reading::Copied => None,
            Reading::Running | Reading::Traced => Some(&self.taken),
        };
        let Some(evaluations) = runtime.interpreted(self.owner, taken) else { return walk };
        self.has_read_frames = taken.is_none();
        let (code, runtime) = (&self.code, &*runtime);
        let exchanges = |frame: RawFrame| {
            let file = code.file_of(frame);
            let name = file.as_deref().and_then(|file| file.path.file_name()?.to_str());
            name.is_some_and(|library| runtime.exchanges_stacks(library))
        };
        interpreted::place(&self.evaluations, evaluations, walk, first, exchanges, out)
    }

    fn walk_once(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        reading: Reading,
        now: Instant,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        self.code.context.begin();
        let generated = self.runtime.begin(&self.code, now, reading, self.owner);
        self.left.clear();
        self.evaluations.clear();
        let live = matches!(reading, Reading::Blocked | Reading::Moving).then_some(&self.memory);
        let GoroutineStack { base, bytes } = &self.goroutine_stack;
        let goroutine = StackBytes { base: *base, bytes };
        let stack = Stack::new([stack, goroutine], live, std::mem::take(&mut self.window));
        let traced = matches!(reading, Reading::Traced | Reading::Moving);
        let walker = Walker {
            code: &mut self.code,
            memory: &self.memory,
            stack: if traced { stack.traced() } else { stack },
            registers,
            left: &mut self.left,
            out,
            recovered: false,
            signals: 0,
            gap: None,
            crossing: None,
            evaluations: &mut self.evaluations,
            blocked: reading == Reading::Blocked,
            generated,
        };
        let (walk, mut stack, crossing) = walker.walk();
        self.ended_in = stack.end();
        self.trace = stack.take_trace().map(|trace| (trace, self.ended_in));
        self.window = stack.into_window();
        self.crossing = crossing;
        walk
    }
}
