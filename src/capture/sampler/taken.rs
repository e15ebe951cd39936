//! What the kernel takes with the samples of threads, beside registers and stack: frames of
//! interpreters, stacks and labels of goroutines, objects that lead to awaiting functions.

use crate::capture::bpf::Bpf;
use crate::capture::bpf::taken::{GoProgram, SampleKey};
use crate::capture::kernel_ring::Sample;
use crate::capture::sampler::Core;
use crate::unwinder::awaiting::AwaitLayout;
use crate::unwinder::interpreted::{InterpreterLayout, StackOwner, Taken};

/// What the kernel was told about a process.
#[derive(Default)]
pub struct Announced {
    /// Where it finds frames of the process's interpreter.
    pub interpreter: Option<InterpreterLayout>,
    /// What it knows of a program of Go; `None` in it: the process executes none.
    pub go: Option<Option<GoProgram>>,
    /// Which objects it takes that lead to awaiting functions.
    pub awaiting: Option<AwaitLayout>,
}

impl Core {
    /// Tells the kernel where the interpreters of processes keep their frames, which are Go
    /// programs, and which objects to take.
    pub(super) fn announce_runtimes(&mut self) {
        let Some(taken) = &mut self.backend.taken else { return };
        for process in &mut self.processes {
            let layout = process.unwinder.interpreter_layout();
            let is_go = process.unwinder.is_go() || process.labels.layout.is_some();
            let go = Some(is_go.then_some(GoProgram { labels: process.labels.layout }));
            let announced = &mut process.announced;
            let awaiting = process.unwinder.await_layout();
            let is_known = layout == announced.interpreter
                && go == announced.go
                && awaiting == announced.awaiting.as_ref();
            if is_known {
                continue;
            }
            let bpf = self.backend.bpf.as_ref();
            let Some(id) = bpf.and_then(|bpf| bpf.process_of(process.target.pid())) else {
                continue;
            };
            if layout != announced.interpreter && taken.set_interpreter(id, layout.as_ref()).is_ok()
            {
                announced.interpreter = layout;
            }
            if go != announced.go && taken.set_go(id, go.flatten()).is_ok() {
                announced.go = go;
            }
            if awaiting != announced.awaiting.as_ref() && taken.set_awaiting(id, awaiting).is_ok() {
                announced.awaiting = awaiting.cloned();
            }
        }
    }

    /// Sets whose stack is walked next, with what the kernel took with the sample.
    pub(super) fn set_owner(&mut self, index: usize, sample: &Sample<'_>) {
        // For each sample: a processor may still have been taking this one when the sample before
        // it was walked.
        if let Some(reader) = &mut self.backend.taken {
            reader.receive();
        }
        let process = &mut self.processes[index];
        let owner = StackOwner { tid: sample.tid, ..StackOwner::default() };
        let Announced { interpreter, go, awaiting } = &process.announced;
        let may_be_go = *go != Some(None);
        process.labels_of_sample = None;
        let reader = self.backend.taken.as_mut();
        let is_asked = interpreter.is_some() || may_be_go || awaiting.is_some();
        let reader = reader.filter(|_| is_asked);
        let Some(reader) = reader else {
            process.unwinder.set_owner(owner, Taken::nothing());
            return;
        };
        // Ids of threads can be compared only where those of processes agree.
        let pid = process.target.pid();
        let is_initial = |bpf: &Bpf| bpf.process_of(pid) == Some(pid);
        let thread = self.backend.bpf.as_ref().is_some_and(is_initial).then_some(sample.tid);
        let key = SampleKey { processor: sample.processor, at: sample.at, thread };
        let frames = match interpreter {
            Some(_) => reader.frames_of(key),
            None => Taken::nothing(),
        };
        let stack = if may_be_go { reader.stack_of(key) } else { None };
        let objects = awaiting.as_ref().and_then(|_| reader.objects_of(key));
        if process.labels.layout.is_some() {
            process.labels_of_sample = process.labels.frames.frame(&reader.labels_of(key));
        }
        process.unwinder.set_owner(owner, frames);
        process.unwinder.set_goroutine_stack(stack);
        process.unwinder.set_awaiting(objects);
    }
}
