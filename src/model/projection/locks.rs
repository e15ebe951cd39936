//! What the shown threads waited for in a range, by lock: how long, who held it, and where.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::columns::NONE;
use super::filter::Verdicts;
use super::lock_identity::{LockKey, Sighting, moved};
use super::places::{Path, Place, Places};
use super::rows::Rows;
use crate::model::facts::fact::{FactKey, Weights};
use crate::model::facts::snapshot::{Deadlock, Snapshot};
use crate::model::facts::tables::{Blocker, BlockerId, Holder, Location, NameId, StackId, Tables};
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::frame::{Ns, ThreadKey};

/// Maximum locks of a range, those with most waited time.
const MAX_LOCKS: usize = 20;
/// Maximum places in which a lock was waited for, maximum threads that waited, and maximum holders
/// with their places.
pub(super) const MAX_PLACES: usize = 8;

/// A lock, or another object that a thread holds while others wait for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Lock {
    pub kind: BlockerKind,
    pub pid: u32,
    /// See [`Blocker::object`].
    pub object: u64,
    pub class: Option<Arc<str>>,
    /// Thread time waited in the range, ns.
    pub waited_ns: u64,
    /// Number of threads that waited.
    pub threads: u32,
    /// Number of these that wait for it at the snapshot's end.
    pub waiting_now: u32,
    /// The longest unbroken wait, ns; its start, and its thread.
    pub longest_ns: u64,
    pub longest_from: Ns,
    pub longest_thread: ThreadKey,
    /// Where threads waited, with their time, ns; the longest time first.
    pub waiting_in: Vec<(Place, u64)>,
    /// The threads that waited longest, with the longest time first, at most [`MAX_PLACES`].
    pub waiters: Vec<Waiter>,
    /// Who held it meanwhile; the longest waited time first.
    pub holders: Vec<HeldBy>,
    /// Number of threads that are known to have held it.
    pub holder_count: u32,
}

/// A thread that waited for a lock.
#[derive(Clone, PartialEq, Debug)]
pub struct Waiter {
    pub thread: ThreadKey,
    pub name: Arc<str>,
    /// In the range, ns.
    pub waited_ns: u64,
    /// Its longest unbroken wait, ns, and its start.
    pub longest_ns: u64,
    pub longest_from: Ns,
    /// Where it waited for most of that time.
    pub place: Place,
}

/// A holder, and the time that threads waited for it, ns.
#[derive(Clone, PartialEq, Debug)]
pub struct HeldBy {
    pub holder: Holder,
    /// The thread's name; empty if it is unknown.
    pub name: Arc<str>,
    /// Where it was when the waits were observed.
    pub place: Place,
    /// The call by which it had left the user's code for most of that time: `fsync`.
    pub by: Option<Arc<Location>>,
    pub waited_ns: u64,
    /// The lock for which it waited itself for most of that time: an index into
    /// [`Projection::locks`].
    pub waits_for: Option<u32>,
}

/// A thread of a deadlock.
#[derive(Clone, PartialEq, Debug)]
pub struct Stuck {
    pub thread: ThreadKey,
    pub name: Arc<str>,
    pub place: Place,
    pub blocker: BlockerId,
}

/// Returns the threads of each deadlock, in the order in which they wait for each other.
pub(super) fn deadlocks(snapshot: &Snapshot, rows: &Rows, verdicts: &Verdicts) -> Vec<Vec<Stuck>> {
    let mut places = Places::new(snapshot, rows, verdicts);
    let mut stuck = |key: &ThreadKey| {
        let now = snapshot.threads.iter().find(|now| now.thread == *key)?;
        let name = snapshot.tables.name(now.name).clone();
        let place = places.of(now.stack);
        Some(Stuck { thread: *key, name, place: places.place(&place), blocker: now.blocker })
    };
    let threads = |deadlock: &Deadlock| deadlock.threads.iter().filter_map(&mut stuck).collect();
    snapshot.deadlocks.iter().map(threads).collect()
}

impl Lock {
    fn key(&self) -> LockKey {
        LockKey { pid: self.pid, object: self.object, kind: self.kind }
    }

    /// Returns the known holder for which threads waited longest, where it was known to be.
    pub fn main_holder(&self) -> Option<&HeldBy> {
        let first = self.holders.iter().find(|held| is_known(held.holder))?;
        let same = |held: &&HeldBy| {
            Held::of(held.holder) == Held::of(first.holder) && !held.place.is_empty()
        };
        Some(self.holders.iter().find(same).unwrap_or(first))
    }
}

/// Returns whether this is a lock whose holder is known.
pub(super) fn is_held_lock(blocker: &Blocker) -> bool {
    is_lock(blocker) && is_known(blocker.holder)
}

/// Returns the stack in which a thread held it, if one did. A process holds a file lock, and its
/// leader stands for it: which of several threads took it is not known.
pub(super) fn held_in(
    blocker: &Blocker,
    has_several_threads: impl Fn(u32) -> bool,
) -> Option<StackId> {
    match blocker.holder {
        Holder::Thread { thread, .. }
            if blocker.kind == BlockerKind::FileLock && has_several_threads(thread.pid) =>
        {
            None
        }
        Holder::Thread { stack, .. } => Some(stack),
        _ => None,
    }
}

/// Returns the processes with several threads. `observed`: in the range.
pub(super) fn with_several_threads(snapshot: &Snapshot, observed: &[ThreadKey]) -> FxHashSet<u32> {
    let threads = snapshot.threads.iter().map(|now| now.thread).chain(observed.iter().copied());
    let others = threads.filter(|thread| !thread.is_unknown() && thread.pid != thread.tid);
    others.map(|thread| thread.pid).collect()
}

/// Returns whether a holder is known: a thread, or a number of readers.
fn is_known(holder: Holder) -> bool {
    matches!(holder, Holder::Thread { .. } | Holder::Foreign { .. } | Holder::Readers(_))
}

#[cfg(test)]
impl Lock {
    /// Returns a monitor of `com.shop.OrderBook`.
    pub(crate) fn monitor_of_orders() -> Lock {
        Lock {
            kind: BlockerKind::Monitor,
            pid: 1,
            object: 16,
            class: Some("com.shop.OrderBook".into()),
            waited_ns: 10,
            threads: 2,
            waiting_now: 1,
            longest_ns: 5,
            longest_from: 0,
            longest_thread: ThreadKey::unknown(1),
            waiting_in: Vec::new(),
            waiters: Vec::new(),
            holders: Vec::new(),
            holder_count: 0,
        }
    }
}

/// The waits of the shown threads with known blockers.
#[derive(Default)]
pub(super) struct Waited {
    by_wait: FxHashMap<Wait, Weights>,
    /// The starts of the first and of the last long wait for each blocker.
    spans: FxHashMap<BlockerId, (Ns, Ns)>,
}

/// What facts of waits have in common that are summed up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Wait {
    blocker: BlockerId,
    stack: StackId,
    thread: ThreadKey,
    name: NameId,
    cell: u32,
}

impl Waited {
    /// Adds a fact of this cell.
    pub(super) fn add(&mut self, key: &FactKey, cell: u32, weights: &Weights) {
        if key.blocker != BlockerId::NONE {
            let FactKey { blocker, stack, thread, name, .. } = *key;
            let wait = Wait { blocker, stack, thread, name, cell };
            self.by_wait.entry(wait).or_default().add(weights);
            if weights.longest_ns > 0 {
                let from = weights.longest_from;
                let (first, last) = self.spans.entry(blocker).or_insert((from, from));
                (*first, *last) = (from.min(*first), from.max(*last));
            }
        }
    }

    /// Sums the waits up, by lock, those with most waited time first; and by node. `attached`: the
    /// node of each cell, or [`NONE`]; `observed`: the threads of the range.
    pub(super) fn locks(
        self,
        (snapshot, rows, verdicts): (&Snapshot, &Rows, &Verdicts),
        (attached, observed): (&[u32], &[ThreadKey]),
    ) -> (Vec<Lock>, Vec<NodeWait>) {
        let mut places = Places::new(snapshot, rows, verdicts);
        let with_others = LazyCell::new(|| with_several_threads(snapshot, observed));
        let mut sums: BTreeMap<LockKey, Sum> = BTreeMap::new();
        let mut of_nodes: FxHashMap<(u32, LockKey, Held), (Holder, u64)> = FxHashMap::default();
        let mut of_threads: BTreeMap<(ThreadKey, LockKey), u64> = BTreeMap::new();
        for (wait, weights) in &self.by_wait {
            let blocker = snapshot.tables.blocker(wait.blocker);
            let Some(blocker) = blocker.filter(|found| is_lock(found)) else { continue };
            let key = LockKey::of(blocker);
            let waiter = (wait.thread, wait.name, places.of(wait.stack));
            let held_in = held_in(blocker, |pid| with_others.contains(&pid));
            let sum = sums.entry(key).or_default();
            sum.add(blocker, waiter, held_in, weights, &mut places);
            sum.span(self.spans.get(&wait.blocker).copied());
            let of_node = (attached[wait.cell as usize], key, Held::of(blocker.holder));
            of_nodes.entry(of_node).or_insert((blocker.holder, 0)).1 += weights.wall_ns;
            *of_threads.entry((wait.thread, key)).or_default() += weights.wall_ns;
        }
        let moved = moved(sums.iter().map(|(key, sum)| sum.sighting(*key)).collect());
        let newest = |key: LockKey| moved.get(&key).copied().unwrap_or(key);
        for older in moved.keys() {
            let older_sum = sums.remove(older).unwrap_or_default();
            sums.entry(newest(*older)).or_default().join(older_sum);
        }
        let mut of_newest: BTreeMap<(ThreadKey, LockKey), u64> = BTreeMap::new();
        for ((thread, key), ns) in of_threads {
            *of_newest.entry((thread, newest(key))).or_default() += ns;
        }
        let mut locks: Vec<Lock> =
            sums.into_iter().map(|(key, sum)| sum.lock(key, &places)).collect();
        locks.sort_by_key(|lock| (std::cmp::Reverse(lock.waited_ns), lock.pid, lock.object));
        locks.truncate(MAX_LOCKS);
        link(&mut locks, &of_newest);
        let mut waiting_now: FxHashMap<LockKey, u32> = FxHashMap::default();
        for now in &*snapshot.threads {
            if let Some(blocker) = snapshot.tables.blocker(now.blocker) {
                let key = newest(LockKey::of(blocker));
                if of_newest.contains_key(&(now.thread, key)) {
                    *waiting_now.entry(key).or_default() += 1;
                }
            }
        }
        for lock in &mut locks {
            lock.waiting_now = waiting_now.get(&lock.key()).copied().unwrap_or(0);
        }
        let of_nodes = of_nodes.into_iter().filter(|((node, ..), _)| *node != NONE);
        let node_wait = |((node, key, held), (holder, ns))| {
            let lock = locks.iter().position(|lock| lock.key() == newest(key))? as u32;
            let name = name_of(holder, places.tables);
            Some(NodeWait { node, lock, held, holder, name, ns })
        };
        let node_waits = of_nodes.filter_map(node_wait).collect();
        (locks, node_waits)
    }
}

/// Notes which holders wait for other locks themselves. `of_threads`: the time that each thread
/// waited for a lock, ns.
fn link(locks: &mut [Lock], of_threads: &BTreeMap<(ThreadKey, LockKey), u64>) {
    let keys: Vec<LockKey> = locks.iter().map(Lock::key).collect();
    for lock in locks {
        let (own, waiters) = (lock.key(), u64::from(lock.threads.max(1)));
        for held in &mut lock.holders {
            let Holder::Thread { thread, .. } = held.holder else { continue };
            let waited = |key: &LockKey| of_threads.get(&(thread, *key)).copied().unwrap_or(0);
            let others = keys.iter().zip(0..).filter(|(key, _)| **key != own);
            let longest = others.map(|(key, index)| (waited(key), std::cmp::Reverse(index))).max();
            // It held the lock about as long as one thread on average waited for it.
            held.waits_for = longest
                .filter(|(ns, _)| *ns > 0 && *ns * 2 * waiters >= held.waited_ns)
                .map(|(_, std::cmp::Reverse(index))| index);
        }
    }
}

fn name_of(holder: Holder, tables: &Tables) -> Arc<str> {
    match holder {
        Holder::Thread { name, .. } => tables.name(name).clone(),
        _ => "".into(),
    }
}

/// Time that the stacks that end at a node waited for a lock with one holder.
#[derive(Clone)]
pub(super) struct NodeWait {
    pub node: u32,
    /// An index into the locks.
    pub lock: u32,
    pub held: Held,
    /// One of the holders that are `held`.
    pub holder: Holder,
    /// The holder's.
    pub name: Arc<str>,
    pub ns: u64,
}

/// Returns what threads wait for: `monitor of TaxTable`, `mutex`.
pub fn noun(kind: BlockerKind, class: Option<&str>) -> String {
    match (kind, class) {
        (
            BlockerKind::OwnedLock | BlockerKind::Parked | BlockerKind::ThreadingLock,
            Some(class),
        ) => class.to_owned(),
        (BlockerKind::ThreadEnd, _) | (_, None) => kind.word().to_owned(),
        (BlockerKind::ClassInit, Some(class)) => format!("initialisation of {class}"),
        (kind, Some(class)) => format!("{} of {class}", kind.word()),
    }
}

/// Returns whether a thread holds the object while others wait for it, and it is known which one.
fn is_lock(blocker: &Blocker) -> bool {
    let kind = match blocker.kind {
        BlockerKind::Notify | BlockerKind::Condition | BlockerKind::Parked | BlockerKind::Child => {
            false
        }
        BlockerKind::Monitor
        | BlockerKind::OwnedLock
        | BlockerKind::Semaphore
        | BlockerKind::Latch
        | BlockerKind::Future
        | BlockerKind::ThreadEnd
        | BlockerKind::ClassInit
        | BlockerKind::Mutex
        | BlockerKind::RwLock
        | BlockerKind::FileLock
        | BlockerKind::Gil
        | BlockerKind::ThreadingLock => true,
    };
    // 0: not proven.
    kind && blocker.object != 0
}

#[derive(Default)]
struct Sum {
    class: Option<Arc<str>>,
    waited_ns: u64,
    threads: FxHashMap<ThreadKey, OfThread>,
    longest: Option<(u64, std::cmp::Reverse<Ns>, ThreadKey)>,
    /// By location of [`Places`].
    waiting_in: BTreeMap<Path, u64>,
    holders: BTreeMap<(Held, Path), Holding>,
    /// The starts of its first and of its last wait.
    span: Option<(Ns, Ns)>,
}

/// The waits of one thread.
struct OfThread {
    /// Its newest name.
    name: NameId,
    waited_ns: u64,
    longest: (u64, std::cmp::Reverse<Ns>),
    waiting_in: BTreeMap<Path, u64>,
}

impl OfThread {
    fn new(name: NameId) -> OfThread {
        let longest = (0, std::cmp::Reverse(Ns::MAX));
        OfThread { name, waited_ns: 0, longest, waiting_in: BTreeMap::new() }
    }

    fn add(&mut self, name: NameId, ns: u64, longest: (u64, std::cmp::Reverse<Ns>), place: &Path) {
        // Ids only grow.
        self.name = self.name.max(name);
        self.waited_ns += ns;
        self.longest = self.longest.max(longest);
        match self.waiting_in.get_mut(place) {
            Some(known) => *known += ns,
            None => _ = self.waiting_in.insert(place.clone(), ns),
        }
    }

    fn join(&mut self, other: &OfThread) {
        other.waiting_in.iter().for_each(|(place, ns)| {
            self.add(other.name, *ns, other.longest, place);
        });
    }

    fn waiter(self, thread: ThreadKey, places: &Places<'_>) -> Waiter {
        let place = self.waiting_in.into_iter().rev().max_by_key(|(_, ns)| *ns);
        Waiter {
            thread,
            name: places.tables.name(self.name).clone(),
            waited_ns: self.waited_ns,
            longest_ns: self.longest.0,
            longest_from: self.longest.1.0,
            place: place.map(|(place, _)| places.place(&place)).unwrap_or_default(),
        }
    }
}

/// A holder without what differs from wait to wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Held {
    Thread(ThreadKey),
    Foreign(u32, u32),
    Other(Holder),
}

impl Held {
    fn of(holder: Holder) -> Held {
        match holder {
            Holder::Thread { thread, .. } => Held::Thread(thread),
            Holder::Foreign { pid, tid } => Held::Foreign(pid, tid),
            other => Held::Other(other),
        }
    }

    pub fn is_thread(self) -> bool {
        matches!(self, Held::Thread(_) | Held::Foreign(..))
    }
}

/// A holder, the waited time, ns, and that by the call by which it had left the user's code.
type Holding = (Holder, u64, BTreeMap<Option<u32>, u64>);

impl Sum {
    fn add(
        &mut self,
        blocker: &Blocker,
        (thread, name, place): (ThreadKey, NameId, Path),
        held_in: Option<StackId>,
        weights: &Weights,
        places: &mut Places<'_>,
    ) {
        let ns = weights.wall_ns;
        self.class = self.class.take().or_else(|| blocker.class.clone());
        self.waited_ns += ns;
        let longest = (weights.longest_ns, std::cmp::Reverse(weights.longest_from));
        self.longest = self.longest.max(Some((longest.0, longest.1, thread)));
        let of_thread = self.threads.entry(thread).or_insert_with(|| OfThread::new(name));
        of_thread.add(name, ns, longest, &place);
        *self.waiting_in.entry(place).or_default() += ns;
        let (held_in, by) = match held_in {
            Some(stack) => (places.of(stack), places.exit_of(stack)),
            None => (Path::default(), None),
        };
        let held = self.holders.entry((Held::of(blocker.holder), held_in));
        let (_, waited_ns, calls) = held.or_insert((blocker.holder, 0, BTreeMap::new()));
        *waited_ns += ns;
        *calls.entry(by).or_default() += ns;
    }

    fn span(&mut self, span: Option<(Ns, Ns)>) {
        let Some((first, last)) = span else { return };
        let (known_first, known_last) = self.span.unwrap_or((first, last));
        self.span = Some((first.min(known_first), last.max(known_last)));
    }

    fn sighting(&self, key: LockKey) -> Sighting {
        let place = self.waiting_in.iter().max_by_key(|(_, ns)| **ns);
        let class = self.class.as_deref().unwrap_or_default().to_owned();
        let (first, last) = self.span.unwrap_or((0, Ns::MAX));
        let class_and_place = (class, place.map_or(Path::new(), |(place, _)| place.clone()));
        Sighting { key, class_and_place, first, last }
    }

    /// Adds what is known of the same lock at another address.
    fn join(&mut self, other: Sum) {
        self.waited_ns += other.waited_ns;
        for (thread, of_thread) in other.threads {
            let known = self.threads.entry(thread).or_insert_with(|| OfThread::new(of_thread.name));
            known.join(&of_thread);
        }
        self.longest = self.longest.max(other.longest);
        other.waiting_in.into_iter().for_each(|(place, ns)| {
            *self.waiting_in.entry(place).or_default() += ns;
        });
        for (key, (holder, ns, calls)) in other.holders {
            let held = self.holders.entry(key);
            let (_, waited_ns, known) = held.or_insert((holder, 0, BTreeMap::new()));
            *waited_ns += ns;
            calls.into_iter().for_each(|(by, ns)| *known.entry(by).or_default() += ns);
        }
    }

    fn lock(self, LockKey { pid, object, kind }: LockKey, places: &Places<'_>) -> Lock {
        let (longest_ns, longest_from, longest_thread) = match self.longest {
            Some((ns, std::cmp::Reverse(from), thread)) => (ns, from, thread),
            None => (0, 0, ThreadKey::unknown(pid)),
        };
        let mut waiting_in: Vec<(Place, u64)> = (self.waiting_in.into_iter())
            .filter(|(place, _)| !place.is_empty())
            .map(|(place, ns)| (places.place(&place), ns))
            .collect();
        waiting_in.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        waiting_in.truncate(MAX_PLACES);
        let threads = self.threads.len() as u32;
        let mut of_threads: Vec<(ThreadKey, OfThread)> = self.threads.into_iter().collect();
        of_threads.sort_by_key(|(thread, of)| (std::cmp::Reverse(of.waited_ns), *thread));
        of_threads.truncate(MAX_PLACES);
        let of_threads = of_threads.into_iter();
        let waiters = of_threads.map(|(thread, of)| of.waiter(thread, places)).collect();
        let mut holders: Vec<HeldBy> = (self.holders.into_iter())
            .map(|((_, place), (holder, waited_ns, calls))| {
                let by = calls.into_iter().max_by_key(|(_, ns)| *ns).and_then(|(by, _)| by);
                HeldBy {
                    holder,
                    name: name_of(holder, places.tables),
                    place: places.place(&place),
                    by: by.map(|location| places.rows.location(location).clone()),
                    waited_ns,
                    waits_for: None,
                }
            })
            .collect();
        holders.sort_by(|a, b| {
            b.waited_ns
                .cmp(&a.waited_ns)
                .then_with(|| (&a.name, a.holder).cmp(&(&b.name, b.holder)))
        });
        let known = holders.iter().filter_map(|held| match held.holder {
            Holder::Thread { thread, .. } => Some(thread),
            _ => None,
        });
        let holder_count = known.collect::<FxHashSet<ThreadKey>>().len() as u32;
        holders.truncate(MAX_PLACES);
        Lock {
            kind,
            pid,
            object,
            class: self.class,
            waited_ns: self.waited_ns,
            threads,
            longest_ns,
            longest_from,
            longest_thread,
            waiting_in,
            waiters,
            holders,
            waiting_now: 0,
            holder_count,
        }
    }
}
