//! The process picker, shown where no target was named. Typed text filters it, and several
//! processes can be marked.

use std::collections::HashMap;
use std::time::Duration;

use super::event::ProcessRow;
use super::key::Key;
use super::line_edit::LineEdit;
use super::list::{List, Step};
use super::process_order::{self, Column, Line};
use crate::config::Wanted;

/// Time during which Enter does nothing after the process under the cursor changed by itself: the
/// user may have aimed at the previous one.
const SETTLES_IN: Duration = Duration::from_millis(300);

/// Sorted by a column until the user moves or types. From then on rows keep their order, and new
/// processes are appended.
#[derive(Clone, Debug, Default)]
pub struct Picker {
    /// All processes, in order.
    all: Vec<ProcessRow>,
    /// Those that match the filter, in the same order; as a tree also their ancestors.
    pub rows: Vec<Line>,
    pub list: List,
    pub column: Column,
    /// Children stand below their parents.
    pub is_tree: bool,
    /// Processes to watch together, with their start times.
    marked: HashMap<u32, u64>,
    /// The filter. Empty: all rows match.
    filter: LineEdit,
    /// `/` was typed: the filter is shown even while it is empty.
    open: bool,
    /// The process that the user moved to or typed for.
    selected: Option<u32>,
    /// When the process under the cursor changed without a key.
    moved: Option<Duration>,
    /// False until the first list arrived.
    pub known: bool,
    /// Why the process picked last cannot be watched.
    pub error: Option<String>,
}

/// Why Enter does nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    NoMatch,
    Moved,
    /// As many are marked as can be watched at once.
    Full,
}

impl Picker {
    /// Sets the list that was read at `now`.
    pub fn set(&mut self, mut rows: Vec<ProcessRow>, now: Duration, height: usize) {
        let under = self.under();
        rows.sort_by(|a, b| self.column.compare(a, b));
        if self.selected.is_some() || self.is_filtered() {
            let places: HashMap<u32, usize> =
                self.all.iter().enumerate().map(|(at, row)| (row.pid, at)).collect();
            rows.sort_by_key(|row| places.get(&row.pid).copied().unwrap_or(usize::MAX));
        }
        self.all = rows;
        self.known = true;
        let starts: HashMap<u32, u64> = self.all.iter().map(|row| (row.pid, row.start)).collect();
        self.marked.retain(|pid, start| starts.get(pid) == Some(start));
        self.narrow();
        let cursor = match self.selected {
            None => 0,
            Some(pid) => self.place(pid).unwrap_or(self.list.cursor),
        };
        self.list.follow(cursor, self.rows.len(), height);
        if self.under() != under {
            self.moved = Some(now);
            // The process now under the cursor becomes the selected one.
            self.selected = self.selected.and(self.under());
        }
    }

    /// Sorts by the column again; the selected process stays selected.
    pub fn sort(&mut self, height: usize) {
        self.all.sort_by(|a, b| self.column.compare(a, b));
        self.reorder(height);
    }

    /// Sorts by the column beside the present one, of those on a screen of this width.
    pub fn sort_beside(&mut self, step: isize, width: u16, height: usize) {
        self.column = self.column.beside(step, width);
        self.sort(height);
    }

    /// Shows children below their parents, or all processes in one order.
    pub fn toggle_tree(&mut self, height: usize) {
        self.is_tree = !self.is_tree;
        self.reorder(height);
    }

    /// Marks the process under the cursor, or no more, and goes to the next one.
    pub fn mark(&mut self, height: usize) -> Result<(), Refusal> {
        let row = self.row_under().ok_or(Refusal::NoMatch)?;
        let (pid, start) = (row.pid, row.start);
        if self.marked.remove(&pid).is_none() {
            if self.marked.len() == Wanted::AT_ONCE {
                return Err(Refusal::Full);
            }
            self.marked.insert(pid, start);
        }
        self.step(Step::Down(1), height);
        Ok(())
    }

    pub fn is_marked(&self, row: &ProcessRow) -> bool {
        self.marked.contains_key(&row.pid)
    }

    pub fn marked(&self) -> usize {
        self.marked.len()
    }

    /// Returns the process of a line.
    pub fn row(&self, line: &Line) -> &ProcessRow {
        &self.all[line.row]
    }

    fn reorder(&mut self, height: usize) {
        self.narrow();
        let cursor = self.selected.and_then(|pid| self.place(pid)).unwrap_or(0);
        self.list.follow(cursor, self.rows.len(), height);
    }

    /// Handles a key of the filter; returns false if it is none.
    pub fn key(&mut self, key: Key, height: usize) -> bool {
        match key {
            // As in other lists `/` starts the filter and is no text there.
            Key::Char('/') if !self.open && self.filter.text().is_empty() => self.open = true,
            // It marks.
            Key::Char(' ') => return false,
            Key::Char(c) if !c.is_control() => {
                self.filter.key(key);
                self.filtered(height);
            }
            Key::Backspace if self.filter.text().is_empty() => self.open = false,
            Key::Backspace | Key::Ctrl('u' | 'w' | 'h') => {
                self.filter.key(key);
                self.filtered(height);
            }
            Key::Esc if self.is_filtered() => {
                self.filter = LineEdit::default();
                self.open = false;
                self.filtered(height);
            }
            _ => return false,
        }
        self.error = None;
        true
    }

    /// Applies a changed filter. A process that the user moved to stays selected where it still
    /// matches.
    fn filtered(&mut self, height: usize) {
        self.narrow();
        let kept = self.selected.and_then(|pid| self.place(pid));
        // Not an ancestor, which only stands above what matches.
        let kept = kept.filter(|at| self.rows[*at].is_match);
        let first = self.rows.iter().position(|line| line.is_match);
        self.list.follow(kept.or(first).unwrap_or(0), self.rows.len(), height);
        self.moved = None;
        self.select();
    }

    pub fn step(&mut self, step: Step, height: usize) {
        self.list.step(step, self.rows.len(), height);
        self.moved = None;
        self.select();
    }

    /// Puts the cursor on the row.
    pub fn press(&mut self, row: usize) {
        self.list.cursor = row;
        self.moved = None;
        self.select();
    }

    fn select(&mut self) {
        self.selected = self.under();
    }

    /// Returns the processes that Enter picks at `now`: those that are marked, else that under the
    /// cursor.
    pub fn pick(&self, now: Duration) -> Result<Vec<u32>, Refusal> {
        if !self.marked.is_empty() {
            let mut pids: Vec<u32> = self.marked.keys().copied().collect();
            pids.sort_unstable();
            return Ok(pids);
        }
        let pid = self.under().ok_or(Refusal::NoMatch)?;
        match self.moved {
            Some(moved) if now < moved + SETTLES_IN => Err(Refusal::Moved),
            _ => Ok(vec![pid]),
        }
    }

    /// Returns the filter's text and cursor, while there is a filter.
    pub fn filter(&self) -> Option<&LineEdit> {
        self.is_filtered().then_some(&self.filter)
    }

    /// Returns the number of all processes, whether they match the filter or not.
    pub fn len_of_all(&self) -> usize {
        self.all.len()
    }

    fn is_filtered(&self) -> bool {
        self.open || !self.filter.text().is_empty()
    }

    fn narrow(&mut self) {
        let text = self.filter.text();
        let any_case = !text.chars().any(char::is_uppercase);
        let words: Vec<&str> = text.split([',', ' ']).filter(|word| !word.is_empty()).collect();
        let is_match = |row: &ProcessRow| matches(row, &words, any_case);
        self.rows = match self.is_tree {
            true => process_order::tree(&self.all, is_match),
            false => process_order::flat(&self.all, is_match),
        };
    }

    fn place(&self, pid: u32) -> Option<usize> {
        self.rows.iter().position(|line| self.row(line).pid == pid)
    }

    fn under(&self) -> Option<u32> {
        self.row_under().map(|row| row.pid)
    }

    fn row_under(&self) -> Option<&ProcessRow> {
        self.rows.get(self.list.cursor).map(|line| self.row(line))
    }
}

/// Returns whether every word is in the command line, the pid, the unit or the container.
/// Lower-case letters match both cases, as in a search.
fn matches(row: &ProcessRow, words: &[&str], any_case: bool) -> bool {
    let cased = |text: &str| if any_case { text.to_lowercase() } else { text.to_owned() };
    let texts = [row.pid.to_string(), cased(&row.command), cased(&row.place)];
    words.iter().all(|word| texts.iter().any(|text| text.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEIGHT: usize = 5;

    fn named(pid: u32, command: &str, cpu: f64) -> ProcessRow {
        let command = command.into();
        ProcessRow {
            pid,
            user: "u".into(),
            command,
            threads: 1,
            cpu_percent: Some(cpu),
            runtime: "native",
            ..ProcessRow::default()
        }
    }

    fn row(pid: u32, cpu: f64) -> ProcessRow {
        named(pid, "c", cpu)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn of(rows: Vec<ProcessRow>) -> Picker {
        let mut picker = Picker::default();
        picker.set(rows, ms(0), HEIGHT);
        picker
    }

    fn typed(picker: &mut Picker, text: &str) {
        text.chars().for_each(|c| assert!(picker.key(Key::Char(c), HEIGHT)));
    }

    fn pids(picker: &Picker) -> Vec<u32> {
        picker.rows.iter().map(|line| picker.row(line).pid).collect()
    }

    fn services() -> Vec<ProcessRow> {
        vec![
            named(10, "/usr/bin/redis-server *:6379", 90.0),
            named(210, "/srv/shop/bin/shopd", 5.0),
            named(31, "java -jar Depot.jar", 50.0),
        ]
    }

    #[test]
    fn the_selection_follows_its_process_and_rows_keep_their_order() {
        let mut picker = of(vec![row(1, 5.0), row(2, 9.0), row(3, 1.0)]);
        assert_eq!(pids(&picker), [2, 1, 3]);
        // Before any key the heaviest is on top.
        picker.set(vec![row(1, 8.0), row(2, 0.0), row(3, 1.0)], ms(1_000), HEIGHT);
        assert_eq!((pids(&picker), picker.pick(ms(1_400))), (vec![1, 3, 2], Ok(vec![1])));
        picker.step(Step::Down(1), HEIGHT);
        picker.set(vec![row(1, 0.0), row(2, 9.0), row(3, 1.0), row(4, 99.0)], ms(2_000), HEIGHT);
        assert_eq!((pids(&picker), picker.pick(ms(2_000))), (vec![1, 3, 2, 4], Ok(vec![3])));
        // A row above it disappears: the cursor follows its process, and Enter need not wait.
        picker.set(vec![row(2, 9.0), row(3, f64::NAN), row(4, 99.0)], ms(3_000), HEIGHT);
        assert_eq!((pids(&picker), picker.pick(ms(3_000))), (vec![3, 2, 4], Ok(vec![3])));
        picker.sort(HEIGHT);
        assert_eq!(picker.pick(ms(3_000)), Ok(vec![3]));
        assert_eq!(picker.list.cursor, picker.place(3).expect("listed"));
    }

    #[test]
    fn enter_waits_after_the_row_under_the_cursor_changed() {
        let mut picker = of(vec![row(1, 5.0), row(2, 9.0)]);
        assert_eq!(picker.pick(ms(299)), Err(Refusal::Moved), "nothing was there before");
        assert_eq!(picker.pick(ms(300)), Ok(vec![2]));
        picker.set(vec![row(1, 50.0), row(2, 9.0)], ms(2_000), HEIGHT);
        assert_eq!(picker.pick(ms(2_001)), Err(Refusal::Moved));
        assert_eq!(picker.pick(ms(2_299)), Err(Refusal::Moved));
        assert_eq!(picker.pick(ms(2_300)), Ok(vec![1]));
        // The selected process exits, and another one takes its line.
        picker.step(Step::Down(1), HEIGHT);
        picker.set(vec![row(1, 50.0), row(3, 1.0)], ms(4_000), HEIGHT);
        assert_eq!(picker.pick(ms(4_100)), Err(Refusal::Moved));
        assert_eq!(picker.pick(ms(4_300)), Ok(vec![3]));
        // A movement key makes the intended row certain.
        picker.set(vec![row(1, 50.0), row(4, 1.0)], ms(6_000), HEIGHT);
        picker.step(Step::Up(1), HEIGHT);
        assert_eq!(picker.pick(ms(6_001)), Ok(vec![1]));
    }

    #[test]
    fn typing_filters_at_once() {
        let mut picker = of(services());
        typed(&mut picker, "/srv");
        assert_eq!((pids(&picker), picker.pick(ms(1))), (vec![210], Ok(vec![210])));
        assert_eq!(picker.filter().map(LineEdit::text), Some("srv"));
        assert!(picker.key(Key::Esc, HEIGHT));
        assert_eq!(pids(&picker), [10, 31, 210]);
        assert!(!picker.key(Key::Esc, HEIGHT), "nothing is left to clear");
        for (text, found) in [
            ("redis", vec![10]),
            ("31", vec![31]),
            ("depot", vec![31]),
            ("Dep", vec![31]),
            ("DEPOT", vec![]),
            ("/usr/bin", vec![10]),
            ("java,.jar", vec![31]),
            ("jqGr?h", vec![]),
            ("10", vec![10, 210]),
        ] {
            let mut picker = of(services());
            typed(&mut picker, text);
            let mut pids = pids(&picker);
            pids.sort_unstable();
            assert_eq!(pids, found, "{text}");
        }
    }

    #[test]
    fn the_filter_is_edited_and_a_row_that_was_moved_to_is_kept() {
        let mut picker = of(services());
        typed(&mut picker, "xs");
        assert_eq!(picker.pick(ms(0)), Err(Refusal::NoMatch));
        picker.key(Key::Backspace, HEIGHT);
        picker.key(Key::Backspace, HEIGHT);
        assert!(picker.filter().is_none() && picker.rows.len() == 3);
        picker.step(Step::Last, HEIGHT);
        typed(&mut picker, "s");
        assert_eq!((pids(&picker), picker.pick(ms(0))), (vec![10, 210], Ok(vec![210])));
        typed(&mut picker, "e");
        assert_eq!((pids(&picker), picker.pick(ms(0))), (vec![10], Ok(vec![10])));
        // Only `/`, then cancelled.
        picker.key(Key::Esc, HEIGHT);
        typed(&mut picker, "/");
        assert_eq!((picker.filter().map(LineEdit::text), picker.rows.len()), (Some(""), 3));
        picker.key(Key::Backspace, HEIGHT);
        assert!(picker.filter().is_none());
    }

    #[test]
    fn a_filtered_list_is_read_again_in_its_order() {
        let mut picker = of(services());
        typed(&mut picker, "s");
        assert_eq!(pids(&picker), [10, 210]);
        let mut rows = services();
        rows[1].cpu_percent = Some(400.0);
        rows.push(named(7, "sshd", 500.0));
        picker.set(rows, ms(2_000), HEIGHT);
        assert_eq!((pids(&picker), picker.pick(ms(2_000))), (vec![10, 210, 7], Ok(vec![10])));
    }

    #[test]
    fn of_equal_weight_more_threads_come_first_then_the_lower_number() {
        let threads = |pid, threads| ProcessRow { threads, ..row(pid, 0.0) };
        let unknown = ProcessRow { cpu_percent: None, ..threads(9, 7) };
        assert_eq!(
            pids(&of(vec![threads(4, 3), threads(2, 3), threads(5, 8), unknown, row(1, 0.1)])),
            [1, 5, 9, 2, 4]
        );
    }

    #[test]
    fn a_row_that_is_pressed_can_be_picked_at_once_and_is_followed() {
        let mut picker = of(vec![row(1, 5.0), row(2, 9.0), row(3, 1.0)]);
        picker.press(1);
        assert_eq!(picker.pick(ms(1)), Ok(vec![1]));
        picker.set(vec![row(3, 99.0), row(1, 5.0), row(4, 50.0)], ms(9), HEIGHT);
        assert_eq!((pids(&picker), picker.pick(ms(9))), (vec![1, 3, 4], Ok(vec![1])));
    }

    #[test]
    fn the_line_of_a_process_that_ended_is_the_next_one_s_and_that_is_followed() {
        let mut picker = of((1..=5).map(|pid| row(pid, 0.0)).collect());
        picker.step(Step::Down(2), HEIGHT);
        picker.set([1, 2, 4, 5].map(|pid| row(pid, 0.0)).into(), ms(1_000), HEIGHT);
        assert_eq!(
            (picker.pick(ms(1_000)), picker.pick(ms(1_300))),
            (Err(Refusal::Moved), Ok(vec![4]))
        );
        picker.set([4, 5].map(|pid| row(pid, 0.0)).into(), ms(2_000), HEIGHT);
        assert_eq!(picker.pick(ms(2_000)), Ok(vec![4]), "it stays under the cursor");
        // No process is left: the list starts anew, heaviest first.
        picker.set(vec![], ms(3_000), HEIGHT);
        assert_eq!(picker.pick(ms(3_300)), Err(Refusal::NoMatch));
        picker.set(vec![row(7, 1.0), row(8, 2.0)], ms(4_000), HEIGHT);
        picker.set(vec![row(7, 2.0), row(8, 1.0)], ms(5_000), HEIGHT);
        assert_eq!(pids(&picker), [7, 8]);
    }

    #[test]
    fn sorting_keeps_the_filter_and_the_row_that_was_meant() {
        let mut picker = of(services());
        typed(&mut picker, "s");
        picker.step(Step::Last, HEIGHT);
        let mut rows = services();
        rows[1].cpu_percent = Some(400.0);
        picker.set(rows, ms(1_000), HEIGHT);
        assert_eq!((pids(&picker), picker.pick(ms(1_000))), (vec![10, 210], Ok(vec![210])));
        picker.sort(HEIGHT);
        assert_eq!((pids(&picker), picker.pick(ms(1_000))), (vec![210, 10], Ok(vec![210])));
    }

    #[test]
    fn a_process_that_comes_and_matches_is_picked_after_a_while() {
        let mut picker = of(services());
        typed(&mut picker, "sshd");
        assert!(picker.rows.is_empty() && picker.len_of_all() == 3);
        let mut rows = services();
        rows.push(named(7, "sshd", 0.0));
        picker.set(rows, ms(2_000), HEIGHT);
        assert_eq!(
            (picker.pick(ms(2_299)), picker.pick(ms(2_300))),
            (Err(Refusal::Moved), Ok(vec![7]))
        );
    }

    #[test]
    fn keys_of_the_filter_take_back_why_an_attempt_failed_and_others_do_not() {
        for (key, taken) in [
            (Key::Char('a'), true),
            (Key::Char('\u{7}'), false),
            (Key::Down, false),
            (Key::Esc, false),
        ] {
            let mut picker = Picker { error: Some("it ended".into()), ..of(services()) };
            assert_eq!((picker.key(key, HEIGHT), picker.error.is_none()), (taken, taken), "{key}");
        }
        // Words and the whole filter can be deleted too.
        let mut picker = of(services());
        for (key, left, found) in [(Key::Ctrl('w'), "java,", 1), (Key::Ctrl('u'), "", 3)] {
            typed(&mut picker, if left.is_empty() { "x" } else { "java,xx" });
            assert!(picker.rows.is_empty() && picker.key(key, HEIGHT));
            assert_eq!(
                (picker.filter().map_or("", LineEdit::text), picker.rows.len()),
                (left, found)
            );
        }
    }

    #[test]
    fn marked_processes_are_picked_together() {
        let mut picker = of(services());
        assert_eq!(picker.mark(HEIGHT), Ok(()));
        assert_eq!((picker.marked(), picker.list.cursor), (1, 1));
        typed(&mut picker, "shop");
        assert_eq!(picker.mark(HEIGHT), Ok(()));
        assert_eq!(picker.pick(ms(0)), Ok(vec![10, 210]), "whatever the filter hides");
        assert_eq!(picker.mark(HEIGHT), Ok(()));
        assert_eq!(picker.pick(ms(0)), Ok(vec![10]), "marked again: no more");
        // Another process has the number now.
        let mut rows = services();
        rows[0].start = 7;
        picker.set(rows, ms(2_000), HEIGHT);
        assert_eq!((picker.marked(), picker.pick(ms(2_000))), (0, Ok(vec![210])));
        let mut picker = of((1..100).map(|pid| row(pid, 0.0)).collect());
        assert!((0..64).all(|_| picker.mark(HEIGHT).is_ok()));
        assert_eq!(picker.mark(HEIGHT), Err(Refusal::Full));
        assert_eq!(picker.pick(ms(0)).map(|pids| pids.len()), Ok(64));
    }

    #[test]
    fn a_tree_keeps_the_selection_and_a_filter_finds_the_match_below() {
        let child = |pid, parent| ProcessRow { parent, ..named(pid, "worker", 0.0) };
        let mut picker = of(vec![named(1, "init", 9.0), child(5, 3), child(3, 1), child(4, 3)]);
        picker.step(Step::Last, HEIGHT);
        assert_eq!(picker.pick(ms(0)), Ok(vec![5]));
        picker.toggle_tree(HEIGHT);
        assert_eq!((pids(&picker), picker.pick(ms(0))), (vec![1, 3, 4, 5], Ok(vec![5])));
        picker.key(Key::Esc, HEIGHT);
        typed(&mut picker, "4");
        assert_eq!((pids(&picker), picker.pick(ms(0))), (vec![1, 3, 4], Ok(vec![4])));
        picker.sort_beside(-99, 80, HEIGHT);
        assert_eq!((picker.column, picker.pick(ms(0))), (Column::Pid, Ok(vec![4])));
        picker.toggle_tree(HEIGHT);
        assert_eq!(pids(&picker), [4]);
    }

    proptest! {
        /// Whatever happens, Enter picks what has been under the cursor for 300 ms, or what a key
        /// put there.
        #[test]
        fn enter_never_picks_a_row_that_just_came(steps in prop::collection::vec((0u8..7, prop::collection::vec((1u32..9, 0u32..5), 0..8), 1u64..500), 1..30)) {
            let (mut picker, mut now) = (Picker::default(), 0);
            // The process under the cursor, and since when Enter may pick it.
            let mut shown: Option<(u32, u64)> = None;
            for (what, rows, pause) in steps {
                now += pause;
                let meant = match what {
                    0 | 1 => {
                        let rows: HashMap<u32, u32> = rows.into_iter().collect();
                        picker.set(rows.into_iter().map(|(pid, cpu)| row(pid, cpu.into())).collect(), ms(now), HEIGHT);
                        now + 300
                    }
                    2 => { picker.step(Step::Down(1), HEIGHT); now }
                    3 => { picker.step(Step::Up(1), HEIGHT); now }
                    4 => { picker.key(Key::Char(char::from(b'0' + pause as u8 % 9)), HEIGHT); now }
                    5 if !picker.filter.text().is_empty() => { picker.key(Key::Backspace, HEIGHT); now }
                    _ => {
                        if let Some(row) = (pause as usize).checked_rem(picker.rows.len()) {
                            picker.press(row);
                        }
                        now
                    }
                };
                shown = match (picker.under(), shown) {
                    (Some(pid), Some((before, _))) if before == pid && what < 2 => shown,
                    (Some(pid), _) => Some((pid, meant)),
                    (None, _) => None,
                };
                let expected = match shown {
                    None => Err(Refusal::NoMatch),
                    Some((_, meant)) if now < meant => Err(Refusal::Moved),
                    Some((pid, _)) => Ok(vec![pid]),
                };
                prop_assert_eq!(picker.pick(ms(now)), expected);
            }
        }
    }
}
