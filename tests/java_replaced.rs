//! Compiled Java methods that replace others: a sample is named by the method of its instant.

mod common;

use std::path::Path;
use std::process::Command;

use common::java::{JDKS, can_test, compile, start};
use common::need_root;
use serde_json::Value;

const OPTIONS: &[&str] = &[
    "-XX:+UseSerialGC",
    "-Xmx16m",
    "-Xcomp",
    "-Xbatch",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=4m",
    "-XX:CompileCommand=quiet",
    "-XX:CompileCommand=compileonly,*Template*.burn*",
    // Before JDK 20: freed code is looked for at once, not when there is much of it.
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:SweeperThreshold=0.001",
];
const BITS: usize = 10;

/// Hits.
#[derive(Default, Debug)]
struct Told {
    right: u64,
    /// Under another method than the one that the callers' names spell.
    wrong: u64,
    replaced: u64,
    example: String,
}

impl Told {
    /// From the format `json`.
    fn read(report: &str) -> Told {
        let report: Value = serde_json::from_str(report).expect("JSON");
        let mut told = Told::default();
        for group in report["groups"].as_array().expect("groups") {
            let nodes = group["nodes"].as_array().expect("nodes");
            for node in nodes {
                let hits = node["self_hits"].as_u64().expect("a number");
                let up = |node: &&Value| node["parent"].as_u64().map(|at| &nodes[at as usize]);
                let stack = std::iter::successors(Some(node), up);
                let mut stack: Vec<&str> =
                    stack.map(|node| node["frame"].as_str().expect("a name")).collect();
                stack.reverse();
                told.count(&stack, hits);
            }
        }
        told
    }

    fn count(&mut self, stack: &[&str], hits: u64) {
        self.replaced += if stack.contains(&"[code was replaced]") { hits } else { 0 };
        let bits = stack.iter().filter_map(|frame| match *frame {
            "Generations.zero" => Some(0),
            "Generations.one" => Some(1),
            _ => None,
        });
        let bits: Vec<u64> = bits.collect();
        let number = stack.iter().find_map(|frame| frame.split_once(".burn"));
        let Some((_, number)) = number.filter(|_| bits.len() == BITS) else {
            return;
        };
        let spelled = bits.iter().fold(0, |number, bit| number << 1 | bit);
        let named: u64 = number[..6].parse().expect("a number");
        if named % (1 << BITS) == spelled {
            self.right += hits;
        } else {
            self.wrong += hits;
            self.example = format!("{} {hits}", stack.join(";"));
        }
    }
}

/// `defineHiddenClass` came with JDK 15.
fn has_hidden_classes(home: &Path) -> bool {
    let release = std::fs::read_to_string(home.join("release")).unwrap_or_default();
    let version = release
        .split_once("JAVA_VERSION=\"")
        .and_then(|(_, version)| version.split(['.', '-', '"']).next());
    version.and_then(|version| version.parse().ok()).is_some_and(|version: u32| version >= 15)
}

fn record(home: &Path, capture: &str) -> Told {
    let classes = compile(home, "Generations.java");
    let target = start(home, &classes, OPTIONS, &["Generations", "20000000"]);
    let file = classes.join(format!("{capture}.json"));
    let arguments = [
        "record",
        "-p",
        &target.pid().to_string(),
        "--capture",
        capture,
        "-d",
        "3s",
        "--metric",
        "cpu",
        "-o",
    ];
    let done = Command::new(env!("CARGO_BIN_EXE_sampletop"))
        .args(arguments)
        .arg(&file)
        .output()
        .expect("it starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Told::read(&std::fs::read_to_string(&file).expect("a report"))
}

#[test]
fn no_method_has_the_time_of_the_one_that_was_in_its_place() {
    if !can_test() || !need_root("reads another process by every way of capture") {
        return;
    }
    for home in JDKS.iter().filter(|home| has_hidden_classes(home)) {
        for capture in ["bpf", "perf"] {
            let told = record(home, capture);
            // Each method burns for some 30 ms: the first sample of each is uncertain.
            assert!(told.right > 10 && told.replaced > 0, "{} {capture}: {told:?}", home.display());
            // Without the checks of replaced code there are more than 20.
            assert!(told.wrong <= 1, "{} {capture}: {told:?}", home.display());
        }
    }
}
