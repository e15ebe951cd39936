//! The geometry of the history line: which seconds each of its cells stands for.
//!
//! A bar covers a fixed span of the session: past bars keep their height and move by whole cells.
//! Where the time cursor, or the end of the shown range, is older than the line reaches back, it
//! shows the time around that. It then begins at one of a few fixed places, so neither new facts
//! nor each step of the cursor move it.

use super::AppState;
use crate::model::facts::buckets::width_at;
use crate::model::projection::BusyThreads;
use crate::model::vocabulary::frame::{Ns, SECOND};

/// Spans of the line, seconds. The shortest that holds the whole session is used.
const SPANS: [u64; 4] = [60, 120, 300, LONGEST];
/// The last of them, up to which history has buckets of one second.
const LONGEST: u64 = 600;

/// Cells before the label.
const MARGIN: usize = 1;
/// Cells of the label, including a space: `10m`.
const LABEL: usize = 5;
/// Cells for the words at the end of the line, enough for the longest, so that no figure moves the
/// bars.
const WORDS: usize = 35;
/// The same where the line is scrolled back: `13:52-14:02`, and words about a longer bucket.
const LABEL_OF_PAST: usize = 12;
const WORDS_OF_PAST: usize = 38;
/// Cells of the brackets, and one at the end of the line.
const REST: usize = 3;
/// Minimum cells of a line that is drawn.
const LEAST: u64 = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryLine {
    pub cells: u64,
    /// Seconds per bar.
    pub step: u64,
    /// Bars are counted from the beginning of the session; this is the one after the newest.
    pub end: u64,
    /// Whole seconds of the session.
    pub now: u64,
    /// The line is scrolled back.
    pub is_past: bool,
}

impl HistoryLine {
    /// Returns the line of a screen; `None` where it has no room.
    pub fn new(app: &AppState) -> Option<HistoryLine> {
        let snapshot = app.view.snapshot.as_ref()?;
        let busy = &app.view.busy_threads;
        let (width, now) = (usize::from(app.width), busy.seconds());
        let newest = HistoryLine::newest(width, now)?;
        let shown = app.view.projection.till.saturating_sub(1);
        let at = app.time_cursor.map_or(shown, |cursor| cursor.from);
        if busy.second(at) >= newest.first() * newest.step {
            return Some(newest);
        }
        let bucket = width_at(snapshot.at.saturating_sub(at)) / SECOND;
        let past = HistoryLine::past(width, now, (busy.oldest(), busy.second(at)), bucket);
        Some(past.unwrap_or(newest))
    }

    /// Returns the line that ends now.
    fn newest(width: usize, now: u64) -> Option<HistoryLine> {
        let cells = width.saturating_sub(MARGIN + LABEL + WORDS + REST) as u64;
        if cells < LEAST {
            return None;
        }
        let fits = |step: &u64| step * cells >= now.min(LONGEST);
        let step = SPANS.iter().map(|span| span.div_ceil(cells)).find(fits);
        let step = step.unwrap_or(LONGEST.div_ceil(cells));
        Some(HistoryLine { cells, step, end: now.max(1).div_ceil(step), now, is_past: false })
    }

    /// Returns a line on which the second `at` of the session is, at least a quarter from both ends
    /// where history goes on. `bucket`: seconds of the buckets there, which are not divided.
    fn past(width: usize, now: u64, (oldest, at): (u64, u64), bucket: u64) -> Option<HistoryLine> {
        let cells = width.saturating_sub(MARGIN + LABEL_OF_PAST + WORDS_OF_PAST + REST) as u64;
        if cells < LEAST {
            return None;
        }
        let step = LONGEST.div_ceil(cells).next_multiple_of(bucket.max(1));
        let (half, bar) = (cells / 2, at / step);
        let first = (bar / half * half).saturating_sub(half / 2);
        let first = first.max((oldest / step).min(bar));
        let end = (first + cells).min(now.max(1).div_ceil(step));
        Some(HistoryLine { cells, step, end, now, is_past: true })
    }

    /// Returns the seconds that all cells cover.
    pub fn span(&self) -> u64 {
        self.step * self.cells
    }

    /// Returns the first bar.
    fn first(&self) -> u64 {
        self.end.saturating_sub(self.cells)
    }

    /// Returns the seconds of the session that the line covers, `(first, the one after the last)`;
    /// the end may not be over yet.
    pub fn seconds(&self) -> (u64, u64) {
        (self.first() * self.step, self.end * self.step)
    }

    /// Returns the cells of the label, including a space.
    pub fn label(&self) -> usize {
        if self.is_past { LABEL_OF_PAST } else { LABEL }
    }

    /// Returns the cells for the words at the end of the line.
    pub fn words(&self) -> usize {
        if self.is_past { WORDS_OF_PAST } else { WORDS }
    }

    /// Returns the cell of a bar; `cells` for one after the newest, 0 for those before the oldest.
    fn cell(&self, bar: u64) -> u64 {
        (bar + self.cells).saturating_sub(self.end).min(self.cells)
    }

    /// Returns the cells of a span of time, at least one: `(first, the one after the last)`. `None`
    /// where the line is scrolled back to other time.
    pub fn cells_of(&self, busy: &BusyThreads, from: Ns, till: Ns) -> Option<(u64, u64)> {
        let (from, till) = (busy.second(from), busy.second_from(till));
        let (first, end) = self.seconds();
        if self.is_past && (till <= first || from >= end) {
            return None;
        }
        let end = self.cell(till.div_ceil(self.step)).max(1);
        Some((self.cell(from / self.step).min(end - 1), end))
    }

    /// Returns the cell of a second of the session, if the line covers it.
    pub fn cell_of_second(&self, second: u64) -> Option<u64> {
        let cell = (second / self.step + self.cells).checked_sub(self.end)?;
        (cell < self.cells).then_some(cell)
    }

    /// Returns the seconds of the session that a cell covers, as far as they are over:
    /// `(first, the one after the last)`.
    pub fn seconds_of_cell(&self, cell: u64) -> Option<(u64, u64)> {
        let from = (self.end + cell).checked_sub(self.cells)? * self.step;
        let till = (from + self.step).min(self.now);
        (cell < self.cells && from < till).then_some((from, till))
    }

    /// Returns the cell of a column of the screen; `range`: the cells in brackets.
    pub fn cell_at_column(&self, column: u16, range: Option<(u64, u64)>) -> Option<u64> {
        let column = u64::from(column).checked_sub((MARGIN + self.label()) as u64)?;
        // A bracket stands before the first cell of the range, and one after its last.
        let cell = match range {
            None => column,
            Some((first, _)) if column <= first => column,
            Some((_, end)) if column <= end => column - 1,
            Some((_, end)) if column == end + 1 => end - 1,
            Some(_) => column - 2,
        };
        (cell < self.cells).then_some(cell)
    }
}

#[cfg(test)]
mod tests;
