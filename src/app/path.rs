//! Where a row is: a path of names, which stays valid when numbers, order and ids change.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::project::Projection;
use crate::model::settings::RollUp;
use crate::model::tables::Location;

/// What makes a row the same row after the next snapshot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RowKey {
    pub function: Arc<str>,
    pub module: Arc<str>,
    /// Under roll-up line only.
    pub line: Option<(Option<Arc<str>>, u32)>,
}

impl RowKey {
    pub fn of(location: &Location, roll_up: RollUp) -> RowKey {
        RowKey {
            function: location.function.clone(),
            module: location.module.clone(),
            line: match roll_up {
                RollUp::Function => None,
                RollUp::Line => location.line.map(|line| (location.file.clone(), line)),
            },
        }
    }

    /// Compares without taking a key's strings.
    pub fn is(&self, location: &Location, roll_up: RollUp) -> bool {
        self.function == location.function
            && self.module == location.module
            && (roll_up == RollUp::Function || *self == RowKey::of(location, roll_up))
    }
}

/// A row of the tree: its group, and its frames from the outermost inward (none: the group itself).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    pub group: Arc<str>,
    pub frames: Vec<RowKey>,
}

impl Path {
    pub fn of_node(projection: &Projection, group: u32, node: u32, roll_up: RollUp) -> Path {
        let mut frames = Vec::new();
        let mut at = Some(node);
        while let Some(node) = at.and_then(|n| projection.nodes.get(n as usize)) {
            frames.push(RowKey::of(&node.location, roll_up));
            at = node.parent;
        }
        frames.reverse();
        Path { group: projection.groups[group as usize].name.clone(), frames }
    }

    /// The group, and the nodes of this path as far as they exist now.
    pub fn find(&self, projection: &Projection, roll_up: RollUp) -> Option<(u32, Vec<u32>)> {
        let group = projection.groups.iter().position(|g| g.name == self.group)?;
        let mut nodes = Vec::with_capacity(self.frames.len());
        let mut below = &projection.groups[group].roots;
        for key in &self.frames {
            let Some(node) = below.iter().find(|n| key.is(&projection.nodes[**n as usize].location, roll_up)) else {
                break;
            };
            nodes.push(*node);
            below = &projection.nodes[*node as usize].children;
        }
        Some((group as u32, nodes))
    }
}

/// Which rows are expanded: a tree of names.
#[derive(Clone, Debug, Default)]
pub struct Expanded {
    groups: HashMap<Arc<str>, Branch>,
}

/// One row's expansion, and what lies below it.
#[derive(Clone, Debug, Default)]
pub struct Branch {
    pub open: bool,
    below: HashMap<RowKey, Branch>,
}

impl Branch {
    pub fn below(&self, location: &Location, roll_up: RollUp) -> Option<&Branch> {
        // Most rows have nothing expanded below them: no key is made then.
        if self.below.is_empty() { None } else { self.below.get(&RowKey::of(location, roll_up)) }
    }
}

impl Expanded {
    pub fn group(&self, name: &str) -> Option<&Branch> {
        self.groups.get(name)
    }

    /// Opens the row and everything above it: what is above may be drawn as a row of its own tomorrow.
    pub fn open(&mut self, path: &Path) {
        let mut branch = self.groups.entry(path.group.clone()).or_default();
        branch.open = true;
        for key in &path.frames {
            branch = branch.below.entry(key.clone()).or_default();
            branch.open = true;
        }
    }

    /// Closes the row; what is open below it will be open again when it is.
    pub fn close(&mut self, path: &Path) {
        let mut branch = self.groups.get_mut(&path.group);
        for key in &path.frames {
            branch = branch.and_then(|b| b.below.get_mut(key));
        }
        if let Some(branch) = branch {
            branch.open = false;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}
