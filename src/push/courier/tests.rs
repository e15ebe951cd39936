//! Hours of an unreliable server, on a simulated clock.

use std::collections::VecDeque;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use super::super::backoff;
use super::*;

/// Returns the scripted answers, then always 200; keeps the requests.
#[derive(Clone, Default)]
struct Scripted {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    got: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    fn answers(&self, answers: impl IntoIterator<Item = Answer>) {
        lock(&self.answers).extend(answers);
    }
    fn got(&self) -> Vec<String> {
        lock(&self.got).clone()
    }
}

impl Server for Scripted {
    fn post(&mut self, query: &str, body: &[u8], _: Duration) -> Answer {
        assert_eq!(body, [0x1f, 0x8b]);
        lock(&self.got).push(query.into());
        lock(&self.answers).pop_front().unwrap_or(said(200))
    }
}

fn said(status: u16) -> Answer {
    Answer::Said { status, retry_after: None, words: String::new() }
}

fn down() -> Answer {
    Answer::Failed("connection refused".into())
}

struct Run {
    courier: Courier<Scripted>,
    server: Scripted,
    spool: Mutex<Spool>,
    now: Duration,
    reports: Vec<String>,
    _dir: tempfile::TempDir,
}

impl Run {
    fn new(bytes_max: u64) -> Run {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).expect("ours");
        let spool = Mutex::new(Spool::open(dir.path(), bytes_max).expect("it can be used"));
        let server = Scripted::default();
        let courier = Courier::new(server.clone(), "http://p/ingest".into());
        Run { courier, server, spool, now: Duration::ZERO, reports: Vec::new(), _dir: dir }
    }

    fn add(&mut self, nth: u32) {
        lock(&self.spool)
            .add(Request { query: format!("name=n{nth}"), body: vec![0x1f, 0x8b] })
            .expect("written");
    }

    /// Returns the numbers of profiles sent, waiting, dropped.
    fn counts(&self) -> (u64, u64, u64) {
        let spool = lock(&self.spool);
        (self.courier.sent(), spool.waiting(), spool.dropped())
    }

    fn step(&mut self, last: bool) -> Next {
        let moment = Moment { now: self.now, within: Duration::from_secs(30), chance: 1.0, last };
        let Run { courier, spool, reports, .. } = self;
        courier.step(spool, moment, &mut |sentence| reports.push(sentence))
    }

    /// Runs until nothing waits or the time is over; returns how often it had to wait.
    fn run(&mut self, till: Duration) -> u32 {
        let mut pauses = 0;
        loop {
            match self.step(false) {
                Next::Again => {}
                Next::Idle => return pauses,
                Next::At(time) if time > till => {
                    self.now = till;
                    return pauses;
                }
                Next::At(time) => {
                    assert!(time > self.now, "it would go round in circles");
                    (self.now, pauses) = (time, pauses + 1);
                }
            }
        }
    }
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn an_hour_without_a_server_loses_nothing_and_keeps_the_order() {
    let mut run = Run::new(10_000);
    run.server.answers((0..10_000).map(|_| down()));
    for minute in 0..60 {
        run.add(minute);
        run.run(Duration::from_secs(60 * u64::from(minute) + 60));
    }
    let tries = run.server.got().len();
    assert!((10..=25).contains(&tries), "{tries} tries in an hour");
    assert!(
        run.server.got().iter().all(|query| query == "name=n0"),
        "the oldest, until it is taken"
    );
    lock(&run.server.answers).clear();
    run.run(HOUR * 2);
    assert!(run.now <= HOUR + backoff::PAUSE_MAX);
    let expected: Vec<String> = (0..60).map(|nth| format!("name=n{nth}")).collect();
    assert_eq!(run.server.got()[tries..], expected);
    assert_eq!(run.counts(), (60, 0, 0));
    assert_eq!(run.reports.len(), 2, "{:?}", run.reports);
    assert!(
        run.reports[0]
            .starts_with("cannot push to http://p/ingest: connection refused; profiles wait in `")
    );
    assert_eq!(run.reports[1], "profiles are pushed again; 59 are waiting");
}

#[test]
fn beyond_the_limit_the_oldest_are_dropped_and_counted() {
    // Each profile takes 11 bytes.
    let mut run = Run::new(54);
    run.server.answers([down()]);
    for nth in 10..30 {
        run.add(nth);
        run.step(false);
    }
    run.run(HOUR);
    let got = run.server.got();
    assert_eq!(
        got[1..],
        ["name=n26", "name=n27", "name=n28", "name=n29"].map(String::from),
        "{:?}",
        run.reports
    );
    assert_eq!(run.counts(), (4, 0, 16));
    assert_eq!(run.reports[1], "profiles are pushed again; 3 are waiting, 16 were dropped");
}

#[test]
fn refused_profiles_are_dropped_and_the_others_sent() {
    let mut run = Run::new(10_000);
    (0..5).for_each(|nth| run.add(nth));
    let too_large = Answer::Said { status: 413, retry_after: None, words: "too large".into() };
    run.server.answers([too_large, said(400), said(200), said(400)]);
    assert_eq!(run.run(HOUR), 0, "that is not waited for");
    assert_eq!(run.server.got().len(), 5);
    assert_eq!(run.counts(), (2, 0, 3));
    let once = "http://p/ingest does not take a profile, which is dropped: it answers";
    assert_eq!(
        run.reports,
        [format!("{once} 413: too large"), format!("{once} 400")],
        "once, until one was taken"
    );
}

#[test]
fn an_answer_that_blames_the_profile_counts_only_where_others_are_taken() {
    // The server's own fault: nothing is lost, however long it lasts, and it is reported once.
    let mut run = Run::new(10_000);
    (0..3).for_each(|nth| run.add(nth));
    run.server.answers((0..500).map(|_| said(422)));
    run.run(HOUR * 10);
    assert_eq!(run.counts(), (0, 3, 0));
    assert_eq!(run.reports.len(), 1, "{:?}", run.reports);
    lock(&run.server.answers).clear();
    run.run(HOUR * 11);
    assert_eq!(run.counts(), (3, 0, 0));

    // The profile's fault: the others are accepted, and it is dropped.
    let mut run = Run::new(10_000);
    (0..3).for_each(|nth| run.add(nth));
    run.server.answers([said(422), said(200), said(422)]);
    run.run(HOUR);
    assert_eq!(run.server.got(), [0, 2, 0, 1].map(|nth| format!("name=n{nth}")));
    assert_eq!(run.counts(), (2, 0, 1));
    let [only] = &run.reports[..] else { panic!("{:?}", run.reports) };
    assert!(only.contains("does not take a profile, which is dropped: it answers 422"), "{only}");

    // A single profile waits for the next one, which shows what is at fault.
    let mut run = Run::new(10_000);
    run.add(0);
    run.server.answers([said(422), said(422), said(422)]);
    run.run(Duration::from_secs(4));
    assert_eq!(run.counts(), (0, 1, 0));
    run.add(1);
    run.server.answers([said(200), said(422)]);
    run.run(HOUR);
    assert_eq!(run.server.got(), [0, 0, 0, 1, 0].map(|nth| format!("name=n{nth}")));
    assert_eq!(run.counts(), (1, 0, 1));
}

#[test]
fn without_a_right_it_waits_long_and_drops_nothing() {
    let mut run = Run::new(10_000);
    run.add(0);
    run.server.answers((0..1000).map(|_| said(403)));
    let pauses = run.run(HOUR);
    assert!((11..=13).contains(&pauses), "{pauses} tries in an hour");
    assert_eq!(run.reports.len(), 1, "{:?}", run.reports);
    assert!(
        run.reports[0].contains("403") && run.reports[0].contains("--push-token-file"),
        "{}",
        run.reports[0]
    );
    // The problem changes and is reported again: now the connection fails.
    lock(&run.server.answers).clear();
    run.server.answers([said(301), down()]);
    run.run(HOUR * 2);
    assert_eq!(run.courier.sent(), 1);
    assert!(
        run.reports[1].starts_with("cannot push")
            && run.reports[2].starts_with("profiles are pushed again; 0"),
        "{:?}",
        run.reports
    );
}

#[test]
fn it_comes_again_when_the_server_says() {
    let mut run = Run::new(10_000);
    run.add(0);
    let after = |seconds| Answer::Said {
        status: 429,
        retry_after: Some(Duration::from_secs(seconds)),
        words: String::new(),
    };
    run.server.answers([after(100), after(1_000_000)]);
    assert_eq!(run.step(false), Next::At(Duration::from_secs(101)));
    run.now = Duration::from_secs(100);
    assert_eq!(run.step(false), Next::At(Duration::from_secs(101)));
    assert_eq!(run.server.got().len(), 1);
    run.now = Duration::from_secs(101);
    assert_eq!(
        run.step(false),
        Next::At(Duration::from_secs(101 + 3601)),
        "but not as late as it likes"
    );
}

#[test]
fn at_the_end_no_pause_counts() {
    let mut run = Run::new(10_000);
    (0..2).for_each(|nth| run.add(nth));
    run.server.answers([down()]);
    assert!(matches!(run.step(false), Next::At(_)));
    assert!(matches!(run.step(false), Next::At(_)));
    assert_eq!(run.server.got().len(), 1);
    assert_eq!(
        (run.step(true), run.step(true), run.step(true)),
        (Next::Again, Next::Again, Next::Idle)
    );
    assert_eq!(run.courier.sent(), 2);
}
