//! Writes [`History`]: takes bookings, seals and packs buckets, merges old ones, and enforces the
//! limits.
//!
//! A bucket stays open for [`HORIZON`] after its end, because time is booked only at the next
//! observation. Time that arrives later goes to the oldest open bucket: it is displaced, but no
//! total changes.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::facts::fact::{Fact, FactKey, Weights, merged_thread};
use crate::model::facts::fact_table::{BYTES_PER_FACT, FactTable, fold, rename, round};
use crate::model::facts::history::{History, OpenBucket};
use crate::model::facts::packed::Packed;
use crate::model::facts::span_log::{self, Span, SpanLog};
use crate::model::facts::tables::{NameId, StackId};
use crate::model::vocabulary::frame::{Ns, SECOND, ThreadKey};

/// Time for which buckets stay open, ns. CPU time is carried for at most 10 s, so little is booked
/// later.
pub const HORIZON: Ns = 12 * SECOND;

/// Buckets are 1 s wide up to the first age, then 10 s, then 1 min; beyond the last age they are
/// dropped.
const AGES: [Ns; 3] = [600 * SECOND, 4_200 * SECOND, 90_600 * SECOND];
pub const WIDTHS: [Ns; 3] = [SECOND, 10 * SECOND, 60 * SECOND];

/// Returns the width of buckets of this age, ns.
pub fn width_at(age: Ns) -> Ns {
    let level = AGES[..2].partition_point(|till| *till <= age);
    WIDTHS[level]
}

/// Minimum time without bookings (sampletop was suspended) that becomes a single bucket.
const WIDE: Ns = 64 * SECOND;

/// Limits of the kept data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// All history, including the cumulative table and the log of spans, bytes.
    pub history_bytes: usize,
    /// Facts per sealed bucket. Exceeded only if threads x states alone are half of it or more, and
    /// then at most tenfold; see [`fold`].
    pub facts_per_bucket: usize,
    /// Facts of the cumulative table.
    pub cumulative_facts: usize,
    /// Nodes of the stack tree, and frames.
    pub stacks: usize,
}

struct Open {
    start: Ns,
    end: Ns,
    table: FactTable,
}

pub struct Buckets {
    started: Ns,
    limits: Limits,
    other: StackId,
    /// Group by name.
    groups: Vec<NameId>,
    open: VecDeque<Open>,
    /// Sealed buckets by width, each level oldest first. All buckets of a wider level are older
    /// than those of a narrower one.
    levels: [VecDeque<Arc<Packed>>; 3],
    cumulative: FactTable,
    log: SpanLog,
    /// The sealed buckets as last published.
    published: Option<Arc<[Arc<Packed>]>>,
    sealed_bytes: usize,
    folded: u64,
    dropped: u64,
}

impl Buckets {
    pub fn new(started: Ns, limits: Limits, other: StackId) -> Buckets {
        let mut buckets = Buckets {
            started,
            limits,
            other,
            groups: Vec::new(),
            open: VecDeque::new(),
            levels: Default::default(),
            cumulative: FactTable::default(),
            log: SpanLog::new(started, span_log::MAX_BYTES.min(limits.history_bytes / 4)),
            published: None,
            sealed_bytes: 0,
            folded: 0,
            dropped: 0,
        };
        buckets.push(started, started + SECOND);
        buckets
    }

    /// Adds the groups of new names. Facts are folded by group if there are too many names.
    pub fn set_groups(&mut self, groups: &[NameId]) {
        self.groups.extend(groups.get(self.groups.len()..).unwrap_or_default());
    }

    /// Returns the number of facts that were folded into others to stay within the limits.
    pub fn folded(&self) -> u64 {
        self.folded
    }

    /// Returns the number of buckets that were dropped early to stay within `history_bytes`.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn push(&mut self, start: Ns, end: Ns) {
        self.open.push_back(Open { start, end, table: FactTable::default() });
    }

    /// Returns the maximum facts of an open bucket: a third of the memory is for the open buckets,
    /// of which there are about 13.
    fn open_facts(&self) -> usize {
        (self.limits.history_bytes / 3 / 13 / BYTES_PER_FACT).min(self.hard_facts()).max(64)
    }

    fn hard_facts(&self) -> usize {
        self.limits.facts_per_bucket.saturating_mul(10)
    }

    /// Returns the maximum facts of the cumulative table: at most a quarter of the memory.
    fn cumulative_facts(&self) -> usize {
        (self.limits.history_bytes / 4 / BYTES_PER_FACT).min(self.limits.cumulative_facts).max(64)
    }

    /// Returns the index of the open bucket of a moment; the oldest for a moment in sealed time.
    fn index(&mut self, at: Ns) -> usize {
        loop {
            let last = self.open.back().expect("there is always an open bucket");
            if at < last.end {
                break;
            }
            // Buckets start at the session's start + n s, even after a gap.
            let start = self.started + (at - self.started) / SECOND * SECOND;
            let end = last.end;
            if start - end >= WIDE {
                self.push(end, start);
            } else {
                self.push(end, end + SECOND);
            }
        }
        self.open.partition_point(|bucket| bucket.end <= at)
    }

    /// Returns the weights of `key` in the bucket of `at`.
    pub fn entry(&mut self, at: Ns, key: &FactKey) -> &mut Weights {
        let index = self.index(at);
        self.entry_in(index, key)
    }

    fn entry_in(&mut self, index: usize, key: &FactKey) -> &mut Weights {
        let most = self.open_facts();
        let table = &mut self.open[index].table;
        if table.len() >= most {
            self.folded += table.fold(most / 2, most / 2, self.other, &self.groups);
        }
        table.entry(key)
    }

    /// Returns where the open bucket of `at` ends; at most `till`, which is later.
    pub fn end_of(&mut self, at: Ns, till: Ns) -> Ns {
        self.index(till - 1);
        let index = self.index(at);
        self.open[index].end.min(till)
    }

    /// Books the span `from..till` to `key`, split at bucket edges; not to the log. `wait`: the
    /// start of the unbroken wait that includes this span.
    pub fn wall(&mut self, key: &FactKey, from: Ns, till: Ns, wait: Option<Ns>) {
        self.in_buckets(key, from, till, |weights, length, start, till| {
            weights.wall_ns += length;
            if let Some(began) = wait {
                note_wait(weights, began, start, till);
            }
        });
    }

    /// Notes that a wait which began at `began` lasted for the span `from..till`.
    pub fn note_wait(&mut self, key: &FactKey, from: Ns, till: Ns, began: Ns) {
        self.in_buckets(key, from, till, |weights, _, start, till| {
            note_wait(weights, began, start, till);
        });
    }

    /// Calls `f` for each bucket of a span: with the weights of `key`, the length of the part in
    /// this bucket, the start of the bucket, and the end of the part.
    fn in_buckets(
        &mut self,
        key: &FactKey,
        from: Ns,
        till: Ns,
        f: impl Fn(&mut Weights, Ns, Ns, Ns),
    ) {
        if from >= till {
            return;
        }
        self.index(till - 1);
        let mut at = from;
        while at < till {
            let index = self.index(at);
            let start = self.open[index].start;
            let next = self.open[index].end.min(till);
            f(self.entry_in(index, key), next - at, start, next);
            at = next;
        }
    }

    /// Books the span `from..till` to `key`, and to the log. Its thread has reserved the time.
    pub fn book(&mut self, key: &FactKey, from: Ns, till: Ns) {
        if from < till {
            self.wall(key, from, till, None);
            self.log.push(Span::new(*key, from, till));
        }
    }

    /// Books CPU time and hits of one moment, and to the log.
    pub fn count(&mut self, key: &FactKey, at: Ns, cpu_ns: Ns, hits: u32, cpu_hits: u32) {
        let weights = self.entry(at, key);
        weights.cpu_ns += cpu_ns;
        weights.hits += hits;
        weights.cpu_hits += cpu_hits;
        if key.is_of_unobserved() {
            weights.wall_ns += cpu_ns;
        }
        let span = Span::at(*key, at, cpu_ns, hits, cpu_hits);
        if !span.is_plain() {
            self.log.push(span);
        }
    }

    /// Returns the log of spans.
    pub fn log(&mut self) -> &mut SpanLog {
        &mut self.log
    }

    /// Takes back up to `cpu` from `key` in open buckets, newest first. Returns the time taken
    /// back.
    pub fn take_back(&mut self, key: &FactKey, cpu: Ns) -> Ns {
        let mut left = cpu;
        for bucket in self.open.iter_mut().rev().filter(|bucket| bucket.table.contains(key)) {
            let weights = bucket.table.entry(key);
            let part = left.min(weights.cpu_ns);
            weights.cpu_ns -= part;
            if key.is_of_unobserved() {
                weights.wall_ns = weights.wall_ns.saturating_sub(part);
            }
            left -= part;
        }
        let oldest = self.open.front().map_or(0, |bucket| bucket.start);
        self.log.take_back(key, cpu - left, oldest);
        cpu - left
    }

    /// Seals buckets that ended at least `horizon` before `now`, and merges old ones. `gone`:
    /// selects threads that exited at least a minute ago; merged buckets merge them by name.
    pub fn keep_house(&mut self, now: Ns, horizon: Ns, gone: &dyn Fn(&ThreadKey) -> bool) {
        self.index(now.saturating_sub(1).max(self.started));
        while self.open.len() > 1
            && self.open.front().is_some_and(|bucket| bucket.end + horizon <= now)
        {
            self.seal_oldest();
        }
        self.age(now, gone);
        self.log.keep_house(now);
        self.bound();
    }

    /// Merges the exited threads of the cumulative table by name.
    pub fn merge_threads(&mut self, gone: &dyn Fn(&ThreadKey) -> bool) {
        self.cumulative.merge_threads(gone);
    }

    fn seal_oldest(&mut self) {
        let Some(bucket) = self.open.pop_front() else { return };
        let facts: Vec<Fact> = bucket.table.facts().iter().copied().collect();
        let most = self.cumulative_facts();
        for (key, mut weights) in facts.iter().copied() {
            // A wait open at a bucket's start was counted in the bucket where it began. Only one
            // that began before the history must be counted here.
            if bucket.start == self.started {
                weights.hits = weights.hits.saturating_add(weights.open);
            }
            self.cumulative.entry(&key).follow(&weights);
        }
        if self.cumulative.len() > most {
            self.folded +=
                self.cumulative.fold(most / 4 * 3, most / 4 * 3, self.other, &self.groups);
        }
        self.pack(0, bucket.start, bucket.end, facts);
    }

    fn pack(&mut self, level: usize, start: Ns, end: Ns, facts: Vec<Fact>) {
        let (mut facts, folded) =
            fold(facts, self.limits.facts_per_bucket, self.hard_facts(), self.other, &self.groups);
        if level > 0 {
            round(&mut facts);
        }
        self.folded += folded;
        let packed = Packed::new(start, end, facts);
        self.sealed_bytes += packed.bytes();
        self.levels[level].push_back(Arc::new(packed));
        self.published = None;
    }

    fn take_oldest(&mut self, level: usize) -> Option<Arc<Packed>> {
        let bucket = self.levels[level].pop_front()?;
        self.sealed_bytes -= bucket.bytes();
        self.published = None;
        Some(bucket)
    }

    fn age(&mut self, now: Ns, gone: &dyn Fn(&ThreadKey) -> bool) {
        for level in 0..2 {
            let width = WIDTHS[level + 1];
            while let Some(first) = self.levels[level].front() {
                let slot_end = self.started + ((first.start - self.started) / width + 1) * width;
                if slot_end + AGES[level] > now {
                    break;
                }
                let mut parts = Vec::new();
                while self.levels[level].front().is_some_and(|bucket| bucket.start < slot_end) {
                    parts.extend(self.take_oldest(level));
                }
                let (Some(first), Some(last)) = (parts.first(), parts.last()) else { break };
                let (start, end) = (first.start, last.end);
                self.pack(level + 1, start, end, merge(&parts, gone));
            }
        }
        while self.levels[2].front().is_some_and(|bucket| bucket.end + AGES[2] <= now) {
            self.take_oldest(2);
        }
    }

    /// Returns the memory of all kept data, bytes.
    pub fn bytes(&self) -> usize {
        let open: usize = self.open.iter().map(|bucket| bucket.table.bytes()).sum();
        self.sealed_bytes + open + self.cumulative.bytes() + self.log.bytes()
    }

    fn bound(&mut self) {
        while self.bytes() > self.limits.history_bytes {
            let Some(level) = (0..3).rev().find(|level| !self.levels[*level].is_empty()) else {
                break;
            };
            self.take_oldest(level);
            self.dropped += 1;
        }
    }

    /// Returns the current history. `at`: the time up to which it is booked; `spans`: those that
    /// still grow.
    pub fn history(&mut self, at: Ns, spans: impl Iterator<Item = Span>) -> History {
        // Opens the bucket of `at`, even if nothing is booked to it.
        self.index(at.saturating_sub(1).max(self.started));
        let levels = &self.levels;
        let sealed = self.published.get_or_insert_with(|| {
            levels.iter().rev().flat_map(|level| level.iter().cloned()).collect()
        });
        History {
            started: self.started,
            at,
            sealed: sealed.clone(),
            open: self
                .open
                .iter()
                .map(|bucket| OpenBucket {
                    start: bucket.start,
                    end: bucket.end,
                    facts: bucket.table.facts().clone(),
                })
                .collect(),
            cumulative: self.cumulative.facts().clone(),
            spans: self.log.published(spans),
        }
    }
}

/// Notes a wait that lasted from `began` to `till`, in the bucket that starts at `start`.
fn note_wait(weights: &mut Weights, began: Ns, start: Ns, till: Ns) {
    weights.longest(till.saturating_sub(began), began);
    if began < start {
        weights.open = 1;
    }
}

/// Sums consecutive buckets, oldest first. A wait that is open in a later one was counted in the
/// first.
fn merge(parts: &[Arc<Packed>], gone: &dyn Fn(&ThreadKey) -> bool) -> Vec<Fact> {
    let mut facts = Vec::new();
    for (nth, part) in parts.iter().enumerate() {
        for (key, mut weights) in part.iter() {
            if nth > 0 {
                weights.open = 0;
            }
            facts.push((key, weights));
        }
    }
    rename(facts, |key| match gone(&key.thread) {
        true => FactKey { thread: merged_thread(key.thread.pid), ..key },
        false => key,
    })
}

/// Splits an amount in proportion to lengths. The parts of the whole length sum to the amount.
pub struct Split {
    amount: u64,
    length: u64,
    done: u64,
}

impl Split {
    pub fn new(amount: u64, length: u64) -> Split {
        Split { amount, length, done: 0 }
    }

    /// Returns whether some of the amount remains.
    pub fn is_left(&self) -> bool {
        self.share(self.done) < self.amount
    }

    pub fn next(&mut self, length: u64) -> u64 {
        let before = self.share(self.done);
        self.done += length;
        self.share(self.done) - before
    }

    fn share(&self, done: u64) -> u64 {
        match self.length {
            0 => 0,
            length => {
                (u128::from(self.amount) * u128::from(done.min(length)) / u128::from(length)) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::tables::NameId;
    use crate::model::vocabulary::state::{RawState, State};
    use proptest::prelude::*;

    fn fact() -> impl Strategy<Value = Fact> {
        let key =
            (1u32..5, 0u32..2, 0u32..4, prop::bool::ANY).prop_map(|(tid, name, stack, io)| {
                let state = RawState::Known(if io { State::Io } else { State::Run });
                let thread = ThreadKey { pid: 1, tid, start: 3 };
                FactKey::new(thread, NameId(name), StackId(stack), state)
            });
        (key, 0u64..1_000, 0u64..1_000, 0u32..9, 0u32..2, 0u64..5, 0u64..5).prop_map(
            |(key, wall_ns, cpu_ns, hits, open, longest_ns, longest_from)| {
                (
                    key,
                    Weights {
                        wall_ns,
                        cpu_ns,
                        hits,
                        cpu_hits: hits / 2,
                        open,
                        longest_ns,
                        longest_from,
                    },
                )
            },
        )
    }

    fn packed(start: Ns, end: Ns, facts: Vec<Fact>) -> Arc<Packed> {
        Arc::new(Packed::new(start, end, rename(facts, |key| key)))
    }

    proptest! {
        /// Merging seconds to tens and those to minutes gives the same as merging them at once.
        #[test]
        fn merge_order_does_not_matter(buckets in prop::collection::vec(prop::collection::vec(fact(), 0..12), 4), cut in 1usize..4) {
            let gone = |thread: &ThreadKey| thread.tid == 4;
            let parts: Vec<_> = buckets.into_iter().enumerate().map(|(n, facts)| packed(n as u64, n as u64 + 1, facts)).collect();
            let whole = packed(0, 4, merge(&parts, &gone));
            let first = packed(0, cut as u64, merge(&parts[..cut], &gone));
            let second = packed(cut as u64, 4, merge(&parts[cut..], &gone));
            let twice = packed(0, 4, merge(&[first, second], &gone));
            prop_assert_eq!(whole.iter().collect::<Vec<_>>(), twice.iter().collect::<Vec<_>>());
        }

        #[test]
        fn parts_sum_to_the_amount(amount in any::<u64>(), lengths in prop::collection::vec(0u64..1 << 58, 1..20)) {
            let mut split = Split::new(amount, lengths.iter().sum());
            let parts: Vec<u64> = lengths.iter().map(|length| split.next(*length)).collect();
            let expected = if lengths.iter().sum::<u64>() == 0 { 0 } else { amount };
            prop_assert_eq!(parts.iter().sum::<u64>(), expected);
        }
    }

    #[test]
    fn a_gap_is_one_bucket_and_seconds_stay_where_they_were() {
        let mut buckets = Buckets::new(500, Limits::default(), StackId(1));
        let (thread, state) = (ThreadKey { pid: 1, tid: 1, start: 1 }, RawState::Known(State::Io));
        let key = FactKey::new(thread, NameId(0), StackId(0), state);
        let from = 500 + SECOND / 2;
        let till = 500 + 1_000 * SECOND + SECOND / 4;
        buckets.wall(&key, from, till, Some(from));
        let spans: Vec<(Ns, Ns)> = buckets
            .open
            .iter()
            .map(|b| ((b.start - 500) / SECOND, (b.end - 500) / SECOND))
            .collect();
        assert_eq!(spans, [(0, 1), (1, 1_000), (1_000, 1_001)]);
        let walls: Vec<Ns> = buckets
            .open
            .iter()
            .flat_map(|b| b.table.facts().iter().map(|(_, w)| w.wall_ns))
            .collect();
        assert_eq!(walls, [SECOND / 2, 999 * SECOND, SECOND / 4]);
        // Late time goes to the oldest open bucket.
        buckets.keep_house(till + 20 * SECOND, HORIZON, &|_| false);
        buckets.wall(&key, from, from + 10, None);
        let oldest = buckets.open.front().expect("one is always open");
        let wall: Ns = oldest.table.facts().iter().map(|(_, w)| w.wall_ns).sum();
        assert_eq!((wall, oldest.start), (10, 500 + 1_008 * SECOND));
    }
}
