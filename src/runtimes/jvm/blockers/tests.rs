//! Waits in memory of made-up contents, hostile ones among them.

use std::cell::Cell;

use proptest::prelude::*;

use super::monitor::OwnerWord;
use super::park::State;
use super::*;
use crate::runtimes::jvm::frame_anchors::{Anchors, Places as AnchorPlaces};
use crate::runtimes::jvm::heap_objects::Objects;
use crate::runtimes::jvm::layout::ThreadList;
use crate::runtimes::jvm::tests::cache_validity::{World, jvm_of, layout_17, symbol};
use places::LockStack;

/// What the recorded tables lack.
const FIELDS: &str = "\
JavaThread _stack_base 592 address
JavaThread _stack_size 600 size_t
JavaThread _anchor 704 JavaFrameAnchor
JavaCallWrapper _anchor 32 JavaFrameAnchor
JavaFrameAnchor _last_Java_sp 0 intptr_t*
JavaFrameAnchor _last_Java_pc 8 address
JavaFrameAnchor _last_Java_fp 16 intptr_t*
JavaThread _current_pending_monitor 776 ObjectMonitor*
JavaThread _current_waiting_monitor 792 ObjectMonitor*
ObjectMonitor _object 8 none
ObjectMonitor _owner 64 none
";
const PENDING: u64 = 776;
const WAITING: u64 = 792;
const MONITOR_OWNER: u64 = 64;

/// Threads; each has its stack, its handle, its object and its native thread at distances from it.
const WAITER: u64 = 0x1_0000;
const OTHER: u64 = 0x1_8000;
const STACK_BASE: u64 = 0x7000;
const STACK_SIZE: u64 = 0x1000;
const HANDLE: u64 = 0x2000;
const OBJECT: u64 = 0x2100;
const OS_THREAD: u64 = 0x2800;
const SP: u64 = WAITER + STACK_BASE - 0x800;

const LIST: u64 = 0x3_0000;
const MONITOR: u64 = 0x3_1000;
const MONITOR_HANDLE: u64 = 0x3_1800;
const LOCK: u64 = 0x3_2000;

const THREAD_CLASS: u64 = 0x4_0000;
const LOCK_CLASS: u64 = 0x4_2000;
const SYNC_CLASS: u64 = 0x4_4000;
const OWNABLE_CLASS: u64 = 0x4_6000;

/// Offsets in the made-up objects.
const EETOP_AT: u64 = 16;
const PARKED_ON_AT: u64 = 24;
const STATUS_AT: u64 = 32;
const LOCK_OWNER_AT: u64 = 16;
const LOCK_STATE_AT: u64 = 24;

/// Puts a class with these fields there, as [`Objects::made_up`] expects it.
fn class(world: &World, layout: &Layout, at: u64, name: &str, above: u64, fields: &[(&str, u64)]) {
    let (pool, array, symbols) = (at + 0x400, at + 0x800, at + 0x1000);
    world.word(at + 0x10, array);
    world.put(at + 0x18, &(fields.len() as u16).to_le_bytes());
    world.word(at + 0x20, pool);
    world.word(at + 0x28, above);
    world.word(at + 0x30, symbols);
    symbol(world, layout, symbols, name);
    for (n, (name, offset)) in (0..).zip(fields) {
        let text = symbols + 0x80 * (n + 1);
        world.word(pool + 0x40 + 8 * n, text);
        symbol(world, layout, text, name);
        let [low, high] = ((offset << 2) as u16).to_le_bytes();
        world.put(array + 4 + 12 * n, &[0, 0, n as u8, 0, 0, 0, 0, 0, low, high, 0, 0]);
    }
}

/// Builds two threads of class `java.lang.Thread`, a monitor of a lock object, and the lock's
/// class.
fn world(layout: &Layout) -> World {
    let world = World::new();
    let l = &layout.threads;
    let fields = [("eetop", EETOP_AT), ("parkBlocker", PARKED_ON_AT), ("threadStatus", STATUS_AT)];
    class(&world, layout, THREAD_CLASS, "java/lang/Thread", 0, &fields);
    for (thread, tid) in [(WAITER, 71u32), (OTHER, 72)] {
        world.word(thread + 592, thread + STACK_BASE);
        world.word(thread + 600, STACK_SIZE);
        world.word(thread + l.object, thread + HANDLE);
        world.word(thread + HANDLE, thread + OBJECT);
        world.word(thread + OBJECT + 8, THREAD_CLASS);
        world.word(thread + OBJECT + EETOP_AT, thread);
        world.word(thread + l.os_thread, thread + OS_THREAD);
        world.put(thread + OS_THREAD + l.thread_id, &tid.to_le_bytes());
    }
    let ThreadList::Array { list, length, threads } = l.list else { panic!() };
    world.word(list, LIST);
    world.put(LIST + length, &[2, 0, 0, 0]);
    world.word(LIST + threads, LIST + 0x100);
    world.word(LIST + 0x100, WAITER);
    world.word(LIST + 0x108, OTHER);
    world.word(MONITOR + 8, MONITOR_HANDLE);
    world.word(MONITOR_HANDLE, LOCK);
    world.word(LOCK + 8, LOCK_CLASS);
    class(&world, layout, LOCK_CLASS, "com/acme/TaxTable", 0, &[]);
    world
}

fn jvm_with<M: ReadMemory>(memory: M, layout: &Layout) -> Jvm<M> {
    let text = [include_str!("../tests/fields_17.txt"), FIELDS].concat();
    let structs =
        Structs::of_text(&text).with_constant("frame::entry_frame_call_wrapper_offset", -6);
    let mut jvm = jvm_of(memory, layout).in_process(7);
    jvm.anchors = Anchors::new(AnchorPlaces::of(&structs));
    jvm.blockers = Blockers { places: Places::of(&structs, layout), ..Blockers::default() };
    jvm.objects = Ok(Objects::made_up());
    jvm
}

fn holder(world: &World, layout: &Layout) -> RawHolder {
    let found = jvm_with(world, layout).blocker_on_stack(SP).expect("it waits");
    assert_eq!((found.kind, found.object), (BlockerKind::Monitor, LOCK));
    found.holder
}

const OTHER_HOLDS: RawHolder = RawHolder::Thread { pid: 7, tid: 72 };

#[test]
fn a_monitor_names_its_object_and_the_thread_that_owns_it() {
    let layout = layout_17();
    let world = world(&layout);
    let mut jvm = jvm_with(&world, &layout);
    assert_eq!(jvm.blocker_on_stack(SP), None, "it waits for nothing");
    world.word(WAITER + PENDING, MONITOR);
    world.word(MONITOR + MONITOR_OWNER, OTHER);
    let found = jvm.blocker_on_stack(SP).expect("a blocker");
    assert_eq!((found.kind, found.object, found.holder), (BlockerKind::Monitor, LOCK, OTHER_HOLDS));
    let class = found.class.and_then(|class| jvm.names.thread(class));
    assert_eq!(class.as_deref(), Some("com.acme.TaxTable"));
    // A place in its stack, where it took the lock before there was a monitor.
    world.word(MONITOR + MONITOR_OWNER, OTHER + STACK_BASE - 0x100);
    assert_eq!(holder(&world, &layout), OTHER_HOLDS);
    world.word(MONITOR + MONITOR_OWNER, 0);
    assert_eq!(holder(&world, &layout), RawHolder::Free);
    assert_eq!(jvm.blocker_on_stack(OTHER + STACK_BASE - 8), None, "it does not wait");
    assert_eq!(jvm.blocker_on_stack(0x5_0000), None, "no thread's stack");
}

#[test]
fn an_owner_that_is_not_proven_is_unknown() {
    let layout = layout_17();
    let world = world(&layout);
    world.word(WAITER + PENDING, MONITOR);
    let garbage = [
        u64::MAX,
        u64::MAX - 7,
        1,
        2,
        8,
        OTHER + 4,
        OTHER + 8,
        LOCK,
        1 << 47,
        // The waiter cannot own what it waits for.
        WAITER,
        SP,
    ];
    for owner in garbage {
        world.word(MONITOR + MONITOR_OWNER, owner);
        assert_eq!(holder(&world, &layout), RawHolder::Unknown, "{owner:x}");
    }
    world.word(MONITOR + MONITOR_OWNER, OTHER);
    // It has no native thread yet.
    world.word(OTHER + layout.threads.os_thread, 0);
    assert_eq!(holder(&world, &layout), RawHolder::Unknown);
    // The monitor itself is garbage: nothing is known but that the thread waits.
    for monitor in [3, u64::MAX, 1 << 40] {
        world.word(WAITER + PENDING, monitor);
        let found = jvm_with(&world, &layout).blocker_on_stack(SP);
        let unknown = found.is_none_or(|found| {
            (found.object, found.class, found.holder) == (0, None, RawHolder::Unknown)
        });
        assert!(unknown, "{monitor:x}: {found:?}");
    }
}

/// Memory in which one word is another at each read.
struct Changing<'w> {
    world: &'w World,
    at: u64,
    values: [u64; 2],
    reads: Cell<usize>,
}

impl ReadMemory for Changing<'_> {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let read = self.world.read(address, buf);
        if address == self.at && buf.len() == 8 {
            buf.copy_from_slice(&self.values[self.reads.get() % 2].to_le_bytes());
            self.reads.set(self.reads.get() + 1);
        }
        read
    }
}

#[test]
fn an_owner_that_changes_meanwhile_is_unknown() {
    let layout = layout_17();
    let world = world(&layout);
    world.word(WAITER + PENDING, MONITOR);
    let changing = |at, values| Changing { world: &world, at, values, reads: Cell::new(0) };
    let owner = changing(MONITOR + MONITOR_OWNER, [OTHER, 0]);
    let found = jvm_with(owner, &layout).blocker_on_stack(SP).expect("it waits");
    assert_eq!((found.kind, found.holder), (BlockerKind::Monitor, RawHolder::Unknown));
    assert!(found.object == LOCK && found.class.is_some(), "it is the same lock: {found:?}");
    world.word(MONITOR + MONITOR_OWNER, OTHER);
    let place = changing(WAITER + PENDING, [MONITOR, MONITOR + 0x400]);
    let found = jvm_with(place, &layout).blocker_on_stack(SP);
    assert!(found.is_none_or(|found| found.holder == RawHolder::Unknown), "{found:?}");
}

#[test]
fn what_is_remembered_of_a_monitor_counts_while_all_words_are_the_same() {
    let layout = layout_17();
    let world = world(&layout);
    world.word(WAITER + PENDING, MONITOR);
    world.word(MONITOR + MONITOR_OWNER, OTHER);
    let calls = Calls(&world, Cell::new(0));
    let mut jvm = jvm_with(&calls, &layout);
    let mut asked = || {
        let before = calls.1.get();
        let found = jvm.blocker_on_stack(SP).expect("it waits");
        (found.object, found.holder, calls.1.get() - before)
    };
    let known = (LOCK, OTHER_HOLDS);
    let [first, again] = [asked(), asked()];
    assert_eq!([(first.0, first.1), (again.0, again.1)], [known; 2]);
    assert!(again.2 <= 5 && first.2 > 2 * again.2, "{} reads, then {}", first.2, again.2);
    // The owner is at the same address, but another thread.
    world.put(OTHER + OS_THREAD + layout.threads.thread_id, &[73, 0, 0, 0]);
    assert_eq!(asked().1, RawHolder::Thread { pid: 7, tid: 73 });
    // A place in a stack may be another thread's later, so it is found anew each time.
    world.word(MONITOR + MONITOR_OWNER, OTHER + STACK_BASE - 0x100);
    let holder = RawHolder::Thread { pid: 7, tid: 73 };
    let [first, again] = [asked(), asked()];
    assert_eq!([first.1, again.1], [holder; 2]);
    assert!(again.2 > 5, "{} reads", again.2);
    world.word(MONITOR + MONITOR_OWNER, 0);
    assert_eq!(asked().1, RawHolder::Free);
    world.word(MONITOR_HANDLE, LOCK + 0x100);
    world.word(LOCK + 0x108, LOCK_CLASS);
    assert_eq!(asked().0, LOCK + 0x100, "the monitor is another object's");
    world.word(WAITER + PENDING, 0);
    assert_eq!(jvm.blocker_on_stack(SP), None, "it waits no longer");
}

#[test]
fn since_jdk_24_owners_have_numbers() {
    const ID_AT: u64 = 1312;
    let layout = layout_17();
    let world = world(&layout);
    world.word(WAITER + PENDING, MONITOR);
    world.word(WAITER + ID_AT, 40);
    world.word(OTHER + ID_AT, 41);
    let holder = |owner: u64| {
        world.word(MONITOR + MONITOR_OWNER, owner);
        let mut jvm = jvm_with(&world, &layout);
        let places = jvm.blockers.places.as_mut().expect("places");
        (places.owner_is_id, places.owner_id) = (true, Some(ID_AT));
        let found = jvm.blocker_on_stack(SP).expect("it waits");
        assert_eq!(jvm.blocker_on_stack(SP), Some(found), "what is remembered changes nothing");
        found.holder
    };
    assert_eq!(holder(41), OTHER_HOLDS);
    assert_eq!(holder(42), RawHolder::Unmounted);
    // It is mounted after that was found.
    world.word(MONITOR + MONITOR_OWNER, 43);
    let mut jvm = jvm_with(&world, &layout);
    let places = jvm.blockers.places.as_mut().expect("places");
    (places.owner_is_id, places.owner_id) = (true, Some(ID_AT));
    let mut holder_now = || jvm.blocker_on_stack(SP).map(|found| found.holder);
    assert_eq!(holder_now(), Some(RawHolder::Unmounted));
    world.word(OTHER + ID_AT, 43);
    assert_eq!(holder_now(), Some(OTHER_HOLDS));
    // A thread that is not read may be the one.
    world.word(LIST + 0x108, u64::MAX - 8);
    assert_eq!(holder(42), RawHolder::Unknown);
    world.word(LIST + 0x108, OTHER);
    assert_eq!(holder(0), RawHolder::Free);
    for owner in [40, 1, 2, u64::MAX] {
        assert_eq!(holder(owner), RawHolder::Unknown, "{owner:x}");
    }
}

#[test]
fn an_anonymous_owner_has_the_object_in_its_lock_stack() {
    let layout = layout_17();
    let world = world(&layout);
    let stack = LockStack { top: 1712, base: 1720 };
    world.word(WAITER + PENDING, MONITOR);
    world.word(MONITOR + MONITOR_OWNER, 1);
    let holder = || {
        let mut jvm = jvm_with(&world, &layout);
        jvm.blockers.places.as_mut().expect("places").lock_stack = Some(stack);
        jvm.blocker_on_stack(SP).expect("it waits").holder
    };
    let lock = |thread: u64, count: u32, nth: u64| {
        world.put(thread + stack.top, &(1720 + 8 * count).to_le_bytes());
        world.word(thread + stack.base + 8 * nth, LOCK);
    };
    assert_eq!(holder(), RawHolder::Unknown, "it is in no lock stack");
    lock(OTHER, 3, 2);
    assert_eq!(holder(), OTHER_HOLDS);
    lock(OTHER, 3, 0);
    assert_eq!(holder(), OTHER_HOLDS, "twice");
    lock(OTHER, 0, 0);
    assert_eq!(holder(), RawHolder::Unknown, "above the top");
    for count in [9, 1 << 20, (1 << 29) - 300] {
        lock(OTHER, count, 1);
        assert_eq!(holder(), RawHolder::Unknown, "more than there can be: {count}");
    }
    lock(OTHER, 8, 7);
    assert_eq!(holder(), OTHER_HOLDS);
    lock(WAITER, 1, 0);
    assert_eq!(holder(), RawHolder::Unknown, "in two lock stacks");
}

#[test]
fn object_wait_is_told_apart_from_entering_again() {
    let layout = layout_17();
    let world = world(&layout);
    world.word(WAITER + WAITING, MONITOR);
    world.word(MONITOR + MONITOR_OWNER, OTHER);
    let found = |status: u32| {
        world.put(WAITER + OBJECT + STATUS_AT, &status.to_le_bytes());
        let found = jvm_with(&world, &layout).blocker_on_stack(SP)?;
        assert_eq!(found.object, LOCK);
        Some((found.kind, found.holder))
    };
    for status in [401, 417] {
        assert_eq!(found(status), Some((BlockerKind::Notify, RawHolder::Unknown)));
    }
    assert_eq!(found(1025), Some((BlockerKind::Monitor, OTHER_HOLDS)));
    for status in [0, 5, 225, 657, u32::MAX] {
        assert_eq!(found(status), None, "{status}");
    }
}

/// Parks the waiter on a lock of this class.
fn park(world: &World, layout: &Layout, name: &str) {
    let fields = [("exclusiveOwnerThread", LOCK_OWNER_AT)];
    let ownable = "java/util/concurrent/locks/AbstractOwnableSynchronizer";
    class(world, layout, OWNABLE_CLASS, ownable, 0, &fields);
    let queued = "java/util/concurrent/locks/AbstractQueuedSynchronizer";
    class(world, layout, SYNC_CLASS, queued, OWNABLE_CLASS, &[("state", LOCK_STATE_AT)]);
    class(world, layout, LOCK_CLASS, name, SYNC_CLASS, &[]);
    world.word(WAITER + OBJECT + PARKED_ON_AT, LOCK);
    world.put(WAITER + OBJECT + STATUS_AT, &657u32.to_le_bytes());
}

#[test]
fn a_lock_of_java_util_concurrent_names_its_owner() {
    let layout = layout_17();
    let world = world(&layout);
    park(&world, &layout, "java/util/concurrent/locks/ReentrantLock$NonfairSync");
    let found = |owner: u64, state: u32| {
        world.word(LOCK + LOCK_OWNER_AT, owner);
        world.put(LOCK + LOCK_STATE_AT, &state.to_le_bytes());
        let found = jvm_with(&world, &layout).blocker_on_stack(SP).expect("it waits");
        assert_eq!(found.object, LOCK);
        (found.kind, found.holder)
    };
    let owned = |holder| (BlockerKind::OwnedLock, holder);
    assert_eq!(found(OTHER + OBJECT, 1), owned(OTHER_HOLDS));
    assert_eq!(found(0, 0), owned(RawHolder::Free));
    assert_eq!(found(0, 1), owned(RawHolder::Unknown), "it is just being taken");
    for owner in [WAITER + OBJECT, LOCK, 8, u64::MAX, 1 << 40] {
        assert_eq!(found(owner, 1), owned(RawHolder::Unknown), "{owner:x}");
    }
    // The owner has ended, or its object refers to no thread.
    for eetop in [0, LOCK, 3, WAITER + 8] {
        world.word(OTHER + OBJECT + EETOP_AT, eetop);
        assert_eq!(found(OTHER + OBJECT, 1), owned(RawHolder::Unknown), "{eetop:x}");
    }
    // On its way to be parked it is not blocked.
    world.put(WAITER + OBJECT + STATUS_AT, &5u32.to_le_bytes());
    assert_eq!(jvm_with(&world, &layout).blocker_on_stack(SP), None);
}

#[test]
fn synchronizers_are_told_apart_by_their_classes() {
    let layout = layout_17();
    let world = world(&layout);
    for (name, kind) in [
        ("java/util/concurrent/Semaphore$FairSync", BlockerKind::Semaphore),
        ("java/util/concurrent/CountDownLatch$Sync", BlockerKind::Latch),
        ("com/acme/Gate$Sync", BlockerKind::Parked),
        ("java/util/concurrent/ReentrantLock", BlockerKind::Parked),
    ] {
        park(&world, &layout, name);
        let found = jvm_with(&world, &layout).blocker_on_stack(SP).expect("it waits");
        assert_eq!((found.kind, found.holder), (kind, RawHolder::Unknown), "{name}");
    }
    world.word(LOCK + LOCK_OWNER_AT, OTHER + OBJECT);
    park(&world, &layout, "com/acme/Lock$Sync");
    let found = jvm_with(&world, &layout).blocker_on_stack(SP).expect("it waits");
    assert_eq!((found.kind, found.holder), (BlockerKind::OwnedLock, OTHER_HOLDS));
}

#[test]
fn superclasses_in_a_circle_have_an_end() {
    let layout = layout_17();
    let world = world(&layout);
    park(&world, &layout, "com/acme/Gate$Sync");
    // It is its own superclass.
    world.word(LOCK_CLASS + 0x28, LOCK_CLASS);
    let mut jvm = jvm_with(&world, &layout);
    let before = world.reads();
    let found = jvm.blocker_on_stack(SP).expect("it waits");
    assert_eq!((found.kind, found.object), (BlockerKind::Parked, LOCK));
    assert!(world.reads() - before < 5_000, "{}", world.reads() - before);
    // So is the class of the thread.
    world.word(THREAD_CLASS + 0x28, THREAD_CLASS);
    symbol(&world, &layout, THREAD_CLASS + 0x1000, "com/acme/Thread");
    assert_eq!(jvm_with(&world, &layout).blocker_on_stack(SP), None);
}

/// Counts calls, however many pieces each reads.
struct Calls<'w>(&'w World, Cell<u32>);

impl ReadMemory for Calls<'_> {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        self.1.set(self.1.get() + 1);
        self.0.read(address, buf)
    }

    fn read_pieces(&self, pieces: &[(u64, usize)], buf: &mut [u8]) -> Option<()> {
        self.1.set(self.1.get() + 1);
        self.0.read_pieces(pieces, buf)
    }
}

impl ReadMemory for &Calls<'_> {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        (*self).read(address, buf)
    }

    fn read_pieces(&self, pieces: &[(u64, usize)], buf: &mut [u8]) -> Option<()> {
        (*self).read_pieces(pieces, buf)
    }
}

#[test]
fn a_thread_that_waits_for_nothing_takes_two_calls() {
    let layout = layout_17();
    let world = world(&layout);
    let calls = Calls(&world, Cell::new(0));
    let mut jvm = jvm_with(&calls, &layout);
    assert_eq!(jvm.blocker_on_stack(SP), None);
    for _ in 0..3 {
        let before = calls.1.get();
        assert_eq!(jvm.blocker_on_stack(SP), None);
        assert_eq!(calls.1.get() - before, 2);
    }
    // It has another handle, and another object.
    world.word(WAITER + layout.threads.object, LIST + 0x800);
    world.word(LIST + 0x800, OTHER + OBJECT);
    assert_eq!(jvm.blocker_on_stack(SP), None);
    world.word(WAITER + PENDING, MONITOR);
    assert!(jvm.blocker_on_stack(SP).is_some(), "it is in the list of threads");
}

#[test]
fn a_stack_that_is_not_javas_is_not_searched_for_again() {
    let layout = layout_17();
    let world = world(&layout);
    let calls = Calls(&world, Cell::new(0));
    let mut jvm = jvm_with(&calls, &layout);
    let mut search = |sp: u64| {
        // As if the stacks were read long ago.
        jvm.anchors.stacks_read = None;
        let before = calls.1.get();
        assert_eq!(jvm.blocker_on_stack(sp), None);
        calls.1.get() - before
    };
    assert!(search(0x5_0000) > 0);
    assert_eq!(search(0x5_0000), 0);
    assert!(search(0x5_0008) > 0, "another thread");
}

#[test]
fn a_thread_that_has_exited_waits_for_nothing() {
    let layout = layout_17();
    let world = world(&layout);
    world.word(WAITER + PENDING, MONITOR);
    let mut jvm = jvm_with(&world, &layout);
    assert!(jvm.blocker_on_stack(SP).is_some());
    // Its memory is as it was, but it is no thread any more.
    world.word(WAITER + OBJECT + EETOP_AT, 0);
    world.word(LIST + 0x100, OTHER);
    assert_eq!(jvm.blocker_on_stack(SP), None);
    assert_eq!(jvm.blocker_on_stack(SP), None);
}

/// Returns the places of all words that lead to a blocker.
fn places_of_words(layout: &Layout) -> Vec<u64> {
    let l = &layout.threads;
    let ThreadList::Array { list, length, threads } = l.list else { panic!() };
    let in_thread = [592, 600, PENDING, WAITING, l.object, l.os_thread, HANDLE, 1712, 1720, 1728];
    let in_object = [0, 8, EETOP_AT, PARKED_ON_AT, STATUS_AT].map(|at| OBJECT + at);
    let in_class = [0x10, 0x18, 0x20, 0x28, 0x30, 0x440, 0x448, 0x800, 0x808, 0x810, 0x1000];
    let own = [
        list,
        LIST + length,
        LIST + threads,
        LIST + 0x100,
        MONITOR + 8,
        MONITOR + MONITOR_OWNER,
        MONITOR_HANDLE,
        LOCK + 8,
        LOCK + LOCK_OWNER_AT,
        LOCK + LOCK_STATE_AT,
    ];
    let of_threads = [WAITER, OTHER]
        .into_iter()
        .flat_map(|thread| in_thread.into_iter().chain(in_object).map(move |at| thread + at));
    let of_classes = [THREAD_CLASS, LOCK_CLASS, SYNC_CLASS, OWNABLE_CLASS]
        .into_iter()
        .flat_map(|class| in_class.into_iter().map(move |at| class + at));
    of_threads.chain(of_classes).chain(own).collect()
}

proptest! {
    /// Whatever stands in memory, a call ends after bounded work.
    #[test]
    fn garbage_has_an_end(
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![
                0u64..64,
                (0u64..0x7000).prop_map(|word| WAITER + 8 * word),
                any::<prop::sample::Index>().prop_map(|at| at.get(&places_of_words(&layout_17())) & !7),
                any::<u64>(),
            ]),
            0..8,
        ),
        parked in any::<bool>(), waits in any::<bool>(), owner in 0u64..4, by_id in any::<bool>(),
    ) {
        let layout = layout_17();
        let world = world(&layout);
        if parked {
            park(&world, &layout, "java/util/concurrent/locks/ReentrantLock$NonfairSync");
            world.word(LOCK + LOCK_OWNER_AT, OTHER + OBJECT);
        } else {
            world.word(WAITER + if waits { WAITING } else { PENDING }, MONITOR);
            world.put(WAITER + OBJECT + STATUS_AT, &1025u32.to_le_bytes());
            world.word(MONITOR + MONITOR_OWNER, [OTHER, OTHER + STACK_BASE - 8, 1, 41][owner as usize]);
        }
        let mut jvm = jvm_with(&world, &layout);
        let places = jvm.blockers.places.as_mut().expect("places");
        places.lock_stack = Some(LockStack { top: 1712, base: 1720 });
        (places.owner_is_id, places.owner_id) = (by_id, by_id.then_some(1728));
        let all = places_of_words(&layout);
        for (at, value) in &changes {
            world.word(*at.get(&all), *value);
        }
        for _ in 0..3 {
            let before = world.reads();
            let found = jvm.blocker_on_stack(SP);
            prop_assert!(world.reads() - before <= read_limit::BLOCKER + 2, "{found:?}");
            prop_assert!(!changes.is_empty() || found.is_some());
            let own = RawHolder::Thread { pid: 7, tid: 71 };
            prop_assert!(!changes.is_empty() || found.is_none_or(|found| found.holder != own));
        }
    }
}

#[test]
fn owner_words_are_decoded() {
    for (word, is_id, expected) in [
        (0, false, OwnerWord::Free),
        (1, false, OwnerWord::Anonymous),
        (u64::MAX, false, OwnerWord::Unproven),
        (2, false, OwnerWord::Unproven),
        (0x7f00_0000_1000, false, OwnerWord::Address(0x7f00_0000_1000)),
        (0x7f00_0000_1001, false, OwnerWord::Unproven),
        (0, true, OwnerWord::Free),
        (1, true, OwnerWord::Anonymous),
        (2, true, OwnerWord::Unproven),
        (3, true, OwnerWord::Id(3)),
        (u64::MAX, true, OwnerWord::Unproven),
    ] {
        assert_eq!(OwnerWord::of(word, is_id), expected, "{word:x}");
    }
}

#[test]
fn readers_are_counted_above_the_writers() {
    let readers = |number, writer_bits| State { number, writer_bits }.readers();
    assert_eq!([readers(0x3_0000, 16), readers(1, 16), readers(0x2_0001, 16)], [3, 0, 2]);
    assert_eq!([readers(5 << 32, 32), readers(u64::MAX, 32)], [5, u32::MAX]);
}

#[test]
fn classes_are_written_as_java_does() {
    let deep = "[".repeat(256) + "I";
    for (symbol, name) in [
        ("com/acme/TaxTable", Some("com.acme.TaxTable")),
        ("[B", Some("byte[]")),
        ("[[Ljava/lang/String;", Some("java.lang.String[][]")),
        ("[Q", None),
        ("[", None),
        ("[L", None),
        ("[Lfoo", None),
        (&deep, None),
    ] {
        assert_eq!(java_name(symbol).as_deref(), name, "{symbol}");
    }
}
