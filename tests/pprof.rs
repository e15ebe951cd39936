//! pprof profiles: written, they show the same in `go tool pprof`; of Go and of sampletop, they are read.

mod common;
#[path = "saved/sessions.rs"]
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use common::{Recording, Running, build};
use proptest::prelude::*;
use sampletop::config::Format;
use sampletop::model::project::{Projection, project};
use sampletop::model::settings::{Filter, Metric, Range, RollUp, Settings};
use sampletop::model::snapshot::Snapshot;
use sampletop::model::state::State;
use sampletop::{export, import};
use serde_json::Value;

fn whole() -> Settings {
    Settings { range: Range::Cumulative { since: None }, ..Settings::default() }
}

fn written(snapshot: &Snapshot, settings: &Settings) -> Vec<u8> {
    let mut bytes = Vec::new();
    export::write(Format::Pprof, snapshot, settings, &mut bytes).expect("memory takes it");
    bytes
}

/// What `go tool pprof` says, and to whom it says it.
fn go_tool(args: &[&str], dir: &Path) -> String {
    let mut command = Command::new("go");
    command.args(["tool", "pprof"]).args(args).current_dir(dir);
    let output = command.output().expect("go is needed");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "go tool pprof {args:?}: {words}");
    String::from_utf8(output.stdout).expect("text")
}

/// ns of each function by its name: of its own, and with all it calls. Zeros are left out.
type Flat = BTreeMap<String, (i64, i64)>;

/// By `go tool pprof -top`.
fn top(file: &str, kind: &str, dir: &Path) -> Flat {
    let kind = format!("-sample_index={kind}");
    let args = ["-top", "-unit=ns", &kind, "-nodecount=1000000", "-nodefraction=0", "-edgefraction=0", file];
    let text = go_tool(&args, dir);
    let rows = text.lines().skip_while(|line| !line.trim_start().starts_with("flat ")).skip(1);
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let mut ns = |skip: usize| -> i64 {
            let word = words.nth(skip).unwrap_or_else(|| panic!("{line}"));
            word.strip_suffix("ns").unwrap_or(word).parse().unwrap_or_else(|_| panic!("{line}"))
        };
        let (own, total) = (ns(0), ns(2));
        // Behind flat%, sum% and cum%.
        let (at, _) = line.match_indices("% ").nth(2).unwrap_or_else(|| panic!("{line}"));
        let name = &line[at + 2..];
        let name = name.trim_end_matches(" (inline)").trim_end_matches(" (partial-inline)").trim();
        (name.to_owned(), (own, total))
    };
    rows.map(row).filter(|(_, sums)| *sums != (0, 0)).collect()
}

/// By the projection; functions of one name in several modules are one, as they are for pprof.
fn flat(projection: &Projection, metric: Metric) -> Flat {
    let signed = |totals: &sampletop::model::project::Totals| match metric {
        Metric::Wall => totals.wall_ns as i64,
        Metric::Cpu => totals.cpu_ns as i64,
        Metric::Off => totals.wall_ns as i64 - totals.cpu_ns as i64,
    };
    let mut flat = Flat::new();
    for group in &projection.groups {
        let entry = flat.entry("[every frame hidden]".to_owned()).or_default();
        *entry = (entry.0 + signed(&group.own), entry.1 + signed(&group.own));
        let mut todo: Vec<(u32, BTreeSet<String>)> =
            projection.roots(group).map(|root| (root, BTreeSet::new())).collect();
        while let Some((at, mut above)) = todo.pop() {
            let node = projection.node(at, metric);
            let name = node.location.function.trim().to_owned();
            // The rows of a runtime's own threads are no functions.
            if node.location.kind.word() != "thread" {
                let entry = flat.entry(name.clone()).or_default();
                entry.0 += signed(&node.own);
                entry.1 += if above.insert(name) { signed(&node.total) } else { 0 };
            }
            todo.extend(projection.children(at).map(|child| (child, above.clone())));
        }
    }
    flat.retain(|_, sums| *sums != (0, 0));
    flat
}

#[test]
fn go_tool_pprof_shows_the_same_numbers() {
    let dir = tempfile::tempdir().expect("a folder");
    let filtered = {
        let mut settings = Settings { roll_up: RollUp::Class, metric: Metric::Off, ..whole() };
        settings.filters.hide = Filter::set(regex::Regex::new("f[0-9]").expect("a pattern"));
        settings.filters.threads = Filter::set(regex::Regex::new("work|main").expect("a pattern"));
        settings
    };
    let by_line = Settings { roll_up: RollUp::Line, metric: Metric::Cpu, ..whole() };
    for (seed, settings) in [(3, whole()), (4, filtered), (5, by_line)] {
        let snapshot = sessions::session(seed, 120, false);
        std::fs::write(dir.path().join("p.pb.gz"), written(&snapshot, &settings)).expect("written");
        let shown = project(&snapshot, &Settings { idle: true, ..settings.clone() });
        for metric in [Metric::Wall, Metric::Cpu, settings.metric] {
            let expected = flat(&shown, metric);
            assert!(expected.len() > 5, "{expected:?}");
            assert_eq!(top("p.pb.gz", metric.word(), dir.path()), expected, "seed {seed}, {}", metric.word());
        }
        // The settings' metric is what is shown first.
        let first = go_tool(&["-top", "p.pb.gz"], dir.path());
        assert!(first.contains(&format!("Type: {}\n", settings.metric.word())), "{first}");
    }
}

#[test]
fn labels_lines_and_remarks_are_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let snapshot = sessions::session(3, 120, false);
    std::fs::write(dir.path().join("p.pb.gz"), written(&snapshot, &whole())).expect("written");
    let tags = go_tool(&["-tags", "-unit=ns", "p.pb.gz"], dir.path());
    for label in ["thread:", "group:", "state:", "pid:", "tid:", "work-1", "work-", "run", "idle:"] {
        assert!(tags.contains(label), "{label}: {tags}");
    }
    let remarks = go_tool(&["-comments", "p.pb.gz"], dir.path());
    for words in [
        "Capture      ptrace (stops threads)",
        "Losses       dropped",
        "Settings     metric wall",
        "Host         node7",
    ] {
        assert!(remarks.contains(words), "{words}: {remarks}");
    }
    // A machine frame with an inlined function is one place with two lines.
    let traces = go_tool(&["-traces", "-lines", "p.pb.gz"], dir.path());
    assert!(traces.contains("shop::vat /src/größe.c:4294967295 (inline)"), "{traces}");
    assert!(traces.contains("shop::pay<Item> /src/größe.c:7"), "{traces}");
    // Nothing but gzip with no name or time in it: equal profiles are equal files.
    assert_eq!(written(&snapshot, &whole()), written(&snapshot, &whole()));
}

/// Time of every path of names: (group, path) -> (of its own by state, cpu, hits).
type Paths = BTreeMap<(String, Vec<String>), ([u64; State::COUNT], u64, u64)>;

fn paths(snapshot: &Snapshot) -> Paths {
    let settings = Settings { idle: true, ..whole() };
    let projection = project(snapshot, &settings);
    let mut paths = Paths::new();
    for group in &projection.groups {
        let mut todo: Vec<(u32, Vec<String>)> = projection.roots(group).map(|root| (root, Vec::new())).collect();
        while let Some((at, mut path)) = todo.pop() {
            let node = projection.node(at, Metric::Wall);
            path.push(node.location.function.to_string());
            let (states, cpu, hits) = paths.entry((group.name.to_string(), path.clone())).or_default();
            states.iter_mut().zip(node.own.states_ns).for_each(|(sum, ns)| *sum += ns);
            *cpu += node.own.cpu_ns;
            *hits += node.own.hits;
            todo.extend(projection.children(at).map(|child| (child, path.clone())));
        }
        let own = paths.entry((group.name.to_string(), Vec::new())).or_default();
        own.0.iter_mut().zip(group.own.states_ns).for_each(|(sum, ns)| *sum += ns);
        own.1 += group.own.cpu_ns;
        own.2 += group.own.hits;
    }
    paths.retain(|_, (states, cpu, hits)| states.iter().any(|ns| *ns > 0) || *cpu > 0 || *hits > 0);
    paths
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_was_written_is_read_again(seed in any::<u64>(), looks in 0_usize..150) {
        let snapshot = sessions::session(seed, looks, false);
        let opened = import::read(&written(&snapshot, &whole())).expect("a profile").expect("with time");
        prop_assert_eq!(&opened.lost, &None);
        let frameless = |(group, path): &(String, Vec<String>)| match path.is_empty() {
            true => (group.clone(), vec!["[every frame hidden]".to_owned()]),
            false => (group.clone(), path.clone()),
        };
        let expected: Paths = paths(&snapshot).into_iter().map(|(key, sums)| (frameless(&key), sums)).collect();
        prop_assert_eq!(paths(&opened.snapshot), expected);
        let span = |snapshot: &Snapshot| snapshot.at - snapshot.session.started;
        prop_assert_eq!(span(&opened.snapshot), span(&snapshot).max(1));
        prop_assert_eq!(opened.snapshot.session.started_unix_ns, snapshot.session.started_unix_ns);
        prop_assert_eq!(opened.snapshot.session.interval_ns, snapshot.session.interval_ns);
    }
}

fn sampletop(args: &[&str], dir: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let output = command.args(args).current_dir(dir).output().expect("sampletop starts");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_recorded_program_is_the_same_in_every_tool() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = build("../../demos/work.c", "o2g", &["-O2", "-g"]);
    let target = Running::start(&program, &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let pid = target.pid().to_string();
    let recording = Recording::start(command.args(["record", "-p", &pid, "-o", "p.sampletop"]).current_dir(dir.path()));
    recording.until_used(target.pid(), 500);
    assert!(recording.end().status.success());

    sampletop(&["open", "p.sampletop", "-o", "p.pb.gz"], dir.path());
    // Both are wall time; of the functions that json tells to a thousandth of a ms.
    let json = |file: &str| -> Value {
        serde_json::from_str(&sampletop(&["open", file, "--format", "json"], dir.path())).expect("json")
    };
    let (own, again) = (json("p.sampletop"), json("p.pb.gz"));
    let sixty = top("p.pb.gz", "cpu", dir.path())["sixty"].0 as f64 / 1e6;
    for profile in [&own, &again] {
        let mut found = 0.0;
        let mut todo: Vec<&Value> = profile["groups"].as_array().expect("groups").iter().collect();
        while let Some(node) = todo.pop() {
            todo.extend(["tree", "children"].iter().filter_map(|list| node[list].as_array()).flatten());
            found += if node["frame"] == "sixty" { node["self_cpu_ms"].as_f64().expect("ms") } else { 0.0 };
        }
        assert!((found - sixty).abs() < 0.01 && sixty > 100.0, "{found} and {sixty}");
    }
    // Group by group, function by function, state by state; only how long one wait took is not told by pprof.
    let [own, again] = [own, again].map(|mut profile| {
        let mut todo: Vec<&mut Value> = profile["groups"].as_array_mut().expect("groups").iter_mut().collect();
        while let Some(node) = todo.pop() {
            let Value::Object(node) = node else { panic!("no object") };
            node.remove("longest_ms");
            let lists = node.iter_mut().filter(|(key, _)| matches!(key.as_str(), "tree" | "children"));
            todo.extend(lists.filter_map(|(_, list)| list.as_array_mut()).flatten());
        }
        profile["groups"].to_string()
    });
    assert!(own == again, "{own}\n{again}");
    let first = go_tool(&["-top", "p.pb.gz"], dir.path());
    let name = program.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(first.starts_with(&format!("File: {name}\n")), "{first}");
    // Its source is found by the lines.
    let source = go_tool(&["-list=^sixty$", "-sample_index=cpu", "p.pb.gz"], dir.path());
    assert!(source.contains("BURN(6 * unit_ns)"), "{source}");
}

/// A Go program's profiles of itself: of its CPU time and of its memory.
static OF_GO: LazyLock<(PathBuf, PathBuf)> = LazyLock::new(|| {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let files = ["cpu", "heap"].map(|kind| folder.join(format!("go-{}-{kind}.pprof", std::process::id())));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets/profiled.go");
    let output = Command::new("go").arg("run").arg(source).args(&files).output().expect("go is needed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [cpu, heap] = files;
    (cpu, heap)
});

#[test]
fn a_profile_of_gos_is_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = OF_GO.0.to_str().expect("text");
    let by_go = top(file, "cpu", dir.path());
    let opened = import::read(&std::fs::read(file).expect("a file")).expect("a profile").expect("with time");
    assert_eq!((opened.lost, opened.settings.metric), (None, Metric::Cpu));
    let ours = flat(&project(&opened.snapshot, &opened.settings), Metric::Cpu);
    assert_eq!(ours, by_go);
    assert!(ours["main.burn"].1 > 100_000_000, "{ours:?}");
    let text = sampletop(&["report", file], dir.path());
    assert!(
        text.contains("main.burn") && text.contains("Capture      pprof: samples in count, cpu in nanoseconds"),
        "{text}"
    );
    assert!(text.starts_with("sampletop profile=profiled s="), "{text}");
    assert!(text.contains("Losses       not known: another tool took the samples"), "{text}");
    // Kept as a file of our own it says the same.
    sampletop(&["open", file, "-o", "p.sampletop"], dir.path());
    assert_eq!(sampletop(&["report", "p.sampletop"], dir.path()), text);
}

#[test]
fn a_profile_without_time_is_refused_in_one_sentence() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let output = command.arg("report").arg(&OF_GO.1).current_dir(dir.path()).output().expect("sampletop starts");
    let sentence = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{sentence}");
    assert!(sentence.contains("this pprof profile tells no time (alloc_objects in count, "), "{sentence}");
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
}
