//! sampletop's own format, `.sampletop`: a whole snapshot, with all data that any setting can show.
//!
//! ```text
//! block     blocks with checksums, found again in a damaged file
//! bytes     numbers and text
//! listed    records of consecutive ids in blocks
//! blockers  what threads waited for
//! session   conditions, health, targets; how much there is of everything else
//! settings  what the view was set to
//! tables    names of threads, frames, their places, builds and origins of their files, stacks,
//!           blockers
//! threads   what threads were doing at the end
//! deadlocks threads that wait for each other
//! waits     what threads were found to wait for
//! wakeups   who woke threads
//! history   buckets of facts, and the cumulative table
//! spans     what threads did in order
//! ```
//!
//! A file is the line `sampletop profile`, then blocks in the order of the list above, then the
//! session again. Damage costs only the damaged block. Facts whose stacks were lost keep their
//! time, under a frame that says so.
//!
//! Readers skip blocks of unknown kinds, so new kinds may be added at any time. Any other change
//! increments [`FORMAT`], and readers support older formats for ever.

pub mod block;
mod blockers;
mod bytes;
mod deadlocks;
mod history;
mod listed;
mod session;
mod settings;
mod spans;
mod tables;
mod threads;
mod waits;
mod wakeups;

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::Settings;
use crate::model::vocabulary::text::clean;

pub use tables::LOST;
pub use threads::shown as shown_argument;

/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u64 = 2;

/// Kinds of blocks. A number is never reused.
pub mod kind {
    pub const SESSION: u32 = 1;
    pub const SETTINGS: u32 = 2;
    pub const NAMES: u32 = 3;
    pub const FRAMES: u32 = 4;
    pub const STACKS: u32 = 5;
    pub const THREADS: u32 = 6;
    pub const OPEN: u32 = 7;
    pub const CUMULATIVE: u32 = 8;
    pub const SEALED: u32 = 9;
    pub const BUILDS: u32 = 10;
    pub const ORIGINS: u32 = 11;
    pub const BLOCKERS: u32 = 12;
    pub const DEADLOCKS: u32 = 13;
    pub const WAITS: u32 = 14;
    pub const WAKEUPS: u32 = 15;
    pub const PLACES: u32 = 16;
    pub const SPANS: u32 = 17;
}

/// Writes `snapshot` and `settings`. The only errors are those of `out`.
pub fn write(snapshot: &Snapshot, settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    let session = session::write(snapshot, &session::Counts::of(snapshot));
    out.write_all(block::HEAD)?;
    block::write(out, kind::SESSION, &[&session])?;
    block::write(out, kind::SETTINGS, &[&settings::write(settings)])?;
    tables::write(&snapshot.tables, out)?;
    threads::write(&snapshot.threads, out)?;
    deadlocks::write(&snapshot.deadlocks, out)?;
    waits::write(&snapshot.observed_waits, out)?;
    if let Some(counted) = &snapshot.wakeups {
        wakeups::write(counted, out)?;
    }
    history::write(&snapshot.history, out)?;
    spans::write(snapshot.history.spans(), out)?;
    block::write(out, kind::SESSION, &[&session])
}

/// A saved profile.
#[derive(Debug)]
pub struct Opened {
    pub snapshot: Snapshot,
    /// The settings at the time of saving.
    pub settings: Settings,
    /// What is missing from the file, as one sentence.
    pub lost: Option<String>,
}

/// Why a file cannot be shown as a profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotAProfile {
    Foreign,
    /// The version of sampletop that wrote it, and its format.
    Newer {
        version: String,
        format: u64,
    },
    /// The file is a profile, but both copies of the session block are damaged.
    Ruined,
}

impl fmt::Display for NotAProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAProfile::Foreign => {
                f.write_str("this is not a sampletop profile; write one with `sampletop record -o NAME.sampletop`")
            }
            NotAProfile::Newer { version, format } => write!(
                f,
                "this profile was made by sampletop {version} in format {format}, and this one reads up to format {FORMAT}; open it with that version or a newer one"
            ),
            NotAProfile::Ruined => f.write_str(
                "this profile is too damaged to be read; copy it again from where it was recorded",
            ),
        }
    }
}

impl std::error::Error for NotAProfile {}

/// Maximum memory that a file may occupy, bytes: several times the largest profile of a session.
const MEMORY_MAX: usize = 512 << 20;

/// The unused part of [`MEMORY_MAX`].
struct Budget(usize);

impl Budget {
    fn take(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.checked_sub(bytes)?;
        Some(())
    }
}

/// Reads a file of [`write`], or its intact parts. `file` is untrusted.
pub fn read(file: &[u8]) -> Result<Opened, NotAProfile> {
    let blocks: Vec<_> = block::blocks(file).collect();
    let mut budget = Budget(MEMORY_MAX);
    let of = |kind: &'static [u32]| blocks.iter().filter(move |block| kind.contains(&block.kind));
    let unpack = |block: &block::Block<'_>, budget: &mut Budget| {
        // The budget for memory also bounds the time for decompression.
        budget.take(block.unpacked_len())?;
        block.unpack()
    };

    let mut found = None;
    for block in of(&[kind::SESSION]).take(SESSIONS_MAX) {
        let Some(bytes) = unpack(block, &mut budget) else { continue };
        match session::made_by(&bytes) {
            Some((format @ 1..=FORMAT, _)) => {
                found = session::read(&bytes).map(|found| (format, found));
            }
            Some((format, version)) if format > FORMAT => {
                let version = clean(&version, 40).into_owned();
                return Err(NotAProfile::Newer { version, format });
            }
            _ => {}
        }
        if found.is_some() {
            break;
        }
    }
    let ruined =
        || if file.starts_with(block::HEAD) { NotAProfile::Ruined } else { NotAProfile::Foreign };
    let (format, mut found) = found.ok_or_else(ruined)?;

    let settings =
        of(&[kind::SETTINGS]).next().and_then(|block| settings::read(&unpack(block, &mut budget)?));

    let mut tables = tables::Found::new(found.counts.tables);
    const TABLES: &[u32] = &[
        kind::NAMES,
        kind::FRAMES,
        kind::BUILDS,
        kind::ORIGINS,
        kind::PLACES,
        kind::STACKS,
        kind::BLOCKERS,
    ];
    for block in of(TABLES) {
        let bytes = unpack(block, &mut budget);
        bytes.and_then(|bytes| tables.take(block.kind, &bytes, &mut budget));
    }
    let (tables, lost_of_tables) = tables.tables().ok_or_else(ruined)?;

    let mut threads = Vec::new();
    for block in of(&[kind::THREADS]) {
        let bytes = unpack(block, &mut budget);
        bytes.and_then(|bytes| threads::take(format, &bytes, &tables, &mut budget, &mut threads));
    }
    let mut deadlocks = Vec::new();
    for block in of(&[kind::DEADLOCKS]) {
        let bytes = unpack(block, &mut budget);
        bytes.and_then(|bytes| deadlocks::take(&bytes, &mut budget, &mut deadlocks));
    }
    let mut waits = Vec::new();
    for block in of(&[kind::WAITS]) {
        let bytes = unpack(block, &mut budget);
        bytes.and_then(|bytes| waits::take(&bytes, &tables, &mut budget, &mut waits));
    }
    if let Some(wakeups) = &mut found.wakeups {
        for block in of(&[kind::WAKEUPS]) {
            let bytes = unpack(block, &mut budget);
            bytes.and_then(|bytes| wakeups::take(&bytes, &mut budget, wakeups));
        }
    }
    let mut history = history::Found::default();
    for block in of(&[kind::OPEN, kind::CUMULATIVE, kind::SEALED]) {
        let bytes = unpack(block, &mut budget);
        bytes.and_then(|bytes| history.take(format, block.kind, &bytes, &tables, &mut budget));
    }
    let mut spans = spans::Found::new(found.span.0);
    for block in of(&[kind::SPANS]) {
        let bytes = unpack(block, &mut budget);
        bytes.and_then(|bytes| spans.take(&bytes, &tables, &mut budget));
    }
    let (spans, lost_of_spans) = spans.log(found.counts.spans);
    let (history, lost_of_history) =
        history.history(found.span, found.counts.history, spans).ok_or_else(ruined)?;

    let lost = session::Counts {
        tables: lost_of_tables,
        history: lost_of_history,
        spans: lost_of_spans,
        threads: found.counts.threads.saturating_sub(threads.len()),
        waits: found.counts.waits.saturating_sub(waits.len()),
        wakeups: (found.wakeups.as_ref())
            .map_or(0, |wakeups| found.counts.wakeups.saturating_sub(wakeups.pairs.len())),
    };
    let lost = sentence(&lost, &found.counts, settings.as_ref().map(|(_, wrong)| wrong.as_slice()));
    let snapshot = Snapshot {
        session: Arc::new(found.session),
        targets: found.targets,
        at: found.at,
        capture: found.capture,
        health: found.health,
        tables,
        history,
        threads: threads.into(),
        deadlocks: deadlocks.into(),
        observed_waits: waits.into(),
        wakeups: found.wakeups.map(Arc::new),
        notice: found.notice,
        stopped: found.stopped,
    };
    Ok(Opened {
        snapshot,
        settings: settings.map(|(settings, _)| settings).unwrap_or_default(),
        lost,
    })
}

/// Maximum session blocks tried until one is intact; a file has two.
const SESSIONS_MAX: usize = 16;

/// Describes the missing part of `of`. `settings`: names of the settings that were not understood.
fn sentence(
    lost: &session::Counts,
    of: &session::Counts,
    settings: Option<&[String]>,
) -> Option<String> {
    let parts = [
        (lost.tables.names as u64, of.tables.names as u64, "names of threads"),
        (lost.tables.frames as u64, of.tables.frames as u64, "names of frames"),
        (lost.tables.builds as u64, of.tables.builds as u64, "build ids of frames"),
        (lost.tables.stacks as u64, of.tables.stacks as u64, "stacks"),
        (lost.tables.blockers as u64, of.tables.blockers as u64, "locks and their holders"),
        (lost.threads as u64, of.threads as u64, "states of threads"),
        (lost.waits as u64, of.waits as u64, "files, peers and children waited for"),
        (lost.wakeups as u64, of.wakeups as u64, "pairs of who woke whom"),
        (lost.history.open, of.history.open, "of the newest seconds"),
        (lost.history.sealed, of.history.sealed, "older pieces of history"),
        (lost.history.cumulative, of.history.cumulative, "sums since the start"),
        (lost.spans, of.spans, "spans of the last two minutes"),
    ];
    let mut missing: Vec<String> =
        (parts.iter().filter(|(lost, ..)| *lost > 0))
            .map(|(lost, of, what)| {
                if lost == of {
                    format!("all {of} {what}")
                } else {
                    format!("{lost} of {of} {what}")
                }
            })
            .collect();
    if settings.is_none() {
        missing.push("the settings".into());
    }
    let damaged = (!missing.is_empty())
        .then(|| format!("the file is damaged or was cut off; missing: {}", missing.join(", ")));
    let unknown = settings.filter(|unknown| !unknown.is_empty()).map(|unknown| {
        format!(
            "settings that this version of sampletop does not understand have their default: {}",
            unknown.join(", ")
        )
    });
    match (damaged, unknown) {
        (Some(damaged), Some(unknown)) => Some(format!("{damaged}; {unknown}")),
        (damaged, unknown) => damaged.or(unknown),
    }
}
