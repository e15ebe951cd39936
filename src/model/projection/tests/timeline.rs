//! The timeline has all time of a thread, in columns and as runs; on random observations.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::model::facts::fact::Weights;
use crate::model::facts::recorder::{Limits, Recorder};
use crate::model::projection::settings::Range;
use crate::model::projection::timeline::{Doing, MAX_THREADS, Members, Run, ThreadLine, Timeline};
use crate::model::vocabulary::event::{Counters, Event, Observation, Seen, Syscall, Tick};
use crate::model::vocabulary::frame::SECOND;

const MS: Ns = 1_000_000;
const START: Ns = 50 * SECOND + 17;
const TICK: Ns = 10 * MS;

/// What a thread does for some ticks: it runs in this stack, or waits in this one; the part of each
/// tick that it runs, percent.
#[derive(Clone, Copy, Debug)]
struct Act {
    stack: u64,
    ticks: u64,
    runs: u64,
}

fn act() -> impl Strategy<Value = Act> {
    (1u64..4, 1u64..30, prop::sample::select(vec![0, 0, 30, 100]))
        .prop_map(|(stack, ticks, runs)| Act { stack, ticks, runs })
}

/// Returns a snapshot of threads that do these things, until the first one has no more.
fn snapshot(threads: &[Vec<Act>]) -> Snapshot {
    let mut recorder = Recorder::new(START, Limits::default());
    let mut doing: Vec<Vec<Act>> = Vec::new();
    for acts in threads {
        doing.push(acts.iter().flat_map(|act| vec![*act; act.ticks as usize]).collect());
    }
    let ticks = doing.iter().map(Vec::len).min().unwrap_or(0);
    let mut ran = vec![0; threads.len()];
    for nth in 0..ticks {
        let (from, at) = (START + nth as Ns * TICK, START + (nth as Ns + 1) * TICK);
        for (tid, (acts, ran)) in doing.iter().zip(&mut ran).enumerate() {
            let Act { stack, runs, .. } = acts[nth];
            *ran += TICK * runs / 100;
            let thread = ThreadKey { pid: 1, tid: tid as u32 + 1, start: 1 };
            let name = RawName::new(format!("work-{tid}").as_bytes());
            let frame =
                |offset| RawFrame::new(FrameCode::Code { file: FileId(1), offset, exact: false });
            let counters = Counters { run_ns: *ran, delay_ns: 0, runs: nth as u64 };
            let mut observe = |at, seen, counters, stack| {
                let observation =
                    Observation { counters, stack, ..Observation::new(at, thread, name, seen) };
                recorder.apply(&Event::Observation(observation));
            };
            if runs > 0 {
                observe(from + TICK / 4, Seen::OnCpu, None, vec![frame(stack), frame(9)]);
            }
            let wait = Seen::Blocked(Syscall { number: 45, args: [0; 6] });
            let seen = if runs == 100 { Seen::Running } else { wait };
            let stack = if runs == 100 { Vec::new() } else { vec![frame(stack + 4), frame(9)] };
            observe(at, seen, Some(counters), stack);
        }
        recorder.apply(&Event::Tick(Tick::new(at, 1)));
    }
    recorder.close(START + ticks as Ns * TICK);
    let view = recorder.view();
    let session = Session { started: START, ..Session::made_up() };
    Snapshot {
        session: session.into(),
        tables: view.tables,
        history: view.history,
        ..Snapshot::made_up(view.at, &[])
    }
}

/// Returns it as files of older versions have it: without the order.
fn without_spans(snapshot: &Snapshot) -> Snapshot {
    let history = snapshot.history.clone().without_spans();
    Snapshot { history, ..snapshot.clone() }
}

fn timeline(snapshot: &Snapshot, range: Range, columns: usize) -> (Projection, Timeline) {
    let settings = Settings { range, idle: true, ..Settings::default() };
    let mut projector = Projector::default();
    let projection = projector.project(snapshot, &settings);
    let members = projection.groups.first().map(Members::of).unwrap_or_default();
    let timeline = projector.timeline(snapshot, &settings, &projection, &members, columns);
    (projection, timeline)
}

/// Returns each thread's time in a range.
fn walls(snapshot: &Snapshot, range: Range) -> BTreeMap<ThreadKey, Ns> {
    let mut walls = BTreeMap::new();
    snapshot.history.read(range, snapshot.at, &mut |key, weights| {
        *walls.entry(key.thread).or_default() += weights.wall_ns;
    });
    walls.retain(|_, wall| *wall > 0);
    walls
}

fn of_columns(line: &ThreadLine) -> Ns {
    line.cells.iter().flatten().map(|cell| cell.all_ns).sum()
}

fn of_runs(line: &ThreadLine) -> Ns {
    line.runs.iter().map(|run| run.ns).sum::<Ns>() + line.dropped_ns
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn columns_and_runs_have_all_time(
        acts in prop::collection::vec(prop::collection::vec(act(), 3..12), 1..4),
        columns in 1usize..80,
        (from, length) in (0u64..1_000, 1u64..1_000),
        by_seconds in any::<bool>(),
    ) {
        let mut snapshot = snapshot(&acts);
        if by_seconds {
            snapshot = without_spans(&snapshot);
        }
        let lasted = snapshot.at - START;
        let from = START + lasted * from / 1_000;
        let till = (from + lasted * length / 1_000).min(snapshot.at).max(from + 1);
        for range in [Range::Between { from, till }, Range::Rolling(till - from), Range::Cumulative { since: None }] {
            let (projection, timeline) = timeline(&snapshot, range, columns);
            if projection.groups.is_empty() {
                continue;
            }
            prop_assert_eq!(timeline.is_exact, !by_seconds);
            prop_assert!(timeline.columns() <= columns && timeline.columns() > 0);
            prop_assert!(timeline.edges.is_sorted());
            prop_assert_eq!(timeline.span(), (projection.from, projection.till));
            let of = |time: fn(&ThreadLine) -> Ns| -> BTreeMap<ThreadKey, Ns> {
                timeline.threads.iter().map(|line| (line.thread, time(line))).collect()
            };
            let walls = walls(&snapshot, range);
            prop_assert_eq!(&of(of_columns), &walls);
            prop_assert_eq!(&of(of_runs), &walls);
            for line in &timeline.threads {
                prop_assert!(line.runs.is_sorted_by_key(|run| run.from));
                prop_assert!(line.cells.iter().flatten().all(|cell| cell.ns <= cell.all_ns));
                for two in line.runs.windows(2).filter(|_| timeline.is_exact) {
                    let end = two[0].from + two[0].ns;
                    prop_assert!(end <= two[1].from);
                    prop_assert!(two[0].doing != two[1].doing || end < two[1].from);
                }
            }
            // A column has what a range of its own has.
            for (column, edges) in timeline.edges.windows(2).enumerate().filter(|_| timeline.is_exact) {
                let mut times: BTreeMap<ThreadKey, Ns> = BTreeMap::new();
                snapshot.history.spans().read(edges[0], edges[1], &mut |span, weights| {
                    *times.entry(span.key.thread).or_default() += weights.wall_ns;
                });
                for line in &timeline.threads {
                    let time = times.get(&line.thread).copied().unwrap_or(0);
                    prop_assert_eq!(line.cells[column].map_or(0, |cell| cell.all_ns), time);
                }
            }
        }
    }
}

/// Threads whose runs are more than there is room for.
#[test]
fn each_of_many_threads_has_its_newest_runs() {
    let busy: Vec<Act> =
        (0..210).map(|nth| Act { stack: 1, ticks: 1, runs: nth % 2 * 100 }).collect();
    let snapshot = snapshot(&vec![busy; MAX_THREADS + 10]);
    let (_, timeline) = timeline(&snapshot, Range::Rolling(10 * SECOND), 40);
    assert_eq!((timeline.threads.len(), timeline.threads_dropped), (MAX_THREADS, 10));
    assert!(timeline.threads.iter().map(|line| line.runs.len()).sum::<usize>() <= 100_000);
    for line in &timeline.threads {
        let last = line.runs.last().expect("each thread has some");
        assert_eq!(last.from + last.ns, snapshot.at, "{:?}", line.thread);
        assert!(line.runs.len() >= 200, "{:?}", line.thread);
    }
    assert!(timeline.threads.iter().any(|line| line.dropped > 0));
}

#[test]
fn runs_are_in_order_and_equal_ones_are_one() {
    // 20 ms in one function, 30 ms of waiting; in all 250 ms.
    let acts: Vec<Act> = (0..10)
        .map(|nth| match nth % 2 {
            0 => Act { stack: 1, ticks: 2, runs: 100 },
            _ => Act { stack: 2, ticks: 3, runs: 0 },
        })
        .collect();
    let snapshot = snapshot(&[acts]);
    let (_, timeline) = timeline(&snapshot, Range::Rolling(SECOND), 25);
    let line = &timeline.threads[0];
    // The first observation is that of the first sample.
    let first = START + TICK / 4;
    let runs: Vec<(Ns, Ns, State)> =
        line.runs.iter().map(|Run { from, ns, doing, .. }| (*from, *ns, doing.state)).collect();
    let expected: Vec<(Ns, Ns, State)> = (0..5)
        .flat_map(|round| {
            let from = START + round * 50 * MS;
            let run = match round {
                0 => (first, from + 20 * MS - first, State::Run),
                _ => (from, 20 * MS, State::Run),
            };
            [run, (from + 20 * MS, 30 * MS, State::Io)]
        })
        .collect();
    assert_eq!(runs, expected);
    // What it did for most of each column of 10 ms.
    let letters: String = line
        .cells
        .iter()
        .map(|cell| match cell.map(|cell| cell.doing) {
            Some(Doing { state: State::Run, .. }) => 'r',
            Some(Doing { state: State::Io, .. }) => 'i',
            _ => '?',
        })
        .collect();
    assert_eq!(letters, "rriii".repeat(5));
    assert_eq!(line.run_at(first - 1), None);
    assert_eq!(line.run_at(START + 19 * MS), Some(0));
    assert_eq!(line.run_at(START + 20 * MS), Some(1));
}

#[test]
fn only_what_is_proven_is_one_wait() {
    let part = (100 * MS, 40 * MS);
    let waits =
        |longest_from, longest_ns| Weights { longest_from, longest_ns, ..Weights::default() };
    let is_one =
        |state, weights: &Weights| super::super::timeline::since(state, part, weights).is_some();
    // The wait is the part, begins before it, ends after it, or begins a moment after it.
    for (from, ns) in [(100, 40), (20, 120), (100, 90), (101, 39)] {
        assert!(is_one(State::Sleep, &waits(from * MS, ns * MS)), "{from} {ns}");
    }
    // The last of several short ones, the first of them, and none.
    for (from, ns) in [(136, 4), (80, 24), (100, 20), (0, 0)] {
        assert!(!is_one(State::Sleep, &waits(from * MS, ns * MS)), "{from} {ns}");
    }
    // How long it ran is known by its clock.
    assert!(is_one(State::Run, &Weights::default()));
}
