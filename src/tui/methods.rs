//! The methods view: one row per function, all its callers summed.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::columns::{Column, Figures};
use super::label;
use super::text::{Pen, cut_end};
use super::theme::Theme;
use crate::app::AppState;
use crate::model::projection::Label;

pub fn draw(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let view = &app.view;
    let columns = view.columns(area.width);
    for y in 0..area.height {
        let at = view.methods.list.top + usize::from(y);
        let Some(method) = view.methods.rows.get(at) else { break };
        let location = view.method_location(*method);
        let method = view.method(*method);
        let figures = Figures { total: method.total, own: method.own, trend: view.trend(at) };
        let unresolved = figures.is_unresolved(app);
        let mut pen = Pen::new(buffer, area, y);
        for column in &columns.shown {
            match column {
                Column::Name => {
                    pen.space(3);
                    let room = columns.name.saturating_sub(2);
                    let label = Label::of_method(method, view.shown.metric);
                    label::put(&mut pen, &label, room, unresolved, app, theme);
                }
                Column::Module => {
                    let module = cut_end(&location.module, 18, theme.glyphs.cut);
                    pen.space(1).put_left(&module, 18, theme.dim());
                }
                column => figures.write(*column, &mut pen, app, theme, unresolved),
            }
        }
        if at == view.methods.list.cursor {
            pen.restyle_line(area, theme.selected());
        }
    }
}
