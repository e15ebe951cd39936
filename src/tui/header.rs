//! The first lines: the target and what is shown of it, its threads now, the history, and one
//! sentence about this moment.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::history;
use super::text::{Pen, average, cut_end, short_span, span, width};
use super::theme::Theme;
use crate::app::baseline::Compared;
use crate::app::insight::{self, MARGIN};
use crate::app::layout::Layout;
use crate::app::{AppState, Severity, title};
use crate::model::facts::snapshot::{Snapshot, Target};
use crate::model::projection::settings::{Metric, Range};
use crate::model::projection::{About, Kind, Projection};
use crate::model::vocabulary::frame::SECOND;
use crate::model::vocabulary::state::State;

/// Draws as many of the lines as fit; the history is dropped first.
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
        3 => &[Line::Target, Line::Threads, Line::Insight],
        4 => &[Line::Target, Line::Threads, Line::History, Line::Insight],
        _ => &[Line::Target, Line::Threads, Line::History, Line::Insight, Line::More],
    };
    let sentences = sentences(area, app, theme);
    for (y, line) in lines.iter().enumerate() {
        let mut pen = Pen::new(buffer, area, y as u16);
        pen.space(1);
        match line {
            Line::Target => target(&mut pen, snapshot, app, theme),
            Line::Threads => threads(&mut pen, snapshot, app, theme),
            Line::History => history::draw(&mut pen, app, theme),
            Line::Insight => sentence(&mut pen, sentences.first(), theme),
            Line::More => sentence(&mut pen, sentences.get(1), theme),
        }
    }
}

/// Cells that a program's name keeps beside its process id.
const MIN_NAME: usize = 8;
/// Maximum cells of the name of a file that is compared with.
const FILE_NAME: usize = 24;
/// Maximum processes named in the title.
const TITLE_NAMES: usize = 3;
/// The host's use of its cores is told from this share on, percent.
const BUSY_HOST: f64 = 50.0;
/// And what the hypervisor took of them.
const MUCH_STOLEN: f64 = 5.0;
/// The collectors' share of the target's CPU time is told from this share on, percent.
const MANY_COLLECTIONS: f64 = 5.0;
/// And if they use this part of a core: of a program at rest a share says nothing.
const BUSY_COLLECTORS: f64 = 0.1;

enum Line {
    Target,
    Threads,
    History,
    Insight,
    /// The second line of the sentence.
    More,
}

/// Returns LIVE, PAST (the range ended before now), SAVED, FROZEN, WAITING (for a process to
/// appear), STOPPED or EXITED.
fn state_word(snapshot: &Snapshot, app: &AppState) -> &'static str {
    if app.config.saved {
        "SAVED"
    } else if app.view.is_past() {
        "PAST"
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
    let state = state_word(snapshot, app);
    let mut word = state.to_owned();
    let settings = &app.view.shown;
    let (from, till) = (app.view.projection.from, app.view.projection.till);
    let clock = |at| theme.clock(&snapshot.session, at);
    let range = match settings.range {
        Range::Between { .. } if snapshot.history.exact(settings.range).is_some() => {
            let clock = |at| theme.clock_ms(&snapshot.session, at);
            format!("{} +{}", clock(from), span(till.saturating_sub(from)))
        }
        Range::Between { .. } => {
            format!("{}-{}", clock(from), clock(till))
        }
        Range::Rolling(window) => format!("last {}", span_words(window)),
        Range::Cumulative { since: None } => {
            format!("all {}", short_span(till.saturating_sub(from)))
        }
        Range::Cumulative { since: Some(_) } => {
            format!("from 0: {}", short_span(till.saturating_sub(from)))
        }
    };
    // The range of a part of history is its time.
    let time_of_day = match settings.range {
        Range::Between { .. } => String::new(),
        _ => format!("  {}-{}", clock(from), clock(till)),
    };
    let level = settings.level.word();
    let time = match settings.metric {
        Metric::Wall => "all time",
        Metric::Cpu => "cpu time",
        Metric::Off => "time off cpu",
    };
    let idle = if settings.idle { "idle shown" } else { "idle hidden" };
    let backend = &snapshot.capture;
    let whole = format!("{range}{time_of_day}");
    // `last 30 s` of a screen that stands still says nothing.
    let range = match settings.range {
        Range::Rolling(_) if state == "FROZEN" => format!("{}-{}", clock(from), clock(till)),
        _ => range,
    };
    // The longest variant that leaves the target a third of the line.
    let mut variants = vec![
        format!("  {level}, {time}, {idle}  {whole}  {backend} "),
        format!("  {level}, {time}, {idle}  {range}  {backend} "),
        format!("  {level}, {time}  {range}  {backend} "),
        format!("  {level}, {time}  {range} "),
        format!("  {time} {range} "),
        format!(" {} ", settings.metric.word()),
        String::new(),
    ];
    if let Some(compared) = &app.view.compared
        && app.view.pane.is_compared()
    {
        word = if state == "LIVE" { "DIFF".to_owned() } else { format!("{state} DIFF") };
        let shown = format!("{}-{}", clock(from), clock(till));
        let base = baseline(compared, theme);
        variants = vec![
            format!("  {level}, {time}, {idle}  {shown} against {base}  {backend} "),
            format!("  {level}, {time}, {idle}  {shown} against {base} "),
            format!("  {time}  {shown} against {base} "),
            format!("  {shown} against {base} "),
            format!("  against {base} "),
            String::new(),
        ];
    }
    let room = pen.room();
    let fits = |v: &&String| (width(v) + word.len()) * 10 <= room * 7 || v.is_empty();
    let rest = variants.iter().find(fits).map_or("", String::as_str);
    let right = width(rest) + word.len();

    let room = room.saturating_sub(right + 1);
    let (name, mut more) = title(snapshot);
    // The host gives way first, then the name: half of a process id is a wrong one.
    if width(&name) + width(&more) > room
        && let Some((process, _)) = more.rsplit_once(" @")
    {
        more = process.to_owned();
    }
    let beside = width(&more);
    let for_name = if room >= beside + MIN_NAME { room - beside } else { room };
    let name = cut_end(&name, for_name, theme.glyphs.cut);
    let left = room.saturating_sub(width(&name));
    pen.put(&name, theme.bold());
    pen.put_left(&cut_end(&more, left, theme.glyphs.cut), left, theme.dim());
    pen.space(pen.room().saturating_sub(right));
    pen.put(&word, if word == "LIVE" { theme.live() } else { theme.not_live() });
    pen.put(rest, theme.plain());
}

/// Returns what is compared with: a range of this session, or a file and the time of its end.
fn baseline(compared: &Compared, theme: &Theme) -> String {
    let session = &compared.baseline.snapshot.session;
    match &compared.baseline.file {
        None => {
            let clock = |at| theme.clock(session, at);
            format!("{}-{}", clock(compared.from), clock(compared.till))
        }
        // A profile of another tool may have no time.
        Some(file) if session.is_foreign() => cut_end(file, FILE_NAME, theme.glyphs.cut).into(),
        Some(file) => {
            let name = cut_end(file, FILE_NAME, theme.glyphs.cut);
            format!("{name}, {}", theme.date(session, compared.till))
        }
    }
}

/// `30 s`, `5 min`, `1m30s`.
fn span_words(ns: u64) -> String {
    let seconds = ns / SECOND;
    match (seconds, ns % SECOND) {
        (1..60, 0) => format!("{seconds} s"),
        (60..3600, 0) if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        _ => short_span(ns),
    }
}

/// Returns what is watched, and more about it: `("shop.jar", "  java 4321 @node7")`, `("3
/// processes: nginx", " @node7")`.
fn title(snapshot: &Snapshot) -> (String, String) {
    let host = match &*snapshot.session.host {
        "" => String::new(),
        host => format!(" @{host}"),
    };
    let named = |target: &Target| format!("{} {}", target.pid, title::title(target).0);
    let wanted = &snapshot.session.wanted.title;
    let living: Vec<&Target> = snapshot.living().collect();
    let what = match &snapshot.targets[..] {
        [only] if wanted.is_empty() => {
            let (name, runtime) = title::title(only);
            let runtime = runtime.map(|runtime| format!("{runtime} ")).unwrap_or_default();
            return (name.to_owned(), format!("  {runtime}{}{host}", only.pid));
        }
        [] if snapshot.session.is_foreign() => return (wanted.to_string(), host),
        _ if !wanted.is_empty() => wanted.to_string(),
        all => {
            let shown = if living.is_empty() { all.iter().collect() } else { living.clone() };
            shown.into_iter().take(TITLE_NAMES).map(named).collect::<Vec<_>>().join(", ")
        }
    };
    let name = match living.len() {
        0 => format!("no process: {what}"),
        1 => format!("1 process: {what}"),
        n => format!("{n} processes: {what}"),
    };
    (name, host)
}

/// Says what keeps the target from using its cores, where it matters: others on the host, its
/// quota, its collectors.
fn conditions(snapshot: &Snapshot, projection: &Projection) -> String {
    let mut all = projection.total;
    projection.hidden.parts().into_iter().for_each(|t| all.add(t));
    let mut parts = Vec::new();
    if let Some(host) = snapshot.health.host {
        // The target alone fills few hosts: a busy one is busy with others, too.
        if host.cpu_percent >= BUSY_HOST {
            parts.push(format!("host {:.0} %", host.cpu_percent));
        }
        if host.waiting >= 1.0 {
            parts.push(format!("queue {:.0}", host.waiting));
        }
        if host.stolen_percent >= MUCH_STOLEN {
            parts.push(format!("steal {:.0} %", host.stolen_percent));
        }
        if host.throttled_percent >= 1.0 {
            parts.push(format!("throttled {:.0} %", host.throttled_percent));
        }
    }
    let collectors = projection.collection.cpu_ns() as f64;
    let share = collectors / all.cpu_ns.max(1) as f64 * 100.0;
    let cores = collectors / projection.elapsed().max(1) as f64;
    if share >= MANY_COLLECTIONS && cores >= BUSY_COLLECTORS {
        parts.push(format!("gc {share:.0} %"));
    }
    parts.join(", ")
}

/// Cores in use, and what the threads do now.
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
    let beside = conditions(snapshot, projection);
    if !beside.is_empty() {
        pen.put(&format!("   {beside}"), theme.plain());
    }
    if app.view.is_past() {
        return past_threads(pen, projection, theme);
    }
    let now = &projection.now;
    let busy = now.busy_count();
    let mut states: Vec<(u32, State)> = State::ALL
        .into_iter()
        .map(|state| (now.busy[state as usize], state))
        .filter(|(count, _)| *count > 0)
        .collect();
    states.sort_by_key(|(count, state)| (std::cmp::Reverse(*count), *state as u8));
    // The word gives way to what is beside it.
    pen.put(if beside.is_empty() { "   threads " } else { "   " }, theme.dim())
        .put(&format!("{busy} busy"), if busy > 0 { theme.bold() } else { theme.dim() });
    let idle = match now.idle {
        0 => String::new(),
        idle => format!("; {idle} idle"),
    };
    let text = |count: u32, state: State| format!("{count} {}", state.word());
    let mut room = pen.room();
    let mut fitting = 0;
    for (nth, (count, state)) in states.iter().enumerate() {
        // The idle threads give way to the two commonest states, the others to them.
        let beside = if nth < 2 { 0 } else { width(&idle) };
        let cells = ", ".len() + width(&text(*count, *state));
        if cells + beside > room {
            break;
        }
        room -= cells;
        fitting = nth + 1;
    }
    states.truncate(fitting);
    // In one order: words that change places are hard to read.
    states.sort_by_key(|(_, state)| *state as u8);
    let mut before = ": ";
    for (count, state) in states {
        pen.put(before, theme.dim()).put(&text(count, state), theme.state(state));
        before = ", ";
    }
    let hint = if app.view.shown.idle { " (i hides)" } else { " (i)" };
    if pen.room() >= width(&idle) {
        pen.put(&idle, theme.dim());
    }
    if now.idle > 0 && pen.room() > width(hint) {
        pen.put(hint, theme.dim());
    }
}

/// What the threads did in a range that is over: averages over it.
fn past_threads(pen: &mut Pen<'_>, projection: &Projection, theme: &Theme) {
    let (busy, elapsed) = (&projection.busy.total, projection.elapsed());
    let threads = busy.threads(Metric::Wall, elapsed);
    pen.put("   on average ", theme.dim()).put(&format!("{} busy", average(threads)), theme.bold());
    let mut before = ": ";
    for state in State::ALL {
        let of_state = busy.states_ns[state as usize] as f64 / elapsed.max(1) as f64;
        if of_state < 0.05 {
            continue;
        }
        let text = format!("{} {}", average(of_state), state.word());
        if pen.room() < width(before) + width(&text) {
            break;
        }
        pen.put(before, theme.dim()).put(&text, theme.state(state));
        before = ", ";
    }
}

/// Returns the lines of what matters most about the range, or about the measurement.
fn sentences(area: Rect, app: &AppState, theme: &Theme) -> Vec<insight::Line> {
    insight::lines(
        &insight::findings(app, &|session, at| theme.clock(session, at)),
        usize::from(area.width).saturating_sub(MARGIN),
    )
}

fn sentence(pen: &mut Pen<'_>, line: Option<&insight::Line>, theme: &Theme) {
    let Some(line) = line else { return };
    let style = match (line.kind, line.about) {
        (Kind::Deadlock, _) => theme.severity(Severity::Error),
        (_, About::Harm) => theme.severity(Severity::Warning),
        (_, About::Target | About::Idle) => theme.plain(),
    };
    pen.put(if line.is_first { "! " } else { "  " }, theme.bold());
    let room = pen.room().saturating_sub(1);
    pen.put(&cut_end(&line.text, room, theme.glyphs.cut), style);
}
