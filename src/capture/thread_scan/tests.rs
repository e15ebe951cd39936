//! Which observations prove that a thread has not moved. A folder of files stands for /proc, so the
//! tests need neither root nor time.

use std::path::{Path, PathBuf};

use super::*;
use crate::capture::stack_reader::StackReader;
use crate::process::memory::Memory;
use crate::unwinder::{Registers, StackBytes, Unwinder};

const TID: u32 = 7;
/// A futex call at a stack pointer where no memory is.
const FUTEX: &str = "202 0x1 0x0 0x0 0x0 0x0 0x0 0x1000 0x4000";

/// The files of one thread.
struct Thread(PathBuf);

impl Thread {
    fn new(folder: &Path, tid: u32) -> Thread {
        let thread = Thread(folder.join(tid.to_string()));
        std::fs::create_dir(&thread.0).expect("made");
        thread.counters("100 5 3").doing(FUTEX).stat('S', 50);
        thread.write("comm", "worker\n");
        thread
    }

    /// Writes into the file that may be open, as the kernel does.
    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).expect("written");
    }

    /// `RUN_NS DELAY_NS RUNS`.
    fn counters(&self, text: &str) -> &Thread {
        self.write("schedstat", text);
        self
    }

    fn doing(&self, text: &str) -> &Thread {
        self.write("syscall", text);
        self
    }

    fn stat(&self, state: char, start: u64) -> &Thread {
        let zeros = "0 ".repeat(18);
        self.write("stat", &format!("{TID} (worker) {state} {zeros}{start} 0"));
        self
    }
}

/// Ends each stack in `end`, after `during` was called.
struct Fake<'a> {
    end: RawFrame,
    during: &'a mut dyn FnMut(),
}

impl Unwinder for Fake<'_> {
    fn walk(&mut self, _: &Registers, _: StackBytes<'_>, out: &mut Vec<RawFrame>) -> Walk {
        (self.during)();
        out.push(self.end);
        Walk { end: None, recovered: false }
    }
}

fn whole() -> RawFrame {
    RawFrame::from_bits(7)
}

struct World {
    _folder: tempfile::TempDir,
    thread: Thread,
    scan: ThreadScan,
    losses: Losses,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let thread = Thread::new(folder.path(), TID);
        let tasks = Tasks::in_folder(folder.path());
        let scan = ThreadScan::of(std::process::id(), tasks).without_clock();
        World { _folder: folder, thread, scan, losses: Losses::default() }
    }

    /// One that has been observed blocked.
    fn blocked() -> World {
        let mut world = World::new();
        let events = world.scan();
        assert!(matches!(seen(&events)[..], [(Seen::Blocked(_), 1)]), "{events:?}");
        world
    }

    fn scan(&mut self) -> Vec<Event> {
        self.scan_with(whole(), |_| ())
    }

    /// Scans once. `during` may change the thread's files while its stack is walked.
    fn scan_with(&mut self, end: RawFrame, mut during: impl FnMut(&Thread)) -> Vec<Event> {
        let World { thread, scan, losses, .. } = self;
        let mut reader = StackReader::new(Memory::new(std::process::id()));
        let mut unwinder = Fake { end, during: &mut || during(thread) };
        let (mut events, mut moved) = (Vec::new(), Vec::new());
        let done = scan.scan_files(&mut ScanContext {
            stacks: Some(Stacks {
                reader: &mut reader,
                unwinder: &mut unwinder,
                labels: None,
                reports: None,
            }),
            events: &mut events,
            moved: &mut moved,
            losses,
            stops_threads: false,
            turns: usize::MAX,
            max_first_observations: usize::MAX,
            pause_at: Ns::MAX,
            denied: false,
        });
        assert!(done);
        events
    }
}

/// What the observations say, and the length of each stack.
fn seen(events: &[Event]) -> Vec<(Seen, usize)> {
    let one = |event: &Event| match event {
        Event::Observation(observation) => Some((observation.seen, observation.stack.len())),
        _ => None,
    };
    events.iter().filter_map(one).collect()
}

fn ended(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::ThreadEnded { .. })).count()
}

#[test]
fn a_blocked_thread_with_the_same_counters_is_silent_and_only_its_counters_are_read() {
    let mut world = World::blocked();
    let before = world.scan.reads();
    assert_eq!(world.scan(), []);
    // To wait for a core is no move: its registers are those it waits with.
    world.thread.counters("100 9 3");
    assert_eq!(world.scan(), []);
    let after = world.scan.reads();
    assert_eq!(after.counters, before.counters + 2);
    assert_eq!((after.stats, after.syscalls), (before.stats, before.syscalls));
    assert_eq!(world.losses.samples, 1);
}

#[test]
fn run_time_and_run_count_each_prove_that_it_moved() {
    for counters in ["101 5 3", "100 5 4"] {
        let mut world = World::blocked();
        world.thread.counters(counters);
        assert!(matches!(seen(&world.scan())[..], [(Seen::Blocked(_), 1)]), "{counters}");
        assert_eq!(world.scan(), [], "{counters}");
        assert_eq!(world.losses.samples, 2);
    }
}

#[test]
fn a_blocked_thread_that_ran_since_is_reported_once_and_visited_again() {
    let mut world = World::blocked();
    assert_eq!(world.scan.take_moved(TID, 9), None, "it still waits");
    world.thread.counters("101 5 4");
    let moved = world.scan.take_moved(TID, 9).expect("it ran");
    assert_eq!((moved.at, moved.thread.tid, moved.seen), (9, TID, Seen::Running));
    assert_eq!(world.scan.take_moved(TID, 9), None);
    assert!(matches!(seen(&world.scan())[..], [(Seen::Blocked(_), 1)]));
    assert_eq!(world.scan.take_moved(TID + 1, 9), None, "no such thread");
}

#[test]
fn unchanged_counters_of_a_running_thread_prove_nothing() {
    let mut world = World::new();
    world.thread.stat('R', 50).doing("running");
    for _ in 0..3 {
        assert_eq!(seen(&world.scan()), [(Seen::Running, 0)]);
    }
    // It blocked, and its counters lag.
    world.thread.stat('S', 50).doing(FUTEX);
    assert!(matches!(seen(&world.scan())[..], [(Seen::Blocked(_), 1)]));
    assert_eq!(world.scan(), []);
}

#[test]
fn a_stack_is_dropped_if_the_thread_moves_while_it_is_read() {
    let moves: [fn(&Thread); 6] = [
        |thread| _ = thread.counters("101 5 3"),
        |thread| _ = thread.counters("100 5 4"),
        |thread| _ = thread.doing("running"),
        // Another call, another stack pointer, another address.
        |thread| _ = thread.doing("0 0x1 0x0 0x0 0x0 0x0 0x0 0x1000 0x4000"),
        |thread| _ = thread.doing("202 0x1 0x0 0x0 0x0 0x0 0x0 0x1008 0x4000"),
        |thread| _ = thread.doing("202 0x1 0x0 0x0 0x0 0x0 0x0 0x1000 0x4008"),
    ];
    for (number, moves) in moves.into_iter().enumerate() {
        let mut world = World::new();
        assert_eq!(seen(&world.scan_with(whole(), moves)), [(Seen::Running, 0)], "{number}");
        assert_eq!((world.losses.torn, world.losses.samples), (1, 0), "{number}");
        // Nothing was proven, so it is read again though its counters stay.
        world.thread.doing(FUTEX);
        assert!(matches!(seen(&world.scan())[..], [(Seen::Blocked(_), 1)]), "{number}");
    }
}

#[test]
fn a_thread_that_left_its_call_before_it_is_read_has_no_stack() {
    // The second one is ending and has no registers any more.
    for doing in ["running", "-1 0x0 0x0"] {
        let mut world = World::new();
        world.thread.doing(doing);
        assert_eq!(seen(&world.scan()), [(Seen::Running, 0)], "{doing}");
        assert_eq!(world.losses, Losses::default());
    }
}

#[test]
fn a_held_thread_is_reported_as_it_was_until_it_moves() {
    for state in ['D', 'T'] {
        let mut world = World::new();
        world.thread.stat(state, 50);
        let first = seen(&world.scan());
        assert!(matches!(first[..], [(Seen::Disk(Some(_)) | Seen::Stopped, 1)]), "{first:?}");
        let before = world.scan.reads();
        assert_eq!(seen(&world.scan()), first);
        assert_eq!(world.scan.reads().syscalls, before.syscalls);
        world.thread.stat('S', 50).counters("101 5 4");
        assert!(matches!(seen(&world.scan())[..], [(Seen::Blocked(_), 1)]));
    }
}

#[test]
fn a_later_sample_proves_that_it_moved_and_an_earlier_one_does_not() {
    let mut world = World::blocked();
    assert!(world.scan.identify_sampled(TID, 0).is_some());
    assert_eq!(world.scan(), []);
    assert!(world.scan.identify_sampled(TID, Ns::MAX).is_some());
    assert_eq!(seen(&world.scan()).len(), 1);
    assert_eq!(world.scan(), []);
}

#[test]
fn an_observation_that_was_not_sent_or_not_read_is_made_again() {
    let mut world = World::blocked();
    world.scan.mark_undelivered(TID);
    assert_eq!(seen(&world.scan()).len(), 1);
    world.thread.counters("no number");
    assert_eq!(world.scan(), []);
    world.thread.counters("100 5 3");
    assert_eq!(seen(&world.scan()).len(), 1);
    world.scan.restart();
    assert_eq!(seen(&world.scan()).len(), 1);
    assert_eq!(world.scan(), []);
}

#[test]
fn counters_that_go_back_or_another_start_are_another_thread() {
    for (counters, start) in [("99 5 3", 50), ("100 5 2", 50), ("101 5 4", 51)] {
        let mut world = World::blocked();
        world.thread.counters(counters).stat('S', start);
        let events = world.scan();
        assert_eq!((ended(&events), seen(&events).len()), (1, 1), "{counters}: {events:?}");
    }
}

#[test]
fn a_thread_that_is_gone_ends_once() {
    let mut world = World::blocked();
    // A read of such a thread's file gives nothing.
    world.thread.counters("");
    std::fs::remove_dir_all(&world.thread.0).expect("removed");
    let events = world.scan();
    assert_eq!((ended(&events), events.len(), world.scan.len()), (1, 1, 0));
    assert_eq!(world.scan(), []);
}

#[test]
fn a_stack_that_may_be_followed_further_later_is_tried_again_for_some_ticks() {
    let mut world = World::new();
    let cut = RawFrame::marker(Marker::BadUnwind);
    let tries = (0..20).filter(|_| !world.scan_with(cut, |_| ()).is_empty()).count();
    assert_eq!(tries, usize::from(observation_rules::MAX_INCOMPLETE_WALKS) + 1);
    assert_eq!(world.losses.samples, 1, "it is one stack");
}
