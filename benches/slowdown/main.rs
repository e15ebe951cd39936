//! Measures what profiling costs the target: interleaved runs of one program's operations without
//! a profiler (`unwatched`), with sampletop by each backend, `perf record`, and profile-bee (if
//! `probee` is in the PATH), as ratios to `unwatched`. Run by hand on a quiet machine, after `cargo
//! build --release`:
//!
//! ```text
//! cargo run --release --example slowdown [-- ROUNDS [KIND [WATCHER...]]]
//! cargo run --release --example slowdown -- ROUNDS redis [BACKEND...] [--program PATH]...
//! ```
//!
//! KIND is `busy`, `many` or `switch`, or one that is measured only if it is named and needs tools:
//! `java`, 200 threads, 8 of them busy; `python`, a thread of Python code beside 20 that wait, also
//! watched by py-spy if it is in the PATH; `node`, JavaScript beside 4 workers that wait; `go`, a
//! goroutine beside 1,000 that wait. A profiler is chosen by a part of its name, as in the table:
//! `"bpf 100 Hz"`. `redis` is a saturated machine, measured in pairs of turns, by `bpf` if no
//! backend is named. `--program` names the sampletop that is measured, the one beside this
//! benchmark if none is; several are measured in turn.
//!
//! In every round each profiler has its turn of 3 s, in an order that rotates. A turn's figures are
//! operations per CPU second of the target (the cost of each operation) and per wall second (the
//! throughput). A profiler's ratio of a round is against the mean of the two `unwatched` turns of
//! that round. The benchmark prints the median over the rounds and the range. `unwatched` against
//! `unwatched` is the noise.

#[path = "../common/mod.rs"]
mod common;

mod pairs;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::arguments::{Arguments, Program};
use common::figures::median;
use common::targets::{Pace, Scratch, Target};
use common::watcher::BACKENDS;

const SETTLE: Duration = Duration::from_millis(700);
const TURN: Duration = Duration::from_secs(3);
const ROUNDS: usize = 7;

const UNWATCHED: [&str; 2] = ["unwatched", "unwatched (again)"];

/// Returns each profiler's name and the command that starts it on a pid; an empty command means no
/// profiler.
fn watchers(kind: &str, programs: &[Program]) -> Vec<(&'static str, Vec<String>)> {
    let ours = |program: &Program, backend: &str, interval: &str| -> Vec<String> {
        [
            &program.path.to_string_lossy(),
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
    let spy = |hz: &str, option: Option<&str>| -> Vec<String> {
        let words =
            ["py-spy", "record", "-f", "raw", "-d", "30", "-p", "PID", "-o", "OUT.spy", "-r"];
        words.into_iter().chain([hz]).chain(option).map(String::from).collect()
    };
    let mut watchers = vec![(UNWATCHED[0], vec![])];
    for (hz, interval) in [("100", "10ms"), ("1000", "1ms")] {
        for backend in ["bpf", "perf", "ptrace"] {
            for program in programs {
                let name = name(format!("sampletop {backend} {hz} Hz{}", program.label));
                watchers.push((name, ours(program, backend, interval)));
            }
        }
        watchers.push((name(format!("perf record {hz} Hz")), perf(hz)));
        if starts("probee") {
            watchers.push((name(format!("profile-bee {hz} Hz")), bee(hz)));
        }
        if kind == "python" && starts("py-spy") {
            watchers.push((name(format!("py-spy {hz} Hz")), spy(hz, None)));
            let nonblocking = spy(hz, Some("--nonblocking"));
            watchers.push((name(format!("py-spy --nonblocking {hz} Hz")), nonblocking));
        }
    }
    watchers.insert(watchers.len() / 2, (UNWATCHED[1], vec![]));
    watchers
}

fn starts(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn name(name: String) -> &'static str {
    name.leak()
}

fn turn(target: &mut Target) -> Pace {
    let before = target.read();
    std::thread::sleep(TURN);
    target.read().pace_since(&before)
}

fn one_turn(target: &mut Target, command: &[String], scratch: &Path) -> Pace {
    if command.is_empty() {
        std::thread::sleep(SETTLE);
        return turn(target);
    }
    let pid = target.pid().to_string();
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
    let pace = turn(target);
    assert!(watcher.try_wait().expect("it can be asked").is_none(), "{} ended early", command[0]);
    // After SIGINT both sampletop and perf write their results and exit.
    let pid = rustix::process::Pid::from_child(&watcher);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    let _ = watcher.wait();
    pace
}

fn main() {
    let mut arguments = Arguments::read();
    let rounds = arguments.take_number().unwrap_or(ROUNDS);
    let scratch = Scratch::new("slowdown");
    let only = (!arguments.words.is_empty()).then(|| arguments.words.remove(0));
    if only.as_deref() == Some("redis") {
        let named = arguments.take(&BACKENDS);
        let backends = if named.is_empty() { vec!["bpf"] } else { named };
        return pairs::run("redis", rounds, &backends, &arguments.programs, &scratch.0);
    }
    for (kind, threads) in [
        ("busy", "1"),
        ("many", "500"),
        ("switch", "1"),
        ("java", "200 8"),
        ("python", "tight 20"),
        ("python", "real 20"),
        ("node", "4"),
        ("go", "1000 1"),
    ] {
        let named = ["java", "python", "node", "go"];
        if only.as_ref().map_or(named.contains(&kind), |only| only != kind) {
            continue;
        }
        let mut watchers = watchers(kind, &arguments.programs);
        watchers.retain(|(name, _)| {
            arguments.words.is_empty()
                || UNWATCHED.contains(name)
                || arguments.words.iter().any(|part| name.contains(part.as_str()))
        });
        let mut ratios = vec![(Vec::new(), Vec::new()); watchers.len()];
        let Some(mut target) = Target::start(&scratch.0, kind, threads) else { continue };
        for round in 0..rounds {
            let mut paces: Vec<Option<Pace>> = vec![None; watchers.len()];
            for turn in 0..watchers.len() {
                let who = (turn + round) % watchers.len();
                paces[who] = Some(one_turn(&mut target, &watchers[who].1, &scratch.0));
            }
            let paces: Vec<Pace> = paces.into_iter().flatten().collect();
            let alone: Vec<&Pace> = watchers
                .iter()
                .zip(&paces)
                .filter(|((name, _), _)| UNWATCHED.contains(name))
                .map(|(_, pace)| pace)
                .collect();
            let base = |figure: fn(&Pace) -> f64| (figure(alone[0]) + figure(alone[1])) / 2.0;
            for (pace, (cpu, wall)) in paces.iter().zip(&mut ratios) {
                cpu.push(pace.per_cpu_second / base(|pace| pace.per_cpu_second));
                wall.push(pace.per_second / base(|pace| pace.per_second));
            }
        }
        println!(
            "\n{kind} {threads}: ratio to unwatched, median of {rounds} rounds (lowest .. highest)"
        );
        println!("| watcher | per CPU second | per wall second |");
        println!("|---|---|---|");
        for ((name, _), (cpu, wall)) in watchers.iter().zip(&ratios) {
            println!("| {name} | {} | {} |", median(cpu, 3), median(wall, 3));
        }
    }
}
