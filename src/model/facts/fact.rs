//! One fact: who spent how much time where.

use crate::model::facts::tables::{NameId, StackId};
use crate::model::vocabulary::frame::{Ns, ThreadKey};
use crate::model::vocabulary::state::RawState;

/// What a fact is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FactKey {
    pub thread: ThreadKey,
    /// The thread's name *then*.
    pub name: NameId,
    pub stack: StackId,
    pub state: RawState,
}

/// What is known of it; sums over facts and over buckets are exact.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weights {
    pub wall_ns: u64,
    pub cpu_ns: u64,
    /// Independent observations: on-CPU samples, and waits that *began* in this bucket.
    pub hits: u32,
    /// Of `hits`, on-CPU samples.
    pub cpu_hits: u32,
    /// 1 for a wait that was already open when the bucket began: counted only in a range's first
    /// bucket.
    pub open: u32,
    /// The longest unbroken wait, ns, and when it began.
    pub longest_ns: u64,
    pub longest_from: Ns,
}

impl Weights {
    /// Adds what belongs to the same bucket: `open` adds up.
    pub fn add(&mut self, more: &Weights) {
        let open = self.open.saturating_add(more.open);
        self.follow(more);
        self.open = open;
    }

    /// Adds what came in a later bucket: its `open` waits are hits, or open, here already.
    pub fn follow(&mut self, later: &Weights) {
        self.wall_ns = self.wall_ns.saturating_add(later.wall_ns);
        self.cpu_ns = self.cpu_ns.saturating_add(later.cpu_ns);
        self.hits = self.hits.saturating_add(later.hits);
        self.cpu_hits = self.cpu_hits.saturating_add(later.cpu_hits);
        self.longest(later.longest_ns, later.longest_from);
    }

    /// Keeps the longer wait; of equals the earlier.
    pub fn longest(&mut self, ns: u64, from: Ns) {
        if ns > self.longest_ns || (ns == self.longest_ns && from < self.longest_from) {
            (self.longest_ns, self.longest_from) = (ns, from);
        }
    }
}

/// Threads that died at least a minute ago are one thread per name: this one.
pub fn merged_thread(pid: u32) -> ThreadKey {
    ThreadKey::unknown(pid)
}

pub type Fact = (FactKey, Weights);
