use super::*;
use std::io::Write;
use std::process::{Child, Command, Stdio};

/// A child that is killed and waited for when dropped.
struct Sleeper(Child);

impl Sleeper {
    /// Starts `cat` and waits for its answer: during an exec the command line is empty for a
    /// moment.
    fn start() -> Sleeper {
        let mut cat = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cat is needed");
        cat.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        cat.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Sleeper(cat)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_child_is_attached_and_its_end_is_seen() {
    let mut child = Sleeper::start();
    let pid = child.0.id();
    let target = Target::attach(pid).unwrap();
    assert_eq!((target.pid(), target.uid()), (pid, rustix::process::getuid().as_raw()));
    assert_eq!(target.command(), "cat");
    assert!(target.start() > 0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
        as i128;
    let age = now - target.started_unix_ns();
    // Start times are rounded down to a clock tick (10 ms).
    assert!((-20_000_000..600_000_000_000).contains(&age), "{age}");
    assert!(target.cores_allowed() >= 1);
    assert!(target.alive());
    target.still_permitted().unwrap();
    child.0.kill().unwrap();
    // It is not waited for: a zombie.
    rustix::event::poll(&mut [PollFd::new(&target.pidfd(), PollFlags::IN)], None).unwrap();
    assert!(!target.alive());
    let error = Target::attach(pid).unwrap_err();
    assert_eq!(error.exit_code().number(), 5, "{error}");
    assert!(error.to_string().contains("zombie"), "{error}");
    child.0.wait().unwrap();
    assert_eq!(Target::attach(pid).unwrap_err(), AttachError::NoSuchProcess { pid });
}

#[test]
fn what_cannot_be_profiled_is_refused() {
    for pid in [0, u32::MAX, i32::MAX as u32] {
        assert_eq!(Target::attach(pid).unwrap_err().exit_code().number(), 3, "{pid}");
    }
    let own = Target::attach(std::process::id()).unwrap_err();
    assert_eq!(own.exit_code().number(), 5);
    // SAFETY: gettid has no arguments and cannot fail.
    let tid = std::thread::spawn(|| unsafe { libc::gettid() } as u32).join().unwrap();
    // `join` may return before the thread's entry in /proc is removed.
    while std::path::Path::new(&format!("/proc/self/task/{tid}")).exists() {
        std::thread::yield_now();
    }
    // That thread is gone; this one, of the test harness, is not the leader.
    assert_eq!(Target::attach(tid).unwrap_err().exit_code().number(), 3);
    // SAFETY: as above.
    let here = unsafe { libc::gettid() } as u32;
    if here != std::process::id() {
        let error = Target::attach(here).unwrap_err();
        assert_eq!(error.exit_code().number(), 5, "{error}");
    }
}

#[test]
fn stat_lines() {
    let line = b"42 (a) R (b)) Z 1 42 42 0 -1 2097152 0 0 0 0 1 2 3 4 20 0 7 0 12345 0 0\n";
    let stat = Stat::parse(line).unwrap();
    assert_eq!(
        (stat.comm.as_str(), stat.state, stat.threads, stat.start),
        ("a) R (b)", b'Z', 7, 12345)
    );
    assert!(
        matches!(check_kind(1 << 23, &stat), Err(AttachError::CannotProfile { why, .. }) if why.contains("kernel"))
    );
    for broken in [
        &b""[..],
        b"42",
        b"42 (a",
        b"42 )a(",
        b"42 (a) ",
        b"42 (a) S 1 2 3",
        b"42 (a) S 1 2 3 4 5 x 7 8 9 10 11",
    ] {
        assert_eq!(Stat::parse(broken), None);
    }
}

#[test]
fn status_text() {
    let text = b"Name:\tx\nTgid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n";
    let status = Status::parse(text).unwrap();
    assert_eq!(status, Status { tgid: 7, uids: [1, 2, 3, 4], gids: [5, 6, 7, 8] });
    assert_eq!(Status::parse(b"Tgid:\t7\nUid:\t1\t2\t3\nGid:\t5\t6\t7\t8\n"), None);
}

#[test]
fn word_sizes() {
    let long: Vec<u8> =
        [3u64, 0x40, 4, 56, 5, 13, 0, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
    let short: Vec<u8> =
        [3u32, 0x34, 4, 32, 5, 9, 0, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
    assert!(!is_32_bit(&long));
    assert!(is_32_bit(&short));
    assert!(!is_32_bit(b""));
    assert!(!is_32_bit(&read_proc("/proc/self/auxv").unwrap()), "this very process");
}

#[test]
fn errors_are_one_sentence_with_a_fix() {
    let error = AttachError::ThreadOf { tid: 5, pid: 4 };
    assert_eq!(
        error.to_string(),
        "no process has the pid 5: it is a thread of process 4; use `-p 4`"
    );
    assert_eq!(error.exit_code().number(), 3);
}
