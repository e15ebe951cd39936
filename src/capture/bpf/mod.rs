//! The backend `bpf`: a BPF program in the kernel's task iterator visits all threads of a process
//! in one pass, and reports those that ran. It never stops or signals a thread.
//!
//! ```text
//! program.bpf.c      the programs that run in the kernel
//! taken.bpf.h        what they take in the interrupts of samples: interpreter.bpf.h frames of
//!                    interpreters, goroutine.bpf.h stacks of goroutines, labels.bpf.h labels,
//!                    awaiting.bpf.h objects that lead to awaiting functions
//! load               loads them, and accesses their maps
//! rows               decodes what they report of a thread
//! taken              reads what they take with samples
//! interpreter        decodes frames of interpreters
//! goroutine, labels  decode stacks of goroutines, and their labels
//! awaiting           decodes objects that lead to awaiting functions
//! scheduler_clock    distance of the scheduler's clock from ours
//! ```
//!
//! A pass over all threads takes one read for each 132 rows, and one that finds the end. A thread
//! that has not run costs only the visit. A pass may also visit single threads by a list of them.
//! Before Linux 6.2 it uses an iterator for each, which is slower. The kernel does not check
//! whether we may observe a process: the caller of [`Bpf::add`] has checked it.

mod awaiting;
mod goroutine;
mod interpreter;
mod labels;
pub mod load;
pub mod rows;
mod scheduler_clock;
pub mod taken;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use rustc_hash::FxHashMap;

pub use crate::capture::bpf::load::Single;
use crate::capture::bpf::load::{Link, MAX_LISTED, MAX_REPEATS, Programs, Refusal};
use crate::capture::bpf::rows::{Clocks, Copied, Row, What};
use crate::capture::bpf::scheduler_clock::SchedulerClock;
use crate::capture::bpf::taken::TakenWithSamples;

/// Maximum bytes of one read (the buffer of bpf_seq_read).
const READ: usize = 32 << 10;

/// Threads that the next pass reports even if they have not run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Repeats {
    pub all: bool,
    pub tids: Vec<u32>,
}

/// Request of a pass.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Visit {
    /// Threads to visit; `None`: all. Visits all if single threads cannot be visited.
    pub only: Option<Vec<Single>>,
    pub again: Repeats,
}

/// How single threads are visited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VisitMethod {
    /// By a list: 0.4 us for a thread that has not run; a pass over all takes 1 us for one.
    Listed,
    /// By an iterator for each: 7 us.
    Each,
}

/// Work requested of the kernel; for tests and budgets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// System calls since this was opened.
    pub calls: u64,
    /// Threads that the last pass visited.
    pub visited: u32,
}

/// Maximum unused links to single threads that stay open.
const UNUSED_LINKS: usize = 16;

struct Watched {
    pid: u32,
    link: Link,
    /// Links to single threads by their ids, where lists are not available.
    singles: FxHashMap<u32, OwnedFd>,
    generation: u32,
    /// Its id in the initial pid namespace, known from its first row. The filter passes its samples
    /// then.
    process: Option<u32>,
}

pub struct Bpf {
    programs: Programs,
    watched: Vec<Watched>,
    generations: u32,
    pass: Option<Pass>,
    buffer: Vec<u8>,
    filled: usize,
    missed: bool,
    clocks: Clocks,
    scheduler: SchedulerClock,
}

/// A pass that is in progress.
struct Pass {
    pid: u32,
    rows: Rows,
    again: Vec<u32>,
}

enum Rows {
    All(File),
    /// Single threads, and the index of the next one.
    Single(Vec<Single>, usize),
}

impl Bpf {
    /// Loads the programs. Takes a quarter of a second.
    pub fn open() -> Result<Bpf, Refusal> {
        Ok(Bpf::with(Programs::load(true)?))
    }

    /// Loads the programs without lists of threads, as before Linux 6.2, and without what takes
    /// more with samples.
    pub fn open_without_lists() -> Result<Bpf, Refusal> {
        Ok(Bpf::with(Programs::load(false)?))
    }

    fn with(programs: Programs) -> Bpf {
        Bpf {
            programs,
            watched: Vec::new(),
            generations: 0,
            pass: None,
            buffer: vec![0; READ],
            filled: 0,
            missed: false,
            clocks: Clocks { boot: boot_offset(), scheduler: u64::MAX },
            scheduler: SchedulerClock::default(),
        }
    }

    pub fn visit_method(&self) -> VisitMethod {
        if self.programs.lists() { VisitMethod::Listed } else { VisitMethod::Each }
    }

    /// Returns whether the last pass over single threads did not find all of them: some have
    /// exited.
    pub fn missed(&self) -> bool {
        self.missed
    }

    /// Returns the reader of what is taken with samples, once.
    pub fn take_reader(&mut self) -> Option<TakenWithSamples> {
        self.programs.take_reader()
    }

    /// Returns the id of a process in the initial pid namespace, once a row of it was read.
    pub fn process_of(&self, pid: u32) -> Option<u32> {
        self.watched.iter().find(|watched| watched.pid == pid)?.process
    }

    /// Returns the program that passes only samples of watched processes into perf's rings.
    pub fn filter(&self) -> Option<RawFd> {
        self.programs.filter()
    }

    /// Adds a process whose threads can be read from now on.
    pub fn add(&mut self, pid: u32) -> io::Result<()> {
        let link = self.programs.link(pid)?;
        self.remove(pid);
        self.generations += 1;
        let singles = FxHashMap::default();
        self.watched.push(Watched {
            pid,
            link,
            singles,
            generation: self.generations,
            process: None,
        });
        Ok(())
    }

    pub fn remove(&mut self, pid: u32) {
        let programs = &mut self.programs;
        self.watched.retain(|watched| {
            if watched.pid == pid
                && let Some(process) = watched.process
            {
                programs.disallow_samples(process);
            }
            watched.pid != pid
        });
    }

    pub fn watches(&self, pid: u32) -> bool {
        self.watched.iter().any(|watched| watched.pid == pid)
    }

    /// Begins a pass over threads of `pid`, which was added before.
    pub fn begin(&mut self, pid: u32, visit: Visit) -> io::Result<()> {
        self.end();
        self.missed = false;
        let Some(watched) = self.watched.iter_mut().find(|watched| watched.pid == pid) else {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        };
        let Visit { only, mut again } = visit;
        again.tids.sort_unstable();
        let all = again.all || again.tids.len() > MAX_REPEATS;
        if all {
            self.generations += 1;
            watched.generation = self.generations;
        }
        let only = only.filter(|threads| {
            !all && (self.programs.lists() || watched.link_to(threads, &self.programs))
        });
        let (rows, again) = match (only, watched.process) {
            (Some(threads), Some(process)) => {
                self.programs.begin_singly(process, watched.generation);
                (Rows::Single(threads, 0), again.tids)
            }
            _ => {
                let rows = self.programs.begin(&watched.link, watched.generation, &again.tids)?;
                (Rows::All(rows), again.tids)
            }
        };
        self.pass = Some(Pass { pid, rows, again });
        Ok(())
    }

    /// Reads more rows of the pass. Returns false at its end.
    pub fn read(&mut self) -> io::Result<bool> {
        let Some(pass) = &mut self.pass else { return Ok(false) };
        self.filled = 0;
        let watched = self.watched.iter_mut().find(|watched| watched.pid == pass.pid);
        self.filled = match &mut pass.rows {
            Rows::All(rows) => self.programs.read(rows, &mut self.buffer)?,
            Rows::Single(threads, next) => {
                let singles = watched.as_ref().map(|watched| &watched.singles);
                let mut filled = 0;
                while filled == 0 && *next < threads.len() {
                    let some = &threads[*next..threads.len().min(*next + MAX_LISTED)];
                    *next += some.len();
                    let some = some
                        .iter()
                        .map(|thread| (*thread, pass.again.binary_search(&thread.tid).is_ok()));
                    filled = if self.programs.lists() {
                        self.programs.read_listed(some, &mut self.buffer)?
                    } else {
                        let link = |(thread, again): (Single, _)| {
                            Some((singles?.get(&thread.tid)?.as_fd(), again))
                        };
                        self.programs.read_singly(some.filter_map(link), &mut self.buffer)?
                    };
                }
                filled
            }
        };
        if let Some(ahead) = self.programs.take_ahead() {
            self.scheduler.add(ahead);
            self.clocks.scheduler = self.scheduler.ahead();
        }
        let first =
            rows::decode(&self.buffer[..self.filled], self.clocks).map(|mut rows| rows.next());
        let Ok(first) = first else {
            self.filled = 0;
            return Err(io::Error::other("the BPF iterator returned a partial row"));
        };
        if let Some(row) = first
            && let Some(watched) = watched
            && watched.process.is_none()
        {
            self.programs.allow_samples(row.process)?;
            watched.process = Some(row.process);
        }
        if self.filled == 0 {
            self.end();
        }
        Ok(self.filled > 0)
    }

    /// Returns how many threads the process had in the pass, if that visited some single ones by a
    /// list. The pass must have ended.
    pub fn thread_count(&self) -> Option<u32> {
        self.programs.threads()
    }

    /// Returns whether the pass has visited every thread; rows of the last ones may still have to
    /// be read.
    pub fn has_visited_all(&self) -> bool {
        match &self.pass {
            Some(Pass { rows: Rows::Single(threads, next), .. }) => *next >= threads.len(),
            Some(Pass { rows: Rows::All(_), .. }) => false,
            None => true,
        }
    }

    /// Returns the rows of the last read, with their stacks.
    pub fn rows(&self) -> impl Iterator<Item = (Row, Copied<'_>)> {
        rows::decode(&self.buffer[..self.filled], self.clocks).into_iter().flatten().map(|row| {
            let copied = match &row.what {
                What::Blocked(blocked) | What::Ready(blocked) => self.programs.copied(blocked),
                _ => Copied::default(),
            };
            (row, copied)
        })
    }

    /// Makes the next sample wake the sampler, once.
    pub fn request_wakeup(&mut self) {
        self.programs.request_wakeup();
    }

    /// Returns the descriptor that the requested wake-up makes readable.
    pub fn wakeup(&self) -> BorrowedFd<'_> {
        self.programs.wakeup()
    }

    /// Withdraws the request, or accepts the wake-up.
    pub fn end_wakeup(&mut self) {
        self.programs.end_wakeup();
    }

    /// Makes later passes read threads that are runnable and wait for a core: [`What::Ready`].
    pub fn read_runnable(&mut self) {
        self.programs.read_runnable();
    }

    pub fn counts(&self) -> Counts {
        Counts { calls: self.programs.calls(), visited: self.programs.visited() }
    }

    fn end(&mut self) {
        match self.pass.take() {
            Some(Pass { rows: Rows::All(_), again, .. }) => self.programs.end(&again),
            Some(Pass { rows: Rows::Single(threads, _), .. }) => {
                self.missed = (self.programs.visited() as usize) < threads.len();
            }
            None => {}
        }
    }
}

impl Watched {
    /// Opens a link to each of these threads. Returns false if that fails.
    fn link_to(&mut self, threads: &[Single], programs: &Programs) -> bool {
        if self.singles.len() > threads.len() + UNUSED_LINKS {
            self.singles.retain(|tid, _| threads.iter().any(|thread| thread.tid == *tid));
        }
        threads.iter().all(|Single { tid, .. }| {
            self.singles.contains_key(tid)
                || programs
                    .link_one(&self.link, *tid)
                    .map(|link| self.singles.insert(*tid, link))
                    .is_some()
        })
    }
}

/// Returns why BPF is refused, and the one fix.
pub fn explain(refusal: &Refusal) -> (String, String) {
    let no_types = !std::path::Path::new("/sys/kernel/btf/vmlinux").exists();
    match refusal.errno {
        Some(libc::EPERM | libc::EACCES) => (
            "the kernel permits no BPF programs to this user".into(),
            "run sampletop as root, or give it CAP_BPF and CAP_PERFMON".into(),
        ),
        _ if no_types => (
            "this kernel comes without its types (/sys/kernel/btf/vmlinux)".into(),
            "use --capture perf, or a kernel built with CONFIG_DEBUG_INFO_BTF".into(),
        ),
        _ => (
            format!("BPF does not work on this kernel ({} failed: {})", refusal.what, refusal.why),
            "use --capture perf, or Linux 5.18 or newer".into(),
        ),
    }
}

/// Returns the offset that our time namespace adds to times since boot, ns.
fn boot_offset() -> i64 {
    let text = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("boottime"));
    let mut numbers = line
        .into_iter()
        .flat_map(str::split_ascii_whitespace)
        .map(|word| word.parse::<i64>().unwrap_or(0));
    let (seconds, ns) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
}
