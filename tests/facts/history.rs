//! Buckets over hours, memory, exited threads, marks, and their tables.

use std::collections::BTreeSet;

use sampletop::model::facts::recorder::{Limits, Recorder};
use sampletop::model::facts::tables::{FrameId, FrameKind, Location, Named, StackId};
use sampletop::model::projection::settings::Range;
use sampletop::model::vocabulary::event::{Event, Observation, Seen, Syscall, Tick};
use sampletop::model::vocabulary::frame::{FrameCode, Marker, RawFrame, RawName, ThreadKey};

use super::support::*;

/// Feeds a thread that burns half of every second and sleeps the other half, observed twice a
/// second.
fn half_busy(feed: &mut Feed, from_s: u64, till_s: u64) {
    for second in from_s..till_s {
        let (ms, n) = (second * 1_000, second + 1);
        feed.on_cpu(ms + 500, 1, 20);
        feed.blocked(ms + 1_000, 1, READ, 30, counters(n * 500, 0, n));
        // A second tick without an observation: unmoved since.
        feed.tick(ms + 1_000);
    }
}

#[test]
fn buckets_widen_with_age_and_lose_nothing() {
    let mut feed = Feed::new();
    half_busy(&mut feed, 0, 6_000);
    let view = feed.recorder.view();
    let width = |age_s: u64| {
        let at = view.at - age_s * SECOND;
        let (from, till) = view.history.read(Range::Rolling(1), at, &mut |_, _| {});
        ((till - from) / SECOND, (from - START) / SECOND % ((till - from) / SECOND))
    };
    assert_eq!(width(30), (1, 0));
    assert_eq!(width(590), (1, 0));
    assert_eq!(width(625), (10, 0));
    assert_eq!(width(4_190), (10, 0));
    assert_eq!(width(4_275), (60, 0));
    for range in [Range::Cumulative { since: None }, Range::Rolling(6_000 * SECOND)] {
        let (sums, from, till) = sums(&view, range, view.at);
        assert_eq!((from, till), (START, START + 6_000 * SECOND));
        let expected = [
            "t1 20 run wall=2999500 cpu=2999500 hits=6000/6000",
            "t1 30 io wall=3000000 cpu=0 hits=6000/0 longest=500@500",
        ];
        assert_eq!(rows_of(&sums), expected);
    }
    // Half an hour of it, 10 s buckets and 1 s ones.
    let (sums, from, till) = sums(&view, Range::Rolling(1_800 * SECOND), view.at);
    assert_eq!((till - from) / SECOND, 1_800);
    assert_eq!(rows_of(&sums)[0], "t1 20 run wall=900000 cpu=900000 hits=1800/1800");
}

#[test]
fn a_wait_of_hours_is_one_hit_in_any_window() {
    let mut feed = Feed::new();
    feed.blocked(700, 1, EPOLL, 30, counters(0, 0, 1));
    for second in 1..=9_000 {
        feed.tick(second * 1_000);
    }
    let view = feed.recorder.view();
    for age_s in [0, 30, 700, 3_000, 5_000, 8_999] {
        for window_s in [1, 100, 2_000, 9_000] {
            let at = view.at - age_s * SECOND;
            let (sums, from, till) = sums(&view, Range::Rolling(window_s * SECOND), at);
            let weights = sums.values().next().unwrap();
            assert_eq!((sums.len(), weights.hits), (1, 1), "{age_s} {window_s}");
            assert_eq!(weights.wall_ns, till - from.max(START + 700 * MS));
            assert_eq!(
                (weights.longest_ns, weights.longest_from),
                (till - START - 700 * MS, START + 700 * MS)
            );
        }
    }
}

#[test]
fn time_passes_while_nothing_is_booked() {
    let mut feed = Feed::new();
    feed.on_cpu(0, 1, 10);
    feed.ended(500, 1, None);
    feed.tick(1_500);
    feed.tick(2_400);
    let view = feed.recorder.view();
    let mut facts = 0;
    let second = view.history.read(Range::Rolling(1), START + 2_300 * MS, &mut |_, _| facts += 1);
    assert_eq!((second, facts), ((START + 2 * SECOND, START + 2_400 * MS), 0));
}

#[test]
fn facts_come_with_their_bucket() {
    let mut feed = Feed::new();
    half_busy(&mut feed, 0, 700);
    feed.tick(700_400);
    let view = feed.recorder.view();
    let range = Range::Rolling(650 * SECOND);
    let buckets = view.history.buckets(range, view.at);
    let mut run = vec![0; buckets.len()];
    let (from, till) = view.history.read_by_bucket(range, view.at, &mut |bucket, _, weights| {
        run[bucket] += weights.cpu_ns;
    });
    assert_eq!((buckets[0].0, buckets[buckets.len() - 1].1), (from, till));
    assert_eq!(till, START + 700_400 * MS, "no time of the future");
    assert!(buckets.windows(2).all(|pair| pair[0].1 == pair[1].0), "{buckets:?}");
    assert_eq!(buckets[0].1 - buckets[0].0, 10 * SECOND);
    let half: Vec<u64> = buckets.iter().map(|(start, end)| (end - start) / 2).collect();
    assert_eq!(run[..run.len() - 1], half[..half.len() - 1]);
    // The table of all time has no buckets.
    let all = Range::Cumulative { since: None };
    assert_eq!(view.history.buckets(all, view.at), []);
}

#[test]
fn everything_since_a_mark() {
    let mut feed = Feed::new();
    half_busy(&mut feed, 0, 100);
    let view = feed.recorder.view();
    let since = |ms: u64| sums(&view, Range::Cumulative { since: Some(START + ms * MS) }, view.at);
    let (marked, from, till) = since(40_700);
    // From the start of the second the mark is in.
    assert_eq!((from, till), (START + 40 * SECOND, view.at));
    assert_eq!(rows_of(&marked)[0], "t1 20 run wall=30000 cpu=30000 hits=60/60");
    let (all, from, _) = since(0);
    assert_eq!(
        (from, rows_of(&all)[0].as_str()),
        (START, "t1 20 run wall=49500 cpu=49500 hits=100/100")
    );
    let (nothing_yet, from, till) = since(200_000);
    assert_eq!((nothing_yet.len(), from, till), (0, view.at, view.at));
}

/// Feeds threads 1..=`threads` in one stack each, repeatedly, each alive for one second.
fn churn(recorder: &mut Recorder, from_s: u64, till_s: u64, threads: u32) {
    for second in from_s..till_s {
        let at = START + second * SECOND;
        for n in 0..threads {
            let thread = ThreadKey { pid: PID, tid: 100 + n, start: second };
            let observe = |at, counters| {
                Event::Observation(Observation {
                    counters,
                    stack: vec![code(u64::from(n)), code(1)],
                    ..Observation::new(at, thread, RawName::new(b"request"), Seen::OnCpu)
                })
            };
            recorder.apply(&observe(at, counters(0, 0, 1)));
            recorder.apply(&observe(at + 900 * MS, counters(900, 0, 1)));
            recorder.apply(&Event::ThreadEnded { at: at + 950 * MS, thread, counters: None });
        }
        recorder.apply(&Event::Tick(Tick::new(at + SECOND, PID)));
    }
}

#[test]
fn threads_dead_for_a_minute_merge_per_name() {
    let mut recorder = Recorder::new(START, Limits::default());
    churn(&mut recorder, 0, 30, 5);
    let distinct = |recorder: &mut Recorder, range| {
        let view = recorder.view();
        let (sums, ..) = sums(&view, range, view.at);
        let cpu: u64 = sums.values().map(|w| w.cpu_ns).sum();
        (sums.keys().map(|(thread, ..)| *thread).collect::<BTreeSet<_>>().len(), cpu / MS)
    };
    assert_eq!(distinct(&mut recorder, Range::Cumulative { since: None }), (150, 150 * 900));
    churn(&mut recorder, 30, 200, 5);
    // Threads of about the last minute are separate, all others are merged into one.
    let (threads, cpu) = distinct(&mut recorder, Range::Cumulative { since: None });
    assert!((60 * 5..65 * 5 + 1).contains(&threads), "{threads}");
    assert_eq!(cpu, 1_000 * 900);
    // For 10 minutes buckets keep each of them.
    assert_eq!(distinct(&mut recorder, Range::Rolling(200 * SECOND)), (1_000, 1_000 * 900));
    churn(&mut recorder, 200, 1_500, 1);
    let (threads, _) = distinct(&mut recorder, Range::Rolling(1_500 * SECOND));
    assert!((600..=620).contains(&threads), "{threads}");
}

#[test]
fn memory_is_bounded_and_the_oldest_goes_first() {
    let limits = Limits { history_bytes: 3 << 20, ..Limits::default() };
    let mut recorder = Recorder::new(START, limits);
    churn(&mut recorder, 0, 700, 300);
    let view = recorder.view();
    assert!(view.dropped_buckets > 0);
    assert!(recorder.history_bytes() <= limits.history_bytes, "{}", recorder.history_bytes());
    let (sums, from, till) = sums(&view, Range::Rolling(700 * SECOND), view.at);
    assert!(from > START && till == view.at);
    // The remaining part is complete: each second's 300 threads with their 900 ms.
    let cpu: u64 = sums.values().map(|w| w.cpu_ns).sum();
    assert_eq!(cpu, (till - from) / SECOND * 300 * 900 * MS);
    // The cumulative table loses nothing.
    let everything: u64 = all(&view).values().map(|w| w.cpu_ns).sum();
    assert_eq!(everything, 700 * 300 * 900 * MS);
}

#[test]
fn a_full_bucket_folds_its_smallest_stacks() {
    let limits = Limits { facts_per_bucket: 10, ..Limits::default() };
    let mut feed = Feed::with(limits);
    for n in 0..50u64 {
        feed.observe(n * 10, 1, Seen::OnCpu, 100 + n, counters(n * 10, 0, 1));
        feed.tick(n * 10);
    }
    // One stack differs from the others.
    feed.observe(900, 1, Seen::OnCpu, 7, counters(890, 0, 1));
    feed.ticks(900, 20_000);
    let view = feed.recorder.view();
    assert_eq!(view.folded_facts, 41);
    let (sums, ..) = sums(&view, Range::Rolling(1), START + 1);
    let rows = rows_of(&sums);
    assert_eq!(rows.len(), 10);
    assert!(rows.contains(&"t1 7 run wall=410 cpu=400 hits=1/1".to_string()), "{rows:?}");
    assert!(rows.contains(&"t1 (other) run wall=410 cpu=410 hits=42/42".to_string()), "{rows:?}");
}

fn named(function: &str) -> Named {
    let location = Location {
        function: function.into(),
        module: "libc.so.6".into(),
        file: None,
        line: None,
        kind: FrameKind::Native,
        tier: None,
    };
    Named::known(vec![location])
}

#[test]
fn stacks_are_a_prefix_tree_and_ids_never_change() {
    let mut feed = Feed::new();
    feed.on_cpu(0, 1, 10);
    let old = feed.recorder.view().tables;
    feed.on_cpu(1, 1, 11);
    feed.on_cpu(2, 1, 10);
    let new = feed.recorder.view().tables;
    assert_eq!(
        new.stack_count(),
        old.stack_count() + 1,
        "the root frame is shared, the known stack found again"
    );
    for id in 0..old.stack_count() as u32 {
        let id = StackId(id);
        assert_eq!((old.parent(id), old.top(id)), (new.parent(id), new.top(id)));
        assert!(new.parent(id) < id || id == StackId::EMPTY);
    }
    let leaf = StackId(new.stack_count() as u32 - 1);
    let frames: Vec<RawFrame> =
        new.frames_innermost_first(leaf).map(|frame| new.frame(frame)).collect();
    assert_eq!(frames, [code(11), code(1)]);
    // An id of newer tables in older ones: no panic, no stack.
    assert_eq!((old.parent(leaf), old.frames_innermost_first(leaf).count()), (StackId::EMPTY, 1));
}

#[test]
fn names_come_late_and_decide_what_a_futex_wait_was() {
    let mut feed = Feed::new();
    let lock = [code(3), code(2), code(1)];
    let thread = thread(1);
    feed.recorder.apply(&Event::Observation(Observation {
        counters: counters(0, 0, 1),
        stack: lock.to_vec(),
        ..Observation::new(
            START,
            thread,
            RawName::new(b"t1"),
            Seen::Blocked(Syscall { number: FUTEX, args: [0; 6] }),
        )
    }));
    feed.ticks(0, 100);
    assert_eq!(feed.rows(), ["t1 3 wait wall=100 cpu=0 hits=1/0 longest=100@0"]);
    let before = feed.recorder.view();
    let mut unnamed = feed.recorder.take_unnamed();
    unnamed.sort_unstable();
    assert_eq!(unnamed, [code(1), code(2), code(3)]);
    assert_eq!(feed.recorder.take_unnamed(), []);

    let frame = before.tables.top(before.threads[0].stack);
    assert!(before.tables.named(frame).pending);
    feed.recorder.set_named(code(2), named("__pthread_mutex_lock"));
    feed.recorder.set_named(code(77), named("never seen"));
    feed.recorder.set_named(code(3), Named::known(vec![]));
    // The past gets the name too; a view taken before keeps its state.
    assert_eq!(feed.rows(), ["t1 3 lock wall=100 cpu=0 hits=1/0 longest=100@0"]);
    assert_eq!(rows(&before), ["t1 3 wait wall=100 cpu=0 hits=1/0 longest=100@0"]);
    // A frame further in overrides; a new stack gets its kind at once.
    feed.recorder.set_named(code(3), named("clock_nanosleep"));
    assert_eq!(feed.rows(), ["t1 3 sleep wall=100 cpu=0 hits=1/0 longest=100@0"]);
    feed.blocked(110, 2, FUTEX, 3, counters(0, 0, 1));
    assert_eq!(feed.rows()[1], "t2 3 sleep wall=0 cpu=0 hits=1/0");
}

#[test]
fn markers_have_their_names() {
    let mut feed = Feed::new();
    feed.recorder.apply(&Event::Observation(Observation {
        stack: vec![
            RawFrame::marker(Marker::Torn),
            RawFrame::marker_in(
                Marker::NoUnwindInfo,
                sampletop::model::vocabulary::frame::FileId(5),
            ),
        ],
        ..Observation::new(START, thread(1), RawName::new(b"t1"), Seen::OnCpu)
    }));
    // Only the frame that lacks its file's name is requested.
    let unnamed = feed.recorder.take_unnamed();
    assert_eq!(unnamed.len(), 1);
    assert!(matches!(unnamed[0].decode(), FrameCode::Marker { file: Some(_), .. }));
    let tables = feed.recorder.view().tables;
    let torn = (0..tables.frame_count() as u32)
        .map(FrameId)
        .find(|id| tables.frame(*id) == RawFrame::marker(Marker::Torn))
        .unwrap();
    let location = &tables.named(torn).locations[0];
    assert_eq!(
        (&*location.function, location.kind, tables.named(torn).pending),
        ("[torn]", FrameKind::Marker, false)
    );
}

#[test]
fn names_are_bounded() {
    let mut feed = Feed::with(Limits { stacks: 64, ..Limits::default() });
    for n in 0..20 {
        feed.on_cpu(n, 1, 100 + n);
    }
    let long = "x".repeat(4_096);
    for n in 0..20 {
        feed.recorder.set_named(code(100 + n), named(&long));
        feed.recorder.set_named(code(100 + n), named(&long));
    }
    let tables = feed.recorder.view().tables;
    let frames: Vec<_> =
        (0..tables.frame_count() as u32).map(|id| tables.named(FrameId(id))).collect();
    // 64 frames of 128 bytes on average: one of 4 KiB beside the short ones. The others are named
    // by their offset.
    let count =
        |name: &str| frames.iter().filter(|named| &*named.locations[0].function == name).count();
    assert_eq!((count(&long), count("0x76")), (1, 1));
    assert!(
        frames.iter().all(|named| !named.pending || &*named.locations[0].function == "0x1"),
        "nothing is waited for"
    );
}

#[test]
fn tables_are_bounded() {
    let mut feed = Feed::with(Limits { stacks: 64, ..Limits::default() });
    for n in 0..200 {
        feed.on_cpu(n, 1, 100 + n);
    }
    feed.observe(200, 1, Seen::OnCpu, 100, counters(0, 0, 1));
    feed.tick(200);
    let view = feed.recorder.view();
    assert!(view.tables.stack_count() <= 64);
    assert!(view.folded_facts > 100);
    let wall: u64 = all(&view).values().map(|w| w.wall_ns).sum();
    assert_eq!(wall, 200 * MS);
    // Known entries are still found, the rest is `(other)`.
    let rows = rows(&view);
    assert!(
        rows.iter().any(|row| row.starts_with("t1 100 run"))
            && rows.iter().any(|row| row.starts_with("t1 (other) run"))
    );
}

#[test]
fn a_wait_is_a_hit_in_each_part_of_history() {
    // Long enough for buckets to be sealed.
    const PART: u64 = 20_000;
    let mut feed = Feed::new();
    feed.blocked(10, 1, EPOLL, 30, counters(0, 0, 1));
    feed.recorder.set_named(code(30), Named::known([Location::named("wait", FrameKind::Native)]));
    feed.on_cpu(20, 2, 20);
    feed.ticks(10, PART);
    assert_eq!(feed.recorder.take_unnamed().len(), 3, "20, 30 and their root are asked for");
    for part in 1..4 {
        feed.recorder.restart();
        feed.ticks(part * PART, part * PART + PART);
        let rows = feed.rows();
        assert!(
            rows.contains(&format!(
                "t1 30 poll wall={PART} cpu=0 hits=1/0 longest={}@10",
                part * PART + PART - 10
            )),
            "{rows:?}"
        );
        let view = feed.recorder.view();
        let known =
            &view.threads.iter().find(|now| now.thread == thread(1)).expect("it waits still");
        let top = view.tables.named(view.tables.top(known.stack));
        assert_eq!(&*top.locations[0].function, "wait", "it keeps its name");
        assert_eq!(view.tables.name(known.name).as_ref(), "t1");
        assert_eq!(feed.recorder.take_unnamed(), [], "nothing is asked again that is carried");
    }
    // Buckets without a thread are dropped.
    feed.ended(4 * PART + 5, 1, None);
    feed.ended(4 * PART + 5, 2, None);
    feed.tick(4 * PART + 10);
    feed.recorder.restart();
    let view = feed.recorder.view();
    assert_eq!(
        (view.tables.stack_count(), view.tables.frame_count()),
        (8, 7),
        "the empty stack and the markers"
    );
}
