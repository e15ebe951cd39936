//! Walks stacks of blocked threads by the code that was mapped at the time of observation.

use crate::capture::perf::Perf;
use crate::capture::stack_reader::StackReader;
use crate::model::vocabulary::frame::Ns;
use crate::unwinder::Unwinder;
use crate::unwinder::interpreted::{StackOwner, Taken};

/// Reader and unwinder for the stacks of one process.
pub struct Stacks<'a> {
    pub reader: &'a mut StackReader,
    pub unwinder: &'a mut dyn Unwinder,
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
}
