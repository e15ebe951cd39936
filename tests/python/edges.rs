//! Running threads: every call in a stack is one that the program has. A reader that does not keep
//! to one instant finds others.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::interpreters::{EVERY, Target, can_test, py_spy};
use crate::naive;
use crate::profile::{Caller, Profile};
use crate::report::{Frame, text};

/// Samples of each interpreter. None of 3,000 is wrong: with an error rate of 0.1 % that has a
/// probability of 5 %, with 0.3 % of 0.01 %. All interpreters together halve these rates and more.
const SAMPLES: u64 = 3_000;

/// What tight.py says of itself.
pub struct Tight {
    pub calls: BTreeSet<(String, String)>,
    /// By function, the line of its definition; it calls two lines below.
    lines: BTreeMap<String, u64>,
    /// By address of the code.
    pub codes: BTreeMap<u64, String>,
    pub runtime: u64,
}

impl Tight {
    pub fn read(target: &mut Target) -> Tight {
        let said: Value = serde_json::from_str(&target.line()).expect("json");
        let calls = said["calls"].as_array().expect("calls").iter();
        let of = |field: &str| {
            let entries = said[field].as_object().expect("an object").iter();
            entries
                .map(|(name, n)| (name.clone(), n.as_u64().expect("a number")))
                .collect::<Vec<_>>()
        };
        Tight {
            calls: calls.map(|call| (text(&call[0]), text(&call[1]))).collect(),
            lines: of("lines").into_iter().collect(),
            codes: of("codes").into_iter().map(|(name, at)| (at, name)).collect(),
            runtime: said["runtime"].as_u64().expect("an address"),
        }
    }

    /// Adds what another program says.
    pub fn add(&mut self, other: Tight) {
        self.calls.extend(other.calls);
        self.lines.extend(other.lines);
    }

    /// Returns why a call cannot be. `alone`: the process calls nothing else.
    fn objection(&self, frame: &Frame, caller: &Caller, alone: bool) -> Option<&'static str> {
        // A function calls from the third line of four.
        let first = self.lines.get(&frame.name);
        if first.is_some_and(|first| !(*first..=first + 3).contains(&frame.line)) {
            return Some("is at a line of another function");
        }
        let caller = match caller {
            Caller::Unknown => return None,
            Caller::Nothing if !alone || frame.name == "<module>" => return None,
            Caller::Nothing => return Some("cannot be outermost"),
            Caller::Function(caller) => caller,
        };
        let in_table = |frame: &Frame| self.lines.contains_key(&frame.name);
        if !alone && !in_table(caller) && !in_table(frame) {
            return None;
        }
        if !self.calls.contains(&(caller.name.clone(), frame.name.clone())) {
            return Some("is a call that does not exist");
        }
        let line = self.lines.get(&caller.name);
        line.is_some_and(|line| caller.line != line + 2).then_some("is called from another line")
    }

    /// Returns whether a stack, innermost first, can be.
    pub fn can_be(&self, stack: &[&str]) -> bool {
        let calls =
            stack.windows(2).all(|pair| self.calls.contains(&(pair[1].into(), pair[0].into())));
        // The program's main part, 13 functions of the table, and two more.
        calls && stack.last() == Some(&"<module>") && stack.len() <= 16
    }
}

#[test]
fn calls_of_tiny_functions_are_never_mixed() {
    if !can_test() {
        return;
    }
    let mut found = Vec::new();
    for interpreter in EVERY.iter() {
        let what = interpreter.name();
        let mut target = interpreter.start("tight.py", &["f"]);
        let tight = Tight::read(&mut target);
        let mut profile = Profile::of(target.pid, "1ms", SAMPLES, &[]);
        // A busy machine takes fewer samples for each second of CPU time.
        let mut of = SAMPLES;
        while profile.hits() < SAMPLES {
            of = of * SAMPLES / profile.hits().max(SAMPLES / 4) + 500;
            profile = Profile::of(target.pid, "1ms", of, &[]);
        }
        let judged = judge(&profile, &tight, true);
        let (all, without, markers) = (judged.all, judged.without, profile.markers());
        println!("{what}: {all} samples, {without} without a function, {markers:?}");
        found.extend(judged.wrong.iter().map(|wrong| format!("{what}: {wrong}")));
        // A sample in the first or last instructions of a call may lack its innermost function;
        // the others are there.
        if judged.without * 100 > judged.all {
            found.push(format!(
                "{what}: of {} samples {} have no function",
                judged.all, judged.without
            ));
        }
        if judged.leaves.len() < 30 {
            found.push(format!("{what}: only {:?} were innermost", judged.leaves));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// What a profile of tight.py has.
#[derive(Default, Debug)]
pub struct Judged {
    all: u64,
    /// Stacks that cannot be.
    pub wrong: Vec<String>,
    /// Samples without any function of the program.
    without: u64,
    /// Functions that were innermost.
    pub leaves: BTreeSet<String>,
}

/// Compares the calls in a profile with those that there are. `alone`: the process does nothing
/// else; otherwise other functions may call each other, but none of the table.
pub fn judge(profile: &Profile, tight: &Tight, alone: bool) -> Judged {
    let mut judged = Judged { all: profile.hits(), ..Judged::default() };
    let own = profile.own();
    for (at, node) in profile.nodes.iter().enumerate() {
        let caller = profile.caller(at);
        let Some(frame) = &node.python else {
            match caller.function() {
                None => judged.without += own[at],
                Some(frame) if own[at] > 0 => _ = judged.leaves.insert(frame.name.clone()),
                Some(_) => {}
            }
            continue;
        };
        if own[at] > 0 {
            judged.leaves.insert(frame.name.clone());
        }
        if let Some(why) = tight.objection(frame, &caller, alone) {
            judged.wrong.push(format!("{} samples: {} {why}", node.hits, profile.stack(at)));
        }
    }
    judged
}

/// The test above can fail: a reader that takes one frame at a time, from another CPU, meets
/// stacks that cannot be.
#[test]
fn a_naive_reader_mixes_them() {
    if !can_test() {
        return;
    }
    let mut controlled = 0;
    for interpreter in EVERY.iter() {
        let Some(offsets) = naive::Offsets::of(interpreter) else { continue };
        let mut target = interpreter.start("tight.py", &["f"]);
        let tight = Tight::read(&mut target);
        let read = || naive::read(target.pid, &tight, &offsets, SAMPLES as usize);
        let Some(stacks) = naive::apart(target.pid, read) else {
            println!("NOT CONTROLLED: there is only one CPU");
            return;
        };
        let wrong = stacks.iter().filter(|stack| !tight.can_be(stack)).count();
        println!("{}: {wrong} of {} are wrong", interpreter.name(), stacks.len());
        // 70 to 83 % were measured. It can read the others, or this would prove nothing.
        let some = stacks.len() / 50;
        assert!(
            wrong > some && stacks.len() - wrong > some,
            "{}: {wrong} of {}",
            interpreter.name(),
            stacks.len()
        );
        controlled += 1;
    }
    assert!(controlled > 0 || EVERY.iter().all(|one| one.minor < 11), "nothing was controlled");
}

/// So does py-spy when it does not stop the program.
#[test]
fn py_spy_without_stops_mixes_them() {
    if !can_test() {
        return;
    }
    let Some(py_spy) = py_spy() else { return };
    let interpreter = EVERY.iter().find(|one| !one.free_threaded).expect("one");
    let mut target = interpreter.start("tight.py", &["f"]);
    let tight = Tight::read(&mut target);
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut record = std::process::Command::new(py_spy);
    record.args([
        "record",
        "--nonblocking",
        "--format",
        "raw",
        "-r",
        "1000",
        "-d",
        "3",
        "-F",
        "-p",
    ]);
    record.arg(target.pid.to_string()).arg("-o").arg(file.path());
    let Some(done) = naive::apart(target.pid, || record.output().expect("it starts")) else {
        println!("NOT CONTROLLED: there is only one CPU");
        return;
    };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let (mut all, mut wrong) = (0, 0);
    for line in std::fs::read_to_string(file.path()).expect("text").lines() {
        let (stack, count) = line.rsplit_once(' ').expect("a count");
        let count: u64 = count.parse().expect("a number");
        let mut names: Vec<&str> =
            stack.split(';').map(|frame| frame.split(" (").next().unwrap_or_default()).collect();
        names.reverse();
        all += count;
        wrong += if tight.can_be(&names) { 0 } else { count };
    }
    println!("{}: {wrong} of {all} are wrong", interpreter.name());
    assert!(wrong > all / 50 && all - wrong > all / 50, "{wrong} of {all}");
}
