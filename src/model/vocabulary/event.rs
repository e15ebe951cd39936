//! What capture observes of threads, and the events that carry it to the model.

use super::blocker::RawBlocker;
use super::frame::{Ns, RawFrame, RawName, ThreadKey};

/// The scheduler's figures for one thread, absolute since its birth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Time on a core, ns (schedstat field 1; utime+stime where the kernel has no
    /// CONFIG_SCHED_INFO).
    pub run_ns: u64,
    /// Time runnable but waiting for a core, ns (schedstat field 2; 0 where the kernel has none).
    pub delay_ns: u64,
    /// How often it was put on a core (schedstat field 3); 0 only before the first time.
    pub runs: u64,
}

/// The system call a blocked thread sits in, from `/proc/TID/syscall` or the task iterator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Syscall {
    /// x86-64 number; -1 when blocked outside a system call (page fault), [`Syscall::PARKED`] of a
    /// goroutine.
    pub number: i32,
    pub args: [u64; 6],
}

impl Syscall {
    /// The number of futex(2).
    pub const FUTEX: i32 = 202;
    /// Stands for the scheduler of Go, which a goroutine waits in; the first argument is its state
    /// (`RawState::parked`).
    pub const PARKED: i32 = -2;

    /// Returns the address of the futex, if the thread waits at one.
    pub fn futex(&self) -> Option<u64> {
        (self.number == Syscall::FUTEX).then_some(self.args[0])
    }

    /// Returns whether a time limit ends the wait at a futex.
    pub fn has_futex_limit(&self) -> bool {
        const TIMEOUT: usize = 3;
        self.number == Syscall::FUTEX && self.args[TIMEOUT] != 0
    }
}

/// What an observation found the thread doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// An independent sample of a thread on a core, with its stack.
    OnCpu,
    /// On a core or runnable, and no stack was taken: it books no time.
    Running,
    /// Runnable and off its core, with the stack in which it waits for one.
    Ready,
    /// Blocked (S): the stack is the one it will have until it runs again.
    Blocked(Syscall),
    /// Uninterruptible (D); the system call where known.
    Disk(Option<Syscall>),
    /// Stopped or traced (T, t).
    Stopped,
}

/// One observation of one thread. Counters are absolute: a lost observation costs spread, not
/// totals.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observation {
    pub at: Ns,
    pub thread: ThreadKey,
    /// The name at this moment.
    pub name: RawName,
    pub seen: Seen,
    /// Read at a tick; an asynchronous on-CPU sample has none.
    pub counters: Option<Counters>,
    /// Innermost frame first; empty for [`Seen::Running`]. A stack that is not proven whole ends in
    /// a marker.
    pub stack: Vec<RawFrame>,
    /// rbp was recovered by searching for linked frame records.
    pub recovered: bool,
    /// What a blocked thread waits for, where that could be read and proven.
    pub blocker: Option<RawBlocker>,
    /// When a blocked thread left its core, where the kernel reports it.
    pub wait_began: Option<Ns>,
}

impl Observation {
    /// Returns an observation without counters and stack.
    pub fn new(at: Ns, thread: ThreadKey, name: RawName, seen: Seen) -> Observation {
        Observation {
            at,
            thread,
            name,
            seen,
            counters: None,
            stack: Vec::new(),
            recovered: false,
            blocker: None,
            wait_began: None,
        }
    }
}

/// What the sampler reports to the reducer, in order of time per ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    Observation(Observation),
    /// The thread still is in the wait in which it was last observed. Another thread may hold what
    /// it waits for by now, or hold it elsewhere.
    StillBlocked {
        at: Ns,
        thread: ThreadKey,
        blocker: RawBlocker,
    },
    /// All deadlocks there are: of each, its threads in the order in which they wait for each
    /// other. Sent when they change.
    Deadlocks {
        at: Ns,
        cycles: Vec<Vec<ThreadKey>>,
    },
    /// Every thread of `pid` was observed, at or before `at`; those that sent no
    /// [`Event::Observation`] since the tick before were *blocked and unmoved*: same stack, same
    /// state. No later event is older.
    Tick(Tick),
    /// The thread ended at or shortly before `at`, with its last known counters.
    ThreadEnded {
        at: Ns,
        thread: ThreadKey,
        counters: Option<Counters>,
    },
    /// The process replaced its program: threads go on under the same ids, mapped files are new.
    Exec {
        at: Ns,
        pid: u32,
    },
    /// The process ended; nothing more of `pid` follows.
    ProcessEnded {
        at: Ns,
        pid: u32,
    },
    /// There was no observation from `from` till `at` (sampling stopped by the user, or sampletop
    /// was suspended or starved).
    Gap {
        from: Ns,
        at: Ns,
    },
}

impl Event {
    /// Returns what the event says that a thread waits for.
    pub fn blocker(&self) -> Option<RawBlocker> {
        match self {
            Event::Observation(observation) => observation.blocker,
            Event::StillBlocked { blocker, .. } => Some(*blocker),
            _ => None,
        }
    }
}

/// The end of one scan of one process. With several processes, all ticks of one interval have the
/// same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tick {
    pub at: Ns,
    pub pid: u32,
    /// How much later than planned this tick began, ns.
    pub late_ns: u64,
    /// CPU time of the whole process, dead threads included, ns (clock_getcpuclockid); sent about
    /// once a second.
    pub process_cpu_ns: Option<u64>,
    /// Interval of samples now in force, ns (the governor may have stretched it).
    pub interval_ns: u64,
    /// Planned time since the tick before, ns: as long as that interval or longer.
    pub tick_interval_ns: u64,
    /// Visits are rationed: a thread that ran is observed within this time, ns. Else it is
    /// observed in each tick, or soon after (see [`crate::capture::thread_scan::parked_rotation`]).
    pub visit_interval_ns: Option<u64>,
    /// Losses and costs since the session began.
    pub losses: Losses,
}

impl Tick {
    /// Returns a tick in time, at an interval of 10 ms, without losses.
    pub fn new(at: Ns, pid: u32) -> Tick {
        Tick {
            at,
            pid,
            late_ns: 0,
            process_cpu_ns: None,
            interval_ns: 10_000_000,
            tick_interval_ns: 10_000_000,
            visit_interval_ns: None,
            losses: Losses::default(),
        }
    }
}

/// Counted since the session began; never reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Stacks taken (walked afresh); a stack known to be unchanged is not counted.
    pub samples: u64,
    /// Records that found the ring, or a kernel ring, full.
    pub dropped: u64,
    pub truncated: u64,
    pub torn: u64,
    /// Walks that ended early for another reason than the depth of the stack.
    pub unwind_failed: u64,
    /// Of these: no unwind information, and no two linked frame records.
    pub no_unwind_info: u64,
    /// Contradictory data.
    pub bad_unwind: u64,
    /// Code outside every executable mapping.
    pub outside_maps: u64,
    /// Stacks whose rbp was recovered by search.
    pub recovered: u64,
    /// Times the kernel throttled the sampling event.
    pub throttled: u64,
    /// Ticks that began more than one interval late.
    pub late: u64,
    /// Times a thread was stopped (backend `ptrace` only).
    pub stops: u64,
    /// Of these, threads found inside a system call after all.
    pub stops_blocked: u64,
    /// 99th percentile of stop durations, ns.
    pub stop_p99_ns: u64,
    /// CPU time the sampler thread has used, ns.
    pub sampler_cpu_ns: u64,
}

impl Losses {
    /// Adds the losses of another run. Of values that are no counts, keeps the larger.
    pub fn add(&mut self, more: &Losses) {
        let stop_p99_ns = self.stop_p99_ns.max(more.stop_p99_ns);
        for (mine, theirs) in [
            (&mut self.samples, more.samples),
            (&mut self.dropped, more.dropped),
            (&mut self.truncated, more.truncated),
            (&mut self.torn, more.torn),
            (&mut self.unwind_failed, more.unwind_failed),
            (&mut self.no_unwind_info, more.no_unwind_info),
            (&mut self.bad_unwind, more.bad_unwind),
            (&mut self.outside_maps, more.outside_maps),
            (&mut self.recovered, more.recovered),
            (&mut self.throttled, more.throttled),
            (&mut self.late, more.late),
            (&mut self.stops, more.stops),
            (&mut self.stops_blocked, more.stops_blocked),
            (&mut self.sampler_cpu_ns, more.sampler_cpu_ns),
        ] {
            *mine = mine.saturating_add(theirs);
        }
        self.stop_p99_ns = stop_p99_ns;
    }

    /// What was lost since `before`, which is of the same run. What is no count stays as it is.
    pub fn since(&self, before: &Losses) -> Losses {
        Losses {
            samples: self.samples.saturating_sub(before.samples),
            dropped: self.dropped.saturating_sub(before.dropped),
            truncated: self.truncated.saturating_sub(before.truncated),
            torn: self.torn.saturating_sub(before.torn),
            unwind_failed: self.unwind_failed.saturating_sub(before.unwind_failed),
            no_unwind_info: self.no_unwind_info.saturating_sub(before.no_unwind_info),
            bad_unwind: self.bad_unwind.saturating_sub(before.bad_unwind),
            outside_maps: self.outside_maps.saturating_sub(before.outside_maps),
            recovered: self.recovered.saturating_sub(before.recovered),
            throttled: self.throttled.saturating_sub(before.throttled),
            late: self.late.saturating_sub(before.late),
            stops: self.stops.saturating_sub(before.stops),
            stops_blocked: self.stops_blocked.saturating_sub(before.stops_blocked),
            stop_p99_ns: self.stop_p99_ns,
            sampler_cpu_ns: self.sampler_cpu_ns,
        }
    }
}
