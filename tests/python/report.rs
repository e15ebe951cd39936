//! What sampletop and Python say of threads.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::common::java::output;
use crate::interpreters::Target;

/// A function with its file and line, as Python names it: without its module.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Frame {
    pub name: String,
    pub file: String,
    /// 0: unknown.
    pub line: u64,
}

/// Functions of Python, innermost first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stack {
    pub frames: Vec<Frame>,
    /// How many of them are the innermost ones: behind them, a marker stands for
    /// further frames of a deep recursion.
    pub folded: Option<usize>,
}

/// A thread by what Python says.
pub struct Truth {
    pub name: String,
    pub frames: Vec<Frame>,
}

/// Reads the line that a program of `parked.py` prints behind `ready`.
pub fn truth(target: &mut Target) -> BTreeMap<u64, Truth> {
    let line = target.line();
    truth_of(&line, target.pid)
}

/// Reads a line of `parked.py`: the threads of a process by their ids in our namespace.
pub fn truth_of(line: &str, pid: u32) -> BTreeMap<u64, Truth> {
    let said: Value = serde_json::from_str(line).expect("json");
    let ours = ids(pid);
    let threads = said["threads"].as_array().expect("threads").iter();
    threads
        .map(|thread| {
            let frames = thread["frames"].as_array().expect("frames").iter().map(|frame| Frame {
                name: text(&frame[0]),
                file: text(&frame[1]),
                line: frame[2].as_u64().unwrap_or(0),
            });
            let inside = thread["tid"].as_u64().expect("an id");
            let name = text(&thread["name"]);
            (ours[&inside], Truth { name, frames: frames.collect() })
        })
        .collect()
}

/// Returns by the id of a thread in its own namespace the id in ours.
fn ids(pid: u32) -> BTreeMap<u64, u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    tasks
        .filter_map(|task| {
            let status = std::fs::read_to_string(task.path().join("status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
            let inside = line.split_ascii_whitespace().last()?.parse().ok()?;
            Some((inside, task.file_name().to_str()?.parse().ok()?))
        })
        .collect()
}

/// A thread of a dump.
pub struct Thread {
    pub tid: u64,
    pub name: String,
    pub complete: bool,
    pub python: Stack,
    /// All of them: kind and name.
    pub all: Vec<(String, String)>,
}

/// Returns what `sampletop dump` says of a process.
pub fn dump(pid: u32, options: &[&str]) -> Vec<Thread> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(["dump", "--format", "json", "-p", &pid.to_string()]).args(options);
    let report: Value = serde_json::from_str(&output(&mut command)).expect("json");
    let threads = report["threads"].as_array().expect("threads").iter();
    threads
        .map(|thread| {
            let frames = thread["frames"].as_array().expect("frames");
            Thread {
                tid: thread["tid"].as_u64().expect("an id"),
                name: text(&thread["name"]),
                complete: thread["complete"] == true,
                python: stack(frames),
                all: frames
                    .iter()
                    .map(|frame| (text(&frame["kind"]), text(&frame["frame"])))
                    .collect(),
            }
        })
        .collect()
}

fn stack(frames: &[Value]) -> Stack {
    let mut stack = Stack::default();
    for frame in frames {
        if frame["frame"] == "[... frames folded]" {
            stack.folded = Some(stack.frames.len());
        }
        stack.frames.extend(python(frame));
    }
    stack
}

/// Built-in functions that are shown like those of Python, though they have neither file nor frame.
const BUILT_IN: [&str; 2] = ["threading.Lock.acquire", "threading.RLock.acquire"];

/// Returns the frame if it is one of Python. Its module must precede its name, and fit its file.
pub fn python(frame: &Value) -> Option<Frame> {
    let is_built_in =
        frame["file"].is_null() && BUILT_IN.iter().any(|name| frame["frame"] == *name);
    if frame["kind"] != "python" || is_built_in {
        return None;
    }
    let (full, module, file) =
        (text(&frame["frame"]), text(&frame["module"]), text(&frame["file"]));
    let name = full.strip_prefix(&module).and_then(|rest| rest.strip_prefix('.'));
    let stem = file.rsplit('/').next().unwrap_or_default();
    let stem = stem.strip_suffix(".py").unwrap_or(stem);
    // The rule for other files has a test of its own.
    if file.ends_with(".py") && !file.contains("/lib/python3") {
        let folder = file.rsplit('/').nth(1).unwrap_or_default();
        let expected = if stem == "__init__" { folder } else { stem };
        assert_eq!(module, expected, "{frame}");
    }
    Some(Frame {
        name: name.unwrap_or(&full).to_owned(),
        file,
        line: frame["line"].as_u64().unwrap_or(0),
    })
}

/// Returns a text field, or an empty text.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
