//! Builds the call trees: converts stacks to nodes, one per row (function, line, class ...) on a
//! path.
//!
//! [`ShownStacks`] knows the shown frames of each stack and which of them are one row. So a group's
//! nodes are the branches on its stacks, and nothing is searched.

use super::Totals;
use super::columns::{Columns, NONE};
use super::fact_reader::{Cell, CellKind};
use super::nodes::{Nodes, Seen};
use super::shown_stacks::{Entry, Mark, ShownStacks, Walker};
use super::visit::{self, Visit};
use crate::model::facts::tables::{FrameId, StackId};
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::role::Role;

/// The number of a walk after which numbers begin again. (Small in tests, so that they do.)
const LAST_WALK: u32 = if cfg!(test) { 3 } else { u32::MAX };

/// Memory that is reused for the next projection.
#[derive(Default)]
pub(super) struct Scratch {
    /// Numbers the groups, through all projections.
    walk: u32,
    /// By branch.
    node_of: Vec<Mark>,
    visits: Vec<Visit>,
    path: Vec<u32>,
    /// Some nodes were seen at several locations.
    several: bool,
    /// Nodes of an earlier projection.
    pub nodes: Nodes,
    /// [`Trees::attached`] of an earlier projection.
    pub attached: Vec<u32>,
}

/// The trees of all groups.
pub(super) struct Trees {
    pub nodes: Nodes,
    /// The node to which each cell is attached; [`NONE`] if none of its frames is shown.
    pub attached: Vec<u32>,
    pub groups: Vec<TreeGroup>,
}

/// Describes a group before its cells are added.
pub(super) struct Head {
    /// This is another part of the group before it.
    pub joins: bool,
    /// The row above all of its nodes, and the location shown with it; see [`Rows::row`].
    pub inner: Option<(u32, u32)>,
}

/// A cell in the order in which trees are built.
#[derive(Clone, Copy)]
pub(super) struct InOrder {
    pub cell: u32,
    pub stack: StackId,
    /// Index of its group's [`Head`].
    pub head: u32,
}

/// A shown frame of one or more stacks.
pub(super) struct ShownFrame {
    /// Index of the next shown frame further out, or [`NONE`].
    pub parent: u32,
    pub location: u32,
    /// Inlined into the next shown frame further out, within the same machine frame.
    pub inlined: bool,
    /// Its machine frame.
    pub frame: FrameId,
}

/// The cells of one group as a tree.
pub(super) struct TreeGroup {
    pub total: Totals,
    pub own: Totals,
    pub first_root: u32,
}

impl Default for TreeGroup {
    fn default() -> TreeGroup {
        TreeGroup { total: Totals::default(), own: Totals::default(), first_root: NONE }
    }
}

pub(super) struct Builder<'a> {
    pub walker: Walker<'a>,
    /// The row of [`CellKind::Woken`], and its location.
    pub woken: (u32, u32),
    pub stacks: &'a mut ShownStacks,
    pub scratch: &'a mut Scratch,
}

impl Builder<'_> {
    /// Builds the trees. `order`: the shown cells, grouped in the order of `heads`; `sums`: the
    /// time of each cell, which remain the first rows of [`Nodes::owns`].
    pub(super) fn build(
        self,
        (cells, sums): (&[Cell], Columns),
        order: &[InOrder],
        heads: &[Head],
    ) -> Trees {
        let Builder { walker, woken, stacks, scratch } = self;
        stacks.update(&walker, order.iter().map(|next| next.stack));
        let woken_branch = stacks.outermost_branch(woken.0);
        scratch.clear(stacks);
        let mut groups: Vec<TreeGroup> = Vec::new();
        let mut attached = std::mem::take(&mut scratch.attached);
        attached.clear();
        attached.resize(cells.len(), NONE);
        let old = std::mem::take(&mut scratch.nodes);
        let mut nodes = Nodes::new(walker.rows.places().clone(), sums, old);
        let mut of_head = NONE;
        let mut above = NONE;
        for next in order {
            let head = &heads[next.head as usize];
            if next.head != of_head {
                of_head = next.head;
                if groups.is_empty() || !head.joins {
                    groups.push(TreeGroup::default());
                }
                scratch.next_walk(stacks);
                above = NONE;
            }
            let number = groups.len() - 1;
            let group = &mut groups[number];
            if let (NONE, Some((row, location))) = (above, head.inner) {
                // No other part of the group has this row.
                let seen = Seen { row, location, role: Role::Marker, is_entry: false };
                above = nodes.push(NONE, seen, &mut group.first_root);
            }
            let root = &mut group.first_root;
            let node = match stacks.attach(next.stack) {
                NONE if cells[next.cell as usize].kind == CellKind::Woken => {
                    let (row, location) = woken;
                    let seen = Seen { row, location, role: Role::Marker, is_entry: false };
                    scratch.node(woken_branch, above, seen, &mut nodes, root)
                }
                NONE => above,
                entry => {
                    let visit = scratch.visit(entry, above, (&walker, stacks), &mut nodes, root);
                    visit.wall_ns += nodes.owns.value(next.cell, Metric::Wall);
                    visit.cpu_ns += nodes.owns.value(next.cell, Metric::Cpu);
                    visit.node
                }
            };
            if node == NONE {
                group.own.add(&nodes.owns.get(next.cell));
                continue;
            }
            attached[next.cell as usize] = node;
            nodes.attach(node, next.cell);
        }
        nodes.add_up();
        nodes.add_entries_to_callers();
        for group in &mut groups {
            group.own.settle_off();
            group.total = nodes.total(group.first_root, &group.own);
        }
        if scratch.several {
            nodes.set_lines(visit::seen_at_several(&mut scratch.visits, &nodes));
        }
        Trees { nodes, attached, groups }
    }

    /// Returns the shown frames of these stacks, callers first, and for each stack the frame that
    /// gets its time; [`NONE`] if none of its frames is shown.
    pub(super) fn frames(
        self,
        stacks: impl Iterator<Item = StackId> + Clone,
    ) -> (Vec<ShownFrame>, Vec<u32>) {
        self.stacks.update(&self.walker, stacks.clone());
        let attached: Vec<u32> = stacks.map(|stack| self.stacks.attach(stack)).collect();
        let entries = self.stacks.entries();
        let frames = entries.iter().map(|entry| ShownFrame {
            parent: entry.parent,
            location: entry.location,
            inlined: entry.parent != NONE && entries[entry.parent as usize].stack == entry.stack,
            frame: self.walker.tables.top(entry.stack),
        });
        (frames.collect(), attached)
    }
}

impl Scratch {
    /// Returns the visit of an entry by the present group. Creates it, those of its callers and
    /// their nodes, if missing; the outermost is below `above`.
    fn visit(
        &mut self,
        entry: u32,
        above: u32,
        (walker, stacks): (&Walker<'_>, &mut ShownStacks),
        nodes: &mut Nodes,
        first_root: &mut u32,
    ) -> &mut Visit {
        self.path.clear();
        let mut visit = NONE;
        let mut at = entry;
        while at != NONE {
            let Entry { parent, visit: mark, .. } = stacks.entries()[at as usize];
            if mark.walk == self.walk {
                visit = mark.of;
                break;
            }
            self.path.push(at);
            at = parent;
        }
        let mut node = self.visits.get(visit as usize).map_or(above, |visit| visit.node);
        while let Some(entry) = self.path.pop() {
            let Entry { location, role, is_entry, branch, .. } = stacks.entries()[entry as usize];
            let (row, shown) = walker.rows.row(location, walker.settings.roll_up);
            let seen = Seen { row, location: shown, role, is_entry };
            node = self.node(branch, node, seen, nodes, first_root);
            let next = self.visits.len() as u32;
            self.visits.push(Visit { parent: visit, node, location, wall_ns: 0, cpu_ns: 0 });
            visit = next;
            *stacks.visit_mut(entry) = Mark { walk: self.walk, of: visit };
        }
        &mut self.visits[visit as usize]
    }

    /// Returns the node of a branch in the present group; creates it below `parent` if missing.
    fn node(
        &mut self,
        branch: u32,
        parent: u32,
        seen: Seen,
        nodes: &mut Nodes,
        first_root: &mut u32,
    ) -> u32 {
        let mark = &mut self.node_of[branch as usize];
        if mark.walk == self.walk {
            self.several |= nodes.see(mark.of, seen.location);
        } else {
            *mark = Mark { walk: self.walk, of: nodes.push(parent, seen, first_root) };
        }
        mark.of
    }

    fn clear(&mut self, stacks: &ShownStacks) {
        let count = self.node_of.len().max(stacks.branch_count());
        self.node_of.resize(count, Mark::default());
        self.visits.clear();
        self.several = false;
    }

    /// Starts a new walk, which ignores the marks of earlier groups and projections.
    fn next_walk(&mut self, stacks: &mut ShownStacks) {
        if self.walk == LAST_WALK {
            stacks.forget_visits();
            self.node_of.fill(Mark::default());
            self.walk = 0;
        }
        self.walk += 1;
    }
}
