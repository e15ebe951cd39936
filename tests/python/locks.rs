//! What Python's threads wait for, and who holds it.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::java::output;
use crate::interpreters::{EVERY, can_test};
use crate::report::text;

/// Returns by the name of each thread what a dump with these options says of it. Those with the
/// same name are one.
fn dump(pid: u32, options: &[&str]) -> BTreeMap<String, Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(["dump", "--format", "json", "-p", &pid.to_string()]).args(options);
    let report: Value = serde_json::from_str(&output(&mut command)).expect("json");
    let threads = report["threads"].as_array().expect("threads").iter();
    threads.map(|thread| (text(&thread["name"]), thread.clone())).collect()
}

/// Returns state, kind and class of what it waits for, its holder, and its innermost frame.
fn wait(thread: &Value) -> [String; 5] {
    let blocker = &thread["blocker"];
    let holder = &blocker["holder"]["name"];
    [&thread["state"], &blocker["kind"], &blocker["class"], holder, &thread["frames"][0]["frame"]]
        .map(text)
}

#[test]
fn locks_are_told_apart_and_their_holders_are_known() {
    if !can_test() {
        return;
    }
    for interpreter in EVERY.iter() {
        let what = interpreter.name();
        let mut target = interpreter.start("locks.py", &[]);
        let threads = dump(target.pid, &[]);
        let acquire = |class: &str, holder: &str| {
            ["lock", "lock", class, holder, &format!("{class}.acquire")].map(str::to_owned)
        };
        let of = |name: &str| wait(&threads[name]);
        assert_eq!(of("wants_lock"), acquire("threading.Lock", ""), "{what}");
        assert_eq!(of("wants_rlock"), acquire("threading.RLock", "holds"), "{what}");
        for name in ["wants_condition", "wants_queue", "wants_event"] {
            let [state, kind, class, holder, _] = of(name);
            assert_eq!(
                [&*state, &*kind, &*class, &*holder],
                ["wait", "condition", "", ""],
                "{what}"
            );
        }
        let [state, kind, class, holder, _] = of("wants_end");
        let words = [&*state, &*kind, &*class, &*holder];
        assert_eq!(words, ["wait", "thread end", "", "holds"], "{what}");
        if interpreter.free_threaded {
            continue;
        }
        target.running.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
        assert_eq!(target.line(), "keeps the lock", "{what}");
        // The threads want it when they have slept; the main thread keeps it for long. They wake
        // every 5 ms to ask for it, and what a thread waits for is not proven if it ran meanwhile.
        let begin = Instant::now();
        let thread = loop {
            let thread = dump(target.pid, &[]).remove("wants_gil").expect("it waits");
            if thread["state"] == "lock" && !thread["blocker"].is_null() {
                break thread;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "{what}: {thread}");
        };
        let limited = &thread["blocker"]["has_time_limit"];
        assert_eq!(
            (&thread["complete"], limited),
            (&true.into(), &false.into()),
            "{what}: {thread}"
        );
        let [state, kind, class, holder, frame] = wait(&thread);
        assert_eq!(
            [&*state, &*kind, &*class, &*frame],
            ["lock", "GIL", "", "[waiting for the GIL]"],
            "{what}"
        );
        // The main thread has the kernel's name.
        assert!(holder.starts_with("python"), "{what}: held by {holder}");
        // It holds it in its sleep, too.
        let holders: Vec<String> = dump(target.pid, &["--gil"]).into_keys().collect();
        assert_eq!(holders, [holder], "{what}");
    }
}
