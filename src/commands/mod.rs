//! The subcommands, one file each. They use `session` to watch and `formats` to write.
//!
//! ```text
//! live view  session::live, straight from `run`
//! record     one profile; also `demo --once`
//! report     one profile after the other, to files and to a server
//! dump       the stack of every thread, once
//! open       a saved profile in the live view
//! convert    a saved profile in another format (`open -o`)
//! diff       what changed between two saved profiles
//! merge      several saved profiles as one
//! doctor     what this machine permits
//!
//! output         where the result goes: checked, redacted, delivered
//! saved_profile  reads a profile from a file
//! ```

mod convert;
mod diff;
mod doctor;
mod dump;
#[cfg(test)]
mod fake;
mod merge;
mod open;
mod output;
mod record;
mod report;
mod saved_profile;
mod wakers;

use crate::config::{Config, Mode};
use crate::demo;
use crate::exit_code::{ExitCode, Failure};
use crate::process::{fatal_signals, privileges};
use crate::session::live;
use output::Output;

/// Runs what the command line requests. Prints an error as one sentence on stderr.
pub fn run(config: &Config) -> ExitCode {
    if let Mode::Workload { args } = &config.mode {
        return demo::child(args);
    }
    if config.output.redact.is_some_and(|redact| redact.only_this_run) {
        eprintln!(
            "sampletop: names are replaced with a key of this run only; set SAMPLETOP_REDACT_KEY to use one key for several runs"
        );
    }
    // If this fails, only the second SIGSEGV from outside would end the program. The run can still
    // begin.
    let _ = fatal_signals::catch();
    match dispatch(config) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("sampletop: {}", failure.sentence);
            failure.code
        }
    }
}

fn dispatch(config: &Config) -> Result<ExitCode, Failure> {
    let output = &Output::new(&config.output);
    match &config.mode {
        Mode::Live => live::run(config, saved_profile::against(config, output)?),
        Mode::Once { duration } => record::demo(config, output, *duration),
        Mode::Record { duration } => record::run(config, output, *duration),
        Mode::Report(plan) => report::run(config, output, plan),
        Mode::Dump { what } => dump::run(config, output, *what),
        Mode::Open { path, given } => open::run(config, output, path.as_deref(), given),
        Mode::Convert { path, given, max_lines } => {
            convert::run(output, path.as_deref(), given, *max_lines)
        }
        Mode::Diff { before, after, per, given } => diff::run(output, before, after, *per, given),
        Mode::Merge { files, given, max_lines } => merge::run(output, files, given, *max_lines),
        Mode::Doctor { json } => doctor::run(config, output, *json),
        Mode::Workload { args } => Ok(demo::child(args)),
    }
}

/// Must run first, before there is a second thread. All threads act with the caller's rights,
/// except the one that takes stacks.
pub fn settle_rights() -> Result<(), Failure> {
    if privileges::is_setuid() {
        return Err(Failure::new(
            ExitCode::NotPermitted,
            "sampletop is installed setuid or setgid, and would show anybody everything; remove that bit (`chmod ug-s`) and run it with sudo",
        ));
    }
    privileges::lower().map_err(|error| {
        Failure::failed(format!(
            "sampletop's own capabilities cannot be set aside ({error}); remove them with `setcap -r`"
        ))
    })
}

/// Returns the failure of a run whose reducer died.
fn lost(what: &str) -> Failure {
    Failure::failed(format!(
        "the {what} was lost because an internal thread died; please report this"
    ))
}
