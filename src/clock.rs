//! The kernel's clocks, in ns. The pure modules get their times as arguments.

use rustix::time::{ClockId, clock_gettime};

use crate::model::vocabulary::frame::{Ns, SECOND};

/// Returns CLOCK_MONOTONIC: records, stacks and intervals are dated by it.
pub fn monotonic() -> Ns {
    read(ClockId::Monotonic)
}

/// Returns the wall clock, since 1970.
pub fn realtime() -> Ns {
    read(ClockId::Realtime)
}

/// Returns CLOCK_BOOTTIME, which goes on while the machine sleeps: start times of processes.
pub fn boottime() -> Ns {
    read(ClockId::Boottime)
}

/// Returns the CPU time of the calling thread.
#[inline]
pub fn thread_cpu() -> Ns {
    read(ClockId::ThreadCPUTime)
}

/// Returns the CPU time of this process.
pub fn process_cpu() -> Ns {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Ns {
    let time = clock_gettime(clock);
    time.tv_sec.unsigned_abs().saturating_mul(SECOND).saturating_add(time.tv_nsec.unsigned_abs())
}

/// Returns the CPU time of all threads of another process, exited ones included; `None` once its
/// parent has waited for it. The id of a clock is made of the pid (Linux, posix-timers.h):
/// complement, three bits left, and 2 for "as the scheduler counts". The C library's
/// clock_getcpuclockid makes the same, after a system call that checks it.
pub fn cpu_of_process(pid: u32) -> Option<Ns> {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0)?;
    cpu_of((!pid << 3) | 2)
}

/// Returns the CPU time of another thread of this process, if there is one. Its clock id is made in
/// the same way, with 4 for "one thread".
pub fn cpu_of_thread(tid: i32) -> Option<Ns> {
    (tid > 0).then(|| cpu_of((!tid << 3) | 6)).flatten()
}

/// Reads the clock of a task: rustix supports only clocks that have a name.
fn cpu_of(clock: libc::clockid_t) -> Option<Ns> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    let read = unsafe { libc::clock_gettime(clock, &mut time) } == 0;
    read.then(|| time.tv_sec.unsigned_abs() * SECOND + time.tv_nsec.unsigned_abs())
}
