//! The help page: the keys, from the one table, and how a row is read.

use super::keymap::TABLE;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    Heading(String),
    /// Keys or a word, and what it means.
    Entry(String, &'static str),
    Text(&'static str),
    Empty,
}

/// What the columns and words of the screen mean.
const LEGEND: &[(&str, &str)] = &[
    ("TOTAL%", "time of this call and everything it calls; 100 % is all that is shown"),
    ("SELF%", "time in the call itself"),
    ("THR", "how many threads were in it, on average"),
    ("CPU", "how many cores it used, on average"),
    ("STATE", "what its threads did most of the time, and how much of it"),
    ("~", "too few observations to trust the figure yet"),
    ("...41", "so many calls above it are folded into this line (o unfolds)"),
    ("run", "on a core"),
    ("rdy", "wants a core"),
    ("lock", "waits for a mutex or a read-write lock"),
    ("wait", "waits for a condition, a queue, another thread"),
    ("io", "read, write, connect, fsync, poll of one descriptor"),
    ("poll", "epoll, select, accept: waits for work, hidden as idle (i shows it)"),
    ("sleep", "sleeps"),
    ("disk", "uninterruptible, mostly a disk"),
    ("stopped", "stopped by a signal or a debugger"),
];

/// The whole page; the same for every screen size.
pub fn lines(version: &str) -> Vec<Line> {
    let mut lines = vec![
        Line::Heading(format!("sampletop {version}")),
        Line::Text("A row is a call on one path: where the time of a group of threads goes."),
    ];
    let mut section = "";
    for binding in TABLE {
        if binding.section != section {
            section = binding.section;
            lines.push(Line::Empty);
            lines.push(Line::Heading(section.into()));
        }
        lines.push(Line::Entry(binding.keys_text(), binding.doc));
    }
    lines.push(Line::Empty);
    lines.push(Line::Heading("Words".into()));
    lines.extend(LEGEND.iter().map(|(word, doc)| Line::Entry((*word).into(), doc)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_and_every_state_is_there_once() {
        let lines = lines("1.2.3");
        let entries: Vec<_> =
            lines.iter().filter_map(|l| if let Line::Entry(word, _) = l { Some(word.clone()) } else { None }).collect();
        for state in crate::model::state::State::ALL {
            assert_eq!(entries.iter().filter(|e| *e == state.word()).count(), 1, "{}", state.word());
        }
        let headings = lines.iter().filter(|l| matches!(l, Line::Heading(_))).count();
        assert_eq!(entries.len(), TABLE.len() + LEGEND.len());
        assert_eq!(headings, 6, "sections of the table must stand together");
    }
}
