//! Tests with a ring in a memory file, where the test writes in place of the kernel.

use std::os::fd::{AsFd, OwnedFd};

use proptest::prelude::*;

use super::*;

/// A ring in a memory file, where the test writes in place of the kernel.
struct Fake {
    ring: KernelRing,
    head: u64,
    _file: OwnedFd,
}

impl Fake {
    fn new(size: usize) -> Fake {
        let file = rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC)
            .expect("a memory file");
        rustix::fs::ftruncate(&file, (rustix::param::page_size() + size) as u64).expect("its size");
        Fake { ring: KernelRing::map(file.as_fd(), size).expect("mapped"), head: 0, _file: file }
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let offset = (self.head % self.ring.size as u64) as usize;
            // SAFETY: inside the mapping; no reader runs at the same time.
            unsafe { *self.ring.base.add(self.ring.page + offset) = *byte };
            self.head += 1;
        }
        // SAFETY: as `KernelRing::head`.
        unsafe {
            let head = AtomicU64::from_ptr(addr_of_mut!((*self.ring.control()).data_head));
            head.store(self.head, Ordering::Release);
        }
    }
}

fn record(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(0u16.to_ne_bytes());
    bytes.extend((body.len() as u16 + 8).to_ne_bytes());
    bytes.extend(body);
    bytes
}

fn sample(at: u64, stack: &[u8]) -> Vec<u8> {
    // The call chain has `at` modulo 5 words.
    let mut words = vec![77, 10 | 20 << 32, at, at % 5];
    words.extend((0..at % 5).map(|n| 0xffff_ffff_8100_0000 + n));
    words.push(u64::from(sys::PERF_SAMPLE_REGS_ABI_64));
    words.extend(100..100 + REGISTER_COUNT as u64);
    words.push(stack.len() as u64 + 8);
    let mut body: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    body.extend(stack);
    body.extend([0; 8]);
    body.extend((stack.len() as u64).to_ne_bytes());
    record(sys::PERF_RECORD_SAMPLE, &body)
}

#[test]
fn samples_are_read_whole_also_where_they_wrap() {
    let mut fake = Fake::new(4096);
    for tick in 0..50u64 {
        let stack: Vec<u8> = (0..400u64).map(|i| (i + tick) as u8).collect();
        fake.write(&sample(tick, &stack));
        let mut seen = 0;
        fake.ring.drain(|record| {
            let Record::Sample(sample) = record else { panic!("{record:?}") };
            assert_eq!((sample.id, sample.pid, sample.tid, sample.at), (77, 10, 20, tick));
            assert_eq!(sample.stack, stack);
            assert_eq!(sample.kernel.0.len() as u64, tick % 5 * 8);
            let registers = sample.registers.expect("64-bit");
            assert_eq!((registers.rip, registers.rsp, registers.rbp), (108, 107, Some(106)));
            assert_eq!(
                registers.general,
                [100, 101, 102, 103, 104, 105, 109, 110, 111, 112, 113, 114, 115, 116]
            );
            seen += 1;
            true
        });
        assert_eq!(seen, 1);
    }
}

fn frames(deepest: usize, words: &[u64]) -> Vec<RawFrame> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut frames = Vec::new();
    Callchain(&bytes).frames(deepest, &mut frames);
    frames
}

fn kernel(address: u64) -> RawFrame {
    RawFrame::new(FrameCode::Kernel { address })
}

const TEXT: u64 = 0xffff_ffff_8100_0000;
const USER: u64 = -512i64 as u64;

#[test]
fn the_innermost_address_is_exact_and_callers_lie_in_their_calls() {
    let chain = [CONTEXT_KERNEL, TEXT + 0x10, TEXT + 0x200, TEXT + 0x3000];
    assert_eq!(frames(127, &chain), [TEXT + 0x10, TEXT + 0x1ff, TEXT + 0x2fff].map(kernel));
}

#[test]
fn addresses_outside_the_kernel_are_dropped() {
    let hypervisor = -32i64 as u64;
    assert_eq!(frames(127, &[]), []);
    assert_eq!(frames(127, &[TEXT]), [], "before any mark");
    assert_eq!(frames(127, &[USER, 0x1000, TEXT]), []);
    assert_eq!(
        frames(127, &[hypervisor, TEXT, CONTEXT_KERNEL, TEXT + 1, USER, 0x1000]),
        [kernel(TEXT + 1)]
    );
    let not_canonical = [0, 0x1000, 1 << 47, 1 << 63, 0xfffe_ffff_8100_0000];
    for address in not_canonical {
        assert_eq!(frames(127, &[CONTEXT_KERNEL, address, TEXT]), [kernel(TEXT)], "{address:x}");
    }
}

#[test]
fn a_chain_that_may_go_on_says_so() {
    let chain: Vec<u64> =
        std::iter::once(CONTEXT_KERNEL).chain((0..200).map(|n| TEXT + n * 16)).collect();
    for (deepest, given, expected) in
        [(3, 3, 2), (127, 127, 126), (127, 201, 127), (640, 201, 127), (640, 128, 127)]
    {
        let frames = frames(deepest, &chain[..given]);
        let cut = frames.last() == Some(&RawFrame::marker(Marker::TooDeep));
        assert_eq!(
            (frames.len() - usize::from(cut), cut),
            (expected, expected == deepest.min(127)),
            "{given}"
        );
    }
}

fn mapped(at: u64, start: u64, path: &[u8]) -> Vec<u8> {
    let mut body: Vec<u8> = [10 | 20 << 32, start, 0x3000, 0x1000, 8 | 1 << 32, 77, 5, 0]
        .iter()
        .flat_map(|w: &u64| w.to_ne_bytes())
        .collect();
    body.extend(path);
    body.resize((body.len() + 1).next_multiple_of(8), 0);
    body.extend([10 | 20 << 32, at, 99].iter().flat_map(|w: &u64| w.to_ne_bytes()));
    record(sys::PERF_RECORD_MMAP2, &body)
}

#[test]
fn mapping_reports_come_ahead_of_samples_and_once() {
    let mut fake = Fake::new(4096);
    let mut seen = Vec::new();
    let mut scan = |fake: &mut Fake| {
        fake.ring.scan(|record| {
            if let Record::Mapped(Mapped { pid, at, start, end, offset, device, inode, path }) =
                record
            {
                assert_eq!(
                    (pid, end - start, offset, device, inode),
                    (10, 0x3000, 0x1000, (8, 1), 77)
                );
                seen.push((at, start, String::from_utf8_lossy(path).into_owned()));
            }
        });
        seen.len()
    };
    // More than the ring holds, so that some records wrap.
    for tick in 0..40 {
        fake.write(&sample(1, &[1; 200]));
        fake.write(&mapped(tick, 0x1000 * tick, &b"/lib/long-name.so"[..1 + tick as usize % 17]));
        assert_eq!(scan(&mut fake), tick as usize + 1);
        assert_eq!(scan(&mut fake), tick as usize + 1);
        let mut samples = 0;
        fake.ring.drain(|record| {
            samples += usize::from(matches!(record, Record::Sample(_)));
            true
        });
        assert_eq!(samples, 1, "all stay");
    }
    assert_eq!(seen[16], (16, 0x10000, "/lib/long-name.so".into()));
}

/// Mappings that are reported while samples are taken out of the ring.
#[test]
fn what_is_written_after_a_scan_stays_for_the_next_one() {
    let mut fake = Fake::new(4096);
    let drained = |fake: &mut Fake| {
        let mut times = Vec::new();
        fake.ring.drain(|record| {
            times.push(match record {
                Record::Sample(Sample { at, .. }) | Record::Mapped(Mapped { at, .. }) => at,
                _ => 0,
            });
            true
        });
        times
    };
    fake.write(&mapped(1, 0x1000, b"/lib/a.so"));
    assert_eq!(drained(&mut fake), [1], "a ring that is never scanned");
    fake.write(&mapped(2, 0x1000, b"/lib/b.so"));
    fake.ring.scan(|_| {});
    fake.write(
        &[sample(3, &[1; 16]), mapped(4, 0x1000, b"/lib/c.so"), sample(5, &[1; 16])].concat(),
    );
    assert_eq!(drained(&mut fake), [2, 3]);
    assert_eq!(drained(&mut fake), [0; 0]);
    let mut scanned = Vec::new();
    fake.ring.scan(|record| {
        if let Record::Mapped(Mapped { at, .. }) = record {
            scanned.push(at);
        }
    });
    assert_eq!((scanned, drained(&mut fake)), (vec![4], vec![4, 5]));
    // Lost reports are passed on in the same way.
    let lost: Vec<u8> = [1u64, 42].iter().flat_map(|w| w.to_ne_bytes()).collect();
    fake.write(&record(sys::PERF_RECORD_LOST, &lost));
    assert_eq!(drained(&mut fake), [0; 0]);
    let mut told = 0;
    fake.ring.scan(|record| told += if let Record::Lost(lost) = record { lost } else { 0 });
    assert_eq!((told, drained(&mut fake)), (42, vec![0]));
}

#[test]
fn a_refused_record_stays() {
    let mut fake = Fake::new(4096);
    fake.write(&sample(1, &[1; 16]));
    fake.write(&sample(2, &[2; 16]));
    let mut times = Vec::new();
    let at = |record: Record<'_>| if let Record::Sample(sample) = record { sample.at } else { 0 };
    fake.ring.drain(|record| {
        times.push(at(record));
        times.len() < 2
    });
    fake.ring.drain(|record| {
        times.push(at(record));
        true
    });
    assert_eq!(times, [1, 2, 2]);
}

#[test]
fn losses_and_throttling_are_reported() {
    let mut fake = Fake::new(4096);
    let lost: Vec<u8> = [1u64, 42].iter().flat_map(|w| w.to_ne_bytes()).collect();
    fake.write(&record(sys::PERF_RECORD_LOST, &lost));
    fake.write(&record(sys::PERF_RECORD_THROTTLE, &[0; 24]));
    fake.write(&record(sys::PERF_RECORD_SAMPLE, &[0; 8]));
    let mut lost = 0;
    let (mut throttled, mut other) = (0, 0);
    fake.ring.drain(|record| {
        match record {
            Record::Lost(n) => lost += n,
            Record::Throttled => throttled += 1,
            Record::Other => other += 1,
            Record::Sample(_) | Record::Mapped(_) => panic!("{record:?}"),
        }
        true
    });
    assert_eq!((lost, throttled, other), (42, 1, 1));
}

#[test]
fn a_head_that_jumps_is_followed_not_searched() {
    let mut fake = Fake::new(4096);
    fake.write(&[sample(1, &[1; 16]), record(sys::PERF_RECORD_THROTTLE, &[0; 24])].concat());
    // The ring is full of valid records, so an implementation that reads up to the new head would
    // read 2^52 of them.
    while fake.head < 4096 {
        fake.write(&record(sys::PERF_RECORD_THROTTLE, &[]));
    }
    let mut records = 0;
    for head in [1 << 40, 1 << 63, 1 << 20] {
        fake.head = head;
        fake.write(&[]);
        fake.ring.drain(|_| {
            records += 1;
            records < 10_000
        });
        assert_eq!((records, fake.ring.tail), (0, head));
    }
    // It continues there.
    fake.write(&sample(2, &[2; 16]));
    fake.ring.drain(|record| {
        matches!(record, Record::Sample(_)) && {
            records += 1;
            true
        }
    });
    assert_eq!(records, 1);
}

proptest! {
    #[test]
    fn garbage_never_panics(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..600), 1..8)) {
        let mut fake = Fake::new(4096);
        for chunk in chunks {
            fake.write(&chunk);
            fake.ring.scan(|_| {});
            fake.ring.drain(|_| true);
            prop_assert_eq!(fake.ring.tail, fake.head);
        }
    }

    #[test]
    fn garbage_samples_never_panic(chain in 0..20u64, mut body in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse(sys::PERF_RECORD_SAMPLE, &body);
        let _ = parse(sys::PERF_RECORD_MMAP2, &body);
        // Its call chain is not refused for its length at once.
        if let Some(count) = body.get_mut(24..32) {
            count.copy_from_slice(&chain.to_ne_bytes());
        }
        if let Record::Sample(sample) = parse(sys::PERF_RECORD_SAMPLE, &body) {
            prop_assert_eq!(sample.kernel.0.len() as u64, chain * 8);
        }
    }

    #[test]
    fn any_chain_gives_kernel_frames_and_one_marker(
        words in proptest::collection::vec(prop_oneof![any::<u64>(), Just(CONTEXT_KERNEL), Just(USER), TEXT..TEXT + 999], 0..300),
        deepest in 0usize..700,
    ) {
        let frames = frames(deepest, &words);
        prop_assert!(frames.len() <= KERNEL_FRAMES + 1 && frames.len() <= deepest + 1);
        for (at, frame) in frames.iter().enumerate() {
            match frame.decode() {
                FrameCode::Kernel { .. } => {}
                FrameCode::Marker { marker: Marker::TooDeep, file: None } => prop_assert_eq!(at + 1, frames.len()),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
