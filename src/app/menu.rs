//! The menu of the row under the cursor: what can be done with its function or its threads.

use super::event::Effect;
use super::key::Key;
use super::{AppState, Overlay};
use crate::model::facts::tables::FrameKind;
use crate::model::projection::settings::{Filter, pattern};

/// One thing that can be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    Focus,
    Ignore,
    Hide,
    Mine,
    Idle,
    OnlyThreads,
    Graph,
    Source,
    Wakers,
    Copy,
}

impl Choice {
    /// In the order of the menu.
    const OF_FUNCTION: [Choice; 10] = [
        Choice::Focus,
        Choice::Ignore,
        Choice::Hide,
        Choice::Mine,
        Choice::Idle,
        Choice::OnlyThreads,
        Choice::Graph,
        Choice::Source,
        Choice::Wakers,
        Choice::Copy,
    ];
    /// In views that sum up all threads.
    const OF_ALL_THREADS: [Choice; 9] = [
        Choice::Focus,
        Choice::Ignore,
        Choice::Hide,
        Choice::Mine,
        Choice::Idle,
        Choice::Graph,
        Choice::Source,
        Choice::Wakers,
        Choice::Copy,
    ];
    const OF_GROUP: [Choice; 2] = [Choice::OnlyThreads, Choice::Wakers];

    /// Returns the letter that chooses it.
    pub fn letter(self) -> char {
        match self {
            Choice::Focus => 'f',
            Choice::Ignore => 'x',
            Choice::Hide => 'h',
            Choice::Mine => 'm',
            Choice::Idle => 'i',
            Choice::OnlyThreads => 't',
            Choice::Graph => 'g',
            Choice::Source => 's',
            Choice::Wakers => 'u',
            Choice::Copy => 'y',
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Choice::Focus => "focus: only stacks with this function",
            Choice::Ignore => "ignore: no stacks with this function",
            Choice::Hide => "hide: take it out of stacks; its time goes to its caller",
            Choice::Mine => "mine: this is your code, or is not (A)",
            Choice::Idle => "idle: waiting in it is waiting for work, or is not (I)",
            Choice::OnlyThreads => "threads: only this group of threads",
            Choice::Graph => "graph: its callers and callees (3)",
            Choice::Source => "source: its lines or instructions, with their time (a)",
            Choice::Wakers => "wakers: count who wakes its threads (u)",
            Choice::Copy => "copy the stack (y)",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Menu {
    /// The row's name.
    pub title: String,
    pub choices: &'static [Choice],
    pub at: usize,
}

impl AppState {
    /// Opens the menu of the row under the cursor.
    pub(super) fn open_menu(&mut self) {
        let function = self.view.selected_location().filter(|of| of.kind != FrameKind::Thread);
        let (title, choices): (String, &[Choice]) = match (function, self.view.selected_group()) {
            (Some(function), Some(_)) => (function.function.to_string(), &Choice::OF_FUNCTION),
            (Some(function), None) => (function.function.to_string(), &Choice::OF_ALL_THREADS),
            (None, Some(group)) => {
                let name = &self.view.projection.groups[group as usize].name;
                (name.to_string(), &Choice::OF_GROUP)
            }
            (None, None) => return self.say("select a call or a group first"),
        };
        self.overlay = Some(Overlay::Menu(Menu { title, choices, at: 0 }));
    }

    pub(super) fn menu_key(&mut self, mut menu: Menu, key: Key) -> Vec<Effect> {
        let last = menu.choices.len() - 1;
        match key {
            Key::Esc | Key::Ctrl('c') | Key::Char('q' | ':') => return Vec::new(),
            Key::Up | Key::Char('k') | Key::BackTab => menu.at = menu.at.saturating_sub(1),
            Key::Down | Key::Char('j') | Key::Tab => menu.at = (menu.at + 1).min(last),
            Key::Home => menu.at = 0,
            Key::End => menu.at = last,
            Key::Enter | Key::Char(' ') => return self.choose(menu.choices[menu.at]),
            key => {
                let letter = |choice: &&Choice| Key::Char(choice.letter()) == key;
                match menu.choices.iter().find(letter) {
                    Some(choice) => return self.choose(*choice),
                    None => self.say(format!("no such key here: {key}")),
                }
            }
        }
        self.overlay = Some(Overlay::Menu(menu));
        Vec::new()
    }

    fn choose(&mut self, choice: Choice) -> Vec<Effect> {
        match choice {
            Choice::Focus | Choice::Ignore | Choice::Hide => self.filter_by_row(choice),
            Choice::Mine => self.mine_or_not(),
            Choice::Idle => self.idle_here(),
            Choice::OnlyThreads => {
                if let Some(group) = self.view.selected_group() {
                    self.only_group(group);
                }
            }
            Choice::Graph => self.show_graph(),
            Choice::Source => self.show_source(),
            Choice::Wakers => return self.count_wakers(),
            Choice::Copy => return self.copy_stack(),
        }
        Vec::new()
    }

    /// Sets a filter to the row's function. What is ignored or hidden already stays so.
    fn filter_by_row(&mut self, choice: Choice) {
        let Some(location) = self.view.selected_location() else { return };
        let name = location.function.clone();
        let this = format!("^{}$", regex::escape(&name));
        let filters = &mut self.view.settings.filters;
        let (filter, word) = match choice {
            Choice::Focus => (&mut filters.focus, "focus is"),
            Choice::Ignore => (&mut filters.ignore, "ignored too:"),
            _ => (&mut filters.hide, "hidden too:"),
        };
        let before = filter.active().filter(|_| choice != Choice::Focus);
        let text = match before {
            Some(before) => format!("{before}|{this}"),
            None => this,
        };
        let Ok(pattern) = pattern(&text) else {
            return self.say("this pattern would be too long (f changes it)");
        };
        *filter = Filter::set(pattern);
        self.say(format!("{word} {name} (f changes it)"));
        self.project();
    }
}
