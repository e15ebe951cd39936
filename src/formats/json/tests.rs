use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::formats::fixture::{self, Stack, nesting, ran, service, stack, waited};
use crate::model::facts::recorder::{Limits, Recorder};
use crate::model::projection::settings::Filters;
use crate::model::vocabulary::event::{Event, Observation, Seen, Syscall};
use crate::model::vocabulary::frame::{FileId, FrameCode, RawFrame, RawName, ThreadKey};

fn written(stacks: &[Stack]) -> String {
    let mut out = Vec::new();
    let projection = fixture::projection(stacks);
    render(&fixture::snapshot(), &Settings::default(), &projection, &mut out)
        .expect("memory takes everything");
    String::from_utf8(out).expect("UTF-8")
}

fn read(stacks: &[Stack]) -> Value {
    serde_json::from_str(&written(stacks)).expect("it is JSON")
}

/// Returns every key, in written order.
fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is a list"))
}

#[test]
fn the_schema_is_kept_field_by_field() {
    let value = read(&service());
    let head = "schema version host targets modules from till elapsed_ms interval_ms interval_achieved_ms visit_interval_ms capture metric \
                rolled_up settings health findings locks deadlocks waits wakers groups";
    assert_eq!(keys(&value), head.split_whitespace().collect::<Vec<_>>());
    assert_eq!(keys(&value["targets"][0]), ["pid", "command", "runtime"]);
    let health = "ticks samples dropped truncated torn unwind_failed unwind_failed_by recovered throttled late late_p99_us stops \
                  stops_blocked stop_p99_us self_cpu_percent total_cpu_percent max_overhead_percent startup_ms";
    assert_eq!(keys(&value["health"]), health.split_whitespace().collect::<Vec<_>>());
    let group = &value["groups"][0];
    let fields = "name threads wall_ms cpu_ms hits cpu_hits longest_ms states_ms nodes";
    assert_eq!(keys(group), fields.split_whitespace().collect::<Vec<_>>());
    assert_eq!(keys(&group["threads"][0]), ["pid", "tid", "name", "kind"]);
    let states = ["run", "rdy", "lock", "wait", "io", "poll", "sleep", "disk", "stopped"];
    assert_eq!(keys(&group["states_ms"]), states);
    let node = "parent frame file line module kind tier role wall_ms self_wall_ms cpu_ms self_cpu_ms hits self_hits cpu_hits \
                longest_ms states_ms";
    assert_eq!(keys(&group["nodes"][0]), node.split_whitespace().collect::<Vec<_>>());
    assert_eq!(keys(&group["nodes"][0]["states_ms"]), states);
}

#[test]
fn what_filters_hide_is_told() {
    let settings = |settings: &Settings| {
        let mut projection = fixture::projection(&service());
        let hidden = &mut projection.hidden;
        let parts = [
            &mut hidden.threads,
            &mut hidden.daemons,
            &mut hidden.focus,
            &mut hidden.ignore,
            &mut hidden.gil,
        ];
        for (nth, part) in parts.into_iter().enumerate() {
            *part = ran(nth as u64 + 1, 1);
        }
        let mut out = Vec::new();
        render(&fixture::snapshot(), settings, &projection, &mut out).expect("memory");
        let mut value: Value = serde_json::from_slice(&out).expect("it is JSON");
        value["settings"].take()
    };
    let of = |skip_daemon, no_kernel, gil| {
        let mut with = Settings::default();
        with.filters = Filters { skip_daemon, no_kernel, gil, ..with.filters };
        let value = settings(&with);
        ["skip_daemon", "no_kernel", "gil"].map(|key| value[key] == true)
    };
    assert_eq!(of(true, false, false), [true, false, false]);
    assert_eq!(of(false, true, false), [false, true, false]);
    assert_eq!(of(false, false, true), [false, false, true]);
    let hidden = settings(&Settings::default())["hidden_ms"].take();
    let ms = ["threads", "daemons", "focus", "ignore", "gil"].map(|key| hidden[key].as_f64());
    assert_eq!(ms, [1.0, 2.0, 3.0, 4.0, 5.0].map(Some));
}

#[test]
fn values_are_those_of_the_profile() {
    let value = read(&service());
    assert_eq!(value["schema"], "sampletop/2");
    assert_eq!(value["from"], "2026-01-02T03:04:05.123Z");
    assert_eq!(value["till"], "2026-01-02T03:04:15.123Z");
    assert_eq!(value["elapsed_ms"], 10_000.0);
    assert_eq!(value["interval_ms"], 10.0);
    assert_eq!(value["interval_achieved_ms"], 10.02);
    assert_eq!(value["capture"], "perf");
    assert_eq!((&value["metric"], &value["rolled_up"]), (&"wall".into(), &"function".into()));
    assert_eq!(value["health"]["dropped"], 7);
    let failed = &value["health"]["unwind_failed_by"];
    assert_eq!(keys(failed), ["no_unwind_info", "bad_unwind", "outside_maps"]);
    assert_eq!((&failed["no_unwind_info"], &failed["bad_unwind"]), (&3.into(), &2.into()));
    assert_eq!(value["health"]["late_p99_us"], 123.456);
    let group = &value["groups"][0];
    assert_eq!(group["name"], "worker-");
    assert_eq!(group["wall_ms"], 9960.0);
    assert_eq!(group["longest_ms"], 2000.0);
    assert_eq!(group["states_ms"]["io"], 6000.0);
    let nodes = list(group, "nodes");
    assert_eq!((&nodes[1]["frame"], &nodes[1]["parent"]), (&"run".into(), &0.into()));
    assert_eq!((&nodes[0]["longest_ms"], &nodes[0]["self_hits"]), (&2000.0.into(), &0.into()));
    let price = nodes.iter().find(|node| node["frame"] == "price").expect("it ran");
    let path = path(nodes, price);
    assert_eq!(path.len(), 4, "{path:?}");
    assert_eq!(path[..2], ["start", "run"]);
    assert_eq!(
        (&price["frame"], &price["wall_ms"], &price["self_wall_ms"]),
        (&"price".into(), &2900.0.into(), &400.0.into())
    );
    assert_eq!(
        (&price["hits"], &price["self_hits"], &price["cpu_hits"]),
        (&290.into(), &40.into(), &290.into())
    );
    assert_eq!((&price["file"], &price["line"]), (&"/src/app/main.c".into(), &7.into()));
    assert_eq!(
        (&price["module"], &price["kind"], &price["tier"]),
        (&"/usr/bin/app".into(), &"native".into(), &Value::Null)
    );
}

#[test]
fn numbers_have_three_decimals_at_most() {
    let text = serde_json::to_string(&[
        Rounded(1.0 / 3.0),
        Rounded::ms(1_234_567_890),
        Rounded::us(499),
        Rounded(2.0),
    ]);
    assert_eq!(text.expect("numbers"), "[0.333,1234.568,0.499,2.0]");
}

#[test]
fn time_without_a_frame_is_a_root_of_its_own() {
    let value = read(&[
        stack("g", &["a", "b"], ran(30, 3)),
        stack("g", &[], ran(70, 7)),
        stack("h", &[], ran(5, 1)),
    ]);
    let nodes = list(&value["groups"][0], "nodes");
    assert_eq!(nodes.len(), 3);
    assert_eq!(
        (&nodes[2]["frame"], &nodes[2]["self_wall_ms"]),
        (&"[every frame hidden]".into(), &70.0.into())
    );
    assert_eq!(
        [&nodes[0]["parent"], &nodes[1]["parent"], &nodes[2]["parent"]],
        [&Value::Null, &0.into(), &Value::Null]
    );
    check_sums(&value);
}

#[test]
fn nodes_are_depth_first_and_the_heaviest_come_first() {
    let frames = |stacks: &[Stack]| -> Vec<String> {
        let value = read(stacks);
        let nodes = list(&value["groups"][0], "nodes");
        nodes.iter().map(|node| node["frame"].as_str().expect("a name").to_owned()).collect()
    };
    let expected = ["start", "run", "checkout", "query", "price", "round", "tax", "audit", "lock"];
    assert_eq!(frames(&service()), expected);
    let roots = [
        stack("g", &["a"], ran(5, 1)),
        stack("g", &["b", "c"], ran(9, 1)),
        stack("g", &["d"], ran(7, 1)),
    ];
    assert_eq!(frames(&roots), ["b", "c", "d", "a"]);
}

#[test]
fn idle_time_and_small_rows_are_always_there() {
    let mut recorder = Recorder::new(fixture::START, Limits::default());
    let mut observe = |at_ms: u64, tid: u32, seen: Seen, offsets: [u64; 2]| {
        let frame =
            |offset| RawFrame::new(FrameCode::Code { file: FileId(1), offset, exact: false });
        recorder.apply(&Event::Observation(Observation {
            stack: offsets.map(frame).to_vec(),
            ..Observation::new(
                fixture::START + at_ms * fixture::MS,
                ThreadKey { pid: 42, tid, start: 5 },
                RawName::new(if tid == 1 { b"busy" } else { b"idle" }),
                seen,
            )
        }));
    };
    let blocked = Seen::Blocked(Syscall { number: 232, args: [0; 6] });
    observe(0, 2, blocked, [20, 1]);
    for (at, offset) in [(0, 10), (990, 10), (1_000, 11)] {
        observe(at, 1, Seen::OnCpu, [offset, 1]);
    }
    observe(1_000, 2, blocked, [20, 1]);
    recorder.close(fixture::START + 1_000 * fixture::MS);
    let view = recorder.view();
    let snapshot =
        Snapshot { at: view.at, tables: view.tables, history: view.history, ..fixture::snapshot() };

    let mut settings = Settings { idle: false, ..Settings::default() };
    settings.filters.min_percent = Filter { value: Some(10.0), on: true };
    assert!(project(&snapshot, &settings).hidden.idle.wall_ns > 0, "or this shows nothing");
    let mut text = Vec::new();
    write(&snapshot, &settings, &mut text).expect("memory takes everything");
    let value: Value = serde_json::from_slice(&text).expect("it is JSON");
    let groups = list(&value, "groups").iter();
    let nodes: Vec<(&str, usize)> = groups
        .map(|group| (group["name"].as_str().expect("a name"), list(group, "nodes").len()))
        .collect();
    assert_eq!(nodes, [("busy", 3), ("idle", 2)]);
    check_sums(&value);
}

/// The nesting limits of common readers: serde_json 128, jq 1.6 256, Python 1,000 calls.
#[test]
fn depth_is_no_matter() {
    let frames: Vec<String> = (0..100_000).map(|i| format!("f{}", i % 7)).collect();
    let text = written(&[Stack { group: "g".into(), frames, own: ran(1, 1) }]);
    assert_eq!(nesting(&text), 6);
    let value: Value = serde_json::from_str(&text).expect("it is JSON");
    let nodes = list(&value["groups"][0], "nodes");
    assert_eq!(nodes.len(), 100_000);
    assert!(nodes.iter().enumerate().skip(1).all(|(at, node)| node["parent"] == at - 1));
}

/// Returns the frames from the root to a node.
fn path<'a>(nodes: &'a [Value], node: &'a Value) -> Vec<&'a str> {
    let parent =
        |node: &&Value| Some(&nodes[usize::try_from(node["parent"].as_u64()?).expect("an index")]);
    let callers = std::iter::successors(Some(node), parent);
    let mut path: Vec<&str> = callers.map(|node| node["frame"].as_str().expect("a name")).collect();
    path.reverse();
    path
}

/// Checks that own times sum to totals, and roots to groups. Each figure may be off by half a
/// microsecond.
fn check_sums(value: &Value) {
    for group in list(value, "groups") {
        let nodes = list(group, "nodes");
        let mut children: Vec<Vec<&Value>> = vec![Vec::new(); nodes.len()];
        let mut roots = Vec::new();
        // Depth first: a node's parent is the node before it, or one of that node's callers.
        let mut open: Vec<u64> = Vec::new();
        for (at, node) in (0_u64..).zip(nodes) {
            match node["parent"].as_u64() {
                Some(parent) => {
                    while open.last().is_some_and(|last| *last != parent) {
                        open.pop();
                    }
                    assert!(
                        !open.is_empty(),
                        "{at} comes before its parent, or behind another's children: {group}"
                    );
                    children[parent as usize].push(node);
                }
                None => {
                    assert!(node["parent"].is_null());
                    open.clear();
                    roots.push(node);
                }
            }
            open.push(at);
        }
        for (node, children) in nodes.iter().zip(&children) {
            check_node(node, children);
        }
        for key in ["wall_ms", "cpu_ms", "hits", "cpu_hits"] {
            let sum: f64 = roots.iter().map(|root| number(root, key)).sum();
            let total = number(group, key);
            let rounding = 0.0005 * (roots.len() + 1) as f64;
            assert!(
                (sum - total).abs() <= rounding + total * 1e-12,
                "{key} of {}: {sum} is not {total}",
                group["name"]
            );
        }
        check_states(group);
    }
}

fn check_node(node: &Value, children: &[&Value]) {
    check_states(node);
    for (total, own) in
        [("wall_ms", "self_wall_ms"), ("cpu_ms", "self_cpu_ms"), ("hits", "self_hits")]
    {
        let sum: f64 =
            number(node, own) + children.iter().map(|child| number(child, total)).sum::<f64>();
        let rounding = 0.0005 * (children.len() + 2) as f64;
        assert!(
            (sum - number(node, total)).abs() <= rounding + sum * 1e-12,
            "{total} of {}",
            node["frame"]
        );
    }
}

fn check_states(of: &Value) {
    let states = of["states_ms"].as_object().expect("an object");
    let sum: f64 = states.values().map(|v| v.as_f64().expect("a number")).sum();
    let wall = number(of, "wall_ms");
    assert!(
        (sum - wall).abs() <= 0.006 + wall * 1e-12,
        "states of {}: {sum} is not {wall}",
        of["name"]
    );
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} is a number"))
}

fn any_stacks() -> impl Strategy<Value = Vec<Stack>> {
    let frame =
        prop_oneof![4 => "[a-d]".prop_map(String::from), 1 => ".{0,9}".prop_map(String::from)];
    let own = (0..9_usize, 0..5_000_000_000_u64, 0..1000_u64, any::<bool>()).prop_map(
        |(state, ns, hits, on)| {
            let mut totals = waited(State::ALL[state], 0, hits, 3);
            totals.wall_ns = ns;
            totals.states_ns[state] = ns;
            if on {
                (totals.cpu_ns, totals.cpu_hits) = (ns / 2, hits);
            }
            totals
        },
    );
    let stack = ("[gh]", proptest::collection::vec(frame, 0..6), own)
        .prop_map(|(group, frames, own)| Stack { group, frames, own });
    proptest::collection::vec(stack, 0..30)
}

proptest! {
    #[test]
    fn sums_hold(stacks in any_stacks()) {
        let text = written(&stacks);
        prop_assert!(nesting(&text) <= 6);
        let value: Value = serde_json::from_str(&text).expect("it is JSON");
        check_sums(&value);
        let shown: f64 = list(&value, "groups").iter().map(|g| number(g, "wall_ms")).sum();
        let put_in: u64 = stacks.iter().map(|s| s.own.wall_ns).sum();
        prop_assert!((shown - put_in as f64 / 1e6).abs() < 0.01);
    }
}
