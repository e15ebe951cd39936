//! Selects the processes to watch: by pid, by name, by control group; and their children.
//!
//! The rules are here; their input comes from [`Processes`]. A scan reads new processes. It reads
//! again those that may have become another program meanwhile (a shell that forks, and then runs a
//! command). So it stays cheap however many processes there are.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::path::Path;

use crate::config::Wanted;

/// Maximum processes attached by one scan: attaching takes about a millisecond each.
const TAKEN_AT_ONCE: usize = 16;
/// Maximum new processes read by one scan after the first one. More come only in a storm of forks,
/// and most of those end soon.
const READ_AT_ONCE: usize = 100;
/// Maximum other processes that are read again by each scan, in turn.
const READ_AGAIN: usize = 25;
/// Number of scans that read a new process again: it may soon become another program.
const YOUNG: u8 = 6;

/// A source of processes.
pub trait Processes {
    /// Returns all pids, some ten thousand at most.
    fn all(&mut self) -> Vec<u32>;
    /// Reads a process; `None`: it has ended.
    fn read(&mut self, pid: u32) -> Option<Found>;
    /// Returns the processes in this control group and in its subgroups.
    fn members(&mut self, group: &Path) -> Vec<u32>;
    /// Returns the processes of this systemd unit.
    fn of_unit(&mut self, name: &str) -> Vec<u32>;
    /// Returns the process whose pid is in this file. A file older than the process means another
    /// one that had its pid.
    fn in_file(&mut self, path: &Path) -> Option<u32>;
}

/// Properties of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its name (comm).
    pub name: String,
    pub command: String,
    pub parent: u32,
    /// Clock ticks since boot.
    pub start: u64,
    /// It is neither a kernel thread nor a zombie.
    pub watchable: bool,
}

struct KnownProcess {
    parent: u32,
    start: u64,
    watchable: bool,
    wanted: bool,
    /// It was returned by a scan: it is watched, or cannot be.
    taken: bool,
    /// Number of scans that still read it again.
    young: u8,
}

/// Selects processes.
pub struct Select {
    wanted: Wanted,
    children: bool,
    /// sampletop's own pid, then those of its ancestors, outward.
    own: Vec<u32>,
    known: BTreeMap<u32, KnownProcess>,
    /// The last process that was read again in turn.
    turn: u32,
    scanned: bool,
    dropped: usize,
}

impl Select {
    /// Creates a selection. `children`: children of selected processes are selected too. `own`:
    /// sampletop's own pid, then that of its parent, and so on.
    pub fn new(wanted: Wanted, children: bool, own: Vec<u32>) -> Select {
        Select {
            wanted,
            children,
            own,
            known: BTreeMap::new(),
            turn: 0,
            scanned: false,
            dropped: 0,
        }
    }

    /// Returns the newly selected processes, the lowest pid first, at most `room`. Each is returned
    /// once.
    pub fn observe(&mut self, processes: &mut (impl Processes + ?Sized), room: usize) -> Vec<u32> {
        let scans = self.children || matches!(self.wanted, Wanted::Name(_));
        let mut members = match &self.wanted {
            Wanted::Pids(pids) => pids.clone(),
            Wanted::Name(_) => Vec::new(),
            Wanted::Cgroup(path) => processes.members(path),
            Wanted::Unit(name) => processes.of_unit(name),
            Wanted::Pidfile(path) => processes.in_file(path).into_iter().collect(),
        };
        members.retain(|pid| self.own.first() != Some(pid));
        let mut all = if scans { processes.all() } else { Vec::new() };
        all.extend(&members);
        all.sort_unstable();
        all.dedup();
        self.known.retain(|pid, _| all.binary_search(pid).is_ok());
        self.read(processes, &all);
        for pid in members {
            if let Some(known) = self.known.get_mut(&pid) {
                known.wanted |= known.watchable;
            }
        }
        if self.children {
            self.want_children();
        }
        self.scanned = true;
        let mut chosen: Vec<u32> = self
            .known
            .iter()
            .filter(|(_, known)| known.wanted && !known.taken)
            .map(|(pid, _)| *pid)
            .collect();
        self.dropped = chosen.len().saturating_sub(room);
        chosen.truncate(room.min(TAKEN_AT_ONCE));
        for pid in &chosen {
            if let Some(known) = self.known.get_mut(pid) {
                known.taken = true;
            }
        }
        chosen
    }

    /// Returns the number of processes that the last scan selected but had no room for.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// Reads new processes, young ones, and some of the rest.
    fn read(&mut self, processes: &mut (impl Processes + ?Sized), all: &[u32]) {
        let max = if self.scanned { READ_AT_ONCE } else { usize::MAX };
        let known = &self.known;
        let mut due: Vec<u32> =
            all.iter().filter(|pid| !known.contains_key(pid)).take(max).copied().collect();
        due.extend(
            known
                .iter()
                .filter(|(_, known)| known.young > 0)
                .map(|(pid, _)| *pid)
                .take(READ_AT_ONCE),
        );
        let again = known.range((Excluded(self.turn), Unbounded)).chain(known.range(..=self.turn));
        let again: Vec<u32> = again.map(|(pid, _)| *pid).take(READ_AGAIN).collect();
        self.turn = again.last().copied().unwrap_or(0);
        due.extend(again);
        for pid in due {
            let Some(found) = processes.read(pid) else {
                self.known.remove(&pid);
                continue;
            };
            let new = || KnownProcess {
                parent: found.parent,
                start: found.start,
                watchable: false,
                wanted: false,
                taken: false,
                young: YOUNG,
            };
            let wanted = found.watchable && self.wants(pid, &found);
            let known = self.known.entry(pid).or_insert_with(new);
            if known.start != found.start {
                // The pid was reused by another process.
                *known = new();
            }
            known.wanted |= wanted;
            known.watchable = found.watchable;
            known.young = known.young.saturating_sub(1);
        }
    }

    fn wants(&self, pid: u32, found: &Found) -> bool {
        match &self.wanted {
            Wanted::Name(pattern) if self.own.first() != Some(&pid) => {
                // Our own command line also stands in that of our ancestors (sudo, a shell).
                let repeats_ours = self.own.contains(&pid) || found.name == "sampletop";
                pattern.is_match(&found.name) || !repeats_ours && pattern.is_match(&found.command)
            }
            // Those are selected by pid.
            _ => false,
        }
    }

    /// Selects children of selected processes, their children, and so on.
    fn want_children(&mut self) {
        let mut families: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut parents = Vec::new();
        for (pid, known) in &self.known {
            if known.wanted {
                parents.push(*pid);
            } else if known.watchable && self.own.first() != Some(pid) {
                families.entry(known.parent).or_default().push(*pid);
            }
        }
        while let Some(parent) = parents.pop() {
            let born = self.known.get(&parent).map_or(0, |known| known.start);
            for pid in families.remove(&parent).unwrap_or_default() {
                // An older one is the child of another process that had this pid.
                if let Some(child) = self.known.get_mut(&pid).filter(|child| child.start >= born) {
                    child.wanted = true;
                    parents.push(pid);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
