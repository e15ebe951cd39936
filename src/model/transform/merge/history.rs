//! Joins the buckets of several profiles, within the limits of one.
//!
//! Buckets without overlap are kept. Overlapping ones are merged into spans as wide as the widest
//! of them. Each goes to the span that contains its middle: it is displaced by less than a span,
//! and no total changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::facts::fact::{Fact, FactKey, Weights};
use crate::model::facts::fact_table::{BYTES_PER_FACT, FactTable, fold, rename};
use crate::model::facts::packed::Packed;
use crate::model::facts::recorder::Limits;
use crate::model::facts::tables::{NameId, StackId};
use crate::model::vocabulary::frame::Ns;

pub(super) struct Joined {
    limits: Limits,
    other: StackId,
    /// Group by name.
    groups: Vec<NameId>,
    /// Ordered by time; none overlaps another.
    buckets: Vec<Arc<Packed>>,
    cumulative: FactTable,
    pub folded: u64,
    pub dropped: u64,
}

impl Joined {
    pub fn new(limits: Limits, other: StackId) -> Joined {
        Joined {
            limits,
            other,
            groups: Vec::new(),
            buckets: Vec::new(),
            cumulative: FactTable::default(),
            folded: 0,
            dropped: 0,
        }
    }

    /// Adds the groups of new names. Facts are folded by group if there are too many names.
    pub fn set_groups(&mut self, groups: &[NameId]) {
        self.groups.extend(groups.get(self.groups.len()..).unwrap_or_default());
    }

    /// Adds to the cumulative table.
    pub fn add_to_all(&mut self, key: &FactKey, weights: &Weights) {
        self.cumulative.entry(key).add(weights);
        let most = (self.limits.history_bytes / 4 / BYTES_PER_FACT)
            .min(self.limits.cumulative_facts)
            .max(64);
        if self.cumulative.len() > most {
            self.folded +=
                self.cumulative.fold(most / 4 * 3, most / 4 * 3, self.other, &self.groups);
        }
    }

    /// Adds the buckets of one profile.
    pub fn join(&mut self, buckets: Vec<Arc<Packed>>) {
        let known = std::mem::take(&mut self.buckets);
        let mut all: Vec<(Arc<Packed>, Of)> =
            known.into_iter().map(|bucket| (bucket, Of::Known)).collect();
        all.extend(buckets.into_iter().map(|bucket| (bucket, Of::New)));
        all.sort_by_key(|(bucket, _)| (bucket.start, bucket.end));
        let mut together: Vec<(Arc<Packed>, Of)> = Vec::new();
        let mut till = 0;
        for (bucket, of) in all {
            if bucket.start >= till {
                self.put(std::mem::take(&mut together));
            }
            till = till.max(bucket.end);
            together.push((bucket, of));
        }
        self.put(together);
        self.bound();
    }

    /// Adds buckets that overlap each other, but no others.
    fn put(&mut self, together: Vec<(Arc<Packed>, Of)>) {
        let starts = together.iter().map(|(bucket, _)| bucket.start);
        let ends = together.iter().map(|(bucket, _)| bucket.end);
        let (Some(start), Some(end)) = (starts.min(), ends.max()) else { return };
        if let [(alone, _)] = together.as_slice() {
            return self.buckets.push(alone.clone());
        }
        let widest =
            together.iter().map(|(bucket, _)| bucket.end - bucket.start).max().unwrap_or(1).max(1);
        let mut spans: BTreeMap<Ns, Vec<(Arc<Packed>, Of)>> = BTreeMap::new();
        for (bucket, of) in together {
            let middle = bucket.start + (bucket.end - bucket.start) / 2;
            // Spans are counted from the first bucket's start.
            spans.entry((middle - start) / widest).or_default().push((bucket, of));
        }
        for (nth, parts) in spans {
            let begin = start + nth * widest;
            let facts = rename(facts(&parts), |key| key);
            let hard = self.limits.facts_per_bucket.saturating_mul(10);
            let (facts, folded) =
                fold(facts, self.limits.facts_per_bucket, hard, self.other, &self.groups);
            self.folded += folded;
            self.buckets.push(Arc::new(Packed::new(begin, (begin + widest).min(end), facts)));
        }
    }

    fn bytes(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.bytes()).sum::<usize>() + self.cumulative.bytes()
    }

    /// Drops the oldest buckets beyond the limit.
    fn bound(&mut self) {
        let mut over = self.bytes().saturating_sub(self.limits.history_bytes);
        let old = self.buckets.iter().take_while(|bucket| {
            let goes = over > 0;
            over = over.saturating_sub(bucket.bytes());
            goes
        });
        let old = old.count();
        self.dropped += old as u64;
        self.buckets.drain(..old);
    }

    /// Returns the buckets and the cumulative table.
    pub fn take(&mut self) -> (Vec<Packed>, Vec<Fact>) {
        let again =
            |bucket: Arc<Packed>| Packed::new(bucket.start, bucket.end, bucket.iter().collect());
        let buckets = std::mem::take(&mut self.buckets);
        let buckets =
            buckets.into_iter().map(|bucket| Arc::try_unwrap(bucket).unwrap_or_else(again));
        (buckets.collect(), self.cumulative.facts().iter().copied().collect())
    }
}

/// The origin of a bucket: merged before, or of the new profile.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Known,
    New,
}

/// Returns the facts of buckets ordered by time. A wait that is open in a later bucket of the same
/// profile was counted in the first.
fn facts(parts: &[(Arc<Packed>, Of)]) -> Vec<Fact> {
    let mut facts = Vec::new();
    let (mut known, mut new) = (false, false);
    for (bucket, of) in parts {
        let before = if *of == Of::Known { &mut known } else { &mut new };
        let follows = std::mem::replace(before, true);
        for (key, weights) in bucket.iter() {
            let open = if follows { 0 } else { weights.open };
            facts.push((key, Weights { open, ..weights }));
        }
    }
    facts
}
