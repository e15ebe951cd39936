//! The names that a program gives to its threads: those in `threading._active`, by the pthread_t of
//! each. Since 3.14 the kernel's names are the same, but shorter.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::clock::monotonic;
use crate::model::vocabulary::frame::{Ns, RawName, SECOND};
use crate::model::vocabulary::text::clean;
use crate::process::memory::ReadMemory;
use crate::runtimes::cpython::attributes::Reader;
use crate::runtimes::cpython::layout::Layout;
use crate::runtimes::cpython::threads::Threads;
use crate::runtimes::frame_and_thread_names::Names;

/// Maximum bytes of a name.
const NAME_MAX: usize = 4096;
/// Maximum names read in one call; the others are read in the next ones.
const NAMES_AT_ONCE: usize = 1000;
/// Minimum time between two searches for the list.
const SEARCH_AGAIN: Ns = SECOND;
/// Each call reads one of this number of parts of the names again, even where nothing shows that
/// they have changed.
const TURNS: usize = 16;
/// Threads that were not started by Python have such names, and the kernel's says more.
const FOREIGN: &str = "Dummy-";

/// What was read of a `Thread` object.
#[derive(Clone, Copy)]
struct Known {
    object: u64,
    /// Where the pointer to its name is, and the pointer.
    place: u64,
    text: u64,
    /// `None`: the kernel's name is better.
    name: Option<RawName>,
}

/// The names of a process's threads.
#[derive(Default)]
pub struct ThreadNames {
    /// The dictionary `threading._active`.
    list: Option<u64>,
    searched: Option<Ns>,
    /// By pthread_t.
    known: FxHashMap<u64, Known>,
    calls: usize,
}

impl ThreadNames {
    /// Returns the kernel's ids of the threads that have a name, in the target's namespace, and the
    /// names. `moved`: those that have run since the last call. `main`: the id of the main thread;
    /// the kernel's name of it says more.
    pub fn read<M: ReadMemory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        threads: &Threads,
        names: &Names,
        moved: Option<&FxHashSet<u32>>,
        main: Option<u32>,
    ) -> Vec<(u32, RawName)> {
        let reader = Reader { memory, layout };
        let Some(objects) = self.objects(&reader, threads) else { return Vec::new() };
        self.calls = self.calls.wrapping_add(1);
        let part = self.calls % TURNS;
        let ids: FxHashMap<u64, u32> = threads
            .states
            .iter()
            .filter_map(|state| Some((state.pthread, state.native_id?)))
            .collect();
        let before = std::mem::take(&mut self.known);
        let mut left = NAMES_AT_ONCE;
        let mut found = Vec::new();
        for (nth, (pthread, object)) in objects.into_iter().enumerate() {
            let Some(id) = ids.get(&pthread).filter(|id| Some(**id) != main) else { continue };
            let ran = moved.is_none_or(|moved| moved.contains(id));
            let old = before.get(&pthread).filter(|old| old.object == object);
            let due = match old {
                None => true,
                Some(_) if nth % TURNS == part => true,
                Some(old) => ran && memory.read_u64(old.place) != Some(old.text),
            };
            let mut known = old.copied();
            if due && left > 0 {
                left -= 1;
                known = name(&reader, names, object).or(known);
            }
            if let Some(known) = known {
                self.known.insert(pthread, known);
                found.extend(known.name.map(|name| (*id, name)));
            }
        }
        found
    }

    /// Returns the pthread_t of a `Thread` object, if the program lists it.
    pub fn pthread_of(&self, object: u64) -> Option<u64> {
        let found = self.known.iter().find(|(_, known)| known.object == object);
        found.map(|(pthread, _)| *pthread)
    }

    /// Returns where the pointer to a thread's name is, for tests.
    #[cfg(test)]
    pub fn place(&self, pthread: u64) -> u64 {
        self.known[&pthread].place
    }

    /// Returns the `Thread` objects by their pthread_t.
    fn objects<M: ReadMemory>(
        &mut self,
        reader: &Reader<'_, M>,
        threads: &Threads,
    ) -> Option<Vec<(u64, u64)>> {
        if self.list.is_none() {
            let now = monotonic();
            if self.searched.is_some_and(|at| now < at + SEARCH_AGAIN) {
                return None;
            }
            self.searched = Some(now);
            self.list = list(reader, threads);
        }
        let Some(entries) = reader.dictionary(self.list?) else {
            self.list = None;
            return None;
        };
        let object = |(key, place): (u64, u64)| {
            let key = Some(key).filter(|key| *key != 0)?;
            let object = reader.memory.read_u64(place).filter(|object| *object != 0)?;
            Some((reader.integer(key)?, object))
        };
        Some(entries.into_iter().filter_map(object).collect())
    }
}

/// Returns the dictionary with all threads, of the main interpreter.
fn list<M: ReadMemory>(reader: &Reader<'_, M>, threads: &Threads) -> Option<u64> {
    let main = threads.interpreters.iter().min_by_key(|interpreter| interpreter.id)?;
    let modules = main.address.checked_add(reader.layout.interpreter.modules)?;
    let threading = reader.item(reader.memory.read_u64(modules)?, "threading")?;
    reader.item(reader.of_module(threading)?, "_active")
}

fn name<M: ReadMemory>(reader: &Reader<'_, M>, names: &Names, object: u64) -> Option<Known> {
    let place = reader.attribute(object, "_name")?;
    let text = reader.memory.read_u64(place)?;
    let name = reader.layout.object.text(reader.memory, text)?;
    let name = clean(&name, NAME_MAX);
    let shown = !name.is_empty() && !name.starts_with(FOREIGN);
    let name = if shown { names.thread_name(&name) } else { None };
    Some(Known { object, place, text, name })
}
