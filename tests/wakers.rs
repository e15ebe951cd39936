//! Who wakes whom: programs whose producers know how often they filled what a consumer waits for,
//! and whose consumers know how often they slept.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::Running;
use sampletop::model::vocabulary::wakeup::{Waker, Wakeups, Woken};
use sampletop::process::wakeups::Counting;
use serde_json::Value;

/// A consumer, and its producers: process, thread and number of items.
struct Truth {
    kind: String,
    woken: Woken,
    slept: u64,
    producers: [(u32, u32, u64); 2],
}

/// Makes the producers begin; returns what they did.
fn run(target: &mut Running) -> Vec<Truth> {
    let stdin = target.child.stdin.as_mut().expect("a pipe");
    stdin.write_all(b"\n").and_then(|()| stdin.flush()).expect("it reads");
    let pid = target.pid();
    let lines = target.lines.by_ref().map(|line| line.expect("text"));
    let lines = lines.take_while(|line| line != "end");
    let truth = lines.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |nth: usize| words[nth].parse::<u64>().expect("a number");
        let producer = |nth: usize| (number(nth) as u32, number(nth + 1) as u32, number(nth + 2));
        Truth {
            kind: words[0].into(),
            woken: Woken { pid, tid: number(1) as u32 },
            slept: number(2),
            producers: [producer(3), producer(6)],
        }
    });
    truth.collect()
}

/// Numbers of the system calls that a consumer of this kind is woken by.
fn call(kind: &str) -> u32 {
    match kind {
        "pipe" | "process" => 1,
        "socket" => 44,
        _ => 202,
    }
}

/// A consumer may go on without having slept, where an item comes before it waits. It may sleep
/// more often than once for an item, where it also waits for a lock of the queue: the end of that
/// wait is a wakeup as well.
fn check(truth: &Truth, wakeups: &Wakeups) {
    let Truth { kind, woken, slept, producers } = truth;
    let pairs = wakeups.pairs.iter().filter(|pair| pair.woken == *woken);
    let all: Vec<(&Waker, u64)> = pairs.map(|pair| (&pair.waker, pair.count)).collect();
    eprintln!("{kind}: slept {slept}, items {producers:?}: {all:?}");
    let expected: u64 = all
        .iter()
        .filter(|(waker, _)| match waker {
            Waker::Thread { pid, tid, call: by, .. } => {
                *by == call(kind) && producers.iter().any(|(p, t, _)| (p, t) == (pid, tid))
            }
            Waker::Interrupt => kind == "timer",
            Waker::Hidden { .. } | Waker::KernelThread { .. } => false,
        })
        .map(|(_, count)| count)
        .sum();
    // It also waits to be started, and at its end for the memory of the process.
    let other = all.iter().map(|(_, count)| count).sum::<u64>() - expected;
    assert!(other <= 3, "{kind}: {other} wakeups by others");
    assert!(expected.abs_diff(*slept) <= slept / 50, "{kind}: {expected} wakeups, slept {slept}");
    if kind == "timer" {
        return;
    }
    let items: u64 = producers.iter().map(|(.., items)| items).sum();
    // A channel wakes under its lock, for which the woken one then waits. So it sleeps more often
    // than once for some items, and not at all for others: only their sum is known.
    let (unneeded, most) = match kind.as_str() {
        "channel" => (items / 10, 2),
        _ => (items.saturating_sub(*slept), 1),
    };
    for (pid, tid, items) in producers {
        let is_producer = |waker: &Waker| match waker {
            Waker::Thread { pid: p, tid: t, .. } => (p, t) == (pid, tid),
            _ => false,
        };
        let count = all.iter().find(|(waker, _)| is_producer(waker)).map_or(0, |(_, count)| *count);
        assert!(
            count + unneeded + 2 >= *items && count <= most * items + 2,
            "{kind}: thread {tid} made {items} items, {count} wakeups"
        );
    }
}

fn judge(program: &Path) -> Vec<String> {
    let mut target = Running::start(program, &[]);
    common::wait_until_all_sleep(target.pid());
    let counting = Counting::begin(&[target.pid()]).expect("root may");
    let truth = run(&mut target);
    let wakeups = counting.end().expect("it counts");
    assert_eq!(wakeups.lost, 0);
    truth.iter().for_each(|truth| check(truth, &wakeups));
    let watched = wakeups.pairs.iter().all(|pair| pair.woken.pid == target.pid());
    assert!(watched, "other processes are not counted");
    truth.into_iter().map(|truth| truth.kind).collect()
}

#[test]
fn wakeups_are_counted_as_the_program_counts_them() {
    if !common::need_root("loads a BPF program") {
        return;
    }
    let program = common::build("wakers.c", "counted", &["-O2", "-g"]);
    let kinds = judge(&program);
    assert_eq!(kinds, ["condvar", "semaphore", "pipe", "socket", "process", "timer"]);
}

#[test]
fn a_channel_of_rust() {
    if !common::need_root("loads a BPF program") {
        return;
    }
    let program = common::build("wakers.rs", "channel", &["-O", "-g"]);
    assert_eq!(judge(&program), ["channel"]);
}

/// Returns the BPF programs of this name in the kernel.
fn loaded() -> usize {
    let fds = std::fs::read_dir("/proc/self/fdinfo").expect("our descriptors").flatten();
    let infos = fds.filter_map(|fd| std::fs::read_to_string(fd.path()).ok());
    infos.filter(|info| info.contains("prog_type:\t26")).count()
}

#[test]
fn the_program_is_removed_at_the_end_and_when_dropped() {
    if !common::need_root("loads a BPF program") {
        return;
    }
    let before = loaded();
    let counting = Counting::begin(&[std::process::id()]).expect("root may");
    assert!(loaded() > before);
    drop(counting);
    assert_eq!(loaded(), before);
    let counting = Counting::begin(&[std::process::id()]).expect("root may");
    std::thread::sleep(Duration::from_millis(10));
    assert!(counting.end().expect("it counts").duration_ns >= 10_000_000);
    assert_eq!(loaded(), before);
}

/// Runs `dump --wakers` while the producers work; returns what they did, and the dump.
fn dump(mut command: Command, target: &mut Running) -> (Vec<Truth>, Value) {
    command.args(["--format", "json"]);
    let (truth, output) = count(command, target);
    (truth, serde_json::from_slice(&output).expect("JSON"))
}

/// Runs the command while the producers work; returns what they did, and its output.
fn count(mut command: Command, target: &mut Running) -> (Vec<Truth>, Vec<u8>) {
    command.args(["--wakers", "3s"]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let counts = lines.any(|line| line.expect("text").contains("counting who wakes whom for 3s"));
    assert!(counts, "{command:?} does not count");
    let truth = run(target);
    let output = child.wait_with_output().expect("it ends");
    (truth, output.stdout)
}

/// Compares the consumer of the semaphore: others of their producers are in another process.
fn check_dump(truth: &[Truth], dump: &Value) {
    let truth = truth.iter().find(|truth| truth.kind == "semaphore").expect("it has one");
    let threads = dump["wakers"]["threads"].as_array().expect("a list");
    let of = |thread: &&Value| thread["tid"] == truth.woken.tid;
    let thread = threads.iter().find(of).unwrap_or_else(|| panic!("{dump}"));
    for (_, tid, items) in truth.producers {
        let by = thread["by"].as_array().expect("a list");
        let waker = by.iter().find(|by| by["tid"] == tid).unwrap_or_else(|| panic!("{thread}"));
        let count = waker["count"].as_u64().expect("a number");
        let unneeded = (420_u64).saturating_sub(truth.slept);
        assert!(count <= items && count + unneeded >= items, "{waker}, {items} items");
        assert_eq!((&waker["kind"], &waker["call"]), (&"thread".into(), &"futex".into()));
        let places = waker["seen_in"].as_array().expect("a list").iter();
        let places: Vec<&Value> = places.chain([&waker["mostly_in"]]).collect();
        // It sleeps in `rest`, and is rarely seen elsewhere.
        let is_own = |at: &&Value| ["produce", "produce_all", "rest"].map(Value::from).contains(at);
        assert!(places.iter().any(is_own), "{waker}");
    }
}

const SAMPLETOP: &str = env!("CARGO_BIN_EXE_sampletop");

#[test]
fn a_dump_says_who_wakes_its_threads() {
    if !common::need_root("loads a BPF program") {
        return;
    }
    let program = common::build("wakers.c", "dumped", &["-O2", "-g"]);
    let mut target = Running::start(&program, &[]);
    let mut command = Command::new(SAMPLETOP);
    command.args(["dump", "-p", &target.pid().to_string()]);
    let (truth, dump) = dump(command, &mut target);
    check_dump(&truth, &dump);
    // Another process is named as one.
    let threads = dump["wakers"]["threads"].as_array().expect("a list");
    let by = threads.iter().flat_map(|thread| thread["by"].as_array().expect("a list"));
    let foreign: Vec<&Value> = by.filter(|by| by["kind"] == "process").collect();
    let producer = truth.iter().find(|truth| truth.kind == "process").expect("it has one");
    let pid = producer.producers[0].0;
    assert!(foreign.iter().any(|by| by["pid"] == pid && by["call"] == "write"), "{foreign:?}");
}

/// As the text of the run itself would say it.
#[test]
fn a_saved_profile_says_who_wakes_its_threads() {
    if !common::need_root("loads a BPF program") {
        return;
    }
    let program = common::build("wakers.c", "saved", &["-O2", "-g"]);
    let mut target = Running::start(&program, &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("p.sampletop");
    let mut command = Command::new(SAMPLETOP);
    command.args(["record", "-p", &target.pid().to_string(), "-d", "3s", "-o"]).arg(&file);
    let (truth, _) = count(command, &mut target);
    let opened = Command::new(SAMPLETOP)
        .arg("open")
        .arg(&file)
        .args(["--format", "json", "-o", "-"])
        .output()
        .expect("it starts");
    let json = serde_json::from_slice(&opened.stdout).expect("JSON");
    check_dump(&truth, &json);
}

/// In a pid namespace of its own it counts by the numbers that are valid there.
#[test]
fn numbers_in_a_container_are_those_of_the_container() {
    if !common::need_root("makes namespaces") {
        return;
    }
    let program = common::build("wakers.c", "contained", &["-O2", "-g"]);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(program);
    let mut target = Running::start_command(command);
    let children = format!("/proc/{0}/task/{0}/children", target.pid());
    let inside = std::fs::read_to_string(children).expect("its children");
    let mut command = Command::new("nsenter");
    command.args(["--target", inside.trim(), "--pid", "--mount", SAMPLETOP, "dump", "-p", "1"]);
    let (truth, dump) = dump(command, &mut target);
    check_dump(&truth, &dump);
}

#[test]
fn without_rights_one_sentence_says_what_helps() {
    if !common::need_root("becomes another user") {
        return;
    }
    let mut target = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sleep", "60"])
        .spawn()
        .expect("setpriv");
    let pid = target.id();
    let is_sleep =
        || std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "sleep\n");
    common::wait_until("it is another user's", is_sleep);
    // Where that user may execute it.
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    let own = folder.path().join("sampletop");
    std::fs::copy(SAMPLETOP, &own).expect("copied");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("our folder");
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"])
        .arg(&own)
        .args(["dump", "-p", &pid.to_string(), "--capture", "states", "--wakers", "1s"])
        .output()
        .expect("setpriv");
    target.kill().and_then(|()| target.wait()).expect("our child");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("run sampletop as root, or with CAP_BPF and CAP_PERFMON"), "{said}");
    assert_eq!(said.trim().lines().count(), 1, "{said}");
}
