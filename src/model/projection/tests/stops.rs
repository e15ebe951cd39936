//! Programs that do not run: stopped, frozen, or without a core of their own.

use super::*;
use crate::model::facts::snapshot::ThreadNow;
use crate::model::facts::tables::BlockerId;
use crate::model::projection::settings::Level;
use crate::model::vocabulary::frame::{RawName, SECOND};
use crate::model::vocabulary::host_load::{BusiestProcesses, HostLoad};

const MS: u64 = SECOND / 1000;

/// Returns the sentences of a range of 100 ms. `now`: threads that are stopped at its end, the
/// first ones; others that were stopped run.
fn says(world: &mut World, now: usize, host: HostLoad) -> Vec<String> {
    let mut snapshot = world.snapshot();
    snapshot.health.host = Some(host);
    let state = |nth: usize, was: RawState| match was {
        _ if nth < now => RawState::Known(State::Stopped),
        RawState::Known(State::Stopped) => RawState::Known(State::Run),
        was => was,
    };
    let threads = world.facts.iter().enumerate().map(|(nth, (key, _))| ThreadNow {
        thread: key.thread,
        name: key.name,
        stack: key.stack,
        state: state(nth, key.state),
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
fn threads_that_were_stopped_are_told_and_if_all_are_nothing_else() {
    let stopped = |ms: u64, others: u64, now: usize| {
        let mut world = World::new();
        world.fact("w-1", "main;work", State::Stopped, ms * MS);
        world.fact("w-2", "main;work", State::Stopped, ms * MS);
        world.fact("w-3", "main;ask;libc.so.6!recv", State::Io, others * MS).longest_ns = 100 * MS;
        says(&mut world, now, HostLoad::default())
    };
    let by = "stopped by a signal or a debugger";
    assert_eq!(stopped(100, 100, 3), [format!("all threads are {by}")]);
    let mut world = World::new();
    world.fact("w-1", "main;work", State::Run, MS);
    let found = says(&mut world, 1, HostLoad::default());
    assert_eq!(found, [format!("the only thread is {by}")]);
    // One of three does not stop the others.
    let found = stopped(100, 100, 1);
    assert_eq!(found[0], format!("threads were {by}: 67 % of busy time"));
    assert!(found[1].starts_with("w-3 waits in recv"), "{found:?}");
    // They go on by now: what they do matters, too.
    let found = stopped(40, 100, 0);
    assert!(found[0].starts_with("w-3 waits in recv"), "{found:?}");
    assert_eq!(found[1], format!("threads were {by}: 44 % of busy time"));
    let found = stopped(16, 100, 0);
    assert!(found.iter().all(|text| !text.contains(by)), "{found:?}");
}

#[test]
fn a_frozen_program_has_no_other_cause_and_is_not_at_rest() {
    let frozen = HostLoad { frozen: true, ..HostLoad::default() };
    let expected = "the process does not run: its control group is frozen";
    let mut world = World::new();
    world.fact("w-1", "main;work", State::Wait, 100 * MS).longest_ns = 100 * MS;
    world.fact("pool", "main;uv_run;epoll_wait", State::Poll, 100 * MS);
    assert_eq!(says(&mut world, 0, frozen), [expected]);
    let mut world = World::new();
    world.fact("pool", "main;uv_run;epoll_wait", State::Poll, 100 * MS);
    assert_eq!(says(&mut world, 0, frozen), [expected]);
    // It ran in the range.
    world.fact("w-1", "main;work", State::Run, 90 * MS).cpu_hits = 10;
    let found = says(&mut world, 0, frozen);
    assert_eq!(found[0], expected);
    assert!(found[1].starts_with("100 % of the CPU time is in work"), "{found:?}");
}

#[test]
fn time_that_the_hypervisor_takes_is_told() {
    let says = |facts: &[(State, u64)], host: HostLoad| {
        let mut world = World::new();
        Arc::make_mut(&mut world.session).cores_milli = 2_000;
        for (nth, (state, ms)) in facts.iter().enumerate() {
            world.fact(&format!("w-{nth}"), "main", *state, ms * MS);
        }
        let found = says(&mut world, 0, host);
        found.into_iter().find(|text| text.contains("steal"))
    };
    let host = |stolen_percent| HostLoad { stolen_percent, ..HostLoad::default() };
    let alone = "the hypervisor takes 10 % of the cores' time (steal), 0.6 of 2 are used";
    let runs = [(State::Run, 60), (State::Io, 40)];
    assert_eq!(says(&runs, host(10.0)).as_deref(), Some(alone));
    assert_eq!(says(&runs, host(9.9)), None);
    assert_eq!(says(&[(State::Run, 40), (State::Io, 60)], host(50.0)), None);
    // Those that wait for a core are told first; others that use it are the cause, if they do.
    let waits = [(State::Rdy, 90), (State::Run, 20)];
    let queue = "waiting for a core is 82 % of busy time, 0.2 of 2 are used, ";
    let steal = "the hypervisor takes 10 % of the cores' time (steal)";
    assert_eq!(says(&waits, host(10.0)), Some(format!("{queue}{steal}")));
    let busiest = BusiestProcesses { name: RawName::new(b"ffmpeg"), count: 1, pid: 8, cores: 1.7 };
    let full = HostLoad { cpu_percent: 100.0, others_cores: 1.8, ..host(10.0) };
    assert_eq!(says(&waits, full), Some(format!("{queue}{steal}")));
    assert_eq!(says(&waits, HostLoad { busiest: Some(busiest), ..full }), None);
}
