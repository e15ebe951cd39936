//! Where a filter of system calls forbids what sampletop would like to use, as containers have it: it takes the next way
//! or says what is missing. The whole program, started under such a filter.

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use common::{Running, build};

/// `sampletop` with `args`, for which each of `calls` fails with EPERM.
fn sampletop_without(calls: &'static [libc::c_long], args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(args);
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(|| calls.iter().try_for_each(|call| refuse(*call))) };
    command.output().expect("sampletop runs")
}

fn refuse(call: libc::c_long) -> std::io::Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let unlike = |k: u32| libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k) };
    let mut filter = [
        // The number of the call is the first word of seccomp_data.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        unlike(call as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: prctl reads `program`, which lives through the call.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    };
    if set { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

const PERF: libc::c_long = libc::SYS_perf_event_open;
const PTRACE: libc::c_long = libc::SYS_ptrace;
const READ: libc::c_long = libc::SYS_process_vm_readv;

fn target(test: &str) -> Running {
    let program = build("rec_many.c", test, &["-O1"]);
    Running::start(&program, &["10"])
}

fn record(calls: &'static [libc::c_long], target: &Running, more: &[&str]) -> (Option<i32>, String, String) {
    let pid = target.pid().to_string();
    let output = sampletop_without(calls, &[&["record", "-p", &pid, "-d", "1s", "--format", "text"], more].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn line<'a>(text: &'a str, begin: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no {begin}:\n{text}"))
}

#[test]
fn stopping_a_foreign_process_has_to_be_asked_for() {
    let target = target("asked");
    let (code, report, error) = record(&[PERF], &target, &[]);
    assert_eq!((code, report.as_str()), (Some(4), ""), "{error}");
    for words in ["perf_event_open", "--capture ptrace", "--capture states"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
    let (code, report, _) = record(&[PERF], &target, &["--capture", "states"]);
    assert_eq!((code, line(&report, "Capture").ends_with(" states")), (Some(0), true), "{report}");
    let (code, report, _) = record(&[PERF], &target, &["--capture", "ptrace"]);
    assert_eq!((code, report.contains("burn_inner")), (Some(0), true), "{report}");
}

#[test]
fn without_perf_and_ptrace_there_are_states_and_the_reason() {
    let target = target("reason");
    let (code, report, _) = record(&[PERF, PTRACE], &target, &[]);
    assert_eq!((code, line(&report, "Capture").ends_with(" states")), (Some(0), true), "{report}");
    assert!(line(&report, "Notice").contains("perf_event_open"), "{report}");
    let (code, report, error) = record(&[PERF, PTRACE], &target, &["--capture", "ptrace"]);
    assert_eq!((code, report.as_str()), (Some(4), ""), "{error}");
    assert!(error.contains("the system call ptrace is forbidden here"), "{error}");
}

#[test]
fn a_doctor_finds_the_filter() {
    let target = target("doctor");
    let pid = target.pid().to_string();
    for (calls, code) in [(&[PERF][..], 0), (&[PERF, PTRACE], 4)] {
        let output = sampletop_without(calls, &["doctor", "--json", "-p", &pid]);
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
        assert_eq!((output.status.code(), &answer["best"]), (Some(code), &"states".into()), "{answer}");
        assert_eq!(answer["self"]["seccomp"], "filter");
        let perf = answer["ways"].as_array().expect("ways").iter().find(|way| way["name"] == "perf").expect("perf");
        assert!(perf["lacks"].as_str().expect("why").contains("filter of system calls"), "{answer}");
    }
}

#[test]
fn the_demo_is_stopped_where_perf_is_forbidden_and_only_told_of_where_that_is_too() {
    let demo = |calls| {
        let output = sampletop_without(calls, &["demo", "--workload", "mixed", "-d", "1s"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let report = demo(&[PERF]);
    assert!(line(&report, "Capture").ends_with(" ptrace (stops threads)"), "{report}");
    let report = demo(&[PERF, PTRACE]);
    assert!(line(&report, "Capture").ends_with(" states"), "{report}");
}

#[test]
fn blocked_stacks_are_read_without_process_vm_readv() {
    let target = target("file");
    let (code, report, _) = record(&[READ], &target, &["--idle", "--capture", "perf"]);
    assert_eq!((code, line(&report, "Capture").ends_with(" perf")), (Some(0), true), "{report}");
    assert!(line(&report, "Losses").contains("unwind failed 0"), "{report}");
    // Ten threads in five ways of waiting, each under its own three functions and the start of a thread.
    for wait in ["...7 __libc_read", "...6 epoll_wait", "...7 __clock_nanosleep"] {
        assert!(report.contains(wait), "{wait}: {report}");
    }
}

#[test]
fn a_demo_that_cannot_start_its_threads_says_so() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(["demo", "-d", "1s"]);
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 24, rlim_max: 24 };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        })
    };
    let output = command.output().expect("sampletop runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("the demo could not start") && error.contains("ulimit"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}
