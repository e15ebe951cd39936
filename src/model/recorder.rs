//! Events in, snapshots out: interning, weighing and history tied together. Pure: time is what the events say.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fact::FactKey;
use super::fact_table::FactTable;
use super::facts::{Bucket, History};
use super::frame::{Event, Look, Losses, Ns, RawFrame, SECOND, Seen, ThreadKey};
use super::interner::{Interner, MAX_STACKS};
use super::snapshot::ThreadNow;
use super::state::{RawState, State};
use super::tables::{NameId, Named, StackId, Tables};

/// Bounds of what is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// All history, the cumulative table included, bytes.
    pub history_bytes: usize,
    /// Facts of a sealed bucket.
    pub facts_per_bucket: usize,
    /// Facts of the cumulative table.
    pub cumulative_facts: usize,
    /// Nodes of the stack tree, and frames.
    pub stacks: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { history_bytes: 64 << 20, facts_per_bucket: 2_000, cumulative_facts: 100_000, stacks: MAX_STACKS }
    }
}

/// Everything a snapshot says about the measurement. Cloning costs pointers.
#[derive(Clone, Debug)]
pub struct View {
    /// Time up to which facts are booked: the newest tick.
    pub at: Ns,
    pub tables: Tables,
    pub history: History,
    /// In the order of their keys.
    pub threads: Arc<[ThreadNow]>,
    pub ticks: u64,
    /// The newest tick's.
    pub losses: Losses,
    /// Facts folded into `(other)`, stacks that found the tables full included.
    pub folded_facts: u64,
    pub dropped_buckets: u64,
    pub late_p99_ns: u64,
    /// Mean over the last 5 s.
    pub interval_achieved_ns: u64,
}

struct Thread {
    last: Ns,
    name: NameId,
    stack: StackId,
    state: RawState,
    since: Ns,
    syscall: Option<super::frame::Syscall>,
    run_ns: u64,
    recovered: bool,
}

pub struct Recorder {
    started: Ns,
    at: Ns,
    interner: Interner,
    threads: BTreeMap<ThreadKey, Thread>,
    buckets: Vec<FactTable>,
    ticks: u64,
    losses: Losses,
}

impl Recorder {
    pub fn new(started: Ns, limits: Limits) -> Recorder {
        Recorder {
            started,
            at: started,
            interner: Interner::new(limits.stacks),
            threads: BTreeMap::new(),
            buckets: Vec::new(),
            ticks: 0,
            losses: Losses::default(),
        }
    }

    /// Whether the way of capture sees a thread's kernel time; where it does not, run time without a sample is
    /// `[in kernel, not visible]`, else `[cpu, not sampled]`.
    pub fn set_kernel_visible(&mut self, visible: bool) {
        let _ = visible;
    }

    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Look(look) => self.look(look),
            Event::Tick(tick) => {
                self.at = self.at.max(tick.at);
                self.ticks += 1;
                self.losses = tick.losses;
            }
            Event::ThreadEnded { thread, .. } => {
                self.threads.remove(thread);
            }
            Event::ProcessEnded { pid, .. } => self.threads.retain(|key, _| key.pid != *pid),
            Event::Exec { .. } | Event::Gap { .. } => {}
        }
    }

    fn bucket(&mut self, at: Ns) -> (&mut FactTable, Ns) {
        let n = (at.saturating_sub(self.started) / SECOND) as usize;
        while self.buckets.len() <= n {
            self.buckets.push(FactTable::default());
        }
        (&mut self.buckets[n], self.started + (n as u64 + 1) * SECOND)
    }

    fn look(&mut self, look: &Look) {
        let name = self.interner.name(look.name);
        let (state, cpu) = match look.seen {
            Seen::Running => return,
            Seen::OnCpu => (RawState::Known(State::Run), true),
            Seen::Blocked(call) => (RawState::of_blocked(call), false),
            Seen::Disk(_) => (RawState::Known(State::Disk), false),
            Seen::Stopped => (RawState::Known(State::Stopped), false),
        };
        let stack = self.interner.stack(&look.stack);
        let syscall = match look.seen {
            Seen::Blocked(call) => Some(call),
            Seen::Disk(call) => call,
            _ => None,
        };
        let key = FactKey { thread: look.thread, name, stack, state };
        let run_ns = look.counters.map(|c| c.run_ns);
        let before = self.threads.get(&look.thread);
        let (mut from, was) = before.map_or((look.at, run_ns), |t| (t.last, Some(t.run_ns)));
        let ran = run_ns.unwrap_or(0).saturating_sub(was.unwrap_or(0));
        self.threads.insert(
            look.thread,
            Thread {
                last: look.at.max(from),
                name,
                stack,
                state,
                since: look.at,
                syscall,
                run_ns: run_ns.or(was).unwrap_or(0),
                recovered: look.recovered,
            },
        );
        let (table, _) = self.bucket(look.at);
        let weights = table.entry(&key);
        weights.hits += 1;
        weights.cpu_hits += u32::from(cpu);
        weights.cpu_ns += ran;
        while from < look.at {
            let (table, edge) = self.bucket(from);
            let till = edge.min(look.at);
            table.entry(&key).wall_ns += till - from;
            from = till;
        }
    }

    /// Frames that were interned since the last call and want a name (markers without a file have theirs).
    pub fn take_unnamed(&mut self) -> Vec<RawFrame> {
        self.interner.take_unnamed()
    }

    pub fn set_named(&mut self, frame: RawFrame, named: Named) {
        self.interner.set_named(frame, named);
    }

    /// Books what is still open; sampling ended at `at`.
    pub fn close(&mut self, at: Ns) {
        self.at = self.at.max(at);
    }

    pub fn view(&mut self) -> View {
        let open: Vec<Bucket> = self
            .buckets
            .iter()
            .enumerate()
            .map(|(n, table)| {
                let start = self.started + n as u64 * SECOND;
                Bucket { start, end: start + SECOND, facts: table.facts().clone() }
            })
            .collect();
        View {
            at: self.at,
            tables: self.interner.tables(),
            history: History { started: self.started, at: self.at, open: open.into() },
            threads: self
                .threads
                .iter()
                .map(|(thread, t)| ThreadNow {
                    thread: *thread,
                    name: t.name,
                    stack: t.stack,
                    state: t.state,
                    since: t.since,
                    syscall: t.syscall,
                    run_ns: t.run_ns,
                    recovered: t.recovered,
                })
                .collect(),
            ticks: self.ticks,
            losses: self.losses,
            folded_facts: self.interner.refused(),
            dropped_buckets: 0,
            late_p99_ns: 0,
            interval_achieved_ns: 0,
        }
    }
}
