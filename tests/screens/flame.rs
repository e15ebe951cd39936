//! The flame graph, and trees that are turned around.

use super::graph::pricing;
use super::*;

fn live(width: u16, height: u16) -> Live {
    let mut live = Live::new(width, height, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(pricing().run(40 * SECOND).snapshot())));
    live
}

/// Returns the lines of the flame graph.
fn lines(live: &Live) -> Vec<String> {
    let lines = live.screen().lines().skip(6).map(str::to_owned).collect::<Vec<_>>();
    lines.into_iter().take_while(|line| !line.is_empty()).collect()
}

/// Returns the line about the selected bar.
pub fn about(live: &Live) -> String {
    let screen = live.screen();
    let lines: Vec<&str> = screen.lines().collect();
    lines[lines.len() - 2].to_owned()
}

#[test]
fn bars_are_as_wide_as_their_share() {
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        golden(&format!("flame-{width}x{height}.txt"), &live(width, height).press("4").screen());
        let mut shop = Live::shop(width, height);
        golden(&format!("flame-shop-{width}x{height}.txt"), &shop.press("4").screen());
    }
    let mut live = live(80, 24);
    live.press("r4");
    let lines = lines(&live);
    // Of 10 stacks 4 are below checkout, 6 below report.
    let edges = |line: &str| -> Vec<usize> {
        line.chars().enumerate().filter(|(_, c)| *c == '▏').map(|(at, _)| at).collect()
    };
    assert_eq!(edges(&lines[2]), [0], "main: {lines:?}");
    assert_eq!(edges(&lines[3]), [0, 32], "checkout, report: {lines:?}");
    assert_eq!(edges(&lines[4]), [0, 32, 56], "price; format, price: {lines:?}");
}

#[test]
fn keys_walk_along_the_bars() {
    let mut live = live(80, 24);
    live.press("r4");
    assert!(about(&live).contains("all threads  100.0%"), "{}", live.screen());
    live.press("jjj");
    assert!(about(&live).starts_with(" report"), "the widest callee:\n{}", live.screen());
    live.press("<left>");
    assert!(about(&live).starts_with(" checkout"), "{}", live.screen());
    live.press("<left><right><right>");
    assert!(about(&live).starts_with(" report"), "{}", live.screen());
    live.press("jG");
    assert!(about(&live).starts_with(" format"), "of equal ones the first:\n{}", live.screen());
    live.press("<right>G");
    assert!(about(&live).contains("tax :7"), "the end of the path:\n{}", live.screen());
    live.press("k");
    assert!(about(&live).starts_with(" price"), "{}", live.screen());
    live.press("g");
    assert!(about(&live).starts_with(" all threads"), "{}", live.screen());
    // The tree has the same row under its cursor.
    live.press("jjj1");
    assert!(live.selected().contains("report"), "{}", live.screen());
    live.press("4");
    assert!(about(&live).starts_with(" report"), "{}", live.screen());
}

#[test]
fn a_bar_can_be_as_wide_as_the_screen() {
    let mut live = live(80, 24);
    live.press("r4jjj<enter>");
    let zoomed = lines(&live);
    assert!(live.screen().contains("zoomed"), "{}", live.screen());
    assert!(zoomed[3].starts_with("▏report 60.0%"), "{zoomed:?}");
    assert_eq!(zoomed[3].chars().filter(|c| *c == '▏').count(), 1, "{zoomed:?}");
    assert!(zoomed[4].contains("format") && zoomed[4].contains("price"), "{zoomed:?}");
    // On another screen the zoom stays.
    (live.width, live.height) = (120, 40);
    live.send(Input::Resize { width: 120, height: 40 });
    assert!(lines(&live)[3].starts_with("▏report 60.0%"), "{}", live.screen());
    live.press("<bs>");
    assert!(lines(&live)[2].starts_with("▏main"), "{}", live.screen());
    assert!(lines(&live)[3].contains("checkout"), "{}", live.screen());
    live.press("<bs><bs>");
    assert!(!live.screen().contains("zoomed"), "{}", live.screen());
    assert!(live.press("<bs>").screen().contains("everything is shown"), "{}", live.screen());
    live.press("jjj<enter><esc>");
    assert!(!live.screen().contains("zoomed"), "{}", live.screen());
}

#[test]
fn other_rows_end_the_zoom() {
    let mut live = live(80, 24);
    live.press("r4jjj<enter>t");
    assert!(!live.screen().contains("zoomed"), "{}", live.screen());
    assert!(lines(&live)[3].contains("checkout"), "{}", live.screen());
}

#[test]
fn a_picked_process_has_the_whole_width() {
    let mut live = Live::new(120, 40, AppConfig { pick: true, ..AppConfig::default() });
    let row = ProcessRow { pid: 7, command: "shopd".into(), ..ProcessRow::default() };
    live.send(Input::Processes(vec![row]));
    live.press("<down><enter>");
    live.send(Input::Snapshot(Arc::new(pricing().run(40 * SECOND).snapshot())));
    live.press("4");
    let edges = lines(&live)[3].char_indices().filter(|(_, c)| *c == '▏').count();
    assert_eq!(edges, 2, "{}", live.screen());
    let second = lines(&live)[3].chars().collect::<Vec<_>>().iter().rposition(|c| *c == '▏');
    assert_eq!(second, Some(48), "{}", live.screen());
}

#[test]
fn the_mouse_chooses_a_bar_and_zooms() {
    let mut live = live(80, 24);
    live.press("r4");
    let press = Input::Mouse(Mouse { kind: MouseKind::Press, column: 70, row: 9 });
    live.send(press.clone());
    assert!(about(&live).starts_with(" report"), "{}", live.screen());
    live.send(press);
    assert!(live.screen().contains("zoomed"), "{}", live.screen());
    // Where there is no bar, nothing happens.
    live.send(Input::Mouse(Mouse { kind: MouseKind::Press, column: 70, row: 20 }));
    assert!(about(&live).starts_with(" report"), "{}", live.screen());
}

#[test]
fn search_goes_from_bar_to_bar() {
    let mut live = live(80, 24);
    live.press("r4/price<enter>");
    let mut places = Vec::new();
    for _ in 0..3 {
        places.push(
            live.press("n").buffer().content().iter().position(|cell| {
                cell.modifier.contains(Modifier::REVERSED) && cell.symbol() == "▏"
            }),
        );
        assert!(about(&live).starts_with(" price"), "{}", live.screen());
    }
    places.dedup();
    assert_eq!(places.len(), 3, "{places:?}");
    assert!(live.press("/nothing<enter>").screen().contains("no match"), "{}", live.screen());
}

#[test]
fn colours_say_whose_code_it_is_or_what_the_threads_did() {
    let mut live = Live::shop(120, 40);
    live.press("4");
    let colours = |live: &Live| {
        let buffer = live.buffer();
        let cells = (0..120).flat_map(|x| (6..37).map(move |y| (x, y)));
        let mut colours: Vec<String> =
            cells.map(|cell| format!("{:?}", buffer[cell].style().bg)).collect();
        colours.sort();
        colours.dedup();
        colours
    };
    let by_role = colours(&live);
    assert!(by_role.len() > 2, "{by_role:?}");
    let screen = live.press("s").screen();
    assert!(screen.contains("colours say what the threads did"), "{screen}");
    assert_ne!(by_role, colours(&live));
}

#[test]
fn trees_are_turned_around() {
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let mut live = live(width, height);
        golden(&format!("inverted-{width}x{height}.txt"), &live.press("rvjE").screen());
        golden(&format!("inverted-flame-{width}x{height}.txt"), &live.press("4").screen());
    }
    let mut live = live(80, 24);
    live.press("r/round<enter>v");
    assert!(live.selected().contains("round"), "its own row:\n{}", live.screen());
    assert!(live.screen().contains("CALLED BY"), "{}", live.screen());
    live.press("<right>j");
    assert!(live.selected().contains("‹ price"), "{}", live.screen());
    // Its stack is still innermost first.
    live.press("y");
    let copied = live.effects.iter().find_map(|effect| match effect {
        Effect::Copy(text) => Some(text.clone()),
        _ => None,
    });
    let copied = copied.expect("a stack");
    let names: Vec<&str> = copied.lines().map(|l| l.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["round", "price"]);
    live.press("v");
    assert!(live.selected().contains("round"), "where one was:\n{}", live.screen());
    assert!(!live.screen().contains("CALLED BY"), "{}", live.screen());
    // Other views do not need the inverted trees, and they are back with the tree.
    live.press("v2");
    live.send(Input::Snapshot(Arc::new(pricing().run(41 * SECOND).snapshot())));
    assert!(live.app.settings().inverted, "it is still chosen");
    assert!(live.press("1").screen().contains("CALLED BY"), "{}", live.screen());
    live.press("v");
    // A sentence leads to its row in the tree of calls.
    live.press("v2/tax<enter><enter>1");
    assert!(live.screen().contains("CALLED BY"), "{}", live.screen());
}
