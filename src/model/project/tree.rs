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

const NONE: u32 = u32::MAX;

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

/// Memory that is used again for the next projection.
#[derive(Default)]
pub(super) struct Scratch {
    /// By [`StackId`].
    places: Vec<Place>,
    walk: u32,
    entries: Vec<Entry>,
    /// (node further out, or the group's own number from the top of the range, row) -> node.
    children: FxHashMap<(u32, u32), u32>,
    stacks: Vec<StackId>,
    frames: Vec<u32>,
}

/// Nodes of all groups; parents come before their children.
pub(super) struct Trees {
    pub nodes: Vec<Node>,
    /// The row of each node: a function or a location.
    pub rows: Vec<u32>,
    /// The node each cell is attached to; `None` where no frame of it is shown.
    pub attached: Vec<Option<u32>>,
    pub groups: Vec<TreeGroup>,
}

/// The cells of one group, as one tree.
#[derive(Default)]
pub(super) struct TreeGroup {
    /// Its number in `Groups`.
    pub group: u32,
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
    pub(super) fn build(mut self, cells: &[Cell], order: &[u32]) -> Trees {
        let scratch = &mut *self.scratch;
        scratch.places.resize(scratch.places.len().max(self.tables.stack_count()), NOWHERE);
        scratch.entries.clear();
        scratch.children.clear();
        let mut trees = Trees {
            nodes: Vec::with_capacity(cells.len()),
            rows: Vec::with_capacity(cells.len()),
            attached: vec![None; cells.len()],
            groups: Vec::new(),
        };
        for index in order {
            let cell = &cells[*index as usize];
            if trees.groups.last().is_none_or(|last| last.group != cell.group) {
                trees.groups.push(TreeGroup { group: cell.group, ..TreeGroup::default() });
                self.next_walk();
            }
            let entry = self.walk(cell.stack).attach;
            if entry == NONE {
                if let Some(group) = trees.groups.last_mut() {
                    group.own.add(&cell.totals);
                }
                continue;
            }
            let node = self.node_of(&mut trees, entry);
            trees.attached[*index as usize] = Some(node);
            trees.nodes[node as usize].own.add(&cell.totals);
            let entry = &mut self.scratch.entries[entry as usize];
            entry.wall_ns += cell.totals.wall_ns;
            entry.cpu_ns += cell.totals.cpu_ns;
        }
        self.sum(&mut trees);
        if self.settings.roll_up == RollUp::Function {
            self.choose_lines(&mut trees);
        }
        trees
    }

    /// What an earlier group's walk left is not this group's.
    fn next_walk(&mut self) {
        if self.scratch.walk == u32::MAX {
            self.scratch.places.fill(NOWHERE);
            self.scratch.walk = 0;
        }
        self.scratch.walk += 1;
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
                scratch.entries.push(Entry {
                    parent: place.deepest,
                    node: NONE,
                    location: *location,
                    wall_ns: 0,
                    cpu_ns: 0,
                });
                let is_root = place.deepest == NONE;
                place.deepest = entry;
                // The cut keeps root .. the interesting frame nearest the leaf, plus one callee; else the root alone.
                if !cut || verdict.interesting || place.one_more || is_root {
                    place.attach = entry;
                }
                place.one_more = cut && verdict.interesting;
            }
            scratch.places[stack.0 as usize] = place;
        }
        place
    }

    /// The node of an entry, and of all further out, made where missing.
    fn node_of(&mut self, trees: &mut Trees, entry: u32) -> u32 {
        let scratch = &mut *self.scratch;
        scratch.frames.clear();
        let mut at = entry;
        while at != NONE && scratch.entries[at as usize].node == NONE {
            scratch.frames.push(at);
            at = scratch.entries[at as usize].parent;
        }
        let mut node = if at == NONE { NONE } else { scratch.entries[at as usize].node };
        let group = (trees.groups.len() - 1) as u32;
        while let Some(frame) = scratch.frames.pop() {
            let location = scratch.entries[frame as usize].location;
            let row = match self.settings.roll_up {
                RollUp::Function => self.rows.function_of(location),
                RollUp::Line => location,
            };
            let parent = (node != NONE).then_some(node);
            // Nodes count up from 0 and groups down from the top; memory ends long before they meet.
            let next = trees.nodes.len() as u32;
            let place = scratch.children.entry((parent.unwrap_or(NONE - group), row)).or_insert(next);
            if *place == next {
                trees.rows.push(row);
                trees.nodes.push(Node {
                    parent,
                    location: self.rows.location(location).clone(),
                    total: Totals::default(),
                    own: Totals::default(),
                    children: Vec::new(),
                });
                match parent {
                    Some(parent) => trees.nodes[parent as usize].children.push(next),
                    None => trees.groups[group as usize].roots.push(next),
                }
            }
            node = *place;
            scratch.entries[frame as usize].node = node;
        }
        node
    }

    /// Parents come first: one pass backward sums.
    fn sum(&mut self, trees: &mut Trees) {
        for index in (0..trees.nodes.len()).rev() {
            let node = &mut trees.nodes[index];
            let own = node.own;
            node.total.add(&own);
            let (total, parent) = (node.total, node.parent);
            if let Some(parent) = parent {
                trees.nodes[parent as usize].total.add(&total);
            }
        }
        for group in &mut trees.groups {
            group.total = group.own;
            for root in &group.roots {
                group.total.add(&trees.nodes[*root as usize].total);
            }
        }
    }

    /// Under roll-up function a node is shown with its heaviest line.
    fn choose_lines(&mut self, trees: &mut Trees) {
        let entries = &mut self.scratch.entries;
        for index in (0..entries.len()).rev() {
            let Entry { parent, wall_ns, cpu_ns, .. } = entries[index];
            if parent != NONE {
                entries[parent as usize].wall_ns += wall_ns;
                entries[parent as usize].cpu_ns += cpu_ns;
            }
        }
        let mut first = vec![NONE; trees.nodes.len()];
        let mut several = vec![false; trees.nodes.len()];
        for (node, at) in self.scratch.seen_at(|node| node) {
            let first = &mut first[node as usize];
            if *first == NONE {
                *first = at.location;
            }
            several[node as usize] |= *first != at.location;
        }
        let candidates = self.scratch.seen_at(|node| node).map(|(_, at)| at).filter(|at| several[at.row as usize]);
        lines::heaviest(candidates.collect(), self.settings.metric, self.rows, |node, location| {
            trees.nodes[node as usize].location = self.rows.location(location).clone();
        });
    }
}

impl Scratch {
    /// Where each node was seen, with the row that `row_of` names; once [`Builder::build`] is done.
    pub(super) fn seen_at(&self, row_of: impl Fn(u32) -> u32) -> impl Iterator<Item = (u32, At)> {
        self.entries.iter().filter(|entry| entry.node != NONE).map(move |entry| {
            let Entry { node, location, wall_ns, cpu_ns, .. } = *entry;
            (node, At { row: row_of(node), location, wall_ns, cpu_ns })
        })
    }
}
