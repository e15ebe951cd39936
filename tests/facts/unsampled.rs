//! Time without a sample of its own: whose stacks get it, and that the shares are correct.

use sampletop::model::facts::recorder::View;
use sampletop::model::vocabulary::event::{Event, Observation, Seen, Syscall};
use sampletop::model::vocabulary::frame::{RawFrame, RawName, ThreadKey};
use sampletop::model::vocabulary::state::{RawState, State};

use super::support::*;

/// `main` calls the start routine, which calls the stack's own function.
fn deep(stack: u64) -> Vec<RawFrame> {
    vec![code(stack), code(3), code(2), code(1)]
}

fn apply(
    feed: &mut Feed,
    at: u64,
    key: ThreadKey,
    name: &str,
    seen: Seen,
    stack: Vec<RawFrame>,
    run_us: Option<u64>,
) {
    let counters = run_us.map(|us| sampletop::model::vocabulary::event::Counters {
        run_ns: us * 1_000,
        delay_ns: 0,
        runs: us + 1,
    });
    let name = RawName::new(name.as_bytes());
    let observation =
        Observation { counters, stack, ..Observation::new(START + at * MS, key, name, seen) };
    feed.recorder.apply(&Event::Observation(observation));
}

fn waits(feed: &mut Feed, at: u64, tid: u32, name: &str, run_us: u64) {
    let seen = Seen::Blocked(Syscall { number: EPOLL, args: [0; 6] });
    apply(feed, at, thread(tid), name, seen, deep(9), Some(run_us));
}

fn sample(feed: &mut Feed, at: u64, tid: u32, name: &str, stack: u64) {
    apply(feed, at, thread(tid), name, Seen::OnCpu, deep(stack), None);
}

/// Feeds a sample of a thread that had exited before it could be observed.
fn sample_of_unknown(feed: &mut Feed, at: u64, stack: u64) {
    apply(feed, at, ThreadKey::unknown(PID), "", Seen::OnCpu, deep(stack), None);
}

/// Returns the CPU time of a stack, ms.
fn cpu_of(view: &View, stack: &str) -> f64 {
    let of = |(key, weights): (
        &(_, String, String, String),
        &sampletop::model::facts::history::Weights,
    )| { (key.2 == stack).then_some(weights.cpu_ns) };
    all(view).iter().filter_map(of).sum::<u64>() as f64 / 1e6
}

#[test]
fn the_clock_s_rest_goes_to_samples_of_threads_that_were_gone() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, EPOLL, 10, counters(50, 0, 1));
    feed.tick_with(0, Some(5_000));
    for at in [100, 300, 700] {
        feed.ticks(at - 100, at);
        sample_of_unknown(&mut feed, at + 5, if at == 700 { 21 } else { 20 });
    }
    feed.tick_with(1_000, Some(5_030));
    feed.ticks(1_000, 1_020);
    let expected = [
        "(exited) 20 run wall=20 cpu=20 hits=2/2",
        "(exited) 21 run wall=10 cpu=10 hits=1/1",
        "t1 10 poll wall=1020 cpu=0 hits=1/0 longest=1020@0",
    ];
    assert_eq!(feed.rows(), expected);
    // A second without a sample: as before.
    feed.tick_with(2_000, Some(5_032));
    feed.ticks(2_000, 2_020);
    let rows = feed.rows();
    assert!(!rows.iter().any(|row| row.contains("gone")), "{rows:?}");
    assert_eq!(cpu_of(&feed.recorder.view(), "20") + cpu_of(&feed.recorder.view(), "21"), 32.0);
}

#[test]
fn what_a_thread_did_after_its_last_counters_goes_to_its_last_samples() {
    let mut feed = Feed::new();
    waits(&mut feed, 0, 1, "a", 0);
    feed.tick_with(0, Some(0));
    sample(&mut feed, 4, 1, "a", 20);
    waits(&mut feed, 10, 1, "a", 5_000);
    feed.tick(10);
    sample(&mut feed, 14, 1, "a", 21);
    // It ended at 17; its counters could not be read again.
    feed.ended(20, 1, None);
    feed.tick_with(1_000, Some(12));
    feed.ticks(1_000, 1_030);
    let view = feed.recorder.view();
    assert_eq!((cpu_of(&view, "20"), cpu_of(&view, "21")), (5.0, 7.0));
}

#[test]
fn what_was_shared_is_taken_back_where_a_look_explains_it() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, EPOLL, 10, counters(0, 0, 1));
    feed.tick_with(0, Some(0));
    sample_of_unknown(&mut feed, 505, 30);
    // t1 ran 40 ms, and the observation that reported it was lost.
    feed.ticks(0, 990);
    feed.tick_with(1_000, Some(40));
    feed.ticks(1_000, 1_100);
    assert_eq!(cpu_of(&feed.recorder.view(), "30"), 40.0);
    feed.on_cpu(1_105, 1, 20);
    feed.blocked(1_110, 1, EPOLL, 10, counters(45, 0, 3));
    feed.ticks(1_100, 1_990);
    feed.tick_with(2_000, Some(50));
    let view = feed.recorder.view();
    assert_eq!((cpu_of(&view, "30"), cpu_of(&view, "20")), (5.0, 45.0));
}

#[test]
fn time_after_the_last_sample_goes_to_the_thread_s_own_stacks() {
    let mut feed = Feed::new();
    waits(&mut feed, 0, 1, "pool-1", 0);
    waits(&mut feed, 0, 2, "pool-2", 0);
    feed.tick_with(0, Some(0));
    sample(&mut feed, 5, 1, "pool-1", 20);
    sample(&mut feed, 6, 2, "pool-2", 21);
    waits(&mut feed, 10, 1, "pool-1", 3_000);
    waits(&mut feed, 10, 2, "pool-2", 3_000);
    feed.tick(10);
    waits(&mut feed, 20, 1, "pool-1", 9_000);
    feed.tick(20);
    feed.close(30);
    let view = feed.recorder.view();
    assert_eq!((cpu_of(&view, "20"), cpu_of(&view, "21")), (9.0, 3.0));
    let hits: u32 = all(&view).values().map(|weights| weights.cpu_hits).sum();
    assert_eq!(hits, 2, "shared time is no hit");
}

#[test]
fn a_thread_without_samples_has_stacks_of_those_that_do_the_same_work_and_of_no_others() {
    let mut feed = Feed::new();
    for (tid, name) in [(1, "pool-1"), (2, "pool-2"), (3, "main"), (4, "lone-1")] {
        waits(&mut feed, 0, tid, name, 0);
    }
    // The same name, and another start routine.
    let other = || vec![code(9), code(3), code(7), code(6)];
    let seen = Seen::Blocked(Syscall { number: EPOLL, args: [0; 6] });
    apply(&mut feed, 0, thread(5), "pool-5", seen, other(), Some(0));
    feed.tick_with(0, Some(0));
    sample(&mut feed, 5, 1, "pool-1", 20);
    sample(&mut feed, 6, 3, "main", 30);
    for (tid, name) in [(1, "pool-1"), (2, "pool-2"), (3, "main"), (4, "lone-1")] {
        waits(&mut feed, 10, tid, name, 4_000);
    }
    apply(&mut feed, 10, thread(5), "pool-5", seen, other(), Some(4_000));
    feed.tick(10);
    feed.close(20);
    let view = feed.recorder.view();
    let of = |tid| {
        let sums = all(&view);
        let mine = sums.into_iter().filter(|((key, ..), w)| *key == thread(tid) && w.cpu_ns > 0);
        mine.map(|((_, _, stack, _), w)| (stack, w.cpu_ns / MS)).collect::<Vec<_>>()
    };
    let marker = || vec![("[cpu, not sampled]".to_owned(), 4)];
    assert_eq!(
        (of(1), of(2), of(3)),
        (vec![("20".into(), 4)], vec![("20".into(), 4)], vec![("30".into(), 4)])
    );
    assert_eq!((of(4), of(5)), (marker(), marker()));
}

/// Two kinds of short threads with one name, and one thread that computes all the time. Each
/// function has the time that was spent in it, although nine of ten threads are never sampled. Of N
/// threads with c ms the number of hits is binomial with p = c / 10. A hit is worth 10 ms, so a
/// function's standard deviation is sqrt(N p (1 - p)) 10 ms: 126 and 155 ms. Bound: 5.5 of them,
/// 4e-8 each.
#[test]
fn shares_of_threads_too_short_to_be_hit_are_unbiased() {
    let mut feed = Feed::new();
    let mut seed = 7_u64;
    let mut random = move || {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % 10_000
    };
    waits(&mut feed, 0, 1, "w-0", 0);
    feed.tick_with(0, Some(0));
    let (mut ran, mut busy) = (0, 0);
    for nth in 0..2_000_u64 {
        let (at, tid) = (10 + nth * 10, 100 + nth as u32);
        let (us, stack) = if nth % 2 == 0 { (2_000, 20) } else { (6_000, 21) };
        waits(&mut feed, at, tid, "w-1", 0);
        if random() < us {
            sample(&mut feed, at + 2, tid, "w-1", stack);
        }
        waits(&mut feed, at + 8, tid, "w-1", us);
        feed.ended(at + 9, tid, None);
        // It gets a sample for each of its periods.
        sample(&mut feed, at + 9, 1, "w-0", 22);
        (ran, busy) = (ran + us, busy + 10_000);
        apply(&mut feed, at + 9, thread(1), "w-0", Seen::Running, vec![], Some(busy));
        feed.tick(at + 9);
    }
    feed.close(21_000);
    let view = feed.recorder.view();
    let [short, longer, always] = ["20", "21", "22"].map(|stack| cpu_of(&view, stack));
    assert!((short - 2_000.0).abs() < 5.5 * 126.0, "{short}");
    assert!((longer - 6_000.0).abs() < 5.5 * 155.0, "{longer}");
    assert!((always - 20_000.0).abs() < 200.0, "{always}");
    assert!(cpu_of(&view, "[cpu, not sampled]") < 30.0, "only before the first hit");
    assert_eq!(ran, 8_000_000);
}

/// 64 threads compute on two cores, each for 10 ms in its turn. All are runnable in the stacks that
/// they were sampled in, and two of them are on a core.
#[test]
fn threads_that_wait_for_a_core_are_ready_where_they_were_sampled() {
    let mut feed = Feed::new();
    let mut ran = [0_u64; 64];
    for tid in 0..64 {
        apply(&mut feed, 0, thread(tid + 1), "rank", Seen::Running, vec![], Some(0));
    }
    feed.tick_with(0, Some(0));
    for round in 1..=200_u64 {
        let at = round * 10;
        for core in 0..2 {
            let tid = (round * 2 + core) % 64;
            ran[tid as usize] += 10_000;
            sample(&mut feed, at - 4, tid as u32 + 1, "rank", 20 + tid % 2);
        }
        for (tid, ran) in ran.iter().copied().enumerate() {
            let seen = Seen::Running;
            let run_ns = ran * 1_000;
            let delay_ns = if ran == 0 { 0 } else { at * MS - run_ns };
            let counters =
                Some(sampletop::model::vocabulary::event::Counters { run_ns, delay_ns, runs: ran });
            let (thread, name) = (thread(tid as u32 + 1), RawName::new(b"rank"));
            let observation =
                Observation { counters, ..Observation::new(START + at * MS, thread, name, seen) };
            feed.recorder.apply(&Event::Observation(observation));
        }
        feed.tick(at);
        let states =
            feed.recorder.view().threads.iter().map(|thread| thread.state).collect::<Vec<_>>();
        let runs = states.iter().filter(|state| **state == RawState::Known(State::Run)).count();
        assert_eq!((states.len(), runs), (64, 2), "at {at}");
    }
    feed.close(2_000);
    let view = feed.recorder.view();
    let (mut marked, mut ready, mut wall) = (0, 0, 0);
    for ((_, _, stack, state), weights) in all(&view) {
        wall += weights.wall_ns;
        marked += if stack.starts_with('[') { weights.wall_ns } else { 0 };
        ready += if state == "rdy" { weights.wall_ns } else { 0 };
    }
    assert_eq!((wall, marked), (64 * 2_000 * MS, 0));
    assert!(ready * 100 > wall * 90, "{ready} of {wall}");
}

#[test]
fn a_thread_that_was_woken_and_has_no_core_yet_is_ready_where_it_waited() {
    let mut feed = Feed::new();
    waits(&mut feed, 0, 1, "a", 1_000);
    feed.tick(0);
    for at in [10, 20, 30] {
        apply(&mut feed, at, thread(1), "a", Seen::Running, vec![], Some(1_000));
        feed.tick(at);
    }
    let now = feed.recorder.view().threads[0];
    assert_eq!(
        (now.state, stack_name(&feed.recorder.view(), now.stack)),
        (RawState::Known(State::Rdy), "9".into())
    );
    let rows = feed.close(30);
    assert_eq!(rows, ["a 9 poll wall=0 cpu=0 hits=1/0", "a 9 rdy wall=30 cpu=0 hits=0/0"]);
}
