//! The help page: the keys, from the one table, and how to read a row.

use std::time::Duration;

use super::keymap::{Place, TABLE};
use crate::model::facts::snapshot::Snapshot;
use crate::model::vocabulary::frame::SECOND;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    Heading(String),
    /// Keys or a word (empty on a continuation line), and the meaning.
    Entry(String, String),
    Text(String),
    Empty,
}

/// The meaning of the screen's columns and words.
const LEGEND: &[(&str, &str)] = &[
    ("BUSY%", "time of this call and everything it calls; 100 % is all time that is shown"),
    ("SELF%", "time in the call itself; of your functions also what they call elsewhere"),
    ("CPU%", "the same for CPU time: 100 % is all CPU time that is shown"),
    (
        "+/-",
        "points that its share has grown from the older half of the range to the newer; blank where that may be chance",
    ),
    ("TREND", "its time over the range that is shown, oldest on the left, by its own highest"),
    ("THR", "average number of threads in it; metric cpu counts those on a core, off the others"),
    ("STATE", "what its threads did most of that time; the share where it is below 90 %"),
    ("~", "too few observations to trust the figure yet; of a wait: several, seen at moments"),
    ("↑", "its share has grown within the range, more than by chance"),
    (
        "a > b :3 > c",
        "a calls b, the row's function at line 3, which calls c elsewhere (o: all frames)",
    ),
    ("+ 11 rows", "rows with less than 0.5 % each; the line opens"),
    ("run", "on a core"),
    ("rdy", "wants a core"),
    ("lock", "waits for a mutex, a read-write lock or a lock of the kernel"),
    ("wait", "waits for a condition, a queue, another thread"),
    ("io", "read, write, connect, fsync, poll of one descriptor"),
    ("poll", "epoll, select, accept: waits for work, hidden as idle (i shows it)"),
    ("sleep", "sleeps"),
    ("disk", "uninterruptible, mostly a disk"),
    ("stopped", "stopped by a signal or a debugger"),
];

/// Returns the cells for the keys on a screen of this width.
pub fn key_cells(width: u16) -> usize {
    if width >= 60 { 20 } else { 14 }
}

/// Returns what a place shows, in one sentence.
fn about(place: Place) -> &'static str {
    match place {
        Place::Tree | Place::Help => {
            "A row is a call on one path: where the time of a group of threads goes."
        }
        Place::Methods => "A row is a function with all its callers summed.",
        Place::Graph => "One function, its callers above it, what it calls below.",
        Place::Flame => "A bar is a call below its caller, as wide as its share of the time.",
        Place::Threads => "A row is a group of threads, or a thread.",
        Place::Timeline => "A line is a thread: what it did when.",
        Place::Waits => "A row is a lock, or one long wait.",
        Place::Source => "A line of source or an instruction of one function, with its time.",
        Place::Picker => "A row is a process; what you type filters them.",
    }
}

/// Returns the page about a place, wrapped to the screen's width. `about`: the version, and the
/// quality of the measurement.
pub fn lines(
    place: Place,
    (version, measurement): (&str, &[(String, String)]),
    width: u16,
) -> Vec<Line> {
    let mut lines =
        vec![Line::Heading(format!("sampletop {version}")), Line::Text(about(place).into())];
    // A space before the keys and one after them, one at the end of the line.
    let cells = usize::from(width).saturating_sub(key_cells(width) + 4).max(10);
    let entry = |word: String, doc: &str, lines: &mut Vec<Line>| {
        let mut word = word;
        for part in wrap(doc, cells) {
            lines.push(Line::Entry(std::mem::take(&mut word), part));
        }
    };
    let mut section = "";
    for binding in TABLE.iter().filter(|binding| binding.is_usable(place)) {
        if binding.section != section {
            section = binding.section;
            lines.push(Line::Empty);
            lines.push(Line::Heading(section.into()));
        }
        entry(binding.keys_text(), binding.doc, &mut lines);
    }
    lines.push(Line::Empty);
    lines.push(Line::Text("These are the keys here; other views have some of their own.".into()));
    if !measurement.is_empty() {
        lines.push(Line::Empty);
        lines.push(Line::Heading("This measurement".into()));
    }
    for (word, doc) in measurement {
        entry(word.clone(), doc, &mut lines);
    }
    lines.push(Line::Empty);
    lines.push(Line::Heading("Words".into()));
    for (word, doc) in LEGEND {
        entry((*word).into(), doc, &mut lines);
    }
    lines
}

/// Returns the quality of the measurement in words: its interval, losses and costs. `certain`:
/// seconds until rows of 1 % are certain.
pub fn measurement(
    snapshot: &Snapshot,
    interval: Duration,
    certain: Option<f64>,
) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let mut line = |word: &str, text: String| lines.push((word.to_owned(), text));
    if snapshot.session.is_foreign() {
        line("samples", "of another tool".into());
        return lines;
    }
    let health = &snapshot.health;
    let losses = &health.losses;
    let share = |part: u64| match losses.samples {
        0 => part.to_string(),
        all => format!("{part} ({:.1} %)", part as f64 / all as f64 * 100.0),
    };
    let asked = humantime::format_duration(interval);
    let got = (health.interval_achieved_ns + 500_000) / 1_000_000;
    let seen = health.visit_interval_ns.max(health.interval_achieved_ns) / 1_000_000;
    let late = losses.late;
    line(
        "interval",
        format!("{asked}, achieved {got} ms; threads seen every {seen} ms; {late} late"),
    );
    line("samples", format!("{}; lost {}", losses.samples, losses.dropped));
    let (truncated, torn) = (share(losses.truncated), share(losses.torn));
    let early = share(losses.unwind_failed);
    line("stacks", format!("truncated {truncated}, torn {torn}, ended early {early}"));
    let (own, all) = (health.self_cpu_percent, health.total_cpu_percent);
    line("own cost", format!("{own:.1} % of a core; {all:.1} % with names and screen"));
    let stops = losses.stops;
    line("stops", format!("{stops}, of these {} in a system call", losses.stops_blocked));
    if losses.throttled > 0 {
        line("throttled", format!("by the kernel, {} times", losses.throttled));
    }
    if health.folded_facts > 0 {
        line("folded", format!("{} facts into (other)", health.folded_facts));
    }
    let spans = snapshot.history.spans();
    if spans.dropped() > 0 {
        let since = snapshot.at.saturating_sub(spans.from()) / SECOND;
        line("in order", format!("the last {since} s; {} spans dropped early", spans.dropped()));
    }
    if let Some(seconds) = certain.filter(|seconds| *seconds >= 1.0) {
        line("certainty", format!("rows of 1 % are certain in {seconds:.0} s"));
    }
    lines
}

/// Wraps text between words.
pub(super) fn wrap(text: &str, cells: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= cells => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_and_every_state_is_there_once() {
        let lines = lines(Place::Tree, ("1.2.3", &[]), 200);
        let entries: Vec<_> = lines
            .iter()
            .filter_map(|l| if let Line::Entry(word, _) = l { Some(word.clone()) } else { None })
            .collect();
        for state in crate::model::vocabulary::state::State::ALL {
            assert_eq!(
                entries.iter().filter(|e| *e == state.word()).count(),
                1,
                "{}",
                state.word()
            );
        }
        let headings = lines.iter().filter(|l| matches!(l, Line::Heading(_))).count();
        let keys = TABLE.iter().filter(|binding| binding.is_usable(Place::Tree)).count();
        assert_eq!(entries.len(), keys + LEGEND.len());
        assert_eq!(headings, 6, "sections of the table must stand together");
    }

    #[test]
    fn every_key_is_on_the_page_of_some_place() {
        let pages: Vec<Line> =
            Place::ALL.iter().flat_map(|place| lines(*place, ("1", &[]), 200)).collect();
        for binding in TABLE {
            let entry = Line::Entry(binding.keys_text(), binding.doc.into());
            assert!(pages.contains(&entry), "{binding:?}");
        }
    }

    #[test]
    fn narrow_screens_wrap() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        for line in lines(Place::Tree, ("1.2.3", &[]), 40) {
            if let Line::Entry(_, doc) = line {
                assert!(doc.len() <= 22 || !doc.contains(' '), "{doc}");
            }
        }
    }
}
