//! Merges recordings of an invented program on several hosts; all sums must stay the same.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::model::facts::recorder::Recorder;
use crate::model::facts::tables::Location;
use crate::model::projection::settings::Range;
use crate::model::vocabulary::event::{Counters, Event, Losses, Observation, Seen, Syscall, Tick};
use crate::model::vocabulary::frame::RawName;
use crate::model::vocabulary::peer::{Peer, PeerProcess};
use crate::model::vocabulary::waits_for::WaitsFor;
use crate::model::vocabulary::wakeup::{self, Cost, Pair, Waker, Wakeups, Woken};

const MS: u64 = 1_000_000;
/// 2026-01-02T03:04:05Z.
const DATE: i128 = 1_767_323_045 * SECOND as i128;
const ALL: Range = Range::Cumulative { since: None };

/// One recording.
#[derive(Clone, Debug)]
struct Run {
    host: usize,
    pid: u32,
    /// Start: ms after [`DATE`], and on the host's own clock.
    began: u64,
    clock: u64,
    /// Steps: ms since the last one, thread, index into [`CALLS`], stack.
    steps: Vec<(u64, u32, usize, u64)>,
    interval_ms: u64,
}

const CALLS: [Option<i32>; 4] = [None, Some(202), Some(0), Some(35)];

fn recorded(run: &Run) -> Snapshot {
    recorded_with(run, Limits::default())
}

fn recorded_with(run: &Run, limits: Limits) -> Snapshot {
    let started = run.clock * MS;
    let mut recorder = Recorder::new(started, limits);
    let mut at = started;
    let mut ran = [0; 8];
    for (after, tid, what, stack) in &run.steps {
        at += after * MS;
        ran[*tid as usize] += after * MS / 2;
        let code =
            |offset| RawFrame::new(FrameCode::Code { file: FileId(1), offset, exact: false });
        let seen = match CALLS[*what] {
            None => Seen::OnCpu,
            Some(number) => Seen::Blocked(Syscall { number, args: [0; 6] }),
        };
        let counters = Counters { run_ns: ran[*tid as usize], delay_ns: 0, runs: 1 };
        recorder.apply(&Event::Observation(Observation {
            counters: Some(counters),
            stack: vec![code(*stack), code(100 + stack % 2), code(1)],
            ..Observation::new(
                at,
                ThreadKey { pid: run.pid, tid: *tid, start: 7 },
                RawName::new(format!("t{}", tid % 3).as_bytes()),
                seen,
            )
        }));
        let losses = Losses { samples: 1 + at / SECOND, dropped: 3, ..Losses::default() };
        let tick = Tick { interval_ns: run.interval_ms * MS, losses, ..Tick::new(at, run.pid) };
        recorder.apply(&Event::Tick(tick));
    }
    let view = recorder.view();
    let session = Session {
        version: "0".into(),
        host: format!("node{}", run.host),
        kernel: "6".into(),
        cores_milli: 2000,
        started,
        started_unix_ns: DATE + i128::from(run.began * MS),
        interval_ns: run.interval_ms * MS,
        max_overhead_percent: None,
        wanted: Wanted::default(),
    };
    let target = Target {
        pid: run.pid,
        start: 7,
        command: "app".into(),
        runtime: "native",
        uid: 0,
        unit: None,
        started_unix_ns: DATE,
        ended: None,
    };
    Snapshot {
        session: session.into(),
        targets: [target].into(),
        at: view.at,
        capture: "bpf".into(),
        health: Health { ticks: view.ticks, losses: view.losses, ..Health::default() },
        tables: view.tables,
        history: view.history,
        threads: view.threads,
        deadlocks: Arc::default(),
        observed_waits: Arc::default(),
        wakeups: None,
        notice: None,
        stopped: false,
    }
}

fn merged_within(snapshots: &[&Snapshot], limits: Limits) -> (Snapshot, Vec<String>) {
    let mut merger = Merger::new(limits);
    for snapshot in snapshots {
        merger.add(snapshot).expect("they fit");
    }
    merger.finish().expect("there is one")
}

fn merged(snapshots: &[&Snapshot]) -> Snapshot {
    merged_within(snapshots, Limits::default()).0
}

/// By thread (without its pid, which may be replaced), its name, names of frames, and state.
type Sums = BTreeMap<(u32, String, String, String), Weights>;

fn sums_of(snapshot: &Snapshot, range: Range, sums: &mut Sums) -> (Ns, Ns) {
    let tables = &snapshot.tables;
    snapshot.history.read(range, snapshot.at, &mut |key, weights| {
        let frames = tables.frames_innermost_first(key.stack);
        let frames: Vec<&str> =
            frames.map(|frame| &*tables.named(frame).locations[0].function).collect();
        let state = tables.state(key.state, key.stack).word();
        let key =
            (key.thread.tid, tables.name(key.name).to_string(), frames.join(";"), state.to_owned());
        // Start times are compared elsewhere: of equally long waits in two profiles either may be
        // kept.
        sums.entry(key).or_default().add(&Weights { longest_from: 0, ..*weights });
    })
}

fn sums(snapshots: &[&Snapshot], range: Range) -> Sums {
    let mut sums = Sums::new();
    for snapshot in snapshots {
        sums_of(snapshot, range, &mut sums);
    }
    sums
}

fn threads(snapshot: &Snapshot) -> BTreeSet<ThreadKey> {
    let mut threads = BTreeSet::new();
    snapshot.history.read(ALL, snapshot.at, &mut |key, _| {
        threads.insert(key.thread);
    });
    threads
}

fn run() -> impl Strategy<Value = Run> {
    // Up to 90 s between two observations, so that some histories have wider buckets.
    let step =
        (prop_oneof![4 => 1u64..400, 1 => 400u64..90_000], 1u32..6, 0..CALLS.len(), 10u64..14);
    (0usize..3, 1u32..3, 0u64..200_000, 0u64..5_000, prop::collection::vec(step, 1..60), 5u64..20)
        .prop_map(|(host, pid, began, clock, steps, interval_ms)| Run {
            host,
            pid,
            began,
            clock,
            steps,
            interval_ms,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn one_profile_stays_what_it_is(run in run(), window in 1u64..200) {
        let one = recorded(&run);
        let merged = merged(&[&one]);
        for range in [ALL, Range::Rolling(window * SECOND), Range::Rolling(100_000 * SECOND)] {
            prop_assert_eq!(sums(&[&merged], range), sums(&[&one], range), "{:?}", range);
        }
        let (mut nothing, mut too) = (Sums::new(), Sums::new());
        let (from, till) = sums_of(&merged, ALL, &mut nothing);
        let (from_before, till_before) = sums_of(&one, ALL, &mut too);
        prop_assert_eq!(till - from, till_before - from_before);
        let unix = |snapshot: &Snapshot, at: Ns| snapshot.session.started_unix_ns + i128::from(at) - i128::from(snapshot.session.started);
        prop_assert_eq!(unix(&merged, from), unix(&one, from_before));
        prop_assert_eq!(threads(&merged), threads(&one));
        prop_assert_eq!(merged.health.losses, one.health.losses);
        prop_assert_eq!(&merged.targets, &one.targets);
    }

    #[test]
    fn sums_add_up_in_any_order(runs in prop::collection::vec(run(), 2..5)) {
        let all: Vec<Snapshot> = runs.iter().map(recorded).collect();
        let forward: Vec<&Snapshot> = all.iter().collect();
        let backward: Vec<&Snapshot> = all.iter().rev().collect();
        let (one, other) = (merged(&forward), merged(&backward));
        let expected = sums(&forward, ALL);
        prop_assert_eq!(&sums(&[&one], ALL), &expected);
        prop_assert_eq!(&sums(&[&other], ALL), &expected);
        // No bucket is old enough to be dropped, so the buckets hold everything too.
        let parts = |snapshots: &[&Snapshot]| sums(snapshots, Range::Rolling(1 << 59));
        if all.iter().all(|snapshot| snapshot.history.oldest() == snapshot.history.span().0) {
            prop_assert_eq!(&parts(&[&one]), &parts(&forward));
            prop_assert_eq!(&parts(&[&other]), &parts(&forward));
        }
        // Processes of different hosts are kept apart.
        let distinct: BTreeSet<(usize, ThreadKey)> =
            runs.iter().zip(&all).flat_map(|(run, one)| threads(one).into_iter().map(|thread| (run.host, thread))).collect();
        prop_assert_eq!(threads(&one).len(), distinct.len());
        let hosts: BTreeSet<(usize, u32)> = runs.iter().map(|run| (run.host, run.pid)).collect();
        prop_assert_eq!(one.targets.len(), hosts.len());
        // Covers all recordings on the wall clock, to half a second.
        let began = runs.iter().map(|run| run.began).min().unwrap_or(0);
        let off = one.session.started_unix_ns - (DATE + i128::from(began * MS));
        prop_assert!(off.abs() <= i128::from(SECOND / 2), "{}", off);
        let ticks = |snapshots: &[&Snapshot]| -> u64 { snapshots.iter().map(|snapshot| snapshot.health.ticks).sum() };
        prop_assert_eq!(one.health.ticks, ticks(&forward));
    }

    #[test]
    fn memory_is_bounded_and_totals_are_not_touched(runs in prop::collection::vec(run(), 2..4)) {
        let all: Vec<Snapshot> = runs.iter().map(recorded).collect();
        let all: Vec<&Snapshot> = all.iter().collect();
        let limits = Limits { history_bytes: 40_000, facts_per_bucket: 4, cumulative_facts: 8, stacks: 16 };
        let (small, _) = merged_within(&all, limits);
        let total = |sums: Sums| sums.values().fold((0, 0, 0), |sum, w| (sum.0 + w.wall_ns, sum.1 + w.cpu_ns, sum.2 + w.hits));
        prop_assert_eq!(total(sums(&[&small], ALL)), total(sums(&all, ALL)));
        let bytes: usize = small.history.sealed().iter().map(|bucket| bucket.bytes()).sum();
        prop_assert!(bytes <= limits.history_bytes, "{} bytes", bytes);
        prop_assert!(small.tables.stack_count() <= 16);
    }
}

fn plain(host: usize, began: u64) -> Run {
    let steps = (0..40).map(|nth| (50, 1 + nth % 2, (nth % 2) as usize, 10)).collect();
    Run { host, pid: 7, began, clock: 0, steps, interval_ms: 10 }
}

#[test]
fn what_does_not_match_is_told() {
    let (here, mut there) =
        (recorded(&plain(1, 0)), recorded(&Run { interval_ms: 20, ..plain(2, 0) }));
    there.capture = "perf".into();
    let (both, notes) = merged_within(&[&here, &there], Limits::default());
    let expected = [
        "merged of 2 profiles",
        "intervals of 10 to 20 ms",
        "2 hosts: node1, node2",
        "2 ways of capture: bpf, perf",
        "processes with one number on several hosts: 7 of node2 is 4194305",
    ];
    assert_eq!(notes, expected);
    let commands: Vec<(u32, &str)> =
        both.targets.iter().map(|target| (target.pid, &*target.command)).collect();
    assert_eq!(commands, [(7, "app on node1"), (4194305, "app on node2")]);
    assert_eq!((&*both.session.host, both.session.cores_milli), ("node1, node2", 4000));
    assert_eq!(both.resolution(), 20 * MS);
    assert!(merged_within(&[&here], Limits::default()).1.is_empty());
}

#[test]
fn waits_and_wakers_of_several_profiles_are_put_together() {
    let with = |run: &Run, cost, interrupts| {
        let snapshot = recorded(run);
        let now = *snapshot.threads.first().expect("a thread");
        let processes = vec![PeerProcess { name: "db".into(), pid: 812 }];
        let wait = ObservedWait {
            thread: now.thread,
            stack: now.stack,
            call: Syscall { number: 45, args: [3; 6] },
            waits_for: WaitsFor {
                what: "recv",
                peer: Some(Peer { processes, ..Peer::default() }),
                ..WaitsFor::default()
            },
            times: 2,
            at: snapshot.at,
        };
        let (pid, tid) = (now.thread.pid, now.thread.tid);
        let waker =
            |pid| Waker::Thread { pid, tid: 9, name: "a".into(), process: "b".into(), call: 202 };
        let pair = |waker, count| Pair { waker, woken: Woken { pid, tid }, count };
        let wakeups = Wakeups {
            from: snapshot.at,
            duration_ns: SECOND,
            pairs: vec![pair(waker(812), 5), pair(waker(7), 4), pair(Waker::Interrupt, interrupts)],
            lost: 1,
            seen: 100,
            cost,
        };
        let wakeups = Some(wakeups.into());
        Snapshot { observed_waits: [wait].into(), wakeups, ..snapshot }
    };
    let here = with(&plain(1, 0), Cost::Measured(10), 3);
    let later = with(&plain(1, 60_000), Cost::Measured(10), 9);
    let there = with(&plain(2, 0), Cost::Estimated(30), u64::MAX);

    // One host: the same threads and processes.
    let both = merged(&[&here, &later]);
    let [wait] = &*both.observed_waits else { panic!("{:?}", both.observed_waits) };
    let peer = wait.waits_for.peer.as_ref().expect("it is kept");
    assert_eq!((wait.times, peer.processes[0].pid), (4, 812));
    assert!(wait.at > here.at && wait.at <= both.at, "{wait:?}");
    let wakeups = both.wakeups.as_ref().expect("they are kept");
    let counts = |wakeups: &Wakeups| wakeups.pairs.iter().map(|p| p.count).collect::<Vec<_>>();
    assert_eq!(counts(wakeups), [12, 10, 8]);
    assert_eq!((wakeups.duration_ns, wakeups.lost, wakeups.seen), (2 * SECOND, 2, 200));
    assert_eq!(wakeups.cost, Cost::Measured(20));
    assert!(wakeups.from < wait.at);

    // Another host's processes with equal numbers are others.
    let both = merged(&[&here, &there]);
    let pids = |wait: &ObservedWait| {
        let peer = wait.waits_for.peer.as_ref().expect("it is kept");
        (wait.thread.pid, peer.processes[0].pid)
    };
    let waits: Vec<_> = both.observed_waits.iter().map(pids).collect();
    assert_eq!(waits, [(7, 812), (PID_MAX + 1, PID_MAX + 2)]);
    let wakeups = both.wakeups.as_ref().expect("they are kept");
    let of = |pair: &Pair| match pair.waker {
        Waker::Thread { pid, .. } => (pair.woken.pid, Some(pid)),
        _ => (pair.woken.pid, None),
    };
    let mut pairs: Vec<_> = wakeups.pairs.iter().map(of).collect();
    pairs.sort_unstable();
    let [a, b] = [PID_MAX + 1, PID_MAX + 2];
    let expected = [(7, None), (7, Some(7)), (7, Some(812)), (a, None), (a, Some(a)), (a, Some(b))];
    assert_eq!(pairs, expected);
    assert_eq!(wakeups.cost, Cost::Estimated(40));
    assert_eq!(wakeups.counted(), wakeup::SUM_MAX, "sums are bounded");
    assert_eq!(merged(&[&recorded(&plain(1, 0))]).wakeups, None);
}

#[test]
fn what_was_at_one_time_is_in_one_piece_of_history() {
    let second = |snapshot: &Snapshot| {
        snapshot.history.sealed().iter().map(|b| (b.end - b.start) / SECOND).collect::<Vec<_>>()
    };
    // Starts 300 ms apart on different clocks: their seconds are aligned.
    let both = merged(&[&recorded(&plain(1, 0)), &recorded(&Run { clock: 777, ..plain(2, 300) })]);
    assert_eq!(second(&both), [1, 1]);
    // A minute later: one follows the other.
    let (apart, notes) =
        merged_within(&[&recorded(&plain(1, 60_000)), &recorded(&plain(1, 0))], Limits::default());
    assert_eq!(
        notes[1],
        "no profile is of 58.0 of these 62.0 s, which figures per elapsed time count, too"
    );
    assert_eq!(second(&apart), [1, 1, 1, 1]);
    let (from, till) = apart.history.span();
    assert_eq!((till - from) / SECOND, 62);
    let later = sums(&[&apart], Range::Rolling(2 * SECOND));
    assert_eq!(later, sums(&[&recorded(&plain(1, 60_000))], ALL));
}

#[test]
fn what_is_no_time_is_refused_and_changes_nothing() {
    let good = recorded(&plain(1, 0));
    let mut ancient = good.clone();
    ancient.session = Session { started_unix_ns: 0, ..Session::clone(&good.session) }.into();
    let mut merger = Merger::new(Limits::default());
    merger.add(&good).expect("it fits");
    assert_eq!(merger.add(&ancient), Err(Unfit::Clock));
    let endless = {
        let mut parts = Parts { started: 0, at: 1, ..Parts::default() };
        good.history.read(ALL, good.at, &mut |key, weights| {
            parts.cumulative.push((*key, Weights { wall_ns: u64::MAX / 3, ..*weights }));
        });
        Snapshot { history: History::from_parts(parts).expect("sound"), ..good.clone() }
    };
    assert_eq!(merger.add(&endless), Err(Unfit::Times));
    let (merged, notes) = merger.finish().expect("one");
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!(sums(&[&merged], ALL), sums(&[&good], ALL));
    assert!(Merger::new(Limits::default()).finish().is_none());
}

#[test]
fn a_profile_without_a_date_begins_with_the_others() {
    let own = recorded(&plain(1, 0));
    let mut foreign = recorded(&Run { clock: 99, ..plain(2, 0) });
    let unknown = Session {
        version: String::new(),
        host: String::new(),
        started_unix_ns: 0,
        ..Session::clone(&foreign.session)
    };
    foreign.session = unknown.into();
    for order in [[&own, &foreign], [&foreign, &own]] {
        let (both, notes) = merged_within(&order, Limits::default());
        assert_eq!(sums(&[&both], ALL), sums(&order, ALL));
        assert_eq!((both.session.started_unix_ns, &*both.session.host), (DATE, "node1"));
        assert!(notes.iter().all(|note| !note.contains(" hosts: node")), "{notes:?}");
    }
    assert_eq!(merged(&[&foreign]).session.started_unix_ns, 0);
}

/// Returns the second of two consecutive reports, with a thread whose wait began before it.
fn second_report() -> Snapshot {
    let mut recorder = Recorder::new(0, Limits::default());
    let thread = ThreadKey { pid: 7, tid: 1, start: 7 };
    let observation = Observation {
        counters: Some(Counters { run_ns: 0, delay_ns: 0, runs: 1 }),
        stack: vec![RawFrame::marker(Marker::NotReadable)],
        ..Observation::new(
            0,
            thread,
            RawName::new(b"t1"),
            Seen::Blocked(Syscall { number: 0, args: [0; 6] }),
        )
    };
    recorder.apply(&Event::Observation(observation));
    let ticks = |recorder: &mut Recorder, from: u64, till: u64| {
        for at in (from..till).map(|nth| (nth + 1) * SECOND) {
            let losses = Losses::default();
            recorder.apply(&Event::Tick(Tick { interval_ns: SECOND, losses, ..Tick::new(at, 7) }));
        }
    };
    ticks(&mut recorder, 0, 3);
    recorder.restart();
    ticks(&mut recorder, 3, 6);
    let view = recorder.view();
    let begun = recorded(&plain(1, 0));
    let session = Session {
        started: 3 * SECOND,
        started_unix_ns: DATE + 60 * i128::from(SECOND),
        ..Session::clone(&begun.session)
    };
    Snapshot {
        session: session.into(),
        at: view.at,
        tables: view.tables,
        history: view.history,
        threads: view.threads,
        ..begun
    }
}

#[test]
fn a_wait_from_before_a_profile_is_one_hit_of_it_in_any_range() {
    let (first, second) = (recorded(&plain(1, 0)), second_report());
    let open: u32 = second
        .history
        .open()
        .flat_map(|bucket| bucket.iter().map(|(_, w)| w.open).collect::<Vec<_>>())
        .sum();
    assert!(open > 0, "it goes on");
    let both = merged(&[&first, &second]);
    for range in [ALL, Range::Rolling(1 << 59)] {
        assert_eq!(sums(&[&both], range), sums(&[&first, &second], range));
    }
}

#[test]
fn builds_of_one_file_stay_apart() {
    let of_build = |build_id: &str, began| {
        let mut one = recorded(&plain(1, began));
        let mut parts = crate::model::facts::tables::Parts::default();
        let tables = &one.tables;
        parts.names = (0..tables.name_count() as u32)
            .map(|id| (tables.name(NameId(id)).clone(), tables.kind(NameId(id))))
            .collect();
        parts.frames = (0..tables.frame_count() as u32)
            .map(|id| {
                let named = tables.named(FrameId(id));
                let locations: Vec<Location> = (named.locations.iter())
                    .map(|location| Location { module: "app".into(), ..location.clone() })
                    .collect();
                let named = Named { build_id: Some(build_id.into()), ..Named::known(locations) };
                (tables.frame(FrameId(id)), named)
            })
            .collect();
        parts.stacks = (0..tables.stack_count() as u32)
            .map(StackId)
            .map(|stack| (tables.parent(stack), tables.top(stack), tables.futex_kind(stack)))
            .collect();
        one.tables = Tables::from_parts(parts).expect("sound");
        one
    };
    let (old, new) = (of_build("01", 0), of_build("02", 60_000));
    let (both, notes) = merged_within(&[&old, &new, &old], Limits::default());
    assert!(notes.contains(&"several builds of one file: 2 of app".to_owned()), "{notes:?}");
    assert_eq!(both.tables.builds()["app"], ["01".into(), "02".into()].into());
    // Each build kept its frames, and none occurs twice.
    let frames = |snapshot: &Snapshot, of: &str| {
        let ids = (0..snapshot.tables.frame_count() as u32).map(FrameId);
        ids.filter(|id| snapshot.tables.named(*id).build_id.as_deref() == Some(of)).count()
    };
    let alone = [frames(&merged(&[&old]), "01"), frames(&merged(&[&new]), "02")];
    assert!(alone[0] > 2, "{alone:?}");
    assert_eq!([frames(&both, "01"), frames(&both, "02")], alone);
    assert!(
        merged_within(&[&old, &old], Limits::default())
            .1
            .iter()
            .all(|note| !note.contains("builds"))
    );
}
