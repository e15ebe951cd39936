use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn thread() -> impl Strategy<Value = ThreadKey> {
    any::<(u32, u32, u64)>().prop_map(|(pid, tid, start)| ThreadKey { pid, tid, start })
}

fn counters() -> impl Strategy<Value = Option<Counters>> {
    any::<Option<(u64, u64, u64)>>()
        .prop_map(|c| c.map(|(run_ns, delay_ns, runs)| Counters { run_ns, delay_ns, runs }))
}

fn syscall() -> impl Strategy<Value = Syscall> {
    any::<(i32, [u64; 6])>().prop_map(|(number, args)| Syscall { number, args })
}

fn seen() -> impl Strategy<Value = Seen> {
    prop_oneof![
        Just(Seen::OnCpu),
        Just(Seen::Running),
        Just(Seen::Ready),
        syscall().prop_map(Seen::Blocked),
        Just(Seen::Disk(None)),
        syscall().prop_map(|call| Seen::Disk(Some(call))),
        Just(Seen::Stopped),
    ]
}

fn observe() -> impl Strategy<Value = Event> {
    let stack = vec(any::<u64>().prop_map(RawFrame::from_bits), 0..40);
    let parts = (any::<u64>(), thread(), any::<[u8; 16]>(), seen(), counters(), stack);
    (parts, any::<bool>(), option::of(blocker()), any::<Option<u64>>()).prop_map(
        |((at, thread, name, seen, counters, stack), recovered, blocker, wait_began)| {
            Event::Observation(Observation {
                at,
                thread,
                name: RawName(name),
                seen,
                counters,
                stack,
                recovered,
                blocker,
                wait_began,
            })
        },
    )
}

fn blocker() -> impl Strategy<Value = RawBlocker> {
    let holder = prop_oneof![
        Just(RawHolder::Unknown),
        Just(RawHolder::Free),
        any::<(u32, u32)>().prop_map(|(pid, tid)| RawHolder::Thread { pid, tid }),
        any::<u32>().prop_map(RawHolder::Readers),
        Just(RawHolder::Unmounted),
    ];
    let class = option::of(any::<u64>().prop_map(RawName::of_runtime));
    (select(&BlockerKind::ALL), any::<u64>(), class, holder)
        .prop_map(|(kind, object, class, holder)| RawBlocker { kind, object, class, holder })
}

fn tick() -> impl Strategy<Value = Event> {
    let head = any::<(u64, u32, u64, Option<u64>, u64, u64, Option<u64>)>();
    (head, any::<[u64; 15]>()).prop_map(|(head, l)| {
        let (at, pid, late_ns, process_cpu_ns, ..) = head;
        let (.., interval_ns, tick_interval_ns, visit_interval_ns) = head;
        let losses = Losses {
            samples: l[0],
            dropped: l[1],
            truncated: l[2],
            torn: l[3],
            unwind_failed: l[4],
            recovered: l[5],
            throttled: l[6],
            late: l[7],
            stops: l[8],
            stops_blocked: l[9],
            stop_p99_ns: l[10],
            sampler_cpu_ns: l[11],
            no_unwind_info: l[12],
            bad_unwind: l[13],
            outside_maps: l[14],
        };
        Event::Tick(Tick {
            at,
            pid,
            late_ns,
            process_cpu_ns,
            interval_ns,
            tick_interval_ns,
            visit_interval_ns,
            losses,
        })
    })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => observe(),
        2 => tick(),
        1 => (any::<u64>(), thread(), counters())
            .prop_map(|(at, thread, counters)| Event::ThreadEnded { at, thread, counters }),
        1 => any::<(u64, u32)>().prop_map(|(at, pid)| Event::Exec { at, pid }),
        1 => any::<(u64, u32)>().prop_map(|(at, pid)| Event::ProcessEnded { at, pid }),
        1 => any::<(u64, u64)>().prop_map(|(from, at)| Event::Gap { from, at }),
        1 => (any::<u64>(), thread(), blocker())
            .prop_map(|(at, thread, blocker)| Event::StillBlocked { at, thread, blocker }),
        1 => (any::<u64>(), vec(vec(thread(), 0..4), 0..3))
            .prop_map(|(at, cycles)| Event::Deadlocks { at, cycles }),
    ]
}

proptest! {
    /// Records that fit come out unchanged and in order, also where the ring wraps. Others are
    /// counted.
    #[test]
    fn what_fits_comes_out_unchanged(batches in vec(vec(event(), 1..6), 1..12)) {
        let (mut writer, mut reader) = channel(160);
        let mut refused = 0;
        for batch in batches {
            let mut kept = Vec::new();
            for event in batch {
                if writer.push(&event) { kept.push(event) } else { refused += 1 }
            }
            for event in kept {
                prop_assert_eq!(reader.next(), Some(event));
            }
            prop_assert_eq!(reader.next(), None);
        }
        prop_assert_eq!(writer.dropped(), refused);
    }

    #[test]
    fn garbage_never_panics(words in vec(any::<u64>(), 0..64)) {
        let _ = decode(&words);
    }

    /// Garbage behind a plausible header: every kind, state and flag, any length.
    #[test]
    fn garbage_behind_a_header_never_panics(
        kind in 0u64..11, seen in 0u64..7, flags in 0u64..64, rest in vec(any::<u64>(), 0..64),
    ) {
        let mut words = vec![kind | (rest.len() as u64 + 1) << 8 | seen << 32 | flags << 40];
        words.extend(rest);
        let _ = decode(&words);
    }

    #[test]
    fn a_ring_of_garbage_is_read_to_its_end(words in vec(any::<u64>(), 0..64)) {
        let (mut writer, mut reader) = channel(64);
        writer.ring.push_slice(&words);
        while reader.next().is_some() {}
        prop_assert!(reader.ring.is_empty());
    }
}

#[test]
fn a_record_that_does_not_fit_leaves_no_trace() {
    let (mut writer, mut reader) = channel(64);
    let thread = ThreadKey { pid: 1, tid: 1, start: 1 };
    let long = Observation {
        stack: vec![RawFrame::from_bits(7); 100],
        ..Observation::new(1, thread, RawName::default(), Seen::OnCpu)
    };
    assert!(!writer.push(&Event::Observation(long)));
    assert_eq!(reader.next(), None);
    assert!(writer.push(&Event::Gap { from: 1, at: 2 }));
    assert_eq!(reader.next(), Some(Event::Gap { from: 1, at: 2 }));
    assert_eq!(writer.dropped(), 1);
}

#[test]
fn a_stack_beyond_the_limit_is_refused() {
    let (mut writer, _reader) = channel(1 << 16);
    let thread = ThreadKey { pid: 1, tid: 1, start: 1 };
    let observation = Observation {
        stack: vec![RawFrame::from_bits(7); MAX_WORDS],
        ..Observation::new(1, thread, RawName::default(), Seen::OnCpu)
    };
    assert!(!writer.push(&Event::Observation(observation)));
}

#[test]
fn each_end_sees_the_other_go() {
    let (mut writer, mut reader) = channel(64);
    assert!(!writer.abandoned() && !reader.finished());
    writer.push(&Event::Exec { at: 1, pid: 2 });
    drop(writer);
    assert!(!reader.finished(), "something is left to read");
    assert!(reader.next().is_some());
    assert!(reader.finished());
    let (writer, reader) = channel(64);
    drop(reader);
    assert!(writer.abandoned());
}
