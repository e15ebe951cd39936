//! Draws. The only module that knows ratatui.

pub mod escape;
pub mod input;
pub mod pacer;
pub mod terminal;

use ratatui::Frame;

use crate::app::AppState;

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, app: &AppState) {
    let _ = (frame, app);
}
