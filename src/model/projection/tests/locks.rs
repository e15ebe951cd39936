//! What threads waited for, who held it and where; the sentences about it.

use super::super::locks::MAX_PLACES;
use super::*;
use crate::model::facts::snapshot::{Deadlock, ThreadNow};
use crate::model::facts::tables::{Blocker, BlockerId, Holder, NameId, StackId};
use crate::model::projection::settings::Grouping;
use crate::model::projection::settings::Level;
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::frame::SECOND;

pub(super) const HELD: &str =
    "start;Rules::reload;Rules::fetch;sleep_until;libc.so.6!clock_nanosleep";
const WAITS: &str = "start;rate_for;libc.so.6!pthread_mutex_lock;libc.so.6!__lll_lock_wait";

pub(super) fn mine() -> Settings {
    Settings { level: Level::Mine, ..Settings::default() }
}

impl World {
    /// Adds a fact of a thread that waits for a lock, in ms.
    pub(super) fn waits(&mut self, thread: &str, ms: u64, blocker: Blocker) -> BlockerId {
        let id = self.interner.blocker(blocker);
        let weights = self.fact(thread, WAITS, State::Lock, ms * MS);
        (weights.longest_ns, weights.longest_from) = (ms * MS, 7);
        self.facts.last_mut().expect("just added").0.blocker = id;
        id
    }

    /// A lock that a thread holds in `stack`.
    pub(super) fn held_by(&mut self, object: u64, thread: &str, stack: &str) -> Blocker {
        self.fact(thread, stack, State::Sleep, MS);
        let (key, _) = *self.facts.last().expect("just added");
        let holder = Holder::Thread { thread: key.thread, name: key.name, stack: key.stack };
        Blocker { kind: BlockerKind::Mutex, pid: 1, object, class: None, holder }
    }
}

pub(super) const MS: u64 = SECOND / 1000;

#[test]
fn threads_that_wait_at_the_end_are_counted() {
    let mut world = World::new();
    let held = world.held_by(0x10, "timer", HELD);
    let again = world.held_by(0x10, "admin", HELD);
    let other = world.held_by(0x20, "timer", HELD);
    let waits = [("http-1", held), ("http-2", again), ("http-3", other)];
    let waiting = waits.map(|(thread, lock)| {
        let blocker = world.waits(thread, 100, lock);
        ThreadNow { blocker, ..now(&world.facts.last().expect("just added").0) }
    });
    let mut snapshot = world.snapshot();
    let mut count = |threads: &[ThreadNow]| {
        snapshot.threads = threads.into();
        let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
        let locks = projection.locks.iter();
        locks.map(|lock| (lock.object, lock.threads, lock.waiting_now)).collect::<Vec<_>>()
    };
    assert_eq!(count(&waiting), [(0x10, 2, 2), (0x20, 1, 1)]);
    assert_eq!(count(&waiting[..1]), [(0x10, 2, 1), (0x20, 1, 0)]);
    // One that has not waited for it in the range, or is not shown.
    let thread = ThreadKey { tid: 99, ..waiting[0].thread };
    assert_eq!(count(&[ThreadNow { thread, ..waiting[0] }])[0], (0x10, 2, 0));
}

#[test]
fn a_file_lock_of_a_process_with_several_threads_is_held_nowhere() {
    let mut world = World::new();
    let mut held = world.held_by(0x10, "main", HELD);
    let mut holder = now(&world.facts.last().expect("just added").0);
    // It is in another process than those that wait.
    (holder.thread.pid, holder.thread.tid) = (77, 77);
    if let Holder::Thread { thread, .. } = &mut held.holder {
        *thread = holder.thread;
    }
    world.waits("flock-1", 300, Blocker { kind: BlockerKind::FileLock, ..held });
    let mut snapshot = world.snapshot();
    let mut place = |tid: u32| {
        let thread = ThreadKey { tid, ..holder.thread };
        snapshot.threads = [ThreadNow { thread, ..holder }].into();
        let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
        projection.locks[0].holders[0].place.len()
    };
    let pid = holder.thread.pid;
    assert!(place(pid) > 0, "its only thread has it");
    assert_eq!(place(pid + 1), 0);
    // Of a range that is past, the threads of its facts are known.
    let mut world = World::new();
    let held = world.held_by(0x10, "main", HELD);
    world.waits("flock-1", 300, Blocker { kind: BlockerKind::FileLock, ..held });
    assert_eq!(world.project(&mine()).locks[0].holders[0].place.len(), 0, "two threads");
}

#[test]
fn waits_are_summed_by_lock_with_their_holders() {
    let mut world = World::new();
    let held = world.held_by(0x10, "timer", HELD);
    let other = world.held_by(0x10, "admin", "start;audit;libc.so.6!write");
    let elsewhere = world.held_by(0x20, "timer", HELD);
    world.waits("http-1", 300, held.clone());
    world.waits("http-1", 100, other);
    world.waits("http-2", 200, held.clone());
    world.waits("http-3", 50, elsewhere);
    world.waits("http-3", 20, Blocker { holder: Holder::Unknown, ..held });
    let projection = world.project(&mine());
    let name = |place: &Place| -> Vec<String> {
        place.iter().map(|location| location.function.to_string()).collect()
    };
    let locks: Vec<_> =
        projection.locks.iter().map(|l| (l.object, l.waited_ns, l.threads)).collect();
    assert_eq!(locks, [(0x10, 620 * MS, 3), (0x20, 50 * MS, 1)]);
    let lock = &projection.locks[0];
    assert_eq!((lock.longest_ns, lock.longest_from, lock.holder_count), (300 * MS, 7, 2));
    assert_eq!(
        (&name(&lock.waiting_in[0].0)[..], lock.waiting_in[0].1),
        (&["start".to_owned(), "rate_for".into()][..], 620 * MS)
    );
    let holders: Vec<_> =
        lock.holders.iter().map(|h| (&*h.name, h.waited_ns, name(&h.place))).collect();
    let place = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        holders,
        [
            ("timer", 500 * MS, place(&["Rules::reload", "Rules::fetch", "sleep_until"])),
            ("admin", 100 * MS, place(&["start", "audit"])),
            ("", 20 * MS, place(&[])),
        ]
    );
    assert_eq!(lock.main_holder().map(|held| &*held.name), Some("timer"));
    let waiters: Vec<_> = lock
        .waiters
        .iter()
        .map(|w| (&*w.name, w.waited_ns, w.longest_ns, w.longest_from))
        .collect();
    assert_eq!(
        waiters,
        [
            ("http-1", 400 * MS, 300 * MS, 7),
            ("http-2", 200 * MS, 200 * MS, 7),
            ("http-3", 20 * MS, 20 * MS, 7),
        ]
    );
    assert!(lock.waiters.iter().all(|w| name(&w.place) == place(&["start", "rate_for"])));
    // Each has a node of its tree.
    let nodes: Vec<Option<&str>> = (lock.waiters.iter())
        .map(|w| projection.node_of_waiter(w).map(|node| &*projection.name(node).function))
        .collect();
    assert_eq!(nodes, [Some("rate_for"); 3]);
}

#[test]
fn the_threads_of_a_lock_add_up_to_its_time() {
    let mut world = World::new();
    let held = world.held_by(0x10, "timer", HELD);
    for thread in 1..=12 {
        world.waits(&format!("http-{thread}"), thread * 10, held.clone());
        world.waits(&format!("http-{thread}"), 5, held.clone());
    }
    let projection = world.project(&mine());
    let lock = &projection.locks[0];
    assert_eq!((lock.threads, lock.waiters.len()), (12, MAX_PLACES));
    let waited: Vec<u64> = lock.waiters.iter().map(|waiter| waiter.waited_ns / MS).collect();
    assert_eq!(waited, [125, 115, 105, 95, 85, 75, 65, 55]);
    let rest: u64 = (1..=4).map(|thread| thread * 10 + 5).sum();
    assert_eq!(waited.iter().sum::<u64>() + rest, lock.waited_ns / MS);
}

/// Returns the locks after which the outermost functions of each group are named.
fn named_after(world: &mut World, settings: &Settings) -> Vec<(String, Option<String>)> {
    let projection = world.project(settings);
    let ordered = projection.ordered(settings);
    let mut rows = Vec::new();
    for group in &projection.groups {
        for root in ordered.roots(group) {
            let chain = chain(&ordered, root);
            let label = label(&ordered, chain.last, chain.swallowed);
            let lock = label.lock.as_ref().map(|lock| lock.text());
            rows.push((group.name.to_string(), lock));
        }
    }
    rows
}

#[test]
fn a_row_is_named_after_the_lock_for_which_most_of_its_time_is_waited() {
    // Of two groups that wait in one function, each for another lock.
    let mut world = World::new();
    let orders = world.held_by(0x10, "timer", HELD);
    let prices = Blocker { class: Some("Prices".into()), ..world.held_by(0x20, "admin", HELD) };
    world.waits("http-1", 300, orders);
    world.waits("http-2", 100, prices.clone());
    world.waits("web-1", 300, Blocker { kind: BlockerKind::ClassInit, ..prices.clone() });
    world.waits("batch", 200, Blocker { kind: BlockerKind::Monitor, ..prices });
    let rows = named_after(&mut world, &mine());
    let of = |group: &str| rows.iter().find(|(name, _)| name == group).expect("a group").1.clone();
    assert_eq!(of("http-").as_deref(), Some("mutex, held by timer"));
    assert_eq!(of("batch").as_deref(), Some("monitor of Prices, held by admin"));
    assert_eq!(of("web-").as_deref(), Some("initialisation of Prices, held by admin"));
    assert_eq!(of("timer"), None);
    // Half of the time is not most of it.
    for (known, expected) in [(100, None), (101, Some("mutex, held by timer".to_owned()))] {
        let mut world = World::new();
        let orders = world.held_by(0x10, "timer", HELD);
        world.waits("http-1", known, orders);
        world.fact("http-1", WAITS, State::Lock, 100 * MS);
        assert!(named_after(&mut world, &mine()).contains(&("http-".into(), expected)), "{known}");
    }
}

#[test]
fn cpu_time_is_not_waited_for_a_lock() {
    let mut world = World::new();
    let held = world.held_by(0x10, "timer", HELD);
    world.waits("http-1", 300, held);
    world.fact("http-1", WAITS, State::Run, MS);
    let settings = Settings { metric: Metric::Cpu, ..mine() };
    assert!(named_after(&mut world, &settings).contains(&("http-".into(), None)));
}

#[test]
fn a_row_names_who_held_the_lock_while_its_own_threads_waited() {
    let said = |waits: &[(&str, &str, u64)]| {
        let mut world = World::new();
        for (thread, holder, ms) in waits {
            let held = world.held_by(0x10, holder, HELD);
            let unknown = Blocker { holder: Holder::Unknown, ..held.clone() };
            world.waits(thread, *ms, if holder.is_empty() { unknown } else { held });
        }
        let rows = named_after(&mut world, &mine());
        rows.iter().find(|(name, _)| name == "http-").expect("a group").1.clone()
    };
    let in_turn = [("http-1", "a", 100), ("http-1", "b", 100), ("http-1", "c", 100)];
    assert_eq!(said(&in_turn).as_deref(), Some("mutex, held by 3 threads in turn"));
    // The lock's holder for most of the time is a thread of this row.
    let both = [("http-1", "batch", 1000), ("batch", "http-1", 9000)];
    assert_eq!(said(&both).as_deref(), Some("mutex, held by batch"));
    // Of most of the time it is not known.
    let unknown = [("http-1", "a", 40), ("http-1", "b", 40), ("http-1", "", 900)];
    assert_eq!(said(&unknown).as_deref(), Some("mutex"));
}

#[test]
fn how_code_was_compiled_makes_no_other_place() {
    let mut world = World::new();
    let inlined = HELD.replace("Rules::reload;Rules::fetch", "Rules::reload+Rules::fetch");
    let held = world.held_by(0x10, "timer", HELD);
    let held_in_inlined = world.held_by(0x10, "timer", &inlined);
    world.waits("http-1", 300, held);
    world.waits("http-2", 200, held_in_inlined);
    let holders = &world.project(&mine()).locks[0].holders;
    let times: Vec<u64> = holders.iter().map(|held| held.waited_ns).collect();
    assert_eq!(times, [500 * MS]);
}

#[test]
fn a_lock_is_named_with_its_holder_where_much_time_waits_for_it() {
    // Waited ms, other busy ms, whether it is said.
    for (waited, busy, said) in
        [(300, 100, true), (60, 400, true), (40, 1, false), (60, 800, false)]
    {
        let mut world = World::new();
        let held = world.held_by(0x10, "timer", HELD);
        world.waits("http-1", waited, held.clone());
        world.waits("http-2", 1, held);
        world.fact("main", "start;serve", State::Run, busy * MS);
        let finding = says(&mut world);
        let found = finding.as_ref().is_some_and(|found| found.text.contains("wait for one mutex"));
        assert_eq!(found, said, "{waited} {busy}: {finding:?}");
        if found {
            let more = finding.and_then(|found| found.more).map(|more| more.text(80));
            let expected =
                "held by timer in Rules::reload > Rules::fetch > sleep_until > clock_nanosleep";
            assert_eq!(more.as_deref(), Some(expected));
        }
    }
}

#[test]
fn a_holder_is_where_it_was_seen_to_be() {
    let mut world = World::new();
    let held = world.held_by(0x10, "timer", HELD);
    let Holder::Thread { thread, name, .. } = held.holder else { panic!("a thread") };
    let holder = Holder::Thread { thread, name, stack: StackId::EMPTY };
    world.waits("http-1", 300, Blocker { holder, ..held.clone() });
    world.waits("http-1", 100, held);
    let more = says(&mut world).and_then(|found| found.more).expect("a holder").text(80);
    assert!(more.starts_with("held by timer in Rules::reload > "), "{more}");
}

#[test]
fn a_lock_that_a_collector_moved_is_one() {
    let waited = |alternate: bool| {
        let mut world = World::new();
        let held = world.held_by(0x10, "timer", HELD);
        let lock = |object| {
            let (kind, class) = (BlockerKind::OwnedLock, Some("a.Sync".into()));
            Blocker { kind, class, object, ..held.clone() }
        };
        for nth in 0..6u64 {
            let object = if alternate { nth % 2 } else { nth / 3 };
            world.waits(&format!("http-{}", nth % 3), 100, lock(16 + 16 * object));
            world.facts.last_mut().expect("just added").1.longest_from = nth * 100 * MS;
        }
        let projection = world.project(&mine());
        let of_rows = (0..projection.node_count()).flat_map(|node| projection.waits_of(node));
        assert_eq!(of_rows.map(|wait| wait.waited_ns).sum::<u64>(), 600 * MS);
        projection
            .locks
            .iter()
            .map(|lock| {
                (lock.object, lock.waited_ns / MS, lock.threads, lock.holders[0].waited_ns / MS)
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(waited(false), [(32, 600, 3, 600)]);
    assert_eq!(waited(true), [(16, 300, 3, 300), (32, 300, 3, 300)]);
}

#[test]
fn a_queue_for_a_lock_is_told_although_each_wait_is_short() {
    for (unread, said) in [(9, true), (8, false)] {
        let mut world = World::new();
        let held = world.held_by(0x10, "timer", HELD);
        world.waits("http-0", 10, held);
        world.facts.last_mut().expect("just added").1.longest_ns = 5 * MS;
        for nth in 1..=unread {
            let weights = world.fact(&format!("http-{nth}"), WAITS, State::Lock, 10 * MS);
            weights.longest_ns = 5 * MS;
        }
        let sentence = says(&mut world).map(|found| found.sentence()).unwrap_or_default();
        let expected = "for one mutex: 99 % of busy time, up to 5 ms, held by timer";
        assert_eq!(sentence.contains(expected), said, "{unread}: {sentence}");
    }
}

#[test]
fn a_lock_that_was_held_too_long_once_is_told_with_the_time() {
    let mut world = World::new();
    world.till = 60 * SECOND;
    let held = world.held_by(0x10, "timer", HELD);
    for nth in 0..4 {
        world.waits(&format!("http-{nth}"), 300, held.clone());
        world.facts.last_mut().expect("just added").1.longest_from = SECOND;
    }
    world.fact("batch", "start;load", State::Run, 60 * SECOND);
    let snapshot = world.snapshot();
    let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
    let found = findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE);
    let hiccup = found.iter().find(|finding| finding.kind == Kind::Hiccup).expect("a hiccup");
    assert_eq!(hiccup.text, "4 threads waited for one mutex together for 300 ms at 00:00:01 UTC");
    let more = hiccup.more.as_ref().map(|more| more.text(80)).unwrap_or_default();
    assert!(more.starts_with("held by timer in "), "{more}");
}

#[test]
fn waits_whose_lock_was_not_read_count_for_the_only_lock_of_their_place() {
    for (others, share) in [(false, "99 %"), (true, "55 %")] {
        let mut world = World::new();
        let held = world.held_by(0x10, "timer", HELD);
        world.waits("http-1", 100, held.clone());
        world.fact("http-2", WAITS, State::Lock, 40 * MS);
        if others {
            world.waits("http-3", 40, Blocker { object: 0x20, ..held });
        }
        let sentence = says(&mut world).expect("a lock").text;
        assert!(sentence.contains(&format!(" for one mutex: {share}")), "{sentence}");
    }
}

#[test]
fn the_place_of_a_wait_whose_lock_was_not_read_is_the_same_however_it_was_compiled() {
    let mut world = World::new();
    let held = world.held_by(0x10, "timer", HELD);
    world.waits("http-1", 100, held);
    let inlined = WAITS.replace("start;rate_for", "start+rate_for");
    world.fact("http-2", &inlined, State::Lock, 400 * MS);
    let sentence = says(&mut world).expect("a lock").text;
    assert!(sentence.starts_with("2 threads wait for one mutex: 100 %"), "{sentence}");
}

#[test]
fn a_lock_without_a_known_holder_is_no_sentence_of_this_kind() {
    let mut world = World::new();
    let held = world.held_by(0x10, "timer", HELD);
    for holder in [Holder::Unknown, Holder::Free, Holder::Unmounted] {
        world.waits("http-1", 300, Blocker { holder, ..held.clone() });
    }
    assert_ne!(says(&mut world).map(|found| found.kind), Some(Kind::Lock));
    let mut readers = World::new();
    let held_for_reading = Blocker { holder: Holder::Readers(2), ..held.clone() };
    readers.waits("http-1", 300, held_for_reading);
    let sentence = says(&mut readers).map(|found| found.sentence()).unwrap_or_default();
    assert!(sentence.ends_with("up to 300 ms, held by 2 readers"), "{sentence}");
    let foreign = Holder::Foreign { pid: 77, tid: 78 };
    world.waits("http-1", 1, Blocker { holder: foreign, class: Some("a.Table".into()), ..held });
    let found = says(&mut world).expect("its holder is known");
    assert_eq!(
        found.text,
        "1 thread waits for the mutex of a.Table: 100 % of busy time, up to 300 ms"
    );
    assert_eq!(found.sentence().rsplit(", ").next(), Some("held by thread 78 of process 77"));
}

#[test]
fn an_object_that_is_not_proven_is_no_lock() {
    let mut world = World::new();
    let held = world.held_by(0, "timer", HELD);
    world.waits("http-1", 300, held.clone());
    world.waits("http-1", 300, Blocker { kind: BlockerKind::Child, object: 77, ..held.clone() });
    world.waits("http-1", 300, Blocker { kind: BlockerKind::Condition, object: 77, ..held });
    assert!(world.project(&mine()).locks.is_empty());
}

#[test]
fn a_recursion_is_one_function_of_a_place() {
    let mut world = World::new();
    let held = world.held_by(0x10, "timer", "start;walk;walk;walk;libc.so.6!write");
    world.waits("http-1", 300, held);
    let projection = world.project(&mine());
    let place: Vec<&str> =
        projection.locks[0].holders[0].place.iter().map(|location| &*location.function).collect();
    assert_eq!(place, ["start", "walk"]);
}

#[test]
fn a_wait_that_is_hidden_with_a_program_at_rest_names_no_lock() {
    // The range has 100 ns: 1 ns is at rest, 2 ns are not.
    for (ns, locks) in [(1, 0), (2, 1)] {
        let mut world = World::new();
        world.fact("tick", "start_thread;mio::tick;libc.so.6!pthread_mutex_lock", State::Lock, ns);
        let holder = Holder::Unknown;
        let mutex = Blocker { kind: BlockerKind::Mutex, pid: 1, object: 16, class: None, holder };
        let id = world.interner.blocker(mutex);
        world.facts.last_mut().expect("just added").0.blocker = id;
        assert_eq!(world.project(&mine()).locks.len(), locks, "{ns}");
    }
}

#[test]
fn waiting_for_work_is_no_wait_for_a_lock() {
    let mut world = World::new();
    let held = world.held_by(0x10, "timer", HELD);
    let id = world.interner.blocker(held);
    world.fact("pool-1", "start_thread;loop;epoll_wait", State::Poll, 500 * MS);
    world.facts.last_mut().expect("just added").0.blocker = id;
    assert!(world.project(&mine()).locks.is_empty());
}

#[test]
fn a_deadlock_goes_before_all_else() {
    let mut world = World::new();
    let held = world.held_by(0x10, "timer", HELD);
    world.waits("http-1", 300, held.clone());
    let mut snapshot = world.snapshot();
    snapshot.health.losses.stops = 3;
    let threads: Vec<ThreadNow> = world.facts.iter().map(|(key, _)| now(key)).collect();
    let keys: Vec<ThreadKey> = threads.iter().map(|now| now.thread).collect();
    snapshot.threads = threads.into();
    snapshot.deadlocks = [Deadlock { since: 1, threads: keys.into() }].into();
    let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
    let found = findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE);
    let found = found.first().expect("a deadlock");
    assert_eq!(found.text, "deadlock: timer and http-1 wait for each other");
    let more = found.more.as_ref().map(|more| more.text(80));
    assert_eq!(more.as_deref(), Some("timer in sleep_until, http-1 in rate_for"));
    assert_eq!(found.about, About::Target);
}

pub(super) fn now(key: &FactKey) -> ThreadNow {
    ThreadNow {
        thread: key.thread,
        name: key.name,
        stack: key.stack,
        state: key.state,
        since: 0,
        syscall: None,
        blocker: key.blocker,
        run_ns: 0,
        recovered: false,
    }
}

/// Returns the first sentence of a range of 100 ms.
pub(super) fn says(world: &mut World) -> Option<Finding> {
    let snapshot = world.snapshot();
    let mut projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
    (projection.from, projection.till) = (0, 100 * MS);
    findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE).into_iter().next()
}

#[test]
fn names_and_stacks_that_tables_lack_do_no_harm() {
    let mut world = World::new();
    let held = world.held_by(0x10, "timer", HELD);
    let thread = ThreadKey { pid: 1, tid: 9, start: 1 };
    let holder = Holder::Thread { thread, name: NameId(1 << 30), stack: StackId(1 << 30) };
    world.waits("http-1", 300, Blocker { holder, ..held });
    assert_eq!(world.project(&mine()).locks[0].holder_count, 1);
    world.facts.last_mut().expect("just added").0.blocker = BlockerId(1 << 30);
    assert!(world.project(&mine()).locks.is_empty());
}

#[test]
fn threads_can_be_grouped_by_what_they_wait_for() {
    let settings = Settings { grouping: Grouping::Blocker, idle: true, ..Settings::default() };
    let groups = |projector: &mut Projector, world: &World, snapshot: &Snapshot| {
        let projection = world.project_with(projector, snapshot, &settings);
        let text = |group: &Group| {
            format!("{}={}/{}", group.name, group.total.wall_ns, group.threads.len())
        };
        let order = projection.ordered(&settings).groups();
        order.iter().map(|at| text(&projection.groups[*at as usize])).collect::<Vec<_>>().join(", ")
    };
    let lock = |class: Option<&str>, holder| Blocker {
        kind: BlockerKind::Monitor,
        pid: 1,
        object: 16,
        class: class.map(Into::into),
        holder,
    };
    let mut world = World::new();
    world.waits("a", 9, lock(None, Holder::Free));
    world.waits("b", 1, lock(None, Holder::Unknown));
    world.fact("a", "run", State::Run, 2 * MS);
    world.fact("a", "park", State::Wait, 3 * MS);
    let mut projector = Projector::default();
    let first = world.snapshot();
    assert_eq!(
        groups(&mut projector, &world, &first),
        "monitor 0x10=10000000/2, (waits for something unknown)=3000000/1, (not waiting)=2000000/1"
    );
    // All waits get the class that is found later, and the process once there are two.
    world.waits("b", 10, lock(Some("Tax"), Holder::Free));
    let mut second = world.snapshot();
    let start = "monitor of Tax 0x10=20000000/2, ";
    assert!(groups(&mut projector, &world, &second).starts_with(start));
    let mut other = second.targets[0].clone();
    other.pid = 7;
    second.targets = [second.targets[0].clone(), other].into();
    let start = "monitor of Tax 0x10 of process 1=20000000/2, ";
    assert!(groups(&mut projector, &world, &second).starts_with(start));
    // Two locks at the same address of two processes are two.
    world.waits("c", 5, Blocker { pid: 7, ..lock(Some("Tax"), Holder::Free) });
    second.tables = world.snapshot().tables;
    let text = groups(&mut projector, &world, &second);
    assert!(text.contains(", monitor of Tax 0x10 of process 7=5000000/1"), "{text}");
    assert_eq!(text, groups(&mut Projector::default(), &world, &second));
}
