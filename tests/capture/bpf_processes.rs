//! The backend `bpf` with several processes, when it fails, and with those of others.

use std::os::fd::AsRawFd;
use std::time::Duration;

use sampletop::capture::bpf::{Bpf, Repeats, Single, Visit, VisitMethod};
use sampletop::capture::perf::Perf;
use sampletop::clock::monotonic;
use sampletop::config::CaptureChoice;
use sampletop::model::vocabulary::event::{Event, Seen};

use crate::bpf::{rows_of, works};
use crate::common::{Running, build, wait_until, wait_until_all_sleep};
use crate::support::*;

#[test]
fn processes_come_and_go() {
    if !works() {
        return;
    }
    let program = build("cap_threads.c", "bpf-two", &["-O1"]);
    let (one, two) =
        (Running::start(&program, &["park", "3"]), Running::start(&program, &["park", "5"]));
    let mut bpf = Bpf::open().expect("it works");
    let visited = |bpf: &mut Bpf, pid: u32| {
        bpf.begin(pid, Default::default()).expect("a pass");
        while bpf.read().expect("rows") {}
        bpf.counts().visited
    };
    bpf.add(one.pid()).expect("a process");
    bpf.add(two.pid()).expect("a process");
    assert_eq!((visited(&mut bpf, one.pid()), visited(&mut bpf, two.pid())), (6, 8));
    // The kernel reuses thread ids: the present owner of one may be another thread.
    let leader = |bpf: &mut Bpf, pid| {
        let rows =
            rows_of(bpf, pid, Visit { only: None, again: Repeats { all: true, tids: vec![] } });
        let row = rows.iter().find(|(row, _)| row.tid == pid).expect("it was visited").0;
        Single { tid: row.tid, id: row.id }
    };
    let mut each = Bpf::open_without_lists().expect("it works");
    [one.pid(), two.pid()].into_iter().for_each(|pid| each.add(pid).expect("a process"));
    for bpf in [&mut bpf, &mut each] {
        let (of_one, of_two) = (leader(bpf, one.pid()), leader(bpf, two.pid()));
        for (thread, theirs) in [(of_two, 1), (of_one, 0)] {
            let again = Repeats { all: false, tids: vec![thread.tid] };
            let rows = rows_of(bpf, two.pid(), Visit { only: Some(vec![thread]), again }).len();
            assert_eq!((rows, bpf.counts().visited), (theirs, theirs as u32));
        }
    }
    bpf.remove(one.pid());
    assert!(bpf.begin(one.pid(), Default::default()).is_err());
    assert_eq!(visited(&mut bpf, two.pid()), 8);
    let pid = two.pid();
    drop(two);
    assert_eq!(visited(&mut bpf, pid), 0, "an exited process has no threads");
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
        let files = std::fs::read_dir("/proc/self/fd")
            .expect("our files")
            .map(|entry| entry.expect("an entry").path());
        let link = |path: &std::path::PathBuf| {
            std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("bpf_link"))
        };
        files
            .filter(link)
            .map(|path| {
                path.file_name().expect("a number").to_string_lossy().parse().expect("a number")
            })
            .collect()
    };
    let before = links();
    let (sampler, mut reader) = start(&target, CaptureChoice::Auto, 5);
    assert_eq!((sampler.status().backend.as_str(), sampler.status().notice), ("bpf", None));
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| ticks(events) > 5);
    let ours: Vec<i32> = links().into_iter().filter(|fd| !before.contains(fd)).collect();
    let null = std::fs::File::open("/dev/null").expect("a file that is no link");
    for fd in &ours {
        // SAFETY: replaces the sampler's own descriptor by another file, which the sampler must
        // survive.
        assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), *fd) }, *fd);
    }
    let lists = Bpf::open().expect("it works").visit_method() == VisitMethod::Listed;
    assert_eq!(ours.len(), 1 + usize::from(lists), "all threads, and lists of them");
    let mark = events.len();
    read_until(&mut reader, &mut events, |_| sampler.status().backend == "perf");
    let notice = sampler.status().notice.expect("it says so");
    assert!(notice.contains("BPF has failed") && notice.contains("capturing by perf"), "{notice}");
    let by_perf = events.len();
    let spinning = |event: &Event| matches!(event, Event::Observation(l) if name(l) == "spin-1" && l.seen == Seen::OnCpu);
    let parked = |event: &Event| matches!(event, Event::Observation(l) if name(l) == "park-1" && matches!(l.seen, Seen::Blocked(_)));
    assert!(events[..mark].iter().any(parked), "reported by bpf");
    // The new backend reads every thread afresh.
    read_until(&mut reader, &mut events, |events| {
        events[by_perf..].iter().any(spinning) && events[mark..].iter().any(parked)
    });
}

/// Samples of other processes take no room in our rings: the filter drops them in the kernel.
#[test]
fn samples_of_others_never_reach_the_ring() {
    if !works() {
        return;
    }
    let program = build("cap_threads.c", "bpf-filter", &["-O1"]);
    let (target, _other) =
        (Running::start(&program, &["wake", "3"]), Running::start(&program, &["park", "1"]));
    let pid = target.pid();
    wait_until_all_sleep(pid);
    let mut bpf = Bpf::open().expect("it works");
    bpf.add(pid).expect("a process");
    let open = |filter| {
        let mut perf =
            Perf::open_filtered(pid, pid, 1_000_000, 100, monotonic(), filter).expect("permitted");
        std::thread::sleep(Duration::from_millis(5));
        perf.start_due(monotonic());
        perf
    };
    // Both at the same time. A ring holds eight samples and is never drained. The target itself
    // waits.
    let (mut with, mut without) = (open(bpf.filter()), open(None));
    wait_until("the other one runs", || {
        without.count_lost();
        without.counts().lost > 200
    });
    with.count_lost();
    assert_eq!(with.counts().lost, 0);
}
