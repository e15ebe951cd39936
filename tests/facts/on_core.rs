//! Which runnable threads are on a core, where the others are, and where the last of a thread's
//! time goes.

use sampletop::model::vocabulary::event::Seen;
use sampletop::model::vocabulary::state::{RawState, State};

use super::support::*;

/// Returns the present state and stack of thread 1.
fn now(feed: &mut Feed) -> (State, String) {
    let view = feed.recorder.view();
    let now = view.threads[0];
    let RawState::Known(state) = now.state else { panic!("{now:?}") };
    (state, stack_name(&view, now.stack))
}

fn state(feed: &mut Feed) -> State {
    now(feed).0
}

#[test]
fn a_thread_is_on_a_core_if_it_ran_for_half_of_the_time() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(500, 0, 1));
    assert_eq!(state(&mut feed), State::Run, "until it is known better");
    for (at, run, expected) in
        [(10, 4, State::Rdy), (20, 9, State::Run), (30, 13, State::Rdy), (40, 23, State::Run)]
    {
        feed.running(at, 1, counters(500 + run, 0, 1));
        assert_eq!(state(&mut feed), expected, "at {at}");
    }
    // Time before the last decision no longer counts.
    feed.running(50, 1, counters(523, 0, 1));
    assert_eq!(state(&mut feed), State::Rdy);
}

#[test]
fn a_sample_says_that_a_thread_is_on_a_core_until_the_next_decision() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(0, 0, 1));
    feed.running(10, 1, counters(0, 0, 1));
    assert_eq!(state(&mut feed), State::Rdy);
    feed.on_cpu(15, 1, 20);
    assert_eq!(now(&mut feed), (State::Run, "20".into()));
    // It got one ms of ten, and was sampled in it.
    feed.running(20, 1, counters(1, 9, 2));
    assert_eq!(state(&mut feed), State::Run);
    feed.running(30, 1, counters(1, 9, 2));
    assert_eq!(state(&mut feed), State::Rdy);
}

#[test]
fn counters_that_do_not_move_say_nothing_within_half_of_their_lag() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(0, 0, 1));
    feed.running(10, 1, counters(10, 0, 1));
    feed.running(14, 1, counters(10, 0, 1));
    assert_eq!(state(&mut feed), State::Run);
    feed.running(15, 1, counters(10, 0, 1));
    assert_eq!(state(&mut feed), State::Rdy);
    // One that moved is decided at once.
    feed.running(16, 1, counters(11, 0, 1));
    assert_eq!(state(&mut feed), State::Run);
}

#[test]
fn a_thread_that_was_woken_and_put_on_a_core_is_still_there() {
    for (runs, expected) in [(1, (State::Rdy, true)), (2, (State::Run, false))] {
        let mut feed = Feed::new();
        feed.blocked(0, 1, EPOLL, 10, counters(0, 0, 1));
        feed.tick(0);
        feed.blocked(100, 1, EPOLL, 10, counters(0, 0, 1));
        // Its run time lags; that it got a core is visible at once.
        feed.running(110, 1, counters(0, 0, runs));
        let (state, stack) = now(&mut feed);
        assert_eq!((state, stack == "10"), expected, "{runs} {stack}");
    }
    // Woken long before, it must have run.
    let mut feed = Feed::new();
    feed.blocked(0, 1, EPOLL, 10, counters(0, 0, 1));
    feed.running(10, 1, counters(1, 0, 2));
    assert_eq!(state(&mut feed), State::Run);
    feed.running(20, 1, counters(2, 0, 3));
    assert_eq!(state(&mut feed), State::Rdy);
}

#[test]
fn a_thread_seen_ready_is_not_on_a_core_whatever_it_did_before() {
    let mut feed = Feed::new();
    feed.on_cpu(0, 1, 20);
    feed.observe(5, 1, Seen::Ready, 21, None);
    assert_eq!(now(&mut feed), (State::Rdy, "21".into()));
}

#[test]
fn without_counters_a_woken_thread_may_have_run_and_is_not_where_it_waited() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, EPOLL, 10, None);
    feed.tick(0);
    feed.running(10, 1, None);
    assert_ne!(now(&mut feed).1, "10");
    let rows = feed.close(20);
    assert!(!rows.iter().any(|row| row.contains("10 rdy")), "{rows:?}");
}

#[test]
fn after_its_last_sample_a_thread_stays_in_its_stack_up_to_its_end() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, EPOLL, 10, counters(0, 0, 1));
    feed.tick(0);
    feed.on_cpu(5, 1, 20);
    feed.on_cpu(6, 1, 21);
    feed.ended(10, 1, counters(9, 0, 2));
    let wall = |row: &&String| row.contains("21 run wall=5500000ns");
    let rows = feed.rows();
    assert_eq!(rows.iter().filter(wall).count(), 1, "{rows:?}");
    assert!(!rows.iter().any(|row| row.contains("not sampled")), "{rows:?}");
}

#[test]
fn run_delay_of_time_without_a_sample_is_ready_once() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(0, 0, 1));
    feed.tick(0);
    // Up to 12 s nothing but run delay is known: 3 s of it. What came before 11 s is booked by
    // then.
    for at in (1_000..=12_000).step_by(1_000) {
        feed.running(at, 1, counters(at / 2, at / 4, 1));
        feed.ticks(at - 1_000, at);
    }
    feed.running(12_010, 1, counters(6_000, 3_000, 1));
    let rows = feed.close(12_010);
    let wall = |state: &str| -> u64 {
        let of = |row: &&String| row.contains(&format!(" {state} "));
        let ms = |row: &String| row.split("wall=").nth(1)?.split(' ').next()?.parse::<u64>().ok();
        rows.iter().filter(of).filter_map(ms).sum()
    };
    assert_eq!((wall("rdy"), wall("run")), (3_000, 9_010), "{rows:?}");
}
