//! /proc/locks, read by a thread of its own while threads wait for file locks: the sampler must not
//! wait for it.

use std::fs::File;
use std::io::Read;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::file_locks::{LOCKS_MAX, LockClass, LockWait, holder_in, parse_locks};
use super::is_leader;
use crate::clock;
use crate::model::vocabulary::blocker::RawHolder;
use crate::model::vocabulary::event::Syscall;
use crate::model::vocabulary::frame::Ns;

/// Interval between two reads. A read takes about 6 ms, for which all changes of file locks on the
/// host wait (kernel 6.18): 0.6 % of the time at most.
const EVERY: Duration = Duration::from_secs(1);
/// Number of reads after the last request. Waits that last are read at most every 8 s.
const READS: u32 = 10;

/// The newest table.
#[derive(Default)]
struct Table {
    /// When the read began.
    read_at: Ns,
    waits: Vec<LockWait>,
}

pub struct LockTable {
    requests: SyncSender<()>,
    newest: Arc<Mutex<Table>>,
}

impl LockTable {
    /// Starts the thread. It ends within a second after this is dropped.
    pub fn start() -> std::io::Result<LockTable> {
        let (requests, receiver) = sync_channel(1);
        let newest = Arc::new(Mutex::new(Table::default()));
        let table = Arc::clone(&newest);
        std::thread::Builder::new()
            .name("file-locks".into())
            .spawn(move || serve(&receiver, &table))?;
        Ok(LockTable { requests, newest })
    }

    /// Returns the process that holds the file lock for which a thread of `pid` has waited since
    /// `since`, as far as that was read; its leader stands for it. Has the table read for later
    /// questions. Does not block.
    pub fn holder(&self, pid: u32, call: &Syscall, inode: u64, since: Ns) -> RawHolder {
        // A full queue holds such a request already.
        let _ = self.requests.try_send(());
        match (LockClass::of(call), self.newest.try_lock()) {
            (Some(class), Ok(table)) => table.holder(pid, class, inode, since),
            _ => RawHolder::Unknown,
        }
    }
}

impl Table {
    fn holder(&self, pid: u32, class: LockClass, inode: u64, since: Ns) -> RawHolder {
        let waits = if self.read_at >= since { self.waits.as_slice() } else { &[] };
        match holder_in(waits, pid, class, inode) {
            Some(holder) => RawHolder::Thread { pid: holder, tid: holder },
            None => RawHolder::Unknown,
        }
    }
}

fn serve(requests: &Receiver<()>, table: &Mutex<Table>) {
    while requests.recv().is_ok() {
        let mut left = READS;
        while left > 0 {
            let new = read();
            *table.lock().unwrap_or_else(PoisonError::into_inner) = new;
            std::thread::sleep(EVERY);
            left = match requests.try_recv() {
                Ok(()) => READS,
                Err(TryRecvError::Empty) => left - 1,
                Err(TryRecvError::Disconnected) => return,
            };
        }
    }
}

fn read() -> Table {
    let read_at = clock::monotonic();
    let mut text = Vec::new();
    let file = File::open("/proc/locks");
    let waits = match file.and_then(|file| file.take(LOCKS_MAX).read_to_end(&mut text)) {
        Ok(_) => parse_locks(&text),
        Err(_) => Vec::new(),
    };
    let checked = |wait: LockWait| LockWait {
        // A process may end and leave its lock to a child that has the same open file.
        holder: wait.holder.filter(|holder| is_leader(*holder)),
        ..wait
    };
    Table { read_at, waits: waits.into_iter().map(checked).collect() }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn only_a_table_that_was_read_during_the_wait_says_who_holds_the_lock() {
        let wait = |waiter, holder| LockWait {
            class: LockClass::Flock,
            waiter: Some(waiter),
            holder: Some(holder),
            inode: 7,
        };
        let table = Table { read_at: 100, waits: vec![wait(5, 9), wait(6, 8)] };
        let held = |pid, since| table.holder(pid, LockClass::Flock, 7, since);
        assert_eq!(held(5, 100), RawHolder::Thread { pid: 9, tid: 9 });
        assert_eq!(held(6, 1), RawHolder::Thread { pid: 8, tid: 8 });
        assert_eq!(held(5, 101), RawHolder::Unknown);
        assert_eq!(held(4, 1), RawHolder::Unknown);
        assert_eq!(table.holder(5, LockClass::Posix, 7, 1), RawHolder::Unknown);
    }

    #[test]
    fn a_question_has_the_table_read_and_does_not_wait_for_it() {
        let table = LockTable::start().expect("a thread");
        let flock = Syscall { number: 73, args: [3, 2, 0, 0, 0, 0] };
        assert_eq!(table.holder(1, &flock, 1, 0), RawHolder::Unknown);
        let limit = Instant::now() + Duration::from_secs(60);
        while table.newest.lock().expect("no panic").read_at == 0 {
            assert!(Instant::now() < limit, "it is never read");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
