//! The memory-mapped ring of a perf event: the kernel writes records, sampletop reads them in
//! place.

#![expect(unsafe_code, reason = "reads the ring that the kernel shares with us")]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::addr_of_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings as sys;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::model::vocabulary::frame::{FrameCode, Marker, Ns, RawFrame};
use crate::unwinder::Registers;

/// Fields of every sample, in the order in which the kernel writes them.
pub const SAMPLE_TYPE: u64 = (sys::PERF_SAMPLE_IDENTIFIER
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_CALLCHAIN
    | sys::PERF_SAMPLE_REGS_USER
    | sys::PERF_SAMPLE_STACK_USER) as u64;

/// Those of these fields that other records carry too.
pub const SAMPLE_ID_TYPE: u64 =
    (sys::PERF_SAMPLE_IDENTIFIER | sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME) as u64;

/// ax bx cx dx si di bp sp ip (bits 0-8) and r8..r15 (bits 16-23),
/// arch/x86/include/uapi/asm/perf_regs.h.
pub const SAMPLE_REGISTERS: u64 = 0x1ff | 0xff << 16;
const REGISTER_COUNT: usize = 17;

/// One sample, borrowed from the ring.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Id of the event; for an inherited event, of the event it was inherited from.
    pub id: u64,
    pub pid: u32,
    pub tid: u32,
    pub at: Ns,
    /// The processor that took it, as the reader of the ring says; 0 before.
    pub processor: u32,
    /// Empty for a thread in user mode, and where the kernel forbids sampling in kernel mode.
    pub kernel: Callchain<'a>,
    /// User registers at entry to the kernel. `None` without 64-bit user registers: a kernel
    /// thread, an exiting thread, 32-bit code.
    pub registers: Option<Registers>,
    /// Bytes from rsp upwards; empty if none could be copied.
    pub stack: &'a [u8],
    /// Bytes of stack that were asked for. The kernel copies fewer if a page is not in memory.
    pub stack_room: usize,
}

/// Kernel part of a call chain: addresses, innermost first, between markers of their context.
#[derive(Clone, Copy, Debug)]
pub struct Callchain<'a>(&'a [u8]);

/// Maximum kernel frames of a stack. The kernel's own limit (kernel.perf_event_max_stack) has the
/// same default.
pub const KERNEL_FRAMES: usize = 127;

/// Smallest context marker: PERF_CONTEXT_MAX, -4095.
const CONTEXTS: u64 = -4095i64 as u64;
const CONTEXT_KERNEL: u64 = -128i64 as u64;

impl Callchain<'_> {
    /// Appends the kernel's frames, innermost first. `deepest`: maximum frames that the kernel was
    /// asked for. A chain of that length may be cut, so it ends in a marker.
    pub fn frames(self, deepest: usize, out: &mut Vec<RawFrame>) {
        let most = deepest.min(KERNEL_FRAMES);
        let words = self
            .0
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
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

/// Returns the frame of a canonical address in the upper half. A return address may be the first
/// one of another function, if the call never returns. So the frame holds an address inside the
/// call.
pub fn kernel_frame(address: u64, exact: bool) -> Option<RawFrame> {
    let address = address - u64::from(!exact && address != 0);
    (address >> 47 == 0x1_ffff).then(|| RawFrame::new(FrameCode::Kernel { address }))
}

/// A mapping report: a process has mapped executable memory, or made memory executable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped<'a> {
    pub pid: u32,
    pub at: Ns,
    pub start: u64,
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    pub device: (u32, u32),
    pub inode: u64,
    pub path: &'a [u8],
}

/// One record, with the fields that sampletop uses.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    Sample(Sample<'a>),
    Mapped(Mapped<'a>),
    /// Number of records that found the ring full.
    Lost(u64),
    Throttled,
    Other,
}

/// The mapped ring: one page of control data, then the records.
pub struct KernelRing {
    base: *mut u8,
    page: usize,
    size: usize,
    /// Position up to which records were consumed. Positions of the kernel only grow.
    tail: u64,
    /// Position up to which [`KernelRing::scan`] has come, if it is used.
    scanned: Option<u64>,
    scratch: Vec<u8>,
}

// SAFETY: the mapping belongs to this value alone. The kernel is the only other party and keeps to
// the protocol of data_head and data_tail, whichever of our threads reads.
unsafe impl Send for KernelRing {}

impl KernelRing {
    /// Maps a ring of `size` bytes (a power of two, at least a page) for a perf event.
    pub fn map(event: BorrowedFd<'_>, size: usize) -> io::Result<KernelRing> {
        let page = rustix::param::page_size();
        // SAFETY: a fresh shared mapping at an address of the kernel's choice; unmapped when
        // dropped.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                page + size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                event,
                0,
            )?
        };
        Ok(KernelRing {
            base: base.cast(),
            page,
            size,
            tail: 0,
            scanned: None,
            scratch: Vec::new(),
        })
    }

    fn control(&self) -> *mut sys::perf_event_mmap_page {
        self.base.cast()
    }

    fn head(&self) -> u64 {
        // SAFETY: data_head lies in the mapped control page, is 8-byte aligned, and is only
        // accessed atomically. Acquire pairs with the kernel's barrier before it publishes
        // data_head.
        unsafe {
            AtomicU64::from_ptr(addr_of_mut!((*self.control()).data_head)).load(Ordering::Acquire)
        }
    }

    fn publish_tail(&self) {
        // SAFETY: as in `head`. Release orders our reads of the records before the kernel may
        // overwrite them.
        unsafe {
            AtomicU64::from_ptr(addr_of_mut!((*self.control()).data_tail))
                .store(self.tail, Ordering::Release);
        }
    }

    /// Passes each record to `f` until the ring is empty, or `f` returns false: that record stays.
    /// A record that [`KernelRing::scan`] would pass on, and has not reached, stays too: it was
    /// written after the scan.
    pub fn drain(&mut self, mut f: impl FnMut(Record<'_>) -> bool) {
        let head = self.head();
        let mut scratch = std::mem::take(&mut self.scratch);
        if head.wrapping_sub(self.tail) > self.size as u64 {
            // A kernel that keeps to the protocol is never further ahead than the ring's size, and
            // never goes back. The bytes between are no records, and could be 2^64.
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
                // Only a kernel that breaks the protocol leads here: continue at its head.
                self.tail = head;
                break;
            }
            let unseen = self.scanned.is_some_and(|scanned| scanned <= self.tail);
            if unseen && kind != sys::PERF_RECORD_SAMPLE {
                break;
            }
            let body =
                self.record(self.tail, size, &mut scratch).get(header.len()..).unwrap_or_default();
            if !f(parse(kind, body)) {
                break;
            }
            self.tail += size as u64;
            // Published after each record. A stack takes an eighth of the ring, and the kernel
            // drops records that find it full.
            self.publish_tail();
        }
        self.publish_tail();
        self.scratch = scratch;
    }

    /// Passes each record that is not a sample to `f`, once and ahead of its order. All records
    /// stay.
    pub fn scan(&mut self, mut f: impl FnMut(Record<'_>)) {
        let head = self.head();
        if head.wrapping_sub(self.tail) > self.size as u64 {
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut at = self.scanned.unwrap_or_default().max(self.tail);
        while at < head {
            let mut header = [0; 8];
            let left = (head - at) as usize;
            if left < header.len() {
                break;
            }
            self.copy(at, &mut header);
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            if size < header.len() || size > left {
                break;
            }
            if kind != sys::PERF_RECORD_SAMPLE {
                f(parse(
                    kind,
                    self.record(at, size, &mut scratch).get(header.len()..).unwrap_or_default(),
                ));
            }
            at += size as u64;
        }
        self.scanned = Some(at);
        self.scratch = scratch;
    }

    /// Returns the bytes of a record: in place, or copied if the record wraps.
    fn record<'a>(&'a self, at: u64, size: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        let offset = (at % self.size as u64) as usize;
        if offset + size <= self.size {
            // SAFETY: inside the mapping; the kernel does not write between data_tail and
            // data_head, and we publish a new tail only after this slice is gone.
            return unsafe { std::slice::from_raw_parts(self.base.add(self.page + offset), size) };
        }
        scratch.resize(size, 0);
        self.copy(at, scratch);
        scratch
    }

    fn copy(&self, at: u64, out: &mut [u8]) {
        let offset = (at % self.size as u64) as usize;
        let first = out.len().min(self.size - offset);
        // SAFETY: both parts lie inside the mapping (no record is longer than the ring), see
        // `record`.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.base.add(self.page + offset),
                out.as_mut_ptr(),
                first,
            );
            let rest = (out.len() - first).min(offset);
            std::ptr::copy_nonoverlapping(
                self.base.add(self.page),
                out.as_mut_ptr().add(first),
                rest,
            );
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
        sys::PERF_RECORD_MMAP2 => parse_mapped(&mut bytes).map_or(Record::Other, Record::Mapped),
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
    // Ids of other pid namespaces read as 0, and those of released tasks as -1. Neither is the id
    // of a target.
    Some(Sample {
        id,
        pid: ids as u32,
        tid: (ids >> 32) as u32,
        at,
        processor: 0,
        kernel,
        registers,
        stack,
        stack_room: room,
    })
}

/// Layout: `{ u32 pid, tid; u64 addr, len, pgoff; u32 maj, min; u64 ino, ino_generation; u32 prot,
/// flags; char filename[]; }`. Then, as sample_id_all asks, the fields of [`SAMPLE_TYPE`] that
/// `sample_id` has: `{ u32 pid, tid; u64 time; u64 id; }`.
fn parse_mapped<'a>(bytes: &mut Bytes<'a>) -> Option<Mapped<'a>> {
    const SAMPLE_ID: usize = 24;
    let pid = bytes.word()? as u32;
    let (start, length, offset) = (bytes.word()?, bytes.word()?, bytes.word()?);
    let device = bytes.word()?;
    let inode = bytes.word()?;
    let (_generation, _protection) = (bytes.word()?, bytes.word()?);
    let name = bytes.take(bytes.0.len().checked_sub(SAMPLE_ID)?)?;
    let (_ids, at) = (bytes.word()?, bytes.word()?);
    let path = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let device = (device as u32, (device >> 32) as u32);
    Some(Mapped { pid, at, start, end: start.checked_add(length)?, offset, device, inode, path })
}

/// Converts from the kernel's order (bits of [`SAMPLE_REGISTERS`]) to ours: rax rbx rcx rdx rsi rdi
/// r8..r15.
fn to_registers(values: &[u64; REGISTER_COUNT]) -> Registers {
    let mut general = [0; 14];
    general[..6].copy_from_slice(&values[..6]);
    general[6..].copy_from_slice(&values[9..]);
    // Kernels before 5.11 return -1 for registers that the entry of a system call did not save.
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
mod tests;
