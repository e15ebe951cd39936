//! The rows of a comparison: those of the tree that are open, and the functions, in order.

use std::cmp::Ordering;
use std::sync::Arc;

use super::change_columns::ChangeColumn::{
    self, Before, Change, Module, Name, Now, SelfChange, SelfNow,
};
use super::row_path::{Branch, Expanded, GroupKey, Path, RowKey};
use super::rows::{Fold, What};
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::Label;
use crate::model::projection::settings::{Level, Settings};
use crate::model::transform::diff::{self, Diff, Pair, Sums};

/// Rows below this share on both sides are summed up in one line, percent; and rows whose
/// difference is smaller do not open by themselves, percentage points.
pub const SMALL: f64 = 0.5;

/// A line of the tree of changes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ChangeRow {
    /// By index into [`Diff::groups`] and [`Diff::nodes`].
    pub what: What,
    /// Index into [`Diff::groups`]; `None` for the line of small groups.
    pub group: Option<u32>,
    /// Levels of indentation: forks above it.
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
    pub total: Pair<Sums>,
    pub own: Pair<Sums>,
}

/// Returns the change of a row's total; that of a group is measured where filters allow it.
pub fn change_of(diff: &Diff, row: &ChangeRow) -> diff::Change {
    match row.what {
        What::Group(group) => diff.change_of_group(&diff.groups[group as usize]),
        _ => diff.change(&row.total),
    }
}

/// Returns the name of a line of the tree that is a call, with those folded into the line.
pub fn label<'a>(diff: &'a Diff, node: u32, swallowed: u16) -> Label<'a> {
    let location = |node: u32| -> &'a Location { &diff.nodes[node as usize].location };
    let callers = std::iter::successors(diff.caller_of(node), |caller| diff.caller_of(*caller));
    let mut outer: Vec<&Location> = callers.take(swallowed.into()).map(location).collect();
    outer.reverse();
    let is_entry = diff.nodes[node as usize].is_entry;
    Label { outer, is_entry, ..Label::of_function(location(node)) }
}

/// Returns the call of a line of the tree; `None` of a group, and of small rows.
pub fn location(diff: &Diff, what: What) -> Option<&Arc<Location>> {
    match what {
        What::Node(node) => Some(&diff.nodes[node as usize].location),
        What::Group(_) | What::Small(_) | What::SmallGroups => None,
    }
}

/// A comparison, and how its rows are read.
pub struct Shape<'a> {
    pub diff: &'a Diff,
    pub settings: &'a Settings,
    pub sort: ChangeColumn,
    pub reverse: bool,
}

pub(super) struct Drawn<'b> {
    pub(super) node: u32,
    branch: Option<&'b Branch>,
    swallowed: u16,
}

impl Shape<'_> {
    /// Returns the path of a row, by names.
    pub fn path(&self, row: &ChangeRow) -> Path {
        let Some(group) = row.group else { return Path::of_small_groups() };
        let name = self.diff.groups[group as usize].name.clone();
        let path = |node: Option<u32>| {
            let up = std::iter::successors(node, |node| self.diff.caller_of(*node));
            let key = |node: u32| {
                RowKey::of(&self.diff.nodes[node as usize].location, self.settings.roll_up)
            };
            let mut frames: Vec<RowKey> = up.map(key).collect();
            frames.reverse();
            Path { group: Some(GroupKey::named(name.clone())), frames, small: false }
        };
        match row.what {
            What::Group(_) => path(None),
            What::Node(node) => path(Some(node)),
            What::Small(node) => path(node).small(),
            What::SmallGroups => Path::of_small_groups(),
        }
    }

    /// Returns whether a row has this path. Costs less than building its path.
    pub fn is(&self, path: &Path, row: &ChangeRow) -> bool {
        let (node, small) = match row.what {
            What::Group(_) => (None, false),
            What::Node(node) => (Some(node), false),
            What::Small(node) => (node, true),
            What::SmallGroups => return *path == Path::of_small_groups(),
        };
        let (Some(key), Some(group)) = (&path.group, row.group) else { return false };
        let mut at = node;
        for frame in path.frames.iter().rev() {
            let Some(node) = at else { return false };
            if !frame.is(&self.diff.nodes[node as usize].location, self.settings.roll_up) {
                return false;
            }
            at = self.diff.caller_of(node);
        }
        at.is_none()
            && path.small == small
            && *key == GroupKey::named(self.diff.groups[group as usize].name.clone())
    }

    /// Returns false where neither side has time, or both have less than the user wants to see.
    fn is_shown(&self, row: &Pair<Sums>) -> bool {
        let least = self.settings.filters.min_percent.active().copied().unwrap_or(0.0);
        let change = self.diff.unbounded(row);
        row.before.value_ns + row.after.value_ns > 0 && change.before.max(change.after) >= least
    }

    pub(super) fn is_small(&self, row: &Pair<Sums>) -> bool {
        let change = self.diff.unbounded(row);
        self.is_short() && change.before < SMALL && change.after < SMALL
    }

    /// Returns whether chains share a line and small rows are summed up.
    fn is_short(&self) -> bool {
        self.settings.level != Level::All
    }

    pub(super) fn total(&self, node: u32) -> &Pair<Sums> {
        &self.diff.nodes[node as usize].total
    }

    /// Returns a row's figure in the column that rows are sorted by.
    fn size(&self, total: &Pair<Sums>, own: &Pair<Sums>) -> f64 {
        match self.sort {
            Now => self.diff.unbounded(total).after,
            Change => self.diff.unbounded(total).change.abs(),
            Before => self.diff.unbounded(total).before,
            SelfNow => self.diff.unbounded(own).after,
            SelfChange => self.diff.unbounded(own).change.abs(),
            Name | Module => 0.0,
        }
    }

    /// Sorts rows, each with its figure in the column; the largest first, names in their order.
    fn sorted<T>(
        &self,
        mut rows: Vec<(f64, T)>,
        by_name: impl Fn(&T, &T) -> Ordering,
    ) -> impl Iterator<Item = T> {
        rows.sort_by(|(size_a, a), (size_b, b)| {
            let order = match self.sort {
                Name => by_name(a, b),
                _ => size_b.total_cmp(size_a),
            };
            let order = if self.reverse { order.reverse() } else { order };
            order.then_with(|| by_name(a, b))
        });
        rows.into_iter().map(|(_, row)| row)
    }

    fn by_location(&self, a: &Location, b: &Location) -> Ordering {
        let by_module = match (self.sort, self.reverse) {
            (Module, false) => a.module.cmp(&b.module),
            (Module, true) => b.module.cmp(&a.module),
            _ => Ordering::Equal,
        };
        by_module
            .then_with(|| a.function.cmp(&b.function))
            .then_with(|| a.module.cmp(&b.module))
            .then_with(|| (a.line, a.kind).cmp(&(b.line, b.kind)))
    }

    pub fn functions(&self) -> Vec<u32> {
        let functions = &self.diff.functions;
        let sums = |at: u32| {
            let function = &functions[at as usize];
            (self.diff.sums(&function.total), self.diff.sums(&function.own))
        };
        let all = (0..functions.len() as u32).map(|at| (at, sums(at)));
        let shown = all.filter(|(_, (total, _))| self.is_shown(total));
        let rows = shown.map(|(at, (total, own))| (self.size(&total, &own), at)).collect();
        let location = |at: u32| &functions[at as usize].location;
        self.sorted(rows, |a, b| self.by_location(location(*a), location(*b))).collect()
    }

    /// Returns all visible rows.
    pub fn rows(&self, expanded: &Expanded) -> Vec<ChangeRow> {
        let groups = &self.diff.groups;
        let (large, small) = self.ordered_groups();
        let mut rows = Vec::new();
        for at in large {
            self.push_group(at, None, expanded, &mut rows);
        }
        if small.is_empty() {
            return rows;
        }
        let me = rows.len() as u32;
        let fold = if expanded.small_groups { Fold::Open } else { Fold::Closed };
        let total = sum(small.iter().map(|at| &groups[*at as usize].total));
        let count = small.len() as u32;
        rows.push(ChangeRow {
            group: None,
            small: count,
            fold,
            ..row(What::SmallGroups, 0, total, Pair::default())
        });
        if fold == Fold::Open {
            for at in small {
                self.push_group(at, Some(me), expanded, &mut rows);
            }
        }
        rows
    }

    /// Returns the large groups, then the small ones, each in order.
    pub(super) fn ordered_groups(&self) -> (Vec<u32>, Vec<u32>) {
        let groups = &self.diff.groups;
        let shown = (0..).zip(groups).filter(|(_, group)| self.is_shown(&group.total));
        let order = shown.map(|(at, group)| (self.size(&group.total, &group.own), at)).collect();
        let name = |at: u32| &groups[at as usize].name;
        let order = self.sorted(order, |a, b| name(*a).cmp(name(*b)));
        order.partition(|at: &u32| !self.is_small(&groups[*at as usize].total))
    }

    fn push_group(
        &self,
        at: u32,
        parent: Option<u32>,
        expanded: &Expanded,
        rows: &mut Vec<ChangeRow>,
    ) {
        let group = &self.diff.groups[at as usize];
        let branch = expanded.group(&GroupKey::named(group.name.clone()));
        let fold = self.fold(self.diff.roots_of(at), branch);
        let me = rows.len() as u32;
        rows.push(ChangeRow { fold, parent, ..row(What::Group(at), at, group.total, group.own) });
        if fold == Fold::Open {
            let below = self.drawn(self.diff.roots_of(at), branch, &|_| true);
            self.push(below, branch, me, (1, false), (None, at), &group.total, rows);
        }
    }

    /// Adds the lines below the row `parent`, which is of `node` in `group` and has the time
    /// `whole`.
    #[expect(clippy::too_many_arguments, reason = "the place of the lines has these parts")]
    fn push(
        &self,
        drawn: Vec<Drawn<'_>>,
        branch: Option<&Branch>,
        parent: u32,
        (depth, chained): (u16, bool),
        (node, group): (Option<u32>, u32),
        whole: &Pair<Sums>,
        rows: &mut Vec<ChangeRow>,
    ) {
        // Below a small row everything is small.
        let sums_up = !self.is_small(whole);
        let is_small = |drawn: &Drawn<'_>| sums_up && self.is_small(self.total(drawn.node));
        let (small, large): (Vec<_>, Vec<_>) = drawn.into_iter().partition(is_small);
        for drawn in large {
            self.push_node(&drawn, (parent, depth, chained), group, rows);
        }
        if small.is_empty() {
            return;
        }
        let is_open = branch.is_some_and(|branch| branch.small_open);
        let total = sum(small.iter().map(|drawn| self.total(drawn.node)));
        let me = rows.len() as u32;
        rows.push(ChangeRow {
            depth,
            chained,
            fold: if is_open { Fold::Open } else { Fold::Closed },
            parent: Some(parent),
            small: small.len() as u32,
            ..row(What::Small(node), group, total, Pair::default())
        });
        if is_open {
            for drawn in small {
                self.push_node(&drawn, (me, depth, false), group, rows);
            }
        }
    }

    fn push_node(
        &self,
        drawn: &Drawn<'_>,
        (parent, depth, chained): (u32, u16, bool),
        group: u32,
        rows: &mut Vec<ChangeRow>,
    ) {
        let node = &self.diff.nodes[drawn.node as usize];
        let fold = self.fold(self.diff.callees_of(drawn.node), drawn.branch);
        let me = rows.len() as u32;
        rows.push(ChangeRow {
            depth,
            chained,
            swallowed: drawn.swallowed,
            fold,
            parent: Some(parent),
            ..row(What::Node(drawn.node), group, node.total, node.own)
        });
        if fold == Fold::Open {
            let below = self.drawn(self.diff.callees_of(drawn.node), drawn.branch, &|_| true);
            let large = below.iter().filter(|below| !self.is_small(self.total(below.node)));
            let lines = large.count();
            let fork = lines + usize::from(lines < below.len()) > 1;
            let at = (depth.saturating_add(u16::from(fork)), !fork);
            let of = (Some(drawn.node), group);
            self.push(below, drawn.branch, me, at, of, &node.total, rows);
        }
    }

    /// Returns whether the row is expandable and expanded.
    fn fold(&self, mut below: impl Iterator<Item = u32>, branch: Option<&Branch>) -> Fold {
        let has_rows = below.any(|node| self.is_shown(self.total(node)));
        match (has_rows, branch.is_some_and(|branch| branch.open)) {
            (false, _) => Fold::Leaf,
            (true, true) => Fold::Open,
            (true, false) => Fold::Closed,
        }
    }

    /// Returns what stands for `nodes`, in order. A folded call is replaced by the callee that has
    /// its time on both sides; what else it calls is small. `is_wanted`: of callers too.
    pub(super) fn drawn<'b>(
        &self,
        nodes: impl Iterator<Item = u32>,
        branch: Option<&'b Branch>,
        is_wanted: &dyn Fn(u32) -> bool,
    ) -> Vec<Drawn<'b>> {
        let below = |branch: Option<&'b Branch>, node: u32| {
            let location = &self.diff.nodes[node as usize].location;
            branch.and_then(|branch| branch.below(location, self.settings.roll_up))
        };
        let mut drawn = Vec::new();
        let is_wanted = |node: u32| is_wanted(node) && self.is_shown(self.total(node));
        for mut node in nodes.filter(|node| is_wanted(*node)) {
            let (mut branch, mut swallowed) = (below(branch, node), 0u16);
            while let Some(callee) = self.link(node) {
                swallowed = swallowed.saturating_add(1);
                for other in self.diff.callees_of(node) {
                    if other != callee && is_wanted(other) {
                        drawn.push(Drawn { node: other, branch: below(branch, other), swallowed });
                    }
                }
                (node, branch) = (callee, below(branch, callee));
            }
            if is_wanted(node) {
                drawn.push(Drawn { node, branch, swallowed });
            }
        }
        let of = |drawn: &Drawn<'_>| &self.diff.nodes[drawn.node as usize];
        let size = |drawn: &Drawn<'_>| self.size(&of(drawn).total, &of(drawn).own);
        let drawn = drawn.into_iter().map(|drawn| (size(&drawn), drawn)).collect();
        let by_name =
            |a: &Drawn<'_>, b: &Drawn<'_>| self.by_location(&of(a).location, &of(b).location);
        self.sorted(drawn, by_name).collect()
    }

    /// Returns the callee on whose line the call is drawn.
    pub(super) fn link(&self, node: u32) -> Option<u32> {
        let of = |node: u32| &self.diff.nodes[node as usize];
        let is_kept = matches!(of(node).location.kind, FrameKind::Marker | FrameKind::Thread);
        if !self.is_short() || is_kept {
            return None;
        }
        let whole = self.diff.unbounded(&of(node).total);
        self.diff.callees_of(node).find(|callee| {
            let part = self.diff.unbounded(&of(*callee).total);
            let is_all =
                |whole: f64, part: f64| whole - part < SMALL && (part > 0.0 || whole == 0.0);
            !of(*callee).is_entry
                && !self.is_small(&of(*callee).total)
                && is_all(whole.before, part.before)
                && is_all(whole.after, part.after)
        })
    }
}

/// Returns a line without figures.
pub(super) fn line(what: What, group: u32) -> ChangeRow {
    row(what, group, Pair::default(), Pair::default())
}

fn row(what: What, group: u32, total: Pair<Sums>, own: Pair<Sums>) -> ChangeRow {
    ChangeRow {
        what,
        group: Some(group),
        depth: 0,
        chained: false,
        swallowed: 0,
        fold: Fold::Leaf,
        parent: None,
        small: 0,
        total,
        own,
    }
}

fn sum<'a>(rows: impl Iterator<Item = &'a Pair<Sums>>) -> Pair<Sums> {
    let mut sum = Pair::<Sums>::default();
    for row in rows {
        sum.before.add(&row.before);
        sum.after.add(&row.after);
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::projection::test_projections;
    use crate::model::projection::{Projection, Totals};
    use crate::model::transform::diff::{Per, Side};
    use crate::model::vocabulary::state::State;

    /// Group, frames, ms.
    type Stack = (u8, Vec<u8>, u64);

    fn stacks() -> impl Strategy<Value = Vec<Stack>> {
        let frames = prop::collection::vec(0u8..4, 1..5);
        prop::collection::vec((0u8..3, frames, prop_oneof![0u64..3, 0u64..900]), 0..20)
    }

    fn profile(stacks: &[Stack]) -> Projection {
        let stacks: Vec<_> = (stacks.iter())
            .map(|(group, frames, ms)| {
                let frame = |n: &u8| Location::named(&format!("f{n}"), FrameKind::Native);
                let mut totals =
                    Totals { wall_ns: ms * 1_000_000, hits: ms / 10, ..Totals::default() };
                totals.states_ns[State::Run as usize] = totals.wall_ns;
                (format!("group {group}"), frames.iter().map(frame).collect(), totals)
            })
            .collect();
        test_projections::projection(&stacks)
    }

    fn compared(before: &[Stack], after: &[Stack], settings: &Settings) -> Diff {
        let [before, after] = [before, after].map(profile);
        let side = |projection| Side { projection, resolution: 10_000_000 };
        diff::diff(side(&before), side(&after), settings, Per::Share)
    }

    /// All rows, with every row open.
    fn open(shape: &Shape<'_>) -> Vec<ChangeRow> {
        let mut expanded = Expanded::default();
        loop {
            let rows = shape.rows(&expanded);
            let Some(closed) = rows.iter().find(|row| row.fold == Fold::Closed) else {
                return rows;
            };
            expanded.open(&shape.path(closed));
        }
    }

    fn ns(row: &Pair<Sums>) -> (u64, u64) {
        (row.before.value_ns, row.after.value_ns)
    }

    fn add((a, b): (u64, u64), (c, d): (u64, u64)) -> (u64, u64) {
        (a + c, b + d)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        /// What the lines below a row show is all of its time but its own, on both sides.
        #[test]
        fn lines_sum_to_the_row_above(
            before in stacks(),
            after in stacks(),
            level in prop::sample::select(&Level::ALL[..]),
            sort in prop::sample::select(&[Change, Now, Before, SelfChange, SelfNow, Name, Module][..]),
            reverse: bool,
        ) {
            let settings = Settings { level, ..Settings::default() };
            let diff = compared(&before, &after, &settings);
            let shape = Shape { diff: &diff, settings: &settings, sort, reverse };
            let rows = open(&shape);
            let below = |parent: Option<u32>| {
                rows.iter().filter(|row| row.parent == parent).map(|row| ns(&row.total)).fold((0, 0), add)
            };
            let whole = diff.whole.map(|whole| whole.total.value(diff.metric));
            prop_assert_eq!(below(None), (whole.before, whole.after));
            for (at, row) in (0..).zip(&rows).filter(|(_, row)| row.fold == Fold::Open) {
                let (before, after) = add(below(Some(at)), ns(&row.own));
                let (all_before, all_after) = ns(&row.total);
                prop_assert!(before <= all_before && after <= all_after);
                // A call that is folded into a line below may have some time of its own.
                let folded = if level == Level::All { 0 } else { 10 };
                prop_assert!(all_before - before <= whole.before * folded / 100);
                prop_assert!(all_after - after <= whole.after * folded / 100);
            }
            // No two rows have one path, so the cursor finds its row again.
            for (at, row) in rows.iter().enumerate() {
                let path = shape.path(row);
                let same = rows.iter().position(|other| shape.is(&path, other));
                prop_assert_eq!(same, Some(at));
            }
        }

        /// A profile does not differ from itself in any line, and the other way round each line
        /// has the other sign.
        #[test]
        fn signs_are_of_the_direction(before in stacks(), after in stacks()) {
            let settings = Settings { level: Level::All, ..Settings::default() };
            let diff = compared(&before, &before, &settings);
            let shape = Shape { diff: &diff, settings: &settings, sort: Change, reverse: false };
            for row in open(&shape) {
                prop_assert_eq!(change_of(&diff, &row).change, 0.0);
            }
            let (there, back) = (compared(&before, &after, &settings), compared(&after, &before, &settings));
            let lines = |diff: &Diff, sign: f64| {
                let shape = Shape { diff, settings: &settings, sort: Name, reverse: false };
                let line = |row: &ChangeRow| {
                    let points = sign * change_of(diff, row).change;
                    (format!("{:?}", shape.path(row)), (points * 1e6).round() as i64)
                };
                open(&shape).iter().map(line).collect::<Vec<_>>()
            };
            prop_assert_eq!(lines(&there, 1.0), lines(&back, -1.0));
        }

        /// Search goes through the lines in their order, and whatever it finds is on the screen
        /// then.
        #[test]
        fn search_finds_every_line_in_its_order(
            before in stacks(),
            after in stacks(),
            level in prop::sample::select(&Level::ALL[..]),
            sort in prop::sample::select(&[Change, Before, SelfNow, Name][..]),
            function in "f[0-3]|group [0-2]|nothing",
            cursor in any::<prop::sample::Index>(),
        ) {
            let settings = Settings { level, ..Settings::default() };
            let diff = compared(&before, &after, &settings);
            let shape = Shape { diff: &diff, settings: &settings, sort, reverse: false };
            let rows = open(&shape);
            let is_named = |what: &What| matches!(what, What::Group(_) | What::Node(_));
            let lines = |rows: &[ChangeRow]| -> Vec<What> {
                rows.iter().map(|row| row.what).filter(is_named).collect()
            };
            let all = shape.find(|_| true, None);
            let found: Vec<ChangeRow> = all.lines.iter().map(|(_, row)| *row).collect();
            prop_assert_eq!(lines(&found), lines(&rows));
            if rows.is_empty() {
                return Ok(());
            }
            // The cursor is between the lines before it and those behind it.
            let cursor = cursor.index(rows.len());
            let some = shape.find(|name| name == function, Some(rows[cursor]));
            let (above, below): (Vec<_>, Vec<_>) =
                some.lines.iter().map(|(place, row)| (*place, row.what)).partition(|(place, _)| *place <= some.here);
            let at = |what: &What| rows.iter().position(|row| row.what == *what).expect("a row");
            prop_assert!(above.iter().all(|(_, what)| at(what) <= cursor), "{:?}", above);
            prop_assert!(below.iter().all(|(_, what)| at(what) > cursor), "{:?}", below);
            // A call that is folded into a line is found there.
            let is_found = |what: &What| match what {
                What::Group(group) => *diff.groups[*group as usize].name == *function,
                What::Node(line) => (0..diff.nodes.len() as u32).any(|node| {
                    *diff.nodes[node as usize].location.function == *function && shape.line_of(node) == *line
                }),
                _ => false,
            };
            let expected: Vec<What> = rows.iter().map(|row| row.what).filter(is_found).collect();
            let found: Vec<What> = some.lines.iter().map(|(_, row)| row.what).collect();
            prop_assert_eq!(found, expected);
            for (_, row) in some.lines {
                let mut expanded = Expanded::default();
                let targets = shape.reveal(&shape.path(&row), &mut expanded);
                prop_assert_eq!(targets.first(), Some(&row.what));
                prop_assert!(shape.rows(&expanded).iter().any(|other| other.what == row.what));
            }
        }
    }
}
