//! `sampletop merge`: several saved profiles as one.

use std::path::PathBuf;

use super::output::Output;
use super::{convert, saved_profile};
use crate::config::Given;
use crate::exit_code::{ExitCode, Failure};
use crate::formats::saved::Opened;
use crate::model::facts::recorder::Limits;
use crate::model::transform::merge::Merger;
use crate::model::vocabulary::text::clean;

/// Writes several profiles as one, under the settings of the first and the `given` ones. Holds one
/// file at a time.
pub fn run(
    output: &Output,
    files: &[PathBuf],
    given: &Given,
    max_lines: Option<usize>,
) -> Result<ExitCode, Failure> {
    let mut merger = Merger::new(Limits::default());
    let mut settings = None;
    for path in files {
        let name = clean(&path.to_string_lossy(), 200).into_owned();
        let opened = saved_profile::redacted(output, Some(path))?;
        if let Some(lost) = opened.lost {
            eprintln!("sampletop: `{name}`: {lost}");
        }
        merger
            .add(&opened.snapshot)
            .map_err(|unfit| Failure::usage(format!("`{name}`: {unfit}")))?;
        settings.get_or_insert(opened.settings);
    }
    let Some((snapshot, notes)) = merger.finish() else {
        return Err(Failure::usage("there is nothing to merge"));
    };
    for note in notes {
        eprintln!("sampletop: {note}");
    }
    convert::write(
        output,
        Opened { snapshot, settings: settings.unwrap_or_default(), lost: None },
        given,
        max_lines,
    )
}
