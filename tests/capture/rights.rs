//! What a plain user gets. The tests run as root and restart themselves as a user that owns no
//! other process.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use sampletop::capture::Status;
use sampletop::clock::cpu_of_process;
use sampletop::clock::monotonic;
use sampletop::config::CaptureChoice;
use sampletop::model::vocabulary::event::{Event, Observation, Seen};
use sampletop::model::vocabulary::frame::Ns;

use crate::common::{Running, build, skipped};
use crate::support::*;

const PROGRAM: &str = "SAMPLETOP_TEST_PROGRAM_OF_A_USER";

/// Returns a user that owns no other program on this machine. The kernel counts memory for rings,
/// descriptors and processes per user.
fn nobody_else() -> u32 {
    static USERS: AtomicU32 = AtomicU32::new(0);
    // Process ids have 22 bits at most.
    1 << 30 | std::process::id() << 6 | USERS.fetch_add(1, Ordering::Relaxed)
}

/// Runs a helper of this file as that user. Both programs must lie where that user may read them.
fn as_nobody(helper: &str, program: &Path) {
    if !rustix::process::geteuid().is_root() {
        return skipped(helper, "needs root to become another user");
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
    let user = nobody_else();
    let output = Command::new(this)
        .args(["--exact", helper, "--nocapture"])
        .env(PROGRAM, target)
        .current_dir("/")
        .uid(user)
        .gid(user)
        .output()
        .expect("it starts again");
    let words = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
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

/// Returns the kernel's count of samples that it had no room for, from the last tick.
fn lost(events: &[Event]) -> f64 {
    let last = events
        .iter()
        .rev()
        .find_map(|e| if let Event::Tick(t) = e { Some(t.losses) } else { None });
    last.map_or(0, |losses| losses.dropped) as f64
}

/// Returns the samples, taken in from..to, of threads whose names begin with `who`.
fn samples(events: &[Event], who: &str, from: Ns, to: Ns) -> f64 {
    let sampled = |l: &&Observation| {
        l.seen == Seen::OnCpu && name(l).starts_with(who) && (from..to).contains(&l.at)
    };
    scan(events).filter(sampled).count() as f64
}

#[test]
fn helper_counts_samples() {
    let Some(program) = program() else { return };
    let mut target = Running::start(&program, &["park", "40"]);
    let reported = |target: &mut Running| {
        let asked = monotonic();
        ask(target, "\n");
        ([next_number(target), next_number(target)], asked, monotonic())
    };
    let (sampler, mut reader) = start(&target, CaptureChoice::Auto, 5);
    let status = sampler.status();
    assert_eq!((status.backend.as_str(), status.notice), ("perf", None));
    let mut events = Vec::new();
    let sampled = |events: &[Event], who| samples(events, who, 0, Ns::MAX) > 0.0;
    read_until(&mut reader, &mut events, |events| {
        sampled(events, "spin-0") && sampled(events, "spin-1")
    });
    let (before, outer_from, inner_from) = reported(&mut target);
    events.extend(read_for(&mut reader, Duration::from_secs(2)));
    let (after, inner_to, outer_to) = reported(&mut target);
    drop(sampler);
    events.extend(reader.by_ref());
    for spin in 0..2 {
        let name_of = format!("spin-{spin}");
        let expected = (after[spin] - before[spin]) as f64 / 4_985_000.0;
        // Each CPU's event continues its count where it stopped: one sample more or less per CPU. A
        // doubled count would mean that two events sample the same thread.
        let cpus = std::thread::available_parallelism().expect("cores").get() as f64;
        let most = samples(&events, &name_of, inner_from, inner_to);
        let least = samples(&events, &name_of, outer_from, outer_to) + lost(&events);
        let what = format!("{name_of}: {most} to {least} of {expected}");
        assert!(most <= 1.1 * expected + cpus && least >= 0.8 * expected - cpus, "{what}");
    }
    assert!(scan(&events).any(|observation| name(observation) == "park-39"
        && matches!(observation.seen, Seen::Blocked(_))));
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
    let (sampler, mut reader) = start(&target, CaptureChoice::Auto, 2);
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| samples(events, "brief", 0, Ns::MAX) > 0.0);
    let (outer_from, begin, inner_from) =
        (monotonic(), cpu_of_process(target.pid()).expect("it lives"), monotonic());
    events.extend(read_for(&mut reader, Duration::from_secs(3)));
    let (inner_to, end, outer_to) =
        (monotonic(), cpu_of_process(target.pid()).expect("it lives"), monotonic());
    let kernel_visible = sampler.status().kernel_visible;
    drop(sampler);
    events.extend(reader.by_ref());
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .expect("this kernel has perf");
    assert_eq!(kernel_visible, paranoid.trim().parse::<i32>().expect("a number") < 2);
    let of_kernel =
        scan(&events).any(|observation| frames_of_user(observation) < observation.stack.len());
    assert!(kernel_visible || !of_kernel, "the kernel shows nothing of itself");
    let expected = (end - begin) as f64 / 1_994_000.0;
    // Each thread lives at most ten periods, of which the first on each CPU yields no sample. Two
    // events for a thread would double the samples.
    let most = samples(&events, "brief", inner_from, inner_to);
    let least = samples(&events, "brief", outer_from, outer_to) + lost(&events);
    assert!(most <= 1.15 * expected && least >= 0.2 * expected, "{most} to {least} of {expected}");
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
        assert_eq!(sampler.status().backend, "perf");
        let pid = target.pid();
        let mut events = Vec::new();
        let end = Instant::now() + Duration::from_secs(2);
        read_until(&mut reader, &mut events, |_| {
            assert!(
                thread_states(pid)
                    .iter()
                    .all(|(state, tracer)| *tracer == 0 && !"tT".contains(*state))
            );
            Instant::now() >= end
        });
        drop(sampler);
        ask(&mut target, "\n");
        assert_eq!(next_number(&mut target), 0, "EINTR under {mode}");
        assert!(
            scan(&events)
                .any(|observation| observation.seen == Seen::OnCpu && name(observation) == "spin")
        );
    }
}

fn limit(resource: Resource, to: u64) {
    setrlimit(resource, Rlimit { current: Some(to), maximum: Some(to) }).expect("lowered");
}

/// One event for each thread and core does not fit. Running threads share the available events, and
/// the rest is named.
#[test]
fn more_running_threads_than_descriptors_are_named() {
    let program = build("cap_threads.c", "nobody-many", &["-O1"]);
    as_nobody("rights::helper_runs_short_of_descriptors", &program);
}

#[test]
fn helper_runs_short_of_descriptors() {
    let Some(program) = program() else { return };
    let mut target = Running::start(&program, &["work", "300", "200"]);
    limit(Resource::Memlock, 64 << 10);
    limit(Resource::Nofile, 100);
    let (sampler, mut reader) = start(&target, CaptureChoice::Auto, 5);
    assert_eq!(sampler.status().backend, "perf");
    let mut events = Vec::new();
    let short = |status: Status| {
        status.notice.is_some_and(|notice| notice.contains("some running threads are not sampled"))
    };
    let works = |events: &[Event]| {
        scan(events).any(|l| l.seen == Seen::OnCpu && name(l).starts_with("work-"))
    };
    read_until(&mut reader, &mut events, |events| short(sampler.status()) && works(events));
    // From now on only two of them run. The threads that held all events release them, and none
    // lacks an event any more.
    ask(&mut target, "\n");
    let spins = |events: &[Event]| {
        let sampled = |who: &str| {
            scan(events)
                .any(|observation| observation.seen == Seen::OnCpu && name(observation) == who)
        };
        sampled("spin-0") && sampled("spin-1")
    };
    read_until(&mut reader, &mut events, |events| spins(events) && !short(sampler.status()));
}

/// The memory for rings is counted per user: of a user's two profilers the second gets less, here
/// none.
#[test]
fn rings_that_find_no_memory_are_told_from_a_forbidden_call() {
    let program = build("cap_threads.c", "nobody-memory", &["-O1"]);
    as_nobody("rights::helper_finds_no_memory_for_rings", &program);
}

#[test]
fn helper_finds_no_memory_for_rings() {
    let Some(program) = program() else { return };
    let target = Running::start(&program, &["park", "2"]);
    limit(Resource::Memlock, 0);
    let (first, _events) = start(&target, CaptureChoice::Auto, 5);
    assert_eq!((first.status().backend.as_str(), first.status().notice), ("perf", None));
    let (second, _events) = start(&target, CaptureChoice::Auto, 5);
    let status = second.status();
    assert_eq!(status.backend, "states");
    let notice = status.notice.expect("a reason");
    assert!(notice.contains("memory for perf's rings") && notice.contains("ulimit -l"), "{notice}");
    drop((first, second));
    let (third, _events) = start(&target, CaptureChoice::Auto, 5);
    assert_eq!(third.status().backend, "perf");
}
