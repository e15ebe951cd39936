//! Walks stacks of blocked threads by the code that was mapped at the time of observation.

use crate::capture::perf::Perf;
use crate::capture::stack_reader::StackReader;
use crate::model::vocabulary::frame::Ns;
use crate::unwinder::Unwinder;

/// Reader and unwinder for the stacks of one process.
pub struct Stacks<'a> {
    pub reader: &'a mut StackReader,
    pub unwinder: &'a mut dyn Unwinder,
    /// Source of reports of code that the process maps.
    pub reports: Option<&'a mut Perf>,
}

impl Stacks<'_> {
    /// Sets the time since which the thread that is walked next has not run.
    pub(super) fn set_instant(&mut self, pid: u32, at: Ns) {
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
