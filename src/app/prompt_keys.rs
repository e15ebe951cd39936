//! Keys of prompts and questions, and what answers do.

use super::event::Effect;
use super::key::Key;
use super::prompt::{self, Ask, Prompt, Question};
use super::{AppState, Overlay, time_range};

impl AppState {
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
            Key::Esc | Key::Ctrl('c') => return Vec::new(),
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
