//! Finds the call in which a stack waits, by the innermost frames outside of the kernel. A thread
//! that was woken and has no core yet still has this stack, but no longer the state of its wait.

use super::idle_marks::Mark;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::role::Role;

/// The innermost call of a stack, as far as it waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum WaitCall {
    #[default]
    None,
    /// State `poll`.
    Polls,
    /// `poll` or `io`: only the number of descriptors decides.
    PollsSome,
    /// State `wait`, `lock` or `sleep`.
    Waits,
}

/// What one frame says about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Call {
    /// It does not wait.
    #[default]
    Other,
    /// Of the kernel, or inside of the C library: part of its caller.
    Inner,
    Polls,
    PollsSome,
    Waits,
}

/// Functions of the C library with state `poll`, without leading underscores and suffixes.
const POLLS: &[&str] =
    &["epoll_wait", "epoll_pwait", "epoll_pwait2", "select", "pselect", "accept", "accept4"];

impl Call {
    pub(super) fn of(location: &Location, role: Role, mark: Mark) -> Call {
        if location.kind == FrameKind::Kernel {
            return Call::Inner;
        }
        let name = location.function.trim_start_matches('_');
        let name = ["GI_", "libc_"].iter().fold(name, |name, prefix| {
            name.strip_prefix(prefix).unwrap_or(name).trim_start_matches('_')
        });
        let name = name.trim_end_matches("_time64").trim_end_matches("64");
        match (role, mark) {
            (Role::App, _) => Call::Other,
            _ if POLLS.contains(&name) => Call::Polls,
            _ if ["poll", "ppoll"].contains(&name) => Call::PollsSome,
            (Role::Wait, _) => Call::Waits,
            (_, Mark::Plumbing) => Call::Inner,
            _ => Call::Other,
        }
    }
}

impl WaitCall {
    /// Returns the conclusion with one more frame, further in.
    pub(super) fn below(self, call: Call) -> WaitCall {
        match (call, self) {
            (Call::Inner, known) => known,
            (Call::Other, _) => WaitCall::None,
            (Call::Polls, _) => WaitCall::Polls,
            (Call::PollsSome, _) => WaitCall::PollsSome,
            // What makes the system call.
            (Call::Waits, WaitCall::Polls | WaitCall::PollsSome) => self,
            (Call::Waits, WaitCall::None | WaitCall::Waits) => WaitCall::Waits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::projection::idle_marks::mark;
    use crate::model::projection::role;
    use crate::model::vocabulary::role::Origin;

    fn call(frames: &[&str]) -> WaitCall {
        frames.iter().fold(WaitCall::default(), |call, text| {
            let (module, name) = text.split_once('!').unwrap_or(("shop", text));
            let kind = if module == "vmlinux" { FrameKind::Kernel } else { FrameKind::Native };
            let location = Location { module: module.into(), ..Location::named(name, kind) };
            let role = role(&location, Origin::Unknown);
            call.below(Call::of(&location, role, mark(&location)))
        })
    }

    #[test]
    fn the_innermost_call_decides() {
        let kernel = ["vmlinux!do_syscall_64", "vmlinux!schedule"];
        for (frames, expected) in [
            (&["main", "libc.so.6!epoll_wait"][..], WaitCall::Polls),
            (&["main", "libc.so.6!epoll_wait", "libc.so.6!__syscall_cancel"], WaitCall::Polls),
            (&["main", "libc.so.6!__libc_accept"], WaitCall::Polls),
            (&["main", "libc.so.6!poll"], WaitCall::PollsSome),
            (&["main", "libc.so.6!pthread_cond_wait", "libc.so.6!fn_8a3c0"], WaitCall::Waits),
            (&["main", "libc.so.6!pthread_mutex_lock"], WaitCall::Waits),
            (&["main", "libc.so.6!malloc"], WaitCall::None),
            (&["main", "libc.so.6!recv"], WaitCall::None),
            (&["main", "libc.so.6!epoll_wait", "on_signal"], WaitCall::None),
            (&["main", "accept"], WaitCall::None),
            (&["main"], WaitCall::None),
        ] {
            assert_eq!(call(frames), expected, "{frames:?}");
            assert_eq!(call(&[frames, &kernel].concat()), expected, "{frames:?} in the kernel");
        }
    }
}
