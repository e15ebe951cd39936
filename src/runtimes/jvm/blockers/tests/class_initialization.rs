//! Threads that wait for a class that another thread initialises.

use proptest::prelude::*;

use super::*;

/// A class, and what it refers to.
const CONFIG: u64 = 0x5_0000;
const OTHER_CLASS: u64 = 0x5_8000;
const POOL: u64 = 0x1000;
const NAME: u64 = 0x1400;
const MIRROR_HANDLE: u64 = 0x1800;
const MIRROR: u64 = 0x2000;
/// In a mirror: the reference to the init lock.
const INIT_LOCK: u64 = 72;

const STATE: u64 = 315;
const INIT_THREAD: u64 = 320;
const CONSTANTS: u64 = 232;
const POOL_HOLDER: u64 = 24;
const NAME_OF_CLASS: u64 = 24;
const JAVA_MIRROR: u64 = 112;
const RUNNABLE: u32 = 5;

const ON_STACK: u64 = SP + 0x1f0;

/// A change of memory: what it means, and what writes it.
type Change<'a> = (&'static str, &'a dyn Fn(&World));

/// Puts a class there that `thread` initialises. Its init lock is `lock`.
fn initialises(world: &World, layout: &Layout, class: u64, name: &str, thread: u64, lock: u64) {
    world.put(class + STATE, &[BEING_INITIALIZED]);
    world.word(class + INIT_THREAD, thread);
    world.word(class + CONSTANTS, class + POOL);
    world.word(class + POOL + POOL_HOLDER, class);
    world.word(class + NAME_OF_CLASS, class + NAME);
    symbol(world, layout, class + NAME, name);
    world.word(class + JAVA_MIRROR, class + MIRROR_HANDLE);
    world.word(class + MIRROR_HANDLE, class + MIRROR);
    world.word(class + MIRROR + INIT_LOCK, lock);
}

/// The waiter waits for `Config`, which the other thread initialises.
fn waits(layout: &Layout) -> World {
    let world = world(layout);
    initialises(&world, layout, CONFIG, "com/acme/Config", OTHER, LOCK);
    class(&world, layout, LOCK_CLASS, "[I", 0, &[]);
    world.word(WAITER + WAITING, MONITOR);
    world.put(WAITER + OBJECT + STATUS_AT, &RUNNABLE.to_le_bytes());
    world.word(ON_STACK, CONFIG);
    world
}

fn found_in(world: &World, layout: &Layout) -> Option<RawBlocker> {
    let mut jvm = jvm_with(world, layout);
    let before = world.reads();
    let found = jvm.blocker_on_stack(SP);
    assert!(world.reads() - before < 2_000, "{} reads", world.reads() - before);
    found
}

#[test]
fn a_class_and_the_thread_that_initialises_it_are_found() {
    let layout = layout_17();
    let world = waits(&layout);
    // Addresses of other things, and a class that was initialised before.
    initialises(&world, &layout, OTHER_CLASS, "com/acme/Done", 0, 0);
    world.put(OTHER_CLASS + STATE, &[BEING_INITIALIZED + 1]);
    for (nth, word) in [(0, OTHER_CLASS), (1, WAITER), (3, CONFIG), (5, u64::MAX), (7, 1 << 46)] {
        world.word(SP + 8 * nth, word);
    }
    let mut jvm = jvm_with(&world, &layout);
    let mut reads = Vec::new();
    for _ in 0..2 {
        let before = world.reads();
        let found = jvm.blocker_on_stack(SP).expect("it waits");
        reads.push(world.reads() - before);
        let known = (found.kind, found.object, found.holder);
        assert_eq!(known, (BlockerKind::ClassInit, CONFIG, OTHER_HOLDS));
        let class = found.class.and_then(|class| jvm.names.thread(class));
        assert_eq!(class.as_deref(), Some("com.acme.Config"));
    }
    assert!(reads[1] < 80 && reads[0] > 120, "the class is known: {reads:?}");
    // The monitor is another class's now.
    initialises(&world, &layout, OTHER_CLASS, "com/acme/Done", OTHER, LOCK);
    world.word(CONFIG + MIRROR + INIT_LOCK, 0);
    assert_eq!(jvm.blocker_on_stack(SP).map(|found| found.object), Some(OTHER_CLASS));
}

#[test]
fn the_lock_says_which_of_several_classes_it_is() {
    let layout = layout_17();
    let world = waits(&layout);
    initialises(&world, &layout, OTHER_CLASS, "com/acme/Other", OTHER, LOCK + 0x100);
    world.word(SP, OTHER_CLASS);
    assert_eq!(found_in(&world, &layout).map(|found| found.object), Some(CONFIG));
    // Only one class has the lock.
    world.word(OTHER_CLASS + MIRROR + INIT_LOCK, LOCK);
    assert_eq!(found_in(&world, &layout), None);
}

#[test]
fn the_mirror_may_have_no_handle_and_references_may_be_stale() {
    let layout = layout_17();
    let world = waits(&layout);
    let mut jvm = jvm_with(&world, &layout);
    let text = [include_str!("../../tests/fields_17.txt"), FIELDS].concat();
    let text = text.replace("_java_mirror 112 OopHandle", "_java_mirror 112 oop");
    let structs = Structs::of_text(&text).with_constant("InstanceKlass::being_initialized", 3);
    jvm.blockers.class_places = ClassPlaces::of(&structs, &layout);
    assert_eq!(jvm.blocker_on_stack(SP), None);
    world.word(CONFIG + JAVA_MIRROR, CONFIG + MIRROR);
    assert_eq!(jvm.blocker_on_stack(SP).map(|found| found.holder), Some(OTHER_HOLDS));
}

#[test]
fn nothing_else_is_taken_for_an_initialisation() {
    let layout = layout_17();
    let no_thread = LOCK;
    let changes: [Change<'_>; 14] = [
        ("it is linked", &|world| world.put(CONFIG + STATE, &[BEING_INITIALIZED - 1])),
        ("it is initialised", &|world| world.put(CONFIG + STATE, &[BEING_INITIALIZED + 1])),
        ("by the waiter itself", &|world| world.word(CONFIG + INIT_THREAD, WAITER)),
        ("by no thread", &|world| world.word(CONFIG + INIT_THREAD, 0)),
        ("by garbage", &|world| world.word(CONFIG + INIT_THREAD, no_thread)),
        ("no class", &|world| world.word(CONFIG + POOL + POOL_HOLDER, OTHER_CLASS)),
        ("another lock", &|world| world.word(CONFIG + MIRROR + INIT_LOCK, LOCK + 8)),
        ("no lock any more", &|world| world.word(CONFIG + MIRROR + INIT_LOCK, 0)),
        ("not on the stack", &|world| world.word(ON_STACK, 0)),
        ("longs", &|world| class(world, &layout, LOCK_CLASS, "[J", 0, &[])),
        ("a class loader", &|world| class(world, &layout, LOCK_CLASS, "com/acme/Loader", 0, &[])),
        ("no object", &|world| world.word(MONITOR_HANDLE, 0)),
        ("parked", &|world| world.put(WAITER + OBJECT + STATUS_AT, &657u32.to_le_bytes())),
        ("asleep", &|world| world.put(WAITER + OBJECT + STATUS_AT, &225u32.to_le_bytes())),
    ];
    for (what, change) in changes {
        let world = waits(&layout);
        assert!(found_in(&world, &layout).is_some(), "{what}");
        change(&world);
        assert_eq!(found_in(&world, &layout), None, "{what}");
    }
    // `Object.wait` on an `int[]` of the program's.
    let world = waits(&layout);
    world.put(WAITER + OBJECT + STATUS_AT, &401u32.to_le_bytes());
    let found = found_in(&world, &layout).expect("it waits");
    assert_eq!((found.kind, found.object), (BlockerKind::Notify, LOCK));
}

#[test]
fn what_refers_to_itself_has_an_end() {
    let layout = layout_17();
    let circles: [Change<'_>; 5] = [
        ("constants", &|world| world.word(CONFIG + CONSTANTS, CONFIG)),
        ("mirror", &|world| world.word(CONFIG + MIRROR_HANDLE, CONFIG)),
        ("handle", &|world| world.word(CONFIG + JAVA_MIRROR, CONFIG + JAVA_MIRROR)),
        ("lock", &|world| world.word(MONITOR_HANDLE, MONITOR)),
        ("monitor", &|world| world.word(WAITER + WAITING, WAITER)),
    ];
    for (what, change) in circles {
        let world = waits(&layout);
        change(&world);
        assert_eq!(found_in(&world, &layout), None, "{what}");
    }
    // A stack full of the class, and one of classes that are all alike.
    let world = waits(&layout);
    (0..256).for_each(|nth| world.word(SP + 8 * nth, CONFIG));
    assert_eq!(found_in(&world, &layout).map(|found| found.holder), Some(OTHER_HOLDS));
    (0..256).for_each(|nth| world.word(SP + 8 * nth, 0x6_0000 + 8 * nth));
    assert_eq!(found_in(&world, &layout), None);
    (0..32).for_each(|nth| {
        let class = 0x7_0000 + 0x4000 * nth;
        initialises(&world, &layout, class, "com/acme/Many", OTHER, LOCK);
        world.word(SP + 8 * nth, class);
    });
    assert_eq!(found_in(&world, &layout), None);
}

/// Memory that changes at one of the reads.
struct Changes<'w>(&'w World, u32, fn(&World));

impl ReadMemory for Changes<'_> {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        if self.0.reads() == self.1 {
            (self.2)(self.0);
        }
        self.0.read(address, buf)
    }
}

#[test]
fn what_changes_meanwhile_is_not_shown() {
    let layout = layout_17();
    let changes: [fn(&World); 3] = [
        |world| world.put(CONFIG + STATE, &[BEING_INITIALIZED + 1]),
        |world| world.word(CONFIG + MIRROR + INIT_LOCK, LOCK + 0x100),
        |world| world.word(CONFIG + INIT_THREAD, WAITER),
    ];
    for change in changes {
        let mut shown = Vec::new();
        for at in 0.. {
            let world = waits(&layout);
            let found = jvm_with(Changes(&world, at, change), &layout).blocker_on_stack(SP);
            assert!(found.is_none_or(|found| found.holder == OTHER_HOLDS), "at {at}: {found:?}");
            shown.push(found.is_some());
            if world.reads() <= at {
                break;
            }
        }
        // All words are read again at the end. Those behind the word may be read after it has
        // changed: at the moment before, everything was as it is shown.
        let first = shown.iter().position(|shown| *shown).expect("it was not changed");
        assert!(shown[first..].iter().all(|shown| *shown), "{shown:?}");
        assert!(first > 80 && shown.len() - first < 20, "{first} of {}", shown.len());
    }
}

/// Where init locks are native monitors, this word of a thread is the class.
const CLASS_IN_THREAD: u64 = 1368;
const THREAD_STATE: u64 = 824;
const BLOCKED: u32 = 10;

/// The waiter waits for `Config`, where init locks are native monitors.
fn waits_natively(layout: &Layout) -> World {
    let world = waits(layout);
    world.word(WAITER + WAITING, 0);
    for thread in [WAITER, OTHER] {
        world.put(thread + THREAD_STATE, &BLOCKED.to_le_bytes());
    }
    world.word(WAITER + CLASS_IN_THREAD, CONFIG);
    world
}

fn with_native_locks<M: ReadMemory>(memory: M, layout: &Layout) -> Jvm<M> {
    let fields = "JavaThread _thread_state 824 JavaThreadState\nsizeof JavaThread 1384\n";
    let text = [include_str!("../../tests/fields_17.txt"), FIELDS, fields].concat();
    let structs = Structs::of_text(&text)
        .with_constant("InstanceKlass::being_linked", 2)
        .with_constant("InstanceKlass::being_initialized", BEING_INITIALIZED.into())
        .with_constant("_thread_blocked", BLOCKED.into());
    let mut jvm = jvm_with(memory, layout);
    jvm.blockers.class_places = ClassPlaces::of(&structs, layout);
    jvm
}

#[test]
fn where_init_locks_are_native_the_thread_says_the_class() {
    let layout = layout_17();
    let world = waits_natively(&layout);
    assert_eq!(found_in(&world, &layout), None, "here they are monitors");
    let calls = Calls(&world, Cell::new(0));
    let mut jvm = with_native_locks(&calls, &layout);
    let sp_of_other = OTHER + STACK_BASE - 0x800;
    world.put(OTHER + OBJECT + STATUS_AT, &225u32.to_le_bytes());
    assert_eq!(jvm.blocker_on_stack(sp_of_other), None, "it sleeps");
    for _ in 0..2 {
        let found = jvm.blocker_on_stack(SP).expect("it waits");
        let known = (found.kind, found.object, found.holder);
        assert_eq!(known, (BlockerKind::ClassInit, CONFIG, OTHER_HOLDS));
    }
    assert_eq!(jvm.blockers.class_in_thread, Some(CLASS_IN_THREAD));
    // Others cost one more read.
    let before = calls.1.get();
    assert_eq!(jvm.blocker_on_stack(sp_of_other), None);
    assert_eq!(calls.1.get() - before, 3);
    for (at, right, wrong) in [
        (CONFIG + POOL + POOL_HOLDER, CONFIG, LOCK),
        (CONFIG + INIT_THREAD, OTHER, WAITER),
        (WAITER + CLASS_IN_THREAD, CONFIG, LOCK),
        (WAITER + CLASS_IN_THREAD, CONFIG, 0),
    ] {
        world.word(at, wrong);
        assert_eq!(jvm.blocker_on_stack(SP), None, "{wrong:x} at {at:x}");
        world.word(at, right);
        assert!(jvm.blocker_on_stack(SP).is_some(), "{at:x}");
    }
}

#[test]
fn the_place_in_the_thread_must_be_the_only_one() {
    let layout = layout_17();
    let changes: [Change<'_>; 6] = [
        ("two places", &|world| world.word(WAITER + 1000, CONFIG)),
        ("not on the stack", &|world| world.word(ON_STACK, 0)),
        ("in native code", &|world| world.put(WAITER + THREAD_STATE, &[4, 0, 0, 0])),
        ("asleep", &|world| world.put(WAITER + OBJECT + STATUS_AT, &225u32.to_le_bytes())),
        ("by itself", &|world| world.word(CONFIG + INIT_THREAD, WAITER)),
        ("two classes", &|world| {
            initialises(world, &layout, OTHER_CLASS, "com/acme/Other", OTHER, LOCK);
            world.word(WAITER + 1000, OTHER_CLASS);
        }),
    ];
    for (what, change) in changes {
        let world = waits_natively(&layout);
        change(&world);
        let mut jvm = with_native_locks(&world, &layout);
        let before = world.reads();
        assert_eq!(jvm.blocker_on_stack(SP), None, "{what}");
        assert_eq!(jvm.blockers.class_in_thread, None, "{what}");
        assert!(world.reads() - before < 2_000, "{what}");
    }
}

#[test]
fn a_thread_that_claims_the_waiters_own_id_is_no_holder() {
    let layout = layout_17();
    let world = waits(&layout);
    world.word(OTHER + layout.threads.os_thread, WAITER + OS_THREAD);
    let found = jvm_with(&world, &layout).blocker_on_stack(SP).expect("it waits for the class");
    assert_eq!(found.holder, RawHolder::Unknown);
}

proptest! {
    /// Whatever stands in memory, a call ends after bounded work, and no thread waits for itself.
    #[test]
    fn garbage_has_an_end(
        changes in prop::collection::vec((0usize..16, prop_oneof![
            0u64..64,
            (0u64..0x1000).prop_map(|word| CONFIG + 8 * word),
            (0u64..0x800).prop_map(|word| WAITER + 8 * word),
            any::<u64>(),
        ]), 0..6),
        native in any::<bool>(),
    ) {
        let layout = layout_17();
        let world = if native { waits_natively(&layout) } else { waits(&layout) };
        let places = [
            CONFIG + STATE - 3, CONFIG + INIT_THREAD, CONFIG + CONSTANTS, CONFIG + NAME_OF_CLASS,
            CONFIG + JAVA_MIRROR, CONFIG + POOL + POOL_HOLDER, CONFIG + MIRROR_HANDLE,
            CONFIG + MIRROR + INIT_LOCK, CONFIG + NAME, MONITOR + 8, MONITOR_HANDLE, LOCK + 8,
            ON_STACK, WAITER + WAITING, WAITER + CLASS_IN_THREAD, OTHER + layout.threads.os_thread,
        ];
        for (place, word) in &changes {
            world.word(places[*place], *word);
        }
        let mut jvm = if native { with_native_locks(&world, &layout) } else { jvm_with(&world, &layout) };
        for _ in 0..2 {
            let before = world.reads();
            let found = jvm.blocker_on_stack(SP);
            prop_assert!(world.reads() - before < 10_000, "{found:?}");
            prop_assert!(!changes.is_empty() || found.is_some());
            let own = RawHolder::Thread { pid: 7, tid: 71 };
            prop_assert!(found.is_none_or(|found| found.holder != own));
        }
    }
}
