//! Gathers one stack of each thread from successive snapshots: a running thread may lack a stack in
//! one snapshot and have it in another.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::facts::snapshot::{Snapshot, ThreadNow};
use crate::model::facts::tables::{StackId, Tables};
use crate::model::vocabulary::frame::{FrameCode, Marker, Ns, RawFrame, SECOND, ThreadKey};

/// Maximum wait for a sample of a running thread that existed at the first tick.
const SAMPLED_WITHIN: Duration = Duration::from_secs(1);
/// The same for threads that appear later. Where threads appear all the time, one always lacks a
/// stack.
const CAME_LATER: Duration = Duration::from_millis(100);
/// Minimum ticks. On a busy machine the time may pass without any, and a torn stack is whole in one
/// of the next ticks.
const TICKS: u64 = 3;
/// A younger process may have just mapped code or started a runtime. Where its stacks end in doubt,
/// they are read again for [`CAME_LATER`].
const YOUNG: Ns = 5 * SECOND;

/// The newest stack of each thread so far.
#[derive(Default)]
pub struct Stacks {
    first_ticks: Option<u64>,
    /// Threads that existed at the first tick.
    there: FxHashSet<ThreadKey>,
    found: FxHashMap<ThreadKey, ThreadNow>,
}

impl Stacks {
    /// Adds a snapshot. Returns true when further waiting is pointless. `since`: time since the
    /// first snapshot that had a tick.
    pub fn take(&mut self, snapshot: &Snapshot, since: Duration) -> bool {
        let ticks = snapshot.health.ticks;
        if ticks == 0 {
            return false;
        }
        let tables = &snapshot.tables;
        let first = *self.first_ticks.get_or_insert_with(|| {
            self.there.extend(snapshot.threads.iter().map(|thread| thread.thread));
            ticks
        });
        for thread in snapshot.threads.iter().filter(|thread| has_stack(tables, thread.stack)) {
            self.found.insert(thread.thread, *thread);
        }
        // The states backend gives no stacks of running threads.
        let states_only = &*snapshot.capture == "states";
        let missing =
            |thread: &&ThreadNow| !states_only && !self.found.contains_key(&thread.thread);
        let mut missing = snapshot.threads.iter().filter(missing).peekable();
        let enough_ticks = ticks >= first + TICKS;
        if since >= CAME_LATER && enough_ticks {
            since >= SAMPLED_WITHIN || !missing.any(|thread| self.there.contains(&thread.thread))
        } else {
            missing.peek().is_none() && !(is_young(snapshot) && self.in_doubt(snapshot))
        }
    }

    /// Returns the threads of the last snapshot added, each with the newest stack found.
    pub fn threads(&self, last: &Snapshot) -> Arc<[ThreadNow]> {
        let with_stack = |thread: &ThreadNow| match self.found.get(&thread.thread) {
            Some(found) => ThreadNow { name: thread.name, run_ns: thread.run_ns, ..*found },
            None => *thread,
        };
        last.threads.iter().map(with_stack).collect()
    }

    fn in_doubt(&self, snapshot: &Snapshot) -> bool {
        snapshot.threads.iter().filter_map(|thread| self.found.get(&thread.thread)).any(|found| {
            let outermost = snapshot.tables.frames_innermost_first(found.stack).last();
            let end = outermost.map(|frame| snapshot.tables.frame(frame).decode());
            let doubts = [Marker::BadUnwind, Marker::OutsideMaps, Marker::NoUnwindInfo];
            matches!(end, Some(FrameCode::Marker { marker, .. }) if doubts.contains(&marker))
        })
    }
}

/// Returns whether a process started shortly before the snapshot.
pub fn is_young(snapshot: &Snapshot) -> bool {
    let session = &snapshot.session;
    let at = session.started_unix_ns + i128::from(snapshot.at.saturating_sub(session.started));
    snapshot.living().any(|target| at - target.started_unix_ns < i128::from(YOUNG))
}

/// Returns whether the thread has a stack. A thread that was seen running without a sample, or
/// before it ran for the first time, has a marker instead.
fn has_stack(tables: &Tables, stack: StackId) -> bool {
    let none = [Marker::NotSampled, Marker::NotRunYet].map(RawFrame::marker);
    let innermost = tables.frames_innermost_first(stack).next();
    innermost.is_some_and(|frame| !none.contains(&tables.frame(frame)))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::commands::dump::dump;
    use crate::commands::fake::{config, named};
    use crate::commands::output::Output;
    use crate::config::{Dumped, Mode};
    use crate::exit_code::ExitCode;

    use crate::model::facts::goroutines::{Goroutine, Goroutines};
    use crate::model::facts::recorder::{Limits, Recorder};
    use crate::model::facts::snapshot;
    use crate::model::facts::tasks::Tasks;
    use crate::model::projection::waits::{Answer, Asked};
    use crate::model::vocabulary::event::{
        Counters, Event, Losses, Observation, Seen, Syscall, Tick,
    };
    use crate::model::vocabulary::frame::RawName;
    use crate::model::vocabulary::state::{RawState, State};
    use crate::model::vocabulary::wakeup::Wakeups;
    use crate::session::source::{Progress, Source, Waited};

    const SOON: Duration = Duration::from_millis(10);
    const LATER: Duration = Duration::from_millis(500);

    struct Target {
        recorder: Recorder,
        now: Ns,
    }

    impl Target {
        fn new() -> Target {
            Target { recorder: Recorder::new(0, Limits::default()), now: 0 }
        }

        fn see(&mut self, tid: u32, seen: Seen) -> &mut Target {
            let stack = match seen {
                Seen::Running => vec![],
                Seen::Stopped => vec![RawFrame::marker(Marker::BadUnwind)],
                _ => vec![RawFrame::from_bits(u64::from(tid))],
            };
            let counters = Counters { run_ns: self.now, delay_ns: 0, runs: self.now };
            self.recorder.apply(&Event::Observation(Observation {
                counters: Some(counters).filter(|_| seen != Seen::OnCpu),
                stack,
                ..Observation::new(self.now, key(tid), RawName::new(b"x"), seen)
            }));
            self
        }

        /// Adds a snapshot after a number of ticks, of a process of a given age.
        fn tick(&mut self, ticks: u64, age_s: u64) -> Snapshot {
            for _ in 0..ticks {
                self.now += 10_000_000;
                let losses = Losses::default();
                let tick = Tick { interval_ns: 1, losses, ..Tick::new(self.now, 1) };
                self.recorder.apply(&Event::Tick(tick));
            }
            let view = self.recorder.view();
            let mut snapshot = Snapshot {
                threads: view.threads,
                tables: view.tables,
                at: view.at,
                ..named("", "")
            };
            snapshot.health.ticks = view.ticks;
            let mut target = snapshot.targets[0].clone();
            target.started_unix_ns = snapshot.session.started_unix_ns - i128::from(age_s * SECOND);
            snapshot.targets = [target].into();
            snapshot
        }
    }

    fn key(tid: u32) -> ThreadKey {
        ThreadKey { pid: 1, tid, start: 1 }
    }

    fn waits() -> Seen {
        Seen::Blocked(Syscall { number: 0, args: [0; 6] })
    }

    #[test]
    fn a_thread_that_was_only_seen_running_is_waited_for_as_long_as_one_may() {
        let (mut target, mut stacks) = (Target::new(), Stacks::default());
        assert!(!stacks.take(&target.tick(0, 60), SOON), "nothing was looked at");
        let first = target.see(1, waits()).see(2, Seen::Running).tick(1, 60);
        assert!(
            !stacks.take(&first, SOON) && !stacks.take(&first, SAMPLED_WITHIN),
            "too few ticks"
        );
        let running = target.tick(TICKS, 60);
        assert!(!stacks.take(&running, LATER));
        assert!(stacks.take(&running, SAMPLED_WITHIN));
        assert!(stacks.take(&target.see(2, Seen::OnCpu).tick(1, 60), LATER));
        let (mut target, mut stacks) = (Target::new(), Stacks::default());
        assert!(stacks.take(&target.see(1, waits()).tick(1, 60), SOON), "no thread runs");
        assert!(
            stacks.take(&Snapshot { capture: "states".into(), ..first }, SOON),
            "there will be none"
        );
    }

    #[test]
    fn what_was_found_before_a_thread_ran_again_is_kept() {
        let (mut target, mut stacks) = (Target::new(), Stacks::default());
        assert!(!stacks.take(&target.see(1, waits()).see(2, Seen::Running).tick(1, 60), SOON));
        let last = target.see(1, Seen::Running).see(2, Seen::Ready).tick(1, 60);
        assert!(stacks.take(&last, SOON));
        let threads = stacks.threads(&last);
        assert_eq!(threads.len(), 2);
        assert!(threads.iter().all(|thread| has_stack(&last.tables, thread.stack)));
        assert_eq!(threads[1].state, RawState::Known(State::Rdy));
        assert_eq!(threads[0].run_ns, last.threads[0].run_ns);
    }

    #[test]
    fn threads_that_come_all_the_time_are_not_waited_for() {
        let (mut target, mut stacks) = (Target::new(), Stacks::default());
        assert!(stacks.take(&target.see(1, waits()).tick(1, 60), SOON));
        let more = target.see(2, Seen::Running).tick(TICKS, 60);
        assert!(!stacks.take(&more, SOON));
        assert!(stacks.take(&more, CAME_LATER));
    }

    #[test]
    fn doubt_is_waited_for_only_of_a_young_process() {
        for (age_s, done) in [(60, true), (1, false)] {
            let (mut target, mut stacks) = (Target::new(), Stacks::default());
            assert_eq!(stacks.take(&target.see(1, Seen::Stopped).tick(1, age_s), SOON), done);
            assert!(stacks.take(&target.tick(TICKS, age_s), CAME_LATER));
        }
    }

    #[test]
    fn the_newest_stack_that_was_found_counts() {
        let (mut target, mut stacks) = (Target::new(), Stacks::default());
        stacks.take(&target.see(1, waits()).tick(1, 60), SOON);
        let ready = target.see(1, Seen::Ready).tick(1, 60);
        stacks.take(&ready, SOON);
        let last = target.see(1, Seen::Running).tick(1, 60);
        stacks.take(&last, SOON);
        assert_eq!(stacks.threads(&last)[0].state, RawState::Known(State::Rdy));
    }

    #[test]
    fn an_age_is_that_of_the_snapshot() {
        let mut target = Target::new();
        for (seconds, young) in [(0, true), (3, true), (4, false)] {
            let mut snapshot = target.tick(0, 1);
            snapshot.at = snapshot.session.started + seconds * SECOND;
            assert_eq!(is_young(&snapshot), young, "{seconds} s after it was 1 s old");
        }
    }

    /// Returns one snapshot after the other, the last one repeatedly, and records the calls.
    #[derive(Default)]
    struct Script {
        waits: VecDeque<Waited>,
        snapshots: VecDeque<Snapshot>,
        asked: Vec<&'static str>,
    }

    impl Source for Script {
        fn wait(&mut self, _: Duration) -> Waited {
            assert!(self.asked.len() < 1_000, "it never ends");
            self.waits.pop_front().unwrap_or(Waited::Timeout)
        }
        fn elapsed(&mut self) -> Duration {
            Duration::ZERO
        }
        fn progress(&mut self) -> Progress {
            Progress::default()
        }
        fn snapshot(&mut self, named: bool) -> Option<Arc<Snapshot>> {
            self.asked.push(if named { "named" } else { "snapshot" });
            if self.snapshots.len() > 1 {
                self.snapshots.pop_front()
            } else {
                self.snapshots.front().cloned()
            }
            .map(Arc::new)
        }
        fn waits(&mut self, _: Vec<Asked>, _: Duration) -> Vec<Answer> {
            self.asked.push("waits");
            Vec::new()
        }
        fn tasks(&mut self, _: Duration) -> Vec<Tasks> {
            self.asked.push("tasks");
            Vec::new()
        }
        fn goroutines(&mut self, _: Duration) -> Vec<Goroutines> {
            self.asked.push("goroutines");
            let waits = Goroutine {
                id: 17,
                state: "select".into(),
                waited: None,
                lock: None,
                labels: None,
                frames: Vec::new(),
                created_by: None,
            };
            let list = vec![waits];
            vec![Goroutines { pid: 1, list, found: 1, ..Goroutines::default() }]
        }
        fn cut(&mut self) -> Option<Arc<Snapshot>> {
            None
        }
        fn pause(&mut self, pause: bool) {
            self.asked.push(if pause { "pause" } else { "resume" });
        }
        fn living(&mut self) -> Vec<snapshot::Target> {
            Vec::new()
        }
        fn unix_ns(&mut self) -> i128 {
            0
        }
        fn count_wakeups(&mut self, _: Duration) -> Result<(), String> {
            self.asked.push("count");
            Ok(())
        }
        fn wakeups(&mut self) -> Option<Result<Wakeups, String>> {
            self.asked.push("counted");
            None
        }
        fn finish(&mut self) -> Option<Arc<Snapshot>> {
            None
        }
    }

    /// Returns the exit code, the dump, and the recorded calls.
    fn dumped(script: Script) -> (ExitCode, serde_json::Value, Vec<&'static str>) {
        dumped_as(Dumped::Threads, script)
    }

    fn dumped_as(
        what: Dumped,
        mut script: Script,
    ) -> (ExitCode, serde_json::Value, Vec<&'static str>) {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("dump.json");
        let config = config(Mode::Dump { what }, &path);
        let code = dump(&mut script, &config, &Output::new(&config.output), what)
            .unwrap_or_else(|failure| failure.code);
        let dump = std::fs::read(path)
            .map_or(serde_json::Value::Null, |json| serde_json::from_slice(&json).expect("JSON"));
        (code, dump, script.asked)
    }

    fn states(dump: &serde_json::Value) -> Vec<&str> {
        dump["threads"]
            .as_array()
            .expect("threads")
            .iter()
            .filter_map(|thread| thread["state"].as_str())
            .collect()
    }

    #[test]
    fn a_dump_has_stacks_of_several_snapshots_and_is_named_while_nothing_is_sampled() {
        let mut target = Target::new();
        let nothing = target.tick(0, 60);
        let first = target.see(1, waits()).see(2, Seen::Running).tick(1, 60);
        let last = target.see(1, Seen::Running).see(2, Seen::Ready).tick(1, 60);
        let later = target.see(1, Seen::Running).see(2, Seen::Running).tick(1, 60);
        let (code, dump, asked) =
            dumped(Script { snapshots: [nothing, first, last, later].into(), ..Script::default() });
        assert_eq!((code, states(&dump)), (ExitCode::Success, vec!["io", "rdy"]));
        assert_eq!((&dump["took_ms"], &dump["notice"]), (&10.0.into(), &serde_json::Value::Null));
        let once = ["pause", "named", "waits", "tasks", "goroutines"];
        assert_eq!(asked, [&["snapshot"; 3][..], &once].concat());
        assert_eq!(dump["goroutines"][0]["list"][0]["state"], "select");
    }

    #[test]
    fn a_dump_of_a_process_that_ended_has_what_was_seen() {
        let mut target = Target::new();
        let running = target.see(1, Seen::Running).tick(1, 1);
        let script = |waits: &[Waited], snapshots: &[&Snapshot]| Script {
            waits: waits.iter().copied().collect(),
            snapshots: snapshots.iter().copied().cloned().collect(),
            asked: Vec::new(),
        };
        let (code, dump, asked) = dumped(script(&[Waited::Ended], &[&running]));
        assert_eq!(
            (code, states(&dump).len(), asked[..2].to_vec()),
            (ExitCode::Success, 1, vec!["snapshot", "pause"])
        );
        let notice = dump["notice"].as_str().expect("it is young");
        assert!(notice.starts_with("the process began less than 5 s before"), "{notice}");
        assert_eq!(
            dumped(script(&[Waited::Ended], &[&Target::new().tick(0, 60)])).0,
            ExitCode::EndedEarly,
            "without threads"
        );
        assert_eq!(
            dumped(script(&[Waited::Timeout, Waited::Interrupted], &[&running])).0,
            ExitCode::Interrupted
        );
    }

    #[test]
    fn a_check_ends_at_a_deadlock_or_after_some_ticks_without_one() {
        let mut target = Target::new();
        let mut waiting = |tids: &[u32]| {
            for tid in tids {
                target.see(*tid, waits());
            }
            target.tick(1, 60)
        };
        let snapshots = [waiting(&[1, 2, 3]), waiting(&[]), waiting(&[]), waiting(&[])];
        let script = |snapshots: &[Snapshot]| Script {
            snapshots: snapshots.iter().cloned().collect(),
            ..Script::default()
        };
        let (code, dump, asked) = dumped_as(Dumped::Deadlocks, script(&snapshots));
        assert_eq!((code, dump["deadlocks"].to_string()), (ExitCode::Success, "[]".into()));
        assert_eq!(dump["threads"].to_string(), "[]", "only those of deadlocks");
        assert_eq!(dump["goroutines"].to_string(), "[]");
        assert_eq!(asked, ["snapshot", "snapshot", "snapshot", "pause", "named", "waits"]);

        let mut stuck = snapshots[1].clone();
        let threads = [key(1), key(3)].into();
        stuck.deadlocks = [snapshot::Deadlock { since: 0, threads }].into();
        let (code, dump, asked) =
            dumped_as(Dumped::Deadlocks, script(&[snapshots[0].clone(), stuck.clone()]));
        assert_eq!((code, states(&dump).len()), (ExitCode::Deadlock, 2));
        assert_eq!(dump["deadlocks"].to_string(), "[[[1,1],[1,3]]]");
        assert_eq!(asked, ["snapshot", "snapshot", "pause", "named", "waits"]);
        assert_eq!(dumped(script(&[stuck])).0, ExitCode::Success, "no check was asked for");
    }

    #[test]
    fn without_what_threads_wait_for_a_deadlock_is_not_denied() {
        let mut target = Target::new();
        let blind = Snapshot { capture: "states".into(), ..target.see(1, waits()).tick(3, 60) };
        let script = Script { snapshots: [blind].into(), ..Script::default() };
        assert_eq!(dumped_as(Dumped::Deadlocks, script).0, ExitCode::NotPermitted);
    }
}
