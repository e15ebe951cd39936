//! Names of virtual threads (JDK 21 and later): which virtual thread is mounted on a carrier's
//! stack.
//!
//! A mounted virtual thread runs on its carrier's stack, above the frame of
//! `Continuation.enterSpecial`. That frame has a reference to the continuation. So the copied stack
//! says which continuation was mounted at the moment of the copy. The rest is read from memory as
//! it is now, up to a tick later: continuation -> its runnable -> virtual thread -> back to the
//! continuation, and the name. Meanwhile objects may have been moved and others put in their place;
//! virtual threads are numerous and alike. So a name is valid only if one of these holds:
//!
//! * Since before the copy no collection has begun, by the collector's own count.
//! * The same virtual thread, by its unique number, was found in the same place before the copy.
//!
//! Both apply only where objects are moved while Java stands still. Where they are moved at any
//! time (ZGC, Shenandoah) references on stacks may be stale. Then a name is valid only if
//!
//! * the virtual thread is still mounted on the thread with this stack.
//!
//! Otherwise the stack is shown under its carrier's name. So is the stack of a virtual thread
//! without a name.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::clock::monotonic;
use crate::model::vocabulary::frame::{Ns, RawName, ThreadKind};
use crate::model::vocabulary::text::clean;
use crate::process::memory::ReadMemory;
use crate::runtimes::frame_and_thread_names::Names;
use crate::runtimes::jvm::code_cache::{Kind, Nmethod};
use crate::runtimes::jvm::heap_objects::Objects;
use crate::runtimes::jvm::java_threads::THREAD;
use crate::runtimes::jvm::layout::Layout;
use crate::runtimes::jvm::vm_structs::{Missing, Structs};
use crate::runtimes::jvm::walk::StackCursor;
use crate::runtimes::jvm::{Jvm, NAME_MAX};

/// The method whose frame is the entry of a continuation.
const ENTRY: &str = "jdk.internal.vm.Continuation.enterSpecial";
/// The blob to which a continuation's outermost frame on the stack returns while other frames of it
/// are still on the heap.
const BARRIER: &str = "StubRoutines (continuation";
pub const CLASS: &str = "java/lang/VirtualThread";
/// Distance in words from the lowest address of the entry's frame to the reference to the
/// continuation (src/hotspot/share/runtime/continuationEntry.hpp). Before it are the processor's
/// part, which takes a word though it is empty, and the enclosing entry.
const CONTINUATION: i64 = 2;
/// Maximum continuations visited in one stack. Of nested ones only the outermost is a virtual
/// thread's.
const NESTED_MAX: usize = 4;
/// Maximum continuations remembered.
const KNOWN_MAX: usize = 4096;
/// Maximum readings kept of the collector's count. There are at most two per stack and one per
/// epoch.
const READINGS_MAX: usize = 256;

/// Where a collector keeps its count.
#[derive(Clone, Copy, Debug)]
struct Counter {
    count: u64,
    /// Whether it is collecting while Java stands still.
    active: u64,
}

/// A reading of the collector's count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collections {
    count: u32,
    /// Java stands still for it.
    pub active: bool,
}

impl Counter {
    /// Reads the count first: a collection that begins in between is then seen as active.
    fn read<M: ReadMemory>(self, memory: &M) -> Option<Collections> {
        let (mut count, mut active) = ([0; 4], [0]);
        memory.read_exact(self.count, &mut count)?;
        memory.read_exact(self.active, &mut active)?;
        Some(Collections { count: u32::from_le_bytes(count), active: active[0] != 0 })
    }
}

/// A continuation found in a stack.
#[derive(Clone, Copy)]
struct Found {
    continuation: u64,
    /// The stack pointer of its entry.
    sp: u64,
}

/// The virtual thread of a continuation.
struct MountedThread {
    chain: Chain,
    /// `None`: it has no name.
    name: Option<RawName>,
    /// When this virtual thread was first found here.
    since: Ns,
    /// The name was read again since then and was the same.
    proven: bool,
}

/// The references from a continuation to its virtual thread and back, the thread's number, and the
/// address of its name.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Chain {
    places: [(u64, usize); 5],
    bytes: Vec<u8>,
}

impl Chain {
    fn read<M: ReadMemory>(memory: &M, places: [(u64, usize); 5]) -> Option<Chain> {
        let mut bytes = vec![0; places.iter().map(|(_, length)| length).sum()];
        memory.read_pieces(&places, &mut bytes)?;
        Some(Chain { places, bytes })
    }

    fn holds<M: ReadMemory>(&self, memory: &M) -> bool {
        Chain::read(memory, self.places).as_ref() == Some(self)
    }

    fn piece(&self, number: usize) -> &[u8] {
        let at = self.places[..number].iter().map(|(_, length)| length).sum::<usize>();
        &self.bytes[at..at + self.places[number].1]
    }

    fn id(&self) -> &[u8] {
        self.piece(3)
    }

    fn name(&self) -> &[u8] {
        self.piece(4)
    }
}

/// State of a virtual machine's virtual threads.
#[derive(Default)]
pub struct Virtuals {
    counter: Option<Counter>,
    /// The collector moves objects only while Java stands still.
    stands_still: bool,
    /// A virtual thread was seen.
    seen: bool,
    known: FxHashMap<u64, MountedThread>,
    /// Readings of the count with the times after which they were taken, oldest first.
    readings: VecDeque<(Ns, Collections)>,
    /// Continuations in the stack that is being walked, innermost first.
    found: Vec<Found>,
}

impl Virtuals {
    pub fn of<M: ReadMemory>(
        memory: &M,
        s: &Structs,
        objects: &Result<Objects, Missing>,
    ) -> Virtuals {
        let counter = || {
            let heap = memory.read_u64(s.address("Universe", "_collectedHeap").ok()?)?;
            let active =
                [("CollectedHeap", "_is_stw_gc_active"), ("CollectedHeap", "_is_gc_active")];
            Some(Counter {
                count: heap.checked_add(s.offset("CollectedHeap", "_total_collections").ok()?)?,
                active: heap.checked_add(s.offset_of_any(&active).ok()?)?,
            })
        };
        let stands_still = objects.as_ref().is_ok_and(|objects| !objects.moved_any_time);
        Virtuals { counter: counter(), stands_still, ..Virtuals::default() }
    }

    /// Starts a walk.
    pub fn begin(&mut self) {
        self.found.clear();
    }

    /// Reads the collector's count, for later stacks to be compared with; called once per epoch.
    /// Nothing is read where there are no virtual threads, or where the count proves nothing.
    pub fn count<M: ReadMemory>(&mut self, memory: &M) -> Option<Collections> {
        let counted = self.counter.filter(|_| self.seen && self.stands_still)?.read(memory)?;
        if self.readings.len() >= READINGS_MAX {
            self.readings.pop_front();
        }
        self.readings.push_back((monotonic(), counted));
        Some(counted)
    }

    /// Reads the collector's count. Where objects are moved while Java runs it says how many
    /// collections have begun.
    pub fn collections<M: ReadMemory>(&self, memory: &M) -> Option<Collections> {
        self.counter?.read(memory)
    }

    /// Whether no object was moved since before `at`.
    fn unmoved<M: ReadMemory>(&mut self, memory: &M, at: Ns) -> bool {
        let before =
            self.readings.iter().rev().find(|(time, _)| *time < at).map(|(_, counted)| *counted);
        before.is_some_and(|before| !before.active && self.count(memory) == Some(before))
    }

    /// Returns the name of the virtual thread that had this continuation at `at`; `None` if it has
    /// none or it cannot be proven.
    fn name<M: ReadMemory>(
        &mut self,
        (memory, layout): (&M, &Layout),
        objects: &mut Objects,
        names: &Names,
        Found { continuation, sp }: Found,
        at: Ns,
    ) -> Option<RawName> {
        let mut thread = match self.known.remove(&continuation) {
            Some(thread) if thread.chain.holds(memory) => thread,
            before => {
                let chain = chain((memory, layout), objects, continuation)?;
                let name = text((memory, layout), objects, names, &chain)?;
                // The name has another address: the thread was renamed, or the string was moved.
                let since = before
                    .filter(|thread| thread.chain.id() == chain.id())
                    .map_or_else(monotonic, |thread| thread.since);
                MountedThread { chain, name, since, proven: false }
            }
        };
        let valid = if objects.moved_any_time {
            mounted((memory, layout), objects, &thread.chain, sp) == Some(true)
        } else {
            let again = thread.since < at;
            if again && !thread.proven {
                thread.proven =
                    text((memory, layout), objects, names, &thread.chain) == Some(thread.name);
            }
            (again && thread.proven) || self.unmoved(memory, at)
        };
        let name = thread.name.filter(|_| valid);
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(continuation, thread);
        name
    }
}

/// From a continuation to its virtual thread and back.
fn chain<M: ReadMemory>(
    (memory, layout): (&M, &Layout),
    objects: &mut Objects,
    continuation: u64,
) -> Option<Chain> {
    if continuation == 0 || !continuation.is_multiple_of(8) {
        return None;
    }
    let target_at =
        objects.field(memory, layout, continuation, ("jdk/internal/vm/Continuation", "target"))?;
    let target = objects.reference(memory, target_at)?;
    let thread_at = objects.field(memory, layout, target, ("", "val$vthread"))?;
    let thread = objects.reference(memory, thread_at)?;
    if !objects.is_of(memory, layout, thread, CLASS)? {
        return None;
    }
    let mut field = |class, name| objects.field(memory, layout, thread, (class, name));
    let (back_at, id_at, name_at) =
        (field(CLASS, "cont")?, field(THREAD, "tid")?, field(THREAD, "name")?);
    let width = objects.width();
    let places =
        [(target_at, width), (thread_at, width), (back_at, width), (id_at, 8), (name_at, width)];
    let chain = Chain::read(memory, places)?;
    let leads = |piece, to| objects.same(objects.decode(chain.piece(piece)), to);
    (leads(0, target) && leads(1, thread) && leads(2, continuation)).then_some(chain)
}

/// Whether the virtual thread is mounted on the thread with this stack.
fn mounted<M: ReadMemory>(
    (memory, layout): (&M, &Layout),
    objects: &mut Objects,
    chain: &Chain,
    sp: u64,
) -> Option<bool> {
    let thread = objects.decode(chain.piece(1));
    let carrier = objects.field(memory, layout, thread, (CLASS, "carrierThread"))?;
    let carrier = objects.reference(memory, carrier)?;
    let native = memory.read_u64(objects.field(memory, layout, carrier, (THREAD, "eetop"))?)?;
    let (base, size) = layout.threads.stack?;
    let base = memory.read_u64(native.checked_add(base)?)?;
    let size = memory.read_u64(native.checked_add(size)?)?;
    Some(sp < base && base - sp < size && chain.holds(memory))
}

/// Reads the name at the end of the chain, if the chain still holds afterwards; `Some(None)`: an
/// empty name.
fn text<M: ReadMemory>(
    (memory, layout): (&M, &Layout),
    objects: &mut Objects,
    names: &Names,
    chain: &Chain,
) -> Option<Option<RawName>> {
    let text = objects.string(memory, layout, objects.decode(chain.name()))?;
    if !chain.holds(memory) {
        return None;
    }
    let text = clean(&text, NAME_MAX);
    if text.is_empty() {
        return Some(None);
    }
    // Java reports every virtual thread as a daemon.
    Some(Some(names.thread_name(&text)?.of_kind(ThreadKind::Daemon)))
}

impl<M: ReadMemory> Jvm<M> {
    /// Records a continuation if this frame is the entry of one; called with each frame that has
    /// called.
    pub fn find_continuation(&mut self, kind: &Kind, cursor: &mut StackCursor<'_>) {
        let entry = match kind {
            Kind::NativeWrapper(nmethod) => self.is_entry(nmethod),
            Kind::Stub(name) => self.is_barrier(name, cursor.place.pc),
            _ => false,
        };
        if entry
            && self.virtuals.found.len() < NESTED_MAX
            && let Some(continuation) = cursor.slot(cursor.place.sp, CONTINUATION)
        {
            self.virtuals.found.push(Found { continuation, sp: cursor.place.sp });
        }
    }

    /// Returns the name of the virtual thread whose stack was walked last, and copied at `at`.
    pub fn virtual_name(&mut self, at: Ns) -> Option<RawName> {
        let Ok(objects) = &mut self.objects else { return None };
        let found = std::mem::take(&mut self.virtuals.found);
        let mut name = None;
        for found in &found {
            let read = (&self.memory, &self.layout);
            name = self.virtuals.name(read, objects, &self.names, *found, at);
            if self.virtuals.known.contains_key(&found.continuation) {
                if !self.virtuals.seen {
                    self.virtuals.seen = true;
                    self.pid.inspect(|pid| self.names.unseen(*pid, UNSEEN));
                }
                break;
            }
        }
        self.virtuals.found = found;
        name
    }

    /// Whether the outermost frame of a continuation returns to this address while others of it are
    /// on the heap. The code there sets the stack pointer to the entry's frame (`mov rsp, [r15 +
    /// distance]`). No call stands before it.
    pub fn is_barrier(&self, stub: &str, address: u64) -> bool {
        let mut code = [0; 3];
        stub.starts_with(BARRIER)
            && self.memory.read_exact(address, &mut code).is_some()
            && code == [0x49, 0x8b, 0xa7]
    }

    fn is_entry(&mut self, nmethod: &Nmethod) -> bool {
        let method = self.methods.get(&self.memory, &self.layout, nmethod.method);
        method.is_some_and(|method| &*method.name == ENTRY)
    }
}

/// Shown to the user where there are virtual threads.
const UNSEEN: &str = "its virtual threads are visible while they are mounted: those that wait are on no thread's stack";

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A collector's count, and whether a collection is active.
    struct Heap(Cell<u32>, Cell<u8>);

    impl ReadMemory for Heap {
        fn read(&self, address: u64, buf: &mut [u8]) -> usize {
            match address {
                8 => buf.copy_from_slice(&self.0.get().to_le_bytes()),
                _ => buf.fill(self.1.get()),
            }
            buf.len()
        }
    }

    #[test]
    fn nothing_was_moved_only_if_nothing_was_collected_since_before() {
        let heap = Heap(Cell::new(7), Cell::new(0));
        let mut virtuals =
            Virtuals { counter: Some(Counter { count: 8, active: 16 }), ..Virtuals::default() };
        virtuals.seen = true;
        assert_eq!(virtuals.count(&heap), None, "objects are moved while Java runs");
        (virtuals.seen, virtuals.stands_still) = (false, true);
        assert_eq!(
            (virtuals.count(&heap), virtuals.readings.len()),
            (None, 0),
            "without virtual threads nothing is read"
        );
        virtuals.seen = true;
        let before = monotonic();
        assert!(!virtuals.unmoved(&heap, monotonic()), "how it was before is unknown");
        assert!(virtuals.count(&heap).is_some());
        let at = monotonic() + 1;
        assert!(virtuals.unmoved(&heap, at));
        assert!(!virtuals.unmoved(&heap, before), "copied before it was counted");
        // It is collecting: objects may have been moved once it has ended.
        heap.1.set(1);
        assert!(!virtuals.unmoved(&heap, at));
        let during = monotonic() + 1;
        heap.1.set(0);
        assert!(!virtuals.unmoved(&heap, during));
        heap.0.set(8);
        assert!(!virtuals.unmoved(&heap, at), "it has collected");
        assert!(virtuals.unmoved(&heap, monotonic() + 1));
    }
}
