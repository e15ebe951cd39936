//! Decides which nodes share a line, which rows are drawn, and which are opened first.

use super::{Ordered, Projection, Totals};
use crate::model::facts::tables::FrameKind;
use crate::model::projection::settings::Settings;

/// A row below this share of the range is small: it may be summed up with others, and its time may
/// be left out where it does not change the picture. 0.5 %.
const SMALL_PARTS: u128 = 200;

/// Returns whether this time is below 0.5 % of what is shown.
pub fn is_small(ordered: &Ordered<'_>, value: u64) -> bool {
    let shown = ordered.projection.total.value(ordered.metric);
    u128::from(value) * SMALL_PARTS < u128::from(shown)
}

/// Consecutive nodes drawn on one line, that of the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// The drawn node; expanding the line shows its children.
    pub last: u32,
    /// Number of nodes above `last` without a line of their own.
    pub swallowed: u32,
}

/// Returns the line that starts at `node`. All nodes of a chain give the same `last`.
pub fn chain(ordered: &Ordered<'_>, node: u32) -> Chain {
    let mut chain = Chain { last: node, swallowed: 0 };
    while let Some(child) = swallowed_by(ordered, chain.last) {
        chain = Chain { last: child, swallowed: chain.swallowed + 1 };
    }
    chain
}

/// Returns the callee on whose line the node is drawn: the one that has all of the node's time but
/// 0.5 % of the range. A caller with branches has none, and neither has a function whose time is
/// its own. A marker keeps its line, so that truncated stacks remain visible. The name of threads
/// within a group does too.
pub fn swallowed_by(ordered: &Ordered<'_>, node: u32) -> Option<u32> {
    let projection = ordered.projection;
    if matches!(projection.name(node).kind, FrameKind::Marker | FrameKind::Thread) {
        return None;
    }
    let callees = projection.children(node).filter(|callee| !projection.is_entry(*callee));
    let callee = heaviest(ordered, callees)?;
    let (whole, part) = (ordered.value(node), ordered.value(callee));
    match part {
        // Without any time, an only callee.
        0 => (whole == 0 && projection.children(node).count() == 1).then_some(callee),
        part => (whole == part || is_small(ordered, whole - part)).then_some(callee),
    }
}

/// Returns the heaviest node; of equal ones the first in drawing order.
pub fn heaviest(ordered: &Ordered<'_>, nodes: impl Iterator<Item = u32>) -> Option<u32> {
    nodes.reduce(|best, next| {
        let first =
            ordered.value(next).cmp(&ordered.value(best)).then_with(|| ordered.by_node(best, next));
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
