//! A COMMAND that sampletop starts and holds until capture is open: what is reported of it before
//! its exec.

use std::ffi::OsString;
use std::time::Duration;

use sampletop::capture::{Control, Plan};
use sampletop::config::CaptureChoice;
use sampletop::model::vocabulary::event::{Event, Seen};
use sampletop::process::launch::{Launch, LaunchOutput};

use crate::bpf::works;
use crate::support::*;

fn launch_before_exec() -> Launch {
    let command = ["sleep", "1000"].map(OsString::from);
    Launch::prepare(&command, LaunchOutput::Null).expect("it can be prepared")
}

fn is_exec(event: &Event) -> bool {
    matches!(event, Event::Exec { .. })
}

/// Before its exec it waits in sampletop's own code, which does not belong to the COMMAND.
fn no_stack_is_told_of_a_command_before_its_exec(choice: CaptureChoice) {
    let mut launch = launch_before_exec();
    let (sampler, mut reader) =
        start_plan(launch.pid(), Plan { own_child: true, ..plan(choice, 5) });
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| ticks(events) > 5);
    launch.go().expect("it starts");
    let waits = |event: &Event| matches!(event, Event::Observation(observation) if matches!(observation.seen, Seen::Blocked(_)));
    read_until(&mut reader, &mut events, |events| {
        events.iter().any(is_exec) && events.iter().any(waits)
    });
    drop(sampler);
    launch.end();
    let exec = events.iter().position(is_exec).expect("an exec");
    let before: Vec<_> =
        scan(&events[..exec]).filter(|observation| observation.seen != Seen::OnCpu).collect();
    assert!(
        before.iter().any(|observation| observation.counters.is_some()),
        "its CPU time counts from the first: {events:?}"
    );
    for observation in before {
        assert!(
            observation.stack.is_empty() && observation.seen == Seen::Running,
            "{observation:?}"
        );
    }
    assert!(scan(&events[exec..]).any(|observation| !observation.stack.is_empty()), "{events:?}");
}

/// Otherwise the time from the exec to the next tick would be time without any observation.
fn the_exec_of_a_command_is_noticed_at_once(choice: CaptureChoice) {
    let mut launch = launch_before_exec();
    let interval = Duration::from_secs(20);
    let plan = Plan { own_child: true, ..plan(choice, interval.as_millis() as u64) };
    let (sampler, mut reader) = start_plan(launch.pid(), plan);
    launch.go().expect("it starts");
    sampler.control(Control::Started);
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| events.iter().any(is_exec));
    let at = events.iter().find(|event| is_exec(event)).map(time_of).expect("an exec");
    assert!(
        at < sampler.began() + interval.as_nanos() as u64 / 2,
        "not by the second tick: {events:?}"
    );
    drop(sampler);
    launch.end();
}

macro_rules! by_both {
    ($($test:ident)*) => {
        mod by_perf {
            $(#[test] fn $test() { super::$test(super::CaptureChoice::Perf) })*
        }
        mod by_bpf {
            $(#[test] fn $test() { if super::works() { super::$test(super::CaptureChoice::Bpf) } })*
        }
    };
}

by_both! {
    no_stack_is_told_of_a_command_before_its_exec
    the_exec_of_a_command_is_noticed_at_once
}
