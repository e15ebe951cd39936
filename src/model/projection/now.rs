//! What the threads do at the time of the snapshot: busy by state, or waiting for work.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::filter::Verdicts;
use super::group::Groups;
use super::rows::Rows;
use crate::model::facts::fact::FactKey;
use crate::model::facts::snapshot::{Snapshot, ThreadNow};
use crate::model::facts::tables::NameId;
use crate::model::projection::settings::Settings;
use crate::model::vocabulary::frame::{Ns, ThreadKey, ThreadKind};
use crate::model::vocabulary::state::State;

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

/// What the threads of a group do: those that pass the filters, also where their time is hidden as
/// idle. A thread belongs to the group of its present name, state and stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupNow {
    /// Number of threads that do not wait for work, by [`State`].
    pub busy: [u32; State::COUNT],
    /// Number of threads that wait for work.
    pub idle: u32,
}

impl GroupNow {
    /// Returns the number of threads.
    pub fn threads(&self) -> u32 {
        self.busy.iter().sum::<u32>() + self.idle
    }

    /// Returns what the threads of `count` groups do. `place`: the index of a group in the
    /// projection, if it is shown.
    pub(super) fn of_groups(
        (snapshot, rows, verdicts): (&Snapshot, &Rows, &Verdicts),
        settings: &Settings,
        groups: &mut Groups,
        count: usize,
        place: impl Fn(u32) -> Option<u32>,
    ) -> Vec<GroupNow> {
        let filters = &settings.filters;
        let mut chosen: FxHashMap<(NameId, u32), bool> = FxHashMap::default();
        let mut now = vec![GroupNow::default(); count];
        for thread in &*snapshot.threads {
            let &ThreadNow { thread, name, stack, state, blocker, .. } = thread;
            let kind = snapshot.tables.kind(name);
            let path = verdicts.of_stack(stack);
            if (filters.skip_daemon && kind != ThreadKind::Plain)
                || (filters.focus.active().is_some() && !path.focus)
                || path.ignore
                || (filters.gil && !path.gil)
            {
                continue;
            }
            let key = FactKey { thread, name, stack, state, blocker };
            let state = snapshot.tables.state(state, stack);
            let group = groups.of(snapshot, settings, rows, &key, state, path);
            let Some(now) = place(group).and_then(|at| now.get_mut(at as usize)) else { continue };
            if filters.threads.active().is_some()
                && !*chosen
                    .entry((name, group))
                    .or_insert_with(|| groups.is_chosen(snapshot, settings, (thread, name), group))
            {
                continue;
            }
            match path.is_idle(kind, state) {
                true => now.idle += 1,
                false => now.busy[state as usize] += 1,
            }
        }
        now
    }
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
                        && let Some(address) = thread.syscall.and_then(|call| call.futex())
                    {
                        let first = (0, Ns::MAX, thread.thread);
                        let lock = locks.entry((thread.thread.pid, address)).or_insert(first);
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
