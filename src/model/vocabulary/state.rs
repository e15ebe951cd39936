//! What a thread is doing: nine words, the same everywhere.

use crate::model::vocabulary::event::Syscall;

/// The state that is shown. Order is the order of display.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum State {
    /// On a core.
    Run = 0,
    /// Wants a core.
    Rdy = 1,
    /// futex under a mutex, rwlock or monitor enter (named frames), or uninterruptible for a lock
    /// of the kernel.
    Lock = 2,
    /// Other futex: condition, park, queue; and waits of no other kind.
    Wait = 3,
    /// read, recv, connect, fsync, poll with one descriptor.
    Io = 4,
    /// epoll, select, poll with many, accept.
    Poll = 5,
    /// nanosleep, or futex under a sleep frame.
    Sleep = 6,
    /// Uninterruptible for anything else, mostly a disk.
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

/// The state as a fact stores it: a futex wait is decided by the names of its frames, which come
/// later.
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
    /// Stands for [`RawState::Futex`] in [`RawState::parked`].
    const BY_FRAMES: u64 = u64::MAX;

    /// Returns what stands for the system call of a goroutine that waits in this state.
    pub fn parked(self) -> Syscall {
        let state = match self {
            RawState::Known(state) => state as u64,
            RawState::Futex => RawState::BY_FRAMES,
        };
        Syscall { number: Syscall::PARKED, args: [state, 0, 0, 0, 0, 0] }
    }

    /// Decides by system call, x86-64 numbers as in the kernel's
    /// `arch/x86/entry/syscalls/syscall_64.tbl` (6.18). Unknown ones, and a wait outside any system
    /// call (-1), are a plain [`State::Wait`].
    pub fn of_blocked(call: Syscall) -> RawState {
        use State::{Io, Lock, Poll, Sleep, Wait};
        // The kernel reads an `int` or `unsigned int` argument from the register's lower half.
        let low = |n: usize| call.args[n] as u32;
        if call.number == Syscall::PARKED && call.args[0] == RawState::BY_FRAMES {
            return RawState::Futex;
        }
        if call.number == Syscall::PARKED {
            let state = State::ALL.into_iter().find(|state| *state as u64 == call.args[0]);
            return RawState::Known(state.unwrap_or(Wait));
        }
        RawState::Known(match call.number {
            // read write open close stat fstat lstat; lseek
            0..=6 | 8 => Io,
            // poll, ppoll: descriptors are counted in the second argument; with none it is a sleep.
            7 | 271 => match low(1) {
                0 => Sleep,
                1 => Io,
                _ => Poll,
            },
            // select, pselect6: which descriptors is in memory; the first argument is their bound.
            23 | 270 => match low(0) as i32 {
                ..=0 => Sleep,
                _ => Poll,
            },
            // accept accept4 epoll_wait epoll_wait_old epoll_pwait epoll_pwait2
            43 | 288 | 232 | 215 | 281 | 441 => Poll,
            // ioctl pread64 pwrite64 readv writev access; msync; sendfile
            16..=21 | 26 | 40 => Io,
            // connect sendto recvfrom sendmsg recvmsg shutdown; recvmmsg sendmmsg
            42 | 44..=48 | 299 | 307 => Io,
            // fsync fdatasync truncate ftruncate getdents; rename .. readlink; chmod .. lchown
            74..=78 | 82..=89 | 90..=94 => Io,
            // utime ustat statfs fstatfs; sync mount umount2; readahead setxattr .. fremovexattr;
            // getdents64 fadvise64
            132 | 136..=138 | 162 | 165 | 166 | 187..=199 | 217 | 221 => Io,
            // io_getevents io_submit io_pgetevents; io_uring_enter
            208 | 209 | 333 | 426 => Io,
            // openat .. faccessat (all that take a directory); splice tee sync_file_range vmsplice;
            // fallocate
            257..=269 | 275..=278 | 285 => Io,
            // preadv pwritev syncfs renameat2 copy_file_range preadv2 pwritev2 statx openat2
            // faccessat2
            295 | 296 | 306 | 316 | 326..=328 | 332 | 437 | 439 => Io,
            // nanosleep clock_nanosleep
            35 | 230 => Sleep,
            // futex: FUTEX_LOCK_PI and FUTEX_LOCK_PI2 say themselves that they are a mutex.
            202 if matches!(low(1) & 0x7f, 6 | 13) => Lock,
            // futex futex_waitv futex_wait
            202 | 449 | 455 => return RawState::Futex,
            // restart_syscall: a sleep, poll or futex that goes on after a stop; only the frames
            // tell which.
            219 => return RawState::Futex,
            // pause wait4 waitid semop semtimedop msgsnd msgrcv mq_* rt_sigtimedwait rt_sigsuspend
            // flock vfork ...
            _ => Wait,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_goroutines_pass_through_calls() {
        let known = State::ALL.into_iter().map(RawState::Known);
        for state in known.chain([RawState::Futex]) {
            assert_eq!(RawState::of_blocked(state.parked()), state);
        }
        let unknown = Syscall { number: Syscall::PARKED, args: [9, 0, 0, 0, 0, 0] };
        assert_eq!(RawState::of_blocked(unknown), RawState::Known(State::Wait));
    }

    fn state(number: i32, args: [u64; 6]) -> RawState {
        RawState::of_blocked(Syscall { number, args })
    }

    #[test]
    fn calls_by_number() {
        let known = [
            (0, State::Io),    // read
            (1, State::Io),    // write
            (42, State::Io),   // connect
            (45, State::Io),   // recvfrom
            (74, State::Io),   // fsync
            (40, State::Io),   // sendfile
            (208, State::Io),  // io_getevents
            (426, State::Io),  // io_uring_enter
            (43, State::Poll), // accept
            (288, State::Poll),
            (232, State::Poll), // epoll_wait
            (281, State::Poll),
            (441, State::Poll),
            (35, State::Sleep), // nanosleep
            (230, State::Sleep),
            (61, State::Wait),  // wait4
            (34, State::Wait),  // pause
            (128, State::Wait), // rt_sigtimedwait
            (65, State::Wait),  // semop
            (70, State::Wait),  // msgrcv
            (243, State::Wait), // mq_timedreceive
            (-1, State::Wait),
            (i32::MAX, State::Wait),
            (i32::MIN, State::Wait),
        ];
        for (number, expected) in known {
            assert_eq!(state(number, [0; 6]), RawState::Known(expected), "{number}");
        }
        for number in [202, 449, 455, 219] {
            assert_eq!(state(number, [0; 6]), RawState::Futex, "{number}");
        }
    }

    #[test]
    fn calls_by_argument() {
        // The upper half of a register is not part of an int.
        let garbage = 0xdead_beef_0000_0000;
        for number in [7, 271] {
            assert_eq!(state(number, [1, 0, 0, 0, 0, 0]), RawState::Known(State::Sleep));
            assert_eq!(state(number, [0, garbage | 1, 0, 0, 0, 0]), RawState::Known(State::Io));
            assert_eq!(state(number, [0, 2, 0, 0, 0, 0]), RawState::Known(State::Poll));
        }
        for number in [23, 270] {
            assert_eq!(state(number, [0; 6]), RawState::Known(State::Sleep));
            assert_eq!(state(number, [7, 0, 0, 0, 0, 0]), RawState::Known(State::Poll));
        }
        // FUTEX_LOCK_PI | FUTEX_PRIVATE_FLAG, and FUTEX_WAIT_BITSET with both flags.
        assert_eq!(state(202, [0, 6 | 128, 0, 0, 0, 0]), RawState::Known(State::Lock));
        assert_eq!(state(202, [0, 9 | 128 | 256, 0, 0, 0, 0]), RawState::Futex);
    }
}
