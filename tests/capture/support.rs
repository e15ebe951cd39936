//! What the live tests of the sampler share.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sampletop::capture::event_ring::Reader;
use sampletop::capture::thread_scan::parked_rotation::PARKED_AFTER;
use sampletop::capture::{MakeUnwinder, Plan, Sampler, Walkers};
use sampletop::config::{CaptureChoice, UnwinderChoice};
use sampletop::model::vocabulary::event::{Event, Observation};
use sampletop::model::vocabulary::frame::{FileId, FrameCode, Ns, RawFrame, ThreadKey};
use sampletop::process::target::Target;
use sampletop::runtimes::frame_and_thread_names::Names;
use sampletop::unwinder::{Registers, StackBytes, Unwinder, Walk};

use crate::common::{LIMIT, Running};

/// Reports one frame, the program counter. These tests are about which threads are observed, and
/// how.
pub struct TopOnly;

impl Unwinder for TopOnly {
    fn walk(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        assert_eq!(stack.base, registers.rsp);
        out.push(RawFrame::new(FrameCode::Code {
            file: FileId(1),
            offset: registers.rip & 0xff_ffff,
            exact: true,
        }));
        Walk { end: None, recovered: false }
    }
}

pub fn top_only() -> MakeUnwinder {
    Box::new(|_| Box::new(TopOnly))
}

pub fn plan(choice: CaptureChoice, interval_ms: u64) -> Plan {
    let interval = Duration::from_millis(interval_ms);
    Plan {
        choice,
        unwinder: UnwinderChoice::default(),
        interval,
        own_child: false,
        outlasts: false,
        overhead: None,
        once: false,
    }
}

pub fn start(target: &Running, choice: CaptureChoice, interval_ms: u64) -> (Sampler, Reader) {
    start_pid(target.pid(), choice, interval_ms)
}

pub fn start_pid(pid: u32, choice: CaptureChoice, interval_ms: u64) -> (Sampler, Reader) {
    start_plan(pid, plan(choice, interval_ms))
}

pub fn start_plan(pid: u32, plan: Plan) -> (Sampler, Reader) {
    let target = Arc::new(Target::attach(pid).expect("attached"));
    let walkers = Walkers { walk_copied: top_only(), walk_stopped: None, names: Names::default() };
    Sampler::start_with(vec![target], plan, walkers).expect("sampling")
}

/// Repeats a check of threads that are not parked yet until it is done in time. A tick that came
/// too late proves nothing: the check is repeated after `park`, which parks every thread.
pub fn in_time<S, T>(
    state: &mut S,
    mut seen: impl FnMut(&mut S) -> T,
    mut park: impl FnMut(&mut S),
) -> T {
    let limit = Instant::now() + LIMIT;
    loop {
        let began = Instant::now();
        let found = seen(state);
        let took = began.elapsed();
        park(state);
        if took < Duration::from_nanos(PARKED_AFTER) {
            return found;
        }
        assert!(Instant::now() < limit, "no round is in time: the last one took {took:?}");
    }
}

/// Reads events until `done` says so.
pub fn read_until(
    reader: &mut Reader,
    events: &mut Vec<Event>,
    mut done: impl FnMut(&[Event]) -> bool,
) {
    let limit = Instant::now() + LIMIT;
    while !done(events) {
        assert!(
            Instant::now() < limit,
            "waited in vain; last events: {:?}",
            &events[events.len().saturating_sub(5)..]
        );
        events.extend(reader.by_ref());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reads events until none has come for `time`.
pub fn read_until_silent(reader: &mut Reader, events: &mut Vec<Event>, time: Duration) {
    let (mut known, mut since) = (events.len(), Instant::now());
    read_until(reader, events, |events| {
        if events.len() != std::mem::replace(&mut known, events.len()) {
            since = Instant::now();
        }
        since.elapsed() >= time
    });
}

/// Drops the events of an unfinished scan, whose tick is missing: events are read while they are
/// written.
pub fn whole_rounds(events: &mut Vec<Event>) {
    let end = events.iter().rposition(|event| matches!(event, Event::Tick(_)));
    events.truncate(end.map_or(0, |tick| tick + 1));
}

pub fn read_for(reader: &mut Reader, time: Duration) -> Vec<Event> {
    let mut events = Vec::new();
    let end = Instant::now() + time;
    read_until(reader, &mut events, |_| Instant::now() >= end);
    events
}

/// Returns false for a thread that was sampled and had exited before it was observed.
pub fn is_known(thread: &ThreadKey) -> bool {
    thread.tid != 0
}

pub fn scan(events: &[Event]) -> impl Iterator<Item = &Observation> {
    events.iter().filter_map(|event| {
        if let Event::Observation(observation) = event { Some(observation) } else { None }
    })
}

/// Counts frames, without those of the kernel.
pub fn frames_of_user(observation: &Observation) -> usize {
    observation
        .stack
        .iter()
        .filter(|frame| !matches!(frame.decode(), FrameCode::Kernel { .. }))
        .count()
}

pub fn ticks(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Tick(_))).count()
}

pub fn time_of(event: &Event) -> Ns {
    match event {
        Event::Observation(observation) => observation.at,
        Event::Tick(tick) => tick.at,
        Event::ThreadEnded { at, .. } | Event::Exec { at, .. } => *at,
        Event::ProcessEnded { at, .. } | Event::Gap { at, .. } => *at,
        Event::StillBlocked { at, .. } | Event::Deadlocks { at, .. } => *at,
    }
}

pub fn name(observation: &Observation) -> String {
    String::from_utf8_lossy(observation.name.bytes()).into_owned()
}

/// Returns state letter and TracerPid of each thread.
pub fn thread_states(pid: u32) -> Vec<(char, u32)> {
    let mut states = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).expect("threads") {
        let Ok(text) = fs::read_to_string(entry.expect("an entry").path().join("status")) else {
            continue;
        };
        let field = |key: &str| {
            let line = text.lines().find(|line| line.starts_with(key)).expect("a field");
            line.split_whitespace().nth(1).expect("its value").to_owned()
        };
        states.push((
            field("State:").chars().next().expect("a letter"),
            field("TracerPid:").parse().expect("a pid"),
        ));
    }
    states
}

/// Returns how long our processors worked for other guests by the host's account, summed over all,
/// ns. Events due during that time are late. The kernel takes at most one sample of such a time,
/// which may or may not count as a thread's run time.
pub fn stolen() -> Ns {
    let text = fs::read_to_string("/proc/stat").expect("every kernel has it");
    let steal =
        text.lines().next().and_then(|line| line.split_whitespace().nth(8)).expect("a figure");
    // In hundredths of a second, independent of the kernel's tick.
    steal.parse::<Ns>().expect("a number") * 10_000_000
}

/// Asserts that threads which ran for `run_ns` have the number of samples that a period of
/// `period_ns` yields. The tolerance is 5 standard deviations of a binomial count (error 6e-7; a
/// systematic sampler varies less), and 4 samples for counters that lag 20 ms in all. `stolen_ns`:
/// by [`stolen`], between those observations.
pub fn assert_samples(samples: usize, run_ns: Ns, period_ns: f64, stolen_ns: Ns, what: &str) {
    let expected = run_ns as f64 / period_ns;
    let off = 5.0 * expected.sqrt() + 4.0 + 2.0 * stolen_ns as f64 / period_ns;
    assert!(
        (samples as f64 - expected).abs() <= off,
        "{what}: {samples} samples of {expected}, {stolen_ns} ns stolen"
    );
}

pub fn ask(target: &mut Running, line: &str) {
    target
        .child
        .stdin
        .as_mut()
        .expect("piped")
        .write_all(line.as_bytes())
        .expect("the target listens");
}

pub fn next_number(target: &mut Running) -> u64 {
    let line = target.lines.next().expect("an answer").expect("text");
    line.split_whitespace().last().expect("a word").parse().expect("a number")
}
