//! Metadata of a session: conditions, health, targets, and the number of entries in all other
//! blocks. Written first and last, since nothing else can be decoded without it. New fields are
//! only appended.

use std::sync::Arc;

use super::bytes::{LONGEST, Put, Take};
use super::{history, tables, wakeups};
use crate::model::facts::snapshot::{Health, Session, Snapshot, Target, Wanted};
use crate::model::vocabulary::event::Losses;
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::wakeup::Wakeups;

/// Numbers of all entries in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub tables: tables::Counts,
    pub history: history::Counts,
    pub threads: usize,
    pub waits: usize,
    /// Pairs of waker and woken thread.
    pub wakeups: usize,
    pub spans: u64,
}

impl Counts {
    pub fn of(snapshot: &Snapshot) -> Counts {
        Counts {
            tables: tables::Counts::of(&snapshot.tables),
            history: history::Counts::of(&snapshot.history),
            threads: snapshot.threads.len(),
            waits: snapshot.observed_waits.len(),
            wakeups: snapshot.wakeups.as_ref().map_or(0, |wakeups| wakeups.pairs.len()),
            spans: snapshot.history.spans().count() as u64,
        }
    }
}

pub struct Found {
    pub session: Session,
    pub targets: Arc<[Target]>,
    pub at: Ns,
    pub capture: Arc<str>,
    pub health: Health,
    pub notice: Option<Arc<str>>,
    pub stopped: bool,
    /// Start of the history, and the end of its recorded time.
    pub span: (Ns, Ns),
    pub counts: Counts,
    /// Without pairs.
    pub wakeups: Option<Wakeups>,
}

pub fn write(snapshot: &Snapshot, counts: &Counts) -> Vec<u8> {
    let mut put = Put::default();
    let Session { version, host, kernel, cores_milli, started, started_unix_ns, .. } =
        &*snapshot.session;
    // These two fields stay the same in every format.
    put.number(super::FORMAT);
    put.text(version);

    put.text(host);
    put.text(kernel);
    put.number(*cores_milli);
    put.number(*started);
    date(&mut put, *started_unix_ns);
    put.number(snapshot.session.interval_ns);
    put.option(snapshot.session.max_overhead_percent, Put::float);
    put.text(&snapshot.session.wanted.title);
    put.flag(snapshot.session.wanted.waits);

    put.number(snapshot.at);
    put.text(&snapshot.capture);
    put.option(snapshot.notice.as_deref(), Put::text);
    put.flag(snapshot.stopped);
    let (started, at) = snapshot.history.span();
    put.number(started);
    put.number(at);
    for count in [counts.tables.names, counts.tables.frames, counts.tables.stacks, counts.threads] {
        put.count(count);
    }
    for count in [counts.history.sealed, counts.history.open, counts.history.cumulative] {
        put.number(count);
    }

    put.count(snapshot.targets.len());
    for target in snapshot.targets.iter() {
        put.number(target.pid.into());
        put.number(target.start);
        put.text(&target.command);
        put.text(target.runtime);
        put.number(target.uid.into());
        put.option(target.unit.as_deref(), Put::text);
        date(&mut put, target.started_unix_ns);
        put.option(target.ended, Put::number);
    }
    write_health(&mut put, &snapshot.health);
    put.count(counts.tables.builds);
    put.number(snapshot.health.startup_ns);
    put.count(counts.tables.blockers);
    put.count(counts.waits);
    put.option(snapshot.wakeups.as_deref(), |put, head| {
        put.count(counts.wakeups);
        wakeups::write_head(head, put);
    });
    put.number(snapshot.health.visit_interval_ns);
    put.number(counts.spans);
    put.bytes
}

/// Appends a date, ns since 1970; clamped to 64 bits (up to the year 2262).
fn date(put: &mut Put, unix_ns: i128) {
    put.signed(unix_ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64);
}

fn write_health(put: &mut Put, health: &Health) {
    let Health {
        ticks,
        losses,
        interval_achieved_ns,
        late_p99_ns,
        self_cpu_percent,
        total_cpu_percent,
        ..
    } = health;
    for number in
        [*ticks, *interval_achieved_ns, *late_p99_ns, health.folded_facts, health.dropped_buckets]
    {
        put.number(number);
    }
    put.float(*self_cpu_percent);
    put.float(*total_cpu_percent);
    put.flag(health.naming);
    let Losses {
        samples,
        dropped,
        truncated,
        torn,
        unwind_failed,
        no_unwind_info,
        bad_unwind,
        outside_maps,
        ..
    } = losses;
    for number in
        [samples, dropped, truncated, torn, unwind_failed, no_unwind_info, bad_unwind, outside_maps]
    {
        put.number(*number);
    }
    let Losses {
        recovered,
        throttled,
        late,
        stops,
        stops_blocked,
        stop_p99_ns,
        sampler_cpu_ns,
        ..
    } = losses;
    for number in [recovered, throttled, late, stops, stops_blocked, stop_p99_ns, sampler_cpu_ns] {
        put.number(*number);
    }
}

/// Reads the format, and the version of sampletop that wrote it. They are readable in every format.
pub fn made_by(block: &[u8]) -> Option<(u64, Arc<str>)> {
    let mut take = Take(block);
    Some((take.number()?, take.text()?))
}

/// Decodes the block. `None` if it is corrupt.
pub fn read(block: &[u8]) -> Option<Found> {
    let mut take = Take(block);
    take.number()?;
    let session = Session {
        version: take.text()?.to_string(),
        host: take.text()?.to_string(),
        kernel: take.text()?.to_string(),
        cores_milli: take.small()?.into(),
        started: take.ns()?,
        started_unix_ns: take.signed()?.into(),
        interval_ns: interval(&mut take)?,
        max_overhead_percent: take.option(Take::float)?,
        wanted: Wanted { title: take.text()?, waits: take.flag()? },
    };
    let (at, capture, notice) = (take.ns()?, take.text()?, take.option(Take::text)?);
    let stopped = take.flag()?;
    let span = (take.ns()?, take.ns()?);
    let mut count = || usize::try_from(take.number()?).ok();
    let (names, frames, stacks, threads) = (count()?, count()?, count()?, count()?);
    let history = history::Counts { sealed: take.ns()?, open: take.ns()?, cumulative: take.ns()? };
    let targets: Option<Vec<Target>> = (0..take.count(8)?).map(|_| target(&mut take)).collect();
    let mut health = health(&mut take)?;
    // Files of versions without build ids end here.
    let builds = if take.0.is_empty() { 0 } else { usize::try_from(take.number()?).ok()? };
    // Files of versions that did not measure the start-up end here.
    health.startup_ns = if take.0.is_empty() { 0 } else { take.ns()? };
    // Files of versions without blockers end here.
    let blockers = if take.0.is_empty() { 0 } else { usize::try_from(take.number()?).ok()? };
    // Files of versions that did not keep what was looked up end here.
    let waits = if take.0.is_empty() { 0 } else { usize::try_from(take.number()?).ok()? };
    let head = |take: &mut Take<'_>| {
        Some((usize::try_from(take.number()?).ok()?, wakeups::take_head(take)?))
    };
    let wakeups = if take.0.is_empty() { None } else { take.option(head)? };
    // Files of versions with a tick at each sampling interval end here.
    health.visit_interval_ns = if take.0.is_empty() { 0 } else { interval(&mut take)? };
    // Files of versions that did not keep spans end here.
    let spans = if take.0.is_empty() { 0 } else { take.ns()? };
    let (pairs, wakeups) = wakeups.map_or((0, None), |(pairs, head)| (pairs, Some(head)));
    let tables = tables::Counts { names, frames, stacks, builds, blockers };
    let sound = session.started <= at && span.0 <= span.1 && tables.are_sound();
    sound.then_some(Found {
        session,
        targets: targets?.into(),
        at,
        capture,
        health,
        notice,
        stopped,
        span,
        counts: Counts { tables, history, threads, waits, wakeups: pairs, spans },
        wakeups,
    })
}

/// Reads an interval, at most [`LONGEST`] / 256, so that multiples of it fit in 64 bits.
fn interval(take: &mut Take<'_>) -> Option<Ns> {
    take.number().filter(|ns| *ns <= LONGEST >> 8)
}

fn target(take: &mut Take<'_>) -> Option<Target> {
    Some(Target {
        pid: take.small()?,
        start: take.number()?,
        command: take.text()?,
        runtime: runtime(&take.text()?),
        uid: take.small()?,
        unit: take.option(Take::text)?,
        started_unix_ns: take.signed()?.into(),
        ended: take.option(Take::ns)?,
    })
}

/// Returns the known runtime name that equals `word`.
fn runtime(word: &str) -> &'static str {
    const WORDS: [&str; 11] =
        ["native", "jvm", "python", "node", "ruby", "perl", "php", "dotnet", "beam", "lua", "go"];
    WORDS.into_iter().find(|known| *known == word).unwrap_or("unknown")
}

fn health(take: &mut Take<'_>) -> Option<Health> {
    let mut health = Health {
        ticks: take.ns()?,
        interval_achieved_ns: interval(take)?,
        late_p99_ns: take.ns()?,
        folded_facts: take.ns()?,
        dropped_buckets: take.ns()?,
        self_cpu_percent: take.float()?,
        total_cpu_percent: take.float()?,
        naming: take.flag()?,
        losses: Losses::default(),
        startup_ns: 0,
        visit_interval_ns: 0,
        host: None,
    };
    let Losses {
        samples,
        dropped,
        truncated,
        torn,
        unwind_failed,
        no_unwind_info,
        bad_unwind,
        outside_maps,
        ..
    } = &mut health.losses;
    for number in
        [samples, dropped, truncated, torn, unwind_failed, no_unwind_info, bad_unwind, outside_maps]
    {
        *number = take.ns()?;
    }
    let Losses {
        recovered,
        throttled,
        late,
        stops,
        stops_blocked,
        stop_p99_ns,
        sampler_cpu_ns,
        ..
    } = &mut health.losses;
    for number in [recovered, throttled, late, stops, stops_blocked, stop_p99_ns, sampler_cpu_ns] {
        *number = take.ns()?;
    }
    Some(health)
}
