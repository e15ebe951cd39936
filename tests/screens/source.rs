//! The source view: lines and instructions of a function with their shares.

use sampletop::app::code_text::{
    CodeOf, CodeRead, CodeRequest, Found, Instruction, Instructions, SourceText,
};

use super::compared::released;
use super::fixture::{Does, Doing, PID, Script};
use super::graph::pricing;
use super::*;

const PATH: &str = "/srv/shop/src/main.cpp";

/// Lines 40 to 60 of the shop's source, around the function `price`.
const CODE: [&str; 21] = [
    "    return best;",
    "}",
    "",
    "// Adds what every item costs, with its tax.",
    "Money price(const Cart& cart, const Rates& rates)",
    "{",
    "    Money sum{};",
    "    for (const Item& item : cart.items()) {",
    "        if (item.is_gift())",
    "            continue;",
    "        sum += round(tax(item, rates) * item.count());",
    "        sum += item.shipping(rates, cart.destination(), cart.weight(), /* express: */ false);",
    "        sum -= bundle(item, cart);",
    "    }",
    "    return sum;",
    "}",
    "",
    "Money round(Money money)",
    "{",
    "    return money;",
    "}",
];

fn source(is_newer: bool) -> Result<Arc<SourceText>, String> {
    let before = (1..40).map(|line| format!("// line {line}"));
    let lines = before.chain(CODE.map(str::to_owned)).collect();
    Ok(Arc::new(SourceText { path: PATH.into(), lines, is_newer, is_cut: false }))
}

/// 60 instructions of 8 bytes each, from the place of the first frame on.
fn instructions() -> Result<Arc<Instructions>, String> {
    let text = |n: u64| match n % 6 {
        0 => "mov 0x18(%rdi),%rax".to_owned(),
        1 => "call 0x401a20 <tax(Item const&, Rates const&)>".to_owned(),
        2 => format!("je 0x{:x}", 0x40_1000 + 8 * n),
        3 => "mulsd 0x2f14(%rip),%xmm0".to_owned(),
        4 => "call *0x3f72(%rip) <memcpy>".to_owned(),
        _ => "add $0x8,%rbx".to_owned(),
    };
    let instruction =
        |n| Instruction { offset: 8 * n, len: 8, address: 0x40_1000 + 8 * n, text: text(n) };
    let list = (0..60).map(instruction).collect();
    let path = "/srv/shop/bin/shopd".to_owned();
    Ok(Arc::new(Instructions { path, function: "price".into(), list, is_cut: false }))
}

fn live(width: u16, height: u16) -> Live {
    let mut live = Live::new(width, height, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(pricing().run(40 * SECOND).snapshot())));
    live
}

/// Returns the newest request for a text.
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

/// Opens the source of `price`, which is read.
fn opened(width: u16, height: u16) -> Live {
    let mut live = live(width, height);
    live.press("r2/price<enter>a");
    answer(&mut live, Found::Source(source(false)));
    live
}

fn about(live: &Live) -> String {
    live.screen().lines().rev().nth(1).expect("the line").trim_end().to_owned()
}

const NOT_HERE: &str = "/srv/shop/src/main.cpp is not on this machine (--source DIR)";

#[test]
fn source_and_instructions_of_a_function() {
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let mut live = opened(width, height);
        golden(&format!("source-{width}x{height}.txt"), &live.screen());
        live.press("a");
        answer(&mut live, Found::Instructions(instructions()));
        golden(&format!("instructions-{width}x{height}.txt"), &live.screen());
        let mut live = self::live(width, height);
        live.press("r2/price<enter>a");
        answer(&mut live, Found::Source(Err(NOT_HERE.into())));
        answer(&mut live, Found::Instructions(instructions()));
        golden(&format!("no-source-{width}x{height}.txt"), &live.screen());
    }
}

/// Returns (line or address, total, self) of the rows with time, as they are on the screen.
fn shares(live: &Live) -> Vec<(String, String, String)> {
    let screen = live.screen();
    let rows = screen.lines().skip(6).take_while(|row| !row.starts_with(" >"));
    let shares = rows.filter_map(|row| {
        let (figures, rest) = row.split_at_checked(16)?;
        let (total, own) = figures.trim().split_once(char::is_whitespace)?;
        let number = rest.split_whitespace().next()?;
        Some((number.to_owned(), total.to_owned(), own.trim().to_owned()))
    });
    shares.collect()
}

#[test]
fn each_line_has_its_share_of_the_function() {
    let live = opened(120, 40);
    // Of 7 stacks: 4 at line 50 alone, 2 at 52 and 50, 1 at 51, whose leaf is there.
    let expected = [("50", "85.7", "0.0"), ("51", "14.3", "14.3"), ("52", "28.5", "0.0")];
    let found = shares(&live);
    let near = |text: &str, expected: &str| {
        let number = |text: &str| text.parse::<f64>().expect("a share");
        (number(text) - number(expected)).abs() < 0.3
    };
    assert_eq!(found.len(), expected.len(), "{}", live.screen());
    for ((line, total, own), wanted) in found.iter().zip(expected) {
        assert_eq!(line, wanted.0, "{}", live.screen());
        assert!(near(total, wanted.1) && near(own, wanted.2), "{found:?}");
    }
    assert!(live.selected().contains("item.shipping"), "the hottest: {}", live.screen());
    assert!(about(&live).contains("this function has"), "{}", about(&live));
}

#[test]
fn a_switches_and_backspace_goes_back() {
    for (view, name) in
        [("1E/price<enter>", "price"), ("2/tax<enter>", "tax"), ("4/price<enter>", "price")]
    {
        let mut live = live(120, 40);
        let before = live.press(view).screen();
        assert!(
            live.press("a").screen().contains(&format!("SOURCE OF {name}")),
            "{}",
            live.screen()
        );
        let request = asked(&mut live).expect("a request");
        assert!(matches!(request.of, CodeOf::Source(of) if of.file.as_deref() == Some(PATH)));
        assert!(live.press("a").screen().contains("INSTRUCTIONS OF"), "{}", live.screen());
        let request = asked(&mut live).expect("another request");
        assert_eq!(request.code.processes.len(), 1, "{:?}", request.code);
        assert!(request.of == CodeOf::Instructions && request.code.place.is_some());
        assert!(live.press("a").screen().contains("SOURCE OF"), "{}", live.screen());
        assert!(asked(&mut live).is_none(), "it was asked for before");
        assert_eq!(live.press("<bs>").screen(), before, "{view}");
        live.press("a").press("<esc>");
        assert!(
            live.screen().contains("SOURCE OF"),
            "Esc first ends the search: {}",
            live.screen()
        );
        assert!(!live.press("<esc>").screen().contains("SOURCE OF"), "{}", live.screen());
    }
}

#[test]
fn instructions_take_the_place_of_a_source_that_is_not_there() {
    let mut live = live(100, 30);
    live.press("2/price<enter>a");
    assert!(live.screen().contains("reading ..."), "{}", live.screen());
    answer(&mut live, Found::Source(Err(NOT_HERE.into())));
    assert!(live.screen().contains("INSTRUCTIONS OF price"), "{}", live.screen());
    answer(&mut live, Found::Instructions(Err("/srv/shop/bin/shopd: it is gone".into())));
    // Lines with their time are shown without their text.
    assert!(live.screen().contains("SOURCE OF price"), "{}", live.screen());
    assert_eq!(shares(&live).len(), 3, "{}", live.screen());
    assert!(about(&live).contains(&format!("no source: {NOT_HERE}")), "{}", about(&live));
    live.press("a");
    assert!(about(&live).contains("no instructions: /srv/shop/bin/shopd: it is gone"));
}

#[test]
fn a_source_that_is_not_there_is_shown_to_who_chose_it() {
    let mut live = live(100, 30);
    live.press("2/price<enter>a");
    answer(&mut live, Found::Source(Err(NOT_HERE.into())));
    answer(&mut live, Found::Instructions(instructions()));
    assert!(live.screen().contains("INSTRUCTIONS OF price"), "{}", live.screen());
    live.press("a").press("k");
    assert!(live.screen().contains("SOURCE OF price"), "{}", live.screen());
    assert!(about(&live).contains(&format!("no source: {NOT_HERE}")), "{}", about(&live));
    assert_eq!(shares(&live).len(), 3, "{}", live.screen());
}

/// The code around the hottest place may be that of the function into which this one is inlined.
#[test]
fn it_says_whose_instructions_they_are_and_how_much_time_is_elsewhere() {
    let mut live = opened(120, 40);
    live.press("a");
    let all = instructions().expect("some");
    let function = "checkout".into();
    // Without those that have time.
    let list = all.list[40..].to_vec();
    let other = Instructions { function, list, ..(*all).clone() };
    answer(&mut live, Found::Instructions(Ok(Arc::new(other))));
    assert!(live.line(5).contains("price: in checkout, /srv/shop/bin/shopd"), "{}", live.line(5));
    assert!(about(&live).contains(", 14.3 % of it in other code than this"), "{}", about(&live));
}

#[test]
fn the_function_of_the_source_is_that_of_other_views() {
    let mut live = opened(120, 40);
    let before = live.press("<bs>3").screen();
    assert_eq!(live.press("2/price<enter>a3").screen(), before);
}

/// A row of what the user's function calls elsewhere is no function of its own.
#[test]
fn the_source_of_a_call_elsewhere_is_that_of_its_caller() {
    const STACK: &str = "main:1;shop::cart:5;malloc;brk";
    let doing: Does = Box::new(|_| Doing::Runs(STACK));
    let mut world = World::new(vec![Script { pid: PID, name: "main".into(), doing }]);
    let mut live = Live::new(100, 30, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(20 * SECOND).snapshot())));
    live.press("1E");
    assert!(live.press("/malloc<enter>").selected().contains("malloc"), "{}", live.screen());
    assert!(live.press("a").screen().contains("SOURCE OF shop::cart"), "{}", live.screen());
    answer(&mut live, Found::Source(source(false)));
    assert_eq!(shares(&live), [("5".into(), "100.0".into(), "100.0".into())], "{}", live.screen());
    // So it is in a comparison.
    for view in ["<bs>M=E", "<bs>4"] {
        live.press(view).press("/malloc<enter>");
        assert!(live.line(0).contains("DIFF"), "{}", live.screen());
        assert!(live.press("a").screen().contains("SOURCE OF shop::cart"), "{}", live.screen());
    }
}

#[test]
fn a_row_of_the_baseline_alone_has_a_source_too() {
    let (_, mut live) = released(120, 40);
    live.press("=E/legacy<enter>");
    let screen = live.press("a").screen();
    assert!(screen.contains("SOURCE OF legacy::convert"), "{screen}");
    assert!(screen.contains("the function has no time in this range"), "{screen}");
}

#[test]
fn an_answer_about_another_function_is_dropped() {
    let mut live = live(100, 30);
    live.press("2/price<enter>a");
    let CodeRequest { number, .. } = asked(&mut live).expect("a request");
    live.press("<bs>/tax<enter>a");
    live.send(Input::Code(CodeRead { number, read: Found::Source(source(false)) }));
    assert!(!live.screen().contains("item.count()"), "{}", live.screen());
    answer(&mut live, Found::Source(source(true)));
    assert!(live.screen().contains("// line 7"), "{}", live.screen());
    assert!(about(&live).contains("newer than the program"), "{}", about(&live));
}

#[test]
fn the_cursor_stays_where_it_was_moved_and_hot_lines_are_keys_apart() {
    let mut world = pricing();
    let mut live = Live::new(100, 30, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(20 * SECOND).snapshot())));
    live.press("2/price<enter>a");
    answer(&mut live, Found::Source(source(false)));
    assert!(live.selected().contains("item.shipping"), "{}", live.screen());
    assert!(live.press(">").selected().contains("round(tax"), "{}", live.screen());
    assert!(live.press(">").selected().contains("bundle"), "{}", live.screen());
    assert!(live.press(">").screen().contains("no other line has time"), "{}", live.screen());
    assert!(live.press("<lt>").selected().contains("round(tax"), "{}", live.screen());
    live.press("<lt><lt>");
    assert!(live.screen().contains("this is the hottest line"), "{}", live.screen());
    live.press("/is_gift<enter>");
    assert!(live.selected().contains("is_gift"), "{}", live.screen());
    live.send(Input::Snapshot(Arc::new(world.run(SECOND).snapshot())));
    assert!(live.selected().contains("is_gift"), "{}", live.screen());
    assert!(live.press("g").selected().contains("// line 1"), "{}", live.screen());
    assert!(live.press("G").selected().contains('}'), "{}", live.screen());
    assert!(live.press("<pgup>k").screen().contains("SOURCE OF"));
}

#[test]
fn it_follows_metric_filters_and_the_range() {
    let mut live = opened(120, 40);
    let all = shares(&live);
    // Without stacks with `bundle`, which are at both lines.
    live.press("fjj<enter>bundle<enter><esc>");
    let lines: Vec<String> = shares(&live).into_iter().map(|(line, ..)| line).collect();
    assert_eq!(lines, ["50", "51"], "{}", live.screen());
    live.press("fjj<enter><c-u><enter><esc>");
    assert_eq!(shares(&live), all, "{}", live.screen());
    // All of it was on a core.
    live.press("mm");
    assert!(live.screen().contains("SOURCE OF price"), "{}", live.screen());
}

#[test]
fn rows_that_are_no_functions_have_no_source() {
    let mut live = Live::shop(80, 24);
    assert!(
        live.press("ga").screen().contains("a thread group has no source"),
        "{}",
        live.screen()
    );
    let mut live = Live::shop(80, 24);
    assert!(live.press("bb2a").screen().contains("rows are no functions now"), "{}", live.screen());
    let mut live = Live::new(80, 24, AppConfig::default());
    assert!(!live.press("a").screen().contains("SOURCE OF"), "{}", live.screen());
}

/// A frozen screen keeps its range, and a saved profile has no process.
#[test]
fn it_works_frozen_and_for_a_saved_profile() {
    let mut live = live(100, 30);
    live.press(" 2/price<enter>a");
    answer(&mut live, Found::Source(source(false)));
    assert_eq!(shares(&live).len(), 3, "{}", live.screen());
    let mut live = Live::new(100, 30, AppConfig { saved: true, ..AppConfig::default() });
    live.send(Input::Snapshot(Arc::new(pricing().run(40 * SECOND).snapshot())));
    live.press("2/price<enter>a");
    let request = asked(&mut live).expect("a request");
    assert_eq!(request.code.processes.len(), 1, "{:?}", request.code);
    let CodeRequest { number, .. } = request;
    live.send(Input::Code(CodeRead { number, read: Found::Source(source(false)) }));
    assert_eq!(shares(&live).len(), 3, "{}", live.screen());
}

#[test]
fn any_size_can_be_drawn_with_any_text() {
    let mut live = opened(80, 24);
    for keys in ["", "a", "a"] {
        live.press(keys);
        for (width, height) in (1..40).map(|n| (n, n / 2 + 1)) {
            (live.width, live.height) = (width, height);
            live.send(Input::Resize { width, height });
            live.buffer();
        }
    }
}
