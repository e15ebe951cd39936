//! A Python program that is watched does not notice: no wait is interrupted, and no thread is
//! traced or stopped.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::common::wait_until;
use crate::interpreters::{EVERY, Target, can_test};
use crate::profile::Profile;

/// Calls that have ended, and those of them that were interrupted.
fn waits(target: &mut Target) -> (u64, u64) {
    let line = target.ask();
    let numbers: Vec<u64> =
        line.split(' ').map(|number| number.parse().expect("a number")).collect();
    (numbers[0], numbers[1])
}

/// Opens the status of each thread.
fn statuses(pid: u32) -> Vec<File> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    threads
        .map(|thread| File::open(thread.expect("one").path().join("status")).expect("it lives"))
        .collect()
}

#[test]
fn no_wait_is_interrupted_and_no_thread_is_stopped() {
    if !can_test() {
        return;
    }
    for interpreter in EVERY.iter() {
        for interval in ["10ms", "1ms"] {
            let what = format!("{} {interval}", interpreter.name());
            let mut target = interpreter.start("undisturbed.py", &[]);
            let statuses = statuses(target.pid);
            let recording = Profile::start(target.pid, interval, &[]);
            let (begin, mut polls) = (Instant::now(), 0);
            let (first, _) = waits(&mut target);
            // A second, and in it enough waits and polls.
            while begin.elapsed() < Duration::from_secs(1)
                || polls < 200
                || waits(&mut target).0 < first + 100
            {
                for status in &statuses {
                    let mut bytes = [0; 2048];
                    let length = status.read_at(&mut bytes, 0).expect("it lives");
                    let text = String::from_utf8_lossy(&bytes[..length]);
                    let stopped = text.contains("\nState:\tt") || text.contains("\nState:\tT");
                    assert!(!stopped, "{what}: stopped: {text}");
                    assert!(text.contains("\nTracerPid:\t0\n"), "{what}: traced: {text}");
                }
                polls += 1;
                assert!(begin.elapsed() < crate::common::LIMIT, "{what}: {polls} polls");
                std::thread::sleep(Duration::from_millis(1));
            }
            let profile = Profile::end(recording);
            let working = profile.nodes.iter().any(|node| {
                node.python.as_ref().is_some_and(|frame| frame.name == "works") && node.hits > 20
            });
            assert!(working, "{what}: the working thread was not seen: {}", profile.health);
            let (calls, interrupted) = waits(&mut target);
            assert_eq!(interrupted, 0, "{what}: of {calls} calls");
            assert_eq!(profile.health["stops"], 0, "{what}");
        }
    }
    // A control: a thread that is stopped once sees it.
    let mut target = EVERY[0].start("undisturbed.py", &[]);
    let pid = rustix::process::Pid::from_raw(target.pid.cast_signed()).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
    wait_until("it stops", || {
        crate::common::states(target.pid).iter().all(|(state, _)| *state == 'T')
    });
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("goes on");
    wait_until("it sees that it was stopped", || waits(&mut target).1 > 0);
}
