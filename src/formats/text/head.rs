//! The head: what was measured, on what, how well, and which part is shown.

use std::io;

use super::{Page, Report, WIDTH, count, seconds};
use crate::formats::ascii::{fit, wrap};
use crate::formats::dates;
use crate::formats::rename;
use crate::model::facts::snapshot::{Session, Target};
use crate::model::projection::settings::{Level, Metric, NativeFrames, Range};
use crate::model::projection::{Method, Totals, written_findings};
use crate::model::vocabulary::frame::Ns;

/// Writes one line in logfmt, for grep: the target and the three most informative figures.
pub fn summary(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let Report { snapshot, settings, projection, .. } = report;
    let pid = snapshot.targets.first().map_or(0, |target| target.pid);
    let elapsed = projection.elapsed();
    let session = &snapshot.session;
    let (who, lost) = match session.is_foreign() {
        // A foreign profile does not say where it ran or what was lost.
        true => (format!("profile={}", quoted(&session.wanted.title, 20)), String::new()),
        false => {
            let lost = format!(" lost={}", snapshot.health.losses.dropped);
            (format!("pid={pid} host={}", quoted(&session.host, 20)), lost)
        }
    };
    let mut line = format!(
        "sampletop {who} s={:.1} thr={:.2} cpu={:.2}{lost}",
        seconds(elapsed),
        projection.total.threads(Metric::Wall, elapsed),
        projection.total.cores(elapsed),
    );
    if let Some(top) = heaviest(report) {
        line.push_str(&format!(
            " {}_self={:.1}% top=",
            settings.metric.word(),
            report.percent(&top.own)
        ));
        let left = super::WIDTH.saturating_sub(line.len());
        line.push_str(&quoted(&top.location(settings.metric).function, left));
    }
    page.line(&line)
}

/// Writes what matters most, as the live view does above its rows: at most three sentences.
pub fn sentences(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let Report { snapshot, projection, .. } = report;
    for found in written_findings(snapshot, projection) {
        for (nth, line) in wrap(&found.sentence(), WIDTH - 2, 4).iter().enumerate() {
            let mark = if nth == 0 { "! " } else { "  " };
            page.line(&format!("{mark}{line}"))?;
        }
    }
    Ok(())
}

/// Returns the method with the largest self time.
fn heaviest<'a>(report: &Report<'a>) -> Option<&'a Method> {
    let methods = report.projection.methods();
    let ordered = report.ordered().methods().into_iter().map(|at| &methods[at as usize]);
    ordered.max_by_key(|m| report.value(&m.own)).filter(|m| report.value(&m.own) > 0)
}

/// Returns a logfmt value in at most `width` columns.
pub fn quoted(text: &str, width: usize) -> String {
    let bare = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '=' | '\\');
    if !text.is_empty() && text.chars().all(bare) {
        return fit(text, width);
    }
    // A backslash would begin a logfmt escape.
    let inner = fit(text, width.saturating_sub(2)).replace(['"', '\\'], "'");
    format!("\"{inner}\"")
}

/// Writes what was watched, where, and by which sampletop.
pub fn identity(session: &Session, targets: &[Target], page: &mut Page<'_>) -> io::Result<()> {
    page.blank()?;
    if session.is_foreign() {
        return page.field("Profile", &session.wanted.title);
    }
    page.field("Version", &format!("sampletop {}", session.version))?;
    for target in targets {
        page.field("Command", &target.command)?;
        let ended = match target.ended {
            Some(at) => format!(", ended {} UTC", dates::utc(dates::unix_ns(session, at))),
            None => String::new(),
        };
        let started = dates::utc(target.started_unix_ns);
        let text = format!(
            "{} ({}, user {}), started {started} UTC{ended}",
            target.pid, target.runtime, target.uid
        );
        page.field("Process", &text)?;
        if let Some(unit) = &target.unit {
            page.field("Unit", unit)?;
        }
    }
    page.field("Host", &format!("{}, Linux {}", session.host, session.kernel))
}

pub fn conditions(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let Report { snapshot, projection, .. } = report;
    let (session, health) = (&snapshot.session, &snapshot.health);
    let losses = &health.losses;
    let date = |at| dates::utc(dates::unix_ns(session, at));
    if session.is_foreign() {
        return foreign(report, page);
    }
    page.blank()?;
    page.field("From", &format!("{} UTC", date(projection.from)))?;
    page.field(
        "Till",
        &format!("{} UTC, {:.3} s", date(projection.till), seconds(projection.elapsed())),
    )?;
    if health.startup_ns > 0 {
        page.field(
            "Start-up",
            &format!("{} before the first observation, not counted here", ms(health.startup_ns)),
        )?;
    }
    page.field("Capture", &snapshot.capture)?;
    let interval = format!(
        "{} asked, {} got; threads seen every {}; {} of {} ticks late, 99 % by less than {}",
        ms(session.interval_ns),
        ms(health.interval_achieved_ns),
        ms(health.visit_interval_ns.max(health.interval_achieved_ns)),
        losses.late,
        health.ticks,
        ms(health.late_p99_ns),
    );
    page.field("Interval", &interval)?;
    let samples = format!(
        "{} stacks taken, {} of them with a frame pointer found by search",
        losses.samples, losses.recovered
    );
    page.field("Samples", &samples)?;
    let dropped = losses.dropped;
    let failed = match losses.unwind_failed {
        0 => "0".to_owned(),
        n => format!(
            "{n} (no unwind info {}, contradictory {}, outside mappings {})",
            losses.no_unwind_info, losses.bad_unwind, losses.outside_maps
        ),
    };
    let lost = format!(
        "dropped {dropped}, truncated {}, torn {}, unwind failed {failed}, throttled {}",
        losses.truncated, losses.torn, losses.throttled
    );
    page.field("Losses", &lost)?;
    let stops = match losses.stops {
        0 => "no thread was stopped".to_owned(),
        n => format!(
            "{n} stops of a thread, 99 % under {}; {} of them in a system call",
            ms(losses.stop_p99_ns),
            losses.stops_blocked
        ),
    };
    page.field("Stops", &stops)?;
    let bound = match session.max_overhead_percent {
        Some(percent) => format!(" (bound {percent} %)"),
        None => String::new(),
    };
    let own = format!(
        "{:.2} % of one core to sample{bound}, {:.2} % with symbols and drawing",
        health.self_cpu_percent, health.total_cpu_percent
    );
    page.field("Own CPU", &own)?;
    page.field("Cores", &format!("{} for the target", thousandths(session.cores_milli)))?;
    if health.folded_facts > 0 || health.dropped_buckets > 0 {
        let memory = format!(
            "{} facts folded into (other), {} spans of history dropped",
            health.folded_facts, health.dropped_buckets
        );
        page.field("Memory", &memory)?;
    }
    if health.naming {
        page.field("Names", "symbols were still being loaded: some functions are MODULE!0xOFFSET")?;
    }
    if snapshot.stopped {
        page.field("State", "sampling is stopped by the user")?;
    }
    match &snapshot.notice {
        Some(notice) => page.field("Notice", notice),
        None => Ok(()),
    }
}

/// Writes what is known about the samples of another tool.
fn foreign(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let Report { snapshot, projection, .. } = report;
    let session = &snapshot.session;
    if session.started_unix_ns != 0 {
        page.field(
            "From",
            &format!("{} UTC", dates::utc(dates::unix_ns(session, projection.from))),
        )?;
    }
    page.field("Length", &format!("{:.3} s", seconds(projection.elapsed())))?;
    page.field("Capture", &snapshot.capture)?;
    if session.interval_ns > 0 {
        page.field("Interval", &ms(session.interval_ns))?;
    }
    page.field("Losses", "not known: another tool took the samples")?;
    match &snapshot.notice {
        Some(notice) => page.field("Notice", notice),
        None => Ok(()),
    }
}

/// Writes every setting that decides what is shown, and what it hides. Shown and hidden time add up
/// to everything.
pub fn settings(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let Report { settings, projection, .. } = report;
    let (filters, hidden) = (&settings.filters, &projection.hidden);
    page.blank()?;
    let rows = settings.roll_up.plural();
    let range = match settings.range {
        Range::Rolling(ns) => format!("the last {:.0} s", seconds(ns)),
        Range::Cumulative { since: None } => "everything since the start".into(),
        Range::Cumulative { since: Some(_) } => "everything since the mark".into(),
        Range::Between { from, till } => {
            let [from, till] =
                [from, till].map(|at| dates::utc(report.snapshot.session.unix_ns(at)));
            format!("from {from} to {till} UTC")
        }
    };
    let shown = format!(
        "{} thread time, {} CPU",
        time(projection.total.wall_ns),
        time(projection.total.cpu_ns)
    );
    let rows = match settings.level {
        Level::Mine => format!("your {rows}"),
        Level::Chains | Level::All => rows.to_owned(),
    };
    let how = format!(
        "metric {}, rows are {rows}, threads by {}, {range}",
        settings.metric.word(),
        settings.grouping.typed()
    );
    page.field("Shown", &shown)?;
    page.field("Settings", &how)?;
    let hides =
        |totals: &Totals| format!("hides {}, {} CPU", time(totals.wall_ns), time(totals.cpu_ns));
    let idle = match (settings.idle, projection.only_idle) {
        (true, _) => "shown".to_owned(),
        (false, true) => "shown, because there is nothing else".to_owned(),
        (false, false) => {
            let threads = count(hidden.idle_threads as usize, "thread");
            let mut all = hidden.idle;
            all.add(&hidden.filtered_idle);
            format!("{}; {threads} did nothing but wait for work", hides(&all))
        }
    };
    page.field("Idle", &idle)?;
    for pattern in &settings.idle_at {
        page.field("Idle at", &format!("also when blocked in /{pattern}/"))?;
    }
    for rule in &settings.rename {
        page.field("Rename", &rename(rule))?;
    }
    if filters.skip_daemon {
        page.field(
            "Daemons",
            &format!("{}, the virtual machine's own threads included", hides(&hidden.daemons)),
        )?;
    }
    let regexes = [
        ("Threads", &filters.threads, hides(&hidden.threads)),
        ("Focus", &filters.focus, hides(&hidden.focus)),
        ("Ignore", &filters.ignore, hides(&hidden.ignore)),
        ("Hide", &filters.hide, "takes frames out; their time goes to their callers".to_owned()),
    ];
    for (name, filter, effect) in regexes {
        if let Some(pattern) = filter.active() {
            page.field(name, &format!("/{}/ {effect}", fit(pattern.as_str(), 200)))?;
        }
    }
    if filters.gil {
        let effect = format!("{}: shows stacks of threads that hold it", hides(&hidden.gil));
        page.field("GIL", &effect)?;
    }
    if filters.no_kernel {
        page.field("No kernel", "takes the kernel's frames out; their time goes to their callers")?;
    }
    match filters.native {
        NativeFrames::Auto => {}
        NativeFrames::Full => page.field("Native", "full: with the Python interpreter's frames")?,
        NativeFrames::None => page.field(
            "Native",
            "none: takes native frames below Python's out; their time goes to their callers",
        )?,
    }
    if let Some(prefixes) = filters.interesting.active() {
        let text = format!("{}; time of deeper calls counts for their caller", prefixes.join(","));
        page.field("Interesting", &text)?;
    }
    match filters.min_percent.active() {
        Some(percent) => {
            page.field("Min percent", &format!("{percent}: smaller rows of the tree are not shown"))
        }
        None => Ok(()),
    }
}

/// Formats a duration for people.
fn time(ns: u64) -> String {
    format!("{:.3} s", seconds(ns))
}

fn ms(ns: Ns) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

/// Formats thousandths: `2500` -> `2.5`.
fn thousandths(n: u64) -> String {
    (n as f64 / 1000.0).to_string()
}
