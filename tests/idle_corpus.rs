//! Idle rules against programs whose threads say by their names what they do. A thread of a pool
//! is called `rest-POOL` while it waits for work, and `job-POOL` while it waits inside a job.
//!
//! A thread in a job must never be called idle, and at most one pool in twenty that waits for work
//! may be called busy.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::java::{JDKS, can_test, output, start};
use common::{Recording, Running, need_root, states, wait_until};
use prost::Message;
use sampletop::formats::pprof::proto::{Profile, Sample};

/// How long each program is watched after its threads came to rest.
const WATCHED: Duration = Duration::from_secs(2);

/// Minimum pools that wait for work and pools with jobs, over all programs.
const POOLS_NEEDED: usize = 40;

/// Waits for work that are called busy, with the reason. They count as mistakes.
const KNOWN_BUSY: &[(&str, &str)] = &[
    ("cvconsume", "`get` is as often a wait for a result"),
    ("gqueue", "the frame of g_thread_new has no name, so the function may be a task"),
    ("gloop", "GLib polls one descriptor, which is state io"),
    ("book", "waits for the mutex around the receiver; lock is never idle"),
];

/// Arguments of Mains.java: the names of its main thread.
const MAINS: [&str; 8] = [
    "rest-mainwait",
    "rest-mainuntil",
    "rest-mainfuture",
    "rest-mainexecutor",
    "job-mainload",
    "job-mainsum",
    "job-mainquery",
    "job-mainconfirm",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/idle_corpus")
}

/// Compiles a program of the corpus. Panics with the compiler's messages if that fails.
fn compiled(source: &str, variant: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("idle-{variant}-{}", std::process::id()));
    output(
        Command::new(compiler)
            .args(["-g", "-pthread", "-o"])
            .arg(&out)
            .arg(folder().join(source))
            .args(flags),
    );
    out
}

/// What was observed of one thread under one name.
#[derive(Default)]
struct Observed {
    idle_ns: i64,
    wall_ns: i64,
    /// Frames of the heaviest sample, innermost first.
    stack: Vec<String>,
    heaviest: (i64, bool),
}

/// Threads of all programs by truth and verdict; mistakes with their stacks.
#[derive(Default)]
struct Matrix {
    rest_idle: usize,
    rest_busy: usize,
    job_idle: usize,
    job_busy: usize,
    /// Pools of one program that wait for work, and whether each of their threads is called idle.
    rests: BTreeMap<String, bool>,
    pools: BTreeSet<String>,
    mistakes: BTreeSet<String>,
}

impl Matrix {
    /// Watches a program whose threads have come to rest.
    fn watch(&mut self, program: &str, target: &Running) {
        let sleeps = |(state, name): &(char, String)| *state == 'S' || name.starts_with("rest-");
        wait_until(program, || states(target.pid()).iter().all(sleeps));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("profile.pb.gz");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        command.args(["record", "--idle", "-p", &target.pid().to_string(), "-o"]).arg(&file);
        let recording = Recording::start(&mut command);
        std::thread::sleep(WATCHED);
        let said = recording.end();
        assert!(said.status.success(), "{program}: {}", String::from_utf8_lossy(&said.stderr));
        self.add(program, &profile(&file));
    }

    fn add(&mut self, program: &str, profile: &Profile) {
        for ((name, _), of) in observed(profile) {
            let Some((truth, pool)) = name.split_once('-') else { continue };
            let is_rest = match truth {
                "rest" => true,
                "job" => false,
                _ => continue,
            };
            // A job's wait may not be hidden at any time. At rest a thread may wake up.
            let is_idle = if is_rest { of.idle_ns * 2 > of.wall_ns } else { of.idle_ns > 0 };
            match (is_rest, is_idle) {
                (true, true) => self.rest_idle += 1,
                (true, false) => self.rest_busy += 1,
                (false, true) => self.job_idle += 1,
                (false, false) => self.job_busy += 1,
            }
            self.pools.insert(pool.to_owned());
            if is_rest {
                *self.rests.entry(format!("{program} {pool}")).or_insert(true) &= is_idle;
            }
            let is_known = is_rest && KNOWN_BUSY.iter().any(|(known, _)| *known == pool);
            if is_rest != is_idle && !is_known {
                let stack = of.stack.join(" < ");
                self.mistakes.insert(format!("{program}: {name}: {stack}"));
            }
        }
    }
}

fn profile(file: &Path) -> Profile {
    let bytes = std::fs::read(file).expect("written");
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).expect("gzip");
    Profile::decode(&plain[..]).expect("pprof")
}

/// Returns what was observed, by name and id of each thread.
fn observed(profile: &Profile) -> BTreeMap<(String, i64), Observed> {
    let text = |at: i64| profile.string_table[at as usize].as_str();
    let label = |sample: &Sample, key: &str| {
        let label = sample.label.iter().find(|label| text(label.key) == key);
        label.map(|label| (text(label.str).to_owned(), label.num))
    };
    let functions: BTreeMap<u64, &str> =
        profile.function.iter().map(|function| (function.id, text(function.name))).collect();
    let names: BTreeMap<u64, Vec<&str>> = profile
        .location
        .iter()
        .map(|location| {
            (location.id, location.line.iter().map(|line| functions[&line.function_id]).collect())
        })
        .collect();
    let mut threads: BTreeMap<(String, i64), Observed> = BTreeMap::new();
    for sample in &profile.sample {
        let (name, _) = label(sample, "thread").expect("every sample has a thread");
        let (_, tid) = label(sample, "tid").expect("every sample has an id");
        let is_idle = label(sample, "idle").is_some();
        let wall_ns = sample.value[0];
        let of = threads.entry((name, tid)).or_default();
        of.wall_ns += wall_ns;
        of.idle_ns += if is_idle { wall_ns } else { 0 };
        if wall_ns > of.heaviest.0 {
            of.heaviest = (wall_ns, is_idle);
            of.stack =
                sample.location_id.iter().flat_map(|id| &names[id]).map(|f| (*f).into()).collect();
        }
    }
    threads
}

#[test]
fn pools_at_rest_are_idle_and_waits_in_jobs_are_not() {
    if !need_root("reads another process by every way of capture") || !can_test() {
        return;
    }
    let mut matrix = Matrix::default();
    let libraries = output(Command::new("pkg-config").args([
        "--cflags",
        "--libs",
        "glib-2.0",
        "libuv",
        "libevent",
        "libevent_pthreads",
    ]));
    let libraries: Vec<&str> = libraries.split_whitespace().chain(["-lev"]).collect();
    for (source, variant, compiler, flags) in [
        ("pools.cpp", "cpp-O0", "c++", &["-std=c++20", "-O0"][..]),
        ("pools.cpp", "cpp-O2", "c++", &["-std=c++20", "-O2"]),
        ("threads.c", "c-O0", "cc", &["-O0"]),
        ("threads.c", "c-O2", "cc", &["-O2"]),
        ("loops.c", "loops", "cc", &libraries),
        ("asio.cpp", "asio", "c++", &["-std=c++20", "-O2"]),
        ("tasks.cpp", "openmp-gnu", "c++", &["-O2", "-fopenmp"]),
        ("tasks.cpp", "openmp-llvm", "clang++", &["-O2", "-fopenmp"]),
        ("tasks.cpp", "tbb", "c++", &["-O2", "-ltbb"]),
    ] {
        let program = compiled(source, variant, compiler, flags);
        matrix.watch(variant, &Running::start(&program, &[]));
    }
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("idle-rust");
    output(
        Command::new(env!("CARGO"))
            .args(["build", "--release", "--locked", "--manifest-path"])
            .arg(folder().join("rust/Cargo.toml"))
            .arg("--target-dir")
            .arg(&target),
    );
    matrix.watch("rust", &Running::start(&target.join("release/idle-corpus"), &[]));
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("idle-go-{}", std::process::id()))
        .join("rest-go");
    let go = std::env::var("SAMPLETOP_TEST_GO").unwrap_or("go".into());
    output(
        Command::new(go)
            .env("CGO_ENABLED", "0")
            .args(["build", "-o"])
            .arg(&program)
            .arg(folder().join("pools.go")),
    );
    matrix.watch("go", &Running::start(&program, &[]));
    for jdk in &*JDKS {
        let classes = tempfile::tempdir().expect("a folder");
        output(
            Command::new(jdk.join("bin/javac"))
                .arg("-d")
                .arg(classes.path())
                .args(["Pools.java", "Mains.java"].map(|file| folder().join(file))),
        );
        let name = jdk.display().to_string();
        matrix.watch(&name, &start(jdk, classes.path(), &[], &["Pools"]));
        for main in MAINS {
            matrix.watch(&name, &start(jdk, classes.path(), &[], &["Mains", main]));
        }
    }

    let Matrix { rest_idle, rest_busy, job_idle, job_busy, rests, pools, mistakes } = matrix;
    let busy = rests.values().filter(|is_idle| !**is_idle).count();
    let mut report = String::from("| | called idle | called busy |\n|---|---|---|\n");
    report += &format!("| waits for work | {rest_idle} | {rest_busy} |\n");
    report += &format!("| waits in a job | {job_idle} | {job_busy} |\n");
    report += &format!("{} pools: {pools:?}\n", pools.len());
    report += &format!("{busy} of {} pools at rest are called busy\n", rests.len());
    report.extend(mistakes.iter().map(|mistake| format!("not expected: {mistake}\n")));
    // On the real stderr: the harness drops what a passing test prints.
    let _ = std::io::stderr().write_all(report.as_bytes());
    assert!(pools.len() >= POOLS_NEEDED, "{} pools", pools.len());
    assert_eq!(job_idle, 0, "waits in a job were called idle");
    assert!(busy * 20 <= rests.len(), "{busy} of {} waits for work were called busy", rests.len());
}
