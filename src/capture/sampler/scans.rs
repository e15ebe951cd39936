//! The thread scan of each tick, by the files of /proc or by the task iterator.

use std::io;

use crate::capture::bpf::Bpf;
use crate::capture::sampler::Core;
use crate::capture::thread_scan::parked_rotation;
use crate::capture::thread_scan::{ScanContext, Stacks, ThreadScan};
use crate::clock::monotonic;
use crate::config::CaptureChoice;
use crate::model::vocabulary::frame::Ns;

/// Time after which a scan pauses to empty the perf rings, ns. A ring holds eight samples, and
/// first walks take long.
const MAX_SCAN_SLICE: Ns = 1_000_000;

impl Core {
    pub(super) fn scan_threads(&mut self) {
        for index in 0..self.processes.len() {
            self.processes[index].moved.clear();
            if self.processes[index].ended.is_none() {
                self.scan_process(index);
            }
        }
    }

    /// Scans one process.
    fn scan_process(&mut self, index: usize) {
        let pid = self.processes[index].pid();
        if let Some(mut bpf) = self.backend.bpf.take_if(|bpf| bpf.watches(pid)) {
            let result = self.scan_by_iterator(&mut bpf, index);
            self.backend.bpf = Some(bpf);
            if let Err(error) = result {
                let why = format!("BPF has failed: {error}");
                let below = [CaptureChoice::Perf, CaptureChoice::CpuOnly, CaptureChoice::States];
                below.into_iter().any(|choice| self.change_backend(choice, Some(why.clone())));
            }
            return;
        }
        let mut denied = false;
        loop {
            let (scan, mut context) = self.scan_and_context(index);
            let complete = scan.scan_files(&mut context);
            denied |= context.denied;
            if complete {
                break;
            }
            self.drain(monotonic());
        }
        if denied {
            self.handle_denied_stacks(index);
        }
    }

    /// Scans one process by the task iterator.
    fn scan_by_iterator(&mut self, bpf: &mut Bpf, index: usize) -> io::Result<()> {
        let turns = self.turns(index);
        let process = &mut self.processes[index];
        bpf.begin(process.pid(), process.scan.next_visit(turns, bpf.visit_method()))?;
        let needs_clock = process.scan.needs_process_clock();
        let mut pause_at = monotonic() + MAX_SCAN_SLICE;
        let mut clock = self.read_pass(bpf, index, needs_clock, &mut pause_at)?;
        let process = &mut self.processes[index];
        if process.scan.needs_another_pass(bpf.thread_count()) {
            bpf.begin(process.pid(), process.scan.next_visit(turns, bpf.visit_method()))?;
            clock = self.read_pass(bpf, index, needs_clock, &mut pause_at)?;
        }
        let (scan, mut context) = self.scan_and_context(index);
        scan.end_pass(bpf.missed(), clock, &mut context);
        Ok(())
    }

    /// Reads a pass to its end. `pause_at`: when perf's rings are to be emptied. Returns the
    /// process clock if it is needed: `None` in it where it cannot be read.
    fn read_pass(
        &mut self,
        bpf: &mut Bpf,
        index: usize,
        needs_clock: bool,
        pause_at: &mut Ns,
    ) -> io::Result<Option<Option<Ns>>> {
        let mut clock = None;
        loop {
            let more = bpf.read()?;
            // Read before stacks are walked, which takes long. Read once, since it covers all
            // threads.
            if needs_clock && clock.is_none() && bpf.has_visited_all() {
                clock = Some(self.processes[index].scan.tasks().clock());
            }
            if !more {
                return Ok(clock);
            }
            for (row, copied) in bpf.rows() {
                let (scan, mut context) = self.scan_and_context(index);
                scan.take_row(&row, copied, &mut context);
                if monotonic() >= *pause_at {
                    self.drain(monotonic());
                    *pause_at = monotonic() + MAX_SCAN_SLICE;
                }
            }
        }
    }

    /// Returns the maximum visits of parked threads per scan of the process.
    fn turns(&self, index: usize) -> usize {
        let tick = self.schedule.interval();
        let turns = match self.visit_interval() {
            Some(visit) => {
                self.processes[index].scan.rationed_turns(tick.max(self.since_tick), visit)
            }
            None => parked_rotation::turns(tick) / self.processes.len().max(1),
        };
        turns.max(1)
    }

    /// Returns the maximum first observations per scan of one process. There is no limit if one
    /// stack of each thread is wanted, or at the end: no later tick has to be on time.
    fn max_first_observations(&self) -> usize {
        if self.once || self.ending {
            return usize::MAX;
        }
        (parked_rotation::first_observations(self.schedule.interval())
            / self.processes.len().max(1))
        .max(1)
    }

    fn scan_and_context(&mut self, index: usize) -> (&mut ThreadScan, ScanContext<'_>) {
        let (turns, max_first_observations) = (self.turns(index), self.max_first_observations());
        let process = &mut self.processes[index];
        let takes_stacks = self.backend.reads_stacks && process.gives_stacks();
        let stacks = takes_stacks.then_some(Stacks {
            reader: &mut process.stacks,
            unwinder: process.unwinder.as_mut(),
            labels: Some(&mut process.labels),
            reports: self.backend.perf.as_mut(),
        });
        let context = ScanContext {
            stacks,
            events: &mut self.events,
            moved: &mut process.moved,
            losses: &mut self.losses,
            stops_threads: process.stopper.is_some(),
            turns,
            max_first_observations,
            pause_at: monotonic() + MAX_SCAN_SLICE,
            denied: false,
        };
        (&mut process.scan, context)
    }
}
