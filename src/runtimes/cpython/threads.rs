//! The threads that the interpreters of a process know: the states that CPython keeps for them.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::clock::monotonic;
use crate::elf::{u32_at, u64_at};
use crate::model::vocabulary::frame::{Ns, SECOND};
use crate::process::memory::ReadMemory;
use crate::runtimes::cpython::layout::Layout;
use crate::runtimes::cpython::thread_ids::ThreadIds;
use crate::unwinder::interpreted::StackOwner;

/// Maximum interpreters and thread states that are visited.
const INTERPRETERS_MAX: usize = 256;
const THREADS_MAX: usize = 1 << 16;
/// Maximum thread states whose ids are compared to find out whether the list is still right.
const UNSETTLED_MAX: usize = 256;
/// Maximum threads whose structures are searched for the place of their ids.
const SEARCHED_MAX: usize = 64;
/// Bytes of a C library's structure of a thread that are searched. In glibc 2.36 the id is at 720.
const PTHREAD: usize = 2048;
/// Time after which all states are read again when there are new ones: some of the others may have
/// ended.
const ALL_AGAIN: Ns = SECOND;

/// What CPython keeps of a thread in one interpreter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadState {
    pub address: u64,
    pub interpreter: u64,
    /// Number of the interpreter in the list; the main one is the last.
    pub nth: usize,
    /// The pthread_t of the thread that runs it; 0 before it runs.
    pub pthread: u64,
    /// The kernel's id in the target's pid namespace.
    pub native_id: Option<u32>,
    /// Tells it from another one at the same address.
    unique: u64,
    /// The one behind it in the list.
    next: u64,
}

impl ThreadState {
    /// Whether these bytes from its address are still of this one.
    pub fn is_in(&self, bytes: &[u8], layout: &Layout) -> bool {
        let word = |at: u64| u64_at(bytes, at as usize);
        word(layout.thread.interpreter) == Some(self.interpreter)
            && word(layout.thread.pthread) == Some(self.pthread)
    }
}

/// An interpreter of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interpreter {
    pub address: u64,
    /// Its number, as the program sees it; the main one has 0.
    pub id: u64,
}

/// All thread states, as last read.
#[derive(Default)]
pub struct Threads {
    pub interpreters: Vec<Interpreter>,
    pub states: Vec<ThreadState>,
    by_pthread: FxHashMap<u64, Vec<usize>>,
    /// Words of the lists, with their values: new states come first. While these are unchanged none
    /// was added.
    heads: Vec<(u64, u64)>,
    /// The same of ids that may still change.
    unsettled: Vec<(u64, u64)>,
    /// Where a C library's structure of a thread has the kernel's id; needed before 3.11.
    id_place: Option<u64>,
    /// When all were read.
    read_at: Ns,
}

/// The states of one interpreter that were known before a reading.
type Before = FxHashMap<u64, Vec<ThreadState>>;

impl Threads {
    /// Reads all again. `runtime`: address of `_PyRuntime`.
    pub fn read<M: ReadMemory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        runtime: u64,
        ids: &mut ThreadIds,
    ) {
        self.read_at = monotonic();
        self.read_behind(memory, layout, runtime, ids, &Before::default());
    }

    /// Reads the lists up to states that were there before.
    fn read_behind<M: ReadMemory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        runtime: u64,
        ids: &mut ThreadIds,
        before: &Before,
    ) {
        self.interpreters.clear();
        self.states.clear();
        self.heads.clear();
        self.read_lists(memory, layout, runtime, before);
        self.by_pthread.clear();
        for (at, state) in self.states.iter().enumerate().filter(|(_, state)| state.pthread != 0) {
            self.by_pthread.entry(state.pthread).or_default().push(at);
        }
        if layout.thread.native_id.is_none() {
            self.read_ids(memory, ids);
        }
        self.note_unsettled(layout);
    }

    /// Notes which ids may still change: a new state has no thread yet, or that of its creator.
    fn note_unsettled(&mut self, layout: &Layout) {
        let mut natives: FxHashMap<u32, u32> = FxHashMap::default();
        for id in self.states.iter().filter_map(|state| state.native_id) {
            *natives.entry(id).or_default() += 1;
        }
        let shared = |state: &&ThreadState| {
            self.by_pthread.get(&state.pthread).is_none_or(|of| of.len() > 1)
                || state.native_id.is_some_and(|id| id == 0 || natives[&id] > 1)
        };
        let places = |state: &ThreadState| {
            let at = |offset| state.address.wrapping_add(offset);
            let native = layout.thread.native_id.zip(state.native_id);
            [
                Some((at(layout.thread.pthread), state.pthread)),
                native.map(|(offset, id)| (at(offset), id.into())),
            ]
        };
        let unsettled = self.states.iter().filter(shared).take(UNSETTLED_MAX);
        self.unsettled = unsettled.flat_map(places).flatten().collect();
    }

    fn read_lists<M: ReadMemory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        runtime: u64,
        before: &Before,
    ) {
        let mut place = runtime.wrapping_add(layout.interpreters);
        let mut seen = FxHashSet::default();
        while self.interpreters.len() < INTERPRETERS_MAX {
            let interpreter = memory.read_u64(place).unwrap_or(0);
            self.heads.push((place, interpreter));
            if interpreter == 0 || !seen.insert(interpreter) {
                break;
            }
            let word = |at: u64| memory.read_u64(interpreter.wrapping_add(at));
            let id = word(layout.interpreter.id).unwrap_or(u64::MAX);
            self.interpreters.push(Interpreter { address: interpreter, id });
            let before = before.get(&interpreter).map_or(&[][..], Vec::as_slice);
            self.read_states(memory, layout, interpreter, &mut seen, before);
            place = interpreter.wrapping_add(layout.interpreter.next);
        }
    }

    fn read_states<M: ReadMemory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        interpreter: u64,
        seen: &mut FxHashSet<u64>,
        before: &[ThreadState],
    ) {
        let nth = self.interpreters.len() - 1;
        let first = interpreter.wrapping_add(layout.interpreter.threads);
        let mut address = memory.read_u64(first).unwrap_or(0);
        self.heads.push((first, address));
        let mut bytes = vec![0; layout.thread.span()];
        let mut is_first = true;
        while address != 0 && self.states.len() < THREADS_MAX && seen.insert(address) {
            if memory.read_exact(address, &mut bytes).is_none() {
                break;
            }
            let word = |at: u64| u64_at(&bytes, at as usize).unwrap_or(0);
            if word(layout.thread.interpreter) != interpreter {
                break;
            }
            let native_id = layout.thread.native_id.map(|at| word(at) as u32);
            let pthread = word(layout.thread.pthread);
            let (unique, next) = (word(layout.thread.unique), word(layout.thread.next));
            if std::mem::take(&mut is_first) {
                // Another one may be at the same address.
                self.heads.push((address.wrapping_add(layout.thread.unique), unique));
            }
            let state = ThreadState { address, interpreter, nth, pthread, native_id, unique, next };
            self.states.push(state);
            // What is behind it in the list is as it was. (Some of it may have ended.)
            let is_same = |known: &ThreadState| {
                (known.address, known.unique, known.next) == (address, unique, next)
            };
            if let Some(at) = before.iter().position(is_same) {
                let room = THREADS_MAX - self.states.len();
                let rest = before[at + 1..].iter().take(room);
                self.states.extend(rest.map(|known| ThreadState { nth, ..*known }));
                return;
            }
            address = next;
        }
    }

    /// Reads the kernel's ids from the C library's structures of the threads.
    fn read_ids<M: ReadMemory>(&mut self, memory: &M, ids: &mut ThreadIds) {
        if self.id_place.is_none() {
            self.id_place = self.find_id_place(memory, &ids.all());
        }
        let Some(place) = self.id_place else { return };
        for state in &mut self.states {
            let mut id = [0; 4];
            let at = state.pthread.checked_add(place).filter(|_| state.pthread != 0);
            if at.is_some_and(|at| memory.read_exact(at, &mut id).is_some()) {
                state.native_id = Some(u32::from_le_bytes(id));
            }
        }
    }

    /// Finds the distance at which most structures have ids of threads, each another one.
    fn find_id_place<M: ReadMemory>(&self, memory: &M, ids: &FxHashSet<u32>) -> Option<u64> {
        let mut found: FxHashMap<usize, FxHashSet<u32>> = FxHashMap::default();
        let mut bytes = vec![0; PTHREAD];
        for pthread in self.by_pthread.keys().take(SEARCHED_MAX) {
            let length = memory.read(*pthread, &mut bytes);
            for at in (0..length.saturating_sub(3)).step_by(4) {
                if let Some(id) = u32_at(&bytes, at).filter(|id| ids.contains(id)) {
                    found.entry(at).or_default().insert(id);
                }
            }
        }
        let best = found.into_iter().max_by_key(|(at, ids)| (ids.len(), std::cmp::Reverse(*at)));
        best.map(|(at, _)| at as u64)
    }

    /// Returns the pthread_t of the thread with this id of the kernel.
    pub fn pthread_of(&self, id: Option<u32>) -> Option<u64> {
        let id = id?;
        self.states.iter().find(|state| state.native_id == Some(id)).map(|state| state.pthread)
    }

    /// Returns the lowest pthread_t above an address. C libraries put a thread's structure at the
    /// upper end of its stack, so the address of a stack leads to its thread. The stack of the main
    /// thread is above all others.
    pub fn above(&self, address: u64) -> Option<u64> {
        self.by_pthread.keys().copied().filter(|pthread| *pthread > address).min()
    }

    /// Returns the indices of the states of a thread; none for a thread without Python. They are
    /// read again where there may be new ones.
    pub fn of<M: ReadMemory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        runtime: u64,
        ids: &mut ThreadIds,
        owner: StackOwner,
    ) -> Vec<usize> {
        let found = self.known(ids, owner);
        if found.is_empty() && self.update(memory, layout, runtime, ids) {
            return self.known(ids, owner);
        }
        found
    }

    /// Reads the lists again if there may be new ones; returns whether it did.
    pub fn update<M: ReadMemory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        runtime: u64,
        ids: &mut ThreadIds,
    ) -> bool {
        if self.heads.is_empty() {
            self.read(memory, layout, runtime, ids);
            return true;
        }
        let (added, settled) = (changed(memory, &self.heads), changed(memory, &self.unsettled));
        if settled || added && monotonic() >= self.read_at + ALL_AGAIN {
            self.read(memory, layout, runtime, ids);
        } else if added {
            let mut before = Before::default();
            for state in &self.states {
                before.entry(state.interpreter).or_default().push(*state);
            }
            self.read_behind(memory, layout, runtime, ids, &before);
        }
        added || settled
    }

    /// Returns the indices of the states of a thread, as last read.
    pub fn known(&self, ids: &mut ThreadIds, owner: StackOwner) -> Vec<usize> {
        if let Some(pthread) = owner.fs_base {
            return self.by_pthread.get(&pthread).cloned().unwrap_or_default();
        }
        let Some(id) = ids.inside(owner.tid) else { return Vec::new() };
        let of_it =
            |(at, state): (usize, &ThreadState)| (state.native_id == Some(id)).then_some(at);
        self.states.iter().enumerate().filter_map(of_it).collect()
    }
}

/// Whether one of these words has another value now.
fn changed<M: ReadMemory>(memory: &M, words: &[(u64, u64)]) -> bool {
    let mut now = vec![0; 8 * words.len()];
    let pieces: Vec<_> = words.iter().map(|(place, _)| (*place, 8)).collect();
    let same = |((_, before), now): (&(u64, u64), &[u8])| before.to_le_bytes() == *now;
    memory.read_pieces(&pieces, &mut now).is_none()
        || !words.iter().zip(now.chunks_exact(8)).all(same)
}
