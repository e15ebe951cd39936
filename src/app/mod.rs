//! What the user did -> what is shown and what shall be done. Pure: no I/O, no clock, no terminal.

pub mod event;
pub mod key;

pub use event::{AppConfig, Effect, Input, ProcessRow, Severity};

/// Everything the live view knows.
pub struct AppState {
    config: AppConfig,
}

impl AppState {
    pub fn new(config: AppConfig) -> AppState {
        AppState { config }
    }

    /// Takes in what happened; returns what the session shall do, in order.
    pub fn update(&mut self, input: Input) -> Vec<Effect> {
        match input {
            Input::Key(key::Key::Char('q')) => vec![Effect::Quit { end_child: false }],
            _ => Vec::new(),
        }
    }

    pub fn config(&self) -> &AppConfig {
        &self.config
    }
}
