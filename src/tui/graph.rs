//! The graph view: the callers of a function, the function, and what it calls.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::columns::{self, Column, Figures};
use super::label;
use super::text::{Pen, cut_end, percent};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::call_graph::GraphRow;
use crate::model::projection::{Label, Totals};

/// Cells of the share of the function's time.
const SHARE: usize = 8;

pub fn titles(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    pen.put_right("OF IT%", SHARE - 1, theme.title())
        .space(1)
        .put_right(columns::title(Column::Total, &app.view.shown), 7, theme.title())
        .space(2)
        .put_left("STATE", 10, theme.title())
        .space(1)
        .put("CALLERS, THE FUNCTION, WHAT IT CALLS", theme.title());
}

pub fn draw(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let view = &app.view;
    for y in 0..area.height {
        let at = view.graph.list.list.top + usize::from(y);
        let Some(row) = view.graph.list.rows.get(at) else { break };
        let mut pen = Pen::new(buffer, area, y);
        draw_row(&mut pen, *row, app, theme);
        if at == view.graph.list.list.cursor {
            pen.restyle_line(area, theme.selected());
        }
    }
}

fn draw_row(pen: &mut Pen<'_>, row: GraphRow, app: &AppState, theme: &Theme) {
    let view = &app.view;
    let graph = &view.graph;
    let Some(total) = graph.totals(row, &view.projection) else { return };
    let whole = graph.totals(GraphRow::Middle, &view.projection).unwrap_or_default();
    let metric = view.shown.metric;
    let figures = Figures { total, own: Totals::default(), trend: None };
    let unresolved = figures.is_unresolved(app);
    let number = if unresolved { theme.dim() } else { theme.plain() };
    pen.put_right(&percent(total.share(metric, &whole)), SHARE - 1, number);
    for column in [Column::Total, Column::State] {
        figures.write(column, pen, app, theme, unresolved);
    }
    let room = pen.room().saturating_sub(2);
    let name = |pen: &mut Pen<'_>, indent: usize, mark: &str, room: usize| {
        pen.space(1 + indent).put(mark, theme.dim());
        let room = room.saturating_sub(indent + mark.chars().count());
        match graph.location(row, &view.projection, &view.shown) {
            Some(location) => {
                label::put(pen, &Label::of_function(location), room, unresolved, app, theme);
            }
            None => {
                pen.put(&cut_end("(threads)", room, theme.glyphs.cut), theme.dim());
            }
        }
    };
    match row {
        GraphRow::Caller(_) => name(pen, 2, "", room),
        GraphRow::Callee(_) => name(pen, 4, theme.glyphs.calls, room),
        GraphRow::Own(_) => {
            pen.space(5).put("its own time", theme.dim());
        }
        GraphRow::Middle => {
            let share = graph.recursive.share(metric, &whole);
            let recursive = match share >= 0.0005 {
                true => format!("  {} % recursive", percent(share)),
                false => String::new(),
            };
            name(pen, 0, &format!("{} ", theme.glyphs.open), room.saturating_sub(recursive.len()));
            pen.put(&recursive, theme.dim());
        }
    }
}
