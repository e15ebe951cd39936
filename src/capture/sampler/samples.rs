//! Stacks of running threads: samples by the kernel, or threads stopped by ptrace.

use crate::capture::perf::Perf;
use crate::capture::ptrace::{Caught, CaughtStack};
use crate::capture::sampler::Core;
use crate::capture::thread_scan::{Moved, count_walk};
use crate::model::vocabulary::event::{Event, Observation, Seen};
use crate::model::vocabulary::frame::{Marker, Ns, RawFrame, RawName, ThreadKey};
use crate::unwinder::interpreted::{StackOwner, Taken, place_task};
use crate::unwinder::{Registers, StackBytes, Walk};

/// Maximum walks of the samples before a report of new code, per call. Stacks in replaced code end
/// in a marker after that.
const PARTS_MAX: usize = 128;

impl Core {
    /// Reports to perf which threads ran or exited, so that it opens events for those that run. To
    /// be called after the samples of the tick were taken, which show which threads already have
    /// events.
    pub(super) fn emit_perf(&mut self) {
        let Some(perf) = &mut self.backend.perf else { return };
        for process in self.processes.iter().filter(|process| process.refusal.is_none()) {
            // If a sample is wanted soon, runnable threads count too: the counters lag.
            for moved in
                process.moved.iter().filter(|moved| moved.ran > 0 || self.once && moved.runnable)
            {
                perf.moved(moved.tid, moved.ran, moved.at_start);
            }
        }
        for event in &self.events {
            if let Event::ThreadEnded { thread, .. } = event {
                perf.ended(thread.tid);
            }
        }
    }

    /// Walks the kernel's samples up to `until`, each by the code mapped at its time.
    pub(super) fn drain(&mut self, until: Ns) {
        let Some(mut perf) = self.backend.perf.take() else { return };
        // Taken after `until` was read: a stack in new code is later than its report.
        perf.take_reports();
        let (reported, lost) = (perf.reports_code(), perf.lost_reports());
        let mut parts = if reported && !lost { PARTS_MAX } else { 0 };
        while let Some(new) = perf.next_report(until) {
            let Some(index) = self.find(new.pid) else { continue };
            if parts > 0 && self.processes[index].unwinder.would_replace(&new) {
                parts -= 1;
                self.walk_samples(&mut perf, new.at - 1);
            }
            self.processes[index].unwinder.report(&new);
        }
        if !reported || lost {
            self.revalidate(reported, lost);
        }
        self.walk_samples(&mut perf, until);
        if reported && !lost {
            self.revalidate(true, false);
        }
        self.backend.perf = Some(perf);
    }

    fn revalidate(&mut self, reported: bool, lost: bool) {
        for process in self.processes.iter_mut().filter(|process| process.gives_stacks()) {
            process.unwinder.revalidate(reported, lost);
        }
    }

    fn walk_samples(&mut self, perf: &mut Perf, until: Ns) {
        let deepest = perf.deepest();
        perf.drain(until, |sample| {
            let Some(index) = self.find(sample.pid) else { return };
            let mut frames = Vec::with_capacity(64);
            sample.kernel.frames(deepest, &mut frames);
            if let Some(registers) = &sample.registers {
                self.set_owner(index, sample);
                self.walk(
                    index,
                    sample.tid,
                    sample.at,
                    registers,
                    (sample.stack, sample.stack_room),
                    frames,
                );
            } else if !frames.is_empty() {
                // The user memory is no longer there (exit, exec), or the thread runs only in the
                // kernel (io_uring).
                frames.push(RawFrame::marker(Marker::NotReadable));
                self.sampled(
                    index,
                    sample.tid,
                    sample.at,
                    None,
                    frames,
                    &Walk { end: None, recovered: false },
                );
            }
        });
    }

    /// Walks one sample. `room`: stack bytes that were asked for; `frames`: the kernel's frames.
    fn walk(
        &mut self,
        index: usize,
        tid: u32,
        at: Ns,
        registers: &Registers,
        (stack, room): (&[u8], usize),
        mut frames: Vec<RawFrame>,
    ) {
        let bytes = StackBytes { base: registers.rsp, bytes: stack };
        self.processes[index].unwinder.set_instant(at);
        let walk = self.processes[index].unwinder.walk_running(registers, bytes, room, &mut frames);
        place_task(self.processes[index].labels_of_sample.take(), walk, &mut frames);
        if walk.end == Some(Marker::Torn) && self.follows_cores() {
            return;
        }
        let name = self.processes[index].unwinder.thread_name(at);
        self.sampled(index, tid, at, name, frames, &walk);
    }

    /// Records an on-CPU sample as an observation. `name` overrides the name of the thread.
    pub(super) fn sampled(
        &mut self,
        index: usize,
        tid: u32,
        at: Ns,
        name: Option<RawName>,
        stack: Vec<RawFrame>,
        walk: &Walk,
    ) {
        let process = &mut self.processes[index];
        if self.once {
            process.sampled.insert(tid);
        }
        // The thread started and exited since the last scan. Only the clock of its process has its
        // time, and only this sample a stack.
        let unknown = || {
            self.tick_interval.prompt(at);
            (ThreadKey::unknown(process.target.pid()), RawName::default())
        };
        let (thread, of_thread) = process.scan.identify_sampled(tid, at).unwrap_or_else(unknown);
        self.tick_interval.sampled(at);
        if walk.end == Some(Marker::CodeReplaced) {
            // The sooner a stack is walked, the more likely its code is still there.
            self.tick_interval.prompt(at);
        }
        let name = name.unwrap_or(of_thread);
        count_walk(walk, &mut self.losses);
        self.events.push(Event::Observation(Observation {
            stack,
            recovered: walk.recovered,
            ..Observation::new(at, thread, name, Seen::OnCpu)
        }));
    }

    /// Asks ptrace for samples of runnable threads that ran, or waited for a core, for half of the
    /// last tick. Waiting for a core counts, because with too few cores no thread runs half of the
    /// time. A thread in a run queue blocks no more often than one on a core.
    pub(super) fn request_stops(&mut self) {
        let half = self.schedule.interval() / 2;
        for process in &mut self.processes {
            if let Some(stopper) = &mut process.stopper {
                let sampled = &process.sampled;
                let wanted = |tid| !sampled.contains(&tid);
                let runs = |moved: &&Moved| moved.runnable && moved.ran + moved.delayed >= half;
                for moved in process.moved.iter().filter(runs).filter(|moved| wanted(moved.tid)) {
                    stopper.request(moved.tid);
                }
            }
        }
    }

    /// Walks the threads that ptrace caught since the last call.
    pub(super) fn take_caught(&mut self) {
        for index in 0..self.processes.len() {
            let mut first = true;
            while let Some(outcome) =
                self.processes[index].stopper.as_mut().and_then(|stopper| stopper.outcome())
            {
                self.stops.add(&outcome);
                if std::mem::take(&mut first) {
                    self.processes[index].unwinder.revalidate(false, false);
                }
                match outcome.caught {
                    Some(Caught { at, stack: CaughtStack::Copied { registers, bytes } }) => {
                        let owner = StackOwner { tid: outcome.tid, ..StackOwner::default() };
                        self.processes[index].unwinder.set_owner(owner, Taken::nothing());
                        self.walk(
                            index,
                            outcome.tid,
                            at,
                            &registers,
                            (&bytes, bytes.len()),
                            Vec::with_capacity(48),
                        );
                    }
                    Some(Caught { at, stack: CaughtStack::Walked { frames, walk } }) => {
                        self.sampled(index, outcome.tid, at, None, frames, &walk);
                    }
                    None => {}
                }
            }
        }
    }

    pub(super) fn find(&self, pid: u32) -> Option<usize> {
        self.processes.iter().position(|process| process.pid() == pid)
    }
}
