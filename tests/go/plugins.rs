//! Goroutines whose functions are in a plugin, which has a table of functions of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use sampletop::runtimes::go::goroutines_of;

use super::common::{Running, wait_until};
use super::{command, gos, version_of};

/// Builds a program of tests/targets.
fn build(go: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets");
    let out =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{source}-{}", std::process::id()));
    let mut command = command(go);
    command.env("CGO_ENABLED", "1").current_dir(targets);
    command.args(["build", "-o"]).arg(&out).args(flags).arg(source);
    let output = command.output().expect("go is needed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    out
}

#[test]
fn functions_of_a_plugin_are_named() {
    for go in gos() {
        let version = version_of(&go);
        let plugin = build(&go, "go_plugin.go", &["-buildmode=plugin"]);
        let host = build(&go, "go_plugin_host.go", &[]);
        let running = Running::start(&host, &[&plugin.display().to_string()]);
        // The package of a plugin has a name that the compiler made.
        let ends = |name: &str, end: &str| name.ends_with(end);
        // They have just begun.
        wait_until("goroutines that wait", || {
            let all = goroutines_of(running.pid()).expect("a Go program");
            let waiting = all.list.iter().filter(|one| {
                let frames: Vec<_> = one.frames.iter().map(|(frame, _)| frame).collect();
                let ours = frames.iter().find(|frame| ends(&frame.function, ".(*worker).receive"));
                ours.is_some_and(|frame| {
                    frame.line == Some(20)
                        && frame.file.as_ref().is_some_and(|file| ends(file, "/go_plugin.go"))
                }) && &*frames[0].function == "runtime.gopark"
                    && frames.last().is_some_and(|last| &*last.function == "runtime.goexit")
            });
            waiting.count() == 3
        });

        let mut record = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        record.args(["record", "-p", &running.pid().to_string(), "-d", "6s", "--level", "all"]);
        record.args(["--format", "folded", "--metric", "wall", "--idle"]);
        let output = record.output().expect("our program");
        let text = String::from_utf8(output.stdout).expect("text");
        let time_of = |group: &str, inner: &str| -> u64 {
            let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
            let is_it = |stack: &str| {
                let start = stack.split(';').next().unwrap_or_default();
                ends(start, group) && stack.contains(inner)
            };
            let found = lines.filter(|(stack, _)| is_it(stack));
            found.map(|(_, us)| us.parse::<u64>().expect("a number")).sum()
        };
        let works = time_of(".(*worker).work", ".(*worker).burn");
        let waits = time_of(".(*worker).receive", ";runtime.chanrecv");
        assert!(works > 4_000_000, "{version}: {works}\n{text}");
        // Three times 6 s, less the time until they were read first.
        assert!(waits > 12_000_000, "{version}: {waits}\n{text}");
    }
}
