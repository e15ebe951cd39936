//! Takes stacks: one sampler thread for all targets, one file per way, the schedule, the ring.

pub mod backend;
pub mod blocked;
pub mod bpf;
mod cpus;
pub mod governor;
pub mod kernel_ring;
pub mod parked;
pub mod perf;
pub mod program;
pub mod ptrace;
pub mod ring;
mod sampler;
pub mod schedule;
mod standstill;
pub mod thread_scan;

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::EventfdFlags;

use crate::capture::governor::Overhead;
use crate::capture::sampler::{Core, Parts};
use crate::clock::monotonic;
use crate::config::{CaptureChoice, UnwinderChoice};
use crate::model::vocabulary::frame::Ns;
use crate::process::files::Files;
use crate::process::memory::Memory;
use crate::process::privileges;
use crate::process::target::{AttachError, Target};
use crate::runtimes::{self, frame_and_thread_names::Names};
use crate::unwinder::Unwinder;
use crate::unwinder::framehop::FramehopUnwinder;
#[cfg(feature = "libunwind")]
use crate::unwinder::libunwind::LibunwindUnwinder;

/// How to sample.
#[derive(Clone, Debug)]
pub struct Plan {
    pub choice: CaptureChoice,
    pub unwinder: UnwinderChoice,
    pub interval: Duration,
    /// The target is a program that sampletop started: [`CaptureChoice::Auto`] may take `ptrace`.
    pub own_child: bool,
    /// Go on when all processes have ended: others may come.
    pub outlasts: bool,
    /// Keep what sampletop uses itself below this, by longer intervals.
    pub overhead: Option<Overhead>,
    /// One stack of each thread is wanted, and soon: the kernel samples at a tenth of the interval,
    /// and threads that wait for a core are read as they lie, where that is possible. A thread is
    /// not stopped a second time.
    pub once: bool,
}

/// What the sampler can be told while it runs. Takes effect at once.
#[derive(Clone, Debug)]
pub enum Control {
    /// Look at this process, too.
    Add(Arc<Target>),
    Interval(Duration),
    /// No looks until [`Control::Resume`]; the time between is reported as a gap.
    Pause,
    Resume,
    Use(CaptureChoice),
    /// A child of ours that was held has gone on to its exec: it is looked at now, not with the
    /// next tick.
    Started,
    Stop,
}

/// How the sampler fares.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The way of capture as the header names it: `bpf`, `perf`, `cpu-only`, `states`, `ptrace
    /// (stops threads)`.
    pub backend: String,
    /// One sentence for the user: a shortfall, or why the way changed.
    pub notice: Option<String>,
    /// No on-CPU stacks now, and `ptrace` would give them.
    pub ptrace_would_help: bool,
    /// False where the kernel forbids sampling in kernel mode: system time has no on-CPU samples
    /// then.
    pub kernel_visible: bool,
    /// The interval asked for; the one in force comes with each tick.
    pub interval_asked: Ns,
}

/// Makes an unwinder for the program that a process runs now; called again after each exec.
pub type MakeUnwinder = Box<dyn FnMut(u32) -> Box<dyn Unwinder> + Send>;

/// How stacks are walked.
pub struct Walkers {
    /// Copied stacks: of threads that are blocked, and of those that perf or a stop caught.
    pub walk_copied: MakeUnwinder,
    /// Instead of that, threads that `ptrace` holds.
    pub walk_stopped: Option<ptrace::MakeWalkStopped>,
}

/// Words of the ring between sampler and reducer: 4 MiB, a second of 100 threads that all move at
/// 100 Hz.
const RING_WORDS: usize = 512 << 10;

/// How long the first round is waited for, whose first observation begins elapsed time: the
/// target's memory may block.
const FIRST_ROUND: Duration = Duration::from_millis(500);

/// Tells a sampler what to do, from any thread.
#[derive(Clone)]
pub struct Controller {
    control: Sender<Control>,
    wake: Arc<OwnedFd>,
}

impl Controller {
    /// Takes effect at once; a sampler that has ended needs no telling.
    pub fn control(&self, control: Control) {
        let _ = self.control.send(control);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

/// A running sampler; stops and is joined when dropped.
pub struct Sampler {
    controller: Controller,
    began: Ns,
    end: Option<Receiver<()>>,
    status: Arc<Mutex<Status>>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// As [`Sampler::start_with`], walking by the unwinder that `plan` names; what it meets is
    /// registered in `files`.
    pub fn start(
        targets: Vec<Arc<Target>>,
        files: Files,
        names: Names,
        plan: Plan,
    ) -> Result<(Sampler, ring::Reader), AttachError> {
        #[cfg(feature = "libunwind")]
        let walk_stopped = (plan.unwinder == UnwinderChoice::Libunwind).then(|| {
            let files = files.clone();
            let make: ptrace::MakeWalkStopped = Arc::new(move |pid| {
                let mut unwinder = LibunwindUnwinder::new(Memory::new(pid), files.clone(), pid);
                Box::new(move |tid, out| unwinder.walk_stopped(tid, out))
            });
            make
        });
        #[cfg(not(feature = "libunwind"))]
        let walk_stopped = None;
        let walk_copied: MakeUnwinder = Box::new(move |pid| {
            let unwinder = FramehopUnwinder::new(Memory::new(pid), files.clone(), pid);
            Box::new(unwinder.with_runtimes(runtimes::detect(pid, names.clone())))
        });
        Sampler::start_with(targets, plan, Walkers { walk_copied, walk_stopped })
    }

    /// Opens a way of capture, then samples on a thread of its own until told to stop or all
    /// targets have ended. Fails when none of them can be looked at, or no way that `plan` allows
    /// can be opened.
    pub fn start_with(
        targets: Vec<Arc<Target>>,
        plan: Plan,
        walkers: Walkers,
    ) -> Result<(Sampler, ring::Reader), AttachError> {
        let internal = |what: &str, error: &dyn std::fmt::Display| AttachError::Internal {
            what: format!("cannot start the sampler: {what}: {error}"),
        };
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| internal("eventfd", &e))?;
        let wake = Arc::new(wake);
        let status = Arc::new(Mutex::new(Status::default()));
        let (writer, reader) = ring::channel(RING_WORDS);
        let (control, orders) = channel();
        let (opened, answer) = channel();
        let (running, end) = channel();
        let parts = Parts {
            targets,
            plan,
            walkers,
            writer,
            control: orders,
            wake: wake.clone(),
            status: status.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("sampler".into())
            .spawn(move || {
                // Hangs up with this thread.
                let _running: Sender<()> = running;
                // What it was given beyond its caller's rights is for this thread. Without, it
                // takes a lesser way.
                let _ = privileges::raise();
                match Core::open(parts) {
                    Ok(mut core) => {
                        let _ = opened.send(Ok(monotonic()));
                        let _ = opened.send(Ok(core.begin()));
                        core.run();
                    }
                    Err(error) => {
                        let _ = opened.send(Err(error));
                    }
                }
            })
            .map_err(|e| internal("thread", &e))?;
        let at = answer.recv().map_err(|e| internal("its thread ended", &e))??;
        let began = answer.recv_timeout(FIRST_ROUND).ok().and_then(Result::ok).unwrap_or(at);
        let controller = Controller { control, wake };
        Ok((Sampler { controller, began, end: Some(end), status, thread: Some(thread) }, reader))
    }

    /// See [`Controller::control`].
    pub fn control(&self, control: Control) {
        self.controller.control(control);
    }

    pub fn controller(&self) -> Controller {
        self.controller.clone()
    }

    /// Time of the first observation.
    pub fn began(&self) -> Ns {
        self.began
    }

    /// Hangs up when the sampler has ended: all targets have, and no other may come. Once.
    pub fn take_end(&mut self) -> Option<Receiver<()>> {
        self.end.take()
    }

    pub fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Reads the status from another thread, for as long as that wants.
    pub fn status_reader(&self) -> impl Fn() -> Status + Send + 'static {
        let status = Arc::clone(&self.status);
        move || status.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// True once the sampler has ended by itself: the target is gone and everything is in the ring.
    pub fn finished(&self) -> bool {
        self.thread.as_ref().is_none_or(|thread| thread.is_finished())
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.control(Control::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
