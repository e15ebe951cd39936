//! What a plain user gets. The tests run as root and start themselves again as nobody.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use sampletop::capture::Status;
use sampletop::config::CaptureChoice;
use sampletop::model::frame::{Event, Ns, Seen};
use sampletop::process::threads::process_cpu;

use crate::common::{Running, build, skipped};
use crate::support::*;

const NOBODY: u32 = 65_534;
const PROGRAM: &str = "SAMPLETOP_TEST_PROGRAM_OF_NOBODY";

fn as_nobody(helper: &str, program: &Path) {
    as_user(NOBODY, helper, program);
}

/// Runs a helper of this file as that user; both programs must lie where that one may read them.
fn as_user(user: u32, helper: &str, program: &Path) {
    if !rustix::process::geteuid().is_root() {
        return skipped(helper, "needs root to become nobody");
    }
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
    let copy = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        std::fs::copy(from, &to).expect("copied");
        to
    };
    let this = copy(&std::env::current_exe().expect("this program"), "tests");
    let target = copy(program, "target");
    let output = Command::new(this)
        .args(["--exact", helper, "--nocapture"])
        .env(PROGRAM, target)
        .current_dir("/")
        .uid(user)
        .gid(user)
        .output()
        .expect("it starts again");
    let words = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    assert!(words.contains("1 passed"), "{words}");
}

fn program() -> Option<std::path::PathBuf> {
    std::env::var_os(PROGRAM).map(Into::into)
}

#[test]
fn a_plain_user_samples_each_running_thread_once() {
    let program = build("cap_threads.c", "nobody", &["-O1"]);
    as_nobody("rights::helper_counts_samples", &program);
}

#[test]
fn helper_counts_samples() {
    let Some(program) = program() else { return };
    let mut target = Running::start(&program, &["park", "40"]);
    let told = |target: &mut Running| {
        ask(target, "\n");
        [next_number(target), next_number(target)]
    };
    let before = told(&mut target);
    let (sampler, mut reader) = start(&target, CaptureChoice::Auto, 5);
    let status = sampler.status();
    assert_eq!((status.way.as_str(), status.notice), ("perf", None));
    let events = read_for(&mut reader, Duration::from_secs(2));
    drop(sampler);
    let after = told(&mut target);
    for spin in 0..2 {
        let name_of = format!("spin-{spin}");
        let times: Vec<Ns> =
            looks(&events).filter(|l| l.seen == Seen::OnCpu && name(l) == name_of).map(|l| l.at).collect();
        let expected = (after[spin] - before[spin]) as f64 / 4_985_000.0;
        // One event per CPU, each beginning with a whole period, and none for the first ticks; twice as many would mean
        // that somebody is sampled by two events.
        let ratio = times.len() as f64 / expected;
        assert!((0.6..1.1).contains(&ratio), "{name_of}: {} of {expected}", times.len());
    }
    assert!(looks(&events).any(|look| name(look) == "park-39" && matches!(look.seen, Seen::Blocked(_))));
}

#[test]
fn threads_born_later_are_sampled_too_and_once() {
    let program = build("cap_threads.c", "nobody-churn", &["-O1"]);
    as_nobody("rights::helper_follows_new_threads", &program);
}

#[test]
fn helper_follows_new_threads() {
    let Some(program) = program() else { return };
    let target = Running::start(&program, &["churn"]);
    let begin = process_cpu(target.pid()).expect("it lives");
    let (sampler, mut reader) = start(&target, CaptureChoice::Auto, 2);
    let events = read_for(&mut reader, Duration::from_secs(3));
    let end = process_cpu(target.pid()).expect("it lives");
    let kernel_visible = sampler.status().kernel_visible;
    drop(sampler);
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").expect("this kernel has perf");
    assert_eq!(kernel_visible, paranoid.trim().parse::<i32>().expect("a number") < 2);
    let samples = looks(&events).filter(|l| l.seen == Seen::OnCpu && name(l) == "brief").count();
    let expected = (end - begin) as f64 / 1_994_000.0;
    let ratio = samples as f64 / expected;
    // Each thread lives at most ten periods, of which the first of each CPU gives nothing. Two events for a thread would
    // give twice the samples.
    assert!((0.2..1.15).contains(&ratio), "{samples} of {expected}");
}

#[test]
fn a_plain_users_waits_are_not_disturbed() {
    let program = build("cap_eintr.c", "nobody", &["-O1"]);
    as_nobody("rights::helper_disturbs_no_wait", &program);
}

#[test]
fn helper_disturbs_no_wait() {
    let Some(program) = program() else { return };
    for mode in ["stay", "alternate"] {
        let mut target = Running::start(&program, &[mode]);
        let (sampler, mut reader) = start(&target, CaptureChoice::Auto, 5);
        assert_eq!(sampler.status().way, "perf");
        let pid = target.pid();
        let mut events = Vec::new();
        let end = Instant::now() + Duration::from_secs(2);
        read_until(&mut reader, &mut events, |_| {
            assert!(thread_states(pid).iter().all(|(state, tracer)| *tracer == 0 && !"tT".contains(*state)));
            Instant::now() >= end
        });
        drop(sampler);
        ask(&mut target, "\n");
        assert_eq!(next_number(&mut target), 0, "EINTR under {mode}");
        assert!(looks(&events).any(|look| look.seen == Seen::OnCpu && name(look) == "spin"));
    }
}

fn limit(resource: Resource, to: u64) {
    setrlimit(resource, Rlimit { current: Some(to), maximum: Some(to) }).expect("lowered");
}

/// One event for each thread and core does not fit: those who run share what there is, and the rest is named.
#[test]
fn more_running_threads_than_descriptors_are_named() {
    let program = build("cap_threads.c", "nobody-many", &["-O1"]);
    as_nobody("rights::helper_runs_short_of_descriptors", &program);
}

#[test]
fn helper_runs_short_of_descriptors() {
    let Some(program) = program() else { return };
    let mut target = Running::start(&program, &["work", "300"]);
    limit(Resource::Memlock, 64 << 10);
    limit(Resource::Nofile, 100);
    let (sampler, mut reader) = start(&target, CaptureChoice::Auto, 5);
    assert_eq!(sampler.status().way, "perf");
    let mut events = Vec::new();
    let short =
        |status: Status| status.notice.is_some_and(|notice| notice.contains("not sampled for want of descriptors"));
    let works = |events: &[Event]| looks(events).any(|l| l.seen == Seen::OnCpu && name(l).starts_with("work-"));
    read_until(&mut reader, &mut events, |events| short(sampler.status()) && works(events));
    // From now on only two of them run; those that held all events give them up, and nobody is short any more.
    ask(&mut target, "\n");
    let spins = |events: &[Event]| {
        let sampled = |who: &str| looks(events).any(|look| look.seen == Seen::OnCpu && name(look) == who);
        sampled("spin-0") && sampled("spin-1")
    };
    read_until(&mut reader, &mut events, |events| spins(events) && !short(sampler.status()));
}

/// The memory for rings is counted per user: of a user's two profilers the second finds less, here nothing.
#[test]
fn rings_that_find_no_memory_are_told_from_a_forbidden_call() {
    let program = build("cap_threads.c", "nobody-memory", &["-O1"]);
    // A user of its own: what nobody's other programs hold must not count.
    as_user(NOBODY - 1, "rights::helper_finds_no_memory_for_rings", &program);
}

#[test]
fn helper_finds_no_memory_for_rings() {
    let Some(program) = program() else { return };
    let target = Running::start(&program, &["park", "2"]);
    limit(Resource::Memlock, 0);
    let (first, _events) = start(&target, CaptureChoice::Auto, 5);
    assert_eq!((first.status().way.as_str(), first.status().notice), ("perf", None));
    let (second, _events) = start(&target, CaptureChoice::Auto, 5);
    let status = second.status();
    assert_eq!(status.way, "states");
    let notice = status.notice.expect("a reason");
    assert!(notice.contains("memory for perf's rings") && notice.contains("ulimit -l"), "{notice}");
    drop((first, second));
    let (third, _events) = start(&target, CaptureChoice::Auto, 5);
    assert_eq!(third.status().way, "perf");
}
