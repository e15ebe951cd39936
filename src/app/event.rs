//! The inputs and outputs of the app's logic.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::baseline::{Baseline, Compared};
use super::code_text::{CodeRead, CodeRequest};
use super::key::{Key, Mouse};
use super::row_path::GroupKey;
use crate::config::{Choices, ColorDepth, Screen};
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::{Level, Settings};
use crate::model::projection::timeline::{Members, Timeline};
use crate::model::projection::waits::{Answer, Asked};
use crate::model::projection::{BusyThreads, FunctionKey, FunctionTime, Projection, WokenThread};
use crate::model::vocabulary::wakeup::Wakeups;

/// The view's configuration at the start.
#[derive(Clone, Debug)]
pub struct AppConfig {
    /// The initial display settings.
    pub settings: Settings,
    /// The requested sampling interval.
    pub interval: Duration,
    pub screen: Screen,
    /// Write nothing to disk: `x` reports that instead of exporting.
    pub secure: bool,
    /// sampletop's version, for the help page.
    pub version: String,
    /// No target was given: start with the process picker.
    pub pick: bool,
    /// No process to watch exists yet: what is awaited, in words.
    pub waits_for: Option<String>,
    /// The target is a COMMAND that sampletop started: `q` asks whether to end it.
    pub ask_on_quit: bool,
    /// The time zone of all times that are typed.
    pub zone: TimeZone,
    /// A saved profile is shown: there is nothing to sample and no process to query.
    pub saved: bool,
    /// The user starts for the first time: the first keys are named.
    pub first_start: bool,
    /// What is compared with from the start.
    pub against: Option<Baseline>,
}

impl Default for AppConfig {
    fn default() -> AppConfig {
        AppConfig {
            settings: Settings { level: Level::Mine, ..Settings::default() },
            interval: Duration::from_millis(10),
            screen: Screen { color: ColorDepth::Ansi, ..Screen::default() },
            secure: false,
            version: env!("CARGO_PKG_VERSION").into(),
            pick: false,
            waits_for: None,
            ask_on_quit: false,
            zone: TimeZone::UTC,
            saved: false,
            first_start: false,
            against: None,
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
    /// A newer snapshot of the facts.
    Snapshot(Arc<Snapshot>),
    /// The result of an [`Effect::Project`].
    Projected(Box<Projected>),
    /// The complete result of an [`Effect::AskWaits`]; threads that have moved since are
    /// missing.
    Waits(Vec<Answer>),
    /// The processes that can be picked; the result of [`Effect::Refresh`].
    Processes(Vec<ProcessRow>),
    /// The session was ended, see [`Effect::Detach`]. The picker returns.
    Detached,
    /// Attaching to the picked process failed: one sentence. The picker returns.
    AttachFailed(String),
    /// The ptrace backend would show more than the present one (or no longer would).
    PtraceHelps(bool),
    /// One sentence for the status line.
    Notice(String, Severity),
    /// The result of an [`Effect::CountWakeups`], or one sentence.
    Woken(Result<Box<Counted>, String>),
    /// The result of an [`Effect::ReadCode`].
    Code(CodeRead),
    /// An [`Effect::Export`] ended: the files, which differ only in their extensions, or one
    /// sentence.
    Exported(Result<Vec<PathBuf>, String>),
}

/// A key is drawn with its result if that is ready within this time; otherwise at once, with the
/// former content.
pub const READ_WITHIN: Duration = Duration::from_millis(10);

/// A request to project a snapshot; a newer request replaces an older one.
#[derive(Clone, Debug)]
pub struct Request {
    /// The version of the user's settings. The result is discarded if the settings have changed
    /// since.
    pub number: u64,
    pub snapshot: Arc<Snapshot>,
    pub settings: Settings,
    /// What the range is compared with.
    pub against: Option<Baseline>,
    /// The screen has room for the trends of rows.
    pub trends: bool,
    /// The timeline is displayed.
    pub timeline: Option<TimelineOf>,
    /// The source or the instructions of this function are displayed.
    pub function: Option<FunctionKey>,
    /// A key caused the request, so it is answered at once. Requests for newer facts may wait.
    pub urgent: bool,
    /// A projection that is not shown any more: its memory is reused.
    pub spare: Option<Box<Projection>>,
}

/// Which timeline is displayed.
#[derive(Clone, Debug)]
pub struct TimelineOf {
    /// `None`: the heaviest group.
    pub group: Option<GroupKey>,
    /// The threads that were displayed before, if they shall be where the range has no time of
    /// their group.
    pub before: Option<Members>,
    pub columns: u16,
}

#[derive(Clone, Debug)]
pub struct Projected {
    pub request: Request,
    pub projection: Projection,
    pub compared: Option<Box<Compared>>,
    pub busy_threads: Arc<BusyThreads>,
    /// Where it was requested.
    pub timeline: Option<Timeline>,
    pub function_time: Option<FunctionTime>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    Info,
    Warning,
    Error,
}

/// Who woke threads, for all threads of the watched processes.
#[derive(Clone, PartialEq, Debug)]
pub struct Counted {
    pub wakeups: Wakeups,
    pub threads: Vec<WokenThread>,
}

/// One process of the picker.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProcessRow {
    pub pid: u32,
    /// Start time; with `pid` its identity.
    pub start: u64,
    pub parent: u32,
    pub user: String,
    pub command: String,
    pub threads: u32,
    /// Recent CPU use, percent of one core; `None` before the second reading.
    pub cpu_percent: Option<f64>,
    /// Resident memory, bytes.
    pub memory: u64,
    pub runtime: &'static str,
    /// Its systemd unit or container; empty if it is in none.
    pub place: String,
}

/// A task for the session.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Quit; `end_child` is true where the user chose to end the COMMAND too.
    Quit {
        end_child: bool,
    },
    /// Export the snapshot to `sampletop-HOST-PID-UTC.txt` (text) and `.sampletop` (to open again),
    /// then send [`Input::Exported`].
    Export {
        snapshot: Arc<Snapshot>,
        settings: Box<Settings>,
    },
    /// Project the facts and send the result, see [`super::projectors::Projectors::answer`]. It may
    /// take a while, and may be skipped where a newer request follows.
    Project(Box<Request>),
    /// Find out what these threads wait for, then send [`Input::Waits`]. May be skipped where
    /// another request follows.
    AskWaits(Vec<Asked>),
    /// Read the text of a function, then send [`Input::Code`]. May take as long as file servers do.
    ReadCode(Box<CodeRequest>),
    /// Count for this duration who wakes the threads of the watched processes, then send
    /// [`Input::Woken`].
    CountWakeups(Duration),
    /// Name the wakers that a saved profile has, then send [`Input::Woken`].
    NameWakers(Arc<Wakeups>),
    /// Save these in the configuration file, then send [`Input::Notice`].
    SaveChoices(Box<Choices>),
    /// Take mouse events from the terminal, or no more.
    UseMouse(bool),
    SetInterval(Duration),
    PauseSampling(bool),
    /// Switch to the ptrace backend.
    UsePtrace,
    /// Give the terminal back and stop until continued (Ctrl-Z).
    Suspend,
    /// Draw every cell again.
    Redraw,
    /// Copy this to the terminal's clipboard (OSC 52).
    Copy(String),
    /// Watch these processes; snapshots or [`Input::AttachFailed`] follow.
    Attach(Vec<u32>),
    /// End this session as quitting does, then send [`Input::Detached`] and the list of processes.
    Detach,
    /// Read the list of processes again.
    Refresh,
}
