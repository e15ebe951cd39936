//! A fact: the time of one thread in one stack and state.

use crate::model::facts::tables::{BlockerId, NameId, StackId};
use crate::model::vocabulary::frame::{Ns, ThreadKey};
use crate::model::vocabulary::state::RawState;

/// The key of a fact.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FactKey {
    pub thread: ThreadKey,
    /// The thread's name at that time.
    pub name: NameId,
    pub stack: StackId,
    pub state: RawState,
    /// What the thread waits for, where that is known.
    pub blocker: BlockerId,
}

impl FactKey {
    /// Returns the key of a fact without a known blocker.
    pub fn new(thread: ThreadKey, name: NameId, stack: StackId, state: RawState) -> FactKey {
        FactKey { thread, name, stack, state, blocker: BlockerId::NONE }
    }

    /// Returns whether it is of threads that were never observed. Only CPU time is known of them:
    /// from samples, and from the process's clock. They lived at least that long, so that is their
    /// wall time, too.
    pub fn is_of_unobserved(&self) -> bool {
        self.name == NameId::EXITED && self.thread.is_unknown()
    }
}

/// The figures of a fact. Their sums over facts and over buckets are exact.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weights {
    pub wall_ns: u64,
    pub cpu_ns: u64,
    /// Independent observations: on-CPU samples, and waits that *began* in this bucket.
    pub hits: u32,
    /// Of `hits`, on-CPU samples.
    pub cpu_hits: u32,
    /// 1 for a wait that had begun before the bucket: counted only in the first bucket of a range.
    pub open: u32,
    /// The longest unbroken wait, ns, and its start.
    pub longest_ns: u64,
    pub longest_from: Ns,
}

impl Weights {
    /// Adds a fact of the same bucket: sums `open`.
    pub fn add(&mut self, more: &Weights) {
        let open = self.open.saturating_add(more.open);
        self.follow(more);
        self.open = open;
    }

    /// Adds a fact of a later bucket. Its `open` waits are counted in this one already, as `hits`
    /// or `open`.
    pub fn follow(&mut self, later: &Weights) {
        self.wall_ns = self.wall_ns.saturating_add(later.wall_ns);
        self.cpu_ns = self.cpu_ns.saturating_add(later.cpu_ns);
        self.hits = self.hits.saturating_add(later.hits);
        self.cpu_hits = self.cpu_hits.saturating_add(later.cpu_hits);
        self.longest(later.longest_ns, later.longest_from);
    }

    /// Keeps the longer wait; of equal ones the earlier.
    pub fn longest(&mut self, ns: u64, from: Ns) {
        if ns > self.longest_ns || (ns == self.longest_ns && from < self.longest_from) {
            (self.longest_ns, self.longest_from) = (ns, from);
        }
    }
}

/// Returns the key that stands for all threads of a name that exited at least a minute ago.
pub fn merged_thread(pid: u32) -> ThreadKey {
    ThreadKey::unknown(pid)
}

pub type Fact = (FactKey, Weights);
