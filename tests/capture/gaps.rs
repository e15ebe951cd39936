//! Times without observation.

use super::*;

const WATCHED: &str = "SAMPLETOP_TEST_WATCH";

/// Not a test by itself: the sampler that the next test suspends.
#[test]
fn helper_that_reports_gaps() {
    let Ok(pid) = std::env::var(WATCHED) else { return };
    let (_sampler, mut reader) = start_pid(pid.parse().expect("a pid"), CaptureChoice::Perf, 10);
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| ticks(events) > 5);
    println!("sampling");
    let gap =
        |event: &Event| if let Event::Gap { from, at } = event { Some((*from, *at)) } else { None };
    let place = |events: &[Event]| events.iter().position(|event| gap(event).is_some());
    read_until(&mut reader, &mut events, |events| {
        place(events).is_some_and(|place| ticks(&events[place..]) > 0)
    });
    let place = place(&events).expect("a gap");
    let late =
        |event: &Event| if let Event::Tick(tick) = event { Some(tick.losses.late) } else { None };
    let before = events[..place].iter().rev().find_map(late).expect("a tick");
    assert_eq!(events[place..].iter().find_map(late), Some(before + 1), "a tick is late, once");
    let (from, at) = gap(&events[place]).expect("a gap");
    println!("gap of {}", at - from);
}

#[test]
fn a_suspended_sampler_reports_the_gap() {
    let program = build("cap_threads.c", "gap", &["-O1"]);
    let target = Running::start(&program, &["park", "1"]);
    let mut helper = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "gaps::helper_that_reports_gaps", "--nocapture"])
        .env(WATCHED, target.pid().to_string())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts again");
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(helper.stdout.take().expect("piped")));
    assert!(lines.any(|line| line.expect("text").ends_with("sampling")));
    let pid = rustix::process::Pid::from_child(&helper);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("suspended");
    // One thread takes the signal. It has to run to stop the others.
    wait_until("it stops", || thread_states(helper.id()).iter().all(|(state, _)| *state == 'T'));
    std::thread::sleep(Duration::from_millis(1_300));
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("resumed");
    let gap: u64 = lines
        .find_map(|line| {
            line.expect("text").strip_prefix("gap of ").map(|ns| ns.parse().expect("a number"))
        })
        .expect("the gap is reported");
    assert!(gap >= 1_300_000_000, "{gap}");
    assert!(helper.wait().expect("it ends").success());
}
