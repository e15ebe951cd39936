//! One thread's account: its last observation, and its time that is not booked yet.

mod booking;

use std::collections::VecDeque;

use crate::model::facts::buckets::{Buckets, Split};
use crate::model::facts::fact::FactKey;
use crate::model::facts::interner::Carrier;
use crate::model::facts::ledger::Ledger;
use crate::model::facts::snapshot::ThreadNow;
use crate::model::facts::span_log::Span;
use crate::model::facts::tables::{BlockerId, NameId, StackId};
use crate::model::facts::unsampled::{CARRY, Unsampled, Weighed};
use crate::model::vocabulary::event::{Counters, Syscall};
use crate::model::vocabulary::frame::{Ns, SECOND, ThreadKey};
use crate::model::vocabulary::state::{RawState, State};

/// Maximum lag of a running thread's counters: one kernel tick, at HZ=100.
pub const COUNTER_LAG: Ns = SECOND / 100;

/// Maximum samples that wait for CPU time; further ones (no counters arrived for long) are hits
/// without CPU time.
const MAX_SAMPLES: usize = 4_096;

const RUN: RawState = RawState::Known(State::Run);
const READY: RawState = RawState::Known(State::Rdy);
const WAIT: RawState = RawState::Known(State::Wait);

/// The marker stacks for time without a stack.
#[derive(Clone, Copy, Debug)]
pub struct Markers {
    pub cpu_not_sampled: StackId,
    pub kernel_not_visible: StackId,
    pub not_observed: StackId,
    pub not_run_yet: StackId,
    pub not_sampled: StackId,
    pub threads_gone: StackId,
}

/// Parameters of all accounts.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub markers: Markers,
    /// Whether the backend sees kernel time.
    pub kernel_visible: bool,
    /// The interval in force, ns.
    pub interval: Ns,
    /// See [`crate::model::vocabulary::event::Tick::visit_interval_ns`].
    pub visit: Option<Ns>,
}

impl Rules {
    /// Returns the maximum time between observations, ns. Beyond it the thread's activity is
    /// unknown.
    pub fn longest_gap(&self) -> Ns {
        let visit = self.visit.unwrap_or(0);
        SECOND.max(self.interval.saturating_mul(5)).max(visit.saturating_mul(3))
    }
}

/// An observation with interned names and stacks.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub at: Ns,
    pub name: NameId,
    pub what: What,
    pub counters: Option<Counters>,
    /// rbp was recovered by search.
    pub recovered: bool,
    /// See [`crate::model::facts::unsampled::Kind::of`]; 0 without a stack.
    pub work: u64,
}

#[derive(Clone, Copy, Debug)]
pub enum What {
    Running,
    OnCpu(StackId),
    /// Runnable in this stack, but not on a core.
    Ready(StackId),
    Waits {
        stack: StackId,
        state: RawState,
        syscall: Option<Syscall>,
        blocker: BlockerId,
        /// See [`crate::model::vocabulary::event::Observation::wait_began`].
        began: Option<Ns>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    Unknown,
    Ran { stack: StackId, at: Ns, state: RawState },
    Waits(Wait),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wait {
    stack: StackId,
    state: RawState,
    from: Ns,
    syscall: Option<Syscall>,
    blocker: BlockerId,
    /// Of a goroutine: up to when it is proven to be one wait. It is observed too seldom for that,
    /// unless its runtime says when it began. Any other thread's wait is one.
    proven: Option<Ns>,
}

impl Wait {
    /// Returns the start of the unbroken wait, if time that is booked belongs to it.
    fn unbroken(&self) -> Option<Ns> {
        self.proven.is_none().then_some(self.from)
    }
}

/// Wall time before `settled` that is not booked: by its counters the thread has waited that long,
/// and no wait was observed.
#[derive(Clone, Copy, Default)]
struct Owed {
    /// The reading since which there is some.
    from: Ns,
    wall: Ns,
}

/// CPU time that no sample stands for yet.
#[derive(Clone, Copy)]
struct Carried {
    /// Time of the reading.
    at: Ns,
    cpu: Ns,
    /// How much of it is wall time that is not booked.
    wall: Ns,
}

/// An on-CPU sample without CPU time so far.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub at: Ns,
    pub name: NameId,
    pub stack: StackId,
}

/// Results for which other accounts are needed, since they were last taken.
#[derive(Default)]
pub struct Outcome {
    /// CPU time counted since the first observation.
    pub ran: Ns,
    /// Samples that got CPU time.
    pub weighed: Vec<Weighed>,
    /// Samples that no counter of the thread covers: only the process's clock counts their CPU
    /// time.
    pub unweighed: Vec<Sample>,
    /// Time that no sample of the thread covers.
    pub unsampled: Vec<Unsampled>,
}

pub struct Thread {
    key: ThreadKey,
    name: NameId,
    /// Wall time is booked, carried or owed up to this time.
    settled: Ns,
    /// The last observation of any kind.
    observed: Ns,
    /// The last observation was [`What::Running`].
    running: bool,
    /// The thread, unless it waits, is on a core as far as is known.
    on_core: bool,
    /// The thread was sampled since `decided`.
    sampled: bool,
    /// Time of the last decision about `on_core`, and the thread's run time then.
    decided: (Ns, Ns),
    /// The thread has run since the observation in `doing`.
    moved: bool,
    /// See [`Seen::work`]; of the newest stack.
    work: u64,
    /// Number of the process's ticks before the last observation.
    ticks: u64,
    doing: Doing,
    /// A span without observations that was reported.
    gap: Option<(Ns, Ns)>,
    counters: Option<Counters>,
    owed: Owed,
    /// Run delay that is not booked.
    delay: Ns,
    samples: Vec<Sample>,
    /// Oldest first.
    carried: VecDeque<Carried>,
    /// The next difference of counters covers this span without observations.
    unseen_cpu: Option<(Ns, Ns)>,
    outcome: Outcome,
    ledger: Ledger,
    /// rbp was recovered by search for the stack in `doing`.
    recovered: bool,
}

impl Thread {
    /// Starts an account at the first observation; `ticks`: number of the process's ticks so far.
    pub fn new(key: ThreadKey, seen: &Seen, ticks: u64) -> Thread {
        Thread {
            key,
            name: seen.name,
            settled: seen.at,
            observed: seen.at,
            running: false,
            on_core: false,
            sampled: false,
            decided: (seen.at, 0),
            moved: true,
            work: 0,
            ticks,
            doing: Doing::Unknown,
            gap: None,
            counters: None,
            owed: Owed::default(),
            delay: 0,
            samples: Vec::new(),
            carried: VecDeque::new(),
            unseen_cpu: None,
            outcome: Outcome::default(),
            ledger: Ledger::new(seen.at),
            recovered: false,
        }
    }

    fn fact(&self, stack: StackId, state: RawState) -> FactKey {
        FactKey::new(self.key, self.name, stack, state)
    }

    /// Returns whether the thread had not been put on a core since it was created.
    fn not_run_yet(&self) -> bool {
        // After a span without counters it may have run.
        self.doing == Doing::Unknown
            && self.unseen_cpu.is_none()
            && self.counters.is_some_and(|counters| counters.runs == 0)
    }

    fn wait_fact(&self, wait: &Wait) -> FactKey {
        FactKey { blocker: wait.blocker, ..self.fact(wait.stack, wait.state) }
    }

    /// Returns the results since the last call.
    pub fn take_outcome(&mut self) -> Outcome {
        std::mem::take(&mut self.outcome)
    }

    pub fn key(&self) -> ThreadKey {
        self.key
    }

    /// Returns the newest spans of its booked time, which may still grow.
    pub fn growing_spans(&self) -> &[Span] {
        self.ledger.growing()
    }

    pub fn name(&self) -> NameId {
        self.name
    }

    /// See [`Seen::work`].
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Books the time without observations: the thread was blocked and did not run until the newest
    /// tick (number `ticks`, at `tick`).
    pub fn silent(&mut self, ticks: u64, tick: Ns, buckets: &mut Buckets) {
        let Doing::Waits(wait) = self.doing else { return };
        if self.running || ticks < self.ticks + 2 || tick <= self.settled {
            return;
        }
        let key = self.wait_fact(&wait);
        self.ledger.wall(&key, self.settled, tick, 0, wait.unbroken(), buckets);
        self.settled = tick;
        self.observed = self.observed.max(tick);
        if self.gap.is_some_and(|(_, till)| till <= tick) {
            self.gap = None;
        }
    }

    /// Books the time of the wait up to `at`, at which it was proven to go on. From then on its
    /// blocker is this one.
    pub fn still_blocked(&mut self, at: Ns, blocker: BlockerId, buckets: &mut Buckets) {
        let Doing::Waits(wait) = self.doing else { return };
        if self.running {
            return;
        }
        if self.settled < at {
            let key = self.wait_fact(&wait);
            self.ledger.wall(&key, self.settled, at, 0, wait.unbroken(), buckets);
            self.settled = at;
            self.observed = self.observed.max(at);
        }
        self.doing = Doing::Waits(Wait { blocker, ..wait });
    }

    /// Records a span without observations.
    pub fn gap(&mut self, from: Ns, till: Ns) {
        let from = from.max(self.observed);
        if from < till {
            let before = self.gap.map_or(from, |(before, _)| before);
            self.gap = Some((before.min(from), till));
        }
    }

    /// Books an observation. [`Thread::silent`] must have booked the time before.
    pub fn observe(&mut self, seen: &Seen, ticks: u64, rules: &Rules, buckets: &mut Buckets) {
        // An observation older than the last one gets the last one's time. So it has no wall time,
        // and does not change the later state.
        let waits = matches!(self.doing, Doing::Waits(_));
        let newest = self.settled.max(self.observed);
        let late =
            seen.at < newest || (waits && seen.at == newest && matches!(seen.what, What::OnCpu(_)));
        let at = seen.at.max(self.settled);
        let unmoved = self.unmoved(seen);
        if let Some((from, till)) = self.unseen(at, rules)
            && !unmoved
        {
            self.skip(from, till, seen.counters, rules, buckets);
        }
        self.name = seen.name;
        if seen.work != 0 {
            self.work = seen.work;
        }
        self.place_on_core(seen);
        if !late && !matches!(seen.what, What::Running) {
            self.recovered = seen.recovered;
        }
        match seen.what {
            What::Running => {}
            What::OnCpu(stack) => {
                if self.samples.is_empty() {
                    self.expire(at.saturating_sub(CARRY + 1), rules, buckets);
                }
                self.sample(stack, at, late, buckets);
            }
            What::Ready(stack) if !late => {
                self.doing = Doing::Ran { stack, at, state: READY };
            }
            What::Waits { stack, state, syscall, blocker, began } if !late => {
                let same =
                    matches!(self.doing, Doing::Waits(w) if w.stack == stack && w.state == state);
                // After a gap no more is known than its end.
                let newest = self.settled.max(self.observed.min(at));
                // Counters were read when it was seen waiting, not with a sample.
                let is_one_of_many = rules.visit.is_some() || waits && self.runs_since(seen) > 1;
                let from = began.unwrap_or_else(|| match is_one_of_many {
                    true => at - self.mean_wait(seen, at - newest),
                    false => newest,
                });
                let from = from.clamp(newest, at);
                let proven = self.key.is_goroutine().then_some(at);
                let mut wait = Wait { stack, state, from, syscall, blocker, proven };
                match self.doing {
                    // One wait goes on, whoever holds what it is for.
                    Doing::Waits(before) if same && unmoved => wait.from = before.from,
                    Doing::Waits(before @ Wait { proven: Some(proven), .. })
                        if same && began.is_some_and(|began| began <= before.from) =>
                    {
                        wait = Wait { from: before.from, ..wait };
                        buckets.note_wait(&self.wait_fact(&wait), proven, at, wait.from);
                    }
                    _ => {
                        let key = self.wait_fact(&wait);
                        self.ledger.count(&key, wait.from, 0, 1, 0, buckets);
                    }
                }
                self.doing = Doing::Waits(wait);
                self.moved = seen.counters.is_none();
            }
            What::Ready(_) | What::Waits { .. } => {}
        }
        if seen.at >= self.observed {
            self.observed = seen.at;
            self.running = matches!(seen.what, What::Running);
            self.ticks = ticks;
        }
        let seen_off_core = !late && matches!(seen.what, What::Waits { .. } | What::Ready(_));
        if let Some(counters) = seen.counters {
            self.settle(counters, at, seen_off_core, rules, buckets);
            if !rules.kernel_visible {
                self.in_kernel(rules, buckets);
            }
        } else if seen_off_core {
            self.book_span(at, buckets);
        }
    }

    /// Decides whether a runnable thread is on a core: only then its state is `run`.
    /// A thread sampled since the last decision was on one, and one that ran for at least half of
    /// the time probably is. One that was woken and has run since is on one, too. The counters of a
    /// thread on a core lag by up to a kernel tick. So if they did not move, the last decision is
    /// kept for half of that.
    fn place_on_core(&mut self, seen: &Seen) {
        if matches!(seen.what, What::OnCpu(_)) {
            (self.on_core, self.sampled) = (true, true);
        }
        let Some(now) = seen.counters else { return };
        let Some(before) = self.counters else {
            (self.on_core, self.decided) = (now.runs > 0, (seen.at, now.run_ns));
            return;
        };
        let moved = now.run_ns != before.run_ns || now.runs != before.runs;
        let woken = matches!(self.doing, Doing::Waits(_)) && !self.running;
        let (at, run_ns) = self.decided;
        let span = seen.at.saturating_sub(at);
        if moved || span >= COUNTER_LAG / 2 {
            let ran = now.run_ns.saturating_sub(run_ns);
            self.on_core = self.sampled || ran.saturating_mul(2) >= span || (woken && moved);
            (self.sampled, self.decided) = (false, (seen.at, now.run_ns));
        }
        self.moved |= moved;
    }

    /// Returns the span before `at` without observations, if any.
    fn unseen(&mut self, at: Ns, rules: &Rules) -> Option<(Ns, Ns)> {
        if at.saturating_sub(self.observed) > rules.longest_gap() {
            self.gap = None;
            return Some((self.observed, at));
        }
        let (from, till) = self.gap.filter(|(from, _)| *from < at)?;
        self.gap = None;
        Some((from, till.min(at)))
    }

    /// Returns whether counters prove that the thread waited from the last observation to this one
    /// and did not run.
    fn unmoved(&self, seen: &Seen) -> bool {
        let waits = matches!(self.doing, Doing::Waits(_))
            && !self.running
            && matches!(seen.what, What::Waits { .. });
        let (Some(before), Some(now)) = (self.counters, seen.counters) else { return false };
        waits && before.run_ns == now.run_ns && before.runs == now.runs
    }

    /// Returns how often the thread was put on a core since the last reading of its counters.
    fn runs_since(&self, seen: &Seen) -> u64 {
        let (Some(before), Some(now)) = (self.counters, seen.counters) else { return 0 };
        now.runs.saturating_sub(before.runs)
    }

    /// Returns how long a wait of the last `span` took on average, by the counters, ns: the one at
    /// its start, and one after each run.
    fn mean_wait(&self, seen: &Seen, span: Ns) -> Ns {
        let (Some(before), Some(now)) = (self.counters, seen.counters) else { return 0 };
        let busy = |c: &Counters| c.run_ns.saturating_add(c.delay_ns);
        let waited = span.saturating_sub(busy(&now).saturating_sub(busy(&before)));
        waited / (self.runs_since(seen) + 1)
    }

    fn sample(&mut self, stack: StackId, at: Ns, late: bool, buckets: &mut Buckets) {
        let key = self.fact(stack, RUN);
        self.ledger.count(&key, at, 0, 1, 1, buckets);
        if self.samples.len() < MAX_SAMPLES {
            self.samples.push(Sample { at, name: self.name, stack });
        }
        if !late {
            self.doing = Doing::Ran { stack, at, state: RUN };
        }
    }

    /// Runs once a second: books all that has waited for longer than [`CARRY`].
    pub fn keep_house(&mut self, now: Ns, rules: &Rules, buckets: &mut Buckets) {
        let before = now.saturating_sub(CARRY);
        self.expire(before, rules, buckets);
        if self.owed.from <= before {
            self.book_owed(Ns::MAX, rules, buckets);
        }
        self.samples.retain(|sample| sample.at > before);
        // The thread was running in all observations, but never sampled.
        if self.running && self.settled <= before && self.settled < self.observed {
            self.rest(self.observed, rules, buckets);
        }
    }

    /// Where visits are rationed, the thread may have run since its last one: the time up to `at`
    /// makes its wait no longer.
    fn doubt_wait(&mut self, at: Ns, rules: &Rules) {
        if let Doing::Waits(wait) = &mut self.doing
            && rules.visit.is_some()
        {
            wait.from = at;
        }
    }

    /// Books a span without observations. Only its CPU time and run delay are known.
    fn skip(
        &mut self,
        from: Ns,
        till: Ns,
        counters: Option<Counters>,
        rules: &Rules,
        buckets: &mut Buckets,
    ) {
        self.doubt_wait(till, rules);
        self.book_owed(Ns::MAX, rules, buckets);
        self.rest(from.min(till), rules, buckets);
        self.expire(Ns::MAX, rules, buckets);
        self.samples.clear();
        let from = from.max(self.settled);
        let length = till.saturating_sub(from);
        let (mut ran, mut delayed) = (0, 0);
        if let (Some(before), Some(now)) = (self.counters, counters) {
            ran = now.run_ns.saturating_sub(before.run_ns);
            delayed = now.delay_ns.saturating_sub(before.delay_ns);
            self.outcome.ran += ran;
            self.counters = Some(now);
        } else {
            self.unseen_cpu = Some((from, till));
        }
        let running = ran.min(length);
        let ready = delayed.min(length - running);
        let parts = [(RUN, running, ran), (READY, ready, 0), (WAIT, length - running - ready, 0)];
        for (state, wall, cpu) in parts {
            let key = self.fact(rules.markers.not_observed, state);
            self.ledger.spread(&key, from, till, wall, cpu, buckets);
        }
        self.settled = self.settled.max(till);
        self.doing = Doing::Unknown;
    }

    /// Books all time up to `at`, at the thread's exit or exec. [`Thread::silent`] must have booked
    /// before.
    pub fn finish(
        &mut self,
        at: Ns,
        counters: Option<Counters>,
        rules: &Rules,
        buckets: &mut Buckets,
    ) {
        let at = at.max(self.settled);
        self.doubt_wait(at, rules);
        if let Some((from, _)) = self.unseen(at, rules) {
            self.skip(from, at, counters, rules, buckets);
        }
        if let Some(counters) = counters {
            self.settle(counters, at, false, rules, buckets);
        }
        self.book_owed(Ns::MAX, rules, buckets);
        self.rest(at, rules, buckets);
        self.expire(Ns::MAX, rules, buckets);
        // Samples after the last counters.
        self.outcome.unweighed.append(&mut self.samples);
        self.ledger.finish(buckets);
        self.doing = Doing::Unknown;
        self.observed = self.observed.max(at);
    }

    /// Replaces ids of stacks and names, which have changed.
    pub fn renumber(&mut self, carrier: &mut Carrier<'_>) {
        self.ledger.forget();
        self.name = carrier.name(self.name);
        match &mut self.doing {
            Doing::Unknown => {}
            Doing::Ran { stack, .. } => *stack = carrier.stack(*stack),
            Doing::Waits(wait) => {
                wait.stack = carrier.stack(wait.stack);
                wait.blocker = carrier.blocker(wait.blocker);
            }
        }
        for sample in &mut self.samples {
            (sample.name, sample.stack) = (carrier.name(sample.name), carrier.stack(sample.stack));
        }
    }

    /// Returns the current state, for the header, the waits and a dump. `tick`: the newest one. A
    /// wait has lasted from `since` to then as long as it is known to: between rationed visits the
    /// thread may have run.
    pub fn now(&self, rules: &Rules, tick: Ns) -> ThreadNow {
        let runnable = if self.on_core { RUN } else { READY };
        let (stack, state, since, syscall) = match self.doing {
            Doing::Waits(wait) if !self.running => {
                (wait.stack, wait.state, wait.from, wait.syscall)
            }
            Doing::Waits(wait) if !self.moved => (wait.stack, READY, wait.from, None),
            Doing::Ran { stack, at, state } => {
                (stack, if state == READY { READY } else { runnable }, at, None)
            }
            _ if self.not_run_yet() => (rules.markers.not_run_yet, READY, self.observed, None),
            _ => (rules.markers.not_sampled, runnable, self.observed, None),
        };
        let proven = match self.doing {
            Doing::Waits(wait) => wait.proven,
            _ => None,
        };
        let since = match rules.visit {
            _ if proven.is_some() => since + tick.saturating_sub(proven.unwrap_or(tick)),
            Some(_) => since + tick.saturating_sub(self.settled.max(since)),
            None => since,
        };
        let run_ns = self.counters.map_or(0, |counters| counters.run_ns);
        let recovered = self.recovered && stack != rules.markers.not_sampled;
        ThreadNow {
            thread: self.key,
            name: self.name,
            stack,
            state,
            since,
            syscall,
            blocker: match self.doing {
                Doing::Waits(wait) if !self.running => wait.blocker,
                _ => BlockerId::NONE,
            },
            run_ns,
            recovered,
        }
    }
}
