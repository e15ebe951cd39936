//! Profiles as files: one module per format. Reads the model, writes bytes; opens nothing (`file` aside).
//!
//! ```text
//! text      what people paste into a ticket
//! json      what scripts read: sampletop/1
//! folded    one line per stack, for flame graph tools
//! dump      every thread's stack once, as text or JSON (sampletop-dump/1)
//! file      where the bytes go: whole or not at all
//! ```

use std::io::{self, Write};

use crate::config::Format;
use crate::model::settings::Settings;
use crate::model::snapshot::Snapshot;

pub mod dump;
pub mod file;
pub mod folded;
pub mod json;
pub mod text;

/// Writes what `settings` show of `snapshot`. The only errors are those of `out`.
pub fn write(format: Format, snapshot: &Snapshot, settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Text => text::write(snapshot, settings, out),
        Format::Json => json::write(snapshot, settings, out),
        Format::Folded => folded::write(snapshot, settings, out),
    }
}
