//! Identity of a target (pid, start time, pidfd), and whether the user may observe it.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags};

use crate::clock;
use crate::exit_code::{ExitCode, Failure};
use crate::model::vocabulary::text;
use crate::process::{cgroup, privileges};

/// Why a process cannot be watched. `Display` is one sentence with the fix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttachError {
    NoSuchProcess {
        pid: u32,
    },
    /// The number is that of a thread.
    ThreadOf {
        tid: u32,
        pid: u32,
    },
    /// Another user's, or the kernel refuses; `fix` is what to do.
    NotPermitted {
        pid: u32,
        why: String,
        fix: String,
    },
    /// Zombie, kernel thread, 32-bit, sampletop itself.
    CannotProfile {
        pid: u32,
        why: String,
    },
    /// It exited before any sample.
    EndedEarly {
        pid: u32,
    },
    /// sampletop's own failure.
    Internal {
        what: String,
    },
}

impl AttachError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            AttachError::NoSuchProcess { .. } | AttachError::ThreadOf { .. } => {
                ExitCode::NoSuchProcess
            }
            AttachError::NotPermitted { .. } => ExitCode::NotPermitted,
            AttachError::CannotProfile { .. } => ExitCode::CannotProfile,
            AttachError::EndedEarly { .. } => ExitCode::EndedEarly,
            AttachError::Internal { .. } => ExitCode::Failed,
        }
    }
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Failure {
        Failure::new(error.exit_code(), error.to_string())
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::NoSuchProcess { pid } => {
                write!(f, "no process has the pid {pid}; check it with `ps -p {pid}`")
            }
            AttachError::ThreadOf { tid, pid } => {
                write!(
                    f,
                    "no process has the pid {tid}: it is a thread of process {pid}; use `-p {pid}`"
                )
            }
            AttachError::NotPermitted { pid, why, fix } => {
                write!(f, "not permitted to profile process {pid}: {why}; {fix}")
            }
            AttachError::CannotProfile { pid, why } => {
                write!(f, "process {pid} cannot be profiled: {why}")
            }
            AttachError::EndedEarly { pid } => {
                write!(
                    f,
                    "process {pid} ended before any sample was taken; start it under sampletop with `-- COMMAND`"
                )
            }
            AttachError::Internal { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for AttachError {}

/// Maximum bytes kept of a command line.
const COMMAND_MAX: usize = 1024;
/// Maximum bytes read of a file of /proc that is normally far shorter.
const PROC_MAX: u64 = 64 << 10;

/// A process that is watched, identified by its pidfd and start time.
#[derive(Debug)]
pub struct Target {
    pid: u32,
    pidfd: OwnedFd,
    start: u64,
    uid: u32,
    command: String,
    unit: Option<String>,
    started_unix_ns: i128,
}

impl Target {
    /// Checks who `pid` is and whether it can and may be profiled. Nothing of the target is changed
    /// or stopped.
    pub fn attach(pid: u32) -> Result<Target, AttachError> {
        if pid == 0 || i32::try_from(pid).is_err() {
            return Err(AttachError::NoSuchProcess { pid });
        }
        if pid == std::process::id() {
            return Err(AttachError::CannotProfile { pid, why: "it is sampletop itself".into() });
        }
        refuse_setuid(pid)?;
        check_proc()?;
        // From here on the descriptor identifies the process: the pid may be reused at any time.
        let pidfd = pid_descriptor(pid)?;
        let stat = Stat::read(pid).map_err(|_| ended_or_hidden(pid, &pidfd))?;
        let status = Status::read(pid).map_err(|_| ended_or_hidden(pid, &pidfd))?;
        if status.tgid != pid {
            return Err(if status.tgid == std::process::id() {
                AttachError::CannotProfile { pid, why: "it is a thread of sampletop itself".into() }
            } else {
                AttachError::ThreadOf { tid: pid, pid: status.tgid }
            });
        }
        check_kind(pid, &stat)?;
        may_observe(pid, &status)?;
        check_word_size(pid)?;
        let target = Target {
            pid,
            pidfd,
            start: stat.start,
            uid: status.uids[0],
            command: command_of(pid).unwrap_or_else(|| format!("[{}]", stat.comm)),
            unit: cgroup::unit_of(pid),
            started_unix_ns: unix_ns_of(stat.start),
        };
        // Everything was read by pid. If it is still the same process, all of it belonged to that.
        match Stat::read(pid) {
            Ok(now) if now.start == target.start && target.alive() => Ok(target),
            _ => Err(AttachError::EndedEarly { pid }),
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the start time, clock ticks since boot.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the real user id it runs as.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the command line, cleaned and capped; `[name]` where there is none.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Returns the systemd unit, else the cgroup's path, if that is not the root.
    pub fn unit(&self) -> Option<&str> {
        self.unit.as_deref()
    }

    /// Returns the wall-clock start, ns since 1970.
    pub fn started_unix_ns(&self) -> i128 {
        self.started_unix_ns
    }

    /// Returns a descriptor that becomes readable when every thread of the process has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Whether a thread still lives; false for a zombie that was not waited for.
    pub fn alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(
            rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })),
            Ok(0)
        )
    }

    /// Checks the permission again after the target's exec: it may have become another user's.
    pub fn still_permitted(&self) -> Result<(), AttachError> {
        let status =
            Status::read(self.pid).map_err(|_| AttachError::EndedEarly { pid: self.pid })?;
        may_observe(self.pid, &status)?;
        check_word_size(self.pid)
    }

    /// Returns the cores it may use, in thousandths: its CPU affinity or the quota of its cgroups,
    /// whichever is less.
    pub fn cores_allowed(&self) -> u64 {
        let affinity = i32::try_from(self.pid)
            .ok()
            .and_then(Pid::from_raw)
            .and_then(|pid| rustix::thread::sched_getaffinity(Some(pid)).ok())
            .map(|set| u64::from(set.count()) * 1000);
        let machine = std::thread::available_parallelism().map_or(1, |n| n.get() as u64) * 1000;
        let affinity = affinity.unwrap_or(machine);
        cgroup::quota_of(self.pid).map_or(affinity, |quota| affinity.min(quota.max(1)))
    }
}

/// Whether `pid` may be observed now, without a [`Target`]; see [`Target::still_permitted`].
pub fn permitted(pid: u32) -> bool {
    Status::read(pid).is_ok_and(|status| may_observe(pid, &status).is_ok())
}

/// Returns a thread of `pid` that has memory: the leader, unless that is a zombie while others live
/// on. `None` if none has.
pub fn thread_with_memory(pid: u32) -> Option<u32> {
    if Stat::read(pid).is_ok_and(|stat| !stat.dead()) {
        return Some(pid);
    }
    /// Maximum threads that are tried.
    const ASKED: usize = 1024;
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    threads
        .take(ASKED)
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .find(|tid| *tid != pid && Stat::read(*tid).is_ok_and(|stat| !stat.dead()))
}

/// Fields of `/proc/PID/stat` that are used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    pub comm: String,
    pub state: u8,
    pub flags: u64,
    pub threads: u64,
    /// Clock ticks since boot.
    pub start: u64,
}

impl Stat {
    fn read(pid: u32) -> io::Result<Stat> {
        let text = read_proc(&format!("/proc/{pid}/stat"))?;
        Stat::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub fn parse(text: &[u8]) -> Option<Stat> {
        // The name is in parentheses and may contain any byte: the last `)` ends it.
        let open = text.iter().position(|b| *b == b'(')?;
        let close = text.iter().rposition(|b| *b == b')')?;
        let comm = text::clean_bytes(text.get(open + 1..close)?, 64);
        let rest = std::str::from_utf8(&text[close + 1..]).ok()?;
        // proc(5) counts from 1, the pid; the state is field 3.
        let fields: Vec<&str> = rest.split_ascii_whitespace().take(22).collect();
        let field = |n: usize| fields.get(n - 3).copied();
        Some(Stat {
            comm,
            state: *field(3)?.as_bytes().first()?,
            flags: field(9)?.parse().ok()?,
            threads: field(20)?.parse().ok()?,
            start: field(22)?.parse().ok()?,
        })
    }

    /// Whether this is a zombie, or about to exit.
    fn dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// Fields of `/proc/PID/status` that are used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    pub tgid: u32,
    /// Real, effective, saved, file system.
    pub uids: [u32; 4],
    pub gids: [u32; 4],
}

impl Status {
    pub fn read(pid: u32) -> io::Result<Status> {
        let text = read_proc(&format!("/proc/{pid}/status"))?;
        Status::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub fn parse(text: &[u8]) -> Option<Status> {
        let value = |key: &[u8]| {
            let line = text.split(|b| *b == b'\n').find(|line| line.starts_with(key))?;
            std::str::from_utf8(&line[key.len()..]).ok()
        };
        let four = |key: &[u8]| -> Option<[u32; 4]> {
            let numbers: Option<Vec<u32>> =
                value(key)?.split_ascii_whitespace().map(|n| n.parse().ok()).collect();
            numbers?.try_into().ok()
        };
        Some(Status {
            tgid: value(b"Tgid:")?.trim().parse().ok()?,
            uids: four(b"Uid:")?,
            gids: four(b"Gid:")?,
        })
    }
}

/// Reads the beginning of a file of /proc or the like.
pub fn read_proc(path: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(PROC_MAX).read_to_end(&mut text)?;
    Ok(text)
}

fn refuse_setuid(pid: u32) -> Result<(), AttachError> {
    if !privileges::is_setuid() {
        return Ok(());
    }
    Err(AttachError::NotPermitted {
        pid,
        why: "sampletop is installed setuid or setgid, and would show anybody everything".into(),
        fix: "remove that bit (`chmod ug-s`) and run it with sudo".into(),
    })
}

/// Checks that /proc belongs to our own pid namespace: all pids come from there.
fn check_proc() -> Result<(), AttachError> {
    let own = fs::read_link("/proc/self");
    if own.as_ref().is_ok_and(|link| link.to_str() == Some(&std::process::id().to_string())) {
        return Ok(());
    }
    let what = match own {
        Ok(_) => {
            "/proc belongs to another pid namespace than sampletop; mount it anew: `mount -t proc proc /proc`".into()
        }
        Err(error) => format!("/proc cannot be read ({error}); mount it: `mount -t proc proc /proc`"),
    };
    Err(AttachError::Internal { what })
}

fn pid_descriptor(pid: u32) -> Result<OwnedFd, AttachError> {
    use rustix::io::Errno;
    let raw = Pid::from_raw(pid as i32).ok_or(AttachError::NoSuchProcess { pid })?;
    match rustix::process::pidfd_open(raw, PidfdFlags::empty()) {
        Ok(fd) => Ok(fd),
        // With EINVAL (ENOENT from 6.15 or so on) the kernel says that it is a thread, not a
        // process.
        Err(Errno::INVAL | Errno::NOENT) => Err(match Status::read(pid) {
            Ok(status) if status.tgid == std::process::id() => {
                AttachError::CannotProfile { pid, why: "it is a thread of sampletop itself".into() }
            }
            Ok(status) if status.tgid != pid => {
                AttachError::ThreadOf { tid: pid, pid: status.tgid }
            }
            _ => AttachError::NoSuchProcess { pid },
        }),
        Err(Errno::SRCH) => Err(AttachError::NoSuchProcess { pid }),
        Err(Errno::NOSYS) => Err(AttachError::Internal {
            what: "this kernel has no pidfd_open; sampletop needs Linux 5.3 or newer".into(),
        }),
        Err(errno) => Err(AttachError::Internal {
            what: format!("process {pid} cannot be opened by pidfd_open: {errno}"),
        }),
    }
}

/// Returns the error when /proc/PID is unreadable though a pidfd was opened: the process has ended
/// since, or /proc hides it.
fn ended_or_hidden(pid: u32, pidfd: &OwnedFd) -> AttachError {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut fds, Some(&timeout)) != Ok(0) {
        return AttachError::EndedEarly { pid };
    }
    AttachError::NotPermitted {
        pid,
        why: "/proc hides it (option hidepid), so it is another user's".into(),
        fix: "run sampletop as root".into(),
    }
}

fn check_kind(pid: u32, stat: &Stat) -> Result<(), AttachError> {
    /// include/linux/sched.h
    const PF_KTHREAD: u64 = 0x0020_0000;
    if stat.flags & PF_KTHREAD != 0 {
        return Err(AttachError::CannotProfile {
            pid,
            why: "it is a kernel thread; choose a user process".into(),
        });
    }
    // The leader may be a zombie while other threads live on; such a process is profiled normally.
    if stat.dead() && thread_with_memory(pid).is_none() {
        return Err(AttachError::CannotProfile {
            pid,
            why: "it has ended and is a zombie; its parent has yet to wait for it".into(),
        });
    }
    Ok(())
}

/// Checks whether the user may observe the process. Root may observe everything. Others may where
/// the kernel grants ptrace access without sampletop's own capabilities. If sampletop has no
/// capabilities, the kernel checks again at each read. So the states of one's own process may be
/// shown although its memory may not be read (Yama, PR_SET_DUMPABLE).
fn may_observe(pid: u32, status: &Status) -> Result<(), AttachError> {
    let own = rustix::process::getuid().as_raw();
    if own == 0 {
        return Ok(());
    }
    let asked = privileges::without(|| {
        File::open(format!("/proc/{}/mem", thread_with_memory(pid).unwrap_or(pid)))
    });
    let Err(refusal) = asked else { return Ok(()) };
    if matches!(refusal.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) {
        return Err(AttachError::EndedEarly { pid });
    }
    let same = status.uids == [own; 4] && status.gids == [rustix::process::getgid().as_raw(); 4];
    if same && !privileges::borrowed() {
        return Ok(());
    }
    let why = match status.uids.iter().find(|uid| **uid != own) {
        Some(uid) => format!("it belongs to user {}", user_name(*uid)),
        None if same => {
            let why = match yama_scope() {
                Some(scope @ 1..) => format!("kernel.yama.ptrace_scope is {scope}"),
                _ => "it has closed itself".into(),
            };
            format!("{why}, and sampletop's own capabilities are not for getting around that")
        }
        None => "it runs with another group's rights".into(),
    };
    Err(AttachError::NotPermitted { pid, why, fix: format!("try `sudo sampletop -p {pid}`") })
}

/// Returns kernel.yama.ptrace_scope; `None` where there is no Yama.
pub fn yama_scope() -> Option<u32> {
    std::str::from_utf8(&read_proc("/proc/sys/kernel/yama/ptrace_scope").ok()?)
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Returns the user's name from /etc/passwd, else the number.
pub fn user_name(uid: u32) -> String {
    let wanted = uid.to_string();
    let named = read_proc("/etc/passwd").ok().and_then(|text| {
        String::from_utf8_lossy(&text).lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)? == wanted).then(|| text::clean(name, 64).into_owned())
        })
    });
    named.unwrap_or(wanted)
}

/// Refuses a 32-bit process. The auxiliary vector consists of words of the process's own size. The
/// right size is the one under which AT_PHENT has the size of that class's program headers. This
/// needs no file of the target. An unreadable vector counts as 64-bit.
fn check_word_size(pid: u32) -> Result<(), AttachError> {
    let Ok(vector) = read_proc(&format!("/proc/{}/auxv", thread_with_memory(pid).unwrap_or(pid)))
    else {
        return Ok(());
    };
    if is_32_bit(&vector) {
        return Err(AttachError::CannotProfile {
            pid,
            why: "it is a 32-bit process; sampletop knows 64-bit ones only".into(),
        });
    }
    Ok(())
}

fn is_32_bit(vector: &[u8]) -> bool {
    const AT_PHENT: u64 = 4;
    let has = |word: usize, size: u64| {
        let number = |bytes: &[u8]| {
            bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
        };
        vector
            .chunks_exact(2 * word)
            .any(|e| number(&e[..word]) == AT_PHENT && number(&e[word..]) == size)
    };
    !has(8, 56) && has(4, 32)
}

/// Returns the present command line, cleaned and capped; `None` where there is none.
pub fn command_of(pid: u32) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/cmdline"))
        .ok()?
        .take(4 * COMMAND_MAX as u64)
        .read_to_end(&mut bytes)
        .ok()?;
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    for byte in &mut bytes {
        if *byte == 0 {
            *byte = b' ';
        }
    }
    let command = text::clean_bytes(&bytes, COMMAND_MAX);
    (!command.trim().is_empty()).then_some(command)
}

/// Returns the date of a start time, Unix time in ns. `start`: clock ticks of CLOCK_BOOTTIME.
pub fn unix_ns_of(start: u64) -> i128 {
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let since_boot = i128::from(start) * 1_000_000_000 / i128::from(ticks);
    i128::from(clock::realtime()) - i128::from(clock::boottime()) + since_boot
}

#[cfg(test)]
#[expect(unsafe_code, reason = "asks the C library what the test needs")]
mod tests;
