//! What goroutines do, in the words of Go's runtime.

/// Words of Go 1.18 to 1.27: `waitReasonStrings` (src/runtime/runtime2.go) and `gStatusStrings`
/// (src/runtime/traceback.go).
const STATES: &[&str] = &[
    // Of the scheduler.
    "idle",
    "runnable",
    "running",
    "syscall",
    "waiting",
    "dead",
    "copystack",
    "leaked",
    "preempted",
    // Of a goroutine that waits.
    "GC assist marking",
    "IO wait",
    "chan receive (nil chan)",
    "chan send (nil chan)",
    "dumping heap",
    "garbage collection",
    "garbage collection scan",
    "panicwait",
    "select",
    "select (no cases)",
    "GC assist wait",
    "GC sweep wait",
    "GC scavenge wait",
    "chan receive",
    "chan send",
    "finalizer wait",
    "force gc (idle)",
    "GOMAXPROCS updater (idle)",
    "semacquire",
    "sleep",
    "sync.Cond.Wait",
    "sync.Mutex.Lock",
    "sync.RWMutex.RLock",
    "sync.RWMutex.Lock",
    "sync.WaitGroup.Wait",
    "timer goroutine (idle)",
    "trace reader (blocked)",
    "wait for GC cycle",
    "GC worker (idle)",
    "GC worker (active)",
    "debug call",
    "GC mark termination",
    "stopping the world",
    "wait until GC ends",
    "flushing proc caches",
    "trace goroutine status",
    "trace proc status",
    "page trace flush",
    "coroutine",
    "GC weak to strong wait",
    "synctest.Run",
    "synctest.Wait",
    "chan receive (synctest)",
    "chan send (synctest)",
    "select (synctest)",
    "chan receive (durable)",
    "chan send (durable)",
    "select (durable)",
    "sync.WaitGroup.Wait (durable)",
    "cleanup wait",
];

/// Returns whether Go's runtime itself calls a state so. A program may have put other text there.
pub fn is_of_go(state: &str) -> bool {
    STATES.contains(&state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_of_the_runtime_are_known() {
        assert!(is_of_go("IO wait") && is_of_go("chan receive (nil chan)") && is_of_go("runnable"));
        assert!(!is_of_go("") && !is_of_go("chan") && !is_of_go("chan receive of acme"));
    }
}
