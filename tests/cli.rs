//! The real program's answer to a wrong command line: one sentence on stderr, exit code 2, nothing
//! else.

use std::os::unix::ffi::OsStringExt;
use std::process::{Command, Output, Stdio};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sampletop"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the program that was built runs")
}

/// Each with what the sentence must name.
const USAGE_ERRORS: &[(&[&str], &[&str])] = &[
    (&["-i", "0"], &["--interval 0", "1ms", "10s"]),
    (&["-i", "1h"], &["--interval 1h", "1ms", "10s"]),
    (&["-i", "10"], &["--interval 10", "unit"]),
    (&["-i", "-5"], &["--interval -5"]),
    (&["-i=-5ms"], &["--interval -5ms"]),
    (&["--window", "0"], &["--window 0", "1s", "24h"]),
    (&["--window", "2days"], &["--window", "1s", "24h"]),
    (&["record", "-p", "1", "-d", "0"], &["--duration 0", "100ms", "24h", "exit"]),
    (&["--focus", "("], &["--focus: `(`", "unclosed group"]),
    (&["--ignore", "a{9999}{9999}"], &["--ignore", "simpler pattern"]),
    (&["--hide", "[z-a]"], &["--hide", "range"]),
    (&["--threads", "*"], &["--threads: `*`", "repetition"]),
    (&["--idle-at", "\\q"], &["--idle-at", "escape"]),
    (&["--group", "frame:("], &["--group", "unclosed group"]),
    (&["--group", "pool"], &["--group: `pool`", "rules", "frame:REGEX"]),
    (&["--rename", "s/(/x/"], &["--rename", "unclosed group"]),
    (&["--rename", "s/a/$1/"], &["--rename", "group 1"]),
    (&["--rename", "a=b"], &["--rename: `a=b`", "s/REGEX/TEXT/"]),
    (&["--interesting", ","], &["--interesting"]),
    (&["--min-percent", "101"], &["--min-percent 101", "0 to 100"]),
    (&["--min-percent", "NaN"], &["--min-percent NaN"]),
    (&["--metric", "gpu"], &["--metric gpu", "wall, cpu, off"]),
    (&["--by", "folder"], &["--by folder", "function, line"]),
    (&["--capture", "ebpf"], &["--capture ebpf", "auto, bpf, perf, cpu-only, states, ptrace"]),
    (&["--unwinder", "magic"], &["--unwinder magic", "framehop"]),
    (&["demo", "--workload", "heavy"], &["--workload heavy", "all, mixed, mass, pool, locks"]),
    (&["-p", "0"], &["--pid 0", "1 to 4194304"]),
    (&["-p", "-1"], &["--pid -1", "1 to 4194304"]),
    (&["-p", ""], &["--pid ''"]),
    (&["-p", "nginx"], &["--pid nginx"]),
    (&["-p", "99999999999999999999"], &["--pid 99999999999999999999"]),
    (&["-p", "1", "--name", "x"], &["--pid", "--name", "--cgroup"]),
    (&["--cgroup", ""], &["--cgroup"]),
    (&["--name", "("], &["--name", "regular expression"]),
    (&["demo", "--subprocesses"], &["--subprocesses", "demo"]),
    (&["doctor", "-p", "1", "-p", "2"], &["doctor", "-p PID"]),
    (&["-p", "1", "2"], &["`2`", "-p 2"]),
    (&["-p"], &["--pid", "needs a value"]),
    (&["-p", "1", "--", "ls"], &["-p PID", "-- COMMAND"]),
    (&["--", ""], &["command", "empty"]),
    (&["ls"], &["`ls`", "-- ls"]),
    (&["record"], &["record", "-p PID", "-- COMMAND"]),
    (&["record", "-p", "1", "-o", "p.bmp"], &["p.bmp", "text", "json", "folded"]),
    (&["record", "-p", "1", "-o", "profile"], &["profile", "text", "json", "folded"]),
    (&["record", "-p", "1", "--format", "bmp"], &["--format bmp", "text, json, folded"]),
    (&["record", "-p", "1", "--secure", "-o", "p.json"], &["--secure", "--output"]),
    (&["record", "-p", "1", "--once"], &["--once", "`record`"]),
    #[cfg(feature = "push")]
    (&["report", "-p", "1", "--push", "https://me:s@p.example"], &["--push", "--push-token-file"]),
    #[cfg(feature = "push")]
    (&["report", "-p", "1", "--push", "p.example"], &["--push p.example", "https://"]),
    #[cfg(feature = "push")]
    (&["report", "-p", "1", "--push", "https://p.example", "--secure"], &["--secure", "push"]),
    (&["dump"], &["dump", "-p PID"]),
    (&["dump", "--", "ls"], &["dump", "-p PID"]),
    (&["dump", "-p", "1", "--metric", "cpu"], &["--metric", "`dump`"]),
    (&["dump", "-p", "1", "--format", "folded"], &["dump", "text", "json"]),
    (&["demo", "--pid", "1"], &["--pid", "demo"]),
    (&["demo", "--", "ls"], &["demo", "-- COMMAND"]),
    (&["demo", "--once", "-d", "exit"], &["--duration exit"]),
    (&["--qqq"], &["--qqq", "--help"]),
    (&["--fcous", "x"], &["--fcous", "--focus"]),
    (&["--idle=yes"], &["--idle", "no value"]),
    // No terminal here: stdout is a pipe.
    (&[], &["terminal", "record", "dump"]),
    (&["-p", "1"], &["terminal", "sampletop record -p 1", "sampletop dump -p 1"]),
    (&["-p", "1", "-p", "2"], &["terminal", "sampletop record -p 1 -p 2"]),
    (&["--", "ls"], &["terminal", "record -o FILE -- COMMAND"]),
];

#[test]
fn usage_errors_are_one_sentence_and_exit_2() {
    for (args, named) in USAGE_ERRORS {
        let output = run(args);
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(said.starts_with("sampletop: ") && said.ends_with('\n'), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        for name in *named {
            assert!(said.contains(name), "{args:?} should name {name:?}: {said}");
        }
    }
}

#[test]
fn a_value_that_is_no_text_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_sampletop"))
        .arg("--focus")
        .arg(std::ffi::OsString::from_vec(vec![0xff]))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("UTF-8"));
}

#[test]
fn what_is_repeated_of_the_command_line_cannot_move_the_cursor() {
    let output = run(&["--metric", "\u{1b}[2J\u{202e}wall"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(!said.trim_end().contains(|c: char| c.is_control() || c == '\u{202e}'), "{said:?}");
}

#[test]
fn help_and_version_go_to_stdout() {
    for args in [["--help"], ["-h"], ["--version"], ["-V"]] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(text.contains("sampletop"), "{args:?}: {text}");
    }
    assert_eq!(
        run(&["-V"]).stdout,
        format!("sampletop {}\n", env!("CARGO_PKG_VERSION")).into_bytes()
    );
}
