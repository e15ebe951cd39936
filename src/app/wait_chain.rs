//! Who keeps the selected row's threads from going on: what the line under the rows says, and the
//! row to which Enter goes.

use super::explain::{inside, waits_for};
use super::short_names;
use super::view::View;
use crate::model::facts::snapshot::{Snapshot, ThreadNow};
use crate::model::projection::waits::Asked;
use crate::model::projection::{HolderNow, WaitChain, holder_words, noun};
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::qualified::simple_class;
use crate::model::vocabulary::state::State;

/// The threads of a row that wait for one lock now, and its holder.
#[derive(Clone, PartialEq, Debug)]
pub struct Chain {
    /// Those that wait for it.
    pub count: usize,
    /// `monitor of TaxTable`.
    pub what: String,
    /// The longest of these waits so far.
    pub since_ns: Ns,
    /// The holder first, then for whom that one waits, and so on.
    pub links: Vec<Link>,
}

/// A thread, or others, for which one waits.
#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    /// `timer`, `8 readers`.
    pub who: String,
    /// ` in Rules.fetch`, of the last one also what it does: ` in Rules.fetch: sleep 2.0 s`.
    pub place: String,
}

/// Returns the row's thread that has waited longest for something whose holder is known, of all of
/// its threads.
fn longest<'a>(
    view: &'a View,
    snapshot: &'a Snapshot,
) -> Option<(Vec<&'a ThreadNow>, &'a ThreadNow, WaitChain<'a>)> {
    let mut inside = inside(view, snapshot);
    inside.sort_by_key(|thread| (thread.since, thread.thread));
    let chain = |thread: &'a ThreadNow| {
        let chain = view.projection.wait_chain(snapshot, thread)?;
        // Of a file lock and of a child the call says more.
        let has_threads = !chain.holders.is_empty() || chain.blocker.kind == BlockerKind::RwLock;
        has_threads.then_some((thread, chain))
    };
    let (thread, chain) = inside.iter().copied().find_map(chain)?;
    Some((inside, thread, chain))
}

/// Returns who keeps the selected row's threads from going on, if that is known.
pub fn chain(view: &View) -> Option<Chain> {
    let snapshot = view.snapshot.as_deref()?;
    let (inside, thread, chain) = longest(view, snapshot)?;
    let count = inside.iter().filter(|other| chain.begins_with(snapshot, other)).count();
    let class = chain.blocker.class.as_deref().map(simple_class);
    let mut links: Vec<Link> = Vec::new();
    let others = |who: String| Link { who, place: String::new() };
    for (nth, holder) in chain.holders.iter().enumerate() {
        let is_last = nth + 1 == chain.holders.len() && chain.end.is_none() && !chain.is_circle;
        links.push(link(view, snapshot, holder, is_last));
    }
    if let Some(end) = chain.end {
        links.push(others(holder_words(end.holder, "", thread.thread.pid)));
    }
    if chain.is_circle {
        links.push(others("one of these".into()));
    }
    Some(Chain {
        count,
        what: noun(chain.blocker.kind, class),
        since_ns: snapshot.at.saturating_sub(thread.since),
        links,
    })
}

fn link(view: &View, snapshot: &Snapshot, holder: &HolderNow, is_last: bool) -> Link {
    let short = |location| short_names::shortest(location, view.shown.roll_up).into_owned();
    let function = holder.place.last();
    let place = function.map_or(String::new(), |function| format!(" in {}", short(function)));
    let who = holder.name.to_string();
    if !is_last {
        return Link { who, place };
    }
    let now = snapshot.threads.iter().find(|now| now.thread == holder.thread);
    let waits = now.and_then(|now| waits_for(view, snapshot, now));
    let does = match (waits, holder.state) {
        (Some(waits), _) if !["futex", "park"].contains(&waits.what) => waits.to_string(),
        (_, State::Run) => "on CPU".into(),
        (_, State::Rdy) => "wants a core".into(),
        (_, State::Sleep) => "asleep".into(),
        (_, state) => match &holder.by {
            Some(by) => short(by),
            None => state.word().to_owned(),
        },
    };
    Link { who, place: format!("{place}: {does}") }
}

/// Returns what the last thread of the selected row's chain waits for, to be asked for.
pub(super) fn asked(view: &View) -> Option<Asked> {
    let snapshot = view.snapshot.as_deref()?;
    let (.., chain) = longest(view, snapshot)?;
    let last = chain.holders.last()?.thread;
    Asked::of(snapshot, snapshot.threads.iter().find(|now| now.thread == last)?)
}

/// Returns the row of the first holder of the selected row's chain.
pub(super) fn holder_of_row(view: &View) -> Option<u32> {
    let snapshot = view.snapshot.as_deref()?;
    let (.., chain) = longest(view, snapshot)?;
    view.projection.node_of_holder(chain.holders.first()?)
}
