//! Goroutines that wait: on no thread's stack, they are read beside the threads, a few at each tick
//! and each at least about every five seconds. Each counts as a thread of its own while it waits.
//! What it waits in holds until it is found otherwise. That is right on average, because how often
//! it is found somewhere goes by the time that it spends there. They are not all read at once: what
//! happens to all in one moment, such as a garbage collection, would weigh too much or nothing.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use rustc_hash::FxHashMap;

use crate::capture::sampler::Core;
use crate::capture::thread_scan::count_walk;
use crate::clock::monotonic;
use crate::model::vocabulary::event::{Event, Observation, Seen};
use crate::model::vocabulary::frame::{Ns, RawFrame, SECOND, SOME_GOROUTINES, ThreadKey};
use crate::runtimes::frame_and_thread_names::Names;
use crate::runtimes::go::parked::{Batch, Parked, Reader, Slot, frame_of_send};
use crate::unwinder::interpreted::{StackOwner, Taken, place_task};
use crate::unwinder::{Registers, StackBytes, Unwinder, Walk};

/// Time in which all goroutines are read, ns; fewer than [`RATE`] times that are read more often.
const ROUND: Ns = 5 * SECOND;
/// Goroutines that are read in a second at least, where there are any.
const RATE: u64 = 100;
/// Maximum goroutines that are read at a time.
const BATCH: usize = 1_000;
/// Time after which it is tried again to find the goroutines of a process, ns: a program that has
/// just begun has none. Each time it doubles, up to the maximum.
const RETRY: Ns = SECOND / 4;
const RETRY_MAX: Ns = 64 * SECOND;

/// When it is tried to find the goroutines of a process.
struct Attempts {
    next: Ns,
    /// Time from the next one to the one after it, ns.
    after: Ns,
}

impl Attempts {
    fn new() -> Attempts {
        Attempts { next: 0, after: RETRY }
    }

    /// Returns whether it is time for an attempt, and plans the one after it.
    fn is_due(&mut self, now: Ns) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + self.after;
        self.after = RETRY_MAX.min(2 * self.after);
        true
    }
}

/// Reads the goroutines of one process on a thread of its own: what it reads may hang.
pub struct Goroutines {
    /// How many are to be read next.
    orders: SyncSender<usize>,
    batches: Receiver<Batch>,
    /// A batch was ordered and has not arrived.
    is_ordered: bool,
    /// When one was ordered last.
    ordered: Ns,
    /// All were read once.
    is_begun: bool,
    /// How many are read in one round.
    listed: u64,
    /// Number of the round.
    round: u64,
    /// Those that waited when they were read last, by the addresses of their structures; with the
    /// rounds in which that was.
    known: FxHashMap<u64, (ThreadKey, u64)>,
    /// Number of the goroutine that was found last to wait and had not waited before.
    found: u64,
}

impl Goroutines {
    /// Starts to read. `None`: no thread can be started.
    fn start(pid: u32, names: Names) -> Option<Goroutines> {
        let (orders, ordered) = sync_channel::<usize>(1);
        let (send, batches) = sync_channel(1);
        let read = move || {
            let (mut reader, mut attempts) = (None, Attempts::new());
            while let Ok(count) = ordered.recv() {
                if reader.is_none() && attempts.is_due(monotonic()) {
                    reader = Reader::of(pid, names.clone());
                }
                let batch = reader.as_mut().map(|reader: &mut Reader<_>| reader.next_batch(count));
                if send.send(batch.unwrap_or_default()).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("goroutines".into()).spawn(read).ok()?;
        Some(Goroutines::new(orders, batches, monotonic()))
    }

    /// `now`: the numbers that goroutines are given begin there, in microseconds. So those of
    /// another program that the process executes later are others: fewer are found in a time.
    fn new(orders: SyncSender<usize>, batches: Receiver<Batch>, now: Ns) -> Goroutines {
        Goroutines {
            orders,
            batches,
            is_ordered: false,
            ordered: 0,
            is_begun: false,
            listed: 0,
            round: 0,
            known: FxHashMap::default(),
            found: now / 1_000,
        }
    }

    /// Returns what was read since the last call, and orders the next batch when it is time.
    /// `Err`: there is nothing to read.
    fn take(&mut self, now: Ns) -> Result<Option<Batch>, ()> {
        let batch = match self.batches.try_recv() {
            Ok(batch) => Some(batch),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => return Err(()),
        };
        if let Some(batch) = &batch {
            self.is_ordered = false;
            self.is_begun |= batch.is_last;
            self.listed = batch.listed as u64;
        }
        let count = match self.is_begun {
            false => BATCH,
            true => {
                let rate = RATE.max(self.listed * SECOND / ROUND);
                let due = rate.saturating_mul(now.saturating_sub(self.ordered)) / SECOND;
                usize::try_from(due).unwrap_or(BATCH).min(BATCH)
            }
        };
        if !self.is_ordered && count > 0 {
            self.is_ordered = self.orders.try_send(count).is_ok();
            self.ordered = now;
        }
        Ok(batch)
    }

    /// Returns the key of the goroutine at `place`, and that of another one that ended there.
    /// `id`: its number; `None`: none waits there.
    fn follow(
        &mut self,
        pid: u32,
        place: u64,
        id: Option<u64>,
    ) -> (Option<ThreadKey>, Option<ThreadKey>) {
        let before = self.known.remove(&place).map(|(key, _)| key);
        let Some(id) = id else { return (None, before) };
        let same = before.filter(|key| key.tid == ThreadKey::goroutine(pid, id, 0).tid);
        let key = same.unwrap_or_else(|| {
            self.found += 1;
            ThreadKey::goroutine(pid, id, self.found)
        });
        self.known.insert(place, (key, self.round));
        (Some(key), before.filter(|_| same.is_none()))
    }

    /// Returns the goroutines of a batch that wait, and those that ended or wait no longer.
    fn follow_all(&mut self, pid: u32, batch: Batch) -> (Vec<(ThreadKey, Parked)>, Vec<ThreadKey>) {
        let (mut waiting, mut ended) = (Vec::new(), Vec::new());
        for (place, slot) in batch.slots {
            let parked = match slot {
                Slot::Parked(parked) => Some(parked),
                Slot::Other => None,
            };
            let (key, other) = self.follow(pid, place, parked.as_ref().map(|parked| parked.id));
            ended.extend(other);
            waiting.extend(key.zip(parked));
        }
        if batch.is_last {
            ended.extend(self.end_round());
        }
        (waiting, ended)
    }

    /// Ends a round. Returns the goroutines that were not read in it: now others are chosen.
    fn end_round(&mut self) -> Vec<ThreadKey> {
        let round = self.round;
        self.round += 1;
        self.known.extract_if(|_, (_, read)| *read != round).map(|(_, (key, _))| key).collect()
    }
}

impl Core {
    /// Observes goroutines that wait, of each process that runs code of Go.
    pub(super) fn observe_goroutines(&mut self, now: Ns) {
        for index in 0..self.processes.len() {
            let process = &mut self.processes[index];
            let is_read = process.gives_stacks() && self.backend.reads_stacks && !self.once;
            if !is_read || process.ended.is_some() || !process.unwinder.is_go() {
                continue;
            }
            self.observe_goroutines_of(index, now);
        }
    }

    fn observe_goroutines_of(&mut self, index: usize, now: Ns) {
        let process = &mut self.processes[index];
        let pid = process.pid();
        let names = &self.walkers.names;
        let start = || Goroutines::start(pid, names.clone());
        let Some(mut goroutines) = process.goroutines.take().unwrap_or_else(start) else {
            process.goroutines = Some(None);
            return;
        };
        match goroutines.take(now) {
            Err(()) => {
                process.goroutines = Some(None);
                return;
            }
            Ok(None) => {}
            Ok(Some(batch)) => {
                if batch.labels.is_some() && process.labels.layout.is_none() {
                    process.labels.layout = batch.labels;
                    // Threads that have waited so far have been observed without labels.
                    process.scan.restart();
                }
                if batch.is_part {
                    self.walkers.names.unseen(pid, SOME_GOROUTINES);
                }
                let (waiting, ended) = goroutines.follow_all(pid, batch);
                let end = |thread| Event::ThreadEnded { at: now, thread, counters: None };
                self.events.extend(ended.into_iter().map(end));
                for (key, parked) in waiting {
                    self.observe_parked(index, key, &parked, now);
                }
            }
        }
        self.processes[index].goroutines = Some(Some(goroutines));
    }

    fn observe_parked(&mut self, index: usize, thread: ThreadKey, parked: &Parked, at: Ns) {
        let process = &mut self.processes[index];
        let labels = process.labels.frames.frame(&parked.labels);
        let (mut stack, walk) = walk_parked(process.unwinder.as_mut(), parked, labels, at);
        if parked.sends {
            stack.insert(0, frame_of_send(&self.walkers.names));
        }
        count_walk(&walk, &mut self.losses);
        let seen = Seen::Blocked(parked.state.parked());
        self.events.push(Event::Observation(Observation {
            stack,
            wait_began: parked.since,
            ..Observation::new(at, thread, parked.name, seen)
        }));
    }

    /// Ends the goroutines of a process that executes another program.
    pub(super) fn end_goroutines(&mut self, index: usize, at: Ns) {
        self.processes[index].labels.layout = None;
        let Some(Some(goroutines)) = self.processes[index].goroutines.take() else { return };
        let ended = |thread: ThreadKey| Event::ThreadEnded { at, thread, counters: None };
        self.events.extend(goroutines.known.into_values().map(|(key, _)| ended(key)));
    }
}

/// Walks the stack of a goroutine that waits, which was copied at `at`. `labels`: the frame that
/// carries its labels.
fn walk_parked(
    unwinder: &mut dyn Unwinder,
    parked: &Parked,
    labels: Option<RawFrame>,
    at: Ns,
) -> (Vec<RawFrame>, Walk) {
    // It is on no thread: nothing that the kernel took with one belongs to it.
    unwinder.set_owner(StackOwner::default(), Taken::nothing());
    unwinder.set_instant(at);
    let registers = Registers { rip: parked.pc, rsp: parked.sp, ..Registers::default() };
    let bytes = StackBytes { base: parked.sp, bytes: &parked.stack };
    let mut stack = Vec::with_capacity(32);
    let walk = unwinder.walk_blocked(&registers, bytes, &mut stack);
    place_task(labels, walk, &mut stack);
    (stack, walk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::vocabulary::frame::Marker;

    /// Remembers what it was told, and finds two frames, of which the last one says why it ends.
    #[derive(Default)]
    struct Fake(Vec<String>);

    impl Unwinder for Fake {
        fn walk(&mut self, _: &Registers, _: StackBytes<'_>, _: &mut Vec<RawFrame>) -> Walk {
            panic!("it would not be read from memory")
        }

        fn walk_blocked(
            &mut self,
            registers: &Registers,
            stack: StackBytes<'_>,
            out: &mut Vec<RawFrame>,
        ) -> Walk {
            self.0.push(format!("{:x} {:x} {:?}", registers.rip, registers.rsp, stack));
            out.extend([RawFrame::from_bits(7), RawFrame::marker(Marker::BadUnwind)]);
            Walk { end: Some(Marker::BadUnwind), recovered: false }
        }

        fn set_owner(&mut self, owner: StackOwner, taken: Taken) {
            assert_eq!((owner, taken), (StackOwner::default(), Taken::nothing()));
            self.0.push("of no thread".into());
        }

        fn set_instant(&mut self, at: Ns) {
            self.0.push(format!("at {at}"));
        }
    }

    #[test]
    fn a_goroutine_that_waits_is_walked_as_one_of_no_thread() {
        let mut unwinder = Fake::default();
        let parked = Parked { stack: vec![1, 2], ..Parked::with_number(3) };
        let labels = RawFrame::from_bits(9);
        let (stack, walk) = walk_parked(&mut unwinder, &parked, Some(labels), 77);
        let end = RawFrame::marker(Marker::BadUnwind);
        assert_eq!(stack, [RawFrame::from_bits(7), labels, end]);
        assert_eq!(walk.end, Some(Marker::BadUnwind));
        let told = ["of no thread", "at 77", "1 2 StackBytes { base: 2, bytes: [1, 2] }"];
        assert_eq!(unwinder.0, told);
    }

    #[test]
    fn a_goroutine_keeps_its_key_while_it_waits() {
        let (orders, _ordered) = sync_channel(1);
        let (_send, batches) = sync_channel(1);
        let mut goroutines = Goroutines::new(orders, batches, 999);
        let mut at = |place, id| goroutines.follow(7, place, id);
        let key = |id, found| Some(ThreadKey::goroutine(7, id, found));
        assert_eq!(at(0x10, Some(21)), (key(21, 1), None));
        assert_eq!(at(0x20, Some(22)), (key(22, 2), None));
        assert_eq!(at(0x10, Some(21)), (key(21, 1), None));
        assert_eq!(at(0x10, Some(33)), (key(33, 3), key(21, 1)), "its structure is reused");
        assert_eq!(at(0x20, None), (None, key(22, 2)), "it runs");
        assert_eq!(at(0x20, None), (None, None));
        assert_eq!(at(0x20, Some(22)), (key(22, 4), None), "it waits again");
        // The process executes the program again.
        let (orders, _ordered) = sync_channel(1);
        let (_send, batches) = sync_channel(1);
        let mut again = Goroutines::new(orders, batches, 2 * SECOND);
        assert_eq!(again.follow(7, 0x10, Some(21)), (key(21, 2_000_001), None));
    }

    #[test]
    fn a_goroutine_that_is_not_read_in_a_round_ends_with_it() {
        let (orders, _ordered) = sync_channel(1);
        let (_send, batches) = sync_channel(1);
        let mut goroutines = Goroutines::new(orders, batches, 999);
        // The places and numbers of those that wait; 0: it does not.
        let mut read = |is_last, slots: &[(u64, u64)]| {
            let slot = |(at, id): &(u64, u64)| match id {
                0 => (*at, Slot::Other),
                id => (*at, Slot::Parked(Parked::with_number(*id))),
            };
            let slots = slots.iter().map(slot).collect();
            let (waiting, ended) =
                goroutines.follow_all(7, Batch { slots, is_last, ..Batch::default() });
            let waiting: Vec<ThreadKey> = waiting.into_iter().map(|(key, _)| key).collect();
            (waiting, ended)
        };
        let key = |id, found| ThreadKey::goroutine(7, id, found);
        let first = vec![key(21, 1), key(22, 2)];
        assert_eq!(read(false, &[(0x10, 21), (0x20, 22)]), (first, vec![]));
        assert_eq!(read(true, &[(0x30, 23)]), (vec![key(23, 3)], vec![]));
        assert_eq!(read(false, &[(0x20, 22)]), (vec![key(22, 2)], vec![]));
        assert_eq!(read(true, &[(0x30, 0)]), (vec![], vec![key(23, 3), key(21, 1)]));
        assert_eq!(read(true, &[(0x10, 21)]), (vec![key(21, 4)], vec![key(22, 2)]));
    }

    #[test]
    fn goroutines_that_were_not_found_are_searched_again_ever_less_often() {
        let mut attempts = Attempts::new();
        let begin = 1_000 * SECOND;
        let mut due = Vec::new();
        for at in (0..400 * 8).map(|n| n * SECOND / 8) {
            due.extend(attempts.is_due(begin + at).then_some(at * 4 / SECOND));
        }
        // In quarters of a second.
        assert_eq!(due[..9], [0, 1, 3, 7, 15, 31, 63, 127, 255]);
        assert_eq!(due[9..], [511, 767, 1_023, 1_279, 1_535]);
    }

    #[test]
    fn all_are_read_at_once_first_and_a_few_at_a_time_later() {
        const MS: Ns = SECOND / 1000;
        let (orders, ordered) = sync_channel(1);
        let (send, batches) = sync_channel(1);
        let mut goroutines = Goroutines::new(orders, batches, 999);
        let batch = |is_last, listed| Batch { is_last, listed, ..Batch::default() };
        let mut take = |at: Ns, read: Option<Batch>| {
            read.clone().into_iter().for_each(|batch| send.send(batch).expect("room"));
            assert_eq!(goroutines.take(at * MS), Ok(read));
            ordered.try_recv().ok()
        };
        assert_eq!(take(1_000, None), Some(BATCH));
        assert_eq!(take(1_010, None), None, "one at a time");
        assert_eq!(take(1_020, Some(batch(false, 100))), Some(BATCH));
        assert_eq!(take(1_030, Some(batch(true, 100))), Some(1), "100 in a second");
        assert_eq!(take(1_035, Some(batch(false, 100))), None);
        assert_eq!(take(1_080, None), Some(5));
        assert_eq!(take(1_090, Some(batch(false, 4_000))), Some(8), "4,000 in five seconds");
        assert_eq!(take(9_000, Some(batch(false, 4_000))), Some(BATCH));
        drop(send);
        assert_eq!(goroutines.take(9_010 * MS), Err(()));
    }
}
