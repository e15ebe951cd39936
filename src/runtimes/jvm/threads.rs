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

/// Numbers that are read in one call.
const WORDS_AT_ONCE: usize = 512;

/// Of so many turns one reads every name again, though nothing says that it has changed.
const TURNS: usize = 16;

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
        self.threads_are(&threads);
        let turns = threads.len().div_ceil(NAMES_AT_ONCE).max(TURNS);
        self.names_turn = (self.names_turn + 1) % turns;
        let mut left = 2 * NAMES_AT_ONCE;
        let tids = self.thread_ids(&threads);
        let strings = self.name_strings(&threads);
        for (number, ((thread, tid), string)) in threads.into_iter().zip(tids).zip(strings).enumerate() {
            let Some(tid) = tid else { continue };
            let known = before.get(&(thread, tid));
            let turn = number % turns == self.names_turn;
            let mut found = known.filter(|known| !turn && !known.doubtful && string == Some(known.string)).cloned();
            if found.is_none() && left > 0 {
                found = self.thread(thread, tid);
                left -= 1;
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

    /// Which native thread each of them runs on.
    fn thread_ids(&self, threads: &[u64]) -> Vec<Option<u32>> {
        let l = &self.layout.threads;
        let os_threads = self.words(&beyond(threads.iter().copied().map(Some), l.os_thread), 8);
        let os_threads = os_threads.into_iter().map(|at| at.filter(|at| *at != 0));
        let tids = self.words(&beyond(os_threads, l.thread_id), 4);
        tids.into_iter().map(|tid| tid.map(|tid| tid as u32).filter(|tid| *tid != 0)).collect()
    }

    /// The strings that hold their names, as far as they are found in a few calls for all.
    fn name_strings(&self, threads: &[u64]) -> Vec<Option<u64>> {
        let Ok(objects) = &self.objects else { return vec![None; threads.len()] };
        let l = &self.layout.threads;
        let mut found = self.words(&beyond(threads.iter().copied().map(Some), l.object), 8);
        if l.object_is_handle {
            found = self.words(&found, 8);
        }
        found.iter_mut().flatten().for_each(|object| *object = objects.plain(*object));
        let (klass, width) = objects.klass_place();
        let klasses = self.words(&beyond(found.iter().copied(), klass), width);
        let fields = found.iter().zip(klasses).map(|(object, klass)| objects.known_field((*object)?, klass?, "name"));
        let strings = self.words(&fields.collect::<Vec<_>>(), objects.width());
        strings.into_iter().map(|string| Some(objects.decode(&string?.to_le_bytes()[..objects.width()]))).collect()
    }

    /// The numbers of `width` bytes at these addresses, in a few calls for all.
    fn words(&self, at: &[Option<u64>], width: usize) -> Vec<Option<u64>> {
        let mut words = Vec::with_capacity(at.len());
        for at in at.chunks(WORDS_AT_ONCE) {
            let pieces: Vec<_> = at.iter().flatten().map(|at| (*at, width)).collect();
            let mut bytes = vec![0; width * pieces.len()];
            let all = self.memory.read_pieces(&pieces, &mut bytes).is_some();
            let mut rest = bytes.chunks_exact_mut(width);
            words.extend(at.iter().map(|at| {
                let (at, bytes) = ((*at)?, rest.next()?);
                if !all {
                    self.memory.read_exact(at, bytes)?;
                }
                let mut word = [0; 8];
                word[..width].copy_from_slice(bytes);
                Some(u64::from_le_bytes(word))
            }));
        }
        words
    }

    fn thread(&mut self, thread: u64, tid: u32) -> Option<JavaThread> {
        let (l, memory) = (&self.layout.threads, &self.memory);
        let mut object = memory.read_u64(thread.checked_add(l.object)?)?;
        if l.object_is_handle {
            object = memory.read_u64(object)?;
        }
        let objects = self.objects.as_mut().ok()?;
        let object = objects.plain(object);
        let field = objects.field(memory, &self.layout, object, "name")?;
        let string = objects.reference(memory, field)?;
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

/// Addresses that lie so far behind these.
fn beyond(addresses: impl Iterator<Item = Option<u64>>, distance: u64) -> Vec<Option<u64>> {
    addresses.map(|at| at?.checked_add(distance)).collect()
}

#[cfg(test)]
mod tests {
    use crate::runtimes::jvm::tests::believed::{World, jvm_of, layout_17};

    #[test]
    fn one_place_that_cannot_be_read_does_not_hide_the_others() {
        let world = World::new();
        (0..4).for_each(|nth| world.word(0x1000 + 8 * nth, 7 + nth));
        let (layout, beyond) = (layout_17(), u64::MAX - 100);
        let jvm = jvm_of(&world, &layout);
        let words = |at: &[Option<u64>], width| jvm.words(at, width);
        assert_eq!(words(&[Some(0x1000), None, Some(0x1018)], 8), [Some(7), None, Some(10)]);
        assert_eq!(words(&[Some(0x1000), Some(beyond), Some(0x1008)], 4), [Some(7), None, Some(8)]);
        let many: Vec<Option<u64>> = (0..2000).map(|nth| Some(0x1000 + 8 * (nth % 4))).collect();
        let expected: Vec<Option<u64>> = (0..2000).map(|nth| Some(7 + nth % 4)).collect();
        assert_eq!(words(&many, 8), expected);
    }
}
