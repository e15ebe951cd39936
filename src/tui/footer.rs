//! The last lines: the active filters and how much they hide; a message, or the keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::text::{Pen, cut_end, percent, span, width};
use super::theme::Theme;
use crate::app::keymap;
use crate::app::{AppState, Severity};
use crate::model::projection::Totals;
use crate::model::projection::settings::NativeFrames;

/// Minimum cells of the last filter; and of one before it, where the number of the others shall
/// have room, too.
const ONE: usize = 20;
const ONE_OF_SEVERAL: usize = ONE + 12;

/// Draws the active filters, each with the time it hides.
pub fn draw_filters(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let mut pen = Pen::new(buffer, area, 0);
    pen.space(1);
    let active = active(app);
    let count = active.len();
    for (nth, (name, text, hidden)) in active.into_iter().enumerate() {
        let rest = count - nth;
        if nth > 0 && pen.room() < if rest > 1 { ONE_OF_SEVERAL } else { ONE } {
            pen.put(&format!("+{rest} more (f)"), theme.severity(Severity::Info));
            break;
        }
        let part = format!("{name} ");
        let hides = match hidden {
            Some(totals) => {
                let (hidden, all) = (totals.value(app.view.settings.metric), everything(app));
                let share = if all == 0 { 0.0 } else { hidden as f64 / all as f64 };
                match count {
                    1 => format!(" hides {}% ({})", percent(share), span(hidden)),
                    _ => format!(" hides {}%", percent(share)),
                }
            }
            None => String::new(),
        };
        let room = pen.room().saturating_sub(width(&part) + width(&hides)).max(4);
        pen.put(&part, theme.dim());
        pen.put(&cut_end(&text, room.min(24), theme.glyphs.cut), theme.severity(Severity::Info));
        pen.put(&hides, theme.plain()).space(3);
    }
}

fn active(app: &AppState) -> Vec<(&'static str, String, Option<&Totals>)> {
    let f = &app.view.settings.filters;
    let hidden = &app.view.projection.hidden;
    let mut parts = Vec::new();
    if let Some(prefixes) = f.interesting.active() {
        parts.push(("interesting", prefixes.join(","), None));
    }
    for (name, filter, totals) in [
        ("focus", &f.focus, Some(&hidden.focus)),
        ("ignore", &f.ignore, Some(&hidden.ignore)),
        ("hide", &f.hide, None),
        ("threads", &f.threads, Some(&hidden.threads)),
    ] {
        if let Some(regex) = filter.active() {
            parts.push((name, regex.as_str().to_string(), totals));
        }
    }
    if f.skip_daemon {
        parts.push(("no", "daemons".into(), Some(&hidden.daemons)));
    }
    if f.gil {
        parts.push(("only", "with the GIL".into(), Some(&hidden.gil)));
    }
    if f.no_kernel {
        parts.push(("no", "kernel".into(), None));
    }
    if f.native != NativeFrames::Auto {
        parts.push(("native", f.native.word().into(), None));
    }
    if let Some(percent) = f.min_percent.active() {
        parts.push(("min", format!("{percent}%"), None));
    }
    parts
}

/// Returns the time that would be shown without filters.
fn everything(app: &AppState) -> u64 {
    let metric = app.view.settings.metric;
    let p = &app.view.projection;
    p.total.value(metric) + p.hidden.by_filters().iter().map(|t| t.value(metric)).sum::<u64>()
}

/// Keys that stay beside a message.
const KEPT: usize = 3;

/// Draws a message if there is one, and the keys that are useful here.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let mut pen = Pen::new(buffer, area, 0);
    pen.space(1);
    if let Some((text, severity)) = &app.notice {
        let hints = keymap::hints(app.place()).into_iter().take(KEPT);
        let kept: usize = hints.map(|(key, word)| width(&key.to_string()) + width(word) + 3).sum();
        let room = pen.room();
        pen.put(&cut_end(text, room, theme.glyphs.cut), theme.severity(*severity));
        // The message goes before the keys.
        if width(text) + kept + 2 <= room {
            pen.space(pen.room().saturating_sub(kept));
            put_hints(&mut pen, app, theme, KEPT);
        }
        return;
    }
    put_hints(&mut pen, app, theme, usize::MAX);
}

fn put_hints(pen: &mut Pen<'_>, app: &AppState, theme: &Theme, most: usize) {
    for (key, word) in keymap::hints(app.place()).into_iter().take(most) {
        let key = key.to_string();
        let room = width(&key) + width(word) + 1;
        if pen.room() < room + 1 {
            break;
        }
        pen.put(&key, theme.key()).space(1).put(word, theme.dim()).space(2);
    }
}
