//! `diff` of two profiles of a program that became slower in one function, against the program's
//! own clocks; and `merge` of such profiles.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::build;
use serde_json::Value;

fn sampletop(args: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sampletop"))
        .args(args)
        .current_dir(dir)
        .output()
        .expect("sampletop starts")
}

/// Records it into `file`. Returns what it has used in its two functions, ms.
fn record(program: &Path, beta_ms: &str, file: &str, dir: &Path) -> [f64; 2] {
    let program = program.to_str().expect("a plain path");
    let output = sampletop(&["record", "-i", "2ms", "-o", file, "--", program, "60", beta_ms], dir);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).expect("text");
    ["alpha ", "beta "].map(|name| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)).expect("what it used");
        line.parse().expect("ms")
    })
}

#[test]
fn a_function_that_became_slower_is_found_and_its_size_is_right() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = build("changed.c", "o1", &["-O1", "-g"]);
    let before = record(&program, "10", "before.sampletop", dir.path());
    let after = record(&program, "20", "after.sampletop", dir.path());
    let diff = |more: &[&str]| {
        let args =
            [&["diff", "before.sampletop", "after.sampletop", "--metric", "cpu"], more].concat();
        let output = sampletop(&args, dir.path());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let json: Value = serde_json::from_slice(&diff(&["--format", "json"])).expect("JSON");
    assert_eq!(json["schema"], "sampletop-diff/2");
    let total = |name: &str, of: &str| {
        let functions = json["functions"].as_array().expect("a list");
        let function = functions
            .iter()
            .find(|function| function["frame"] == name)
            .unwrap_or_else(|| panic!("{name}"));
        function["total"][of].clone()
    };
    for (nth, name) in ["alpha", "beta"].into_iter().enumerate() {
        let ms = |of: &str| total(name, of).as_f64().expect("a number");
        let truth = after[nth] - before[nth];
        // The bounds are at least 1.96 standard errors wide to each side. 5 of them are exceeded in
        // one of 1.7 million runs.
        let reach = (ms("high") - ms("low")) / 2.0 / 1.96 * 5.0;
        let off = (ms("change") - truth).abs();
        assert!(
            off <= reach,
            "{name}: {} against {truth} by its own clock; bounds {}..{}",
            ms("change"),
            ms("low"),
            ms("high")
        );
        // Wide bounds would prove nothing: they exclude half of beta's slowdown.
        assert!(
            reach < 0.5 * (after[1] - before[1]) * 5.0 / 1.96,
            "{name}: {}..{}",
            ms("low"),
            ms("high")
        );
    }
    // The change is over ten standard errors, the bounds are at most four from it.
    assert_eq!(total("beta", "resolved"), true);
    let text = String::from_utf8(diff(&[])).expect("ASCII");
    assert!(
        text.lines().any(|line| line.contains("> beta") || line.contains(" beta  changed.c")),
        "{text}"
    );

    // Both are of one build.
    assert!(text.lines().any(|line| line.starts_with("Builds       changed-o1")), "{text}");

    // The same profile twice: no difference to report.
    let same =
        sampletop(&["diff", "before.sampletop", "before.sampletop", "-o", "same.txt"], dir.path());
    assert!(same.status.success() && same.stdout.is_empty());
    let text = std::fs::read_to_string(dir.path().join("same.txt")).expect("written");
    assert!(text.contains("none by more than sampling makes"), "{text}");
}

#[test]
fn another_build_is_told_in_a_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = dir.path().join("server");
    let mut ids = Vec::new();
    for (nth, flags) in
        [&["-O0", "-Wl,--build-id"][..], &["-O1", "-Wl,--build-id"]].into_iter().enumerate()
    {
        std::fs::copy(build("changed.c", &format!("build{nth}"), flags), &program).expect("copied");
        record(&program, "1", &format!("{nth}.sampletop"), dir.path());
        let output =
            Command::new("readelf").arg("-n").arg(&program).output().expect("readelf is needed");
        let notes = String::from_utf8(output.stdout).expect("text");
        let id = notes
            .lines()
            .find_map(|line| line.trim().strip_prefix("Build ID: "))
            .expect("it has one");
        ids.push(id[..12].to_owned());
    }
    let text =
        String::from_utf8(sampletop(&["diff", "0.sampletop", "1.sampletop"], dir.path()).stdout)
            .expect("ASCII");
    let line =
        text.lines().find(|line| line.starts_with("Builds ")).unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words, ["Builds", "!", "server", &ids[0], "server", &ids[1]]);
    let merged =
        sampletop(&["merge", "0.sampletop", "1.sampletop", "-o", "all.sampletop"], dir.path());
    let said = String::from_utf8_lossy(&merged.stderr);
    assert!(said.contains("several builds of one file: 2 of server\n"), "{said}");
}

#[test]
fn what_cannot_be_compared_is_told_in_one_sentence() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("x.txt"), "something else").expect("written");
    for (args, words) in [
        (&["diff", "missing", "x.txt"][..], "cannot read `missing`: no such file"),
        (&["diff", "x.txt", "x.txt"], "`x.txt`: this is no profile"),
        (&["diff", "x.txt"], "`diff` compares two profiles"),
        (&["diff", "a", "b", "c"], "`c` is one profile too many"),
        (&["diff", "a", "b", "-o", "x.svg"], "`diff` writes text or json"),
    ] {
        let output = sampletop(args, dir.path());
        let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {sentence}");
        assert!(sentence.contains(words) && sentence.lines().count() == 1, "{args:?}: {sentence}");
    }
}

#[test]
fn merged_profiles_have_the_sum_of_all() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = build("changed.c", "merged", &["-O1", "-g"]);
    record(&program, "1", "one.sampletop", dir.path());
    record(&program, "2", "two.sampletop", dir.path());
    let json = |args: &[&str]| -> Value {
        let output = sampletop(args, dir.path());
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let sum = |profile: &Value, of: &str| -> f64 {
        let groups = profile["groups"].as_array().expect("groups");
        groups.iter().map(|group| group[of].as_f64().expect("a number")).sum()
    };
    let [one, two] =
        ["one.sampletop", "two.sampletop"].map(|file| json(&["open", file, "--format", "json"]));
    let output =
        sampletop(&["merge", "one.sampletop", "two.sampletop", "-o", "all.sampletop"], dir.path());
    assert!(output.status.success());
    assert!(
        String::from_utf8_lossy(&output.stderr).starts_with("sampletop: merged of 2 profiles\n")
    );
    let direct = json(&["merge", "two.sampletop", "one.sampletop", "--format", "json"]);
    let saved = json(&["open", "all.sampletop", "--format", "json"]);
    for of in ["wall_ms", "cpu_ms", "hits", "cpu_hits"] {
        let expected = sum(&one, of) + sum(&two, of);
        for merged in [&direct, &saved] {
            // Each figure is rounded to a thousandth.
            assert!(
                (sum(merged, of) - expected).abs() < 0.1,
                "{of}: {} of {expected}",
                sum(merged, of)
            );
        }
    }
    assert_eq!(saved["targets"].as_array().map(Vec::len), Some(2));
    let alone = json(&["merge", "one.sampletop", "--format", "json"]);
    assert_eq!(alone, one, "of one profile it is that profile");
    let nothing = sampletop(&["merge", "missing", "-o", "x.sampletop"], dir.path());
    assert_eq!(nothing.status.code(), Some(2));
    assert!(!dir.path().join("x.sampletop").exists());
}
