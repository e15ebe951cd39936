//! The backend `ptrace`: on-CPU samples where perf is forbidden. It stops one running thread at a
//! time for microseconds, copies registers and stack, resumes it, and then walks the copy. It never
//! stops a thread known to be blocked, and never the whole process. It never uses PTRACE_ATTACH or
//! SIGSTOP: if a tracer dies after PTRACE_SEIZE, no thread stays stopped.
//!
//! It does not use remoteprocess' `ThreadLock` (0.5.5), for three reasons. That one's waitpid has
//! no time limit, so a thread in D state would block the caller for ever. An interrupted waitpid
//! leaves the thread seized with its stop still to come, and without a tracer to resume it. And it
//! takes the exit status of our own child (`-- COMMAND`) away from the code that has to report it.
//! Here wait takes nothing but zombies of threads.
//!
//! The kernel ties a tracee to the thread that seized it. So all of this runs on one helper thread,
//! and the sampler never waits for it.

#![expect(unsafe_code, reason = "ptrace and waitid")]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustc_hash::FxHashSet;

use crate::capture::stack_reader::StackReader;
use crate::clock::{monotonic, thread_cpu};
use crate::model::vocabulary::frame::{Ns, RawFrame};
use crate::process::memory::Memory;
use crate::process::threads::Tasks;
use crate::unwinder::{Registers, Walk};

/// Maximum wait for a stop, ns. A thread without a core, or in D state, may stop later; it is
/// resumed then.
const MAX_STOP_WAIT: Ns = 20_000_000;
/// Time between two checks of a thread that has not stopped yet, ns. It is the precision of the
/// measured stop time. The helper sleeps in between, and a stop wakes it at once. Where cores are
/// short, polling would take the very core that the thread needs in order to stop.
const STOP_CHECK_INTERVAL: Ns = 200_000;
/// Time between two checks of threads that had not stopped in time.
const LATE_STOP_CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum threads that wait to be stopped: about one tick's worth.
const QUEUE: usize = 64;

/// Event of a stop that we asked for, as wait reports it.
const EVENT_STOP: i32 = 128;

/// A sample of a running thread.
pub struct Caught {
    pub at: Ns,
    pub stack: CaughtStack,
}

pub enum CaughtStack {
    /// Bytes from rsp upwards, to be walked after the thread was resumed.
    Copied { registers: Registers, bytes: Vec<u8> },
    /// Walked while the thread was stopped, as libunwind requires.
    Walked { frames: Vec<RawFrame>, walk: Walk },
}

/// Walks a thread that the calling thread has stopped by ptrace; appends its frames.
pub type WalkStopped = Box<dyn FnMut(u32, &mut Vec<RawFrame>) -> Walk>;
/// Makes a walker for a process, on the thread that uses it.
pub type MakeWalkStopped = Arc<dyn Fn(u32) -> WalkStopped + Send + Sync>;

/// Result of a request.
pub struct Outcome {
    pub tid: u32,
    /// `None`: the thread no longer ran, or did not stop in time.
    pub caught: Option<Caught>,
    /// Upper bound of the stop time, ns; `None` if it was not stopped.
    pub stopped: Option<Ns>,
    /// The thread was inside a system call.
    pub in_call: bool,
    /// CPU time of the helper since the last outcome, ns.
    pub cpu: Ns,
}

/// Counts since the backend was opened.
#[derive(Clone, Default)]
pub struct StopCounts {
    pub stops: u64,
    pub in_call: u64,
    /// CPU time of the helper thread, ns.
    pub cpu: Ns,
    durations: Durations,
}

impl StopCounts {
    pub fn add(&mut self, outcome: &Outcome) {
        self.cpu += outcome.cpu;
        if let Some(stopped) = outcome.stopped {
            self.stops += 1;
            self.in_call += u64::from(outcome.in_call);
            self.durations.add(stopped);
        }
    }

    pub fn p99(&self) -> Ns {
        self.durations.quantile(0.99)
    }
}

/// The sampler's handle of the helper thread.
pub struct Stopper {
    requests: Option<Sender<u32>>,
    outcomes: Receiver<Outcome>,
    queued: FxHashSet<u32>,
    thread: Option<JoinHandle<()>>,
}

impl Stopper {
    /// Starts the helper. `wake` is written to whenever there is an outcome. `own_child`: other
    /// code of ours waits for the target's exit status. `walk`: walk while the thread is stopped,
    /// instead of copying its stack.
    pub fn start(
        pid: u32,
        own_child: bool,
        wake: Arc<OwnedFd>,
        walk: Option<MakeWalkStopped>,
    ) -> std::io::Result<Stopper> {
        let (requests, orders) = channel();
        let (results, outcomes) = channel();
        let helper = Helper {
            pid,
            own_child,
            tasks: Tasks::open(pid, 0)?,
            stacks: StackReader::new(Memory::new(pid)),
            seized: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("stopper".into())
            .spawn(move || helper.run(orders, results, wake, walk))?;
        Ok(Stopper {
            requests: Some(requests),
            outcomes,
            queued: FxHashSet::default(),
            thread: Some(thread),
        })
    }

    /// Requests a sample of a thread that was seen running. Does nothing if the thread is still
    /// queued.
    pub fn request(&mut self, tid: u32) {
        if self.queued.len() < QUEUE
            && self.queued.insert(tid)
            && let Some(requests) = &self.requests
        {
            let _ = requests.send(tid);
        }
    }

    /// Returns the next outcome, if there is one.
    pub fn outcome(&mut self) -> Option<Outcome> {
        let outcome = self.outcomes.try_recv().ok()?;
        self.queued.remove(&outcome.tid);
        Some(outcome)
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        // The helper ends when its requests disconnect; it resumes seized threads first.
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Helper {
    pid: u32,
    own_child: bool,
    tasks: Tasks,
    stacks: StackReader,
    /// Threads that were seized and had not stopped in time.
    seized: Vec<u32>,
}

/// State of a seized thread.
enum SeizedState {
    StillRunning,
    /// To be resumed with this signal (0: none).
    Stopped {
        signal: i32,
    },
    Dead,
}

impl Helper {
    fn run(
        mut self,
        orders: Receiver<u32>,
        results: Sender<Outcome>,
        wake: Arc<OwnedFd>,
        make_walk: Option<MakeWalkStopped>,
    ) {
        let mut walk = make_walk.map(|make| make(self.pid));
        let mut cpu = 0;
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
        let alarm = Alarm::new();
        loop {
            let order = if self.seized.is_empty() {
                orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                orders.recv_timeout(LATE_STOP_CHECK_INTERVAL)
            };
            self.resume_late_stops();
            match order {
                Ok(tid) => {
                    let mut outcome = self.sample(tid, walk.as_mut(), alarm.as_ref());
                    outcome.cpu = thread_cpu() - cpu;
                    cpu += outcome.cpu;
                    if results.send(outcome).is_err() {
                        break;
                    }
                    let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // The kernel releases the remaining ones when this thread ends (exit_ptrace).
        self.resume_late_stops();
    }

    fn sample(
        &mut self,
        tid: u32,
        walk: Option<&mut WalkStopped>,
        alarm: Option<&Alarm>,
    ) -> Outcome {
        let mut outcome = Outcome { tid, caught: None, stopped: None, in_call: false, cpu: 0 };
        let mut files = self.tasks.thread(tid);
        let running = self.tasks.stat(&mut files).is_ok_and(|stat| stat.state == b'R');
        if !running || self.seized.contains(&tid) || !seize(tid) {
            return outcome;
        }
        interrupt(tid);
        let begin = monotonic();
        let mut last_running = begin;
        let _ringing = alarm.map(Alarm::ring);
        loop {
            match self.seized_state(tid, alarm.is_some()) {
                SeizedState::StillRunning => {}
                SeizedState::Stopped { signal } => {
                    let registers = read_registers(tid);
                    let at = monotonic();
                    let mut learn = None;
                    if let Some((registers, in_call, interrupted)) = registers {
                        outcome.in_call = in_call;
                        // A thread whose call was interrupted by the stop was waiting, not running.
                        if !interrupted {
                            outcome.caught =
                                Some(Caught { at, stack: self.take_stack(tid, registers, walk) });
                            learn = Some(registers.rsp);
                        }
                    }
                    resume(tid, signal);
                    outcome.stopped = Some(monotonic() - last_running);
                    if let Some(sp) = learn {
                        // Mappings are only read while no thread is stopped.
                        self.stacks.learn(sp);
                    }
                    break;
                }
                SeizedState::Dead => break,
            }
            let checked_at = monotonic();
            if checked_at - begin > MAX_STOP_WAIT {
                self.seized.push(tid);
                break;
            }
            last_running = checked_at;
            if alarm.is_none() {
                std::thread::sleep(Duration::from_nanos(STOP_CHECK_INTERVAL));
            }
        }
        outcome
    }

    fn take_stack(
        &mut self,
        tid: u32,
        registers: Registers,
        walk: Option<&mut WalkStopped>,
    ) -> CaughtStack {
        match walk {
            Some(walk) => {
                let mut frames = Vec::new();
                let walk = walk(tid, &mut frames);
                CaughtStack::Walked { frames, walk }
            }
            None => CaughtStack::Copied {
                registers,
                bytes: self.stacks.copy_known(registers.rsp).to_vec(),
            },
        }
    }

    /// Resumes threads that stopped after the maximum wait.
    fn resume_late_stops(&mut self) {
        let seized = std::mem::take(&mut self.seized);
        for tid in seized {
            match self.seized_state(tid, false) {
                SeizedState::StillRunning => self.seized.push(tid),
                SeizedState::Stopped { signal } => resume(tid, signal),
                SeizedState::Dead => {}
            }
        }
    }

    /// Returns the state of a seized thread. `sleep`: wait until it stops, or the alarm rings.
    fn seized_state(&self, tid: u32, sleep: bool) -> SeizedState {
        // WNOWAIT leaves the status for other code in this process that waits for its child.
        let at_once = if sleep { 0 } else { libc::WNOHANG };
        let (code, status) =
            match wait(tid, libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | at_once) {
                Ok(Some(change)) => change,
                Ok(None) | Err(libc::EINTR) => return SeizedState::StillRunning,
                Err(_) => {
                    return if exists(self.pid, tid) {
                        SeizedState::StillRunning
                    } else {
                        SeizedState::Dead
                    };
                }
            };
        if code != libc::CLD_TRAPPED && code != libc::CLD_STOPPED {
            // A traced thread stays a zombie until its tracer has waited for it. The leader's
            // status belongs to its parent; if that is us, the code that started it takes it.
            if !(self.own_child && tid == self.pid) {
                let _ = wait(tid, libc::WEXITED | libc::WNOHANG);
            }
            return SeizedState::Dead;
        }
        let (signal, event) = (status & 0xff, status >> 8);
        // Our stop, or a stop of the whole process, which needs no signal to continue. Otherwise a
        // signal was about to be delivered, and is passed on.
        SeizedState::Stopped { signal: if event == EVENT_STOP { 0 } else { signal } }
    }
}

fn exists(pid: u32, tid: u32) -> bool {
    rustix::fs::access(format!("/proc/{pid}/task/{tid}"), rustix::fs::Access::EXISTS).is_ok()
}

/// Calls waitid on one traced thread. Returns (si_code, si_status).
fn wait(tid: u32, options: i32) -> Result<Option<(i32, i32)>, i32> {
    // SAFETY: siginfo_t is plain data, and the kernel only writes to it.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        if libc::waitid(libc::P_PID, tid, &mut info, options | libc::__WALL) != 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        Ok((info.si_pid() != 0).then(|| (info.si_code, info.si_status())))
    }
}

/// Returns whether ptrace is permitted at all. It tries a thread id that cannot exist: only a
/// filter of system calls answers anything else than "no such process".
pub fn permitted() -> bool {
    /// Above the largest thread id (PID_MAX_LIMIT, 2^22).
    const NO_PROCESS: u32 = 1 << 23;
    !seize(NO_PROCESS) && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// A timer that interrupts system calls of the thread that made it: waitid has no time limit.
struct Alarm {
    timer: libc::timer_t,
}

/// Rings every [`STOP_CHECK_INTERVAL`] until dropped, because a ring between two calls has no
/// effect.
struct Ringing<'a>(&'a Alarm);

impl Alarm {
    /// Makes an alarm. Returns `None` if the kernel has no timer left for us.
    fn new() -> Option<Alarm> {
        extern "C" fn ring(_: libc::c_int) {}
        let signal = libc::SIGRTMIN() + 4;
        // SAFETY: all of these are plain data that the kernel copies. The handler does nothing; it
        // exists because a signal without one would end the process. The timer signals this thread
        // only.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            // Without SA_RESTART, because the signal has to interrupt calls.
            action.sa_sigaction = ring as *const () as libc::sighandler_t;
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut mask);
            libc::sigaddset(&mut mask, signal);
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = std::mem::zeroed();
            let made = libc::sigaction(signal, &action, std::ptr::null_mut()) == 0
                && libc::pthread_sigmask(libc::SIG_UNBLOCK, &mask, std::ptr::null_mut()) == 0
                && libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) == 0;
            made.then_some(Alarm { timer })
        }
    }

    fn ring(&self) -> Ringing<'_> {
        self.set(STOP_CHECK_INTERVAL);
        Ringing(self)
    }

    fn set(&self, period: Ns) {
        let time = libc::timespec { tv_sec: 0, tv_nsec: period as i64 };
        let spec = libc::itimerspec { it_interval: time, it_value: time };
        // SAFETY: our own timer; the kernel copies `spec`.
        unsafe { libc::timer_settime(self.timer, 0, &spec, std::ptr::null_mut()) };
    }
}

impl Drop for Ringing<'_> {
    fn drop(&mut self) {
        self.0.set(0);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: our own timer, not used afterwards.
        unsafe { libc::timer_delete(self.timer) };
    }
}

fn seize(tid: u32) -> bool {
    // SAFETY: PTRACE_SEIZE touches no memory of ours. Without options it does not affect the thread
    // by itself.
    unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid as libc::pid_t, 0usize, 0usize) == 0 }
}

fn interrupt(tid: u32) {
    // SAFETY: touches no memory of ours.
    unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, tid as libc::pid_t, 0usize, 0usize) };
}

fn resume(tid: u32, signal: i32) {
    // SAFETY: touches no memory of ours.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, tid as libc::pid_t, 0usize, signal as usize) };
}

/// Returns the registers of a stopped thread, whether it is inside a system call, and whether the
/// stop interrupted that call.
fn read_registers(tid: u32) -> Option<(Registers, bool, bool)> {
    // SAFETY: user_regs_struct is plain data of the size that the kernel writes.
    let r = unsafe {
        let mut r: libc::user_regs_struct = std::mem::zeroed();
        if libc::ptrace(libc::PTRACE_GETREGS, tid as libc::pid_t, 0usize, &raw mut r) != 0 {
            return None;
        }
        r
    };
    let general = [
        r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14,
        r.r15,
    ];
    let registers =
        Registers { rip: r.rip, rsp: r.rsp, rbp: Some(r.rbp), general, general_known: true };
    let in_call = r.orig_rax as i64 >= 0;
    // EINTR, ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK
    // (include/linux/errno.h).
    let interrupted = in_call && matches!(r.rax as i64, -4 | -512 | -513 | -514 | -516);
    Some((registers, in_call, interrupted))
}

/// Histogram of stop times, with eight classes per power of two: a quantile is precise to 12 %.
#[derive(Clone)]
struct Durations {
    classes: [u64; 512],
    total: u64,
}

impl Default for Durations {
    fn default() -> Durations {
        Durations { classes: [0; 512], total: 0 }
    }
}

impl Durations {
    fn add(&mut self, duration: Ns) {
        self.classes[class(duration)] += 1;
        self.total += 1;
    }

    /// Returns the upper end of the class that holds the quantile; 0 without any stop.
    fn quantile(&self, q: f64) -> Ns {
        let rank = (self.total as f64 * q).ceil() as u64;
        let mut below = 0;
        for (index, count) in self.classes.iter().enumerate() {
            below += count;
            if below >= rank && *count > 0 {
                return lower_end(index + 1);
            }
        }
        0
    }
}

fn class(duration: Ns) -> usize {
    if duration < 8 {
        return duration as usize;
    }
    let power = duration.ilog2() as usize;
    (power - 2) * 8 + (duration >> (power - 3) & 7) as usize
}

fn lower_end(class: usize) -> Ns {
    if class < 8 {
        return class as Ns;
    }
    let power = class / 8 + 2;
    ((8 + class % 8) as u128)
        .checked_shl(power as u32 - 3)
        .map_or(Ns::MAX, |end| end.min(u128::from(Ns::MAX)) as Ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_an_eighth() {
        let mut durations = Durations::default();
        assert_eq!(durations.quantile(0.99), 0);
        for duration in 1..=10_000u64 {
            durations.add(duration);
        }
        let p99 = durations.quantile(0.99);
        assert!((9_900..=9_900 * 9 / 8).contains(&p99), "{p99}");
        durations.add(Ns::MAX);
        assert_eq!(durations.quantile(1.0), Ns::MAX);
    }

    #[test]
    fn every_duration_lies_in_its_class() {
        for shift in 0..64 {
            for duration in [
                1u64 << shift,
                (1 << shift) + 1,
                (1u64 << shift).wrapping_sub(1),
                u64::MAX >> shift,
            ] {
                let class = class(duration);
                assert!(lower_end(class) <= duration, "{duration}");
                assert!(
                    duration < lower_end(class + 1) || lower_end(class + 1) == Ns::MAX,
                    "{duration}"
                );
            }
        }
    }
}
