//! Converts observations to booked time. All times are those of the events. A thread's account is
//! in [`crate::model::facts::thread`].
//!
//! * Wall time: between two readings of a thread's counters, on-CPU samples have its run time and
//!   its run delay (booked as `rdy`), and the wait observed at the end has the rest. Without
//!   counters the span since a thread's last observation is booked to the new one. An observation
//!   of a running thread without a stack does not count. A thread without a new observation was
//!   blocked and did not run until its process's newest tick.
//! * CPU time: each difference of the thread's own counter is shared among the on-CPU samples
//!   between the two readings. Without samples it is carried for 10 s, then booked to a marker.
//!   Time that only the process's clock counted is booked to the marker `ThreadsGone`.
//! * A thread's observed life lasts from its first observation to its exit. An exec starts a new
//!   one. Its wall time sums to exactly that.
//! * An observation that arrives late, with a time before the thread's last one, gets the time of
//!   the last one. It is a hit and gets its share of the run time.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rustc_hash::FxHashMap;

use crate::model::facts::buckets::{Buckets, HORIZON};
use crate::model::facts::fact::{FactKey, merged_thread};
use crate::model::facts::history::History;
use crate::model::facts::interner::Carrier;
use crate::model::facts::snapshot::ThreadNow;
use crate::model::facts::tables::{BlockerId, NameId, StackId};
pub use crate::model::facts::thread::Markers;
use crate::model::facts::thread::{COUNTER_LAG, Outcome, Rules, Seen, Thread, What};
use crate::model::facts::unsampled::{Donors, Kind, Orphans, Receiver};
use crate::model::vocabulary::event::{Counters, Tick};
use crate::model::vocabulary::frame::{Ns, SECOND, ThreadKey};
use crate::model::vocabulary::state::{RawState, State};

/// Time after which the facts of exited threads are merged by name, ns.
const MERGE_AFTER: Ns = 60 * SECOND;

/// Maximum exited threads remembered; threads that exit beyond this limit merge early.
const MAX_DEAD: usize = 100_000;

/// State of one process.
struct Process {
    /// Number of ticks so far, and the time of the newest.
    ticks: u64,
    tick: Ns,
    interval: Ns,
    /// See [`Tick::visit_interval_ns`].
    visit: Option<Ns>,
    /// See [`Losses::dropped`](crate::model::vocabulary::event::Losses::dropped).
    dropped: u64,
    /// CPU time that the threads' own counters counted, since their first observations.
    counted: Ns,
    clock: Option<Clock>,
    /// Samples whose CPU time only the process's clock counts.
    orphans: Orphans,
}

/// The process's own CPU clock, which includes threads that were never observed.
struct Clock {
    /// The first reading minus the time counted until then: the origin of `gone`.
    origin: i128,
    /// The newest reading, and its time.
    newest: Ns,
    read: Ns,
    /// The newest reading is compared with the counters only after the next observations.
    due: bool,
    /// Booked to the stacks of exited threads, or to the marker `ThreadsGone`.
    gone: Ns,
}

/// Delay after a reading of the process's clock, ns. By then every thread's own counter includes
/// the time of that reading.
const CAUGHT_UP: Ns = 2 * COUNTER_LAG;

impl Process {
    /// Returns the time before which every thread has been visited, or observed, ns before a tick.
    /// Where visits are rationed a thread may be visited up to twice its turn late, since others
    /// come and go.
    fn visited_before(&self) -> Ns {
        self.visit.map_or(0, |visit| visit.saturating_mul(2))
    }

    /// Returns the number of ticks, and up to when a thread without observations has not run.
    fn silence(&self) -> (u64, Ns) {
        (self.ticks, self.tick.saturating_sub(self.visited_before()))
    }

    fn rules(&self, rules: &Rules) -> Rules {
        Rules { interval: self.interval, visit: self.visit, ..*rules }
    }
}

pub struct Weigher {
    started: Ns,
    rules: Rules,
    buckets: Buckets,
    threads: BTreeMap<ThreadKey, Thread>,
    processes: FxHashMap<u32, Process>,
    /// Samples that lend their stacks to time that no sample hit.
    donors: Donors,
    /// Exit times of threads, kept for a minute.
    dead: FxHashMap<ThreadKey, Ns>,
    /// Time of the last housekeeping of the accounts.
    house_kept: Ns,
}

impl Weigher {
    pub fn new(started: Ns, markers: Markers, buckets: Buckets) -> Weigher {
        Weigher {
            started,
            rules: Rules { markers, kernel_visible: true, interval: 0, visit: None },
            buckets,
            threads: BTreeMap::new(),
            processes: FxHashMap::default(),
            donors: Donors::default(),
            dead: FxHashMap::default(),
            house_kept: started,
        }
    }

    pub fn buckets(&mut self) -> &mut Buckets {
        &mut self.buckets
    }

    /// Returns the name of a living thread.
    pub fn name(&self, key: ThreadKey) -> Option<NameId> {
        self.threads.get(&key).map(Thread::name)
    }

    pub fn set_kernel_visible(&mut self, visible: bool) {
        self.rules.kernel_visible = visible;
    }

    /// Books to `buckets` from `started` on, with the ids that `carrier` assigns. Earlier time that
    /// is not booked yet goes to the first new bucket.
    pub fn restart(
        &mut self,
        started: Ns,
        markers: Markers,
        buckets: Buckets,
        carrier: &mut Carrier<'_>,
    ) {
        self.started = started;
        self.rules.markers = markers;
        self.buckets = buckets;
        self.threads.values_mut().for_each(|thread| thread.renumber(carrier));
        self.donors.renumber(started, carrier);
        self.processes.values_mut().for_each(|process| process.orphans.renumber(carrier));
    }

    fn process(&mut self, pid: u32) -> &mut Process {
        self.processes.entry(pid).or_insert_with(|| Process {
            ticks: 0,
            tick: 0,
            interval: 0,
            visit: None,
            dropped: 0,
            counted: 0,
            clock: None,
            orphans: Orphans::default(),
        })
    }

    pub fn observe(&mut self, key: ThreadKey, seen: Seen) {
        let seen = Seen { at: seen.at.max(self.started), ..seen };
        if self.dead.contains_key(&key) || key == merged_thread(key.pid) {
            if let What::OnCpu(stack) = seen.what {
                self.sample_of_gone(key, seen.at, seen.name, stack);
            }
            return;
        }
        let rules = self.rules;
        let process = self.process(key.pid);
        let ((ticks, tick), rules) = (process.silence(), process.rules(&rules));
        if !self.threads.contains_key(&key) {
            self.end_former(key, seen.at);
        }
        let thread = match self.threads.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(Thread::new(key, &seen, ticks)),
        };
        thread.silent(ticks, tick.min(seen.at), &mut self.buckets);
        thread.observe(&seen, ticks, &rules, &mut self.buckets);
        let (work, outcome) = (thread.work(), thread.take_outcome());
        self.place(key, work, outcome);
    }

    /// Books the time of a thread's wait up to `at`; from then on its blocker is this one.
    pub fn still_blocked(&mut self, key: ThreadKey, at: Ns, blocker: BlockerId) {
        if let Some(thread) = self.threads.get_mut(&key) {
            thread.still_blocked(at, blocker, &mut self.buckets);
        }
    }

    /// Books a sample of a thread that has exited, perhaps before its counters could be read.
    fn sample_of_gone(&mut self, thread: ThreadKey, at: Ns, name: NameId, stack: StackId) {
        let key = FactKey::new(thread, name, stack, RawState::Known(State::Run));
        self.buckets.count(&key, at, 0, 1, 1);
        self.wait_for_clock(at, key);
    }

    /// Queues a sample whose CPU time the process's clock counts. Samples taken before the clock's
    /// first reading are not queued.
    fn wait_for_clock(&mut self, at: Ns, key: FactKey) {
        let process = self.process(key.thread.pid);
        if process.clock.is_some() {
            process.orphans.add(at, key);
        }
    }

    /// Books the time that a thread's account alone could not assign.
    fn place(&mut self, thread: ThreadKey, work: u64, outcome: Outcome) {
        let process = self.process(thread.pid);
        process.counted += outcome.ran;
        let period = process.interval;
        for sample in outcome.unweighed {
            let state = RawState::Known(State::Run);
            self.wait_for_clock(sample.at, FactKey::new(thread, sample.name, sample.stack, state));
        }
        let kind = Kind::of(thread, work);
        for sample in &outcome.weighed {
            self.donors.add(kind, thread, sample, period);
        }
        let to = Receiver { thread, kind, period, marker: self.rules.markers.cpu_not_sampled };
        for left in &outcome.unsampled {
            self.donors.book(left, &to, &mut self.buckets);
        }
    }

    /// Ends the former threads of a reused thread id, whose exit records were lost.
    fn end_former(&mut self, key: ThreadKey, at: Ns) {
        let ids = ThreadKey { start: 0, ..key }..=ThreadKey { start: u64::MAX, ..key };
        let former: Vec<ThreadKey> = self.threads.range(ids).map(|(key, _)| *key).collect();
        for key in former {
            self.thread_ended(at, key, None);
        }
    }

    pub fn tick(&mut self, tick: &Tick) {
        let at = tick.at.max(self.started);
        if tick.visit_interval_ns > self.process(tick.pid).visit {
            // From now on less is known of threads without observations than up to here.
            self.silent();
        }
        let process = self.process(tick.pid);
        process.ticks += 1;
        process.tick = process.tick.max(at);
        process.interval = tick.interval_ns;
        process.visit = tick.visit_interval_ns;
        let dropped = std::mem::replace(&mut process.dropped, tick.losses.dropped);
        // All threads were observed after the reading, so their counters include all of their CPU
        // time in it. An observation that was dropped is sent again at the next tick, so none is
        // missing at a tick at which none was dropped.
        let caught_up = CAUGHT_UP + process.visited_before();
        if dropped == tick.losses.dropped
            && process.clock.as_ref().is_some_and(|clock| clock.due && clock.read + caught_up <= at)
        {
            self.book_gone(tick.pid);
        }
        if let Some(cpu) = tick.process_cpu_ns {
            self.read_clock(tick.pid, at, cpu);
        }
        if at >= self.house_kept + SECOND {
            self.keep_house(at);
        }
    }

    fn read_clock(&mut self, pid: u32, at: Ns, cpu: Ns) {
        let key = self.gone_key(pid);
        let process = self.process(pid);
        let counted = i128::from(process.counted);
        let origin = i128::from(cpu) - counted;
        let clock = process.clock.get_or_insert(Clock {
            origin,
            newest: cpu,
            read: at,
            due: true,
            gone: 0,
        });
        (clock.newest, clock.read, clock.due) = (clock.newest.max(cpu), at, true);
        // More is booked than the clock counted. So time booked as `gone` belonged to a thread
        // whose observation was lost, and the thread's own counter has counted it since.
        let too_much = clock.origin + counted + i128::from(clock.gone) - i128::from(clock.newest);
        if let Ok(too_much @ 1..) = u64::try_from(too_much) {
            let too_much = too_much.min(clock.gone);
            if let Some(process) = self.processes.get_mut(&pid)
                && let Some(clock) = process.clock.as_mut()
            {
                // Takes back time without a stack first.
                let back = self.buckets.take_back(&key, too_much);
                clock.gone -= back + process.orphans.take_back(too_much - back, &mut self.buckets);
            }
        }
    }

    fn gone_key(&self, pid: u32) -> FactKey {
        let state = RawState::Known(State::Run);
        FactKey::new(merged_thread(pid), NameId::EXITED, self.rules.markers.threads_gone, state)
    }

    /// Books the time that the process's clock counted at its newest reading, and its threads'
    /// counters do not include. The counters may have advanced since the reading, so the difference
    /// may be too small, but never too large.
    fn book_gone(&mut self, pid: u32) {
        let key = self.gone_key(pid);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let Some(clock) = process.clock.as_mut() else { return };
        clock.due = false;
        let known = clock.origin + i128::from(process.counted) + i128::from(clock.gone);
        if let Ok(gone @ 1..) = u64::try_from(i128::from(clock.newest) - known) {
            clock.gone += gone;
            let (orphans, period) = (&mut process.orphans, process.interval);
            orphans.share(gone, clock.read, key, &mut self.donors, period, &mut self.buckets);
        }
    }

    /// Books the time of threads without new observations, up to their process's newest tick.
    pub fn silent(&mut self) {
        let mut of = None;
        for (key, thread) in &mut self.threads {
            let (pid, ticks, tick) = match of {
                Some(known @ (pid, _, _)) if pid == key.pid => known,
                _ => {
                    let (ticks, tick) =
                        self.processes.get(&key.pid).map_or((0, 0), Process::silence);
                    (key.pid, ticks, tick)
                }
            };
            of = Some((pid, ticks, tick));
            thread.silent(ticks, tick, &mut self.buckets);
        }
    }

    pub fn thread_ended(&mut self, at: Ns, key: ThreadKey, counters: Option<Counters>) {
        let Some(mut thread) = self.threads.remove(&key) else { return };
        self.finish(&mut thread, key.pid, at, counters);
        if self.dead.len() < MAX_DEAD {
            self.dead.insert(key, at);
        }
    }

    fn finish(&mut self, thread: &mut Thread, pid: u32, at: Ns, counters: Option<Counters>) {
        let rules = self.rules;
        let process = self.process(pid);
        let ((ticks, tick), rules) = (process.silence(), process.rules(&rules));
        thread.silent(ticks, tick.min(at), &mut self.buckets);
        thread.finish(at, counters, &rules, &mut self.buckets);
        let (work, outcome) = (thread.work(), thread.take_outcome());
        self.place(thread.key(), work, outcome);
    }

    /// Finishes all threads of a process that executes another program.
    pub fn exec(&mut self, at: Ns, pid: u32) {
        let mut threads = std::mem::take(&mut self.threads);
        for (key, thread) in threads.iter_mut().filter(|(key, _)| key.pid == pid) {
            self.finish(thread, key.pid, at, None);
        }
        self.threads = threads;
    }

    pub fn process_ended(&mut self, at: Ns, pid: u32) {
        let keys: Vec<ThreadKey> =
            self.threads.keys().filter(|key| key.pid == pid).copied().collect();
        for key in keys {
            self.thread_ended(at, key, None);
        }
        self.book_gone(pid);
        self.processes.remove(&pid);
        self.donors.process_ended(pid);
    }

    pub fn gap(&mut self, from: Ns, till: Ns) {
        for (key, thread) in &mut self.threads {
            let process = self.processes.get(&key.pid);
            if let Some(process) = process {
                let (ticks, tick) = process.silence();
                thread.silent(ticks, tick.min(from), &mut self.buckets);
            }
            // A visit covers more than this gap anyway.
            let visit = process.and_then(|process| process.visit).unwrap_or(0);
            if till.saturating_sub(from) > visit {
                thread.gap(from, till);
            }
        }
    }

    /// Ends sampling: books all time up to `at`.
    pub fn close(&mut self, at: Ns) {
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        for pid in pids {
            self.process_ended(at, pid);
        }
    }

    fn keep_house(&mut self, now: Ns) {
        self.house_kept = now;
        self.silent();
        let (mut longest, mut visit) = (0, 0);
        let mut outcomes = Vec::new();
        for (key, thread) in &mut self.threads {
            let process = self.processes.get(&key.pid);
            let rules = process.map_or(self.rules, |process| process.rules(&self.rules));
            longest = longest.max(rules.interval);
            visit = visit.max(rules.visit.unwrap_or(0));
            thread.keep_house(now, &rules, &mut self.buckets);
            let outcome = thread.take_outcome();
            if !outcome.weighed.is_empty() || !outcome.unsampled.is_empty() {
                outcomes.push((*key, thread.work(), outcome));
            }
        }
        for (key, work, outcome) in outcomes {
            self.place(key, work, outcome);
        }
        self.donors.keep_house(now);
        self.processes.values_mut().for_each(|process| process.orphans.keep_house(now));
        let before = self.dead.len();
        self.dead.retain(|_, ended| *ended + MERGE_AFTER > now);
        let (threads, dead) = (&self.threads, &self.dead);
        let gone = |key: &ThreadKey| !threads.contains_key(key) && !dead.contains_key(key);
        // A visit books the time since the one before, and so does silence, until two before.
        let horizon = HORIZON.max(longest.saturating_mul(6)).max(visit.saturating_mul(2));
        self.buckets.keep_house(now, horizon, &gone);
        if self.dead.len() < before {
            self.buckets.merge_threads(&gone);
        }
    }

    /// Returns the current history; `at`: the time up to which it is booked.
    pub fn history(&mut self, at: Ns) -> History {
        let growing = self.threads.values().flat_map(Thread::growing_spans).copied();
        self.buckets.history(at, growing)
    }

    /// Returns what a living thread does.
    pub fn now_of(&self, pid: u32, tid: u32) -> Option<ThreadNow> {
        let key = |start: u64| ThreadKey { pid, tid, start };
        let (_, thread) = self.threads.range(key(0)..=key(u64::MAX)).next_back()?;
        Some(self.now(thread))
    }

    fn now(&self, thread: &Thread) -> ThreadNow {
        match self.processes.get(&thread.key().pid) {
            Some(process) => thread.now(&process.rules(&self.rules), process.tick),
            None => thread.now(&self.rules, 0),
        }
    }

    /// Returns the threads in the order of their keys.
    pub fn threads(&self) -> impl Iterator<Item = ThreadNow> + '_ {
        self.threads.values().map(|thread| self.now(thread))
    }
}
