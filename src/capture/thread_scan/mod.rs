//! The state kept for each thread, and the rules by which the scan of a tick reports it.
//!
//! A thread that was last seen blocked has the same stack while its run time and run count stay the
//! same. The scan reports nothing for it. It reports an observation for every other thread.
//! Unchanged counters of a thread last seen running prove nothing, because they lag by a kernel
//! tick.
//!
//! A scan has one of two sources. `files` reads the files of /proc, thread by thread. `rows` takes
//! the rows of the kernel's task iterator, which returns only threads that ran. Both use the rules
//! in this file.

mod files;
mod list;
mod rows;
mod stacks;

use std::io;

use rustc_hash::FxHashMap;

use crate::capture::bpf::Again;
use crate::capture::parked::Parked;
use crate::capture::standstill::Standstill;
use crate::capture::thread_scan::files::UnderWay;
pub use crate::capture::thread_scan::stacks::Stacks;
use crate::clock::monotonic;
use crate::model::vocabulary::frame::{
    Counters, Event, FrameCode, Losses, Marker, Ns, Observation, RawFrame, RawName, Seen, Syscall,
    ThreadKey,
};
use crate::process::threads::{CounterSource, Descriptors, ReadError, Reads, Tasks, ThreadFiles};
use crate::unwinder::Walk;

/// Maximum threads observed per process; further ones are ignored. kernel.pid_max allows four
/// million.
const MOST_THREADS: usize = 100_000;

/// Inputs and outputs of one thread scan.
pub struct Round<'a> {
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
    pub first_most: usize,
    /// Time at which the scan pauses; the caller then calls [`ThreadScan::round`] again.
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

/// Maximum retries of a walk that did not reach the end of the stack; then the result is kept.
const DOUBTED_MOST: u8 = 5;

/// The state at the last observation.
enum Last {
    /// No observation that the reducer has received.
    Nothing,
    Running,
    /// Off the core and waiting. Only this state lets a scan skip the thread.
    Blocked,
    /// Uninterruptible or stopped. Reported at every scan; its stack is read again only after it
    /// ran.
    Held {
        seen: Seen,
        name: RawName,
        stack: Vec<RawFrame>,
        recovered: bool,
    },
    /// A zombie: a leader whose other threads still run. Never observed again.
    Ended,
}

struct Known {
    key: ThreadKey,
    /// Thread id in the initial pid namespace, or 0 until the iterator has returned it.
    id: u32,
    name: RawName,
    files: ThreadFiles,
    counters: Option<Counters>,
    last: Last,
    /// Time of the last read of its state; no observation was sent since then.
    seen_at: Ns,
    /// Consecutive walks of the same stack that did not reach its end.
    doubted: u8,
    at_start: bool,
}

/// Thread scan of one process.
pub struct ThreadScan {
    pid: u32,
    tasks: Tasks,
    known: Vec<Known>,
    /// For each of `known`: parked, so visited in rotation only. The thread is [`Last::Blocked`]
    /// then. A separate vector, because most scans skip most threads.
    is_parked: Vec<bool>,
    index: FxHashMap<u32, usize>,
    /// Link count of the thread directory at the last listing.
    links: u64,
    list_again: bool,
    tids: Vec<u32>,
    parked: Parked,
    /// The next scan observes every thread.
    all: bool,
    /// Listed threads without a first observation; the last entry is taken next.
    newcomers: Vec<u32>,
    /// `newcomers` may still hold threads that existed at attach time.
    attaching: bool,
    /// Position of the scan, if it paused.
    under_way: Option<UnderWay>,
    turns: Vec<u32>,
    /// Detects whether a parked thread has run.
    standstill: Standstill,
    /// The process clock and the counters of its threads have the same unit and can be compared.
    has_clock: bool,
    /// Sum of the run times in `known`, ns.
    ran: u128,
    /// Visits of parked threads that the iterator could have made and did not.
    visits_saved: usize,
    /// Visits of parked threads in this scan.
    turned: usize,
    /// Threads that the iterator considers reported, but whose observation is missing or stale
    /// here.
    again: Again,
}

impl ThreadScan {
    /// `descriptors`: maximum open files of threads.
    pub fn new(pid: u32, descriptors: usize) -> io::Result<ThreadScan> {
        ThreadScan::sharing(pid, Descriptors::new(descriptors))
    }

    /// As [`ThreadScan::new`], with a descriptor budget shared between processes.
    pub fn sharing(pid: u32, descriptors: Descriptors) -> io::Result<ThreadScan> {
        let tasks = Tasks::open_sharing(pid, descriptors)?;
        Ok(ThreadScan {
            pid,
            has_clock: tasks.source() == CounterSource::Schedstat,
            tasks,
            known: Vec::new(),
            is_parked: Vec::new(),
            index: FxHashMap::default(),
            links: 0,
            list_again: true,
            tids: Vec::new(),
            parked: Parked::default(),
            all: false,
            newcomers: Vec::new(),
            attaching: true,
            under_way: None,
            turns: Vec::new(),
            standstill: Standstill::default(),
            ran: 0,
            visits_saved: 0,
            turned: 0,
            again: Again { all: true, tids: Vec::new() },
        })
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
        self.known.iter().filter(|known| !matches!(known.last, Last::Ended)).count()
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
    pub fn sampled(&mut self, tid: u32, at: Ns) -> Option<(ThreadKey, RawName)> {
        if !self.index.contains_key(&tid) {
            // As many threads may have exited as were created: the link count would not show it.
            self.list_again = true;
            self.add(tid)?;
        }
        let index = *self.index.get(&tid)?;
        let known = &self.known[index];
        if matches!(known.last, Last::Ended) {
            return None;
        }
        let told = (known.key, known.name);
        if matches!(known.last, Last::Blocked) && at > known.seen_at {
            self.not_seen(index);
        }
        Some(told)
    }

    /// Marks an observation of this thread as not delivered, so that the next scan sends it again.
    pub fn unsent(&mut self, tid: u32) {
        if let Some(index) = self.index.get(&tid).copied()
            && !matches!(self.known[index].last, Last::Ended)
        {
            self.not_seen(index);
        }
    }

    /// Makes the next scan read every thread afresh, after an exec or a change of backend.
    pub fn restart(&mut self) {
        self.list_again = true;
        self.under_way = None;
        self.again = Again { all: true, tids: Vec::new() };
        self.standstill = Standstill::default();
        self.parked.clear();
        self.is_parked.fill(false);
        for known in &mut self.known {
            if matches!(known.last, Last::Ended) {
                continue;
            }
            known.last = Last::Nothing;
            let fresh = self.tasks.thread(known.key.tid);
            self.tasks.forget(std::mem::replace(&mut known.files, fresh));
        }
    }

    /// Applies the first rule. A thread that was blocked and has not run is skipped. An
    /// uninterruptible or stopped one is reported with its last stack. `from`: start of the scan.
    /// Returns false if the state of the thread has to be read.
    fn unmoved(
        &mut self,
        index: usize,
        counters: Counters,
        from: Ns,
        at: impl FnOnce() -> Ns,
        round: &mut Round<'_>,
    ) -> bool {
        let known = &self.known[index];
        let unmoved =
            known.counters.is_some_and(|c| c.run_ns == counters.run_ns && c.runs == counters.runs);
        match &known.last {
            Last::Blocked if unmoved => {
                if from >= known.seen_at + self.parked.after(known.key.tid) {
                    self.park(index);
                }
                true
            }
            Last::Held { seen, name, stack, recovered } if unmoved => {
                let (seen, name, stack, recovered) = (*seen, *name, stack.clone(), *recovered);
                round.events.push(Event::Observation(Observation {
                    at: at(),
                    thread: known.key,
                    name,
                    seen,
                    counters: Some(counters),
                    stack,
                    recovered,
                }));
                true
            }
            _ => {
                self.unpark(index);
                false
            }
        }
    }

    /// Applies the other rules to what was read of a thread. `read` takes its stack if it is off
    /// the core.
    fn found(
        &mut self,
        index: usize,
        found: &Found,
        counters: Counters,
        round: &mut Round<'_>,
        read: ReadStack<'_>,
    ) {
        if matches!(found.state, b'Z' | b'X' | b'x') {
            self.count(index, Some(counters));
            self.end(index, round);
            return;
        }
        self.check_identity(index, found, &counters, round);
        self.observe(index, found, counters, round, read);
    }

    /// Discards the known state of a thread.
    fn not_seen(&mut self, index: usize) {
        self.known[index].last = Last::Nothing;
        self.again.tids.push(self.known[index].key.tid);
        self.unpark(index);
    }

    fn park(&mut self, index: usize) {
        if !std::mem::replace(&mut self.is_parked[index], true) {
            self.parked.add(self.known[index].key.tid);
            self.standstill.joined();
        }
    }

    fn unpark(&mut self, index: usize) {
        if std::mem::replace(&mut self.is_parked[index], false) {
            let known = &self.known[index];
            self.parked.woke(known.key.tid, monotonic().saturating_sub(known.seen_at));
        }
    }

    /// Replaces the counters of a thread. Returns the previous ones.
    fn count(&mut self, index: usize, counters: Option<Counters>) -> Option<Counters> {
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
    pub fn asks_the_clock(&mut self) -> bool {
        self.has_clock && !self.parked.is_empty() && self.standstill.asks()
    }

    /// Takes the process clock. `turned`: parked threads visited in this scan; `turns`: its
    /// maximum.
    fn answered(&mut self, clock: Option<Ns>, turned: usize, turns: usize) {
        self.standstill.answered(clock, self.ran, self.parked.len(), turned, turns);
    }

    /// Detects another thread under the same id, by counters that went backwards or by another
    /// start time. It occurs after an exec by a thread that is not the leader. It also occurs when
    /// an id is reused and no descriptor could be kept open.
    fn check_identity(
        &mut self,
        index: usize,
        found: &Found,
        counters: &Counters,
        round: &mut Round<'_>,
    ) {
        let known = &mut self.known[index];
        let backwards =
            known.counters.is_some_and(|c| counters.run_ns < c.run_ns || counters.runs < c.runs);
        if found.start != known.key.start || backwards {
            let thread = known.key;
            let event =
                Event::ThreadEnded { at: monotonic(), thread, counters: self.count(index, None) };
            round.events.push(event);
            let known = &mut self.known[index];
            known.key.start = found.start;
            known.last = Last::Nothing;
            known.at_start = false;
            // Descriptors refer to the thread that they were opened for.
            let fresh = self.tasks.thread(known.key.tid);
            self.tasks.forget(std::mem::replace(&mut known.files, fresh));
        }
    }

    /// Reports a thread that has run, or that was not last seen blocked.
    fn observe(
        &mut self,
        index: usize,
        found: &Found,
        counters: Counters,
        round: &mut Round<'_>,
        read: ReadStack<'_>,
    ) {
        let before = self.count(index, Some(counters));
        let known = &mut self.known[index];
        let unmoved = before == known.counters;
        known.name = found.name;
        known.seen_at = found.at;
        let ran = before.map_or(0, |before| counters.run_ns - before.run_ns);
        let delayed = before.map_or(0, |before| counters.delay_ns.saturating_sub(before.delay_ns));
        let mut observation = Observation {
            at: known.seen_at,
            thread: known.key,
            name: found.name,
            seen: Seen::Running,
            counters: Some(counters),
            stack: Vec::new(),
            recovered: false,
        };
        let again = unmoved && known.doubted > 0;
        if (found.state != b'R' || found.ready)
            && let Some(walk) = read(&self.tasks, &mut known.files, round, &mut observation)
        {
            // A retried stack is counted once, with the outcome of its first walk.
            if !again {
                count_walk(&walk, round.losses);
            }
        }
        if !unmoved {
            known.doubted = 0;
        }
        known.last = match observation.seen {
            Seen::OnCpu | Seen::Running | Seen::Ready => Last::Running,
            Seen::Blocked(_) if doubtful(&observation.stack) && known.doubted < DOUBTED_MOST => {
                known.doubted += 1;
                self.again.tids.push(known.key.tid);
                Last::Nothing
            }
            Seen::Blocked(_) => Last::Blocked,
            seen @ (Seen::Disk(_) | Seen::Stopped) => Last::Held {
                seen,
                name: observation.name,
                stack: observation.stack.clone(),
                recovered: observation.recovered,
            },
        };
        if !unmoved {
            let runnable = matches!(observation.seen, Seen::Running | Seen::Ready);
            round.moved.push(Moved {
                tid: known.key.tid,
                ran,
                delayed,
                runnable,
                at_start: known.at_start,
            });
        }
        round.events.push(Event::Observation(observation));
    }
}

impl Drop for ThreadScan {
    fn drop(&mut self) {
        for known in self.known.drain(..) {
            self.tasks.forget(known.files);
        }
    }
}

/// Fills in state and stack of a thread that is off the core, and stays off it during the read.
/// Else the observation stays [`Seen::Running`] without a stack. Returns the walk, if a stack was
/// taken.
type ReadStack<'a> =
    &'a mut dyn FnMut(&Tasks, &mut ThreadFiles, &mut Round<'_>, &mut Observation) -> Option<Walk>;

/// State read of a thread, beside its counters.
struct Found {
    at: Ns,
    name: RawName,
    /// State letter of /proc/PID/stat.
    state: u8,
    /// The thread is runnable and off the core, so its stack can be read.
    ready: bool,
    start: u64,
}

/// Returns whether a later walk may reach further. The unwinder reads the mappings again only at
/// intervals. So it may not know yet a stack or code that was mapped just before the thread
/// blocked.
fn doubtful(stack: &[RawFrame]) -> bool {
    let end = stack.last().map(|frame| frame.decode());
    matches!(
        end,
        Some(FrameCode::Marker {
            marker: Marker::BadUnwind
                | Marker::OutsideMaps
                | Marker::NoUnwindInfo
                | Marker::CodeReplaced,
            ..
        })
    )
}

fn not_readable(state: u8, observation: &mut Observation) {
    observation.seen = seen_as(state, None);
    observation.stack.push(RawFrame::marker(Marker::NotReadable));
}

/// Maps the state letter of /proc/PID/stat. S, I, K, P and W are waits; D, and T and t have states
/// of their own.
fn seen_as(state: u8, call: Option<Syscall>) -> Seen {
    match state {
        b'D' => Seen::Disk(call),
        b'T' | b't' => Seen::Stopped,
        _ => Seen::Blocked(call.unwrap_or(Syscall { number: -1, args: [0; 6] })),
    }
}

/// Counts the outcome of a walk.
pub fn count_walk(walk: &Walk, losses: &mut Losses) {
    losses.samples += 1;
    losses.recovered += u64::from(walk.recovered);
    match walk.end {
        Some(Marker::Truncated | Marker::TooDeep | Marker::NotCopied | Marker::PageMissing) => {
            losses.truncated += 1
        }
        Some(reason) => {
            losses.unwind_failed += 1;
            match reason {
                Marker::NoUnwindInfo => losses.no_unwind_info += 1,
                Marker::OutsideMaps => losses.outside_maps += 1,
                _ => losses.bad_unwind += 1,
            }
        }
        None => {}
    }
}
