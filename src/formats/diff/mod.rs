//! Changes from one profile to another.
//!
//! ```text
//! mod      the two profiles under one set of settings
//! unlike   the conditions of both, and which of them differ
//! text     for people and tickets
//! json     for scripts: sampletop-diff/2
//! ```

mod json;
#[cfg(test)]
mod tests;
mod text;
mod unlike;

use std::io::{self, Write};

use crate::config::Format;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::Settings;
use crate::model::projection::{Projection, project};
use crate::model::transform::diff::{Diff, Pair, Per, Side, diff};

/// A profile and its name: its file.
#[derive(Clone, Copy)]
pub struct Profile<'a> {
    pub name: &'a str,
    pub snapshot: &'a Snapshot,
}

/// All data that a part may use.
struct Report<'a> {
    profiles: &'a Pair<Profile<'a>>,
    settings: &'a Settings,
    projections: Pair<Projection>,
    diff: Diff,
}

/// Writes the changes, under the same settings for both profiles; as text unless `format` is json.
/// The only errors are those of `out`.
pub fn write(
    format: Format,
    profiles: &Pair<Profile<'_>>,
    settings: &Settings,
    per: Per,
    out: &mut dyn Write,
) -> io::Result<()> {
    let of = |settings: &Settings| profiles.map(|profile| project(profile.snapshot, settings));
    let mut settings = settings.clone();
    let mut projections = of(&settings);
    if projections.before.only_idle != projections.after.only_idle {
        // If one profile shows idle time because it has nothing else, the other has to show its
        // idle time too.
        settings.idle = true;
        projections = of(&settings);
    }
    render(format, profiles, &settings, projections, per, out)
}

fn render(
    format: Format,
    profiles: &Pair<Profile<'_>>,
    settings: &Settings,
    projections: Pair<Projection>,
    per: Per,
    out: &mut dyn Write,
) -> io::Result<()> {
    let [before, after] =
        [(&projections.before, &profiles.before), (&projections.after, &profiles.after)].map(
            |(projection, profile)| Side { projection, resolution: profile.snapshot.resolution() },
        );
    let diff = diff(before, after, settings, per);
    let report = Report { profiles, settings, projections, diff };
    match format {
        Format::Json => json::write(&report, out),
        _ => text::write(&report, out),
    }
}
