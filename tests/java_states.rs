//! States of a virtual machine's threads: waiting for work, for a lock, asleep, stopped at a
//! safepoint; and rows by class, package and module.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::java::{JDKS, can_test, compile, output, start};
use serde_json::Value;

fn record(pid: u32, more: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    output(command.args(["record", "-p", &pid.to_string(), "-d", "1s"]).args(more))
}

fn profile(pid: u32, more: &[&str]) -> Value {
    let more = [&["--format", "json"], more].concat();
    serde_json::from_str(&record(pid, &more)).expect("json")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn name(group: &Value) -> &str {
    group["name"].as_str().expect("a name")
}

/// Seconds of each state in the table of a text report.
fn shown_states(text: &str) -> Vec<(&str, f64)> {
    let table = text.split_once("STATE       SECONDS").expect("the table of states").1;
    let rows = table.lines().skip(1).take_while(|line| !line.is_empty());
    rows.filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?.parse().ok()?))
    })
    .collect()
}

#[test]
fn who_waits_for_work_sleeps_or_waits_for_a_lock_is_told_apart() {
    if !can_test() {
        return;
    }
    for home in JDKS.iter() {
        let classes = compile(home, "States.java");
        for collector in ["-XX:+UseG1GC", "-XX:+UseSerialGC"] {
            let jvm = start(home, &classes, &[collector], &["States"]);
            let what = format!("{} {collector}", home.display());
            at_rest(jvm.child.id(), &what, &[]);
            who_waits_for_work_is_hidden(jvm.child.id(), &what);
        }
    }
}

/// Distributions may strip the virtual machine. Threads that wait for a monitor are reported all
/// the same, and no others.
#[test]
fn without_symbols_locks_are_told_apart_too() {
    if !can_test() {
        return;
    }
    for home in JDKS.iter() {
        let stripped = Stripped::new(home);
        let classes = compile(home, "States.java");
        for capture in ["bpf", "perf"] {
            let what = format!("{} stripped, {capture}", home.display());
            let jvm = start(&stripped.0, &classes, &["-XX:+UseG1GC"], &["States"]);
            let profile = at_rest(jvm.child.id(), &what, &["--capture", capture]);
            for group in list(&profile["groups"]) {
                let tree = common::tree(group);
                let mut todo: Vec<(&Value, &str)> =
                    list(&tree).iter().map(|node| (node, "")).collect();
                let mut callers = Vec::new();
                while let Some((node, caller)) = todo.pop() {
                    let frame = node["frame"].as_str().expect("a frame");
                    assert!(!frame.starts_with("ObjectMonitor::"), "it has symbols: {frame}");
                    if frame == "monitor enter" {
                        callers.push(caller);
                    }
                    todo.extend(list(&node["children"]).iter().map(|child| (child, frame)));
                }
                let wants = name(group) == "lock-monitor";
                assert_eq!(callers.len(), usize::from(wants), "{what}: {group}");
                assert!(
                    callers.iter().all(|caller| caller.starts_with("States.lambda")),
                    "{callers:?}"
                );
            }
        }
    }
}

/// A copy of a JDK whose `libjvm.so` has no symbols.
struct Stripped(PathBuf);

impl Stripped {
    fn new(home: &Path) -> Stripped {
        let home = home.canonicalize().expect("it is there");
        let name = format!(
            "stripped-{}-{}",
            home.file_name().expect("a name").display(),
            std::process::id()
        );
        let copy = Stripped(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        output(Command::new("cp").arg("-a").arg(&home).arg(&copy.0));
        output(Command::new("strip").arg(copy.0.join("lib/server/libjvm.so")));
        copy
    }
}

impl Drop for Stripped {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Records one second.
fn at_rest(pid: u32, what: &str, more: &[&str]) -> Value {
    let profile = profile(pid, &[&["--group", "name"], more].concat());
    let mut met = 0;
    for group in list(&profile["groups"]) {
        let spent = |state: &str| group["states_ms"][state].as_f64().expect("a number");
        let Some((kind, _)) = name(group).split_once('-') else { continue };
        let expected = match kind {
            "idle" | "wait" => "wait",
            "lock" | "sleep" => kind,
            _ => continue,
        };
        met += 1;
        // On a busy machine it may wait for a core; it does nothing else.
        for state in ["lock", "wait", "sleep", "io", "poll"] {
            assert_eq!(spent(state) > 0.0, state == expected, "{what} {}: {group}", name(group));
        }
    }
    assert_eq!(
        met,
        22,
        "{what}: {}",
        list(&profile["groups"]).iter().map(name).collect::<Vec<_>>().join(", ")
    );
    profile
}

/// The waits of the virtual machine's own threads and idle pools are hidden: none of the remaining
/// threads waits.
fn who_waits_for_work_is_hidden(pid: u32, what: &str) {
    let own = "^(VM |GC Thread#|G1 |C[12] CompilerThread|Service Thread|Sweeper thread|Monitor Deflation)";
    let rest = [
        "^idle-",
        own,
        "^(Reference Handler|Finalizer|Common-Cleaner|Signal Dispatcher|Notification Thread)$",
    ];
    for threads in rest {
        let text = record(pid, &["--group", "name", "--format", "text", "--threads", threads]);
        let only_idle = text.contains("shown, because there is nothing else");
        let waits: Vec<_> =
            shown_states(&text).into_iter().filter(|(state, _)| *state == "wait").collect();
        assert!(only_idle || waits.is_empty(), "{what}: {waits:?}\n{text}");
    }
}

#[test]
fn threads_that_are_stopped_say_so_and_wait_for_no_lock() {
    if !can_test() {
        return;
    }
    for home in JDKS.iter() {
        let classes = compile(home, "States.java");
        let jvm = start(home, &classes, &["-XX:+UseSerialGC"], &["States", "collect"]);
        let profile = profile(jvm.child.id(), &["--group", "name"]);
        // While objects are moved a name may be unreadable at first: then a thread has two groups.
        let mut stopped = BTreeSet::new();
        for group in
            list(&profile["groups"]).iter().filter(|group| name(group).starts_with("stopped-"))
        {
            let tree = common::tree(group);
            let mut todo: Vec<(&Value, &str)> = list(&tree).iter().map(|node| (node, "")).collect();
            let mut met = false;
            while let Some((node, caller)) = todo.pop() {
                let frame = node["frame"].as_str().expect("a frame");
                // On its way there, or back, it is running.
                assert!(frame != "SafepointSynchronize::block", "{caller} calls {frame}");
                if frame == "[JVM safepoint]" {
                    met = true;
                    assert!(!caller.starts_with("Safepoint"), "called by {caller}");
                    let states = &node["states_ms"];
                    assert_eq!(
                        (&states["lock"], &states["sleep"]),
                        (&0.0.into(), &0.0.into()),
                        "{node}"
                    );
                    assert!(
                        list(&node["children"]).is_empty() && node["kind"] == "marker",
                        "{node}"
                    );
                }
                todo.extend(list(&node["children"]).iter().map(|child| (child, frame)));
            }
            if met {
                stopped.extend(list(&group["threads"]).iter().map(|thread| thread["tid"].as_u64()));
            }
        }
        assert_eq!(stopped.len(), 3, "{}: {profile}", home.display());
    }
}

#[test]
fn what_java_waits_for_is_said_in_its_words() {
    if !can_test() {
        return;
    }
    for home in JDKS.iter() {
        let classes = compile(home, "States.java");
        let jvm = start(home, &classes, &[], &["States"]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        let dump =
            output(command.args(["dump", "-p", &jvm.child.id().to_string(), "--format", "json"]));
        let dump: Value = serde_json::from_str(&dump).expect("json");
        let condition =
            "park on java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject";
        for (thread, wait) in [
            ("sleep-holder", "sleep"),
            ("sleep-unit", "sleep"),
            ("wait-object", "Object.wait"),
            ("idle-timer", "Object.wait"),
            ("wait-park", "park"),
            ("wait-future", "park"),
            ("lock-plain", "park"),
            ("idle-linked", condition),
            ("idle-poll", condition),
            ("lock-monitor", "monitor enter"),
        ] {
            let found = list(&dump["threads"])
                .iter()
                .find(|found| found["name"] == thread)
                .expect("the thread");
            assert_eq!(found["waits_for"], wait, "{} {thread}", home.display());
        }
    }
}

#[test]
fn one_monitor_is_one_row_and_who_waits_for_the_end_of_others_is_idle() {
    if !can_test() {
        return;
    }
    for home in JDKS.iter() {
        let classes = compile(home, "Monitors.java");
        for (options, arguments, ends) in [
            (&[][..], &["Monitors"][..], "main"),
            (&["-XX:TieredStopAtLevel=1"], &["Monitors", "return"], "DestroyJavaVM"),
            (&["-XX:-TieredCompilation"], &["Monitors"], "main"),
        ] {
            let jvm = start(home, &classes, options, arguments);
            let pid = jvm.child.id();
            let what = format!("{} {options:?}", home.display());
            let more = ["--format", "folded", "--group", "none", "--threads", "^enter-"];
            let stacks = record(pid, &more);
            let below: BTreeSet<_> = stacks
                .lines()
                .map(|line| {
                    let found = line.split_once("Monitors.enter;");
                    found.unwrap_or_else(|| panic!("{what}: not in it: {line}")).1
                })
                .map(|below| below.rsplit_once(' ').expect("a time").0)
                .collect();
            assert_eq!(below, BTreeSet::from(["monitor enter"]), "{what}: {stacks}");
            // `dump` shows how each got there.
            let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
            let dump = output(command.args(["dump", "-p", &pid.to_string(), "--each"]));
            assert!(
                dump.contains("InterpreterRuntime::monitorenter")
                    && dump.contains("ObjectMonitor::enter"),
                "{dump}"
            );
            assert!(
                dump.contains("Runtime1::monitorenter")
                    || dump.contains("complete_monitor_locking_C"),
                "{dump}"
            );

            let only_idle = |thread: &str| {
                let more = ["--group", "name", "--format", "text", "--threads", thread];
                record(pid, &more).contains("shown, because there is nothing else")
            };
            assert!(only_idle(&format!("^{ends}$")), "{what}: {ends}");
            assert!(!only_idle("^request$"), "{what}: a request that joins does its own waiting");
        }
    }
}

#[test]
fn rows_are_classes_packages_or_modules() {
    if !can_test() {
        return;
    }
    for home in JDKS.iter() {
        let classes = compile(home, "States.java");
        let jvm = start(home, &classes, &[], &["States"]);
        for (by, thread, expected) in [
            (
                "class",
                "idle-linked",
                &["States", "java.util.concurrent.LinkedBlockingQueue", "java.lang.Thread"][..],
            ),
            ("class", "lock-monitor", &["States", "[jvm]"]),
            (
                "package",
                "idle-linked",
                &[
                    "(no package)",
                    "java.util.concurrent",
                    "java.util.concurrent.locks",
                    "libjvm.so",
                ],
            ),
            ("module", "lock-monitor", &["[java]", "[jvm]", "libjvm.so", "libc.so.6"]),
        ] {
            let profile = profile(
                jvm.child.id(),
                &["--by", by, "--group", "name", "--threads", &format!("^{thread}$")],
            );
            assert_eq!(profile["rolled_up"], by);
            let mut met = Vec::new();
            let mut todo: Vec<(&Value, &Value)> = Vec::new();
            let trees: Vec<Value> = list(&profile["groups"]).iter().map(common::tree).collect();
            for tree in &trees {
                todo.extend(list(tree).iter().map(|node| (node, &Value::Null)));
            }
            while let Some((node, caller)) = todo.pop() {
                assert_ne!(
                    (&node["frame"], &node["kind"]),
                    (&caller["frame"], &caller["kind"]),
                    "two of one in a row"
                );
                assert!(node["line"].is_null() && node["tier"].is_null(), "{node}");
                let sum: f64 = list(&node["children"])
                    .iter()
                    .map(|child| child["wall_ms"].as_f64().expect("ms"))
                    .sum();
                let (total, own) = (
                    node["wall_ms"].as_f64().expect("ms"),
                    node["self_wall_ms"].as_f64().expect("ms"),
                );
                assert!((total - own - sum).abs() < 0.01, "{total} is not {own} + {sum}");
                met.push(node["frame"].as_str().expect("a frame").to_owned());
                todo.extend(list(&node["children"]).iter().map(|child| (child, node)));
            }
            for row in expected {
                assert!(
                    met.iter().any(|name| name == row),
                    "{} by {by}: no {row} in {met:?}",
                    home.display()
                );
            }
            assert!(met.iter().all(|name| !name.contains("$$Lambda")), "{met:?}");
        }
    }
}

#[test]
fn its_own_threads_are_a_group_and_daemons_can_be_left_out() {
    if !can_test() {
        return;
    }
    for home in JDKS.iter() {
        let classes = compile(home, "States.java");
        let jvm = start(home, &classes, &["-XX:+UseG1GC"], &["States"]);
        let everything = profile(jvm.child.id(), &[]);
        let own = list(&everything["groups"])
            .iter()
            .find(|group| name(group) == "[JVM]")
            .expect("a group of its own");
        assert!(list(&own["threads"]).iter().all(|thread| thread["kind"] == "internal"), "{own}");
        let roots = list(&own["nodes"]).iter().filter(|node| node["parent"].is_null());
        let rows: Vec<_> = roots.map(|row| (&row["frame"], &row["kind"])).collect();
        for row in ["VM Thread", "C2 CompilerThread", "GC Thread"] {
            assert!(
                rows.contains(&(&row.into(), &"thread".into())),
                "{}: no {row} in {rows:?}",
                home.display()
            );
        }
        let kind = |everything: &Value, of: &str| -> Vec<String> {
            let groups = list(&everything["groups"]).iter();
            let threads = groups.flat_map(|group| list(&group["threads"]).to_vec());
            threads
                .filter(|thread| thread["name"] == of)
                .map(|thread| thread["kind"].to_string())
                .collect()
        };
        assert_eq!(kind(&everything, "lock-monitor"), ["\"daemon\""], "{}", home.display());
        assert_eq!(kind(&everything, "idle-fixed"), ["\"plain\""], "{}", home.display());

        let without = profile(jvm.child.id(), &["--skip-daemon"]);
        assert!(
            kind(&without, "lock-monitor").is_empty() && kind(&without, "VM Thread").is_empty(),
            "{without}"
        );
        assert_eq!(kind(&without, "idle-fixed").len(), 1);
        assert!(without["settings"]["hidden_ms"]["daemons"].as_f64().expect("ms") > 0.0);
    }
}
