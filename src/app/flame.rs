//! The flame view: each call is a bar below its caller, as wide as its share of the time.

use super::list::List;
use super::row_path::Path;
use super::rows::{What, is_shown};
use crate::model::projection::settings::{Settings, SortColumn};
use crate::model::projection::{Ordered, Projection};

/// What a bar stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarOf {
    /// Everything shown.
    All,
    /// Index into [`Projection::groups`].
    Group(u32),
    Node(u32),
}

impl BarOf {
    /// Returns the row of the tree that stands for the same; `None` for everything.
    pub fn what(self) -> Option<What> {
        match self {
            BarOf::All => None,
            BarOf::Group(group) => Some(What::Group(group)),
            BarOf::Node(node) => Some(What::Node(node)),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bar {
    pub of: BarOf,
    /// The group that it is part of.
    pub group: Option<u32>,
    /// Its first cell on the screen.
    pub from: u16,
    /// At least one.
    pub cells: u16,
    /// It is above what the view zooms in on: its width tells nothing.
    pub is_above: bool,
}

impl Bar {
    fn till(&self) -> u16 {
        self.from + self.cells
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// To the caller.
    Out(usize),
    /// To the widest callee.
    In(usize),
    /// To the bar beside it.
    Left,
    Right,
    First,
    /// To the end of the hottest path.
    Last,
}

#[derive(Debug, Default)]
pub struct Flame {
    /// The row that is as wide as the screen; `None`: everything.
    pub zoom: Option<Path>,
    /// Bars have the colour of their main state; else that of whose code they are.
    pub by_state: bool,
    /// From the outermost bar inward: those of one depth, from left to right.
    pub lines: Vec<Vec<Bar>>,
    /// Its cursor is the line of the selected bar.
    pub list: List,
    /// Index of the selected bar in its line.
    at: usize,
}

impl Flame {
    /// Lays out the bars of a new projection, or of another width. `selected`: the row whose bar is
    /// selected, or else that of its nearest visible caller; `None`: everything.
    pub fn read(
        &mut self,
        projection: &Projection,
        shown: &Settings,
        selected: Option<&Path>,
        (width, height): (u16, usize),
    ) {
        self.lines = lines(projection, shown, self.zoom.as_ref(), width);
        let chain = selected.map(|path| chain(path, projection, shown)).unwrap_or_default();
        let is_visible = |of: &BarOf| self.place(*of);
        let place = chain.iter().rev().find_map(is_visible).unwrap_or_default();
        self.at = place.1;
        self.list.follow(place.0, self.lines.len(), height);
    }

    fn place(&self, of: BarOf) -> Option<(usize, usize)> {
        let mut lines = (0..).zip(&self.lines);
        lines.find_map(|(nth, line)| Some((nth, line.iter().position(|bar| bar.of == of)?)))
    }

    /// Returns the selected bar.
    pub fn selected(&self) -> Option<Bar> {
        self.lines.get(self.list.cursor)?.get(self.at).copied()
    }

    /// Returns the visible bars line by line.
    pub fn bars(&self) -> impl Iterator<Item = Bar> + '_ {
        self.lines.iter().flatten().copied()
    }

    /// Returns the index of the selected bar among all.
    pub fn nth(&self) -> usize {
        self.lines.iter().take(self.list.cursor).map(Vec::len).sum::<usize>() + self.at
    }

    /// Returns the bar at a cell of the screen. `line`: of the visible ones.
    pub fn bar_at(&self, line: usize, column: u16) -> Option<Bar> {
        let line = self.lines.get(self.list.top + line)?;
        line.iter().find(|bar| (bar.from..bar.till()).contains(&column)).copied()
    }

    pub fn select(&mut self, of: BarOf, height: usize) {
        if let Some((line, at)) = self.place(of) {
            self.at = at;
            self.list.cursor = line;
            self.list.show(self.lines.len(), height);
        }
    }

    /// Moves to another bar; stays where there is none.
    pub fn go(&mut self, way: Move, height: usize) {
        let Some(bar) = self.selected() else { return };
        let (mut line, mut at) = (self.list.cursor, self.at);
        match way {
            Move::Out(count) => {
                line = line.saturating_sub(count);
                at = self.lines[line].iter().position(|out| out.till() > bar.from).unwrap_or(0);
            }
            Move::In(count) => (line, at) = self.inward((line, at), count),
            Move::Left => at = at.saturating_sub(1),
            Move::Right => at = (at + 1).min(self.lines[line].len() - 1),
            Move::First => (line, at) = (0, 0),
            Move::Last => (line, at) = self.inward((line, at), usize::MAX),
        }
        self.at = at;
        self.list.cursor = line;
        self.list.show(self.lines.len(), height);
    }

    /// Returns the place `count` widest callees further in, or the innermost one.
    fn inward(&self, (mut line, mut at): (usize, usize), count: usize) -> (usize, usize) {
        for _ in 0..count.min(self.lines.len()) {
            let bar = self.lines[line][at];
            let Some(below) = self.lines.get(line + 1) else { break };
            let callees = below
                .iter()
                .enumerate()
                .filter(|(_, callee)| bar.from <= callee.from && callee.till() <= bar.till());
            // Of equal ones the first.
            let Some((widest, _)) = callees.rev().max_by_key(|(_, callee)| callee.cells) else {
                break;
            };
            (line, at) = (line + 1, widest);
        }
        (line, at)
    }
}

/// Returns what stands for the path, from everything inward, as far as it exists.
fn chain(path: &Path, projection: &Projection, shown: &Settings) -> Vec<BarOf> {
    let Some((group, nodes)) = path.find(projection, shown) else { return vec![BarOf::All] };
    let nodes = nodes.into_iter().map(BarOf::Node);
    [BarOf::All, BarOf::Group(group)].into_iter().chain(nodes).collect()
}

/// Returns the path of a bar; `None` for everything.
pub fn path(bar: Bar, projection: &Projection, shown: &Settings) -> Option<Path> {
    match (bar.of, bar.group) {
        (BarOf::Node(node), Some(group)) => Some(Path::of_node(projection, group, node, shown)),
        (_, Some(group)) => Some(Path::of_group(projection, group, shown)),
        (_, None) => None,
    }
}

/// A bar, and the time left of it, in ns of the metric.
#[derive(Clone, Copy)]
struct Part {
    bar: Bar,
    start: u64,
}

/// Lays out all bars of at least half a cell. Siblings are ordered by name, so that they keep their
/// places while time goes on.
fn lines(
    projection: &Projection,
    shown: &Settings,
    zoom: Option<&Path>,
    width: u16,
) -> Vec<Vec<Bar>> {
    let by_name = Settings { sort: SortColumn::Name, reverse: false, ..shown.clone() };
    let ordered = projection.ordered(&by_name);
    let value = |of: BarOf| match of {
        BarOf::All => projection.total.value(shown.metric),
        BarOf::Group(group) => projection.groups[group as usize].total.value(shown.metric),
        BarOf::Node(node) => ordered.value(node),
    };
    let above = zoom.map_or_else(|| vec![BarOf::All], |path| chain(path, projection, shown));
    let whole = above.last().map_or(0, |of| value(*of));
    if whole == 0 || width == 0 {
        return Vec::new();
    }
    let group = above.iter().find_map(|of| match of {
        BarOf::Group(group) => Some(*group),
        _ => None,
    });
    let wide = |of: BarOf| Bar {
        of,
        group: group.filter(|_| of != BarOf::All),
        from: 0,
        cells: width,
        is_above: Some(&of) != above.last(),
    };
    let mut lines: Vec<Vec<Bar>> = above.iter().map(|of| vec![wide(*of)]).collect();
    let cell = |ns: u64| {
        let cells =
            (u128::from(ns) * u128::from(width) + u128::from(whole) / 2) / u128::from(whole);
        (cells as u16).min(width)
    };
    let last = lines.last().and_then(|line| line.first());
    let mut parts: Vec<Part> = last.map(|bar| Part { bar: *bar, start: 0 }).into_iter().collect();
    loop {
        let mut next = Vec::new();
        for Part { bar, start, .. } in &parts {
            let mut start = *start;
            for of in below(bar.of, &ordered) {
                let (from, till) = (cell(start), cell(start + value(of)));
                let group = match of {
                    BarOf::Group(group) => Some(group),
                    _ => bar.group,
                };
                let is_bar = from < till && is_drawn(of, projection, shown);
                let bar =
                    Bar { of, group, from, cells: till.saturating_sub(from), is_above: false };
                next.extend(is_bar.then_some(Part { bar, start }));
                start += value(of);
            }
        }
        if next.is_empty() {
            return lines;
        }
        lines.push(next.iter().map(|part| part.bar).collect());
        parts = next;
    }
}

fn is_drawn(of: BarOf, projection: &Projection, shown: &Settings) -> bool {
    match of {
        BarOf::All => true,
        BarOf::Group(group) => {
            is_shown(projection, shown, &projection.groups[group as usize].total)
        }
        BarOf::Node(node) => is_shown(projection, shown, &projection.total(node)),
    }
}

/// Returns what stands below a bar, by name.
fn below(of: BarOf, ordered: &Ordered<'_>) -> Vec<BarOf> {
    match of {
        BarOf::All => ordered.groups().into_iter().map(BarOf::Group).collect(),
        BarOf::Group(group) => {
            let group = &ordered.projection.groups[group as usize];
            ordered.roots(group).into_iter().map(BarOf::Node).collect()
        }
        BarOf::Node(node) => ordered.children(node).into_iter().map(BarOf::Node).collect(),
    }
}
