//! Moving and zooming in the flame graph.

use regex::Regex;

use super::AppState;
use super::flame::{self, Bar, BarOf, Move};
use super::pane::Pane;
use super::search::has_name;
use super::view::View;

impl View {
    pub(super) fn go_to_bar(&mut self, way: Move, height: usize) {
        self.carried.moved = true;
        self.flame.go(way, height);
        self.choose_bar();
    }

    /// Makes the selected bar's row the selected one of the tree, too.
    fn choose_bar(&mut self) {
        let bar = self.flame.selected();
        self.selected = bar.and_then(|bar| flame::path(bar, self.trees(), &self.shown));
    }

    /// Selects the bar at a cell; zooms in on the one that is selected.
    pub(super) fn press_bar(&mut self, (line, column): (usize, u16), height: usize) {
        let Some(bar) = self.flame.bar_at(line, column) else { return };
        if self.flame.selected() == Some(bar) {
            return self.zoom_in(height);
        }
        self.touch();
        self.flame.select(bar.of, height);
        self.choose_bar();
    }

    /// Makes the selected bar as wide as the screen.
    pub(super) fn zoom_in(&mut self, height: usize) {
        let bar = self.flame.selected();
        self.flame.zoom = bar.and_then(|bar| flame::path(bar, self.trees(), &self.shown));
        self.set_pane(Pane::Flame, height);
    }

    /// Makes the caller of the widest bar as wide as the screen. Returns false if everything is.
    pub(super) fn zoom_out(&mut self, height: usize) -> bool {
        let Some(mut zoom) = self.flame.zoom.take() else { return false };
        self.flame.zoom = zoom.frames.pop().map(|_| zoom);
        self.set_pane(Pane::Flame, height);
        true
    }

    /// Makes everything as wide as the screen. Returns false if it is.
    pub(super) fn zoom_out_fully(&mut self, height: usize) -> bool {
        let was = self.flame.zoom.take().is_some();
        self.set_pane(Pane::Flame, height);
        was
    }

    /// Goes to the next (1) or previous (-1) bar whose name matches. Returns false if there is
    /// none.
    pub(super) fn next_matching_bar(&mut self, search: &Regex, step: isize, height: usize) -> bool {
        let bars: Vec<Bar> = self.flame.bars().collect();
        let is_match = |at: &usize| self.is_bar_match(bars[*at], search);
        let here = self.flame.nth();
        let count = bars.len();
        let after = (1..=count).map(|by| match step > 0 {
            true => (here + by) % count,
            false => (here + count - by) % count,
        });
        let Some(at) = after.into_iter().find(is_match) else { return false };
        self.touch();
        self.flame.select(bars[at].of, height);
        self.choose_bar();
        true
    }

    /// Returns whether the name of a bar matches.
    pub fn is_bar_match(&self, bar: Bar, search: &Regex) -> bool {
        let trees = self.trees();
        match bar.of {
            BarOf::All => false,
            BarOf::Group(group) => has_name(&trees.groups[group as usize], search),
            BarOf::Node(node) => search.is_match(&trees.name(node).function),
        }
    }

    /// Opens the rows that hide the selected one: elsewhere it may be any.
    pub(super) fn open_to_selected(&mut self, height: usize) {
        let Some(path) = self.selected.clone() else { return };
        if !path.frames.is_empty() {
            self.touch();
            self.open_above(&path);
        }
        self.reshape(height);
    }
}

impl AppState {
    /// Gives the bars of the flame graph other colours.
    pub(super) fn next_bar_colors(&mut self) {
        if self.view.pane.is_compared() {
            return self.say("colours say what has changed (= ends the comparison)");
        }
        self.view.flame.by_state = !self.view.flame.by_state;
        self.say(match self.view.flame.by_state {
            true => "colours say what the threads did",
            false => "colours say whose code it is",
        });
    }

    pub(super) fn zoom_out(&mut self) {
        let rows = usize::from(self.layout().rows);
        if !self.view.zoom_out(rows) {
            self.say("everything is shown: Enter zooms in on a bar");
        }
    }
}
