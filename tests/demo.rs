//! The built-in workload is as specified: its threads, its functions, its own measurements, its
//! end.

mod common;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::Running;
use object::{Object, ObjectSymbol};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_sampletop");
const PATIENCE: Duration = Duration::from_secs(60);

fn start(workload: &str) -> Running {
    Running::start(Path::new(PROGRAM), &["__workload", workload, &std::process::id().to_string()])
}

/// Returns what it has measured of itself so far.
fn truth(running: &mut Running) -> Value {
    let stdin = running.child.stdin.as_mut().expect("stdin is piped");
    stdin.write_all(b"truth\n").expect("it listens");
    let line = running.lines.next().expect("it answers").expect("with text");
    serde_json::from_str(&line).expect("with JSON")
}

/// Asks until the answer is good.
fn truth_when(running: &mut Running, good: impl Fn(&Value) -> bool) -> Value {
    let since = Instant::now();
    loop {
        let truth = truth(running);
        if good(&truth) {
            return truth;
        }
        assert!(since.elapsed() < PATIENCE, "not reached in {PATIENCE:?}: {truth}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn threads_of(pid: u32) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/task"))
        .expect("it runs")
        .map(|entry| {
            std::fs::read_to_string(entry.expect("a thread").path().join("comm")).expect("a name")
        })
        .map(|name| name.trim_end().to_owned())
        .collect();
    names.sort();
    names
}

fn expected_threads(parts: &[(&str, usize)]) -> Vec<String> {
    let mut names = vec!["sampletop-demo".to_owned()];
    for (stem, count) in parts {
        names.extend((1..=*count).map(|n| format!("{stem}-{n}")));
        if *stem == "pool-thread" {
            names.push("pool-waker".to_owned());
        }
    }
    names.sort();
    names
}

#[test]
fn every_part_has_its_threads_by_name() {
    let parts = [("mixed", 3), ("mass", 2), ("pool-thread", 40), ("locks", 4)];
    for (word, parts) in [
        ("mixed", &parts[..1]),
        ("mass", &parts[1..2]),
        ("pool", &parts[2..3]),
        ("locks", &parts[3..]),
        ("all", &parts[..]),
    ] {
        let running = start(word);
        assert_eq!(threads_of(running.pid()), expected_threads(parts), "{word}");
    }
}

/// (calls, cpu ms, wall ms) of a function of a thread; zeros if it was not called.
fn function(truth: &Value, thread: &str, name: &str) -> (u64, f64, f64) {
    let threads = truth["threads"].as_array().expect("threads");
    let thread = threads
        .iter()
        .find(|t| t["name"] == thread)
        .unwrap_or_else(|| panic!("no thread {thread}: {truth}"));
    let functions = thread["functions"].as_array().expect("functions");
    functions.iter().find(|f| f["name"] == name).map_or((0, 0.0, 0.0), |f| {
        (
            f["calls"].as_u64().expect("calls"),
            f["cpu_ms"].as_f64().expect("cpu"),
            f["wall_ms"].as_f64().expect("wall"),
        )
    })
}

#[test]
fn mixed_burns_half_and_sleeps_half_of_what_its_names_say() {
    let mut running = start("mixed");
    // method_50ms ends a cycle: when it was called twice, so were all before it.
    let truth = truth_when(&mut running, |t| {
        (1..=3).all(|n| function(t, &format!("mixed-{n}"), "method_50ms").0 >= 2)
    });
    for thread in ["mixed-1", "mixed-2", "mixed-3"] {
        for (name, milliseconds, calls_per_round) in [
            ("method_1ms", 1.0, 3),
            ("method_50ms", 50.0, 2),
            ("method_100ms", 100.0, 3),
            ("method_500ms", 500.0, 1),
        ] {
            let (calls, cpu, wall) = function(&truth, thread, name);
            assert!(calls >= calls_per_round, "{thread} {name}: {calls}");
            // Lower bounds only, and exact ones: the loop burns until the thread's clock says so,
            // and sleeps at least for the requested time. How much more it takes on a loaded
            // machine is not asserted.
            assert!(
                cpu >= calls as f64 * milliseconds / 2.0,
                "{thread} {name}: {cpu} ms of CPU in {calls} calls"
            );
            assert!(
                wall >= calls as f64 * milliseconds,
                "{thread} {name}: {wall} ms in {calls} calls"
            );
        }
    }
}

#[test]
fn what_it_measures_fits_together() {
    let mut running = start("all");
    let first = truth(&mut running);
    let later =
        truth_when(&mut running, |t| function(t, "mass-1", "call_tiny_100_million_times").0 >= 1);
    assert_eq!(later["pid"], running.pid());
    let elapsed = |t: &Value| t["elapsed_ms"].as_f64().expect("elapsed");
    assert!(elapsed(&later) > elapsed(&first));
    let threads = later["threads"].as_array().expect("threads");
    assert_eq!(threads.len(), 50);
    for thread in threads {
        let sum = |field: &str| -> f64 {
            thread["functions"]
                .as_array()
                .expect("functions")
                .iter()
                .map(|f| f[field].as_f64().expect("ms"))
                .sum()
        };
        let cpu = thread["cpu_ms"].as_f64().expect("cpu");
        assert!(
            cpu > 0.0 && sum("cpu_ms") <= cpu + 1e-6,
            "its functions use no more than the thread: {thread}"
        );
        // The whole is read after its parts.
        assert!(sum("wall_ms") <= elapsed(&later) + 1e-6, "{thread}");
        let tid = thread["tid"].as_i64().expect("tid");
        let comm = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", running.pid()))
            .expect("it lives");
        assert_eq!(comm.trim_end(), thread["name"].as_str().expect("a name"));
    }
    // Waiting threads report where, although they never returned from it.
    for (thread, name) in
        [(39, "wait_in_read"), (40, "wait_in_sleep"), (37, "wait_in_epoll"), (38, "wait_in_futex")]
    {
        let (calls, _, wall) = function(&later, &format!("pool-thread-{thread}"), name);
        assert!(
            calls == 0 && wall > 0.0,
            "pool-thread-{thread} is in {name}: {calls} calls, {wall} ms"
        );
    }
}

#[test]
fn the_pool_wakes_two_and_the_locks_contend() {
    let mut pool = start("pool");
    let handled = |t: &Value, n: u32| function(t, &format!("pool-thread-{n}"), "handle_job").0;
    let truth = truth_when(&mut pool, |t| handled(t, 1) >= 1 && handled(t, 2) >= 1);
    assert!((3..=40).all(|n| handled(&truth, n) == 0), "the other 38 never move: {truth}");

    let mut locks = start("locks");
    let held_long = |t: &Value| function(t, "locks-1", "hold_too_long").0 >= 2;
    let truth = truth_when(&mut locks, |t| {
        held_long(t) && (2..=4).all(|n| function(t, &format!("locks-{n}"), "hold_briefly").0 >= 1)
    });
    let (calls, cpu, wall) = function(&truth, "locks-1", "hold_too_long");
    assert!(
        cpu >= calls as f64 * 10.0 && wall >= calls as f64 * 40.0,
        "{calls} calls, {cpu} ms, {wall} ms"
    );
}

#[test]
fn each_function_has_a_symbol_of_its_own() {
    let bytes = std::fs::read(PROGRAM).expect("the program can be read");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let mut addresses = Vec::new();
    for name in [
        "mixed::method_1ms",
        "mixed::method_50ms",
        "mixed::method_100ms",
        "mixed::method_500ms",
        "mass::tiny",
        "mass::call_tiny_100_million_times",
        "pool::wait_in_epoll",
        "pool::wait_in_futex",
        "pool::wait_in_read",
        "pool::wait_in_sleep",
        "pool::handle_job",
        "locks::wait_for_the_lock",
        "locks::hold_too_long",
        "locks::hold_briefly",
        "locks::stay_outside",
    ] {
        let wanted = format!("sampletop::demo::{name}");
        let symbol = file.symbols().find(|symbol| {
            let mangled = symbol.name().unwrap_or_default();
            format!("{:#}", rustc_demangle::demangle(mangled)) == wanted
        });
        addresses.push(symbol.unwrap_or_else(|| panic!("no symbol {wanted}")).address());
    }
    let count = addresses.len();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), count, "two functions were merged into one");
}

#[test]
fn no_files_and_no_network() {
    let running = start("all");
    for entry in std::fs::read_dir(format!("/proc/{}/fd", running.pid())).expect("it runs") {
        let entry = entry.expect("a descriptor");
        let number: u32 = entry.file_name().to_string_lossy().parse().expect("a number");
        let what =
            std::fs::read_link(entry.path()).expect("it stays open").to_string_lossy().into_owned();
        let harmless = what.starts_with("anon_inode:") || what.starts_with("pipe:");
        let inherited = std::fs::read_link(format!("/proc/self/fd/{number}"))
            .is_ok_and(|ours| ours == Path::new(&what));
        assert!(harmless || inherited, "descriptor {number} is {what}");
    }
}

/// Returns whether the process has exited, after waiting for that.
fn gone(pid: Pid) -> bool {
    let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return true };
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    let limit = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&limit)).expect("poll") > 0
}

#[test]
fn it_dies_with_its_parent_however_that_ends() {
    // A shell that starts it in the background, prints its pid and waits.
    let script = format!("'{PROGRAM}' __workload all $$ & echo $!; wait");
    let mut parent =
        Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().expect("sh runs");
    let mut text = String::new();
    let mut stdout = parent.stdout.take().expect("piped");
    while !(text.contains("ready\n") && text.lines().count() == 2) {
        let mut byte = [0];
        assert_eq!(stdout.read(&mut byte).expect("it speaks"), 1, "it ended: {text}");
        text.push(byte[0].into());
    }
    let pid =
        text.lines().find_map(|line| line.parse().ok()).and_then(Pid::from_raw).expect("a pid");
    assert!(rustix::process::test_kill_process(pid).is_ok());
    parent.kill().expect("ours");
    parent.wait().expect("it ended");
    let gone = gone(pid);
    if !gone {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    assert!(gone, "the workload outlived its parent");
}

#[test]
fn a_parent_that_is_already_gone_is_noticed() {
    // Pid 1 is not our parent (unless this test is started by it directly, which no harness does).
    let output = Command::new(PROGRAM)
        .args(["__workload", "all", "1"])
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("parent"), "{output:?}");
}

#[test]
fn nonsense_is_refused() {
    let me = std::process::id().to_string();
    for args in [
        &["__workload"][..],
        &["__workload", "all"],
        &["__workload", "none", &me],
        &["__workload", "all", "x"],
    ] {
        let output =
            Command::new(PROGRAM).args(args).stdin(Stdio::null()).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn it_ends_when_told() {
    let mut running = start("pool");
    running.child.stdin.as_mut().expect("piped").write_all(b"stop\n").expect("it listens");
    assert_eq!(running.child.wait().expect("it ends").code(), Some(0));
}
