//! Keeps the profile of the last session, so that an accidental quit or a lost connection loses
//! nothing.

use std::path::{Path, PathBuf};

use crate::formats::saved;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::Settings;
use crate::sinks::file;

/// Replaces the last session by this one. Fails with one sentence.
pub fn keep(snapshot: &Snapshot, settings: &Settings) -> Result<(), String> {
    let path = path().ok_or("HOME is not set")?;
    file::make_directory(path.parent().unwrap_or(Path::new("/")))?;
    let mut bytes = Vec::new();
    saved::write(snapshot, settings, &mut bytes).map_err(|error| error.to_string())?;
    file::save(&path, &bytes)
}

/// Returns the path of the last session.
pub fn path() -> Option<PathBuf> {
    Some(file::state_directory()?.join("last.sampletop"))
}
