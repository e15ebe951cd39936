//! Frames of interpreters, which the kernel takes with the samples of their threads.

use crate::capture::bpf::Bpf;
use crate::capture::kernel_ring::Sample;
use crate::capture::sampler::Core;
use crate::unwinder::interpreted::{StackOwner, Taken};

impl Core {
    /// Tells the kernel where the interpreters of processes keep their frames.
    pub(super) fn announce_interpreters(&mut self) {
        let Some(interpreters) = &mut self.backend.interpreters else { return };
        for process in &mut self.processes {
            let layout = process.unwinder.interpreter_layout();
            if layout == process.interpreter {
                continue;
            }
            let bpf = self.backend.bpf.as_ref();
            if let Some(id) = bpf.and_then(|bpf| bpf.process_of(process.target.pid()))
                && interpreters.set(id, layout.as_ref()).is_ok()
            {
                process.interpreter = layout;
            }
        }
    }

    /// Sets whose stack is walked next, with what the kernel took of an interpreter.
    pub(super) fn set_owner(&mut self, index: usize, sample: &Sample<'_>) {
        let process = &mut self.processes[index];
        let owner = StackOwner { tid: sample.tid, ..StackOwner::default() };
        let interpreters = self.backend.interpreters.as_mut();
        let interpreters = interpreters.filter(|_| process.interpreter.is_some());
        let taken = interpreters.map_or_else(Taken::nothing, |interpreters| {
            // Ids of threads can be compared only where those of processes agree.
            let pid = process.target.pid();
            let is_initial = |bpf: &Bpf| bpf.process_of(pid) == Some(pid);
            let thread = self.backend.bpf.as_ref().is_some_and(is_initial).then_some(sample.tid);
            interpreters.of_sample(sample.processor, sample.at, thread)
        });
        process.unwinder.set_owner(owner, taken);
    }
}
