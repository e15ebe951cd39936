//! Virtual threads (JDK 21 and later): by whose name a carrier's stack goes.
//!
//! A virtual thread that is mounted runs on its carrier's stack, above the frame of
//! `Continuation.enterSpecial`. In that frame lies a reference to the continuation, so the stack
//! itself says whose it is at the moment that it was copied. From there on memory is read as it is
//! now, up to a tick later: continuation -> what it runs -> virtual thread -> back to the
//! continuation, and its name. Objects may have been moved meanwhile and others put in their place;
//! virtual threads are made in numbers, and alike. So a name counts only if one of these holds:
//!
//! * since before the copy no collection has begun, by the collector's own count;
//! * the same virtual thread, by its number, which no other ever has, was found in the same place
//!   before the copy.
//!
//! Both only where objects are moved while Java stands still. Where they are moved at any time
//! (ZGC, Shenandoah) references on stacks may be old ones, so it counts only if
//!
//! * the virtual thread is still mounted on the thread with this stack.
//!
//! Else the stack goes by its carrier's name, as that of a virtual thread without a name does.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::clock::monotonic;
use crate::model::vocabulary::frame::{Ns, RawName, ThreadKind};
use crate::model::vocabulary::text::clean;
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::heap::{Kind, Nmethod};
use crate::runtimes::jvm::layout::Layout;
use crate::runtimes::jvm::objects::Objects;
use crate::runtimes::jvm::structs::{Missing, Structs};
use crate::runtimes::jvm::threads::THREAD;
use crate::runtimes::jvm::walk::Here;
use crate::runtimes::jvm::{Jvm, NAME_MAX};
use crate::runtimes::names::Names;

/// The method in whose frame a continuation is entered.
const ENTRY: &str = "jdk.internal.vm.Continuation.enterSpecial";
/// The blob with the code that a continuation's outermost frame returns to while others of it are
/// still on the heap.
const BARRIER: &str = "StubRoutines (continuation";
const CLASS: &str = "java/lang/VirtualThread";
/// In the entry's frame, from its lowest address, words: the reference to the continuation
/// (src/hotspot/share/runtime/continuationEntry.hpp, behind what belongs to the processor, which
/// takes a word though it is empty, and the entry that this one is within).
const CONTINUATION: i64 = 2;
/// Continuations in one stack that are looked at: of those within others only the outermost is a
/// virtual thread's.
const NESTED_MAX: usize = 4;
/// Continuations remembered.
const KNOWN_MAX: usize = 4096;
/// Readings of the collector's count that are kept. There are at most two for a stack and one for a
/// round.
const READINGS_MAX: usize = 256;

/// Where a collector counts.
#[derive(Clone, Copy, Debug)]
struct Counter {
    count: u64,
    /// It is collecting while Java stands still.
    active: u64,
}

/// What it counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collections {
    count: u32,
    active: bool,
}

impl Counter {
    /// In this order: a collection that begins in between is seen as one that is under way.
    fn read<M: ReadMemory>(self, memory: &M) -> Option<Collections> {
        let (mut count, mut active) = ([0; 4], [0]);
        memory.read_exact(self.count, &mut count)?;
        memory.read_exact(self.active, &mut active)?;
        Some(Collections { count: u32::from_le_bytes(count), active: active[0] != 0 })
    }
}

/// A continuation in a stack.
#[derive(Clone, Copy)]
struct Found {
    continuation: u64,
    /// Where it was entered.
    sp: u64,
}

/// Who a continuation belongs to.
struct Met {
    chain: Chain,
    /// `None`: it has no name.
    name: Option<RawName>,
    /// When it had first been found to be this one.
    since: Ns,
    /// Its name was read again since, and was the same.
    proven: bool,
}

/// The references that lead from a continuation to its virtual thread and back, its number and its
/// name's place.
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

/// What is known of a virtual machine's virtual threads.
#[derive(Default)]
pub struct Virtuals {
    /// Unless its collector moves objects while Java runs.
    counter: Option<Counter>,
    /// One was met.
    seen: bool,
    known: FxHashMap<u64, Met>,
    /// What was counted, and when that was known, in the order of time.
    readings: VecDeque<(Ns, Collections)>,
    /// In the stack that is walked, innermost first.
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
        Virtuals { counter: stands_still.then(counter).flatten(), ..Virtuals::default() }
    }

    /// A walk begins.
    pub fn begin(&mut self) {
        self.found.clear();
    }

    /// To be called now and then: what is counted now is what later stacks are compared with. Where
    /// there are no virtual threads nothing is read.
    pub fn count<M: ReadMemory>(&mut self, memory: &M) -> Option<Collections> {
        let counted = self.counter.filter(|_| self.seen)?.read(memory)?;
        if self.readings.len() >= READINGS_MAX {
            self.readings.pop_front();
        }
        self.readings.push_back((monotonic(), counted));
        Some(counted)
    }

    /// Whether nothing has been moved since before `at`.
    fn unmoved<M: ReadMemory>(&mut self, memory: &M, at: Ns) -> bool {
        let before =
            self.readings.iter().rev().find(|(time, _)| *time < at).map(|(_, counted)| *counted);
        before.is_some_and(|before| !before.active && self.count(memory) == Some(before))
    }

    /// The name of the virtual thread whose continuation this was at `at`; `None`, if it has none,
    /// or it cannot be told.
    fn name<M: ReadMemory>(
        &mut self,
        (memory, layout): (&M, &Layout),
        objects: &mut Objects,
        names: &Names,
        Found { continuation, sp }: Found,
        at: Ns,
    ) -> Option<RawName> {
        let mut met = match self.known.remove(&continuation) {
            Some(met) if met.chain.holds(memory) => met,
            before => {
                let chain = chain((memory, layout), objects, continuation)?;
                let name = text((memory, layout), objects, names, &chain)?;
                // Another place for the name: it was renamed, or that was moved.
                let since = before
                    .filter(|met| met.chain.id() == chain.id())
                    .map_or_else(monotonic, |met| met.since);
                Met { chain, name, since, proven: false }
            }
        };
        let told = if objects.moved_any_time {
            mounted((memory, layout), objects, &met.chain, sp) == Some(true)
        } else {
            let again = met.since < at;
            if again && !met.proven {
                met.proven = text((memory, layout), objects, names, &met.chain) == Some(met.name);
            }
            (again && met.proven) || self.unmoved(memory, at)
        };
        let name = met.name.filter(|_| told);
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(continuation, met);
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

/// The name at the end of it, if it is still there when that is read; `Some(None)`: it is empty.
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
    // Java says of all of them that they are daemons.
    Some(Some(names.thread_name(&text)?.of_kind(ThreadKind::Daemon)))
}

impl<M: ReadMemory> Jvm<M> {
    /// To be called with each frame that has called: a continuation may have been entered there.
    pub fn look_for_continuation(&mut self, kind: &Kind, here: &mut Here<'_>) {
        let entry = match kind {
            Kind::NativeWrapper(nmethod) => self.is_entry(nmethod),
            Kind::Stub(name) => self.is_barrier(name, here.place.pc),
            _ => false,
        };
        if entry
            && self.virtuals.found.len() < NESTED_MAX
            && let Some(continuation) = here.slot(here.place.sp, CONTINUATION)
        {
            self.virtuals.found.push(Found { continuation, sp: here.place.sp });
        }
    }

    /// The name of the virtual thread whose stack was walked last, and copied at `at`.
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

    /// Whether this is the address that the outermost frame of a continuation returns to if others
    /// of it are on the heap still: what is there sets the stack pointer to the entry's frame (`mov
    /// rsp, [r15 + distance]`). No call stands before it.
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

/// What the user is told where there are virtual threads.
const UNSEEN: &str = "its virtual threads are visible while they are mounted: those that wait are on no thread's stack";

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A collector's count, and whether it is at work.
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
        // It collects: what was there may be moved when it has ended.
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
