//! Facts: who spent how much time where, per bucket of time.

use super::frame::{Ns, ThreadKey};
use super::state::RawState;
use super::tables::{NameId, StackId};

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
    /// 1 for a wait that was already open when the bucket began: counted only in a range's first bucket.
    pub open: u32,
    /// The longest unbroken wait, ns, and when it began.
    pub longest_ns: u64,
    pub longest_from: Ns,
}

/// All buckets that are kept, and the cumulative table. Cloning costs pointers.
#[derive(Clone, Debug, Default)]
pub struct History {}
