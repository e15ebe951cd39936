//! Finds out what a blocked thread of a native program waits for and who holds it, from its system
//! call and one read of the process's memory. The layouts are those of glibc on x86-64; each was
//! tried on glibc 2.36.
//!
//! The sampler calls [`native_blocker`] in its tick: a futex costs one read of memory, a file lock
//! one file of /proc. What is read is the target's: any bytes may come, and they may change at any
//! time.
//!
//! The result is valid only if the thread did not run between the observation of its call and the
//! end of the read. The caller compares the thread's counters before and after.

mod child;
mod file_locks;
mod futex;
mod join;
mod lock_table;
mod mutex;
mod rwlock;

pub use file_locks::{LockClass, LockWait, file_lock_holder, holder_in, parse_locks};
pub use lock_table::LockTable;
pub(in crate::process) use mutex::{mutex_owner, pi_owner};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::model::projection::waits::{Object, read_call};
use crate::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use crate::model::vocabulary::event::Syscall;
use crate::process::memory::{Memory, ReadMemory};

/// A thread that was observed blocked, and how to read about it.
pub struct BlockedThread<'a> {
    /// Ids in sampletop's PID namespace.
    pub pid: u32,
    pub tid: u32,
    /// The memory of the process.
    pub memory: &'a dyn ReadMemory,
    /// Returns the id, in sampletop's PID namespace, of the live thread of this process that has
    /// the given id in the process's own PID namespace. Glibc stores ids of that namespace.
    pub thread_id: &'a dyn Fn(u32) -> Option<u32>,
}

impl BlockedThread<'_> {
    /// Returns the thread of this process that has the number in its own PID namespace.
    fn thread_numbered(&self, number: u32) -> Option<RawHolder> {
        let tid = (self.thread_id)(number)?;
        Some(RawHolder::Thread { pid: self.pid, tid })
    }

    /// Returns whether ids in the process's PID namespace are those in sampletop's.
    fn shares_our_ids(&self) -> bool {
        (self.thread_id)(self.tid) == Some(self.tid)
    }

    /// Returns the thread that holds an object in memory shared between processes. A thread of
    /// another process is proven only if it is the leader and its process has the same bytes at the
    /// same address, as processes have that were forked.
    fn holder_in_any_process(&self, number: u32, address: u64, object: &[u8]) -> RawHolder {
        if let Some(thread) = self.thread_numbered(number) {
            return thread;
        }
        if !self.shares_our_ids() || !is_leader(number) {
            return RawHolder::Unknown;
        }
        let mut bytes = [0; rwlock::SIZE];
        let same = bytes.get_mut(..object.len()).is_some_and(|bytes| {
            Memory::new(number).read_exact(address, bytes).is_some() && *bytes == *object
        });
        if same { RawHolder::Thread { pid: number, tid: number } } else { RawHolder::Unknown }
    }
}

/// Returns whether a process has this id in sampletop's PID namespace. A lookup in /proc would find
/// the ids of all threads; pidfd_open takes only those of processes.
fn is_leader(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| pidfd_open(pid, PidfdFlags::empty()).is_ok())
}

/// Returns what a blocked thread of a native program waits for, by its system call and the
/// process's memory. `None` for other calls, and for an object that is not proven. The caller
/// checks that the thread did not run meanwhile.
///
/// The holder of a file lock is [`RawHolder::Unknown`] here: see [`LockTable`].
///
/// Costs about 2 us for a futex, 5 us where another process may hold it, 7 us for a file lock, 2 us
/// for a child, and 10 ns for another call (kernel 6.18).
pub fn native_blocker(thread: &BlockedThread<'_>, call: &Syscall) -> Option<RawBlocker> {
    match (call.number, read_call(*call)?.1) {
        (202, Object::Futex { .. }) => futex::blocker(thread, call),
        (72 | 73, _) => file_locks::blocker(thread, call),
        (_, Object::Child(awaited)) => Some(child::blocker(thread, awaited)),
        _ => None,
    }
}

fn raw_blocker(kind: BlockerKind, object: u64, holder: RawHolder) -> RawBlocker {
    RawBlocker { kind, object, class: None, holder }
}

#[cfg(test)]
mod tests;
