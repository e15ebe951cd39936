//! The live view.
//!
//! ```text
//! view_loop  passes keys, signals and snapshots to the app, and carries out its effects
//! outside    terminal and processes, for which fakes stand in in tests
//! ending     what outlives a session
//! listing    the list of processes, with their CPU use
//! saving     the files of a snapshot that the user saves
//! ```

mod ending;
mod listing;
mod outside;
mod saving;
#[cfg(test)]
mod tests;
mod view_loop;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use super::projecting::Answer;
use super::signals::{self, Caught, SIGCONT};
use super::waking::Progress;
use super::{code_reader, last_session, memory, projecting, source, waiting, waking, watch};
use crate::app::Input;
use crate::config::{Choices, Config, Given};
use crate::exit_code::{ExitCode, Failure};
use crate::formats::saved::Opened;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::waits::Answer as WaitsFor;
use crate::process::fatal_signals;
use crate::tui::input;
use crate::tui::terminal::{self, Screen};
use outside::{Aimed, Begin, Here, Host};
use view_loop::{Live, Parts};

/// What the loop is told.
pub enum Message {
    Input(Input),
    Snapshot(Arc<Snapshot>),
    Projected(Answer),
    Waits(Vec<WaitsFor>),
    /// Wakeups are counted, or were.
    Waking(Progress),
    /// An awaited process appeared, or can never be watched.
    Found(Result<Begin, Failure>),
    /// The configuration file was written, or cannot be.
    Saved(Result<(String, Box<Choices>), String>),
    /// SIGINT, SIGTERM or SIGHUP.
    Signal,
    /// SIGCONT: this process was stopped, and other programs may have changed the terminal
    /// meanwhile.
    Continued,
    /// The terminal hung up.
    TerminalGone,
}

/// A saved profile to compare with, and the name of its file.
pub struct Against {
    pub name: String,
    pub opened: Opened,
}

/// Runs until the user quits; returns the exit code.
pub fn run(config: &Config, against: Option<Against>) -> Result<ExitCode, Failure> {
    show(config, None, against)
}

/// Does the same with a saved profile. `given`: settings that override the saved ones.
pub fn open(
    config: &Config,
    opened: Opened,
    against: Option<Against>,
    given: &Given,
) -> Result<ExitCode, Failure> {
    let settings = given.over(opened.settings.clone());
    show(&Config { settings, ..config.clone() }, Some(opened), against)
}

fn show(
    config: &Config,
    opened: Option<Opened>,
    against: Option<Against>,
) -> Result<ExitCode, Failure> {
    let (sender, messages) = channel();
    let mut host = Here::new(config);
    // Attached before the screen is taken, so that an error is one sentence on an untouched
    // terminal.
    let (mut watch, mut waits_for) = (None, None);
    if let Some(spec) = &config.target {
        match host.watch(spec, &sender)? {
            Aimed::Watched(watched) => watch = Some(watched),
            Aimed::Awaited(awaited) => waits_for = Some(awaited),
        }
    }
    let told = sender.clone();
    let message = |signal| if signal == SIGCONT { Message::Continued } else { Message::Signal };
    let caught = [signals::END, &[SIGCONT]].concat();
    let _signals = Caught::each(&caught, move |signal| told.send(message(signal)).is_ok())
        .map_err(|error| Failure::failed(format!("cannot catch signals: {error}")))?;
    fatal_signals::before_end(terminal::give_back_in_handler);
    let terminal = Screen::enter(&config.screen).map_err(|error| {
        Failure::failed(format!("cannot take the terminal: {error}; try `record` instead"))
    })?;
    let keys = sender.clone();
    input::start(move |input| {
        keys.send(input.map_or(Message::TerminalGone, Message::Input)).is_ok()
    })
    .map_err(|error| {
        Failure::failed(format!("cannot read the keyboard: {error}; try `record` instead"))
    })?;
    let began = Instant::now();
    let mut live = Live::new(Parts {
        config,
        terminal: Box::new(terminal),
        host: Box::new(host),
        watch,
        waits_for,
        clock: Box::new(move || began.elapsed()),
        opened,
        against,
        sender,
        messages,
    })?;
    live.first();
    let outcome = live.run();
    live.leave(outcome)
}
