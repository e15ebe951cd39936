//! The view of one function's source lines or instructions: the share of the function's time at
//! each, its number or address, and its text.
//!
//! ```text
//!  OF IT%   SELF%     LINE  SOURCE OF checkout: /srv/shop/src/main.cpp
//!                       40  for (const auto& item : cart.items()) {
//!    84.1    12.0       41      sum += price(item);
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::text::{Pen, cut_end, cut_start, percent, width};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::short_names;
use crate::app::source_view::{Shown, SourceView};
use crate::model::facts::tables::Location;
use crate::model::projection::settings::{Metric, RollUp};

/// Cells of a share, and of a line's number or an address.
const SHARE: usize = 7;
const NUMBER: usize = 9;
/// A line with this part of the time or more is hot.
const HOT: f64 = 0.1;

pub fn titles(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    let view = &app.view.source;
    let (number, of) = match view.shown {
        Shown::Source => ("LINE", "SOURCE OF "),
        Shown::Instructions => ("ADDRESS", "INSTRUCTIONS OF "),
    };
    pen.put_right("OF IT%", SHARE, theme.title())
        .put_right("SELF%", SHARE + 1, theme.title())
        .put_right(number, NUMBER, theme.title())
        .space(2);
    let Some(function) = &view.function else { return };
    pen.put(of, theme.title());
    let path = path(view);
    // The end of a path tells more than its start.
    let least = if path.is_empty() { 0 } else { (pen.room() / 3).min(width(&path) + 2) };
    let name = name(function, app);
    let name = cut_end(&name, pen.room().saturating_sub(least + 1), theme.glyphs.cut).into_owned();
    pen.put(&name, theme.bold());
    if !path.is_empty() {
        let room = pen.room().saturating_sub(3);
        pen.put(": ", theme.title()).put(&cut_start(&path, room, theme.glyphs.cut), theme.title());
    }
}

fn name(function: &Location, app: &AppState) -> String {
    match app.view.short_names {
        true => short_names::short(function, RollUp::Function).into_owned(),
        false => function.function.to_string(),
    }
}

/// Returns the file that is displayed; of instructions with the function that they are of, if that
/// is another.
fn path(view: &SourceView) -> String {
    match view.shown {
        Shown::Source => match (view.source.text(), &view.file) {
            (Some(text), _) => text.path.clone(),
            (None, Some(file)) => file.to_string(),
            (None, None) => String::new(),
        },
        Shown::Instructions => match view.code.text() {
            Some(code) => {
                let own = view.function.as_ref().map(|function| &*function.function);
                match code.function.is_empty() || own == Some(&*code.function) {
                    true => code.path.clone(),
                    false => format!("in {}, {}", code.function, code.path),
                }
            }
            None => String::new(),
        },
    }
}

pub fn draw(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let view = &app.view.source;
    let metric = app.view.shown.metric;
    for y in 0..area.height {
        let at = view.list.top + usize::from(y);
        if at >= view.rows() {
            break;
        }
        let mut pen = Pen::new(buffer, area, y);
        let number = match (view.shown, view.number(at)) {
            (Shown::Source, Some(line)) => line.to_string(),
            (Shown::Instructions, Some(address)) => format!("{address:x}"),
            (_, None) => String::new(),
        };
        draw_shares(&mut pen, at, view, metric, theme);
        pen.put_right(&number, NUMBER, theme.dim()).space(2);
        let text = view.text(at).unwrap_or_default();
        let is_found = app.view.search.as_ref().is_some_and(|search| search.is_match(text));
        let style = if is_found { theme.found() } else { theme.plain() };
        let room = pen.room().saturating_sub(1);
        pen.put(&cut_end(text, room, theme.glyphs.cut), style);
        if at == view.list.cursor {
            pen.restyle_line(area, theme.selected());
        }
    }
}

/// Writes the shares of a row; nothing where it has no time.
fn draw_shares(pen: &mut Pen<'_>, at: usize, view: &SourceView, metric: Metric, theme: &Theme) {
    let Some(hot) = view.hot(at) else {
        pen.space(2 * SHARE + 1);
        return;
    };
    let share = |of: f64, cells, pen: &mut Pen<'_>| {
        let style = match of {
            of if of < 0.0005 => theme.dim(),
            of if of >= HOT => theme.bold(),
            _ => theme.plain(),
        };
        pen.put_right(&percent(of), cells, style);
    };
    let whole = &view.time.total;
    share(hot.total.share(metric, whole), SHARE, pen);
    share(hot.own.share(metric, whole), SHARE + 1, pen);
}

/// Cells between two items on the line.
const GAP: usize = 3;

/// The line below the rows: why a text is not there, or how much the function has.
pub fn explain(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    let keys = match app.view.source.shown {
        Shown::Source => "a: instructions",
        Shown::Instructions => "a: source",
    };
    pen.space(1).put("> ", theme.bold());
    let room = pen.room().saturating_sub(1);
    let text = sentence(app, room);
    let has_keys = width(&text) + GAP + width(keys) <= room;
    pen.put(&cut_end(&text, room, theme.glyphs.cut), theme.plain());
    if has_keys {
        let room = pen.room().saturating_sub(width(keys) + 1);
        pen.space(room).put(keys, theme.dim());
    }
}

/// Says how much time the function has, and what is missing; the latter alone where there is no
/// room for both.
fn sentence(app: &AppState, room: usize) -> String {
    let view = &app.view.source;
    let metric = app.view.shown.metric;
    let total = app.view.total_of_source();
    let share = percent(total.share(metric, &app.view.projection.total));
    let mut text = format!("this function has {share} % of the time shown");
    let least = format!("{share} % of the time shown");
    let mut short = least.clone();
    let elsewhere = view.elsewhere.share(metric, &view.time.total);
    if elsewhere >= HOT && view.rows() > 0 {
        let elsewhere = percent(elsewhere);
        text += &format!(", {elsewhere} % of it in other code than this");
        short += &format!(", {elsewhere} % of it elsewhere");
    }
    let Some(trouble) = view.trouble() else { return text };
    let both = [text, short, least].map(|share| format!("{share}; {trouble}"));
    both.into_iter().find(|both| width(both) <= room).unwrap_or(trouble)
}

/// Says in one sentence why there are no rows.
pub fn nothing(view: &SourceView) -> &'static str {
    if view.is_reading() && view.time.total.is_empty() {
        "the function has no time in this range (L: live again, w: another one)"
    } else if view.is_reading() {
        "reading ..."
    } else {
        "there is nothing to show: the line below says why"
    }
}
