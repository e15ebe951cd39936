//! Timed runs without a screen: `record`, `demo --once`, `dump`, `report`. [`Source`] abstracts the
//! watched session, so that all of it runs in a test.

mod report;
mod stacks;
#[cfg(test)]
mod tests;

pub use report::report;

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{Config, Format, TargetSpec};
use crate::formats;
use crate::formats::dump::{Dump, DumpThread};
use crate::model::facts::snapshot::{Snapshot, Target};
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::settings::Filters;
use crate::model::projection::waits::{Answer, Asked};
use crate::model::transform::redact::Redactor;
use crate::model::vocabulary::frame::{Marker, Ns, ThreadKey, ThreadKind};
use crate::model::vocabulary::text::clean;
use stacks::{Stacks, is_young};

/// Maximum time that an export waits for names that are still being loaded.
pub const NAMES_WITHIN: Duration = Duration::from_secs(10);

/// A session that is being watched.
pub trait Source {
    /// Waits up to `timeout` for the target's exit or a request to stop.
    fn wait(&mut self, timeout: Duration) -> Waited;
    /// Returns the time since the first observation.
    fn elapsed(&mut self) -> Duration;
    /// Returns the samples and losses so far, for the progress line.
    fn progress(&mut self) -> Progress;
    /// Returns a snapshot of this moment; with `named`, waits for names that are still being
    /// loaded.
    fn snapshot(&mut self, named: bool) -> Option<Arc<Snapshot>>;
    /// Returns what these threads wait for, as far as it is found out within `timeout`.
    fn waits(&mut self, asked: Vec<Asked>, timeout: Duration) -> Vec<Answer>;
    /// Returns a snapshot as `snapshot(true)` does and starts the next one: later observations go
    /// there, and nothing of this one does.
    fn cut(&mut self) -> Option<Arc<Snapshot>>;
    /// Pauses or resumes sampling.
    fn pause(&mut self, pause: bool);
    /// Returns the watched processes that have not exited.
    fn living(&mut self) -> Vec<Target>;
    /// Returns the wall clock, ns since 1970.
    fn unix_ns(&mut self) -> i128;
    /// Stops watching and returns everything; `None` if there is nothing to return any more.
    fn finish(&mut self) -> Option<Arc<Snapshot>>;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The time has passed.
    Timeout,
    /// The target exited.
    Ended,
    /// The first SIGINT, SIGTERM or SIGHUP: write what there is. (A second one ends the process.) A
    /// [`report`] continues after SIGHUP.
    Interrupted,
    /// A request to a [`report`].
    Asked(Request),
}

/// What signals request of a [`report`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// SIGUSR1: write a report now.
    Report,
    /// SIGHUP: the output file was moved.
    Reopen,
    /// SIGUSR2, SIGCONT.
    Pause,
    Resume,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    pub samples: u64,
    pub dropped: u64,
}

/// Keeps a profile that could not be written to its destination.
pub type Keep<'a> = &'a dyn Fn(&Snapshot) -> Result<(), String>;

/// Records until `duration` has passed since the first observation (`None`: until the target
/// exits). Writes the profile and returns the exit code.
pub fn record(
    source: &mut dyn Source,
    config: &Config,
    duration: Option<Duration>,
    keep: Option<Keep<'_>>,
) -> i32 {
    let to_person = config.output.path.is_some() && std::io::stderr().is_terminal();
    // A COMMAND uses the terminal itself.
    let show_progress = to_person && !matches!(config.target, Some(TargetSpec::Command(_)));
    loop {
        let left = duration.map(|d| d.saturating_sub(source.elapsed()));
        if left == Some(Duration::ZERO) {
            break;
        }
        let step = left.unwrap_or(Duration::MAX).min(Duration::from_millis(250));
        match source.wait(step) {
            Waited::Timeout | Waited::Asked(_) => {}
            Waited::Ended | Waited::Interrupted => break,
        }
        if show_progress {
            progress_line(source.progress(), source.elapsed(), duration);
        }
    }
    if show_progress {
        eprint!("\r\x1b[K");
    }
    let elapsed = source.elapsed();
    let Some(snapshot) = source.finish() else { return lost("recording") };
    if is_empty(&snapshot) {
        return nothing(&snapshot);
    }
    let code = write_profile(&snapshot, config);
    if let (1, Some(keep)) = (code, keep) {
        // A full or broken disk must not lose what took hours to record.
        match keep(&shown(&snapshot, config)) {
            Ok(()) => {
                eprintln!(
                    "sampletop: the profile is kept as the last session: `sampletop open -o FILE` writes it"
                )
            }
            Err(sentence) => {
                eprintln!("sampletop: and it could not be kept as the last session: {sentence}")
            }
        }
    }
    if let (0, true, Some(path)) = (code, to_person, &config.output.path) {
        let (losses, elapsed) = (&snapshot.health.losses, elapsed.as_secs_f64());
        let path = path.to_string_lossy();
        let path = clean(&path, 200);
        eprintln!("{path}: {elapsed:.1} s, {} stacks, {} lost", losses.samples, losses.dropped);
    }
    code
}

fn lost(what: &str) -> i32 {
    eprintln!("sampletop: the {what} was lost because an internal thread died; please report this");
    1
}

fn is_empty(snapshot: &Snapshot) -> bool {
    snapshot.health.losses.samples == 0 && snapshot.health.ticks == 0
}

fn nothing(snapshot: &Snapshot) -> i32 {
    let pid = snapshot.targets.first().map_or(0, |t| t.pid);
    eprintln!(
        "sampletop: process {pid} ended before any sample was taken; start it under sampletop with `record -- COMMAND`"
    );
    6
}

fn progress_line(progress: Progress, elapsed: Duration, duration: Option<Duration>) {
    let mut err = std::io::stderr().lock();
    let seconds = elapsed.as_secs();
    let _ = match duration {
        Some(total) => {
            let share = (elapsed.as_secs_f64() / total.as_secs_f64()).min(1.0);
            let filled = (share * 20.0) as usize;
            write!(
                err,
                "\r\x1b[K[{}{}] {} s left  {} stacks  {} lost",
                "#".repeat(filled),
                ".".repeat(20 - filled),
                total.saturating_sub(elapsed).as_secs_f64().ceil(),
                progress.samples,
                progress.dropped
            )
        }
        None => {
            write!(
                err,
                "\r\x1b[K{seconds} s  {} stacks  {} lost  (Ctrl-C ends)",
                progress.samples, progress.dropped
            )
        }
    };
    let _ = err.flush();
}

/// Maximum time to observe all threads once.
const LOOKED_WITHIN: Duration = Duration::from_secs(5);
/// Maximum time to find out what all threads wait for.
const WAITS_WITHIN: Duration = Duration::from_secs(2);

/// Writes every thread's stack once; returns the exit code. Text groups threads with equal stacks
/// unless `each` is set.
pub fn dump(source: &mut dyn Source, config: &Config, each: bool) -> i32 {
    if each && config.output.format == Format::Json {
        eprintln!("sampletop: `--each` changes nothing in json, which lists each thread anyway");
    }
    let started = Instant::now();
    let mut first_tick = None;
    let mut ended = false;
    let mut stacks = Stacks::default();
    let last = loop {
        match source.wait(Duration::from_millis(10)) {
            Waited::Timeout | Waited::Asked(_) => {}
            Waited::Ended => ended = true,
            Waited::Interrupted => return 130,
        }
        let Some(snapshot) = source.snapshot(false) else { return lost("dump") };
        let mut done = ended || started.elapsed() >= LOOKED_WITHIN;
        if snapshot.health.ticks > 0 {
            let (began, _) = *first_tick.get_or_insert_with(|| (Instant::now(), snapshot.at));
            done |= stacks.take(&snapshot, began.elapsed());
        }
        if done {
            break snapshot;
        }
    };
    // Names take longer than stacks. Sampling pauses meanwhile, so that the dump shows one moment.
    source.pause(true);
    let Some(named) = source.snapshot(true) else { return lost("dump") };
    let took_ns = first_tick.map_or(0, |(_, at)| last.at.saturating_sub(at));
    let mut snapshot =
        Snapshot { at: last.at, threads: stacks.threads(&last), ..Snapshot::clone(&named) };
    if is_young(&last) {
        let young =
            "the process began less than 5 s before: it may not have started all of its threads";
        snapshot.notice = Some(
            snapshot.notice.map_or(young.into(), |notice| format!("{notice}; {young}").into()),
        );
    }
    if snapshot.threads.is_empty() {
        let pid = snapshot.targets.first().map_or(0, |t| t.pid);
        eprintln!(
            "sampletop: process {pid} ended before its threads could be looked at; start it again and dump it while it runs"
        );
        return 6;
    }
    let asked = snapshot.threads.iter().filter_map(|thread| Asked::of(&snapshot, thread)).collect();
    let waits = source.waits(asked, WAITS_WITHIN);
    let mut bytes = Vec::new();
    let redactor = config.output.redact.map(|redact| Redactor::new(redact.key));
    let dump = build_dump(
        &shown(&snapshot, config),
        took_ns,
        &waits,
        &config.settings.filters,
        redactor.as_ref(),
    );
    let written = match config.output.format {
        Format::Json => formats::dump::write_json(&dump, &mut bytes),
        // A dump has no other formats.
        _ => formats::dump::write_text(&dump, each, &mut bytes),
    };
    if let Err(error) = written {
        eprintln!("sampletop: cannot build the dump: {error}");
        return 1;
    }
    deliver(&bytes, config)
}

/// Builds the dump of the threads as the last snapshot has them, in the order of their ids.
fn build_dump(
    snapshot: &Snapshot,
    took_ns: Ns,
    waits: &[Answer],
    filters: &Filters,
    redactor: Option<&Redactor>,
) -> Dump {
    let tables = &snapshot.tables;
    let waits: HashMap<ThreadKey, &Answer> =
        waits.iter().map(|answer| (answer.asked.thread, answer)).collect();
    let mut threads: Vec<DumpThread> = snapshot
        .threads
        .iter()
        .filter(|now| !(filters.skip_daemon && tables.kind(now.name) != ThreadKind::Plain))
        .map(|now| {
            let mut frames: Vec<Location> = Vec::new();
            for frame in tables.frames_innermost_first(now.stack) {
                // Within one raw frame the names are outermost first.
                frames.extend(tables.named(frame).locations.iter().rev().cloned());
            }
            frames.retain(|frame| !(filters.no_kernel && frame.kind == FrameKind::Kernel));
            frames.dedup_by(|a, b| a.is_unnamed_kernel() && b.is_unnamed_kernel());
            if frames.is_empty() {
                frames.push(marker(Marker::NotSampled));
            }
            DumpThread {
                thread: now.thread,
                name: Arc::clone(tables.name(now.name)),
                kind: tables.kind(now.name),
                state: now.state.resolve(tables.futex_kind(now.stack)),
                waits_for: waits.get(&now.thread).map(|answer| match redactor {
                    Some(redactor) => redactor.waits_for(answer).to_string(),
                    None => answer.waits_for.to_string(),
                }),
                cpu_ns: now.run_ns,
                complete: frames.iter().all(|f| f.kind != FrameKind::Marker),
                recovered: now.recovered,
                frames,
            }
        })
        .collect();
    threads.sort_by_key(|t| (t.thread.pid, t.thread.tid));
    Dump {
        session: Arc::clone(&snapshot.session),
        targets: Arc::clone(&snapshot.targets),
        at: snapshot.at,
        took_ns,
        capture: Arc::clone(&snapshot.capture),
        notice: snapshot.notice.clone(),
        threads,
    }
}

fn marker(marker: Marker) -> Location {
    Location {
        function: marker.text(None).into(),
        module: "".into(),
        file: None,
        line: None,
        kind: FrameKind::Marker,
        tier: None,
    }
}

/// Returns the snapshot to write: unchanged, or with hashed names.
pub fn shown<'a>(snapshot: &'a Snapshot, config: &Config) -> Cow<'a, Snapshot> {
    match config.output.redact {
        Some(redact) => Cow::Owned(Redactor::new(redact.key).snapshot(snapshot)),
        None => Cow::Borrowed(snapshot),
    }
}

/// Writes in the configured format to the configured place; returns the exit code.
pub fn write_profile(snapshot: &Snapshot, config: &Config) -> i32 {
    let mut bytes = Vec::new();
    let written = formats::write(
        config.output.format,
        &shown(snapshot, config),
        &config.settings,
        &mut bytes,
    );
    if let Err(error) = written {
        eprintln!("sampletop: cannot build the profile: {error}");
        return 1;
    }
    deliver(&bytes, config)
}

/// Writes the bytes to the file named with -o, or to stdout.
pub fn deliver(bytes: &[u8], config: &Config) -> i32 {
    let result = match &config.output.path {
        Some(path) => crate::sinks::file::save(path, bytes),
        None => {
            let mut out = std::io::stdout().lock();
            match out.write_all(bytes).and_then(|()| out.flush()) {
                // A reader that closes early (`| head`) is no failure.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                other => other.map_err(|e| format!("cannot write to stdout: {e}")),
            }
        }
    };
    match result {
        Ok(()) => 0,
        Err(sentence) => {
            eprintln!("sampletop: {sentence}");
            1
        }
    }
}
