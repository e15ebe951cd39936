//! What was chosen last, in whichever view, and which views have it.

use std::collections::HashMap;

use super::pane::Pane;
use super::row_path::{GroupKey, Path, RowKey};

/// What the user chose last, and which views have it.
#[derive(Default)]
pub(super) struct Carried {
    /// The cursor of the displayed view was moved there.
    pub moved: bool,
    pub choice: Option<Chosen>,
    /// Number of choices so far.
    pub number: u32,
    /// By view: the number of the last choice that it has.
    pub taken: HashMap<Pane, u32>,
}

/// A row that was chosen in a view.
#[derive(Clone)]
pub(super) struct Chosen {
    pub pane: Pane,
    pub function: Option<RowKey>,
    pub group: Option<GroupKey>,
    /// Of the upright trees, where the row stands for one stack.
    pub path: Option<Path>,
}
