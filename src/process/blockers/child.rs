//! The child process that a thread waits for.

use super::{BlockedThread, is_leader};
use crate::model::projection::waits::Child;
use crate::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};

/// Returns the awaited child. Its id is that of the waiting process's PID namespace; the holder is
/// known only where that namespace is sampletop's.
pub(super) fn blocker(thread: &BlockedThread<'_>, child: Child) -> RawBlocker {
    let pid = match child {
        Child::Pid(pid @ 1..) => pid.unsigned_abs(),
        _ => 0,
    };
    // A debugger may wait for a thread that is not a leader.
    let holder = if pid != 0 && thread.shares_our_ids() && is_leader(pid) {
        RawHolder::Thread { pid, tid: pid }
    } else {
        RawHolder::Unknown
    };
    super::raw_blocker(BlockerKind::Child, pid.into(), holder)
}
