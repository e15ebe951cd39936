//! The round of looks at every tick, by the files of /proc or by the task iterator.

use std::io;

use crate::capture::bpf::Bpf;
use crate::capture::looks::{Looks, Round, Stacks};
use crate::capture::parked;
use crate::capture::sampler::Core;
use crate::capture::schedule::now;
use crate::config::CaptureChoice;
use crate::model::frame::Ns;

/// A round of looks stops to empty perf's rings after so long: they hold eight samples each, and first walks take long.
const PASS: Ns = 1_000_000;

impl Core {
    pub(super) fn round(&mut self) {
        self.moved.clear();
        if let Some(mut bpf) = self.way.bpf.take() {
            let result = self.round_of_rows(&mut bpf);
            self.way.bpf = Some(bpf);
            if let Err(error) = result {
                let why = format!("BPF has failed: {error}");
                let below = [CaptureChoice::Perf, CaptureChoice::CpuOnly, CaptureChoice::States];
                below.into_iter().any(|choice| self.change_way(choice, Some(why.clone())));
            }
            return;
        }
        let mut denied = false;
        loop {
            let (looks, mut round) = self.looks_and_round();
            let complete = looks.round(&mut round);
            denied |= round.denied;
            if complete {
                break;
            }
            self.drain(now());
        }
        if denied {
            let kind = if self.way.perf.is_some() { CaptureChoice::CpuOnly } else { CaptureChoice::States };
            self.change_way(kind, Some("the kernel no longer lets stacks be read".into()));
        }
    }

    /// A round of looks by the task iterator.
    fn round_of_rows(&mut self, bpf: &mut Bpf) -> io::Result<()> {
        bpf.begin(self.target.pid(), self.looks.take_again())?;
        let mut pause_at = now() + PASS;
        while bpf.read()? {
            for (row, stack) in bpf.rows() {
                let (looks, mut round) = self.looks_and_round();
                looks.row(&row, stack, &mut round);
                if now() >= pause_at {
                    self.drain(now());
                    pause_at = now() + PASS;
                }
            }
        }
        let (looks, mut round) = self.looks_and_round();
        looks.end_of_rows(&mut round);
        Ok(())
    }

    fn looks_and_round(&mut self) -> (&mut Looks, Round<'_>) {
        let stacks =
            self.way.reads_stacks.then(|| Stacks { reader: &mut self.stacks, unwinder: self.unwinder.as_mut() });
        let round = Round {
            stacks,
            events: &mut self.events,
            moved: &mut self.moved,
            losses: &mut self.losses,
            stops_threads: self.way.stopper.is_some(),
            turns: parked::turns(self.schedule.interval()),
            pause_at: now() + PASS,
            denied: false,
        };
        (&mut self.looks, round)
    }
}
