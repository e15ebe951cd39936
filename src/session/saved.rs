//! Profiles in files: that of the last session is kept, any is opened or written in another format.

use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::Failure;
use crate::config::{Config, Format, Given};
use crate::model::settings::{Range, Settings};
use crate::model::snapshot::Snapshot;
use crate::model::text::clean;
use crate::saved::{self, Opened};
use crate::{export, headless};

/// Bytes of a file that are read; the largest session has some 80 MB.
const FILE_MAX: u64 = 1 << 30;

/// Reads a profile; without a path that of the last session.
pub fn load(path: Option<&Path>) -> Result<Opened, Failure> {
    let kept = || last().ok_or_else(|| Failure::new(2, "no session was kept: HOME is not set; name a file"));
    let (path, named) = match path {
        Some(path) => (path.to_owned(), true),
        None => (kept()?, false),
    };
    let shown = clean(&path.to_string_lossy(), 200).into_owned();
    let failed = |error: std::io::Error| {
        let sentence = match error.kind() {
            std::io::ErrorKind::NotFound if !named => {
                format!("no session was kept at `{shown}`: the live view does when it is left; or name a file")
            }
            _ => format!("cannot read `{shown}`: {}", export::file::why(&error)),
        };
        Failure::new(2, sentence)
    };
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(failed)?;
    file.take(FILE_MAX).read_to_end(&mut bytes).map_err(failed)?;
    saved::read(&bytes).map_err(|error| Failure::new(2, format!("`{shown}`: {error}")))
}

/// Writes it as `config` says, under its own settings and what is `given`; all of it, unless a window is.
pub fn convert(config: &Config, opened: Opened, given: &Given, max_lines: Option<usize>) -> Result<i32, Failure> {
    let Opened { snapshot, settings, lost } = opened;
    if let Some(lost) = lost {
        eprintln!("sampletop: {lost}");
    }
    let settings = given.over(Settings { range: Range::Cumulative { since: None }, ..settings });
    let mut bytes = Vec::new();
    let built = match (config.output.format, max_lines) {
        (Format::Text, Some(most)) => export::text::write_within(&snapshot, &settings, most, &mut bytes),
        (format, _) => export::write(format, &snapshot, &settings, &mut bytes),
    };
    built.map_err(|error| Failure::new(1, format!("cannot build the profile: {error}")))?;
    Ok(headless::deliver(&bytes, config))
}

/// Keeps a session as the last one.
pub fn keep(snapshot: &Snapshot, settings: &Settings) -> Result<(), String> {
    let path = last().ok_or("HOME is not set")?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| format!("cannot make `{}`: {}", directory.display(), export::file::why(&error)))?;
    let mut bytes = Vec::new();
    saved::write(snapshot, settings, &mut bytes).map_err(|error| error.to_string())?;
    export::file::save(&path, &bytes)
}

/// Where the last session is: in the XDG state directory.
fn last() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("sampletop/last.sampletop"))
}
