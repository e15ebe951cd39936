//! The report of a small change, and what must hold for any two profiles.

use proptest::prelude::*;

use super::*;
use crate::formats::fixture::{self, MS, Stack, nesting, ran, stack, waited};
use crate::model::projection::settings::{Filters, Metric};
use crate::model::vocabulary::frame::SECOND;
use crate::model::vocabulary::state::State;

/// Returns the service of the other formats' tests, with a slower price, another lock, and a new
/// thread.
fn after() -> Vec<Stack> {
    let mut stacks = fixture::service();
    stacks[1].own = ran(5200, 520);
    stacks[2].own = ran(430, 43);
    stacks[4] =
        stack("worker-", &["start", "run", "report", "lock"], waited(State::Lock, 3000, 60, 90));
    stacks.push(stack("flusher", &["start", "flush", "fsync"], waited(State::Io, 900, 9, 200)));
    stacks
}

fn written(
    format: Format,
    before: &[Stack],
    after: &[Stack],
    settings: &Settings,
    per: Per,
) -> String {
    let snapshots = Pair { before: fixture::snapshot(), after: changed() };
    let profiles = Pair {
        before: Profile { name: "before.sampletop", snapshot: &snapshots.before },
        after: Profile { name: "after.sampletop", snapshot: &snapshots.after },
    };
    let mut projections =
        Pair { before: fixture::projection(before), after: fixture::projection(after) };
    projections.after.till += 2 * SECOND;
    let mut out = Vec::new();
    render(format, &profiles, settings, projections, per, &mut out)
        .expect("memory takes everything");
    String::from_utf8(out).expect("UTF-8")
}

/// Returns a snapshot measured on another machine, at another interval.
fn changed() -> Snapshot {
    let mut snapshot = fixture::snapshot();
    let mut session = fixture::session();
    session.host = "node8".into();
    session.interval_ns = 20 * MS;
    snapshot.session = session.into();
    snapshot.health.interval_achieved_ns = 20 * MS;
    snapshot
}

#[test]
fn people_get_totals_first() {
    let text = written(Format::Text, &fixture::service(), &after(), &Settings::default(), Per::Run);
    insta::with_settings!({snapshot_path => "../../../tests/snapshots", prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("diff", text);
    });
}

#[test]
fn the_filters_are_named() {
    let filters = Filters { gil: true, skip_daemon: true, ..Filters::default() };
    let settings = Settings { filters, ..Settings::default() };
    let stacks = fixture::service();
    let text = written(Format::Text, &stacks, &stacks, &settings, Per::Run);
    for line in ["Daemons      not shown", "GIL          only stacks whose thread holds it"] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
}

#[test]
fn scripts_get_every_row() {
    let text =
        written(Format::Json, &fixture::service(), &after(), &Settings::default(), Per::Second);
    let value: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(
        [&value["schema"], &value["per"], &value["unit"]],
        ["sampletop-diff/2", "second", "ms/s"]
    );
    let differs: Vec<&str> = (value["conditions"].as_array().expect("a list").iter())
        .filter(|condition| condition["differs"] == true)
        .map(|condition| condition["what"].as_str().expect("text"))
        .collect();
    assert_eq!(differs, ["host", "elapsed", "interval"]);
    let functions = value["functions"].as_array().expect("a list");
    let of = |name: &str| {
        functions.iter().find(|f| f["frame"] == name).unwrap_or_else(|| panic!("{name}"))
    };
    // 2500 ms in 10 s, 5200 ms in 12 s.
    assert_eq!(of("round")["self"]["change"], 183.333);
    assert_eq!(
        (&of("round")["self"]["resolved"], &of("tax")["self"]["resolved"]),
        (&true.into(), &false.into())
    );
    assert_eq!(of("lock")["states"]["lock"]["change"], 150.0);
    assert_eq!(of("audit")["total"]["after"], 0.0);
    assert_eq!(value["totals_ms"]["wall"]["change"], 2700.0 + 30.0 + 2000.0 + 900.0);
    let groups = value["groups"].as_array().expect("a list");
    let names: Vec<&str> =
        groups.iter().map(|group| group["name"].as_str().expect("text")).collect();
    assert_eq!(names, ["worker-", "flusher", "main"]);
    assert_eq!(groups[1]["threads"], serde_json::json!({"before": 0, "after": 1}));
    let nodes = &groups[0]["nodes"];
    assert_eq!(
        (&nodes[0]["frame"], &nodes[0]["parent"]),
        (&"start".into(), &serde_json::Value::Null)
    );
    assert_eq!((&nodes[1]["frame"], &nodes[1]["parent"]), (&"run".into(), &0.into()));
}

#[test]
fn a_profile_and_itself_are_the_same() {
    let service = fixture::service();
    let same = fixture::snapshot();
    let profile = Profile { name: "one", snapshot: &same };
    let profiles = Pair { before: profile, after: profile };
    let projections =
        Pair { before: fixture::projection(&service), after: fixture::projection(&service) };
    let mut out = Vec::new();
    render(Format::Text, &profiles, &Settings::default(), projections, Per::Share, &mut out)
        .expect("memory");
    let text = String::from_utf8(out).expect("ASCII");
    assert!(text.contains("none by more than sampling makes"), "{text}");
    assert!(text.contains("and 2 groups of threads that changed by less"), "{text}");
    let (head, _) = text.split_once("LEGEND").expect("a legend");
    assert!(!head.contains('!') && !head.contains("Only"), "{text}");
}

/// Counts the omitted parts of a drawn chain of callers.
#[test]
fn chains_lose_their_middle() {
    let all = |chain, only| -> Vec<usize> { lines(chain, only).0 };
    assert_eq!(all(1, true), [0]);
    assert_eq!(all(2, true), [0, 1]);
    assert_eq!(all(5, true), [3, 4]);
    assert_eq!(all(5, false), [0, 3, 4]);
    for (chain, only) in [(1, false), (4, true), (9, false), (9, true)] {
        let (drawn, dropped) = lines(chain, only);
        assert_eq!(drawn.len() + dropped, chain);
    }
}

fn lines(chain: usize, only: bool) -> (Vec<usize>, usize) {
    let lines = text::lines_of(chain, only);
    (lines.iter().map(|(at, _)| *at).collect(), lines.iter().map(|(_, dropped)| dropped).sum())
}

fn any_stack() -> impl Strategy<Value = Stack> {
    let own = (0..State::COUNT, 0u64..100_000, 0u64..500);
    let frames = prop::collection::vec(".{0,60}", 0..7);
    (".{0,30}", frames, own, any::<bool>()).prop_map(
        |(group, frames, (state, ms, hits), on_cpu)| {
            let own = if on_cpu { ran(ms, hits) } else { waited(State::ALL[state], ms, hits, ms) };
            Stack { group, frames, own }
        },
    )
}

#[test]
fn what_rounds_to_nothing_has_no_direction() {
    assert_eq!(
        [-0.04, 0.04, -0.05].map(|change| text::signed(Per::Run, change)),
        ["+0.0", "+0.0", "-0.1"]
    );
    assert_eq!([-0.004, -10.0].map(|change| text::signed(Per::Share, change)), ["+0.00", "-10.00"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_line_is_ascii_and_fits_and_json_sums_hold(
        before in prop::collection::vec(any_stack(), 0..12),
        after in prop::collection::vec(any_stack(), 0..12),
        metric in prop::sample::select(vec![Metric::Wall, Metric::Cpu]),
        per in prop::sample::select(Per::ALL.to_vec()),
    ) {
        let settings = Settings { metric, ..Settings::default() };
        for line in written(Format::Text, &before, &after, &settings, per).lines() {
            prop_assert!(line.len() <= 100 && line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{:?}", line);
        }
        let text = written(Format::Json, &before, &after, &settings, Per::Run);
        prop_assert!(nesting(&text) <= 6);
        let value: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        let total = value["totals_ms"][metric.word()]["change"].as_f64().expect("a number");
        let sum = |rows: &serde_json::Value| -> f64 {
            rows.as_array().expect("a list").iter().map(|row| row["total"]["change"].as_f64().expect("a number")).sum()
        };
        // Each figure is rounded to a thousandth.
        let groups = value["groups"].as_array().expect("a list");
        prop_assert!((sum(&value["groups"]) - total).abs() < 0.01, "{} {}", sum(&value["groups"]), total);
        for group in groups {
            let of_group = group["total"]["change"].as_f64().expect("a number");
            let mut roots = group["nodes"].clone();
            roots.as_array_mut().expect("a list").retain(|node| node["parent"].is_null());
            prop_assert!((sum(&roots) - of_group).abs() < 0.01, "{}", group["name"]);
        }
    }
}
