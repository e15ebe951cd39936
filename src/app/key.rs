//! Keys and mouse events as the app's logic knows them, independent of any terminal library.

use std::fmt;

/// One key press.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Key {
    /// A printable character as typed (shift is in the character).
    Char(char),
    /// Ctrl with a lower-case letter or digit.
    Ctrl(char),
    Alt(char),
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Insert,
    Delete,
    Backspace,
    Enter,
    Tab,
    BackTab,
    Esc,
    F(u8),
}

impl fmt::Display for Key {
    /// Writes the key's name as in help and the documents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Char(' ') => f.write_str("Space"),
            Key::Char(c) => write!(f, "{c}"),
            Key::Ctrl(c) => write!(f, "Ctrl-{}", c.to_ascii_uppercase()),
            Key::Alt(c) => write!(f, "Alt-{c}"),
            Key::Up => f.write_str("up"),
            Key::Down => f.write_str("down"),
            Key::Left => f.write_str("left"),
            Key::Right => f.write_str("right"),
            Key::PageUp => f.write_str("PgUp"),
            Key::PageDown => f.write_str("PgDn"),
            Key::Home => f.write_str("Home"),
            Key::End => f.write_str("End"),
            Key::Insert => f.write_str("Ins"),
            Key::Delete => f.write_str("Del"),
            Key::Backspace => f.write_str("Backspace"),
            Key::Enter => f.write_str("Enter"),
            Key::Tab => f.write_str("Tab"),
            Key::BackTab => f.write_str("Shift-Tab"),
            Key::Esc => f.write_str("Esc"),
            Key::F(n) => write!(f, "F{n}"),
        }
    }
}

/// A mouse event, in cells from the top left (only with `--mouse`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mouse {
    pub kind: MouseKind,
    pub column: u16,
    pub row: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MouseKind {
    Press,
    WheelUp,
    WheelDown,
}
