//! Goroutines: groups by the function that they were started with, and their collector.

use super::findings::{found, found_in, waits};
use super::group_now::{chains, counts};
use super::locks::{MS, now};
use super::*;
use crate::model::projection::settings::{Grouping, Level, Rename};

#[test]
fn goroutines_are_grouped_by_the_function_they_were_started_with() {
    let thread = |tid| ThreadKey { pid: 1, tid, start: 1 };
    let mut world = World::new();
    // Each thread executes one goroutine after the other.
    for (tid, stack, wall) in [
        (1, "#runtime.goexit;#runtime.main;#main.main:9;#main.load", 1),
        (1, "#runtime.goexit;#main.worker:5;#main.step", 2),
        (2, "#runtime.goexit;#main.worker:7", 4),
        (2, "#runtime.goexit;#net/http.(*Server).Serve.gowrap3;#net/http.(*conn).serve", 8),
        (2, "#runtime.mcall;#runtime.park_m", 16),
        (1, "[truncated: too many frames];#runtime.systemstack;#runtime.f", 32),
        (3, "start_thread;compress", 64),
        (1, "vmlinux!do_exit", 128),
    ] {
        world.fact_of(thread(tid), "shop-1", stack, State::Run, wall);
    }
    // A thread of another runtime stays what it is.
    world.fact("~GC Thread#0", "#runtime.goexit;#main.worker", State::Run, 256);
    let groups = |world: &mut World, settings: &Settings| {
        let projection = world.project(settings);
        let group = |g: &Group| format!("{} {}/{}", g.name, g.total.wall_ns, g.threads.len());
        projection.groups.iter().map(group).collect::<Vec<_>>()
    };
    let by = |grouping| Settings { grouping, ..Settings::default() };
    let of_go = [
        "(unknown goroutine) 32/1",
        "[Go runtime] 16/1",
        "[JVM] 256/1",
        "main.main 1/1",
        "main.worker 6/2",
        "net/http.(*conn).serve 8/1",
        "shop- 192/2",
    ];
    assert_eq!(groups(&mut world, &by(Grouping::Rules)), of_go);
    assert_eq!(groups(&mut world, &by(Grouping::Name)), ["GC Thread#0 256/1", "shop-1 255/3"]);
    assert_eq!(groups(&mut world, &by(Grouping::Process)), ["1 shop --port 80 511/4"]);
    // Rules for names of threads are not for functions; the filter of threads is for both.
    let rename = vec![Rename::parse("s/^(main|shop).*/x/").unwrap()];
    let renamed = groups(&mut world, &Settings { rename, ..Settings::default() });
    assert_eq!(renamed[3..], ["main.main 1/1", "main.worker 6/2", of_go[5], "x 192/2"]);
    let of_shop = [&of_go[..2], &of_go[3..]].concat();
    for (pattern, shown) in [("^main.worker$", &of_go[4..5]), ("^shop-1$", &of_shop[..])] {
        let threads = Filter::set(regex::Regex::new(pattern).unwrap());
        let filters = Filters { threads, ..Filters::default() };
        assert_eq!(groups(&mut world, &Settings { filters, ..Settings::default() }), shown);
    }
}

#[test]
fn groups_of_goroutines_have_no_threads_of_their_own() {
    let mut world = World::new();
    for nth in 0..3 {
        let stack = "#runtime.goexit;#main.serve;libc.so.6!recv";
        waits(&mut world, &format!("shop-{nth}"), stack, State::Io, 100);
    }
    let sentence = &found(&mut world)[0].text;
    assert!(sentence.starts_with("3 threads wait"), "{sentence}");
}

/// Adds a wait of each of `count` goroutines; `ms`: its time.
fn goroutines(world: &mut World, count: u64, stack: &str, state: State, ms: u64) {
    for id in 0..count {
        let thread = ThreadKey::goroutine(1, id, id);
        world.fact_of(thread, "main.serve", stack, state, ms * MS);
    }
}

const SENDS: &str = "#runtime.goexit;#main.serve:3;#main.produce:5;##runtime.chansend1:9";

#[test]
fn a_sentence_counts_the_goroutines_that_wait_at_the_same_time() {
    let says = |count, ms, notice: Option<&str>| {
        let mut world = World::new();
        goroutines(&mut world, count, SENDS, State::Wait, ms);
        let snapshot = Snapshot { notice: notice.map(Into::into), ..world.snapshot() };
        found_in(&mut world, &snapshot)[0].sentence()
    };
    let rest = "to send to a channel: 100 % of busy time, in main.serve > main.produce";
    assert_eq!(says(20, 100, None), format!("20 goroutines wait {rest}"));
    // In the range of 100 ms ten are always there.
    assert_eq!(says(200, 5, None), format!("10 goroutines at a time wait {rest}"));
    assert_eq!(says(20, 5, None), format!("1 goroutine at a time waits {rest}"));
    let some = "process 1: of its many goroutines only some are read";
    assert_eq!(says(20, 90, Some(some)), format!("at least 18 goroutines wait {rest}"));
    assert_eq!(says(20, 100, Some("capturing by perf")), format!("20 goroutines wait {rest}"));
}

#[test]
fn goroutines_that_wait_now_are_counted() {
    let mut world = World::new();
    goroutines(&mut world, 40, SENDS, State::Wait, 10);
    let mut snapshot = world.snapshot();
    snapshot.threads = world.facts[..12].iter().map(|(key, _)| now(key)).collect();
    let sentence = found_in(&mut world, &snapshot)[0].sentence();
    assert!(sentence.starts_with("12 goroutines at a time wait"), "{sentence}");
}

#[test]
fn threads_beside_goroutines_are_counted_as_threads() {
    let mut world = World::new();
    goroutines(&mut world, 3, SENDS, State::Wait, 100);
    waits(&mut world, "shop", SENDS, State::Wait, 100);
    let sentence = &found(&mut world)[0].text;
    assert!(sentence.starts_with("4 threads wait"), "{sentence}");
}

#[test]
fn what_the_collector_of_go_takes_is_told_where_samples_suffice() {
    const WORKS: &str = "#runtime.goexit;#runtime.gcBgMarkWorker;#runtime.gcDrain";
    const CUT: &str = "[truncated: too many frames];#runtime.systemstack";
    const SERVES: &str = "#runtime.goexit;#main.serve";
    let says = |facts: &[(&str, u64)], hits: u32| {
        let mut world = World::new();
        for (nth, (stack, ms)) in facts.iter().enumerate() {
            world.fact(&format!("shop-{nth}"), stack, State::Run, ms * MS).cpu_hits = hits;
        }
        let found = found(&mut world).into_iter().find(|found| found.kind == Kind::Collector);
        found.map(|found| found.sentence())
    };
    let works = "garbage collection takes 30 % of the CPU time";
    let cut = format!("{CUT};#runtime.gcBgMarkWorker.func2");
    for stack in [WORKS, &cut] {
        assert_eq!(says(&[(stack, 30), (SERVES, 70)], 10).as_deref(), Some(works), "{stack}");
        assert_eq!(says(&[(stack, 30), (SERVES, 70)], 9), None, "too few samples");
        assert_eq!(says(&[(stack, 29), (SERVES, 71)], 10), None);
        assert_eq!(says(&[(stack, 9), (SERVES, 9)], 10), None, "less than a tenth of a core");
    }
    let helps = "garbage collection takes 15 % of the CPU time, \
                 10 % in goroutines that have to help because they allocate";
    let assists = format!("{SERVES};#runtime.mallocgc;#runtime.gcAssistAlloc;#runtime.gcDrainN");
    let cut = format!("{CUT};#runtime.gcAssistAlloc.func2");
    for stack in [&assists, &cut] {
        let facts = [(WORKS, 5), (stack, 10), (SERVES, 85)];
        assert_eq!(says(&facts, 10).as_deref(), Some(helps), "{stack}");
        assert_eq!(says(&[(WORKS, 5), (stack, 9), (SERVES, 86)], 10), None);
    }
    // One that its own collector thread stops is told as before.
    let mut world = World::new();
    world.fact("~GC Thread#0", "start;run", State::Run, 40 * MS);
    world.fact("main", "start;work", State::Run, 60 * MS);
    let stops =
        "garbage collection takes 40 % of the CPU time, and stops threads for 0 % of busy time";
    assert!(found(&mut world).iter().any(|found| found.sentence() == stops));
}

#[test]
fn a_thread_counts_for_the_goroutine_that_it_executes() {
    let mut world = World::new();
    let thread = ThreadKey { pid: 1, tid: 7, start: 1 };
    for stack in ["#runtime.goexit;#main.worker", "#runtime.goexit;#main.serve", "main"] {
        world.fact_of(thread, "shop", stack, State::Run, 5);
    }
    let mut snapshot = world.snapshot();
    snapshot.threads = [now(&world.facts[1].0)].into();
    let shown = counts(&world.project_with(&mut Projector::default(), &snapshot, &chains()));
    assert_eq!(shown, ["main.serve 1 run, 0 idle", "main.worker, 0 idle", "shop, 0 idle"]);
}

#[test]
fn what_the_runtime_does_for_itself_has_rows_by_its_parts() {
    let mut world = World::new();
    world.fact("shop", "#runtime.mcall;#runtime.schedule;#runtime.findRunnable", State::Run, 1);
    world.fact("shop", "#runtime.mstart;#runtime.sysmon", State::Run, 2);
    world.fact("shop", "#runtime.goexit;#runtime.bgsweep;#runtime.sweepone", State::Run, 4);
    world.fact("shop", "#runtime.goexit;#runtime.runfinq", State::Run, 8);
    world.fact("shop", "#runtime.goexit;#runtime.runfinq;#main.close", State::Run, 16);
    let settings = Settings { level: Level::Mine, ..Settings::default() };
    let expected = "
        runtime.runfinq 16 0
          runtime.runfinq 16 0
            main.close 16 16
        [Go runtime] 15 0
          other goroutines 8 8
          garbage collector 4 4
          scheduler 3 3
        ";
    assert_shows(world.shows(&settings), expected);
    let all = world.shows(&Settings::default());
    assert!(all.contains("  scheduler 3 0\n    runtime.mstart 2 0\n"), "{all}");
    // Other groups have no such rows.
    let by_name = world.shows(&Settings { grouping: Grouping::Name, ..settings });
    assert!(!by_name.contains("scheduler") && by_name.contains("  runtime.mcall 1 1"), "{by_name}");
}
