//! Walking the call graph: from a row to its function, from neighbour to neighbour, and back.

use super::AppState;
use super::call_graph::GraphRow;
use super::method_list;
use super::pane::Pane;
use super::row_path::RowKey;
use super::view::View;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::{Neighbour, NeighbourOf};

impl View {
    /// Returns the function of the row under the cursor; of what a function calls elsewhere, the
    /// function.
    pub(super) fn function_of_row(&self) -> Option<RowKey> {
        let key = |location: &Location| RowKey::of(location, self.shown.roll_up);
        if let Some(method) = self.selected_method() {
            return Some(method_list::key(method, &self.projection, &self.shown));
        }
        if self.pane == Pane::Timeline {
            return self.selected_location().map(|location| key(location));
        }
        let mut at = self.selected_node();
        while let Some(node) = at {
            let trees = self.selected_in();
            let location = trees.location(node, self.shown.metric);
            if !trees.is_entry(node) && location.kind != FrameKind::Thread {
                return Some(key(location));
            }
            at = trees.parent(node);
        }
        None
    }
}

impl AppState {
    /// Shows the graph around the function of the row under the cursor.
    pub(super) fn show_graph(&mut self) {
        if self.view.pane == Pane::ChangedMethods && self.view.function_of_row().is_none() {
            return self.say("the graph is of the shown range, in which this function has no time");
        }
        if self.view.pane != Pane::Graph
            && let Some(function) = self.view.function_of_row()
        {
            self.view.graph.focus(function);
        }
        self.show_pane(Pane::Graph);
    }

    /// Puts the neighbour under the cursor into the middle.
    pub(super) fn walk(&mut self) {
        let rows = usize::from(self.layout().rows);
        match self.view.graph.list.selected() {
            Some(GraphRow::Caller(Neighbour { of: NeighbourOf::Thread, .. })) => {
                self.say("threads begin here: no function calls it");
            }
            Some(GraphRow::Caller(_) | GraphRow::Callee(_)) => match self.view.selected_method() {
                Some(method) => {
                    let View { projection, shown, .. } = &self.view;
                    let key = method_list::key(method, projection, shown);
                    self.view.carried.moved = true;
                    self.view.graph.focus(key);
                    self.view.set_pane(Pane::Graph, rows);
                }
                None => self.say("this is no function of yours: o shows all functions"),
            },
            _ => self.say("Enter on a caller or a callee goes to it, Backspace goes back"),
        }
    }

    pub(super) fn graph_back(&mut self) {
        let rows = usize::from(self.layout().rows);
        match self.view.graph.back() {
            true => {
                self.view.carried.moved = true;
                self.view.set_pane(Pane::Graph, rows);
            }
            false => self.say("no function was in the middle before"),
        }
    }
}
