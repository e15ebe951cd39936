//! Numbers of processes. Where several hosts have a process with the same one, the second gets a
//! number that no process can have.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

/// Linux's limit of process ids (PID_MAX_LIMIT, 64-bit kernels).
pub const PID_MAX: u32 = 1 << 22;

pub struct Pids {
    /// The merged number of a process, by host and its number there.
    merged: FxHashMap<(usize, u32), u32>,
    used: BTreeSet<u32>,
    next: u32,
}

impl Default for Pids {
    fn default() -> Pids {
        Pids { merged: FxHashMap::default(), used: BTreeSet::new(), next: PID_MAX + 1 }
    }
}

impl Pids {
    /// Returns the merged number of a host's process.
    pub fn merged(&mut self, host: usize, pid: u32) -> u32 {
        if let Some(known) = self.merged.get(&(host, pid)) {
            return *known;
        }
        let mut free = pid;
        while !self.used.insert(free) {
            free = self.next;
            self.next = self.next.saturating_add(1);
            if free == u32::MAX {
                break;
            }
        }
        self.merged.insert((host, pid), free);
        free
    }

    /// Returns host, number and merged number of those that got another one, in the latter's order.
    pub fn renamed(&self) -> Vec<((usize, u32), u32)> {
        let all = self.merged.iter().map(|(of, now)| (*of, *now));
        let mut renamed: Vec<_> = all.filter(|((_, pid), now)| pid != now).collect();
        renamed.sort_unstable_by_key(|(_, now)| *now);
        renamed
    }
}
