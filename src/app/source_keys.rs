//! The keys of the source view: opening it from a row, and leaving it.

use std::sync::Arc;

use super::AppState;
use super::code_text::CodeRead;
use super::event::Effect;
use super::pane::Pane;
use super::rows::What;
use super::view::View;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::role::Role;

impl View {
    /// Returns the function of the row under the cursor, as its rows name it; of what a function
    /// calls elsewhere, the function. Says also whether the row has the time of such calls itself.
    pub(super) fn function_for_source(&self) -> Option<(Arc<Location>, bool)> {
        if let Some(location) = self.selected_location()
            && (self.selected_method().is_some()
                || matches!(self.pane, Pane::Timeline | Pane::ChangedMethods))
        {
            return Some((location.clone(), false));
        }
        if self.pane == Pane::ChangedTree {
            return Some((self.changed_function_for_source()?, false));
        }
        let mut at = self.selected_node();
        let trees = self.selected_in();
        // Inverted trees begin with what the user's functions call.
        let is_inverted = self.pane.has_trees() && self.shown.inverted;
        while let Some(node) = at {
            if !trees.is_entry(node) {
                let has_calls = is_inverted && trees.role(node) != Role::App;
                return Some((trees.location(node, self.shown.metric).clone(), has_calls));
            }
            at = trees.parent(node);
        }
        // A row that has time in the baseline only.
        let before = self.selected_location().filter(|_| self.pane.is_compared());
        Some((before?.clone(), false))
    }

    fn changed_function_for_source(&self) -> Option<Arc<Location>> {
        let diff = &self.compared.as_ref()?.diff;
        let What::Node(mut node) = self.changes.tree.selected()?.what else { return None };
        while diff.nodes[node as usize].is_entry {
            node = diff.caller_of(node)?;
        }
        Some(diff.nodes[node as usize].location.clone())
    }
}

impl AppState {
    /// Opens the source of the row's function; where it is open, switches to the instructions or
    /// back.
    pub(super) fn show_source(&mut self) {
        let rows = usize::from(self.layout().rows);
        if self.view.pane == Pane::Source {
            self.view.source.chosen = true;
            let metric = self.view.shown.metric;
            return self.view.source.switch(rows, metric);
        }
        if self.view.shown.roll_up.joins() {
            return self.say("rows are no functions now: b shows functions");
        }
        let Some((function, has_calls)) = self.view.function_for_source() else {
            return self.say("select a call first: a thread group has no source");
        };
        match function.kind {
            FrameKind::Marker | FrameKind::Thread => {
                return self.say("this row is no function: it has no source");
            }
            FrameKind::Kernel => {
                return self.say("functions of the kernel: neither source nor code is read");
            }
            _ => {}
        }
        let before = self.view.pane;
        self.view.source.begin(function, has_calls, before);
        self.view.source.had_moved = self.view.carried.moved;
        self.show_pane(Pane::Source);
        self.view.carried.moved = true;
        self.project();
    }

    /// Goes back to the view that it was opened from. Returns false if another one is displayed.
    pub(super) fn leave_source(&mut self) -> bool {
        if self.view.pane != Pane::Source {
            return false;
        }
        let (before, rows) = (self.view.source.before, usize::from(self.layout().rows));
        // Its cursor is where it was.
        self.view.set_pane(before, rows);
        self.view.carried.moved = self.view.source.had_moved;
        let has_other_trees = self.view.settings.inverted != self.view.shown.inverted;
        if self.view.pane == Pane::Timeline || self.view.pane.has_trees() && has_other_trees {
            // Meanwhile projections had none.
            self.project();
        }
        true
    }

    pub(super) fn next_hot(&mut self, by: isize) {
        let rows = usize::from(self.layout().rows);
        let metric = self.view.shown.metric;
        if !self.view.source.next_hot(by, metric, rows) {
            self.say(match by > 0 {
                true => "no other line has time",
                false => "this is the hottest line",
            });
        }
    }

    pub(super) fn take_code(&mut self, read: CodeRead) {
        self.view.source.found(read);
        self.view.source.fall_back();
        let (rows, metric) = (usize::from(self.layout().rows), self.view.shown.metric);
        if self.view.pane == Pane::Source {
            self.view.source.read(metric, rows);
        }
    }

    /// Returns the request for the displayed text, unless it is there.
    pub(super) fn wanted_code(&mut self) -> Option<Effect> {
        if self.view.pane != Pane::Source {
            return None;
        }
        let snapshot = self.view.snapshot.clone()?;
        let living = snapshot.living().filter(|_| !self.config.saved);
        let of_all = snapshot.targets.iter().filter(|_| self.config.saved);
        let processes = living.chain(of_all).map(|target| (target.pid, target.command.clone()));
        let processes: Vec<_> = processes.collect();
        let started = match self.config.saved {
            true => Some(snapshot.session.started_unix_ns),
            false => snapshot.living().map(|target| target.started_unix_ns).max(),
        };
        // Nothing is known of some.
        let started = started.filter(|started| *started > 0);
        let request = self.view.source.wanted(processes.clone(), started);
        if request.is_some() {
            return request.map(|request| Effect::ReadCode(Box::new(request)));
        }
        // The text cannot be asked for: the other one may.
        let before = self.view.source.shown;
        self.view.source.fall_back();
        let request = match self.view.source.shown == before {
            true => None,
            false => self.view.source.wanted(processes, started),
        };
        self.view.source.fall_back();
        let (rows, metric) = (usize::from(self.layout().rows), self.view.shown.metric);
        if self.view.source.shown != before {
            self.view.source.read(metric, rows);
        }
        request.map(|request| Effect::ReadCode(Box::new(request)))
    }
}
