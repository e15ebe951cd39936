//! The view of threads: one row per thread or group of threads.

use super::list::{List, Step};
use super::row_path::GroupKey;
use super::rows::is_shown;
use crate::model::projection::Projection;
use crate::model::projection::settings::Settings;

#[derive(Clone, Debug, Default)]
pub struct ThreadList {
    /// Indexes into the projection's groups.
    pub rows: Vec<u32>,
    pub list: List,
    /// By group: the node of the function that it is mostly in; see
    /// [`Projection::main_functions`].
    pub functions: Vec<Option<u32>>,
    /// `None`: the first row, whichever it is.
    selected: Option<GroupKey>,
}

impl ThreadList {
    /// Reads the rows of a new projection, or in another order.
    pub fn reshape(&mut self, projection: &Projection, shown: &Settings, height: usize) {
        let groups = &projection.groups;
        let is_row = |group: &u32| is_shown(projection, shown, &groups[*group as usize].total);
        self.rows = projection.ordered(shown).groups().into_iter().filter(is_row).collect();
        self.functions = projection.main_functions(shown.metric);
        let is_selected = |group: &u32, key: &GroupKey| {
            GroupKey::of(&groups[*group as usize], &shown.grouping) == *key
        };
        let cursor = match &self.selected {
            None => Some(0),
            Some(key) => self.rows.iter().position(|group| is_selected(group, key)),
        };
        self.list.follow(cursor.unwrap_or(self.list.cursor), self.rows.len(), height);
    }

    /// Returns the group under the cursor.
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
        let key = |group: u32| GroupKey::of(&projection.groups[group as usize], &shown.grouping);
        self.selected = self.selected().map(key);
    }
}
