//! Facts per bucket of time, as a snapshot reads them.

use std::sync::Arc;

pub use super::fact::{Fact, FactKey, Weights};
use super::fact_table::FactChunks;
use super::frame::Ns;
use super::settings::Range;

/// One span of time and its facts.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    pub start: Ns,
    pub end: Ns,
    pub facts: FactChunks,
}

/// All buckets that are kept, and the cumulative table. Cloning costs pointers.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub(super) started: Ns,
    /// Time up to which facts are booked.
    pub(super) at: Ns,
    pub(super) open: Arc<[Bucket]>,
}

impl History {
    /// Calls `f` with every fact of `range`, a rolling one ending at `at`; the same key may come several times (once
    /// per bucket). `open` is already added to `hits` where it counts (in the range's first bucket), and zero.
    ///
    /// Returns what was read, `(from, till)`: the start is widened to the start of the bucket it falls into (1 s; 10 s
    /// and 1 min for what is older than 10 minutes, an hour), or is the oldest that is kept.
    pub fn read(&self, range: Range, at: Ns, f: &mut dyn FnMut(&FactKey, &Weights)) -> (Ns, Ns) {
        let at = at.min(self.at).max(self.started);
        let wanted = match range {
            Range::Rolling(window) => at.saturating_sub(window),
            Range::Cumulative { since } => since.unwrap_or(0),
        };
        let mut read: Option<(Ns, Ns)> = None;
        for bucket in self.open.iter().filter(|b| b.end > wanted && b.start < at) {
            let first = read.is_none();
            let (from, _) = read.unwrap_or((bucket.start, 0));
            read = Some((from, bucket.end.min(self.at)));
            for (key, weights) in bucket.facts.iter() {
                let mut weights = *weights;
                if first {
                    weights.hits = weights.hits.saturating_add(weights.open);
                }
                weights.open = 0;
                f(key, &weights);
            }
        }
        read.unwrap_or((at, at))
    }
}
