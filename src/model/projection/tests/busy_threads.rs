//! Busy threads in each bucket of history.

use proptest::prelude::*;
use regex::Regex;

use super::*;
use crate::model::facts::buckets::{Buckets, HORIZON, Limits};
use crate::model::facts::history::Parts;
use crate::model::facts::packed::Packed;
use crate::model::projection::settings::Whose;
use crate::model::vocabulary::frame::SECOND;

/// A snapshot at the end of the last of these seconds, given as numbers of the world's facts.
fn snapshot(world: &mut World, seconds: &[&[usize]]) -> Snapshot {
    let bucket = |(nth, facts): (u64, &&[usize])| {
        let facts = facts.iter().map(|fact| world.facts[*fact]).collect();
        Packed::new(nth * SECOND, (nth + 1) * SECOND, facts)
    };
    let sealed = (0..).zip(seconds).map(bucket).collect();
    let at = seconds.len() as u64 * SECOND;
    let parts = Parts { started: 0, at, sealed, ..Parts::default() };
    let history = History::from_parts(parts).expect("buckets in order");
    Snapshot { at, history, ..world.snapshot() }
}

/// Returns the busy threads of each second up to the snapshot, and the number of a full bar.
fn busy(
    projector: &mut Projector,
    snapshot: &Snapshot,
    settings: &Settings,
) -> (Vec<Option<f32>>, f32) {
    projector.project(snapshot, settings);
    let busy = projector.busy_threads(snapshot);
    let seconds = 0..busy.seconds();
    (seconds.map(|second| busy.highest(second, second + 1)).collect(), busy.scale())
}

#[test]
fn threads_that_wait_for_work_are_not_counted() {
    let mut world = World::new();
    world.fact("accept", "main;uv_run;epoll_wait", State::Poll, SECOND);
    world.fact("pool", "start;tokio::runtime::blocking::pool::Inner::run", State::Wait, SECOND);
    world.fact("~G1 Service", "", State::Wait, SECOND);
    world.fact("own", "main;answer;pthread_cond_wait", State::Wait, SECOND);
    world.fact("recv", "main;answer;recv", State::Io, SECOND / 2);
    world.fact("hot", "main;work", State::Run, SECOND / 4);
    world.fact("sleeps", "main;retry;nanosleep", State::Sleep, SECOND);
    let seconds: [&[usize]; 4] = [&[0, 1, 2], &[0, 1, 2, 3, 4, 5], &[], &[0, 5, 6]];
    let snapshot = snapshot(&mut world, &seconds);
    for settings in [Settings::default(), Settings { idle: true, ..Settings::default() }] {
        let (seconds, full) = busy(&mut Projector::default(), &snapshot, &settings);
        assert_eq!(seconds, [0.0, 1.75, 0.0, 1.25].map(Some));
        assert_eq!(full, 2.0);
    }
    // A maximum that is shown as 2.0 fills the bar.
    for (more, full) in [(48, 2.0), (52, 5.0)] {
        world.facts[4].1.wall_ns = SECOND / 2 + SECOND / 4 + more * SECOND / 1_000;
        let snapshot = self::snapshot(&mut world, &seconds);
        let found = busy(&mut Projector::default(), &snapshot, &Settings::default());
        assert_eq!(found.1, full, "{found:?}");
    }
    world.facts[4].1.wall_ns = SECOND / 2;
    // No filter hides what the program was doing.
    let filters = Filters { focus: Filter::set(Regex::new("hot").unwrap()), ..Filters::default() };
    let settings = Settings { filters, ..Settings::default() };
    let (seconds, _) = busy(&mut Projector::default(), &snapshot, &settings);
    assert_eq!(seconds[1], Some(1.75));
}

#[test]
fn a_thread_is_busy_for_a_second_at_most() {
    let mut world = World::new();
    world.fact("own", "main;answer;pthread_cond_wait", State::Wait, SECOND);
    world.fact("own", "main;work", State::Run, SECOND / 2);
    world.fact("rest", "main;work", State::Run, SECOND / 2);
    let exited = ThreadKey { pid: 1, tid: 0, start: 0 };
    assert!(exited.is_unknown());
    world.fact_of(exited, "(exited)", "main;work", State::Run, 3 * SECOND);
    let snapshot = snapshot(&mut world, &[&[0, 1, 2], &[3]]);
    let (found, _) = busy(&mut Projector::default(), &snapshot, &Settings::default());
    assert_eq!(found, [Some(1.5), Some(3.0)], "those that exited are many");
}

#[test]
fn seconds_are_read_again_once_frames_have_names() {
    let mut world = World::new();
    let waits = RawFrame::new(FrameCode::Code { file: FileId(2), offset: 0, exact: false });
    let main = world.frame("main");
    let stack = world.interner.stack(&[waits, main]);
    world.fact("hot", "main;work", State::Run, SECOND);
    world.fact("pool", "main", State::Wait, SECOND);
    let named = world.facts[1].0;
    world.facts[1].0 = FactKey::new(named.thread, named.name, stack, named.state);
    let mut projector = Projector::default();
    let settings = Settings::default();
    let mut at = |world: &mut World, seconds: &[&[usize]], naming| {
        let mut snapshot = snapshot(world, seconds);
        snapshot.health.naming = naming;
        busy(&mut projector, &snapshot, &settings)
    };
    let seconds: [&[usize]; 30] = [&[0, 1]; 30];
    let (found, full) = at(&mut world, &seconds[..20], true);
    assert_eq!((found, full), (vec![Some(2.0); 20], 2.0));
    let name = Location::named("uv__io_poll", FrameKind::Native);
    world.interner.set_named(waits, Named::known(vec![name]));
    // It waits for work, in all seconds, and the scale is that of what is known now.
    let (found, full) = at(&mut world, &seconds[..20], false);
    assert_eq!((found, full), (vec![Some(1.0); 20], 1.0));
    let (found, full) = at(&mut world, &seconds, false);
    assert_eq!((found, full), (vec![Some(1.0); 30], 1.0));
}

#[test]
fn time_that_is_booked_later_is_counted_where_it_belongs() {
    let mut world = World::new();
    world.fact("hot", "main;work", State::Run, SECOND);
    let settings = Settings::default();
    let mut projector = Projector::default();
    let mut at = |world: &mut World, seconds: u64, facts: &[usize]| {
        let mut bucket = |nth: u64| {
            let facts = facts.iter().map(|fact| world.facts[*fact]).collect();
            Packed::new(nth * SECOND, (nth + 1) * SECOND, facts)
        };
        let open = (0..seconds).map(&mut bucket).collect();
        let parts = Parts { at: seconds * SECOND, open, ..Parts::default() };
        let history = History::from_parts(parts).expect("buckets in order");
        let snapshot = Snapshot { at: seconds * SECOND, history, ..world.snapshot() };
        busy(&mut projector, &snapshot, &settings).0
    };
    assert_eq!(at(&mut world, 14, &[]), [Some(0.0); 14]);
    assert_eq!(at(&mut world, 15, &[0]), [Some(1.0); 15]);
}

#[test]
fn a_sealed_bucket_is_read_once() {
    const MARK: Ns = 77;
    let mut world = World::new();
    world.fact("hot", "main;work", State::Run, SECOND);
    let mut projector = Projector::default();
    let settings = Settings::default();
    let marked = |projector: &mut Projector, snapshot: &Snapshot| {
        projector.project(snapshot, &settings);
        let busy = projector.busy_threads(snapshot);
        busy.buckets.iter().filter(|bucket| bucket.longest == MARK).count()
    };
    let mark = |projector: &mut Projector| {
        let busy = Arc::make_mut(&mut projector.busy_threads);
        busy.buckets.iter_mut().for_each(|bucket| bucket.longest = MARK);
    };
    let first = snapshot(&mut world, &[&[0][..]; 2_000]);
    let later = |at: Ns, naming| Snapshot {
        at,
        health: Health { naming, ..Health::default() },
        ..first.clone()
    };
    assert_eq!(marked(&mut projector, &first), 0);
    mark(&mut projector);
    assert_eq!(marked(&mut projector, &later(2_001 * SECOND, false)), 2_000);
    // New frames are not on its stacks.
    assert_eq!(marked(&mut projector, &later(2_002 * SECOND, true)), 2_000);
    // An older snapshot that is shown has what it had.
    assert_eq!(marked(&mut projector, &later(1_500 * SECOND, false)), 1_500);
    assert_eq!(projector.busy_threads.seconds(), 1_500);
    assert_eq!(marked(&mut projector, &first), 1_500);
    // While frames have no names the last minute is read again, and all once they have.
    let mut projector = Projector::default();
    marked(&mut projector, &later(2_000 * SECOND, true));
    mark(&mut projector);
    assert_eq!(marked(&mut projector, &later(2_001 * SECOND, true)), 1_941);
    assert_eq!(marked(&mut projector, &later(2_002 * SECOND, false)), 0);
    // Nothing is read twice for one second.
    mark(&mut projector);
    assert_eq!(marked(&mut projector, &later(2_003 * SECOND - 1, false)), 2_000);
    // A bucket that was packed again for the same span is another one.
    let again = snapshot(&mut world, &[&[0][..]; 2_000]);
    assert_eq!(marked(&mut projector, &again), 0);
}

#[test]
fn a_bucket_of_many_seconds_has_the_average_in_each() {
    let mut world = World::new();
    world.fact("hot", "main;work", State::Run, SECOND);
    world.fact("hot", "main;work", State::Run, 5 * SECOND);
    let mut snapshot = snapshot(&mut world, &[&[0][..]]);
    let wide = Packed::new(SECOND, 11 * SECOND, vec![world.facts[1]]);
    let sealed = vec![Packed::new(0, SECOND, vec![world.facts[0]]), wide];
    let at = 11 * SECOND;
    let parts = Parts { started: 0, at, sealed, ..Parts::default() };
    snapshot.history = History::from_parts(parts).expect("buckets in order");
    snapshot.at = at;
    let (found, _) = busy(&mut Projector::default(), &snapshot, &Settings::default());
    assert_eq!(found, [vec![Some(1.0)], vec![Some(0.5); 10]].concat());
}

#[test]
fn seconds_that_were_dropped_are_unknown() {
    let mut world = World::new();
    world.fact("hot", "main;work", State::Run, SECOND);
    let mut snapshot = snapshot(&mut world, &[&[0][..]; 6]);
    let at = 6 * SECOND;
    let sealed =
        (4..6).map(|nth| Packed::new(nth * SECOND, (nth + 1) * SECOND, vec![world.facts[0]]));
    let parts = Parts { started: 0, at, sealed: sealed.collect(), ..Parts::default() };
    snapshot.history = History::from_parts(parts).expect("buckets in order");
    let (found, _) = busy(&mut Projector::default(), &snapshot, &Settings::default());
    assert_eq!(found, [vec![None; 4], vec![Some(1.0); 2]].concat());
}

#[test]
fn what_the_user_calls_idle_is_not_counted_in_the_past_either() {
    let mut world = World::new();
    world.fact("own", "main;take;pthread_cond_wait", State::Wait, SECOND);
    let snapshot = snapshot(&mut world, &[&[0], &[0]]);
    let mut projector = Projector::default();
    let before = Settings::default();
    let idle = Settings { idle_at: vec![Regex::new("^take$").unwrap()], ..Settings::default() };
    for (settings, average) in [(&before, 1.0), (&idle, 0.0), (&before, 1.0)] {
        assert_eq!(busy(&mut projector, &snapshot, settings).0, [Some(average); 2]);
    }
}

#[test]
fn whose_code_decides_what_is_idle_in_the_past_too() {
    let of_library = Whose { pattern: Regex::new("^(serve|answer)$").unwrap(), mine: false };
    let whose = Settings { whose: vec![of_library], ..Settings::default() };
    let interesting = Filter::set(vec!["boost::".to_owned()]);
    let filters = Filters { interesting, ..Filters::default() };
    let interesting = Settings { filters, ..Settings::default() };
    let before = Settings::default();
    for (stack, settings, averages) in [
        ("start_thread;serve;answer;pthread_cond_wait", &whose, [1.0, 0.0]),
        (
            "start_thread;boost::pool::serve;boost::pool::answer;pthread_cond_wait",
            &interesting,
            [0.0, 1.0],
        ),
    ] {
        let mut world = World::new();
        world.fact("own", stack, State::Wait, SECOND);
        let snapshot = snapshot(&mut world, &[&[0][..]; 20]);
        let mut projector = Projector::default();
        for (settings, average) in [(&before, averages[0]), (settings, averages[1])] {
            let (found, _) = busy(&mut projector, &snapshot, settings);
            assert_eq!(found, [Some(average); 20], "{stack}");
        }
    }
}

#[test]
fn seconds_are_counted_from_the_start_of_their_session() {
    let mut world = World::new();
    world.fact("hot", "main;work", State::Run, SECOND);
    let early = snapshot(&mut world, &[&[0][..]; 20]);
    let mut projector = Projector::default();
    busy(&mut projector, &early, &Settings::default());
    // Another session begins later than the one before ended.
    let started = 1_000 * SECOND;
    let bucket = |nth: u64| {
        Packed::new(started + nth * SECOND, started + (nth + 1) * SECOND, vec![world.facts[0]])
    };
    let (at, sealed) = (started + 3 * SECOND, (0..3).map(bucket).collect());
    let parts = Parts { started, at, sealed, ..Parts::default() };
    Arc::make_mut(&mut world.session).started = started;
    let history = History::from_parts(parts).expect("buckets in order");
    let late = Snapshot { at, history, ..world.snapshot() };
    assert_eq!(busy(&mut projector, &late, &Settings::default()).0, [Some(1.0); 3]);
}

#[test]
fn the_scale_does_not_shrink_when_seconds_are_merged_or_dropped() {
    let mut world = World::new();
    world.fact("hot", "main;work", State::Run, SECOND);
    for thread in ["a", "b", "c"] {
        world.fact(thread, "main;work", State::Run, SECOND);
    }
    let settings = Settings::default();
    let mut projector = Projector::default();
    let mut seconds = [&[0][..]; 20];
    seconds[3] = &[0, 1, 2, 3];
    let early = snapshot(&mut world, &seconds);
    assert_eq!(busy(&mut projector, &early, &settings).1, 5.0);
    let merged = |from: u64, till: u64, at: u64| {
        let sealed = vec![Packed::new(from * SECOND, till * SECOND, vec![world.facts[0]])];
        let parts = Parts { at: at * SECOND, sealed, ..Parts::default() };
        History::from_parts(parts).expect("buckets in order")
    };
    for (nth, history) in [merged(0, 20, 21), merged(20, 22, 22)].into_iter().enumerate() {
        let late = Snapshot { at: (21 + nth as u64) * SECOND, history, ..early.clone() };
        assert_eq!(busy(&mut projector, &late, &settings).1, 5.0);
        assert_eq!(busy(&mut Projector::default(), &late, &settings).1, 1.0);
    }
}

#[test]
fn a_second_with_a_long_wait_stands_out_and_one_for_work_does_not() {
    const MS: u64 = 1_000_000;
    let mut world = World::new();
    world.fact("serve", "main;work", State::Run, SECOND);
    let wait = |world: &mut World, stack: &str, ms: u64| {
        let state = if stack.ends_with("fsync") { State::Disk } else { State::Poll };
        world.fact("serve", stack, state, ms * MS).longest_ns = ms * MS;
        world.facts.len() - 1
    };
    let usual = wait(&mut world, "main;store;fsync", 4);
    let long = wait(&mut world, "main;store;fsync", 120);
    let idle = wait(&mut world, "main;uv_run;epoll_wait", 900);
    world.fact("other", "main;work", State::Run, SECOND);
    let other = idle + 1;
    let mut seconds = vec![vec![0, usual]; 100];
    (seconds[30], seconds[40], seconds[99]) = (vec![0, long], vec![0, usual, idle], vec![0, other]);
    let seconds: Vec<&[usize]> = seconds.iter().map(Vec::as_slice).collect();
    let found = snapshot(&mut world, &seconds);
    let mut projector = Projector::default();
    projector.project(&found, &Settings::default());
    let busy = projector.busy_threads(&found);
    let longest = |second| busy.bucket_at(second * SECOND).map(|bucket| bucket.longest);
    assert_eq!([30, 40, 100].map(longest), [Some(120 * MS), Some(4 * MS), None]);
    let previous = |second: u64| busy.previous_peak(Some(second * SECOND)).map(|at| at / SECOND);
    let next = |second: u64| busy.next_peak(second * SECOND).map(|at| at / SECOND);
    assert_eq!(busy.previous_peak(None), Some(99 * SECOND));
    assert_eq!([100, 99, 31, 30].map(previous), [Some(99), Some(30), Some(30), None]);
    assert_eq!([0, 29, 30, 98, 99].map(next), [Some(30), Some(30), Some(99), Some(99), None]);
}

/// What happens before a snapshot.
#[derive(Clone, Debug)]
struct Step {
    /// Seconds since the snapshot before.
    seconds: u64,
    /// Fact, ms before the snapshot at which it begins, and its length.
    booked: Vec<(usize, u64, u64)>,
    /// By the settings of this number.
    settings: usize,
    /// The snapshot before is asked for once more.
    again: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let seconds = prop_oneof![4 => 1u64..30, 1 => 30u64..100, 1 => 600u64..5_000];
    let booked = (0usize..6, 0u64..40_000, 1u64..30_000);
    let booked = prop::collection::vec(booked, 0..12);
    let settings = prop_oneof![9 => Just(0usize), 1 => Just(1usize)];
    (seconds, booked, settings, prop::bool::weighted(0.2))
        .prop_map(|(seconds, booked, settings, again)| Step { seconds, booked, settings, again })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    /// Buckets are booked to, sealed, merged and dropped, frames get names, settings change.
    #[test]
    fn what_is_kept_equals_what_is_read_anew(
        steps in prop::collection::vec(step(), 1..40),
        named_at in 0usize..40,
        little_memory in any::<bool>(),
    ) {
        const MS: u64 = 1_000_000;
        let mut world = World::new();
        for (thread, stack, state) in [
            ("hot", "main;work", State::Run),
            ("own", "main;answer;pthread_cond_wait", State::Wait),
            ("own", "main;take;pthread_cond_wait", State::Wait),
            ("accept", "main;uv_run;epoll_wait", State::Poll),
            ("gone", "main;recv", State::Io),
            ("pool", "main", State::Wait),
        ] {
            world.fact(thread, stack, state, SECOND);
        }
        // The last one waits for work, once its frame has a name.
        let unnamed = RawFrame::new(FrameCode::Code { file: FileId(2), offset: 0, exact: false });
        let main = world.frame("main");
        let stack = world.interner.stack(&[unnamed, main]);
        world.facts[5].0 = FactKey { stack, ..world.facts[5].0 };
        let gone = world.facts[4].0.thread;
        let history_bytes = if little_memory { 40_000 } else { 64 << 20 };
        let limits =
            Limits { history_bytes, facts_per_bucket: 100, cumulative_facts: 100, stacks: 1_000 };
        let mut buckets = Buckets::new(0, limits, world.interner.other());
        let idle_at = vec![Regex::new("^take$").unwrap()];
        let settings = [Settings::default(), Settings { idle_at, ..Settings::default() }];
        let mut projector = Projector::default();
        let figures = |projector: &mut Projector, snapshot: &Snapshot, settings| {
            projector.project(snapshot, settings);
            let busy = projector.busy_threads(snapshot);
            let of = |b: &BusyBucket| (b.from, b.till, (b.busy * 1_000.0).round(), b.longest);
            busy.buckets.iter().map(of).collect::<Vec<_>>()
        };
        let (mut at, mut before) = (0, None);
        for (nth, step) in steps.into_iter().enumerate() {
            at += step.seconds * SECOND;
            for (fact, ago, length) in step.booked {
                let from = at.saturating_sub(ago * MS);
                let till = (from + length * MS).min(at);
                buckets.wall(&world.facts[fact].0, from, till, Some(from));
            }
            if nth == named_at {
                let name = Location::named("uv__io_poll", FrameKind::Native);
                world.interner.set_named(unnamed, Named::known(vec![name]));
            }
            buckets.keep_house(at, HORIZON, &|thread| *thread == gone);
            let history = buckets.history(at, std::iter::empty());
            let mut snapshot = Snapshot { at, history, ..world.snapshot() };
            snapshot.health.naming = nth < named_at;
            let settings = &settings[step.settings];
            let fresh = figures(&mut Projector::default(), &snapshot, settings);
            prop_assert_eq!(figures(&mut projector, &snapshot, settings), fresh);
            if let Some((at, history)) = before.replace((at, snapshot.history.clone()))
                && step.again
            {
                // A frozen snapshot gets the names that were found since.
                let old = Snapshot { at, history, ..snapshot };
                let fresh = figures(&mut Projector::default(), &old, settings);
                prop_assert_eq!(figures(&mut projector, &old, settings), fresh);
            }
        }
    }
}
