//! The help page, and the page of who wakes whom.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::text::{Pen, cut_end};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::help::{Line, key_cells};

pub fn draw(buffer: &mut Buffer, screen: Rect, top: usize, app: &AppState, theme: &Theme) {
    let lines = app.page_lines();
    let rows = app.help_rows().min(usize::from(screen.height));
    let keys = key_cells(app.width);
    for (y, line) in lines.iter().skip(top).take(rows).enumerate() {
        let mut pen = Pen::new(buffer, screen, y as u16);
        pen.space(1);
        match line {
            Line::Heading(text) => pen.put(text, theme.bold()),
            Line::Text(text) => pen.put(text, theme.plain()),
            Line::Entry(word, doc) => {
                pen.space(1).put_left(word, keys, theme.key());
                let room = pen.room().saturating_sub(1);
                pen.space(1).put(&cut_end(doc, room, theme.glyphs.cut), theme.plain())
            }
            Line::Empty => &mut pen,
        };
        if app.found_line() == Some(top + y) {
            pen.restyle_line(screen, theme.selected());
        }
    }
    if usize::from(screen.height) > rows {
        let last = (top + rows).min(lines.len());
        let place = format!("{}-{} of {}", top + 1, last, lines.len());
        let text = match &app.notice {
            Some((notice, _)) => format!("{place}   {notice}"),
            None => format!("{place}   up down PgUp PgDn scroll   / search   q back"),
        };
        Pen::new(buffer, screen, screen.height - 1).space(1).put(&text, theme.dim());
    }
}
