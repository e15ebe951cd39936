//! The owner of a mutex of glibc (`pthread_mutex_t`), from the mutex's own memory.

/// Bytes of the mutex that are read: `__lock`, `__count`, `__owner`, `__nusers`, `__kind`, each 4
/// bytes (sysdeps/nptl/bits/struct_mutex.h, x86-64, glibc 2.3 to 2.42).
pub(super) const SIZE: usize = 20;

/// The bits of a futex word that hold a thread id, and the bit that says that a thread waits
/// (include/uapi/linux/futex.h).
const FUTEX_TID: u32 = 0x3fff_ffff;
const FUTEX_WAITERS: u32 = 0x8000_0000;
/// The value of a plain mutex's lock word: locked, and a thread waits.
const LOCKED_WITH_WAITERS: u32 = 2;

/// Bits of `__kind`: the type, and flags (sysdeps/nptl/pthreadP.h). Known are also priority
/// protection (0x40) and lock elision (0x100, 0x200).
const TYPE: u32 = 3;
const RECURSIVE: u32 = 1;
const ROBUST: u32 = 0x10;
const PRIORITY_INHERITED: u32 = 0x20;
const SHARED: u32 = 0x80;
const KNOWN: u32 = 0x3f3;

fn word(mutex: &[u8; SIZE], at: usize) -> u32 {
    u32::from_le_bytes([mutex[at], mutex[at + 1], mutex[at + 2], mutex[at + 3]])
}

fn kind(mutex: &[u8; SIZE]) -> u32 {
    word(mutex, 16)
}

/// Returns whether a thread may wait for a mutex with this value of its word by FUTEX_WAIT.
pub(super) fn may_wait_for(value: u32) -> bool {
    value == LOCKED_WITH_WAITERS || value & FUTEX_WAITERS != 0
}

/// Returns the owner of a mutex without priority inheritance on whose lock word a thread waits with
/// `value` in it. `None` where these bytes cannot be such a mutex.
pub(in crate::process) fn mutex_owner(mutex: &[u8; SIZE], value: u32) -> Option<u32> {
    let (lock, count, owner, users) =
        (word(mutex, 0), word(mutex, 4), word(mutex, 8), word(mutex, 12));
    let kind = kind(mutex);
    if kind & (!KNOWN | PRIORITY_INHERITED) != 0
        || users == 0
        || owner == 0
        || owner & !FUTEX_TID != 0
    {
        return None;
    }
    let waited = if kind & ROBUST != 0 {
        // The lock word contains the owner too.
        lock & FUTEX_WAITERS != 0 && lock & FUTEX_TID == owner
    } else {
        // Only a recursive mutex counts how often it is locked.
        lock == LOCKED_WITH_WAITERS && (count != 0) == (kind & TYPE == RECURSIVE)
    };
    (waited && lock == value).then_some(owner)
}

/// Returns the owner of a mutex with priority inheritance (FUTEX_LOCK_PI): the kernel keeps it in
/// the word.
pub(in crate::process) fn pi_owner(word: u32) -> Option<u32> {
    Some(word & FUTEX_TID).filter(|owner| *owner != 0)
}

/// Returns whether threads of several processes may own the mutex.
pub(super) fn is_process_shared(mutex: &[u8; SIZE]) -> bool {
    kind(mutex) & SHARED != 0
}

/// Returns whether threads wait for this mutex by a private futex. A robust one is always shared:
/// the kernel wakes a waiter when the owner ends.
pub(super) fn waits_privately(mutex: &[u8; SIZE]) -> bool {
    kind(mutex) & (SHARED | ROBUST) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutex(words: [u32; 5]) -> [u8; 20] {
        let mut bytes = [0; 20];
        for (at, word) in words.iter().enumerate() {
            bytes[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn the_owner_of_a_mutex_and_of_nothing_else() {
        // __lock, __count, __owner, __nusers, __kind.
        assert_eq!(mutex_owner(&mutex([2, 0, 4711, 1, 0]), 2), Some(4711));
        assert_eq!(mutex_owner(&mutex([2, 3, 4711, 1, 1]), 2), Some(4711), "recursive");
        assert_eq!(
            mutex_owner(&mutex([2, 0, 4711, 1, 0x80 | 2]), 2),
            Some(4711),
            "shared, error checking"
        );
        let robust = FUTEX_WAITERS | 4711;
        assert_eq!(mutex_owner(&mutex([robust, 0, 4711, 1, 0x10]), robust), Some(4711));
        for (what, words, value) in [
            ("free meanwhile", [0, 0, 4711, 1, 0], 2),
            ("taken, but no thread waits", [1, 0, 4711, 1, 0], 2),
            ("its owner is not written yet", [2, 0, 0, 1, 0], 2),
            ("unused", [2, 0, 4711, 0, 0], 2),
            ("no kind of mutex", [2, 0, 4711, 1, 0x400], 2),
            ("owned by priority", [2, 0, 4711, 1, 0x20], 2),
            ("no type of mutex", [2, 0, 4711, 1, 4], 2),
            ("no thread id", [2, 0, 0xffff_ffff, 1, 0], 2),
            ("its count is that of a recursive one", [2, 1, 4711, 1, 0], 2),
            ("recursive, and not counted", [2, 0, 4711, 1, 1], 2),
            ("waited on for another value", [2, 0, 4711, 1, 0], 1),
            ("robust, and its words differ", [robust, 0, 4712, 1, 0x10], robust),
            ("robust, and no thread waits", [4711, 0, 4711, 1, 0x10], 4711),
        ] {
            assert_eq!(mutex_owner(&mutex(words), value), None, "{what}");
        }
    }
}
