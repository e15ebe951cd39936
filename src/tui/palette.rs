//! The colours of a theme on a terminal. The rest of the program names colours as a dark terminal
//! with 16 has them; here is what stands for each.

use ratatui::style::Color;

use crate::config::{ColorDepth, Screen, ThemeChoice};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Palette {
    theme: ThemeChoice,
    depth: ColorDepth,
}

/// What stands for a colour of a dark terminal: of 16 colours, of 256, of all.
pub(super) struct Ink {
    pub dark: Color,
    ansi: Color,
    indexed: u8,
    /// `None`: the indexed colour.
    rgb: Option<(u8, u8, u8)>,
}

const fn ink(dark: Color, ansi: Color, indexed: u8) -> Ink {
    Ink { dark, ansi, indexed, rgb: None }
}

const fn exact(dark: Color, ansi: Color, indexed: u8, rgb: (u8, u8, u8)) -> Ink {
    Ink { dark, ansi, indexed, rgb: Some(rgb) }
}

/// Dark enough for a white background. Of 16 colours green, yellow and cyan are too bright for it.
#[rustfmt::skip] // one line per colour
pub(super) const LIGHT: &[Ink] = &[
    ink(Color::Green,       Color::Black,        28),
    ink(Color::Yellow,      Color::LightRed,     94),
    ink(Color::Red,         Color::Red,          160),
    ink(Color::LightBlue,   Color::Blue,         25),
    ink(Color::Cyan,        Color::LightBlue,    30),
    ink(Color::Magenta,     Color::Magenta,      127),
    ink(Color::LightRed,    Color::LightMagenta, 130),
    ink(Color::DarkGray,    Color::DarkGray,     242),
    ink(Color::LightCyan,   Color::Blue,         24),
    ink(Color::LightYellow, Color::Magenta,      90),
    ink(Color::LightGreen,  Color::Black,        22),
];

/// The palette of Okabe and Ito (2008), which differs for every kind of colour vision. With 16
/// colours there is no green beside red.
#[rustfmt::skip] // one line per colour
pub(super) const COLOR_BLIND: &[Ink] = &[
    exact(Color::Green,       Color::LightCyan,    71,  (0, 158, 115)),
    exact(Color::Yellow,      Color::LightYellow,  227, (240, 228, 66)),
    exact(Color::Red,         Color::LightRed,     166, (213, 94, 0)),
    exact(Color::LightBlue,   Color::LightBlue,    25,  (0, 114, 178)),
    exact(Color::Cyan,        Color::Cyan,         75,  (86, 180, 233)),
    exact(Color::Magenta,     Color::LightMagenta, 175, (204, 121, 167)),
    exact(Color::LightRed,    Color::Yellow,       178, (230, 159, 0)),
    ink(Color::DarkGray,      Color::DarkGray,     244),
    exact(Color::LightCyan,   Color::LightCyan,    75,  (86, 180, 233)),
    exact(Color::LightYellow, Color::LightYellow,  227, (240, 228, 66)),
    exact(Color::LightGreen,  Color::LightCyan,    71,  (0, 158, 115)),
];

/// The colours of one direction of change: of 16 colours; of more, where it stands out and where
/// not.
type Shades = (Color, [Color; 2]);

/// Reds for what grows and blues for what shrinks, each readable with the theme's letters.
const DARK_CHANGES: [Shades; 2] = [
    (Color::LightRed, [Color::Indexed(203), Color::Indexed(174)]),
    (Color::LightBlue, [Color::Indexed(75), Color::Indexed(110)]),
];
const LIGHT_CHANGES: [Shades; 2] = [
    (Color::Red, [Color::Indexed(160), Color::Indexed(167)]),
    (Color::Blue, [Color::Indexed(25), Color::Indexed(67)]),
];

impl Palette {
    pub fn new(screen: &Screen) -> Palette {
        Palette { theme: screen.theme, depth: screen.color }
    }

    /// Returns the colour of letters on another colour.
    pub fn letters(self) -> Color {
        match self.theme {
            ThemeChoice::Light => Color::White,
            ThemeChoice::Dark | ThemeChoice::ColorBlind => Color::Black,
        }
    }

    pub fn has_colors(self) -> bool {
        self.depth != ColorDepth::None
    }

    /// Returns the colour of what grows or shrinks; `None` without colours.
    pub fn change(self, grows: bool, is_strong: bool) -> Option<Color> {
        let [red, blue] = match self.theme {
            ThemeChoice::Dark => DARK_CHANGES,
            ThemeChoice::Light => LIGHT_CHANGES,
            // Of the palette that everyone tells apart: vermilion and orange, blue and sky blue.
            ThemeChoice::ColorBlind => {
                return self.color(match (grows, is_strong) {
                    (true, true) => Color::Red,
                    (true, false) => Color::LightRed,
                    (false, true) => Color::LightBlue,
                    (false, false) => Color::Cyan,
                });
            }
        };
        let (ansi, [strong, weak]) = if grows { red } else { blue };
        match self.depth {
            ColorDepth::None => None,
            ColorDepth::Ansi => Some(ansi),
            ColorDepth::Indexed | ColorDepth::True => Some(if is_strong { strong } else { weak }),
        }
    }

    /// Returns what stands for a colour of a dark terminal with 16; `None` without colours.
    pub fn color(self, dark: Color) -> Option<Color> {
        let inks = match self.theme {
            // These 16 are the user's own choice, in the terminal's settings.
            ThemeChoice::Dark => &[],
            ThemeChoice::Light => LIGHT,
            ThemeChoice::ColorBlind => COLOR_BLIND,
        };
        let Some(ink) = inks.iter().find(|ink| ink.dark == dark) else {
            return self.has_colors().then_some(dark);
        };
        match (self.depth, ink.rgb) {
            (ColorDepth::None, _) => None,
            (ColorDepth::Ansi, _) => Some(ink.ansi),
            (ColorDepth::True, Some((red, green, blue))) => Some(Color::Rgb(red, green, blue)),
            (ColorDepth::Indexed | ColorDepth::True, _) => Some(Color::Indexed(ink.indexed)),
        }
    }
}
