//! What the threads of each group do now.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::locks::now;
use super::properties::{fact, settings, world};
use super::*;
use crate::model::facts::snapshot::ThreadNow;
use crate::model::projection::settings::{Grouping, Level};

const POOL: &str = "start;rayon_core::sleep::Sleep::sleep";
const RUNS: &str = "start;Cart::add";

/// Returns name, busy threads by state, and idle ones of each group.
pub(super) fn counts(projection: &Projection) -> Vec<String> {
    let groups = projection.groups.iter().zip(&projection.now_of_groups);
    groups
        .map(|(group, now)| {
            let busy: String = (State::ALL.iter().zip(now.busy).filter(|(_, count)| *count > 0))
                .map(|(state, count)| format!(" {count} {}", state.word()))
                .collect();
            format!("{}{busy}, {} idle", group.name, now.idle)
        })
        .collect()
}

pub(super) fn chains() -> Settings {
    Settings { level: Level::Chains, ..Settings::default() }
}

/// A pool of which two threads run, one waits for a lock and one for work; and a thread that was
/// renamed.
fn shop() -> (World, Vec<ThreadNow>) {
    let mut world = World::new();
    world.fact("http-1", RUNS, State::Run, 5);
    world.fact("http-2", RUNS, State::Run, 5);
    world.fact("http-3", "start;Cart::load", State::Lock, 5);
    world.fact("http-4", POOL, State::Wait, 5);
    world.fact("^timer", RUNS, State::Run, 5);
    let thread = ThreadKey { pid: 1, tid: 77, start: 1 };
    world.fact_of(thread, "main", RUNS, State::Run, 5);
    world.fact_of(thread, "admin-1", RUNS, State::Run, 5);
    let facts = world.facts.iter().filter(|(key, _)| *key != world.facts[5].0);
    let threads = facts.map(|(key, _)| now(key)).collect();
    (world, threads)
}

#[test]
fn threads_are_counted_by_the_group_of_their_present_name() {
    let (mut world, threads) = shop();
    let mut snapshot = world.snapshot();
    let mut shown = |threads: &[ThreadNow], settings: &Settings| {
        snapshot.threads = threads.into();
        counts(&world.project_with(&mut Projector::default(), &snapshot, settings))
    };
    let all = [
        "admin- 1 run, 0 idle",
        "http- 2 run 1 lock, 1 idle",
        "main, 0 idle",
        "timer 1 run, 0 idle",
    ];
    assert_eq!(shown(&threads, &chains()), all);
    assert_eq!(shown(&[], &chains())[1], "http-, 0 idle");
    // By what they do now, not by what they did.
    let runs = threads.iter().map(|now| ThreadNow { state: RawState::Known(State::Run), ..*now });
    let runs: Vec<_> = runs.map(|now| ThreadNow { stack: threads[0].stack, ..now }).collect();
    assert_eq!(shown(&runs, &chains())[1], "http- 4 run, 0 idle");
    let by_thread = Settings { grouping: Grouping::Thread, ..chains() };
    assert_eq!(shown(&threads, &by_thread)[0], "admin-1 (77) 1 run, 0 idle");
    let by_lock = Settings { grouping: Grouping::Blocker, ..chains() };
    let expected = ["(not waiting) 4 run, 0 idle", "(waits for something unknown) 1 lock, 1 idle"];
    assert_eq!(shown(&threads, &by_lock), expected);
}

#[test]
fn threads_that_filters_hide_are_not_counted() {
    let (mut world, threads) = shop();
    let mut snapshot = world.snapshot();
    snapshot.threads = threads.into();
    let shown = |change: &dyn Fn(&mut Settings)| {
        let mut settings = chains();
        change(&mut settings);
        counts(&world.project_with(&mut Projector::default(), &snapshot, &settings)).join("; ")
    };
    let filter = |text: &str| Filter { value: Some(text.parse().expect("a pattern")), on: true };
    let of_http = |text: &str| format!("admin- 1 run, 0 idle; http-{text}; main, 0 idle");
    let skips = shown(&|settings| settings.filters.skip_daemon = true);
    assert_eq!(skips, of_http(" 2 run 1 lock, 1 idle"));
    let threads = |text: &'static str| shown(&|settings| settings.filters.threads = filter(text));
    assert_eq!(threads("-[24]$"), "http- 1 run, 1 idle");
    assert_eq!(threads("^http-$"), "http- 2 run 1 lock, 1 idle", "the group's name");
    let focus = shown(&|settings| settings.filters.focus = filter("load"));
    assert_eq!(focus, "http- 1 lock, 0 idle");
    let ignore = shown(&|settings| settings.filters.ignore = filter("add"));
    assert_eq!(ignore, "http- 1 lock, 1 idle");
}

#[test]
fn threads_without_the_gil_are_hidden_by_its_filter() {
    let mut world = World::new();
    world.fact("work-1", "start;@=web.pay", State::Run, 5);
    world.fact("work-2", "start;@web.pay;inflate", State::Run, 5);
    let mut snapshot = world.snapshot();
    snapshot.threads = world.facts.iter().map(|(key, _)| now(key)).collect();
    let shown = |gil| {
        let mut settings = chains();
        settings.filters.gil = gil;
        counts(&world.project_with(&mut Projector::default(), &snapshot, &settings))
    };
    assert_eq!(shown(false), ["work- 2 run, 0 idle"]);
    assert_eq!(shown(true), ["work- 1 run, 0 idle"]);
}

#[test]
fn parts_of_a_group_are_counted_together() {
    let mut world = World::new();
    world.fact("~GC #1", RUNS, State::Run, 5);
    world.fact("~Compiler #1", RUNS, State::Run, 5);
    let mut snapshot = world.snapshot();
    snapshot.threads = world.facts.iter().map(|(key, _)| now(key)).collect();
    let projection = world.project_with(&mut Projector::default(), &snapshot, &chains());
    assert_eq!(counts(&projection), ["[JVM] 2 run, 0 idle"]);
    assert_eq!(projection.now_of_groups[0].threads(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn counts_of_groups_are_those_of_all_threads_that_filters_show(
        facts in prop::collection::vec(fact(), 1..25),
        settings in settings(),
    ) {
        let mut world = world(&facts);
        // The last fact of each thread says what it does now.
        let keys: BTreeMap<ThreadKey, FactKey> =
            world.facts.iter().map(|(key, _)| (key.thread, *key)).collect();
        let mut snapshot = world.snapshot();
        snapshot.threads = keys.values().map(now).collect();
        let settings = Settings { idle: true, ..settings };
        let shown = Settings { filters: Filters::default(), ..settings.clone() };
        let projection = world.project_with(&mut Projector::default(), &snapshot, &shown);
        let sums = projection.now_of_groups.iter().fold(GroupNow::default(), |mut sum, now| {
            sum.idle += now.idle;
            sum.busy.iter_mut().zip(now.busy).for_each(|(sum, count)| *sum += count);
            sum
        });
        prop_assert_eq!((sums.busy, sums.idle), (projection.now.busy, projection.now.idle));

        // A thread alone tells whether filters hide it, and its group.
        let projection = world.project_with(&mut Projector::default(), &snapshot, &settings);
        let mut expected = vec![0; projection.groups.len()];
        for key in keys.values() {
            world.facts = vec![(*key, Weights { wall_ns: 1, ..Weights::default() })];
            let alone = world.project_with(&mut Projector::default(), &snapshot, &settings);
            let Some(group) = alone.groups.first() else { continue };
            let is_same = |other: &Group| match settings.grouping {
                Grouping::Thread => other.threads[0].thread == key.thread,
                _ => other.name == group.name,
            };
            let at = projection.groups.iter().position(is_same);
            expected[at.expect("a group of this range")] += 1;
        }
        let found: Vec<u32> = projection.now_of_groups.iter().map(GroupNow::threads).collect();
        prop_assert_eq!(found, expected);
    }
}
