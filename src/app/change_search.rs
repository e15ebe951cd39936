//! Search in the tree of changes: finds lines whether they are open or closed, in the order in
//! which they would be drawn, and opens the way to them.

use super::change_rows::{ChangeRow, Shape, line};
use super::row_path::{Expanded, Path};
use super::rows::What;

/// Lines that match.
pub struct Found {
    /// Each with its place among all lines, in order.
    pub lines: Vec<(usize, ChangeRow)>,
    /// The place of the cursor.
    pub here: usize,
}

/// Goes through the lines with matches and the cursor's, as if all were open.
struct Search<'a> {
    shape: &'a Shape<'a>,
    /// By node: it is a line that matches; of a call that is folded into a line, that line.
    matches: Vec<bool>,
    /// By node: a line that matches, or the cursor's, or a caller of one.
    on_the_way: Vec<bool>,
    cursor: Option<ChangeRow>,
    group: u32,
    place: usize,
    found: Found,
}

impl Shape<'_> {
    /// Returns the lines of groups and calls whose names match. `cursor`: the line under it.
    pub fn find(&self, is_match: impl Fn(&str) -> bool, cursor: Option<ChangeRow>) -> Found {
        let nodes = &self.diff.nodes;
        let mut matches = vec![false; nodes.len()];
        for (node, at) in nodes.iter().zip(0..) {
            if is_match(&node.location.function) {
                matches[self.line_of(at) as usize] = true;
            }
        }
        let mut on_the_way = matches.clone();
        if let Some(What::Node(node) | What::Small(Some(node))) = cursor.map(|row| row.what) {
            on_the_way[node as usize] = true;
        }
        // Callers precede their callees.
        for node in (0..nodes.len() as u32).rev() {
            if let (true, Some(caller)) = (on_the_way[node as usize], self.diff.caller_of(node)) {
                on_the_way[caller as usize] = true;
            }
        }
        let found = Found { lines: Vec::new(), here: 0 };
        let (group, place) = (0, 0);
        let mut search = Search { shape: self, matches, on_the_way, cursor, group, place, found };
        let (large, small) = self.ordered_groups();
        large.into_iter().for_each(|group| search.visit_group(group, &is_match));
        if !small.is_empty() {
            search.pass(What::SmallGroups);
            small.into_iter().for_each(|group| search.visit_group(group, &is_match));
        }
        search.found
    }

    /// Returns the call on whose line a call is drawn.
    pub(super) fn line_of(&self, node: u32) -> u32 {
        std::iter::successors(Some(node), |node| self.link(*node)).last().unwrap_or(node)
    }

    /// Finds the group, and the nodes of this path as far as they exist.
    fn nodes(&self, path: &Path) -> Option<(u32, Vec<u32>)> {
        let groups = 0..self.diff.groups.len() as u32;
        let group_path = Path { frames: Vec::new(), small: false, group: path.group.clone() };
        let is_it = |group: &u32| self.is(&group_path, &line(What::Group(*group), *group));
        let group = groups.into_iter().find(is_it)?;
        let mut nodes: Vec<u32> = Vec::with_capacity(path.frames.len());
        for key in &path.frames {
            let is_it = |node: &u32| {
                key.is(&self.diff.nodes[*node as usize].location, self.settings.roll_up)
            };
            let found = match nodes.last() {
                Some(caller) => self.diff.callees_of(*caller).find(is_it),
                None => self.diff.roots_of(group).find(is_it),
            };
            let Some(node) = found else { break };
            nodes.push(node);
        }
        Some((group, nodes))
    }

    /// Opens all lines above a path, and the line of small rows that hides it. Returns the lines
    /// that may stand for it, the best one first; empty if its group does not exist.
    pub fn reveal(&self, path: &Path, expanded: &mut Expanded) -> Vec<What> {
        let Some((group, nodes)) = self.nodes(path) else { return Vec::new() };
        let what = |node: Option<u32>| node.map_or(What::Group(group), What::Node);
        let path_of = |node: Option<u32>| self.path(&line(what(node), group));
        if let Some((_, above)) = nodes.split_last() {
            expanded.open(&path_of(above.last().copied()));
        }
        if self.is_small(&self.diff.groups[group as usize].total) {
            expanded.small_groups = true;
        } else {
            // What is small below a folded call hangs on the line above.
            let mut above = None;
            for node in &nodes {
                if self.is_small(self.total(*node)) {
                    expanded.open(&path_of(above).small());
                    break;
                }
                if self.link(*node).is_none() {
                    above = Some(*node);
                }
            }
        }
        let lines = nodes.iter().rev().map(|node| What::Node(self.line_of(*node)));
        lines.chain([What::Group(group)]).collect()
    }
}

impl Search<'_> {
    /// Counts a line that is not searched for.
    fn pass(&mut self, what: What) {
        // The line of small rows below a group says not which.
        let is_here = |cursor: &ChangeRow| {
            cursor.what == what && cursor.group.is_none_or(|group| group == self.group)
        };
        if self.cursor.as_ref().is_some_and(is_here) {
            self.found.here = self.place;
        }
        self.place += 1;
    }

    fn visit(&mut self, what: What, matches: bool) {
        if matches {
            self.found.lines.push((self.place, line(what, self.group)));
        }
        self.pass(what);
    }

    fn visit_group(&mut self, group: u32, is_match: &impl Fn(&str) -> bool) {
        self.group = group;
        let of = &self.shape.diff.groups[group as usize];
        self.visit(What::Group(group), is_match(&of.name));
        let sums_up = !self.shape.is_small(&of.total);
        self.visit_below(None, sums_up);
    }

    /// Visits the lines below a call, or below the group. `sums_up`: small ones stand behind a line
    /// of their own.
    fn visit_below(&mut self, node: Option<u32>, sums_up: bool) {
        let shape = self.shape;
        let is_wanted = |node: u32| self.on_the_way[node as usize];
        let drawn = match node {
            Some(node) => shape.drawn(shape.diff.callees_of(node), None, &is_wanted),
            None => shape.drawn(shape.diff.roots_of(self.group), None, &is_wanted),
        };
        let nodes = drawn.into_iter().map(|drawn| drawn.node);
        let (small, large): (Vec<u32>, Vec<u32>) =
            nodes.partition(|node| sums_up && shape.is_small(shape.total(*node)));
        large.into_iter().for_each(|node| self.visit_node(node));
        self.pass(What::Small(node));
        small.into_iter().for_each(|node| self.visit_node(node));
    }

    fn visit_node(&mut self, node: u32) {
        self.visit(What::Node(node), self.matches[node as usize]);
        let sums_up = !self.shape.is_small(self.shape.total(node));
        self.visit_below(Some(node), sums_up);
    }
}
