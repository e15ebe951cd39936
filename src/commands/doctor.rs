//! `sampletop doctor`: what this machine permits, and the one change that would help.

use super::output::Output;
use crate::config::{Config, TargetSpec, Wanted};
use crate::doctor;
use crate::exit_code::{ExitCode, Failure};

pub fn run(config: &Config, output: &Output, json: bool) -> Result<ExitCode, Failure> {
    let pid = match &config.target {
        Some(TargetSpec::Processes(Wanted::Pids(pids))) => pids.first().copied(),
        _ => None,
    };
    let answer = doctor::examine(pid, json)?;
    output.deliver(answer.text.as_bytes())?;
    Ok(answer.exit_code)
}
