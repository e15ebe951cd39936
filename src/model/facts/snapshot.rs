//! An immutable view of all data at one moment; published at most 10 times a second as
//! `Arc<Snapshot>`.

use std::sync::Arc;

use crate::model::facts::history::History;
use crate::model::facts::observed_waits::ObservedWait;
use crate::model::facts::tables::{NameId, Tables};
use crate::model::vocabulary::event::Losses;
use crate::model::vocabulary::frame::{Ns, ThreadKey};
use crate::model::vocabulary::host_load::HostLoad;
use crate::model::vocabulary::state::State;
use crate::model::vocabulary::waits_for::WaitsFor;
use crate::model::vocabulary::wakeup::Wakeups;

/// The properties of a session that do not change.
#[derive(Clone, PartialEq, Debug)]
pub struct Session {
    /// sampletop's version. Empty if another tool took the samples; then nothing is known of their
    /// quality.
    pub version: String,
    pub host: String,
    /// `uname -r`.
    pub kernel: String,
    /// Cores the target may use (affinity and cgroup quota), thousandths.
    pub cores_milli: u64,
    /// CLOCK_MONOTONIC when sampling began; buckets start at this + n s.
    pub started: Ns,
    /// CLOCK_REALTIME at `started`, ns since 1970; the base of all dates shown.
    pub started_unix_ns: i128,
    /// The requested interval, ns; the user may have changed it since the start.
    pub interval_ns: u64,
    /// The governor's limit, percent of one core, if one is in force.
    pub max_overhead_percent: Option<f64>,
    pub wanted: Wanted,
}

impl Session {
    /// Converts a moment on CLOCK_MONOTONIC to ns since 1970, by the session's one pair of clock
    /// readings.
    pub fn unix_ns(&self, at: Ns) -> i128 {
        self.started_unix_ns + i128::from(at) - i128::from(self.started)
    }

    /// Returns whether another tool took the samples.
    pub fn is_foreign(&self) -> bool {
        self.version.is_empty()
    }
}

#[cfg(test)]
impl Session {
    /// Returns a session that began at 0, on one core, with an interval of 10 ms.
    pub fn made_up() -> Session {
        Session {
            version: "0".into(),
            host: "here".into(),
            kernel: "6".into(),
            cores_milli: 1000,
            started: 0,
            started_unix_ns: 0,
            interval_ns: 10_000_000,
            max_overhead_percent: None,
            wanted: Default::default(),
        }
    }
}

/// The user's selection of targets, unless it is a single process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// The requested name or control group; empty if processes were given by pid.
    pub title: Arc<str>,
    /// Processes that appear later are watched too, so the session does not end with the last one.
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
    /// Time of its exit, if it has exited.
    pub ended: Option<Ns>,
}

/// The quality of the measurement itself.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Health {
    pub ticks: u64,
    pub losses: Losses,
    /// Mean interval of samples achieved over the last 5 s, ns.
    pub interval_achieved_ns: u64,
    /// Time after which each thread is observed again, as of the last 5 s, ns; 0 if unknown. It is
    /// the mean time from tick to tick unless visits are rationed.
    pub visit_interval_ns: u64,
    /// 99th percentile of lateness, ns.
    pub late_p99_ns: u64,
    /// CPU use of sampler and reducer over the last 5 s, percent of one core; without symbol
    /// loading and drawing.
    pub self_cpu_percent: f64,
    /// CPU use of all of sampletop over the last 5 s, percent of one core; with symbol loading and
    /// drawing.
    pub total_cpu_percent: f64,
    /// True while symbols are still being loaded.
    pub naming: bool,
    /// Facts folded into `(other)`, and buckets dropped, to stay within --max-memory.
    pub folded_facts: u64,
    pub dropped_buckets: u64,
    /// Time from attaching to the first observation, ns; 0 if unknown.
    pub startup_ns: u64,
    /// `None` where it is unknown, as in a file.
    pub host: Option<HostLoad>,
}

/// A thread's current state (for the header), as of [`Snapshot::at`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadNow {
    pub thread: ThreadKey,
    pub name: NameId,
    pub stack: crate::model::facts::tables::StackId,
    pub state: crate::model::vocabulary::state::RawState,
    /// The start of this wait, or the time of the sample.
    pub since: Ns,
    pub syscall: Option<crate::model::vocabulary::event::Syscall>,
    /// What it waits for, where that is known.
    pub blocker: crate::model::facts::tables::BlockerId,
    /// CPU time since the thread's start, ns, as of its last counters; 0 before the first reading.
    pub run_ns: u64,
    /// rbp of `stack` was recovered by searching for linked frame records.
    pub recovered: bool,
}

/// Threads that wait for each other for ever: each for what the next one holds, the last for the
/// first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// When it was found.
    pub since: Ns,
    pub threads: Arc<[ThreadKey]>,
}

/// See the module's documentation. Cloning copies only pointers.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub session: Arc<Session>,
    pub targets: Arc<[Target]>,
    /// Time up to which facts are booked: the newest tick.
    pub at: Ns,
    /// The backend in use, as the header shows it: `perf`, `ptrace (stops threads)`.
    pub capture: Arc<str>,
    pub health: Health,
    pub tables: Tables,
    pub history: History,
    pub threads: Arc<[ThreadNow]>,
    pub deadlocks: Arc<[Deadlock]>,
    /// What threads were found to wait for so far, if that was looked up.
    pub observed_waits: Arc<[ObservedWait]>,
    /// Who woke threads of the targets, if that was counted.
    pub wakeups: Option<Arc<Wakeups>>,
    /// The last failure or change, one sentence (such as: a backend failed and was replaced).
    pub notice: Option<Arc<str>>,
    /// The user has stopped sampling (key X).
    pub stopped: bool,
}

#[cfg(test)]
impl Snapshot {
    /// Returns a snapshot of [`Session::made_up`] without facts.
    pub fn made_up(at: Ns, threads: &[ThreadNow]) -> Snapshot {
        Snapshot {
            session: Session::made_up().into(),
            targets: [].into(),
            at,
            capture: "bpf".into(),
            health: Health::default(),
            tables: Tables::default(),
            history: History::default(),
            threads: threads.into(),
            deadlocks: Arc::default(),
            observed_waits: Arc::default(),
            wakeups: None,
            notice: None,
            stopped: false,
        }
    }
}

impl Snapshot {
    /// Returns the resolution of wait times, ns: the time from tick to tick, and at least the
    /// requested and the achieved interval.
    pub fn resolution(&self) -> Ns {
        let Health { interval_achieved_ns, visit_interval_ns, .. } = self.health;
        self.session.interval_ns.max(interval_achieved_ns).max(visit_interval_ns)
    }

    /// Iterates over the targets that have not exited.
    pub fn living(&self) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(|target| target.ended.is_none())
    }

    /// Returns whether every target has exited, and no other will appear.
    pub fn is_over(&self) -> bool {
        !self.session.wanted.waits && !self.targets.is_empty() && self.living().next().is_none()
    }

    /// Returns whether there is nothing to observe until another process appears.
    pub fn is_waiting(&self) -> bool {
        self.session.wanted.waits && self.living().next().is_none()
    }

    /// Returns whether a wait with this start was found by the first observations: then it began
    /// before.
    pub fn may_have_begun_before(&self, since: Ns) -> bool {
        !self.session.is_foreign() && since <= self.session.started + self.resolution()
    }

    /// Returns what a thread was found to wait for in its present wait.
    pub fn observed_wait(&self, now: &ThreadNow) -> Option<&WaitsFor> {
        let is_of = |wait: &&ObservedWait| {
            wait.thread == now.thread && Some(wait.call) == now.syscall && wait.at >= now.since
        };
        self.observed_waits.iter().find(is_of).map(|wait| &wait.waits_for)
    }

    /// Returns it without what is known of its own moment only, for ranges that end before it.
    pub fn without_now(&self) -> Snapshot {
        let health = Health { host: None, ..self.health };
        Snapshot { health, threads: Arc::default(), deadlocks: Arc::default(), ..self.clone() }
    }

    /// Counts the threads by current state, indexed by [`State`].
    pub fn threads_by_state(&self) -> [u32; State::COUNT] {
        let mut counts = [0; State::COUNT];
        for thread in self.threads.iter() {
            let state = self.tables.state(thread.state, thread.stack);
            counts[state as usize] += 1;
        }
        counts
    }
}
