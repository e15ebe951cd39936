//! Thread names from a language runtime: longer than the kernel's, in any script.

use std::time::Instant;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::vocabulary::frame::{Ns, RawName, SECOND, ThreadKind};
use crate::process::pid_namespaces::ids_inside;
use crate::runtimes::is_own_thread;
use crate::unwinder::Unwinder;

/// Minimum time between reads of names for new threads.
const NEW: Ns = SECOND / 20;
/// Reads made for a thread that the runtime does not know; later ones happen once a second only. It
/// may not be a thread of the runtime.
const TRIES: u8 = 3;
/// Inverse of the maximum share of time spent on such reads: 1/200.
const SHARE: u64 = 200;
/// The kernel's name of the first thread of Java's launcher.
const LAUNCHER: &[u8] = b"java";
/// Maximum threads remembered as unknown to the runtime.
const UNKNOWN_MAX: usize = 100_000;

/// Names of the threads of one process.
#[derive(Default)]
pub struct RuntimeThreadNames {
    leader: u32,
    /// By thread id: the runtime's name, and the kernel's name at the last observation.
    by_tid: FxHashMap<u32, (RawName, Option<RawName>)>,
    /// By thread id: reads that did not find the thread.
    unknown: FxHashMap<u32, u8>,
    read_at: Option<Ns>,
    /// Duration of the last read, ns.
    cost: Ns,
    /// A thread was observed since that is new, or that has another kernel name.
    missed: bool,
    /// Threads observed since, which have run. A thread may also be renamed by another one.
    moved: FxHashSet<u32>,
    /// Whether the process is in a pid namespace of its own; `None` until known.
    contained: Option<bool>,
}

impl RuntimeThreadNames {
    /// Reads the names once a second, and earlier after an observation of a new or renamed thread.
    pub fn refresh(&mut self, pid: u32, at: Ns, unwinder: &mut dyn Unwinder) {
        let pause = if self.missed { self.pause() } else { SECOND };
        if self.read_at.is_some_and(|read| at < read + pause) {
            return;
        }
        let begin = Instant::now();
        // The runtime uses the thread ids of its own pid namespace. A thread that was unknown may
        // be known by now.
        let known = !self.missed && !self.unknown.keys().any(|tid| self.moved.contains(tid));
        let moved = Some(&self.moved).filter(|_| known && self.contained == Some(false));
        let found = unwinder.thread_names(moved);
        self.moved.clear();
        (self.leader, self.read_at, self.missed) = (pid, Some(at), false);
        let ids =
            if found.is_empty() || self.contained == Some(false) { None } else { ids_inside(pid) };
        if !found.is_empty() {
            self.contained = Some(ids.is_some());
        }
        let tid = |inside: u32| ids.as_ref().map_or(Some(inside), |ids| ids.get(&inside).copied());
        let before = std::mem::take(&mut self.by_tid);
        // Keeps the kernel name seen before the read. The one at the next observation may be newer
        // than the runtime's name.
        let kernel = |tid| before.get(&tid).and_then(|(_, kernel)| *kernel);
        let named = |(inside, name)| tid(inside).map(|tid| (tid, (name, kernel(tid))));
        self.by_tid = found.into_iter().filter_map(named).collect();
        self.unknown.retain(|tid, tries| {
            *tries = tries.saturating_add(1);
            !self.by_tid.contains_key(tid)
        });
        self.cost = begin.elapsed().as_nanos() as Ns;
    }

    /// Returns the minimum time between reads for new names.
    fn pause(&self) -> Ns {
        NEW.max(self.cost.saturating_mul(SHARE)).min(SECOND)
    }

    /// Returns the runtime's name of an observed thread, else the kernel's. If the kernel's name
    /// has changed, the names are read at once, since the thread may not run again for long. If the
    /// last read was too recent, the kernel's name is used: the old runtime name may be another
    /// task's.
    pub fn of(
        &mut self,
        tid: u32,
        kernel: RawName,
        at: Ns,
        unwinder: &mut dyn Unwinder,
    ) -> RawName {
        if self.by_tid.get(&tid).is_some_and(|(_, then)| then.is_some_and(|then| then != kernel)) {
            self.missed = true;
            self.refresh(self.leader, at, unwinder);
            let missed = self.missed;
            if let Some((name, then)) = self.by_tid.get_mut(&tid) {
                *then = Some(kernel);
                if missed {
                    *name = kernel.of_kind(name.kind());
                }
            }
        }
        self.known(tid, kernel)
    }

    fn known(&mut self, tid: u32, kernel: RawName) -> RawName {
        if self.by_tid.is_empty() {
            return kernel;
        }
        self.moved.insert(tid);
        if let Some((name, then)) = self.by_tid.get_mut(&tid) {
            then.get_or_insert(kernel);
            return *name;
        }
        // Java's launcher starts the virtual machine in its first thread, which then only waits for
        // its end. In other programs that embed one, that thread does work of its own.
        let launcher = tid == self.leader && kernel.bytes() == LAUNCHER;
        if launcher || is_own_thread(kernel.bytes()) {
            return kernel.of_kind(ThreadKind::Internal);
        }
        if self.unknown.len() >= UNKNOWN_MAX {
            self.unknown.clear();
        }
        self.missed |= *self.unknown.entry(tid).or_insert(0) < TRIES;
        kernel
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::vocabulary::frame::RawFrame;
    use crate::unwinder::{Registers, StackBytes, Walk};

    /// Serves names, and counts reads.
    #[derive(Default)]
    struct Runtime {
        threads: Vec<(u32, RawName)>,
        asked: usize,
        /// The argument of the last read.
        moved: Option<Vec<u32>>,
    }

    impl Unwinder for Runtime {
        fn walk(&mut self, _: &Registers, _: StackBytes<'_>, _: &mut Vec<RawFrame>) -> Walk {
            Walk { end: None, recovered: false }
        }
        fn thread_names(&mut self, moved: Option<&FxHashSet<u32>>) -> Vec<(u32, RawName)> {
            self.asked += 1;
            self.moved =
                moved.map(|moved| BTreeSet::from_iter(moved).into_iter().copied().collect());
            self.threads.clone()
        }
    }

    const PID: u32 = u32::MAX;

    #[test]
    fn threads_unknown_to_the_runtime_cause_few_reads_of_names() {
        let (long, daemon) =
            (RawName::of_runtime(1), RawName::of_runtime(2).of_kind(ThreadKind::Daemon));
        let mut runtime = Runtime { threads: vec![(7, long), (8, daemon)], ..Runtime::default() };
        let mut names = RuntimeThreadNames::default();
        let [java, collector, foreign] =
            [&b"java"[..], b"GC Thread#0", b"rocksdb:low0"].map(RawName::new);
        // Ten seconds of ticks.
        for tick in 0..1000 {
            let at = tick * SECOND / 100;
            names.refresh(PID, at, &mut runtime);
            let mut of = |tid, kernel| names.of(tid, kernel, at, &mut runtime);
            assert_eq!((of(7, java), of(8, java)), (long, daemon));
            assert_eq!(of(9, collector), collector.of_kind(ThreadKind::Internal));
            assert_eq!(of(PID, java), java.of_kind(ThreadKind::Internal), "the launcher");
            assert_eq!(of(PID, foreign), foreign, "a program with a virtual machine in it");
            assert_eq!(of(10, foreign), foreign);
        }
        assert!((10..=10 + usize::from(TRIES) + 1).contains(&runtime.asked), "{}", runtime.asked);
    }

    #[test]
    fn a_read_names_the_threads_that_ran_unless_one_is_unknown() {
        let [one, two] = [1, 2].map(RawName::of_runtime);
        let kernel = RawName::new(b"worker");
        let mut runtime = Runtime { threads: vec![(7, one), (8, two)], ..Runtime::default() };
        let mut names = RuntimeThreadNames::default();
        // Thread ids are those of our own namespace.
        let pid = std::process::id();
        let mut second = 0;
        let mut told = |tids: &[u32]| {
            second += 1;
            names.refresh(pid, second * SECOND, &mut runtime);
            let told = runtime.moved.clone();
            for tid in tids {
                names.of(*tid, kernel, second * SECOND, &mut runtime);
            }
            told
        };
        assert_eq!((told(&[8, 7, 8]), told(&[8])), (None, Some(vec![7, 8])));
        assert_eq!((told(&[]), told(&[7, 9])), (Some(vec![8]), Some(vec![])));
        assert_eq!(told(&[8]), None, "who is 9?");
        assert_eq!((told(&[9]), told(&[8]), told(&[])), (Some(vec![8]), None, Some(vec![8])));
    }

    #[test]
    fn a_new_name_is_read_at_the_observation_that_shows_it() {
        let [first, second, third] =
            [1, 2, 3].map(|id| RawName::of_runtime(id).of_kind(ThreadKind::Daemon));
        let [one, two, three] =
            [b"request 1", b"request 2", b"request 3"].map(|name| RawName::new(name));
        let mut runtime = Runtime { threads: vec![(7, first)], ..Runtime::default() };
        let mut names = RuntimeThreadNames::default();
        names.refresh(PID, 0, &mut runtime);
        assert_eq!(names.of(7, one, 0, &mut runtime), first);
        runtime.threads = vec![(7, second)];
        let at = SECOND / 2;
        assert_eq!((names.of(7, two, at, &mut runtime), runtime.asked), (second, 2));
        // Too soon for another read: the kernel's name is used until then.
        runtime.threads = vec![(7, third)];
        assert_eq!(names.of(7, three, at + 1, &mut runtime), three.of_kind(ThreadKind::Daemon));
        names.refresh(PID, at + SECOND, &mut runtime);
        assert_eq!(names.of(7, three, at + SECOND, &mut runtime), third);
    }

    #[test]
    fn a_name_that_was_read_again_before_it_changed_is_not_taken_for_the_new_one() {
        let [first, second] = [1, 2].map(RawName::of_runtime);
        let [one, two] = [b"request 1", b"request 2"].map(|name| RawName::new(name));
        let mut runtime = Runtime { threads: vec![(7, first)], ..Runtime::default() };
        let mut names = RuntimeThreadNames::default();
        names.refresh(PID, 0, &mut runtime);
        assert_eq!(names.of(7, one, 0, &mut runtime), first);
        // The thread waits, so it is not observed.
        names.refresh(PID, SECOND, &mut runtime);
        runtime.threads = vec![(7, second)];
        let at = SECOND + SECOND / 2;
        assert_eq!(names.of(7, two, at, &mut runtime), second);
        // A name that only the kernel changed causes one read.
        names.refresh(PID, 3 * SECOND, &mut runtime);
        let asked = runtime.asked;
        for tick in 0..50 {
            assert_eq!(
                names.of(7, one, 3 * SECOND + SECOND / 4 + tick * SECOND / 100, &mut runtime),
                second
            );
        }
        assert_eq!(runtime.asked, asked + 1);
        // The name could not be read at once, and is read later without an observation.
        runtime.threads = vec![(7, first)];
        let at = 3 * SECOND + SECOND / 4;
        assert_eq!(names.of(7, two, at + 1, &mut runtime), two);
        assert_eq!(names.of(7, two, at + 2, &mut runtime), two);
        names.refresh(PID, at + SECOND, &mut runtime);
        runtime.threads = vec![(7, second)];
        assert_eq!(names.of(7, one, at + 2 * SECOND, &mut runtime), second);
    }
}
