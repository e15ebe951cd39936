//! What Enter does with the row under the cursor.

use super::pane::Pane;
use super::rows::Fold;
use super::{AppState, wait_chain};
use crate::model::projection::settings::Filter;

impl AppState {
    /// Expands the row, or goes from an open row to that of the thread that holds its lock.
    pub(super) fn open(&mut self, rows: usize) {
        if self.take_bucket() {
            return;
        }
        match (self.view.pane, self.view.selected_node()) {
            (Pane::Tree, _) => {}
            (Pane::Methods, _) => return self.show_graph(),
            (Pane::Graph, _) => return self.walk(),
            (Pane::Threads, _) => return self.only_this_group(rows),
            (Pane::Waits, None) => return self.say("no row of the tree is this wait's"),
            (Pane::Waits, Some(node)) => {
                self.view.set_pane(Pane::Tree, rows);
                return self.view.go_to(node, rows);
            }
        }
        let holder = match self.view.selected_row() {
            Some(row) if row.fold != Fold::Closed => wait_chain::holder_of_row(&self.view),
            _ => None,
        };
        match holder {
            Some(node) => self.view.go_to(node, rows),
            None => self.view.expand(rows),
        }
    }

    /// Shows only the threads of the group under the cursor; again: all of them.
    fn only_this_group(&mut self, rows: usize) {
        let Some(group) = self.view.threads.selected() else { return };
        let name = &self.view.projection.groups[group as usize].name;
        let pattern = format!("^{}$", regex::escape(name));
        let threads = &mut self.view.settings.filters.threads;
        if threads.active().is_some_and(|shown| shown.as_str() == pattern) {
            threads.on = false;
            self.say("all threads are shown again");
        } else {
            match regex::Regex::new(&pattern) {
                Ok(pattern) => *threads = Filter::set(pattern),
                Err(_) => return self.say("this name is too long for a pattern"),
            }
            self.say("only these threads are shown; 5 Enter shows all again, f changes it");
            self.view.set_pane(Pane::Tree, rows);
        }
        self.project();
    }
}
