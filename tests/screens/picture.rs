//! A screen as an SVG: text in cells, as a terminal with a dark background shows it.

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

const CELL_WIDTH: f64 = 8.4;
const CELL_HEIGHT: f64 = 18.0;
const MARGIN: f64 = 12.0;
const PAPER: &str = "#14171c";
const INK: &str = "#d4d7dd";
const FAINT: &str = "#7b828e";

/// Joins cells of equal style into one piece of text, stretched to its cells whatever the font.
pub fn svg(buffer: &Buffer) -> String {
    let (columns, rows) = (f64::from(buffer.area.width), f64::from(buffer.area.height));
    let (width, height) = (columns * CELL_WIDTH + 2.0 * MARGIN, rows * CELL_HEIGHT + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\" \
         xml:space=\"preserve\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{PAPER}\"/>\n"
    );
    for y in 0..buffer.area.height {
        let mut x = 0;
        while x < buffer.area.width {
            let observation = Observation::of(&buffer[(x, y)]);
            let from = x;
            let mut text = String::new();
            while x < buffer.area.width && Observation::of(&buffer[(x, y)]) == observation {
                let symbol = buffer[(x, y)].symbol();
                text.push_str(symbol);
                x += unicode_width::UnicodeWidthStr::width(symbol).max(1) as u16;
            }
            observation.draw(&mut out, from, x - from, y, &text);
        }
    }
    out + "</svg>\n"
}

fn shade(color: Color) -> &'static str {
    match color {
        Color::Black => PAPER,
        Color::Green => "#7fc97f",
        Color::Yellow => "#e5c07b",
        Color::Red => "#e06c75",
        Color::LightRed => "#f08d94",
        Color::LightGreen => "#a5d6a7",
        Color::LightBlue => "#6cb0f5",
        Color::Cyan => "#56c7d2",
        Color::Magenta => "#c78bdd",
        Color::DarkGray => "#6a7280",
        other => panic!("no colour chosen for {other:?}"),
    }
}

#[derive(PartialEq)]
struct Observation {
    ink: &'static str,
    paper: Option<&'static str>,
    bold: bool,
    underlined: bool,
}

impl Observation {
    fn of(cell: &Cell) -> Observation {
        let has = |m| cell.modifier.contains(m);
        let ink = match cell.fg {
            Color::Reset if has(Modifier::DIM) => FAINT,
            Color::Reset => INK,
            color => shade(color),
        };
        let paper = Some(cell.bg).filter(|color| *color != Color::Reset).map(shade);
        let (ink, paper) = match has(Modifier::REVERSED) {
            true => (paper.unwrap_or(PAPER), Some(if ink == FAINT { INK } else { ink })),
            false => (ink, paper),
        };
        Observation { ink, paper, bold: has(Modifier::BOLD), underlined: has(Modifier::UNDERLINED) }
    }

    fn draw(&self, out: &mut String, x: u16, cells: u16, y: u16, text: &str) {
        let (left, top) = (MARGIN + f64::from(x) * CELL_WIDTH, MARGIN + f64::from(y) * CELL_HEIGHT);
        let width = f64::from(cells) * CELL_WIDTH;
        if let Some(paper) = self.paper {
            *out += &format!(
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{CELL_HEIGHT}\" fill=\"{paper}\"/>\n"
            );
        }
        // Blanks at the ends need no ink, and stretch badly.
        let words = text.trim();
        if words.is_empty() {
            return;
        }
        let before = (text.len() - text.trim_start().len()) as f64;
        let taken = unicode_width::UnicodeWidthStr::width(words) as f64;
        let (left, width) = (left + before * CELL_WIDTH, taken * CELL_WIDTH);
        let weight = if self.bold { " font-weight=\"bold\"" } else { "" };
        let line = if self.underlined { " text-decoration=\"underline\"" } else { "" };
        let escaped = words
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace(' ', "\u{a0}");
        *out += &format!(
            "<text x=\"{left:.1}\" y=\"{:.1}\" textLength=\"{width:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
             fill=\"{}\"{weight}{line}>{escaped}</text>\n",
            top + 13.5,
            self.ink
        );
    }
}
