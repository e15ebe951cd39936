//! When the blocker of each wait of a process is read, and read again. Reads nothing itself.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use crate::model::vocabulary::event::Syscall;
use crate::model::vocabulary::frame::{Ns, SECOND, ThreadKey};

/// Pause after which a wait's blocker is read again; each next one is twice as long.
const AGAIN: Ns = SECOND / 10;
const MAX_AGAIN: Ns = 8 * SECOND;
/// Reads without result in a row after which waits with the same stack are skipped, and the share
/// of them that is read all the same.
const WITHOUT_RESULT: u32 = 3;
const ONE_OF: u32 = 32;
/// Maximum holders that are remembered, and maximum stacks.
const KNOWN_MAX: usize = 1 << 12;

/// A wait whose blocker was read, or is to be read when there is time.
pub struct Wait {
    pub thread: ThreadKey,
    pub call: Syscall,
    /// When the thread was observed in this wait.
    pub begun: Ns,
    /// What was read last.
    pub blocker: Option<RawBlocker>,
    /// When it is read again, and the pause after the last read.
    next: Ns,
    pause: Ns,
    /// When it was last read.
    read: Ns,
    /// The holder has run since it was observed, so it is not known yet where it holds the object.
    holder_moved: bool,
    /// The last read failed, as it may at the moment in which the object changes hands.
    failed: bool,
}

impl Wait {
    /// Returns a wait of which nothing is known yet.
    pub fn first(thread: ThreadKey, call: Syscall, now: Ns) -> Wait {
        Wait {
            thread,
            call,
            begun: now,
            blocker: None,
            next: now,
            pause: AGAIN / 2,
            read: 0,
            holder_moved: false,
            failed: false,
        }
    }

    /// Adds the object of an earlier read where this one could not prove it: a wait is for one
    /// object until it ends.
    pub fn with_known_object(&self, found: RawBlocker) -> RawBlocker {
        match self.blocker.filter(|last| found.object == 0 && last.kind == found.kind) {
            Some(RawBlocker { object, class, .. }) => RawBlocker { object, class, ..found },
            None => found,
        }
    }

    /// Returns whether the last read found another holder, or none.
    pub fn has_other_holder(&self, holder: RawHolder) -> bool {
        self.blocker.is_none_or(|last| last.holder != holder)
    }
}

/// A wait whose time has come.
pub enum Due {
    Read(Wait),
    /// Another thread that waits for the same was found to have the same holder.
    Confirmed(ThreadKey, RawBlocker),
    /// There is no time to read it again.
    Postponed,
}

/// The waits of one process.
#[derive(Default)]
pub struct WaitSchedule {
    /// By thread id.
    waits: FxHashMap<u32, Wait>,
    /// Times of the next reads, with the thread ids: one for each wait.
    due: BTreeSet<(Ns, u32)>,
    /// By stack: number of reads in a row that found nothing, since `without_result_since`.
    without_result: FxHashMap<u64, u32>,
    without_result_since: Ns,
    /// The last known holder and when it was read, by kind and address of the object.
    holders: FxHashMap<(BlockerKind, u64), (RawHolder, Ns)>,
}

impl WaitSchedule {
    pub fn threads(&self) -> impl Iterator<Item = u32> {
        self.waits.keys().copied()
    }

    pub fn get(&self, tid: u32) -> Option<&Wait> {
        self.waits.get(&tid)
    }

    pub fn get_mut(&mut self, tid: u32) -> Option<&mut Wait> {
        self.waits.get_mut(&tid)
    }

    pub fn add(&mut self, wait: Wait) {
        let tid = wait.thread.tid;
        self.due.insert((wait.next, tid));
        if let Some(before) = self.waits.insert(tid, wait) {
            self.due.remove(&(before.next, tid));
        }
    }

    /// Adds a wait that was skipped: it is read if it lasts.
    pub fn add_skipped(&mut self, wait: Wait, now: Ns) {
        self.add(Wait { next: now + SECOND, pause: AGAIN, ..wait });
    }

    pub fn remove(&mut self, tid: u32) {
        if let Some(wait) = self.waits.remove(&tid) {
            self.due.remove(&(wait.next, tid));
        }
    }

    /// Returns whether waits with this stack are skipped: the runtime says that they are for
    /// nothing that a thread holds, as sleep. Forgets that each second: a read also finds nothing
    /// while the runtime or the thread is not known yet.
    pub fn skips(&mut self, stack: u64, now: Ns) -> bool {
        if now >= self.without_result_since + SECOND {
            self.without_result.clear();
            self.without_result_since = now;
        }
        let reads = self.without_result.get_mut(&stack).filter(|reads| **reads >= WITHOUT_RESULT);
        let Some(reads) = reads else { return false };
        *reads += 1;
        !reads.is_multiple_of(ONE_OF)
    }

    /// Records whether a wait with this stack was found to be for something.
    pub fn record_result(&mut self, stack: u64, found: bool) {
        if self.without_result.len() >= KNOWN_MAX {
            self.without_result.clear();
        }
        match found {
            true => drop(self.without_result.remove(&stack)),
            false => *self.without_result.entry(stack).or_default() += 1,
        }
    }

    /// Removes a wait that is due. `again`: whether there is time for waits that were read before.
    pub fn take_due(&mut self, now: Ns, again: bool) -> Option<Due> {
        let (next, tid) = *self.due.first()?;
        if next > now {
            return None;
        }
        self.due.pop_first();
        let wait = self.waits.remove(&tid)?;
        let Some(blocker) = wait.blocker else { return Some(Due::Read(wait)) };
        if !again {
            let changed = wait.holder_moved
                || self.last_holder(&blocker).is_some_and(|(last, _)| last != blocker.holder);
            let next = now + if changed { AGAIN } else { wait.pause };
            self.add(Wait { next, ..wait });
            return Some(Due::Postponed);
        }
        if !self.is_confirmed(&wait, &blocker, now) {
            return Some(Due::Read(wait));
        }
        let thread = wait.thread;
        let (next, pause) = (now + wait.pause, (2 * wait.pause).min(MAX_AGAIN));
        self.add(Wait { next, pause, ..wait });
        Some(Due::Confirmed(thread, blocker))
    }

    fn last_holder(&self, blocker: &RawBlocker) -> Option<(RawHolder, Ns)> {
        self.holders.get(&(blocker.kind, blocker.object)).copied()
    }

    /// Returns whether another wait for the same object was found to have the same holder since
    /// half the pause ago. After a collection an address may be another object's, so each wait is
    /// read itself now and then.
    fn is_confirmed(&self, wait: &Wait, blocker: &RawBlocker, now: Ns) -> bool {
        wait.pause < MAX_AGAIN
            && !wait.holder_moved
            && self
                .last_holder(blocker)
                .is_some_and(|(last, at)| last == blocker.holder && at + wait.pause / 2 >= now)
    }

    /// Records what was read. `moved`: the holder is another one than before and has run since it
    /// was observed; the wait is then read again at the next tick.
    pub fn found(&mut self, wait: Wait, blocker: RawBlocker, moved: bool, now: Ns) {
        self.record_holder(blocker, now);
        let holder_moved = moved && !wait.holder_moved;
        let longer = (2 * wait.pause).min(MAX_AGAIN);
        let (next, pause) =
            if holder_moved { (now + 1, wait.pause) } else { (now + longer, longer) };
        let blocker = Some(blocker);
        self.add(Wait { blocker, next, pause, read: now, holder_moved, failed: false, ..wait });
    }

    /// Makes other waits for the same object due if their last read found another holder.
    fn record_holder(&mut self, blocker: RawBlocker, now: Ns) {
        let RawBlocker { kind, object, holder, .. } = blocker;
        if object == 0 || matches!(holder, RawHolder::Unknown | RawHolder::Free) {
            return;
        }
        if self.holders.len() >= KNOWN_MAX {
            self.holders.clear();
        }
        let before = self.holders.insert((kind, object), (holder, now));
        if before.is_some_and(|(before, _)| before == holder) {
            return;
        }
        for (tid, wait) in &mut self.waits {
            let same = wait.blocker.filter(|last| (last.kind, last.object) == (kind, object));
            // What was read in this tick waits for the next: it may change hands all the time.
            let next = if wait.read == now { now + 1 } else { now };
            if same.is_some_and(|last| last.holder != holder) && wait.next > next {
                self.due.remove(&(wait.next, *tid));
                (wait.next, wait.pause) = (next, AGAIN / 2);
                self.due.insert((next, *tid));
            }
        }
    }

    /// Records a read that found nothing. `still_waits`: the thread has not run since it was
    /// observed; asked only where a blocker was known. After the second failure in a row returns
    /// the known blocker with an unknown holder.
    pub fn failed(&mut self, wait: Wait, still_waits: bool, now: Ns) -> Option<RawBlocker> {
        let Some(last) = wait.blocker else {
            // The runtime, or the stack of a new thread, may not be known yet.
            let (next, pause) = match wait.pause {
                ..AGAIN => (now + AGAIN, AGAIN),
                AGAIN => (now + SECOND + AGAIN, MAX_AGAIN),
                _ => {
                    self.remove(wait.thread.tid);
                    return None;
                }
            };
            self.add(Wait { next, pause, ..wait });
            return None;
        };
        if !still_waits {
            self.remove(wait.thread.tid);
            return None;
        }
        let unknown = RawBlocker { holder: RawHolder::Unknown, ..last };
        let blocker = if wait.failed { unknown } else { last };
        let next = now + AGAIN;
        self.add(Wait { blocker: Some(blocker), next, failed: true, ..wait });
        (blocker != last).then_some(blocker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: RawHolder = RawHolder::Thread { pid: 7, tid: 2 };
    const NEW: RawHolder = RawHolder::Thread { pid: 7, tid: 3 };

    fn unread(tid: u32, now: Ns) -> Wait {
        let call = Syscall { number: 202, args: [0x10, 0x80, 2, 0, 0, 0] };
        Wait::first(ThreadKey { pid: 7, tid, start: 1 }, call, now)
    }

    fn held(object: u64, holder: RawHolder) -> RawBlocker {
        RawBlocker { kind: BlockerKind::Mutex, object, class: None, holder }
    }

    /// Takes all waits that are due, in order: `r` read, `c` confirmed, `p` postponed.
    fn due(schedule: &mut WaitSchedule, now: Ns, again: bool) -> Vec<(char, u32)> {
        let mut all: Vec<(char, u32)> = std::iter::from_fn(|| {
            Some(match schedule.take_due(now, again)? {
                Due::Read(wait) => ('r', wait.thread.tid),
                Due::Confirmed(thread, _) => ('c', thread.tid),
                Due::Postponed => ('p', 0),
            })
        })
        .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_wait_is_due_once_at_its_newest_time() {
        let mut schedule = WaitSchedule::default();
        for (tid, next) in [(1, 10), (2, 20), (1, 30), (3, 20)] {
            schedule.add(unread(tid, next));
        }
        schedule.remove(3);
        let due = [19, 20, 30, 99].map(|now| due(&mut schedule, now, true));
        assert_eq!(due, [vec![], vec![('r', 2)], vec![('r', 1)], vec![]]);
        assert!(schedule.due.is_empty() && schedule.waits.is_empty());
    }

    #[test]
    fn a_wait_keeps_its_object_where_a_later_read_cannot_prove_it() {
        let unproven = held(0, NEW);
        assert_eq!(unread(1, 0).with_known_object(unproven), unproven);
        let wait = Wait { blocker: Some(held(0x10, OLD)), ..unread(1, 0) };
        assert_eq!(wait.with_known_object(unproven), held(0x10, NEW));
        assert_eq!(wait.with_known_object(held(0x20, NEW)), held(0x20, NEW));
        let other = RawBlocker { kind: BlockerKind::Semaphore, ..unproven };
        assert_eq!(wait.with_known_object(other), other);
    }

    #[test]
    fn pauses_double_up_to_a_maximum() {
        let mut schedule = WaitSchedule::default();
        let (mut now, mut pauses) = (0, Vec::new());
        schedule.add(unread(1, now));
        for _ in 0..9 {
            let Some(Due::Read(wait)) = schedule.take_due(now, true) else { panic!("{now}") };
            schedule.found(wait, held(0x10, OLD), false, now);
            pauses.push((schedule.waits[&1].next - now) / AGAIN);
            now = schedule.waits[&1].next;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 80, 80]);
    }

    #[test]
    fn a_new_holder_makes_all_who_wait_for_the_object_due() {
        let mut schedule = WaitSchedule::default();
        for tid in [1, 4] {
            schedule.found(unread(tid, 0), held(0x10, OLD), false, 0);
        }
        schedule.found(unread(5, 0), held(0x20, OLD), false, 0);
        assert_eq!(due(&mut schedule, 10, true), []);
        schedule.found(unread(6, 10), held(0x10, NEW), false, 10);
        assert_eq!(due(&mut schedule, 10, true), [('r', 1), ('r', 4)]);
        // One that was read in this tick is due in the next: then both are read.
        let mut schedule = WaitSchedule::default();
        schedule.found(unread(8, 10), held(0x10, OLD), false, 10);
        schedule.found(unread(9, 10), held(0x10, NEW), false, 10);
        assert_eq!(due(&mut schedule, 10, true), []);
        assert_eq!(due(&mut schedule, 11, true), [('r', 8)]);
        // At the moment in which it changes hands there is no new holder.
        for holder in [RawHolder::Unknown, RawHolder::Free] {
            schedule.found(unread(7, 12), held(0x10, holder), false, 12);
            assert_eq!(due(&mut schedule, 12, true), [], "{holder:?}");
        }
    }

    #[test]
    fn one_read_confirms_the_others_for_half_a_pause() {
        let mut schedule = WaitSchedule::default();
        for tid in [1, 4] {
            schedule.found(unread(tid, 0), held(0x10, OLD), false, 0);
        }
        let Some(Due::Read(wait)) = schedule.take_due(AGAIN, true) else { panic!("the first") };
        schedule.found(wait, held(0x10, OLD), false, AGAIN);
        assert_eq!(due(&mut schedule, AGAIN, true), [('c', 4)]);
        // An object that may have been moved is none to compare.
        let mut schedule = WaitSchedule::default();
        for tid in [1, 4] {
            schedule.found(unread(tid, 0), held(0, OLD), false, 0);
        }
        assert_eq!(due(&mut schedule, AGAIN, true), [('r', 1), ('r', 4)]);
    }

    #[test]
    fn a_holder_that_has_run_is_asked_for_once_at_the_next_tick() {
        let mut schedule = WaitSchedule::default();
        schedule.found(unread(1, 0), held(0x10, OLD), true, 0);
        let Some(Due::Read(wait)) = schedule.take_due(1, true) else { panic!("it is due") };
        schedule.found(wait, held(0x10, OLD), true, 1);
        assert_eq!(due(&mut schedule, AGAIN / 2, true), []);
    }

    #[test]
    fn without_time_a_changed_holder_is_postponed_least() {
        let mut schedule = WaitSchedule::default();
        let mut long = unread(1, 0);
        long.pause = MAX_AGAIN;
        schedule.found(long, held(0x10, OLD), false, 0);
        schedule.found(unread(4, 1), held(0x10, NEW), false, 1);
        assert_eq!(due(&mut schedule, 1, false), [('p', 0)]);
        assert_eq!(schedule.waits[&1].next, 1 + AGAIN);
        // What was never read is read.
        schedule.add(unread(9, 2));
        assert_eq!(due(&mut schedule, 2, false), [('r', 9)]);
    }

    #[test]
    fn a_read_that_fails_twice_makes_the_holder_unknown() {
        let mut schedule = WaitSchedule::default();
        schedule.found(unread(1, 0), held(0x10, OLD), false, 0);
        let mut failed = |still_waits, now| {
            let Some(Due::Read(wait)) = schedule.take_due(now, true) else { panic!("{now}") };
            schedule.failed(wait, still_waits, now)
        };
        assert_eq!(failed(true, AGAIN), None, "it may be changing hands");
        let unknown = Some(held(0x10, RawHolder::Unknown));
        assert_eq!(failed(true, 2 * AGAIN), unknown);
        assert_eq!(failed(true, 3 * AGAIN), None, "that is known");
        assert_eq!(failed(false, 4 * AGAIN), None);
        assert!(schedule.waits.is_empty(), "it has ended");
    }

    #[test]
    fn a_wait_of_which_nothing_is_found_is_tried_three_times() {
        let mut schedule = WaitSchedule::default();
        schedule.add(unread(1, 0));
        let (mut now, mut times) = (0, Vec::new());
        while let Some(Due::Read(wait)) = schedule.take_due(now, true) {
            times.push(now);
            assert_eq!(schedule.failed(wait, true, now), None);
            now = schedule.waits.get(&1).map_or(now, |wait| wait.next);
        }
        assert_eq!(times, [0, AGAIN, SECOND + 2 * AGAIN]);
    }

    #[test]
    fn stacks_without_result_are_read_now_and_then() {
        let mut schedule = WaitSchedule::default();
        let read = |schedule: &mut WaitSchedule, found| {
            let reads = !schedule.skips(1, SECOND);
            if reads {
                schedule.record_result(1, found);
            }
            reads
        };
        let tries: Vec<bool> = (0..100).map(|_| read(&mut schedule, false)).collect();
        assert_eq!(tries[..5], [true, true, true, false, false]);
        assert!((4..8).contains(&tries.iter().filter(|reads| **reads).count()), "{tries:?}");
        assert!(!schedule.skips(2, SECOND), "another stack");
        // One read that finds something, and all are read again.
        while !read(&mut schedule, true) {}
        assert!((0..3).all(|_| read(&mut schedule, false)));
        assert!(!read(&mut schedule, false) && !schedule.skips(1, 2 * SECOND));
        // What was skipped is read if it lasts.
        schedule.add_skipped(unread(1, 0), 0);
        assert_eq!(due(&mut schedule, SECOND - 1, true), []);
        assert_eq!(due(&mut schedule, SECOND, true), [('r', 1)]);
    }
}
