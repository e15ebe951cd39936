//! Reads a projection in the order of the settings; each list of rows is sorted when it is read.
//! Settings of metric and order need no new projection.

use std::cmp::Ordering;
use std::sync::Arc;

use super::columns::NONE;
use super::nodes::Siblings;
use super::{Group, Method, Projection, Totals};
use crate::model::facts::tables::Location;
use crate::model::projection::settings::{Level, Metric, Settings, SortColumn};
use crate::model::vocabulary::role::Role;

/// A node of a call tree: one row (function, line, class ...) on one path.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// `None` for a group's root.
    pub parent: Option<u32>,
    /// The row's name. Under roll-up function `line` is the node's heaviest line (tie: lowest), and
    /// `tier` that of most of the time there.
    pub location: &'a Arc<Location>,
    pub total: Totals,
    /// Time of the stacks whose innermost shown frame is this node.
    pub own: Totals,
}

impl Projection {
    /// Returns the number of nodes; callers have lower numbers than their callees.
    pub fn node_count(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Returns a group's outermost frames.
    pub fn roots(&self, group: &Group) -> Siblings<'_> {
        self.nodes.siblings(group.first_root)
    }

    pub fn children(&self, node: u32) -> Siblings<'_> {
        self.nodes.siblings(self.nodes.first_child(node))
    }

    pub fn has_children(&self, node: u32) -> bool {
        self.nodes.first_child(node) != NONE
    }

    pub fn parent(&self, node: u32) -> Option<u32> {
        Some(self.nodes.parent(node)).filter(|parent| *parent != NONE)
    }

    /// Returns the group whose tree has the node: an index into [`Projection::groups`].
    pub fn group_of(&self, node: u32) -> Option<u32> {
        let root = std::iter::successors(Some(node), |node| self.parent(*node)).last()?;
        let mut groups = (0..).zip(&self.groups);
        Some(groups.find(|(_, group)| self.roots(group).any(|node| node == root))?.0)
    }

    /// Returns whose code the node is.
    pub fn role(&self, node: u32) -> Role {
        self.nodes.role(node)
    }

    /// Returns whether the node stands for all that its caller, the user's function, calls
    /// elsewhere through this entry. Its time is self time of the caller too.
    pub fn is_entry(&self, node: u32) -> bool {
        self.nodes.is_entry(node)
    }

    /// Returns the node's name with any one of its lines; see [`Projection::location`].
    pub fn name(&self, node: u32) -> &Arc<Location> {
        self.nodes.name(node)
    }

    /// See [`Node::location`].
    pub fn location(&self, node: u32, metric: Metric) -> &Arc<Location> {
        self.nodes.location(node, metric)
    }

    pub fn total(&self, node: u32) -> Totals {
        self.nodes.totals.get(node)
    }

    /// Returns `total(node).value(metric)`.
    pub fn value(&self, node: u32, metric: Metric) -> u64 {
        self.nodes.totals.value(node, metric)
    }

    pub fn node(&self, node: u32, metric: Metric) -> Node<'_> {
        Node {
            parent: self.parent(node),
            location: self.location(node, metric),
            total: self.total(node),
            own: self.nodes.own(node),
        }
    }

    /// Returns the column by which rows are ordered if `sort` is chosen.
    pub fn sorted_by(&self, sort: SortColumn) -> SortColumn {
        match sort {
            SortColumn::Change if !self.has_trends() => SortColumn::Total,
            sort => sort,
        }
    }

    pub fn ordered(&self, settings: &Settings) -> Ordered<'_> {
        let Settings { metric, reverse, level, .. } = *settings;
        let sort = self.sorted_by(settings.sort);
        Ordered { projection: self, metric, sort, reverse, mine: level == Level::Mine }
    }
}

/// See the module's documentation. Heaviest first; equal ones by name, so that their order is
/// stable.
#[derive(Clone, Copy, Debug)]
pub struct Ordered<'a> {
    pub projection: &'a Projection,
    pub metric: Metric,
    sort: SortColumn,
    reverse: bool,
    /// Rows are the user's functions.
    mine: bool,
}

impl<'a> Ordered<'a> {
    /// Returns indexes into [`Projection::groups`].
    pub fn groups(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.projection.groups.len() as u32).collect();
        order.sort_unstable_by(|a, b| self.by_group(*a, *b));
        order
    }

    pub fn roots(&self, group: &Group) -> Vec<u32> {
        self.sorted(self.projection.roots(group))
    }

    pub fn children(&self, node: u32) -> Vec<u32> {
        self.sorted(self.projection.children(node))
    }

    /// Returns siblings in order.
    pub fn sorted(&self, nodes: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut nodes: Vec<u32> = nodes.collect();
        if nodes.len() > 1 {
            nodes.sort_unstable_by(|a, b| self.by_node(*a, *b));
        }
        nodes
    }

    /// Returns indexes into [`Projection::methods`]. Under [`Level::Mine`], what is no function of
    /// the user or of a library is last: that threads lack a core, are stopped, or start.
    pub fn methods(&self) -> Vec<u32> {
        let methods = self.projection.methods();
        let is_last =
            |method: &Method| self.mine && !matches!(method.role, Role::App | Role::Library);
        let mut order: Vec<u32> = (0..methods.len() as u32).collect();
        order.sort_unstable_by(|at_a, at_b| {
            let (a, b) = (&methods[*at_a as usize], &methods[*at_b as usize]);
            is_last(a).cmp(&is_last(b)).then_with(|| self.by_method(*at_a, *at_b))
        });
        order
    }

    pub fn node(&self, node: u32) -> Node<'a> {
        self.projection.node(node, self.metric)
    }

    pub fn value(&self, node: u32) -> u64 {
        self.projection.value(node, self.metric)
    }

    /// Returns the self time of a node in the metric.
    pub fn own(&self, node: u32) -> u64 {
        self.projection.nodes.own_value(node, self.metric)
    }

    fn by_group(&self, a: u32, b: u32) -> Ordering {
        let group = |at: u32| &self.projection.groups[at as usize];
        // Threads with equal names are ordered by their ids.
        let first = |at: u32| group(at).threads.first().map(|t| t.thread);
        let by_name = || group(a).name.cmp(&group(b).name).then_with(|| first(a).cmp(&first(b)));
        self.by(&OfGroup(self.projection, a), &OfGroup(self.projection, b), by_name)
    }

    /// Compares two nodes in the order of the settings.
    pub fn by_node(&self, a: u32, b: u32) -> Ordering {
        let nodes = &self.projection.nodes;
        self.by(&OfNode(self.projection, a), &OfNode(self.projection, b), || {
            by_location(nodes.name(a), nodes.name(b))
        })
    }

    fn by_method(&self, a: u32, b: u32) -> Ordering {
        let location = |at: u32| self.projection.methods()[at as usize].location(self.metric);
        let by_name = || by_location(location(a), location(b));
        self.by(&OfMethod(self.projection, a), &OfMethod(self.projection, b), by_name)
    }

    /// Compares two rows. Reversing affects the column, but never the order of equal ones.
    fn by<R: Figures>(&self, a: &R, b: &R, by_name: impl Fn() -> Ordering) -> Ordering {
        let metric = self.metric;
        let by_total = || b.total(metric).cmp(&a.total(metric));
        let by_column = match self.sort {
            SortColumn::Total => by_total(),
            // Groups have little self time, so they fall back to their totals.
            SortColumn::SelfTime => b.own(metric).cmp(&a.own(metric)).then_with(by_total),
            SortColumn::Threads => by_total(),
            SortColumn::Cpu => b.total(metric.beside()).cmp(&a.total(metric.beside())),
            SortColumn::State => {
                a.state_rank(metric).cmp(&b.state_rank(metric)).then_with(by_total)
            }
            SortColumn::Name => by_name(),
            SortColumn::Hits => b.hits(metric).cmp(&a.hits(metric)).then_with(by_total),
            SortColumn::Change => b.change(metric).total_cmp(&a.change(metric)).then_with(by_total),
            SortColumn::Module => a.module().cmp(b.module()).then_with(by_total),
        };
        let by_column = if self.reverse { by_column.reverse() } else { by_column };
        by_column.then_with(by_name)
    }
}

/// The figures by which rows are sorted.
trait Figures {
    fn total(&self, metric: Metric) -> u64;
    fn own(&self, metric: Metric) -> u64;
    fn hits(&self, metric: Metric) -> u64;
    /// Returns the rank of the main state in display order; a row without time is last.
    fn state_rank(&self, metric: Metric) -> u8;
    /// Returns percentage points; 0 where it may be due to sampling.
    fn change(&self, metric: Metric) -> f64;
    fn module(&self) -> &str;
}

fn state_rank(total: &Totals, metric: Metric) -> u8 {
    total.main_state(metric).map_or(u8::MAX, |(state, _)| state as u8)
}

struct OfGroup<'a>(&'a Projection, u32);

impl OfGroup<'_> {
    fn group(&self) -> &Group {
        &self.0.groups[self.1 as usize]
    }
}

impl Figures for OfGroup<'_> {
    fn total(&self, metric: Metric) -> u64 {
        self.group().total.value(metric)
    }

    fn own(&self, metric: Metric) -> u64 {
        self.group().own.value(metric)
    }

    fn hits(&self, metric: Metric) -> u64 {
        self.group().total.value_hits(metric)
    }

    fn state_rank(&self, metric: Metric) -> u8 {
        state_rank(&self.group().total, metric)
    }

    fn change(&self, metric: Metric) -> f64 {
        self.0.change_of_group(self.1, metric)
    }

    fn module(&self) -> &str {
        ""
    }
}

struct OfMethod<'a>(&'a Projection, u32);

impl OfMethod<'_> {
    fn method(&self) -> &Method {
        &self.0.methods()[self.1 as usize]
    }
}

impl Figures for OfMethod<'_> {
    fn total(&self, metric: Metric) -> u64 {
        self.method().total.value(metric)
    }

    fn own(&self, metric: Metric) -> u64 {
        self.method().own.value(metric)
    }

    fn hits(&self, metric: Metric) -> u64 {
        self.method().total.value_hits(metric)
    }

    fn state_rank(&self, metric: Metric) -> u8 {
        state_rank(&self.method().total, metric)
    }

    fn change(&self, metric: Metric) -> f64 {
        self.0.change_of_method(self.1, metric)
    }

    fn module(&self) -> &str {
        // That of its lines is the same.
        &self.method().location(Metric::Wall).module
    }
}

struct OfNode<'a>(&'a Projection, u32);

impl Figures for OfNode<'_> {
    fn total(&self, metric: Metric) -> u64 {
        self.0.value(self.1, metric)
    }

    fn own(&self, metric: Metric) -> u64 {
        self.0.nodes.own_value(self.1, metric)
    }

    fn hits(&self, metric: Metric) -> u64 {
        self.0.total(self.1).value_hits(metric)
    }

    fn state_rank(&self, metric: Metric) -> u8 {
        state_rank(&self.0.total(self.1), metric)
    }

    fn change(&self, metric: Metric) -> f64 {
        self.0.change_of_node(self.1, metric)
    }

    fn module(&self) -> &str {
        &self.0.name(self.1).module
    }
}

/// Compares the stable properties of a row first: its heaviest line may change with every refresh.
pub(super) fn by_location(a: &Location, b: &Location) -> Ordering {
    let place = |l: &Location| (l.line, l.file.clone());
    (&a.function, &a.module)
        .cmp(&(&b.function, &b.module))
        .then_with(|| a.kind.cmp(&b.kind))
        .then_with(|| place(a).cmp(&place(b)))
}

#[cfg(test)]
mod tests {
    use super::super::test_projections::projection;
    use super::*;
    use crate::model::facts::tables::FrameKind;
    use crate::model::vocabulary::state::State;

    fn row(name: &str, total: u64, own: u64) -> (String, Totals, Totals) {
        let totals = |wall_ns| Totals { wall_ns, ..Totals::default() };
        (name.into(), totals(total), totals(own))
    }

    fn location(function: &str) -> Location {
        Location {
            function: function.into(),
            module: "app".into(),
            file: None,
            line: None,
            kind: FrameKind::Native,
            tier: None,
        }
    }

    /// Returns the order of these rows, which must be the same for nodes and methods.
    #[track_caller]
    fn sorted(settings: &Settings, rows: &[(String, Totals, Totals)]) -> String {
        let stacks: Vec<_> = rows
            .iter()
            .flat_map(|(name, total, own)| {
                let mut rest = *total;
                rest.wall_ns -= own.wall_ns;
                [(vec![location(name)], *own), (vec![location(name), location("~")], rest)]
            })
            .map(|(frames, totals)| ("main".to_string(), frames, totals))
            .collect();
        let projection = projection(&stacks);
        let ordered = projection.ordered(settings);
        let nodes = ordered.roots(&projection.groups[0]);
        let nodes: String =
            nodes.iter().map(|node| &*ordered.node(*node).location.function).collect();
        let methods = ordered.methods();
        let method =
            |at: &u32| &*projection.methods()[*at as usize].location(settings.metric).function;
        let methods: String = methods.iter().map(method).filter(|name| *name != "~").collect();
        assert_eq!(nodes, methods);
        nodes
    }

    fn by(sort: SortColumn, reverse: bool) -> Settings {
        Settings { sort, reverse, ..Settings::default() }
    }

    #[test]
    fn every_column_sorts_and_reverses() {
        let mut rows = [row("a", 30, 0), row("b", 10, 10), row("c", 20, 5)];
        for ((_, total, _), cpu_ns) in rows.iter_mut().zip([1, 3, 2]) {
            total.cpu_ns = cpu_ns;
        }
        for ((_, total, _), hits) in rows.iter_mut().zip([2, 1, 3]) {
            total.hits = hits;
        }
        for ((_, total, own), state) in rows.iter_mut().zip([State::Wait, State::Run, State::Io]) {
            total.states_ns[state as usize] = total.wall_ns - own.wall_ns;
            own.states_ns[state as usize] = own.wall_ns;
        }
        for (column, forward, backward) in [
            (SortColumn::Total, "acb", "bca"),
            (SortColumn::SelfTime, "bca", "acb"),
            (SortColumn::Threads, "acb", "bca"),
            (SortColumn::Cpu, "bca", "acb"),
            (SortColumn::State, "bac", "cab"),
            (SortColumn::Name, "abc", "cba"),
            (SortColumn::Hits, "cab", "bac"),
            // Without trends.
            (SortColumn::Change, "acb", "bca"),
            (SortColumn::Module, "acb", "bca"),
        ] {
            assert_eq!(sorted(&by(column, false), &rows), forward, "{column:?}");
            assert_eq!(sorted(&by(column, true), &rows), backward, "{column:?} reversed");
        }
    }

    #[test]
    fn equals_keep_their_order_by_name_even_reversed() {
        let rows = [row("c", 10, 0), row("a", 10, 0), row("b", 10, 0), row("d", 20, 0)];
        assert_eq!(sorted(&by(SortColumn::Total, false), &rows), "dabc");
        assert_eq!(sorted(&by(SortColumn::Total, true), &rows), "abcd");
    }

    #[test]
    fn the_metric_decides_what_total_means() {
        let mut rows = [row("a", 30, 0), row("b", 10, 0)];
        rows[0].1.cpu_ns = 25;
        assert_eq!(sorted(&Settings { metric: Metric::Off, ..Settings::default() }, &rows), "ba");
    }
}
