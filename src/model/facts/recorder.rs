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
mod tests;
