//! What keeps a blocked thread from going on: a lock, a condition, another thread's end, and who
//! holds it.

use super::frame::RawName;

/// What kind of object a thread waits for. The numbers are part of the ring's format and of saved
/// files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum BlockerKind {
    /// Java: to enter a `synchronized` block or method, also again after `Object.wait`.
    Monitor = 1,
    /// Java: `Object.wait`, not notified yet.
    Notify = 2,
    /// Java: a lock of `java.util.concurrent.locks` that one thread owns at a time.
    OwnedLock = 3,
    /// Java: `Condition.await`; the object is the condition's lock.
    Condition = 4,
    /// Java: `java.util.concurrent.Semaphore`.
    Semaphore = 5,
    /// Java: `java.util.concurrent.CountDownLatch`.
    Latch = 6,
    /// Java: the result of a `FutureTask`; the holder runs it.
    Future = 7,
    /// Java: any other object that `LockSupport.park` was given.
    Parked = 8,
    /// Another thread's end: `Thread.join`, `pthread_join`.
    ThreadEnd = 9,
    /// Java: a class that another thread initialises.
    ClassInit = 10,
    /// `pthread_mutex_t`.
    Mutex = 11,
    /// `pthread_rwlock_t`.
    RwLock = 12,
    /// `flock` or `fcntl`; the object is the file's inode.
    FileLock = 13,
    /// `waitpid`; the object is the child's process id, 0 for any child.
    Child = 14,
    /// Python: the lock of its interpreter, which a thread needs to execute Python code (GIL).
    Gil = 15,
    /// Python: `threading.Lock` or `threading.RLock`.
    ThreadingLock = 16,
}

impl BlockerKind {
    pub const ALL: [BlockerKind; 16] = [
        BlockerKind::Monitor,
        BlockerKind::Notify,
        BlockerKind::OwnedLock,
        BlockerKind::Condition,
        BlockerKind::Semaphore,
        BlockerKind::Latch,
        BlockerKind::Future,
        BlockerKind::Parked,
        BlockerKind::ThreadEnd,
        BlockerKind::ClassInit,
        BlockerKind::Mutex,
        BlockerKind::RwLock,
        BlockerKind::FileLock,
        BlockerKind::Child,
        BlockerKind::Gil,
        BlockerKind::ThreadingLock,
    ];

    /// Returns the kind with this number.
    pub fn of(number: u8) -> Option<BlockerKind> {
        BlockerKind::ALL.get(usize::from(number.checked_sub(1)?)).copied()
    }

    /// Returns the word in JSON and in rows.
    pub fn word(self) -> &'static str {
        match self {
            BlockerKind::Monitor => "monitor",
            BlockerKind::Notify => "notify",
            BlockerKind::OwnedLock | BlockerKind::ThreadingLock => "lock",
            BlockerKind::Condition => "condition",
            BlockerKind::Semaphore => "semaphore",
            BlockerKind::Latch => "latch",
            BlockerKind::Future => "future",
            BlockerKind::Parked => "parked",
            BlockerKind::ThreadEnd => "thread end",
            BlockerKind::ClassInit => "class initialisation",
            BlockerKind::Mutex => "mutex",
            BlockerKind::RwLock => "rwlock",
            BlockerKind::FileLock => "file lock",
            BlockerKind::Child => "child",
            BlockerKind::Gil => "GIL",
        }
    }

    /// Returns the name of one such object: `monitor of com.acme.TaxTable 0x7f5a01c8`.
    pub fn name_of(self, class: Option<&str>, object: u64) -> String {
        let what = match class {
            // Whatever it is, the class says it.
            Some(class) if self.is_named_by_class() => class.to_owned(),
            Some(class) => format!("{} of {class}", self.word()),
            None => self.word().to_owned(),
        };
        match self.number_of(object) {
            Some(number) => format!("{what} {number}"),
            None => what,
        }
    }

    fn is_named_by_class(self) -> bool {
        matches!(self, BlockerKind::Parked | BlockerKind::ThreadingLock)
    }

    /// Returns the object's address, or the number of a file or process, as other tools print them.
    pub fn number_of(self, object: u64) -> Option<String> {
        match self {
            // Not proven; of a child, any.
            _ if object == 0 => None,
            BlockerKind::FileLock | BlockerKind::Child => Some(object.to_string()),
            _ => Some(format!("{object:#x}")),
        }
    }

    /// Returns whether it is a lock, which the holder takes and gives back: a class, too, while the
    /// holder initialises it. Another thread's end or result is not held.
    pub fn is_held(self) -> bool {
        matches!(
            self,
            BlockerKind::Monitor
                | BlockerKind::OwnedLock
                | BlockerKind::ClassInit
                | BlockerKind::Mutex
                | BlockerKind::RwLock
                | BlockerKind::FileLock
                | BlockerKind::Gil
                | BlockerKind::ThreadingLock
        )
    }

    /// Returns what is said where no thread holds it. A task may be one that no thread runs yet.
    pub fn free_word(self) -> &'static str {
        match self {
            BlockerKind::Future => "no thread runs it",
            _ => "just released",
        }
    }

    /// Returns whether a thread that has it keeps all others out, so that a cycle of waits never
    /// ends.
    pub fn is_exclusive(self) -> bool {
        matches!(
            self,
            BlockerKind::Monitor
                | BlockerKind::OwnedLock
                | BlockerKind::ThreadEnd
                | BlockerKind::ClassInit
                | BlockerKind::Mutex
                | BlockerKind::RwLock
                | BlockerKind::ThreadingLock
        )
    }

    /// Returns whether only a thread inside of a block or method has it, so that one that waits for
    /// work has given it back.
    pub fn is_of_a_block(self) -> bool {
        matches!(self, BlockerKind::Monitor | BlockerKind::ClassInit | BlockerKind::Future)
    }

    /// Returns whether a time limit of the system call does not end the wait: HotSpot may give
    /// entering a monitor one, CPython always gives the GIL one, and both then try again.
    pub fn ignores_time_limit(self) -> bool {
        matches!(self, BlockerKind::Monitor | BlockerKind::ClassInit | BlockerKind::Gil)
    }
}

/// Who holds what a thread waits for, as capture finds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum RawHolder {
    /// It cannot be known, or is not proven.
    #[default]
    Unknown,
    /// No thread holds it now: it was just released.
    Free,
    /// A thread: ids as in sampletop's PID namespace.
    Thread { pid: u32, tid: u32 },
    /// This number of readers, whose threads are unknown.
    Readers(u32),
    /// A virtual thread of Java that runs on no carrier.
    Unmounted,
}

/// A blocker as capture reads it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RawBlocker {
    pub kind: BlockerKind,
    /// Address of the object in the target: of a Java object as `jstack` prints it (of a monitor
    /// its own under ZGC and Shenandoah, which move objects while Java runs), of a mutex its
    /// first byte, of a class that is initialised the virtual machine's record of the class.
    pub object: u64,
    /// The object's class: a text of the runtime's names (`RawName::of_runtime`).
    pub class: Option<RawName>,
    pub holder: RawHolder,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_by_kind_class_and_number() {
        let names = [
            BlockerKind::Monitor.name_of(Some("com.acme.TaxTable"), 0x7f5a_01c8),
            BlockerKind::Parked.name_of(Some("com.acme.Gate"), 16),
            BlockerKind::Mutex.name_of(None, 0x5510),
            BlockerKind::FileLock.name_of(None, 4711),
            BlockerKind::Child.name_of(None, 0),
            BlockerKind::ClassInit.name_of(Some("com.acme.Config"), 0x7f),
        ];
        let expected = [
            "monitor of com.acme.TaxTable 0x7f5a01c8",
            "com.acme.Gate 0x10",
            "mutex 0x5510",
            "file lock 4711",
            "child",
            "class initialisation of com.acme.Config 0x7f",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_task_that_no_thread_runs_was_not_released() {
        assert_eq!(BlockerKind::Future.free_word(), "no thread runs it");
        assert_eq!(BlockerKind::Mutex.free_word(), "just released");
    }

    #[test]
    fn what_tries_again_ignores_a_time_limit() {
        let ignoring = BlockerKind::ALL.into_iter().filter(|kind| kind.ignores_time_limit());
        let expected = [BlockerKind::Monitor, BlockerKind::ClassInit, BlockerKind::Gil];
        assert!(ignoring.eq(expected));
    }

    #[test]
    fn numbers_of_kinds_are_kept() {
        for kind in BlockerKind::ALL {
            assert_eq!(BlockerKind::of(kind as u8), Some(kind));
        }
        assert_eq!([BlockerKind::of(0), BlockerKind::of(17)], [None, None]);
        assert_eq!(BlockerKind::ThreadingLock as u8, 16);
    }
}
