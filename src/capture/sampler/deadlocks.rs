//! Deadlocks: threads that wait for each other in a circle.
//!
//! A circle among waits that were read at different times may never have existed. So each is read
//! again: every thread must have stood still, by its counters, from before the first of these reads
//! until after the last. Then all the waits of the circle existed at one moment, and none of them
//! can end.

use rustc_hash::FxHashSet;

use crate::capture::sampler::Core;
use crate::model::vocabulary::event::Event;
use crate::model::vocabulary::frame::{Ns, ThreadKey};

/// Maximum threads of one deadlock.
const MAX_THREADS: usize = 64;
/// Maximum deadlocks reported.
const MAX_DEADLOCKS: usize = 16;

/// Process and thread id.
type Id = (u32, u32);

impl Core {
    /// Checks whether threads wait for each other, and reports a change.
    pub(super) fn check_deadlocks(&mut self, at: Ns) {
        let circles = self.circles();
        let mut cycles: Vec<Vec<ThreadKey>> = Vec::new();
        for circle in circles {
            let known = |cycle: &&Vec<ThreadKey>| {
                cycle.iter().map(|thread| (thread.pid, thread.tid)).eq(circle.iter().copied())
            };
            // A proven one lasts as long as its threads wait for the same.
            let proven = match self.deadlocks.iter().find(known) {
                Some(known) => Some(known.clone()),
                None => self.prove(&circle, at),
            };
            cycles.extend(proven);
        }
        if cycles != self.deadlocks {
            self.deadlocks.clone_from(&cycles);
            self.send(Event::Deadlocks { at, cycles });
        }
    }

    fn edge(&self, (pid, tid): Id) -> Option<Id> {
        let index = self.find(pid)?;
        let process = &self.processes[index];
        process.blockers.edge(tid).filter(|_| process.scan.is_blocked(tid))
    }

    /// Returns the circles among the waits as they were last read. Each begins with its lowest id.
    fn circles(&self) -> Vec<Vec<Id>> {
        let waiting = self.processes.iter().flat_map(|process| {
            process.blockers.schedule.threads().map(|tid| (process.pid(), tid)).collect::<Vec<Id>>()
        });
        let (mut done, mut circles) = (FxHashSet::default(), Vec::new());
        for first in waiting {
            // Each thread waits for one other, so a path is walked once.
            let (mut path, mut at) = (Vec::new(), first);
            while done.insert(at) {
                path.push(at);
                match self.edge(at) {
                    Some(next) => at = next,
                    None => break,
                }
            }
            let begin = path.iter().position(|on_path| *on_path == at);
            if let Some(begin) = begin
                && self.edge(path[path.len() - 1]) == Some(at)
            {
                let mut circle = path.split_off(begin);
                let lowest = (0..circle.len()).min_by_key(|nth| circle[*nth]).unwrap_or(0);
                circle.rotate_left(lowest);
                circles.push(circle);
            }
        }
        circles.sort();
        circles.retain(|circle| circle.len() <= MAX_THREADS);
        circles.truncate(MAX_DEADLOCKS);
        circles
    }

    /// Returns the threads of a circle that existed at one moment.
    fn prove(&mut self, circle: &[Id], now: Ns) -> Option<Vec<ThreadKey>> {
        let stand_still = |core: &mut Core| {
            circle.iter().all(|(pid, tid)| {
                core.find(*pid).is_some_and(|index| core.processes[index].scan.still_waits(*tid))
            })
        };
        if !stand_still(self) {
            return None;
        }
        for (nth, (pid, tid)) in circle.iter().enumerate() {
            let index = self.find(*pid)?;
            self.read_edge_again(index, *tid, now)?;
            let next = circle[(nth + 1) % circle.len()];
            if self.processes[index].blockers.edge(*tid) != Some(next) {
                return None;
            }
        }
        if !stand_still(self) {
            return None;
        }
        let thread = |(pid, tid): &Id| {
            let index = self.find(*pid)?;
            self.processes[index].blockers.schedule.get(*tid).map(|wait| wait.thread)
        };
        circle.iter().map(thread).collect()
    }
}
