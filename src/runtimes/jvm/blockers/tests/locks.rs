//! Locks and synchronizers of `java.util.concurrent`.

use super::*;
use crate::runtimes::jvm::blockers::park::State;

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
fn readers_are_counted_above_the_writers() {
    let readers = |number, writer_bits| State { number, writer_bits }.readers();
    assert_eq!([readers(0x3_0000, 16), readers(1, 16), readers(0x2_0001, 16)], [3, 0, 2]);
    assert_eq!([readers(5 << 32, 32), readers(u64::MAX, 32)], [5, u32::MAX]);
}
