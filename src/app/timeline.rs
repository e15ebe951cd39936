//! The view of time: what the threads of one group did when, and a cursor on a moment of it.

use regex::Regex;

use super::event::TimelineOf;
use super::keyed_list::KeyedList;
use super::list::Step;
use super::row_path::GroupKey;
use crate::model::projection::settings::Range;
use crate::model::projection::timeline::{Cell, Function, Run, ThreadLine, Timeline};
use crate::model::vocabulary::frame::{Ns, ThreadKey};

/// Minimum width of a screen that has room for the sequence beside the threads.
const BESIDE_FROM: u16 = 120;

/// Which part of the rows holds what, in cells and lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Cells of a thread's name, and number of columns of time.
    pub name: u16,
    pub columns: u16,
    /// Cells of the threads' part, with a space on either side.
    pub threads: u16,
    /// The sequence is beside the threads.
    pub is_beside: bool,
}

impl Parts {
    pub fn new(width: u16) -> Parts {
        let is_beside = width >= BESIDE_FROM;
        let threads = if is_beside { width / 5 * 3 } else { width };
        let name = (threads / 4).clamp(8, 24);
        Parts { name, columns: threads.saturating_sub(name + 3).max(1), threads, is_beside }
    }
}

#[derive(Clone, Debug)]
pub struct TimelineView {
    pub timeline: Timeline,
    /// Indexes into the timeline's threads.
    pub list: KeyedList<u32, ThreadKey>,
    /// `None`: the heaviest group.
    pub group: Option<GroupKey>,
    /// The moment under the cursor; `None`: the newest at which the thread did something.
    pub(super) at: Option<Ns>,
    /// The screen's width, cells.
    pub width: u16,
    /// The ranges that were shown before zooms, the latest last.
    pub(super) before: Vec<Range>,
    /// The first zoom froze the screen: what is shown in detail shall not be dropped meanwhile.
    pub(super) has_frozen: bool,
}

impl Default for TimelineView {
    fn default() -> TimelineView {
        TimelineView {
            timeline: Timeline::default(),
            list: KeyedList::default(),
            group: None,
            at: None,
            width: 80,
            before: Vec::new(),
            has_frozen: false,
        }
    }
}

impl TimelineView {
    pub fn parts(&self) -> Parts {
        Parts::new(self.width)
    }

    /// Returns the lines for threads, and those for the sequence of runs. `height`: of both, with
    /// the title between them unless they are side by side.
    pub fn lines(&self, height: usize) -> (usize, usize) {
        if self.parts().is_beside {
            return (height, height);
        }
        let threads = self.timeline.threads.len().clamp(1, (height * 2 / 5).max(1));
        (threads, height.saturating_sub(threads + 1))
    }

    /// Returns which timeline is displayed. A zoom keeps its threads, also where they waited for
    /// work.
    pub(super) fn wanted(&self) -> TimelineOf {
        let has_threads = self.is_zoomed() && !self.timeline.threads.is_empty();
        TimelineOf {
            group: self.group.clone(),
            before: has_threads.then(|| self.timeline.members()),
            columns: self.parts().columns,
        }
    }

    pub fn read(&mut self, timeline: Timeline, height: usize) {
        self.timeline = timeline;
        self.show(height);
    }

    /// Reads the rows again.
    pub fn show(&mut self, height: usize) {
        let threads = &self.timeline.threads;
        let rows = (0..threads.len() as u32).collect();
        let is = |key: &ThreadKey, row: u32| threads[row as usize].thread == *key;
        let (lines, _) = self.lines(height);
        self.list.set(rows, is, 0, lines);
    }

    pub fn step(&mut self, step: Step, height: usize) {
        let (lines, _) = self.lines(height);
        let threads = &self.timeline.threads;
        self.list.step(step, |row| Some(threads[row as usize].thread), lines);
    }

    /// Handles a mouse press among the rows: a thread's line selects it, a column of time moves the
    /// cursor there.
    pub(super) fn press(&mut self, (line, cell): (usize, u16), height: usize) {
        let parts = self.parts();
        let (lines, _) = self.lines(height);
        let row = self.list.list.top + line;
        if line >= lines || row >= self.list.rows.len() || cell >= parts.threads {
            return;
        }
        self.step(Step::To(row), height);
        // Before the columns are a mark, the name and a space.
        let column = cell.checked_sub(parts.name + 2).map(usize::from);
        if let Some(column) = column.filter(|column| *column < self.timeline.columns()) {
            self.at = Some(self.moment_of(column));
        }
    }

    /// Returns the thread under the cursor.
    pub fn thread(&self) -> Option<&ThreadLine> {
        self.timeline.threads.get(self.list.selected()? as usize)
    }

    /// Returns the moment under the cursor.
    pub fn at(&self) -> Ns {
        let (from, till) = self.timeline.span();
        // What was done in the last milliseconds may not be known yet.
        let newest = || self.thread()?.runs.last().map(|run| (run.from + run.ns).saturating_sub(1));
        let at = self.at.or_else(newest).unwrap_or(till);
        at.clamp(from, till.saturating_sub(1).max(from))
    }

    /// Returns the column under the cursor.
    pub fn column(&self) -> usize {
        self.timeline.column_of(self.at())
    }

    /// Returns the index of the run under the cursor.
    pub fn run(&self) -> Option<usize> {
        self.thread()?.run_at(self.at())
    }

    /// Returns the function that the thread under the cursor is in at that moment.
    pub fn function(&self) -> Option<&Function> {
        self.timeline.function(self.thread()?.runs.get(self.run()?)?.doing)
    }

    /// Returns what the thread under the cursor did for most of the column.
    pub fn cell(&self) -> Option<Cell> {
        self.thread()?.cells.get(self.column()).copied().flatten()
    }

    /// Returns whether the range was changed by a zoom.
    pub fn is_zoomed(&self) -> bool {
        !self.before.is_empty()
    }

    pub(super) fn step_column(&mut self, by: isize) {
        let Some(last) = self.timeline.columns().checked_sub(1) else { return };
        let column = self.column().saturating_add_signed(by).min(last);
        self.at = Some(self.moment_of(column));
    }

    /// Returns the first moment of a column at which the thread does what it does for most of it.
    fn moment_of(&self, column: usize) -> Ns {
        let (from, till) = (self.timeline.edges[column], self.timeline.edges[column + 1]);
        let moment = || {
            let thread = self.thread()?;
            let doing = thread.cells.get(column).copied().flatten()?.doing;
            let runs = thread.runs.get(thread.run_at(from).unwrap_or(0)..)?;
            let mut within = runs.iter().take_while(|run| run.from < till);
            let is_it = |run: &&Run| run.doing == doing && run.from + run.ns > from;
            Some(within.find(is_it)?.from.max(from))
        };
        moment().filter(|_| self.timeline.is_exact).unwrap_or(from)
    }

    /// Goes to another run of the thread. Returns false if there is none.
    pub(super) fn step_run(&mut self, by: isize) -> bool {
        let Some(thread) = self.thread() else { return false };
        let run = match thread.run_at(self.at()) {
            Some(at) => at.checked_add_signed(by),
            None if by > 0 => Some(0),
            None => None,
        };
        let Some(run) = run.and_then(|run| thread.runs.get(run)) else { return false };
        self.at = Some(run.from.max(self.timeline.span().0));
        true
    }

    /// Goes to the next (1) or previous (-1) run in a function whose name matches, of this thread
    /// and then of the others; or to a thread whose name matches. Returns false if there is none.
    pub(super) fn next_match(&mut self, search: &Regex, step: isize, height: usize) -> bool {
        let places = self.matches(search);
        let row = self.list.list.cursor;
        let here = match (self.thread(), self.run()) {
            (Some(thread), _) if search.is_match(&thread.name) => (row, None),
            // The newest moment is under the cursor before one was chosen.
            _ if self.at.is_none() => (row, None),
            (Some(thread), Some(run)) => (row, Some(thread.runs[run].from)),
            _ => (row, Some(self.at())),
        };
        let next = match step > 0 {
            true => places.iter().find(|place| **place > here).or(places.first()),
            false => places.iter().rfind(|place| **place < here).or(places.last()),
        };
        let Some(&(row, from)) = next else { return false };
        self.step(Step::To(row), height);
        self.at = from.map(|from| from.max(self.timeline.span().0)).or(self.at);
        true
    }

    /// Returns the rows of threads whose names match, and of other threads the runs whose functions
    /// do, by their start.
    fn matches(&self, search: &Regex) -> Vec<(usize, Option<Ns>)> {
        let is_match = |function: &Function| {
            let calls = function.calls.as_ref();
            search.is_match(&function.location.function)
                || calls.is_some_and(|calls| search.is_match(&calls.function))
        };
        let functions: Vec<bool> = self.timeline.functions.iter().map(is_match).collect();
        let is_in_one = |run: &&Run| run.doing.function.is_some_and(|at| functions[at as usize]);
        let mut places = Vec::new();
        for (row, thread) in self.timeline.threads.iter().enumerate() {
            match search.is_match(&thread.name) {
                true => places.push((row, None)),
                false => {
                    let runs = thread.runs.iter().filter(is_in_one);
                    places.extend(runs.map(|run| (row, Some(run.from))));
                }
            }
        }
        places
    }

    /// Returns the time to which Enter goes: the run under the cursor; where the order of runs is
    /// not known, the column.
    pub(super) fn target(&self) -> Option<(Ns, Ns)> {
        if !self.timeline.is_exact {
            let column = self.column();
            return Some((
                *self.timeline.edges.get(column)?,
                *self.timeline.edges.get(column + 1)?,
            ));
        }
        let Run { from, ns, .. } = *self.thread()?.runs.get(self.run()?)?;
        // Between two runs nothing is known.
        (self.at() < from + ns).then_some((from, from + ns))
    }
}
