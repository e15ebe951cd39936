//! A session on a simulated clock, for tests.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, Format, Mode, Output};
use crate::model::facts::goroutines::Goroutines;
use crate::model::facts::recorder::{Limits, Recorder};
use crate::model::facts::snapshot::{Health, Session, Snapshot, Target, Wanted};
use crate::model::facts::tasks::Tasks;

use crate::model::projection::waits::{Answer, Asked};
use crate::model::vocabulary::event::{Counters, Event, Losses, Observation, Seen, Syscall, Tick};
use crate::model::vocabulary::frame::{Marker, Ns, RawFrame, RawName, SECOND, ThreadKey};
use crate::model::vocabulary::wakeup::{Cost, Pair, Waker, Wakeups, Woken};
use crate::session::source::{Progress, Source, Waited};

/// 2026-01-02T03:04:05Z.
const BEGIN: i128 = 1_767_323_045 * SECOND as i128;
const THREAD: ThreadKey = ThreadKey { pid: 42, tid: 42, start: 5 };

/// A process with one waiting thread, and a script of what happens when.
pub struct Fake {
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
    /// Since when wakeups are counted, and for how long.
    counting: Option<(Ns, Ns)>,
}

#[derive(Clone, Copy)]
pub enum Happens {
    Reports(Waited),
    /// The wall clock is set.
    Clock(i128),
}

impl Fake {
    pub fn new(script: impl IntoIterator<Item = (u64, Happens)>) -> Fake {
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
            counting: None,
        };
        fake.observe();
        fake
    }

    fn observe(&mut self) {
        let observation = Observation {
            counters: Some(Counters { run_ns: 0, delay_ns: 0, runs: 1 }),
            stack: vec![RawFrame::marker(Marker::NotReadable)],
            ..Observation::new(
                self.now,
                THREAD,
                RawName::new(b"main"),
                Seen::Blocked(Syscall { number: 0, args: [0; 6] }),
            )
        };
        self.recorder.apply(&Event::Observation(observation));
    }

    fn turn(&mut self, till: Ns) {
        while self.now < till {
            self.now = (self.now + SECOND).min(till);
            if !self.paused {
                let losses = Losses { samples: self.now / SECOND, ..Losses::default() };
                let tick = Tick { interval_ns: SECOND, losses, ..Tick::new(self.now, 42) };
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
            deadlocks: Arc::default(),
            observed_waits: Arc::default(),
            wakeups: None,
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
                Happens::Reports(waited) => return waited,
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
    fn tasks(&mut self, _: Duration) -> Vec<Tasks> {
        Vec::new()
    }
    fn goroutines(&mut self, _: Duration) -> Vec<Goroutines> {
        Vec::new()
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
    fn count_wakeups(&mut self, duration: Duration) -> Result<(), String> {
        self.counting = Some((self.now, duration.as_nanos() as Ns));
        Ok(())
    }
    fn wakeups(&mut self) -> Option<Result<Wakeups, String>> {
        let (from, duration) = self.counting.take()?;
        let waker = Waker::Thread {
            pid: 812,
            tid: 812,
            name: "redis".into(),
            process: "redis".into(),
            call: 44,
        };
        let woken = Woken { pid: THREAD.pid, tid: THREAD.tid };
        Some(Ok(Wakeups {
            from,
            duration_ns: duration.min(self.now - from),
            pairs: vec![Pair { waker, woken, count: 7 }],
            lost: 0,
            seen: 90,
            cost: Cost::Estimated(7_000),
        }))
    }
    fn finish(&mut self) -> Option<Arc<Snapshot>> {
        let at = self.now;
        self.recorder.close(at);
        self.take()
    }
}

/// Returns a snapshot of one process, watched under that title.
pub fn named(title: &str, command: &str) -> Snapshot {
    let mut fake = Fake::new([]);
    let mut snapshot = Snapshot::clone(&fake.take().expect("there is one"));
    let wanted = Wanted { title: title.into(), waits: true };
    snapshot.session = Arc::new(Session { wanted, ..Session::clone(&snapshot.session) });
    snapshot.targets =
        vec![Target { command: command.into(), ..snapshot.targets[0].clone() }].into();
    snapshot
}

/// Returns a configuration that writes JSON of everything to `path`.
pub fn config(mode: Mode, path: &Path) -> Config {
    let config = Config::of_test(mode);
    let output = Output { format: Format::Json, path: Some(path.into()), ..config.output };
    Config { output, ..config }
}
