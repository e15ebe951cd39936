//! A single perf event: the attributes that this kernel accepts, found by opening it, and the
//! requests that it answers.

#![expect(unsafe_code, reason = "perf_event_open and its ioctls")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use perf_event_open_sys::{bindings as sys, ioctls, perf_event_open};

use crate::capture::cpus::online_cpus;
use crate::capture::kernel_ring::{KERNEL_FRAMES, SAMPLE_ID_TYPE, SAMPLE_REGISTERS, SAMPLE_TYPE};
use crate::capture::perf::{SMALLEST_RING, Scope};
use crate::model::vocabulary::frame::Ns;

/// Maximum stack bytes of a sample. A record's length field has 16 bits: 63 KiB fit beside the
/// registers, 64 do not.
const LARGEST_DUMP: usize = 63 << 10;

/// Sampling period per tick interval. Equal periods would stay in phase: a program that wakes with
/// the tick would be sampled always or never.
const PERIOD_OF_INTERVAL: f64 = 0.997;

pub fn period_of(interval: Ns) -> Ns {
    // The kernel's minimum is 10 us.
    ((interval as f64 * PERIOD_OF_INTERVAL) as Ns).max(10_000)
}

/// Returns the stack bytes per sample, so that four samples fit a ring. At every interval a ring
/// gets about one sample between two ticks.
pub fn dump_bytes(ring: usize) -> usize {
    LARGEST_DUMP.min(ring / 4 - 1024) & !7
}

/// Returns the attributes that are tried first; older kernels get fewer.
fn base_attr(dump: usize) -> sys::perf_event_attr {
    let mut attr = sys::perf_event_attr {
        type_: sys::PERF_TYPE_SOFTWARE,
        size: size_of::<sys::perf_event_attr>() as u32,
        config: u64::from(sys::PERF_COUNT_SW_CPU_CLOCK),
        sample_type: SAMPLE_TYPE,
        read_format: u64::from(sys::PERF_FORMAT_LOST),
        sample_regs_user: SAMPLE_REGISTERS,
        sample_stack_user: dump as u32,
        sample_max_stack: deepest_permitted(),
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1_000_000_000;
    attr.set_disabled(1);
    attr.set_use_clockid(1);
    attr.set_watermark(1);
    attr.set_exclude_idle(1);
    attr.set_exclude_guest(1);
    // The unwinder walks the user stack.
    attr.set_exclude_callchain_user(1);
    attr
}

/// Returns the maximum frames of a call chain. The kernel refuses more than its own limit.
fn deepest_permitted() -> u16 {
    let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_stack").ok();
    let limit = limit.and_then(|text| text.trim().parse().ok()).unwrap_or(KERNEL_FRAMES);
    limit.min(KERNEL_FRAMES) as u16
}

/// Returns the attributes of an event that never fires, and only holds a ring.
pub fn holder_attr(attr: &sys::perf_event_attr) -> sys::perf_event_attr {
    let mut holder = *attr;
    holder.config = u64::from(sys::PERF_COUNT_SW_DUMMY);
    holder.set_inherit(0);
    holder.set_inherit_thread(0);
    holder
}

/// Asks for reports of executable mappings.
fn report_code(attr: &mut sys::perf_event_attr) {
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_sample_id_all(1);
}

/// Size of the ring for mapping reports of one CPU, bytes. It holds some 400 reports, of all
/// processes.
pub const REPORTS_RING: usize = 64 << 10;

/// Returns the attributes of an event that takes no samples. It reports what all processes map
/// executable on its CPU.
pub fn reports_attr(attr: &sys::perf_event_attr) -> sys::perf_event_attr {
    let mut reports = holder_attr(attr);
    reports.sample_type &= SAMPLE_ID_TYPE;
    reports.sample_regs_user = 0;
    reports.sample_stack_user = 0;
    reports.sample_max_stack = 0;
    reports.read_format = 0;
    reports.set_exclude_callchain_user(0);
    reports.set_disabled(0);
    report_code(&mut reports);
    reports.__bindgen_anon_2.wakeup_watermark = (REPORTS_RING / 2) as u32;
    reports
}

/// Finds the scope and attributes that the kernel accepts, by opening events.
pub fn probe(tid: u32, cpu: u32, dump: usize) -> io::Result<(Scope, sys::perf_event_attr)> {
    let mut attr = base_attr(dump);
    if let Ok(attr) = first_accepted(attr, -1, cpu) {
        return Ok((Scope::Everything, attr));
    }
    attr.set_inherit(1);
    attr.set_inherit_thread(1);
    report_code(&mut attr);
    first_accepted(attr, tid as i32, cpu)
        .or_else(|_| {
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
            first_accepted(attr, tid as i32, cpu)
        })
        .map(|attr| (Scope::Threads, attr))
}

/// Returns the widest scope that is permitted for a thread (0: the calling one), and whether
/// samples include kernel frames. Leaves nothing open.
pub fn permitted(tid: u32) -> io::Result<(Scope, bool)> {
    let cpu = online_cpus()?.first().copied().unwrap_or(0);
    probe(tid, cpu, dump_bytes(SMALLEST_RING))
        .map(|(scope, attr)| (scope, attr.exclude_kernel() == 0))
}

/// Opens the event with ever fewer attributes: without the lost count (Linux 6.0), then also
/// without inheritance by threads only (5.13).
fn first_accepted(
    attr: sys::perf_event_attr,
    pid: i32,
    cpu: u32,
) -> io::Result<sys::perf_event_attr> {
    let mut without_lost = attr;
    without_lost.read_format = 0;
    let mut oldest = without_lost;
    oldest.set_inherit_thread(0);
    let mut refusal = io::Error::from_raw_os_error(libc::EINVAL);
    for attr in [attr, without_lost, oldest] {
        match open_event(&attr, pid, cpu) {
            Ok(_) => return Ok(attr),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::E2BIG)) => refusal = e,
            Err(e) => return Err(e),
        }
    }
    Err(refusal)
}

pub fn open_event(attr: &sys::perf_event_attr, pid: i32, cpu: u32) -> io::Result<OwnedFd> {
    let mut attr = *attr;
    // SAFETY: `attr` is a filled perf_event_attr of its own `size`; the kernel copies it (and may
    // write its size back).
    let fd = unsafe {
        perf_event_open(
            &raw mut attr,
            pid,
            cpu as i32,
            -1,
            u64::from(sys::PERF_FLAG_FD_CLOEXEC) as libc::c_ulong,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that no other code owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Limits an event to samples for which the BPF program `filter` returns 1.
pub fn set_filter(event: &OwnedFd, filter: RawFd) -> io::Result<()> {
    // SAFETY: an ioctl on our own event; the argument is a descriptor's number.
    let result = unsafe { ioctls::SET_BPF(event.as_raw_fd(), filter as u32) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub fn enable(event: &OwnedFd, on: bool) {
    // SAFETY: an ioctl without argument on our own event.
    unsafe {
        if on {
            ioctls::ENABLE(event.as_raw_fd(), 0)
        } else {
            ioctls::DISABLE(event.as_raw_fd(), 0)
        };
    }
}

/// Returns the kernel's count of samples that found the ring full: { value, lost } with
/// PERF_FORMAT_LOST, else 0. A full ring often writes no LOST record, so this count is reliable.
pub fn lost_of(event: &OwnedFd) -> u64 {
    let mut words = [0; 16];
    match rustix::io::read(event, &mut words) {
        Ok(16) => u64::from_ne_bytes(words[8..].try_into().unwrap_or_default()),
        _ => 0,
    }
}
