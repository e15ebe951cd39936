//! Who woke threads, and where the wakers were.

use super::*;
use crate::model::projection::samples::samples_of;
use crate::model::projection::wakers::by_samples;
use crate::model::vocabulary::wakeup::{Cost, Pair, Waker, Wakeups, Woken};

/// Call numbers of x86-64.
const WRITE: u32 = 1;
const FUTEX: u32 = 202;

fn thread(pid: u32, tid: u32, call: u32) -> Waker {
    Waker::Thread { pid, tid, name: "kernel's".into(), process: "redis-server".into(), call }
}

/// Returns a line for each waker of each thread.
fn lines(world: &mut World, pairs: &[(Waker, u32, u64)]) -> Vec<String> {
    let pairs = pairs.iter().map(|(waker, tid, count)| Pair {
        waker: waker.clone(),
        woken: Woken { pid: 1, tid: *tid },
        count: *count,
    });
    let wakeups = Wakeups {
        from: 0,
        duration_ns: 100,
        pairs: pairs.collect(),
        lost: 0,
        seen: 0,
        cost: Cost::Measured(0),
    };
    let snapshot = Snapshot { wakeups: Some(wakeups.into()), ..world.snapshot() };
    let samples = samples_of(&snapshot, &Settings::default(), &mut |f| {
        world.facts.iter().for_each(|(key, weights)| f(0, key, weights));
        (0, 100)
    });
    let of_thread = |thread: WokenThread| {
        let name = thread.name.clone();
        let text = |by: &WokenBy| {
            let text = by.text(|location| location.function.to_string());
            format!("{name} {}: {text} {}", thread.count, by.count)
        };
        thread.by.iter().map(text).collect::<Vec<String>>()
    };
    by_samples(&snapshot, &samples).into_iter().flat_map(of_thread).collect()
}

fn world() -> World {
    let mut world = World::new();
    // Threads are numbered from 0.
    world.fact("worker", "main;take;libc.so.6!pthread_cond_wait", State::Wait, 90);
    world.fact("producer", "main;fill;parse", State::Run, 50);
    world.fact("producer", "main;publish;libc.so.6!pthread_cond_signal", State::Run, 5);
    world.fact("producer", "main;publish;libc.so.6!pthread_mutex_unlock", State::Run, 5);
    world.fact("producer", "main;log;libc.so.6!sem_post", State::Run, 50);
    world
}

#[test]
fn a_waker_is_where_it_was_seen_to_make_the_call() {
    let mut world = world();
    let tid = |nth: usize| world.facts[nth].0.thread.tid;
    let (worker, producer) = (tid(0), tid(1));
    let found = lines(
        &mut world,
        &[(thread(1, producer, FUTEX), worker, 12), (thread(1, producer, WRITE), worker, 3)],
    );
    let call = format!("worker 15: producer[{producer}] in publish or log (futex) 12");
    let most = format!("worker 15: producer[{producer}] (write), mostly in parse 3");
    assert_eq!(found, [call, most]);
}

#[test]
fn a_waker_that_mostly_waits_is_not_named_after_its_end() {
    let mut world = world();
    world.fact("pacer", "start_thread;pace;libc.so.6!nanosleep", State::Sleep, 90);
    world.fact("pacer", "start_thread;libc.so.6!__res_thread_freeres", State::Run, 1).cpu_ns = 1;
    let tid = |nth: usize| world.facts[nth].0.thread.tid;
    let (worker, pacer) = (tid(0), tid(5));
    let found = lines(&mut world, &[(thread(1, pacer, WRITE), worker, 3)]);
    assert_eq!(found, [format!("worker 3: pacer[{pacer}] (write), mostly in pace 3")]);
}

#[test]
fn wakers_that_are_no_thread_of_the_process() {
    let mut world = world();
    let worker = world.facts[0].0.thread.tid;
    let found = lines(
        &mut world,
        &[
            (Waker::Interrupt, worker, 1),
            // Threads of another process count together.
            (thread(812, 812, WRITE), worker, 30),
            (thread(812, 815, WRITE), worker, 40),
            (Waker::KernelThread { tid: 9, name: "kworker/0:1".into() }, worker, 2),
            (Waker::Hidden { call: 60 }, worker, 4),
            (thread(1, 4_711, FUTEX), 99, 80),
        ],
    );
    let expected = [
        // Of threads without samples the kernel's names are known.
        "(exited) 80: kernel's[4711] (futex) 80",
        "worker 77: redis-server[812] (write) 70",
        "worker 77: a process that cannot be seen from here (exit) 4",
        "worker 77: kernel thread kworker/0:1[9] 2",
        "worker 77: an interrupt (a timer or a device) 1",
    ];
    assert_eq!(found, expected);
}

#[test]
fn threads_of_a_pool_are_named_together_where_there_are_many() {
    let by = |name: &str, tid, place: &str, count| WokenBy {
        who: Who::Thread { pid: 1, tid, name: name.into() },
        call: Some(FUTEX),
        place: Some(WakersPlace::Mostly(location(place, false).into())),
        count,
    };
    let interrupt = WokenBy { who: Who::Interrupt, call: None, place: None, count: 6 };
    let thread = WokenThread {
        woken: Woken { pid: 1, tid: 9 },
        name: "pool-9".into(),
        count: 24,
        by: vec![
            interrupt,
            by("pool-1", 1, "touch", 5),
            by("pool-2", 2, "touch", 4),
            by("timer", 4, "expire", 7),
            by("timer", 5, "other", 1),
            by("main", 6, "run", 1),
        ],
    };
    let text = |by: &WokenBy| format!("{} {}", by.text(|l| l.function.to_string()), by.count);
    let lines: Vec<_> = thread.lines(4).iter().map(text).collect();
    assert_eq!(
        lines,
        [
            "2 threads pool- (futex), mostly in touch 9",
            "2 threads timer (futex) 8",
            "an interrupt (a timer or a device) 6",
            "main[6] (futex), mostly in run 1",
        ]
    );
    assert_eq!(thread.lines(6), thread.by);
}
