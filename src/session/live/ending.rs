//! What outlives a session: its profile, and the choices that are being saved.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::Message;
use super::outside::Host;
use crate::app::AppState;
use crate::config::{Config, TargetSpec};
use crate::model::facts::snapshot::Snapshot;

/// Maximum time that the end waits for a configuration file that is being written.
const SAVED_WITHIN: Duration = Duration::from_secs(1);
/// What is said of a session that is kept.
pub const KEPT: &str = "the session is kept until the next one: sampletop open";

/// Says why a session is not kept.
pub fn not_kept(sentence: &str) -> String {
    format!("the session is not kept: {sentence}")
}

/// Keeps the profile of a session. `None`: there is nothing to keep, or nothing is written.
pub fn keep(
    host: &mut dyn Host,
    app: &AppState,
    config: &Config,
    last: Option<&Arc<Snapshot>>,
) -> Option<Result<(), String>> {
    let snapshot = last.filter(|snapshot| snapshot.health.ticks > 0)?;
    let is_demo = matches!(config.target, Some(TargetSpec::Demo { .. }));
    let may_write = !config.output.secure && !is_demo;
    may_write.then(|| host.keep(&app.with_looked_up(snapshot), app.settings()))
}

/// Waits for configuration files that are being written. Returns a sentence if one cannot be.
pub fn await_saved(
    mut saving: usize,
    later: VecDeque<Message>,
    messages: &Receiver<Message>,
) -> Option<String> {
    let deadline = Instant::now() + SAVED_WITHIN;
    let mut later = later.into_iter();
    while saving > 0 {
        let left = deadline.saturating_duration_since(Instant::now());
        match later.next().map_or_else(|| messages.recv_timeout(left), Ok) {
            Ok(Message::Saved(Ok(_))) => saving -= 1,
            Ok(Message::Saved(Err(sentence))) => return Some(sentence),
            Ok(_) => {}
            Err(_) => return Some("the configuration was not saved within 1 s".into()),
        }
    }
    None
}
