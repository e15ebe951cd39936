//! The menu of a row, rules for names of threads, the hottest path, help by place.

use super::fixture::{Doing, PID, Script};
use super::graph::pricing;
use super::*;

fn live(width: u16, height: u16) -> Live {
    let mut live = Live::new(width, height, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(pricing().run(40 * SECOND).snapshot())));
    live
}

#[test]
fn a_row_has_a_menu() {
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let screen = live(width, height).press("/price<enter>:").screen();
        golden(&format!("menu-{width}x{height}.txt"), &screen);
    }
    let focus = |live: &Live| {
        live.app.settings().filters.focus.active().map(|focus| focus.as_str().to_owned())
    };
    let mut live = live(80, 24);
    live.press("/price<enter>:<enter>");
    assert_eq!(focus(&live).as_deref(), Some("^price$"));
    // A letter chooses, too; what was ignored before stays ignored.
    live.press("/tax<enter>:x/round<enter>:x");
    let ignore = live.app.settings().filters.ignore.active().map(|of| of.as_str().to_owned());
    assert_eq!(ignore.as_deref(), Some("^tax$|^round$"));
    assert!(!live.screen().contains("tax :"), "{}", live.screen());
    assert!(live.press(":z").screen().contains("no such key here"), "{}", live.screen());
    live.press("<esc>");
    // A group has threads, and no code.
    live.press("1g:");
    assert!(live.screen().contains("only this group") && !live.screen().contains("focus:"));
    live.press("<enter>");
    let threads = live.app.settings().filters.threads.active().map(|of| of.as_str().to_owned());
    assert_eq!(threads.as_deref(), Some("^main$"));
    // In the methods all threads are summed up.
    live.press("2:");
    assert!(!live.screen().contains("only this group"), "{}", live.screen());
    live.press("g");
    assert!(live.screen().contains("OF IT%"), "the graph:\n{}", live.screen());
    let screen = live.press("2:s").screen();
    assert!(screen.contains("SOURCE OF") || screen.contains("INSTRUCTIONS OF"), "{screen}");
}

#[test]
fn keys_make_no_pattern_that_the_configuration_file_would_refuse() {
    let name: &'static str = "f".repeat(4096).leak();
    let script =
        Script { pid: PID, name: "worker".into(), doing: Box::new(move |_| Doing::Runs(name)) };
    let mut live = Live::new(80, 24, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(World::new(vec![script]).run(10 * SECOND).snapshot())));
    for keys in ["Cg<right>jA", "I", ":f", ":x", ":h"] {
        live.press(keys);
        assert!(live.screen().contains("too long"), "{keys}:\n{}", live.screen());
    }
    let settings = live.app.settings();
    assert!(settings.whose.is_empty() && settings.idle_at.is_empty());
    let filters = &settings.filters;
    assert!([&filters.focus, &filters.ignore, &filters.hide].iter().all(|of| of.value.is_none()));
}

#[test]
fn names_complete_a_filter() {
    let mut live = Live::shop(80, 24);
    live.press("fj<enter>pric<tab>");
    assert!(live.screen().contains("^shop::Pricing::round$"), "{}", live.screen());
    assert!(live.screen().contains("names that match"), "{}", live.screen());
    live.press("<esc>jjjjj<enter>WORK<tab><enter>");
    let threads = live.app.settings().filters.threads.active().map(|of| of.as_str().to_owned());
    assert_eq!(threads.as_deref(), Some(r"^worker\-$"));
    // What is no row, and what the filter hides, was seen too.
    live.press("<esc>fj<enter>pthread_mu<tab><enter>");
    let focus = live.app.settings().filters.focus.active().map(|of| of.as_str().to_owned());
    assert_eq!(focus.as_deref(), Some("^pthread_mutex_lock$"));
    live.press("<esc>fjjjjjj<enter><c-u>exec-9<tab><enter>");
    let threads = live.app.settings().filters.threads.active().map(|of| of.as_str().to_owned());
    assert_eq!(threads.as_deref(), Some(r"^http\-nio\-exec\-9$"));
}

#[test]
fn rules_for_names_show_what_they_make() {
    let typed = "T<enter>s/^(http-nio-exec|worker)-$/serving/";
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let screen = Live::shop(width, height).press(typed).screen();
        golden(&format!("rules-{width}x{height}.txt"), &screen);
    }
    let mut live = Live::shop(80, 24);
    live.press(typed);
    assert!(!live.app.settings().rename.iter().any(|_| true), "it is only typed");
    live.press("<enter><esc>");
    assert!(live.screen().contains("serving"), "{}", live.screen());
    assert!(live.screen().contains("16 threads"), "{}", live.screen());
    // A wrong rule is refused, and rules can be taken back.
    assert!(live.press("TG<enter><c-u>x<enter>").screen().contains("s/REGEX/TEXT/"));
    live.press("<esc>g<del><esc>");
    assert!(!live.screen().contains("serving"), "{}", live.screen());
    // Any size can be drawn.
    for (width, height) in [(1, 1), (20, 5), (40, 10), (80, 3)] {
        Live::shop(width, height).press("T").buffer();
        Live::shop(width, height).press(":").buffer();
    }
}

#[test]
fn the_cursor_follows_the_hottest_path() {
    let mut world = pricing();
    let mut live = Live::new(80, 24, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(20 * SECOND).snapshot())));
    live.press("F");
    let hottest = live.selected();
    assert!(live.screen().contains("follows the hottest path"), "{}", live.screen());
    assert!(hottest.contains("format"), "the widest end:\n{}", live.screen());
    live.send(Input::Snapshot(Arc::new(world.run(SECOND).snapshot())));
    assert!(live.selected().contains("format"), "{}", live.screen());
    // Another metric or order has another hottest row; a movement ends it.
    live.press("k");
    let stays = live.selected();
    live.send(Input::Snapshot(Arc::new(world.run(SECOND).snapshot())));
    assert_eq!(live.selected().split_whitespace().last(), stays.split_whitespace().last());
    let before = live.selected();
    assert!(live.press("FF").screen().contains("where it was"), "{}", live.screen());
    assert_eq!(live.selected(), before);
    live.press("2jjF");
    assert!(live.selected().contains("main"), "the first method:\n{}", live.screen());
}

#[test]
fn help_is_about_the_place() {
    let page = |keys: &str| Live::shop(120, 200).press(keys).press("?").screen();
    let flame = page("4");
    assert!(flame.contains("the bar to the left") && !flame.contains("one column back in time"));
    let timeline = page("6");
    assert!(timeline.contains("one column back in time") && !timeline.contains("the bar to"));
    assert!(page("").contains("collapse the row") && !flame.contains("collapse the row"));
    golden("help-flame-80x24.txt", &Live::shop(80, 24).press("4?").screen());
}

#[test]
fn the_first_start_names_five_keys_once() {
    let config = AppConfig { first_start: true, ..AppConfig::default() };
    let mut live = Live::new(80, 24, config);
    live.send(Input::Snapshot(shop()));
    assert!(live.screen().contains("first keys: Enter opens"), "{}", live.screen());
    assert!(!live.press("j").screen().contains("first keys"), "{}", live.screen());
    // The list of processes has others; the view that it leads to has these.
    let config = AppConfig { first_start: true, pick: true, ..AppConfig::default() };
    let mut live = Live::new(80, 24, config);
    let process = ProcessRow { pid: 7, command: "shop".into(), ..ProcessRow::default() };
    live.send(Input::Processes(vec![process.clone(), ProcessRow { pid: 8, ..process }]));
    assert!(!live.screen().contains("first keys"), "{}", live.screen());
    live.press("<down><enter>").send(Input::Snapshot(shop()));
    assert!(live.screen().contains("first keys: Enter opens"), "{}", live.screen());
}
