//! The sentence above the rows; see [`projection::insight`].

use super::AppState;
use crate::model::projection::waits::Asked;
use crate::model::projection::{self, About, Insight};
use crate::model::vocabulary::frame::Ns;

/// Returns the sentence; `None` if there is nothing to say.
pub fn insight(app: &AppState) -> Option<Insight> {
    let view = &app.view;
    let snapshot = view.snapshot.as_ref()?;
    if app.is_behind() {
        return Some(Insight { text: "reading history ...".into(), about: About::Target });
    }
    if app.ptrace_helps {
        let text = "running threads are not sampled (p)".into();
        return Some(Insight { text, about: About::Harm });
    }
    let answer = |asked: &Asked| {
        let found = view.waits.get(&asked.thread).filter(|answer| answer.asked == *asked);
        found.map(|answer| answer.waits_for.clone())
    };
    let interval = app.interval.as_nanos() as Ns;
    let mut insight = projection::insight(snapshot, &view.projection, interval, &answer)?;
    if insight.about == About::Idle && view.projection.total.is_empty() {
        insight.text.push_str(" (i shows them)");
    }
    Some(insight)
}

/// Returns the wait that [`insight`] is about, to be asked for.
pub(super) fn asked(app: &AppState) -> Option<Asked> {
    projection::asked_for_insight(app.view.snapshot.as_ref()?, &app.view.projection)
}
