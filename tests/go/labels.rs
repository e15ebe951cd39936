//! Labels of goroutines, by shares that are known, and against Go's own profile of the same time.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::common::Running;
use super::{command, gos, version_of};

fn build(go: &Path, flags: &[&str]) -> PathBuf {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets");
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("go_labels-{}", std::process::id()));
    let mut command = command(go);
    command.env("CGO_ENABLED", "0").current_dir(targets);
    let output = command.args(["build", "-o"]).arg(&out).args(flags).arg("go_labels.go").output();
    let output = output.expect("go is needed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    out
}

/// Runs sampletop, and returns what it writes.
fn run(arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let output = command.args(arguments).output().expect("our program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let written = run(&[arguments, &["--format", "json"]].concat());
    serde_json::from_slice(&written).expect("json")
}

/// Returns a figure of each group of a profile, ms.
fn by_group(profile: &serde_json::Value, figure: &str) -> BTreeMap<String, f64> {
    let groups = profile["groups"].as_array().expect("groups").iter();
    let group = |group: &serde_json::Value| {
        (group["name"].as_str().expect("a name").to_owned(), group[figure].as_f64().expect("ms"))
    };
    groups.map(group).collect()
}

/// Returns the CPU time by value of a label, s, as Go's tools read it from a profile.
fn by_tag(go: &Path, program: &Path, profile: &Path, key: &str) -> BTreeMap<String, f64> {
    let output = command(go).args(["tool", "pprof", "-tags"]).arg(program).arg(profile).output();
    let text = String::from_utf8(output.expect("go is needed").stdout).expect("text");
    let mut found = BTreeMap::new();
    let head = format!(" {key}: Total ");
    // `             2.1s (60.23%): /catalog`
    let lines = text.lines().skip_while(|line| !line.starts_with(&head)).skip(1);
    for line in lines.take_while(|line| line.contains("%): ")) {
        let (time, value) = line.split_once(" (").expect("a share");
        let (number, unit) = match time.trim().strip_suffix("ms") {
            Some(number) => (number, 0.001),
            None => (time.trim().trim_end_matches('s'), 1.0),
        };
        let value = value.split_once("%): ").expect("a value").1.to_owned();
        found.insert(value, unit * number.parse::<f64>().expect("a number"));
    }
    assert!(!found.is_empty(), "{text}");
    found
}

/// Compares a share of ours, of `count` samples, with the true one. Five standard errors are
/// exceeded in one of a million comparisons.
fn check(what: &str, (ours, count): (f64, f64), expected: f64) {
    let error = (expected * (1.0 - expected) / count).sqrt();
    let distance = (ours - expected).abs() / error;
    println!("{what}: {ours:.4} of {count:.0}, expected {expected:.4}: {distance:.1} errors");
    assert!(distance < 5.0, "{what}: {ours} {expected} {error}");
}

#[test]
fn labels_have_their_shares() {
    for (nth, go) in gos().iter().enumerate() {
        let flags: &[&str] = if nth % 2 == 0 { &[] } else { &["-buildmode=pie", "-ldflags=-s -w"] };
        check_shares(go, flags);
    }
}

fn check_shares(go: &Path, flags: &[&str]) {
    const SECONDS: f64 = 8.0;
    let version = version_of(go);
    let program = build(go, flags);
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let [own, saved, folded, exported] =
        ["own.pprof", "run.sampletop", "run.folded", "run.pprof"].map(path);
    let mut running = Running::start(&program, &[&own]);
    let (pid, time) = (running.pid().to_string(), format!("{SECONDS}s"));
    run(&["record", "-p", &pid, "-d", &time, "-o", &saved]);
    running.child.stdin.as_mut().expect("it is piped").write_all(b"\n").expect("it reads");
    running.lines.by_ref().map(|line| line.expect("text")).find(|line| line == "end");

    let open = ["open", &saved, "--metric", "cpu", "--idle", "--group", "label:handler"];
    let found = json(&open);
    let (cpu, wall) = (by_group(&found, "cpu_ms"), by_group(&found, "wall_ms"));
    let hits = by_group(&found, "cpu_hits");
    let of = |group: &str| *cpu.get(group).unwrap_or_else(|| panic!("{version}: {cpu:?}"));
    let of_spin = of("/catalog") + of("/cart");
    let share = (of("/catalog") / of_spin, hits["/catalog"] + hits["/cart"]);
    check(&format!("{version}by construction"), share, 0.6);
    // Go's own profile is far from what is known where other programs want the cores, too. It
    // counts few page faults of what allocates.
    let theirs = by_tag(go, &program, Path::new(&own), "handler");
    let their_spin = theirs["/catalog"] + theirs["/cart"];
    let their_share = theirs["/catalog"] / their_spin;
    assert!((share.0 - their_share).abs() < 0.25, "{version}: {share:?} {theirs:?}");
    run(&[&open[..], &["--format", "pprof", "-o", &exported]].concat());
    let ours = by_tag(go, &program, Path::new(&exported), "handler");
    for (value, time) in &theirs {
        let (ours, group) = (ours[value], of(value) / 1000.0);
        println!("{version}{value}: {ours} s, by its own profile {time} s");
        // Go's tools round to tenths of a second.
        assert!((ours - group).abs() < 0.06, "{version}: {value} {ours} {group}");
    }
    // Samples have the labels of their own stacks, or none before it is known where labels are.
    run(&[&open[..], &["--level", "all", "--format", "folded", "-o", &folded]].concat());
    let text = std::fs::read_to_string(&folded).expect("it is written");
    let (mut seen, mut unknown) = (0, 0.0);
    for stack in text.lines() {
        let (stack, weight) = stack.rsplit_once(' ').expect("a weight");
        let frames: Vec<&str> = stack.split(';').collect();
        let has = |name: &str| frames[1..].iter().any(|frame| frame.starts_with(name));
        let expected = match () {
            () if has("main.serve.func1") => "/catalog",
            () if has("main.serve.func2") => "/cart",
            () if has("main.grow") => "/grow",
            () if has("main.spin") => "(no labels)",
            () => continue,
        };
        match frames[0] == expected {
            true => seen += 1,
            false => {
                assert_eq!(frames[0], "(no labels)", "{version}: {stack}");
                unknown += weight.parse::<f64>().expect("a number") / 1e6;
            }
        }
    }
    assert!(seen > 10 && unknown < SECONDS / 16.0, "{version}: {unknown} {text}");
    let waited = wall.get("/wait").copied().unwrap_or(0.0) / 1000.0;
    assert!((3.0 * SECONDS * 0.4..3.0 * SECONDS * 1.1).contains(&waited), "{version}: {wall:?}");
    assert!(wall["/read"] > SECONDS * 900.0, "{version}: {wall:?}");
    let groups = found["groups"].as_array().expect("groups");
    let waits = groups.iter().find(|group| group["name"] == "/wait").expect("a group");
    let kinds = waits["threads"].as_array().expect("threads").iter().map(|one| &one["kind"]);
    assert_eq!(kinds.collect::<Vec<_>>(), ["goroutine"; 3], "{version}");
    check_dump(&program, &version);
}

/// Checks the labels of goroutines, and of those that threads execute.
fn check_dump(program: &Path, version: &str) {
    let running = Running::start(program, &["always"]);
    let found = json(&["dump", "-p", &running.pid().to_string()]);
    let list = found["goroutines"][0]["list"].as_array().expect("goroutines").iter();
    let mut labels: Vec<String> = list.map(|one| one["labels"].to_string()).collect();
    labels.sort();
    labels.dedup();
    let many: BTreeMap<String, String> =
        (0..12).map(|nth| (format!("k{nth:02}"), nth.to_string())).collect();
    let many = serde_json::to_string(&many).expect("json");
    for expected in [r#"{"handler":"/wait","odd":"a, \"b\"="}"#, &many] {
        assert!(labels.iter().any(|labels| labels == expected), "{version}: {labels:#?}");
    }
    let of_threads = |expected: &str| {
        let threads = found["threads"].as_array().expect("threads").iter();
        let mut outermost = threads.filter_map(|thread| thread["frames"].as_array()?.last());
        outermost.any(|frame| frame["frame"] == expected)
    };
    for expected in ["[labels handler=/read]", "[labels handler=/always]"] {
        assert!(of_threads(expected), "{version}: {expected}: {found:#}");
    }
}
