//! The end of another thread that `pthread_join` waits for.

use super::BlockedThread;
use crate::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};

/// Offset of `tid` in glibc's `struct pthread`: a header of 704 bytes and a list entry of 16
/// (nptl/descr.h, x86-64).
const TID: u64 = 0x2d0;
/// Offset of the descriptor's address in its header (`tcbhead_t.self`).
const SELF: usize = 0x10;

/// Recognises a wait for another thread's end by the futex word at `address`: it is `tid` in that
/// thread's descriptor. The kernel sets it to 0 when the thread ends, and wakes those that wait on
/// it as a shared futex.
pub(super) fn blocker(thread: &BlockedThread<'_>, address: u64, value: u32) -> Option<RawBlocker> {
    let holder = thread.thread_numbered(value)?;
    if holder == (RawHolder::Thread { pid: thread.pid, tid: thread.tid }) {
        return None;
    }
    let descriptor = address.checked_sub(TID)?;
    let mut bytes = [0; TID as usize + 4];
    thread.memory.read_exact(descriptor, &mut bytes)?;
    let own = u64::from_le_bytes(*bytes.get(SELF..)?.first_chunk()?);
    let tid = u32::from_le_bytes(*bytes.last_chunk()?);
    (own == descriptor && tid == value)
        .then(|| super::raw_blocker(BlockerKind::ThreadEnd, address, holder))
}
