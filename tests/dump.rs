//! `dump`: every running thread has a stack, also where there are more of them than cores.

mod common;

use std::process::Command;
use std::time::Instant;

use common::{Running, build};
use serde_json::Value;

fn dump(target: &Running, options: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(["dump", "-p", &target.pid().to_string(), "--format", "json"]).args(options);
    let output = command.output().expect("sampletop starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns name, state and function names, innermost first, of each thread whose name begins with
/// `kind`.
fn threads(dump: &Value, kind: &str) -> Vec<(String, String, Vec<String>)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let threads = dump["threads"].as_array().expect("threads").iter();
    threads
        .filter(|thread| thread["name"].as_str().expect("text").starts_with(kind))
        .map(|thread| {
            let frames = thread["frames"]
                .as_array()
                .expect("frames")
                .iter()
                .map(|frame| text(&frame["frame"]));
            (text(&thread["name"]), text(&thread["state"]), frames.collect())
        })
        .collect()
}

/// Returns the run time of a thread, ms.
fn ran(target: &Running, tid: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/task/{tid}/schedstat", target.pid()))
        .expect("it lives");
    text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).expect("a number") / 1_000_000
}

/// Of 8 threads on a few cores some run and the others wait for a core. Each has its stack, twenty
/// times. By `perf` a thread has to be sampled. One that gets a twentieth of a core within the
/// second that a dump may take is missed by 50 samples in a row with a probability below 1e-20. If
/// a busy machine gives it less, its stack is not checked.
fn busy_threads_have_stacks(backend: &str) {
    if !common::need_root("samples all CPUs") {
        return;
    }
    let program = build("dump_busy.c", &format!("busy-{backend}"), &["-O1", "-g"]);
    let target = Running::start(&program, &["8", "0"]);
    // In the order of their ids, as in a dump; the first is the leader.
    let tasks = std::fs::read_dir(format!("/proc/{}/task", target.pid())).expect("its threads");
    let mut tids: Vec<u32> = tasks
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|tid| *tid != target.pid())
        .collect();
    tids.sort_unstable();
    let tids: [String; 8] = std::array::from_fn(|at| tids[at].to_string());
    let mut waited_for_a_core = 0;
    for round in 0..20 {
        let (begin, before) = (Instant::now(), tids.each_ref().map(|tid| ran(&target, tid)));
        let dump = dump(&target, &["--capture", backend]);
        let wall = begin.elapsed().as_millis() as u64;
        let busy = threads(&dump, "busy-");
        assert_eq!(busy.len(), 8, "{dump}");
        for ((name, state, frames), (tid, before)) in busy.into_iter().zip(tids.iter().zip(before))
        {
            if backend == "perf" && 20 * (ran(&target, tid) - before) < wall {
                continue;
            }
            let outer = frames.iter().position(|frame| frame == "burn_outer");
            assert!(
                outer.is_some_and(|at| at > 0),
                "dump {round} by {backend}: {name} {state} {frames:?}"
            );
            assert!(state == "run" || state == "rdy", "{state}");
            waited_for_a_core += usize::from(state == "rdy");
        }
        assert!(dump["took_ms"].as_f64().expect("ms") < 5_000.0, "{dump}");
    }
    // By `bpf`, stacks of threads that wait for a core are read as they are. By `perf`, counters
    // may report that too.
    assert!(waited_for_a_core > 0 || backend == "perf");
}

#[test]
fn busy_threads_have_stacks_by_bpf() {
    busy_threads_have_stacks("bpf");
}

#[test]
fn busy_threads_have_stacks_by_perf() {
    busy_threads_have_stacks("perf");
}

#[test]
fn a_thread_that_runs_and_blocks_in_turn_has_a_stack() {
    if !common::need_root("samples all CPUs") {
        return;
    }
    let program = build("dump_busy.c", "turns", &["-O1", "-g"]);
    let target = Running::start(&program, &["2", "12"]);
    for backend in ["bpf", "perf"] {
        for round in 0..5 {
            let turning = threads(&dump(&target, &["--capture", backend]), "turn-");
            assert_eq!(turning.len(), 12);
            for (name, state, frames) in turning {
                let outer = frames.iter().position(|frame| frame == "turn_outer");
                assert!(
                    outer.is_some_and(|at| at > 0),
                    "dump {round} by {backend}: {name} {state} {frames:?}"
                );
            }
        }
    }
}

#[test]
fn where_no_thread_runs_one_observation_is_enough() {
    if !common::need_root("samples all CPUs") {
        return;
    }
    let program = build("cap_threads.c", "dump", &["-O1"]);
    let target = Running::start(&program, &["wake", "50"]);
    common::wait_until_all_sleep(target.pid());
    // Beyond that age the process counts as complete.
    std::thread::sleep(std::time::Duration::from_secs(5));
    for backend in ["bpf", "perf"] {
        let dump = dump(&target, &["--capture", backend]);
        assert_eq!(dump["threads"].as_array().map(Vec::len), Some(51));
        assert_eq!(
            (&dump["took_ms"], &dump["notice"]),
            (&Value::from(0.0), &Value::Null),
            "{backend}"
        );
    }
}

#[test]
fn a_process_that_has_just_begun_may_be_without_some_of_its_threads_and_that_is_said() {
    let program = build("dump_busy.c", "young", &["-O1", "-g"]);
    let target = Running::start(&program, &["0", "0"]);
    let dump = dump(&target, &[]);
    let notice = dump["notice"].as_str().expect("a notice");
    assert!(notice.contains("the process began less than 5 s before"), "{notice}");
}
