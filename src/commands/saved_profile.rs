//! Reads a profile from a file, for the subcommands that take one.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::output::Output;
use crate::config::Config;
use crate::exit_code::Failure;
use crate::formats;
use crate::formats::saved::{self, NotAProfile, Opened};
use crate::model::transform::redact;
use crate::model::vocabulary::text::clean;
use crate::session::last_session;
use crate::session::live::Against;
use crate::sinks::file;

/// Maximum bytes read of a file; the largest session has about 80 MB.
const FILE_MAX: u64 = 1 << 30;

/// Reads a profile of sampletop or another tool; without a path that of the last session.
pub fn load(path: Option<&Path>) -> Result<Opened, Failure> {
    let kept = || {
        let none = || Failure::usage("no session was kept: HOME is not set; name a file");
        last_session::path().ok_or_else(none)
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
            _ => format!("cannot read `{shown}`: {}", file::why(&error)),
        };
        Failure::usage(sentence)
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
    read.map_err(|sentence| Failure::usage(format!("`{shown}`: {sentence}")))
}

/// Calls [`load`] and replaces names if `--redact` is set.
pub fn redacted(output: &Output, path: Option<&Path>) -> Result<Opened, Failure> {
    let Opened { snapshot, settings, lost } = load(path)?;
    let snapshot = output.redacted(&snapshot).into_owned();
    let settings = match output.redactor() {
        Some(_) => {
            let (settings, dropped) = redact::settings(&settings);
            if dropped {
                eprintln!(
                    "sampletop: settings of the file that hold names are dropped, since names are replaced"
                );
            }
            settings
        }
        None => settings,
    };
    Ok(Opened { snapshot, settings, lost })
}

/// Reads the profile that the live view compares with, if one was named.
pub fn against(config: &Config, output: &Output) -> Result<Option<Against>, Failure> {
    let Some(path) = &config.against else { return Ok(None) };
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let mut name = clean(&name, 200).into_owned();
    if let Some(key) = output.redact_key() {
        name = key.words(&name);
    }
    Ok(Some(Against { name, opened: redacted(output, Some(path))? }))
}
