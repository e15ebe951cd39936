//! State kept for each process.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::capture::Walkers;
use crate::capture::backend::stacks_readable;
use crate::capture::exec_detector::ExecDetector;
use crate::capture::ptrace::Stopper;
use crate::capture::sampler::blockers::Blockers;
use crate::capture::sampler::goroutines::Goroutines;
use crate::capture::sampler::runtime_thread_names::RuntimeThreadNames;
use crate::capture::sampler::taken::Announced;
use crate::capture::stack_reader::StackReader;
use crate::capture::thread_scan::{Moved, ThreadScan};
use crate::model::vocabulary::frame::{Ns, RawFrame};
use crate::process::memory::Memory;
use crate::process::target::{AttachError, Target};
use crate::process::threads::Descriptors;
use crate::runtimes::go::labels::running::RunningLabels;
use crate::unwinder::Unwinder;

/// A process under observation.
pub struct Process {
    pub target: Arc<Target>,
    pub scan: ThreadScan,
    pub stacks: StackReader,
    pub unwinder: Box<dyn Unwinder>,
    pub announced: Announced,
    /// Reads goroutines that wait; `None` in it: there are none to read.
    pub goroutines: Option<Option<Goroutines>>,
    /// Labels of the goroutines that its threads execute.
    pub labels: RunningLabels,
    /// The frame that carries those of the sample that is walked next.
    pub labels_of_sample: Option<RawFrame>,
    pub exec_detector: ExecDetector,
    pub names: RuntimeThreadNames,
    pub blockers: Blockers,
    /// For the backend `ptrace`.
    pub stopper: Option<Stopper>,
    /// Threads that were sampled, where one stack of each is wanted.
    pub sampled: FxHashSet<u32>,
    /// Threads whose counters changed in this scan.
    pub moved: Vec<Moved>,
    /// The kernel lets us read stacks of its threads.
    pub readable: bool,
    /// Why access ended at an exec. Since then only its states are reported.
    pub refusal: Option<String>,
    pub ended: Option<Ended>,
    /// Its clock has been read since the first observation of its threads.
    pub has_clock_reading: bool,
    /// A program that sampletop started, which has yet to exec.
    pub before_exec: bool,
}

/// The process has exited, and its exit has yet to be sent.
#[derive(Clone, Copy)]
pub struct Ended {
    /// Last value of its CPU clock: a zombie still has one.
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
        // In this order: the permission is that of the program at this point, and later execs are
        // detected.
        let exec_detector = ExecDetector::new(pid);
        target.still_permitted()?;
        let mut process = Process {
            target,
            scan,
            stacks: StackReader::new(Memory::new(pid)),
            unwinder: (walkers.walk_copied)(pid),
            announced: Announced::default(),
            goroutines: None,
            labels: RunningLabels::new(Memory::new(pid), walkers.names.clone()),
            labels_of_sample: None,
            exec_detector,
            names: RuntimeThreadNames::default(),
            blockers: Blockers::new(pid),
            stopper: None,
            sampled: FxHashSet::default(),
            moved: Vec::new(),
            readable: false,
            refusal: None,
            ended: None,
            has_clock_reading: false,
            before_exec: false,
        };
        process.check_readable();
        process.accept_mappings();
        Ok(process)
    }

    /// Accepts the present mappings as known; later ones replace them.
    pub fn accept_mappings(&mut self) {
        if self.gives_stacks() {
            self.unwinder.revalidate(false, false);
        }
    }

    /// Asks the kernel whether stacks can be read.
    pub fn check_readable(&mut self) {
        self.readable = stacks_readable(&self.target, self.scan.tasks());
    }

    pub fn pid(&self) -> u32 {
        self.target.pid()
    }

    /// Returns whether the backend may take stacks of this process.
    pub fn gives_stacks(&self) -> bool {
        self.readable && self.refusal.is_none()
    }
}
