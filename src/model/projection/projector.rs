//! Makes projections, and keeps what the next one can use again.

use std::sync::{Arc, OnceLock};

use super::busy_threads::BusyThreads;
use super::common_waits::Busy;
use super::node_waits::LocksOfNodes;
use super::now::{GroupNow, Now};
use super::totals::Totals;
use super::{
    Busiest, Group, Projection, columns, fact_reader, filter, group, group_parts, holders,
    inverted, locks, observed, rows, shown_stacks, tree, trend, unnamed,
};
use crate::model::facts::snapshot::{Session, Snapshot, Target};
use crate::model::projection::settings::{Grouping, Settings};

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
    rules: Rules,
    pub(super) rows: rows::Rows,
    pub(super) verdicts: filter::Verdicts,
    pub(super) groups: group::Groups,
    /// Names of processes at the last projection grouped by process.
    processes: Vec<(u32, Arc<str>)>,
    pub(super) facts: fact_reader::Scratch,
    pub(super) stacks: shown_stacks::ShownStacks,
    pub(super) trees: tree::Scratch,
    /// Of an earlier projection; as [`Projection::seen`].
    seen: Vec<(u32, u32)>,
    trend: Option<trend::Trend>,
    pub(super) busy_threads: Arc<BusyThreads>,
}

/// The settings that cached results depend on, as text.
#[derive(Default)]
struct Rules {
    frames: String,
    groups: String,
    /// What is idle.
    idle: String,
}

/// Returns the nodes in which each thread was seen, as [`Projection::seen`]. `attached`: by cell.
fn seen_at<'a>(
    shown: &'a fact_reader::Shown,
    attached: &'a [u32],
) -> impl Iterator<Item = (u32, u32)> + 'a {
    let seen = shown.seen.iter().map(|seen| (seen.thread, attached[seen.cell as usize]));
    seen.filter(|(_, node)| *node != columns::NONE)
}

impl Projector {
    /// Takes the memory of a projection that is not shown any more. The next one is about as
    /// large; pages that went to the kernel meanwhile would come back one page fault at a time.
    pub fn reuse(&mut self, old: Projection) {
        let Projection { mut nodes, seen, trend, .. } = old;
        // What the first projection replaces has no columns.
        if nodes.len() == 0 {
            return;
        }
        self.facts.sums = std::mem::take(&mut nodes.owns);
        // Names were found since: this copy is not needed any more.
        nodes.places = Arc::default();
        self.trees.nodes = nodes;
        self.seen = seen;
        self.trend = trend;
    }

    pub fn project(&mut self, snapshot: &Snapshot, settings: &Settings) -> Projection {
        self.project_facts(snapshot, settings, None, &mut |f| {
            snapshot.history.read_by_bucket(settings.range, snapshot.at, f)
        })
    }

    /// Does the same; the result also knows the trends of rows, except over all time since the
    /// start, whose facts have no time.
    pub fn project_with_trends(&mut self, snapshot: &Snapshot, settings: &Settings) -> Projection {
        let (range, at) = (settings.range, snapshot.at);
        let buckets = snapshot.history.buckets(range, at);
        let slices = trend::Slices::new(&buckets, snapshot.resolution());
        self.project_facts(snapshot, settings, slices, &mut |f| {
            snapshot.history.read_by_bucket(range, at, f)
        })
    }

    /// Does the same with facts from elsewhere; `snapshot` gives their names, `slices` those of
    /// their buckets.
    pub(super) fn project_facts(
        &mut self,
        snapshot: &Snapshot,
        settings: &Settings,
        slices: Option<trend::Slices>,
        facts: &mut fact_reader::ReadFacts<'_>,
    ) -> Projection {
        let without_now;
        let snapshot = match snapshot.history.is_past(settings.range) {
            true => {
                without_now = snapshot.without_now();
                &without_now
            }
            false => snapshot,
        };
        self.update(snapshot, settings);
        let Projector {
            rows,
            verdicts,
            groups,
            facts: facts_scratch,
            stacks,
            trees: scratch,
            seen: old_seen,
            trend: old_trend,
            ..
        } = self;
        let mut shown =
            fact_reader::Reader::new(snapshot, settings, rows, verdicts, groups, facts_scratch)
                .with_trend(slices.map(|slices| trend::Trend::new(slices, old_trend.take())))
                .read(facts);

        // Ordered by thread.
        let shown_threads = shown.seen.chunk_by(|a, b| a.thread == b.thread);
        let shown_threads =
            shown_threads.map(|seen| shown.threads[seen[0].thread as usize]).collect();
        let now = Now::of(snapshot, verdicts, &shown_threads);

        let parts = group_parts::parts(snapshot, settings, &shown, groups);
        let mut rank = vec![columns::NONE; groups.count()];
        let mut heads = Vec::with_capacity(parts.len());
        let mut members: Vec<group_parts::Part> = Vec::with_capacity(parts.len());
        for (part, place) in parts.into_iter().zip(0..) {
            rank[part.group as usize] = place;
            let inner =
                part.label.inner.as_ref().map(|name| rows.thread_row(name, settings.roll_up));
            let same = members.last_mut().filter(|before| before.belongs_with(&part));
            heads.push(tree::Head { joins: same.is_some(), inner });
            match same {
                Some(before) => before.join(part),
                None => members.push(part),
            }
        }
        // By group, and within it by stack: callers precede their callees, whatever the order of
        // facts.
        let cells = &shown.cells;
        let order: Vec<tree::InOrder> = (0..)
            .zip(cells)
            .filter(|(_, cell)| shown.is_shown(cell))
            .map(|(at, cell)| tree::InOrder {
                cell: at,
                stack: cell.stack,
                head: rank[cell.group as usize],
            })
            .collect();
        let stack_count = snapshot.tables.stack_count().max(1);
        let order = fact_reader::by_counting(&order, stack_count, |next| next.stack.0);
        let order = fact_reader::by_counting(&order, heads.len(), |next| next.head);
        let unnamed_ns = match snapshot.health.naming {
            true => {
                let stacks = order.iter().map(|next| (next.stack, next.cell));
                unnamed::unnamed_ns(&snapshot.tables, &shown.sums, stacks)
            }
            false => 0,
        };
        let woken = rows.wants_core_row(settings.roll_up);
        let no_room = settings.inverted.then(|| rows.no_room_row(settings.roll_up));
        let walker = shown_stacks::Walker { tables: &snapshot.tables, settings, rows, verdicts };
        let builder = tree::Builder { walker, woken, stacks, scratch };
        let sums = std::mem::take(&mut shown.sums);
        let trees = builder.build((cells, sums), &order, &heads);
        let inverted_trees = no_room.map(|no_room| {
            let walker =
                shown_stacks::Walker { tables: &snapshot.tables, settings, rows, verdicts };
            let extra = inverted::Extra { woken, no_room };
            inverted::build((&walker, stacks), (cells, &trees.nodes), &order, &heads, &extra)
        });
        let mut seen = std::mem::take(old_seen);
        seen.clear();
        seen.extend(seen_at(&shown, &trees.attached));

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
        let is_shown =
            |group: &u32| rank.get(*group as usize).is_some_and(|at| *at != columns::NONE);
        let place = |group: u32| Some(group).filter(is_shown).map(member_of);
        let now_of_groups = GroupNow::of_groups(names, settings, groups, members.len(), place);
        let group_of = |group: u32| groups.is_named_after_threads(group).then(|| member_of(group));
        let sums = &trees.nodes.owns;
        let busy = Busy::of(time, names, (&shown, sums), &trees.attached, group_of);
        let (locks, node_waits) = waited.locks(names, (&trees.attached, &shown.threads));
        let long_waits = std::mem::take(&mut shown.long_waits);
        let place = |cell: u32| {
            let at = cell as usize;
            (member_of(shown.cells[at].group), trees.attached[at])
        };
        let past_till = snapshot.history.is_past(settings.range).then_some(shown.till);
        let (long_waits, long_waits_dropped) =
            long_waits.list(names, (&shown.threads, past_till), place);
        let deadlocks = locks::deadlocks(snapshot, rows, verdicts);
        let holders = holders::holders(snapshot, rows, verdicts);
        let observed = observed::observed(names, &shown);
        let mut trend = shown.trend.take();
        let mut inverted_trend = inverted_trees.as_ref().and_then(|_| trend.clone());
        let group_count = members.len() as u32;
        let place_of = |attached: &[u32], cell: u32| {
            let cell_of = &shown.cells[cell as usize];
            shown.is_shown(cell_of).then(|| match attached[cell as usize] {
                columns::NONE => member_of(cell_of.group),
                node => group_count + node,
            })
        };
        if let Some(trend) = &mut trend {
            trend.place(|cell| place_of(&trees.attached, cell));
        }
        if let (Some(trend), Some(trees)) = (&mut inverted_trend, &inverted_trees) {
            trend.place(|cell| place_of(&trees.attached, cell));
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
        let inverted = inverted_trees.map(|trees| {
            let with_root = |(group, tree): (&Group, tree::TreeGroup)| Group {
                first_root: tree.first_root,
                ..group.clone()
            };
            Box::new(Projection {
                from: shown.from,
                till: shown.till,
                total,
                groups: groups.iter().zip(trees.groups).map(with_root).collect(),
                seen: seen_at(&shown, &trees.attached).collect(),
                nodes: trees.nodes,
                threads: shown.threads.clone(),
                trend: inverted_trend,
                ..Projection::nothing()
            })
        });
        let projection = Projection {
            from: shown.from,
            till: shown.till,
            total,
            hidden: shown.hidden,
            only_idle: shown.only_idle,
            now,
            collection: shown.collection,
            short_lived_cpu_ns: shown.short_lived_cpu_ns,
            busy,
            busiest,
            unnamed_ns,
            unobserved_ns: shown.unobserved_ns,
            locks,
            locks_of_nodes: LocksOfNodes::new(node_waits),
            long_waits,
            long_waits_dropped,
            deadlocks,
            holders,
            observed,
            label_keys: rows.label_keys().to_vec(),
            groups,
            now_of_groups,
            nodes: trees.nodes,
            seen,
            threads: std::mem::take(&mut shown.threads),
            method_of: OnceLock::new(),
            methods: OnceLock::new(),
            main_functions: Default::default(),
            hottest: OnceLock::new(),
            mostly_within: OnceLock::new(),
            alone_in: OnceLock::new(),
            trend,
            inverted,
            changes: Default::default(),
        };
        shown.done(facts_scratch, &projection.nodes.owns);
        scratch.attached = trees.attached;
        projection
    }

    /// Returns the busy threads of each bucket of `snapshot`, which was projected last.
    pub fn busy_threads(&mut self, snapshot: &Snapshot) -> Arc<BusyThreads> {
        if self.busy_threads.is_behind(snapshot) {
            self.busy_threads = self.busy_threads.read(snapshot, &self.verdicts).into();
        }
        self.busy_threads.clone()
    }

    /// Drops stale data and adds new frames and threads.
    pub(super) fn update(&mut self, snapshot: &Snapshot, settings: &Settings) {
        if !self.session.as_ref().is_some_and(|known| Arc::ptr_eq(known, &snapshot.session)) {
            let session = snapshot.session.clone();
            let busy_threads = BusyThreads::new(session.started).into();
            *self = Projector { session: Some(session), busy_threads, ..Projector::default() };
        }
        let filters = &settings.filters;
        let frames = (
            &filters.interesting,
            &filters.focus,
            &filters.ignore,
            &filters.hide,
            (filters.no_kernel, filters.native),
        );
        let by_frame = match &settings.grouping {
            by_frame @ (Grouping::Frame(_) | Grouping::Label(_)) => Some(by_frame),
            _ => None,
        };
        let idle = format!("{:?} {:?} {:?}", settings.idle_at, settings.whose, filters.interesting);
        let rules = Rules {
            frames: format!("{by_frame:?} {frames:?} {idle}"),
            groups: format!("{:?} {:?}", settings.grouping, settings.rename),
            idle,
        };
        let change = self.rows.update(&snapshot.tables);
        self.rows.roll_up(settings.roll_up);
        if self.rules.groups != rules.groups {
            self.groups.forget();
        }
        if self.rules.idle != rules.idle || change == rows::Change::Roles {
            self.busy_threads = BusyThreads::new(snapshot.session.started).into();
        } else if change == rows::Change::Names {
            Arc::make_mut(&mut self.busy_threads).names_changed();
        }
        let change = match self.rules.frames == rules.frames {
            true => change,
            false => rows::Change::Roles,
        };
        self.rules = rules;
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
