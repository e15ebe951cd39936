//! The inverted tree: the functions in which the time was spent, and below each its callers.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::columns::NONE;
use super::fact_reader::{Cell, CellKind};
use super::nodes::{Nodes, Seen};
use super::shown_stacks::{ShownStacks, Walker};
use super::tree::{Head, InOrder, TreeGroup, Trees};
use super::visit::{self, Visit};
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::role::Role;

/// Maximum nodes: about 30 MB. Every stack has a path of its own here, so there may be many times
/// as many as in the tree of calls. (Small in tests, so that it is reached.)
const MAX_NODES: usize = if cfg!(test) { 24 } else { 300_000 };

/// A frame of a path. Row, and the location that it is shown with.
#[derive(Clone, Copy)]
struct Step {
    row: u32,
    location: u32,
    role: Role,
}

/// The rows of what is on no stack, each with its location.
pub(super) struct Extra {
    /// Of [`CellKind::Woken`].
    pub woken: (u32, u32),
    pub no_room: (u32, u32),
}

/// Builds the inverted trees of stacks whose upright ones were built before: `upright`, the nodes
/// of those; `stacks`, what they are made of; `order` and `heads` as for them. Each group has the
/// same total and own time in both. The sum of a node is the time of the stacks that end in the
/// path from it to its root. The time of a root is also its own time.
///
/// There are at most [`MAX_NODES`] and their markers; then the stacks with most time are whole, and
/// the others end in a marker.
pub(super) fn build(
    (walker, stacks): (&Walker<'_>, &ShownStacks),
    (cells, upright): (&[Cell], &Nodes),
    order: &[InOrder],
    heads: &[Head],
    extra: &Extra,
) -> Trees {
    let mut tree = Tree {
        nodes: Nodes::new(
            walker.rows.places().clone(),
            upright.owns.first_rows(cells.len()),
            Nodes::default(),
        ),
        visits: Vec::new(),
        visit_at: FxHashMap::default(),
        node_at: FxHashMap::default(),
        several: false,
        no_room: extra.no_room,
    };
    let mut group_count = 0;
    let groups_of_heads: Vec<u32> = heads
        .iter()
        .map(|head| {
            group_count += u32::from(group_count == 0 || !head.joins);
            group_count - 1
        })
        .collect();
    let mut groups: Vec<TreeGroup> = (0..group_count).map(|_| TreeGroup::default()).collect();
    let mut attached = vec![NONE; cells.len()];
    // Where there is no room for all, the order decides.
    let mut order: Vec<InOrder> = order.to_vec();
    let weight = |next: &InOrder| tree.nodes.owns.value(next.cell, Metric::Wall);
    order.sort_by_cached_key(|next| Reverse(weight(next)));
    let mut path = Vec::new();
    for next in order {
        let head = &heads[next.head as usize];
        let number = groups_of_heads[next.head as usize];
        let group = &mut groups[number as usize];
        let kind = cells[next.cell as usize].kind;
        path.clear();
        match stacks.attach(next.stack) {
            NONE if kind == CellKind::Woken => path.push(marker(extra.woken)),
            entry => push_frames(&mut path, entry, walker, stacks),
        }
        path.extend(head.inner.map(marker));
        let visit = tree.visit(&path, number, &mut group.first_root);
        let Some(visit) = tree.visits.get_mut(visit as usize) else {
            group.own.add(&tree.nodes.owns.get(next.cell));
            continue;
        };
        visit.wall_ns += tree.nodes.owns.value(next.cell, Metric::Wall);
        visit.cpu_ns += tree.nodes.owns.value(next.cell, Metric::Cpu);
        attached[next.cell as usize] = visit.node;
        tree.nodes.attach(visit.node, next.cell);
    }
    tree.nodes.add_up();
    for group in &mut groups {
        group.own.settle_off();
        group.total = tree.nodes.total(group.first_root, &group.own);
    }
    tree.nodes.own_at_roots();
    if tree.several {
        tree.nodes.set_lines(visit::seen_at_several(&mut tree.visits, &tree.nodes));
    }
    Trees { nodes: tree.nodes, attached, groups }
}

fn marker((row, location): (u32, u32)) -> Step {
    Step { row, location, role: Role::Marker }
}

/// Adds the rows of a stack from the innermost outward.
fn push_frames(path: &mut Vec<Step>, entry: u32, walker: &Walker<'_>, stacks: &ShownStacks) {
    let (mut at, mut branch) = (entry, NONE);
    while at != NONE {
        let entry = stacks.entries()[at as usize];
        // Consecutive frames of one row have one branch.
        if entry.branch != branch {
            let (row, location) = walker.rows.row(entry.location, walker.settings.roll_up);
            path.push(Step { row, location, role: entry.role });
        }
        (at, branch) = (entry.parent, entry.branch);
    }
}

struct Tree {
    nodes: Nodes,
    visits: Vec<Visit>,
    /// (group, visit or [`NONE`], location) -> visit.
    visit_at: FxHashMap<(u32, u32, u32), u32>,
    /// (group, node or [`NONE`], row) -> node.
    node_at: FxHashMap<(u32, u32, u32), u32>,
    /// Some nodes were seen at several locations.
    several: bool,
    no_room: (u32, u32),
}

impl Tree {
    /// Returns the visit at the end of the path; creates what is missing. [`NONE`] if it is empty.
    fn visit(&mut self, path: &[Step], group: u32, first_root: &mut u32) -> u32 {
        let (mut visit, mut node) = (NONE, NONE);
        for step in path {
            let known = self.visit_at.get(&(group, visit, step.location)).copied();
            let next = known.unwrap_or_else(|| {
                let has_node = self.node_at.contains_key(&(group, node, step.row));
                let is_full = self.visits.len() >= 2 * MAX_NODES
                    || !has_node && self.nodes.len() >= MAX_NODES;
                let step = if is_full { marker(self.no_room) } else { *step };
                self.add((group, visit, node), step, first_root)
            });
            visit = next;
            node = self.visits[visit as usize].node;
            if self.visits[visit as usize].location == self.no_room.1 {
                break;
            }
        }
        visit
    }

    /// Returns the visit of a step below another visit and its node.
    fn add(
        &mut self,
        (group, parent, above): (u32, u32, u32),
        step: Step,
        first_root: &mut u32,
    ) -> u32 {
        let Step { row, location, role } = step;
        if let Some(visit) = self.visit_at.get(&(group, parent, location)) {
            return *visit;
        }
        let node = match self.node_at.get(&(group, above, row)) {
            Some(node) => {
                self.several |= self.nodes.see(*node, location);
                *node
            }
            None => {
                let seen = Seen { row, location, role, is_entry: false };
                let node = self.nodes.push(above, seen, first_root);
                self.node_at.insert((group, above, row), node);
                node
            }
        };
        let visit = self.visits.len() as u32;
        self.visits.push(Visit { parent, node, location, wall_ns: 0, cpu_ns: 0 });
        self.visit_at.insert((group, parent, location), visit);
        visit
    }
}
