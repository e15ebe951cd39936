//! Decides which nodes share a line, which rows are drawn, and which are opened first.

use super::{Ordered, Projection, Siblings, Totals};
use crate::model::facts::tables::FrameKind;
use crate::model::projection::settings::Settings;

/// Consecutive nodes drawn on one line, that of the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// The drawn node; expanding the line shows its children.
    pub last: u32,
    /// Number of nodes above `last` without a line of their own (`...41 Name`).
    pub swallowed: u32,
}

/// Returns the line that starts at `node`. A node shares the line of its child if its self time is
/// under 0.5 % of the range and the child has at least 95 % of its total. All nodes of a chain give
/// the same `last`.
pub fn chain(ordered: &Ordered<'_>, node: u32) -> Chain {
    let mut chain = Chain { last: node, swallowed: 0 };
    while let Some(child) = swallowed_by(ordered, chain.last) {
        chain = Chain { last: child, swallowed: chain.swallowed + 1 };
    }
    chain
}

/// Returns the child whose line the node shares, one step of [`chain`]: for a view that also draws
/// a chain's branches. A marker keeps its line, so that truncated stacks remain visible. The name
/// of threads within a group does too.
pub fn swallowed_by(ordered: &Ordered<'_>, node: u32) -> Option<u32> {
    let projection = ordered.projection;
    if matches!(projection.name(node).kind, FrameKind::Marker | FrameKind::Thread) {
        return None;
    }
    let own = u128::from(projection.nodes.own_value(node, ordered.metric));
    let light = own == 0 || own * 200 < u128::from(projection.total.value(ordered.metric));
    if light { dominant(ordered, projection.children(node), ordered.value(node)) } else { None }
}

/// Returns the child with at least 95 % of its parent's value, or the only child if all values are
/// 0.
fn dominant(ordered: &Ordered<'_>, children: Siblings<'_>, whole: u64) -> Option<u32> {
    let heaviest = heaviest(ordered, children.clone())?;
    let most = u128::from(ordered.value(heaviest)) * 100 >= u128::from(whole) * 95;
    (most && (whole > 0 || children.take(2).count() == 1)).then_some(heaviest)
}

/// Returns the heaviest node; of equal ones the first in drawing order.
pub fn heaviest(ordered: &Ordered<'_>, nodes: impl Iterator<Item = u32>) -> Option<u32> {
    nodes.reduce(|best, next| {
        let first =
            ordered.value(next).cmp(&ordered.value(best)).then_with(|| ordered.by_node(best, next));
        if first.is_gt() { next } else { best }
    })
}

/// Returns the nodes to open so that a group's hottest path is visible to its first fork, from the
/// outermost to the fork itself. A node forks if it has several children and none has 95 % of it.
/// Empty if the group itself forks.
pub fn hottest_path(ordered: &Ordered<'_>, group: usize) -> Vec<u32> {
    let projection = ordered.projection;
    let group = &projection.groups[group];
    let mut path = Vec::new();
    let (mut children, mut whole) = (projection.roots(group), group.total.value(ordered.metric));
    loop {
        let mut first = children.clone();
        let next = match (first.next(), first.next()) {
            (Some(only), None) => Some(only),
            _ => dominant(ordered, children, whole),
        };
        let Some(next) = next.filter(|next| projection.has_children(*next)) else { break };
        path.push(next);
        (children, whole) = (projection.children(next), ordered.value(next));
    }
    path
}

/// Returns the group to open at start, an index into [`Projection::groups`]; of equal ones the
/// first in drawing order.
pub fn hottest_group(ordered: &Ordered<'_>) -> Option<usize> {
    let groups = &ordered.projection.groups;
    let value = |group: usize| groups[group].total.value(ordered.metric);
    (0..groups.len()).reduce(|best, next| {
        let first = value(next)
            .cmp(&value(best))
            .then_with(|| ordered.by_group(&groups[best], &groups[next]));
        if first.is_gt() { next } else { best }
    })
}

/// Returns false for rows under the settings' minimum share of the shown time.
pub fn is_drawn(projection: &Projection, settings: &Settings, row: &Totals) -> bool {
    match settings.filters.min_percent.active() {
        Some(percent) => row.share(settings.metric, &projection.total) * 100.0 >= *percent,
        None => true,
    }
}
