//! The view of threads: one row per thread or group of threads.

use super::keyed_list::KeyedList;
use super::row_path::GroupKey;
use super::rows::is_shown;
use crate::model::projection::Projection;
use crate::model::projection::settings::Settings;

/// Indexes into the projection's groups.
pub type ThreadList = KeyedList<u32, GroupKey>;

impl ThreadList {
    /// Reads the rows of a new projection, or in another order.
    pub fn read(&mut self, projection: &Projection, shown: &Settings, height: usize) {
        let groups = &projection.groups;
        let is_row = |group: &u32| is_shown(projection, shown, &groups[*group as usize].total);
        let rows = projection.ordered(shown).groups().into_iter().filter(is_row).collect();
        let is = |of: &GroupKey, group: u32| *of == key(group, projection, shown);
        self.set(rows, is, 0, height);
    }
}

/// Returns what identifies a group across projections.
pub fn key(group: u32, projection: &Projection, shown: &Settings) -> GroupKey {
    GroupKey::of(&projection.groups[group as usize], &shown.grouping)
}
