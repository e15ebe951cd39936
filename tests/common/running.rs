//! Starts and ends target programs, for tests and benches.
#![allow(dead_code)] // each of them uses a part of it

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum duration of any step, s. A limit against hanging, far above what any step needs.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Polls until the condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < limit, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A target program under test, killed with its children (by their pids) when dropped.
pub struct Running {
    pub child: Child,
    pub lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Running {
    /// Starts it and waits for its line `ready`.
    pub fn start(program: &Path, args: &[&str]) -> Running {
        let mut command = Command::new(program);
        command.args(args);
        Running::start_command(command)
    }

    /// Starts a command that has its arguments, and waits for its line `ready`.
    pub fn start_command(mut command: Command) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let first = lines.next().expect("the target prints a line").expect("the line is text");
        assert_eq!(first, "ready", "{command:?}");
        Running { child, lines }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the processes that it has started and that still run.
    fn children(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten();
        let lists =
            tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("children")));
        let pids = lists
            .flatten()
            .flat_map(|list| list.split_whitespace().map(String::from).collect::<Vec<String>>());
        pids.collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // They would keep the tests' output open.
        let children = self.children();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !children.is_empty() {
            let _ = Command::new("kill").arg("-KILL").args(children).status();
        }
    }
}
