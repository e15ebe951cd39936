//! Facts + settings -> what is shown. Pure functions; the same facts give the same projection.

mod collapse;
mod confidence;
mod filter;
mod group;
mod idle;
mod lines;
mod methods;
mod read;
mod rows;
mod sort;
mod totals;
mod tree;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::frame::{Ns, ThreadKey};
use super::settings::{Grouping, Settings};
use super::snapshot::{Session, Snapshot};
use super::tables::{Location, NameId};

pub use collapse::{Chain, chain, heaviest, hottest_group, hottest_path, is_drawn, swallowed_by};
pub use confidence::{Confidence, HITS_NEEDED, confidence, seconds_for_one_percent};
pub use group::{ALL, NO_MATCH, UNNAMED, by_rules};
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
pub struct Projector {
    session: Option<Arc<Session>>,
    /// The settings that decide about frames and groups, as text.
    rules: String,
    rows: rows::Rows,
    verdicts: filter::Verdicts,
    groups: group::Groups,
    scratch: tree::Scratch,
}

impl Projector {
    pub fn project(&mut self, snapshot: &Snapshot, settings: &Settings) -> Projection {
        self.project_facts(snapshot, settings, &mut |f| snapshot.history.read(settings.range, snapshot.at, f))
    }

    /// The same for facts from elsewhere; `snapshot` names them.
    fn project_facts(
        &mut self,
        snapshot: &Snapshot,
        settings: &Settings,
        facts: &mut read::ReadFacts<'_>,
    ) -> Projection {
        self.update(snapshot, settings);
        let Projector { rows, verdicts, groups, scratch, .. } = self;
        let shown = read::Reader::new(snapshot, settings, rows, verdicts, groups).read(facts);

        let members = members(snapshot, settings, &shown, groups);
        let rank: FxHashMap<u32, u64> = members.iter().zip(0..).map(|(member, rank)| (member.group, rank)).collect();
        let keys = shown.cells.iter().map(|cell| rank[&cell.group] << 32 | u64::from(cell.stack.0));
        let mut order: Vec<(u64, u32)> = keys.zip(0..).collect();
        order.sort_unstable();
        let builder = tree::Builder { tables: &snapshot.tables, settings, rows, verdicts, scratch };
        let mut trees = builder.build(&shown.cells, order.iter().map(|(_, cell)| *cell));
        let mut methods = methods::methods(settings, rows, &trees, scratch, &shown.seen);
        sort::methods(settings, &mut methods);
        sort::children(settings, &mut trees.nodes);

        let mut total = Totals::default();
        let mut groups = Vec::with_capacity(trees.groups.len());
        for (tree, member) in trees.groups.into_iter().zip(members) {
            total.add(&tree.total);
            let mut roots = tree.roots;
            sort::nodes(settings, &trees.nodes, &mut roots);
            groups.push(Group { name: member.name, threads: member.threads, total: tree.total, own: tree.own, roots });
        }
        sort::groups(settings, &mut groups);
        Projection {
            from: shown.from,
            till: shown.till,
            total,
            hidden: shown.hidden,
            only_idle: shown.only_idle,
            groups,
            nodes: trees.nodes,
            methods,
        }
    }

    /// Drops what is stale and looks at what is new.
    fn update(&mut self, snapshot: &Snapshot, settings: &Settings) {
        if !self.session.as_ref().is_some_and(|known| Arc::ptr_eq(known, &snapshot.session)) {
            *self = Projector { session: Some(snapshot.session.clone()), ..Projector::default() };
        }
        let filters = &settings.filters;
        let frames = (&filters.interesting, &filters.focus, &filters.ignore, &filters.hide, &settings.idle_at);
        let rules = format!("{:?} {frames:?} {:?}", settings.grouping, settings.rename);
        let renamed = self.rows.update(&snapshot.tables);
        if self.rules != rules {
            self.rules = rules;
            self.verdicts.forget();
            self.groups.forget();
        } else if renamed {
            self.verdicts.forget_paths();
        }
        self.groups.bound();
        self.verdicts.update(&snapshot.tables, &self.rows, settings);
    }
}

/// A group by its number, and who is in it.
struct Members {
    group: u32,
    name: Arc<str>,
    threads: Vec<GroupThread>,
}

/// The groups of all cells, by name.
fn members(snapshot: &Snapshot, settings: &Settings, shown: &read::Shown, groups: &group::Groups) -> Vec<Members> {
    let now: FxHashMap<ThreadKey, NameId> = snapshot.threads.iter().map(|t| (t.thread, t.name)).collect();
    // `seen` is sorted by thread: within a group all of a thread's names come in a row.
    let mut seen: FxHashMap<u32, Vec<(u32, NameId)>> = FxHashMap::default();
    for seen_in in &shown.seen {
        let group = seen.entry(shown.cells[seen_in.cell as usize].group).or_default();
        match group.last_mut() {
            Some((thread, name)) if *thread == seen_in.thread => {
                // The name it has now, if that is one of them; else the one that was first seen last.
                let now = now.get(&shown.threads[*thread as usize]).copied();
                let newer = |name: NameId| (Some(name) == now, name);
                *name = std::cmp::max_by_key(*name, seen_in.name, |name| newer(*name));
            }
            _ => group.push((seen_in.thread, seen_in.name)),
        }
    }
    let mut members: Vec<Members> = Vec::with_capacity(seen.len());
    for (group, threads) in seen {
        let mut threads: Vec<GroupThread> = threads
            .into_iter()
            .map(|(thread, name)| GroupThread {
                thread: shown.threads[thread as usize],
                name: snapshot.tables.name(name).clone(),
            })
            .collect();
        threads.sort_unstable_by_key(|thread| thread.thread);
        let name = match (&settings.grouping, threads.as_slice()) {
            (Grouping::Thread, [one]) => group::thread_label(&one.name, one.thread).into(),
            _ => groups.label(group).clone(),
        };
        members.push(Members { group, name, threads });
    }
    let first = |members: &Members| members.threads.first().map(|t| t.thread);
    members.sort_unstable_by(|a, b| a.name.cmp(&b.name).then_with(|| first(a).cmp(&first(b))));
    members
}
