//! The sampler on live targets: nobody is stopped, nothing is missed, sums are the kernel's.

mod common;

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Running, build};
use sampletop::capture::ring::Reader;
use sampletop::capture::{MakeUnwinder, Plan, Sampler};
use sampletop::config::{CaptureChoice, UnwinderChoice};
use sampletop::model::frame::{Event, FileId, FrameCode, Look, Ns, RawFrame, Seen};
use sampletop::process::target::Target;
use sampletop::unwinder::{Registers, StackBytes, Unwinder, Walk};

/// One frame: the program counter. These tests are about who is looked at, and how.
struct TopOnly;

impl Unwinder for TopOnly {
    fn walk(&mut self, registers: &Registers, stack: StackBytes<'_>, out: &mut Vec<RawFrame>) -> Walk {
        assert_eq!(stack.base, registers.rsp);
        out.push(RawFrame::new(FrameCode::Code { file: FileId(1), offset: registers.rip & 0xff_ffff, exact: true }));
        Walk { end: None, recovered: false }
    }
}

fn top_only() -> MakeUnwinder {
    Box::new(|| Box::new(TopOnly))
}

fn plan(choice: CaptureChoice, interval_ms: u64) -> Plan {
    let interval = Duration::from_millis(interval_ms);
    Plan { choice, unwinder: UnwinderChoice::default(), interval, own_child: false }
}

fn start(target: &Running, choice: CaptureChoice, interval_ms: u64) -> (Sampler, Reader) {
    let target = Arc::new(Target::attach(target.pid()).expect("attached"));
    Sampler::start_with(target, plan(choice, interval_ms), top_only()).expect("sampling")
}

/// Reads events until `done` says so; fails after 30 s, far beyond what any of these needs.
fn read_until(reader: &mut Reader, events: &mut Vec<Event>, mut done: impl FnMut(&[Event]) -> bool) {
    let limit = Instant::now() + Duration::from_secs(30);
    while !done(events) {
        assert!(Instant::now() < limit, "waited in vain; last events: {:?}", &events[events.len().saturating_sub(5)..]);
        events.extend(reader.by_ref());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn read_for(reader: &mut Reader, time: Duration) -> Vec<Event> {
    let mut events = Vec::new();
    let end = Instant::now() + time;
    read_until(reader, &mut events, |_| Instant::now() >= end);
    events
}

fn looks(events: &[Event]) -> impl Iterator<Item = &Look> {
    events.iter().filter_map(|event| if let Event::Look(look) = event { Some(look) } else { None })
}

fn ticks(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Tick(_))).count()
}

fn time_of(event: &Event) -> Ns {
    match event {
        Event::Look(look) => look.at,
        Event::Tick(tick) => tick.at,
        Event::ThreadEnded { at, .. } | Event::Exec { at, .. } => *at,
        Event::ProcessEnded { at, .. } | Event::Gap { at, .. } => *at,
    }
}

fn name(look: &Look) -> String {
    String::from_utf8_lossy(look.name.bytes()).into_owned()
}

/// State letter and TracerPid of each thread.
fn thread_states(pid: u32) -> Vec<(char, u32)> {
    let mut states = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).expect("threads") {
        let Ok(text) = fs::read_to_string(entry.expect("an entry").path().join("status")) else { continue };
        let field = |key: &str| {
            let line = text.lines().find(|line| line.starts_with(key)).expect("a field");
            line.split_whitespace().nth(1).expect("its value").to_owned()
        };
        states.push((field("State:").chars().next().expect("a letter"), field("TracerPid:").parse().expect("a pid")));
    }
    states
}

fn ask(target: &mut Running, line: &str) {
    target.child.stdin.as_mut().expect("piped").write_all(line.as_bytes()).expect("the target listens");
}

fn next_number(target: &mut Running) -> u64 {
    let line = target.lines.next().expect("an answer").expect("text");
    line.split_whitespace().last().expect("a word").parse().expect("a number")
}

#[test]
fn perf_disturbs_no_wait_and_traces_nobody() {
    let program = build("cap_eintr.c", "perf", &["-O1"]);
    for mode in ["stay", "alternate"] {
        let mut target = Running::start(&program, &[mode]);
        let (sampler, mut reader) = start(&target, CaptureChoice::Perf, 5);
        let mut events = Vec::new();
        let end = Instant::now() + Duration::from_secs(2);
        let pid = target.pid();
        read_until(&mut reader, &mut events, |_| {
            assert!(thread_states(pid).iter().all(|(_, tracer)| *tracer == 0));
            Instant::now() >= end
        });
        assert_eq!(sampler.status().way, "perf");
        drop(sampler);
        ask(&mut target, "\n");
        assert_eq!(next_number(&mut target), 0, "EINTR under {mode}");
        let waits = next_number(&mut target);
        assert!(mode == "stay" || waits > 300, "{waits} waits");

        // Who waits was read where it waits; who spins was sampled on its core.
        let seen =
            |who: &str, kind: fn(&Seen) -> bool| looks(&events).filter(|l| name(l) == who && kind(&l.seen)).count();
        for who in ["epoll", "aio", "recv"] {
            let blocked = seen(who, |seen| matches!(seen, Seen::Blocked(_)));
            // One that stays is read once (at most a few times, should its thread have started late).
            assert!(if mode == "stay" { (1..=3).contains(&blocked) } else { blocked > 20 }, "{who}, {mode}: {blocked}");
        }
        // The box may be shared with others: 2 s at 5 ms are 400 samples of an undisturbed core.
        assert!(seen("spin", |seen| *seen == Seen::OnCpu) > 40, "{mode}");
        assert!(looks(&events).filter(|l| l.seen == Seen::OnCpu).all(|l| l.counters.is_none() && l.stack.len() == 1));
    }
}

#[test]
fn events_come_in_order_of_time_and_ticks_close_their_rounds() {
    let program = build("cap_eintr.c", "order", &["-O1"]);
    let target = Running::start(&program, &["alternate"]);
    let (sampler, mut reader) = start(&target, CaptureChoice::Perf, 2);
    let events = read_for(&mut reader, Duration::from_secs(1));
    drop(sampler);
    let backwards = events.windows(2).find(|pair| time_of(&pair[0]) > time_of(&pair[1]));
    assert_eq!(backwards, None);
    assert!(ticks(&events) > 100, "{}", ticks(&events));
    let cpu: Vec<u64> =
        events.iter().filter_map(|e| if let Event::Tick(t) = e { t.process_cpu_ns } else { None }).collect();
    assert!(!cpu.is_empty() && cpu.len() < 4 && cpu.is_sorted(), "{cpu:?}");
}
