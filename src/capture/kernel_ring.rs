//! A perf event's memory-mapped ring: the kernel writes records, we read them where they lie.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::addr_of_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings as sys;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::model::frame::{FrameCode, Marker, Ns, RawFrame};
use crate::unwinder::Registers;

/// What every sample of ours carries, in the order in which the kernel writes it.
pub const SAMPLE_TYPE: u64 = (sys::PERF_SAMPLE_IDENTIFIER
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_CALLCHAIN
    | sys::PERF_SAMPLE_REGS_USER
    | sys::PERF_SAMPLE_STACK_USER) as u64;

/// ax bx cx dx si di bp sp ip (bits 0-8) and r8..r15 (bits 16-23), arch/x86/include/uapi/asm/perf_regs.h.
pub const SAMPLE_REGISTERS: u64 = 0x1ff | 0xff << 16;
const REGISTER_COUNT: usize = 17;

/// One sample, borrowed from the ring.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The event's id; for an inherited event that of the event it was inherited from.
    pub id: u64,
    pub pid: u32,
    pub tid: u32,
    pub at: Ns,
    /// Empty for a thread in user mode, and where the kernel does not let itself be sampled.
    pub kernel: Callchain<'a>,
    /// As they were when the kernel was entered. `None`: no 64-bit user registers (a thread of the kernel's own, a thread
    /// that is ending, 32-bit code).
    pub registers: Option<Registers>,
    /// From rsp upwards; empty when none could be copied.
    pub stack: &'a [u8],
}

/// The kernel's part of a sample: addresses, innermost first, between marks that say whose they are.
#[derive(Clone, Copy, Debug)]
pub struct Callchain<'a>(&'a [u8]);

/// Frames of the kernel on one stack, at most. Its own limit (kernel.perf_event_max_stack) is the same by default.
pub const KERNEL_FRAMES: usize = 127;

/// Values from here on are marks: PERF_CONTEXT_MAX, -4095.
const CONTEXTS: u64 = -4095i64 as u64;
const CONTEXT_KERNEL: u64 = -128i64 as u64;

impl Callchain<'_> {
    /// Appends the kernel's frames, innermost first. `deepest`: what the kernel was asked for; where it gave so many there may
    /// be more, which a marker says.
    pub fn frames(self, deepest: usize, out: &mut Vec<RawFrame>) {
        let most = deepest.min(KERNEL_FRAMES);
        let words = self.0.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        let (mut in_kernel, mut found) = (false, 0);
        for word in words {
            if word >= CONTEXTS {
                in_kernel = word == CONTEXT_KERNEL;
            } else if in_kernel && found == most {
                break;
            } else if in_kernel && let Some(frame) = kernel_frame(word, found == 0) {
                out.push(frame);
                found += 1;
            }
        }
        if found > 0 && found == most {
            out.push(RawFrame::marker(Marker::TooDeep));
        }
    }
}

/// Of a canonical address in the upper half. A return address may be the first of another function, if the call never
/// returns: what is kept lies in the call.
pub fn kernel_frame(address: u64, exact: bool) -> Option<RawFrame> {
    let address = address - u64::from(!exact && address != 0);
    (address >> 47 == 0x1_ffff).then(|| RawFrame::new(FrameCode::Kernel { address }))
}

/// One record, as far as we want it.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    Sample(Sample<'a>),
    /// So many records found the ring full.
    Lost(u64),
    Throttled,
    Other,
}

/// The mapping: one page of control data, then the records.
pub struct KernelRing {
    base: *mut u8,
    page: usize,
    size: usize,
    /// How far we have read; the kernel's positions only ever grow.
    tail: u64,
    scratch: Vec<u8>,
}

// SAFETY: the mapping belongs to this value alone; the kernel is the only other party and keeps to the protocol of
// data_head and data_tail, whichever of our threads reads.
unsafe impl Send for KernelRing {}

impl KernelRing {
    /// Maps a ring of `size` bytes (a power of two, at least a page) for a perf event.
    pub fn map(event: BorrowedFd<'_>, size: usize) -> io::Result<KernelRing> {
        let page = rustix::param::page_size();
        // SAFETY: a fresh shared mapping at an address of the kernel's choice; unmapped when dropped.
        let base = unsafe {
            mmap(std::ptr::null_mut(), page + size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, event, 0)?
        };
        Ok(KernelRing { base: base.cast(), page, size, tail: 0, scratch: Vec::new() })
    }

    fn control(&self) -> *mut sys::perf_event_mmap_page {
        self.base.cast()
    }

    fn head(&self) -> u64 {
        // SAFETY: data_head lies in the mapped control page, is 8-byte aligned, and is only accessed atomically. Acquire
        // pairs with the kernel's barrier before it publishes data_head.
        unsafe { AtomicU64::from_ptr(addr_of_mut!((*self.control()).data_head)).load(Ordering::Acquire) }
    }

    fn publish_tail(&self) {
        // SAFETY: as in `head`; release keeps our reads of the records before the kernel may overwrite them.
        unsafe {
            AtomicU64::from_ptr(addr_of_mut!((*self.control()).data_tail)).store(self.tail, Ordering::Release);
        }
    }

    /// Hands each record to `f` until the ring is empty, or `f` answers false: that record stays for the next time.
    pub fn drain(&mut self, mut f: impl FnMut(Record<'_>) -> bool) {
        let head = self.head();
        let mut scratch = std::mem::take(&mut self.scratch);
        if head.wrapping_sub(self.tail) > self.size as u64 {
            // No kernel that keeps to the protocol is further ahead than the ring is long, or goes back. What lies between is
            // nothing, and could be 2^64 bytes of it.
            self.tail = head;
        }
        while self.tail < head {
            let left = (head - self.tail) as usize;
            let mut header = [0; 8];
            if left < header.len() {
                self.tail = head;
                break;
            }
            self.copy(self.tail, &mut header);
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            if size < header.len() || size > left {
                // Only a kernel that breaks the protocol gets us here; start again at its head.
                self.tail = head;
                break;
            }
            let body = self.record(self.tail, size, &mut scratch).get(header.len()..).unwrap_or_default();
            if !f(parse(kind, body)) {
                break;
            }
            self.tail += size as u64;
            // At once: a stack takes an eighth of the ring, and the kernel drops what finds it full.
            self.publish_tail();
        }
        self.publish_tail();
        self.scratch = scratch;
    }

    /// The bytes of a record: in place, or copied together where it wraps.
    fn record<'a>(&'a self, at: u64, size: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        let offset = (at % self.size as u64) as usize;
        if offset + size <= self.size {
            // SAFETY: inside the mapping; the kernel does not write between data_tail and data_head, and we publish a
            // new tail only after this slice is gone.
            return unsafe { std::slice::from_raw_parts(self.base.add(self.page + offset), size) };
        }
        scratch.resize(size, 0);
        self.copy(at, scratch);
        scratch
    }

    fn copy(&self, at: u64, out: &mut [u8]) {
        let offset = (at % self.size as u64) as usize;
        let first = out.len().min(self.size - offset);
        // SAFETY: both parts lie inside the mapping (no record is longer than the ring), see `record`.
        unsafe {
            std::ptr::copy_nonoverlapping(self.base.add(self.page + offset), out.as_mut_ptr(), first);
            let rest = (out.len() - first).min(offset);
            std::ptr::copy_nonoverlapping(self.base.add(self.page), out.as_mut_ptr().add(first), rest);
        }
    }
}

impl Drop for KernelRing {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and nothing borrowed from it outlives `self`.
        let _ = unsafe { munmap(self.base.cast(), self.page + self.size) };
    }
}

fn parse(kind: u32, body: &[u8]) -> Record<'_> {
    let mut bytes = Bytes(body);
    match kind {
        sys::PERF_RECORD_SAMPLE => parse_sample(&mut bytes).map_or(Record::Other, Record::Sample),
        // { u64 id; u64 lost; }
        sys::PERF_RECORD_LOST => match (bytes.word(), bytes.word()) {
            (Some(_), Some(lost)) => Record::Lost(lost),
            _ => Record::Other,
        },
        sys::PERF_RECORD_THROTTLE => Record::Throttled,
        _ => Record::Other,
    }
}

fn parse_sample<'a>(bytes: &mut Bytes<'a>) -> Option<Sample<'a>> {
    let id = bytes.word()?;
    let ids = bytes.word()?;
    let at = bytes.word()?;
    let chain = usize::try_from(bytes.word()?).ok()?.checked_mul(8)?;
    let kernel = Callchain(bytes.take(chain)?);
    let mut registers = None;
    let abi = bytes.word()?;
    if abi != 0 {
        let mut values = [0; REGISTER_COUNT];
        for value in &mut values {
            *value = bytes.word()?;
        }
        registers = (abi == u64::from(sys::PERF_SAMPLE_REGS_ABI_64)).then(|| to_registers(&values));
    }
    let room = bytes.word()? as usize;
    let mut stack: &[u8] = &[];
    if room > 0 {
        let reserved = bytes.take(room)?;
        let filled = bytes.word()? as usize;
        stack = &reserved[..filled.min(room)];
    }
    // Ids of other pid namespaces read as 0, those of tasks already released as -1: neither is anybody's target.
    Some(Sample { id, pid: ids as u32, tid: (ids >> 32) as u32, at, kernel, registers, stack })
}

/// From the kernel's order (bits of [`SAMPLE_REGISTERS`]) to ours: rax rbx rcx rdx rsi rdi r8..r15.
fn to_registers(values: &[u64; REGISTER_COUNT]) -> Registers {
    let mut general = [0; 14];
    general[..6].copy_from_slice(&values[..6]);
    general[6..].copy_from_slice(&values[9..]);
    // Kernels before 5.11 gave -1 for the registers that a system call's entry did not save.
    let rbp = Some(values[6]).filter(|rbp| *rbp != u64::MAX);
    Registers { rip: values[8], rsp: values[7], rbp, general, general_known: true }
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(first)
    }

    fn word(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.take(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use proptest::prelude::*;

    use super::*;

    /// A ring in a memory file, where the test plays the kernel.
    struct Fake {
        ring: KernelRing,
        head: u64,
        _file: OwnedFd,
    }

    impl Fake {
        fn new(size: usize) -> Fake {
            let file = rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC).expect("a memory file");
            rustix::fs::ftruncate(&file, (rustix::param::page_size() + size) as u64).expect("its size");
            Fake { ring: KernelRing::map(file.as_fd(), size).expect("mapped"), head: 0, _file: file }
        }

        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                let offset = (self.head % self.ring.size as u64) as usize;
                // SAFETY: inside the mapping; nobody reads it at the same time.
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
        // As many words of call chain as the time says, up to 4.
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
        for round in 0..50u64 {
            let stack: Vec<u8> = (0..400u64).map(|i| (i + round) as u8).collect();
            fake.write(&sample(round, &stack));
            let mut seen = 0;
            fake.ring.drain(|record| {
                let Record::Sample(sample) = record else { panic!("{record:?}") };
                assert_eq!((sample.id, sample.pid, sample.tid, sample.at), (77, 10, 20, round));
                assert_eq!(sample.stack, stack);
                assert_eq!(sample.kernel.0.len() as u64, round % 5 * 8);
                let registers = sample.registers.expect("64-bit");
                assert_eq!((registers.rip, registers.rsp, registers.rbp), (108, 107, Some(106)));
                assert_eq!(registers.general, [100, 101, 102, 103, 104, 105, 109, 110, 111, 112, 113, 114, 115, 116]);
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
    fn what_is_not_the_kernels_is_left_out() {
        let hypervisor = -32i64 as u64;
        assert_eq!(frames(127, &[]), []);
        assert_eq!(frames(127, &[TEXT]), [], "before any mark");
        assert_eq!(frames(127, &[USER, 0x1000, TEXT]), []);
        assert_eq!(frames(127, &[hypervisor, TEXT, CONTEXT_KERNEL, TEXT + 1, USER, 0x1000]), [kernel(TEXT + 1)]);
        let not_canonical = [0, 0x1000, 1 << 47, 1 << 63, 0xfffe_ffff_8100_0000];
        for address in not_canonical {
            assert_eq!(frames(127, &[CONTEXT_KERNEL, address, TEXT]), [kernel(TEXT)], "{address:x}");
        }
    }

    #[test]
    fn a_chain_that_may_go_on_says_so() {
        let chain: Vec<u64> = std::iter::once(CONTEXT_KERNEL).chain((0..200).map(|n| TEXT + n * 16)).collect();
        for (deepest, given, expected) in
            [(3, 3, 2), (127, 127, 126), (127, 201, 127), (640, 201, 127), (640, 128, 127)]
        {
            let frames = frames(deepest, &chain[..given]);
            let cut = frames.last() == Some(&RawFrame::marker(Marker::TooDeep));
            assert_eq!((frames.len() - usize::from(cut), cut), (expected, expected == deepest.min(127)), "{given}");
        }
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
    fn losses_and_throttling_are_told() {
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
                Record::Sample(_) => panic!("a sample cut short"),
            }
            true
        });
        assert_eq!((lost, throttled, other), (42, 1, 1));
    }

    #[test]
    fn a_head_that_jumps_is_followed_not_searched() {
        let mut fake = Fake::new(4096);
        fake.write(&[sample(1, &[1; 16]), record(sys::PERF_RECORD_THROTTLE, &[0; 24])].concat());
        // The ring is full of records that make sense, so going through it 2^52 times would.
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
        // And goes on from there.
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
                fake.ring.drain(|_| true);
                prop_assert_eq!(fake.ring.tail, fake.head);
            }
        }

        #[test]
        fn garbage_samples_never_panic(chain in 0..20u64, mut body in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(sys::PERF_RECORD_SAMPLE, &body);
            // With a call chain that is not refused for its length at once.
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
}
