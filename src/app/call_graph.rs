//! The graph view: one function in the middle, its callers above it and its callees below.

use std::sync::Arc;

use super::keyed_list::KeyedList;
use super::list::Step;
use super::row_path::RowKey;
use crate::model::facts::tables::Location;
use crate::model::projection::settings::Settings;
use crate::model::projection::{CallGraph, Neighbour, NeighbourOf, Projection, Totals};

/// A line of the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GraphRow {
    Caller(Neighbour),
    /// The function itself.
    Middle,
    /// Its own time.
    Own(Totals),
    Callee(Neighbour),
}

/// Identifies a line across projections. A location is `None` for threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GraphKey {
    Caller(Option<RowKey>),
    Middle,
    Own,
    Callee(Option<RowKey>),
}

#[derive(Clone, Debug, Default)]
pub struct GraphView {
    pub list: KeyedList<GraphRow, GraphKey>,
    /// The function in the middle: an index into the projection's methods. `None`: it has no row
    /// there.
    pub method: Option<u32>,
    /// Time of stacks that have it more than once.
    pub recursive: Totals,
    /// `None`: the function that the methods view has first.
    focus: Option<RowKey>,
    /// The functions that were in the middle before, the latest last.
    before: Vec<RowKey>,
    /// The function that was in the middle when the user went back.
    came_from: Option<RowKey>,
}

impl GraphView {
    /// Puts a function into the middle.
    pub fn focus(&mut self, key: RowKey) {
        if self.focus.as_ref() == Some(&key) {
            return;
        }
        self.before.extend(self.focus.replace(key));
        self.list.forget();
    }

    /// Forgets all functions: rows are named in another way now.
    pub fn forget(&mut self) {
        *self = GraphView::default();
    }

    /// Goes back to the function that was in the middle before. Returns false if there is none.
    pub fn back(&mut self) -> bool {
        let Some(before) = self.before.pop() else { return false };
        self.came_from = self.focus.replace(before);
        self.list.forget();
        true
    }

    /// Reads the neighbours of a new projection.
    pub fn read(&mut self, projection: &Projection, shown: &Settings, height: usize) {
        let methods = projection.methods();
        let location = |method: u32| methods[method as usize].location(shown.metric);
        let is_focus = |key: &RowKey, method: u32| key.is(location(method), shown.roll_up);
        self.method = match &self.focus {
            Some(key) => (0..methods.len() as u32).find(|method| is_focus(key, *method)),
            None => projection.ordered(shown).methods().first().copied(),
        };
        if let (None, Some(method)) = (&self.focus, self.method) {
            self.focus = Some(RowKey::of(location(method), shown.roll_up));
        }
        let Some(method) = self.method else {
            return self.list.set(Vec::new(), |_, _| false, 0, height);
        };
        let CallGraph { callers, callees, own, recursive } =
            projection.call_graph(method, shown.metric);
        self.recursive = recursive;
        let middle = callers.len();
        // The heaviest are next to the function.
        let callers = callers.into_iter().rev().map(GraphRow::Caller);
        let own = (!own.is_empty()).then_some(GraphRow::Own(own));
        let callees = callees.into_iter().map(GraphRow::Callee);
        let rows: Vec<_> = callers.chain([GraphRow::Middle]).chain(own).chain(callees).collect();
        let is_former = |row: &GraphRow| match row.key(projection, shown) {
            GraphKey::Caller(key) | GraphKey::Callee(key) => key == self.came_from,
            GraphKey::Middle | GraphKey::Own => false,
        };
        let former = self.came_from.is_some().then(|| rows.iter().position(is_former)).flatten();
        let first = former.unwrap_or(middle);
        self.list.set(rows, |key, row| *key == row.key(projection, shown), first, height);
        if self.came_from.take().is_some() {
            self.list.step(Step::To(first), |row| Some(row.key(projection, shown)), height);
        }
    }

    /// Returns the function of a line; `None` for threads that call it.
    pub fn location<'a>(
        &self,
        row: GraphRow,
        projection: &'a Projection,
        shown: &Settings,
    ) -> Option<&'a Arc<Location>> {
        match row {
            GraphRow::Caller(of) | GraphRow::Callee(of) => location_of(of.of, projection, shown),
            GraphRow::Middle | GraphRow::Own(_) => {
                let method = projection.methods().get(self.method? as usize)?;
                Some(method.location(shown.metric))
            }
        }
    }

    /// Returns the time of a line.
    pub fn totals(&self, row: GraphRow, projection: &Projection) -> Option<Totals> {
        let method = projection.methods().get(self.method? as usize)?;
        Some(match row {
            GraphRow::Caller(of) | GraphRow::Callee(of) => of.total,
            GraphRow::Middle => method.total,
            GraphRow::Own(own) => own,
        })
    }
}

impl GraphRow {
    pub fn key(self, projection: &Projection, shown: &Settings) -> GraphKey {
        let key = |of: Neighbour| {
            let location = location_of(of.of, projection, shown);
            location.map(|location| RowKey::of(location, shown.roll_up))
        };
        match self {
            GraphRow::Caller(of) => GraphKey::Caller(key(of)),
            GraphRow::Callee(of) => GraphKey::Callee(key(of)),
            GraphRow::Own(_) => GraphKey::Own,
            GraphRow::Middle => GraphKey::Middle,
        }
    }
}

fn location_of<'a>(
    of: NeighbourOf,
    projection: &'a Projection,
    shown: &Settings,
) -> Option<&'a Arc<Location>> {
    match of {
        NeighbourOf::Thread => None,
        NeighbourOf::Method(method) => {
            Some(projection.methods()[method as usize].location(shown.metric))
        }
        NeighbourOf::Entry(node) => Some(projection.location(node, shown.metric)),
    }
}
