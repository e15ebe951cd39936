//! The thread that waits.

use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::Jvm;
use crate::runtimes::jvm::blockers::places::Places;
use crate::runtimes::jvm::blockers::proof::Proof;
use crate::runtimes::jvm::blockers::{KNOWN_MAX, Reference, Status};
use crate::runtimes::jvm::frame_anchors::holds;
use crate::runtimes::jvm::heap_objects::Declared;
use crate::runtimes::jvm::java_threads::THREAD;
use crate::runtimes::jvm::virtual_thread_names::CLASS as VIRTUAL;

/// The native thread of a `java.lang.Thread`.
pub const EETOP: Declared = (THREAD, "eetop");
/// What the thread gave to `LockSupport.park`.
const PARKED_ON: Declared = (THREAD, "parkBlocker");
/// The carrier on which a virtual thread is mounted.
pub const CARRIER: Declared = (VIRTUAL, "carrierThread");

/// A thread that waits for something of Java.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// Its stack pointer.
    pub sp: u64,
    pub thread: u64,
    /// Monitors; 0: none.
    pub pending: u64,
    pub waiting: u64,
    /// Its `java.lang.Thread`. The collector may have moved it, but what stands here about the
    /// thread was true when it was moved, and since then the thread has waited.
    object: u64,
    /// What the thread refers to as its virtual thread, if that is another address.
    other: Option<u64>,
    /// Where that refers to its carrier, if it is a virtual thread.
    carrier: Option<u64>,
    /// Where the reference to the object is that it is parked on.
    pub parked_on: Option<u64>,
}

/// What the object of a thread says.
struct Itself {
    eetop: u64,
    /// Where it refers to what it is parked on, and whether that is null.
    parked_on: u64,
    is_parked: bool,
}

impl<M: ReadMemory> Jvm<M> {
    /// Returns the thread with the stack at `sp` if it waits for a monitor or is parked on an
    /// object. For other threads it takes two calls to read memory.
    pub fn waiter(&mut self, sp: u64, places: Places) -> Option<Waiter> {
        let anchors = self.anchors.places?;
        let thread = self.thread_on_stack(sp)?;
        let own = [
            anchors.base,
            anchors.size,
            places.pending,
            places.waiting,
            places.object,
            places.vthread.unwrap_or(places.object),
        ];
        let known = self.blockers.handles.get(&thread).copied().filter(|_| places.handles);
        let [own, handles, references] = self.of_thread(thread, own, known)?;
        let [base, size, pending, waiting] = [own[0], own[1], handles[0], handles[1]];
        let [object, vthread] = references;
        if !holds((base, size), sp) {
            self.forget_stack(thread);
            return None;
        }
        let objects = self.objects.as_ref().ok()?;
        let (object, vthread) = (objects.plain(object), objects.plain(vthread));
        let other = (vthread != 0 && !objects.same(object, vthread)).then_some(vthread);
        let itself = self.itself(object);
        let proven = itself.as_ref().is_some_and(|itself| itself.eetop == thread);
        if !proven && !self.thread_pointers().contains(&thread) {
            self.forget_stack(thread);
            return None;
        }
        let carrier = other.and_then(|other| self.object_field(other, CARRIER));
        let parked_on = |itself: Itself| itself.is_parked.then_some(itself.parked_on);
        let parked_on = match other {
            _ if !proven => None,
            None => itself.and_then(parked_on),
            Some(other) => match carrier {
                Some(carrier) => self.parked_on_of_mounted(other, carrier, object),
                // The thread's object, of which one reference is stale.
                None => {
                    self.itself(other).filter(|itself| itself.eetop == thread).and_then(parked_on)
                }
            },
        };
        let of_java = pending != 0 || waiting != 0 || parked_on.is_some();
        (of_java || self.may_wait_for_class(thread)).then_some(Waiter {
            sp,
            thread,
            pending,
            waiting,
            object,
            other,
            carrier,
            parked_on,
        })
    }

    /// Whether the thread's references to itself lead to what was read. Where objects are moved
    /// while Java runs, an object that has moved leaves its old self behind, whose references look
    /// good again after the next collection; later it is overwritten.
    pub fn is_itself(&self, waiter: &Waiter, places: Places, proof: &mut Proof) -> Option<bool> {
        let objects = self.objects.as_ref().ok()?;
        let mut leads_to = |place: u64, object: u64| {
            let mut at = waiter.thread.checked_add(place)?;
            if places.handles {
                at = proof.word(self, at)?;
            }
            let found = proof.root(self, at)?;
            Some(matches!(found, Reference::Object(found) if objects.same(found, object)))
        };
        let of_other = match (waiter.other, places.vthread) {
            (Some(other), Some(place)) => leads_to(place, other)?,
            (Some(_), None) => false,
            (None, _) => true,
        };
        let of_carrier = |proof: &mut Proof| {
            match waiter.carrier {
            Some(at) => proof.field(self, at).map(|carrier| {
                matches!(carrier, Reference::Object(of) if objects.same(of, waiter.object))
            }),
            None => Some(true),
        }
        };
        Some(of_other && leads_to(places.object, waiter.object)? && of_carrier(proof)?)
    }

    /// Reads base and size of the stack, both monitors, and the references to the
    /// `java.lang.Thread` and the virtual thread. `known`: where the last two were read before.
    fn of_thread(
        &mut self,
        thread: u64,
        at: [u64; 6],
        known: Option<[u64; 2]>,
    ) -> Option<[[u64; 2]; 3]> {
        let mut pieces = [(0, 8); 8];
        for (piece, at) in pieces.iter_mut().zip(at) {
            piece.0 = thread.checked_add(at)?;
        }
        let handles = self.blockers.places?.handles;
        let mut words = [[0; 8]; 8];
        if let Some(known) = known {
            (pieces[6].0, pieces[7].0) = (known[0], known[1]);
            if self.memory.read_pieces(&pieces, words.as_flattened_mut()).is_some() {
                let words = words.map(u64::from_le_bytes);
                if words[4..6] == known {
                    return Some([
                        [words[0], words[1]],
                        [words[2], words[3]],
                        [words[6], words[7]],
                    ]);
                }
            }
            self.blockers.handles.remove(&thread);
        }
        self.memory.read_pieces(&pieces[..6], words[..6].as_flattened_mut())?;
        let [base, size, pending, waiting, object, vthread, ..] = words.map(u64::from_le_bytes);
        let found = [[base, size], [pending, waiting]];
        if !handles {
            return Some([found[0], found[1], [object, vthread]]);
        }
        let mut references = [[0; 8]; 2];
        self.memory.read_pieces(&[(object, 8), (vthread, 8)], references.as_flattened_mut())?;
        if self.blockers.handles.len() >= KNOWN_MAX {
            self.blockers.handles.clear();
        }
        self.blockers.handles.insert(thread, [object, vthread]);
        Some([found[0], found[1], references.map(u64::from_le_bytes)])
    }

    /// Reads the object of a thread.
    fn itself(&mut self, object: u64) -> Option<Itself> {
        let objects = self.objects.as_mut().ok()?;
        let (klass, width) = objects.klass_place();
        let reference = objects.width();
        if let Some(eetop_at) = objects.usual_field(object, EETOP)
            && let Some(parked_on) = objects.usual_field(object, PARKED_ON)
        {
            let mut bytes = [0; 24];
            let bytes = &mut bytes[..width + 8 + reference];
            let pieces =
                [(object.checked_add(klass)?, width), (eetop_at, 8), (parked_on, reference)];
            self.memory.read_pieces(&pieces, bytes)?;
            let (mut klass, mut eetop) = ([0; 8], [0; 8]);
            klass[..width].copy_from_slice(&bytes[..width]);
            eetop.copy_from_slice(&bytes[width..width + 8]);
            let klass = u64::from_le_bytes(klass);
            if objects.known_field(object, klass, EETOP) == Some(eetop_at)
                && objects.known_field(object, klass, PARKED_ON) == Some(parked_on)
            {
                let is_parked = objects.decode(&bytes[width + 8..]) != 0;
                let eetop = u64::from_le_bytes(eetop);
                return Some(Itself { eetop, parked_on, is_parked });
            }
        }
        let (memory, layout) = (&self.memory, &self.layout);
        let eetop = memory.read_u64(objects.field(memory, layout, object, EETOP)?)?;
        let parked_on = objects.field(memory, layout, object, PARKED_ON)?;
        let is_parked = objects.reference(memory, parked_on)? != 0;
        Some(Itself { eetop, parked_on, is_parked })
    }

    /// Returns where a virtual thread refers to what it is parked on, if it refers to this carrier
    /// at `on`.
    fn parked_on_of_mounted(&mut self, mounted: u64, on: u64, carrier: u64) -> Option<u64> {
        let objects = self.objects.as_mut().ok()?;
        let (memory, layout) = (&self.memory, &self.layout);
        if !objects.same(objects.reference(memory, on)?, carrier) {
            return None;
        }
        let parked_on = objects.field(memory, layout, mounted, PARKED_ON)?;
        (objects.reference(memory, parked_on)? != 0).then_some(parked_on)
    }

    /// Reads in which call of Java the thread is.
    pub fn status(&mut self, waiter: &Waiter, proof: &mut Proof) -> Option<Status> {
        let moves = self.moves_any_time();
        let objects = self.objects.as_mut().ok()?;
        let (memory, layout) = (&self.memory, &self.layout);
        // Since JDK 19 the number is in an object of its own.
        let at = match objects.field(memory, layout, waiter.object, (THREAD, "holder")) {
            Some(holder) => {
                let holder = if moves {
                    let Reference::Object(holder) = proof.field(self, holder)? else { return None };
                    holder
                } else {
                    objects.reference(memory, holder)?
                };
                self.object_field(holder, ("", "threadStatus"))?
            }
            None => objects.field(memory, layout, waiter.object, (THREAD, "threadStatus"))?,
        };
        let mut number = [0; 4];
        self.memory.read_exact(at, &mut number)?;
        Some(Status::of(u32::from_le_bytes(number)))
    }
}
