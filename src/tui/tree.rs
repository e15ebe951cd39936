//! The tree of calls, one group of threads after the other.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::branch;
use super::columns::{Column, Figures};
use super::label;
use super::text::{Pen, cut_end, width};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::columns::Columns;
use crate::app::rows::{Row, What};

pub fn draw(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let view = &app.view;
    let columns = view.columns(area.width);
    for y in 0..area.height {
        let at = view.tree.top + usize::from(y);
        let Some(row) = view.rows.get(at) else { break };
        let mut pen = Pen::new(buffer, area, y);
        draw_row(&mut pen, (at, row), &columns, app, theme);
        if at == view.tree.cursor {
            pen.restyle_line(area, theme.selected());
        }
    }
}

fn draw_row(
    pen: &mut Pen<'_>,
    (at, row): (usize, &Row),
    columns: &Columns,
    app: &AppState,
    theme: &Theme,
) {
    let projection = app.view.trees();
    let (total, own) = app.view.row_totals(row);
    let figures = Figures { total, own, trend: app.view.trend(at) };
    let unresolved = figures.is_unresolved(app);
    for column in &columns.shown {
        match column {
            Column::Name => draw_name(pen, row, columns.name, unresolved, app, theme),
            Column::Module => {
                let module = match row.what {
                    What::Node(node) => &projection.name(node).module,
                    What::Group(_) | What::Small(_) | What::SmallGroups => "",
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
    let projection = app.view.trees();
    let glyphs = theme.glyphs;
    let room = branch::put_indent(pen, (row.depth, row.chained), row.fold, cells, theme);
    match row.what {
        What::Group(group) => {
            let group = &projection.groups[group as usize];
            let threads = group.thread_count();
            // The count is dropped if the name needs its cells. That of one thread tells less than
            // the end of the name: of a process of PostgreSQL that is what it does.
            let left = room.saturating_sub(width(&threads));
            let has_room = left > if group.threads.len() == 1 { width(&group.name) } else { 12 };
            let right = if has_room { threads } else { String::new() };
            let room = room - width(&right);
            let style = if unresolved { theme.dim() } else { theme.group() };
            let name = label::group_name(&group.name, room.saturating_sub(1), theme);
            label::put_found(pen, &name, room, style, app, theme);
            pen.put(&right, theme.dim());
        }
        What::Node(node) => {
            let ordered = projection.ordered(&app.view.shown);
            let label = crate::model::projection::label(&ordered, node, u32::from(row.swallowed));
            let is_caller = app.view.shown.inverted && projection.parent(node).is_some();
            let mark = if is_caller { glyphs.called_by } else { "" };
            pen.put(mark, theme.dim());
            label::put(pen, &label, room - width(mark).min(room), unresolved, app, theme);
        }
        What::Small(_) | What::SmallGroups => {
            branch::put_small(pen, row.what, row.small, "0.5 %", room, theme);
        }
    }
}
