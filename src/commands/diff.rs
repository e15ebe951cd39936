//! `sampletop diff`: what changed from one saved profile to another.

use std::path::Path;

use super::output::Output;
use super::saved_profile;
use crate::config::Given;
use crate::exit_code::{ExitCode, Failure};
use crate::formats;
use crate::formats::diff::Profile;
use crate::formats::saved::Opened;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::{Range, Settings};
use crate::model::transform::diff::{Pair, Per};
use crate::model::vocabulary::text::clean;

/// Writes what changed from one profile to the other, under the default settings and the `given`
/// ones. The settings saved with the two are ignored, since they may differ.
pub fn run(
    output: &Output,
    before: &Path,
    after: &Path,
    per: Per,
    given: &Given,
) -> Result<ExitCode, Failure> {
    let of = |path: &Path| -> Result<(String, Snapshot), Failure> {
        let mut name = clean(&path.to_string_lossy(), 200).into_owned();
        let Opened { snapshot, lost, .. } = saved_profile::redacted(output, Some(path))?;
        if let Some(lost) = lost {
            eprintln!("sampletop: `{name}`: {lost}");
        }
        if let Some(key) = output.redact_key() {
            name = key.words(&name);
        }
        Ok((name, snapshot))
    };
    let (before, after) = (of(before)?, of(after)?);
    let profiles = Pair { before, after };
    let profiles = profiles.map(|(name, snapshot)| Profile { name, snapshot });
    let settings =
        given.over(Settings { range: Range::Cumulative { since: None }, ..Settings::default() });
    let mut bytes = Vec::new();
    formats::diff::write(output.format(), &profiles, &settings, per, &mut bytes)
        .map_err(|error| Failure::failed(format!("cannot build the comparison: {error}")))?;
    output.deliver(&bytes)?;
    Ok(ExitCode::Success)
}
