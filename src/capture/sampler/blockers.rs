//! What blocked threads wait for, and who holds it. It is read after the thread scan, for threads
//! that were observed blocked in it, and again for waits that go on.

use std::collections::BTreeSet;
use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::capture::sampler::Core;
use crate::capture::sampler::allowance::Allowance;
use crate::capture::thread_scan::ThreadScan;
use crate::clock::thread_cpu;
use crate::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use crate::model::vocabulary::event::{Event, Observation, Seen, Syscall};
use crate::model::vocabulary::frame::{Ns, SECOND, ThreadKey};
use crate::process::blockers::{BlockedThread, native_blocker};
use crate::process::memory::Memory;
use crate::process::pid_namespaces::ids_inside;
use crate::unwinder::Unwinder;

/// Maximum blockers read per tick.
const MAX_READS: usize = 200;
/// The first reads in a process may take tens of milliseconds of CPU time: a runtime's classes and
/// fields are looked up. Of each of these this time counts, ns: others are not to wait for that.
const FIRST: Ns = 200_000;
const FIRST_READS: u32 = 16;
/// The first time after which a wait's blocker is read again; each next one is twice as long.
const AGAIN: Ns = SECOND / 10;
const MAX_AGAIN: Ns = 8 * SECOND;
/// Reads without result in a row after which waits with the same stack are not read, and how many
/// of them later one is.
const FRUITLESS: u32 = 3;
const FRUITLESS_AGAIN: u32 = 32;
/// Maximum holders that are remembered per process, and stacks.
const HOLDERS_MAX: usize = 1 << 12;
/// Minimum time between two reads of the ids inside a PID namespace.
const IDS_AGAIN: Ns = SECOND;

/// The system call futex(2) on x86-64.
const FUTEX: i32 = 202;
/// Its argument with the time limit; 0 for none.
const TIMEOUT: usize = 3;

/// A wait whose blocker was read, or is to be read when there is time.
struct Wait {
    thread: ThreadKey,
    call: Syscall,
    blocker: Option<RawBlocker>,
    /// When it is read again, and how long after the last time.
    next: Ns,
    pause: Ns,
    /// When it was last read.
    read: Ns,
    /// It has another holder than before, of which it was not known yet where that is.
    is_new: bool,
    /// The last read failed, as it may in the moment in which what is waited for changes hands.
    failed: bool,
}

impl Wait {
    /// Returns a wait of which nothing is known yet.
    fn first(thread: ThreadKey, call: Syscall, now: Ns) -> Wait {
        Wait {
            thread,
            call,
            blocker: None,
            next: now,
            pause: AGAIN / 2,
            read: 0,
            is_new: false,
            failed: false,
        }
    }
}

/// What the blocked threads of one process wait for.
pub(super) struct Blockers {
    pid: u32,
    memory: Memory,
    /// By thread id.
    waits: FxHashMap<u32, Wait>,
    /// Times of the next reads, with the thread ids: one for each wait.
    due: BTreeSet<(Ns, u32)>,
    /// Our thread ids by those of the process's own PID namespace; `None` where both are the same.
    ids: Option<FxHashMap<u32, u32>>,
    ids_read: Option<Ns>,
    /// Number of reads, up to [`FIRST_READS`].
    reads: u32,
    /// By stack: how often in a row its wait was found to be for nothing that is held, since this
    /// time.
    fruitless: FxHashMap<u64, u32>,
    fruitless_since: Ns,
    /// The last known holder of what is waited for and when it was read, by kind and address.
    holders: FxHashMap<(BlockerKind, u64), (RawHolder, Ns)>,
}

impl Blockers {
    pub fn new(pid: u32) -> Blockers {
        Blockers {
            pid,
            memory: Memory::new(pid),
            waits: FxHashMap::default(),
            due: BTreeSet::new(),
            ids: None,
            ids_read: None,
            reads: 0,
            fruitless: FxHashMap::default(),
            fruitless_since: 0,
            holders: FxHashMap::default(),
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
        let of_runtime = unwinder.reads_blockers().then(|| unwinder.blocker(sp)).flatten();
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
                // The holder of a file lock takes long to find; see `process::waits`.
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

    /// Remembers a wait, to read its blocker again.
    fn remember(&mut self, wait: Wait) {
        let tid = wait.thread.tid;
        self.due.insert((wait.next, tid));
        if let Some(before) = self.waits.insert(tid, wait) {
            self.due.remove(&(before.next, tid));
        }
    }

    fn forget(&mut self, tid: u32) {
        if let Some(wait) = self.waits.remove(&tid) {
            self.due.remove(&(wait.next, tid));
        }
    }

    /// Has the blockers of other threads that wait for the same read again now if its holder is
    /// another than they were told.
    fn note_holder(&mut self, blocker: RawBlocker, now: Ns) {
        let RawBlocker { kind, object, holder, .. } = blocker;
        if object == 0 || matches!(holder, RawHolder::Unknown | RawHolder::Free) {
            return;
        }
        if self.holders.len() >= HOLDERS_MAX {
            self.holders.clear();
        }
        let before = self.holders.insert((kind, object), (holder, now));
        if before.is_some_and(|(before, _)| before == holder) {
            return;
        }
        for (tid, wait) in &mut self.waits {
            let told = wait.blocker.filter(|told| (told.kind, told.object) == (kind, object));
            // What was read in this tick waits for the next: it may change hands all the time.
            let next = if wait.read == now { now + 1 } else { now };
            if told.is_some_and(|told| told.holder != holder) && wait.next > next {
                self.due.remove(&(wait.next, *tid));
                (wait.next, wait.pause) = (next, AGAIN / 2);
                self.due.insert((next, *tid));
            }
        }
    }

    /// Whether a wait with this stack is one of those that are for nothing that is held, as sleep.
    /// Now and then such a wait is read all the same. All is found out anew each second: a read may
    /// also fail because the runtime is not known yet, or the thread is new to it.
    fn is_fruitless(&mut self, stack: u64, now: Ns) -> bool {
        if now >= self.fruitless_since + SECOND {
            self.fruitless.clear();
            self.fruitless_since = now;
        }
        let Some(times) = self.fruitless.get_mut(&stack).filter(|times| **times >= FRUITLESS)
        else {
            return false;
        };
        *times += 1;
        !times.is_multiple_of(FRUITLESS_AGAIN)
    }

    fn note_fruit(&mut self, stack: u64, found: bool) {
        if self.fruitless.len() >= HOLDERS_MAX {
            self.fruitless.clear();
        }
        match found {
            true => drop(self.fruitless.remove(&stack)),
            false => *self.fruitless.entry(stack).or_default() += 1,
        }
    }

    /// Whether another holder is known than this wait was told.
    fn is_behind(&self, wait: &Wait) -> bool {
        let Some(RawBlocker { kind, object, holder, .. }) = wait.blocker else { return false };
        self.holders.get(&(kind, object)).is_some_and(|(last, _)| *last != holder)
    }

    /// Whether the blocker of this wait need not be read again yet: another thread that waits for
    /// the same was told the same holder since half the pause ago. An address may be another
    /// object's after a collection, so it is read now and then all the same.
    fn was_confirmed(&self, wait: &Wait, now: Ns) -> bool {
        let Some(RawBlocker { kind, object, holder, .. }) = wait.blocker else { return false };
        let last = self.holders.get(&(kind, object)).filter(|_| object != 0);
        wait.pause < MAX_AGAIN
            && !wait.is_new
            && last.is_some_and(|(last, at)| *last == holder && at + wait.pause / 2 >= now)
    }

    /// Removes and returns a wait whose blocker is to be read again by now.
    fn take_due(&mut self, now: Ns) -> Option<Wait> {
        let (next, tid) = *self.due.first()?;
        if next > now {
            return None;
        }
        self.due.pop_first();
        self.waits.remove(&tid)
    }

    /// Returns the ids of the threads whose blockers are known.
    pub fn waiting(&self) -> impl Iterator<Item = u32> {
        self.waits.keys().copied()
    }

    pub fn thread(&self, tid: u32) -> Option<ThreadKey> {
        Some(self.waits.get(&tid)?.thread)
    }

    /// Returns the thread that an endless wait is for.
    pub fn edge(&self, tid: u32) -> Option<(u32, u32)> {
        let wait = self.waits.get(&tid)?;
        let blocker = wait.blocker?;
        // HotSpot may give entering a monitor a time limit, and then tries again.
        let endless = blocker.kind == BlockerKind::Monitor
            || wait.call.number != FUTEX
            || wait.call.args[TIMEOUT] == 0;
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
        FUTEX | 61 | 73 | 247 => true,
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
            while left > 0
                && self.allowance.allows_reading()
                && let Some(wait) = self.processes[index].blockers.take_due(now)
            {
                left -= 1;
                if wait.blocker.is_some() && !self.allowance.allows_reading_again() {
                    let behind = wait.is_new || self.processes[index].blockers.is_behind(&wait);
                    let next = now + if behind { AGAIN } else { wait.pause };
                    self.processes[index].blockers.remember(Wait { next, ..wait });
                    continue;
                }
                if self.processes[index].blockers.was_confirmed(&wait, now) {
                    // Its holder is the same, but may be elsewhere by now.
                    let Wait { thread, blocker, .. } = wait;
                    events.extend(blocker.map(|blocker| Event::StillBlocked {
                        at: now,
                        thread,
                        blocker,
                    }));
                    let (next, pause) = (now + wait.pause, (2 * wait.pause).min(MAX_AGAIN));
                    self.processes[index].blockers.remember(Wait { next, pause, ..wait });
                    continue;
                }
                events.extend(self.read_again(index, wait, now));
            }
        }
        self.events = events;
    }

    fn read_blocker_of(&mut self, observation: &mut Observation, now: Ns, left: &mut usize) {
        let thread = observation.thread;
        let Some(index) = self.find(thread.pid) else { return };
        // The thread has run since: the wait in which it was before has ended.
        self.processes[index].blockers.forget(thread.tid);
        let Seen::Blocked(call) = observation.seen else { return };
        if !may_be_held(&call) || !self.processes[index].gives_stacks() {
            return;
        }
        let wait = Wait::first(thread, call, now);
        if *left == 0 || !self.allowance.allows_reading() {
            self.processes[index].blockers.remember(wait);
            return;
        }
        let stack = FxBuildHasher.hash_one(&observation.stack);
        if self.processes[index].blockers.is_fruitless(stack, now) && !self.once {
            // If it lasts, it is another one all the same.
            let next = now + SECOND;
            self.processes[index].blockers.remember(Wait { next, pause: AGAIN, ..wait });
            return;
        }
        *left -= 1;
        observation.blocker = self.read_and_remember(index, wait, now);
        let process = &mut self.processes[index];
        // The C library's own waits are read in no time.
        if process.unwinder.reads_blockers() {
            let found = observation.blocker.is_some();
            // A wait that ended meanwhile tells nothing.
            if found || process.scan.still_waits(thread.tid) {
                process.blockers.note_fruit(stack, found);
            }
        }
    }

    fn read_again(&mut self, index: usize, wait: Wait, now: Ns) -> Option<Event> {
        let thread = wait.thread;
        let blocker = self.read_and_remember(index, wait, now)?;
        Some(Event::StillBlocked { at: now, thread, blocker })
    }

    /// Reads the blocker of a wait. If there is one, it is read again after twice the pause.
    fn read_and_remember(&mut self, index: usize, wait: Wait, now: Ns) -> Option<RawBlocker> {
        let tid = wait.thread.tid;
        let blocker = self.read_blocker(index, tid, &wait.call, now);
        let Some(found) = blocker else {
            return self.read_failed(index, wait, now);
        };
        let process = &mut self.processes[index];
        let (blockers, scan) = (&mut process.blockers, &mut process.scan);
        // A new holder that has run since it was observed is not where it was then: it may have
        // just got what it waited for. Where it holds it is known after the next tick.
        let is_other = wait.blocker.is_none_or(|told| told.holder != found.holder);
        let is_elsewhere = is_other
            && matches!(found.holder, RawHolder::Thread { pid, tid }
                if pid == blockers.pid && !scan.still_waits(tid));
        blockers.note_holder(found, now);
        let is_new = !wait.is_new && is_elsewhere;
        let longer = (2 * wait.pause).min(MAX_AGAIN);
        let (next, pause) = if is_new { (now + 1, wait.pause) } else { (now + longer, longer) };
        let failed = false;
        blockers.remember(Wait { blocker, next, pause, read: now, is_new, failed, ..wait });
        blocker
    }

    /// Tries a wait again whose blocker could not be read. Returns a blocker if one was known, but
    /// not who holds it now.
    fn read_failed(&mut self, index: usize, wait: Wait, now: Ns) -> Option<RawBlocker> {
        let process = &mut self.processes[index];
        let tid = wait.thread.tid;
        let Some(told) = wait.blocker else {
            // The stack of a new thread may not be known yet, or the runtime.
            let (next, pause) = match wait.pause {
                ..AGAIN => (now + AGAIN, AGAIN),
                AGAIN => (now + SECOND + AGAIN, MAX_AGAIN),
                _ => {
                    process.blockers.forget(tid);
                    return None;
                }
            };
            process.blockers.remember(Wait { next, pause, ..wait });
            return None;
        };
        if !process.scan.still_waits(tid) {
            process.blockers.forget(tid);
            return None;
        }
        let unknown = RawBlocker { holder: RawHolder::Unknown, ..told };
        let blocker = if wait.failed { Some(unknown) } else { None };
        process.blockers.remember(Wait {
            blocker: blocker.or(Some(told)),
            next: now + AGAIN,
            failed: true,
            ..wait
        });
        blocker.filter(|_| told != unknown)
    }

    /// Reads at once what a thread waits for, of which that was read before.
    pub(super) fn read_edge_again(&mut self, index: usize, tid: u32, now: Ns) -> Option<()> {
        let blockers = &mut self.processes[index].blockers;
        let call = blockers.waits.get(&tid)?.call;
        let found = self.read_blocker(index, tid, &call, now)?;
        self.processes[index].blockers.waits.get_mut(&tid)?.blocker = Some(found);
        Some(())
    }

    fn read_blocker(
        &mut self,
        index: usize,
        tid: u32,
        call: &Syscall,
        now: Ns,
    ) -> Option<RawBlocker> {
        let begin = thread_cpu();
        let process = &mut self.processes[index];
        let unwinder = process.unwinder.as_mut();
        let found = process.blockers.read(tid, call, &mut process.scan, unwinder, now);
        let took = thread_cpu().saturating_sub(begin).max(1);
        let is_first = process.blockers.reads < FIRST_READS;
        process.blockers.reads += u32::from(is_first);
        self.allowance.spend(if is_first { took.min(FIRST) } else { took });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(tid: u32, next: Ns, holder: RawHolder) -> Wait {
        let blocker = RawBlocker { kind: BlockerKind::Mutex, object: 0x10, class: None, holder };
        let call = Syscall { number: FUTEX, args: [0x10, 0x80, 2, 0, 0, 0] };
        let thread = ThreadKey { pid: 7, tid, start: 1 };
        let first = Wait::first(thread, call, 0);
        Wait { blocker: Some(blocker), next, pause: AGAIN, ..first }
    }

    #[test]
    fn waits_for_nothing_that_is_held_are_read_now_and_then() {
        let mut blockers = Blockers::new(7);
        let read = |blockers: &mut Blockers, found| {
            let reads = !blockers.is_fruitless(1, SECOND);
            if reads {
                blockers.note_fruit(1, found);
            }
            reads
        };
        let tries: Vec<bool> = (0..100).map(|_| read(&mut blockers, false)).collect();
        assert_eq!(tries[..5], [true, true, true, false, false]);
        assert!((4..8).contains(&tries.iter().filter(|reads| **reads).count()), "{tries:?}");
        assert!(!blockers.is_fruitless(2, SECOND), "another stack");
        // One read that finds something, and all are read again.
        while !read(&mut blockers, true) {}
        assert!((0..3).all(|_| read(&mut blockers, false)));
        assert!(!read(&mut blockers, false) && !blockers.is_fruitless(1, 2 * SECOND));
    }

    #[test]
    fn a_new_holder_makes_all_who_wait_for_it_due() {
        let [old, new] = [2, 3].map(|tid| RawHolder::Thread { pid: 7, tid });
        let mut blockers = Blockers::new(7);
        let told = |blockers: &mut Blockers, tid, holder| {
            blockers.remember(wait(tid, 50, holder));
            blockers.note_holder(wait(tid, 50, holder).blocker.expect("known"), 10);
        };
        told(&mut blockers, 1, old);
        told(&mut blockers, 4, old);
        let mut other = wait(5, 50, old);
        other.blocker = other.blocker.map(|blocker| RawBlocker { object: 0x20, ..blocker });
        blockers.remember(other);
        assert!(blockers.take_due(10).is_none());
        told(&mut blockers, 6, new);
        let mut due: Vec<u32> =
            std::iter::from_fn(|| blockers.take_due(10)).map(|wait| wait.thread.tid).collect();
        due.sort_unstable();
        assert_eq!(due, [1, 4]);
        // One that was read in this tick is due in the next: then both are told the same.
        let mut blockers = Blockers::new(7);
        blockers.remember(Wait { read: 10, ..wait(8, 50, old) });
        told(&mut blockers, 9, new);
        assert!(blockers.take_due(10).is_none());
        assert_eq!(blockers.take_due(11).map(|wait| wait.thread.tid), Some(8));
        // Who holds it is unknown for a moment: that is no other holder.
        told(&mut blockers, 7, RawHolder::Unknown);
        assert!(blockers.take_due(10).is_none());
    }

    #[test]
    fn a_wait_is_due_once_at_its_newest_time() {
        let mut blockers = Blockers::new(7);
        blockers.remember(wait(1, 10, RawHolder::Free));
        blockers.remember(wait(2, 20, RawHolder::Free));
        blockers.remember(wait(1, 30, RawHolder::Free));
        blockers.remember(wait(3, 20, RawHolder::Free));
        blockers.forget(3);
        let mut due = |now: Ns| blockers.take_due(now).map(|wait| wait.thread.tid);
        assert_eq!(
            [due(19), due(20), due(20), due(30), due(99)],
            [None, Some(2), None, Some(1), None]
        );
        assert!(blockers.due.is_empty() && blockers.waits.is_empty());
    }

    #[test]
    fn only_endless_waits_for_a_thread_are_part_of_a_circle() {
        let held = RawHolder::Thread { pid: 7, tid: 2 };
        let edge = |change: &dyn Fn(&mut Wait)| {
            let mut blockers = Blockers::new(7);
            let mut waits = wait(1, 0, held);
            change(&mut waits);
            blockers.remember(waits);
            blockers.edge(1)
        };
        let of_kind = |wait: &mut Wait, kind: BlockerKind| {
            wait.blocker = wait.blocker.map(|blocker| RawBlocker { kind, ..blocker });
        };
        assert_eq!(edge(&|_| {}), Some((7, 2)));
        assert_eq!(edge(&|wait| wait.call.args[TIMEOUT] = 0x7f00), None, "it ends by itself");
        let monitor = |wait: &mut Wait| {
            wait.call.args[TIMEOUT] = 0x7f00;
            of_kind(wait, BlockerKind::Monitor);
        };
        assert_eq!(edge(&monitor), Some((7, 2)), "the virtual machine tries again");
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
        let held = [(FUTEX, 0), (61, 0), (73, 2), (247, 0), (72, 7), (72, 38)];
        assert!(held.iter().all(|(number, command)| may_be_held(&call(*number, *command))));
        let others = [(0, 0), (72, 3), (232, 0), (45, 0), (-1, 0)];
        assert!(!others.iter().any(|(number, command)| may_be_held(&call(*number, *command))));
    }
}
