//! Opens and closes rows of the tree.

use std::sync::Arc;

use super::pane::Pane;
use super::row_path::{Expanded, Path, RowKey};
use super::rows::{Fold, Row, What};
use super::view::View;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::{Siblings, confidence, heaviest};
use crate::model::vocabulary::frame::SECOND;

/// Time after the start during which every snapshot opens the most telling rows anew, unless a key
/// is pressed.
const SETTLES_AFTER: u64 = 2 * SECOND;

impl View {
    pub fn expand(&mut self, height: usize) {
        if self.in_changes(|changes, compared, shown| changes.expand(compared, shown, height)) {
            return;
        }
        if self.pane == Pane::Waits {
            self.wait_list.expand(&self.projection, height);
            return;
        }
        let Some(row) = self.selected_row().copied() else { return };
        if row.fold == Fold::Closed {
            self.touch();
            self.select(self.tree.cursor);
            self.expanded.open(&self.path(&row));
            self.reshape(height);
        }
    }

    pub fn collapse(&mut self, height: usize) {
        if self.in_changes(|changes, compared, shown| changes.collapse(compared, shown, height)) {
            return;
        }
        if self.pane == Pane::Waits {
            self.wait_list.collapse(&self.projection, height);
            return;
        }
        let Some(row) = self.selected_row().copied() else { return };
        if row.fold == Fold::Open {
            self.touch();
            self.select(self.tree.cursor);
            self.expanded.close(&self.path(&row));
            self.reshape(height);
        } else if let Some(parent) = row.parent {
            self.tree.cursor = parent as usize;
            self.tree.show(self.rows.len(), height);
            self.select(self.tree.cursor);
        }
    }

    /// Expands the row and its hottest path down to the end; of a comparison, what has changed.
    pub fn expand_hottest(&mut self, height: usize) {
        if self
            .in_changes(|changes, compared, shown| changes.expand_changed(compared, shown, height))
        {
            return;
        }
        let Some(row) = self.selected_row().copied() else { return };
        self.touch();
        self.select(self.tree.cursor);
        let mut path = self.path(&row);
        self.expanded.open(&path);
        let mut below = match row.what {
            What::Group(group) => self.trees().roots(&self.trees().groups[group as usize]),
            What::Node(node) => self.trees().children(node),
            What::Small(_) | What::SmallGroups => return self.reshape(height),
        };
        while let Some(node) = self.hottest_of(below) {
            path.frames.push(RowKey::of(self.trees().name(node), self.shown.roll_up));
            below = self.trees().children(node);
        }
        // Opens all rows above it too.
        self.expanded.open(&path);
        self.reshape(height);
    }

    /// Opens only the hottest path, and selects its end; of methods the first.
    pub(super) fn go_to_hottest(&mut self, height: usize) {
        if self.pane == Pane::Methods {
            self.methods.forget();
            return self.set_pane(self.pane, height);
        }
        let trees = self.trees();
        let Some(group) = self.ordered().groups().first().copied() else { return };
        let mut path = Path::of_group(trees, group, &self.shown);
        let mut below = trees.roots(&trees.groups[group as usize]);
        while let Some(node) = self.hottest_of(below) {
            path.frames.push(RowKey::of(trees.name(node), self.shown.roll_up));
            // The callers of an inverted tree say less about where time goes than its roots.
            if self.shown.inverted {
                break;
            }
            below = trees.children(node);
        }
        let mut above = path.clone();
        above.frames.pop();
        let mut expanded = Expanded::default();
        expanded.open(&above);
        self.touched = true;
        self.before_collapse = None;
        self.expanded = expanded;
        self.selected = Some(path);
        self.reshape(height);
    }

    /// Returns the heaviest of these nodes if its time is certain: what is not is not worth
    /// entering.
    fn hottest_of(&self, nodes: Siblings<'_>) -> Option<u32> {
        let resolution = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.resolution());
        let (metric, shown) = (self.shown.metric, self.projection.total);
        let is_certain = |node: &u32| {
            !confidence(&self.trees().total(*node), &shown, metric, resolution).unresolved
        };
        heaviest(&self.ordered(), nodes).filter(is_certain)
    }

    /// Collapses everything; pressed again, reopens what was open.
    pub fn collapse_all(&mut self, height: usize) {
        if self.in_changes(|changes, compared, shown| changes.collapse_all(compared, shown, height))
        {
            return;
        }
        self.touched = true;
        match self.before_collapse.take() {
            Some(before) => self.expanded = before,
            None => self.before_collapse = Some(std::mem::take(&mut self.expanded)),
        }
        self.reshape(height);
    }

    /// Opens the closed row that hides the most self time, again and again, until the screen is
    /// full or no row hides 2 % of what is shown. What it opened at the start it closes again as
    /// long as little is known; later it only opens more. Returns the rows.
    pub(super) fn open_most_telling(&mut self, height: usize) -> Vec<Row> {
        if !self.settled {
            self.expanded = Expanded::default();
        }
        let known =
            |s: &Arc<Snapshot>| !s.health.naming && s.at >= s.session.started + SETTLES_AFTER;
        self.settled |= self.snapshot.as_ref().is_some_and(known);
        let shown = u128::from(self.projection.total.value(self.shown.metric));
        loop {
            let rows = self.drawing().rows(&self.expanded);
            if rows.len() >= height.max(1) {
                return rows;
            }
            let closed = rows.iter().filter(|row| row.fold == Fold::Closed);
            let most = closed.reduce(|most, row| if row.hides > most.hides { row } else { most });
            let Some(row) = most.filter(|row| u128::from(row.hides) * 50 >= shown.max(1)) else {
                return rows;
            };
            let path = self.path(row);
            self.expanded.open(&path);
        }
    }
}
