//! Goroutines that wait: on no thread's stack, they are read beside the threads, a few at each tick
//! and each about every five seconds. Each counts as a thread of its own while it waits. What it
//! waits in holds until it is found otherwise. That is right on average, because how often it is
//! found somewhere goes by the time that it spends there.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use rustc_hash::FxHashMap;

use crate::capture::sampler::Core;
use crate::capture::thread_scan::count_walk;
use crate::model::vocabulary::event::{Event, Observation, Seen};
use crate::model::vocabulary::frame::{Ns, SECOND, ThreadKey};
use crate::runtimes::frame_and_thread_names::Names;
use crate::runtimes::go::parked::{Batch, Parked, Reader, Slot};
use crate::unwinder::interpreted::{StackOwner, Taken};
use crate::unwinder::{Registers, StackBytes};

/// Time from one round to the next, ns.
const ROUND: Ns = 5 * SECOND;

/// Reads the goroutines of one process on a thread of its own: what it reads may hang.
pub struct Goroutines {
    orders: SyncSender<()>,
    batches: Receiver<Batch>,
    /// A batch was ordered and has not arrived.
    is_ordered: bool,
    /// When the round began, or will begin.
    round: Ns,
    /// Those that waited when they were read last, by the addresses of their structures.
    known: FxHashMap<u64, ThreadKey>,
    /// How often a goroutine was found to wait that had not waited before.
    found: u64,
}

impl Goroutines {
    /// Starts to read. `None`: no thread can be started.
    fn start(pid: u32, names: Names, now: Ns) -> Option<Goroutines> {
        let (orders, ordered) = sync_channel::<()>(1);
        let (send, batches) = sync_channel(1);
        let read = move || {
            let mut reader = None;
            while ordered.recv().is_ok() {
                if reader.is_none() {
                    reader = Reader::of(pid, names.clone());
                }
                let Some(reader) = &mut reader else { return };
                if send.send(reader.next_batch()).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("goroutines".into()).spawn(read).ok()?;
        let known = FxHashMap::default();
        Some(Goroutines { orders, batches, is_ordered: false, round: now, known, found: 0 })
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
            if batch.is_last {
                self.round = now.max(self.round + ROUND);
            }
        }
        if !self.is_ordered && now >= self.round {
            self.is_ordered = self.orders.try_send(()).is_ok();
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
        let before = self.known.get(&place).copied();
        let Some(id) = id else { return (None, self.known.remove(&place)) };
        match before.filter(|key| key.tid == ThreadKey::goroutine(pid, id, 0).tid) {
            Some(key) => (Some(key), None),
            None => {
                self.found += 1;
                let key = ThreadKey::goroutine(pid, id, self.found);
                (Some(key), self.known.insert(place, key))
            }
        }
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
        let start = || Goroutines::start(pid, names.clone(), now);
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
                for (place, slot) in batch.slots {
                    let parked = match slot {
                        Slot::Parked(parked) => Some(parked),
                        Slot::Other => None,
                    };
                    let id = parked.as_ref().map(|parked| parked.id);
                    let (key, ended) = goroutines.follow(pid, place, id);
                    let ended =
                        ended.map(|thread| Event::ThreadEnded { at: now, thread, counters: None });
                    self.events.extend(ended);
                    if let (Some(parked), Some(key)) = (parked, key) {
                        self.observe_parked(index, key, &parked, now);
                    }
                }
            }
        }
        self.processes[index].goroutines = Some(Some(goroutines));
    }

    fn observe_parked(&mut self, index: usize, thread: ThreadKey, parked: &Parked, at: Ns) {
        let unwinder = &mut self.processes[index].unwinder;
        unwinder.set_owner(StackOwner::default(), Taken::nothing());
        unwinder.set_instant(at);
        let registers = Registers { rip: parked.pc, rsp: parked.sp, ..Registers::default() };
        let mut stack = Vec::with_capacity(32);
        let bytes = StackBytes { base: parked.sp, bytes: &parked.stack };
        let walk = unwinder.walk_blocked(&registers, bytes, &mut stack);
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
        let Some(Some(goroutines)) = self.processes[index].goroutines.take() else { return };
        let ended = |thread: ThreadKey| Event::ThreadEnded { at, thread, counters: None };
        self.events.extend(goroutines.known.into_values().map(ended));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goroutine_keeps_its_key_while_it_waits() {
        let (orders, _ordered) = sync_channel(1);
        let (_send, batches) = sync_channel(1);
        let known = FxHashMap::default();
        let mut goroutines =
            Goroutines { orders, batches, is_ordered: false, round: 0, known, found: 0 };
        let mut at = |place, id| goroutines.follow(7, place, id);
        let key = |id, found| Some(ThreadKey::goroutine(7, id, found));
        assert_eq!(at(0x10, Some(21)), (key(21, 1), None));
        assert_eq!(at(0x20, Some(22)), (key(22, 2), None));
        assert_eq!(at(0x10, Some(21)), (key(21, 1), None));
        assert_eq!(at(0x10, Some(33)), (key(33, 3), key(21, 1)), "its structure is reused");
        assert_eq!(at(0x20, None), (None, key(22, 2)), "it runs");
        assert_eq!(at(0x20, None), (None, None));
        assert_eq!(at(0x20, Some(22)), (key(22, 4), None), "it waits again");
    }

    #[test]
    fn batches_are_ordered_until_a_round_is_done() {
        let (orders, ordered) = sync_channel(1);
        let (send, batches) = sync_channel(1);
        let known = FxHashMap::default();
        let mut goroutines =
            Goroutines { orders, batches, is_ordered: false, round: 100, known, found: 0 };
        let batch = |is_last| Batch { is_last, ..Batch::default() };
        assert_eq!(goroutines.take(99), Ok(None));
        assert!(ordered.try_recv().is_err(), "it is not time yet");
        assert_eq!(goroutines.take(100), Ok(None));
        assert!(ordered.try_recv().is_ok());
        assert_eq!(goroutines.take(101), Ok(None));
        assert!(ordered.try_recv().is_err(), "one at a time");
        send.send(batch(false)).expect("room");
        assert_eq!(goroutines.take(102), Ok(Some(batch(false))));
        assert!(ordered.try_recv().is_ok());
        send.send(batch(true)).expect("room");
        assert_eq!(goroutines.take(103), Ok(Some(batch(true))));
        assert_eq!(goroutines.take(100 + ROUND - 1), Ok(None));
        assert!(ordered.try_recv().is_err(), "the round is done");
        assert_eq!(goroutines.take(100 + ROUND), Ok(None));
        assert!(ordered.try_recv().is_ok());
        drop(send);
        assert_eq!(goroutines.take(101 + ROUND), Err(()));
    }
}
