//! What lines are called, and the sentence above them.

use super::*;
use crate::model::facts::snapshot::ThreadNow;
use crate::model::facts::tables::BlockerId;
use crate::model::projection::settings::Level;
use crate::model::vocabulary::event::Syscall;
use crate::model::vocabulary::frame::{Ns, SECOND};

fn at(level: Level) -> Settings {
    Settings { level, ..Settings::default() }
}

/// Returns the lines of the first group's heaviest path, as `outer -> name | inner`.
fn lines(world: &mut World, settings: &Settings) -> Vec<String> {
    let projection = world.project(settings);
    let ordered = projection.ordered(settings);
    let mut lines = Vec::new();
    let mut next = ordered.roots(&projection.groups[ordered.groups()[0] as usize]);
    while let Some(first) = next.first() {
        let chain = chain(&ordered, *first);
        let label = label(&ordered, chain.last, chain.swallowed);
        let mut line: String =
            label.outer.iter().map(|caller| format!("{} -> ", caller.function)).collect();
        line += &label.name.function;
        if let Some(inner) = label.inner {
            line += &format!(" | {}", inner.function);
        }
        if label.is_entry {
            line.insert_str(0, "entry ");
        }
        lines.push(line);
        next = ordered.children(chain.last);
    }
    lines
}

#[test]
fn a_line_is_named_by_the_users_function() {
    let stack = "libc.so.6!clone3;main;serve;cart;libc.so.6!malloc;libc.so.6!grow";
    let mut world = World::new();
    world.fact("w", stack, State::Run, 5);
    let own = ["main -> serve -> cart | malloc", "entry malloc"];
    assert_eq!(lines(&mut world, &at(Level::Mine)), own);
    // The whole chain is one line: of the calls outside of the user's code, only the last one.
    assert_eq!(lines(&mut world, &at(Level::Chains)), ["main -> serve -> cart | grow"]);
    // Of a wait the outermost call; what the kernel does for a call is not named.
    for (calls, expected) in [
        (
            "std::vec::push;libc.so.6!pthread_mutex_lock;libc.so.6!lll_lock_wait",
            "pthread_mutex_lock",
        ),
        ("libc.so.6!malloc;libc.so.6!grow;vmlinux!do_page_fault;vmlinux!clear_page", "grow"),
        ("vmlinux!do_syscall_64;vmlinux!vfs_read", "vfs_read"),
    ] {
        let mut world = World::new();
        world.fact("w", &format!("main;cart;{calls}"), State::Lock, 5);
        let expected = format!("main -> cart | {expected}");
        assert_eq!(lines(&mut world, &at(Level::Chains)), [expected]);
    }
}

#[test]
fn a_way_out_is_named_if_it_has_most_of_the_functions_time() {
    for (outside, expected) in [(4, "cart"), (5, "cart"), (6, "cart | malloc")] {
        let mut world = World::new();
        world.fact("w", "cart", State::Run, 10 - outside);
        world.fact("w", "cart;libc.so.6!malloc", State::Run, outside);
        assert_eq!(lines(&mut world, &at(Level::Mine))[0], expected, "{outside} of 10");
    }
    // Of the whole row, also where most is in other functions of the user.
    for (outside, expected) in [(10, "price"), (11, "price | malloc")] {
        let mut world = World::new();
        world.fact("w", "price;libc.so.6!malloc", State::Run, outside);
        world.fact("w", "price;total", State::Run, 10);
        assert_eq!(lines(&mut world, &at(Level::Mine))[0], expected, "{outside} beside 10");
    }
}

#[test]
fn a_method_is_named_with_its_way_out_where_self_time_counts() {
    for (inside, expected) in [(190, Some("malloc")), (191, None)] {
        let mut world = World::new();
        world.fact("w", "price;libc.so.6!malloc", State::Run, 10);
        world.fact("w", "price;total", State::Run, inside);
        let projection = world.project(&at(Level::Mine));
        let is_price = |method: &&Method| &*method.location(Metric::Wall).function == "price";
        let price = projection.methods().iter().find(is_price).expect("a method");
        let entry = price.entry(Metric::Wall).map(|entry| &*entry.function);
        assert_eq!(entry, expected, "10 beside {inside}");
    }
}

#[test]
fn no_function_calls_an_interrupt() {
    let mut world = World::new();
    let stack = "main;cart;vmlinux!asm_common_interrupt;vmlinux!common_interrupt";
    world.fact("w", stack, State::Run, 5);
    assert_eq!(lines(&mut world, &at(Level::Mine)), ["main -> cart"]);
    assert_eq!(lines(&mut world, &at(Level::Chains)), ["main -> cart"]);
}

#[test]
fn a_chain_without_the_users_code_is_named_by_its_last_call() {
    let mut world = World::new();
    world.fact("w", "libc.so.6!clone3;libc.so.6!malloc;libc.so.6!grow", State::Run, 5);
    assert_eq!(lines(&mut world, &at(Level::Chains)), ["clone3 -> malloc -> grow"]);
}

/// One thread of the snapshot, with a fact of its wait.
fn waits(world: &mut World, name: &str, (stack, state): (&str, State), since: Ns) -> ThreadNow {
    let thread = ThreadKey { pid: 1, tid: since as u32, start: 1 };
    world.fact_of(thread, name, stack, state, 5);
    let key = world.facts.last().expect("just added").0;
    ThreadNow {
        thread,
        name: key.name,
        stack: key.stack,
        state: key.state,
        since,
        syscall: None,
        blocker: BlockerId::NONE,
        run_ns: 0,
        recovered: false,
    }
}

struct Moment {
    world: World,
    threads: Vec<ThreadNow>,
    health: Health,
}

impl Moment {
    /// Three threads wait: for work 50 s, for a lock 20 s and 7 s.
    fn new() -> Moment {
        let mut world = World::new();
        let work = ("start_thread;loop;epoll_wait", State::Poll);
        let lock = ("start_thread;serve;std::mutex::lock", State::Lock);
        let threads = vec![
            waits(&mut world, "pool-1", work, 50 * SECOND),
            waits(&mut world, "old-1", lock, 80 * SECOND),
            waits(&mut world, "young-1", lock, 93 * SECOND),
        ];
        let health = Health { interval_achieved_ns: 10_000_000, ..Health::default() };
        Moment { world, threads, health }
    }

    fn finding(&mut self, settings: &Settings) -> Option<Finding> {
        let mut snapshot = self.world.snapshot();
        snapshot.at = 100 * SECOND;
        snapshot.threads = self.threads.clone().into();
        snapshot.health = self.health;
        let projection = self.world.project_with(&mut Projector::default(), &snapshot, settings);
        findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE).into_iter().next()
    }

    /// Returns the first sentence; empty if nothing stands out.
    fn says(&mut self, settings: &Settings) -> String {
        let says = self.finding(settings).map_or(String::new(), |finding| finding.text);
        if says.starts_with("nothing stands out") { String::new() } else { says }
    }
}

fn of_threads(pattern: &str) -> Settings {
    let threads = Filter::set(regex::Regex::new(pattern).expect("a pattern"));
    Settings { filters: Filters { threads, ..Filters::default() }, ..at(Level::Mine) }
}

#[test]
fn the_sentence_is_about_the_longest_wait_that_is_shown() {
    let mut moment = Moment::new();
    assert_eq!(moment.says(&at(Level::Mine)), "old-1 waits 20 s: lock");
    assert_eq!(moment.says(&of_threads("^young")), "young-1 waits 7 s: lock");
    moment.threads[2].since = 100 * SECOND - SECOND + 1;
    assert_eq!(moment.says(&of_threads("^young")), "", "below a second it is not worth a sentence");
}

#[test]
fn that_there_is_nothing_to_see_is_said_of_the_threads_that_pass_the_filters() {
    let mut moment = Moment::new();
    let text = "nothing to see: 1 thread waits for work".into();
    let idle = Finding { about: About::Idle, ..Finding::new(Kind::Nothing, text) };
    assert_eq!(moment.finding(&of_threads("^pool")), Some(idle.clone()));
    let all = Settings { level: Level::All, ..of_threads("^pool") };
    assert_eq!(moment.finding(&all), Some(idle), "though it is shown");
    assert_eq!(moment.finding(&of_threads("^none")), None);
}

#[test]
fn a_convoy_is_counted_and_its_longest_wait_is_asked_for() {
    // Of `waiting` threads at one address, three at others, and some that wait for something else.
    for (waiting, others, expected) in [
        (4, 0, "4 of 7 busy threads wait for one mutex 0x7000"),
        (4, 1, "4 of 8 busy threads wait for one mutex 0x7000"),
        (4, 2, "page-0 waits 20 s: mutex 0x7000"),
        (3, 0, "page-0 waits 20 s: mutex 0x7000"),
    ] {
        let mut moment = Moment::new();
        moment.threads.clear();
        let lock = ("start_thread;serve;pthread_mutex_lock", State::Lock);
        let mut wait = |name: String, since: Ns, number, at| {
            let thread = waits(&mut moment.world, &name, lock, since);
            let syscall = Some(Syscall { number, args: [at, 0, 2, 0, 0, 0] });
            moment.threads.push(ThreadNow { syscall, ..thread });
        };
        (0..waiting).for_each(|nth| wait(format!("page-{nth}"), 80 * SECOND + nth, 202, 0x7000));
        (0..3).for_each(|nth| wait(format!("other-{nth}"), 90 * SECOND + nth, 202, 0x8000 + nth));
        (0..others).for_each(|nth| wait(format!("file-{nth}"), 95 * SECOND + nth, 72, 0x7000));
        assert_eq!(moment.says(&at(Level::Mine)), expected, "{waiting} {others}");
    }
}

#[test]
fn a_program_at_rest_is_said_to_be_one() {
    // One core; `elapsed` is 100 ns.
    for (idle, busy, expected) in [
        (0, 1, "0.01 of 1"),
        (1, 1, "0.01 of 1, 1 thread waits for work"),
        (3, 1, "0.01 of 1, 3 threads wait for work"),
        (3, 20, "0.20 of 1, 3 threads wait for work"),
    ] {
        let mut moment = Moment::new();
        moment.threads.clear();
        moment.world.facts.clear();
        moment.world.fact("pool-0", "start_thread;loop;epoll_wait", State::Poll, 99);
        moment.world.fact("pool-0", "start_thread;loop;work", State::Run, busy);
        for nth in 0..idle {
            let name = format!("pool-{}", nth + 1);
            let work = ("start_thread;loop;epoll_wait", State::Poll);
            let thread = waits(&mut moment.world, &name, work, nth);
            // What counts is the moment, as in the header, not the range.
            moment.world.facts.pop();
            moment.threads.push(thread);
        }
        let says = moment.finding(&at(Level::Mine)).expect("an answer").text;
        assert_eq!(says, format!("nothing stands out: cpu {expected}"), "{idle} {busy}");
    }
}

#[test]
fn harm_to_the_measurement_goes_first() {
    for (harm, expected) in [
        (
            |h: &mut Health| (h.losses.samples, h.losses.dropped) = (90, 10),
            "10 % of the samples are lost",
        ),
        (|h| (h.losses.samples, h.losses.truncated) = (100, 6), "6 % of the stacks are truncated"),
        (|h| (h.losses.samples, h.losses.unwind_failed) = (100, 7), "7 % of the stacks end early"),
        (|h| h.losses.stops = 3, "threads are stopped for each sample: 3 stops so far"),
    ] as [(fn(&mut Health), &str); 4]
    {
        let mut moment = Moment::new();
        harm(&mut moment.health);
        let finding = moment.finding(&at(Level::Mine)).expect(expected);
        assert_eq!((&*finding.text, finding.about), (expected, About::Harm));
    }
    // What is harmless is not told.
    let mut moment = Moment::new();
    let losses = &mut moment.health.losses;
    (losses.samples, losses.dropped, losses.truncated) = (1000, 10, 50);
    (losses.unwind_failed, losses.torn) = (50, 50);
    (moment.health.interval_achieved_ns, moment.health.ticks) = (20_000_000, 101);
    assert_eq!(moment.says(&at(Level::Mine)), "old-1 waits 20 s: lock");
}

#[test]
fn a_coarse_measurement_goes_after_causes_and_before_nothing() {
    for (coarse, expected) in [
        (
            |h: &mut Health| (h.interval_achieved_ns, h.ticks) = (30_000_000, 101),
            "sampled every 30 ms, not 10 ms, to limit the cost",
        ),
        (|h| h.folded_facts = 1, "history is full: rare stacks are summed up as (other)"),
    ] as [(fn(&mut Health), &str); 2]
    {
        let mut moment = Moment::new();
        coarse(&mut moment.health);
        assert_eq!(moment.says(&at(Level::Mine)), "old-1 waits 20 s: lock");
        // Without a long wait, of a program that would be at rest, too.
        moment.threads.clear();
        moment.world.facts.clear();
        moment.world.fact("pool-0", "start_thread;loop;work", State::Run, 1);
        let finding = moment.finding(&at(Level::Mine)).expect(expected);
        assert_eq!((&*finding.text, finding.about), (expected, About::Harm));
        moment.world.facts.clear();
        moment.world.fact("pool-0", "start_thread;loop;epoll_wait", State::Poll, 100);
        assert_eq!(moment.says(&at(Level::Mine)), "nothing to see: 1 thread waits for work");
    }
}

#[test]
fn threads_that_want_a_core_are_counted() {
    // One core; `elapsed` is 100 ns.
    for (ready, running, expected) in [
        (49, 0, ""),
        (50, 0, "waiting for a core is 100 % of busy time, 0.0 of 1 are used"),
        (60, 30, "waiting for a core is 67 % of busy time, 0.3 of 1 are used"),
        (100, 99, "1 thread waits for a core, 1.0 of 1 are used"),
        (100, 100, ""),
        (300, 100, "3 threads wait for a core, 1.0 of 1 are used"),
    ] {
        let mut moment = Moment::new();
        moment.threads.clear();
        moment.world.facts.clear();
        moment.world.fact("w", "main", State::Run, running);
        moment.world.fact("w", "main", State::Rdy, ready);
        assert_eq!(moment.says(&at(Level::Mine)), expected, "{ready} ready, {running} running");
    }
    // Less than half of the busy time.
    for (ready, expected) in [(60, ""), (100, "1 thread waits for a core, 0.0 of 1 are used")] {
        let mut moment = Moment::new();
        moment.threads.clear();
        moment.world.facts.clear();
        moment.world.fact("w", "main", State::Rdy, ready);
        for function in ["load", "save", "list", "find"] {
            moment.world.fact("w", &format!("main;{function};libc.so.6!read"), State::Io, 30);
        }
        assert_eq!(moment.says(&at(Level::Mine)), expected, "{ready} ready");
    }
}

#[test]
fn the_function_with_most_of_the_cpu_time_is_named() {
    // One core; `elapsed` is 100 ns.
    for (hot, calling, other, expected) in [
        (60, 0, 30, "67 % of the CPU time is in serve"),
        (25, 35, 40, "60 % of the CPU time is in serve, calling malloc"),
        (45, 0, 46, "51 % of the CPU time is in main"),
        (5, 0, 4, ""),
        (6, 0, 4, "60 % of the CPU time is in serve"),
        (24, 25, 50, "51 % of the CPU time is in main"),
    ] {
        let mut moment = Moment::new();
        moment.threads.clear();
        moment.world.facts.clear();
        moment.world.fact("w", "main;serve", State::Run, hot).cpu_hits = 10;
        moment.world.fact("w", "main;serve;libc.so.6!malloc", State::Run, calling).cpu_hits = 10;
        moment.world.fact("w", "main", State::Run, other).cpu_hits = 10;
        assert_eq!(moment.says(&at(Level::Mine)), expected, "{hot} {calling} {other}");
    }
}

#[test]
fn a_hot_function_is_named_where_threads_mostly_run() {
    for (running, hits, expected) in [
        (60, 10, "100 % of the CPU time is in busy"),
        (60, 9, "old-1 waits 20 s: lock"),
        (9, 10, "old-1 waits 20 s: lock"),
    ] {
        let mut moment = Moment::new();
        moment.world.fact("w", "main;busy", State::Run, running).cpu_hits = hits;
        assert_eq!(moment.says(&at(Level::Mine)), expected, "{running} {hits}");
    }
    let mut moment = Moment::new();
    moment.world.fact("w", "main;busy", State::Run, 60).cpu_hits = 10;
    moment.world.fact("w", "main;idle", State::Sleep, 60);
    assert_eq!(moment.says(&at(Level::Mine)), "100 % of the CPU time is in busy");
    // Less than half a core counts only where threads mostly run.
    let mut moment = Moment::new();
    moment.world.fact("w", "main;busy", State::Run, 49).cpu_hits = 10;
    moment.world.fact("w", "main;idle", State::Sleep, 50);
    assert_eq!(moment.says(&at(Level::Mine)), "old-1 waits 20 s: lock");
}

#[test]
fn waits_are_no_cause_before_their_functions_have_names() {
    let mut world = World::new();
    world.fact("w", "late;inner", State::Lock, 300);
    let late = world.frames["late"];
    let mut says = |unnamed: bool, at_ns: Ns, naming: bool| {
        if unnamed {
            world.interner.set_named(late, Named::unnamed(late));
        }
        let mut snapshot = world.snapshot();
        (snapshot.at, snapshot.health.naming) = (at_ns, naming);
        let projection = world.project_with(&mut Projector::default(), &snapshot, &at(Level::All));
        let found = findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE);
        found.first().map(|finding| finding.text.clone()).unwrap_or_default()
    };
    let (young, old) = (3 * SECOND, 5 * SECOND);
    let waits = says(false, young, true);
    assert!(waits.starts_with("w waits"), "{waits}");
    assert_eq!(says(true, young, true), "naming ...");
    // They may never come.
    assert_eq!(says(true, old, true), waits);
    assert_eq!(says(true, young, false), waits);
}

#[test]
fn names_that_are_still_read_are_told_while_rows_lack_them() {
    for (unnamed, expected) in [(1, ""), (2, "naming ..."), (90, "naming ...")] {
        let mut moment = Moment::new();
        moment.threads.clear();
        moment.world.facts.clear();
        moment.world.fact("w", "main", State::Sleep, 100 - unnamed);
        // Its caller's name is read, its own is known.
        moment.world.fact("w", "late;inner", State::Sleep, unnamed);
        let late = moment.world.frames["late"];
        moment.world.interner.set_named(late, Named::unnamed(late));
        assert_eq!(moment.says(&at(Level::Mine)), "", "{unnamed}: all are named");
        moment.health.naming = true;
        assert_eq!(moment.says(&at(Level::Mine)), expected, "{unnamed}");
        // What is hot may get another name yet.
        moment.world.fact("w", "main", State::Run, 110).cpu_hits = 10;
        let hot = if unnamed < 4 { "100 % of the CPU time is in main" } else { "naming ..." };
        assert_eq!(moment.says(&at(Level::Mine)), hot, "{unnamed}");
    }
}
