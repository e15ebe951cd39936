//! Measures how soon sampletop answers: `--version`, and the first rows of the live view by each
//! backend. Run by hand on a quiet machine, as root:
//!
//! ```text
//! cargo build --release
//! cargo run --release --example startup [-- activity|node|go] [--program PATH]...
//! ```
//!
//! sampletop watches this process, which has a busy thread and a sleeping one. The first rows are
//! there when the screen of 80x24 names the busy thread. With `node` or `go` it watches the program
//! of `slowdown`, and the screen has to name its function. Each measurement is made ten times, in
//! turn; the benchmark prints the median (lowest .. highest).
//!
//! `activity` measures how soon work is observed after the target was idle: see `activity.rs`.
//! `--program` names the sampletop that is measured; several are measured in turn.

#[path = "../common/mod.rs"]
mod common;

mod activity;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::arguments::Arguments;
use common::figures::median;
use common::targets::{Scratch, Target};
use common::terminal::LiveView;
use common::watcher::BACKENDS;

const TIMES: usize = 10;
/// Rows and columns.
const TERMINAL: (u16, u16) = (24, 80);
const BUSY: &str = "startup-busy";
/// The function in which ops.js and ops.go work.
const OPERATION: &str = "operation";

fn main() {
    let mut arguments = Arguments::read();
    if arguments.take(&["activity"]).len() == 1 {
        return activity::run(&arguments.programs);
    }
    // It has to outlive the program in it.
    let scratch = Scratch::new("startup");
    let runtime = arguments.take(&["node", "go"]).pop();
    let target = runtime.map(|kind| {
        let threads = if kind == "node" { "4" } else { "1000 1" };
        Target::start(&scratch.0, kind, threads).expect("its tools are in the PATH")
    });
    let (pid, text) = match &target {
        Some(target) => (target.pid(), OPERATION),
        None => (std::process::id(), BUSY),
    };
    if target.is_none() {
        work_and_wait();
    }
    let mut times: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for _ in 0..TIMES {
        for program in &arguments.programs {
            let mut took = |what: &str, time: Duration| {
                let what = format!("{what}{}", program.label);
                times.entry(what).or_default().push(time.as_secs_f64() * 1e3);
            };
            took("--version", version(&program.path));
            for backend in BACKENDS {
                took(backend, first_rows(&program.path, backend, pid, text));
            }
        }
    }
    for (what, times) in times {
        println!("{what:10} {} ms", median(&times, 1));
    }
}

/// Starts a busy thread and a sleeping one.
fn work_and_wait() {
    spawn(BUSY, || {
        loop {
            std::hint::black_box(0);
        }
    });
    spawn("startup-idle", || {
        loop {
            std::thread::park();
        }
    });
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name(name.into()).spawn(run).expect("a thread");
}

fn version(program: &Path) -> Duration {
    let started = Instant::now();
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    assert!(status.expect("it runs").success());
    started.elapsed()
}

/// Returns the time from the start of the live view until its screen has the text.
fn first_rows(program: &Path, backend: &str, pid: u32, text: &str) -> Duration {
    let started = Instant::now();
    let options = ["--capture", backend];
    let mut view = LiveView::start(program, pid, &options, TERMINAL);
    view.wait_for(text);
    started.elapsed()
}
