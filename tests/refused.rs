//! A seccomp filter forbids system calls that sampletop prefers, as in containers: it uses the next
//! backend, or says what is missing. The whole program, started under such a filter.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{Running, build, need_root, skipped};

/// `sampletop` with `args`, for which each of `calls` fails with EPERM.
fn sampletop_without(calls: &'static [libc::c_long], args: &[&str]) -> Output {
    program_without(Path::new(env!("CARGO_BIN_EXE_sampletop")), calls, args)
}

fn program_without(program: &Path, calls: &'static [libc::c_long], args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(args);
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(|| calls.iter().try_for_each(|call| refuse(*call))) };
    command.output().expect("sampletop runs")
}

fn refuse(call: libc::c_long) -> std::io::Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let unlike = |k: u32| libc::sock_filter {
        jf: 1,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k)
    };
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
const BPF: libc::c_long = libc::SYS_bpf;

fn target(test: &str) -> Running {
    let program = build("rec_many.c", test, &["-O1"]);
    Running::start(&program, &["10"])
}

fn record(
    calls: &'static [libc::c_long],
    target: &Running,
    more: &[&str],
) -> (Option<i32>, String, String) {
    let pid = target.pid().to_string();
    let output = sampletop_without(
        calls,
        &[&["record", "-p", &pid, "-d", "1s", "--format", "text"], more].concat(),
    );
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn line<'a>(text: &'a str, begin: &str) -> &'a str {
    text.lines()
        .find(|line| line.starts_with(begin))
        .unwrap_or_else(|| panic!("no {begin}:\n{text}"))
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
        assert_eq!(
            (output.status.code(), &answer["best"]),
            (Some(code), &"states".into()),
            "{answer}"
        );
        assert_eq!(answer["self"]["seccomp"], "filter");
        let perf = answer["ways"]
            .as_array()
            .expect("ways")
            .iter()
            .find(|backend| backend["name"] == "perf")
            .expect("perf");
        assert!(perf["lacks"].as_str().expect("why").contains("seccomp filter"), "{answer}");
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
    let more = ["--idle", "--capture", "perf", "--level", "all"];
    let (code, report, _) = record(&[READ], &target, &more);
    assert_eq!((code, line(&report, "Capture").ends_with(" perf")), (Some(0), true), "{report}");
    assert!(line(&report, "Losses").contains("unwind failed 0"), "{report}");
    // Ten threads in five ways of waiting, each under its own three functions and the start of a
    // thread.
    let tree = report.lines().skip_while(|line| !line.starts_with("TREE")).skip(2);
    let stacks: String = tree
        .map_while(|line| {
            line.split_once("%  ")?.1.trim_start_matches([' ', '>']).split(' ').next()
        })
        .map(|name| format!("{name};"))
        .collect();
    for wait in
        ["wait_in_read;__libc_read", "wait_in_epoll;epoll_wait", "wait_in_sleep;__nanosleep"]
    {
        let stack = format!(";start_thread;waiter;wait_outer;wait_middle;{wait};");
        assert!(stacks.contains(&stack), "{stack}: {stacks}");
    }
}

#[test]
fn a_demo_that_cannot_start_its_threads_says_so() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    // Thread scans by the other backends need descriptors, too: which of the two runs out first
    // would be a race.
    command.args(["demo", "-d", "1s", "--capture", "states"]);
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

#[test]
fn without_bpf_the_next_way_is_taken_and_a_doctor_says_why() {
    if !need_root("may use BPF but for the filter") {
        return;
    }
    let target = target("bpf");
    let (code, report, _) = record(&[BPF], &target, &[]);
    assert_eq!((code, line(&report, "Capture").ends_with(" perf")), (Some(0), true), "{report}");
    let (code, report, error) = record(&[BPF], &target, &["--capture", "bpf"]);
    assert_eq!((code, report.as_str(), error.lines().count()), (Some(4), "", 1), "{error}");
    let output = sampletop_without(&[BPF], &["doctor", "--json", "-p", &target.pid().to_string()]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
    assert_eq!((output.status.code(), &answer["best"]), (Some(0), &"perf".into()), "{answer}");
}

const INSIDE: &str = "SAMPLETOP_TEST_IN_CONTAINER";

/// Not a test by itself: runs as process 1 of a container, as what is called root there.
#[test]
fn helper_inside_a_container() {
    let Some(folder) = std::env::var_os(INSIDE).map(PathBuf::from) else { return };
    assert_eq!((std::process::id(), rustix::process::geteuid().as_raw()), (1, 0));
    let program = folder.join("sampletop");
    let target = Running::start(&folder.join("target"), &["10"]);
    let pid = target.pid().to_string();
    let json = |output: &Output| -> serde_json::Value {
        let words = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {words}"))
    };
    for (calls, best) in [(&[][..], "perf"), (&[PERF], "states"), (&[PERF, PTRACE], "states")] {
        let doctor = program_without(&program, calls, &["doctor", "--json", "-p", &pid]);
        let answer = json(&doctor);
        let backends = answer["ways"].as_array().expect("ways");
        assert!(
            backends.iter().any(|backend| backend["name"] == "bpf" && backend["works"] == false),
            "{answer}"
        );
        assert_eq!(answer["best"], best, "{answer}");
        // Each backend works if and only if the doctor says so.
        for backend in backends {
            let name = backend["name"].as_str().expect("a name");
            let args = ["record", "-p", &pid, "-d", "300ms", "--format", "json", "--capture", name];
            let record = program_without(&program, calls, &args);
            assert_eq!(
                record.status.success(),
                backend["works"] == true,
                "{name}: {record:?} {answer}"
            );
        }
        let record = program_without(
            &program,
            calls,
            &["record", "-p", &pid, "-d", "1s", "--format", "json"],
        );
        let error = String::from_utf8_lossy(&record.stderr);
        match record.status.code() {
            Some(0) => {
                let profile = json(&record);
                assert_eq!(profile["capture"], best);
                let stacks = profile["groups"].to_string();
                let whole =
                    ["burn_inner", "wait_outer"].iter().all(|function| stacks.contains(function));
                assert_eq!(whole, best == "perf", "{stacks}");
                let text = program_without(
                    &program,
                    calls,
                    &["record", "-p", &pid, "-d", "500ms", "--format", "text"],
                );
                let text = String::from_utf8_lossy(&text.stdout).into_owned();
                assert!(line(&text, "Capture").ends_with(&format!(" {best}")), "{text}");
                assert!(
                    best != "states" || line(&text, "Notice").contains("perf_event_open"),
                    "{text}"
                );
            }
            // Stopping a foreign process needs an explicit option.
            code => assert!(
                code == Some(4) && calls == [PERF] && error.contains("--capture ptrace"),
                "{error}"
            ),
        }
    }
}

/// A user and pid namespace of a plain user: root by name, without a right outside.
#[test]
fn in_a_container_without_root_the_best_way_is_taken_and_said() {
    if !need_root("becomes a plain user") {
        return;
    }
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
    let copy = |from: &Path, name: &str| {
        std::fs::copy(from, folder.path().join(name)).map(|_| folder.path().join(name))
    };
    copy(Path::new(env!("CARGO_BIN_EXE_sampletop")), "sampletop").expect("copied");
    copy(&build("rec_many.c", "container", &["-O1"]), "target").expect("copied");
    let this = copy(&std::env::current_exe().expect("this program"), "tests").expect("copied");
    // A user of its own: memory for rings is counted per user.
    let user = 1 << 30 | std::process::id();
    let contained = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args([
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
        ]);
        command.args(args).env(INSIDE, folder.path()).current_dir("/").uid(user).gid(user);
        command
    };
    let tried = contained(&["true"]).output().expect("unshare (package util-linux) is needed");
    if !tried.status.success() {
        let why = String::from_utf8_lossy(&tried.stderr).into_owned();
        return skipped("in_a_container_without_root_the_best_way_is_taken_and_said", &why);
    }
    let helper =
        [this.to_str().expect("text"), "--exact", "helper_inside_a_container", "--nocapture"];
    let output = contained(&helper).output().expect("it starts again");
    let words = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && words.contains("1 passed"), "{words}");
}
