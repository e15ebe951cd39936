//! Saved profiles: opened, converted, printed; and the session that the live view keeps.

mod common;
#[path = "common/pty.rs"]
mod pty;

use std::path::Path;
use std::process::{Command, Output};

use common::{Recording, Running, build};
use pty::Session;
use serde_json::Value;

fn sampletop(args: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(args).current_dir(dir).env("XDG_STATE_HOME", dir.join(".state"));
    command.output().expect("sampletop starts")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("json")
}

/// A profile of a program with five threads.
fn recorded(dir: &Path) -> Running {
    let program = build("../../demos/work.c", "o2", &["-O2"]);
    let target = Running::start(&program, &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(["record", "-p", &target.pid().to_string(), "-o", "p.sampletop"]).current_dir(dir);
    let recording = Recording::start(&mut command);
    recording.until_used(target.pid(), 500);
    assert!(recording.end().status.success());
    target
}

#[test]
fn a_profile_is_written_in_other_formats_under_other_settings() {
    let dir = tempfile::tempdir().expect("a folder");
    let target = recorded(dir.path());
    let all = json(&sampletop(&["open", "p.sampletop", "--format", "json"], dir.path()));
    let cpu = |profile: &Value| -> f64 {
        let groups = profile["groups"].as_array().expect("groups");
        groups.iter().map(|group| group["cpu_ms"].as_f64().expect("ms")).sum()
    };
    assert!(cpu(&all) >= 100.0, "{}", cpu(&all));
    assert!(all["groups"].as_array().expect("groups").iter().any(|group| group["name"] == "work-"));
    // Options on the command line override saved settings; nothing of the profile is lost by that.
    let by_process = json(&sampletop(
        &["open", "p.sampletop", "--format", "json", "--group", "process"],
        dir.path(),
    ));
    let groups = by_process["groups"].as_array().expect("groups");
    assert_eq!(groups.len(), 1);
    assert!(groups[0]["name"].as_str().expect("text").starts_with(&target.pid().to_string()));
    assert_eq!(cpu(&by_process), cpu(&all));

    let text = sampletop(&["report", "p.sampletop", "--max-lines", "30"], dir.path());
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(text.starts_with(&format!("sampletop pid={} ", target.pid())), "{text}");
    assert_eq!(text.lines().count(), 30);
    assert!(sampletop(&["open", "p.sampletop", "-o", "p.folded"], dir.path()).status.success());
    let folded = std::fs::read_to_string(dir.path().join("p.folded")).expect("written");
    assert!(folded.lines().any(|line| line.contains(";sixty ")), "{folded}");
    // Folded stacks are read, too; below the group that they have then.
    let again = sampletop(&["open", "p.folded", "--format", "folded"], dir.path());
    let (again, mut lines) =
        (String::from_utf8_lossy(&again.stdout).into_owned(), Vec::from_iter(folded.lines()));
    let mut below: Vec<&str> =
        again.lines().map(|line| line.strip_prefix("(all);").expect("the group")).collect();
    lines.sort_unstable();
    below.sort_unstable();
    assert_eq!(below, lines);
    // Unchanged, byte for byte.
    assert!(
        sampletop(&["open", "p.sampletop", "-o", "again.sampletop"], dir.path()).status.success()
    );
    let again = json(&sampletop(&["open", "again.sampletop", "--format", "json"], dir.path()));
    assert_eq!(again, all);
}

#[test]
fn what_is_no_profile_is_told_in_one_sentence() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("x.txt"), "something else").expect("written");
    for (args, words) in [
        (&["report", "missing.sampletop"][..], "cannot read `missing.sampletop`: no such file"),
        (&["report", "."], "cannot read `.`: is a directory"),
        (&["report", "x.txt"], "`x.txt`: this is no profile: not sampletop's own"),
        (&["open", "--format", "json"], "no session was kept at"),
        (&["open", "x.txt"], "the live view needs a terminal"),
        (&["open", "x.txt", "y.txt", "-o", "z.json"], "`y.txt` is one word too many for `open`"),
        (&["open", "x.txt", "--pid", "1", "-o", "z.json"], "--pid"),
    ] {
        let output = sampletop(args, dir.path());
        let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {sentence}");
        assert!(sentence.contains(words) && sentence.lines().count() == 1, "{args:?}: {sentence}");
    }
}

/// Whether a group of the tree is the process.
fn is_by_process(screen: &str, pid: &str) -> bool {
    screen.lines().skip(5).any(|line| line.contains(&format!(" {pid} ")))
}

#[test]
fn the_live_view_keeps_its_session_and_shows_it_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = build("../../demos/work.c", "o2", &["-O2"]);
    let target = Running::start(&program, &[]);
    let pid = target.pid().to_string();
    let mut session = Session::start(&["-p", &pid], 24, 80, dir.path());
    session.wait_for("a tree", |screen| screen.contains("one_round"));
    // By process, which is seen again: the settings are kept, too.
    session.press("t");
    session.press("t");
    session.press("t");
    session.wait_for("the group", |screen| is_by_process(screen, &pid));
    session.press("q");
    assert_eq!(session.wait_end(), 0);
    assert!(String::from_utf8_lossy(&session.raw).contains("sampletop open"));
    drop(target);

    let mut session = Session::start(&["open"], 24, 80, dir.path());
    let screen = session.wait_for("the same group", |screen| is_by_process(screen, &pid));
    assert!(screen.contains("SAVED"), "{screen}");
    // How far the hottest path opens by itself depends on how much of the main thread's read was
    // seen.
    session.press("E");
    session.wait_for("the same tree", |screen| screen.contains("one_round"));
    session.press("X");
    session.wait_for("an answer", |screen| screen.contains("nothing is sampled"));
    for keys in ["2", "1", "m", "b", "r", "o", "/", "thirty\r", "x"] {
        session.press(keys);
    }
    session.wait_for("an export", |screen| screen.contains("saved "));
    session.press("q");
    assert_eq!(session.wait_end(), 0);
    assert!(
        !String::from_utf8_lossy(&session.raw).contains("sampletop open"),
        "it is kept already"
    );
}

#[test]
fn a_saved_profile_is_compared_with_another() {
    let dir = tempfile::tempdir().expect("a folder");
    for (file, stacks) in [
        ("before.folded", "main;render 600\nmain;search 400\n"),
        ("now.folded", "main;render 200\nmain;search 400\nmain;discount 400\n"),
    ] {
        std::fs::write(dir.path().join(file), stacks).expect("written");
    }
    let args = ["open", "now.folded", "--against", "before.folded"];
    let mut session = Session::start(&args, 24, 80, dir.path());
    let has = |screen: &str, name: &str, figures: &str| {
        screen.lines().any(|line| line.contains(name) && line.contains(figures))
    };
    let screen = session.wait_for("the differences", |screen| has(screen, "render", "-40.0"));
    assert!(screen.contains("DIFF") && screen.contains("against before.folded"), "{screen}");
    assert!(has(&screen, "discount", "+40.0") && has(&screen, "search", "0.0"), "{screen}");
    session.press("=");
    session.wait_for("the profile alone", |screen| screen.contains("SAVED"));
    session.press("q");
    assert_eq!(session.wait_end(), 0);
    // A profile that cannot be read is said before the screen is taken.
    let args = ["open", "now.folded", "--against", "missing.folded"];
    let mut session = Session::start(&args, 24, 80, dir.path());
    assert_eq!(session.wait_end(), 2);
    let said = String::from_utf8_lossy(&session.raw).into_owned();
    assert!(said.contains("cannot read `missing.folded`"), "{said}");
}

/// Prints how many nodes there are, after reading all of the file.
const IN_PYTHON: &str =
    "import json,sys; print(sum(len(g['nodes']) for g in json.load(sys.stdin)['groups']))";

#[test]
fn common_readers_read_json_of_stacks_2000_frames_deep() {
    let dir = tempfile::tempdir().expect("a folder");
    let frames: Vec<String> = (0..2_000).map(|at| format!("f{at}")).collect();
    for (file, times) in [("one.folded", 50_000), ("two.folded", 70_000)] {
        std::fs::write(dir.path().join(file), format!("{} {times}\n", frames.join(";")))
            .expect("written");
    }
    let readers: [(&str, &[&str]); 2] =
        [("jq", &["[.groups[].nodes | length] | add"]), ("python3", &["-c", IN_PYTHON])];
    for args in [
        &["open", "one.folded", "--format", "json"][..],
        &["diff", "one.folded", "two.folded", "--format", "json"],
    ] {
        let output = sampletop(args, dir.path());
        std::fs::write(dir.path().join("p.json"), &output.stdout).expect("written");
        // With the default limit of depth.
        let read = json(&output);
        let nodes = read["groups"][0]["nodes"].as_array().expect("nodes");
        assert_eq!(nodes.len(), 2_000);
        assert!(nodes.iter().enumerate().all(|(at, node)| node["frame"] == format!("f{at}")));
        assert!(
            nodes
                .iter()
                .enumerate()
                .all(|(at, node)| node["parent"].as_u64() == (at as u64).checked_sub(1))
        );
        for (reader, how) in readers {
            let text = std::fs::File::open(dir.path().join("p.json")).expect("readable");
            let found = Command::new(reader).args(how).stdin(text).output();
            let found = found.unwrap_or_else(|error| panic!("{reader} is needed: {error}"));
            let said = String::from_utf8_lossy(&found.stderr);
            assert_eq!(
                String::from_utf8_lossy(&found.stdout).trim(),
                "2000",
                "{reader} of {args:?}: {said}"
            );
        }
    }
}
