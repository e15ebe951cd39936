//! The owner of a mutex that a thread waits for, from the mutex's own memory.

/// The bits of a futex word that hold a thread id, and the bit that says that a thread waits
/// (include/uapi/linux/futex.h).
pub(super) const FUTEX_TID: u32 = 0x3fff_ffff;
const FUTEX_WAITERS: u32 = 0x8000_0000;

/// Returns the owner of a glibc mutex on whose lock word a thread waits with `value` in it. Its
/// fields are `__lock`, `__count`, `__owner`, `__nusers`, `__kind`, each 4 bytes
/// (sysdeps/nptl/bits/struct_mutex.h, x86-64, glibc 2.3 to 2.42). `None` where these bytes cannot
/// be such a mutex.
pub(super) fn mutex_owner(mutex: &[u8; 20], value: u32) -> Option<u32> {
    let word =
        |at: usize| u32::from_le_bytes([mutex[at], mutex[at + 1], mutex[at + 2], mutex[at + 3]]);
    let (lock, owner, users, kind) = (word(0), word(8), word(12), word(16));
    // Mutex types, and the flags robust, priority, shared and elision.
    if kind & !0x3ff != 0 || users == 0 || owner == 0 || owner & !FUTEX_TID != 0 {
        return None;
    }
    let waited = if kind & 0x10 != 0 {
        // Robust: the lock word contains the owner too.
        lock & FUTEX_WAITERS != 0 && lock & FUTEX_TID == owner
    } else {
        // Locked, with a waiting thread.
        lock == 2
    };
    (waited && lock == value).then_some(owner)
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
            ("no thread id", [2, 0, 0xffff_ffff, 1, 0], 2),
            ("waited on for another value", [2, 0, 4711, 1, 0], 1),
            ("robust, and its words differ", [robust, 0, 4712, 1, 0x10], robust),
            ("robust, and no thread waits", [4711, 0, 4711, 1, 0x10], 4711),
        ] {
            assert_eq!(mutex_owner(&mutex(words), value), None, "{what}");
        }
    }
}
