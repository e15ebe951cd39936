//! sampletop as it watches a target, and what its threads use meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::arguments::Program;
use super::figures::median;

pub const BACKENDS: [&str; 2] = ["bpf", "perf"];

/// A started `sampletop record`; it is killed when dropped.
pub struct Recording(pub Child);

impl Recording {
    /// Starts a recording that the caller ends. `sampling`: options of sampling.
    pub fn start(program: &Program, pid: u32, sampling: &[&str], out: &Path) -> Recording {
        let child = Command::new(&program.path)
            .args(["record", "-d", "5m", "-p", &pid.to_string()])
            .args(sampling)
            .arg("-o")
            .arg(out)
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.path.display()));
        Recording(child)
    }

    /// Starts py-spy at 100 Hz.
    pub fn spy(program: &str, option: &str, pid: u32, scratch: &Path) -> Recording {
        let child = Command::new(program)
            .args(["record", "-r", "100", "-d", "300", "-f", "raw", option, "-p"])
            .arg(pid.to_string())
            .arg("-o")
            .arg(scratch.join("out.spy"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        Recording(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends it as Ctrl-C does: it writes its file.
    pub fn finish(mut self) {
        assert!(self.0.try_wait().expect("our child").is_none(), "sampletop ended early");
        let _ = kill_process(Pid::from_child(&self.0), Signal::INT);
        let status = self.0.wait().expect("our child");
        assert!(status.success(), "sampletop ended with {status}");
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What threads of one name used.
#[derive(Clone, Copy, Default)]
pub struct Used {
    /// Percent of a core.
    pub percent: f64,
    /// How often a second they were put on a core. Each wake-up is one, and each return after
    /// another program had the core.
    pub runs: f64,
}

/// What threads used in a span of time, by name.
#[derive(Default)]
pub struct Usage(BTreeMap<String, Used>);

impl Usage {
    /// Measures a process for a time.
    pub fn of(pid: u32, time: Duration) -> Usage {
        let (begin, before) = (Instant::now(), threads(pid));
        std::thread::sleep(time);
        let (seconds, after) = (begin.elapsed().as_secs_f64(), threads(pid));
        let mut usage = Usage::default();
        for (tid, (name, ran, runs)) in after {
            // A thread that is new began at nothing.
            let (ran_before, runs_before) =
                before.get(&tid).map_or((0.0, 0.0), |(_, ran, runs)| (*ran, *runs));
            let used = usage.0.entry(name).or_default();
            used.percent += (ran - ran_before) / seconds / 1e7;
            used.runs += (runs - runs_before) / seconds;
        }
        usage
    }

    pub fn of_sampler(&self) -> Used {
        self.0.get("sampler").copied().unwrap_or_default()
    }

    pub fn of_all(&self) -> Used {
        let add = |sum: Used, more: &Used| Used {
            percent: sum.percent + more.percent,
            runs: sum.runs + more.runs,
        };
        self.0.values().fold(Used::default(), add)
    }
}

/// Returns by thread id: name, run time in ns, times it was put on a core.
fn threads(pid: u32) -> BTreeMap<i32, (String, f64, f64)> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).expect("sampletop runs");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let thread = entry.ok()?.path();
        let tid = thread.file_name()?.to_str()?.parse().ok()?;
        let schedstat = std::fs::read_to_string(thread.join("schedstat")).ok()?;
        let name = std::fs::read_to_string(thread.join("comm")).ok()?;
        // Run time, run delay, run count.
        let words: Vec<f64> =
            schedstat.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        Some((tid, (name.trim().to_owned(), words[0], words[2])))
    };
    entries.filter_map(read).collect()
}

/// Prints a table of the threads of several turns: each name with its medians.
pub fn print_threads(turns: &[Usage]) {
    let mut names: Vec<&String> = turns.iter().flat_map(|usage| usage.0.keys()).collect();
    names.sort();
    names.dedup();
    println!("\n| thread | percent of a core | wake-ups a second |\n|---|---|---|");
    for name in names {
        let of = |figure: fn(&Used) -> f64| -> Vec<f64> {
            turns.iter().map(|usage| usage.0.get(name).map_or(0.0, figure)).collect()
        };
        let (percent, runs) = (of(|used| used.percent), of(|used| used.runs));
        println!("| {name} | {} | {} |", median(&percent, 2), median(&runs, 1));
    }
}

/// Returns the thread id of sampletop's sampler.
pub fn sampler(pid: u32) -> i32 {
    let of_sampler =
        |(tid, (name, ..)): (i32, (String, f64, f64))| (name == "sampler").then_some(tid);
    threads(pid).into_iter().find_map(of_sampler).expect("it has a sampler")
}
