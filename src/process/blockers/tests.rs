use super::*;

/// Where the made-up memory begins.
const BASE: u64 = 0x7000_0000_0000;
/// Live threads: id in the process's PID namespace, and ours.
const LIVE: [(u32, u32); 4] = [(1, 1001), (2, 1002), (3, 1003), (77, 1077)];
const PID: u32 = 1001;

/// Memory from [`BASE`] on.
struct Bytes(Vec<u8>);

impl Bytes {
    fn of(words: &[u32]) -> Bytes {
        Bytes(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }
}

impl ReadMemory for Bytes {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let Some(start) = address.checked_sub(BASE).and_then(|start| usize::try_from(start).ok())
        else {
            return 0;
        };
        let Some(bytes) = self.0.get(start..) else { return 0 };
        let length = bytes.len().min(buf.len());
        buf[..length].copy_from_slice(&bytes[..length]);
        length
    }
}

const TIMED: u64 = 1;
const WAIT: u64 = 0;
const WAIT_BITSET: u64 = 9;
const PRIVATE: u64 = 0x80;

fn futex(at: u64, operation: u64, value: u32, timeout: u64) -> Syscall {
    Syscall { number: 202, args: [BASE + at, operation, value.into(), timeout, 0, u32::MAX.into()] }
}

/// As seen by the thread 1077.
fn observe(memory: &dyn ReadMemory, call: &Syscall) -> Option<RawBlocker> {
    let thread_id =
        |number| LIVE.iter().find(|(inner, _)| *inner == number).map(|(_, outer)| *outer);
    native_blocker(&BlockedThread { pid: PID, tid: 1077, memory, thread_id: &thread_id }, call)
}

fn held(kind: BlockerKind, at: u64, tid: u32) -> Option<RawBlocker> {
    Some(raw_blocker(kind, BASE + at, RawHolder::Thread { pid: PID, tid }))
}

#[test]
fn a_mutex_by_each_call_that_locks() {
    let plain = Bytes::of(&[2, 0, 3, 1, 0]);
    let owned = held(BlockerKind::Mutex, 0, 1003);
    assert_eq!(observe(&plain, &futex(0, WAIT | PRIVATE, 2, 0)), owned);
    assert_eq!(observe(&plain, &futex(0, WAIT_BITSET | PRIVATE, 2, TIMED)), owned);
    assert_eq!(observe(&plain, &futex(0, WAIT_BITSET | 0x100 | PRIVATE, 2, TIMED)), owned);
    for (what, call) in [
        ("no time limit", futex(0, WAIT_BITSET | PRIVATE, 2, 0)),
        ("not private", futex(0, WAIT, 2, 0)),
        ("another value", futex(0, WAIT | PRIVATE, 1, 0)),
        ("wakes", futex(0, 1 | PRIVATE, 2, 0)),
        ("beyond the end", futex(4, WAIT | PRIVATE, 2, 0)),
        ("no memory", futex(1 << 40, WAIT | PRIVATE, 2, 0)),
        ("another call", Syscall { number: 455, ..futex(0, WAIT | PRIVATE, 2, 0) }),
    ] {
        assert_eq!(observe(&plain, &call), None, "{what}");
    }
    let by = |owner| Bytes::of(&[2, 0, owner, 1, 0]);
    assert_eq!(observe(&by(4), &futex(0, WAIT | PRIVATE, 2, 0)), None, "no live thread");
    assert_eq!(
        observe(&by(77), &futex(0, WAIT | PRIVATE, 2, 0)),
        held(BlockerKind::Mutex, 0, 1077),
        "locked twice by one thread"
    );
}

#[test]
fn mutexes_that_are_robust_shared_or_inherit_priority() {
    let value = 0x8000_0003;
    let robust = Bytes::of(&[value, 1, 3, 1, 0x10]);
    let owned = held(BlockerKind::Mutex, 0, 1003);
    assert_eq!(observe(&robust, &futex(0, WAIT, value, 0)), owned);
    assert_eq!(observe(&robust, &futex(0, WAIT_BITSET, value, TIMED)), owned);
    assert_eq!(observe(&robust, &futex(0, WAIT | PRIVATE, value, 0)), None);
    for lock in [6, 13] {
        let inheriting = Bytes::of(&[value, 0, 3, 1, 0x20]);
        assert_eq!(observe(&inheriting, &futex(0, lock | PRIVATE, 0, 0)), owned);
        let unknown = Bytes::of(&[0x8000_0004, 0, 4, 1, 0x20]);
        assert_eq!(observe(&unknown, &futex(0, lock | PRIVATE, 0, 0)), None);
        let shared = Some(raw_blocker(BlockerKind::Mutex, BASE, RawHolder::Unknown));
        assert_eq!(observe(&unknown, &futex(0, lock, 0, 0)), shared);
        assert_eq!(observe(&Bytes::of(&[0; 5]), &futex(0, lock, 0, 0)), None);
    }
    let shared = Bytes::of(&[2, 0, 3, 1, 0x80]);
    assert_eq!(observe(&shared, &futex(0, WAIT, 2, 0)), owned);
    assert_eq!(observe(&shared, &futex(0, WAIT | PRIVATE, 2, 0)), None);
    let elsewhere = Bytes::of(&[2, 0, 4, 1, 0x80]);
    assert_eq!(
        observe(&elsewhere, &futex(0, WAIT, 2, 0)),
        Some(raw_blocker(BlockerKind::Mutex, BASE, RawHolder::Unknown)),
        "owned in another process"
    );
}

/// The words of a lock held by `writer` or by readers.
fn rwlock(readers: u32, phase: u32, writers_word: u32, writer: u32) -> [u32; 13] {
    [readers, 0, phase, writers_word, 0, 0, writer, 0, 0, 0, 0, 0, 0]
}

#[test]
fn rwlocks_wherever_they_lie() {
    let bitset = WAIT_BITSET | PRIVATE;
    for before in [0, 1, 3, 40] {
        for behind in [0, 2, 40] {
            let place = |words: [u32; 13]| {
                Bytes::of(&[&vec![0; before][..], &words, &vec![0; behind]].concat())
            };
            let at = 4 * before as u64;
            let written = place(rwlock(8 | 3, 3, 3, 2));
            let owned = held(BlockerKind::RwLock, at, 1002);
            assert_eq!(observe(&written, &futex(at + 8, bitset, 3, 0)), owned);
            assert_eq!(observe(&written, &futex(at + 12, bitset, 3, TIMED)), owned);
            assert_eq!(observe(&written, &futex(at + 12, WAIT | PRIVATE, 3, 0)), None);
            let read = place(rwlock(24 | 2, 2, 3, 0));
            let readers = Some(raw_blocker(BlockerKind::RwLock, BASE + at, RawHolder::Readers(3)));
            for timeout in [0, TIMED] {
                assert_eq!(observe(&read, &futex(at + 8, bitset, 2, timeout)), readers);
                assert_eq!(observe(&read, &futex(at + 12, bitset, 3, timeout)), readers);
            }
            let mut behind = rwlock(24 | 6, 2, 1, 0);
            behind[12] = 2;
            assert_eq!(observe(&place(behind), &futex(at, bitset, 24 | 6, 0)), readers);
            let ended = place(rwlock(8 | 3, 3, 3, 4));
            assert_eq!(observe(&ended, &futex(at + 8, bitset, 3, 0)), None, "no live thread");
        }
    }
}

#[test]
fn a_timed_mutex_at_the_start_of_its_page() {
    let mutex = Bytes::of(&[2, 0, 3, 1, 0]);
    let call = futex(0, WAIT_BITSET | PRIVATE, 2, TIMED);
    assert_eq!(observe(&mutex, &call), held(BlockerKind::Mutex, 0, 1003));
}

#[test]
fn a_timed_mutex_is_no_rwlock() {
    // All but the padding, where the mutex has its owner, is that of a lock that readers hold.
    let mut words = rwlock(8 | 2, 2, 1, 0);
    let call = futex(8, WAIT_BITSET | PRIVATE, 2, TIMED);
    assert!(observe(&Bytes::of(&words), &call).is_some_and(|b| b.kind == BlockerKind::RwLock));
    words[4..7].copy_from_slice(&[3, 1, 0]);
    assert_eq!(observe(&Bytes::of(&words), &call), None, "counted, and not recursive");
    words[6] = 1;
    assert_eq!(observe(&Bytes::of(&words), &call), held(BlockerKind::Mutex, 8, 1003));
    words[3] = 0;
    words[6] = 0;
    assert_eq!(observe(&Bytes::of(&words), &call), held(BlockerKind::Mutex, 8, 1003));
}

/// A thread's descriptor, in words: its own address in it, and its id.
fn descriptor(own: u64, tid: u32) -> Vec<u32> {
    let mut words = vec![0; 200];
    (words[4], words[5]) = (own as u32, (own >> 32) as u32);
    words[0x2d0 / 4] = tid;
    words
}

#[test]
fn the_end_of_a_thread() {
    let joined = futex(0x2d0, WAIT_BITSET | 0x100, 3, 0);
    let memory = |own, tid| Bytes::of(&descriptor(own, tid));
    assert_eq!(observe(&memory(BASE, 3), &joined), held(BlockerKind::ThreadEnd, 0x2d0, 1003));
    assert_eq!(
        observe(&memory(BASE, 3), &Syscall { args: [BASE + 0x2d0, 9, 3, 1, 0, 0], ..joined }),
        held(BlockerKind::ThreadEnd, 0x2d0, 1003),
        "with a time limit"
    );
    assert_eq!(observe(&memory(BASE + 8, 3), &joined), None, "no descriptor");
    assert_eq!(observe(&memory(BASE, 0), &joined), None, "it has ended");
    assert_eq!(observe(&memory(BASE, 4), &futex(0x2d0, WAIT_BITSET, 4, 0)), None, "no thread");
    assert_eq!(observe(&memory(BASE, 77), &futex(0x2d0, WAIT_BITSET, 77, 0)), None, "itself");
    let private = futex(0x2d0, WAIT_BITSET | PRIVATE, 3, 0);
    assert_eq!(observe(&memory(BASE, 3), &private), None);
    assert_eq!(observe(&memory(BASE, 3), &futex(0x2d0, WAIT, 3, 0)), None);
    let low = Syscall { args: [8, 9, 3, 0, 0, 0], ..joined };
    assert_eq!(observe(&memory(BASE, 3), &low), None);
}

/// Words from the one that is waited for, with the call; what lies before it is zero.
#[test]
fn other_objects_have_no_holder() {
    let bitset = WAIT_BITSET | PRIVATE;
    let wait = WAIT | PRIVATE;
    for (what, words, operation, value) in [
        // std::sync::Mutex: the word, whether poisoned, data.
        ("Rust's Mutex", [2, 0, 3, 1, 0, 0, 0, 0], bitset, 2),
        ("Rust's Mutex, poisoned", [2, 1, 1, 1, 1, 0, 0, 0], bitset, 2),
        ("Rust's RwLock", [0x8000_0000 | 1, 0, 0, 0, 0, 0, 0, 0], bitset, 0x8000_0001),
        ("Rust's RwLock, a writer", [3, 0, 0, 0, 0, 0, 0, 0], bitset, 3),
        ("Rust's Condvar", [14, 0, 0, 0, 0, 0, 0, 0], bitset, 14),
        ("Rust's Parker", [u32::MAX, 0, 0, 0, 0, 0, 0, 0], bitset, u32::MAX),
        // runtime.mutex: the key, and pointers behind it.
        ("Go's mutex", [2, 0, 0xc000_0000, 0xc0, 0, 0, 0, 0], wait, 2),
        ("Go's note", [0; 8], wait, 0),
        ("a semaphore", [0, 1, 0, 0, 0, 0, 0, 0], bitset, 0),
        // Two groups of signals, and a locked mutex behind the condition.
        ("a condition", [0, 0, 1, 0, 3, 1, 0, 0], bitset, 0),
        ("a condition of glibc 2.41", [2, 0, 1, 0, 3, 1, 0, 0], bitset, 2),
        ("a condition of glibc 2.41", [3, 2, 1, 0, 3, 1, 0, 0], bitset, 3),
        // current_round, count, shared, out.
        ("a barrier", [2, 3, 0, 4, 0, 0, 0, 0], wait, 2),
        ("a shared barrier", [2, 3, 128, 4, 0, 0, 0, 0], WAIT, 2),
        ("pthread_once", [1, 0, 0, 0, 0, 0, 0, 0], wait, 1),
        ("parking_lot", [1, 0, 3, 1, 0, 0, 0, 0], wait, 1),
        // The stream's lock, its depth, its owner's address.
        ("a stream", [2, 1, 0xf7d8_e740, 0x7fff, 0, 0, 0, 0], wait, 2),
    ] {
        let bytes = Bytes::of(&[&[0; 16][..], &words, &[0; 16]].concat());
        assert_eq!(observe(&bytes, &futex(64, operation, value, 0)), None, "{what}");
        if operation != bitset || words[2] != 3 && words[2] != 1 {
            assert_eq!(observe(&bytes, &futex(64, operation, value, TIMED)), None, "{what}");
        }
    }
}

#[test]
fn children_and_calls_without_a_blocker() {
    let memory = Bytes::of(&[]);
    let call =
        |number, args: [u64; 3]| Syscall { number, args: [args[0], args[1], args[2], 0, 0, 0] };
    let child = |pid| Some(raw_blocker(BlockerKind::Child, pid, RawHolder::Unknown));
    assert_eq!(observe(&memory, &call(61, [4711, 0, 0])), child(4711));
    assert_eq!(observe(&memory, &call(61, [u32::MAX.into(), 0, 0])), child(0));
    assert_eq!(observe(&memory, &call(61, [0xffff_ff00, 0, 0])), child(0), "of a group");
    assert_eq!(observe(&memory, &call(247, [1, 4711, 0])), child(4711));
    assert_eq!(observe(&memory, &call(247, [0, 4711, 0])), child(0));
    assert_eq!(observe(&memory, &call(247, [3, 5, 0])), child(0), "of a descriptor");
    for number in [-1, 0, 35, 230, 232, 449, 9999] {
        assert_eq!(observe(&memory, &call(number, [1, 2, 3])), None);
    }
    // fcntl that waits for no lock, and a process that is not there.
    assert_eq!(observe(&memory, &call(72, [0, 3, 0])), None);
    let thread =
        BlockedThread { pid: 1 << 23, tid: 1 << 23, memory: &memory, thread_id: &|_| None };
    assert_eq!(native_blocker(&thread, &call(73, [0, 2, 0])), None);
}

/// Where ids are shared, the child is the holder if it lives.
#[test]
fn a_child_in_our_namespace() {
    let own = std::process::id();
    let memory = Bytes::of(&[]);
    let thread = BlockedThread { pid: 5, tid: 5, memory: &memory, thread_id: &|id| Some(id) };
    let call = |pid: u32| Syscall { number: 61, args: [pid.into(), 0, 0, 0, 0, 0] };
    let found = native_blocker(&thread, &call(own)).expect("a child");
    assert_eq!(found.holder, RawHolder::Thread { pid: own, tid: own });
    let none = native_blocker(&thread, &call(1 << 23)).expect("a child");
    assert_eq!(none.holder, RawHolder::Unknown);
}

mod hostile {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is in memory, a holder is a live thread of the process.
        #[test]
        fn holders_are_live_threads(
            words in proptest::collection::vec(prop_oneof![0u32..5, Just(77), Just(0x8000_0003), any::<u32>()], 0..60),
            at in 0u64..240, operation in prop_oneof![Just(0x80u64), Just(0x89), Just(0x86), 0u64..512],
            value in prop_oneof![0u32..20, Just(0x8000_0003), any::<u32>()], timeout in 0u64..2,
        ) {
            if let Some(found) = observe(&Bytes::of(&words), &futex(at, operation, value, timeout)) {
                match found.holder {
                    RawHolder::Thread { pid, tid } => {
                        prop_assert!(pid == PID && LIVE.iter().any(|(_, outer)| *outer == tid));
                    }
                    RawHolder::Readers(count) => prop_assert!(count > 0),
                    _ => prop_assert_eq!(found.kind, BlockerKind::Mutex),
                }
            }
        }

        #[test]
        fn any_address_is_safe(address in any::<u64>(), operation in any::<u64>(), value in any::<u64>()) {
            let args = [address, operation, value, 0, 0, 0];
            observe(&Bytes::of(&[0; 60]), &Syscall { number: 202, args });
        }
    }
}
