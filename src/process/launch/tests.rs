use std::io::Read;

use super::*;

fn words(command: &[&str]) -> Vec<OsString> {
    command.iter().map(OsString::from).collect()
}

fn prepare(command: &[&str], output: LaunchOutput) -> Launch {
    Launch::prepare(&words(command), output).expect("it can be prepared")
}

fn read_all(launch: &mut Launch) -> String {
    let mut text = String::new();
    launch.take_output().expect("a pipe").read_to_string(&mut text).expect("text");
    text
}

fn finish(launch: &mut Launch) -> ExitStatus {
    launch.wait(Duration::from_secs(60)).expect("it ends")
}

#[test]
fn nothing_runs_before_go_and_the_pid_stays() {
    let mut launch = prepare(&["sh", "-c", "echo $$"], LaunchOutput::Pipe);
    let exe = || std::fs::read_link(format!("/proc/{}/exe", launch.pid())).unwrap();
    assert_eq!(exe(), std::env::current_exe().unwrap(), "waits before its exec");
    assert_eq!(launch.try_wait(), None);
    launch.go().unwrap();
    launch.go().unwrap(); // once is enough, twice does no harm
    assert_eq!(read_all(&mut launch).trim(), launch.pid().to_string());
    assert!(finish(&mut launch).success());
    assert_eq!(launch.command_line(), "sh -c echo $$");
    assert!(launch.try_wait().is_some_and(|status| status.success()), "the status is kept");
}

#[test]
fn own_session_no_stdin_no_blocked_or_caught_signals() {
    let said = |command: &[&str]| {
        let mut launch = prepare(command, LaunchOutput::Pipe);
        launch.go().unwrap();
        (read_all(&mut launch), launch.pid())
    };
    let (text, pid) = said(&["cut", "-d ", "-f6", "/proc/self/stat"]);
    assert_eq!(text, format!("{pid}\n"));
    // SIGPIPE, which Rust ignores, has its default again. Signals that the test itself ignores
    // (nohup) stay ignored.
    let ignored = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = ignored.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap() & !(1 << (libc::SIGPIPE - 1));
    // The program checks itself: a shell blocks all signals around each fork, and its children may
    // be observed in that state.
    let (text, _) = said(&["grep", "-E", "SigBlk|SigIgn", "/proc/self/status"]);
    assert_eq!(text, format!("SigBlk:\t0000000000000000\nSigIgn:\t{ignored:016x}\n"));
    assert_eq!(said(&["sh", "-c", "cat; echo to stderr >&2"]).0, "to stderr\n");
}

#[test]
fn output_goes_to_a_new_private_file_and_never_over_an_old_one() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("out");
    let mut launch =
        prepare(&["sh", "-c", "echo one; echo two >&2"], LaunchOutput::File(path.clone()));
    launch.go().unwrap();
    assert!(finish(&mut launch).success());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
    assert_eq!(mode & 0o777, 0o600);

    let again = Launch::prepare(&words(&["true"]), LaunchOutput::File(path.clone()))
        .err()
        .expect("it exists");
    assert!(matches!(&again, LaunchError::Output { .. }), "{again}");
    assert_eq!(again.exit_code().number(), 125);
    let link = place.path().join("link");
    std::os::unix::fs::symlink(place.path().join("elsewhere"), &link).unwrap();
    assert!(Launch::prepare(&words(&["true"]), LaunchOutput::File(link)).is_err());
    assert!(!place.path().join("elsewhere").exists(), "no link is followed");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
}

#[test]
fn what_cannot_be_started_says_so_with_the_codes_of_env() {
    let place = tempfile::tempdir().unwrap();
    let plain = place.path().join("plain");
    std::fs::write(&plain, "not a program").unwrap();
    let code = |command: &str| match Launch::prepare(&words(&[command]), LaunchOutput::Null) {
        Ok(mut launch) => launch.go().err().map(|e| e.exit_code().number()),
        Err(e) => Some(e.exit_code().number()),
    };
    assert_eq!(code("no-such-command-anywhere"), Some(127));
    assert_eq!(code(place.path().join("missing").to_str().unwrap()), Some(127));
    assert_eq!(code(""), Some(127));
    assert_eq!(code(plain.to_str().unwrap()), Some(126));
    assert_eq!(code(place.path().to_str().unwrap()), Some(126));
    assert_eq!(
        Launch::prepare(&[], LaunchOutput::Null).err().map(|e| e.exit_code().number()),
        Some(125)
    );
    // Only the exec itself can see this one: an interpreter that is not there.
    let script = place.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    rustix::fs::chmod(&script, rustix::fs::Mode::RWXU).unwrap();
    assert_eq!(code(script.to_str().unwrap()), Some(127));
}

#[test]
fn a_script_without_interpreter_line_runs_as_in_a_shell() {
    let place = tempfile::tempdir().unwrap();
    let script = place.path().join("script");
    std::fs::write(&script, "echo it ran\n").unwrap();
    rustix::fs::chmod(&script, rustix::fs::Mode::RWXU).unwrap();
    let mut launch = prepare(&[script.to_str().unwrap()], LaunchOutput::Pipe);
    launch.go().unwrap();
    assert_eq!(read_all(&mut launch), "it ran\n");
}

#[test]
fn its_own_status_is_reported() {
    let mut launch = prepare(&["sh", "-c", "exit 7"], LaunchOutput::Null);
    launch.go().unwrap();
    assert_eq!(finish(&mut launch).code(), Some(7));
    let mut launch = prepare(&["sh", "-c", "kill -ABRT $$"], LaunchOutput::Null);
    launch.go().unwrap();
    assert_eq!(finish(&mut launch).signal(), Some(libc::SIGABRT));
}

#[test]
fn end_sends_sigterm_then_sigkill() {
    let mut polite = prepare(&["sleep", "1000"], LaunchOutput::Null);
    polite.go().unwrap();
    assert_eq!(polite.end().unwrap().signal(), Some(libc::SIGTERM));
    let mut deaf = prepare(
        &["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"],
        LaunchOutput::Pipe,
    );
    deaf.go().unwrap();
    let mut word = [0; 5];
    deaf.take_output().unwrap().read_exact(&mut word).unwrap(); // the trap is set
    assert_eq!(deaf.end().unwrap().signal(), Some(libc::SIGKILL));
    assert_eq!(
        deaf.end().unwrap().signal(),
        Some(libc::SIGKILL),
        "ending it again changes nothing"
    );
}

#[test]
fn dropping_leaves_a_running_child_and_ends_a_waiting_one() {
    let mut running = prepare(&["sleep", "1000"], LaunchOutput::Null);
    running.go().unwrap();
    let pid = rustix::process::Pid::from_raw(running.pid() as i32).unwrap();
    running.leave();
    assert!(rustix::process::test_kill_process(pid).is_ok(), "it runs on");
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    rustix::process::waitpid(Some(pid), WaitOptions::empty()).unwrap();

    let waiting = prepare(&["sleep", "1000"], LaunchOutput::Null);
    let pid = rustix::process::Pid::from_raw(waiting.pid() as i32).unwrap();
    drop(waiting);
    assert!(rustix::process::test_kill_process(pid).is_err(), "it has ended");
}

#[test]
fn waiting_never_takes_a_stop_away_from_the_tracer() {
    // A traced child that stops belongs to the thread that traces it, even in the same process.
    let mut launch = prepare(&["sleep", "1000"], LaunchOutput::Null);
    launch.go().unwrap();
    let pid = launch.pid() as i32;
    let (stopped, is_stopped) = std::sync::mpsc::channel();
    let (looked, has_looked) = std::sync::mpsc::channel::<()>();
    let tracer = std::thread::spawn(move || {
        // SAFETY: plain ptrace and waitpid calls on our own child.
        unsafe {
            assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0), 0);
            assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0), 0);
            stopped.send(()).unwrap();
            has_looked.recv().unwrap();
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &mut status, libc::__WALL), pid);
            assert!(libc::WIFSTOPPED(status), "the stop is still there to be waited for");
            libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0);
        }
    });
    is_stopped.recv().unwrap();
    while !std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(" t ") {
        std::thread::yield_now(); // until the stop is reached: state `t`
    }
    assert_eq!(launch.try_wait(), None);
    looked.send(()).unwrap();
    tracer.join().unwrap();
    assert_eq!(launch.end().unwrap().signal(), Some(libc::SIGTERM));
}
