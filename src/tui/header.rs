//! The first lines: the target and the backend, its threads now, the history, and the quality of
//! the measurement.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::history;
use super::text::{Pen, average, cut_end, percent, short_span, width};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::layout::Layout;
use crate::model::facts::snapshot::{Snapshot, Target};
use crate::model::projection::seconds_for_one_percent;
use crate::model::projection::settings::{Metric, Range};
use crate::model::vocabulary::state::State;

/// Draws as many of the four lines as fit; the history is dropped first.
pub fn draw(buffer: &mut Buffer, area: Rect, layout: &Layout, app: &AppState, theme: &Theme) {
    let Some(snapshot) = &app.view.snapshot else {
        if layout.header > 0 {
            let what = app.config.waits_for.as_deref().unwrap_or("attaching");
            let mut pen = Pen::new(buffer, area, 0);
            pen.space(1).put("sampletop", theme.bold());
            let room = pen.room();
            pen.put(&cut_end(&format!("  {what} ..."), room, theme.glyphs.cut), theme.dim());
        }
        return;
    };
    let lines: &[Line] = match layout.header {
        0 => &[],
        1 => &[Line::Target],
        2 => &[Line::Target, Line::Threads],
        3 => &[Line::Target, Line::Threads, Line::Measurement],
        _ => &[Line::Target, Line::Threads, Line::History, Line::Measurement],
    };
    for (y, line) in lines.iter().enumerate() {
        let mut pen = Pen::new(buffer, area, y as u16);
        pen.space(1);
        match line {
            Line::Target => target(&mut pen, snapshot, app, theme),
            Line::Threads => threads(&mut pen, snapshot, app, theme),
            Line::History => history::draw(&mut pen, app, theme),
            Line::Measurement => measurement(&mut pen, snapshot, app, theme),
        }
    }
}

/// Maximum processes named in the title.
const TITLE_NAMES: usize = 3;

enum Line {
    Target,
    Threads,
    History,
    Measurement,
}

/// Returns LIVE, SAVED, FROZEN, WAITING (for a process to appear), STOPPED or EXITED.
fn state_word(snapshot: &Snapshot, app: &AppState) -> &'static str {
    if app.config.saved {
        "SAVED"
    } else if app.frozen {
        "FROZEN"
    } else if snapshot.is_over() {
        "EXITED"
    } else if snapshot.is_waiting() {
        "WAITING"
    } else if snapshot.stopped {
        "STOPPED"
    } else {
        "LIVE"
    }
}

fn target(pen: &mut Pen<'_>, snapshot: &Snapshot, app: &AppState, theme: &Theme) {
    let word = state_word(snapshot, app);
    let settings = &app.view.shown;
    let (from, till) = (app.view.projection.from, app.view.projection.till);
    let range = match settings.range {
        Range::Rolling(window) => short_span(window),
        Range::Cumulative { since: None } => {
            format!("all {}", short_span(till.saturating_sub(from)))
        }
        Range::Cumulative { since: Some(_) } => {
            format!("from 0: {}", short_span(till.saturating_sub(from)))
        }
    };
    let clock = |at| theme.clock(&snapshot.session, at);
    let metric = settings.metric.word();
    let backend = &snapshot.capture;
    // The longest variant that leaves the target a third of the line.
    let variants = [
        format!("  {metric}  {}-{} ({range})  {backend} ", clock(from), clock(till)),
        format!("  {metric}  {range}  {backend} "),
        format!("  {metric} {range} "),
        format!(" {metric} "),
        String::new(),
    ];
    let room = pen.room();
    let fits = |v: &&String| (width(v) + word.len()) * 3 <= room * 2 || v.is_empty();
    let rest = variants.iter().find(fits).map_or("", String::as_str);
    let right = width(rest) + word.len();

    let left = title(snapshot);
    let host = match &*snapshot.session.host {
        "" => String::new(),
        host => format!("@{host}"),
    };
    let room = room.saturating_sub(right + 1);
    let commands =
        cut_end(&left, room.saturating_sub(width(&host) + 2).max(room / 2), theme.glyphs.cut);
    let used = width(&commands) + 2;
    pen.put(&commands, theme.bold()).space(2);
    let host_room = room.saturating_sub(used);
    pen.put_left(&cut_end(&host, host_room, theme.glyphs.cut), host_room, theme.dim());
    pen.space(pen.room().saturating_sub(right));
    pen.put(word, if word == "LIVE" { theme.live() } else { theme.not_live() });
    pen.put(rest, theme.plain());
}

/// Returns `4321 java -jar shop.jar`, or `3 processes: nginx`.
fn title(snapshot: &Snapshot) -> String {
    let named = |target: &Target| format!("{} {}", target.pid, without_directory(&target.command));
    let wanted = &snapshot.session.wanted.title;
    let living: Vec<&Target> = snapshot.living().collect();
    let what = match &snapshot.targets[..] {
        [only] if wanted.is_empty() => return named(only),
        [] if snapshot.session.is_foreign() => return wanted.to_string(),
        _ if !wanted.is_empty() => wanted.to_string(),
        all => {
            let shown = if living.is_empty() { all.iter().collect() } else { living.clone() };
            shown.into_iter().take(TITLE_NAMES).map(named).collect::<Vec<_>>().join(", ")
        }
    };
    match living.len() {
        0 => format!("no process: {what}"),
        1 => format!("1 process: {what}"),
        n => format!("{n} processes: {what}"),
    }
}

/// Strips the program's directory, the least important part of this line: `/usr/bin/java -jar
/// shop.jar` -> `java -jar shop.jar`.
fn without_directory(command: &str) -> &str {
    let program = command.split(' ').next().unwrap_or(command);
    &command[program.rfind('/').map_or(0, |slash| slash + 1)..]
}

fn threads(pen: &mut Pen<'_>, snapshot: &Snapshot, app: &AppState, theme: &Theme) {
    let projection = &app.view.projection;
    let mut all = projection.total;
    projection.hidden.parts().into_iter().for_each(|t| all.add(t));
    let cores = snapshot.session.cores_milli as f64 / 1000.0;
    pen.put("cpu ", theme.dim())
        .put(&format!("{:.1}", all.cores(projection.elapsed())), theme.bold());
    if snapshot.session.is_foreign() {
        return;
    }
    pen.put(&format!(" of {}", (cores * 10.0).round() / 10.0), theme.dim());
    let states = snapshot.threads_by_state();
    pen.put("  thr ", theme.dim())
        .put(&states.iter().sum::<u32>().to_string(), theme.bold())
        .put(":", theme.dim());
    for state in State::ALL {
        let n = states[state as usize];
        let rare = matches!(state, State::Sleep | State::Disk | State::Stopped);
        if n > 0 || !rare {
            let style = if n > 0 { theme.state(state) } else { theme.dim() };
            pen.space(1).put(&format!("{} {n}", state.word()), style);
        }
    }
}

fn measurement(pen: &mut Pen<'_>, snapshot: &Snapshot, app: &AppState, theme: &Theme) {
    let health = &snapshot.health;
    let losses = &health.losses;
    let got = (health.interval_achieved_ns + 500_000) / 1_000_000;
    let asked = humantime::format_duration(app.interval);
    let odd =
        |n: u64| if n > 0 { theme.severity(crate::app::Severity::Warning) } else { theme.dim() };
    let foreign = snapshot.session.is_foreign();
    if foreign {
        pen.put("samples of another tool", theme.dim());
    } else {
        let slow = u64::from(health.interval_achieved_ns > 2 * app.interval.as_nanos() as u64);
        pen.put(&format!("{asked}({got})"), odd(slow));
    }

    let right = hidden_text(app);
    let lost = losses.dropped;
    let mut facts: Vec<(String, Style)> = if foreign {
        Vec::new()
    } else {
        vec![
            (format!("lost {lost}"), odd(lost)),
            (format!("trunc {}%", percent(ratio(losses.truncated, losses.samples))), theme.dim()),
            (format!("own {:.1}%", health.self_cpu_percent), theme.dim()),
            (format!("stops {}", losses.stops), odd(losses.stops)),
        ]
    };
    for (n, word) in [
        (losses.stops_blocked, "of these blocked"),
        (losses.torn, "torn"),
        (losses.unwind_failed, "unwind failed"),
        (losses.throttled, "throttled"),
        (losses.late, "late"),
        (health.folded_facts, "folded"),
    ] {
        if n > 0 {
            facts.push((format!("{word} {n}"), odd(n)));
        }
    }
    let beside = health.total_cpu_percent - health.self_cpu_percent;
    if beside >= 0.1 {
        facts.push((format!("symbols, screen {beside:.1}%"), theme.dim()));
    }
    let shown = &app.view.projection.total;
    let more =
        seconds_for_one_percent(shown, app.view.settings.metric, app.view.projection.elapsed());
    if let Some(seconds) = more.filter(|s| *s >= 1.0 && !foreign) {
        facts.push((format!("1% rows sure in {seconds:.0} s"), theme.dim()));
    }
    if app.ptrace_helps {
        let warning = theme.severity(crate::app::Severity::Warning);
        facts.insert(0, ("running threads not sampled (p)".into(), warning));
    }
    if health.naming {
        facts.insert(1, ("naming ...".into(), theme.dim()));
    }
    if app.is_behind() {
        facts.insert(0, ("reading history ...".into(), theme.dim()));
    }
    for (fact, style) in facts {
        if pen.room() >= width(&fact) + 2 + width(&right) + 2 {
            pen.space(2).put(&fact, style);
        }
    }
    let room = pen.room();
    if room > width(&right) {
        pen.space(room - width(&right) - 1).put(&right, theme.plain());
    }
}

/// Says what the idle filter hides.
fn hidden_text(app: &AppState) -> String {
    let projection = &app.view.projection;
    let hidden = &projection.hidden;
    if projection.only_idle {
        return "only idle: shown (i)".into();
    }
    if app.view.shown.idle {
        return "idle shown (i)".into();
    }
    if hidden.idle_threads > 0 {
        return format!("idle hidden: {} thr (i)", hidden.idle_threads);
    }
    if hidden.idle.wall_ns > 0 {
        return format!(
            "idle hidden: {} thr (i)",
            average(hidden.idle.threads(Metric::Wall, projection.elapsed()))
        );
    }
    "no idle time".into()
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
