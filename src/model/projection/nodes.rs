//! The nodes of all call trees. Their numbers run through all groups, and callers precede their
//! callees.
//!
//! Independent of metric and order: holds the sums of all metrics, and all lines at which a node
//! was seen. See [`super::ordered`] for reading.

use std::sync::Arc;

use super::Totals;
use super::columns::{Columns, Link, NONE};
use super::lines::{At, Places};
use crate::model::facts::tables::Location;
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::role::Role;

/// Flag in [`Seen::location`] of a node: several locations; the other bits are an index into
/// [`Nodes::spans`].
const SEVERAL: u32 = 1 << 31;

/// Iterates over nodes with the same parent, in no particular order.
#[derive(Clone, Debug)]
pub struct Siblings<'a> {
    links: &'a [Link],
    at: u32,
}

impl Iterator for Siblings<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let at = (self.at != NONE).then_some(self.at)?;
        self.at = self.links[at as usize].next_sibling;
        Some(at)
    }
}

/// A frame on its way into the tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Identifies the row (a function, line, class ...); see [`super::rows::Rows::row`].
    pub row: u32,
    pub location: u32,
    /// Whose code it is.
    pub role: Role,
    /// It stands for all that its caller, the user's function, calls elsewhere through this entry.
    /// So its time is self time of the caller too.
    pub is_entry: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    /// By node: where it hangs. Roots of one group are siblings too.
    links: Vec<Link>,
    /// By node: the frame that made it; its location may be [`SEVERAL`].
    seen: Vec<Seen>,
    spans: Vec<(u32, u32)>,
    lines: Vec<At>,
    pub totals: Columns,
    /// The time of each cell of the projection, then sums of nodes with the time of several.
    pub owns: Columns,
    /// Number of cells.
    cells: u32,
    /// The locations that `seen` and `lines` refer to.
    pub places: Arc<Places>,
}

impl Nodes {
    /// `cells`: the time of each cell; `old`: nodes whose memory is reused.
    pub fn new(places: Arc<Places>, cells: Columns, mut old: Nodes) -> Nodes {
        old.links.clear();
        old.seen.clear();
        old.spans.clear();
        old.lines.clear();
        Nodes { cells: cells.rows() as u32, owns: cells, places, ..old }
    }

    pub fn len(&self) -> usize {
        self.links.len()
    }

    pub fn row(&self, node: u32) -> u32 {
        self.seen[node as usize].row
    }

    /// Returns the row of each node.
    pub fn rows(&self) -> impl Iterator<Item = u32> {
        self.seen.iter().map(|seen| seen.row)
    }

    pub fn role(&self, node: u32) -> Role {
        self.seen[node as usize].role
    }

    /// Returns [`Seen::is_entry`].
    pub fn is_entry(&self, node: u32) -> bool {
        self.seen[node as usize].is_entry
    }

    /// Returns the node's caller, or [`NONE`].
    pub fn parent(&self, node: u32) -> u32 {
        self.links[node as usize].parent
    }

    /// Returns the caller of each node, or [`NONE`].
    pub fn parents(&self) -> impl Iterator<Item = u32> {
        self.links.iter().map(|link| link.parent)
    }

    /// Returns the first of the node's children, or [`NONE`].
    pub fn first_child(&self, node: u32) -> u32 {
        self.links[node as usize].first_child
    }

    /// Returns the next node with the same parent, or [`NONE`].
    pub fn next_sibling(&self, node: u32) -> u32 {
        self.links[node as usize].next_sibling
    }

    /// Returns whether the node has time of its own.
    pub fn has_own(&self, node: u32) -> bool {
        self.links[node as usize].own != NONE
    }

    /// Gives the node a row of `owns` of its own.
    #[cfg(test)]
    pub fn set_own(&mut self, node: u32, own: u32) {
        self.links[node as usize].own = own;
    }

    #[cfg(test)]
    pub fn memory(&self) -> *const u8 {
        self.links.as_ptr().cast()
    }

    #[cfg(test)]
    pub fn span_count(&self) -> usize {
        self.spans.len()
    }

    /// Adds a node below `parent`, or a root: then `first_root` is the first of its siblings.
    pub fn push(&mut self, parent: u32, seen: Seen, first_root: &mut u32) -> u32 {
        let node = self.links.len() as u32;
        let first = match parent {
            NONE => first_root,
            parent => &mut self.links[parent as usize].first_child,
        };
        let next_sibling = std::mem::replace(first, node);
        self.links.push(Link { parent, first_child: NONE, next_sibling, own: NONE });
        self.seen.push(seen);
        node
    }

    /// Adds the time of a cell, or of another node, to the node's own time. `row`: in `owns`.
    /// Cells are not changed, and a sum belongs to one node.
    pub fn attach(&mut self, node: u32, row: u32) {
        let own = &mut self.links[node as usize].own;
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
        Siblings { links: &self.links, at: first }
    }

    /// Records a location of the node. Returns true if the node now has several.
    pub fn see(&mut self, node: u32, location: u32) -> bool {
        let place = &mut self.seen[node as usize].location;
        if *place != location {
            *place = SEVERAL;
        }
        *place == SEVERAL
    }

    pub fn is_at_several(&self, node: u32) -> bool {
        self.seen[node as usize].location & SEVERAL != 0
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
            self.seen[lines[0].node as usize].location = SEVERAL | self.spans.len() as u32;
            self.spans.push((start, end));
            start = end;
        }
        self.lines = seen;
    }

    /// Calls `f` with the node at each of its locations.
    pub fn each_line(&self, node: u32, mut f: impl FnMut(At)) {
        match self.seen[node as usize].location {
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
        let location = match self.seen[node as usize].location {
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
        let location = match self.seen[node as usize].location {
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
        self.totals = self.owns.add_up(&self.links, old);
    }

    /// Adds the time of entries to their callers' self time. To be called after [`Nodes::add_up`],
    /// which must count it once.
    pub fn add_entries_to_callers(&mut self) {
        for node in 0..self.len() {
            let Link { parent, own, .. } = self.links[node];
            if self.seen[node].is_entry && parent != NONE && own != NONE {
                self.attach(parent, own);
            }
        }
    }

    /// Makes the time of each root its own time, and leaves none to other nodes: the roots of an
    /// inverted tree are the innermost functions. To be called after [`Nodes::add_up`].
    pub fn own_at_roots(&mut self) {
        let mut owns = self.totals.without_rows();
        for (node, link) in (0..).zip(&mut self.links) {
            link.own = match link.parent {
                NONE => owns.push_row_of(&self.totals, node),
                _ => NONE,
            };
        }
        self.owns = owns;
    }

    /// Returns the time of a group. `own`: that of its stacks without a node.
    pub fn total(&self, first_root: u32, own: &Totals) -> Totals {
        let mut total = *own;
        self.siblings(first_root).for_each(|root| total.add(&self.totals.get(root)));
        total
    }

    pub fn own(&self, node: u32) -> Totals {
        match self.links[node as usize].own {
            NONE => Totals::default(),
            own => self.owns.get(own),
        }
    }

    /// Returns the node's own time without that of its entries, which [`Nodes::own`] includes. Its
    /// longest wait is 0 where an entry waited longest: the next longest is not known.
    pub fn own_without_entries(&self, node: u32) -> Totals {
        let mut own = self.own(node);
        let children = self.siblings(self.first_child(node));
        for entry in children.filter(|child| self.is_entry(*child)) {
            own.subtract(&self.own(entry));
        }
        own
    }

    /// Returns the node with most CPU time of its own among those that only this thread was in, and
    /// that time, ns. `seen`: (thread, node), ordered by thread.
    pub fn alone_in(&self, seen: &[(u32, u32)], thread: u32) -> Option<(u32, u64)> {
        let from = seen.partition_point(|(of, _)| *of < thread);
        let till = seen.partition_point(|(of, _)| *of <= thread);
        let (before, mine, after) = (&seen[..from], &seen[from..till], &seen[till..]);
        let mut alone = vec![false; self.len()];
        mine.iter().for_each(|(_, node)| alone[*node as usize] = true);
        before.iter().chain(after).for_each(|(_, node)| alone[*node as usize] = false);
        let alone = mine.iter().map(|(_, node)| *node).filter(|node| alone[*node as usize]);
        let timed = alone.map(|node| (node, self.own_value(node, Metric::Cpu)));
        timed.filter(|(_, ns)| *ns > 0).max_by_key(|(node, ns)| (*ns, *node))
    }

    pub fn own_value(&self, node: u32, metric: Metric) -> u64 {
        match self.links[node as usize].own {
            NONE => 0,
            own => self.owns.value(own, metric),
        }
    }
}
