//! Locations on the way of stacks into a tree, and the time at each of them.

use super::columns::NONE;
use super::lines::At;
use super::nodes::Nodes;

/// A location on a path of one group.
#[derive(Clone, Copy)]
pub(super) struct Visit {
    /// The visit before it on the path, which has a lower number, or [`NONE`].
    pub parent: u32,
    pub node: u32,
    pub location: u32,
    /// Time of the stacks that end here; after [`seen_at_several`] of all that come by.
    pub wall_ns: u64,
    pub cpu_ns: u64,
}

/// Returns the times at each location of nodes with several; a location may occur repeatedly.
pub(super) fn seen_at_several(visits: &mut [Visit], nodes: &Nodes) -> Vec<At> {
    // What is before has a lower number, so one backward pass sums over each path.
    for index in (0..visits.len()).rev() {
        let Visit { parent, wall_ns, cpu_ns, .. } = visits[index];
        if parent != NONE {
            visits[parent as usize].wall_ns += wall_ns;
            visits[parent as usize].cpu_ns += cpu_ns;
        }
    }
    let several = visits.iter().filter(|visit| nodes.is_at_several(visit.node));
    several
        .map(|Visit { node, location, wall_ns, cpu_ns, .. }| At {
            node: *node,
            location: *location,
            wall_ns: *wall_ns,
            cpu_ns: *cpu_ns,
        })
        .collect()
}
