//! Threads that wait for a class that another thread initialises.
//!
//! A class says which thread initialises it. Who waits for that waits in one of two ways:
//!
//! * For the class's init lock, an `int[0]` in a monitor. The monitor does not say which class that
//!   is. `InstanceKlass::initialize_impl` has the class on the waiter's stack. Other classes may be
//!   there, too; the class's mirror, its `java.lang.Class`, refers to the lock.
//! * For a native monitor, in those virtual machines that have a state `being_linked` (JDK 21.0.2
//!   is one). Only the thread says for which class (`JavaThread::_class_to_be_initialized`). The
//!   offset of that is not exported. It is searched for once: nothing else in a thread refers to a
//!   class that another thread initialises.

use crate::model::vocabulary::blocker::{BlockerKind, RawBlocker};
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::Jvm;
use crate::runtimes::jvm::blockers::places::Places;
use crate::runtimes::jvm::blockers::proof::Proof;
use crate::runtimes::jvm::blockers::waiter::Waiter;
use crate::runtimes::jvm::blockers::{KNOWN_MAX, Reference, Status};
use crate::runtimes::jvm::layout::Layout;
use crate::runtimes::jvm::vm_structs::Structs;

/// Bytes of the stack that are searched. On JDK 8 to 26 the class is within the first 620.
const STACK_SEARCHED: usize = 2 << 10;
/// Maximum bytes of a thread that are searched; JDK 25 has some 2,200.
const THREAD_SEARCHED: u64 = 8 << 10;
/// Bytes of a mirror that are searched: more than the fields of `java.lang.Class`.
const MIRROR_SEARCHED: usize = 256;
/// The class of init locks.
const INTS: &str = "[I";

/// Where HotSpot keeps the state of a class's initialisation.
#[derive(Clone, Copy, Debug)]
pub struct ClassPlaces {
    /// In a class: its state, one byte; the thread that initialises it.
    state: u64,
    thread: u64,
    /// In a class: its constants. They refer back to it.
    constants: u64,
    pool_holder: u64,
    name: u64,
    /// In a class: its mirror, which may be behind one more pointer.
    mirror: u64,
    mirror_is_handle: bool,
    /// The state of a class that is being initialised.
    initialized_now: u64,
    /// Init locks are native monitors.
    native: Option<NativePlaces>,
}

/// What is needed where init locks are native monitors.
#[derive(Clone, Copy, Debug)]
struct NativePlaces {
    thread_size: usize,
    /// In a thread: its state.
    state: u64,
    /// The state of a thread that waits inside the virtual machine.
    blocked: u64,
}

impl ClassPlaces {
    /// Returns `None` where the tables lack an entry; then no thread waits for a class.
    pub fn of(s: &Structs, layout: &Layout) -> Option<ClassPlaces> {
        let state = |name: &str| {
            let number = s.constant(&format!("InstanceKlass::{name}"))?;
            u64::try_from(number).ok().filter(|number| *number <= 255)
        };
        let native = || {
            state("being_linked")?;
            Some(NativePlaces {
                thread_size: s.size("JavaThread").ok()?.min(THREAD_SEARCHED) as usize,
                state: s.offset("JavaThread", "_thread_state").ok()?,
                blocked: u64::try_from(s.constant("_thread_blocked")?).ok()?,
            })
        };
        let mirror = s.field("Klass", "_java_mirror")?;
        Some(ClassPlaces {
            state: s.offset("InstanceKlass", "_init_state").ok()?,
            thread: s.offset("InstanceKlass", "_init_thread").ok()?,
            constants: s.offset("InstanceKlass", "_constants").ok()?,
            pool_holder: layout.method.pool_holder,
            name: layout.method.klass_name,
            mirror: s.offset("Klass", "_java_mirror").ok()?,
            mirror_is_handle: mirror.kind.contains("Handle"),
            initialized_now: state("being_initialized")?,
            native: native(),
        })
    }
}

impl<M: ReadMemory> Jvm<M> {
    /// Returns the class for whose init lock a thread waits. The virtual machine waits for the
    /// monitor on its own, not Java.
    pub fn class_of_monitor(
        &mut self,
        waiter: &Waiter,
        monitor: u64,
        places: Places,
        proof: &mut Proof,
    ) -> Option<RawBlocker> {
        let class_places = self.blockers.class_places?;
        let Reference::Object(lock) = self.monitor_object(monitor, places, proof)? else {
            return None;
        };
        let objects = self.objects.as_ref().ok()?;
        if objects.class_symbol(&self.memory, &self.layout, lock)? != INTS {
            return None;
        }
        let known = self.blockers.init_locks.get(&monitor).copied();
        let known = known.and_then(|class| Some((class, self.lock_in_mirror(class, lock)?)));
        let (class, at) = match known {
            Some(known) => known,
            None => {
                let classes = self.classes_among(&self.words_of_stack(waiter.sp), waiter.thread);
                let with_lock = |class| Some((class, self.lock_in_mirror(class, lock)?));
                let mut found = classes.into_iter().filter_map(with_lock);
                found.next().filter(|_| found.next().is_none())?
            }
        };
        let mirror = class.checked_add(class_places.mirror)?;
        let mirror = match class_places.mirror_is_handle {
            true => proof.word(self, mirror)?,
            false => mirror,
        };
        let Reference::Object(mirror) = proof.root(self, mirror)? else { return None };
        let Reference::Object(proven) = proof.field(self, mirror.checked_add(at)?)? else {
            return None;
        };
        if !self.objects.as_ref().ok()?.same(proven, lock) {
            return None;
        }
        if self.blockers.init_locks.len() >= KNOWN_MAX {
            self.blockers.init_locks.clear();
        }
        self.blockers.init_locks.insert(monitor, class);
        self.initialized_by_other(class, waiter, proof)
    }

    /// Whether a thread that waits for no monitor may wait for a class. It takes one read where
    /// threads say so, and none where init locks are monitors.
    pub fn may_wait_for_class(&self, thread: u64) -> bool {
        let Some(native) = self.blockers.class_places.and_then(|places| places.native) else {
            return false;
        };
        if let Some(at) = self.blockers.class_in_thread {
            return self.memory.read_u64(thread.wrapping_add(at)).is_some_and(|word| word != 0);
        }
        let state = self.words(&[thread.checked_add(native.state).map(|at| (at, 4))]);
        state == [Some(native.blocked)]
    }

    /// Returns the class for which a thread waits where init locks are native monitors.
    pub fn class_of_native_lock(
        &mut self,
        waiter: &Waiter,
        proof: &mut Proof,
    ) -> Option<RawBlocker> {
        let native = self.blockers.class_places?.native?;
        if self.status(waiter, proof)? != Status::Runnable {
            return None;
        }
        let at = match self.blockers.class_in_thread {
            Some(at) => at,
            None => self.class_in_thread(waiter, native.thread_size)?,
        };
        let class = proof.word(self, waiter.thread.checked_add(at)?)?;
        let found = self.initialized_by_other(class, waiter, proof)?;
        self.blockers.class_in_thread = Some(at);
        Some(found)
    }

    /// Finds the only place in the thread that refers to a class which another thread initialises,
    /// and which is on the stack of this one.
    fn class_in_thread(&self, waiter: &Waiter, size: usize) -> Option<u64> {
        let words = self.aligned_words(waiter.thread, size);
        let in_thread = self.classes_among(&words, waiter.thread);
        let [class] = in_thread[..] else { return None };
        let on_stack = self.words_of_stack(waiter.sp).contains(&class);
        let mut places = (0..).step_by(8).zip(&words).filter(|(_, word)| **word == class);
        let (at, _) = places.next().filter(|_| on_stack)?;
        places.next().is_none().then_some(at)
    }

    /// Returns the blocker of a thread that waits for this class, if another thread initialises it.
    fn initialized_by_other(
        &mut self,
        class: u64,
        waiter: &Waiter,
        proof: &mut Proof,
    ) -> Option<RawBlocker> {
        let places = self.blockers.class_places?;
        let state = proof.number(self, class.checked_add(places.state)?, 1)?;
        let thread = proof.word(self, class.checked_add(places.thread)?)?;
        let constants = proof.word(self, class.checked_add(places.constants)?)?;
        let back = proof.word(self, constants.checked_add(places.pool_holder)?)?;
        let by_other = state == places.initialized_now && thread != waiter.thread && back == class;
        if !by_other || !self.is_thread(thread) {
            return None;
        }
        let holder = match proof.holders {
            // No thread waits for itself: memory was read while it changed.
            true => (self.thread_holder(thread, proof))
                .filter(|holder| self.thread_holder(waiter.thread, proof) != Some(*holder)),
            false => None,
        };
        let symbol = self.memory.read_u64(class.checked_add(places.name)?)?;
        Some(RawBlocker {
            kind: BlockerKind::ClassInit,
            object: class,
            class: self.class_name(symbol),
            holder: holder.unwrap_or_default(),
        })
    }

    /// Returns those of these words that are classes which another thread initialises.
    fn classes_among(&self, words: &[u64], waiter: u64) -> Vec<u64> {
        let Some(places) = self.blockers.class_places else { return Vec::new() };
        // No address is below the first page, or in the kernel's half.
        let is_address = |word: &u64| word.is_multiple_of(8) && (1 << 12..1 << 47).contains(word);
        let mut classes: Vec<u64> = words.iter().copied().filter(is_address).collect();
        classes.sort_unstable();
        classes.dedup();
        let mut keep = |at: u64, width: usize, is_right: &dyn Fn(u64) -> bool| {
            let words =
                self.words(&classes.iter().map(|c| Some((c + at, width))).collect::<Vec<_>>());
            let mut words = words.into_iter();
            classes.retain(|_| words.next().flatten().is_some_and(is_right));
        };
        keep(places.state, 1, &|state| state == places.initialized_now);
        keep(places.thread, 8, &|thread| thread != 0 && thread != waiter);
        classes.retain(|class| {
            let constants = self.memory.read_u64(class.wrapping_add(places.constants));
            let holder = constants.and_then(|at| at.checked_add(places.pool_holder));
            holder.and_then(|at| self.memory.read_u64(at)) == Some(*class)
        });
        classes
    }

    /// Returns where in its mirror a class refers to this lock.
    fn lock_in_mirror(&self, class: u64, lock: u64) -> Option<u64> {
        let places = self.blockers.class_places?;
        let objects = self.objects.as_ref().ok()?;
        let mut mirror = self.memory.read_u64(class.checked_add(places.mirror)?)?;
        if places.mirror_is_handle {
            mirror = self.memory.read_u64(mirror)?;
        }
        let (klass, klass_width) = objects.klass_place();
        let width = objects.width();
        let header = (klass + klass_width as u64).next_multiple_of(width as u64);
        let mut bytes = vec![0; MIRROR_SEARCHED];
        let read = self.memory.read(objects.plain(mirror).checked_add(header)?, &mut bytes);
        let mut references = bytes[..read].chunks_exact(width);
        let nth = references.position(|bytes| objects.same(objects.decode(bytes), lock))?;
        Some(header + (nth * width) as u64)
    }

    fn words_of_stack(&self, sp: u64) -> Vec<u64> {
        self.aligned_words(sp - sp % 8, STACK_SEARCHED)
    }

    /// Reads the words of this part of memory, as far as it can be read.
    fn aligned_words(&self, at: u64, size: usize) -> Vec<u64> {
        let mut bytes = vec![0; size];
        let read = self.memory.read(at, &mut bytes);
        let words = bytes[..read].as_chunks::<8>().0;
        words.iter().map(|word| u64::from_le_bytes(*word)).collect()
    }
}
