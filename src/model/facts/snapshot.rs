//! An immutable view of everything known at one moment; published at most 10 times a second as
//! `Arc<Snapshot>`.

use std::sync::Arc;

use crate::model::facts::history::History;
use crate::model::facts::tables::{NameId, Tables};
use crate::model::vocabulary::frame::{Losses, Ns, ThreadKey};
use crate::model::vocabulary::state::State;

/// What does not change during a session.
#[derive(Clone, PartialEq, Debug)]
pub struct Session {
    /// sampletop's version; empty where another tool took the samples: then nothing is known of how
    /// that went.
    pub version: String,
    pub host: String,
    /// `uname -r`.
    pub kernel: String,
    /// Cores the target may use (affinity and cgroup quota), thousandths.
    pub cores_milli: u64,
    /// CLOCK_MONOTONIC when sampling began; buckets start at this + n s.
    pub started: Ns,
    /// CLOCK_REALTIME at `started`, ns since 1970; every date that is shown derives from it.
    pub started_unix_ns: i128,
    /// The interval asked for, ns; the user may have changed it since the start.
    pub interval_ns: u64,
    /// The governor's bound, percent of one core, where one is in force.
    pub max_overhead_percent: Option<f64>,
    pub wanted: Wanted,
}

impl Session {
    /// Another tool took the samples.
    pub fn is_foreign(&self) -> bool {
        self.version.is_empty()
    }
}

/// What was asked for, where it is more than one process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// The name or control group that was asked for; empty where processes were named by their
    /// numbers.
    pub title: Arc<str>,
    /// Processes that come later are watched, too: the session does not end with the last one.
    pub waits: bool,
}

/// One process that is or was watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub pid: u32,
    /// Start time, clock ticks since boot.
    pub start: u64,
    /// The command line, cleaned.
    pub command: Arc<str>,
    /// `native`, `jvm`, `python`, ...
    pub runtime: &'static str,
    /// User id it runs as.
    pub uid: u32,
    /// systemd unit or cgroup path, where there is one.
    pub unit: Option<Arc<str>>,
    /// Wall-clock start, ns since 1970.
    pub started_unix_ns: i128,
    /// When it ended, if it has.
    pub ended: Option<Ns>,
}

/// How well the measurement itself is going. Losses are data.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Health {
    pub ticks: u64,
    pub losses: Losses,
    /// Mean interval achieved over the last 5 s, ns.
    pub interval_achieved_ns: u64,
    /// 99th percentile of lateness, ns.
    pub late_p99_ns: u64,
    /// CPU of sampler + reducer over the last 5 s, percent of one core; symbol loading and drawing
    /// apart.
    pub self_cpu_percent: f64,
    /// CPU of all of sampletop, symbol loading and drawing included, over the last 5 s, percent of
    /// one core.
    pub total_cpu_percent: f64,
    /// True while symbols are still being loaded.
    pub naming: bool,
    /// Facts folded into `(other)`, and buckets dropped, to stay within --max-memory.
    pub folded_facts: u64,
    pub dropped_buckets: u64,
    /// From attaching to the first observation, ns; 0 where that is not known.
    pub startup_ns: u64,
}

/// What a thread is doing now (for the header), as of [`Snapshot::at`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadNow {
    pub thread: ThreadKey,
    pub name: NameId,
    pub stack: crate::model::facts::tables::StackId,
    pub state: crate::model::vocabulary::state::RawState,
    /// Since when it has been in this wait, or the time of the sample.
    pub since: Ns,
    pub syscall: Option<crate::model::vocabulary::frame::Syscall>,
    /// CPU time since the thread's birth, ns, as of its last counters; 0 before the first.
    pub run_ns: u64,
    /// rbp of `stack` was recovered by searching for linked frame records.
    pub recovered: bool,
}

/// See the module's head. Cloning costs pointers, not data.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub session: Arc<Session>,
    pub targets: Arc<[Target]>,
    /// Time up to which facts are booked: the newest tick.
    pub at: Ns,
    /// The backend in force, as the header names it: `perf`, `ptrace (stops threads)`.
    pub capture: Arc<str>,
    pub health: Health,
    pub tables: Tables,
    pub history: History,
    pub threads: Arc<[ThreadNow]>,
    /// The last thing that went wrong or changed, one sentence (a backend failed and was
    /// replaced, ...).
    pub notice: Option<Arc<str>>,
    /// Sampling is stopped by the user (key X).
    pub stopped: bool,
}

impl Snapshot {
    /// How exactly waits are timed, ns: the interval asked for, or what came of it.
    pub fn resolution(&self) -> Ns {
        self.session.interval_ns.max(self.health.interval_achieved_ns)
    }

    /// Targets that have not ended.
    pub fn living(&self) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(|target| target.ended.is_none())
    }

    /// Every target has ended, and no other will come.
    pub fn is_over(&self) -> bool {
        !self.session.wanted.waits && !self.targets.is_empty() && self.living().next().is_none()
    }

    /// There is nothing to observe until another process comes.
    pub fn is_waiting(&self) -> bool {
        self.session.wanted.waits && self.living().next().is_none()
    }

    /// Threads by state now, indexed by [`State`].
    pub fn threads_by_state(&self) -> [u32; State::COUNT] {
        let mut counts = [0; State::COUNT];
        for thread in self.threads.iter() {
            let state = thread.state.resolve(self.tables.futex_kind(thread.stack));
            counts[state as usize] += 1;
        }
        counts
    }
}
