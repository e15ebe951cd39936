//! Text in cells: its width, where it may be cut, and how figures are formatted.

use std::borrow::Cow;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Returns the cells that `text` takes.
pub fn width(text: &str) -> usize {
    if is_plain(text) {
        return text.len();
    }
    text.graphemes(true).map(UnicodeWidthStr::width).sum()
}

/// Whether each byte is a character of one cell, as in nearly all texts: nothing need be segmented.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Shortens text to at most `cells`: cuts the end and appends `mark`.
pub fn cut_end<'a>(text: &'a str, cells: usize, mark: &str) -> Cow<'a, str> {
    if width(text) <= cells {
        return Cow::Borrowed(text);
    }
    let room = cells.saturating_sub(width(mark));
    let mut used = 0;
    let kept: String = text
        .graphemes(true)
        .take_while(|g| {
            used += g.width();
            used <= room
        })
        .collect();
    if cells >= width(mark) { Cow::Owned(kept + mark) } else { Cow::Owned(String::new()) }
}

/// Shortens text to at most `cells`: cuts the beginning and prepends `mark`.
pub fn cut_start<'a>(text: &'a str, cells: usize, mark: &str) -> Cow<'a, str> {
    if width(text) <= cells {
        return Cow::Borrowed(text);
    }
    let room = cells.saturating_sub(width(mark));
    let mut used = 0;
    let from = text
        .grapheme_indices(true)
        .rev()
        .take_while(|(_, g)| {
            used += g.width();
            used <= room
        })
        .last()
        .map_or(text.len(), |(at, _)| at);
    if cells >= width(mark) {
        Cow::Owned(format!("{mark}{}", &text[from..]))
    } else {
        Cow::Owned(String::new())
    }
}

/// Writes along one line, never beyond its end.
pub struct Pen<'a> {
    buffer: &'a mut Buffer,
    x: u16,
    y: u16,
    end: u16,
}

impl<'a> Pen<'a> {
    /// Creates a pen on line `y` (from the top of `area`). If there is no such line, nothing is
    /// written.
    pub fn new(buffer: &'a mut Buffer, area: Rect, y: u16) -> Pen<'a> {
        let area = if y < area.height { area.intersection(buffer.area) } else { Rect::default() };
        Pen { buffer, x: area.x, y: area.y + y, end: area.x + area.width }
    }

    /// Returns the remaining cells.
    pub fn room(&self) -> usize {
        usize::from(self.end.saturating_sub(self.x))
    }

    pub fn put(&mut self, text: &str, style: Style) -> &mut Self {
        if self.x < self.end && is_plain(text) {
            for byte in text.bytes().take(self.room()) {
                self.buffer[(self.x, self.y)].set_char(char::from(byte)).set_style(style);
                self.x += 1;
            }
        } else if self.x < self.end {
            self.x = self.buffer.set_stringn(self.x, self.y, text, self.room(), style).0;
        }
        self
    }

    pub fn space(&mut self, cells: usize) -> &mut Self {
        self.x = self.end.min(self.x.saturating_add(cells as u16));
        self
    }

    /// Writes right-aligned in the next `cells`.
    pub fn put_right(&mut self, text: &str, cells: usize, style: Style) -> &mut Self {
        let cells = cells.min(self.room());
        let from = self.x;
        let text = cut_end(text, cells, "");
        self.space(cells - width(&text).min(cells)).put(&text, style);
        self.x = self.end.min(from + cells as u16);
        self
    }

    /// Writes left-aligned in the next `cells`.
    pub fn put_left(&mut self, text: &str, cells: usize, style: Style) -> &mut Self {
        let cells = cells.min(self.room());
        let from = self.x;
        self.put(&cut_end(text, cells, ""), style);
        self.x = self.end.min(from + cells as u16);
        self
    }

    /// Patches the style of the whole line, from `from` cells before the pen to the end.
    pub fn restyle_line(&mut self, area: Rect, style: Style) {
        let line = Rect { y: self.y, height: 1, ..area }.intersection(self.buffer.area);
        self.buffer.set_style(line, style);
    }
}

/// Formats a percentage in at most five cells: `84.1`, `100.0`.
pub fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// Formats an average of threads or cores in four cells: `6.1`, `207`, `12k`; `.` for next to
/// nothing.
pub fn average(value: f64) -> String {
    match value {
        v if v < 0.05 => ".".into(),
        v if v < 99.95 => format!("{v:.1}"),
        v if v < 9999.5 => format!("{v:.0}"),
        v => format!("{:.0}k", v / 1000.0),
    }
}

/// Formats a duration: `12 ms`, `2.0 s`, `3 min 20 s`, `2 h 5 min`.
pub fn span(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    let seconds = ns / 1_000_000_000;
    match seconds {
        0 if ms < 9.95 => format!("{ms:.1} ms"),
        0 => format!("{ms:.0} ms"),
        1..=9 => format!("{:.1} s", ms / 1000.0),
        10..=59 => format!("{seconds} s"),
        60..=3599 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Formats a duration as on the command line: `30s`, `5m`, `1h30m`.
pub fn short_span(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let mut text = String::new();
    for (unit, size) in [("h", 3600), ("m", 60), ("s", 1)] {
        let n = if unit == "h" { seconds / size } else { seconds / size % 60 };
        if n > 0 {
            text.push_str(&format!("{n}{unit}"));
        }
    }
    if text.is_empty() { format!("{}ms", ns / 1_000_000) } else { text }
}

/// Formats milliseconds in eight cells, in larger units where they do not fit.
pub fn milliseconds(ns: u64) -> String {
    let ms = ns / 1_000_000;
    match ms {
        0..=9_999_999 => format!("{ms}"),
        10_000_000..=9_999_999_999 => format!("{}s", ms / 1000),
        _ => format!("{}h", ms / 3_600_000),
    }
}

/// Formats a count in six cells.
pub fn count(n: u64) -> String {
    match n {
        0..=99_999 => n.to_string(),
        100_000..=9_999_999 => format!("{}k", n / 1000),
        _ => format!("{}M", n / 1_000_000),
    }
}

/// Formats bytes in at most 5 cells: `812K`, `1.2G`.
pub fn size(bytes: u64) -> String {
    const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit > 0 && value < 9.95 {
        true => format!("{value:.1}{}", UNITS[unit]),
        false => format!("{value:.0}{}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_have_a_unit_and_fit() {
        for (bytes, text) in [
            (0, "0K"),
            (4096, "4K"),
            (999 << 10, "999K"),
            (1000 << 10, "1.0M"),
            (12 << 20, "12M"),
            (1288490189, "1.2G"),
            (u64::MAX, "16384P"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn figures() {
        assert_eq!([0.0, 0.841, 1.0].map(percent), ["0.0", "84.1", "100.0"]);
        assert_eq!(
            [0.01, 6.06, 99.94, 207.4, 12_345.0].map(average),
            [".", "6.1", "99.9", "207", "12k"]
        );
        assert_eq!([1_234_567, 45_000_000, 2_000_000_000].map(span), ["1.2 ms", "45 ms", "2.0 s"]);
        assert_eq!([12_000_000_000, 200_000_000_000].map(span), ["12 s", "3 min 20 s"]);
        assert_eq!(
            [30_000_000_000, 5_430_000_000_000, 300_000_000].map(short_span),
            ["30s", "1h30m30s", "300ms"]
        );
        assert_eq!([84_123_000_000, 99_999_999_000_000].map(milliseconds), ["84123", "99999s"]);
    }

    #[test]
    fn cutting_keeps_whole_characters() {
        assert_eq!(cut_end("abcdef", 4, "…"), "abc…");
        assert_eq!(cut_start("abcdef", 4, "…"), "…def");
        assert_eq!(cut_end("漢字漢字", 5, "…"), "漢字…");
        assert_eq!(cut_end("漢字漢字", 4, "…"), "漢…");
        assert_eq!(cut_start("漢字漢字", 4, "…"), "…字");
        assert_eq!(cut_end("e\u{301}e\u{301}e\u{301}", 2, "…"), "e\u{301}…");
        assert_eq!(cut_end("ab", 0, "…"), "");
    }

    proptest! {
        #[test]
        fn what_is_plain_is_written_as_everything_else(text in "[ -~]{0,12}", cells in 0u16..10) {
            let written = |text: &str| {
                let mut buffer = Buffer::empty(Rect::new(0, 0, 10, 1));
                let mut pen = Pen::new(&mut buffer, Rect::new(0, 0, cells, 1), 0);
                pen.put(text, Style::new().bold());
                (pen.x, buffer)
            };
            // One character that is not plain, behind everything that fits.
            let (x, plain) = written(&text);
            let (segmented_x, segmented) = written(&format!("{text:10}漢"));
            prop_assert_eq!(usize::from(x), text.len().min(cells.into()));
            prop_assert_eq!(segmented_x, cells);
            for at in 0..x {
                prop_assert_eq!(&plain[(at, 0)], &segmented[(at, 0)]);
            }
            let segments = text.graphemes(true).map(UnicodeWidthStr::width);
            prop_assert_eq!(width(&text), segments.sum::<usize>());
        }

        #[test]
        fn cut_text_fits(text in ".{0,30}", cells in 0usize..20) {
            prop_assert!(width(&cut_end(&text, cells, "…")) <= cells);
            prop_assert!(width(&cut_start(&text, cells, "…")) <= cells);
        }
    }
}
