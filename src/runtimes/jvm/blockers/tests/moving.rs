//! Collectors that move objects while Java runs (ZGC, Shenandoah).

use super::*;

/// Where the bits of stale references are, and one of them.
const STALE_BITS: u64 = 0x3_3000;
const STALE: u64 = 1 << 45;
const STACK: LockStack = LockStack { top: 1712, base: 1720 };

fn found_with(world: &World, layout: &Layout, objects: Objects) -> Option<RawBlocker> {
    let mut jvm = jvm_with(world, layout);
    jvm.objects = Ok(objects);
    jvm.blockers.places.as_mut().expect("places").lock_stack = Some(STACK);
    let found = jvm.blocker_on_stack(SP);
    if let Some(class) = found.and_then(|found| found.class) {
        assert_eq!(jvm.names.thread(class).as_deref(), Some("com.acme.TaxTable"));
    }
    found
}

fn under_zgc(world: &World, layout: &Layout) -> Option<RawBlocker> {
    found_with(world, layout, Objects::made_up_moving(Some(STALE_BITS)))
}

fn under_shenandoah(world: &World, layout: &Layout) -> Option<RawBlocker> {
    found_with(world, layout, Objects::made_up_moving(None))
}

/// Returns a world in which references with one of these bits are stale.
fn world_with_stale(layout: &Layout, bits: u64) -> World {
    let world = world(layout);
    world.word(STALE_BITS, bits);
    world
}

#[test]
fn a_monitor_has_its_own_address_and_its_owner() {
    let layout = layout_17();
    let world = world_with_stale(&layout, STALE);
    world.word(WAITER + PENDING, MONITOR);
    world.word(MONITOR + MONITOR_OWNER, OTHER);
    for found in [under_zgc(&world, &layout), under_shenandoah(&world, &layout)] {
        let found = found.expect("it waits");
        assert_eq!((found.object, found.holder), (MONITOR, OTHER_HOLDS));
        assert!(found.class.is_some());
    }
}

#[test]
fn the_class_of_a_stale_object_is_known_if_its_mark_leads_back() {
    let layout = layout_17();
    // Every reference to the lock is stale.
    let world = world_with_stale(&layout, LOCK);
    world.word(WAITER + PENDING, MONITOR);
    world.word(MONITOR + MONITOR_OWNER, OTHER);
    let known = |mark: u64| {
        world.word(LOCK, mark);
        let found = under_zgc(&world, &layout).expect("it waits");
        assert_eq!((found.object, found.holder), (MONITOR, OTHER_HOLDS));
        found.class.is_some()
    };
    assert!(known(MONITOR | 2));
    for mark in [0, 1, MONITOR, MONITOR | 3, (MONITOR + 0x100) | 2] {
        assert!(!known(mark), "{mark:x}: another object may be there");
    }
}

#[test]
fn an_anonymous_owner_is_found_by_the_mark_of_what_it_has_locked() {
    let layout = layout_17();
    let world = world_with_stale(&layout, LOCK);
    // Where the collector has moved the lock to.
    const MOVED: u64 = 0x3_4000;
    world.word(WAITER + PENDING, MONITOR);
    world.word(MONITOR + MONITOR_OWNER, 1);
    world.put(OTHER + STACK.top, &(1720u32 + 8).to_le_bytes());
    world.word(OTHER + STACK.base, MOVED);
    let holder = || under_zgc(&world, &layout).expect("it waits").holder;
    assert_eq!(holder(), RawHolder::Unknown, "it has locked another object");
    world.word(MOVED, MONITOR | 2);
    assert_eq!(holder(), OTHER_HOLDS);
    world.word(OTHER + STACK.base, 1 << 50);
    assert_eq!(holder(), RawHolder::Unknown, "unreadable");
}

#[test]
fn a_lock_at_a_stale_reference_is_unknown() {
    let layout = layout_17();
    let world = world_with_stale(&layout, STALE);
    park(&world, &layout, "java/util/concurrent/locks/ReentrantLock$NonfairSync");
    world.word(LOCK + LOCK_OWNER_AT, OTHER + OBJECT);
    symbol(&world, &layout, LOCK_CLASS + 0x1000, "com/acme/TaxTable");
    let found = under_zgc(&world, &layout).expect("it waits");
    assert_eq!((found.object, found.holder), (LOCK, OTHER_HOLDS));
    // Only the reference to the owner is stale, then that to the lock, too.
    let of_waiter = WAITER + OBJECT;
    world.word(STALE_BITS, (OTHER + OBJECT) & !of_waiter & !LOCK);
    let found = under_zgc(&world, &layout).expect("it waits");
    assert_eq!((found.object, found.holder), (LOCK, RawHolder::Unknown));
    world.word(STALE_BITS, LOCK & !of_waiter & !(OTHER + OBJECT));
    let found = under_zgc(&world, &layout).expect("it waits");
    assert_eq!((found.object, found.class, found.holder), (0, None, RawHolder::Unknown));
}

#[test]
fn a_reader_whose_object_was_moved_is_one_reader_however_often_it_holds_the_lock() {
    const FIRST_READER_AT: u64 = 32;
    const FIRST_HOLDS_AT: u64 = 40;
    let layout = layout_17();
    let world = world_with_stale(&layout, STALE);
    park(&world, &layout, "java/util/concurrent/locks/ReentrantReadWriteLock$Sync");
    let fields = [("firstReader", FIRST_READER_AT), ("firstReaderHoldCount", FIRST_HOLDS_AT)];
    let name = "java/util/concurrent/locks/ReentrantReadWriteLock$Sync";
    class(&world, &layout, LOCK_CLASS, name, SYNC_CLASS, &fields);
    world.word(LOCK + FIRST_READER_AT, OTHER + OBJECT);
    let holder = |holds: u32, all: u32| {
        world.put(LOCK + FIRST_HOLDS_AT, &holds.to_le_bytes());
        world.put(LOCK + LOCK_STATE_AT, &(all << 16).to_le_bytes());
        let mut jvm = jvm_with(&world, &layout);
        jvm.objects = Ok(Objects::made_up_moving(Some(STALE_BITS)));
        jvm.blocker_on_stack(SP).expect("it waits").holder
    };
    assert_eq!([holder(2, 2), holder(1, 2)], [OTHER_HOLDS, RawHolder::Readers(2)]);
    world.word(STALE_BITS, (OTHER + OBJECT) & !(WAITER + OBJECT) & !LOCK);
    assert_eq!([holder(2, 2), holder(1, 2)], [RawHolder::Readers(1), RawHolder::Readers(2)]);
}

#[test]
fn a_lock_that_has_moved_is_unknown() {
    let layout = layout_17();
    let world = world(&layout);
    park(&world, &layout, "com/acme/TaxTable");
    world.word(LOCK + LOCK_OWNER_AT, OTHER + OBJECT);
    let found = under_shenandoah(&world, &layout).expect("it waits");
    assert_eq!((found.object, found.holder), (LOCK, OTHER_HOLDS));
    for object in [LOCK, OTHER + OBJECT, WAITER + OBJECT] {
        world.word(object, 0x3_4003);
        let found = under_shenandoah(&world, &layout);
        let unknown = found.is_none_or(|found| {
            (found.object, found.class, found.holder) == (0, None, RawHolder::Unknown)
        });
        assert!(unknown, "{object:x}: {found:?}");
        world.word(object, 1);
    }
}

#[test]
fn a_thread_whose_reference_to_itself_is_stale_says_nothing_of_its_object() {
    let layout = layout_17();
    let world = world_with_stale(&layout, (WAITER + OBJECT) & !LOCK);
    park(&world, &layout, "com/acme/TaxTable");
    assert_eq!(under_zgc(&world, &layout), None);
    world.word(STALE_BITS, STALE);
    assert_eq!(under_zgc(&world, &layout).map(|found| found.object), Some(LOCK));
    // A monitor that it enters is known without its object.
    world.word(STALE_BITS, (WAITER + OBJECT) & !LOCK);
    world.word(WAITER + PENDING, MONITOR);
    assert_eq!(under_zgc(&world, &layout).map(|found| found.object), Some(MONITOR));
}

/// Memory in which the collector uses a place again after a number of reads of it.
struct UsedAgain<'w> {
    world: &'w World,
    at: u64,
    after: u32,
    reads: Cell<u32>,
}

impl ReadMemory for UsedAgain<'_> {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        if address == self.at {
            self.reads.set(self.reads.get() + 1);
            if self.reads.get() > self.after {
                self.world.word(self.at, 0x77);
            }
        }
        self.world.read(address, buf)
    }
}

#[test]
fn what_was_a_monitors_object_and_is_no_more_has_no_class() {
    let layout = layout_17();
    for after in 0..=1 {
        let world = world_with_stale(&layout, LOCK);
        world.word(WAITER + PENDING, MONITOR);
        world.word(LOCK, MONITOR | 2);
        let memory = UsedAgain { world: &world, at: LOCK, after, reads: Cell::new(0) };
        let mut jvm = jvm_with(memory, &layout);
        jvm.objects = Ok(Objects::made_up_moving(Some(STALE_BITS)));
        let found = jvm.blocker_on_stack(SP).expect("it waits");
        assert_eq!(found.class, None, "used again after {after} reads");
    }
}
