//! Thread scans over the files of /proc: parked threads take turns, an uncertain stack is retried.

use super::*;

/// Ticks over a parked target, with a limit. Each returns its events and its reads.
pub struct FileScans {
    pub scan: ThreadScan,
    reader: StackReader,
    turns: usize,
    max_first_observations: usize,
}

impl FileScans {
    pub fn of(target: &Running, turns: usize) -> FileScans {
        let scan = ThreadScan::new(target.pid(), 10_000).expect("its threads");
        FileScans {
            scan,
            reader: StackReader::new(Memory::new(target.pid())),
            turns,
            max_first_observations: usize::MAX,
        }
    }

    fn without_clock(self) -> FileScans {
        FileScans { scan: self.scan.without_clock(), ..self }
    }

    pub fn next(
        &mut self,
        unwinder: &mut dyn sampletop::unwinder::Unwinder,
    ) -> (Vec<Event>, u64, Losses) {
        let (mut events, mut losses) = (Vec::new(), Losses::default());
        let before = self.scan.reads().counters;
        // A pause after each observation: the scan must complete all the same.
        loop {
            let mut context = ScanContext {
                stacks: Some(Stacks {
                    reader: &mut self.reader,
                    unwinder: &mut *unwinder,
                    labels: None,
                    reports: None,
                }),
                events: &mut events,
                moved: &mut Vec::new(),
                losses: &mut losses,
                stops_threads: false,
                turns: self.turns,
                max_first_observations: self.max_first_observations,
                pause_at: 0,
                denied: false,
            };
            if self.scan.scan_files(&mut context) {
                break;
            }
        }
        (events, self.scan.reads().counters - before, losses)
    }
}

/// A process of very many threads is taken in over several ticks, each of which has limits: for
/// first observations, for turns of waiting threads, and for the few that run.
#[test]
fn very_many_threads_are_added_over_several_ticks() {
    let program = build("cap_threads.c", "taken-in", &["-O1"]);
    let target = Running::start(&program, &["park", "2000"]);
    common::wait_until("all wait", || {
        thread_states(target.pid()).iter().filter(|(state, _)| *state == 'S').count() > 2000
    });
    let mut scans =
        FileScans { max_first_observations: 100, ..FileScans::of(&target, 50).without_clock() };
    let (mut seen, mut number) = (BTreeMap::new(), 0);
    while seen.len() < 2003 {
        let lists = scans.scan.reads().lists;
        let (events, counters, _) = scans.next(&mut TopOnly);
        number += 1;
        assert!(number <= 2003_usize.div_ceil(100), "{} seen", seen.len());
        assert_eq!(
            scans.scan.reads().lists - lists,
            u64::from(number == 1),
            "one listing is enough"
        );
        for observation in scan(&events) {
            seen.insert(observation.thread, matches!(observation.seen, Seen::Blocked(_)));
        }
        assert_eq!(scans.scan.not_read_yet(), 2003 - seen.len());
        // Each new thread is read twice, to validate its stack. All of the first 1,000 are read
        // again until they are parked.
        let known = if seen.len() <= 1_100 { seen.len() } else { 1_000 + 50 + 4 };
        assert!(counters as usize <= 2 * 100 + known, "{counters} reads in tick {number}");
    }
    assert!(
        number >= 20 && seen.values().filter(|waits| **waits).count() == 2001,
        "{number} ticks, {seen:?}"
    );
}

#[test]
fn parked_threads_are_observed_in_rotation_and_a_woken_one_at_once() {
    let program = build("cap_threads.c", "rotation", &["-O1"]);
    let mut target = Running::start(&program, &["wake", "200"]);
    wait_until_all_sleep(target.pid());
    let first = |(): &mut ()| {
        let mut scans = FileScans::of(&target, 20).without_clock();
        let mut seen = BTreeMap::new();
        for event in scans.next(&mut TopOnly).0 {
            if let Event::Observation(observation) = event {
                seen.insert(name(&observation), observation.thread);
            }
        }
        assert_eq!(seen.len(), 201, "200 and the leader");
        let reads = scans.next(&mut TopOnly).1;
        (scans, seen, reads)
    };
    let (mut scans, seen, reads) = in_time(&mut (), first, |()| {});
    assert_eq!(reads, 201, "not yet parked: each is read at every tick");
    std::thread::sleep(Duration::from_nanos(PARKED_AFTER));
    assert_eq!(scans.next(&mut TopOnly).1, 201, "the tick that parks them");
    for _ in 0..30 {
        let (events, reads, _) = scans.next(&mut TopOnly);
        assert_eq!((events, reads), (vec![], 20));
    }
    // A thread that is woken and waits again is noticed within a rotation of 11 ticks, once. So is
    // the leader that woke it.
    for woken in [7, 199] {
        let wake = |scans: &mut FileScans| {
            let before = Instant::now();
            ask(&mut target, &format!("{woken}\n"));
            let burned = next_number(&mut target);
            // It has answered; it waits again when it has lost its core.
            wait_until_all_sleep(target.pid());
            let mut found = Vec::new();
            for _ in 0..11 {
                found.extend(scans.next(&mut TopOnly).0);
            }
            let of = |who: &str| {
                scan(&found)
                    .filter(|observation| name(observation) == who)
                    .cloned()
                    .collect::<Vec<_>>()
            };
            let observation = of(&format!("park-{woken}"));
            assert_eq!(
                (observation.len(), of("cap_threads-rot").len(), scan(&found).count()),
                (1, 1, 2)
            );
            assert!(matches!(observation[0].seen, Seen::Blocked(_)));
            let ran = observation[0].counters.expect("read").run_ns;
            assert!(
                ran >= burned && ran < before.elapsed().as_nanos() as u64 + burned,
                "{ran} of {burned}"
            );
            scans.next(&mut TopOnly).1
        };
        let mut parks = 0;
        let park = |scans: &mut FileScans| {
            std::thread::sleep(Duration::from_nanos(RESTLESS));
            parks = scans.next(&mut TopOnly).1;
            assert_eq!(scans.next(&mut TopOnly).1, 20);
        };
        // A thread that has moved is read at every tick again: 199 remain in the rotation.
        assert_eq!((in_time(&mut scans, wake, park), parks), (22, 22));
    }
    // A sample proves that a thread has moved: it is read at the next tick, out of turn.
    let thread = seen["park-100"];
    assert_eq!(scans.scan.identify_sampled(thread.tid, 1).map(|(key, _)| key), Some(thread));
    assert_eq!(
        scans.next(&mut TopOnly).1,
        20,
        "a sample from before its last observation proves nothing"
    );
    let sampled = |scans: &mut FileScans| {
        scans.scan.identify_sampled(thread.tid, Ns::MAX);
        let (events, reads, _) = scans.next(&mut TopOnly);
        assert_eq!(
            (scan(&events).map(|observation| observation.thread).collect::<Vec<_>>(), reads),
            (vec![thread], 22),
            "twice, to be sure of its stack"
        );
        scans.scan.force_full_scan();
        (scans.next(&mut TopOnly).1, scans.next(&mut TopOnly).1)
    };
    assert_eq!(in_time(&mut scans, sampled, park_all), (201, 21));
}

#[test]
fn no_thread_is_read_while_the_process_clock_proves_a_wait() {
    let program = build("cap_threads.c", "standstill", &["-O1"]);
    let mut target = Running::start(&program, &["wake", "200"]);
    wait_until_all_sleep(target.pid());
    let mut scans = FileScans::of(&target, 50);
    scans.next(&mut TopOnly);
    park_all(&mut scans);
    // A rotation after the first reading of the clock.
    let reads: Vec<u64> = (0..6).map(|_| scans.next(&mut TopOnly).1).collect();
    assert_eq!(reads, [50, 50, 50, 50, 50, 0]);
    for _ in 0..30 {
        assert_eq!(scans.next(&mut TopOnly).1, 0);
    }
    let before = scans.scan.reads();
    for _ in 0..20 {
        scans.next(&mut TopOnly);
    }
    let after = scans.scan.reads();
    assert_eq!(
        (after.clocks - before.clocks, after.opens, after.stats),
        (4, before.opens, before.stats)
    );
    for woken in [3, 150] {
        ask(&mut target, &format!("{woken}\n"));
        next_number(&mut target);
        wait_until_all_sleep(target.pid());
        // The clock is read at every fifth tick, then once more. Then follows a rotation of five
        // ticks.
        let found: Vec<Event> = (0..11).flat_map(|_| scans.next(&mut TopOnly).0).collect();
        let mut names: Vec<String> = scan(&found).map(name).collect();
        names.sort();
        assert_eq!(names, ["cap_threads-sta".to_owned(), format!("park-{woken}")]);
        std::thread::sleep(Duration::from_nanos(RESTLESS));
        scans.next(&mut TopOnly);
        assert_eq!(scans.next(&mut TopOnly).1, 0, "all is as it was");
    }
}

/// Runs until every thread is parked and has had a turn.
fn park_all(scans: &mut FileScans) {
    std::thread::sleep(Duration::from_nanos(PARKED_AFTER));
    scans.scan.force_full_scan();
    scans.next(&mut TopOnly);
}

/// Ends this many walks as uncertain, then all as complete.
struct Doubts(usize);

impl sampletop::unwinder::Unwinder for Doubts {
    fn walk(
        &mut self,
        registers: &sampletop::unwinder::Registers,
        stack: sampletop::unwinder::StackBytes<'_>,
        out: &mut Vec<RawFrame>,
    ) -> sampletop::unwinder::Walk {
        let mut walk = TopOnly.walk(registers, stack, out);
        if self.0 > 0 {
            self.0 -= 1;
            walk.end = Some(Marker::OutsideMaps);
            out.push(RawFrame::marker(Marker::OutsideMaps));
        }
        walk
    }
}

#[test]
fn an_incomplete_walk_is_retried_a_few_times_and_counts_once() {
    let program = build("cap_threads.c", "doubt", &["-O1"]);
    let target = Running::start(&program, &["wake", "0"]);
    wait_until_all_sleep(target.pid());
    for (doubts, tried) in [(2, 3), (100, 6)] {
        let mut scans = FileScans::of(&target, usize::MAX);
        let mut unwinder = Doubts(doubts);
        let (mut samples, mut failed, mut stacks) = (0, 0, Vec::new());
        for _ in 0..12 {
            let (events, _, losses) = scans.next(&mut unwinder);
            samples += losses.samples;
            failed += losses.unwind_failed;
            stacks.extend(scan(&events).map(|observation| observation.stack.len()));
        }
        assert_eq!((samples, failed), (1, 1), "{stacks:?}");
        let expected: Vec<usize> = (0..tried).map(|n| if n < doubts { 2 } else { 1 }).collect();
        assert_eq!(stacks, expected, "{doubts} doubts");
    }
}
