//! The backend `bpf`: its cost and its reports, beyond what `perf` guarantees too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sampletop::capture::bpf::rows::{Row, What};
use sampletop::capture::bpf::{Bpf, Counts, Repeats, Single, Visit, VisitMethod, explain};
use sampletop::capture::stack_reader::StackReader;
use sampletop::capture::thread_scan::parked_rotation::{self, PARKED_AFTER, RESTLESS};
use sampletop::capture::thread_scan::{ScanContext, Stacks, ThreadScan};
use sampletop::config::CaptureChoice;
use sampletop::model::vocabulary::event::{Event, Losses, Observation, Seen};
use sampletop::model::vocabulary::frame::{Ns, ThreadKey};
use sampletop::process::memory::Memory;
use sampletop::process::threads::Reads;

use crate::common::{Running, build, skipped, wait_until, wait_until_all_sleep};
use crate::support::*;

/// Returns whether BPF is available here. If not, the test is skipped, which fails under CI=true.
pub fn works() -> bool {
    match Bpf::open() {
        Ok(_) => true,
        Err(refusal) => {
            let (why, fix) = explain(&refusal);
            skipped(
                std::thread::current().name().unwrap_or("a test"),
                &format!("no BPF: {why}; {fix}; {refusal:?}"),
            );
            false
        }
    }
}

/// Thread scans by the iterator.
pub struct Passes {
    bpf: Bpf,
    pub scan: ThreadScan,
    reader: StackReader,
    pid: u32,
    /// Visits of parked threads per tick.
    turns: usize,
    losses: Losses,
}

/// Events and costs of one thread scan.
pub struct Pass {
    events: Vec<Event>,
    rows: usize,
    calls: u64,
    visited: u32,
}

impl Passes {
    pub fn over(pid: u32, turns: usize) -> Passes {
        Passes::by(Bpf::open().expect("it works"), pid, turns)
    }

    fn by(mut bpf: Bpf, pid: u32, turns: usize) -> Passes {
        bpf.add(pid).expect("a process");
        let scan = ThreadScan::new(pid, 1000).expect("its threads");
        Passes {
            bpf,
            scan,
            reader: StackReader::new(Memory::new(pid)),
            pid,
            turns,
            losses: Losses::default(),
        }
    }

    pub fn next(&mut self) -> Pass {
        let (mut events, mut moved, mut rows) = (Vec::new(), Vec::new(), 0);
        let before = self.bpf.counts().calls;
        loop {
            let visit = self.scan.next_visit(self.turns, self.bpf.visit_method());
            self.bpf.begin(self.pid, visit).expect("a pass");
            let mut context = ScanContext {
                stacks: Some(Stacks {
                    reader: &mut self.reader,
                    unwinder: &mut TopOnly,
                    labels: None,
                    reports: None,
                }),
                events: &mut events,
                moved: &mut moved,
                losses: &mut self.losses,
                stops_threads: false,
                turns: self.turns,
                max_first_observations: usize::MAX,
                pause_at: Ns::MAX,
                denied: false,
            };
            while self.bpf.read().expect("rows") {
                for (row, copied) in self.bpf.rows() {
                    rows += 1;
                    self.scan.take_row(&row, copied, &mut context);
                }
            }
            if self.scan.needs_another_pass(self.bpf.thread_count()) {
                continue;
            }
            let clock = self.scan.needs_process_clock().then(|| self.scan.tasks().clock());
            self.scan.end_pass(self.bpf.missed(), clock, &mut context);
            let Counts { calls, visited } = self.bpf.counts();
            return Pass { events, rows, calls: calls - before, visited };
        }
    }
}

/// Returns the reads of files of /proc.
fn of_files(scan: &ThreadScan) -> Reads {
    Reads { clocks: 0, ..scan.reads() }
}

#[test]
fn no_thread_is_visited_while_the_process_clock_proves_a_wait() {
    if !works() {
        return;
    }
    let program = build("cap_threads.c", "bpf-still", &["-O1"]);
    let mut target = Running::start(&program, &["wake", "200"]);
    wait_until_all_sleep(target.pid());
    let mut passes = Passes::over(target.pid(), 50);
    let park = |passes: &mut Passes| {
        std::thread::sleep(Duration::from_nanos(RESTLESS));
        passes.next();
    };
    passes.next();
    park(&mut passes);
    // The first reading of the clock, then as many visits as there are threads.
    let visited: u32 = (0..6).map(|_| passes.next().visited).sum();
    assert!((201..=300).contains(&visited), "{visited}");
    for _ in 0..20 {
        let pass = passes.next();
        assert_eq!((pass.events.len(), pass.visited, pass.calls), (0, 0, 0));
    }
    for woken in [3, 150] {
        ask(&mut target, &format!("{woken}\n"));
        next_number(&mut target);
        wait_until_all_sleep(target.pid());
        // The clock is read at every fifth tick, then once more. Then all threads are visited,
        // since their last visit is too long ago.
        let found: Vec<Event> = (0..7).flat_map(|_| passes.next().events).collect();
        let mut names: Vec<String> = scan(&found).map(name).collect();
        names.sort();
        assert_eq!(names, ["cap_threads-bpf".to_owned(), format!("park-{woken}")]);
        park(&mut passes);
        assert_eq!(passes.next().visited, 0, "all is as it was");
    }
}

#[test]
fn an_unmoved_thread_costs_no_row_and_no_read() {
    if !works() {
        return;
    }
    let program = build("cap_threads.c", "bpf-park", &["-O1"]);
    let target = Running::start(&program, &["park", "200"]);
    wait_until_all_sleep(target.pid());
    let mut passes = Passes::over(target.pid(), usize::MAX);
    let first = passes.next();
    assert_eq!(
        (first.events.len(), first.rows, first.visited),
        (203, 203, 203),
        "every thread is reported once"
    );
    assert_eq!(
        first.calls, 5,
        "an iterator and its end, 136 rows a read, and one that finds the end"
    );
    // A thread that was read while it went to sleep is reported a second time.
    passes.next();
    let before = of_files(&passes.scan);
    for _ in 0..20 {
        passes.scan.force_full_scan();
        let pass = passes.next();
        assert_eq!((pass.rows, pass.calls, pass.visited), (2, 4, 203));
        let names: Vec<String> = scan(&pass.events).map(name).collect();
        assert!(names.len() == 2 && names.iter().all(|n| n.starts_with("spin-")), "{names:?}");
    }
    assert_eq!(of_files(&passes.scan), before, "no file of any thread was read");
    let parked = scan(&first.events)
        .find(|observation| name(observation) == "park-7")
        .expect("it was seen")
        .thread;
    // An observation that never reached the reducer is sent again, once.
    passes.scan.mark_undelivered(parked.tid);
    let again =
        |pass: &Pass| scan(&pass.events).filter(|observation| observation.thread == parked).count();
    let pass = passes.next();
    assert_eq!((again(&pass), pass.rows), (1, 3));
    assert_eq!(again(&passes.next()), 0);
    // More than can be named in a list: all rows come, and the rows that are not needed yield no
    // event.
    for _ in 0..2_000 {
        passes.scan.mark_undelivered(parked.tid);
    }
    let pass = passes.next();
    assert_eq!((again(&pass), pass.rows, pass.events.len()), (1, 203, 3));
    // After an exec, or after a change of backend, every thread is reported.
    passes.scan.restart();
    assert_eq!(passes.next().events.len(), 203);
    assert_eq!(passes.next().rows, 2);
    assert_eq!((passes.losses.torn, passes.losses.late), (0, 0));
    // The start times are those of /proc: they identify a thread.
    let stat = std::fs::read_to_string(format!("/proc/{}/task/{}/stat", target.pid(), parked.tid))
        .expect("it lives");
    let start =
        stat.rsplit_once(") ").expect("a name").1.split(' ').nth(19).expect("field 22").parse();
    assert_eq!(Ok(parked.start), start);
}

/// Single threads are visited by a list if the kernel can do that, else by an iterator for each.
#[test]
fn single_threads_are_visited_by_the_best_method_of_this_kernel() {
    if !works() {
        return;
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().expect("a number"), numbers.next().expect("another"));
    let method = Bpf::open().expect("it works").visit_method();
    assert_eq!(
        method,
        if version >= (6, 2) { VisitMethod::Listed } else { VisitMethod::Each },
        "{release}"
    );
    assert_eq!(Bpf::open_without_lists().expect("it works").visit_method(), VisitMethod::Each);
}

#[test]
fn parked_threads_are_visited_in_rotation_and_a_woken_one_at_once() {
    if works() {
        rotation("bpf-turn", || Bpf::open().expect("it works"));
    }
}

#[test]
fn parked_threads_are_visited_in_rotation_by_single_iterators() {
    if works() {
        rotation("bpf-each", || Bpf::open_without_lists().expect("it works"));
    }
}

/// Returns whether `calls` are the calls of lists: one for each. The iterator that is read on for
/// each list sometimes ends. Then it is closed and another one is opened.
fn of_lists(calls: u64, lists: u64) -> bool {
    (0..=3).contains(&calls.wrapping_sub(lists))
}

fn rotation(name_of_test: &str, open: impl Fn() -> Bpf) {
    let program = build("cap_threads.c", name_of_test, &["-O1"]);
    let listed = open().visit_method() == VisitMethod::Listed;
    // Such a pass reports exactly `threads` threads. Parked ones that are due, now or one tick
    // earlier, come by a list, the others by an iterator each.
    let alone = |pass: (usize, u32, u64), threads: u32| {
        let parked = pass.1.wrapping_sub(threads);
        if listed {
            [50, 100].contains(&parked) && of_lists(pass.2, 1)
        } else {
            parked == 0 && pass.2 == 3 * u64::from(threads)
        }
    };
    // A pass over all threads, none of them parked: four lists, or one iterator.
    let visits_all = |pass: (usize, u32, u64)| {
        pass.0 == 0 && pass.1 == 501 && if listed { of_lists(pass.2, 4) } else { pass.2 == 3 }
    };
    let mut target = Running::start(&program, &["wake", "500"]);
    wait_until_all_sleep(target.pid());
    let silent = |pass: Pass| (pass.events.len(), pass.visited, pass.calls);
    let first = |(): &mut ()| {
        // The turns of 100 Hz.
        let mut passes = Passes::by(open(), target.pid(), parked_rotation::turns(10_000_000));
        passes.scan = ThreadScan::new(target.pid(), 1000).expect("its threads").without_clock();
        let first = passes.next();
        let seen: BTreeMap<String, ThreadKey> = scan(&first.events)
            .map(|observation| (name(observation), observation.thread))
            .collect();
        assert_eq!(seen.len(), 501, "500 and the leader");
        let second = silent(passes.next());
        (passes, seen, second)
    };
    let (mut passes, seen, second) = in_time(&mut (), first, |()| {});
    assert!(visits_all(second), "not parked yet: {second:?}");
    std::thread::sleep(Duration::from_nanos(PARKED_AFTER));
    assert!(visits_all(silent(passes.next())), "the pass that parks them");
    let before = of_files(&passes.scan);
    if listed {
        for _ in 0..12 {
            assert_eq!(silent(passes.next()), (0, 0, 0));
            let (events, visited, calls) = silent(passes.next());
            assert_eq!(
                (events, visited),
                (0, 100),
                "50 at each tick, as many at a time as fit into one list"
            );
            assert!(of_lists(calls, 1), "{calls}");
        }
    } else {
        for _ in 0..3 {
            for _ in 0..10 {
                assert_eq!(silent(passes.next()), (0, 0, 0));
            }
            assert_eq!(silent(passes.next()), (0, 501, 3), "50 at each of 11 ticks make 501");
        }
    }
    // Happens once a second, at gaps and at the end.
    passes.scan.force_full_scan();
    assert_eq!(silent(passes.next()), (0, 501, 3));
    assert_eq!(of_files(&passes.scan), before, "no file of any thread was read");
    // A thread that is woken and waits again is noticed within a rotation, once. So is the leader
    // that woke it.
    for woken in [7, 499] {
        let wake = |passes: &mut Passes| {
            ask(&mut target, &format!("{woken}\n"));
            let burned = next_number(&mut target);
            wait_until_all_sleep(target.pid());
            let mut found = Vec::new();
            for _ in 0..12 {
                found.extend(passes.next().events);
            }
            let of = |who: &str| {
                scan(&found)
                    .filter(|observation| name(observation) == who)
                    .cloned()
                    .collect::<Vec<_>>()
            };
            let observation = of(&format!("park-{woken}"));
            assert_eq!(
                (observation.len(), of("cap_threads-bpf").len(), scan(&found).count()),
                (1, 1, 2)
            );
            assert!(
                matches!(observation[0].seen, Seen::Blocked(_))
                    && observation[0].counters.expect("read").run_ns >= burned
            );
            passes.scan.force_full_scan();
            passes.next();
            (0..9).map(|_| silent(passes.next())).collect::<Vec<_>>()
        };
        let park = |passes: &mut Passes| {
            // They were woken soon after they were parked.
            std::thread::sleep(Duration::from_nanos(RESTLESS));
            passes.next();
            assert_eq!(
                silent(passes.next()).1 % if listed { 50 } else { 501 },
                0,
                "both are parked again"
            );
        };
        // Threads that have moved are visited at every tick: an iterator, its rows, its end.
        let visits = in_time(&mut passes, wake, park);
        assert!(visits.iter().all(|pass| pass.0 == 0 && alone(*pass, 2)), "{visits:?}");
    }
    // A sample proves that a thread has moved: it is visited at the next tick, out of turn.
    passes.scan.force_full_scan();
    passes.next();
    let thread = seen["park-100"];
    assert_eq!(passes.scan.identify_sampled(thread.tid, 1).map(|(key, _)| key), Some(thread));
    assert_eq!(
        silent(passes.next()),
        (0, 0, 0),
        "a sample from before its last observation proves nothing"
    );
    let lost = seen["park-300"];
    let sampled = |passes: &mut Passes| {
        passes.scan.identify_sampled(thread.tid, Ns::MAX);
        let pass = passes.next();
        assert!(
            scan(&pass.events).map(|observation| observation.thread).eq([thread]),
            "{:?}",
            pass.events
        );
        assert!(alone(silent(pass), 1));
        // The same holds for an observation that was lost.
        let silently = silent(passes.next());
        passes.scan.mark_undelivered(lost.tid);
        let pass = passes.next();
        assert!(
            scan(&pass.events).map(|observation| observation.thread).eq([lost]),
            "{:?}",
            pass.events
        );
        (silently, silent(pass), silent(passes.next()))
    };
    let park = |passes: &mut Passes| {
        // Both are parked again, and their turn has passed.
        std::thread::sleep(Duration::from_nanos(RESTLESS));
        passes.scan.force_full_scan();
        passes.next();
    };
    let (silently, found, last) = in_time(&mut passes, sampled, park);
    assert!(silently.0 == 0 && alone(silently, 1), "{silently:?}");
    assert!(found.0 == 1 && alone(found, 2), "{found:?}");
    assert!(last.0 == 0 && alone(last, 2), "and not again: {last:?}");
}

#[test]
fn who_is_born_or_dies_is_noticed_at_once() {
    if !works() {
        return;
    }
    // Without a visit, the directory of threads tells it.
    born_or_dies("bpf-born", |pid| (Passes::over(pid, 1), 0));
    // With visits, the kernel does.
    born_or_dies("bpf-born-listed", |pid| {
        let mut passes = Passes::over(pid, 200);
        passes.scan = ThreadScan::new(pid, 1000).expect("its threads").without_clock();
        (passes, 101)
    });
}

/// `open` returns passes, and how many of the parked threads each visits.
fn born_or_dies(name_of_program: &str, open: impl Fn(u32) -> (Passes, u32)) {
    let program = build("cap_threads.c", name_of_program, &["-O1"]);
    let mut target = Running::start(&program, &["grow", "100"]);
    wait_until_all_sleep(target.pid());
    let (mut passes, visited) = open(target.pid());
    passes.next();
    std::thread::sleep(Duration::from_nanos(PARKED_AFTER));
    passes.next();
    assert_eq!(passes.next().visited, visited, "all are parked");
    ask(&mut target, "born\n");
    assert_eq!(next_number(&mut target), 1);
    wait_until_all_sleep(target.pid());
    let pass = passes.next();
    let born = scan(&pass.events)
        .find(|observation| name(observation) == "park-100")
        .expect("it is reported")
        .thread;
    ask(&mut target, "dies\n");
    assert_eq!(next_number(&mut target), 2);
    // pthread_join may return before the thread has left /proc.
    let place = format!("/proc/{}/task/{}", target.pid(), born.tid);
    wait_until("it is exited", || !std::path::Path::new(&place).exists());
    let ended =
        |event: &Event| matches!(event, Event::ThreadEnded { thread, .. } if *thread == born);
    assert_eq!(passes.next().events.into_iter().filter(ended).count(), 1);
}

/// The number of threads comes with each list, so the sampler reads no file to find a new thread
/// that sleeps. The scan of all threads, once a second, would be in time for each of them with
/// probability 0.2, for all with 3e-4.
#[test]
fn who_is_born_beside_a_running_thread_is_told_at_the_next_tick() {
    if !works() {
        return;
    }
    let program = build("cap_threads.c", "bpf-born-beside", &["-O1"]);
    let mut target = Running::start(&program, &["grow", "3", "spin"]);
    let (_sampler, mut reader) = start(&target, CaptureChoice::Bpf, 10);
    read_for(&mut reader, Duration::from_secs(2));
    let mut known = BTreeSet::new();
    for _ in 0..5 {
        // Nothing has changed for some ticks.
        read_for(&mut reader, Duration::from_millis(300));
        ask(&mut target, "born\n");
        assert_eq!(next_number(&mut target), 1);
        let mut events = Vec::new();
        let is_born = |observation: &&Observation| {
            name(observation) == "park-3" && !known.contains(&observation.thread)
        };
        read_until(&mut reader, &mut events, |events| scan(events).any(|seen| is_born(&seen)));
        let born = scan(&events).find(is_born).expect("it was read").thread;
        let at = events.iter().position(
            |event| matches!(event, Event::Observation(observation) if observation.thread == born),
        );
        // Ticks since it was asked for: a late one counts once.
        let later = ticks(&events[..at.expect("it was read")]);
        assert!(later <= 3, "{later} ticks");
        known.insert(born);
        ask(&mut target, "dies\n");
        assert_eq!(next_number(&mut target), 2);
    }
}

/// An unchanged number of threads proves nothing: a thread that is visited by id and not found has
/// exited.
#[test]
fn who_takes_anothers_place_is_noticed_in_turn() {
    if !works() {
        return;
    }
    let program = build("cap_threads.c", "bpf-place", &["-O1"]);
    for bpf in [Bpf::open(), Bpf::open_without_lists()] {
        let mut target = Running::start(&program, &["grow", "20"]);
        let mut change = |what: &str, answer| {
            ask(&mut target, what);
            assert_eq!(next_number(&mut target), answer);
            wait_until_all_sleep(target.pid());
            target.pid()
        };
        let pid = change("born\n", 1);
        let mut passes = Passes::by(bpf.expect("it works"), pid, 1);
        let last = |pass: &Pass| {
            scan(&pass.events)
                .filter(|observation| name(observation) == "park-20")
                .map(|observation| observation.thread)
                .last()
        };
        let first = last(&passes.next()).expect("it is reported");
        change("dies\n", 2);
        let exited = format!("/proc/{pid}/task/{}", first.tid);
        wait_until("it is exited", || !std::path::Path::new(&exited).exists());
        change("born\n", 1);
        let (mut ended, mut second) = (0, None);
        // A rotation of 22 threads, and the events that follow from it.
        for _ in 0..25 {
            let pass = passes.next();
            let is_first = |event: &&Event| matches!(event, Event::ThreadEnded { thread, .. } if *thread == first);
            ended += pass.events.iter().filter(is_first).count();
            second = last(&pass).or(second);
        }
        assert_eq!(ended, 1);
        assert!(second.is_some_and(|second| second != first), "{second:?}");
    }
}

/// Returns all rows of a pass, with the bytes of their stacks.
pub fn rows_of(bpf: &mut Bpf, pid: u32, visit: Visit) -> Vec<(Row, Vec<u8>)> {
    bpf.begin(pid, visit).expect("a pass");
    let mut rows = Vec::new();
    while bpf.read().expect("rows") {
        rows.extend(bpf.rows().map(|(row, copied)| (row, copied.stack.to_vec())));
    }
    rows
}

/// A thread yields the same row however it is visited. A list may exceed [`MAX_LISTED`].
#[test]
fn all_ways_to_visit_a_thread_tell_the_same() {
    if !works() {
        return;
    }
    const THREADS: usize = 301;
    let program = build("cap_threads.c", "bpf-same", &["-O1"]);
    let target = Running::start(&program, &["wake", "300"]);
    let pid = target.pid();
    wait_until_all_sleep(pid);
    let mut bpf = Bpf::open().expect("it works");
    bpf.add(pid).expect("a process");
    // The clock that `left_core` is converted with is known as well as the reader was put on its
    // core shortly before a pass. This one does not sleep between them.
    let without_time = |rows: Vec<(Row, Vec<u8>)>| {
        let rows = rows.into_iter().map(|(row, stack)| {
            let What::Blocked(mut blocked) = row.what else { panic!("all are parked: {row:?}") };
            assert_eq!((stack.is_empty(), stack.len()), (false, blocked.stack_bytes));
            blocked.slot = 0;
            (row.tid, (Row { at: 0, left_core: 0, what: What::Blocked(blocked), ..row }, stack))
        });
        let rows: BTreeMap<u32, (Row, Vec<u8>)> = rows.collect();
        assert_eq!(rows.len(), THREADS);
        rows
    };
    let again = Repeats { all: true, tids: vec![] };
    let all = without_time(rows_of(&mut bpf, pid, Visit { only: None, again: again.clone() }));
    let threads: Vec<Single> =
        all.values().map(|(row, _)| Single { tid: row.tid, id: row.id }).collect();
    let by_name = Visit {
        only: Some(threads.clone()),
        again: Repeats {
            all: false,
            tids: threads.iter().rev().map(|thread| thread.tid).collect(),
        },
    };
    let mut each = Bpf::open_without_lists().expect("it works");
    each.add(pid).expect("a process");
    assert!(without_time(rows_of(&mut each, pid, Visit { only: None, again })) == all);
    assert_eq!(bpf.thread_count(), None, "it counts those of a list");
    for bpf in [&mut bpf, &mut each] {
        let before = bpf.counts().calls;
        assert!(without_time(rows_of(bpf, pid, by_name.clone())) == all);
        let Counts { calls, visited } = bpf.counts();
        assert_eq!(visited, THREADS as u32);
        let calls = calls - before;
        if bpf.visit_method() == VisitMethod::Listed {
            assert!(of_lists(calls, 3), "{calls}");
            assert_eq!(bpf.thread_count(), Some(THREADS as u32));
        } else {
            assert_eq!(calls, 3 * THREADS as u64);
            assert_eq!(bpf.thread_count(), None);
        }
        let silent =
            rows_of(bpf, pid, Visit { only: Some(threads.clone()), again: Repeats::default() });
        assert_eq!((silent.len(), bpf.counts().visited), (0, THREADS as u32));
        // Some of them, in several pieces of the list.
        let some = [threads[300].tid, threads[5].tid, threads[200].tid];
        let again = Repeats { all: false, tids: some.to_vec() };
        let rows = rows_of(bpf, pid, Visit { only: Some(threads.clone()), again });
        let reported: std::collections::BTreeSet<u32> =
            rows.iter().map(|(row, _)| row.tid).collect();
        assert!(rows.len() == 3 && reported == some.into(), "{reported:?}");
    }
}

/// The program's own clock says when it went to sleep.
#[test]
fn a_wait_begins_when_the_thread_left_its_core() {
    if !works() {
        return;
    }
    let program = build("sleeps.c", "began", &["-O1"]);
    for burn in [1, 20] {
        let mut target = Running::start(&program, &[&burn.to_string()]);
        let (_sampler, mut reader) = start(&target, CaptureChoice::Bpf, 10);
        let events = read_for(&mut reader, Duration::from_secs(5));
        let began: BTreeSet<Ns> = scan(&events).filter_map(|seen| seen.wait_began).collect();
        target.child.kill().expect("it runs");
        let lines = target.lines.by_ref().map(|line| line.expect("text"));
        let slept: Vec<Ns> = lines.map(|line| line.parse().expect("a time")).collect();
        let error = |began: &Ns| {
            let slept = slept.iter().min_by_key(|slept| slept.abs_diff(*began))?;
            Some(*began as i64 - *slept as i64)
        };
        let mut errors: Vec<i64> = began.iter().filter_map(error).collect();
        errors.sort_unstable();
        assert!(errors.len() >= 10, "{} waits", errors.len());
        // Run time lacks what the hypervisor took, so some waits begin too early.
        assert!(errors[errors.len() / 4] >= -200_000, "{errors:?}");
        // Another thread may have the core between the program's clock and its sleep, but mostly
        // has not.
        assert!(errors[errors.len() / 2] < 1_000_000, "{errors:?}");
    }
}
