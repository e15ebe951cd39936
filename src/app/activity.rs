//! Active threads in each second of the last ten minutes, for the history line.

use std::collections::VecDeque;

use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::Range;
use crate::model::vocabulary::frame::{Ns, SECOND};
use crate::model::vocabulary::state::State;

/// Seconds remembered: history has buckets of one second for this range.
pub const SECONDS: usize = 600;

/// Seconds stored: the oldest bar on the screen begins before the oldest of [`SECONDS`].
const KEPT: usize = 2 * SECONDS;

/// One figure per whole second of the session.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// Average active threads per second, oldest first; the last is of the second before
    /// [`Activity::till`].
    threads: VecDeque<f32>,
    /// The session's maximum up to and including each second.
    peaks: VecDeque<f32>,
    /// Seconds of the session read so far.
    read: u64,
    started: Ns,
    peak: f32,
}

impl Activity {
    /// Reads the seconds that ended since the last snapshot.
    pub fn take(&mut self, snapshot: &Snapshot) {
        let started = snapshot.session.started;
        if self.started != started {
            *self = Activity { started, ..Activity::default() };
        }
        let ended = snapshot.at.saturating_sub(started) / SECOND;
        let from = ended.saturating_sub(SECONDS as u64);
        if self.read < from {
            // Too much time passed since the last reading: the stored figures would stand at wrong
            // seconds.
            self.read = from;
            self.threads.clear();
            self.peaks.clear();
        }
        while self.read < ended {
            self.read += 1;
            let mut active_ns = 0u64;
            snapshot.history.read(Range::Rolling(SECOND), self.till(), &mut |key, weights| {
                if is_active(key.state.resolve(snapshot.tables.futex_kind(key.stack))) {
                    active_ns += weights.wall_ns;
                }
            });
            let active = active_ns as f32 / SECOND as f32;
            self.peak = self.peak.max(active);
            self.threads.push_back(active);
            self.peaks.push_back(self.peak);
            if self.threads.len() > KEPT {
                self.threads.pop_front();
                self.peaks.pop_front();
            }
        }
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
        let first = self.read - self.threads.len() as u64;
        let (from, till) = (from.max(first), till.min(self.read));
        (from < till).then(|| {
            let range = (from - first) as usize..(till - first) as usize;
            self.threads.range(range).copied().fold(0.0, f32::max)
        })
    }

    /// Returns the threads that a full bar stands for in a line that ends before the second `till`:
    /// 1, 2, 5, 10, ... The scale never shrinks, so past bars keep their height until a higher one
    /// appears.
    pub fn scale(&self, till: u64) -> f32 {
        let first = self.read - self.threads.len() as u64;
        let peak = till
            .checked_sub(first + 1)
            .and_then(|at| self.peaks.get(at as usize))
            .copied()
            .unwrap_or(0.0);
        let mut unit = 1.0;
        // A bound for the loop: more threads than fit into 32 bits are impossible.
        while unit < 1e10 {
            if let Some(step) = [1.0, 2.0, 5.0].into_iter().find(|step| peak <= step * unit) {
                return step * unit;
            }
            unit *= 10.0;
        }
        unit
    }
}

/// Returns whether a thread works or is prevented from working, as opposed to waiting for work.
fn is_active(state: State) -> bool {
    match state {
        State::Run | State::Rdy | State::Lock | State::Io | State::Disk => true,
        State::Wait | State::Poll | State::Sleep | State::Stopped => false,
    }
}
