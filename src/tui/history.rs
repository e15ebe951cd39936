//! The history line: busy threads over the last minutes, the shown range in brackets.
//!
//! A frozen line does not move. While there is a time cursor, its bar is marked, and the words are
//! about its second.

use super::text::{Pen, average, short_span, span, width};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::history_line::{HistoryLine, LABEL, WORDS};
use crate::app::time_cursor::TimeCursor;
use crate::model::facts::snapshot::Snapshot;
use crate::model::vocabulary::frame::SECOND;

pub fn draw(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    let Some((line, snapshot)) = HistoryLine::new(app).zip(app.view.snapshot.as_ref()) else {
        return;
    };
    let busy = &app.view.busy_threads;
    let scale = busy.scale(line.now);
    let (from, till) = line.cells_of(busy, app.view.projection.from, app.view.projection.till);
    let cursor = app.time_cursor.filter(|cursor| !cursor.is_range);
    let cursor = cursor.and_then(|cursor| line.cell_of_second(busy.second(cursor.from)));

    let label = match line.span() {
        span @ ..120 => format!("{span}s"),
        span => format!("{}m", span / 60),
    };
    pen.put_left(&label, LABEL, theme.dim());
    for at in 0..line.cells {
        if at == from {
            pen.put("[", theme.bold());
        }
        let style = match (from..till).contains(&at) {
            _ if cursor == Some(at) => theme.selected(),
            true => theme.bar(),
            false => theme.dim(),
        };
        // The bar's maximum over its seconds, so that averaging never hides a spike.
        let highest = line.seconds_of_cell(at).and_then(|(from, till)| busy.highest(from, till));
        let spark = theme.glyphs.spark;
        let glyph = highest.map_or(" ", |top| spark[((top / scale * 7.0).round() as usize).min(7)]);
        pen.put(glyph, style);
        if at + 1 == till {
            pen.put("]", theme.bold());
        }
    }
    let words = match &app.time_cursor {
        Some(cursor) => cursor_words(cursor, snapshot, app, theme),
        None => {
            let first = (line.end * line.step).saturating_sub(line.span());
            let max = busy.highest(first, line.now).unwrap_or(0.0);
            let end = if app.is_frozen() { "   " } else { "now" };
            let max = if max < 0.05 { "0".into() } else { average(f64::from(max)) };
            format!("{end}  busy threads 0-{}, max {max}", whole(scale))
        }
    };
    debug_assert!(width(&words) <= WORDS, "{words}");
    let style = if app.time_cursor.is_some() { theme.bold() } else { theme.dim() };
    pen.put(&words, style);
}

/// ` 14:03:31 busy 12.1, wait 213 ms`: what the second of the cursor is like.
fn cursor_words(cursor: &TimeCursor, snapshot: &Snapshot, app: &AppState, theme: &Theme) -> String {
    let clock = |at| theme.clock(&snapshot.session, at);
    let busy = &app.view.busy_threads;
    let figures = match cursor.till - cursor.from <= SECOND {
        true => busy.of_second(busy.second(cursor.from)),
        false => None,
    };
    let Some((threads, longest)) = figures else {
        return format!(" {}-{}", clock(cursor.from), clock(cursor.till));
    };
    let threads = if threads < 0.05 { "0".into() } else { average(threads.into()) };
    let wait = match longest {
        0 => String::new(),
        ns if ns < 10 * SECOND => format!(", wait {}", span(ns)),
        ns => format!(", wait {}", short_span(ns)),
    };
    format!(" {} busy {threads}{wait}", clock(cursor.from))
}

/// Formats a step of the scale: `20`, `5k`, `2M`.
fn whole(value: f32) -> String {
    match value {
        v if v < 1e4 => format!("{v:.0}"),
        v if v < 1e6 => format!("{:.0}k", v / 1e3),
        v => format!("{:.0}M", v / 1e6),
    }
}
