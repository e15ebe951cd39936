//! What is known of each thread, and the round of looks at every tick.
//!
//! The rule: a thread that was last seen blocked, and whose run time and run count have not changed, has the same stack. It
//! costs one read of its counters and sends nothing. Every other thread sends a look. Unchanged counters of a thread last
//! seen running prove nothing, they lag by a tick of the kernel.

use std::io;

use rustc_hash::FxHashMap;

use crate::capture::blocked::StackReader;
use crate::capture::schedule::now;
use crate::model::frame::{
    Counters, Event, FrameCode, Look, Losses, Marker, RawFrame, RawName, Seen, Syscall, ThreadKey,
};
use crate::process::threads::{Doing, ReadError, Reads, Stat, Tasks, ThreadFiles};
use crate::unwinder::{Unwinder, Walk};

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
    /// Set when the kernel refused a stack that it was asked for.
    pub denied: bool,
}

pub struct Stacks<'a> {
    pub reader: &'a mut StackReader,
    pub unwinder: &'a mut dyn Unwinder,
}

/// A thread that ran since the round before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    pub tid: u32,
    /// For so long, ns; 0 at the first look.
    pub ran: u64,
    /// And wanted a core for so long, ns.
    pub delayed: u64,
    /// It is runnable, on a core or not, at this look.
    pub runnable: bool,
    /// It was there at the first round.
    pub at_start: bool,
}

/// A stack that cannot be followed to its end is tried again in so many rounds, then it stays as it is.
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
        stack: Vec<RawFrame>,
        recovered: bool,
    },
    /// A zombie: a leader whose other threads live on. Never looked at again.
    Ended,
}

struct Known {
    key: ThreadKey,
    name: RawName,
    files: ThreadFiles,
    counters: Option<Counters>,
    last: Last,
    /// How often in a row its stack, the same all the time, could not be followed to its end.
    doubted: u8,
    at_start: bool,
}

/// All threads of one process.
pub struct Looks {
    pid: u32,
    tasks: Tasks,
    known: Vec<Known>,
    index: FxHashMap<u32, usize>,
    /// Link count of the thread directory when it was listed last.
    links: u64,
    list_again: bool,
    rounds: u64,
    tids: Vec<u32>,
}

impl Looks {
    /// `descriptors`: how many files of threads may stay open.
    pub fn new(pid: u32, descriptors: usize) -> io::Result<Looks> {
        Ok(Looks {
            pid,
            tasks: Tasks::open(pid, descriptors)?,
            known: Vec::new(),
            index: FxHashMap::default(),
            links: 0,
            list_again: true,
            rounds: 0,
            tids: Vec::new(),
        })
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

    /// Looks at every thread once. Events come in order of time.
    pub fn round(&mut self, round: &mut Round<'_>) {
        self.update_list(round);
        let mut index = 0;
        while index < self.known.len() {
            if self.look(index, round) {
                index += 1;
            } else {
                // The last one took its place.
                self.remove(index);
                self.list_again = true;
            }
        }
        self.rounds += 1;
    }

    /// Who `tid` is, for a sample taken between two rounds. `None`: it has ended before anybody could look.
    pub fn identify(&mut self, tid: u32) -> Option<(ThreadKey, RawName)> {
        if !self.index.contains_key(&tid) {
            self.add(tid)?;
        }
        let known = &self.known[*self.index.get(&tid)?];
        Some((known.key, known.name))
    }

    /// A look at this thread did not reach the reducer: the next round sends it again.
    pub fn unsent(&mut self, tid: u32) {
        if let Some(index) = self.index.get(&tid) {
            let last = &mut self.known[*index].last;
            if !matches!(last, Last::Ended) {
                *last = Last::Nothing;
            }
        }
    }

    /// The process replaced its program, or the way of capture changed: everybody is read afresh.
    pub fn restart(&mut self) {
        self.list_again = true;
        for known in &mut self.known {
            if matches!(known.last, Last::Ended) {
                continue;
            }
            known.last = Last::Nothing;
            let fresh = self.tasks.thread(known.key.tid);
            self.tasks.forget(std::mem::replace(&mut known.files, fresh));
        }
    }

    fn update_list(&mut self, round: &mut Round<'_>) {
        let links = self.tasks.links();
        if links == self.links && !self.list_again {
            return;
        }
        let mut tids = std::mem::take(&mut self.tids);
        if self.tasks.list(&mut tids).is_ok() {
            // Taken before the listing: a thread born during it changes the count again.
            (self.links, self.list_again) = (links, false);
            tids.truncate(MOST_THREADS);
            for tid in &tids {
                if !self.index.contains_key(tid) {
                    self.add(*tid);
                }
            }
            tids.sort_unstable();
            for index in (0..self.known.len()).rev() {
                if tids.binary_search(&self.known[index].key.tid).is_err() {
                    self.end(index, round);
                    self.remove(index);
                }
            }
        }
        self.tids = tids;
    }

    fn add(&mut self, tid: u32) -> Option<()> {
        if self.known.len() >= MOST_THREADS {
            return None;
        }
        let mut files = self.tasks.thread(tid);
        let Ok(stat) = self.tasks.stat(&mut files) else {
            self.tasks.forget(files);
            self.list_again = true;
            return None;
        };
        let key = ThreadKey { pid: self.pid, tid, start: stat.start };
        let at_start = self.rounds == 0;
        self.index.insert(tid, self.known.len());
        self.known.push(Known {
            key,
            name: stat.name,
            files,
            counters: None,
            last: Last::Nothing,
            doubted: 0,
            at_start,
        });
        Some(())
    }

    fn remove(&mut self, index: usize) {
        let known = self.known.swap_remove(index);
        self.index.remove(&known.key.tid);
        if let Some(moved) = self.known.get(index) {
            self.index.insert(moved.key.tid, index);
        }
        self.tasks.forget(known.files);
    }

    fn end(&mut self, index: usize, round: &mut Round<'_>) {
        let known = &mut self.known[index];
        if !matches!(known.last, Last::Ended) {
            known.last = Last::Ended;
            let counters = known.counters;
            round.events.push(Event::ThreadEnded { at: now(), thread: known.key, counters });
        }
    }

    /// False when the thread is gone.
    fn look(&mut self, index: usize, round: &mut Round<'_>) -> bool {
        let known = &mut self.known[index];
        if matches!(known.last, Last::Ended) {
            return true;
        }
        let counters = match self.tasks.counters(&mut known.files) {
            Ok(counters) => counters,
            Err(ReadError::Gone) => {
                self.end(index, round);
                return false;
            }
            // Not seen this time; what it did meanwhile comes out with the next counters.
            Err(_) => {
                known.last = Last::Nothing;
                return true;
            }
        };
        let unmoved = known.counters.is_some_and(|c| c.run_ns == counters.run_ns && c.runs == counters.runs);
        match &known.last {
            Last::Blocked if unmoved => return true,
            Last::Held { seen, stack, recovered } if unmoved => {
                let (seen, stack, recovered) = (*seen, stack.clone(), *recovered);
                round.events.push(Event::Look(Look {
                    at: now(),
                    thread: known.key,
                    name: known.name,
                    seen,
                    counters: Some(counters),
                    stack,
                    recovered,
                }));
                return true;
            }
            _ => {}
        }
        let stat = match self.tasks.stat(&mut known.files) {
            Ok(stat) => stat,
            Err(ReadError::Gone) => {
                self.end(index, round);
                return false;
            }
            Err(_) => {
                known.last = Last::Nothing;
                return true;
            }
        };
        if matches!(stat.state, b'Z' | b'X' | b'x') {
            known.counters = Some(counters);
            self.end(index, round);
            return true;
        }
        self.check_identity(index, &stat, &counters, round);
        self.observe(index, &stat, counters, round);
        true
    }

    /// Counters that went backwards, or another start time, mean another thread under the same id: after an exec by a
    /// thread that was not the leader, or a reused id where no descriptor could be kept.
    fn check_identity(&mut self, index: usize, stat: &Stat, counters: &Counters, round: &mut Round<'_>) {
        let known = &mut self.known[index];
        let backwards = known.counters.is_some_and(|c| counters.run_ns < c.run_ns || counters.runs < c.runs);
        if stat.start != known.key.start || backwards {
            let event = Event::ThreadEnded { at: now(), thread: known.key, counters: known.counters.take() };
            round.events.push(event);
            known.key.start = stat.start;
            known.last = Last::Nothing;
            known.at_start = false;
        }
    }

    /// A thread that moved, or that was not seen blocked.
    fn observe(&mut self, index: usize, stat: &Stat, counters: Counters, round: &mut Round<'_>) {
        let known = &mut self.known[index];
        let before = known.counters.replace(counters);
        known.name = stat.name;
        let ran = before.map_or(0, |before| counters.run_ns - before.run_ns);
        let delayed = before.map_or(0, |before| counters.delay_ns.saturating_sub(before.delay_ns));
        let mut look = Look {
            at: now(),
            thread: known.key,
            name: stat.name,
            seen: Seen::Running,
            counters: Some(counters),
            stack: Vec::new(),
            recovered: false,
        };
        let running = match stat.state {
            b'R' => true,
            // Held by our helper for a moment, or let go since: it runs. Anybody else's stop is the target's state.
            b't' if round.stops_threads => {
                self.tasks.tracer(&known.files).is_ok_and(|tracer| tracer == 0 || is_ours(tracer))
            }
            _ => false,
        };
        if !running {
            read_stack(&self.tasks, &mut known.files, stat.state, round, &mut look);
        }
        if before != known.counters {
            known.doubted = 0;
        }
        known.last = match look.seen {
            Seen::OnCpu | Seen::Running => Last::Running,
            Seen::Blocked(_) if doubtful(&look.stack) && known.doubted < DOUBTED_MOST => {
                known.doubted += 1;
                Last::Nothing
            }
            Seen::Blocked(_) => Last::Blocked,
            seen @ (Seen::Disk(_) | Seen::Stopped) => {
                Last::Held { seen, stack: look.stack.clone(), recovered: look.recovered }
            }
        };
        if before != known.counters {
            let runnable = look.seen == Seen::Running;
            round.moved.push(Moved { tid: known.key.tid, ran, delayed, runnable, at_start: known.at_start });
        }
        round.events.push(Event::Look(look));
    }
}

/// True where a later walk may come further: the unwinder reads mappings again only now and then, so that a thread which
/// blocks on a stack, or in code, that was mapped a moment ago is met too early.
fn doubtful(stack: &[RawFrame]) -> bool {
    let end = stack.last().map(|frame| frame.decode());
    matches!(
        end,
        Some(FrameCode::Marker { marker: Marker::BadUnwind | Marker::OutsideMaps | Marker::NoUnwindInfo, .. })
    )
}

/// The kernel names the thread that traces, not its process.
fn is_ours(tid: u32) -> bool {
    std::path::Path::new(&format!("/proc/self/task/{tid}")).exists()
}

/// Fills in state and stack of a thread that is off the core, if it stays there while it is read; else it stays
/// [`Seen::Running`] without a stack, which is no observation.
fn read_stack(tasks: &Tasks, files: &mut ThreadFiles, state: u8, round: &mut Round<'_>, look: &mut Look) {
    let Some(stacks) = &mut round.stacks else { return not_readable(state, look) };
    let (call, sp, pc) = match tasks.doing(files) {
        Ok(Doing::Blocked { call, sp, pc }) => (call, sp, pc),
        Ok(Doing::Running) => return,
        Err(ReadError::NotPermitted) => {
            round.denied = true;
            return not_readable(state, look);
        }
        // Ended, or no descriptor: the next round will tell.
        Err(_) => return,
    };
    if sp == 0 && pc == 0 {
        // It is ending and has given its registers up.
        return;
    }
    let walk = stacks.reader.walk(pc, sp, stacks.unwinder, &mut look.stack);
    let same_place = tasks.doing(files) == Ok(Doing::Blocked { call, sp, pc });
    let same_counters = tasks
        .counters(files)
        .is_ok_and(|again| look.counters.is_some_and(|first| first.run_ns == again.run_ns && first.runs == again.runs));
    if !(same_place && same_counters) {
        round.losses.torn += 1;
        look.stack.clear();
        return;
    }
    look.seen = seen_as(state, Some(call));
    look.recovered = walk.recovered;
    count_walk(&walk, round.losses);
}

fn not_readable(state: u8, look: &mut Look) {
    look.seen = seen_as(state, None);
    look.stack.push(RawFrame::marker(Marker::NotReadable));
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
        Some(Marker::Truncated | Marker::TooDeep) => losses.truncated += 1,
        Some(_) => losses.unwind_failed += 1,
        None => {}
    }
}
