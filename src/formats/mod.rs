//! Profiles as bytes and back: one module per format. Reads the model, opens no file.
//!
//! ```text
//! text      for people and tickets
//! json      for scripts: sampletop/2
//! classic   the report format of the Java library perf-sampler, for scripts that read it
//! folded    one line per stack, for flame graph tools
//! pprof     profile.proto, gzipped, which `go tool pprof` reads
//! svg       a flame graph as an image that responds to clicks
//! html      a flame graph and a table as an interactive page
//! speedscope  for speedscope.app
//! firefox   for profiler.firefox.com, along time
//! dump      every thread's stack once, as text or JSON (sampletop-dump/1)
//! diff      changes from one profile to another, as text or JSON (sampletop-diff/2)
//! ascii     any text as printable ASCII of bounded width
//! dates     moments of a session as dates
//! saved     the own format, which can be opened again
//! import    profiles of other tools (pprof, folded stacks)
//! ```

use std::io::{self, Write};

use crate::config::Format;
use crate::model::facts::snapshot::{Snapshot, Target};
use crate::model::projection::settings::{Level, Rename, Settings};
use crate::model::vocabulary::frame::{ThreadKey, ThreadKind};

mod ascii;
pub mod classic;
mod dates;
pub use dates::unix_ns;
pub mod diff;
pub mod dump;
pub mod firefox;
#[cfg(test)]
pub mod fixture;
pub mod folded;
pub mod html;
pub mod import;
pub mod json;
pub mod pprof;
pub mod saved;
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
    // Other tools group and hide frames themselves.
    let all = &Settings { level: Level::All, ..settings.clone() };
    match format {
        Format::Text => text::write(snapshot, settings, out),
        Format::Json => json::write(snapshot, all, out),
        Format::Folded => folded::write(snapshot, all, out),
        Format::Pprof => pprof::write(snapshot, all, out),
        Format::Classic => classic::write(snapshot, all, out),
        Format::Speedscope => speedscope::write(snapshot, all, out),
        Format::Svg => svg::write(snapshot, all, out),
        Format::Html => html::write(snapshot, settings, out),
        Format::Firefox => firefox::write(snapshot, all, out),
        Format::Sampletop => saved::write(snapshot, settings, out),
    }
}

/// The program's name and version, for formats that have a place for it.
const PROGRAM: &str = concat!("sampletop ", env!("CARGO_PKG_VERSION"));

/// Stands for stacks of which the hide filter removed every frame: their time is shown, so it needs
/// a row.
const FRAMELESS: &str = "[every frame hidden]";

/// Returns the word for what a thread is to its runtime. A goroutine that waits is on no thread.
fn kind_word(thread: ThreadKey, kind: ThreadKind) -> &'static str {
    if thread.is_goroutine() { "goroutine" } else { kind.word() }
}

/// Returns the last part of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the name of the program's own file, from its command line.
pub fn program(target: &Target) -> &str {
    base(target.command.split(' ').next().unwrap_or(""))
}

/// Formats a rule as `--rename` accepts it.
fn rename(rule: &Rename) -> String {
    format!("s/{}/{}/", rule.pattern.as_str().replace('/', "\\/"), rule.text.replace('/', "\\/"))
}
