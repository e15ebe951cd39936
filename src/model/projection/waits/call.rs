//! System calls in which threads block: their names here, and the argument that refers to the
//! awaited object. Numbers as in the kernel's `arch/x86/entry/syscalls/syscall_64.tbl` (6.18).

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::model::vocabulary::event::Syscall;

/// What must be looked up to describe a call's wait; addresses are the target's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Object {
    Nothing,
    Fd(i32),
    /// An epoll set: its descriptor. The number of descriptors it watches is looked up.
    Epoll(i32),
    /// `struct pollfd[count]`.
    Poll {
        at: u64,
        count: u32,
    },
    /// Descriptors below `below` in up to three bit sets (0: none).
    Select {
        below: u32,
        sets: [u64; 3],
    },
    /// The address that a socket is being connected to.
    Connect {
        fd: i32,
        at: u64,
        len: u32,
    },
    /// A path, as a string.
    Path(u64),
    Sleep(Timer),
    Child(Child),
    /// The futex word at `at`, which contained `value`.
    Futex {
        at: u64,
        command: u32,
        value: u32,
    },
}

/// The source of a sleep's duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timer {
    Ms(i32),
    /// `struct timespec`.
    Timespec(u64),
    /// `struct timeval`.
    Timeval(u64),
    /// `struct timespec`, an absolute time on this clock.
    Until {
        clock: i32,
        at: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Child {
    Any,
    Pid(i32),
    Group(i32),
    /// A child identified by a pidfd.
    Fd(i32),
    OwnGroup,
}

/// FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_LOCK_PI2 (include/uapi/linux/futex.h).
pub const FUTEX_WAIT: u32 = 0;
pub const FUTEX_LOCK_PI: u32 = 6;
pub const FUTEX_WAIT_BITSET: u32 = 9;
pub const FUTEX_LOCK_PI2: u32 = 13;

/// Returns the call's name and object. `None` for a call that is not known to block, or for no
/// call.
pub fn read(call: Syscall) -> Option<(&'static str, Object)> {
    use Object::{Connect, Epoll, Fd, Futex, Nothing, Path, Poll, Select};
    let args = call.args;
    // An `int` argument is the lower half of its register.
    let int = |n: usize| args[n] as u32 as i32;
    let fd = |name| Some((name, Fd(int(0))));
    let path = |name, n: usize| Some((name, Path(args[n])));
    let plain = |name| Some((name, Nothing));
    match call.number {
        0 => fd("read"),
        1 => fd("write"),
        3 => fd("close"),
        5 => fd("fstat"),
        8 => fd("lseek"),
        16 => fd("ioctl"),
        17 => fd("pread"),
        18 => fd("pwrite"),
        19 => fd("readv"),
        20 => fd("writev"),
        40 => fd("sendfile"),
        43 | 288 => fd("accept"),
        44 => fd("send"),
        45 => fd("recv"),
        46 => fd("sendmsg"),
        47 => fd("recvmsg"),
        48 => fd("shutdown"),
        72 => fd("fcntl"),
        73 => fd("flock"),
        74 => fd("fsync"),
        75 => fd("fdatasync"),
        77 => fd("ftruncate"),
        78 | 217 => fd("getdents"),
        187 => fd("readahead"),
        221 => fd("fadvise"),
        242 => fd("mq_send"),
        243 => fd("mq_receive"),
        275 => fd("splice"),
        276 => fd("tee"),
        277 => fd("sync_file_range"),
        278 => fd("vmsplice"),
        285 => fd("fallocate"),
        295 | 327 => fd("preadv"),
        296 | 328 => fd("pwritev"),
        299 => fd("recvmmsg"),
        306 => fd("syncfs"),
        307 => fd("sendmmsg"),
        326 => fd("copy_file_range"),
        426 => fd("io_uring_enter"),
        215 | 232 | 281 | 441 => Some(("epoll", Epoll(int(0)))),
        42 => Some(("connect", Connect { fd: int(0), at: args[1], len: args[2] as u32 })),
        7 | 271 if args[1] as u32 == 0 => {
            let timer = if call.number == 7 { Timer::Ms(int(2)) } else { Timer::Timespec(args[2]) };
            Some(("sleep", Object::Sleep(timer)))
        }
        7 | 271 => Some(("poll", Poll { at: args[0], count: args[1] as u32 })),
        23 | 270 if int(0) <= 0 => {
            let timer =
                if call.number == 23 { Timer::Timeval(args[4]) } else { Timer::Timespec(args[4]) };
            Some(("sleep", Object::Sleep(timer)))
        }
        23 | 270 => {
            Some(("select", Select { below: args[0] as u32, sets: [args[1], args[2], args[3]] }))
        }
        35 => Some(("sleep", Object::Sleep(Timer::Timespec(args[0])))),
        // TIMER_ABSTIME is 1.
        230 if int(1) & 1 == 1 => {
            Some(("sleep", Object::Sleep(Timer::Until { clock: int(0), at: args[2] })))
        }
        230 => Some(("sleep", Object::Sleep(Timer::Timespec(args[2])))),
        61 => Some((
            "wait4",
            Object::Child(match int(0) {
                -1 => Child::Any,
                0 => Child::OwnGroup,
                pid @ 1.. => Child::Pid(pid),
                group => Child::Group(group.unsigned_abs().cast_signed()),
            }),
        )),
        // P_ALL, P_PID, P_PGID, P_PIDFD.
        247 => Some((
            "waitid",
            match (int(0), int(1)) {
                (0, _) => Object::Child(Child::Any),
                (1, pid) => Object::Child(Child::Pid(pid)),
                (2, 0) => Object::Child(Child::OwnGroup),
                (2, group) => Object::Child(Child::Group(group)),
                (3, fd) => Object::Child(Child::Fd(fd)),
                _ => Nothing,
            },
        )),
        202 => Some((
            "futex",
            Futex { at: args[0], command: args[1] as u32 & 0x7f, value: args[2] as u32 },
        )),
        455 => Some((
            "futex",
            Futex { at: args[0], command: FUTEX_WAIT_BITSET, value: args[1] as u32 },
        )),
        449 => plain("futex_waitv"),
        2 => path("open", 0),
        4 => path("stat", 0),
        6 => path("lstat", 0),
        21 => path("access", 0),
        59 => path("execve", 0),
        76 => path("truncate", 0),
        80 => path("chdir", 0),
        82 => path("rename", 0),
        83 => path("mkdir", 0),
        84 => path("rmdir", 0),
        85 => path("creat", 0),
        86 => path("link", 0),
        87 => path("unlink", 0),
        88 => path("symlink", 1),
        89 => path("readlink", 0),
        90 => path("chmod", 0),
        92 => path("chown", 0),
        94 => path("lchown", 0),
        132 => path("utime", 0),
        137 => path("statfs", 0),
        165 => path("mount", 1),
        166 => path("umount", 0),
        257 | 437 => path("open", 1),
        258 => path("mkdir", 1),
        260 => path("chown", 1),
        262 | 332 => path("stat", 1),
        263 => path("unlink", 1),
        264 | 316 => path("rename", 1),
        267 => path("readlink", 1),
        268 => path("chmod", 1),
        269 | 439 => path("access", 1),
        26 => plain("msync"),
        34 => plain("pause"),
        58 => plain("vfork"),
        65 | 220 => plain("semop"),
        69 => plain("msgsnd"),
        70 => plain("msgrcv"),
        128 => plain("sigtimedwait"),
        130 => plain("sigsuspend"),
        162 => plain("sync"),
        208 | 333 => plain("io_getevents"),
        209 => plain("io_submit"),
        // A sleep, poll or futex that continues after a stop; the kernel does not reveal which.
        219 => plain("restart_syscall"),
        _ => None,
    }
}

/// The names that [`read`] gives. Arguments of 0 and 1 tell a sleep from a poll.
static NAMES: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| {
    let calls = (0..1_024).flat_map(|number| [0, 1].map(|arg| Syscall { number, args: [arg; 6] }));
    calls.filter_map(read).map(|(name, _)| name).collect()
});

/// Returns the call's name that equals `text`.
pub fn known(text: &str) -> Option<&'static str> {
    NAMES.get(text).copied()
}
