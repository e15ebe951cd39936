//! Takes stacks: one sampler thread for all targets, the backends, the tick schedule, and the event
//! ring.

pub mod backend;
pub mod bpf;
mod cpus;
pub mod event_ring;
pub mod exec_detector;
pub mod governor;
pub mod kernel_ring;
pub mod perf;
pub mod ptrace;
mod sampler;
pub mod schedule;
pub mod stack_reader;
pub mod thread_scan;
pub mod tick_interval;

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::EventfdFlags;

use crate::capture::governor::pace::Overhead;
use crate::capture::sampler::{Core, Parts};
use crate::clock::monotonic;
use crate::config::{CaptureChoice, UnwinderChoice};
use crate::model::vocabulary::frame::Ns;
use crate::process::mapped_files::Files;
use crate::process::memory::Memory;
use crate::process::privileges;
use crate::process::target::{AttachError, Target};
use crate::runtimes::{self, frame_and_thread_names::Names};
use crate::unwinder::Unwinder;
use crate::unwinder::framehop::FramehopUnwinder;
#[cfg(feature = "libunwind")]
use crate::unwinder::libunwind::LibunwindUnwinder;

/// Settings of a sampler.
#[derive(Clone, Debug)]
pub struct Plan {
    pub choice: CaptureChoice,
    pub unwinder: UnwinderChoice,
    pub interval: Duration,
    /// The target is a program that sampletop started: [`CaptureChoice::Auto`] may take `ptrace`.
    pub own_child: bool,
    /// Keep running after all processes have exited, because others may be added.
    pub outlasts: bool,
    /// Limit of sampletop's own CPU use, kept by longer intervals.
    pub overhead: Option<Overhead>,
    /// Take one stack of each thread, quickly. The kernel samples at a tenth of the interval.
    /// Threads that wait for a core are read too, where the backend can. No thread is stopped a
    /// second time.
    pub once: bool,
}

/// Commands to a running sampler. Each takes effect at once.
#[derive(Clone, Debug)]
pub enum Control {
    /// Sample this process too.
    Add(Arc<Target>),
    Interval(Duration),
    /// Take no observations until [`Control::Resume`]. The time between is reported as a gap.
    Pause,
    Resume,
    Use(CaptureChoice),
    /// A child that sampletop had kept from its exec now continues. It is observed at once, before
    /// the next tick.
    Started,
    Stop,
}

/// State of the sampler, for the user.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The backend as the header names it: `bpf`, `perf`, `cpu-only`, `states`, `ptrace (stops
    /// threads)`.
    pub backend: String,
    /// One sentence for the user: what is missing, or why the backend changed.
    pub notice: Option<String>,
    /// The backend takes no on-CPU stacks, and `ptrace` would be permitted.
    pub ptrace_would_help: bool,
    /// False if the kernel forbids sampling in kernel mode. System time has no on-CPU samples then.
    pub kernel_visible: bool,
    /// The interval asked for; each tick carries the interval in force.
    pub interval_asked: Ns,
}

/// Makes an unwinder for the program that a process runs now. Called again after each exec.
pub type MakeUnwinder = Box<dyn FnMut(u32) -> Box<dyn Unwinder> + Send>;

/// Unwinders of a sampler.
pub struct Walkers {
    /// Walks copied stacks: of blocked threads, and of running ones that perf or ptrace sampled.
    pub walk_copied: MakeUnwinder,
    /// Walks threads while `ptrace` keeps them stopped, in place of `walk_copied`.
    pub walk_stopped: Option<ptrace::MakeWalkStopped>,
    /// Names that runtimes give.
    pub names: Names,
}

/// Size of the ring between sampler and reducer, 8-byte words: 4 MiB. That holds one second of 100
/// threads which all run at 100 Hz.
const RING_WORDS: usize = 512 << 10;

/// Maximum wait for the first tick, ms: a read of the target's memory may block. The first
/// observation is the start of elapsed time.
const MAX_FIRST_TICK_WAIT: Duration = Duration::from_millis(500);

/// Sends commands to a sampler, from any thread.
#[derive(Clone)]
pub struct Controller {
    control: Sender<Control>,
    wake: Arc<OwnedFd>,
}

impl Controller {
    /// Sends a command. Does nothing if the sampler has ended.
    pub fn control(&self, control: Control) {
        let _ = self.control.send(control);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

/// A running sampler. Dropping it stops and joins its thread.
pub struct Sampler {
    controller: Controller,
    began: Ns,
    end: Option<Receiver<()>>,
    status: Arc<Mutex<Status>>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts a sampler as [`Sampler::start_with`], with the unwinder that `plan` names. Mapped
    /// files are registered in `files`.
    pub fn start(
        targets: Vec<Arc<Target>>,
        files: Files,
        names: Names,
        plan: Plan,
    ) -> Result<(Sampler, event_ring::Reader), AttachError> {
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
        let of_runtimes = names.clone();
        let walk_copied: MakeUnwinder = Box::new(move |pid| {
            let unwinder = FramehopUnwinder::new(Memory::new(pid), files.clone(), pid);
            let detect = runtimes::detect(pid, of_runtimes.clone(), files.clone());
            Box::new(unwinder.with_runtimes(detect))
        });
        Sampler::start_with(targets, plan, Walkers { walk_copied, walk_stopped, names })
    }

    /// Opens a backend, then samples on a new thread until stopped, or until all targets have
    /// exited. Fails if no target can be observed, or if no backend that `plan` allows can be
    /// opened.
    pub fn start_with(
        targets: Vec<Arc<Target>>,
        plan: Plan,
        walkers: Walkers,
    ) -> Result<(Sampler, event_ring::Reader), AttachError> {
        let internal = |what: &str, error: &dyn std::fmt::Display| AttachError::Internal {
            what: format!("cannot start the sampler: {what}: {error}"),
        };
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| internal("eventfd", &e))?;
        let wake = Arc::new(wake);
        let status = Arc::new(Mutex::new(Status::default()));
        let (writer, reader) = event_ring::channel(RING_WORDS);
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
                // Disconnects the receiver when this thread ends.
                let _running: Sender<()> = running;
                // Capabilities beyond the caller's rights serve this thread only. Without them a
                // weaker backend is taken.
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
        let began =
            answer.recv_timeout(MAX_FIRST_TICK_WAIT).ok().and_then(Result::ok).unwrap_or(at);
        let controller = Controller { control, wake };
        Ok((Sampler { controller, began, end: Some(end), status, thread: Some(thread) }, reader))
    }

    /// Sends a command, see [`Controller::control`].
    pub fn control(&self, control: Control) {
        self.controller.control(control);
    }

    pub fn controller(&self) -> Controller {
        self.controller.clone()
    }

    /// Returns the time of the first observation.
    pub fn began(&self) -> Ns {
        self.began
    }

    /// Returns, once, a receiver that disconnects when the sampler has ended by itself.
    pub fn take_end(&mut self) -> Option<Receiver<()>> {
        self.end.take()
    }

    pub fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Returns a reader of the status for another thread; it may outlive the sampler.
    pub fn status_reader(&self) -> impl Fn() -> Status + Send + 'static {
        let status = Arc::clone(&self.status);
        move || status.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Returns true once the sampler has ended by itself: all targets have exited, and all events
    /// are in the ring.
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
