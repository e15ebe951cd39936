//! Converts facts and settings to groups, trees and tables. Pure functions: equal facts give equal
//! projections. Independent of screens and files.
//!
//! ```text
//! settings               all choices of the user about what is shown
//! fact_reader, rows      history -> cells by group and row; samples: stacks one by one
//! allocation, exceptions functions that allocate, and that throw
//! exit                   where a stack leaves the user's code
//! busy_time              sums of facts by exit, and of what memory took
//! busy_threads, peaks    busy threads in each bucket of history; which buckets stand out
//! collection             CPU time of garbage collection
//! common_waits           where threads wait most
//! group, units           groups of threads, roll-ups of functions; filter: hides stacks and frames
//! goroutine_start        the function that a goroutine was started with
//! group_parts            the groups of a range with their threads
//! roles                  whose code a frame is
//! idle_marks, idle       waiting for work, by lists of frames
//! base_marks             functions at the base of a thread, by lists
//! go_base                the same of a goroutine
//! thread_base            waiting for work, by the place in the thread
//! wait_call              the call in which a stack waits
//! libraries              which library a function belongs to
//! kernel_entry           functions at which a thread enters the kernel
//! safepoint              safepoint stops of a Java virtual machine
//! shown_stacks           the shown frames of each stack
//! projector              makes projections, and keeps what the next one can use again
//! visit                  the time at each location of a path
//! tree, nodes, totals    the tree and its sums; methods, lines, columns: tables
//! now                    what the threads do now, in all and by group: busy or waiting for work
//! main_functions         the function of each group that most of its time is spent in
//! inverted               the tree from the innermost functions to their callers
//! graph                  the callers and callees of a function
//! function_time          the time of a function by line and by place in its code
//! observed               what the threads were found to wait for
//! row_order, collapse    the order of rows, several calls on one line
//! trend                  time of rows over the range
//! timeline               what threads did when, in columns and as a sequence
//! confidence             precision of a figure
//! findings               the sentences above the rows
//! sampling_error         whether two figures differ
//! label                  what a row is called
//! locks, node_waits      what the threads waited for, who held it, and where; by node
//! long_waits             the long waits of the range, one by one
//! holder_words           who held it, in words
//! waits, monitor         what a blocked thread waits for, as text; entering a Java monitor
//! ```

mod allocation;
mod base_marks;
mod bursts;
mod busy_threads;
mod busy_time;
mod changes;
mod collapse;
mod collection;
mod columns;
mod common_waits;
mod confidence;
mod exceptions;
mod exit;
mod fact_reader;
mod filter;
mod findings;
mod function_time;
mod go_base;
mod goroutine_start;
mod graph;
mod group;
mod group_parts;
mod holder_words;
mod holders;
mod idle;
mod idle_marks;
mod inverted;
mod kernel_entry;
mod label;
mod libraries;
mod lines;
mod lock_identity;
mod locks;
mod long_waits;
mod main_functions;
mod methods;
mod monitor;
mod native;
mod node;
mod node_waits;
mod nodes;
mod now;
mod observed;
mod peaks;
mod places;
mod projector;
mod python;
mod roles;
mod row_order;
mod rows;
mod safepoint;
mod samples;
pub(in crate::model) mod sampling_error;
pub mod settings;
mod shown_stacks;
mod thread_base;
pub mod timeline;
mod totals;
mod tree;
mod trend;
mod units;
mod unnamed;
mod visit;
mod wait_call;
pub mod waits;
mod wakers;

#[cfg(test)]
pub(crate) mod test_projections;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;

use crate::model::facts::tables::Location;
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::frame::{Ns, ThreadKey, ThreadKind};

pub(in crate::model) use base_marks::mark as base_mark;
pub use bursts::Bursts;
pub use busy_threads::{BusyBucket, BusyThreads};
pub use collapse::{Chain, chain, heaviest, is_drawn, is_small, swallowed_by};
pub use collection::Collection;
pub use common_waits::{Busy, CommonWait};
pub use confidence::{Confidence, HITS_NEEDED, confidence, seconds_for_one_percent};
pub use filter::role_of;
pub use findings::{
    About, Finding, Kind, More, Wording, asked as asked_for_findings, findings, written_findings,
};
pub use function_time::{CodePlace, FunctionKey, FunctionTime, SourceLine, TimeAt};
pub use graph::{CallGraph, Neighbour, NeighbourOf};
pub(in crate::model) use group::OF_PROCESS;
pub use group::{ALL, GO_RUNTIME, INTERNAL, NO_LABELS, NO_MATCH, UNKNOWN_GOROUTINE};
pub use holder_words::{held_by, holder_words};
pub use holders::{HolderNow, WaitChain};
pub(in crate::model) use idle_marks::{Mark, mark};
pub use label::{Label, label};
pub use locks::{HeldBy, Lock, Stuck, Waiter, noun};
pub use long_waits::LongWait;
pub use methods::{Hottest, Method};
pub(in crate::model) use monitor::is_enter as is_monitor_enter;
pub use native::remove_hidden;
pub use node_waits::{MainHolder, WaitOfNode, WaitedFor};
pub use nodes::Siblings;
pub use now::{GroupNow, Now};
pub use observed::{CommonObject, ObservedPlace};
pub use places::Place;
pub use projector::{Projector, project};
pub(in crate::model) use python::{is_glue, is_interpreter};
pub(in crate::model) use roles::role;
pub use row_order::{Node, Ordered};
pub use samples::{Frame, Sample, Samples, samples};
pub use totals::Totals;
pub use trend::{RowOf, RowTrend, SLICES};
pub use units::is_of;
pub use wakers::{WakersPlace, Who, WokenBy, WokenThread, call_name, woken_threads};

/// Threads that are shown under one name.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: Arc<str>,
    pub threads: Vec<GroupThread>,
    /// `own` and the totals of all roots.
    pub total: Totals,
    /// Time of stacks whose frames are all hidden by the hide filter; they have no root.
    pub own: Totals,
    /// The first of its outermost frames, or [`columns::NONE`].
    first_root: u32,
}

impl Group {
    /// Returns how many of its threads are told apart, and whether there are others, which have
    /// exited.
    pub(super) fn known_threads(&self) -> (usize, bool) {
        let known = self.threads.iter().filter(|of| !of.thread.is_unknown()).count();
        (known, known < self.threads.len())
    }

    /// Returns how many threads it has: `12 threads`, or `12+ threads` where others have exited
    /// that were not told apart; of goroutines `12 goroutines`.
    pub fn thread_count(&self) -> String {
        let (known, others) = self.known_threads();
        let noun = match self.threads.iter().any(|of| of.thread.is_goroutine()) {
            true => "goroutine",
            false => "thread",
        };
        match (known, others) {
            (0, _) => format!("exited {noun}s"),
            (1, false) => format!("1 {noun}"),
            (_, false) => format!("{known} {noun}s"),
            (_, true) => format!("{known}+ {noun}s"),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupThread {
    pub thread: ThreadKey,
    /// Its newest name in the range.
    pub name: Arc<str>,
    pub kind: ThreadKind,
}

/// Time that filters and idle hide: shown + hidden = everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hidden {
    pub idle: Totals,
    /// Distinct threads that were idle for the whole range.
    pub idle_threads: u32,
    /// Hidden by a filter, and idle anyway: without the filter it would be hidden, too.
    pub filtered_idle: Totals,
    /// Other time hidden by threads, daemons, focus, ignore, gil. Each stack counts for the first
    /// that hides it, in the order threads, daemons, focus, ignore, gil, idle.
    pub threads: Totals,
    pub daemons: Totals,
    pub focus: Totals,
    pub ignore: Totals,
    pub gil: Totals,
}

impl Hidden {
    fn settle_off(&mut self) {
        let Hidden { idle, idle_threads: _, filtered_idle, threads, daemons, .. } = self;
        let Hidden { focus, ignore, gil, .. } = self;
        let parts = [idle, filtered_idle, threads, daemons, focus, ignore, gil];
        parts.into_iter().for_each(Totals::settle_off);
    }

    /// Returns all hidden parts.
    pub fn parts(&self) -> [&Totals; 7] {
        let [threads, daemons, focus, ignore, gil] = self.by_filters();
        [threads, daemons, focus, ignore, gil, &self.idle, &self.filtered_idle]
    }

    /// Returns what filters hide that would be shown without them, in the order of precedence.
    pub fn by_filters(&self) -> [&Totals; 5] {
        [&self.threads, &self.daemons, &self.focus, &self.ignore, &self.gil]
    }
}

/// The program's thread with most CPU time in a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Busiest {
    pub name: Arc<str>,
    pub cpu_ns: u64,
    /// As in [`Projection::seen`].
    thread: u32,
}

/// The facts of a range as groups, call trees and methods. Independent of metric and order:
/// [`Projection::ordered`] reads it under any of them.
#[derive(Clone)]
pub struct Projection {
    /// The range that was read, on CLOCK_MONOTONIC; widened to whole buckets at its start.
    pub from: Ns,
    pub till: Ns,
    /// Everything shown: 100 %.
    pub total: Totals,
    pub hidden: Hidden,
    /// Idle time is shown only because nothing else is left.
    pub only_idle: bool,
    /// What the threads do at the time of the snapshot, whatever the range.
    pub now: Now,
    pub collection: Collection,
    /// CPU time that no observed thread had, whatever the filters: mostly of threads that began and
    /// ended between two observations.
    pub short_lived_cpu_ns: u64,
    pub busy: Busy,
    /// The program's thread that ran most.
    pub busiest: Option<Busiest>,
    /// Wall time of shown stacks with frames whose names are still read.
    unnamed_ns: u64,
    /// Wall time in which threads that pass the filters were not observed. Waits in it are hidden
    /// as idle.
    unobserved_ns: u64,
    /// What shown threads waited for, where that is known; most waited time first.
    pub locks: Vec<Lock>,
    locks_of_nodes: node_waits::LocksOfNodes,
    /// Waits of shown threads of at least 10 ms and one sampling interval; the longest first.
    pub long_waits: Vec<LongWait>,
    /// Number of other long waits, which are shorter than these. Some may be counted twice.
    pub long_waits_dropped: u64,
    pub deadlocks: Vec<Vec<Stuck>>,
    /// Those for which others wait at the time of the snapshot.
    holders: BTreeMap<ThreadKey, HolderNow>,
    /// What shown threads were found to wait for, the most frequent first.
    pub observed: Vec<ObservedPlace>,
    /// Keys of labels that the program gives to its work, in order, at most 8; whatever the range.
    pub label_keys: Vec<Arc<str>>,
    /// Ordered by name.
    pub groups: Vec<Group>,
    /// What the threads of each group do at the time of the snapshot, by index of the group.
    pub now_of_groups: Vec<GroupNow>,
    nodes: nodes::Nodes,
    /// (thread, node), ordered by thread: the nodes in which each thread was seen.
    seen: Vec<(u32, u32)>,
    /// The threads that `seen` refers to.
    threads: Vec<ThreadKey>,
    /// By node: the index of its method, or [`columns::NONE`].
    method_of: OnceLock<Vec<u32>>,
    methods: OnceLock<Vec<Method>>,
    /// By metric.
    main_functions: [OnceLock<Vec<Option<u32>>>; Metric::ALL.len()],
    hottest: OnceLock<Option<Hottest>>,
    mostly_within: OnceLock<Option<Hottest>>,
    alone_in: OnceLock<Option<(u32, u64)>>,
    trend: Option<trend::Trend>,
    /// The same groups with inverted trees, if they were wanted: roots are the innermost functions,
    /// and below each stand its callers. It has only groups, nodes, trends and totals.
    inverted: Option<Box<Projection>>,
    /// By metric.
    changes: [changes::Changes; Metric::ALL.len()],
}

impl Projection {
    /// Returns an empty projection.
    pub fn nothing() -> Projection {
        Projection {
            from: 0,
            till: 0,
            total: Totals::default(),
            hidden: Hidden::default(),
            only_idle: false,
            now: Now::default(),
            collection: Collection::default(),
            short_lived_cpu_ns: 0,
            busy: Busy::default(),
            busiest: None,
            unnamed_ns: 0,
            unobserved_ns: 0,
            locks: Vec::new(),
            locks_of_nodes: node_waits::LocksOfNodes::default(),
            long_waits: Vec::new(),
            long_waits_dropped: 0,
            deadlocks: Vec::new(),
            holders: BTreeMap::new(),
            observed: Vec::new(),
            label_keys: Vec::new(),
            groups: Vec::new(),
            now_of_groups: Vec::new(),
            nodes: nodes::Nodes::default(),
            seen: Vec::new(),
            threads: Vec::new(),
            method_of: OnceLock::new(),
            methods: OnceLock::new(),
            main_functions: Default::default(),
            hottest: OnceLock::new(),
            mostly_within: OnceLock::new(),
            alone_in: OnceLock::new(),
            trend: None,
            inverted: None,
            changes: Default::default(),
        }
    }

    /// Returns the inverted trees, if they were wanted.
    pub fn inverted(&self) -> Option<&Projection> {
        self.inverted.as_deref()
    }

    /// Returns the flat table; computes it at the first call.
    pub fn methods(&self) -> &[Method] {
        let methods = || methods::methods(&self.nodes, &self.groups, &self.seen, self.method_of());
        self.methods.get_or_init(methods)
    }

    /// Returns the index into the methods, by node; [`columns::NONE`] for a node of none.
    fn method_of(&self) -> &[u32] {
        self.method_of.get_or_init(|| methods::methods_of(&self.nodes))
    }

    /// Returns the method with half of the CPU time or more as self time.
    pub fn hottest(&self) -> Option<&Hottest> {
        let half = self.total.cpu_ns.div_ceil(2);
        let hottest = || methods::hottest(&self.nodes, &self.groups, &self.seen, half);
        self.hottest.get_or_init(hottest).as_ref()
    }

    /// Returns the user's method in which, with what it calls, most of the CPU time is, where none
    /// has half of it as self time. See [`methods::mostly_within`].
    pub fn mostly_within(&self) -> Option<&Hottest> {
        let cpu_ns = self.total.cpu_ns;
        let within = || match self.hottest() {
            Some(_) => None,
            None => methods::mostly_within(&self.nodes, &self.groups, &self.seen, cpu_ns),
        };
        self.mostly_within.get_or_init(within).as_ref()
    }

    /// Returns the method of each node; `None` for the name of threads.
    pub fn method_of_nodes(&self) -> Vec<Option<u32>> {
        let index = |method: &u32| (*method != columns::NONE).then_some(*method);
        self.method_of().iter().map(index).collect()
    }

    /// Returns the node with most CPU time of its own among those that only the thread that ran
    /// most was in, and that time, ns.
    pub(super) fn busiest_alone_in(&self) -> Option<(u32, u64)> {
        let thread = self.busiest.as_ref()?.thread;
        *self.alone_in.get_or_init(|| self.nodes.alone_in(&self.seen, thread))
    }

    /// Returns the node of this function, or the nearest one above it, in which the thread was for
    /// most of the time of all that saw it.
    pub(super) fn node_of(&self, thread: ThreadKey, function: &Location) -> Option<u32> {
        let thread = self.threads.iter().position(|known| *known == thread)? as u32;
        let mut best: Option<(u64, u32)> = None;
        let from = self.seen.partition_point(|(of, _)| *of < thread);
        for (_, node) in self.seen[from..].iter().take_while(|(of, _)| *of == thread) {
            let mut at = Some(*node);
            while let Some(node) = at {
                if self.name(node).function == function.function {
                    best = best.max(Some((self.total(node).wall_ns, node)));
                }
                at = self.parent(node);
            }
        }
        best.map(|(_, node)| node)
    }

    /// Returns the threads that were in a node for which this holds.
    pub fn threads_in(&self, is_meant: &dyn Fn(u32) -> bool) -> Vec<ThreadKey> {
        // Above most nodes are the same ones.
        let mut known: FxHashMap<u32, bool> = FxHashMap::default();
        let mut threads: Vec<ThreadKey> = Vec::new();
        for (thread, node) in &self.seen {
            let key = self.threads[*thread as usize];
            if threads.last() == Some(&key) {
                continue;
            }
            let mut path = Vec::new();
            let mut at = Some(*node);
            let mut is_in = false;
            while let Some(node) = at {
                if let Some(known) = known.get(&node) {
                    is_in = *known;
                    break;
                }
                path.push(node);
                if is_meant(node) {
                    is_in = true;
                    break;
                }
                at = self.parent(node);
            }
            known.extend(path.into_iter().map(|node| (node, is_in)));
            if is_in {
                threads.push(key);
            }
        }
        threads
    }

    /// Returns the duration over which THR and CPU are averaged, ns.
    pub fn elapsed(&self) -> Ns {
        self.till.saturating_sub(self.from)
    }
}

/// Prints the contents independent of their representation: equal for equal projections.
impl fmt::Debug for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = (0..self.node_count()).map(|node| {
            let children: Vec<u32> = self.children(node).collect();
            (
                self.node(node, Metric::Wall),
                Metric::ALL.map(|metric| self.location(node, metric)),
                children,
            )
        });
        f.debug_struct("Projection")
            .field("from", &self.from)
            .field("till", &self.till)
            .field("total", &self.total)
            .field("hidden", &self.hidden)
            .field("only_idle", &self.only_idle)
            .field("now", &self.now)
            .field("long_waits", &(&self.long_waits, self.long_waits_dropped))
            .field("groups", &self.groups)
            .field("now_of_groups", &self.now_of_groups)
            .field("nodes", &nodes.collect::<Vec<_>>())
            .field("methods", &self.methods())
            .field("inverted", &self.inverted)
            .finish()
    }
}
