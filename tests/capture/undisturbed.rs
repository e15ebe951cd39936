//! A minute at 100 Hz: no wait is disturbed, no thread is traced, and none is stopped even for a
//! moment.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use sampletop::config::CaptureChoice;
use sampletop::model::vocabulary::event::{Event, Seen};

use crate::bpf::works;
use crate::common::{LIMIT, Running, build, wait_until};
use crate::support::*;

/// The status files of threads that persist, kept open: reading one costs microseconds.
struct Statuses(Vec<File>);

impl Statuses {
    fn of(pid: u32) -> Statuses {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
        Statuses(
            threads
                .map(|t| File::open(t.expect("an entry").path().join("status")).expect("it lives"))
                .collect(),
        )
    }

    fn assert_all_are_left_alone(&self) {
        let mut bytes = [0; 2048];
        for file in &self.0 {
            let length = file.read_at(&mut bytes, 0).expect("it lives");
            let text = String::from_utf8_lossy(&bytes[..length]);
            assert!(
                !text.contains("\nState:\tt") && !text.contains("\nState:\tT"),
                "stopped: {text}"
            );
            assert!(text.contains("\nTracerPid:\t0\n"), "traced: {text}");
        }
    }
}

const CALLS: [&str; 12] = [
    "epoll",
    "epoll-timed",
    "epoll_pwait2",
    "accept",
    "recv",
    "recv-udp",
    "semop",
    "sigtimedwait",
    "sigwaitinfo",
    "aio",
    "aio-timed",
    "io_uring",
];

/// Returns the number of EINTR results of each call.
fn eintrs(target: &mut Running) -> Vec<(String, String)> {
    ask(target, "each\n");
    CALLS
        .map(|_| {
            let line = target.lines.next().expect("an answer").expect("text");
            let (call, count) = line.split_once(' ').expect("two words");
            (call.to_owned(), count.to_owned())
        })
        .into()
}

/// Two backends observe both targets at the same time: if both together disturb nothing in a
/// minute, neither does alone.
#[test]
fn for_a_minute_nobody_is_disturbed_traced_or_stopped() {
    if !works() {
        return;
    }
    let program = build("cap_eintr.c", "minute", &["-O1"]);
    let mut targets = ["stay", "alternate"].map(|mode| Running::start(&program, &[mode]));
    let none: Vec<_> = CALLS.map(|call| (call.to_owned(), "0".to_owned())).into();
    for target in &mut targets {
        assert_eq!(eintrs(target), none, "all of them can be waited in here");
    }
    let backends = [CaptureChoice::Bpf, CaptureChoice::Perf];
    let mut watching: Vec<_> = targets
        .iter()
        .flat_map(|t| backends.map(|backend| (start(t, backend, 10), 0, BTreeMap::new())))
        .collect();
    let statuses = targets.each_ref().map(|target| Statuses::of(target.pid()));
    // A busy machine needs more time.
    let (end, mut polls) = (Instant::now() + Duration::from_secs(60), 0);
    let looked_at = |stays: bool, blocked: &BTreeMap<String, u32>| {
        let enough =
            |call: &str| if stays || ["sigwaitinfo", "io_uring"].contains(&call) { 1 } else { 300 };
        CALLS.iter().all(|call| blocked.get(*call).copied().unwrap_or(0) >= enough(call))
    };
    loop {
        let all = watching.iter().enumerate();
        let enough = all.map(|(n, (_, ticks, blocked))| {
            *ticks > 3_000 && looked_at(n < backends.len(), blocked)
        });
        if enough.fold(polls > 10_000, |all, one| all && one) && Instant::now() >= end {
            break;
        }
        let reported =
            || watching.iter().map(|(_, ticks, blocked)| (ticks, blocked)).collect::<Vec<_>>();
        assert!(Instant::now() < end + 2 * LIMIT, "{polls} polls, {:?}", reported());
        let began = Instant::now();
        statuses.iter().for_each(Statuses::assert_all_are_left_alone);
        polls += 1;
        for ((_, reader), ticks, blocked) in &mut watching {
            for event in reader.by_ref() {
                match event {
                    Event::Tick(_) => *ticks += 1,
                    Event::Observation(observation)
                        if matches!(observation.seen, Seen::Blocked(_)) =>
                    {
                        *blocked.entry(name(&observation)).or_insert(0) += 1
                    }
                    _ => {}
                }
            }
        }
        std::thread::sleep(Duration::from_millis(1).saturating_sub(began.elapsed()));
    }
    for (index, ((sampler, _), ..)) in watching.into_iter().enumerate() {
        assert_eq!(sampler.status().backend, backends[index % 2].word());
    }
    for target in &mut targets {
        assert_eq!(eintrs(target), none);
    }
    ask(&mut targets[1], "\n");
    assert_eq!(next_number(&mut targets[1]), 0);
    // Each observation of ten of them found another wait.
    let waits = next_number(&mut targets[1]);
    assert!(waits > 3_000, "{waits}");

    // A control: a thread that is stopped once sees it in each of these calls.
    let pid = rustix::process::Pid::from_raw(targets[0].pid().cast_signed()).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
    wait_until("it stops", || {
        thread_states(targets[0].pid()).iter().all(|(state, _)| *state == 'T')
    });
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("goes on");
    let limit = Instant::now() + LIMIT;
    while let reported = eintrs(&mut targets[0])
        && reported.iter().any(|(_, count)| count != "1")
    {
        assert!(Instant::now() < limit, "{reported:?}");
    }
}
