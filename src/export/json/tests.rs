use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::export::fixture::{self, Stack, ran, service, stack, waited};

fn written(stacks: &[Stack]) -> String {
    let mut out = Vec::new();
    let projection = fixture::projection(stacks);
    render(&fixture::snapshot(), &Settings::default(), &projection, &mut out).expect("memory takes everything");
    String::from_utf8(out).expect("UTF-8")
}

fn read(stacks: &[Stack]) -> Value {
    serde_json::from_str(&written(stacks)).expect("it is JSON")
}

/// Every key, in the order it is written.
fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is a list"))
}

#[test]
fn the_schema_is_kept_field_by_field() {
    let value = read(&service());
    let head = "schema version host targets modules from till elapsed_ms interval_ms interval_achieved_ms capture metric \
                rolled_up settings health groups";
    assert_eq!(keys(&value), head.split_whitespace().collect::<Vec<_>>());
    assert_eq!(keys(&value["targets"][0]), ["pid", "command", "runtime"]);
    let health = "ticks samples dropped truncated torn unwind_failed unwind_failed_by recovered throttled late late_p99_us stops \
                  stops_blocked stop_p99_us self_cpu_percent total_cpu_percent max_overhead_percent";
    assert_eq!(keys(&value["health"]), health.split_whitespace().collect::<Vec<_>>());
    let group = &value["groups"][0];
    let fields = "name threads wall_ms cpu_ms hits cpu_hits longest_ms states_ms tree";
    assert_eq!(keys(group), fields.split_whitespace().collect::<Vec<_>>());
    assert_eq!(keys(&group["threads"][0]), ["pid", "tid", "name", "kind"]);
    let states = ["run", "rdy", "lock", "wait", "io", "poll", "sleep", "disk", "stopped"];
    assert_eq!(keys(&group["states_ms"]), states);
    let node = "frame file line module kind tier wall_ms self_wall_ms cpu_ms self_cpu_ms hits self_hits cpu_hits \
                longest_ms states_ms children";
    assert_eq!(keys(&group["tree"][0]), node.split_whitespace().collect::<Vec<_>>());
    assert_eq!(keys(&group["tree"][0]["states_ms"]), states);
}

#[test]
fn values_are_those_of_the_profile() {
    let value = read(&service());
    assert_eq!(value["schema"], "sampletop/1");
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
    let run = &group["tree"][0]["children"][0];
    assert_eq!(run["frame"], "run");
    let price = &run["children"][0]["children"][1];
    assert_eq!(
        (&price["frame"], &price["wall_ms"], &price["self_wall_ms"]),
        (&"price".into(), &2900.0.into(), &400.0.into())
    );
    assert_eq!((&price["hits"], &price["self_hits"], &price["cpu_hits"]), (&290.into(), &40.into(), &290.into()));
    assert_eq!((&price["file"], &price["line"]), (&"/src/app/main.c".into(), &7.into()));
    assert_eq!(
        (&price["module"], &price["kind"], &price["tier"]),
        (&"/usr/bin/app".into(), &"native".into(), &Value::Null)
    );
}

#[test]
fn numbers_have_three_decimals_at_most() {
    let text = serde_json::to_string(&[Rounded(1.0 / 3.0), Rounded::ms(1_234_567_890), Rounded::us(499), Rounded(2.0)]);
    assert_eq!(text.expect("numbers"), "[0.333,1234.568,0.499,2.0]");
}

#[test]
fn time_without_a_frame_is_a_root_of_its_own() {
    let value = read(&[stack("g", &["a"], ran(30, 3)), stack("g", &[], ran(70, 7)), stack("h", &[], ran(5, 1))]);
    let tree = list(&value["groups"][0], "tree");
    assert_eq!(tree.len(), 2);
    assert_eq!((&tree[1]["frame"], &tree[1]["self_wall_ms"]), (&"[every frame hidden]".into(), &70.0.into()));
    assert_eq!(list(&value["groups"][1], "tree")[0]["kind"], "marker");
    check_sums(&value);
}

#[test]
fn depth_is_no_matter() {
    let frames: Vec<String> = (0..100_000).map(|i| format!("f{}", i % 7)).collect();
    let text = written(&[Stack { group: "g".into(), frames, own: ran(1, 1) }]);
    // No reader here goes that deep: what is opened is closed.
    assert_eq!(text.matches("\"children\":[").count(), 100_000);
    assert_eq!(text.matches('{').count(), text.matches('}').count());
    assert_eq!(text.matches('[').count(), text.matches(']').count());
}

/// Own sums to total, groups are the sums of their roots; each figure may be half a microsecond off.
fn check_sums(value: &Value) {
    for group in list(value, "groups") {
        let mut sums = [0.0; 4];
        for root in list(group, "tree") {
            check_node(root);
            for (sum, key) in sums.iter_mut().zip(["wall_ms", "cpu_ms", "hits", "cpu_hits"]) {
                *sum += number(root, key);
            }
        }
        let rounding = 0.0005 * (list(group, "tree").len() + 1) as f64;
        for (sum, key) in sums.iter().zip(["wall_ms", "cpu_ms", "hits", "cpu_hits"]) {
            let total = number(group, key);
            assert!(
                (sum - total).abs() <= rounding + total * 1e-12,
                "{key} of {}: {sum} is not {total}",
                group["name"]
            );
        }
        check_states(group);
    }
}

fn check_node(node: &Value) {
    check_states(node);
    let children = list(node, "children");
    for (total, own) in [("wall_ms", "self_wall_ms"), ("cpu_ms", "self_cpu_ms"), ("hits", "self_hits")] {
        let sum: f64 = number(node, own) + children.iter().map(|child| number(child, total)).sum::<f64>();
        let rounding = 0.0005 * (children.len() + 2) as f64;
        assert!((sum - number(node, total)).abs() <= rounding + sum * 1e-12, "{total} of {}", node["frame"]);
    }
    children.iter().for_each(check_node);
}

fn check_states(of: &Value) {
    let states = of["states_ms"].as_object().expect("an object");
    let sum: f64 = states.values().map(|v| v.as_f64().expect("a number")).sum();
    let wall = number(of, "wall_ms");
    assert!((sum - wall).abs() <= 0.006 + wall * 1e-12, "states of {}: {sum} is not {wall}", of["name"]);
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} is a number"))
}

fn any_stacks() -> impl Strategy<Value = Vec<Stack>> {
    let frame = prop_oneof![4 => "[a-d]".prop_map(String::from), 1 => ".{0,9}".prop_map(String::from)];
    let own = (0..9_usize, 0..5_000_000_000_u64, 0..1000_u64, any::<bool>()).prop_map(|(state, ns, hits, on)| {
        let mut totals = waited(State::ALL[state], 0, hits, 3);
        totals.wall_ns = ns;
        totals.states_ns[state] = ns;
        if on {
            (totals.cpu_ns, totals.cpu_hits) = (ns / 2, hits);
        }
        totals
    });
    let stack = ("[gh]", proptest::collection::vec(frame, 0..6), own).prop_map(|(group, frames, own)| Stack {
        group,
        frames,
        own,
    });
    proptest::collection::vec(stack, 0..30)
}

proptest! {
    #[test]
    fn sums_hold(stacks in any_stacks()) {
        let value = read(&stacks);
        check_sums(&value);
        let shown: f64 = list(&value, "groups").iter().map(|g| number(g, "wall_ms")).sum();
        let put_in: u64 = stacks.iter().map(|s| s.own.wall_ns).sum();
        prop_assert!((shown - put_in as f64 / 1e6).abs() < 0.01);
    }
}
