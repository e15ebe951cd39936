//! The visible part of a list, and the selected row.

/// Positions in rows; the caller owns the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct List {
    pub cursor: usize,
    /// First row on the screen.
    pub top: usize,
}

/// A step of the cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Up(usize),
    Down(usize),
    First,
    Last,
    /// To the row with this index.
    To(usize),
}

impl List {
    /// Moves the cursor and scrolls no more than needed.
    pub fn step(&mut self, step: Step, len: usize, height: usize) {
        self.cursor = match step {
            Step::Up(n) => self.cursor.saturating_sub(n),
            Step::Down(n) => self.cursor.saturating_add(n),
            Step::First => 0,
            Step::Last => usize::MAX,
            Step::To(row) => row,
        };
        self.show(len, height);
    }

    /// Brings the cursor into the list and onto the screen.
    pub fn show(&mut self, len: usize, height: usize) {
        self.cursor = self.cursor.min(len.saturating_sub(1));
        let height = height.max(1);
        self.top = self.top.clamp((self.cursor + 1).saturating_sub(height), self.cursor);
        self.top = self.top.min(len.saturating_sub(height));
    }

    /// Adjusts to a changed list whose selected row is now at `cursor`. The row keeps its line on
    /// the screen where possible.
    pub fn follow(&mut self, cursor: usize, len: usize, height: usize) {
        let line = self.cursor.saturating_sub(self.top);
        self.cursor = cursor;
        self.top = cursor.saturating_sub(line);
        self.show(len, height);
    }
}

/// Returns the place after (or before) `here` among ascending places, wrapping at the ends.
pub(super) fn beside(places: &[usize], here: usize, step: isize) -> Option<usize> {
    if step > 0 {
        places.iter().find(|p| **p > here).or(places.first()).copied()
    } else {
        places.iter().rev().find(|p| **p < here).or(places.last()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn scrolls_no_more_than_needed() {
        let mut list = List::default();
        for _ in 0..4 {
            list.step(Step::Down(1), 10, 5);
        }
        assert_eq!(list, List { cursor: 4, top: 0 });
        list.step(Step::Down(1), 10, 5);
        assert_eq!(list, List { cursor: 5, top: 1 });
        list.step(Step::Up(4), 10, 5);
        assert_eq!(list, List { cursor: 1, top: 1 });
        list.step(Step::Last, 10, 5);
        assert_eq!(list, List { cursor: 9, top: 5 });
        list.step(Step::First, 10, 5);
        assert_eq!(list, List { cursor: 0, top: 0 });
    }

    #[test]
    fn a_row_that_moves_keeps_its_line() {
        let mut list = List { cursor: 7, top: 5 };
        list.follow(12, 20, 5);
        assert_eq!(list, List { cursor: 12, top: 10 });
        list.follow(1, 20, 5);
        assert_eq!(list, List { cursor: 1, top: 0 });
    }

    proptest! {
        #[test]
        fn the_cursor_is_always_on_the_screen(len in 0usize..30, height in 0usize..12, cursor in 0usize..40, top in 0usize..40) {
            let mut list = List { cursor, top };
            list.show(len, height);
            prop_assert!(list.top <= list.cursor && list.cursor < list.top + height.max(1));
            prop_assert!(list.cursor < len.max(1));
        }
    }
}
