//! From the sampler's events to the view: recorder, history and projection together.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use regex::Regex;
use sampletop::model::facts::recorder::{Limits, Recorder};
use sampletop::model::facts::snapshot::{Health, Session, Snapshot};
use sampletop::model::facts::tables::{FrameKind, Location, Named};
use sampletop::model::projection::settings::{
    Filter, Filters, Grouping, Metric, NativeFrames, Range, RollUp, Settings,
};
use sampletop::model::projection::{Group, Projection, Projector, Totals, project};
use sampletop::model::vocabulary::event::{Counters, Event, Observation, Seen, Syscall, Tick};
use sampletop::model::vocabulary::frame::{
    FileId, FrameCode, Ns, RawFrame, RawName, SECOND, ThreadKey,
};

const MS: Ns = 1_000_000;
const START: Ns = 5 * SECOND;
const EPOLL_WAIT: i32 = 232;
const FUTEX: i32 = 202;
const READ: i32 = 0;

/// Names of frames; the index is the frame's offset.
const FUNCTIONS: &[&str] = &[
    "start",
    "main",
    "cart",
    "pay",
    "rayon_core::sleep::Sleep::sleep",
    "copy",
    "pthread_cond_wait",
];

fn frame(function: usize) -> RawFrame {
    RawFrame::new(FrameCode::Code { file: FileId(1), offset: function as u64, exact: false })
}

fn named(function: usize) -> Named {
    let location = Location {
        function: FUNCTIONS[function].into(),
        module: "app".into(),
        file: Some("/src/app.c".into()),
        line: Some(10 + function as u32),
        kind: FrameKind::Native,
        tier: None,
    };
    Named::known([location])
}

fn thread(tid: u32) -> ThreadKey {
    ThreadKey { pid: 9, tid, start: 1 }
}

/// A session: a recorder, the clock, and the run time of each thread.
struct Run {
    recorder: Recorder,
    session: Arc<Session>,
    at: Ns,
    ran: BTreeMap<u32, Counters>,
}

impl Run {
    fn new() -> Run {
        let session = Session {
            version: "0".into(),
            host: "here".into(),
            kernel: "6".into(),
            cores_milli: 4000,
            started: START,
            started_unix_ns: 0,
            interval_ns: 10 * MS,
            max_overhead_percent: None,
            wanted: Default::default(),
        };
        Run {
            recorder: Recorder::new(START, Limits::default()),
            session: session.into(),
            at: START,
            ran: BTreeMap::new(),
        }
    }

    /// Names the frames that wait for a name.
    fn name_frames(&mut self) {
        for raw in self.recorder.take_unnamed() {
            if let FrameCode::Code { offset, .. } = raw.decode() {
                self.recorder.set_named(raw, named(offset as usize));
            }
        }
    }

    fn observe(&mut self, tid: u32, name: &str, seen: Seen, outermost_first: &[usize], ran: Ns) {
        let counters = self.ran.entry(tid).or_default();
        counters.run_ns += ran;
        counters.runs += 1;
        self.recorder.apply(&Event::Observation(Observation {
            counters: Some(*counters),
            stack: outermost_first.iter().rev().map(|function| frame(*function)).collect(),
            ..Observation::new(self.at, thread(tid), RawName::new(name.as_bytes()), seen)
        }));
    }

    fn tick(&mut self) {
        self.recorder.apply(&Event::Tick(Tick::new(self.at, 9)));
    }

    fn snapshot(&mut self) -> Snapshot {
        let view = self.recorder.view();
        Snapshot {
            session: self.session.clone(),
            targets: [].into(),
            at: view.at,
            capture: "perf".into(),
            health: Health::default(),
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
}

fn blocked(number: i32) -> Seen {
    Seen::Blocked(Syscall { number, args: [0; 6] })
}

/// One tick of a random session: this many ms later, one thread moved.
#[derive(Clone, Debug)]
struct Step {
    after_ms: u64,
    tid: u32,
    renamed: bool,
    seen: usize,
    stack: Vec<usize>,
    /// Share of the time since the last tick that it ran, percent.
    ran: u64,
}

prop_compose! {
    fn step()(
        after_ms in 1u64..400,
        tid in 1u32..5,
        renamed in prop::bool::weighted(0.1),
        seen in 0usize..5,
        stack in prop::collection::vec(0..FUNCTIONS.len(), 1..6),
        ran in 0u64..=100,
    ) -> Step {
        Step { after_ms, tid, renamed, seen, stack, ran }
    }
}

impl Run {
    fn step(&mut self, step: &Step) {
        self.at += step.after_ms * MS;
        let seen = match step.seen {
            0 | 1 => Seen::OnCpu,
            2 => blocked(EPOLL_WAIT),
            3 => blocked(FUTEX),
            _ => blocked(READ),
        };
        let name = if step.renamed { "GET /7".to_owned() } else { format!("work-{}", step.tid) };
        self.observe(step.tid, &name, seen, &step.stack, step.after_ms * MS * step.ran / 100);
        self.tick();
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

prop_compose! {
    fn settings()(
        metric in prop::sample::select(&Metric::ALL[..]),
        roll_up in prop::sample::select(&RollUp::ALL[..]),
        by in 0usize..6,
        (interesting, focus, ignore, hide, threads) in any::<(bool, bool, bool, bool, bool)>(),
        idle in any::<bool>(),
    ) -> Settings {
        fn on<T>(on: bool, value: T) -> Filter<T> {
            Filter { value: Some(value), on }
        }
        let grouping = match by {
            0 => Grouping::Rules,
            1 => Grouping::Name,
            2 => Grouping::Thread,
            3 => Grouping::Process,
            4 => Grouping::None,
            _ => Grouping::Frame(pattern("cart|pay")),
        };
        let filters = Filters {
            interesting: on(interesting, vec!["cart".to_owned()]),
            focus: on(focus, pattern("main|copy")),
            ignore: on(ignore, pattern("pay")),
            hide: on(hide, pattern("^start$|copy")),
            no_kernel: hide,
            native: if ignore { NativeFrames::None } else { NativeFrames::Auto },
            threads: on(threads, pattern("work-[12]")),
            skip_daemon: ignore,
            gil: false,
            min_percent: Filter::default(),
        };
        Settings { metric, roll_up, grouping, filters, idle, ..Settings::default() }
    }
}

/// wall, cpu, hits, on-CPU hits
fn components<'a>(totals: impl IntoIterator<Item = &'a Totals>) -> [u64; 4] {
    totals.into_iter().fold([0; 4], |sum, t| {
        let more = [t.wall_ns, t.cpu_ns, t.hits, t.cpu_hits];
        std::array::from_fn(|i| sum[i] + more[i])
    })
}

/// Returns what a projection reports of every ns of its range, shown or hidden.
fn accounted(projection: &Projection) -> [u64; 4] {
    components(projection.hidden.parts().into_iter().chain([&projection.total]))
}

/// Returns the same from the facts themselves.
fn booked(snapshot: &Snapshot, range: Range) -> [u64; 4] {
    let mut sum = [0; 4];
    snapshot.history.read(range, snapshot.at, &mut |_, w| {
        let more = [w.wall_ns, w.cpu_ns, u64::from(w.hits), u64::from(w.cpu_hits)];
        sum = std::array::from_fn(|i| sum[i] + more[i]);
    });
    sum
}

const EVERYTHING: Range = Range::Cumulative { since: None };

/// Returns wall and CPU time of each group of a range. (A wait over the end of a range is a hit of
/// the next one, too.) Threads are told apart by number, because a group of one has the newest
/// name.
fn groups(snapshot: &Snapshot, range: Range, settings: &Settings) -> BTreeMap<String, [u64; 2]> {
    let projection = project(snapshot, &Settings { range, ..settings.clone() });
    let by_thread = matches!(settings.grouping, Grouping::Thread);
    let name = |group: &Group| match (by_thread, group.threads.first()) {
        (true, Some(of)) => of.thread.tid.to_string(),
        _ => group.name.to_string(),
    };
    let time = |group: &Group| [group.total.wall_ns, group.total.cpu_ns];
    let groups = projection.groups.iter().map(|group| (name(group), time(group)));
    groups.filter(|(_, time)| *time != [0; 2]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn shown_and_hidden_are_everything(
        steps in prop::collection::vec(step(), 1..80),
        settings in settings(),
        window_ms in 1u64..20_000,
        mark_ms in 0u64..20_000,
    ) {
        let mut run = Run::new();
        steps.iter().for_each(|step| run.step(step));
        run.name_frames();
        let snapshot = run.snapshot();
        let mark = Some(START + mark_ms * MS);
        for range in [EVERYTHING, Range::Rolling(window_ms * MS), Range::Cumulative { since: mark }] {
            let projection = project(&snapshot, &Settings { range, ..settings.clone() });
            prop_assert_eq!(accounted(&projection), booked(&snapshot, range), "{:?}", range);
            let own = projection.methods().iter().map(|m| &m.own).chain(projection.groups.iter().map(|g| &g.own));
            prop_assert_eq!(components(own), components([&projection.total]));
            prop_assert!(projection.till >= projection.from);
        }
    }

    #[test]
    fn rolling_over_everything_is_cumulative(steps in prop::collection::vec(step(), 1..80), settings in settings()) {
        let mut run = Run::new();
        steps.iter().for_each(|step| run.step(step));
        run.name_frames();
        let snapshot = run.snapshot();
        let all = project(&snapshot, &Settings { range: EVERYTHING, ..settings.clone() });
        let range = Range::Rolling(run.at - START);
        let mut rolling = project(&snapshot, &Settings { range, ..settings });
        // What was sealed keeps the longest wait of each fact in the cumulative table, and of each
        // fact and bucket in history.
        for wait in &all.long_waits {
            prop_assert!(rolling.long_waits.contains(wait), "{wait:?}");
        }
        let longest = |projection: &Projection| projection.long_waits.iter().map(|w| w.duration_ns).max();
        prop_assert_eq!(longest(&all), longest(&rolling));
        rolling.long_waits.clone_from(&all.long_waits);
        prop_assert_eq!(format!("{all:?}"), format!("{rolling:?}"));
    }

    /// With idle time: what else is in the range decides what is hidden as idle.
    #[test]
    fn groups_of_parts_add_up_to_those_of_the_whole(
        steps in prop::collection::vec(step(), 1..80),
        settings in settings(),
        cut in 0.0..1.0f64,
    ) {
        let mut run = Run::new();
        steps.iter().for_each(|step| run.step(step));
        run.name_frames();
        // A range ends before its end: the last sample is within.
        run.at += MS;
        run.tick();
        let snapshot = run.snapshot();
        let settings = Settings { idle: true, ..settings };
        let (from, till) = (START, snapshot.at);
        let middle = from + ((till - from) as f64 * cut) as Ns;
        let mut sums: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        for (from, till) in [(from, middle), (middle, till)].into_iter().filter(|(from, till)| from < till) {
            for (name, more) in groups(&snapshot, Range::Between { from, till }, &settings) {
                let sum = sums.entry(name).or_default();
                *sum = std::array::from_fn(|i| sum[i] + more[i]);
            }
        }
        prop_assert_eq!(sums, groups(&snapshot, Range::Between { from, till }, &settings));
    }

    #[test]
    fn a_projector_that_follows_a_session_gives_what_a_fresh_one_gives(
        scan in prop::collection::vec((prop::collection::vec(step(), 0..15), any::<bool>(), any::<bool>()), 1..8),
        settings in prop::collection::vec(settings(), 2),
    ) {
        let mut run = Run::new();
        let mut projector = Projector::default();
        for (steps, names, other) in scan {
            steps.iter().for_each(|step| run.step(step));
            if names {
                run.name_frames();
            }
            let snapshot = run.snapshot();
            let settings = &settings[usize::from(other)];
            let (again, fresh) = (projector.project(&snapshot, settings), project(&snapshot, settings));
            prop_assert_eq!(format!("{again:?}"), format!("{fresh:?}"));
        }
    }
}

#[test]
fn four_workers_are_one_group_with_their_shares() {
    let mut run = Run::new();
    let names = ["work-1", "work-2", "work-3", "work-4"];
    for (tid, name) in (1..).zip(names) {
        run.observe(tid, name, Seen::OnCpu, &[0, 1], 0);
    }
    run.tick();
    // 100 ticks of 10 ms: 60 in cart, 30 in pay, 10 in copy below pay.
    for tick in 0..100 {
        run.at += 10 * MS;
        let stack: &[usize] = match tick % 10 {
            0..6 => &[0, 1, 2],
            6..9 => &[0, 1, 3],
            _ => &[0, 1, 3, 5],
        };
        for (tid, name) in (1..).zip(names) {
            run.observe(tid, name, Seen::OnCpu, stack, 10 * MS);
        }
        run.tick();
    }
    run.name_frames();
    let projection =
        project(&run.snapshot(), &Settings { range: EVERYTHING, ..Settings::default() });
    let [group] = &projection.groups[..] else { panic!("one group: {:?}", projection.groups) };
    assert_eq!((&*group.name, group.threads.len()), ("work-", 4));
    let shares: BTreeMap<&str, (u64, u64)> = projection
        .methods()
        .iter()
        .map(|m| {
            let percent = |totals: &Totals| {
                (totals.share(Metric::Cpu, &projection.total) * 100.0).round() as u64
            };
            (&*m.location(Metric::Wall).function, (percent(&m.total), percent(&m.own)))
        })
        .collect();
    let expected = [
        ("cart", (60, 60)),
        ("copy", (10, 10)),
        ("main", (100, 0)),
        ("pay", (40, 30)),
        ("start", (100, 0)),
    ];
    assert_eq!(shares, BTreeMap::from(expected));
    assert_eq!(projection.total.threads(Metric::Wall, projection.elapsed()).round(), 4.0);
}

#[test]
fn a_parked_pool_is_idle_until_nothing_else_is_left() {
    let mut run = Run::new();
    run.observe(1, "pool-1", blocked(FUTEX), &[0, 4, 6], 0);
    run.observe(2, "main", blocked(FUTEX), &[0, 1, 6], 0);
    for _ in 0..20 {
        run.tick();
        run.at += 100 * MS;
    }
    run.tick();
    run.name_frames();
    let snapshot = run.snapshot();
    let mut settings = Settings { range: EVERYTHING, ..Settings::default() };
    let shown = project(&snapshot, &settings);
    assert_eq!(shown.groups.iter().map(|g| &*g.name).collect::<Vec<_>>(), ["main"]);
    assert_eq!((shown.hidden.idle.wall_ns, shown.hidden.idle_threads), (2 * SECOND, 1));
    settings.filters.threads = Filter::set(pattern("pool"));
    let only = project(&snapshot, &settings);
    assert!(only.only_idle);
    assert_eq!((only.total.wall_ns, only.hidden.threads.wall_ns), (2 * SECOND, 2 * SECOND));
}

/// A server with a thread, and a name, per request: the raw names exceed the limit, their groups do
/// not.
#[test]
fn each_of_very_many_names_stays_in_its_group() {
    const KINDS: [&str; 10] =
        ["req", "pay", "cart", "mail", "sync", "scan", "push", "pull", "warm", "evict"];
    const THREADS: u32 = 300_000;
    let mut run = Run::new();
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for tid in 1..=THREADS {
        let kind = KINDS[tid as usize % KINDS.len()];
        let name = format!("{kind}-{tid}");
        run.observe(tid, &name, Seen::OnCpu, &[0, 1], 0);
        run.at += u64::from(tid % 3 + 1) * 100_000;
        let ran = u64::from(tid % 7 + 1) * 10_000;
        run.observe(tid, &name, Seen::OnCpu, &[0, 1], ran);
        *expected.entry(format!("{kind}-")).or_default() += ran;
        run.recorder.apply(&Event::ThreadEnded { at: run.at, thread: thread(tid), counters: None });
        if tid % 50 == 0 {
            run.tick();
        }
    }
    run.recorder.close(run.at);
    run.name_frames();
    let snapshot = run.snapshot();
    let settings =
        Settings { metric: Metric::Cpu, range: EVERYTHING, idle: true, ..Settings::default() };
    let projection = project(&snapshot, &settings);
    let found: BTreeMap<String, u64> = projection
        .groups
        .iter()
        .map(|group| (group.name.to_string(), group.total.cpu_ns))
        .collect();
    assert_eq!(found, expected);
}
