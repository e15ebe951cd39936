//! What the loop needs from outside: a terminal, processes, and the session that watches them. In
//! tests fakes stand in for them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::Message;
use super::last_session;
use super::watch::{Aim, Watch};
use crate::app::AppState;
use crate::config::{Config, TargetSpec};
use crate::exit_code::{ExitCode, Failure};
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::Settings;
use crate::process::mapped_files::Files;
use crate::process::process_list::{self, ProcessRow};
use crate::reducer::{Asker, Publication};
use crate::runtimes::go;
use crate::tui::terminal::Screen;

/// Interval at which the reducer publishes for the screen.
const PUBLISH_EVERY: Duration = Duration::from_millis(500);

/// The user's terminal. It is given back when dropped.
pub trait Terminal {
    /// Returns width and height in cells.
    fn size(&self) -> io::Result<(u16, u16)>;
    /// Returns the number of bytes written.
    fn draw(&mut self, app: &AppState) -> io::Result<u64>;
    /// Makes the next drawing write every cell.
    fn redraw(&mut self) -> io::Result<()>;
    /// Takes the terminal again after an external stop.
    fn resume(&mut self) -> io::Result<()>;
    /// Stops this process until it is continued.
    fn suspend(&mut self) -> io::Result<()>;
    /// Takes mouse events, or no more.
    fn use_mouse(&mut self, taken: bool) -> io::Result<()>;
    /// Copies text to the user's clipboard.
    fn copy(&mut self, text: &str) -> io::Result<()>;
}

impl Terminal for Screen {
    fn size(&self) -> io::Result<(u16, u16)> {
        Screen::size(self)
    }

    fn draw(&mut self, app: &AppState) -> io::Result<u64> {
        Screen::draw(self, app)
    }

    fn redraw(&mut self) -> io::Result<()> {
        Screen::redraw(self)
    }

    fn resume(&mut self) -> io::Result<()> {
        Screen::resume(self)
    }

    fn suspend(&mut self) -> io::Result<()> {
        Screen::suspend(self)
    }

    fn use_mouse(&mut self, taken: bool) -> io::Result<()> {
        Screen::use_mouse(self, taken)
    }

    fn copy(&mut self, text: &str) -> io::Result<()> {
        Screen::copy(self, text)
    }
}

/// Processes under observation.
pub trait Watched {
    fn set_interval(&self, interval: Duration);
    fn pause(&self, pause: bool);
    fn use_ptrace(&self);
    /// Returns whether stacks would be better by ptrace, which the user must allow.
    fn ptrace_would_help(&self) -> bool;
    /// Returns a handle for a thread that may wait for names.
    fn asker(&self) -> Option<Asker>;
    /// Returns the files that the processes have mapped.
    fn files(&self) -> Option<Files>;
    /// Returns the file that receives the COMMAND's output, if it is one.
    fn output(&self) -> Option<PathBuf>;
    /// Stops sampling. Returns the exit code of a COMMAND that has exited; otherwise ends it or, by
    /// `leave`, leaves it running.
    fn end(self: Box<Self>, leave: bool) -> Option<ExitCode>;
}

impl Watched for Watch {
    fn set_interval(&self, interval: Duration) {
        Watch::set_interval(self, interval);
    }

    fn pause(&self, pause: bool) {
        Watch::pause(self, pause);
    }

    fn use_ptrace(&self) {
        Watch::use_ptrace(self);
    }

    fn ptrace_would_help(&self) -> bool {
        self.status().ptrace_would_help
    }

    fn asker(&self) -> Option<Asker> {
        Watch::asker(self)
    }

    fn files(&self) -> Option<Files> {
        Some(Watch::files(self))
    }

    fn output(&self) -> Option<PathBuf> {
        Watch::output(self)
    }

    fn end(self: Box<Self>, leave: bool) -> Option<ExitCode> {
        Watch::end(*self, leave)
    }
}

/// Begins to sample awaited processes, which have appeared.
pub type Begin = Box<dyn FnOnce(Sender<Message>) -> Result<Box<dyn Watched>, Failure> + Send>;

/// The result of [`Host::watch`].
pub enum Aimed {
    Watched(Box<dyn Watched>),
    /// There is no such process yet. A [`Message::Found`] follows; until then this sentence says
    /// what is awaited.
    Awaited(String),
}

/// This machine.
pub trait Host {
    /// Returns the processes to pick from.
    fn processes(&mut self) -> Vec<ProcessRow>;
    /// Attaches to processes, or starts a command. Snapshots go to `sender`.
    fn watch(&mut self, spec: &TargetSpec, sender: &Sender<Message>) -> Result<Aimed, Failure>;
    /// Keeps the profile of this session, so that an accidental quit or a lost connection loses
    /// nothing.
    fn keep(&mut self, snapshot: &Snapshot, settings: &Settings) -> Result<(), String>;
    /// Returns whether no session was kept before: the user starts for the first time.
    fn is_first_start(&self) -> bool;
}

/// The real one.
pub struct Here {
    config: Arc<Config>,
}

impl Here {
    pub fn new(config: &Config) -> Here {
        Here { config: Arc::new(config.clone()) }
    }
}

impl Host for Here {
    fn processes(&mut self) -> Vec<ProcessRow> {
        let mut rows = process_list::processes();
        // Go programs have any name.
        for row in rows.iter_mut().filter(|row| row.runtime == "native" && go::is_go(row.pid)) {
            row.runtime = "go";
        }
        rows
    }

    fn watch(&mut self, spec: &TargetSpec, sender: &Sender<Message>) -> Result<Aimed, Failure> {
        let aim = Aim::take(&self.config, spec)?;
        Ok(match aim.waits_for() {
            None => Aimed::Watched(begin(&self.config, aim, sender.clone())?),
            Some(awaited) => {
                wait(self.config.clone(), aim, sender.clone())?;
                Aimed::Awaited(awaited)
            }
        })
    }

    fn keep(&mut self, snapshot: &Snapshot, settings: &Settings) -> Result<(), String> {
        last_session::keep(snapshot, settings)
    }

    fn is_first_start(&self) -> bool {
        last_session::path().is_some_and(|path| !path.exists())
    }
}

/// Waits for processes on its own thread, which ends with the program.
fn wait(config: Arc<Config>, mut aim: Aim, sender: Sender<Message>) -> Result<(), Failure> {
    let thread = std::thread::Builder::new().name("choosing".into()).spawn(move || {
        let found =
            aim.wait().map(|()| -> Begin { Box::new(move |sender| begin(&config, aim, sender)) });
        let _ = sender.send(Message::Found(found));
    });
    thread.map(drop).map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))
}

fn begin(config: &Config, aim: Aim, sender: Sender<Message>) -> Result<Box<dyn Watched>, Failure> {
    let publication = Publication {
        every: PUBLISH_EVERY,
        to: Box::new(move |snapshot| {
            let _ = sender.send(Message::Snapshot(snapshot));
        }),
    };
    Ok(Box::new(Watch::begin(config, aim, Some(publication))?))
}
