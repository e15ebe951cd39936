//! The views of changes: the tree and the functions of the shown range and of the baseline at once,
//! with the difference of each row.

use regex::Regex;

use super::baseline::Compared;
use super::change_columns::{ChangeColumn, ChangeColumns};
use super::change_rows::{ChangeRow, SMALL, Shape};
use super::keyed_list::KeyedList;
use super::list::{Step, beside};
use super::pane::Pane;
use super::row_path::{Expanded, Path, RowKey};
use super::rows::{Fold, What};
use crate::model::projection::settings::Settings;
use crate::model::transform::diff::Diff;

/// The rows of both views.
#[derive(Clone, Debug, Default)]
pub struct ChangesView {
    pub tree: KeyedList<ChangeRow, Path>,
    /// Indexes into [`Diff::functions`].
    pub functions: KeyedList<u32, RowKey>,
    pub sort: ChangeColumn,
    pub reverse: bool,
    expanded: Expanded,
    before_collapse: Option<Expanded>,
    /// Rows were opened by themselves already.
    opened: bool,
}

impl ChangesView {
    /// Reads the rows of a new comparison, or in another order.
    pub fn read(&mut self, pane: Pane, compared: &Compared, shown: &Settings, height: usize) {
        let shape = self.shape(&compared.diff, shown);
        if pane == Pane::ChangedMethods {
            let rows = shape.functions();
            let location = |function: u32| &compared.diff.functions[function as usize].location;
            let is = |key: &RowKey, function: u32| key.is(location(function), shown.roll_up);
            return self.functions.set(rows, is, 0, height);
        }
        if !std::mem::replace(&mut self.opened, true) {
            self.open_changed(compared, shown, height);
        }
        let shape = self.shape(&compared.diff, shown);
        let rows = shape.rows(&self.expanded);
        self.tree.set(rows, |key, row| shape.is(key, &row), 0, height);
    }

    fn shape<'a>(&self, diff: &'a Diff, settings: &'a Settings) -> Shape<'a> {
        Shape { diff, settings, sort: self.sort, reverse: self.reverse }
    }

    /// Forgets which rows are open: they are named in another way now, or compared with others.
    pub fn forget_open(&mut self) {
        self.expanded = Expanded::default();
        self.before_collapse = None;
        self.opened = false;
    }

    /// Opens the closed row with the largest difference that has changed rows below it, again and
    /// again, until the screen is full. If all may have come by chance, that counts as a change.
    fn open_changed(&mut self, compared: &Compared, shown: &Settings, height: usize) {
        let diff = &compared.diff;
        let mut drawn = diff.worth_drawing(SMALL);
        if !drawn.contains(&true) {
            drawn = diff.differing(SMALL);
        }
        let shape = self.shape(diff, shown);
        let is_drawn = |node: u32| drawn[node as usize];
        loop {
            let rows = shape.rows(&self.expanded);
            if rows.len() >= height {
                return;
            }
            let hides = |row: &&ChangeRow| match row.what {
                _ if row.fold != Fold::Closed => false,
                What::Group(group) => diff.roots_of(group).any(is_drawn),
                What::Node(node) => diff.callees_of(node).any(is_drawn),
                What::Small(_) | What::SmallGroups => false,
            };
            let size = |row: &ChangeRow| diff.unbounded(&row.total).change.abs();
            let most = rows.iter().filter(hides);
            let most = most.reduce(|most, row| if size(row) > size(most) { row } else { most });
            let Some(row) = most else { return };
            self.expanded.open(&shape.path(row));
        }
    }

    pub fn step(
        &mut self,
        pane: Pane,
        step: Step,
        compared: &Compared,
        shown: &Settings,
        height: usize,
    ) {
        let shape = self.shape(&compared.diff, shown);
        match pane {
            Pane::ChangedMethods => {
                let location = |at: u32| &shape.diff.functions[at as usize].location;
                let key = |at: u32| Some(RowKey::of(location(at), shown.roll_up));
                self.functions.step(step, key, height);
            }
            _ => self.tree.step(step, |row| Some(shape.path(&row)), height),
        }
    }

    /// Opens the row under the cursor of the tree.
    pub fn expand(&mut self, compared: &Compared, shown: &Settings, height: usize) {
        let Some(row) = self.tree.selected().filter(|row| row.fold == Fold::Closed) else { return };
        let path = self.shape(&compared.diff, shown).path(&row);
        self.before_collapse = None;
        self.expanded.open(&path);
        self.select(compared, shown, height);
    }

    /// Closes the row under the cursor of the tree; goes to its parent if it is closed.
    pub fn collapse(&mut self, compared: &Compared, shown: &Settings, height: usize) {
        let Some(row) = self.tree.selected() else { return };
        if row.fold == Fold::Open {
            let path = self.shape(&compared.diff, shown).path(&row);
            self.before_collapse = None;
            self.expanded.close(&path);
            self.select(compared, shown, height);
        } else if let Some(parent) = row.parent {
            self.step(Pane::ChangedTree, Step::To(parent as usize), compared, shown, height);
        }
    }

    /// Keeps the row under the cursor selected, and reads the rows again.
    fn select(&mut self, compared: &Compared, shown: &Settings, height: usize) {
        let at = Step::To(self.tree.list.cursor);
        self.step(Pane::ChangedTree, at, compared, shown, height);
        self.read(Pane::ChangedTree, compared, shown, height);
    }

    /// Opens all rows with changes again, as at the beginning.
    pub fn expand_changed(&mut self, compared: &Compared, shown: &Settings, height: usize) {
        self.open_changed(compared, shown, height);
        self.read(Pane::ChangedTree, compared, shown, height);
    }

    /// Closes everything; again: as it was.
    pub fn collapse_all(&mut self, compared: &Compared, shown: &Settings, height: usize) {
        match self.before_collapse.take() {
            Some(before) => self.expanded = before,
            None => self.before_collapse = Some(std::mem::take(&mut self.expanded)),
        }
        self.read(Pane::ChangedTree, compared, shown, height);
    }

    /// Goes to the row of this path of the displayed range, or to the nearest one above it.
    pub fn go_to(&mut self, path: &Path, compared: &Compared, shown: &Settings, height: usize) {
        let group = path.group.as_ref().map(|key| key.in_comparison(&shown.grouping));
        self.reveal(&Path { group, ..path.clone() }, compared, shown, height);
    }

    /// Goes to the row of this path of the comparison, or to the nearest one above it.
    fn reveal(&mut self, path: &Path, compared: &Compared, shown: &Settings, height: usize) {
        let shape = self.shape(&compared.diff, shown);
        let mut expanded = self.expanded.clone();
        let targets = shape.reveal(path, &mut expanded);
        let rows = shape.rows(&expanded);
        let place = |what: &What| rows.iter().position(|row| row.what == *what);
        let Some(at) = targets.iter().find_map(place) else { return };
        (self.expanded, self.before_collapse, self.opened) = (expanded, None, true);
        self.tree.rows = rows;
        self.step(Pane::ChangedTree, Step::To(at), compared, shown, height);
    }

    /// Goes to the next (1) or previous (-1) row whose name matches and opens the rows that hide
    /// it. Returns false if there is none.
    pub fn next_match(
        &mut self,
        (search, step): (&Regex, isize),
        compared: &Compared,
        shown: &Settings,
        height: usize,
    ) -> bool {
        let shape = self.shape(&compared.diff, shown);
        let found = shape.find(|name| search.is_match(name), self.tree.selected());
        let places: Vec<usize> = found.lines.iter().map(|(place, _)| *place).collect();
        let next = beside(&places, found.here, step);
        let Some((_, row)) = found.lines.iter().find(|(place, _)| Some(*place) == next) else {
            return false;
        };
        let path = shape.path(row);
        self.reveal(&path, compared, shown, height);
        true
    }

    /// Returns the path of the row under the cursor of the tree.
    pub fn selected_path(&self, compared: &Compared, shown: &Settings) -> Option<Path> {
        Some(self.shape(&compared.diff, shown).path(&self.tree.selected()?))
    }

    /// Sorts by self time, or by total time again.
    pub fn sort_self_or_total(&mut self) {
        self.sort = match self.sort {
            ChangeColumn::SelfChange => ChangeColumn::Change,
            _ => ChangeColumn::SelfChange,
        };
        self.reverse = false;
    }

    /// Sorts by the column beside the present one.
    pub fn sort_beside(&mut self, width: u16, step: isize) {
        self.sort = ChangeColumns::new(width).beside(self.sort, step);
    }

    /// Sorts by the column whose title is in this cell; by the same column: the other way round.
    pub fn sort_by_title(&mut self, width: u16, cell: u16) {
        if let Some(column) = ChangeColumns::new(width).at(cell) {
            self.reverse = column == self.sort && !self.reverse;
            self.sort = column;
        }
    }
}
