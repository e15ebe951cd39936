//! What goes into the logic and what comes out of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::key::{Key, Mouse};
use crate::config::Screen;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::project::{Projection, Projector};
use crate::model::projection::settings::Settings;
use crate::model::projection::waits::{Answer, Asked};

/// How the view starts.
#[derive(Clone, Debug)]
pub struct AppConfig {
    /// What is shown at first.
    pub settings: Settings,
    /// The sampling interval asked for.
    pub interval: Duration,
    pub screen: Screen,
    /// Write nothing to disk: `x` says so instead of exporting.
    pub secure: bool,
    /// sampletop's version, for the help page.
    pub version: String,
    /// No target was given: begin with the list of processes.
    pub pick: bool,
    /// There is no process to look at yet: what is waited for, in words.
    pub waits_for: Option<String>,
    /// The target is a COMMAND that sampletop started: `q` asks what becomes of it.
    pub ask_on_quit: bool,
    /// A saved profile is shown: there is nothing to sample, and no process to ask.
    pub saved: bool,
}

impl Default for AppConfig {
    fn default() -> AppConfig {
        AppConfig {
            settings: Settings::default(),
            interval: Duration::from_millis(10),
            screen: Screen { color: true, ascii: false, mouse: false },
            secure: false,
            version: env!("CARGO_PKG_VERSION").into(),
            pick: false,
            waits_for: None,
            ask_on_quit: false,
            saved: false,
        }
    }
}

/// Everything that can happen to the view.
#[derive(Clone, Debug)]
pub enum Input {
    Key(Key),
    Mouse(Mouse),
    Resize {
        width: u16,
        height: u16,
    },
    /// A newer view of the facts.
    Snapshot(Arc<Snapshot>),
    /// An [`Effect::Project`] was carried out.
    Projected(Box<Projected>),
    /// What was found of an [`Effect::LookAtWaits`], all of it; threads that have moved since are
    /// missing.
    Waits(Vec<Answer>),
    /// The processes that can be picked; an answer to [`Effect::Refresh`].
    Processes(Vec<ProcessRow>),
    /// Attaching to the picked process failed: one sentence. The list comes back.
    AttachFailed(String),
    /// The way `ptrace` would show more than the way in force (or no longer would).
    PtraceHelps(bool),
    /// One sentence for the status line.
    Notice(String, Severity),
    /// An [`Effect::Export`] ended: the files, which differ in their extension alone, or one
    /// sentence.
    Exported(Result<Vec<PathBuf>, String>),
}

/// A key is drawn with what it asks for if that is read so fast; else at once, with what was there
/// before.
pub const READ_WITHIN: Duration = Duration::from_millis(10);

/// To project a snapshot: what a newer one asks for replaces what an older one asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which of the user's settings it is about; an answer to other settings than the newest is not
    /// shown.
    pub number: u64,
    pub snapshot: Arc<Snapshot>,
    pub settings: Settings,
    /// A key asks: now. Else newer facts ask, and may wait.
    pub urgent: bool,
}

impl Request {
    pub fn answer(self, projector: &mut Projector) -> Input {
        let projection = projector.project(&self.snapshot, &self.settings);
        Input::Projected(Box::new(Projected { request: self, projection }))
    }
}

#[derive(Clone, Debug)]
pub struct Projected {
    pub request: Request,
    pub projection: Projection,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    Info,
    Warning,
    Error,
}

/// One process of the picker.
#[derive(Clone, PartialEq, Debug)]
pub struct ProcessRow {
    pub pid: u32,
    pub user: String,
    pub command: String,
    pub threads: u32,
    /// Percent of one core, lately; `None` before a second look.
    pub cpu_percent: Option<f64>,
    pub runtime: &'static str,
}

/// What the session shall do.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Leave; `end_child` is true where the user asked that the COMMAND ends too.
    Quit {
        end_child: bool,
    },
    /// Write this as text, and to be opened again, to `sampletop-HOST-PID-UTC.txt` and
    /// `.sampletop`, then send [`Input::Exported`].
    Export {
        snapshot: Arc<Snapshot>,
        settings: Box<Settings>,
    },
    /// Read the facts, see [`Request::answer`], and send what comes of it. It may take a while, and
    /// may be left out where a newer request follows.
    Project(Box<Request>),
    /// Find out what these threads wait for, then send [`Input::Waits`]. May be left out where
    /// another one follows.
    LookAtWaits(Vec<Asked>),
    SetInterval(Duration),
    PauseSampling(bool),
    /// Switch to the way `ptrace`.
    UsePtrace,
    /// Give the terminal back and stop until continued (Ctrl-Z).
    Suspend,
    /// Draw every cell again.
    Redraw,
    /// Put this on the clipboard of the terminal (OSC 52).
    Copy(String),
    /// Watch this process; snapshots or [`Input::AttachFailed`] follow.
    Attach(u32),
    /// Read the list of processes again.
    Refresh,
}
