//! Determines the kind of a futex wait by the names of its callers.
//!
//! Frames are checked from the innermost outward, and the first that has a kind decides. So a
//! condition wait that acquires its mutex again is `lock`, since the mutex frame is further in.
//!
//! `pthread_cond_wait` and `park` have no kind: locks and sleeps are built on them. (A monitor
//! enter in libjvm is a mutex and a condition.) If no frame further out has a kind, a futex wait is
//! `wait` anyway.

use crate::model::facts::redacted;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::frame::WAITS_FOR_GIL;
use crate::model::vocabulary::qualified::segments;
use crate::model::vocabulary::state::FutexKind::{self, Lock, Sleep, Wait};

/// Returns the kind that this frame gives to a futex wait below it. `None`: its caller decides.
pub fn kind_of(locations: &[Location]) -> Option<FutexKind> {
    // A kernel function's name says nothing about the call that led to it.
    let of_user = locations.iter().rev().filter(|location| location.kind != FrameKind::Kernel);
    of_user.into_iter().find_map(|location| kind_of_name(&location.function))
}

/// C functions, without leading underscores and glibc's `GI_` (its internal alias of an exported
/// name).
const C: &[(&str, FutexKind)] = &[
    ("pthread_mutex_lock", Lock),
    ("pthread_mutex_lock_full", Lock),
    ("pthread_mutex_timedlock", Lock),
    ("pthread_mutex_clocklock", Lock),
    ("pthread_mutex_clocklock_common", Lock),
    ("pthread_mutex_cond_lock", Lock),
    ("pthread_mutex_cond_lock_full", Lock),
    ("pthread_rwlock_rdlock", Lock),
    ("pthread_rwlock_wrlock", Lock),
    ("pthread_rwlock_timedrdlock", Lock),
    ("pthread_rwlock_timedwrlock", Lock),
    ("pthread_rwlock_clockrdlock", Lock),
    ("pthread_rwlock_clockwrlock", Lock),
    ("pthread_rwlock_rdlock_full64", Lock),
    ("pthread_rwlock_wrlock_full64", Lock),
    ("lll_lock_wait", Lock),
    ("lll_lock_wait_private", Lock),
    ("lll_timedlock_wait", Lock),
    ("lll_clocklock_wait", Lock),
    ("mtx_lock", Lock),
    ("mtx_timedlock", Lock),
    ("gthread_mutex_lock", Lock),
    ("g_mutex_lock", Lock),
    ("g_mutex_lock_slowpath", Lock),
    ("uv_mutex_lock", Lock),
    ("uv_rwlock_rdlock", Lock),
    ("uv_rwlock_wrlock", Lock),
    ("sleep", Sleep),
    ("usleep", Sleep),
    ("nanosleep", Sleep),
    ("clock_nanosleep", Sleep),
    ("thrd_sleep", Sleep),
    ("g_usleep", Sleep),
    ("uv_sleep", Sleep),
    ("AbslInternalSleepFor", Sleep),
    ("SDL_Delay", Sleep),
    ("JVM_Sleep", Sleep),
    ("JVM_SleepNanos", Sleep),
    // Stands for HotSpot's functions without names.
    ("monitor enter", Lock),
    (WAITS_FOR_GIL, Lock),
];

/// C++ and Rust methods: first segment of the path (empty: any), type, method. A `*` at the
/// method's end matches any suffix.
const METHODS: &[(&str, &str, &str, FutexKind)] = &[
    // libstdc++, libc++ (whose inline namespace `__1` lies between).
    ("std", "mutex", "lock", Lock),
    ("std", "timed_mutex", "*", Lock),
    ("std", "recursive_mutex", "lock", Lock),
    ("std", "recursive_timed_mutex", "*", Lock),
    ("std", "shared_mutex", "lock*", Lock),
    ("std", "shared_timed_mutex", "*", Lock),
    ("std", "__shared_mutex_base", "lock*", Lock),
    ("std", "__shared_mutex_pthread", "lock*", Lock),
    ("std", "this_thread", "sleep_*", Sleep),
    // Rust's std; `lock_contended` and its like since 1.62.
    ("std", "Mutex", "lock*", Lock),
    ("std", "RwLock", "read*", Lock),
    ("std", "RwLock", "write*", Lock),
    ("std", "ReentrantLock", "lock", Lock),
    ("std", "thread", "sleep*", Sleep),
    ("std", "functions", "sleep*", Sleep),
    ("std", "Thread", "sleep*", Sleep),
    ("std", "Condvar", "wait*", Wait),
    ("std", "Parker", "park*", Wait),
    ("parking_lot", "RawMutex", "lock*", Lock),
    ("parking_lot", "RawFairMutex", "lock*", Lock),
    ("parking_lot", "RawRwLock", "*lock*", Lock),
    ("parking_lot", "RawRwLock", "upgrade*", Lock),
    ("parking_lot", "RawRwLock", "wait_for_readers", Lock),
    ("parking_lot", "Condvar", "wait*", Wait),
    ("lock_api", "Mutex", "lock", Lock),
    ("lock_api", "RwLock", "read", Lock),
    ("lock_api", "RwLock", "write", Lock),
    // absl: Await, a condition, shares LockSlowLoop and Block with Lock, so those two are not
    // listed.
    ("absl", "Mutex", "Lock", Lock),
    ("absl", "Mutex", "LockSlow", Lock),
    ("absl", "Mutex", "LockSlowWithDeadline", Lock),
    ("absl", "Mutex", "ReaderLock", Lock),
    ("absl", "Mutex", "WriterLock", Lock),
    ("absl", "Mutex", "lock*", Lock),
    ("absl", "Mutex", "Await*", Wait),
    ("absl", "Mutex", "LockWhen*", Wait),
    ("absl", "CondVar", "Wait*", Wait),
    ("absl", "SpinLock", "SlowLock", Lock),
    ("folly", "SharedMutexImpl", "lock*", Lock),
    ("folly", "MicroLockCore", "lock*", Lock),
    ("tbb", "rw_mutex", "lock*", Lock),
    ("boost", "mutex", "lock", Lock),
    ("boost", "shared_mutex", "lock*", Lock),
    ("boost", "this_thread", "sleep*", Sleep),
    ("", "QMutex", "lock*", Lock),
    ("", "QBasicMutex", "lock*", Lock),
    ("", "QReadWriteLock", "lock*", Lock),
    ("", "QReadWriteLock", "tryLock*", Lock),
    ("", "QThread", "*sleep", Sleep),
    // HotSpot's C++ functions.
    ("", "ObjectMonitor", "enter*", Lock),
    ("", "ObjectMonitor", "Enter*", Lock),
    // Below it the virtual machine waits for another thread that initialises the class. Java code
    // that it calls waits for something of its own, even if no function says for what.
    ("", "InstanceKlass", "initialize_impl", Lock),
    ("", "JavaCalls", "call*", Wait),
    ("", "JavaThread", "sleep*", Sleep),
    // Stopped by the virtual machine at a safepoint, whatever the thread was about to do.
    ("", "SafepointSynchronize", "block", Wait),
];

/// Methods of Java, Python and Go, by class and method.
const OF_RUNTIMES: &[(&str, &str, FutexKind)] = &[
    ("java.util.concurrent.locks.ReentrantLock", "*lock*", Lock),
    ("java.util.concurrent.locks.ReentrantLock", "tryLock", Lock),
    ("java.util.concurrent.locks.ReentrantReadWriteLock$ReadLock", "*lock*", Lock),
    ("java.util.concurrent.locks.ReentrantReadWriteLock$ReadLock", "tryLock", Lock),
    ("java.util.concurrent.locks.ReentrantReadWriteLock$WriteLock", "*lock*", Lock),
    ("java.util.concurrent.locks.ReentrantReadWriteLock$WriteLock", "tryLock", Lock),
    ("java.util.concurrent.locks.StampedLock", "acquire*", Lock),
    ("java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject", "await*", Wait),
    ("java.util.concurrent.locks.AbstractQueuedLongSynchronizer$ConditionObject", "await*", Wait),
    ("java.lang.Object", "wait*", Wait),
    ("java.lang.Thread", "sleep*", Sleep),
    // Go's, which say for themselves what they wait for since 1.20.
    ("sync.(*Mutex)", "*ock*", Lock),
    ("sync.(*RWMutex)", "*Lock", Lock),
    // Python's.
    ("threading.Lock", "acquire", Lock),
    ("threading.RLock", "acquire", Lock),
    ("threading.Condition", "wait*", Wait),
];

fn kind_of_name(function: &str) -> Option<FutexKind> {
    if let Some(mut roles) = redacted::of(function) {
        return roles.find_map(redacted::to_futex);
    }
    let path = segments(function);
    let (method, outer) = path.split_last()?;
    let Some(of) = outer.last() else {
        if let Some((class, method)) = method.rsplit_once('.')
            && let Some((_, _, kind)) = OF_RUNTIMES
                .iter()
                .find(|(owner, pattern, _)| *owner == class && method_matches(pattern, method))
        {
            return Some(*kind);
        }
        let plain = method.split('@').next().unwrap_or(method).trim_start_matches('_');
        let plain = plain.strip_prefix("GI_").map_or(plain, |rest| rest.trim_start_matches('_'));
        return C.iter().find(|(name, _)| *name == plain).map(|(_, kind)| *kind);
    };
    let first = outer[0];
    METHODS
        .iter()
        .find(|(root, owner, pattern, _)| {
            (root.is_empty() || *root == first) && owner == of && method_matches(pattern, method)
        })
        .map(|(_, _, _, kind)| *kind)
}

fn method_matches(pattern: &str, method: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(rest), _) if rest.ends_with('*') => method.contains(rest.trim_end_matches('*')),
        (_, Some(start)) => method.starts_with(start),
        (Some(end), None) => method.ends_with(end),
        (None, None) => pattern == method,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let said = [
            ("pthread_mutex_lock", Some(Lock)),
            ("___pthread_mutex_lock", Some(Lock)),
            ("__GI___pthread_mutex_lock", Some(Lock)),
            ("pthread_mutex_lock@@GLIBC_2.2.5", Some(Lock)),
            ("__lll_lock_wait", Some(Lock)),
            ("sync.(*Mutex).lockSlow", Some(Lock)),
            ("sync.(*RWMutex).RLock", Some(Lock)),
            ("sync.(*WaitGroup).Wait", None),
            ("__pthread_rwlock_wrlock", Some(Lock)),
            ("std::sys::sync::mutex::futex::Mutex::lock_contended", Some(Lock)),
            ("std::sync::poison::mutex::Mutex<T>::lock", Some(Lock)),
            ("<std::sync::poison::mutex::Mutex<alloc::vec::Vec<u8>>>::lock", Some(Lock)),
            ("std::sys::sync::rwlock::futex::RwLock::write_contended", Some(Lock)),
            ("<parking_lot::raw_mutex::RawMutex as lock_api::mutex::RawMutex>::lock", Some(Lock)),
            ("parking_lot::raw_mutex::RawMutex::lock_slow", Some(Lock)),
            ("parking_lot::raw_rwlock::RawRwLock::lock_exclusive_slow", Some(Lock)),
            ("parking_lot::raw_rwlock::RawRwLock::try_lock_shared_slow", Some(Lock)),
            ("absl::lts_20240116::Mutex::Lock", Some(Lock)),
            ("absl::lts_20240116::Mutex::LockSlowLoop", None),
            ("absl::Mutex::AwaitCommon", Some(Wait)),
            ("std::mutex::lock", Some(Lock)),
            ("std::__1::mutex::lock", Some(Lock)),
            ("std::timed_mutex::_M_try_lock_until<std::chrono::_V2::steady_clock>", Some(Lock)),
            ("ObjectMonitor::enter", Some(Lock)),
            ("ObjectMonitor::wait", None),
            ("InstanceKlass::initialize_impl", Some(Lock)),
            ("InstanceKlass::link_class_impl", None),
            ("JavaCalls::call_helper", Some(Wait)),
            ("monitor enter", Some(Lock)),
            ("SafepointSynchronize::block", Some(Wait)),
            ("std::thread::sleep", Some(Sleep)),
            ("std::this_thread::sleep_for<long, std::ratio<1l, 1000l> >", Some(Sleep)),
            ("std::sys::sync::condvar::futex::Condvar::wait_optional_timeout", Some(Wait)),
            ("pthread_cond_wait@@GLIBC_2.3.2", None),
            ("pthread_mutex_unlock", None),
            ("my::Mutex::lock", None),
            ("mutex_lock_count", None),
            ("sleepy", None),
            ("", None),
            ("<", None),
            ("<<<<::::>>", None),
            ("operator<<", None),
            ("libc.so.6!0x9f21a", None),
        ];
        for (name, kind) in said {
            assert_eq!(kind_of_name(name), kind, "{name}");
        }
    }

    fn location(function: &str, kind: FrameKind) -> Location {
        let function = function.into();
        Location { function, module: "m".into(), file: None, line: None, kind, tier: None }
    }

    #[test]
    fn functions_of_the_kernel_decide_nothing() {
        let location = |kind| location("nanosleep", kind);
        assert_eq!(kind_of(&[location(FrameKind::Native)]), Some(Sleep));
        assert_eq!(kind_of(&[location(FrameKind::Kernel)]), None);
    }

    #[test]
    fn only_who_waits_for_a_class_is_blocked_by_its_initialisation() {
        let kind = |frames: &[&str]| {
            let frames = frames.iter().map(|name| location(name, FrameKind::Native));
            kind_of(&frames.collect::<Vec<_>>())
        };
        let waits = ["InstanceKlass::initialize_impl", "ObjectMonitor::wait", "pthread_cond_wait"];
        assert_eq!(kind(&waits), Some(Lock));
        let initialises =
            ["InstanceKlass::initialize_impl", "JavaCalls::call_helper", "Config.<clinit>"];
        let in_it = |frames: &[&'static str]| kind(&[&initialises[..], frames].concat());
        assert_eq!(in_it(&["Unsafe_Park", "pthread_cond_wait"]), Some(Wait));
        assert_eq!(in_it(&["java.lang.Object.wait", "ObjectMonitor::wait"]), Some(Wait));
        assert_eq!(in_it(&["java.lang.Thread.sleep", "pthread_cond_wait"]), Some(Sleep));
        assert_eq!(in_it(&waits), Some(Lock));
    }
}
