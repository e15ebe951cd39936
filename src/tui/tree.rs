//! The tree of calls, one group of threads after the other.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use regex::Regex;

use super::columns::{Column, Columns, Figures};
use super::text::{Pen, cut_end, cut_start, width};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::rows::{Fold, Row, What};
use crate::app::short_names;
use crate::model::facts::tables::{FrameKind, Location};

/// Minimum cells of a name, whatever its indentation.
const NAME_LEAST: usize = 16;
/// Suffix of kernel functions' names.
const OF_KERNEL: &str = " [k]";

pub fn draw(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let view = &app.view;
    let columns = Columns::new(area.width);
    for y in 0..area.height {
        let at = view.tree.top + usize::from(y);
        let Some(row) = view.rows.get(at) else { break };
        let mut pen = Pen::new(buffer, area, y);
        draw_row(&mut pen, row, &columns, app, theme);
        if at == view.tree.cursor {
            pen.restyle_line(area, theme.selected());
        }
    }
}

fn draw_row(pen: &mut Pen<'_>, row: &Row, columns: &Columns, app: &AppState, theme: &Theme) {
    let projection = &app.view.projection;
    let figures = match row.what {
        What::Group(group) => {
            let group = &projection.groups[group as usize];
            Figures { total: group.total, own: group.own }
        }
        What::Node(node) => {
            let node = projection.node(node, app.view.settings.metric);
            Figures { total: node.total, own: node.own }
        }
    };
    let unresolved = figures.is_unresolved(app);
    for column in &columns.shown {
        match column {
            Column::Name => draw_name(pen, row, columns.name, unresolved, app, theme),
            Column::Module => {
                let module = match row.what {
                    What::Group(_) => "",
                    What::Node(node) => &projection.name(node).module,
                };
                pen.space(1).put_left(&cut_end(module, 18, theme.glyphs.cut), 18, theme.dim());
            }
            column => figures.write(*column, pen, app, theme, unresolved),
        }
    }
}

fn draw_name(
    pen: &mut Pen<'_>,
    row: &Row,
    cells: usize,
    unresolved: bool,
    app: &AppState,
    theme: &Theme,
) {
    let projection = &app.view.projection;
    pen.space(1);
    // Indentation stops where the name would have no room.
    let indent = (usize::from(row.depth) * 2).min(cells.saturating_sub(NAME_LEAST + 2));
    let glyphs = theme.glyphs;
    if row.chained && indent > 0 {
        pen.space(indent - 1).put(glyphs.hangs, theme.dim());
    } else {
        pen.space(indent);
    }
    let mark = match row.fold {
        Fold::Leaf => "  ".to_string(),
        Fold::Open => format!("{} ", glyphs.open),
        Fold::Closed => format!("{} ", glyphs.closed),
    };
    pen.put(&mark, theme.dim());
    let room = cells.saturating_sub(indent + 2);
    match row.what {
        What::Group(group) => {
            let group = &projection.groups[group as usize];
            let n = group.threads.len();
            let threads = format!("{n} thread{}", if n == 1 { "" } else { "s" });
            // The count is dropped if the name needs its cells.
            let right = if room > width(&threads) + 12 { threads } else { String::new() };
            let room = room - width(&right);
            let style = if unresolved { theme.dim() } else { theme.group() };
            let name = cut_end(&group.name, room.saturating_sub(1), glyphs.cut);
            put_found(pen, &name, room, style, app, theme);
            pen.put(&right, theme.dim());
        }
        What::Node(node) => {
            let location = app.view.node_location(node);
            put_location(pen, location, row.swallowed, room, unresolved, app, theme);
        }
    }
}

/// Writes `...41 Name    :88` in `cells`.
pub fn put_location(
    pen: &mut Pen<'_>,
    location: &Location,
    swallowed: u16,
    room: usize,
    unresolved: bool,
    app: &AppState,
    theme: &Theme,
) {
    let swallowed = if swallowed > 0 { format!("...{swallowed} ") } else { String::new() };
    let line = location.line.map(|line| format!(":{line}")).unwrap_or_default();
    // The line number is dropped if the name needs its cells.
    let line = if room >= 24 + width(&line) { line } else { String::new() };
    let room = room - width(&line);
    pen.put(&cut_end(&swallowed, room, ""), theme.dim());
    let room = room.saturating_sub(width(&swallowed));
    let style = if unresolved {
        theme.kind(location.kind).patch(theme.dim())
    } else {
        theme.kind(location.kind)
    };
    let name = if app.view.short_names {
        short_names::short(location, app.view.shown.roll_up)
    } else {
        location.function.as_ref().into()
    };
    // Kernel functions are distinguishable without colour too.
    let of_kernel = location.kind == FrameKind::Kernel && !name.starts_with('[') && room >= 12;
    let suffix = if of_kernel { OF_KERNEL } else { "" };
    let least = room.saturating_sub(usize::from(!line.is_empty()) + width(suffix));
    // The end of a long path is more informative than its beginning; of a marker it is the
    // beginning.
    let name = match location.kind {
        FrameKind::Marker => cut_end(&name, least, theme.glyphs.cut),
        _ => cut_start(&name, least, theme.glyphs.cut),
    };
    if suffix.is_empty() {
        put_found(pen, &name, room, style, app, theme);
    } else {
        put_found(pen, &name, width(&name), style, app, theme);
        pen.put(suffix, style).space(room.saturating_sub(width(&name) + width(suffix)));
    }
    pen.put(&line, theme.dim());
}

/// Writes `text` and pads it to `cells`; marks the search's matches.
fn put_found(
    pen: &mut Pen<'_>,
    text: &str,
    cells: usize,
    style: Style,
    app: &AppState,
    theme: &Theme,
) {
    let end = pen.room().saturating_sub(cells);
    let found = app
        .view
        .search
        .as_ref()
        .and_then(|search: &Regex| search.find(text))
        .filter(|m| !m.is_empty());
    match found {
        Some(found) => {
            pen.put(&text[..found.start()], style);
            pen.put(&text[found.range()], style.patch(theme.found()));
            pen.put(&text[found.end()..], style);
        }
        None => {
            pen.put(text, style);
        }
    }
    pen.space(pen.room().saturating_sub(end));
}
