//! Keeping a baseline, and comparing the shown range with it.

use std::sync::Arc;

use super::AppState;
use super::baseline::Baseline;
use super::keymap::Action;
use super::pane::Pane;
use crate::model::facts::snapshot::Snapshot;

impl AppState {
    /// Keeps the shown range as the baseline, in place of an earlier one.
    pub(super) fn keep_baseline(&mut self) {
        let (Some(snapshot), Some(clock)) = (self.view.whole.clone(), self.time()) else {
            return self.say("there is nothing to keep yet");
        };
        let projection = &self.view.projection;
        let kept = clock.span_words(projection.from, projection.till);
        let range = self.view.shown.range;
        let before = self.baseline.replace(Baseline { snapshot, range, file: None });
        let instead = if before.is_some() { " instead of the one before" } else { "" };
        self.say(format!("the baseline is {kept} now{instead}; = compares with it"));
        if self.comparing {
            self.project();
        }
    }

    /// Compares with the baseline, or leaves the comparison.
    pub(super) fn compare(&mut self) {
        if self.baseline.is_none() {
            return self.say("there is no baseline yet: M keeps the shown range as one");
        }
        self.comparing = !self.comparing;
        match (self.comparing, self.view.pane) {
            (true, Pane::Flame) if self.view.settings.inverted => {
                self.say("differences from the baseline, callers first; = leaves");
            }
            (true, Pane::Tree | Pane::Methods | Pane::Flame) => {
                self.say("differences from the baseline; = leaves");
            }
            (true, _) => self.say(NOT_COMPARED),
            (false, _) => self.say("not compared any more; = compares again"),
        }
        // A comparison is of the upright trees: another bar would be as wide as the screen.
        if self.view.settings.inverted {
            self.view.flame.zoom = None;
        }
        self.project();
    }

    /// Displays a view with what was chosen in the one before, and says where it does not compare.
    pub(super) fn show_pane(&mut self, pane: Pane) {
        let rows = usize::from(self.layout().rows);
        self.view.show_pane(pane, rows);
        // Other views do not read inverted trees.
        if self.view.pane.has_trees() && self.view.settings.inverted != self.view.shown.inverted {
            self.project();
        }
        if self.comparing && !self.view.pane.is_compared() {
            self.say(NOT_COMPARED);
        }
    }

    /// Takes names into the baseline that were found since; ids never change meaning.
    pub(super) fn name_baseline(&mut self, newer: &Snapshot) {
        let Some(baseline) = &mut self.baseline else { return };
        let kept = &baseline.snapshot;
        if kept.health.naming && baseline.file.is_none() {
            let mut renamed = Snapshot::clone(kept);
            renamed.tables = newer.tables.clone();
            renamed.health.naming = newer.health.naming;
            baseline.snapshot = Arc::new(renamed);
        }
    }

    /// Sorts the rows of a comparison.
    pub(super) fn sort_changes(&mut self, action: Action) {
        let changes = &mut self.view.changes;
        match action {
            Action::SortLeft => changes.sort_beside(self.width, -1),
            Action::SortRight => changes.sort_beside(self.width, 1),
            Action::SortReverse => changes.reverse = !changes.reverse,
            _ => changes.sort_self_or_total(),
        }
        let rows = usize::from(self.layout().rows);
        self.view.set_pane(self.view.pane, rows);
    }

    /// Shows another metric: the same projection in another order, but another comparison.
    pub(super) fn metric_changed(&mut self) {
        match self.comparing {
            true => self.project(),
            false => self.view.reorder(usize::from(self.layout().rows)),
        }
    }
}

/// What is said where a view has no differences.
const NOT_COMPARED: &str =
    "this view is of the shown range alone; tree (1), methods (2), flame (4) compare";
