//! Turns a projection into the tree's visible rows: what is expanded, with chains of calls folded
//! together.

use crate::model::projection::settings::Settings;
use crate::model::projection::{Ordered, Projection, Siblings, Totals, is_drawn, swallowed_by};

use super::row_path::{Branch, Expanded, GroupKey};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Index into [`Projection::groups`].
    Group(u32),
    /// A node of the projection.
    Node(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fold {
    Leaf,
    Open,
    Closed,
}

/// One line of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    pub what: What,
    pub group: u32,
    /// Levels of indentation: forks above it, not frames.
    pub depth: u16,
    /// The only callee of the row above, drawn at the same indentation.
    pub chained: bool,
    /// Number of calls above it that are folded into this line.
    pub swallowed: u16,
    pub fold: Fold,
    /// Index of the row it stands under.
    pub parent: Option<u32>,
}

/// A projection and its display settings. Only visible nodes are sorted.
#[derive(Clone, Copy)]
pub struct Tree<'a> {
    pub ordered: Ordered<'a>,
    pub settings: &'a Settings,
    /// Fold chains of calls into one line.
    pub collapse: bool,
}

/// Returns false for a node with no time in the metric, or less than the user wants to see.
pub fn is_shown(projection: &Projection, settings: &Settings, totals: &Totals) -> bool {
    totals.value(settings.metric) > 0 && is_drawn(projection, settings, totals)
}

impl Tree<'_> {
    fn is_shown(&self, node: u32) -> bool {
        let projection = self.ordered.projection;
        // A row's totals are computed only where they matter.
        let any_share = self.settings.filters.min_percent.active().is_none();
        self.ordered.value(node) > 0
            && (any_share || is_drawn(projection, self.settings, &projection.total(node)))
    }

    /// Returns the callee on whose line the call is drawn. A callee too light to be drawn is none.
    pub fn link(&self, node: u32) -> Option<u32> {
        if !self.collapse {
            return None;
        }
        swallowed_by(&self.ordered, node).filter(|callee| self.is_shown(*callee))
    }

    /// Returns all visible rows.
    pub fn rows(&self, expanded: &Expanded) -> Vec<Row> {
        let mut rows = Vec::new();
        let projection = self.ordered.projection;
        for at in self.ordered.groups() {
            let group = &projection.groups[at as usize];
            if !is_shown(projection, self.settings, &group.total) {
                continue;
            }
            let branch = expanded.group(&GroupKey::of(group, &self.settings.grouping));
            let fold = self.fold(projection.roots(group), branch);
            let me = rows.len() as u32;
            let what = What::Group(at);
            rows.push(Row {
                what,
                group: at,
                depth: 0,
                chained: false,
                swallowed: 0,
                fold,
                parent: None,
            });
            if fold == Fold::Open {
                let below = self.drawn(projection.roots(group), branch);
                self.push(&below, 1, false, me, at, &mut rows);
            }
        }
        rows
    }

    fn push(
        &self,
        drawn: &[Drawn<'_>],
        depth: u16,
        chained: bool,
        parent: u32,
        group: u32,
        rows: &mut Vec<Row>,
    ) {
        for row in drawn {
            let children = self.ordered.projection.children(row.node);
            let fold = self.fold(children.clone(), row.branch);
            let me = rows.len() as u32;
            rows.push(Row {
                what: What::Node(row.node),
                group,
                depth,
                chained,
                swallowed: row.swallowed,
                fold,
                parent: Some(parent),
            });
            if fold == Fold::Open {
                let below = self.drawn(children, row.branch);
                let fork = below.len() > 1;
                self.push(&below, depth.saturating_add(u16::from(fork)), !fork, me, group, rows);
            }
        }
    }

    /// Returns the rows that stand for `nodes`: a folded call is replaced by its callees, however
    /// long the chain.
    fn drawn<'b>(&self, nodes: Siblings<'_>, branch: Option<&'b Branch>) -> Vec<Drawn<'b>> {
        let in_order =
            |nodes: Siblings<'_>| self.ordered.sorted(nodes.filter(|node| self.is_shown(*node)));
        let mut drawn = Vec::new();
        // An explicit stack, last first, instead of recursion: chains are as deep as stacks.
        let mut todo: Vec<(u32, Option<&'b Branch>, u16)> =
            in_order(nodes).into_iter().rev().map(|n| (n, branch, 0)).collect();
        while let Some((node, above, swallowed)) = todo.pop() {
            let projection = self.ordered.projection;
            let branch = above.and_then(|b| b.below(projection.name(node), self.settings.roll_up));
            if self.link(node).is_some() {
                let inner = in_order(projection.children(node)).into_iter().rev();
                todo.extend(inner.map(|n| (n, branch, swallowed.saturating_add(1))));
            } else {
                drawn.push(Drawn { node, branch, swallowed });
            }
        }
        drawn
    }

    /// Returns whether the row is expandable and expanded. Any shown child makes it expandable: a
    /// folded call has a shown callee.
    fn fold(&self, mut children: Siblings<'_>, branch: Option<&Branch>) -> Fold {
        match (children.any(|child| self.is_shown(child)), branch.is_some_and(|b| b.open)) {
            (false, _) => Fold::Leaf,
            (true, true) => Fold::Open,
            (true, false) => Fold::Closed,
        }
    }
}

struct Drawn<'b> {
    node: u32,
    branch: Option<&'b Branch>,
    swallowed: u16,
}
