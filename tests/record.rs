//! Results of `record` and `dump` on known programs, compared with the programs' own measurements.

mod common;

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use common::{Recording, Running};
use serde_json::Value;

fn sampletop(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sampletop")).args(args).output().expect("sampletop starts")
}

/// Records this many ms of its CPU time.
fn record(pid: u32, ms: u64, more: &[&str], dir: &Path) -> Value {
    let file = dir.join("p.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(["record", "-p", &pid.to_string()]).args(more).arg("-o").arg(&file);
    let recording = Recording::start(&mut command);
    recording.until_used(pid, ms);
    let output = recording.end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&std::fs::read(&file).expect("the profile")).expect("JSON")
}

fn group<'a>(profile: &'a Value, name: &str) -> &'a Value {
    let groups = profile["groups"].as_array().expect("groups");
    let found = groups.iter().find(|g| g["name"] == name);
    found.unwrap_or_else(|| {
        panic!("no group {name:?} in {:?}", groups.iter().map(|g| &g["name"]).collect::<Vec<_>>())
    })
}

/// Returns CPU ms of the outermost nodes called `name` below these.
fn cpu_of(nodes: &Value, name: &str) -> f64 {
    nodes.as_array().expect("a tree").iter().fold(0.0, |sum, node| {
        sum + if node["frame"] == name {
            node["cpu_ms"].as_f64().expect("ms")
        } else {
            cpu_of(&node["children"], name)
        }
    })
}

/// Returns the program's own figures for each function, ns.
fn truth(target: &mut Running) -> [f64; 3] {
    target.child.stdin.as_mut().expect("stdin").write_all(b"\n").expect("it listens");
    let line = target.lines.next().expect("it answers").expect("text");
    let words: Vec<&str> = line.split(' ').collect();
    [1, 3, 5].map(|at| words[at].parse().expect("a number"))
}

const FUNCTIONS: [&str; 3] = ["sixty", "thirty", "ten"];

/// Family-wise error: 3 functions x 10 runs, two-sided at z = 5.6 each: 30 x 2.2e-8 = 7e-7.
const Z: f64 = 5.6;
/// A sample stands for the CPU time since the thread's last one. Where threads share cores, the
/// number of consecutive kernel samples that hit others is random, at most like a geometric
/// distribution: its variance makes twice that of equal weights.
const WEIGHTS_VARY: f64 = 2.0;

fn shares(variant: &str, flags: &[&str], backend: &str) {
    if !common::need_root("samples all CPUs") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let program = common::build("../../demos/work.c", variant, flags);
    let mut target = Running::start(&program, &[]);
    let before = truth(&mut target);
    let profile = record(target.pid(), 8_000, &["--capture", backend], dir.path());
    let after = truth(&mut target);
    let spent: Vec<f64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    let spent_sum: f64 = spent.iter().sum();

    assert!(
        profile["capture"].as_str().expect("text").starts_with(backend),
        "{}",
        profile["capture"]
    );
    let work = group(&profile, "work-");
    let tree = common::tree(work);
    let mut names: Vec<&str> = work["threads"]
        .as_array()
        .expect("threads")
        .iter()
        .map(|t| t["name"].as_str().expect("text"))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["work-1", "work-2", "work-3", "work-4"]);
    let hits = work["cpu_hits"].as_f64().expect("hits");
    assert!(hits >= 30.0, "only {hits} samples: too few for the normal approximation below");
    let cpu = work["cpu_ms"].as_f64().expect("ms");
    for (name, spent) in FUNCTIONS.iter().zip(spent) {
        let (seen, expected) = (cpu_of(&tree, name) / cpu, spent / spent_sum);
        let bound = Z * (WEIGHTS_VARY * expected * (1.0 - expected) / hits).sqrt();
        assert!(
            (seen - expected).abs() <= bound,
            "{variant} by {backend}: {name} has {seen:.4} of the CPU, it says {expected:.4}; {hits} samples allow {bound:.4}"
        );
    }
}

const FRAME_POINTERS: &[&str] = &["-O2", "-g", "-fno-omit-frame-pointer"];
const NO_FRAME_POINTERS: &[&str] = &["-O2", "-g", "-fomit-frame-pointer"];

#[test]
fn known_shares_by_perf_with_frame_pointers() {
    shares("fp-perf", FRAME_POINTERS, "perf");
}

#[test]
fn known_shares_by_perf_without_frame_pointers() {
    shares("nofp-perf", NO_FRAME_POINTERS, "perf");
}

#[test]
fn known_shares_by_bpf() {
    shares("fp-bpf", FRAME_POINTERS, "bpf");
    shares("nofp-bpf", NO_FRAME_POINTERS, "bpf");
}

#[test]
fn known_shares_by_ptrace_with_frame_pointers() {
    shares("fp-ptrace", FRAME_POINTERS, "ptrace");
}

#[test]
fn known_shares_by_ptrace_without_frame_pointers() {
    shares("nofp-ptrace", NO_FRAME_POINTERS, "ptrace");
}

#[test]
fn known_shares_without_optimisation_or_position_independence() {
    shares("O0-perf", &["-O0", "-g"], "perf");
    shares("nopie-perf", &["-O2", "-g", "-no-pie", "-fno-pie"], "perf");
}

fn state_in(backend: &str) -> &'static str {
    match backend {
        "read" => "io",
        "mutex" => "lock",
        "sleep" => "sleep",
        _ => "poll",
    }
}

#[test]
fn five_hundred_blocked_threads_are_whole_and_busy_ones_right() {
    if !common::need_root("samples all CPUs") {
        return;
    }
    let program = common::build("rec_many.c", "O2", &["-O2", "-g"]);
    let target = Running::start(&program, &["500"]);
    let output = sampletop(&["dump", "-p", &target.pid().to_string(), "--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let dump: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let threads = dump["threads"].as_array().expect("threads");
    assert_eq!(threads.len(), 503);
    for thread in threads {
        let name = thread["name"].as_str().expect("text");
        let frames: Vec<&str> = thread["frames"]
            .as_array()
            .expect("frames")
            .iter()
            .map(|f| f["frame"].as_str().expect("text"))
            .collect();
        let Some((backend, _)) = name.split_once('-').filter(|_| thread["tid"] != thread["pid"])
        else {
            continue;
        };
        assert_eq!(thread["complete"], true, "{name}: {frames:?}");
        let at = frames.iter().position(|f| *f == format!("wait_in_{backend}"));
        let at = at.unwrap_or_else(|| panic!("{name} is not in wait_in_{backend}: {frames:?}"));
        assert_eq!(frames[at + 1..at + 4], ["wait_middle", "wait_outer", "waiter"], "{name}");
        assert_eq!(thread["state"], state_in(backend), "{name}: {frames:?}");
    }

    let dir = tempfile::tempdir().expect("a folder");
    let profile = record(target.pid(), 3_000, &["--capture", "perf"], dir.path());
    let burner = group(&profile, "burner");
    let (cpu, inner) =
        (burner["cpu_ms"].as_f64().expect("ms"), cpu_of(&common::tree(burner), "burn_inner"));
    assert!(inner / cpu > 0.9, "burn_inner has {inner} of {cpu} ms");
    // Each blocked thread's whole life in the recording is one wait.
    for backend in ["read", "mutex", "epoll", "sleep", "poll"] {
        let group = group(&profile, &format!("{backend}-"));
        assert_eq!(group["threads"].as_array().expect("threads").len(), 100, "{backend}");
        assert_eq!(group["hits"], 100, "{backend}: a wait is one hit");
        let number = |of: &Value, key: &str| of[key].as_f64().expect("ms");
        let (mean, longest) = (number(group, "wall_ms") / 100.0, number(group, "longest_ms"));
        // A thread is known from its first observation on, the first thread a little longer than
        // the last.
        assert!(
            mean <= longest + 0.001 && longest <= number(&profile, "elapsed_ms"),
            "{backend}: {mean} {longest}"
        );
        assert!(mean > 0.5 * longest, "{backend}: {mean} of {longest} ms");
        assert_eq!(
            group["states_ms"][state_in(backend)],
            group["wall_ms"],
            "{backend}: {}",
            group["states_ms"]
        );
    }
}

#[test]
fn a_command_has_its_own_input_output_and_exit_status() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("p.json");
    let mut recording = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    recording.args(["record", "-o"]).arg(&file);
    // Busy until it has read a line, so that there is something to sample.
    recording.args([
        "--",
        "sh",
        "-c",
        "read line; echo got $line; echo words >&2; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exit 7",
    ]);
    let piped = std::process::Stdio::piped;
    let mut child =
        recording.stdin(piped()).stdout(piped()).stderr(piped()).spawn().expect("sampletop starts");
    child.stdin.take().expect("piped").write_all(b"a line\n").expect("it listens");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "got a line\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "words\n");
    let profile: Value =
        serde_json::from_slice(&std::fs::read(&file).expect("the profile")).expect("JSON");
    // From its first instruction: the kernel's exec, or the loader, comes before any thread is
    // observed.
    assert!(
        profile["targets"][0]["command"].as_str().expect("text").starts_with("sh -c read"),
        "{profile}"
    );
}

/// Returns modules of the frames of a process, and its functions.
fn dumped(pid: u32) -> (Vec<String>, Vec<String>) {
    let output = sampletop(&["dump", "-p", &pid.to_string(), "--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let dump: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let frames = dump["threads"]
        .as_array()
        .expect("threads")
        .iter()
        .flat_map(|t| t["frames"].as_array().expect("frames"));
    let texts = |frames: &mut dyn Iterator<Item = &Value>, field: &str| -> Vec<String> {
        frames.map(|frame| frame[field].as_str().expect("text").to_owned()).collect()
    };
    (texts(&mut frames.clone(), "module"), texts(&mut frames.clone(), "frame"))
}

#[test]
fn a_program_is_called_what_it_was_started_as() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = common::build("rec_many.c", "renamed", &["-O1", "-s"]);
    let real = dir.path().join("real-name");
    std::fs::copy(&program, &real).expect("copied");
    let link = dir.path().join("started-as");
    std::os::unix::fs::symlink("real-name", &link).expect("linked");
    let lying = |name: &str| {
        let mut command = Command::new("bash");
        command.arg("-c").arg(format!("exec -a {name} '{}' 3", real.display()));
        command
    };
    let linked = |path: &Path| {
        let mut command = Command::new(path);
        command.arg("3").current_dir(dir.path());
        command
    };
    for (command, called) in [
        (linked(&link), "started-as"),
        (linked(Path::new("./started-as")), "started-as"),
        (linked(&real), "real-name"),
        // Another file, and none.
        (lying("/bin/ls"), "real-name"),
        (lying("nowhere"), "real-name"),
        // With what programs write behind their name.
        (lying(&format!("'{} 127.0.0.1:6379'", link.display())), "started-as"),
    ] {
        let target = Running::start_command(command);
        let (modules, functions) = dumped(target.pid());
        let own = |name: &String| name.contains("real-name") || name.contains("started-as");
        let mut found: Vec<String> = modules.into_iter().filter(own).collect();
        assert!(found.len() > 4, "{found:?} {functions:?}");
        found.sort();
        found.dedup();
        assert_eq!(found, [called]);
        assert!(
            functions.iter().filter(|name| own(name)).all(|name| name.contains(called)),
            "{functions:?}"
        );
        assert!(
            functions.iter().any(|name| name.starts_with(&format!("{called}!"))),
            "{functions:?}"
        );
    }
}

#[test]
fn what_is_started_does_not_get_our_secrets() {
    let dir = tempfile::tempdir().expect("a folder");
    let start = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        command
            .args(args)
            .current_dir(dir.path())
            .env("XDG_STATE_HOME", dir.path())
            .env("KEPT", "a value");
        command
            .env("SAMPLETOP_PUSH_TOKEN", "a-secret")
            .env("SAMPLETOP_REDACT_KEY", "a-secret-of-16-letters");
        let piped = std::process::Stdio::piped;
        command.stdin(piped()).stdout(piped()).stderr(piped()).spawn().expect("sampletop starts")
    };
    let output =
        start(&["record", "-o", "p.json", "--", "env"]).wait_with_output().expect("it ends");
    let given = String::from_utf8_lossy(&output.stdout);
    assert!(given.lines().any(|line| line == "KEPT=a value"), "{given}");
    let is_secret = |name: &str| matches!(name, "SAMPLETOP_PUSH_TOKEN" | "SAMPLETOP_REDACT_KEY");
    let names = given.lines().filter_map(|line| Some(line.split_once('=')?.0));
    assert!(!given.contains("a-secret") && !names.clone().any(is_secret), "{given}");
    // The workload of the demo, once it has replaced the copy of sampletop by exec.
    let demo = start(&["demo", "--once", "-d", "1h"]);
    let pid = demo.id();
    let environment = || {
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it runs");
        let child = children.split_whitespace().next()?.to_owned();
        std::fs::read(format!("/proc/{child}/environ"))
            .ok()
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    common::wait_until("the workload runs without them", || {
        environment().is_some_and(|given| given.contains("KEPT=") && !given.contains("a-secret"))
    });
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&demo),
        rustix::process::Signal::INT,
    )
    .expect("ours");
    demo.wait_with_output().expect("it ends");
}

#[test]
fn each_thread_of_a_dump_in_json_is_a_warning() {
    let program = common::build("../../demos/work.c", "each", &["-O2"]);
    let target = Running::start(&program, &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(["dump", "-p", &target.pid().to_string(), "--each", "--format", "json"]);
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(
        said.lines().filter(|line| line.contains("`--each` changes nothing in json")).count(),
        1,
        "{said}"
    );
    let dump: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(dump["threads"].as_array().expect("threads").len(), 5);
}

#[test]
fn a_profile_whose_place_is_gone_is_kept() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = common::build("../../demos/work.c", "kept", &["-O2"]);
    let target = Running::start(&program, &[]);
    let place = dir.path().join("place");
    std::fs::create_dir(&place).expect("made");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(["record", "-p", &target.pid().to_string(), "-o"]).arg(place.join("p.json"));
    let recording = Recording::start(command.env("XDG_STATE_HOME", dir.path()));
    recording.until_used(target.pid(), 200);
    std::fs::remove_dir(&place).expect("empty");
    let output = recording.end();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write") && said.contains("`sampletop open -o FILE`"), "{said}");
    let mut open = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let opened = open
        .args(["open", "--format", "json"])
        .env("XDG_STATE_HOME", dir.path())
        .output()
        .expect("it starts");
    let profile: Value = serde_json::from_slice(&opened.stdout).expect("JSON");
    assert!(group(&profile, "work-")["cpu_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{profile}");
}

/// The first signal ends it, even though the standard library has a handler, and sampletop has one
/// for truncated files.
#[test]
fn a_fatal_signal_from_outside_ends_a_recording() {
    use rustix::process::Signal;
    let dir = tempfile::tempdir().expect("a folder");
    let target = Running::start(&common::build("rec_many.c", "fatal", &["-O1"]), &["3"]);
    for signal in [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE, Signal::ABORT, Signal::QUIT]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        command.args(["record", "-p", &target.pid().to_string()]).current_dir(dir.path());
        // A background job of a script ignores SIGINT, and so would everything below. SAFETY:
        // signal(2) may be called between fork and exec.
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(&mut command, || {
                libc::signal(libc::SIGQUIT, libc::SIG_DFL);
                Ok(())
            });
        }
        let status = Recording::start(&mut command).end_by(signal);
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status}");
    }
}
