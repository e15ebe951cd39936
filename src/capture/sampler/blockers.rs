//! Reads what blocked threads wait for, and who holds it: after the thread scan, for threads that
//! were observed blocked, and again for waits that go on.

use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::capture::sampler::Core;
use crate::capture::sampler::allowance::Allowance;
use crate::capture::sampler::wait_schedule::{Due, Wait, WaitSchedule};
use crate::capture::thread_scan::ThreadScan;
use crate::clock::{monotonic, thread_cpu};
use crate::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use crate::model::vocabulary::event::{Event, Observation, Seen, Syscall};
use crate::model::vocabulary::frame::{Ns, SECOND};
use crate::process::blockers::{BlockedThread, LockTable, native_blocker};
use crate::process::memory::Memory;
use crate::process::pid_namespaces::ids_inside;
use crate::unwinder::Unwinder;
use crate::unwinder::interpreted::StackOwner;

/// Maximum blockers read per tick.
const MAX_READS: usize = 200;
/// Reads of a process that look up a runtime's classes and fields. They may take tens of
/// milliseconds of CPU time each.
const FIRST_READS: u32 = 16;
/// Maximum time that is charged for each of them, ns: other waits are not to wait for them.
const FIRST_READ: Ns = 200_000;
/// Minimum time between two reads of the ids inside a PID namespace.
const IDS_AGAIN: Ns = SECOND;

/// What the blocked threads of one process wait for.
pub(super) struct Blockers {
    pid: u32,
    memory: Memory,
    pub schedule: WaitSchedule,
    /// Our thread ids by those of the process's own PID namespace; `None` where both are the same.
    ids: Option<FxHashMap<u32, u32>>,
    ids_read: Option<Ns>,
    /// Number of reads, up to [`FIRST_READS`].
    reads: u32,
}

impl Blockers {
    pub fn new(pid: u32) -> Blockers {
        Blockers {
            pid,
            memory: Memory::new(pid),
            schedule: WaitSchedule::default(),
            ids: None,
            ids_read: None,
            reads: 0,
        }
    }

    /// Forgets all waits: the program was replaced.
    pub fn clear(&mut self) {
        *self = Blockers::new(self.pid);
    }

    /// Returns what a thread waits for that is blocked in `call`, if it still is afterwards.
    fn read(
        &mut self,
        tid: u32,
        call: &Syscall,
        scan: &mut ThreadScan,
        unwinder: &mut dyn Unwinder,
        now: Ns,
    ) -> Option<RawBlocker> {
        if !scan.is_blocked(tid) {
            return None;
        }
        self.read_ids(now);
        let (_, sp) = scan.blocked_in(tid).filter(|(now_in, _)| now_in == call)?;
        let owner = StackOwner { tid, fs_base: None, sp, futex: call.futex() };
        let of_runtime = unwinder.reads_blockers().then(|| unwinder.blocker(owner)).flatten();
        let found = match of_runtime {
            Some(blocker) => self.with_our_ids(blocker),
            None => {
                let thread_id = |inside: u32| self.our_id(inside).filter(|tid| scan.has(*tid));
                let thread = BlockedThread {
                    pid: self.pid,
                    tid,
                    memory: &self.memory,
                    thread_id: &thread_id,
                };
                native_blocker(&thread, call)?
            }
        };
        // Counters that have not moved since the observation prove all that was read meanwhile.
        scan.still_waits(tid).then_some(found)
    }

    fn our_id(&self, inside: u32) -> Option<u32> {
        match &self.ids {
            None => Some(inside),
            Some(ids) => ids.get(&inside).copied(),
        }
    }

    /// Replaces a thread id of the process's own PID namespace.
    fn with_our_ids(&self, mut blocker: RawBlocker) -> RawBlocker {
        if let RawHolder::Thread { tid, .. } = blocker.holder {
            blocker.holder = match self.our_id(tid) {
                Some(tid) => RawHolder::Thread { pid: self.pid, tid },
                None => RawHolder::Unknown,
            };
        }
        blocker
    }

    fn read_ids(&mut self, now: Ns) {
        let contained = self.ids_read.is_none() || self.ids.is_some();
        if contained && self.ids_read.is_none_or(|read| now >= read + IDS_AGAIN) {
            (self.ids, self.ids_read) = (ids_inside(self.pid), Some(now));
        }
    }

    /// Returns the thread that an endless wait is for.
    pub fn edge(&self, tid: u32) -> Option<(u32, u32)> {
        let wait = self.schedule.get(tid)?;
        let blocker = wait.blocker?;
        let endless = blocker.kind.ignores_time_limit() || !wait.call.has_futex_limit();
        match blocker.holder {
            // A Java program may join its own main thread to keep it: that is meant.
            RawHolder::Thread { pid, tid: holder }
                if blocker.kind == BlockerKind::ThreadEnd && (pid, holder) == (self.pid, tid) =>
            {
                None
            }
            RawHolder::Thread { pid, tid } if endless && blocker.kind.is_exclusive() => {
                Some((pid, tid))
            }
            _ => None,
        }
    }
}

/// Returns whether the call may wait for what another thread or process holds: a futex, a child, a
/// file lock.
fn may_be_held(call: &Syscall) -> bool {
    const F_SETLKW: u64 = 7;
    const F_OFD_SETLKW: u64 = 38;
    match call.number {
        Syscall::FUTEX | 61 | 73 | 247 => true,
        72 => matches!(call.args[1] & 0xffff_ffff, F_SETLKW | F_OFD_SETLKW),
        _ => false,
    }
}

impl Core {
    /// Reads what the threads wait for that were observed blocked since the last tick, and again
    /// what those wait for whose waits go on. Both within the allowance; the rest has no blocker.
    pub(super) fn read_blockers(&mut self, now: Ns) {
        self.allowance.refill(now);
        let mut left = MAX_READS;
        if self.once {
            // One stack of each thread is wanted, and what it waits for: no later tick does it.
            (left, self.allowance) = (usize::MAX, Allowance::UNLIMITED);
        }
        let mut events = std::mem::take(&mut self.events);
        for event in &mut events {
            let Event::Observation(observation) = event else { continue };
            self.read_blocker_of(observation, now, &mut left);
        }
        for index in 0..self.processes.len() {
            while left > 0 && self.allowance.allows_reading() {
                let again = self.allowance.allows_reading_again();
                let schedule = &mut self.processes[index].blockers.schedule;
                let Some(due) = schedule.take_due(now, again) else { break };
                left -= 1;
                if self.has_moved_since_visit(index, &due) {
                    continue;
                }
                match due {
                    Due::Read(wait) => events.extend(self.read_again(index, wait, now)),
                    // Its holder is the same, but may be elsewhere by now.
                    Due::Confirmed(thread, blocker) => {
                        events.push(Event::StillBlocked { at: now, thread, blocker });
                    }
                    Due::Postponed => {}
                }
            }
        }
        if let Some(begin) = self.reading_since.take() {
            self.allowance.correct(thread_cpu().saturating_sub(begin));
        }
        // They are booked before the waits, which are held until the tick.
        events.append(&mut self.events);
        self.events = events;
    }

    /// Returns whether the wait has ended, which between rationed visits no scan has found. The
    /// next one then observes the thread.
    fn has_moved_since_visit(&mut self, index: usize, due: &Due) -> bool {
        let tid = match due {
            Due::Read(wait) => wait.thread.tid,
            Due::Confirmed(thread, _) => thread.tid,
            Due::Postponed => return false,
        };
        let is_rationed = self.visit_interval().is_some();
        let process = &mut self.processes[index];
        let moved = is_rationed && !process.scan.still_waits(tid);
        if moved {
            process.blockers.schedule.remove(tid);
            process.scan.mark_undelivered(tid);
        }
        moved
    }

    fn read_blocker_of(&mut self, observation: &mut Observation, now: Ns, left: &mut usize) {
        let thread = observation.thread;
        let Some(index) = self.find(thread.pid) else { return };
        let process = &mut self.processes[index];
        let schedule = &mut process.blockers.schedule;
        // The thread has run since: the wait in which it was before has ended.
        schedule.remove(thread.tid);
        let Seen::Blocked(call) = observation.seen else { return };
        if !may_be_held(&call) || !process.gives_stacks() {
            return;
        }
        let schedule = &mut process.blockers.schedule;
        let wait = Wait::first(thread, call, now);
        if *left == 0 || !self.allowance.allows_reading() {
            schedule.add(wait);
            return;
        }
        // Reading the C library's locks is cheap, so none of these are skipped.
        let of_runtime = process.unwinder.reads_blockers() && !self.once;
        let stack = of_runtime.then(|| FxBuildHasher.hash_one(&observation.stack));
        if stack.is_some_and(|stack| schedule.skips(stack, now)) {
            schedule.add_skipped(wait, now);
            return;
        }
        *left -= 1;
        observation.blocker = self.read_and_record(index, wait, now);
        let Some(stack) = stack else { return };
        let process = &mut self.processes[index];
        let found = observation.blocker.is_some();
        // A wait that ended meanwhile says nothing.
        if found || process.scan.still_waits(thread.tid) {
            process.blockers.schedule.record_result(stack, found);
        }
    }

    fn read_again(&mut self, index: usize, wait: Wait, now: Ns) -> Option<Event> {
        let thread = wait.thread;
        let blocker = self.read_and_record(index, wait, now)?;
        Some(Event::StillBlocked { at: now, thread, blocker })
    }

    /// Reads the blocker of a wait, and records the result in the schedule.
    fn read_and_record(&mut self, index: usize, wait: Wait, now: Ns) -> Option<RawBlocker> {
        let tid = wait.thread.tid;
        let found = self.read_blocker(index, tid, &wait.call, now);
        let found = found.map(|found| self.with_file_lock_holder(found, &wait));
        let is_rationed = self.visit_interval().is_some();
        let process = &mut self.processes[index];
        let (blockers, scan) = (&mut process.blockers, &mut process.scan);
        let Some(blocker) = found else {
            let still_waits = wait.blocker.is_some() && scan.still_waits(tid);
            return blockers.schedule.failed(wait, still_waits, now);
        };
        // A new holder that has run since it was observed is not where it was then: it may have
        // just got the object.
        let moved = wait.has_other_holder(blocker.holder)
            && matches!(blocker.holder, RawHolder::Thread { pid, tid }
                if pid == blockers.pid && !scan.still_waits(tid));
        if let RawHolder::Thread { tid, .. } = blocker.holder
            && moved
        {
            self.events.extend(scan.take_moved(tid, now).map(Event::Observation));
            if is_rationed {
                // Its turn would come late.
                scan.mark_undelivered(tid);
            }
        }
        let blocker = wait.with_known_object(blocker);
        blockers.schedule.found(wait, blocker, moved, now);
        Some(blocker)
    }

    /// Adds who holds a file lock. That is read for waits that last, and by another thread.
    fn with_file_lock_holder(&mut self, found: RawBlocker, wait: &Wait) -> RawBlocker {
        if found.kind != BlockerKind::FileLock || wait.blocker.is_none() {
            return found;
        }
        if self.lock_table.is_none() {
            self.lock_table = LockTable::start().ok();
        }
        let Some(table) = &self.lock_table else { return found };
        let holder = table.holder(wait.thread.pid, &wait.call, found.object, wait.begun);
        RawBlocker { holder, ..found }
    }

    /// Reads at once what a thread waits for, of which that was read before.
    pub(super) fn read_edge_again(&mut self, index: usize, tid: u32, now: Ns) -> Option<()> {
        let call = self.processes[index].blockers.schedule.get(tid)?.call;
        let found = self.read_blocker(index, tid, &call, now)?;
        self.processes[index].blockers.schedule.get_mut(tid)?.blocker = Some(found);
        Some(())
    }

    fn read_blocker(
        &mut self,
        index: usize,
        tid: u32,
        call: &Syscall,
        now: Ns,
    ) -> Option<RawBlocker> {
        // Asking for CPU time takes as long as a short read. So it is asked for all of a tick, and
        // each read is timed by the clock.
        self.reading_since.get_or_insert_with(thread_cpu);
        let begin = monotonic();
        let process = &mut self.processes[index];
        let unwinder = process.unwinder.as_mut();
        let found = process.blockers.read(tid, call, &mut process.scan, unwinder, now);
        let took = monotonic().saturating_sub(begin).max(1);
        let is_first = process.blockers.reads < FIRST_READS;
        process.blockers.reads += u32::from(is_first);
        self.allowance.spend(if is_first { took.min(FIRST_READ) } else { took });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::vocabulary::frame::ThreadKey;

    fn wait(tid: u32, holder: RawHolder) -> Wait {
        let blocker = RawBlocker { kind: BlockerKind::Mutex, object: 0x10, class: None, holder };
        let call = Syscall { number: Syscall::FUTEX, args: [0x10, 0x80, 2, 0, 0, 0] };
        let thread = ThreadKey { pid: 7, tid, start: 1 };
        let mut wait = Wait::first(thread, call, 0);
        wait.blocker = Some(blocker);
        wait
    }

    #[test]
    fn only_endless_waits_for_a_thread_are_part_of_a_circle() {
        let held = RawHolder::Thread { pid: 7, tid: 2 };
        let edge = |change: &dyn Fn(&mut Wait)| {
            let mut blockers = Blockers::new(7);
            let mut waits = wait(1, held);
            change(&mut waits);
            blockers.schedule.add(waits);
            blockers.edge(1)
        };
        let of_kind = |wait: &mut Wait, kind: BlockerKind| {
            wait.blocker = wait.blocker.map(|blocker| RawBlocker { kind, ..blocker });
        };
        assert_eq!(edge(&|_| {}), Some((7, 2)));
        assert_eq!(edge(&|wait| wait.call.args[3] = 0x7f00), None, "it ends by itself");
        let monitor = |wait: &mut Wait| {
            wait.call.args[3] = 0x7f00;
            of_kind(wait, BlockerKind::Monitor);
        };
        assert_eq!(edge(&monitor), Some((7, 2)), "the virtual machine tries again");
        let class = |wait: &mut Wait| {
            wait.call.args[3] = 0x7f00;
            of_kind(wait, BlockerKind::ClassInit);
        };
        assert_eq!(edge(&class), Some((7, 2)), "no time limit ends it");
        for kind in [BlockerKind::Semaphore, BlockerKind::Notify, BlockerKind::Condition] {
            assert_eq!(edge(&|wait| of_kind(wait, kind)), None, "{kind:?}");
        }
        for holder in [RawHolder::Unknown, RawHolder::Free, RawHolder::Readers(1)] {
            let change = |wait: &mut Wait| {
                wait.blocker = wait.blocker.map(|blocker| RawBlocker { holder, ..blocker });
            };
            assert_eq!(edge(&change), None, "{holder:?}");
        }
        assert_eq!(edge(&|wait| wait.blocker = None), None, "it was not read yet");
        let itself = |kind| {
            move |wait: &mut Wait| {
                let holder = RawHolder::Thread { pid: 7, tid: 1 };
                wait.blocker = wait.blocker.map(|blocker| RawBlocker { kind, holder, ..blocker });
            }
        };
        assert_eq!(edge(&itself(BlockerKind::Mutex)), Some((7, 1)), "it locked it twice");
        assert_eq!(edge(&itself(BlockerKind::ThreadEnd)), None, "Thread.currentThread().join()");
    }

    #[test]
    fn calls_that_no_thread_can_end_are_not_read() {
        let call = |number, command| Syscall { number, args: [3, command, 0, 0, 0, 0] };
        let held = [(Syscall::FUTEX, 0), (61, 0), (73, 2), (247, 0), (72, 7), (72, 38)];
        assert!(held.iter().all(|(number, command)| may_be_held(&call(*number, *command))));
        let others = [(0, 0), (72, 3), (232, 0), (45, 0), (-1, 0)];
        assert!(!others.iter().any(|(number, command)| may_be_held(&call(*number, *command))));
    }
}
