//! The sampler thread: waits for its tick, for perf rings that fill up, for the end of processes
//! and for orders.
//!
//! ```text
//! process   what there is of each process
//! rounds    the round of looks at every tick
//! samples   what runs on a core: by the kernel's samples, or by stops
//! changes   processes come, replace their program and end; the way changes
//! telling   what goes into the ring, and the status
//! ```

mod changes;
mod emit;
mod names;
mod process;
mod rounds;
mod samples;

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::capture::backend::{self, Backend, Setting};
use crate::capture::governor::Pace;
use crate::capture::perf::{COUNTERS_LAG, PerfCounts};
use crate::capture::ptrace::StopCounts;
use crate::capture::ring::Writer;
use crate::capture::sampler::process::Process;
use crate::capture::schedule::{Random, Schedule};
use crate::capture::{Control, Plan, Status, Walkers};
use crate::clock::{cpu_of_process, monotonic};
use crate::model::vocabulary::frame::{Event, Losses, Ns, SECOND, Tick};
use crate::process::target::{AttachError, Target};
use crate::process::threads::{Descriptors, raise_descriptor_limit};

/// How many descriptors thread files may take, and as many perf events, of `limit`. The rest is for
/// everything else, which takes what mapped files there are, but at least 20.
fn descriptors_to_spend(limit: usize) -> usize {
    const ELSEWHERE: usize = 256;
    (limit - ELSEWHERE.min(limit * 5 / 8)) / 2
}

/// Events that must arrive wait here while the ring is full.
const OWED: usize = 100_000;
/// How long the end of a session waits for the reader to make room.
const LAST_WORDS: Ns = SECOND;
/// Samples in an interval where one stack of each thread is wanted: a thread that is on a core for
/// a millisecond at 100 Hz is hit.
const DENSER: Ns = 10;

pub struct Core {
    /// In no order.
    processes: Vec<Process>,
    walkers: Walkers,
    backend: Backend,
    schedule: Schedule,
    pace: Pace,
    own_child: bool,
    /// One stack of each thread is wanted.
    once: bool,
    /// This is the end of sampling.
    ends: bool,
    /// Go on when all processes have ended.
    outlasts: bool,
    /// How many files of threads may stay open.
    descriptors: Descriptors,
    /// Sampling is stopped by the user.
    paused: bool,
    writer: Writer,
    /// What could not be written yet and must not be lost, in order.
    owed: VecDeque<Event>,
    control: Receiver<Control>,
    wake: Arc<OwnedFd>,
    status: Arc<Mutex<Status>>,
    /// Why the way changed, until it changes again.
    changed: Option<String>,
    /// Which processor is not sampled, and why; as of the last second.
    unsampled: Option<String>,
    losses: Losses,
    /// perf counts of ways that were closed.
    closed: PerfCounts,
    stops: StopCounts,
    /// Nothing is told with an earlier time than this.
    floor: Ns,
    second_due: Ns,
    /// Time of the first observation.
    first: Option<Ns>,
    /// perf descriptors that hang up would end every wait at once.
    rings_hung: bool,
    events: Vec<Event>,
}

/// What the starter passes in.
pub struct Parts {
    /// At least one.
    pub targets: Vec<Arc<Target>>,
    pub plan: Plan,
    pub walkers: Walkers,
    pub writer: Writer,
    pub control: Receiver<Control>,
    pub wake: Arc<OwnedFd>,
    pub status: Arc<Mutex<Status>>,
}

impl Core {
    /// To be called on the sampler thread: perf's ring holders and the unwinder belong to it. A
    /// process that cannot be looked at any more is left out, unless it is the only one.
    pub fn open(parts: Parts) -> Result<Core, AttachError> {
        let Parts { targets, plan, mut walkers, writer, control, wake, status } = parts;
        // Late by at most a microsecond, not by the default 50.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000));
        let descriptors = Descriptors::new(descriptors_to_spend(raise_descriptor_limit()));
        let mut processes = Vec::with_capacity(targets.len());
        let mut refusal = AttachError::Internal { what: "there is no process to watch".into() };
        let (mut events, mut changed) = (Vec::new(), None);
        for target in targets {
            let pid = target.pid();
            match Process::new(target, descriptors.clone(), &mut walkers) {
                Ok(process) => processes.push(Process { before_exec: plan.own_child, ..process }),
                Err(error) => {
                    changed = changed.or(Some(error.to_string())
                        .filter(|_| !matches!(error, AttachError::EndedEarly { .. })));
                    refusal = error;
                    events.push(Event::ProcessEnded { at: monotonic(), pid });
                }
            }
        }
        // The way is chosen by one that allows the most.
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
            pace: Pace::new(interval, plan.overhead),
            own_child: plan.own_child,
            once: plan.once,
            ends: false,
            outlasts: plan.outlasts,
            descriptors,
            paused: false,
            writer,
            owed: VecDeque::new(),
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
            first: None,
            rings_hung: false,
            events,
        };
        core.backend_opened(first)?;
        core.publish_status();
        Ok(core)
    }

    /// The first round; answers when it observed something first.
    pub fn begin(&mut self) -> Ns {
        let begin = monotonic();
        if self.looking() {
            self.tick(begin);
        }
        self.first.unwrap_or(begin)
    }

    /// Samples until told to stop, or all processes have ended and no others may come.
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
                    self.obey(control);
                }
            }
            if woken.ended {
                self.note_ended();
                if self.processes.iter().all(|process| process.ended.is_some()) {
                    self.all_have_ended();
                    if !self.outlasts {
                        return self.last_words();
                    }
                }
            }
            let now = monotonic();
            if let Some(perf) = &mut self.backend.perf {
                perf.start_due(now);
            }
            if !self.looking() {
                continue;
            }
            if now >= self.schedule.due() {
                self.tick(now);
            } else {
                self.take_caught();
                if woken.ring {
                    self.drain(now);
                    self.withhold_what_is_not_ours(now);
                }
                self.emit();
            }
        }
    }

    /// What threads did that are gone is in the clocks of their processes, which are read once a
    /// second: once more now, and every thread is observed when the threads' own counters have
    /// caught up with that.
    fn stop(mut self) {
        // Whoever stops us may have seen the end first.
        self.note_ended();
        if !self.looking() {
            return;
        }
        if self.processes.iter().all(|process| process.ended.is_some()) {
            return self.all_have_ended();
        }
        self.second_due = 0;
        self.ends = true;
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

    /// There is something to look at, and it may be looked at.
    fn looking(&self) -> bool {
        !self.paused && !self.processes.is_empty()
    }

    fn wait(&mut self) -> Woken {
        let start = self.backend.perf.as_ref().and_then(|perf| perf.next_start());
        let due = self.looking().then(|| self.schedule.due());
        let timeout = [start, due].into_iter().flatten().min().map(|at| {
            let wait = at.saturating_sub(monotonic());
            Timespec { tv_sec: (wait / SECOND) as i64, tv_nsec: (wait % SECOND) as i64 }
        });
        let mut fds = vec![PollFd::new(&*self.wake, PollFlags::IN)];
        let living = self.processes.iter().filter(|process| process.ended.is_none());
        fds.extend(
            living.map(|process| PollFd::from_borrowed_fd(process.target.pidfd(), PollFlags::IN)),
        );
        let rings = fds.len();
        if let Some(perf) =
            self.backend.perf.as_ref().filter(|_| !self.rings_hung && self.looking())
        {
            fds.extend(perf.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        if poll(&mut fds, timeout.as_ref()).is_err() {
            // Interrupted by a signal: as if nothing had happened.
            return Woken { control: false, ended: false, ring: false };
        }
        let any = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let hung =
            fds[rings..].iter().any(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR));
        let woken = Woken {
            control: any(&fds[0]),
            ended: fds[1..rings].iter().any(any),
            ring: fds[rings..].iter().any(any),
        };
        self.rings_hung |= hung;
        woken
    }

    fn obey(&mut self, control: Control) {
        match control {
            Control::Add(target) => self.add(target),
            Control::Interval(interval) => {
                let interval = interval.as_nanos() as Ns;
                self.pace.ask(interval);
                self.set_interval(interval);
            }
            Control::Pause if !self.paused => {
                // What happened up to here is told before the gap.
                if self.looking() {
                    self.force_full_scan();
                    self.tick(monotonic());
                }
                self.paused = true;
                self.run_perf();
            }
            Control::Resume if self.paused => {
                self.paused = false;
                self.look_again();
            }
            Control::Use(choice) => self.use_backend(choice),
            Control::Started if self.looking() => {
                let at = monotonic();
                self.schedule.resume(at);
                self.tick(at);
            }
            Control::Pause | Control::Resume | Control::Started | Control::Stop => {}
        }
    }

    /// After a gap in observation.
    fn look_again(&mut self) {
        if !self.looking() {
            return;
        }
        let at = monotonic();
        let from = self.schedule.resume(at);
        self.force_full_scan();
        self.events.push(Event::Gap { from: from.max(self.floor), at });
        self.run_perf();
        self.emit();
    }

    /// The kernel samples while we look.
    fn run_perf(&mut self) {
        let looking = self.looking();
        if let Some(perf) = &mut self.backend.perf {
            perf.run(looking);
        }
    }

    fn force_full_scan(&mut self) {
        self.processes.iter_mut().for_each(|process| process.scan.force_full_scan());
    }

    /// The tick and the periods of the kernel's samples, always together.
    fn set_interval(&mut self, interval: Ns) {
        self.schedule.set_interval(interval);
        if let Some(perf) = &mut self.backend.perf {
            perf.set_interval(between_samples(self.schedule.interval(), self.once));
        }
        self.publish_status();
    }

    /// One round of looks, what the kernel sampled meanwhile, and the ticks that close it: one of
    /// each process, with the same time.
    fn tick(&mut self, begin: Ns) {
        let beat = self.schedule.begin(begin);
        if let Some(from) = beat.gap_from {
            // Silence after it would mean that no thread moved.
            self.force_full_scan();
            self.events.push(Event::Gap { from: from.max(self.floor), at: begin });
        }
        self.losses.late += u64::from(beat.missed);
        for index in 0..self.processes.len() {
            let process = &mut self.processes[index];
            if process.ended.is_none() && process.program.replaced() {
                self.replaced(index, begin);
            }
        }
        // First of all: a sample of a parked thread makes it looked at in this very round.
        self.drain(begin);
        self.round();
        for process in &mut self.processes {
            process.names.refresh(process.target.pid(), begin, process.unwinder.as_mut());
        }
        self.request_stops();
        self.take_caught();
        let at = monotonic();
        self.drain(at);
        self.emit_perf();
        self.withhold_what_is_not_ours(at);
        let tick_at = at.max(self.floor);
        self.emit();
        let second = begin >= self.second_due;
        if second {
            self.second_due = begin + SECOND;
            self.every_second(at);
            // What the process's clock has, and no thread's counters, is taken for threads that are
            // gone.
            self.force_full_scan();
        }
        let losses = self.losses_now();
        self.send_ticks(tick_at, beat.late, losses, second);
        self.emit_exits(tick_at);
        if let Some(interval) = self.pace.observe(tick_at, losses.sampler_cpu_ns) {
            self.set_interval(interval);
        }
    }

    fn send_ticks(&mut self, at: Ns, late_ns: Ns, losses: Losses, second: bool) {
        let interval_ns = self.schedule.interval();
        for index in 0..self.processes.len() {
            let process = &self.processes[index];
            let pid = process.pid();
            let process_cpu_ns = match process.ended {
                Some(ended) => ended.cpu_ns,
                // What threads have run before their first observations is not theirs, and would be
                // taken for that of ended ones.
                None if second && process.scan.not_read_yet() == 0 => cpu_of_process(pid),
                None => None,
            };
            self.send(Event::Tick(Tick { at, pid, late_ns, process_cpu_ns, interval_ns, losses }));
        }
        self.floor = at;
    }
}

/// The interval of the kernel's samples.
fn between_samples(interval: Ns, once: bool) -> Ns {
    if once { interval / DENSER } else { interval }
}

struct Woken {
    control: bool,
    ended: bool,
    ring: bool,
}

#[cfg(test)]
mod tests {
    use super::descriptors_to_spend;

    #[test]
    fn a_low_limit_leaves_events_for_some_running_threads() {
        // One event for each thread and core: two threads on two cores take four.
        assert_eq!([16, 64, 128].map(descriptors_to_spend), [3, 12, 24]);
        assert_eq!([1024, 1 << 20].map(descriptors_to_spend), [384, ((1 << 20) - 256) / 2]);
    }
}
