//! The view of waits: the locks that threads waited for, then the long waits.

use std::cmp::Reverse;

use super::keyed_list::KeyedList;
use crate::model::projection::Projection;
use crate::model::vocabulary::frame::{Ns, ThreadKey};

/// A line of the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitRow {
    /// An index into [`Projection::locks`].
    Lock(u32),
    /// An index into [`Projection::long_waits`].
    Wait(u32),
}

/// Identifies a line across projections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitKey {
    /// Its process and address.
    Lock(u32, u64),
    /// Its thread and start.
    Wait(ThreadKey, Ns),
}

#[derive(Clone, Debug, Default)]
pub struct WaitList {
    pub list: KeyedList<WaitRow, WaitKey>,
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
        let locks = (0..projection.locks.len() as u32).map(WaitRow::Lock);
        let rows = locks.chain(order.into_iter().map(WaitRow::Wait)).collect();
        self.list.set(rows, |key, row| *key == row.key(projection), 0, height);
    }
}

impl WaitRow {
    pub fn key(self, projection: &Projection) -> WaitKey {
        match self {
            WaitRow::Lock(at) => {
                let lock = &projection.locks[at as usize];
                WaitKey::Lock(lock.pid, lock.object)
            }
            WaitRow::Wait(at) => {
                let wait = &projection.long_waits[at as usize];
                WaitKey::Wait(wait.thread, wait.from_ns)
            }
        }
    }

    /// Returns the node in which the wait was; of a lock, the one with most of its waited time.
    pub fn node(self, projection: &Projection) -> Option<u32> {
        match self {
            WaitRow::Wait(at) => projection.long_waits[at as usize].node,
            WaitRow::Lock(at) => projection.node_of_lock(at),
        }
    }
}
