//! The palettes: what can be read, and what differs, for every kind of colour vision.

use super::*;
use crate::config::{ColorDepth, ThemeChoice};
use crate::tui::palette::{COLOR_BLIND, LIGHT};

/// The 16 colours of xterm as it is installed, which others resemble.
const XTERM: [(Color, [u8; 3]); 16] = [
    (Color::Black, [0, 0, 0]),
    (Color::Red, [205, 0, 0]),
    (Color::Green, [0, 205, 0]),
    (Color::Yellow, [205, 205, 0]),
    (Color::Blue, [0, 0, 238]),
    (Color::Magenta, [205, 0, 205]),
    (Color::Cyan, [0, 205, 205]),
    (Color::Gray, [229, 229, 229]),
    (Color::DarkGray, [127, 127, 127]),
    (Color::LightRed, [255, 0, 0]),
    (Color::LightGreen, [0, 255, 0]),
    (Color::LightYellow, [255, 255, 0]),
    (Color::LightBlue, [92, 92, 255]),
    (Color::LightMagenta, [255, 0, 255]),
    (Color::LightCyan, [0, 255, 255]),
    (Color::White, [255, 255, 255]),
];

const FIXED: [ColorDepth; 2] = [ColorDepth::Indexed, ColorDepth::True];

fn screen(theme: ThemeChoice, color: ColorDepth) -> Screen {
    Screen { theme, color, ..Screen::default() }
}

/// Red, green and blue, linear.
fn linear(color: Color) -> [f64; 3] {
    let step = |level: u8| if level == 0 { 0 } else { 55 + 40 * level };
    let rgb = match color {
        Color::Rgb(red, green, blue) => [red, green, blue],
        Color::Indexed(index @ 16..=231) => {
            let at = index - 16;
            [step(at / 36), step(at / 6 % 6), step(at % 6)]
        }
        Color::Indexed(index @ 232..) => [8 + 10 * (index - 232); 3],
        named => XTERM.iter().find(|(color, _)| *color == named).expect("one of the 16 colours").1,
    };
    rgb.map(|level| {
        let level = f64::from(level) / 255.0;
        if level <= 0.04045 { level / 12.92 } else { ((level + 0.055) / 1.055).powf(2.4) }
    })
}

/// The luminance of WCAG 2.
fn luminance([red, green, blue]: [f64; 3]) -> f64 {
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

#[test]
fn the_dark_theme_has_the_terminals_own_colours() {
    for depth in [ColorDepth::Ansi, ColorDepth::Indexed, ColorDepth::True] {
        let palette = Palette::new(&screen(ThemeChoice::Dark, depth));
        assert_eq!(palette.color(Color::Yellow), Some(Color::Yellow));
    }
    for theme in ThemeChoice::ALL {
        let palette = Palette::new(&screen(theme, ColorDepth::None));
        assert_eq!((palette.color(Color::Yellow), palette.has_colors()), (None, false));
    }
}

#[test]
fn every_colour_can_be_read_on_its_background() {
    for (theme, inks, background) in
        [(ThemeChoice::Light, LIGHT, 1.0), (ThemeChoice::ColorBlind, COLOR_BLIND, 0.0)]
    {
        let depths = [ColorDepth::Ansi, FIXED[0], FIXED[1]];
        for (ink, depth) in inks.iter().flat_map(|ink| depths.map(|depth| (ink, depth))) {
            let color = Palette::new(&screen(theme, depth)).color(ink.dark).expect("a colour");
            let (a, b) = (luminance(linear(color)) + 0.05, background + 0.05);
            let contrast: f64 = if a > b { a / b } else { b / a };
            assert!(contrast >= 3.0, "{theme:?} {:?} {color:?}: {contrast:.1}", ink.dark);
        }
    }
}

/// The linear colours as eyes without green, red or blue cones see them (Machado and others,
/// 2009, severity 1).
const SEEN: [[[f64; 3]; 3]; 3] = [
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
];

#[test]
fn states_differ_for_every_kind_of_colour_vision() {
    let states = [State::Run, State::Rdy, State::Lock, State::Io, State::Wait, State::Disk];
    for depth in FIXED {
        let theme = Theme::new(&screen(ThemeChoice::ColorBlind, depth));
        let colors = states.map(|state| linear(theme.state(state).fg.expect("a colour")));
        for eyes in SEEN {
            let seen = colors.map(|color| {
                let cone = |row: [f64; 3]| (0..3).map(|i| row[i] * color[i]).sum::<f64>();
                // Close to how differences are perceived.
                eyes.map(|row| cone(row).clamp(0.0, 1.0).cbrt())
            });
            for (i, a) in seen.iter().enumerate() {
                for (j, b) in seen.iter().enumerate().skip(i + 1) {
                    let apart = (0..3).map(|k| (a[k] - b[k]).powi(2)).sum::<f64>().sqrt();
                    assert!(apart > 0.09, "{:?} and {:?}: {apart:.2}", states[i], states[j]);
                }
            }
        }
    }
}

#[test]
fn sixteen_colours_without_green_beside_red() {
    let theme = Theme::new(&screen(ThemeChoice::ColorBlind, ColorDepth::Ansi));
    for state in State::ALL {
        let color = theme.state(state).fg;
        assert!(!matches!(color, Some(Color::Green | Color::LightGreen)), "{state:?}");
    }
}
