//! `threading.Lock` and `threading.RLock`: which one a blocked thread waits for, and who holds it.
//!
//! The method that waits was called with the lock, so its address lies on the native stack between
//! the thread's stack pointer and the function that executes Python. It is proven by its type and
//! by the wait: a lock made of a semaphore points to what the thread waits at; of one made of a
//! mutex (in releases of 3.13, all since 3.14) the mutex's address is on the stack, too. An `RLock`
//! says who holds it, a `Lock` does not.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::elf::u64_at;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use crate::model::vocabulary::frame::RawFrame;
use crate::process::memory::ReadMemory;
use crate::runtimes::cpython::Cpython;
use crate::runtimes::cpython::layout::Layout;
use crate::unwinder::interpreted::StackOwner;

/// Bytes of the stack that are searched. Some four small functions lie between.
const SEARCHED: usize = 1536;
/// Maximum objects that are read.
const OBJECTS_MAX: usize = 96;
/// Behind an object's head: the semaphore or mutex; of an `RLock` then the pthread_t of its holder.
const WAITED_AT: u64 = 8;
const HOLDER: u64 = 16;
/// The lowest bits of a local variable, which are tags in some versions. Objects are 8-aligned.
const TAGS: u64 = 3;
/// Maximum threads and types remembered.
const REMEMBERED_MAX: usize = 1 << 14;

/// Functions that wait for something else by a lock of their own, and for what.
const OTHERS: [(&str, BlockerKind); 5] = [
    ("threading.Condition.wait", BlockerKind::Condition),
    ("threading.wait", BlockerKind::Condition),
    ("threading.Thread._wait_for_tstate_lock", BlockerKind::ThreadEnd),
    ("threading._wait_for_tstate_lock", BlockerKind::ThreadEnd),
    // 3.13 on.
    ("threading.Thread.join", BlockerKind::ThreadEnd),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Lock,
    RLock,
    Other,
}

impl Kind {
    /// As Python prints the type.
    fn class(self) -> &'static str {
        if self == Kind::RLock { "threading.RLock" } else { "threading.Lock" }
    }
}

/// What is remembered of locks.
#[derive(Default)]
pub struct Locks {
    /// By the address of a type.
    kinds: FxHashMap<u64, Kind>,
    /// By thread id, the lock that the thread waited for.
    last: FxHashMap<u32, u64>,
    /// By thread id, what the thread waits for by a lock of its own, and the `Thread` object that
    /// is to end, or 0; as of its last walk.
    others: FxHashMap<u32, (BlockerKind, u64)>,
}

/// A lock that a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Waited {
    object: u64,
    kind: Kind,
    /// The pthread_t of its holder; 0 unless it is an `RLock`.
    holder: u64,
}

impl<M: ReadMemory> Cpython<M> {
    /// Returns the frame that stands for a wait for a lock, if the thread is in one. `function`:
    /// the innermost function of the thread, whose frames were read last.
    pub(super) fn waits_for_python_lock(
        &mut self,
        owner: StackOwner,
        function: RawFrame,
    ) -> Option<RawFrame> {
        owner.futex?;
        let named = self.names.named(function)?;
        let other = |location: &Location| {
            OTHERS.iter().find(|(name, _)| *name == &*location.function).map(|(_, kind)| *kind)
        };
        if self.locks.others.len() >= REMEMBERED_MAX {
            self.locks.others.clear();
        }
        if let Some(kind) = named.locations.iter().find_map(other) {
            let object = if kind == BlockerKind::ThreadEnd { self.first_argument() } else { None };
            self.locks.others.insert(owner.tid, (kind, object.unwrap_or(0)));
            return None;
        }
        let lock = self.lock_of(owner)?;
        let name = format!("{}.acquire", lock.kind.class());
        Some(self.names.frame(vec![Location {
            module: "threading".into(),
            ..Location::named(&name, FrameKind::Python)
        }]))
    }

    /// Returns which lock a thread waits for, and who holds it.
    pub(super) fn python_lock_blocker(&mut self, owner: StackOwner) -> Option<RawBlocker> {
        owner.futex?;
        if let Some((kind, object)) = self.locks.others.get(&owner.tid).copied() {
            // The condition's own lock is free meanwhile.
            let thread = self.thread_names.pthread_of(object).filter(|_| object != 0);
            let Some(thread) = thread else {
                return Some(RawBlocker {
                    kind,
                    object: 0,
                    class: None,
                    holder: RawHolder::Unknown,
                });
            };
            let holder = self.holder_with(thread);
            return Some(RawBlocker { kind, object, class: None, holder });
        }
        let lock = self.lock_of(owner)?;
        let holder = self.holder_with(lock.holder);
        let class = self.names.thread_name(lock.kind.class());
        Some(RawBlocker { kind: BlockerKind::ThreadingLock, object: lock.object, class, holder })
    }

    /// Returns the thread with this pthread_t; 0: none.
    fn holder_with(&mut self, pthread: u64) -> RawHolder {
        let mut states = self.threads.states.iter();
        let state = states.find(|state| pthread != 0 && state.pthread == pthread);
        self.ids.holder(state.and_then(|state| state.native_id))
    }

    /// Returns the first argument of the innermost function of the thread whose frames were read
    /// last.
    fn first_argument(&self) -> Option<u64> {
        // Of several interpreters it is not known which one's frames come first.
        let is_one = self.threads.interpreters.len() == 1;
        let mut frames = self.frames.iter().filter(|_| is_one);
        let innermost = frames.find(|frame| !self.layout.is_shim(frame.owner))?;
        let place = innermost.address.checked_add(self.layout.frame.locals)?;
        Some(self.memory.read_u64(place)? & !TAGS)
    }

    /// Forgets what a thread waited for by a lock of its own: its stack is read anew.
    pub(super) fn forget_wait(&mut self, tid: u32) {
        self.locks.others.remove(&tid);
    }

    fn lock_of(&mut self, owner: StackOwner) -> Option<Waited> {
        let futex = owner.futex.filter(|_| owner.sp != 0)?;
        let Cpython { memory, layout, locks, .. } = self;
        let size = object_size(layout);
        let mut bytes = vec![0; size];
        if let Some(object) = locks.last.get(&owner.tid).copied()
            && memory.read_exact(object, &mut bytes).is_some()
            && let Some(lock) = locks.of(memory, layout, object, &bytes, futex, false)
        {
            return Some(lock);
        }
        let mut bytes = vec![0; SEARCHED];
        let length = memory.read(owner.sp, &mut bytes);
        let words: Vec<u64> =
            (0..length / 8).filter_map(|index| u64_at(&bytes, 8 * index)).collect();
        let all: FxHashSet<u64> = words.iter().copied().collect();
        let of_stack = owner.sp..owner.sp.saturating_add(8 << 20);
        let has_mutex = |object: u64| {
            layout.minor >= MUTEXES_SINCE
                && all.contains(&(object + layout.object.kind + WAITED_AT))
        };
        let mut seen = FxHashSet::default();
        let may_be = |word: &u64| {
            word.is_multiple_of(8)
                && (1 << 16..1 << 47).contains(word)
                && !of_stack.contains(word)
                && seen.insert(*word)
                && (layout.minor < MUTEXES_ONLY_SINCE || has_mutex(*word))
        };
        let objects: Vec<u64> = words.into_iter().filter(may_be).take(OBJECTS_MAX).collect();
        let pieces: Vec<(u64, usize)> = objects.iter().map(|object| (*object, size)).collect();
        let mut bytes = vec![0; size * objects.len()];
        read_each(memory, &pieces, &mut bytes, size);
        let found = objects.iter().zip(bytes.chunks_exact(size)).find_map(|(object, bytes)| {
            locks.of(memory, layout, *object, bytes, futex, has_mutex(*object))
        })?;
        if locks.last.len() >= REMEMBERED_MAX {
            locks.last.clear();
        }
        locks.last.insert(owner.tid, found.object);
        Some(found)
    }
}

/// The minor versions since which some locks, and all, are mutexes.
const MUTEXES_SINCE: u8 = 13;
const MUTEXES_ONLY_SINCE: u8 = 14;

/// Reads these pieces of equal size; `bytes`: zeros, which stay where nothing can be read. Nearly
/// all are objects or code, so few calls do.
fn read_each<M: ReadMemory>(memory: &M, pieces: &[(u64, usize)], bytes: &mut [u8], size: usize) {
    if memory.read_pieces(pieces, bytes).is_some() {
        return;
    }
    if pieces.len() <= 1 {
        return;
    }
    let (first, second) = pieces.split_at(pieces.len() / 2);
    let (bytes_of_first, bytes_of_second) = bytes.split_at_mut(first.len() * size);
    read_each(memory, first, bytes_of_first, size);
    read_each(memory, second, bytes_of_second, size);
}

/// Bytes of a lock's object that are read.
fn object_size(layout: &Layout) -> usize {
    (layout.object.kind + HOLDER + 8) as usize
}

impl Locks {
    /// Returns the lock at `object` with these bytes, if a thread that waits at `futex` can wait
    /// for it. `has_mutex`: the thread's stack has the address of what would be its mutex.
    fn of<M: ReadMemory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        object: u64,
        bytes: &[u8],
        futex: u64,
        has_mutex: bool,
    ) -> Option<Waited> {
        let kind_at = layout.object.kind;
        let word = |at: u64| u64_at(bytes, at as usize);
        let waited_at = word(kind_at + WAITED_AT)?;
        // Of a mutex: it is locked, and threads wait for it.
        let fits = waited_at == futex || (has_mutex && waited_at as u8 & 3 == 3);
        if !fits {
            return None;
        }
        let kind = self.kind(memory, layout, word(kind_at)?);
        let holder = if kind == Kind::RLock { word(kind_at + HOLDER)? } else { 0 };
        (kind != Kind::Other).then_some(Waited { object, kind, holder })
    }

    fn kind<M: ReadMemory>(&mut self, memory: &M, layout: &Layout, address: u64) -> Kind {
        if let Some(kind) = self.kinds.get(&address) {
            return *kind;
        }
        let is = |name: &[u8]| layout.object.is_named(memory, address, name);
        let kind = match () {
            () if is(b"_thread.lock") => Kind::Lock,
            () if is(b"_thread.RLock") => Kind::RLock,
            () => Kind::Other,
        };
        if self.kinds.len() >= REMEMBERED_MAX {
            self.kinds.clear();
        }
        self.kinds.insert(address, kind);
        kind
    }
}
