//! Counts who wakes the threads of some processes, for some seconds, through a program in the
//! kernel (wakeups.bpf.c). It is in the kernel while a [`Counting`] exists, and no longer: the
//! kernel removes it with its descriptors, however sampletop ends.

mod program;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::clock;
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::text::clean_bytes;
use crate::model::vocabulary::wakeup::{Cost, Pair, Waker, Wakeups, Woken};
use crate::process::privileges;
use program::{By, Counted, Program};

/// Maximum processes whose threads are counted: the program has room for this number.
pub const PROCESSES: usize = 1024;
/// Maximum characters of a name: what the kernel keeps.
const NAME_MAX: usize = 15;

/// CPU time of the program for a wakeup of a watched thread, and of another: docs/benchmarks.md.
const WATCHED_NS: Ns = 135;
const OTHER_NS: Ns = 80;

/// Why wakeups cannot be counted: what is missing, and what would help, in one sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    missing: Missing,
    why: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Missing {
    Bpf,
    Types,
    Rights,
    Program,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wakeups cannot be counted: ")?;
        match self.missing {
            Missing::Bpf => f.write_str(
                "this kernel has no BPF; one with CONFIG_BPF_SYSCALL, Linux 5.15 or later, does it",
            ),
            Missing::Types => f.write_str(
                "this kernel does not describe its types in /sys/kernel/btf/vmlinux; one with CONFIG_DEBUG_INFO_BTF does",
            ),
            Missing::Rights => f.write_str(
                "the kernel permits no BPF program; run sampletop as root, or with CAP_BPF and CAP_PERFMON (docs/permissions.md)",
            ),
            Missing::Program => {
                write!(f, "the kernel refuses the program, which needs Linux 5.15 or later ({})", self.why)
            }
        }
    }
}

impl Refusal {
    fn new(why: String, errno: Option<i32>) -> Refusal {
        let missing = match errno {
            Some(libc::EPERM | libc::EACCES) => Missing::Rights,
            Some(libc::ENOSYS) => Missing::Bpf,
            _ => Missing::Program,
        };
        Refusal { missing, why: clean_bytes(why.as_bytes(), 120) }
    }

    fn types(why: String) -> Refusal {
        Refusal { missing: Missing::Types, why }
    }
}

/// The program, which counts. Dropping it removes it from the kernel.
pub struct Counting {
    program: Program,
    from: Ns,
}

impl Counting {
    /// Begins to count wakeups of the threads of these processes, with sampletop's own
    /// capabilities.
    pub fn begin(processes: &[u32]) -> Result<Counting, Refusal> {
        let processes = &processes[..processes.len().min(PROCESSES)];
        let program = privileges::with(|| Program::load(processes))?;
        Ok(Counting { program, from: clock::monotonic() })
    }

    /// Removes the program from the kernel, and returns what it counted.
    pub fn end(self) -> Result<Wakeups, Refusal> {
        let duration_ns = clock::monotonic().saturating_sub(self.from);
        let Counted { pairs, seen, counted, lost, run_ns } =
            privileges::with(|| self.program.end())?;
        let mut pairs: Vec<Pair> = pairs.into_iter().map(pair).collect();
        pairs.sort_by_key(|pair| (std::cmp::Reverse(pair.count), pair.woken));
        let others = seen.saturating_sub(counted);
        let estimate = counted * WATCHED_NS + others * OTHER_NS;
        let cost = run_ns.map_or(Cost::Estimated(estimate), Cost::Measured);
        Ok(Wakeups { from: self.from, duration_ns, pairs, lost, seen, cost })
    }
}

/// Decodes a row of the program's map: `struct pair` and `struct waker` of wakeups.bpf.c.
pub fn decode(pair: &[u32; 6], waker: &[u64; 5]) -> Pair {
    self::pair(program::row(pair, waker))
}

fn pair(row: program::Row) -> Pair {
    let woken = Woken { pid: row.woken.0, tid: row.woken.1 };
    let name = |bytes: &[u8; 16]| -> Arc<str> {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        clean_bytes(&bytes[..end], NAME_MAX).into()
    };
    let (pid, tid) = row.waker;
    let waker = match row.by {
        By::Interrupt => Waker::Interrupt,
        By::KernelThread => Waker::KernelThread { tid, name: name(&row.thread) },
        By::Call(call) if !is_visible(pid) => Waker::Hidden { call },
        By::Call(call) => {
            Waker::Thread { pid, tid, name: name(&row.thread), process: name(&row.process), call }
        }
    };
    Pair { waker, woken, count: row.count }
}

/// Returns whether the caller may know of a process. sampletop's capabilities are no reason to name
/// one that is hidden from its user (hidepid), and one that has ended cannot be asked any more.
fn is_visible(pid: u32) -> bool {
    pid != 0 && (!privileges::borrowed() || Path::new(&format!("/proc/{pid}")).exists())
}

/// Returns the kernel's error number inside a loader's error.
fn errno(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut cause = Some(error);
    let mut errno = None;
    while let Some(error) = cause {
        errno = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error).or(errno);
        cause = error.source();
    }
    errno
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_missing_and_what_helps() {
        let text = |errno| Refusal::new("no".into(), errno).to_string();
        assert!(text(Some(libc::EPERM)).contains("as root, or with CAP_BPF and CAP_PERFMON"));
        assert!(text(Some(libc::ENOSYS)).contains("CONFIG_BPF_SYSCALL"));
        assert!(text(Some(libc::EINVAL)).ends_with("Linux 5.15 or later (no)"));
        assert!(Refusal::types("no".into()).to_string().contains("CONFIG_DEBUG_INFO_BTF"));
    }
}
