//! Search for names in the views: finds the rows that match, in drawing order, and opens the way to
//! them.

use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;

use super::list::{Step, beside};
use super::pane::Pane;
use super::row_path::Path;
use super::rows::is_shown;
use super::view::View;
use super::wait_words;
use crate::model::facts::tables::Location;
use crate::model::projection::{Group, Siblings, is_small};

impl View {
    /// Goes to the next (1) or previous (-1) row whose name matches and opens the rows that hide
    /// it. Returns false if there is none.
    pub fn next_match(&mut self, step: isize, height: usize) -> bool {
        let Some(search) = self.search.clone() else { return false };
        self.carried.moved = true;
        if self.pane.is_flame() {
            return self.next_matching_bar(&search, step, height);
        }
        if self.pane == Pane::Timeline {
            return self.timeline.next_match(&search, step, height);
        }
        if self.pane == Pane::ChangedTree {
            let mut has_match = false;
            self.in_changes(|changes, compared, shown| {
                has_match = changes.next_match((&search, step), compared, shown, height);
            });
            return has_match;
        }
        if self.pane != Pane::Tree {
            let (list, rows) = self.rows_of_pane();
            let found: Vec<usize> = (0..rows).filter(|at| self.is_match(*at, &search)).collect();
            let Some(at) = beside(&found, list.cursor, step) else { return false };
            self.step(Step::To(at), height);
            return true;
        }
        let (found, here) = self.matches(&search);
        let Some(at) = beside(&found.iter().map(|f| f.0).collect::<Vec<_>>(), here, step) else {
            return false;
        };
        let Some((_, path)) = found.into_iter().find(|(order, _)| *order == at) else {
            return false;
        };
        let path = path.path(self);
        if !path.frames.is_empty() {
            self.touch();
            self.open_above(&path);
        }
        self.selected = Some(path);
        self.reshape(height);
        true
    }

    /// Returns whether a row of another view than the tree matches.
    fn is_match(&self, at: usize, search: &Regex) -> bool {
        let function = |location: &Location| search.is_match(&location.function);
        match self.pane {
            Pane::Tree | Pane::ChangedTree | Pane::Flame | Pane::ChangedFlame | Pane::Timeline => {
                false
            }
            Pane::ChangedMethods => {
                self.changed_function(at).is_some_and(|location| function(location))
            }
            Pane::Methods => function(self.method_location(self.methods.rows[at])),
            Pane::Graph => {
                let row = self.graph.list.rows[at];
                let location = self.graph.location(row, &self.projection, &self.shown);
                location.is_some_and(|location| function(location))
            }
            Pane::Threads => {
                let group = self.threads.rows[at];
                has_name(&self.projection.groups[group as usize], search)
                    || self
                        .main_function(group)
                        .is_some_and(|node| function(self.node_location(node)))
            }
            Pane::Source => self.source.text(at).is_some_and(|text| search.is_match(text)),
            Pane::Waits => wait_words::is_match(self.wait_list.list.rows[at], self, search),
        }
    }

    /// Goes to the row of a node and opens the rows that hide it.
    pub(super) fn go_to(&mut self, node: u32, height: usize) {
        self.carried.moved = true;
        let Some(group) = self.projection.group_of(node) else { return };
        let path = Path::of_node(&self.projection, group, node, &self.settings);
        if self.go_to_change(&path, height) {
            return;
        }
        self.touch();
        self.open_above(&path);
        self.selected = Some(path);
        self.reshape(height);
    }

    /// Opens all rows above the path's, and the line of small rows that hides it.
    pub(super) fn open_above(&mut self, path: &Path) {
        let mut above = path.clone();
        above.frames.pop();
        self.expanded.open(&above);
        let trees = self.trees();
        let Some((group, nodes)) = path.find(trees, &self.shown) else { return };
        let ordered = self.ordered();
        let metric = self.shown.metric;
        if is_small(&ordered, trees.groups[group as usize].total.value(metric)) {
            self.expanded.small_groups = true;
            return;
        }
        let tree = self.drawing();
        // A folded call has no lines of its own: what is small below it hangs on the row above.
        let mut row_above = 0;
        for (depth, node) in nodes.iter().enumerate() {
            if is_small(&ordered, ordered.value(*node)) {
                let frames = path.frames[..row_above].to_vec();
                self.expanded.open(&Path { frames, ..path.clone() }.small());
                return;
            }
            if tree.link(*node).is_none() {
                row_above = depth + 1;
            }
        }
    }

    /// Returns all matches, each with its place in the drawing order with all rows open; and the
    /// cursor's place.
    fn matches(&self, search: &Regex) -> (Vec<(usize, Found)>, usize) {
        let selected = self.selected.as_ref().and_then(|p| {
            let (group, nodes) = p.find(self.trees(), &self.shown)?;
            Some((group, nodes.last().copied()))
        });
        let projection = self.trees();
        // Only paths to matches and to the cursor are visited in order, so nothing else has to be
        // sorted.
        let mut matches = Vec::with_capacity(projection.node_count() as usize);
        let mut known: HashMap<*const Location, bool> = HashMap::new();
        for node in 0..projection.node_count() {
            let location = projection.name(node);
            matches.push(
                *known
                    .entry(Arc::as_ptr(location))
                    .or_insert_with(|| search.is_match(&location.function)),
            );
        }
        let mut on_the_way = matches.clone();
        if let Some((_, Some(node))) = selected {
            on_the_way[node as usize] = true;
        }
        for node in (0..projection.node_count()).rev() {
            if let (true, Some(parent)) = (on_the_way[node as usize], projection.parent(node)) {
                on_the_way[parent as usize] = true;
            }
        }

        let ordered = self.ordered();
        let (mut found, mut here, mut order) = (Vec::new(), 0, 0);
        for at in ordered.groups() {
            let group = &projection.groups[at as usize];
            if !is_shown(projection, &self.shown, &group.total) {
                continue;
            }
            let mut visit = |node: Option<u32>, matches: bool| {
                if selected == Some((at, node)) {
                    here = order;
                }
                if matches {
                    found.push((order, Found { group: at, node }));
                }
                order += 1;
            };
            visit(None, has_name(group, search));
            let in_order = |nodes: Siblings<'_>| {
                let shown =
                    |node: &u32| is_shown(projection, &self.shown, &projection.total(*node));
                ordered
                    .sorted(nodes.filter(|node| on_the_way[*node as usize] && shown(node)))
                    .into_iter()
                    .rev()
            };
            let mut todo: Vec<u32> = in_order(projection.roots(group)).collect();
            while let Some(node) = todo.pop() {
                visit(Some(node), matches[node as usize]);
                todo.extend(in_order(projection.children(node)));
            }
        }
        (found, here)
    }
}

/// Returns whether the name of the group, or of one of its threads, matches.
pub(super) fn has_name(group: &Group, search: &Regex) -> bool {
    search.is_match(&group.name) || group.threads.iter().any(|of| search.is_match(&of.name))
}

struct Found {
    group: u32,
    /// `None`: the group itself.
    node: Option<u32>,
}

impl Found {
    fn path(&self, view: &View) -> Path {
        match self.node {
            None => Path::of_group(view.trees(), self.group, &view.settings),
            Some(node) => Path::of_node(view.trees(), self.group, node, &view.settings),
        }
    }
}
