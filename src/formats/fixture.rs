//! Hand-made profiles for the tests of the formats: each stack's weight is given, all sums are
//! derived.

use std::sync::Arc;

use crate::model::facts::history::History;
use crate::model::facts::snapshot::{Health, Session, Snapshot, Target};
use crate::model::facts::tables::{FrameKind, Location, Tables};
use crate::model::projection::{CommonObject, ObservedPlace, Projection, Totals, test_projections};
use crate::model::vocabulary::event::Losses;
use crate::model::vocabulary::frame::SECOND;
use crate::model::vocabulary::state::State;
use crate::model::vocabulary::waits_for::WaitsFor;

pub const MS: u64 = 1_000_000;
/// CLOCK_MONOTONIC of the session's start.
pub const START: u64 = 1000 * SECOND;

/// One stack of one group: frames outermost first (empty: all hidden), and its time.
#[derive(Clone, Debug)]
pub struct Stack {
    pub group: String,
    pub frames: Vec<String>,
    pub own: Totals,
}

pub fn stack(group: &str, frames: &[&str], own: Totals) -> Stack {
    Stack { group: group.into(), frames: frames.iter().map(|f| (*f).to_owned()).collect(), own }
}

/// Returns totals of `hits` samples on a core.
pub fn ran(ms: u64, hits: u64) -> Totals {
    let mut totals =
        Totals { wall_ns: ms * MS, cpu_ns: ms * MS, hits, cpu_hits: hits, ..Totals::default() };
    totals.states_ns[State::Run as usize] = ms * MS;
    totals
}

/// Returns totals of `hits` waits; the longest took `longest` ms and began 1.5 s after the start.
pub fn waited(state: State, ms: u64, hits: u64, longest: u64) -> Totals {
    let (longest_ns, longest_from) = (longest * MS, START + SECOND * 3 / 2);
    let mut totals =
        Totals { wall_ns: ms * MS, hits, longest_ns, longest_from, ..Totals::default() };
    totals.states_ns[state as usize] = ms * MS;
    totals
}

pub fn location(function: &str) -> Location {
    Location {
        function: function.into(),
        module: "/usr/bin/app".into(),
        file: Some("/src/app/main.c".into()),
        line: Some(7),
        kind: FrameKind::Native,
        tier: None,
    }
}

/// Returns a projection of ten seconds of these stacks.
pub fn projection(stacks: &[Stack]) -> Projection {
    let frames = |stack: &Stack| stack.frames.iter().map(|frame| location(frame)).collect();
    let stacks: Vec<_> =
        stacks.iter().map(|stack| (stack.group.clone(), frames(stack), stack.own)).collect();
    let mut projection = test_projections::projection(&stacks);
    (projection.from, projection.till) = (START, START + 10 * SECOND);
    projection
}

pub fn session() -> Session {
    Session {
        version: "0.1.0".into(),
        host: "node7".into(),
        kernel: "6.18.0".into(),
        cores_milli: 3500,
        started: START,
        started_unix_ns: 1_767_323_045_123_000_000,
        interval_ns: 10 * MS,
        max_overhead_percent: None,
        wanted: Default::default(),
    }
}

pub fn target() -> Target {
    Target {
        pid: 42,
        start: 5,
        command: "app --port 80".into(),
        runtime: "native",
        uid: 1000,
        unit: Some("system.slice/app.service".into()),
        started_unix_ns: 1_767_323_000_000_000_000,
        ended: None,
    }
}

/// Returns a snapshot around the stacks; tables and history are empty.
pub fn snapshot() -> Snapshot {
    let losses = Losses {
        samples: 1234,
        dropped: 7,
        truncated: 1,
        unwind_failed: 6,
        no_unwind_info: 3,
        bad_unwind: 2,
        outside_maps: 1,
        recovered: 12,
        late: 2,
        ..Losses::default()
    };
    Snapshot {
        session: Arc::new(session()),
        targets: Arc::new([target()]),
        at: START + 10 * SECOND,
        capture: "perf".into(),
        health: Health {
            ticks: 998,
            losses,
            interval_achieved_ns: 10_020_000,
            late_p99_ns: 123_456,
            self_cpu_percent: 0.41,
            total_cpu_percent: 0.83,
            ..Health::default()
        },
        tables: Tables::default(),
        history: History::default(),
        threads: Arc::new([]),
        deadlocks: Arc::default(),
        observed_waits: Arc::default(),
        wakeups: None,
        notice: None,
        stopped: false,
    }
}

/// Returns waits of two threads for a file.
pub fn observed(file: &str) -> ObservedPlace {
    let waits_for =
        WaitsFor { what: "fsync", fd: Some(3), object: file.into(), ..WaitsFor::default() };
    ObservedPlace {
        object: CommonObject { waits_for, several_peers: false },
        place: ["commit", "harden"].map(|function| Arc::new(location(function))).into(),
        threads: 2,
        times: 6,
    }
}

/// Returns a small service: workers that compute and wait for a database, a pool that waits for
/// work.
pub fn service() -> Vec<Stack> {
    let worker = "worker-";
    vec![
        stack(worker, &["start", "run", "checkout", "query"], waited(State::Io, 6000, 300, 2000)),
        stack(worker, &["start", "run", "checkout", "price", "round"], ran(2500, 250)),
        stack(worker, &["start", "run", "checkout", "price"], ran(400, 40)),
        stack(worker, &["start", "run", "checkout", "tax"], ran(60, 6)),
        stack(worker, &["start", "run", "audit", "lock"], waited(State::Lock, 1000, 20, 90)),
        stack("main", &["main", "accept"], waited(State::Sleep, 40, 1, 40)),
    ]
}

/// Returns how deep lists and objects of a JSON text are nested.
pub fn nesting(json: &str) -> usize {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => depth += 1,
            b']' | b'}' if !in_text => depth -= 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}
