//! `sampletop report`: one report after the other, continuously. Each covers the time since the
//! previous one, up to a moment of the wall clock.

#[cfg_attr(not(feature = "push"), path = "no_pushing.rs")]
mod pushing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use super::lost;
use super::output::Output;
use crate::config::{Config, Format, Kept, Reports};
use crate::exit_code::{ExitCode, Failure};
use crate::formats;
use crate::model::facts::snapshot::{Snapshot, Target};
use crate::session::source::{Request, Source, Waited, check_observed};
use crate::session::timed;
use crate::sinks::rotation::{Names, Series, is_directory};
use pushing::Pushing;

/// Maximum time between readings of the wall clock, which may be set at any time. Exits and new
/// processes are reported with the same delay.
const READ_CLOCK_EVERY: Duration = Duration::from_secs(1);

pub fn run(config: &Config, output: &Output, plan: &Reports) -> Result<ExitCode, Failure> {
    // Before a COMMAND is started.
    check_destination(config, plan)?;
    timed::watch(config, |source| report(source, config, output, plan))
}

/// Fails where the command line asks for what the destination cannot hold.
fn check_destination(config: &Config, plan: &Reports) -> Result<(), Failure> {
    if config.output.path.as_deref().is_some_and(is_directory) {
        return Ok(());
    }
    if plan.kept != Kept::default() {
        return Err(Failure::usage(
            "`--keep` and `--max-bytes` need a directory of reports: end the name behind `-o` in `/`",
        ));
    }
    let format = config.output.format;
    if !matches!(format, Format::Text | Format::Json | Format::Classic) {
        let word = format.word();
        return Err(Failure::usage(format!(
            "reports as {word} do not go into one file; name a directory, `-o DIR/`, or another format"
        )));
    }
    Ok(())
}

/// Writes reports until the target exits, a signal ends the run, or the requested count is reached.
fn report(
    source: &mut dyn Source,
    config: &Config,
    output: &Output,
    plan: &Reports,
) -> Result<ExitCode, Failure> {
    let mut destinations =
        Destinations::open(source, config, output, plan).map_err(Failure::failed)?;
    let only_pushed = config.output.push.as_ref().is_some_and(|push| push.alone);
    let mut written = 0;
    let mut followed = Followed::new(&source.living());
    let mut due = next(source.unix_ns(), plan.every);
    loop {
        let mut is_requested = false;
        let now = source.unix_ns();
        let left = due.map(|due| Duration::from_nanos(u64::try_from(due - now).unwrap_or(0)));
        let ends = match source.wait(left.unwrap_or(Duration::MAX).min(READ_CLOCK_EVERY)) {
            Waited::Timeout => false,
            Waited::Ended | Waited::Interrupted => true,
            Waited::Asked(Request::Report) => {
                due = Some(source.unix_ns());
                is_requested = true;
                false
            }
            // The terminal that received the reports is gone.
            Waited::Asked(Request::Reopen) if config.output.path.is_none() && !only_pushed => true,
            Waited::Asked(Request::Reopen) => {
                destinations.reopen();
                false
            }
            Waited::Asked(Request::Pause) => {
                source.pause(true);
                false
            }
            Waited::Asked(Request::Resume) => {
                source.pause(false);
                false
            }
        };
        followed.report_changes(&source.living());
        let now = source.unix_ns();
        let is_due = due.is_some_and(|due| now >= due);
        if !ends && !is_due {
            // If the clock was set back, the next report must not be delayed by up to a day.
            let soonest = next(now, plan.every);
            due = due.min(soonest.or(due));
            continue;
        }
        due = next(now, plan.every);
        written += 1;
        let is_last = ends || plan.count.is_some_and(|count| written >= count);
        let snapshot = match (is_last, plan.cumulative) {
            (true, _) => source.finish(),
            (false, true) => source.snapshot(true),
            (false, false) => source.cut(),
        };
        let mut snapshot = snapshot.ok_or_else(|| lost("report"))?;
        if is_last && written == 1 {
            check_observed(&snapshot)?;
        }
        if !is_last && !is_requested {
            snapshot = without_spans(&snapshot).into();
        }
        destinations.write(&snapshot, config, output, plan);
        if is_last {
            // What failed has been reported.
            let complete = destinations.end();
            return Ok(if complete { ExitCode::Success } else { ExitCode::Failed });
        }
    }
}

/// Returns what a report that comes by the clock has of a snapshot: whole seconds. The order of the
/// last two minutes would be most of its file, and they are no better than the rest of its time.
fn without_spans(snapshot: &Snapshot) -> Snapshot {
    let history = snapshot.history.clone().without_spans();
    Snapshot { history, ..snapshot.clone() }
}

/// Returns the first moment after `now` at which a report is due, ns since 1970: whole multiples of
/// `every` since midnight UTC.
fn next(now: i128, every: Option<Duration>) -> Option<i128> {
    let every = i128::try_from(every?.as_nanos()).ok().filter(|every| *every > 0)?;
    Some((now.div_euclid(every) + 1) * every)
}

/// Opens the files for the reports, unless they are only pushed.
fn open(snapshot: &Snapshot, config: &Config, plan: &Reports) -> Result<Option<Series>, String> {
    if config.output.push.as_ref().is_some_and(|push| push.alone) {
        return Ok(None);
    }
    let session = &snapshot.session;
    let label = match &*session.wanted.title {
        "" => snapshot.targets.first().map_or(String::new(), |target| target.pid.to_string()),
        title => title.to_owned(),
    };
    let names = Names {
        host: session.host.clone(),
        label,
        extension: config.output.format.extensions()[0],
    };
    Series::open(config.output.path.as_deref(), names, plan.kept).map(Some)
}

/// Where reports go: files, a server, or both.
struct Destinations {
    /// `None`: reports are not written.
    series: Option<Series>,
    /// The newest report could not be written.
    failed: bool,
    pushing: Option<Pushing>,
}

impl Destinations {
    fn open(
        source: &mut dyn Source,
        config: &Config,
        output: &Output,
        plan: &Reports,
    ) -> Result<Destinations, String> {
        let snapshot = source
            .snapshot(false)
            .ok_or("there is no report, because an internal thread died; please report this")?;
        // File names and labels would reveal names too.
        let shown = output.redacted(&snapshot);
        let series = open(&shown, config, plan)?;
        let redacted = config.output.redact.is_some();
        let start = |push| Pushing::start(push, &snapshot, &shown, redacted);
        let pushing = config.output.push.as_ref().map(start).transpose()?;
        Ok(Destinations { series, failed: false, pushing })
    }

    fn write(
        &mut self,
        snapshot: &Arc<Snapshot>,
        config: &Config,
        output: &Output,
        plan: &Reports,
    ) {
        let snapshot = &*output.redacted(snapshot);
        if let Some(series) = &mut self.series {
            let mut bytes = Vec::new();
            let built = match config.output.format {
                Format::Text => formats::text::write_within(
                    snapshot,
                    &config.settings,
                    plan.max_lines,
                    &mut bytes,
                ),
                format => formats::write(format, snapshot, &config.settings, &mut bytes),
            };
            let till = formats::unix_ns(&snapshot.session, snapshot.at);
            let built = built.map_err(|error| format!("cannot build the report: {error}"));
            let written = built.and_then(|()| series.write(&bytes, till));
            self.note(&written);
        }
        if let Some(pushing) = &mut self.pushing {
            pushing.send(snapshot, &config.settings);
        }
    }

    fn reopen(&mut self) {
        let Some(series) = &mut self.series else { return };
        let reopened = series.reopen();
        // Success shows only at the next write, so only an error is noted.
        if reopened.is_err() {
            self.note(&reopened);
        }
    }

    /// Flushes the pushes. Returns whether every report was written and every profile was pushed or
    /// is stored on disk for the next run.
    fn end(self) -> bool {
        let stored = self.pushing.is_none_or(Pushing::end);
        !self.failed && stored
    }

    /// Prints an error once until it is gone. The next report is tried in any case.
    fn note(&mut self, result: &Result<(), String>) {
        match result {
            Ok(()) if self.failed => eprintln!("sampletop: reports are written again"),
            Err(sentence) if !self.failed => eprintln!("sampletop: {sentence}; sampling goes on"),
            _ => {}
        }
        self.failed = result.is_err();
    }
}

/// Reports on standard error which processes appeared and exited, one line each.
struct Followed {
    known: Vec<(u32, u64)>,
}

impl Followed {
    fn new(living: &[Target]) -> Followed {
        Followed { known: living.iter().map(|target| (target.pid, target.start)).collect() }
    }

    fn report_changes(&mut self, living: &[Target]) {
        let now = Followed::new(living);
        for (pid, _) in self.known.iter().filter(|known| !now.known.contains(known)) {
            eprintln!("sampletop: process {pid} has ended");
        }
        for target in
            living.iter().filter(|target| !self.known.contains(&(target.pid, target.start)))
        {
            eprintln!(
                "sampletop: process {} is watched from now on: {}",
                target.pid, target.command
            );
        }
        *self = now;
    }
}
