//! What is seen of threads on a core: samples that the kernel took, or threads that were stopped.

use crate::capture::perf::Perf;
use crate::capture::ptrace::{Caught, CaughtStack};
use crate::capture::sampler::Core;
use crate::capture::thread_scan::{Moved, count_walk};
use crate::model::vocabulary::frame::{
    Event, Marker, Ns, Observation, RawFrame, RawName, Seen, ThreadKey,
};
use crate::unwinder::{Registers, StackBytes, Walk};

/// So often in one call the samples before a report are walked ahead of it. Beyond that stacks in
/// code that was replaced end in a marker.
const PARTS_MAX: usize = 128;

impl Core {
    /// Tells perf who ran and who ended, so that it watches those who run. After the samples of the
    /// round were taken: they tell who is watched already.
    pub(super) fn emit_perf(&mut self) {
        let Some(perf) = &mut self.backend.perf else { return };
        for process in self.processes.iter().filter(|process| process.refusal.is_none()) {
            // Where a sample is wanted soon, the sampler does not wait for the counters, which lag.
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

    /// Walks what the kernel sampled up to `until`, each stack by the code of its instant.
    pub(super) fn drain(&mut self, until: Ns) {
        let Some(mut perf) = self.backend.perf.take() else { return };
        // After `until` was taken: a stack in new code comes later than the report of it.
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
                self.walk(
                    index,
                    sample.tid,
                    sample.at,
                    registers,
                    (sample.stack, sample.stack_room),
                    frames,
                );
            } else if !frames.is_empty() {
                // Its memory is gone (exit, exec), or it works in the kernel alone (io_uring).
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

    /// `room`: bytes of stack that were asked for. `frames`: those further in, of the kernel.
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
        let name = self.processes[index].unwinder.thread_name(at);
        self.sampled(index, tid, at, name, frames, &walk);
    }

    /// An on-CPU sample becomes a look; by this name, or else its thread's.
    fn sampled(
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
        // A thread that was born and has ended since the last round: only the process's clock has
        // its time, and this its stack.
        let unknown = || (ThreadKey::unknown(process.target.pid()), RawName::default());
        let (thread, of_thread) = process.scan.sampled(tid, at).unwrap_or_else(unknown);
        let name = name.unwrap_or(of_thread);
        count_walk(walk, &mut self.losses);
        let (seen, counters, recovered) = (Seen::OnCpu, None, walk.recovered);
        self.events.push(Event::Observation(Observation {
            at,
            thread,
            name,
            seen,
            counters,
            stack,
            recovered,
        }));
    }

    /// Asks for samples of the threads that ran, or wanted to, for at least half of the last tick
    /// and are runnable now. Wanting a core counts: where threads share too few cores none of them
    /// runs half of the time, and a thread in a run queue blocks no more often than one on a core.
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

    /// Walks the threads that were caught since the last time.
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
