//! Starts COMMAND (or the built-in workload) as a child that is stopped just before its exec, so
//! that capture is open before its first instruction runs.
//!
//! The child is forked directly. `std::process::Command` returns only after the exec, so it would
//! need a helper thread to wait in. But the kernel ties `PR_SET_PDEATHSIG` to the *thread* that
//! forked: the workload would die when the helper thread ends. Call [`Launch::prepare`] from a
//! thread that lives as long as the session, and before descriptor limits are raised (the child
//! inherits them).

use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::config::SECRETS;
use crate::exit_code::{ExitCode, Failure};
use crate::model::vocabulary::text;

use super::forked_child::{self, ChildOutput, ChildPlan, Stage, read_report};

/// Time that `end` waits after SIGTERM before it sends SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Maximum bytes kept of a command line.
const COMMAND_LINE_CAP: usize = 1024;

/// Where the command's stdout and stderr go. Its stdin is /dev/null, except with `Inherit`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LaunchOutput {
    /// A new file (mode 0600) that must not exist yet. Nothing is overwritten and no link is
    /// followed.
    File(PathBuf),
    /// sampletop's own stdin, stdout and stderr.
    Inherit,
    Null,
    /// [`Launch::take_output`] reads it.
    Pipe,
}

/// Why a command could not be started. `Display` is one sentence with the fix.
#[derive(Debug)]
pub enum LaunchError {
    NotFound {
        command: PathBuf,
    },
    NotExecutable {
        command: PathBuf,
        why: io::Error,
    },
    /// The file for the command's output could not be created.
    Output {
        path: PathBuf,
        why: io::Error,
    },
    /// A failure of sampletop itself; `what` names the failed step.
    Failed {
        what: &'static str,
        why: io::Error,
    },
}

impl LaunchError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            LaunchError::NotFound { .. } => ExitCode::CommandNotFound,
            LaunchError::NotExecutable { .. } => ExitCode::NotExecutable,
            LaunchError::Output { .. } | LaunchError::Failed { .. } => ExitCode::LaunchFailed,
        }
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Failure {
        Failure::new(error.exit_code(), error.to_string())
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchError::NotFound { command } => {
                write!(f, "command not found: {}; give its path, or check PATH", command.display())
            }
            LaunchError::NotExecutable { command, why } => {
                write!(
                    f,
                    "cannot execute {} ({why}); check that it is a program and `chmod +x` it",
                    command.display()
                )
            }
            LaunchError::Output { path, why } => {
                write!(
                    f,
                    "cannot create {} for the command's output ({why}); choose another place",
                    path.display()
                )
            }
            LaunchError::Failed { what, why } => {
                write!(f, "cannot start the command: {what} failed ({why})")
            }
        }
    }
}

impl std::error::Error for LaunchError {}

/// A child process: it waits before its exec until [`Launch::go`], and runs afterwards. Dropping it
/// ends a child that still waits and leaves a running one alone.
pub struct Launch {
    pid: Pid,
    /// Readable only once the whole process has ended. `waitpid` is called only then. An earlier
    /// call would consume the stops of a traced child, which the sampler thread waits for (`ptrace`
    /// backend).
    pidfd: OwnedFd,
    command: PathBuf,
    command_line: String,
    /// Writing one byte lets the child exec; closing it ends the child. `None` once released.
    gate: Option<File>,
    /// Closed by the exec; an exec that fails writes its errno.
    report: File,
    output: Option<File>,
    status: Option<ExitStatus>,
}

impl Launch {
    /// Forks `command` (a program, looked up in PATH as a shell would, and its arguments) in a
    /// session of its own, with the caller's rights. It waits before its exec.
    pub fn prepare(command: &[OsString], output: LaunchOutput) -> Result<Launch, LaunchError> {
        let program = command.first().ok_or(LaunchError::Failed {
            what: "reading the command",
            why: io::ErrorKind::InvalidInput.into(),
        })?;
        Self::prepare_with(program, command, output, false)
    }

    /// As [`Launch::prepare`], for our own program: with an `argv[0]` that differs from its path,
    /// and without the capabilities that the file may have (`setcap`).
    pub fn prepare_own(
        program: &OsStr,
        argv: &[OsString],
        output: LaunchOutput,
    ) -> Result<Launch, LaunchError> {
        Self::prepare_with(program, argv, output, true)
    }

    fn prepare_with(
        program: &OsStr,
        argv: &[OsString],
        output: LaunchOutput,
        gains_nothing: bool,
    ) -> Result<Launch, LaunchError> {
        let path = find(program)?;
        let c_path = c_string(path.as_os_str())?;
        let c_name = c_string(path.file_name().unwrap_or(path.as_os_str()))?;
        let c_args = argv.iter().map(|arg| c_string(arg)).collect::<Result<Vec<_>, _>>()?;
        let mut c_argv: Vec<_> = c_args.iter().map(|arg| arg.as_ptr()).collect();
        c_argv.push(std::ptr::null());
        let environment = environment()?;
        let mut c_environment: Vec<_> =
            environment.iter().map(|variable| variable.as_ptr()).collect();
        c_environment.push(std::ptr::null());
        let file = match &output {
            LaunchOutput::File(path) => Some(c_string(path.as_os_str())?),
            _ => None,
        };

        let null = File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .map_err(failed("opening /dev/null"))?;
        let (gate_read, gate) = pipe()?;
        let (report, report_write) = pipe()?;
        let (out_read, out_write) = match output {
            LaunchOutput::Pipe => pipe().map(|(r, w)| (Some(r), Some(w)))?,
            _ => (None, None),
        };
        let plan = ChildPlan {
            path: &c_path,
            name: &c_name,
            argv: &c_argv,
            environment: &c_environment,
            stdin: (output != LaunchOutput::Inherit).then_some(null.as_raw_fd()),
            output: match (&output, &out_write) {
                (LaunchOutput::Inherit, _) => ChildOutput::Inherit,
                (LaunchOutput::Pipe, Some(pipe)) => ChildOutput::Descriptor(pipe.as_raw_fd()),
                _ => ChildOutput::Descriptor(null.as_raw_fd()),
            },
            file: file.as_deref(),
            owner: sudo_owner(),
            gate: gate_read.as_raw_fd(),
            gate_write: gate.as_raw_fd(),
            report: report_write.as_raw_fd(),
            privileged: forked_child::privileged(),
            gains_nothing,
        };
        let pid = forked_child::fork(&plan).map_err(failed("fork"))?;
        // Closes the child's ends, so that its death closes the report pipe.
        drop((gate_read, report_write, out_write));
        let pidfd = match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(e) => {
                drop(gate); // the child sees the end of its gate and exits
                let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
                return Err(LaunchError::Failed { what: "pidfd_open (Linux 5.3)", why: e.into() });
            }
        };
        let words: Vec<_> = argv.iter().map(|arg| arg.to_string_lossy()).collect();
        let command_line = text::clean(&words.join(" "), COMMAND_LINE_CAP).into_owned();
        let mut launch = Launch {
            pid,
            pidfd,
            command: path,
            command_line,
            gate: Some(gate),
            report,
            output: out_read,
            status: None,
        };
        match read_report(&mut launch.report) {
            Some((Stage::Held, _)) => Ok(launch),
            Some((Stage::Output, why)) => match output {
                LaunchOutput::File(path) => Err(LaunchError::Output { path, why }),
                _ => Err(LaunchError::Failed { what: "redirecting its output", why }),
            },
            Some((stage, why)) => Err(LaunchError::Failed { what: stage.words(), why }),
            None => Err(LaunchError::Failed {
                what: "the new process",
                why: io::ErrorKind::UnexpectedEof.into(),
            }),
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// Returns the path of the program.
    pub fn command(&self) -> &Path {
        &self.command
    }

    /// Returns the command line as one clean line. (Before the exec, /proc shows sampletop's own.)
    pub fn command_line(&self) -> &str {
        &self.command_line
    }

    /// Lets the child exec and waits until it did. A second call does nothing.
    pub fn go(&mut self) -> Result<(), LaunchError> {
        let Some(mut gate) = self.gate.take() else { return Ok(()) };
        gate.write_all(&[1]).map_err(failed("releasing it"))?;
        match read_report(&mut self.report) {
            None => Ok(()), // closed by the exec
            Some((Stage::Exec, why)) if why.kind() == io::ErrorKind::NotFound => {
                Err(LaunchError::NotFound { command: self.command.clone() })
            }
            Some((_, why)) => {
                Err(LaunchError::NotExecutable { command: self.command.clone(), why })
            }
        }
    }

    /// Returns the read end of the command's output, once, with [`LaunchOutput::Pipe`].
    pub fn take_output(&mut self) -> Option<File> {
        self.output.take()
    }

    /// Returns its exit status, or `None` while it runs. Never blocks.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        self.wait(Duration::ZERO)
    }

    /// As [`Launch::try_wait`], waiting up to `limit`.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        if self.status.is_none() && self.has_ended(limit) {
            let waited = rustix::process::waitpid(Some(self.pid), WaitOptions::NOHANG);
            self.status = match waited {
                Ok(Some((_, status))) => Some(ExitStatus::from_raw(status.as_raw())),
                Ok(None) => None,
                // Another waiter consumed it (SIGCHLD ignored by our parent): it has ended, its
                // status is unknown.
                Err(_) => Some(ExitStatus::from_raw(0)),
            };
        }
        self.status
    }

    /// Sends SIGTERM, and SIGKILL two seconds later if the child still runs; only ever to this
    /// child. Returns `None` if it may not be signalled (it changed its user) and runs on.
    pub fn end(&mut self) -> Option<ExitStatus> {
        drop(self.gate.take());
        if let Some(status) = self.try_wait() {
            return Some(status);
        }
        rustix::process::pidfd_send_signal(&self.pidfd, Signal::TERM).ok()?;
        if self.wait(GRACE).is_none() {
            rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL).ok()?;
            // A thread in uninterruptible sleep may outlast even this; the caller must not wait for
            // it.
            self.wait(GRACE);
        }
        self.status
    }

    /// Leaves the child running after sampletop exits. (One that still waits before its exec ends.)
    pub fn leave(self) {}

    fn has_ended(&self, limit: Duration) -> bool {
        let timeout =
            Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, Some(&timeout)))
            .is_ok_and(|n| n > 0)
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        if self.gate.take().is_some() {
            // Not yet started: the closed gate ends it, and nothing it does delays that.
            self.wait(GRACE);
        } else {
            self.try_wait();
        }
    }
}

/// Returns the program's path, with a slash in it.
fn find(program: &OsStr) -> Result<PathBuf, LaunchError> {
    let not_found = || LaunchError::NotFound { command: program.into() };
    if program.is_empty() {
        return Err(not_found());
    }
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return executable(&path).map(|()| path.clone()).map_err(|why| refused(path, why));
    }
    let places = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut first_refusal = None;
    for place in std::env::split_paths(&places) {
        // An empty entry means the current directory.
        let path = if place.as_os_str().is_empty() {
            Path::new(".").join(program)
        } else {
            place.join(program)
        };
        match executable(&path) {
            Ok(()) => return Ok(path),
            Err(why)
                if matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            }
            Err(why) => first_refusal = first_refusal.or(Some(refused(path, why))),
        }
    }
    Err(first_refusal.unwrap_or_else(not_found))
}

fn refused(command: PathBuf, why: io::Error) -> LaunchError {
    match why.kind() {
        io::ErrorKind::NotFound => LaunchError::NotFound { command },
        _ => LaunchError::NotExecutable { command, why },
    }
}

fn executable(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    // access(2) checks for the real user, who is the caller.
    Ok(rustix::fs::access(path, rustix::fs::Access::EXEC_OK)?)
}

/// Returns the child's environment: ours without sampletop's secrets.
fn environment() -> Result<Vec<CString>, LaunchError> {
    let ours = std::env::vars_os().filter(|(name, _)| SECRETS.iter().all(|secret| name != secret));
    ours.map(|(name, value)| c_string(&[name.as_os_str(), &value].join(OsStr::new("=")))).collect()
}

/// Returns the owner of files written under sudo: the user who called it.
fn sudo_owner() -> Option<(u32, u32)> {
    let number = |name| std::env::var(name).ok()?.parse().ok();
    rustix::process::geteuid().is_root().then_some(())?;
    Some((number("SUDO_UID")?, number("SUDO_GID")?))
}

fn c_string(s: &OsStr) -> Result<CString, LaunchError> {
    CString::new(s.as_bytes()).map_err(|_| LaunchError::Failed {
        what: "reading the command",
        why: io::ErrorKind::InvalidInput.into(),
    })
}

fn pipe() -> Result<(File, File), LaunchError> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|e| LaunchError::Failed { what: "pipe", why: e.into() })?;
    Ok((read.into(), write.into()))
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> LaunchError {
    move |why| LaunchError::Failed { what, why }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "asks the C library what the test needs")]
mod tests;
