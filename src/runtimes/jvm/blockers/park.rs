//! Locks and other synchronizers of `java.util.concurrent`. A thread that is parked refers to the
//! object that it gave to `LockSupport.park` (`Thread.parkBlocker`).

use crate::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::Jvm;
use crate::runtimes::jvm::blockers::proof::Proof;
use crate::runtimes::jvm::blockers::waiter::Waiter;
use crate::runtimes::jvm::blockers::{Reference, Status};
use crate::runtimes::jvm::heap_objects::Declared;

const INT: &str = "java/util/concurrent/locks/AbstractQueuedSynchronizer";
const LONG: &str = "java/util/concurrent/locks/AbstractQueuedLongSynchronizer";
const CONDITIONS: [&str; 2] = [
    "java/util/concurrent/locks/AbstractQueuedSynchronizer$ConditionObject",
    "java/util/concurrent/locks/AbstractQueuedLongSynchronizer$ConditionObject",
];
const READ_WRITE: &str = "java/util/concurrent/locks/ReentrantReadWriteLock$Sync";
const LOCKS: &str = "java/util/concurrent/locks/";
const SEMAPHORE: &str = "java/util/concurrent/Semaphore$";
const LATCH: &str = "java/util/concurrent/CountDownLatch$";
/// The thread that runs a `FutureTask`.
const RUNNER: Declared = ("java/util/concurrent/FutureTask", "runner");
const OWNER: Declared =
    ("java/util/concurrent/locks/AbstractOwnableSynchronizer", "exclusiveOwnerThread");
const FIRST_READER: Declared = (READ_WRITE, "firstReader");
const FIRST_HOLDS: Declared = (READ_WRITE, "firstReaderHoldCount");

/// The state of a synchronizer, and in how many bits from the lowest it counts its writers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    pub number: u64,
    pub writer_bits: u32,
}

impl State {
    /// Returns how often the lock is held for reading.
    pub fn readers(self) -> u32 {
        u32::try_from(self.number >> self.writer_bits).unwrap_or(u32::MAX)
    }
}

impl<M: ReadMemory> Jvm<M> {
    /// Returns what a parked thread waits for.
    pub fn parked(&mut self, waiter: &Waiter, proof: &mut Proof) -> Option<RawBlocker> {
        // On its way there it may still run, or wait for the virtual machine.
        let reference = waiter.parked_on?;
        if self.status(waiter, proof)? != Status::Parked {
            return None;
        }
        let parked_on = proof.field(self, reference)?;
        let Reference::Object(object) = parked_on else {
            return Some(self.blocker_at(BlockerKind::Parked, parked_on));
        };
        let class = self.objects.as_ref().ok()?.class_symbol(&self.memory, &self.layout, object)?;
        if CONDITIONS.contains(&&*class) {
            let lock = self.object_field(object, (CONDITIONS[0], "this$0"));
            let lock = lock.or_else(|| self.object_field(object, (CONDITIONS[1], "this$0")))?;
            let lock = proof.field(self, lock)?;
            return Some(self.blocker_at(BlockerKind::Condition, lock));
        }
        let (kind, holder) = if class.starts_with(SEMAPHORE) {
            (BlockerKind::Semaphore, None)
        } else if class.starts_with(LATCH) {
            (BlockerKind::Latch, None)
        } else if let Some(runner) = self.object_field(object, RUNNER) {
            (BlockerKind::Future, if proof.holders { self.runner(runner, proof) } else { None })
        } else if !proof.holders && class.starts_with(LOCKS) {
            (BlockerKind::OwnedLock, None)
        } else if let Some(owner) = self.object_field(object, OWNER) {
            self.lock_holder(object, &class, owner, waiter, proof)
        } else {
            (BlockerKind::Parked, None)
        };
        let blocker = self.blocker_at(kind, parked_on);
        Some(RawBlocker { holder: holder.unwrap_or_default(), ..blocker })
    }

    fn runner(&mut self, runner: u64, proof: &mut Proof) -> Option<RawHolder> {
        match proof.field(self, runner)? {
            // It has not begun.
            Reference::Null => Some(RawHolder::Free),
            runner => self.holder(runner, RawHolder::Unknown, proof),
        }
    }

    /// Returns who holds a synchronizer that one thread may own. Others than Java's own locks are
    /// locks only while a thread owns them: they may count something else.
    fn lock_holder(
        &mut self,
        lock: u64,
        class: &str,
        owner: u64,
        waiter: &Waiter,
        proof: &mut Proof,
    ) -> (BlockerKind, Option<RawHolder>) {
        let owner = proof.field(self, owner);
        let state = self.state(lock, proof);
        match owner {
            Some(Reference::Null) if class.starts_with(LOCKS) => {
                let holder = state.and_then(|state| self.readers(lock, state, proof));
                (BlockerKind::OwnedLock, holder)
            }
            None | Some(Reference::Null) => (BlockerKind::Parked, None),
            Some(owner) => {
                let holder = self.holder(owner, RawHolder::Unknown, proof);
                // It has just got it.
                let itself = self.thread_holder(waiter.thread, proof);
                (BlockerKind::OwnedLock, holder.filter(|holder| Some(*holder) != itself))
            }
        }
    }

    fn state(&mut self, lock: u64, proof: &mut Proof) -> Option<State> {
        if let Some(at) = self.object_field(lock, (INT, "state")) {
            return Some(State { number: proof.number(self, at, 4)?, writer_bits: 16 });
        }
        let at = self.object_field(lock, (LONG, "state"))?;
        Some(State { number: proof.number(self, at, 8)?, writer_bits: 32 })
    }

    /// Returns who holds a lock that no thread owns alone. It knows one of its readers, the first.
    /// How often that one holds it tells whether there are others.
    fn readers(&mut self, lock: u64, state: State, proof: &mut Proof) -> Option<RawHolder> {
        if state.number == 0 {
            return Some(RawHolder::Free);
        }
        let first = self.object_field(lock, FIRST_READER)?;
        let holds = self.object_field(lock, FIRST_HOLDS)?;
        let readers = state.readers();
        if readers == 0 {
            return None;
        }
        let (first, holds) = (proof.field(self, first)?, proof.number(self, holds, 4)?);
        if holds != u64::from(readers) || first == Reference::Null {
            return Some(RawHolder::Readers(readers));
        }
        // It holds the lock as often as it is held.
        let holder = self.holder(first, RawHolder::Unknown, proof);
        holder
            .filter(|holder| matches!(holder, RawHolder::Thread { .. } | RawHolder::Unmounted))
            .or(Some(RawHolder::Readers(1)))
    }
}
