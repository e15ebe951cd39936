//! Turning trees around: callers first, or the innermost functions.

use super::AppState;
use super::pane::Pane;
use super::row_path::Path;
use super::view::View;

impl View {
    /// Shows the upright trees at once.
    fn show_upright(&mut self) {
        self.settings.inverted = false;
        self.shown.inverted = false;
        self.trends = Default::default();
        self.flame.zoom = None;
        if let Some((expanded, selected)) = self.before_inversion.take() {
            self.expanded = expanded;
            self.selected = selected;
        }
    }
}

impl AppState {
    /// Goes to the row of a node of the upright trees.
    pub(super) fn go_to(&mut self, node: u32) {
        let rows = usize::from(self.layout().rows);
        let inverted = self.view.settings.inverted;
        if inverted {
            self.view.show_upright();
        }
        self.view.set_pane(Pane::Tree, rows);
        self.view.go_to(node, rows);
        if inverted {
            // The next projection needs no inverted trees.
            self.project();
        }
    }

    /// Turns the trees around: callers first, or the innermost functions.
    pub(super) fn invert(&mut self) {
        let view = &mut self.view;
        if view.pane.is_compared() {
            return self.say("a comparison has callers first (= ends it)");
        }
        view.flame.zoom = None;
        if view.settings.inverted {
            view.settings.inverted = false;
            let (expanded, selected) = view.before_inversion.take().unwrap_or_default();
            view.open_as_before(expanded);
            view.selected = selected;
            self.say("callers first, what they call below");
        } else {
            let function = view.function_of_row();
            let root = view.selected_group().zip(function);
            let root = root.map(|(group, key)| Path {
                frames: vec![key],
                ..Path::of_group(&view.projection, group, &view.shown)
            });
            let selected = std::mem::replace(&mut view.selected, root);
            view.before_inversion = Some((view.expanded.clone(), selected));
            view.settings.inverted = true;
            view.open_again();
            self.say("innermost functions first, their callers below (v: back)");
        }
        self.project();
    }
}
