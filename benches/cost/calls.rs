//! The system calls of the sampler's thread, counted by strace on that thread alone.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::arguments::Program;
use crate::common::watcher::{Recording, sampler};
use crate::{ATTACHED, TURN};

/// Calls in which the sampler waits for its next tick.
const WAITS: [&str; 5] = ["ppoll", "poll", "epoll_wait", "epoll_pwait2", "clock_nanosleep"];

pub fn print_head() {
    println!(
        "| target | watcher | calls a second | waits a second | calls a wait | calls a second, by name |"
    );
    println!("|---|---|---|---|---|---|");
}

/// Counts the calls of some seconds and prints them, the most frequent first.
pub fn print(title: &str, pid: u32, backend: &str, program: &Program, scratch: &Path) {
    let options = ["-i", "10ms", "--capture", backend];
    let recording = Recording::start(program, pid, &options, &scratch.join("out.folded"));
    std::thread::sleep(ATTACHED);
    let table = scratch.join("calls");
    let begin = Instant::now();
    // Without -f it traces one thread.
    let mut strace = Command::new("strace")
        .args(["-c", "-U", "calls,name", "-p", &sampler(recording.pid()).to_string(), "-o"])
        .arg(&table)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("strace starts");
    std::thread::sleep(TURN);
    let _ = kill_process(Pid::from_child(&strace), Signal::INT);
    strace.wait().expect("our child");
    let seconds = begin.elapsed().as_secs_f64();
    recording.finish();
    let mut calls = read(&std::fs::read_to_string(table).expect("strace's table"));
    calls.sort_by(|one, other| other.0.total_cmp(&one.0));
    let total: f64 = calls.iter().map(|(count, _)| count).sum();
    let waits: f64 = calls
        .iter()
        .filter(|(_, name)| WAITS.contains(&name.as_str()))
        .map(|(count, _)| count)
        .sum();
    let names: Vec<String> =
        calls.iter().map(|(count, name)| format!("{name} {:.1}", count / seconds)).collect();
    println!(
        "| {title} | `{backend}`{} | {:.0} | {:.1} | {:.1} | {} |",
        program.label,
        total / seconds,
        waits / seconds,
        total / waits,
        names.join(", ")
    );
}

/// Reads lines `COUNT NAME` of strace's table; its head and its total are none.
fn read(table: &str) -> Vec<(f64, String)> {
    let line = |line: &str| {
        let (count, name) = line.trim().split_once(char::is_whitespace)?;
        let name = name.trim().to_owned();
        (name != "total").then_some((count.parse().ok()?, name))
    };
    table.lines().filter_map(line).collect()
}
