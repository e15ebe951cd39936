//! The live view's loop: passes messages to the app and carries out its effects.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::code_reader::CodeReader;
use super::ending::{KEPT, await_saved, keep, not_kept};
use super::listing::Listing;
use super::memory::Trimmer;
use super::outside::{Aimed, Begin, Host, Terminal, Watched};
use super::projecting::{Answer, Projecting};
use super::saving::save;
use super::source::check_observed;
use super::waiting::Waiting;
use super::waking::{self, Progress, Waking};
use super::{Against, Message};
use crate::app::baseline::Baseline;
use crate::app::code_text::CodeRequest;
use crate::app::{AppConfig, AppState, Counted, Effect, Input, READ_WITHIN, Severity};
use crate::config::{Choices, Config, TargetSpec, Wanted};
use crate::config_file;
use crate::config_file::choices::Before;
use crate::exit_code::{ExitCode, Failure};
use crate::formats::saved::Opened;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::{Range, Settings};
use crate::model::projection::woken_threads;
use crate::model::vocabulary::wakeup::Wakeups;
use crate::tui::pacer::Pacer;

/// Why the loop ended.
pub enum Outcome {
    Asked,
    /// A signal, or the terminal is gone.
    Terminated,
    /// The terminal failed, or the awaited process cannot be watched.
    Failed(Failure),
}

/// Returns the newest snapshot, with the observations since the last published one.
fn newest(watch: Option<&dyn Watched>, last: Option<Arc<Snapshot>>) -> Option<Arc<Snapshot>> {
    let asker = watch.and_then(|watch| watch.asker());
    asker.and_then(|asker| asker.snapshot(Duration::ZERO)).or(last)
}

fn terminal_failed(error: std::io::Error) -> Outcome {
    Outcome::Failed(Failure::failed(format!("cannot write to the terminal: {error}")))
}

/// Returns all of a saved profile as what is compared with, as `sampletop diff` reads it.
fn baseline(against: &Against) -> Baseline {
    Baseline {
        snapshot: Arc::new(against.opened.snapshot.clone()),
        range: Range::Cumulative { since: None },
        file: Some(against.name.as_str().into()),
    }
}

pub struct Live<'a> {
    config: &'a Config,
    /// What the view began with, or saved last.
    before: Before,
    app: AppState,
    terminal: Box<dyn Terminal>,
    host: Box<dyn Host>,
    pacer: Pacer,
    sender: Sender<Message>,
    messages: Receiver<Message>,
    /// Messages that arrived while an answer was awaited.
    later: VecDeque<Message>,
    projecting: Projecting,
    waiting: Waiting,
    code_reader: CodeReader,
    /// While wakeups are counted.
    waking: Option<Waking>,
    watch: Option<Box<dyn Watched>>,
    listing: Listing,
    /// Whether the app knows that `ptrace` would help.
    helps: bool,
    last: Option<Arc<Snapshot>>,
    written: Vec<PathBuf>,
    /// Configuration files that are being written.
    saving: usize,
    end_child: bool,
    /// A saved profile is shown.
    saved: bool,
    clock: Box<dyn Fn() -> Duration>,
    trimmer: Trimmer,
}

/// The arguments of [`Live::new`].
pub struct Parts<'a> {
    pub config: &'a Config,
    pub terminal: Box<dyn Terminal>,
    pub host: Box<dyn Host>,
    pub watch: Option<Box<dyn Watched>>,
    pub waits_for: Option<String>,
    /// Returns the time since the start.
    pub clock: Box<dyn Fn() -> Duration>,
    /// A saved profile to show.
    pub opened: Option<Opened>,
    /// A saved profile to compare with.
    pub against: Option<Against>,
    pub sender: Sender<Message>,
    pub messages: Receiver<Message>,
}

impl Live<'_> {
    /// Starts the threads that read history and waits.
    pub fn new(parts: Parts<'_>) -> Result<Live<'_>, Failure> {
        let Parts {
            config,
            terminal,
            host,
            watch,
            waits_for,
            clock,
            opened,
            against,
            sender,
            messages,
        } = parts;
        let answers = sender.clone();
        let projecting =
            Projecting::start(move |answer| answers.send(Message::Projected(answer)).is_ok())
                .map_err(|error| {
                    Failure::failed(format!("cannot start a thread to read history: {error}"))
                })?;
        let found = sender.clone();
        let waiting = Waiting::start(move |answers| found.send(Message::Waits(answers)).is_ok())
            .map_err(|error| {
                Failure::failed(format!("cannot start a thread to read waits: {error}"))
            })?;
        let app = AppState::new(AppConfig {
            settings: config.settings.clone(),
            interval: config.sampling.interval,
            screen: config.screen.clone(),
            secure: config.output.secure,
            pick: config.target.is_none() && opened.is_none(),
            waits_for,
            ask_on_quit: matches!(config.target, Some(TargetSpec::Command(_))),
            saved: opened.is_some(),
            // Under --secure no session is kept: it would always be the first.
            first_start: !config.output.secure && host.is_first_start(),
            against: against.as_ref().map(baseline),
            zone: jiff::tz::TimeZone::system(),
            ..AppConfig::default()
        });
        let before = Before { choices: app.choices(), given: config.given.clone() };
        let mut live = Live {
            config,
            before,
            app,
            terminal,
            host,
            pacer: Pacer::default(),
            sender,
            messages,
            later: VecDeque::new(),
            projecting,
            waiting,
            code_reader: CodeReader::default(),
            waking: None,
            watch,
            listing: Listing::default(),
            helps: false,
            last: None,
            written: Vec::new(),
            saving: 0,
            end_child: false,
            saved: opened.is_some(),
            clock,
            trimmer: Trimmer::new(),
        };
        if let Some(Opened { snapshot, lost, .. }) = opened {
            live.later.push_back(Message::Snapshot(Arc::new(snapshot)));
            live.later
                .extend(lost.map(|lost| Message::Input(Input::Notice(lost, Severity::Warning))));
        }
        if let Some(Against { name, opened: Opened { lost: Some(lost), .. } }) = against {
            let text = format!("`{name}`: {lost}");
            live.later.push_back(Message::Input(Input::Notice(text, Severity::Warning)));
        }
        Ok(live)
    }

    pub fn first(&mut self) {
        if let Ok((width, height)) = self.terminal.size() {
            self.send_input(Input::Resize { width, height });
        }
        if self.lists() {
            self.list();
        }
        self.pacer.urgent();
    }

    /// Returns whether the list of processes is shown.
    fn lists(&self) -> bool {
        self.config.target.is_none() && self.watch.is_none() && !self.saved
    }

    pub fn run(&mut self) -> Outcome {
        loop {
            let now = Instant::now();
            if self.pacer.due_in(now) == Some(Duration::ZERO) {
                match self.terminal.draw(&self.app) {
                    Ok(bytes) => self.pacer.drawn(Instant::now(), bytes),
                    Err(error) => return terminal_failed(error),
                }
            }
            let now = Instant::now();
            self.projecting.go_on(now);
            self.waiting.go_on(now);
            let mut wait = self.pacer.due_in(now).unwrap_or(Duration::from_secs(3600));
            wait = wait.min(self.projecting.due_in(now).unwrap_or(wait));
            wait = wait.min(self.waiting.due_in(now).unwrap_or(wait));
            if self.lists() {
                wait = wait.min(self.listing.due_in(now));
            }
            // A burst (a held key) is processed whole before the next drawing.
            for nth in 0..64 {
                match self.next(if nth == 0 { wait } else { Duration::ZERO }) {
                    Ok(message) => {
                        if let Some(outcome) = self.take(message) {
                            return outcome;
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return Outcome::Terminated,
                }
            }
            if self.lists() && self.listing.due_in(Instant::now()).is_zero() {
                self.list();
            }
        }
    }

    fn next(&mut self, wait: Duration) -> Result<Message, RecvTimeoutError> {
        match self.later.pop_front() {
            Some(message) => Ok(message),
            None => self.messages.recv_timeout(wait),
        }
    }

    /// Waits briefly for an answer before anything else is done, so that the view behaves as if
    /// there were no other thread.
    fn await_answer(&mut self) -> Option<Outcome> {
        let deadline = Instant::now() + READ_WITHIN;
        while self.projecting.is_urgent() {
            match self.messages.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Message::Projected(answer)) => {
                    if let Some(outcome) = self.answered(answer) {
                        return Some(outcome);
                    }
                }
                Ok(message) => self.later.push_back(message),
                Err(_) => break,
            }
        }
        None
    }

    fn answered(&mut self, Answer { input, cost }: Answer) -> Option<Outcome> {
        self.projecting.done(cost, Instant::now());
        let was_behind = self.app.is_behind();
        let outcome = self.update(input);
        // The result of a key is drawn at once, newer figures at their own pace.
        if was_behind {
            self.pacer.urgent()
        } else {
            self.pacer.data()
        };
        outcome
    }

    fn take(&mut self, message: Message) -> Option<Outcome> {
        let input = match message {
            Message::Signal | Message::TerminalGone => return Some(Outcome::Terminated),
            Message::Continued => {
                self.pacer.urgent();
                return self.terminal.resume().err().map(terminal_failed);
            }
            Message::Snapshot(snapshot) => {
                self.trimmer.keep_house();
                self.last = Some(Arc::clone(&snapshot));
                if let Some(outcome) = self.update(Input::Snapshot(snapshot)) {
                    return Some(outcome);
                }
                // Otherwise it is drawn when the projection is ready.
                if !self.projecting.is_reading() {
                    self.pacer.data();
                }
                // After the snapshot, whose notice only says what is missing: this one says what to
                // do.
                let helps = self.watch.as_ref().is_some_and(|watch| watch.ptrace_would_help());
                let changed = helps != std::mem::replace(&mut self.helps, helps);
                return if changed { self.update(Input::PtraceHelps(helps)) } else { None };
            }
            Message::Projected(answer) => return self.answered(answer),
            Message::Waits(answers) => {
                self.waiting.done(Instant::now());
                self.pacer.data();
                return self.update(Input::Waits(answers));
            }
            Message::Waking(Progress::Begun) => return None,
            Message::Waking(Progress::Ended(counted)) => {
                self.waking = None;
                self.name_wakers(counted);
                return None;
            }
            Message::Found(found) => return self.begin(found),
            Message::Saved(saved) => {
                self.saving -= 1;
                match saved {
                    Ok((text, choices)) => {
                        self.before = Before { choices: *choices, given: Vec::new() };
                        Input::Notice(text, Severity::Info)
                    }
                    Err(sentence) => Input::Notice(sentence, Severity::Error),
                }
            }
            Message::Input(input) => input,
        };
        if let Input::Exported(Ok(paths)) = &input {
            self.written.extend(paths.iter().cloned());
        }
        self.pacer.urgent();
        self.update(input)
    }

    /// Starts the session once the awaited process appeared.
    fn begin(&mut self, found: Result<Begin, Failure>) -> Option<Outcome> {
        match found.and_then(|begin| begin(self.sender.clone())) {
            Ok(watch) => self.begin_watching(watch),
            // It exited meanwhile.
            Err(failure) if failure.code == ExitCode::EndedEarly => {
                let spec = self.config.target.as_ref()?;
                match self.host.watch(spec, &self.sender) {
                    Ok(Aimed::Watched(watch)) => self.begin_watching(watch),
                    Ok(Aimed::Awaited(_)) => {}
                    Err(failure) => return Some(Outcome::Failed(failure)),
                }
            }
            Err(failure) => return Some(Outcome::Failed(failure)),
        }
        None
    }

    /// Takes processes that are watched from now on. They are sampled at the interval that the user
    /// chose meanwhile, or for those watched before.
    fn begin_watching(&mut self, watch: Box<dyn Watched>) {
        if self.app.interval != self.config.sampling.interval {
            watch.set_interval(self.app.interval);
        }
        self.watch = Some(watch);
    }

    /// Passes an input to the app, with its time.
    fn send_input(&mut self, input: Input) -> Vec<Effect> {
        self.app.set_time((self.clock)());
        self.app.update(input)
    }

    /// Passes an input to the app and carries out its effects; returns the outcome if that ends the
    /// loop.
    fn update(&mut self, input: Input) -> Option<Outcome> {
        let mut effects: VecDeque<Effect> = self.send_input(input).into();
        while let Some(effect) = effects.pop_front() {
            let done = match effect {
                Effect::Quit { end_child } => {
                    self.end_child = end_child;
                    return Some(Outcome::Asked);
                }
                Effect::Export { snapshot, settings } => {
                    self.export(snapshot, *settings);
                    Ok(())
                }
                Effect::Project(request) => {
                    let wait = request.urgent && !self.projecting.is_urgent();
                    self.projecting.ask(*request, Instant::now());
                    if wait && let Some(outcome) = self.await_answer() {
                        return Some(outcome);
                    }
                    Ok(())
                }
                Effect::AskWaits(asked) => {
                    self.waiting.ask(asked, Instant::now());
                    Ok(())
                }
                Effect::ReadCode(request) => {
                    self.read_code(*request);
                    Ok(())
                }
                Effect::CountWakeups(time) => {
                    self.count_wakeups(time);
                    Ok(())
                }
                Effect::NameWakers(kept) => {
                    self.name_wakers(Ok(Wakeups::clone(&kept)));
                    Ok(())
                }
                Effect::SaveChoices(choices) => {
                    self.save_choices(*choices);
                    Ok(())
                }
                Effect::UseMouse(taken) => self.terminal.use_mouse(taken),
                Effect::SetInterval(interval) => {
                    self.with_watch(|watch| watch.set_interval(interval));
                    Ok(())
                }
                Effect::PauseSampling(pause) => {
                    self.with_watch(|watch| watch.pause(pause));
                    Ok(())
                }
                Effect::UsePtrace => {
                    self.with_watch(|watch| watch.use_ptrace());
                    Ok(())
                }
                Effect::Suspend => {
                    self.pacer.urgent();
                    self.terminal.suspend()
                }
                Effect::Redraw => {
                    self.pacer.urgent();
                    self.terminal.redraw()
                }
                Effect::Copy(text) => self.terminal.copy(&text),
                Effect::Detach => {
                    self.detach();
                    Ok(())
                }
                Effect::Attach(pids) => {
                    let spec = TargetSpec::Processes(Wanted::Pids(pids));
                    match self.host.watch(&spec, &self.sender) {
                        Ok(Aimed::Watched(watch)) => self.begin_watching(watch),
                        // A pid exists, or it is an error.
                        Ok(Aimed::Awaited(_)) => {}
                        Err(failure) => {
                            effects.extend(self.send_input(Input::AttachFailed(failure.sentence)))
                        }
                    }
                    self.pacer.urgent();
                    Ok(())
                }
                Effect::Refresh => {
                    self.list();
                    Ok(())
                }
            };
            if let Err(error) = done {
                return Some(terminal_failed(error));
            }
        }
        None
    }

    fn with_watch(&self, what: impl FnOnce(&dyn Watched)) {
        if let Some(watch) = &self.watch {
            what(&**watch);
        }
    }

    /// Reads the text of a function on its own thread, since a file server may hang.
    fn read_code(&mut self, request: CodeRequest) {
        let files = self.watch.as_ref().and_then(|watch| watch.files());
        let sender = self.sender.clone();
        let found = move |read| {
            let _ = sender.send(Message::Input(Input::Code(read)));
        };
        self.code_reader.read(request, files, &self.config.sources, found);
    }

    /// Counts who wakes the threads of the processes that are watched now.
    fn count_wakeups(&mut self, time: Duration) {
        let living = self.last.iter().flat_map(|snapshot| snapshot.living());
        let processes = living.map(|target| target.pid).collect();
        let sender = self.sender.clone();
        let report = move |progress| sender.send(Message::Waking(progress)).is_ok();
        match waking::start(processes, time, report) {
            Ok(waking) => self.waking = Some(waking),
            Err(error) => self.send_woken(Err(format!("cannot start a thread to count: {error}"))),
        }
    }

    /// Names wakers and their places on its own thread: that reads all history.
    fn name_wakers(&mut self, counted: Result<Wakeups, String>) {
        let (wakeups, last) = match (counted, &self.last) {
            (Ok(wakeups), Some(last)) => (wakeups, last.clone()),
            (Ok(_), None) => return,
            (Err(sentence), _) => return self.send_woken(Err(sentence)),
        };
        let asker = self.watch.as_ref().and_then(|watch| watch.asker());
        let settings = self.app.settings().clone();
        let sender = self.sender.clone();
        let thread = std::thread::Builder::new().name("wakers".into()).spawn(move || {
            let newest = asker.and_then(|asker| asker.snapshot(Duration::ZERO)).unwrap_or(last);
            let wakeups = Arc::new(wakeups);
            let with = Snapshot { wakeups: Some(wakeups.clone()), ..Snapshot::clone(&newest) };
            let threads = woken_threads(&with, &settings);
            let counted = Counted { wakeups: Wakeups::clone(&wakeups), threads };
            let _ = sender.send(Message::Input(Input::Woken(Ok(Box::new(counted)))));
        });
        if let Err(error) = thread {
            self.send_woken(Err(format!("cannot start a thread to name wakers: {error}")));
        }
    }

    fn send_woken(&mut self, woken: Result<Box<Counted>, String>) {
        self.send_input(Input::Woken(woken));
        self.pacer.urgent();
    }

    /// Writes the files on its own thread, since it may wait for names.
    fn export(&mut self, snapshot: Arc<Snapshot>, settings: Settings) {
        let asker = self.watch.as_ref().and_then(|watch| watch.asker());
        let sender = self.sender.clone();
        let thread = std::thread::Builder::new().name("export".into()).spawn(move || {
            let outcome = save(snapshot, &settings, asker);
            let _ = sender.send(Message::Input(Input::Exported(outcome)));
        });
        if let Err(error) = thread {
            let sentence = format!("cannot start a thread to export: {error}");
            self.send_input(Input::Notice(sentence, Severity::Error));
        }
    }

    /// Writes the configuration file on its own thread, since a file server may hang.
    fn save_choices(&mut self, choices: Choices) {
        let (path, sender) = (self.config.file.clone(), self.sender.clone());
        let before = self.before.clone();
        let saved = move || {
            let path = path.ok_or("no home directory is known: name a file with --config")?;
            config_file::save(&path, &choices, Some(&before))?;
            Ok::<_, String>((format!("saved in {}", path.display()), Box::new(choices)))
        };
        let thread = std::thread::Builder::new().name("config".into()).spawn(move || {
            let _ = sender.send(Message::Saved(saved()));
        });
        match thread {
            Ok(_) => self.saving += 1,
            Err(error) => {
                let sentence = format!("cannot start a thread to save: {error}");
                self.send_input(Input::Notice(sentence, Severity::Error));
            }
        }
    }

    /// Reads the list of processes for the picker.
    fn list(&mut self) {
        let at = Instant::now();
        let rows = self.listing.rows(self.host.processes(), at);
        self.send_input(Input::Processes(rows));
        self.pacer.urgent();
    }

    /// Ends the session, and lists processes again.
    fn detach(&mut self) {
        let last = newest(self.watch.as_deref(), self.last.take());
        let kept = keep(&mut *self.host, &self.app, self.config, last.as_ref());
        let notice = match kept {
            None => None,
            Some(Ok(())) => Some((KEPT.to_owned(), Severity::Info)),
            Some(Err(sentence)) => Some((not_kept(&sentence), Severity::Error)),
        };
        self.waking = None;
        if let Some(watch) = self.watch.take() {
            watch.end(true);
        }
        // Its threads have ended, so no more snapshots come than those that wait here.
        self.later.extend(self.messages.try_iter());
        self.later.retain(|message| !matches!(message, Message::Snapshot(_)));
        self.helps = false;
        self.listing = Listing::default();
        self.send_input(Input::Detached);
        self.list();
        if let Some((text, severity)) = notice {
            self.send_input(Input::Notice(text, severity));
        }
    }

    /// Gives the terminal back, ends the child if it has to end, prints what was written. Returns
    /// the exit code.
    pub fn leave(self, outcome: Outcome) -> Result<ExitCode, Failure> {
        let Live {
            terminal,
            mut host,
            watch,
            written,
            saving,
            later,
            messages,
            end_child,
            last,
            config,
            app,
            saved,
            ..
        } = self;
        drop(terminal);
        let last = newest(watch.as_deref(), last);
        match keep(&mut *host, &app, config, last.as_ref().filter(|_| !saved)) {
            None => {}
            Some(Ok(())) => println!("{KEPT}"),
            Some(Err(sentence)) => eprintln!("sampletop: {}", not_kept(&sentence)),
        }
        if let Some(sentence) = await_saved(saving, later, &messages) {
            eprintln!("sampletop: {sentence}");
        }
        let output = watch.as_ref().and_then(|watch| watch.output());
        let leave_child = !(matches!(outcome, Outcome::Asked) && end_child);
        let child = watch.map(|watch| watch.end(leave_child));
        for path in &written {
            println!("written: {}", path.display());
        }
        if let Some(output) = output {
            println!("output of the command: {}", output.display());
        }
        match outcome {
            Outcome::Failed(failure) => Err(failure),
            Outcome::Asked | Outcome::Terminated if saved => Ok(ExitCode::Success),
            Outcome::Asked | Outcome::Terminated => match child.flatten() {
                Some(code) if matches!(config.target, Some(TargetSpec::Command(_))) => Ok(code),
                _ => {
                    let has_ended = |snapshot: &&Arc<Snapshot>| {
                        snapshot.targets.first().is_some_and(|target| target.ended.is_some())
                    };
                    last.iter().find(has_ended).map_or(Ok(()), |last| check_observed(last))?;
                    Ok(ExitCode::Success)
                }
            },
        }
    }
}
