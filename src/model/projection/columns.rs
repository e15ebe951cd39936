//! Sums of many rows, one list per figure. [`Totals`] has an entry for every state, but most rows
//! are in one or two of them. So only states that occur have a list.

use super::Totals;
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::state::State;

/// No row, node or entry.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Debug, Default)]
pub(super) struct Columns {
    wall_ns: Vec<u64>,
    cpu_ns: Vec<u64>,
    off_ns: Vec<u64>,
    hits: Vec<u64>,
    cpu_hits: Vec<u64>,
    /// The longest wait and its start; empty if no thread waited.
    longest: Vec<(u64, Ns)>,
    /// By [`State`]; empty if no row was in it.
    states_ns: [Vec<u64>; State::COUNT],
}

impl Columns {
    pub fn new(rows: usize) -> Columns {
        let zeros = || vec![0; rows];
        let (wall_ns, cpu_ns, off_ns) = (zeros(), zeros(), zeros());
        Columns { wall_ns, cpu_ns, off_ns, hits: zeros(), cpu_hits: zeros(), ..Columns::default() }
    }

    /// Adds a row without time; returns its number.
    pub fn push(&mut self) -> u32 {
        let Columns { wall_ns, cpu_ns, off_ns, hits, cpu_hits, longest, states_ns } = self;
        let row = wall_ns.len() as u32;
        [wall_ns, cpu_ns, off_ns, hits, cpu_hits].into_iter().for_each(|column| column.push(0));
        if !longest.is_empty() {
            longest.push((0, 0));
        }
        states_ns.iter_mut().filter(|column| !column.is_empty()).for_each(|column| column.push(0));
        row
    }

    pub fn add(&mut self, row: u32, totals: &Totals) {
        let at = row as usize;
        self.wall_ns[at] += totals.wall_ns;
        self.cpu_ns[at] += totals.cpu_ns;
        self.off_ns[at] += totals.off_ns;
        self.hits[at] += totals.hits;
        self.cpu_hits[at] += totals.cpu_hits;
        let rows = self.wall_ns.len();
        if totals.longest_ns > 0 {
            self.longest.resize(rows, (0, 0));
            longest(&mut self.longest[at], (totals.longest_ns, totals.longest_from));
        }
        for (column, ns) in self.states_ns.iter_mut().zip(totals.states_ns) {
            if ns > 0 {
                column.resize(rows, 0);
                column[at] += ns;
            }
        }
    }

    pub fn get(&self, row: u32) -> Totals {
        let at = row as usize;
        let (longest_ns, longest_from) = self.longest.get(at).copied().unwrap_or_default();
        Totals {
            wall_ns: self.wall_ns[at],
            cpu_ns: self.cpu_ns[at],
            off_ns: self.off_ns[at],
            hits: self.hits[at],
            cpu_hits: self.cpu_hits[at],
            longest_ns,
            longest_from,
            states_ns: std::array::from_fn(|state| {
                self.states_ns[state].get(at).copied().unwrap_or_default()
            }),
        }
    }

    /// Returns the row's [`Totals::value`].
    pub fn value(&self, row: u32, metric: Metric) -> u64 {
        let at = row as usize;
        match metric {
            Metric::Wall => self.wall_ns[at],
            Metric::Cpu => self.cpu_ns[at],
            Metric::Off => self.off_ns[at],
        }
    }

    /// Sets a row's off-CPU time from its other sums.
    pub fn settle_off(&mut self, row: u32) -> u64 {
        let at = row as usize;
        self.off_ns[at] = self.wall_ns[at].saturating_sub(self.cpu_ns[at]);
        self.off_ns[at]
    }

    pub fn set_off(&mut self, row: u32, off_ns: u64) {
        self.off_ns[row as usize] = off_ns;
    }

    /// Adds to every row its children's sums; `parents` precede their children.
    pub fn add_up(&mut self, parents: &[u32]) {
        let Columns { wall_ns, cpu_ns, off_ns, hits, cpu_hits, longest: waits, states_ns } = self;
        for column in [wall_ns, cpu_ns, off_ns, hits, cpu_hits]
            .into_iter()
            .chain(states_ns)
            .filter(|c| !c.is_empty())
        {
            for (row, parent) in
                parents.iter().enumerate().rev().filter(|(_, parent)| **parent != NONE)
            {
                column[*parent as usize] += column[row];
            }
        }
        if !waits.is_empty() {
            for (row, parent) in
                parents.iter().enumerate().rev().filter(|(_, parent)| **parent != NONE)
            {
                let wait = waits[row];
                longest(&mut waits[*parent as usize], wait);
            }
        }
    }
}

/// Keeps the longer wait, as [`Totals::add_longest`] does.
fn longest(mine: &mut (u64, Ns), (ns, from): (u64, Ns)) {
    if ns > mine.0 || (ns == mine.0 && ns > 0 && from < mine.1) {
        *mine = (ns, from);
    }
}
