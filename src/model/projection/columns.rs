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
/// Columns of sums in which every state occurs.
const WIDEST: usize = FIXED + State::COUNT;
// [`Columns::add_up`] names every width.
const _: () = assert!(FIXED == 5 && WIDEST == 14);

/// Where a node hangs: numbers of nodes, or [`NONE`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// Its number is lower.
    pub parent: u32,
    /// The one with the highest number.
    pub first_child: u32,
    pub next_sibling: u32,
    /// The row of its own time, or [`NONE`].
    pub own: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Columns {
    /// Row by row.
    figures: Vec<u64>,
    rows: usize,
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
            rows: 0,
            width: FIXED,
            columns: [0; State::COUNT],
            longest: Vec::new(),
        }
    }
}

impl Columns {
    /// Returns the same columns without a row.
    pub fn without_rows(&self) -> Columns {
        Columns { figures: Vec::new(), rows: 0, longest: Vec::new(), ..*self }
    }

    /// Returns a copy with the first `rows` rows.
    pub fn first_rows(&self, rows: usize) -> Columns {
        Columns {
            figures: self.figures[..rows * self.width].to_vec(),
            rows,
            longest: self.longest.iter().take(rows).copied().collect(),
            ..*self
        }
    }

    /// Drops all rows. Their columns and memory serve the next ones.
    pub fn clear(&mut self) {
        self.figures.clear();
        self.rows = 0;
        self.longest.clear();
    }

    #[cfg(test)]
    pub fn memory(&self) -> *const u8 {
        self.figures.as_ptr().cast()
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Adds a row without time; returns its number.
    pub fn push(&mut self) -> u32 {
        let row = self.rows;
        self.rows += 1;
        self.figures.resize(self.rows * self.width, 0);
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
        let copy = self.rows;
        self.rows += 1;
        let from = row as usize * self.width;
        self.figures.extend_from_within(from..from + self.width);
        if let Some(wait) = self.longest.get(row as usize) {
            self.longest.push(*wait);
        }
        copy as u32
    }

    /// Adds a copy of a row of sums with the same columns; returns its number.
    pub fn push_row_of(&mut self, sums: &Columns, row: u32) -> u32 {
        debug_assert_eq!((self.width, self.columns), (sums.width, sums.columns));
        let copy = self.rows as u32;
        self.rows += 1;
        self.figures.extend_from_slice(sums.row(row));
        if let Some(wait) = sums.longest.get(row as usize) {
            self.wait(copy, *wait);
        }
        if !self.longest.is_empty() {
            self.longest.resize(self.rows, (0, 0));
        }
        copy
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

    /// Returns the sums of nodes: each of its own row and of its children. `old`: sums whose memory
    /// is reused.
    pub fn add_up(&self, links: &[Link], mut old: Columns) -> Columns {
        let width = self.width;
        let nodes = links.len();
        // What is in it stays until it is written: a node by itself if it has no children, else by
        // the first of them that comes.
        old.figures.resize(nodes * width, 0);
        old.longest.clear();
        old.longest.resize(if self.longest.is_empty() { 0 } else { nodes }, (0, 0));
        let mut sums = Columns { figures: old.figures, rows: nodes, longest: old.longest, ..*self };
        let (owns, figures) = (&self.figures, &mut sums.figures);
        match width {
            5 => add_up::<5>(links, owns, figures),
            6 => add_up::<6>(links, owns, figures),
            7 => add_up::<7>(links, owns, figures),
            8 => add_up::<8>(links, owns, figures),
            9 => add_up::<9>(links, owns, figures),
            10 => add_up::<10>(links, owns, figures),
            11 => add_up::<11>(links, owns, figures),
            12 => add_up::<12>(links, owns, figures),
            13 => add_up::<13>(links, owns, figures),
            WIDEST => add_up::<WIDEST>(links, owns, figures),
            _ => unreachable!("a state has one column"),
        }
        if !sums.longest.is_empty() {
            for (node, Link { own, parent, .. }) in links.iter().enumerate().rev() {
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

/// Sums up rows of a known width, which is several times as fast as one that is read.
fn add_up<const WIDTH: usize>(links: &[Link], owns: &[u64], sums: &mut [u64]) {
    let owns = owns.as_chunks::<WIDTH>().0;
    let sums = sums.as_chunks_mut::<WIDTH>().0;
    for (node, link) in links.iter().enumerate().rev() {
        let mut sum = match link.first_child {
            NONE => [0; WIDTH],
            _ => sums[node],
        };
        if let Some(own) = owns.get(link.own as usize) {
            add(&mut sum, own);
        }
        sums[node] = sum;
        match links.get(link.parent as usize) {
            None => {}
            Some(parent) if parent.first_child as usize == node => {
                sums[link.parent as usize] = sum;
            }
            Some(_) => add(&mut sums[link.parent as usize], &sum),
        }
    }
}

fn add<const WIDTH: usize>(sum: &mut [u64; WIDTH], more: &[u64; WIDTH]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += *more);
}

/// Keeps the longer wait, as [`Totals::add_longest`] does.
fn longest(mine: &mut (u64, Ns), (ns, from): (u64, Ns)) {
    if ns > mine.0 || (ns == mine.0 && ns > 0 && from < mine.1) {
        *mine = (ns, from);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Of a node: which of those before it is its parent, and its own time, if it has some: state,
    /// ns, longest wait and its start.
    type Spec = (usize, Option<(usize, u64, u64, Ns)>);

    fn tree() -> impl Strategy<Value = Vec<Spec>> {
        let own = (0..State::COUNT, 1u64..50, 0u64..3, 0u64..9);
        prop::collection::vec((any::<usize>(), prop::option::of(own)), 0..40)
    }

    #[test]
    fn rows_are_numbered_from_zero_after_all_were_dropped() {
        let mut columns = Columns::default();
        let first = columns.push();
        let time = Totals { wall_ns: 5, ..Totals::default() };
        columns.add(first, &time);
        // A column for a state makes each row wider.
        columns.add(first, &Totals { states_ns: [1; State::COUNT], ..Totals::default() });
        let copy = columns.push_copy(first);
        assert_eq!((first, copy, columns.rows()), (0, 1, 2));
        assert_eq!(columns.get(copy), Totals { states_ns: [1; State::COUNT], ..time });
        assert_eq!(columns.without_rows().rows(), 0);
        columns.clear();
        let numbers = [columns.push(), columns.push()];
        assert_eq!((numbers, columns.rows()), ([0, 1], 2));
        assert_eq!(columns.get(1), Totals::default());
        assert_eq!(columns.figures.len(), 2 * WIDEST);
    }

    proptest! {
        /// Trees of any size and with any states follow each other in the same memory.
        #[test]
        fn a_node_has_the_time_of_all_below_it_whatever_its_memory_held(
            trees in prop::collection::vec((tree(), 0..=State::COUNT, any::<bool>()), 1..5),
        ) {
            let mut old = Columns::default();
            for (specs, states, waits) in trees {
                let mut owns = Columns::default();
                let mut links: Vec<Link> = Vec::new();
                let mut expected: Vec<Totals> = Vec::new();
                for (node, (parent, own)) in specs.into_iter().enumerate() {
                    let parent = Some(parent % (node + 1)).filter(|parent| *parent != node);
                    let siblings = parent.map(|parent| &mut links[parent].first_child);
                    let next_sibling =
                        siblings.map_or(NONE, |first| std::mem::replace(first, node as u32));
                    let parent = parent.map_or(NONE, |parent| parent as u32);
                    links.push(Link { parent, first_child: NONE, next_sibling, own: NONE });
                    expected.push(Totals::default());
                    let Some((state, ns, longest_ns, longest_from)) = own else { continue };
                    let mut time = Totals { wall_ns: ns, cpu_ns: ns / 2, ..Totals::default() };
                    (time.off_ns, time.hits, time.cpu_hits) = (ns / 3, 2, 1);
                    if waits && longest_ns > 0 {
                        (time.longest_ns, time.longest_from) = (longest_ns, longest_from);
                    }
                    if let Some(state) = state.checked_rem(states) {
                        time.states_ns[state] = ns;
                    }
                    let row = owns.push();
                    owns.add(row, &time);
                    links[node].own = row;
                    let mut at = node as u32;
                    while at != NONE {
                        expected[at as usize].add(&time);
                        at = links[at as usize].parent;
                    }
                }
                let sums = owns.add_up(&links, old);
                let found: Vec<_> = (0..links.len() as u32).map(|node| sums.get(node)).collect();
                prop_assert_eq!(found, expected);
                old = sums;
            }
        }
    }
}
