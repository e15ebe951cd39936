//! The methods view: one row per function, all its callers summed.

use super::list::{List, Step};
use super::row_path::RowKey;
use super::rows::is_shown;
use crate::model::projection::Projection;
use crate::model::projection::settings::Settings;

#[derive(Clone, Debug, Default)]
pub struct MethodList {
    /// Indexes into the projection's methods.
    pub rows: Vec<u32>,
    pub list: List,
    /// `None`: the first row, whichever it is.
    selected: Option<RowKey>,
}

impl MethodList {
    /// Reads the rows of a new projection, or in another order.
    pub fn reshape(&mut self, projection: &Projection, shown: &Settings, height: usize) {
        let methods = projection.methods();
        let is_row = |method: &u32| is_shown(projection, shown, &methods[*method as usize].total);
        self.rows = projection.ordered(shown).methods().into_iter().filter(is_row).collect();
        let is_selected = |key: &RowKey, method: u32| {
            key.is(methods[method as usize].location(shown.metric), shown.roll_up)
        };
        let cursor = match &self.selected {
            None => Some(0),
            Some(key) => self.rows.iter().position(|method| is_selected(key, *method)),
        };
        self.list.follow(cursor.unwrap_or(self.list.cursor), self.rows.len(), height);
    }

    /// Returns the method under the cursor.
    pub fn selected(&self) -> Option<u32> {
        self.rows.get(self.list.cursor).copied()
    }

    pub fn step(&mut self, step: Step, projection: &Projection, shown: &Settings, height: usize) {
        self.list.step(step, self.rows.len(), height);
        self.select(projection, shown);
        if step == Step::First {
            self.selected = None;
        }
    }

    /// Goes to a row.
    pub fn go_to(&mut self, row: usize, projection: &Projection, shown: &Settings, height: usize) {
        self.list.cursor = row;
        self.list.show(self.rows.len(), height);
        self.select(projection, shown);
    }

    fn select(&mut self, projection: &Projection, shown: &Settings) {
        let location = |method: u32| projection.methods()[method as usize].location(shown.metric);
        let key = |method| RowKey::of(location(method), shown.roll_up);
        self.selected = self.selected().map(key);
    }
}
