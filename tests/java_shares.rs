//! Known shares of time: sampletop's figures for a Java program against the program's own
//! measurements, and against the virtual machine's own sampler (Flight Recorder).

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use common::java::{JDKS, can_test, compile, output, start};
use common::{Recording, Running};
use serde_json::Value;

const METHODS: [&str; 3] = ["red", "green", "blue"];

/// Permitted standard deviations: six comparisons for each of two JDKs together fail once in two
/// million runs.
const Z: f64 = 5.5;

/// Returns what the thread has spent in each method so far, ns by its own clock.
fn spent(target: &mut Running) -> [f64; 3] {
    target.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it listens");
    let line = target.lines.next().expect("a line").expect("text");
    let numbers: Vec<f64> =
        line.split(' ').map(|number| number.parse().expect("a number")).collect();
    numbers.try_into().expect("three")
}

/// Parts of the whole.
fn shares(parts: [f64; 3]) -> [f64; 3] {
    parts.map(|part| part / parts.iter().sum::<f64>())
}

/// Returns the standard deviation of a share that this number of independent samples yields.
fn deviation(share: f64, scan: f64) -> f64 {
    (share * (1.0 - share) / scan).sqrt()
}

/// A sampler's figures for the methods: how often it found the thread in each, and which part of
/// that at its loop.
struct Told {
    scan: f64,
    shares: [f64; 3],
    at_loops: [f64; 3],
}

impl Told {
    /// `found`: samples by method and line.
    fn new(found: &BTreeMap<(String, u64), f64>) -> Told {
        let scan = found.values().sum();
        let all = METHODS.map(|method| {
            let of_method = found.iter().filter(|((name, _), _)| name == method);
            of_method.map(|(_, scan)| scan).sum::<f64>()
        });
        let mut at_loops = loops();
        for (at, method) in METHODS.iter().enumerate() {
            let here =
                found.get(&(method.to_string(), at_loops[at] as u64)).copied().unwrap_or(0.0);
            at_loops[at] = here / all[at];
        }
        Told { scan, shares: shares(all), at_loops }
    }

    /// What sampletop recorded, rows being lines.
    fn sampletop(profile: &Value) -> Told {
        let groups = profile["groups"].as_array().expect("groups");
        let group = groups.iter().find(|group| group["name"] == "shares").expect("the thread");
        let mut found = BTreeMap::new();
        let tree = common::tree(group);
        let mut todo: Vec<&Value> = tree.as_array().expect("a tree").iter().collect();
        while let Some(node) = todo.pop() {
            match node["frame"].as_str().and_then(|frame| frame.strip_prefix("Shares.")) {
                Some(method) if METHODS.contains(&method) => {
                    let line = node["line"].as_u64().unwrap_or(0);
                    // Not the time: one sample stands for varying time.
                    *found.entry((method.to_string(), line)).or_default() +=
                        node["cpu_hits"].as_f64().expect("a number");
                }
                _ => todo.extend(node["children"].as_array().expect("children")),
            }
        }
        Told::new(&found)
    }

    /// Reads what the virtual machine's own sampler recorded of the thread.
    fn flight_recorder(home: &Path, file: &Path) -> Told {
        let mut jfr = Command::new(home.join("bin/jfr"));
        let text = output(jfr.args(["print", "--events", "jdk.ExecutionSample"]).arg(file));
        let mut found = BTreeMap::new();
        for event in text
            .split("jdk.ExecutionSample {")
            .filter(|event| event.contains("sampledThread = \"shares\""))
        {
            let innermost = event
                .split_once("stackTrace = [")
                .and_then(|(_, stack)| stack.trim_start().lines().next());
            let Some((method, line)) =
                innermost.and_then(|text| text.strip_prefix("Shares.")?.split_once("(int) line: "))
            else {
                continue;
            };
            let line = line.trim().parse().expect("a line");
            *found.entry((method.to_string(), line)).or_default() += 1.0;
        }
        Told::new(&found)
    }
}

/// The lines of the loops in Shares.java.
fn loops() -> [f64; 3] {
    let source = include_str!("targets/Shares.java");
    METHODS.map(|method| {
        let mut lines = (1..)
            .zip(source.lines())
            .skip_while(|(_, line)| !line.contains(&format!(" {method}(int n) {{")));
        let (number, _) =
            lines.find(|(_, line)| line.trim_start().starts_with("for ")).expect("a loop");
        f64::from(number)
    })
}

#[test]
fn methods_and_lines_get_their_shares() {
    if !can_test() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for home in JDKS.iter() {
        let classes = compile(home, "Shares.java");
        // Background compilation would compile code again during the measurement.
        let mut target = start(home, &classes, &["-Xbatch"], &["Shares"]);
        let pid = target.pid().to_string();
        let jcmd =
            |command: &[&str]| output(Command::new(home.join("bin/jcmd")).arg(&pid).args(command));
        jcmd(&["JFR.start", "name=peer", "settings=profile"]);
        let before = spent(&mut target);
        let mut record = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        record.args([
            "record", "-p", &pid, "-i", "2ms", "--format", "json", "--group", "name", "--by",
            "line",
        ]);
        let recording = Recording::start(&mut record);
        recording.until_used(target.pid(), 6_000);
        let profile = recording.end();
        assert!(profile.status.success(), "{}", String::from_utf8_lossy(&profile.stderr));
        let after = spent(&mut target);
        let file = folder.path().join("peer.jfr");
        jcmd(&["JFR.dump", "name=peer", &format!("filename={}", file.display())]);

        let truth = shares([0, 1, 2].map(|at| after[at] - before[at]));
        let ours = Told::sampletop(&serde_json::from_slice(&profile.stdout).expect("json"));
        let peers = Told::flight_recorder(home, &file);
        let what = format!(
            "{}: by its own clock {truth:.3?}; sampletop {:.3?} ({} looks, {:.3?} at the loops); Flight Recorder {:.3?} ({} looks)",
            home.display(),
            ours.shares,
            ours.scan,
            ours.at_loops,
            peers.shares,
            peers.scan
        );
        println!("{what}");
        assert!(ours.scan > 500.0 && peers.scan > 50.0, "{what}");
        let far = |told: &Told, at: usize| {
            (told.shares[at] - truth[at]).abs() > Z * deviation(truth[at], told.scan)
        };
        // Flight Recorder drops the samples that it cannot walk, some methods' more often than
        // others'. Once, beside other load, it had 0.14, 0.09 and 0.77 where the thread's clock had
        // 0.21, 0.15 and 0.64. Then it is no reference.
        let is_judge = (0..METHODS.len()).all(|at| !far(&peers, at));
        if !is_judge {
            println!("Flight Recorder contradicts the thread's own clock and is not compared with");
        }
        for (at, truth) in truth.into_iter().enumerate() {
            assert!(!far(&ours, at), "{what}");
            let by_both = deviation(truth, ours.scan).hypot(deviation(truth, peers.scan));
            assert!(
                !is_judge || (ours.shares[at] - peers.shares[at]).abs() <= Z * by_both,
                "{what}"
            );
            assert!(ours.at_loops[at] >= 0.98, "{what}");
        }
    }
}
