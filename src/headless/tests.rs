//! Reports over hours of a simulated clock, of a process with one waiting thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::config::{CaptureChoice, Kept, Mode, Output, Reports, Sampling, Screen, UnwinderChoice};
use crate::model::facts::recorder::{Limits, Recorder};
use crate::model::facts::snapshot::{Health, Session};
use crate::model::projection::settings::{Range, Settings};
use crate::model::vocabulary::frame::{
    Counters, Event, Losses, Ns, Observation, RawFrame, RawName, SECOND, Seen, Syscall, Tick,
};

/// 2026-01-02T03:04:05Z.
const BEGIN: i128 = 1_767_323_045 * SECOND as i128;
const THREAD: ThreadKey = ThreadKey { pid: 42, tid: 42, start: 5 };

struct Fake {
    recorder: Recorder,
    session: Arc<Session>,
    /// Time since sampling began, ns.
    now: Ns,
    /// How far the wall clock is ahead of `now`.
    ahead: i128,
    /// The events and their times.
    script: VecDeque<(Ns, Happens)>,
    paused: bool,
    cuts: u32,
}

#[derive(Clone, Copy)]
enum Happens {
    Tells(Waited),
    /// The wall clock is set.
    Clock(i128),
}

impl Fake {
    fn new(script: impl IntoIterator<Item = (u64, Happens)>) -> Fake {
        let session = Session {
            version: "0".into(),
            host: "h".into(),
            kernel: "6".into(),
            cores_milli: 1000,
            started: 0,
            started_unix_ns: BEGIN,
            interval_ns: SECOND,
            max_overhead_percent: None,
            wanted: Default::default(),
        };
        let mut fake = Fake {
            recorder: Recorder::new(0, Limits::default()),
            session: Arc::new(session),
            now: 0,
            ahead: BEGIN,
            script: script.into_iter().map(|(at, what)| (at * SECOND, what)).collect(),
            paused: false,
            cuts: 0,
        };
        fake.observe();
        fake
    }

    fn observe(&mut self) {
        let observation = Observation {
            at: self.now,
            thread: THREAD,
            name: RawName::new(b"main"),
            seen: Seen::Blocked(Syscall { number: 0, args: [0; 6] }),
            counters: Some(Counters { run_ns: 0, delay_ns: 0, runs: 1 }),
            stack: vec![RawFrame::marker(Marker::NotReadable)],
            recovered: false,
        };
        self.recorder.apply(&Event::Observation(observation));
    }

    fn turn(&mut self, till: Ns) {
        while self.now < till {
            self.now = (self.now + SECOND).min(till);
            if !self.paused {
                let losses = Losses { samples: self.now / SECOND, ..Losses::default() };
                let tick = Tick {
                    at: self.now,
                    pid: 42,
                    late_ns: 0,
                    process_cpu_ns: None,
                    interval_ns: SECOND,
                    losses,
                };
                self.recorder.apply(&Event::Tick(tick));
            }
        }
    }

    fn take(&mut self) -> Option<Arc<Snapshot>> {
        let view = self.recorder.view();
        let health = Health { ticks: view.ticks, losses: view.losses, ..Health::default() };
        Some(Arc::new(Snapshot {
            session: self.session.clone(),
            targets: self.living().into(),
            at: view.at,
            capture: "bpf".into(),
            health,
            tables: view.tables,
            history: view.history,
            threads: view.threads,
            notice: None,
            stopped: false,
        }))
    }
}

impl Source for Fake {
    fn wait(&mut self, timeout: Duration) -> Waited {
        let till = self.now.saturating_add(timeout.as_nanos() as Ns);
        while let Some((at, what)) = self.script.front().copied().filter(|(at, _)| *at <= till) {
            self.script.pop_front();
            self.turn(at);
            match what {
                Happens::Tells(waited) => return waited,
                Happens::Clock(ahead) => self.ahead += ahead,
            }
        }
        assert!(till < 1_000_000 * SECOND, "something waits for ever");
        self.turn(till);
        Waited::Timeout
    }
    fn elapsed(&mut self) -> Duration {
        Duration::from_nanos(self.now)
    }
    fn progress(&mut self) -> Progress {
        Progress::default()
    }
    fn snapshot(&mut self, _: bool) -> Option<Arc<Snapshot>> {
        self.take()
    }
    fn cut(&mut self) -> Option<Arc<Snapshot>> {
        let snapshot = self.take()?;
        self.recorder.restart();
        self.cuts += 1;
        let started_unix_ns = self.ahead + i128::from(snapshot.at);
        self.session = Arc::new(Session {
            started: snapshot.at,
            started_unix_ns,
            ..Session::clone(&self.session)
        });
        Some(snapshot)
    }
    fn pause(&mut self, pause: bool) {
        if std::mem::replace(&mut self.paused, pause) && !pause {
            let from = self.recorder.view().at;
            self.recorder.apply(&Event::Gap { from, at: self.now });
            self.observe();
        }
    }
    fn living(&mut self) -> Vec<Target> {
        vec![Target {
            pid: 42,
            start: 5,
            command: "app".into(),
            runtime: "native",
            uid: 0,
            unit: None,
            started_unix_ns: 0,
            ended: None,
        }]
    }
    fn unix_ns(&mut self) -> i128 {
        self.ahead + i128::from(self.now)
    }
    fn waits(&mut self, _: Vec<Asked>, _: Duration) -> Vec<Answer> {
        Vec::new()
    }
    fn finish(&mut self) -> Option<Arc<Snapshot>> {
        let at = self.now;
        self.recorder.close(at);
        self.take()
    }
}

/// Returns a snapshot of one process, watched under that title.
pub(super) fn named(title: &str, command: &str) -> Snapshot {
    let mut fake = Fake::new([]);
    let mut snapshot = Snapshot::clone(&fake.take().expect("there is one"));
    let wanted = crate::model::facts::snapshot::Wanted { title: title.into(), waits: true };
    snapshot.session = Arc::new(Session { wanted, ..Session::clone(&snapshot.session) });
    snapshot.targets =
        vec![Target { command: command.into(), ..snapshot.targets[0].clone() }].into();
    snapshot
}

fn every(minutes: u64) -> Reports {
    let every = Some(Duration::from_secs(60 * minutes)).filter(|every| !every.is_zero());
    Reports { every, count: None, cumulative: false, max_lines: 200, kept: Kept::default() }
}

/// Returns a configuration that writes JSON of everything to `path`.
pub(super) fn config(mode: Mode, path: &std::path::Path) -> Config {
    Config {
        mode,
        target: None,
        subprocesses: false,
        sampling: Sampling {
            interval: Duration::from_secs(1),
            max_overhead: None,
            capture: CaptureChoice::Auto,
            unwinder: UnwinderChoice::Framehop,
        },
        settings: Settings { range: Range::Cumulative { since: None }, ..Settings::default() },
        screen: Screen { color: false, ascii: true, mouse: false },
        output: Output {
            format: Format::Json,
            path: Some(path.into()),
            secure: false,
            redact: None,
            push: None,
        },
    }
}

/// Runs the reports against the script. Returns (from, till, wall seconds) of each report, in
/// order.
fn reports(plan: Reports, script: Vec<(u64, Happens)>) -> Vec<(String, String, f64)> {
    let dir = tempfile::tempdir().expect("a directory");
    let config = config(Mode::Report(plan), dir.path());
    assert_eq!(report(&mut Fake::new(script), &config, &plan), 0);
    let mut files: Vec<_> = std::fs::read_dir(dir.path())
        .expect("there")
        .map(|e| e.expect("readable").path())
        .collect();
    files.sort();
    let read = |path: &std::path::PathBuf| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(path).expect("readable")).expect("json")
    };
    let time = |text: &serde_json::Value| text.as_str().expect("a time")[11..19].to_owned();
    files
        .iter()
        .map(read)
        .map(|of| {
            let wall: f64 = of["groups"]
                .as_array()
                .expect("groups")
                .iter()
                .map(|g| g["wall_ms"].as_f64().expect("ms"))
                .sum();
            (time(&of["from"]), time(&of["till"]), wall / 1e3)
        })
        .collect()
}

fn row(from: &str, till: &str, wall: f64) -> (String, String, f64) {
    (from.into(), till.into(), wall)
}

const END: Happens = Happens::Tells(Waited::Interrupted);

#[test]
fn the_clock_says_when_and_each_has_its_own_time() {
    let rows = reports(every(15), vec![(2 * 3600, END)]);
    assert_eq!(rows.len(), 9);
    assert_eq!(rows[0], row("03:04:05", "03:15:00", 655.0));
    assert_eq!(rows[1], row("03:15:00", "03:30:00", 900.0));
    assert_eq!(rows[8], row("05:00:00", "05:04:05", 245.0));
    assert_eq!(rows.iter().map(|row| row.2).sum::<f64>(), 7200.0);
}

#[test]
fn only_so_many_one_at_the_end_or_all_since_the_start() {
    assert_eq!(reports(Reports { count: Some(2), ..every(60) }, vec![]).len(), 2);
    assert_eq!(reports(every(0), vec![(100_000, END)]), [row("03:04:05", "06:50:45", 100_000.0)]);
    let rows = reports(
        Reports { cumulative: true, ..every(30) },
        vec![(3600, Happens::Tells(Waited::Ended))],
    );
    let froms: Vec<&str> = rows.iter().map(|row| &*row.0).collect();
    assert_eq!(froms, ["03:04:05"; 3]);
    assert_eq!(rows.iter().map(|row| row.2).collect::<Vec<_>>(), [1555.0, 3355.0, 3600.0]);
}

#[test]
fn one_can_be_asked_for_and_time_goes_into_no_two() {
    let now = Happens::Tells(Waited::Asked(Request::Report));
    let rows = reports(every(15), vec![(100, now), (655, now), (700, END)]);
    let expected = [
        row("03:04:05", "03:05:45", 100.0),
        row("03:05:45", "03:15:00", 555.0),
        row("03:15:00", "03:15:45", 45.0),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn nobody_looks_while_it_is_paused() {
    let asked = |request| Happens::Tells(Waited::Asked(request));
    let rows = reports(
        every(0),
        vec![(100, asked(Request::Pause)), (400, asked(Request::Resume)), (500, END)],
    );
    assert_eq!(
        rows,
        [row("03:04:05", "03:12:25", 500.0)],
        "a thread that did not move did what it did"
    );
}

#[test]
fn a_clock_that_is_set_shifts_what_comes_and_loses_nothing() {
    let hour = 3600 * i128::from(SECOND);
    let rows = reports(
        every(60),
        vec![(60, Happens::Clock(-5 * hour)), (4000, Happens::Clock(3 * hour)), (8000, END)],
    );
    assert_eq!(rows.iter().map(|row| row.2).sum::<f64>(), 8000.0);
    assert!((3..=5).contains(&rows.len()), "{rows:?}");
}

#[test]
fn a_recording_is_as_long_as_asked_for_by_the_clock_of_what_is_watched() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("p.json");
    let duration = Some(Duration::from_secs(90));
    let config = config(Mode::Record { duration }, &file);
    // The test takes no real seconds.
    assert_eq!(record(&mut Fake::new([]), &config, duration, None), 0);
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).expect("readable")).expect("json");
    assert_eq!(json["elapsed_ms"], 90_000.0);
    assert_eq!(json["groups"][0]["wall_ms"], 90_000.0);
}
