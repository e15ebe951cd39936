//! What a thread waits for in futex(2), by memory that may hold anything, and /proc/locks. Input:
//! offset of the futex word in memory, operation, value, timeout; memory, or the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::model::vocabulary::blocker::{BlockerKind, RawHolder};
use sampletop::model::vocabulary::event::Syscall;
use sampletop::process::blockers::{
    BlockedThread, LockClass, LockWait, holder_in, native_blocker, parse_locks,
};
use sampletop::process::memory::ReadMemory;
use sampletop_fuzz::{Input, within};

const BASE: u64 = 0x7000_0000_0000;
/// The waiting thread, by its own PID namespace, and the others.
const WAITER: u32 = 7;
const LIVE: std::ops::RangeInclusive<u32> = 1..=WAITER;
/// What ids outside of that namespace have more.
const OUTSIDE: u32 = 1000;

struct Bytes<'a>(&'a [u8]);

impl ReadMemory for Bytes<'_> {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let start = address.checked_sub(BASE).and_then(|start| usize::try_from(start).ok());
        let bytes = start.and_then(|start| self.0.get(start..)).unwrap_or_default();
        let length = bytes.len().min(buf.len());
        buf[..length].copy_from_slice(&bytes[..length]);
        length
    }
}

fuzz_target!(|data: &[u8]| {
    within(200, || {
        locks(data);
        futex(Input(data));
    });
});

fn futex(mut input: Input<'_>) {
    let at = BASE + u64::from(input.u16());
    let args = [at, input.u16().into(), input.u64(), input.u8().into(), 0, 0];
    let memory = Bytes(input.0);
    let thread_id = |number: u32| LIVE.contains(&number).then(|| number + OUTSIDE);
    let thread = BlockedThread {
        pid: 1 + OUTSIDE,
        tid: WAITER + OUTSIDE,
        memory: &memory,
        thread_id: &thread_id,
    };
    let Some(found) = native_blocker(&thread, &Syscall { number: 202, args }) else { return };
    // The object is the word's, or that of a lock that begins before it.
    assert!((at - 12..=at).contains(&found.object));
    match found.holder {
        RawHolder::Thread { pid, tid } => {
            assert_eq!(pid, 1 + OUTSIDE);
            assert!(LIVE.contains(&(tid - OUTSIDE)));
            assert!(found.kind != BlockerKind::ThreadEnd || tid != WAITER + OUTSIDE);
        }
        RawHolder::Readers(count) => {
            assert!(found.kind == BlockerKind::RwLock && count > 0);
        }
        // Its owner may be in another process.
        RawHolder::Unknown => assert_eq!(args[1] & 0x80, 0),
        RawHolder::Free | RawHolder::Unmounted => panic!("{found:?}"),
    }
}

fn locks(text: &[u8]) {
    let waits = parse_locks(text);
    assert!(waits.len() <= text.iter().filter(|b| **b == b'\n').count());
    // They are the same when written again.
    let written: String = waits
        .iter()
        .enumerate()
        .map(|(number, wait)| {
            let class = match wait.class {
                LockClass::Flock => "FLOCK ",
                LockClass::Posix => "POSIX ",
                LockClass::Ofd => "OFDLCK",
            };
            let pid = |pid: Option<u32>| pid.map_or("-1".into(), |pid| pid.to_string());
            let rest = format!("fe:00:{} 0 EOF\n", wait.inode);
            let (holder, waiter) = (pid(wait.holder), pid(wait.waiter));
            format!(
                "{number}: POSIX  ADVISORY  WRITE {holder} {rest}\
                 {number}: -> {class} ADVISORY  WRITE {waiter} {rest}"
            )
        })
        .collect();
    assert_eq!(parse_locks(written.as_bytes()), waits);
    // Each is compared with all.
    for wait in waits.iter().take(100) {
        held(&waits, wait);
    }
}

/// Panics unless the holder is that of all such waits.
fn held(waits: &[LockWait], wait: &LockWait) {
    let pid = wait.waiter.unwrap_or(WAITER);
    let found = holder_in(waits, pid, wait.class, wait.inode);
    let is_such = |other: &&LockWait| {
        let is_process = wait.class == LockClass::Ofd || other.waiter == Some(pid);
        (other.class, other.inode) == (wait.class, wait.inode) && is_process
    };
    let mut holders: Vec<_> = waits.iter().filter(is_such).map(|other| other.holder).collect();
    holders.dedup();
    match holders[..] {
        [one] => assert_eq!(found, one),
        _ => assert_eq!(found, None),
    }
}
