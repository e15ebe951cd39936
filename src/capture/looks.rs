//! What is known of each thread, and the round of looks at every tick.
//!
//! The rule: a thread that was last seen blocked, and whose run time and run count have not changed, has the same stack. It
//! costs one read of its counters and sends nothing. Every other thread sends a look. Unchanged counters of a thread last
//! seen running prove nothing, they lag by a tick of the kernel. Who has waited for a while is looked at in rotation, see
//! [`crate::capture::parked`].

use std::io;

use rustc_hash::FxHashMap;

use crate::capture::blocked::StackReader;
use crate::capture::parked::{PARKED_AFTER, Parked};
use crate::capture::schedule::now;
use crate::model::frame::{
    Counters, Event, FrameCode, Look, Losses, Marker, Ns, RawFrame, RawName, Seen, Syscall, ThreadKey,
};
use crate::process::threads::{CounterSource, Doing, ReadError, Reads, Tasks, ThreadFiles};
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
    /// So many parked threads have their turn.
    pub turns: usize,
    /// Pause at this time: [`Looks::round`] is to be called again.
    pub pause_at: Ns,
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
    /// When its state was read last; since then it has been silent.
    seen_at: Ns,
    /// How often in a row its stack, the same all the time, could not be followed to its end.
    doubted: u8,
    at_start: bool,
}

/// All threads of one process.
pub struct Looks {
    pid: u32,
    tasks: Tasks,
    known: Vec<Known>,
    /// Of each in `known`: it is looked at when it is its turn. It is [`Last::Blocked`] then. Kept apart because most are
    /// passed over in most rounds.
    is_parked: Vec<bool>,
    index: FxHashMap<u32, usize>,
    /// Link count of the thread directory when it was listed last.
    links: u64,
    list_again: bool,
    rounds: u64,
    tids: Vec<u32>,
    parked: Parked,
    /// The next round leaves nobody out.
    all: bool,
    /// The round that is under way, if it paused.
    under_way: Option<UnderWay>,
    turns: Vec<u32>,
}

/// How far a round has come.
#[derive(Clone, Copy)]
struct UnderWay {
    /// When it began.
    from: Ns,
    /// In `known`: those before it have been looked at, or are parked.
    active: usize,
    /// In `turns`.
    turn: usize,
}

/// How many looks are made before the clock is asked whether to pause.
const LOOKS_AT_ONCE: usize = 64;

impl Looks {
    /// `descriptors`: how many files of threads may stay open.
    pub fn new(pid: u32, descriptors: usize) -> io::Result<Looks> {
        Ok(Looks {
            pid,
            tasks: Tasks::open(pid, descriptors)?,
            known: Vec::new(),
            is_parked: Vec::new(),
            index: FxHashMap::default(),
            links: 0,
            list_again: true,
            rounds: 0,
            tids: Vec::new(),
            parked: Parked::default(),
            all: false,
            under_way: None,
            turns: Vec::new(),
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

    /// Looks at every thread that is not parked, and at the parked ones whose turn it is. Events come in order of time.
    /// False when it paused: call it again to go on.
    pub fn round(&mut self, round: &mut Round<'_>) -> bool {
        let mut at = match self.under_way.take() {
            Some(at) => at,
            None => {
                self.update_list(round);
                let most = if std::mem::take(&mut self.all) { usize::MAX } else { round.turns };
                self.parked.take_turns(most, &mut self.turns);
                UnderWay { from: now(), active: 0, turn: 0 }
            }
        };
        let mut looks = 0;
        loop {
            let index = if at.active < self.known.len() {
                if self.is_parked[at.active] {
                    at.active += 1;
                    continue;
                }
                at.active
            } else if let Some(tid) = self.turns.get(at.turn) {
                at.turn += 1;
                match self.index.get(tid) {
                    // A sample may have come in a pause: it is not parked any more, and is looked at in the next round.
                    Some(index) if self.is_parked[*index] => *index,
                    _ => continue,
                }
            } else {
                break;
            };
            let events = round.events.len();
            if !self.look(index, at.from, round) {
                // The last one took its place.
                self.remove(index);
                self.list_again = true;
            } else if index == at.active {
                at.active += 1;
            }
            looks += 1;
            let may_have_taken_long = round.events.len() > events || looks % LOOKS_AT_ONCE == 0;
            if may_have_taken_long && now() >= round.pause_at {
                self.under_way = Some(at);
                return false;
            }
        }
        self.rounds += 1;
        true
    }

    /// The next round looks at everybody, parked or not.
    pub fn leave_nobody_out(&mut self) {
        self.all = true;
    }

    /// Who `tid` is, for a sample taken at `at` between two rounds. `None`: it has ended before anybody could look. The
    /// sample proves that it has moved, whatever its counters say.
    pub fn sampled(&mut self, tid: u32, at: Ns) -> Option<(ThreadKey, RawName)> {
        if !self.index.contains_key(&tid) {
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

    /// The process replaced its program, or the way of capture changed: everybody is read afresh.
    pub fn restart(&mut self) {
        self.list_again = true;
        self.under_way = None;
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
                let known = &mut self.known[index];
                if tids.binary_search(&known.key.tid).is_ok() {
                    continue;
                }
                // A listing ends early where the thread that it has just come to dies (fs/proc/base.c, next_tid).
                if self.tasks.counters(&mut known.files) != Err(ReadError::Gone) {
                    self.list_again = true;
                    continue;
                }
                self.end(index, round);
                self.remove(index);
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
            seen_at: 0,
            doubted: 0,
            at_start,
        });
        self.is_parked.push(false);
        Some(())
    }

    fn remove(&mut self, index: usize) {
        let known = self.known.swap_remove(index);
        self.is_parked.swap_remove(index);
        self.index.remove(&known.key.tid);
        self.parked.set(known.key.tid, false);
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

    /// False when the thread is gone. `from`: when the round began.
    fn look(&mut self, index: usize, from: Ns, round: &mut Round<'_>) -> bool {
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
                self.not_seen(index);
                return true;
            }
        };
        let unmoved = known.counters.is_some_and(|c| c.run_ns == counters.run_ns && c.runs == counters.runs);
        match &known.last {
            Last::Blocked if unmoved => {
                if from >= known.seen_at + PARKED_AFTER {
                    self.park(index, true);
                }
                return true;
            }
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
        self.park(index, false);
        let found = match self.find(index, round.stacks.is_some()) {
            Ok(found) => found,
            Err(ReadError::Gone) => {
                self.end(index, round);
                return false;
            }
            Err(_) => {
                self.not_seen(index);
                return true;
            }
        };
        if matches!(found.state, b'Z' | b'X' | b'x') {
            self.known[index].counters = Some(counters);
            self.end(index, round);
            return true;
        }
        self.check_identity(index, &found, &counters, round);
        self.observe(index, &found, counters, round);
        true
    }

    /// What is known of its state does not hold any more.
    fn not_seen(&mut self, index: usize) {
        self.known[index].last = Last::Nothing;
        self.park(index, false);
    }

    fn park(&mut self, index: usize, park: bool) {
        if self.is_parked[index] != park {
            self.is_parked[index] = park;
            self.parked.set(self.known[index].key.tid, park);
        }
    }

    /// What a thread is called and does now. One that was seen running most likely runs still: then two short reads do. The
    /// start time is only needed where no descriptor tells one thread from the next of the same id.
    fn find(&mut self, index: usize, may_ask: bool) -> Result<Found, ReadError> {
        let known = &mut self.known[index];
        let likely = matches!(known.last, Last::Running) && may_ask;
        if likely
            && self.tasks.source() == CounterSource::Schedstat
            && !self.tasks.short_of_descriptors()
            && self.tasks.doing(&mut known.files) == Ok(Doing::Running)
        {
            let name = self.tasks.name(&mut known.files)?;
            return Ok(Found { name, state: b'R', start: known.key.start });
        }
        let stat = self.tasks.stat(&mut known.files)?;
        Ok(Found { name: stat.name, state: stat.state, start: stat.start })
    }

    /// Counters that went backwards, or another start time, mean another thread under the same id: after an exec by a
    /// thread that was not the leader, or a reused id where no descriptor could be kept.
    fn check_identity(&mut self, index: usize, found: &Found, counters: &Counters, round: &mut Round<'_>) {
        let known = &mut self.known[index];
        let backwards = known.counters.is_some_and(|c| counters.run_ns < c.run_ns || counters.runs < c.runs);
        if found.start != known.key.start || backwards {
            let event = Event::ThreadEnded { at: now(), thread: known.key, counters: known.counters.take() };
            round.events.push(event);
            known.key.start = found.start;
            known.last = Last::Nothing;
            known.at_start = false;
        }
    }

    /// A thread that moved, or that was not seen blocked.
    fn observe(&mut self, index: usize, found: &Found, counters: Counters, round: &mut Round<'_>) {
        let known = &mut self.known[index];
        let before = known.counters.replace(counters);
        let unmoved = before == known.counters;
        known.name = found.name;
        known.seen_at = now();
        let ran = before.map_or(0, |before| counters.run_ns - before.run_ns);
        let delayed = before.map_or(0, |before| counters.delay_ns.saturating_sub(before.delay_ns));
        let mut look = Look {
            at: known.seen_at,
            thread: known.key,
            name: found.name,
            seen: Seen::Running,
            counters: Some(counters),
            stack: Vec::new(),
            recovered: false,
        };
        let running = match found.state {
            b'R' => true,
            // Held by our helper for a moment, or let go since: it runs. Anybody else's stop is the target's state.
            b't' if round.stops_threads => {
                self.tasks.tracer(&known.files).is_ok_and(|tracer| tracer == 0 || is_ours(tracer))
            }
            _ => false,
        };
        let again = unmoved && known.doubted > 0;
        if !running && let Some(walk) = read_stack(&self.tasks, &mut known.files, found.state, round, &mut look) {
            // A stack that is tried again counts once, as it was found at first.
            if !again {
                count_walk(&walk, round.losses);
            }
        }
        if !unmoved {
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
        if !unmoved {
            let runnable = look.seen == Seen::Running;
            round.moved.push(Moved { tid: known.key.tid, ran, delayed, runnable, at_start: known.at_start });
        }
        round.events.push(Event::Look(look));
    }
}

/// What was read of a thread.
struct Found {
    name: RawName,
    /// The letter of /proc/PID/stat.
    state: u8,
    start: u64,
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
/// [`Seen::Running`] without a stack, which is no observation. Returns the walk, if a stack was taken.
fn read_stack(
    tasks: &Tasks,
    files: &mut ThreadFiles,
    state: u8,
    round: &mut Round<'_>,
    look: &mut Look,
) -> Option<Walk> {
    let Some(stacks) = &mut round.stacks else {
        not_readable(state, look);
        return None;
    };
    let (call, sp, pc) = match tasks.doing(files) {
        Ok(Doing::Blocked { call, sp, pc }) => (call, sp, pc),
        Ok(Doing::Running) => return None,
        Err(ReadError::NotPermitted) => {
            round.denied = true;
            not_readable(state, look);
            return None;
        }
        // Ended, or no descriptor: the next round will tell.
        Err(_) => return None,
    };
    if sp == 0 && pc == 0 {
        // It is ending and has given its registers up.
        return None;
    }
    let walk = stacks.reader.walk(pc, sp, stacks.unwinder, &mut look.stack);
    let same_place = tasks.doing(files) == Ok(Doing::Blocked { call, sp, pc });
    let same_counters = tasks
        .counters(files)
        .is_ok_and(|again| look.counters.is_some_and(|first| first.run_ns == again.run_ns && first.runs == again.runs));
    if !(same_place && same_counters) {
        round.losses.torn += 1;
        look.stack.clear();
        return None;
    }
    look.seen = seen_as(state, Some(call));
    look.recovered = walk.recovered;
    Some(walk)
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
