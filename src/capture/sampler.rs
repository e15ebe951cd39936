//! The sampler thread. It waits for its tick, for perf rings that fill up, for processes that exit,
//! and for commands.
//!
//! ```text
//! process               state of each process
//! runtime_thread_names  names that a runtime gives its threads
//! scans                 the thread scan of each tick
//! pacing                how often there are samples, ticks and visits
//! samples               samples of running threads, by the kernel or by ptrace
//! taken                 what the kernel takes with its samples for runtimes
//! on_its_core           samples of interpreters' threads where the kernel takes nothing
//! changes               added processes, execs, exits, changes of backend
//! goroutines            goroutines that wait
//! blockers              reads what blocked threads wait for, and who holds it
//! wait_schedule         when the blocker of each wait is read; allowance: the time for that
//! deadlocks             threads that wait for each other
//! emit                  events into the ring, and the status
//! ```

mod allowance;
mod blockers;
mod changes;
mod deadlocks;
mod emit;
mod goroutines;
mod on_its_core;
mod pacing;
mod process;
mod runtime_thread_names;
mod samples;
mod scans;
mod taken;
mod wait_schedule;

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::capture::backend::{self, Backend, Setting};
use crate::capture::event_ring::Writer;
use crate::capture::governor::pace::Pace;
use crate::capture::perf::{COUNTERS_LAG, PerfCounts};
use crate::capture::ptrace::StopCounts;
use crate::capture::sampler::allowance::Allowance;
use crate::capture::sampler::pacing::between_samples;
use crate::capture::sampler::process::Process;
use crate::capture::schedule::{Random, Schedule};
use crate::capture::tick_interval::TickInterval;
use crate::capture::{Control, Plan, Status, Walkers};
use crate::clock::{cpu_of_process, monotonic};
use crate::model::vocabulary::event::{Event, Losses, Tick};
use crate::model::vocabulary::frame::{Ns, SECOND, ThreadKey};
use crate::process::blockers::LockTable;
use crate::process::privileges;
use crate::process::target::{AttachError, Target};
use crate::process::threads::{Descriptors, raise_descriptor_limit};

/// Returns how many of `limit` descriptors thread files may take; perf events may take as many. The
/// rest is for all other files, most of them mapped files of the target, but at least 20.
fn descriptors_to_spend(limit: usize) -> usize {
    const ELSEWHERE: usize = 256;
    (limit - ELSEWHERE.min(limit * 5 / 8)) / 2
}

/// Maximum events that wait while the ring is full and must not be lost.
const MAX_PENDING: usize = 100_000;
/// Maximum wait for room in the ring at the end of a session.
const MAX_FINAL_WAIT: Ns = SECOND;

pub struct Core {
    /// Unordered.
    processes: Vec<Process>,
    walkers: Walkers,
    backend: Backend,
    schedule: Schedule,
    /// Interval of samples in force, ns.
    interval: Ns,
    tick_interval: TickInterval,
    /// The next sample wakes the sampler.
    wakes_on_sample: bool,
    pace: Pace,
    own_child: bool,
    /// One stack of each thread is wanted.
    once: bool,
    /// Sampling is about to end.
    ending: bool,
    /// Keep running after all processes have exited.
    outlasts: bool,
    /// Budget of open files of threads.
    descriptors: Descriptors,
    /// The user has paused sampling.
    paused: bool,
    writer: Writer,
    /// Events, in order, that found the ring full and must not be lost.
    pending: VecDeque<Event>,
    control: Receiver<Control>,
    wake: Arc<OwnedFd>,
    status: Arc<Mutex<Status>>,
    /// Reason of the last change of backend, until the next one.
    changed: Option<String>,
    /// Which processor is not sampled, and why; checked once a second.
    unsampled: Option<String>,
    losses: Losses,
    /// Counts of perf backends that were closed.
    closed: PerfCounts,
    stops: StopCounts,
    /// Time of the last event sent; no later one may be earlier.
    floor: Ns,
    second_due: Ns,
    /// Time at which the clocks of processes are read, at the earliest.
    clocks_due: Ns,
    /// Time since the tick before this one, ns.
    since_tick: Ns,
    /// Time of the first observation.
    first: Option<Ns>,
    /// A target may have executed another program since that was checked.
    execs_unknown: bool,
    /// The caller has fewer rights than sampletop.
    borrowed_rights: bool,
    /// CPU time of the sampler thread, and when it was read: a system call.
    own_cpu: (Ns, Ns),
    /// A perf descriptor hung up. Polling it would end every wait at once.
    rings_hung: bool,
    events: Vec<Event>,
    /// Time for reading what threads wait for.
    allowance: Allowance,
    /// Own CPU time before the first such read of this tick, ns.
    reading_since: Option<Ns>,
    /// Who holds file locks; started when a thread waits long for one.
    lock_table: Option<LockTable>,
    /// The deadlocks that were reported last.
    deadlocks: Vec<Vec<ThreadKey>>,
    /// Where among many running threads those begin that are sampled on their cores.
    core_turn: usize,
}

/// Inputs of [`Core::open`].
pub struct Parts {
    /// Not empty.
    pub targets: Vec<Arc<Target>>,
    pub plan: Plan,
    pub walkers: Walkers,
    pub writer: Writer,
    pub control: Receiver<Control>,
    pub wake: Arc<OwnedFd>,
    pub status: Arc<Mutex<Status>>,
}

impl Core {
    /// Opens the backend and all processes. Must run on the sampler thread, which owns the perf
    /// rings and the unwinder. A process that cannot be observed is skipped, unless it is the only
    /// one.
    pub fn open(parts: Parts) -> Result<Core, AttachError> {
        let Parts { targets, plan, mut walkers, writer, control, wake, status } = parts;
        // Limits timer lateness to a microsecond; the default is 50.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000));
        let descriptors = Descriptors::new(descriptors_to_spend(raise_descriptor_limit()));
        let mut processes = Vec::with_capacity(targets.len());
        let mut refusal = AttachError::Internal { what: "there is no process to sample".into() };
        let (mut events, mut changed) = (Vec::new(), None);
        for target in targets {
            let pid = target.pid();
            match Process::new(target, descriptors.clone(), &mut walkers) {
                Ok(mut process) => {
                    process.before_exec = plan.own_child;
                    // Each thread has one stack only: its labels are to be there.
                    if plan.once {
                        process.labels.search();
                    }
                    processes.push(process);
                }
                Err(error) => {
                    changed = changed.or(Some(error.to_string())
                        .filter(|_| !matches!(error, AttachError::EndedEarly { .. })));
                    refusal = error;
                    events.push(Event::ProcessEnded { at: monotonic(), pid });
                }
            }
        }
        // The backend is chosen by a process that grants the most access.
        let first = processes.iter().position(Process::gives_stacks).unwrap_or(0);
        let interval = plan.interval.as_nanos() as Ns;
        let setting = match processes.get(first) {
            Some(process) => Setting {
                target: &process.target,
                tasks: process.scan.tasks(),
                interval: between_samples(interval, plan.once),
                runnable: plan.once,
                descriptors: descriptors_to_spend(raise_descriptor_limit()),
                own_child: plan.own_child,
            },
            None => return Err(refusal),
        };
        let backend = backend::open(plan.choice, &setting)?;
        let begin = monotonic();
        let mut core = Core {
            processes,
            walkers,
            backend,
            schedule: Schedule::new(interval, Random::seeded(), begin),
            interval,
            tick_interval: TickInterval::new(begin),
            wakes_on_sample: false,
            pace: Pace::new(interval, plan.overhead),
            own_child: plan.own_child,
            once: plan.once,
            ending: false,
            outlasts: plan.outlasts,
            descriptors,
            paused: false,
            writer,
            pending: VecDeque::new(),
            control,
            wake,
            status,
            changed,
            unsampled: None,
            losses: Losses::default(),
            closed: PerfCounts::default(),
            stops: StopCounts::default(),
            floor: 0,
            second_due: begin,
            clocks_due: begin,
            since_tick: 0,
            first: None,
            execs_unknown: true,
            borrowed_rights: privileges::borrowed(),
            own_cpu: (0, 0),
            rings_hung: false,
            events,
            allowance: Allowance::default(),
            reading_since: None,
            lock_table: None,
            deadlocks: Vec::new(),
            core_turn: 0,
        };
        core.backend_opened(first)?;
        core.announce_runtimes();
        core.publish_status();
        Ok(core)
    }

    /// Runs the first tick. Returns the time of its first observation.
    pub fn begin(&mut self) -> Ns {
        let begin = monotonic();
        if self.is_observing() {
            self.tick(begin);
        }
        self.first.unwrap_or(begin)
    }

    /// Samples until stopped, or until all processes have exited and no others may be added.
    pub fn run(mut self) {
        loop {
            let woken = self.wait();
            if woken.control {
                let mut count = [0; 8];
                let _ = rustix::io::read(&*self.wake, &mut count);
                while let Ok(control) = self.control.try_recv() {
                    if matches!(control, Control::Stop) {
                        return self.stop();
                    }
                    self.handle_control(control);
                }
            }
            if woken.ended {
                self.mark_exited();
                if self.processes.iter().all(|process| process.ended.is_some()) {
                    self.report_all_exited();
                    if !self.outlasts {
                        return self.drain_pending();
                    }
                }
            }
            let now = monotonic();
            if let Some(perf) = &mut self.backend.perf {
                perf.start_due(now);
            }
            if !self.is_observing() {
                continue;
            }
            if woken.sample {
                self.schedule.hasten(now);
            }
            if now >= self.schedule.due() {
                self.tick(now);
            } else {
                self.take_caught();
                if woken.ring {
                    self.drain(now);
                    self.drop_foreign_observations(now);
                }
                self.emit();
            }
        }
    }

    /// Runs the last ticks. The run time of exited threads is only in the clock of their process,
    /// which is read once a second. So it is read now. Then every thread is observed until the
    /// threads' own counters have caught up with it.
    fn stop(mut self) {
        // The caller may have seen the exit before us.
        self.mark_exited();
        if !self.is_observing() {
            return;
        }
        if self.processes.iter().all(|process| process.ended.is_some()) {
            return self.report_all_exited();
        }
        (self.second_due, self.clocks_due) = (0, 0);
        let visit = self.visit_interval();
        self.ending = true;
        self.pace_changed(visit);
        self.force_full_scan();
        self.tick(monotonic());
        let caught_up = monotonic() + COUNTERS_LAG;
        while monotonic() < caught_up {
            let wait = self.schedule.due().min(caught_up).saturating_sub(monotonic());
            std::thread::sleep(std::time::Duration::from_nanos(wait));
            self.force_full_scan();
            self.count_lost();
            self.tick(monotonic());
        }
    }

    /// Returns whether there is a process to observe, and sampling is not paused.
    fn is_observing(&self) -> bool {
        !self.paused && !self.processes.is_empty()
    }

    fn wait(&mut self) -> Woken {
        let start = self.backend.perf.as_ref().and_then(|perf| perf.next_start());
        let due = self.is_observing().then(|| self.schedule.due());
        let timeout = [start, due].into_iter().flatten().min().map(|at| {
            let wait = at.saturating_sub(monotonic());
            Timespec { tv_sec: (wait / SECOND) as i64, tv_nsec: (wait % SECOND) as i64 }
        });
        let mut fds = vec![PollFd::new(&*self.wake, PollFlags::IN)];
        let living = self.processes.iter().filter(|process| process.ended.is_none());
        fds.extend(
            living.map(|process| PollFd::from_borrowed_fd(process.target.pidfd(), PollFlags::IN)),
        );
        let wakeup = fds.len();
        if let Some(bpf) = self.backend.bpf.as_ref().filter(|_| self.wakes_on_sample) {
            fds.push(PollFd::from_borrowed_fd(bpf.wakeup(), PollFlags::IN));
        }
        let rings = fds.len();
        if let Some(perf) =
            self.backend.perf.as_ref().filter(|_| !self.rings_hung && self.is_observing())
        {
            fds.extend(perf.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        if poll(&mut fds, timeout.as_ref()).is_err() {
            // Interrupted by a signal: report no event.
            return Woken::default();
        }
        let any = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let hung =
            fds[rings..].iter().any(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR));
        let woken = Woken {
            control: any(&fds[0]),
            ended: fds[1..wakeup].iter().any(any),
            sample: fds[wakeup..rings].iter().any(any),
            ring: fds[rings..].iter().any(any),
        };
        self.rings_hung |= hung;
        woken
    }

    fn handle_control(&mut self, control: Control) {
        match control {
            Control::Add(target) => self.add(target),
            Control::Interval(interval) => {
                let before = self.visit_interval();
                self.pace.ask(interval.as_nanos() as Ns);
                self.pace_changed(before);
            }
            Control::Pause if !self.paused => {
                // Observations up to here are sent before the gap begins.
                if self.is_observing() {
                    self.force_full_scan();
                    self.tick(monotonic());
                }
                self.paused = true;
                self.run_perf();
            }
            Control::Resume if self.paused => {
                self.paused = false;
                self.resume_observation();
            }
            Control::Use(choice) => self.use_backend(choice),
            Control::Started if self.is_observing() => {
                let at = monotonic();
                self.schedule.resume(at);
                self.tick(at);
            }
            Control::Pause | Control::Resume | Control::Started | Control::Stop => {}
        }
    }

    /// Resumes observation after a gap.
    fn resume_observation(&mut self) {
        if !self.is_observing() {
            return;
        }
        let at = monotonic();
        let from = self.schedule.resume(at);
        self.tick_interval.prompt(at);
        self.force_full_scan();
        self.events.push(Event::Gap { from: from.max(self.floor), at });
        self.run_perf();
        self.emit();
    }

    /// Runs or stops the kernel's sampling with our own.
    fn run_perf(&mut self) {
        let is_observing = self.is_observing();
        if let Some(perf) = &mut self.backend.perf {
            perf.run(is_observing);
        }
    }

    fn force_full_scan(&mut self) {
        self.processes.iter_mut().for_each(|process| process.scan.force_full_scan());
    }

    /// Runs one tick: the thread scan, the kernel's samples since the last tick, and one tick event
    /// per process, all with the same time.
    fn tick(&mut self, begin: Ns) {
        let timing = self.schedule.begin(begin);
        self.since_tick = timing.planned + timing.late;
        if let Some(from) = timing.gap_from {
            // A thread without an observation after the gap would count as not having run.
            self.force_full_scan();
            self.events.push(Event::Gap { from: from.max(self.floor), at: begin });
        }
        self.losses.late += u64::from(timing.missed);
        if begin >= self.second_due {
            self.execs_unknown = true;
        }
        self.detect_execs(begin);
        // First, because a sample of a parked thread adds it to this very scan.
        self.drain(begin);
        let scan_from = monotonic();
        self.scan_threads();
        self.announce_runtimes();
        self.sample_interpreters();
        let scans = monotonic() - scan_from;
        for process in &mut self.processes {
            process.names.refresh(process.target.pid(), begin, process.unwinder.as_mut());
        }
        self.request_stops();
        self.take_caught();
        let at = monotonic();
        self.drain(at);
        self.observe_goroutines(at);
        self.emit_perf();
        self.drop_foreign_observations(at);
        self.read_blockers(at);
        let tick_at = at.max(self.floor);
        self.emit();
        let second = begin >= self.second_due;
        if second {
            self.second_due = begin + SECOND;
            self.every_second(at);
        }
        let reads_clocks = second && begin >= self.clocks_due;
        if reads_clocks {
            match self.visit_interval() {
                // Run time in the process clock but in no thread's counters is booked to exited
                // threads. So all counters are read now.
                None => self.force_full_scan(),
                // The visits of the next two intervals read them.
                Some(visit) => self.clocks_due = begin + 3 * visit,
            }
        }
        // Where one observation is wanted, nothing is checked later.
        if second || self.once {
            self.check_deadlocks(tick_at);
        }
        let losses = self.losses_now(tick_at);
        self.send_ticks(tick_at, timing.planned, timing.late, losses, reads_clocks);
        self.emit_exits(tick_at);
        self.pace.took(scans, monotonic() - begin);
        self.adjust_pace(tick_at, losses.sampler_cpu_ns);
        self.plan_tick(tick_at);
    }

    fn send_ticks(
        &mut self,
        at: Ns,
        tick_interval_ns: Ns,
        late_ns: Ns,
        losses: Losses,
        reads_clocks: bool,
    ) {
        let visit_interval = self.visit_interval();
        for index in 0..self.processes.len() {
            let process = &mut self.processes[index];
            let pid = process.pid();
            // A complete scan leaves no thread unknown.
            let visit_interval_ns = visit_interval.filter(|_| !process.scan.was_complete());
            let process_cpu_ns = match process.ended {
                Some(ended) => ended.cpu_ns,
                // Run time before a thread's first observation is not booked to it. In the process
                // clock it would look like that of exited threads.
                None if (reads_clocks || !process.has_clock_reading)
                    && process.scan.not_read_yet() == 0 =>
                {
                    if !process.has_clock_reading {
                        process.has_clock_reading = true;
                        process.scan.force_full_scan();
                    }
                    cpu_of_process(pid)
                }
                None => None,
            };
            self.send(Event::Tick(Tick {
                at,
                pid,
                late_ns,
                process_cpu_ns,
                interval_ns: self.interval,
                tick_interval_ns,
                visit_interval_ns,
                losses,
            }));
        }
        self.floor = at;
    }
}

#[derive(Default)]
struct Woken {
    control: bool,
    ended: bool,
    /// A sample was taken, and one was to wake the sampler.
    sample: bool,
    ring: bool,
}

#[cfg(test)]
mod tests {
    use super::descriptors_to_spend;

    #[test]
    fn a_low_limit_leaves_events_for_some_running_threads() {
        // One event per thread and core: two threads on two cores need four.
        assert_eq!([16, 64, 128].map(descriptors_to_spend), [3, 12, 24]);
        assert_eq!([1024, 1 << 20].map(descriptors_to_spend), [384, ((1 << 20) - 256) / 2]);
    }
}
