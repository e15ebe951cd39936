//! Assigns threads to groups.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::rows::Rows;
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::NameId;
use crate::model::projection::settings::{Grouping, Settings};
use crate::model::vocabulary::frame::{ThreadKey, ThreadKind};
use crate::model::vocabulary::thread_name_rules::{by_rules, internal_name};

/// The group of stacks without a frame that matches, under [`Grouping::Frame`].
pub const NO_MATCH: &str = "(no match)";
/// The one group of [`Grouping::None`].
pub const ALL: &str = "(all)";
/// The group of a runtime's own threads, under [`Grouping::Rules`]; within it they are shown by
/// name. (So far HotSpot is the only runtime whose own threads are recognized.)
pub const INTERNAL: &str = "[JVM]";

/// The property that decides a fact's group.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Name(NameId),
    Thread(ThreadKey),
    Process(u32),
    /// The first matching frame, a location of [`Rows`].
    Frame(Option<u32>),
    All,
}

/// A group's name. Groups with the same name are shown as one, if some of them have an inner name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Label {
    pub name: Arc<str>,
    /// The row of these threads within the group.
    pub inner: Option<Arc<str>>,
}

impl Label {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [Some(&self.name), self.inner.as_ref()].into_iter().flatten().map(|name| &**name)
    }
}

/// Numbers the groups and caches the group of each key.
#[derive(Default)]
pub(super) struct Groups {
    labels: Vec<Label>,
    by_label: HashMap<Label, u32>,
    by_key: FxHashMap<Key, u32>,
}

impl Groups {
    /// Drops all groups, after a change of settings.
    pub(super) fn forget(&mut self) {
        *self = Groups::default();
    }

    /// Limits the memory for a target that continuously creates threads and names.
    pub(super) fn bound(&mut self) {
        if self.by_key.len() > 200_000 {
            self.forget();
        }
    }

    /// Returns the group of a fact; `frame` is the first matching frame, under [`Grouping::Frame`].
    pub(super) fn of(
        &mut self,
        snapshot: &Snapshot,
        settings: &Settings,
        rows: &Rows,
        (thread, name): (ThreadKey, NameId),
        frame: Option<u32>,
    ) -> u32 {
        let key = match settings.grouping {
            Grouping::Rules | Grouping::Name => Key::Name(name),
            Grouping::Thread => Key::Thread(thread),
            Grouping::Process => Key::Process(thread.pid),
            Grouping::None => Key::All,
            Grouping::Frame(_) => Key::Frame(frame),
        };
        if let Some(group) = self.by_key.get(&key) {
            return *group;
        }
        let text = || snapshot.tables.name(name);
        let internal = snapshot.tables.kind(name) == ThreadKind::Internal;
        let mut inner = None;
        let label: Arc<str> = match settings.grouping {
            Grouping::Rules if internal => {
                inner = Some(internal_name(text(), &settings.rename).into());
                INTERNAL.into()
            }
            Grouping::Rules => by_rules(text(), &settings.rename).into(),
            Grouping::Name => text().clone(),
            Grouping::Thread => thread_label(text(), thread).into(),
            Grouping::Process => {
                match snapshot.targets.iter().rfind(|target| target.pid == thread.pid) {
                    Some(target) => format!("{} {}", target.pid, target.command).into(),
                    None => thread.pid.to_string().into(),
                }
            }
            Grouping::None => ALL.into(),
            Grouping::Frame(_) => {
                frame.map_or_else(|| NO_MATCH.into(), |l| rows.location(l).function.clone())
            }
        };
        let label = Label { name: label, inner };
        let next = self.labels.len() as u32;
        let group = match settings.grouping {
            // Threads with equal names are different groups.
            Grouping::Thread => next,
            _ => *self.by_label.entry(label.clone()).or_insert(next),
        };
        if group == next {
            self.labels.push(label);
        }
        self.by_key.insert(key, group);
        group
    }

    /// Returns the number of groups; all lower numbers are valid.
    pub(super) fn count(&self) -> usize {
        self.labels.len()
    }

    pub(super) fn label(&self, group: u32) -> &Label {
        &self.labels[group as usize]
    }
}

/// Returns the name of a single thread's group.
pub(super) fn thread_label(name: &str, thread: ThreadKey) -> String {
    format!("{name} ({})", thread.tid)
}
