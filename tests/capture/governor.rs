//! The governor on a live target, by counts: the tests set the cost of a scan, so that a busy
//! machine changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sampletop::capture::event_ring::Reader;
use sampletop::capture::governor::pace::Overhead;
use sampletop::capture::{Control, Plan};
use sampletop::config::CaptureChoice;
use sampletop::model::vocabulary::event::{Event, Seen};
use sampletop::model::vocabulary::frame::Ns;

use crate::common::{LIMIT, Running, build};
use crate::support::*;

const MS: Ns = 1_000_000;
const SECOND: Ns = 1_000 * MS;

/// Reads events until `done` returns true, and sets the cost of each tick.
fn pay(
    reader: &mut Reader,
    used: &AtomicU64,
    cost: Ns,
    mut done: impl FnMut(&[Event]) -> bool,
) -> Vec<Event> {
    let limit = Instant::now() + LIMIT;
    let mut events = Vec::new();
    while !done(&events) {
        assert!(Instant::now() < limit, "waited in vain; the last tick: {:?}", interval(&events));
        for event in reader.by_ref() {
            if let Event::Tick(_) = event {
                used.fetch_add(cost, Ordering::Relaxed);
            }
            events.push(event);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    events
}

/// Returns the interval of the last tick.
fn interval(events: &[Event]) -> Option<Ns> {
    events
        .iter()
        .rev()
        .find_map(|e| if let Event::Tick(tick) = e { Some(tick.interval_ns) } else { None })
}

#[test]
fn the_interval_is_stretched_while_ticks_cost_too_much() {
    let program = build("cap_threads.c", "pace", &["-O1"]);
    // Few threads, so that the real cost of scans is negligible on any machine.
    let target = Running::start(&program, &["park", "10"]);
    let used = Arc::new(AtomicU64::new(0));
    let overhead = Some(Overhead { percent: 20.0, reducer_ns: used.clone() });
    let (sampler, mut reader) =
        start_plan(target.pid(), Plan { overhead, ..plan(CaptureChoice::Perf, 10) });

    // A tick is made for five samples: 80 % of a core at 10 ms, 27 % at 30 ms, 16 % at 50 ms.
    let cost = 40 * MS;
    pay(&mut reader, &used, cost, |events| interval(events) == Some(50 * MS));
    let reported = sampler.status();
    assert_eq!(reported.interval_asked, 10 * MS);
    assert!(reported.notice.is_some_and(|notice| notice.contains("samples every 50ms, not 10ms")));

    // Ticks and the kernel's samples are stretched together.
    let spins = ["spin-0", "spin-1"];
    let (stolen_before, end) = (stolen(), Instant::now() + Duration::from_secs(4));
    let looked = |events: &[Event]| {
        spins
            .iter()
            .all(|who| scan(events).filter(|l| name(l) == *who && l.counters.is_some()).count() > 1)
    };
    let events = pay(&mut reader, &used, cost, |events| {
        Instant::now() >= end && ticks(events) > 40 && looked(events)
    });
    let stolen = stolen() - stolen_before;
    assert_eq!(interval(&events), Some(50 * MS));
    let times: Vec<Ns> =
        events.iter().filter(|event| matches!(event, Event::Tick(_))).map(time_of).collect();
    // Each tick interval is 250 ms, up to a tenth more or less. The standard deviation of the mean
    // of 40 is below 2.3 ms; the bound is over 5 standard deviations of uniform jitter.
    let mean = (times[times.len() - 1] - times[0]) / (times.len() as Ns - 1);
    assert!(mean >= 238 * MS, "{mean} ns from tick to tick");
    let ran = |who: &str| {
        let ran: Vec<Ns> = scan(&events)
            .filter(|l| name(l) == who)
            .filter_map(|l| Some(l.counters?.run_ns))
            .collect();
        ran[ran.len() - 1] - ran[0]
    };
    let samples = scan(&events).filter(|observation| observation.seen == Seen::OnCpu).count();
    assert_samples(samples, spins.into_iter().map(ran).sum(), 50e6 * 0.997, stolen, "at 50 ms");

    // Scans cost nothing now: the interval returns to the one asked for, without a message.
    pay(&mut reader, &used, 0, |events| interval(events) == Some(10 * MS));
    assert_eq!(sampler.status().notice, None);

    sampler.control(Control::Interval(Duration::from_millis(30)));
    pay(&mut reader, &used, 0, |events| interval(events) == Some(30 * MS));
    assert_eq!(sampler.status().interval_asked, 30 * MS);
}

/// Returns the visit interval of the last tick, ns.
fn visit_interval(events: &[Event]) -> Option<Ns> {
    events.iter().rev().find_map(|event| match event {
        Event::Tick(tick) => Some(tick.visit_interval_ns),
        _ => None,
    })?
}

/// Many threads wake up twenty times a second: visits of them are what costs. A scan of 1,000 takes
/// milliseconds. One of 200 took less than half a millisecond on a fast machine, which rarer visits
/// would hardly make shorter.
#[test]
fn visits_are_rationed_where_many_threads_wake_up() {
    const THREADS: usize = 1000;
    let program = build("cap_threads.c", "ration", &["-O1"]);
    let target = Running::start(&program, &["work", &THREADS.to_string(), "40"]);
    for choice in [CaptureChoice::Perf, CaptureChoice::Bpf] {
        if choice == CaptureChoice::Bpf && !crate::bpf::works() {
            continue;
        }
        let used = Arc::new(AtomicU64::new(0));
        let overhead = Some(Overhead { percent: 20.0, reducer_ns: used.clone() });
        let (sampler, mut reader) = start_plan(target.pid(), Plan { overhead, ..plan(choice, 10) });
        pay(&mut reader, &used, 40 * MS, |events| visit_interval(events) >= Some(500 * MS));
        assert!(sampler.status().notice.is_some_and(|notice| notice.contains("waits seen every")));

        // They stay rationed for ten seconds at least. Samples are as many as were asked for.
        let (stolen_before, end) = (stolen(), Instant::now() + Duration::from_secs(5));
        let events = pay(&mut reader, &used, 0, |_| Instant::now() >= end);
        let stolen = stolen() - stolen_before;
        assert_eq!(interval(&events), Some(10 * MS));
        let visit = visit_interval(&events).expect("visits are rationed");
        let mut counts: BTreeMap<u32, Vec<Ns>> = BTreeMap::new();
        for seen in scan(&events) {
            if let Some(counters) = seen.counters {
                counts.entry(seen.thread.tid).or_default().push(counters.run_ns);
            }
        }
        assert!(counts.len() >= THREADS, "each has a turn in {visit} ns: {}", counts.len());
        let visits: usize = counts.values().map(Vec::len).sum();
        let samples = scan(&events).filter(|seen| seen.seen == Seen::OnCpu).count();
        // In a hundred ticks; a sample, or a visit while a thread runs, is followed by another one.
        let most = 2 * (samples + THREADS * (5 * SECOND / visit + 1) as usize);
        assert!(visits <= most, "{visits} visits at {visit} ns, {samples} samples");
        let ran: Ns = counts.values().map(|runs| runs[runs.len() - 1] - runs[0]).sum();
        // The counters do not cover all of the time: of each thread the ends of it are missing.
        let covered = 1.0 - visit as f64 / 5e9;
        assert!(
            samples as f64 * 9.97e6 >= 0.8 * covered * ran as f64,
            "{samples} samples of {ran} ns, {stolen} ns stolen"
        );

        // Asked anew, each thread is seen again at once.
        sampler.control(Control::Interval(Duration::from_millis(10)));
        let tail = pay(&mut reader, &used, 0, |events| {
            visit_interval(events).is_none() && ticks(events) > 0
        });
        let is_complete =
            |event: &Event| matches!(event, Event::Tick(tick) if tick.visit_interval_ns.is_none());
        let till = tail.iter().position(is_complete).expect("it came");
        // One that was visited shortly before may not have run since.
        let shortly = events.last().map_or(0, time_of) - 200 * MS;
        let before = events.iter().rposition(|event| time_of(event) < shortly).unwrap_or(0);
        let seen: BTreeSet<u32> = scan(&events[before..])
            .chain(scan(&tail[..till]))
            .map(|seen| seen.thread.tid)
            .collect();
        assert!(seen.len() >= THREADS, "{} of {THREADS}", seen.len());
    }
}

#[test]
fn without_a_bound_the_interval_is_kept() {
    let program = build("cap_threads.c", "kept", &["-O1"]);
    let target = Running::start(&program, &["park", "3"]);
    let (_sampler, mut reader) = start(&target, CaptureChoice::Perf, 1);
    let events = read_for(&mut reader, Duration::from_secs(3));
    assert_eq!(interval(&events), Some(MS));
}
