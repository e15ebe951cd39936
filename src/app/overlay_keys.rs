//! Where a key goes: to what is drawn over the view, or to an action; and what answers to prompts
//! do.

use super::event::Effect;
use super::key::Key;
use super::keymap::{self, Place};
use super::line_edit::Outcome;
use super::prompt::{self, Ask, Prompt, Question};
use super::{AppState, Overlay, time_range};

impl AppState {
    pub(super) fn key(&mut self, key: Key) -> Vec<Effect> {
        self.notice = None;
        match self.overlay.take() {
            Some(Overlay::Prompt(prompt)) => self.prompt_key(prompt, key),
            Some(Overlay::Ask(ask)) => self.ask_key(ask, key),
            Some(Overlay::Filters(mut dialog)) if key == Key::Tab && dialog.edit.is_some() => {
                let names = self.names_for(dialog.field());
                dialog.complete(&names);
                self.overlay = Some(Overlay::Filters(dialog));
                Vec::new()
            }
            Some(Overlay::Filters(mut dialog)) => {
                let outcome = dialog.key(key, &mut self.view.settings.filters);
                if outcome != Outcome::Close {
                    self.overlay = Some(Overlay::Filters(dialog));
                }
                if outcome == Outcome::Changed {
                    self.before_group = None;
                    self.project();
                }
                Vec::new()
            }
            Some(Overlay::Rules(mut dialog)) => {
                let outcome = dialog.key(key, &mut self.view.settings.rename);
                if outcome != Outcome::Close {
                    self.overlay = Some(Overlay::Rules(dialog));
                }
                if outcome == Outcome::Changed {
                    self.rules_changed();
                }
                Vec::new()
            }
            Some(Overlay::Menu(menu)) => self.menu_key(menu, key),
            overlay => {
                self.overlay = overlay;
                if self.filter_key(key) {
                    return Vec::new();
                }
                match (keymap::action(key, self.place()), self.place()) {
                    (Some(action), _) => return self.act(action),
                    (None, Place::Help) => {}
                    (None, Place::Picker) => self.say(format!("no such key here: {key} (F1 help)")),
                    (None, _) => self.say(format!("no such key: {key} (? help)")),
                }
                Vec::new()
            }
        }
    }

    /// Handles a key typed into the process picker's filter.
    fn filter_key(&mut self, key: Key) -> bool {
        let rows = self.picker_rows();
        match &mut self.picker {
            Some(picker) if self.overlay.is_none() => picker.key(key, rows),
            _ => false,
        }
    }

    pub(super) fn ask_key(&mut self, ask: Ask, key: Key) -> Vec<Effect> {
        match (ask, key) {
            (Ask::StopSampling, Key::Char('y')) => {
                self.say("sampling is stopped; X goes on");
                vec![Effect::PauseSampling(true)]
            }
            (Ask::PickAgain, Key::Char('y')) => vec![Effect::Detach],
            (Ask::UsePtrace, Key::Char('y')) => vec![Effect::UsePtrace],
            (Ask::Quit, Key::Char('e')) => vec![Effect::Quit { end_child: true }],
            (Ask::Quit, Key::Char('l')) => vec![Effect::Quit { end_child: false }],
            (_, Key::Char('n' | 's' | 'q') | Key::Esc | Key::Ctrl('c')) => Vec::new(),
            _ => {
                self.overlay = Some(Overlay::Ask(ask));
                Vec::new()
            }
        }
    }

    pub(super) fn prompt_key(&mut self, mut prompt: Prompt, key: Key) -> Vec<Effect> {
        prompt.error = None;
        let answer = match key {
            Key::Esc | Key::Ctrl('c') => {
                self.leave_page_prompt();
                return Vec::new();
            }
            Key::Enter => self.answer(&prompt),
            key => {
                prompt.edit.key(key);
                self.overlay = Some(Overlay::Prompt(prompt));
                return Vec::new();
            }
        };
        answer.unwrap_or_else(|error| {
            prompt.error = Some(error);
            self.overlay = Some(Overlay::Prompt(prompt));
            Vec::new()
        })
    }

    pub(super) fn answer(&mut self, prompt: &Prompt) -> Result<Vec<Effect>, String> {
        let text = prompt.edit.text();
        match prompt.question {
            Question::Search if text.is_empty() => self.view.search = None,
            Question::Search => {
                self.view.search = Some(prompt::search_pattern(text)?);
                self.next_match(1);
            }
            Question::Page if text.is_empty() => self.search_page(None),
            Question::Page => {
                let pattern = prompt::search_pattern(text)?;
                self.search_page(Some(pattern));
            }
            Question::Interval => {
                self.interval = prompt::interval(text)?;
                return Ok(vec![Effect::SetInterval(self.interval)]);
            }
            Question::Window => {
                let clock = self.time().ok_or("there is no history yet")?;
                let range = time_range::parse(text, &clock)?;
                let is_widened = clock.snapshot.history.is_widened(range);
                self.set_range(range);
                if is_widened {
                    self.say("of that time whole seconds are kept, or older buckets");
                }
            }
        }
        Ok(Vec::new())
    }
}
