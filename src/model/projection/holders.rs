//! The threads for which others wait at the time of the snapshot, and the way from one that waits
//! to the last one of its chain.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Projection;
use super::filter::Verdicts;
use super::lock_identity::LockKey;
use super::places::{Place, Places};
use super::rows::Rows;
use crate::model::facts::snapshot::{Snapshot, ThreadNow};
use crate::model::facts::tables::{Blocker, BlockerId, Holder, Location, Tables};
use crate::model::vocabulary::frame::ThreadKey;
use crate::model::vocabulary::state::State;

/// Maximum threads for which others wait, of one snapshot.
const MAX_HOLDERS: usize = 200;
/// Maximum threads of a chain.
const MAX_LINKS: usize = 8;

/// A thread for which another one waits.
#[derive(Clone, PartialEq, Debug)]
pub struct HolderNow {
    pub thread: ThreadKey,
    pub name: Arc<str>,
    /// Where it is.
    pub place: Place,
    /// The call by which it left the user's code.
    pub by: Option<Arc<Location>>,
    pub state: State,
    /// It waits for work.
    is_idle: bool,
    /// What it waits for itself.
    blocker: BlockerId,
}

/// The threads that keep a waiting one from going on: the second keeps the first, and so on.
#[derive(Clone, PartialEq, Debug)]
pub struct WaitChain<'a> {
    /// What the waiting thread waits for.
    pub blocker: &'a Blocker,
    pub holders: Vec<&'a HolderNow>,
    /// What the last of them waits for, where a holder is known that is none of these threads.
    pub end: Option<&'a Blocker>,
    /// The last of them waits for one of those before.
    pub is_circle: bool,
}

/// Returns the threads for which others wait, also those that are not shown.
pub(super) fn holders(
    snapshot: &Snapshot,
    rows: &Rows,
    verdicts: &Verdicts,
) -> BTreeMap<ThreadKey, HolderNow> {
    let tables = &snapshot.tables;
    let waited_for = |now: &ThreadNow| match known_holder(tables, now.blocker)?.holder {
        Holder::Thread { thread, .. } if thread != now.thread => Some(thread),
        _ => None,
    };
    let mut wanted: Vec<ThreadKey> = snapshot.threads.iter().filter_map(waited_for).collect();
    if wanted.is_empty() {
        return BTreeMap::new();
    }
    wanted.sort_unstable();
    wanted.dedup();
    wanted.truncate(MAX_HOLDERS);
    let by_thread: FxHashMap<ThreadKey, &ThreadNow> =
        snapshot.threads.iter().map(|now| (now.thread, now)).collect();
    let mut places = Places::new(snapshot, rows, verdicts);
    let mut holder = |thread: ThreadKey| {
        let now = by_thread.get(&thread)?;
        let place = places.of(now.stack);
        let by = places.exit_of(now.stack).map(|location| rows.location(location).clone());
        let state = tables.state(now.state, now.stack);
        let holder = HolderNow {
            thread,
            name: tables.name(now.name).clone(),
            place: places.place(&place),
            by,
            state,
            is_idle: verdicts.of_stack(now.stack).is_idle(tables.kind(now.name), state),
            blocker: now.blocker,
        };
        Some((thread, holder))
    };
    wanted.into_iter().filter_map(&mut holder).collect()
}

/// Returns the blocker if it is known who holds it.
fn known_holder(tables: &Tables, blocker: BlockerId) -> Option<&Blocker> {
    let blocker = tables.blocker(blocker)?;
    (!matches!(blocker.holder, Holder::Unknown | Holder::Free)).then_some(blocker)
}

impl WaitChain<'_> {
    /// Returns whether a thread waits for the same as the one at the beginning.
    pub fn begins_with(&self, snapshot: &Snapshot, waiting: &ThreadNow) -> bool {
        let blocker = snapshot.tables.blocker(waiting.blocker);
        blocker.is_some_and(|found| LockKey::of(found) == LockKey::of(self.blocker))
    }
}

impl Projection {
    /// Returns who keeps this thread from going on, and who keeps that one; `None` if that is not
    /// known.
    pub fn wait_chain<'a>(
        &'a self,
        snapshot: &'a Snapshot,
        waiting: &ThreadNow,
    ) -> Option<WaitChain<'a>> {
        let blocker = known_holder(&snapshot.tables, waiting.blocker)?;
        let mut chain = WaitChain { blocker, holders: Vec::new(), end: None, is_circle: false };
        let mut at = blocker;
        let mut released = 0;
        loop {
            let Holder::Thread { thread, .. } = at.holder else {
                chain.end = Some(at);
                break;
            };
            let told = chain.holders.iter().any(|holder| holder.thread == thread);
            if told || thread == waiting.thread {
                chain.is_circle = true;
                break;
            }
            let Some(holder) = self.holders.get(&thread) else { break };
            if holder.is_idle && at.kind.is_of_a_block() {
                // It was read as the holder before, and has given it back since.
                if chain.holders.is_empty() {
                    return None;
                }
                break;
            }
            match known_holder(&snapshot.tables, holder.blocker) {
                // It has given the lock to another one since, and waits for it again.
                Some(next) if LockKey::of(next) == LockKey::of(at) && released < MAX_LINKS => {
                    released += 1;
                    at = next;
                }
                Some(next) if chain.holders.len() + 1 < MAX_LINKS => {
                    chain.holders.push(holder);
                    at = next;
                }
                _ => {
                    chain.holders.push(holder);
                    break;
                }
            }
        }
        Some(chain)
    }

    /// Returns the node in which a holder is now, or the nearest one above it.
    pub fn node_of_holder(&self, holder: &HolderNow) -> Option<u32> {
        let node = |function: &Arc<Location>| self.node_of(holder.thread, function);
        holder.by.as_ref().and_then(node).or_else(|| node(holder.place.last()?))
    }
}
