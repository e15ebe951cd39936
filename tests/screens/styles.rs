//! The colours of each view. A golden file has up to three lines for a line of the screen, each
//! with a letter a cell: `fg` of the text, `bg` of what is behind it, `as` bold (`b`), dim (`d`),
//! underlined (`u`), in reverse video (`r`), or several of these (`+`).

use ratatui::style::Color;

use super::graph::pricing;
use super::*;

fn letter(color: Color) -> char {
    match color {
        Color::Reset => ' ',
        Color::Black => 'k',
        Color::Red => 'r',
        Color::LightRed => 'R',
        Color::Green => 'g',
        Color::LightGreen => 'G',
        Color::Yellow => 'y',
        Color::LightBlue => 'B',
        Color::Cyan => 'c',
        Color::LightCyan => 'C',
        Color::Magenta => 'm',
        Color::DarkGray => 'd',
        other => panic!("no letter chosen for {other:?}"),
    }
}

fn modifier(modifier: Modifier) -> char {
    match modifier {
        _ if modifier.is_empty() => ' ',
        Modifier::BOLD => 'b',
        Modifier::DIM => 'd',
        Modifier::UNDERLINED => 'u',
        Modifier::REVERSED => 'r',
        _ => '+',
    }
}

fn styles(buffer: &Buffer) -> String {
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let cells: Vec<_> = (0..buffer.area.width).map(|x| &buffer[(x, y)]).collect();
        let lines: [(&str, String); 3] = [
            ("fg", cells.iter().map(|cell| letter(cell.fg)).collect()),
            ("bg", cells.iter().map(|cell| letter(cell.bg)).collect()),
            ("as", cells.iter().map(|cell| modifier(cell.modifier)).collect()),
        ];
        for (what, line) in lines.iter().filter(|(_, line)| !line.trim().is_empty()) {
            out += &format!("{y:2} {what} {}\n", line.trim_end());
        }
    }
    out
}

#[test]
fn every_view_has_its_colours() {
    let pricing = Arc::new(pricing().run(40 * SECOND).snapshot());
    let views = [
        ("tree", "E"),
        ("inverted", "v"),
        ("methods", "2jj"),
        ("graph", "/price<enter>3"),
        ("flame", "4jj"),
        ("flame-states", "4s"),
        ("threads", "5"),
        ("timeline", "6"),
        ("waits", "7"),
        ("compared", "M="),
        ("source", "/price<enter>a"),
    ];
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        for (name, keys) in views {
            let mut live = match keys.contains("price") {
                true => Live::new(width, height, AppConfig::default()),
                false => Live::shop(width, height),
            };
            if keys.contains("price") {
                live.send(Input::Snapshot(pricing.clone()));
            }
            let found = styles(&live.press(keys).buffer());
            golden(&format!("styles/{name}-{width}x{height}.txt"), &found);
        }
    }
}
