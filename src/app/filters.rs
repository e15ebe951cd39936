//! The filter dialog: ten fields, each can be switched off without losing its text.

use std::sync::Arc;

use regex::Regex;

use super::key::Key;
use super::line_edit::{LineEdit, Outcome};
use crate::model::projection::settings::{Filter, Filters, NativeFrames, pattern};

/// Maximum names that a text is completed by.
const COMPLETED: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    Interesting,
    Focus,
    Ignore,
    Hide,
    /// A switch, without a text.
    NoKernel,
    /// A choice of words, on unless it is the usual one.
    Native,
    Threads,
    /// A switch as well.
    SkipDaemon,
    /// A switch as well.
    Gil,
    MinPercent,
}

impl Field {
    pub const ALL: [Field; 10] = [
        Field::Interesting,
        Field::Focus,
        Field::Ignore,
        Field::Hide,
        Field::NoKernel,
        Field::Native,
        Field::Threads,
        Field::SkipDaemon,
        Field::Gil,
        Field::MinPercent,
    ];

    /// Returns whether the field has no text that is typed.
    pub fn is_switch(self) -> bool {
        matches!(self, Field::NoKernel | Field::Native | Field::SkipDaemon | Field::Gil)
    }

    pub fn label(self) -> &'static str {
        match self {
            Field::Interesting => "interesting",
            Field::Focus => "focus",
            Field::Ignore => "ignore",
            Field::Hide => "hide",
            Field::NoKernel => "no kernel",
            Field::Native => "native",
            Field::Threads => "threads",
            Field::SkipDaemon => "skip daemon",
            Field::Gil => "gil",
            Field::MinPercent => "min percent",
        }
    }

    pub fn doc(self) -> &'static str {
        match self {
            Field::Interesting => {
                "prefixes, with commas: cut stacks below the innermost frame that begins so"
            }
            Field::Focus => "only stacks with a frame that matches",
            Field::Ignore => "not the stacks with a frame that matches",
            Field::Hide => "take matching frames out; their time goes to their caller",
            Field::NoKernel => "take the kernel's frames out; their time goes to their caller",
            Field::Native => {
                "native frames of Python stacks: without the interpreter's (auto), full, none"
            }
            Field::Threads => "only threads whose name or group matches",
            Field::SkipDaemon => "not Java's daemon threads, and not the virtual machine's own",
            Field::Gil => "only what runs or waits with Python's global lock (GIL) held",
            Field::MinPercent => "leave out rows below this share",
        }
    }

    /// Returns the field's text, and whether it is on.
    pub fn read(self, filters: &Filters) -> (String, bool) {
        let regex = |f: &Filter<Regex>| {
            (f.value.as_ref().map(|r| r.as_str().to_string()).unwrap_or_default(), f.on)
        };
        match self {
            Field::Interesting => {
                let f = &filters.interesting;
                (f.value.as_ref().map(|v| v.join(",")).unwrap_or_default(), f.on)
            }
            Field::Focus => regex(&filters.focus),
            Field::Ignore => regex(&filters.ignore),
            Field::Hide => regex(&filters.hide),
            Field::NoKernel => (String::new(), filters.no_kernel),
            Field::Native => {
                (filters.native.word().to_owned(), filters.native != NativeFrames::Auto)
            }
            Field::SkipDaemon => (String::new(), filters.skip_daemon),
            Field::Gil => (String::new(), filters.gil),
            Field::Threads => regex(&filters.threads),
            Field::MinPercent => (
                filters.min_percent.value.map(|v| v.to_string()).unwrap_or_default(),
                filters.min_percent.on,
            ),
        }
    }

    /// Sets a new text and switches the field on; an empty text removes the filter.
    fn write(self, filters: &mut Filters, text: &str) -> Result<(), String> {
        let regex = |f: &mut Filter<Regex>| {
            *f = if text.is_empty() { Filter::default() } else { Filter::set(pattern(text)?) };
            Ok(())
        };
        match self {
            Field::Interesting => {
                let prefixes: Vec<String> = text
                    .split(',')
                    .map(str::trim)
                    .filter(|p| !p.is_empty())
                    .map(String::from)
                    .collect();
                filters.interesting =
                    if prefixes.is_empty() { Filter::default() } else { Filter::set(prefixes) };
                Ok(())
            }
            Field::Focus => regex(&mut filters.focus),
            Field::Ignore => regex(&mut filters.ignore),
            Field::Hide => regex(&mut filters.hide),
            Field::NoKernel | Field::Native | Field::SkipDaemon | Field::Gil => Ok(()),
            Field::Threads => regex(&mut filters.threads),
            Field::MinPercent => {
                filters.min_percent = match text.trim().trim_end_matches('%') {
                    "" => Filter::default(),
                    number => match number.parse::<f64>() {
                        Ok(percent) if (0.0..=100.0).contains(&percent) => Filter::set(percent),
                        _ => return Err(format!("`{text}` is no number from 0 to 100")),
                    },
                };
                Ok(())
            }
        }
    }

    fn toggle(self, filters: &mut Filters) {
        fn flip<T>(filter: &mut Filter<T>) {
            filter.on = filter.value.is_some() && !filter.on;
        }
        match self {
            Field::Interesting => flip(&mut filters.interesting),
            Field::Focus => flip(&mut filters.focus),
            Field::Ignore => flip(&mut filters.ignore),
            Field::Hide => flip(&mut filters.hide),
            Field::NoKernel => filters.no_kernel = !filters.no_kernel,
            Field::Native => {
                filters.native = match filters.native {
                    NativeFrames::Auto => NativeFrames::Full,
                    NativeFrames::Full => NativeFrames::None,
                    NativeFrames::None => NativeFrames::Auto,
                }
            }
            Field::SkipDaemon => filters.skip_daemon = !filters.skip_daemon,
            Field::Gil => filters.gil = !filters.gil,
            Field::Threads => flip(&mut filters.threads),
            Field::MinPercent => flip(&mut filters.min_percent),
        }
    }
}

/// The open dialog; the filters themselves stay in the settings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dialog {
    /// Index into [`Field::ALL`].
    pub at: usize,
    /// The field's text while it is edited.
    pub edit: Option<LineEdit>,
    pub error: Option<String>,
    completion: Option<Completion>,
}

/// Names that contain what was typed, and the one that stands in its place.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Completion {
    /// The text before the part that is completed.
    before: String,
    names: Vec<String>,
    at: usize,
}

impl Dialog {
    pub fn field(&self) -> Field {
        Field::ALL[self.at]
    }

    /// Returns the dialog's keys, for its last line.
    pub fn help(&self) -> &'static str {
        match self.edit {
            Some(_) if self.field() == Field::MinPercent => "Enter take   Esc cancel",
            Some(_) => "Enter take   Tab complete   Esc cancel",
            None if self.field() == Field::Native => "Space next   Esc close",
            None if self.field().is_switch() => "Space on/off   Esc close",
            None => "Enter edit   Space on/off   Esc close",
        }
    }

    /// Returns what the field does, or which name of how many was completed.
    pub fn hint(&self) -> String {
        match &self.completion {
            Some(Completion { names, at, .. }) => {
                format!("{} of {} names that match (Tab: the next)", at + 1, names.len())
            }
            None => self.field().doc().to_owned(),
        }
    }

    /// Completes the last part of the text that is edited by the first of these names that contains
    /// it, whatever the case; again: by the next one. `names`: the likeliest first.
    pub fn complete(&mut self, names: &[Arc<str>]) {
        self.error = None;
        let field = self.field();
        let Some(edit) = &mut self.edit else { return };
        let completion = match self.completion.take() {
            Some(Completion { before, names, at }) => {
                Completion { at: (at + 1) % names.len(), before, names }
            }
            None => {
                // Prefixes are separated by commas, alternatives of a pattern by bars.
                let separator = if field == Field::Interesting { ',' } else { '|' };
                let start = edit.text().rfind(separator).map_or(0, |at| at + 1);
                let (before, typed) = edit.text().split_at(start);
                let typed = typed.trim_start_matches('^').to_lowercase();
                let is_meant = |name: &&Arc<str>| name.to_lowercase().contains(&typed);
                let found = names.iter().filter(is_meant).take(COMPLETED);
                let names: Vec<String> = found.map(|name| name.to_string()).collect();
                if names.is_empty() {
                    self.error = Some(format!("no name contains `{typed}`"));
                    return;
                }
                Completion { before: before.to_owned(), names, at: 0 }
            }
        };
        let name = &completion.names[completion.at];
        let text = match field {
            Field::Interesting => format!("{}{name}", completion.before),
            _ => format!("{}^{}$", completion.before, regex::escape(name)),
        };
        *edit = LineEdit::new(text);
        self.completion = Some(completion);
    }

    pub fn key(&mut self, key: Key, filters: &mut Filters) -> Outcome {
        self.error = None;
        self.completion = None;
        if let Some(edit) = &mut self.edit {
            match key {
                Key::Enter => match Field::ALL[self.at].write(filters, edit.text()) {
                    Ok(()) => {
                        self.edit = None;
                        return Outcome::Changed;
                    }
                    Err(error) => self.error = Some(error),
                },
                Key::Esc | Key::Ctrl('c') => self.edit = None,
                key => {
                    edit.key(key);
                }
            }
            return Outcome::Stay;
        }
        match key {
            Key::Up | Key::Char('k') | Key::BackTab => self.at = self.at.saturating_sub(1),
            Key::Down | Key::Char('j') | Key::Tab => {
                self.at = (self.at + 1).min(Field::ALL.len() - 1)
            }
            Key::Home => self.at = 0,
            Key::End => self.at = Field::ALL.len() - 1,
            Key::Enter | Key::Right | Key::Char(' ') if self.field().is_switch() => {
                self.field().toggle(filters);
                return Outcome::Changed;
            }
            Key::Enter | Key::Right => {
                self.edit = Some(LineEdit::new(self.field().read(filters).0))
            }
            Key::Char(' ') => {
                if self.field().read(filters).0.is_empty() {
                    self.edit = Some(LineEdit::default());
                } else {
                    self.field().toggle(filters);
                    return Outcome::Changed;
                }
            }
            Key::Esc | Key::Ctrl('c') | Key::Char('f' | 'q') => return Outcome::Close,
            key => self.error = Some(format!("no such key here: {key}")),
        }
        Outcome::Stay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(dialog: &mut Dialog, filters: &mut Filters, keys: &str) -> Outcome {
        let mut last = Outcome::Stay;
        for c in keys.chars() {
            let key = match c {
                '\n' => Key::Enter,
                '\u{1b}' => Key::Esc,
                c => Key::Char(c),
            };
            last = dialog.key(key, filters);
        }
        last
    }

    #[test]
    fn a_filter_is_set_switched_off_and_on_again() {
        let (mut dialog, mut filters) = (Dialog::default(), Filters::default());
        assert_eq!(press(&mut dialog, &mut filters, "j\nlock|park\n"), Outcome::Changed);
        assert_eq!(filters.focus.active().map(Regex::as_str), Some("lock|park"));
        assert_eq!(press(&mut dialog, &mut filters, " "), Outcome::Changed);
        assert!(filters.focus.active().is_none());
        assert_eq!(Field::Focus.read(&filters), ("lock|park".into(), false));
        press(&mut dialog, &mut filters, " ");
        assert!(filters.focus.active().is_some());
        assert_eq!(press(&mut dialog, &mut filters, "\u{1b}"), Outcome::Close);
    }

    #[test]
    fn switches_have_no_text() {
        for (at, nth) in [(4, 0), (7, 1), (8, 2)] {
            let (mut dialog, mut filters) =
                (Dialog { at, ..Dialog::default() }, Filters::default());
            for (keys, on) in [(" ", true), ("\n", false), ("\n", true), (" ", false)] {
                assert_eq!(press(&mut dialog, &mut filters, keys), Outcome::Changed);
                let switches = [filters.no_kernel, filters.skip_daemon, filters.gil];
                assert_eq!(switches, [0, 1, 2].map(|other| on && other == nth), "{keys:?}");
                assert_eq!(Field::ALL[at].read(&filters), (String::new(), on), "{keys:?}");
                assert!(dialog.edit.is_none());
            }
        }
    }

    #[test]
    fn native_frames_go_through_their_words() {
        let (mut dialog, mut filters) = (Dialog { at: 5, ..Dialog::default() }, Filters::default());
        assert_eq!(Field::Native.read(&filters), ("auto".into(), false));
        for (word, on) in [("full", true), ("none", true), ("auto", false)] {
            assert_eq!(press(&mut dialog, &mut filters, " "), Outcome::Changed);
            assert_eq!(Field::Native.read(&filters), (word.into(), on));
        }
        assert!(dialog.edit.is_none());
    }

    #[test]
    fn a_wrong_text_is_refused_in_place_and_changes_nothing() {
        let (mut dialog, mut filters) = (Dialog::default(), Filters::default());
        filters.focus = Filter::set(Regex::new("old").expect("valid"));
        dialog.at = 1;
        assert_eq!(press(&mut dialog, &mut filters, "\n(\n"), Outcome::Stay);
        assert!(dialog.error.as_ref().is_some_and(|e| e.contains("old(")), "{:?}", dialog.error);
        assert_eq!(dialog.edit.as_ref().map(LineEdit::text), Some("old("));
        assert_eq!(filters.focus.active().map(Regex::as_str), Some("old"));
        assert_eq!(press(&mut dialog, &mut filters, "\u{1b}"), Outcome::Stay);
        assert_eq!(dialog, Dialog { at: 1, ..Dialog::default() });
    }

    #[test]
    fn names_that_were_seen_complete_the_last_part() {
        let names: Vec<Arc<str>> =
            ["app::Cart<T>::add", "app::Order", "lib::order"].map(Arc::from).into();
        let (mut dialog, mut filters) = (Dialog { at: 1, ..Dialog::default() }, Filters::default());
        press(&mut dialog, &mut filters, "\nlock|ORD");
        let text = |dialog: &Dialog| dialog.edit.as_ref().expect("it is edited").text().to_owned();
        dialog.complete(&names);
        assert_eq!(text(&dialog), "lock|^app::Order$");
        assert!(dialog.hint().contains("1 of 2 names"), "{}", dialog.hint());
        dialog.complete(&names);
        assert_eq!(text(&dialog), "lock|^lib::order$");
        dialog.complete(&names);
        assert_eq!(text(&dialog), "lock|^app::Order$", "the first again");
        // What is completed may be typed on; the pattern matches the name alone.
        press(&mut dialog, &mut filters, "|cart");
        dialog.complete(&names);
        press(&mut dialog, &mut filters, "\n");
        let focus = filters.focus.active().expect("a filter");
        assert!(focus.is_match("app::Cart<T>::add") && !focus.is_match("app::Cart<T>::addAll"));
        // Prefixes are no patterns.
        dialog.at = 0;
        press(&mut dialog, &mut filters, "\nx,cart");
        dialog.complete(&names);
        assert_eq!(text(&dialog), "x,app::Cart<T>::add");
        press(&mut dialog, &mut filters, "!!");
        dialog.complete(&names);
        assert!(dialog.error.as_ref().is_some_and(|error| error.contains("no name contains")));
    }

    #[test]
    fn prefixes_and_percent() {
        let (mut dialog, mut filters) = (Dialog::default(), Filters::default());
        press(&mut dialog, &mut filters, "\napp::, lib\n");
        assert_eq!(
            filters.interesting.active(),
            Some(&vec!["app::".to_string(), "lib".to_string()])
        );
        dialog.at = 9;
        press(&mut dialog, &mut filters, "\n1.5%\n");
        assert_eq!(filters.min_percent.active(), Some(&1.5));
        press(&mut dialog, &mut filters, "\nx\n");
        assert!(dialog.error.is_some() && filters.min_percent.active() == Some(&1.5));
    }
}
