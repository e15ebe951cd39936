//! What is known of each thread, and the rules by which the scan of a tick reports it.
//!
//! The rule: a thread that was last seen blocked, and whose run time and run count have not
//! changed, has the same stack. It sends nothing. Every other thread sends a look. Unchanged
//! counters of a thread last seen running prove nothing, they lag by a tick of the kernel.
//!
//! A round has one of two sources: the files of /proc (`files`), which are asked thread by thread,
//! or the rows of the task iterator (`rows`), which reports those that ran. The rules are the same
//! and are all here.

mod files;
mod list;
mod rows;
mod stacks;

use std::io;

use rustc_hash::FxHashMap;

use crate::capture::bpf::Again;
use crate::capture::parked::Parked;
use crate::capture::schedule::now;
use crate::capture::standstill::Standstill;
use crate::capture::thread_scan::files::UnderWay;
pub use crate::capture::thread_scan::stacks::Stacks;
use crate::model::vocabulary::frame::{
    Counters, Event, FrameCode, Losses, Marker, Ns, Observation, RawFrame, RawName, Seen, Syscall,
    ThreadKey,
};
use crate::process::threads::{CounterSource, Descriptors, ReadError, Reads, Tasks, ThreadFiles};
use crate::unwinder::Walk;

/// Threads beyond these are not looked at (kernel.pid_max allows four million).
const MOST_THREADS: usize = 100_000;

/// What a round of looks works with and reports to.
pub struct Round<'a> {
    /// `None`: stacks are not readable, or not asked for.
    pub stacks: Option<Stacks<'a>>,
    pub events: &'a mut Vec<Event>,
    /// Threads whose counters changed.
    pub moved: &'a mut Vec<Moved>,
    pub losses: &'a mut Losses,
    /// Our own way stops threads: one that is found in a tracing stop may be held by us.
    pub stops_threads: bool,
    /// The number of parked threads that have their turn.
    pub turns: usize,
    /// Maximum threads that the files of /proc are asked about for the first time; the rest wait
    /// for the next round.
    pub first_most: usize,
    /// Pause at this time: [`ThreadScan::round`] is to be called again.
    pub pause_at: Ns,
    /// Set when the kernel refused a stack that it was asked for.
    pub denied: bool,
}

/// A thread that ran since the round before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    pub tid: u32,
    /// Since the last observation, ns; 0 at the first one.
    pub ran: u64,
    /// And was runnable, ns.
    pub delayed: u64,
    /// It is runnable, on a core or not, at this look.
    pub runnable: bool,
    /// It was there at the first round.
    pub at_start: bool,
}

/// A stack that cannot be followed to its end is tried again in this number of ticks, then it stays
/// as it is.
const DOUBTED_MOST: u8 = 5;

/// How a thread was seen last.
enum Last {
    /// Nothing the reducer knows of.
    Nothing,
    Running,
    /// The only one that can stay without a look.
    Blocked,
    /// Uninterruptible or stopped: looked at in every round, but read again only when it ran.
    Held {
        seen: Seen,
        name: RawName,
        stack: Vec<RawFrame>,
        recovered: bool,
    },
    /// A zombie: a leader whose other threads live on. Never looked at again.
    Ended,
}

struct Known {
    key: ThreadKey,
    /// In the initial pid namespace, if the iterator has told it; else 0.
    id: u32,
    name: RawName,
    files: ThreadFiles,
    counters: Option<Counters>,
    last: Last,
    /// When its state was read last; since then it has been silent.
    seen_at: Ns,
    /// How often in a row its stack, the same all the time, could not be followed to its end.
    doubted: u8,
    at_start: bool,
}

/// All threads of one process.
pub struct ThreadScan {
    pid: u32,
    tasks: Tasks,
    known: Vec<Known>,
    /// Of each in `known`: it is looked at when it is its turn. It is [`Last::Blocked`] then. Kept
    /// apart because most are passed over in most rounds.
    is_parked: Vec<bool>,
    index: FxHashMap<u32, usize>,
    /// Link count of the thread directory when it was listed last.
    links: u64,
    list_again: bool,
    tids: Vec<u32>,
    parked: Parked,
    /// The next scan is complete.
    all: bool,
    /// Listed, and not read yet; the next one is the last.
    newcomers: Vec<u32>,
    /// Threads that were there at the beginning are still among them.
    attaching: bool,
    /// The round that is under way, if it paused.
    under_way: Option<UnderWay>,
    turns: Vec<u32>,
    /// Whether those that are parked have run since.
    standstill: Standstill,
    /// Whether the process has a clock that can be compared with the counters of its threads.
    has_clock: bool,
    /// Run time of all in `known`, ns.
    ran: u128,
    /// Parked threads that could have been visited by the iterator and were not.
    visits_saved: usize,
    /// And those that are visited in this round.
    turned: usize,
    /// Whom the iterator has told, and we do not know it, or not any more.
    again: Again,
}

impl ThreadScan {
    /// `descriptors`: how many files of threads may stay open.
    pub fn new(pid: u32, descriptors: usize) -> io::Result<ThreadScan> {
        ThreadScan::sharing(pid, Descriptors::new(descriptors))
    }

    /// As [`ThreadScan::new`], out of descriptors that others take from, too.
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
        }
    }

    /// As where the kernel counts in ticks only.
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

    /// Threads that live.
    pub fn len(&self) -> usize {
        self.known.iter().filter(|known| !matches!(known.last, Last::Ended)).count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ids of all threads that are known.
    pub fn tids(&self) -> impl Iterator<Item = u32> {
        self.known.iter().map(|known| known.key.tid)
    }

    /// The next scan observes every thread, parked or not.
    pub fn force_full_scan(&mut self) {
        self.all = true;
    }

    /// Threads that wait for their first observation, of those that there were at the beginning.
    pub fn not_read_yet(&self) -> usize {
        if self.attaching { self.newcomers.len() } else { 0 }
    }

    /// Who `tid` is, for a sample taken at `at` between two rounds. `None`: it has ended before
    /// anybody could look. The sample proves that it has moved, whatever its counters say.
    pub fn sampled(&mut self, tid: u32, at: Ns) -> Option<(ThreadKey, RawName)> {
        if !self.index.contains_key(&tid) {
            // As many may have gone as have come: the link count would not tell.
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

    /// A look at this thread did not reach the reducer: the next round sends it again.
    pub fn unsent(&mut self, tid: u32) {
        if let Some(index) = self.index.get(&tid).copied()
            && !matches!(self.known[index].last, Last::Ended)
        {
            self.not_seen(index);
        }
    }

    /// The process replaced its program, or the backend changed: every thread is read afresh.
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

    /// The first rule: who was seen blocked and has not moved is silent, who is held is told as it
    /// was. `from`: when the round began. False: it has to be seen what the thread does.
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

    /// The others: what a thread was found doing. `read` takes its stack, if it is off the core.
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

    /// What is known of its state does not hold any more.
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
            self.parked.woke(known.key.tid, now().saturating_sub(known.seen_at));
        }
    }

    /// Replaces a thread's counters; gives back those from before.
    fn count(&mut self, index: usize, counters: Option<Counters>) -> Option<Counters> {
        let ran = |counters: &Option<Counters>| {
            counters.map_or(0, |counters| u128::from(counters.run_ns))
        };
        let before = std::mem::replace(&mut self.known[index].counters, counters);
        self.ran = self.ran + ran(&counters) - ran(&before);
        before
    }

    /// Whether the process's clock may tell that those that are parked have not run:
    /// [`Tasks::clock`] is to be read then, when every thread of a tick has been observed. Once a
    /// round.
    pub fn asks_the_clock(&mut self) -> bool {
        self.has_clock && !self.parked.is_empty() && self.standstill.asks()
    }

    /// What it says. `turned` parked threads had their turn in this round, `turns` may.
    fn answered(&mut self, clock: Option<Ns>, turned: usize, turns: usize) {
        self.standstill.answered(clock, self.ran, self.parked.len(), turned, turns);
    }

    /// Counters that went backwards, or another start time, mean another thread under the same id:
    /// after an exec by a thread that was not the leader, or a reused id where no descriptor could
    /// be kept.
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
            let event = Event::ThreadEnded { at: now(), thread, counters: self.count(index, None) };
            round.events.push(event);
            let known = &mut self.known[index];
            known.key.start = found.start;
            known.last = Last::Nothing;
            known.at_start = false;
            // Descriptors stay with the thread that they were opened for.
            let fresh = self.tasks.thread(known.key.tid);
            self.tasks.forget(std::mem::replace(&mut known.files, fresh));
        }
    }

    /// A thread that moved, or that was not seen blocked.
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
            // A stack that is tried again counts once, as it was found at first.
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

/// Fills in state and stack of a thread that is off the core, if it stays there while it is read;
/// else it stays [`Seen::Running`] without a stack, which is no observation. Returns the walk, if a
/// stack was taken.
type ReadStack<'a> =
    &'a mut dyn FnMut(&Tasks, &mut ThreadFiles, &mut Round<'_>, &mut Observation) -> Option<Walk>;

/// What was read of a thread.
struct Found {
    at: Ns,
    name: RawName,
    /// The letter of /proc/PID/stat.
    state: u8,
    /// Its stack can be read although it is runnable.
    ready: bool,
    start: u64,
}

/// True where a later walk may come further: the unwinder reads mappings again only now and then,
/// so that a thread which blocks on a stack, or in code, that was mapped a moment ago is met too
/// early.
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

/// By the letter of /proc/PID/stat: S (and I, K, P, W, which are waits, too), D, T and t.
fn seen_as(state: u8, call: Option<Syscall>) -> Seen {
    match state {
        b'D' => Seen::Disk(call),
        b'T' | b't' => Seen::Stopped,
        _ => Seen::Blocked(call.unwrap_or(Syscall { number: -1, args: [0; 6] })),
    }
}

/// Counts a stack that was taken.
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

#[cfg(test)]
mod tests;
