//! The source view and the rows that it is opened from: what it shows of them, and what a reader
//! keeps while time goes on.

use sampletop::app::code_text::{
    CodeRead, CodeRequest, Found, Instruction, Instructions, SourceText,
};

use super::compared::released;
use super::fixture::{Doing, PID, Script};
use super::*;

fn world(stacks: &'static [&'static str]) -> World {
    let doing = move |tick: u64| Doing::Runs(stacks[tick as usize % stacks.len()]);
    World::new(vec![Script { pid: PID, name: "main".into(), doing: Box::new(doing) }])
}

fn live(world: &mut World) -> Live {
    let mut live = Live::new(120, 40, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(20 * SECOND).snapshot())));
    live
}

fn asked(live: &mut Live) -> Option<CodeRequest> {
    let effects = std::mem::take(&mut live.effects);
    effects.into_iter().rev().find_map(|effect| match effect {
        Effect::ReadCode(request) => Some(*request),
        _ => None,
    })
}

fn answer(live: &mut Live, read: Found) {
    let CodeRequest { number, .. } = asked(live).expect("a request");
    live.send(Input::Code(CodeRead { number, read }));
}

fn text(lines: usize) -> Found {
    let lines = (1..=lines).map(|line| format!("text {line}.")).collect();
    Found::Source(Ok(Arc::new(SourceText { path: "/s".into(), lines, ..SourceText::default() })))
}

fn about(live: &Live) -> String {
    live.screen().lines().rev().nth(1).expect("the line").trim_end().to_owned()
}

/// Opens the source of each row below the present one; returns what is said of each that opened.
fn of_each_row(live: &mut Live, count: usize) -> Vec<String> {
    let mut said = Vec::new();
    for _ in 0..count {
        if live.press("a").screen().contains(" OF IT%") {
            said.push(about(live));
            live.press("<bs>");
        }
        live.press("j");
    }
    said
}

fn have_time(said: &[String]) {
    assert!(!said.is_empty());
    assert!(said.iter().all(|line| !line.contains(" has 0.0 %")), "{said:#?}");
}

#[test]
fn each_row_with_a_function_opens_a_source_with_time() {
    let mut upright = Live::shop(120, 40);
    have_time(&of_each_row(&mut upright, 12));
    let mut inverted = Live::shop(120, 40);
    inverted.press("v");
    have_time(&of_each_row(&mut inverted, 12));
    let mut flame = Live::shop(120, 40);
    flame.press("v4jj");
    have_time(&of_each_row(&mut flame, 2));
}

#[test]
fn a_row_of_a_comparison_that_the_users_code_calls_opens_its_caller() {
    let (_, mut live) = released(120, 40);
    live.press("=1g");
    let mut opened = 0;
    for _ in 0..14 {
        let row = live.press("<right>").selected();
        if row.contains("recv") && live.press("a").screen().contains(" OF IT%") {
            opened += 1;
            assert!(live.screen().contains("OF Db::query"), "{}", live.screen());
            live.press("<bs>");
        }
        live.press("j");
    }
    assert!(opened > 0, "{}", live.screen());
}

#[test]
fn the_cursor_goes_to_the_hottest_line_once() {
    let mut world = world(&["main:1;cart:20;tax:1", "main:1;cart:60"]);
    let mut live = live(&mut world);
    live.press("2/cart<enter>a");
    // Before there is text, keys move nothing.
    live.press("jj");
    answer(&mut live, text(100));
    assert!(live.selected().contains("text 60."), "{}", live.screen());
    let before = live.selected_line();
    // Line 20 becomes the hottest.
    live.press("m");
    live.press("o");
    let mut hotter = self::world(&["main:1;cart:20", "main:1;cart:20", "main:1;cart:60"]);
    live.send(Input::Snapshot(Arc::new(hotter.run(20 * SECOND).snapshot())));
    assert!(live.selected().contains("text 60."), "{}", live.screen());
    assert_eq!(live.selected_line(), before);
}

/// Lines without text are listed with time only, so there may be more of them each second.
#[test]
fn the_cursor_stays_on_a_line_that_is_listed_without_its_text() {
    let mut world = world(&["main:1;cart:20", "main:1;cart:60", "main:1;cart:60"]);
    let mut live = live(&mut world);
    live.press("2/cart<enter>a");
    answer(&mut live, Found::Source(Err("it is gone".into())));
    answer(&mut live, Found::Instructions(Err("it is gone too".into())));
    assert!(live.selected().trim_end().ends_with(" 60"), "{}", live.screen());
    let stacks = &["main:1;cart:10", "main:1;cart:20", "main:1;cart:30", "main:1;cart:60"];
    let mut more = self::world(stacks);
    live.send(Input::Snapshot(Arc::new(more.run(20 * SECOND).snapshot())));
    assert!(live.selected().trim_end().ends_with(" 60"), "{}", live.screen());
    assert!(about(&live).contains(" % of the time shown; no source: "), "{}", about(&live));
}

#[test]
fn instructions_without_time_begin_at_the_first() {
    let mut world = world(&["begun:1", "main:1;cart:60"]);
    let mut live = live(&mut world);
    live.press("2/cart<enter>aa");
    let instruction =
        |n| Instruction { offset: 1 << 40 | n, len: 1, address: n, text: format!("op {n}.") };
    let list = (0..200).map(instruction).collect();
    let code = Instructions { list, is_cut: true, ..Instructions::default() };
    answer(&mut live, Found::Instructions(Ok(Arc::new(code))));
    assert!(live.selected().contains("op 0."), "{}", live.screen());
    assert!(about(&live).contains("only 200 instructions around the hottest"), "{}", about(&live));
    assert!(
        about(&live).contains("100.0 % of it elsewhere; only 200 instructions"),
        "{}",
        about(&live)
    );
}

#[test]
fn the_timeline_is_read_again_behind_a_source() {
    let mut live = Live::shop(120, 40);
    live.press("6l");
    let before = live.press("<left>").screen();
    live.press("a");
    assert!(live.screen().contains(" OF IT%"), "{}", live.screen());
    live.send(Input::Snapshot(shop()));
    live.slow = true;
    live.press("<bs>");
    let requests = live.requests();
    assert!(requests.last().is_some_and(|request| request.timeline.is_some()), "{requests:?}");
    let rows = |screen: &str| screen.lines().skip(5).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&live.screen()), rows(&before), "what is there stays until the answer");
    live.answer(requests.into_iter().next_back().expect("a request"));
    assert_eq!(live.screen(), before);
}

#[test]
fn a_long_sentence_keeps_the_trouble_where_there_is_no_room_for_both() {
    let mut live = Live::new(60, 20, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(
        world(&["begun:1", "main:1;cart:60"]).run(SECOND).snapshot(),
    )));
    live.press("2/cart<enter>aa");
    answer(&mut live, Found::Instructions(Err("a file of this name is not on this disk".into())));
    assert!(about(&live).starts_with(" > no instructions: a file"), "{}", about(&live));
}

/// A file server may answer after the user has gone on to another process.
#[test]
fn an_answer_to_a_session_before_is_dropped() {
    let mut world = world(&["begun:1", "main:1;cart:60"]);
    let mut live = live(&mut world);
    live.press("2/cart<enter>a");
    let CodeRequest { number, .. } = asked(&mut live).expect("a request");
    let row = ProcessRow {
        pid: PID,
        start: 1,
        parent: 1,
        user: "shop".into(),
        command: "shopd".into(),
        threads: 1,
        cpu_percent: Some(1.0),
        memory: 1 << 20,
        runtime: "native",
        place: "".into(),
    };
    live.send(Input::Detached).send(Input::Processes(vec![row])).press("<down><enter>");
    live.send(Input::Snapshot(Arc::new(world.run(SECOND).snapshot())));
    live.press("2/cart<enter>a");
    live.send(Input::Code(CodeRead { number, read: text(100) }));
    assert!(!live.screen().contains("text 60."), "{}", live.screen());
    answer(&mut live, text(100));
    assert!(live.selected().contains("text 60."), "{}", live.screen());
}

#[test]
fn the_function_has_the_share_of_its_row_by_every_metric() {
    let mut live = Live::shop(120, 40);
    live.press("o2r");
    for _ in 0..3 {
        live.press("m").press("g");
        for _ in 0..8 {
            let row = live.selected();
            let share = row.split_whitespace().next().expect("a figure").to_owned();
            if live.press("a").screen().contains(" OF IT%") {
                let said = about(&live);
                let wanted = format!(" {share} % of the time shown");
                assert!(share == "." || said.contains(&wanted), "{row}\n{said}");
                live.press("<bs>");
            }
            live.press("j");
        }
    }
}
