//! The menu of a row, over the view.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::overlay::frame;
use super::text::{Pen, cut_start, width};
use super::theme::Theme;
use crate::app::menu::Menu;

pub fn draw(buffer: &mut Buffer, screen: Rect, menu: &Menu, theme: &Theme) {
    let widest = menu.choices.iter().map(|choice| width(choice.words())).max().unwrap_or(0);
    let (cells, lines) = (screen.width.min(widest as u16 + 8), menu.choices.len() as u16 + 2);
    let height = screen.height.min(lines);
    let area = Rect {
        x: screen.x + (screen.width - cells) / 2,
        y: screen.y + (screen.height - height) / 2,
        width: cells,
        height,
    };
    let title = cut_start(&menu.title, usize::from(cells).saturating_sub(6), theme.glyphs.cut);
    let inner = frame(buffer, area, &format!(" {title} "), theme);
    // On a low screen only the lines around the selected one.
    let top = (menu.at as u16 + 1).saturating_sub(inner.height);
    let choices = menu.choices.iter().enumerate().skip(usize::from(top));
    for (y, (at, choice)) in (0..inner.height).zip(choices) {
        let mut pen = Pen::new(buffer, inner, y);
        let letter = choice.letter().to_string();
        pen.put(&letter, theme.key()).space(2).put(choice.words(), theme.plain());
        if at == menu.at {
            pen.restyle_line(inner, theme.selected());
        }
    }
}
