//! Detects that the target has replaced its program (exec).

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::process::target::thread_with_memory;

/// `/proc/PID/pagemap`, kept open. The descriptor refers to the address space at the time of
/// opening. It reads nothing once no thread uses that any more (fs/proc/task_mmu.c, pagemap_read).
/// So an exec of the same file is detected too, in less than a microsecond. There is no detection
/// while another process (a vfork child) still uses the old memory.
pub struct ExecDetector {
    pid: u32,
    /// `None` if access is denied, or between two programs.
    space: Option<OwnedFd>,
    /// The old memory is released, and there is no new memory yet: the target is executing a
    /// program, or exiting.
    between: bool,
}

impl ExecDetector {
    pub fn new(pid: u32) -> ExecDetector {
        ExecDetector { pid, space: open_space(pid).ok().flatten(), between: false }
    }

    /// Returns true once for each exec since the last call. An exec into a program that may not be
    /// observed counts too. Rights to sample all processes (CAP_PERFMON, CAP_BPF) reach that
    /// program as well, so it must be detected.
    pub fn replaced(&mut self) -> bool {
        if self.space.as_ref().is_some_and(|space| !lives(space)) {
            self.space = None;
            self.between = true;
        }
        if self.between {
            let opened = open_space(self.pid);
            self.between = matches!(opened, Ok(None));
            self.space = opened.ok().flatten();
            return !self.between;
        }
        false
    }

    /// Returns whether the old program has ended, and the present one is not known yet.
    pub fn between(&self) -> bool {
        self.between
    }
}

/// Opens the address space. `None`: no thread has memory now. An error: access is denied.
fn open_space(pid: u32) -> Result<Option<OwnedFd>, Errno> {
    // A zombie leader has no memory of its own.
    let Some(tid) = thread_with_memory(pid) else { return Ok(None) };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    match open(format!("/proc/{pid}/task/{tid}/pagemap"), flags, Mode::empty()) {
        Ok(space) => Ok(lives(&space).then_some(space)),
        Err(errno @ (Errno::ACCESS | Errno::PERM)) => Err(errno),
        Err(_) => Ok(None),
    }
}

fn lives(space: &OwnedFd) -> bool {
    // Reads the entry of the page at address 0: no page of the target is touched.
    let mut word = [0; 8];
    // Only an end of file proves that the memory is released; other errors prove nothing.
    !matches!(rustix::io::pread(space, &mut word, 0), Ok(0))
}
