//! Which of the views is displayed.

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Pane {
    /// The tree of calls.
    #[default]
    Tree,
    /// One row per function.
    Methods,
    /// The tree, compared with the baseline; in place of the tree while there is one.
    ChangedTree,
    /// The methods, compared with the baseline; in place of the methods while there is one.
    ChangedMethods,
    /// The flame graph, compared with the baseline; in place of the flame graph while there is one.
    ChangedFlame,
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
    /// The source lines or the instructions of one function. It has no place in the order of views:
    /// it is opened from a row of another one.
    Source,
}

impl Pane {
    /// All panes without a comparison, in the order of their keys.
    pub const ALL: [Pane; 7] = [
        Pane::Tree,
        Pane::Methods,
        Pane::Graph,
        Pane::Flame,
        Pane::Threads,
        Pane::Timeline,
        Pane::Waits,
    ];

    /// Returns the pane that stands for this one, with or without a comparison.
    pub fn compared(self, is_compared: bool) -> Pane {
        match (self, is_compared) {
            (Pane::Tree | Pane::ChangedTree, true) => Pane::ChangedTree,
            (Pane::Tree | Pane::ChangedTree, false) => Pane::Tree,
            (Pane::Methods | Pane::ChangedMethods, true) => Pane::ChangedMethods,
            (Pane::Methods | Pane::ChangedMethods, false) => Pane::Methods,
            (Pane::Flame | Pane::ChangedFlame, true) => Pane::ChangedFlame,
            (Pane::Flame | Pane::ChangedFlame, false) => Pane::Flame,
            (pane, _) => pane,
        }
    }

    /// Returns whether it shows trees, which may be inverted.
    pub fn has_trees(self) -> bool {
        matches!(self, Pane::Tree | Pane::Flame)
    }

    /// Returns whether it shows a comparison.
    pub fn is_compared(self) -> bool {
        matches!(self, Pane::ChangedTree | Pane::ChangedMethods | Pane::ChangedFlame)
    }

    /// Returns whether it shows bars, compared or not.
    pub fn is_flame(self) -> bool {
        matches!(self, Pane::Flame | Pane::ChangedFlame)
    }
}
