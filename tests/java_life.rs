//! Virtual machines at any moment of their lives: the names and kinds of their threads, while they
//! start, after an exec, in a container; and that profiling does not disturb them.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::Recording;
use common::java::{JDKS, Jdk, can_test, compile, output, start};
use regex::Regex;
use serde_json::Value;

fn sampletop(args: &[&str]) -> String {
    output(Command::new(env!("CARGO_BIN_EXE_sampletop")).args(args))
}

/// What `dump` says of a process's threads: by id, name and kind.
fn dump(pid: u32) -> BTreeMap<u64, (String, String)> {
    let report: Value =
        serde_json::from_str(&sampletop(&["dump", "-p", &pid.to_string(), "--format", "json"]))
            .expect("JSON");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let thread = |thread: &Value| {
        (thread["tid"].as_u64().expect("an id"), (text(&thread["name"]), text(&thread["kind"])))
    };
    report["threads"].as_array().expect("threads").iter().map(thread).collect()
}

/// Returns jstack's output: by id the name, and whether it is a daemon; `None` for the virtual
/// machine's own threads.
fn jstack(home: &Path, pid: u32) -> BTreeMap<u64, (String, Option<bool>)> {
    static THREAD: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#"^"(.*?)" (#\d+ )?(.*)\bnid=(0x[0-9a-f]+|\d+)"#).expect("a pattern")
    });
    let text = output(Command::new(home.join("bin/jstack")).arg(pid.to_string()));
    let found = text.lines().filter_map(|line| THREAD.captures(line));
    let thread = |found: regex::Captures<'_>| {
        let id = found[4]
            .strip_prefix("0x")
            .map_or(found[4].parse(), |hex| u64::from_str_radix(hex, 16));
        let daemon = found.get(2).map(|_| found[3].split(' ').any(|word| word == "daemon"));
        (id.expect("a number"), (found[1].to_owned(), daemon))
    };
    found.map(thread).collect()
}

#[test]
fn threads_are_of_the_kind_that_jstack_says() {
    if !can_test() {
        return;
    }
    for home in JDKS.iter() {
        for collector in
            ["-XX:+UseG1GC", "-XX:+UseSerialGC", "-XX:+UseParallelGC", "-XX:+UseShenandoahGC"]
        {
            let target =
                start(home, &compile(home, "Life.java"), &[collector], &["Life", "threads"]);
            let what = format!("{} {collector}", home.display());
            let (theirs, ours) = (jstack(home, target.pid()), dump(target.pid()));
            let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
            for (tid, (name, kind)) in &ours {
                let Some((called, daemon)) = theirs.get(tid) else {
                    // The thread that started it; jstack's own helper may have exited.
                    if *tid == u64::from(target.pid()) {
                        assert_eq!((name.as_str(), kind.as_str()), ("java", "internal"), "{what}");
                    }
                    continue;
                };
                // Threads without a Java object have the kernel's 15 letters.
                let same = if daemon.is_some() {
                    name == called
                } else {
                    called.starts_with(name.as_str())
                };
                assert!(same, "{what}: {name}, not {called}");
                let expected = match daemon {
                    Some(false) => &["plain"][..],
                    Some(true) if called.contains("CompilerThread") => &["internal"],
                    // Of those some are the virtual machine's.
                    Some(true) => &["daemon", "internal"],
                    None => &["internal"],
                };
                assert!(expected.contains(&kind.as_str()), "{what}: {name} is {kind}");
                *seen.entry(kind).or_default() += 1;
            }
            // Ours, and the one that waits for them.
            assert_eq!(seen.get("plain"), Some(&4), "{what}: {ours:?}");
            let daemons =
                ours.values().filter(|(_, kind)| kind == "daemon").map(|(name, _)| name.as_str());
            let daemons: BTreeSet<&str> = daemons.collect();
            for name in ["a daemon of the program", "Finalizer", "Reference Handler"] {
                assert!(daemons.contains(name), "{what}: {ours:?}");
            }
            assert!(seen["internal"] > 3, "{what}: {ours:?}");
        }
    }
}

/// Groups of a profile, by name: ms of wall time.
fn groups(report: &str) -> BTreeMap<String, f64> {
    let report: Value = serde_json::from_str(report).expect("JSON");
    let groups = report["groups"].as_array().expect("groups");
    groups
        .iter()
        .map(|group| {
            (group["name"].as_str().expect("a name").into(), group["wall_ms"].as_f64().expect("ms"))
        })
        .collect()
}

#[test]
fn a_thread_has_the_name_of_the_time() {
    if !can_test() {
        return;
    }
    let home = &JDKS[0];
    let target = start(home, &compile(home, "Life.java"), &[], &["Life", "names"]);
    let pid = target.pid().to_string();
    let told = groups(&sampletop(&[
        "record", "-p", &pid, "-d", "4s", "--format", "json", "--group", "name",
    ]));
    // Half a second each. While a name cannot be read yet, the kernel's name stands for it, which
    // belongs to no other thread.
    for name in ["first of the requests", "second of the requests"] {
        let [whole, short] = [name, &name[..15]].map(|name| told.get(name).copied().unwrap_or(0.0));
        assert!(whole > 0.0 && (1_450.0..=2_550.0).contains(&(whole + short)), "{name}: {told:?}");
    }
}

#[test]
fn it_does_not_notice_and_jstack_works_meanwhile() {
    if !can_test() {
        return;
    }
    for (home, capture) in JDKS.iter().zip(["bpf", "perf"].iter().cycle()) {
        // A waiting thread would not be stopped by any backend.
        let target = start(home, &compile(home, "Life.java"), &[], &["Life", "busy"]);
        let pid = target.pid();
        let (over, traced) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let tasks =
                        std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").flatten();
                    let mut status = tasks.filter_map(|task| {
                        std::fs::read_to_string(task.path().join("status")).ok()
                    });
                    let found =
                        status.any(|status| !status.lines().any(|line| line == "TracerPid:\t0"));
                    traced.fetch_or(found, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let recording = Command::new(env!("CARGO_BIN_EXE_sampletop"))
                .args([
                    "record",
                    "-p",
                    &pid.to_string(),
                    "-d",
                    "2s",
                    "-i",
                    "2ms",
                    "--capture",
                    capture,
                    "--format",
                    "text",
                ])
                .stdout(Stdio::piped())
                .spawn()
                .expect("sampletop runs");
            let meanwhile = jstack(home, pid);
            let done = recording.wait_with_output().expect("it ends");
            let afterwards = jstack(home, pid);
            over.store(true, Ordering::Relaxed);
            assert!(done.status.success());
            for found in [meanwhile, afterwards] {
                assert!(
                    found.values().any(|(name, _)| name == "another worker of it"),
                    "{found:?}"
                );
            }
        });
        assert!(!traced.into_inner(), "{}: a thread was traced", home.display());
    }
}

/// Returns microseconds of stacks with this method in them, and checks that all of them show it
/// under its callers in order.
fn worked(report: &str, what: &str) -> u64 {
    let mut sum = 0;
    for line in report.lines().filter(|line| line.contains(";Life.burn")) {
        let (stack, value) = line.rsplit_once(' ').expect("a value");
        assert!(stack.contains(";Life.main;Life.work;Life.burn"), "{what}: {line}");
        sum += value.parse::<u64>().expect("a number");
    }
    sum
}

#[test]
fn it_can_be_looked_at_from_its_first_moment() {
    if !can_test() {
        return;
    }
    for home in JDKS.iter() {
        let (java, classes) = (home.join("bin/java"), compile(home, "Life.java"));
        let (java, classes) = (java.to_str().expect("text"), classes.to_str().expect("text"));
        let format = [
            "-d",
            "exit",
            "--format",
            "folded",
            "--metric",
            "cpu",
            "--no-kernel",
            "--capture",
            "bpf",
        ];
        // Right after its start, and later.
        for delay in [0, 20, 60, 150] {
            let mut command = Command::new(java);
            let mut child = command
                .args(["-cp", classes, "Life", "work", "1000"])
                .spawn()
                .expect("java starts");
            std::thread::sleep(Duration::from_millis(delay));
            let what = format!("{java} after {delay} ms");
            let worked = worked(
                &sampletop(&[&["record", "-p", &child.id().to_string()], &format[..]].concat()),
                &what,
            );
            child.wait().expect("it ends");
            // It reads until it can, at most 10 ms after that.
            assert!(worked > 700_000, "{what}: {worked} us");
        }
        // From before it exists: another program becomes it by exec.
        let line = format!("exec {java} -cp {classes} Life work 1000");
        let file = tempfile::NamedTempFile::new().expect("a file");
        let command = ["record", "-o", file.path().to_str().expect("text")];
        sampletop(&[&command, &format[2..], &["--", "sh", "-c", &line]].concat());
        let worked = worked(&std::fs::read_to_string(file.path()).expect("a report"), "by exec");
        assert!(worked > 700_000, "{java} by exec: {worked} us");
    }
}

/// In a pid namespace of its own, with the virtual machine at a path that does not exist here.
#[test]
fn names_are_found_in_containers() {
    if !can_test() {
        return;
    }
    let jdk = Jdk::apart(&JDKS[0], true);
    let target = jdk.start(&jdk.compile("Life.java"), &[], &["Life", "threads"]);
    let threads = dump(target.pid());
    for expected in [
        ("a worker of the program", "plain"),
        ("a daemon of the program", "daemon"),
        ("java", "internal"),
    ] {
        let found = threads
            .values()
            .filter(|(name, kind)| (name.as_str(), kind.as_str()) == expected)
            .count();
        assert_eq!(found, 1, "{expected:?}: {threads:?}");
    }
}

#[test]
fn one_that_another_starts_is_watched_too() {
    if !can_test() {
        return;
    }
    for home in JDKS.iter() {
        let mut target = start(home, &compile(home, "Life.java"), &[], &["Life", "starts", "2000"]);
        let mut record = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        record.args([
            "record",
            "-p",
            &target.pid().to_string(),
            "--subprocesses",
            "--group",
            "process",
        ]);
        // The format that is flat: compilers' stacks may be deep.
        let recording = Recording::start(record.args([
            "--format",
            "folded",
            "--metric",
            "wall",
            "--no-kernel",
        ]));
        target.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it listens");
        let other = target.lines.next().expect("a line").expect("text");
        target.child.wait().expect("it ends");
        let output = recording.end();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report = String::from_utf8(output.stdout).expect("text");
        let of = |pid: &str| -> String {
            let begin = format!("{pid} ");
            report
                .lines()
                .filter(|line| line.starts_with(&begin))
                .map(|line| format!("{line}\n"))
                .collect()
        };
        let (one, other) = (of(&target.pid().to_string()), of(&other));
        // It is found within half a second, and its virtual machine is there 0.2 s later.
        let worked = worked(&other, &format!("{} by another", home.display()));
        assert!(worked > 1_000_000, "{}: {worked} us", home.display());
        assert!(
            one.contains(";Life.main;Life.starts;") && !one.contains(";Life.burn"),
            "{}: {one}",
            home.display()
        );
        assert!(!other.contains(";Life.starts"), "{}: {other}", home.display());
    }
}
