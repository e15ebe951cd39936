//! Blocked threads: every frame of Python as `sys._current_frames()` has it, by name, file and
//! line; and in the right places between native frames.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::interpreters::{EVERY, Interpreter, can_test, py_spy};
use crate::report::{Frame, Stack, Thread, Truth, dump, text, truth};

/// Threads of shapes.py.
const THREADS: usize = 43;

/// Stacks of this many functions may lack frames in their middle: of deep ones 640 are kept, native
/// ones included, and CPython up to 3.10 has some of those between any two functions.
const DEEP: usize = 100;

/// Returns where stacks differ, one line for each thread.
pub fn differences(
    what: &str,
    truth: &BTreeMap<u64, Truth>,
    told: &BTreeMap<u64, Stack>,
) -> Vec<String> {
    let of_thread = |(tid, thread): (&u64, &Truth)| match told.get(tid) {
        None => Some(format!("{what}: no thread {}", thread.name)),
        Some(ours) => {
            difference(ours, &thread.frames).map(|why| format!("{what}: {}: {why}", thread.name))
        }
    };
    truth.iter().filter_map(of_thread).collect()
}

fn difference(ours: &Stack, theirs: &[Frame]) -> Option<String> {
    let missing = theirs.len().checked_sub(ours.frames.len());
    // The frames of the middle, which a marker stands for.
    let theirs: Vec<&Frame> = match (ours.folded, missing) {
        (Some(inner), Some(missing)) if theirs.len() >= DEEP && inner <= ours.frames.len() => {
            theirs[..inner].iter().chain(&theirs[inner + missing..]).collect()
        }
        _ => theirs.iter().collect(),
    };
    let same = ours.frames.iter().zip(&theirs).take_while(|(ours, theirs)| ours == *theirs).count();
    let equal = same == theirs.len() && same == ours.frames.len();
    (!equal).then(|| {
        format!(
            "{} frames for {}; frame {same} is {:?} for {:?}",
            ours.frames.len(),
            theirs.len(),
            ours.frames.get(same),
            theirs.get(same)
        )
    })
}

/// Returns the functions of each thread.
pub fn by_thread(threads: &[Thread]) -> BTreeMap<u64, Stack> {
    threads.iter().map(|thread| (thread.tid, thread.python.clone())).collect()
}

/// Checks on every interpreter, and panics with all differences that were found.
pub fn on_every(check: impl Fn(&Interpreter) -> Vec<String>) {
    if can_test() {
        let found: Vec<String> = EVERY.iter().flat_map(check).collect();
        assert_none(&found);
    }
}

/// Panics with all of these, if there are any.
pub fn assert_none(found: &[String]) {
    let cut = |one: &String| one.chars().take(400).collect::<String>();
    let first: Vec<String> = found.iter().take(30).map(cut).collect();
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), first.join("\n"));
}

#[test]
fn blocked_stacks_are_what_python_says() {
    on_every(|interpreter| {
        let mut found = Vec::new();
        let mut target = interpreter.start("shapes.py", &[]);
        let truth = truth(&mut target);
        assert_eq!(truth.len(), THREADS, "{}", interpreter.name());
        for capture in ["bpf", "perf"] {
            let what = format!("{} {capture}", interpreter.name());
            let ours = dump(target.pid, &["--capture", capture]);
            found.extend(differences(&what, &truth, &by_thread(&ours)));
            for thread in &ours {
                // Native stacks of deep recursions are larger than what is copied of a stack.
                let Some(said) = truth.get(&thread.tid).filter(|said| said.frames.len() < 100)
                else {
                    continue;
                };
                if !thread.complete {
                    let first = &thread.all[..thread.all.len().min(6)];
                    found.push(format!("{what}: {}: not complete: {first:?}", said.name));
                }
            }
        }
        found
    });
}

/// Its files are mapped by paths that are others here, and threads have other ids.
#[test]
fn in_a_container_they_are_the_same() {
    // Threads are found by their ids, or without them, by version.
    on_every(|interpreter| {
        let mut found = Vec::new();
        let mut target = interpreter.start_in_a_container("shapes.py");
        let truth = truth(&mut target);
        let ours = dump(target.pid, &[]);
        found.extend(differences(&interpreter.name(), &truth, &by_thread(&ours)));
        found
    });
}

/// A second judge, who reads what it finds by other means than the interpreter does.
#[test]
fn blocked_stacks_are_what_py_spy_says() {
    if !can_test() {
        return;
    }
    let Some(py_spy) = py_spy() else { return };
    let mut found = Vec::new();
    // It does not read free-threaded ones.
    for interpreter in EVERY.iter().filter(|one| !one.free_threaded) {
        let mut target = interpreter.start("shapes.py", &[]);
        let mut truth = truth(&mut target);
        let theirs = spied(&py_spy, target.pid);
        // It takes the first line of a function for the line of a call that has not begun.
        truth.retain(|_, thread| interpreter.minor != 10 || thread.name != "shape profile_hook");
        let what = format!("py-spy, {}", interpreter.name());
        found.extend(differences(&what, &truth, &theirs));
        // Now it is the truth.
        for (tid, thread) in &mut truth {
            thread.frames.clone_from(&theirs[tid].frames);
        }
        let ours = by_thread(&dump(target.pid, &[]));
        found.extend(differences(&interpreter.name(), &truth, &ours));
    }
    assert_none(&found);
}

/// Returns what `py-spy dump` says of a process.
fn spied(py_spy: &std::path::Path, pid: u32) -> BTreeMap<u64, Stack> {
    let mut command = Command::new(py_spy);
    command.args(["dump", "--json", "--pid", &pid.to_string()]);
    let said: Value =
        serde_json::from_str(&crate::common::java::output(&mut command)).expect("json");
    let threads = said.as_array().expect("threads").iter();
    threads
        .map(|thread| {
            let frames = thread["frames"].as_array().expect("frames").iter();
            let frames = frames.filter(|frame| frame["name"] != "<shim>").map(|frame| Frame {
                name: text(&frame["name"]),
                file: text(&frame["filename"]),
                line: frame["line"].as_u64().unwrap_or(0),
            });
            let stack = Stack { frames: frames.collect(), folded: None };
            (thread["os_thread_id"].as_u64().expect("an id"), stack)
        })
        .collect()
}

#[test]
fn threads_have_their_python_names() {
    on_every(|interpreter| {
        let mut found = Vec::new();
        let mut target = interpreter.start("shapes.py", &[]);
        let truth = truth(&mut target);
        for thread in dump(target.pid, &[]) {
            // The main thread has the name of the process.
            let Some(said) = truth.get(&thread.tid).filter(|said| said.name != "MainThread") else {
                continue;
            };
            if thread.name != said.name {
                let name = interpreter.name();
                found.push(format!("{name}: {} is called {}", said.name, thread.name));
            }
        }
        found
    });
}

/// What is native in a stack of this kind: between which functions of Python it must be, from the
/// inside, and a part of its name.
const NATIVE: &[(&str, &str, &str, &str)] = &[
    ("shape ctypes_callback", "compare", "ctypes_callback", "qsort"),
    ("shape json_hook", "<lambda>", "raw_decode", "scan"),
];

/// Returns the last part of a qualified name.
fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

#[test]
fn native_frames_are_between_those_of_python_that_call_them() {
    on_every(|interpreter| {
        let mut found = Vec::new();
        let mut target = interpreter.start("shapes.py", &[]);
        let truth = truth(&mut target);
        for native in ["auto", "full", "none"] {
            let what = format!("{} {native}", interpreter.name());
            let ours = dump(target.pid, &["--native", native]);
            found.extend(differences(&what, &truth, &by_thread(&ours)));
            for thread in &ours {
                let Some(said) = truth.get(&thread.tid) else { continue };
                let stripped = interpreter.is_stripped();
                if let Some(why) = misplaced(native, stripped, said, thread) {
                    found.push(format!("{what}: {}: {why}", said.name));
                }
            }
        }
        found
    });
}

/// Returns what is wrong with the native frames of a stack.
fn misplaced(native: &str, stripped: bool, said: &Truth, thread: &Thread) -> Option<String> {
    let is_native =
        |frame: Option<&(String, String)>| frame.is_some_and(|(kind, _)| kind == "native");
    let named =
        |part: &str| thread.all.iter().find(|(kind, name)| kind == "native" && name.contains(part));
    match native {
        "none" => {
            let wrong = thread.all.iter().find(|frame| is_native(Some(frame)));
            return wrong.map(|frame| format!("has {frame:?}"));
        }
        // Larger native stacks are not copied as a whole.
        "full" if said.frames.len() < 100 => {
            let built_in =
                thread.all.first().is_some_and(|(_, name)| name.ends_with("Lock.acquire"));
            if !is_native(thread.all.first()) && !built_in {
                return Some("it waits in no native function".into());
            }
            if !is_native(thread.all.last()) {
                return Some("no native function has started it".into());
            }
        }
        "auto" => {
            if let Some(frame) = named("_PyEval_EvalFrame").or_else(|| named("_PyFunction_Vector"))
            {
                return Some(format!("has {frame:?}"));
            }
        }
        _ => {}
    }
    for (_, callee, caller, part) in NATIVE.iter().filter(|(name, ..)| *name == said.name) {
        let python = |at: &usize, wanted: &str| {
            let (kind, name) = &thread.all[*at];
            kind == "python" && last(name) == wanted
        };
        let places = 0..thread.all.len();
        let inner = places.clone().find(|at| python(at, callee));
        let outer = places.clone().find(|at| python(at, caller) && Some(*at) > inner);
        let (Some(inner), Some(outer)) = (inner, outer) else {
            return Some(format!("no {callee} below {caller}"));
        };
        let between = &thread.all[inner + 1..outer];
        let is_there = between.iter().any(|(kind, name)| kind == "native" && name.contains(part));
        // Stripped libraries have no names of functions.
        let nameless = between.iter().any(|(_, name)| name.contains("!fn_"));
        // Debian's 3.15 contains json; what has no name in the interpreter's own file is hidden.
        let hidden = native == "auto" && stripped && between.is_empty();
        if !is_there && !nameless && !hidden {
            return Some(format!("no {part} between {callee} and {caller}: {between:?}"));
        }
    }
    None
}
