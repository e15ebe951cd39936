//! The groups of a range with their threads, in the order in which trees are built.

use rustc_hash::FxHashMap;

use super::GroupThread;
use super::fact_reader::Shown;
use super::group::{Groups, Label, thread_label};
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::NameId;
use crate::model::projection::settings::{Grouping, Settings};
use crate::model::vocabulary::frame::ThreadKey;

/// A group with its number and threads.
pub(super) struct Part {
    pub group: u32,
    pub label: Label,
    pub threads: Vec<GroupThread>,
}

impl Part {
    /// Returns whether the two are shown as one group.
    pub(super) fn belongs_with(&self, next: &Part) -> bool {
        self.label.name == next.label.name && next.label.inner.is_some()
    }

    pub(super) fn join(&mut self, next: Part) {
        self.threads.extend(next.threads);
        self.threads.sort_by_key(|thread| thread.thread);
        // A renamed thread occurs twice.
        self.threads.dedup_by_key(|thread| thread.thread);
    }
}

/// Returns a thread's current name, if it is one of the two; else the one that was interned later.
pub(super) fn newest(
    now: &FxHashMap<ThreadKey, NameId>,
    thread: ThreadKey,
    names: [NameId; 2],
) -> NameId {
    let now = now.get(&thread);
    let [a, b] = names;
    std::cmp::max_by_key(a, b, |name| (Some(name) == now, *name))
}

/// Returns the groups of all cells, by name.
pub(super) fn parts(
    snapshot: &Snapshot,
    settings: &Settings,
    shown: &Shown,
    groups: &Groups,
) -> Vec<Part> {
    let now: FxHashMap<ThreadKey, NameId> =
        snapshot.threads.iter().map(|t| (t.thread, t.name)).collect();
    // `seen` is sorted by thread, so within a group all names of a thread are adjacent.
    let mut seen: Vec<Vec<(u32, NameId)>> = vec![Vec::new(); groups.count()];
    for seen_in in &shown.seen {
        let group = &mut seen[seen_in.group as usize];
        match group.last_mut() {
            Some((thread, name)) if (*thread, *name) == (seen_in.thread, seen_in.name) => {}
            Some((thread, name)) if *thread == seen_in.thread => {
                *name = newest(&now, shown.threads[*thread as usize], [*name, seen_in.name]);
            }
            _ => group.push((seen_in.thread, seen_in.name)),
        }
    }
    let mut parts: Vec<Part> = Vec::with_capacity(seen.len());
    for (group, threads) in (0..).zip(seen).filter(|(_, threads)| !threads.is_empty()) {
        let mut threads: Vec<GroupThread> = threads
            .into_iter()
            .map(|(thread, name)| GroupThread {
                thread: shown.threads[thread as usize],
                name: snapshot.tables.name(name).clone(),
                kind: snapshot.tables.kind(name),
            })
            .collect();
        threads.sort_unstable_by_key(|thread| thread.thread);
        let mut label = groups.label(group).clone();
        if let (Grouping::Thread, [one]) = (&settings.grouping, threads.as_slice()) {
            label.name = thread_label(&one.name, one.thread).into();
        }
        parts.push(Part { group, label, threads });
    }
    let first = |part: &Part| part.threads.first().map(|t| t.thread);
    parts.sort_unstable_by(|a, b| a.label.cmp(&b.label).then_with(|| first(a).cmp(&first(b))));
    parts
}
