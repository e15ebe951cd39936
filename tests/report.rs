//! `report`: consecutive reports without a gap, through rotation, restarts and a full disk.

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use common::{Running, build, need_root, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A `report` that runs; ended when this goes.
struct Reporting {
    child: Child,
    errors: std::io::Lines<BufReader<ChildStderr>>,
}

impl Reporting {
    fn start(args: &[&str]) -> Reporting {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        command
            .arg("report")
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("sampletop starts");
        let errors = BufReader::new(child.stderr.take().expect("piped")).lines();
        Reporting { child, errors }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Returns its next line on standard error.
    fn says(&mut self) -> String {
        self.errors.next().expect("a line").expect("text")
    }

    /// Ends it by SIGTERM. Returns its exit code.
    fn end(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the reports of a file as json; an incomplete last one is dropped.
fn read(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    serde_json::Deserializer::from_str(&text).into_iter().map_while(Result::ok).collect()
}

fn wall_ms(report: &Value) -> f64 {
    let groups = report["groups"].as_array().expect("groups");
    groups.iter().map(|group| group["wall_ms"].as_f64().expect("ms")).sum()
}

fn pids(report: &Value) -> Vec<u64> {
    report["targets"]
        .as_array()
        .expect("targets")
        .iter()
        .map(|target| target["pid"].as_u64().expect("a pid"))
        .collect()
}

#[test]
fn each_begins_where_the_last_ended_and_all_time_is_in_one() {
    let program = build("../../demos/work.c", "o2", &["-O2"]);
    let target = Running::start(&program, &[]);
    let pid = target.pid().to_string();
    let threads = common::states(target.pid()).len() as f64;
    let dir = tempfile::tempdir().expect("a folder");
    let (path, moved) = (dir.path().join("r.json"), dir.path().join("r.json.1"));
    let file = path.to_str().expect("text");
    let reporting = Reporting::start(&["-p", &pid, "--every", "1s", "-o", file]);
    wait_until("three reports", || read(&path).len() >= 3);
    std::fs::rename(&path, &moved).expect("rotated");
    reporting.signal(Signal::HUP);
    wait_until("a new file", || path.exists());
    reporting.signal(Signal::USR1);
    wait_until("a report in it", || !read(&path).is_empty());
    let (mut reports, code) = (read(&moved), reporting.end());
    assert_eq!(code, Some(0));
    let after = read(&path);
    assert!(after.len() >= 2, "the last one, too");
    reports.extend(after);

    let text = |report: &Value, name: &str| report[name].as_str().expect("text").to_owned();
    for pair in reports.windows(2) {
        assert_eq!(text(&pair[0], "till"), text(&pair[1], "from"));
        assert!(
            pair[1]["health"]["ticks"].as_u64().expect("a count") < 1_000,
            "it is that report's own"
        );
    }
    // The threads exist all the time. A thread's time since its last observation, or before its
    // first, is missing until it is observed. The sum is never too large, and lacks less than a
    // second. A report that was lost or counted twice would shift it by a second.
    let mut sum = 0.0;
    for report in &reports {
        sum += wall_ms(report) - threads * report["elapsed_ms"].as_f64().expect("ms");
        assert!(
            (-threads * 500.0..threads).contains(&sum),
            "{sum} ms of {threads} threads, {report}"
        );
    }
}

/// As `timeout` does, which sends its signal to the program and to its process group. (Two of one
/// number may arrive as one, so here they are different.)
#[test]
fn an_end_that_is_asked_for_twice_at_once_loses_no_report() {
    let target = Running::start(&build("../../demos/work.c", "o2", &["-O2"]), &[]);
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("r.json");
    let pid = target.pid().to_string();
    let args = ["-p", &pid, "--every", "1s", "-o", path.to_str().expect("text")];
    let mut reporting = Reporting::start(&args);
    wait_until("a report", || !read(&path).is_empty());
    let before = read(&path).len();
    reporting.signal(Signal::INT);
    reporting.signal(Signal::TERM);
    assert_eq!(reporting.child.wait().expect("it ends").code(), Some(0));
    assert!(read(&path).len() > before, "the last one");
}

#[test]
fn restarts_are_followed_and_told() {
    if !need_root("finds processes of all users") {
        return;
    }
    let program = build("../../demos/work.c", "restarts", &["-O2"]);
    let name = program.file_name().expect("a name").to_str().expect("text").to_owned();
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("reports/");
    let place = path.to_str().expect("text").to_owned();
    let mut reporting =
        Reporting::start(&["--name", &name, "--every", "0", "--format", "json", "-o", &place]);
    assert!(reporting.says().contains("waiting for a process called"));
    // A log that is rotated meanwhile does not end it.
    wait_until("its signals", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", reporting.child.id()))
            .expect("it runs");
        let caught =
            status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask").trim();
        u64::from_str_radix(caught, 16).expect("a number") & 1 != 0
    });
    reporting.signal(Signal::HUP);
    let first = Running::start(&program, &[]);
    let one = u64::from(first.pid());
    wait_until("its folder", || path.is_dir());
    drop(first);
    assert_eq!(reporting.says(), format!("sampletop: process {one} has ended"));
    let second = Running::start(&program, &[]);
    let two = u64::from(second.pid());
    assert!(
        reporting.says().starts_with(&format!("sampletop: process {two} is watched from now on: "))
    );
    // A report on request; the one after it no longer contains the first process.
    reporting.signal(Signal::USR1);
    let files = || {
        let entries =
            std::fs::read_dir(&path).expect("there").map(|entry| entry.expect("readable").path());
        let mut files: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|of| of == "json")).collect();
        files.sort();
        files
    };
    wait_until("a report", || !files().is_empty());
    assert_eq!(reporting.end(), Some(0));
    let reports: Vec<Value> = files().iter().flat_map(|file| read(file)).collect();
    assert_eq!(reports.iter().map(pids).collect::<Vec<_>>(), [vec![one, two], vec![two]]);
}

#[test]
fn a_full_disk_is_told_once_and_sampling_goes_on() {
    let program = build("../../demos/work.c", "o2", &["-O2"]);
    let target = Running::start(&program, &[]);
    let mut reporting =
        Reporting::start(&["-p", &target.pid().to_string(), "--every", "1s", "-o", "/dev/full"]);
    assert_eq!(
        reporting.says(),
        "sampletop: cannot write `/dev/full`: no space left on device; sampling goes on"
    );
    reporting.signal(Signal::USR1);
    reporting.signal(Signal::TERM);
    assert_eq!(reporting.child.wait().expect("it ends").code(), Some(1), "the last one is lost");
    assert_eq!(
        reporting.errors.next().map(|line| line.expect("text")),
        None,
        "it is not told again"
    );
}

#[test]
fn a_destination_that_cannot_hold_the_reports_is_a_usage_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let started = dir.path().join("started");
    for options in [
        &["--keep", "3", "-o", "r.log"][..],
        &["--keep", "3"],
        &["--max-bytes", "3K", "-o", "-"],
        &["--format", "html", "-o", "r.html"],
        &["--format", "folded"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        command.current_dir(&dir).arg("report").args(options);
        let output = command.args(["--", "touch"]).arg(&started).output().expect("it runs");
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {words}");
        assert!(words.contains("directory"), "{options:?}: {words}");
        assert!(!started.exists(), "{options:?}: the command was started");
    }
}

/// The unit for systemd in assets/.
const UNIT: &str = include_str!("../assets/sampletop-report@.service");

#[test]
fn the_unit_is_sound() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("systemd-analyze is not there: no other program has read the unit");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let here = UNIT.replace("/usr/local/bin/sampletop", env!("CARGO_BIN_EXE_sampletop"));
    let path = dir.path().join("sampletop-report@.service");
    std::fs::write(&path, here).expect("written");
    let verified =
        Command::new("systemd-analyze").arg("verify").arg(&path).output().expect("it runs");
    let words = String::from_utf8_lossy(&verified.stderr).into_owned();
    let ours: Vec<&str> = words.lines().filter(|line| line.contains("sampletop")).collect();
    assert!(ours.is_empty(), "{words}");
}

#[test]
fn the_capabilities_of_the_unit_do() {
    if !need_root("runs with some of root's capabilities, and another user's process") {
        return;
    }
    let line = UNIT
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .expect("there are some");
    let set: Vec<String> = line
        .split(' ')
        .map(|name| name.strip_prefix("CAP_").expect("a capability").to_lowercase())
        .collect();
    let program = build("../../demos/work.c", "o2", &["-O2"]);
    let mut other = Command::new("setpriv");
    other.args(["--reuid", "65534", "--clear-groups"]).arg(&program);
    let target = Running::start_command(other);
    let capture = |set: &str| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--bounding-set=-all,{set}"), "--inh-caps=-all", "--no-new-privs"]);
        command
            .arg(env!("CARGO_BIN_EXE_sampletop"))
            .args(["record", "-d", "200ms", "--format", "json", "-p"]);
        let output = command.arg(target.pid().to_string()).output().expect("it runs");
        let profile: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        profile["capture"].as_str().unwrap_or_default().to_owned()
    };
    let with =
        |set: &[String]| set.iter().map(|name| format!("+{name}")).collect::<Vec<_>>().join(",");
    assert_eq!(capture(&with(&set)), "bpf");
    // Each of them is necessary (except the last, for the names of the kernel's functions).
    for dropped in set.iter().filter(|name| *name != "syslog") {
        let fewer: Vec<String> = set.iter().filter(|name| *name != dropped).cloned().collect();
        assert_ne!(capture(&with(&fewer)), "bpf", "without {dropped}");
    }
}
