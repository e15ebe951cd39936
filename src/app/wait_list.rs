//! The view of waits: the locks that threads waited for, then the long waits one by one.

use super::list::{List, Step};
use crate::model::projection::{LongWait, Projection};
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
enum Key {
    /// Its process and address.
    Lock(u32, u64),
    /// Its thread and start.
    Wait(ThreadKey, Ns),
}

impl Key {
    fn of(row: WaitRow, projection: &Projection) -> Key {
        match row {
            WaitRow::Lock(at) => {
                let lock = &projection.locks[at as usize];
                Key::Lock(lock.pid, lock.object)
            }
            WaitRow::Wait(at) => {
                let wait = &projection.long_waits[at as usize];
                Key::Wait(wait.thread, wait.from_ns)
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct WaitList {
    pub rows: Vec<WaitRow>,
    pub list: List,
    /// Waits are ordered by their start, the latest first; else by their duration.
    pub latest_first: bool,
    /// `None`: the first row, whichever it is.
    selected: Option<Key>,
}

impl WaitList {
    /// Reads the rows of a new projection, or in another order.
    pub fn reshape(&mut self, projection: &Projection, height: usize) {
        let waits = &projection.long_waits;
        let mut order: Vec<u32> = (0..waits.len() as u32).collect();
        if self.latest_first {
            order.sort_by_key(|at| std::cmp::Reverse(waits[*at as usize].from_ns));
        }
        let locks = (0..projection.locks.len() as u32).map(WaitRow::Lock);
        self.rows = locks.chain(order.into_iter().map(WaitRow::Wait)).collect();
        let cursor = match self.selected {
            None => 0,
            Some(key) => {
                let found = self.rows.iter().position(|row| Key::of(*row, projection) == key);
                found.unwrap_or(self.list.cursor)
            }
        };
        self.list.follow(cursor, self.rows.len(), height);
    }

    pub fn step(&mut self, step: Step, projection: &Projection, height: usize) {
        self.list.step(step, self.rows.len(), height);
        self.select(projection, step == Step::First);
    }

    /// Goes to a row.
    pub fn go_to(&mut self, row: usize, projection: &Projection, height: usize) {
        self.list.cursor = row;
        self.list.show(self.rows.len(), height);
        self.select(projection, false);
    }

    /// Returns the line under the cursor.
    pub fn selected(&self) -> Option<WaitRow> {
        self.rows.get(self.list.cursor).copied()
    }

    fn select(&mut self, projection: &Projection, first: bool) {
        let row = self.rows.get(self.list.cursor).filter(|_| !first);
        self.selected = row.map(|row| Key::of(*row, projection));
    }
}

impl WaitRow {
    /// Returns the node in which the wait was; of a lock, its longest wait's.
    pub fn node(self, projection: &Projection) -> Option<u32> {
        match self {
            WaitRow::Wait(at) => projection.long_waits[at as usize].node,
            WaitRow::Lock(at) => {
                let lock = &projection.locks[at as usize];
                let is_longest = |wait: &&LongWait| {
                    (wait.thread, wait.from_ns) == (lock.longest_thread, lock.longest_from)
                };
                projection.long_waits.iter().find(is_longest)?.node
            }
        }
    }
}
