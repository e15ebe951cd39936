//! Java threads: the native thread of each, its full name (the kernel keeps 15 bytes), and whether
//! it is a daemon.

use rustc_hash::FxHashSet;

use crate::model::vocabulary::frame::{RawName, ThreadKind};
use crate::model::vocabulary::text::clean;
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::heap_objects::Declared;
use crate::runtimes::jvm::layout::ThreadList;
use crate::runtimes::jvm::{Jvm, NAME_MAX, read_limit};

/// Maximum threads visited.
pub const THREADS_MAX: u64 = 50_000;
/// Maximum names read per call; names that are known already are read again in turns.
const NAMES_AT_ONCE: usize = 1_000;

/// Maximum numbers read in one call.
const WORDS_AT_ONCE: usize = 512;

/// Each call asks one of this number of parts of the threads for the string that holds the name,
/// even where nothing shows that they have another.
const TURNS: usize = 16;
/// Turns until a name is read again although its string is at the same address: strings do not
/// change, but a collector may have put another one there.
const TEXT_TURNS: usize = 4;

pub const THREAD: &str = "java/lang/Thread";
const NAME: Declared = (THREAD, "name");

/// Java threads that HotSpot creates for itself, and the prefixes of its other threads' names, as
/// far as the kernel keeps them (src/hotspot/share: `set_name` and `os::create_thread`). JDK 26
/// omits the middle: `VM Peri..Thread`.
const OWN_JAVA: [&str; 10] = [
    "C1 CompilerThread",
    "C2 CompilerThread",
    "JVMCI CompilerThread",
    "Sweeper thread",
    "Service Thread",
    "Monitor Deflation Thread",
    "Notification Thread",
    "Signal Dispatcher",
    "Attach Listener",
    // The launcher's thread after `main` has returned; it waits for the other threads to end.
    "DestroyJavaVM",
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
    b"ZWorker",
    b"ZThread",
    b"XDirector",
    b"XWorker",
    b"JFR ",
    b"AsyncLog Thread",
];

/// Whether HotSpot created this thread, which is not a Java thread, for itself; `name` is the
/// kernel's.
pub fn is_own(name: &[u8]) -> bool {
    OWN.iter().any(|own| name.starts_with(own))
}

/// What was last read of a Java thread.
#[derive(Clone, Copy)]
pub struct JavaThread {
    tid: u32,
    name: RawName,
    /// Address of the string that holds the name.
    string: u64,
    /// It was unreadable whether the thread is a daemon.
    daemon_unknown: bool,
}

impl<M: ReadMemory> Jvm<M> {
    /// Returns all Java threads, with their ids in their own PID namespace. A name is read again
    /// where the thread has another string for it, or its turn has come. A collector that moves
    /// objects while the program runs (ZGC) may leave a name unreadable until the program uses it;
    /// then the previous name stays. `moved`: see [`crate::unwinder::Unwinder::thread_names`].
    pub fn java_threads(&mut self, moved: Option<&FxHashSet<u32>>) -> Vec<(u32, RawName)> {
        self.memory.begin(read_limit::NAMES);
        let before = std::mem::take(&mut self.thread_names);
        let threads = self.thread_pointers();
        self.retain_threads(&threads);
        let turns = threads.len().div_ceil(NAMES_AT_ONCE).max(TURNS);
        self.names_part = (self.names_part + 1) % (turns * TEXT_TURNS);
        let (part, text_part) = (self.names_part % turns, self.names_part);
        let unmoved = |number: usize, thread: &u64| {
            let known = before
                .get(thread)
                .filter(|known| !known.daemon_unknown && number % turns != part)?;
            moved.is_some_and(|moved| !moved.contains(&known.tid)).then_some((*thread, *known))
        };
        let mut to_read = Vec::new();
        for (number, thread) in threads.into_iter().enumerate() {
            match unmoved(number, &thread) {
                Some(known) => self.thread_names.extend([known]),
                None => to_read.push((number, thread)),
            }
        }
        let pointers: Vec<u64> = to_read.iter().map(|(_, thread)| *thread).collect();
        let mut left = 2 * NAMES_AT_ONCE;
        for ((number, thread), (tid, string)) in
            to_read.into_iter().zip(self.ids_and_strings(&pointers))
        {
            let Some(tid) = tid else { continue };
            let known = before.get(&thread).filter(|known| known.tid == tid);
            let turn = number % (turns * TEXT_TURNS) == text_part;
            let mut found = known
                .filter(|known| !turn && !known.daemon_unknown && string == Some(known.string))
                .copied();
            if found.is_none() && left > 0 {
                found = self.thread(thread, tid);
                left -= 1;
            }
            self.thread_names.extend(found.or(known.copied()).map(|found| (thread, found)));
        }
        self.thread_names.values().map(|thread| (thread.tid, thread.name)).collect()
    }

    pub fn thread_pointers(&self) -> Vec<u64> {
        let word = |at: u64| self.memory.read_u64(at).unwrap_or(0);
        match self.layout.threads.list {
            ThreadList::Linked { first, next } => {
                let mut threads = Vec::new();
                let (mut thread, mut before) = (word(first), 0);
                while thread != 0
                    && thread.is_multiple_of(8)
                    && (threads.len() as u64) < THREADS_MAX
                {
                    // A list that leads back to a thread of its own never ends (Brent).
                    if thread == before {
                        break;
                    }
                    if threads.len().is_power_of_two() {
                        before = thread;
                    }
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

    /// Returns the native thread of each and the string that holds its name, as far as three calls
    /// for all find them. Two numbers of each are read together: neighbouring memory is read
    /// faster.
    fn ids_and_strings(&self, threads: &[u64]) -> Vec<(Option<u32>, Option<u64>)> {
        let l = &self.layout.threads;
        let place = |at: Option<u64>, distance: u64, width: usize| {
            Some((at?.checked_add(distance)?, width))
        };
        let named = |at: u64| Some(at).filter(|_| self.objects.is_ok());
        let found = threads
            .iter()
            .map(|at| [place(Some(*at), l.os_thread, 8), place(named(*at), l.object, 8)]);
        let found = self.pairs(found);
        let next = found.iter().map(|[os_thread, object]| {
            let handle = object.filter(|_| l.object_is_handle);
            [place(os_thread.filter(|at| *at != 0), l.thread_id, 4), place(handle, 0, 8)]
        });
        let next = self.pairs(next);
        let ids = next.iter().map(|[tid, _]| tid.map(|tid| tid as u32).filter(|tid| *tid != 0));
        let Ok(objects) = &self.objects else { return ids.map(|tid| (tid, None)).collect() };
        let places = found.iter().zip(&next).map(|([_, object], [_, handle])| {
            let object = if l.object_is_handle { *handle } else { *object };
            object.map(|object| objects.plain(object))
        });
        let places: Vec<Option<u64>> = places.collect();
        let (klass, width) = objects.klass_place();
        let usual = |object: Option<u64>| objects.usual_field(object?, NAME);
        let names = places
            .iter()
            .map(|at| [place(*at, klass, width), place(usual(*at), 0, objects.width())]);
        let strings = places.iter().zip(self.pairs(names)).map(|(object, [klass, string])| {
            // Only of an object that is a thread, as far as its class is known.
            objects
                .known_field((*object)?, klass?, NAME)
                .filter(|at| Some(*at) == usual(*object))?;
            Some(objects.decode(&string?.to_le_bytes()[..objects.width()]))
        });
        ids.zip(strings).collect()
    }

    fn pairs(
        &self,
        places: impl Iterator<Item = [Option<(u64, usize)>; 2]>,
    ) -> Vec<[Option<u64>; 2]> {
        let words = self.words(&places.flatten().collect::<Vec<_>>());
        words.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect()
    }

    /// Reads numbers of `size` bytes at these places, in a few calls for all.
    pub fn words(&self, places: &[Option<(u64, usize)>]) -> Vec<Option<u64>> {
        let mut words = Vec::with_capacity(places.len());
        for places in places.chunks(WORDS_AT_ONCE) {
            let pieces: Vec<_> = places.iter().flatten().copied().collect();
            let mut bytes = vec![0; pieces.iter().map(|(_, width)| width).sum()];
            let all = self.memory.read_pieces(&pieces, &mut bytes).is_some();
            let mut rest = &mut bytes[..];
            words.extend(places.iter().map(|place| {
                let (at, width) = (*place)?;
                let (bytes, behind) = std::mem::take(&mut rest).split_at_mut(width);
                rest = behind;
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
        let field = objects.field(memory, &self.layout, object, NAME)?;
        let string = objects.reference(memory, field)?;
        let name = objects.string(memory, &self.layout, string)?;
        // Since JDK 19 the flag is in an object of its own.
        let daemon = match objects.field(memory, &self.layout, object, (THREAD, "holder")) {
            Some(holder) => {
                let holder = objects.reference(memory, holder)?;
                objects.field(memory, &self.layout, holder, ("", "daemon"))
            }
            None => objects.field(memory, &self.layout, object, (THREAD, "daemon")),
        };
        let mut byte = [0];
        let read = daemon.and_then(|at| memory.read_exact(at, &mut byte));
        let kind = match byte[0] {
            0 => ThreadKind::Plain,
            _ if OWN_JAVA.iter().any(|own| name.starts_with(own)) => ThreadKind::Internal,
            _ => ThreadKind::Daemon,
        };
        let name = clean(&name, NAME_MAX);
        let name = if name.is_empty() { None } else { self.names.thread_name(&name) };
        Some(JavaThread { tid, name: name?.of_kind(kind), string, daemon_unknown: read.is_none() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::jvm::blockers::tests::{OBJECT, THREAD_CLASS, WAITER};
    use crate::runtimes::jvm::blockers::tests::{class, jvm_with, world};
    use crate::runtimes::jvm::tests::cache_validity::{World, jvm_of, layout_17};

    const STRING_CLASS: u64 = 0x6_0000;
    const NAME_AT: u64 = 40;

    /// Puts a string there, as [`crate::runtimes::jvm::heap_objects::Objects::made_up`] expects it.
    fn string(world: &World, at: u64, text: &str) {
        world.word(at + 8, STRING_CLASS);
        world.word(at + 16, at + 0x100);
        world.put(at + 0x110, &(text.len() as u32).to_le_bytes());
        world.put(at + 0x118, text.as_bytes());
    }

    #[test]
    fn another_string_names_a_thread_in_its_turn_and_another_text_in_a_later_one() {
        let layout = layout_17();
        let world = world(&layout);
        let fields = [("name", NAME_AT), ("daemon", 48)];
        class(&world, &layout, THREAD_CLASS, "java/lang/Thread", 0, &fields);
        let fields = [("value", 16), ("coder", 24)];
        class(&world, &layout, STRING_CLASS, "java/lang/String", 0, &fields);
        let strings = [0x7_0000, 0x7_1000, 0x7_2000];
        strings.iter().for_each(|at| string(&world, *at, &format!("{at:x}")));
        let mut jvm = jvm_with(&world, &layout);
        // How often the name is another one while `change` precedes each call, in a whole round.
        let mut changes = |moved: &[u32], change: &dyn Fn(usize)| {
            let moved = moved.iter().copied().collect();
            let mut names = (0..=TURNS * TEXT_TURNS).map(|call| {
                change(call);
                let names = jvm.java_threads(Some(&moved));
                names.into_iter().find(|(tid, _)| *tid == 71).expect("it has a name").1
            });
            let mut before = names.next().expect("a call");
            names.filter(|name| std::mem::replace(&mut before, *name) != *name).count()
        };
        let replace = |call: usize| world.word(WAITER + OBJECT + NAME_AT, strings[call % 3]);
        let rewrite = |call: usize| string(&world, strings[0], &format!("{call:05}"));
        assert_eq!(changes(&[71], &replace), TURNS * TEXT_TURNS, "it runs");
        assert_eq!(changes(&[], &replace), TEXT_TURNS);
        replace(0);
        assert_eq!((changes(&[71], &rewrite), changes(&[], &rewrite)), (1, 1));
    }

    #[test]
    fn one_place_that_cannot_be_read_does_not_hide_the_others() {
        let world = World::new();
        (0..4).for_each(|nth| world.word(0x1000 + 8 * nth, 7 + nth));
        let (layout, beyond) = (layout_17(), u64::MAX - 100);
        let jvm = jvm_of(&world, &layout);
        let words = |at: &[Option<u64>], width| {
            jvm.words(&at.iter().map(|at| at.map(|at| (at, width))).collect::<Vec<_>>())
        };
        assert_eq!(words(&[Some(0x1000), None, Some(0x1018)], 8), [Some(7), None, Some(10)]);
        assert_eq!(words(&[Some(0x1000), Some(beyond), Some(0x1008)], 4), [Some(7), None, Some(8)]);
        let many: Vec<Option<u64>> = (0..2000).map(|nth| Some(0x1000 + 8 * (nth % 4))).collect();
        let expected: Vec<Option<u64>> = (0..2000).map(|nth| Some(7 + nth % 4)).collect();
        assert_eq!(words(&many, 8), expected);
    }
}
