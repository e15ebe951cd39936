//! Converts facts and settings to groups, trees and tables. Pure functions: equal facts give equal
//! projections. Independent of screens and files.
//!
//! ```text
//! settings               all choices of the user about what is shown
//! fact_reader, rows      history -> cells by group and row; samples: stacks one by one
//! allocation, exit       functions that allocate; where a stack leaves the user's code
//! busy_time              sums of facts by exit, and of what memory took
//! common_waits           where threads wait most
//! group, units           groups of threads, roll-ups of functions; filter: hides stacks and frames
//! group_parts            the groups of a range with their threads
//! roles                  whose code a frame is
//! idle_marks, idle       waiting for work, by lists of frames
//! base_marks             functions at the base of a thread, by lists
//! thread_base            waiting for work, by the place in the thread
//! wait_call              the call in which a stack waits
//! libraries              which library a function belongs to
//! kernel_entry           functions at which a thread enters the kernel
//! safepoint              safepoint stops of a Java virtual machine
//! shown_stacks           the shown frames of each stack
//! tree, nodes, totals    the tree and its sums; methods, lines, columns: tables
//! now                    what the threads do now: busy or waiting for work
//! observed               what the threads were found to wait for
//! row_order, collapse    the order of rows, several calls on one line
//! trend                  time of rows over the range
//! confidence             precision of a figure
//! findings               the sentences above the rows
//! sampling_error         whether two figures differ
//! label                  what a row is called
//! locks                  what the threads waited for, who held it, and where
//! holder_words           who held it, in words
//! waits, monitor         what a blocked thread waits for, as text; entering a Java monitor
//! ```

mod allocation;
mod base_marks;
mod bursts;
mod busy_time;
mod collapse;
mod columns;
mod common_waits;
mod confidence;
mod exit;
mod fact_reader;
mod filter;
mod findings;
mod group;
mod group_parts;
mod holder_words;
mod holders;
mod idle;
mod idle_marks;
mod kernel_entry;
mod label;
mod libraries;
mod lines;
mod lock_identity;
mod locks;
mod methods;
mod monitor;
mod nodes;
mod now;
mod observed;
mod places;
mod roles;
mod row_order;
mod rows;
mod safepoint;
mod samples;
pub(in crate::model) mod sampling_error;
pub mod settings;
mod shown_stacks;
mod thread_base;
mod totals;
mod tree;
mod trend;
mod units;
mod unnamed;
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

use crate::model::facts::snapshot::{Session, Snapshot, Target};
use crate::model::facts::tables::Location;
use crate::model::projection::settings::{Grouping, Metric, Settings};
use crate::model::vocabulary::frame::{Ns, ThreadKey, ThreadKind};

pub(in crate::model) use base_marks::mark as base_mark;
pub use bursts::Bursts;
pub use collapse::{Chain, chain, heaviest, is_drawn, is_small, swallowed_by};
pub use common_waits::{Busy, CommonWait};
pub use confidence::{Confidence, HITS_NEEDED, confidence, seconds_for_one_percent};
pub use filter::role_of;
pub use findings::{
    About, Finding, Kind, More, Wording, asked as asked_for_findings, findings, written_findings,
};
pub(in crate::model) use group::OF_PROCESS;
pub use group::{ALL, INTERNAL, NO_MATCH};
pub use holder_words::{held_by, holder_words};
pub use holders::{HolderNow, WaitChain};
pub(in crate::model) use idle_marks::{Mark, mark};
pub use label::{Label, label};
pub use locks::{HeldBy, Lock, MainHolder, Stuck, WaitOfNode, WaitedFor, noun};
pub use methods::{Hottest, Method};
pub(in crate::model) use monitor::is_enter as is_monitor_enter;
pub use nodes::Siblings;
pub use now::Now;
pub use observed::{CommonObject, ObservedPlace};
pub use places::Place;
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
    /// Hidden by threads, daemons, focus, ignore. Each stack counts for the first that hides it, in
    /// the order threads, daemons, focus, ignore, idle.
    pub threads: Totals,
    pub daemons: Totals,
    pub focus: Totals,
    pub ignore: Totals,
}

impl Hidden {
    fn settle_off(&mut self) {
        let Hidden { idle, idle_threads: _, threads, daemons, focus, ignore } = self;
        [idle, threads, daemons, focus, ignore].into_iter().for_each(Totals::settle_off);
    }

    /// Returns all hidden parts, in the order of precedence.
    pub fn parts(&self) -> [&Totals; 5] {
        [&self.threads, &self.daemons, &self.focus, &self.ignore, &self.idle]
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
    /// CPU time of threads that collect garbage, whatever the filters.
    pub collectors_cpu_ns: u64,
    pub busy: Busy,
    /// The program's thread that ran most.
    pub busiest: Option<Busiest>,
    /// Wall time of shown stacks with frames whose names are still read.
    unnamed_ns: u64,
    /// What shown threads waited for, where that is known; most waited time first.
    pub locks: Vec<Lock>,
    locks_of_nodes: locks::LocksOfNodes,
    pub deadlocks: Vec<Vec<Stuck>>,
    /// Those for which others wait at the time of the snapshot.
    holders: BTreeMap<ThreadKey, HolderNow>,
    /// What shown threads were found to wait for, the most frequent first.
    pub observed: Vec<ObservedPlace>,
    /// Ordered by name.
    pub groups: Vec<Group>,
    nodes: nodes::Nodes,
    /// (thread, node), ordered by thread: the nodes in which each thread was seen.
    seen: Vec<(u32, u32)>,
    /// The threads that `seen` refers to.
    threads: Vec<ThreadKey>,
    methods: OnceLock<Vec<Method>>,
    hottest: OnceLock<Option<Hottest>>,
    alone_in: OnceLock<Option<(u32, u64)>>,
    trend: Option<trend::Trend>,
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
            collectors_cpu_ns: 0,
            busy: Busy::default(),
            busiest: None,
            unnamed_ns: 0,
            locks: Vec::new(),
            locks_of_nodes: locks::LocksOfNodes::default(),
            deadlocks: Vec::new(),
            holders: BTreeMap::new(),
            observed: Vec::new(),
            groups: Vec::new(),
            nodes: nodes::Nodes::default(),
            seen: Vec::new(),
            threads: Vec::new(),
            methods: OnceLock::new(),
            hottest: OnceLock::new(),
            alone_in: OnceLock::new(),
            trend: None,
        }
    }

    /// Returns the flat table; computes it at the first call.
    pub fn methods(&self) -> &[Method] {
        self.methods.get_or_init(|| methods::methods(&self.nodes, &self.groups, &self.seen))
    }

    /// Returns the method with half of the CPU time or more as self time.
    pub fn hottest(&self) -> Option<&Hottest> {
        let half = self.total.cpu_ns.div_ceil(2);
        let hottest = || methods::hottest(&self.nodes, &self.groups, &self.seen, half);
        self.hottest.get_or_init(hottest).as_ref()
    }

    /// Returns the method of each node; `None` for the name of threads.
    pub fn method_of_nodes(&self) -> Vec<Option<u32>> {
        let methods_of = methods::methods_of(&self.nodes);
        methods_of.into_iter().map(|method| (method != columns::NONE).then_some(method)).collect()
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
            .field("groups", &self.groups)
            .field("nodes", &nodes.collect::<Vec<_>>())
            .field("methods", &self.methods())
            .finish()
    }
}

/// Projects `snapshot`'s history under `settings`. A view that is redrawn repeatedly uses
/// [`Projector`].
pub fn project(snapshot: &Snapshot, settings: &Settings) -> Projection {
    Projector::default().project(snapshot, settings)
}

/// Projects repeatedly and caches what rarely changes within a session: names of frames and
/// threads, the filters' results for them, and the shown frames of stacks.
///
/// The result equals [`project`]'s, for any sequence of calls with ever newer snapshots. Data that
/// another session or other settings make stale are dropped.
#[derive(Default)]
pub struct Projector {
    session: Option<Arc<Session>>,
    /// The settings that affect frames and stacks, and those that affect groups only, as text.
    rules: (String, String),
    rows: rows::Rows,
    verdicts: filter::Verdicts,
    groups: group::Groups,
    /// Names of processes at the last projection grouped by process.
    processes: Vec<(u32, Arc<str>)>,
    facts: fact_reader::Scratch,
    stacks: shown_stacks::ShownStacks,
    trees: tree::Scratch,
    /// Parts of the last trend: about as many follow.
    part_count: usize,
}

impl Projector {
    pub fn project(&mut self, snapshot: &Snapshot, settings: &Settings) -> Projection {
        self.project_facts(snapshot, settings, None, &mut |f| {
            snapshot.history.read_by_bucket(settings.range, snapshot.at, f)
        })
    }

    /// Does the same; the result also knows the trends of rows, except over all time since the
    /// start, whose facts have no time.
    pub fn project_with_trends(&mut self, snapshot: &Snapshot, settings: &Settings) -> Projection {
        let (range, at) = (settings.range, snapshot.at);
        let slices = trend::Slices::new(&snapshot.history.buckets(range, at));
        self.project_facts(snapshot, settings, slices, &mut |f| {
            snapshot.history.read_by_bucket(range, at, f)
        })
    }

    /// Does the same with facts from elsewhere; `snapshot` gives their names, `slices` those of
    /// their buckets.
    fn project_facts(
        &mut self,
        snapshot: &Snapshot,
        settings: &Settings,
        slices: Option<trend::Slices>,
        facts: &mut fact_reader::ReadFacts<'_>,
    ) -> Projection {
        self.update(snapshot, settings);
        let Projector {
            rows,
            verdicts,
            groups,
            facts: facts_scratch,
            stacks,
            trees: scratch,
            part_count,
            ..
        } = self;
        let mut shown =
            fact_reader::Reader::new(snapshot, settings, rows, verdicts, groups, facts_scratch)
                .with_trend(slices.map(|slices| trend::Trend::new(slices, *part_count)))
                .read(facts);

        // Ordered by thread.
        let shown_threads = shown.seen.chunk_by(|a, b| a.thread == b.thread);
        let shown_threads =
            shown_threads.map(|seen| shown.threads[seen[0].thread as usize]).collect();
        let now = Now::of(snapshot, verdicts, &shown_threads);

        let parts = group_parts::parts(snapshot, settings, &shown, groups);
        let mut rank = vec![0; groups.count()];
        let mut heads = Vec::with_capacity(parts.len());
        let mut members: Vec<group_parts::Part> = Vec::with_capacity(parts.len());
        for (part, place) in parts.into_iter().zip(0..) {
            rank[part.group as usize] = place;
            let inner =
                part.label.inner.as_ref().map(|name| rows.thread_row(name, settings.roll_up));
            let same = members.last_mut().filter(|before| before.belongs_with(&part));
            heads.push(tree::Head { group: part.group, joins: same.is_some(), inner });
            match same {
                Some(before) => before.join(part),
                None => members.push(part),
            }
        }
        // By group, and within it by stack: callers precede their callees, whatever the order of
        // facts.
        let cells = &shown.cells;
        let order: Vec<u32> =
            (0..).zip(cells).filter(|(_, c)| shown.is_shown(c)).map(|(at, _)| at).collect();
        let order = fact_reader::by_counting(&order, snapshot.tables.stack_count().max(1), |at| {
            cells[*at as usize].stack.0
        });
        let order = fact_reader::by_counting(&order, heads.len(), |at| {
            rank[cells[*at as usize].group as usize]
        });
        let unnamed_ns = match snapshot.health.naming {
            true => {
                unnamed::unnamed_ns(&snapshot.tables, (cells, &shown.sums), order.iter().copied())
            }
            false => 0,
        };
        let woken = rows.wants_core_row(settings.roll_up);
        let walker = shown_stacks::Walker { tables: &snapshot.tables, settings, rows, verdicts };
        let builder = tree::Builder { walker, woken, stacks, scratch };
        let trees = builder.build((cells, &shown.sums), &order, &heads);
        let attached =
            shown.seen.iter().map(|seen| (seen.thread, trees.attached[seen.cell as usize]));
        let seen: Vec<(u32, u32)> = attached.filter(|(_, node)| *node != columns::NONE).collect();

        let waited = std::mem::take(&mut shown.waited);
        // By rank: the group that it is part of.
        let member: Vec<u32> = (heads.iter())
            .scan(0, |count, head| {
                *count += u32::from(!head.joins);
                Some(*count - 1)
            })
            .collect();
        let member_of = |group: u32| member[rank[group as usize] as usize];
        let time = std::mem::take(&mut shown.busy);
        let names = (snapshot, &*rows, &*verdicts);
        let named_after_threads = matches!(settings.grouping, Grouping::Rules | Grouping::Name);
        let group_of = |group: u32| named_after_threads.then(|| member_of(group));
        let busy = Busy::of(time, names, &shown, &trees.attached, group_of);
        let (locks, locks_of_nodes) = waited.locks((snapshot, rows, verdicts), &trees.attached);
        let deadlocks = locks::deadlocks(snapshot, rows, verdicts);
        let holders = holders::holders(snapshot, rows, verdicts);
        let observed = observed::observed(names, &shown);
        let mut trend = shown.trend.take();
        if let Some(trend) = &mut trend {
            *part_count = trend.part_count();
            let group_count = members.len() as u32;
            trend.place(|cell| {
                let cell_of = &shown.cells[cell as usize];
                shown.is_shown(cell_of).then(|| match trees.attached[cell as usize] {
                    columns::NONE => member_of(cell_of.group),
                    node => group_count + node,
                })
            });
        }

        let busiest = shown.busiest.map(|busiest| Busiest {
            name: snapshot.tables.name(busiest.name).clone(),
            cpu_ns: busiest.cpu_ns,
            thread: busiest.thread,
        });

        let mut total = Totals::default();
        let mut groups = Vec::with_capacity(trees.groups.len());
        for (tree, group_parts::Part { label, threads, .. }) in
            trees.groups.into_iter().zip(members)
        {
            let name = label.name;
            total.add(&tree.total);
            groups.push(Group {
                name,
                threads,
                total: tree.total,
                own: tree.own,
                first_root: tree.first_root,
            });
        }
        let projection = Projection {
            from: shown.from,
            till: shown.till,
            total,
            hidden: shown.hidden,
            only_idle: shown.only_idle,
            now,
            collectors_cpu_ns: shown.collectors_cpu_ns,
            busy,
            busiest,
            unnamed_ns,
            locks,
            locks_of_nodes,
            deadlocks,
            holders,
            observed,
            groups,
            nodes: trees.nodes,
            seen,
            threads: std::mem::take(&mut shown.threads),
            methods: OnceLock::new(),
            hottest: OnceLock::new(),
            alone_in: OnceLock::new(),
            trend,
        };
        shown.done(facts_scratch);
        projection
    }

    /// Drops stale data and adds new frames and threads.
    fn update(&mut self, snapshot: &Snapshot, settings: &Settings) {
        if !self.session.as_ref().is_some_and(|known| Arc::ptr_eq(known, &snapshot.session)) {
            *self = Projector { session: Some(snapshot.session.clone()), ..Projector::default() };
        }
        let filters = &settings.filters;
        let frames = (
            &filters.interesting,
            &filters.focus,
            &filters.ignore,
            &filters.hide,
            filters.no_kernel,
        );
        let by_frame = match &settings.grouping {
            Grouping::Frame(pattern) => Some(pattern),
            _ => None,
        };
        let rules = format!("{by_frame:?} {frames:?} {:?} {:?}", settings.idle_at, settings.whose);
        let of_groups = format!("{:?} {:?}", settings.grouping, settings.rename);
        let change = self.rows.update(&snapshot.tables);
        self.rows.roll_up(settings.roll_up);
        if self.rules.1 != of_groups {
            self.rules.1 = of_groups;
            self.groups.forget();
        }
        let change = match self.rules.0 == rules {
            true => change,
            false => rows::Change::Roles,
        };
        self.rules.0 = rules;
        match change {
            rows::Change::Nothing => {}
            rows::Change::Names => self.verdicts.forget_paths(),
            rows::Change::Roles => self.verdicts.forget(),
        }
        if change != rows::Change::Nothing {
            self.stacks.forget();
        }
        let named = |target: &Target| (target.pid, Arc::clone(&target.command));
        let by_process = matches!(settings.grouping, Grouping::Process);
        // A process that executes another program gets its name.
        if by_process && !snapshot.targets.iter().map(named).eq(self.processes.iter().cloned()) {
            self.processes = snapshot.targets.iter().map(named).collect();
            self.groups.forget();
        }
        self.groups.bound();
        self.groups.update(snapshot, settings);
        self.verdicts.update(&snapshot.tables, &self.rows, settings);
    }
}
