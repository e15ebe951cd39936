//! What was chosen in one view is chosen in the next.

use super::compared::released;
use super::fixture::{Doing, PID, Script};
use super::flame::about;
use super::graph::pricing;
use super::*;

fn live_of(mut world: World) -> Live {
    let mut live = Live::new(80, 24, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(world.run(40 * SECOND).snapshot())));
    live
}

/// Two threads with the same two functions; each is mostly in another one.
fn two_threads() -> World {
    let script = |name: &str, stacks: [&'static str; 2]| Script {
        pid: PID,
        name: name.into(),
        doing: Box::new(move |tick| Doing::Runs(stacks[usize::from(tick % 4 == 0)])),
    };
    World::new(vec![
        script("alpha", ["main:1;encode:5", "main:1;load:6"]),
        script("beta", ["main:1;load:8", "main:1;encode:9"]),
    ])
}

/// Returns what tells the row under the cursor of a view: its line, or that about its bar.
fn chosen(live: &Live, view: &str) -> String {
    match view {
        "4" => about(live),
        _ => live.selected(),
    }
}

#[test]
fn a_function_goes_from_view_to_view() {
    let views = ["1", "2", "3", "4"];
    for from in views {
        for to in views {
            let mut live = live_of(pricing());
            live.press("2/tax<enter>").press(from).press(to);
            let row = chosen(&live, to);
            assert!(row.contains("tax"), "{from} to {to}: {row}\n{}", live.screen());
        }
    }
}

#[test]
fn going_through_the_views_chooses_nothing() {
    let mut live = live_of(two_threads());
    let (tree, methods) = (live.selected(), live.press("2").selected());
    live.press("<tab><tab><tab><tab><tab><tab><tab>");
    assert_eq!(live.selected(), methods, "{}", live.screen());
    assert_eq!(live.press("1").selected(), tree, "{}", live.screen());
    // The cursor stays at the top, whichever row that becomes.
    assert_ne!(live.press("2R").selected(), methods, "{}", live.screen());
}

#[test]
fn of_several_rows_that_with_most_time_is_chosen_unless_one_of_them_is() {
    let mut live = live_of(two_threads());
    let row_above = |live: &Live| {
        let buffer = live.buffer();
        let at = (0..24).find(|y| buffer[(1, *y)].modifier.contains(Modifier::REVERSED));
        let above = live.screen().lines().take(at.expect("a row").into()).collect::<String>();
        let last = |name| above.rfind(name).unwrap_or(0);
        if last("alpha") > last("beta") { "alpha" } else { "beta" }
    };
    live.press("2/load<enter>1");
    assert!(live.selected().contains("load"), "{}", live.screen());
    assert_eq!(row_above(&live), "beta", "{}", live.screen());
    live.press("n");
    assert_eq!(row_above(&live), "alpha", "{}", live.screen());
    live.press("21");
    assert!(live.selected().contains("load"), "{}", live.screen());
    assert_eq!(row_above(&live), "alpha", "{}", live.screen());
}

#[test]
fn a_group_goes_to_the_threads_and_back() {
    let mut live = live_of(two_threads());
    live.press("/beta<enter>5");
    assert!(live.selected().contains("beta"), "{}", live.screen());
    live.press("/alpha<enter>1");
    assert!(live.selected().contains("alpha"), "{}", live.screen());
    // A row within the group stays.
    let row = live.press("jj").selected();
    assert_eq!(live.press("51").selected(), row, "{}", live.screen());
    live.press("5/beta<enter>4");
    assert!(about(&live).contains("beta"), "{}", live.screen());
    // A function's group, too.
    live.press("1g/encode<enter>5");
    assert!(live.selected().contains("alpha"), "{}", live.screen());
}

#[test]
fn a_function_goes_into_trees_that_are_turned_around() {
    let mut live = live_of(pricing());
    live.press("v2/tax<enter>1");
    assert!(live.selected().contains("tax"), "{}", live.screen());
    live.press("2/round<enter>4");
    assert!(about(&live).contains("round"), "{}", live.screen());
    live.press("v2/tax<enter>1");
    assert!(live.selected().contains("tax"), "{}", live.screen());
}

#[test]
fn what_a_thread_did_at_a_moment_goes_to_the_other_views() {
    let mut live = live_of(two_threads());
    // Of four columns in the time of two ticks each, one is of the less frequent function.
    live.press("w<c-u>-2s +400ms<enter>");
    for function in ["encode", "load"] {
        live.press("2g5/beta<enter>6<right>");
        for _ in 0..60 {
            if about(&live).contains(function) {
                break;
            }
            live.press("<left>");
        }
        assert!(about(&live).contains(function), "{}", live.screen());
        assert!(live.press("2").selected().contains(function), "{}", live.screen());
        live.press("6");
        live.press("1");
        assert!(live.selected().contains(function), "{}", live.screen());
        assert!(live.press("5").selected().contains("beta"), "{}", live.screen());
    }
}

#[test]
fn changes_have_the_same_selection() {
    let (_, mut live) = released(80, 24);
    live.press("=2/search<enter>1");
    assert!(live.selected().contains("search"), "{}", live.screen());
    live.press("/applies<enter>2");
    assert!(live.selected().contains("applies"), "{}", live.screen());
    live.press("4");
    assert!(about(&live).starts_with(" Rule::app"), "{}", live.screen());
    // The tree's own choice counts.
    live.press("1j2/search<enter>1");
    assert!(live.selected().contains("search"), "{}", live.screen());
    // One that has no time any more.
    live.press("1/legacy<enter>2");
    assert!(live.selected().contains("legacy"), "{}", live.screen());
}

#[test]
fn a_row_stays_when_one_only_looks_elsewhere() {
    // What a function calls elsewhere is a row of its own.
    let mut live = Live::shop(120, 40);
    live.press("/checkout<enter>");
    for _ in 0..12 {
        let row = live.selected();
        for there in ["a<bs>", "21", "51", "71", "31", "2a<bs>1"] {
            assert_eq!(live.press(there).selected(), row, "{there}: {}", live.screen());
        }
        live.press("j");
    }
    // A row of what a function calls elsewhere is of the function that is chosen.
    let mut live = Live::shop(120, 40);
    let row = live.press("/push_back<enter>").selected();
    assert!(row.contains("› vector::push_back"), "{row}");
    assert_eq!(live.press("2jk1").selected(), row, "{}", live.screen());
    // Callers of an inverted tree, too.
    let mut live = live_of(pricing());
    live.press("vEj");
    let row = live.selected();
    for there in ["a<bs>", "21", "51"] {
        assert_eq!(live.press(there).selected(), row, "{there}: {}", live.screen());
    }
}

#[test]
fn an_older_choice_elsewhere_does_not_come_back() {
    let mut live = waits::live(120, 40);
    live.press("7jjj1");
    let tree = live.press("/audit<enter>").selected();
    assert!(tree.contains("audit"), "{tree}");
    assert_eq!(live.press("71").selected(), tree, "{}", live.screen());
    live.press("6<lt><lt>1");
    let tree = live.press("g/audit<enter>").selected();
    assert_eq!(live.press("61").selected(), tree, "{}", live.screen());
}

#[test]
fn trees_that_are_being_turned_around_take_a_choice() {
    let mut live = waits::live(120, 40);
    live.press("v").slow = true;
    live.press("v7jjj1");
    live.slow = false;
    let requests = live.requests();
    requests.into_iter().for_each(|request| _ = live.answer(request));
    assert!(live.screen().contains("BUSY%"), "{}", live.screen());
}

#[test]
fn the_cursor_that_follows_the_hottest_row_does_so_in_each_view() {
    let mut live = live_of(pricing());
    live.press("2/tax<enter>1F2");
    assert!(!live.selected().contains("tax"), "{}", live.screen());
    let hottest = live.selected();
    live.press("g");
    assert_eq!(live.selected(), hottest, "{}", live.screen());
}

#[test]
fn a_wait_goes_to_its_own_stack() {
    let mut live = waits::live(120, 40);
    live.press("7jjj");
    let by_enter = live.press("<enter>").selected();
    let mut live = waits::live(120, 40);
    assert_eq!(live.press("7jjj1").selected(), by_enter, "{}", live.screen());
}
