//! The forked child between fork and exec. It drops the rights that its caller does not have,
//! creates its session, opens its output, and waits at the gate. Nothing here may allocate or take
//! a lock: at the fork, other threads of the parent may have held any lock.

#![expect(unsafe_code, reason = "fork, and what is allowed between fork and exec")]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::RawFd;

use rustix::process::Pid;

/// The child's parameters, built before the fork: between fork and exec it must not allocate.
pub(super) struct ChildPlan<'a> {
    pub(super) path: &'a CString,
    /// The name the kernel gives it at its exec; set now, so that it does not bear sampletop's
    /// name.
    pub(super) name: &'a CStr,
    /// Ends in a null pointer.
    pub(super) argv: &'a [*const libc::c_char],
    /// `NAME=VALUE`; ends in a null pointer.
    pub(super) environment: &'a [*const libc::c_char],
    /// `None`: sampletop's own stdin.
    pub(super) stdin: Option<RawFd>,
    pub(super) output: ChildOutput,
    pub(super) file: Option<&'a CStr>,
    /// The user and group that own the output file under sudo.
    pub(super) owner: Option<(u32, u32)>,
    pub(super) gate: RawFd,
    pub(super) gate_write: RawFd,
    pub(super) report: RawFd,
    /// This program has rights that its caller does not have (file capabilities).
    pub(super) privileged: bool,
    /// The exec must not give it more rights, whatever capabilities the file has.
    pub(super) gains_nothing: bool,
}

pub(super) enum ChildOutput {
    Inherit,
    Descriptor(RawFd),
}

/// The step that the child was at: first number of its report; the second is errno.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(super) enum Stage {
    Held = 0,
    Rights = 1,
    Session = 2,
    Output = 3,
    Exec = 4,
}

impl Stage {
    fn from_number(n: i32) -> Stage {
        [Stage::Held, Stage::Rights, Stage::Session, Stage::Output]
            .into_iter()
            .find(|s| *s as i32 == n)
            .unwrap_or(Stage::Exec)
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Stage::Held => "holding it",
            Stage::Rights => "giving up rights",
            Stage::Session => "making its session",
            Stage::Output => "redirecting its output",
            Stage::Exec => "exec",
        }
    }
}

/// Forks the child, which runs until it waits at the gate; returns in the parent.
pub(super) fn fork(plan: &ChildPlan<'_>) -> io::Result<Pid> {
    // SAFETY: sigset_t is plain data; the calls fill and install signal sets of this thread only.
    // All signals are blocked across the fork, so that no handler of ours (which writes to a pipe
    // we share) runs in the child. The child calls only async-signal-safe functions and leaves by
    // exec or _exit.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let pid = libc::fork();
        if pid == 0 {
            run_child(plan);
        }
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        Pid::from_raw(pid).filter(|_| pid > 0).ok_or(error)
    }
}

/// SAFETY: only in a forked child, once, with all signals blocked.
unsafe fn run_child(plan: &ChildPlan<'_>) -> ! {
    // SAFETY: async-signal-safe libc calls on descriptors and strings that `plan` keeps valid; no
    // allocation, no locks.
    unsafe {
        libc::close(plan.gate_write); // or its own copy would keep the gate open
        reset_signals();
        libc::prctl(libc::PR_SET_NAME, plan.name.as_ptr(), 0, 0, 0);
        if plan.privileged && !drop_rights() {
            fail(plan, Stage::Rights);
        }
        if plan.gains_nothing && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            fail(plan, Stage::Rights);
        }
        if libc::setsid() < 0 {
            fail(plan, Stage::Session);
        }
        let output = match (plan.file, &plan.output) {
            (Some(path), _) => {
                let flags = libc::O_WRONLY
                    | libc::O_CREAT
                    | libc::O_EXCL
                    | libc::O_NOFOLLOW
                    | libc::O_CLOEXEC;
                let fd = libc::open(path.as_ptr(), flags, 0o600 as libc::c_uint);
                if fd < 0 {
                    fail(plan, Stage::Output);
                }
                if let Some((uid, gid)) = plan.owner {
                    libc::fchown(fd, uid, gid); // root may; if not, the file stays root's
                }
                Some(fd)
            }
            (None, ChildOutput::Descriptor(fd)) => Some(*fd),
            (None, ChildOutput::Inherit) => None,
        };
        if let Some(stdin) = plan.stdin
            && libc::dup2(stdin, 0) < 0
        {
            fail(plan, Stage::Output);
        }
        if let Some(fd) = output
            && (libc::dup2(fd, 1) < 0 || libc::dup2(fd, 2) < 0)
        {
            fail(plan, Stage::Output);
        }
        report(plan, Stage::Held, 0);
        let mut byte = 0u8;
        loop {
            match libc::read(plan.gate, (&raw mut byte).cast(), 1) {
                1 => break,
                // The gate closed: sampletop gave up or died.
                0 => libc::_exit(125),
                _ if *libc::__errno_location() == libc::EINTR => {}
                _ => libc::_exit(125),
            }
        }
        // execvpe only for its fallback to /bin/sh for scripts without `#!`: the path contains a
        // slash.
        libc::execvpe(plan.path.as_ptr(), plan.argv.as_ptr(), plan.environment.as_ptr());
        fail(plan, Stage::Exec)
    }
}

/// Resets handlers to the default; ignored signals stay ignored (nohup). SIGPIPE, which Rust
/// ignores, gets the default again. Unblocks all signals.
unsafe fn reset_signals() {
    // SAFETY: sigaction with valid structures; failures (SIGKILL, numbers libc reserves) change
    // nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        for signal in 1..=libc::SIGRTMAX() {
            let asked = libc::sigaction(signal, std::ptr::null(), &mut action) == 0;
            if asked && (action.sa_sigaction != libc::SIG_IGN || signal == libc::SIGPIPE) {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, std::ptr::null_mut());
            }
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Drops to the caller's rights: its real ids, and no permitted or effective capabilities until the
/// exec computes them anew. The inheritable set is the caller's own, as exec never adds to it. The
/// kernel emptied the ambient set when it gave this program its rights. Then it makes the process
/// dumpable, so that the caller may inspect it like its own processes. The memory of a program with
/// added rights is closed to the caller, and a fork inherits that.
unsafe fn drop_rights() -> bool {
    // SAFETY: plain system calls on this single-threaded child; the structures are as capset(2)
    // lays them out (version 3, two words each).
    unsafe {
        let (uid, gid) = (libc::getuid(), libc::getgid());
        if libc::setresgid(gid, gid, gid) != 0 || libc::setresuid(uid, uid, uid) != 0 {
            return false;
        }
        if uid == 0 {
            return true;
        }
        let header = [0x2008_0522_u32, 0]; // _LINUX_CAPABILITY_VERSION_3, this thread
        let mut sets = [0u32; 6]; // effective, permitted, inheritable; twice
        if libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) != 0 {
            return false;
        }
        for at in [0, 1, 3, 4] {
            sets[at] = 0;
        }
        libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) == 0
            && libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) == 0
    }
}

unsafe fn report(plan: &ChildPlan<'_>, stage: Stage, errno: i32) {
    let words = [stage as i32, errno];
    // SAFETY: writes eight bytes of a local array; a pipe takes them whole.
    unsafe { libc::write(plan.report, words.as_ptr().cast(), 8) };
}

unsafe fn fail(plan: &ChildPlan<'_>, stage: Stage) -> ! {
    // SAFETY: errno is this thread's; _exit runs nothing of the parent's.
    unsafe {
        report(plan, stage, *libc::__errno_location());
        libc::_exit(125)
    }
}

/// Reads the child's report, in the parent. `None`: the child closed its end without a report.
pub(super) fn read_report(pipe: &mut File) -> Option<(Stage, io::Error)> {
    let mut bytes = [0u8; 8];
    pipe.read_exact(&mut bytes).ok()?;
    let word =
        |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Some((Stage::from_number(word(0)), io::Error::from_raw_os_error(word(4))))
}

/// Whether this program has rights that its caller does not have: file capabilities or set-user-id.
pub(super) fn privileged() -> bool {
    // SAFETY: reads a constant the kernel passed to this process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
