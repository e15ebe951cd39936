//! The history line: active threads over the last minutes, the shown range in brackets.

use super::text::Pen;
use super::theme::Theme;
use crate::app::AppState;
use crate::app::activity::{Activity, SECONDS};
use crate::model::frame::SECOND;

/// What the line may span, seconds: the least that holds the whole session, ten minutes at most.
const SPANS: [(usize, &str); 4] = [(60, " 1m "), (120, " 2m "), (300, " 5m "), (SECONDS, "10m ")];

pub fn draw(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    let activity = &app.view.activity;
    let known = activity.threads.len();
    let (seconds, label) = SPANS.iter().find(|(s, _)| *s >= known).copied().unwrap_or((SECONDS, "10m "));
    let max = activity.threads.iter().copied().fold(0.0, f32::max);
    let words = format!("now  active thr, max {}", super::text::average(f64::from(max)));
    pen.put(label, theme.dim());
    // Two cells for the brackets, one at the end of the line.
    let cells = pen.room().saturating_sub(super::text::width(&words) + 3);
    if cells < 5 {
        return;
    }
    // Seconds from the right end: the cell `cells - 1` ends now.
    let newest = activity.till();
    let cell_at = |seconds_ago: f64| {
        let at = cells as f64 - seconds_ago / seconds as f64 * cells as f64;
        at.round().clamp(0.0, cells as f64) as usize
    };
    let ago = |at: u64| newest.saturating_sub(at) as f64 / SECOND as f64;
    let (from, till) = (cell_at(ago(app.view.projection.from)), cell_at(ago(app.view.projection.till)));
    // The shown range has a cell at least.
    let from = from.min(till.saturating_sub(1));
    for cell in 0..cells {
        if cell == from {
            pen.put("[", theme.bold());
        }
        let shown = (from..till).contains(&cell);
        let style = if shown { theme.bar() } else { theme.dim() };
        pen.put(spark(activity, cell, cells, seconds, max, theme), style);
        if cell + 1 == till {
            pen.put("]", theme.bold());
        }
    }
    pen.put(&words, theme.dim());
}

/// The highest second of the cell, so that a spike is never averaged away.
fn spark(activity: &Activity, cell: usize, cells: usize, seconds: usize, max: f32, theme: &Theme) -> &'static str {
    let known = activity.threads.len();
    // Seconds before now: [newer, older).
    let older = ((cells - cell) * seconds).div_ceil(cells);
    let newer = ((cells - cell - 1) * seconds / cells).min(older.saturating_sub(1));
    let (from, till) = (known.saturating_sub(older), known.saturating_sub(newer));
    if newer >= known {
        return " ";
    }
    let top = activity.threads.range(from..till).copied().fold(0.0, f32::max);
    let spark = theme.glyphs.spark;
    if max <= 0.0 { spark[0] } else { spark[((top / max * 7.0).round() as usize).min(7)] }
}
