//! The thread scan of a tick, and the state that it keeps for each thread.
//!
//! A thread that was last seen blocked has the same stack while its run time and run count stay the
//! same. The scan reports nothing for it. It reports an observation for every other thread.
//! Unchanged counters of a thread last seen running prove nothing, because they lag by a kernel
//! tick.
//!
//! A scan has one of two sources. `proc_files` reads the files of /proc, thread by thread.
//! `bpf_rows` takes the rows of the kernel's task iterator, which returns only threads that ran.
//! Both use the rules in `observation_rules`.
//!
//! ```text
//! observation_rules     when counters prove a wait, and what is reported of all other threads
//! clock_proof           when the process clock proves that no waiting thread has run
//! parked_rotation       threads that have waited for a while, observed in rotation
//! proc_files, bpf_rows  the two sources of a scan
//! list                  new and exited threads
//! stacks                walks of blocked threads
//! waiting               proof that a thread still is in the wait in which it was observed
//! ```

mod bpf_rows;
mod clock_proof;
mod list;
mod observation_rules;
pub mod parked_rotation;
mod proc_files;
mod stacks;
#[cfg(test)]
mod tests;
mod waiting;

use std::io;

use rustc_hash::FxHashMap;

use crate::capture::bpf::Repeats;
use crate::capture::thread_scan::clock_proof::ClockProof;
pub use crate::capture::thread_scan::observation_rules::count_walk;
use crate::capture::thread_scan::observation_rules::{ThreadState, not_readable, seen_of_state};
use crate::capture::thread_scan::parked_rotation::ParkedRotation;
use crate::capture::thread_scan::proc_files::ScanPosition;
pub use crate::capture::thread_scan::stacks::Stacks;
use crate::clock::monotonic;
use crate::model::vocabulary::event::{Counters, Event, Losses, Observation, Seen, Syscall};
use crate::model::vocabulary::frame::{FrameCode, Marker, Ns, RawFrame, RawName, ThreadKey};
use crate::process::threads::{CounterSource, Descriptors, ReadError, Reads, Tasks, ThreadFiles};
use crate::unwinder::Walk;

/// Maximum threads observed per process; further ones are ignored. kernel.pid_max allows four
/// million.
const MAX_THREADS: usize = 100_000;

/// Inputs and outputs of one thread scan.
pub struct ScanContext<'a> {
    /// `None` if stacks are not readable, or not asked for.
    pub stacks: Option<Stacks<'a>>,
    pub events: &'a mut Vec<Event>,
    /// Threads whose counters changed.
    pub moved: &'a mut Vec<Moved>,
    pub losses: &'a mut Losses,
    /// The backend stops threads, so a tracing stop may be its own.
    pub stops_threads: bool,
    /// Maximum visits of parked threads in this scan.
    pub turns: usize,
    /// Maximum first observations by the files of /proc; further threads wait for the next scan.
    pub max_first_observations: usize,
    /// Time at which the scan pauses; the caller then calls [`ThreadScan::scan_files`] again.
    pub pause_at: Ns,
    /// Set if the kernel denied a stack read.
    pub denied: bool,
}

/// A thread that has run since the previous scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    pub tid: u32,
    /// Run time since the last observation, ns; 0 at the first one.
    pub ran: u64,
    /// Time spent runnable without a core since then, ns.
    pub delayed: u64,
    /// The thread is runnable at this observation, on a core or not.
    pub runnable: bool,
    /// The thread existed at the first scan.
    pub at_start: bool,
}

/// The state at the last observation.
enum LastSeen {
    /// No observation that the reducer has received.
    Nothing,
    Running,
    /// Off the core and waiting. Only this state lets a scan skip the thread.
    Blocked,
    /// Uninterruptible or stopped. Reported at every scan; its stack is read again only after it
    /// ran.
    Suspended {
        seen: Seen,
        name: RawName,
        stack: Vec<RawFrame>,
        recovered: bool,
    },
    /// A zombie: a leader whose other threads still run. Never observed again.
    Ended,
}

struct KnownThread {
    key: ThreadKey,
    /// Thread id in the initial pid namespace, or 0 until the iterator has returned it.
    id: u32,
    name: RawName,
    files: ThreadFiles,
    counters: Option<Counters>,
    last: LastSeen,
    /// Time of the last read of its state; no observation was sent since then.
    seen_at: Ns,
    /// Consecutive walks of the same stack that did not reach its end.
    incomplete_walks: u8,
    at_start: bool,
}

/// Thread scan of one process.
pub struct ThreadScan {
    pid: u32,
    tasks: Tasks,
    known: Vec<KnownThread>,
    /// For each of `known`: parked, so visited in rotation only. The thread is
    /// [`LastSeen::Blocked`] then. A separate vector, because most scans skip most threads.
    is_parked: Vec<bool>,
    index: FxHashMap<u32, usize>,
    /// Link count of the thread directory at the last listing.
    links: u64,
    list_again: bool,
    tids: Vec<u32>,
    parked: ParkedRotation,
    /// The next scan observes every thread.
    all: bool,
    /// The last scan visited every thread.
    complete: bool,
    /// Visits are rationed: a blocked thread is parked at once.
    rationed: bool,
    /// Last visit of all threads by the iterator.
    visited_all: Ns,
    /// The pass that was requested last may tell the number of threads.
    is_counted: bool,
    /// That number had changed at the last scan.
    churns: bool,
    /// Listed threads without a first observation; the last entry is taken next.
    newcomers: Vec<u32>,
    /// `newcomers` may still hold threads that existed at attach time.
    attaching: bool,
    /// Position of the scan, if it paused.
    paused_at: Option<ScanPosition>,
    turns: Vec<u32>,
    /// Detects whether a parked thread has run.
    clock_proof: ClockProof,
    /// The process clock and the counters of its threads have the same unit and can be compared.
    has_clock: bool,
    /// Sum of the run times in `known`, ns.
    ran: u128,
    /// Visits of parked threads that the iterator could have made and did not.
    visits_saved: usize,
    /// Visits of parked threads in this scan.
    visited_parked: usize,
    /// Threads that the iterator considers reported, but whose observation is missing or stale
    /// here.
    again: Repeats,
}

impl ThreadScan {
    /// `descriptors`: maximum open files of threads.
    pub fn new(pid: u32, descriptors: usize) -> io::Result<ThreadScan> {
        ThreadScan::sharing(pid, Descriptors::new(descriptors))
    }

    /// As [`ThreadScan::new`], with a descriptor budget shared between processes.
    pub fn sharing(pid: u32, descriptors: Descriptors) -> io::Result<ThreadScan> {
        Ok(ThreadScan::of(pid, Tasks::open_sharing(pid, descriptors)?))
    }

    fn of(pid: u32, tasks: Tasks) -> ThreadScan {
        ThreadScan {
            pid,
            has_clock: tasks.source() == CounterSource::Schedstat,
            tasks,
            known: Vec::new(),
            is_parked: Vec::new(),
            index: FxHashMap::default(),
            links: 0,
            list_again: true,
            tids: Vec::new(),
            parked: ParkedRotation::default(),
            all: false,
            complete: false,
            rationed: false,
            visited_all: 0,
            is_counted: false,
            churns: false,
            newcomers: Vec::new(),
            attaching: true,
            paused_at: None,
            turns: Vec::new(),
            clock_proof: ClockProof::default(),
            ran: 0,
            visits_saved: 0,
            visited_parked: 0,
            again: Repeats { all: true, tids: Vec::new() },
        }
    }

    /// Disables the comparison with the process clock, as on kernels that count in clock ticks
    /// only.
    pub fn without_clock(mut self) -> ThreadScan {
        self.has_clock = false;
        self
    }

    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    pub fn reads(&self) -> Reads {
        self.tasks.reads()
    }

    /// Returns the number of threads that have not exited.
    pub fn len(&self) -> usize {
        self.known.iter().filter(|known| !matches!(known.last, LastSeen::Ended)).count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the ids of all known threads.
    pub fn tids(&self) -> impl Iterator<Item = u32> {
        self.known.iter().map(|known| known.key.tid)
    }

    /// Makes the next scan observe every thread, parked or not.
    pub fn force_full_scan(&mut self) {
        self.all = true;
    }

    /// Returns how many threads that existed at attach time still lack their first observation.
    pub fn not_read_yet(&self) -> usize {
        if self.attaching { self.newcomers.len() } else { 0 }
    }

    /// Returns identity and name of `tid` for a sample taken at `at` between two scans. `None`: the
    /// thread exited before it could be read. The sample proves that the thread has run, whatever
    /// its counters say.
    pub fn identify_sampled(&mut self, tid: u32, at: Ns) -> Option<(ThreadKey, RawName)> {
        if !self.index.contains_key(&tid) {
            // As many threads may have exited as were created: the link count would not show it.
            self.list_again = true;
            self.add(tid)?;
        }
        let index = *self.index.get(&tid)?;
        let known = &self.known[index];
        if matches!(known.last, LastSeen::Ended) {
            return None;
        }
        let identity = (known.key, known.name);
        if matches!(known.last, LastSeen::Blocked) && at > known.seen_at {
            self.discard_state(index);
        }
        Some(identity)
    }

    /// Marks an observation of this thread as not delivered, so that the next scan sends it again.
    pub fn mark_undelivered(&mut self, tid: u32) {
        if let Some(index) = self.index.get(&tid).copied()
            && !matches!(self.known[index].last, LastSeen::Ended)
        {
            self.discard_state(index);
        }
    }

    /// Makes the next scan read every thread afresh: after an exec or a change of backend, or when
    /// more can be read.
    pub fn restart(&mut self) {
        self.list_again = true;
        self.paused_at = None;
        self.again = Repeats { all: true, tids: Vec::new() };
        self.clock_proof = ClockProof::default();
        self.parked.clear();
        self.is_parked.fill(false);
        for known in &mut self.known {
            if matches!(known.last, LastSeen::Ended) {
                continue;
            }
            known.last = LastSeen::Nothing;
            let fresh = self.tasks.thread(known.key.tid);
            self.tasks.forget(std::mem::replace(&mut known.files, fresh));
        }
    }

    /// Discards the known state of a thread.
    fn discard_state(&mut self, index: usize) {
        self.known[index].last = LastSeen::Nothing;
        self.again.tids.push(self.known[index].key.tid);
        self.unpark(index);
    }

    /// Sets whether visits are rationed. Where they no longer are, the caller makes the next scan
    /// complete.
    pub fn ration(&mut self, rationed: bool) {
        self.rationed = rationed;
        self.clock_proof = ClockProof::default();
        for index in 0..self.known.len() {
            if rationed && matches!(self.known[index].last, LastSeen::Blocked) {
                self.park(index);
            }
        }
    }

    /// Returns whether the last scan visited every thread.
    pub fn was_complete(&self) -> bool {
        self.complete
    }

    /// Returns whether the process clock proves that no parked thread has run. Between rationed
    /// visits it would be too old for that.
    fn proof_holds(&self) -> bool {
        !self.rationed && self.clock_proof.holds()
    }

    /// Returns how many visits of parked threads in each tick visit every one within `visit`, ns.
    /// `tick`: the tick interval, ns.
    pub fn rationed_turns(&self, tick: Ns, visit: Ns) -> usize {
        let turns =
            (self.parked.len() as u128 * u128::from(tick)).div_ceil(u128::from(visit.max(1)));
        turns as usize
    }

    /// Returns how long a thread must have been blocked to be parked, ns.
    fn parked_after(&self, tid: u32) -> Ns {
        if self.rationed { 0 } else { self.parked.after(tid) }
    }

    fn park(&mut self, index: usize) {
        if !std::mem::replace(&mut self.is_parked[index], true) {
            self.parked.add(self.known[index].key.tid);
            self.clock_proof.add_waiting();
        }
    }

    fn unpark(&mut self, index: usize) {
        if std::mem::replace(&mut self.is_parked[index], false) {
            let known = &self.known[index];
            self.parked.woke(known.key.tid, monotonic().saturating_sub(known.seen_at));
        }
    }

    /// Replaces the counters of a thread. Returns the previous ones.
    fn replace_counters(&mut self, index: usize, counters: Option<Counters>) -> Option<Counters> {
        let ran = |counters: &Option<Counters>| {
            counters.map_or(0, |counters| u128::from(counters.run_ns))
        };
        let before = std::mem::replace(&mut self.known[index].counters, counters);
        self.ran = self.ran + ran(&counters) - ran(&before);
        before
    }

    /// Returns whether to read the process clock, which may show that no parked thread has run. If
    /// so, the caller reads [`Tasks::clock`] after every thread of the tick has been observed. To
    /// be called once per scan.
    pub fn needs_process_clock(&mut self) -> bool {
        self.has_clock
            && !self.rationed
            && !self.parked.is_empty()
            && self.clock_proof.needs_clock()
    }

    /// Takes the process clock. `visited_parked`: parked threads visited in this scan; `turns`: its
    /// maximum.
    fn take_process_clock(&mut self, clock: Option<Ns>, visited_parked: usize, turns: usize) {
        self.clock_proof.update(clock, self.ran, self.parked.len(), visited_parked, turns);
    }
}

impl Drop for ThreadScan {
    fn drop(&mut self) {
        for known in self.known.drain(..) {
            self.tasks.forget(known.files);
        }
    }
}
