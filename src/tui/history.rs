//! The history line: busy threads over the last minutes, the shown range in brackets.
//!
//! A bar covers a fixed span of the session: past bars keep their height and move by whole cells. A
//! frozen line does not move.

use super::text::{Pen, average, width};
use super::theme::Theme;
use crate::app::AppState;
use crate::model::projection::BusyThreads;

/// Spans of the line, seconds. The shortest that holds the whole session is used; the maximum is
/// ten minutes.
const SPANS: [u64; 4] = [60, 120, 300, BusyThreads::SECONDS as u64];

/// Cells for the words at the end of the line, enough for the longest, so that no figure moves the
/// bars.
const WORDS: usize = 35;

pub fn draw(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    // The label, two cells for the brackets, and one at the end of the line.
    let cells = pen.room().saturating_sub(LABEL + WORDS + 3) as u64;
    let Some(snapshot) = app.view.snapshot.as_ref().filter(|_| cells >= 5) else { return };
    let busy = &app.view.busy_threads;
    let now = busy.seconds(snapshot.at);
    let fits = |step: &u64| step * cells >= now.min(BusyThreads::SECONDS as u64);
    let step = SPANS
        .iter()
        .map(|span| span.div_ceil(cells))
        .find(fits)
        .unwrap_or((BusyThreads::SECONDS as u64).div_ceil(cells));
    // Bars are counted from the beginning of the session; this is the one after the newest.
    let end = now.max(1).div_ceil(step);
    let scale = busy.scale(now);
    let cell = |bar: u64| (bar + cells).saturating_sub(end).min(cells);
    let till = cell(busy.second_from(app.view.projection.till).div_ceil(step)).max(1);
    // The shown range has at least one cell.
    let from = cell(busy.second(app.view.projection.from) / step).min(till - 1);

    let label = match step * cells {
        span @ ..120 => format!("{span}s"),
        span => format!("{}m", span / 60),
    };
    pen.put_left(&label, LABEL, theme.dim());
    for at in 0..cells {
        if at == from {
            pen.put("[", theme.bold());
        }
        let style = if (from..till).contains(&at) { theme.bar() } else { theme.dim() };
        // The bar's maximum over its seconds, so that averaging never hides a spike.
        let highest = (end + at).checked_sub(cells).and_then(|bar| {
            let from = bar * step;
            busy.highest(from, (from + step).min(now))
        });
        let spark = theme.glyphs.spark;
        let glyph = highest.map_or(" ", |top| spark[((top / scale * 7.0).round() as usize).min(7)]);
        pen.put(glyph, style);
        if at + 1 == till {
            pen.put("]", theme.bold());
        }
    }
    let max = busy.highest((end * step).saturating_sub(step * cells), now).unwrap_or(0.0);
    let end = if app.is_frozen() { "   " } else { "now" };
    let max = if max < 0.05 { "0".into() } else { average(f64::from(max)) };
    let words = format!("{end}  busy threads 0-{}, max {max}", whole(scale));
    debug_assert!(width(&words) <= WORDS, "{words}");
    pen.put(&words, theme.dim());
}

/// Cells of the label, including a space.
const LABEL: usize = 5;

/// Formats a step of the scale: `20`, `5k`, `2M`.
fn whole(value: f32) -> String {
    match value {
        v if v < 1e4 => format!("{v:.0}"),
        v if v < 1e6 => format!("{:.0}k", v / 1e3),
        v => format!("{:.0}M", v / 1e6),
    }
}
