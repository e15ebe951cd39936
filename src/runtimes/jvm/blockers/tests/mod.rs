//! Waits in memory of made-up contents.

mod class_initialization;
mod hostile;
mod locks;
mod monitors;
mod moving;

use std::cell::Cell;
use std::time::{Duration, Instant};

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
InstanceKlass _init_state 315 u1
InstanceKlass _init_thread 320 Thread*
Klass _java_mirror 112 OopHandle
";
const BEING_INITIALIZED: u8 = 3;
const PENDING: u64 = 776;
const WAITING: u64 = 792;
const MONITOR_OWNER: u64 = 64;

/// Threads; each has its stack, its handle, its object and its native thread at distances from it.
pub const WAITER: u64 = 0x1_0000;
const OTHER: u64 = 0x1_8000;
const STACK_BASE: u64 = 0x7000;
const STACK_SIZE: u64 = 0x1000;
const HANDLE: u64 = 0x2000;
pub const OBJECT: u64 = 0x2100;
const OS_THREAD: u64 = 0x2800;
const SP: u64 = WAITER + STACK_BASE - 0x800;

const LIST: u64 = 0x3_0000;
const MONITOR: u64 = 0x3_1000;
const MONITOR_HANDLE: u64 = 0x3_1800;
const LOCK: u64 = 0x3_2000;

pub const THREAD_CLASS: u64 = 0x4_0000;
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
pub fn class(
    world: &World,
    layout: &Layout,
    at: u64,
    name: &str,
    above: u64,
    fields: &[(&str, u64)],
) {
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
pub fn world(layout: &Layout) -> World {
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

pub fn jvm_with<M: ReadMemory>(memory: M, layout: &Layout) -> Jvm<M> {
    let text = [include_str!("../../tests/fields_17.txt"), FIELDS].concat();
    let structs = Structs::of_text(&text)
        .with_constant("frame::entry_frame_call_wrapper_offset", -6)
        .with_constant("InstanceKlass::being_initialized", BEING_INITIALIZED.into());
    let mut jvm = jvm_of(memory, layout).in_process(7);
    jvm.anchors = Anchors::new(AnchorPlaces::of(&structs));
    jvm.blockers = Blockers {
        places: Places::of(&structs, layout),
        class_places: ClassPlaces::of(&structs, layout),
        ..Blockers::default()
    };
    jvm.objects = Ok(Objects::made_up());
    jvm
}

fn holder(world: &World, layout: &Layout) -> RawHolder {
    let found = jvm_with(world, layout).blocker_on_stack(SP).expect("it waits");
    assert_eq!((found.kind, found.object), (BlockerKind::Monitor, LOCK));
    found.holder
}

const OTHER_HOLDS: RawHolder = RawHolder::Thread { pid: 7, tid: 72 };

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
    let mut search = |sp: u64, since_read: u64| {
        // As if the stacks were read that long ago, ms.
        jvm.anchors.stacks_read = Instant::now().checked_sub(Duration::from_millis(since_read));
        let before = calls.1.get();
        assert_eq!(jvm.blocker_on_stack(sp), None);
        calls.1.get() - before
    };
    let (one, other) = (0x5_0000, 0x5_0008);
    assert!(search(one, 500) > 0);
    assert_eq!(search(one, 500), 0);
    assert!(search(other, 500) > 0, "another thread");
    assert_eq!((search(one, 500), search(other, 500)), (0, 0));
    assert!(search(one, 1_500) > 0, "a Java thread may have its stack now");
    // What was read for one thread says the same of all others.
    let before = calls.1.get();
    assert_eq!((jvm.blocker_on_stack(one), jvm.blocker_on_stack(other)), (None, None));
    assert_eq!(calls.1.get(), before);
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
