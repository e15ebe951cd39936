//! Compares two projections: changes of totals, threads, call trees, functions. Pure, like
//! projections. Matches by name, so the two may be of different processes, builds and hosts.
//!
//! ```text
//! mod     the tree of changes and the list of functions
//! alike   matches the rows of two profiles
//! gone    what has time only in the profile before
//! ```

mod alike;
mod gone;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::facts::tables::{FrameKind, Location};
pub use crate::model::projection::sampling_error::{Change, Pair, Sums};
use crate::model::projection::sampling_error::{Sampled, between, quantile, reach};
use crate::model::projection::settings::{Grouping, Metric, Settings};
use crate::model::projection::{Projection, Totals};
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::state::State;
use alike::Alike;
pub use alike::group_name;
pub use gone::{Gone, GoneBelow};

/// The unit of figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Per {
    /// Total ms.
    #[default]
    Run,
    /// ms per second of elapsed time.
    Second,
    /// Percentage points of the shown time.
    Share,
}

impl Per {
    pub const ALL: [Per; 3] = [Per::Run, Per::Second, Per::Share];

    /// Returns the word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Per::Run => "run",
            Per::Second => "second",
            Per::Share => "share",
        }
    }

    /// Returns the unit of all figures.
    pub fn unit(self) -> &'static str {
        match self {
            Per::Run => "ms",
            Per::Second => "ms/s",
            Per::Share => "points",
        }
    }
}

impl<T> Pair<T> {
    fn side(&mut self, side: Which) -> &mut T {
        match side {
            Which::Before => &mut self.before,
            Which::After => &mut self.after,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Before,
    After,
}

/// One of the two profiles.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    pub projection: &'a Projection,
    /// Resolution of wait times, ns ([`crate::model::facts::snapshot::Snapshot::resolution`]).
    pub resolution: Ns,
}

/// The divisors of both sides of a change, and their precision.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Whole {
    pub elapsed: Ns,
    /// Everything shown.
    pub total: Totals,
    sampled: Sampled,
}

/// Threads that are shown under one name.
#[derive(Clone, Debug)]
pub struct GroupDiff {
    pub name: Arc<str>,
    /// Number of threads; 0 if the group exists only in the other profile.
    pub threads: Pair<usize>,
    pub total: Pair<Sums>,
    /// Time of stacks whose frames are all hidden by the hide filter; they have no root.
    pub own: Pair<Sums>,
    first_root: u32,
}

/// A row on a path of callers.
#[derive(Clone, Debug)]
pub struct NodeDiff {
    /// As named in the profile after; in the one before, if it exists only there.
    pub location: Arc<Location>,
    pub total: Pair<Sums>,
    pub own: Pair<Sums>,
    /// It stands for what its caller, the user's function, calls elsewhere.
    pub is_entry: bool,
    parent: u32,
    first_child: u32,
    next: u32,
}

/// A row with all its callers.
#[derive(Clone, Debug)]
pub struct FunctionDiff {
    /// As [`NodeDiff::location`].
    pub location: Arc<Location>,
    pub total: Pair<Totals>,
    pub own: Pair<Totals>,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Diff {
    pub metric: Metric,
    pub per: Per,
    pub whole: Pair<Whole>,
    /// Ordered by name.
    pub groups: Vec<GroupDiff>,
    /// Callers precede their callees.
    pub nodes: Vec<NodeDiff>,
    pub functions: Vec<FunctionDiff>,
    /// By index into the groups of the projection after: the group here.
    groups_after: Vec<u32>,
    /// By node of the projection after: the node here.
    nodes_after: Vec<u32>,
    /// Totals of groups are measured exactly, because no filter selects by stack.
    groups_are_measured: bool,
    quantile: f64,
}

const NONE: u32 = u32::MAX;

/// Compares two projections. `settings`: those of both.
pub fn diff(before: Side<'_>, after: Side<'_>, settings: &Settings, per: Per) -> Diff {
    let metric = settings.metric;
    let filters = &settings.filters;
    let by_stack = filters.focus.active().is_some() || filters.ignore.active().is_some();
    let mut diff = Diff {
        metric,
        per,
        whole: Pair { before, after }.map(|side| whole(side, metric)),
        groups: Vec::new(),
        nodes: Vec::new(),
        functions: Vec::new(),
        groups_after: Vec::new(),
        nodes_after: vec![NONE; after.projection.node_count() as usize],
        groups_are_measured: !by_stack
            && !matches!(
                settings.grouping,
                Grouping::Frame(_) | Grouping::Label(_) | Grouping::Blocker
            ),
        quantile: 0.0,
    };
    let mut alike = Alike::new([before.projection, after.projection], settings.roll_up);
    let mut builder = Builder {
        diff: &mut diff,
        alike: &mut alike,
        groups: HashMap::new(),
        nodes: FxHashMap::default(),
    };
    // Rows take their names from the profile after.
    builder.add(Which::After, after.projection, &settings.grouping);
    builder.add(Which::Before, before.projection, &settings.grouping);
    diff.groups.sort_by(|a, b| a.name.cmp(&b.name));
    let named = |name: Arc<str>| diff.groups.binary_search_by(|group| group.name.cmp(&name));
    let of = |name| named(name).map_or(NONE, |at| at as u32);
    let names = after.projection.groups.iter();
    let names = names.map(|group| group_name(&group.name, &settings.grouping));
    diff.groups_after = names.map(of).collect();
    diff.functions.sort_by(|a, b| by_name(&a.location, &b.location));
    diff.quantile = quantile(diff.functions.len());
    diff
}

struct Builder<'a> {
    diff: &'a mut Diff,
    alike: &'a mut Alike,
    groups: HashMap<Arc<str>, u32>,
    /// (caller, or the group counted down from the top, row) -> node.
    nodes: FxHashMap<(u32, u32), u32>,
}

impl Builder<'_> {
    fn add(&mut self, which: Which, projection: &Projection, grouping: &Grouping) {
        let metric = self.diff.metric;
        let sums = |totals: &Totals| Sums::of(totals, metric);
        for group in &projection.groups {
            let at = self.group(group_name(&group.name, grouping));
            let known = &mut self.diff.groups[at as usize];
            *known.threads.side(which) += group.threads.len();
            known.total.side(which).add(&sums(&group.total));
            known.own.side(which).add(&sums(&group.own));
            let mut todo: Vec<(u32, u32)> =
                projection.roots(group).map(|root| (root, NONE)).collect();
            while let Some((node, caller)) = todo.pop() {
                let place = self.node(projection, node, caller, at);
                if which == Which::After {
                    self.diff.nodes_after[node as usize] = place;
                }
                let projected = projection.node(node, metric);
                let known = &mut self.diff.nodes[place as usize];
                known.total.side(which).add(&sums(&projected.total));
                known.own.side(which).add(&sums(&projected.own));
                todo.extend(projection.children(node).map(|child| (child, place)));
            }
        }
        let mut functions: FxHashMap<u32, usize> = FxHashMap::default();
        for (at, function) in self.diff.functions.iter().enumerate() {
            functions.insert(self.alike.row(&function.location), at);
        }
        for method in projection.methods() {
            let location = method.location(metric);
            let functions_known = &mut self.diff.functions;
            let at = *functions.entry(self.alike.row(location)).or_insert_with(|| {
                let (total, own) = Default::default();
                functions_known.push(FunctionDiff { location: location.clone(), total, own });
                functions_known.len() - 1
            });
            let known = &mut functions_known[at];
            known.total.side(which).add(&method.total);
            known.own.side(which).add(&method.own);
        }
    }

    fn group(&mut self, name: Arc<str>) -> u32 {
        let groups = &mut self.diff.groups;
        *self.groups.entry(name).or_insert_with_key(|name| {
            let (threads, total, own) = Default::default();
            groups.push(GroupDiff { name: name.clone(), threads, total, own, first_root: NONE });
            groups.len() as u32 - 1
        })
    }

    fn node(&mut self, projection: &Projection, node: u32, caller: u32, group: u32) -> u32 {
        let row = self.alike.row(projection.name(node));
        let Diff { nodes, groups, metric, .. } = &mut *self.diff;
        let place = if caller == NONE { NONE - 1 - group } else { caller };
        *self.nodes.entry((place, row)).or_insert_with(|| {
            let new = nodes.len() as u32;
            let first = match caller {
                NONE => &mut groups[group as usize].first_root,
                caller => &mut nodes[caller as usize].first_child,
            };
            let next = std::mem::replace(first, new);
            let location = projection.location(node, *metric).clone();
            let (total, own) = Default::default();
            nodes.push(NodeDiff {
                location,
                total,
                own,
                is_entry: projection.is_entry(node),
                parent: caller,
                first_child: NONE,
                next,
            });
            new
        })
    }
}

fn whole(side: &Side<'_>, metric: Metric) -> Whole {
    let projection = side.projection;
    let parts = projection.hidden.parts().into_iter().chain([&projection.total]);
    let sampled = Sampled::of(parts, metric, side.resolution);
    Whole { elapsed: projection.elapsed(), total: projection.total, sampled }
}

/// Compares by name, independent of the direction of the diff.
fn by_name(a: &Location, b: &Location) -> std::cmp::Ordering {
    (&a.function, a.kind, &a.module, a.line).cmp(&(&b.function, b.kind, &b.module, b.line))
}

impl Diff {
    /// Returns the change of a row, a node or a function.
    pub fn change(&self, row: &Pair<Sums>) -> Change {
        let Whole { sampled: before, .. } = self.whole.before;
        let Whole { sampled: after, .. } = self.whole.after;
        let before = reach(&row.before, &row.after, &before, self.quantile);
        let after = reach(&row.after, &row.before, &after, self.quantile);
        self.between(&row.map(|sums| sums.value_ns), before, after)
    }

    /// Returns the change of a row with the bounds of one that has no sampling error. Costs less
    /// than [`Diff::change`].
    pub fn unbounded(&self, row: &Pair<Sums>) -> Change {
        self.measured(&row.map(|sums| sums.value_ns))
    }

    /// Returns the sums of a function, for [`Diff::change`].
    pub fn sums(&self, totals: &Pair<Totals>) -> Pair<Sums> {
        totals.map(|totals| Sums::of(totals, self.metric))
    }

    /// Returns the change of a sum without sampling error.
    pub fn measured(&self, ns: &Pair<u64>) -> Change {
        self.between(ns, (0.0, 0.0), (0.0, 0.0))
    }

    /// Returns the change of wall time in one state; as a share it refers to all wall time.
    pub fn change_of_state(&self, ns: &Pair<u64>) -> Change {
        let scale = self.whole.map(|whole| self.scale_of(whole, Metric::Wall));
        between(ns, &scale, (0.0, 0.0), (0.0, 0.0))
    }

    /// Returns the change of a group's total.
    pub fn change_of_group(&self, group: &GroupDiff) -> Change {
        match self.groups_are_measured {
            true => self.measured(&group.total.map(|sums| sums.value_ns)),
            false => self.change(&group.total),
        }
    }

    pub fn change_of(&self, totals: &Pair<Totals>) -> Change {
        self.change(&self.sums(totals))
    }

    fn between(&self, ns: &Pair<u64>, before: (f64, f64), after: (f64, f64)) -> Change {
        between(ns, &self.whole.map(|whole| self.scale_of(whole, self.metric)), before, after)
    }

    /// Returns one ns of the metric in [`Per::unit`]s.
    fn scale_of(&self, whole: &Whole, metric: Metric) -> f64 {
        let over = |what: f64, by: u64| if by == 0 { 0.0 } else { what / by as f64 };
        match self.per {
            Per::Run => 1e-6,
            Per::Second => over(1e3, whole.elapsed),
            Per::Share => over(100.0, whole.total.value(metric)),
        }
    }

    /// Returns the state whose time under a row changed the most, if any did.
    pub fn state(&self, row: &Pair<Totals>) -> Option<State> {
        let ns = |state: State| row.map(|totals| totals.states_ns[state as usize]);
        let change = |state: State| self.change_of_state(&ns(state)).change.abs();
        let most = State::ALL
            .into_iter()
            .reduce(|best, next| if change(next) > change(best) { next } else { best });
        most.filter(|state| change(*state) > 0.0)
    }

    /// Returns the number of rows compared: the bounds of all of them hold together with 95 %.
    pub fn compared(&self) -> usize {
        self.functions.len()
    }

    /// Returns a group's outermost frames, the largest change first.
    pub fn roots(&self, group: &GroupDiff) -> Vec<u32> {
        self.listed(group.first_root)
    }

    /// Returns a node's callees, the largest change first.
    pub fn children(&self, node: u32) -> Vec<u32> {
        self.listed(self.nodes[node as usize].first_child)
    }

    /// Returns a group's outermost frames, in any order.
    pub fn roots_of(&self, group: u32) -> impl Iterator<Item = u32> {
        self.siblings(self.groups[group as usize].first_root)
    }

    /// Returns a node's callees, in any order.
    pub fn callees_of(&self, node: u32) -> impl Iterator<Item = u32> {
        self.siblings(self.nodes[node as usize].first_child)
    }

    /// Returns the caller; `None` for a group's root.
    pub fn caller_of(&self, node: u32) -> Option<u32> {
        Some(self.nodes[node as usize].parent).filter(|caller| *caller != NONE)
    }

    /// Returns the group that a group of the projection after is part of: groups of one name are
    /// one here.
    pub fn group_of(&self, group_after: u32) -> Option<u32> {
        self.groups_after.get(group_after as usize).copied().filter(|group| *group != NONE)
    }

    /// Returns the node that a node of the projection after is part of.
    pub fn node_of(&self, node_after: u32) -> Option<u32> {
        self.nodes_after.get(node_after as usize).copied().filter(|node| *node != NONE)
    }

    fn siblings(&self, first: u32) -> impl Iterator<Item = u32> {
        let there = |node: u32| Some(node).filter(|node| *node != NONE);
        std::iter::successors(there(first), move |node| there(self.nodes[*node as usize].next))
    }

    fn listed(&self, first: u32) -> Vec<u32> {
        let difference = |node: u32| self.unbounded(&self.nodes[node as usize].total).change.abs();
        let mut nodes: Vec<(f64, u32)> =
            self.siblings(first).map(|node| (difference(node), node)).collect();
        let location = |node: u32| &self.nodes[node as usize].location;
        nodes.sort_by(|a, b| {
            b.0.total_cmp(&a.0).then_with(|| by_name(location(a.1), location(b.1)))
        });
        nodes.into_iter().map(|(_, node)| node).collect()
    }

    /// Returns indexes into [`Diff::groups`], the largest change first.
    pub fn ordered_groups(&self) -> Vec<usize> {
        let size = |at: &usize| self.change_of_group(&self.groups[*at]).change.abs();
        let mut order: Vec<usize> = (0..self.groups.len()).collect();
        order.sort_by(|a, b| size(b).total_cmp(&size(a)));
        order
    }

    /// Returns indexes into [`Diff::functions`], the largest change of self time first.
    pub fn ordered_functions(&self) -> Vec<usize> {
        let changes: Vec<f64> =
            self.functions.iter().map(|f| self.change_of(&f.own).change.abs()).collect();
        let mut order: Vec<usize> = (0..self.functions.len()).collect();
        order.sort_by(|a, b| changes[*b].total_cmp(&changes[*a]));
        order
    }

    /// Returns which nodes are worth drawing: those whose change exceeds the sampling error and is
    /// at least `least` units, and their callers.
    pub fn worth_drawing(&self, least: f64) -> Vec<bool> {
        self.with_callers(|row| {
            self.unbounded(row).change.abs() >= least && self.change(row).is_resolved()
        })
    }

    /// Returns which nodes change by at least `least` units, by chance or not, and their callers.
    pub fn differing(&self, least: f64) -> Vec<bool> {
        self.with_callers(|row| self.unbounded(row).change.abs() >= least)
    }

    fn with_callers(&self, is_meant: impl Fn(&Pair<Sums>) -> bool) -> Vec<bool> {
        let mut meant: Vec<bool> = self.nodes.iter().map(|node| is_meant(&node.total)).collect();
        // Callers precede their callees.
        for node in (0..self.nodes.len()).rev() {
            let caller = self.nodes[node].parent;
            if meant[node] && caller != NONE {
                meant[caller as usize] = true;
            }
        }
        meant
    }

    /// Returns the nodes from `node` down whose change is, within 5 %, that of their only drawn
    /// child, and the node that ends this chain. No chain continues from the name of threads within
    /// a group.
    pub fn chain(&self, node: u32, drawn: &[bool]) -> Vec<u32> {
        let mut chain = vec![node];
        let mut last = node;
        let change = |node: u32| self.change(&self.nodes[node as usize].total).change;
        while self.nodes[last as usize].location.kind != FrameKind::Thread {
            let mut children =
                self.children(last).into_iter().filter(|child| drawn[*child as usize]);
            let (Some(only), None) = (children.next(), children.next()) else { break };
            if (change(only) - change(last)).abs() > change(last).abs() * 0.05 {
                break;
            }
            chain.push(only);
            last = only;
        }
        chain
    }
}
