//! The programs that benches watch, and what they get done.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::redis::Redis;
use super::running::Running;

/// A folder for programs and output, removed when dropped.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(bench: &str) -> Scratch {
        let folder = std::env::temp_dir().join(format!("sampletop-{bench}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        Scratch(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Counters of a target, which only grow.
#[derive(Clone, Copy)]
pub struct Reading {
    /// Operations of the watched process, and its CPU time, ns.
    pub operations: f64,
    pub cpu: f64,
    /// The same of all processes that belong to the target.
    pub operations_of_all: f64,
    pub cpu_of_all: f64,
    /// The clock, ns.
    pub wall: f64,
}

/// What a target did between two readings.
#[derive(Clone, Copy)]
pub struct Pace {
    /// Operations of the watched process per second of its CPU time.
    pub per_cpu_second: f64,
    /// Operations of all its processes per second of the clock.
    pub per_second: f64,
    /// Cores that all its processes had on average.
    pub cores: f64,
}

impl Reading {
    pub fn pace_since(&self, before: &Reading) -> Pace {
        let operations = self.operations - before.operations;
        let of_all = self.operations_of_all - before.operations_of_all;
        Pace {
            per_cpu_second: operations / (self.cpu - before.cpu) * 1e9,
            per_second: of_all / (self.wall - before.wall) * 1e9,
            cores: (self.cpu_of_all - before.cpu_of_all) / (self.wall - before.wall),
        }
    }
}

pub enum Target {
    /// `ops.c`, `Ops.java`, `ops.py`, `ops.js` or `ops.go`, which answer a line on their input with
    /// their counters.
    Ops(Running),
    Redis(Redis),
}

impl Target {
    /// Starts a target. `None` if a tool is missing, which it prints. `threads`: its arguments.
    pub fn start(scratch: &Path, kind: &str, threads: &str) -> Option<Target> {
        let tools: &[&str] = match kind {
            "java" => &["javac", "java"],
            "python" => &["python3"],
            "node" => &["node"],
            "go" => &["go"],
            "redis" => &["redis-server", "redis-benchmark"],
            _ => &["cc"],
        };
        if !has_tools(kind, tools) {
            return None;
        }
        if kind == "redis" {
            return Some(Target::Redis(Redis::start(scratch)));
        }
        let mut command = match kind {
            "java" => java(scratch),
            "python" => interpreted("python3", "slowdown/ops.py"),
            "node" => interpreted("node", "slowdown/ops.js"),
            "go" => go(scratch),
            _ => ops(scratch, kind),
        };
        command.args(threads.split(' '));
        Some(Target::Ops(Running::start_command(command)))
    }

    /// Returns the process to watch.
    pub fn pid(&self) -> u32 {
        match self {
            Target::Ops(ops) => ops.pid(),
            Target::Redis(redis) => redis.pid(),
        }
    }

    pub fn read(&mut self) -> Reading {
        match self {
            Target::Ops(ops) => read_ops(ops),
            Target::Redis(redis) => redis.read(),
        }
    }
}

fn read_ops(ops: &mut Running) -> Reading {
    ops.child.stdin.as_mut().expect("stdin is piped").write_all(b"\n").expect("it listens");
    let line = ops.lines.next().expect("the target answers").expect("text");
    let numbers: Vec<f64> =
        line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [operations, cpu, wall] = numbers[..] else { panic!("three numbers, not {line}") };
    Reading { operations, cpu, operations_of_all: operations, cpu_of_all: cpu, wall }
}

pub fn is_in_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

/// Returns whether all tools are in the PATH; prints which one is not.
pub fn has_tools(what: &str, tools: &[&str]) -> bool {
    let missing = tools.iter().find(|tool| !is_in_path(tool));
    if let Some(tool) = missing {
        eprintln!("SKIPPED: {what} is not measured, because {tool} is not in the PATH");
    }
    missing.is_none()
}

fn source(name: &str) -> String {
    format!("{}/benches/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Compiles a C program of benches/.
pub fn compile(scratch: &Path, name: &str, program: &str) -> PathBuf {
    let program = scratch.join(program);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-pthread", &source(name), "-o"]).arg(&program);
    assert!(cc.status().expect("cc runs").success(), "cc failed");
    program
}

fn ops(scratch: &Path, kind: &str) -> Command {
    let mut command = Command::new(compile(scratch, "slowdown/ops.c", "ops"));
    command.arg(kind);
    command
}

fn interpreted(by: &str, program: &str) -> Command {
    let mut command = Command::new(by);
    command.arg(source(program));
    command
}

fn go(scratch: &Path) -> Command {
    let program = scratch.join("ops-go");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(source("slowdown/ops.go"));
    assert!(build.status().expect("go runs").success(), "go failed");
    Command::new(program)
}

fn java(scratch: &Path) -> Command {
    let source = source("slowdown/Ops.java");
    let built = Command::new("javac").arg("-d").arg(scratch).arg(source).status();
    assert!(built.expect("javac runs").success(), "javac failed");
    let mut command = Command::new("java");
    command.args(["-Xms256m", "-Xmx256m", "-cp"]).arg(scratch).arg("Ops");
    command
}
