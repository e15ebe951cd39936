//! The sentences above the rows: when each is said, and when not.

use super::*;
use crate::model::facts::observed_waits::ObservedWait;
use crate::model::facts::tables::{Blocker, Holder};
use crate::model::projection::settings::{Grouping, Level};
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::event::Syscall;
use crate::model::vocabulary::frame::{Ns, RawName, SECOND};
use crate::model::vocabulary::host_load::{BusiestProcesses, HostLoad};
use crate::model::vocabulary::peer::{Peer, PeerActivity, PeerProcess};
use crate::model::vocabulary::waits_for::WaitsFor;

const MS: u64 = SECOND / 1000;

fn mine() -> Settings {
    Settings { level: Level::Mine, ..Settings::default() }
}

/// Returns the sentences of a range of 100 ms.
pub(super) fn found(world: &mut World) -> Vec<Finding> {
    let snapshot = world.snapshot();
    found_in(world, &snapshot)
}

pub(super) fn found_in(world: &mut World, snapshot: &Snapshot) -> Vec<Finding> {
    let mut projection = world.project_with(&mut Projector::default(), snapshot, &mine());
    (projection.from, projection.till) = (0, 100 * MS);
    findings(snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE)
}

fn says(world: &mut World) -> Vec<String> {
    let found = found(world);
    found.iter().filter(|found| found.kind != Kind::Nothing).map(Finding::sentence).collect()
}

/// Adds a wait of one thread: its whole time is one unbroken wait.
pub(super) fn waits(world: &mut World, thread: &str, stack: &str, state: State, ms: u64) {
    world.fact(thread, stack, state, ms * MS).longest_ns = ms * MS;
}

const READS: &str = "start;serve;price;ask;libc.so.6!recv";

#[test]
fn threads_that_wait_in_one_place_are_counted_and_named() {
    let mut world = World::new();
    for nth in 0..3 {
        waits(&mut world, &format!("http-{nth}"), READS, State::Io, 100);
    }
    let all = "all 3 http- threads wait in recv: 100 % of busy time, up to 100 ms, \
               in serve > price > ask > recv";
    assert_eq!(says(&mut world), [all]);
    // One of the group does something else: not all of them wait there.
    waits(&mut world, "http-3", "start;serve;sleep_long;libc.so.6!nanosleep", State::Sleep, 10);
    assert!(says(&mut world)[0].starts_with("3 http- threads wait in recv: 97 % of"));
    // One thread has a name.
    let mut world = World::new();
    waits(&mut world, "http-1", READS, State::Io, 100);
    assert!(says(&mut world)[0].starts_with("http-1 waits in recv: 100 %"));
}

/// Adds that each thread was found to wait for a process of this name, `nth` for that of pid 7 +
/// nth or, if they share it, of pid 7.
fn observed(snapshot: &mut Snapshot, world: &World, shared: bool) {
    let waits = world.facts.iter().enumerate().map(|(nth, (key, _))| ObservedWait {
        thread: key.thread,
        stack: key.stack,
        call: Syscall { number: 45, args: [nth as u64, 0, 0, 0, 0, 0] },
        waits_for: WaitsFor {
            what: "recv",
            fd: Some(nth as i32),
            object: "-> 10.0.0.1:5432".into(),
            peer: Some(Peer {
                processes: vec![PeerProcess {
                    name: "db".into(),
                    pid: if shared { 7 } else { 7 + nth as u32 },
                }],
                activity: Some(PeerActivity::Runs),
                ..Peer::default()
            }),
        },
        times: 2,
        at: 50,
    });
    snapshot.observed_waits = waits.collect();
}

#[test]
fn what_was_looked_up_in_the_course_of_a_run_is_named() {
    let mut world = World::new();
    for nth in 0..3 {
        waits(&mut world, &format!("http-{nth}"), READS, State::Io, 100);
    }
    let mut says = |shared: bool, at: Ns| {
        let mut snapshot = world.snapshot();
        observed(&mut snapshot, &world, shared);
        let mut waits = snapshot.observed_waits.to_vec();
        waits.iter_mut().for_each(|wait| wait.at = at);
        snapshot.observed_waits = waits.into();
        let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
        let found = findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE);
        let listed = projection.observed.iter();
        let listed = listed.map(|wait| (wait.object.text(), wait.threads, wait.times)).collect();
        (found[0].text.clone(), listed)
    };
    let (sentence, listed): (_, Vec<_>) = says(true, 50);
    let begin = "all 3 http- threads wait for db[7] (10.0.0.1:5432) in recv: 100 %";
    assert!(sentence.starts_with(begin), "{sentence}");
    assert_eq!(listed, [("recv -> db[7], runs (10.0.0.1:5432)".to_owned(), 3, 6)]);
    let (sentence, listed) = says(false, 50);
    let begin = "all 3 http- threads wait for db (10.0.0.1:5432) in recv: 100 %";
    assert!(sentence.starts_with(begin), "{sentence}");
    assert_eq!(listed, [("recv -> db, runs (10.0.0.1:5432)".to_owned(), 3, 6)]);
    // Not in the range that is shown.
    let (sentence, listed) = says(true, 101);
    assert!(sentence.starts_with("all 3 http- threads wait in recv: 100 %"), "{sentence}");
    assert_eq!(listed, []);
    let mut snapshot = world.snapshot();
    observed(&mut snapshot, &world, true);
    let mut set = snapshot.observed_waits.to_vec();
    for wait in &mut set {
        let object = "(2 descriptors)".into();
        wait.waits_for = WaitsFor { what: "epoll", fd: Some(9), object, peer: None };
    }
    snapshot.observed_waits = set.into();
    let sentence = &found_in(&mut world, &snapshot)[0].text;
    let begin = "all 3 http- threads wait for 2 descriptors in epoll: 100 %";
    assert!(sentence.starts_with(begin), "{sentence}");
}

#[test]
fn only_groups_of_thread_names_are_named() {
    let mut world = World::new();
    for nth in 0..3 {
        waits(&mut world, &format!("http-{nth}"), READS, State::Io, 100);
    }
    let snapshot = world.snapshot();
    for (grouping, who) in [
        (Grouping::Rules, "all 3 http- threads wait"),
        (Grouping::Process, "3 threads wait"),
        (Grouping::Blocker, "3 threads wait"),
        (Grouping::None, "3 threads wait"),
    ] {
        let settings = Settings { grouping, ..mine() };
        let projection = world.project_with(&mut Projector::default(), &snapshot, &settings);
        let found = findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE);
        assert!(found[0].text.starts_with(who), "{}", found[0].text);
    }
}

#[test]
fn a_wait_in_one_place_needs_a_share_and_one_that_is_long() {
    for (ms, others, said) in [(50, 150, true), (49, 10, false), (50, 151, false)] {
        let mut world = World::new();
        waits(&mut world, "http-1", READS, State::Io, ms);
        for nth in 0..others / 10 {
            let stack = format!("start;serve;other_{nth};libc.so.6!recv");
            waits(&mut world, "http-2", &stack, State::Io, 10);
        }
        world.fact("http-3", "start;serve;rest", State::Io, others % 10 * MS);
        assert_eq!(!says(&mut world).is_empty(), said, "{ms} {others}");
    }
    // A disk is no place where short waits are harmless.
    let mut world = World::new();
    waits(&mut world, "store-1", "start;commit;libc.so.6!fsync", State::Disk, 49);
    let disk =
        "store-1 waits for a disk: 100 % of busy time, up to 49 ms, in start > commit > fsync";
    assert_eq!(says(&mut world), [disk]);
}

#[test]
fn short_waits_are_told_where_one_thread_on_average_waits_or_half_of_one_that_does_little_else() {
    for (threads, others, said) in
        [(10, 15, true), (9, 15, false), (5, 0, true), (5, 5, true), (5, 6, false), (4, 0, false)]
    {
        let mut world = World::new();
        for nth in 0..threads {
            world.fact(&format!("http-{nth}"), READS, State::Io, 10 * MS).longest_ns = 5 * MS;
        }
        for nth in 0..others {
            world.fact(&format!("rest-{nth}"), "start;rest", State::Rdy, 10 * MS);
        }
        let says = says(&mut world);
        let expected = format!("all {threads} http- threads wait in recv: ");
        let is_said = says.iter().any(|text| text.starts_with(&expected));
        assert_eq!(is_said, said, "{threads}, {others}: {says:?}");
    }
    let mut world = World::new();
    for nth in 0..10 {
        let stack = "start;serve;forward;libc.so.6!nanosleep";
        world.fact(&format!("http-{nth}"), stack, State::Sleep, 10 * MS).longest_ns = 5 * MS;
    }
    assert_eq!(says(&mut world), Vec::<String>::new());
}

#[test]
fn threads_that_waited_together_for_a_moment_are_told_with_the_time() {
    let text = |threads: u64, apart_ms: u64, seconds: u64| {
        let mut world = World::new();
        world.till = seconds * SECOND;
        for nth in 0..threads {
            let ms = 300 + apart_ms;
            let weights = world.fact(&format!("http-{nth}"), READS, State::Io, ms * MS);
            (weights.longest_ns, weights.longest_from) = (300 * MS, 3723 * SECOND + nth * MS);
        }
        // Beside it the waits have little of the time.
        world.fact("batch", "start;load", State::Run, 300 * SECOND);
        let snapshot = world.snapshot();
        let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
        let found = findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE);
        let hiccup = found.iter().find(|finding| finding.kind == Kind::Hiccup);
        hiccup.map(Finding::sentence).unwrap_or_default()
    };
    let expected = "5 threads waited in recv together for 298 ms at 01:02:03 UTC, \
                    in serve > price > ask > recv";
    assert_eq!(text(5, 0, 60), expected);
    assert_eq!(text(3, 0, 60), "", "three threads");
    assert_eq!(text(5, 100, 60), "", "they wait apart from that, too");
    assert_eq!(text(5, 0, 1), "", "30 % of the range");
}

#[test]
fn a_pool_that_waits_for_its_own_tasks_is_told() {
    let stack = "start;render;java.util.concurrent.FutureTask.get";
    let text = |holders: &[Holder]| {
        let mut world = World::new();
        for (nth, holder) in holders.iter().enumerate() {
            waits(&mut world, &format!("thumb-{nth}"), stack, State::Wait, 500);
            let (kind, object) = (BlockerKind::Future, 16 + nth as u64);
            let future = Blocker { kind, pid: 1, object, class: None, holder: *holder };
            world.facts.last_mut().expect("just added").0.blocker = world.interner.blocker(future);
        }
        let mut snapshot = world.snapshot();
        snapshot.threads = world.facts.iter().map(|(key, _)| super::locks::now(key)).collect();
        found_in(&mut world, &snapshot)[0].text.clone()
    };
    let of_itself = text(&[Holder::Free, Holder::Free]);
    assert!(of_itself.contains(" wait for tasks that no thread runs: 100 %"), "{of_itself}");
    assert!(!text(&[Holder::Free, Holder::Unknown]).contains("no thread runs"));
    assert!(!text(&[Holder::Free]).contains("no thread runs"), "it may begin at once");
}

#[test]
fn idle_threads_that_are_shown_are_not_counted() {
    let mut world = World::new();
    waits(&mut world, "http-1", READS, State::Io, 100);
    let idle = "start;loop;libc.so.6!epoll_wait";
    (0..9).for_each(|nth| waits(&mut world, &format!("pool-{nth}"), idle, State::Poll, 900));
    let hidden = says(&mut world);
    let snapshot = world.snapshot();
    let settings = Settings { idle: true, ..mine() };
    let projection = world.project_with(&mut Projector::default(), &snapshot, &settings);
    let shown = findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE);
    assert_eq!(shown.iter().map(Finding::sentence).collect::<Vec<_>>(), hidden);
}

#[test]
fn a_library_is_named_by_its_outermost_function() {
    let mut world = World::new();
    let pooled = "start;serve;hyper::service::call;mio::pool::get;mio::queue::take;\
                  std::sync::mpsc::recv;libc.so.6!syscall";
    waits(&mut world, "page-1", pooled, State::Wait, 100);
    waits(&mut world, "page-2", pooled, State::Wait, 100);
    let all = "both page- threads wait in mio::pool::get: 100 % of busy time, up to 100 ms, \
               in start > serve > mio::pool::get";
    assert_eq!(says(&mut world), [all]);
}

#[test]
fn of_equal_stacks_the_same_is_named_whatever_the_order_of_facts() {
    let mut world = World::new();
    for (thread, stack) in [("a-1", "start;cart;save;fsync"), ("b-1", "start;order;save;fsync")] {
        waits(&mut world, thread, stack, State::Disk, 90);
    }
    let before = says(&mut world);
    world.facts.reverse();
    assert_eq!(says(&mut world), before);
}

#[test]
fn a_wait_in_a_callback_blocks_the_event_loop() {
    let loops = [
        "start;@asyncio.events.Handle._run;@api.blocking;libc.so.6!nanosleep",
        "start;@asyncio.events._run;@api.blocking;libc.so.6!nanosleep",
        "start;@trio._core._run.unrolled_run;@api.blocking;libc.so.6!nanosleep",
        "start;loop.so!__pyx_f_6uvloop_4loop_6Handle__run;@api.blocking;libc.so.6!nanosleep",
        "start;loop.so!__pyx_f_6uvloop_4loop_11TimerHandle__run;@api.blocking;libc.so.6!nanosleep",
    ];
    for stack in loops {
        let mut world = World::new();
        // Each sleep may be short.
        world.fact("main", stack, State::Sleep, 90 * MS).longest_ns = 5 * MS;
        let text = says(&mut world).remove(0);
        let blocks = "main blocks its event loop, sleeps: 100 % of busy time, up to 5 ms, ";
        assert!(text.starts_with(blocks), "{stack}: {text}");
    }
    let mut world = World::new();
    for name in ["loop-1", "loop-2"] {
        let stack = "start;@asyncio.events.Handle._run;@api.ask;libc.so.6!recv";
        world.fact(name, stack, State::Io, 90 * MS).longest_ns = 5 * MS;
    }
    let text = says(&mut world).remove(0);
    assert!(text.starts_with("both loop- threads block their event loops, wait"), "{text}");
    // Elsewhere it does not, nor in a loop within a callback, and a short sleep is nothing.
    let callback = "start;@asyncio.events.Handle._run;@notebook.run";
    for stack in [
        "start;@asyncio.base_events.BaseEventLoop._run_once;@api.idle;libc.so.6!nanosleep",
        &format!(
            "{callback};@nest_asyncio._patch_loop.<locals>._run_once;@api.idle;libc.so.6!nanosleep"
        ),
        &format!("{callback};@asyncio.base_events._run_once;@api.idle;libc.so.6!nanosleep"),
    ] {
        let mut world = World::new();
        world.fact("main", stack, State::Sleep, 90 * MS).longest_ns = 5 * MS;
        let says = says(&mut world);
        assert!(says.iter().all(|text| !text.contains("event loop")), "{stack}: {says:?}");
    }
    // Of most of the time it is not so.
    let mut world = World::new();
    world.fact("main", "start;@app.run;@api.ask;libc.so.6!nanosleep", State::Sleep, 90 * MS);
    let stack = "start;@asyncio.events.Handle._run;@api.ask;libc.so.6!nanosleep";
    world.fact("main", stack, State::Sleep, 90 * MS).longest_ns = 80 * MS;
    let text = says(&mut world).remove(0);
    assert!(text.starts_with("main sleeps: 100 % of busy time, up to 80 ms"), "{text}");
    let nested = "@nest_asyncio._run_once;@asyncio.events.Handle._run;@api.ask;libc.so.6!nanosleep";
    let mut world = World::new();
    world.fact("main", &format!("{callback};{nested}"), State::Sleep, 90 * MS).longest_ns = 5 * MS;
    assert!(says(&mut world)[0].starts_with("main blocks its event loop, "));
}

#[test]
fn children_and_sleeps_are_waits_of_their_own_words() {
    for (stack, state, expected) in [
        ("start;convert;libc.so.6!wait4", State::Wait, "waits for child processes:"),
        ("start;retry;libc.so.6!nanosleep", State::Sleep, "sleeps:"),
        ("start;touch;std::mutex::lock", State::Lock, "waits for a lock:"),
    ] {
        let mut world = World::new();
        waits(&mut world, "w", stack, state, 100);
        let says = says(&mut world);
        assert!(says[0].starts_with(&format!("w {expected}")), "{says:?}");
    }
}

#[test]
fn locks_of_the_allocator_are_told_apart() {
    for (other, said) in [(180, true), (181, false)] {
        let mut world = World::new();
        for thread in ["index-1", "index-2"] {
            let stack = "start;index;postings;libc.so.6!malloc;libc.so.6!__lll_lock_wait_private";
            waits(&mut world, thread, stack, State::Lock, 10);
        }
        waits(&mut world, "index-1", "start;index;write", State::Io, other);
        let says = says(&mut world);
        let found = says.iter().any(|s| s.starts_with("2 threads wait for the allocator's locks"));
        assert_eq!(found, said, "{other}: {says:?}");
    }
}

#[test]
fn the_thread_that_runs_all_the_time_is_named_with_its_function() {
    let elapsed = 10 * SECOND;
    for (ms, said) in [(9_000, true), (8_999, false)] {
        let mut world = World::new();
        world.fact("session-17", "start;session;parse;find", State::Run, ms * MS).cpu_hits = 10;
        for nth in 0..20 {
            let name = format!("session-{}", 100 + nth);
            world.fact(&name, "start;session;reply", State::Run, 600 * MS).cpu_hits = 10;
        }
        let snapshot = world.snapshot();
        let mut projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
        (projection.from, projection.till) = (0, elapsed);
        let found = findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE);
        let sentences: Vec<String> = found.iter().map(Finding::sentence).collect();
        let expected = "session-17 alone uses a whole core, in session > parse > find";
        assert_eq!(sentences.iter().any(|text| text == expected), said, "{ms}: {sentences:?}");
    }
}

#[test]
fn exceptions_are_told_with_their_function_or_alone() {
    const THROW: &str = "libc.so.6!__cxa_throw;libc.so.6!_Unwind_Find_FDE";
    let says = |all: u64, thrown: &[(&str, u64)]| {
        let mut world = World::new();
        let mut add = |stack: &str, ms: u64| {
            let weights = world.fact("w", stack, State::Run, ms * MS);
            // It wanted a core for as long.
            weights.wall_ns *= 2;
            weights.cpu_hits = ms as u32;
        };
        add("main;parse;libc.so.6!strtol", all);
        for (function, ms) in thrown {
            add(&format!("main;{function};{THROW}"), *ms);
        }
        says(&mut world)
    };
    let parse = "70 % of the CPU time is in parse, for exceptions";
    assert_eq!(says(5, &[("parse", 65), ("a", 15), ("b", 15)]), [parse]);
    let apart = says(45, &[("parse", 15), ("a", 20), ("b", 20)]);
    let takes = "exceptions take 55 % of the CPU time";
    assert_eq!(apart, ["60 % of the CPU time is in parse, calling strtol", takes]);
    let alone = "exceptions take 20 % of the CPU time";
    assert!(says(80, &[("parse", 20)]).iter().any(|text| text == alone));
    assert!(!says(81, &[("parse", 19)]).iter().any(|text| text.contains("exceptions")));
    // Of less than a tenth of a core it is not told.
    assert!(!says(0, &[("parse", 9)]).iter().any(|text| text.contains("take")));
}

#[test]
fn short_lived_threads_are_told_by_their_cpu_time_and_are_no_one_thread() {
    let of_exited = |world: &mut World, name: &str, ms: u64| {
        let thread = ThreadKey::unknown(1);
        world.fact_of(thread, name, "start;tile", State::Run, ms * MS).cpu_hits = 30;
    };
    for (ms, others, said) in [(30, 70, true), (29, 71, false), (9, 9, false)] {
        let mut world = World::new();
        of_exited(&mut world, "(exited)", ms);
        world.fact("w", "start;work", State::Run, others * MS).cpu_hits = 70;
        let found = found(&mut world);
        let told = found.iter().find(|found| found.kind == Kind::ShortLived);
        let expected = said.then_some(("short-lived threads have 30 % of all CPU time", 30 * MS));
        assert_eq!(told.map(|found| (&*found.text, found.lost_ns)), expected, "{ms}");
    }
    let mut world = World::new();
    of_exited(&mut world, "(exited)", 90);
    of_exited(&mut world, "tile-7", 90);
    of_exited(&mut world, "pool-7", 90);
    world.fact("pool-8", "start;work", State::Run, MS);
    world.fact("pool-9", "start;work", State::Run, MS);
    world.fact("w", "start;work", State::Run, 2 * MS);
    let projection = world.project(&Settings::default());
    let counts = projection.groups.iter().map(|of| (&*of.name, of.thread_count()));
    let mut counts: Vec<(&str, String)> = counts.collect();
    counts.sort_unstable();
    let expected = [
        ("(exited)", "exited threads"),
        ("pool-", "2+ threads"),
        ("tile-", "exited threads"),
        ("w", "1 thread"),
    ];
    assert_eq!(counts, expected.map(|(name, count)| (name, count.to_owned())));
    assert_eq!(&*projection.busiest.expect("one runs").name, "w");
}

#[test]
fn threads_that_exited_are_not_counted_among_all_of_a_group() {
    let mut world = World::new();
    for nth in 0..3 {
        waits(&mut world, &format!("http-{nth}"), READS, State::Io, 100);
    }
    let text = says(&mut world).remove(0);
    assert!(text.starts_with("all 3 http- threads wait"), "{text}");
    world.fact_of(ThreadKey::unknown(1), "http-9", READS, State::Io, MS);
    let text = says(&mut world).remove(0);
    assert!(text.starts_with("4 http- threads wait"), "{text}");
}

#[test]
fn page_faults_are_told_from_a_fifth_of_the_busy_time_on() {
    for (faults, said) in [(20, true), (19, false)] {
        let mut world = World::new();
        let stack = "main;fill;vmlinux!asm_exc_page_fault;vmlinux!handle_mm_fault";
        world.fact("w", stack, State::Run, faults * MS);
        world.fact("w", "main;fill", State::Run, (100 - faults) * MS);
        let says = says(&mut world);
        let found = says.iter().any(|text| text.starts_with("page faults take "));
        assert_eq!(found, said, "{faults}: {says:?}");
    }
}

#[test]
fn time_that_was_not_observed_is_no_cause() {
    let waits_in_recv = "http-1 waits in recv: 100 % of busy time, up to 100 ms, \
                         in serve > price > ask > recv";
    for (unobserved, idle, expected) in [
        (900, 0, vec!["90 % of the time was not observed", waits_in_recv]),
        (900, 14_000, vec![waits_in_recv, "6 % of the time was not observed"]),
        (6, 0, vec![waits_in_recv, "6 % of the time was not observed"]),
        (6, 15, vec![waits_in_recv]),
    ] {
        let mut world = World::new();
        waits(&mut world, "http-1", READS, State::Io, 100);
        world.fact("http-2", "[not observed]", State::Wait, unobserved * MS);
        world.fact("http-3", "main;epoll_wait", State::Poll, idle * MS);
        assert_eq!(says(&mut world), expected, "{unobserved} {idle}");
    }
}

#[test]
fn a_wait_that_was_not_observed_is_hidden_as_idle_and_a_run_is_not() {
    let mut world = World::new();
    for (state, ms) in [(State::Run, 3), (State::Rdy, 2), (State::Wait, 900)] {
        world.fact("w", "[not observed]", state, ms * MS);
    }
    let shown = world.project(&mine());
    assert_eq!((shown.total.wall_ns, shown.hidden.idle.wall_ns), (5 * MS, 900 * MS));
    let all = world.project(&Settings { idle: true, ..mine() });
    assert_eq!((all.total.wall_ns, all.hidden.idle.wall_ns), (905 * MS, 0));
}

#[test]
fn what_was_not_observed_is_told_of_a_program_at_rest_too() {
    let mut world = World::new();
    world.fact("w-1", "start_thread;loop;epoll_wait", State::Poll, 100);
    world.fact("w-1", "[not observed]", State::Wait, 300);
    world.fact("w-2", "start_thread;mio::tick", State::Run, 1);
    assert_eq!(says(&mut world), ["75 % of the time was not observed"]);
}

#[test]
fn torn_stacks_do_harm_where_they_have_time() {
    for (torn, said) in [(6, true), (5, false)] {
        let mut world = World::new();
        world.fact("w", "main;[torn]", State::Io, torn * MS);
        world.fact("w", "main;fill", State::Io, (100 - torn) * MS);
        let expected = "6 % of the time has torn stacks";
        assert_eq!(says(&mut world).iter().any(|text| text == expected), said, "{torn}");
    }
}

#[test]
fn a_quota_that_stops_the_process_is_told() {
    for (throttled_percent, said) in [(10.0, true), (9.9, false)] {
        let mut world = World::new();
        world.fact("w", "main", State::Run, 40);
        let mut snapshot = world.snapshot();
        snapshot.health.host = Some(HostLoad { throttled_percent, ..HostLoad::default() });
        let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
        let found = findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE);
        let quota = "the CPU quota stops the process in 10 % of its periods, 0.4 of 1 are used";
        assert_eq!(found.iter().any(|found| found.text == quota), said, "{throttled_percent}");
    }
}

/// Returns the first sentence about two threads, of which one runs for `run` ms and one wants a
/// core for 90 of 100 ms, and one that runs for `others` ms.
fn says_on_host(host: HostLoad, run: u64, others: u64, threads: Option<&str>) -> String {
    let mut world = World::new();
    Arc::make_mut(&mut world.session).cores_milli = 2_000;
    world.fact("w", "main", State::Run, run * MS);
    world.fact("v", "main", State::Rdy, 90 * MS);
    world.fact("hidden", "main", State::Run, others * MS);
    let mut snapshot = world.snapshot();
    snapshot.health.host = Some(host);
    let pattern = threads.map(|text| regex::Regex::new(text).expect("a pattern"));
    let threads = pattern.map_or(Filter::default(), Filter::set);
    let settings = Settings { filters: Filters { threads, ..Filters::default() }, ..mine() };
    let mut projection = world.project_with(&mut Projector::default(), &snapshot, &settings);
    (projection.from, projection.till) = (0, 100 * MS);
    let found = findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE);
    found.first().expect("a sentence").sentence()
}

#[test]
fn who_else_uses_the_cores_is_told_where_they_are_all_in_use() {
    let name = RawName::new(b"ffmpeg");
    let busiest = |count, cores| Some(BusiestProcesses { name, count, pid: 812, cores });
    let says = |cpu_percent: f64, run: u64, others: u64, threads: Option<&str>| {
        says_on_host(HostLoad { cpu_percent, ..HostLoad::default() }, run, others, threads)
    };
    let named = |busiest| {
        let host =
            HostLoad { cpu_percent: 100.0, others_cores: 1.8, busiest, ..HostLoad::default() };
        let sentence = says_on_host(host, 20, 0, None);
        sentence.rsplit_once("mostly with ").map(|(_, who)| who.to_owned())
    };
    assert_eq!(named(busiest(1, 0.9)).as_deref(), Some("ffmpeg[812]"));
    assert_eq!(named(busiest(8, 0.9)).as_deref(), Some("ffmpeg (8 processes)"));
    assert_eq!(named(busiest(1, 0.89)).as_deref(), Some("other processes"));
    let waits = |used: &str| format!("waiting for a core is {used} of 2 are used");
    let host =
        |percent: u32| format!(", on a host that is {percent} % busy, mostly with other processes");
    assert_eq!(says(90.0, 20, 0, None), waits("82 % of busy time, 0.2") + &host(90));
    assert_eq!(says(89.0, 20, 0, None), waits("82 % of busy time, 0.2"));
    assert_eq!(says(100.0, 85, 0, None), waits("51 % of busy time, 0.8") + &host(100));
    // What is hidden by a filter uses the cores, too.
    let shown = says(100.0, 20, 70, Some("^[vw]$"));
    assert_eq!(shown, waits("82 % of busy time, 0.2"));
}

#[test]
fn the_sentence_with_most_lost_time_is_first_and_there_are_three_at_most() {
    let mut world = World::new();
    for (nth, ms) in [(0, 60), (1, 80), (2, 70), (3, 65)] {
        let stack = format!("start;serve;ask_{nth};libc.so.6!recv");
        waits(&mut world, &format!("http-{nth}"), &stack, State::Io, ms);
    }
    let who: Vec<String> = says(&mut world).iter().map(|text| text[..6].to_owned()).collect();
    assert_eq!(who, ["http-1", "http-2"], "the others have less than a quarter");
    // Whatever they are about.
    for (ms, hot) in [(99, 1), (101, 0)] {
        let mut world = World::new();
        waits(&mut world, "http-1", READS, State::Io, 100);
        world.fact("calc", "start;work;total", State::Run, ms * MS).cpu_hits = 10;
        let says = says(&mut world);
        assert!(says[hot].starts_with("100 % of the CPU time is in total"), "{ms}: {says:?}");
    }
    let mut world = World::new();
    let quarter = |world: &mut World, nth: u64| {
        let stack = format!("start;serve;ask_{nth};libc.so.6!recv");
        waits(world, &format!("http-{nth}"), &stack, State::Io, 100);
    };
    (0..4).for_each(|nth| quarter(&mut world, nth));
    assert_eq!(says(&mut world).len(), 3);
}

#[test]
fn outer_functions_give_way() {
    let more = More {
        before: "held by timer in".into(),
        functions: ["Rules.reload", "Rules.fetch", "Net.read"].map(String::from).into(),
        after: "> recv".into(),
    };
    for (cells, expected) in [
        (61, "held by timer in Rules.reload > Rules.fetch > Net.read > recv"),
        (60, "held by timer in Rules.fetch > Net.read > recv"),
        (45, "held by timer in Net.read > recv"),
        (1, "held by timer in Net.read > recv"),
    ] {
        assert_eq!(more.text(cells), expected, "{cells}");
    }
}
