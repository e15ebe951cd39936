//! The shown facts of a range by thread, name, stack, state and blocker, for formats whose readers
//! group and filter themselves. Their sums equal those of the projection.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Projector;
use super::columns::NONE;
use super::fact_reader::{ReadFacts, Reader};
use super::group::thread_label;
use super::group_parts::newest;
use super::shown_stacks::Walker;
use super::tree::Builder;
use crate::model::facts::history::FactKey;
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::{BlockerId, Location, NameId, StackId};
use crate::model::projection::settings::{Grouping, Settings};
use crate::model::vocabulary::frame::{Ns, ThreadKey, ThreadKind};
use crate::model::vocabulary::role::Role;
use crate::model::vocabulary::state::State;

/// The time of one thread with one stack in one state, waiting for one thing.
#[derive(Clone, Debug)]
pub struct Sample {
    pub thread: ThreadKey,
    /// The thread's name at that time.
    pub name: Arc<str>,
    pub kind: ThreadKind,
    pub group: Arc<str>,
    pub state: State,
    /// Time spent waiting for work.
    pub idle: bool,
    /// What it waited for, where that is known.
    pub blocker: BlockerId,
    /// Carries the labels that the program gave to its work; see
    /// [`crate::model::vocabulary::labels`].
    pub labels: Option<Arc<Location>>,
    /// The innermost shown frame, an index into [`Samples::frames`]; `None` if no frame is shown.
    pub innermost: Option<u32>,
    pub wall_ns: u64,
    pub cpu_ns: u64,
    pub hits: u64,
}

/// A shown frame; the frames of all stacks form one tree.
#[derive(Clone, Debug)]
pub struct Frame {
    /// An index into [`Samples::frames`], lower than its own; `None` for an outermost frame.
    pub caller: Option<u32>,
    pub location: Arc<Location>,
    /// Inlined into its caller, within the same machine frame.
    pub inlined: bool,
    /// Whose code it is.
    pub role: Role,
    /// Build of its module, if known; see [`crate::model::facts::tables::Named::build_id`].
    pub build_id: Option<Arc<str>>,
}

#[derive(Clone, Debug)]
pub struct Samples {
    /// The range that was read, on CLOCK_MONOTONIC.
    pub from: Ns,
    pub till: Ns,
    /// Each is on the stack of at least one sample.
    pub frames: Vec<Frame>,
    /// Ordered by thread, name, stack, state and blocker.
    pub samples: Vec<Sample>,
}

/// Reads `snapshot`'s history under `settings`; always includes idle time. Frames keep their lines
/// even under [`crate::model::projection::settings::RollUp::Function`].
pub fn samples(snapshot: &Snapshot, settings: &Settings) -> Samples {
    samples_of(snapshot, settings, &mut |f| {
        snapshot.history.read_by_bucket(settings.range, snapshot.at, f)
    })
}

/// Does the same with facts from `read`; `snapshot` gives their names.
pub(super) fn samples_of(
    snapshot: &Snapshot,
    settings: &Settings,
    read: &mut ReadFacts<'_>,
) -> Samples {
    let settings = &Settings { idle: true, ..settings.clone() };
    let mut projector = Projector::default();
    projector.update(snapshot, settings);
    let Projector { rows, verdicts, groups, facts, stacks, trees, .. } = &mut projector;

    let mut found: FxHashMap<(FactKey, State), (Found, Weight)> = FxHashMap::default();
    let reader = Reader::new(snapshot, settings, rows, verdicts, groups, facts);
    let (from, till) = reader.each(read, |key, placed, weights| {
        let of = Found { group: placed.group, stack: placed.stack, idle: placed.is_idle };
        let (_, weight) = found.entry((*key, placed.state)).or_insert((of, Weight::default()));
        weight.wall_ns += weights.wall_ns;
        weight.cpu_ns += weights.cpu_ns;
        weight.hits += u64::from(weights.hits);
    });
    // Different raw states may resolve to one state: a futex wait by its names, and a state that
    // the kernel reported.
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_unstable_by_key(|((key, state), _)| {
        (key.thread, key.name, key.stack, *state, key.state, key.blocker)
    });

    let woken = rows.wants_core_row(settings.roll_up);
    let tables = &snapshot.tables;
    let walker = Walker { tables, settings, rows, verdicts };
    let builder = Builder { walker, woken, stacks, scratch: trees };
    let (shown, attached) = builder.frames(found.iter().map(|(_, (of, _))| of.stack));
    let mut used = vec![false; shown.len()];
    attached.iter().filter(|at| **at != NONE).for_each(|at| used[*at as usize] = true);
    for at in (0..shown.len()).rev().filter(|at| shown[*at].parent != NONE) {
        if used[at] {
            used[shown[at].parent as usize] = true;
        }
    }
    // Under roll-ups that join neighbours, several shown frames become one.
    let by = settings.roll_up;
    let mut frames: Vec<Frame> = Vec::new();
    let mut rows_of: Vec<u32> = Vec::new();
    let mut place = vec![NONE; shown.len()];
    for at in (0..shown.len()).filter(|at| used[*at]) {
        let caller = Some(shown[at].parent)
            .filter(|parent| *parent != NONE)
            .map(|parent| place[parent as usize]);
        let (row, location) = rows.row(shown[at].location, by);
        let build_id = &snapshot.tables.named(shown[at].frame).build_id;
        if let Some(caller) = caller.filter(|caller| by.joins() && rows_of[*caller as usize] == row)
        {
            place[at] = caller;
            let joined = &mut frames[caller as usize].build_id;
            if *joined != *build_id {
                *joined = None;
            }
            continue;
        }
        place[at] = frames.len() as u32;
        rows_of.push(row);
        frames.push(Frame {
            caller,
            location: rows.location(location).clone(),
            inlined: shown[at].inlined && !by.joins(),
            role: verdicts.of_location(shown[at].location).role,
            build_id: build_id.clone(),
        });
    }
    // A thread is one group, with its newest name.
    let mut newest_names: FxHashMap<ThreadKey, NameId> = FxHashMap::default();
    if matches!(settings.grouping, Grouping::Thread) {
        let now = snapshot.threads.iter().map(|t| (t.thread, t.name)).collect();
        for ((FactKey { thread, name, .. }, _), _) in &found {
            let newer = |known: &mut NameId| *known = newest(&now, *thread, [*known, *name]);
            newest_names.entry(*thread).and_modify(newer).or_insert(*name);
        }
    }
    let group = |key: &FactKey, group| match newest_names.get(&key.thread) {
        Some(name) => thread_label(snapshot.tables.name(*name), key.thread).into(),
        None => groups.label(group).name.clone(),
    };
    let mut samples = Vec::with_capacity(found.len());
    for (((key, state), (of, weight)), at) in found.into_iter().zip(attached) {
        samples.push(Sample {
            thread: key.thread,
            name: snapshot.tables.name(key.name).clone(),
            kind: snapshot.tables.kind(key.name),
            group: group(&key, of.group),
            state,
            idle: of.idle,
            blocker: key.blocker,
            labels: verdicts.labels_of(of.stack).map(|labels| rows.location(labels).clone()),
            innermost: (at != NONE).then(|| place[at as usize]),
            wall_ns: weight.wall_ns,
            cpu_ns: weight.cpu_ns,
            hits: weight.hits,
        });
    }
    Samples { from, till, frames, samples }
}

/// The place of a fact.
struct Found {
    group: u32,
    stack: StackId,
    idle: bool,
}

#[derive(Default)]
struct Weight {
    wall_ns: u64,
    cpu_ns: u64,
    hits: u64,
}
