//! Watched processes, from attaching to the last snapshot.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::choosing::{Choosing, Following, List};
use super::source::NAMES_WITHIN;
use crate::capture::governor::pace::Overhead;
use crate::capture::{Control, Plan, Sampler, Status};
use crate::clock;
use crate::config::{Config, TargetSpec, Wanted};
use crate::demo;
use crate::exit_code::{ExitCode, Failure};
use crate::model::facts::recorder::Limits;
use crate::model::facts::snapshot::{self, Session, Snapshot};
use crate::model::vocabulary::frame::Ns;
use crate::process::host_load::HostMeter;
use crate::process::launch::{Launch, LaunchOutput};
use crate::process::mapped_files::Files;
use crate::process::target::Target;
use crate::reducer::{Asker, Conditions, Inputs, Publication, Reducer};
use crate::runtimes::frame_and_thread_names::Names;
use crate::symbols::Symbols;

/// Maximum bytes of history.
const HISTORY_BYTES: usize = 64 << 20;
/// Pause before waiting again, after a process appeared and exited before it could be attached to.
pub const AGAIN: Duration = Duration::from_millis(500);
/// Maximum bytes kept of the user's target specification.
const TITLE_MAX: usize = 200;

/// The processes to watch, found and attached to.
pub struct Aim {
    choosing: Choosing,
    /// Empty while they are awaited.
    targets: Vec<Arc<Target>>,
    /// The COMMAND or demo child, if sampletop started it; it is held before its exec.
    launch: Option<Launch>,
    /// The file that receives the COMMAND's output.
    output: Option<PathBuf>,
    is_demo: bool,
    wanted: snapshot::Wanted,
    waits_for: String,
}

impl Aim {
    /// Attaches to the processes, or starts the command.
    pub fn take(config: &Config, spec: &TargetSpec) -> Result<Aim, Failure> {
        let mut output = None;
        let launch = match spec {
            TargetSpec::Processes(_) => None,
            TargetSpec::Command(command) => {
                Some(start(command, command_output(config), &mut output)?)
            }
            TargetSpec::Demo { workload } => Some(demo::launch(*workload, LaunchOutput::Null)?),
        };
        let wanted = match (spec, &launch) {
            (TargetSpec::Processes(wanted), _) => wanted.clone(),
            (_, launch) => Wanted::Pids(launch.iter().map(Launch::pid).collect()),
        };
        let (title, kind) = match &wanted {
            Wanted::Pids(_) => (String::new(), ""),
            Wanted::Name(pattern) => (pattern.to_string(), "called"),
            Wanted::Pidfile(path) => (path.to_string_lossy().into_owned(), "whose number is in"),
            Wanted::Unit(name) => (name.clone(), "of the unit"),
            Wanted::Cgroup(path) => (path.to_string_lossy().into_owned(), "in the control group"),
        };
        let title = crate::model::vocabulary::text::clean(&title, TITLE_MAX);
        let waits_for = format!("waiting for a process {kind} {title}");
        let title = Arc::from(&*title);
        let waits = wanted.waits();
        let mut choosing = Choosing::new(wanted, config.subprocesses);
        let targets = choosing.first()?;
        if let Some(launch) = &launch {
            // While the child is held, /proc shows sampletop's own command line.
            choosing.list().name(launch.pid(), launch.command_line());
        }
        let is_demo = matches!(spec, TargetSpec::Demo { .. });
        Ok(Aim {
            choosing,
            targets,
            launch,
            output,
            is_demo,
            wanted: snapshot::Wanted { title, waits },
            waits_for,
        })
    }

    /// Returns whether processes that appear later are watched too.
    pub fn waits(&self) -> bool {
        self.wanted.waits
    }

    /// Returns what is awaited, while there is no process to watch.
    pub fn waits_for(&self) -> Option<String> {
        self.targets.is_empty().then(|| self.waits_for.clone())
    }

    /// Sleeps until there is a process to watch.
    pub fn wait(&mut self) -> Result<(), Failure> {
        if self.targets.is_empty() {
            self.targets = self.choosing.wait()?;
        }
        Ok(())
    }
}

/// Processes under observation, and the threads that observe them.
pub struct Watch {
    /// Dropped first: it passes new processes to the sampler.
    following: Following,
    sampler: Sampler,
    reducer: Reducer,
    /// The COMMAND or demo child, if sampletop started it.
    launch: Option<Launch>,
    output: Option<PathBuf>,
    is_demo: bool,
    stopped: Arc<AtomicBool>,
    list: List,
    files: Files,
}

impl Watch {
    /// Begins to sample; a held command proceeds to its exec once capture is open.
    pub fn begin(
        config: &Config,
        aim: Aim,
        publication: Option<Publication>,
    ) -> Result<Watch, Failure> {
        let Aim { choosing, targets, launch, output, is_demo, wanted, .. } = aim;
        let files = Files::default();
        let symbols = Symbols::start(files.clone());
        let used_ns: Arc<AtomicU64> = Arc::default();
        let plan = Plan {
            choice: config.sampling.capture,
            unwinder: config.sampling.unwinder,
            interval: config.sampling.interval,
            own_child: launch.is_some(),
            outlasts: wanted.waits,
            once: matches!(config.mode, crate::config::Mode::Dump { .. }),
            overhead: config
                .sampling
                .max_overhead
                .map(|percent| Overhead { percent, reducer_ns: used_ns.clone() }),
        };
        let cores_milli = targets.iter().map(|target| target.cores_allowed()).max().unwrap_or(0);
        let names = Names::new(config.sampling.source_maps);
        let attached = clock::monotonic();
        let (sampler, ring) = Sampler::start(targets, files.clone(), names.clone(), plan)?;
        // The time before this is start-up, not the target's.
        let session = session_facts(config, cores_milli, wanted, sampler.began());
        let startup_ns = sampler.began().saturating_sub(attached);
        let stopped = Arc::new(AtomicBool::new(false));
        let reducer = Reducer::start(Inputs {
            rings: vec![ring],
            symbols,
            names: names.clone(),
            session,
            startup_ns,
            limits: Limits { history_bytes: HISTORY_BYTES, ..Limits::default() },
            conditions: conditions(
                sampler.status_reader(),
                choosing.list(),
                names,
                Arc::clone(&stopped),
            ),
            publication,
            used_ns,
        })
        .map_err(no_thread)?;
        let list = choosing.list();
        let following = choosing.follow(sampler.controller()).map_err(no_thread)?;
        let mut launch = launch;
        if let Some(launch) = &mut launch {
            launch.go()?;
            sampler.control(Control::Started);
        }
        Ok(Watch { following, sampler, reducer, launch, output, is_demo, stopped, list, files })
    }

    /// Returns the file that receives the COMMAND's output, if it is one.
    pub fn output(&self) -> Option<PathBuf> {
        self.output.clone()
    }

    /// Returns the files that the processes have mapped.
    pub fn files(&self) -> Files {
        self.files.clone()
    }

    /// Returns a handle for a thread that may wait for names.
    pub fn asker(&self) -> Option<Asker> {
        self.reducer.asker()
    }

    /// Returns the time since the first observation.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(clock::monotonic().saturating_sub(self.sampler.began()))
    }

    pub fn set_interval(&self, interval: Duration) {
        self.sampler.control(Control::Interval(interval));
    }

    pub fn pause(&self, pause: bool) {
        self.stopped.store(pause, Ordering::Relaxed);
        self.sampler.control(if pause { Control::Pause } else { Control::Resume });
    }

    pub fn use_ptrace(&self) {
        self.sampler.control(Control::Use(crate::config::CaptureChoice::Ptrace));
    }

    pub fn status(&self) -> Status {
        self.sampler.status()
    }

    /// Returns a snapshot of this moment; waits up to `timeout` for names that are still being
    /// loaded.
    pub fn snapshot(&self, timeout: Duration) -> Option<Arc<Snapshot>> {
        self.reducer.snapshot(timeout)
    }

    /// Does the same and starts the next snapshot: later observations go there.
    pub fn cut(&self) -> Option<Arc<Snapshot>> {
        self.reducer.cut(NAMES_WITHIN)
    }

    /// Returns the watched processes that have not exited.
    pub fn living(&self) -> Vec<snapshot::Target> {
        self.list.now()
    }

    /// Returns, once, a channel that closes when all targets have exited.
    pub fn take_end(&mut self) -> Option<Receiver<()>> {
        self.sampler.take_end()
    }

    /// Stops sampling without a last snapshot. Ends or leaves the child as [`Watch::finish`] does.
    pub fn end(mut self, leave: bool) -> Option<ExitCode> {
        let is_demo = self.is_demo;
        let launch = self.launch.take();
        drop(self);
        launch.and_then(|launch| end_child(launch, leave && !is_demo, is_demo))
    }

    /// Stops sampling, waits for names, then ends the child (`leave`: a COMMAND goes on, a demo
    /// never does). Returns the last snapshot and the child's exit code. The order matters: the
    /// files of an exited child can no longer be found.
    pub fn finish(mut self, leave: bool) -> (Option<Arc<Snapshot>>, Option<ExitCode>) {
        let launch = self.launch.take();
        let Watch { following, sampler, reducer, is_demo, .. } = self;
        drop(following);
        drop(sampler);
        let snapshot = reducer.finish(NAMES_WITHIN);
        (snapshot, launch.and_then(|launch| end_child(launch, leave && !is_demo, is_demo)))
    }
}

/// Returns the child's exit code if it has exited by itself; otherwise ends it or leaves it
/// running.
fn end_child(mut launch: Launch, leave: bool, is_demo: bool) -> Option<ExitCode> {
    if let Some(status) = launch.try_wait() {
        if is_demo {
            // A demo runs until it is ended, so its exit needs an explanation. Its own output was
            // discarded.
            eprintln!(
                "sampletop: the demo could not start all of its 51 threads, or was ended from outside ({status}); check the limits of threads, descriptors and memory (`ulimit -u -n -v`, or the container's)"
            );
        }
        return Some(status_code(status));
    }
    if leave {
        launch.leave();
    } else {
        launch.end();
    }
    None
}

/// Returns the exit code by the shell's convention.
fn status_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).map_or(ExitCode::Failed, ExitCode::OfCommand)
}

/// Decides where a COMMAND's output goes: to a named file if the live view needs the terminal,
/// otherwise through.
fn command_output(config: &Config) -> LaunchOutput {
    match (&config.mode, config.output.secure) {
        (crate::config::Mode::Live, true) => LaunchOutput::Null,
        (crate::config::Mode::Live, false) => LaunchOutput::File(output_path(std::process::id())),
        _ => LaunchOutput::Inherit,
    }
}

/// Starts a COMMAND. Renames its output file by its pid, which is known by now.
fn start(
    command: &[OsString],
    to: LaunchOutput,
    output: &mut Option<PathBuf>,
) -> Result<Launch, Failure> {
    let file = match &to {
        LaunchOutput::File(path) => Some(path.clone()),
        _ => None,
    };
    let launch = Launch::prepare(command, to)?;
    *output = file.map(|first| {
        let name = output_path(launch.pid());
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(rustix::fs::CWD, &first, rustix::fs::CWD, &name, flags) {
            Ok(()) => name,
            // Such a file exists already, or the file system cannot rename without replacing.
            Err(_) => first,
        }
    });
    Ok(launch)
}

/// Returns `sampletop-output-PID.txt` in the current directory.
fn output_path(pid: u32) -> PathBuf {
    PathBuf::from(format!("sampletop-output-{pid}.txt"))
}

fn no_thread(error: std::io::Error) -> Failure {
    Failure::failed(format!("cannot start a thread: {error}"))
}

fn session_facts(
    config: &Config,
    cores_milli: u64,
    wanted: snapshot::Wanted,
    started: Ns,
) -> Session {
    let ago = clock::monotonic().saturating_sub(started);
    let realtime = clock::realtime();
    let uname = rustix::system::uname();
    Session {
        version: env!("CARGO_PKG_VERSION").into(),
        host: crate::model::vocabulary::text::clean(&uname.nodename().to_string_lossy(), 256)
            .into_owned(),
        kernel: crate::model::vocabulary::text::clean(&uname.release().to_string_lossy(), 256)
            .into_owned(),
        cores_milli,
        started,
        started_unix_ns: i128::from(realtime) - i128::from(ago),
        interval_ns: config.sampling.interval.as_nanos() as u64,
        max_overhead_percent: config.sampling.max_overhead,
        wanted,
    }
}

fn conditions(
    status: impl Fn() -> Status + Send + 'static,
    list: List,
    names: Names,
    stopped: Arc<AtomicBool>,
) -> Box<dyn FnMut() -> Conditions + Send> {
    let mut host = HostMeter::default();
    Box::new(move || {
        let status = status();
        let targets = list.targets(|pid| names.runtime(pid));
        let living = targets.iter().filter(|target| target.ended.is_none());
        let living: Vec<u32> = living.map(|target| target.pid).collect();
        let notices: Vec<String> =
            list.notice().into_iter().chain(status.notice).chain(names.notice()).collect();
        Conditions {
            capture: status.backend.as_str().into(),
            notice: (!notices.is_empty()).then(|| notices.join("; ").into()),
            kernel_visible: status.kernel_visible,
            host: host.load(&living),
            targets,
            stopped: stopped.load(Ordering::Relaxed),
            interval_ns: status.interval_asked,
        }
    })
}
