//! Waits for file locks (`flock`, `fcntl`), and who holds them by /proc/locks.

use std::fs::File;
use std::io::Read;

use super::{BlockedThread, is_leader};
use crate::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use crate::model::vocabulary::event::Syscall;

/// Commands of fcntl that wait (include/uapi/asm-generic/fcntl.h).
const F_SETLKW: u32 = 7;
const F_OFD_SETLKW: u32 = 38;
/// Maximum bytes read of /proc/locks: any user may take any number of locks. A waiter further on is
/// not found.
pub(super) const LOCKS_MAX: u64 = 1 << 20;

/// Whose a lock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockClass {
    /// `flock`: an open file's; the kernel shows the process that took it.
    Flock,
    /// `fcntl` with F_SETLKW: a process's.
    Posix,
    /// `fcntl` with F_OFD_SETLKW: an open file's; the kernel shows no process.
    Ofd,
}

impl LockClass {
    /// Returns the class of the lock that a system call waits for.
    pub(super) fn of(call: &Syscall) -> Option<LockClass> {
        match (call.number, call.args[1] as u32) {
            (73, _) => Some(LockClass::Flock),
            (72, F_SETLKW) => Some(LockClass::Posix),
            (72, F_OFD_SETLKW) => Some(LockClass::Ofd),
            _ => None,
        }
    }
}

/// A wait in /proc/locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockWait {
    pub class: LockClass,
    /// Process ids, where the kernel shows them.
    pub waiter: Option<u32>,
    pub holder: Option<u32>,
    pub inode: u64,
}

/// Returns the file whose lock a call waits for. The inode's number comes from fdinfo (kernel
/// 5.14), because stat(2) would ask the file's server.
pub(super) fn blocker(thread: &BlockedThread<'_>, call: &Syscall) -> Option<RawBlocker> {
    LockClass::of(call)?;
    let fd = call.args[0] as u32;
    let path = format!("/proc/{}/task/{}/fdinfo/{fd}", thread.pid, thread.tid);
    let mut info = [0; 512];
    let length = File::open(path).ok()?.read(&mut info).ok()?;
    let inode = inode_of(info.get(..length)?)?;
    Some(super::raw_blocker(BlockerKind::FileLock, inode, RawHolder::Unknown))
}

/// Parses the line `ino:` of fdinfo.
fn inode_of(info: &[u8]) -> Option<u64> {
    number(info.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"ino:"))?.trim_ascii())
}

/// Returns the process that holds the lock for which a thread of `pid` waits in `call`; its leader
/// stands for it. `inode` is the object of the blocker that [`super::native_blocker`] returned.
/// Unknown where several locks fit and have different holders.
///
/// Not for the sampler's thread: opening and reading /proc/locks costs about 6 ms (kernel 6.18, 12
/// locks), and 20 us if repeated within milliseconds. The kernel waits for an RCU grace period and
/// keeps all changes of file locks on the host waiting meanwhile.
pub fn file_lock_holder(pid: u32, call: &Syscall, inode: u64) -> RawHolder {
    let Some(class) = LockClass::of(call) else { return RawHolder::Unknown };
    let mut text = Vec::new();
    let read =
        File::open("/proc/locks").and_then(|file| file.take(LOCKS_MAX).read_to_end(&mut text));
    match holder_in(&parse_locks(&text), pid, class, inode) {
        // A process may end and leave its lock to a child that has the same open file.
        Some(holder) if read.is_ok() && is_leader(holder) => {
            RawHolder::Thread { pid: holder, tid: holder }
        }
        _ => RawHolder::Unknown,
    }
}

/// Returns the one holder of all locks of this class and file for which a process waits.
pub fn holder_in(waits: &[LockWait], pid: u32, class: LockClass, inode: u64) -> Option<u32> {
    let is_ours = |wait: &&LockWait| {
        wait.class == class
            && wait.inode == inode
            && (class == LockClass::Ofd || wait.waiter == Some(pid))
    };
    let mut holders = waits.iter().filter(is_ours).map(|wait| wait.holder);
    let first = holders.next()??;
    holders.all(|holder| holder == Some(first)).then_some(first)
}

/// Parses the waits in /proc/locks. The lines of waiters follow that of the lock's holder and have
/// its number. Those with more blanks before the arrow wait for another waiter and for the holder.
pub fn parse_locks(text: &[u8]) -> Vec<LockWait> {
    let mut waits = Vec::new();
    let mut held = None;
    for line in text.split_inclusive(|b| *b == b'\n') {
        // A line that is cut off might have a shorter number.
        let Some(lock) = line.strip_suffix(b"\n").and_then(LockLine::parse) else {
            // Waiters of a lock that is not understood belong to no other lock.
            held = held.filter(|_| line.windows(2).any(|arrow| arrow == b"->"));
            continue;
        };
        if !lock.waits {
            held = Some(lock);
            continue;
        }
        let Some(held) = held.filter(|held| held.number == lock.number) else { continue };
        waits.push(LockWait {
            class: lock.class,
            waiter: lock.pid,
            holder: held.pid,
            inode: lock.inode,
        });
    }
    waits
}

/// One line: `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`; a waiter's has `->` behind the
/// number.
#[derive(Clone, Copy)]
struct LockLine {
    number: u64,
    waits: bool,
    class: LockClass,
    pid: Option<u32>,
    inode: u64,
}

impl LockLine {
    fn parse(line: &[u8]) -> Option<LockLine> {
        let mut words =
            line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).peekable();
        let number = number(words.next()?.strip_suffix(b":")?)?;
        let waits = words.next_if_eq(&&b"->"[..]).is_some();
        let class = match words.next()? {
            b"FLOCK" => LockClass::Flock,
            b"POSIX" => LockClass::Posix,
            b"OFDLCK" => LockClass::Ofd,
            _ => return None,
        };
        // ADVISORY, and READ or WRITE.
        let pid = words.nth(2)?;
        let pid = if pid == b"-1" { None } else { Some(number_of_process(pid)?) };
        let inode = self::number(words.next()?.rsplit(|b| *b == b':').next()?)?;
        Some(LockLine { number, waits, class, pid, inode })
    }
}

fn number(text: &[u8]) -> Option<u64> {
    let text = text.first().filter(|b| b.is_ascii_digit()).map(|_| text)?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn number_of_process(text: &[u8]) -> Option<u32> {
    u32::try_from(number(text)?).ok().filter(|pid| *pid != 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOCKS: &[u8] = b"\
1: FLOCK  ADVISORY  WRITE 100 fe:00:7 0 EOF
1: -> FLOCK  ADVISORY  WRITE 101 fe:00:7 0 EOF
1:  -> FLOCK  ADVISORY  READ  102 fe:00:7 0 EOF
2: POSIX  ADVISORY  WRITE 200 fe:00:8 0 9
2: -> OFDLCK ADVISORY  WRITE -1 fe:00:8 0 9
2: -> POSIX  ADVISORY  READ  101 fe:00:8 0 EOF
3: OFDLCK ADVISORY  READ  -1 fe:00:9 0 EOF
3: -> POSIX  ADVISORY  WRITE 101 fe:00:9 0 EOF
4: LEASE  ACTIVE    WRITE 300 fe:00:10 0 EOF
4: -> LEASE  BREAKER   READ  101 fe:00:10 0 EOF
5: POSIX  *NOINODE* WRITE 400 <none>:0 0 EOF
";

    #[test]
    fn waits_and_their_holders() {
        use LockClass::{Flock, Ofd, Posix};
        let waits = parse_locks(LOCKS);
        let wait = |class, waiter, holder, inode| LockWait { class, waiter, holder, inode };
        assert_eq!(
            waits,
            [
                wait(Flock, Some(101), Some(100), 7),
                wait(Flock, Some(102), Some(100), 7),
                wait(Ofd, None, Some(200), 8),
                wait(Posix, Some(101), Some(200), 8),
                wait(Posix, Some(101), None, 9),
            ]
        );
        for (pid, class, inode, holder) in [
            (101, Flock, 7, Some(100)),
            (102, Flock, 7, Some(100)),
            (101, Posix, 8, Some(200)),
            (555, Ofd, 8, Some(200)),
            (101, Posix, 9, None),
            (101, Posix, 7, None),
            (100, Flock, 7, None),
            (101, Flock, 8, None),
        ] {
            assert_eq!(holder_in(&waits, pid, class, inode), holder, "{pid} {class:?} {inode}");
        }
    }

    #[test]
    fn two_holders_of_what_one_process_waits_for() {
        let waits = parse_locks(
            b"1: POSIX  ADVISORY  WRITE 200 fe:00:8 0 9\n1: -> POSIX  ADVISORY  WRITE 101 fe:00:8 0 9\n\
              2: POSIX  ADVISORY  WRITE 201 fe:00:8 20 29\n2: -> POSIX  ADVISORY  WRITE 101 fe:00:8 20 29\n",
        );
        assert_eq!(waits.len(), 2);
        assert_eq!(holder_in(&waits, 101, LockClass::Posix, 8), None);
        assert_eq!(holder_in(&waits[1..], 101, LockClass::Posix, 8), Some(201));
    }

    #[test]
    fn lines_that_are_no_locks() {
        let held = "1: FLOCK  ADVISORY  WRITE 100 fe:00:7 0 EOF\n";
        for line in [
            "1: -> FLOCK  ADVISORY  WRITE 101 fe:00:7 0 EOF",
            "2: -> FLOCK  ADVISORY  WRITE 101 fe:00:7 0 EOF\n",
            "1: -> FLOCK  ADVISORY  WRITE 0 fe:00:7 0 EOF\n",
            "1: -> FLOCK  ADVISORY  WRITE -2 fe:00:7 0 EOF\n",
            "1: -> FLOCK  ADVISORY  WRITE +101 fe:00:7 0 EOF\n",
            "1: -> FLOCK  ADVISORY  WRITE 99999999999 fe:00:7 0 EOF\n",
            "1: -> FLOCK  ADVISORY  WRITE 101 fe:00:99999999999999999999999 0 EOF\n",
            "1: -> FLOCK  ADVISORY  WRITE 101 fe:00: 0 EOF\n",
            "1: -> FLOCK  ADVISORY\n",
            "1 -> FLOCK  ADVISORY  WRITE 101 fe:00:7 0 EOF\n",
            "1: -> \n",
            "\n",
            ": -> FLOCK  ADVISORY  WRITE 101 fe:00:7 0 EOF\n",
            "1: -> SHARE  ADVISORY  WRITE 101 fe:00:7 0 EOF\n",
        ] {
            assert_eq!(parse_locks(format!("{held}{line}").as_bytes()), [], "{line:?}");
        }
        let lease = "1: LEASE  ACTIVE    WRITE 300 fe:00:10 0 EOF\n";
        let waiter = "1: -> FLOCK  ADVISORY  WRITE 101 fe:00:7 0 EOF\n";
        assert_eq!(parse_locks(format!("{held}{lease}{waiter}").as_bytes()), []);
        assert_eq!(parse_locks(format!("{waiter}{held}").as_bytes()), []);
        assert_eq!(parse_locks(format!("{held}{waiter}").as_bytes()).len(), 1);
    }

    #[test]
    fn the_inode_in_fdinfo() {
        let info = b"pos:\t0\nflags:\t02100002\nmnt_id:\t29\nino:\t1234\nlock:\t1: FLOCK ino:5\n";
        assert_eq!(inode_of(info), Some(1234));
        for none in [&b""[..], b"pos:\t0\n", b"ino:\tx\n", b"ino:\t-1\n", b"ino:", b"xino:\t3\n"] {
            assert_eq!(inode_of(none), None);
        }
    }

    #[test]
    fn calls_that_wait_for_a_lock() {
        let call = |number, command| Syscall { number, args: [3, command, 0, 0, 0, 0] };
        assert_eq!(LockClass::of(&call(73, 2)), Some(LockClass::Flock));
        assert_eq!(LockClass::of(&call(72, 7)), Some(LockClass::Posix));
        assert_eq!(LockClass::of(&call(72, 38)), Some(LockClass::Ofd));
        for none in [call(72, 6), call(72, 37), call(72, 3), call(74, 7)] {
            assert_eq!(LockClass::of(&none), None);
        }
        assert_eq!(file_lock_holder(1, &call(72, 3), 7), RawHolder::Unknown);
    }

    proptest! {
        /// Never more waits than lines, whatever the text is.
        #[test]
        fn any_text_is_parsed(cuts in proptest::collection::vec((0..LOCKS.len(), any::<u8>()), 0..9)) {
            let mut text = LOCKS.to_vec();
            for (at, byte) in cuts {
                text[at] = byte;
            }
            let lines = text.split(|b| *b == b'\n').count();
            prop_assert!(parse_locks(&text).len() < lines);
        }

        #[test]
        fn any_bytes_are_parsed(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            parse_locks(&text);
            inode_of(&text);
        }
    }
}
