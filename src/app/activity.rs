//! How many threads were active in each second of the last ten minutes: the history line.

use std::collections::VecDeque;

use crate::model::frame::{Ns, SECOND};
use crate::model::settings::Range;
use crate::model::snapshot::Snapshot;
use crate::model::state::State;

/// Seconds that are remembered: as far back as history has buckets of one second.
pub const SECONDS: usize = 600;

/// One figure per whole second of the session.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// Threads that were active on average, oldest first; the last is of the second before [`Activity::till`].
    pub threads: VecDeque<f32>,
    /// Seconds of the session that have been read.
    read: u64,
    started: Ns,
}

impl Activity {
    /// Reads the seconds that ended since the last snapshot.
    pub fn take(&mut self, snapshot: &Snapshot) {
        let started = snapshot.session.started;
        if self.started != started {
            *self = Activity { started, ..Activity::default() };
        }
        let ended = snapshot.at.saturating_sub(started) / SECOND;
        self.read = self.read.max(ended.saturating_sub(SECONDS as u64));
        while self.read < ended {
            self.read += 1;
            let mut active_ns = 0u64;
            snapshot.history.read(Range::Rolling(SECOND), self.till(), &mut |key, weights| {
                if is_active(key.state.resolve(snapshot.tables.futex_kind(key.stack))) {
                    active_ns += weights.wall_ns;
                }
            });
            self.threads.push_back(active_ns as f32 / SECOND as f32);
            if self.threads.len() > SECONDS {
                self.threads.pop_front();
            }
        }
    }

    /// End of the newest second.
    pub fn till(&self) -> Ns {
        self.started + self.read * SECOND
    }
}

/// Working, or kept from it; not waiting for work.
fn is_active(state: State) -> bool {
    match state {
        State::Run | State::Rdy | State::Lock | State::Io | State::Disk => true,
        State::Wait | State::Poll | State::Sleep | State::Stopped => false,
    }
}
