//! The kernel's ids of a process's threads, as the process itself sees them.

use std::fs;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::clock::monotonic;
use crate::model::vocabulary::blocker::RawHolder;
use crate::model::vocabulary::frame::{Ns, SECOND};
use crate::process::pid_namespaces::{ids_inside, pid_inside};

/// Maximum threads visited.
const THREADS_MAX: usize = 100_000;
/// Minimum time between two readings of all ids, if one is missing.
const READ_AGAIN: Ns = SECOND / 10;

/// Ids of threads, by the process's own pid namespace.
#[derive(Default)]
pub struct ThreadIds {
    /// `None`: there is no such process, as in tests; ids are what they are.
    pid: Option<u32>,
    /// From our ids to those in the process's namespace; `None` where both are the same.
    inside: Option<FxHashMap<u32, u32>>,
    read_at: Option<Ns>,
    main: Option<u32>,
    /// All ids, where there is no process.
    made_up: FxHashSet<u32>,
}

impl ThreadIds {
    pub fn of(pid: u32) -> ThreadIds {
        ThreadIds { pid: Some(pid), main: pid_inside(pid), ..ThreadIds::default() }
    }

    /// Returns these ids; the first is that of the main thread.
    #[cfg(test)]
    pub fn made_up(ids: std::ops::Range<u32>) -> ThreadIds {
        ThreadIds { main: Some(ids.start), made_up: ids.collect(), ..ThreadIds::default() }
    }

    /// Returns the id of the main thread, as the process sees it.
    pub fn main(&self) -> Option<u32> {
        self.main
    }

    /// Returns the thread with this id in the process's own pid namespace, as the holder of a lock.
    pub fn holder(&self, id: Option<u32>) -> RawHolder {
        match id {
            Some(tid) if tid != 0 => RawHolder::Thread { pid: self.pid.unwrap_or(0), tid },
            _ => RawHolder::Unknown,
        }
    }

    fn read(&mut self, pid: u32) {
        self.read_at = Some(monotonic());
        self.inside = ids_inside(pid)
            .map(|outside| outside.into_iter().map(|(inner, outer)| (outer, inner)).collect());
    }

    /// Returns the id that the process sees of a thread of ours.
    pub fn inside(&mut self, tid: u32) -> Option<u32> {
        let Some(pid) = self.pid else { return Some(tid) };
        let due = match (self.read_at, &self.inside) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(at), Some(inside)) => {
                !inside.contains_key(&tid) && monotonic() >= at + READ_AGAIN
            }
        };
        if due {
            self.read(pid);
        }
        match &self.inside {
            Some(inside) => inside.get(&tid).copied(),
            None => Some(tid),
        }
    }

    /// Returns our id of a thread that the process sees by this id. `None`: there is no such
    /// thread, or it began after the ids were read.
    pub fn outside(&self, id: u32) -> Option<u32> {
        let Some(inside) = &self.inside else { return Some(id).filter(|id| *id != 0) };
        inside.iter().find(|(_, inner)| **inner == id).map(|(outer, _)| *outer)
    }

    /// Returns the ids of all threads, as the process sees them.
    pub fn all(&mut self) -> FxHashSet<u32> {
        let Some(pid) = self.pid else { return self.made_up.clone() };
        self.read(pid);
        if let Some(inside) = &self.inside {
            return inside.values().copied().collect();
        }
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
            return FxHashSet::default();
        };
        tasks
            .take(THREADS_MAX)
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_namespace_of_its_own_only_known_ids_are_ours() {
        let same = ThreadIds::made_up(1..3);
        assert_eq!([7, 0].map(|id| same.outside(id)), [Some(7), None]);
        let other =
            ThreadIds { inside: Some(FxHashMap::from_iter([(4_711, 7)])), ..ThreadIds::default() };
        assert_eq!([7, 8, 4_711].map(|id| other.outside(id)), [Some(4_711), None, None]);
    }
}
