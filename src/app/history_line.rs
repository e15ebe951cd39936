//! The geometry of the history line: which seconds each of its cells stands for.
//!
//! A bar covers a fixed span of the session: past bars keep their height and move by whole cells.

use super::AppState;
use crate::model::projection::BusyThreads;
use crate::model::vocabulary::frame::Ns;

/// Spans of the line, seconds. The shortest that holds the whole session is used; the maximum is
/// ten minutes.
const SPANS: [u64; 4] = [60, 120, 300, BusyThreads::SECONDS as u64];

/// Cells before the label.
const MARGIN: usize = 1;
/// Cells of the label, including a space.
pub const LABEL: usize = 5;
/// Cells for the words at the end of the line, enough for the longest, so that no figure moves the
/// bars.
pub const WORDS: usize = 35;
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
}

impl HistoryLine {
    /// Returns the line of a screen; `None` where it has no room.
    pub fn new(app: &AppState) -> Option<HistoryLine> {
        // Two cells for the brackets, and one at the end of the line.
        let taken = MARGIN + LABEL + WORDS + 3;
        let cells = usize::from(app.width).saturating_sub(taken) as u64;
        let snapshot = app.view.snapshot.as_ref().filter(|_| cells >= LEAST)?;
        let now = app.view.busy_threads.seconds(snapshot.at);
        let fits = |step: &u64| step * cells >= now.min(BusyThreads::SECONDS as u64);
        let step = SPANS
            .iter()
            .map(|span| span.div_ceil(cells))
            .find(fits)
            .unwrap_or((BusyThreads::SECONDS as u64).div_ceil(cells));
        Some(HistoryLine { cells, step, end: now.max(1).div_ceil(step), now })
    }

    /// Returns the seconds that all cells cover.
    pub fn span(&self) -> u64 {
        self.step * self.cells
    }

    /// Returns the cell of a bar; `cells` for one after the newest, 0 for those before the oldest.
    fn cell(&self, bar: u64) -> u64 {
        (bar + self.cells).saturating_sub(self.end).min(self.cells)
    }

    /// Returns the cells of a span of time, at least one: `(first, the one after the last)`.
    pub fn cells_of(&self, busy: &BusyThreads, from: Ns, till: Ns) -> (u64, u64) {
        let end = self.cell(busy.second_from(till).div_ceil(self.step)).max(1);
        (self.cell(busy.second(from) / self.step).min(end - 1), end)
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
    pub fn cell_at_column(&self, column: u16, (first, end): (u64, u64)) -> Option<u64> {
        // A bracket stands before the first cell of the range, and one after its last.
        let cell = match u64::from(column).checked_sub((MARGIN + LABEL) as u64)? {
            before if before <= first => before,
            within if within <= end => within - 1,
            bracket if bracket == end + 1 => end - 1,
            after => after - 2,
        };
        (cell < self.cells).then_some(cell)
    }
}
