//! The columns of the views of changes.

/// A column of the views of changes. Shares are in percent, differences in percentage points.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChangeColumn {
    /// Share of the shown range.
    Now,
    #[default]
    Change,
    Before,
    SelfNow,
    SelfChange,
    Name,
    Module,
}

use ChangeColumn::*;

/// The columns of a screen, from left to right, and the cells of the name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeColumns {
    pub shown: Vec<ChangeColumn>,
    pub name: usize,
}

impl ChangeColumn {
    /// Returns the width in cells, including the space before the column.
    pub fn width(self) -> usize {
        match self {
            Now | Before => 8,
            // The mark behind it says that it may be due to sampling.
            Change | SelfChange => 9,
            SelfNow => 7,
            Module => 19,
            Name => 0,
        }
    }
}

impl ChangeColumns {
    pub fn new(width: u16) -> ChangeColumns {
        // In the order in which they are added, each with the minimum cells of the name.
        let priority =
            [(Change, 12), (Now, 20), (Before, 30), (SelfChange, 30), (SelfNow, 30), (Module, 60)];
        let mut name = usize::from(width).saturating_sub(2);
        let mut shown = vec![Name];
        for (column, least) in priority {
            if name < column.width() + least {
                break;
            }
            name -= column.width();
            shown.push(column);
        }
        let order = [Now, Change, Before, SelfNow, SelfChange, Name, Module];
        shown.sort_by_key(|column| order.iter().position(|other| other == column));
        ChangeColumns { shown, name }
    }

    /// Returns the column beside `sort`, to the right (1) or to the left (-1).
    pub fn beside(&self, sort: ChangeColumn, step: isize) -> ChangeColumn {
        let at = self.shown.iter().position(|column| *column == sort);
        let to = at.map_or(0, |at| at.saturating_add_signed(step).min(self.shown.len() - 1));
        self.shown[to]
    }

    /// Returns the column whose title has this cell of the line.
    pub fn at(&self, cell: u16) -> Option<ChangeColumn> {
        let mut end = 0;
        self.shown.iter().copied().find(|column| {
            end += if *column == Name { self.name + 1 } else { column.width() };
            usize::from(cell) < end
        })
    }
}
