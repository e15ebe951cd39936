//! The sampler on live targets: it stops no thread, misses none, and its sums are the kernel's.

mod before_exec;
mod bpf;
mod bpf_processes;
mod bpf_stacks;
#[path = "../common/mod.rs"]
mod common;
mod gaps;
mod governor;
mod losses;
mod ptrace;
mod replaced;
mod rights;
mod several;
mod storms;
mod support;
mod system_calls;
mod thread_scans;
mod undisturbed;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use common::{Running, build, wait_until, wait_until_all_sleep};
use sampletop::capture::Control;
use sampletop::capture::stack_reader::StackReader;
use sampletop::capture::thread_scan::parked_rotation::{PARKED_AFTER, RESTLESS};
use sampletop::capture::thread_scan::{ScanContext, Stacks, ThreadScan};
use sampletop::clock::monotonic;
use sampletop::config::CaptureChoice;
use sampletop::model::vocabulary::event::{Event, Losses, Observation, Seen};
use sampletop::model::vocabulary::frame::{Marker, Ns, RawFrame, SECOND};
use sampletop::process::memory::Memory;
use support::*;

/// Defines tests that hold under each backend that never stops a thread.
macro_rules! by_perf_and_bpf {
    ($($test:ident)*) => {
        mod by_perf {
            $(#[test] fn $test() { super::$test(super::CaptureChoice::Perf) })*
        }
        mod by_bpf {
            $(#[test] fn $test() { if super::bpf::works() { super::$test(super::CaptureChoice::Bpf) } })*
        }
    };
}

by_perf_and_bpf! {
    no_wait_is_disturbed_and_nobody_traced
    events_come_in_order_of_time_and_ticks_close_their_rounds
    threads_that_come_and_go_are_all_told
    exec_is_noticed_also_of_the_same_file_and_from_another_thread
    a_target_that_becomes_a_32_bit_program_shows_its_states_only
    counters_sum_to_what_the_kernel_says
    a_zombie_leader_does_not_hide_its_threads
    orders_take_effect_at_once_and_a_pause_is_a_gap
    the_end_of_the_target_is_told_last
    who_stops_gets_the_last_word_on_cpu_time
    stopped_and_uninterruptible_threads_are_told_in_every_round
}

fn no_wait_is_disturbed_and_nobody_traced(choice: CaptureChoice) {
    let program = build("cap_eintr.c", choice.word(), &["-O1"]);
    const WAITING: [&str; 3] = ["epoll", "aio", "recv"];
    for mode in ["stay", "alternate"] {
        let mut target = Running::start(&program, &[mode]);
        if mode == "stay" {
            wait_until_all_sleep(target.pid());
        }
        let stolen_before = stolen();
        let (sampler, mut reader) = start(&target, choice, 5);
        let mut events = Vec::new();
        let end = Instant::now() + Duration::from_secs(2);
        let pid = target.pid();
        // A waiting thread was read in its wait; a spinning one was sampled on its core.
        let (mut blocked, mut samples, mut known) = (WAITING.map(|_| 0), 0, 0);
        read_until(&mut reader, &mut events, |events| {
            assert!(thread_states(pid).iter().all(|(_, tracer)| *tracer == 0));
            for observation in scan(&events[std::mem::replace(&mut known, events.len())..]) {
                match WAITING.iter().position(|who| *who == name(observation)) {
                    Some(index) if matches!(observation.seen, Seen::Blocked(_)) => {
                        blocked[index] += 1
                    }
                    None if observation.seen == Seen::OnCpu && name(observation) == "spin" => {
                        samples += 1
                    }
                    _ => {}
                }
            }
            let enough = if mode == "stay" { 1 } else { 21 };
            Instant::now() >= end && samples > 20 && blocked.iter().all(|count| *count >= enough)
        });
        assert_eq!(sampler.status().backend, choice.word());
        drop(sampler);
        let stolen = stolen() - stolen_before;
        ask(&mut target, "\n");
        assert_eq!(next_number(&mut target), 0, "EINTR under {mode}");
        let waits = next_number(&mut target);
        // A thread that stays is read once, or again at the next tick if it was read while it went
        // to sleep. A thread that does not stay was in another wait each time.
        assert!(mode != "stay" || blocked.iter().all(|count| *count <= 2), "{blocked:?}");
        assert!(mode == "stay" || waits >= 60, "{waits} waits");
        let ran: Vec<Ns> = scan(&events)
            .filter(|l| name(l) == "spin")
            .filter_map(|l| Some(l.counters?.run_ns))
            .collect();
        assert_samples(samples, ran[ran.len() - 1] - ran[0], 5e6 * 0.997, stolen, mode);
        assert!(
            scan(&events)
                .filter(|l| l.seen == Seen::OnCpu)
                .all(|l| l.counters.is_none() && frames_of_user(l) == 1)
        );
    }
}

fn events_come_in_order_of_time_and_ticks_close_their_rounds(choice: CaptureChoice) {
    let program = build("cap_eintr.c", "order", &["-O1"]);
    let target = Running::start(&program, &["alternate"]);
    let began = monotonic();
    let (sampler, mut reader) = start(&target, choice, 2);
    let clocks = |events: &[Event]| -> Vec<u64> {
        events
            .iter()
            .filter_map(|e| if let Event::Tick(t) = e { t.process_cpu_ns } else { None })
            .collect()
    };
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| ticks(events) > 100 && clocks(events).len() > 1);
    drop(sampler);
    let backwards = events.windows(2).find(|pair| time_of(&pair[0]) > time_of(&pair[1]));
    assert_eq!(backwards, None);
    // Once a second.
    let cpu = clocks(&events);
    let seconds = (time_of(&events[events.len() - 1]) - began) / SECOND;
    assert!(cpu.len() as u64 <= seconds + 1 && cpu.is_sorted(), "{cpu:?} in {seconds} s");
}

#[test]
fn an_unmoved_thread_costs_one_read_and_sends_nothing() {
    let program = build("cap_threads.c", "park", &["-O1"]);
    let target = Running::start(&program, &["park", "200"]);
    wait_until_all_sleep(target.pid());
    let mut scan = ThreadScan::new(target.pid(), 10_000).expect("its threads");
    let mut reader = StackReader::new(Memory::new(target.pid()));
    let (mut moved, mut losses) = (Vec::new(), Losses::default());
    let mut round = |scan: &mut ThreadScan| {
        let mut events = Vec::new();
        let stacks =
            Stacks { reader: &mut reader, unwinder: &mut TopOnly, labels: None, reports: None };
        let mut round = ScanContext {
            stacks: Some(stacks),
            events: &mut events,
            moved: &mut moved,
            losses: &mut losses,
            stops_threads: false,
            turns: usize::MAX,
            max_first_observations: usize::MAX,
            pause_at: Ns::MAX,
            denied: false,
        };
        assert!(scan.scan_files(&mut round));
        assert!(!round.denied);
        events
    };
    let first = round(&mut scan);
    assert_eq!(first.len(), 203, "every thread is reported once");
    // A thread that was read while it went to sleep is read a second time.
    round(&mut scan);
    for _ in 0..20 {
        let before = scan.reads();
        let events = round(&mut scan);
        let after = scan.reads();
        assert_eq!(after.counters - before.counters, 203, "one read for each thread");
        let more = (
            after.stats - before.stats,
            after.names - before.names,
            after.syscalls - before.syscalls,
        );
        assert_eq!(more, (0, 2, 2), "and more only of those that run");
        assert_eq!((after.opens, after.lists), (before.opens, before.lists));
        let names: Vec<String> = support::scan(&events).map(name).collect();
        assert!(names.len() == 2 && names.iter().all(|n| n.starts_with("spin-")), "{names:?}");
    }
    // An observation that never reached the reducer is sent again, once.
    let parked = support::scan(&first)
        .find(|observation| name(observation) == "park-7")
        .expect("it was seen")
        .thread;
    scan.mark_undelivered(parked.tid);
    let again = |events: &[Event]| {
        support::scan(events).filter(|observation| observation.thread == parked).count()
    };
    assert_eq!(again(&round(&mut scan)), 1);
    assert_eq!(again(&round(&mut scan)), 0);
    assert_eq!(losses.torn, 0);
}

fn threads_that_come_and_go_are_all_told(choice: CaptureChoice) {
    let program = build("cap_threads.c", &format!("churn-{}", choice.word()), &["-O1"]);
    let mut target = Running::start(&program, &["churn"]);
    let (sampler, mut reader) = start(&target, choice, 5);
    let mut events = Vec::new();
    let number = |observation: &Observation| {
        name(observation).strip_prefix("brief-").and_then(|n| n.parse::<usize>().ok())
    };
    read_until(&mut reader, &mut events, |events| {
        scan(events).any(|observation| number(observation).is_some())
    });
    let first = scan(&events).find_map(number).expect("one");
    events.extend(read_for(&mut reader, Duration::from_secs(2)));
    ask(&mut target, "\n");
    let born = next_number(&mut target) as usize;
    // Then all but the leader and the parked thread have exited.
    let lives = |events: &[Event]| {
        let seen: BTreeSet<_> =
            scan(events).map(|observation| observation.thread).filter(is_known).collect();
        let ended = |event: &Event| {
            if let Event::ThreadEnded { thread, .. } = event { Some(*thread) } else { None }
        };
        let ended: BTreeSet<_> = events.iter().filter_map(ended).collect();
        seen.difference(&ended).count()
    };
    read_until(&mut reader, &mut events, |events| lives(events) == 2);
    drop(sampler);
    events.extend(reader.by_ref());
    let mut seen = BTreeMap::new();
    let mut ended = BTreeSet::new();
    for event in &events {
        match event {
            Event::Observation(observation) => {
                assert!(
                    !ended.contains(&observation.thread),
                    "a look after the end of {:?}",
                    observation.thread
                );
                seen.entry(observation.thread).or_insert_with(|| name(observation));
            }
            Event::ThreadEnded { thread, .. } => {
                assert!(ended.insert(*thread), "{thread:?} ended twice")
            }
            _ => {}
        }
    }
    assert_eq!(lives(&events), 2);
    // Each lives 20 ms: none is missed unless ticks come too late. The end of a thread indicates
    // that there may be new ones, so these are found one tick later.
    let rounds: Vec<Ns> =
        events.iter().filter(|e| matches!(e, Event::Tick(_))).map(time_of).collect();
    let missed: u64 = rounds.windows(4).map(|four| (four[3] - four[0]) / 20_000_000).sum();
    let reported = ended.iter().filter(|key| seen.contains_key(key)).count();
    assert!(
        born > first && reported + missed as usize >= born - first,
        "{reported} of {first}..{born}, {missed} were brief"
    );
}

fn exec_is_noticed_also_of_the_same_file_and_from_another_thread(choice: CaptureChoice) {
    let program = build("cap_threads.c", &format!("exec-{}", choice.word()), &["-O1"]);
    let mut target = Running::start(&program, &["exec"]);
    let (sampler, mut reader) = start(&target, choice, 5);
    let mut events = Vec::new();
    for (count, line) in ["leader\n", "thread\n", "leader\n"].iter().enumerate() {
        let sampled = |event: &Event| matches!(event, Event::Observation(observation) if name(observation) == "spin-0" && observation.seen == Seen::OnCpu);
        let mark = events.len();
        read_until(&mut reader, &mut events, |events| events[mark..].iter().any(sampled));
        ask(&mut target, line);
        assert_eq!(target.lines.next().expect("a line").expect("text"), "ready");
        let execs =
            |events: &[Event]| events.iter().filter(|e| matches!(e, Event::Exec { .. })).count();
        read_until(&mut reader, &mut events, |events| execs(events) > count);
        let mark = events.len();
        read_until(&mut reader, &mut events, |events| events[mark..].iter().any(sampled));
        assert_eq!(execs(&events), count + 1);
    }
    // One leader, and a spinning thread for each of the four programs.
    let spins: BTreeSet<_> = scan(&events)
        .filter(|observation| name(observation) == "spin-0")
        .map(|observation| observation.thread)
        .collect();
    assert_eq!(spins.len(), 4);
    drop(sampler);
}

fn a_target_that_becomes_a_32_bit_program_shows_its_states_only(choice: CaptureChoice) {
    // Compiled by hand: not even libm, which the other targets link, needs to exist for the other
    // word size.
    let narrow = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("cap_narrow-{}", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/targets/cap_narrow.c");
    let flags = [
        "-m32",
        "-O1",
        "-nostdlib",
        "-static",
        "-ffreestanding",
        "-fno-stack-protector",
        "-fno-pie",
    ];
    let built = std::process::Command::new("cc")
        .args(flags)
        .arg(source)
        .arg("-o")
        .arg(&narrow)
        .output()
        .expect("cc");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    match std::process::Command::new(&narrow).stdout(std::process::Stdio::null()).spawn() {
        Ok(mut child) => {
            child.kill().expect("killed");
            child.wait().expect("waited for");
        }
        Err(error) => {
            return common::skipped(
                "exec into a 32-bit program",
                &format!("this kernel runs none: {error}"),
            );
        }
    }
    let program = build("cap_threads.c", &format!("become-{}", choice.word()), &["-O1"]);
    let mut target = Running::start(&program, &["become", narrow.to_str().expect("text")]);
    let (sampler, mut reader) = start(&target, choice, 5);
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| ticks(events) > 2);
    ask(&mut target, "\n");
    assert_eq!(target.lines.next().expect("a line").expect("text"), "ready");
    let refused = || {
        let status = sampler.status();
        status.backend == "states" && status.notice.is_some_and(|notice| notice.contains("32-bit"))
    };
    read_until(&mut reader, &mut events, |_| refused());
    // A request does not open another backend either.
    sampler.control(Control::Use(CaptureChoice::Perf));
    let mark = ticks(&events);
    read_until(&mut reader, &mut events, |events| ticks(events) > mark + 10);
    assert!(refused(), "{:?}", sampler.status());
    let exec = events
        .iter()
        .position(|event| matches!(event, Event::Exec { .. }))
        .expect("it was noticed");
    let marker = [RawFrame::marker(Marker::NotReadable)];
    assert!(
        scan(&events[exec..])
            .all(|observation| observation.stack == marker || observation.seen == Seen::Running)
    );
    assert!(scan(&events[exec..]).any(|observation| observation.stack == marker));
}

fn counters_sum_to_what_the_kernel_says(choice: CaptureChoice) {
    let program = build("cap_threads.c", &format!("sums-{}", choice.word()), &["-O1"]);
    let mut target = Running::start(&program, &["park", "3"]);
    let (sampler, mut reader) = start(&target, choice, 5);
    let mut events = read_for(&mut reader, Duration::from_secs(1));
    let mut reported = || {
        ask(&mut target, "\n");
        [next_number(&mut target), next_number(&mut target)]
    };
    let (before, stolen_before) = (reported(), stolen());
    let asked = monotonic();
    // Two ticks that have begun after that: ticks are reported in order, and what was in the ring
    // is older.
    let later = |events: &[Event]| {
        events.iter().filter(|e| matches!(e, Event::Tick(t) if t.at > asked)).count()
    };
    read_until(&mut reader, &mut events, |events| later(events) > 2);
    let (after, stolen) = (reported(), stolen() - stolen_before);
    drop(sampler);
    for spin in 0..2 {
        let last = scan(&events)
            .filter(|l| name(l) == format!("spin-{spin}"))
            .filter_map(|l| l.counters)
            .last();
        let last = last.expect("it was looked at");
        // A running thread's counters lag by at most a tick of the kernel (10 ms at 100 Hz). That
        // tick may be delayed.
        let range = before[spin].saturating_sub(20_000_000 + stolen)..=after[spin];
        assert!(range.contains(&last.run_ns), "{last:?} {range:?}");
        let samples: Vec<Ns> = scan(&events)
            .filter(|l| name(l) == format!("spin-{spin}") && l.seen == Seen::OnCpu)
            .map(|l| l.at)
            .collect();
        assert!(samples.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

fn a_zombie_leader_does_not_hide_its_threads(choice: CaptureChoice) {
    let program = build("cap_threads.c", &format!("zombie-{}", choice.word()), &["-O1"]);
    let target = Running::start(&program, &["zombie"]);
    let pid = target.pid();
    wait_until("the leader ends", || thread_states(pid).iter().any(|(state, _)| *state == 'Z'));
    let (sampler, mut reader) = start(&target, choice, 5);
    let mut events = Vec::new();
    let sampled = |observation: &Observation| {
        name(observation) == "spin-0" && observation.seen == Seen::OnCpu
    };
    read_until(&mut reader, &mut events, |events| ticks(events) > 10 && scan(events).any(sampled));
    drop(sampler);
    assert!(
        scan(&events).all(|observation| observation.thread.tid != pid),
        "a zombie is not looked at"
    );
    let ends = events
        .iter()
        .filter(|e| matches!(e, Event::ThreadEnded { thread, .. } if thread.tid == pid))
        .count();
    assert_eq!(ends, 1);
}

fn orders_take_effect_at_once_and_a_pause_is_a_gap(choice: CaptureChoice) {
    let program = build("cap_threads.c", &format!("orders-{}", choice.word()), &["-O1"]);
    let target = Running::start(&program, &["park", "2"]);
    let (sampler, mut reader) = start(&target, choice, 60_000);
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| ticks(events) == 1);
    sampler.control(Control::Interval(Duration::from_millis(5)));
    read_until(&mut reader, &mut events, |events| ticks(events) > 10);
    sampler.control(Control::Pause);
    // The pause ends the current scan with one more tick, then silence.
    read_until_silent(&mut reader, &mut events, Duration::from_millis(500));
    let (paused, resumed) = (events.last().map(time_of), monotonic());
    sampler.control(Control::Resume);
    let mut after = Vec::new();
    read_until(&mut reader, &mut after, |events| ticks(events) > 3);
    let Some(Event::Gap { from, at }) = after.first() else { panic!("{:?}", after.first()) };
    assert!(Some(*from) == paused && *at >= resumed, "{from} {at}, {paused:?} {resumed}");
    assert!(after.iter().skip(1).all(|event| time_of(event) >= *at));
    let mark = after.len();
    sampler.control(Control::Use(CaptureChoice::States));
    read_until(&mut reader, &mut after, |_| sampler.status().backend == "states");
    let changed = monotonic();
    let unreadable = [RawFrame::marker(Marker::NotReadable)];
    let reported = |observation: &Observation| {
        name(observation).starts_with("park-") && observation.stack == unreadable
    };
    let later = |events: &[Event]| events.iter().filter(|event| time_of(event) > changed).count();
    read_until(&mut reader, &mut after, |events| {
        later(events) > 20 && scan(&events[mark..]).any(reported)
    });
    assert!(
        scan(&after)
            .all(|observation| observation.seen != Seen::OnCpu || observation.at <= changed)
    );
    assert!(sampler.status().ptrace_would_help);
}

fn the_end_of_the_target_is_told_last(choice: CaptureChoice) {
    let program = build("cap_threads.c", &format!("end-{}", choice.word()), &["-O1"]);
    let mut target = Running::start(&program, &["park", "2"]);
    let (sampler, mut reader) = start(&target, choice, 5);
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| ticks(events) > 5);
    target.child.kill().expect("killed");
    let ended = |event: &Event| matches!(event, Event::ProcessEnded { .. });
    read_until(&mut reader, &mut events, |events| events.iter().any(ended));
    assert!(events.last().is_some_and(ended));
    read_until(&mut reader, &mut events, |_| sampler.finished());
    assert!(reader.finished());
    // The zombie still had its clock: the final CPU time came with the end.
    assert!(matches!(events[events.len() - 2], Event::Tick(tick) if tick.process_cpu_ns.is_some()));
}

/// CPU time of threads that have exited is in the process's clock only. It is read once a second,
/// and at the end.
fn who_stops_gets_the_last_word_on_cpu_time(choice: CaptureChoice) {
    let program = build("cap_threads.c", &format!("stop-{}", choice.word()), &["-O1"]);
    let mut target = Running::start(&program, &["park", "2"]);
    let clock =
        |event: &Event| if let Event::Tick(tick) = event { tick.process_cpu_ns } else { None };
    for interval in [2, 50] {
        let (sampler, mut reader) = start(&target, choice, interval);
        let mut events = Vec::new();
        read_until(&mut reader, &mut events, |events| ticks(events) > 5);
        let mark = events.len();
        drop(sampler);
        events.extend(reader.by_ref());
        let last = mark
            + events[mark..].iter().rposition(|event| clock(event).is_some()).expect("it was read");
        // Counters of live threads lag behind it by one or two ticks of the kernel: they were read
        // later.
        let mut rounds = events[last..].iter().filter(|event| matches!(event, Event::Tick(_)));
        let later = time_of(rounds.next_back().expect("a tick")) - time_of(&events[last]);
        assert!(later >= 20_000_000, "{later}");
        let looked =
            scan(&events[last..]).filter(|observation| observation.counters.is_some()).map(name);
        assert_eq!(
            looked.filter(|name| name.starts_with("spin-")).collect::<BTreeSet<_>>().len(),
            2
        );
    }
    // If the caller stops the sampler before it has noticed the end, the end is reported all the
    // same.
    for _ in 0..3 {
        let (sampler, mut reader) = start(&target, choice, 50);
        let mut events = Vec::new();
        read_until(&mut reader, &mut events, |events| ticks(events) > 1);
        target.child.kill().expect("killed");
        let ended = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(
            rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&target.child)),
            ended,
        )
        .expect("it ends");
        drop(sampler);
        events.extend(reader.by_ref());
        assert!(matches!(events.last(), Some(Event::ProcessEnded { .. })), "{:?}", events.last());
        assert!(clock(&events[events.len() - 2]).is_some());
        target = Running::start(&program, &["park", "2"]);
    }
}

fn stopped_and_uninterruptible_threads_are_told_in_every_round(choice: CaptureChoice) {
    let program = build("cap_threads.c", &format!("states-{}", choice.word()), &["-O1"]);
    let target = Running::start(&program, &["park", "2"]);
    let signal = |signal| {
        let pid = rustix::process::Pid::from_raw(target.pid() as i32).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("signalled");
    };
    signal(rustix::process::Signal::STOP);
    wait_until("they stop", || thread_states(target.pid()).iter().all(|(state, _)| *state == 'T'));
    let (sampler, mut reader) = start(&target, choice, 5);
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| ticks(events) > 10);
    whole_rounds(&mut events);
    let stopped = scan(&events)
        .filter(|observation| observation.seen == Seen::Stopped && observation.stack.len() == 1)
        .count();
    assert_eq!((stopped, scan(&events).count()), (5 * ticks(&events), 5 * ticks(&events)));
    let Some(Event::Tick(tick)) = events.last() else { panic!("a tick closes its round") };
    assert_eq!(tick.losses.samples, 5, "each stack was read once");
    signal(rustix::process::Signal::CONT);
    let mut after = Vec::new();
    let parked = |event: &Event| matches!(event, Event::Observation(l) if name(l) == "park-1" && matches!(l.seen, Seen::Blocked(_)));
    let spinning = |event: &Event| matches!(event, Event::Observation(l) if name(l) == "spin-1" && l.seen == Seen::OnCpu);
    read_until(&mut reader, &mut after, |events| {
        events.iter().any(parked) && events.iter().any(spinning)
    });
    drop(sampler);

    let target = Running::start(&program, &["vfork"]);
    wait_until("it calls vfork", || {
        thread_states(target.pid()).iter().all(|(state, _)| *state == 'D')
    });
    let (sampler, mut reader) = start(&target, choice, 5);
    let mut events = Vec::new();
    read_until(&mut reader, &mut events, |events| ticks(events) > 10);
    drop(sampler);
    // vfork is 58, clone 56, clone3 435: the C library chooses.
    let forks = |observation: &&sampletop::model::vocabulary::event::Observation| matches!(observation.seen, Seen::Disk(Some(call)) if [56, 58, 435].contains(&call.number));
    assert_eq!(scan(&events).filter(forks).count(), scan(&events).count());
    assert!(scan(&events).count() >= 10);
    let child = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", target.pid()))
        .expect("its child");
    let child = rustix::process::Pid::from_raw(child.trim().parse().expect("one")).expect("a pid");
    rustix::process::kill_process(child, rustix::process::Signal::KILL).expect("killed");
}
