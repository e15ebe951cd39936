//! What is displayed: the snapshot, its projection, the open rows and the selected one.

use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;

use super::activity::Activity;
use super::event::Request;
use super::list::{List, Step};
use super::row_path::{Expanded, Path, RowKey};
use super::rows::{Fold, Row, Tree, What, is_shown};
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::Location;
use crate::model::projection::settings::Settings;
use crate::model::projection::waits::Answer;
use crate::model::projection::{
    Method, Ordered, Projection, Siblings, Totals, heaviest, hottest_group, hottest_path,
};
use crate::model::vocabulary::frame::{SECOND, ThreadKey};

/// Time after the start during which every snapshot reopens the hottest path, unless a key is
/// pressed.
const SETTLES_AFTER: u64 = 2 * SECOND;

pub struct View {
    /// The display settings that the user chose.
    pub settings: Settings,
    /// The settings of the displayed projection, in the newest metric and order.
    pub shown: Settings,
    pub snapshot: Option<Arc<Snapshot>>,
    pub projection: Projection,
    /// The visible rows of the tree.
    pub rows: Vec<Row>,
    pub tree: List,
    /// `None`: the first row, whatever it is.
    selected: Option<Path>,
    expanded: Expanded,
    /// The rows that `C` collapsed.
    before_collapse: Option<Expanded>,
    /// The hottest path is final, or the user has opened something.
    settled: bool,
    /// The next projection names rows differently.
    renamed: bool,
    pub methods_on: bool,
    /// Indexes into the projection's methods.
    pub method_rows: Vec<u32>,
    pub methods: List,
    selected_method: Option<RowKey>,
    pub collapse_chains: bool,
    pub short_names: bool,
    pub search: Option<Regex>,
    pub activity: Activity,
    /// The newest results of what threads wait for.
    pub waits: HashMap<ThreadKey, Answer>,
}

impl View {
    pub fn new(settings: Settings) -> View {
        View {
            shown: settings.clone(),
            settings,
            snapshot: None,
            projection: Projection::nothing(),
            rows: Vec::new(),
            tree: List::default(),
            selected: None,
            expanded: Expanded::default(),
            before_collapse: None,
            settled: false,
            renamed: false,
            methods_on: false,
            method_rows: Vec::new(),
            methods: List::default(),
            selected_method: None,
            collapse_chains: true,
            short_names: true,
            search: None,
            activity: Activity::default(),
            waits: HashMap::new(),
        }
    }

    /// Displays a new projection, after a new snapshot or a changed setting.
    pub fn show(&mut self, request: Request, projection: Projection, height: usize) {
        self.snapshot = Some(request.snapshot);
        self.shown = request.settings;
        self.projection = projection;
        if std::mem::take(&mut self.renamed) {
            self.expanded = Expanded::default();
            self.before_collapse = None;
            self.settled = false;
        }
        self.reorder(height);
    }

    /// Applies another metric or order to the same projection.
    pub fn reorder(&mut self, height: usize) {
        let Settings { metric, sort, reverse, .. } = self.settings;
        (self.shown.metric, self.shown.sort, self.shown.reverse) = (metric, sort, reverse);
        if !self.settled {
            self.open_hottest();
        }
        self.reshape(height);
    }

    /// Rebuilds the rows; the selected row keeps its line on the screen where possible.
    pub fn reshape(&mut self, height: usize) {
        let tree = self.drawing();
        self.rows = tree.rows(&self.expanded);
        let cursor = self.locate().unwrap_or(0);
        self.tree.follow(cursor, self.rows.len(), height);

        if self.methods_on {
            self.reshape_methods(height);
        }
    }

    /// Rebuilds the methods' rows, but only while they are displayed.
    fn reshape_methods(&mut self, height: usize) {
        let shown = |m: &u32| is_shown(&self.projection, &self.shown, &self.method(*m).total);
        let rows = self.ordered().methods().into_iter().filter(shown).collect();
        self.method_rows = rows;
        let roll_up = self.shown.roll_up;
        let cursor = match &self.selected_method {
            None => Some(0),
            Some(key) => {
                self.method_rows.iter().position(|m| key.is(self.method_location(*m), roll_up))
            }
        };
        self.methods.follow(cursor.unwrap_or(self.methods.cursor), self.method_rows.len(), height);
    }

    fn ordered(&self) -> Ordered<'_> {
        self.projection.ordered(&self.shown)
    }

    /// Returns the method of a row of [`View::method_rows`].
    pub fn method(&self, method: u32) -> &Method {
        &self.projection.methods()[method as usize]
    }

    pub fn method_location(&self, method: u32) -> &Arc<Location> {
        self.method(method).location(self.shown.metric)
    }

    pub fn node_location(&self, node: u32) -> &Arc<Location> {
        self.projection.location(node, self.shown.metric)
    }

    fn drawing(&self) -> Tree<'_> {
        Tree { ordered: self.ordered(), settings: &self.shown, collapse: self.collapse_chains }
    }

    /// Notes that the next projection names rows differently, so that the expanded rows are
    /// searched anew then.
    pub fn open_again(&mut self) {
        self.renamed = true;
    }

    /// Opens the hottest path down to its first fork.
    fn open_hottest(&mut self) {
        self.expanded = Expanded::default();
        let ordered = self.ordered();
        let Some(group) = hottest_group(&ordered) else { return };
        let path = hottest_path(&ordered, group);
        let mut row = Path::of_group(&self.projection, group as u32, &self.shown);
        self.expanded.open(&row);
        for node in path {
            row.frames.push(RowKey::of(self.projection.name(node), self.shown.roll_up));
            self.expanded.open(&row);
        }
        let known =
            |s: &Arc<Snapshot>| !s.health.naming && s.at >= s.session.started + SETTLES_AFTER;
        self.settled = self.snapshot.as_ref().is_some_and(known);
    }

    fn path(&self, row: &Row) -> Path {
        match row.what {
            What::Group(group) => Path::of_group(&self.projection, group, &self.shown),
            What::Node(node) => Path::of_node(&self.projection, row.group, node, &self.shown),
        }
    }

    /// Returns the row of the selected path, or of the longest part of it that still exists.
    fn locate(&self) -> Option<usize> {
        let Some(path) = &self.selected else { return Some(0) };
        let Some((group, nodes)) = path.find(&self.projection, &self.shown) else {
            return Some(self.tree.cursor);
        };
        let row_of = |what| self.rows.iter().position(|r| r.what == what);
        let tree = self.drawing();
        let whole = nodes.len() == path.frames.len();
        for (at, node) in nodes.iter().enumerate().rev() {
            // A folded call is drawn on the line of its callee.
            let mut drawn = *node;
            if whole && at + 1 == nodes.len() {
                while let Some(callee) = tree.link(drawn) {
                    drawn = callee;
                }
            }
            if let Some(row) = row_of(What::Node(drawn)) {
                return Some(row);
            }
        }
        row_of(What::Group(group))
    }

    fn select(&mut self, row: usize) {
        self.selected = self.rows.get(row).map(|r| self.path(r));
    }

    /// Returns the row under the cursor.
    pub fn selected_row(&self) -> Option<&Row> {
        self.rows.get(self.tree.cursor)
    }

    /// Returns the call under the cursor, in either view; `None` on a group.
    pub fn selected_location(&self) -> Option<&Arc<Location>> {
        if self.methods_on {
            let method = self.method_rows.get(self.methods.cursor)?;
            return Some(self.method_location(*method));
        }
        match self.selected_row()?.what {
            What::Group(_) => None,
            What::Node(node) => Some(self.node_location(node)),
        }
    }

    /// Returns the totals of the row under the cursor.
    pub fn selected_totals(&self) -> Option<Totals> {
        if self.methods_on {
            let method = self.method_rows.get(self.methods.cursor)?;
            return Some(self.method(*method).total);
        }
        Some(match self.selected_row()?.what {
            What::Group(group) => self.projection.groups[group as usize].total,
            What::Node(node) => self.projection.total(node),
        })
    }

    /// Returns the frames of the row under the cursor, innermost first; empty on a group.
    pub fn selected_stack(&self) -> Vec<&Arc<Location>> {
        if self.methods_on {
            return self.selected_location().into_iter().collect();
        }
        let mut at = match self.selected_row().map(|r| r.what) {
            Some(What::Node(node)) => Some(node),
            _ => None,
        };
        let mut stack = Vec::new();
        while let Some(node) = at {
            stack.push(self.node_location(node));
            at = self.projection.parent(node);
        }
        stack
    }

    /// Returns the calls that are folded into the line under the cursor, outermost first.
    pub fn selected_links(&self) -> Vec<&Arc<Location>> {
        let swallowed = self.selected_row().map_or(0, |r| usize::from(r.swallowed));
        let mut links: Vec<_> = self.selected_stack().into_iter().skip(1).take(swallowed).collect();
        links.reverse();
        links
    }

    /// Formats the stack, one line per frame, innermost first, as stack traces are pasted.
    pub fn stack_text(&self) -> Option<String> {
        let lines: Vec<String> = self
            .selected_stack()
            .iter()
            .map(|location| {
                let place = match (&location.file, location.line) {
                    (Some(file), Some(line)) => format!(" ({file}:{line})"),
                    (Some(file), None) => format!(" ({file})"),
                    _ if location.module.is_empty() => String::new(),
                    _ => format!(" ({})", location.module),
                };
                format!("{}{place}\n", location.function)
            })
            .collect();
        (!lines.is_empty()).then(|| lines.concat())
    }

    pub fn step(&mut self, step: Step, height: usize) {
        if self.methods_on {
            self.methods.step(step, self.method_rows.len(), height);
            self.select_method(step == Step::First);
        } else {
            self.tree.step(step, self.rows.len(), height);
            if step == Step::First {
                self.selected = None;
            } else {
                self.select(self.tree.cursor);
            }
        }
    }

    fn select_method(&mut self, first: bool) {
        let method = self.method_rows.get(self.methods.cursor).filter(|_| !first);
        let key = |m: &u32| RowKey::of(self.method_location(*m), self.shown.roll_up);
        self.selected_method = method.map(key);
    }

    /// Handles a mouse press on a line of the rows.
    pub fn press(&mut self, line: usize, height: usize) {
        if self.methods_on {
            self.methods.cursor =
                (self.methods.top + line).min(self.method_rows.len().saturating_sub(1));
            self.select_method(false);
            return;
        }
        let row = self.tree.top + line;
        if row >= self.rows.len() {
            return;
        }
        let again = row == self.tree.cursor;
        self.tree.cursor = row;
        self.select(row);
        match (again, self.rows[row].fold) {
            (true, Fold::Open) => self.collapse(height),
            (true, Fold::Closed) => self.expand(height),
            _ => {}
        }
    }

    pub fn keep_on_screen(&mut self, height: usize) {
        self.tree.show(self.rows.len(), height);
        self.methods.show(self.method_rows.len(), height);
    }

    pub fn set_methods(&mut self, on: bool, height: usize) {
        self.methods_on = on;
        if on {
            self.reshape_methods(height);
        }
        self.keep_on_screen(height);
    }

    /// Stops opening rows automatically: from here on the user decides what is open.
    fn touch(&mut self) {
        self.settled = true;
        self.before_collapse = None;
    }

    pub fn expand(&mut self, height: usize) {
        let Some(row) = self.selected_row().copied() else { return };
        if row.fold == Fold::Closed {
            self.touch();
            self.select(self.tree.cursor);
            self.expanded.open(&self.path(&row));
            self.reshape(height);
        }
    }

    pub fn collapse(&mut self, height: usize) {
        let Some(row) = self.selected_row().copied() else { return };
        if row.fold == Fold::Open {
            self.touch();
            self.select(self.tree.cursor);
            self.expanded.close(&self.path(&row));
            self.reshape(height);
        } else if let Some(parent) = row.parent {
            self.tree.cursor = parent as usize;
            self.tree.show(self.rows.len(), height);
            self.select(self.tree.cursor);
        }
    }

    /// Expands the row and its hottest path down to the end.
    pub fn expand_hottest(&mut self, height: usize) {
        let Some(row) = self.selected_row().copied() else { return };
        self.touch();
        self.select(self.tree.cursor);
        let mut path = self.path(&row);
        self.expanded.open(&path);
        let mut below = match row.what {
            What::Group(group) => self.projection.roots(&self.projection.groups[group as usize]),
            What::Node(node) => self.projection.children(node),
        };
        while let Some(node) = heaviest(&self.ordered(), below) {
            path.frames.push(RowKey::of(self.projection.name(node), self.shown.roll_up));
            below = self.projection.children(node);
        }
        // Opens all rows above it too.
        self.expanded.open(&path);
        self.reshape(height);
    }

    /// Collapses everything; pressed again, reopens what was open.
    pub fn collapse_all(&mut self, height: usize) {
        self.settled = true;
        match self.before_collapse.take() {
            Some(before) => self.expanded = before,
            None => self.before_collapse = Some(std::mem::take(&mut self.expanded)),
        }
        self.reshape(height);
    }

    /// Goes to the next (1) or previous (-1) row whose name matches and opens the rows that hide
    /// it. Returns false if there is none.
    pub fn next_match(&mut self, step: isize, height: usize) -> bool {
        let Some(search) = self.search.clone() else { return false };
        if self.methods_on {
            let matches =
                |at: &usize| search.is_match(&self.method_location(self.method_rows[*at]).function);
            let found: Vec<usize> = (0..self.method_rows.len()).filter(matches).collect();
            let Some(at) = beside(&found, self.methods.cursor, step) else { return false };
            self.methods.cursor = at;
            self.methods.show(self.method_rows.len(), height);
            self.select_method(false);
            return true;
        }
        let (found, here) = self.matches(&search);
        let Some(at) = beside(&found.iter().map(|f| f.0).collect::<Vec<_>>(), here, step) else {
            return false;
        };
        let Some((_, path)) = found.into_iter().find(|(order, _)| *order == at) else {
            return false;
        };
        let path = path.path(self);
        if !path.frames.is_empty() {
            self.touch();
            let mut above = path.clone();
            above.frames.pop();
            self.expanded.open(&above);
        }
        self.selected = Some(path);
        self.reshape(height);
        true
    }

    /// Returns all matches, each with its place in the drawing order with all rows open; and the
    /// cursor's place.
    fn matches(&self, search: &Regex) -> (Vec<(usize, Found)>, usize) {
        let selected = self.selected.as_ref().and_then(|p| {
            let (group, nodes) = p.find(&self.projection, &self.shown)?;
            Some(nodes.last().map_or(What::Group(group), |n| What::Node(*n)))
        });
        let projection = &self.projection;
        // Only paths to matches and to the cursor are visited in order, so nothing else has to be
        // sorted.
        let mut matches = Vec::with_capacity(projection.node_count() as usize);
        let mut known: HashMap<*const Location, bool> = HashMap::new();
        for node in 0..projection.node_count() {
            let location = projection.name(node);
            matches.push(
                *known
                    .entry(Arc::as_ptr(location))
                    .or_insert_with(|| search.is_match(&location.function)),
            );
        }
        let mut on_the_way = matches.clone();
        if let Some(What::Node(node)) = selected {
            on_the_way[node as usize] = true;
        }
        for node in (0..projection.node_count()).rev() {
            if let (true, Some(parent)) = (on_the_way[node as usize], projection.parent(node)) {
                on_the_way[parent as usize] = true;
            }
        }

        let ordered = self.ordered();
        let (mut found, mut here, mut order) = (Vec::new(), 0, 0);
        for at in ordered.groups() {
            let group = &projection.groups[at as usize];
            if !is_shown(projection, &self.shown, &group.total) {
                continue;
            }
            let mut visit = |what: What, matches: bool| {
                if selected == Some(what) {
                    here = order;
                }
                if matches {
                    found.push((order, Found { group: at, what }));
                }
                order += 1;
            };
            visit(What::Group(at), search.is_match(&group.name));
            let in_order = |nodes: Siblings<'_>| {
                let shown =
                    |node: &u32| is_shown(projection, &self.shown, &projection.total(*node));
                ordered
                    .sorted(nodes.filter(|node| on_the_way[*node as usize] && shown(node)))
                    .into_iter()
                    .rev()
            };
            let mut todo: Vec<u32> = in_order(projection.roots(group)).collect();
            while let Some(node) = todo.pop() {
                visit(What::Node(node), matches[node as usize]);
                todo.extend(in_order(projection.children(node)));
            }
        }
        (found, here)
    }

    /// Returns true while the line about filters has content.
    pub fn has_filters(&self) -> bool {
        let f = &self.settings.filters;
        f.interesting.active().is_some()
            || f.focus.active().is_some()
            || f.ignore.active().is_some()
            || f.hide.active().is_some()
            || f.no_kernel
            || f.skip_daemon
            || f.threads.active().is_some()
            || f.min_percent.active().is_some()
    }
}

struct Found {
    group: u32,
    what: What,
}

impl Found {
    fn path(&self, view: &View) -> Path {
        match self.what {
            What::Group(group) => Path::of_group(&view.projection, group, &view.settings),
            What::Node(node) => Path::of_node(&view.projection, self.group, node, &view.settings),
        }
    }
}

/// Returns the place after (or before) `here` among ascending places, wrapping at the ends.
fn beside(places: &[usize], here: usize, step: isize) -> Option<usize> {
    if step > 0 {
        places.iter().find(|p| **p > here).or(places.first()).copied()
    } else {
        places.iter().rev().find(|p| **p < here).or(places.last()).copied()
    }
}
