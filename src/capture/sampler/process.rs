//! What there is of each process; everything else of the sampler there is once.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::capture::Walkers;
use crate::capture::backend::stacks_readable;
use crate::capture::blocked::StackReader;
use crate::capture::program::Program;
use crate::capture::ptrace::Stopper;
use crate::capture::sampler::names::ThreadNames;
use crate::capture::thread_scan::{Moved, ThreadScan};
use crate::model::vocabulary::frame::Ns;
use crate::process::memory::Memory;
use crate::process::target::{AttachError, Target};
use crate::process::threads::Descriptors;
use crate::unwinder::Unwinder;

/// A process that is looked at.
pub struct Process {
    pub target: Arc<Target>,
    pub scan: ThreadScan,
    pub stacks: StackReader,
    pub unwinder: Box<dyn Unwinder>,
    pub program: Program,
    pub names: ThreadNames,
    /// Under the way `ptrace`.
    pub stopper: Option<Stopper>,
    /// Threads of which there are samples, where one of each is wanted.
    pub sampled: FxHashSet<u32>,
    /// Threads whose counters changed in this round.
    pub moved: Vec<Moved>,
    /// The kernel lets us read stacks of its threads.
    pub readable: bool,
    /// Why it may not be looked at any more, since an exec: only its states are told.
    pub refusal: Option<String>,
    pub ended: Option<Ended>,
    /// It is a program that we started, and its exec is still to come.
    pub before_exec: bool,
}

/// It has ended, and that has yet to be told.
#[derive(Clone, Copy)]
pub struct Ended {
    /// What its CPU clock said: a zombie still has one.
    pub cpu_ns: Option<Ns>,
}

impl Process {
    pub fn new(
        target: Arc<Target>,
        files: Descriptors,
        walkers: &mut Walkers,
    ) -> Result<Process, AttachError> {
        let pid = target.pid();
        let scan = ThreadScan::sharing(pid, files).map_err(|_| AttachError::EndedEarly { pid })?;
        // In this order: it may have replaced its program since it was attached to, and is asked
        // about as it is now; the next exec will be noticed.
        let program = Program::new(pid);
        target.still_permitted()?;
        let mut process = Process {
            target,
            scan,
            stacks: StackReader::new(Memory::new(pid)),
            unwinder: (walkers.walk_copied)(pid),
            program,
            names: ThreadNames::default(),
            stopper: None,
            sampled: FxHashSet::default(),
            moved: Vec::new(),
            readable: false,
            refusal: None,
            ended: None,
            before_exec: false,
        };
        process.learn_readable();
        process.begin_walking();
        Ok(process)
    }

    /// What is mapped from now on replaces what is there.
    pub fn begin_walking(&mut self) {
        if self.gives_stacks() {
            self.unwinder.revalidate(false, false);
        }
    }

    /// Asks the kernel whether stacks can be read.
    pub fn learn_readable(&mut self) {
        self.readable = stacks_readable(&self.target, self.scan.tasks());
    }

    pub fn pid(&self) -> u32 {
        self.target.pid()
    }

    /// Stacks of it are taken, where the way takes any.
    pub fn gives_stacks(&self) -> bool {
        self.readable && self.refusal.is_none()
    }
}
