//! What is lost is counted, by its cause, up to the last moment.

use std::sync::Arc;
use std::time::Duration;

use sampletop::capture::perf::Perf;
use sampletop::capture::schedule::now;
use sampletop::capture::{Sampler, Walkers};
use sampletop::config::CaptureChoice;
use sampletop::model::frame::{Event, Marker, RawFrame};
use sampletop::process::target::Target;
use sampletop::unwinder::{Registers, StackBytes, Unwinder, Walk};

use crate::common::{Running, build, need_root};
use crate::support::*;

/// Ends its walks in turn in every way that there is.
struct Endings(usize);

impl Unwinder for Endings {
    fn walk(&mut self, _: &Registers, _: StackBytes<'_>, out: &mut Vec<RawFrame>) -> Walk {
        use Marker::*;
        let all = [None, Some(Truncated), Some(TooDeep), Some(NoUnwindInfo), Some(BadUnwind), Some(OutsideMaps)];
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
    let walkers = Walkers { walk_copied: Box::new(|_| Box::new(Endings(0))), walk_stopped: None };
    let (sampler, mut reader) =
        Sampler::start_with(vec![attached], plan(CaptureChoice::Perf, 5), walkers).expect("sampling");
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| {
        events.iter().any(|event| matches!(event, Event::Tick(tick) if tick.losses.samples >= 60))
    });
    drop(sampler);
    events.extend(reader.by_ref());
    let losses = events.iter().rev().find_map(|e| if let Event::Tick(t) = e { Some(t.losses) } else { None });
    let losses = losses.expect("a tick");
    let by = [losses.no_unwind_info, losses.bad_unwind, losses.outside_maps];
    // Blocked stacks in doubt are walked again, a few times each, and count once.
    assert!(by.iter().all(|n| *n >= 5), "{losses:?}");
    assert_eq!(by.iter().sum::<u64>(), losses.unwind_failed);
    assert!(losses.truncated >= 10 && losses.samples > losses.truncated + losses.unwind_failed, "{losses:?}");
}

#[test]
fn samples_that_find_the_ring_full_are_counted() {
    if !need_root("one event per CPU, whose ring is left to overflow") {
        return;
    }
    let program = build("cap_threads.c", "overflow", &["-O1"]);
    let target = Running::start(&program, &["park", "1"]);
    let pid = target.pid();
    let mut perf = Perf::open(pid, pid, 1_000_000, 100, now()).expect("permitted");
    std::thread::sleep(Duration::from_millis(5));
    perf.start_due(now());
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(perf.counts().lost, 0, "nobody has asked yet");
    perf.count_lost();
    // A ring holds eight samples; of 500 in half a second at least 200 found it full, or nothing ran.
    let lost = perf.counts().lost;
    assert!(lost >= 200, "{lost}");
    perf.count_lost();
    assert!(perf.counts().lost >= lost);
}
