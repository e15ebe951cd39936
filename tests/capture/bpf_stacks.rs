//! The stacks that come with the rows of the task iterator, compared with elfutils, and the threads
//! they belong to in pid namespaces.

#[allow(dead_code)]
#[path = "../unwinding/support.rs"]
pub mod walks;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sampletop::capture::{Plan, Sampler};
use sampletop::clock::monotonic;
use sampletop::config::CaptureChoice;
use sampletop::model::vocabulary::event::{Event, Observation, Seen};
use sampletop::model::vocabulary::frame::{FrameCode, Marker, RawFrame};
use sampletop::process::mapped_files::Files;
use sampletop::process::maps::Maps;
use sampletop::process::target::Target;

use crate::bpf::works;
use crate::common::{Running, build, skipped, wait_until};
use crate::support::*;
use walks::{Stack, Symbols, blocked_threads, eu_stack};

/// Samples with real walks. Returns the last blocked observation of each thread, once each of
/// `wanted` has had one.
fn blocked_observations(
    pid: u32,
    files: &Files,
    wanted: &BTreeSet<u32>,
) -> BTreeMap<u32, Observation> {
    let target = std::sync::Arc::new(Target::attach(pid).expect("attached"));
    let plan: Plan = plan(CaptureChoice::Bpf, 10);
    let (_sampler, mut reader) =
        Sampler::start(vec![target], files.clone(), Default::default(), plan).expect("sampling");
    let (mut events, mut reported, mut known) = (Vec::new(), BTreeMap::new(), 0);
    read_until(&mut reader, &mut events, |events| {
        let new = &events[std::mem::replace(&mut known, events.len())..];
        for observation in
            scan(new).filter(|observation| matches!(observation.seen, Seen::Blocked(_)))
        {
            reported.insert(observation.thread.tid, observation.clone());
        }
        // An uncertain walk is retried at the next ticks.
        ticks(events) > 10 && wanted.iter().all(|tid| reported.contains_key(tid))
    });
    reported
}

fn ends_in(observation: &Observation) -> Option<Marker> {
    match observation.stack.last().map(|frame| frame.decode()) {
        Some(FrameCode::Marker { marker, .. }) => Some(marker),
        _ => None,
    }
}

/// Addresses of frames, each resolved once.
struct Addresses<'a> {
    files: &'a Files,
    maps: Maps,
    known: HashMap<RawFrame, u64>,
}

impl Addresses<'_> {
    fn of(&mut self, frames: &[RawFrame]) -> Vec<u64> {
        let address = |frame: &RawFrame| {
            *self.known.entry(*frame).or_insert_with(|| {
                let walk = sampletop::unwinder::Walk { end: None, recovered: false };
                Stack { walk, frames: vec![*frame] }.addresses(self.files, &self.maps)[0]
            })
        };
        frames.iter().map(address).collect()
    }
}

#[test]
fn every_kind_of_blocked_stack_is_what_elfutils_says() {
    if !works() {
        return;
    }
    for (variant, flags) in [
        ("bpf-fp", &["-O2", "-fno-omit-frame-pointer"][..]),
        ("bpf-nofp", &["-O2", "-fomit-frame-pointer"]),
        ("bpf-o0", &["-O0", "-no-pie"]),
    ] {
        let program = build("uw_blocked.c", variant, flags);
        let library = build("uw_library.c", variant, &[flags, &["-shared", "-fPIC"]].concat());
        let running = Running::start(&program, &[library.to_str().expect("text")]);
        let pid = running.pid();
        let threads = blocked_threads(pid);
        let files = Files::default();
        let reported = blocked_observations(pid, &files, &threads.values().copied().collect());
        let mut addresses = Addresses {
            files: &files,
            maps: Maps::read(pid).expect("maps"),
            known: HashMap::new(),
        };
        let judge = eu_stack(pid);
        let mut wrong = Vec::new();
        for (kind, tid) in &threads {
            let observation = &reported[tid];
            // All others are complete, including those deeper than 63 KiB, on an alternate stack,
            // or without frame pointers.
            let end = match kind.as_str() {
                // A coroutine has no caller. elfutils continues at the function that makecontext
                // stored as successor.
                "context" => Some(Marker::NoUnwindInfo),
                _ => None,
            };
            let frames = &observation.stack[..observation.stack.len() - usize::from(end.is_some())];
            let mut judged = judge[tid].clone();
            // A deep stack keeps both ends.
            let folded = frames.iter().position(|frame| *frame == RawFrame::marker(Marker::Folded));
            assert_eq!(folded.is_some(), kind == "too_deep", "{kind}");
            let frames: Vec<RawFrame> = frames
                .iter()
                .copied()
                .filter(|frame| *frame != RawFrame::marker(Marker::Folded))
                .collect();
            if let Some(folded) = folded {
                judged.drain(folded..judged.len().saturating_sub(frames.len() - folded));
            }
            let seen = addresses.of(&frames);
            if ends_in(observation) != end
                || observation.recovered
                || seen[..] != judged[..seen.len().min(judged.len())]
            {
                wrong.push(format!(
                    "{kind}: {:?} {} {seen:x?}\n  eu-stack: {judged:x?}",
                    ends_in(observation),
                    observation.recovered
                ));
            }
            if end.is_none() && judged.len() != seen.len() {
                wrong.push(format!("{kind}: {} frames of {}", seen.len(), judged.len()));
            }
        }
        assert!(wrong.is_empty(), "{variant}:\n{}", wrong.join("\n"));
    }
}

#[test]
fn two_thousand_blocked_stacks_are_what_elfutils_says() {
    if !works() {
        return;
    }
    let program = build("bpf_crowd.c", "crowd", &["-O2"]);
    let mut running = Running::start(&program, &["crowd", "1992", "8"]);
    let pid = running.pid();
    let threads = blocked_threads_of_crowd(pid);
    assert_eq!(threads.len(), 1993);
    check_shares(&mut running, &program);
    check_names(pid);
    let files = Files::default();
    let reported = blocked_observations(pid, &files, &threads);
    let mut addresses =
        Addresses { files: &files, maps: Maps::read(pid).expect("maps"), known: HashMap::new() };
    // eu-stack stops the threads one after the other, which takes minutes while others spin.
    let process = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
    rustix::process::kill_process(process, rustix::process::Signal::STOP).expect("stopped");
    let judge = eu_stack(pid);
    let wrong: Vec<String> = threads
        .iter()
        .filter(|tid| {
            let observation = &reported[tid];
            ends_in(observation).is_some()
                || observation.recovered
                || addresses.of(&observation.stack) != judge[tid]
        })
        .map(|tid| format!("{} {:?}\n  eu-stack: {:x?}", tid, reported[tid], judge[tid]))
        .collect();
    assert!(wrong.is_empty(), "{} of {}: {}", wrong.len(), threads.len(), wrong[0]);
}

/// Checks that the functions of busy threads have the shares of samples that the threads measured.
fn check_shares(running: &mut Running, program: &Path) {
    const BUSY: usize = 8;
    /// Family-wise error: 3 functions x 8 threads, two-sided at z = 5.6 each: 24 x 2.2e-8 = 6e-7.
    const Z: f64 = 5.6;
    let functions = ["six", "three", "one"];
    let truth = |running: &mut Running| -> Vec<u64> {
        ask(running, "\n");
        (0..3 * BUSY).map(|_| next_number(running)).collect()
    };
    let files = Files::default();
    let target = std::sync::Arc::new(Target::attach(running.pid()).expect("attached"));
    let (sampler, mut reader) = Sampler::start(
        vec![target],
        files.clone(),
        Default::default(),
        plan(CaptureChoice::Bpf, 10),
    )
    .expect("sampling");
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| ticks(events) > 10);
    let (before, from) = (truth(running), monotonic());
    events.extend(read_for(&mut reader, Duration::from_secs(10)));
    // Enough for the normal approximation below, even if other processes take most of the time.
    let of = |events: &[Event], spin: usize| {
        let who = format!("spin-{spin}");
        let sampled = |observation: &&Observation| {
            observation.seen == Seen::OnCpu && observation.at >= from && name(observation) == who
        };
        scan(events).filter(sampled).count()
    };
    read_until(&mut reader, &mut events, |events| (0..BUSY).all(|spin| of(events, spin) >= 50));
    let (after, to) = (truth(running), monotonic());
    drop(sampler);
    let symbols = Symbols::of(program);
    let mut samples: HashMap<String, [f64; 3]> = HashMap::new();
    for observation in scan(&events).filter(|observation| {
        observation.seen == Seen::OnCpu && (from..to).contains(&observation.at)
    }) {
        let walk = sampletop::unwinder::Walk { end: None, recovered: false };
        let names = Stack { walk, frames: observation.stack.clone() }.names(&files, &[&symbols]);
        if let Some(found) =
            names.iter().find_map(|name| functions.iter().position(|function| function == name))
        {
            samples.entry(name(observation)).or_default()[found] += 1.0;
        }
    }
    for spin in 0..BUSY {
        let seen = samples[&format!("spin-{spin}")];
        let all: f64 = seen.iter().sum();
        assert!(all >= 30.0, "only {all} samples were in these functions");
        let spent = [0, 1, 2].map(|i| (after[3 * spin + i] - before[3 * spin + i]) as f64);
        for ((seen, spent_in), function) in seen.iter().zip(spent).zip(functions) {
            let expected = spent_in / spent.iter().sum::<f64>();
            let bound = Z * (expected * (1.0 - expected) / all).sqrt();
            let share = seen / all;
            assert!(
                (share - expected).abs() <= bound,
                "spin-{spin}: {function} has {share:.4} of {all} samples, it says {expected:.4}; {bound:.4} is allowed"
            );
        }
    }
}

/// Checks stacks as `dump` prints them against the calls that the source has for the thread's
/// number.
fn check_names(pid: u32) {
    let output = Command::new(env!("CARGO_BIN_EXE_sampletop"))
        .args(["dump", "--capture", "bpf", "--format", "json", "-p", &pid.to_string()])
        .output()
        .expect("sampletop runs");
    let dump: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut checked = 0;
    for thread in dump["threads"].as_array().expect("threads") {
        let Some(number) = thread["name"].as_str().and_then(|name| name.strip_prefix("wait-"))
        else {
            continue;
        };
        let depth = number.parse::<usize>().expect("a number") % 40;
        let mut expected = vec!["wait_here"];
        expected.extend((0..=depth).rev().map(|call| if call % 2 == 0 { "even" } else { "odd" }));
        expected.push("wait_deep");
        let frames = thread["frames"]
            .as_array()
            .expect("frames")
            .iter()
            .map(|f| f["frame"].as_str().expect("text"));
        let own: Vec<&str> = frames
            .filter(|frame| ["wait_here", "even", "odd", "wait_deep"].contains(frame))
            .collect();
        assert_eq!(own, expected, "{thread}");
        assert_eq!(thread["complete"], true, "{thread}");
        checked += 1;
    }
    assert_eq!(checked, 1992);
}

/// Returns the leader and the threads named `wait-N`.
fn blocked_threads_of_crowd(pid: u32) -> BTreeSet<u32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    let tids = entries.map(|entry| {
        entry.expect("an entry").file_name().to_string_lossy().parse().expect("a number")
    });
    let spins = |tid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"))
            .expect("its name")
            .starts_with("spin-")
    };
    tids.filter(|tid| !spins(tid)).collect()
}

/// While mappings keep changing, the kernel cannot always find the end of a stack. Then sampletop
/// reads it itself.
#[test]
fn stacks_are_whole_while_mappings_change() {
    if !works() {
        return;
    }
    let program = build("bpf_crowd.c", "maps", &["-O2"]);
    let running = Running::start(&program, &["maps", "20"]);
    let leader = format!("/proc/{0}/task/{0}/stat", running.pid());
    wait_until("the leader waits", || {
        std::fs::read_to_string(&leader).is_ok_and(|stat| stat.contains(") S "))
    });
    let files = Files::default();
    let target = std::sync::Arc::new(Target::attach(running.pid()).expect("attached"));
    let (sampler, mut reader) =
        Sampler::start(vec![target], files, Default::default(), plan(CaptureChoice::Bpf, 5))
            .expect("sampling");
    let mut events = read_for(&mut reader, Duration::from_secs(2));
    let naps = |observation: &&Observation| {
        name(observation).starts_with("wait-") && matches!(observation.seen, Seen::Blocked(_))
    };
    read_until(&mut reader, &mut events, |events| scan(events).filter(naps).count() > 200);
    drop(sampler);
    let naps: Vec<&Observation> = scan(&events).filter(naps).collect();
    let whole = naps.iter().filter(|observation| ends_in(observation).is_none()).count();
    assert_eq!(
        whole,
        naps.len(),
        "{:?}",
        naps.iter().find(|observation| ends_in(observation).is_some())
    );
    // A thread that does not move meanwhile is reported once.
    let leader = scan(&events)
        .filter(|observation| {
            observation.thread.tid == running.pid() && observation.seen != Seen::Running
        })
        .count();
    assert_eq!(leader, 1);
}

const INSIDE: &str = "SAMPLETOP_TEST_IN_NAMESPACE";

/// Checks ids and samples: the threads are those of /proc, and both that spin are sampled.
fn check_ids(pid: u32) {
    let (sampler, mut reader) = start_pid(pid, CaptureChoice::Bpf, 5);
    let mut events = Vec::new();
    let spins = |events: &[Event]| {
        let samples = scan(events).filter(|observation| observation.seen == Seen::OnCpu);
        samples.map(name).collect::<BTreeSet<String>>().len()
    };
    read_until(&mut reader, &mut events, |events| ticks(events) > 20 && spins(events) == 2);
    assert_eq!(sampler.status().backend, "bpf");
    drop(sampler);
    let reported: BTreeSet<u32> = scan(&events).map(|observation| observation.thread.tid).collect();
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    let there: BTreeSet<u32> = entries
        .map(|entry| {
            entry.expect("an entry").file_name().to_string_lossy().parse().expect("a number")
        })
        .collect();
    assert_eq!(reported, there);
    assert!(scan(&events).all(|observation| observation.thread.pid == pid));
}

/// Not a test by itself: runs as process 1 of a pid namespace.
#[test]
fn helper_inside_a_pid_namespace() {
    let Some(program) = std::env::var_os(INSIDE) else { return };
    assert_eq!(std::process::id(), 1);
    let target = Running::start(program.as_ref(), &["park", "3"]);
    assert!(target.pid() < 100, "a small world");
    check_ids(target.pid());
}

#[test]
fn ids_are_those_of_our_own_pid_namespace() {
    if !works() {
        return;
    }
    let program = build("cap_threads.c", "bpf-namespace", &["-O1"]);
    let unshare = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]).args(args);
        command
    };
    if !unshare(&["true"]).status().is_ok_and(|status| status.success()) {
        return skipped("ids_are_those_of_our_own_pid_namespace", "needs `unshare --pid`");
    }
    // sampletop inside, with its target.
    let this = std::env::current_exe().expect("this program");
    let output = unshare(&[
        this.to_str().expect("text"),
        "--exact",
        "bpf_stacks::helper_inside_a_pid_namespace",
        "--nocapture",
    ])
    .env(INSIDE, &program)
    .output()
    .expect("it starts again");
    let words = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && words.contains("1 passed"), "{words}");
    // Only the target inside.
    let args = ["--pid", "--fork", "--kill-child", program.to_str().expect("text"), "park", "3"];
    let outer = Running::start("/usr/bin/unshare".as_ref(), &args);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", outer.pid()))
        .expect("its child");
    check_ids(children.trim().parse().expect("one"));
}
