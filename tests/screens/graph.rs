//! The graph view: one function with its callers and callees.

use super::fixture::{Doing, PID, Script};
use super::*;

/// Two callers of `price`, one of which is reached again through it; `price` and what it calls.
pub fn pricing() -> World {
    const STACKS: [&str; 10] = [
        "main:1;checkout:10;price:50;round:5",
        "main:1;checkout:10;price:50;round:5",
        "main:1;checkout:10;price:50;tax:7",
        "main:1;checkout:10;price:51",
        "main:1;report:20;price:50;round:5",
        "main:1;report:20;price:52;bundle:9;price:50;tax:7",
        "main:1;report:20;price:52;bundle:9;price:50;tax:7",
        "main:1;report:20;format:3",
        "main:1;report:20;format:3",
        "main:1;report:20;format:3",
    ];
    let doing = |tick: u64| Doing::Runs(STACKS[(tick % 10) as usize]);
    World::new(vec![Script { pid: PID, name: "main".into(), doing: Box::new(doing) }])
}

fn live(width: u16, height: u16) -> Live {
    let mut live = Live::new(width, height, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(pricing().run(40 * SECOND).snapshot())));
    live
}

fn rows(live: &Live) -> Vec<String> {
    let rows = live.screen().lines().skip(6).map(str::to_owned).collect::<Vec<_>>();
    rows.into_iter().take_while(|row| !row.is_empty()).collect()
}

#[test]
fn callers_stand_above_the_function_and_callees_below() {
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let mut live = live(width, height);
        live.press("/price<enter>3");
        golden(&format!("graph-{width}x{height}.txt"), &live.screen());
    }
    let mut live = live(80, 24);
    live.press("r2/price<enter><enter>");
    let shares: Vec<String> = rows(&live)
        .iter()
        .map(|row| {
            let words: Vec<&str> = row.split_whitespace().collect();
            format!("{} {}", words[0], words[3..].join(" "))
        })
        .collect();
    // Of 7 stacks: 4 from checkout, 3 from report, 2 of which are recursive.
    assert_eq!(
        shares,
        [
            "42.9 report :20",
            "57.1 checkout :10",
            "100.0 ▾ price :50 28.6 % recursive",
            "14.3 its own time",
            // The first stack had no time before it was seen.
            "42.9 › tax :7",
            "42.8 › round :5",
        ],
        "{}",
        live.screen()
    );
}

#[test]
fn enter_walks_to_a_neighbour_and_backspace_back() {
    let mut live = live(80, 24);
    live.press("2/price<enter>3");
    assert!(live.selected().contains("▾ price"), "{}", live.screen());
    assert!(live.press("k<enter>").selected().contains("▾ checkout"), "{}", live.screen());
    let callers = rows(&live);
    assert!(callers[0].contains("main"), "{callers:?}");
    assert!(live.press("<bs>").selected().contains("checkout"), "where one came from");
    assert!(rows(&live).iter().any(|row| row.contains("▾ price")), "{}", live.screen());
    assert!(live.press("jj<enter>").screen().contains("Enter on a caller"), "{}", live.screen());
    assert!(live.press("<bs>").screen().contains("no function was in the middle before"));
    // The outermost function is called by threads.
    live.press("2/^main$<enter>3k");
    assert!(live.selected().contains("(threads)"), "{}", live.screen());
    assert!(live.press("<enter>").screen().contains("threads begin here"), "{}", live.screen());
}

#[test]
fn the_middle_stays_while_time_goes_on_and_may_have_none() {
    let mut world = pricing();
    let mut live = Live::new(120, 40, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(20 * SECOND).snapshot())));
    live.press("3");
    assert!(
        rows(&live).iter().any(|row| row.contains("▾ main")),
        "the first method:\n{}",
        live.screen()
    );
    live.press("1/tax<enter>3");
    for _ in 0..3 {
        live.send(Input::Snapshot(Arc::new(world.run(SECOND).snapshot())));
        assert!(live.selected().contains("▾ tax"), "{}", live.screen());
    }
    // Another filter hides all of it.
    live.press("fjj<enter>tax<enter><esc>");
    assert!(live.screen().contains("the function has no row of its own here"), "{}", live.screen());
    // Search, metric, copy and other keys work here, too.
    live.press("fjj<enter><c-u><enter><esc>/price<enter>");
    assert!(live.selected().contains("price"), "{}", live.screen());
    live.press("mAAIIyu");
}

#[test]
fn other_units_have_other_functions_in_the_middle() {
    let mut live = live(120, 40);
    live.press("2/price<enter>3");
    for unit in ["lines", "classes", "packages", "modules", "functions"] {
        let screen = live.press("b").screen();
        assert!(screen.contains(&format!("rows are {unit}")), "{screen}");
        assert!(rows(&live).iter().any(|row| row.contains('▾')), "{unit}:\n{screen}");
    }
    assert!(live.press("<bs>").screen().contains("no function was in the middle before"));
}
