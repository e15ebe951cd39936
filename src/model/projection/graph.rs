//! The call graph around one function: what calls it, and what it calls, over all its frames.
//!
//! A stack in which the function is recursive has several of its frames, but counts once. The
//! outermost frame decides who the caller is: who began it. The innermost frame decides what is
//! called: where the time went. So the callers' times sum to the function's total, and so do those
//! of the callees with the function's own time. What lies between two of its frames is neither.
//!
//! An entry (see [`Projection::is_entry`]) is no method: its time is self time of its caller. Here
//! an entry of the function is listed as a callee, and its time is not in [`CallGraph::own`]. An
//! entry of a callee is a part of that callee's time.

use std::cmp::{Ordering, Reverse};

use super::columns::NONE;
use super::row_order::by_location;
use super::{Projection, Totals};
use crate::model::facts::tables::Location;
use crate::model::projection::settings::Metric;

/// The neighbours of a method. Each list has no neighbour twice, and is ordered by time: the
/// heaviest first, equal ones by name.
#[derive(Clone, Debug, Default)]
pub struct CallGraph {
    /// Sum to the method's total.
    pub callers: Vec<Neighbour>,
    /// Sum to the method's total, together with `own`.
    pub callees: Vec<Neighbour>,
    /// Time of stacks whose innermost shown frame is the method. Excludes its entries.
    pub own: Totals,
    /// Time of stacks that have the method more than once.
    pub recursive: Totals,
}

/// A caller or callee of a method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    pub of: NeighbourOf,
    /// Time of the stacks with this call.
    pub total: Totals,
}

/// What a neighbour stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NeighbourOf {
    /// No caller is shown: the method is outermost in its thread, or below the name of threads.
    Thread,
    /// Index into [`Projection::methods`].
    Method(u32),
    /// What the method calls elsewhere: the first of the nodes of this entry, for its name. Only a
    /// callee.
    Entry(u32),
}

/// The number of a neighbour, or [`OWN`], or [`NONE`].
type Slot = u32;

/// Slot of the method's own time.
const OWN: Slot = NONE - 1;

/// Neighbours with their sums, in order of first occurrence.
struct Sums {
    list: Vec<Neighbour>,
    /// By key: an index into `list`, or [`NONE`].
    slots: Vec<Slot>,
}

impl Sums {
    fn new(keys: usize) -> Sums {
        Sums { list: Vec::new(), slots: vec![NONE; keys] }
    }

    /// Returns the neighbour's number; adds it if missing.
    fn slot(&mut self, key: usize, of: NeighbourOf) -> Slot {
        let slot = &mut self.slots[key];
        if *slot == NONE {
            *slot = self.list.len() as u32;
            self.list.push(Neighbour { of, total: Totals::default() });
        }
        *slot
    }

    fn add(&mut self, slot: Slot, time: &Totals) {
        self.list[slot as usize].total.add(time);
    }
}

impl Projection {
    /// Returns the neighbours of a method, ordered by their time in the metric. `method`: an index
    /// into [`Projection::methods`]; others have no neighbours. Reads every node once.
    pub fn call_graph(&self, method: u32, metric: Metric) -> CallGraph {
        let nodes = &self.nodes;
        let method_of = self.method_of();
        let methods = self.methods().len();
        let mut graph = CallGraph::default();
        if method as usize >= methods {
            return graph;
        }
        // The last key is for no caller.
        let mut callers = Sums::new(methods + 1);
        // Entries have their rows as keys, after those of methods.
        let rows = nodes.rows().max().map_or(0, |row| row as usize + 1);
        let mut callees = Sums::new(methods + rows);
        // By node: where the time of its stacks belongs, seen from the innermost frame of the
        // method; `NONE` where no frame of it is at the node or above.
        let mut slot_of: Vec<Slot> = vec![NONE; method_of.len()];
        // By node: whether the method occurs more than once, at the node and above.
        let mut repeated = vec![false; method_of.len()];
        for (node, (this, parent)) in (0..).zip(method_of.iter().zip(nodes.parents())) {
            let at = node as usize;
            let (caller, above, repeats) = match parent {
                NONE => (NONE, NONE, false),
                parent => {
                    let parent = parent as usize;
                    (method_of[parent], slot_of[parent], repeated[parent])
                }
            };
            if *this == method {
                if above == NONE {
                    let (key, of) = match caller {
                        NONE => (methods, NeighbourOf::Thread),
                        caller => (caller as usize, NeighbourOf::Method(caller)),
                    };
                    let slot = callers.slot(key, of);
                    callers.add(slot, &nodes.totals.get(node));
                } else if !repeats {
                    graph.recursive.add(&nodes.totals.get(node));
                }
                slot_of[at] = OWN;
                repeated[at] = above != NONE;
                if nodes.has_own(node) {
                    graph.own.add(&nodes.own_without_entries(node));
                }
                continue;
            }
            let slot = match (above, *this) {
                (NONE, _) => continue,
                (OWN, NONE) => {
                    let key = methods + nodes.row(node) as usize;
                    callees.slot(key, NeighbourOf::Entry(node))
                }
                (OWN, callee) => callees.slot(callee as usize, NeighbourOf::Method(callee)),
                // The own time of a callee includes its entries.
                (_, NONE) => continue,
                (above, _) => above,
            };
            slot_of[at] = slot;
            repeated[at] = repeats;
            if nodes.has_own(node) {
                callees.add(slot, &nodes.own(node));
            }
        }
        graph.callers = self.in_order(callers.list, metric);
        graph.callees = self.in_order(callees.list, metric);
        graph
    }

    /// Sorts neighbours. Drops those without time, which only lie between two of the method's
    /// frames.
    fn in_order(&self, mut neighbours: Vec<Neighbour>, metric: Metric) -> Vec<Neighbour> {
        neighbours.retain(|neighbour| neighbour.total != Totals::default());
        neighbours.sort_unstable_by(|a, b| {
            let time = |neighbour: &Neighbour| Reverse(neighbour.total.value(metric));
            let by_name = || match (self.name_of(a.of, metric), self.name_of(b.of, metric)) {
                (Some(a), Some(b)) => by_location(a, b),
                _ => Ordering::Equal,
            };
            time(a).cmp(&time(b)).then_with(by_name).then_with(|| a.of.cmp(&b.of))
        });
        neighbours
    }

    /// Returns the name of a neighbour; none for [`NeighbourOf::Thread`].
    fn name_of(&self, neighbour: NeighbourOf, metric: Metric) -> Option<&Location> {
        match neighbour {
            NeighbourOf::Thread => None,
            NeighbourOf::Method(method) => Some(self.methods()[method as usize].location(metric)),
            NeighbourOf::Entry(node) => Some(self.name(node)),
        }
    }
}
