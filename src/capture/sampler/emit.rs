//! Sends events into the ring, and publishes the status.

use crate::capture::Status;
use crate::capture::backend::Kind;
use crate::capture::sampler::process::Process;
use crate::capture::sampler::{Core, MAX_FINAL_WAIT, MAX_PENDING};
use crate::clock::{monotonic, thread_cpu};
use crate::model::vocabulary::event::{Event, Losses};
use crate::model::vocabulary::frame::{Ns, SECOND};
use crate::process::threads::CounterSource;

/// Time between readings of the sampler's own CPU clock.
const OWN_CPU_EVERY: Ns = SECOND / 5;

impl Core {
    pub(super) fn every_second(&mut self, at: Ns) {
        self.rings_hung = false;
        let checked = self.backend.perf.as_mut().map_or(Ok(()), |perf| perf.housekeeping(at));
        self.unsampled = checked
            .err()
            .map(|error| format!("a processor that came online is not sampled: {error}"));
        self.publish_status();
    }

    /// Asks perf for its loss counts, beyond the check of each second.
    pub(super) fn count_lost(&mut self) {
        if let Some(perf) = &mut self.backend.perf {
            perf.count_lost();
        }
    }

    pub(super) fn losses_now(&mut self, at: Ns) -> Losses {
        if self.ending || at >= self.own_cpu.1 + OWN_CPU_EVERY {
            self.own_cpu = (thread_cpu(), at);
        }
        let perf = self.backend.perf.as_ref().map(|perf| perf.counts()).unwrap_or_default();
        Losses {
            dropped: self.writer.dropped() + perf.lost + self.closed.lost,
            throttled: perf.throttled + self.closed.throttled,
            stops: self.stops.stops,
            stops_blocked: self.stops.in_call,
            stop_p99_ns: self.stops.p99(),
            sampler_cpu_ns: self.own_cpu.0 + self.stops.cpu,
            ..self.losses
        }
    }

    /// Sends the gathered events, in order of time.
    pub(super) fn emit(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        let floor = self.floor;
        for event in &mut events {
            // A sample with a time before the last tick may enter its perf ring after that tick.
            if let Event::Observation(observation) = event {
                observation.at = observation.at.max(floor);
                // Observations with a runtime's name keep it; one of an exited thread has none.
                let named = observation.name.runtime_id().is_some() || observation.thread.tid == 0;
                if !named
                    && let Some(process) = self
                        .processes
                        .iter_mut()
                        .find(|process| process.pid() == observation.thread.pid)
                {
                    observation.name = process.names.of(
                        observation.thread.tid,
                        observation.name,
                        observation.at,
                        process.unwinder.as_mut(),
                    );
                }
            }
        }
        events.sort_by_key(time_of);
        if self.first.is_none() {
            self.first =
                events.iter().find(|event| matches!(event, Event::Observation(_))).map(time_of);
        }
        if let Some(last) = events.last() {
            self.floor = time_of(last);
        }
        for event in events.drain(..) {
            self.send(event);
        }
        self.events = events;
    }

    /// Sends an event. If the ring is full, an observation is dropped and counted. Events that must
    /// not be lost wait, and later events are not sent before them.
    pub(super) fn send(&mut self, event: Event) {
        while let Some(first) = self.pending.front() {
            if !self.writer.push(first) {
                break;
            }
            self.pending.pop_front();
        }
        if self.pending.is_empty() && self.writer.push(&event) {
            return;
        }
        match event {
            Event::Observation(observation) => {
                if let Some(index) = self.find(observation.thread.pid) {
                    self.processes[index].scan.mark_undelivered(observation.thread.tid);
                }
            }
            // The next tick carries the same totals.
            Event::Tick(_) => {}
            // It is read again later.
            Event::StillBlocked { .. } => {}
            other if self.pending.len() < MAX_PENDING => self.pending.push_back(other),
            _ => {}
        }
    }

    /// Ends sending: waits a limited time for room for events that must not be lost.
    pub(super) fn drain_pending(mut self) {
        let at = monotonic();
        while !self.pending.is_empty()
            && !self.writer.abandoned()
            && monotonic() < at + MAX_FINAL_WAIT
        {
            std::thread::sleep(std::time::Duration::from_millis(1));
            if let Some(event) = self.pending.pop_back() {
                self.send(event);
            }
        }
    }

    pub(super) fn publish_status(&self) {
        let mut notices: Vec<String> =
            self.changed.iter().chain(&self.backend.lack).chain(&self.unsampled).cloned().collect();
        notices.extend(self.notices_of_processes());
        if self.backend.perf.as_ref().is_some_and(|perf| perf.starved()) {
            notices.push(
                "too few descriptors: some running threads are not sampled, and their time looks like kernel time; raise `ulimit -n`"
                    .into(),
            );
        }
        notices.extend(self.pace.notice());
        let status = Status {
            backend: self.backend.kind.title().into(),
            notice: (!notices.is_empty()).then(|| notices.join("; ")),
            ptrace_would_help: self.backend.kind == Kind::States && self.backend.may_stop,
            kernel_visible: self.backend.perf.as_ref().is_none_or(|perf| perf.kernel_visible()),
            interval_asked: self.pace.asked(),
        };
        *self.status.lock().unwrap_or_else(|e| e.into_inner()) = status;
    }

    fn notices_of_processes(&self) -> Vec<String> {
        let mut notices = Vec::new();
        let any = |fit: fn(&Process) -> bool| self.processes.iter().any(fit);
        // If no process gives stacks, the backend's own notice says so.
        if self.backend.reads_stacks && any(Process::gives_stacks) {
            for process in &self.processes {
                match &process.refusal {
                    Some(why) => notices.push(format!("{why}; only its states are shown")),
                    None if !process.readable => {
                        notices.push(format!(
                            "stacks of waiting threads of process {} cannot be read",
                            process.pid()
                        ));
                    }
                    None => {}
                }
            }
        }
        let waiting: usize = self.processes.iter().map(|process| process.scan.not_read_yet()).sum();
        if waiting > 0 {
            notices.push(format!(
                "{waiting} threads have not been read yet; they follow at the next ticks"
            ));
        }
        if any(|process| process.scan.tasks().short_of_descriptors()) {
            notices.push("too few descriptors: files of threads are opened again at every tick; raise `ulimit -n`".into());
        }
        if any(|process| process.scan.tasks().source() == CounterSource::Stat) {
            notices.push(
                "this kernel has no CONFIG_SCHED_INFO: CPU time comes in clock ticks, run delay is unknown".into(),
            );
        }
        notices
    }
}

fn time_of(event: &Event) -> Ns {
    match event {
        Event::Observation(observation) => observation.at,
        Event::Tick(tick) => tick.at,
        Event::ThreadEnded { at, .. } | Event::Exec { at, .. } => *at,
        Event::ProcessEnded { at, .. } | Event::Gap { at, .. } => *at,
        Event::StillBlocked { at, .. } | Event::Deadlocks { at, .. } => *at,
    }
}
