//! `sampletop doctor` as a program: its verdicts must match what `record` then does.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use common::{Running, build, need_root};
use serde_json::Value;

const NOBODY: u32 = 65_534;

fn json(output: &Output) -> Value {
    let words = String::from_utf8_lossy(&output.stderr);
    let answer: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {words}"));
    assert_eq!(answer["schema"], "sampletop-doctor/1");
    answer
}

fn sampletop(program: &Path, uid: Option<u32>, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(args).current_dir("/");
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    command.output().expect("sampletop starts")
}

fn works(answer: &Value, backend: &str) -> bool {
    let backends = answer["ways"].as_array().expect("ways");
    backends.iter().find(|found| found["name"] == backend).expect(backend)["works"]
        .as_bool()
        .expect("yes or no")
}

/// Each backend works if and only if the doctor says so; for root and for the user `nobody`, with
/// its own process and another's.
#[test]
fn what_a_doctor_says_is_what_record_does() {
    if !need_root("plays other users") {
        return;
    }
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
    let copy = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        std::fs::copy(from, &to).expect("copied");
        to
    };
    let program = copy(Path::new(env!("CARGO_BIN_EXE_sampletop")), "sampletop");
    let target = copy(&build("rec_many.c", "doctor", &["-O1"]), "target");
    for (owner, asker) in [(0, 0), (NOBODY, NOBODY), (0, NOBODY), (NOBODY, 0)] {
        let mut command = Command::new(&target);
        command.arg("10").uid(owner).gid(owner).stdin(std::process::Stdio::piped());
        let mut child =
            command.stdout(std::process::Stdio::piped()).spawn().expect("the target starts");
        let lines =
            std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("piped")));
        let mut running = Running { child, lines };
        assert_eq!(running.lines.next().expect("a line").expect("text"), "ready");
        let pid = running.pid().to_string();
        let output = sampletop(&program, Some(asker), &["doctor", "--json", "-p", &pid]);
        let answer = json(&output);
        assert_eq!(answer["target"]["pid"], running.pid(), "{answer}");
        let mut any = false;
        for backend in ["bpf", "perf", "cpu-only", "states", "ptrace"] {
            let record = sampletop(
                &program,
                Some(asker),
                &["record", "-p", &pid, "-d", "100ms", "--capture", backend],
            );
            let error = String::from_utf8_lossy(&record.stderr);
            let code = record.status.code().expect("an end");
            assert!(code == 0 || code == 4, "{error}");
            assert_eq!(
                works(&answer, backend),
                code == 0,
                "{asker} at {owner}'s by {backend}: {error} {answer}"
            );
            any |= backend != "states" && code == 0;
        }
        assert_eq!(output.status.code(), Some(if any { 0 } else { 4 }), "{answer}");
        if let Some(best) = answer["best"].as_str() {
            let record = sampletop(
                &program,
                Some(asker),
                &["record", "-p", &pid, "-d", "100ms", "--format", "json"],
            );
            let profile: Value = serde_json::from_slice(&record.stdout).expect("json");
            assert_eq!(profile["capture"], best, "{asker} at {owner}'s");
        } else {
            assert!(
                answer["target"]["refused"].as_str().expect("why").contains("belongs to user root"),
                "{answer}"
            );
            assert!(
                answer["change"]["line"].as_str().expect("a line").starts_with("sudo "),
                "{answer}"
            );
        }
    }
}

#[test]
fn pids_that_cannot_be_watched_are_refused_as_everywhere() {
    let program = Path::new(env!("CARGO_BIN_EXE_sampletop"));
    for (args, code) in [
        (&["doctor", "-p", "4194303"][..], 3),
        (&["doctor", "-p", "0"], 2),
        (&["doctor", "-p", "2"], 5),
        (&["doctor", "--format", "json"], 2),
        (&["doctor", "now"], 2),
    ] {
        let output = sampletop(program, None, args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            (output.status.code(), error.lines().count()),
            (Some(code), 1),
            "{args:?}: {error}"
        );
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn without_a_process_it_tells_of_the_machine() {
    let program = Path::new(env!("CARGO_BIN_EXE_sampletop"));
    let output = sampletop(program, None, &["doctor"]);
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel");
    for words in [
        "Capture backends, best first",
        "Seen here",
        release.trim(),
        "seccomp",
        "capabilities, bounding",
    ] {
        assert!(report.contains(words), "{words}: {report}");
    }
    let answer = json(&sampletop(program, None, &["doctor", "--json"]));
    assert_eq!(answer["target"], Value::Null);
    assert!(works(&answer, "states"), "{answer}");
}
