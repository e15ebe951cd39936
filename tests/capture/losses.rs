//! Every loss is counted by its cause, up to the last moment.

use std::sync::Arc;
use std::time::Duration;

use sampletop::capture::bpf::rows::{self, Blocked, Copied, Row, What};
use sampletop::capture::perf::Perf;
use sampletop::capture::stack_reader::StackReader;
use sampletop::capture::thread_scan::{ScanContext, Stacks, ThreadScan};
use sampletop::capture::{Plan, Sampler, Walkers};
use sampletop::clock::monotonic;
use sampletop::config::CaptureChoice;
use sampletop::model::vocabulary::event::{Counters, Event, Losses, Seen, Syscall};
use sampletop::model::vocabulary::frame::{Marker, Ns, RawFrame, RawName};
use sampletop::process::memory::Memory;
use sampletop::process::target::Target;
use sampletop::runtimes::frame_and_thread_names::Names;
use sampletop::unwinder::{Registers, StackBytes, Unwinder, Walk};

use crate::common::{Running, build, need_root, skipped, wait_until};
use crate::support::*;

/// Ends its walks in turn in every possible manner.
struct Endings(usize);

impl Unwinder for Endings {
    fn walk(&mut self, _: &Registers, _: StackBytes<'_>, out: &mut Vec<RawFrame>) -> Walk {
        use Marker::*;
        let all = [
            None,
            Some(Truncated),
            Some(TooDeep),
            Some(NoUnwindInfo),
            Some(BadUnwind),
            Some(OutsideMaps),
        ];
        let end = all[self.0 % all.len()];
        self.0 += 1;
        out.extend(end.map(RawFrame::marker));
        Walk { end, recovered: false }
    }
}

#[test]
fn walks_that_fail_are_counted_by_cause() {
    let program = build("cap_threads.c", "endings", &["-O1"]);
    let target = Running::start(&program, &["park", "3"]);
    let attached = Arc::new(Target::attach(target.pid()).expect("attached"));
    let walkers = Walkers {
        walk_copied: Box::new(|_| Box::new(Endings(0))),
        walk_stopped: None,
        names: Names::default(),
    };
    let (sampler, mut reader) =
        Sampler::start_with(vec![attached], plan(CaptureChoice::Perf, 5), walkers)
            .expect("sampling");
    let mut events = Vec::new();
    let last = |events: &[Event]| {
        let last = events
            .iter()
            .rev()
            .find_map(|e| if let Event::Tick(t) = e { Some(t.losses) } else { None });
        last.unwrap_or_default()
    };
    let by = |losses: Losses| [losses.no_unwind_info, losses.bad_unwind, losses.outside_maps];
    read_until(&mut reader, &mut events, |events| {
        let losses = last(events);
        by(losses).iter().all(|n| *n >= 5) && losses.truncated >= 10
    });
    drop(sampler);
    events.extend(reader.by_ref());
    let losses = last(&events);
    // Uncertain blocked stacks are walked again, a few times each, and count once.
    assert_eq!(by(losses).iter().sum::<u64>(), losses.unwind_failed);
    // One ending in six is complete.
    assert!(losses.samples > losses.truncated + losses.unwind_failed, "{losses:?}");
}

#[test]
fn samples_that_find_the_ring_full_are_counted() {
    if !need_root("one event per CPU, whose ring is left to overflow") {
        return;
    }
    let program = build("cap_threads.c", "overflow", &["-O1"]);
    let target = Running::start(&program, &["park", "1"]);
    let pid = target.pid();
    let mut perf = Perf::open(pid, pid, 1_000_000, 100, monotonic()).expect("permitted");
    std::thread::sleep(Duration::from_millis(5));
    perf.start_due(monotonic());
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(perf.counts().lost, 0, "not asked for yet");
    // A ring holds eight samples and is never drained.
    wait_until("200 find it full", || {
        perf.count_lost();
        perf.counts().lost >= 200
    });
    let lost = perf.counts().lost;
    perf.count_lost();
    assert!(perf.counts().lost >= lost);
}

/// kernel.perf_event_max_sample_rate, restored when dropped.
struct MostSamples(String);

const MOST_SAMPLES: &str = "/proc/sys/kernel/perf_event_max_sample_rate";

impl MostSamples {
    fn lower(to: u32) -> std::io::Result<MostSamples> {
        let before = std::fs::read_to_string(MOST_SAMPLES)?;
        std::fs::write(MOST_SAMPLES, to.to_string())?;
        Ok(MostSamples(before))
    }
}

impl Drop for MostSamples {
    fn drop(&mut self) {
        let _ = std::fs::write(MOST_SAMPLES, self.0.trim());
    }
}

/// Samples at 10,000 a second where 4,000 are allowed. Other profilers that sample at up to 1,000 a
/// second are not affected.
#[test]
fn times_the_kernel_throttles_are_counted() {
    if !need_root("lowers kernel.perf_event_max_sample_rate for a moment") {
        return;
    }
    let program = build("cap_threads.c", "throttled", &["-O1"]);
    let target = Running::start(&program, &["park", "1"]);
    let lowered = match MostSamples::lower(4_000) {
        Ok(lowered) => lowered,
        Err(error) => {
            return skipped(
                "times_the_kernel_throttles_are_counted",
                &format!("{MOST_SAMPLES}: {error}"),
            );
        }
    };
    let interval = Duration::from_micros(100);
    let (sampler, mut reader) =
        start_plan(target.pid(), Plan { interval, ..plan(CaptureChoice::Perf, 1) });
    let mut events = Vec::new();
    let throttled =
        |event: &Event| matches!(event, Event::Tick(tick) if tick.losses.throttled >= 3);
    read_until(&mut reader, &mut events, |events| events.iter().rev().take(1_000).any(throttled));
    drop((sampler, lowered));
    let (sampler, mut reader) = start(&target, CaptureChoice::Perf, 5);
    let events = read_for(&mut reader, Duration::from_millis(500));
    drop(sampler);
    assert!(
        !events.iter().any(|e| matches!(e, Event::Tick(tick) if tick.losses.throttled > 0)),
        "it is put back"
    );
}

/// A read of the iterator never returns more rows than there are slots, so no thread is late for
/// lack of a slot. Only this seam shows what would be reported of it.
#[test]
fn a_stack_without_a_slot_is_late_and_taken_the_next_time() {
    const { assert!((32 << 10) / rows::ROW < rows::SLOTS, "rows of a read, and slots") };
    let program = build("cap_threads.c", "slots", &["-O1"]);
    let target = Running::start(&program, &["park", "1"]);
    let pid = target.pid();
    let mut scan = ThreadScan::new(pid, 100).expect("its threads");
    let mut reader = StackReader::new(Memory::new(pid));
    let (mut events, mut moved, mut losses) = (Vec::new(), Vec::new(), Losses::default());
    let mut tell = |what| {
        let mut context = ScanContext {
            stacks: Some(Stacks {
                reader: &mut reader,
                unwinder: &mut TopOnly,
                labels: None,
                reports: None,
            }),
            events: &mut events,
            moved: &mut moved,
            losses: &mut losses,
            stops_threads: false,
            turns: 0,
            max_first_observations: usize::MAX,
            pause_at: Ns::MAX,
            denied: false,
        };
        let counters = Counters { run_ns: 5, delay_ns: 6, runs: 7 };
        let name = RawName::new(b"parked");
        scan.take_row(
            &Row {
                at: 1,
                tid: pid,
                process: pid,
                id: pid,
                start: 3,
                name,
                counters,
                left_core: 0,
                state: b'S',
                what,
            },
            Copied::default(),
            &mut context,
        );
        (std::mem::take(&mut events), losses)
    };
    let (reported, counted) = tell(What::Late);
    assert_eq!((counted.late, counted.samples, counted.torn), (1, 0, 0));
    assert!(
        matches!(&reported[..], [Event::Observation(observation)] if observation.seen == Seen::Running && observation.stack.is_empty()),
        "{reported:?}"
    );
    let registers = Registers { rip: 0x1000, rsp: 0x2000, rbp: Some(0), ..Registers::default() };
    let call = Syscall { number: 0, args: [0; 6] };
    let (reported, counted) = tell(What::Blocked(Blocked {
        registers,
        call,
        fs_base: 0,
        slot: 0,
        stack_bytes: 0,
        kernel_bytes: 0,
    }));
    assert_eq!((counted.late, counted.samples), (1, 1));
    assert!(
        matches!(&reported[..], [Event::Observation(observation)] if observation.seen == Seen::Blocked(call)),
        "{reported:?}"
    );
}
