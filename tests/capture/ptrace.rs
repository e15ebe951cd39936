//! The backend `ptrace`: it stops only running threads, one at a time, and leaves none stopped.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use sampletop::config::CaptureChoice;
use sampletop::model::vocabulary::event::{Event, Seen};

use crate::common::{Running, build, wait_until, wait_until_all_sleep};
use crate::support::*;

fn last_losses(events: &[Event]) -> sampletop::model::vocabulary::event::Losses {
    events
        .iter()
        .rev()
        .find_map(|e| if let Event::Tick(t) = e { Some(t.losses) } else { None })
        .expect("a tick")
}

#[test]
fn threads_that_stay_blocked_are_never_stopped() {
    let program = build("cap_eintr.c", "ptrace", &["-O1"]);
    let mut target = Running::start(&program, &["stay"]);
    wait_until_all_sleep(target.pid());
    let (sampler, mut reader) = start(&target, CaptureChoice::Ptrace, 5);
    assert_eq!(sampler.status().backend, "ptrace (stops threads)");
    let mut events = Vec::new();
    let caught = |events: &[Event]| {
        scan(events).filter(|observation| observation.seen == Seen::OnCpu).count()
    };
    read_until(&mut reader, &mut events, |events| {
        ticks(events) > 300 && last_losses(events).stops > 20 && caught(events) > 20
    });
    drop(sampler);
    let losses = last_losses(&events);
    let caught =
        scan(&events).filter(|observation| observation.seen == Seen::OnCpu).collect::<Vec<_>>();
    assert!(
        caught
            .iter()
            .all(|observation| name(observation) == "spin" && observation.stack.len() == 1)
    );
    assert!(
        scan(&events).all(|observation| observation.seen != Seen::Stopped),
        "our own stops are not the target's state"
    );
    assert_eq!(losses.stops_blocked, 0, "the spinning thread makes no system calls");
    assert!(losses.stop_p99_ns > 0);
    let backwards = events.windows(2).find(|pair| time_of(&pair[0]) > time_of(&pair[1]));
    assert_eq!(backwards, None);
    assert!(
        thread_states(target.pid())
            .iter()
            .all(|(state, tracer)| *tracer == 0 && !"tT".contains(*state))
    );
    ask(&mut target, "\n");
    assert_eq!(next_number(&mut target), 0, "EINTR");
}

/// Threads that end while they are seized must not stay behind as zombies.
#[test]
fn threads_that_exit_while_stopped_leave_no_zombie() {
    let program = build("cap_threads.c", "ptrace-churn", &["-O1"]);
    let target = Running::start(&program, &["churn"]);
    let (sampler, mut reader) = start(&target, CaptureChoice::Ptrace, 2);
    let mut events = Vec::new();
    let ended = |events: &[Event]| {
        events.iter().filter(|event| matches!(event, Event::ThreadEnded { .. })).count()
    };
    read_until(&mut reader, &mut events, |events| {
        ticks(events) > 0 && ended(events) > 50 && last_losses(events).stops > 20
    });
    // The leader, the parked thread, the brief one, and its successor if the brief one is about to
    // exit. A zombie would stay until the sampler exits.
    wait_until("none of them is kept", || thread_states(target.pid()).len() <= 4);
    drop(sampler);
}

const TARGET: &str = "SAMPLETOP_TEST_STOP_THREADS_OF";

/// Not a test by itself: the process that the next test kills while it stops threads.
#[test]
fn helper_that_stops_threads_until_it_is_killed() {
    let Ok(pid) = std::env::var(TARGET) else { return };
    let pid = pid.parse().expect("a pid");
    let (_sampler, mut reader) = start_pid(pid, CaptureChoice::Ptrace, 1);
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| {
        ticks(events) > 0 && last_losses(events).stops > 10
    });
    println!("stopping");
    loop {
        reader.by_ref().for_each(drop);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_killed_sampler_leaves_no_thread_stopped() {
    let program = build("cap_threads.c", "killed", &["-O1"]);
    let mut target = Running::start(&program, &["park", "3"]);
    for round in 0..15u64 {
        let mut helper = Command::new(std::env::current_exe().expect("this program"))
            .args([
                "--exact",
                "ptrace::helper_that_stops_threads_until_it_is_killed",
                "--nocapture",
            ])
            .env(TARGET, target.pid().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts again");
        let lines = BufReader::new(helper.stdout.take().expect("piped")).lines();
        // Distinguished from the test harness's output, which may be on the same line.
        let stopping = lines.map(|line| line.expect("text")).any(|line| line.ends_with("stopping"));
        assert!(stopping, "the helper ended by itself");
        // At another phase of its stops each time.
        std::thread::sleep(Duration::from_micros(1_300 * round + 137));
        helper.kill().expect("killed");
        helper.wait().expect("waited for");
        for (state, tracer) in thread_states(target.pid()) {
            assert!(
                tracer == 0 && !"tT".contains(state),
                "round {round}: {state} traced by {tracer}"
            );
        }
        // The threads still run.
        let mut reported = || {
            ask(&mut target, "\n");
            next_number(&mut target) + next_number(&mut target)
        };
        let before = reported();
        wait_until("they run", || reported() > before);
    }
}

/// As under `-- COMMAND`: the target is our child, and its exit status belongs to the code that
/// waits for it.
#[test]
fn the_exit_status_of_a_child_is_left_to_its_parent() {
    let program = build("cap_eintr.c", "status", &["-O1"]);
    let mut target = Running::start(&program, &["stay"]);
    let mut plan = plan(CaptureChoice::Ptrace, 1);
    plan.own_child = true;
    let (sampler, mut reader) = start_plan(target.pid(), plan);
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| {
        ticks(events) > 0 && last_losses(events).stops > 10
    });
    drop(target.child.stdin.take());
    let ended = |event: &Event| matches!(event, Event::ProcessEnded { .. });
    read_until(&mut reader, &mut events, |events| events.iter().any(ended));
    drop(sampler);
    assert!(target.child.wait().expect("its status is there to be had").success());
}
