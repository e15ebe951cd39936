//! The timeline: when threads did what, and zooming from seconds to milliseconds.

use sampletop::model::projection::settings::Range;

use super::fixture::{Does, Doing, EPOLL_WAIT, FUTEX, MS, PID, RECVFROM, Script};
use super::*;

/// A service that was observed for 40 s. Two handlers parse for 100 ms and wait 150 ms for a lock;
/// one renders for 50 ms and receives for 200 ms; a pool waits for work.
fn service() -> World {
    let waits = |call, fd, stack, wait| Doing::Waits { call, fd, stack, wait };
    let handler = move |shift: u64| -> Does {
        Box::new(move |tick| match (tick + shift) % 5 {
            0 | 1 => Doing::Runs("start_thread;shop::serve:40;shop::parse:12"),
            _ => waits(
                FUTEX,
                0,
                "start_thread;shop::serve:41;shop::Cart::add:7;pthread_mutex_lock",
                (tick + shift) / 5 + 1,
            ),
        })
    };
    let reader = move |tick: u64| match tick % 5 {
        0 => Doing::Runs("start_thread;shop::serve:50;shop::render:3"),
        _ => waits(RECVFROM, 37, "start_thread;shop::serve:51;recv", tick / 5 + 1),
    };
    let pool = move |_| waits(EPOLL_WAIT, 9, "start_thread;shop::pool::run:71;epoll_wait", 1);
    let all: [(&str, Does); 4] = [
        ("handler-1", handler(0)),
        ("handler-2", handler(2)),
        ("handler-3", Box::new(reader)),
        ("pool-1", Box::new(pool)),
    ];
    World::new(all.map(|(name, doing)| Script { pid: PID, name: name.into(), doing }).into())
}

fn live(width: u16, height: u16) -> (World, Live) {
    let mut world = service();
    let mut live = Live::new(width, height, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(40 * SECOND).snapshot())));
    (world, live)
}

/// Returns the start and the length of the shown range, ms of the session.
fn range(live: &Live) -> (u64, u64) {
    let (from, till) = live.shown_range();
    (from / MS, (till - from) / MS)
}

#[test]
fn the_timeline_shows_when_threads_did_what() {
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let (_, mut live) = live(width, height);
        live.press("6");
        golden(&format!("timeline-{width}x{height}.txt"), &live.screen());
        // Half of the time, five times; then one run before the cursor.
        live.press("+++++<lt>");
        golden(&format!("timeline-zoom-{width}x{height}.txt"), &live.screen());
        live.press("<enter>");
        golden(&format!("timeline-run-{width}x{height}.txt"), &live.screen());
    }
}

#[test]
fn enter_shows_the_time_of_a_run_and_esc_goes_back() {
    let (mut world, mut live) = live(80, 24);
    live.press("w<c-u>-2s +500ms<enter>6");
    assert_eq!(range(&live), (38_000, 500));
    // From 38.0 s on: parse, lock, parse, lock. The cursor is on the last one.
    live.press("<enter>");
    assert_eq!(range(&live), (38_350, 150));
    assert!(live.line(0).contains("+150 ms"), "{}", live.screen());
    // The facts stay while time goes on.
    live.send(Input::Snapshot(Arc::new(world.run(200 * SECOND).snapshot())));
    live.press("<esc>");
    assert_eq!(range(&live), (38_000, 500));
    live.press("<lt><lt><enter>");
    assert_eq!(range(&live), (38_100, 150));
    live.press("<enter>");
    assert!(live.screen().contains("the whole range already"), "{}", live.screen());
    live.press("-");
    assert_eq!(range(&live).1, 300);
    live.press("+");
    assert_eq!(range(&live).1, 150);
    // Live again.
    live.press("L");
    assert!(!live.app.is_frozen());
    assert!(matches!(live.app.settings().range, Range::Rolling(_)), "{}", live.screen());
    live.press("+");
    assert!(live.app.is_frozen());
    live.press("<esc>");
    assert!(!live.app.is_frozen());
    assert!(matches!(live.app.settings().range, Range::Rolling(_)), "{}", live.screen());
}

#[test]
fn esc_goes_back_to_what_was_counted_from_a_moment() {
    let (mut world, mut live) = live(80, 24);
    let before = live.app.settings().range;
    live.press("0");
    live.send(Input::Snapshot(Arc::new(world.run(44 * SECOND).snapshot())));
    let counted = live.app.settings().range;
    live.press("6+<esc>");
    assert_eq!(live.app.settings().range, counted);
    live.press("0");
    assert_eq!(live.app.settings().range, before, "{}", live.screen());
}

#[test]
fn the_cursor_says_what_the_thread_did_at_that_moment() {
    let (_, mut live) = live(120, 40);
    live.press("w<c-u>-2s +500ms<enter>6");
    let explain = |live: &Live| live.line(38);
    assert!(explain(&live).contains("lock in Cart::add"), "{}", live.screen());
    live.press("<lt>");
    let parse = explain(&live);
    assert!(parse.contains("14:03:48.250 run in shop::parse"), "{}", live.screen());
    live.press("<left>");
    assert!(explain(&live).contains("lock in Cart::add"), "{}", live.screen());
    // The column between has more of the lock.
    live.press("<right><right>");
    assert!(explain(&live).contains("run in shop::parse for 100 ms"), "{}", live.screen());
    // Another thread at the same moment.
    live.press("jj");
    assert!(explain(&live).contains("14:03:48.2"), "{}", live.screen());
    assert!(explain(&live).contains("run in shop::render"), "{}", live.screen());
    live.press(">");
    assert!(explain(&live).contains("io in"), "{}", live.screen());
    live.press(">>>>");
    assert!(live.screen().contains("no run after this one"), "{}", live.screen());
}

#[test]
fn what_is_shown_in_detail_stays() {
    let (mut world, mut live) = live(120, 40);
    live.press("w<c-u>-2s +500ms<enter>6");
    let fine = live.line(5);
    assert!(fine.contains("a column is 9.8 ms"), "{fine}");
    // The order is kept for two minutes.
    for _ in 0..13 {
        live.send(Input::Snapshot(Arc::new(world.run(10 * SECOND).snapshot())));
        assert_eq!(live.line(5), fine, "{}", live.screen());
    }
    assert!(live.app.is_frozen());
    assert!(live.screen().contains("is dropped now (L is live again)"), "{}", live.screen());
    live.press("L");
    assert!(!live.app.is_frozen() && live.line(0).contains("LIVE"), "{}", live.screen());
    // Whole seconds in another view are kept for longer.
    live.press("1w<c-u>-4s +1s<enter>");
    for _ in 0..13 {
        live.send(Input::Snapshot(Arc::new(world.run(10 * SECOND).snapshot())));
    }
    assert!(!live.app.is_frozen(), "{}", live.screen());
}

#[test]
fn a_zoom_into_old_time_does_not_widen_it() {
    let (mut world, mut live) = live(120, 40);
    live.send(Input::Snapshot(Arc::new(world.run(150 * SECOND).snapshot())));
    live.press("w<c-u>-160s +1s<enter>6");
    let before = range(&live);
    live.press("+");
    assert_eq!(range(&live), before, "{}", live.screen());
    assert!(live.screen().contains("no shorter parts are kept"), "{}", live.screen());
    // Of several seconds some can be shown alone.
    live.press("w<c-u>-160s +8s<enter>6+");
    let (_, length) = range(&live);
    assert!((1_000..8_000).contains(&length), "{length}");
    assert_eq!(length % 1_000, 0);
}

#[test]
fn search_goes_to_runs_of_a_function_and_to_threads() {
    let (_, mut live) = live(120, 40);
    live.press("w<c-u>-2s +500ms<enter>6");
    // The marked thread, and the first words about the run under the cursor.
    let place = |live: &Live| {
        let screen = live.screen();
        let thread = screen.lines().find_map(|line| line.strip_prefix('>'));
        let thread = thread.and_then(|line| line.split_whitespace().next()).expect("a thread");
        let about = live.line(38);
        let moment = about.split_whitespace().find(|word| word.starts_with("14:03"));
        (thread.to_owned(), moment.expect("a moment").to_owned())
    };
    let mut places = Vec::new();
    live.press("/render<enter>");
    for _ in 0..3 {
        assert!(live.line(38).contains("run in shop::render"), "{}", live.screen());
        places.push(place(&live));
        live.press("n");
    }
    assert_eq!(places[2], places[0], "two runs, in turn");
    assert!(places[0].1 < places[1].1, "{places:?}");
    assert!(places.iter().all(|(thread, _)| thread == "handler-3"), "{places:?}");
    // From the first one of this thread back to the last one of the thread before.
    live.press("/parse<enter>gNNNN");
    while place(&live).0 != "handler-1" {
        live.press("n");
    }
    let first = place(&live);
    assert!(live.line(38).contains("run in shop::parse"), "{}", live.screen());
    live.press("N");
    assert_ne!(place(&live).0, first.0, "{}", live.screen());
    assert!(live.line(38).contains("run in shop::parse"), "{}", live.screen());
    assert_eq!(place(live.press("n")), first);
    // A thread, at the same moment.
    let moment = place(&live).1;
    live.press("/handler-3<enter>");
    assert_eq!(place(&live).0, "handler-3");
    assert_eq!(place(live.press("N")).0, "handler-3", "the only one");
    assert_eq!(place(&live).1, moment);
    assert!(live.press("/nothing<enter>").screen().contains("no match"), "{}", live.screen());
}

#[test]
fn a_zoom_keeps_its_threads_where_they_wait_for_work() {
    let waits = |wait| Doing::Waits {
        call: EPOLL_WAIT,
        fd: 9,
        stack: "start_thread;shop::pool::run:71;epoll_wait",
        wait,
    };
    let hiccup = move |tick: u64| match tick {
        700..704 => Doing::Runs("start_thread;shop::pool::run:72;shop::parse:12"),
        704.. => waits(2),
        _ => waits(1),
    };
    let script = Script { pid: PID, name: "pool-1".into(), doing: Box::new(hiccup) };
    let mut live = Live::new(80, 24, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(World::new(vec![script]).run(40 * SECOND).snapshot())));
    live.press("w<c-u>-6s +2s<enter>6");
    let cells = |live: &Live| live.line(6).chars().skip(22).collect::<String>();
    // 200 ms of two seconds, in columns of 35 ms.
    assert_eq!(cells(&live).trim().matches('r').count(), 7, "{}", live.screen());
    live.press("++");
    assert_eq!(cells(&live).trim(), "·".repeat(57), "{}", live.screen());
    live.press("<esc><esc><lt><enter>");
    assert_eq!((range(&live), cells(&live).trim()), ((35_000, 200), &*"r".repeat(57)));
}

#[test]
fn the_group_is_that_of_the_row_one_came_from() {
    let (_, mut live) = live(80, 24);
    live.press("i5G6");
    assert!(live.screen().contains("pool-1"), "{}", live.screen());
    assert!(!live.screen().contains("handler-1"), "{}", live.screen());
    // Without it, the heaviest.
    live.press("i");
    assert!(live.screen().contains("3 THREADS"), "{}", live.screen());
    assert!(live.screen().contains("handler-1"), "{}", live.screen());
    // From a long wait, at its moment.
    live.press("7j");
    let wait = live.line(22);
    live.press("6");
    assert!(live.screen().contains(">handler-3"), "{wait}{}", live.screen());
}

/// Of more than ten minutes, the older part is kept in buckets of 10 s.
#[test]
fn times_stand_over_their_columns_where_older_ones_are_wider() {
    let doing: Does = Box::new(|tick| match tick / 20 {
        // From second 600 on it renders; before, it parses.
        600.. => Doing::Runs("start_thread;shop::serve:50;shop::render:3"),
        _ => Doing::Runs("start_thread;shop::serve:40;shop::parse:12"),
    });
    let script = Script { pid: PID, name: "handler-1".into(), doing };
    let snapshot = Arc::new(World::new(vec![script]).run(2_400 * SECOND).snapshot());
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let mut live = Live::new(width, height, AppConfig::default());
        live.send(Input::Snapshot(snapshot.clone()));
        live.press("w<c-u>40m<enter>6");
        golden(&format!("timeline-uneven-{width}x{height}.txt"), &live.screen());
        // The cursor on the column under the second time is at that time.
        let ruler = live.line(5);
        let Some((before, rest)) = ruler.split_once(", each ") else { continue };
        let time = before.rsplit(' ').next().expect("a time");
        let column = before.chars().count() - time.len();
        assert!(rest.contains('+'), "{ruler}");
        let cursor = |live: &Live| {
            let buffer = live.buffer();
            (0..live.width).rev().find(|x| buffer[(*x, 6)].modifier.contains(Modifier::UNDERLINED))
        };
        let steps = usize::from(cursor(&live).expect("a cursor")) - column;
        live.press(&"<left>".repeat(steps));
        assert!(live.line(usize::from(height) - 2).contains(time), "{}", live.screen());
    }
}

#[test]
fn a_click_selects_a_thread_and_moves_the_cursor() {
    for width in [80, 120] {
        let mut live = Live::shop(width, 40);
        live.press("6");
        let press = |column, row| Input::Mouse(Mouse { kind: MouseKind::Press, column, row });
        let about = |live: &Live| live.screen().lines().nth(38).expect("a line").to_owned();
        let marked = |live: &Live| -> Vec<String> {
            let lines = live.screen().lines().map(str::to_owned).collect::<Vec<_>>();
            lines.into_iter().filter(|line| line.starts_with('>')).collect()
        };
        live.send(press(5, 7));
        assert!(marked(&live)[0].starts_with(">http-nio-exec-2"), "{}", live.screen());
        let newest = about(&live);
        // The columns begin behind a mark, the name and a space.
        let columns = live.line(5).find("14:03").expect("the clock") as u16;
        live.send(press(columns, 7));
        assert!(about(&live).contains("> 14:03:20.0"), "{newest}\n{}", live.screen());
        // The sequence has no thread.
        let (column, row) = if width == 80 { (20, 36) } else { (100, 10) };
        live.send(press(column, row));
        assert!(marked(&live)[0].starts_with(">http-nio-exec-2"), "{}", live.screen());
        assert!(about(&live).contains("> 14:03:20.0"), "{}", live.screen());
    }
}
