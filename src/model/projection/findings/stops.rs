//! Sentences about programs that do not run because they are stopped.

use super::{Evidence, Finding, Kind};
use crate::model::vocabulary::state::State;

/// From this share of the busy time on, and from this number of threads on average on, time in
/// which threads were stopped is worth a sentence.
const MUCH_STOPPED: f64 = 0.25;
const STOPPED_THREADS: f64 = 0.5;

impl Evidence<'_> {
    /// Says that no thread runs, as they are stopped or frozen now.
    pub(super) fn does_not_run(&self) -> Option<Finding> {
        let lost_ns = self.projection.elapsed();
        let says = |text: String| Finding { lost_ns, ..Finding::new(Kind::Stopped, text) };
        let now = &self.projection.now;
        let stopped = now.busy[State::Stopped as usize];
        if self.snapshot.health.host.is_some_and(|host| host.frozen) {
            return Some(says("the process does not run: its control group is frozen".into()));
        }
        (stopped > 0 && stopped == now.busy_count() + now.idle).then(|| {
            let threads = if stopped == 1 { "the only thread is" } else { "all threads are" };
            says(format!("{threads} stopped by a signal or a debugger"))
        })
    }

    /// Says that threads were stopped for much of the range.
    pub(super) fn were_stopped(&self) -> Option<Finding> {
        let lost_ns = self.projection.busy.total.states_ns[State::Stopped as usize];
        let share = self.of_busy(lost_ns);
        let text = format!("threads were stopped by a signal or a debugger: {share}");
        let is_much =
            self.share(lost_ns) >= MUCH_STOPPED && self.threads(lost_ns) >= STOPPED_THREADS;
        is_much.then(|| Finding { lost_ns, ..Finding::new(Kind::Stopped, text) })
    }
}
