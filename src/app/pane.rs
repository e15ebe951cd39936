//! Which of the views is displayed.

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pane {
    /// The tree of calls.
    #[default]
    Tree,
    /// One row per function.
    Methods,
    /// One function, with its callers and callees.
    Graph,
    /// Bars as wide as their share of the time, callees below their callers.
    Flame,
    /// One row per thread or group of threads.
    Threads,
    /// What the threads of a group did when.
    Timeline,
    /// Locks, and long waits one by one.
    Waits,
}

impl Pane {
    /// All panes, in the order of their keys.
    pub const ALL: [Pane; 7] = [
        Pane::Tree,
        Pane::Methods,
        Pane::Graph,
        Pane::Flame,
        Pane::Threads,
        Pane::Timeline,
        Pane::Waits,
    ];
}
