//! What is under the cursor, in whichever view is displayed.

use std::sync::Arc;

use super::call_graph::GraphRow;
use super::flame::BarOf;
use super::pane::Pane;
use super::rows::{Row, What};
use super::view::View;
use super::wait_list::WaitRow;
use crate::model::facts::tables::Location;
use crate::model::projection::{NeighbourOf, Projection, Totals};
use crate::model::vocabulary::role::Role;

impl View {
    /// Returns the row under the cursor of the tree; `None` in another view.
    pub fn selected_row(&self) -> Option<&Row> {
        self.rows.get(self.tree.cursor).filter(|_| self.pane == Pane::Tree)
    }

    /// Returns the method under the cursor of the methods view or the graph.
    pub(super) fn selected_method(&self) -> Option<u32> {
        match self.pane {
            Pane::Methods => self.methods.selected(),
            Pane::Graph => match self.graph.list.selected()? {
                GraphRow::Middle | GraphRow::Own(_) => self.graph.method,
                GraphRow::Caller(of) | GraphRow::Callee(of) => match of.of {
                    NeighbourOf::Method(method) => Some(method),
                    NeighbourOf::Thread | NeighbourOf::Entry(_) => None,
                },
            },
            Pane::Tree | Pane::Flame | Pane::Threads | Pane::Timeline | Pane::Waits => None,
        }
    }

    /// Returns what the row of the tree, or the bar, under the cursor stands for; `None` in another
    /// view.
    pub fn selected_what(&self) -> Option<What> {
        match self.pane {
            Pane::Flame => self.flame.selected()?.of.what(),
            _ => self.selected_row().map(|row| row.what),
        }
    }

    /// Returns the group of the row under the cursor, in the tree, the flame graph and the view of
    /// threads.
    pub fn selected_group(&self) -> Option<u32> {
        match self.pane {
            Pane::Threads => self.threads.selected(),
            Pane::Flame => self.flame.selected()?.group,
            _ => self.selected_row()?.group,
        }
    }

    /// Returns the projection that the node under the cursor belongs to.
    pub fn selected_in(&self) -> &Projection {
        match self.pane {
            Pane::Tree | Pane::Flame => self.trees(),
            _ => &self.projection,
        }
    }

    /// Returns the lock or the wait under the cursor; `None` in another view.
    pub fn selected_wait(&self) -> Option<WaitRow> {
        self.wait_list.list.selected().filter(|_| self.pane == Pane::Waits)
    }

    /// Returns the node under the cursor; `None` on a group, and on a method.
    pub fn selected_node(&self) -> Option<u32> {
        match self.pane {
            Pane::Tree | Pane::Flame => match self.selected_what()? {
                What::Node(node) => Some(node),
                What::Group(_) | What::Small(_) | What::SmallGroups => None,
            },
            Pane::Methods | Pane::Timeline => None,
            Pane::Threads => self.main_function(self.threads.selected()?),
            Pane::Graph => match self.graph.list.selected()? {
                GraphRow::Caller(of) | GraphRow::Callee(of) => match of.of {
                    NeighbourOf::Entry(node) => Some(node),
                    NeighbourOf::Thread | NeighbourOf::Method(_) => None,
                },
                GraphRow::Middle | GraphRow::Own(_) => None,
            },
            Pane::Waits => self.selected_wait()?.node(&self.projection),
        }
    }

    /// Returns the node of the function that a group is mostly in.
    pub fn main_function(&self, group: u32) -> Option<u32> {
        self.projection.main_functions(self.shown.metric).get(group as usize).copied().flatten()
    }

    /// Returns the call under the cursor, in any view; `None` on a group.
    pub fn selected_location(&self) -> Option<&Arc<Location>> {
        if self.pane == Pane::Timeline {
            return self.timeline.function().map(|function| &function.location);
        }
        match self.selected_method() {
            Some(method) => Some(self.method_location(method)),
            None => {
                let node = self.selected_node()?;
                Some(self.selected_in().location(node, self.shown.metric))
            }
        }
    }

    /// Returns the function under the cursor and whether it is the user's code.
    pub fn selected_function(&self) -> Option<(Arc<Location>, bool)> {
        let location = self.selected_location()?.clone();
        let role = match self.selected_method() {
            Some(method) => self.method(method).role,
            None => self.selected_in().role(self.selected_node()?),
        };
        Some((location, role == Role::App))
    }

    /// Returns the totals of the row under the cursor.
    pub fn selected_totals(&self) -> Option<Totals> {
        if self.pane == Pane::Threads {
            let group = self.threads.selected()?;
            return Some(self.projection.groups[group as usize].total);
        }
        if self.pane == Pane::Graph {
            return self.graph.totals(self.graph.list.selected()?, &self.projection);
        }
        if let Some(method) = self.selected_method() {
            return Some(self.method(method).total);
        }
        if self.pane == Pane::Flame {
            return Some(self.bar_totals(self.flame.selected()?.of).0);
        }
        Some(self.row_totals(self.selected_row()?).0)
    }

    /// Returns the frames of the row under the cursor, innermost first; empty on a group.
    pub fn selected_stack(&self) -> Vec<&Arc<Location>> {
        if matches!(self.pane, Pane::Methods | Pane::Graph | Pane::Timeline) {
            return self.selected_location().into_iter().collect();
        }
        let trees = self.selected_in();
        let above = |node: &u32| trees.parent(*node);
        let nodes = std::iter::successors(self.selected_node(), above);
        let mut stack: Vec<_> = nodes.map(|node| trees.location(node, self.shown.metric)).collect();
        if self.shown.inverted && matches!(self.pane, Pane::Tree | Pane::Flame) {
            stack.reverse();
        }
        stack
    }

    /// Returns total and self time of a bar.
    pub fn bar_totals(&self, of: BarOf) -> (Totals, Totals) {
        match of.what() {
            None => (self.trees().total, Totals::default()),
            Some(what) => self.totals_of(what, None),
        }
    }

    /// Returns the calls that are folded into the line under the cursor, outermost first.
    pub fn selected_links(&self) -> Vec<&Arc<Location>> {
        let swallowed = self.selected_row().map_or(0, |r| usize::from(r.swallowed));
        let mut links: Vec<_> = self.selected_stack().into_iter().skip(1).take(swallowed).collect();
        links.reverse();
        links
    }

    /// Formats the stack, one line per frame, innermost first, as stack traces are pasted.
    pub fn stack_text(&self) -> Option<String> {
        let lines: Vec<String> = self
            .selected_stack()
            .iter()
            .map(|location| {
                let place = match (&location.file, location.line) {
                    (Some(file), Some(line)) => format!(" ({file}:{line})"),
                    (Some(file), None) => format!(" ({file})"),
                    _ if location.module.is_empty() => String::new(),
                    _ => format!(" ({})", location.module),
                };
                format!("{}{place}\n", location.function)
            })
            .collect();
        (!lines.is_empty()).then(|| lines.concat())
    }
}
