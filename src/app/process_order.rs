//! The order of the list of processes: by a column, flat or as a tree.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::event::ProcessRow;

/// A column of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Column {
    Pid,
    User,
    /// Also by threads, where the CPU time is the same.
    #[default]
    Cpu,
    Memory,
    Threads,
    Runtime,
    /// Unit or container.
    Place,
    Command,
}

use Column::{Command, Cpu, Memory, Pid, Place, Runtime, Threads, User};

/// The columns of a screen that is narrow, of 60 columns, and of 100.
const NARROW: &[Column] = &[Pid, Cpu, Threads, Command];
const MIDDLE: &[Column] = &[Pid, User, Cpu, Memory, Threads, Runtime, Command];
const WIDE: &[Column] = &[Pid, User, Cpu, Memory, Threads, Runtime, Place, Command];

impl Column {
    /// Returns the columns that a screen of this width has, from left to right. On a narrow one the
    /// command matters more than its user.
    pub fn on_screen(width: u16) -> &'static [Column] {
        match width {
            0..60 => NARROW,
            60..100 => MIDDLE,
            _ => WIDE,
        }
    }

    /// Returns the column beside this one, or the same at an end.
    pub fn beside(self, step: isize, width: u16) -> Column {
        let all = Column::on_screen(width);
        let at = all.iter().position(|column| *column == self).unwrap_or(0);
        all[at.saturating_add_signed(step).min(all.len() - 1)]
    }

    /// Returns whether the rows with most come first.
    pub fn is_descending(self) -> bool {
        matches!(self, Cpu | Memory | Threads)
    }

    /// Compares two rows; equal ones by their weight.
    pub fn compare(self, a: &ProcessRow, b: &ProcessRow) -> Ordering {
        let cpu = |row: &ProcessRow| row.cpu_percent.unwrap_or(0.0);
        let first = match self {
            Pid => a.pid.cmp(&b.pid),
            User => a.user.cmp(&b.user),
            Cpu => Ordering::Equal,
            Memory => b.memory.cmp(&a.memory),
            Threads => b.threads.cmp(&a.threads),
            Runtime => a.runtime.cmp(b.runtime),
            // Those without one come last.
            Place => (a.place.is_empty(), &a.place).cmp(&(b.place.is_empty(), &b.place)),
            Command => a.command.cmp(&b.command),
        };
        let weight = || cpu(b).total_cmp(&cpu(a)).then(b.threads.cmp(&a.threads));
        first.then_with(weight).then(a.pid.cmp(&b.pid))
    }
}

/// A line of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Its process, among all.
    pub row: usize,
    /// The number of ancestors above it.
    pub depth: usize,
    /// False for an ancestor of a match.
    pub is_match: bool,
}

/// Returns the lines of the processes that match, in the same order.
pub fn flat(all: &[ProcessRow], is_match: impl Fn(&ProcessRow) -> bool) -> Vec<Line> {
    let matching = all.iter().enumerate().filter(|(_, row)| is_match(row));
    matching.map(|(row, _)| Line { row, depth: 0, is_match: true }).collect()
}

/// Returns the lines of the processes that match and of their ancestors: each below its parent,
/// children of one parent in the same order. Each process has one line at most, also where the
/// parents form a circle, as a reused pid can make them.
pub fn tree(all: &[ProcessRow], is_match: impl Fn(&ProcessRow) -> bool) -> Vec<Line> {
    let places: HashMap<u32, usize> =
        all.iter().enumerate().map(|(at, row)| (row.pid, at)).collect();
    let parent = |at: usize| places.get(&all[at].parent).copied().filter(|parent| *parent != at);
    let matches: Vec<bool> = all.iter().map(is_match).collect();
    let mut is_kept = vec![false; all.len()];
    for at in (0..all.len()).filter(|at| matches[*at]) {
        let mut next = Some(at);
        while let Some(at) = next.filter(|at| !is_kept[*at]) {
            is_kept[at] = true;
            next = parent(at);
        }
    }
    let mut children = vec![Vec::new(); all.len()];
    let mut roots = Vec::new();
    for at in (0..all.len()).filter(|at| is_kept[*at]) {
        match parent(at) {
            Some(parent) => children[parent].push(at),
            None => roots.push(at),
        }
    }
    let mut lines = Vec::new();
    // Whatever no root leads to is in a circle, and begins a tree of its own.
    let circles = (0..all.len()).filter(|at| is_kept[*at]).collect::<Vec<_>>();
    let mut is_done = vec![false; all.len()];
    for start in roots.into_iter().chain(circles) {
        let mut stack = vec![(start, 0)];
        while let Some((at, depth)) = stack.pop() {
            if std::mem::replace(&mut is_done[at], true) {
                continue;
            }
            lines.push(Line { row: at, depth, is_match: matches[at] });
            stack.extend(children[at].iter().rev().map(|child| (*child, depth + 1)));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(pid: u32, parent: u32) -> ProcessRow {
        ProcessRow { pid, parent, ..ProcessRow::default() }
    }

    fn pids_and_depths(all: &[ProcessRow], lines: &[Line]) -> Vec<(u32, usize, bool)> {
        lines.iter().map(|line| (all[line.row].pid, line.depth, line.is_match)).collect()
    }

    #[test]
    fn children_stand_below_their_parents() {
        let all = [row(9, 1), row(1, 0), row(5, 9), row(7, 1), row(6, 9), row(3, 99)];
        let lines = tree(&all, |_| true);
        let expected =
            [(1, 0, true), (9, 1, true), (5, 2, true), (6, 2, true), (7, 1, true), (3, 0, true)];
        assert_eq!(pids_and_depths(&all, &lines), expected);
        let lines = tree(&all, |row| row.pid == 6);
        assert_eq!(pids_and_depths(&all, &lines), [(1, 0, false), (9, 1, false), (6, 2, true)]);
        assert_eq!(pids_and_depths(&all, &flat(&all, |row| row.pid == 6)), [(6, 0, true)]);
    }

    #[test]
    fn columns_sort_most_first_or_by_the_alphabet() {
        let mut all = [
            ProcessRow { memory: 5, threads: 3, user: "b".into(), ..row(1, 0) },
            ProcessRow { memory: 9, threads: 1, user: "a".into(), place: "x".into(), ..row(2, 0) },
            ProcessRow { cpu_percent: Some(1.0), threads: 2, user: "a".into(), ..row(3, 0) },
        ];
        for (column, order) in [
            (Cpu, [3, 1, 2]),
            (Memory, [2, 1, 3]),
            (Threads, [1, 3, 2]),
            (User, [3, 2, 1]),
            (Pid, [1, 2, 3]),
            (Place, [2, 3, 1]),
        ] {
            all.sort_by(|a, b| column.compare(a, b));
            let pids: Vec<u32> = all.iter().map(|row| row.pid).collect();
            assert_eq!(pids, order, "{column:?}");
        }
        assert_eq!(
            (Cpu.beside(-9, 80), Cpu.beside(1, 40), Cpu.beside(99, 80)),
            (Pid, Threads, Command)
        );
        assert_eq!(Place.beside(1, 80), User, "a column that the screen no longer has");
    }

    proptest! {
        /// Whatever the parents: each match has one line, and what is above a line at a lower depth
        /// is its parent.
        #[test]
        fn a_tree_has_every_match_once(parents in prop::collection::vec(0u32..14, 0..12), wanted in any::<u16>()) {
            let all: Vec<ProcessRow> =
                parents.iter().enumerate().map(|(at, parent)| row(at as u32 + 1, *parent)).collect();
            let is_wanted = |row: &ProcessRow| wanted & 1 << row.pid != 0;
            let lines = tree(&all, is_wanted);
            let mut found: Vec<usize> = lines.iter().map(|line| line.row).collect();
            found.sort_unstable();
            let count = found.len();
            found.dedup();
            prop_assert_eq!(found.len(), count);
            for row in all.iter().filter(|row| is_wanted(row)) {
                prop_assert!(lines.iter().any(|line| all[line.row].pid == row.pid && line.is_match));
            }
            for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.depth > 0) {
                let above = lines[..at].iter().rev().find(|above| above.depth < line.depth);
                prop_assert_eq!(above.map(|above| all[above.row].pid), Some(all[line.row].parent));
            }
        }
    }
}
