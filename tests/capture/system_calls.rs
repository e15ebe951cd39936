//! How many system calls a tick of the sampler takes, counted by strace on its thread.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sampletop::config::CaptureChoice;

use crate::bpf::works;
use crate::common::{Running, build};
use crate::support::*;

/// Ticks whose calls are counted, and the ones before them, in which more is done once.
const TICKS: usize = 40;
const FIRST: usize = 20;
/// Calls of a steady tick at most, the wait for the next one included.
const CALLS: usize = 4;

/// Returns the thread id of this process's only sampler.
fn sampler() -> String {
    let threads = fs::read_dir("/proc/self/task").expect("our own threads");
    let found: Vec<_> = threads
        .map(|thread| thread.expect("an entry"))
        .filter(|thread| {
            fs::read(thread.path().join("comm")).is_ok_and(|name| name == b"sampler\n")
        })
        .map(|thread| thread.file_name().into_string().expect("a number"))
        .collect();
    assert_eq!(found.len(), 1, "one sampler at a time");
    found.into_iter().next().expect("counted")
}

/// Returns the names of the calls of whole ticks, each with the wait that ends it.
fn ticks(log: &str) -> Vec<Vec<&str>> {
    let calls = log.lines().filter_map(|line| Some(line.split_once('(')?.0));
    let calls: Vec<&str> = calls.filter(|name| !name.contains(' ')).collect();
    let ticks = calls.split_inclusive(|name| *name == "ppoll");
    ticks.filter(|calls| calls.ends_with(&["ppoll"])).map(<[&str]>::to_vec).collect()
}

#[test]
fn a_steady_tick_of_one_process_takes_few_system_calls() {
    if !works() {
        return;
    }
    // Ten threads that wait; the same beside one that runs.
    for mode in [&["grow", "10"][..], &["grow", "10", "spin"]] {
        let target = Running::start(&build("cap_threads.c", "calls", &["-O1"]), mode);
        let (_sampler, mut reader) = start(&target, CaptureChoice::Bpf, 10);
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("calls");
        let _ = fs::remove_file(&log);
        let mut strace = Command::new("strace")
            .args(["-qq", "-p", &sampler(), "-o"])
            .arg(&log)
            .stdin(Stdio::null())
            .spawn()
            .expect("tests/run installs strace");
        let mut events = Vec::new();
        read_until(&mut reader, &mut events, |_| {
            ticks(&fs::read_to_string(&log).unwrap_or_default()).len() >= FIRST + TICKS
        });
        kill_process(Pid::from_child(&strace), Signal::INT).expect("it traces");
        strace.wait().expect("our child");
        let text = fs::read_to_string(&log).expect("strace's log");
        let counted = &ticks(&text)[FIRST..];
        // Some calls are made once a second only.
        let steady = counted.iter().filter(|calls| calls.len() <= CALLS).count();
        assert!(2 * steady > counted.len(), "{mode:?}: {steady} of {counted:?}");
    }
}
