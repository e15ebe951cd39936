//! Which nodes share a line, which rows are worth drawing, and where to look first.

use super::{Projection, Totals};
use crate::model::settings::{Metric, Settings};
use crate::model::tables::FrameKind;

/// A run of nodes that is drawn on one line: the line of its last node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// The node that is drawn; its children are what expanding the line shows.
    pub last: u32,
    /// How many nodes above `last` it swallowed (`...41 Name`).
    pub swallowed: u32,
}

/// The line that starts at `node`: a node with self under 0.5 % of the range and one child with at least 95 % of its
/// total is swallowed by that child's line. Starting anywhere inside a chain gives the same `last`.
pub fn chain(projection: &Projection, metric: Metric, node: u32) -> Chain {
    let mut chain = Chain { last: node, swallowed: 0 };
    while let Some(child) = swallowed_by(projection, metric, chain.last) {
        chain = Chain { last: child, swallowed: chain.swallowed + 1 };
    }
    chain
}

/// The child that takes the node's line, one step of [`chain`]: for a view that also draws what branches off a chain.
/// A marker keeps its line: that a stack was cut must stay to be seen.
pub fn swallowed_by(projection: &Projection, metric: Metric, node: u32) -> Option<u32> {
    let node = &projection.nodes[node as usize];
    if node.location.kind == FrameKind::Marker {
        return None;
    }
    let own = u128::from(node.own.value(metric));
    let light = own == 0 || own * 200 < u128::from(projection.total.value(metric));
    dominant(projection, metric, &node.children, &node.total).filter(|_| light)
}

/// The child with at least 95 % of its parent's total, or the only one where none has any.
fn dominant(projection: &Projection, metric: Metric, children: &[u32], parent: &Totals) -> Option<u32> {
    let heaviest = heaviest(projection, metric, children)?;
    let (part, whole) = (projection.nodes[heaviest as usize].total.value(metric), parent.value(metric));
    let most = u128::from(part) * 100 >= u128::from(whole) * 95;
    (most && (whole > 0 || children.len() == 1)).then_some(heaviest)
}

/// Of equals the one that is drawn first.
pub fn heaviest(projection: &Projection, metric: Metric, children: &[u32]) -> Option<u32> {
    let value = |node: u32| projection.nodes[node as usize].total.value(metric);
    children.iter().copied().reduce(|best, next| if value(next) > value(best) { next } else { best })
}

/// The nodes to open so that the hottest path below `children` (a group's roots, a node's children; `parent` is their
/// parent's total) shows down to its first fork: from the outermost to the fork itself. A node forks when it has
/// several children and none has 95 % of it. Empty where the parent itself forks.
pub fn hottest_path(projection: &Projection, metric: Metric, children: &[u32], parent: &Totals) -> Vec<u32> {
    let mut path = Vec::new();
    let (mut children, mut parent) = (children, parent);
    loop {
        let next = match children {
            [] => break,
            [only] => Some(*only),
            several => dominant(projection, metric, several, parent),
        };
        let Some(next) = next else { break };
        let node = &projection.nodes[next as usize];
        if node.children.is_empty() {
            break;
        }
        path.push(next);
        (children, parent) = (&node.children, &node.total);
    }
    path
}

/// The group to open at start, an index into [`Projection::groups`].
pub fn hottest_group(projection: &Projection, metric: Metric) -> Option<usize> {
    let value = |group: usize| projection.groups[group].total.value(metric);
    (0..projection.groups.len()).reduce(|best, next| if value(next) > value(best) { next } else { best })
}

/// False for rows under the settings' minimum share of what is shown.
pub fn is_drawn(projection: &Projection, settings: &Settings, row: &Totals) -> bool {
    match settings.filters.min_percent.active() {
        Some(percent) => row.share(settings.metric, &projection.total) * 100.0 >= *percent,
        None => true,
    }
}
