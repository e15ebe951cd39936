//! Java threads that wait in native code without unwind information: their stacks continue at the
//! Java code that called it, with a marker for the missing frames.

mod common;

use std::process::Command;

use common::java::{JDKS, can_test, compile, output, start};
use common::{build, wait_until, wait_until_all_sleep};
use serde_json::Value;

/// Returns the waiting thread's frames, innermost first: those of the program, those of the library
/// `native`, and markers.
fn stack(pid: u32, capture: &str) -> Option<Vec<String>> {
    let mut dump = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    dump.args(["dump", "-p", &pid.to_string(), "--capture", capture, "--format", "json"]);
    let dump: Value = serde_json::from_str(&output(&mut dump)).expect("json");
    let threads = dump["threads"].as_array().expect("threads").iter();
    let stacks = threads.map(|thread| thread["frames"].as_array().expect("frames"));
    let name = |frame: &Value| frame["frame"].as_str().expect("a name").to_owned();
    let main = stacks
        .into_iter()
        .find(|frames| frames.iter().any(|frame| name(frame) == "Anchors.block"))?;
    let told = main.iter().filter_map(|frame| match frame["kind"].as_str() {
        Some("marker") => Some(name(frame)),
        Some("java") => Some(name(frame)),
        _ if frame["module"].as_str().is_some_and(|module| module.contains("anchors")) => {
            Some("native".to_owned())
        }
        _ => None,
    });
    Some(told.collect())
}

#[test]
fn java_goes_on_behind_native_code_that_nobody_can_walk() {
    if !can_test() {
        return;
    }
    for home in JDKS.iter() {
        let classes = compile(home, "Anchors.java");
        let id = home.file_name().expect("a name").to_string_lossy();
        let (include, linux) = (
            format!("-I{}", home.join("include").display()),
            format!("-I{}", home.join("include/linux").display()),
        );
        let bare = ["-shared", "-fPIC", "-O2", "-fomit-frame-pointer"];
        let no_tables =
            ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions"];
        let library =
            build("anchors.c", &id, &[&bare[..], &no_tables, &[&include, &linux]].concat());
        let file = library.file_name().expect("a name").to_string_lossy().into_owned();
        let gap = format!("[no unwind info: {file}]");
        for options in [&["-Xint"][..], &["-Xcomp"], &[]] {
            let target =
                start(home, &classes, options, &["Anchors", library.to_str().expect("text")]);
            for capture in ["bpf", "perf"] {
                let mut found = None;
                wait_until("it is where it waits", || {
                    found = stack(target.pid(), capture);
                    found.is_some()
                });
                wait_until_all_sleep(target.pid());
                let expected = [
                    "native",
                    &gap,
                    "Anchors.block",
                    "Anchors.inner",
                    "native",
                    &gap,
                    "Anchors.outer",
                    "Anchors.main",
                ];
                assert_eq!(
                    stack(target.pid(), capture).expect("it waits"),
                    expected,
                    "{id} {options:?} {capture}"
                );
            }
        }
    }
}
