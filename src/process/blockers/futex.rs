//! The object that a thread waits for in futex(2).

use super::rwlock::{Holders, Place, rwlock_holders};
use super::{BlockedThread, join, mutex, raw_blocker, rwlock};
use crate::model::projection::waits::{
    FUTEX_LOCK_PI, FUTEX_LOCK_PI2, FUTEX_WAIT, FUTEX_WAIT_BITSET,
};
use crate::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use crate::model::vocabulary::event::Syscall;

/// FUTEX_PRIVATE_FLAG, and the mask of the command (include/uapi/linux/futex.h). The other flag is
/// FUTEX_CLOCK_REALTIME.
const PRIVATE: u32 = 0x80;
const COMMAND: u32 = 0x7f;

/// The arguments of a futex(2) that waits.
struct FutexWait {
    address: u64,
    private: bool,
    /// The value that the word had.
    value: u32,
    has_timeout: bool,
}

/// Returns the glibc object around the futex word. Glibc's own calls differ by object:
///
/// | object | command | value |
/// |---|---|---|
/// | mutex, no time limit | FUTEX_WAIT | 2; robust: owner and waiters bit |
/// | mutex, with time limit | FUTEX_WAIT_BITSET | as above |
/// | mutex with priority inheritance | FUTEX_LOCK_PI, FUTEX_LOCK_PI2 | none |
/// | rwlock | FUTEX_WAIT_BITSET | 2, 3, or `__readers` |
/// | end of a thread | FUTEX_WAIT_BITSET, shared | the thread's id |
pub(super) fn blocker(thread: &BlockedThread<'_>, call: &Syscall) -> Option<RawBlocker> {
    let [address, operation, value, timeout, ..] = call.args;
    let (operation, value) = (operation as u32, value as u32);
    let wait =
        FutexWait { address, private: operation & PRIVATE != 0, value, has_timeout: timeout != 0 };
    match operation & COMMAND {
        FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => pi_mutex_blocker(thread, &wait),
        FUTEX_WAIT if mutex::may_wait_for(value) => mutex_blocker(thread, &wait),
        FUTEX_WAIT_BITSET => {
            let joined = if wait.private { None } else { join::blocker(thread, address, value) };
            joined.or_else(|| lock_blocker(thread, &wait))
        }
        _ => None,
    }
}

fn mutex_blocker(thread: &BlockedThread<'_>, wait: &FutexWait) -> Option<RawBlocker> {
    let mut bytes = [0; mutex::SIZE];
    thread.memory.read_exact(wait.address, &mut bytes)?;
    mutex_of(thread, wait, &bytes)
}

fn mutex_of(
    thread: &BlockedThread<'_>,
    wait: &FutexWait,
    bytes: &[u8; mutex::SIZE],
) -> Option<RawBlocker> {
    let owner = mutex::mutex_owner(bytes, wait.value)?;
    if mutex::waits_privately(bytes) != wait.private {
        return None;
    }
    let holder = if mutex::is_process_shared(bytes) {
        thread.holder_in_any_process(owner, wait.address, bytes)
    } else {
        thread.thread_numbered(owner)?
    };
    Some(raw_blocker(BlockerKind::Mutex, wait.address, holder))
}

/// The kernel itself reads the owner's id in the word of a mutex with priority inheritance.
fn pi_mutex_blocker(thread: &BlockedThread<'_>, wait: &FutexWait) -> Option<RawBlocker> {
    let mut bytes = [0; mutex::SIZE];
    thread.memory.read_exact(wait.address, &mut bytes)?;
    let owner = mutex::pi_owner(u32::from_le_bytes(*bytes.first_chunk()?))?;
    let holder = if wait.private {
        thread.thread_numbered(owner)?
    } else {
        thread.holder_in_any_process(owner, wait.address, &bytes)
    };
    Some(raw_blocker(BlockerKind::Mutex, wait.address, holder))
}

/// Tells mutexes and rwlocks apart in one read of the memory around the word. No bytes fit two of
/// them, because of the rwlock's padding, which is zero. Where it is, a mutex on the rwlock's
/// `__wrphase_futex` has its owner, and an rwlock 4 bytes before has its `__writers_futex`; neither
/// is zero.
fn lock_blocker(thread: &BlockedThread<'_>, wait: &FutexWait) -> Option<RawBlocker> {
    // Without a time limit, glibc waits for a mutex by FUTEX_WAIT. Mutexes of Rust do not.
    let maybe_mutex = wait.has_timeout && mutex::may_wait_for(wait.value);
    let places = Place::of_value(wait.value);
    let (Some(first), Some(last)) = (places.first(), places.last()) else {
        return if maybe_mutex { mutex_blocker(thread, wait) } else { None };
    };
    // Every candidate, from the farthest start before the word to the farthest end behind it.
    let before = last.offset();
    let length = before - first.offset() + rwlock::SIZE;
    let mut bytes = [0; 2 * rwlock::SIZE];
    let bytes = bytes.get_mut(..length)?;
    let start = wait.address.checked_sub(before as u64)?;
    let readable = thread.memory.read(start, bytes);
    let bytes = bytes.get(..readable)?;
    let found = places.iter().find_map(|place| {
        match bytes.get(before - place.offset()..).and_then(<[u8]>::first_chunk) {
            Some(rwlock) => rwlock_of(thread, wait, *place, rwlock),
            // The lock lies at the edge of readable memory.
            None => rwlock_alone(thread, wait, *place),
        }
    });
    if found.is_some() || !maybe_mutex {
        return found;
    }
    match bytes.get(before..).and_then(<[u8]>::first_chunk) {
        Some(mutex) => mutex_of(thread, wait, mutex),
        None => mutex_blocker(thread, wait),
    }
}

fn rwlock_alone(thread: &BlockedThread<'_>, wait: &FutexWait, place: Place) -> Option<RawBlocker> {
    let start = wait.address.checked_sub(place.offset() as u64)?;
    let mut bytes = [0; rwlock::SIZE];
    thread.memory.read_exact(start, &mut bytes)?;
    rwlock_of(thread, wait, place, &bytes)
}

fn rwlock_of(
    thread: &BlockedThread<'_>,
    wait: &FutexWait,
    place: Place,
    bytes: &[u8; rwlock::SIZE],
) -> Option<RawBlocker> {
    let start = wait.address.checked_sub(place.offset() as u64)?;
    let holder = match rwlock_holders(bytes, place, wait.value, wait.private)? {
        Holders::Readers(count) => RawHolder::Readers(count),
        Holders::Writer(writer) if wait.private => thread.thread_numbered(writer)?,
        Holders::Writer(writer) => thread.holder_in_any_process(writer, start, bytes),
    };
    Some(raw_blocker(BlockerKind::RwLock, start, holder))
}
