//! What is under the cursor, in whichever view is displayed.

use std::sync::Arc;

use super::call_graph::GraphRow;
use super::change_rows;
use super::flame::BarOf;
use super::pane::Pane;
use super::row_path::{Path, RowKey};
use super::rows::{Row, What};
use super::view::View;
use super::wait_list::WaitRow;
use crate::model::facts::tables::Location;
use crate::model::projection::settings::RollUp;
use crate::model::projection::{NeighbourOf, Projection, Siblings, Totals};
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
            Pane::ChangedMethods => self.method_of_change(),
            Pane::Source => self.method_of_source(),
            Pane::Tree
            | Pane::ChangedTree
            | Pane::Flame
            | Pane::ChangedFlame
            | Pane::Threads
            | Pane::Timeline
            | Pane::Waits => None,
        }
    }

    /// Returns the method whose source is displayed.
    fn method_of_source(&self) -> Option<u32> {
        let key = self.source.key()?;
        let methods = 0..self.projection.methods().len() as u32;
        methods.into_iter().find(|method| key.is(self.method_location(*method)))
    }

    /// Returns the time of the function whose source is displayed, as its row has it: off-CPU time
    /// is settled by the sum of its stacks.
    pub fn total_of_source(&self) -> Totals {
        let is_row = self.shown.roll_up == RollUp::Function;
        match self.method_of_source().filter(|_| is_row) {
            Some(method) => self.method(method).total,
            None => self.source.time.total,
        }
    }

    /// Returns what the row of the tree, or the bar, under the cursor stands for; `None` in another
    /// view.
    pub fn selected_what(&self) -> Option<What> {
        match self.pane {
            Pane::Flame | Pane::ChangedFlame => self.flame.selected()?.of.what(),
            _ => self.selected_row().map(|row| row.what),
        }
    }

    /// Returns the group of the row under the cursor, in the tree, the flame graph and the view of
    /// threads.
    pub fn selected_group(&self) -> Option<u32> {
        match self.pane {
            Pane::Threads => self.threads.selected(),
            Pane::Flame | Pane::ChangedFlame => self.flame.selected()?.group,
            Pane::ChangedTree => self.group_of_change(),
            _ => self.selected_row()?.group,
        }
    }

    /// Returns the projection that the node under the cursor belongs to.
    pub fn selected_in(&self) -> &Projection {
        match self.pane {
            pane if pane.has_trees() => self.trees(),
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
            Pane::Tree | Pane::Flame | Pane::ChangedFlame => match self.selected_what()? {
                What::Node(node) => Some(node),
                What::Group(_) | What::Small(_) | What::SmallGroups => None,
            },
            Pane::Methods | Pane::ChangedMethods | Pane::Timeline | Pane::Source => None,
            Pane::ChangedTree => self.node_of_change(),
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
        if matches!(self.pane, Pane::ChangedTree | Pane::ChangedMethods) {
            return self.location_of_change();
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
            // A function without time now.
            None if self.pane == Pane::ChangedMethods => return None,
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
        if self.pane.is_flame() {
            return Some(self.bar_totals(self.flame.selected()?.of).0);
        }
        if self.pane == Pane::ChangedTree {
            return match self.selected_node() {
                Some(node) => Some(self.projection.total(node)),
                None => Some(self.projection.groups.get(self.selected_group()? as usize)?.total),
            };
        }
        Some(self.row_totals(self.selected_row()?).0)
    }

    /// Returns the frames of the row under the cursor, innermost first; empty on a group.
    pub fn selected_stack(&self) -> Vec<&Arc<Location>> {
        let is_function = matches!(
            self.pane,
            Pane::Methods | Pane::ChangedMethods | Pane::Graph | Pane::Timeline | Pane::Source
        );
        if is_function {
            return self.selected_location().into_iter().collect();
        }
        let trees = self.selected_in();
        let above = |node: &u32| trees.parent(*node);
        let nodes = std::iter::successors(self.selected_node(), above);
        let mut stack: Vec<_> = nodes.map(|node| trees.location(node, self.shown.metric)).collect();
        if self.shown.inverted && self.pane.has_trees() {
            stack.reverse();
        }
        stack
    }

    /// Returns total and self time of a line of the tree.
    pub fn row_totals(&self, row: &Row) -> (Totals, Totals) {
        self.totals_of(row.what, row.group)
    }

    /// Returns total and self time of what a line or a bar stands for. `group`: of the line of
    /// small rows of a group.
    pub(super) fn totals_of(&self, what: What, group: Option<u32>) -> (Totals, Totals) {
        let projection = self.trees();
        let sum = |parts: &mut dyn Iterator<Item = Totals>| {
            let mut sum = Totals::default();
            parts.for_each(|part| sum.add(&part));
            sum
        };
        let of_small = |nodes: Siblings<'_>| {
            let tree = self.drawing();
            let total = sum(&mut tree.small(nodes).map(|node| projection.total(node)));
            (total, Totals::default())
        };
        match what {
            What::Group(group) => {
                let group = &projection.groups[group as usize];
                (group.total, group.own)
            }
            What::Node(node) => {
                let node = projection.node(node, self.shown.metric);
                (node.total, node.own)
            }
            What::Small(Some(node)) => of_small(projection.children(node)),
            What::Small(None) => {
                let group = group.and_then(|group| projection.groups.get(group as usize));
                group.map(|group| of_small(projection.roots(group))).unwrap_or_default()
            }
            What::SmallGroups => {
                let tree = self.drawing();
                let total = sum(&mut tree.small_groups().map(|group| group.total));
                (total, Totals::default())
            }
        }
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

    /// Returns the function of a row of the methods that are compared.
    pub(super) fn changed_function(&self, at: usize) -> Option<&Arc<Location>> {
        let function = *self.changes.functions.rows.get(at)?;
        Some(&self.compared.as_ref()?.diff.functions[function as usize].location)
    }

    /// Returns the call of the row under the cursor of a comparison.
    fn location_of_change(&self) -> Option<&Arc<Location>> {
        match self.pane {
            Pane::ChangedMethods => self.changed_function(self.changes.functions.list.cursor),
            _ => {
                let row = self.changes.tree.selected()?;
                change_rows::location(&self.compared.as_ref()?.diff, row.what)
            }
        }
    }

    /// Returns the method of the row under the cursor of a comparison; `None` without time now.
    fn method_of_change(&self) -> Option<u32> {
        self.method_of(&RowKey::of(self.location_of_change()?, self.shown.roll_up))
    }

    /// Returns the method of a function; `None` without time.
    pub(super) fn method_of(&self, function: &RowKey) -> Option<u32> {
        let mut methods = 0..self.projection.methods().len() as u32;
        methods.find(|method| function.is(self.method_location(*method), self.shown.roll_up))
    }

    /// Returns the group and the nodes of the row under the cursor of a comparison, as far as they
    /// have time now; and whether that is all of them.
    fn found_change(&self) -> Option<(u32, Vec<u32>, bool)> {
        let path = self.changes.selected_path(self.compared.as_ref()?, &self.shown)?;
        let (group, nodes) = path.find_compared(&self.projection, &self.shown)?;
        let is_whole = !path.small && nodes.len() == path.frames.len();
        Some((group, nodes, is_whole))
    }

    fn node_of_change(&self) -> Option<u32> {
        self.found_change().filter(|(.., is_whole)| *is_whole)?.1.last().copied()
    }

    fn group_of_change(&self) -> Option<u32> {
        self.found_change().map(|(group, ..)| group)
    }

    /// Selects the bar of the row under the cursor of the tree of changes; of one without time now,
    /// that of its nearest caller.
    pub(super) fn select_changed_row(&mut self) {
        let path = self.found_change().map(|(group, nodes, _)| match nodes.last() {
            Some(node) => Path::of_node(&self.projection, group, *node, &self.shown),
            None => Path::of_group(&self.projection, group, &self.shown),
        });
        self.selected = path.or(self.selected.take());
    }

    /// Goes to the row of the selected bar in the tree of changes.
    pub(super) fn go_to_selected_change(&mut self, height: usize) {
        if let Some(path) = self.selected.clone() {
            self.go_to_change(&path, height);
        }
    }

    /// Goes to the row of a path in the tree of changes, if that is displayed. Returns whether it
    /// is.
    pub(super) fn go_to_change(&mut self, path: &Path, height: usize) -> bool {
        let is_shown = self.pane == Pane::ChangedTree;
        if let (true, Some(compared)) = (is_shown, &self.compared) {
            self.changes.go_to(path, compared, &self.shown, height);
        }
        is_shown
    }
}
