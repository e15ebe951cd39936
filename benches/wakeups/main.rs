//! Measures what counting wakeups costs: two threads on one core wake each other by a futex, in
//! turns without counting, while their own wakeups are counted, and while those of another process
//! are. As root.
//!
//!     cargo run --release --example wakeups [TURNS]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use sampletop::clock;
use sampletop::process::wakeups::Counting;

/// Duration of each turn.
const TURN: Duration = Duration::from_millis(500);
/// Default number of turns of each kind.
const TURNS: usize = 30;

/// What the two threads share.
#[derive(Default)]
struct Shared {
    wakeups: AtomicU64,
    first_is_next: AtomicBool,
    ends: AtomicBool,
}

/// Waits for its turn, and gives it to the other thread.
fn play(shared: &Shared, is_first: bool, other: &Thread) {
    while !shared.ends.load(Ordering::Relaxed) {
        while shared.first_is_next.load(Ordering::Acquire) != is_first {
            if shared.ends.load(Ordering::Relaxed) {
                return;
            }
            std::thread::park();
        }
        shared.wakeups.fetch_add(1, Ordering::Relaxed);
        shared.first_is_next.store(!is_first, Ordering::Release);
        other.unpark();
    }
}

fn pin() {
    let mut core = CpuSet::new();
    core.set(0);
    sched_setaffinity(None, &core).expect("core 0 is ours");
}

/// Returns the CPU time of one wakeup, ns. Elapsed time would be that of other programs, too.
fn turn(shared: &Shared) -> f64 {
    let now = || {
        let cpu = clock::cpu_of_process(std::process::id()).expect("this process");
        (cpu, shared.wakeups.load(Ordering::Relaxed))
    };
    let (cpu, wakeups) = now();
    std::thread::sleep(TURN);
    let (cpu_later, wakeups_later) = now();
    (cpu_later - cpu) as f64 / (wakeups_later - wakeups) as f64
}

fn median(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn main() {
    let turns = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(TURNS);
    let shared = Arc::new(Shared::default());
    let (sender, handle) = std::sync::mpsc::channel::<Thread>();
    let of_second = shared.clone();
    let second = std::thread::spawn(move || {
        pin();
        let first = handle.recv().expect("the first thread");
        play(&of_second, false, &first);
    });
    let (of_first, other) = (shared.clone(), second.thread().clone());
    let first = std::thread::spawn(move || {
        pin();
        sender.send(std::thread::current()).expect("the second thread");
        play(&of_first, true, &other);
    });
    shared.first_is_next.store(true, Ordering::Release);
    first.thread().unpark();
    turn(&shared);

    // It is never woken.
    let mut sleeper = Command::new("sleep").arg("1h").spawn().expect("sleep");
    let (mut without, mut own, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..turns {
        without.push(turn(&shared));
        for (process, times) in [(std::process::id(), &mut own), (sleeper.id(), &mut others)] {
            let counting = Counting::begin(&[process]).expect("root may");
            times.push(turn(&shared));
            let wakeups = counting.end().expect("it counts");
            assert_eq!(wakeups.counted() > 0, process != sleeper.id());
        }
    }
    sleeper.kill().and_then(|()| sleeper.wait()).expect("our child");
    shared.ends.store(true, Ordering::Relaxed);
    for thread in [first, second] {
        thread.thread().unpark();
        thread.join().expect("it ends");
    }
    // Neighbours in time are compared: the machine's speed changes.
    for (what, times) in [("own process counted", &own), ("another process counted", &others)] {
        let more = times.iter().zip(&without).map(|(with, without)| with - without).collect();
        let ratio = times.iter().zip(&without).map(|(with, without)| with / without).collect();
        let ((more, ..), (ratio, low, high)) = (median(more), median(ratio));
        println!("{what}: {more:.0} ns a wakeup more, times {ratio:.3} ({low:.3} .. {high:.3})");
    }
    let (ns, low, high) = median(without);
    println!("without: {ns:.0} ns a wakeup ({low:.0} .. {high:.0}), {turns} turns each");
}
