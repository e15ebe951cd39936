//! Notices that the target has replaced its program (exec).

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::process::target::thread_with_memory;

/// `/proc/PID/pagemap`, kept open: the descriptor holds on to the address space as it was when it
/// was opened, and reads nothing once no thread uses that any more (fs/proc/task_mmu.c,
/// pagemap_read). So an exec is told even of the same file, for less than a microsecond. It stays
/// silent while another process (a vfork child) still uses the old memory.
pub struct Program {
    pid: u32,
    /// `None` where it is not permitted, or between two programs.
    space: Option<OwnedFd>,
    /// The old memory is gone, new memory not there yet: the target is between two programs, or
    /// ending.
    between: bool,
}

impl Program {
    pub fn new(pid: u32) -> Program {
        Program { pid, space: open_space(pid).ok().flatten(), between: false }
    }

    /// True once for each exec since the last call; also for one into a program that we may not
    /// look at, which must not go unnoticed: rights to sample all processes (CAP_PERFMON, CAP_BPF)
    /// reach that one too.
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

    /// The program that was there is gone, and what is there now is not known yet.
    pub fn between(&self) -> bool {
        self.between
    }
}

/// `None`: no thread has memory now. The error: it is not for us.
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
    // The entry of the page at address 0: no page of the target is touched.
    let mut word = [0; 8];
    // Any error but a plain end is no proof of anything.
    !matches!(rustix::io::pread(space, &mut word, 0), Ok(0))
}
