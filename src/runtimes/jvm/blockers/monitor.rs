//! Monitors: `synchronized`, `Object.wait`, and `Thread.join`, which is such a wait.
//!
//! A thread that is blocked on a monitor refers to it. The monitor says who owns it, in one of four
//! ways:
//!
//! * by the thread's address;
//! * by an address in the thread's stack, where it took the lock before there was a monitor
//!   (`LockingMode=1`);
//! * by the thread's number (JDK 24 and later);
//! * as anonymous, while the thread still has the object in its lock stack (`LockingMode=2`).

use crate::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use crate::model::vocabulary::frame::RawName;
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::Jvm;
use crate::runtimes::jvm::blockers::places::{LockStack, Places};
use crate::runtimes::jvm::blockers::proof::Proof;
use crate::runtimes::jvm::blockers::waiter::{EETOP, Waiter};
use crate::runtimes::jvm::blockers::{KNOWN_MAX, Reference, Status};
use crate::runtimes::jvm::frame_anchors::holds;
use crate::runtimes::jvm::java_threads::THREADS_MAX;
use crate::unwinder::{Leave, Place};

/// Maximum objects in a thread's lock stack (src/hotspot/share/runtime/lockStack.hpp).
const LOCK_STACK_MAX: u64 = 8;
/// Maximum frames from the native method below `Object.wait` to its caller.
const WAIT_FRAMES_MAX: usize = 4;
/// Bytes of the stack that are copied to find the caller; HotSpot's own frames take some 1,000.
const STACK_COPIED: usize = 16 << 10;
const WAITS: [&str; 2] = ["java.lang.Object.wait", "java.lang.Object.wait0"];
/// In the mark word of an object with a monitor, its address has these lowest bits
/// (src/hotspot/share/oops/markWord.hpp), unless all monitors are in a table (JDK 26).
const MONITOR_MARK: u64 = 2;
const JOIN: &str = "java.lang.Thread.join";

/// What a monitor's owner word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnerWord {
    Free,
    /// A thread that took the lock before there was a monitor.
    Anonymous,
    /// A thread's number.
    Id(u64),
    /// A thread, or a place in its stack.
    Address(u64),
    /// The monitor is being freed, or it is garbage.
    Unproven,
}

impl OwnerWord {
    /// `is_id`: JDK 24 and later. The numbers below 3 have a meaning of their own; before, freed
    /// monitors had -1 (src/hotspot/share/runtime/objectMonitor.hpp).
    pub fn of(word: u64, is_id: bool) -> OwnerWord {
        match word {
            0 => OwnerWord::Free,
            1 => OwnerWord::Anonymous,
            _ if word.cast_signed() < 3 => OwnerWord::Unproven,
            _ if is_id => OwnerWord::Id(word),
            _ if word.is_multiple_of(8) => OwnerWord::Address(word),
            _ => OwnerWord::Unproven,
        }
    }
}

/// The owner of a monitor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Thread(u64),
    Free,
    Unmounted,
}

/// What is searched for in lock stacks.
#[derive(Clone, Copy)]
enum Locked {
    Object(u64),
    /// The object whose mark word leads to this monitor.
    Monitor(u64),
}

/// The result of a search among threads.
enum Search<T> {
    Found(T),
    /// All were read, and it is none of them.
    None,
    Incomplete,
}

impl<M: ReadMemory> Jvm<M> {
    /// Returns what a thread waits for that enters a monitor or is in `Object.wait`.
    pub fn monitor(
        &mut self,
        waiter: &Waiter,
        places: Places,
        proof: &mut Proof,
    ) -> Option<RawBlocker> {
        let (place, monitor) = match waiter.pending {
            0 => (places.waiting, waiter.waiting),
            pending => (places.pending, pending),
        };
        let now = proof.word(self, waiter.thread.checked_add(place)?)?;
        if now != monitor || !monitor.is_multiple_of(8) {
            return None;
        }
        let enters = waiter.pending != 0
            || match self.status(waiter, proof)? {
                Status::InObjectWait => false,
                Status::EntersMonitor => true,
                Status::Runnable => return self.class_of_monitor(waiter, monitor, places, proof),
                Status::Parked | Status::Other => return None,
            };
        let object = self.monitor_object(monitor, places, proof).unwrap_or(Reference::Stale(0));
        if !enters {
            return Some(self.in_object_wait(waiter, monitor, object, proof));
        }
        let holder = match proof.holders {
            true => self.owner(waiter, monitor, object, places, proof),
            false => None,
        };
        let blocker = self.blocker_of_monitor(BlockerKind::Monitor, monitor, object, proof);
        Some(RawBlocker { holder: holder.unwrap_or_default(), ..blocker })
    }

    /// Returns a blocker that is this monitor. Where objects are moved while Java runs it has the
    /// monitor's own address: that stays for as long as threads wait, and is known when the
    /// object's is not.
    fn blocker_of_monitor(
        &mut self,
        kind: BlockerKind,
        monitor: u64,
        object: Reference,
        proof: &mut Proof,
    ) -> RawBlocker {
        let blocker = self.blocker_at(kind, object);
        if !self.moves_any_time() {
            return blocker;
        }
        let class = match object {
            Reference::Stale(object) => self.class_by_mark(monitor, object, proof),
            Reference::Object(_) | Reference::Null => blocker.class,
        };
        RawBlocker { object: monitor, class, ..blocker }
    }

    /// Returns the class of the object at a stale reference, if that object's mark word leads back
    /// to the monitor: then no other object was put there.
    fn class_by_mark(&self, monitor: u64, object: u64, proof: &mut Proof) -> Option<RawName> {
        if object == 0 || !object.is_multiple_of(8) {
            return None;
        }
        let class = self.class_of(object);
        // Memory that was used again is not used for the same object later.
        class.filter(|_| proof.word(self, object) == Some(monitor | MONITOR_MARK))
    }

    pub fn monitor_object(
        &self,
        monitor: u64,
        places: Places,
        proof: &mut Proof,
    ) -> Option<Reference> {
        let at = monitor.checked_add(places.monitor_object)?;
        match places.monitor_object_is_handle {
            true => {
                let handle = proof.word(self, at)?;
                proof.root(self, handle)
            }
            false => proof.root(self, at),
        }
    }

    /// Returns what a thread in `Object.wait` waits for: to be notified, or the end of a thread.
    fn in_object_wait(
        &mut self,
        waiter: &Waiter,
        monitor: u64,
        object: Reference,
        proof: &mut Proof,
    ) -> RawBlocker {
        let thread = match object {
            Reference::Object(object) => self.object_field(object, EETOP).is_some(),
            Reference::Stale(_) => true,
            Reference::Null => false,
        };
        if !thread || self.joins(waiter) != Some(true) {
            return self.blocker_of_monitor(BlockerKind::Notify, monitor, object, proof);
        }
        let holder = self.holder(object, RawHolder::Free, proof).filter(|_| proof.holders);
        let blocker = self.blocker_of_monitor(BlockerKind::ThreadEnd, monitor, object, proof);
        RawBlocker { holder: holder.unwrap_or_default(), ..blocker }
    }

    /// Whether this thread, which is in `Object.wait`, was called by `Thread.join`.
    fn joins(&mut self, waiter: &Waiter) -> Option<bool> {
        let start = waiter.sp - waiter.sp % 8;
        let mut stack = vec![0; STACK_COPIED];
        let copied = self.memory.read(start, &mut stack);
        let stack = &stack[..copied];
        let mut word = |at: u64| {
            let at = usize::try_from(at.checked_sub(start)?).ok()?;
            Some(u64::from_le_bytes(*stack.get(at..)?.first_chunk()?))
        };
        let mut frames = Vec::new();
        let mut left = self.resume_in_thread(waiter.thread, waiter.sp, &mut word, &mut frames)?;
        for _ in 0..WAIT_FRAMES_MAX {
            for frame in frames.drain(..) {
                // What was inlined comes last.
                let named = self.names.named(frame)?;
                let mut callers = named.locations.iter().rev();
                if let Some(caller) = callers.find(|caller| !WAITS.contains(&&*caller.function)) {
                    return Some(&*caller.function == JOIN);
                }
            }
            let Leave::To { pc, sp, rbp } = left else { return None };
            let place = Place { pc, exact: false, sp, rbp, general: None };
            left = self.leave_frame(place, &mut word, &mut frames);
        }
        None
    }

    /// Returns who owns a monitor that `waiter` waits for.
    fn owner(
        &mut self,
        waiter: &Waiter,
        monitor: u64,
        object: Reference,
        places: Places,
        proof: &mut Proof,
    ) -> Option<RawHolder> {
        let word = proof.word(self, monitor.checked_add(places.owner)?)?;
        let owner = match OwnerWord::of(word, places.owner_is_id) {
            OwnerWord::Free => Some(Owner::Free),
            OwnerWord::Id(id) => self.owner_by_id(waiter, monitor, id, places, proof),
            OwnerWord::Address(address) => {
                let thread = self.owner_by_address(address, proof);
                // The stack of a thread that has ended may be another's later.
                proof.for_others &= thread == Some(address);
                thread.map(Owner::Thread)
            }
            OwnerWord::Anonymous => {
                // A lock stack keeps what was taken off it, in memory.
                proof.for_others = false;
                self.anonymous_owner(waiter, monitor, object, places, proof)
            }
            OwnerWord::Unproven => None,
        };
        match owner? {
            Owner::Free => Some(RawHolder::Free),
            Owner::Unmounted => Some(RawHolder::Unmounted),
            // It has just got it.
            Owner::Thread(thread) if thread == waiter.thread => None,
            Owner::Thread(thread) => {
                if self.blockers.owners.len() >= KNOWN_MAX {
                    self.blockers.owners.clear();
                }
                self.blockers.owners.insert(monitor, thread);
                self.thread_holder(thread, proof)
            }
        }
    }

    /// Finds the thread at this address, or the one with this address in its stack.
    fn owner_by_address(&mut self, address: u64, proof: &mut Proof) -> Option<u64> {
        let anchors = self.anchors.places?;
        let known = self.on_known_stack(address);
        if known.is_none() && self.is_thread(address) {
            return Some(address);
        }
        let mut on_stack = |jvm: &mut Self, thread: u64| {
            let base = proof.word(jvm, thread.checked_add(anchors.base)?)?;
            let size = proof.word(jvm, thread.checked_add(anchors.size)?)?;
            (holds((base, size), address) && jvm.is_thread(thread)).then_some(thread)
        };
        if let Some(thread) = known.and_then(|thread| on_stack(self, thread)) {
            return Some(thread);
        }
        let thread = self.thread_with(address, anchors)?;
        on_stack(self, thread)
    }

    /// Finds the thread with this number. A virtual thread has its number wherever it is mounted.
    fn owner_by_id(
        &mut self,
        waiter: &Waiter,
        monitor: u64,
        id: u64,
        places: Places,
        proof: &mut Proof,
    ) -> Option<Owner> {
        let at = places.owner_id?;
        let with_id = |jvm: &Self, threads: &[u64]| {
            let places: Vec<_> =
                threads.iter().map(|thread| Some((thread.checked_add(at)?, 8))).collect();
            let ids = jvm.words(&places);
            match threads.iter().zip(&ids).find(|(_, other)| **other == Some(id)) {
                Some((thread, _)) => Search::Found(*thread),
                None if ids.iter().all(Option::is_some) => Search::None,
                None => Search::Incomplete,
            }
        };
        let last = self.blockers.owners.get(&monitor).copied();
        let found = match last.map(|last| (last, with_id(self, &[last]))) {
            Some((last, Search::Found(_))) if self.is_thread(last) => Search::Found(last),
            _ => self.search(waiter, with_id),
        };
        match found {
            Search::Found(thread) if proof.word(self, thread.checked_add(at)?)? == id => {
                Some(Owner::Thread(thread))
            }
            Search::Found(_) | Search::Incomplete => None,
            Search::None => Some(Owner::Unmounted),
        }
    }

    /// Searches all threads, twice if it is none of them: a virtual thread may be mounted
    /// meanwhile.
    fn search<T>(&self, waiter: &Waiter, among: impl Fn(&Self, &[u64]) -> Search<T>) -> Search<T> {
        for _ in 0..2 {
            let threads = self.thread_pointers();
            let found = among(self, &threads);
            let complete = (threads.len() as u64) < THREADS_MAX && threads.contains(&waiter.thread);
            match found {
                Search::None if complete => {}
                Search::None => return Search::Incomplete,
                found => return found,
            }
        }
        Search::None
    }

    /// Finds the thread that has locked this object without a monitor.
    fn anonymous_owner(
        &mut self,
        waiter: &Waiter,
        monitor: u64,
        object: Reference,
        places: Places,
        proof: &mut Proof,
    ) -> Option<Owner> {
        if let Some(at) = places.stack_locker {
            let locker = proof.word(self, monitor.checked_add(at)?)?;
            if locker != 0 {
                return self.owner_by_address(locker, proof).map(Owner::Thread);
            }
        }
        let stack = places.lock_stack?;
        let wanted = match object {
            Reference::Object(object) => Locked::Object(object),
            Reference::Stale(_) if self.moves_any_time() => Locked::Monitor(monitor),
            Reference::Stale(_) | Reference::Null => return None,
        };
        let entry = |jvm: &Self, threads: &[u64]| jvm.lock_stack_entry(threads, wanted, stack);
        let last = self.blockers.owners.get(&monitor).copied();
        let found = match last.map(|last| (last, entry(self, &[last]))) {
            Some((last, found @ Search::Found(_))) if self.is_thread(last) => found,
            _ => self.search(waiter, entry),
        };
        match found {
            Search::Found((thread, at)) => {
                // It stays there for as long as the owner is anonymous.
                let object = proof.word(self, at)?;
                if matches!(wanted, Locked::Monitor(_)) {
                    proof.word(self, object)?;
                }
                Some(Owner::Thread(thread))
            }
            Search::Incomplete => None,
            // Other collectors may have left an old address there; before JDK 24 such threads stay
            // on their carriers.
            Search::None => {
                (places.owner_is_id && !self.moves_any_time()).then_some(Owner::Unmounted)
            }
        }
    }

    /// Finds the only thread whose lock stack has this object, and where.
    fn lock_stack_entry(
        &self,
        threads: &[u64],
        wanted: Locked,
        stack: LockStack,
    ) -> Search<(u64, u64)> {
        let Ok(objects) = &self.objects else { return Search::Incomplete };
        let tops: Vec<_> =
            threads.iter().map(|thread| Some((thread.checked_add(stack.top)?, 4))).collect();
        let mut complete = true;
        let mut entries = Vec::new();
        for (thread, top) in threads.iter().zip(self.words(&tops)) {
            let length = top.and_then(|top| top.checked_sub(stack.base)).unwrap_or(u64::MAX);
            if !length.is_multiple_of(8) || length / 8 > LOCK_STACK_MAX {
                complete = false;
                continue;
            }
            let first = thread.wrapping_add(stack.base);
            entries.extend((0..length / 8).map(|nth| (*thread, first.wrapping_add(8 * nth))));
        }
        let words = self.words(&entries.iter().map(|(_, at)| Some((*at, 8))).collect::<Vec<_>>());
        complete &= words.iter().all(Option::is_some);
        let is_wanted: Vec<bool> = match wanted {
            Locked::Object(object) => words
                .iter()
                .map(|word| word.is_some_and(|word| objects.same(word, object)))
                .collect(),
            Locked::Monitor(monitor) => {
                let marks: Vec<_> = words.iter().map(|word| word.map(|at| (at, 8))).collect();
                let marks = self.words(&marks);
                complete &= marks.iter().all(Option::is_some);
                marks.iter().map(|mark| *mark == Some(monitor | MONITOR_MARK)).collect()
            }
        };
        let with = entries.iter().zip(is_wanted).filter(|(_, is_wanted)| *is_wanted);
        let with: Vec<(u64, u64)> = with.map(|(entry, _)| *entry).collect();
        match &with[..] {
            // A thread that has locked it twice has it twice.
            [first, rest @ ..] if rest.iter().all(|(thread, _)| *thread == first.0) => {
                Search::Found(*first)
            }
            [] if complete => Search::None,
            _ => Search::Incomplete,
        }
    }
}
