//! Rows in order, and the one under the cursor, which is found again after they are read anew.

use super::list::{List, Step};

#[derive(Clone, Debug)]
pub struct KeyedList<Row, Key> {
    pub rows: Vec<Row>,
    pub list: List,
    /// `None`: none was chosen.
    selected: Option<Key>,
}

impl<Row, Key> Default for KeyedList<Row, Key> {
    fn default() -> KeyedList<Row, Key> {
        KeyedList { rows: Vec::new(), list: List::default(), selected: None }
    }
}

impl<Row: Copy, Key> KeyedList<Row, Key> {
    /// Sets the rows. The cursor stays on its row; if that is gone, on its line. `first`: the index
    /// of the row under the cursor while none was chosen.
    pub fn set(
        &mut self,
        rows: Vec<Row>,
        is: impl Fn(&Key, Row) -> bool,
        first: usize,
        height: usize,
    ) {
        self.rows = rows;
        let cursor = match &self.selected {
            None => first,
            Some(key) => {
                let found = self.rows.iter().position(|row| is(key, *row));
                found.unwrap_or(self.list.cursor)
            }
        };
        self.list.follow(cursor, self.rows.len(), height);
    }

    /// Moves the cursor. On the first row it stays, whichever that becomes.
    pub fn step(&mut self, step: Step, key: impl Fn(Row) -> Option<Key>, height: usize) {
        self.list.step(step, self.rows.len(), height);
        self.selected = self.selected().filter(|_| step != Step::First).and_then(key);
    }

    /// Returns the row under the cursor.
    pub fn selected(&self) -> Option<Row> {
        self.rows.get(self.list.cursor).copied()
    }

    /// Chooses the row that the cursor is on as soon as there is one.
    pub fn choose(&mut self, key: Key) {
        self.selected = Some(key);
    }

    /// Forgets which row was chosen.
    pub fn forget(&mut self) {
        self.selected = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &mut KeyedList<char, char>, rows: &str) -> Option<char> {
        list.set(rows.chars().collect(), |key, row| *key == row, 0, 9);
        list.selected()
    }

    #[test]
    fn the_cursor_stays_on_its_row_or_its_line() {
        let mut list = KeyedList::default();
        assert_eq!(names(&mut list, "abc"), Some('a'));
        assert_eq!(names(&mut list, "xabc"), Some('x'), "none was chosen");
        list.step(Step::Down(2), Some, 9);
        assert_eq!(list.selected(), Some('b'));
        assert_eq!(names(&mut list, "cba"), Some('b'));
        assert_eq!(names(&mut list, "xyz"), Some('y'), "it is gone");
        assert_eq!(names(&mut list, "bac"), Some('b'), "it is back");
        assert_eq!(names(&mut list, ""), None);
    }

    #[test]
    fn at_the_first_row_the_cursor_stays_at_the_top() {
        let mut list = KeyedList::default();
        names(&mut list, "abc");
        list.step(Step::To(2), Some, 9);
        list.step(Step::First, Some, 9);
        assert_eq!(names(&mut list, "xabc"), Some('x'));
        list.step(Step::To(1), Some, 9);
        list.forget();
        assert_eq!(names(&mut list, "bxa"), Some('b'));
    }
}
