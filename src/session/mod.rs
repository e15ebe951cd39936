//! Starts, connects and stops the threads; the only module that sees both the sampler and the
//! views.
//!
//! ```text
//! watch    what is watched: targets, sampler, reducer, symbols, and the child if we started it
//! choosing which processes: those that exist, and those that appear
//! live     the live view's loop: keys, signals, snapshots -> app -> tui, and the effects back
//! waiting  what the selected row's threads wait for, found out on its own thread
//! memory   returns freed memory to the kernel
//! saved    profiles in files: keeps the last session's, opens or converts any
//! signals  SIGINT, SIGTERM, SIGHUP as messages
//! service  status messages to systemd
//! ```

mod choosing;
mod live;
mod memory;
mod projecting;
mod saved;
mod service;
mod signals;
mod waiting;
mod watch;

use crate::config::{CaptureChoice, Config, Mode, TargetSpec, Wanted};
use crate::process::{fatal_signals, privileges};
use crate::{doctor, headless};

/// Why a session could not begin: the exit code and one sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub code: i32,
    pub sentence: String,
}

impl Failure {
    pub fn new(code: i32, sentence: impl Into<String>) -> Failure {
        Failure { code, sentence: sentence.into() }
    }
}

impl From<crate::process::target::AttachError> for Failure {
    fn from(error: crate::process::target::AttachError) -> Failure {
        Failure::new(error.exit_code(), error.to_string())
    }
}

impl From<crate::process::launch::LaunchError> for Failure {
    fn from(error: crate::process::launch::LaunchError) -> Failure {
        Failure::new(error.exit_code(), error.to_string())
    }
}

/// Runs what the command line requests; returns the exit code. Errors are printed as one sentence
/// on stderr.
pub fn run(config: Config) -> i32 {
    if config.output.redact.is_some_and(|redact| redact.only_this_run) {
        eprintln!(
            "sampletop: names are replaced under a key of this run alone; SAMPLETOP_REDACT_KEY gives several the same"
        );
    }
    // If this fails, only the second SIGSEGV from outside would end the program. The run can still
    // begin.
    let _ = fatal_signals::catch();
    let outcome = settle_rights().and_then(|()| match config.mode {
        Mode::Live => live::run(&config),
        Mode::Open { ref path, ref given } => {
            live::open(&config, saved::shown(&config, path.as_deref())?, given)
        }
        Mode::Convert { ref path, ref given, max_lines } => {
            saved::convert(&config, saved::shown(&config, path.as_deref())?, given, max_lines)
        }
        Mode::Diff { ref before, ref after, per, ref given } => {
            saved::diff(&config, before, after, per, given)
        }
        Mode::Merge { ref files, ref given, max_lines } => {
            saved::merge(&config, files, given, max_lines)
        }
        // The workload is this process itself; main runs it without a session.
        Mode::Workload { .. } => Err(Failure::new(1, "the built-in workload has no session")),
        Mode::Once { duration } => {
            timed(&config, |run| headless::record(run, &config, Some(duration), None))
        }
        Mode::Record { duration } => {
            let keep = |snapshot: &_| saved::keep(snapshot, &config.settings);
            let keep: Option<headless::Keep<'_>> = (!config.output.secure).then_some(&keep);
            timed(&config, |run| headless::record(run, &config, duration, keep))
        }
        Mode::Report(plan) => timed(&config, |run| headless::report(run, &config, &plan)),
        Mode::Dump { each } => timed(&config, |run| headless::dump(run, &config, each)),
        Mode::Doctor { json } => examine(&config, json),
    });
    outcome.unwrap_or_else(|failure| {
        eprintln!("sampletop: {}", failure.sentence);
        failure.code
    })
}

/// Must run before there is a second thread. All threads act with the caller's rights, except the
/// one that takes stacks.
fn settle_rights() -> Result<(), Failure> {
    if privileges::is_setuid() {
        return Err(Failure::new(
            4,
            "sampletop is installed setuid or setgid, and would show anybody everything; remove that bit (`chmod ug-s`) and run it with sudo",
        ));
    }
    privileges::lower().map_err(|error| {
        Failure::new(
            1,
            format!("sampletop's own capabilities cannot be set aside ({error}); remove them with `setcap -r`"),
        )
    })
}

fn examine(config: &Config, json: bool) -> Result<i32, Failure> {
    let pid = match config.target {
        Some(TargetSpec::Processes(Wanted::Pids(ref pids))) => pids.first().copied(),
        _ => None,
    };
    let answer = doctor::examine(pid, json)?;
    match headless::deliver(answer.text.as_bytes(), config) {
        0 => Ok(answer.exit_code),
        failed => Ok(failed),
    }
}

/// Watches without a screen while `job` runs; returns the exit code.
fn timed(config: &Config, job: impl FnOnce(&mut watch::Timed) -> i32) -> Result<i32, Failure> {
    let reports = matches!(config.mode, Mode::Report(_));
    if let Some(path) = config.output.path.as_deref().filter(|_| !reports) {
        // Before sampling, so that a read-only folder is reported now and not after ten minutes.
        crate::sinks::file::probe(path).map_err(|sentence| Failure::new(1, sentence))?;
    }
    // A service that waits for its target is ready; one that lacks the rights has failed to start.
    let tell = |status: &str| {
        if reports {
            service::tell(status);
        }
    };
    let target =
        config.target.as_ref().ok_or_else(|| Failure::new(2, "name a process with -p PID"))?;
    let watch = loop {
        let mut aim = watch::Aim::take(config, target)?;
        let waits = aim.waits();
        if let Some(what) = aim.waits_for() {
            eprintln!("sampletop: {what} (Ctrl-C ends)");
            tell(&what);
            // Log rotation must not end the program, and there is nothing to report yet. Other
            // signals, such as Ctrl-C, end it.
            let _caught = reports.then(|| {
                signals::Caught::each(signals::REPORTS, |signal| match signals::request(signal) {
                    Some(_) => true,
                    None => std::process::exit(0),
                })
            });
            aim.wait()?;
        }
        match watch::Watch::begin(config, aim, None) {
            // It exited meanwhile.
            Err(failure) if waits && failure.code == 6 => std::thread::sleep(watch::AGAIN),
            other => break other?,
        }
    };
    ask_for_ptrace(config.sampling.capture, &watch)?;
    tell("sampling");
    let mut run = watch::Timed::new(watch, reports);
    let code = job(&mut run);
    Ok(run.end(code))
}

/// Fails where only stopping threads gives stacks of running ones and the user did not ask for
/// that. The live view offers a key instead; a timed run ends here.
fn ask_for_ptrace(choice: CaptureChoice, watch: &watch::Watch) -> Result<(), Failure> {
    let status = watch.status();
    if choice != CaptureChoice::Auto || !status.ptrace_would_help {
        return Ok(());
    }
    let why = status.notice.unwrap_or_else(|| "no stacks, only states".into());
    Err(Failure::new(
        4,
        format!(
            "{why}, or name `--capture ptrace` (stops running threads, each for microseconds) or `--capture states` (no stacks)"
        ),
    ))
}
