//! One stack of each thread, gathered from one snapshot after the other: whoever runs now may have been read a moment ago.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::frame::{FrameCode, Marker, Ns, RawFrame, SECOND, ThreadKey};
use crate::model::snapshot::{Snapshot, ThreadNow};
use crate::model::tables::{StackId, Tables};

/// How long a running thread may take to be sampled, if it was there at the first tick.
const SAMPLED_WITHIN: Duration = Duration::from_secs(1);
/// And if it came later: where threads come all the time there is always one without a stack.
const CAME_LATER: Duration = Duration::from_millis(100);
/// Ticks that there are in any case: on a busy machine the time may pass without one, and a stack that was torn is whole in one of
/// the next.
const TICKS: u64 = 3;
/// A process that is younger may have mapped code, or begun a runtime, a moment ago: where its stacks end in doubt
/// they are read again for [`CAME_LATER`].
const YOUNG: Ns = 5 * SECOND;

/// What was found of each thread so far.
#[derive(Default)]
pub struct Stacks {
    first_ticks: Option<u64>,
    /// Threads that were there at the first tick.
    there: FxHashSet<ThreadKey>,
    found: FxHashMap<ThreadKey, ThreadNow>,
}

impl Stacks {
    /// Takes in what a snapshot has. True when nothing more is worth waiting for. `since`: the first snapshot that had a tick.
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
        // No way gives stacks of running threads there.
        let states_only = &*snapshot.capture == "states";
        let missing = |thread: &&ThreadNow| !states_only && !self.found.contains_key(&thread.thread);
        let mut missing = snapshot.threads.iter().filter(missing).peekable();
        let enough_ticks = ticks >= first + TICKS;
        if since >= CAME_LATER && enough_ticks {
            since >= SAMPLED_WITHIN || !missing.any(|thread| self.there.contains(&thread.thread))
        } else {
            missing.peek().is_none() && !(is_young(snapshot) && self.in_doubt(snapshot))
        }
    }

    /// The threads of the last snapshot that was taken in, each with the newest stack that was found.
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

/// Whether a process began a moment before the snapshot.
pub fn is_young(snapshot: &Snapshot) -> bool {
    let session = &snapshot.session;
    let at = session.started_unix_ns + i128::from(snapshot.at.saturating_sub(session.started));
    snapshot.living().any(|target| at - target.started_unix_ns < i128::from(YOUNG))
}

/// A thread that was seen running, and of which there is no sample, has a marker in place of a stack.
fn has_stack(tables: &Tables, stack: StackId) -> bool {
    let innermost = tables.frames_innermost_first(stack).next();
    innermost.is_some_and(|frame| tables.frame(frame) != RawFrame::marker(Marker::NotSampled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headless::tests::named;
    use crate::model::frame::{Counters, Event, Look, Losses, RawName, Seen, Syscall, Tick};
    use crate::model::recorder::{Limits, Recorder};
    use crate::model::state::{RawState, State};

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
            self.recorder.apply(&Event::Look(Look {
                at: self.now,
                thread: key(tid),
                name: RawName::new(b"x"),
                seen,
                counters: Some(counters).filter(|_| seen != Seen::OnCpu),
                stack,
                recovered: false,
            }));
            self
        }

        /// A snapshot after a number of ticks, of a process of a given age.
        fn tick(&mut self, ticks: u64, age_s: u64) -> Snapshot {
            for _ in 0..ticks {
                self.now += 10_000_000;
                let losses = Losses::default();
                let tick = Tick { at: self.now, pid: 1, late_ns: 0, process_cpu_ns: None, interval_ns: 1, losses };
                self.recorder.apply(&Event::Tick(tick));
            }
            let view = self.recorder.view();
            let mut snapshot = Snapshot { threads: view.threads, tables: view.tables, at: view.at, ..named("", "") };
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
        assert!(!stacks.take(&first, SOON) && !stacks.take(&first, SAMPLED_WITHIN), "too few ticks");
        let running = target.tick(TICKS, 60);
        assert!(!stacks.take(&running, LATER));
        assert!(stacks.take(&running, SAMPLED_WITHIN));
        assert!(stacks.take(&target.see(2, Seen::OnCpu).tick(1, 60), LATER));
        let (mut target, mut stacks) = (Target::new(), Stacks::default());
        assert!(stacks.take(&target.see(1, waits()).tick(1, 60), SOON), "no thread runs");
        assert!(stacks.take(&Snapshot { capture: "states".into(), ..first }, SOON), "there will be none");
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
}
