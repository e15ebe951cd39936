//! Watches without a screen: signals, the target's exit, and what threads wait for arrive as
//! messages.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::looking_up::LookingUp;
use super::process_lists::{read_goroutines, read_tasks};
use super::service;
use super::signals::{self, Caught, EndRequest};
use super::source::{NAMES_WITHIN, Progress, Request, Source, Waited};
use super::waiting::observe_once;
use super::waking::TimedWaking;
use super::watch::{AGAIN, Aim, Watch};
use crate::clock;
use crate::config::{CaptureChoice, Config, Format, Mode};
use crate::exit_code::{ExitCode, Failure};
use crate::model::facts::goroutines::Goroutines;
use crate::model::facts::snapshot::{Snapshot, Target};
use crate::model::facts::tasks::Tasks;
use crate::model::projection::waits::{Answer, Asked};
use crate::model::vocabulary::wakeup::Wakeups;

/// Watches the target while `job` runs. Returns the exit code of the whole run: the COMMAND's own
/// if there was one and `job` succeeded.
pub fn watch(
    config: &Config,
    job: impl FnOnce(&mut dyn Source) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    let reports = matches!(config.mode, Mode::Report(_));
    // A service that waits for its target is ready; one that lacks the rights has failed to start.
    let notify = |status: &str| {
        if reports {
            service::notify(status);
        }
    };
    let target =
        config.target.as_ref().ok_or_else(|| Failure::usage("name a process with -p PID"))?;
    let watch = loop {
        let mut aim = Aim::take(config, target)?;
        let waits = aim.waits();
        if let Some(what) = aim.waits_for() {
            eprintln!("sampletop: {what} (Ctrl-C ends)");
            notify(&what);
            // Log rotation must not end the program, and there is nothing to report yet. Other
            // signals, such as Ctrl-C, end it.
            let _caught = reports.then(|| {
                Caught::each(signals::REPORTS, |signal| match signals::request(signal) {
                    Some(_) => true,
                    None => std::process::exit(0),
                })
            });
            aim.wait()?;
        }
        match Watch::begin(config, aim, None) {
            // It exited meanwhile.
            Err(failure) if waits && failure.code == ExitCode::EndedEarly => {
                std::thread::sleep(AGAIN)
            }
            other => break other?,
        }
    };
    ask_for_ptrace(config.sampling.capture, &watch)?;
    notify("sampling");
    let mut run = Timed::new(watch, reports, shows_waits(config));
    // A child that still runs is ended, also after a failure.
    let outcome = job(&mut run);
    let of_child = run.end();
    Ok(match outcome? {
        ExitCode::Success => of_child.unwrap_or(ExitCode::Success),
        other => other,
    })
}

/// Returns whether the output has what threads wait for. `dump` looks that up itself.
fn shows_waits(config: &Config) -> bool {
    let is_format = matches!(config.output.format, Format::Text | Format::Json | Format::Sampletop);
    is_format && !matches!(config.mode, Mode::Dump { .. })
}

/// Fails where only stopping threads gives stacks of running ones and the user did not ask for
/// that. The live view offers a key instead; a timed run ends here.
fn ask_for_ptrace(choice: CaptureChoice, watch: &Watch) -> Result<(), Failure> {
    let status = watch.status();
    if choice != CaptureChoice::Auto || !status.ptrace_would_help {
        return Ok(());
    }
    let why = status.notice.unwrap_or_else(|| "no stacks, only states".into());
    Err(Failure::new(
        ExitCode::NotPermitted,
        format!(
            "{why}, or name `--capture ptrace` (stops running threads, each for microseconds) or `--capture states` (no stacks)"
        ),
    ))
}

/// Maximum time that the end of a run waits for what threads wait for.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// A [`Watch`] whose signals and whose target's exit arrive as messages.
struct Timed {
    watch: Option<Watch>,
    wakes: Receiver<Wake>,
    /// `None`: not wanted.
    looking_up: Option<LookingUp>,
    _signals: Option<Caught>,
    child_code: Option<ExitCode>,
    waking: Option<TimedWaking>,
}

enum Wake {
    Interrupted,
    Asked(Request),
    Ended,
    Answered(Vec<Answer>),
}

impl Timed {
    /// Creates it. `reports`: signals may request more than the end. `looks_up`: what threads wait
    /// for is wanted.
    fn new(mut watch: Watch, reports: bool, looks_up: bool) -> Timed {
        let (sender, wakes) = channel();
        let wakes_first = sender.clone();
        let mut requests = signals::EndRequests::default();
        let signals =
            Caught::each(if reports { signals::REPORTS } else { signals::END }, move |signal| {
                if let Some(request) = signals::request(signal).filter(|_| reports) {
                    return wakes_first.send(Wake::Asked(request)).is_ok();
                }
                match requests.next(Instant::now()) {
                    EndRequest::First => wakes_first.send(Wake::Interrupted).is_ok(),
                    EndRequest::Duplicate => true,
                    // Exits at once, writes nothing.
                    EndRequest::Repeated => std::process::exit(128 + signal),
                }
            })
            .ok();
        emit_exit(&mut watch, sender.clone());
        let answer = move |answers| sender.send(Wake::Answered(answers)).is_ok();
        // Without that thread the output says less.
        let looking_up = looks_up.then(|| LookingUp::start(answer, Instant::now()).ok()).flatten();
        Timed {
            watch: Some(watch),
            wakes,
            looking_up,
            _signals: signals,
            child_code: None,
            waking: None,
        }
    }

    /// Looks up what threads wait for, if it is time. Returns the time until the next look-up.
    fn look_up(&mut self) -> Option<Duration> {
        let looking_up = self.looking_up.as_mut()?;
        let now = Instant::now();
        if looking_up.due_in(now) == Some(Duration::ZERO) {
            let snapshot = self.watch.as_ref()?.snapshot(Duration::ZERO)?;
            looking_up.ask(&snapshot, now);
        }
        looking_up.due_in(now)
    }

    fn answered(&mut self, answers: Vec<Answer>) {
        if let Some(looking_up) = &mut self.looking_up {
            looking_up.answered(answers, Instant::now());
        }
    }

    fn with_found(&self, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        match &self.looking_up {
            Some(looking_up) => looking_up.with_found(snapshot),
            None => snapshot,
        }
    }

    /// Waits for the last answers.
    fn take_last_answers(&mut self, last: &Snapshot) {
        let Some(looking_up) = &mut self.looking_up else { return };
        if !looking_up.ends(last, Instant::now()) {
            return;
        }
        let deadline = Instant::now() + ANSWERS_WITHIN;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.wakes.recv_timeout(left) {
                Ok(Wake::Answered(answers)) => return self.answered(answers),
                // The run has ended anyhow.
                Ok(Wake::Interrupted | Wake::Asked(_) | Wake::Ended) => {}
                Err(_) => return,
            }
        }
    }

    /// Stops watching, if [`Source::finish`] has not. Returns the code of the COMMAND, if it exited
    /// by itself.
    fn end(mut self) -> Option<ExitCode> {
        if let Some(watch) = self.watch.take() {
            self.child_code = watch.finish(false).1;
        }
        self.child_code
    }
}

/// Sends [`Wake::Ended`] once all targets have exited. The thread ends with the sampler, or with
/// the process.
fn emit_exit(watch: &mut Watch, sender: Sender<Wake>) {
    let Some(end) = watch.take_end() else { return };
    let _ = std::thread::Builder::new().name("target-end".into()).spawn(move || {
        // Nothing is ever sent; the channel closes.
        let _ = end.recv();
        let _ = sender.send(Wake::Ended);
    });
}

impl Source for Timed {
    fn wait(&mut self, timeout: Duration) -> Waited {
        let begun = Instant::now();
        loop {
            let due = self.look_up();
            let left = timeout.saturating_sub(begun.elapsed());
            return match self.wakes.recv_timeout(due.map_or(left, |due| due.min(left))) {
                Ok(Wake::Answered(answers)) => {
                    self.answered(answers);
                    continue;
                }
                Ok(Wake::Ended) => Waited::Ended,
                Ok(Wake::Interrupted) => Waited::Interrupted,
                Ok(Wake::Asked(request)) => Waited::Asked(request),
                Err(RecvTimeoutError::Timeout) if begun.elapsed() < timeout => continue,
                Err(RecvTimeoutError::Timeout) => Waited::Timeout,
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(left);
                    Waited::Timeout
                }
            };
        }
    }

    fn elapsed(&mut self) -> Duration {
        self.watch.as_ref().map_or(Duration::ZERO, Watch::elapsed)
    }

    fn progress(&mut self) -> Progress {
        let losses = self
            .watch
            .as_ref()
            .and_then(|watch| watch.snapshot(Duration::ZERO))
            .map(|s| s.health.losses);
        losses
            .map_or_else(Progress::default, |l| Progress { samples: l.samples, dropped: l.dropped })
    }

    fn snapshot(&mut self, named: bool) -> Option<Arc<Snapshot>> {
        let within = if named { NAMES_WITHIN } else { Duration::ZERO };
        let snapshot = self.watch.as_ref()?.snapshot(within)?;
        Some(self.with_found(snapshot))
    }

    fn cut(&mut self) -> Option<Arc<Snapshot>> {
        let snapshot = self.watch.as_ref()?.cut()?;
        let snapshot = self.with_found(snapshot);
        if let Some(looking_up) = &mut self.looking_up {
            looking_up.cut();
        }
        Some(snapshot)
    }

    fn pause(&mut self, pause: bool) {
        if let Some(watch) = &self.watch {
            watch.pause(pause);
        }
    }

    fn living(&mut self) -> Vec<Target> {
        self.watch.as_ref().map_or(Vec::new(), |watch| watch.living())
    }

    fn unix_ns(&mut self) -> i128 {
        i128::from(clock::realtime())
    }

    fn waits(&mut self, asked: Vec<Asked>, timeout: Duration) -> Vec<Answer> {
        observe_once(asked, timeout)
    }

    fn tasks(&mut self, timeout: Duration) -> Vec<Tasks> {
        read_tasks(self.living(), timeout)
    }

    fn goroutines(&mut self, timeout: Duration) -> Vec<Goroutines> {
        read_goroutines(self.living(), timeout)
    }

    fn count_wakeups(&mut self, duration: Duration) -> Result<(), String> {
        let pids = self.living().iter().map(|target| target.pid).collect();
        self.waking = Some(TimedWaking::begin(pids, duration)?);
        Ok(())
    }

    fn wakeups(&mut self) -> Option<Result<Wakeups, String>> {
        self.waking.take().map(TimedWaking::end)
    }

    fn finish(&mut self) -> Option<Arc<Snapshot>> {
        let (snapshot, child_code) = self.watch.take()?.finish(false);
        self.child_code = child_code;
        let snapshot = snapshot?;
        self.take_last_answers(&snapshot);
        Some(self.with_found(snapshot))
    }
}
