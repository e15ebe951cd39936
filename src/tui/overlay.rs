//! Drawn over the view: prompts, questions, the filter dialog.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::text::{Pen, cut_end, cut_start, width};
use super::theme::Theme;
use crate::app::filters::{Dialog, Field};
use crate::app::line_edit::LineEdit;
use crate::app::prompt::{Ask, Prompt};
use crate::app::{AppState, Severity};

/// Draws the prompt on the last line, and its error on the line above.
pub fn draw_prompt(buffer: &mut Buffer, screen: Rect, prompt: &Prompt, theme: &Theme) {
    let last = Rect { y: screen.y + screen.height - 1, height: 1, ..screen };
    clear(buffer, last);
    let mut pen = Pen::new(buffer, last, 0);
    pen.space(1);
    let label = prompt.question.label();
    if pen.room() > width(label) + 12 {
        pen.put(label, theme.bold()).put(": ", theme.bold());
    }
    let room = pen.room();
    put_edit(&mut pen, &prompt.edit, room.saturating_sub(1), theme);
    if let Some(error) = prompt.error.as_ref().filter(|_| screen.height > 1) {
        let above = Rect { y: last.y - 1, ..last };
        clear(buffer, above);
        let mut pen = Pen::new(buffer, above, 0);
        let room = pen.room().saturating_sub(2);
        pen.space(1).put(&cut_end(error, room, theme.glyphs.cut), theme.severity(Severity::Error));
    }
}

pub fn draw_ask(buffer: &mut Buffer, area: Rect, ask: Ask, theme: &Theme) {
    clear(buffer, area);
    let mut pen = Pen::new(buffer, area, 0);
    // The letters of the choice stand at the end and must not be cut.
    let room = pen.room().saturating_sub(1);
    pen.space(1)
        .put(&cut_start(ask.text(), room, theme.glyphs.cut), theme.severity(Severity::Warning));
}

/// Draws a box in the middle of the rows.
pub fn draw_dialog(
    buffer: &mut Buffer,
    screen: Rect,
    dialog: &Dialog,
    app: &AppState,
    theme: &Theme,
) {
    let wanted = (Field::ALL.len() + 4) as u16;
    let (width_, height) = (screen.width.min(76), screen.height.min(wanted));
    let area = Rect {
        x: screen.x + (screen.width - width_) / 2,
        y: screen.y + (screen.height - height) / 2,
        width: width_,
        height,
    };
    // One empty cell around the box.
    let around = Rect { x: area.x.saturating_sub(1), width: area.width + 2, ..area };
    clear(buffer, around.intersection(screen));
    let inner = frame(buffer, area, " Filters ", theme);
    // On a low screen only the lines around the selected field.
    let rows = inner.height.saturating_sub(2).max(1);
    let top = (dialog.at as u16 + 1).saturating_sub(rows);
    for (y, at) in (usize::from(top)..Field::ALL.len()).take(usize::from(rows)).enumerate() {
        let field = Field::ALL[at];
        let (text, on) = field.read(&app.view.settings.filters);
        let mut pen = Pen::new(buffer, inner, y as u16);
        pen.put(if on { "[x] " } else { "[ ] " }, theme.plain());
        pen.put_left(field.label(), 12, if at == dialog.at { theme.bold() } else { theme.plain() });
        match &dialog.edit {
            Some(edit) if at == dialog.at => {
                let room = pen.room();
                put_edit(&mut pen, edit, room, theme);
            }
            _ => {
                let room = pen.room();
                let style = if on { theme.plain() } else { theme.dim() };
                pen.put(&cut_end(&text, room, theme.glyphs.cut), style);
                if at == dialog.at {
                    pen.restyle_line(inner, theme.selected());
                }
            }
        }
    }
    if inner.height >= 3 {
        let mut pen = Pen::new(buffer, inner, inner.height - 2);
        match &dialog.error {
            Some(error) => {
                let room = pen.room();
                pen.put(&cut_end(error, room, theme.glyphs.cut), theme.severity(Severity::Error));
            }
            None => {
                pen.put(&dialog.hint(), theme.dim());
            }
        }
        Pen::new(buffer, inner, inner.height - 1).put(dialog.help(), theme.dim());
    }
}

/// Writes text with a cursor that is visible without colour, scrolled so that the cursor is in
/// view.
pub fn put_edit(pen: &mut Pen<'_>, edit: &LineEdit, cells: usize, theme: &Theme) {
    if edit.is_proposed() {
        // Shown as selected text: typing replaces it.
        pen.put(
            &cut_start(edit.text(), cells.saturating_sub(1), theme.glyphs.cut),
            theme.selected(),
        )
        .put("_", theme.dim());
        return;
    }
    let (left, right) = edit.halves();
    let left = cut_start(left, cells.saturating_sub(1), theme.glyphs.cut);
    let right = cut_end(right, cells.saturating_sub(width(&left)).max(1), "");
    let mut rest = unicode_segmentation::UnicodeSegmentation::graphemes(right.as_ref(), true);
    pen.put(&left, theme.plain());
    pen.put(rest.next().unwrap_or(" "), theme.selected());
    pen.put(rest.as_str(), theme.plain());
}

/// Clears `area` and draws a border if there is room for one; returns the inside.
pub(super) fn frame(buffer: &mut Buffer, area: Rect, title: &str, theme: &Theme) -> Rect {
    clear(buffer, area);
    if area.width < 20 || area.height < 4 {
        return area;
    }
    let [top_left, top_right, bottom_left, bottom_right, flat, upright] = theme.glyphs.border;
    let line = flat.repeat(usize::from(area.width) - 2);
    Pen::new(buffer, area, 0)
        .put(top_left, theme.dim())
        .put(&line, theme.dim())
        .put(top_right, theme.dim());
    Pen::new(buffer, area, 0).space(2).put(title, theme.bold());
    for y in 1..area.height - 1 {
        let mut pen = Pen::new(buffer, area, y);
        pen.put(upright, theme.dim()).space(usize::from(area.width) - 2).put(upright, theme.dim());
    }
    let mut pen = Pen::new(buffer, area, area.height - 1);
    pen.put(bottom_left, theme.dim()).put(&line, theme.dim()).put(bottom_right, theme.dim());
    Rect { x: area.x + 2, y: area.y + 1, width: area.width - 4, height: area.height - 2 }
}

fn clear(buffer: &mut Buffer, area: Rect) {
    let area = area.intersection(buffer.area);
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            buffer[(x, y)].reset();
        }
    }
}
