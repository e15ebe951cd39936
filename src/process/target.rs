//! Identity of a target: pid + start time + pidfd; whether it can be looked at, and by whom.

use std::fmt;

/// Why a process cannot be watched. `Display` is one sentence with the fix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttachError {
    /// Exit 3.
    NoSuchProcess { pid: u32 },
    /// Exit 4: another user's, or the kernel refuses; `fix` is what to do.
    NotPermitted { pid: u32, why: String, fix: String },
    /// Exit 5: zombie, kernel thread, 32-bit, sampletop itself.
    CannotProfile { pid: u32, why: String },
    /// Exit 6: ended before any sample.
    EndedEarly { pid: u32 },
    /// Exit 1.
    Internal { what: String },
}

impl AttachError {
    pub fn exit_code(&self) -> i32 {
        match self {
            AttachError::NoSuchProcess { .. } => 3,
            AttachError::NotPermitted { .. } => 4,
            AttachError::CannotProfile { .. } => 5,
            AttachError::EndedEarly { .. } => 6,
            AttachError::Internal { .. } => 1,
        }
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::NoSuchProcess { pid } => {
                write!(f, "no process has the pid {pid}; check it with `ps -p {pid}`")
            }
            AttachError::NotPermitted { pid, why, fix } => {
                write!(f, "not permitted to look at process {pid}: {why}; {fix}")
            }
            AttachError::CannotProfile { pid, why } => write!(f, "process {pid} cannot be profiled: {why}"),
            AttachError::EndedEarly { pid } => {
                write!(f, "process {pid} ended before any sample was taken; start it under sampletop with `-- COMMAND`")
            }
            AttachError::Internal { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for AttachError {}
