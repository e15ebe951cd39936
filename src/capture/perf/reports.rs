//! Reports of executable mappings that processes make while sampled, with their time
//! (PERF_RECORD_MMAP2). The kernel does not report unmapping: a mapping counts as present until
//! another one replaces it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use perf_event_open_sys::bindings as sys;
use rustc_hash::FxHashSet;

use crate::capture::kernel_ring::{KernelRing, Mapped, Record};
use crate::capture::perf::event::{REPORTS_RING, open_event, reports_attr};
use crate::model::vocabulary::frame::Ns;
use crate::process::code_generations::CodeMapping;
use crate::process::maps::Mapping;

/// Maximum reports that wait to be taken; further ones are lost.
const WAITING_MAX: usize = 1 << 15;

/// Mapping reports of one CPU, of all processes that run there.
pub struct CpuReports {
    ring: KernelRing,
    event: OwnedFd,
}

impl CpuReports {
    pub fn open(attr: &sys::perf_event_attr, cpu: u32) -> io::Result<CpuReports> {
        let event = open_event(&reports_attr(attr), -1, cpu)?;
        Ok(CpuReports { ring: KernelRing::map(event.as_fd(), REPORTS_RING)?, event })
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Reports not yet taken, in order of time.
#[derive(Default)]
pub struct Reports {
    waiting: VecDeque<CodeMapping>,
    /// Some reports were lost.
    lost: bool,
    /// There was a report, or one was lost.
    any: bool,
}

impl Reports {
    /// Takes the reports in a CPU's ring.
    pub fn take(&mut self, cpu: &mut CpuReports, targets: &FxHashSet<u32>) {
        cpu.ring.drain(|record| {
            self.record(&record, targets);
            true
        });
    }

    /// Takes the reports in a ring that also has samples, which stay there.
    pub fn scan(&mut self, ring: &mut KernelRing, targets: &FxHashSet<u32>) {
        ring.scan(|record| self.record(&record, targets));
    }

    fn record(&mut self, record: &Record<'_>, targets: &FxHashSet<u32>) {
        match record {
            Record::Mapped(mapped) if targets.contains(&mapped.pid) => self.add(mapped),
            Record::Lost(_) => self.set_lost(),
            _ => {}
        }
    }

    fn add(&mut self, mapped: &Mapped<'_>) {
        self.any = true;
        if self.waiting.len() >= WAITING_MAX {
            self.lost = true;
            return;
        }
        let Mapped { pid, at, start, end, offset, device, inode, path } = *mapped;
        let mapping = Arc::new(Mapping::reported((start, end), offset, device, inode, path));
        let later = self.waiting.iter().rev().take_while(|waiting| waiting.at > at).count();
        self.waiting.insert(self.waiting.len() - later, CodeMapping { pid, at, mapping });
    }

    /// Returns the oldest report up to `until`.
    pub fn next(&mut self, until: Ns) -> Option<CodeMapping> {
        self.waiting.front().filter(|first| first.at <= until)?;
        self.waiting.pop_front()
    }

    /// Returns the oldest report of one process up to `until`.
    pub fn next_of(&mut self, pid: u32, until: Ns) -> Option<CodeMapping> {
        let index = self
            .waiting
            .iter()
            .position(|new| new.pid == pid)
            .filter(|index| self.waiting[*index].at <= until)?;
        self.waiting.remove(index)
    }

    /// Returns whether reports were lost since the last call.
    pub fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.lost)
    }

    pub fn set_lost(&mut self) {
        (self.lost, self.any) = (true, true);
    }

    /// Returns whether anything was reported, or lost, since the last call.
    pub fn take_any(&mut self) -> bool {
        std::mem::take(&mut self.any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(reports: &mut Reports, pid: u32, at: Ns) {
        let (start, end, path) = (0x1000, 0x2000, &b"/lib/x.so"[..]);
        reports.add(&Mapped { pid, at, start, end, offset: 0, device: (8, 1), inode: 7, path });
    }

    #[test]
    fn reports_of_all_cpus_come_in_order_of_time() {
        let mut reports = Reports::default();
        // In order of CPU.
        for (pid, at) in [(1, 10), (2, 30), (1, 50), (1, 5), (2, 30), (1, 40)] {
            add(&mut reports, pid, at);
        }
        assert_eq!(reports.next_of(2, 29), None);
        assert_eq!(reports.next_of(2, 30).map(|new| new.at), Some(30));
        let mut told = Vec::new();
        while let Some(new) = reports.next(45) {
            told.push((new.pid, new.at));
        }
        assert_eq!(told, [(1, 5), (1, 10), (2, 30), (1, 40)]);
        assert_eq!(reports.next(50).map(|new| new.at), Some(50));
    }

    #[test]
    fn too_many_reports_are_lost_and_that_is_returned_once() {
        let mut reports = Reports::default();
        (0..=WAITING_MAX as Ns).for_each(|at| add(&mut reports, 1, at));
        assert_eq!(reports.waiting.len(), WAITING_MAX);
        assert!(reports.take_lost() && !reports.take_lost());
    }

    #[test]
    fn news_are_told_once_whether_they_were_taken_or_lost() {
        let mut reports = Reports::default();
        assert!(!reports.take_any());
        add(&mut reports, 1, 1);
        assert!(reports.next(1).is_some() && reports.take_any() && !reports.take_any());
        reports.set_lost();
        assert!(reports.take_any());
    }
}
