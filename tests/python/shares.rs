//! Known shares of time: sampletop's figures for a program against the program's own measurements.

use std::collections::BTreeMap;

use crate::interpreters::{EVERY, Interpreter, can_test};
use crate::profile::Profile;

/// Permitted standard deviations. Three parts of two kinds of work on a dozen interpreters: all of
/// these comparisons together fail once in 300,000 runs.
const Z: f64 = 5.5;

/// Kinds of work in shares.py beside `pure`.
const KINDS: [&str; 4] = ["library", "native", "pool", "asyncio"];

/// Values by part.
type Parts = BTreeMap<String, f64>;

/// Returns each part's share of the whole.
fn shares(parts: &Parts) -> Parts {
    let whole: f64 = parts.values().sum();
    parts.iter().map(|(name, part)| (name.clone(), part / whole)).collect()
}

/// Returns samples by part: of its function and all that it calls.
fn samples(profile: &Profile, parts: &Parts) -> Parts {
    let mut found: Parts = parts.keys().map(|name| (name.clone(), 0.0)).collect();
    let part = |at: usize| {
        let name = &profile.nodes[at].python.as_ref()?.name;
        parts.contains_key(name).then_some(name)
    };
    for (at, node) in profile.nodes.iter().enumerate() {
        let Some(name) = part(at) else { continue };
        // No part calls another.
        *found.get_mut(name).expect("a part") += node.hits as f64;
    }
    found
}

/// Returns what is wrong with the shares of one kind of work.
fn check(interpreter: &Interpreter, kind: &str) -> Option<String> {
    let mut target = interpreter.start("shares.py", &[kind]);
    let spent = |said: String| -> Parts { serde_json::from_str(&said).expect("json") };
    let before = spent(target.ask());
    let profile = Profile::of(target.pid, "1ms", 2_000, &[]);
    let after = spent(target.ask());
    let truth =
        shares(&after.iter().map(|(name, spent)| (name.clone(), spent - before[name])).collect());
    let counted = samples(&profile, &truth);
    let all: f64 = counted.values().sum();
    let ours = shares(&counted);
    let what = format!(
        "{} {kind}: by its own clock {truth:.3?}; sampletop {ours:.3?}, {all} of {} samples",
        interpreter.name(),
        profile.hits()
    );
    println!("{what}");
    // The rest is the measurement itself, and the choice of lengths.
    let enough = all > 1_000.0 && all > 0.9 * profile.hits() as f64;
    let near = truth.iter().all(|(name, truth)| {
        let deviation = (truth * (1.0 - truth) / all).sqrt();
        (ours[name] - truth).abs() <= Z * deviation
    });
    (!enough || !near).then_some(what)
}

#[test]
fn functions_get_their_shares() {
    if !can_test() {
        return;
    }
    let mut found = Vec::new();
    for (at, interpreter) in EVERY.iter().enumerate() {
        // Each kind has several interpreters, oldest to newest.
        for kind in ["pure", KINDS[at % KINDS.len()]] {
            found.extend(check(interpreter, kind));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// C code that has given up the interpreter's lock is no time with it.
#[test]
fn time_with_the_gil_is_told_from_time_without_it() {
    if !can_test() {
        return;
    }
    let mut found = Vec::new();
    for interpreter in EVERY.iter().filter(|interpreter| !interpreter.free_threaded) {
        let mut target = interpreter.start("shares.py", &["native"]);
        let parts: Parts = serde_json::from_str(&target.ask()).expect("json");
        let [all, with] = [&[][..], &["--gil"]].map(|options| {
            let profile = Profile::of(target.pid, "1ms", 1_000, options);
            samples(&profile, &parts)
        });
        println!("{}: {all:?}, with the GIL {with:?}", interpreter.name());
        // Without it are long calls of the first two. Some of their time is around these.
        let part = |part: &str| with[part] / all[part];
        let sound = ["hashes", "compresses"].iter().all(|name| part(name) < 0.1);
        if !sound || !(0.5..2.0).contains(&part("copies")) {
            found.push(format!("{}: {all:?}, with the GIL {with:?}", interpreter.name()));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// C code that has given up the global lock is shown below the function that called it, too.
#[test]
fn native_leaves_are_below_the_functions_that_call_them() {
    if !can_test() {
        return;
    }
    let mut found = Vec::new();
    for interpreter in EVERY.iter() {
        let target = interpreter.start("shares.py", &["native"]);
        let profile = Profile::of(target.pid, "1ms", 1_000, &[]);
        let own = profile.own();
        // Debian's interpreter has no names of its own functions, which `copies` calls.
        let parts = ["hashes", "compresses", "copies"];
        let parts = if interpreter.is_stripped() { &parts[..2] } else { &parts };
        for part in parts {
            let (mut below, mut all) = (0, 0);
            for (at, node) in profile.nodes.iter().enumerate() {
                let here = node.python.as_ref().is_some_and(|frame| frame.name == *part);
                all += if here { node.hits } else { 0 };
                let caller = profile.caller(at).function();
                let leaf = node.kind == "native" && caller.is_some_and(|frame| frame.name == *part);
                below += if leaf { own[at] } else { 0 };
            }
            println!(
                "{}: {below} of {all} samples of {part} are in native code",
                interpreter.name()
            );
            // A loop of Python around calls that take a millisecond each.
            if all < 50 || below * 100 < all * 95 {
                found.push(format!("{}: {part}: {below} of {all}", interpreter.name()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
