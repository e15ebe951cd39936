//! Profiles in files: keeps that of the last session, opens or converts any, compares two, merges
//! several.

use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::Failure;
use crate::config::{Config, Format, Given};
use crate::formats::diff::Profile;
use crate::formats::saved::{self, NotAProfile, Opened};
use crate::model::facts::recorder::Limits;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::{Range, Settings};
use crate::model::transform::diff::{Pair, Per};
use crate::model::transform::merge::Merger;
use crate::model::transform::redact;
use crate::model::vocabulary::text::clean;
use crate::{formats, headless};

/// Maximum bytes read of a file; the largest session has about 80 MB.
const FILE_MAX: u64 = 1 << 30;

/// Reads a profile of sampletop or another tool; without a path that of the last session.
pub fn load(path: Option<&Path>) -> Result<Opened, Failure> {
    let kept = || {
        last().ok_or_else(|| Failure::new(2, "no session was kept: HOME is not set; name a file"))
    };
    let (path, named) = match path {
        Some(path) => (path.to_owned(), true),
        None => (kept()?, false),
    };
    let shown = clean(&path.to_string_lossy(), 200).into_owned();
    let failed = |error: std::io::Error| {
        let sentence = match error.kind() {
            std::io::ErrorKind::NotFound if !named => {
                format!(
                    "no session was kept at `{shown}`: the live view does when it is left; or name a file"
                )
            }
            _ => format!("cannot read `{shown}`: {}", crate::sinks::file::why(&error)),
        };
        Failure::new(2, sentence)
    };
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(failed)?;
    file.take(FILE_MAX).read_to_end(&mut bytes).map_err(failed)?;
    let read = match saved::read(&bytes) {
        Err(NotAProfile::Foreign) => {
            formats::import::read(&bytes).unwrap_or_else(|| Err(formats::import::NO_PROFILE.into()))
        }
        own => own.map_err(|error| error.to_string()),
    };
    read.map_err(|sentence| Failure::new(2, format!("`{shown}`: {sentence}")))
}

/// Calls [`load`] and applies `--redact` if it is set.
pub fn shown(config: &Config, path: Option<&Path>) -> Result<Opened, Failure> {
    let Opened { snapshot, settings, lost } = load(path)?;
    let snapshot = headless::shown(&snapshot, config).into_owned();
    let settings = match config.output.redact {
        Some(_) => {
            let (settings, dropped) = redact::settings(&settings);
            if dropped {
                eprintln!("sampletop: settings of the file that go by names are left out");
            }
            settings
        }
        None => settings,
    };
    Ok(Opened { snapshot, settings, lost })
}

/// Writes the profile as `config` says, under its own settings and the `given` ones. Covers all of
/// it, unless a window is given.
pub fn convert(
    config: &Config,
    opened: Opened,
    given: &Given,
    max_lines: Option<usize>,
) -> Result<i32, Failure> {
    let Opened { snapshot, settings, lost } = opened;
    if let Some(lost) = lost {
        eprintln!("sampletop: {lost}");
    }
    let settings = given.over(Settings { range: Range::Cumulative { since: None }, ..settings });
    let mut bytes = Vec::new();
    let built = match (config.output.format, max_lines) {
        (Format::Text, Some(most)) => {
            formats::text::write_within(&snapshot, &settings, most, &mut bytes)
        }
        (format, _) => formats::write(format, &snapshot, &settings, &mut bytes),
    };
    built.map_err(|error| Failure::new(1, format!("cannot build the profile: {error}")))?;
    Ok(headless::deliver(&bytes, config))
}

/// Writes several profiles as one, under the settings of the first and the `given` ones. Holds one
/// file at a time.
pub fn merge(
    config: &Config,
    files: &[PathBuf],
    given: &Given,
    max_lines: Option<usize>,
) -> Result<i32, Failure> {
    let mut merger = Merger::new(Limits::default());
    let mut settings = None;
    for path in files {
        let name = clean(&path.to_string_lossy(), 200).into_owned();
        let opened = shown(config, Some(path))?;
        if let Some(lost) = opened.lost {
            eprintln!("sampletop: `{name}`: {lost}");
        }
        merger
            .add(&opened.snapshot)
            .map_err(|unfit| Failure::new(2, format!("`{name}`: {unfit}")))?;
        settings.get_or_insert(opened.settings);
    }
    let Some((snapshot, notes)) = merger.finish() else {
        return Err(Failure::new(2, "there is nothing to merge"));
    };
    for note in notes {
        eprintln!("sampletop: {note}");
    }
    convert(
        config,
        Opened { snapshot, settings: settings.unwrap_or_default(), lost: None },
        given,
        max_lines,
    )
}

/// Writes what changed from one profile to the other, under the default settings and the `given`
/// ones. The settings saved with the two are ignored, since they may differ.
pub fn diff(
    config: &Config,
    before: &Path,
    after: &Path,
    per: Per,
    given: &Given,
) -> Result<i32, Failure> {
    let of = |path: &Path| -> Result<(String, Snapshot), Failure> {
        let mut name = clean(&path.to_string_lossy(), 200).into_owned();
        let Opened { snapshot, lost, .. } = shown(config, Some(path))?;
        if let Some(lost) = lost {
            eprintln!("sampletop: `{name}`: {lost}");
        }
        if let Some(redact) = config.output.redact {
            name = redact.key.words(&name);
        }
        Ok((name, snapshot))
    };
    let (before, after) = (of(before)?, of(after)?);
    let profiles = Pair { before, after };
    let profiles = profiles.map(|(name, snapshot)| Profile { name, snapshot });
    let settings =
        given.over(Settings { range: Range::Cumulative { since: None }, ..Settings::default() });
    let mut bytes = Vec::new();
    formats::diff::write(config.output.format, &profiles, &settings, per, &mut bytes)
        .map_err(|error| Failure::new(1, format!("cannot build the comparison: {error}")))?;
    Ok(headless::deliver(&bytes, config))
}

/// Keeps a session as the last one.
pub fn keep(snapshot: &Snapshot, settings: &Settings) -> Result<(), String> {
    let path = last().ok_or("HOME is not set")?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| {
        format!("cannot make `{}`: {}", directory.display(), crate::sinks::file::why(&error))
    })?;
    let mut bytes = Vec::new();
    saved::write(snapshot, settings, &mut bytes).map_err(|error| error.to_string())?;
    crate::sinks::file::save(&path, &bytes)
}

/// Returns the path of the last session.
fn last() -> Option<PathBuf> {
    Some(crate::sinks::file::state_directory()?.join("last.sampletop"))
}
