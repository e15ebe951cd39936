//! Assigns threads to groups.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::filter::Path;
use super::goroutine_start::GoGroup;
use super::lock_identity::LockKey;
use super::rows::Rows;
use crate::model::facts::fact::FactKey;
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::{Blocker, BlockerId, NameId};
use crate::model::projection::settings::{Grouping, Settings};
use crate::model::vocabulary::frame::{ThreadKey, ThreadKind};
use crate::model::vocabulary::labels;
use crate::model::vocabulary::state::State;
use crate::model::vocabulary::thread_name_rules::{by_rules, internal_name};

/// The group of stacks without a frame that matches, under [`Grouping::Frame`].
pub const NO_MATCH: &str = "(no match)";
/// The group of stacks without labels, under [`Grouping::Label`].
pub const NO_LABELS: &str = "(no labels)";
/// The group of stacks whose labels are not told apart.
const OTHER_LABELS: &str = "(other labels)";
/// The one group of [`Grouping::None`].
pub const ALL: &str = "(all)";
/// The group of a runtime's own threads, under [`Grouping::Rules`]; within it they are shown by
/// name. (So far HotSpot is the only runtime whose own threads are recognized.)
pub const INTERNAL: &str = "[JVM]";
/// The group of what Go's runtime does for itself, under [`Grouping::Rules`]; within it there are
/// the scheduler, the collector and the rest.
pub const GO_RUNTIME: &str = "[Go runtime]";
/// The group of stacks of Go whose outer end is missing, under [`Grouping::Rules`].
pub const UNKNOWN_GOROUTINE: &str = "(unknown goroutine)";

/// Between the name of a lock and its process, under [`Grouping::Blocker`] of several processes.
pub(in crate::model) const OF_PROCESS: &str = " of process ";

/// What a thread does for which no blocker is known, under [`Grouping::Blocker`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Doing {
    NotWaiting,
    InputOutput,
    Sleeping,
    Stopped,
    Unknown,
}

impl Doing {
    fn of(state: State) -> Doing {
        match state {
            State::Run | State::Rdy => Doing::NotWaiting,
            State::Io | State::Poll | State::Disk => Doing::InputOutput,
            State::Sleep => Doing::Sleeping,
            State::Stopped => Doing::Stopped,
            State::Lock | State::Wait => Doing::Unknown,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Doing::NotWaiting => "(not waiting)",
            Doing::InputOutput => "(waits for input or output)",
            Doing::Sleeping => "(sleeps)",
            Doing::Stopped => "(stopped)",
            Doing::Unknown => "(waits for something unknown)",
        }
    }
}

/// The property that decides a fact's group.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Name(NameId),
    Go(GoGroup),
    Thread(ThreadKey),
    Process(u32),
    /// The first matching frame, or that of the labels; a location of [`Rows`].
    Frame(Option<u32>),
    Blocker(BlockerId),
    Doing(Doing),
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
    /// By group: whether it has the name of threads.
    named_after_threads: Vec<bool>,
    by_label: HashMap<Label, u32>,
    by_key: FxHashMap<Key, u32>,
    locks: Locks,
}

/// The locks that groups are named after, under [`Grouping::Blocker`].
#[derive(Default)]
struct Locks {
    /// The first class that is known of each.
    classes: FxHashMap<LockKey, Option<Arc<str>>>,
    /// Number of blockers that were read.
    read: usize,
    of_several_processes: bool,
}

impl Locks {
    /// Reads new blockers. Returns whether locks that were known have another name.
    fn update(&mut self, snapshot: &Snapshot) -> bool {
        let several = snapshot.targets.len() > 1;
        let mut changed = std::mem::replace(&mut self.of_several_processes, several) != several;
        let count = snapshot.tables.blocker_count();
        for id in self.read..count {
            let Some(blocker) = snapshot.tables.blocker(BlockerId(id as u32 + 1)) else { continue };
            let known = self.classes.entry(LockKey::of(blocker));
            let is_known = matches!(known, Entry::Occupied(_));
            let class = known.or_default();
            if let (None, Some(found)) = (&class, &blocker.class) {
                *class = Some(found.clone());
                changed |= is_known;
            }
        }
        self.read = self.read.max(count);
        changed
    }

    fn name(&self, blocker: &Blocker) -> String {
        let lock = LockKey::of(blocker);
        let class = self.classes.get(&lock).and_then(|class| class.as_deref());
        let name = lock.kind.name_of(class, lock.object);
        match self.of_several_processes {
            true => format!("{name}{OF_PROCESS}{}", lock.pid),
            false => name,
        }
    }
}

impl Groups {
    /// Drops all groups, after a change of settings.
    pub(super) fn forget(&mut self) {
        *self = Groups::default();
    }

    /// Reads what changed in the snapshot.
    pub(super) fn update(&mut self, snapshot: &Snapshot, settings: &Settings) {
        if matches!(settings.grouping, Grouping::Blocker) && self.locks.update(snapshot) {
            let locks = std::mem::take(&mut self.locks);
            *self = Groups { locks, ..Groups::default() };
        }
    }

    /// Limits the memory for a target that continuously creates threads and names.
    pub(super) fn bound(&mut self) {
        if self.by_key.len() > 200_000 {
            self.forget();
        }
    }

    /// Returns whether the group of a fact of a plain thread with this stack depends on more than
    /// the thread.
    pub(super) fn is_by_stack(settings: &Settings, path: &Path) -> bool {
        match settings.grouping {
            Grouping::Blocker | Grouping::Label(_) | Grouping::Frame(_) => true,
            Grouping::Rules => path.start.group().is_some(),
            Grouping::Name | Grouping::Thread | Grouping::Process | Grouping::None => false,
        }
    }

    /// Returns whether a fact of a plain thread with this stack is in the group of Go's runtime.
    pub(super) fn is_of_go_runtime(settings: &Settings, path: &Path) -> bool {
        matches!(settings.grouping, Grouping::Rules)
            && matches!(path.start.group(), Some(GoGroup::Runtime(_)))
    }

    /// Returns the group of a fact in this state; `path`: the result for its stack.
    pub(super) fn of(
        &mut self,
        snapshot: &Snapshot,
        settings: &Settings,
        rows: &Rows,
        fact: &FactKey,
        state: State,
        path: &Path,
    ) -> u32 {
        let FactKey { thread, name, .. } = *fact;
        let frame = path.group;
        let internal = snapshot.tables.kind(name) == ThreadKind::Internal;
        let key = match settings.grouping {
            Grouping::Rules => match path.start.group().filter(|_| !internal) {
                Some(group) => Key::Go(group),
                None => Key::Name(name),
            },
            Grouping::Name => Key::Name(name),
            Grouping::Thread => Key::Thread(thread),
            Grouping::Process => Key::Process(thread.pid),
            Grouping::Blocker => match snapshot.tables.blocker(fact.blocker) {
                Some(_) => Key::Blocker(fact.blocker),
                None => Key::Doing(Doing::of(state)),
            },
            Grouping::None => Key::All,
            Grouping::Label(_) | Grouping::Frame(_) => Key::Frame(frame),
        };
        if let Some(group) = self.by_key.get(&key) {
            return *group;
        }
        let text = || snapshot.tables.name(name);
        let mut inner = None;
        let label: Arc<str> = match settings.grouping {
            Grouping::Rules if matches!(key, Key::Go(_)) => match key {
                Key::Go(GoGroup::StartedBy(location)) => rows.location(location).function.clone(),
                Key::Go(GoGroup::Runtime(part)) => {
                    inner = Some(part.word().into());
                    GO_RUNTIME.into()
                }
                _ => UNKNOWN_GOROUTINE.into(),
            },
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
            Grouping::Blocker => match key {
                Key::Doing(doing) => doing.name().into(),
                _ => {
                    let blocker = snapshot.tables.blocker(fact.blocker);
                    blocker.map_or_else(|| ALL.into(), |blocker| self.locks.name(blocker).into())
                }
            },
            Grouping::None => ALL.into(),
            Grouping::Label(ref key) => match frame {
                Some(frame) => label_group(&rows.location(frame).function, key.as_deref()),
                None => NO_LABELS.into(),
            },
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
            self.named_after_threads.push(matches!(key, Key::Name(_)));
        }
        self.by_key.insert(key, group);
        group
    }

    /// Returns whether the thread filter shows a thread of this name and group: it matches one of
    /// the two names.
    pub(super) fn is_chosen(
        &self,
        snapshot: &Snapshot,
        settings: &Settings,
        (thread, name): (ThreadKey, NameId),
        group: u32,
    ) -> bool {
        let Some(pattern) = settings.filters.threads.active() else { return true };
        let name = snapshot.tables.name(name);
        let by_group = match settings.grouping {
            Grouping::Thread => pattern.is_match(&thread_label(name, thread)),
            _ => self.label(group).names().any(|name| pattern.is_match(name)),
        };
        by_group || pattern.is_match(name)
    }

    /// Returns the number of groups; all lower numbers are valid.
    pub(super) fn count(&self) -> usize {
        self.labels.len()
    }

    /// Returns whether a group has the name of its threads.
    pub(super) fn is_named_after_threads(&self, group: u32) -> bool {
        self.named_after_threads[group as usize]
    }

    pub(super) fn label(&self, group: u32) -> &Label {
        &self.labels[group as usize]
    }
}

/// Returns the group of stacks with the labels in the text of a frame; with a key, of those with
/// its value.
fn label_group(text: &str, key: Option<&str>) -> Arc<str> {
    let shown = labels::shown(text).unwrap_or(text);
    let Some(key) = key else {
        return if shown == labels::OTHER { OTHER_LABELS.into() } else { shown.into() };
    };
    let value = labels::labels(text).into_iter().find(|(own, _)| own == key);
    match value {
        Some((_, value)) => value.into(),
        None if shown == labels::OTHER => OTHER_LABELS.into(),
        None => format!("(no {key})").into(),
    }
}

/// Returns the name of a single thread's group.
pub(super) fn thread_label(name: &str, thread: ThreadKey) -> String {
    format!("{name} ({})", thread.shown_id())
}
