//! What a blocked Java thread waits for, and who holds it.
//!
//! ```text
//! places    where HotSpot keeps it
//! waiter    the thread that waits
//! proof     what must be unchanged when all is read
//! monitor   `synchronized`, `Object.wait`, `Thread.join`
//! park      `java.util.concurrent`
//! class_initialization   a class that another thread initialises
//! holder    from a `java.lang.Thread` to its native thread
//! ```
//!
//! Everything is read while the target runs, so what was read may not belong together. At the end
//! every word that led to the result is read again, and the collector's state with them. If one
//! has changed, all is read once more, then once without the holder. What is not proven then is
//! unknown: no holder is better than a wrong one.

mod class_initialization;
mod holder;
mod monitor;
mod park;
mod places;
mod proof;
#[cfg(test)]
pub mod tests;
mod waiter;

use rustc_hash::FxHashMap;

use crate::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use crate::model::vocabulary::frame::RawName;
use crate::model::vocabulary::text::{NAME_CAP, clean};
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::generated_class_names::class_name;
use crate::runtimes::jvm::heap_objects::Objects;
use crate::runtimes::jvm::layout::Layout;
use crate::runtimes::jvm::methods::{Evidence, symbol};
use crate::runtimes::jvm::vm_structs::{Missing, Structs};
use crate::runtimes::jvm::{Jvm, read_limit};
use class_initialization::ClassPlaces;
use places::Places;
use proof::{Heap, Proof};

/// Maximum monitors whose owner is remembered, and threads whose handles are.
const KNOWN_MAX: usize = 1 << 14;
/// Attempts to find the holder, too.
const ATTEMPTS: usize = 2;
/// Maximum dimensions of an array (the Java Virtual Machine Specification, 4.4.1).
const DIMENSIONS_MAX: usize = 255;

/// What was found out before, to find it faster.
#[derive(Default)]
pub struct Blockers {
    places: Option<Places>,
    /// By thread: the handles of its `java.lang.Thread` and of its virtual thread. They are
    /// compared whenever they are used.
    handles: FxHashMap<u64, [u64; 2]>,
    /// By monitor: the thread that owned it, which is asked first.
    owners: FxHashMap<u64, u64>,
    /// By monitor: what was found last for a thread that enters it.
    entered: FxHashMap<u64, Entered>,
    class_places: Option<ClassPlaces>,
    /// By monitor of an init lock: the class, which is asked first.
    init_locks: FxHashMap<u64, u64>,
    /// Where a thread refers to the class for which it waits; once it was found.
    class_in_thread: Option<u64>,
}

/// What was proven of a monitor that a thread enters.
struct Entered {
    /// All that led to it.
    words: Evidence,
    heap: Heap,
    blocker: RawBlocker,
}

impl Blockers {
    pub fn of(s: &Structs, layout: &Layout, objects: &Result<Objects, Missing>) -> Blockers {
        let places = objects.as_ref().ok().and_then(|_| Places::of(s, layout));
        Blockers { places, class_places: ClassPlaces::of(s, layout), ..Blockers::default() }
    }
}

/// A reference as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reference {
    Null,
    /// The collector may have moved the object from here.
    Stale(u64),
    Object(u64),
}

/// A number of Java's `Thread.threadStatus`: bits of JVMTI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    InObjectWait,
    EntersMonitor,
    Parked,
    Runnable,
    Other,
}

impl Status {
    pub fn of(number: u32) -> Status {
        match number {
            401 | 417 => Status::InObjectWait,
            1025 => Status::EntersMonitor,
            657 | 673 => Status::Parked,
            5 => Status::Runnable,
            _ => Status::Other,
        }
    }
}

impl<M: ReadMemory> Jvm<M> {
    /// Returns what the blocked thread with the stack at `sp` waits for; see
    /// [`crate::unwinder::Generated::blocker`].
    pub fn blocker_on_stack(&mut self, sp: u64) -> Option<RawBlocker> {
        if self.memory.begin(read_limit::BLOCKER) {
            self.forget_code();
        }
        let places = self.blockers.places?;
        let mut last = None;
        for attempt in 0..=ATTEMPTS {
            let waiter = self.waiter(sp, places)?;
            if let Some(found) = self.entered_before(&waiter) {
                return Some(found);
            }
            // A lock that changes hands all the time is still the same lock.
            let mut proof = Proof::begin(self, attempt < ATTEMPTS);
            let found = self.blocker_of(&waiter, places, &mut proof);
            if let Some(blocker) = found
                && proof.holds(self)
            {
                self.remember_entered(waiter.pending, blocker, proof);
                return found;
            }
            if found.is_none() && attempt > 0 {
                return None;
            }
            last = found;
        }
        // Objects are being moved.
        Some(RawBlocker { object: 0, class: None, holder: RawHolder::Unknown, ..last? })
    }

    /// Returns what was found for another thread that entered the same monitor, if every word that
    /// led to that is the same now, and no object was moved since.
    fn entered_before(&self, waiter: &waiter::Waiter) -> Option<RawBlocker> {
        let before = self.blockers.entered.get(&waiter.pending)?;
        let same = before.words.holds(&self.memory) && Heap::read(self) == before.heap;
        same.then_some(before.blocker)
    }

    fn remember_entered(&mut self, monitor: u64, blocker: RawBlocker, proof: Proof) {
        // A virtual thread may be mounted at any time, which changes none of the words.
        let proven = !matches!(blocker.holder, RawHolder::Unknown | RawHolder::Unmounted);
        let known = blocker.kind == BlockerKind::Monitor && proven;
        if !known || !proof.for_others || monitor == 0 || proof.heap == Heap::Moving {
            return;
        }
        let Proof { words, heap, .. } = proof;
        let entered = &mut self.blockers.entered;
        if entered.len() >= KNOWN_MAX {
            entered.clear();
        }
        entered.insert(monitor, Entered { words, heap, blocker });
    }

    fn blocker_of(
        &mut self,
        waiter: &waiter::Waiter,
        places: Places,
        proof: &mut Proof,
    ) -> Option<RawBlocker> {
        // What a thread enters is read from the thread alone.
        if self.moves_any_time() && waiter.pending == 0 && !self.is_itself(waiter, places, proof)? {
            return None;
        }
        if waiter.pending != 0 || waiter.waiting != 0 {
            self.monitor(waiter, places, proof)
        } else if waiter.parked_on.is_some() {
            self.parked(waiter, proof)
        } else {
            self.class_of_native_lock(waiter, proof)
        }
    }

    /// Whether the collector moves objects while Java code runs.
    pub fn moves_any_time(&self) -> bool {
        self.objects.as_ref().is_ok_and(|objects| objects.moved_any_time)
    }

    /// Returns a blocker of this kind whose object is known, or may have been moved.
    fn blocker_at(&mut self, kind: BlockerKind, object: Reference) -> RawBlocker {
        let unknown = RawBlocker { kind, object: 0, class: None, holder: RawHolder::Unknown };
        match object {
            Reference::Object(object) => {
                let class = self.class_of(object);
                let object = self.objects.as_ref().map_or(0, |objects| objects.colourless(object));
                RawBlocker { object, class, ..unknown }
            }
            Reference::Null | Reference::Stale(_) => unknown,
        }
    }

    fn class_of(&self, object: u64) -> Option<RawName> {
        let objects = self.objects.as_ref().ok()?;
        self.shown_class(&objects.class_symbol(&self.memory, &self.layout, object)?)
    }

    /// Returns the class with the symbol at this address.
    fn class_name(&self, at: u64) -> Option<RawName> {
        self.shown_class(&symbol(&self.memory, &self.layout, at)?)
    }

    fn shown_class(&self, symbol: &str) -> Option<RawName> {
        let name = java_name(symbol)?;
        let shown = clean(&name, NAME_CAP);
        if shown.is_empty() { None } else { self.names.thread_name(&shown) }
    }
}

/// Returns a class as Java writes it, from its symbol: `[[Ljava/lang/String;` is
/// `java.lang.String[][]`.
fn java_name(symbol: &str) -> Option<String> {
    let element = symbol.trim_start_matches('[');
    let dimensions = symbol.len() - element.len();
    if dimensions == 0 {
        return Some(class_name(symbol));
    }
    let element = match element {
        "Z" => "boolean".to_owned(),
        "B" => "byte".to_owned(),
        "C" => "char".to_owned(),
        "S" => "short".to_owned(),
        "I" => "int".to_owned(),
        "J" => "long".to_owned(),
        "F" => "float".to_owned(),
        "D" => "double".to_owned(),
        class => class_name(class.strip_prefix('L')?.strip_suffix(';')?),
    };
    (dimensions <= DIMENSIONS_MAX).then(|| element + &"[]".repeat(dimensions))
}
