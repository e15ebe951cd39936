//! Stacks deeper than what can be copied of them, or than what is kept: both ends are there, and
//! the rows of the recursion's callers have its time.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use common::java::{JDKS, can_test, compile, output, start};
use common::{Running, build, need_root};
use serde_json::Value;

const FOLDED: &str = "[... frames folded]";
const NOT_COPIED: &str = "[... frames not copied]";

/// Microseconds of each stack, outermost frame first, its group before it.
type Stacks = Vec<(Vec<String>, u64)>;

fn record(pid: u32, more: &[&str]) -> Stacks {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let command = command.args([
        "record",
        "-p",
        &pid.to_string(),
        "-d",
        "6s",
        "--format",
        "folded",
        "--group",
        "name",
    ]);
    let text = output(command.args(["--idle"]).args(more));
    let line = |line: &str| {
        let (stack, time) = line.rsplit_once(' ')?;
        Some((stack.split(';').map(str::to_owned).collect(), time.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn has(stack: &[String], names: &[&str]) -> bool {
    stack.iter().any(|frame| names.contains(&frame.as_str()))
}

/// Returns the share of a thread's time in matching stacks.
fn share(stacks: &Stacks, thread: &str, is_like: impl Fn(&[String]) -> bool) -> f64 {
    let of = stacks.iter().filter(|(stack, _)| stack[0] == thread);
    let (mut all, mut like) = (0, 0);
    for (stack, time) in of {
        all += time;
        like += if is_like(stack) { *time } else { 0 };
    }
    like as f64 / all as f64
}

/// Returns the names of a stack, with consecutive repeats removed.
fn squeezed(stack: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = stack.iter().map(String::as_str).collect();
    names.dedup();
    names
}

/// Checks the stacks of a thread: its time, the time below its handler, the time with a marker
/// between two ends, and how many different stacks there are between handler and leaf.
fn check(stacks: &Stacks, thread: &str, handler: &str, recursion: &str, what: &str) {
    let mut rows: BTreeMap<Vec<&str>, u64> = BTreeMap::new();
    for (stack, time) in stacks.iter().filter(|(stack, _)| stack[0] == thread) {
        *rows.entry(squeezed(stack)).or_default() += time;
    }
    // A deep running stack needs eight observations; on a busy machine there are few.
    let below = share(stacks, thread, |stack| has(stack, &[handler]));
    assert!(below > 0.5, "{what} {thread}: {below} below {handler}: {rows:#?}");
    let deep = share(stacks, thread, |stack| has(stack, &[FOLDED, NOT_COPIED]));
    assert!(deep > 0.5, "{what} {thread}: {deep} is deep: {rows:#?}");
    for (stack, _) in
        stacks.iter().filter(|(stack, _)| stack[0] == thread && has(stack, &[handler]))
    {
        let place = |name: &str| stack.iter().position(|frame| frame == name);
        let Some(between) = place(FOLDED).or(place(NOT_COPIED)) else { continue };
        assert!(place(handler) < Some(between), "{what}: {stack:?}");
        // While the page of its innermost frame is touched for the first time, nothing of a stack
        // can be copied.
        if stack.get(between + 2).is_none_or(|frame| frame != "asm_exc_page_fault_[k]") {
            assert_eq!(stack[between + 1], recursion, "{what}: {:?}", squeezed(stack));
        }
        assert!(stack.len() < 1_024, "{what}: {} frames", stack.len());
    }
}

#[test]
fn both_ends_of_deep_native_stacks_are_kept() {
    if !need_root("samples by bpf") {
        return;
    }
    for (variant, flags) in
        [("deep-fp", &["-O2", "-fno-omit-frame-pointer"][..]), ("deep-nofp", &["-O2"])]
    {
        let program = build("deep.c", variant, flags);
        let running = Running::start(&program, &[]);
        for capture in ["bpf", "perf"] {
            let stacks = record(running.pid(), &["--capture", capture]);
            let what = format!("{variant} {capture}");
            for name in ["spin", "walk", "wait"] {
                check(&stacks, name, &format!("handle_{name}"), &format!("down_{name}"), &what);
            }
            // A recursion of changing depth is one row: the number of its frames below the marker
            // is constant.
            let spin =
                stacks.iter().filter(|(stack, _)| stack[0] == "spin" && has(stack, &[NOT_COPIED]));
            let below = |(stack, _): &(Vec<String>, u64)| {
                let place = |name| stack.iter().position(|frame| frame == name);
                place("leaf_spin")?.checked_sub(place(NOT_COPIED)?)
            };
            let depths: BTreeSet<usize> = spin.filter_map(below).collect();
            assert_eq!(depths.len(), 1, "{what}: {depths:?}");
            // Each of two callers has the recursion for 3 ms. The caller at a sample must not be
            // guessed. Of 2^7 chains of eight observations one shows the same caller throughout,
            // and half of these are wrong.
            let guessed = |stack: &[String]| {
                has(stack, &[NOT_COPIED]) && has(stack, &["turn_left", "turn_right"])
            };
            let guessed = share(&stacks, "turn", guessed);
            assert!(guessed < 0.1, "{what}: {guessed} has a caller");
            check(&stacks, "turn", "start_thread", "down_turn", &what);
        }
    }
}

#[test]
fn a_stack_that_was_not_copied_to_its_end_says_why() {
    if !need_root("samples by bpf") {
        return;
    }
    const DEEPER: &str = "[truncated: stack deeper than the 63 KiB copied]";
    const MISSING: &str = "[truncated: a page of the stack was not in memory]";
    let program = build("untouched.c", "untouched", &["-O1"]);
    for capture in ["bpf", "perf"] {
        let running = Running::start(&program, &[]);
        let stacks = record(running.pid(), &["--capture", capture]);
        let ends = |thread: &str, text: &str| share(&stacks, thread, |stack| has(stack, &[text]));
        // Nothing is known of a stack before its eighth observation.
        assert!(ends("touched", DEEPER) > 0.0, "{capture}: {stacks:#?}");
        assert_eq!(ends("touched", MISSING), 0.0, "{capture}: {stacks:#?}");
        // The first sample finds the pages missing, and has them read. Later ones are complete.
        assert!(ends("untouched", MISSING) > 0.0, "{capture}: {stacks:#?}");
        assert_eq!(ends("untouched", DEEPER), 0.0, "{capture}: {stacks:#?}");
        let whole = |stack: &[String]| has(stack, &["start_thread"]) && !has(stack, &[NOT_COPIED]);
        assert!(share(&stacks, "untouched", whole) > 0.5, "{capture}: {stacks:#?}");
    }
}

#[test]
fn both_ends_of_deep_java_stacks_are_kept() {
    if !can_test() {
        return;
    }
    for home in JDKS.iter() {
        let classes = compile(home, "Deep.java");
        for options in [&[][..], &["-Xint"], &["-XX:TieredStopAtLevel=1"]] {
            let jvm = start(home, &classes, options, &["Deep"]);
            let what = format!("{} {options:?}", home.display());
            let stacks = record(jvm.child.id(), &[]);
            check(&stacks, "spin", "Deep.handleSpin", "Deep.downSpin", &what);
            check(&stacks, "rest", "Deep.handleRest", "Deep.downRest", &what);
            the_inner_end_is_what_jstack_says(home, jvm.child.id(), &what);
        }
    }
}

/// Checks that the innermost 1,024 frames of a deep stack are jstack's.
fn the_inner_end_is_what_jstack_says(home: &Path, pid: u32, what: &str) {
    let judge = output(Command::new(home.join("bin/jstack")).arg(pid.to_string()));
    let judged = judge
        .lines()
        .skip_while(|line| !line.starts_with("\"rest\""))
        .skip(1)
        .take_while(|line| !line.is_empty());
    let judged = judged.filter_map(|line| {
        let (name, _) = line.trim_start().strip_prefix("at ")?.split_once('(')?;
        Some(name.rsplit_once('/').map_or(name, |(_, name)| name).to_owned())
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let dump = output(command.args(["dump", "-p", &pid.to_string(), "--format", "json"]));
    let dump: Value = serde_json::from_str(&dump).expect("json");
    let threads = dump["threads"].as_array().expect("threads");
    let rest = threads.iter().find(|thread| thread["name"] == "rest").expect("the thread");
    assert_eq!(rest["complete"], false, "frames are missing in the middle");
    let frames = rest["frames"].as_array().expect("frames").iter();
    let inner = frames
        .take_while(|frame| frame["kind"] != "marker")
        .filter(|frame| frame["kind"] == "java");
    let inner: Vec<&str> = inner.map(|frame| frame["frame"].as_str().expect("a name")).collect();
    assert!(inner.len() > 60, "{what}: {inner:?}");
    assert_eq!(inner, judged.take(inner.len()).collect::<Vec<_>>(), "{what}");
}
