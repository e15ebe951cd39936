//! Turns a projection into the tree's visible rows: what is expanded, with chains of calls folded
//! together, and small rows summed up in one line.

use crate::model::projection::settings::{Level, Settings};
use crate::model::projection::{
    Group, Ordered, Projection, Siblings, Totals, is_drawn, is_small, swallowed_by,
};

use super::row_path::{Branch, Expanded, GroupKey};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Index into [`Projection::groups`], or of a group of a comparison.
    Group(u32),
    /// A node of the projection, or of a comparison.
    Node(u32),
    /// The small rows under a node, or under the group.
    Small(Option<u32>),
    SmallGroups,
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
    /// Index into [`Projection::groups`]; `None` for the line of small groups.
    pub group: Option<u32>,
    /// Levels of indentation: forks above it, not frames.
    pub depth: u16,
    /// The only callee of the row above, drawn at the same indentation.
    pub chained: bool,
    /// Number of calls above it that are folded into this line.
    pub swallowed: u16,
    pub fold: Fold,
    /// Index of the row it stands under.
    pub parent: Option<u32>,
    /// Number of small rows that the line stands for.
    pub small: u32,
    /// Time in the metric that other lines would show if it were opened, ns.
    pub hides: u64,
}

/// A projection and its display settings. Only visible nodes are sorted.
#[derive(Clone, Copy)]
pub struct Tree<'a> {
    pub ordered: Ordered<'a>,
    pub settings: &'a Settings,
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

    /// Returns whether chains share a line and small rows are summed up.
    fn is_short(&self) -> bool {
        self.settings.level != Level::All
    }

    /// Returns the callee on whose line the call is drawn. A callee too light to be drawn is none.
    pub fn link(&self, node: u32) -> Option<u32> {
        // An inverted chain would be named by its outermost caller.
        if !self.is_short() || self.settings.inverted {
            return None;
        }
        swallowed_by(&self.ordered, node).filter(|callee| self.is_shown(*callee))
    }

    /// Returns all visible rows.
    pub fn rows(&self, expanded: &Expanded) -> Vec<Row> {
        let mut rows = Vec::new();
        let projection = self.ordered.projection;
        let value = |at: &u32| projection.groups[*at as usize].total.value(self.ordered.metric);
        let (small, large): (Vec<u32>, Vec<u32>) = self
            .ordered
            .groups()
            .into_iter()
            .filter(|at| self.shows_group(*at))
            .partition(|at| self.is_small_group(*at));
        for at in large {
            self.push_group(at, None, expanded, &mut rows);
        }
        if small.is_empty() {
            return rows;
        }
        let (me, sum) = (rows.len() as u32, small.iter().map(value).sum());
        let fold = if expanded.small_groups { Fold::Open } else { Fold::Closed };
        rows.push(Row {
            group: None,
            small: small.len() as u32,
            fold,
            ..self.row(What::SmallGroups, 0, sum)
        });
        if fold == Fold::Open {
            for at in small {
                self.push_group(at, Some(me), expanded, &mut rows);
            }
        }
        rows
    }

    fn push_group(&self, at: u32, parent: Option<u32>, expanded: &Expanded, rows: &mut Vec<Row>) {
        let projection = self.ordered.projection;
        let group = &projection.groups[at as usize];
        let branch = expanded.group(&GroupKey::of(group, &self.settings.grouping));
        let fold = self.fold(projection.roots(group), branch);
        let me = rows.len() as u32;
        let value = group.total.value(self.ordered.metric);
        let own = group.own.value(self.ordered.metric);
        rows.push(Row { fold, parent, ..self.row(What::Group(at), at, value - own) });
        if fold == Fold::Open {
            let below = self.lines(projection.roots(group), branch, value);
            self.push(below, me, (1, false), None, at, rows);
        }
    }

    fn row(&self, what: What, group: u32, hides: u64) -> Row {
        Row {
            what,
            group: Some(group),
            depth: 0,
            chained: false,
            swallowed: 0,
            fold: Fold::Leaf,
            parent: None,
            small: 0,
            hides,
        }
    }

    /// Adds the lines below the row `parent`, which is of `node`.
    fn push(
        &self,
        lines: Lines<'_>,
        parent: u32,
        (depth, chained): (u16, bool),
        node: Option<u32>,
        group: u32,
        rows: &mut Vec<Row>,
    ) {
        let place = (parent, depth, chained);
        for drawn in &lines.rows {
            self.push_node(drawn, place, group, rows);
        }
        if lines.small.is_empty() {
            return;
        }
        let sum = lines.small.iter().map(|drawn| self.ordered.value(drawn.node)).sum();
        rows.push(Row {
            depth,
            chained,
            fold: if lines.small_open { Fold::Open } else { Fold::Closed },
            parent: Some(parent),
            small: lines.small.len() as u32,
            ..self.row(What::Small(node), group, sum)
        });
        if lines.small_open {
            let me = rows.len() as u32 - 1;
            for drawn in &lines.small {
                self.push_node(drawn, (me, depth, false), group, rows);
            }
        }
    }

    fn push_node(
        &self,
        drawn: &Drawn<'_>,
        (parent, depth, chained): (u32, u16, bool),
        group: u32,
        rows: &mut Vec<Row>,
    ) {
        let children = self.ordered.projection.children(drawn.node);
        let fold = self.fold(children.clone(), drawn.branch);
        let me = rows.len() as u32;
        let value = self.ordered.value(drawn.node);
        let hides = value.saturating_sub(self.ordered.own(drawn.node));
        rows.push(Row {
            depth,
            chained,
            swallowed: drawn.swallowed,
            fold,
            parent: Some(parent),
            ..self.row(What::Node(drawn.node), group, hides)
        });
        if fold == Fold::Open {
            let below = self.lines(children, drawn.branch, value);
            let fork = below.rows.len() + usize::from(!below.small.is_empty()) > 1;
            let at = (depth.saturating_add(u16::from(fork)), !fork);
            self.push(below, me, at, Some(drawn.node), group, rows);
        }
    }

    /// Returns the lines that stand for `nodes`, whose caller has the time `whole`.
    fn lines<'b>(&self, nodes: Siblings<'_>, branch: Option<&'b Branch>, whole: u64) -> Lines<'b> {
        let mut drawn = self.drawn(nodes, branch);
        drawn.sort_unstable_by(|a, b| self.ordered.by_node(a.node, b.node));
        // Below a small row everything is small.
        let sums_up = self.is_short() && !is_small(&self.ordered, whole);
        let (small, rows) =
            drawn.into_iter().partition(|drawn: &Drawn<'_>| sums_up && self.is_small(drawn));
        Lines { rows, small, small_open: branch.is_some_and(|b| b.small_open) }
    }

    fn is_small(&self, drawn: &Drawn<'_>) -> bool {
        is_small(&self.ordered, self.ordered.value(drawn.node))
    }

    /// Returns what stands for `nodes`, in any order. A folded call is replaced by the callee that
    /// has its time; what else it calls is small.
    fn drawn<'b>(&self, nodes: Siblings<'_>, branch: Option<&'b Branch>) -> Vec<Drawn<'b>> {
        let projection = self.ordered.projection;
        let below = |branch: Option<&'b Branch>, node: u32| {
            branch.and_then(|b| b.below(projection.name(node), self.settings.roll_up))
        };
        let mut drawn = Vec::new();
        for mut node in nodes.filter(|node| self.is_shown(*node)) {
            let (mut branch, mut swallowed) = (below(branch, node), 0u16);
            while let Some(callee) = self.link(node) {
                swallowed = swallowed.saturating_add(1);
                for other in projection.children(node) {
                    if other != callee && self.is_shown(other) {
                        let branch = below(branch, other);
                        drawn.push(Drawn { node: other, branch, swallowed });
                    }
                }
                (node, branch) = (callee, below(branch, callee));
            }
            drawn.push(Drawn { node, branch, swallowed });
        }
        drawn
    }

    /// Returns the small nodes among those that stand for `nodes`, in any order.
    pub fn small(&self, nodes: Siblings<'_>) -> impl Iterator<Item = u32> {
        let small = self.drawn(nodes, None).into_iter().filter(|drawn| self.is_small(drawn));
        small.map(|drawn| drawn.node)
    }

    /// Returns the groups that are summed up in one line, in any order.
    pub fn small_groups(&self) -> impl Iterator<Item = &Group> {
        let groups = &self.ordered.projection.groups;
        self.small_group_indexes().map(|at| &groups[at as usize])
    }

    /// Returns the indexes of those groups.
    pub fn small_group_indexes(&self) -> impl Iterator<Item = u32> {
        let groups = 0..self.ordered.projection.groups.len() as u32;
        groups.filter(|at| self.shows_group(*at) && self.is_small_group(*at))
    }

    fn shows_group(&self, group: u32) -> bool {
        let projection = self.ordered.projection;
        is_shown(projection, self.settings, &projection.groups[group as usize].total)
    }

    fn is_small_group(&self, group: u32) -> bool {
        let total = &self.ordered.projection.groups[group as usize].total;
        self.is_short() && is_small(&self.ordered, total.value(self.ordered.metric))
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

/// What stands below a row, in order.
struct Lines<'b> {
    rows: Vec<Drawn<'b>>,
    /// Summed up in one line after the others.
    small: Vec<Drawn<'b>>,
    small_open: bool,
}

struct Drawn<'b> {
    node: u32,
    branch: Option<&'b Branch>,
    swallowed: u16,
}
