//! Facts + settings -> what is shown. Pure functions; the same facts give the same projection.

use std::sync::Arc;

use super::frame::{Ns, ThreadKey};
use super::settings::Settings;
use super::snapshot::Snapshot;
use super::state::State;
use super::tables::Location;

/// Sums over a set of stacks. `wall_ns` and `cpu_ns` are always both there; the metric only chooses what is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    pub wall_ns: u64,
    pub cpu_ns: u64,
    pub hits: u64,
    pub cpu_hits: u64,
    pub longest_ns: u64,
    pub longest_from: Ns,
    /// Wall time by state, indexed by [`State`]; sums to `wall_ns`.
    pub states_ns: [u64; State::COUNT],
}

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
    pub total: Totals,
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

/// How sure a row is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Confidence {
    /// Wilson 95 % interval of the on-CPU share, 0..=1; waits are measured, to one interval each.
    pub low: f64,
    pub high: f64,
    /// hits < 10 and weight per hit under 10 intervals: drawn dim with `~`.
    pub unresolved: bool,
}

/// Reads `snapshot`'s history under `settings`.
pub fn project(snapshot: &Snapshot, settings: &Settings) -> Projection {
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
