//! Draws. The only module that knows ratatui.
