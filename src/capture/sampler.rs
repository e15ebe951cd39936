//! The sampler thread: waits for its tick, for perf rings that fill up, for the target's end and for orders.

mod rounds;

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::capture::blocked::StackReader;
use crate::capture::governor::Pace;
use crate::capture::looks::{Looks, Moved, count_walk};
use crate::capture::perf::PerfCounts;
use crate::capture::program::Program;
use crate::capture::ptrace::{Caught, CaughtStack, StopCounts};
use crate::capture::ring::Writer;
use crate::capture::schedule::{Random, Schedule, now, thread_cpu};
use crate::capture::way::{self, Kind, Setting, Way};
use crate::capture::{Control, Plan, Status, Walkers};
use crate::config::CaptureChoice;
use crate::model::frame::{Event, Look, Losses, Ns, RawFrame, SECOND, Seen, Tick};
use crate::process::memory::Memory;
use crate::process::privileges;
use crate::process::target::{AttachError, Target};
use crate::process::threads::{CounterSource, process_cpu, raise_descriptor_limit};
use crate::unwinder::{Registers, StackBytes, Unwinder, Walk};

/// How many descriptors thread files may take, and as many perf events, of `limit`. The rest is for everything else,
/// which takes what mapped files there are, but at least 20.
fn descriptors_to_spend(limit: usize) -> usize {
    const ELSEWHERE: usize = 256;
    (limit - ELSEWHERE.min(limit * 5 / 8)) / 2
}

/// Events that must arrive wait here while the ring is full.
const OWED: usize = 100_000;
/// How long the end of a session waits for the reader to make room.
const LAST_WORDS: Ns = SECOND;

pub struct Core {
    target: Arc<Target>,
    walkers: Walkers,
    unwinder: Box<dyn Unwinder>,
    looks: Looks,
    stacks: StackReader,
    program: Program,
    way: Way,
    schedule: Schedule,
    pace: Pace,
    own_child: bool,
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
    /// perf descriptors that hang up would end every wait at once.
    rings_hung: bool,
    events: Vec<Event>,
    moved: Vec<Moved>,
}

/// What the starter passes in.
pub struct Parts {
    pub target: Arc<Target>,
    pub plan: Plan,
    pub walkers: Walkers,
    pub writer: Writer,
    pub control: Receiver<Control>,
    pub wake: Arc<OwnedFd>,
    pub status: Arc<Mutex<Status>>,
}

impl Core {
    /// To be called on the sampler thread: perf's ring holders and the unwinder belong to it.
    pub fn open(parts: Parts) -> Result<Core, AttachError> {
        let Parts { target, plan, mut walkers, writer, control, wake, status } = parts;
        let pid = target.pid();
        // Late by at most a microsecond, not by the default 50.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000));
        let descriptors = descriptors_to_spend(raise_descriptor_limit());
        let looks = Looks::new(pid, descriptors).map_err(|_| AttachError::EndedEarly { pid })?;
        let interval = plan.interval.as_nanos() as Ns;
        let setting = Setting {
            target: &target,
            tasks: looks.tasks(),
            interval,
            descriptors,
            own_child: plan.own_child,
            wake: &wake,
            walk_stopped: walkers.walk_stopped.as_ref(),
        };
        // In this order: it may have replaced its program since it was attached to, and is asked about as it is now; the next
        // exec will be noticed.
        let program = Program::new(pid);
        target.still_permitted()?;
        let way = way::open(plan.choice, &setting)?;
        let begin = now();
        let core = Core {
            unwinder: (walkers.walk_copied)(),
            walkers,
            looks,
            stacks: StackReader::new(Memory::new(pid)),
            program,
            way,
            schedule: Schedule::new(interval, Random::seeded(), begin),
            pace: Pace::new(interval, plan.overhead),
            own_child: plan.own_child,
            paused: false,
            writer,
            owed: VecDeque::new(),
            control,
            wake,
            status,
            changed: None,
            unsampled: None,
            losses: Losses::default(),
            closed: PerfCounts::default(),
            stops: StopCounts::default(),
            floor: 0,
            second_due: begin,
            rings_hung: false,
            events: Vec::new(),
            moved: Vec::new(),
            target,
        };
        core.publish_status();
        Ok(core)
    }

    /// Samples until told to stop or the target has ended.
    pub fn run(mut self) {
        loop {
            let woken = self.wait();
            if woken.control {
                let mut count = [0; 8];
                let _ = rustix::io::read(&*self.wake, &mut count);
                while let Ok(control) = self.control.try_recv() {
                    if control == Control::Stop {
                        if !self.paused {
                            self.looks.leave_nobody_out();
                            self.count_lost();
                            self.tick(now());
                        }
                        return;
                    }
                    self.obey(control);
                }
            }
            if woken.ended {
                return self.finish();
            }
            let now = now();
            if let Some(perf) = &mut self.way.perf {
                perf.start_due(now);
            }
            if self.paused {
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

    fn wait(&mut self) -> Woken {
        let start = self.way.perf.as_ref().and_then(|perf| perf.next_start());
        let due = (!self.paused).then(|| self.schedule.due());
        let timeout = [start, due].into_iter().flatten().min().map(|at| {
            let wait = at.saturating_sub(now());
            Timespec { tv_sec: (wait / SECOND) as i64, tv_nsec: (wait % SECOND) as i64 }
        });
        let mut fds =
            vec![PollFd::new(&*self.wake, PollFlags::IN), PollFd::from_borrowed_fd(self.target.pidfd(), PollFlags::IN)];
        if let Some(perf) = self.way.perf.as_ref().filter(|_| !self.rings_hung && !self.paused) {
            fds.extend(perf.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        if poll(&mut fds, timeout.as_ref()).is_err() {
            // Interrupted by a signal: as if nothing had happened.
            return Woken { control: false, ended: false, ring: false };
        }
        let any = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let hung = fds[2..].iter().any(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR));
        let woken = Woken { control: any(&fds[0]), ended: any(&fds[1]), ring: fds[2..].iter().any(any) };
        self.rings_hung |= hung;
        woken
    }

    fn obey(&mut self, control: Control) {
        match control {
            Control::Interval(interval) => {
                let interval = interval.as_nanos() as Ns;
                self.pace.ask(interval);
                self.set_interval(interval);
            }
            Control::Pause if !self.paused => {
                // What happened up to here is told before the gap.
                self.looks.leave_nobody_out();
                self.tick(now());
                self.paused = true;
                if let Some(perf) = &mut self.way.perf {
                    perf.run(false);
                }
            }
            Control::Resume if self.paused => {
                self.paused = false;
                let at = now();
                let from = self.schedule.resume(at);
                self.looks.leave_nobody_out();
                self.events.push(Event::Gap { from: from.max(self.floor), at });
                if let Some(perf) = &mut self.way.perf {
                    perf.run(true);
                }
                self.emit();
            }
            // An exec may have made it a program that no other way is for.
            Control::Use(choice) => match self.target.still_permitted() {
                Err(error) if choice != CaptureChoice::States => {
                    self.changed = Some(error.to_string());
                    self.publish_status();
                }
                _ => {
                    self.change_way(choice, None);
                }
            },
            Control::Pause | Control::Resume | Control::Stop => {}
        }
    }

    /// The tick and the periods of the kernel's samples, always together.
    fn set_interval(&mut self, interval: Ns) {
        self.schedule.set_interval(interval);
        if let Some(perf) = &mut self.way.perf {
            perf.set_interval(self.schedule.interval());
        }
        self.publish_status();
    }

    /// One round of looks, what the kernel sampled meanwhile, and the tick that closes it.
    fn tick(&mut self, begin: Ns) {
        let beat = self.schedule.begin(begin);
        if let Some(from) = beat.gap_from {
            // Silence after it would mean that nobody moved.
            self.looks.leave_nobody_out();
            self.events.push(Event::Gap { from: from.max(self.floor), at: begin });
        }
        self.losses.late += u64::from(beat.missed);
        if self.program.replaced() {
            self.replaced(begin);
        }
        // First of all: a sample of a parked thread makes it looked at in this very round.
        self.drain(begin);
        self.round();
        self.request_stops();
        self.take_caught();
        let at = now();
        self.drain(at);
        self.tell_perf();
        self.withhold_what_is_not_ours(at);
        let tick_at = at.max(self.floor);
        self.emit();
        let second = begin >= self.second_due;
        if second {
            self.second_due = begin + SECOND;
            self.every_second(at);
            // What the process's clock has, and no thread's counters, is taken for threads that are gone.
            self.looks.leave_nobody_out();
        }
        let tick = Tick {
            at: tick_at,
            pid: self.target.pid(),
            late_ns: beat.late,
            process_cpu_ns: if second { process_cpu(self.target.pid()) } else { None },
            interval_ns: self.schedule.interval(),
            losses: self.losses_now(),
        };
        self.send(Event::Tick(tick));
        self.floor = tick_at;
        if let Some(interval) = self.pace.observe(tick_at, tick.losses.sampler_cpu_ns) {
            self.set_interval(interval);
        }
    }

    /// Tells perf who ran and who ended, so that it watches those who run. After the samples of the round were taken: they tell
    /// who is watched already.
    fn tell_perf(&mut self) {
        if let Some(perf) = &mut self.way.perf {
            for moved in self.moved.iter().filter(|moved| moved.ran > 0) {
                perf.moved(moved.tid, moved.ran, moved.at_start);
            }
            for event in &self.events {
                if let Event::ThreadEnded { thread, .. } = event {
                    perf.ended(thread.tid);
                }
            }
        }
    }

    /// Walks what the kernel sampled up to `until`.
    fn drain(&mut self, until: Ns) {
        let Some(mut perf) = self.way.perf.take() else { return };
        perf.drain(until, |sample| {
            if let Some(registers) = &sample.registers {
                self.walk(sample.tid, sample.at, registers, sample.stack);
            }
        });
        self.way.perf = Some(perf);
    }

    fn walk(&mut self, tid: u32, at: Ns, registers: &Registers, stack: &[u8]) {
        let mut frames = Vec::with_capacity(48);
        let walk = self.unwinder.walk(registers, StackBytes { base: registers.rsp, bytes: stack }, &mut frames);
        self.sampled(tid, at, frames, &walk);
    }

    /// An on-CPU sample becomes a look.
    fn sampled(&mut self, tid: u32, at: Ns, stack: Vec<RawFrame>, walk: &Walk) {
        // A thread that was born and has died since the last round: its time is booked by the process's clock.
        let Some((thread, name)) = self.looks.sampled(tid, at) else { return };
        count_walk(walk, &mut self.losses);
        let (seen, counters, recovered) = (Seen::OnCpu, None, walk.recovered);
        self.events.push(Event::Look(Look { at, thread, name, seen, counters, stack, recovered }));
    }

    /// Asks for samples of the threads that ran, or wanted to, for at least half of the last tick and are runnable now.
    /// Wanting a core counts: where threads share too few cores none of them runs half of the time, and a thread in a
    /// run queue blocks no more often than one on a core.
    fn request_stops(&mut self) {
        let half = self.schedule.interval() / 2;
        if let Some(stopper) = &mut self.way.stopper {
            for moved in self.moved.iter().filter(|moved| moved.runnable && moved.ran + moved.delayed >= half) {
                stopper.request(moved.tid);
            }
        }
    }

    /// Walks the threads that were caught since the last time.
    fn take_caught(&mut self) {
        while let Some(outcome) = self.way.stopper.as_mut().and_then(|stopper| stopper.outcome()) {
            self.stops.add(&outcome);
            match outcome.caught {
                Some(Caught { at, stack: CaughtStack::Copied { registers, bytes } }) => {
                    self.walk(outcome.tid, at, &registers, &bytes);
                }
                Some(Caught { at, stack: CaughtStack::Walked { frames, walk } }) => {
                    self.sampled(outcome.tid, at, frames, &walk);
                }
                None => {}
            }
        }
    }

    /// The target runs another program now.
    fn replaced(&mut self, at: Ns) {
        self.events.push(Event::Exec { at, pid: self.target.pid() });
        self.unwinder = (self.walkers.walk_copied)();
        self.stacks.invalidate();
        self.looks.restart();
        if let Err(error) = self.target.still_permitted() {
            self.events.retain(|event| !matches!(event, Event::Look(_)));
            self.change_way(CaptureChoice::States, Some(error.to_string()));
        } else if self.way.stopper.is_some() {
            // The helper knows the old program's mappings.
            self.way.stopper = self.setting().start_stopper().ok();
        }
    }

    /// To be called before looks are told: since we asked, the target may have become a program that is not for us, which rights
    /// of sampletop's own reach all the same.
    fn withhold_what_is_not_ours(&mut self, at: Ns) {
        if self.program.replaced() {
            self.replaced(at);
        } else if self.program.between() && privileges::borrowed() {
            self.events.retain(|event| !matches!(event, Event::Look(_)));
        }
    }

    /// Opens another way; on failure the present one stays, the status says why, and the answer is false.
    fn change_way(&mut self, choice: CaptureChoice, why: Option<String>) -> bool {
        let opened = way::open(choice, &self.setting());
        let changed = opened.is_ok();
        match opened {
            Ok(way) => {
                if let Some(mut old) = self.way.perf.take() {
                    old.count_lost();
                    let counts = old.counts();
                    self.closed.lost += counts.lost;
                    self.closed.throttled += counts.throttled;
                }
                self.way = way;
                self.changed = why.map(|why| format!("{why}; capturing by {}", self.way.kind.title()));
                self.rings_hung = false;
                self.looks.restart();
            }
            Err(error) => self.changed = Some(error.to_string()),
        }
        if self.paused
            && let Some(perf) = &mut self.way.perf
        {
            perf.run(false);
        }
        self.publish_status();
        changed
    }

    fn setting(&self) -> Setting<'_> {
        Setting {
            target: &self.target,
            tasks: self.looks.tasks(),
            interval: self.schedule.interval(),
            descriptors: descriptors_to_spend(raise_descriptor_limit()),
            own_child: self.own_child,
            wake: &self.wake,
            walk_stopped: self.walkers.walk_stopped.as_ref(),
        }
    }

    fn every_second(&mut self, at: Ns) {
        self.rings_hung = false;
        let checked = self.way.perf.as_mut().map_or(Ok(()), |perf| perf.housekeeping(at));
        self.unsampled = checked.err().map(|error| format!("a processor that came online is not sampled: {error}"));
        self.publish_status();
    }

    /// Otherwise asked once a second.
    fn count_lost(&mut self) {
        if let Some(perf) = &mut self.way.perf {
            perf.count_lost();
        }
    }

    fn losses_now(&self) -> Losses {
        let perf = self.way.perf.as_ref().map(|perf| perf.counts()).unwrap_or_default();
        Losses {
            dropped: self.writer.dropped() + perf.lost + self.closed.lost,
            throttled: perf.throttled + self.closed.throttled,
            stops: self.stops.stops,
            stops_blocked: self.stops.in_call,
            stop_p99_ns: self.stops.p99(),
            sampler_cpu_ns: thread_cpu() + self.stops.cpu,
            ..self.losses
        }
    }

    /// Sends what was gathered, in order of time.
    fn emit(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        let floor = self.floor;
        for event in &mut events {
            // A sample whose time was taken before the last tick may have come into its ring after it.
            if let Event::Look(look) = event {
                look.at = look.at.max(floor);
            }
        }
        events.sort_by_key(time_of);
        if let Some(last) = events.last() {
            self.floor = time_of(last);
        }
        for event in events.drain(..) {
            self.send(event);
        }
        self.events = events;
    }

    /// A look that finds the ring full is dropped and counted; what must arrive waits, and later looks wait with it.
    fn send(&mut self, event: Event) {
        while let Some(first) = self.owed.front() {
            if !self.writer.push(first) {
                break;
            }
            self.owed.pop_front();
        }
        if self.owed.is_empty() && self.writer.push(&event) {
            return;
        }
        match event {
            Event::Look(look) => self.looks.unsent(look.thread.tid),
            // The next one carries the same totals.
            Event::Tick(_) => {}
            other if self.owed.len() < OWED => self.owed.push_back(other),
            _ => {}
        }
    }

    /// The target has ended: its last samples, its last CPU time, and the word itself.
    fn finish(mut self) {
        let at = now();
        // With rights of its own nothing of a program that nobody can be asked about any more: it may have come by an exec.
        if !self.paused && !privileges::borrowed() {
            self.drain(at);
            self.emit();
        }
        let at = at.max(self.floor);
        let pid = self.target.pid();
        self.count_lost();
        let losses = self.losses_now();
        let interval_ns = self.schedule.interval();
        // A zombie still has its clock; once somebody has waited for it, there is none.
        let process_cpu_ns = process_cpu(pid);
        self.send(Event::Tick(Tick { at, pid, late_ns: 0, process_cpu_ns, interval_ns, losses }));
        self.send(Event::ProcessEnded { at, pid });
        while !self.owed.is_empty() && !self.writer.abandoned() && now() < at + LAST_WORDS {
            std::thread::sleep(std::time::Duration::from_millis(1));
            if let Some(event) = self.owed.pop_back() {
                self.send(event);
            }
        }
    }

    fn publish_status(&self) {
        let tasks = self.looks.tasks();
        let mut notices: Vec<String> =
            self.changed.iter().chain(&self.way.lack).chain(&self.unsampled).cloned().collect();
        if tasks.short_of_descriptors() {
            notices.push("descriptors run short: files of threads are opened for every look; raise `ulimit -n`".into());
        }
        if self.way.perf.as_ref().is_some_and(|perf| perf.starved()) {
            notices.push(
                "some running threads are not sampled for want of descriptors, which looks like time in the kernel; raise `ulimit -n`"
                    .into(),
            );
        }
        if tasks.source() == CounterSource::Stat {
            notices.push(
                "this kernel has no CONFIG_SCHED_INFO: CPU time comes in clock ticks, run delay is unknown".into(),
            );
        }
        notices.extend(self.pace.notice());
        let status = Status {
            way: self.way.kind.title().into(),
            notice: (!notices.is_empty()).then(|| notices.join("; ")),
            ptrace_would_help: self.way.kind == Kind::States && self.way.may_stop,
            kernel_visible: self.way.perf.as_ref().is_none_or(|perf| perf.kernel_visible()),
            interval_asked: self.pace.asked(),
        };
        *self.status.lock().unwrap_or_else(|e| e.into_inner()) = status;
    }
}

struct Woken {
    control: bool,
    ended: bool,
    ring: bool,
}

fn time_of(event: &Event) -> Ns {
    match event {
        Event::Look(look) => look.at,
        Event::Tick(tick) => tick.at,
        Event::ThreadEnded { at, .. } | Event::Exec { at, .. } => *at,
        Event::ProcessEnded { at, .. } | Event::Gap { at, .. } => *at,
    }
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
