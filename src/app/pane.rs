//! Which of the views is displayed.

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pane {
    /// The tree of calls.
    #[default]
    Tree,
    /// One row per function.
    Methods,
    /// Locks, and long waits one by one.
    Waits,
}

impl Pane {
    /// All panes, in the order of their keys.
    pub const ALL: [Pane; 3] = [Pane::Tree, Pane::Methods, Pane::Waits];
}
