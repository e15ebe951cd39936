//! What the mouse does.

use super::AppState;
use super::event::Effect;
use super::key::{Mouse, MouseKind};
use super::list::Step;

/// Rows that one step of the wheel scrolls.
const WHEEL: usize = 3;

impl AppState {
    pub(super) fn mouse(&mut self, mouse: Mouse) -> Vec<Effect> {
        match mouse.kind {
            MouseKind::WheelUp => self.step(Step::Up(WHEEL)),
            MouseKind::WheelDown => self.step(Step::Down(WHEEL)),
            MouseKind::Press => self.press(mouse),
        }
        Vec::new()
    }

    /// Handles a mouse press: selects the row; expands or collapses it if it is selected already.
    /// On a column's title: sorts by it, or the other way round.
    fn press(&mut self, mouse: Mouse) {
        let layout = self.layout();
        if self.overlay.is_some() {
            return;
        }
        if let Some(picker) = &mut self.picker {
            let row = usize::from(mouse.row).wrapping_sub(2).wrapping_add(picker.list.top);
            if mouse.row >= 2 && row < picker.rows.len() {
                picker.press(row);
            }
            return;
        }
        if layout.history() == Some(mouse.row) {
            return self.press_history(mouse.column);
        }
        if layout.titles > 0 && mouse.row == layout.header {
            return self.sort_by_title(mouse.column);
        }
        let line = mouse.row.wrapping_sub(layout.rows_from());
        if mouse.row >= layout.rows_from() && line < layout.rows {
            let cell = (usize::from(line), mouse.column);
            self.view.press(cell, usize::from(layout.rows));
        }
    }
}
