//! Builds the call trees: stacks -> nodes, one per row (function or line) on a path.
//!
//! Stacks are themselves a tree, so a stack is walked only from where the walk of another one left it. Each shown frame
//! on the way is an [`Entry`]; entries of one row below one node share a node. Where a stack's time is attached is the
//! filters' affair: at its innermost shown frame, or where the interesting cut ends it.

use rustc_hash::FxHashMap;

use super::filter::Verdicts;
use super::lines::{self, At};
use super::read::Cell;
use super::rows::Rows;
use super::{Node, Totals};
use crate::model::settings::{RollUp, Settings};
use crate::model::tables::{StackId, Tables};

/// No node, no entry.
pub(super) const NONE: u32 = u32::MAX;

/// A shown frame on the stacks of one group.
#[derive(Clone, Copy)]
struct Entry {
    /// Of the next shown frame further out, or [`NONE`].
    parent: u32,
    /// [`NONE`] as long as no time is attached here or further in.
    node: u32,
    location: u32,
    /// Time of the stacks through here.
    wall_ns: u64,
    cpu_ns: u64,
}

/// What the walk knows at a stack: of its own frames and all further out.
#[derive(Clone, Copy)]
struct Place {
    /// Which group's walk left it.
    walk: u32,
    /// The innermost shown frame.
    deepest: u32,
    /// Where the time of a thread with exactly this stack goes.
    attach: u32,
    /// The interesting cut: the next shown frame still belongs to it.
    one_more: bool,
}

const NOWHERE: Place = Place { walk: 0, deepest: NONE, attach: NONE, one_more: false };

/// The shape of the trees, a number per node ([`NONE`] for none). Parents come before their children.
#[derive(Default)]
pub(super) struct Shape {
    pub parents: Vec<u32>,
    /// The row: a function or a location.
    pub rows: Vec<u32>,
    pub first_child: Vec<u32>,
    /// Roots are siblings too, over all groups.
    pub next_sibling: Vec<u32>,
    pub first_root: u32,
    /// A location it was seen at.
    locations: Vec<u32>,
    child_count: Vec<u32>,
}

/// Memory that is used again for the next projection.
#[derive(Default)]
pub(super) struct Scratch {
    /// By [`StackId`].
    places: Vec<Place>,
    walk: u32,
    entries: Vec<Entry>,
    /// (node further out, or the group counted down from the top, row) -> node.
    children: FxHashMap<(u32, u32), u32>,
    totals: Vec<Totals>,
    stacks: Vec<StackId>,
    path: Vec<u32>,
    pub shape: Shape,
}

/// Nodes of all groups.
pub(super) struct Trees {
    pub nodes: Vec<Node>,
    /// The node each cell is attached to; [`NONE`] where no frame of it is shown.
    pub attached: Vec<u32>,
    pub groups: Vec<TreeGroup>,
}

/// The cells of one group, as one tree.
#[derive(Default)]
pub(super) struct TreeGroup {
    pub total: Totals,
    pub own: Totals,
    pub roots: Vec<u32>,
}

pub(super) struct Builder<'a> {
    pub tables: &'a Tables,
    pub settings: &'a Settings,
    pub rows: &'a Rows,
    pub verdicts: &'a Verdicts,
    pub scratch: &'a mut Scratch,
}

impl Builder<'_> {
    /// `order` is the cells' indexes, those of one group next to each other.
    pub(super) fn build(mut self, cells: &[Cell], order: impl Iterator<Item = u32>) -> Trees {
        self.scratch.clear(self.tables.stack_count());
        let mut groups: Vec<TreeGroup> = Vec::new();
        let mut attached = vec![NONE; cells.len()];
        let mut last = None;
        for index in order {
            let cell = &cells[index as usize];
            if last.replace(cell.group) != Some(cell.group) {
                groups.push(TreeGroup::default());
                self.scratch.next_walk();
            }
            let number = groups.len() - 1;
            let entry = self.walk(cell.stack).attach;
            if entry == NONE {
                groups[number].own.add(&cell.totals);
                continue;
            }
            let node = self.node_of(entry, number as u32, &mut groups[number].roots);
            attached[index as usize] = node;
            self.scratch.totals[node as usize].add(&cell.totals);
            let entry = &mut self.scratch.entries[entry as usize];
            entry.wall_ns += cell.totals.wall_ns;
            entry.cpu_ns += cell.totals.cpu_ns;
        }
        self.scratch.sum();
        if self.settings.roll_up == RollUp::Function {
            self.choose_lines();
        }
        let mut nodes = self.nodes();
        for (cell, node) in cells.iter().zip(&attached).filter(|(_, node)| **node != NONE) {
            nodes[*node as usize].own.add(&cell.totals);
        }
        for group in &mut groups {
            group.total = group.own;
            for root in &group.roots {
                group.total.add(&nodes[*root as usize].total);
            }
        }
        Trees { nodes, attached, groups }
    }

    fn walk(&mut self, stack: StackId) -> Place {
        let cut = self.settings.filters.interesting.active().is_some();
        let scratch = &mut *self.scratch;
        scratch.stacks.clear();
        let mut at = stack;
        while at != StackId::EMPTY && scratch.places[at.0 as usize].walk != scratch.walk {
            scratch.stacks.push(at);
            at = self.tables.parent(at);
        }
        let mut place = match at {
            StackId::EMPTY => Place { walk: scratch.walk, ..NOWHERE },
            known => scratch.places[known.0 as usize],
        };
        while let Some(stack) = scratch.stacks.pop() {
            for location in self.rows.of_frame(self.tables.top(stack)) {
                let verdict = self.verdicts.of_location(*location);
                if verdict.hide {
                    continue;
                }
                let entry = scratch.entries.len() as u32;
                let parent = std::mem::replace(&mut place.deepest, entry);
                scratch.entries.push(Entry { parent, node: NONE, location: *location, wall_ns: 0, cpu_ns: 0 });
                // The cut keeps root .. the interesting frame nearest the leaf, plus one callee; else the root alone.
                if !cut || verdict.interesting || place.one_more || parent == NONE {
                    place.attach = entry;
                }
                place.one_more = cut && verdict.interesting;
            }
            scratch.places[stack.0 as usize] = place;
        }
        place
    }

    /// The node of an entry, made where it is missing, as all further out are.
    fn node_of(&mut self, entry: u32, group: u32, roots: &mut Vec<u32>) -> u32 {
        let scratch = &mut *self.scratch;
        scratch.path.clear();
        let mut node = NONE;
        let mut at = entry;
        while at != NONE {
            let Entry { node: known, parent, .. } = scratch.entries[at as usize];
            if known != NONE {
                node = known;
                break;
            }
            scratch.path.push(at);
            at = parent;
        }
        while let Some(entry) = scratch.path.pop() {
            let entry = &mut scratch.entries[entry as usize];
            let row = match self.settings.roll_up {
                RollUp::Function => self.rows.function_of(entry.location),
                RollUp::Line => entry.location,
            };
            let next = scratch.totals.len() as u32;
            // Nodes count up from 0 and groups down from the top; memory ends long before they meet.
            let above = if node == NONE { NONE - group } else { node };
            let found = *scratch.children.entry((above, row)).or_insert(next);
            if found == next {
                scratch.totals.push(Totals::default());
                scratch.shape.push(node, row, entry.location);
                if node == NONE {
                    roots.push(next);
                }
            }
            entry.node = found;
            node = found;
        }
        node
    }

    /// Under roll-up function a node is shown with its heaviest line.
    fn choose_lines(&mut self) {
        let scratch = &mut *self.scratch;
        if scratch.entries.len() == scratch.totals.len() {
            return; // every node was seen at one location
        }
        let mut several = vec![false; scratch.totals.len()];
        for entry in scratch.entries.iter().filter(|entry| entry.node != NONE) {
            several[entry.node as usize] |= scratch.shape.locations[entry.node as usize] != entry.location;
        }
        let seen = scratch.seen_at().filter(|at| several[at.node as usize]).collect();
        let locations = &mut scratch.shape.locations;
        lines::heaviest_of_nodes(seen, self.settings.metric, self.rows, |node, location| {
            locations[node as usize] = location;
        });
    }

    /// The nodes with their totals; what is their own is still to be added.
    fn nodes(&self) -> Vec<Node> {
        let shape = &self.scratch.shape;
        let mut nodes: Vec<Node> = Vec::with_capacity(shape.parents.len());
        for (index, total) in self.scratch.totals.iter().enumerate() {
            let parent = shape.parents[index];
            if parent != NONE {
                nodes[parent as usize].children.push(index as u32);
            }
            nodes.push(Node {
                parent: (parent != NONE).then_some(parent),
                location: self.rows.location(shape.locations[index]).clone(),
                total: *total,
                own: Totals::default(),
                children: Vec::with_capacity(shape.child_count[index] as usize),
            });
        }
        nodes
    }
}

impl Shape {
    fn clear(&mut self) {
        let Shape { parents, rows, first_child, next_sibling, locations, child_count, .. } = self;
        for list in [parents, rows, first_child, next_sibling, locations, child_count] {
            list.clear();
        }
        self.first_root = NONE;
    }

    fn push(&mut self, parent: u32, row: u32, location: u32) {
        let node = self.parents.len() as u32;
        self.parents.push(parent);
        self.rows.push(row);
        self.locations.push(location);
        self.first_child.push(NONE);
        self.child_count.push(0);
        let first = match parent {
            NONE => &mut self.first_root,
            parent => {
                self.child_count[parent as usize] += 1;
                &mut self.first_child[parent as usize]
            }
        };
        self.next_sibling.push(std::mem::replace(first, node));
    }
}

impl Scratch {
    fn clear(&mut self, stack_count: usize) {
        let places = self.places.len().max(stack_count);
        self.places.resize(places, NOWHERE);
        self.entries.clear();
        self.children.clear();
        self.totals.clear();
        self.shape.clear();
    }

    /// What an earlier group's walk left is not this group's.
    fn next_walk(&mut self) {
        if self.walk == u32::MAX {
            self.places.fill(NOWHERE);
            self.walk = 0;
        }
        self.walk += 1;
    }

    /// From what is attached to what is on the path. Parents come first: one pass backward.
    fn sum(&mut self) {
        for node in (0..self.totals.len()).rev() {
            let parent = self.shape.parents[node];
            if parent != NONE {
                let total = self.totals[node];
                self.totals[parent as usize].add(&total);
            }
        }
        for index in (0..self.entries.len()).rev() {
            let Entry { parent, wall_ns, cpu_ns, .. } = self.entries[index];
            if parent != NONE {
                self.entries[parent as usize].wall_ns += wall_ns;
                self.entries[parent as usize].cpu_ns += cpu_ns;
            }
        }
    }

    /// Where the nodes were seen; once they are built.
    pub(super) fn seen_at(&self) -> impl Iterator<Item = At> {
        self.entries.iter().filter(|entry| entry.node != NONE).map(|entry| {
            let Entry { node, location, wall_ns, cpu_ns, .. } = *entry;
            At { node, location, wall_ns, cpu_ns }
        })
    }
}
