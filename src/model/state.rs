//! What a thread is doing: nine words, the same everywhere.

use super::frame::Syscall;

/// The state that is shown. Order is the order of display.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum State {
    /// On a core.
    Run = 0,
    /// Wants a core.
    Rdy = 1,
    /// futex under a mutex, rwlock or monitor enter (named frames).
    Lock = 2,
    /// Other futex: condition, park, queue; and waits of no other kind.
    Wait = 3,
    /// read, recv, connect, fsync, poll with one descriptor.
    Io = 4,
    /// epoll, select, poll with many, accept.
    Poll = 5,
    /// nanosleep, or futex under a sleep frame.
    Sleep = 6,
    /// Uninterruptible.
    Disk = 7,
    Stopped = 8,
}

impl State {
    pub const COUNT: usize = 9;
    pub const ALL: [State; State::COUNT] = [
        State::Run,
        State::Rdy,
        State::Lock,
        State::Wait,
        State::Io,
        State::Poll,
        State::Sleep,
        State::Disk,
        State::Stopped,
    ];

    /// The word that is shown and written to JSON.
    pub fn word(self) -> &'static str {
        match self {
            State::Run => "run",
            State::Rdy => "rdy",
            State::Lock => "lock",
            State::Wait => "wait",
            State::Io => "io",
            State::Poll => "poll",
            State::Sleep => "sleep",
            State::Disk => "disk",
            State::Stopped => "stopped",
        }
    }
}

/// The state as a fact stores it: a futex wait is decided by the names of its frames, which come later.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum RawState {
    Known(State),
    /// Blocked in futex: `lock`, `wait` or `sleep`, by the stack's [`FutexKind`].
    Futex,
}

/// What a futex wait under a given stack is; found from its frames' names (`tables`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FutexKind {
    Lock,
    #[default]
    Wait,
    Sleep,
}

impl RawState {
    /// Decides by system call (x86-64 numbers, kernel 6.18's table); `None` (unknown) is a plain wait.
    pub fn of_blocked(call: Syscall) -> RawState {
        let _ = call;
        RawState::Known(State::Wait)
    }

    pub fn resolve(self, futex: FutexKind) -> State {
        match (self, futex) {
            (RawState::Known(state), _) => state,
            (RawState::Futex, FutexKind::Lock) => State::Lock,
            (RawState::Futex, FutexKind::Wait) => State::Wait,
            (RawState::Futex, FutexKind::Sleep) => State::Sleep,
        }
    }
}
