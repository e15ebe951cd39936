//! Going to a part of history: the time cursor, and ranges that are typed.

use sampletop::app::history_line::HistoryLine;
use sampletop::model::projection::settings::Range;

use super::fixture::{Does, Doing, EPOLL_WAIT, FSYNC, PID, Script};
use super::*;

/// The second of the session in which all requests wait for the disk, for 200 ms.
pub const HICCUP: u64 = 60;

/// A service that was observed for 130 s: four threads that mostly wait for requests.
pub fn service() -> World {
    let thread = |n: u64| -> Does {
        Box::new(move |tick| match tick {
            _ if (20 * HICCUP + 5..20 * HICCUP + 9).contains(&tick) => Doing::Waits {
                call: FSYNC,
                fd: 3,
                stack: "clone3;start_thread;shop::serve:40;shop::Journal::commit:88;fsync",
                wait: 7_000_000,
            },
            _ if (tick + n).is_multiple_of(4) => {
                Doing::Runs("clone3;start_thread;shop::serve:40;shop::render:12")
            }
            _ => Doing::Waits {
                call: EPOLL_WAIT,
                fd: 9,
                stack: "clone3;start_thread;shop::serve:31;epoll_wait",
                wait: (tick + n) / 4 + 1,
            },
        })
    };
    let script = |n| Script { pid: PID, name: format!("serve-{n}"), doing: thread(n) };
    World::new((0..4).map(script).collect())
}

fn live(width: u16, height: u16) -> (World, Live) {
    let mut world = service();
    let mut live = Live::new(width, height, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(130 * SECOND).snapshot())));
    (world, live)
}

/// Returns the shown range in seconds of the session.
fn range(live: &Live) -> (u64, u64) {
    let (from, till) = live.shown_range();
    (from / SECOND, till / SECOND)
}

#[test]
fn a_hiccup_of_a_minute_ago_is_opened_with_two_keys() {
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let (_, mut live) = live(width, height);
        assert!(!live.screen().contains("commit"), "{}", live.screen());
        live.press("{");
        golden(&format!("time-cursor-{width}x{height}.txt"), &live.screen());
        live.press("<enter>");
        assert_eq!(range(&live), (HICCUP, HICCUP + 1));
        assert!(live.screen().contains("commit"), "{}", live.screen());
        golden(&format!("hiccup-{width}x{height}.txt"), &live.screen());
    }
}

#[test]
fn the_cursor_goes_by_seconds_windows_and_peaks() {
    let (_, mut live) = live(120, 40);
    let words = |live: &Live| live.line(2);
    live.press(",");
    let last = words(&live);
    assert!(last.contains(" busy 1.0"), "{last}");
    // It shows nothing by itself.
    assert!(matches!(live.app.settings().range, Range::Rolling(_)));
    live.press(",");
    let before = words(&live);
    assert_ne!(before, last);
    assert_eq!(words(live.press(".")), last);
    assert_eq!(words(live.press("....,")), last, "the newest bucket is the last");
    live.press("(");
    live.press(")");
    assert_eq!(words(&live), last);
    assert_eq!(words(live.press("(((((((((,,,")), words(live.press(",")), "the oldest bucket");
    // From there the hiccup is later, and the only peak.
    let (earlier, at) = (words(live.press("{")), words(live.press("}")));
    assert_ne!(earlier, at);
    assert!(at.contains("wait 200 ms") || at.contains("wait 250 ms"), "{at}");
    assert_eq!(words(live.press("}")), at);
    assert!(live.screen().contains("nothing later stands out"), "{}", live.screen());
    assert_eq!(words(live.press("{")), at);
    assert!(live.screen().contains("nothing earlier stands out"), "{}", live.screen());
    // Esc removes it, and no search.
    assert!(words(live.press("<esc>")).contains("busy threads 0-"));
    assert!(matches!(live.app.settings().range, Range::Rolling(_)));
}

#[test]
fn the_range_goes_with_the_cursor_once_it_is_shown() {
    let (mut world, mut live) = live(120, 40);
    live.press("{<enter>,");
    assert_eq!(range(&live), (HICCUP - 1, HICCUP));
    assert!(live.line(0).contains("PAST"), "{}", live.screen());
    // Time goes on, and the range stays. Enter is for rows again.
    live.send(Input::Snapshot(Arc::new(world.run(5 * SECOND).snapshot())));
    live.press("<enter>..");
    assert_eq!(range(&live), (HICCUP + 1, HICCUP + 2));
    live.press("(");
    assert_eq!(range(&live), (HICCUP - 29, HICCUP - 28));
    // Live again, also from a frozen screen.
    live.press(" L");
    assert!(!live.app.is_frozen());
    assert_eq!(live.app.settings().range, Range::Rolling(30 * SECOND));
    assert!(live.line(0).contains("LIVE") && live.line(2).contains("now"));
    // Any other range ends it.
    live.press("{<enter>r");
    assert!(live.line(2).contains("busy threads 0-"), "{}", live.screen());
}

#[test]
fn a_range_of_the_past_tells_nothing_of_now() {
    let (_, mut live) = live(120, 40);
    assert!(live.line(1).contains("idle"), "{}", live.screen());
    live.press("{<enter>");
    let threads = live.line(1);
    assert!(threads.contains("on average 1.6 busy: 0.8 run, 0.8 io"), "{threads}");
    for row in 0..6 {
        assert!(!live.screen().contains(" now "), "row {row}:\n{}", live.screen());
        live.press("j");
    }
    // What is saved knows it, nevertheless.
    live.press("x");
    let saved = live.effects.iter().rev().find_map(|effect| match effect {
        Effect::Export { snapshot, .. } => Some(snapshot.threads.len()),
        _ => None,
    });
    assert_eq!(saved, Some(4));
    // The last second is now.
    live.press("w<c-u>-1s..now<enter>");
    assert!(live.line(0).contains("LIVE"), "{}", live.screen());
}

#[test]
fn a_typed_range_is_shown_by_the_wall_clock() {
    let (_, mut live) = live(120, 40);
    live.press("w<c-u>-71s +3s<enter>");
    let (from, till) = range(&live);
    assert_eq!((from, till), (59, 62));
    assert!(live.screen().contains("commit"), "{}", live.screen());
    // It is proposed as a moment and a length.
    live.press("w");
    assert!(live.screen().contains(" +3s"), "{}", live.screen());
    live.press("<c-u>-2h +5s<enter>");
    assert!(live.screen().contains("history begins at"), "{}", live.screen());
    live.press("<esc>");
    assert_eq!(range(&live), (59, 62));
}

#[test]
fn a_range_of_milliseconds_is_exact() {
    let (_, mut live) = live(120, 40);
    live.press("w<c-u>-69.75s +200ms<enter>");
    let target = live.line(0);
    assert!(target.contains("PAST") && target.contains("14:04:10.250 +200 ms"), "{target}");
    // All four threads waited for the disk, and did nothing else.
    let threads = live.line(1);
    assert!(threads.contains("on average 4.0 busy: 4.0 io"), "{threads}");
    assert!(live.screen().contains("commit") && !live.screen().contains("render"));
    // Just before that they served requests.
    live.press("w<c-u>-69.8s..-69.75s<enter>");
    assert!(live.line(0).contains("14:04:10.200 +50 ms"), "{}", live.screen());
    assert!(live.screen().contains("render") && !live.screen().contains("commit"));
    // It is proposed as it is read.
    live.press("w");
    assert!(live.screen().contains("14:04:10.2 +50ms"), "{}", live.screen());
}

/// The history line, in columns, while the hiccup is shown.
fn bar_with_range(live: &mut Live) -> String {
    let bar = live.press("L{<enter>").line(2);
    bar.chars().map(|c| if c.is_ascii() { c } else { '#' }).collect()
}

#[test]
fn a_click_on_the_history_line_shows_the_busiest_second_there() {
    let (_, mut live) = live(80, 24);
    let geometry = HistoryLine::new(&live.app).expect("room");
    let bar = live.screen().lines().nth(2).expect("the line").to_string();
    // Each column of the bars is of a cell, and each cell has one.
    let mut cells: Vec<u64> = Vec::new();
    for column in 0..80 {
        live.send(Input::Mouse(Mouse { kind: MouseKind::Press, column, row: 2 }));
        if let Range::Between { .. } = live.app.settings().range {
            let cell = geometry.cell_of_second(range(&live).0).expect("on the line");
            cells.push(cell);
            live.press("L");
        }
    }
    cells.dedup();
    let with_seconds = (0..geometry.cells).filter(|c| geometry.seconds_of_cell(*c).is_some());
    assert_eq!(cells, with_seconds.collect::<Vec<_>>(), "{bar}");
    // Also beside and on the brackets of a range in the middle.
    let cell_under = |live: &mut Live, column| {
        live.press("L{<enter>");
        let press = Mouse { kind: MouseKind::Press, column, row: 2 };
        live.send(Input::Mouse(press));
        geometry.cell_of_second(range(live).0)
    };
    let open = bar_with_range(&mut live).find('[').expect("a bracket") as u16;
    let cell = geometry.cell_of_second(HICCUP).expect("on the line");
    let cells =
        [-1, 0, 1, 2, 3].map(|beside| cell_under(&mut live, open.saturating_add_signed(beside)));
    assert_eq!(cells, [cell - 1, cell, cell, cell, cell + 1].map(Some));
    live.press("L");
    let hiccup = (0..80).find(|column| {
        let press = Mouse { kind: MouseKind::Press, column: *column, row: 2 };
        live.press("L").send(Input::Mouse(press));
        matches!(live.app.settings().range, Range::Between { .. })
            && geometry.cell_of_second(range(&live).0) == Some(cell)
    });
    assert!(hiccup.is_some());
    assert_eq!(range(&live), (HICCUP, HICCUP + 1));
}

#[test]
fn the_range_from_before_comes_back() {
    let (_, mut live) = live(120, 40);
    let all = Range::Cumulative { since: None };
    live.press("r{<enter>,,L");
    assert_eq!(live.app.settings().range, all);
    // A click, too, and a range that is proposed is the shown one.
    live.press("{<enter>");
    let shown = live.app.settings().range;
    live.press("w<enter>");
    assert_eq!(live.app.settings().range, shown);
    live.press("L");
    assert_eq!(live.app.settings().range, all);
}

/// After ten minutes buckets are ten seconds wide, wider than this window.
#[test]
fn every_step_leaves_its_bucket_where_buckets_are_wide() {
    let mut world = service();
    let mut live = Live::new(120, 40, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(800 * SECOND).snapshot())));
    live.press("w<c-u>5s<enter>w<c-u>-780s +1s<enter>,<enter>");
    let mut before = range(&live);
    for key in ["(", ")", ")", ")", "}", "{", ",", "."] {
        live.press(key);
        let now = range(&live);
        let stuck = now == before && !live.screen().contains("stands out");
        assert!(!stuck, "{key} stands still at {now:?}");
        before = now;
    }
    assert_eq!(before.1 - before.0, 10);
}
