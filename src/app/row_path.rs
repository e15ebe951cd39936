//! Identifies rows by paths of names, which stay valid when numbers, order and ids change.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::settings::{Grouping, RollUp, Settings};
use crate::model::projection::{Group, Projection};
use crate::model::transform::diff;

/// Identifies a row across snapshots, by the same properties that
/// [`crate::model::projection`] uses.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RowKey {
    pub function: Arc<str>,
    pub module: Arc<str>,
    kind: FrameKind,
    /// Under roll-up line only.
    line: Option<(Option<Arc<str>>, Option<u32>)>,
}

impl RowKey {
    pub fn of(location: &Location, roll_up: RollUp) -> RowKey {
        RowKey {
            function: location.function.clone(),
            module: location.module.clone(),
            kind: location.kind,
            line: (roll_up == RollUp::Line).then(|| (location.file.clone(), location.line)),
        }
    }

    pub fn is(&self, location: &Location, roll_up: RollUp) -> bool {
        self.function == location.function
            && self.module == location.module
            && self.kind == location.kind
            && match &self.line {
                None => roll_up != RollUp::Line,
                Some((file, line)) => {
                    roll_up == RollUp::Line && *file == location.file && *line == location.line
                }
            }
    }
}

/// Identifies a group across snapshots. Two threads or processes may share a name; then their ids
/// distinguish them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GroupKey {
    name: Arc<str>,
    id: (u32, u32),
}

impl GroupKey {
    /// Identifies a group of the comparison of two profiles, where names alone match.
    pub fn named(name: Arc<str>) -> GroupKey {
        GroupKey { name, id: (0, 0) }
    }

    pub fn of(group: &Group, grouping: &Grouping) -> GroupKey {
        let id = match (grouping, group.threads.first()) {
            (Grouping::Thread, Some(first)) => (first.thread.pid, first.thread.tid),
            (Grouping::Process, Some(first)) => (first.thread.pid, 0),
            _ => (0, 0),
        };
        GroupKey { name: group.name.clone(), id }
    }

    /// Returns the key of the group of a comparison that this group belongs to.
    pub fn in_comparison(&self, grouping: &Grouping) -> GroupKey {
        GroupKey::named(diff::group_name(&self.name, grouping))
    }
}

/// A row of the tree: its group, and its frames from the outermost inward (none: the group itself).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// `None`: the line of small groups.
    pub group: Option<GroupKey>,
    pub frames: Vec<RowKey>,
    /// The line of the small rows under that row.
    pub small: bool,
}

impl Path {
    pub fn of_node(projection: &Projection, group: u32, node: u32, settings: &Settings) -> Path {
        let mut frames = Vec::new();
        let mut at = Some(node);
        while let Some(node) = at {
            frames.push(RowKey::of(projection.name(node), settings.roll_up));
            at = projection.parent(node);
        }
        frames.reverse();
        Path { frames, ..Path::of_group(projection, group, settings) }
    }

    pub fn of_group(projection: &Projection, group: u32, settings: &Settings) -> Path {
        let group = GroupKey::of(&projection.groups[group as usize], &settings.grouping);
        Path { group: Some(group), frames: Vec::new(), small: false }
    }

    /// Returns the path of the line of small groups.
    pub fn of_small_groups() -> Path {
        Path { group: None, frames: Vec::new(), small: true }
    }

    /// Returns the path of the line of small rows under this row.
    pub fn small(self) -> Path {
        Path { small: true, ..self }
    }

    /// Finds the group, and the nodes of this path as far as they exist now.
    pub fn find(&self, projection: &Projection, settings: &Settings) -> Option<(u32, Vec<u32>)> {
        let is_it = |group: &Group| Some(GroupKey::of(group, &settings.grouping)) == self.group;
        let group = projection.groups.iter().position(is_it)? as u32;
        Some((group, self.nodes(projection, group, settings)))
    }

    /// Finds the same for a path of a comparison. Several groups may be one there: the first that
    /// has most of the path.
    pub fn find_compared(
        &self,
        projection: &Projection,
        settings: &Settings,
    ) -> Option<(u32, Vec<u32>)> {
        let grouping = &settings.grouping;
        let groups = (0..).zip(&projection.groups);
        let is_it = |group: &Group| {
            Some(GroupKey::of(group, grouping).in_comparison(grouping)) == self.group
        };
        let found = groups.filter(|(_, group)| is_it(group));
        let found = found.map(|(at, _)| (at, self.nodes(projection, at, settings)));
        found.reduce(|most, next| if next.1.len() > most.1.len() { next } else { most })
    }

    /// Returns the nodes of the path in a group, as far as they exist.
    fn nodes(&self, projection: &Projection, group: u32, settings: &Settings) -> Vec<u32> {
        let mut nodes = Vec::with_capacity(self.frames.len());
        let mut below = projection.roots(&projection.groups[group as usize]);
        for key in &self.frames {
            let Some(node) = below.find(|node| key.is(projection.name(*node), settings.roll_up))
            else {
                break;
            };
            nodes.push(node);
            below = projection.children(node);
        }
        nodes
    }
}

/// The expanded rows: a tree of names.
#[derive(Clone, Debug, Default)]
pub struct Expanded {
    groups: HashMap<GroupKey, Branch>,
    /// The line of small groups is open.
    pub small_groups: bool,
}

/// One row's expansion, and those below it.
#[derive(Clone, Debug, Default)]
pub struct Branch {
    pub open: bool,
    /// The line of small rows under it is open.
    pub small_open: bool,
    below: HashMap<RowKey, Branch>,
}

impl Branch {
    pub fn below(&self, location: &Location, roll_up: RollUp) -> Option<&Branch> {
        // Most rows have nothing expanded below them, so the key is not built then.
        if self.below.is_empty() { None } else { self.below.get(&RowKey::of(location, roll_up)) }
    }
}

impl Expanded {
    pub fn group(&self, key: &GroupKey) -> Option<&Branch> {
        self.groups.get(key)
    }

    /// Opens the row and all rows above it: a row above may now be folded into this one and later
    /// be drawn by itself.
    pub fn open(&mut self, path: &Path) {
        let Some(group) = &path.group else {
            self.small_groups = true;
            return;
        };
        let mut branch = self.groups.entry(group.clone()).or_default();
        branch.open = true;
        for key in &path.frames {
            branch = branch.below.entry(key.clone()).or_default();
            branch.open = true;
        }
        branch.small_open |= path.small;
    }

    /// Closes the row. Rows open below it reappear open with it.
    pub fn close(&mut self, path: &Path) {
        let Some(group) = &path.group else {
            self.small_groups = false;
            return;
        };
        let mut branch = self.groups.get_mut(group);
        for key in &path.frames {
            branch = branch.and_then(|b| b.below.get_mut(key));
        }
        match branch {
            Some(branch) if path.small => branch.small_open = false,
            Some(branch) => branch.open = false,
            None => {}
        }
    }
}
