//! Carrying the selection from view to view: what was chosen in one is chosen in the next.

use std::cmp::Reverse;

use super::pane::Pane;
use super::row_path::{GroupKey, Path, RowKey};
use super::view::View;
use crate::model::facts::tables::Location;

/// What the user chose in a view.
struct Chosen {
    pane: Pane,
    function: Option<RowKey>,
    group: Option<GroupKey>,
    /// Where the row stands for one stack: a node of the upright trees.
    node: Option<u32>,
}

impl View {
    /// Displays a view with what was chosen in the present one.
    pub(super) fn show_pane(&mut self, pane: Pane, height: usize) {
        let (before, pane) = (self.pane, pane.compared(self.compared.is_some()));
        if self.follows.is_some() {
            self.set_pane(pane, height);
            if matches!(pane, Pane::Tree | Pane::Methods | Pane::Flame) {
                self.go_to_hottest(height);
            }
            return;
        }
        let chosen = self.chosen();
        let is_other = chosen.is_some_and(|chosen| self.choose(chosen, pane));
        self.set_pane(pane, height);
        match self.pane {
            Pane::Tree if is_other || before.is_flame() => self.open_to_selected(height),
            Pane::ChangedTree if is_other || before.is_flame() => {
                self.go_to_selected_change(height)
            }
            _ => {}
        }
    }

    /// Returns what was chosen in the displayed view; `None` while its cursor is where it began.
    fn chosen(&self) -> Option<Chosen> {
        let key = |location: &Location| RowKey::of(location, self.shown.roll_up);
        self.is_chosen().then(|| Chosen {
            pane: self.pane,
            function: match self.pane {
                // The row may be of the baseline alone.
                Pane::ChangedTree | Pane::ChangedMethods => {
                    self.function_for_source().map(|(function, _)| key(&function))
                }
                _ => self.function_of_row(),
            },
            group: match self.pane {
                Pane::Timeline => self.timeline.group.clone(),
                _ => self.group_of_row(),
            },
            node: self.selected_node().filter(|_| self.pane == Pane::Waits),
        })
    }

    /// Returns whether the row under the cursor was chosen, here or in a view before.
    pub(super) fn is_chosen(&self) -> bool {
        match self.pane {
            Pane::Tree | Pane::Flame | Pane::ChangedFlame => self.selected.is_some(),
            Pane::Methods => self.methods.is_chosen(),
            Pane::ChangedTree => self.changes.tree.is_chosen(),
            Pane::ChangedMethods => self.changes.functions.is_chosen(),
            Pane::Graph => self.graph.is_chosen || self.graph.list.is_chosen(),
            Pane::Threads => self.threads.is_chosen(),
            Pane::Timeline => self.timeline.is_chosen(),
            Pane::Waits => self.wait_list.list.is_chosen(),
            Pane::Source => true,
        }
    }

    /// Chooses the same in another view, which is not displayed yet. Returns whether another row of
    /// the trees is selected.
    fn choose(&mut self, chosen: Chosen, to: Pane) -> bool {
        let is_of_trees = |pane: Pane| matches!(pane.compared(false), Pane::Tree | Pane::Flame);
        if is_of_trees(to) {
            if matches!(to, Pane::ChangedTree | Pane::ChangedFlame) {
                self.select_changed_row();
            }
            // These views have one selection.
            let is_same = is_of_trees(chosen.pane);
            let path = if is_same { None } else { self.row_of(&chosen) };
            let is_other = path.is_some();
            self.selected = path.or(self.selected.take());
            return is_other;
        }
        match (to, chosen.function, chosen.group) {
            (Pane::Methods, Some(function), _) if self.has_method(&function) => {
                self.methods.choose(function);
            }
            (Pane::ChangedMethods, Some(function), _) => self.changes.functions.choose(function),
            (Pane::Threads, _, Some(group)) => self.threads.choose(group),
            _ => {}
        }
        false
    }

    /// Returns the row of the trees of what was chosen, unless the selected one is of it.
    fn row_of(&self, chosen: &Chosen) -> Option<Path> {
        match (chosen.pane, chosen.node, &chosen.function) {
            (Pane::Threads, ..) => self.row_of_group(chosen.group.as_ref()),
            (_, Some(node), _) if !self.settings.inverted => self.path_of(node),
            (_, _, Some(function)) => {
                let group = chosen.group.as_ref().filter(|_| chosen.pane == Pane::Timeline);
                self.row_of_function(function, group)
            }
            _ => None,
        }
    }

    /// Returns the group's row, unless the selected row is in the group.
    fn row_of_group(&self, group: Option<&GroupKey>) -> Option<Path> {
        let selected = self.selected.as_ref().and_then(|path| path.group.as_ref());
        let group = group.filter(|group| selected != Some(group))?;
        Some(Path { group: Some(group.clone()), frames: Vec::new(), small: false })
    }

    /// Returns the row of the function with the most time, unless the selected row is of it.
    /// `within`: only in this group.
    fn row_of_function(&self, function: &RowKey, within: Option<&GroupKey>) -> Option<Path> {
        let is_within = |path: &Path| within.is_none_or(|group| path.group.as_ref() == Some(group));
        let is_of_it = |path: &Path| {
            let found = path.find(self.trees(), &self.shown);
            path.frames.last() == Some(function)
                && is_within(path)
                && found.is_some_and(|(_, nodes)| nodes.len() == path.frames.len())
        };
        if self.selected.as_ref().is_some_and(is_of_it) {
            return None;
        }
        let (trees, ordered) = (self.trees(), self.ordered());
        let is_it = |location: &Location| function.is(location, self.shown.roll_up);
        let nodes = 0..trees.node_count();
        let mut nodes: Vec<u32> = nodes.filter(|node| is_it(trees.name(*node))).collect();
        // Of a function that calls itself the outermost call, which has all of the time.
        nodes.sort_by_key(|node| (Reverse(ordered.value(*node)), *node));
        let path = nodes.into_iter().filter_map(|node| self.path_of(node)).find(is_within)?;
        match self.settings.inverted && !self.shown.inverted {
            // Inverted trees come with the next projection, and begin with the function.
            true => Some(Path { frames: vec![function.clone()], ..path }),
            false => Some(path),
        }
    }

    /// Returns the path of a node of the displayed trees.
    fn path_of(&self, node: u32) -> Option<Path> {
        let trees = self.trees();
        Some(Path::of_node(trees, trees.group_of(node)?, node, &self.shown))
    }

    /// Returns whether the function has time.
    fn has_method(&self, function: &RowKey) -> bool {
        let mut methods = 0..self.projection.methods().len() as u32;
        methods.any(|method| function.is(self.method_location(method), self.shown.roll_up))
    }
}
