//! One sampler, several processes: they start, exit, and others start after the last.

use std::sync::Arc;
use std::time::Duration;

use sampletop::capture::{Control, Plan};
use sampletop::config::CaptureChoice;
use sampletop::model::vocabulary::event::{Event, Seen};
use sampletop::process::target::Target;

use crate::common::{Running, build, need_root};
use crate::support::*;

fn attach(target: &Running) -> Arc<Target> {
    Arc::new(Target::attach(target.pid()).expect("attached"))
}

fn sampled(events: &[Event], pid: u32) -> usize {
    scan(events)
        .filter(|observation| observation.thread.pid == pid && observation.seen == Seen::OnCpu)
        .count()
}

fn ended(events: &[Event], pid: u32) -> bool {
    events
        .iter()
        .any(|event| matches!(event, Event::ProcessEnded { pid: found, .. } if *found == pid))
}

#[test]
fn processes_are_added_exit_and_are_added_again() {
    if !need_root("samples all processors") {
        return;
    }
    let program = build("family.c", "sampler", &["-O1"]);
    let backends = [CaptureChoice::Perf, CaptureChoice::Bpf, CaptureChoice::Ptrace];
    for backend in backends {
        if backend == CaptureChoice::Bpf && !crate::bpf::works() {
            continue;
        }
        let one = Running::start(&program, &["spin", "red", "60"]);
        let plan = Plan { outlasts: true, ..plan(backend, 5) };
        let (sampler, mut reader) = start_plan(one.pid(), plan);
        let mut events = Vec::new();
        read_until(&mut reader, &mut events, |events| sampled(events, one.pid()) > 3);

        let two = Running::start(&program, &["spin", "blue", "60"]);
        sampler.control(Control::Add(attach(&two)));
        // Adding twice has the effect of adding once.
        sampler.control(Control::Add(attach(&two)));
        read_until(&mut reader, &mut events, |events| sampled(events, two.pid()) > 3);
        // Every tick reports both, with the same time.
        let from = events.len();
        read_until(&mut reader, &mut events, |events| ticks(&events[from..]) > 10);
        let times = |pid| {
            let tick = move |event: &Event| match event {
                Event::Tick(tick) if tick.pid == pid => Some(tick.at),
                _ => None,
            };
            events[from..].iter().filter_map(tick).collect::<Vec<_>>()
        };
        let (first, second) = (times(one.pid()), times(two.pid()));
        let same = first.iter().filter(|at| second.contains(at)).count();
        assert!(
            same + 1 >= first.len().max(second.len()) && same >= 4,
            "{backend:?}: {first:?} {second:?}"
        );

        let pids = [one.pid(), two.pid()];
        drop(one);
        read_until(&mut reader, &mut events, |events| ended(events, pids[0]));
        let from = events.len();
        read_until(&mut reader, &mut events, |events| sampled(&events[from..], pids[1]) > 3);
        assert!(
            events[from..]
                .iter()
                .all(|event| !matches!(event, Event::Tick(tick) if tick.pid == pids[0]))
        );
        drop(two);
        read_until(&mut reader, &mut events, |events| ended(events, pids[1]));
        // No process exists: no tick is reported, and the sampler keeps running.
        let quiet = read_for(&mut reader, Duration::from_millis(100));
        assert!(quiet.is_empty() && !sampler.finished(), "{backend:?}: {quiet:?}");

        let three = Running::start(&program, &["spin", "red", "60"]);
        sampler.control(Control::Add(attach(&three)));
        let from = events.len();
        read_until(&mut reader, &mut events, |events| sampled(&events[from..], three.pid()) > 3);
        let later = &events[from..];
        assert!(
            matches!(later[0], Event::Gap { from, at } if at >= from + 100_000_000),
            "{backend:?}: {:?}",
            later[0]
        );
        // Events are in order of time across processes.
        assert!(events.is_sorted_by_key(time_of), "{backend:?}");
        // A process that exits before the sampler receives it is reported as exited.
        let exited = Running::start(&program, &["spin", "blue", "60"]);
        let (target, pid) = (attach(&exited), exited.pid());
        drop(exited);
        sampler.control(Control::Add(target));
        read_until(&mut reader, &mut events, |events| ended(events, pid));
        assert_eq!(sampled(&events, pid), 0);
    }
}
