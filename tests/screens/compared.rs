//! Tree and methods compared with a baseline: a range of the session, or a saved profile.

use sampletop::app::baseline::Baseline;
use sampletop::model::facts::snapshot::Target;
use sampletop::model::projection::settings::Range;

use super::fixture::{Does, Doing, EPOLL_WAIT, PID, RECVFROM, Script};
use super::*;

/// The tick from which the service runs another release.
const RELEASE: u64 = 800;

/// A service whose second release renders faster, computes discounts, and has no legacy code.
fn service() -> World {
    service_of(|n| format!("serve-{n}"))
}

/// The same, with other names of its threads.
pub fn service_of(name: impl Fn(u64) -> String) -> World {
    let thread = |n: u64| -> Does {
        Box::new(move |tick| {
            let is_new = tick >= RELEASE;
            let stack = match ((tick * 7 + n * 3) % 10, is_new) {
                (0..4, false) | (0..2, true) => {
                    "clone3;start_thread;shop::serve:40;shop::render:12;shop::Template::fill:9"
                }
                (4..7, false) | (2..5, true) => {
                    "clone3;start_thread;shop::serve:41;shop::search:77"
                }
                (7, false) => "clone3;start_thread;shop::serve:42;shop::legacy::convert:5",
                (5..8, true) => {
                    "clone3;start_thread;shop::serve:43;shop::discount:31;shop::Rule::applies:8"
                }
                _ => {
                    return Doing::Waits {
                        call: RECVFROM,
                        fd: 37,
                        stack: "clone3;start_thread;shop::serve:44;shop::Db::query:3;recv",
                        wait: tick,
                    };
                }
            };
            Doing::Runs(stack)
        })
    };
    let idle: Does = Box::new(|_| Doing::Waits {
        call: EPOLL_WAIT,
        fd: 9,
        stack: "clone3;start_thread;shop::accept:7;epoll_wait",
        wait: 1,
    });
    let script = |n| Script { pid: PID, name: name(n), doing: thread(n) };
    let accept = Script { pid: PID, name: "accept".into(), doing: idle };
    World::new((0..4).map(script).chain([accept]).collect())
}

/// Both releases, 40 s each; the first is kept as the baseline.
pub fn released(width: u16, height: u16) -> (World, Live) {
    let mut world = service();
    let mut live = Live::new(width, height, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(40 * SECOND).snapshot())));
    live.press("M");
    assert!(live.screen().contains("the baseline is"), "{}", live.screen());
    live.send(Input::Snapshot(Arc::new(world.run(40 * SECOND).snapshot())));
    (world, live)
}

/// The row of a function, in columns.
fn row(live: &Live, name: &str) -> String {
    let screen = live.screen();
    let row = screen.lines().skip(6).find(|line| line.contains(name));
    row.unwrap_or_else(|| panic!("{name}:\n{screen}")).to_owned()
}

/// The figures of a row: its share now, the difference, and its share before.
fn figures(live: &Live, name: &str) -> [String; 3] {
    let row = row(live, name);
    let mut words = row.split_whitespace().map(str::to_owned);
    std::array::from_fn(|_| words.next().expect("three figures"))
}

#[test]
fn what_a_release_changed_is_seen_at_every_size() {
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let (_, mut live) = released(width, height);
        live.press("=");
        golden(&format!("compared-{width}x{height}.txt"), &live.screen());
        assert!(live.line(0).contains("DIFF"), "{}", live.screen());
        assert!(live.line(0).contains("14:04:00-14:04:30 against 14:03:20-14:03:50"));
        golden(&format!("compared-methods-{width}x{height}.txt"), &live.press("2").screen());
    }
    golden("compared-40x10.txt", &released(40, 10).1.press("=").screen());
}

#[test]
fn rows_have_both_shares_and_their_difference() {
    let (_, mut live) = released(120, 40);
    live.press("=2");
    assert_eq!(figures(&live, "discount"), ["30.0", "+30.0", "."]);
    assert_eq!(figures(&live, "legacy"), [".", "-10.0", "10.0"]);
    assert_eq!(figures(&live, "search"), ["30.0", "0.0", "30.0"]);
    // The largest difference of self time can come first, and any other order.
    live.press("s");
    assert!(live.line(5).contains("▾SELF+/-"), "{}", live.screen());
    assert!(live.line(6).contains("applies"), "{}", live.screen());
    live.press("s");
    assert!(live.line(5).contains("▾+/-"), "{}", live.screen());
    let forward = live.press("<lt>").screen();
    assert!(live.line(5).contains("▾BUSY%"), "{forward}");
    live.press("R");
    assert!(live.line(5).contains("▴BUSY%"), "{}", live.screen());
    live.send(Input::Mouse(Mouse { kind: MouseKind::Press, column: 22, row: 5 }));
    assert!(live.line(5).contains("▴BEFORE") || live.line(5).contains("▾BEFORE"));
    // What is settled here does not change the order without a comparison.
    assert!(live.press("=").screen().contains("▾BUSY%"), "{}", live.screen());
}

#[test]
fn the_line_below_says_it_in_words() {
    let (_, mut live) = released(120, 40);
    live.press("=2/discount<enter>");
    assert!(
        live.screen().contains("> before 0.0 %, now 30.0 %: +30.0 points, "),
        "{}",
        live.screen()
    );
    live.press("/search<enter>");
    assert!(
        live.screen().contains("> before 30.0 %, now 30.0 %: no difference"),
        "{}",
        live.screen()
    );
}

#[test]
fn a_range_does_not_differ_from_itself() {
    let (_, mut live) = released(120, 40);
    live.press("M=");
    assert!(live.screen().contains("14:04:00-14:04:30 against 14:04:00-14:04:30"));
    for keys in ["E", "2", "i", "m", "m", "m", "t", "bb", "o", "o"] {
        let screen = live.press(keys).screen();
        let rows = screen.lines().skip(6).take_while(|line| !line.is_empty());
        for row in rows {
            assert!(!row.contains(['+', '~']) || row.contains("below 0.5 %"), "{keys}: {screen}");
        }
    }
}

/// The shop does at all times what it did before: what differs came by chance.
#[test]
fn what_may_be_due_to_sampling_is_marked() {
    let mut world = World::shop();
    let mut live = Live::new(120, 40, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(40 * SECOND).snapshot())));
    live.press("M");
    live.send(Input::Snapshot(Arc::new(world.run(37 * SECOND).snapshot())));
    golden("compared-chance-120x40.txt", &live.press("=").screen());
    golden("compared-chance-methods-120x40.txt", &live.press("2").screen());
}

#[test]
fn again_leaves_the_comparison() {
    let (_, mut live) = released(120, 40);
    let before = live.press("<down>").screen();
    live.press("=");
    assert_ne!(live.screen(), before);
    live.press("=");
    assert!(live.screen().contains("= compares again"), "{}", live.screen());
    assert_eq!(live.press("<esc>").screen(), before);
    // Without a baseline it says how to get one.
    assert!(Live::shop(80, 24).press("=").screen().contains("M keeps the shown range"));
    // Another one takes its place, and is compared with at once.
    live.press("=M");
    assert!(live.screen().contains("instead of the one before"), "{}", live.screen());
    assert!(live.screen().contains("14:04:00-14:04:30 against 14:04:00-14:04:30"));
}

#[test]
fn the_tree_is_walked_as_without_a_comparison() {
    let (mut world, mut live) = released(120, 40);
    live.press("=");
    let open = live.press("<esc>").screen();
    live.press("C");
    let closed = live.screen();
    assert_ne!(closed, open);
    assert_eq!(live.press("C").screen(), open);
    live.press("/legacy<enter>");
    let selected = live.selected();
    assert!(selected.contains("legacy"), "{}", live.screen());
    // The cursor stays on its row, also if there is no time in it now.
    live.send(Input::Snapshot(Arc::new(world.run(5 * SECOND).snapshot())));
    assert!(live.selected().contains("legacy"), "{}", live.screen());
    live.press("<left>");
    assert!(!live.selected().contains("legacy"), "{}", live.screen());
    live.press("<left>");
    assert!(!live.screen().contains("discount"), "{}", live.screen());
    live.press("<right>");
    assert!(live.screen().contains("discount"), "{}", live.screen());
}

#[test]
fn search_finds_rows_that_are_closed() {
    let (_, mut live) = released(120, 40);
    live.press("=C");
    assert!(!live.screen().contains("legacy"), "{}", live.screen());
    live.press("/legacy<enter>");
    assert!(live.selected().contains("legacy"), "{}", live.screen());
    // Of several, one after the other, and around the end.
    live.press("C/shop::S?|Db<enter>");
    let mut names = Vec::new();
    for _ in 0..4 {
        names.push(live.selected());
        live.press("n");
    }
    assert!(names[0] != names[1] && names[1] != names[2], "{names:?}");
    let here = live.selected();
    live.press("n");
    assert_ne!(live.selected(), here);
    assert_eq!(live.press("N").selected(), here);
    assert!(live.press("/nowhere<enter>").screen().contains("no match"), "{}", live.screen());
    assert_eq!(live.selected(), here);
}

#[test]
fn settings_apply_to_both_sides() {
    let (_, mut live) = released(120, 40);
    live.press("=2m");
    // Of cpu time the wait is no part.
    assert_eq!(figures(&live, "search"), ["37.5", "0.0", "37.5"]);
    live.press("mm");
    assert_eq!(figures(&live, "search"), ["30.0", "0.0", "30.0"]);
    // Without the legacy code, what was the other 90 % is all.
    live.press("fj");
    live.press("j<enter>legacy<enter><esc>");
    assert_eq!(figures(&live, "search")[2], "33.3", "{}", live.screen());
    assert!(!live.screen().contains("convert"), "{}", live.screen());
}

#[test]
fn views_without_differences_say_so() {
    let (_, mut live) = released(120, 40);
    live.press("=");
    for key in ["5", "7", "3"] {
        let screen = live.press(key).screen();
        assert!(screen.contains("of the shown range alone"), "{key}: {screen}");
        assert!(!screen.contains("DIFF"), "{key}: {screen}");
    }
    assert!(live.press("1").screen().contains("DIFF"));
    assert!(live.press("<tab>").screen().contains("DIFF"));
    // The graph of a function that has no time now would be that of another.
    let screen = live.press("/legacy<enter><enter>").screen();
    assert!(screen.contains("in which this function has no time"), "{screen}");
    assert!(!live.press("/discount<enter><enter>").screen().contains("DIFF"));
}

#[test]
fn a_saved_profile_is_compared_with_from_the_start() {
    let mut world = service();
    let before = Arc::new(world.run(40 * SECOND).snapshot());
    // Another process, of the next day.
    let mut world = service();
    world.run(40 * SECOND);
    let mut after = world.run(40 * SECOND).snapshot();
    let mut session = (*after.session).clone();
    session.started_unix_ns += 86_400_000_000_000;
    after.session = Arc::new(session);
    for (width, height) in [(80, 24), (120, 40)] {
        let against = Baseline {
            snapshot: before.clone(),
            range: Range::Cumulative { since: None },
            file: Some("yesterday.sampletop".into()),
        };
        let config = AppConfig { against: Some(against), ..AppConfig::default() };
        let mut live = Live::new(width, height, config);
        live.send(Input::Snapshot(Arc::new(after.clone())));
        golden(&format!("against-{width}x{height}.txt"), &live.screen());
        assert!(live.line(0).contains("against yesterday.sampletop, 2026-03-14 14:03"));
    }
}

/// A session with process `PID`, picked from the list.
fn pick(live: &mut Live) {
    let row = ProcessRow { pid: PID, command: "shop".into(), ..ProcessRow::default() };
    live.send(Input::Processes(vec![row]));
    live.press("<down><enter>");
    assert!(live.screen().contains("attaching"), "{}", live.screen());
}

/// Ends the session; the list of processes follows.
fn leave(live: &mut Live) {
    live.press("<esc>y");
    assert!(matches!(live.effects.last(), Some(Effect::Detach)), "{:?}", live.effects);
    live.send(Input::Detached);
}

#[test]
fn another_process_is_not_compared_with_a_range_of_the_one_before() {
    let mut live = Live::new(120, 40, AppConfig { pick: true, ..AppConfig::default() });
    pick(&mut live);
    let before = Arc::new(service().run(40 * SECOND).snapshot());
    let baseline = Arc::downgrade(&before);
    live.send(Input::Snapshot(before));
    live.press("M=");
    assert!(live.line(0).contains("DIFF"), "{}", live.screen());
    leave(&mut live);
    pick(&mut live);
    live.send(Input::Snapshot(shop()));
    assert!(live.line(0).contains("LIVE"), "{}", live.screen());
    assert!(live.press("=").screen().contains("there is no baseline"), "{}", live.screen());
    assert!(baseline.upgrade().is_none(), "the facts of the process before are kept");
}

#[test]
fn another_process_is_compared_with_the_same_file() {
    let against = Baseline {
        snapshot: Arc::new(service().run(40 * SECOND).snapshot()),
        range: Range::Cumulative { since: None },
        file: Some("yesterday.sampletop".into()),
    };
    let config = AppConfig { pick: true, against: Some(against), ..AppConfig::default() };
    let mut live = Live::new(120, 40, config);
    for keys in ["", "="] {
        pick(&mut live);
        live.send(Input::Snapshot(Arc::new(service().run(40 * SECOND).snapshot())));
        assert!(live.line(0).contains("against yesterday.sampletop"), "{}", live.screen());
        live.press(keys);
        leave(&mut live);
    }
    // The user has left the comparison.
    pick(&mut live);
    live.send(Input::Snapshot(shop()));
    assert!(live.line(0).contains("LIVE"), "{}", live.screen());
    assert!(live.press("=").line(0).contains("against yesterday.sampletop"));
}

#[test]
fn the_header_keeps_its_word_for_a_state_that_is_not_live() {
    for width in [40, 80, 120] {
        let (mut world, mut live) = released(width, 24);
        live.press("=");
        assert!(live.line(0).contains("DIFF") && !live.line(0).contains("LIVE"));
        live.press(" ");
        assert!(live.line(0).contains("FROZEN DIFF"), "{}", live.screen());
        live.press(" ,,<enter>");
        assert!(live.line(0).contains("PAST DIFF"), "{}", live.screen());
        live.press("L");
        let mut last = world.run(SECOND).snapshot();
        let at = last.at;
        let ended = |target: &Target| Target { ended: Some(at), ..target.clone() };
        last.targets = last.targets.iter().map(ended).collect();
        live.send(Input::Snapshot(Arc::new(last)));
        assert!(live.line(0).contains("EXITED DIFF"), "{}", live.screen());
    }
    let (mut world, _) = released(80, 24);
    let config = AppConfig { saved: true, ..AppConfig::default() };
    let mut live = Live::new(80, 24, config);
    live.send(Input::Snapshot(Arc::new(world.snapshot())));
    assert!(live.press("M=").line(0).contains("SAVED DIFF"), "{}", live.screen());
}

/// A comparison names threads and processes without their numbers.
#[test]
fn a_row_is_that_of_its_thread_in_the_other_views() {
    let (_, mut live) = released(120, 40);
    live.press("tt=C/serve-2<enter>");
    assert!(live.selected().contains("serve-2"), "{}", live.screen());
    let screen = live.press("6").screen();
    assert!(screen.contains("serve-2") && !screen.contains("serve-0"), "{screen}");
    // A call has the lines of its own thread.
    live.press("1<right>/Template::fill<enter>:");
    assert!(live.screen().contains("threads: only this group"), "{}", live.screen());
    // By process, too.
    live.press("<esc>tCg:");
    assert!(live.screen().contains("threads: only this group"), "{}", live.screen());
}

/// One thread, which uses a whole core.
#[test]
fn the_row_of_a_sentence_is_found_in_a_comparison() {
    let doing: Does = Box::new(|_| Doing::Runs("clone3;spin::first:3;spin::turn:5"));
    let mut world = World::new(vec![Script { pid: PID, name: "spin-1".into(), doing }]);
    let mut live = Live::new(120, 40, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(40 * SECOND).snapshot())));
    live.press("Mtt=C");
    assert!(!live.screen().contains("spin::first"), "{}", live.screen());
    live.press("!");
    assert!(live.selected().contains("spin::turn"), "{}", live.screen());
}

/// What a search opened is closed by the next key that closes all.
#[test]
fn after_a_search_all_can_be_closed() {
    let (_, mut live) = released(120, 40);
    let closed = live.press("=C").screen();
    assert!(!closed.contains("Template::fill"), "{closed}");
    live.press("/Template::fill<enter>");
    assert!(live.selected().contains("Template::fill"), "{}", live.screen());
    let screen = live.press("C").screen();
    assert!(!screen.contains("Template::fill"), "{screen}");
}

/// Symbols are read while the baseline is kept already, and the interval is changed then.
#[test]
fn a_baseline_gets_names_that_are_found_later() {
    let mut world = service();
    let mut live = Live::new(120, 40, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(40 * SECOND).unnamed_snapshot())));
    live.press("M");
    let mut named = world.run(40 * SECOND).snapshot();
    let mut session = (*named.session).clone();
    session.interval_ns = 20 * MS;
    named.session = Arc::new(session);
    live.send(Input::Snapshot(Arc::new(named)));
    live.press("=2");
    assert_eq!(figures(&live, "discount"), ["30.0", "+30.0", "."]);
    assert_eq!(figures(&live, "legacy"), [".", "-10.0", "10.0"]);
}
