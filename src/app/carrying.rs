//! Carrying the selection from view to view: what was chosen in one is chosen in the next.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::carried::{Carried, Chosen};
use super::pane::Pane;
use super::row_path::{GroupKey, Path, RowKey};
use super::view::View;
use crate::model::facts::tables::Location;
use crate::model::projection::{Group, Projection};

impl View {
    /// Displays a view with what was chosen last.
    pub(super) fn show_pane(&mut self, pane: Pane, height: usize) {
        let (from_bars, pane) = (self.pane.is_flame(), pane.compared(self.compared.is_some()));
        if self.follows.is_some() {
            self.set_pane(pane, height);
            if matches!(pane, Pane::Tree | Pane::Methods | Pane::Flame) {
                self.go_to_hottest(height);
            }
            return;
        }
        self.note_choice();
        let is_other = self.take_choice(pane);
        self.set_pane(pane, height);
        match self.pane {
            Pane::Tree if is_other || from_bars => self.open_to_selected(height),
            Pane::ChangedTree if is_other || from_bars => self.go_to_selected_change(height),
            _ => {}
        }
    }

    /// Notes the row under the cursor as chosen, if the cursor was moved in this view.
    fn note_choice(&mut self) {
        if !std::mem::take(&mut self.carried.moved) {
            return;
        }
        let key = |location: &Location| RowKey::of(location, self.shown.roll_up);
        let path_of = |node: u32| {
            let group = self.projection.group_of(node)?;
            Some(Path::of_node(&self.projection, group, node, &self.shown))
        };
        let chosen = Chosen {
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
            path: match self.pane {
                Pane::Waits => self.selected_node().and_then(path_of),
                _ => None,
            },
        };
        self.carried.choice = Some(chosen);
        self.carried.number += 1;
        self.carried.taken.insert(self.pane, self.carried.number);
    }

    /// Forgets what was chosen: rows are named in another way now.
    pub(super) fn forget_choice(&mut self) {
        self.carried = Carried::default();
    }

    /// Chooses in a view, which is not displayed yet, what was chosen last, unless it has it.
    /// Returns whether another row of the trees is selected.
    fn take_choice(&mut self, to: Pane) -> bool {
        let number = self.carried.number;
        if self.carried.taken.insert(to, number) == Some(number) {
            return false;
        }
        let Some(chosen) = self.carried.choice.clone() else { return false };
        let is_of_trees = |pane: Pane| matches!(pane.compared(false), Pane::Tree | Pane::Flame);
        if is_of_trees(to) {
            // These views have one selection.
            if is_of_trees(chosen.pane) {
                if chosen.pane == Pane::ChangedTree {
                    self.select_changed_row();
                }
                return chosen.pane.is_flame() != to.is_flame();
            }
            let path = self.row_of(&chosen, to);
            let is_other = path.is_some();
            self.selected = path.or(self.selected.take());
            return is_other;
        }
        match (to, chosen.function, chosen.group) {
            (Pane::Methods, Some(function), _) if self.method_of(&function).is_some() => {
                self.methods.choose(function);
            }
            (Pane::ChangedMethods, Some(function), _) if self.has_changed(&function) => {
                self.changes.functions.choose(function);
            }
            (Pane::Threads, _, Some(group)) => self.threads.choose(group),
            _ => {}
        }
        false
    }

    /// Returns the row of the trees of what was chosen, unless the selected one is of it.
    fn row_of(&self, chosen: &Chosen, to: Pane) -> Option<Path> {
        let selected = match &self.compared {
            Some(compared) if to == Pane::ChangedTree => {
                self.changes.selected_path(compared, &self.shown)
            }
            _ => self.selected.clone(),
        };
        match (chosen.pane, &chosen.path, &chosen.function) {
            (Pane::Threads, ..) => {
                let group = chosen.group.clone()?;
                let of_selected = selected.and_then(|path| path.group);
                let is_same = of_selected.is_some_and(|of| {
                    of == group || of == group.in_comparison(&self.shown.grouping)
                });
                let row = Path { group: Some(group), frames: Vec::new(), small: false };
                (!is_same).then_some(row)
            }
            (_, Some(path), _) if !self.settings.inverted => Some(path.clone()),
            (_, _, Some(function)) => {
                let group = chosen.group.as_ref().filter(|_| chosen.pane == Pane::Timeline);
                self.row_of_function(function, group, selected.as_ref())
            }
            _ => None,
        }
    }

    /// Returns the trees that are displayed, or will be by the next projection, as far as they are
    /// there.
    fn coming_trees(&self) -> &Projection {
        match self.projection.inverted() {
            Some(inverted) if self.settings.inverted && self.shown.inverted => inverted,
            _ => &self.projection,
        }
    }

    /// Returns the row of the function with the most time, unless the selected row is of it.
    /// `within`: only in this group.
    fn row_of_function(
        &self,
        function: &RowKey,
        within: Option<&GroupKey>,
        selected: Option<&Path>,
    ) -> Option<Path> {
        let trees = self.coming_trees();
        // Inverted trees come with the next projection.
        let is_coming = self.settings.inverted && !self.shown.inverted;
        let is_it = |location: &Location| function.is(location, self.shown.roll_up);
        let is_of_it = |path: &Path| {
            if is_coming {
                return path.frames.last() == Some(function);
            }
            let Some((_, nodes)) = path.find(trees, &self.shown) else { return false };
            let mut at = nodes.last().copied().filter(|_| nodes.len() == path.frames.len());
            // What a function calls elsewhere is the function's.
            while let Some(node) = at.filter(|node| trees.is_entry(*node)) {
                at = trees.parent(node);
            }
            at.is_some_and(|node| is_it(trees.name(node)))
        };
        let is_within =
            |path: &&Path| within.is_none_or(|group| path.group.as_ref() == Some(group));
        if selected.filter(is_within).is_some_and(is_of_it) {
            return None;
        }
        let is_group =
            |group: &Group, of: &GroupKey| *of == GroupKey::of(group, &self.shown.grouping);
        let group = within.map(|of| trees.groups.iter().position(|group| is_group(group, of)));
        let roots: Option<HashSet<u32>> = match group {
            Some(at) => Some(trees.roots(&trees.groups[at?]).collect()),
            None => None,
        };
        let is_in_group = |node: &u32| {
            let root = || std::iter::successors(Some(*node), |node| trees.parent(*node)).last();
            roots.as_ref().is_none_or(|roots| root().is_some_and(|root| roots.contains(&root)))
        };
        let ordered = trees.ordered(&self.shown);
        // Of a function that calls itself the outermost call, which has all of the time.
        let node = (0..trees.node_count())
            .filter(|node| is_it(trees.name(*node)))
            .filter(is_in_group)
            .min_by_key(|node| (Reverse(ordered.value(*node)), *node))?;
        let group = trees.group_of(node)?;
        let path = Path::of_node(trees, group, node, &self.shown);
        match is_coming {
            // They begin with the function.
            true => Some(Path { frames: vec![function.clone()], ..path }),
            false => Some(path),
        }
    }

    /// Returns whether the function is compared.
    fn has_changed(&self, function: &RowKey) -> bool {
        let Some(compared) = &self.compared else { return false };
        let mut functions = compared.diff.functions.iter();
        functions.any(|of| function.is(&of.location, self.shown.roll_up))
    }
}
