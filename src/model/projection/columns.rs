//! Sums of many rows. [`Totals`] has an entry for every state, but most rows are in one or two of
//! them. So only states that occur have a column. The figures of a row are adjacent in memory: they
//! are added together.

use super::Totals;
use crate::model::facts::fact::Weights;
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::state::State;

/// No row, node or entry.
pub(super) const NONE: u32 = u32::MAX;

const WALL: usize = 0;
const CPU: usize = 1;
const OFF: usize = 2;
const HITS: usize = 3;
const CPU_HITS: usize = 4;
/// Columns that all sums have.
const FIXED: usize = 5;

#[derive(Clone, Debug)]
pub(super) struct Columns {
    /// Row by row.
    figures: Vec<u64>,
    width: usize,
    /// By [`State`]: its column; 0 if no row was in it.
    columns: [u8; State::COUNT],
    /// The longest wait and its start; empty if no thread waited.
    longest: Vec<(u64, Ns)>,
}

impl Default for Columns {
    fn default() -> Columns {
        Columns {
            figures: Vec::new(),
            width: FIXED,
            columns: [0; State::COUNT],
            longest: Vec::new(),
        }
    }
}

impl Columns {
    /// Returns the same columns without a row.
    pub fn without_rows(&self) -> Columns {
        Columns { figures: Vec::new(), longest: Vec::new(), ..*self }
    }

    /// Drops all rows. Their columns and memory serve the next ones.
    pub fn clear(&mut self) {
        self.figures.clear();
        self.longest.clear();
    }

    #[cfg(test)]
    pub fn memory(&self) -> *const u8 {
        self.figures.as_ptr().cast()
    }

    pub fn rows(&self) -> usize {
        self.figures.len() / self.width
    }

    /// Adds a row without time; returns its number.
    pub fn push(&mut self) -> u32 {
        let row = self.rows();
        self.figures.resize(self.figures.len() + self.width, 0);
        if !self.longest.is_empty() {
            self.longest.push((0, 0));
        }
        row as u32
    }

    fn row(&self, row: u32) -> &[u64] {
        &self.figures[row as usize * self.width..][..self.width]
    }

    fn row_mut(&mut self, row: u32) -> &mut [u64] {
        &mut self.figures[row as usize * self.width..][..self.width]
    }

    /// Returns the state's column; adds it if missing.
    fn column(&mut self, state: usize) -> usize {
        if self.columns[state] == 0 {
            let rows = self.figures.chunks_exact(self.width);
            self.figures = rows.flat_map(|row| row.iter().copied().chain([0])).collect();
            self.columns[state] = self.width as u8;
            self.width += 1;
        }
        usize::from(self.columns[state])
    }

    fn wait(&mut self, row: u32, wait: (u64, Ns)) {
        if wait.0 > 0 {
            self.longest.resize(self.rows(), (0, 0));
            longest(&mut self.longest[row as usize], wait);
        }
    }

    /// Adds the time of a fact in this state.
    pub fn add_fact(&mut self, row: u32, state: State, weights: &Weights) {
        let column = self.column(state as usize);
        let figures = self.row_mut(row);
        figures[WALL] += weights.wall_ns;
        figures[CPU] += weights.cpu_ns;
        figures[HITS] += u64::from(weights.hits);
        figures[CPU_HITS] += u64::from(weights.cpu_hits);
        figures[column] += weights.wall_ns;
        self.wait(row, (weights.longest_ns, weights.longest_from));
    }

    #[cfg(test)]
    pub fn add(&mut self, row: u32, totals: &Totals) {
        let figures = self.row_mut(row);
        figures[WALL] += totals.wall_ns;
        figures[CPU] += totals.cpu_ns;
        figures[OFF] += totals.off_ns;
        figures[HITS] += totals.hits;
        figures[CPU_HITS] += totals.cpu_hits;
        self.wait(row, (totals.longest_ns, totals.longest_from));
        for (state, ns) in totals.states_ns.into_iter().enumerate().filter(|(_, ns)| *ns > 0) {
            let column = self.column(state);
            self.row_mut(row)[column] += ns;
        }
    }

    /// Adds a copy of a row; returns its number.
    pub fn push_copy(&mut self, row: u32) -> u32 {
        let copy = self.rows();
        let from = row as usize * self.width;
        self.figures.extend_from_within(from..from + self.width);
        if let Some(wait) = self.longest.get(row as usize) {
            self.longest.push(*wait);
        }
        copy as u32
    }

    /// Adds one row to another.
    pub fn add_within(&mut self, row: u32, from: u32) {
        for column in 0..self.width {
            self.figures[row as usize * self.width + column] +=
                self.figures[from as usize * self.width + column];
        }
        if let Some(wait) = self.longest.get(from as usize) {
            self.wait(row, *wait);
        }
    }

    pub fn get(&self, row: u32) -> Totals {
        let (longest_ns, longest_from) =
            self.longest.get(row as usize).copied().unwrap_or_default();
        let figures = self.row(row);
        Totals {
            wall_ns: figures[WALL],
            cpu_ns: figures[CPU],
            off_ns: figures[OFF],
            hits: figures[HITS],
            cpu_hits: figures[CPU_HITS],
            longest_ns,
            longest_from,
            states_ns: self.columns.map(|column| match column {
                0 => 0,
                column => figures[usize::from(column)],
            }),
        }
    }

    /// Returns the row's [`Totals::value`].
    pub fn value(&self, row: u32, metric: Metric) -> u64 {
        self.row(row)[match metric {
            Metric::Wall => WALL,
            Metric::Cpu => CPU,
            Metric::Off => OFF,
        }]
    }

    /// Returns the row's wall time in a state.
    pub fn state_ns(&self, row: u32, state: State) -> u64 {
        match self.columns[state as usize] {
            0 => 0,
            column => self.row(row)[usize::from(column)],
        }
    }

    /// Sets every row's off-CPU time from its other sums.
    pub fn settle_off(&mut self) {
        for figures in self.figures.chunks_exact_mut(self.width) {
            figures[OFF] = figures[WALL].saturating_sub(figures[CPU]);
        }
    }

    /// Returns the sums of nodes: each of its own row (`own`, or [`NONE`]) and of its children.
    /// `parents` precede their children; `old`: sums whose memory is reused.
    pub fn add_up(&self, own: &[u32], parents: &[u32], mut old: Columns) -> Columns {
        let width = self.width;
        let nodes = own.len();
        old.clear();
        old.figures.resize(nodes * width, 0);
        old.longest.resize(if self.longest.is_empty() { 0 } else { nodes }, (0, 0));
        let mut sums = Columns { figures: old.figures, longest: old.longest, ..*self };
        for (node, (own, parent)) in own.iter().zip(parents).enumerate().rev() {
            // A parent comes before its children.
            let (before, from) = sums.figures.split_at_mut(node * width);
            let figures = &mut from[..width];
            if *own != NONE {
                figures.iter_mut().zip(self.row(*own)).for_each(|(sum, own)| *sum += own);
            }
            if *parent != NONE {
                let above = &mut before[*parent as usize * width..][..width];
                above.iter_mut().zip(figures).for_each(|(sum, more)| *sum += *more);
            }
        }
        if !sums.longest.is_empty() {
            for (node, (own, parent)) in own.iter().zip(parents).enumerate().rev() {
                if *own != NONE {
                    longest(&mut sums.longest[node], self.longest[*own as usize]);
                }
                let wait = sums.longest[node];
                if *parent != NONE {
                    longest(&mut sums.longest[*parent as usize], wait);
                }
            }
        }
        sums
    }
}

/// Keeps the longer wait, as [`Totals::add_longest`] does.
fn longest(mine: &mut (u64, Ns), (ns, from): (u64, Ns)) {
    if ns > mine.0 || (ns == mine.0 && ns > 0 && from < mine.1) {
        *mine = (ns, from);
    }
}
