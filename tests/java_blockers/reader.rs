//! What each blocked thread of a virtual machine waits for, read from outside.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sampletop::model::vocabulary::blocker::RawBlocker;
use sampletop::model::vocabulary::frame::Ns;
use sampletop::process::maps::Maps;
use sampletop::process::memory::{Memory, ReadMemory};
use sampletop::process::threads::{Doing, Tasks};
use sampletop::runtimes::frame_and_thread_names::Names;
use sampletop::runtimes::jvm::{self, Jvm};
use sampletop::unwinder::Generated;
use sampletop::unwinder::interpreted::StackOwner;

use crate::recording::{PIECE, Piece};

/// Counts the calls that read memory, and records what is read.
#[derive(Clone)]
pub struct Counted(Arc<Memory>, Arc<AtomicU32>, Option<Arc<Mutex<BTreeMap<u64, Piece>>>>);

impl Counted {
    /// Keeps the words that were read. What stands between them is of no use, and packs badly.
    fn keep(&self, address: u64, length: usize) {
        let Some(pieces) = &self.2 else { return };
        let mut pieces = pieces.lock().expect("no panic");
        for at in (address & !7..address + length as u64).step_by(8) {
            if let Some(word) = self.0.read_u64(at) {
                let piece = pieces.entry(at - at % PIECE).or_insert([0; PIECE as usize]);
                piece[(at % PIECE) as usize..][..8].copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

impl ReadMemory for Counted {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        self.1.fetch_add(1, Ordering::Relaxed);
        let read = self.0.read(address, buf);
        self.keep(address, read);
        read
    }

    fn read_pieces(&self, pieces: &[(u64, usize)], buf: &mut [u8]) -> Option<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_pieces(pieces, buf)?;
        pieces.iter().for_each(|(address, length)| self.keep(*address, *length));
        Some(())
    }
}

/// How often a thread is observed until it stands still, which all do but for moments.
pub const OBSERVATIONS: usize = 500;

/// What a blocked thread waits for, and what it took to find that.
#[derive(Clone, Copy)]
pub struct Found {
    pub sp: u64,
    pub blocker: Option<RawBlocker>,
    pub us: f64,
    pub calls: u32,
}

pub struct Reader {
    pub jvm: Jvm<Counted>,
    pub calls: Arc<AtomicU32>,
    pub names: Names,
    pub tasks: Tasks,
}

impl Reader {
    pub fn attach(pid: u32) -> Reader {
        Reader::attach_and_record(pid, None)
    }

    pub fn attach_and_record(pid: u32, pieces: Option<Arc<Mutex<BTreeMap<u64, Piece>>>>) -> Reader {
        let maps = Maps::read(pid).expect("it runs");
        let image = jvm::library(&maps).expect("a virtual machine");
        let names = Names::default();
        let calls = Arc::new(AtomicU32::new(0));
        let memory = Counted(Arc::new(Memory::new(pid)), calls.clone(), pieces);
        let jvm = Jvm::attach(memory, image, names.clone())
            .unwrap_or_else(|missing| panic!("{missing:?}"))
            .in_process(pid);
        Reader { jvm, calls, names, tasks: Tasks::open(pid, 1000).expect("ours") }
    }

    /// Returns what each blocked thread waits for. A thread that has run meanwhile is observed
    /// again, at most this number of times: one of those that enter a monitor wakes up now and
    /// then. Others are missing.
    pub fn blockers(&mut self, observations: usize) -> BTreeMap<u32, Found> {
        let mut tids = Vec::new();
        self.tasks.list(&mut tids).expect("it runs");
        let mut found = BTreeMap::new();
        for tid in tids.iter().flat_map(|tid| std::iter::repeat_n(*tid, observations)) {
            if found.contains_key(&tid) {
                continue;
            }
            let mut files = self.tasks.thread(tid);
            let Ok(ran) = self.tasks.counters(&mut files).map(|counters| counters.runs) else {
                continue;
            };
            let Ok(Doing::Blocked { sp, .. }) = self.tasks.doing(&mut files) else {
                if observations > 1 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                continue;
            };
            self.jvm.begin(Ns::MAX, false);
            let (calls, before) = (self.calls.load(Ordering::Relaxed), Instant::now());
            let blocker = self.jvm.blocker(StackOwner { sp, ..StackOwner::default() });
            let us = before.elapsed().as_nanos() as f64 / 1e3;
            let calls = self.calls.load(Ordering::Relaxed) - calls;
            if self.tasks.counters(&mut files).is_ok_and(|counters| counters.runs == ran) {
                found.insert(tid, Found { sp, blocker, us, calls });
            } else if observations > 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        found
    }
}
