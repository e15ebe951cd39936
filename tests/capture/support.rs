//! What the live tests of the sampler share.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sampletop::capture::ring::Reader;
use sampletop::capture::{MakeUnwinder, Plan, Sampler, Walkers};
use sampletop::config::{CaptureChoice, UnwinderChoice};
use sampletop::model::frame::{Event, FileId, FrameCode, Look, Ns, RawFrame};
use sampletop::process::target::Target;
use sampletop::unwinder::{Registers, StackBytes, Unwinder, Walk};

use crate::common::Running;

/// One frame: the program counter. These tests are about who is looked at, and how.
pub struct TopOnly;

impl Unwinder for TopOnly {
    fn walk(&mut self, registers: &Registers, stack: StackBytes<'_>, out: &mut Vec<RawFrame>) -> Walk {
        assert_eq!(stack.base, registers.rsp);
        out.push(RawFrame::new(FrameCode::Code { file: FileId(1), offset: registers.rip & 0xff_ffff, exact: true }));
        Walk { end: None, recovered: false }
    }
}

pub fn top_only() -> MakeUnwinder {
    Box::new(|_| Box::new(TopOnly))
}

pub fn plan(choice: CaptureChoice, interval_ms: u64) -> Plan {
    let interval = Duration::from_millis(interval_ms);
    Plan { choice, unwinder: UnwinderChoice::default(), interval, own_child: false, outlasts: false, overhead: None }
}

pub fn start(target: &Running, choice: CaptureChoice, interval_ms: u64) -> (Sampler, Reader) {
    start_pid(target.pid(), choice, interval_ms)
}

pub fn start_pid(pid: u32, choice: CaptureChoice, interval_ms: u64) -> (Sampler, Reader) {
    start_plan(pid, plan(choice, interval_ms))
}

pub fn start_plan(pid: u32, plan: Plan) -> (Sampler, Reader) {
    let target = Arc::new(Target::attach(pid).expect("attached"));
    let walkers = Walkers { walk_copied: top_only(), walk_stopped: None };
    Sampler::start_with(vec![target], plan, walkers).expect("sampling")
}

/// Reads events until `done` says so; fails after 30 s, far beyond what any of these needs.
pub fn read_until(reader: &mut Reader, events: &mut Vec<Event>, mut done: impl FnMut(&[Event]) -> bool) {
    let limit = Instant::now() + Duration::from_secs(30);
    while !done(events) {
        assert!(Instant::now() < limit, "waited in vain; last events: {:?}", &events[events.len().saturating_sub(5)..]);
        events.extend(reader.by_ref());
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn read_for(reader: &mut Reader, time: Duration) -> Vec<Event> {
    let mut events = Vec::new();
    let end = Instant::now() + time;
    read_until(reader, &mut events, |_| Instant::now() >= end);
    events
}

pub fn looks(events: &[Event]) -> impl Iterator<Item = &Look> {
    events.iter().filter_map(|event| if let Event::Look(look) = event { Some(look) } else { None })
}

/// Without those of the kernel.
pub fn frames_of_user(look: &Look) -> usize {
    look.stack.iter().filter(|frame| !matches!(frame.decode(), FrameCode::Kernel { .. })).count()
}

pub fn ticks(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Tick(_))).count()
}

pub fn time_of(event: &Event) -> Ns {
    match event {
        Event::Look(look) => look.at,
        Event::Tick(tick) => tick.at,
        Event::ThreadEnded { at, .. } | Event::Exec { at, .. } => *at,
        Event::ProcessEnded { at, .. } | Event::Gap { at, .. } => *at,
    }
}

pub fn name(look: &Look) -> String {
    String::from_utf8_lossy(look.name.bytes()).into_owned()
}

/// State letter and TracerPid of each thread.
pub fn thread_states(pid: u32) -> Vec<(char, u32)> {
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

pub fn ask(target: &mut Running, line: &str) {
    target.child.stdin.as_mut().expect("piped").write_all(line.as_bytes()).expect("the target listens");
}

pub fn next_number(target: &mut Running) -> u64 {
    let line = target.lines.next().expect("an answer").expect("text");
    line.split_whitespace().last().expect("a word").parse().expect("a number")
}
