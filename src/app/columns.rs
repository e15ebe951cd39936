//! Which columns fit the screen, and by which of them rows are sorted. Drawing, the keys that sort
//! and the mouse read the same table.

use crate::model::projection::SLICES;
use crate::model::projection::settings::SortColumn;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    Total,
    SelfTime,
    /// CPU time beside wall time, and the other way round.
    Beside,
    /// Change of the share from the older half of the range to the newer.
    Change,
    /// Time over the range, as a sparkline.
    Trend,
    Bar,
    /// Average number of threads.
    Threads,
    State,
    Milliseconds,
    Hits,
    /// The name and, at its right end, the line.
    Name,
    Module,
    /// View of threads: what most of them do now.
    Now,
    /// View of threads: the states of the row's time.
    States,
    /// View of threads: the function in which they mostly are, in the remaining cells.
    MostlyIn,
}

use Column::*;

/// All columns of the tree and of the methods, from left to right.
const ROWS: [Column; 12] =
    [Total, SelfTime, Beside, Change, Trend, Bar, Threads, State, Milliseconds, Hits, Name, Module];

/// The order in which columns are added, each with the minimum cells that the name must keep.
const PRIORITY: [(Column, usize); 11] = [
    (Total, NAME_OF_SORTED),
    (SelfTime, 30),
    (State, 30),
    (Beside, 30),
    (Threads, 44),
    (Change, 44),
    (Trend, 44),
    (Milliseconds, 44),
    (Hits, 44),
    (Bar, 44),
    (Module, 44),
];

/// Minimum cells that the name keeps beside the column by which rows are sorted.
const NAME_OF_SORTED: usize = 12;

/// All columns of the view of threads, from left to right.
const OF_THREADS: [Column; 8] = [Total, Beside, Change, Now, States, Trend, Name, MostlyIn];

/// Cells of a thread's name on a screen of 80 cells, and at most.
const THREAD_NAME: (usize, usize) = (20, 36);

/// Minimum cells of [`MostlyIn`] beside what only wide screens have.
const MOSTLY_IN: usize = 21;

impl Column {
    /// Returns the width in cells, including the space before the column; 0 for those whose width
    /// depends on the screen.
    pub fn width(self) -> usize {
        match self {
            Total => 8,
            SelfTime | Beside | Change => 7,
            Trend => 1 + SLICES,
            Bar | State | Now | States => 11,
            Threads => 5,
            Milliseconds => 9,
            Hits => 7,
            Module => 19,
            Name | MostlyIn => 0,
        }
    }

    /// Returns the order that belongs to the column; several columns may have the same.
    fn sort(self) -> Option<SortColumn> {
        match self {
            Total | Milliseconds | Bar => Some(SortColumn::Total),
            SelfTime => Some(SortColumn::SelfTime),
            Threads => Some(SortColumn::Threads),
            Beside => Some(SortColumn::Cpu),
            State | States => Some(SortColumn::State),
            Name => Some(SortColumn::Name),
            Hits => Some(SortColumn::Hits),
            Change | Trend => Some(SortColumn::Change),
            Module => Some(SortColumn::Module),
            Now | MostlyIn => None,
        }
    }
}

/// The columns of a screen, from left to right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns {
    pub shown: Vec<Column>,
    /// All columns of the view.
    all: &'static [Column],
    /// Cells of the name.
    pub name: usize,
    /// The column by which rows are sorted, if it has room.
    pub sorted: Option<Column>,
}

impl Columns {
    /// Returns those of the tree and of the methods. `trends`: the shown range has trends. The
    /// column by which rows are sorted comes before all but the total.
    pub fn of_rows(width: u16, trends: bool, sort: SortColumn) -> Columns {
        // The space before the name, and one at the end of the line.
        let mut name = usize::from(width).saturating_sub(2);
        let mut shown = vec![Name];
        let [total, others @ ..] = PRIORITY;
        let sorted = ROWS.into_iter().find(|column| column.sort() == Some(sort));
        let sorted = sorted.filter(|column| !matches!(column, Total | Name));
        let first = [total].into_iter().chain(sorted.map(|column| (column, NAME_OF_SORTED)));
        let others = others.into_iter().filter(|(column, _)| Some(*column) != sorted);
        let fits = |column: &Column| trends || !matches!(column, Change | Trend);
        for (column, least) in first.chain(others).filter(|(column, _)| fits(column)) {
            // A later column is never shown where an earlier one had no room.
            if name < column.width() + least {
                break;
            }
            name -= column.width();
            shown.push(column);
        }
        Columns::new(shown, &ROWS, name, sort)
    }

    /// Returns those of the view of threads.
    pub fn of_threads(width: u16, trends: bool, sort: SortColumn) -> Columns {
        let screen = usize::from(width);
        let name = THREAD_NAME.0.max(screen / 5).min(THREAD_NAME.1);
        let mut shown = vec![Total, Beside, Now, States, Name, MostlyIn];
        let used: usize = shown.iter().map(|column| column.width()).sum();
        // The spaces before the two names, and one at the end of the line.
        let mut rest = screen.saturating_sub(used + name + 3);
        let by_change = sort == SortColumn::Change;
        let [first, second] = if by_change { [Change, Trend] } else { [Trend, Change] };
        for (column, least) in [(first, if by_change { 0 } else { MOSTLY_IN }), (second, MOSTLY_IN)]
        {
            if !trends || rest < column.width() + least {
                break;
            }
            rest -= column.width();
            shown.push(column);
        }
        Columns::new(shown, &OF_THREADS, name, sort)
    }

    fn new(
        mut shown: Vec<Column>,
        all: &'static [Column],
        name: usize,
        sort: SortColumn,
    ) -> Columns {
        shown.sort_by_key(|column| all.iter().position(|other| other == column));
        let sorted = shown.iter().copied().find(|column| column.sort() == Some(sort));
        Columns { shown, all, name, sorted }
    }

    /// Returns the order beside `sort`, to the right (1) or to the left (-1). A column without room
    /// comes to the screen when rows are sorted by it.
    pub fn sort_beside(&self, sort: SortColumn, step: isize) -> SortColumn {
        let mut sorts: Vec<SortColumn> = Vec::new();
        for next in self.all.iter().filter_map(|column| column.sort()) {
            if !sorts.contains(&next) {
                sorts.push(next);
            }
        }
        let at = sorts.iter().position(|other| *other == sort);
        let to = at.map_or(0, |at| at.saturating_add_signed(step).min(sorts.len() - 1));
        sorts.get(to).copied().unwrap_or(sort)
    }

    /// Returns the order of the column whose title has this cell of the line.
    pub fn sort_at(&self, cell: u16) -> Option<SortColumn> {
        let mut end = 0;
        let column = self.shown.iter().find(|column| {
            end += match column {
                Name => self.name + 1,
                MostlyIn => return true,
                column => column.width(),
            };
            usize::from(cell) < end
        });
        column?.sort()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::layout::TRENDS_FROM;

    fn of(width: u16, trends: bool) -> Columns {
        Columns::of_rows(width, trends, SortColumn::Total)
    }

    #[test]
    fn the_name_comes_first() {
        for (width, trends) in (0..=300).flat_map(|width| [(width, false), (width, true)]) {
            let columns = of(width, trends);
            let used: usize = columns.shown.iter().map(|c| c.width()).sum();
            assert_eq!(used + columns.name, usize::from(width).saturating_sub(2));
            if width >= 44 {
                assert!(columns.name >= 30, "{width}: {columns:?}");
            }
            if columns.shown.contains(&Threads) {
                assert!(columns.name >= 44, "{width}: {columns:?}");
            }
        }
        let of = |width| of(width, true).shown;
        assert_eq!(of(40), [Total, Name]);
        assert_eq!(of(80), [Total, SelfTime, Beside, State, Name]);
        assert_eq!(of(100), [Total, SelfTime, Beside, Change, Trend, Threads, State, Name]);
        assert_eq!(
            of(120),
            [Total, SelfTime, Beside, Change, Trend, Threads, State, Milliseconds, Hits, Name]
        );
        assert_eq!(of(200), ROWS);
    }

    #[test]
    fn wider_screens_add_columns() {
        for trends in [false, true] {
            for width in 0..300 {
                let [less, more] = [width, width + 1].map(|width| of(width, trends).shown);
                assert!(less.iter().all(|column| more.contains(column)), "{width}: {less:?}");
            }
        }
    }

    #[test]
    fn the_sorted_column_is_on_every_screen() {
        for width in 42..300 {
            for sort in SortColumn::ALL {
                let columns = Columns::of_rows(width, true, sort);
                let sorted = columns.sorted.expect("a column");
                assert!(sorted.sort() == Some(sort) && columns.shown.contains(&sorted), "{width}");
                assert!(columns.name >= NAME_OF_SORTED, "{width}: {columns:?}");
                let without = Columns::of_rows(width, false, sort);
                assert_eq!(without.sorted.is_none(), sort == SortColumn::Change);
            }
        }
        assert_eq!(
            Columns::of_rows(80, true, SortColumn::Hits).shown,
            [Total, SelfTime, Beside, State, Hits, Name]
        );
    }

    #[test]
    fn keys_walk_all_columns() {
        let walk = |width, trends| {
            let mut sorts = vec![SortColumn::Total];
            loop {
                let sort = sorts[sorts.len() - 1];
                let columns = Columns::of_rows(width, trends, sort);
                let next = columns.sort_beside(sort, 1);
                if next == sort {
                    return sorts;
                }
                assert_eq!(Columns::of_rows(width, trends, next).sort_beside(next, -1), sort);
                sorts.push(next);
            }
        };
        use SortColumn as By;
        // A column without room comes when rows are sorted by it.
        for (width, trends) in [(80, true), (120, false), (200, true)] {
            assert_eq!(walk(width, trends).len(), SortColumn::ALL.len());
        }
        assert!(Columns::of_rows(80, false, By::Hits).shown.contains(&Hits));
        let threads = Columns::of_threads(80, true, By::Total);
        assert_eq!(threads.sort_beside(By::Total, 1), By::Cpu);
        assert_eq!(threads.sort_beside(By::Cpu, 1), By::Change);
        assert_eq!(threads.sort_beside(By::Change, 1), By::State);
        // Of a column that this view lacks it goes to the first.
        assert_eq!(threads.sort_beside(By::Hits, 1), By::Total);
    }

    #[test]
    fn each_cell_of_the_titles_is_of_one_column() {
        for width in 20..300 {
            let columns = of(width, true);
            let cells: Vec<_> = (0..width).map(|cell| columns.sort_at(cell)).collect();
            let widths = columns.shown.iter().flat_map(|column| {
                let cells = if *column == Name { columns.name + 1 } else { column.width() };
                std::iter::repeat_n(column.sort(), cells)
            });
            let expected: Vec<_> = widths.chain([None]).collect();
            assert_eq!(cells, expected, "{width}");
        }
    }

    /// Narrower screens do not read the trends, unless rows are sorted by them.
    #[test]
    fn trends_have_a_column_only_where_they_are_read() {
        for width in 0..300 {
            for of in [Columns::of_rows, Columns::of_threads] {
                let has = |columns: Columns| {
                    columns.shown.iter().any(|column| matches!(column, Change | Trend))
                };
                assert!(!has(of(width, true, SortColumn::Total)) || width >= TRENDS_FROM);
                assert!(!has(of(width, false, SortColumn::Total)), "{width}");
            }
        }
    }
}
