//! Programs that do not run because they were stopped.

use super::*;
use crate::model::facts::snapshot::ThreadNow;
use crate::model::facts::tables::BlockerId;
use crate::model::projection::settings::Level;
use crate::model::vocabulary::frame::SECOND;
use crate::model::vocabulary::host_load::HostLoad;

const MS: u64 = SECOND / 1000;

/// Returns the sentences of a range of 100 ms. `now`: threads that are stopped at its end.
fn says(world: &mut World, now: usize, host: HostLoad) -> Vec<String> {
    let mut snapshot = world.snapshot();
    snapshot.health.host = Some(host);
    let threads = world.facts.iter().take(now).map(|(key, _)| ThreadNow {
        thread: key.thread,
        name: key.name,
        stack: key.stack,
        state: RawState::Known(State::Stopped),
        since: 0,
        syscall: None,
        blocker: BlockerId::NONE,
        run_ns: 0,
        recovered: false,
    });
    snapshot.threads = threads.collect();
    let settings = Settings { level: Level::Mine, ..Settings::default() };
    let mut projection = world.project_with(&mut Projector::default(), &snapshot, &settings);
    (projection.from, projection.till) = (0, 100 * MS);
    let found = findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE);
    found.iter().map(Finding::sentence).collect()
}

#[test]
fn threads_that_were_stopped_are_told_before_all_causes() {
    let stopped = |ms: u64, others: u64, now: usize| {
        let mut world = World::new();
        world.fact("w-1", "main;work", State::Stopped, ms * MS);
        world.fact("w-2", "main;work", State::Stopped, ms * MS);
        world.fact("w-3", "main;ask;libc.so.6!recv", State::Io, others * MS).longest_ns = 100 * MS;
        says(&mut world, now, HostLoad::default())
    };
    let by = "stopped by a signal or a debugger";
    assert_eq!(stopped(100, 0, 2), [format!("2 threads are {by}: 100 % of busy time")]);
    assert_eq!(stopped(100, 100, 1), [format!("1 thread is {by}: 67 % of busy time")]);
    assert_eq!(stopped(50, 100, 0), [format!("threads were {by}: 50 % of busy time")]);
    // A debugger looked at it for a moment.
    let found = stopped(49, 100, 0);
    assert!(found.iter().all(|text| !text.contains(by)), "{found:?}");
}

#[test]
fn a_frozen_program_has_no_other_cause_and_is_not_at_rest() {
    let mut world = World::new();
    world.fact("w-1", "main;work", State::Wait, 100 * MS).longest_ns = 100 * MS;
    world.fact("pool", "main;uv_run;epoll_wait", State::Poll, 100 * MS);
    let frozen = HostLoad { frozen: true, ..HostLoad::default() };
    let expected = ["the process does not run: its control group is frozen"];
    assert_eq!(says(&mut world, 0, frozen), expected);
    let mut world = World::new();
    world.fact("pool", "main;uv_run;epoll_wait", State::Poll, 100 * MS);
    assert_eq!(says(&mut world, 0, frozen), expected);
}
