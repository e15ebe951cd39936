use super::*;
use crate::model::facts::fact::Weights;
use crate::model::facts::history::Range;
use crate::model::vocabulary::blocker::BlockerKind;

#[test]
fn ticks_of_several_processes_are_one_round() {
    let mut recorder = Recorder::new(0, Limits::default());
    let interval = 10_000_000;
    for round in 1..=100 {
        for pid in [7, 8, 9] {
            // A process may appear and exit.
            if pid != 8 || round % 3 != 0 {
                let (at, losses) = (round * interval, Losses::default());
                let tick = Tick { interval_ns: interval, losses, ..Tick::new(at, pid) };
                recorder.apply(&Event::Tick(tick));
            }
        }
    }
    let view = recorder.view();
    assert_eq!((view.ticks, view.interval_achieved_ns, view.at), (100, interval, 100 * interval));
}

#[test]
fn a_thread_keeps_the_name_its_runtime_gave_however_many_others_come() {
    let mut recorder = Recorder::new(0, Limits::default());
    let observe = |at, id, tid| {
        let (thread, name) = (ThreadKey { pid: 7, tid, start: 1 }, RawName::of_runtime(id));
        let (seen, counters, stack) = (event::Seen::Running, None, Vec::new());
        Event::Observation(Observation {
            counters,
            stack,
            ..Observation::new(at, thread, name, seen)
        })
    };
    recorder.set_thread_name(RawName::of_runtime(1), "http-1");
    recorder.apply(&observe(0, 1, 1));
    for id in 2..=150_000 {
        recorder.set_thread_name(RawName::of_runtime(id), &format!("req-{id}"));
    }
    recorder.apply(&observe(1, 1, 1));
    recorder.apply(&observe(1, 150_000, 2));
    let view = recorder.view();
    assert_eq!(
        [0, 1].map(|at: usize| &**view.tables.name(view.threads[at].name)),
        ["http-1", "req-"]
    );
}

const MS: Ns = 1_000_000;

fn key(tid: u32) -> ThreadKey {
    ThreadKey { pid: 7, tid, start: 1 }
}

/// An observation of a thread that has run `runs` times, blocked in the frame `at`.
fn blocked(time: Ns, tid: u32, runs: u64, frame: u64) -> Observation {
    let futex = event::Syscall { number: 202, args: [0; 6] };
    let name = RawName::new(format!("t{tid}").as_bytes());
    Observation {
        counters: Some(event::Counters { run_ns: 1, delay_ns: 0, runs }),
        stack: vec![RawFrame::from_bits(frame)],
        ..Observation::new(time, key(tid), name, event::Seen::Blocked(futex))
    }
}

fn mutex(tid: u32) -> RawBlocker {
    let holder = RawHolder::Thread { pid: 7, tid };
    RawBlocker { kind: BlockerKind::Mutex, object: 0x10, class: None, holder }
}

/// By holder and its frame: the wall time of waits, and their hits.
fn waited(view: &View) -> Vec<(u32, u64, u64, u32)> {
    let mut waited = Vec::new();
    view.history.read(Range::Rolling(u64::MAX), view.at, &mut |key, weights| {
        let Some(blocker) = view.tables.blocker(key.blocker) else { return };
        let Holder::Thread { thread, stack, .. } = blocker.holder else { return };
        let frame = view.tables.frame(view.tables.top(stack)).bits();
        waited.push((thread.tid, frame, weights.wall_ns / MS, weights.hits));
    });
    waited
}

#[test]
fn a_holder_is_where_it_was_observed_in_the_same_tick() {
    let mut recorder = Recorder::new(0, Limits::default());
    let waits = |time| Observation { blocker: Some(mutex(2)), ..blocked(time, 1, time / MS, 5) };
    recorder.apply(&Event::Observation(blocked(0, 2, 0, 40)));
    recorder.apply(&Event::Observation(waits(0)));
    recorder.apply(&Event::Tick(Tick::new(0, 7)));
    // The waiting thread comes first, its holder is elsewhere in this tick.
    recorder.apply(&Event::Observation(waits(10 * MS)));
    recorder.apply(&Event::Observation(blocked(10 * MS, 2, 9, 41)));
    recorder.apply(&Event::Tick(Tick::new(10 * MS, 7)));
    assert_eq!(waited(&recorder.view()), [(2, 40, 0, 1), (2, 41, 10, 1)]);
    let of_waiting = recorder.view().threads[0].blocker;
    assert_eq!(of_waiting, BlockerId(2));
}

#[test]
fn a_holder_that_ran_since_it_waited_is_not_where_it_was() {
    let mut recorder = Recorder::new(0, Limits::default());
    recorder.apply(&Event::Observation(blocked(0, 2, 0, 40)));
    recorder.apply(&Event::Tick(Tick::new(0, 7)));
    let waits = Observation { blocker: Some(mutex(2)), ..blocked(10 * MS, 1, 1, 5) };
    recorder.apply(&Event::Observation(waits));
    let ran = event::Counters { run_ns: 2, delay_ns: 0, runs: 1 };
    let name = RawName::new(b"t2");
    recorder.apply(&Event::Observation(Observation {
        counters: Some(ran),
        ..Observation::new(10 * MS, key(2), name, event::Seen::Running)
    }));
    recorder.apply(&Event::Tick(Tick::new(10 * MS, 7)));
    recorder.apply(&Event::Tick(Tick::new(20 * MS, 7)));
    let held_in: Vec<u64> = waited(&recorder.view()).iter().map(|held| held.1).collect();
    assert_eq!(held_in.len(), 1);
    assert_ne!(held_in[0], 40, "where it waited before");
}

#[test]
fn two_threads_that_wait_for_each_other_are_each_others_holders() {
    let mut recorder = Recorder::new(0, Limits::default());
    for (tid, other) in [(1, 2), (2, 1)] {
        let waits = blocked(0, tid, 0, u64::from(tid) * 10);
        let waits = Observation { blocker: Some(mutex(other)), ..waits };
        recorder.apply(&Event::Observation(waits));
    }
    recorder.apply(&Event::Tick(Tick::new(0, 7)));
    recorder.apply(&Event::Tick(Tick::new(10 * MS, 7)));
    recorder.apply(&Event::Tick(Tick::new(20 * MS, 7)));
    assert_eq!(waited(&recorder.view()), [(2, 20, 20, 1), (1, 10, 20, 1)]);
}

/// A goroutine that was found to wait in the frame `at`, since when its runtime says.
fn parked(time: Ns, since: Option<Ns>, frame: u64) -> Event {
    let (thread, name) = (ThreadKey::goroutine(7, 21, 1), RawName::new(b"main.work"));
    let seen = event::Seen::Blocked(RawState::Known(State::Lock).parked());
    Event::Observation(Observation {
        stack: vec![RawFrame::from_bits(frame)],
        wait_began: since,
        ..Observation::new(time, thread, name, seen)
    })
}

/// Wall time, hits and the longest wait by frame, ms, of goroutines seen at these times, ms,
/// and ended at the last; and how long they wait by the newest state.
fn of_goroutines(seen: &[(Ns, Option<Ns>, u64)], end: Ns) -> (Vec<(u64, u64, u32, u64)>, Ns) {
    let mut recorder = Recorder::new(0, Limits::default());
    for at in (0..end).step_by(10) {
        for (_, since, frame) in seen.iter().filter(|(time, ..)| *time == at) {
            recorder.apply(&parked(at * MS, since.map(|since| since * MS), *frame));
        }
        recorder.apply(&Event::Tick(Tick::new(at * MS, 7)));
    }
    let now = recorder.view().threads[0];
    let waits = recorder.view().at - now.since;
    let (at, thread) = (end * MS, now.thread);
    recorder.apply(&Event::ThreadEnded { at, thread, counters: None });
    recorder.apply(&Event::Tick(Tick::new(at, 7)));
    let view = recorder.view();
    let mut found = FxHashMap::<u64, Weights>::default();
    view.history.read(Range::Rolling(u64::MAX), view.at, &mut |key, weights| {
        assert_eq!(key.state, RawState::Known(State::Lock));
        let frame = view.tables.frame(view.tables.top(key.stack)).bits();
        found.entry(frame).or_default().follow(weights);
    });
    let figures =
        |(frame, of): (u64, Weights)| (frame, of.wall_ns / MS, of.hits, of.longest_ns / MS);
    let mut found: Vec<_> = found.into_iter().map(figures).collect();
    found.sort_unstable();
    // It is known as of the tick before the newest one.
    (found, waits / MS / 100 * 100)
}

#[test]
fn where_a_goroutine_was_found_holds_until_it_is_found_elsewhere() {
    let seen = [(0, None, 5), (5_000, None, 6), (10_000, None, 5)];
    assert_eq!(of_goroutines(&seen, 12_000).0, [(5, 7_000, 2, 0), (6, 5_000, 1, 0)]);
}

#[test]
fn waits_of_a_goroutine_are_one_only_if_its_runtime_says_so() {
    let apart = [(0, None, 5), (5_000, None, 5), (10_000, None, 5)];
    assert_eq!(of_goroutines(&apart, 11_000), (vec![(5, 11_000, 3, 0)], 0));
    // A collection at 4 s found it waiting.
    let one = [(0, None, 5), (5_000, Some(4_000), 5), (10_000, Some(4_000), 5)];
    assert_eq!(of_goroutines(&one, 11_000), (vec![(5, 11_000, 2, 5_010)], 5_000));
    // It began before it was seen first.
    let old = [(1_000, Some(500), 5), (6_000, Some(500), 5)];
    assert_eq!(of_goroutines(&old, 7_000), (vec![(5, 6_000, 1, 5_000)], 5_000));
}

#[test]
fn a_wait_goes_on_with_another_holder() {
    let mut recorder = Recorder::new(0, Limits::default());
    recorder.apply(&Event::Observation(blocked(0, 2, 0, 40)));
    recorder.apply(&Event::Observation(blocked(0, 3, 0, 50)));
    let waits = Observation { blocker: Some(mutex(2)), ..blocked(0, 1, 0, 5) };
    recorder.apply(&Event::Observation(waits));
    recorder.apply(&Event::Tick(Tick::new(0, 7)));
    let again = Event::StillBlocked { at: 30 * MS, thread: key(1), blocker: mutex(3) };
    recorder.apply(&again);
    for at in [30, 40, 50] {
        recorder.apply(&Event::Tick(Tick::new(at * MS, 7)));
    }
    let view = recorder.view();
    assert_eq!(waited(&view), [(2, 40, 30, 1), (3, 50, 20, 0)], "one wait");
    assert_eq!(view.threads[0].since, 0);
    // It is observed again without having run: the same wait.
    let waits = Observation { blocker: Some(mutex(2)), ..blocked(55 * MS, 1, 0, 5) };
    recorder.apply(&Event::Observation(waits));
    recorder.apply(&Event::Tick(Tick::new(55 * MS, 7)));
    assert_eq!(recorder.view().threads[0].since, 0);
    // Of a thread that runs by now nothing is known.
    let (ran, name) = (event::Seen::OnCpu, RawName::new(b"t1"));
    recorder.apply(&Event::Observation(Observation::new(60 * MS, key(1), name, ran)));
    recorder.apply(&Event::StillBlocked { at: 61 * MS, thread: key(1), blocker: mutex(2) });
    recorder.apply(&Event::Tick(Tick::new(61 * MS, 7)));
    assert_eq!(recorder.view().threads[0].blocker, BlockerId::NONE);
}

#[test]
fn a_deadlock_has_the_time_at_which_it_was_found() {
    let mut recorder = Recorder::new(0, Limits::default());
    let first = vec![key(1), key(2)];
    recorder.apply(&Event::Deadlocks { at: 5, cycles: vec![first.clone()] });
    recorder.apply(&Event::Deadlocks { at: 9, cycles: vec![vec![key(3)], first] });
    let since: Vec<Ns> = recorder.view().deadlocks.iter().map(|d| d.since).collect();
    assert_eq!(since, [9, 5]);
    recorder.apply(&Event::Deadlocks { at: 12, cycles: Vec::new() });
    assert!(recorder.view().deadlocks.is_empty());
}
