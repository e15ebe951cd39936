//! What is displayed: the snapshot, its projection, the open rows and the selected one.

use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;

use super::baseline::Compared;
use super::call_graph::GraphView;
use super::carried::Carried;
use super::changes::ChangesView;
use super::columns::Columns;
use super::event::Request;
use super::flame::{Flame, Move};
use super::list::{List, Step};
use super::method_list::{self, MethodList};
use super::pane::Pane;
use super::row_path::{Expanded, Path};
use super::rows::{Fold, Row, Tree, What};
use super::source_view::SourceView;
use super::thread_list::{self, ThreadList};
use super::timeline::TimelineView;
use super::trends::{Trends, row_of};
use super::wait_list::{WaitList, WaitRow};
use crate::config::Names;
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::Location;
use crate::model::projection::settings::{NativeFrames, Range, Settings, SortColumn};
use crate::model::projection::waits::Answer;
use crate::model::projection::{BusyThreads, Method, Ordered, Projection, RowOf, RowTrend};
use crate::model::vocabulary::frame::ThreadKey;

pub struct View {
    /// The display settings that the user chose.
    pub settings: Settings,
    /// The settings of the displayed projection, in the newest metric and order.
    pub shown: Settings,
    /// As the displayed range knows it: without the threads of now if the range ended before.
    pub snapshot: Option<Arc<Snapshot>>,
    /// The whole of it.
    pub(super) whole: Option<Arc<Snapshot>>,
    pub projection: Projection,
    /// One that is not shown any more; see [`Request::spare`].
    pub spare: Option<Box<Projection>>,
    /// The visible rows of the tree.
    pub rows: Vec<Row>,
    pub tree: List,
    /// `None`: the first row, whatever it is.
    pub(super) selected: Option<Path>,
    pub(super) expanded: Expanded,
    /// What was expanded and selected in the upright trees.
    pub(super) before_inversion: Option<(Expanded, Option<Path>)>,
    /// The rows that `C` collapsed.
    pub(super) before_collapse: Option<Expanded>,
    /// Rows that were opened by themselves stay open.
    pub(super) settled: bool,
    /// A key has moved or opened something: no row opens by itself any more.
    pub(super) touched: bool,
    /// The next projection names rows differently; these are expanded then, or those that tell
    /// most.
    renamed: Option<Option<Expanded>>,
    /// The cursor goes to the hottest row of each new projection; what was expanded and selected
    /// before.
    pub(super) follows: Option<(Expanded, Option<Path>)>,
    pub pane: Pane,
    pub methods: MethodList,
    pub graph: GraphView,
    pub flame: Flame,
    /// Cells of the screen.
    pub(super) width: u16,
    pub threads: ThreadList,
    pub timeline: TimelineView,
    /// The comparison with the baseline, while one is shown.
    pub compared: Option<Box<Compared>>,
    pub changes: ChangesView,
    pub wait_list: WaitList,
    pub(super) carried: Carried,
    pub source: SourceView,
    pub short_names: bool,
    pub search: Option<Regex>,
    pub busy_threads: Arc<BusyThreads>,
    /// The displayed projection was requested with trends.
    pub(super) asked_for_trends: bool,
    pub(super) trends: Trends,
    /// The newest results of what threads wait for.
    pub waits: HashMap<ThreadKey, Answer>,
}

impl View {
    pub fn new(settings: Settings, names: Names) -> View {
        View {
            shown: settings.clone(),
            settings,
            snapshot: None,
            whole: None,
            projection: Projection::nothing(),
            spare: None,
            rows: Vec::new(),
            tree: List::default(),
            selected: None,
            expanded: Expanded::default(),
            before_inversion: None,
            before_collapse: None,
            settled: false,
            touched: false,
            renamed: None,
            follows: None,
            pane: Pane::Tree,
            methods: MethodList::default(),
            graph: GraphView::default(),
            flame: Flame::default(),
            width: 80,
            threads: ThreadList::default(),
            timeline: TimelineView::default(),
            compared: None,
            changes: ChangesView::default(),
            wait_list: WaitList::default(),
            carried: Carried::default(),
            source: SourceView::default(),
            short_names: names == Names::Short,
            search: None,
            busy_threads: Arc::default(),
            asked_for_trends: false,
            trends: Trends::default(),
            waits: HashMap::new(),
        }
    }

    pub fn names(&self) -> Names {
        if self.short_names { Names::Short } else { Names::Full }
    }

    /// Displays a new projection, after a new snapshot or a changed setting.
    pub fn show(
        &mut self,
        request: Request,
        projection: Projection,
        compared: Option<Box<Compared>>,
        height: usize,
    ) {
        self.whole = Some(request.snapshot.clone());
        self.snapshot = Some(match request.snapshot.history.is_past(request.settings.range) {
            true => request.snapshot.without_now().into(),
            false => request.snapshot,
        });
        self.shown = request.settings;
        self.asked_for_trends = request.trends;
        self.spare = Some(Box::new(std::mem::replace(&mut self.projection, projection)));
        self.trends = Trends::default();
        if compared.is_none() || self.compared.is_none() || self.renamed.is_some() {
            self.changes.forget_open();
        }
        self.compared = compared;
        self.pane = self.pane.compared(self.compared.is_some());
        if let Some(expanded) = self.renamed.take() {
            self.touched = expanded.is_some();
            self.settled = false;
            self.expanded = expanded.unwrap_or_default();
            self.before_collapse = None;
        }
        self.reorder(height);
        if self.follows.is_some() && matches!(self.pane, Pane::Tree | Pane::Methods | Pane::Flame) {
            self.go_to_hottest(height);
        }
    }

    /// Applies another metric or order to the same projection.
    pub fn reorder(&mut self, height: usize) {
        let Settings { metric, sort, reverse, .. } = self.settings;
        (self.shown.metric, self.shown.sort, self.shown.reverse) = (metric, sort, reverse);
        if self.touched {
            return self.reshape(height);
        }
        self.rows = self.open_most_telling(height);
        self.keep_line(height);
    }

    /// Rebuilds the rows.
    pub fn reshape(&mut self, height: usize) {
        self.rows = self.drawing().rows(&self.expanded);
        self.keep_line(height);
    }

    /// The selected row keeps its line on the screen where possible.
    fn keep_line(&mut self, height: usize) {
        let cursor = self.locate().unwrap_or(0);
        self.tree.follow(cursor, self.rows.len(), height);

        self.reshape_pane(height);
    }

    /// Rebuilds the rows of the view that is displayed, unless it is the tree.
    fn reshape_pane(&mut self, height: usize) {
        match self.pane {
            Pane::Tree => {}
            Pane::Methods => self.methods.read(&self.projection, &self.shown, height),
            Pane::Graph => self.graph.read(&self.projection, &self.shown, height),
            Pane::Flame | Pane::ChangedFlame => self.read_flame(height),
            Pane::Threads => self.threads.read(&self.projection, &self.shown, height),
            Pane::Timeline => self.timeline.show(height),
            Pane::ChangedTree | Pane::ChangedMethods => {
                if let Some(compared) = &self.compared {
                    self.changes.read(self.pane, compared, &self.shown, height);
                }
            }
            Pane::Waits => self.wait_list.read(&self.projection, height),
            Pane::Source => self.source.read(self.shown.metric, height),
        }
    }

    fn read_flame(&mut self, height: usize) {
        let trees = match self.projection.inverted() {
            Some(inverted) if self.shown.inverted => inverted,
            _ => &self.projection,
        };
        let selected = self.selected.as_ref();
        self.flame.read(trees, &self.shown, selected, (self.width, height));
    }

    /// Returns the trees that are displayed: upright or inverted.
    pub fn trees(&self) -> &Projection {
        match self.projection.inverted() {
            Some(inverted) if self.shown.inverted => inverted,
            _ => &self.projection,
        }
    }

    /// Returns the displayed trees in the order of their rows.
    pub(super) fn ordered(&self) -> Ordered<'_> {
        self.trees().ordered(&self.shown)
    }

    /// Returns the method of a row of [`View::method_rows`].
    pub fn method(&self, method: u32) -> &Method {
        &self.projection.methods()[method as usize]
    }

    pub fn method_location(&self, method: u32) -> &Arc<Location> {
        self.method(method).location(self.shown.metric)
    }

    /// Returns the location of a node of the upright trees.
    pub fn node_location(&self, node: u32) -> &Arc<Location> {
        self.projection.location(node, self.shown.metric)
    }

    pub(super) fn drawing(&self) -> Tree<'_> {
        Tree { ordered: self.ordered(), settings: &self.shown }
    }

    /// Notes that the next projection names rows differently, so that the expanded rows are
    /// searched anew then.
    pub fn open_again(&mut self) {
        self.forget_choice();
        self.renamed = Some(None);
        self.flame.zoom = None;
    }

    /// Notes that the next projection names rows as they were when these were expanded.
    pub(super) fn open_as_before(&mut self, expanded: Expanded) {
        self.renamed = Some(Some(expanded));
        self.flame.zoom = None;
    }

    pub(super) fn path(&self, row: &Row) -> Path {
        let Some(group) = row.group else { return Path::of_small_groups() };
        let of_group = || Path::of_group(self.trees(), group, &self.shown);
        let of_node = |node| Path::of_node(self.trees(), group, node, &self.shown);
        match row.what {
            What::Group(_) => of_group(),
            What::Node(node) => of_node(node),
            What::Small(Some(node)) => of_node(node).small(),
            What::Small(None) | What::SmallGroups => of_group().small(),
        }
    }

    /// Returns the row of the selected path, or of the longest part of it that still exists.
    pub(super) fn locate(&self) -> Option<usize> {
        let Some(path) = &self.selected else { return Some(0) };
        if path.small {
            let found = self.rows.iter().position(|row| row.small > 0 && self.path(row) == *path);
            if found.is_some() {
                return found;
            }
        }
        let Some((group, nodes)) = path.find(self.trees(), &self.shown) else {
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

    pub(super) fn select(&mut self, row: usize) {
        self.carried.moved = true;
        self.selected = self.rows.get(row).map(|r| self.path(r));
    }

    /// Returns whether the shown range ends before the newest facts.
    pub fn is_past(&self) -> bool {
        self.snapshot.as_ref().is_some_and(|s| s.history.is_past(self.shown.range))
    }

    /// Returns whether the shown range has trends: facts of all time since the start have no time.
    pub fn has_trends(&self) -> bool {
        !matches!(self.shown.range, Range::Cumulative { since: None })
    }

    /// Returns the column by which rows are sorted now.
    pub fn sorted_by(&self) -> SortColumn {
        match self.settings.sort {
            SortColumn::Change if !self.has_trends() => SortColumn::Total,
            sort => sort,
        }
    }

    /// Returns the columns of the view on a screen of this width; those of rows where a view has
    /// others.
    pub fn columns(&self, width: u16) -> Columns {
        let of = match self.pane {
            Pane::Threads => Columns::of_threads,
            _ => Columns::of_rows,
        };
        of(width, self.has_trends(), self.sorted_by())
    }

    /// Returns the trend of a visible row, by its index among all rows.
    pub fn trend(&self, row: usize) -> Option<&RowTrend> {
        self.trends.row(row)
    }

    /// Sums up the trends of the visible rows. `height`: number of lines; 0 without room for them.
    pub(super) fn read_trends(&mut self, height: usize) {
        if !self.projection.has_trends() {
            return;
        }
        let (top, rows) = match self.pane {
            Pane::Methods => {
                let top = self.methods.list.top;
                let visible = self.methods.rows.iter().skip(top).take(height);
                (top, visible.map(|method| RowOf::Method(*method)).collect())
            }
            Pane::Tree => {
                let visible = self.rows.iter().skip(self.tree.top).take(height);
                (self.tree.top, visible.map(|row| row_of(&self.drawing(), row)).collect())
            }
            Pane::Threads => {
                let top = self.threads.list.top;
                let visible = self.threads.rows.iter().skip(top).take(height);
                (top, visible.map(|group| RowOf::Groups(vec![*group])).collect())
            }
            Pane::Graph
            | Pane::Flame
            | Pane::Timeline
            | Pane::Waits
            | Pane::Source
            | Pane::ChangedTree
            | Pane::ChangedMethods
            | Pane::ChangedFlame => return,
        };
        let of = match self.pane {
            Pane::Tree if self.shown.inverted => self.projection.inverted(),
            _ => None,
        };
        let of = of.unwrap_or(&self.projection);
        let by_change = self.shown.sort == SortColumn::Change;
        self.trends.read(of, self.shown.metric, by_change, (top, rows));
    }

    pub fn step(&mut self, step: Step, height: usize) {
        self.carried.moved = true;
        self.touched = true;
        self.follows = None;
        let (projection, shown) = (&self.projection, &self.shown);
        match self.pane {
            Pane::Methods => {
                let key = |method| Some(method_list::key(method, projection, shown));
                self.methods.step(step, key, height);
            }
            Pane::Graph => {
                self.graph.list.step(step, |row| Some(row.key(projection, shown)), height);
            }
            Pane::Threads => {
                let key = |group| Some(thread_list::key(group, projection, shown));
                self.threads.step(step, key, height);
            }
            Pane::Flame | Pane::ChangedFlame => self.go_to_bar(
                match step {
                    Step::Up(count) => Move::Out(count),
                    Step::Down(count) => Move::In(count),
                    Step::First => Move::First,
                    Step::Last => Move::Last,
                    // Bars are chosen by their place.
                    Step::To(_) => return,
                },
                height,
            ),
            Pane::Timeline => self.timeline.step(step, height),
            Pane::ChangedTree | Pane::ChangedMethods => {
                if let Some(compared) = &self.compared {
                    self.changes.step(self.pane, step, compared, shown, height);
                }
            }
            Pane::Waits => self.wait_list.list.step(step, |row| Some(row.key(projection)), height),
            Pane::Source => self.source.step(step, height),
            Pane::Tree => {
                self.tree.step(step, self.rows.len(), height);
                if step == Step::First {
                    self.selected = None;
                } else {
                    self.select(self.tree.cursor);
                }
            }
        }
    }

    /// Handles a mouse press on a line of the rows.
    pub fn press(&mut self, (line, column): (usize, u16), height: usize) {
        self.carried.moved = true;
        if self.pane.is_flame() {
            return self.press_bar((line, column), height);
        }
        if self.pane == Pane::Timeline {
            return self.timeline.press((line, column), height);
        }
        let (list, rows) = self.rows_of_pane();
        let row = list.top + line;
        if row >= rows {
            return;
        }
        let fold = match self.pane {
            Pane::Tree => self.rows[row].fold,
            Pane::Waits => match self.wait_list.list.rows[row] {
                WaitRow::Lock(at)
                    if self.wait_list.is_open(&self.projection.locks[at as usize]) =>
                {
                    Fold::Open
                }
                WaitRow::Lock(_) => Fold::Closed,
                _ => Fold::Leaf,
            },
            Pane::ChangedTree => self.changes.tree.rows[row].fold,
            _ => return self.step(Step::To(row), height),
        };
        let again = row == list.cursor;
        self.step(Step::To(row), height);
        match (again, fold) {
            (true, Fold::Open) => self.collapse(height),
            (true, Fold::Closed) => self.expand(height),
            _ => {}
        }
    }

    /// Returns the displayed list, and the number of its rows.
    pub fn rows_of_pane(&self) -> (&List, usize) {
        match self.pane {
            Pane::Tree => (&self.tree, self.rows.len()),
            Pane::Methods => (&self.methods.list, self.methods.rows.len()),
            Pane::Graph => (&self.graph.list.list, self.graph.list.rows.len()),
            Pane::Flame | Pane::ChangedFlame => (&self.flame.list, self.flame.lines.len()),
            Pane::Threads => (&self.threads.list, self.threads.rows.len()),
            Pane::Timeline => (&self.timeline.list.list, self.timeline.list.rows.len()),
            Pane::Waits => (&self.wait_list.list.list, self.wait_list.list.rows.len()),
            Pane::Source => (&self.source.list, self.source.rows()),
            Pane::ChangedTree => (&self.changes.tree.list, self.changes.tree.rows.len()),
            Pane::ChangedMethods => {
                (&self.changes.functions.list, self.changes.functions.rows.len())
            }
        }
    }

    pub fn keep_on_screen(&mut self, height: usize) {
        self.tree.show(self.rows.len(), height);
        self.methods.list.show(self.methods.rows.len(), height);
        self.graph.list.list.show(self.graph.list.rows.len(), height);
        self.flame.list.show(self.flame.lines.len(), height);
        self.threads.list.show(self.threads.rows.len(), height);
        self.wait_list.list.list.show(self.wait_list.list.rows.len(), height);
        self.timeline.show(height);
        self.source.list.show(self.source.rows(), height);
        let ChangesView { tree, functions, .. } = &mut self.changes;
        tree.list.show(tree.rows.len(), height);
        functions.list.show(functions.rows.len(), height);
    }

    /// Notes the width of the screen, in cells.
    pub(super) fn resize(&mut self, width: u16, height: usize) {
        self.width = width;
        self.timeline.width = width;
        if self.pane.is_flame() {
            self.read_flame(height);
        }
    }

    pub fn set_pane(&mut self, pane: Pane, height: usize) {
        let pane = pane.compared(self.compared.is_some());
        self.carried.moved &= pane == self.pane;
        self.pane = pane;
        self.reshape_pane(height);
        self.keep_on_screen(height);
    }

    /// Stops opening rows automatically: from here on the user decides what is open.
    pub(super) fn touch(&mut self) {
        self.touched = true;
        self.follows = None;
        self.before_collapse = None;
    }

    /// Does this with the comparison's rows, if they are displayed. Returns whether they are.
    pub(super) fn in_changes(
        &mut self,
        change: impl FnOnce(&mut ChangesView, &Compared, &Settings),
    ) -> bool {
        let is_shown = self.pane.is_compared();
        if let (true, Some(compared)) = (is_shown, &self.compared) {
            change(&mut self.changes, compared, &self.shown);
        }
        is_shown
    }

    /// Returns true while the line about filters has content.
    pub fn has_filters(&self) -> bool {
        let f = &self.settings.filters;
        f.interesting.active().is_some()
            || f.focus.active().is_some()
            || f.ignore.active().is_some()
            || f.hide.active().is_some()
            || f.no_kernel
            || f.native != NativeFrames::Auto
            || f.skip_daemon
            || f.gil
            || f.threads.active().is_some()
            || f.min_percent.active().is_some()
    }
}
