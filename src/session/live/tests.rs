//! The loop with a fake terminal, fake processes and a script of messages.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::outside::{Terminal, Watched};
use super::*;
use crate::app::key::Key;
use crate::app::{AppState, Severity};
use crate::config::{Mode, TargetSpec, Wanted};
use crate::model::facts::snapshot::Health;
use crate::model::projection::settings::Settings;
use crate::process::mapped_files::Files;
use crate::process::process_list::ProcessRow;
use crate::reducer::Asker;

/// What happened outside, in order.
type Log = Rc<RefCell<Vec<String>>>;

struct FakeTerminal {
    log: Log,
    fails: bool,
    /// Messages that are sent once the view says that choices are saved.
    after_saving: Option<(Sender<Message>, Vec<Message>)>,
}

impl FakeTerminal {
    fn log(&self, text: &str) -> io::Result<()> {
        self.log.borrow_mut().push(text.into());
        Ok(())
    }
}

impl Terminal for FakeTerminal {
    fn size(&self) -> io::Result<(u16, u16)> {
        Ok((80, 24))
    }
    fn draw(&mut self, app: &AppState) -> io::Result<u64> {
        let is_saved = |(text, _): &(String, Severity)| text.starts_with("saved in");
        if app.notice.as_ref().is_some_and(is_saved)
            && let Some((sender, messages)) = self.after_saving.take()
        {
            messages.into_iter().for_each(|message| sender.send(message).expect("it listens"));
        }
        if self.fails { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(100) }
    }
    fn redraw(&mut self) -> io::Result<()> {
        self.log("redraw")
    }
    fn resume(&mut self) -> io::Result<()> {
        self.log("resume")
    }
    fn suspend(&mut self) -> io::Result<()> {
        self.log("suspend")
    }
    fn use_mouse(&mut self, taken: bool) -> io::Result<()> {
        self.log(&format!("mouse {taken}"))
    }
    fn copy(&mut self, text: &str) -> io::Result<()> {
        self.log(&format!("copy {text}"))
    }
}

impl Drop for FakeTerminal {
    fn drop(&mut self) {
        let _ = self.log("terminal given back");
    }
}

struct FakeWatch {
    log: Log,
    exited: Option<ExitCode>,
}

impl Watched for FakeWatch {
    fn set_interval(&self, interval: Duration) {
        self.log.borrow_mut().push(format!("interval {interval:?}"));
    }
    fn pause(&self, pause: bool) {
        self.log.borrow_mut().push(format!("pause {pause}"));
    }
    fn use_ptrace(&self) {
        self.log.borrow_mut().push("ptrace".into());
    }
    fn ptrace_would_help(&self) -> bool {
        false
    }
    fn asker(&self) -> Option<Asker> {
        None
    }
    fn files(&self) -> Option<Files> {
        None
    }
    fn output(&self) -> Option<PathBuf> {
        None
    }
    fn end(self: Box<Self>, leave: bool) -> Option<ExitCode> {
        self.log.borrow_mut().push(format!("end, leave {leave}"));
        self.exited
    }
}

/// Answers each request to watch from a list.
struct FakeHost {
    log: Log,
    answers: VecDeque<Result<Aimed, Failure>>,
}

impl Host for FakeHost {
    fn processes(&mut self) -> Vec<ProcessRow> {
        self.log.borrow_mut().push("list".into());
        let row = |pid| ProcessRow {
            pid,
            uid: 0,
            user: None,
            command: format!("shop-{pid}"),
            threads: 1,
            cpu_ns: 0,
            start: 1,
            runtime: "native",
            parent: 1,
            memory: 4096,
            place: String::new(),
        };
        vec![row(41), row(42)]
    }
    fn watch(&mut self, spec: &TargetSpec, _: &Sender<Message>) -> Result<Aimed, Failure> {
        self.log.borrow_mut().push(format!("watch {spec:?}"));
        self.answers.pop_front().expect("an answer")
    }
    fn keep(&mut self, snapshot: &Snapshot, _: &Settings) -> Result<(), String> {
        self.log.borrow_mut().push(format!("keep {} ticks", snapshot.health.ticks));
        Ok(())
    }

    fn is_first_start(&self) -> bool {
        false
    }
}

/// A session with its fakes, and what is to happen in it.
struct Played {
    config: Config,
    watch: Option<FakeWatch>,
    answers: Vec<Result<Aimed, Failure>>,
    opened: Option<Opened>,
    terminal_fails: bool,
    after_saving: Vec<Message>,
    log: Log,
}

impl Played {
    /// One process is watched.
    fn watching() -> Played {
        let log = Log::default();
        let target = Some(TargetSpec::Processes(Wanted::Pids(vec![42])));
        Played {
            config: Config { target, ..Config::of_test(Mode::Live) },
            watch: Some(FakeWatch { log: log.clone(), exited: None }),
            answers: Vec::new(),
            opened: None,
            terminal_fails: false,
            after_saving: Vec::new(),
            log,
        }
    }

    fn watched(&self) -> Result<Aimed, Failure> {
        Ok(Aimed::Watched(Box::new(FakeWatch { log: self.log.clone(), exited: None })))
    }

    /// Runs the loop until these messages end it.
    fn run(self, script: Vec<Message>) -> (Result<ExitCode, Failure>, Vec<String>) {
        let (sender, messages) = channel();
        script.into_iter().for_each(|message| sender.send(message).expect("it listens"));
        let seconds = Cell::new(0);
        let mut live = Live::new(Parts {
            config: &self.config,
            terminal: Box::new(FakeTerminal {
                log: self.log.clone(),
                fails: self.terminal_fails,
                after_saving: Some((sender.clone(), self.after_saving)),
            }),
            host: Box::new(FakeHost { log: self.log.clone(), answers: self.answers.into() }),
            watch: self.watch.map(|watch| Box::new(watch) as Box<dyn Watched>),
            waits_for: None,
            // A second goes by between two messages.
            clock: Box::new(move || Duration::from_secs(seconds.replace(seconds.get() + 1))),
            opened: self.opened,
            against: None,
            sender,
            messages,
        })
        .unwrap_or_else(|failure| panic!("{failure:?}"));
        live.first();
        let outcome = live.run();
        let code = live.leave(outcome);
        (code, self.log.take())
    }
}

/// Joins lists of messages, which cannot be cloned.
fn joined<const N: usize>(lists: [Vec<Message>; N]) -> Vec<Message> {
    lists.into_iter().flatten().collect()
}

fn keys(text: &str) -> Vec<Message> {
    text.chars().map(|key| Message::Input(Input::Key(Key::Char(key)))).collect()
}

/// A snapshot after this many ticks.
fn snapshot(ticks: u64) -> Message {
    let snapshot = crate::formats::fixture::snapshot();
    let health = Health { ticks, ..snapshot.health };
    Message::Snapshot(Arc::new(Snapshot { health, ..snapshot }))
}

fn is_success(code: &Result<ExitCode, Failure>) -> bool {
    matches!(code, Ok(ExitCode::Success))
}

#[test]
fn quitting_gives_the_terminal_back_keeps_the_session_and_leaves_the_target() {
    let script = joined([vec![snapshot(7)], keys("q")]);
    let (code, log) = Played::watching().run(script);
    assert!(is_success(&code), "{code:?}");
    assert_eq!(log, ["terminal given back", "keep 7 ticks", "end, leave true"]);
}

#[test]
fn a_signal_and_a_lost_terminal_keep_the_session_too() {
    for last in [Message::Signal, Message::TerminalGone] {
        let (code, log) = Played::watching().run(vec![snapshot(3), last]);
        assert!(is_success(&code), "{code:?}");
        assert_eq!(log, ["terminal given back", "keep 3 ticks", "end, leave true"]);
    }
}

#[test]
fn nothing_is_kept_of_what_was_never_sampled_is_secret_or_a_saved_profile() {
    let run = |played: Played, ticks| played.run(vec![snapshot(ticks), Message::Signal]).1;
    assert!(!run(Played::watching(), 0).iter().any(|line| line.starts_with("keep")));
    let mut secret = Played::watching();
    secret.config.output.secure = true;
    assert!(!run(secret, 5).iter().any(|line| line.starts_with("keep")));
    let Message::Snapshot(shown) = snapshot(5) else { panic!("it is one") };
    let opened =
        Opened { snapshot: Snapshot::clone(&shown), settings: Settings::default(), lost: None };
    let played = Played { watch: None, opened: Some(opened), ..Played::watching() };
    let (code, log) = played.run(keys("q"));
    assert!(is_success(&code), "{code:?}");
    assert_eq!(log, ["terminal given back"]);
}

#[test]
fn a_terminal_that_cannot_be_written_ends_the_session_with_one_sentence() {
    let played = Played { terminal_fails: true, ..Played::watching() };
    let (code, log) = played.run(vec![snapshot(2)]);
    let failure = code.expect_err("it failed");
    assert!(failure.sentence.starts_with("cannot write to the terminal: "), "{failure:?}");
    assert_eq!(log, ["terminal given back", "end, leave true"]);
}

#[test]
fn keys_reach_the_sampler_and_the_terminal() {
    let key = |key| Message::Input(Input::Key(key));
    let terminal = vec![key(Key::Ctrl('l')), key(Key::Ctrl('z')), Message::Continued];
    let erase = (0..8).map(|_| key(Key::Backspace)).collect();
    let interval = [vec![snapshot(1)], keys("d"), erase, keys("20ms"), vec![key(Key::Enter)]];
    let script = joined([terminal, keys("YY"), joined(interval), keys("q")]);
    let (code, log) = Played::watching().run(script);
    assert!(is_success(&code), "{code:?}");
    assert_eq!(log[..5], ["redraw", "suspend", "resume", "mouse true", "mouse false"]);
    assert!(log[5..].contains(&"interval 20ms".to_owned()), "{log:?}");
}

#[test]
fn a_process_is_picked_from_the_list_and_one_that_refuses_leads_back_to_it() {
    let mut played = Played { watch: None, ..Played::watching() };
    played.config.target = None;
    played.answers = vec![Err(Failure::failed("process 41 is a kernel thread")), played.watched()];
    let enter = || Message::Input(Input::Key(Key::Enter));
    let script = joined([vec![enter(), enter(), snapshot(4)], keys("q")]);
    let (code, log) = played.run(script);
    assert!(is_success(&code), "{code:?}");
    let watches = log.iter().filter(|line| line.starts_with("watch")).count();
    assert_eq!((log[0].as_str(), watches), ("list", 2), "{log:?}");
    assert_eq!(log.last().map(String::as_str), Some("end, leave true"));
}

#[test]
fn choices_that_are_saved_at_the_end_are_saved() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("sampletop/config.toml");
    let mut played = Played::watching();
    played.config.file = Some(path.clone());
    let (code, _) = played.run(joined([vec![snapshot(1)], keys("mWq")]));
    assert!(is_success(&code), "{code:?}");
    let text = std::fs::read_to_string(&path).expect("it is written before the program ends");
    assert!(text.contains("metric = \"cpu\""), "{text}");
}

/// The file was changed after the start.
#[test]
fn what_was_not_changed_stays_as_it_is_in_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("config.toml");
    std::fs::write(&path, "interval = \"50ms\"\nmetric = \"off\"\n").expect("written");
    let mut played = Played::watching();
    played.config.file = Some(path.clone());
    let (code, _) = played.run(joined([vec![snapshot(1)], keys("mWq")]));
    assert!(is_success(&code), "{code:?}");
    let text = std::fs::read_to_string(&path).expect("it is written");
    assert_eq!(text, "interval = \"50ms\"\nmetric = \"cpu\"\n");
}

/// Each saving is of what was chosen since the one before.
#[test]
fn a_choice_that_is_taken_back_is_saved_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("config.toml");
    let mut played = Played::watching();
    played.config.file = Some(path.clone());
    played.after_saving = keys("mmWq");
    let (code, _) = played.run(joined([vec![snapshot(1)], keys("mW")]));
    assert!(is_success(&code), "{code:?}");
    let text = std::fs::read_to_string(&path).expect("it is written");
    assert_eq!(text, "metric = \"wall\"\n");
}

#[test]
fn what_the_command_line_gives_is_a_choice() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("config.toml");
    std::fs::write(&path, "metric = \"off\"\nidle = true\n").expect("written");
    let mut played = Played::watching();
    played.config.file = Some(path.clone());
    played.config.given = vec!["metric"];
    let (code, _) = played.run(joined([vec![snapshot(1)], keys("Wq")]));
    assert!(is_success(&code), "{code:?}");
    let text = std::fs::read_to_string(&path).expect("it is written");
    assert_eq!(text, "metric = \"wall\"\nidle = true\n");
}

#[test]
fn the_end_says_that_choices_were_not_saved() {
    let (sender, messages) = channel();
    let saved = |result: Result<&str, &str>| {
        let saved = |text: &str| (text.to_owned(), Box::default());
        Message::Saved(result.map(saved).map_err(str::to_owned))
    };
    let await_saved =
        |saving, later: Vec<Message>| super::ending::await_saved(saving, later.into(), &messages);
    sender.send(Message::Continued).expect("it listens");
    sender.send(saved(Err("no space"))).expect("it listens");
    assert_eq!(await_saved(2, vec![saved(Ok("saved"))]).as_deref(), Some("no space"));
    assert_eq!(await_saved(1, vec![Message::Signal, saved(Ok("saved"))]), None);
    assert_eq!(await_saved(0, Vec::new()), None);
    drop(sender);
    let sentence = await_saved(1, Vec::new()).expect("it is lost");
    assert!(sentence.contains("not saved"), "{sentence}");
}

#[test]
fn an_interval_that_was_chosen_holds_for_the_next_session() {
    let mut played = Played { watch: None, ..Played::watching() };
    played.config.target = None;
    played.answers = vec![played.watched(), played.watched()];
    let key = |key| Message::Input(Input::Key(key));
    let erase = (0..8).map(|_| key(Key::Backspace)).collect();
    let interval = joined([keys("d"), erase, keys("20ms"), vec![key(Key::Enter)]]);
    let again = vec![key(Key::Esc), key(Key::Char('y')), key(Key::Enter)];
    let script = joined([vec![key(Key::Enter), snapshot(4)], interval, again, keys("q")]);
    let (code, log) = played.run(script);
    assert!(is_success(&code), "{code:?}");
    let seen: Vec<&str> = log
        .iter()
        .filter(|line| line.starts_with("watch") || line.starts_with("interval"))
        .map(|line| line.split('(').next().unwrap_or_default())
        .collect();
    assert_eq!(
        seen,
        ["watch Processes", "interval 20ms", "watch Processes", "interval 20ms"],
        "{log:?}"
    );
}

#[test]
fn an_awaited_process_that_exits_at_once_is_awaited_again() {
    let ended = || Failure::new(ExitCode::EndedEarly, "process 42 ended");
    let mut played = Played { watch: None, ..Played::watching() };
    played.answers = vec![Ok(Aimed::Awaited("waiting".into()))];
    let log = played.log.clone();
    let gone: Begin = Box::new(move |_| Err(ended()));
    let (code, seen) = played.run(vec![Message::Found(Ok(gone)), Message::Signal]);
    assert!(is_success(&code), "{code:?}");
    assert_eq!(seen.iter().filter(|line| line.starts_with("watch")).count(), 1, "{seen:?}");
    // It can never be watched.
    let played = Played { watch: None, log, ..Played::watching() };
    let (code, _) = played.run(vec![Message::Found(Err(Failure::failed("not permitted")))]);
    assert_eq!(code.expect_err("it failed").sentence, "not permitted");
}

#[test]
fn escape_ends_a_session_that_was_picked_and_lists_processes_again() {
    let mut played = Played { watch: None, ..Played::watching() };
    played.config.target = None;
    played.answers = vec![played.watched(), played.watched()];
    let key = |key| Message::Input(Input::Key(key));
    // Both are marked for the second session.
    let again = vec![key(Key::Esc), key(Key::Char('y')), snapshot(9)];
    let marked = vec![key(Key::Char(' ')), key(Key::Char(' ')), key(Key::Enter)];
    let script =
        joined([vec![key(Key::Down), key(Key::Enter), snapshot(4)], again, marked, keys("q")]);
    let (code, log) = played.run(script);
    assert!(is_success(&code), "{code:?}");
    let watches: Vec<&String> = log.iter().filter(|line| line.starts_with("watch")).collect();
    assert!(watches[0].contains("Pids([42])") && watches[1].contains("Pids([41, 42])"), "{log:?}");
    let first = log.iter().position(|line| line.starts_with("watch")).expect("watched");
    // Nothing is kept of the second one: it has no snapshot. That which came late is not its own.
    let until = [
        "keep 4 ticks",
        "end, leave true",
        "list",
        watches[1],
        "terminal given back",
        "end, leave true",
    ];
    assert_eq!(log[first + 1..], until.map(String::from));
}
