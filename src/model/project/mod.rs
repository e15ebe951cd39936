//! Facts + settings -> what is shown. Pure functions; the same facts give the same projection.

mod collapse;
mod confidence;
mod totals;

use std::sync::Arc;

use super::frame::{Ns, ThreadKey};
use super::settings::Settings;
use super::snapshot::Snapshot;
use super::tables::Location;

pub use collapse::{Chain, chain, heaviest, hottest_group, hottest_path, is_drawn, swallowed_by};
pub use confidence::{Confidence, HITS_NEEDED, confidence, seconds_for_one_percent};
pub use totals::Totals;

/// A node of a call tree: one row (function or line) on one path. Indexes are into [`Projection::nodes`].
#[derive(Clone, Debug)]
pub struct Node {
    /// `None` for a group's root.
    pub parent: Option<u32>,
    /// What the row is called; under roll-up function `line` is the heaviest line of the node (tie: lowest).
    pub location: Arc<Location>,
    pub total: Totals,
    /// Stacks whose innermost shown frame is this node.
    pub own: Totals,
    /// Sorted as the settings ask.
    pub children: Vec<u32>,
}

/// The threads that are shown under one name.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: Arc<str>,
    pub threads: Vec<GroupThread>,
    /// `own` and the totals of all roots.
    pub total: Totals,
    /// Stacks of which the hide filter left nothing; they have no root.
    pub own: Totals,
    /// Outermost frames, sorted.
    pub roots: Vec<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupThread {
    pub thread: ThreadKey,
    /// Its newest name in the range.
    pub name: Arc<str>,
}

/// A row of the methods view: a function (or line), all its frames summed; a recursive function counts once per stack.
#[derive(Clone, Debug)]
pub struct Method {
    pub location: Arc<Location>,
    pub total: Totals,
    pub own: Totals,
    /// Distinct threads it was seen in.
    pub threads: u32,
}

/// What filters and idle hide: shown + hidden = everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hidden {
    pub idle: Totals,
    /// Distinct threads that were idle for the whole range.
    pub idle_threads: u32,
    /// Hidden by focus, by ignore, by threads: each stack counts for the first that hides it, in the order
    /// threads, focus, ignore, idle.
    pub threads: Totals,
    pub focus: Totals,
    pub ignore: Totals,
}

#[derive(Clone, Debug)]
pub struct Projection {
    /// The range that was read, on CLOCK_MONOTONIC; widened to whole buckets at its start.
    pub from: Ns,
    pub till: Ns,
    /// Everything shown: 100 %.
    pub total: Totals,
    pub hidden: Hidden,
    /// True where idle time is shown only because nothing else was left.
    pub only_idle: bool,
    pub groups: Vec<Group>,
    pub nodes: Vec<Node>,
    pub methods: Vec<Method>,
}

impl Projection {
    /// What THR and CPU are averaged over, ns.
    pub fn elapsed(&self) -> Ns {
        self.till.saturating_sub(self.from)
    }
}

/// Reads `snapshot`'s history under `settings`. For a view that is drawn again and again see [`Projector`].
pub fn project(snapshot: &Snapshot, settings: &Settings) -> Projection {
    Projector::default().project(snapshot, settings)
}

/// Projects again and again, and keeps what does not change between two looks at one session: names of frames and
/// threads, and what the filters say of them. The result is the same as [`project`]'s for any order of calls with ever
/// newer snapshots; whatever another session or other settings make stale is dropped.
#[derive(Default)]
pub struct Projector {}

impl Projector {
    pub fn project(&mut self, snapshot: &Snapshot, settings: &Settings) -> Projection {
        let _ = (snapshot, settings);
        Projection {
            from: 0,
            till: 0,
            total: Totals::default(),
            hidden: Hidden::default(),
            only_idle: false,
            groups: Vec::new(),
            nodes: Vec::new(),
            methods: Vec::new(),
        }
    }
}
