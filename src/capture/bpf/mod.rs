//! Threads of processes by a program in the kernel: the task iterator visits all of them in one
//! pass, and reports those that ran. Never stops a thread, and never asks one.
//!
//! ```text
//! program.bpf.c  what runs in the kernel
//! load           loads it, and knows its maps
//! rows           what it says of a thread
//! ```
//!
//! A pass over all threads is one read for each 136 rows and one that finds the end; a thread that
//! has not run costs the visit. A pass may also go to single threads, by a list of them, or, before
//! Linux 6.2, by an iterator for each, which is dearer. The kernel makes no check whether we may
//! look at a process: whoever adds one has asked before.

pub mod load;
pub mod rows;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};

use rustc_hash::FxHashMap;

pub use crate::capture::bpf::load::Single;
use crate::capture::bpf::load::{AGAIN_MOST, LISTED_MOST, Link, Programs, Refusal};
use crate::capture::bpf::rows::{Copied, Row, What};

/// What one read gives at most (bpf_seq_read's buffer).
const READ: usize = 32 << 10;

/// The threads that the next pass reports although they have not run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Again {
    pub all: bool,
    pub tids: Vec<u32>,
}

/// What a pass is to do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Visit {
    /// The threads it goes to; `None`: all. Where single ones cannot be visited it goes to all.
    pub only: Option<Vec<Single>>,
    pub again: Again,
}

/// How single threads are visited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Singly {
    /// By lists of them: 0.4 us for one that stands still, 1 us in a pass over all.
    Listed,
    /// By an iterator for each, 7 us.
    Each,
}

/// How much was asked of the kernel; for tests and budgets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// System calls since this was opened.
    pub calls: u64,
    /// Threads that the last pass has visited.
    pub visited: u32,
}

/// Maximum links to single threads that are kept beyond those that are used.
const UNUSED_LINKS: usize = 16;

struct Watched {
    pid: u32,
    link: Link,
    /// To single threads, by their ids, where lists are not to be had.
    singles: FxHashMap<u32, OwnedFd>,
    generation: u32,
    /// Its id in the initial pid namespace, once a row has told it: its samples are let through.
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
    boot_offset: i64,
}

/// A pass that is under way.
struct Pass {
    pid: u32,
    rows: Rows,
    again: Vec<u32>,
}

enum Rows {
    All(File),
    /// Of these threads, beginning with the one that is next.
    Single(Vec<Single>, usize),
}

impl Bpf {
    /// Takes a quarter of a second.
    pub fn open() -> Result<Bpf, Refusal> {
        Ok(Bpf::with(Programs::load(true)?))
    }

    /// As before Linux 6.2.
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
            boot_offset: boot_offset(),
        }
    }

    pub fn singly(&self) -> Singly {
        if self.programs.lists() { Singly::Listed } else { Singly::Each }
    }

    /// The last pass went to single threads, and has not met them all: some have ended.
    pub fn missed(&self) -> bool {
        self.missed
    }

    /// The program that lets only samples of our processes into perf's rings.
    pub fn filter(&self) -> Option<RawFd> {
        self.programs.filter()
    }

    /// From now on its threads can be read.
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
                programs.keep_out(process);
            }
            watched.pid != pid
        });
    }

    pub fn watches(&self, pid: u32) -> bool {
        self.watched.iter().any(|watched| watched.pid == pid)
    }

    /// Begins a pass over threads of `pid`, which was added.
    pub fn begin(&mut self, pid: u32, visit: Visit) -> io::Result<()> {
        self.end();
        self.missed = false;
        let Some(watched) = self.watched.iter_mut().find(|watched| watched.pid == pid) else {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        };
        let Visit { only, mut again } = visit;
        again.tids.sort_unstable();
        let all = again.all || again.tids.len() > AGAIN_MOST;
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

    /// Reads more rows of the pass; false at its end.
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
                    let some = &threads[*next..threads.len().min(*next + LISTED_MOST)];
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
        let first =
            rows::decode(&self.buffer[..self.filled], self.boot_offset).map(|mut rows| rows.next());
        let Ok(first) = first else {
            self.filled = 0;
            return Err(io::Error::other("half a row"));
        };
        if let Some(row) = first
            && let Some(watched) = watched
            && watched.process.is_none()
        {
            self.programs.let_through(row.process)?;
            watched.process = Some(row.process);
        }
        if self.filled == 0 {
            self.end();
        }
        Ok(self.filled > 0)
    }

    /// Whether the pass has come to every thread it goes to; of the last of them there may be rows.
    pub fn has_visited_all(&self) -> bool {
        match &self.pass {
            Some(Pass { rows: Rows::Single(threads, next), .. }) => *next >= threads.len(),
            Some(Pass { rows: Rows::All(_), .. }) => false,
            None => true,
        }
    }

    /// The rows of the last read, and their stacks.
    pub fn rows(&self) -> impl Iterator<Item = (Row, Copied<'_>)> {
        rows::decode(&self.buffer[..self.filled], self.boot_offset).into_iter().flatten().map(
            |row| {
                let copied = match &row.what {
                    What::Blocked(blocked) | What::Ready(blocked) => self.programs.copied(blocked),
                    _ => Copied::default(),
                };
                (row, copied)
            },
        )
    }

    /// Threads that are runnable, and wait for a core, are read as they lie, too: [`What::Ready`].
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
    /// Sees to it that each of these threads can be visited alone; false if that is not to be had.
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

/// Why BPF is refused, and the one thing to do about it.
pub fn explain(refusal: &Refusal) -> (String, String) {
    let no_types = !std::path::Path::new("/sys/kernel/btf/vmlinux").exists();
    match refusal.errno {
        Some(libc::EPERM | libc::EACCES) => (
            "the kernel takes no BPF programs from us".into(),
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

/// What our time namespace adds to times since boot, ns.
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
