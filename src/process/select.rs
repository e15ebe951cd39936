//! Which processes are to be watched: those with these numbers, with such a name, in a control
//! group; and their children.
//!
//! The rules are here, what they are about comes from [`Processes`]. A look reads what is new, and
//! again what may have become another program meanwhile (a shell that forks, and then runs what it
//! was asked for), so that it stays cheap however many processes there are.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::path::Path;

use crate::config::Wanted;

/// Maximum processes taken in by one search: attaching takes a millisecond or so each.
const TAKEN_AT_ONCE: usize = 16;
/// Maximum new processes read by one search, once all were read that were there at first:
/// more come only in a storm of forks, and most of those are gone again soon.
const READ_AT_ONCE: usize = 100;
/// Others that are read again by each search, in turn.
const READ_AGAIN: usize = 25;
/// Searches by which a new process is read again: it is about to become what it was made for.
const YOUNG: u8 = 6;

/// Where processes are found.
pub trait Processes {
    /// The numbers of all of them, some ten thousand at most.
    fn all(&mut self) -> Vec<u32>;
    /// `None`: it has ended.
    fn read(&mut self, pid: u32) -> Option<Found>;
    /// Those in this control group, and in the groups within it.
    fn members(&mut self, group: &Path) -> Vec<u32>;
    /// Those of this systemd unit.
    fn of_unit(&mut self, name: &str) -> Vec<u32>;
    /// The one whose number is in this file, unless the file is older than it: then it is
    /// another's.
    fn in_file(&mut self, path: &Path) -> Option<u32>;
}

/// What is known of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its name (comm).
    pub name: String,
    pub command: String,
    pub parent: u32,
    /// Clock ticks since boot.
    pub start: u64,
    /// No kernel thread and no zombie.
    pub watchable: bool,
}

struct Known {
    parent: u32,
    start: u64,
    watchable: bool,
    wanted: bool,
    /// It was given out: it is watched, or cannot be.
    taken: bool,
    /// The searches by which it is read again.
    young: u8,
}

/// Chooses processes.
pub struct Select {
    wanted: Wanted,
    children: bool,
    /// sampletop itself, and who started it, outward.
    own: Vec<u32>,
    known: BTreeMap<u32, Known>,
    /// Whose turn it was last to be read again.
    turn: u32,
    looked: bool,
    dropped: usize,
}

impl Select {
    /// `children`: those of chosen processes are chosen, too. `own`: sampletop's own number, then
    /// that of its parent, and so on.
    pub fn new(wanted: Wanted, children: bool, own: Vec<u32>) -> Select {
        Select { wanted, children, own, known: BTreeMap::new(), turn: 0, looked: false, dropped: 0 }
    }

    /// Those that are to be watched from now on, the lowest number first, at most `room`. Each is
    /// given out once.
    pub fn observe(&mut self, processes: &mut impl Processes, room: usize) -> Vec<u32> {
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
        self.looked = true;
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

    /// Processes that should be watched, as of the last look, and for which there was no room.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// Reads what is new, what is young, and some of the rest.
    fn read(&mut self, processes: &mut impl Processes, all: &[u32]) {
        let most = if self.looked { READ_AT_ONCE } else { usize::MAX };
        let known = &self.known;
        let mut due: Vec<u32> =
            all.iter().filter(|pid| !known.contains_key(pid)).take(most).copied().collect();
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
            let new = || Known {
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
                // The number was given to another process.
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
                // The words that we were started with stand in the command line of who started us
                // (sudo, a shell), too.
                let repeats_ours = self.own.contains(&pid) || found.name == "sampletop";
                pattern.is_match(&found.name) || !repeats_ours && pattern.is_match(&found.command)
            }
            // Those are told by number.
            _ => false,
        }
    }

    /// Children of those that are wanted, theirs, and so on.
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
                // An older one is the child of another process that had this number.
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
