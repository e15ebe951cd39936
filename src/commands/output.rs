//! Where a subcommand's result goes, in which format, and under which names.

use std::borrow::Cow;
use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::config::{self, Format};
use crate::exit_code::Failure;
use crate::formats;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::Settings;
use crate::model::transform::redact::{Key, Redactor};
use crate::sinks::file;

/// The file named with `-o`, or stdout.
pub struct Output<'a> {
    config: &'a config::Output,
}

impl<'a> Output<'a> {
    pub fn new(config: &'a config::Output) -> Output<'a> {
        Output { config }
    }

    pub fn format(&self) -> Format {
        self.config.format
    }

    /// `None`: stdout.
    pub fn path(&self) -> Option<&'a Path> {
        self.config.path.as_deref()
    }

    /// Returns the key under which names are replaced, if they are.
    pub fn redact_key(&self) -> Option<Key> {
        self.config.redact.map(|redact| redact.key)
    }

    pub fn redactor(&self) -> Option<Redactor> {
        self.redact_key().map(Redactor::new)
    }

    /// Returns the snapshot to write: unchanged, or with replaced names.
    pub fn redacted<'s>(&self, snapshot: &'s Snapshot) -> Cow<'s, Snapshot> {
        match self.redactor() {
            Some(mut redactor) => Cow::Owned(redactor.snapshot(snapshot)),
            None => Cow::Borrowed(snapshot),
        }
    }

    /// Fails where the file could not be written later, as in a read-only directory.
    pub fn probe(&self) -> Result<(), Failure> {
        self.path().map_or(Ok(()), |path| file::probe(path).map_err(Failure::failed))
    }

    /// Builds the profile in the requested format and delivers it.
    pub fn write_profile(&self, snapshot: &Snapshot, settings: &Settings) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        formats::write(self.format(), &self.redacted(snapshot), settings, &mut bytes)
            .map_err(|error| Failure::failed(format!("cannot build the profile: {error}")))?;
        self.deliver(&bytes)
    }

    /// Writes the bytes as the whole result.
    pub fn deliver(&self, bytes: &[u8]) -> Result<(), Failure> {
        if let Some(path) = self.path() {
            return file::save(path, bytes).map_err(Failure::failed);
        }
        let mut out = std::io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            // A reader that closes early (`| head`) is no failure.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::failed(format!("cannot write to stdout: {error}")))
            }
            _ => Ok(()),
        }
    }
}
