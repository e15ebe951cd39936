//! `sampletop dump`: the stack of every thread, once; or of those that are in a deadlock.

mod goroutines;
mod stacks;
mod tasks;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::lost;
use super::output::Output;
use super::wakers::{count_wakeups, wakeups};
use crate::config::{Config, Dumped, Format};
use crate::exit_code::{ExitCode, Failure};
use crate::formats;
use crate::formats::dump::{Dump, DumpThread};
use crate::model::facts::snapshot::{Snapshot, ThreadNow};
use crate::model::facts::tables::{Blocker, FrameKind, Location, Tables, Tier};
use crate::model::projection::settings::Settings;
use crate::model::projection::waits::{Answer, Asked};
use crate::model::projection::{remove_hidden, role_of, woken_threads};
use crate::model::transform::redact::Redactor;
use crate::model::vocabulary::frame::{Marker, Ns, ThreadKey, ThreadKind, is_harmless};
use crate::model::vocabulary::role::Role;
use crate::session::source::{Source, Waited};
use crate::session::timed;
use stacks::{Stacks, is_young};

/// Maximum time to observe all threads once.
const OBSERVED_WITHIN: Duration = Duration::from_secs(5);
/// Maximum time to find out what all threads wait for, and to read all tasks; as long again for
/// goroutines.
const WAITS_WITHIN: Duration = Duration::from_secs(2);
/// Minimum ticks before there is no deadlock: a runtime's collector may move what threads wait for
/// while it is read.
const CHECKS: u64 = 3;
/// Backends that cannot read what threads wait for.
const BLIND: [&str; 2] = ["states", "cpu-only"];

pub fn run(config: &Config, output: &Output, what: Dumped) -> Result<ExitCode, Failure> {
    output.probe()?;
    timed::watch(config, |source| dump(source, config, output, what))
}

/// Writes stacks once. Returns whether there is a deadlock, if only that is asked for.
fn dump(
    source: &mut dyn Source,
    config: &Config,
    output: &Output,
    what: Dumped,
) -> Result<ExitCode, Failure> {
    if what == Dumped::Each && output.format() == Format::Json {
        eprintln!("sampletop: `--each` changes nothing in json, which lists each thread anyway");
    }
    let wakeups = match config.sampling.wakers {
        None => None,
        Some(time) => {
            count_wakeups(source, time)?;
            // Before the stacks, so that they show the present.
            if source.wait(time) == Waited::Interrupted {
                return Ok(ExitCode::Interrupted);
            }
            wakeups(source)?
        }
    };
    let started = Instant::now();
    let mut first_tick = None;
    let mut ended = false;
    let mut stacks = Stacks::default();
    let last = loop {
        match source.wait(Duration::from_millis(10)) {
            Waited::Timeout | Waited::Asked(_) => {}
            Waited::Ended => ended = true,
            Waited::Interrupted => return Ok(ExitCode::Interrupted),
        }
        let snapshot = source.snapshot(false).ok_or_else(|| lost("dump"))?;
        let mut done = ended || started.elapsed() >= OBSERVED_WITHIN;
        if snapshot.health.ticks > 0 {
            let (began, _) = *first_tick.get_or_insert_with(|| (Instant::now(), snapshot.at));
            let has_stacks = stacks.take(&snapshot, began.elapsed());
            let is_checked = what != Dumped::Deadlocks
                || !snapshot.deadlocks.is_empty()
                || snapshot.health.ticks >= CHECKS;
            done |= has_stacks && is_checked;
        }
        if done {
            break snapshot;
        }
    };
    // Names take longer than stacks. Sampling pauses meanwhile, so that the dump shows one moment.
    source.pause(true);
    let named = source.snapshot(true).ok_or_else(|| lost("dump"))?;
    let took_ns = first_tick.map_or(0, |(_, at)| last.at.saturating_sub(at));
    let mut snapshot = Snapshot {
        at: last.at,
        threads: stacks.threads(&last),
        wakeups,
        ..Snapshot::clone(&named)
    };
    if is_young(&last) {
        let young =
            "the process began less than 5 s before: it may not have started all of its threads";
        snapshot.notice = Some(
            snapshot.notice.map_or(young.into(), |notice| format!("{notice}; {young}").into()),
        );
    }
    if snapshot.threads.is_empty() {
        let pid = snapshot.targets.first().map_or(0, |t| t.pid);
        return Err(Failure::new(
            ExitCode::EndedEarly,
            format!(
                "process {pid} ended before its threads could be observed; start it again and dump it while it runs"
            ),
        ));
    }
    let watched = snapshot.threads.len();
    if what == Dumped::Deadlocks {
        if BLIND.contains(&&*snapshot.capture) {
            return Err(Failure::new(
                ExitCode::NotPermitted,
                format!(
                    "whether there is a deadlock cannot be known: the backend `{}` does not read what threads wait for; `sampletop doctor` says what would",
                    snapshot.capture
                ),
            ));
        }
        let of_deadlock = |thread: &ThreadKey| {
            snapshot.deadlocks.iter().any(|deadlock| deadlock.threads.contains(thread))
        };
        let stuck = snapshot.threads.iter().filter(|now| of_deadlock(&now.thread)).copied();
        snapshot.threads = stuck.collect();
    }
    let asked = snapshot.threads.iter().filter_map(|thread| Asked::of(&snapshot, thread)).collect();
    let waits = source.waits(asked, WAITS_WITHIN);
    let (tasks, goroutines) = match what {
        Dumped::Deadlocks => (Vec::new(), Vec::new()),
        _ => (source.tasks(WAITS_WITHIN), source.goroutines(WAITS_WITHIN)),
    };
    let mut bytes = Vec::new();
    let redactor = output.redactor();
    let dump = Dump {
        tasks: tasks::of_processes(tasks, &config.settings, output.redactor()),
        goroutines: goroutines::of_processes(goroutines, &config.settings, output.redactor()),
        ..build_dump(
            &output.redacted(&snapshot),
            took_ns,
            &waits,
            &config.settings,
            redactor.as_ref(),
        )
    };
    let written = match output.format() {
        Format::Json => formats::dump::write_json(&dump, &mut bytes),
        // A dump has no other formats.
        _ if what == Dumped::Deadlocks => {
            formats::dump::write_deadlocks(&dump, watched, &mut bytes)
        }
        _ => formats::dump::write_text(&dump, what == Dumped::Each, &mut bytes),
    };
    written.map_err(|error| Failure::failed(format!("cannot build the dump: {error}")))?;
    output.deliver(&bytes)?;
    Ok(match what {
        Dumped::Deadlocks if !dump.deadlocks.is_empty() => ExitCode::Deadlock,
        _ => ExitCode::Success,
    })
}

/// Builds the dump of the threads as the last snapshot has them, in the order of their ids.
fn build_dump(
    snapshot: &Snapshot,
    took_ns: Ns,
    waits: &[Answer],
    settings: &Settings,
    redactor: Option<&Redactor>,
) -> Dump {
    let (tables, filters) = (&snapshot.tables, &settings.filters);
    let waits: HashMap<ThreadKey, &Answer> =
        waits.iter().map(|answer| (answer.asked.thread, answer)).collect();
    let mut threads: Vec<DumpThread> = snapshot
        .threads
        .iter()
        .filter(|now| !(filters.skip_daemon && tables.kind(now.name) != ThreadKind::Plain))
        .filter(|now| !filters.gil || has_gil(tables, now))
        .map(|now| {
            let mut frames: Vec<(Location, Role)> = Vec::new();
            for frame in tables.frames_innermost_first(now.stack) {
                let named = tables.named(frame);
                // Within one raw frame the names are outermost first.
                frames.extend(named.locations.iter().enumerate().rev().map(|(nth, location)| {
                    let origin = named.origins.of(nth);
                    (location.clone(), role_of(settings, location, origin))
                }));
            }
            frames.retain(|(frame, _)| !(filters.no_kernel && frame.kind == FrameKind::Kernel));
            remove_hidden(&mut frames, filters.native);
            frames.dedup_by(|(a, _), (b, _)| a.is_unnamed_kernel() && b.is_unnamed_kernel());
            if frames.is_empty() {
                frames.push((marker(Marker::NotSampled), Role::Marker));
            }
            DumpThread {
                thread: now.thread,
                name: Arc::clone(tables.name(now.name)),
                kind: tables.kind(now.name),
                state: tables.state(now.state, now.stack),
                waits_for: waits.get(&now.thread).map(|answer| match redactor {
                    Some(redactor) => redactor.waits_for(answer.asked.call, &answer.waits_for),
                    None => answer.waits_for.clone(),
                }),
                blocker: now.blocker,
                timed: tables.blocker(now.blocker).is_some_and(|blocker| is_timed(blocker, now)),
                cpu_ns: now.run_ns,
                complete: frames.iter().all(|(frame, _)| is_whole(frame)),
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
        deadlocks: Arc::clone(&snapshot.deadlocks),
        tasks: Vec::new(),
        goroutines: Vec::new(),
        wakers: woken_threads(snapshot, settings),
        wakeups: snapshot.wakeups.clone(),
        tables: snapshot.tables.clone(),
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
/// Returns whether no frame is missing in the place of this one.
fn is_whole(frame: &Location) -> bool {
    frame.kind != FrameKind::Marker || is_harmless(&frame.function)
}

/// Returns whether a thread holds the lock of its Python interpreter.
fn has_gil(tables: &Tables, now: &ThreadNow) -> bool {
    let mut frames = tables.frames_innermost_first(now.stack);
    frames.any(|frame| tables.named(frame).locations.iter().any(|l| l.tier == Some(Tier::Gil)))
}

/// Returns whether a wait ends by itself.
fn is_timed(blocker: &Blocker, now: &ThreadNow) -> bool {
    !blocker.kind.ignores_time_limit() && now.syscall.is_some_and(|call| call.has_futex_limit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::vocabulary::frame::{WAITS_FOR_GIL, task_text};

    #[test]
    fn a_stack_that_waits_for_the_gil_or_executes_a_task_is_whole() {
        let of = |name: &str, kind| is_whole(&Location::named(name, kind));
        assert!(of("main", FrameKind::Native) && of(WAITS_FOR_GIL, FrameKind::Marker));
        assert!(of(&task_text("fetch"), FrameKind::Marker));
        assert!(!of("[torn]", FrameKind::Marker));
    }
}
