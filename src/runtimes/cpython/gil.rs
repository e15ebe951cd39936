//! The lock of an interpreter (GIL), which a thread needs to execute Python code: who waits for it,
//! and who holds it.
//!
//! A thread that waits for it is blocked in a futex of the lock's own condition variables or
//! mutexes, which lie in the lock's structure. So the address alone says it, without symbols.

use crate::elf::{u32_at, u64_at};
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use crate::model::vocabulary::frame::{RawFrame, WAITS_FOR_GIL};
use crate::process::memory::ReadMemory;
use crate::runtimes::cpython::Cpython;
use crate::runtimes::cpython::layout::GilAt;
use crate::unwinder::interpreted::StackOwner;

/// Bytes of the structure: five words, two mutexes of 40 bytes and two condition variables of 48
/// (glibc and musl), and a word more in builds without a lock.
const SIZE: u64 = 6 * 8 + 2 * (40 + 48);
/// Bytes of it that are read.
const HEAD: usize = 48;

impl<M: ReadMemory> Cpython<M> {
    /// Returns the address of the lock that a thread waits for which is blocked in this futex.
    fn lock_waited_for(&self, owner: StackOwner) -> Option<u64> {
        let futex = owner.futex?;
        let within = |lock: &u64| *lock != 0 && (*lock..lock.saturating_add(SIZE)).contains(&futex);
        if within(&self.lock) {
            return Some(self.lock);
        }
        // Since 3.12 an interpreter may have a lock of its own.
        let GilAt::Interpreter(at) = self.layout.interpreter.gil.at else { return None };
        let interpreters = &self.threads.interpreters;
        let others = interpreters.iter().filter(|_| interpreters.len() > 1);
        others
            .filter_map(|one| self.memory.read_u64(one.address.wrapping_add(at)))
            .find(|lock| within(lock))
    }

    /// Returns the frame that stands for a wait for the lock, if the thread is in one.
    pub(super) fn waits_for_lock(&self, owner: StackOwner) -> Option<RawFrame> {
        self.lock_waited_for(owner)?;
        Some(self.names.frame(vec![Location::named(WAITS_FOR_GIL, FrameKind::Marker)]))
    }

    /// Returns whether the thread with the state of this index holds the lock of its interpreter.
    pub(super) fn holds_lock(&self, state: usize) -> bool {
        let gil = self.layout.interpreter.gil;
        let state = &self.threads.states[state];
        let lock = match gil.at {
            GilAt::Interpreter(at) if self.threads.interpreters.len() > 1 => {
                self.memory.read_u64(state.interpreter.wrapping_add(at)).unwrap_or(0)
            }
            _ => self.lock,
        };
        let mut head = [0; HEAD];
        self.lock != 0
            && lock != 0
            && self.memory.read_exact(lock, &mut head).is_some()
            && u32_at(&head, gil.locked as usize) == Some(1)
            && u64_at(&head, gil.holder as usize) == Some(state.address)
    }

    /// Returns who holds the lock that a thread waits for.
    pub(super) fn lock_blocker(&mut self, owner: StackOwner) -> Option<RawBlocker> {
        let lock = self.lock_waited_for(owner)?;
        let gil = self.layout.interpreter.gil;
        let mut head = [0; HEAD];
        self.memory.read_exact(lock, &mut head)?;
        let holder = match u32_at(&head, gil.locked as usize)? {
            0 => RawHolder::Free,
            _ => self.holder(u64_at(&head, gil.holder as usize)?),
        };
        Some(RawBlocker { kind: BlockerKind::Gil, object: lock, class: None, holder })
    }

    /// Returns the thread with this state, by its id in the process's own pid namespace.
    fn holder(&mut self, state: u64) -> RawHolder {
        let id = |this: &Self| {
            let found = this.threads.states.iter().find(|known| known.address == state)?;
            found.native_id
        };
        let found = id(self).or_else(|| {
            self.read_threads(false);
            id(self)
        });
        self.ids.holder(found)
    }
}
