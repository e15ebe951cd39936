//! What the threads do at the time of the snapshot: busy by state, or waiting for work.

use super::filter::Verdicts;
use crate::model::facts::snapshot::Snapshot;
use crate::model::vocabulary::state::State;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Threads that do not wait for work, by [`State`].
    pub busy: [u32; State::COUNT],
    /// Threads that wait for work.
    pub idle: u32,
}

impl Now {
    pub(super) fn of(snapshot: &Snapshot, verdicts: &Verdicts) -> Now {
        let mut now = Now::default();
        for thread in &*snapshot.threads {
            let state = thread.state.resolve(snapshot.tables.futex_kind(thread.stack));
            let kind = snapshot.tables.kind(thread.name);
            match verdicts.of_stack(thread.stack).wait.is_idle(kind, state) {
                true => now.idle += 1,
                false => now.busy[state as usize] += 1,
            }
        }
        now
    }

    pub fn busy_count(&self) -> u32 {
        self.busy.iter().sum()
    }
}
