//! Memory that holds garbage, or an attack: each call ends after bounded work.

use proptest::prelude::*;

use super::*;

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

/// Returns what the waiter waits for, and panics if that takes many reads.
fn bounded(world: &World, layout: &Layout, limit: u32) -> Option<RawBlocker> {
    let mut jvm = jvm_with(world, layout);
    let before = world.reads();
    let found = jvm.blocker_on_stack(SP);
    let reads = world.reads() - before;
    assert!(reads < limit, "{reads} reads: {found:?}");
    found
}

#[test]
fn superclasses_in_a_circle_of_two_have_an_end() {
    let layout = layout_17();
    let world = world(&layout);
    park(&world, &layout, "com/acme/Gate$Sync");
    world.word(OWNABLE_CLASS + 0x28, LOCK_CLASS);
    symbol(&world, &layout, OWNABLE_CLASS + 0x1000, "com/acme/Ownable");
    let found = bounded(&world, &layout, 5_000).expect("it waits");
    assert_eq!((found.kind, found.holder), (BlockerKind::Parked, RawHolder::Unknown));
}

#[test]
fn a_list_of_threads_that_loops_has_an_end() {
    const NEXT: u64 = 0x900;
    let mut layout = layout_17();
    let world = world(&layout);
    layout.threads.list = ThreadList::Linked { first: LIST, next: NEXT };
    world.word(WAITER + PENDING, MONITOR);
    world.word(LIST, WAITER);
    for (what, waiters_next, others_next) in [
        ("itself", WAITER, 0),
        ("two threads", OTHER, WAITER),
        ("its end is one", OTHER, OTHER),
        ("no thread", LOCK, 0),
        ("unaligned", 3, 0),
        ("unreadable", 1 << 40, 0),
    ] {
        world.word(WAITER + NEXT, waiters_next);
        world.word(OTHER + NEXT, others_next);
        // It is owned by no thread, so all are searched.
        for owner in [8, LOCK, OTHER + STACK_BASE] {
            world.word(MONITOR + MONITOR_OWNER, owner);
            let found = bounded(&world, &layout, 1_000).expect("it waits");
            assert_eq!(found.holder, RawHolder::Unknown, "{what}, {owner:x}");
        }
        world.word(MONITOR + MONITOR_OWNER, OTHER);
        let found = bounded(&world, &layout, 1_000).expect("it waits");
        assert_eq!(found.holder, OTHER_HOLDS, "{what}: the owner's object proves it");
    }
}

#[test]
fn a_list_of_threads_with_a_false_length_has_an_end() {
    let layout = layout_17();
    let world = world(&layout);
    let ThreadList::Array { length, .. } = layout.threads.list else { panic!() };
    world.word(WAITER + PENDING, MONITOR);
    world.word(MONITOR + MONITOR_OWNER, LOCK);
    for count in [u32::MAX, 1 << 20, 50_000] {
        world.put(LIST + length, &count.to_le_bytes());
        // What is behind the list is as good as a thread.
        assert_eq!(holder(&world, &layout), RawHolder::Unknown, "{count}");
        let limit = read_limit::BLOCKER + 2;
        bounded(&world, &layout, limit);
    }
}

/// A virtual thread's carrier is a platform thread. Here it is the virtual thread itself.
#[test]
fn a_virtual_thread_that_carries_itself_is_no_holder() {
    const CARRIER_AT: u64 = 40;
    const VIRTUAL: u64 = LOCK + 0x200;
    const VIRTUAL_CLASS: u64 = 0x4_8000;
    let layout = layout_17();
    let world = world(&layout);
    park(&world, &layout, "java/util/concurrent/locks/ReentrantLock$FairSync");
    class(
        &world,
        &layout,
        VIRTUAL_CLASS,
        "java/lang/VirtualThread",
        THREAD_CLASS,
        &[("carrierThread", CARRIER_AT)],
    );
    world.word(VIRTUAL + 8, VIRTUAL_CLASS);
    world.word(LOCK + LOCK_OWNER_AT, VIRTUAL);
    world.put(LOCK + LOCK_STATE_AT, &[1, 0, 0, 0]);
    let held_by = |carrier: u64| {
        world.word(VIRTUAL + CARRIER_AT, carrier);
        bounded(&world, &layout, 1_000).expect("it waits").holder
    };
    assert_eq!(held_by(OTHER + OBJECT), OTHER_HOLDS);
    assert_eq!(held_by(0), RawHolder::Unmounted);
    for carrier in [VIRTUAL, LOCK, WAITER + OBJECT, OTHER, u64::MAX - 7] {
        assert_eq!(held_by(carrier), RawHolder::Unknown, "{carrier:x}");
    }
}

#[test]
fn objects_that_refer_to_themselves_have_no_holder() {
    let layout = layout_17();
    let world = world(&layout);
    // The condition is its own lock, and the task runs itself.
    for (class_name, field, kind) in [
        (
            "java/util/concurrent/locks/AbstractQueuedSynchronizer$ConditionObject",
            "this$0",
            BlockerKind::Condition,
        ),
        ("java/util/concurrent/FutureTask", "runner", BlockerKind::Future),
    ] {
        class(&world, &layout, LOCK_CLASS, class_name, 0, &[(field, LOCK_OWNER_AT)]);
        world.word(WAITER + OBJECT + PARKED_ON_AT, LOCK);
        world.put(WAITER + OBJECT + STATUS_AT, &657u32.to_le_bytes());
        world.word(LOCK + LOCK_OWNER_AT, LOCK);
        let found = bounded(&world, &layout, 1_000).expect("it waits");
        let known = (found.kind, found.object, found.holder);
        assert_eq!(known, (kind, LOCK, RawHolder::Unknown));
    }
    // The waiter's handle and object are one, and so are the monitor and its handle.
    world.word(WAITER + OBJECT + PARKED_ON_AT, 0);
    world.word(WAITER + PENDING, MONITOR);
    world.word(MONITOR + 8, MONITOR + 8);
    let found = bounded(&world, &layout, 1_000).expect("it waits");
    assert_eq!((found.kind, found.holder), (BlockerKind::Monitor, RawHolder::Free));
    assert_eq!(found.class, None);
    world.word(WAITER + HANDLE, WAITER + HANDLE);
    bounded(&world, &layout, 1_000);
}

#[test]
fn a_class_name_of_any_bytes_is_clean_and_short() {
    let layout = layout_17();
    for name in
        ["a\u{1b}[2Jb".repeat(9_000), "\u{202e}/x".into(), "[".repeat(60_000), "é/".repeat(30_000)]
    {
        let world = world(&layout);
        world.word(LOCK_CLASS + 0x30, 0x8_0000);
        symbol(&world, &layout, 0x8_0000, &name[..name.floor_char_boundary(60_000)]);
        world.word(WAITER + PENDING, MONITOR);
        world.word(MONITOR + MONITOR_OWNER, OTHER);
        let mut jvm = jvm_with(&world, &layout);
        let found = jvm.blocker_on_stack(SP).expect("it waits");
        assert_eq!((found.object, found.holder), (LOCK, OTHER_HOLDS));
        let class = found.class.and_then(|class| jvm.names.thread(class));
        let shown = class.as_deref().unwrap_or_default();
        assert!(shown.len() <= NAME_CAP, "{} bytes", shown.len());
        assert!(!shown.chars().any(|c| c.is_control() || c == '\u{202e}'), "{shown:?}");
    }
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
