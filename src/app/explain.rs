//! Facts about the selected row beyond its figures: what its threads wait for now, its longest
//! wait, its confidence bounds.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::pane::Pane;
use super::rows::What;
use super::view::View;
use crate::model::facts::snapshot::{Snapshot, ThreadNow};
use crate::model::facts::tables::{FrameId, FrameKind, Location};
use crate::model::projection::waits::{Asked, Facts, WaitsFor, describe, summary};
use crate::model::projection::{Confidence, confidence, is_of};
use crate::model::vocabulary::frame::{Ns, ThreadKey};
use crate::model::vocabulary::state::State;
use crate::model::vocabulary::thread_name_rules::internal_name;

#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// Group rows: the names of its threads.
    pub threads: Vec<Arc<str>>,
    pub now: Option<Now>,
    /// The longest unbroken wait in the range, and when it began.
    pub longest: Option<(Ns, Ns)>,
    pub confidence: Confidence,
}

/// What the row's threads do at this moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Now {
    /// A representative thread: the one that has waited longest, if any waits.
    pub thread: Arc<str>,
    pub state: State,
    pub since_ns: Ns,
    /// All threads in the row now.
    pub count: usize,
    /// What they wait for (`recv fd 37 -> 10.0.3.9:5432`) and how many do, the most frequent first;
    /// then the states of the others.
    pub doing: Vec<(usize, String)>,
    /// Whether `doing` is a single call that all threads make.
    pub one_call: bool,
}

/// Explains the row under the cursor.
pub fn explain(view: &View) -> Option<Explanation> {
    let snapshot = view.snapshot.as_ref()?;
    let totals = view.selected_totals()?;
    let metric = view.settings.metric;
    let shown = &view.projection.total;
    Some(Explanation {
        threads: group_threads(view),
        now: now(view, snapshot),
        longest: (totals.longest_ns > 0).then_some((totals.longest_ns, totals.longest_from)),
        confidence: confidence(&totals, shown, metric, snapshot.resolution()),
    })
}

fn group_threads(view: &View) -> Vec<Arc<str>> {
    let group = match view.selected_what() {
        Some(What::Group(group)) => Some(group),
        _ => view.selected_group().filter(|_| view.pane == Pane::Threads),
    };
    let Some(group) = group else { return Vec::new() };
    view.projection.groups[group as usize].threads.iter().map(|t| t.name.clone()).collect()
}

fn now(view: &View, snapshot: &Snapshot) -> Option<Now> {
    let inside = inside(view, snapshot);
    let state = |t: &ThreadNow| snapshot.tables.state(t.state, t.stack);
    // Waiting threads first, of these the one that has waited longest.
    let thread =
        inside.iter().min_by_key(|t| (matches!(state(t), State::Run | State::Rdy), t.since))?;

    let mut calls: Vec<WaitsFor> = Vec::new();
    let mut others: BTreeMap<State, usize> = BTreeMap::new();
    for thread in &inside {
        match waits_for(view, snapshot, thread) {
            // A futex that is no lock also has an address, which is of no use to the user.
            Some(call) if call.what == "futex" => {
                calls.push(WaitsFor { object: String::new(), ..call })
            }
            Some(call) => calls.push(call),
            None => *others.entry(state(thread)).or_default() += 1,
        }
    }
    let mut doing = summary(calls.iter());
    let one_call = doing.len() == 1 && others.is_empty();
    doing.extend(others.into_iter().map(|(state, count)| (count, state.word().to_owned())));
    Some(Now {
        thread: snapshot.tables.name(thread.name).clone(),
        state: state(thread),
        since_ns: snapshot.at.saturating_sub(thread.since),
        count: inside.len(),
        doing,
        one_call,
    })
}

/// Returns what a thread waits for, as far as that is known.
pub(super) fn waits_for(view: &View, snapshot: &Snapshot, thread: &ThreadNow) -> Option<WaitsFor> {
    let asked = Asked::of(snapshot, thread)?;
    match view.waits.get(&thread.thread).filter(|answer| answer.asked == asked) {
        Some(answer) => Some(answer.waits_for.clone()),
        // Of a saved profile.
        None => (snapshot.observed_wait(thread).cloned())
            .or_else(|| describe(&asked, &Facts::default())),
    }
}

/// Returns the threads that are in the selected row at this moment; in the tree only those of its
/// group.
pub(super) fn inside<'a>(view: &View, snapshot: &'a Snapshot) -> Vec<&'a ThreadNow> {
    let in_groups =
        view.pane.is_flame() || matches!(view.pane, Pane::Tree | Pane::ChangedTree | Pane::Threads);
    let group: Option<HashSet<ThreadKey>> = in_groups.then(|| {
        let group = view.selected_group().and_then(|at| view.projection.groups.get(at as usize));
        group.into_iter().flat_map(|group| group.threads.iter().map(|t| t.thread)).collect()
    });
    if matches!(view.pane, Pane::Timeline | Pane::Waits | Pane::Source) {
        return Vec::new();
    }
    // A row of threads is about all that they do.
    let location = view.selected_location().filter(|_| view.pane != Pane::Threads);
    if location.is_none() && group.is_none() {
        return Vec::new();
    }
    // Many threads share frames.
    let mut known: HashMap<FrameId, bool> = HashMap::new();
    let mut is_in = |thread: &ThreadNow, location: &Location| {
        snapshot.tables.frames_innermost_first(thread.stack).any(|frame| {
            let of_row = |l: &Location| is_of(location, l, view.shown.roll_up);
            *known
                .entry(frame)
                .or_insert_with(|| snapshot.tables.named(frame).locations.iter().any(of_row))
        })
    };
    let rename = &view.shown.rename;
    let mut is_of_row = |thread: &ThreadNow, location: &Location| match location.kind {
        FrameKind::Thread => {
            internal_name(snapshot.tables.name(thread.name), rename) == *location.function
        }
        _ => is_in(thread, location),
    };
    let mut is_shown = |thread: &&ThreadNow| {
        group.as_ref().is_none_or(|group| group.contains(&thread.thread))
            && location.is_none_or(|location| is_of_row(thread, location))
    };
    snapshot.threads.iter().filter(&mut is_shown).collect()
}

/// Maximum threads of a row that are queried: about 5 ms of CPU time a second. For the others only
/// their calls are known.
const ASKED: usize = 100;

/// Returns the waits of the selected row to query, the longest first.
pub fn asked(view: &View) -> Vec<Asked> {
    let Some(snapshot) = view.snapshot.as_ref() else { return Vec::new() };
    let mut inside = inside(view, snapshot);
    inside.sort_by_key(|thread| (thread.since, thread.thread));
    inside.into_iter().filter_map(|thread| Asked::of(snapshot, thread)).take(ASKED).collect()
}
