//! Locks, their holders and deadlocks, in what the program writes.

mod common;

use std::process::Command;

use common::java::{JDKS, can_test, compile, start as start_java};
use common::{Running, build};
use serde_json::Value;

fn sampletop(target: &Running, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.arg(args[0]).args(["-p", &target.pid().to_string()]).args(&args[1..]);
    let output = command.output().expect("sampletop starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn json(target: &Running, args: &[&str]) -> Value {
    let text = sampletop(target, &[args, &["--format", "json"]].concat());
    serde_json::from_str(&text).expect("JSON")
}

/// Starts the program, whose threads then wait for each other.
fn start(how: &str) -> Running {
    let program = build("locks.c", "locks", &["-O1", "-g", "-pthread"]);
    Running::start(&program, &[how])
}

fn names(values: &Value) -> Vec<&str> {
    values.as_array().expect("a list").iter().filter_map(Value::as_str).collect()
}

/// Six threads wait while `keeper` sleeps with the mutex: for 16 of 17 parts of the time, of which
/// each tick sees a part. At least two thirds of the waited time has the holder in the function in
/// which it sleeps; at random moments it would be 94 %.
fn convoy(backend: &str) {
    if !common::need_root("samples all CPUs") {
        return;
    }
    let target = start("convoy");
    let profile = json(&target, &["record", "-d", "3s", "--capture", backend]);
    let lock = &profile["locks"][0];
    assert_eq!((&lock["kind"], &lock["threads"]), (&"mutex".into(), &6.into()), "{lock}");
    let waited = lock["waited_ms"].as_f64().expect("a number");
    let held = lock["held_by"].as_array().expect("holders");
    let kept: f64 = held
        .iter()
        .filter(|held| held["name"] == "keeper" && names(&held["functions"]).contains(&"hold_it"))
        .map(|held| held["waited_ms"].as_f64().expect("a number"))
        .sum();
    assert!(kept >= waited * 2.0 / 3.0, "{kept} of {waited} ms: {lock:#}");
    assert!(names(&lock["waiting_in"][0]["functions"]).contains(&"take_it"), "{lock:#}");
    let text =
        sampletop(&target, &["record", "-d", "2s", "--format", "text", "--capture", backend]);
    assert!(text.contains("! 6 threads wait for one mutex"), "{text}");
    assert!(text.contains("held by keeper"), "{text}");
}

#[test]
fn a_convoy_has_its_holder_by_bpf() {
    convoy("bpf");
}

#[test]
fn a_convoy_has_its_holder_by_perf() {
    convoy("perf");
}

#[test]
fn a_deadlock_is_found_at_once() {
    let target = start("deadlock");
    let dump = json(&target, &["dump"]);
    let threads = dump["threads"].as_array().expect("threads");
    let thread = |name: &str| {
        threads.iter().find(|thread| thread["name"] == name).expect("the thread has its name")
    };
    let id = |name: &str| (thread(name)["pid"].clone(), thread(name)["tid"].clone());
    for (waits, holds) in [("left", "right"), ("right", "left")] {
        let blocker = &thread(waits)["blocker"];
        assert_eq!(blocker["kind"], "mutex", "{blocker}");
        assert_eq!(blocker["holder"]["name"], holds);
        assert_eq!(blocker["holder"]["tid"], id(holds).1);
    }
    let found = dump["deadlocks"].as_array().expect("a list");
    assert_eq!(found.len(), 1, "{found:?}");
    let cycle = found[0].as_array().expect("threads");
    let mut cycle: Vec<(Value, Value)> =
        cycle.iter().map(|thread| (thread[0].clone(), thread[1].clone())).collect();
    cycle.sort_by_key(|(_, tid)| tid.as_u64());
    assert_eq!(cycle, [id("left"), id("right")]);
    let text = sampletop(&target, &["dump"]);
    assert!(text.contains("DEADLOCK"), "{text}");
    assert!(text.contains("held by right ("), "{text}");
    assert_eq!(text.matches("holding mutex 0x").count(), 2, "{text}");
    let text = sampletop(&target, &["record", "-d", "2s", "--format", "text"]);
    assert!(text.contains("! deadlock: left and right wait for each other"), "{text}");
}

/// Eight threads take four mutexes in one order: 20 s in which every second the waits are looked
/// through.
#[test]
fn nested_locks_are_no_deadlock() {
    let target = start("nested");
    let profile = json(&target, &["record", "-d", "20s", "-i", "2ms"]);
    assert_eq!(profile["deadlocks"], Value::Array(Vec::new()));
    assert!(profile["locks"].as_array().is_some_and(|locks| locks.len() >= 3), "they wait");
    for _ in 0..10 {
        assert_eq!(json(&target, &["dump"])["deadlocks"], Value::Array(Vec::new()));
    }
}

/// Six threads of a convoy wait for one mutex nearly always; its holder sleeps.
#[test]
fn time_is_grouped_by_what_is_waited_for() {
    if !common::need_root("samples all CPUs") {
        return;
    }
    let target = start("convoy");
    let profile = json(&target, &["record", "-d", "2s", "--group", "blocker", "--idle"]);
    let groups = profile["groups"].as_array().expect("groups");
    let threads = |name: &str| {
        let found: Vec<_> = groups
            .iter()
            .filter(|group| group["name"].as_str().is_some_and(|group| group.starts_with(name)))
            .collect();
        assert_eq!(found.len(), 1, "{name}: {profile:#}");
        let threads = found[0]["threads"].as_array().expect("a list").len();
        (found[0]["wall_ms"].as_f64().expect("a number"), threads)
    };
    let (waited, waiting) = threads("mutex 0x");
    assert!((6..=7).contains(&waiting), "the keeper waits for it too, when it is late: {waiting}");
    // Of 12 s: all but 1 of 85 ms.
    assert!(waited > 9_000.0, "{waited} ms");
    assert!(threads("(sleeps)").0 > 1_500.0);
}

/// Returns the exit code of `dump --check-deadlock`, and what it writes.
fn check_deadlock(target: &Running, options: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(["dump", "--check-deadlock", "-p", &target.pid().to_string()]).args(options);
    let output = command.output().expect("sampletop starts");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    (output.status.code(), text)
}

/// Checks that the deadlock of `left` and `right` is all that is written. `calls`: the function in
/// which they wait.
fn check_finds_left_and_right(target: &Running, kind: &str, calls: &str) {
    let (code, text) = check_deadlock(target, &[]);
    assert_eq!(code, Some(7), "{text}");
    for words in ["deadlocks=1", &format!("waiting for {kind}"), "held by right (", calls] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let (code, json) = check_deadlock(target, &["--format", "json"]);
    let dump: Value = serde_json::from_str(&json).expect("JSON");
    let threads = dump["threads"].as_array().expect("threads");
    let mut found: Vec<&str> =
        threads.iter().filter_map(|thread| thread["name"].as_str()).collect();
    found.sort_unstable();
    assert_eq!((code, found), (Some(7), vec!["left", "right"]));
    assert_eq!(dump["deadlocks"].as_array().map(Vec::len), Some(1));
}

fn check_finds_none(target: &Running) {
    for _ in 0..10 {
        let (code, text) = check_deadlock(target, &[]);
        assert_eq!((code, text.lines().count()), (Some(0), 1), "{text}");
        assert!(text.starts_with("no deadlock among the "), "{text}");
    }
}

#[test]
fn a_probe_finds_a_deadlock_of_mutexes() {
    check_finds_left_and_right(&start("deadlock"), "mutex 0x", "take_other");
}

#[test]
fn a_probe_finds_no_deadlock_in_nested_locks() {
    let target = start("nested");
    // Of a young process a notice says that threads may be missing.
    std::thread::sleep(std::time::Duration::from_secs(5));
    check_finds_none(&target);
}

#[test]
fn a_probe_finds_deadlocks_of_java() {
    if !can_test() {
        return;
    }
    for home in JDKS.iter() {
        let classes = compile(home, "Deadlock.java");
        for (how, kind) in [
            ("monitors", "monitor of Deadlock$Account 0x"),
            ("locks", "lock of java.util.concurrent.locks.ReentrantLock$NonfairSync 0x"),
        ] {
            let target = start_java(home, &classes, &["Deadlock"], &[how]);
            check_finds_left_and_right(&target, kind, "Deadlock.transfer");
        }
        let target = start_java(home, &classes, &["Deadlock"], &["nested"]);
        std::thread::sleep(std::time::Duration::from_secs(5));
        check_finds_none(&target);
    }
}

/// Without the right to read what threads wait for, there is no answer.
#[test]
fn a_probe_that_sees_only_states_does_not_say_no() {
    let (code, text) = check_deadlock(&start("deadlock"), &["--capture", "states"]);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("whether there is a deadlock cannot be known"), "{text}");
}

/// Six threads hold one mutex in turn. The one that holds it waited for it before, and sleeps now.
#[test]
fn a_thread_that_got_what_it_waited_for_waits_no_longer() {
    let target = start("turns");
    let profile = json(&target, &["record", "-d", "14s"]);
    assert_eq!(profile["deadlocks"], Value::Array(Vec::new()));
    let lock = &profile["locks"][0];
    assert_eq!((lock["kind"].as_str(), lock["threads"].as_u64()), (Some("mutex"), Some(6)));
    let holders = lock["held_by"].as_array().expect("a list");
    assert!(holders.len() >= 4, "they take turns: {holders:?}");
    let mut waited = [0.0, 0.0];
    for held in holders.iter().filter(|held| held["name"].as_str().is_some_and(|n| !n.is_empty())) {
        assert!(held["name"].as_str().is_some_and(|name| name.starts_with("turn-")), "{held}");
        let functions = held["functions"].as_array().expect("a list");
        let there = functions.iter().any(|function| function == "hold_it");
        waited[usize::from(there)] += held["waited_ms"].as_f64().expect("a number");
    }
    // Just after a change the new holder may not have been seen there yet.
    assert!(waited[1] > 4.0 * waited[0], "{holders:?}");
}

/// Threads that wait in every way whose holder is known, by the program's own word.
#[test]
fn a_dump_has_the_blockers_of_all_threads() {
    let program = build("blockers.c", "blockers-of-dump", &["-O1", "-g", "-pthread"]);
    let folder = program.with_extension("files");
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut target = Running::start(&program, &[folder.to_str().expect("text")]);
    let lines = target.lines.by_ref().map(|line| line.expect("text"));
    let lines: Vec<String> = lines.take_while(|line| line != "end").collect();
    let dump = json(&target, &["dump"]);
    let threads = dump["threads"].as_array().expect("threads");
    let mut known = 0;
    for line in lines.iter().filter(|line| *line != "ready") {
        let words: Vec<&str> = line.split(' ').collect();
        let (what, tid, kind) = (words[0], words[1], words[2]);
        let (object, holder) = (words.get(3).unwrap_or(&""), *words.get(4).unwrap_or(&""));
        let Some(thread) = threads.iter().find(|thread| thread["tid"].as_u64() == tid.parse().ok())
        else {
            // Of another process.
            continue;
        };
        let blocker = &thread["blocker"];
        match kind {
            "none" => assert!(blocker.is_null(), "{what}: {blocker}"),
            // Holders of file locks are not looked for in each tick.
            _ if holder == "unknown" || blocker["kind"] == "file lock" => {}
            _ => {
                let found = &blocker["holder"];
                let text = match (found["readers"].as_u64(), found["tid"].as_u64()) {
                    (Some(count), _) => format!("readers:{count}"),
                    (None, Some(tid)) => format!("thread:{}:{tid}", found["pid"]),
                    (None, None) => "unknown".into(),
                };
                assert_eq!(text, holder, "{what} {object}: {blocker}");
                known += 1;
            }
        }
    }
    assert!(known >= 10, "{known} of {lines:?}");
}
