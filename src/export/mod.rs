//! Profiles as files: one module per format. Reads the model, writes bytes; opens nothing (`file`
//! aside).
//!
//! ```text
//! text      what people paste into a ticket
//! json      what scripts read: sampletop/2
//! classic   as the Java library perf-sampler writes its reports, for scripts that read those
//! folded    one line per stack, for flame graph tools
//! pprof     profile.proto, gzipped, which `go tool pprof` reads
//! svg       a flame graph as an image that answers to clicks
//! html      a flame graph and a table as a page to walk through
//! speedscope  for speedscope.app
//! firefox   for profiler.firefox.com, along time
//! dump      every thread's stack once, as text or JSON (sampletop-dump/1)
//! diff      what changed from one profile to another, as text or JSON (sampletop-diff/2)
//! ascii     text of any kind as printable ASCII of a bounded width
//! dates     moments of a session as dates
//! file      where the bytes go: whole or not at all
//! series    where reports go that come one after the other
//! ```
//!
//! The format that can be opened again is [`crate::saved`].

use std::io::{self, Write};

use crate::config::Format;
use crate::model::facts::snapshot::{Snapshot, Target};
use crate::model::projection::settings::{Grouping, Rename, Settings};
use crate::saved;

mod ascii;
pub mod classic;
mod dates;
pub use dates::unix_ns;
pub mod diff;
pub mod dump;
pub mod file;
pub mod firefox;
#[cfg(test)]
mod fixture;
pub mod folded;
pub mod html;
pub mod json;
pub mod pprof;
pub mod series;
pub mod speedscope;
pub mod svg;
pub mod text;
mod trees;

/// Writes what `settings` show of `snapshot`. The only errors are those of `out`.
pub fn write(
    format: Format,
    snapshot: &Snapshot,
    settings: &Settings,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Text => text::write(snapshot, settings, out),
        Format::Json => json::write(snapshot, settings, out),
        Format::Folded => folded::write(snapshot, settings, out),
        Format::Pprof => pprof::write(snapshot, settings, out),
        Format::Classic => classic::write(snapshot, settings, out),
        Format::Speedscope => speedscope::write(snapshot, settings, out),
        Format::Svg => svg::write(snapshot, settings, out),
        Format::Html => html::write(snapshot, settings, out),
        Format::Firefox => firefox::write(snapshot, settings, out),
        Format::Sampletop => saved::write(snapshot, settings, out),
    }
}

/// Who writes, for formats that have a place for that.
const PROGRAM: &str = concat!("sampletop ", env!("CARGO_PKG_VERSION"));

/// Stands for stacks of which the hide filter left no frame: their time is shown, so it needs a
/// row.
const FRAMELESS: &str = "[every frame hidden]";

/// The last part of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What the program's own file is called, by its command line.
pub fn program(target: &Target) -> &str {
    base(target.command.split(' ').next().unwrap_or(""))
}

/// As `--group` takes it.
fn grouping(settings: &Settings) -> String {
    match &settings.grouping {
        Grouping::Frame(pattern) => format!("frame:{pattern}"),
        grouping => grouping.word().to_owned(),
    }
}

/// As `--rename` takes it.
fn rename(rule: &Rename) -> String {
    format!("s/{}/{}/", rule.pattern.as_str().replace('/', "\\/"), rule.text.replace('/', "\\/"))
}
