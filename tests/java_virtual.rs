//! Virtual threads: stacks are named by the mounted thread, never by another. The program's methods
//! are named like the threads that call them, so each stack itself shows which name is right.

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;

use common::java::{EVERY_JDK, Jdk, can_test, output};
use common::{Recording, Running, skipped};
use serde_json::Value;

/// The kinds of threads, by the first letters of their names, and those without a name.
const KINDS: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "nameless"];
const HOLDER: &str = "holds its carrier";
/// Permitted standard deviations: nine comparisons for each of two JDKs together fail once in 1.4
/// million runs.
const Z: f64 = 5.5;

/// 17, 25, ...; 1 for JDK 8.
fn version(jdk: &Jdk) -> u32 {
    let said = jdk.tool("java").arg("-version").output().expect("it runs").stderr;
    let said = String::from_utf8_lossy(&said);
    let version = said.split_once("version \"").expect("it says its version").1;
    version
        .split(['.', '-', '"', '_'])
        .next()
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

/// Returns how much each kind has done so far.
fn done(target: &mut Running) -> Vec<f64> {
    target.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it listens");
    let line = target.lines.next().expect("a line").expect("text");
    line.split(' ').map(|number| number.parse().expect("a number")).collect()
}

/// Hits of methods of the program, by the name of the group.
#[derive(Default)]
struct Told {
    hits: BTreeMap<(String, String), f64>,
    /// On-CPU hits, by method.
    cpu: BTreeMap<String, f64>,
}

impl Told {
    fn read(profile: &Value) -> Told {
        let mut told = Told::default();
        for group in profile["groups"].as_array().expect("groups") {
            let tree = common::tree(group);
            let mut todo: Vec<&Value> = tree.as_array().expect("a tree").iter().collect();
            while let Some(node) = todo.pop() {
                let method =
                    node["frame"].as_str().and_then(|frame| frame.strip_prefix("Virtual."));
                match method.filter(|method| KINDS.contains(method) || *method == "held") {
                    Some(method) => {
                        let group = group["name"].as_str().expect("a name");
                        let number = |of: &str| node[of].as_f64().expect("a number");
                        *told.hits.entry((method.into(), group.into())).or_default() +=
                            number("hits");
                        *told.cpu.entry(method.into()).or_default() += number("cpu_hits");
                    }
                    None => todo.extend(node["children"].as_array().expect("children")),
                }
            }
        }
        told
    }

    /// Hits under the thread's own name, under a carrier's, and all others.
    fn by_name(&self) -> (f64, f64, Vec<String>) {
        let (mut own, mut carriers, mut wrong) = (0.0, 0.0, Vec::new());
        for ((method, group), hits) in &self.hits {
            let prefix = if method == "held" { HOLDER.into() } else { format!("{method}-") };
            if group.starts_with(&prefix) {
                own += hits;
            // JDK 26 shortens the middle of the name that it gives the kernel.
            } else if group.starts_with("ForkJoi") {
                carriers += hits;
            } else {
                wrong.push(format!("{hits} hits in {method} under {group}"));
            }
        }
        (own, carriers, wrong)
    }

    /// Hits of a method under its thread's own name, and all.
    fn of(&self, method: &str, name: &str) -> (f64, f64) {
        let hits = self.hits.iter().filter(|((of, _), _)| of == method);
        let own = self.hits.get(&(method.to_owned(), name.to_owned())).copied().unwrap_or(0.0);
        (own, hits.map(|(_, hits)| hits).sum())
    }
}

/// Starts the program, and records it until it has used `ms` of CPU time.
fn record(jdk: &Jdk, options: &[&str], more: &[&str], ms: u64) -> (Told, Vec<f64>, String) {
    let classes = jdk.compile("Virtual.java");
    let scheduler = "-Djdk.virtualThreadScheduler.parallelism=3";
    let exports = "--add-exports=java.base/jdk.internal.vm=ALL-UNNAMED";
    // Background compilation would compile code again during the measurement. If methods are
    // inlined side by side, an interrupted instruction may count as the next method's.
    let apart = ["-Xbatch", "-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Virtual::*"];
    let options = [&apart[..], &[scheduler, exports], options].concat();
    let mut target = jdk.start(&classes, &options, &["Virtual"]);
    let pid = target.pid().to_string();
    let before = done(&mut target.running);
    let mut record = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    // A JSON reader limits the depth: hides callees of the program's methods.
    const DEEP: &str = r"^(Virtual\.descend|java\.util\..*)$";
    record
        .args([
            "record",
            "-p",
            &pid,
            "--format",
            "json",
            "--group",
            "name",
            "--hide",
            DEEP,
            "--interesting",
            "Virtual.",
        ])
        .args(more);
    let recording = Recording::start(&mut record);
    recording.until_used(target.pid(), ms);
    let profile = recording.end();
    assert!(profile.status.success(), "{}", String::from_utf8_lossy(&profile.stderr));
    let after = done(&mut target.running);
    let work = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let dump = output(Command::new(env!("CARGO_BIN_EXE_sampletop")).args(["dump", "-p", &pid]));
    (Told::read(&serde_json::from_slice(&profile.stdout).expect("json")), work, dump)
}

fn with_virtual_threads() -> Vec<&'static Jdk> {
    let jdks: Vec<&Jdk> = EVERY_JDK.iter().filter(|jdk| version(jdk) >= 21).collect();
    if jdks.is_empty() {
        skipped(
            std::thread::current().name().unwrap_or("java_virtual"),
            "no JDK from 21 on in /usr/lib/jvm",
        );
    }
    jdks
}

#[test]
fn who_is_mounted_goes_by_its_own_name() {
    if !can_test() {
        return;
    }
    for jdk in with_virtual_threads() {
        let (told, work, dump) = record(jdk, &["-XX:+UseG1GC"], &["-i", "5ms"], 5_000);
        let what = format!("{}: {:?} {:?}; work {work:?}", jdk.name(), told.hits, told.cpu);
        let (own, carriers, wrong) = told.by_name();
        assert_eq!(wrong, Vec::<String>::new(), "{what}");
        assert!(own > carriers, "{what}");
        // A waiting thread is observed while it waits.
        let (held, all) = told.of("held", HOLDER);
        assert!(held > all / 2.0, "{what}");
        let scan: f64 = KINDS.iter().map(|kind| told.cpu.get(*kind).copied().unwrap_or(0.0)).sum();
        assert!(scan > 300.0, "{what}");
        for (kind, work_of_kind) in KINDS.iter().zip(&work) {
            let truth = work_of_kind / work.iter().sum::<f64>();
            let found = told.cpu.get(*kind).copied().unwrap_or(0.0) / scan;
            let allowed = Z * (truth * (1.0 - truth) / scan).sqrt() + 2.0 / scan;
            assert!(
                (truth - found).abs() <= allowed,
                "{kind}: {found} of {truth}, {scan} looks; {what}"
            );
        }
        let notice = "its virtual threads are visible while they are mounted";
        assert!(dump.contains("frames on the heap") || dump.contains(notice), "{dump}");
    }
}

/// With objects that move at any time, and by the other backends.
#[test]
fn it_never_goes_by_anothers() {
    if !can_test() {
        return;
    }
    for jdk in with_virtual_threads() {
        for (options, more) in [
            (&["-XX:+UseZGC"][..], &["--capture", "bpf"][..]),
            (&["-XX:+UseParallelGC", "-Xmn8m"], &["--capture", "perf"]),
            (
                &["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
                &["--capture", "perf", "-i", "50ms"],
            ),
        ] {
            let (told, _, _) = record(jdk, options, more, 1_500);
            let (own, carriers, wrong) = told.by_name();
            assert_eq!(wrong, Vec::<String>::new(), "{} {options:?} {more:?}", jdk.name());
            assert!(own + carriers > 0.0, "{} {options:?} {more:?}", jdk.name());
        }
    }
}
