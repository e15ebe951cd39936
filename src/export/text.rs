//! Placeholder head.

use std::io::{self, Write};

use crate::model::settings::Settings;
use crate::model::snapshot::Snapshot;

pub fn write(snapshot: &Snapshot, settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    let _ = (snapshot, settings, out);
    Ok(())
}
