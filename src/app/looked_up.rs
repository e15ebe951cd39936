//! What the live view looked up or counted: it goes into the files that are saved, as the other
//! ends are gone when the session ends.

use std::sync::Arc;

use crate::model::facts::observed_waits::{self, ObservedWait};
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::StackId;
use crate::model::projection::waits::{Answer, Asked};
use crate::model::vocabulary::frame::{Ns, SECOND};
use crate::model::vocabulary::wakeup::Wakeups;

/// Maximum age of a question whose answer is kept.
const AGE: Ns = 10 * SECOND;

#[derive(Debug, Default)]
pub struct LookedUp {
    /// Questions, the stack of each thread, and when it was seen there. No stack: equal calls came
    /// from several.
    asked: Vec<(Asked, Option<StackId>, Ns)>,
    waits: Vec<ObservedWait>,
    wakeups: Option<Arc<Wakeups>>,
}

impl LookedUp {
    /// Notes questions about threads of this snapshot.
    pub fn asked(&mut self, snapshot: &Snapshot, asked: &[Asked]) {
        let at = snapshot.at;
        self.asked.retain(|(.., of)| of.saturating_add(AGE) >= at);
        for asked in asked.iter().filter(|asked| asked.has_arguments()) {
            let now = snapshot.threads.iter().find(|now| now.thread == asked.thread);
            let Some(stack) = now.map(|now| now.stack) else { continue };
            match self.asked.iter_mut().find(|(of, ..)| of == asked) {
                Some((_, of, newest)) => {
                    *of = of.filter(|of| *of == stack);
                    *newest = at;
                }
                None => self.asked.push((*asked, Some(stack), at)),
            }
        }
    }

    /// Keeps answers to questions of [`LookedUp::asked`].
    pub fn answered(&mut self, answers: &[Answer]) {
        for Answer { asked: of, waits_for } in answers {
            let found = self.asked.iter().find(|(asked, ..)| asked == of);
            let Some((_, Some(stack), at)) = found else { continue };
            let (thread, call) = (of.thread, of.call);
            let waits_for = waits_for.clone();
            let wait = ObservedWait { thread, stack: *stack, call, waits_for, times: 1, at: *at };
            observed_waits::add(&mut self.waits, wait);
        }
    }

    /// Keeps the newest counts.
    pub fn counted(&mut self, wakeups: Wakeups) {
        self.wakeups = Some(wakeups.into());
    }

    /// Returns the snapshot with what was found until then. Later stacks may not be in its tables.
    pub fn with(&self, snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
        let mut with = Snapshot::clone(snapshot);
        if !self.waits.is_empty() {
            let waits = self.waits.iter().filter(|wait| wait.at <= snapshot.at).cloned();
            with.observed_waits = waits.collect();
        }
        if let Some(wakeups) = self.wakeups.as_ref().filter(|counted| counted.from <= snapshot.at) {
            with.wakeups = Some(wakeups.clone());
        }
        Arc::new(with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::snapshot::ThreadNow;
    use crate::model::facts::tables::{BlockerId, NameId};
    use crate::model::projection::waits::{Lock, WaitsFor};
    use crate::model::vocabulary::event::Syscall;
    use crate::model::vocabulary::frame::ThreadKey;
    use crate::model::vocabulary::state::{RawState, State};
    use crate::model::vocabulary::wakeup::Cost;

    const FSYNC: i32 = 74;
    const FUTEX: i32 = 202;

    fn asked(tid: u32, number: i32) -> Asked {
        let thread = ThreadKey { pid: 1, tid, start: 0 };
        Asked { thread, call: Syscall { number, args: [3, 0, 0, 0, 0, 0] }, lock: Lock::No }
    }

    fn answers(asked: &[Asked]) -> Vec<Answer> {
        let waits_for = WaitsFor { what: "fsync", ..WaitsFor::default() };
        asked.iter().map(|asked| Answer { asked: *asked, waits_for: waits_for.clone() }).collect()
    }

    /// Returns a snapshot of threads, each in a stack.
    fn snapshot(at: Ns, threads: &[(u32, u32)]) -> Arc<Snapshot> {
        let now = |(tid, stack): &(u32, u32)| ThreadNow {
            thread: asked(*tid, FSYNC).thread,
            name: NameId(0),
            stack: StackId(*stack),
            state: RawState::Known(State::Disk),
            since: 1,
            syscall: Some(asked(*tid, FSYNC).call),
            blocker: BlockerId::NONE,
            run_ns: 0,
            recovered: false,
        };
        let threads: Vec<ThreadNow> = threads.iter().map(now).collect();
        Snapshot::made_up(at, &threads).into()
    }

    /// Returns thread, stack, times and time of what is kept.
    fn kept(looked_up: &LookedUp, at: Ns) -> Vec<(u32, u32, u32, Ns)> {
        let with = looked_up.with(&snapshot(at, &[]));
        let fields = |wait: &ObservedWait| (wait.thread.tid, wait.stack.0, wait.times, wait.at);
        with.observed_waits.iter().map(fields).collect()
    }

    #[test]
    fn answers_belong_to_the_place_of_the_question() {
        let mut looked_up = LookedUp::default();
        let both = [asked(5, FSYNC), asked(6, FSYNC)];
        looked_up.asked(&snapshot(10, &[(5, 1), (6, 1)]), &both);
        // One has moved on before the answer comes: it may be of either place.
        looked_up.asked(&snapshot(20, &[(5, 2), (6, 1)]), &both);
        looked_up.answered(&answers(&both));
        assert_eq!(kept(&looked_up, 20), [(6, 1, 1, 20)]);
        looked_up.answered(&answers(&both[1..]));
        assert_eq!(kept(&looked_up, 20), [(6, 1, 2, 20)]);
        assert_eq!(kept(&looked_up, 19), [], "it is of a later time");
        // Questions that were not asked, are too old, or are about locks.
        let lock = [asked(5, FUTEX)];
        looked_up.asked(&snapshot(20 + 2 * AGE, &[(5, 1)]), &lock);
        let others = [both[0], both[1], asked(7, FSYNC), lock[0]];
        looked_up.answered(&answers(&others));
        assert_eq!(kept(&looked_up, Ns::MAX), [(6, 1, 2, 20)]);
    }

    #[test]
    fn counts_are_of_a_snapshot_that_is_not_older() {
        let mut looked_up = LookedUp::default();
        let cost = Cost::Measured(1);
        looked_up.counted(Wakeups {
            from: 10,
            duration_ns: 1,
            pairs: vec![],
            lost: 0,
            seen: 0,
            cost,
        });
        let has = |at| looked_up.with(&snapshot(at, &[])).wakeups.is_some();
        assert_eq!((has(9), has(10)), (false, true));
    }
}
