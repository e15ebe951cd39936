//! The thread scan of each tick, by the files of /proc or by the task iterator.

use std::io;

use crate::capture::bpf::Bpf;
use crate::capture::parked;
use crate::capture::sampler::Core;
use crate::capture::thread_scan::{Round, Stacks, ThreadScan};
use crate::clock::monotonic;
use crate::config::CaptureChoice;
use crate::model::vocabulary::frame::Ns;

/// Time after which a scan pauses to empty the perf rings, ns. A ring holds eight samples, and
/// first walks take long.
const PASS: Ns = 1_000_000;

impl Core {
    pub(super) fn round(&mut self) {
        for index in 0..self.processes.len() {
            self.processes[index].moved.clear();
            if self.processes[index].ended.is_none() {
                self.round_of(index);
            }
        }
    }

    /// Scans one process.
    fn round_of(&mut self, index: usize) {
        let pid = self.processes[index].pid();
        if let Some(mut bpf) = self.backend.bpf.take_if(|bpf| bpf.watches(pid)) {
            let result = self.round_of_rows(&mut bpf, index);
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
            let (scan, mut round) = self.scan_and_round(index);
            let complete = scan.round(&mut round);
            denied |= round.denied;
            if complete {
                break;
            }
            self.drain(monotonic());
        }
        if denied {
            self.denied(index);
        }
    }

    /// Scans one process by the task iterator.
    fn round_of_rows(&mut self, bpf: &mut Bpf, index: usize) -> io::Result<()> {
        let turns = self.turns();
        let process = &mut self.processes[index];
        bpf.begin(process.pid(), process.scan.next_visit(turns, bpf.singly()))?;
        let asks = process.scan.asks_the_clock();
        let (mut pause_at, mut clock) = (monotonic() + PASS, None);
        loop {
            let more = bpf.read()?;
            // Read before stacks are walked, which takes long. Read once, since it covers all
            // threads.
            if asks && clock.is_none() && bpf.has_visited_all() {
                clock = Some(self.processes[index].scan.tasks().clock());
            }
            if !more {
                break;
            }
            for (row, copied) in bpf.rows() {
                let (scan, mut round) = self.scan_and_round(index);
                scan.row(&row, copied, &mut round);
                if monotonic() >= pause_at {
                    self.drain(monotonic());
                    pause_at = monotonic() + PASS;
                }
            }
        }
        let (scan, mut round) = self.scan_and_round(index);
        scan.end_of_rows(bpf.missed(), clock, &mut round);
        Ok(())
    }

    /// Returns the maximum visits of parked threads per scan of one process.
    fn turns(&self) -> usize {
        (parked::turns(self.schedule.interval()) / self.processes.len().max(1)).max(1)
    }

    /// Returns the maximum first observations per scan of one process. There is no limit if one
    /// stack of each thread is wanted, or at the end: no later tick has to be on time.
    fn first_most(&self) -> usize {
        if self.once || self.ends {
            return usize::MAX;
        }
        (parked::first_observations(self.schedule.interval()) / self.processes.len().max(1)).max(1)
    }

    fn scan_and_round(&mut self, index: usize) -> (&mut ThreadScan, Round<'_>) {
        let (turns, first_most) = (self.turns(), self.first_most());
        let process = &mut self.processes[index];
        let takes_stacks = self.backend.reads_stacks && process.gives_stacks();
        let stacks = takes_stacks.then_some(Stacks {
            reader: &mut process.stacks,
            unwinder: process.unwinder.as_mut(),
            reports: self.backend.perf.as_mut(),
        });
        let round = Round {
            stacks,
            events: &mut self.events,
            moved: &mut process.moved,
            losses: &mut self.losses,
            stops_threads: process.stopper.is_some(),
            turns,
            first_most,
            pause_at: monotonic() + PASS,
            denied: false,
        };
        (&mut process.scan, round)
    }
}
