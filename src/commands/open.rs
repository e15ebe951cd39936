//! `sampletop open`: a saved profile in the live view.

use std::path::Path;

use super::output::Output;
use super::saved_profile;
use crate::config::{Config, Given};
use crate::exit_code::{ExitCode, Failure};
use crate::session::live;

pub fn run(
    config: &Config,
    output: &Output,
    path: Option<&Path>,
    given: &Given,
) -> Result<ExitCode, Failure> {
    let against = saved_profile::against(config, output)?;
    live::open(config, saved_profile::redacted(output, path)?, against, given)
}
