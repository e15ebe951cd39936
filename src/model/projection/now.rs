//! What the threads do at the time of the snapshot: busy by state, or waiting for work.

use rustc_hash::FxHashSet;

use super::filter::Verdicts;
use crate::model::facts::snapshot::Snapshot;
use crate::model::vocabulary::frame::{Ns, ThreadKey};
use crate::model::vocabulary::state::State;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Threads that do not wait for work, by [`State`].
    pub busy: [u32; State::COUNT],
    /// Threads that wait for work.
    pub idle: u32,
    /// Of the threads that are shown, the one that has been blocked longest without waiting for
    /// work.
    pub longest_wait: Option<ThreadKey>,
}

impl Now {
    pub(super) fn of(
        snapshot: &Snapshot,
        verdicts: &Verdicts,
        shown: &FxHashSet<ThreadKey>,
    ) -> Now {
        let mut now = Now::default();
        let mut since = Ns::MAX;
        for thread in &*snapshot.threads {
            let state = thread.state.resolve(snapshot.tables.futex_kind(thread.stack));
            let kind = snapshot.tables.kind(thread.name);
            match verdicts.of_stack(thread.stack).is_idle(kind, state) {
                true => now.idle += 1,
                false => {
                    now.busy[state as usize] += 1;
                    let waits = !matches!(state, State::Run | State::Rdy | State::Stopped);
                    if waits && thread.since < since && shown.contains(&thread.thread) {
                        since = thread.since;
                        now.longest_wait = Some(thread.thread);
                    }
                }
            }
        }
        now
    }

    pub fn busy_count(&self) -> u32 {
        self.busy.iter().sum()
    }
}
