//! Reads the tasks of processes' event loops, and their goroutines, each on a thread of its own:
//! reading the target's memory may block.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::model::facts::goroutines::Goroutines;
use crate::model::facts::snapshot;
use crate::model::facts::tasks::Tasks;
use crate::process::privileges;
use crate::process::target::Target;
use crate::runtimes::cpython::tasks_of;
use crate::runtimes::go::goroutines_of;

/// Returns the tasks of these processes, of those that are read within `timeout`.
pub fn read_tasks(targets: Vec<snapshot::Target>, timeout: Duration) -> Vec<Tasks> {
    read_each("tasks", tasks_of, targets, timeout)
}

/// Returns the goroutines of these processes, of those that are read within `timeout`.
pub fn read_goroutines(targets: Vec<snapshot::Target>, timeout: Duration) -> Vec<Goroutines> {
    read_each("goroutines", goroutines_of, targets, timeout)
}

/// Returns what `read_process` reads of each process, of those that are read within `timeout`.
/// `thread`: the name of the thread that reads.
fn read_each<T: Send + 'static>(
    thread: &str,
    read_process: fn(u32) -> Option<T>,
    targets: Vec<snapshot::Target>,
    timeout: Duration,
) -> Vec<T> {
    let (sender, answers) = channel();
    let spawned = std::thread::Builder::new().name(thread.into()).spawn(move || {
        for target in targets {
            let Some(list) = read(&target, read_process) else { continue };
            if sender.send(list).is_err() {
                return;
            }
        }
    });
    let deadline = Instant::now() + timeout;
    let mut found = Vec::new();
    if spawned.is_ok() {
        // Ends when all processes are read and the sender is dropped.
        while let Ok(list) =
            answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            found.push(list);
        }
    }
    found
}

/// Reads a process, if it is the one that was watched, and may be.
fn read<T>(watched: &snapshot::Target, read_process: fn(u32) -> Option<T>) -> Option<T> {
    let target = attach(watched)?;
    let list = privileges::with(|| read_process(watched.pid))?;
    // An exec may have made it another user's meanwhile; and its id may be another process's.
    (target.still_permitted().is_ok() && target.alive()).then_some(list)
}

/// Returns the process, if it is the one that was watched, and may be.
fn attach(watched: &snapshot::Target) -> Option<Target> {
    Target::attach(watched.pid).ok().filter(|target| target.start() == watched.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_watched_processes_are_read_and_none_is_waited_for_too_long() {
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
        let long = Duration::from_secs(10);
        assert_eq!(read_each("test", Some, targets.clone(), long), [own]);
        assert_eq!(read_tasks(targets.clone(), long), []);
        assert_eq!(read_goroutines(targets.clone(), long), []);
        // Ends with the tests.
        let hangs = |_| -> Option<u32> {
            loop {
                std::thread::park();
            }
        };
        let begun = Instant::now();
        let found = read_each("test", hangs, targets, Duration::from_millis(20));
        assert!(found.is_empty() && begun.elapsed() < long, "{found:?}");
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }
}
