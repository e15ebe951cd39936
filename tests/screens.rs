//! The whole view: keys and snapshots in, the screen out, on a terminal that is only a buffer.
//!
//! Expected screens are in tests/screens/; `INSTA_UPDATE=always cargo test --test screens` writes
//! them.

#[path = "screens/carried.rs"]
mod carried;
#[path = "screens/changed_flame.rs"]
mod changed_flame;
#[path = "screens/compared.rs"]
mod compared;
#[path = "screens/fixture.rs"]
mod fixture;
#[path = "screens/flame.rs"]
mod flame;
#[path = "screens/go.rs"]
mod go;
#[path = "common/golden.rs"]
mod golden;
#[path = "screens/graph.rs"]
mod graph;
#[path = "screens/incidents.rs"]
mod incidents;
#[path = "screens/keys.rs"]
mod keys;
#[path = "screens/live.rs"]
mod live;
#[path = "screens/past.rs"]
mod past;
#[path = "screens/picker.rs"]
mod picker;
#[path = "screens/picture.rs"]
mod picture;
#[path = "screens/python.rs"]
mod python;
#[path = "screens/row_keys.rs"]
mod row_keys;
#[path = "screens/saved.rs"]
mod saved;
#[path = "screens/sort.rs"]
mod sort;
#[path = "screens/source.rs"]
mod source;
#[path = "screens/source_rows.rs"]
mod source_rows;
#[path = "screens/styles.rs"]
mod styles;
#[path = "screens/threads.rs"]
mod threads;
#[path = "screens/time.rs"]
mod time;
#[path = "screens/timeline.rs"]
mod timeline;
#[path = "screens/waits.rs"]
mod waits;
#[path = "screens/wakers.rs"]
mod wakers;

use live::*;
use std::sync::Arc;
use std::time::Duration;

use fixture::{MS, World};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Modifier;
use sampletop::app::key::{Key, Mouse, MouseKind};
use sampletop::app::projectors::Projectors;
use sampletop::app::{AppConfig, AppState, Effect, Input, ProcessRow, Request, Severity};
use sampletop::config::Screen;
use sampletop::model::facts::snapshot::Snapshot;
use sampletop::model::projection::settings::{Grouping, Level, Metric, RollUp, SortColumn};
use sampletop::model::vocabulary::frame::SECOND;
use sampletop::model::vocabulary::host_load::HostLoad;
use sampletop::tui::theme::Theme;

#[test]
fn first_look_at_every_size() {
    for (width, height) in [(80, 24), (120, 40), (200, 60), (100, 30), (40, 10), (20, 5)] {
        golden(&format!("first-{width}x{height}.txt"), &Live::shop(width, height).screen());
    }
}

/// The pictures are what the program draws.
#[test]
fn the_pictures_of_the_documents() {
    let mut live = Live::shop(104, 20);
    live.press("jj<right>j");
    golden::same_as_file("assets/screen.svg", &picture::svg(&live.buffer()));
    // Those of the guide.
    let mut flame = Live::shop(104, 20);
    flame.press("o4jj");
    golden::same_as_file("assets/flame.svg", &picture::svg(&flame.buffer()));
    let mut timeline = Live::shop(104, 20);
    timeline.press("6");
    golden::same_as_file("assets/timeline.svg", &picture::svg(&timeline.buffer()));
    let mut waits = waits::live(104, 20);
    waits.press("7");
    golden::same_as_file("assets/waits.svg", &picture::svg(&waits.buffer()));
}

#[test]
fn every_view_and_page() {
    let mut live = Live::shop(80, 24);
    golden("methods-80x24.txt", &live.press("2s").screen());
    for (width, height) in [(120, 40), (200, 60)] {
        let screen = Live::shop(width, height).press("2s").screen();
        golden(&format!("methods-{width}x{height}.txt"), &screen);
    }
    golden("help-80x24.txt", &live.press("?").screen());
    golden("help-end-80x24.txt", &live.press("G").screen());
    golden("help-40x10.txt", &Live::shop(40, 10).press("?<pgdn>").screen());
    golden(
        "filters-80x24.txt",
        &Live::shop(80, 24).press("fj<enter>Pricing|Tax<enter><down><enter>a(<enter>").screen(),
    );
    golden(
        "filtered-80x24.txt",
        &Live::shop(80, 24).press("fj<enter>Pricing|Tax<enter><esc>").screen(),
    );
    golden("search-80x24.txt", &Live::shop(80, 24).press("/receive<enter>").screen());
    golden("hottest-80x24.txt", &Live::shop(80, 24).press("E").screen());
    golden("unfolded-120x40.txt", &Live::shop(120, 40).press("Eoc").screen());
    golden("by-thread-80x24.txt", &Live::shop(80, 24).press("tt").screen());
    golden("idle-80x24.txt", &Live::shop(80, 24).press("i").screen());
    golden("cpu-lines-120x40.txt", &Live::shop(120, 40).press("PbE").screen());
    golden("by-class-80x24.txt", &Live::shop(80, 24).press("bbE").screen());
    golden("by-module-methods-120x40.txt", &Live::shop(120, 40).press("bbbb2").screen());
    golden("prompt-80x24.txt", &Live::shop(80, 24).press("d<c-u>20s<enter>").screen());
}

#[test]
fn a_virtual_machine() {
    let mut world = World::jvm();
    let snapshot = Arc::new(world.run(40 * SECOND).snapshot());
    let jvm = |width, height| {
        let mut live = Live::new(width, height, AppConfig::default());
        live.send(Input::Snapshot(snapshot.clone()));
        live
    };
    golden("jvm-80x24.txt", &jvm(80, 24).press("EGkk<right><down>").screen());
    golden("jvm-names-120x40.txt", &jvm(120, 40).press("iocE").screen());
    golden("jvm-by-package-80x24.txt", &jvm(80, 24).press("bbbE").screen());
    golden("jvm-own-80x24.txt", &jvm(80, 24).press("i<right><down>").screen());
    // Daemons are switched off, and the screen says how much that hides.
    golden(
        "jvm-no-daemons-80x24.txt",
        &jvm(80, 24).press("f<down><down><down><down><down><down><down> <esc>E").screen(),
    );
    // Nothing has Python's lock.
    let gil = "f<down><down><down><down><down><down><down><down> <esc>E";
    let screen = jvm(80, 24).press(gil).screen();
    assert!(screen.contains("only with the GIL hides 100"), "{screen}");
}

#[test]
fn what_keeps_the_target_from_its_cores_is_told() {
    for (name, mut world, load) in [
        ("busy-host", World::shop(), (97.4, 12.2, 0.0, 4.9)),
        ("quota", World::shop(), (49.0, 0.4, 43.2, 0.0)),
        ("steal", World::shop(), (97.4, 3.0, 0.0, 31.5)),
        ("jvm-busy-host", World::jvm(), (88.0, 3.0, 5.0, 0.0)),
    ] {
        let mut snapshot = world.run(40 * SECOND).snapshot();
        snapshot.health.host = Some(HostLoad {
            cpu_percent: load.0,
            waiting: load.1,
            throttled_percent: load.2,
            stolen_percent: load.3,
            ..HostLoad::default()
        });
        let mut live = Live::new(80, 24, AppConfig::default());
        live.send(Input::Snapshot(Arc::new(snapshot)));
        golden(&format!("{name}-80x24.txt"), &live.screen());
    }
}

#[test]
fn before_anything_is_known() {
    let mut live = Live::new(80, 24, AppConfig::default());
    golden("attaching-80x24.txt", &live.screen());
    live.press("jkEC2 12<tab>smxyirw<esc>d<esc>/a<enter>nN0");
    live.send(Input::Snapshot(Arc::new(World::shop().snapshot())));
    assert!(live.screen().contains("no stacks in this range yet"), "{}", live.screen());
}

#[test]
fn names_that_are_hard_to_draw() {
    for (width, height) in [(80, 24), (40, 10)] {
        let mut live = Live::new(width, height, AppConfig::default());
        live.send(Input::Snapshot(Arc::new(World::foreign().run(5 * SECOND).snapshot())));
        live.press("E<down><down><down><down><down>E");
        golden(&format!("foreign-{width}x{height}.txt"), &live.screen());
    }
}

#[test]
fn functions_of_the_kernel_are_told_apart() {
    let live = |width, height| {
        let mut config = AppConfig::default();
        config.settings.level = Level::Chains;
        let mut live = Live::new(width, height, config);
        live.send(Input::Snapshot(Arc::new(World::system().run(10 * SECOND).snapshot())));
        live
    };
    let mut tree = live(80, 24);
    golden("kernel-80x24.txt", &tree.press("E").screen());
    // Tinted, all of the name.
    let buffer = tree.buffer();
    let screen = tree.screen();
    let (y, line) = screen
        .lines()
        .enumerate()
        .find(|(_, line)| line.contains("copy_to_iter [k]"))
        .expect("a row");
    let end = line.chars().count() as u16;
    let tint = |x: u16| buffer[(x, y as u16)].fg;
    assert!(
        (end - "_copy_to_iter [k]".len() as u16..end)
            .all(|x| tint(x) == ratatui::style::Color::Magenta),
        "{line}"
    );
    golden("kernel-methods-120x40.txt", &live(120, 40).press("2s").screen());
    // Removed by the filters' switch, and shown again.
    let before = tree.screen();
    golden("no-kernel-80x24.txt", &tree.press("fjjjj <esc>").screen());
    assert!(!tree.screen().contains("[k]"), "{}", tree.screen());
    assert_eq!(tree.press("fjjjj <esc>").screen(), before);
}

#[test]
fn deep_stacks_keep_their_names_readable() {
    let mut live = Live::new(80, 60, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(World::deep().run(10 * SECOND).snapshot())));
    golden("deep-80x60.txt", &live.press("E").screen());
}

#[test]
fn ascii_has_only_ascii() {
    let screen = Screen { ascii: true, ..Screen::default() };
    let mut live = Live::new(120, 40, AppConfig { screen, ..AppConfig::default() });
    live.send(Input::Snapshot(shop()));
    golden("ascii-120x40.txt", &live.press("Ef").screen());
    for keys in ["", "<esc>", "?", "?2", "/x"] {
        assert!(live.press(keys).screen().is_ascii(), "after {keys}:\n{}", live.screen());
    }
}

#[test]
fn foreign_names_are_ascii_too_where_nothing_else_can_be_drawn() {
    let screen = Screen { ascii: true, ..Screen::default() };
    let mut live = Live::new(80, 24, AppConfig { screen, ..AppConfig::default() });
    live.send(Input::Snapshot(Arc::new(World::foreign().run(5 * SECOND).snapshot())));
    assert!(live.press("E<down><down><down><down>E").screen().is_ascii(), "{}", live.screen());
    assert!(live.screen().contains('?'), "{}", live.screen());
}

#[test]
fn without_colour_nothing_has_a_colour() {
    let screen = Screen::default();
    let mut live = Live::new(120, 40, AppConfig { screen, ..AppConfig::default() });
    live.send(Input::Snapshot(shop())).send(Input::Notice("trouble".into(), Severity::Error));
    for keys in ["", "Ef", "<esc>2", "?"] {
        live.press(keys);
        let buffer = live.buffer();
        let coloured = |c: &ratatui::buffer::Cell| {
            c.fg != ratatui::style::Color::Reset || c.bg != ratatui::style::Color::Reset
        };
        assert!(!buffer.content().iter().any(coloured), "after {keys}");
    }
}

#[test]
fn any_size_can_be_drawn() {
    let mut live = Live::shop(80, 24);
    let states = [
        "",
        "E",
        "2",
        "M=",
        "1E",
        "=f",
        "<esc>?",
        "?/searching for something",
        "<esc>X",
        "nfj<enter>x<enter>",
    ];
    for keys in states {
        live.press(keys);
        for width in 1..=60 {
            for height in 1..=30 {
                (live.width, live.height) = (width, height);
                live.send(Input::Resize { width, height });
                live.buffer();
            }
        }
        // The program learns of a new size later than the terminal.
        for (width, height) in [(1, 1), (200, 60), (5, 30), (60, 2)] {
            (live.width, live.height) = (width, height);
            live.buffer();
        }
    }
    let mut picker = Live::new(80, 24, AppConfig { pick: true, ..AppConfig::default() });
    let row = |pid| ProcessRow {
        pid,
        user: "u".into(),
        command: "command".into(),
        threads: 1,
        runtime: "native",
        ..ProcessRow::default()
    };
    picker.send(Input::Processes((1..30).map(row).collect()));
    for width in 1..=60 {
        for height in 1..=30 {
            (picker.width, picker.height) = (width, height);
            picker.send(Input::Resize { width, height });
            picker.buffer();
        }
    }
}

/// Counts what is written to it.
#[derive(Clone, Default)]
struct Written(std::rc::Rc<std::cell::Cell<usize>>);

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.set(self.0.get() + bytes.len());
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A drawing after half a second takes at most 1 KB (the whole screen takes 4): a link of 10 KB/s
/// has room to spare.
#[test]
fn only_what_changed_is_written() {
    let mut world = World::shop();
    let mut live = Live::new(120, 40, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(35 * SECOND).snapshot()))).press("E");
    let area = ratatui::layout::Rect::new(0, 0, 120, 40);
    let options = ratatui::TerminalOptions { viewport: ratatui::Viewport::Fixed(area) };
    let written = Written::default();
    let backend = ratatui::backend::CrosstermBackend::new(written.clone());
    let mut terminal = Terminal::with_options(backend, options).expect("a terminal");
    let mut sizes = Vec::new();
    for _ in 0..20 {
        terminal.draw(|frame| sampletop::tui::draw(frame, &live.app, &live.theme)).expect("drawn");
        sizes.push(written.0.take());
        live.send(Input::Snapshot(Arc::new(world.run(500 * MS).snapshot())));
    }
    let later = &sizes[1..];
    assert!(later.iter().sum::<usize>() / later.len() <= 1024, "bytes of each drawing: {sizes:?}");
}

/// The remains of a torn arrow key (`Esc [ D`): nothing is changed, nothing is lost.
#[test]
fn torn_arrow_keys_do_nothing() {
    let mut live = Live::shop(80, 30);
    live.press("Ejj");
    let before = live.screen();
    // The last line says that there is no such key; the next key takes that away.
    let above = |screen: &str| screen.lines().take(29).map(String::from).collect::<Vec<_>>();
    for c in "[OBDH".chars() {
        assert_eq!(above(&live.press(&c.to_string()).screen()), above(&before), "{c}");
    }
    assert_eq!(live.press("CC").screen(), before);
    assert_eq!(above(&live.press("FF").screen()), above(&before));
    assert!(live.effects.is_empty());
}

#[test]
fn what_became_of_the_target_is_said() {
    let mut ended = Snapshot::clone(&shop());
    let mut target = ended.targets[0].clone();
    target.ended = Some(ended.at);
    ended.targets = Arc::new([target]);
    let mut live = Live::shop(80, 24);
    live.send(Input::Snapshot(Arc::new(ended.clone())));
    assert!(live.screen().contains("EXITED") && live.screen().contains("http-nio-exec-"));
    let mut stopped = Snapshot::clone(&shop());
    stopped.stopped = true;
    stopped.notice = Some("perf is not permitted any more; using states".into());
    live.send(Input::Snapshot(Arc::new(stopped)));
    assert!(
        live.screen().contains("STOPPED") && live.screen().contains("using states"),
        "{}",
        live.screen()
    );
}

#[test]
fn several_processes_are_one_tree_or_apart() {
    let mut world = World::web();
    let mut live = Live::new(80, 24, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(20 * SECOND).snapshot())));
    assert!(
        live.screen().contains("3 processes: nginx") && live.screen().contains("threads 3 busy"),
        "{}",
        live.screen()
    );
    // rules, name, thread, process
    live.press("ittt");
    golden("processes-80x24.txt", &live.screen());
    // One after the other ends.
    let mut snapshot = world.snapshot();
    let mut end = |at: usize, snapshot: &mut Snapshot| {
        let mut targets = snapshot.targets.to_vec();
        targets[at].ended = Some(snapshot.at);
        snapshot.targets = targets.into();
        live.send(Input::Snapshot(Arc::new(snapshot.clone())));
        live.screen()
    };
    end(0, &mut snapshot);
    assert!(end(1, &mut snapshot).contains("1 process: nginx"));
    let screen = end(2, &mut snapshot);
    assert!(screen.contains("no process: nginx") && screen.contains("WAITING"), "{screen}");
    assert!(screen.contains("ngx_http_parse"), "what was there stays: {screen}");
}

#[test]
fn what_is_waited_for_is_said() {
    let waits_for = Some("waiting for a process called nginx".into());
    let live = Live::new(80, 24, AppConfig { waits_for, ..AppConfig::default() });
    golden("waiting-80x24.txt", &live.screen());
}

/// While history is read the screen keeps its figures. Metric and order change at once. Only the
/// last request's answer is shown.
#[test]
fn a_long_reading_holds_up_nothing() {
    let mut live = Live::shop(120, 40);
    let before = live.screen();
    live.slow = true;
    live.press("t");
    let [by_name] = &live.requests()[..] else { panic!("one request") };
    let by_name = by_name.clone();
    assert!(by_name.urgent);
    let behind = live.screen();
    assert!(
        behind.contains("reading history ...") && behind.contains("grouped by name"),
        "{behind}"
    );
    let rows = |screen: &str| screen.lines().skip(5).take(30).map(String::from).collect::<Vec<_>>();
    assert_eq!(rows(&behind), rows(&before));

    // A key that only sorts needs no reading, and moves work as usual.
    assert!(live.press("sm<down>E").requests().is_empty());
    assert!(
        live.screen().contains("reading history ...") && live.screen().contains("cpu time"),
        "{}",
        live.screen()
    );

    // Newer facts are read under the newest settings; an older answer is no longer shown.
    live.press("t");
    let by_thread = live.requests().pop().expect("a request");
    let mut world = World::shop();
    live.send(Input::Snapshot(Arc::new(world.run(50 * SECOND).snapshot())));
    let newer = live.requests().pop().expect("a request");
    assert!(!newer.urgent && newer.number == by_thread.number && newer.number > by_name.number);
    let shown = live.screen();
    assert_eq!(live.answer(by_name).screen(), shown);
    live.answer(by_thread);
    assert!(!live.screen().contains("reading history"), "{}", live.screen());
    assert!(live.screen().contains("worker-1 ("), "{}", live.screen());
    assert_ne!(live.screen(), live.answer(newer).screen());
}

#[test]
fn a_frozen_screen_takes_no_facts_that_were_on_their_way() {
    let mut live = Live::shop(120, 40);
    live.slow = true;
    let mut world = World::shop();
    live.send(Input::Snapshot(Arc::new(world.run(50 * SECOND).snapshot())));
    let newer = live.requests().pop().expect("a request");
    let frozen = live.press(" ").screen();
    assert_eq!(live.answer(newer).screen(), frozen);
    // Another grouping is of the frozen facts, also where it was asked for before the freeze.
    live.press(" t ");
    let request = live.requests().pop().expect("a request");
    assert_eq!(request.snapshot.at, shop().at);
    live.answer(request);
    assert!(!live.screen().contains("reading history"), "{}", live.screen());
    live.press(" ");
    let request = live.requests().pop().expect("a request");
    assert!(request.urgent && request.snapshot.at > shop().at);
}

mod random {
    use super::*;
    use proptest::prelude::*;

    fn keys() -> impl Strategy<Value = Vec<Key>> {
        let all: Vec<Key> = sampletop::app::keymap::TABLE
            .iter()
            .flat_map(|b| b.keys.iter().copied())
            .chain("abcdefghijklmnopqrstuvwxyzABC0123456789.*()[]|%~".chars().map(Key::Char))
            .chain([
                Key::Backspace,
                Key::Delete,
                Key::F(12),
                Key::Alt('x'),
                Key::Ctrl('u'),
                Key::BackTab,
                Key::Insert,
            ])
            .collect();
        prop::collection::vec(prop::sample::select(all), 1..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        /// No key sequence panics at any size, and only the keys that quit quit.
        #[test]
        fn any_keys_on_any_screen(keys in keys(), width in 1u16..130, height in 1u16..50) {
            let mut world = World::shop();
            let first = Arc::new(world.run(3 * SECOND).snapshot());
            let second = Arc::new(world.run(500 * MS).snapshot());
            let mut live = Live::new(width, height, AppConfig::default());
            live.send(Input::Snapshot(first));
            for (n, key) in keys.iter().enumerate() {
                live.send(Input::Key(*key));
                if n % 7 == 3 {
                    live.send(Input::Snapshot(second.clone()));
                }
                live.buffer();
            }
            let quits = live.effects.iter().filter(|e| matches!(e, Effect::Quit { .. })).count();
            let asked = keys.iter().filter(|k| matches!(k, Key::Char('q') | Key::Ctrl('c'))).count();
            prop_assert!(quits <= asked);
        }
    }
}
