//! The graph view: one function in the middle, its callers above it and its callees below.

use std::sync::Arc;

use super::list::{List, Step};
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

/// Identifies a line across projections.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Key {
    Caller(Option<RowKey>),
    Own,
    Callee(Option<RowKey>),
    /// A caller or a callee: the function that was in the middle before.
    CameFrom(RowKey),
}

#[derive(Clone, Debug, Default)]
pub struct GraphView {
    pub rows: Vec<GraphRow>,
    pub list: List,
    /// The function in the middle: an index into the projection's methods. `None`: it has no time
    /// in the range.
    pub method: Option<u32>,
    /// Time of stacks that have it more than once.
    pub recursive: Totals,
    /// `None`: the function that the methods view has first.
    focus: Option<RowKey>,
    /// The functions that were in the middle before, the latest last.
    before: Vec<RowKey>,
    /// `None`: the function in the middle.
    selected: Option<Key>,
}

impl GraphView {
    /// Puts a function into the middle.
    pub fn focus(&mut self, key: RowKey) {
        if self.focus.as_ref() == Some(&key) {
            return;
        }
        self.before.extend(self.focus.replace(key));
        self.selected = None;
    }

    /// Forgets all functions: rows are named in another way now.
    pub fn forget(&mut self) {
        *self = GraphView::default();
    }

    /// Goes back to the function that was in the middle before. Returns false if there is none.
    pub fn back(&mut self) -> bool {
        let Some(before) = self.before.pop() else { return false };
        self.selected = self.focus.replace(before).map(Key::CameFrom);
        true
    }

    /// Returns the name of the function in the middle.
    pub fn focused(&self) -> Option<&str> {
        self.focus.as_ref().map(|key| &*key.function)
    }

    /// Reads the neighbours of a new projection.
    pub fn reshape(&mut self, projection: &Projection, shown: &Settings, height: usize) {
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
            self.rows.clear();
            return self.list.show(0, height);
        };
        let CallGraph { callers, callees, own, recursive } =
            projection.call_graph(method, shown.metric);
        self.recursive = recursive;
        // The heaviest are next to the function.
        let callers = callers.into_iter().rev().map(GraphRow::Caller);
        let own = (!own.is_empty()).then_some(GraphRow::Own(own));
        let callees = callees.into_iter().map(GraphRow::Callee);
        self.rows = callers.chain([GraphRow::Middle]).chain(own).chain(callees).collect();
        let is_selected =
            |key: &Key| self.rows.iter().position(|row| key.is(*row, projection, shown));
        let found = self.selected.as_ref().and_then(is_selected);
        let middle = || self.rows.iter().position(|row| *row == GraphRow::Middle);
        let cursor = found.or_else(middle).unwrap_or(0);
        self.list.follow(cursor, self.rows.len(), height);
    }

    /// Returns the line under the cursor.
    pub fn selected(&self) -> Option<GraphRow> {
        self.rows.get(self.list.cursor).copied()
    }

    pub fn step(&mut self, step: Step, projection: &Projection, shown: &Settings, height: usize) {
        self.list.step(step, self.rows.len(), height);
        self.selected = self.selected().and_then(|row| Key::of(row, projection, shown));
    }

    /// Goes to a row.
    pub fn go_to(&mut self, row: usize, projection: &Projection, shown: &Settings, height: usize) {
        self.list.cursor = row;
        self.list.show(self.rows.len(), height);
        self.selected = self.selected().and_then(|row| Key::of(row, projection, shown));
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

impl Key {
    fn is(&self, row: GraphRow, projection: &Projection, shown: &Settings) -> bool {
        match (self, Key::of(row, projection, shown)) {
            (Key::CameFrom(key), Some(Key::Caller(Some(of)) | Key::Callee(Some(of)))) => *key == of,
            (key, Some(of)) => *key == of,
            (_, None) => false,
        }
    }

    /// `None` for the function in the middle.
    fn of(row: GraphRow, projection: &Projection, shown: &Settings) -> Option<Key> {
        let key = |of: Neighbour| {
            let location = location_of(of.of, projection, shown);
            location.map(|location| RowKey::of(location, shown.roll_up))
        };
        match row {
            GraphRow::Caller(of) => Some(Key::Caller(key(of))),
            GraphRow::Callee(of) => Some(Key::Callee(key(of))),
            GraphRow::Own(_) => Some(Key::Own),
            GraphRow::Middle => None,
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
