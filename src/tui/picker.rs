//! Draws the process picker.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::footer;
use super::overlay::put_edit;
use super::text::{Pen, count, cut_end, width};
use super::theme::Theme;
use crate::app::picker::Picker;
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
        }
    }
    // On a narrow screen the command matters more than its user.
    let wide = screen.width >= 60;
    let mut pen = Pen::new(buffer, screen, 1);
    let title = theme.title();
    pen.put_right("PID", 8, title).space(1);
    if wide {
        pen.put_left("USER", 10, title);
    }
    pen.put_right("CPU%", 6, title).put_right("THR", 6, title).space(2);
    if wide {
        pen.put_left("RUNTIME", 9, title);
    }
    pen.put("COMMAND", title);

    let rows = app.picker_rows().min(usize::from(screen.height.saturating_sub(2)));
    if picker.rows.is_empty() {
        let text = match picker.filter() {
            _ if !picker.known => "reading the list ...",
            Some(_) if picker.len_of_all() > 0 => "no process matches (Esc shows all)",
            _ => "no process that could be watched",
        };
        Pen::new(buffer, screen, 2).space(1).put(text, theme.dim());
    }
    for (y, (at, row)) in
        picker.rows.iter().enumerate().skip(picker.list.top).take(rows).enumerate()
    {
        let mut pen = Pen::new(buffer, screen, y as u16 + 2);
        pen.put_right(&row.pid.to_string(), 8, theme.plain()).space(1);
        if wide {
            pen.put_left(&cut_end(&row.user, 9, theme.glyphs.cut), 10, theme.dim());
        }
        let cpu = row.cpu_percent.map_or_else(String::new, |p| format!("{p:.1}"));
        pen.put_right(&cpu, 6, theme.plain())
            .put_right(&count(u64::from(row.threads)), 6, theme.plain())
            .space(2);
        if wide {
            pen.put_left(row.runtime, 9, theme.dim());
        }
        let room = pen.room();
        pen.put(&cut_end(&row.command, room, theme.glyphs.cut), theme.plain());
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
