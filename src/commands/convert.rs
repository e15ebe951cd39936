//! `sampletop open -o FILE`: a saved profile in another format.

use std::path::Path;

use super::output::Output;
use super::saved_profile;
use crate::config::{Format, Given};
use crate::exit_code::{ExitCode, Failure};
use crate::formats;
use crate::formats::saved::Opened;
use crate::model::projection::settings::{Range, Settings};

pub fn run(
    output: &Output,
    path: Option<&Path>,
    given: &Given,
    max_lines: Option<usize>,
) -> Result<ExitCode, Failure> {
    write(output, saved_profile::redacted(output, path)?, given, max_lines)
}

/// Writes the profile under its own settings and the `given` ones. Covers all of
/// it, unless a window is given.
pub fn write(
    output: &Output,
    opened: Opened,
    given: &Given,
    max_lines: Option<usize>,
) -> Result<ExitCode, Failure> {
    let Opened { snapshot, settings, lost } = opened;
    if let Some(lost) = lost {
        eprintln!("sampletop: {lost}");
    }
    let settings = given.over(Settings { range: Range::Cumulative { since: None }, ..settings });
    let mut bytes = Vec::new();
    let built = match (output.format(), max_lines) {
        (Format::Text, Some(max_lines)) => {
            formats::text::write_within(&snapshot, &settings, max_lines, &mut bytes)
        }
        (format, _) => formats::write(format, &snapshot, &settings, &mut bytes),
    };
    built.map_err(|error| Failure::failed(format!("cannot build the profile: {error}")))?;
    output.deliver(&bytes)?;
    Ok(ExitCode::Success)
}
