//! Java stacks and thread names against `jstack`, frame by frame with lines, on every JDK of this
//! machine.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::LazyLock;

use common::java::{EVERY_JDK, JDKS, Jdk, Jvm, can_test, output};
use common::{Recording, states, wait_until};
use regex::Regex;
use serde_json::Value;

/// A frame: method, and jstack's text in parentheses behind it.
type Frame = (String, String);

/// Returns jstack's output: by thread id its name and frames, innermost first.
fn jstack(jdk: &Jdk, target: &Jvm) -> BTreeMap<u64, (String, Vec<Frame>)> {
    static THREAD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"^"(.*)" .*\bnid=(0x[0-9a-f]+|\d+)"#).expect("a pattern"));
    static FRAME: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^\s+at ([^(]+)\((.*)\)$").expect("a pattern"));
    let mut threads: BTreeMap<u64, (String, Vec<Frame>)> = BTreeMap::new();
    let mut current = None;
    let utf8 = ["-J-Dfile.encoding=UTF-8", "-J-Dstdout.encoding=UTF-8"];
    // jstack omits the line end after a lock that the compiler eliminated.
    let text = output(&mut jdk.on("jstack", &utf8, target)).replace(")\tat ", ")\n\tat ");
    for line in text.lines() {
        if let Some(found) = THREAD.captures(line) {
            let id = found[2]
                .strip_prefix("0x")
                .map_or(found[2].parse(), |hex| u64::from_str_radix(hex, 16));
            let id = id.expect("a number");
            threads.insert(id, (found[1].to_string(), Vec::new()));
            current = Some(id);
        } else if let Some(found) = FRAME.captures(line)
            && let Some((_, frames)) = current.and_then(|id| threads.get_mut(&id))
        {
            // Modules precede classes and files. Removes what differs from run to run.
            let place = found[2].rsplit('/').next().unwrap_or_default().to_string();
            frames.push((normal(&found[1]), place));
        }
    }
    let ours = target.threads(threads.keys().copied());
    threads.into_iter().filter_map(|(id, thread)| Some((*ours.get(&id)?, thread))).collect()
}

/// Removes the numbers of generated classes.
fn normal(method: &str) -> String {
    static ADDRESS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"/(0x[0-9a-f]+|\d+)\.").expect("a pattern"));
    static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(\$\$Lambda|Generated\w+Accessor)\$?\d+").expect("a pattern")
    });
    let method = ADDRESS.replace_all(method, ".");
    let method = NUMBER.replace_all(&method, "$1");
    method.rsplit('/').next().unwrap_or_default().to_string()
}

struct Thread {
    pid: u64,
    tid: u64,
    name: String,
    state: String,
    complete: bool,
    /// Java frames only.
    java: Vec<Frame>,
    /// Frames of all kinds: kind, function, tier.
    all: Vec<(String, String, Option<String>)>,
}

fn dump(targets: &[&Jvm], options: &[&str]) -> Vec<Thread> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(["dump", "--format", "json"]).args(options);
    for target in targets {
        command.args(["-p", &target.pid().to_string()]);
    }
    let report: Value = serde_json::from_str(&output(&mut command)).expect("json");
    let told = report["targets"].as_array().expect("targets");
    assert!(
        told.len() == targets.len() && told.iter().all(|target| target["runtime"] == "jvm"),
        "{told:?}"
    );
    let threads = report["threads"].as_array().expect("threads");
    let text = |value: &Value| value.as_str().map(str::to_string);
    let thread = |thread: &Value| {
        let frames = thread["frames"].as_array().expect("frames");
        let java = frames.iter().filter(|frame| frame["kind"] == "java").map(|frame| {
            let place = match (frame["tier"].as_str(), text(&frame["file"]), frame["line"].as_u64())
            {
                (Some("native"), ..) => "Native Method".to_string(),
                (_, None, _) => "Unknown Source".to_string(),
                (_, Some(file), None) => file,
                (_, Some(file), Some(line)) => format!("{file}:{line}"),
            };
            (text(&frame["frame"]).expect("a name"), place)
        });
        let all = frames.iter().map(|frame| {
            (
                text(&frame["kind"]).unwrap_or_default(),
                text(&frame["frame"]).unwrap_or_default(),
                text(&frame["tier"]),
            )
        });
        Thread {
            pid: thread["pid"].as_u64().expect("an id"),
            tid: thread["tid"].as_u64().expect("an id"),
            name: text(&thread["name"]).expect("a name"),
            state: text(&thread["state"]).expect("a state"),
            complete: thread["complete"] == true,
            java: java.collect(),
            all: all.collect(),
        }
    };
    threads.iter().map(thread).collect()
}

/// Threads of Blocked.java.
const THREADS: usize = 45;

/// Starts Blocked.java, and returns when all of its threads are in their final waits.
fn blocked(jdk: &Jdk, options: &[&str], seed: &str) -> Jvm {
    let classes = jdk.compile("Blocked.java");
    let target = jdk.start(&classes, options, &["Blocked", seed, &THREADS.to_string()]);
    // The virtual machine reports a thread as waiting a moment before it waits.
    let waits =
        |(state, name): &(char, String)| *state == 'S' || !name.starts_with("a thread with");
    wait_until("all wait", || states(target.pid()).iter().all(waits));
    target
}

/// Compares every blocked thread's Java frames and name with jstack's. Returns the tiers that
/// occurred.
fn check(jdk: &Jdk, options: &[&str], seed: &str, capture: &[&str]) -> BTreeSet<String> {
    let what = format!("{} {options:?} seed {seed} {capture:?}", jdk.name());
    let target = blocked(jdk, options, seed);
    compare(&dump(&[&target], capture), &target, jdk, options, &what)
}

fn compare(
    ours: &[Thread],
    target: &Jvm,
    jdk: &Jdk,
    options: &[&str],
    what: &str,
) -> BTreeSet<String> {
    let theirs = jstack(jdk, target);
    let ours: Vec<&Thread> =
        ours.iter().filter(|thread| thread.pid == u64::from(target.pid())).collect();
    let mut tiers = BTreeSet::new();
    let mut compared = 0;
    for thread in ours.iter().filter(|thread| thread.name.starts_with("a thread with")) {
        let told = theirs.get(&thread.tid);
        let (name, frames) =
            told.unwrap_or_else(|| panic!("{what}: jstack has no {} {}", thread.tid, thread.name));
        // ZGC moves objects while the program runs. References are corrected when the program
        // follows them (jstack does). Until then their targets cannot be read, and the kernel's
        // name is shown.
        let zgc = options.contains(&"-XX:+UseZGC")
            && name.as_bytes().get(..15) == Some(thread.name.as_bytes());
        // jstack does not support characters beyond 16 bits, and that of JDK 11 splits others at
        // the end of its buffer.
        let ascii = |name: &str| name.chars().filter(char::is_ascii).collect::<String>();
        let torn = name.contains('\u{fffd}') && ascii(name) == ascii(&thread.name);
        let ours = if zgc || torn { name } else { &thread.name };
        let differs = thread.java.iter().zip(frames).position(|(ours, theirs)| ours != theirs);
        assert_eq!(
            (ours, thread.java.len(), differs.map(|at| &thread.java[at])),
            (name, frames.len(), differs.map(|at| &frames[at])),
            "{what}"
        );
        assert!(thread.complete, "{what}: {} {:?}", thread.name, thread.all);
        tiers.extend(
            thread
                .all
                .iter()
                .filter(|(kind, ..)| kind == "java")
                .filter_map(|(.., tier)| tier.clone()),
        );
        // The number modulo nine selects the kind of wait.
        let number: usize = name
            .split_ascii_whitespace()
            .nth(6)
            .and_then(|word| word.parse().ok())
            .expect("a number");
        let state =
            ["sleep", "wait", "wait", "lock", "wait", "lock", "wait", "wait", "poll"][number % 9];
        // Before JDK 13 it first polls the one descriptor, so `read` is also correct. A lock is
        // recognised by names, which some packages of the library lack.
        let polls_one = thread
            .java
            .first()
            .is_some_and(|(method, _)| method == "java.net.PlainSocketImpl.socketAccept");
        let nameless = thread.all.iter().any(|(_, function, _)| function.starts_with("libjvm.so!"));
        let state = match state {
            "poll" if polls_one => "io",
            "lock" if nameless && thread.state == "wait" => "wait",
            state => state,
        };
        assert_eq!(thread.state, state, "{what}: {name}");
        compared += 1;
    }
    assert_eq!(compared, THREADS, "{what}");
    // Native frames are below and above.
    assert!(
        ours.iter().all(|thread| !thread.complete
            || thread.all.last().is_some_and(|(kind, ..)| kind == "native"))
    );
    tiers
}

#[test]
fn blocked_stacks_are_what_jstack_says() {
    if !can_test() {
        return;
    }
    for jdk in EVERY_JDK.iter() {
        let mut tiers = BTreeSet::new();
        for (seed, options) in [
            ("1", &[][..]),
            ("2", &["-Xint"]),
            ("3", &["-XX:TieredStopAtLevel=1", "-Xbatch"]),
            ("4", &["-XX:-TieredCompilation", "-Xbatch"]),
            ("5", &["-XX:+UseZGC"]),
            ("6", &["-XX:+UseShenandoahGC"]),
            (
                "7",
                &[
                    "-XX:+UseParallelGC",
                    "-XX:-UseCompressedOops",
                    "-XX:-UseCompressedClassPointers",
                    "-Xshare:off",
                ],
            ),
            (
                "8",
                &[
                    "-XX:+UseSerialGC",
                    "-XX:+UseCompactObjectHeaders",
                    "-XX:-SegmentedCodeCache",
                    "-Xshare:off",
                ],
            ),
            ("9", &["-XX:+PreserveFramePointer"]),
        ] {
            tiers.extend(check(jdk, options, seed, &[]));
        }
        let all = ["c1", "c2", "inlined", "interpreted", "native"].map(String::from);
        assert!(
            all.iter().all(|tier| tiers.contains(tier)),
            "{}: not all were met: {tiers:?}",
            jdk.name()
        );
    }
}

/// In these the library of the virtual machine is mapped by a path that is another file here, or
/// none. In a container threads also have other ids.
#[test]
fn in_chroots_and_containers_they_are_the_same() {
    if !can_test() {
        return;
    }
    for numbers in [false, true] {
        let jdk = Jdk::apart(&JDKS[0], numbers);
        let target = blocked(&jdk, &[], "13");
        for capture in ["bpf", "perf"] {
            let ours = dump(&[&target], &["--capture", capture]);
            compare(&ours, &target, &jdk, &[], &format!("{} {capture}", jdk.name()));
            // Names of native frames come from files, which are elsewhere there.
            let mut native =
                ours.iter().flat_map(|thread| &thread.all).filter(|(kind, ..)| kind == "native");
            assert!(native.all(|(_, function, _)| !function.contains("!0x")), "{}", jdk.name());
        }
    }
}

/// The oldest and the newest JDK here, at the same time: each has its own tables.
#[test]
fn virtual_machines_of_two_versions_have_their_own_names() {
    if !can_test() {
        return;
    }
    let mut jdks: Vec<&Jdk> = EVERY_JDK.iter().collect();
    jdks.sort_by_key(|jdk| jdk.version());
    let (old, new) = (jdks[0], jdks[jdks.len() - 1]);
    let (one, other) = (blocked(old, &[], "14"), blocked(new, &[], "15"));
    let ours = dump(&[&one, &other], &[]);
    for (jdk, target) in [(old, &one), (new, &other)] {
        compare(&ours, target, jdk, &[], &format!("{} beside another", jdk.name()));
    }
}

/// Only the stack pointer is known of the registers, as from /proc.
#[test]
fn without_bpf_they_are_the_same() {
    if !can_test() {
        return;
    }
    for jdk in EVERY_JDK.iter() {
        check(jdk, &[], "11", &["--capture", "perf"]);
        check(jdk, &["-Xint"], "12", &["--capture", "perf"]);
    }
}

/// Callers and callees in Busy.java.
const CALLS: &[(&str, &str)] = &[
    ("loop", "work"),
    ("work", "hot"),
    ("work", "rec"),
    ("work", "catches"),
    ("work", "maps"),
    ("work", "copies"),
    ("hot", "inner"),
    ("rec", "rec"),
    ("rec", "leaf"),
    ("catches", "thrown"),
];

/// Time between samples of busy threads, us.
const INTERVAL_US: f64 = 2_000.0;

/// Contents of stacks of busy threads.
#[derive(Default)]
struct Told {
    /// CPU time of stacks that end at the right frame, and of others, us.
    whole: u64,
    broken: u64,
    /// The others, by their outermost frames.
    ends: BTreeMap<String, u64>,
    /// Calls that are not in the source.
    wrong: BTreeSet<(String, String)>,
    methods: BTreeSet<String>,
    /// CPU time of System.arraycopy, called as in Copies.java, us.
    copying: u64,
}

impl Told {
    /// Records busy threads for this CPU time; next to no stack may be broken.
    fn record(target: &Jvm, capture: &str, cpu_ms: u64, what: &str) -> Told {
        let mut record = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        let pid = target.pid().to_string();
        record.args(["record", "-p", &pid, "-i", "2ms", "--capture", capture]);
        record.args(["--format", "folded", "--no-kernel", "--group", "name", "--metric", "cpu"]);
        let recording = Recording::start(&mut record);
        recording.until_used(target.pid(), cpu_ms);
        let output = recording.end();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        let told = Told::read(&String::from_utf8(output.stdout).expect("text"));
        println!("{what}: {} us in whole stacks, {} us in broken ones", told.whole, told.broken);
        assert!(told.whole > 1_000_000, "{what}: {} us", told.whole);
        // One in a thousand, plus five standard deviations of these few samples, plus three for
        // their skew.
        let expected = (told.whole + told.broken) as f64 / INTERVAL_US * 0.001;
        let broken = told.broken as f64 / INTERVAL_US;
        assert!(
            broken <= expected + 5.0 * expected.sqrt() + 3.0,
            "{what}: of {} us {:?} are broken",
            told.whole,
            told.ends
        );
        told
    }

    /// Reads the format `folded`, which is flat: these stacks may be deep.
    fn read(report: &str) -> Told {
        let mut told = Told::default();
        for line in report.lines().filter(|line| line.starts_with("busy thread")) {
            let (stack, value) = line.rsplit_once(' ').expect("a value");
            let value: u64 = value.parse().expect("a number");
            let frames: Vec<&str> = stack.split(';').skip(1).collect();
            // The outermost frame stands first. CPU time without a sample is not a walk.
            let first = frames.first().copied().unwrap_or_default();
            if first.starts_with("[cpu") {
                continue;
            }
            if first.starts_with('[') {
                told.broken += value;
                *told.ends.entry(frames[..frames.len().min(6)].join(";")).or_default() += value;
            } else {
                told.whole += value;
            }
            const COPYING: [&str; 3] = ["Copies.loop", "Copies.copy", "java.lang.System.arraycopy"];
            if frames.windows(3).any(|calls| calls == COPYING) {
                told.copying += value;
            }
            for (at, frame) in frames.iter().enumerate() {
                let Some(method) = frame.strip_prefix("Busy.") else { continue };
                told.methods.insert(method.into());
                let caller = at.checked_sub(1).and_then(|at| frames[at].strip_prefix("Busy."));
                if let Some(caller) = caller.filter(|caller| !CALLS.contains(&(*caller, method))) {
                    told.wrong.insert((caller.into(), method.into()));
                }
            }
        }
        told
    }
}

#[test]
fn busy_threads_are_walked_to_their_end() {
    if !can_test() {
        return;
    }
    for jdk in EVERY_JDK.iter() {
        let classes = jdk.compile("Busy.java");
        for (options, capture) in [
            (&[][..], "bpf"),
            (&["-Xint"], "bpf"),
            (&["-XX:TieredStopAtLevel=1"], "bpf"),
            (&["-XX:-TieredCompilation"], "perf"),
            (&["-Xint"], "perf"),
        ] {
            let what = format!("{} {options:?} {capture}", jdk.name());
            let target = jdk.start(&classes, options, &["Busy"]);
            let told = Told::record(&target, capture, 6_000, &what);
            assert!(told.wrong.is_empty(), "{what}: {:?}", told.wrong);
            // In JDK 8's optimised code a counted loop has no safepoint whose debug information
            // names the running method. Its samples are shown under the caller.
            let kept = |method: &&str| !(*method == "hot" && jdk.name().contains("java-8-"));
            for method in ["loop", "work", "hot", "rec", "catches", "maps", "copies"]
                .iter()
                .filter(|method| kept(method))
            {
                assert!(
                    told.methods.contains(*method),
                    "{what}: {method} is not among {:?}",
                    told.methods
                );
            }
        }
    }
}

/// Interpreted code copies arrays in assembly of the virtual machine that has no unwind information
/// and is entered through pointers and jumps.
#[test]
fn copies_of_arrays_have_their_callers() {
    if !can_test() {
        return;
    }
    for jdk in EVERY_JDK.iter() {
        let classes = jdk.compile("Copies.java");
        for capture in ["bpf", "perf"] {
            let what = format!("{} {capture}", jdk.name());
            let target = jdk.start(&classes, &["-Xint"], &["Copies"]);
            let told = Told::record(&target, capture, 2_000, &what);
            assert!(told.copying * 2 > told.whole, "{what}: {} of {}", told.copying, told.whole);
        }
    }
}
