//! The history line: busy threads over the last minutes, the shown range in brackets.
//!
//! A frozen line does not move. While there is a time cursor, its bar is marked, and the words are
//! about its bucket. A cursor in older time scrolls the line, which then begins with its time.

use super::text::{Pen, average, short_span, span, width};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::history_line::HistoryLine;
use crate::app::time_cursor::TimeCursor;
use crate::model::facts::snapshot::{Session, Snapshot};
use crate::model::projection::BusyThreads;
use crate::model::vocabulary::frame::SECOND;

pub fn draw(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    let Some((line, snapshot)) = HistoryLine::new(app).zip(app.view.snapshot.as_ref()) else {
        return;
    };
    let busy = &app.view.busy_threads;
    let scale = busy.scale();
    let range = line.cells_of(busy, app.view.projection.from, app.view.projection.till);
    let cursor = app.time_cursor.filter(|cursor| !cursor.is_range);
    let cursor = cursor.and_then(|cursor| line.cell_of_second(busy.second(cursor.from)));

    pen.put_left(
        &label(&line, busy, &snapshot.session, app.is_frozen(), theme),
        line.label(),
        theme.dim(),
    );
    for at in 0..line.cells {
        if range.is_some_and(|(from, _)| at == from) {
            pen.put("[", theme.bold());
        }
        let style = match range.is_some_and(|(from, till)| (from..till).contains(&at)) {
            _ if cursor == Some(at) => theme.selected(),
            true => theme.bar(),
            false => theme.dim(),
        };
        // The bar's maximum over its buckets, so that averaging never hides a spike.
        let highest = line.seconds_of_cell(at).and_then(|(from, till)| busy.highest(from, till));
        let spark = theme.glyphs.spark;
        let glyph = highest.map_or(" ", |top| spark[((top / scale * 7.0).round() as usize).min(7)]);
        pen.put(glyph, style);
        if range.is_some_and(|(_, till)| at + 1 == till) {
            pen.put("]", theme.bold());
        }
    }
    if range.is_none() {
        // The words stay where they are when brackets come.
        pen.space(2);
    }
    let words = match &app.time_cursor {
        Some(cursor) => cursor_words(cursor, &line, snapshot, app, theme),
        None => {
            let (first, end) = line.seconds();
            let max = busy.highest(first, end.min(line.now)).unwrap_or(0.0);
            let end = if app.is_frozen() || line.is_past { "   " } else { "now" };
            let max = if max < 0.05 { "0".into() } else { average(f64::from(max)) };
            format!("{end}  busy threads 0-{}, max {max}", whole(scale))
        }
    };
    debug_assert!(width(&words) <= line.words(), "{words}");
    let style = if app.time_cursor.is_some() { theme.bold() } else { theme.dim() };
    pen.put(&words, style);
}

/// `10m`: the last ten minutes. `13:52-14:02`, `13:52-now`: what a scrolled line shows.
fn label(
    line: &HistoryLine,
    busy: &BusyThreads,
    session: &Session,
    is_frozen: bool,
    theme: &Theme,
) -> String {
    let (first, end) = line.seconds();
    match line.span() {
        _ if line.is_past => {
            let clock = |second| theme.clock_minutes(session, busy.at(second));
            let is_now = end >= line.now && !is_frozen;
            let end = if is_now { "now".into() } else { clock(end) };
            format!("{}-{end}", clock(first))
        }
        span @ ..120 => format!("{span}s"),
        span => format!("{}m", span / 60),
    }
}

/// ` 14:03:31 busy 12.1, wait 213 ms`: what the second of the cursor is like; of a longer bucket
/// ` 13:52:10 +10s busy 12.1, wait 213 ms`, as far as there is room.
fn cursor_words(
    cursor: &TimeCursor,
    line: &HistoryLine,
    snapshot: &Snapshot,
    app: &AppState,
    theme: &Theme,
) -> String {
    let clock = |at| theme.clock(&snapshot.session, at);
    // The cursor's bucket may be part of a longer one by now.
    let Some(bucket) = app.view.busy_threads.bucket_at(cursor.from) else {
        return format!(" {}-{}", clock(cursor.from), clock(cursor.till));
    };
    let length = match bucket.till - bucket.from {
        ..=SECOND => String::new(),
        length => format!(" +{}", short_span(length)),
    };
    let wait = match bucket.longest {
        0 => String::new(),
        ns if ns < 10 * SECOND => format!(", wait {}", span(ns)),
        ns => format!(", wait {}", short_span(ns)),
    };
    let threads = if bucket.busy < 0.05 { "0".into() } else { average(bucket.busy.into()) };
    let mut words = format!(" {}{length}", clock(bucket.from));
    for more in [format!(" busy {threads}"), wait] {
        if width(&words) + width(&more) <= line.words() {
            words.push_str(&more);
        }
    }
    words
}

/// Formats a step of the scale: `20`, `5k`, `2M`.
fn whole(value: f32) -> String {
    match value {
        v if v < 1e4 => format!("{v:.0}"),
        v if v < 1e6 => format!("{:.0}k", v / 1e3),
        v => format!("{:.0}M", v / 1e6),
    }
}
