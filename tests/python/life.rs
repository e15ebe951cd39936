//! What happens to programs while they are watched: they fork, execute other programs, and make and
//! drop code; threads are inside subinterpreters, and greenlets switch stacks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use crate::common::wait_until;
use crate::edges::{Tight, judge};
use crate::interpreters::{EVERY, can_test, greenlet};
use crate::profile::{Caller, Profile};
use crate::report::{Frame, dump, truth, truth_of};
use crate::shapes::{assert_none, by_thread, differences, on_every};

#[test]
fn a_forked_child_has_stacks_of_its_own() {
    on_every(|interpreter| {
        let mut found = Vec::new();
        let what = interpreter.name();
        let mut target = interpreter.start("forks.py", &[]);
        let parents = truth(&mut target);
        let child: u32 = target.line().parse().expect("a pid");
        let childs = truth_of(&target.line(), child);
        for (pid, truth) in [(target.pid, parents), (child, childs)] {
            assert_eq!(truth.len(), 2, "{what}");
            found.extend(differences(&what, &truth, &by_thread(&dump(pid, &[]))));
        }
        found
    });
}

/// The other program has other functions at the same places in memory, or another version's.
#[test]
fn a_process_that_executes_another_program_has_its_functions() {
    if !can_test() {
        return;
    }
    let here: Vec<_> = EVERY.iter().filter(|one| one.path_here().is_some()).collect();
    let mut found = Vec::new();
    for (at, interpreter) in here.iter().enumerate() {
        // The same version, and the next one.
        for next in [interpreter, here[(at + 1) % here.len()]] {
            let what = format!("{}, then {}", interpreter.name(), next.name());
            let (path, program) = (next.path_here().expect("here"), next.program("tight.py"));
            let program = program.to_string_lossy();
            let arguments = ["f", &path, "-B", &program, "g"];
            let mut target = interpreter.start("tight.py", &arguments);
            let mut tight = Tight::read(&mut target);
            let recording = Profile::start(target.pid, "1ms", &[]);
            recording.until_used(target.pid, 300);
            target.running.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
            assert_eq!(target.line(), "ready", "{what}");
            tight.add(Tight::read(&mut target));
            recording.until_used(target.pid, 1_000);
            let profile = Profile::end(recording);
            let judged = judge(&profile, &tight, false);
            found.extend(judged.wrong.iter().map(|wrong| format!("{what}: {wrong}")));
            for letter in ["f", "g"] {
                let functions: BTreeSet<&str> = judged
                    .leaves
                    .iter()
                    .map(String::as_str)
                    .filter(|name| name.starts_with(letter) && name.len() == 3)
                    .collect();
                if functions.len() < 20 {
                    found.push(format!("{what}: of {letter} only {functions:?}"));
                }
            }
        }
    }
    assert_none(&found);
}

#[test]
fn threads_in_subinterpreters_have_the_functions_of_both() {
    if !can_test() {
        return;
    }
    let mut found = Vec::new();
    // Up to 3.10 nothing tells which thread runs an interpreter.
    for interpreter in EVERY.iter().filter(|one| one.minor >= 11) {
        let mut target = interpreter.start("subinterpreters.py", &[]);
        let truth = truth(&mut target);
        assert_eq!(truth.len(), 3, "{}", interpreter.name());
        let ours = dump(target.pid, &[]);
        found.extend(differences(&interpreter.name(), &truth, &by_thread(&ours)));
    }
    assert_none(&found);
}

/// A function is never shown with the file or the line of another that was in its place.
#[test]
fn code_that_comes_and_goes_is_told_apart() {
    on_every(|interpreter| {
        let mut found = Vec::new();
        let what = interpreter.name();
        let target = interpreter.start("churn.py", &[]);
        let profile = Profile::of(target.pid, "1ms", 2_000, &[]);
        let (mut numbers, mut named) = (BTreeSet::new(), 0);
        for (at, node) in profile.nodes.iter().enumerate() {
            let Some(frame) = &node.python else { continue };
            let Some((kind, number)) = generated(&frame.name) else { continue };
            numbers.insert(number);
            named += if kind == "made" { node.hits } else { 0 };
            let called_right = match profile.caller(at) {
                Caller::Unknown => true,
                Caller::Nothing => false,
                Caller::Function(caller) if kind == "leaf" => {
                    generated(&caller.name) == Some(("made", number))
                }
                Caller::Function(caller) => caller.name == format!("caller_{}", number % 8),
            };
            if !called_right || !fits(frame, kind, number) {
                let stack = profile.stack(at);
                found.push(format!("{what}: {} samples: {stack} in {}", node.hits, frame.file));
            }
        }
        let (all, markers) = (profile.hits(), profile.markers());
        println!("{what}: {} functions, {named} of {all} samples, {markers:?}", numbers.len());
        // Half of the time is spent in making functions; most of them live for less than a tick.
        // But each 16th runs again for milliseconds.
        if numbers.len() < 50 || named * 20 < all {
            found.push(format!("{what}: {} functions, {named} of {all}", numbers.len()));
        }
        found
    });
}

/// Splits the name of a function of churn.py into kind and number.
fn generated(name: &str) -> Option<(&str, u64)> {
    let (kind, number) = name.split_once('_')?;
    ["made", "leaf"].contains(&kind).then_some((kind, number.parse().ok()?))
}

/// Returns whether a function of this number can be in this file, at this line.
fn fits(frame: &Frame, kind: &str, number: u64) -> bool {
    let first = number % 1_000 * 10 + if kind == "made" { 11 } else { 16 };
    let lines = first..=first + if kind == "made" { 2 } else { 4 };
    let file = frame.file == format!("/made/{number:06}.py");
    // A line may be unknown, but not wrong.
    let line = frame.line == 0 || lines.contains(&frame.line);
    (file || frame.file.ends_with("/reloaded.py")) && line
}

#[test]
fn workers_of_multiprocessing_are_seen_with_their_parent() {
    if !can_test() {
        return;
    }
    let mut found = Vec::new();
    for (at, interpreter) in EVERY.iter().enumerate() {
        let method = ["fork", "spawn", "forkserver"][at % 3];
        let what = format!("{} {method}", interpreter.name());
        let mut target = interpreter.start("processes.py", &[method]);
        let recording =
            Profile::start(target.pid, "2ms", &["--subprocesses", "--group", "process"]);
        target.running.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
        // Until each worker has run for a while.
        let workers = || {
            descendants(target.pid).into_iter().filter(|pid| {
                sampletop::clock::cpu_of_process(*pid).is_some_and(|used| used > 700_000_000)
            })
        };
        wait_until("three workers", || workers().count() >= 3);
        let profile = Profile::end(recording);
        let mut leaves: BTreeMap<&str, u64> = BTreeMap::new();
        for (at, node) in profile.nodes.iter().enumerate() {
            let Some(frame) = &node.python else { continue };
            if frame.name.starts_with("leaf_") && !frame.name.contains('.') {
                *leaves.entry(&frame.name).or_default() += node.hits;
                let caller = profile.caller(at).function();
                if caller.is_none_or(|caller| caller.name != "worker") {
                    found.push(format!("{what}: {}", profile.stack(at)));
                }
            }
        }
        let all = ["leaf_one", "leaf_two", "leaf_three"];
        if !all.iter().all(|leaf| leaves.get(leaf).copied().unwrap_or(0) > 30) {
            found.push(format!("{what}: {leaves:?}"));
        }
        for pid in descendants(target.pid) {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a pid");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    assert_none(&found);
}

/// Returns the children of a process, and theirs.
fn descendants(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists: Vec<String> = tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .collect();
    let mut all = Vec::new();
    for child in lists.iter().flat_map(|list| list.split_ascii_whitespace()) {
        let child = child.parse().expect("a pid");
        all.push(child);
        all.extend(descendants(child));
    }
    all
}

/// The calls of greenlets.py. A greenlet's first function has no caller.
const SWITCHES: &[(&str, &str)] = &[
    ("<module>", "main"),
    ("a_start", "a_one"),
    ("a_one", "a_two"),
    ("a_two", "a_one"),
    ("b_start", "b_one"),
    ("b_one", "b_one"),
];

#[test]
fn greenlets_are_not_mixed() {
    on_every(|interpreter| {
        let mut found = Vec::new();
        let Some(folder) = greenlet(interpreter) else { return found };
        let what = interpreter.name();
        let target = interpreter.start("greenlets.py", &[&folder]);
        let profile = Profile::of(target.pid, "1ms", 1_500, &[]);
        let mut innermost = BTreeSet::new();
        for (at, node) in profile.nodes.iter().enumerate() {
            let Some(frame) = &node.python else { continue };
            innermost.insert(frame.name.as_str());
            let right = match profile.caller(at) {
                Caller::Unknown => true,
                Caller::Nothing => {
                    ["<module>", "a_start", "b_start"].contains(&frame.name.as_str())
                }
                Caller::Function(caller) => {
                    SWITCHES.contains(&(caller.name.as_str(), frame.name.as_str()))
                }
            };
            if !right {
                found.push(format!("{what}: {} samples: {}", node.hits, profile.stack(at)));
            }
        }
        let (markers, hits) = (profile.markers(), profile.hits());
        println!("{what}: {innermost:?}, {markers:?} of {hits}");
        // Few are sampled in the middle of a switch, where the numbers do not fit, or before the
        // kernel knows the interpreter.
        let marked: u64 = markers.values().sum();
        if marked * 10 > hits {
            found.push(format!("{what}: {marked} of {hits} have a marker"));
        }
        if !innermost.contains("b_one") {
            found.push(format!("{what}: {innermost:?} of {hits} samples"));
        }
        found
    });
}
