//! Where a thread was when it woke others, as far as its samples say.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::samples::{Sample, Samples};
use crate::model::vocabulary::role::Role;

/// Functions of the waker. Which of its calls woke which thread is not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WakersPlace {
    /// Those that were seen in such a call, or in a library's function that makes it, the most
    /// frequent first.
    Calls(Vec<Arc<Location>>),
    /// The waker spent most of its time there, in code of the user if it was seen in any; where it
    /// wakes was not seen.
    Mostly(Arc<Location>),
}

/// Functions that wake threads which wait for a lock, a condition or the like.
const WAKE_LOCKS: &[&str] = &[
    "futex_wake",
    "futex_requeue",
    "pthread_cond_signal",
    "pthread_cond_broadcast",
    "pthread_mutex_unlock",
    "pthread_rwlock_unlock",
    "pthread_barrier_wait",
    "lll_lock_wake",
    "lll_lock_wake_private",
    "sem_post",
    "futexwakeup",
    "Unsafe_Unpark",
    "unpark",
];

/// A function of one thread.
struct Function<'a> {
    location: &'a Arc<Location>,
    /// It is code of the user.
    is_own: bool,
    /// Samples in the call that wakes.
    calls: u64,
    /// CPU time, wall time, ns.
    time: (u64, u64),
}

/// The samples of each thread.
pub struct Places<'a> {
    samples: &'a Samples,
    of_threads: FxHashMap<(u32, u32), Vec<&'a Sample>>,
    found: FxHashMap<((u32, u32), String), Option<WakersPlace>>,
}

impl<'a> Places<'a> {
    pub fn new(samples: &'a Samples) -> Places<'a> {
        let mut of_threads: FxHashMap<_, Vec<&Sample>> = FxHashMap::default();
        for sample in &samples.samples {
            of_threads.entry((sample.thread.pid, sample.thread.tid)).or_default().push(sample);
        }
        Places { samples, of_threads, found: FxHashMap::default() }
    }

    /// Returns where a thread made the call that wakes.
    pub fn of(&mut self, thread: (u32, u32), call: &str) -> Option<WakersPlace> {
        let key = (thread, call.to_owned());
        if let Some(known) = self.found.get(&key) {
            return known.clone();
        }
        let place = self.find(thread, call);
        self.found.insert(key, place.clone());
        place
    }

    fn find(&self, thread: (u32, u32), call: &str) -> Option<WakersPlace> {
        let samples = self.of_threads.get(&thread)?;
        // A function counts once, whatever its lines.
        let mut functions: BTreeMap<(&str, &str), Function<'_>> = BTreeMap::new();
        for sample in samples {
            let Some(found) = self.own_function(sample, call) else { continue };
            let Function { location, calls, .. } = found;
            let name = (&*location.function, &*location.module);
            let function = functions.entry(name).or_insert(Function { calls: 0, ..found });
            function.calls += if calls > 0 { sample.hits.max(1) } else { 0 };
            function.time.0 += sample.cpu_ns;
            function.time.1 += sample.wall_ns;
        }
        let mut calls: Vec<&Function<'_>> = functions.values().filter(|f| f.calls > 0).collect();
        if !calls.is_empty() {
            calls.sort_by_key(|function| Reverse(function.calls));
            let calls = calls.into_iter().map(|function| function.location.clone());
            return Some(WakersPlace::Calls(calls.collect()));
        }
        // A waker that mostly waits was on a core for the longest time when it began or ended.
        let most = functions.values().max_by_key(|function| (function.is_own, function.time))?;
        Some(WakersPlace::Mostly(most.location.clone()))
    }

    /// Returns the innermost function of the user, without time; its calls say whether it makes the
    /// one that wakes. Without code of the user, the innermost function that is not the kernel's.
    fn own_function(&self, sample: &Sample, call: &str) -> Option<Function<'a>> {
        let function = |location: &'a Arc<Location>, is_own, wakes: bool| Function {
            location,
            is_own,
            calls: wakes.into(),
            time: (0, 0),
        };
        let mut wakes = false;
        let mut other = None;
        let mut at = sample.innermost;
        while let Some(frame) = at.and_then(|at| self.samples.frames.get(at as usize)) {
            if frame.role == Role::App {
                return Some(function(&frame.location, true, wakes));
            }
            let is_code = !matches!(frame.location.kind, FrameKind::Marker | FrameKind::Thread);
            if is_waker(&frame.location, call) {
                wakes = true;
                other = None;
            } else if other.is_none() && is_code && frame.location.kind != FrameKind::Kernel {
                other = Some(&frame.location);
            }
            at = frame.caller;
        }
        other.map(|location| function(location, false, wakes))
    }
}

/// Returns whether a function makes the call: `__GI___libc_write` and `ksys_write` make `write`.
fn is_waker(location: &Location, call: &str) -> bool {
    let name = &*location.function;
    let last = name.rsplit([':', '.']).next().unwrap_or(name);
    let mut plain = last;
    for prefix in ["__x64_sys_", "__GI_", "__libc_", "ksys_", "__sys_"] {
        plain = plain.strip_prefix(prefix).unwrap_or(plain);
    }
    let plain = plain.trim_start_matches('_').trim_start_matches("new_");
    match call {
        "futex" => WAKE_LOCKS.contains(&plain) || WAKE_LOCKS.contains(&last),
        "send" => matches!(plain, "send" | "sendto"),
        call => plain == call,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_that_make_a_call() {
        let wakes = |name, call| is_waker(&Location::named(name, FrameKind::Native), call);
        for name in ["___pthread_cond_signal", "__new_sem_post", "sem_post", "__lll_lock_wake"] {
            assert!(wakes(name, "futex"), "{name}");
        }
        assert!(wakes("std::sys::pal::unix::futex::futex_wake", "futex"));
        assert!(wakes("runtime.futexwakeup", "futex"));
        assert!(wakes("jdk.internal.misc.Unsafe.unpark", "futex"));
        assert!(wakes("__GI___libc_write", "write") && wakes("ksys_write", "write"));
        assert!(wakes("__libc_send", "send") && wakes("__sys_sendto", "send"));
        // It waits.
        assert!(!wakes("futex_wait", "futex") && !wakes("rewrite", "write"));
    }
}
