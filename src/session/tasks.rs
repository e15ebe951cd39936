//! Reads the tasks of processes' event loops, on a thread of its own: reading the target's memory
//! may block.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::model::facts::snapshot;
use crate::model::facts::tasks::Tasks;
use crate::process::privileges;
use crate::process::target::Target;
use crate::runtimes::cpython::tasks_of;

/// Returns the tasks of these processes, of those that are read within `timeout`.
pub fn read_tasks(targets: Vec<snapshot::Target>, timeout: Duration) -> Vec<Tasks> {
    let (sender, answers) = channel();
    let spawned = std::thread::Builder::new().name("tasks".into()).spawn(move || {
        for target in targets {
            let Some(tasks) = read(&target) else { continue };
            if sender.send(tasks).is_err() {
                return;
            }
        }
    });
    let deadline = Instant::now() + timeout;
    let mut found = Vec::new();
    if spawned.is_ok() {
        // Ends when all processes are read and the sender is dropped.
        while let Ok(tasks) =
            answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            found.push(tasks);
        }
    }
    found
}

/// Reads the tasks of a process.
fn read(watched: &snapshot::Target) -> Option<Tasks> {
    let target = attach(watched)?;
    let tasks = privileges::with(|| tasks_of(watched.pid))?;
    // An exec may have made it another user's meanwhile; and its id may be another process's.
    (target.still_permitted().is_ok() && target.alive()).then_some(tasks)
}

/// Returns the process, if it is the one that was watched, and may be.
fn attach(watched: &snapshot::Target) -> Option<Target> {
    Target::attach(watched.pid).ok().filter(|target| target.start() == watched.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_without_tasks_and_others_than_the_watched_one_have_none() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().expect("it starts");
        let own = child.id();
        let target = |pid, start| snapshot::Target {
            pid,
            start,
            command: "app".into(),
            runtime: "python",
            uid: 0,
            unit: None,
            started_unix_ns: 0,
            ended: None,
        };
        let start = Target::attach(own).expect("it lives").start();
        let targets = vec![target(own, start), target(own, start + 1), target(1 << 23, 1)];
        assert_eq!(
            targets.iter().map(|of| attach(of).is_some()).collect::<Vec<_>>(),
            [true, false, false]
        );
        assert_eq!(read_tasks(targets, Duration::from_secs(10)), []);
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }
}
