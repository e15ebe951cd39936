//! Java threads: which native thread each runs on, and its full name (the kernel keeps 15 bytes of it).

use crate::model::text::clean;
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::layout::ThreadList;
use crate::runtimes::jvm::{Jvm, limited};

/// Threads that are looked at.
const THREADS_MAX: u64 = 50_000;
/// Names that are read at a time; those that are known have their turns.
const NAMES_AT_ONCE: usize = 1_000;
/// Bytes of a thread's name.
const NAME_MAX: usize = 4096;

impl<M: ReadMemory> Jvm<M> {
    /// All Java threads there are: the id of each, as its own process sees it, and its name. A collector that moves objects while
    /// the program runs (ZGC) may leave a name unreadable until the program looks at it: then the one from before holds.
    pub fn java_threads(&mut self) -> Vec<(u32, String)> {
        self.memory.begin(limited::NAMES);
        let before = std::mem::take(&mut self.thread_names);
        let threads = self.thread_pointers();
        let turns = threads.len().div_ceil(NAMES_AT_ONCE).max(1);
        self.names_turn = (self.names_turn + 1) % turns;
        let mut left = 2 * NAMES_AT_ONCE;
        for (number, thread) in threads.into_iter().enumerate() {
            let Some(tid) = self.thread_id(thread) else { continue };
            let known = before.get(&(thread, tid));
            let mut name = None;
            if left > 0 && (known.is_none() || number % turns == self.names_turn) {
                left -= 1;
                name = self.thread_name(thread);
            }
            self.thread_names.extend(name.or_else(|| known.cloned()).map(|name| ((thread, tid), name)));
        }
        self.thread_names.iter().map(|((_, tid), name)| (*tid, name.clone())).collect()
    }

    fn thread_pointers(&self) -> Vec<u64> {
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

    fn thread_name(&mut self, thread: u64) -> Option<String> {
        let (l, memory) = (&self.layout.threads, &self.memory);
        let mut object = memory.read_u64(thread.checked_add(l.object)?)?;
        if l.object_is_handle {
            object = memory.read_u64(object)?;
        }
        let objects = self.objects.as_mut().ok()?;
        let object = objects.plain(object);
        let name = objects.field(memory, &self.layout, object, "name")?;
        let name = objects.reference(memory, name)?;
        let name = objects.string(memory, &self.layout, name)?;
        (!name.is_empty()).then(|| clean(&name, NAME_MAX).into_owned())
    }
}
