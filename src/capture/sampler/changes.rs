//! Changes while sampling: added processes, execs, exits, and changes of backend.

use std::sync::Arc;

use crate::capture::backend::{self, Kind, Setting};
use crate::capture::ptrace::Stopper;
use crate::capture::sampler::pacing::between_samples;
use crate::capture::sampler::process::{Ended, Process};
use crate::capture::sampler::runtime_thread_names::RuntimeThreadNames;
use crate::capture::sampler::taken::Announced;
use crate::capture::sampler::{Core, descriptors_to_spend};
use crate::clock::{cpu_of_process, monotonic};
use crate::config::CaptureChoice;
use crate::model::vocabulary::event::{Event, Seen};
use crate::model::vocabulary::frame::Ns;
use crate::process::target::{AttachError, Target};
use crate::process::threads::raise_descriptor_limit;

impl Core {
    /// Observes another process from now on, unless it has exited or access is no longer granted.
    pub(super) fn add(&mut self, target: Arc<Target>) {
        self.tick_interval.prompt(monotonic());
        if self.processes.iter().any(|known| known.pid() == target.pid() && known.ended.is_none()) {
            return;
        }
        // The id belonged to a process that has exited.
        if let Some(index) = self.find(target.pid()) {
            let at = monotonic().max(self.floor);
            self.emit_exit(index, at);
        }
        let pid = target.pid();
        let mut process = match Process::new(target, self.descriptors.clone(), &mut self.walkers) {
            Ok(process) => process,
            Err(error) => return self.report_not_added(pid, &error),
        };
        process.scan.ration(self.visit_interval().is_some());
        let was_empty = self.processes.is_empty();
        self.processes.push(process);
        let entered = self.add_to_backend(self.processes.len() - 1);
        if let Err(error) = entered {
            self.changed = Some(error.to_string());
        }
        if was_empty {
            self.resume_observation();
        }
        self.publish_status();
    }

    /// Reports a process that could not be added as exited.
    fn report_not_added(&mut self, pid: u32, error: &AttachError) {
        if !matches!(error, AttachError::EndedEarly { .. }) {
            self.changed = Some(error.to_string());
            self.publish_status();
        }
        self.floor = self.floor.max(monotonic());
        self.send(Event::ProcessEnded { at: self.floor, pid });
    }

    /// Adds the other processes to a backend that was opened with the process `first`.
    pub(super) fn backend_opened(&mut self, first: usize) -> Result<(), AttachError> {
        self.tick_interval.prompt(monotonic());
        for index in 0..self.processes.len() {
            if index == first {
                self.start_stopper(index)?;
            } else if self.processes[index].refusal.is_none() {
                self.add_to_backend(index)?;
            }
        }
        Ok(())
    }

    /// Adds a process to the open backend.
    fn add_to_backend(&mut self, index: usize) -> Result<(), AttachError> {
        let process = &self.processes[index];
        let pid = process.pid();
        self.backend.add(pid, process.gives_stacks()).map_err(|error| AttachError::Internal {
            what: format!(
                "process {pid} cannot be watched by {}: {error}",
                self.backend.kind.title()
            ),
        })?;
        self.start_stopper(index)
    }

    fn start_stopper(&mut self, index: usize) -> Result<(), AttachError> {
        let process = &mut self.processes[index];
        if self.backend.kind == Kind::Ptrace && process.gives_stacks() {
            let walk = self.walkers.walk_stopped.clone();
            let stopper = Stopper::start(process.pid(), self.own_child, self.wake.clone(), walk)
                .map_err(|error| AttachError::Internal {
                    what: format!("cannot start the helper of ptrace: {error}"),
                })?;
            process.stopper = Some(stopper);
        }
        Ok(())
    }

    /// Detects execs. An exec maps code, so where the kernel reports that, a process without a
    /// report need not be checked.
    pub(super) fn detect_execs(&mut self, at: Ns) {
        match &mut self.backend.perf {
            Some(perf) => {
                perf.take_reports();
                self.execs_unknown |= perf.may_have_mapped();
            }
            None => self.execs_unknown = true,
        }
        let unknown = std::mem::take(&mut self.execs_unknown);
        for index in 0..self.processes.len() {
            let process = &mut self.processes[index];
            if process.ended.is_none()
                && (unknown || process.exec_detector.between())
                && process.exec_detector.replaced()
            {
                self.handle_exec(index, at);
            }
        }
    }

    /// Handles an exec of a process.
    pub(super) fn handle_exec(&mut self, index: usize, at: Ns) {
        self.tick_interval.prompt(at);
        let process = &mut self.processes[index];
        let pid = process.pid();
        if std::mem::take(&mut process.before_exec) {
            drop_stacks(&mut self.events, pid);
        }
        self.end_goroutines(index, at);
        self.events.push(Event::Exec { at, pid });
        let process = &mut self.processes[index];
        process.unwinder = (self.walkers.walk_copied)(pid);
        process.unwinder.follows_exec();
        process.names = RuntimeThreadNames::default();
        process.blockers.clear();
        process.stacks.invalidate();
        process.scan.restart();
        // The helper holds mappings of the old program.
        process.stopper = None;
        if let Err(error) = process.target.still_permitted() {
            self.revoke_access(index, error.to_string());
        } else if self.processes[index].refusal.take().is_some() {
            self.processes[index].check_readable();
            let _ = self.add_to_backend(index);
            self.publish_status();
        } else {
            let _ = self.start_stopper(index);
        }
        self.processes[index].accept_mappings();
    }

    /// Handles lost access to a process: drops its pending observations. From now on only its
    /// states are reported.
    fn revoke_access(&mut self, index: usize, why: String) {
        let process = &mut self.processes[index];
        let pid = process.pid();
        process.refusal = Some(why.clone());
        self.events.retain(|event| !matches!(event, Event::Observation(observation) if observation.thread.pid == pid));
        self.backend.remove(pid);
        if self.processes.iter().all(|process| process.refusal.is_some()) {
            self.change_backend(CaptureChoice::States, Some(why));
        } else {
            self.publish_status();
        }
    }

    /// Drops pending observations that the user may not see. To be called before observations are
    /// sent. The target may have executed a program that the caller may not observe. Capabilities
    /// of sampletop's own reach that one all the same.
    pub(super) fn drop_foreign_observations(&mut self, at: Ns) {
        if !self.events.iter().any(|event| matches!(event, Event::Observation(_))) {
            // The next tick detects an exec.
            return;
        }
        // Where observations may be forbidden to the caller, each exec is checked, reported or not.
        self.execs_unknown |= self.borrowed_rights;
        self.detect_execs(at);
        for index in 0..self.processes.len() {
            let process = &mut self.processes[index];
            if (process.ended.is_some() || process.exec_detector.between()) && self.borrowed_rights
            {
                let pid = process.pid();
                self.events
                    .retain(|event| !matches!(event, Event::Observation(observation) if observation.thread.pid == pid));
            } else if process.before_exec {
                let pid = process.pid();
                drop_stacks(&mut self.events, pid);
            }
        }
    }

    /// Handles a process whose stacks the kernel no longer lets us read.
    pub(super) fn handle_denied_stacks(&mut self, index: usize) {
        self.processes[index].readable = false;
        if self.processes.iter().any(Process::gives_stacks) {
            return self.publish_status();
        }
        let kind = if self.backend.perf.is_some() {
            CaptureChoice::CpuOnly
        } else {
            CaptureChoice::States
        };
        self.change_backend(kind, Some("the kernel no longer lets stacks be read".into()));
    }

    /// Changes to the backend that the user asks for.
    pub(super) fn use_backend(&mut self, choice: CaptureChoice) {
        // After an exec no backend may be permitted for a process.
        for process in &mut self.processes {
            process.refusal = process.target.still_permitted().err().map(|error| error.to_string());
            process.check_readable();
        }
        let mut refusals = self.processes.iter().map(|process| process.refusal.clone());
        match refusals.next() {
            Some(Some(why))
                if choice != CaptureChoice::States && refusals.all(|refusal| refusal.is_some()) =>
            {
                self.changed = Some(why);
                self.publish_status();
            }
            _ => {
                drop(refusals);
                self.change_backend(choice, None);
            }
        }
    }

    /// Opens another backend. If that fails, the present one stays, the status says why, and the
    /// result is false.
    pub(super) fn change_backend(&mut self, choice: CaptureChoice, why: Option<String>) -> bool {
        let best = [Process::gives_stacks, |process: &Process| process.refusal.is_none()];
        let Some(first) =
            best.iter().find_map(|fit| self.processes.iter().position(fit)).or(self.first())
        else {
            return false;
        };
        let opened = backend::open(choice, &self.setting(first));
        let changed = opened.is_ok();
        match opened {
            Ok(backend) => {
                if let Some(mut old) = self.backend.perf.take() {
                    old.count_lost();
                    let counts = old.counts();
                    self.closed.lost += counts.lost;
                    self.closed.throttled += counts.throttled;
                }
                self.backend = backend;
                self.changed =
                    why.map(|why| format!("{why}; capturing by {}", self.backend.kind.title()));
                self.rings_hung = false;
                for process in &mut self.processes {
                    process.stopper = None;
                    process.announced = Announced::default();
                    process.scan.restart();
                }
                if let Err(error) = self.backend_opened(first) {
                    self.changed = Some(error.to_string());
                }
            }
            Err(error) => self.changed = Some(error.to_string()),
        }
        if self.paused {
            self.run_perf();
        }
        self.publish_status();
        changed
    }

    fn first(&self) -> Option<usize> {
        (!self.processes.is_empty()).then_some(0)
    }

    fn setting(&self, first: usize) -> Setting<'_> {
        let process = &self.processes[first];
        Setting {
            target: &process.target,
            tasks: process.scan.tasks(),
            interval: between_samples(self.interval, self.once),
            runnable: self.once,
            descriptors: descriptors_to_spend(raise_descriptor_limit()),
            own_child: self.own_child,
        }
    }

    /// Marks processes that have exited since the last call.
    pub(super) fn mark_exited(&mut self) {
        for process in self
            .processes
            .iter_mut()
            .filter(|process| process.ended.is_none() && !process.target.alive())
        {
            // After the parent has reaped the process there is no clock to read.
            process.ended = Some(Ended { cpu_ns: cpu_of_process(process.pid()) });
        }
    }

    /// Sends the last samples, the last CPU time, and the exits of all processes.
    pub(super) fn report_all_exited(&mut self) {
        let at = monotonic();
        // With borrowed capabilities the samples are dropped: they may be of a program that the
        // process executed last, and its permission can no longer be checked.
        if !self.paused && !self.borrowed_rights {
            self.drain(at);
            self.emit();
        }
        self.events.clear();
        let at = at.max(self.floor);
        self.count_lost();
        let losses = self.losses_now(at);
        let planned = self.schedule.interval();
        self.send_ticks(at, planned, 0, losses, true);
        self.emit_exits(at);
        self.run_perf();
    }

    /// Sends the exits of processes. To be called after their last tick.
    pub(super) fn emit_exits(&mut self, at: Ns) {
        for index in (0..self.processes.len()).rev() {
            if self.processes[index].ended.is_some() {
                self.emit_exit(index, at);
            }
        }
    }

    fn emit_exit(&mut self, index: usize, at: Ns) {
        let process = self.processes.swap_remove(index);
        let pid = process.pid();
        if let Some(perf) = &mut self.backend.perf {
            process.scan.tids().for_each(|tid| perf.ended(tid));
        }
        self.backend.remove(pid);
        self.send(Event::ProcessEnded { at, pid });
        if process.refusal.is_some() {
            self.publish_status();
        }
    }
}

/// Drops the stacks of a started program that has yet to exec, and keeps its counters: the stacks
/// are of sampletop's own code.
fn drop_stacks(events: &mut [Event], pid: u32) {
    for event in events {
        if let Event::Observation(observation) = event
            && observation.thread.pid == pid
            && observation.seen != Seen::OnCpu
        {
            observation.seen = Seen::Running;
            observation.stack.clear();
        }
    }
}
