//! Who holds a reader-writer lock of glibc (`pthread_rwlock_t`), from the lock's own memory.

/// Bytes of the lock up to the end of its last field, `__flags`
/// (sysdeps/x86/nptl/bits/struct_rwlock.h, x86-64).
pub(super) const SIZE: usize = 52;

/// Bits of `__readers` (nptl/pthread_rwlock_common.c): a writer may run, or runs; a writer has the
/// lock or waits for the readers; readers wait for that writer. The rest is the number of readers.
const WRITE_PHASE: u32 = 1;
const WRITE_LOCKED: u32 = 2;
const READERS_WAIT: u32 = 4;
const READER_SHIFT: u32 = 3;
/// The bit of a futex word of the lock that says that a thread waits. The other bit is its value.
const FUTEX_USED: u32 = 2;
/// Maximum number of readers or writers that is plausible: the kernel's limit of threads.
const COUNT_MAX: u32 = 1 << 22;
/// `__flags` of a lock that prefers writers, so that readers wait behind them.
const NONRECURSIVE: u32 = 2;

/// The word of the lock that a thread waits on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// `__readers`: a reader waits behind a writer, which waits for other readers.
    Readers,
    /// `__wrphase_futex`: a reader waits for the writer, or the first writer for the readers.
    WritePhase,
    /// `__writers_futex`: a writer waits for the first writer.
    Writers,
}

impl Place {
    /// Returns the word's offset in the lock.
    pub(super) fn offset(self) -> usize {
        match self {
            Place::Readers => 0,
            Place::WritePhase => 8,
            Place::Writers => 12,
        }
    }

    /// Returns the words for which a thread may wait with this value, by offset.
    pub(super) fn of_value(value: u32) -> &'static [Place] {
        match value {
            FUTEX_USED => &[Place::WritePhase],
            3 => &[Place::WritePhase, Place::Writers],
            _ if is_waiting_behind_writer(value) => &[Place::Readers],
            _ => &[],
        }
    }
}

/// Whether `__readers` says that readers have the lock, a writer waits for them, and more readers
/// wait behind it.
fn is_waiting_behind_writer(readers: u32) -> bool {
    readers & 7 == WRITE_LOCKED | READERS_WAIT
        && (1..=COUNT_MAX).contains(&(readers >> READER_SHIFT))
}

/// Who has the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holders {
    /// A thread id, in the PID namespace of the thread that wrote it.
    Writer(u32),
    /// This number of readers.
    Readers(u32),
}

/// Returns who holds the lock on whose word a thread waits with `value`. `None` where these bytes
/// are no such lock, or one that is being passed on.
pub(super) fn rwlock_holders(
    lock: &[u8; SIZE],
    waits_on: Place,
    value: u32,
    private: bool,
) -> Option<Holders> {
    let word = |at: usize| u32::from_le_bytes([lock[at], lock[at + 1], lock[at + 2], lock[at + 3]]);
    let (readers, writers, write_phase, writers_word) = (word(0), word(4), word(8), word(12));
    let (writer, shared, flags) = (word(24), word(28), word(48));
    let count = readers >> READER_SHIFT;
    // Padding and the fields of lock elision, which no version since 2.25 uses, are zero.
    let zeros = word(16) == 0 && word(20) == 0 && lock[32..48].iter().all(|byte| *byte == 0);
    let possible = zeros
        && shared == u32::from(!private)
        && flags <= NONRECURSIVE
        && count <= COUNT_MAX
        // Only a lock that prefers writers counts those that wait. Its top bit says that the lock
        // is being passed from writer to writer.
        && (if flags == 0 { writers == 0 } else { writers <= COUNT_MAX })
        && (readers & READERS_WAIT == 0 || flags == NONRECURSIVE)
        // A writer has the lock, or is the first to wait for the readers; others may wait for it.
        && readers & WRITE_LOCKED != 0
        && matches!(writers_word, 1 | 3);
    if !possible {
        return None;
    }
    let waits = match waits_on {
        Place::Readers => true,
        Place::WritePhase => write_phase == value,
        Place::Writers => writers_word == 3 && value == 3 && (flags == 0 || writers > 0),
    };
    if readers & WRITE_PHASE != 0 {
        // A writer has the lock; readers that wait are counted.
        let held = writer != 0 && writer <= COUNT_MAX && matches!(write_phase, 1 | 3);
        let waits = waits
            && match waits_on {
                Place::Readers => false,
                Place::WritePhase => value == 3 && count > 0,
                Place::Writers => true,
            };
        return (held && waits).then_some(Holders::Writer(writer));
    }
    let held = writer == 0 && count > 0 && matches!(write_phase, 0 | FUTEX_USED);
    let waits = waits
        && match waits_on {
            // The count may have fallen since the thread began to wait.
            Place::Readers => {
                flags == NONRECURSIVE
                    && is_waiting_behind_writer(readers)
                    && is_waiting_behind_writer(value)
            }
            Place::WritePhase => value == FUTEX_USED,
            Place::Writers => true,
        };
    (held && waits).then_some(Holders::Readers(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a lock at offsets 0, 4, 8, 12, 24, 28 and 48.
    pub fn lock(words: [u32; 7]) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        for (at, word) in [0, 4, 8, 12, 24, 28, 48].into_iter().zip(words) {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn who_holds_a_lock() {
        use Holders::{Readers, Writer};
        // __readers, __writers, __wrphase_futex, __writers_futex, __cur_writer, __shared, __flags.
        for (words, place, value, holders) in [
            ([8 | 3, 0, 3, 1, 4711, 0, 0], Place::WritePhase, 3, Writer(4711)),
            ([16 | 3, 0, 3, 3, 4711, 0, 0], Place::Writers, 3, Writer(4711)),
            ([3, 2, 1, 3, 4711, 0, 1], Place::Writers, 3, Writer(4711)),
            ([24 | 2, 0, 2, 1, 0, 0, 0], Place::WritePhase, 2, Readers(3)),
            ([24 | 2, 0, 2, 3, 0, 0, 0], Place::Writers, 3, Readers(3)),
            ([24 | 6, 1, 2, 3, 0, 0, 2], Place::Writers, 3, Readers(3)),
            ([24 | 6, 0, 2, 1, 0, 0, 2], Place::Readers, 24 | 6, Readers(3)),
            ([16 | 6, 0, 2, 1, 0, 0, 2], Place::Readers, 24 | 6, Readers(2)),
        ] {
            assert_eq!(
                rwlock_holders(&lock(words), place, value, true),
                Some(holders),
                "{words:?}"
            );
            assert_eq!(rwlock_holders(&lock(words), place, value, false), None, "not shared");
            let mut shared = words;
            shared[5] = 1;
            assert_eq!(rwlock_holders(&lock(shared), place, value, false), Some(holders));
            // Every bit that must not be set.
            for at in (16..24).chain(32..48) {
                let mut bytes = lock(words);
                bytes[at] = 1;
                assert_eq!(rwlock_holders(&bytes, place, value, true), None, "byte {at}");
            }
        }
    }

    #[test]
    fn what_is_no_lock_or_is_passed_on() {
        for (what, words, place, value) in [
            ("no writer", [8 | 1, 0, 3, 1, 4711, 0, 0], Place::WritePhase, 3),
            ("no id yet", [8 | 3, 0, 3, 1, 0, 0, 0], Place::WritePhase, 3),
            ("no thread's id", [8 | 3, 0, 3, 1, u32::MAX, 0, 0], Place::WritePhase, 3),
            ("no reader waits", [3, 0, 3, 1, 4711, 0, 0], Place::WritePhase, 3),
            ("the readers may go on", [8 | 3, 0, 0, 1, 4711, 0, 0], Place::WritePhase, 3),
            ("a first writer may go on", [8 | 3, 0, 3, 1, 4711, 0, 0], Place::WritePhase, 2),
            ("waits, and readers have it", [8 | 2, 0, 3, 1, 0, 0, 0], Place::WritePhase, 3),
            ("no readers are left", [2, 0, 2, 1, 0, 0, 0], Place::WritePhase, 2),
            ("readers, and a writer", [8 | 2, 0, 2, 1, 4711, 0, 0], Place::WritePhase, 2),
            ("its waiters are not counted", [3, 0, 1, 3, 4711, 0, 1], Place::Writers, 3),
            ("counts waiters that it does not", [3, 2, 1, 3, 4711, 0, 0], Place::Writers, 3),
            ("passed on", [3, 1 << 31 | 1, 1, 3, 4711, 0, 1], Place::Writers, 3),
            ("writers may go on", [3, 0, 1, 0, 4711, 0, 0], Place::Writers, 3),
            ("no thread waits", [3, 0, 1, 1, 4711, 0, 0], Place::Writers, 3),
            ("too many", [1 << 31 | 3, 0, 1, 3, 4711, 0, 0], Place::Writers, 3),
            ("a wrong kind", [3, 0, 1, 3, 4711, 0, 3], Place::Writers, 3),
            ("readers that do not wait", [24 | 2, 0, 2, 1, 0, 0, 2], Place::Readers, 24 | 6),
            ("readers of another kind", [24 | 6, 0, 2, 1, 0, 0, 1], Place::Readers, 24 | 6),
            ("another value", [24 | 6, 0, 2, 1, 0, 0, 2], Place::Readers, 24 | 2),
            ("a writer has it", [24 | 7, 0, 3, 1, 4711, 0, 2], Place::Readers, 24 | 6),
        ] {
            assert_eq!(rwlock_holders(&lock(words), place, value, true), None, "{what}");
        }
    }

    #[test]
    fn words_by_the_value_waited_with() {
        assert_eq!(Place::of_value(2), [Place::WritePhase]);
        assert_eq!(Place::of_value(3), [Place::WritePhase, Place::Writers]);
        assert_eq!(Place::of_value(8 | 6), [Place::Readers]);
        for none in [0, 1, 4, 5, 6, 7, 8, 8 | 2, 8 | 7, u32::MAX, 0x8000_0006] {
            assert_eq!(Place::of_value(none), [], "{none:#x}");
        }
    }
}
