//! perf's ring. The kernel writes it, but stack bytes and registers are the target's. A kernel with
//! inconsistent positions must not crash us either. So there are records of any kind and size at
//! any place, a head that moves anywhere, and call chains of any content.
//!
//! Input: commands of one byte. 0-3: append a piece to the ring; 4: append a sample made of a
//! piece; 5: set the head to a 64-bit number; 6: overwrite a piece of the ring at a 16-bit place;
//! 7: drain and refuse a record. After each: drain.
#![no_main]

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use libfuzzer_sys::fuzz_target;
use sampletop::capture::kernel_ring::{KERNEL_FRAMES, KernelRing, Record};
use sampletop::model::vocabulary::frame::{FrameCode, Marker, RawFrame};
use sampletop_fuzz::{Input, within};

const PAGE: u64 = 4096;
/// Of `struct perf_event_mmap_page` (include/uapi/linux/perf_event.h).
const DATA_HEAD: u64 = 1024;
const DATA_TAIL: u64 = 1032;
const PERF_RECORD_SAMPLE: u32 = 9;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let size = PAGE << (input.u8() % 3);
    let file = File::from(
        rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC).expect("a memory file"),
    );
    file.set_len(PAGE + size).expect("room");
    let mut kernel = Kernel { file, size, head: 0 };
    let mut ring = KernelRing::map(kernel.file.as_fd(), size as usize).expect("it maps");
    while !input.is_empty() {
        let mut refuse = false;
        match input.u8() % 8 {
            0..=3 => kernel.append(input.piece()),
            4 => kernel.append(&sample(input.piece())),
            5 => kernel.head = input.u64(),
            6 => {
                let at = u64::from(input.u16()) % size;
                kernel.write(at, input.piece());
            }
            _ => refuse = true,
        }
        kernel.publish();
        let behind = kernel.head.wrapping_sub(kernel.tail());
        let mut records = 0;
        within(200, || {
            ring.drain(|record| {
                records += 1;
                if let Record::Sample(sample) = record {
                    assert!(sample.stack.len() <= usize::from(u16::MAX));
                    for deepest in [0, 3, KERNEL_FRAMES, usize::MAX] {
                        let mut frames = vec![RawFrame::from_bits(7)];
                        sample.kernel.frames(deepest, &mut frames);
                        check_kernel_frames(&frames, deepest.min(KERNEL_FRAMES));
                    }
                    // Reads every byte that is lent.
                    std::hint::black_box(sample.stack.iter().fold(0, |sum, byte| sum ^ byte));
                }
                !refuse && records <= size
            });
        });
        assert!(records <= size / 8, "{records} records in {size} bytes");
        // The tail never passes the head, and never moves back.
        if behind <= size {
            assert!(kernel.head.wrapping_sub(kernel.tail()) <= behind);
        }
    }
});

/// Checks what follows the frame that was there before: addresses of the kernel, then a marker if
/// frames may be missing.
fn check_kernel_frames(frames: &[RawFrame], most: usize) {
    let [first, frames @ ..] = frames else { panic!("what was there is gone") };
    assert_eq!(first.bits(), 7);
    let cut = frames.last().is_some_and(|last| *last == RawFrame::marker(Marker::TooDeep));
    let addresses = &frames[..frames.len() - usize::from(cut)];
    assert!(addresses.len() <= most && cut == (most > 0 && addresses.len() == most));
    for frame in addresses {
        assert!(
            matches!(frame.decode(), FrameCode::Kernel { address } if address >> 47 >= 0x1_fffe),
            "{frame:?}"
        );
    }
}

/// Takes the kernel's part.
struct Kernel {
    file: File,
    size: u64,
    head: u64,
}

impl Kernel {
    fn append(&mut self, bytes: &[u8]) {
        self.write(self.head % self.size, bytes);
        self.head = self.head.wrapping_add(bytes.len() as u64);
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let offset = at % self.size;
            let (now, later) = rest.split_at(rest.len().min((self.size - offset) as usize));
            self.file.write_all_at(now, PAGE + offset).expect("inside the file");
            (at, rest) = (at.wrapping_add(now.len() as u64), later);
        }
    }

    fn publish(&self) {
        self.file.write_all_at(&self.head.to_ne_bytes(), DATA_HEAD).expect("inside the file");
    }

    fn tail(&self) -> u64 {
        let mut tail = [0; 8];
        self.file.read_exact_at(&mut tail, DATA_TAIL).expect("inside the file");
        u64::from_ne_bytes(tail)
    }
}

/// Makes a record of the right kind and size around any body.
fn sample(body: &[u8]) -> Vec<u8> {
    let mut record = PERF_RECORD_SAMPLE.to_ne_bytes().to_vec();
    record.extend(0u16.to_ne_bytes());
    record.extend((body.len() as u16).saturating_add(8).to_ne_bytes());
    record.extend(body);
    record
}
