//! What the threads do at the time of the snapshot: busy by state, or waiting for work.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::filter::Verdicts;
use crate::model::facts::snapshot::Snapshot;
use crate::model::vocabulary::frame::{Ns, ThreadKey};
use crate::model::vocabulary::state::State;

/// The system call futex(2) on x86-64; its first argument is the address.
const FUTEX: i32 = 202;
/// Minimum threads that wait for one lock, to be worth a sentence.
const MIN_THREADS: u32 = 4;

/// Threads that wait for one lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Convoy {
    pub threads: u32,
    /// The one that has waited longest.
    pub longest: ThreadKey,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Threads that do not wait for work, by [`State`].
    pub busy: [u32; State::COUNT],
    /// Threads that wait for work.
    pub idle: u32,
    /// Of the threads that are shown, the one that has been blocked longest without waiting for
    /// work.
    pub longest_wait: Option<ThreadKey>,
    /// Of the threads that are shown, most of those that wait for the same mutex: at least half of
    /// all busy ones. (Java parks each thread at an address of its own.)
    pub convoy: Option<Convoy>,
}

impl Now {
    pub(super) fn of(
        snapshot: &Snapshot,
        verdicts: &Verdicts,
        shown: &FxHashSet<ThreadKey>,
    ) -> Now {
        let mut now = Now::default();
        let mut since = Ns::MAX;
        // By process and address: the number of threads, and the first of them.
        let mut locks: BTreeMap<(u32, u64), (u32, Ns, ThreadKey)> = BTreeMap::new();
        for thread in &*snapshot.threads {
            let state = snapshot.tables.state(thread.state, thread.stack);
            let kind = snapshot.tables.kind(thread.name);
            match verdicts.of_stack(thread.stack).is_idle(kind, state) {
                true => now.idle += 1,
                false => {
                    now.busy[state as usize] += 1;
                    if !shown.contains(&thread.thread) {
                        continue;
                    }
                    let waits = !matches!(state, State::Run | State::Rdy | State::Stopped);
                    if waits && thread.since < since {
                        since = thread.since;
                        now.longest_wait = Some(thread.thread);
                    }
                    if state == State::Lock
                        && let Some(call) = thread.syscall.filter(|call| call.number == FUTEX)
                    {
                        let first = (0, Ns::MAX, thread.thread);
                        let lock = locks.entry((thread.thread.pid, call.args[0])).or_insert(first);
                        lock.0 += 1;
                        if thread.since < lock.1 {
                            (lock.1, lock.2) = (thread.since, thread.thread);
                        }
                    }
                }
            }
        }
        let most = locks.into_values().max_by_key(|(threads, ..)| *threads);
        now.convoy = most
            .filter(|(threads, ..)| *threads >= MIN_THREADS && 2 * threads >= now.busy_count())
            .map(|(threads, _, longest)| Convoy { threads, longest });
        now
    }

    pub fn busy_count(&self) -> u32 {
        self.busy.iter().sum()
    }
}
