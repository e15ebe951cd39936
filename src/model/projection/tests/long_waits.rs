//! The list of long waits: what is one wait, which are listed, and what is said of each.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::locks::{HELD, MS, mine, now};
use super::properties::{fact, settings, world};
use super::*;
use crate::model::facts::history::{Parts, Range};
use crate::model::facts::observed_waits::ObservedWait;
use crate::model::facts::packed::Packed;
use crate::model::facts::snapshot::ThreadNow;
use crate::model::facts::tables::{Blocker, BlockerId, Holder};
use crate::model::projection::settings::{Grouping, Level};
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::event::Syscall;
use crate::model::vocabulary::waits_for::WaitsFor;

const READS: &str = "start;Cart::load;libc.so.6!read";
const POOL: &str = "start;rayon_core::sleep::Sleep::sleep";

impl World {
    /// Adds a fact of a thread whose longest wait of that bucket began at `from` and lasted for
    /// `ms` so far, both ms.
    fn long(
        &mut self,
        thread: &str,
        stack: &str,
        state: State,
        from: u64,
        ms: u64,
    ) -> &mut Weights {
        let weights = self.fact(thread, stack, state, ms * MS);
        (weights.longest_ns, weights.longest_from) = (ms * MS, from * MS);
        weights
    }
}

/// Returns name, start and duration of each wait, ms.
fn listed(projection: &Projection) -> Vec<(&str, u64, u64)> {
    let waits = projection.long_waits.iter();
    waits.map(|wait| (&*wait.name, wait.from_ns / MS, wait.duration_ns / MS)).collect()
}

#[test]
fn a_wait_over_three_buckets_is_one_of_its_full_length() {
    let mut world = World::new();
    for ms in [300, 1300, 2050] {
        world.long("http-1", READS, State::Io, 700, ms);
    }
    let facts: Vec<_> = world.facts.drain(..).collect();
    let second = 1000 * MS;
    let bucket = |(nth, fact): (u64, &(FactKey, Weights))| {
        Packed::new(nth * second, (nth + 1) * second, vec![*fact])
    };
    let sealed = (0..).zip(&facts).map(bucket).collect();
    let parts = Parts { started: 0, at: 3 * second, sealed, ..Parts::default() };
    let mut snapshot = world.snapshot();
    snapshot.at = 3 * second;
    snapshot.history = History::from_parts(parts).expect("buckets in order");
    let over = |window_ms| {
        let range = Range::Rolling(window_ms * MS);
        project(&snapshot, &Settings { range, ..mine() })
    };
    assert_eq!(listed(&over(3000)), [("http-1", 700, 2050)]);
    // Also where it began before the range.
    assert_eq!(listed(&over(1000)), [("http-1", 700, 2050)]);
    // In a range that is past it goes on, unless it ended there.
    let between = |from_ms, till_ms| {
        let range = Range::Between { from: from_ms * MS, till: till_ms * MS };
        project(&snapshot, &Settings { range, ..mine() })
    };
    let second = between(1000, 2000);
    assert_eq!(listed(&second), [("http-1", 700, 1300)]);
    assert!(second.long_waits[0].goes_on);
    assert!(!between(2000, 2999).long_waits[0].goes_on);
}

#[test]
fn waits_are_told_apart_by_thread_and_start_and_the_longest_comes_first() {
    let mut world = World::new();
    world.long("http-1", READS, State::Io, 0, 20);
    world.long("http-1", READS, State::Io, 50, 30);
    world.long("http-2", READS, State::Io, 60, 20);
    world.long("http-2", READS, State::Io, 0, 20);
    let projection = world.project(&mine());
    let expected = [("http-1", 50, 30), ("http-1", 0, 20), ("http-2", 0, 20), ("http-2", 60, 20)];
    let mut found = listed(&projection);
    found[1..3].sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(projection.long_waits_dropped, 0);
}

#[test]
fn a_long_wait_lasts_for_ten_milliseconds_and_one_sampling_interval() {
    let mut world = World::new();
    world.long("a", READS, State::Io, 0, 9).longest_ns += MS - 1;
    world.long("b", READS, State::Io, 0, 10);
    world.long("c", READS, State::Io, 0, 49);
    world.long("d", READS, State::Io, 0, 50);
    // These wait for nothing.
    world.long("e", READS, State::Rdy, 0, 90);
    world.long("f", READS, State::Run, 0, 90);
    let mut snapshot = world.snapshot();
    let mut names = |interval_ms: u64| {
        snapshot.health.interval_achieved_ns = interval_ms * MS;
        let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
        listed(&projection).iter().map(|(name, ..)| *name).collect::<String>()
    };
    assert_eq!([names(0), names(50)], ["dcb", "d"]);
    let session = Session { interval_ns: MS, ..Session::made_up() };
    world.session = session.into();
    assert_eq!(listed(&world.project(&mine())).len(), 3, "an interval of 1 ms");
}

#[test]
fn hidden_waits_are_not_listed() {
    let mut world = World::new();
    world.long("http-1", READS, State::Io, 0, 50);
    world.long("http-2", "start;audit;libc.so.6!fsync", State::Io, 0, 40);
    world.long("^timer", READS, State::Io, 0, 30);
    world.long("pool-1", POOL, State::Wait, 0, 90);
    world.fact("http-1", "start;Cart::add", State::Run, 500 * MS);
    let mut shown = |change: &dyn Fn(&mut Settings)| -> String {
        let mut settings = Settings { level: Level::Chains, ..Settings::default() };
        change(&mut settings);
        let projection = world.project(&settings);
        listed(&projection).iter().map(|(name, ..)| format!("{name} ")).collect()
    };
    let filter = |text: &str| Filter { value: Some(text.parse().expect("a pattern")), on: true };
    assert_eq!(shown(&|_| {}), "http-1 http-2 timer ");
    assert_eq!(shown(&|settings| settings.idle = true), "pool-1 http-1 http-2 timer ");
    assert_eq!(shown(&|settings| settings.filters.skip_daemon = true), "http-1 http-2 ");
    assert_eq!(shown(&|settings| settings.filters.threads = filter("-2$")), "http-2 ");
    assert_eq!(shown(&|settings| settings.filters.focus = filter("Cart")), "http-1 timer ");
    assert_eq!(shown(&|settings| settings.filters.ignore = filter("Cart")), "http-2 ");
}

#[test]
fn idle_waits_are_listed_if_nothing_else_is_left() {
    let mut world = World::new();
    world.long("pool-1", POOL, State::Wait, 0, 90);
    let chains = Settings { level: Level::Chains, ..Settings::default() };
    assert_eq!(listed(&world.project(&chains)), [("pool-1", 0, 90)]);
    assert_eq!(listed(&world.project(&mine())), []);
    world.fact("http-1", "start;Cart::add", State::Run, 5);
    assert_eq!(listed(&world.project(&chains)), []);
}

#[test]
fn what_a_program_at_rest_does_for_itself_is_not_listed() {
    let mut world = World::new();
    world.till = 1000 * 1000 * MS;
    world.long("tick", "start_thread;mio::tick;libc.so.6!read", State::Io, 0, 50);
    let projection = world.project(&mine());
    assert!(projection.total.is_empty(), "it is hidden");
    assert_eq!(listed(&projection), []);
}

#[test]
fn a_wait_says_for_what_and_who_held_it_where() {
    let mut world = World::new();
    let held = world.held_by(0x10, "timer", HELD);
    let (monitor, class) = (BlockerKind::Monitor, Some("com.shop.TaxTable".into()));
    let end = Blocker { kind: BlockerKind::ThreadEnd, ..held.clone() };
    let free = Blocker { holder: Holder::Free, object: 0x20, ..held.clone() };
    let future = Blocker { kind: BlockerKind::Future, ..free.clone() };
    let readers = Blocker { kind: BlockerKind::RwLock, holder: Holder::Readers(3), ..free.clone() };
    let file = Blocker { kind: BlockerKind::FileLock, ..held.clone() };
    let holder = now(&world.facts.last().expect("just added").0);
    let blockers = [Blocker { kind: monitor, class, ..held }, end, free, future, readers, file];
    for (thread, blocker) in (0..).zip(blockers) {
        world.waits(&format!("http-{thread}"), 100 - thread, blocker);
    }
    let mut snapshot = world.snapshot();
    // The process that holds the file lock has several threads.
    snapshot.threads = [holder].into();
    let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
    let said: Vec<String> = (projection.long_waits.iter())
        .map(|wait| {
            let held_in = wait.held_in.as_ref().map(|location| &*location.function);
            let what = wait.what(&snapshot).expect("a blocker");
            format!("{what}, {:?}, {held_in:?}", wait.held_by(&snapshot).unwrap_or_default())
        })
        .collect();
    let expected = [
        r#"monitor of TaxTable, "held by timer", Some("sleep_until")"#,
        r#"end of timer, "", Some("sleep_until")"#,
        r#"mutex, "", None"#,
        r#"future, "no thread runs it", None"#,
        r#"rwlock, "held by 3 readers", None"#,
        r#"file lock, "held by timer", None"#,
    ];
    assert_eq!(said, expected);
}

#[test]
fn a_wait_without_a_blocker_says_what_was_looked_up_meanwhile() {
    let mut world = World::new();
    world.long("http-1", READS, State::Io, 100, 50);
    world.long("http-2", "start;save;vmlinux!vm_mmap_pgoff", State::Disk, 0, 40);
    world.long("http-3", READS, State::Io, 0, 30);
    let mut snapshot = world.snapshot();
    let (key, _) = world.facts[0];
    let object = "/var/orders".to_owned();
    let waits_for = WaitsFor { what: "read", fd: Some(3), object, peer: None };
    let call = Syscall { number: 0, args: [0; 6] };
    let mut says = |at: u64| -> Vec<Option<String>> {
        let (thread, stack, at) = (key.thread, key.stack, at * MS);
        let waits_for = waits_for.clone();
        snapshot.observed_waits =
            [ObservedWait { thread, stack, call, waits_for, times: 1, at }].into();
        let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
        projection.long_waits.iter().map(|wait| wait.what(&snapshot)).collect()
    };
    let lock = Some("mmap_lock (memory map)".to_owned());
    let read = Some("read fd 3 /var/orders".to_owned());
    assert_eq!(says(150), [read.clone(), lock.clone(), None]);
    assert_eq!(says(100), [read, lock.clone(), None]);
    assert_eq!([says(99), says(151)], [[None, lock.clone(), None], [None, lock, None]]);
}

#[test]
fn a_wait_that_goes_on_is_marked_and_lasts_until_the_snapshot() {
    let mut world = World::new();
    world.long("http-1", READS, State::Io, 10, 50);
    let key = world.facts[0].0;
    let mut snapshot = world.snapshot();
    snapshot.at = 100 * MS;
    let mut at = |now: ThreadNow| {
        snapshot.threads = [now].into();
        let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
        let wait = projection.long_waits[0].clone();
        (wait.goes_on, wait.from_ns / MS, wait.duration_ns / MS)
    };
    let waiting = ThreadNow { since: 10 * MS, ..now(&key) };
    assert_eq!(at(waiting), (true, 10, 90));
    // Where visits are rationed it is known of 50 ms only that they belong to the wait.
    assert_eq!(at(ThreadNow { since: 50 * MS, ..waiting }), (true, 10, 50));
    for other in [
        ThreadNow { since: 70 * MS, ..waiting },
        ThreadNow { state: RawState::Known(State::Run), ..waiting },
        ThreadNow { thread: ThreadKey { tid: 99, ..key.thread }, ..waiting },
    ] {
        assert_eq!(at(other), (false, 10, 50));
    }
}

#[test]
fn a_wait_knows_its_group_and_the_node_at_which_its_stack_ends() {
    let mut world = World::new();
    world.long("http-1", READS, State::Io, 0, 50);
    world.long("admin-1", "start;Cart::load;libc.so.6!fsync", State::Io, 0, 40);
    world.long("~GC #1", "start;mark", State::Io, 0, 30);
    world.long("~GC #1", "", State::Io, 50, 20);
    let settings = Settings { level: Level::All, ..Settings::default() };
    let projection = world.project(&settings);
    let places: Vec<_> = (projection.long_waits.iter())
        .map(|wait| {
            let node = wait.node.map(|node| projection.name(node).function.to_string());
            (&*projection.groups[wait.group as usize].name, node.unwrap_or_default())
        })
        .collect();
    let expected = [("http-", "read"), ("admin-", "fsync"), ("[JVM]", "mark"), ("[JVM]", "GC ")];
    assert_eq!(places, expected.map(|(group, node)| (group, node.to_owned())));
    let hide = Filter { value: Some("".parse().expect("a pattern")), on: true };
    let filters = Filters { hide, ..Filters::default() };
    let projection = world.project(&Settings { filters, grouping: Grouping::None, ..settings });
    assert_eq!(projection.long_waits.len(), 4);
    assert!(projection.long_waits.iter().all(|wait| wait.node.is_none()));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn every_shown_long_wait_is_listed_once(
        facts in prop::collection::vec(fact(), 0..40),
        settings in settings(),
    ) {
        let mut world = world(&facts);
        for (_, weights) in &mut world.facts {
            weights.longest_ns *= 4 * MS;
            weights.wall_ns += 1;
        }
        let all = world.facts.clone();
        let projection = world.project(&settings);
        let snapshot = world.snapshot();
        let shows_idle = settings.idle || projection.only_idle;
        // Each fact alone tells whether filters hide it; with idle shown, what is idle.
        let mut expected: BTreeMap<(ThreadKey, Ns), Ns> = BTreeMap::new();
        for fact in all {
            world.facts = vec![fact];
            let alone = world.project(&Settings { idle: shows_idle, ..settings.clone() });
            let is_shown = !alone.total.is_empty() && (shows_idle || !alone.only_idle);
            let (key, weights) = fact;
            let waits = !matches!(snapshot.tables.state(key.state, key.stack), State::Run | State::Rdy);
            if is_shown && waits && weights.longest_ns >= 10 * MS {
                let longest = expected.entry((key.thread, weights.longest_from)).or_default();
                *longest = weights.longest_ns.max(*longest);
            }
        }
        let waits = &projection.long_waits;
        let found: BTreeMap<_, _> =
            waits.iter().map(|wait| ((wait.thread, wait.from_ns), wait.duration_ns)).collect();
        prop_assert_eq!(found.len(), waits.len(), "a wait, twice");
        prop_assert_eq!(found, expected);
        prop_assert!(waits.is_sorted_by_key(|wait| std::cmp::Reverse(wait.duration_ns)));
        prop_assert_eq!(projection.long_waits_dropped, 0);
        for wait in waits {
            prop_assert!((wait.group as usize) < projection.groups.len());
            prop_assert!(projection.groups[wait.group as usize].threads.iter().any(|of| of.thread == wait.thread));
            prop_assert!(wait.blocker == BlockerId::NONE || wait.what(&snapshot).is_some());
        }
    }
}
