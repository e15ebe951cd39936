//! What a thread that was observed blocked waits for, read while it stays blocked.

use super::{LastSeen, ThreadScan};
use crate::model::vocabulary::event::{Counters, Observation, Seen, Syscall};
use crate::model::vocabulary::frame::Ns;
use crate::process::threads::{CounterSource, Doing};

impl ThreadScan {
    /// Returns whether this is a thread of the process.
    pub fn has(&self, tid: u32) -> bool {
        self.index
            .get(&tid)
            .is_some_and(|index| !matches!(self.known[*index].last, LastSeen::Ended))
    }

    /// Returns whether the thread was last observed blocked.
    pub fn is_blocked(&self, tid: u32) -> bool {
        let known = self.index.get(&tid).map(|index| &self.known[*index]);
        known.is_some_and(|known| matches!(known.last, LastSeen::Blocked))
    }

    /// Returns whether the thread still is in the wait in which it was observed: it has not run
    /// since.
    pub fn still_waits(&mut self, tid: u32) -> bool {
        if !self.is_blocked(tid) {
            return false;
        }
        let Some(index) = self.index.get(&tid).copied() else { return false };
        let known = &mut self.known[index];
        let Some(before) = known.counters else { return false };
        self.tasks
            .counters(&mut known.files)
            .is_ok_and(|now| now.run_ns == before.run_ns && now.runs == before.runs)
    }

    /// Returns the observation that a thread runs, or ran, which was last observed blocked and has
    /// run since: it is not where it was. `None` if it still waits, or was not blocked. The next
    /// scan visits it.
    pub fn take_moved(&mut self, tid: u32, now: Ns) -> Option<Observation> {
        if !self.is_blocked(tid) || self.still_waits(tid) {
            return None;
        }
        let index = self.index.get(&tid).copied()?;
        let counters = self.tasks.counters(&mut self.known[index].files).ok()?;
        let before = self.known[index].counters?;
        if counters.run_ns < before.run_ns || counters.runs < before.runs {
            // Another thread has its number by now.
            return None;
        }
        // The counters of the last scan stay: the next one compares with them.
        self.discard_state(index);
        let known = &self.known[index];
        Some(Observation {
            counters: Some(counters),
            ..Observation::new(now, known.key, known.name, Seen::Running)
        })
    }

    /// Returns the processor of a thread that runs, or waits for that processor, and its counters.
    /// They stay the same while another thread has the processor, and change when it has run
    /// elsewhere. `None`: it does not run, or there are no such counters.
    pub fn running_on(&mut self, tid: u32) -> Option<(u32, Counters)> {
        let index = self.index.get(&tid).copied()?;
        let known = &mut self.known[index];
        if self.tasks.source() != CounterSource::Schedstat {
            return None;
        }
        let counters = self.tasks.counters(&mut known.files).ok()?;
        let stat = self.tasks.stat(&mut known.files).ok()?;
        let is_it = stat.start == known.key.start && stat.state == b'R';
        is_it.then_some((stat.processor, counters))
    }

    /// Returns the system call in which the thread is blocked now, and its stack pointer.
    pub fn blocked_in(&mut self, tid: u32) -> Option<(Syscall, u64)> {
        let index = self.index.get(&tid).copied()?;
        match self.tasks.doing(&mut self.known[index].files) {
            Ok(Doing::Blocked { call, sp, .. }) => Some((call, sp)),
            _ => None,
        }
    }
}
