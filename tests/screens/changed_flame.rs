//! The flame graph compared with a baseline.

use ratatui::style::Color;

use super::compared::{released, service_of};
use super::fixture::{Does, Doing, PID, RECVFROM, Script};
use super::*;
use sampletop::config::{ColorDepth, ThemeChoice};

/// Returns the lines of the flame graph.
fn lines(live: &Live) -> Vec<String> {
    let lines = live.screen().lines().skip(6).map(str::to_owned).collect::<Vec<_>>();
    lines.into_iter().take_while(|line| !line.is_empty()).collect()
}

/// Returns where bars begin, line by line.
fn edges(live: &Live) -> Vec<Vec<usize>> {
    let edges = |line: &String| {
        let cells = line.chars().enumerate();
        cells.filter(|(_, c)| *c == '▏').map(|(at, _)| at).collect()
    };
    lines(live).iter().map(edges).collect()
}

/// Returns the line about the selected bar.
fn about(live: &Live) -> String {
    live.line(usize::from(live.height) - 2)
}

/// Returns the colours behind the bars, with their numbers of cells.
fn papers(live: &Live) -> Vec<(Color, usize)> {
    let buffer = live.buffer();
    let cells = (0..live.width).flat_map(|x| (6..live.height - 2).map(move |y| (x, y)));
    let mut counts: Vec<(Color, usize)> = Vec::new();
    for cell in cells {
        let color = buffer[cell].style().bg.unwrap_or(Color::Reset);
        match counts.iter_mut().find(|(known, _)| *known == color) {
            Some((_, count)) => *count += 1,
            None => counts.push((color, 1)),
        }
    }
    counts.retain(|(color, _)| *color != Color::Reset);
    counts
}

#[test]
fn what_a_release_changed_is_seen_at_every_size() {
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let (_, mut live) = released(width, height);
        live.press("=4jjj");
        golden(&format!("compared-flame-{width}x{height}.txt"), &live.screen());
        assert!(live.line(0).contains("DIFF"), "{}", live.screen());
        live.press("<enter>");
        golden(&format!("compared-flame-zoom-{width}x{height}.txt"), &live.screen());
    }
    golden("compared-flame-40x10.txt", &released(40, 10).1.press("=4").screen());
}

#[test]
fn bars_keep_their_widths() {
    let (_, mut live) = released(120, 40);
    let before = edges(live.press("4"));
    assert!(before.iter().flatten().count() > 5, "{}", live.screen());
    assert_eq!(edges(live.press("=")), before);
    assert!(live.screen().contains("; gone: 10.0 % in 1 call"), "{}", live.screen());
    assert_eq!(edges(live.press("=")), before);
    assert!(!live.screen().contains("gone"), "{}", live.screen());
}

#[test]
fn the_line_below_says_what_has_changed_and_what_is_gone() {
    let (_, mut live) = released(120, 40);
    live.press("=4/discount|applies<enter>");
    assert!(about(&live).contains("before 0.0 %, now 30.0 %: +30.0 points, "), "{}", about(&live));
    live.press("/fill<enter>");
    assert!(about(&live).contains("before 40.0 %, now 20.0 %: -20.0 points, "), "{}", about(&live));
    live.press("/search<enter>");
    assert!(about(&live).contains("before 30.0 %, now 30.0 %: no difference"), "{}", about(&live));
    live.press("g");
    assert!(about(&live).ends_with("; gone: 10.0 % in 1 call below"), "{}", about(&live));
    // Zoomed in on a bar below which nothing is gone, the title says nothing of it.
    live.press("/search<enter><enter>");
    assert!(!live.screen().contains("gone"), "{}", live.screen());
}

#[test]
fn a_range_does_not_differ_from_itself() {
    let (_, mut live) = released(120, 40);
    live.press("M=4");
    for keys in ["", "i", "m", "m", "m", "t", "bb", "o", "o"] {
        let screen = live.press(keys).screen();
        assert!(!screen.contains("gone"), "{keys}: {screen}");
        assert!(lines(&live).len() > 1, "{keys}: {screen}");
        assert!(lines(&live)[0].contains(" 0.0"), "{keys}: {screen}");
        for line in lines(&live) {
            assert!(!line.contains(['+', '~', '*']), "{keys}: {screen}");
        }
        assert!(papers(&live).iter().all(|(color, _)| *color == Color::DarkGray), "{keys}");
    }
}

#[test]
fn colours_say_what_grew_and_what_shrank() {
    let themes = [
        (ThemeChoice::Dark, ColorDepth::Ansi, [Color::LightRed, Color::LightBlue]),
        (ThemeChoice::Dark, ColorDepth::Indexed, [Color::Indexed(203), Color::Indexed(75)]),
        (ThemeChoice::Light, ColorDepth::Indexed, [Color::Indexed(160), Color::Indexed(25)]),
        (
            ThemeChoice::ColorBlind,
            ColorDepth::True,
            [Color::Rgb(213, 94, 0), Color::Rgb(0, 114, 178)],
        ),
    ];
    for (theme, color, expected) in themes {
        let (_, mut live) = released(120, 40);
        live.theme = Theme::new(&Screen { theme, color, ..Screen::default() });
        live.press("=4");
        let found = papers(&live);
        // Of 120 cells three tenths are new, and two tenths were four: of two calls each.
        for (color, cells) in expected.into_iter().zip([72, 48]) {
            let found = found.iter().find(|(found, _)| *found == color);
            assert!(
                found.is_some_and(|(_, count)| *count == cells),
                "{theme:?} {color}: {found:?}"
            );
        }
        assert_eq!(found.len(), 3, "and grey: {found:?}");
    }
}

#[test]
fn colours_are_those_of_the_comparison_alone() {
    let (_, mut live) = released(120, 40);
    live.press("=4");
    let colours = papers(&live);
    let screen = live.press("s").screen();
    assert!(screen.contains("colours say what has changed"), "{screen}");
    assert_eq!(papers(&live), colours);
    live.press("=");
    assert_ne!(papers(&live), colours);
}

#[test]
fn the_tree_has_the_same_row() {
    let (_, mut live) = released(120, 40);
    live.press("=4/fill<enter>1");
    assert!(live.selected().contains("Template::fill"), "{}", live.screen());
    live.press("/search<enter>4");
    assert!(about(&live).starts_with(" shop::search"), "{}", live.screen());
    // A row that is gone has no bar: its caller is selected.
    live.press("1/legacy<enter>4");
    assert!(about(&live).starts_with(" shop::serve"), "{}", live.screen());
}

/// The time of a group is measured, so its bounds are narrower than those of a call.
#[test]
fn a_bar_of_threads_has_the_bounds_of_its_row() {
    let thread = |name: &str, parts: [u64; 2]| -> Script {
        let doing: Does = Box::new(move |tick| match tick % 10 < parts[usize::from(tick >= 800)] {
            true => Doing::Runs("start_thread;shop::serve:40;shop::render:12"),
            false => Doing::Waits {
                call: RECVFROM,
                fd: 37,
                stack: "start_thread;shop::serve:41;recv",
                wait: tick,
            },
        });
        Script { pid: PID, name: name.into(), doing }
    };
    let mut world = World::new(vec![thread("serve", [10, 10]), thread("batch", [2, 6])]);
    let mut live = Live::new(120, 40, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(40 * SECOND).snapshot())));
    live.press("mM");
    live.send(Input::Snapshot(Arc::new(world.run(40 * SECOND).snapshot())));
    live.press("=C/batch<enter>");
    let words = |live: &Live| {
        let line = about(live);
        line.split_once("before ").expect("its shares").1.split(';').next().map(str::to_owned)
    };
    let of_row = words(&live);
    live.press("4");
    assert!(about(&live).starts_with(" batch"), "{}", live.screen());
    assert_eq!(words(&live), of_row);
    assert!(of_row.is_some_and(|words| words.contains("points")), "{}", live.screen());
}

/// One sample in 800 is gone: that may be chance.
#[test]
fn what_may_be_gone_by_chance_is_marked() {
    let doing: Does = Box::new(|tick| match tick {
        500 => Doing::Runs("start_thread;shop::serve:41;shop::rare:3"),
        _ => Doing::Runs("start_thread;shop::serve:40"),
    });
    let mut world = World::new(vec![Script { pid: PID, name: "serve".into(), doing }]);
    let mut live = Live::new(120, 40, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(40 * SECOND).snapshot())));
    live.press("M");
    live.send(Input::Snapshot(Arc::new(world.run(40 * SECOND).snapshot())));
    live.press("=4");
    assert!(live.line(5).contains("; gone: 0.2~ % in 1 call"), "{}", live.screen());
}

#[test]
fn a_zoom_of_inverted_bars_ends_with_a_comparison() {
    let (_, mut live) = released(120, 40);
    live.press("4v/Template::fill<enter><enter>");
    assert!(live.screen().contains("zoomed"), "{}", live.screen());
    live.press("=");
    assert!(!live.screen().contains("zoomed"), "{}", live.screen());
    assert!(lines(&live)[0].contains("all threads"), "{}", live.screen());
}

#[test]
fn a_comparison_has_callers_first() {
    let (_, mut live) = released(120, 40);
    live.press("4v");
    assert!(live.screen().contains("callers below"), "{}", live.screen());
    let inverted = lines(&live);
    live.press("<enter>=");
    assert!(live.screen().contains("differences from the baseline, callers first"));
    assert!(!live.screen().contains("callers below"), "{}", live.screen());
    assert!(live.press("v").screen().contains("a comparison has callers first"));
    live.press("=");
    assert!(live.screen().contains("callers below"), "{}", live.screen());
    assert_eq!(lines(&live), inverted);
}

/// Two threads of one name are one in a comparison, also where each has a bar.
#[test]
fn bars_of_one_name_are_compared_together() {
    let mut world = service_of(|_| "serve".into());
    let mut live = Live::new(120, 40, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(40 * SECOND).snapshot())));
    live.press("tt4M=j");
    assert!(about(&live).contains("all of this name: before"), "{}", live.screen());
}

#[test]
fn without_colours_a_sign_says_it() {
    let (_, mut live) = released(120, 40);
    live.theme = Theme::new(&Screen { color: ColorDepth::None, ..Screen::default() });
    live.press("=4");
    let screen = live.screen();
    assert!(screen.contains("+30.0 new") && screen.contains("-20.0"), "{screen}");
    assert!(papers(&live).is_empty(), "{screen}");
}
