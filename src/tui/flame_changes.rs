//! The flame graph in a comparison: its bars are those of the shown range, and say how each differs
//! from the baseline. What has time only there has no bar; a sentence says how much that is.

use ratatui::style::Style;

use super::bars::{NAME_LEAST, line_of, name, width_is, zoom_is};
use super::changes::{points, words};
use super::text::{Pen, cut_end, percent, width};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::flame::{Bar, BarOf};
use crate::app::flame_changes::{BarChange, Verdict};
use crate::model::transform::diff::Gone;

/// Cells of a name that are kept beside the words about a bar.
const NAME_KEPT: usize = 10;

pub fn titles(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    let mut bars = app.view.flame.bars();
    // The one that is as wide as the screen.
    let widest = bars.find(|bar| !bar.is_above);
    let change = widest.and_then(|bar| app.view.bar_change(bar.of));
    let gone = change.and_then(|change| gone_words(&change.gone, app));
    let gone = gone.map_or(String::new(), |gone| format!("; {gone}"));
    let title = format!("FLAME: width is {} now{}{gone}", width_is(app), zoom_is(app));
    let room = pen.room().saturating_sub(1);
    pen.space(1).put(&cut_end(&title, room, theme.glyphs.cut), theme.title());
    let mut legend = vec![
        ("+more", theme.bar_of_change(Verdict::More, true)),
        ("-less", theme.bar_of_change(Verdict::Less, true)),
        ("*new", theme.bar_of_change(Verdict::New, true)),
        ("~chance", theme.bar_of_change(Verdict::Unsure, false)),
    ];
    let cells =
        |legend: &[(&str, Style)]| -> usize { legend.iter().map(|(word, _)| word.len() + 1).sum() };
    while pen.room() <= cells(&legend) + 1 {
        if legend.pop().is_none() {
            return;
        }
    }
    let gap = pen.room() - cells(&legend) - 1;
    pen.space(gap);
    for (word, style) in legend {
        pen.space(1).put(word, style);
    }
}

/// Returns what stands in a bar: its name and the difference; where there is no room for both, a
/// sign and the name.
pub fn text(bar: Bar, change: &BarChange, cells: usize, app: &AppState, theme: &Theme) -> String {
    let difference = points(change.change.change);
    let (sign, figure) = match change.verdict {
        Verdict::Same => ("", "0.0".to_owned()),
        Verdict::Unsure => ("~", format!("{difference}~")),
        Verdict::More => ("+", difference),
        Verdict::Less => ("-", difference),
        Verdict::New => ("*", format!("{difference} new")),
    };
    if cells < NAME_LEAST {
        return cut_end(sign, cells, "").into_owned();
    }
    let whole = name(bar, cells, app, theme);
    if width(&whole) + width(&figure) + 1 < cells {
        return format!("{whole} {figure}");
    }
    format!("{sign}{}", name(bar, cells - width(sign), app, theme))
}

/// Says what is gone; `None` if nothing is.
fn gone_words(gone: &Gone, app: &AppState) -> Option<String> {
    let compared = app.view.compared.as_ref()?;
    let change = compared.diff.change(&gone.pair());
    let calls = match gone.calls {
        0 => return None,
        1 => "1 call".to_owned(),
        calls => format!("{calls} calls"),
    };
    let unsure = if change.is_resolved() { "" } else { "~" };
    Some(format!("gone: {}{unsure} % in {calls}", percent(change.before / 100.0)))
}

/// Says of the selected bar: its shares, their difference and its bounds, and what is gone below.
pub fn explain(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    let view = &app.view;
    let Some(bar) = view.flame.selected() else { return };
    let Some(change) = view.bar_change(bar.of) else { return };
    let line = match bar.of {
        BarOf::Node(node) => line_of(node, app),
        BarOf::All | BarOf::Group(_) => String::new(),
    };
    let of = if change.is_sum { "all of this name: " } else { "" };
    let long = words(&change.change);
    // Without the bounds.
    let short = match long.rsplit_once(" points, ") {
        Some((short, _)) => format!("{short} points"),
        None => long.clone(),
    };
    let gone = gone_words(&change.gone, app);
    let gone = gone.map_or(String::new(), |gone| format!("; {gone} below"));
    let texts = [&long, &short].map(|words| format!("  {of}{words}{gone}"));
    let room = pen.room().saturating_sub(2);
    let whole = name(bar, room, app, theme);
    let kept = (width(&whole) + width(&line)).min(NAME_KEPT);
    let fits = |text: &&String| width(text) + kept <= room;
    let text = texts.iter().find(fits).unwrap_or(&texts[1]);
    let room = room.saturating_sub(width(text)).max(kept);
    // The name is more than its line.
    let line = if width(&whole) + width(&line) <= room { line } else { String::new() };
    let name = name(bar, room - width(&line), app, theme);
    pen.space(1).put(&name, theme.bold()).put(&line, theme.dim());
    let room = pen.room().saturating_sub(1);
    pen.put(&cut_end(text, room, theme.glyphs.cut), theme.plain());
}
