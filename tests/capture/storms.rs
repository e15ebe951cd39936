//! Continuous change of threads, processes, programs and libraries. Stacks are never wrong, and
//! memory does not grow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sampletop::capture::Sampler;
use sampletop::capture::event_ring::Reader;
use sampletop::config::CaptureChoice;
use sampletop::model::vocabulary::event::{Event, Losses, Observation, Seen};
use sampletop::model::vocabulary::frame::{FrameCode, Ns};
use sampletop::process::mapped_files::Files;
use sampletop::process::target::Target;

use crate::bpf::{Passes, works};
use crate::bpf_stacks::walks::{Stack, Symbols};
use crate::common::{Running, build, need_root};
use crate::support::*;
use crate::thread_scans::FileScans;

/// Starts a sampler that samples with real walks.
fn start_walking(pid: u32, choice: CaptureChoice, files: &Files) -> (Sampler, Reader) {
    start_walking_at(pid, choice, files, 5)
}

pub fn start_walking_at(
    pid: u32,
    choice: CaptureChoice,
    files: &Files,
    interval_ms: u64,
) -> (Sampler, Reader) {
    let target = Arc::new(Target::attach(pid).expect("attached"));
    Sampler::start(vec![target], files.clone(), Default::default(), plan(choice, interval_ms))
        .expect("sampling")
}

/// Permitted contents of stacks: chains of functions, outermost first. Functions in no chain are
/// ignored.
struct Truth<'a> {
    symbols: &'a [&'a Symbols],
    chains: &'a [&'a [&'a str]],
}

/// Stacks of a storm, by their contents.
#[derive(Debug, Default)]
struct Shown {
    whole: usize,
    cut: usize,
    /// The innermost known functions of complete stacks.
    innermost: BTreeSet<String>,
}

impl Truth<'_> {
    /// Checks that each stack is a part of one of the chains without a gap, and that a complete one
    /// begins at a thread's start.
    fn check(&self, files: &Files, scan: &[&Observation]) -> Shown {
        let known: BTreeSet<&str> =
            self.chains.iter().flat_map(|chain| chain.iter().copied()).collect();
        let mut shown = Shown::default();
        for observation in scan {
            let cut = is_cut(observation);
            let all = walked(observation).names(files, self.symbols);
            let of_chains = |names: &[String]| -> Vec<String> {
                names.iter().rev().filter(|name| known.contains(name.as_str())).cloned().collect()
            };
            let names = of_chains(&all);
            // Only a marker may stand for frames.
            let sides: Vec<Vec<String>> =
                all.split(|name| name.starts_with('[')).map(of_chains).collect();
            let is_part = |names: &[String], chain: &&[&str]| {
                chain.windows(names.len().max(1)).any(|part| names.is_empty() || part == names)
            };
            let chain =
                self.chains.iter().find(|chain| sides.iter().all(|names| is_part(names, chain)));
            assert!(chain.is_some(), "no such chain: {all:?} {observation:?}");
            if cut {
                shown.cut += 1;
            } else {
                let begins =
                    |chain: &&[&str]| chain.get(..names.len()).is_some_and(|begin| begin == names);
                let begins = names.is_empty() || self.chains.iter().any(begins);
                assert!(begins, "not whole: {all:?} {observation:?}");
                shown.whole += 1;
                shown.innermost.extend(names.last().map(|name| name.to_string()));
            }
        }
        shown
    }
}

fn is_cut(observation: &Observation) -> bool {
    observation.stack.iter().any(|frame| matches!(frame.decode(), FrameCode::Marker { .. }))
}

pub fn walked(observation: &Observation) -> Stack {
    Stack {
        walk: sampletop::unwinder::Walk { end: None, recovered: false },
        frames: observation.stack.clone(),
    }
}

fn stacks<'a>(events: &'a [Event], who: &str) -> Vec<&'a Observation> {
    scan(events).filter(|l| name(l).starts_with(who) && l.seen != Seen::Running).collect()
}

pub fn last_losses(events: &[Event]) -> Losses {
    let last = events
        .iter()
        .rev()
        .find_map(|e| if let Event::Tick(t) = e { Some(t.losses) } else { None });
    last.expect("a tick")
}

/// Asserts that a stack that was cut was also counted.
fn assert_counted(shown: &Shown, losses: &Losses) {
    let counted = losses.unwind_failed + losses.truncated;
    assert!((shown.cut == 0) || counted > 0, "{} cut, {losses:?}", shown.cut);
}

fn libraries_that_come_and_go_are_never_taken_for_each_other(choice: CaptureChoice) {
    let variant = |what: &str| format!("{what}-{}", choice.word());
    let program = build("storm.c", &variant("load"), &["-O2", "-DWHO=a"]);
    let flags = ["-O2", "-shared", "-fPIC"];
    // Where one library has its functions the other has padding.
    let x =
        build("storm_library.c", &variant("x"), &[&flags[..], &["-DWHO=x", "-DPAD=16"]].concat());
    let y =
        build("storm_library.c", &variant("y"), &[&flags[..], &["-DWHO=y", "-DPAD=2000"]].concat());
    let path = |path: &Path| path.to_str().expect("text").to_owned();
    let mut target = Running::start(&program, &["load", &path(&x), &path(&y)]);
    let files = Files::default();
    let (sampler, mut reader) = start_walking(target.pid(), choice, &files);
    let symbols = [program, x, y].map(|path| Symbols::of(&path));
    let known = symbols.each_ref();
    // Mappings are read once a second, and then it is this one or that one.
    let mut events = read_for(&mut reader, Duration::from_secs(4));
    let (mut of_x, mut of_y, mut whole, mut new) = (0, 0, BTreeMap::new(), 0);
    read_until(&mut reader, &mut events, |events| {
        for observation in stacks(&events[std::mem::replace(&mut new, events.len())..], "loads") {
            let names = walked(observation).names(&files, &known);
            of_x += usize::from(names.iter().any(|name| name == "x_inner"));
            of_y += usize::from(names.iter().any(|name| name == "y_inner"));
            if let Some(inner) = ["a_burn", "a_nap"]
                .iter()
                .find(|inner| !is_cut(observation) && names.iter().any(|n| n == *inner))
            {
                *whole.entry(*inner).or_insert(0) += 1;
            }
        }
        of_x > 20 && of_y > 20 && whole.len() == 2 && whole.values().sum::<usize>() > 100
    });
    ask(&mut target, "\n");
    drop(sampler);
    events.extend(reader.by_ref());
    let back = |who: &'static str, inner: &'static str| {
        let [outer, middle] =
            if who == "x" { ["x_outer", "x_inner"] } else { ["y_outer", "y_inner"] };
        ["a_load_thread", "a_load", "library_entry", outer, middle, "a_back", inner]
    };
    let chains = [back("x", "a_burn"), back("x", "a_nap"), back("y", "a_burn"), back("y", "a_nap")];
    let truth = Truth { symbols: &known, chains: &chains.each_ref().map(|chain| &chain[..]) };
    let shown = truth.check(&files, &stacks(&events, "loads"));
    assert_counted(&shown, &last_losses(&events));
    assert!(
        shown.whole > 100 && ["a_burn", "a_nap"].iter().all(|f| shown.innermost.contains(*f)),
        "{shown:?}"
    );
}

fn programs_that_follow_each_other_are_never_taken_for_each_other(choice: CaptureChoice) {
    let one = build("storm.c", &format!("one-{}", choice.word()), &["-O2", "-DWHO=a"]);
    let two = build("storm.c", &format!("two-{}", choice.word()), &["-O1", "-DWHO=b", "-no-pie"]);
    const COUNT: usize = 150;
    let path = |path: &Path| path.to_str().expect("text").to_owned();
    let mut target = Running::start(&one, &["exec", &COUNT.to_string(), &path(&one), &path(&two)]);
    let files = Files::default();
    let (sampler, mut reader) = start_walking(target.pid(), choice, &files);
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| ticks(events) > 2);
    ask(&mut target, "\n");
    std::thread::scope(|scope| {
        let end = scope.spawn(|| target.lines.next().expect("a line").expect("text"));
        while !end.is_finished() {
            events.extend(reader.by_ref());
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(end.join().expect("an answer"), "ready");
    });
    drop(sampler);
    events.extend(reader.by_ref());
    let execs = events.iter().filter(|event| matches!(event, Event::Exec { .. })).count();
    // Each program burns 8 ms and naps 8 ms: none is missed unless ticks come too late.
    let rounds: Vec<Ns> =
        events.iter().filter(|e| matches!(e, Event::Tick(_))).map(time_of).collect();
    let missed: u64 = rounds.windows(3).map(|three| (three[2] - three[0]) / 16_000_000).sum();
    assert!(execs + missed as usize >= COUNT && execs <= COUNT, "{execs}, {missed} were brief");
    let symbols = [one, two].map(|path| Symbols::of(&path));
    let chains: [&[&str]; 4] = [
        &["main", "a_exec_outer", "a_exec_inner", "a_burn"],
        &["main", "a_exec_outer", "a_exec_inner", "a_nap"],
        &["main", "b_exec_outer", "b_exec_inner", "b_burn"],
        &["main", "b_exec_outer", "b_exec_inner", "b_nap"],
    ];
    let truth = Truth { symbols: &symbols.each_ref(), chains: &chains };
    let shown = truth.check(&files, &stacks(&events, ""));
    assert_counted(&shown, &last_losses(&events));
    for function in ["a_burn", "b_burn", "a_nap", "b_nap"] {
        assert!(shown.innermost.contains(function), "{function}: {shown:?}");
    }
}

fn children_that_come_and_go_are_not_the_target(choice: CaptureChoice) {
    let program = build("storm.c", &format!("fork-{}", choice.word()), &["-O2", "-DWHO=a"]);
    let mut target = Running::start(&program, &["fork"]);
    let files = Files::default();
    let (sampler, mut reader) = start_walking(target.pid(), choice, &files);
    let mut events = read_for(&mut reader, Duration::from_secs(5));
    assert_eq!(sampler.status().backend, choice.word());
    let mut children = || {
        ask(&mut target, "\n");
        next_number(&mut target)
    };
    read_until(&mut reader, &mut events, |events| {
        children() > 300
            && stacks(events, "").iter().filter(|observation| !is_cut(observation)).count() > 200
    });
    ask(&mut target, "end\n");
    drop(sampler);
    events.extend(reader.by_ref());
    // Nothing of the children is reported, under any name.
    let threads: BTreeSet<_> =
        scan(&events).map(|observation| observation.thread).filter(is_known).collect();
    assert_eq!(threads.len(), 4, "{threads:?}");
    assert!(!events.iter().any(|event| matches!(event, Event::Exec { .. })));
    let symbols = [Symbols::of(&program)];
    let chains: [&[&str]; 3] =
        [&["a_fork_thread", "a_fork_outer", "a_fork_inner", "a_burn"], &["a_child"], &["main"]];
    let truth = Truth { symbols: &symbols.each_ref(), chains: &chains };
    let shown = truth.check(&files, &stacks(&events, ""));
    assert_counted(&shown, &last_losses(&events));
    assert!(shown.whole > 100 && !shown.innermost.contains("a_child"), "{shown:?}");
    assert!(["a_fork_inner", "a_burn"].iter().all(|f| shown.innermost.contains(*f)), "{shown:?}");
}

/// Threads that move while they are read: that is noticed and counted, and no stack of that read is
/// reported.
fn threads_that_move_while_they_are_read_are_torn(choice: CaptureChoice) {
    let program = build("storm.c", &format!("switch-{}", choice.word()), &["-O2", "-DWHO=a"]);
    let target = Running::start(&program, &["switch"]);
    let files = Files::default();
    let (sampler, mut reader) = start_walking(target.pid(), choice, &files);
    let mut events = Vec::new();
    let torn = |event: &Event| matches!(event, Event::Tick(tick) if tick.losses.torn >= 3);
    // As many stacks as the end of this test asks for: three can be torn before.
    read_until(&mut reader, &mut events, |events| {
        events.iter().rev().take(50).any(torn)
            && stacks(events, "").iter().filter(|observation| !is_cut(observation)).count() > 50
    });
    drop(sampler);
    let symbols = [Symbols::of(&program)];
    let chains: [&[&str]; 2] = [&["a_switch_thread", "a_pass"], &["main"]];
    let shown =
        Truth { symbols: &symbols.each_ref(), chains: &chains }.check(&files, &stacks(&events, ""));
    assert_counted(&shown, &last_losses(&events));
    assert!(shown.whole > 20 && shown.innermost.contains("a_pass"), "{shown:?}");
}

macro_rules! by_both {
    ($($test:ident)*) => {
        mod by_perf {
            $(#[test] fn $test() { super::$test(super::CaptureChoice::Perf) })*
        }
        mod by_bpf {
            $(#[test] fn $test() { if super::works() { super::$test(super::CaptureChoice::Bpf) } })*
        }
    };
}

by_both! {
    libraries_that_come_and_go_are_never_taken_for_each_other
    programs_that_follow_each_other_are_never_taken_for_each_other
    children_that_come_and_go_are_not_the_target
    threads_that_move_while_they_are_read_are_torn
}

/// A `sampletop record` of a target that will exit, and its number of open files.
struct Recording {
    child: Child,
    file: std::path::PathBuf,
}

impl Recording {
    fn start(backend: CaptureChoice, pid: u32, folder: &Path) -> Recording {
        let file = folder.join(format!("{}.json", backend.word()));
        let child = Command::new(env!("CARGO_BIN_EXE_sampletop"))
            .args([
                "record",
                "-p",
                &pid.to_string(),
                "-d",
                "exit",
                "--capture",
                backend.word(),
                "-o",
            ])
            .arg(&file)
            .spawn()
            .expect("sampletop starts");
        Recording { child, file }
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("it runs");
        let link = |entry: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_link(entry.expect("an entry").path())
        };
        entries.filter_map(|entry| Some(link(entry).ok()?.to_string_lossy().into_owned())).collect()
    }

    fn memory_mib(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
        line.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number") >> 10
    }

    fn profile(mut self) -> serde_json::Value {
        assert!(self.child.wait().expect("it ends").success());
        serde_json::from_slice(&std::fs::read(&self.file).expect("the profile")).expect("JSON")
    }
}

#[test]
fn ten_thousand_threads_leave_their_time_and_nothing_else() {
    if !works() || !need_root("samples all CPUs") {
        return;
    }
    let program = build("storm.c", "churn", &["-O2", "-DWHO=a"]);
    let folder = tempfile::tempdir().expect("a folder");
    let mut target = Running::start(&program, &["churn", "10000", "20"]);
    let pid = target.pid();
    let recordings = [CaptureChoice::Bpf, CaptureChoice::Perf]
        .map(|backend| Recording::start(backend, pid, folder.path()));
    for recording in &recordings {
        let limit = Instant::now() + Duration::from_secs(30);
        while !recording.files().iter().any(|file| file.contains("perf_event")) {
            assert!(Instant::now() < limit, "{:?}", recording.files());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // Threads that are known, by either source.
    let (mut passes, mut scans) = (Passes::over(pid, 50), FileScans::of(&target, 50));
    let (mut files, mut memory, mut known) = (0, Vec::new(), 0);
    ask(&mut target, "\n");
    let reported = std::thread::scope(|scope| {
        let reported = scope.spawn(|| {
            [next_number(&mut target), next_number(&mut target), next_number(&mut target)]
        });
        while !reported.is_finished() {
            passes.next();
            scans.next(&mut TopOnly);
            known = known.max(passes.scan.len()).max(scans.scan.len());
            files = recordings
                .iter()
                .map(|recording| recording.files().len())
                .max()
                .expect("two")
                .max(files);
            memory.push(recordings.iter().map(Recording::memory_mib).max().expect("two"));
            std::thread::sleep(Duration::from_millis(20));
        }
        reported.join().expect("numbers")
    });
    // The target ends.
    drop(target.child.stdin.take());
    // Four live at once, beside the leader. A few are about to exit: at most one in a hundred of
    // all threads; a leak would keep all of them. Each has three files; the others are rings, maps
    // and names.
    assert!(known <= 100 && files <= 3 * known + 64, "{known} threads, {files} files");
    // A leak of a kilobyte for each of the second five thousand would be 5 MiB.
    let (half, most) = (memory[memory.len() / 2], memory.iter().max().expect("some"));
    assert!(*most <= half + 4, "{memory:?}");
    let [threads, leader, process] = reported.map(|ns| ns as f64 / 1e6);
    for (recording, backend) in recordings.into_iter().zip(["bpf", "perf"]) {
        let profile = recording.profile();
        assert_eq!(profile["capture"], backend);
        let groups = profile["groups"].as_array().expect("groups");
        let cpu = |name: &str| -> f64 {
            groups
                .iter()
                .filter(|g| name.is_empty() || g["name"] == name)
                .map(|g| g["cpu_ms"].as_f64().expect("ms"))
                .sum()
        };
        let names: Vec<String> =
            groups.iter().map(|g| format!("{} {}", g["name"], g["cpu_ms"])).collect();
        let all = cpu("");
        assert!(
            (all - process).abs() <= 0.02 * process,
            "{backend}: {all} of {process} ms, {names:?}"
        );
        // CPU time that the threads measured themselves is in their rows, or in the row of exited
        // threads. So is the time of their creation and exit.
        let theirs = cpu("brief-") + cpu("(exited)");
        assert!(
            theirs >= 0.98 * threads && theirs <= 1.02 * (process - leader),
            "{backend}: {theirs} of {threads} ms, {names:?}"
        );
    }
}
