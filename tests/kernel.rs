//! Frames of the kernel, of a program whose threads are at known places in it.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use common::{Recording, Running, need_root};
use serde_json::Value;

fn sampletop(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sampletop")).args(args).output().expect("sampletop starts")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Records 2 s of its CPU time.
fn record(pid: u32, more: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(["record", "-p", &pid.to_string(), "--format", "json"]).args(more);
    let recording = Recording::start(&mut command);
    recording.until_used(pid, 2_000);
    json(&recording.end())
}

/// A stack with CPU time of its own: frames outermost first, as (name, kind), and the time.
struct Stack {
    frames: Vec<(String, String)>,
    cpu_ms: f64,
}

impl Stack {
    fn kernel(&self) -> Vec<&str> {
        self.frames
            .iter()
            .filter(|(_, kind)| kind == "kernel")
            .map(|(name, _)| name.as_str())
            .collect()
    }

    fn user(&self) -> Vec<&str> {
        self.frames
            .iter()
            .filter(|(_, kind)| kind != "kernel")
            .map(|(name, _)| name.as_str())
            .collect()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn group<'a>(profile: &'a Value, name: &str) -> &'a Value {
    profile["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .find(|group| group["name"] == name)
        .expect("the group")
}

/// Returns how long the program was observed, ms: its threads exist all the time, one in each
/// group.
fn life(profile: &Value) -> f64 {
    let groups = profile["groups"].as_array().expect("groups").iter();
    groups.map(|group| number(&group["wall_ms"])).fold(0.0, f64::max)
}

/// All stacks of a group that have CPU time.
fn stacks(group: &Value) -> Vec<Stack> {
    fn below(nodes: &Value, path: &mut Vec<(String, String)>, found: &mut Vec<Stack>) {
        for node in nodes.as_array().expect("a tree") {
            path.push((text(&node["frame"]).into(), text(&node["kind"]).into()));
            let cpu_ms = number(&node["self_cpu_ms"]);
            if cpu_ms > 0.0 {
                found.push(Stack { frames: path.clone(), cpu_ms });
            }
            below(&node["children"], path, found);
            path.pop();
        }
    }
    let mut found = Vec::new();
    below(&common::tree(group), &mut Vec::new(), &mut found);
    found
}

/// Which part of the CPU time is in stacks like this.
fn share(stacks: &[Stack], is: impl Fn(&Stack) -> bool) -> f64 {
    let of =
        |stacks: &mut dyn Iterator<Item = &Stack>| stacks.map(|stack| stack.cpu_ms).sum::<f64>();
    of(&mut stacks.iter().filter(|stack| is(stack))) / of(&mut stacks.iter())
}

fn program(variant: &str) -> std::path::PathBuf {
    common::build("kernel_calls.c", variant, &["-O1", "-g"])
}

fn place(stack: &Stack, name: &str) -> Option<usize> {
    stack.frames.iter().position(|(frame, _)| frame == name)
}

fn functions_of_the_kernel_stand_above_those_that_called_it(backend: &str) {
    if !need_root("samples the kernel") {
        return;
    }
    let target = Running::start(&program(backend), &["zero", "user"]);
    let profile = record(target.pid(), &["--capture", backend]);
    assert_eq!(profile["capture"], backend);
    let zero = stacks(group(&profile, "zero"));
    // It does nothing else, and 2 s of it are 200 samples.
    let reads = |stack: &Stack| {
        let order = ["read_zeros", "vfs_read"].map(|name| place(stack, name));
        let zeros =
            stack.frames.iter().rposition(|(name, kind)| kind == "kernel" && name.contains("zero"));
        matches!((order, zeros), ([Some(user), Some(called)], Some(innermost)) if user < called && called < innermost)
    };
    assert!(
        share(&zero, reads) > 0.8,
        "{:?}",
        zero.iter().map(|s| (&s.frames, s.cpu_ms)).collect::<Vec<_>>()
    );
    let user = stacks(group(&profile, "user"));
    assert!(
        share(&user, |stack| stack.kernel().is_empty()) > 0.8,
        "timers and the scheduler alone interrupt it"
    );
    for stack in zero.iter().chain(&user) {
        // Once in the kernel, a stack stays there.
        let kinds: Vec<&str> = stack.frames.iter().map(|(_, kind)| kind.as_str()).collect();
        let first = kinds.iter().position(|kind| *kind == "kernel").unwrap_or(kinds.len());
        assert!(kinds[first..].iter().all(|kind| *kind == "kernel"), "{:?}", stack.frames);
        assert!(
            first > 0 || kinds.is_empty(),
            "some function of the program called it: {:?}",
            stack.frames
        );
    }
    let modules = |node: &Value| node["kind"] != "kernel" || node["module"] == "vmlinux";
    assert!(each(group(&profile, "zero"), &modules));
}

fn each(group: &Value, is: &dyn Fn(&Value) -> bool) -> bool {
    group["nodes"].as_array().expect("nodes").iter().all(is)
}

#[test]
fn by_perf() {
    functions_of_the_kernel_stand_above_those_that_called_it("perf");
}

#[test]
fn by_bpf() {
    functions_of_the_kernel_stand_above_those_that_called_it("bpf");
}

#[test]
fn without_the_kernel_its_time_is_the_callers() {
    if !need_root("samples the kernel") {
        return;
    }
    let target = Running::start(&program("without"), &["zero"]);
    let (with, without) = (record(target.pid(), &[]), record(target.pid(), &["--no-kernel"]));
    let settings = |profile: &Value| profile["settings"]["no_kernel"].clone();
    assert_eq!((settings(&with), settings(&without)), (false.into(), true.into()));
    let lives = [&with, &without].map(life);
    let (with, without) = (group(&with, "zero"), group(&without, "zero"));
    assert!(each(without, &|node| node["kind"] != "kernel"));
    let hottest = |group: &Value| {
        let stacks = stacks(group);
        let mut users: Vec<(f64, Vec<String>)> = Vec::new();
        for stack in stacks {
            let user: Vec<String> = stack.user().into_iter().map(String::from).collect();
            match users.iter_mut().find(|(_, known)| *known == user) {
                Some((cpu, _)) => *cpu += stack.cpu_ms,
                None => users.push((stack.cpu_ms, user)),
            }
        }
        users.sort_by(|a, b| b.0.total_cmp(&a.0));
        let all: f64 = users.iter().map(|(cpu, _)| cpu).sum();
        let (cpu, user) = users.swap_remove(0);
        (cpu / all, user)
    };
    let ((share_with, user_with), (share_without, user_without)) =
        (hottest(with), hottest(without));
    assert_eq!(user_with, user_without);
    assert!(
        user_with.contains(&"read_zeros".to_owned())
            && user_with.last().is_some_and(|name| name.contains("read"))
    );
    assert!(share_with > 0.8 && share_without > 0.8, "{share_with} {share_without}");
    // The thread exists all the time, whatever else the machine runs.
    for (group, life) in [with, without].into_iter().zip(lives) {
        let (wall, cpu) = (number(&group["wall_ms"]), number(&group["cpu_ms"]));
        let of_roots = |field: &str| {
            let roots = group["nodes"]
                .as_array()
                .expect("nodes")
                .iter()
                .filter(|node| node["parent"].is_null());
            roots.map(|node| number(&node[field])).sum::<f64>()
        };
        assert!(
            (of_roots("wall_ms") - wall).abs() < 0.01 && (of_roots("cpu_ms") - cpu).abs() < 0.01
        );
        assert!(wall > 0.9 * life, "{wall} of {life}");
    }
}

#[test]
fn an_uninterruptible_thread_shows_where_in_the_kernel_it_is() {
    if !need_root("loads BPF programs, and reads kernel stacks") {
        return;
    }
    let target = Running::start(&program("vfork"), &["vfork"]);
    let pid = target.pid();
    let tid = fs::read_dir(format!("/proc/{pid}/task"))
        .expect("it lives")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .find(|tid| *tid != pid.to_string())
        .expect("its thread");
    let folder = format!("/proc/{pid}/task/{tid}");
    let state = || {
        let stat = fs::read_to_string(format!("{folder}/stat")).expect("it lives");
        stat.rsplit_once(") ").expect("as ever").1.chars().next()
    };
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while state() != Some('D') {
        assert!(std::time::Instant::now() < limit, "it does not get to vfork");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // `[<0>] kernel_clone+0x1af/0x3e0`, innermost first.
    let stack = fs::read_to_string(format!("{folder}/stack")).expect("root may");
    let judged: Vec<String> = stack
        .lines()
        .filter_map(|line| {
            Some(line.split_once("] ")?.1.split('+').next()?.split('.').next()?.to_owned())
        })
        .collect();
    assert!(judged.len() >= 3, "{stack}");
    let dump = |more: &[&str]| {
        let pid = pid.to_string();
        let dump = json(&sampletop(
            &[&["dump", "-p", &pid, "--format", "json", "--capture", "bpf"], more].concat(),
        ));
        let threads = dump["threads"].as_array().expect("threads").clone();
        threads
            .into_iter()
            .find(|thread| thread["tid"] == tid.parse::<u32>().expect("a number"))
            .expect("the thread")
    };
    let thread = dump(&[]);
    assert_eq!((text(&thread["state"]), text(&thread["name"])), ("disk", "vfork"));
    let frames: Vec<(String, String)> = thread["frames"]
        .as_array()
        .expect("frames")
        .iter()
        .map(|frame| (text(&frame["frame"]).to_owned(), text(&frame["kind"]).to_owned()))
        .collect();
    let (kernel, user) =
        frames.split_at(frames.iter().position(|(_, kind)| kind != "kernel").expect("user frames"));
    assert_eq!(kernel.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), judged);
    assert!(user.first().is_some_and(|(name, _)| name.contains("vfork")), "{user:?}");
    assert!(user.iter().all(|(_, kind)| kind != "kernel"));
    // Held: reported at every tick, read once, and the same.
    let pid = pid.to_string();
    let profile = json(&sampletop(&[
        "record",
        "-p",
        &pid,
        "-d",
        "2s",
        "--format",
        "json",
        "--capture",
        "bpf",
    ]));
    let path = |nodes: &Value| {
        let (mut path, mut nodes) = (BTreeSet::new(), nodes.clone());
        while let Some(node) = nodes.as_array().and_then(|nodes| nodes.first()).cloned() {
            assert!(number(&node["wall_ms"]) > 0.9 * life(&profile), "{node}");
            path.insert(text(&node["frame"]).to_owned());
            nodes = node["children"].clone();
        }
        path
    };
    let held = path(&common::tree(group(&profile, "vfork")));
    assert!(judged.iter().all(|name| held.contains(name)), "{held:?}");
    let without = dump(&["--no-kernel"]);
    assert!(
        without["frames"].as_array().expect("frames").iter().all(|frame| frame["kind"] != "kernel"),
        "{without}"
    );
}

#[test]
fn functions_without_names_are_one_frame() {
    if !need_root("mounts a file over /proc/kallsyms, for itself") {
        return;
    }
    let target = Running::start(&program("nameless"), &["zero"]);
    let dir = tempfile::tempdir().expect("a folder");
    // As the kernel shows its symbols under kptr_restrict.
    let hidden = dir.path().join("kallsyms");
    fs::write(&hidden, "0000000000000000 T _text\n0000000000000000 T vfs_read\n").expect("written");
    let under = |format: &str| {
        let line = format!(
            "mount --bind {} /proc/kallsyms && exec {} record -p {} -d 1s --format {format}",
            hidden.display(),
            env!("CARGO_BIN_EXE_sampletop"),
            target.pid()
        );
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", &line])
            .output()
            .expect("util-linux is here");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let folded = under("folded");
    assert!(folded.contains(";[kernel]_[k] ") && !folded.contains("[kernel]_[k];"), "{folded}");
    assert_eq!(folded.matches("_[k]").count(), folded.matches(";[kernel]_[k]").count(), "{folded}");
    let text = under("text");
    assert!(text.contains("Notice       the kernel's functions have no names here"), "{text}");
}
