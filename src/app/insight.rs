//! The sentence above the rows; see [`projection::insight`].

use super::{AppState, short_names};
use crate::model::projection::waits::Asked;
use crate::model::projection::{self, About, Insight, Wording};
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::qualified::simple_class;

/// Cells of a line that the sentence leaves free: its mark, and blanks at both ends.
pub const MARGIN: usize = 4;

/// Returns the sentence; `None` if there is nothing to say.
pub fn insight(app: &AppState) -> Option<Insight> {
    let view = &app.view;
    let snapshot = view.snapshot.as_ref()?;
    if app.is_behind() {
        return Some(Insight::new("reading history ...".into(), About::Target));
    }
    if app.ptrace_helps {
        let text = "running threads are not sampled (p)".into();
        return Some(Insight::new(text, About::Harm));
    }
    let answer = |asked: &Asked| {
        let found = view.waits.get(&asked.thread).filter(|answer| answer.asked == *asked);
        found.map(|answer| answer.waits_for.clone())
    };
    let interval = app.interval.as_nanos() as Ns;
    let by = view.shown.roll_up;
    let wording = match view.short_names {
        false => Wording::WHOLE,
        true => Wording {
            function: &|location| short_names::shortest(location, by).into_owned(),
            class: simple_class,
        },
    };
    let projection = &view.projection;
    let mut insight = projection::insight(snapshot, projection, interval, &answer, wording)?;
    if insight.about == About::Idle && view.projection.total.is_empty() {
        insight.text.push_str(" (i shows them)");
    }
    Some(insight)
}

/// Returns the sentence in lines of at most `cells` cells, as far as it can be parted.
pub fn lines(insight: &Insight, cells: usize) -> Vec<String> {
    let Insight { text, more, .. } = insight;
    match more {
        None => vec![text.clone()],
        Some(more) if text.chars().count() + more.chars().count() + 2 <= cells => {
            vec![format!("{text}, {more}")]
        }
        Some(more) => vec![text.clone(), more.clone()],
    }
}

/// Returns the wait that [`insight`] is about, to be asked for.
pub(super) fn asked(app: &AppState) -> Option<Asked> {
    projection::asked_for_insight(app.view.snapshot.as_ref()?, &app.view.projection)
}
