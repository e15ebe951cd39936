//! Walks stacks of blocked threads by the code that was mapped at the time of observation.

use crate::capture::perf::Perf;
use crate::capture::stack_reader::StackReader;
use crate::model::vocabulary::frame::{Ns, RawFrame};
use crate::runtimes::go::labels::running::RunningLabels;
use crate::unwinder::Unwinder;
use crate::unwinder::interpreted::{StackOwner, Taken, place_task};
use crate::unwinder::{Registers, Walk};

/// Reader and unwinder for the stacks of one process.
pub struct Stacks<'a> {
    pub reader: &'a mut StackReader,
    pub unwinder: &'a mut dyn Unwinder,
    /// Labels of the goroutines that threads execute; `None`: they are not read.
    pub labels: Option<&'a mut RunningLabels>,
    /// Source of reports of code that the process maps.
    pub reports: Option<&'a mut Perf>,
}

impl Stacks<'_> {
    /// Sets whose stack is walked next, and the time since which that thread has not run.
    pub(super) fn begin(&mut self, pid: u32, owner: StackOwner, at: Ns) {
        self.unwinder.set_owner(owner, Taken::default());
        match self.reports.as_deref_mut().filter(|perf| perf.reports_code()) {
            Some(perf) => {
                perf.take_reports();
                while let Some(new) = perf.next_report_of(pid, at) {
                    self.unwinder.report(&new);
                }
            }
            // Without reports, a mapping that changed since the last check may have changed before
            // `at`.
            None => self.unwinder.revalidate(false, false),
        }
        self.unwinder.set_instant(at);
    }

    /// Puts the labels of the goroutine that a thread executes into its stack, which this walk
    /// found. They are read now, so the check that the thread has not run meanwhile belongs after
    /// it. Returns whether there are any.
    pub(super) fn place_labels(
        &mut self,
        (fs_base, registers): (u64, &Registers),
        walk: Walk,
        stack: &mut Vec<RawFrame>,
    ) -> bool {
        /// Index of r14 in [`Registers::general`].
        const R14: usize = 12;
        let labels = self.labels.as_deref_mut();
        let labels = labels.and_then(|labels| labels.of_thread(fs_base, registers.general[R14]));
        place_task(labels, walk, stack);
        labels.is_some()
    }
}
