//! Java threads that wait for a class that another thread initialises, in what the program writes.

mod common;

use std::io::Write;
use std::process::Command;

use common::java::{EVERY_JDK, Jvm, can_test, output};
use common::wait_until_all_sleep;
use serde_json::Value;

const USERS: [&str; 5] = ["class-call", "class-field", "class-new", "class-name", "class-extends"];

/// Virtual machines to try.
const OPTIONS: [&[&str]; 8] = [
    &[],
    &["-Xint"],
    &["-Xcomp"],
    &["-XX:-UseCompressedOops"],
    &["-XX:+UseSerialGC"],
    &["-XX:+UseParallelGC"],
    &["-XX:+UseZGC"],
    &["-XX:+UseShenandoahGC"],
];

/// Returns the exit code of sampletop, and what it writes.
fn sampletop(target: &Jvm, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.arg(args[0]).args(["-p", &target.pid().to_string()]).args(&args[1..]);
    let output = command.output().expect("sampletop starts");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    (output.status.code(), text)
}

/// What the thread with this name waits for: kind, class, and the name of the holder.
type Waits<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

fn waits<'a>(dump: &'a Value, name: &str) -> Option<Waits<'a>> {
    let threads = dump["threads"].as_array().expect("threads");
    let thread = threads.iter().find(|thread| thread["name"] == name);
    let blocker = &thread.unwrap_or_else(|| panic!("{name}: {dump:#}"))["blocker"];
    let kind = blocker["kind"].as_str()?;
    Some((kind, blocker["class"].as_str(), blocker["holder"]["name"].as_str()))
}

fn dump(target: &Jvm) -> Value {
    let (code, text) = sampletop(target, &["dump", "--format", "json"]);
    assert_eq!(code, Some(0), "{text}");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn the_class_and_who_initialises_it_are_named() {
    if !can_test() {
        return;
    }
    for jdk in EVERY_JDK.iter() {
        let classes = jdk.compile("ClassInit.java");
        for options in OPTIONS {
            let what = format!("{} {}", jdk.name(), options.join(" "));
            let mut target = jdk.start(&classes, options, &["ClassInit"]);
            wait_until_all_sleep(target.pid());
            let first = dump(&target);
            let class = ("class initialisation", Some("ClassInit$Config"), Some("initialiser"));
            for user in USERS {
                assert_eq!(waits(&first, user), Some(class), "{what}: {user}");
            }
            let ints = ("notify", Some("int[]"), None);
            assert_eq!(waits(&first, "notify"), Some(ints), "{what}");
            for name in ["none-own", "none-sleep", "none-park"] {
                assert_eq!(waits(&first, name), None, "{what}: {name}");
            }
            if jdk.version() >= 17 {
                let said = output(&mut jdk.on("jstack", &[], &target));
                let of_jstack = "waiting on the Class initialization monitor for ClassInit$Config";
                assert_eq!(said.matches(of_jstack).count(), USERS.len(), "{what}: {said}");
            }
            // The class is initialised.
            let program = &mut target.running;
            program.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it listens");
            assert_eq!(program.lines.next().expect("a line").expect("text"), "initialised");
            wait_until_all_sleep(target.pid());
            let then = dump(&target);
            for user in USERS {
                assert_eq!(waits(&then, user), None, "{what}: {user}");
            }
            println!("{what}: right");
        }
    }
}

#[test]
fn a_convoy_for_a_class_is_a_sentence() {
    if !can_test() {
        return;
    }
    for jdk in EVERY_JDK.iter() {
        let classes = jdk.compile("ClassInit.java");
        let target = jdk.start(&classes, &[], &["ClassInit"]);
        wait_until_all_sleep(target.pid());
        let (code, text) = sampletop(&target, &["record", "-d", "3s", "--format", "text"]);
        assert_eq!(code, Some(0), "{text}");
        // Its lines are wrapped.
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // Where the virtual machine has no symbols (JDK 8), some of them look idle.
        let threads = if jdk.version() == 8 { "" } else { "! 5" };
        let threads =
            format!("{threads} threads wait for the initialisation of ClassInit$Config: ");
        assert!(words.contains(&threads), "{}: {text}", jdk.name());
        assert!(words.contains("held by initialiser in "), "{}: {text}", jdk.name());
    }
}

#[test]
fn classes_that_need_each_other_are_a_deadlock() {
    if !can_test() {
        return;
    }
    for jdk in EVERY_JDK.iter() {
        let what = jdk.name();
        let classes = jdk.compile("ClassInit.java");
        let target = jdk.start(&classes, &[], &["ClassInit", "deadlock"]);
        wait_until_all_sleep(target.pid());
        let (code, text) = sampletop(&target, &["dump", "--check-deadlock"]);
        assert_eq!(code, Some(7), "{what}: {text}");
        for (class, holder) in [("Prices", "prices"), ("Orders", "orders")] {
            let waits = format!("waiting for class initialisation of ClassInit${class} 0x");
            assert!(text.contains(&waits), "{what}: {text}");
            assert!(text.contains(&format!("held by {holder} (")), "{what}: {text}");
        }
        assert!(text.contains("deadlocks=1") && !text.contains("third"), "{what}: {text}");
        let (code, text) = sampletop(&target, &["dump", "--check-deadlock", "--format", "json"]);
        let dump: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((code, dump["deadlocks"][0].as_array().map(Vec::len)), (Some(7), Some(2)));
    }
}
