//! Threads of a target: the list, their counters, names, states and system calls, read through
//! descriptors that stay open.
//!
//! Everything is read from `/proc/PID/task`. Costs on kernel 6.18: a pread of `schedstat` on an
//! open descriptor takes 0.35 us, of `syscall` 0.7 us, of `stat` 1 us. Open, read and close take
//! three to six times as long. Where all cores are busy and the thread runs: `schedstat` 1.5 us,
//! `comm` 0.7, `syscall` 1.1, `stat` 3.7.

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::clock;
use crate::model::vocabulary::event::{Counters, Syscall};
use crate::model::vocabulary::frame::{Ns, RawName, SECOND};

/// Why a thread's file could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// The thread has ended.
    Exited,
    /// The kernel denies it (`syscall` needs ptrace access).
    NotPermitted,
    /// No descriptor is left, or an unexpected error; the thread may still live.
    Failed,
}

impl From<Errno> for ReadError {
    fn from(errno: Errno) -> ReadError {
        match errno {
            Errno::SRCH | Errno::NOENT => ReadError::Exited,
            Errno::ACCESS | Errno::PERM => ReadError::NotPermitted,
            _ => ReadError::Failed,
        }
    }
}

/// Fields of `/proc/PID/task/TID/stat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    pub name: RawName,
    /// R, S, D, T, t, Z, X, I.
    pub state: u8,
    /// Field 22, clock ticks since boot.
    pub start: u64,
    /// Fields 14 + 15, utime + stime, in clock ticks.
    pub cpu_ticks: u64,
    /// Field 39: the processor that it is on, or was on last.
    pub processor: u32,
}

/// Contents of `/proc/PID/task/TID/syscall`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// On a core, or runnable.
    Running,
    /// Not on a core, with these user registers. `sp` is 0 for a thread without user registers.
    Blocked { call: Syscall, sp: u64, pc: u64 },
}

/// Counts of system reads since creation; for tests and budgets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reads {
    pub counters: u64,
    pub stats: u64,
    pub names: u64,
    pub syscalls: u64,
    /// Reads that had to open their file first.
    pub opens: u64,
    pub lists: u64,
    pub clocks: u64,
}

/// Budget of descriptors that may still be kept open; clones share it.
#[derive(Clone, Debug)]
pub struct Descriptors {
    left: Arc<AtomicUsize>,
    /// The second half is reserved for the files that are read in every tick.
    reserved: usize,
}

impl Descriptors {
    pub fn new(max: usize) -> Descriptors {
        Descriptors { left: Arc::new(AtomicUsize::new(max)), reserved: max / 2 }
    }

    fn take(&self, reserved: bool) -> bool {
        let keep = if reserved { 0 } else { self.reserved };
        self.left
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1).filter(|left| *left >= keep))
            .is_ok()
    }

    fn give_back(&self, number: usize) {
        self.left.fetch_add(number, Relaxed);
    }
}

/// `/proc/PID/task`, kept open: a reused pid cannot be mistaken for the target.
pub struct Tasks {
    pid: u32,
    dir: OwnedFd,
    budget: Descriptors,
    short: Cell<bool>,
    source: CounterSource,
    reads: Cell<Reads>,
}

/// The file that counters come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterSource {
    Schedstat,
    /// The kernel was built without CONFIG_SCHED_INFO: `stat` (clock ticks) and `status` (context
    /// switches).
    Stat,
}

/// The open descriptors of one thread.
pub struct ThreadFiles {
    tid: u32,
    counters: Option<OwnedFd>,
    stat: Option<OwnedFd>,
    name: Option<OwnedFd>,
    syscall: Option<OwnedFd>,
}

impl Tasks {
    /// Opens the thread directory of `pid`; `descriptors` limits the files that stay open.
    pub fn open(pid: u32, descriptors: usize) -> io::Result<Tasks> {
        Tasks::open_sharing(pid, Descriptors::new(descriptors))
    }

    /// As [`Tasks::open`], with a shared budget of descriptors.
    pub fn open_sharing(pid: u32, descriptors: Descriptors) -> io::Result<Tasks> {
        let dir = rustix::fs::open(
            format!("/proc/{pid}/task"),
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Tasks {
            pid,
            dir,
            budget: descriptors,
            short: Cell::new(false),
            source: own_counter_source(),
            reads: Cell::new(Reads::default()),
        })
    }

    /// Reads a folder of files in place of /proc.
    #[cfg(test)]
    pub fn in_folder(folder: &std::path::Path) -> Tasks {
        let tasks = Tasks::open(std::process::id(), 100).expect("our own threads");
        let dir = rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        Tasks { dir: dir.expect("a folder"), source: CounterSource::Schedstat, ..tasks }
    }

    /// Thread ids now, zombies included. An error means that the process is gone.
    pub fn list(&self, out: &mut Vec<u32>) -> io::Result<()> {
        self.count(|r| r.lists += 1);
        out.clear();
        for entry in Dir::read_from(&self.dir)? {
            let Ok(entry) = entry else { break };
            if let Some(tid) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()) {
                out.push(tid);
            }
        }
        Ok(())
    }

    /// Returns the directory's link count, 2 + threads, for the price of one fstat. Two starts and
    /// two exits between two calls cancel out; the exits are noticed when the threads' counters are
    /// read.
    pub fn links(&self) -> u64 {
        rustix::fs::fstat(&self.dir).map_or(0, |stat| stat.st_nlink)
    }

    /// Returns the link count of a process with this number of threads.
    pub fn links_of(threads: u32) -> u64 {
        2 + u64::from(threads)
    }

    /// Returns the CPU time of all threads including ended ones; `None` once the process has been
    /// waited for. The kernel adds up the threads' counters.
    pub fn clock(&self) -> Option<Ns> {
        self.count(|r| r.clocks += 1);
        clock::cpu_of_process(self.pid)
    }

    /// Returns the source of counters on this kernel.
    pub fn source(&self) -> CounterSource {
        self.source
    }

    /// Whether descriptors ran out: some files are opened for every read.
    pub fn short_of_descriptors(&self) -> bool {
        self.short.get()
    }

    pub fn reads(&self) -> Reads {
        self.reads.get()
    }

    /// Prepares reading of `tid`; opens nothing yet.
    pub fn thread(&self, tid: u32) -> ThreadFiles {
        ThreadFiles { tid, counters: None, stat: None, name: None, syscall: None }
    }

    /// Closes the descriptors of a thread and returns them to the budget.
    pub fn forget(&self, files: ThreadFiles) {
        let ThreadFiles { tid: _, counters, stat, name, syscall } = &files;
        let open = [counters, stat, name, syscall].into_iter().filter(|f| f.is_some()).count();
        self.budget.give_back(open);
    }

    pub fn counters(&self, files: &mut ThreadFiles) -> Result<Counters, ReadError> {
        self.count(|r| r.counters += 1);
        match self.source {
            CounterSource::Schedstat => {
                // Room for three numbers only: this runs for every thread in every tick.
                let mut buf = [0; 80];
                let text = self.read(files.tid, "schedstat", &mut files.counters, &mut buf)?;
                parse_schedstat(text).ok_or(ReadError::Failed)
            }
            CounterSource::Stat => {
                let mut buf = [0; 4096];
                let text = self.read(files.tid, "stat", &mut files.stat, &mut buf)?;
                let stat = parse_stat(text).ok_or(ReadError::Failed)?;
                let text = self.read(files.tid, "status", &mut files.counters, &mut buf)?;
                // How often it left a core, and it may be on one for the first time.
                let runs = parse_switches(text).ok_or(ReadError::Failed)?.saturating_add(1);
                Ok(Counters { run_ns: ticks_to_ns(stat.cpu_ticks), delay_ns: 0, runs })
            }
        }
    }

    pub fn stat(&self, files: &mut ThreadFiles) -> Result<Stat, ReadError> {
        self.count(|r| r.stats += 1);
        let mut buf = [0; 1024];
        let text = self.read(files.tid, "stat", &mut files.stat, &mut buf)?;
        parse_stat(text).ok_or(ReadError::Failed)
    }

    /// Reads only the name: a fifth of the cost of [`Tasks::stat`] for a running thread.
    pub fn name(&self, files: &mut ThreadFiles) -> Result<RawName, ReadError> {
        self.count(|r| r.names += 1);
        let mut buf = [0; 80];
        let text = self.read(files.tid, "comm", &mut files.name, &mut buf)?;
        // The file contains the raw name and a newline.
        Ok(RawName::new(text.strip_suffix(b"\n").unwrap_or(text)))
    }

    /// Returns the pid of the thread's tracer (0: none), from `status`. It is opened for each read,
    /// as it is rarely needed.
    pub fn tracer(&self, files: &ThreadFiles) -> Result<u32, ReadError> {
        let mut buf = [0; 4096];
        let fd = self.open_file(files.tid, "status")?;
        let n = rustix::io::pread(&fd, &mut buf[..], 0)?;
        parse_tracer(&buf[..n]).ok_or(ReadError::Failed)
    }

    pub fn doing(&self, files: &mut ThreadFiles) -> Result<Doing, ReadError> {
        self.count(|r| r.syscalls += 1);
        let mut buf = [0; 256];
        let text = self.read(files.tid, "syscall", &mut files.syscall, &mut buf)?;
        parse_syscall(text).ok_or(ReadError::Failed)
    }

    fn count(&self, change: impl FnOnce(&mut Reads)) {
        let mut reads = self.reads.get();
        change(&mut reads);
        self.reads.set(reads);
    }

    /// Reads a thread's file from its beginning, through `kept` if that is open or there is budget
    /// to keep it open.
    fn read<'b>(
        &self,
        tid: u32,
        file: &str,
        kept: &mut Option<OwnedFd>,
        buf: &'b mut [u8],
    ) -> Result<&'b [u8], ReadError> {
        let opened;
        let fd = match kept {
            Some(fd) => &*fd,
            None => {
                self.count(|r| r.opens += 1);
                let fd = self.open_file(tid, file)?;
                let counters = match self.source {
                    CounterSource::Schedstat => file == "schedstat",
                    CounterSource::Stat => matches!(file, "stat" | "status"),
                };
                if self.budget.take(counters) {
                    &*kept.insert(fd)
                } else {
                    // Of a blocked thread only the counters are read.
                    self.short.set(self.short.get() || counters);
                    opened = fd;
                    &opened
                }
            }
        };
        match rustix::io::pread(fd, &mut *buf, 0) {
            // For some files a thread that exits between open and read gives nothing rather than
            // ESRCH.
            Ok(0) => Err(ReadError::Exited),
            Ok(n) => Ok(&buf[..n]),
            Err(errno) => Err(errno.into()),
        }
    }

    fn open_file(&self, tid: u32, file: &str) -> Result<OwnedFd, ReadError> {
        let opened = openat(
            &self.dir,
            format!("{tid}/{file}"),
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        if let Err(Errno::MFILE | Errno::NFILE) = opened {
            // Keep no more descriptors from now on, so that a file opened for one read finds room.
            self.budget.left.store(0, Relaxed);
            self.short.set(true);
        }
        Ok(opened?)
    }
}

/// Raises the soft descriptor limit to the hard one; returns the resulting limit.
pub fn raise_descriptor_limit() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || limit.maximum.is_none() {
        let _ =
            setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    getrlimit(Resource::Nofile).current.map_or(1 << 20, |n| n.min(1 << 20) as usize)
}

/// This thread has certainly been put on a core: a zero in its own schedstat means that the kernel
/// does not count. (Its run time may well be 0 still, that lags.)
fn own_counter_source() -> CounterSource {
    let text = fs::read("/proc/thread-self/schedstat").unwrap_or_default();
    match parse_schedstat(&text) {
        Some(counters) if counters.runs > 0 => CounterSource::Schedstat,
        _ => CounterSource::Stat,
    }
}

fn ticks_to_ns(ticks: u64) -> Ns {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    ticks.saturating_mul(SECOND / per_second)
}

/// Parses `RUN_NS DELAY_NS RUNS`.
pub fn parse_schedstat(text: &[u8]) -> Option<Counters> {
    let mut fields = fields(text).map(decimal);
    let counters =
        Counters { run_ns: fields.next()??, delay_ns: fields.next()??, runs: fields.next()?? };
    Some(counters)
}

/// Returns the sum of both kinds of context switches in `/proc/PID/task/TID/status`. It changes
/// whenever the thread has run and stopped.
pub fn parse_switches(text: &[u8]) -> Option<u64> {
    let mut sum = None;
    for line in text.split(|b| *b == b'\n') {
        let count = line
            .strip_prefix(b"voluntary_ctxt_switches:")
            .or_else(|| line.strip_prefix(b"nonvoluntary_ctxt_switches:"))
            .and_then(|rest| decimal(fields(rest).next()?));
        if let Some(count) = count {
            sum = Some(sum.unwrap_or(0u64).wrapping_add(count));
        }
    }
    sum
}

/// Returns the pid of the thread's tracer (0: none), from the same file.
pub fn parse_tracer(text: &[u8]) -> Option<u32> {
    let line = text.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"TracerPid:"))?;
    decimal(fields(line).next()?)?.try_into().ok()
}

/// Parses `TID (NAME) STATE ...`; NAME may contain any byte, so the last `)` ends it.
pub fn parse_stat(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|b| *b == b'(')?;
    let close = text.iter().rposition(|b| *b == b')')?;
    let name = text.get(open + 1..close)?;
    // `state` is field 3: index 0 here.
    let mut rest = fields(&text[close + 1..]);
    let state = *rest.next()?.first()?;
    let utime = decimal(rest.nth(10)?)?;
    let stime = decimal(rest.next()?)?;
    let start = decimal(rest.nth(6)?)?;
    let processor = rest.nth(16).and_then(decimal).and_then(|number| number.try_into().ok());
    Some(Stat {
        name: unescape(name),
        state,
        start,
        cpu_ticks: utime.wrapping_add(stime),
        processor: processor.unwrap_or(u32::MAX),
    })
}

/// Unescapes a name. In `stat` the kernel writes newline and backslash as `\n` and `\\`
/// (fs/proc/array.c, proc_task_name).
fn unescape(name: &[u8]) -> RawName {
    let mut plain = Vec::with_capacity(16);
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        if *byte != b'\\' {
            plain.push(*byte);
            continue;
        }
        match bytes.next() {
            Some(b'n') => plain.push(b'\n'),
            Some(other) => plain.push(*other),
            None => plain.push(b'\\'),
        }
    }
    RawName::new(&plain)
}

/// Parses the three forms `running`; `-1 SP PC`; `NUMBER ARG x 6 SP PC` (fs/proc/base.c,
/// proc_pid_syscall).
pub fn parse_syscall(text: &[u8]) -> Option<Doing> {
    if text.starts_with(b"running") {
        return Some(Doing::Running);
    }
    let mut fields = fields(text);
    let number: i32 = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let mut args = [0; 6];
    if number >= 0 {
        for arg in &mut args {
            *arg = hexadecimal(fields.next()?)?;
        }
    }
    let sp = hexadecimal(fields.next()?)?;
    let pc = hexadecimal(fields.next()?)?;
    Some(Doing::Blocked { call: Syscall { number, args }, sp, pc })
}

fn fields(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| b.is_ascii_whitespace()).filter(|field| !field.is_empty())
}

fn decimal(field: &[u8]) -> Option<u64> {
    if field.is_empty() {
        return None;
    }
    field.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

fn hexadecimal(field: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(field.strip_prefix(b"0x")?).ok()?, 16).ok()
}

#[cfg(test)]
mod tests;
