//! Monitors and their owners.

use super::*;
use crate::runtimes::jvm::blockers::monitor::OwnerWord;

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
