//! Notices that the target has replaced its program (exec).

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};

use crate::process::target::witness;

/// `/proc/PID/auxv`, kept open: the descriptor holds on to the memory as it was when it was opened, and reads nothing
/// once that memory is gone (fs/proc/base.c, proc_auxv_read). So it tells one exec from another even of the same
/// file, for 0.4 us. It stays silent while somebody else (a vfork child) still uses the old memory.
pub struct Program {
    pid: u32,
    auxv: Option<OwnedFd>,
}

impl Program {
    pub fn new(pid: u32) -> Program {
        Program { pid, auxv: open_auxv(pid) }
    }

    /// True once for each exec since the last call.
    pub fn replaced(&mut self) -> bool {
        let Some(auxv) = &self.auxv else {
            // Not permitted, or it was ending. An exec may have changed that.
            return false;
        };
        if has_memory(auxv) {
            return false;
        }
        // Gone: by exec, or because the process is ending. Then there is nothing to open.
        self.auxv = open_auxv(self.pid);
        self.auxv.is_some()
    }
}

fn open_auxv(pid: u32) -> Option<OwnedFd> {
    // A zombie leader has no memory of its own.
    let tid = witness(pid)?;
    let auxv = open(format!("/proc/{pid}/task/{tid}/auxv"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    has_memory(&auxv).then_some(auxv)
}

fn has_memory(auxv: &OwnedFd) -> bool {
    let mut word = [0; 8];
    // Any error but a plain end is no proof of anything.
    !matches!(rustix::io::pread(auxv, &mut word, 0), Ok(0))
}
