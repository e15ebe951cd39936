//! The dialog of thread-name rules: edits the list, and shows which names merge.

use std::collections::{BTreeMap, BTreeSet};

use super::key::Key;
use super::line_edit::{LineEdit, Outcome};
use crate::model::vocabulary::thread_name_rules::{Rename, UNNAMED, by_rules};

/// The rule that is proposed where there is none.
const EXAMPLE: &str = "s/REGEX/TEXT/";

/// The open dialog; the rules themselves stay in the settings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RulesDialog {
    /// Index of the selected rule; the number of rules: the line for a new one.
    pub at: usize,
    /// The rule's text while it is edited.
    pub edit: Option<LineEdit>,
    pub error: Option<String>,
}

impl RulesDialog {
    /// Returns the dialog's keys, for its last line.
    pub fn help(&self, rules: usize) -> &'static str {
        match self.edit {
            Some(_) => "Enter take   Esc cancel",
            None if self.at < rules => "Enter edit   Del remove   + - move   Esc close",
            None => "Enter add a rule   Esc close   (W saves the rules)",
        }
    }

    pub fn key(&mut self, key: Key, rules: &mut Vec<Rename>) -> Outcome {
        self.error = None;
        if let Some(edit) = &mut self.edit {
            match key {
                Key::Enter => match Rename::parse(edit.text()) {
                    Ok(rule) => {
                        match rules.get_mut(self.at) {
                            Some(before) => *before = rule,
                            None => rules.push(rule),
                        }
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
            Key::Down | Key::Char('j') | Key::Tab => self.at = (self.at + 1).min(rules.len()),
            Key::Home | Key::Char('g') => self.at = 0,
            Key::End | Key::Char('G') => self.at = rules.len(),
            Key::Enter | Key::Right | Key::Char(' ') => {
                self.edit = Some(match rules.get(self.at) {
                    Some(rule) => LineEdit::new(rule.typed()),
                    None => LineEdit::proposing(EXAMPLE),
                });
            }
            // The beginning of a rule.
            Key::Char('s') if self.at == rules.len() => {
                let mut edit = LineEdit::proposing(EXAMPLE);
                edit.key(key);
                self.edit = Some(edit);
            }
            Key::Delete | Key::Backspace if self.at < rules.len() => {
                rules.remove(self.at);
                return Outcome::Changed;
            }
            Key::Char('-') if (1..rules.len()).contains(&self.at) => {
                rules.swap(self.at, self.at - 1);
                self.at -= 1;
                return Outcome::Changed;
            }
            Key::Char('+') if self.at + 1 < rules.len() => {
                rules.swap(self.at, self.at + 1);
                self.at += 1;
                return Outcome::Changed;
            }
            Key::Esc | Key::Ctrl('c') | Key::Char('T' | 'q') => return Outcome::Close,
            key => self.error = Some(format!("no such key here: {key}")),
        }
        Outcome::Stay
    }

    /// Returns the rules as they are with the one that is edited; as they are while that is wrong.
    pub fn proposed(&self, rules: &[Rename]) -> Vec<Rename> {
        let mut rules = rules.to_vec();
        let edited = self.edit.as_ref().and_then(|edit| Rename::parse(edit.text()).ok());
        if let Some(rule) = edited {
            match rules.get_mut(self.at) {
                Some(before) => *before = rule,
                None => rules.push(rule),
            }
        }
        rules
    }
}

/// Returns whether the rule at this place matches none of these names of threads, as the rules
/// before it leave them.
pub fn matches_nothing<'a>(
    mut names: impl Iterator<Item = &'a str>,
    rules: &[Rename],
    at: usize,
) -> bool {
    let Some(rule) = rules.get(at) else { return false };
    !names.any(|name| rule.pattern.is_match(&by_rules(name, &rules[..at])))
}

/// What the rules make of some names: one group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Merged {
    pub name: String,
    /// The names of its threads, sorted, each once.
    pub of: Vec<String>,
    /// Number of threads.
    pub threads: usize,
    pub what: NameChange,
}

/// How a group differs from what the default rules make.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NameChange {
    /// The rules leave no name.
    Unnamed,
    /// The rules give some of its threads a name that others have without them.
    Collides,
    /// The rules merge this number of groups of the default rules.
    Merges(usize),
    /// It has another name.
    Renamed,
    Unchanged,
}

impl NameChange {
    pub fn words(self) -> String {
        match self {
            NameChange::Unnamed => "no name is left".into(),
            NameChange::Collides => "collides with a group of this name".into(),
            NameChange::Merges(groups) => format!("merges {groups} groups"),
            NameChange::Renamed => "renamed".into(),
            NameChange::Unchanged => String::new(),
        }
    }
}

/// Returns the groups of these names of threads: first those that the rules change, then by number
/// of threads.
pub fn preview<'a>(names: impl Iterator<Item = &'a str>, rules: &[Rename]) -> Vec<Merged> {
    /// Names and groups of the default rules, and the number of threads.
    type Found<'a> = (BTreeSet<&'a str>, BTreeSet<String>, usize);
    let mut groups: BTreeMap<String, Found<'a>> = BTreeMap::new();
    for name in names {
        let (of, before, threads) = groups.entry(by_rules(name, rules)).or_default();
        of.insert(name);
        before.insert(by_rules(name, &[]));
        *threads += 1;
    }
    let merged = groups.into_iter().map(|(name, (of, before, threads))| {
        let what = match (before.len(), before.contains(&name)) {
            _ if name == UNNAMED && !before.contains(UNNAMED) => NameChange::Unnamed,
            (1, true) => NameChange::Unchanged,
            (1, false) => NameChange::Renamed,
            (_, true) => NameChange::Collides,
            (groups, false) => NameChange::Merges(groups),
        };
        Merged { name, of: of.into_iter().map(str::to_owned).collect(), threads, what }
    });
    let mut merged: Vec<Merged> = merged.collect();
    merged.sort_by_key(|group| {
        (group.what == NameChange::Unchanged, std::cmp::Reverse(group.threads))
    });
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<Rename> {
        texts.iter().map(|text| Rename::parse(text).expect("a rule")).collect()
    }

    const NAMES: [&str; 7] = ["http-1", "http-2", "nio-1", "kafka-1", "kafka-2", "kafka-3", "main"];

    #[test]
    fn what_merges_and_what_collides_is_told() {
        let words = |texts: &[&str]| -> Vec<String> {
            let groups = preview(NAMES.into_iter(), &rules(texts));
            groups.iter().map(|g| format!("{} {} {:?}", g.name, g.threads, g.what)).collect()
        };
        assert_eq!(
            words(&[]),
            ["kafka- 3 Unchanged", "http- 2 Unchanged", "main 1 Unchanged", "nio- 1 Unchanged"]
        );
        assert_eq!(words(&["s/^(http|nio)-$/web/"])[0], "web 3 Merges(2)");
        assert_eq!(words(&["s/^nio-$/http-/"])[0], "http- 3 Collides");
        assert_eq!(words(&["s/^kafka-$/queue/"])[0], "queue 3 Renamed");
        assert_eq!(words(&["s/.*//"])[0], "(unnamed) 7 Unnamed");
    }

    #[test]
    fn rules_are_added_edited_moved_and_removed() {
        let (mut dialog, mut list) = (RulesDialog::default(), Vec::new());
        let press = |dialog: &mut RulesDialog, list: &mut Vec<Rename>, keys: &str| {
            let mut last = Outcome::Stay;
            for c in keys.chars() {
                let key = match c {
                    '\n' => Key::Enter,
                    '\u{1b}' => Key::Esc,
                    c => Key::Char(c),
                };
                last = dialog.key(key, list);
            }
            last
        };
        // A wrong rule is refused in place.
        assert_eq!(press(&mut dialog, &mut list, "\ns/(/x/\n"), Outcome::Stay);
        assert!(dialog.error.is_some() && list.is_empty());
        press(&mut dialog, &mut list, "\u{1b}");
        assert_eq!(press(&mut dialog, &mut list, "\ns/a/b/\n"), Outcome::Changed);
        press(&mut dialog, &mut list, "j\ns/b/c/\n");
        let typed = |list: &[Rename]| list.iter().map(Rename::typed).collect::<Vec<_>>();
        assert_eq!(typed(&list), ["s/a/b/", "s/b/c/"]);
        assert_eq!(press(&mut dialog, &mut list, "-"), Outcome::Changed);
        assert_eq!(typed(&list), ["s/b/c/", "s/a/b/"]);
        assert_eq!(dialog.at, 0, "the selection goes with the rule");
        press(&mut dialog, &mut list, "+");
        assert_eq!(typed(&list), ["s/a/b/", "s/b/c/"]);
        assert_eq!(dialog.key(Key::Delete, &mut list), Outcome::Changed);
        assert_eq!(typed(&list), ["s/a/b/"]);
        // What is being typed is previewed, and changes nothing yet.
        press(&mut dialog, &mut list, "G\ns/x/y/");
        assert_eq!(typed(&dialog.proposed(&list)), ["s/a/b/", "s/x/y/"]);
        assert_eq!(typed(&list), ["s/a/b/"]);
        press(&mut dialog, &mut list, "\u{1b}");
        // A rule may be typed at once on the line for a new one.
        assert_eq!(press(&mut dialog, &mut list, "s/p/q/\n"), Outcome::Changed);
        assert_eq!(typed(&list), ["s/a/b/", "s/p/q/"]);
        assert_eq!(press(&mut dialog, &mut list, "T"), Outcome::Close);
    }

    #[test]
    fn a_rule_that_matches_nothing_is_told() {
        let nothing = |texts: &[&str], at| matches_nothing(NAMES.into_iter(), &rules(texts), at);
        assert!(nothing(&[r"s/http-\d+/web/"], 0), "numbers are dropped before");
        assert!(!nothing(&["s/http/web/"], 0));
        // An earlier rule has taken the names away.
        assert!(nothing(&["s/http/web/", "s/http/x/"], 1));
        assert!(!nothing(&["s/http/web/", "s/web/x/"], 1));
        assert!(!nothing(&["s/http/web/"], 1), "the line for a new one");
    }
}
