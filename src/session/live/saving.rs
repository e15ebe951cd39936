//! The files of a snapshot that the user saves.

use std::path::PathBuf;
use std::sync::Arc;

use super::source::NAMES_WITHIN;
use crate::config::Format;
use crate::formats;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::Settings;
use crate::reducer::Asker;

/// Writes the text report and the complete profile under their usual names in the current
/// directory. Returns their names, or one sentence.
pub fn save(
    snapshot: Arc<Snapshot>,
    settings: &Settings,
    asker: Option<Asker>,
) -> Result<Vec<PathBuf>, String> {
    let mut snapshot = snapshot;
    if snapshot.health.naming
        && let Some(named) = asker.and_then(|asker| asker.snapshot(NAMES_WITHIN))
    {
        // Newer tables hold everything that older ones hold, and more names.
        let mut with_names = Snapshot::clone(&snapshot);
        with_names.tables = named.tables.clone();
        snapshot = Arc::new(with_names);
    }
    let pid = snapshot.targets.first().map_or(0, |t| t.pid);
    let unix_ns = snapshot.session.started_unix_ns
        + i128::from(snapshot.at.saturating_sub(snapshot.session.started));
    let report = PathBuf::from(crate::sinks::file::name(
        &snapshot.session.host,
        &pid.to_string(),
        unix_ns,
        "txt",
    ));
    let mut written = Vec::new();
    for format in [Format::Text, Format::Sampletop] {
        let path = report.with_extension(format.extensions()[0]);
        let mut bytes = Vec::new();
        let built = formats::write(format, &snapshot, settings, &mut bytes);
        built.map_err(|error| format!("cannot build the {} file: {error}", format.word()))?;
        crate::sinks::file::save(&path, &bytes)?;
        written.push(std::path::absolute(&path).unwrap_or(path));
    }
    Ok(written)
}
