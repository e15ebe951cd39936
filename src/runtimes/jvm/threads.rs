//! Java threads: which native thread each runs on, and its full name (the kernel keeps 15 bytes of it), and whether it is
//! a daemon.

use crate::model::frame::ThreadKind;
use crate::model::text::clean;
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::layout::ThreadList;
use crate::runtimes::jvm::{Jvm, NAME_MAX, limited};

/// Threads that are looked at.
const THREADS_MAX: u64 = 50_000;
/// Names that are read at a time; those that are known have their turns.
const NAMES_AT_ONCE: usize = 1_000;

/// Of so many turns one reads every name again, though nothing says that it has changed.
const TURNS: usize = 8;

/// Java threads that HotSpot has for itself, and what the names of its other threads begin with, as far as the kernel keeps them
/// (src/hotspot/share: `set_name` and `os::create_thread`). JDK 26 leaves out the middle: `VM Peri..Thread`.
const OWN_JAVA: [&str; 9] = [
    "C1 CompilerThread",
    "C2 CompilerThread",
    "JVMCI CompilerThread",
    "Sweeper thread",
    "Service Thread",
    "Monitor Deflation Thread",
    "Notification Thread",
    "Signal Dispatcher",
    "Attach Listener",
];
const OWN: [&[u8]; 21] = [
    b"VM Thread",
    b"VM Peri",
    b"GC Thread#",
    b"G1 ",
    b"GC task thread#",
    b"Gang worker#",
    b"ParGC Thread#",
    b"Concurrent Mark",
    b"CMS Main Thread",
    b"StringDedup",
    b"Shenand",
    b"ZDirector",
    b"ZDriver",
    b"ZStat",
    b"ZUn",
    b"ZWorker#",
    b"ZThread",
    b"XDirector",
    b"XWorker#",
    b"JFR ",
    b"AsyncLog Thread",
];

/// Whether HotSpot made a thread for itself that is not among the Java threads, by the kernel's name.
pub fn is_own(name: &[u8]) -> bool {
    OWN.iter().any(|own| name.starts_with(own))
}

/// A Java thread, as it was read last.
#[derive(Clone)]
pub struct JavaThread {
    pub tid: u32,
    pub name: String,
    pub kind: ThreadKind,
    /// The string that holds the name.
    string: u64,
    /// It could not be read whether it is a daemon.
    doubtful: bool,
}

impl<M: ReadMemory> Jvm<M> {
    /// All Java threads there are, with their ids as their own process sees them. A name is read again where the thread has another
    /// string for it, or its turn has come. A collector that moves objects while the program runs (ZGC) may leave a name unreadable
    /// until the program looks at it: then the one from before holds.
    pub fn java_threads(&mut self) -> Vec<JavaThread> {
        self.memory.begin(limited::NAMES);
        let before = std::mem::take(&mut self.thread_names);
        let threads = self.thread_pointers();
        let turns = threads.len().div_ceil(NAMES_AT_ONCE).max(TURNS);
        self.names_turn = (self.names_turn + 1) % turns;
        let mut left = 2 * NAMES_AT_ONCE;
        for (number, thread) in threads.into_iter().enumerate() {
            let Some(tid) = self.thread_id(thread) else { continue };
            let known = before.get(&(thread, tid));
            let turn = number % turns == self.names_turn;
            let mut found = None;
            if left > 0 {
                found = self.thread(thread, tid, known.filter(|known| !turn && !known.doubtful));
                // What was read alone is the string's address.
                left -= usize::from(found.is_none() || turn || known.is_none());
            }
            self.thread_names.extend(found.or_else(|| known.cloned()).map(|found| ((thread, tid), found)));
        }
        self.thread_names.values().cloned().collect()
    }

    pub fn thread_pointers(&self) -> Vec<u64> {
        let word = |at: u64| self.memory.read_u64(at).unwrap_or(0);
        match self.layout.threads.list {
            ThreadList::Linked { first, next } => {
                let mut threads = Vec::new();
                let mut thread = word(first);
                while thread != 0 && thread.is_multiple_of(8) && (threads.len() as u64) < THREADS_MAX {
                    threads.push(thread);
                    thread = word(thread.wrapping_add(next));
                }
                threads
            }
            ThreadList::Array { list, length, threads } => {
                let list = word(list);
                let count = u64::from(word(list.wrapping_add(length)) as u32).min(THREADS_MAX);
                let mut bytes = vec![0; 8 * count as usize];
                let read = self.memory.read(word(list.wrapping_add(threads)), &mut bytes);
                let words = bytes[..read].chunks_exact(8);
                words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect()
            }
        }
    }

    fn thread_id(&self, thread: u64) -> Option<u32> {
        let l = &self.layout.threads;
        let os_thread = self.memory.read_u64(thread.checked_add(l.os_thread)?).filter(|at| *at != 0)?;
        let tid = self.memory.read_u64(os_thread.checked_add(l.thread_id)?)? as u32;
        (tid != 0).then_some(tid)
    }

    /// `known` is given back if it still has the same string for a name.
    fn thread(&mut self, thread: u64, tid: u32, known: Option<&JavaThread>) -> Option<JavaThread> {
        let (l, memory) = (&self.layout.threads, &self.memory);
        let mut object = memory.read_u64(thread.checked_add(l.object)?)?;
        if l.object_is_handle {
            object = memory.read_u64(object)?;
        }
        let objects = self.objects.as_mut().ok()?;
        let object = objects.plain(object);
        let field = objects.field(memory, &self.layout, object, "name")?;
        let string = objects.reference(memory, field)?;
        if let Some(known) = known.filter(|known| known.string == string) {
            return Some(known.clone());
        }
        let name = objects.string(memory, &self.layout, string)?;
        // Since JDK 19 it is in an object of its own.
        let daemon = match objects.field(memory, &self.layout, object, "holder") {
            Some(holder) => {
                let holder = objects.reference(memory, holder)?;
                objects.field(memory, &self.layout, holder, "daemon")
            }
            None => objects.field(memory, &self.layout, object, "daemon"),
        };
        let mut byte = [0];
        let read = daemon.and_then(|at| memory.read_exact(at, &mut byte));
        let kind = match byte[0] {
            0 => ThreadKind::Plain,
            _ if OWN_JAVA.iter().any(|own| name.starts_with(own)) => ThreadKind::Internal,
            _ => ThreadKind::Daemon,
        };
        let name = clean(&name, NAME_MAX).into_owned();
        (!name.is_empty()).then_some(JavaThread { tid, name, kind, string, doubtful: read.is_none() })
    }
}
