//! Colours, glyphs and the time zone. Colour is never the only carrier of a meaning: a word or a
//! glyph always says the same.

use jiff::tz::TimeZone;
use ratatui::style::{Color, Modifier, Style};

use super::palette::Palette;
use crate::app::Severity;
use crate::app::flame_changes::Verdict;
use crate::config::Screen;
use crate::model::facts::snapshot::Session;
use crate::model::facts::tables::FrameKind;
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::role::Role;
use crate::model::vocabulary::state::State;

/// How everything is drawn.
#[derive(Clone, Debug)]
pub struct Theme {
    pub palette: Palette,
    pub glyphs: &'static Glyphs,
    zone: TimeZone,
}

/// The characters drawn besides letters.
#[derive(Debug)]
pub struct Glyphs {
    pub open: &'static str,
    pub closed: &'static str,
    /// Ties the only callee to the row above.
    pub hangs: &'static str,
    /// Between a function and what it calls.
    pub calls: &'static str,
    /// Before a caller, where callers stand below what they call.
    pub called_by: &'static str,
    /// Where a bar of the flame graph begins.
    pub edge: &'static str,
    pub cut: &'static str,
    pub descending: &'static str,
    pub ascending: &'static str,
    /// Before a share that has grown.
    pub grows: &'static str,
    /// The parts of a bar: self time, the rest of the total, and the remainder.
    pub bar: [&'static str; 3],
    /// The levels of a sparkline, from zero to the highest.
    pub spark: [&'static str; 8],
    /// Corners and edges of a box: top left, top right, bottom left, bottom right, horizontal,
    /// vertical.
    pub border: [&'static str; 6],
}

static UNICODE: Glyphs = Glyphs {
    open: "▾",
    closed: "▸",
    hangs: "╰",
    calls: "› ",
    called_by: "‹ ",
    edge: "▏",
    cut: "…",
    descending: "▾",
    ascending: "▴",
    grows: "↑",
    bar: ["█", "░", " "],
    spark: ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
    border: ["╭", "╮", "╰", "╯", "─", "│"],
};

static ASCII: Glyphs = Glyphs {
    open: "v",
    closed: ">",
    hangs: "`",
    calls: "> ",
    called_by: "< ",
    edge: "|",
    cut: ".",
    descending: "v",
    ascending: "^",
    grows: "^",
    bar: ["#", "-", " "],
    spark: ["_", ".", ",", "-", "~", "=", "+", "#"],
    border: ["+", "+", "+", "+", "-", "|"],
};

impl Theme {
    /// Creates the theme once. It includes the system's time zone, which may need reading files.
    pub fn new(screen: &Screen) -> Theme {
        Theme::with_zone(screen, TimeZone::system())
    }

    pub fn with_zone(screen: &Screen, zone: TimeZone) -> Theme {
        Theme {
            palette: Palette::new(screen),
            glyphs: if screen.ascii { &ASCII } else { &UNICODE },
            zone,
        }
    }

    /// Returns whether only ASCII may be written.
    pub fn is_ascii(&self) -> bool {
        std::ptr::eq(self.glyphs, &raw const ASCII)
    }

    /// Returns the style in colour, or plain. `color` is that of a dark terminal with 16 colours.
    fn ink(&self, color: Color) -> Style {
        self.palette.color(color).map_or_else(Style::new, |color| Style::new().fg(color))
    }

    pub fn plain(&self) -> Style {
        Style::new()
    }

    pub fn dim(&self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub fn bold(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub fn title(&self) -> Style {
        self.dim()
    }

    /// Returns the style of the selected row and of a text's cursor: one even bar, visible without
    /// colour too.
    pub fn selected(&self) -> Style {
        let style = Style::new().add_modifier(Modifier::REVERSED).remove_modifier(Modifier::DIM);
        if self.palette.has_colors() { style.fg(Color::Reset) } else { style }
    }

    /// Returns the style of the selected bar of the flame graph, whatever its colour.
    pub fn selected_bar(&self) -> Style {
        let style = self.selected();
        if self.palette.has_colors() { style.bg(Color::Reset) } else { style }
    }

    pub fn key(&self) -> Style {
        self.ink(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub fn found(&self) -> Style {
        self.ink(Color::Yellow).add_modifier(Modifier::UNDERLINED)
    }

    pub fn bar(&self) -> Style {
        self.ink(Color::Green)
    }

    pub fn group(&self) -> Style {
        self.bold()
    }

    pub fn state(&self, state: State) -> Style {
        self.ink(match state {
            State::Run => Color::Green,
            State::Rdy => Color::Yellow,
            State::Lock => Color::Red,
            State::Io => Color::LightBlue,
            State::Wait => Color::Cyan,
            State::Sleep | State::Poll => Color::DarkGray,
            State::Disk => Color::Magenta,
            State::Stopped => Color::LightRed,
        })
    }

    /// Returns the tint of a name. Markers also have brackets; kernel frames also end in `[k]`.
    pub fn kind(&self, kind: FrameKind) -> Style {
        match kind {
            FrameKind::Native => self.plain(),
            FrameKind::Kernel => self.ink(Color::Magenta),
            FrameKind::Java => self.ink(Color::LightCyan),
            FrameKind::Python => self.ink(Color::LightYellow),
            FrameKind::Jit => self.ink(Color::LightGreen),
            FrameKind::Marker => self.dim(),
            FrameKind::Thread => self.group(),
        }
    }

    /// Returns the style of a bar whose colour says whose code it is.
    pub fn bar_of_role(&self, role: Role) -> Style {
        self.paper(match role {
            Role::App => Color::Yellow,
            Role::Library => Color::Cyan,
            Role::Runtime => Color::LightBlue,
            Role::Kernel => Color::Magenta,
            Role::Wait => Color::LightGreen,
            Role::Marker => Color::DarkGray,
        })
    }

    /// Returns the style of a bar whose colour says what the threads did.
    pub fn bar_of_state(&self, state: State) -> Style {
        match self.state(state).fg {
            Some(color) => Style::new().fg(self.palette.letters()).bg(color),
            None => self.plain(),
        }
    }

    /// Returns the style of a bar whose colour says how it differs from the baseline.
    pub fn bar_of_change(&self, verdict: Verdict, is_strong: bool) -> Style {
        let grows = match verdict {
            Verdict::Same | Verdict::Unsure if self.palette.has_colors() => {
                return self.paper(Color::DarkGray);
            }
            Verdict::Same | Verdict::Unsure => return self.dim(),
            Verdict::More | Verdict::New => true,
            Verdict::Less => false,
        };
        let style = match self.palette.change(grows, is_strong) {
            Some(color) => Style::new().fg(self.palette.letters()).bg(color),
            None => Style::new(),
        };
        let style = if is_strong { style.patch(self.bold()) } else { style };
        match verdict {
            Verdict::New => style.add_modifier(Modifier::UNDERLINED),
            _ => style,
        }
    }

    /// Returns letters on this colour, or plain ones.
    fn paper(&self, color: Color) -> Style {
        let letters = self.palette.letters();
        self.palette
            .color(color)
            .map_or_else(Style::new, |color| Style::new().fg(letters).bg(color))
    }

    pub fn severity(&self, severity: Severity) -> Style {
        match severity {
            Severity::Info => self.ink(Color::Cyan),
            Severity::Warning => self.ink(Color::Yellow).add_modifier(Modifier::BOLD),
            Severity::Error => self.ink(Color::Red).add_modifier(Modifier::BOLD),
        }
    }

    pub fn live(&self) -> Style {
        self.ink(Color::Green).add_modifier(Modifier::BOLD)
    }

    /// Returns the style of FROZEN, STOPPED, EXITED: the figures are not current.
    pub fn not_live(&self) -> Style {
        self.ink(Color::Yellow).add_modifier(Modifier::REVERSED | Modifier::BOLD)
    }

    /// Formats a moment of the session as `2026-03-14 14:03` local time.
    pub fn date(&self, session: &Session, at: Ns) -> String {
        match jiff::Timestamp::from_nanosecond(session.unix_ns(at)) {
            Ok(time) => time.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M").to_string(),
            Err(_) => "????-??-?? ??:??".into(),
        }
    }

    /// Formats the wall clock at a moment of the session as `14:03:20` local time.
    pub fn clock(&self, session: &Session, at: Ns) -> String {
        self.clock_as("%H:%M:%S", session, at)
    }

    /// Formats the wall clock at a moment of the session as `14:03` local time.
    pub fn clock_minutes(&self, session: &Session, at: Ns) -> String {
        self.clock_as("%H:%M", session, at)
    }

    /// Formats the wall clock at a moment of the session as `14:03:20.250` local time.
    pub fn clock_ms(&self, session: &Session, at: Ns) -> String {
        self.clock_as("%H:%M:%S%.3f", session, at)
    }

    fn clock_as(&self, format: &str, session: &Session, at: Ns) -> String {
        match jiff::Timestamp::from_nanosecond(session.unix_ns(at)) {
            Ok(time) => time.to_zoned(self.zone.clone()).strftime(format).to_string(),
            Err(_) => "??:??:??".into(),
        }
    }
}

#[cfg(test)]
mod tests;
