//! What threads wait for in a timed run: looked up about once a second while the run lasts, as
//! peers and children are gone when it ends. The answers go into the snapshots.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use super::waiting::Waiting;
use crate::model::facts::observed_waits::{self, ObservedWait};
use crate::model::facts::snapshot::{Snapshot, ThreadNow};
use crate::model::facts::tables::StackId;
use crate::model::projection::waits::{Answer, Asked};
use crate::model::vocabulary::frame::{Ns, ThreadKey};

/// Time from the start to the first look-up: by then the threads are known.
const FIRST: Duration = Duration::from_millis(300);
/// Minimum time between two look-ups.
const EVERY: Duration = Duration::from_secs(1);
/// Maximum waits of a look-up: about 5 ms of CPU time.
const ASKED: usize = 64;
/// Maximum waits in one place of a look-up.
const IN_ONE_PLACE: usize = 8;

/// The look-ups of a run.
pub struct LookingUp {
    waiting: Waiting,
    due: Instant,
    /// Where the threads are that were asked for; empty while no answer is awaited.
    asked: Vec<(Asked, StackId)>,
    asked_at: Ns,
    is_awaited: bool,
    any: bool,
    found: Vec<ObservedWait>,
}

impl LookingUp {
    /// Starts the thread that looks up. Pass every answer that it sends to [`LookingUp::answered`].
    pub fn start(
        send: impl FnMut(Vec<Answer>) -> bool + Send + 'static,
        now: Instant,
    ) -> std::io::Result<LookingUp> {
        Ok(LookingUp {
            waiting: Waiting::start(send)?,
            due: now + FIRST,
            asked: Vec::new(),
            asked_at: 0,
            is_awaited: false,
            any: false,
            found: Vec::new(),
        })
    }

    /// Returns the time until the next look-up; `None` while an answer is awaited.
    pub fn due_in(&self, now: Instant) -> Option<Duration> {
        (!self.is_awaited).then(|| self.due.saturating_duration_since(now))
    }

    /// Asks for what threads wait for in this snapshot.
    pub fn ask(&mut self, snapshot: &Snapshot, now: Instant) {
        self.due = now + EVERY;
        self.any = true;
        if self.is_awaited {
            return;
        }
        self.asked = to_ask(snapshot, &self.found);
        self.asked_at = snapshot.at;
        if !self.asked.is_empty() {
            self.is_awaited = true;
            self.waiting.ask(self.asked.iter().map(|(asked, _)| *asked).collect(), now);
        }
    }

    /// Keeps the answers of a look-up.
    pub fn answered(&mut self, answers: Vec<Answer>, now: Instant) {
        self.is_awaited = false;
        self.waiting.done(now);
        let asked = std::mem::take(&mut self.asked);
        for Answer { asked: of, waits_for } in answers {
            let Some((_, stack)) = asked.iter().find(|(asked, _)| *asked == of) else { continue };
            let (thread, call, at) = (of.thread, of.call, self.asked_at);
            let wait = ObservedWait { thread, stack: *stack, call, waits_for, times: 1, at };
            observed_waits::add(&mut self.found, wait);
        }
    }

    /// Returns whether a last answer is to be waited for, after a look-up of this last snapshot if
    /// there was none before.
    pub fn ends(&mut self, last: &Snapshot, now: Instant) -> bool {
        if !self.any {
            self.ask(last, now);
        }
        self.is_awaited
    }

    /// Returns the snapshot with what was found since the start or the last cut.
    pub fn with_found(&self, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        if self.found.is_empty() {
            return snapshot;
        }
        let observed_waits = self.found.as_slice().into();
        Arc::new(Snapshot { observed_waits, ..Snapshot::clone(&snapshot) })
    }

    /// Forgets what was found: stacks have other numbers from now on.
    pub fn cut(&mut self) {
        self.found.clear();
        self.asked.clear();
    }
}

/// Chooses the waits to look up: of each place some of the longest, those of all places in turn;
/// first those of threads of which nothing was found in that place.
fn to_ask(snapshot: &Snapshot, found: &[ObservedWait]) -> Vec<(Asked, StackId)> {
    let found: FxHashSet<(ThreadKey, StackId)> =
        found.iter().map(|wait| (wait.thread, wait.stack)).collect();
    let mut threads: Vec<&ThreadNow> =
        snapshot.threads.iter().filter(|thread| thread.syscall.is_some()).collect();
    let is_found = |thread: &ThreadNow| found.contains(&(thread.thread, thread.stack));
    threads.sort_by_cached_key(|thread| (is_found(thread), thread.since, thread.thread));
    let mut in_place: FxHashMap<StackId, usize> = FxHashMap::default();
    let mut chosen: Vec<(usize, Asked, StackId)> = Vec::new();
    for thread in threads {
        if in_place.get(&thread.stack).is_some_and(|nth| *nth >= IN_ONE_PLACE) {
            continue;
        }
        let asked = Asked::of(snapshot, thread).filter(Asked::has_arguments);
        let Some(asked) = asked else { continue };
        let nth = in_place.entry(thread.stack).or_default();
        chosen.push((*nth, asked, thread.stack));
        *nth += 1;
    }
    chosen.sort_by_key(|(nth, ..)| *nth);
    chosen.truncate(ASKED);
    chosen.into_iter().map(|(_, asked, stack)| (asked, stack)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::model::facts::tables::{BlockerId, NameId};
    use crate::model::projection::waits::WaitsFor;
    use crate::model::vocabulary::event::Syscall;
    use crate::model::vocabulary::state::{RawState, State};

    /// Returns a thread in a stack that has waited since a time, in a call with a descriptor.
    fn thread(tid: u32, stack: u32, since: Ns, number: i32) -> ThreadNow {
        ThreadNow {
            // It cannot exist (PID_MAX_LIMIT is 2^22).
            thread: ThreadKey { pid: 1 << 23, tid, start: 0 },
            name: NameId(0),
            stack: StackId(stack),
            state: RawState::Known(State::Io),
            since,
            syscall: Some(Syscall { number, args: [tid.into(), 0, 0, 0, 0, 0] }),
            blocker: BlockerId::NONE,
            run_ns: 0,
            recovered: false,
        }
    }

    fn snapshot(threads: &[ThreadNow]) -> Snapshot {
        Snapshot::made_up(100, threads)
    }

    fn tids(chosen: &[(Asked, StackId)]) -> Vec<u32> {
        chosen.iter().map(|(asked, _)| asked.thread.tid).collect()
    }

    #[test]
    fn every_place_has_its_turn_and_known_threads_come_last() {
        const RECV: i32 = 45;
        let mut threads: Vec<ThreadNow> = (1..=12).map(|tid| thread(tid, 0, 50, RECV)).collect();
        threads.push(thread(20, 0, 40, RECV));
        let tables_have_no_other_stack =
            |found: &[ObservedWait]| tids(&to_ask(&snapshot(&threads), found));
        assert_eq!(tables_have_no_other_stack(&[]), [20, 1, 2, 3, 4, 5, 6, 7]);
        let known = |tid: u32| ObservedWait {
            thread: ThreadKey { pid: 1 << 23, tid, start: 0 },
            stack: StackId(0),
            call: Syscall { number: RECV, args: [0; 6] },
            waits_for: WaitsFor::default(),
            times: 1,
            at: 1,
        };
        let found: Vec<ObservedWait> = [20, 1, 2, 3, 4, 5, 6, 7].map(known).into();
        assert_eq!(tables_have_no_other_stack(&found), [8, 9, 10, 11, 12, 20, 1, 2]);
    }

    #[test]
    fn waits_without_a_file_or_process_are_not_asked_for() {
        const CALLS: [(i32, bool); 6] =
            [(0, true), (74, true), (61, true), (202, false), (232, false), (230, false)];
        for (number, asked) in CALLS {
            let chosen = to_ask(&snapshot(&[thread(1, 0, 1, number)]), &[]);
            assert_eq!(!chosen.is_empty(), asked, "{number}");
        }
        let mut runs = thread(1, 0, 1, 0);
        runs.state = RawState::Known(State::Run);
        assert_eq!(to_ask(&snapshot(&[runs]), &[]), []);
    }

    #[test]
    fn answers_are_kept_until_the_next_cut() {
        let (sender, answers) = channel();
        let now = Instant::now();
        let mut looking =
            LookingUp::start(move |batch| sender.send(batch).is_ok(), now).expect("a thread");
        assert_eq!(looking.due_in(now), Some(FIRST));
        let snapshot = snapshot(&[thread(5, 0, 1, 0)]);
        let later = now + FIRST;
        looking.ask(&snapshot, later);
        assert_eq!(looking.due_in(later), None, "an answer is awaited");
        // The process does not exist.
        assert_eq!(answers.recv().expect("an answer"), []);
        let asked = looking.asked[0].0;
        let waits_for = WaitsFor { what: "read", object: "/x".into(), ..WaitsFor::default() };
        looking.answered(vec![Answer { asked, waits_for }], later);
        assert_eq!(looking.due_in(later), Some(EVERY));
        let with = looking.with_found(Arc::new(snapshot.clone()));
        assert_eq!((with.observed_waits.len(), with.observed_waits[0].at), (1, 100));
        assert!(!looking.ends(&snapshot, later), "there was a look-up");
        looking.cut();
        assert!(looking.with_found(Arc::new(snapshot)).observed_waits.is_empty());
    }

    #[test]
    fn a_run_that_is_shorter_than_the_first_interval_is_looked_at_at_its_end() {
        let now = Instant::now();
        let mut looking = LookingUp::start(|_| true, now).expect("a thread");
        assert!(!looking.ends(&snapshot(&[]), now), "there is nothing to wait for");
        let mut looking = LookingUp::start(|_| true, now).expect("a thread");
        assert!(looking.ends(&snapshot(&[thread(5, 0, 1, 0)]), Instant::now()));
    }
}
