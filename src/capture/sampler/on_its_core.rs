//! Samples running threads of interpreters where the kernel takes no frames with its samples
//! (backend `perf`, or a kernel that refuses the program).
//!
//! A running thread changes its frames faster than they can be read. But while the sampler runs on
//! the thread's own core, the thread does not: it waits there for that core, and its memory stands
//! still. So the sampler goes to the thread's core and reads. If the thread was elsewhere
//! meanwhile, its counters say so. Nothing is stopped: the thread loses the core for as long as any
//! other thread might take it.
//!
//! What is read is of another instant than the kernel's samples. So these stacks have no native
//! frames, and the kernel's samples of such threads are not used.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::capture::backend::Kind;
use crate::capture::sampler::Core;
use crate::clock::monotonic;
use crate::model::vocabulary::frame::{Marker, Ns, RawFrame};
use crate::unwinder::Walk;
use crate::unwinder::interpreted::StackOwner;

/// Maximum threads sampled in one tick.
const THREADS_MAX: usize = 16;
/// Attempts to read one thread.
const ATTEMPTS: usize = 3;

impl Core {
    /// Returns whether interpreters are sampled from their threads' cores.
    pub(super) fn follows_cores(&self) -> bool {
        matches!(self.backend.kind, Kind::Perf | Kind::Bpf) && self.backend.taken.is_none()
    }

    pub(super) fn sample_interpreters(&mut self) {
        if !self.follows_cores() {
            return;
        }
        let mut running = Vec::new();
        for (index, process) in self.processes.iter().enumerate() {
            if process.gives_stacks() && process.unwinder.interpreter_layout().is_some() {
                let runs = process.moved.iter().filter(|moved| moved.runnable && moved.ran > 0);
                running.extend(runs.map(|moved| (index, moved.tid)));
            }
        }
        if running.is_empty() {
            return;
        }
        if running.len() > THREADS_MAX {
            // Each has its turn.
            self.core_turn = self.core_turn.wrapping_add(THREADS_MAX);
            let first = self.core_turn % running.len();
            running.rotate_left(first);
        }
        let everywhere = sched_getaffinity(None).ok();
        for (index, tid) in running.into_iter().take(THREADS_MAX) {
            if let Some((at, frames, walk)) = self.read_on_its_core(index, tid) {
                self.sampled(index, tid, at, None, frames, &walk);
            }
        }
        if let Some(everywhere) = everywhere {
            let _ = sched_setaffinity(None, &everywhere);
        }
    }

    /// Reads the frames of a thread that runs. `None` if it does not run any more, or executes no
    /// code of an interpreter.
    fn read_on_its_core(&mut self, index: usize, tid: u32) -> Option<(Ns, Vec<RawFrame>, Walk)> {
        let mut before: Option<Vec<RawFrame>> = None;
        let mut at = monotonic();
        for _ in 0..ATTEMPTS {
            let pinned = go_to(self.processes[index].scan.running_on(tid)?.0);
            let process = &mut self.processes[index];
            let there = process.scan.running_on(tid)?;
            at = monotonic();
            let mut frames = Vec::new();
            let owner = StackOwner { tid, ..StackOwner::default() };
            let walk = process.unwinder.read_interpreted(owner, &mut frames)?;
            let stood_still = pinned == Some(there.0)
                && process.scan.running_on(tid).is_some_and(|now| now == there);
            // Without the right to go there: two equal readings.
            if stood_still || before.as_ref() == Some(&frames) {
                return Some((at, frames, walk));
            }
            before = Some(frames);
        }
        let torn = Walk { end: Some(Marker::Torn), recovered: false };
        Some((at, vec![RawFrame::marker(Marker::Torn)], torn))
    }
}

/// Moves this thread to a core. Returns the core it is on, if it may not leave that.
fn go_to(core: u32) -> Option<u32> {
    let core = usize::try_from(core).ok().filter(|core| *core < CpuSet::MAX_CPU)?;
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).ok()?;
    u32::try_from(core).ok()
}
