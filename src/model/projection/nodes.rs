//! The nodes of all call trees. Their numbers run through all groups, and callers precede their
//! callees.
//!
//! Independent of metric and order: holds the sums of all metrics, and all lines at which a node
//! was seen. See [`super::ordered`] for reading.

use std::sync::Arc;

use super::Totals;
use super::columns::{Columns, NONE};
use super::lines::{At, Places};
use crate::model::facts::tables::Location;
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::role::Role;

/// Flag in [`Nodes::at`]: several locations; the other bits are an index into [`Nodes::spans`].
const SEVERAL: u32 = 1 << 31;

/// Iterates over nodes with the same parent, in no particular order.
#[derive(Clone, Debug)]
pub struct Siblings<'a> {
    next: &'a [u32],
    at: u32,
}

impl Iterator for Siblings<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let at = (self.at != NONE).then_some(self.at)?;
        self.at = self.next[at as usize];
        Some(at)
    }
}

/// A frame on its way into the tree.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub row: u32,
    pub location: u32,
    pub role: Role,
    /// See [`Nodes::entries`].
    pub is_entry: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    pub parents: Vec<u32>,
    pub first_child: Vec<u32>,
    /// Roots of one group are siblings too.
    pub next_sibling: Vec<u32>,
    /// Identifies the row (a function, line, class ...); see [`super::rows::Rows::row`].
    pub rows: Vec<u32>,
    /// Whose code it is.
    pub roles: Vec<Role>,
    /// By node: it stands for all that its caller, the user's function, calls elsewhere through
    /// this entry. So its time is self time of the caller too.
    pub entries: Vec<bool>,
    /// The location of each node, or [`SEVERAL`].
    at: Vec<u32>,
    spans: Vec<(u32, u32)>,
    lines: Vec<At>,
    pub totals: Columns,
    /// Index into `owns`, or [`NONE`] without own time.
    pub own: Vec<u32>,
    /// The time of each cell of the projection, then sums of nodes with the time of several.
    pub owns: Columns,
    /// Number of cells.
    cells: u32,
    /// The locations that `at` and `lines` refer to.
    pub places: Arc<Places>,
}

impl Nodes {
    /// `cells`: the time of each cell; `old`: nodes whose memory is reused.
    pub fn new(places: Arc<Places>, cells: Columns, mut old: Nodes) -> Nodes {
        let Nodes { parents, first_child, next_sibling, rows, at, own, .. } = &mut old;
        [parents, first_child, next_sibling, rows, at, own].into_iter().for_each(Vec::clear);
        old.roles.clear();
        old.entries.clear();
        old.spans.clear();
        old.lines.clear();
        Nodes { cells: cells.rows() as u32, owns: cells, places, ..old }
    }

    pub fn len(&self) -> usize {
        self.parents.len()
    }

    #[cfg(test)]
    pub fn span_count(&self) -> usize {
        self.spans.len()
    }

    /// Adds a node below `parent`, or a root: then `first_root` is the first of its siblings.
    pub fn push(&mut self, parent: u32, seen: Seen, first_root: &mut u32) -> u32 {
        let node = self.parents.len() as u32;
        self.parents.push(parent);
        self.rows.push(seen.row);
        self.roles.push(seen.role);
        self.entries.push(seen.is_entry);
        self.at.push(seen.location);
        self.first_child.push(NONE);
        self.own.push(NONE);
        let first = match parent {
            NONE => first_root,
            parent => &mut self.first_child[parent as usize],
        };
        self.next_sibling.push(std::mem::replace(first, node));
        node
    }

    /// Adds the time of a cell, or of another node, to the node's own time. `row`: in `owns`.
    /// Cells are not changed, and a sum belongs to one node.
    pub fn attach(&mut self, node: u32, row: u32) {
        let own = &mut self.own[node as usize];
        match *own {
            NONE if row < self.cells => *own = row,
            NONE => *own = self.owns.push_copy(row),
            sum => {
                if sum < self.cells {
                    *own = self.owns.push_copy(sum);
                }
                self.owns.add_within(*own, row);
            }
        }
    }

    /// Iterates over `first` and the following nodes with the same parent.
    pub fn siblings(&self, first: u32) -> Siblings<'_> {
        Siblings { next: &self.next_sibling, at: first }
    }

    /// Records a location of the node. Returns true if the node now has several.
    pub fn see(&mut self, node: u32, location: u32) -> bool {
        let place = &mut self.at[node as usize];
        if *place != location {
            *place = SEVERAL;
        }
        *place == SEVERAL
    }

    pub fn is_at_several(&self, node: u32) -> bool {
        self.at[node as usize] & SEVERAL != 0
    }

    /// Sets the times at each location of the nodes with several.
    pub fn set_lines(&mut self, mut seen: Vec<At>) {
        self.places.sort(&mut seen);
        seen.dedup_by(|next, sum| {
            let same = (next.node, next.location) == (sum.node, sum.location);
            if same {
                sum.wall_ns += next.wall_ns;
                sum.cpu_ns += next.cpu_ns;
            }
            same
        });
        let mut start = 0;
        for lines in seen.chunk_by(|a, b| a.node == b.node) {
            let end = start + lines.len() as u32;
            self.at[lines[0].node as usize] = SEVERAL | self.spans.len() as u32;
            self.spans.push((start, end));
            start = end;
        }
        self.lines = seen;
    }

    /// Calls `f` with the node at each of its locations.
    pub fn each_line(&self, node: u32, mut f: impl FnMut(At)) {
        match self.at[node as usize] {
            several if several & SEVERAL != 0 => {
                let (start, end) = self.spans[(several & !SEVERAL) as usize];
                self.lines[start as usize..end as usize].iter().for_each(|at| f(*at));
            }
            location => {
                let [wall_ns, cpu_ns] =
                    [Metric::Wall, Metric::Cpu].map(|metric| self.totals.value(node, metric));
                f(At { node, location, wall_ns, cpu_ns });
            }
        }
    }

    /// Returns the location with the most time (tie: the lowest line).
    pub fn location(&self, node: u32, metric: Metric) -> &Arc<Location> {
        let location = match self.at[node as usize] {
            several if several & SEVERAL != 0 => {
                let (start, end) = self.spans[(several & !SEVERAL) as usize];
                self.places.heaviest(&self.lines[start as usize..end as usize], metric).unwrap_or(0)
            }
            location => location,
        };
        &self.places.locations[location as usize]
    }

    /// Returns any location of the node: its name is right, its line may not be.
    pub fn name(&self, node: u32) -> &Arc<Location> {
        let location = match self.at[node as usize] {
            several if several & SEVERAL != 0 => {
                self.lines[self.spans[(several & !SEVERAL) as usize].0 as usize].location
            }
            location => location,
        };
        &self.places.locations[location as usize]
    }

    /// Sums up every node's own time and that of its descendants. Computes off-CPU time here from
    /// each node's whole own time. Per stack, wall and CPU time come from different spans, so their
    /// difference would err both ways.
    pub fn add_up(&mut self) {
        self.owns.settle_off();
        let old = std::mem::take(&mut self.totals);
        self.totals = self.owns.add_up(&self.own, &self.parents, old);
    }

    /// Adds the time of entries to their callers' self time. To be called after [`Nodes::add_up`],
    /// which must count it once.
    pub fn add_entries_to_callers(&mut self) {
        for node in 0..self.len() {
            let (parent, own) = (self.parents[node], self.own[node]);
            if self.entries[node] && parent != NONE && own != NONE {
                self.attach(parent, own);
            }
        }
    }

    /// Returns the time of a group. `own`: that of its stacks without a node.
    pub fn total(&self, first_root: u32, own: &Totals) -> Totals {
        let mut total = *own;
        self.siblings(first_root).for_each(|root| total.add(&self.totals.get(root)));
        total
    }

    pub fn own(&self, node: u32) -> Totals {
        match self.own[node as usize] {
            NONE => Totals::default(),
            own => self.owns.get(own),
        }
    }

    /// Returns the node with most CPU time of its own among those that only this thread was in, and
    /// that time, ns. `seen`: (thread, node).
    pub fn alone_in(&self, seen: &[(u32, u32)], thread: u32) -> Option<(u32, u64)> {
        let mut first = vec![NONE; self.len()];
        let mut shared = vec![false; self.len()];
        for (of, node) in seen {
            let before = std::mem::replace(&mut first[*node as usize], *of);
            shared[*node as usize] |= ![NONE, *of].contains(&before);
        }
        let alone = (0..self.len() as u32)
            .filter(|node| first[*node as usize] == thread && !shared[*node as usize]);
        let timed = alone.map(|node| (node, self.own_value(node, Metric::Cpu)));
        timed.filter(|(_, ns)| *ns > 0).max_by_key(|(_, ns)| *ns)
    }

    pub fn own_value(&self, node: u32, metric: Metric) -> u64 {
        match self.own[node as usize] {
            NONE => 0,
            own => self.owns.value(own, metric),
        }
    }
}
