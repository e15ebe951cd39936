//! Measures what sampletop itself uses while it samples: CPU time of its process by the kernel's
//! figures, once it is attached. Run by hand on a quiet machine, as root, after `cargo build
//! --release`:
//!
//! ```text
//! cargo run --release --example cost [-- BACKEND|TARGET...]
//! ```
//!
//! For each target and backend (all, if none is named) `sampletop record -i 10ms` is started three
//! times, in turn, without a limit on its overhead. From 2.5 s on, for 5 s, the benchmark takes the
//! run times of its threads: of the sampler per tick, and of all threads as a part of one core. It
//! prints the median of the three (lowest .. highest).

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ATTACHED: Duration = Duration::from_millis(2500);
const TURN: Duration = Duration::from_secs(5);
const ROUNDS: usize = 3;
const BACKENDS: [&str; 2] = ["bpf", "perf"];
const TICKS_PER_SECOND: f64 = 100.0;

const TARGETS: [(&str, &str, &str); 10] = [
    ("idle", "10", "10 threads, all wait"),
    ("idle", "500", "500 threads, all wait"),
    ("idle", "2000", "2,000 threads, all wait"),
    ("wake", "20", "20 threads, 1 of them active"),
    ("wake", "500", "500 threads, 25 of them active"),
    ("wake", "2000", "2,000 threads, 100 of them active"),
    ("work", "50", "50 threads, 4 of them busy"),
    ("many", "502", "500 threads that wait, 2 busy"),
    ("switch", "1", "pipe ping-pong"),
    // Runs only if it is named: it needs a JDK.
    ("java", "200 8", "Java, 200 threads, 8 of them busy"),
];

/// A process that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn target(scratch: &Path, kind: &str, threads: &str) -> Running {
    let mut command = match kind {
        "java" => {
            let mut java = Command::new("java");
            java.args(["-Xms256m", "-Xmx256m", "-cp"]).arg(scratch).arg("Ops");
            java
        }
        _ => {
            let mut ops = Command::new(scratch.join("ops"));
            ops.arg(kind);
            ops
        }
    };
    let mut child = command
        .args(threads.split(' '))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the target starts");
    let mut ready = String::new();
    BufReader::new(child.stdout.take().expect("stdout is piped"))
        .read_line(&mut ready)
        .expect("it answers");
    Running(child)
}

/// Returns the run times so far, ns: of the sampler, and of all threads.
fn used(pid: u32) -> (f64, f64) {
    let (mut sampler, mut all) = (0.0, 0.0);
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs") {
        let thread = entry.expect("an entry").path();
        let Ok(schedstat) = std::fs::read_to_string(thread.join("schedstat")) else { continue };
        let ran: f64 =
            schedstat.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
        all += ran;
        if std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == "sampler") {
            sampler = ran;
        }
    }
    (sampler, all)
}

/// Returns microseconds of the sampler per tick, and percent of a core of all threads.
fn turn(target: &Running, backend: &str, scratch: &Path) -> (f64, f64) {
    let ours = std::env::current_exe().expect("a path");
    // Built beside us: target/release/examples/cost runs target/release/sampletop.
    let sampletop = ours.ancestors().nth(2).expect("a folder of examples").join("sampletop");
    let pid = target.0.id().to_string();
    let watcher = Command::new(sampletop)
        .args(["record", "-p", &pid, "-d", "60s", "-i", "10ms", "--capture", backend, "-o"])
        .arg(scratch.join("out.folded"))
        .stderr(Stdio::null())
        .spawn()
        .map(Running)
        .expect("sampletop starts; has it been built?");
    std::thread::sleep(ATTACHED);
    let (begin, before) = (Instant::now(), used(watcher.0.id()));
    std::thread::sleep(TURN);
    let (seconds, after) = (begin.elapsed().as_secs_f64(), used(watcher.0.id()));
    ((after.0 - before.0) / seconds / TICKS_PER_SECOND / 1e3, (after.1 - before.1) / seconds / 1e7)
}

fn median(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    format!("{:.digits$} ({:.digits$} .. {:.digits$})", values[last / 2], values[0], values[last])
}

fn main() {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let (named_ways, named): (Vec<String>, Vec<String>) =
        named.into_iter().partition(|word| BACKENDS.contains(&word.as_str()));
    let backends: Vec<&str> = BACKENDS
        .into_iter()
        .filter(|backend| named_ways.is_empty() || named_ways.iter().any(|named| named == backend))
        .collect();
    let scratch = std::env::temp_dir().join(format!("sampletop-cost-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("a scratch folder");
    let source = |name: &str| format!("{}/benches/slowdown/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-pthread", &source("ops.c"), "-o"]).arg(scratch.join("ops"));
    assert!(cc.status().expect("cc runs").success(), "cc failed");
    if named.iter().any(|named| named == "java") {
        let built = Command::new("javac").arg("-d").arg(&scratch).arg(source("Ops.java")).status();
        assert!(built.expect("javac runs").success(), "javac failed");
    }
    println!("| target | way | us a tick, sampler | percent of a core, all |\n|---|---|---|---|");
    for (kind, threads, title) in TARGETS {
        let wanted =
            if named.is_empty() { kind != "java" } else { named.iter().any(|named| named == kind) };
        if !wanted {
            continue;
        }
        let target = target(&scratch, kind, threads);
        let mut figures = vec![(Vec::new(), Vec::new()); backends.len()];
        for _ in 0..ROUNDS {
            for (backend, (tick, all)) in backends.iter().zip(&mut figures) {
                let (us, percent) = turn(&target, backend, &scratch);
                tick.push(us);
                all.push(percent);
            }
        }
        for (backend, (tick, all)) in backends.iter().zip(figures) {
            println!("| {title} | `{backend}` | {} | {} |", median(tick, 0), median(all, 2));
        }
    }
    let _ = std::fs::remove_dir_all(&scratch);
}
