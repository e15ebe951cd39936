//! Effects of keys and the mouse: rows, filters, freezing, effects.

use ratatui::style::Color;
use regex::Regex;
use sampletop::config::Names;
use sampletop::model::facts::snapshot::Deadlock;
use sampletop::model::projection::settings::Filter;
use sampletop::model::vocabulary::frame::ThreadKey;

use super::fixture::{Does, Doing, FSYNC, FUTEX, PID, Script, shop_facts};
use super::*;

#[test]
fn moving_expanding_collapsing() {
    let mut live = Live::shop(80, 26);
    assert!(live.selected().contains("http-nio-exec-"));
    assert!(live.press("jj").selected().contains("checkout"));
    assert!(live.press("<right>j").selected().contains("Connection::receive"), "{}", live.screen());
    assert!(
        live.press("<left>").selected().contains("checkout"),
        "left on a leaf goes to the parent"
    );
    let open = live.screen();
    assert!(!live.press("<left>").screen().contains("round"), "left on an open row closes it");
    assert_eq!(live.press("+").screen(), open);
    let rows =
        |live: &Live| live.screen().lines().filter(|l| l.contains('▾') || l.contains('▸')).count();
    let before = live.screen();
    live.press("C");
    assert_eq!(rows(&live), 5, "groups and the sorted column:\n{}", live.screen());
    assert_eq!(live.press("C").screen(), before, "C undoes itself");
    assert!(live.press("G").selected().contains("Log::flush"));
    assert!(live.press("g").selected().contains("http-nio-exec-"));
}

#[test]
fn the_selected_row_stays_put_when_rows_move() {
    let mut world = World::shop();
    let mut live = Live::new(80, 14, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(20 * SECOND).snapshot())));
    live.press("Ejjjj");
    let (name, line) = (live.selected(), live.selected_line());
    let name = name.split("  ").last().expect("a name").to_string();
    // Sorting by name turns the tree round; the row keeps its line as long as there are rows above
    // it.
    live.press(">>>>>");
    assert!(live.selected().ends_with(&name), "{name} is selected:\n{}", live.screen());
    for _ in 0..20 {
        live.send(Input::Snapshot(Arc::new(world.run(SECOND).snapshot())));
        assert!(live.selected().ends_with(&name), "{name} is selected:\n{}", live.screen());
        assert!(live.selected_line().abs_diff(line) <= 1, "line {line}:\n{}", live.screen());
    }
    // Nothing moved yet: the first row is selected, whichever it is.
    let mut fresh = Live::new(80, 14, AppConfig::default());
    fresh.send(Input::Snapshot(Arc::new(world.snapshot())));
    let first = fresh.selected_line();
    fresh.press("R");
    assert_eq!(fresh.selected_line(), first);
}

#[test]
fn the_line_below_says_what_the_row_waits_for() {
    let mut live = Live::shop(80, 24);
    let about =
        |live: &Live| live.screen().lines().rev().nth(1).expect("the line").trim_end().to_owned();
    let line = about(&live);
    assert!(
        line.starts_with(
            " > now 6 epoll fd 5 (12 descriptors), 5 recv fd 37 -> 10.0.3.9:5432, 1 run"
        ),
        "{line}"
    );
    live.press("/receive$<enter>");
    assert_eq!(
        about(&live),
        " > now io recv fd 37 -> 10.0.3.9:5432 for 100 ms: http-nio-exec-0 and 4 more"
    );
    live.press("Cg<down>");
    assert!(
        about(&live).starts_with(" > now 3 mutex held by worker-3, 1 run "),
        "{}",
        about(&live)
    );
    live.press("<down>");
    assert!(about(&live).starts_with(" > now sleep 3600 s for "), "{}", about(&live));
    // Without an answer the call itself is shown; a frozen screen sends no request.
    live.send(Input::Waits(Vec::new()));
    assert!(about(&live).starts_with(" > now sleep for "), "{}", about(&live));
    live.press(" <up>");
    assert!(about(&live).starts_with(" > now 3 mutex 0x0, 1 run "), "{}", about(&live));
}

#[test]
fn enter_goes_to_the_thread_that_holds_the_lock() {
    let waits = |stack, call, fd| Doing::Waits { call, fd, stack, wait: 1 };
    let script = |name: String, doing: Doing| {
        let doing: Does = Box::new(move |_| doing);
        Script { pid: PID, name, doing }
    };
    const ENTERS: &str = "clone3;start_thread;shop::serve:20;shop::Stock::reserve:31;pthread_mutex_lock;__lll_lock_wait";
    const AUDITS: &str = "clone3;start_thread;shop::run_audits:12;shop::Audit::note:77;pthread_mutex_lock;__lll_lock_wait";
    const SYNCS: &str = "clone3;start_thread;shop::run_log:9;shop::Log::flush:51;fsync";
    let mut scripts: Vec<Script> =
        (0..6).map(|n| script(format!("http-{n}"), waits(ENTERS, FUTEX, 0x7000))).collect();
    scripts.push(script("audit".into(), waits(AUDITS, FUTEX, 0x8000)));
    scripts.push(script("log".into(), waits(SYNCS, FSYNC, 3)));
    let world = World::new(scripts).hold("http-", 0x7000, "audit").hold("audit", 0x8000, "log");
    let mut live = Live::new(80, 24, AppConfig::default());
    live.facts = shop_facts();
    let snapshot = Arc::new({ world }.run(10 * SECOND).snapshot());
    live.send(Input::Snapshot(snapshot.clone()));
    live.send(Input::Snapshot(snapshot));
    golden("held-lock-80x24.txt", &live.screen());
    assert!(live.press("j<enter>").selected().contains("Stock::reserve"), "{}", live.screen());
    for holder in ["Audit::note", "Log::flush"] {
        live.press("<enter><enter>");
        let found = live.selected().contains(holder) || live.selected().contains("fsync");
        assert!(found, "{holder}:\n{}", live.screen());
    }
    // Who holds what the last one waits for is not known.
    let last = live.selected();
    assert_eq!(live.press("<enter>").selected(), last);
}

#[test]
fn a_deadlock_is_red() {
    let script = |name: &str, object| {
        let doing = Doing::Waits { call: FUTEX, fd: object, stack: LOCKS, wait: 1 };
        Script { pid: PID, name: name.into(), doing: Box::new(move |_| doing) }
    };
    const LOCKS: &str = "clone3;start_thread;shop::pay:20;pthread_mutex_lock;__lll_lock_wait";
    let scripts = vec![script("pay-1", 0x7000), script("pay-2", 0x8000)];
    let world = World::new(scripts).hold("pay-1", 0x7000, "pay-2").hold("pay-2", 0x8000, "pay-1");
    let mut snapshot = { world }.run(10 * SECOND).snapshot();
    let threads = [PID, PID + 1].map(|tid| ThreadKey { pid: PID, tid, start: 77 });
    snapshot.deadlocks = [Deadlock { since: snapshot.at, threads: threads.into() }].into();
    let mut live = Live::new(80, 24, AppConfig::default());
    live.send(Input::Snapshot(snapshot.into()));
    let line = " ! deadlock: pay-1 and pay-2 wait for each other";
    let screen = live.screen();
    let y = screen.lines().position(|text| text.starts_with(line)).expect("the sentence");
    let colour = live.buffer()[(5, y as u16)].fg;
    assert_eq!(colour, Color::Red, "{screen}");
    let below = screen.lines().nth_back(1).expect("the line below the rows");
    assert!(below.contains("pay-2 in shop::pay -> one of these"), "{below}");
}

#[test]
fn a_frozen_screen_stands_still_and_gets_names() {
    let mut world = World::shop();
    let mut live = Live::new(80, 24, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(10 * SECOND).snapshot())));
    let frozen = live.press(" ").screen();
    assert!(frozen.contains("FROZEN"));
    live.send(Input::Snapshot(Arc::new(world.run(10 * SECOND).snapshot())));
    assert_eq!(live.screen(), frozen, "the history line stands still, too");
    assert!(live.press(" ").screen().contains("LIVE"));
    let without_history =
        |s: &str| s.lines().filter(|l| !l.contains("busy threads")).collect::<Vec<_>>().join("\n");
    assert_ne!(without_history(&live.screen()), without_history(&frozen));
}

/// The span of the line, what a full bar stands for, and the bars.
fn bars(live: &Live) -> (String, String, Vec<char>) {
    let screen = live.screen();
    let line = screen.lines().find(|l| l.contains("busy threads")).expect("the history line");
    let (bars, words) = line.split_once("now").expect("it is live");
    let scale = words.split_once(',').expect("a scale").0.to_owned();
    (bars[..6].to_owned(), scale, bars[6..].chars().filter(|c| !"[]".contains(*c)).collect())
}

#[test]
fn bars_of_the_past_keep_their_height() {
    for width in [80, 117] {
        let mut world = World::shop();
        let mut live = Live::new(width, 24, AppConfig::default());
        live.send(Input::Snapshot(Arc::new(world.run(2 * SECOND).snapshot())));
        let mut before = bars(&live);
        let (mut moved, mut stood) = (0, 0);
        for second in 3..200 {
            live.send(Input::Snapshot(Arc::new(world.run(SECOND).snapshot())));
            let after = bars(&live);
            if (&before.0, &before.1) == (&after.0, &after.1) {
                let n = after.2.len() - 1;
                let (moves, stands) =
                    (after.2[..n] == before.2[1..], after.2[..n] == before.2[..n]);
                assert!(moves || stands, "second {second}: {before:?}\n{after:?}");
                (moved, stood) = (moved + u32::from(moves), stood + u32::from(stands));
            }
            before = after;
        }
        assert!(moved > 30 && stood > 30, "{moved} {stood}");
    }
}

#[test]
fn what_a_prompt_proposes_is_replaced_by_what_is_typed() {
    let mut live = Live::shop(80, 24);
    assert!(live.press("w5m<enter>").screen().contains("last 5 min"), "{}", live.screen());
    assert!(live.press("w<bs>s<enter>").screen().contains("last 5 s"), "{}", live.screen());
    live.effects.clear();
    live.press("d20ms<enter>");
    assert!(matches!(live.effects[..], [Effect::SetInterval(i)] if i == Duration::from_millis(20)));
}

#[test]
fn a_key_without_a_meaning_says_so() {
    let mut live = Live::shop(80, 24);
    let plain = live.screen();
    assert!(live.press("Q").screen().contains("no such key: Q (? help)"), "{}", live.screen());
    assert_eq!(live.press("<esc>").screen(), plain);
    assert!(live.press("fQ").screen().contains("no such key here: Q"), "{}", live.screen());
}

#[test]
fn a_message_leaves_the_keys_that_fit_beside_it() {
    for (width, kept) in [(80, true), (52, true), (51, false)] {
        let mut live = Live::shop(width, 24);
        let screen = live.press("Q").screen();
        let last = screen.lines().last().expect("a footer").to_owned();
        assert!(last.starts_with(" no such key: Q (? help)"), "{last}");
        assert_eq!(last.ends_with("? help  q quit  Tab view"), kept, "{width}: {last}");
    }
}

#[test]
fn a_frozen_screen_gets_the_names_that_come_later() {
    let mut world = World::shop();
    let mut live = Live::new(80, 24, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(10 * SECOND).unnamed_snapshot())));
    let frozen = live.press(" ").screen();
    assert!(!frozen.contains("checkout"), "{frozen}");
    live.send(Input::Snapshot(Arc::new(world.run(10 * SECOND).snapshot())));
    let named = live.screen();
    assert!(named.contains("FROZEN") && named.contains("checkout"), "{named}");
    assert_eq!(named.lines().next(), frozen.lines().next(), "the time stands still");
}

#[test]
fn filters_are_kept_when_switched_off_and_escape_leaves_them() {
    let mut live = Live::shop(80, 24);
    let plain = live.screen();
    let filtered = live.press("fj<enter>Pricing<enter><esc>").screen();
    assert!(filtered.contains("focus Pricing hides"), "{filtered}");
    assert_eq!(live.press("<esc><esc>").screen(), filtered);
    assert!(!live.press("fj <esc>").screen().contains("hides"));
    assert!(live.press("fj").screen().contains("[ ] focus       Pricing"), "{}", live.screen());
    live.press(" <esc>");
    assert_eq!(live.screen(), filtered);
    live.press("fj<enter><c-u><enter><esc>");
    assert_eq!(live.screen(), plain);
}

#[test]
fn counting_from_now_and_back() {
    let mut world = World::shop();
    let mut live = Live::new(80, 24, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(20 * SECOND).snapshot())));
    live.press("0");
    live.send(Input::Snapshot(Arc::new(world.run(5 * SECOND).snapshot())));
    assert!(live.screen().contains("from 0: 5s"), "{}", live.screen());
    assert!(live.press("0").screen().contains("last 30 s"));
    assert!(live.press("r").screen().contains("all 25s"));
    assert!(live.press("r").screen().contains("last 30 s"));
    assert!(live.press("w<c-u>2m<enter>").screen().contains("last 2 min"));
    assert!(live.press("rr").screen().contains("last 2 min"));
    assert!(live.press("w<c-u>all<enter>").screen().contains("hidden  all "));
}

#[test]
fn effects_of_keys() {
    let of = |live: &mut Live, keys: &str| {
        live.effects.clear();
        live.press(keys);
        std::mem::take(&mut live.effects)
    };
    let mut live = Live::shop(80, 24);
    assert!(
        matches!(of(&mut live, "d<c-u>20ms<enter>")[..], [Effect::SetInterval(i)] if i == Duration::from_millis(20))
    );
    assert!(of(&mut live, "d<c-u>20s<enter>").is_empty());
    assert!(
        live.screen().contains("`20s` is not an interval from 1ms to 10s"),
        "{}",
        live.screen()
    );
    assert!(of(&mut live, "<c-c>").is_empty(), "Ctrl-C leaves a prompt");
    assert!(of(&mut live, "Xn").is_empty());
    assert!(matches!(of(&mut live, "Xy")[..], [Effect::PauseSampling(true)]));
    assert!(matches!(of(&mut live, "x")[..], [Effect::Export { .. }]));
    let files = [
        "/home/me/sampletop-node7-4321.txt".into(),
        "/home/me/sampletop-node7-4321.sampletop".into(),
    ];
    live.send(Input::Exported(Ok(files.into())));
    assert!(live.screen().contains("saved /home/me/sampletop-node7-4321.txt, .sampletop"));
    assert!(of(&mut live, "p").is_empty());
    live.send(Input::PtraceHelps(true));
    assert!(live.screen().contains("stops each for microseconds"), "{}", live.screen());
    assert!(matches!(of(&mut live, "py")[..], [Effect::UsePtrace]));
    let copied = of(&mut live, "Ey<down><down><down>y");
    assert!(
        matches!(&copied[..], [Effect::Copy(text)] if text.ends_with("shop::http::Server::run (/srv/shop/src/main.cpp:210)\n")),
        "{copied:?}"
    );
    assert!(of(&mut live, "?qf<esc><esc><esc>").is_empty(), "Esc and q in help quit nothing");
    assert!(matches!(of(&mut live, "q")[..], [Effect::Quit { end_child: false }]));
    assert!(matches!(of(&mut live, "<c-c>")[..], [Effect::Quit { .. }]));

    let mut secure =
        Live::new(80, 24, AppConfig { secure: true, ask_on_quit: true, ..AppConfig::default() });
    secure.send(Input::Snapshot(shop()));
    assert!(of(&mut secure, "x").is_empty() && of(&mut secure, "W").is_empty());
    assert!(secure.screen().contains("nothing is written under --secure"));
    assert!(of(&mut secure, "q").is_empty());
    assert!(secure.screen().contains("(e)nd it, (l)eave it running, (s)tay"));
    assert!(of(&mut secure, "s").is_empty());
    assert!(matches!(of(&mut secure, "qe")[..], [Effect::Quit { end_child: true }]));
    assert!(matches!(of(&mut secure, "ql")[..], [Effect::Quit { end_child: false }]));
}

#[test]
fn a_row_is_made_idle_and_comes_back() {
    let mut live = Live::shop(80, 24);
    let before = live.press("/lock_wait<enter>").screen();
    assert!(before.contains("worker-") && live.selected().contains("lock_wait"), "{before}");
    live.press("I");
    let hidden = live.screen();
    assert!(hidden.contains("is idle now") && !hidden.contains("lock_wait  "), "{hidden}");
    live.press("i/lock_wait<enter>I");
    assert!(live.screen().contains("no longer idle"), "{}", live.screen());
    assert!(live.press("i").selected().contains("lock_wait"), "{}", live.screen());
}

#[test]
fn the_mouse_selects_expands_and_scrolls() {
    let mut live = Live::shop(80, 24);
    let press = |live: &mut Live, row| {
        live.send(Input::Mouse(Mouse { kind: MouseKind::Press, column: 40, row }));
    };
    let checkout =
        live.screen().lines().position(|l| l.contains("checkout")).expect("a row") as u16;
    press(&mut live, checkout);
    assert!(live.selected().contains("checkout"));
    press(&mut live, checkout);
    assert!(!live.screen().contains("Pricing::round"));
    press(&mut live, checkout);
    assert!(live.screen().contains("Pricing::round"));
    // Clicks without effect: the header, below the rows.
    let before = live.screen();
    press(&mut live, 0);
    press(&mut live, 22);
    assert_eq!(live.screen(), before);
    live.send(Input::Mouse(Mouse { kind: MouseKind::WheelDown, column: 0, row: 9 }));
    assert!(live.selected_line() > 5, "{}", live.screen());
}

#[test]
fn a_function_is_called_mine_or_not_and_as_before() {
    let mut live = Live::shop(80, 24);
    let before = live.press("/checkout<enter>").screen();
    assert!(before.contains("▾ ShopController::checkout"), "{before}");
    live.press("A");
    let less = live.screen();
    assert!(less.contains("not your code now") && less.contains("Pricing::round"), "{less}");
    assert!(!less.contains("▾ ShopController::checkout"), "{less}");
    // Its callees hang under its caller, and it is found among all frames.
    live.press("/checkout<enter>");
    assert!(live.screen().contains("all, all time"), "{}", live.screen());
    assert!(live.selected().contains("checkout"), "{}", live.screen());
    live.press("A");
    assert!(live.screen().contains("judged by where it comes from"), "{}", live.screen());
    live.press("o");
    assert!(live.screen().contains("mine, all time"), "{}", live.screen());
    assert!(live.screen().contains("▾ ShopController::checkout"), "{}", live.screen());
}

#[test]
fn levels_show_the_users_functions_or_all() {
    let mut live = Live::shop(120, 60);
    assert!(!live.press("E").screen().contains("start_thread"), "{}", live.screen());
    assert!(live.press("o").screen().contains("chains, all time"), "{}", live.screen());
    live.press("oE");
    let all = live.screen();
    assert!(all.contains("all, all time") && all.contains("start_thread"), "{all}");
    assert!(live.press("o").screen().contains("mine, all time"), "{}", live.screen());
}

#[test]
fn small_rows_are_one_line_that_opens() {
    let mut live = Live::shop(80, 24);
    assert!(live.screen().contains("+ 1 row below 0.5 %"), "{}", live.screen());
    assert!(!live.screen().contains("TaxTable::lookup"), "{}", live.screen());
    while !live.selected().contains("below 0.5 %") {
        live.press("j");
    }
    live.press("<right>");
    assert!(live.screen().contains("TaxTable::lookup"), "{}", live.screen());
    live.press("<left>");
    assert!(!live.screen().contains("TaxTable::lookup"), "{}", live.screen());
    // The search opens it, too.
    live.press("g/TaxTable<enter>");
    assert!(live.selected().contains("TaxTable::lookup"), "{}", live.screen());
}

#[test]
fn what_becomes_hot_later_opens_by_itself_until_a_key_moves() {
    let mut world = World::shop();
    let mut quiet = AppConfig::default();
    quiet.settings.filters.focus = Filter::set(Regex::new("TaxTable").expect("valid"));
    let mut live = Live::new(80, 24, quiet);
    live.send(Input::Snapshot(Arc::new(world.run(5 * SECOND).snapshot())));
    // The rest of the tree appears when the focus goes: all of it opens.
    live.press("fj <esc>");
    assert!(live.screen().contains("▾ ShopController::checkout"), "{}", live.screen());
    assert!(live.screen().contains("▾ Cache::refresh"), "{}", live.screen());
    // After a key nothing opens by itself.
    let mut still = AppConfig::default();
    still.settings.filters.focus = Filter::set(Regex::new("TaxTable").expect("valid"));
    let mut live = Live::new(80, 24, still);
    live.send(Input::Snapshot(Arc::new(world.run(SECOND).snapshot())));
    live.press("j");
    live.press("fj <esc>");
    assert!(!live.screen().contains("▾ Cache::refresh"), "{}", live.screen());
}

#[test]
fn a_sentence_leads_to_its_row() {
    let mut live = Live::shop(80, 26);
    live.press("C");
    assert!(!live.screen().contains("Connection::receive :310"), "{}", live.screen());
    assert!(live.press("!").selected().contains("recv"), "{}", live.screen());
    assert!(live.press("!").selected().contains("mutex::lock"), "{}", live.screen());
    assert!(live.press("!").selected().contains("Pricing::round"), "{}", live.screen());
    assert!(live.press("!").selected().contains("recv"), "the first one again");
    // From the table of functions it goes to the tree.
    assert!(live.press("2!").selected().contains("mutex::lock"), "{}", live.screen());
}

#[test]
fn a_search_goes_on_among_all_frames_and_comes_back_without_a_match() {
    let mut live = Live::shop(80, 26);
    live.press("<right>j");
    let before = live.screen();
    live.press("/start_thread<enter>");
    assert!(live.screen().contains("all, all time"), "{}", live.screen());
    assert!(live.selected().contains("start_thread"), "{}", live.screen());
    let mut live = Live::shop(80, 26);
    live.press("<right>j/no_such_function<enter>");
    let rows = |screen: &str| screen.lines().skip(1).take(20).collect::<Vec<_>>().join("\n");
    assert_eq!(rows(&live.screen()), rows(&before));
    assert!(live.screen().contains("mine, all time"), "{}", live.screen());
    assert!(live.screen().lines().last().is_some_and(|l| l.contains("no match")));
}

#[test]
fn trends_are_read_where_the_screen_has_room() {
    let mut live = Live::shop(50, 14);
    let resize = |live: &mut Live, width| {
        live.width = width;
        live.send(Input::Resize { width, height: 14 });
    };
    let row = |live: &Live| live.screen().lines().nth(7).expect("a row").to_string();
    live.slow = true;
    live.press("Eoo ");
    live.requests();
    resize(&mut live, 120);
    assert!(live.screen().contains("TREND") && !row(&live).contains('█'), "{}", live.screen());
    let mut requests = live.requests();
    assert!(requests.len() == 1 && requests[0].trends, "a frozen screen reads them too");
    live.answer(requests.remove(0));
    assert!(row(&live).contains("█"), "{}", live.screen());
    resize(&mut live, 130);
    assert!(live.requests().is_empty(), "they are known");
    // Other rows and methods have their own; so do narrower screens without reading again.
    for keys in ["<pgdn><pgdn>", "2", "m"] {
        let screen = live.press(keys).screen();
        let mut rows = screen.lines().skip(4).take(8).filter(|row| !row.is_empty());
        assert!(rows.all(|row| row.contains(['█', '▇', '▆', '▅'])), "{keys}:\n{screen}");
    }
    live.slow = false;
    live.press("1mmr");
    let screen = live.screen();
    assert!(screen.contains("SHARE") && !screen.contains("TREND"), "all time:\n{screen}");
    resize(&mut live, 50);
    live.slow = true;
    live.press("r");
    assert!(!live.requests()[0].trends);
}

/// What was shown before is memory for what will be shown next, also if it came too late.
#[test]
fn an_old_projection_goes_with_the_next_request() {
    let mut live = Live::shop(80, 24);
    live.slow = true;
    let asked = |live: &mut Live| live.requests().pop().expect("a request");
    live.press("t");
    let first = asked(&mut live);
    assert!(first.spare.is_some());
    live.press("t");
    let second = asked(&mut live);
    assert!(second.spare.is_none(), "the first one has it");
    live.answer(first).press("t");
    assert!(asked(&mut live).spare.is_some(), "the first answer is stale");
    live.answer(second);
}

#[test]
fn what_is_chosen_is_saved() {
    let mut live = Live::shop(80, 24);
    live.press("mbbisRcttw<c-u>5m<enter>d<c-u>20ms<enter>");
    live.effects.clear();
    live.press("W");
    let [Effect::SaveChoices(choices)] = &live.effects[..] else { panic!("{:?}", live.effects) };
    let settings = &choices.settings;
    assert_eq!((settings.metric, settings.roll_up), (Metric::Cpu, RollUp::Class));
    assert_eq!((settings.sort, settings.reverse), (SortColumn::SelfTime, true));
    assert!(settings.idle && matches!(settings.grouping, Grouping::Thread));
    assert_eq!(
        (choices.window, choices.interval),
        (Duration::from_secs(300), Duration::from_millis(20))
    );
    assert_eq!((choices.names, choices.mouse), (Names::Full, false));
    // The mouse, as it is switched.
    live.press("YW");
    let [.., Effect::UseMouse(true), Effect::SaveChoices(choices)] = &live.effects[..] else {
        panic!("{:?}", live.effects)
    };
    assert!(choices.mouse);
    live.press("Y");
    assert!(matches!(live.effects.last(), Some(Effect::UseMouse(false))));
    // Without a rolling range the window is the last one.
    live.press("rW");
    let Some(Effect::SaveChoices(choices)) = live.effects.last() else { panic!("none") };
    assert_eq!(choices.window, Duration::from_secs(300));
}

#[test]
fn a_page_of_help_is_searched_and_paged() {
    let mut live = Live::shop(80, 24);
    live.press("?/p99<enter>");
    assert!(live.line(23).contains("no match"), "{}", live.screen());
    // The prompt is drawn over the page.
    live.press("/reverse");
    assert!(live.screen().contains("expand the row"), "{}", live.screen());
    live.press("<enter>");
    assert!(live.selected().contains("reverse the order"), "{}", live.screen());
    let first = live.selected();
    assert_eq!(live.press("n").selected(), first, "the only one");
    live.press("g/lock<enter>");
    let (one, two) = (live.selected(), live.press("n").selected());
    assert_ne!(one, two, "{}", live.screen());
    assert_eq!(live.press("N").selected(), one);
    // Leaving the prompt leads back to the page, from there to the view.
    live.press("/x<esc>");
    assert!(live.line(23).contains("/ search"), "{}", live.screen());
    live.press("g ");
    assert!(live.line(23).starts_with(" 23-"), "{}", live.line(23));
    assert!(live.press("<esc>").line(0).contains("LIVE"), "{}", live.screen());
}
