//! The methods view: one row per function, all its callers summed.

use super::keyed_list::KeyedList;
use super::row_path::RowKey;
use super::rows::is_shown;
use crate::model::projection::Projection;
use crate::model::projection::settings::Settings;

/// Indexes into the projection's methods.
pub type MethodList = KeyedList<u32, RowKey>;

impl MethodList {
    /// Reads the rows of a new projection, or in another order.
    pub fn read(&mut self, projection: &Projection, shown: &Settings, height: usize) {
        let methods = projection.methods();
        let is_row = |method: &u32| is_shown(projection, shown, &methods[*method as usize].total);
        let rows = projection.ordered(shown).methods().into_iter().filter(is_row).collect();
        let location = |method: u32| methods[method as usize].location(shown.metric);
        let is = |key: &RowKey, method: u32| key.is(location(method), shown.roll_up);
        self.set(rows, is, 0, height);
    }
}

/// Returns what identifies a method across projections.
pub fn key(method: u32, projection: &Projection, shown: &Settings) -> RowKey {
    RowKey::of(projection.methods()[method as usize].location(shown.metric), shown.roll_up)
}
