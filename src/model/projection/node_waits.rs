//! For which locks the stacks that end at a node waited, and who held them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Projection;
use super::holder_words::held_by;
use super::locks::{Held, HeldBy, Lock, NodeWait, Waiter, noun};
use crate::model::facts::tables::Holder;
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::qualified::simple_class;

/// The waits of each node.
#[derive(Clone, Default)]
pub(super) struct LocksOfNodes(FxHashMap<u32, Vec<NodeWait>>);

impl LocksOfNodes {
    pub fn new(waits: Vec<NodeWait>) -> LocksOfNodes {
        let mut of_nodes = LocksOfNodes::default();
        for wait in waits {
            of_nodes.0.entry(wait.node).or_default().push(wait);
        }
        of_nodes
    }
}

/// The lock for which most of a row's time was waited.
#[derive(Clone, PartialEq, Debug)]
pub struct WaitedFor<'a> {
    pub lock: &'a Lock,
    pub held: MainHolder,
}

/// Who held a lock while the threads of a row waited for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MainHolder {
    Unknown,
    /// One thread, for most of that time.
    Thread(Arc<str>),
    /// A thread of another process, or one that was not observed.
    Foreign {
        pid: u32,
        tid: u32,
    },
    /// Several, none of them for most of the time.
    InTurn(usize),
}

impl WaitedFor<'_> {
    /// Returns what it is: `monitor of TaxTable`.
    pub fn what(&self) -> String {
        match (self.lock.kind, &self.held) {
            (BlockerKind::ThreadEnd, MainHolder::Thread(name)) => format!("end of {name}"),
            (kind, _) => noun(kind, self.lock.class.as_deref().map(simple_class)),
        }
    }

    /// Returns who held it, if that is known: `held by timer`.
    pub fn held_by(&self) -> Option<String> {
        match &self.held {
            MainHolder::Unknown => None,
            MainHolder::Thread(_) if self.lock.kind == BlockerKind::ThreadEnd => None,
            MainHolder::Thread(name) => Some(format!("held by {name}")),
            MainHolder::Foreign { pid, tid } => {
                let holder = Holder::Foreign { pid: *pid, tid: *tid };
                held_by(self.lock.kind, holder, "", self.lock.pid)
            }
            MainHolder::InTurn(threads) => Some(format!("held by {threads} threads in turn")),
        }
    }

    /// Returns both: `monitor of TaxTable, held by timer`.
    pub fn text(&self) -> String {
        [Some(self.what()), self.held_by()].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// A wait of the stacks that end at a node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WaitOfNode {
    /// An index into [`Projection::locks`].
    pub lock: u32,
    /// `held by timer`; of a thread's end, `of worker-3`. `None` where that is unknown.
    pub holder: Option<String>,
    pub waited_ns: u64,
}

impl Projection {
    /// Returns for which locks the stacks that end at a node waited, by holder.
    pub fn waits_of(&self, node: u32) -> Vec<WaitOfNode> {
        let waits = self.locks_of_nodes.0.get(&node).into_iter().flatten();
        let of = |wait: &NodeWait| {
            let lock = self.locks.get(wait.lock as usize)?;
            // That it was just released says nothing of the time before.
            let holder = Some(wait.holder).filter(|holder| *holder != Holder::Free);
            let holder = holder.and_then(|holder| held_by(lock.kind, holder, &wait.name, lock.pid));
            Some(WaitOfNode { lock: wait.lock, holder, waited_ns: wait.ns })
        };
        let mut waits: Vec<WaitOfNode> = waits.filter_map(of).collect();
        waits.sort();
        waits
    }

    /// Returns the node with most waited time of a lock, an index into [`Projection::locks`].
    pub fn node_of_lock(&self, lock: u32) -> Option<u32> {
        let ns = |waits: &[NodeWait]| -> u64 {
            waits.iter().filter(|wait| wait.lock == lock).map(|wait| wait.ns).sum()
        };
        let of_nodes = self.locks_of_nodes.0.iter().map(|(node, waits)| (ns(waits), *node));
        let most =
            of_nodes.filter(|(ns, _)| *ns > 0).max_by_key(|(ns, node)| (*ns, Reverse(*node)));
        most.map(|(_, node)| node)
    }

    /// Returns the node in which a thread waited for this lock.
    pub fn node_of_waiter(&self, waiter: &Waiter) -> Option<u32> {
        self.node_of(waiter.thread, waiter.place.last()?)
    }

    /// Returns the node in which a thread held a lock.
    pub fn node_held_in(&self, held: &HeldBy) -> Option<u32> {
        let Holder::Thread { thread, .. } = held.holder else { return None };
        self.node_of(thread, held.place.last()?)
    }

    /// Returns the lock for which most of `wall_ns` was waited in stacks that end at these nodes.
    pub(super) fn most_waited_lock(
        &self,
        nodes: impl Iterator<Item = u32>,
        wall_ns: u64,
    ) -> Option<WaitedFor<'_>> {
        let waits: Vec<&NodeWait> =
            nodes.filter_map(|node| self.locks_of_nodes.0.get(&node)).flatten().collect();
        let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
        waits.iter().for_each(|wait| *sums.entry(wait.lock).or_default() += wait.ns);
        let (lock, waited) = sums.into_iter().max_by_key(|(_, ns)| *ns)?;
        if waited <= wall_ns / 2 {
            return None;
        }
        let mut holders: BTreeMap<Held, (&NodeWait, u64)> = BTreeMap::new();
        for wait in waits.into_iter().filter(|wait| wait.lock == lock && wait.held.is_thread()) {
            holders.entry(wait.held).or_insert((wait, 0)).1 += wait.ns;
        }
        let (known, count) = (holders.values().map(|(_, ns)| ns).sum::<u64>(), holders.len());
        let most = holders.into_values().find(|(_, ns)| *ns > waited / 2);
        let held = match most.map(|(wait, _)| (wait.held, &wait.name)) {
            Some((Held::Foreign(pid, tid), _)) => MainHolder::Foreign { pid, tid },
            Some((_, name)) => MainHolder::Thread(name.clone()),
            None if known > waited / 2 => MainHolder::InTurn(count),
            None => MainHolder::Unknown,
        };
        Some(WaitedFor { lock: self.locks.get(lock as usize)?, held })
    }
}
