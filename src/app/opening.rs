//! What Enter does with the row under the cursor.

use super::pane::Pane;
use super::rows::Fold;
use super::{AppState, wait_chain};
use crate::model::projection::settings::{Filter, pattern};

impl AppState {
    /// Expands the row, or goes from an open row to that of the thread that holds its lock.
    pub(super) fn open(&mut self, rows: usize) {
        if self.take_bucket() {
            return;
        }
        match (self.view.pane, self.view.selected_node()) {
            (Pane::Tree, _) => {}
            (Pane::ChangedTree, _) => return self.view.expand(rows),
            (Pane::Methods | Pane::ChangedMethods, _) => return self.show_graph(),
            (Pane::Graph, _) => return self.walk(),
            (Pane::Flame | Pane::ChangedFlame, _) => return self.view.zoom_in(rows),
            (Pane::Timeline, _) => return self.zoom_to_run(),
            (Pane::Threads, _) => return self.only_this_group(),
            (Pane::Source, _) => return self.say("a: source or instructions; Backspace: back"),
            (Pane::Waits, None) => return self.say("no row of the tree belongs to it"),
            (Pane::Waits, Some(node)) => return self.go_to(node),
        }
        let holder = match self.view.selected_row() {
            Some(row) if row.fold != Fold::Closed => wait_chain::holder_of_row(&self.view),
            _ => None,
        };
        match holder {
            Some(node) => self.go_to(node),
            None => self.view.expand(rows),
        }
    }

    /// Shows only the threads of the group under the cursor; again: those that were shown before.
    fn only_this_group(&mut self) {
        if let Some(before) = self.before_group.take() {
            self.view.settings.filters.threads = before;
            self.say("the threads from before are shown again");
            return self.project();
        }
        if let Some(group) = self.view.threads.selected() {
            self.only_group(group);
        }
    }

    /// Shows only the threads of a group.
    pub(super) fn only_group(&mut self, group: u32) {
        let rows = usize::from(self.layout().rows);
        let name = &self.view.projection.groups[group as usize].name;
        let Ok(pattern) = pattern(&format!("^{}$", regex::escape(name))) else {
            return self.say("this name is too long for a pattern");
        };
        let threads = &mut self.view.settings.filters.threads;
        let before = std::mem::replace(threads, Filter::set(pattern));
        self.before_group.get_or_insert(before);
        self.say("only these threads are shown; 5 Enter shows those from before, f changes it");
        self.view.set_pane(Pane::Tree, rows);
        self.project();
    }

    /// Takes back that only one group is shown: groups get other names.
    pub(super) fn leave_group(&mut self) {
        if let Some(before) = self.before_group.take() {
            self.view.settings.filters.threads = before;
        }
    }
}
