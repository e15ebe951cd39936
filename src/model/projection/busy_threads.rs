//! Busy threads and the longest wait in each bucket of the kept history, for the history line.

use std::sync::{Arc, Weak};

use rustc_hash::FxHashMap;

use super::filter::Verdicts;
use super::peaks::{Peaks, Place};
use crate::model::facts::history::Kept;
use crate::model::facts::packed::Packed;
use crate::model::facts::snapshot::Snapshot;
use crate::model::vocabulary::frame::{Ns, SECOND, ThreadKey};
use crate::model::vocabulary::state::State;

/// The maximum is shown with one decimal: what is shown as 1.0 fills a bar of 1.
const ROUNDING: f32 = 0.05;

/// Time for which buckets are read again while frames get their names, after they were met.
const UNNAMED: Ns = 60 * SECOND;

/// Two figures per kept bucket of which at least a second is over. 48 bytes each: history has about
/// 2,400 buckets.
#[derive(Clone, Debug, Default)]
pub struct BusyThreads {
    started: Ns,
    /// Oldest first.
    pub(super) buckets: Vec<BusyBucket>,
    /// The highest average so far, also of buckets that are merged with others or not kept any
    /// more.
    peak: f32,
    /// The same, of those that are not kept any more.
    peak_before: f32,
    /// Whole seconds of the session up to the snapshot that was read last.
    read: u64,
    /// Names were found since.
    is_stale: bool,
}

#[derive(Clone, Debug)]
pub struct BusyBucket {
    /// Its span, on CLOCK_MONOTONIC.
    pub from: Ns,
    pub till: Ns,
    /// Average threads that did not wait for work.
    pub busy: f32,
    /// The longest wait, ns, that was not for work; as long as it was by then.
    pub longest: Ns,
    /// The highest average that was known for a part of it.
    highest: f32,
    /// The sealed bucket that was read; none for an open one, to which more may be booked.
    packed: Option<Weak<Packed>>,
    /// All frames had their names.
    named: bool,
}

impl BusyThreads {
    pub(super) fn new(started: Ns) -> BusyThreads {
        BusyThreads { started, ..BusyThreads::default() }
    }

    /// Returns whether [`BusyThreads::read`] would change anything: at the first snapshot of each
    /// second.
    pub(super) fn is_behind(&self, snapshot: &Snapshot) -> bool {
        self.is_stale || self.read != self.ended(snapshot)
    }

    /// Notes that frames got their names.
    pub(super) fn names_changed(&mut self) {
        self.is_stale = true;
    }

    /// Returns the figures of this snapshot's buckets. Those that cannot have changed are taken
    /// from here, so the facts of a sealed bucket are read once. `verdicts`: of the snapshot's
    /// stacks.
    pub(super) fn read(&self, snapshot: &Snapshot, verdicts: &Verdicts) -> BusyThreads {
        let read = self.ended(snapshot);
        let over = self.started + read * SECOND;
        let mut peak_before = self.peak_before;
        let mut buckets: Vec<BusyBucket> = Vec::with_capacity(self.buckets.len() + 1);
        let mut known = self.buckets.iter().peekable();
        let mut of_threads = FxHashMap::default();
        for kept in
            snapshot.history.kept().take_while(|kept| kept.from.saturating_add(SECOND) <= over)
        {
            while let Some(dropped) = known.next_if(|known| known.till <= kept.from) {
                if dropped.is_settled(snapshot) {
                    peak_before = peak_before.max(dropped.highest);
                }
            }
            let (mut same, mut highest) = (None, 0.0f32);
            while let Some(part) = known.next_if(|known| known.till <= kept.till) {
                if part.is_settled(snapshot) {
                    highest = highest.max(part.highest);
                    same = Some(part).filter(|part| part.is_of(&kept));
                }
            }
            buckets.push(same.cloned().unwrap_or_else(|| {
                let (busy, longest) = figures(&kept, snapshot, verdicts, &mut of_threads);
                BusyBucket {
                    from: kept.from,
                    till: kept.till,
                    busy,
                    longest,
                    highest: highest.max(busy),
                    packed: kept.sealed().map(Arc::downgrade),
                    named: !snapshot.health.naming,
                }
            }));
        }
        let peak = buckets.iter().fold(peak_before, |peak, bucket| peak.max(bucket.highest));
        BusyThreads { started: self.started, buckets, peak, peak_before, read, is_stale: false }
    }

    /// Returns the whole seconds of the session up to the snapshot.
    fn ended(&self, snapshot: &Snapshot) -> u64 {
        self.second(snapshot.at)
    }

    /// Returns the second of the session that contains `at`.
    pub fn second(&self, at: Ns) -> u64 {
        at.saturating_sub(self.started) / SECOND
    }

    /// Returns the first second that begins at `at` or later.
    pub fn second_from(&self, at: Ns) -> u64 {
        at.saturating_sub(self.started).div_ceil(SECOND)
    }

    /// Returns the beginning of a second of the session.
    pub fn at(&self, second: u64) -> Ns {
        self.started.saturating_add(second.saturating_mul(SECOND))
    }

    /// Returns the whole seconds of the session that were read.
    pub fn seconds(&self) -> u64 {
        self.read
    }

    /// Returns the first second of which anything is known.
    pub fn oldest(&self) -> u64 {
        self.buckets.first().map_or(self.read, |bucket| self.second(bucket.from))
    }

    /// Returns the buckets that overlap the seconds `from..till` of the session, oldest first.
    fn overlapping(&self, from: u64, till: u64) -> &[BusyBucket] {
        let (from, till) = (self.at(from), self.at(till));
        let first = self.buckets.partition_point(|bucket| bucket.till <= from);
        let end = self.buckets.partition_point(|bucket| bucket.from < till);
        self.buckets.get(first..end).unwrap_or_default()
    }

    /// Returns the maximum of the seconds `from..till` of the session; `None` if none of them is
    /// known.
    pub fn highest(&self, from: u64, till: u64) -> Option<f32> {
        let buckets = self.overlapping(from, till).iter();
        buckets.map(|bucket| bucket.busy).reduce(f32::max)
    }

    /// Returns the bucket with the most busy threads of the seconds `from..till` of the session;
    /// the first of equal ones.
    pub fn busiest(&self, from: u64, till: u64) -> Option<&BusyBucket> {
        let buckets = self.overlapping(from, till).iter();
        buckets.reduce(|most, bucket| if bucket.busy > most.busy { bucket } else { most })
    }

    /// Returns the bucket that contains `at`.
    pub fn bucket_at(&self, at: Ns) -> Option<&BusyBucket> {
        let bucket = self.buckets.get(self.buckets.partition_point(|bucket| bucket.till <= at))?;
        (bucket.from <= at).then_some(bucket)
    }

    /// Returns the start of the newest bucket before `before` that stands out from those around it,
    /// by its busy threads or its longest wait. `None` for `before`: from now.
    pub fn previous_peak(&self, before: Option<Ns>) -> Option<Ns> {
        let end = before.map_or(self.buckets.len(), |before| {
            self.buckets.partition_point(|bucket| bucket.from < before)
        });
        self.peaks().previous(end).map(|at| self.buckets[at].from)
    }

    /// Returns the start of the oldest such bucket that begins after `after`.
    pub fn next_peak(&self, after: Ns) -> Option<Ns> {
        let first = self.buckets.partition_point(|bucket| bucket.from <= after);
        self.peaks().next(first).map(|at| self.buckets[at].from)
    }

    fn peaks(&self) -> Peaks {
        let places = self.buckets.iter().map(|bucket| Place {
            from: bucket.from.saturating_sub(self.started),
            till: bucket.till.saturating_sub(self.started),
            figures: [f64::from(bucket.busy), bucket.longest as f64],
        });
        Peaks::new(places.collect())
    }

    /// Returns the threads that a full bar stands for: 1, 2, 5, 10, ... It does not shrink while
    /// time goes on, so past bars keep their height until a higher one appears.
    pub fn scale(&self) -> f32 {
        let mut unit = 1.0;
        // A bound for the loop: more threads than fit into 32 bits are impossible.
        while unit < 1e10 {
            let fits = |step: &f32| self.peak < step * unit + ROUNDING;
            if let Some(step) = [1.0, 2.0, 5.0].into_iter().find(fits) {
                return step * unit;
            }
            unit *= 10.0;
        }
        unit
    }
}

impl BusyBucket {
    /// Returns whether its figures are those of the facts that it was read from. Without the names
    /// of its frames a wait for work is not known as one, so those of unnamed frames are read again
    /// once all have their names, and for a while before.
    fn is_settled(&self, snapshot: &Snapshot) -> bool {
        let is_old = || snapshot.health.naming && self.till.saturating_add(UNNAMED) <= snapshot.at;
        self.packed.is_some() && (self.named || is_old())
    }

    /// Returns whether it was read from this bucket.
    fn is_of(&self, kept: &Kept<'_>) -> bool {
        let both = self.packed.as_ref().zip(kept.sealed());
        let is_same = both.is_some_and(|(packed, sealed)| packed.as_ptr() == Arc::as_ptr(sealed));
        is_same && kept.till == self.till
    }
}

/// Returns the average of busy threads in a bucket, and the longest wait, ns, that was not for
/// work. `of_threads`: a buffer.
fn figures(
    kept: &Kept<'_>,
    snapshot: &Snapshot,
    verdicts: &Verdicts,
    of_threads: &mut FxHashMap<ThreadKey, u64>,
) -> (f32, Ns) {
    of_threads.clear();
    let mut longest = 0;
    let tables = &snapshot.tables;
    kept.each(&mut |key, weights| {
        let state = tables.state(key.state, key.stack);
        let path = verdicts.of_stack(key.stack);
        if weights.wall_ns > 0 && !path.is_idle(tables.kind(key.name), state) {
            *of_threads.entry(key.thread).or_default() += weights.wall_ns;
            if !matches!(state, State::Run | State::Rdy) {
                longest = longest.max(weights.longest_ns);
            }
        }
    });
    let span = (kept.till - kept.from).max(SECOND);
    // Time is booked to the second in which it was observed, which may be a later one.
    let of_bucket = |(thread, ns): (&ThreadKey, &u64)| match thread.is_unknown() {
        true => *ns,
        false => (*ns).min(span),
    };
    let busy = of_threads.iter().map(of_bucket).sum::<u64>() as f32 / span as f32;
    (busy, longest)
}
