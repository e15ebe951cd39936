//! A projection -> the rows of the tree that are on view: what is expanded, with chains of calls folded together.

use crate::model::project::{Projection, Totals, is_drawn, swallowed_by};
use crate::model::settings::Settings;

use super::path::{Branch, Expanded, GroupKey};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Index into [`Projection::groups`].
    Group(u32),
    /// Index into [`Projection::nodes`].
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
    /// Steps of indentation: forks above it, not frames.
    pub depth: u16,
    /// The only callee of the row above, drawn at the same indentation.
    pub chained: bool,
    /// How many links above it are folded into this line.
    pub swallowed: u16,
    pub fold: Fold,
    /// Index of the row it stands under.
    pub parent: Option<u32>,
}

/// A projection, and how it shall be drawn.
#[derive(Clone, Copy)]
pub struct Tree<'a> {
    pub projection: &'a Projection,
    pub settings: &'a Settings,
    /// Fold chains of calls into one line.
    pub collapse: bool,
}

/// False for what has nothing of the metric, or less than the user wants to see.
pub fn is_shown(projection: &Projection, settings: &Settings, totals: &Totals) -> bool {
    totals.value(settings.metric) > 0 && is_drawn(projection, settings, totals)
}

impl Tree<'_> {
    fn is_shown(&self, totals: &Totals) -> bool {
        is_shown(self.projection, self.settings, totals)
    }

    /// The callee on whose line the call is drawn; none that is too light to be drawn itself.
    pub fn link(&self, node: u32) -> Option<u32> {
        swallowed_by(self.projection, self.settings.metric, node)
            .filter(|callee| self.collapse && self.is_shown(&self.projection.nodes[*callee as usize].total))
    }

    /// All rows on view.
    pub fn rows(&self, expanded: &Expanded) -> Vec<Row> {
        let mut rows = Vec::new();
        for (at, group) in self.projection.groups.iter().enumerate() {
            if !self.is_shown(&group.total) {
                continue;
            }
            let branch = expanded.group(&GroupKey::of(group, &self.settings.grouping));
            let below = self.drawn(&group.roots, branch);
            let open = branch.is_some_and(|b| b.open);
            let me = rows.len() as u32;
            let what = What::Group(at as u32);
            let fold = fold(&below, open);
            rows.push(Row { what, group: at as u32, depth: 0, chained: false, swallowed: 0, fold, parent: None });
            if open {
                self.push(&below, 1, false, me, at as u32, &mut rows);
            }
        }
        rows
    }

    fn push(&self, drawn: &[Drawn<'_>], depth: u16, chained: bool, parent: u32, group: u32, rows: &mut Vec<Row>) {
        for row in drawn {
            let below = self.drawn(&self.projection.nodes[row.node as usize].children, row.branch);
            let open = row.branch.is_some_and(|b| b.open);
            let me = rows.len() as u32;
            rows.push(Row {
                what: What::Node(row.node),
                group,
                depth,
                chained,
                swallowed: row.swallowed,
                fold: fold(&below, open),
                parent: Some(parent),
            });
            if open {
                let fork = below.len() > 1;
                self.push(&below, depth.saturating_add(u16::from(fork)), !fork, me, group, rows);
            }
        }
    }

    /// The rows that stand for `nodes`: a link gives its place to its callees, however long the chain.
    fn drawn<'b>(&self, nodes: &[u32], branch: Option<&'b Branch>) -> Vec<Drawn<'b>> {
        let mut drawn = Vec::with_capacity(nodes.len());
        // A stack of what is still to do, last first, instead of recursion: chains are as deep as stacks.
        let mut todo: Vec<(u32, Option<&'b Branch>, u16)> = nodes.iter().rev().map(|n| (*n, branch, 0)).collect();
        while let Some((node, above, swallowed)) = todo.pop() {
            let inner = &self.projection.nodes[node as usize];
            if !self.is_shown(&inner.total) {
                continue;
            }
            let branch = above.and_then(|b| b.below(&inner.location, self.settings.roll_up));
            if self.link(node).is_some() {
                todo.extend(inner.children.iter().rev().map(|n| (*n, branch, swallowed.saturating_add(1))));
            } else {
                drawn.push(Drawn { node, branch, swallowed });
            }
        }
        drawn
    }
}

struct Drawn<'b> {
    node: u32,
    branch: Option<&'b Branch>,
    swallowed: u16,
}

fn fold(below: &[Drawn<'_>], open: bool) -> Fold {
    match (below.is_empty(), open) {
        (true, _) => Fold::Leaf,
        (false, true) => Fold::Open,
        (false, false) => Fold::Closed,
    }
}
