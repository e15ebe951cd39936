//! Filters, idle time, the interesting cut, and the accounting of hidden time.

use super::*;
use crate::model::projection::settings::{Grouping, Level, NativeFrames};
use regex::Regex;

fn pattern(text: &str) -> Filter<Regex> {
    Filter::set(Regex::new(text).unwrap())
}

fn with(filters: Filters) -> Settings {
    Settings { filters, ..Settings::default() }
}

fn interesting(prefixes: &[&str]) -> Settings {
    with(Filters {
        interesting: Filter::set(prefixes.iter().map(|p| (*p).to_owned()).collect()),
        ..Filters::default()
    })
}

#[test]
fn the_interesting_cut_keeps_the_innermost_interesting_frame_and_one_callee() {
    let mut world = World::new();
    world.fact("main", "start;shop::a;lib1;shop::b;lib2;lib3", State::Io, 10);
    world.fact("main", "start;shop::a;lib1;shop::b;lib2", State::Run, 1);
    world.fact("main", "start;shop::a;lib1;shop::b;lib4;lib3", State::Run, 2);
    assert_shows(
        world.shows(&interesting(&["shop::"])),
        "
        main 13 0
          start 13 0
            shop::a 13 0
              lib1 13 0
                shop::b 13 0
                  lib2 11 11
                  lib4 2 2
        ",
    );
}

#[test]
fn a_task_is_found_by_its_name() {
    let mut world = World::new();
    world.fact("main", "[task fetch prices];run;shop::a", State::Run, 3);
    world.fact("main", "[task fetch stock];run;shop::a", State::Run, 4);
    world.fact("main", "run;shop::a", State::Run, 5);
    let focus = Filters { focus: pattern("task.*prices"), ..Filters::default() };
    assert_shows(
        world.shows(&with(focus)),
        "
        main 3 0
          [task fetch prices] 3 0
            run 3 0
              shop::a 3 3
        ",
    );
    let grouping = Grouping::Frame(Regex::new(r"^\[task ").unwrap());
    let groups: Vec<_> = world
        .shows(&Settings { grouping, ..Settings::default() })
        .lines()
        .map(str::to_owned)
        .collect();
    assert!(groups.iter().any(|line| line.trim() == "[task fetch stock] 4 0"), "{groups:?}");
}

#[test]
fn functions_that_await_are_callers_behind_their_marker() {
    let mut world = World::new();
    let stack = "shop::handler;shop::load;[await];node!main;node!uv_run;shop::query";
    world.fact("main", stack, State::Run, 3);
    world.fact("main", "node!main;node!uv_run;shop::query", State::Run, 4);
    let focus = Filters { focus: pattern("handler"), ..Filters::default() };
    assert_shows(
        world.shows(&Settings { level: Level::Mine, ..with(focus) }),
        "
        main 3 0
          shop::handler 3 0
            shop::load 3 0
              [await] 3 0
                shop::query 3 3
        ",
    );
}

#[test]
fn an_interesting_leaf_keeps_itself() {
    let mut world = World::new();
    world.fact("main", "start;lib;shop::a", State::Run, 3);
    assert_shows(
        world.shows(&interesting(&["shop::"])),
        "
        main 3 0
          start 3 0
            lib 3 0
              shop::a 3 3
        ",
    );
}

#[test]
fn without_an_interesting_frame_only_the_root_is_kept() {
    let mut world = World::new();
    world.fact("main", "start;lib1;lib2", State::Run, 3);
    world.fact("main", "start;lib1;shop::a;lib3;lib4", State::Run, 4);
    assert_shows(
        world.shows(&interesting(&["nothing::", "shop::"])),
        "
        main 7 0
          start 7 3
            lib1 4 0
              shop::a 4 0
                lib3 4 4
        ",
    );
}

#[test]
fn an_interesting_root_keeps_one_callee() {
    let mut world = World::new();
    world.fact("main", "shop::main;lib1;lib2", State::Run, 3);
    assert_shows(
        world.shows(&interesting(&["shop::"])),
        "
        main 3 0
          shop::main 3 0
            lib1 3 3
        ",
    );
}

#[test]
fn the_cut_sees_inlined_frames_modules_and_files() {
    let mut world = World::new();
    world.fact("main", "libc!start;libx!x;lib+shop::a:5+lib2;lib3", State::Run, 3);
    let tree = "
        main 3 0
          start 3 0
            x 3 0
              lib 3 0
                shop::a:5 3 0
                  lib2 3 3
        ";
    assert_shows(world.shows(&interesting(&["shop::"])), tree);
    assert_shows(world.shows(&interesting(&["/src/"])), tree);
    assert_shows(
        world.shows(&interesting(&["libx"])),
        "
        main 3 0
          start 3 0
            x 3 0
              lib 3 3
        ",
    );
}

#[test]
fn a_filter_that_is_off_does_nothing() {
    let mut world = World::new();
    world.fact("main", "start;lib1;lib2", State::Run, 3);
    let plain = world.shows(&Settings::default());
    let all = Some(Regex::new("").unwrap());
    let settings = with(Filters {
        interesting: Filter { value: Some(vec!["x".into()]), on: false },
        focus: Filter { value: Some(Regex::new("x").unwrap()), on: false },
        ignore: Filter { value: all.clone(), on: false },
        hide: Filter { value: all, on: false },
        no_kernel: false,
        native: NativeFrames::Auto,
        skip_daemon: false,
        gil: false,
        threads: Filter { value: Some(Regex::new("x").unwrap()), on: false },
        min_percent: Filter::default(),
    });
    assert_eq!(world.shows(&settings), plain);
}

#[test]
fn only_time_with_the_gil_is_shown() {
    let mut world = World::new();
    world.fact("work-1", "start;@web.cart:8;@=web.pay:9;memmove", State::Run, 1);
    world.fact("work-1", "start;@web.cart:8;@=web.pay:9;usleep", State::Sleep, 2);
    world.fact("work-1", "start;@web.cart:8;@web.pay:9;inflate", State::Run, 4);
    world.fact("work-2", "start;@=web.cart:8;loop", State::Poll, 8);
    world.fact("work-2", "start;hash", State::Run, 16);
    let settings = with(Filters { gil: true, ..Filters::default() });
    let projection = world.project(&settings);
    assert_eq!((projection.total.wall_ns, projection.hidden.gil.wall_ns), (3, 20));
    assert_eq!(projection.hidden.idle.wall_ns, 8);
    assert_eq!(
        world.shows(&settings),
        "work- 3 0\n  start 3 0\n    web.cart:8 3 0\n      web.pay:9 3 0\n        usleep 2 2\n        memmove 1 1\n"
    );
    // The same function with and without it is one row.
    let all = world.shows(&with(Filters::default()));
    assert!(all.contains("      web.pay:9 7 0\n"), "{all}");
    let ignored = with(Filters { gil: true, ignore: pattern("hash"), ..Filters::default() });
    let projection = world.project(&ignored);
    assert_eq!((projection.hidden.gil.wall_ns, projection.hidden.ignore.wall_ns), (4, 16));
}

#[test]
fn daemons_can_be_left_out() {
    let mut world = World::new();
    world.fact("work-1", "start;run", State::Run, 3);
    world.fact("^work-2", "start;run", State::Run, 4);
    world.fact("~C2 CompilerThread0", "start;compile", State::Run, 5);
    let settings = with(Filters { skip_daemon: true, ..Filters::default() });
    let projection = world.project(&settings);
    let names: Vec<&str> = projection.groups.iter().map(|group| &*group.name).collect();
    assert_eq!(
        (names, projection.total.wall_ns, projection.hidden.daemons.wall_ns),
        (vec!["work-"], 3, 9)
    );
    assert_eq!(world.project(&Settings::default()).total.wall_ns, 12);
}

#[test]
fn threads_that_a_virtual_machine_stopped_say_so() {
    let mut world = World::new();
    let stop = "SafepointSynchronize::block;wait";
    let poll = "SafepointBlob;ThreadSafepointState::handle_polling_page_exception;SafepointMechanism::process";
    world.fact("main", &format!("start;run;{poll};{stop}"), State::Wait, 3);
    world.fact(
        "main",
        &format!("start;run;JavaThread::check_special_condition_for_native_trans;{stop}"),
        State::Wait,
        4,
    );
    world.fact("main", "start;run;SafepointMechanism::process;other", State::Run, 5);
    world.fact("main", stop, State::Wait, 1);
    let expected = "
        main 13 0
          start 12 0
            run 12 0
              [JVM safepoint] 7 7
              SafepointMechanism::process 5 0
                other 5 5
          [JVM safepoint] 1 1
    ";
    assert_shows(world.shows(&Settings::default()), expected);
    // As the callee of an interesting frame, as a hidden frame, and by its name.
    assert_shows(
        world.shows(&interesting(&["run"])),
        "
        main 13 0
          start 12 0
            run 12 0
              [JVM safepoint] 7 7
              SafepointMechanism::process 5 5
          [JVM safepoint] 1 1
        ",
    );
    assert_shows(
        world.shows(&interesting(&["start"])),
        "
        main 13 0
          start 12 0
            run 12 12
          [JVM safepoint] 1 1
    ",
    );
    let hide =
        with(Filters { hide: Filter::set(Regex::new("safepoint").unwrap()), ..Filters::default() });
    assert_shows(
        world.shows(&hide),
        "
        main 13 1
          start 12 0
            run 12 7
              SafepointMechanism::process 5 0
                other 5 5
    ",
    );
    let focus = with(Filters {
        focus: Filter::set(Regex::new("JVM safepoint").unwrap()),
        ..Filters::default()
    });
    assert_eq!(world.project(&focus).total.wall_ns, 8);
}

#[test]
fn a_monitor_is_one_row_whatever_ran_the_method() {
    let mut world = World::new();
    let enter = "ObjectSynchronizer::enter;ObjectMonitor::enter";
    for (backend, time) in [
        (format!("InterpreterRuntime::monitorenter;{enter};ObjectMonitor::EnterI;wait"), 1),
        (
            format!(
                "*_complete_monitor_locking_Java;SharedRuntime::complete_monitor_locking_C;{enter};wait"
            ),
            2,
        ),
        ("*C2 Runtime complete_monitor_locking".into(), 4),
        (format!("*monitorenter_nofpu Runtime1 stub;Runtime1::monitorenter;{enter}"), 8),
        ("*monitor enter;libjvm.so!fn_1a40;wait".into(), 16),
    ] {
        world.fact("main", &format!("start;run;{backend}"), State::Lock, time);
    }
    world.fact("main", "start;run;InterpreterRuntime::monitorexit", State::Run, 32);
    // A notified thread enters the monitor again.
    world.fact("main", "start;run;ObjectMonitor::wait;ObjectMonitor::enter;wait", State::Lock, 64);
    // The thread has entered the monitor and is stopped.
    let stop = "SafepointMechanism::process;SafepointSynchronize::block;wait";
    world.fact(
        "main",
        &format!("start;run;InterpreterRuntime::monitorenter;{enter};{stop}"),
        State::Wait,
        128,
    );
    assert_shows(
        world.shows(&Settings::default()),
        "
        main 255 0
          start 255 0
            run 255 0
              [JVM safepoint] 128 128
              ObjectMonitor::wait 64 0
                monitor enter 64 64
              InterpreterRuntime::monitorexit 32 32
              monitor enter 31 31
        ",
    );
    // Filters still match the frames that the marker replaces.
    let focus =
        with(Filters { focus: Filter::set(Regex::new("EnterI").unwrap()), ..Filters::default() });
    assert_eq!(world.project(&focus).total.wall_ns, 1);
    let hide = with(Filters {
        hide: Filter::set(Regex::new("^monitor enter$").unwrap()),
        ..Filters::default()
    });
    assert_shows(
        world.shows(&hide),
        "
        main 255 0
          start 255 0
            run 255 31
              [JVM safepoint] 128 128
              ObjectMonitor::wait 64 64
              InterpreterRuntime::monitorexit 32 32
        ",
    );
}

#[test]
fn frames_of_the_kernel_can_be_taken_out() {
    let mut world = World::new();
    world.fact("main", "start;read;vmlinux!vfs_read;vmlinux!read_zero", State::Run, 3);
    world.fact("main", "start;read", State::Run, 1);
    world.fact("main", "start;vfs_read", State::Run, 2);
    world.fact("main", "[stack not readable];vmlinux!exit_mmap", State::Run, 4);
    let shown = "
        main 10 0
          start 6 0
            read 4 1
              vfs_read 3 0
                read_zero 3 3
            vfs_read 2 2
          [stack not readable] 4 0
            exit_mmap 4 4
        ";
    assert_shows(world.shows(&Settings::default()), shown);
    let hidden = "
        main 10 0
          start 6 0
            read 4 4
            vfs_read 2 2
          [stack not readable] 4 4
        ";
    let settings = with(Filters { no_kernel: true, ..Filters::default() });
    assert_shows(world.shows(&settings), hidden);
    // One projector for all, as in the live view.
    let (mut projector, snapshot) = (Projector::default(), world.snapshot());
    for (settings, expected) in
        [(Settings::default(), shown), (settings, hidden), (Settings::default(), shown)]
    {
        assert_shows(
            drawn(&world.project_with(&mut projector, &snapshot, &settings), &settings),
            expected,
        );
    }
}

#[test]
fn frames_of_the_kernel_without_names_are_one() {
    let mut world = World::new();
    world.fact(
        "main",
        "start;vmlinux![kernel]:1;vmlinux![kernel]:2;vmlinux![kernel]:3",
        State::Run,
        3,
    );
    world.fact("main", "start;vmlinux![kernel]:4", State::Run, 1);
    world.fact("main", "vmlinux![kernel]:4", State::Run, 1);
    assert_shows(
        world.shows(&Settings::default()),
        "
        main 5 0
          start 4 0
            [kernel]:1 4 4
          [kernel]:4 1 1
        ",
    );
}

#[test]
fn hidden_frames_give_their_self_time_to_their_caller() {
    let mut world = World::new();
    world.fact("main", "start;wrap;work;wrap", State::Run, 3);
    world.fact("main", "start;work", State::Run, 1);
    world.fact("main", "wrap;wrap", State::Run, 5);
    let settings = with(Filters { hide: pattern("^wrap$"), ..Filters::default() });
    assert_shows(
        world.shows(&settings),
        "
        main 9 5
          start 4 0
            work 4 4
        ",
    );
}

#[test]
fn the_cut_is_made_of_what_hide_leaves() {
    let mut world = World::new();
    world.fact("main", "start;shop::a;wrap;lib1;lib2", State::Run, 3);
    let mut settings = interesting(&["shop::"]);
    settings.filters.hide = pattern("wrap");
    assert_shows(
        world.shows(&settings),
        "
        main 3 0
          start 3 0
            shop::a 3 0
              lib1 3 3
        ",
    );
}

fn busy_and_idle() -> World {
    let mut world = World::new();
    world.fact("work-1", "start;pay", State::Run, 1);
    world.fact("work-1", "start;cart", State::Run, 2);
    world.fact("work-2", "start;pay;cart", State::Io, 4);
    world.fact("work-2", "start;loop", State::Poll, 8);
    world.fact("pool-1", "start;rayon_core::sleep::Sleep::sleep;futex_wait", State::Wait, 16);
    world.fact("pool-2", "start;loop", State::Poll, 32);
    world.fact("main", "start;cart", State::Sleep, 64);
    world
}

/// Returns (shown, hidden by [threads, focus, ignore, idle], idle threads).
fn accounts(projection: &Projection) -> (u64, [u64; 4], u32) {
    let hidden = &projection.hidden;
    let walls =
        [hidden.threads, hidden.focus, hidden.ignore, hidden.idle].map(|totals| totals.wall_ns);
    (projection.total.wall_ns, walls, hidden.idle_threads)
}

#[test]
fn idle_time_is_hidden_per_stack_and_accounted_for() {
    let mut world = busy_and_idle();
    assert_eq!(accounts(&world.project(&Settings::default())), (71, [0, 0, 0, 56], 2));
    let all = Settings { idle: true, ..Settings::default() };
    assert_eq!(accounts(&world.project(&all)), (127, [0; 4], 0));
}

#[test]
fn the_first_filter_that_hides_a_stack_gets_its_time() {
    let settings = with(Filters {
        threads: pattern("^work|^pool"),
        focus: pattern("cart|loop|Sleep"),
        ignore: pattern("pay"),
        ..Filters::default()
    });
    // Hidden: main's 64 by threads, work-1's pay (1) by focus, work-2's pay;cart (4) by ignore, 8 +
    // 16 + 32 as idle.
    let projection = busy_and_idle().project(&settings);
    assert_eq!(accounts(&projection), (2, [64, 1, 4, 56], 2));
    assert!(!projection.only_idle);
}

#[test]
fn a_filter_does_not_count_what_would_be_hidden_without_it() {
    let settings = with(Filters { threads: pattern("^work"), ..Filters::default() });
    let projection = busy_and_idle().project(&settings);
    let idle_of_pools = projection.hidden.filtered_idle.wall_ns;
    assert_eq!((accounts(&projection).1[0], idle_of_pools), (64, 16 + 32));
    // With idle time it would be shown.
    let projection = busy_and_idle().project(&Settings { idle: true, ..settings });
    let idle_of_pools = projection.hidden.filtered_idle.wall_ns;
    assert_eq!((accounts(&projection).1[0], idle_of_pools), (64 + 16 + 32, 0));
}

#[test]
fn threads_match_by_name_or_group() {
    let shown = |text| {
        busy_and_idle().project(&with(Filters { threads: pattern(text), ..Filters::default() }))
    };
    assert_eq!(shown("^work-2$").total.wall_ns, 4);
    assert_eq!(shown("^work-$").total.wall_ns, 7);
    let settings = Settings { grouping: Grouping::None, ..shown_settings("^.all.$") };
    assert_eq!(busy_and_idle().project(&settings).hidden.threads.wall_ns, 0);
}

fn shown_settings(text: &str) -> Settings {
    with(Filters { threads: pattern(text), ..Filters::default() })
}

#[test]
fn if_nothing_but_idle_is_left_it_is_shown() {
    let settings = shown_settings("^pool");
    let projection = busy_and_idle().project(&settings);
    assert!(projection.only_idle);
    assert_eq!(accounts(&projection), (48, [71, 0, 0, 0], 0));
    assert_shows(
        drawn(&projection, &settings),
        "
        pool- 48 0
          start 48 0
            loop 32 32
            rayon_core::sleep::Sleep::sleep 16 0
              futex_wait 16 16
        ",
    );
}

#[test]
fn the_user_adds_frames_that_are_idle() {
    let settings = Settings { idle_at: vec![Regex::new("^cart$").unwrap()], ..Settings::default() };
    // main sleeps under cart. work-2's io under cart is never idle, nor is running time.
    assert_eq!(accounts(&busy_and_idle().project(&settings)), (7, [0, 0, 0, 120], 3));
}

#[test]
fn a_thread_that_did_anything_else_is_not_an_idle_thread() {
    let mut world = World::new();
    world.fact("a", "loop", State::Poll, 99);
    world.fact("a", "start", State::Run, 1);
    world.fact("b", "loop", State::Poll, 99);
    assert_eq!(world.project(&Settings::default()).hidden.idle_threads, 1);
}

#[test]
fn a_wait_under_a_named_mutex_is_never_idle() {
    let mut world = World::new();
    world.fact("a", "rayon_core::sleep::Sleep::sleep;lock", State::Lock, 5);
    world.fact("a", "start", State::Run, 1);
    let projection = world.project(&Settings::default());
    assert_eq!(accounts(&projection), (6, [0; 4], 0));
}

#[test]
fn a_hit_without_time_is_nothing_left() {
    let mut world = World::new();
    world.fact("a", "loop", State::Poll, 99);
    world.fact("a", "start", State::Run, 0);
    let projection = world.project(&Settings::default());
    assert!(projection.only_idle);
    assert_eq!(accounts(&projection), (99, [0; 4], 0));
}
