//! The view of waits: the locks that threads waited for, then the long waits.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use super::keyed_list::KeyedList;
use crate::model::facts::tables::Holder;
use crate::model::projection::{HeldBy, Lock, Projection, holder_words};
use crate::model::vocabulary::frame::{Ns, ThreadKey};

/// A line of the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitRow {
    /// An index into [`Projection::locks`].
    Lock(u32),
    /// One of its threads, below an open lock: the lock's index, and one into [`Lock::waiters`].
    Waiter(u32, u32),
    /// Likewise, into [`Lock::holders`].
    Holder(u32, u32),
    /// An index into [`Projection::long_waits`].
    Wait(u32),
}

/// Identifies a line across projections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitKey {
    /// Its process and address.
    Lock(u32, u64),
    /// That of the lock, and the thread.
    Waiter(u32, u64, ThreadKey),
    /// That of the lock, and a hash of the holder and of where it was.
    Holder(u32, u64, u64),
    /// Its thread and start.
    Wait(ThreadKey, Ns),
}

#[derive(Clone, Debug, Default)]
pub struct WaitList {
    pub list: KeyedList<WaitRow, WaitKey>,
    /// The process and the address of each open lock.
    open: HashSet<(u32, u64)>,
    /// The names that several of the threads have.
    same_names: HashSet<String>,
    /// Waits are ordered by their start, the latest first; else by their duration.
    pub latest_first: bool,
}

impl WaitList {
    /// Reads the rows of a new projection, or in another order.
    pub fn read(&mut self, projection: &Projection, height: usize) {
        let waits = &projection.long_waits;
        let mut order: Vec<u32> = (0..waits.len() as u32).collect();
        if self.latest_first {
            order.sort_by_key(|at| Reverse(waits[*at as usize].from_ns));
        }
        let mut rows = Vec::new();
        for (at, lock) in (0..).zip(&projection.locks) {
            rows.push(WaitRow::Lock(at));
            if self.is_open(lock) {
                let waiters = 0..lock.waiters.len() as u32;
                rows.extend(waiters.map(|nth| WaitRow::Waiter(at, nth)));
                rows.extend(held_rows(lock).map(|nth| WaitRow::Holder(at, nth)));
            }
        }
        rows.extend(order.into_iter().map(WaitRow::Wait));
        self.same_names = same_names(projection);
        self.list.set(rows, |key, row| *key == row.key(projection), 0, height);
    }

    /// Returns the name of the thread that the row is of, with its number where others have the
    /// same name; empty on a lock.
    pub fn thread_name(&self, row: WaitRow, projection: &Projection) -> String {
        let name = row.name(projection);
        match row.thread(projection) {
            Some(thread) if self.same_names.contains(&name) => {
                format!("{name} {}", thread.shown_id())
            }
            _ => name,
        }
    }

    /// Returns whether the lock's threads have rows.
    pub fn is_open(&self, lock: &Lock) -> bool {
        self.open.contains(&(lock.pid, lock.object))
    }

    /// Shows the threads of the lock under the cursor.
    pub(super) fn expand(&mut self, projection: &Projection, height: usize) {
        if let Some(WaitRow::Lock(at)) = self.list.selected() {
            let lock = self.choose_lock(at, projection);
            self.open.insert(lock);
            self.read(projection, height);
        }
    }

    /// Hides the threads of the lock that the row is of, and goes to it.
    pub(super) fn collapse(&mut self, projection: &Projection, height: usize) {
        if let Some(at) = self.list.selected().and_then(WaitRow::lock) {
            let lock = self.choose_lock(at, projection);
            self.open.remove(&lock);
            self.read(projection, height);
        }
    }

    /// Puts the cursor on a lock. Returns its process and its address.
    fn choose_lock(&mut self, at: u32, projection: &Projection) -> (u32, u64) {
        let Lock { pid, object, .. } = projection.locks[at as usize];
        self.list.choose(WaitKey::Lock(pid, object));
        (pid, object)
    }
}

/// Returns the names that several of the threads have.
fn same_names(projection: &Projection) -> HashSet<String> {
    let mut of_names: HashMap<String, ThreadKey> = HashMap::new();
    let mut same = HashSet::new();
    let locks = (0..).zip(&projection.locks).flat_map(|(at, lock)| {
        let waiters = (0..lock.waiters.len() as u32).map(move |nth| WaitRow::Waiter(at, nth));
        waiters.chain((0..lock.holders.len() as u32).map(move |nth| WaitRow::Holder(at, nth)))
    });
    let waits = (0..projection.long_waits.len() as u32).map(WaitRow::Wait);
    for row in locks.chain(waits) {
        let Some(thread) = row.thread(projection) else { continue };
        let name = row.name(projection);
        match of_names.get(&name) {
            Some(known) if *known != thread => _ = same.insert(name),
            Some(_) => {}
            None => _ = of_names.insert(name, thread),
        }
    }
    same
}

/// Returns the indexes of the holders that are worth a row: those that are known.
fn held_rows(lock: &Lock) -> impl Iterator<Item = u32> + '_ {
    let is_known =
        |held: &&(u32, &HeldBy)| !matches!(held.1.holder, Holder::Unknown | Holder::Free);
    let holders = (0..).zip(&lock.holders);
    holders.filter(move |held| is_known(&held)).map(|(nth, _)| nth)
}

impl WaitRow {
    /// Returns the lock that the row is of: an index into [`Projection::locks`].
    pub fn lock(self) -> Option<u32> {
        match self {
            WaitRow::Lock(at) | WaitRow::Waiter(at, _) | WaitRow::Holder(at, _) => Some(at),
            WaitRow::Wait(_) => None,
        }
    }

    /// Returns the thread that the row is of.
    pub fn thread(self, projection: &Projection) -> Option<ThreadKey> {
        match self {
            WaitRow::Lock(_) => None,
            WaitRow::Waiter(at, nth) => {
                Some(projection.locks[at as usize].waiters[nth as usize].thread)
            }
            WaitRow::Holder(at, nth) => {
                match projection.locks[at as usize].holders[nth as usize].holder {
                    Holder::Thread { thread, .. } => Some(thread),
                    _ => None,
                }
            }
            WaitRow::Wait(at) => Some(projection.long_waits[at as usize].thread),
        }
    }

    /// Returns the name of the thread, or of the process or the readers, that the row is of; empty
    /// on a lock.
    pub fn name(self, projection: &Projection) -> String {
        let lock = |at: u32| &projection.locks[at as usize];
        match self {
            WaitRow::Lock(_) => String::new(),
            WaitRow::Waiter(at, nth) => lock(at).waiters[nth as usize].name.to_string(),
            WaitRow::Holder(at, nth) => {
                let held = &lock(at).holders[nth as usize];
                holder_words(held.holder, &held.name, lock(at).pid)
            }
            WaitRow::Wait(at) => projection.long_waits[at as usize].name.to_string(),
        }
    }

    /// Returns the start of the wait, or of the thread's longest one.
    pub fn began(self, projection: &Projection) -> Option<Ns> {
        match self {
            WaitRow::Lock(_) | WaitRow::Holder(..) => None,
            WaitRow::Waiter(at, nth) => {
                Some(projection.locks[at as usize].waiters[nth as usize].longest_from)
            }
            WaitRow::Wait(at) => Some(projection.long_waits[at as usize].from_ns),
        }
    }

    pub fn key(self, projection: &Projection) -> WaitKey {
        match self {
            WaitRow::Lock(at) => {
                let lock = &projection.locks[at as usize];
                WaitKey::Lock(lock.pid, lock.object)
            }
            WaitRow::Waiter(at, nth) => {
                let lock = &projection.locks[at as usize];
                WaitKey::Waiter(lock.pid, lock.object, lock.waiters[nth as usize].thread)
            }
            WaitRow::Holder(at, nth) => {
                let lock = &projection.locks[at as usize];
                let HeldBy { name, place, .. } = &lock.holders[nth as usize];
                let place: Vec<_> = place.iter().map(|at| &at.function).collect();
                let of = FxBuildHasher.hash_one((self.thread(projection), name, place));
                WaitKey::Holder(lock.pid, lock.object, of)
            }
            WaitRow::Wait(at) => {
                let wait = &projection.long_waits[at as usize];
                WaitKey::Wait(wait.thread, wait.from_ns)
            }
        }
    }

    /// Returns the node in which the wait was, or in which a lock was held; of a lock, the one with
    /// most of its waited time.
    pub fn node(self, projection: &Projection) -> Option<u32> {
        match self {
            WaitRow::Wait(at) => projection.long_waits[at as usize].node,
            WaitRow::Lock(at) => projection.node_of_lock(at),
            WaitRow::Waiter(at, nth) => {
                projection.node_of_waiter(&projection.locks[at as usize].waiters[nth as usize])
            }
            WaitRow::Holder(at, nth) => {
                projection.node_held_in(&projection.locks[at as usize].holders[nth as usize])
            }
        }
    }
}
