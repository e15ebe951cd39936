//! The programs in demos/ compile without a warning and do what their headers say.

mod common;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Running, skipped};

const C: &[&str] = &["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];

#[test]
fn work_says_what_it_spent_and_ends_with_its_input() {
    let program = common::build("../../demos/work.c", "demo", C);
    let mut running = Running::start(&program, &[]);
    let mut last = [0; 3];
    while last.contains(&0) {
        running.child.stdin.as_mut().expect("piped").write_all(b"now\n").expect("it listens");
        let line = running.lines.next().expect("it answers").expect("text");
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!([words[0], words[2], words[4]], ["sixty", "thirty", "ten"], "{line}");
        let now = [words[1], words[3], words[5]].map(|word| word.parse::<u64>().expect("a number"));
        assert!(now.iter().zip(&last).all(|(now, last)| now >= last), "{line}");
        last = now;
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(running.child.stdin.take());
    assert_eq!(running.child.wait().expect("it ends").code(), Some(0));
}

fn names_of(pid: u32) -> Vec<String> {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .expect("it runs")
        .map(|entry| {
            std::fs::read_to_string(entry.expect("a thread").path().join("comm")).expect("a name")
        })
        .map(|name| name.trim_end().to_owned())
        .collect()
}

#[test]
fn blocked_has_as_many_as_it_was_asked_for() {
    let program = common::build("../../demos/blocked.c", "demo", C);
    let running = Running::start(&program, &["50"]);
    let names = names_of(running.pid());
    assert_eq!(names.len(), 50 + 2 + 1);
    for stem in ["futex-", "epoll-", "read-", "sleep-", "poll-"] {
        assert_eq!(names.iter().filter(|name| name.starts_with(stem)).count(), 10, "{stem}");
    }
    assert_eq!(names.iter().filter(|name| name.starts_with("busy-")).count(), 2);
}

#[test]
fn the_others_compile_start_and_end() {
    for (source, flags) in [
        ("locks.c", C),
        ("shapes.cpp", C),
        ("requests.rs", &["--edition", "2021", "-O", "-g", "-D", "warnings"][..]),
    ] {
        let program = common::build(&format!("../../demos/{source}"), "demo", flags);
        let mut running = Running::start(&program, &["1"]);
        assert_eq!(running.child.wait().expect("it ends").code(), Some(0), "{source}");
    }
}

#[test]
fn those_in_java_compile_start_and_end() {
    let demos = Path::new(env!("CARGO_MANIFEST_DIR")).join("demos/java");
    let classes = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("demos-java-{}", std::process::id()));
    let mut javac = Command::new("javac");
    javac.args(["-Xlint:all", "-Werror", "-d"]).arg(&classes);
    let sources = ["Shop", "Sampling"].map(|name| demos.join(name).with_extension("java"));
    match javac.args(&sources).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr))
        }
        Err(error) => {
            return skipped("those_in_java_compile_start_and_end", &format!("no javac: {error}"));
        }
    }
    for class in ["Shop", "Sampling"] {
        let classes = classes.to_string_lossy();
        let mut running = Running::start(Path::new("java"), &["-cp", &classes, class, "1"]);
        // Reads its output meanwhile, so that it never blocks on the pipe.
        let said: Vec<String> = running.lines.by_ref().map(|line| line.expect("text")).collect();
        assert_eq!(running.child.wait().expect("it ends").code(), Some(0), "{class}: {said:?}");
    }
    // With unknown arguments the script prints the valid ones.
    let refused = Command::new(demos.join("run")).arg("nothing").output().expect("bash");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).starts_with("usage: "));
}

#[test]
fn the_one_in_go_compiles_serves_and_ends() {
    let demos = Path::new(env!("CARGO_MANIFEST_DIR")).join("demos/go");
    let out =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("shop-go-{}", std::process::id()));
    let go = |arguments: &[&str]| {
        Command::new("go").args(arguments).current_dir(&demos).env("GOWORK", "off").output()
    };
    let built = match go(&["build", "-o", &out.to_string_lossy(), "."]) {
        Ok(built) => built,
        Err(error) => {
            return skipped("the_one_in_go_compiles_serves_and_ends", &format!("no go: {error}"));
        }
    };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let checked = go(&["vet", "."]).expect("go");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let output = Command::new(&out).arg("1").output().expect("it was built");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    let answers = String::from_utf8_lossy(&output.stdout);
    let served = answers.strip_prefix("ready\n").and_then(|rest| rest.split_once(" requests"));
    let served: u64 = served.expect("a number").0.parse().expect("a number");
    assert!(served > 10, "{answers}");
    // Without Go the script says what is missing.
    let refused = Command::new(demos.join("run")).env("GO", "no-go").output().expect("bash");
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).starts_with("no no-go: install Go"));
}

#[test]
fn the_one_in_javascript_starts_serves_and_ends() {
    let demos = Path::new(env!("CARGO_MANIFEST_DIR")).join("demos/node");
    if let Err(error) = Command::new("node").arg("--version").output() {
        return skipped(
            "the_one_in_javascript_starts_serves_and_ends",
            &format!("no node: {error}"),
        );
    }
    let output = Command::new("node").arg(demos.join("shop.js")).arg("1").output().expect("node");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    let answers = String::from_utf8_lossy(&output.stdout);
    let served = answers.strip_prefix("ready\n").and_then(|rest| rest.split_once(" requests"));
    let served: u64 = served.expect("a number").0.parse().expect("a number");
    assert!(served > 10, "{answers}");
    // Without Node the script says what is missing.
    let refused = Command::new(demos.join("run")).env("NODE", "no-node").output().expect("bash");
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).starts_with("no no-node: install Node"));
}

#[test]
fn the_one_in_python_starts_serves_and_ends() {
    let demos = Path::new(env!("CARGO_MANIFEST_DIR")).join("demos/python");
    if let Err(error) = Command::new("python3").arg("--version").output() {
        return skipped(
            "the_one_in_python_starts_serves_and_ends",
            &format!("no python3: {error}"),
        );
    }
    let script = demos.join("shop.py").display().to_string();
    let output = Command::new("python3")
        // It writes no folder of compiled code beside its source.
        .args(["-B", "-W", "error", &script, "1"])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("python3");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    // Every kind of request is answered.
    let pages = "import json, shop, tempfile\n\
                 with tempfile.TemporaryDirectory() as folder:\n\
                 \x20   parts = shop.Shop(folder)\n\
                 \x20   print(*(len(json.dumps(page())) > 2 for page in parts.pages.values()))\n\
                 \x20   parts.orders.close()";
    let output = Command::new("python3")
        .args(["-B", "-c", pages])
        .current_dir(&demos)
        .output()
        .expect("python3");
    let answers = String::from_utf8_lossy(&output.stdout);
    assert_eq!(answers.trim(), "True True True True True True", "{output:?}");
    // Without an interpreter the script says what is missing.
    let refused =
        Command::new(demos.join("run")).env("PYTHON", "no-python").output().expect("bash");
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).starts_with("no no-python: install Python"));
}
