//! Every sentence of "Weighing", by hand. Times in ms since the session's start. Thread N is called
//! tN; a stack is called by its innermost offset.

use super::support::*;
use sampletop::model::facts::recorder::Limits;
use sampletop::model::facts::snapshot::ThreadNow;
use sampletop::model::projection::settings::Range;
use sampletop::model::vocabulary::event::{Event, Observation, Seen, Syscall, Tick};
use sampletop::model::vocabulary::frame::RawName;

#[test]
fn the_span_since_the_last_observation_goes_to_the_new_one() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, READ, 10, counters(0, 0, 1));
    feed.tick(0);
    feed.on_cpu(6, 1, 20);
    feed.blocked(10, 1, EPOLL, 30, counters(4, 0, 2));
    feed.tick(10);
    assert_eq!(
        feed.rows(),
        [
            "t1 10 io wall=0 cpu=0 hits=1/0",
            // 4 ms of CPU time, however long before the sample the last observation was.
            "t1 20 run wall=4 cpu=4 hits=1/1",
            "t1 30 poll wall=6 cpu=0 hits=1/0 longest=4@6"
        ]
    );
}

#[test]
fn waits_that_were_not_observed_are_owed_to_the_next_one() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(100, 0, 1));
    feed.tick(0);
    feed.on_cpu(20, 1, 20);
    feed.running(50, 1, counters(120, 5, 9));
    feed.tick(50);
    // It was sampled, it ran for 20 ms and waited for a core for 5 ms up to then.
    assert_eq!(
        feed.rows(),
        ["t1 20 rdy wall=5 cpu=0 hits=0/0", "t1 20 run wall=20 cpu=20 hits=1/1"]
    );
    feed.on_cpu(80, 1, 21);
    feed.blocked(100, 1, EPOLL, 30, counters(140, 5, 20));
    feed.tick(100);
    // It has waited for 25 and 30 ms. This wait stands for the 50 ms since the last tick.
    let expected = [
        "t1 20 rdy wall=5 cpu=0 hits=0/0",
        "t1 20 run wall=20 cpu=20 hits=1/1",
        "t1 21 run wall=20 cpu=20 hits=1/1",
        "t1 30 poll wall=50 cpu=0 hits=1/0 longest=20@80",
    ];
    assert_eq!(feed.rows(), expected);
    // The rest is for waits that would have too little, at most two such spans of it.
    feed.blocked(110, 1, EPOLL, 30, counters(149, 5, 21));
    feed.tick(110);
    assert!(feed.rows().contains(&"t1 30 poll wall=56 cpu=0 hits=2/0 longest=20@80".into()));
}

#[test]
fn a_wait_begins_when_the_thread_left_its_core() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(0, 0, 1));
    feed.tick(0);
    feed.on_cpu(5, 1, 20);
    let mut wait = Observation::new(
        START + 50 * MS,
        thread(1),
        RawName::new(b"t1"),
        Seen::Blocked(Syscall { number: EPOLL, args: [0; 6] }),
    );
    (wait.counters, wait.stack) = (counters(12, 0, 1), vec![code(30), code(1)]);
    wait.wait_began = Some(START + 12 * MS);
    feed.recorder.apply(&Event::Observation(wait));
    feed.ticks(40, 100);
    let expected =
        ["t1 20 run wall=12 cpu=12 hits=1/1", "t1 30 poll wall=88 cpu=0 hits=1/0 longest=88@12"];
    assert_eq!(feed.rows(), expected);
}

#[test]
fn seen_running_is_no_observation() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(0, 0, 1));
    feed.tick(0);
    feed.running(10, 1, counters(9, 0, 1));
    feed.tick(10);
    assert_eq!(feed.rows(), [] as [&str; 0]);
    feed.on_cpu(17, 1, 20);
    feed.running(20, 1, counters(19, 0, 1));
    feed.tick(20);
    // The 9 ms that no sample hit were carried.
    assert_eq!(feed.rows(), ["t1 20 run wall=19 cpu=19 hits=1/1"]);
}

#[test]
fn spans_are_split_at_bucket_edges() {
    let mut feed = Feed::new();
    feed.blocked(990, 1, READ, 10, counters(0, 0, 1));
    feed.tick(990);
    feed.on_cpu(1_005, 1, 20);
    feed.running(1_010, 1, counters(15, 0, 2));
    feed.tick(1_010);
    let view = feed.recorder.view();
    let (first, from, till) = sums(&view, Range::Rolling(1), START + 995 * MS);
    assert_eq!(
        rows_of(&first),
        ["t1 10 io wall=0 cpu=0 hits=1/0", "t1 20 run wall=10 cpu=0 hits=0/0"]
    );
    assert_eq!((from, till), (START, START + SECOND));
    let (second, from, till) = sums(&view, Range::Rolling(1), START + 1_005 * MS);
    assert_eq!(rows_of(&second), ["t1 20 run wall=5 cpu=15 hits=1/1"]);
    assert_eq!((from, till), (START + SECOND, START + 1_010 * MS));
}

#[test]
fn an_unmoved_thread_sends_nothing_and_is_booked_when_a_view_is_taken() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, EPOLL, 10, counters(0, 0, 1));
    feed.tick(0);
    assert_eq!(feed.rows(), ["t1 10 poll wall=0 cpu=0 hits=1/0"]);
    feed.ticks(0, 500);
    assert_eq!(feed.rows(), ["t1 10 poll wall=500 cpu=0 hits=1/0 longest=500@0"]);
    feed.ticks(500, 2_500);
    // One wait is one hit, however many ticks, views and buckets it spans.
    assert_eq!(feed.rows(), ["t1 10 poll wall=2500 cpu=0 hits=1/0 longest=2500@0"]);
}

#[test]
fn silence_counts_from_the_second_tick_on() {
    let mut feed = Feed::new();
    feed.blocked(5, 1, EPOLL, 10, counters(0, 0, 1));
    // The tick that ends the scan of the observation itself proves nothing about the time after it.
    feed.tick(10);
    assert_eq!(feed.rows(), ["t1 10 poll wall=0 cpu=0 hits=1/0"]);
    feed.tick(20);
    assert_eq!(feed.rows(), ["t1 10 poll wall=15 cpu=0 hits=1/0 longest=15@5"]);
}

#[test]
fn silence_after_a_sample_is_a_lost_look_and_no_proof() {
    let mut feed = Feed::new();
    feed.on_cpu(0, 1, 10);
    feed.ticks(0, 500);
    assert_eq!(feed.rows(), ["t1 10 run wall=0 cpu=0 hits=1/1"]);
    feed.blocked(510, 1, READ, 20, counters(100, 0, 2));
    feed.tick(510);
    assert_eq!(feed.rows()[1], "t1 20 io wall=510 cpu=0 hits=1/0 longest=510@0");
}

#[test]
fn one_wait_is_one_hit_in_any_window() {
    let mut feed = Feed::new();
    feed.blocked(100, 1, EPOLL, 10, counters(0, 0, 1));
    feed.ticks(100, 60_000);
    // Observed again (by a new sampler, say), still the same wait: counters did not move.
    feed.blocked(60_005, 1, EPOLL, 10, counters(0, 0, 1));
    feed.ticks(60_000, 70_000);
    let view = feed.recorder.view();
    for window in [1, 1_000, 5_000, 30_000, 69_000, 100_000] {
        for at in [30_000, 60_010, 69_500, 70_000] {
            let (sums, from, till) = sums(&view, Range::Rolling(window * MS), START + at * MS);
            let (_, weights) = sums.first_key_value().unwrap();
            assert_eq!(weights.hits, 1, "{window} {at}");
            let lived = till - from.max(START + 100 * MS);
            assert_eq!(weights.wall_ns, lived, "{window} {at}");
            assert_eq!(weights.longest_from, START + 100 * MS);
        }
    }
    assert_eq!(rows(&view), ["t1 10 poll wall=69900 cpu=0 hits=1/0 longest=69900@100"]);
}

#[test]
fn a_thread_that_ran_waits_anew() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, EPOLL, 10, counters(0, 0, 1));
    feed.tick(0);
    feed.blocked(10, 1, EPOLL, 10, counters(1, 0, 2));
    feed.tick(10);
    feed.blocked(20, 1, EPOLL, 10, counters(1, 0, 3));
    feed.tick(20);
    feed.ticks(20, 40);
    // Three waits; the longest began at 10 and lasted 30. A millisecond waits for a sample.
    assert_eq!(feed.rows(), ["t1 10 poll wall=39 cpu=0 hits=3/0 longest=30@10"]);
}

#[test]
fn nobody_looked_for_too_long() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, READ, 10, counters(0, 0, 1));
    feed.ticks(0, 100);
    // More than 1 s without a tick. The thread ran 300 ms and waited for a core for 50.
    feed.blocked(2_100, 1, READ, 20, counters(300, 50, 9));
    feed.tick(2_100);
    feed.ticks(2_100, 2_200);
    let expected = [
        "t1 10 io wall=100 cpu=0 hits=1/0 longest=100@0",
        "t1 20 io wall=100 cpu=0 hits=1/0 longest=100@2100",
        "t1 [not observed] rdy wall=50 cpu=0 hits=0/0",
        "t1 [not observed] run wall=300 cpu=300 hits=0/0",
        "t1 [not observed] wait wall=1650 cpu=0 hits=0/0",
    ];
    assert_eq!(feed.rows(), expected);
}

#[test]
fn an_unobserved_thread_whose_counters_come_later() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, READ, 10, counters(0, 0, 1));
    feed.ticks(0, 100);
    feed.on_cpu(2_100, 1, 20);
    feed.blocked(2_110, 1, READ, 30, counters(300, 0, 9));
    feed.tick(2_110);
    let expected = [
        "t1 10 io wall=100 cpu=0 hits=1/0 longest=100@0",
        "t1 20 run wall=0 cpu=0 hits=1/1",
        "t1 30 io wall=10 cpu=0 hits=1/0 longest=10@2100",
        "t1 [not observed] run wall=0 cpu=300 hits=0/0",
        "t1 [not observed] wait wall=2000 cpu=0 hits=0/0",
    ];
    assert_eq!(feed.rows(), expected);
}

#[test]
fn counters_prove_a_thread_unmoved_through_a_gap() {
    for said in [false, true] {
        let mut feed = Feed::new();
        feed.blocked(0, 1, READ, 10, counters(3, 0, 1));
        feed.blocked(0, 2, READ, 10, counters(3, 0, 1));
        feed.ticks(0, 100);
        if said {
            feed.gap(100, 5_000);
        }
        // t1 is observed again; t2 is not reported, which proves the same.
        feed.blocked(5_000, 1, READ, 10, counters(3, 0, 1));
        feed.tick(5_000);
        assert_eq!(
            feed.rows(),
            [
                "t1 10 io wall=5000 cpu=0 hits=1/0 longest=5000@0",
                "t2 10 io wall=5000 cpu=0 hits=1/0 longest=5000@0"
            ]
        );
    }
}

#[test]
fn a_gap_that_is_announced_may_be_short() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, READ, 10, counters(0, 0, 1));
    feed.ticks(0, 100);
    feed.gap(100, 300);
    feed.blocked(310, 1, READ, 20, counters(0, 0, 2));
    feed.tick(310);
    let expected = [
        "t1 10 io wall=100 cpu=0 hits=1/0 longest=100@0",
        "t1 20 io wall=10 cpu=0 hits=1/0 longest=10@300",
        "t1 [not observed] wait wall=200 cpu=0 hits=0/0",
    ];
    assert_eq!(feed.rows(), expected);
}

#[test]
fn a_long_suspension_costs_one_bucket() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, READ, 10, counters(0, 0, 1));
    feed.tick(0);
    feed.ticks(0, 100);
    let weekend = 60 * 3_600 * 1_000;
    feed.blocked(weekend + 500, 1, READ, 20, counters(0, 0, 2));
    feed.tick(weekend + 500);
    let view = feed.recorder.view();
    let mut facts = 0;
    let range = Range::Rolling(weekend * 2 * MS);
    view.history.read(range, view.at, &mut |_, _| facts += 1);
    assert!(facts < 10, "{facts}");
    let wall: u64 = all(&view).values().map(|w| w.wall_ns).sum();
    assert_eq!(wall, (weekend + 500) * MS);
}

#[test]
fn a_late_sample_has_the_time_that_had_no_sample() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(0, 0, 1));
    feed.tick(0);
    feed.blocked(10, 1, READ, 10, counters(6, 0, 1));
    // Taken before the observation, and read after it: a hit, and the 6 ms that had no sample.
    feed.on_cpu(4, 1, 20);
    feed.tick(10);
    feed.ticks(10, 100);
    feed.blocked(110, 1, READ, 10, counters(7, 0, 2));
    feed.tick(110);
    // The wait of 10..100 is kept.
    assert_eq!(
        feed.rows(),
        ["t1 10 io wall=103 cpu=0 hits=2/0 longest=100@0", "t1 20 run wall=7 cpu=7 hits=1/1"]
    );
}

#[test]
fn a_sample_from_before_the_last_look_may_still_be_the_newest_observation() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(0, 0, 1));
    feed.tick(0);
    feed.running(10, 1, counters(9, 0, 1));
    feed.on_cpu(8, 1, 20);
    feed.tick(10);
    feed.ended(20, 1, counters(19, 0, 1));
    // Its span ends at 8. At 10 the thread was seen running without a sample. That is kept: the
    // time after it has the stack of a sample, and is no hit.
    assert_eq!(feed.rows(), ["t1 20 run wall=20 cpu=19 hits=1/1"]);
}

#[test]
fn a_thread_that_ends() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, READ, 10, counters(0, 0, 1));
    feed.on_cpu(0, 2, 20);
    feed.running(0, 3, counters(0, 0, 1));
    feed.ticks(0, 100);
    for tid in [1, 2, 3] {
        feed.ended(105, tid, None);
    }
    let expected = [
        // A wait continues to the end, and so does the stack of the last sample.
        "t1 10 io wall=105 cpu=0 hits=1/0 longest=105@0",
        "t2 20 run wall=105 cpu=0 hits=1/1",
        // Seen running and never sampled.
        "t3 [cpu, not sampled] run wall=105 cpu=0 hits=0/0",
    ];
    assert_eq!(feed.rows(), expected);
    assert!(feed.recorder.view().threads.is_empty());
    // A sample read after its thread's end is a hit, and gets the time that the process's clock
    // shows.
    feed.on_cpu(104, 2, 20);
    feed.ticks(100, 300);
    assert_eq!(feed.rows()[1], "t2 20 run wall=105 cpu=0 hits=2/2");
}

#[test]
fn a_thread_id_that_is_used_again_ends_the_former_thread() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, READ, 10, counters(0, 0, 1));
    feed.ticks(0, 100);
    let mut again = thread(1);
    again.start = 8;
    let observation = Observation {
        stack: vec![code(20)],
        ..Observation::new(START + 105 * MS, again, RawName::new(b"new"), Seen::OnCpu)
    };
    feed.recorder.apply(&Event::Observation(observation));
    feed.ticks(100, 200);
    assert_eq!(
        feed.rows(),
        ["new 20 run wall=0 cpu=0 hits=1/1", "t1 10 io wall=105 cpu=0 hits=1/0 longest=105@0"]
    );
    assert_eq!(feed.recorder.view().threads.len(), 1);
}

#[test]
fn exec_ends_what_was_before_it() {
    let mut feed = Feed::new();
    feed.on_cpu(0, 1, 10);
    feed.running(0, 1, counters(0, 0, 1));
    feed.tick(0);
    feed.on_cpu(4, 1, 10);
    feed.running(10, 1, counters(10, 0, 1));
    feed.tick(10);
    feed.recorder.apply(&Event::Exec { at: START + 15 * MS, pid: PID });
    feed.on_cpu(18, 1, 20);
    feed.blocked(20, 1, READ, 21, counters(19, 0, 1));
    feed.tick(20);
    let expected = [
        // 4..15: seen running at 10, no sample after.
        "t1 10 run wall=15 cpu=10 hits=2/2",
        "t1 20 run wall=5 cpu=9 hits=1/1",
        "t1 21 io wall=0 cpu=0 hits=1/0",
    ];
    assert_eq!(feed.rows(), expected);
}

#[test]
fn a_process_that_ends() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, READ, 10, counters(0, 0, 1));
    feed.tick_with(0, Some(0));
    feed.ticks(0, 90);
    feed.tick_with(100, Some(8));
    feed.recorder.apply(&Event::ProcessEnded { at: START + 104 * MS, pid: PID });
    let view = feed.recorder.view();
    assert_eq!(
        rows(&view),
        [
            "(exited) [exited threads, not sampled] run wall=8 cpu=8 hits=0/0",
            "t1 10 io wall=104 cpu=0 hits=1/0 longest=104@0"
        ]
    );
    assert_eq!((view.at, view.threads.len()), (START + 104 * MS, 0));
}

#[test]
fn names_are_those_of_the_moment() {
    let mut feed = Feed::new();
    let renamed = |name: &[u8], at: u64| {
        Event::Observation(Observation {
            counters: counters(at, 0, 1),
            stack: vec![code(20)],
            ..Observation::new(START + at * MS, thread(1), RawName::new(name), Seen::OnCpu)
        })
    };
    feed.recorder.apply(&renamed(b"idle", 0));
    feed.recorder.apply(&renamed(b"GET /cart\x1b[2J", 10));
    feed.recorder.apply(&renamed(b"GET /pay", 30));
    feed.tick(30);
    assert_eq!(
        feed.rows(),
        [
            "GET /cart[2J 20 run wall=10 cpu=10 hits=1/1",
            "GET /pay 20 run wall=20 cpu=20 hits=1/1",
            "idle 20 run wall=0 cpu=0 hits=1/1"
        ]
    );
}

#[test]
fn garbage_in_time_does_no_harm() {
    let mut feed = Feed::new();
    feed.blocked(5_000, 1, READ, 10, counters(5, 5, 5));
    feed.recorder.apply(&Event::Gap { from: u64::MAX, at: 0 });
    feed.recorder.apply(&Event::Gap { from: 0, at: START + 6_000 * MS });
    feed.recorder.apply(&Event::Exec { at: 0, pid: PID });
    let mut observation = Observation {
        recovered: true,
        ..Observation::new(0, thread(2), RawName::default(), Seen::OnCpu)
    };
    feed.recorder.apply(&Event::Observation(observation.clone()));
    observation.at = START + 7_000 * MS;
    feed.recorder.apply(&Event::Observation(observation));
    feed.tick(7_000);
    feed.tick(3_000);
    feed.ended(0, 1, counters(0, 0, 0));
    feed.ended(0, 9, None);
    feed.recorder.close(0);
    let wall: u64 = all(&feed.recorder.view()).values().map(|w| w.wall_ns).sum();
    // t2 from the session's start (it was first observed before that) to 7 s; t1 had no life after
    // its first observation.
    assert_eq!(wall, 7_000 * MS);
}

#[test]
fn the_view_says_how_the_measurement_goes() {
    let mut feed = Feed::with(Limits::default());
    for n in 0..=200u64 {
        feed.losses.samples = n;
        feed.recorder.apply(&Event::Tick(Tick {
            late_ns: if n % 50 == 0 { 900 } else { n },
            losses: feed.losses,
            ..Tick::new(START + n * 10 * MS, PID)
        }));
    }
    let view = feed.recorder.view();
    assert_eq!((view.ticks, view.losses.samples, view.at), (201, 200, START + 2_000 * MS));
    assert_eq!((view.interval_achieved_ns, view.late_p99_ns), (10 * MS, 900));
}

#[test]
fn a_new_thread_that_has_not_run_yet_wants_a_core() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(0, 0, 0));
    feed.running(0, 2, counters(0, 0, 1));
    feed.running(0, 3, counters(0, 0, 0));
    feed.running(0, 4, counters(0, 0, 0));
    feed.tick(0);
    let view = feed.recorder.view();
    let state = |t: &ThreadNow| t.state.resolve(view.tables.futex_kind(t.stack)).word();
    let now: Vec<&str> = view.threads.iter().map(state).collect();
    assert_eq!(now, ["rdy", "run", "rdy", "rdy"]);
    // It ran, or a sample hit it.
    feed.running(10, 3, counters(1, 9, 1));
    feed.on_cpu(5, 4, 20);
    for tid in 1..=3 {
        feed.ended(20, tid, None);
    }
    feed.blocked(20, 4, READ, 10, counters(6, 4, 1));
    feed.ended(20, 4, None);
    let rows = feed.close(20);
    let expected = [
        "t1 [new thread, has not run yet] rdy wall=20 cpu=0 hits=0/0",
        "t2 [cpu, not sampled] run wall=20 cpu=0 hits=0/0",
        "t3 [cpu, not sampled] rdy wall=9 cpu=0 hits=0/0",
        "t3 [cpu, not sampled] run wall=11 cpu=1 hits=0/0",
    ];
    assert_eq!(rows[..4], expected, "{rows:#?}");
    assert!(rows[4..].iter().all(|row| row.starts_with("t4 ") && !row.contains("[")), "{rows:#?}");
}

#[test]
fn a_new_thread_that_may_have_run_in_a_gap_is_not_said_to_wait() {
    let mut feed = Feed::new();
    feed.running(0, 1, counters(0, 0, 0));
    feed.gap(10, 3_000);
    feed.running(3_000, 1, None);
    feed.tick(3_000);
    feed.ended(3_010, 1, None);
    let rows = feed.close(3_010);
    let last = "t1 [cpu, not sampled] run wall=10 cpu=0 hits=0/0";
    assert!(rows.iter().any(|row| row == last), "{rows:#?}");
}

#[test]
fn threads_now() {
    let mut feed = Feed::new();
    feed.blocked(0, 1, READ, 10, counters(0, 0, 1));
    feed.on_cpu(0, 2, 20);
    feed.running(0, 3, counters(0, 0, 1));
    feed.ticks(0, 100);
    let view = feed.recorder.view();
    let now: Vec<String> = view
        .threads
        .iter()
        .map(|t| {
            let state = t.state.resolve(view.tables.futex_kind(t.stack)).word();
            let call = t.syscall.map(|call| call.number);
            format!(
                "{} {} {state} {} {call:?}",
                view.tables.name(t.name),
                stack_name(&view, t.stack),
                (t.since - START) / MS
            )
        })
        .collect();
    assert_eq!(
        now,
        ["t1 10 io 0 Some(0)", "t2 20 run 0 None", "t3 [running, not sampled] run 0 None"]
    );
    // Kept for the report after sampling ended.
    feed.recorder.close(START + 100 * MS);
    assert_eq!(feed.recorder.view().threads, view.threads);
}
