//! The way `bpf`: what it costs and what it tells, beside what holds for `perf`, too.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::time::Duration;

use sampletop::capture::blocked::StackReader;
use sampletop::capture::bpf::{Again, Bpf, Counts, Visit, explain};
use sampletop::capture::looks::{Looks, Round, Stacks};
use sampletop::capture::parked::{self, PARKED_AFTER};
use sampletop::capture::perf::Perf;
use sampletop::capture::schedule::now;
use sampletop::config::CaptureChoice;
use sampletop::model::frame::{Event, Losses, Ns, Seen, ThreadKey};
use sampletop::process::memory::Memory;

use crate::common::{Running, build, skipped, wait_until, wait_until_all_sleep};
use crate::support::*;

/// Whether BPF can be had here; if not the test is skipped, which fails under CI=true.
pub fn works() -> bool {
    match Bpf::open() {
        Ok(_) => true,
        Err(refusal) => {
            let (why, fix) = explain(&refusal);
            skipped(std::thread::current().name().unwrap_or("a test"), &format!("no BPF: {why}; {fix}; {refusal:?}"));
            false
        }
    }
}

/// Rounds by the iterator.
pub struct Passes {
    bpf: Bpf,
    pub looks: Looks,
    reader: StackReader,
    pid: u32,
    /// Visits of parked threads a round.
    turns: usize,
    losses: Losses,
}

/// What one round told and took.
pub struct Pass {
    events: Vec<Event>,
    rows: usize,
    calls: u64,
    visited: u32,
}

impl Passes {
    pub fn over(pid: u32, turns: usize) -> Passes {
        let mut bpf = Bpf::open().expect("it works");
        bpf.add(pid).expect("a process");
        let looks = Looks::new(pid, 1000).expect("its threads");
        Passes { bpf, looks, reader: StackReader::new(Memory::new(pid)), pid, turns, losses: Losses::default() }
    }

    pub fn next(&mut self) -> Pass {
        let (mut events, mut moved, mut rows) = (Vec::new(), Vec::new(), 0);
        let before = self.bpf.counts().calls;
        self.bpf.begin(self.pid, self.looks.next_visit(self.turns)).expect("a pass");
        let mut round = Round {
            stacks: Some(Stacks { reader: &mut self.reader, unwinder: &mut TopOnly }),
            events: &mut events,
            moved: &mut moved,
            losses: &mut self.losses,
            stops_threads: false,
            turns: 0,
            pause_at: Ns::MAX,
            denied: false,
        };
        while self.bpf.read().expect("rows") {
            for (row, copied) in self.bpf.rows() {
                rows += 1;
                self.looks.row(&row, copied, &mut round);
            }
        }
        self.looks.end_of_rows(&mut round);
        let Counts { calls, visited } = self.bpf.counts();
        Pass { events, rows, calls: calls - before, visited }
    }
}

#[test]
fn an_unmoved_thread_costs_no_row_and_no_read() {
    if !works() {
        return;
    }
    let program = build("cap_threads.c", "bpf-park", &["-O1"]);
    let target = Running::start(&program, &["park", "200"]);
    wait_until_all_sleep(target.pid());
    let mut passes = Passes::over(target.pid(), usize::MAX);
    let first = passes.next();
    assert_eq!((first.events.len(), first.rows, first.visited), (203, 203, 203), "every thread is told of once");
    assert_eq!(first.calls, 5, "an iterator and its end, 136 rows a read, and one that finds the end");
    // A thread that was caught on its way is told a second time.
    passes.next();
    let before = passes.looks.reads();
    for _ in 0..20 {
        let pass = passes.next();
        assert_eq!((pass.rows, pass.calls, pass.visited), (2, 4, 203));
        let names: Vec<String> = looks(&pass.events).map(name).collect();
        assert!(names.len() == 2 && names.iter().all(|n| n.starts_with("spin-")), "{names:?}");
    }
    assert_eq!(passes.looks.reads(), before, "no file of any thread was read");
    let parked = looks(&first.events).find(|look| name(look) == "park-7").expect("it was seen").thread;
    // A look that never reached the reducer is sent again, once.
    passes.looks.unsent(parked.tid);
    let again = |pass: &Pass| looks(&pass.events).filter(|look| look.thread == parked).count();
    let pass = passes.next();
    assert_eq!((again(&pass), pass.rows), (1, 3));
    assert_eq!(again(&passes.next()), 0);
    // More than can be asked for by name: all rows come, and those that nobody misses tell nothing.
    for _ in 0..2_000 {
        passes.looks.unsent(parked.tid);
    }
    let pass = passes.next();
    assert_eq!((again(&pass), pass.rows, pass.events.len()), (1, 203, 3));
    // After an exec, or another way, everybody is told.
    passes.looks.restart();
    assert_eq!(passes.next().events.len(), 203);
    assert_eq!(passes.next().rows, 2);
    assert_eq!((passes.losses.torn, passes.losses.late), (0, 0));
    // The start times are those of /proc: by them a thread is known.
    let stat = std::fs::read_to_string(format!("/proc/{}/task/{}/stat", target.pid(), parked.tid)).expect("it lives");
    let start = stat.rsplit_once(") ").expect("a name").1.split(' ').nth(19).expect("field 22").parse();
    assert_eq!(Ok(parked.start), start);
}

#[test]
fn parked_threads_are_visited_in_rotation_and_a_woken_one_at_once() {
    if !works() {
        return;
    }
    let program = build("cap_threads.c", "bpf-turn", &["-O1"]);
    let mut target = Running::start(&program, &["wake", "500"]);
    wait_until_all_sleep(target.pid());
    let silent = |pass: Pass| (pass.events.len(), pass.visited, pass.calls);
    let first = |(): &mut ()| {
        // As at 100 Hz.
        let mut passes = Passes::over(target.pid(), parked::turns(10_000_000));
        let first = passes.next();
        let seen: BTreeMap<String, ThreadKey> = looks(&first.events).map(|look| (name(look), look.thread)).collect();
        assert_eq!(seen.len(), 501, "500 and the leader");
        let second = silent(passes.next());
        (passes, seen, second)
    };
    let (mut passes, seen, second) = in_time(&mut (), first, |()| {});
    assert_eq!(second, (0, 501, 3), "not parked yet: an iterator, what it has not to say, its end");
    std::thread::sleep(Duration::from_nanos(PARKED_AFTER));
    assert_eq!(silent(passes.next()), (0, 501, 3), "the pass that parks them");
    let before = passes.looks.reads();
    for _ in 0..3 {
        for _ in 0..10 {
            assert_eq!(silent(passes.next()), (0, 0, 0));
        }
        assert_eq!(silent(passes.next()), (0, 501, 3), "50 in each of 11 rounds make 501");
    }
    // Once a second, at gaps, at the end.
    passes.looks.leave_nobody_out();
    assert_eq!(silent(passes.next()), (0, 501, 3));
    assert_eq!(passes.looks.reads(), before, "no file of any thread was read");
    // One that is woken and waits again, and the leader that woke it, are noticed within a rotation, once each.
    for woken in [7, 499] {
        let wake = |passes: &mut Passes| {
            ask(&mut target, &format!("{woken}\n"));
            let burned = next_number(&mut target);
            wait_until_all_sleep(target.pid());
            let mut found = Vec::new();
            for _ in 0..11 {
                found.extend(passes.next().events);
            }
            let of = |who: &str| looks(&found).filter(|look| name(look) == who).cloned().collect::<Vec<_>>();
            let look = of(&format!("park-{woken}"));
            assert_eq!((look.len(), of("cap_threads-bpf").len(), looks(&found).count()), (1, 1, 2));
            assert!(matches!(look[0].seen, Seen::Blocked(_)) && look[0].counters.expect("read").run_ns >= burned);
            passes.looks.leave_nobody_out();
            passes.next();
            (0..9).map(|_| silent(passes.next())).collect::<Vec<_>>()
        };
        let park = |passes: &mut Passes| {
            std::thread::sleep(Duration::from_nanos(PARKED_AFTER));
            passes.next();
            assert_eq!(silent(passes.next()).1 % 501, 0, "both are parked again");
        };
        // Having moved they are visited in every round: an iterator, its row, its end for each.
        assert_eq!(in_time(&mut passes, wake, park), [(0, 2, 6); 9]);
    }
    // A sample proves that a thread has moved: it is visited in the next round, whoever's turn it is.
    passes.looks.leave_nobody_out();
    passes.next();
    let thread = seen["park-100"];
    assert_eq!(passes.looks.sampled(thread.tid, 1).map(|(key, _)| key), Some(thread));
    assert_eq!(silent(passes.next()), (0, 0, 0), "a sample from before its last look proves nothing");
    let lost = seen["park-300"];
    let sampled = |passes: &mut Passes| {
        passes.looks.sampled(thread.tid, Ns::MAX);
        let pass = passes.next();
        assert!(looks(&pass.events).map(|look| look.thread).eq([thread]), "{:?}", pass.events);
        assert_eq!((pass.visited, pass.calls), (1, 3));
        // And so for a look that got lost.
        let silently = silent(passes.next());
        passes.looks.unsent(lost.tid);
        let pass = passes.next();
        assert!(looks(&pass.events).map(|look| look.thread).eq([lost]), "{:?}", pass.events);
        ((silently, pass.visited, pass.calls), silent(passes.next()))
    };
    let park = |passes: &mut Passes| {
        // Both are parked again, and their turn has come and gone.
        std::thread::sleep(Duration::from_nanos(PARKED_AFTER));
        passes.looks.leave_nobody_out();
        passes.next();
    };
    let (found, last) = in_time(&mut passes, sampled, park);
    assert_eq!(found, ((0, 1, 3), 2, 6));
    assert_eq!(last, (0, 2, 6), "and not again");
}

#[test]
fn who_is_born_or_dies_is_noticed_at_once() {
    if !works() {
        return;
    }
    let program = build("cap_threads.c", "bpf-born", &["-O1"]);
    let mut target = Running::start(&program, &["grow", "100"]);
    wait_until_all_sleep(target.pid());
    let mut passes = Passes::over(target.pid(), 1);
    passes.next();
    std::thread::sleep(Duration::from_nanos(PARKED_AFTER));
    passes.next();
    assert_eq!(passes.next().visited, 0, "all are parked");
    ask(&mut target, "born\n");
    assert_eq!(next_number(&mut target), 1);
    wait_until_all_sleep(target.pid());
    let pass = passes.next();
    let born = looks(&pass.events).find(|look| name(look) == "park-100").expect("it is told").thread;
    ask(&mut target, "dies\n");
    assert_eq!(next_number(&mut target), 2);
    // Whoever joins a thread may go on before it is gone.
    let place = format!("/proc/{}/task/{}", target.pid(), born.tid);
    wait_until("it is gone", || !std::path::Path::new(&place).exists());
    let ended = |event: &Event| matches!(event, Event::ThreadEnded { thread, .. } if *thread == born);
    assert_eq!(passes.next().events.into_iter().filter(ended).count(), 1);
}

#[test]
fn processes_come_and_go() {
    if !works() {
        return;
    }
    let program = build("cap_threads.c", "bpf-two", &["-O1"]);
    let (one, two) = (Running::start(&program, &["park", "3"]), Running::start(&program, &["park", "5"]));
    let mut bpf = Bpf::open().expect("it works");
    let visited = |bpf: &mut Bpf, pid: u32| {
        bpf.begin(pid, Default::default()).expect("a pass");
        while bpf.read().expect("rows") {}
        bpf.counts().visited
    };
    bpf.add(one.pid()).expect("a process");
    bpf.add(two.pid()).expect("a process");
    assert_eq!((visited(&mut bpf, one.pid()), visited(&mut bpf, two.pid())), (6, 8));
    // Ids of threads are given away again: who has one now may be somebody else.
    for (tid, theirs) in [(two.pid(), 1), (one.pid(), 0)] {
        bpf.begin(two.pid(), Visit { only: Some(vec![tid]), again: Again { everybody: false, tids: vec![tid] } })
            .expect("a pass");
        let mut rows = 0;
        while bpf.read().expect("rows") {
            rows += bpf.rows().count();
        }
        assert_eq!((rows, bpf.counts().visited), (theirs, theirs as u32));
    }
    bpf.remove(one.pid());
    assert!(bpf.begin(one.pid(), Default::default()).is_err());
    assert_eq!(visited(&mut bpf, two.pid()), 8);
    let pid = two.pid();
    drop(two);
    assert_eq!(visited(&mut bpf, pid), 0, "who is gone has no threads");
}

#[test]
fn when_it_fails_the_next_way_takes_over() {
    if !works() {
        return;
    }
    let program = build("cap_threads.c", "bpf-fails", &["-O1"]);
    let target = Running::start(&program, &["park", "2"]);
    wait_until_all_sleep(target.pid());
    let links = || -> Vec<i32> {
        let files = std::fs::read_dir("/proc/self/fd").expect("our files").map(|entry| entry.expect("an entry").path());
        let link = |path: &std::path::PathBuf| {
            std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("bpf_link"))
        };
        files
            .filter(link)
            .map(|path| path.file_name().expect("a number").to_string_lossy().parse().expect("a number"))
            .collect()
    };
    let before = links();
    let (sampler, mut reader) = start(&target, CaptureChoice::Auto, 5);
    assert_eq!((sampler.status().way.as_str(), sampler.status().notice), ("bpf", None));
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| ticks(events) > 5);
    let ours: Vec<i32> = links().into_iter().filter(|fd| !before.contains(fd)).collect();
    let null = std::fs::File::open("/dev/null").expect("a file that is no link");
    for fd in &ours {
        // SAFETY: the sampler's own descriptor becomes another file, which it has to bear.
        assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), *fd) }, *fd);
    }
    assert_eq!(ours.len(), 1);
    let mark = events.len();
    read_until(&mut reader, &mut events, |_| sampler.status().way == "perf");
    let notice = sampler.status().notice.expect("it says so");
    assert!(notice.contains("BPF has failed") && notice.contains("capturing by perf"), "{notice}");
    let by_perf = events.len();
    let spinning = |event: &Event| matches!(event, Event::Look(l) if name(l) == "spin-1" && l.seen == Seen::OnCpu);
    let parked =
        |event: &Event| matches!(event, Event::Look(l) if name(l) == "park-1" && matches!(l.seen, Seen::Blocked(_)));
    assert!(events[..mark].iter().any(parked), "told by bpf");
    // The new way reads everybody afresh.
    read_until(&mut reader, &mut events, |events| {
        events[by_perf..].iter().any(spinning) && events[mark..].iter().any(parked)
    });
}

/// What other processes do takes no room in our rings: the filter drops it in the kernel.
#[test]
fn samples_of_others_never_reach_the_ring() {
    if !works() {
        return;
    }
    let program = build("cap_threads.c", "bpf-filter", &["-O1"]);
    let (target, _other) = (Running::start(&program, &["wake", "3"]), Running::start(&program, &["park", "1"]));
    let pid = target.pid();
    wait_until_all_sleep(pid);
    let mut bpf = Bpf::open().expect("it works");
    bpf.add(pid).expect("a process");
    let open = |filter| {
        let mut perf = Perf::open_filtered(pid, pid, 1_000_000, 100, now(), filter).expect("permitted");
        std::thread::sleep(Duration::from_millis(5));
        perf.start_due(now());
        perf
    };
    // At the same time: a ring holds eight samples, and nobody empties it. The target itself waits.
    let (mut with, mut without) = (open(bpf.filter()), open(None));
    wait_until("the other one runs", || {
        without.count_lost();
        without.counts().lost > 200
    });
    with.count_lost();
    assert_eq!(with.counts().lost, 0);
}
