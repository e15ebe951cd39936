//! Turns events into views: connects interning, weighing and history. Pure: all times are those of
//! the events.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};

use crate::model::facts::buckets::Buckets;
pub use crate::model::facts::buckets::Limits;
use crate::model::facts::fact::merged_thread;
use crate::model::facts::history::History;
use crate::model::facts::interner::{Carrier, Interner, MAX_STACKS};
use crate::model::facts::snapshot::{Deadlock, ThreadNow};
use crate::model::facts::tables::{Blocker, BlockerId, Holder, NameId, Named, Tables};
use crate::model::facts::thread::{Seen, What};
use crate::model::facts::tick_rhythm::TickRhythm;
use crate::model::facts::weigh::{Markers, Weigher};
use crate::model::vocabulary::blocker::{RawBlocker, RawHolder};
use crate::model::vocabulary::event::{self, Event, Losses, Observation, Tick};
use crate::model::vocabulary::frame::{Marker, Ns, RawFrame, RawName, ThreadKey};
use crate::model::vocabulary::state::{RawState, State};
use crate::model::vocabulary::text::{NAME_CAP, clean};

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            history_bytes: 64 << 20,
            facts_per_bucket: 2_000,
            cumulative_facts: 100_000,
            stacks: MAX_STACKS,
        }
    }
}

/// All of a snapshot's data about the measurement. Cloning copies only pointers.
#[derive(Clone, Debug)]
pub struct View {
    /// Time up to which facts are booked: the newest tick.
    pub at: Ns,
    pub tables: Tables,
    pub history: History,
    /// In the order of their keys.
    pub threads: Arc<[ThreadNow]>,
    /// Number of ticks, regardless of the number of processes observed in each.
    pub ticks: u64,
    /// Up to the newest tick.
    pub losses: Losses,
    /// Facts folded into `(other)`, including stacks that did not fit in the tables.
    pub folded_facts: u64,
    pub dropped_buckets: u64,
    pub late_p99_ns: u64,
    /// These two are as of the last 5 s, ns.
    pub interval_achieved_ns: u64,
    pub visit_interval_ns: u64,
    pub deadlocks: Arc<[Deadlock]>,
}

/// Number of outermost frames that identify a thread's work: its start routine and that one's
/// callee.
const OUTERMOST: usize = 2;

pub struct Recorder {
    limits: Limits,
    at: Ns,
    interner: Interner,
    weigher: Weigher,
    ticks: u64,
    losses: Losses,
    /// The losses at the start of the history.
    losses_before: Losses,
    rhythm: TickRhythm,
    /// Time of the newest tick; the ticks of all processes in one interval have the same time.
    newest_tick: Option<Ns>,
    /// The threads' last states when sampling ended.
    closed: Option<Arc<[ThreadNow]>>,
    /// Names of classes of blockers.
    classes: FxHashMap<RawName, Arc<str>>,
    /// Observations of threads that wait for a thread. They are booked after all others of their
    /// tick, because the holder's stack is part of the blocker.
    held: Vec<Held>,
    /// Waits that go on, with the time at which their blockers were read again.
    still_blocked: Vec<(Ns, ThreadKey, RawBlocker)>,
    deadlocks: Arc<[Deadlock]>,
}

/// An observation of a waiting thread, and what it waits for.
type Held = (ThreadKey, Seen, RawBlocker);

/// Maximum classes of blockers whose names are known.
const MAX_CLASSES: usize = 20_000;

impl Recorder {
    /// Creates a recorder whose history starts at `started`.
    pub fn new(started: Ns, limits: Limits) -> Recorder {
        let mut interner = Interner::new(limits.stacks);
        let markers = Markers::of(&mut interner);
        let buckets = Buckets::new(started, limits, interner.other());
        Recorder {
            limits,
            at: started,
            weigher: Weigher::new(started, markers, buckets),
            interner,
            ticks: 0,
            losses: Losses::default(),
            losses_before: Losses::default(),
            rhythm: TickRhythm::default(),
            newest_tick: None,
            closed: None,
            classes: FxHashMap::default(),
            held: Vec::new(),
            still_blocked: Vec::new(),
            deadlocks: Arc::default(),
        }
    }

    /// Sets whether the backend sees kernel time (initially true). If not, run time without a
    /// sample is `[in kernel, not visible]`, else `[cpu, not sampled]`.
    pub fn set_kernel_visible(&mut self, visible: bool) {
        self.weigher.set_kernel_visible(visible);
    }

    /// Applies an event. Each source's events are in order of time. Ignores all after
    /// [`Recorder::close`].
    pub fn apply(&mut self, event: &Event) {
        if self.closed.is_some() {
            return;
        }
        if !matches!(event, Event::Observation(_) | Event::StillBlocked { .. }) {
            self.book_held();
        }
        match event {
            Event::Observation(observation) => self.observe(observation),
            Event::Tick(tick) => self.tick(tick),
            Event::ThreadEnded { at, thread, counters } => {
                self.weigher.thread_ended(*at, *thread, *counters)
            }
            Event::Exec { at, pid } => self.weigher.exec(*at, *pid),
            Event::ProcessEnded { at, pid } => {
                self.at = self.at.max(*at);
                self.weigher.process_ended(*at, *pid);
            }
            Event::StillBlocked { at, thread, blocker } => {
                self.still_blocked.push((*at, *thread, *blocker));
            }
            Event::Deadlocks { at, cycles } => self.set_deadlocks(*at, cycles),
            Event::Gap { from, at } => {
                self.rhythm.gap();
                self.weigher.gap(*from, *at);
            }
        }
    }

    fn observe(&mut self, observation: &Observation) {
        let what = match observation.seen {
            event::Seen::Running => What::Running,
            event::Seen::OnCpu => What::OnCpu(self.interner.stack(&observation.stack)),
            event::Seen::Ready => What::Ready(self.interner.stack(&observation.stack)),
            event::Seen::Blocked(call) => {
                self.waits(observation, RawState::of_blocked(call), Some(call))
            }
            event::Seen::Disk(call) => self.waits(observation, RawState::Known(State::Disk), call),
            event::Seen::Stopped => self.waits(observation, RawState::Known(State::Stopped), None),
        };
        let gone = observation.thread == merged_thread(observation.thread.pid);
        let name = match gone {
            true => NameId::EXITED,
            // A thread that was not observed for a long time keeps its name.
            false => self
                .interner
                .name_if_known(observation.name)
                .or(self.weigher.name(observation.thread))
                .unwrap_or(NameId::OTHER),
        };
        self.weigher.buckets().set_groups(self.interner.groups());
        let work = self.work(name, &observation.stack);
        let Observation { at, counters, recovered, .. } = *observation;
        let seen = Seen { at, name, what, counters, recovered, work };
        let thread = observation.thread;
        if self.held.iter().any(|(held, ..)| *held == thread) {
            self.book_held();
        }
        match observation.blocker {
            Some(blocker) => self.held.push((thread, seen, blocker)),
            None => self.weigher.observe(thread, seen),
        }
    }

    /// Books the observations of threads whose blockers are known, with these blockers.
    fn book_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        for (thread, mut seen, raw) in held.iter().copied() {
            let found = self.blocker(thread.pid, raw, &held);
            if let What::Waits { blocker, .. } = &mut seen.what {
                *blocker = found;
            }
            self.weigher.observe(thread, seen);
        }
        for (at, thread, raw) in std::mem::take(&mut self.still_blocked) {
            let found = self.blocker(thread.pid, raw, &held);
            self.weigher.still_blocked(thread, at, found);
        }
    }

    /// Returns the id of a blocker that a thread of `pid` waits for. Its holder is where it was
    /// observed last. `held`: what is being booked, perhaps its holder's wait for another thread.
    fn blocker(&mut self, pid: u32, raw: RawBlocker, held: &[Held]) -> BlockerId {
        let holder = match raw.holder {
            RawHolder::Unknown => Holder::Unknown,
            RawHolder::Free => Holder::Free,
            RawHolder::Readers(count) => Holder::Readers(count),
            RawHolder::Unmounted => Holder::Unmounted,
            RawHolder::Thread { pid, tid } => {
                let waiting = held.iter().find(|(key, ..)| (key.pid, key.tid) == (pid, tid));
                match (waiting, self.weigher.now_of(pid, tid)) {
                    (Some((thread, Seen { name, what: What::Waits { stack, .. }, .. }, _)), _) => {
                        Holder::Thread { thread: *thread, name: *name, stack: *stack }
                    }
                    (_, Some(ThreadNow { thread, name, stack, .. })) => {
                        Holder::Thread { thread, name, stack }
                    }
                    (_, None) => Holder::Foreign { pid, tid },
                }
            }
        };
        let class = raw.class.and_then(|class| self.classes.get(&class)).cloned();
        let RawBlocker { kind, object, .. } = raw;
        self.interner.blocker(Blocker { kind, pid, object, class, holder })
    }

    fn set_deadlocks(&mut self, at: Ns, cycles: &[Vec<ThreadKey>]) {
        let deadlock = |threads: &Vec<ThreadKey>| {
            let known = self.deadlocks.iter().find(|known| *known.threads == **threads);
            known.cloned().unwrap_or_else(|| Deadlock { since: at, threads: (&**threads).into() })
        };
        self.deadlocks = cycles.iter().map(deadlock).collect();
    }

    /// Defines the name of a blocker's class. Must come before the first observation with it.
    pub fn set_class_name(&mut self, class: RawName, text: &str) {
        if self.classes.len() < MAX_CLASSES && !self.classes.contains_key(&class) {
            self.classes.insert(class, clean(text, NAME_CAP).into());
        }
    }

    /// Returns a hash that is equal for threads with the same work: of the group of their names,
    /// and of their outermost calls.
    fn work(&self, name: NameId, stack: &[RawFrame]) -> u64 {
        // The innermost frame is no caller.
        let callers = stack.get(1..).unwrap_or_default();
        if callers.is_empty() {
            return 0;
        }
        let group = self.interner.groups().get(name.0 as usize).copied().unwrap_or(name);
        let mut hasher = FxHasher::default();
        // Hashes the text, since ids change at a restart.
        self.interner.name_of(group).hash(&mut hasher);
        callers[callers.len().saturating_sub(OUTERMOST)..].hash(&mut hasher);
        hasher.finish().max(1)
    }

    fn waits(
        &mut self,
        observation: &Observation,
        state: RawState,
        syscall: Option<event::Syscall>,
    ) -> What {
        let stack = self.interner.stack(&observation.stack);
        let began = observation.wait_began;
        What::Waits { stack, state, syscall, blocker: BlockerId::NONE, began }
    }

    fn tick(&mut self, tick: &Tick) {
        self.at = self.at.max(tick.at);
        self.losses = tick.losses;
        if self.newest_tick.replace(tick.at) != Some(tick.at) {
            self.ticks += 1;
            self.rhythm.add(tick);
        }
        self.weigher.tick(tick);
    }

    /// Defines the text of a thread name that a runtime gave. Must come before the first
    /// observation with this name.
    pub fn set_thread_name(&mut self, name: RawName, text: &str) {
        self.interner.call(name, text);
    }

    /// Returns the frames interned since the last call that need a name. Markers without a file
    /// have one.
    pub fn take_unnamed(&mut self) -> Vec<RawFrame> {
        self.interner.take_unnamed()
    }

    /// Sets or improves a frame's name, in all past and future stacks.
    pub fn set_named(&mut self, frame: RawFrame, named: Named) {
        self.interner.set_named(frame, named);
    }

    /// Ends sampling at `at`: books all time up to it.
    pub fn close(&mut self, at: Ns) {
        self.book_held();
        self.weigher.silent();
        if self.closed.is_none() {
            self.closed = Some(self.weigher.threads().collect());
            self.at = self.at.max(at);
            self.weigher.close(self.at);
        }
    }

    /// Starts a new history where the old one ended. Keeps the accounts of threads, so time not
    /// booked yet goes to the new history, exactly once. Drops booked time, losses, and all stacks
    /// and names that no thread uses, so repeated calls use no more memory.
    ///
    /// Ids change; existing views stay valid. Returns the old tables, for names that arrive later.
    pub fn restart(&mut self) -> Former {
        self.book_held();
        self.weigher.silent();
        let mut fresh = self.interner.afresh();
        let markers = Markers::of(&mut fresh);
        let buckets = Buckets::new(self.at, self.limits, fresh.other());
        self.weigher.restart(
            self.at,
            markers,
            buckets,
            &mut Carrier { from: &self.interner, to: &mut fresh },
        );
        self.ticks = 0;
        self.losses_before = self.losses;
        Former { interner: std::mem::replace(&mut self.interner, fresh) }
    }

    /// Returns the memory of the history, bytes; at most [`Limits::history_bytes`].
    pub fn history_bytes(&mut self) -> usize {
        self.weigher.buckets().bytes()
    }

    /// Returns the current state. Copies pointers, and books the time of each waiting thread.
    pub fn view(&mut self) -> View {
        self.book_held();
        self.weigher.silent();
        let threads = self.closed.clone().unwrap_or_else(|| self.weigher.threads().collect());
        let refused = self.interner.refused();
        let history = self.weigher.history(self.at);
        let buckets = self.weigher.buckets();
        View {
            at: self.at,
            tables: self.interner.tables(),
            history,
            threads,
            ticks: self.ticks,
            losses: self.losses.since(&self.losses_before),
            folded_facts: buckets.folded() + refused,
            dropped_buckets: buckets.dropped(),
            late_p99_ns: self.rhythm.late_p99(),
            interval_achieved_ns: self.rhythm.interval(),
            visit_interval_ns: self.rhythm.visit_interval(),
            deadlocks: self.deadlocks.clone(),
        }
    }
}

/// The tables of an earlier history.
pub struct Former {
    interner: Interner,
}

impl Former {
    /// See [`Recorder::set_named`].
    pub fn set_named(&mut self, frame: RawFrame, named: Named) {
        self.interner.set_named(frame, named);
    }

    /// Returns whether some frames still wait for their names.
    pub fn is_pending(&self) -> bool {
        self.interner.is_pending()
    }

    pub fn tables(&mut self) -> Tables {
        self.interner.tables()
    }
}

impl Markers {
    fn of(interner: &mut Interner) -> Markers {
        Markers {
            cpu_not_sampled: interner.marker(Marker::CpuNotSampled),
            kernel_not_visible: interner.marker(Marker::KernelNotVisible),
            not_observed: interner.marker(Marker::NotObserved),
            not_run_yet: interner.marker(Marker::NotRunYet),
            not_sampled: interner.marker(Marker::NotSampled),
            threads_gone: interner.marker(Marker::ThreadsGone),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::fact::Weights;
    use crate::model::facts::history::Range;
    use crate::model::vocabulary::blocker::BlockerKind;

    #[test]
    fn ticks_of_several_processes_are_one_round() {
        let mut recorder = Recorder::new(0, Limits::default());
        let interval = 10_000_000;
        for round in 1..=100 {
            for pid in [7, 8, 9] {
                // A process may appear and exit.
                if pid != 8 || round % 3 != 0 {
                    let (at, losses) = (round * interval, Losses::default());
                    let tick = Tick { interval_ns: interval, losses, ..Tick::new(at, pid) };
                    recorder.apply(&Event::Tick(tick));
                }
            }
        }
        let view = recorder.view();
        assert_eq!(
            (view.ticks, view.interval_achieved_ns, view.at),
            (100, interval, 100 * interval)
        );
    }

    #[test]
    fn a_thread_keeps_the_name_its_runtime_gave_however_many_others_come() {
        let mut recorder = Recorder::new(0, Limits::default());
        let observe = |at, id, tid| {
            let (thread, name) = (ThreadKey { pid: 7, tid, start: 1 }, RawName::of_runtime(id));
            let (seen, counters, stack) = (event::Seen::Running, None, Vec::new());
            Event::Observation(Observation {
                counters,
                stack,
                ..Observation::new(at, thread, name, seen)
            })
        };
        recorder.set_thread_name(RawName::of_runtime(1), "http-1");
        recorder.apply(&observe(0, 1, 1));
        for id in 2..=150_000 {
            recorder.set_thread_name(RawName::of_runtime(id), &format!("req-{id}"));
        }
        recorder.apply(&observe(1, 1, 1));
        recorder.apply(&observe(1, 150_000, 2));
        let view = recorder.view();
        assert_eq!(
            [0, 1].map(|at: usize| &**view.tables.name(view.threads[at].name)),
            ["http-1", "req-"]
        );
    }

    const MS: Ns = 1_000_000;

    fn key(tid: u32) -> ThreadKey {
        ThreadKey { pid: 7, tid, start: 1 }
    }

    /// An observation of a thread that has run `runs` times, blocked in the frame `at`.
    fn blocked(time: Ns, tid: u32, runs: u64, frame: u64) -> Observation {
        let futex = event::Syscall { number: 202, args: [0; 6] };
        let name = RawName::new(format!("t{tid}").as_bytes());
        Observation {
            counters: Some(event::Counters { run_ns: 1, delay_ns: 0, runs }),
            stack: vec![RawFrame::from_bits(frame)],
            ..Observation::new(time, key(tid), name, event::Seen::Blocked(futex))
        }
    }

    fn mutex(tid: u32) -> RawBlocker {
        let holder = RawHolder::Thread { pid: 7, tid };
        RawBlocker { kind: BlockerKind::Mutex, object: 0x10, class: None, holder }
    }

    /// By holder and its frame: the wall time of waits, and their hits.
    fn waited(view: &View) -> Vec<(u32, u64, u64, u32)> {
        let mut waited = Vec::new();
        view.history.read(Range::Rolling(u64::MAX), view.at, &mut |key, weights| {
            let Some(blocker) = view.tables.blocker(key.blocker) else { return };
            let Holder::Thread { thread, stack, .. } = blocker.holder else { return };
            let frame = view.tables.frame(view.tables.top(stack)).bits();
            waited.push((thread.tid, frame, weights.wall_ns / MS, weights.hits));
        });
        waited
    }

    #[test]
    fn a_holder_is_where_it_was_observed_in_the_same_tick() {
        let mut recorder = Recorder::new(0, Limits::default());
        let waits =
            |time| Observation { blocker: Some(mutex(2)), ..blocked(time, 1, time / MS, 5) };
        recorder.apply(&Event::Observation(blocked(0, 2, 0, 40)));
        recorder.apply(&Event::Observation(waits(0)));
        recorder.apply(&Event::Tick(Tick::new(0, 7)));
        // The waiting thread comes first, its holder is elsewhere in this tick.
        recorder.apply(&Event::Observation(waits(10 * MS)));
        recorder.apply(&Event::Observation(blocked(10 * MS, 2, 9, 41)));
        recorder.apply(&Event::Tick(Tick::new(10 * MS, 7)));
        assert_eq!(waited(&recorder.view()), [(2, 40, 0, 1), (2, 41, 10, 1)]);
        let of_waiting = recorder.view().threads[0].blocker;
        assert_eq!(of_waiting, BlockerId(2));
    }

    #[test]
    fn a_holder_that_ran_since_it_waited_is_not_where_it_was() {
        let mut recorder = Recorder::new(0, Limits::default());
        recorder.apply(&Event::Observation(blocked(0, 2, 0, 40)));
        recorder.apply(&Event::Tick(Tick::new(0, 7)));
        let waits = Observation { blocker: Some(mutex(2)), ..blocked(10 * MS, 1, 1, 5) };
        recorder.apply(&Event::Observation(waits));
        let ran = event::Counters { run_ns: 2, delay_ns: 0, runs: 1 };
        let name = RawName::new(b"t2");
        recorder.apply(&Event::Observation(Observation {
            counters: Some(ran),
            ..Observation::new(10 * MS, key(2), name, event::Seen::Running)
        }));
        recorder.apply(&Event::Tick(Tick::new(10 * MS, 7)));
        recorder.apply(&Event::Tick(Tick::new(20 * MS, 7)));
        let held_in: Vec<u64> = waited(&recorder.view()).iter().map(|held| held.1).collect();
        assert_eq!(held_in.len(), 1);
        assert_ne!(held_in[0], 40, "where it waited before");
    }

    #[test]
    fn two_threads_that_wait_for_each_other_are_each_others_holders() {
        let mut recorder = Recorder::new(0, Limits::default());
        for (tid, other) in [(1, 2), (2, 1)] {
            let waits = blocked(0, tid, 0, u64::from(tid) * 10);
            let waits = Observation { blocker: Some(mutex(other)), ..waits };
            recorder.apply(&Event::Observation(waits));
        }
        recorder.apply(&Event::Tick(Tick::new(0, 7)));
        recorder.apply(&Event::Tick(Tick::new(10 * MS, 7)));
        recorder.apply(&Event::Tick(Tick::new(20 * MS, 7)));
        assert_eq!(waited(&recorder.view()), [(2, 20, 20, 1), (1, 10, 20, 1)]);
    }

    /// A goroutine that was found to wait in the frame `at`, since when its runtime says.
    fn parked(time: Ns, since: Option<Ns>, frame: u64) -> Event {
        let (thread, name) = (ThreadKey::goroutine(7, 21, 1), RawName::new(b"main.work"));
        let seen = event::Seen::Blocked(RawState::Known(State::Lock).parked());
        Event::Observation(Observation {
            stack: vec![RawFrame::from_bits(frame)],
            wait_began: since,
            ..Observation::new(time, thread, name, seen)
        })
    }

    /// Wall time, hits and the longest wait by frame, ms, of goroutines seen at these times, ms,
    /// and ended at the last; and how long they wait by the newest state.
    fn of_goroutines(seen: &[(Ns, Option<Ns>, u64)], end: Ns) -> (Vec<(u64, u64, u32, u64)>, Ns) {
        let mut recorder = Recorder::new(0, Limits::default());
        for at in (0..end).step_by(10) {
            for (_, since, frame) in seen.iter().filter(|(time, ..)| *time == at) {
                recorder.apply(&parked(at * MS, since.map(|since| since * MS), *frame));
            }
            recorder.apply(&Event::Tick(Tick::new(at * MS, 7)));
        }
        let now = recorder.view().threads[0];
        let waits = recorder.view().at - now.since;
        let (at, thread) = (end * MS, now.thread);
        recorder.apply(&Event::ThreadEnded { at, thread, counters: None });
        recorder.apply(&Event::Tick(Tick::new(at, 7)));
        let view = recorder.view();
        let mut found = FxHashMap::<u64, Weights>::default();
        view.history.read(Range::Rolling(u64::MAX), view.at, &mut |key, weights| {
            assert_eq!(key.state, RawState::Known(State::Lock));
            let frame = view.tables.frame(view.tables.top(key.stack)).bits();
            found.entry(frame).or_default().follow(weights);
        });
        let figures =
            |(frame, of): (u64, Weights)| (frame, of.wall_ns / MS, of.hits, of.longest_ns / MS);
        let mut found: Vec<_> = found.into_iter().map(figures).collect();
        found.sort_unstable();
        // It is known as of the tick before the newest one.
        (found, waits / MS / 100 * 100)
    }

    #[test]
    fn where_a_goroutine_was_found_holds_until_it_is_found_elsewhere() {
        let seen = [(0, None, 5), (5_000, None, 6), (10_000, None, 5)];
        assert_eq!(of_goroutines(&seen, 12_000).0, [(5, 7_000, 2, 0), (6, 5_000, 1, 0)]);
    }

    #[test]
    fn waits_of_a_goroutine_are_one_only_if_its_runtime_says_so() {
        let apart = [(0, None, 5), (5_000, None, 5), (10_000, None, 5)];
        assert_eq!(of_goroutines(&apart, 11_000), (vec![(5, 11_000, 3, 0)], 0));
        // A collection at 4 s found it waiting.
        let one = [(0, None, 5), (5_000, Some(4_000), 5), (10_000, Some(4_000), 5)];
        assert_eq!(of_goroutines(&one, 11_000), (vec![(5, 11_000, 2, 5_010)], 5_000));
        // It began before it was seen first.
        let old = [(1_000, Some(500), 5), (6_000, Some(500), 5)];
        assert_eq!(of_goroutines(&old, 7_000), (vec![(5, 6_000, 1, 5_000)], 5_000));
    }

    #[test]
    fn a_wait_goes_on_with_another_holder() {
        let mut recorder = Recorder::new(0, Limits::default());
        recorder.apply(&Event::Observation(blocked(0, 2, 0, 40)));
        recorder.apply(&Event::Observation(blocked(0, 3, 0, 50)));
        let waits = Observation { blocker: Some(mutex(2)), ..blocked(0, 1, 0, 5) };
        recorder.apply(&Event::Observation(waits));
        recorder.apply(&Event::Tick(Tick::new(0, 7)));
        let again = Event::StillBlocked { at: 30 * MS, thread: key(1), blocker: mutex(3) };
        recorder.apply(&again);
        for at in [30, 40, 50] {
            recorder.apply(&Event::Tick(Tick::new(at * MS, 7)));
        }
        let view = recorder.view();
        assert_eq!(waited(&view), [(2, 40, 30, 1), (3, 50, 20, 0)], "one wait");
        assert_eq!(view.threads[0].since, 0);
        // It is observed again without having run: the same wait.
        let waits = Observation { blocker: Some(mutex(2)), ..blocked(55 * MS, 1, 0, 5) };
        recorder.apply(&Event::Observation(waits));
        recorder.apply(&Event::Tick(Tick::new(55 * MS, 7)));
        assert_eq!(recorder.view().threads[0].since, 0);
        // Of a thread that runs by now nothing is known.
        let (ran, name) = (event::Seen::OnCpu, RawName::new(b"t1"));
        recorder.apply(&Event::Observation(Observation::new(60 * MS, key(1), name, ran)));
        recorder.apply(&Event::StillBlocked { at: 61 * MS, thread: key(1), blocker: mutex(2) });
        recorder.apply(&Event::Tick(Tick::new(61 * MS, 7)));
        assert_eq!(recorder.view().threads[0].blocker, BlockerId::NONE);
    }

    #[test]
    fn a_deadlock_has_the_time_at_which_it_was_found() {
        let mut recorder = Recorder::new(0, Limits::default());
        let first = vec![key(1), key(2)];
        recorder.apply(&Event::Deadlocks { at: 5, cycles: vec![first.clone()] });
        recorder.apply(&Event::Deadlocks { at: 9, cycles: vec![vec![key(3)], first] });
        let since: Vec<Ns> = recorder.view().deadlocks.iter().map(|d| d.since).collect();
        assert_eq!(since, [9, 5]);
        recorder.apply(&Event::Deadlocks { at: 12, cycles: Vec::new() });
        assert!(recorder.view().deadlocks.is_empty());
    }
}
