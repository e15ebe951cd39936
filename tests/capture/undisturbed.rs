//! A minute at 100 Hz: no wait is disturbed, nobody is traced, and nobody is stopped for a moment.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use sampletop::config::CaptureChoice;
use sampletop::model::frame::{Event, Seen};

use crate::bpf::works;
use crate::common::{Running, build};
use crate::support::*;

/// The status files of threads that stay, kept open: a look at each costs microseconds.
struct Statuses(Vec<File>);

impl Statuses {
    fn of(pid: u32) -> Statuses {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
        Statuses(threads.map(|t| File::open(t.expect("an entry").path().join("status")).expect("it lives")).collect())
    }

    fn assert_all_are_left_alone(&self) {
        let mut bytes = [0; 2048];
        for file in &self.0 {
            let length = file.read_at(&mut bytes, 0).expect("it lives");
            let text = String::from_utf8_lossy(&bytes[..length]);
            assert!(!text.contains("\nState:\tt") && !text.contains("\nState:\tT"), "stopped: {text}");
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

/// The EINTRs that each call has returned.
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

/// Two ways watch both targets at the same time: what neither of them disturbs in a minute, none does by itself.
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
    let ways = [CaptureChoice::Bpf, CaptureChoice::Perf];
    let mut watching: Vec<_> =
        targets.iter().flat_map(|t| ways.map(|way| (start(t, way, 10), 0, BTreeMap::new()))).collect();
    let statuses = targets.each_ref().map(|target| Statuses::of(target.pid()));
    let (end, mut polls) = (Instant::now() + Duration::from_secs(60), 0);
    while Instant::now() < end {
        let began = Instant::now();
        statuses.iter().for_each(Statuses::assert_all_are_left_alone);
        polls += 1;
        for ((_, reader), ticks, blocked) in &mut watching {
            for event in reader.by_ref() {
                match event {
                    Event::Tick(_) => *ticks += 1,
                    Event::Look(look) if matches!(look.seen, Seen::Blocked(_)) => {
                        *blocked.entry(name(&look)).or_insert(0) += 1
                    }
                    _ => {}
                }
            }
        }
        std::thread::sleep(Duration::from_millis(1).saturating_sub(began.elapsed()));
    }
    assert!(polls > 10_000, "{polls}");
    for (index, ((sampler, _), ticks, blocked)) in watching.into_iter().enumerate() {
        assert_eq!(sampler.status().way, ways[index % 2].word());
        assert!(ticks > 3_000, "{ticks}");
        let stays = index < 2;
        for call in CALLS {
            let looks = blocked.get(call).copied().unwrap_or(0);
            let enough = if stays || ["sigwaitinfo", "io_uring"].contains(&call) { 1 } else { 300 };
            assert!(looks >= enough, "{call}: {looks} in {ticks} rounds by {}", ways[index % 2].word());
        }
    }
    for target in &mut targets {
        assert_eq!(eintrs(target), none);
    }
    ask(&mut targets[1], "\n");
    assert_eq!(next_number(&mut targets[1]), 0);
    let waits = next_number(&mut targets[1]);
    assert!(waits > 30_000, "{waits}");

    // They would have noticed: who is stopped once sees it in each of these calls.
    let pid = rustix::process::Pid::from_raw(targets[0].pid().cast_signed()).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
    while !thread_states(targets[0].pid()).iter().all(|(state, _)| *state == 'T') {
        std::thread::yield_now();
    }
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("goes on");
    let limit = Instant::now() + Duration::from_secs(30);
    while let told = eintrs(&mut targets[0])
        && told.iter().any(|(_, count)| count != "1")
    {
        assert!(Instant::now() < limit, "{told:?}");
    }
}
