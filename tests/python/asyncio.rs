//! Tasks of asyncio, against what Python itself says of them.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::common::java::output;
use crate::interpreters::{EVERY, Interpreter, can_test};
use crate::profile::Profile;
use crate::report::{python, text};

/// A task: its name, its coroutines (function and line, the innermost first), the names of those
/// that await it.
type Task = (String, Vec<(String, u64)>, Vec<String>);

/// Functions of running_tasks.py; each task has the name of the one that it calls.
const FUNCTIONS: [&str; 3] = ["red", "green", "blue"];

fn describes_tasks(interpreter: &&Interpreter) -> bool {
    interpreter.minor >= 14
}

fn dump(pid: u32, format: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(["dump", "--format", format, "-p", &pid.to_string()]);
    output(&mut command)
}

fn json(pid: u32) -> Value {
    serde_json::from_str(&dump(pid, "json")).expect("json")
}

fn texts(list: &Value, field: &str) -> Vec<String> {
    let list = list.as_array().expect("a list").iter();
    list.map(|one| text(if field.is_empty() { one } else { &one[field] })).collect()
}

/// Reads what tasks.py says.
fn truth(line: &str) -> Vec<Task> {
    serde_json::from_str(line).expect("json")
}

fn tasks(report: &Value) -> Vec<Task> {
    let list = report["tasks"][0]["list"].as_array().expect("tasks").iter();
    list.map(|task| {
        let frames = task["frames"].as_array().expect("frames").iter();
        let frames = frames.map(|frame| {
            let frame = python(frame).expect("a function of Python");
            (frame.name, frame.line)
        });
        (text(&task["name"]), frames.collect(), texts(&task["awaited_by"], "name"))
    })
    .collect()
}

#[test]
fn tasks_are_what_python_says() {
    if !can_test() {
        return;
    }
    for interpreter in EVERY.iter().filter(describes_tasks) {
        let what = interpreter.name();
        let mut target = interpreter.start("tasks.py", &[]);
        let mut expected = truth(&target.ask());
        let report = json(target.pid);
        let mut found = tasks(&report);
        // Where the running one is, is known to its thread's stack only.
        for task in expected.iter_mut().filter(|task| task.0 == "reads orders") {
            task.1[0].1 = 0;
        }
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{what}");
        assert!(found.len() >= 35, "{what}");
        let of_process = &report["tasks"][0];
        assert_eq!(of_process["found"], found.len(), "{what}");
        assert_eq!(of_process["unreadable"], 0, "{what}");
        assert_eq!(of_process["incomplete"], false, "{what}");

        let task = |name: &str| {
            let list = of_process["list"].as_array().expect("tasks");
            list.iter().find(|task| task["name"] == name).expect("it is there")
        };
        assert_eq!(task("awaits one")["awaits"]["task"]["name"], "sleeps 0", "{what}");
        assert_eq!(task("awaits many")["awaits"]["object"], "_GatheringFuture", "{what}");
        assert_eq!(task("deep")["awaits"]["object"], "_asyncio.Future", "{what}");
        assert_eq!(task("not begun")["awaits"], Value::Null, "{what}");
        assert_eq!(task("reads orders")["runs"], true, "{what}");
        let main = target.pid;
        assert_eq!(task("reads orders")["tid"], main, "{what}");
        let other = &task("in another thread")["tid"];
        assert!(*other != main && other.is_number(), "{what}");

        // The thread that waits in C executes a task.
        let threads = report["threads"].as_array().expect("threads");
        let thread = threads.iter().find(|thread| thread["tid"] == main).expect("the main one");
        let names = texts(&thread["frames"], "frame");
        assert_eq!(names.last().map(String::as_str), Some("[task reads orders]"), "{what}");
        assert_eq!(thread["complete"], true, "{what}");
        let others = threads.iter().filter(|thread| thread["tid"] != main);
        for name in others.flat_map(|thread| texts(&thread["frames"], "frame")) {
            assert!(!name.starts_with("[task"), "{what}: {name}");
        }
        let contained = interpreter.start_in_a_container("tasks.py");
        let report = json(contained.pid);
        let mut list = report["tasks"][0]["list"].as_array().expect("tasks").iter();
        let is_it = |task: &&Value| task["name"] == "awaits one";
        let awaits = list.find(is_it).expect("it is there");
        assert_eq!(awaits["tid"], contained.pid, "{what}: by our own number");

        let page = dump(target.pid, "text");
        assert!(page.contains(&format!("\nTASKS: {} have not ended\n", found.len())), "{page}");
        assert!(page.contains(" awaits one       awaits task sleeps 0\n"), "{page}");
    }
}

/// Returns samples by the task in the stack and the function that it calls.
fn samples(profile: &Profile) -> BTreeMap<(String, String), u64> {
    let mut found = BTreeMap::new();
    for (at, own) in profile.own().into_iter().enumerate().filter(|(_, own)| *own > 0) {
        let (mut task, mut function) = (String::new(), String::new());
        let mut above = Some(at);
        while let Some(at) = above {
            let node = &profile.nodes[at];
            if let Some(name) = node.name.strip_prefix("[task ") {
                task = name.trim_end_matches(']').to_owned();
            }
            let name = node.python.as_ref().map_or("", |frame| &frame.name);
            if FUNCTIONS.contains(&name) || name == "nameless" {
                function = name.to_owned();
            }
            above = node.parent;
        }
        *found.entry((task, function)).or_default() += own;
    }
    found
}

#[test]
fn running_tasks_are_named_by_the_name_of_that_instant() {
    if !can_test() {
        return;
    }
    for interpreter in EVERY.iter().filter(describes_tasks) {
        for (kind, backend) in
            [("long", "bpf"), ("short", "bpf"), ("long", "perf"), ("short", "perf")]
        {
            let target = interpreter.start("running_tasks.py", &[kind]);
            let profile = Profile::of(target.pid, "1ms", 1_000, &["--capture", backend]);
            let found = samples(&profile);
            let what = format!("{} {kind} {backend}: {found:?}", interpreter.name());
            let of = |task: &str, function: &str| {
                found.get(&(task.to_owned(), function.to_owned())).copied().unwrap_or(0)
            };
            for function in FUNCTIONS {
                let all: u64 =
                    found.iter().filter(|(key, _)| key.1 == function).map(|(_, hits)| hits).sum();
                assert_eq!(of(function, function), all, "{what}");
                assert!(all > 20, "{what}");
            }
            assert!(of("", "nameless") > 20, "{what}");
            let known = |task: &String| task.is_empty() || FUNCTIONS.contains(&&**task);
            assert!(found.keys().all(|(task, _)| known(task)), "{what}");
        }
    }
}

/// Tasks come and go while they are read: what is said of one is true.
#[test]
fn tasks_of_a_busy_loop_are_read_whole_or_not_at_all() {
    if !can_test() {
        return;
    }
    for interpreter in EVERY.iter() {
        for kind in ["long", "short"] {
            let target = interpreter.start("running_tasks.py", &[kind]);
            let mut read = 0;
            for _ in 0..20 {
                let report = json(target.pid);
                if !describes_tasks(&interpreter) {
                    assert_eq!(report["tasks"], Value::Array(Vec::new()));
                    break;
                }
                if report["tasks"].as_array().expect("a list").is_empty() {
                    continue;
                }
                for (name, frames, _) in tasks(&report) {
                    let names: Vec<&str> = frames.iter().map(|(name, _)| &**name).collect();
                    let expected: &[&[&str]] = match (&*name, kind) {
                        ("Task-77", "long") => &[&["_wait", "wait", "main"], &["main"]],
                        ("Task-77", _) => &[&["main"]],
                        (_, "long") => &[&["runs_long"], &["__sleep0", "sleep", "runs_long"]],
                        _ => &[&["runs_short"]],
                    };
                    assert!(
                        expected.contains(&&names[..]),
                        "{}: {name} {names:?}",
                        interpreter.name()
                    );
                    read += 1;
                }
            }
            assert!(
                read > 20 || !describes_tasks(&interpreter),
                "{} {kind}: {read}",
                interpreter.name()
            );
        }
    }
}
