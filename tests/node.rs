//! JavaScript of Node, read from outside, of programs that are started without any preparation:
//! functions, files and lines as the program's own `Error.stack` says them, in each tier; and how
//! the time of a busy program is told. On the node of this machine, and on those that `tests/nodes`
//! has fetched.

mod common;
#[path = "common/dumped.rs"]
mod dumped;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Recording, Running, need_root, skipped};
use dumped::Frame;

/// The frames of the thread that has called `rest`, innermost first, and whether they are all.
fn dump(pid: u32, options: &[&str]) -> (Vec<Frame>, bool) {
    dumped::dump(pid, options, |thread| {
        thread["frames"].as_array().is_some_and(|all| all.iter().any(|f| f["frame"] == "rest"))
    })
}

/// The versions of Node that are here.
fn nodes(test: &str) -> Vec<PathBuf> {
    let works = |node: &PathBuf| {
        let version = Command::new(node).arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    let fetched = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nodes");
    let mut found: Vec<PathBuf> = ["20", "22", "24", "26"]
        .iter()
        .map(|version| fetched.join(version).join("bin/node"))
        .chain([PathBuf::from("node")])
        .filter(works)
        .collect();
    if found.is_empty() {
        skipped(test, "no node (Debian: nodejs)");
    } else if !need_root("reads another process by every way of capture") {
        found.clear();
    }
    found
}

fn target(name: &str) -> String {
    format!("{}/tests/targets/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Switches by which functions of jit.js run as code of one compiler, and the word for that in the
/// script and in a report.
const TIERS: [(&[&str], &str); 3] = [
    (&[], "optimized"),
    (&["--sparkplug", "--no-opt", "--no-maglev"], "baseline"),
    (&["--no-opt", "--no-sparkplug", "--no-maglev"], "interpreted"),
];

fn jit(node: &Path, switches: &[&str], tier: &str, what: &str) -> Running {
    let script = target("jit.js");
    let always = ["--allow-natives-syntax", "--no-turbo-inlining"];
    Running::start(node, &[&always, switches, &[&script, tier, what]].concat())
}

/// Each frame of the script is the one that the program's own `Error.stack` has, and no other is
/// between.
#[test]
fn stacks_are_those_of_error_stack() {
    for node in nodes("stacks_are_those_of_error_stack") {
        for how in ["cold", "optimized", "deoptimized", "worker"] {
            let script = target("shapes.js");
            let mut running = Running::start(&node, &["--allow-natives-syntax", &script, how]);
            let line = running.lines.next().expect("a line").expect("text");
            let expected: Vec<(String, u64)> = serde_json::from_str(&line).expect("JSON");
            for capture in ["bpf", "perf"] {
                let what = format!("{} {how} {capture}", node.display());
                let (frames, complete) = dump(running.pid(), &["--capture", capture]);
                let ours: Vec<(String, u64)> = frames
                    .iter()
                    .filter(|frame| frame.file.as_deref() == Some(&script))
                    .map(|frame| (frame.name.clone(), frame.line.expect("a line")))
                    .collect();
                assert_eq!(ours, expected, "{what}: {frames:#?}");
                assert!(complete, "{what}: {frames:#?}");
                let tier = |name: &str| {
                    let frame = frames.iter().find(|frame| frame.name == name).expect(name);
                    (frame.kind.clone(), frame.tier.clone().unwrap_or_default())
                };
                let jit = |tier: &str| ("jit".to_owned(), tier.to_owned());
                assert_eq!(tier("closure"), jit("interpreted"), "{what}");
                if how == "optimized" {
                    assert_eq!(tier("tower"), jit("optimized"), "{what}");
                    assert_eq!(tier("second"), jit("inlined"), "{what}");
                }
                // Code that `eval` made has a line and no file; what the language itself has is
                // built into V8.
                let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).collect();
                let place = |name: &str| names.iter().position(|it| *it == name).expect(name);
                let eval = &frames[place("evaled") - 1];
                assert_eq!((eval.name.as_str(), eval.line), ("(anonymous)", Some(1)), "{what}");
                assert_eq!(names[place("mapped") + 1], "Builtins_ArrayMap", "{what}");
            }
        }
    }
}

#[test]
fn waiting_functions_have_their_lines_and_tiers() {
    for node in nodes("waiting_functions_have_their_lines_and_tiers") {
        for (switches, tier) in TIERS {
            let running = jit(&node, switches, tier, "wait");
            for capture in ["bpf", "perf"] {
                let what = format!("{} {tier} {capture}", node.display());
                let (frames, complete) = dump(running.pid(), &["--capture", capture]);
                let ours: Vec<(&str, u64, &str)> = frames
                    .iter()
                    .filter(|frame| frame.file.as_deref() == Some(&target("jit.js")))
                    .map(|frame| {
                        let tier = frame.tier.as_deref().expect("a tier");
                        (frame.name.as_str(), frame.line.expect("a line"), tier)
                    })
                    .collect();
                let inner = line_with("s ^= leaf(");
                let expected = [
                    ("rest", line_with("Atomics.wait("), tier),
                    ("inner", inner, tier),
                    ("middle", line_with("return inner("), tier),
                    ("outer", line_with("return middle("), tier),
                ];
                assert_eq!(ours[..4], expected, "{what}: {frames:#?}");
                assert!(complete, "{what}: {frames:#?}");
            }
        }
    }
}

/// Where V8's own tools say that these begin: at the list of parameters.
#[test]
fn functions_without_a_name_are_called_by_where_they_begin() {
    let script = include_str!("targets/anonymous.js");
    let (line, text) =
        script.lines().enumerate().find(|(_, line)| line.contains("function ()")).expect("a line");
    let column = |parameters| text.find(parameters).expect(parameters) + 1;
    let (inner, outer) = (column("() { rest"), column("() => {"));
    let expected = [inner, outer, 1].map(|column| {
        let line = if column == 1 { 1 } else { line + 1 };
        format!("(anonymous anonymous.js:{line}:{column})")
    });
    for node in nodes("functions_without_a_name_are_called_by_where_they_begin") {
        let running = Running::start(&node, &[&target("anonymous.js")]);
        let (frames, complete) = dump(running.pid(), &[]);
        let ours = frames.iter().filter(|frame| frame.file == Some(target("anonymous.js")));
        let names: Vec<&str> = ours.map(|frame| frame.name.as_str()).collect();
        assert_eq!(names[0], "rest");
        assert_eq!(names[1..], expected, "{}", node.display());
        assert!(complete, "{frames:#?}");
    }
}

fn line_with(text: &str) -> u64 {
    let script = include_str!("targets/jit.js");
    script.lines().position(|line| line.contains(text)).expect(text) as u64 + 1
}

/// What a recording of jit.js holds, in microseconds.
#[derive(Default)]
struct Busy {
    whole: u64,
    broken: u64,
    /// Of both: `burn` was called.
    burning: u64,
    /// Orders of functions that do not occur.
    wrong: BTreeSet<String>,
    /// The stacks that are broken.
    ends: Vec<String>,
}

impl Busy {
    /// Records `cpu_ms` of CPU time.
    fn record(node: &Running, capture: &str, interval: &str, cpu_ms: u64) -> Busy {
        let mut record = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        record.args(["record", "-p", &node.pid().to_string(), "-i", interval]);
        record.args(["--capture", capture, "--format", "folded"]);
        record.args(["--no-kernel", "--group", "name", "--metric", "cpu"]);
        let recording = Recording::start(&mut record);
        recording.until_used(node.pid(), cpu_ms);
        let output = recording.end();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report = String::from_utf8(output.stdout).expect("text");
        let mut busy = Busy::default();
        // The main thread alone.
        for line in report.lines().filter(|line| !line.contains(";start_thread")) {
            busy.add(line);
        }
        busy
    }

    fn add(&mut self, line: &str) {
        const CALLS: [(&str, &str); 3] =
            [("outer", "middle"), ("middle", "inner"), ("inner", "burn")];
        let (stack, value) = line.rsplit_once(' ').expect("a value");
        let value: u64 = value.parse().expect("a number");
        let frames: Vec<&str> = stack.split(';').skip(1).collect();
        // CPU time without a sample is no walk.
        if frames[0].starts_with("[cpu") || frames[0].starts_with("[in kernel") {
            return;
        }
        if frames[0].starts_with('[') {
            self.broken += value;
            self.ends.push(line.to_owned());
        } else {
            self.whole += value;
        }
        // Of our functions, in order, without the builtins between them.
        let chain: Vec<&str> = frames
            .iter()
            .copied()
            .filter(|name| ["outer", "middle", "inner", "burn"].contains(name))
            .collect();
        let not_called = chain.windows(2).filter(|call| !CALLS.contains(&(call[0], call[1])));
        self.wrong.extend(not_called.map(|call| format!("{call:?}")));
        // The chain must begin at `outer`, unless a marker stands before it.
        if chain.first().is_some_and(|first| *first != "outer") && !frames[0].starts_with('[') {
            self.wrong.insert(format!("{chain:?} without outer"));
        }
        // No other function calls it.
        if frames.iter().any(|frame| frame.contains("BitwiseOr")) && chain.last() != Some(&"burn") {
            self.wrong.insert(format!("{chain:?} without burn"));
        }
        if chain.last() == Some(&"burn") {
            self.burning += value;
        }
    }
}

#[test]
fn busy_functions_are_named() {
    for node in nodes("busy_functions_are_named") {
        for (switches, tier) in TIERS {
            let running = jit(&node, switches, tier, "burn");
            for capture in ["bpf", "perf"] {
                let what = format!("{} {tier} {capture}", node.display());
                let busy = Busy::record(&running, capture, "2ms", 2_000);
                let Busy { whole, broken, burning, wrong, ends } = busy;
                assert!(wrong.is_empty(), "{what}: {wrong:?}");
                assert!(whole > 500_000, "{what}: {whole} us");
                assert!(broken * 50 <= whole, "{what}: {broken} of {whole} us\n{ends:#?}");
                assert!(burning * 10 >= whole * 9, "{what}: {burning} of {whole} us burn");
            }
        }
    }
}

/// Functions that do little are met while they build and remove their frames. Code that builds its
/// frame by a call has none yet inside that call: taken for complete, it lost its caller. Code that
/// replaces a loop while it runs (Maglev's) builds none at all.
#[test]
fn functions_that_mostly_call_lose_no_caller() {
    for node in nodes("functions_that_mostly_call_lose_no_caller") {
        for (switches, tier) in TIERS.into_iter().chain([(&["--no-opt"][..], "none")]) {
            let running = jit(&node, switches, tier, "call");
            for capture in ["bpf", "perf"] {
                let what = format!("{} {tier} {capture}", node.display());
                let busy = Busy::record(&running, capture, "1ms", 2_000);
                assert!(busy.wrong.is_empty(), "{what}: {:?}", busy.wrong);
                assert!(busy.whole > 500_000, "{what}: {} us", busy.whole);
                let Busy { whole, broken, ends, .. } = busy;
                assert!(broken * 20 <= whole, "{what}: {broken} of {whole} us\n{ends:#?}");
            }
        }
    }
}

/// Returns the time of each stack of the main thread, in microseconds.
fn record(running: &Running, capture: &str) -> Vec<(String, u64)> {
    let mut record = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    record.args(["record", "-p", &running.pid().to_string(), "-i", "2ms", "--capture", capture]);
    record.args(["--format", "folded", "--no-kernel", "--group", "name", "--metric", "cpu"]);
    let recording = Recording::start(&mut record);
    recording.until_used(running.pid(), 3_000);
    let output = recording.end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = String::from_utf8(output.stdout).expect("text");
    let stack = |line: &str| {
        let (stack, value) = line.rsplit_once(' ').expect("a value");
        (stack.to_owned(), value.parse().expect("a number"))
    };
    report.lines().filter(|line| !line.contains(";start_thread")).map(stack).collect()
}

/// Returns the time of the stacks in which the function is.
fn time_in(stacks: &[(String, u64)], function: &str) -> u64 {
    let has = |stack: &str| stack.split(';').any(|frame| frame == function);
    stacks.iter().filter(|(stack, _)| has(stack)).map(|(_, time)| time).sum()
}

/// Some 1,500 samples, each in another turn: 5 % are four standard errors of the largest share, so
/// the test fails by chance once in 5,000 runs for each Node and way of capture.
#[test]
fn shares_are_those_of_the_work() {
    for node in nodes("shares_are_those_of_the_work") {
        let running = Running::start(&node, &[&target("parts.js"), "parts"]);
        for capture in ["bpf", "perf"] {
            let stacks = record(&running, capture);
            let parts = ["six", "three", "one"].map(|function| time_in(&stacks, function));
            let sum: u64 = parts.iter().sum();
            assert!(sum > 500_000, "{} {capture}: {stacks:#?}", node.display());
            for (time, expected) in parts.into_iter().zip([0.6, 0.3, 0.1]) {
                let share = time as f64 / sum as f64;
                let what = format!("{} {capture}: {parts:?}", node.display());
                assert!((share - expected).abs() < 0.05, "{what}");
            }
        }
    }
}

/// The code of a regular expression has a frame, and is called by the function that uses it.
#[test]
fn regular_expressions_are_in_their_functions() {
    for node in nodes("regular_expressions_are_in_their_functions") {
        let running = Running::start(&node, &[&target("parts.js"), "regexp"]);
        for capture in ["bpf", "perf"] {
            let stacks = record(&running, capture);
            let [whole, code] = ["matches", "Stub:Irregexp"].map(|name| time_in(&stacks, name));
            let what = format!("{} {capture}: {stacks:#?}", node.display());
            assert!(whole > 500_000 && code * 10 > whole * 9, "{what}");
            let broken: u64 = stacks
                .iter()
                .filter(|(stack, _)| stack.contains(";[unwind") || stack.contains("[torn]"))
                .map(|(_, time)| time)
                .sum();
            assert!(broken * 50 < whole, "{what}");
        }
    }
}

/// The libraries in Node's file are no runtime: the pool's time is where a reader can act on it.
#[test]
fn the_first_sentence_names_what_the_pool_does() {
    for node in nodes("the_first_sentence_names_what_the_pool_does") {
        let running = Running::start(&node, &[&target("parts.js"), "hash"]);
        let mut record = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        record.args(["record", "-p", &running.pid().to_string(), "-i", "5ms", "--format", "text"]);
        let recording = Recording::start(&mut record);
        recording.until_used(running.pid(), 2_000);
        let report = String::from_utf8(recording.end().stdout).expect("text");
        let says = report.lines().find(|line| line.contains("% of the CPU time is in "));
        let says = says.unwrap_or_else(|| panic!("{}: {report}", node.display()));
        assert!(says.to_lowercase().contains("pbkdf2"), "{}: {report}", node.display());
    }
}

/// Node's own scripts are no files: their text is in Node's executable.
#[test]
fn nodes_own_functions_have_lines() {
    for node in nodes("nodes_own_functions_have_lines") {
        for how in ["start", "timer"] {
            let mut running = Running::start(&node, &[&target("internal.js"), how]);
            let line = running.lines.next().expect("a line").expect("text");
            let expected: Vec<(Option<String>, u64)> = serde_json::from_str(&line).expect("JSON");
            let own = |(file, _): &&(Option<String>, u64)| {
                file.as_deref().is_some_and(|file| file.starts_with("node:"))
            };
            let expected: Vec<_> = expected.iter().filter(own).cloned().collect();
            assert!(expected.len() >= 2, "{}: {line}", node.display());
            let (frames, complete) = dump(running.pid(), &[]);
            let ours = frames.iter().map(|frame| (frame.file.clone(), frame.line.unwrap_or(0)));
            let ours: Vec<_> = ours.filter(|frame| own(&frame)).collect();
            let what = format!("{} {how}: {frames:#?}", node.display());
            assert_eq!((ours, complete), (expected, true), "{what}");
        }
    }
}

/// Files and lines are those of the TypeScript, as Node itself says them with source maps: of a map
/// in a file, and of one in the script, all of which is in one line.
#[test]
fn lines_are_those_of_the_source() {
    let folder = std::fs::canonicalize(target("mapped")).expect("it is there");
    let source = folder.join("src/app.ts").display().to_string();
    let text = std::fs::read_to_string(&source).expect("it is there");
    let waits = text.lines().position(|line| line.contains("Atomics.wait(")).expect("it waits");
    for node in nodes("lines_are_those_of_the_source") {
        for script in ["app.js", "min.js"] {
            let script = folder.join("dist").join(script).display().to_string();
            let what = format!("{} {script}", node.display());
            let mut running = Running::start(&node, &["--enable-source-maps", &script]);
            let line = running.lines.next().expect("a line").expect("text");
            let stack: Vec<String> = serde_json::from_str(&line).expect("JSON");
            let mut expected: Vec<u64> = stack
                .iter()
                .filter_map(|call| call.split_once(&format!("{source}:")))
                .map(|(_, place)| place.split(':').next().expect("a line").parse().expect("a line"))
                .collect();
            assert!(expected.len() >= 4, "{what}: {stack:?}");
            expected[0] = waits as u64 + 1;
            let dump = |options: &[&str]| {
                let is_meant = |thread: &serde_json::Value| {
                    let frames = thread["frames"].as_array().expect("frames");
                    let in_program = |file: &str| file.contains("/mapped/");
                    frames.iter().any(|frame| frame["file"].as_str().is_some_and(in_program))
                };
                let (frames, _) = dumped::dump(running.pid(), options, is_meant);
                let of_program = frames.into_iter().filter(|frame| frame.kind == "jit");
                of_program
                    .filter(|frame| {
                        frame.file.as_deref().is_some_and(|file| !file.starts_with("node:"))
                    })
                    .collect::<Vec<Frame>>()
            };
            let mapped = dump(&[]);
            let lines: Vec<u64> = mapped.iter().filter_map(|frame| frame.line).collect();
            assert_eq!(lines, expected, "{what}: {mapped:#?}");
            let is_source = |frame: &Frame| frame.file.as_ref() == Some(&source);
            assert!(mapped.iter().all(is_source), "{what}: {mapped:#?}");
            let plain = dump(&["--source-maps", "no"]);
            let is_script = |frame: &Frame| frame.file.as_ref() == Some(&script);
            assert!(plain.iter().all(is_script), "{what}: {plain:#?}");
            assert_eq!(plain.len(), mapped.len(), "{what}: {plain:#?}");
        }
    }
}

/// Its name is that of newer versions, unless the program has set another.
#[test]
fn the_main_thread_has_a_name_of_its_own() {
    for node in nodes("the_main_thread_has_a_name_of_its_own") {
        for (title, expected) in [("", "MainThread"), ("process.title = 'shop';", "shop")] {
            let script = format!("{title} console.log('ready'); setInterval(() => {{}}, 1e6);");
            let running = Running::start(&node, &["-e", &script]);
            let pid = running.pid();
            let report = dumped::sampletop(&["dump", "-p", &pid.to_string(), "--format", "json"]);
            let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
            let threads = report["threads"].as_array().expect("threads");
            let named = |thread: &&serde_json::Value| {
                thread["name"].as_str().is_some_and(|name| name.ends_with(expected))
            };
            let found: Vec<_> = threads.iter().filter(named).collect();
            let what = format!("{}: {report:#}", node.display());
            assert_eq!(found.len(), 1, "{what}");
            assert_eq!(found[0]["tid"], pid, "{what}");
        }
    }
}

#[test]
fn workers_have_the_names_of_their_scripts() {
    for node in nodes("workers_have_the_names_of_their_scripts") {
        let running = Running::start(&node, &[&target("workers/main.js")]);
        let mut record = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        record.args(["record", "-p", &running.pid().to_string(), "--format", "folded"]);
        record.args(["--group", "name", "--metric", "cpu"]);
        let recording = Recording::start(&mut record);
        recording.until_used(running.pid(), 8_000);
        let output = recording.end();
        let report = String::from_utf8(output.stdout).expect("text");
        let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
        for line in report.lines().filter(|line| line.contains(";busy")) {
            let (stack, value) = line.rsplit_once(' ').expect("a value");
            let thread = stack.split(';').next().expect("a thread");
            *shares.entry(thread).or_default() += value.parse::<f64>().expect("a number");
        }
        let all: f64 = shares.values().sum();
        let mut share = |name: &str| shares.remove(name).unwrap_or_default() / all;
        // Before Node 24 the program's own name of a worker is not the thread's.
        let (rank, ranker) = (share("worker workers/rank.js"), share("ranker"));
        let [resize, eval] = ["worker workers/resize.mjs", "worker eval"].map(&mut share);
        let what = format!("{}: {rank} {ranker} {resize} {eval} {shares:?}", node.display());
        assert!([rank + ranker, resize, eval].iter().all(|share| *share > 0.12), "{what}");
        // Until they are known, they have the kernel's names.
        assert!(shares.keys().all(|name| ["node", "WorkerThread"].contains(name)), "{what}");
        assert!(shares.values().sum::<f64>() / all < 0.4, "{what}");
    }
}

/// A function of awaiting.js, or one that it calls: its name and line, and whether it awaits
/// another.
type Site = (String, u64, bool);

/// What awaiting.js says: by the function that each async function calls, the innermost ones first.
fn sites_of(running: &mut Running) -> BTreeMap<String, Vec<Site>> {
    let line = running.lines.next().expect("a line").expect("text");
    serde_json::from_str(&line).expect("JSON")
}

#[test]
fn awaiting_functions_are_those_of_error_stack() {
    for node in nodes("awaiting_functions_are_those_of_error_stack") {
        for function in [
            "inCalls",
            "inFirst",
            "inSecond",
            "inAll",
            "inAllSettled",
            "inAny",
            "inRace",
            "inFinally",
            "inWrapped",
            "inReturned",
            "inGenerator",
            "inRejected",
        ] {
            let mut running = Running::start(&node, &[&target("awaiting.js"), "wait", function]);
            let expected = &sites_of(&mut running)[function];
            assert!(expected.iter().any(|(_, _, awaits)| *awaits), "{expected:?}");
            for capture in ["bpf", "perf"] {
                let what = format!("{} {function} {capture}", node.display());
                let is_meant = |thread: &serde_json::Value| {
                    thread["frames"]
                        .as_array()
                        .is_some_and(|all| all.iter().any(|frame| frame["frame"] == function))
                };
                let (frames, complete) =
                    dumped::dump(running.pid(), &["--capture", capture], is_meant);
                let marker = frames.iter().position(|frame| frame.name == "[await]");
                let is_ours = |frame: &&Frame| {
                    frame.file.as_deref().is_some_and(|file| file.contains("/targets/await"))
                };
                let site = |frame: &Frame| {
                    let (name, line) = (frame.name.clone(), frame.line.expect("a line"));
                    let place = frames.iter().position(|it| std::ptr::eq(it, frame));
                    (name, line, place > marker && frame.tier.is_none())
                };
                let ours = frames.iter().filter(is_ours);
                let ours: Vec<Site> =
                    ours.map(site).skip_while(|(name, ..)| name != function).collect();
                assert_eq!(&ours, expected, "{what}: {frames:#?}");
                assert!(complete, "{what}: {frames:#?}");
            }
        }
    }
}

/// Time of a recording of awaiting.js, in microseconds.
#[derive(Default, Debug)]
struct Awaiting {
    /// In functions that an async function calls.
    whole: u64,
    /// Of that, where those are known that await it.
    with_chain: u64,
    wrong: BTreeSet<String>,
}

impl Awaiting {
    fn record(
        running: &Running,
        capture: &str,
        expected: &BTreeMap<String, Vec<Site>>,
    ) -> Awaiting {
        let mut record = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        record.args(["record", "-p", &running.pid().to_string(), "-i", "5ms"]);
        record.args(["--capture", capture, "--format", "folded", "--by", "line"]);
        record.args(["--no-kernel", "--group", "name", "--metric", "cpu"]);
        let recording = Recording::start(&mut record);
        recording.until_used(running.pid(), 4_000);
        let output = recording.end();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report = String::from_utf8(output.stdout).expect("text");
        let mut found = Awaiting::default();
        report.lines().for_each(|line| found.add(line, expected));
        found
    }

    fn add(&mut self, line: &str, expected: &BTreeMap<String, Vec<Site>>) {
        let (stack, value) = line.rsplit_once(' ').expect("a value");
        let value: u64 = value.parse().expect("a number");
        let frames: Vec<&str> = stack.split(';').skip(1).collect();
        let marker = frames.iter().position(|frame| *frame == "[await]");
        let (awaiting, called) = frames.split_at(marker.map_or(0, |marker| marker + 1));
        let name = |frame: &&str| frame.split(':').next().and_then(|it| expected.get(it));
        let Some(sites) = called.iter().rev().find_map(name) else { return };
        self.whole += value;
        if marker.is_none() {
            return;
        }
        self.with_chain += value;
        let site = |(name, line, _): &Site| format!("{name}:{line}");
        let chain: Vec<String> = sites.iter().filter(|(.., awaits)| *awaits).map(site).collect();
        let found: Vec<&str> = awaiting.iter().rev().skip(1).copied().collect();
        if found != chain {
            self.wrong.insert(format!("{line}: {chain:?}"));
        }
    }
}

#[test]
fn busy_functions_have_those_that_await_them() {
    for node in nodes("busy_functions_have_those_that_await_them") {
        // The least share of the time in which they are known, percent. Functions of the second
        // program are busy for a millisecond. Most have ended before their stack is walked; so only
        // what the kernel has taken tells who awaited them, once it is known where it is.
        for (how, [taken, read]) in [("burn", [90, 60]), ("churn", [82, 15])] {
            let mut running = Running::start(&node, &[&target("awaiting.js"), how]);
            let expected = sites_of(&mut running);
            for (capture, share) in [("bpf", taken), ("perf", read)] {
                let what = format!("{} {how} {capture}", node.display());
                let found = Awaiting::record(&running, capture, &expected);
                assert!(found.wrong.is_empty(), "{what}: {:#?}", found.wrong);
                assert!(found.whole > 500_000, "{what}: {found:?}");
                assert!(found.with_chain * 100 > found.whole * share, "{what}: {found:?}");
            }
        }
    }
}
