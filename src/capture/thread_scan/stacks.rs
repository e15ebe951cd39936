//! Stacks of blocked threads are walked by the code that was mapped when they were observed.

use crate::capture::blocked::StackReader;
use crate::capture::perf::Perf;
use crate::model::vocabulary::frame::Ns;
use crate::unwinder::Unwinder;

/// Who reads and walks the stacks of one process.
pub struct Stacks<'a> {
    pub reader: &'a mut StackReader,
    pub unwinder: &'a mut dyn Unwinder,
    /// Who reports what the process maps.
    pub reports: Option<&'a mut Perf>,
}

impl Stacks<'_> {
    /// What is walked next has stood where it is since `at` at least.
    pub(super) fn set_instant(&mut self, pid: u32, at: Ns) {
        match self.reports.as_deref_mut().filter(|perf| perf.reports_code()) {
            Some(perf) => {
                perf.take_reports();
                while let Some(new) = perf.next_report_of(pid, at) {
                    self.unwinder.report(&new);
                }
            }
            // What has changed since the last time has changed since `at`, as far as is known.
            None => self.unwinder.revalidate(false, false),
        }
        self.unwinder.set_instant(at);
    }
}
