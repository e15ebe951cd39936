//! Threads that are hardly ever sampled individually, and recordings hardly longer than their
//! start: every figure has its stack, and elapsed time is the observed time.

mod common;

use std::io::Write;
use std::process::Command;

use common::{Recording, Running, wait_until_all_sleep};
use serde_json::Value;

fn start(args: &[&str]) -> Running {
    Running::start(&common::build("brief.c", "brief", &["-O1", "-g"]), args)
}

fn go(target: &mut Running) {
    target.child.stdin.as_mut().expect("stdin").write_all(b"\n").expect("it listens");
    let line = target.lines.next().expect("it answers").expect("text");
    assert_eq!(line, "done");
}

/// What is recorded while `during` goes on.
fn record(
    target: &mut Running,
    backend: &str,
    during: impl FnOnce(&Recording, &mut Running),
) -> Value {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("p.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command
        .args(["record", "-p", &target.pid().to_string(), "--capture", backend, "--idle"])
        .args(["--group", "thread", "-o"])
        .arg(&file);
    let recording = Recording::start(&mut command);
    during(&recording, target);
    let output = recording.end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&std::fs::read(&file).expect("the profile")).expect("JSON")
}

fn ms(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("{field} of {value}"))
}

/// (all, below `spin`, markers that stand for time without a stack), ms, of all threads but the
/// first. That one creates the others. Its few ms often have no sample of their own, and no thread
/// does the same.
fn sums(profile: &Value, field: &str) -> (f64, f64, f64) {
    let (mut all, mut spin, mut marked) = (0.0, 0.0, 0.0);
    for group in profile["groups"].as_array().expect("groups") {
        if group["threads"].as_array().expect("threads").iter().any(|it| it["tid"] == it["pid"]) {
            continue;
        }
        all += ms(group, field);
        for node in group["nodes"].as_array().expect("nodes") {
            let frame = node["frame"].as_str().expect("text");
            spin += if frame == "spin" { ms(node, field) } else { 0.0 };
            let stands_for_time =
                ["[cpu, not sampled]", "[exited threads, not sampled]"].contains(&frame);
            marked += if stands_for_time { ms(node, field) } else { 0.0 };
        }
    }
    (all, spin, marked)
}

/// 500 ms of CPU time are some 50 samples. Every second with more than a few ms has one: the chance
/// of 100 ms without any is e^-10 at most. The rest of the time is the kernel's, for creating
/// threads and ending them.
fn one_after_the_other(backend: &str) {
    let mut target = start(&["brief", "250", "2000"]);
    let profile = record(&mut target, backend, |_, target| go(target));
    let (all, spin, marked) = sums(&profile, "cpu_ms");
    assert!(all >= 500.0, "{all} ms are less than what the threads measured of themselves");
    assert!(spin >= 0.8 * all, "{spin} of {all} ms are in spin");
    assert!(marked <= 0.02 * all, "{marked} of {all} ms have no stack");
}

#[test]
fn threads_one_after_the_other_have_their_stacks_by_bpf() {
    if common::need_root("samples all CPUs") {
        one_after_the_other("bpf");
    }
}

#[test]
fn threads_one_after_the_other_have_their_stacks_by_perf() {
    if common::need_root("samples all CPUs") {
        one_after_the_other("perf");
    }
}

/// Each thread has one or two samples, and as much time again after its last one.
#[test]
fn threads_that_run_in_short_bursts_have_no_time_without_a_stack() {
    if !common::need_root("samples all CPUs") {
        return;
    }
    let mut target = start(&["bursts", "40", "100"]);
    let profile = record(&mut target, "bpf", |recording, target| {
        go(target);
        recording.until_used(target.pid(), 600);
    });
    let (all, spin, marked) = sums(&profile, "cpu_ms");
    assert!(all >= 500.0 && spin >= 0.4 * all, "{spin} of {all} ms are in spin");
    assert!(marked <= 0.02 * all, "{marked} of {all} ms have no stack");
}

/// They wait for a core nearly all the time, in the stacks in which they lost it. Each has some 19
/// samples. The chance that one of the 16 has none, so that no stack of it is known, is 16 e^-19 =
/// 9e-8.
#[test]
fn threads_that_want_one_core_are_ready_where_they_run() {
    if !common::need_root("samples all CPUs") {
        return;
    }
    let mut target = start(&["crowd", "16"]);
    let profile = record(&mut target, "bpf", |recording, target| {
        go(target);
        recording.until_used(target.pid(), 3_000);
    });
    let (all, spin, marked) = sums(&profile, "wall_ms");
    assert!(
        marked <= 0.02 * all && spin >= 0.9 * all,
        "{spin} of {all} ms are in spin, {marked} have no stack"
    );
    let states = profile["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .map(|group| ms(&group["states_ms"], "rdy"));
    assert!(states.clone().sum::<f64>() >= 0.8 * all, "{all} ms of threads for one core");
}

/// The time until sampling begins is no time of the target's, however long it is.
#[test]
fn elapsed_time_is_what_threads_were_observed() {
    let target = start(&["idle", "5"]);
    wait_until_all_sleep(target.pid());
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("p.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command
        .args(["record", "-d", "500ms", "--idle", "-p", &target.pid().to_string(), "-o"])
        .arg(&file);
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let profile: Value =
        serde_json::from_slice(&std::fs::read(&file).expect("the profile")).expect("JSON");
    let (elapsed, interval) = (ms(&profile, "elapsed_ms"), ms(&profile, "interval_ms"));
    assert!(
        elapsed >= 500.0 && ms(&profile["health"], "startup_ms") > 0.0,
        "{elapsed} {}",
        profile["health"]
    );
    let threads = profile["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .map(|group| (group, &group["threads"]));
    let mut seen = 0;
    for (group, threads) in threads {
        let threads = threads.as_array().expect("threads").len();
        let each = ms(group, "wall_ms") / threads as f64;
        assert!((elapsed - each).abs() <= interval, "{each} of {elapsed} ms");
        seen += threads;
    }
    assert_eq!(seen, 6);
}
