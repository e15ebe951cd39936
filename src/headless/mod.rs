//! Timed runs without a screen: `record`, `demo --once`, `dump`, `report`. What is watched is
//! behind [`Source`], so that all of it runs in a test.

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
use crate::export;
use crate::export::dump::{Dump, DumpThread};
use crate::model::facts::snapshot::{Snapshot, Target};
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::settings::Filters;
use crate::model::projection::waits::{Answer, Asked};
use crate::model::transform::redact::Redactor;
use crate::model::vocabulary::frame::{Marker, Ns, ThreadKey, ThreadKind};
use crate::model::vocabulary::text::clean;
use stacks::{Stacks, is_young};

/// How long an export waits for names that are still being loaded.
pub const NAMES_WITHIN: Duration = Duration::from_secs(10);

/// A session that is being watched.
pub trait Source {
    /// Waits up to `timeout` for the target's end or a request to stop.
    fn wait(&mut self, timeout: Duration) -> Waited;
    /// Time since the first observation.
    fn elapsed(&mut self) -> Duration;
    /// Samples so far and losses, for the progress line.
    fn progress(&mut self) -> Progress;
    /// A snapshot of this moment; with `named`, waits for names that are still being loaded.
    fn snapshot(&mut self, named: bool) -> Option<Arc<Snapshot>>;
    /// What these threads wait for, as far as it is found out within `timeout`.
    fn waits(&mut self, asked: Vec<Asked>, timeout: Duration) -> Vec<Answer>;
    /// As `snapshot(true)`; what is seen from then on comes into the next one, which has nothing of
    /// this.
    fn cut(&mut self) -> Option<Arc<Snapshot>>;
    /// Nobody looks until it is said otherwise.
    fn pause(&mut self, pause: bool);
    /// Those that are watched and have not ended.
    fn living(&mut self) -> Vec<Target>;
    /// The clock on the wall, ns since 1970.
    fn unix_ns(&mut self) -> i128;
    /// Ends the watching and answers with everything; `None` if nothing can be had any more.
    fn finish(&mut self) -> Option<Arc<Snapshot>>;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The time has passed.
    Timeout,
    /// The target ended.
    Ended,
    /// SIGINT, SIGTERM or SIGHUP, the first: write what there is. (A second one ends the process.)
    /// A [`report`] goes on after SIGHUP.
    Interrupted,
    /// Of a [`report`].
    Asked(Request),
}

/// What signals ask of a [`report`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// SIGUSR1: one now.
    Report,
    /// SIGHUP: its file was moved.
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

/// Keeps a profile that could not be written where it was to go.
pub type Keep<'a> = &'a dyn Fn(&Snapshot) -> Result<(), String>;

/// Records until `duration` has passed since the first observation (`None`: until the target ends),
/// writes the profile, answers the exit code.
pub fn record(
    source: &mut dyn Source,
    config: &Config,
    duration: Option<Duration>,
    keep: Option<Keep<'_>>,
) -> i32 {
    let to_person = config.output.path.is_some() && std::io::stderr().is_terminal();
    // A COMMAND has the terminal for itself.
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
        // What took hours to record is not lost with a disk.
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

/// How long looking at all threads may take.
const LOOKED_WITHIN: Duration = Duration::from_secs(5);
/// How long it may take to find out what all threads wait for.
const WAITS_WITHIN: Duration = Duration::from_secs(2);

/// Writes every thread's stack once, in text those that are equal together unless `each` is to have
/// its own; answers the exit code.
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
    // Names take longer than stacks. Meanwhile nothing is sampled, and the dump stays that of one
    // moment.
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
        Format::Json => export::dump::write_json(&dump, &mut bytes),
        // The others are none for it.
        _ => export::dump::write_text(&dump, each, &mut bytes),
    };
    if let Err(error) = written {
        eprintln!("sampletop: cannot build the dump: {error}");
        return 1;
    }
    deliver(&bytes, config)
}

/// The threads as the snapshot last saw them, in the order of their ids.
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

/// What of it is written: all, or with hashes for names.
pub fn shown<'a>(snapshot: &'a Snapshot, config: &Config) -> Cow<'a, Snapshot> {
    match config.output.redact {
        Some(redact) => Cow::Owned(Redactor::new(redact.key).snapshot(snapshot)),
        None => Cow::Borrowed(snapshot),
    }
}

/// Writes in the configured format to the configured place; answers the exit code.
pub fn write_profile(snapshot: &Snapshot, config: &Config) -> i32 {
    let mut bytes = Vec::new();
    let written =
        export::write(config.output.format, &shown(snapshot, config), &config.settings, &mut bytes);
    if let Err(error) = written {
        eprintln!("sampletop: cannot build the profile: {error}");
        return 1;
    }
    deliver(&bytes, config)
}

/// To the file named with -o, or stdout.
pub fn deliver(bytes: &[u8], config: &Config) -> i32 {
    let result = match &config.output.path {
        Some(path) => export::file::save(path, bytes),
        None => {
            let mut out = std::io::stdout().lock();
            match out.write_all(bytes).and_then(|()| out.flush()) {
                // A reader that has seen enough (`| head`) is no failure.
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
