//! Busy threads and the longest wait in each second of the last ten minutes, for the history line.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::filter::Verdicts;
use super::peaks::{Series, peaks};
use crate::model::facts::buckets::HORIZON;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::Range;
use crate::model::vocabulary::frame::{Ns, SECOND, ThreadKey};
use crate::model::vocabulary::state::State;

/// Seconds stored: the oldest bar on the screen begins before the oldest of
/// [`BusyThreads::SECONDS`].
const KEPT: usize = 2 * BusyThreads::SECONDS;

/// The maximum is shown with one decimal: what is shown as 1.0 fills a bar of 1.
const ROUNDING: f32 = 0.05;

/// Minimum threads by which a second stands out: one that waits for 150 ms.
const LEAST_PEAK: f64 = 0.15;
/// And minimum by which its longest wait does, ns.
const LEAST_WAIT: Ns = 50_000_000;

/// Two figures per whole second of the session.
#[derive(Clone, Debug, Default)]
pub struct BusyThreads {
    /// Average threads per second that did not wait for work, oldest first; the last is of the
    /// second before [`BusyThreads::till`].
    averages: VecDeque<f32>,
    /// By second: the longest wait, ns, that was not for work; as long as it was by then.
    longest: VecDeque<Ns>,
    /// The maximum up to and including each second.
    peaks: VecDeque<f32>,
    /// The maximum of seconds that are not stored any more.
    peak_before: f32,
    /// Seconds of the session read so far.
    read: u64,
    /// Of these, those that will not change. Without the names of its frames a wait for work is not
    /// known as one, and time is booked when it is observed.
    settled: u64,
    started: Ns,
}

/// Seconds that are read once more for each new one: time may still be booked in them.
const OPEN: u64 = HORIZON / SECOND;
/// The same while frames get their names, after they were met.
const UNNAMED: u64 = 60;

impl BusyThreads {
    /// Seconds remembered: history has buckets of one second for this range.
    pub const SECONDS: usize = 600;

    pub(super) fn new(started: Ns) -> BusyThreads {
        BusyThreads { started, ..BusyThreads::default() }
    }

    /// Returns whether [`BusyThreads::read`] would change anything.
    pub(super) fn is_behind(&self, snapshot: &Snapshot) -> bool {
        self.read < self.ended(snapshot)
    }

    /// Drops the seconds that may have changed.
    pub(super) fn forget_unsettled(&mut self) {
        let unsettled = (self.read - self.settled) as usize;
        self.averages.truncate(self.averages.len().saturating_sub(unsettled));
        self.longest.truncate(self.averages.len());
        self.peaks.truncate(self.averages.len());
        self.read = self.settled;
    }

    /// Reads the seconds that ended since the last snapshot, and the last ones before once more.
    /// `verdicts`: of the snapshot's stacks.
    pub(super) fn read(&mut self, snapshot: &Snapshot, verdicts: &Verdicts) {
        self.forget_unsettled();
        let ended = self.ended(snapshot);
        // Older ones may have been dropped to save memory.
        let oldest = self.second(snapshot.history.oldest());
        let from = ended.saturating_sub(BusyThreads::SECONDS as u64).max(oldest);
        if self.read < from {
            // Too much time passed since the last reading: the stored figures would stand at wrong
            // seconds.
            self.read = from;
            self.averages.clear();
            self.longest.clear();
            self.peak_before = self.peak();
            self.peaks.clear();
        }
        let tables = &snapshot.tables;
        let mut of_threads: FxHashMap<ThreadKey, u64> = FxHashMap::default();
        while self.read < ended {
            self.read += 1;
            of_threads.clear();
            let mut longest = 0;
            let range = Range::Rolling(SECOND);
            let (from, till) = snapshot.history.read(range, self.till(), &mut |key, weights| {
                let state = tables.state(key.state, key.stack);
                let path = verdicts.of_stack(key.stack);
                if weights.wall_ns > 0 && !path.is_idle(tables.kind(key.name), state) {
                    *of_threads.entry(key.thread).or_default() += weights.wall_ns;
                    if !matches!(state, State::Run | State::Rdy) {
                        longest = longest.max(weights.longest_ns);
                    }
                }
            });
            // A bucket is wider than a second where nothing was observed in between.
            let span = till.saturating_sub(from).max(SECOND);
            // Time is booked to the second in which it was observed, which may be a later one.
            let of_second = |(thread, ns): (&ThreadKey, &u64)| match thread.is_unknown() {
                true => *ns,
                false => (*ns).min(span),
            };
            let busy = of_threads.iter().map(of_second).sum::<u64>() as f32 / span as f32;
            self.averages.push_back(busy);
            self.longest.push_back(longest);
            self.peaks.push_back(self.peak().max(busy));
            if self.averages.len() > KEPT {
                self.averages.pop_front();
                self.longest.pop_front();
                self.peaks.pop_front();
            }
        }
        let recent = if snapshot.health.naming { UNNAMED } else { OPEN };
        self.settled = self.settled.max(self.read.saturating_sub(recent));
    }

    /// Returns the maximum so far.
    fn peak(&self) -> f32 {
        self.peaks.back().copied().unwrap_or(self.peak_before)
    }

    /// Returns the whole seconds of the session up to the snapshot.
    fn ended(&self, snapshot: &Snapshot) -> u64 {
        snapshot.at.saturating_sub(self.started) / SECOND
    }

    /// Returns the end of the newest second.
    fn till(&self) -> Ns {
        self.started + self.read * SECOND
    }

    /// Returns the second of the session that contains `at`.
    pub fn second(&self, at: Ns) -> u64 {
        at.saturating_sub(self.started) / SECOND
    }

    /// Returns the first second that begins at `at` or later.
    pub fn second_from(&self, at: Ns) -> u64 {
        at.saturating_sub(self.started).div_ceil(SECOND)
    }

    /// Returns the whole seconds of the session up to `at` that were read.
    pub fn seconds(&self, at: Ns) -> u64 {
        self.second(at).min(self.read)
    }

    /// Returns the maximum of the seconds `from..till` of the session; `None` if none of them is
    /// known.
    pub fn highest(&self, from: u64, till: u64) -> Option<f32> {
        let first = self.first();
        let (from, till) = (from.max(first), till.min(self.read));
        (from < till).then(|| {
            let range = (from - first) as usize..(till - first) as usize;
            self.averages.range(range).copied().fold(0.0, f32::max)
        })
    }

    /// Returns the average of busy threads and the longest wait, ns, of a second of the session.
    pub fn of_second(&self, second: u64) -> Option<(f32, Ns)> {
        let at = second.checked_sub(self.first())? as usize;
        Some((*self.averages.get(at)?, *self.longest.get(at)?))
    }

    /// Returns the seconds of the session before `till` that stand out from those around them, by
    /// their busy threads or their longest wait; in order.
    pub fn peaks(&self, till: u64) -> Vec<u64> {
        let first = self.first();
        let known = till.saturating_sub(first) as usize;
        let busy: Vec<f64> = self.averages.iter().take(known).map(|n| f64::from(*n)).collect();
        let waits: Vec<f64> = self.longest.iter().take(known).map(|ns| *ns as f64).collect();
        let series = [
            Series { of_seconds: &busy, least: LEAST_PEAK, least_part: 0.1 },
            // Waits differ more than numbers of threads.
            Series { of_seconds: &waits, least: LEAST_WAIT as f64, least_part: 2.0 },
        ];
        peaks(&series).into_iter().map(|at| first + at as u64).collect()
    }

    /// Returns the first second that is known.
    fn first(&self) -> u64 {
        self.read - self.averages.len() as u64
    }

    /// Returns the threads that a full bar stands for in a line that ends before the second `till`:
    /// 1, 2, 5, 10, ... It does not shrink while time goes on, so past bars keep their height until
    /// a higher one appears.
    pub fn scale(&self, till: u64) -> f32 {
        let first = self.first();
        let peak = till
            .checked_sub(first + 1)
            .and_then(|at| self.peaks.get(at as usize))
            .copied()
            .unwrap_or(0.0);
        let mut unit = 1.0;
        // A bound for the loop: more threads than fit into 32 bits are impossible.
        while unit < 1e10 {
            let fits = |step: &f32| peak < step * unit + ROUNDING;
            if let Some(step) = [1.0, 2.0, 5.0].into_iter().find(fits) {
                return step * unit;
            }
            unit *= 10.0;
        }
        unit
    }
}
