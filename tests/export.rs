//! Profiles as files, from events of a sampler: events -> recorder -> snapshot -> every format.
//!
//! The golden files are under tests/snapshots; `INSTA_UPDATE=always cargo test --test export`
//! writes them anew.

use std::sync::Arc;

use sampletop::config::Format;
use sampletop::formats;
use sampletop::model::facts::recorder::{Limits, Recorder};
use sampletop::model::facts::snapshot::{Health, Session, Snapshot, Target};
use sampletop::model::facts::tables::{FrameKind, Location, Named, Tier};
use sampletop::model::projection::settings::{
    Filter, Filters, Level, Metric, Range, RollUp, Settings,
};
use sampletop::model::vocabulary::event::{
    Counters, Event, Losses, Observation, Seen, Syscall, Tick,
};
use sampletop::model::vocabulary::frame::{
    FileId, FrameCode, Marker, Ns, RawFrame, RawName, SECOND, ThreadKey,
};
use serde_json::Value;

const MS: Ns = 1_000_000;
const START: Ns = 1000 * SECOND;
const PID: u32 = 4321;

/// Function, file, line, module: a frame's offset is its place here.
const FRAMES: &[(&str, &str, u32, &str)] = &[
    ("_start", "", 0, "shop"),
    ("main", "/src/shop/main.c", 40, "shop"),
    ("shop::serve", "/src/shop/serve.cpp", 88, "shop"),
    ("shop::Cart<Item>::checkout", "/src/shop/cart.cpp", 154, "shop"),
    ("shop::price", "/src/shop/price.cpp", 31, "shop"),
    ("shop::round", "/src/shop/price.cpp", 12, "shop"),
    ("pg::query", "/src/pg/query.c", 7, "libpg.so.5"),
    ("recv", "", 0, "libc.so.6"),
    ("epoll_wait", "", 0, "libc.so.6"),
    ("pthread_mutex_lock", "", 0, "libc.so.6"),
    ("shop::Stock::take", "/src/shop/stock.cpp", 9, "shop"),
    ("größe\u{4e16}", "/src/shop/größe.cpp", 3, "shop"),
];

const EPOLL_WAIT: Syscall = Syscall { number: 232, args: [4, 0, 64, u64::MAX, 0, 0] };
const RECVFROM: Syscall = Syscall { number: 45, args: [37, 0, 4096, 0, 0, 0] };
const FUTEX: Syscall = Syscall { number: 202, args: [0x7000, 128, 2, 0, 0, 0] };

fn frame(name: &str) -> RawFrame {
    let offset =
        FRAMES.iter().position(|f| f.0 == name).unwrap_or_else(|| panic!("{name} is no frame"));
    RawFrame::new(FrameCode::Code { file: FileId(1), offset: offset as u64, exact: false })
}

/// Written outermost first.
fn frames(stack: &str) -> Vec<RawFrame> {
    stack.split(' ').rev().map(frame).collect()
}

fn named(raw: RawFrame) -> Named {
    let FrameCode::Code { offset, .. } = raw.decode() else { panic!("only code wants a name") };
    let (function, file, line, module) = FRAMES[offset as usize];
    let location = |function: &str, tier| Location {
        function: function.into(),
        module: module.into(),
        file: (!file.is_empty()).then(|| file.into()),
        line: (line > 0).then_some(line),
        kind: FrameKind::Native,
        tier,
    };
    let mut locations = vec![location(function, None)];
    // One function is inlined into another everywhere.
    if function == "shop::round" {
        locations.push(location("shop::half_up", Some(Tier::Inlined)));
    }
    let build_id = (module == "shop").then(|| "8f3e21c0a1b2c3d4e5f60718293a4b5c6d7e8f90".into());
    Named { build_id, ..Named::known(locations) }
}

fn thread(tid: u32) -> ThreadKey {
    ThreadKey { pid: PID, tid, start: 7 }
}

fn observe(
    at: Ns,
    tid: u32,
    name: &str,
    seen: Seen,
    run_ns: u64,
    runs: u64,
    stack: Vec<RawFrame>,
) -> Event {
    Event::Observation(Observation {
        counters: Some(Counters { run_ns, delay_ns: 0, runs }),
        stack,
        ..Observation::new(at, thread(tid), RawName::new(name.as_bytes()), seen)
    })
}

/// Four seconds of a shop. Main waits in epoll; worker-1 computes, three of four samples in
/// `round`; worker-2 waits for the database for two seconds, then for a mutex; worker-3 waits for
/// the database, and its stack is cut.
fn shop() -> Snapshot {
    let base = "_start main shop::serve";
    let checkout = format!("{base} shop::Cart<Item>::checkout");
    let computing =
        [format!("{checkout} shop::price shop::round"), format!("{checkout} größe\u{4e16}")];
    let mut recorder = Recorder::new(START, Limits::default());
    for n in 0..=400_u64 {
        let at = START + n * 10 * MS;
        if n == 0 {
            let epoll = frames(&format!("{base} epoll_wait"));
            recorder.apply(&observe(at, PID, "shop", Seen::Blocked(EPOLL_WAIT), 5 * MS, 3, epoll));
            let query = frames(&format!("{checkout} pg::query recv"));
            recorder.apply(&observe(at, 4323, "worker-2", Seen::Blocked(RECVFROM), MS, 10, query));
            let mut cut = frames("shop::Cart<Item>::checkout pg::query recv");
            cut.push(RawFrame::marker(Marker::Truncated));
            recorder.apply(&observe(at, 4324, "worker-3", Seen::Blocked(RECVFROM), MS, 10, cut));
        }
        if n == 200 {
            let lock = frames(&format!("{checkout} shop::Stock::take pthread_mutex_lock"));
            recorder.apply(&observe(at, 4323, "worker-2", Seen::Blocked(FUTEX), MS, 11, lock));
        }
        let stack = frames(&computing[usize::from(n % 4 == 0)]);
        recorder.apply(&observe(at, 4322, "worker-1", Seen::OnCpu, (50 + n * 10) * MS, 1, stack));
        recorder.apply(&Event::Tick(Tick {
            late_ns: 20_000,
            losses: Losses { samples: 4 + n, truncated: 1, ..Losses::default() },
            ..Tick::new(at, PID)
        }));
    }
    snapshot(recorder, START + 4 * SECOND)
}

/// Names everything, ends the session, and sets the snapshot's metadata.
fn snapshot(mut recorder: Recorder, till: Ns) -> Snapshot {
    for raw in recorder.take_unnamed() {
        recorder.set_named(raw, named(raw));
    }
    recorder.close(till);
    let view = recorder.view();
    Snapshot {
        session: Arc::new(Session {
            version: "0.1.0".into(),
            host: "node7".into(),
            kernel: "6.18.0".into(),
            cores_milli: 4000,
            started: START,
            started_unix_ns: 1_767_323_045_123_000_000,
            interval_ns: 10 * MS,
            max_overhead_percent: None,
            wanted: Default::default(),
        }),
        targets: Arc::new([Target {
            pid: PID,
            start: 7,
            command: "shop --config /etc/shop.conf".into(),
            runtime: "native",
            uid: 1000,
            unit: Some("shop.service".into()),
            started_unix_ns: 1_767_323_000_000_000_000,
            ended: None,
        }]),
        at: view.at,
        capture: "perf".into(),
        health: Health {
            ticks: view.ticks,
            losses: view.losses,
            interval_achieved_ns: 10 * MS,
            visit_interval_ns: 50 * MS,
            late_p99_ns: 20_000,
            self_cpu_percent: 0.4,
            total_cpu_percent: 0.9,
            ..Health::default()
        },
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

/// Waits that began together, in one function with two callers, have the thread of each.
#[test]
fn equal_waits_have_their_own_threads() {
    let mut recorder = Recorder::new(START, Limits::default());
    let base = "_start main shop::serve";
    for (tid, callers) in [(1, "shop::Cart<Item>::checkout pg::query"), (2, "pg::query")] {
        let stack = frames(&format!("{base} {callers} recv"));
        let name = format!("worker-{tid}");
        recorder.apply(&observe(START, tid, &name, Seen::Blocked(RECVFROM), MS, 10, stack));
    }
    for n in 0..=200 {
        recorder.apply(&Event::Tick(Tick::new(START + n * 10 * MS, PID)));
    }
    let snapshot = snapshot(recorder, START + 2 * SECOND);
    let mut bytes = Vec::new();
    let settings = Settings { level: Level::All, ..whole() };
    formats::write(Format::Text, &snapshot, &settings, &mut bytes).expect("memory takes it");
    let text = String::from_utf8(bytes).expect("UTF-8");
    let rows = waits(&text).join("\n");
    let (one, two) = (rows.matches("worker-1").count(), rows.matches("worker-2").count());
    assert!(one > 0 && one == two, "{rows}");
}

fn whole() -> Settings {
    Settings { range: Range::Cumulative { since: None }, ..Settings::default() }
}

fn bytes(format: Format, settings: &Settings) -> Vec<u8> {
    let mut bytes = Vec::new();
    formats::write(format, &shop(), settings, &mut bytes).expect("memory takes it");
    bytes
}

fn written(format: Format, settings: &Settings) -> String {
    String::from_utf8(bytes(format, settings)).expect("UTF-8")
}

/// The rows of the longest waits.
fn waits(text: &str) -> Vec<&str> {
    text.lines()
        .skip_while(|l| !l.starts_with("10 LONGEST"))
        .skip(2)
        .take_while(|l| !l.is_empty())
        .collect()
}

fn json(settings: &Settings) -> Value {
    serde_json::from_str(&written(Format::Json, settings)).expect("it is JSON")
}

fn group<'a>(profile: &'a Value, name: &str) -> &'a Value {
    let groups = profile["groups"].as_array().expect("groups");
    groups
        .iter()
        .find(|g| g["name"] == name)
        .unwrap_or_else(|| panic!("no group {name}: {profile}"))
}

/// The node reached by these functions from a root.
fn node<'a>(group: &'a Value, path: &[&str]) -> &'a Value {
    let nodes = group["nodes"].as_array().expect("a list");
    let mut at = None;
    for name in path {
        let is_it = |node: &Value| node["frame"] == *name && node["parent"].as_u64() == at;
        let found = nodes
            .iter()
            .position(is_it)
            .unwrap_or_else(|| panic!("no {name} below {at:?}: {group}"));
        at = Some(found as u64);
    }
    &nodes[at.expect("a path") as usize]
}

#[test]
fn text_is_what_it_was() {
    let mine = Settings { level: Level::Mine, ..whole() };
    insta::assert_snapshot!("text", written(Format::Text, &mine));
    insta::assert_snapshot!("text_all", written(Format::Text, &whole()));
}

#[test]
fn a_short_text_keeps_its_tree_longer_than_its_legend() {
    let snapshot = shop();
    let within = |max: usize| {
        let mut bytes = Vec::new();
        formats::text::write_within(&snapshot, &whole(), max, &mut bytes).expect("memory");
        String::from_utf8(bytes).expect("text")
    };
    let tree = |text: &str| {
        let lines = text.lines().skip_while(|line| !line.starts_with("TREE"));
        lines.take_while(|line| !line.is_empty()).count()
    };
    let all = within(1_000);
    let (length, of_tree) = (all.lines().count(), tree(&all));
    assert_eq!(within(length), all);
    let legend = all.lines().skip_while(|line| *line != "LEGEND").count();
    let one_less = within(length - 1);
    assert!(tree(&one_less) == of_tree && !one_less.contains("LEGEND"), "{one_less}");
    // One line more is blank, before the legend.
    let shorter = within(length - legend - 3);
    assert!((2..of_tree).contains(&tree(&shorter)), "{shorter}");
    for max in 1..length {
        assert!(within(max).lines().count() <= max, "{max}");
    }
}

#[test]
fn a_text_of_idle_threads_shows_them_at_each_level() {
    let threads = Filter::set(regex::Regex::new("^shop$").expect("a pattern"));
    for level in Level::ALL {
        let filters = Filters { threads: threads.clone(), ..Filters::default() };
        let text = written(Format::Text, &Settings { level, filters, ..whole() });
        for line in [
            "! nothing to see: 1 thread waits for work\n",
            "Idle         shown, because there is nothing else\n",
            "all           4.000    100.0    1.00\n",
        ] {
            assert!(text.contains(line), "{line} at {level:?}: {text}");
        }
        let tree = &text[text.find("TREE").expect("a tree")..text.find("TOP").expect("a table")];
        assert!(tree.contains("epoll_wait"), "{level:?}: {tree}");
    }
}

#[test]
fn a_page_of_idle_threads_shows_them_at_each_level() {
    let threads = Filter::set(regex::Regex::new("^shop$").expect("a pattern"));
    let filters = Filters { threads, ..Filters::default() };
    let page = written(Format::Html, &Settings { level: Level::Mine, filters, ..whole() });
    let data = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next());
    let data: Value = serde_json::from_str(data.expect("data")).expect("JSON");
    assert_eq!(data["level"], 0);
    for tree in data["levels"].as_array().expect("levels") {
        // Its wall time is in the state poll, number 5.
        let poll: u64 = tree["own"]
            .as_array()
            .expect("figures")
            .iter()
            .map(|own| if own[4] == 5 { own[5].as_u64().expect("ns") } else { 0 })
            .sum();
        assert_eq!(poll, 4 * SECOND, "{tree}");
    }
}

#[test]
fn json_is_what_it_was() {
    // The exact bytes, except for a line break before every node.
    insta::assert_snapshot!(
        "json",
        written(Format::Json, &whole()).replace("{\"parent\"", "\n{\"parent\"")
    );
}

#[test]
fn folded_is_what_it_was() {
    insta::assert_snapshot!("folded", written(Format::Folded, &whole()));
}

#[test]
fn json_says_what_happened() {
    let profile = json(&whole());
    assert_eq!((&profile["elapsed_ms"], &profile["capture"]), (&4000.0.into(), &"perf".into()));
    let workers = group(&profile, "worker-");
    assert_eq!(workers["threads"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        workers["threads"][0],
        serde_json::json!({"pid": 4321, "tid": 4322, "name": "worker-1", "kind": "plain"})
    );
    // Three threads for four seconds, one of them on a core. The observation that found worker-2 in
    // another wait gets the 10 ms since the previous one.
    assert_eq!((&workers["wall_ms"], &workers["cpu_ms"]), (&12_000.0.into(), &4000.0.into()));
    assert_eq!(workers["states_ms"]["run"], 4000.0);
    assert_eq!(workers["states_ms"]["io"], 5990.0);
    let checkout = ["_start", "main", "shop::serve", "shop::Cart<Item>::checkout"];
    let round =
        node(workers, &[&checkout[..], &["shop::price", "shop::round", "shop::half_up"]].concat());
    assert_eq!((&round["self_wall_ms"], &round["self_cpu_ms"]), (&3000.0.into(), &3000.0.into()));
    assert_eq!((&round["self_hits"], &round["tier"]), (&300.into(), &"inlined".into()));
    let lock =
        node(workers, &[&checkout[..], &["shop::Stock::take", "pthread_mutex_lock"]].concat());
    assert_eq!(
        (&lock["self_wall_ms"], &lock["states_ms"]["lock"]),
        (&2010.0.into(), &2010.0.into())
    );
    let query = node(workers, &[&checkout[..], &["pg::query", "recv"]].concat());
    assert_eq!((&query["longest_ms"], &query["hits"]), (&1990.0.into(), &1.into()));
    let marker = &workers["nodes"]
        .as_array()
        .expect("nodes")
        .iter()
        .find(|n| n["kind"] == "marker")
        .expect("a cut stack");
    assert_eq!(marker["wall_ms"], 4000.0);
    // Idle time is there, independent of the settings.
    assert_eq!(group(&profile, "shop")["states_ms"]["poll"], 4000.0);
}

#[test]
fn filters_and_grouping_are_those_of_the_settings() {
    let mut settings = whole();
    settings.filters.focus = Filter::set(regex::Regex::new("price").expect("a pattern"));
    settings.filters.min_percent = Filter::set(99.0);
    settings.metric = Metric::Cpu;
    settings.roll_up = RollUp::Line;
    settings.grouping = sampletop::model::projection::settings::Grouping::Thread;
    let profile = json(&settings);
    assert_eq!((&profile["metric"], &profile["rolled_up"]), (&"cpu".into(), &"line".into()));
    assert_eq!(
        (&profile["settings"]["group"], &profile["settings"]["focus"]),
        (&"thread".into(), &"price".into())
    );
    let groups = profile["groups"].as_array().expect("groups");
    assert_eq!(groups.len(), 1, "{profile}");
    assert_eq!(groups[0]["wall_ms"], 3000.0);
    // Hidden time is reported: with it, the groups hold the four threads' four seconds.
    assert_eq!(profile["settings"]["hidden_ms"]["focus"], 13_000.0);
}

#[test]
fn folded_hides_idle_time_unless_it_is_asked_for() {
    assert!(!written(Format::Folded, &whole()).contains("epoll_wait"));
    let all = written(Format::Folded, &Settings { idle: true, ..whole() });
    assert!(all.contains("shop;_start;main;shop::serve;epoll_wait 4000000\n"), "{all}");
    let sum: u64 = all
        .lines()
        .map(|l| l.rsplit_once(' ').expect("a value").1.parse::<u64>().expect("a number"))
        .sum();
    assert_eq!(sum, 16_000_000);
}

#[test]
fn the_longest_waits_name_their_threads() {
    let text = written(Format::Text, &whole());
    let waits = waits(&text);
    assert!(
        waits[0].contains("4.000  2026-01-02 03:04:05.123  io       worker-3         recv"),
        "{text}"
    );
    assert!(
        waits[1].contains(
            "2.010  2026-01-02 03:04:07.113  lock     worker-2         pthread_mutex_lock"
        ),
        "{text}"
    );
    assert!(
        waits[2].contains("1.990  2026-01-02 03:04:05.123  io       worker-2         recv"),
        "{text}"
    );
}

#[test]
fn waits_that_began_together_keep_their_own_threads() {
    let mut recorder = Recorder::new(START, Limits::default());
    let waiting = [
        (4322, "worker-1", RECVFROM, "pg::query recv"),
        (4323, "worker-2", FUTEX, "pthread_mutex_lock"),
    ];
    for (tid, name, call, stack) in waiting {
        let stack = frames(&format!("_start main {stack}"));
        recorder.apply(&observe(START, tid, name, Seen::Blocked(call), MS, 3, stack));
    }
    let tick = |at| {
        let losses = Losses { samples: 2, ..Losses::default() };
        Event::Tick(Tick { losses, ..Tick::new(at, PID) })
    };
    for n in 0..=50 {
        recorder.apply(&tick(START + n * 10 * MS));
    }
    let mut out = Vec::new();
    let snapshot = snapshot(recorder, START + SECOND / 2);
    formats::text::write(&snapshot, &whole(), &mut out).expect("memory takes everything");
    let text = String::from_utf8(out).expect("UTF-8");
    let mut waits = waits(&text);
    waits.sort_unstable();
    assert!(waits[0].contains("0.500") && waits[1].contains("0.500"), "{text}");
    assert!(waits[0].contains("io       worker-1         recv"), "{text}");
    assert!(waits[1].contains("lock     worker-2         pthread_mutex_lock"), "{text}");
}

#[test]
fn equal_profiles_give_equal_files() {
    for &format in Format::ALL {
        assert!(bytes(format, &whole()) == bytes(format, &whole()), "{format:?}");
    }
}
