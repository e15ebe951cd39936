//! Which line of the screen holds what. The logic needs it for paging and the mouse, drawing for
//! its areas.

/// Minimum width of a screen that has room for trends of rows. Narrower ones do not read them.
pub const TRENDS_FROM: u16 = 60;

/// Numbers of lines, from the top: header, (filters,) column titles, rows, explaining line, footer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub width: u16,
    pub height: u16,
    /// 0..=5 lines. A low screen drops the history first, then the measurement, then the target.
    pub header: u16,
    pub titles: u16,
    pub rows: u16,
    pub explain: u16,
    /// The active filters and how much they hide; only while a filter is on.
    pub filters: u16,
    pub footer: u16,
}

impl Layout {
    pub fn new(width: u16, height: u16, filters: bool) -> Layout {
        let header = match height {
            0..=3 => 0,
            4..=7 => 1,
            8..=11 => 2,
            12..=15 => 3,
            16..=23 => 4,
            // Two lines for sentences, used or not: rows that jump are hard to read.
            _ => 5,
        };
        let titles = u16::from(height >= 6);
        let explain = u16::from(height >= 9);
        let filters = u16::from(filters && height >= 10);
        let footer = u16::from(height >= 3);
        let rows = height.saturating_sub(header + titles + explain + filters + footer);
        Layout { width, height, header, titles, rows, explain, filters, footer }
    }

    /// Returns the line of the history.
    pub fn history(&self) -> Option<u16> {
        (self.header >= 4).then_some(2)
    }

    /// Returns the line of the first row.
    pub fn rows_from(&self) -> u16 {
        self.header + self.titles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_used_once_and_rows_come_first() {
        for height in 0..=80 {
            for filters in [false, true] {
                let l = Layout::new(80, height, filters);
                assert_eq!(l.header + l.titles + l.rows + l.explain + l.filters + l.footer, height);
                assert!(height == 0 || l.rows >= 1, "{l:?}");
            }
        }
        assert_eq!(Layout::new(80, 23, false).rows, 16);
        assert_eq!(Layout::new(40, 10, false).rows, 5);
        assert_eq!(Layout::new(80, 24, false).rows, 16);
    }
}
