//! What is seen of threads on a core: samples that the kernel took, or threads that were stopped.

use crate::capture::looks::count_walk;
use crate::capture::ptrace::{Caught, CaughtStack};
use crate::capture::sampler::Core;
use crate::model::frame::{Event, Look, Marker, Ns, RawFrame, RawName, Seen};
use crate::unwinder::{Registers, StackBytes, Walk};

impl Core {
    /// Tells perf who ran and who ended, so that it watches those who run. After the samples of the round were taken: they tell
    /// who is watched already.
    pub(super) fn tell_perf(&mut self) {
        let Some(perf) = &mut self.way.perf else { return };
        for process in self.processes.iter().filter(|process| process.refusal.is_none()) {
            for moved in process.moved.iter().filter(|moved| moved.ran > 0) {
                perf.moved(moved.tid, moved.ran, moved.at_start);
            }
        }
        for event in &self.events {
            if let Event::ThreadEnded { thread, .. } = event {
                perf.ended(thread.tid);
            }
        }
    }

    /// Walks what the kernel sampled up to `until`.
    pub(super) fn drain(&mut self, until: Ns) {
        let Some(mut perf) = self.way.perf.take() else { return };
        let deepest = perf.deepest();
        perf.drain(until, |sample| {
            let Some(index) = self.find(sample.pid) else { return };
            let mut frames = Vec::with_capacity(64);
            sample.kernel.frames(deepest, &mut frames);
            if let Some(registers) = &sample.registers {
                self.walk(index, sample.tid, sample.at, registers, sample.stack, frames);
            } else if !frames.is_empty() {
                // Its memory is gone (exit, exec), or it works in the kernel alone (io_uring).
                frames.push(RawFrame::marker(Marker::NotReadable));
                self.sampled(index, sample.tid, sample.at, None, frames, &Walk { end: None, recovered: false });
            }
        });
        self.way.perf = Some(perf);
    }

    /// `frames`: those further in, of the kernel.
    fn walk(&mut self, index: usize, tid: u32, at: Ns, registers: &Registers, stack: &[u8], mut frames: Vec<RawFrame>) {
        let bytes = StackBytes { base: registers.rsp, bytes: stack };
        let walk = self.processes[index].unwinder.walk(registers, bytes, &mut frames);
        let name = self.processes[index].unwinder.thread_name(at);
        self.sampled(index, tid, at, name, frames, &walk);
    }

    /// An on-CPU sample becomes a look; by this name, or else its thread's.
    fn sampled(&mut self, index: usize, tid: u32, at: Ns, name: Option<RawName>, stack: Vec<RawFrame>, walk: &Walk) {
        // A thread that was born and has died since the last round: its time is booked by the process's clock.
        let Some((thread, of_thread)) = self.processes[index].looks.sampled(tid, at) else { return };
        let name = name.unwrap_or(of_thread);
        count_walk(walk, &mut self.losses);
        let (seen, counters, recovered) = (Seen::OnCpu, None, walk.recovered);
        self.events.push(Event::Look(Look { at, thread, name, seen, counters, stack, recovered }));
    }

    /// Asks for samples of the threads that ran, or wanted to, for at least half of the last tick and are runnable now.
    /// Wanting a core counts: where threads share too few cores none of them runs half of the time, and a thread in a
    /// run queue blocks no more often than one on a core.
    pub(super) fn request_stops(&mut self) {
        let half = self.schedule.interval() / 2;
        for process in &mut self.processes {
            if let Some(stopper) = &mut process.stopper {
                for moved in process.moved.iter().filter(|moved| moved.runnable && moved.ran + moved.delayed >= half) {
                    stopper.request(moved.tid);
                }
            }
        }
    }

    /// Walks the threads that were caught since the last time.
    pub(super) fn take_caught(&mut self) {
        for index in 0..self.processes.len() {
            while let Some(outcome) = self.processes[index].stopper.as_mut().and_then(|stopper| stopper.outcome()) {
                self.stops.add(&outcome);
                match outcome.caught {
                    Some(Caught { at, stack: CaughtStack::Copied { registers, bytes } }) => {
                        self.walk(index, outcome.tid, at, &registers, &bytes, Vec::with_capacity(48));
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
