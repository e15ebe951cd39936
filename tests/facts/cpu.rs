//! CPU time and run delay by hand: which thread and stack gets it, what is carried, and what only
//! the process's clock shows. Notation as in `examples`.

use super::support::*;

#[test]
fn run_delay_is_ready_time_of_the_same_stack_on_cpu_pieces_first() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, READ, 10, counters(0, 0, 1));
    feed.tick(0);
    feed.on_cpu(4, 1, 20);
    feed.on_cpu(6, 1, 21);
    // 3 ms on a core and 3 ms of delay: half of both for each sample.
    feed.blocked(10, 1, READ, 30, counters(3, 3, 2));
    feed.tick(10);
    let expected = [
        "t1 10 io wall=0 cpu=0 hits=1/0",
        "t1 20 rdy wall=1500000ns cpu=0 hits=0/0",
        "t1 20 run wall=1500000ns cpu=1500000ns hits=1/1",
        "t1 21 rdy wall=1500000ns cpu=0 hits=0/0",
        "t1 21 run wall=1500000ns cpu=1500000ns hits=1/1",
        "t1 30 io wall=4 cpu=0 hits=1/0 longest=4@6",
    ];
    assert_eq!(feed.rows(), expected);
}

#[test]
fn run_delay_beyond_on_cpu_pieces_is_taken_from_the_others_and_never_more_than_the_span() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, READ, 10, counters(0, 0, 1));
    feed.tick(0);
    feed.on_cpu(2, 1, 20);
    feed.blocked(10, 1, READ, 30, counters(1, 5, 2));
    feed.tick(10);
    feed.blocked(20, 1, READ, 31, counters(2, 500, 3));
    feed.tick(20);
    // Time that the kernel reported in excess does not return later.
    feed.blocked(30, 1, READ, 32, counters(3, 500, 4));
    feed.tick(30);
    let expected = [
        "t1 10 io wall=0 cpu=0 hits=1/0",
        "t1 20 rdy wall=5 cpu=0 hits=0/0",
        "t1 20 run wall=1 cpu=1 hits=1/1",
        "t1 30 io wall=4 cpu=0 hits=1/0 longest=8@2",
        // A millisecond of each span was on a core, and waits for a sample.
        "t1 31 io wall=0 cpu=0 hits=1/0",
        "t1 31 rdy wall=9 cpu=0 hits=0/0",
        "t1 32 io wall=9 cpu=0 hits=1/0 longest=10@20",
    ];
    assert_eq!(feed.rows(), expected);
}

#[test]
fn cpu_is_shared_equally_over_the_samples_of_its_span() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(100, 0, 1));
    feed.tick(0);
    for (at, stack) in [(1, 10), (4, 10), (9, 11)] {
        feed.on_cpu(at, 1, stack);
    }
    feed.running(10, 1, counters(109, 0, 1));
    feed.tick(10);
    assert_eq!(feed.rows(), ["t1 10 run wall=6 cpu=6 hits=2/2", "t1 11 run wall=3 cpu=3 hits=1/1"]);
}

#[test]
fn cpu_without_a_sample_is_carried_at_most_10_s() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, EPOLL, 10, counters(0, 0, 1));
    feed.tick(0);
    feed.blocked(10, 1, EPOLL, 10, counters(2, 0, 2));
    feed.ticks(0, 9_000);
    feed.on_cpu(9_005, 1, 20);
    feed.blocked(9_010, 1, EPOLL, 10, counters(5, 0, 3));
    feed.tick(9_010);
    assert!(
        feed.rows().contains(&"t1 20 run wall=5 cpu=5 hits=1/1".to_string()),
        "{:?}",
        feed.rows()
    );

    feed.blocked(9_020, 1, EPOLL, 10, counters(9, 0, 4));
    feed.tick(9_020);
    feed.ticks(9_020, 18_990);
    assert!(!feed.rows().iter().any(|row| row.contains("not sampled")), "{:?}", feed.rows());
    // A sample that comes later does not get it. It goes to the thread's previous sampled stack.
    feed.on_cpu(19_025, 1, 21);
    feed.blocked(19_030, 1, EPOLL, 10, counters(10, 0, 5));
    feed.tick(19_030);
    assert!(
        feed.rows().contains(&"t1 21 run wall=1 cpu=1 hits=1/1".to_string()),
        "{:?}",
        feed.rows()
    );
    assert!(
        feed.rows().contains(&"t1 20 run wall=5 cpu=9 hits=1/1".to_string()),
        "{:?}",
        feed.rows()
    );
}

#[test]
fn cpu_without_a_sample_is_booked_at_death_and_at_the_end() {
    let mut feed = Feed::new();
    for tid in [1, 2] {
        feed.blocked(0, tid, EPOLL, 10, counters(0, 0, 1));
    }
    feed.tick(0);
    for tid in [1, 2] {
        feed.blocked(10, tid, EPOLL, 10, counters(2, 0, 2));
    }
    feed.tick(10);
    feed.ended(15, 1, counters(5, 0, 3));
    let expected = [
        "t1 10 poll wall=15 cpu=0 hits=2/0 longest=15@0",
        "t1 [cpu, not sampled] run wall=0 cpu=5 hits=0/0",
    ];
    assert_eq!(feed.rows()[..2], expected);
    assert_eq!(feed.close(20)[3], "t2 [cpu, not sampled] run wall=0 cpu=2 hits=0/0");
}

#[test]
fn cpu_that_the_way_of_capture_cannot_see_is_not_given_to_user_stacks() {
    let mut feed = Feed::new();
    feed.recorder.set_kernel_visible(false);
    feed.running(0, 1, counters(0, 0, 1));
    feed.tick(0);
    // 1 s of CPU time, nearly all of it in system calls: one sample caught the thread in user mode.
    for at in (10..=1_000).step_by(10) {
        if at == 500 {
            feed.on_cpu(495, 1, 20);
        }
        feed.running(at, 1, counters(at, 0, 1));
        feed.tick(at);
    }
    let rows = feed.close(1_000);
    // One sample stands for one interval, 10 ms. Every 60 ms of CPU time without a sample (more
    // than 3 intervals and twice the lag of a counter) is attributed to the kernel, and so is the
    // wall time: up to 480 before the sample.
    let expected = [
        "t1 20 run wall=10 cpu=10 hits=1/1",
        "t1 [in kernel, not visible] run wall=990 cpu=990 hits=0/0",
    ];
    assert_eq!(rows, expected);
}

#[test]
fn a_busy_thread_in_user_mode_is_not_taken_for_one_in_the_kernel() {
    let mut feed = Feed::new();
    feed.recorder.set_kernel_visible(false);
    feed.running(0, 1, counters(0, 0, 1));
    feed.tick(0);
    for at in (10..=5_000).step_by(10) {
        // Samples are irregular: none for 30 ms, then three.
        for back in if at % 40 == 0 { vec![9, 6, 3, 1] } else { vec![] } {
            feed.on_cpu(at - back, 1, 20);
        }
        // The counter moves with the kernel's tick: behind by 0, 3, 6 or 9 ms.
        feed.running(at, 1, counters(at - at / 10 % 4 * 3, 0, 1));
        feed.tick(at);
    }
    let rows = feed.rows();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!(rows[0].starts_with("t1 20 run wall=5000 cpu=5000"), "{rows:?}");
}

#[test]
fn samples_wait_for_a_counter_that_lags() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(100, 0, 1));
    feed.tick(0);
    feed.on_cpu(1, 1, 20);
    feed.running(2, 1, counters(100, 0, 1));
    feed.on_cpu(3, 1, 21);
    feed.running(4, 1, counters(104, 0, 1));
    feed.tick(4);
    let half = "run wall=2 cpu=2 hits=1/1";
    assert_eq!(feed.rows(), [format!("t1 20 {half}"), format!("t1 21 {half}")]);
}

#[test]
fn a_thread_that_is_never_sampled_is_booked_after_10_s() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(0, 0, 1));
    feed.tick(0);
    for at in (10..=12_000).step_by(10) {
        feed.running(at, 1, counters(at / 2, at / 4, 1));
        feed.tick(at);
    }
    let rows = feed.rows();
    // What is owed since the tick at 10 ms is booked at 11 s, since that is done once a second.
    let ready = "t1 [cpu, not sampled] rdy wall=2750 cpu=0 hits=0/0";
    assert!(
        rows.contains(&ready.to_string()) && rows[1].contains("run wall=3750 cpu=1000"),
        "{rows:?}"
    );
    let rows = feed.close(12_000);
    assert_eq!(
        rows,
        [
            "t1 [cpu, not sampled] rdy wall=3000 cpu=0 hits=0/0",
            "t1 [cpu, not sampled] run wall=9000 cpu=6000 hits=0/0"
        ]
    );
}

#[test]
fn the_process_clock_minus_what_was_counted_is_threads_gone() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, EPOLL, 10, counters(50, 0, 1));
    feed.tick_with(0, Some(5_000));
    feed.ticks(0, 990);
    feed.on_cpu(995, 1, 20);
    feed.blocked(1_000, 1, EPOLL, 10, counters(54, 0, 2));
    // 30 ms more by the process's clock: 4 of t1, 26 of threads that started and exited unobserved.
    feed.tick_with(1_000, Some(5_030));
    feed.ticks(1_000, 1_020);
    let gone = "(exited) [exited threads, not sampled] run wall=26 cpu=26 hits=0/0".to_string();
    assert_eq!(feed.rows()[0], gone);
    feed.tick_with(2_000, Some(5_030));
    feed.ticks(2_000, 2_020);
    assert_eq!(feed.rows()[0], gone);
}

#[test]
fn a_thread_lives_from_its_first_look_on() {
    let mut feed = Feed::new();
    feed.tick_with(0, Some(0));
    // Started at 2, ran 3 ms, first observed at 10: only the process's clock shows those 3 ms.
    feed.blocked(10, 1, EPOLL, 10, counters(3, 1, 1));
    feed.tick(10);
    feed.ticks(10, 1_000);
    feed.tick_with(1_010, Some(3));
    feed.tick(1_020);
    feed.tick(1_030);
    assert_eq!(
        feed.rows(),
        [
            "(exited) [exited threads, not sampled] run wall=3 cpu=3 hits=0/0",
            "t1 10 poll wall=1020 cpu=0 hits=1/0 longest=1020@10"
        ]
    );
}

#[test]
fn what_running_threads_may_still_say_is_not_taken_for_gone() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(0, 0, 1));
    feed.tick_with(0, Some(0));
    // Its counter lags by 4 ms.
    feed.on_cpu(995, 1, 20);
    feed.running(1_000, 1, counters(996, 0, 1));
    feed.tick_with(1_000, Some(1_000));
    for at in [1_002, 1_010, 1_020, 1_030] {
        feed.running(at, 1, counters(at - 4, 0, 1));
        feed.tick(at);
    }
    assert_eq!(feed.rows(), ["t1 20 run wall=996 cpu=996 hits=1/1"]);
}

#[test]
fn nothing_is_taken_for_gone_until_dropped_observations_were_sent_again() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, EPOLL, 10, counters(0, 0, 1));
    feed.tick_with(0, Some(0));
    feed.ticks(0, 990);
    // t1 ran for 30 ms of 40, and the ring has no room for the observations that say so.
    feed.losses.dropped += 1;
    feed.tick_with(1_000, Some(40));
    for at in [1_010, 1_020, 1_030] {
        feed.losses.dropped += 1;
        feed.tick(at);
    }
    assert!(!feed.rows().iter().any(|row| row.contains("(exited)")), "{:?}", feed.rows());
    feed.blocked(1_040, 1, EPOLL, 10, counters(30, 0, 3));
    feed.tick(1_040);
    assert_eq!(
        feed.rows()[0],
        "(exited) [exited threads, not sampled] run wall=10 cpu=10 hits=0/0"
    );
}

#[test]
fn what_was_taken_for_gone_is_taken_back() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, EPOLL, 10, counters(0, 0, 1));
    feed.tick_with(0, Some(0));
    // t1 ran 40 ms, and the observation that reported it was lost.
    feed.ticks(0, 990);
    feed.tick_with(1_000, Some(40));
    feed.ticks(1_000, 1_100);
    assert_eq!(
        feed.rows()[0],
        "(exited) [exited threads, not sampled] run wall=40 cpu=40 hits=0/0"
    );
    feed.on_cpu(1_105, 1, 20);
    feed.blocked(1_110, 1, EPOLL, 10, counters(45, 0, 3));
    feed.ticks(1_100, 1_990);
    feed.tick_with(2_000, Some(45));
    assert_eq!(feed.rows()[0], "(exited) [exited threads, not sampled] run wall=0 cpu=0 hits=0/0");
    assert_eq!(feed.rows()[2], "t1 20 run wall=10 cpu=45 hits=1/1");
}

#[test]
fn cpu_is_carried_for_10_s() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, EPOLL, 10, counters(0, 0, 1));
    feed.tick(0);
    feed.blocked(10, 1, EPOLL, 10, counters(2, 0, 2));
    feed.ticks(0, 9_990);
    feed.on_cpu(10_010, 1, 20);
    feed.blocked(10_011, 1, EPOLL, 10, counters(3, 0, 3));
    assert!(
        feed.rows().contains(&"t1 20 run wall=3 cpu=3 hits=1/1".to_string()),
        "{:?}",
        feed.rows()
    );
}

#[test]
fn counters_that_go_back_start_anew() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(100, 10, 5));
    feed.tick(0);
    feed.on_cpu(5, 1, 20);
    feed.running(10, 1, counters(3, 0, 1));
    feed.tick(10);
    feed.on_cpu(15, 1, 20);
    feed.running(20, 1, counters(8, 0, 1));
    feed.tick(20);
    assert_eq!(feed.rows(), ["t1 20 run wall=15 cpu=5 hits=2/2"]);
}
