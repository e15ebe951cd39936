//! Properties of the log of spans: what the threads did in order.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sampletop::model::facts::history::FactKey;
use sampletop::model::facts::recorder::{Limits, Recorder, View};
use sampletop::model::projection::settings::Range;
use sampletop::model::vocabulary::event::{Event, Seen};
use sampletop::model::vocabulary::frame::{Ns, ThreadKey};

use super::simulator::{Run, world};
use super::support::*;

fn record(run: &Run) -> View {
    record_since(run, usize::MAX).0
}

/// Starts a new history after a number of ticks. Returns it, and when it starts.
fn record_since(run: &Run, ticks: usize) -> (View, Ns) {
    let mut recorder = Recorder::new(START, Limits::default());
    let (mut nth, mut started) = (0, START);
    for event in &run.events {
        match event {
            Some(event) => recorder.apply(event),
            None => drop(recorder.view()),
        }
        if let Some(Event::Tick(tick)) = event {
            nth += 1;
            if nth == ticks {
                recorder.restart();
                started = tick.at;
            }
        }
    }
    recorder.close(START + run.end);
    (recorder.view(), started)
}

/// Returns wall and CPU time of each key in the spans of a range.
fn of_spans(view: &View, from: Ns, till: Ns) -> BTreeMap<FactKey, (Ns, Ns)> {
    let mut sums = BTreeMap::<_, (Ns, Ns)>::new();
    view.history.spans().read(from, till, &mut |span, weights| {
        let sum = sums.entry(span.key).or_default();
        *sum = (sum.0 + weights.wall_ns, sum.1 + weights.cpu_ns);
    });
    sums.retain(|_, sum| *sum != (0, 0));
    sums
}

/// Returns the time for which each thread was observed within a range.
fn observed(run: &Run, from: Ns, till: Ns) -> BTreeMap<ThreadKey, Ns> {
    let mut walls = BTreeMap::new();
    for (thread, first, end) in &run.lives {
        let (first, end) = ((START + first).max(from), (START + end).min(till));
        if first < end {
            *walls.entry(*thread).or_default() += end - first;
        }
    }
    walls
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// In any range each thread's time is that for which it was observed there; and so it is where
    /// the history is read.
    #[test]
    fn a_range_has_the_observed_time(
        world in world(10 * MS, 300, 2 * SECOND, false),
        losses in any::<bool>(),
        cuts in prop::collection::vec((0u64..=1_000, 0u64..=1_000), 4),
    ) {
        let run = world.run(losses);
        let view = record(&run);
        for (from, length) in cuts {
            let from = START + run.end * from / 1_000 + 1;
            let till = from + length * run.end / 4_000 + 1;
            let mut walls = BTreeMap::new();
            for (key, (wall, _)) in of_spans(&view, from, till) {
                if !key.is_of_unobserved() {
                    *walls.entry(key.thread).or_default() += wall;
                }
            }
            walls.retain(|_, wall| *wall > 0);
            prop_assert_eq!(&walls, &observed(&run, from, till));
            let range = Range::Between { from, till };
            if let Some(exact) = view.history.exact(range) {
                let mut read = BTreeMap::new();
                let span = view.history.read(range, view.at, &mut |key, weights| {
                    if !key.is_of_unobserved() {
                        *read.entry(key.thread).or_default() += weights.wall_ns;
                    }
                });
                read.retain(|_, wall| *wall > 0);
                prop_assert_eq!((span, &read), (exact, &walls));
                prop_assert_eq!(view.history.buckets(range, view.at), [span]);
            }
        }
    }

    /// So it is after a restart, though some of the time was booked later; and all CPU time that
    /// was booked since is in the spans.
    #[test]
    fn a_new_history_has_the_time_since_its_start(
        world in world(10 * MS, 300, 2 * SECOND, false),
        losses in any::<bool>(),
        ticks in 1usize..200,
    ) {
        let run = world.run(losses);
        let (view, started) = record_since(&run, ticks);
        let till = START + run.end;
        let spans = of_spans(&view, started, till);
        let mut walls = BTreeMap::new();
        for (key, (wall, _)) in spans.iter().filter(|(key, _)| !key.is_of_unobserved()) {
            *walls.entry(key.thread).or_default() += wall;
        }
        walls.retain(|_, wall| *wall > 0);
        prop_assert_eq!(&walls, &observed(&run, started, till));
        let mut cpu: BTreeMap<FactKey, Ns> = BTreeMap::new();
        view.history.read(Range::Rolling(Ns::MAX), view.at, &mut |key, weights| {
            *cpu.entry(*key).or_default() += weights.cpu_ns;
        });
        cpu.retain(|_, cpu| *cpu > 0);
        let of_spans = spans.into_iter().map(|(key, (_, cpu))| (key, cpu));
        prop_assert_eq!(of_spans.filter(|(_, cpu)| *cpu > 0).collect::<BTreeMap<_, _>>(), cpu);
    }

    /// Over whole seconds the spans have what the buckets have.
    #[test]
    fn whole_seconds_are_as_the_buckets_have_them(
        world in world(10 * MS, 300, 2 * SECOND, false),
        losses in any::<bool>(),
    ) {
        let run = world.run(losses);
        let view = record(&run);
        for (from, till) in view.history.buckets(Range::Rolling(Ns::MAX), view.at) {
            let mut sums = BTreeMap::<_, (Ns, Ns)>::new();
            view.history.read(Range::Between { from, till }, view.at, &mut |key, weights| {
                let sum = sums.entry(*key).or_default();
                *sum = (sum.0 + weights.wall_ns, sum.1 + weights.cpu_ns);
            });
            sums.retain(|_, sum| *sum != (0, 0));
            prop_assert_eq!(of_spans(&view, from, till), sums);
        }
    }
}

#[test]
fn fifty_milliseconds_are_read_exactly() {
    let mut feed = Feed::new();
    // It computes for 20 ms, then waits for 30 ms, and again; with counters at each tick.
    for round in 0..40 {
        let (at, ran, runs) = (round * 50, round * 20, round + 1);
        feed.observe(at + 10, 1, Seen::OnCpu, 7, counters(ran + 10, 0, runs));
        feed.tick(at + 10);
        feed.observe(at + 20, 1, Seen::OnCpu, 7, counters(ran + 20, 0, runs));
        feed.tick(at + 20);
        for wait in [30, 40, 50] {
            feed.blocked(at + wait, 1, READ, 8, counters(ran + 20, 0, runs));
            feed.tick(at + wait);
        }
    }
    feed.close(2_000);
    let view = feed.recorder.view();
    let rows = |from: u64, till: u64| {
        let at = |ms| START + ms * MS;
        let range = Range::Between { from: at(from), till: at(till) };
        let (sums, from, till) = sums(&view, range, view.at);
        (rows_of(&sums), (from - START) / MS, (till - START) / MS)
    };
    let run = |ms| format!("t1 7 run wall={ms} cpu={ms} hits={}/{}", ms / 10, ms / 10);
    let wait = |ms: u64, longest: u64, from: u64| {
        format!("t1 8 io wall={ms} cpu=0 hits=1/0 longest={longest}@{from}")
    };
    assert_eq!(rows(200, 250), (vec![run(20), wait(30, 30, 220)], 200, 250));
    assert_eq!(rows(210, 230), (vec![run(10), wait(10, 10, 220)], 210, 230));
    // A wait that began before is a hit, too.
    assert_eq!(rows(1_230, 1_240), (vec![wait(10, 20, 1_220)], 1_230, 1_240));
    // Across the edge of a second.
    assert_eq!(rows(990, 1_010), (vec![run(10), wait(10, 30, 970)], 990, 1_010));
    // Whole seconds are read from the buckets.
    let (sums, ..) = rows(0, 1_000);
    assert_eq!(sums.len(), 2);
    assert!(view.history.exact(Range::Between { from: START, till: START + SECOND }).is_none());
}

/// Returns the rows of a part of history, ms.
fn rows_between(feed: &mut Feed, from: u64, till: u64) -> Vec<String> {
    let view = feed.recorder.view();
    let range = Range::Between { from: START + from * MS, till: START + till * MS };
    rows_of(&sums(&view, range, view.at).0)
}

#[test]
fn samples_stand_where_they_were_taken() {
    let mut feed = Feed::new();
    feed.running(1_000, 1, counters(0, 0, 1));
    feed.tick(1_000);
    for at in [1_100, 1_500, 1_900] {
        feed.on_cpu(at, 1, 7);
        feed.ticks(at - 100, at);
    }
    feed.ticks(1_900, 2_000);
    for from in [1_050, 1_450, 1_850] {
        let rows = rows_between(&mut feed, from, from + 100);
        assert_eq!(rows, ["t1 7 run wall=0 cpu=0 hits=1/1"], "{from}");
    }
    assert_eq!(rows_between(&mut feed, 1_150, 1_450), [""; 0]);
}

#[test]
fn each_of_two_waits_in_a_row_has_its_length() {
    let mut feed = Feed::new();
    // Without counters each observation is of another wait.
    for at in [10, 40, 50] {
        feed.blocked(at, 1, READ, 8, None);
        feed.tick(at);
    }
    let row = |wall, longest, from| {
        [format!("t1 8 io wall={wall} cpu=0 hits=1/0 longest={longest}@{from}")]
    };
    assert_eq!(rows_between(&mut feed, 15, 25), row(10, 15, 10));
    assert_eq!(rows_between(&mut feed, 42, 46), row(4, 6, 40));
}

#[test]
fn what_is_older_than_the_log_is_read_by_seconds() {
    let mut feed = Feed::with(Limits { history_bytes: 1_000_000, ..Limits::default() });
    for tick in 1..=8_000 {
        let at = tick * 10;
        // In another stack at each tick.
        feed.observe(at, 1, Seen::OnCpu, tick, counters(at, 0, 1));
        feed.tick(at);
    }
    let view = feed.recorder.view();
    assert!(feed.recorder.history_bytes() <= 1_000_000);
    let spans = view.history.spans();
    assert!(spans.dropped() > 0 && spans.from() > START);
    let read = |from: Ns| {
        let range = Range::Between { from, till: from + 50 * MS };
        view.history.read(range, view.at, &mut |_, _| {})
    };
    let kept = (spans.from() / SECOND + 1) * SECOND + 320 * MS;
    assert_eq!(read(kept), (kept, kept + 50 * MS));
    // Of the time before only seconds are kept, or nothing.
    let before = spans.from() - 2 * SECOND;
    let (from, till) = read(before);
    assert!((from, till) == (before, before + 50 * MS) || till - from >= SECOND);
    assert_eq!(view.history.exact(Range::Between { from: before, till: before + MS }), None);
}
