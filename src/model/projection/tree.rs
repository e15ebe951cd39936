//! Builds the call trees: converts stacks to nodes, one per row (function, line, class ...) on a
//! path.
//!
//! Stacks themselves form a tree, so the walk of a stack starts where it leaves the stacks walked
//! before. Each shown frame on the way is an [`Entry`]; entries of one row below one node share a
//! node. The filters decide where a stack's time is attached: at its innermost shown frame, or at
//! the end of the interesting cut.

use rustc_hash::FxHashMap;

use super::Totals;
use super::columns::{Columns, NONE};
use super::fact_reader::{Cell, CellKind};
use super::filter::{StopRole, Verdict, Verdicts};
use super::kernel_entry::KernelEntry;
use super::libraries::NO_LIBRARY;
use super::lines::At;
use super::nodes::{Nodes, Seen};
use super::rows::Rows;
use crate::model::facts::tables::{FrameId, StackId, Tables};
use crate::model::projection::settings::{Level, Settings};
use crate::model::vocabulary::role::Role;

/// A shown frame on the stacks of one group.
#[derive(Clone, Copy)]
struct Entry {
    /// Entry of the next shown frame further out, or [`NONE`].
    parent: u32,
    /// [`NONE`] until time is attached here or further in.
    node: u32,
    location: u32,
    role: Role,
    /// It stands for what its caller calls elsewhere; see [`Nodes::entries`].
    is_entry: bool,
    /// The stack whose innermost frame contains this one.
    stack: StackId,
    /// Time of the stacks that include this entry.
    wall_ns: u64,
    cpu_ns: u64,
}

/// State of the walk at a stack: the result of its own frames and all further out.
#[derive(Clone, Copy)]
struct Place {
    /// The group's walk that wrote it.
    walk: u32,
    /// The innermost shown frame.
    deepest: u32,
    /// The entry that gets the time of this very stack.
    attach: u32,
    /// Under [`Level::Mine`]: the way out of the user's code below `deepest`, or [`NONE`]. It is
    /// `deepest` itself where an interrupt came.
    way_out: u32,
    /// How much that frame tells; see [`Verdict::telling`].
    telling: u8,
    /// Where the user's code does not call it: the innermost library so far; see
    /// [`Verdict::library`].
    library: u32,
    /// The interesting cut includes one more shown frame.
    one_more: bool,
    /// The thread was stopped here, or enters a monitor: frames further in belong to that.
    within: StopRole,
}

/// Maximum children of a node without a hash table. Few children are found faster by a linear
/// search: a table of all children exceeds the caches and took half of a projection's time.
/// (Smaller in tests, whose small trees must use the table too.)
const FEW: u32 = if cfg!(test) { 2 } else { 16 };

const NOWHERE: Place = Place {
    walk: 0,
    deepest: NONE,
    attach: NONE,
    way_out: NONE,
    telling: 0,
    library: NO_LIBRARY,
    one_more: false,
    within: StopRole::None,
};

/// Memory that is reused for the next projection.
#[derive(Default)]
pub(super) struct Scratch {
    /// By [`StackId`].
    places: Vec<Place>,
    walk: u32,
    entries: Vec<Entry>,
    /// Number of children of each node.
    fans: Vec<u32>,
    /// (parent node, or the group counted down from the top; row; whether it is an entry) -> node,
    /// for more than [`FEW`] children.
    children: FxHashMap<(u32, u32, bool), u32>,
    stacks: Vec<StackId>,
    path: Vec<u32>,
    /// Some nodes were seen at several locations.
    several: bool,
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
    pub group: u32,
    /// This is another part of the group before it.
    pub joins: bool,
    /// The row above all of its nodes, and the location shown with it; see [`Rows::row`].
    pub inner: Option<(u32, u32)>,
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
    roots: u32,
}

impl Default for TreeGroup {
    fn default() -> TreeGroup {
        TreeGroup { total: Totals::default(), own: Totals::default(), first_root: NONE, roots: 0 }
    }
}

pub(super) struct Builder<'a> {
    pub tables: &'a Tables,
    pub settings: &'a Settings,
    pub rows: &'a Rows,
    /// The row of [`CellKind::Woken`], and its location.
    pub woken: (u32, u32),
    pub verdicts: &'a Verdicts,
    pub scratch: &'a mut Scratch,
}

/// Returns whether a frame that is not the user's gets the time below it, instead of the way out
/// that is known so far. `of_app`: the user's code calls it; then the first function that is not a
/// runtime's names the way out. Elsewhere the outermost library function does, or else the
/// outermost frame of the most telling kind.
fn is_way_out(of_app: bool, known: Option<u8>, next: Verdict) -> bool {
    match known {
        None => !of_app || next.role != Role::Runtime,
        Some(known) => !of_app && next.telling() > known,
    }
}

impl Builder<'_> {
    /// Builds the trees. `order`: indexes of the shown cells, grouped in the order of `heads`.
    pub(super) fn build(mut self, cells: &[Cell], order: &[u32], heads: &[Head]) -> Trees {
        self.scratch.clear(self.tables.stack_count());
        let mut groups: Vec<TreeGroup> = Vec::new();
        let mut attached = vec![NONE; cells.len()];
        let mut nodes = Nodes::new(self.rows.places().clone());
        let mut owners = 0;
        let mut heads = heads.iter();
        let mut head: Option<&Head> = None;
        let mut above = NONE;
        for index in order {
            let cell = &cells[*index as usize];
            if head.is_none_or(|head| head.group != cell.group) {
                head = heads.find(|head| head.group == cell.group);
                if groups.is_empty() || head.is_none_or(|head| !head.joins) {
                    groups.push(TreeGroup::default());
                }
                self.scratch.next_walk();
                above = NONE;
            }
            let number = groups.len() - 1;
            let group = &mut groups[number];
            group.total.add(&cell.totals);
            if let (NONE, Some((row, place))) = (above, head.and_then(|head| head.inner)) {
                let seen = Seen { row, location: place, role: Role::Marker, is_entry: false };
                above = self.scratch.child(NONE, seen, number as u32, &mut nodes, group);
            }
            let entry = self.walk(cell.stack).attach;
            let node = match entry {
                NONE if cell.kind == CellKind::Woken => {
                    let (row, location) = self.woken;
                    let seen = Seen { row, location, role: Role::Marker, is_entry: false };
                    self.scratch.child(above, seen, number as u32, &mut nodes, group)
                }
                NONE => above,
                entry => self.node_of(entry, above, number as u32, &mut nodes, group),
            };
            if node == NONE {
                group.own.add(&cell.totals);
                continue;
            }
            attached[*index as usize] = node;
            let own = &mut nodes.own[node as usize];
            if *own == NONE {
                *own = owners;
                owners += 1;
            }
            let Some(entry) = self.scratch.entries.get_mut(entry as usize) else { continue };
            entry.wall_ns += cell.totals.wall_ns;
            entry.cpu_ns += cell.totals.cpu_ns;
        }
        nodes.totals = Columns::new(nodes.len());
        nodes.owns = Columns::new(owners as usize);
        for index in order {
            let (node, totals) = (attached[*index as usize], &cells[*index as usize].totals);
            if node != NONE {
                nodes.totals.add(node, totals);
                nodes.owns.add(nodes.own[node as usize], totals);
            }
        }
        nodes.add_up();
        nodes.add_entries_to_callers();
        for group in &mut groups {
            nodes.add_up_off(group.first_root, &mut group.own, &mut group.total);
        }
        if self.scratch.several {
            nodes.set_lines(self.scratch.seen_at_several(&nodes));
        }
        Trees { nodes, attached, groups }
    }

    /// Returns the shown frames of these stacks, callers first, and for each stack the frame that
    /// gets its time; [`NONE`] if none of its frames is shown.
    pub(super) fn frames(
        mut self,
        stacks: impl Iterator<Item = StackId>,
    ) -> (Vec<ShownFrame>, Vec<u32>) {
        self.scratch.clear(self.tables.stack_count());
        self.scratch.next_walk();
        let attached: Vec<u32> = stacks.map(|stack| self.walk(stack).attach).collect();
        let entries = self.scratch.entries.iter();
        let frames = entries.map(|entry| ShownFrame {
            parent: entry.parent,
            location: entry.location,
            inlined: entry.parent != NONE
                && self.scratch.entries[entry.parent as usize].stack == entry.stack,
            frame: self.tables.top(entry.stack),
        });
        (frames.collect(), attached)
    }

    fn walk(&mut self, stack: StackId) -> Place {
        let cut = self.settings.filters.interesting.active().is_some();
        let mine = self.settings.level == Level::Mine;
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
                if place.within == StopRole::ReplacesStop
                    || (place.within == StopRole::ReplacesMonitorEntry
                        && verdict.stops != StopRole::ReplacesStop)
                {
                    continue;
                }
                if verdict.stops == StopRole::ReplacesMonitorEntry {
                    place.within = StopRole::ReplacesMonitorEntry;
                }
                if verdict.stops == StopRole::ReplacesStop {
                    place.within = StopRole::ReplacesStop;
                    // Removes the frames that lead to the stop.
                    let mut caller = place.deepest;
                    while caller != NONE
                        && matches!(
                            self.verdicts
                                .of_location(scratch.entries[caller as usize].location)
                                .stops,
                            StopRole::LeadsToStop | StopRole::ReplacesMonitorEntry
                        )
                    {
                        caller = scratch.entries[caller as usize].parent;
                    }
                    let of_caller = (caller != NONE).then(|| {
                        self.verdicts.of_location(scratch.entries[caller as usize].location)
                    });
                    place.deepest = caller;
                    place.way_out = NONE;
                    place.one_more = cut && of_caller.is_some_and(|verdict| verdict.interesting);
                    if !cut || place.one_more {
                        place.attach = caller;
                    }
                }
                let again = || {
                    self.verdicts
                        .of_location(scratch.entries[place.deepest as usize].location)
                        .anonymous
                };
                if verdict.hide || (verdict.anonymous && place.deepest != NONE && again()) {
                    continue;
                }
                let entry = scratch.entries.len() as u32;
                let mut made = Entry {
                    parent: place.deepest,
                    node: NONE,
                    location: *location,
                    role: verdict.role,
                    is_entry: false,
                    stack,
                    wall_ns: 0,
                    cpu_ns: 0,
                };
                if mine && !matches!(verdict.role, Role::App | Role::Marker) {
                    let known = (place.way_out != NONE).then_some(place.telling);
                    let of_app = scratch
                        .entries
                        .get(place.deepest as usize)
                        .is_some_and(|caller| caller.role == Role::App);
                    let entered = verdict.enters_kernel.filter(|_| of_app && known.is_none());
                    if entered.is_some_and(KernelEntry::is_interrupt) {
                        // It is time of the user's function, which calls no interrupt.
                        place.way_out = place.deepest;
                    } else if entered.is_none() && is_way_out(of_app, known, verdict) {
                        made.is_entry = of_app;
                        scratch.entries.push(made);
                        (place.way_out, place.attach) = (entry, entry);
                        (place.telling, place.library) = (verdict.telling(), verdict.library);
                    } else if !of_app && ![NO_LIBRARY, place.library].contains(&verdict.library) {
                        // A framework says less about the time than the library that it calls.
                        made.parent = place.way_out;
                        scratch.entries.push(made);
                        (place.attach, place.library) = (entry, verdict.library);
                    }
                    continue;
                }
                let parent = std::mem::replace(&mut place.deepest, entry);
                place.way_out = NONE;
                scratch.entries.push(made);
                // The cut keeps root .. the interesting frame nearest the leaf, plus one callee;
                // else the root alone.
                if !cut || verdict.interesting || place.one_more || parent == NONE {
                    place.attach = entry;
                }
                place.one_more = cut && verdict.interesting;
            }
            scratch.places[stack.0 as usize] = place;
        }
        place
    }

    /// Returns the node of an entry. Creates it and its missing callers; the outermost is below
    /// `above`.
    fn node_of(
        &mut self,
        entry: u32,
        above: u32,
        group: u32,
        nodes: &mut Nodes,
        tree: &mut TreeGroup,
    ) -> u32 {
        let scratch = &mut *self.scratch;
        scratch.path.clear();
        let mut node = above;
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
            let by = self.settings.roll_up;
            let Entry { location, role, is_entry, .. } = scratch.entries[entry as usize];
            let (row, location) = self.rows.row(location, by);
            // Consecutive frames of one unit share a row.
            if !(by.joins() && node != NONE && nodes.rows[node as usize] == row) {
                let seen = Seen { row, location, role, is_entry };
                node = scratch.child(node, seen, group, nodes, tree);
            }
            scratch.entries[entry as usize].node = node;
        }
        node
    }
}

impl Scratch {
    /// Returns the node of a row below `node`, or below the group; creates it if missing.
    fn child(
        &mut self,
        node: u32,
        seen: Seen,
        group: u32,
        nodes: &mut Nodes,
        tree: &mut TreeGroup,
    ) -> u32 {
        // Nodes count up from 0 and groups down from the top; memory would run out before they
        // meet.
        let above = if node == NONE { NONE - group } else { node };
        let (first, fan) = match node {
            NONE => (tree.first_root, &mut tree.roots),
            node => (nodes.first_child[node as usize], &mut self.fans[node as usize]),
        };
        let found = match *fan <= FEW {
            true => nodes.siblings(first).find(|child| {
                let child = *child as usize;
                (nodes.rows[child], nodes.entries[child]) == (seen.row, seen.is_entry)
            }),
            false => self.children.get(&(above, seen.row, seen.is_entry)).copied(),
        };
        if let Some(found) = found {
            self.several |= nodes.see(found, seen.location);
            return found;
        }
        *fan += 1;
        let many = *fan > FEW;
        let first_of_many = *fan == FEW + 1;
        self.fans.push(0);
        let made = nodes.push(node, seen, &mut tree.first_root);
        let family = if first_of_many { FEW as usize + 1 } else { usize::from(many) };
        for child in nodes.siblings(made).take(family) {
            let key = (above, nodes.rows[child as usize], nodes.entries[child as usize]);
            self.children.insert(key, child);
        }
        made
    }

    fn clear(&mut self, stack_count: usize) {
        let places = self.places.len().max(stack_count);
        self.places.resize(places, NOWHERE);
        self.entries.clear();
        self.fans.clear();
        self.children.clear();
        self.several = false;
    }

    /// Starts a new walk, which ignores the results of earlier groups.
    fn next_walk(&mut self) {
        if self.walk == u32::MAX {
            self.places.fill(NOWHERE);
            self.walk = 0;
        }
        self.walk += 1;
    }

    /// Returns the times at each location of nodes with several; a location may occur repeatedly.
    fn seen_at_several(&mut self, nodes: &Nodes) -> Vec<At> {
        // Sums the attached time over each path. Outer entries come first, so one backward pass
        // suffices.
        for index in (0..self.entries.len()).rev() {
            let Entry { parent, wall_ns, cpu_ns, .. } = self.entries[index];
            if parent != NONE {
                self.entries[parent as usize].wall_ns += wall_ns;
                self.entries[parent as usize].cpu_ns += cpu_ns;
            }
        }
        let several = self
            .entries
            .iter()
            .filter(|entry| entry.node != NONE && nodes.is_at_several(entry.node));
        several
            .map(|Entry { node, location, wall_ns, cpu_ns, .. }| At {
                node: *node,
                location: *location,
                wall_ns: *wall_ns,
                cpu_ns: *cpu_ns,
            })
            .collect()
    }
}
