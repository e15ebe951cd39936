//! A live view without a terminal, and its golden files.

use super::*;
use sampletop::model::projection::settings::Range;
use sampletop::model::projection::waits::Facts;

pub struct Live {
    pub app: AppState,
    pub theme: Theme,
    pub width: u16,
    pub height: u16,
    pub projectors: Projectors,
    /// Whether requests to read history wait in `effects` instead of being answered at once.
    pub slow: bool,
    /// What the threads wait for, as it is looked up.
    pub facts: Facts,
    pub effects: Vec<Effect>,
}

impl Live {
    pub fn new(width: u16, height: u16, config: AppConfig) -> Live {
        let theme = Theme::with_zone(&config.screen, jiff::tz::TimeZone::UTC);
        let mut live = Live {
            app: AppState::new(config),
            theme,
            width,
            height,
            projectors: Projectors::default(),
            slow: false,
            facts: fixture::shop_facts(),
            effects: Vec::new(),
        };
        live.send(Input::Resize { width, height });
        live
    }

    /// The shop after 40 s.
    pub fn shop(width: u16, height: u16) -> Live {
        let mut live = Live::new(width, height, AppConfig::default());
        live.send(Input::Snapshot(shop()));
        live
    }

    pub fn send(&mut self, input: Input) -> &mut Live {
        let mut effects = std::collections::VecDeque::from(self.app.update(input));
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Project(request) if !self.slow => {
                    effects.extend(self.app.update(self.projectors.answer(*request)));
                }
                Effect::AskWaits(asked) => {
                    effects.extend(
                        self.app.update(Input::Waits(fixture::look_at(&asked, &self.facts))),
                    );
                }
                effect => self.effects.push(effect),
            }
        }
        self
    }

    /// The requests to read history that were not answered yet.
    pub fn requests(&mut self) -> Vec<Request> {
        let (requests, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.effects)
            .into_iter()
            .partition(|effect| matches!(effect, Effect::Project(_)));
        self.effects = others;
        let request = |effect| match effect {
            Effect::Project(request) => Some(*request),
            _ => None,
        };
        requests.into_iter().filter_map(request).collect()
    }

    pub fn answer(&mut self, request: Request) -> &mut Live {
        let answer = self.projectors.answer(request);
        self.send(answer)
    }

    /// Characters as typed; `<name>` for other keys.
    pub fn press(&mut self, keys: &str) -> &mut Live {
        let mut rest = keys;
        while let Some(c) = rest.chars().next() {
            let name = rest.strip_prefix('<').and_then(|r| r.split_once('>')).map(|(name, _)| name);
            let key = match name {
                Some("up") => Key::Up,
                Some("down") => Key::Down,
                Some("left") => Key::Left,
                Some("right") => Key::Right,
                Some("enter") => Key::Enter,
                Some("esc") => Key::Esc,
                Some("tab") => Key::Tab,
                Some("pgdn") => Key::PageDown,
                Some("pgup") => Key::PageUp,
                Some("bs") => Key::Backspace,
                Some("del") => Key::Delete,
                Some("c-t") => Key::Ctrl('t'),
                Some("c-u") => Key::Ctrl('u'),
                Some("c-c") => Key::Ctrl('c'),
                Some("lt") => Key::Char('<'),
                Some(name) => panic!("no such key: {name}"),
                None => Key::Char(c),
            };
            rest = &rest[name.map_or(c.len_utf8(), |name| name.len() + 2)..];
            self.send(Input::Key(key));
        }
        self
    }

    pub fn buffer(&self) -> Buffer {
        let mut terminal =
            Terminal::new(TestBackend::new(self.width, self.height)).expect("a buffer");
        terminal.draw(|frame| sampletop::tui::draw(frame, &self.app, &self.theme)).expect("drawn");
        terminal.backend().buffer().clone()
    }

    pub fn screen(&self) -> String {
        text(&self.buffer())
    }

    /// The line that is drawn in reverse video among the rows.
    pub fn selected(&self) -> String {
        let buffer = self.buffer();
        let reversed = |y: &u16| buffer[(1, *y)].modifier.contains(Modifier::REVERSED);
        let lines: Vec<u16> = (0..self.height).filter(reversed).collect();
        assert_eq!(lines.len(), 1, "one row is selected:\n{}", self.screen());
        text(&buffer).lines().nth(lines[0].into()).expect("a line").to_string()
    }

    /// Returns a line of the screen, by its number.
    pub fn line(&self, nth: usize) -> String {
        self.screen().lines().nth(nth).expect("a line").to_string()
    }

    /// Returns the shown range, ns of the session; it must have two ends.
    pub fn shown_range(&self) -> (u64, u64) {
        let Range::Between { from, till } = self.app.settings().range else {
            panic!("{:?}", self.app.settings().range)
        };
        let start = self.app.shown_snapshot().expect("a snapshot").session.started;
        (from - start, till - start)
    }

    pub fn selected_line(&self) -> usize {
        let selected = self.selected();
        self.screen().lines().position(|l| l == selected).expect("on the screen")
    }
}

pub fn shop() -> Arc<Snapshot> {
    Arc::new(World::shop().run(40 * SECOND).snapshot())
}

/// Returns the symbols of a buffer, without the second cell of a wide one.
pub fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let mut line = String::new();
        let mut x = 0;
        while x < buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            x += unicode_width::UnicodeWidthStr::width(symbol).max(1) as u16;
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

pub fn golden(name: &str, found: &str) {
    golden::same_as_file(&format!("tests/screens/{name}"), found);
}
