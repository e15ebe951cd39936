//! The sentences above the rows; see [`projection::findings`].

use super::{AppState, short_names};
use crate::model::facts::snapshot::Session;
use crate::model::projection::waits::Asked;
use crate::model::projection::{self, About, Finding, Kind, Wording};
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::qualified::simple_class;

/// Cells of a line that the sentence leaves free: its mark, and blanks at both ends.
pub const MARGIN: usize = 4;

/// Returns the sentences, the most important first. `clock` formats moments.
pub fn findings(app: &AppState, clock: &dyn Fn(&Session, Ns) -> String) -> Vec<Finding> {
    let view = &app.view;
    let Some(snapshot) = view.snapshot.as_ref() else { return Vec::new() };
    if app.is_behind() {
        return vec![Finding::new(Kind::Measurement, "reading history ...".into())];
    }
    if app.ptrace_helps {
        return vec![Finding::harm("running threads are not sampled (p)".into())];
    }
    let answer = |asked: &Asked| {
        let found = view.waits.get(&asked.thread).filter(|answer| answer.asked == *asked);
        found.map(|answer| answer.waits_for.clone())
    };
    let interval = app.interval.as_nanos() as Ns;
    let by = view.shown.roll_up;
    let wording = match view.short_names {
        false => Wording { clock, ..Wording::WHOLE },
        true => Wording {
            function: &|location| short_names::shortest(location, by).into_owned(),
            class: simple_class,
            clock,
        },
    };
    let mut found = projection::findings(snapshot, &view.projection, interval, &answer, wording);
    for finding in &mut found {
        if finding.about == About::Idle && view.projection.total.is_empty() {
            finding.text.push_str(" (i shows them)");
        }
    }
    found
}

/// Returns the rows that the sentences are about.
pub(super) fn nodes(app: &AppState) -> Vec<u32> {
    let untold = |_: &Session, _: Ns| String::new();
    findings(app, &untold).iter().filter_map(|finding| finding.node).collect()
}

/// Left out where a sentence is too long for its line.
const OF_BUSY_TIME: &str = " of busy time";

/// A line above the rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    pub text: String,
    pub about: About,
    pub kind: Kind,
    /// It begins a sentence.
    pub is_first: bool,
}

/// Returns the sentences in two lines of at most `cells` cells, as far as they can be parted: the
/// first one, and its second part or the next one.
pub fn lines(findings: &[Finding], cells: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for Finding { kind, text, more, about, .. } in findings {
        let line = |text: String, is_first| Line { text, about: *about, kind: *kind, is_first };
        let short = text.replace(OF_BUSY_TIME, "");
        let is_long = text.chars().count() > cells;
        let text = if is_long { &short } else { text };
        // Where threads wait is in the rows, too: another sentence says more.
        let is_place = *kind == Kind::Wait && findings.len() > 1;
        match more {
            None => lines.push(line(text.clone(), true)),
            Some(more) => {
                let room = cells.saturating_sub(text.chars().count() + 2);
                let rest = more.text(room);
                if rest.chars().count() <= room {
                    lines.push(line(format!("{text}, {rest}"), true));
                } else {
                    lines.push(line(text.clone(), true));
                    if is_place {
                        continue;
                    }
                    lines.push(line(more.text(cells), false));
                }
            }
        }
    }
    lines.truncate(2);
    lines
}

/// Returns the waits that the sentences are about, to be asked for.
pub(super) fn asked(app: &AppState) -> Vec<Asked> {
    let Some(snapshot) = app.view.snapshot.as_ref() else { return Vec::new() };
    projection::asked_for_findings(snapshot, &app.view.projection)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::projection::More;

    fn finding(kind: Kind, text: &str, place: &str) -> Finding {
        let more = More { before: "in".into(), functions: vec![place.into()], after: "".into() };
        Finding { more: Some(more), ..Finding::new(kind, text.into()) }
    }

    fn texts(findings: &[Finding], cells: usize) -> Vec<String> {
        lines(findings, cells).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn a_sentence_that_does_not_fit_is_parted() {
        let wait = finding(Kind::Wait, "3 threads wait: 91 % of busy time, up to 2 s", "ask");
        let whole = "3 threads wait: 91 % of busy time, up to 2 s, in ask";
        assert_eq!(texts(std::slice::from_ref(&wait), whole.len()), [whole]);
        let parted = ["3 threads wait: 91 % of busy time, up to 2 s", "in ask"];
        assert_eq!(texts(std::slice::from_ref(&wait), whole.len() - 1), parted);
        let short = ["3 threads wait: 91 %, up to 2 s", "in ask"];
        assert_eq!(texts(&[wait], "3 threads wait: 91 %, up to 2 s, in ask".len() - 1), short);
    }

    #[test]
    fn a_place_gives_way_to_another_sentence_and_a_holder_does_not() {
        let hot = Finding::new(Kind::Function, "90 % of the CPU time is in find".into());
        for (kind, second) in
            [(Kind::Wait, "90 % of the CPU time is in find"), (Kind::Lock, "in ask")]
        {
            let first = finding(kind, "49 threads wait: 98 % of busy time", "ask");
            let texts = texts(&[first, hot.clone()], 36);
            assert_eq!(texts, ["49 threads wait: 98 % of busy time", second]);
        }
    }
}
