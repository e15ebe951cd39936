//! Measures what profiling costs the target: interleaved runs of one C program's operations without
//! a profiler (`unwatched`), with sampletop by each backend, `perf record`, and profile-bee (if
//! `probee` is in the PATH), as ratios to `unwatched`. Run by hand on a quiet machine, after `cargo
//! build --release`:
//!
//! ```text
//! cargo run --release --example slowdown [-- ROUNDS [busy|many|switch|java [WATCHER...]]]
//! ```
//!
//! `java` (needs a JDK) is measured only if it is named: 200 threads, 8 of them busy. A profiler is
//! chosen by a part of its name, as in the table: `"bpf 100 Hz"`.
//!
//! In every round each profiler has its turn of 3 s, in an order that rotates. A turn's figures are
//! operations per CPU second of the target (the cost of each operation) and per wall second (the
//! throughput). A profiler's ratio of a round is against the mean of the two `unwatched` turns of
//! that round. The benchmark prints the median over the rounds and the range. `unwatched` against
//! `unwatched` is the noise.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const SETTLE: Duration = Duration::from_millis(700);
const TURN: Duration = Duration::from_secs(3);

struct Target {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

#[derive(Clone, Copy)]
struct Reading {
    operations: f64,
    cpu: f64,
    wall: f64,
}

impl Target {
    fn start(scratch: &Path, kind: &str, threads: &str) -> Target {
        let mut child = Target::command(scratch, kind)
            .args(threads.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the target starts");
        let ask = child.stdin.take().expect("stdin is piped");
        let mut answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut ready = String::new();
        answers.read_line(&mut ready).expect("the target answers");
        Target { child, ask, answers }
    }

    /// Compiles the target, and returns the command that starts it.
    fn command(scratch: &Path, kind: &str) -> Command {
        let source = |name: &str| format!("{}/benches/slowdown/{name}", env!("CARGO_MANIFEST_DIR"));
        if kind == "java" {
            let built =
                Command::new("javac").arg("-d").arg(scratch).arg(source("Ops.java")).status();
            assert!(built.expect("javac runs").success(), "javac failed");
            let mut command = Command::new("java");
            command.args(["-Xms256m", "-Xmx256m", "-cp"]).arg(scratch).arg("Ops");
            return command;
        }
        let program = scratch.join("ops");
        let built = Command::new("cc")
            .args(["-O2", "-pthread", &source("ops.c"), "-o"])
            .arg(&program)
            .status();
        assert!(built.expect("cc runs").success(), "cc failed");
        let mut command = Command::new(program);
        command.arg(kind);
        command
    }

    fn read(&mut self) -> Reading {
        self.ask.write_all(b"\n").expect("the target listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the target answers");
        let numbers: Vec<f64> =
            line.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        Reading { operations: numbers[0], cpu: numbers[1], wall: numbers[2] }
    }

    /// Returns operations per CPU second and per wall second over one turn.
    fn turn(&mut self) -> (f64, f64) {
        let before = self.read();
        std::thread::sleep(TURN);
        let after = self.read();
        let operations = after.operations - before.operations;
        (operations / (after.cpu - before.cpu) * 1e9, operations / (after.wall - before.wall) * 1e9)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const UNWATCHED: [&str; 2] = ["unwatched", "unwatched (again)"];

/// Returns each profiler's name and the command that starts it on a pid; an empty command means no
/// profiler.
fn watchers() -> Vec<(&'static str, Vec<String>)> {
    let sampletop = program();
    let ours = |backend: &str, interval: &str| -> Vec<String> {
        [
            &sampletop,
            "record",
            "-p",
            "PID",
            "-d",
            "30s",
            "-i",
            interval,
            "--capture",
            backend,
            "-o",
            "OUT.folded",
        ]
        .map(String::from)
        .to_vec()
    };
    let perf = |hz: &str| -> Vec<String> {
        [
            "perf",
            "record",
            "-q",
            "-e",
            "cpu-clock",
            "-F",
            hz,
            "--call-graph",
            "dwarf",
            "-p",
            "PID",
            "-o",
            "OUT.data",
        ]
        .map(String::from)
        .to_vec()
    };
    let bee = |hz: &str| -> Vec<String> {
        ["probee", "-p", "PID", "-f", hz, "-t", "30000", "--dwarf", "-o", "OUT.svg"]
            .map(String::from)
            .to_vec()
    };
    let mut watchers = vec![(UNWATCHED[0], vec![])];
    for (hz, interval) in [("100", "10ms"), ("1000", "1ms")] {
        for backend in ["bpf", "perf", "ptrace"] {
            watchers.push((name(format!("sampletop {backend} {hz} Hz")), ours(backend, interval)));
        }
        watchers.push((name(format!("perf record {hz} Hz")), perf(hz)));
        if Command::new("probee")
            .arg("--help")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
        {
            watchers.push((name(format!("profile-bee {hz} Hz")), bee(hz)));
        }
    }
    watchers.insert(watchers.len() / 2, (UNWATCHED[1], vec![]));
    watchers
}

/// Returns sampletop, built beside us: `target/release/examples/slowdown` runs
/// `target/release/sampletop`.
fn program() -> String {
    let ours = std::env::current_exe().expect("a path");
    let release = ours.ancestors().nth(2).expect("a folder of examples");
    release.join("sampletop").to_string_lossy().into_owned()
}

fn name(name: String) -> &'static str {
    name.leak()
}

fn one_turn(target: &mut Target, command: &[String], scratch: &Path) -> (f64, f64) {
    if command.is_empty() {
        std::thread::sleep(SETTLE);
        return target.turn();
    }
    let pid = target.child.id().to_string();
    let arguments: Vec<String> = command[1..]
        .iter()
        .map(|a| match a.as_str() {
            "PID" => pid.clone(),
            a if a.starts_with("OUT") => scratch.join(a).display().to_string(),
            a => a.to_owned(),
        })
        .collect();
    let mut watcher = Command::new(&command[0])
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|e| panic!("{} does not start: {e}", command[0]));
    std::thread::sleep(SETTLE);
    let figures = target.turn();
    assert!(watcher.try_wait().expect("it can be asked").is_none(), "{} ended early", command[0]);
    // After SIGINT both sampletop and perf write their results and exit.
    let pid = rustix::process::Pid::from_child(&watcher);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    let _ = watcher.wait();
    figures
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let rounds: usize =
        std::env::args().nth(1).map_or(7, |n| n.parse().expect("ROUNDS is a number"));
    let scratch = std::env::temp_dir().join(format!("sampletop-slowdown-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("a scratch folder");
    let only = std::env::args().nth(2);
    let named: Vec<String> = std::env::args().skip(3).collect();
    for (kind, threads) in [("busy", "1"), ("many", "500"), ("switch", "1"), ("java", "200 8")] {
        if only.as_ref().map_or(kind == "java", |only| only != kind) {
            continue;
        }
        let mut watchers = watchers();
        watchers.retain(|(name, _)| {
            named.is_empty()
                || UNWATCHED.contains(name)
                || named.iter().any(|part| name.contains(part.as_str()))
        });
        let mut ratios = vec![(Vec::new(), Vec::new()); watchers.len()];
        let mut target = Target::start(&scratch, kind, threads);
        for round in 0..rounds {
            let mut figures = vec![(0.0, 0.0); watchers.len()];
            for turn in 0..watchers.len() {
                let who = (turn + round) % watchers.len();
                figures[who] = one_turn(&mut target, &watchers[who].1, &scratch);
            }
            let alone: Vec<(f64, f64)> = watchers
                .iter()
                .zip(&figures)
                .filter(|((name, _), _)| UNWATCHED.contains(name))
                .map(|(_, f)| *f)
                .collect();
            let base = ((alone[0].0 + alone[1].0) / 2.0, (alone[0].1 + alone[1].1) / 2.0);
            for (who, figure) in figures.iter().enumerate() {
                ratios[who].0.push(figure.0 / base.0);
                ratios[who].1.push(figure.1 / base.1);
            }
        }
        println!(
            "\n{kind} {threads}: ratio to unwatched, median of {rounds} rounds (lowest .. highest)"
        );
        println!("| watcher | per CPU second | per wall second |");
        println!("|---|---|---|");
        for ((name, _), (cpu, wall)) in watchers.iter().zip(&mut ratios) {
            let (c, w) = (median(cpu), median(wall));
            println!(
                "| {name} | {c:.3} ({:.3} .. {:.3}) | {w:.3} ({:.3} .. {:.3}) |",
                cpu[0],
                cpu[rounds - 1],
                wall[0],
                wall[rounds - 1]
            );
        }
    }
    let _ = std::fs::remove_dir_all(&scratch);
}
