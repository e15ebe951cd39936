//! Draws the process picker.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::footer;
use super::overlay::put_edit;
use super::text::{Pen, count, cut_end, size, width};
use super::theme::Theme;
use crate::app::picker::Picker;
use crate::app::process_order::Column;
use crate::app::{AppState, Severity};

pub fn draw(buffer: &mut Buffer, screen: Rect, picker: &Picker, app: &AppState, theme: &Theme) {
    let mut pen = Pen::new(buffer, screen, 0);
    pen.space(1);
    match &picker.error {
        Some(error) => {
            let room = pen.room();
            pen.put(&cut_end(error, room, theme.glyphs.cut), theme.severity(Severity::Error));
        }
        None => {
            pen.put("sampletop", theme.bold()).put("  pick a process to watch", theme.plain());
            match picker.filter() {
                Some(filter) => {
                    let found = format!("  ({} of {})", picker.rows.len(), picker.len_of_all());
                    pen.put(", filter: ", theme.plain());
                    let room =
                        pen.room().saturating_sub(width(&found)).min(width(filter.text()) + 1);
                    put_edit(&mut pen, filter, room, theme);
                    pen.put(&found, theme.dim());
                }
                None => {
                    pen.put("; type to filter", theme.dim());
                }
            }
            if picker.marked() > 0 {
                pen.put(&format!(", {} marked", picker.marked()), theme.bold());
            }
        }
    }
    let columns = Column::on_screen(screen.width);
    let mut pen = Pen::new(buffer, screen, 1);
    // Below it are the marks.
    pen.space(1);
    for column in columns {
        let title = match (*column == picker.column, column.is_descending()) {
            (false, _) => title(*column).to_owned(),
            (true, true) => format!("{}{}", theme.glyphs.descending, title(*column)),
            (true, false) => format!("{}{}", theme.glyphs.ascending, title(*column)),
        };
        put(&mut pen, *column, &title, theme.title(), theme);
    }

    let rows = app.picker_rows().min(usize::from(screen.height.saturating_sub(2)));
    if picker.rows.is_empty() {
        let text = match picker.filter() {
            _ if !picker.known => "reading the list ...",
            Some(_) if picker.len_of_all() > 0 => "no process matches (Esc shows all)",
            _ => "no process that could be watched",
        };
        Pen::new(buffer, screen, 2).space(1).put(text, theme.dim());
    }
    for (y, (at, line)) in
        picker.rows.iter().enumerate().skip(picker.list.top).take(rows).enumerate()
    {
        let row = picker.row(line);
        let mut pen = Pen::new(buffer, screen, y as u16 + 2);
        pen.put(if picker.is_marked(row) { "*" } else { " " }, theme.bold());
        for column in columns {
            let style = match column {
                _ if !line.is_match => theme.dim(),
                Column::User | Column::Runtime | Column::Place => theme.dim(),
                _ => theme.plain(),
            };
            let text = match column {
                Column::Pid => row.pid.to_string(),
                Column::User => row.user.clone(),
                Column::Cpu => row.cpu_percent.map_or_else(String::new, |p| format!("{p:.1}")),
                Column::Memory => size(row.memory),
                Column::Threads => count(u64::from(row.threads)),
                Column::Runtime => row.runtime.to_owned(),
                Column::Place => row.place.clone(),
                Column::Command => {
                    let indent = 2 * line.depth.min(INDENTS_MAX);
                    format!("{:indent$}{}", "", row.command)
                }
            };
            put(&mut pen, *column, &text, style, theme);
        }
        if at == picker.list.cursor {
            pen.restyle_line(screen, theme.selected());
        }
    }
    if screen.height >= 3 {
        footer::draw(
            buffer,
            Rect { y: screen.y + screen.height - 1, height: 1, ..screen },
            app,
            theme,
        );
    }
}

/// Maximum depth at which children are still indented.
const INDENTS_MAX: usize = 10;

fn title(column: Column) -> &'static str {
    match column {
        Column::Pid => "PID",
        Column::User => "USER",
        Column::Cpu => "CPU%",
        Column::Memory => "MEM",
        Column::Threads => "THR",
        Column::Runtime => "RUNTIME",
        Column::Place => "UNIT, CONTAINER",
        Column::Command => "COMMAND",
    }
}

/// Draws one cell of a column, with the space to the next one.
fn put(pen: &mut Pen<'_>, column: Column, text: &str, style: Style, theme: &Theme) {
    let left = |width: usize| (cut_end(text, width - 1, theme.glyphs.cut).into_owned(), width);
    match column {
        Column::Pid => {
            pen.put_right(text, 7, style).space(1);
        }
        Column::Cpu | Column::Memory => {
            pen.put_right(text, 6, style);
        }
        Column::Threads => {
            pen.put_right(text, 6, style).space(2);
        }
        Column::User => {
            let (text, width) = left(10);
            pen.put_left(&text, width, style);
        }
        Column::Runtime => {
            let (text, width) = left(9);
            pen.put_left(&text, width, style);
        }
        Column::Place => {
            let (text, width) = left(26);
            pen.put_left(&text, width, style);
        }
        Column::Command => {
            let room = pen.room();
            pen.put(&cut_end(text, room, theme.glyphs.cut), style);
        }
    }
}
