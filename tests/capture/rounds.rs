//! Thread scans over the files of /proc: parked threads take turns, an uncertain stack is retried.

use super::*;

/// Ticks over a parked target, with a limit. Each returns its events and its reads.
pub struct Rounds {
    pub scan: ThreadScan,
    reader: StackReader,
    turns: usize,
    first_most: usize,
}

impl Rounds {
    pub fn of(target: &Running, turns: usize) -> Rounds {
        let scan = ThreadScan::new(target.pid(), 10_000).expect("its threads");
        Rounds {
            scan,
            reader: StackReader::new(Memory::new(target.pid())),
            turns,
            first_most: usize::MAX,
        }
    }

    fn without_clock(self) -> Rounds {
        Rounds { scan: self.scan.without_clock(), ..self }
    }

    pub fn next(
        &mut self,
        unwinder: &mut dyn sampletop::unwinder::Unwinder,
    ) -> (Vec<Event>, u64, Losses) {
        let (mut events, mut losses) = (Vec::new(), Losses::default());
        let before = self.scan.reads().counters;
        // A pause after each observation: the scan must complete all the same.
        loop {
            let mut round = Round {
                stacks: Some(Stacks {
                    reader: &mut self.reader,
                    unwinder: &mut *unwinder,
                    reports: None,
                }),
                events: &mut events,
                moved: &mut Vec::new(),
                losses: &mut losses,
                stops_threads: false,
                turns: self.turns,
                first_most: self.first_most,
                pause_at: 0,
                denied: false,
            };
            if self.scan.round(&mut round) {
                break;
            }
        }
        (events, self.scan.reads().counters - before, losses)
    }
}

/// A process of very many threads is taken in over several ticks, each of which has limits: for
/// first observations, for turns of waiting threads, and for the few that run.
#[test]
fn very_many_threads_are_taken_in_over_rounds() {
    let program = build("cap_threads.c", "taken-in", &["-O1"]);
    let target = Running::start(&program, &["park", "2000"]);
    common::wait_until("all wait", || {
        thread_states(target.pid()).iter().filter(|(state, _)| *state == 'S').count() > 2000
    });
    let mut rounds = Rounds { first_most: 100, ..Rounds::of(&target, 50).without_clock() };
    let (mut seen, mut number) = (BTreeMap::new(), 0);
    while seen.len() < 2003 {
        let lists = rounds.scan.reads().lists;
        let (events, counters, _) = rounds.next(&mut TopOnly);
        number += 1;
        assert!(number <= 2003_usize.div_ceil(100), "{} seen", seen.len());
        assert_eq!(
            rounds.scan.reads().lists - lists,
            u64::from(number == 1),
            "one listing is enough"
        );
        for observation in scan(&events) {
            seen.insert(observation.thread, matches!(observation.seen, Seen::Blocked(_)));
        }
        assert_eq!(rounds.scan.not_read_yet(), 2003 - seen.len());
        // Each new thread is read twice, to validate its stack. All of the first 1,000 are read
        // again until they are parked.
        let known = if seen.len() <= 1_100 { seen.len() } else { 1_000 + 50 + 4 };
        assert!(counters as usize <= 2 * 100 + known, "{counters} reads in round {number}");
    }
    assert!(
        number >= 20 && seen.values().filter(|waits| **waits).count() == 2001,
        "{number} rounds, {seen:?}"
    );
}

#[test]
fn parked_threads_are_looked_at_in_rotation_and_a_woken_one_at_once() {
    let program = build("cap_threads.c", "rotation", &["-O1"]);
    let mut target = Running::start(&program, &["wake", "200"]);
    wait_until_all_sleep(target.pid());
    let first = |(): &mut ()| {
        let mut rounds = Rounds::of(&target, 20).without_clock();
        let mut seen = BTreeMap::new();
        for event in rounds.next(&mut TopOnly).0 {
            if let Event::Observation(observation) = event {
                seen.insert(name(&observation), observation.thread);
            }
        }
        assert_eq!(seen.len(), 201, "200 and the leader");
        let reads = rounds.next(&mut TopOnly).1;
        (rounds, seen, reads)
    };
    let (mut rounds, seen, reads) = in_time(&mut (), first, |()| {});
    assert_eq!(reads, 201, "not yet parked: each is read in every round");
    std::thread::sleep(Duration::from_nanos(PARKED_AFTER));
    assert_eq!(rounds.next(&mut TopOnly).1, 201, "the round that parks them");
    for _ in 0..30 {
        let (events, reads, _) = rounds.next(&mut TopOnly);
        assert_eq!((events, reads), (vec![], 20));
    }
    // A thread that is woken and waits again is noticed within a rotation of 11 ticks, once. So is
    // the leader that woke it.
    for woken in [7, 199] {
        let wake = |rounds: &mut Rounds| {
            let before = Instant::now();
            ask(&mut target, &format!("{woken}\n"));
            let burned = next_number(&mut target);
            // It has answered; it waits again when it has lost its core.
            wait_until_all_sleep(target.pid());
            let mut found = Vec::new();
            for _ in 0..11 {
                found.extend(rounds.next(&mut TopOnly).0);
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
            rounds.next(&mut TopOnly).1
        };
        let mut parks = 0;
        let park = |rounds: &mut Rounds| {
            std::thread::sleep(Duration::from_nanos(RESTLESS));
            parks = rounds.next(&mut TopOnly).1;
            assert_eq!(rounds.next(&mut TopOnly).1, 20);
        };
        // A thread that has moved is read at every tick again: 199 remain in the rotation.
        assert_eq!((in_time(&mut rounds, wake, park), parks), (22, 22));
    }
    // A sample proves that a thread has moved: it is read at the next tick, out of turn.
    let thread = seen["park-100"];
    assert_eq!(rounds.scan.sampled(thread.tid, 1).map(|(key, _)| key), Some(thread));
    assert_eq!(
        rounds.next(&mut TopOnly).1,
        20,
        "a sample from before its last look proves nothing"
    );
    let sampled = |rounds: &mut Rounds| {
        rounds.scan.sampled(thread.tid, Ns::MAX);
        let (events, reads, _) = rounds.next(&mut TopOnly);
        assert_eq!(
            (scan(&events).map(|observation| observation.thread).collect::<Vec<_>>(), reads),
            (vec![thread], 22),
            "twice, to be sure of its stack"
        );
        rounds.scan.force_full_scan();
        (rounds.next(&mut TopOnly).1, rounds.next(&mut TopOnly).1)
    };
    assert_eq!(in_time(&mut rounds, sampled, park_all), (201, 21));
}

#[test]
fn where_the_clock_of_the_process_tells_that_nobody_has_run_nobody_is_looked_at() {
    let program = build("cap_threads.c", "standstill", &["-O1"]);
    let mut target = Running::start(&program, &["wake", "200"]);
    wait_until_all_sleep(target.pid());
    let mut rounds = Rounds::of(&target, 50);
    rounds.next(&mut TopOnly);
    park_all(&mut rounds);
    // A rotation after the first reading of the clock.
    let reads: Vec<u64> = (0..6).map(|_| rounds.next(&mut TopOnly).1).collect();
    assert_eq!(reads, [50, 50, 50, 50, 50, 0]);
    for _ in 0..30 {
        assert_eq!(rounds.next(&mut TopOnly).1, 0);
    }
    let before = rounds.scan.reads();
    for _ in 0..20 {
        rounds.next(&mut TopOnly);
    }
    let after = rounds.scan.reads();
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
        let found: Vec<Event> = (0..11).flat_map(|_| rounds.next(&mut TopOnly).0).collect();
        let mut names: Vec<String> = scan(&found).map(name).collect();
        names.sort();
        assert_eq!(names, ["cap_threads-sta".to_owned(), format!("park-{woken}")]);
        std::thread::sleep(Duration::from_nanos(RESTLESS));
        rounds.next(&mut TopOnly);
        assert_eq!(rounds.next(&mut TopOnly).1, 0, "all is as it was");
    }
}

/// Runs until every thread is parked and has had a turn.
fn park_all(rounds: &mut Rounds) {
    std::thread::sleep(Duration::from_nanos(PARKED_AFTER));
    rounds.scan.force_full_scan();
    rounds.next(&mut TopOnly);
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
fn a_stack_in_doubt_is_tried_again_a_few_times_and_counts_once() {
    let program = build("cap_threads.c", "doubt", &["-O1"]);
    let target = Running::start(&program, &["wake", "0"]);
    wait_until_all_sleep(target.pid());
    for (doubts, tried) in [(2, 3), (100, 6)] {
        let mut rounds = Rounds::of(&target, usize::MAX);
        let mut unwinder = Doubts(doubts);
        let (mut samples, mut failed, mut stacks) = (0, 0, Vec::new());
        for _ in 0..12 {
            let (events, _, losses) = rounds.next(&mut unwinder);
            samples += losses.samples;
            failed += losses.unwind_failed;
            stacks.extend(scan(&events).map(|observation| observation.stack.len()));
        }
        assert_eq!((samples, failed), (1, 1), "{stacks:?}");
        let expected: Vec<usize> = (0..tried).map(|n| if n < doubts { 2 } else { 1 }).collect();
        assert_eq!(stacks, expected, "{doubts} doubts");
    }
}
