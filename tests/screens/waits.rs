//! The view of waits: locks, and long waits one by one.

use super::fixture::{Does, Doing, PID, RECVFROM, Script};
use super::incidents::{child, lock_convoy};
use super::*;

/// The object for which the threads wait, and its holder.
const MUTEX: u64 = 0x7f00_1000;

fn convoy() -> World {
    let scripts: Vec<Script> = lock_convoy();
    World::new(scripts).hold("http-exec", MUTEX, "http-exec-7")
}

pub fn live(width: u16, height: u16) -> Live {
    let mut live = Live::new(width, height, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(convoy().run(40 * SECOND).snapshot())));
    live
}

#[test]
fn locks_come_first_then_the_longest_waits() {
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let mut live = live(width, height);
        golden(&format!("waits-{width}x{height}.txt"), &live.press("7").screen());
    }
}

#[test]
fn a_lock_opens_into_the_threads_that_waited_and_those_that_held_it() {
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let mut live = live(width, height);
        golden(&format!("waits-lock-{width}x{height}.txt"), &live.press("7<right>").screen());
    }
    let mut live = live(120, 40);
    let closed = live.press("7").screen();
    live.press("<right>jj");
    let waiter = live.selected();
    assert!(waiter.contains("http-exec-") && waiter.contains("waits in"), "{waiter}");
    // Its row stays under the cursor, and leads to its stack and to its thread.
    let mut others = Live::new(120, 40, AppConfig::default());
    std::mem::swap(&mut others, &mut live);
    let name = waiter.split_whitespace().find(|word| word.starts_with("http-exec")).expect("one");
    assert!(others.press("5").selected().contains("http-exec-"), "{}", others.screen());
    others.press("7");
    assert_eq!(others.selected(), waiter);
    others.press("6");
    assert!(others.screen().contains(&format!(">{name}")), "{}", others.screen());
    let tree = others.press("7<enter>").selected();
    assert!(tree.contains("Ledger.post"), "{tree}");
    others.press("7gjjjjjjjjj");
    assert!(others.selected().contains("http-exec-7"), "{}", others.screen());
    // From any of its rows.
    others.press("<left>");
    assert!(others.selected().contains("threads"), "{}", others.selected());
    assert_eq!(others.screen(), closed);
}

#[test]
fn a_wait_is_opened_in_the_tree() {
    let mut live = live(120, 40);
    live.press("7jjj");
    let name = live.selected();
    assert!(name.contains("http-exec-"), "{name}");
    assert!(live.screen().contains("Ledger.post"), "{}", live.screen());
    let selected = live.press("<enter>").selected();
    assert!(selected.contains("mutex, held by http-exec-7"), "{selected}");
    assert!(live.screen().contains("BUSY%"), "it is the tree:\n{}", live.screen());
    // Tab goes through all views.
    assert!(!live.press("<tab>").screen().contains("WAITED"), "methods");
    assert!(live.press("<tab>").screen().contains("OF IT%"), "graph");
    assert!(live.press("<tab>").screen().contains("FLAME"), "flame graph");
    assert!(live.press("<tab>").screen().contains("MOSTLY IN"), "threads");
    assert!(live.press("<tab>").screen().contains("LASTED"), "timeline");
    assert!(live.press("<tab>").screen().contains("WAITED"), "waits");
    assert_eq!(live.press("<tab>").selected(), selected, "the tree, as it was");
}

#[test]
fn waits_are_ordered_by_duration_or_start_and_the_selected_one_stays() {
    let mut live = live(120, 40);
    // The holder sleeps for five seconds, again and again; the others wait all the time.
    live.press("7G");
    let last = live.selected();
    assert!(last.contains("sleep"), "{last}");
    let after = live.press("s").selected();
    assert_eq!(last.split_whitespace().next(), after.split_whitespace().next(), "{last} {after}");
    let rows: Vec<String> = live.screen().lines().skip(6).map(str::to_owned).collect();
    let first_wait = rows.iter().position(|row| row.contains("sleep")).expect("one is shown");
    let convoy = rows.iter().rposition(|row| row.contains(" lock  http-exec"));
    assert!(convoy.is_none_or(|at| first_wait < at), "{}", live.screen());
    // A search finds threads, locks and functions.
    assert!(live.press("/http-exec-12<enter>").selected().contains("http-exec-12"));
    assert!(live.press("/mutex 0x<enter>").selected().contains("threads"), "{}", live.screen());
    assert!(live.press("/no such<enter>").screen().contains("no match"));
}

#[test]
fn a_call_that_waits_is_named_after_the_code_that_led_to_it() {
    for (width, path) in [
        (120, "Thumbnail::make › shop::run_command › waitpid"),
        (80, "shop::run_command › waitpid"),
    ] {
        let mut live = Live::new(width, 40, AppConfig::default());
        live.send(Input::Snapshot(Arc::new(World::new(child()).run(40 * SECOND).snapshot())));
        let screen = live.press("7").screen();
        assert!(screen.contains(&format!(" {path}")), "{screen}");
    }
}

/// Calls of libraries between them say little.
#[test]
fn the_users_functions_are_named_before_a_wait() {
    const STACK: &str =
        "start_thread;shop::serve:41;shop::load:7;shop::query:3;PQexec;PQgetResult;recv";
    let doing: Does =
        Box::new(|tick| Doing::Waits { call: RECVFROM, fd: 37, stack: STACK, wait: tick / 40 });
    let script = Script { pid: PID, name: "serve-1".into(), doing };
    let mut live = Live::new(200, 40, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(World::new(vec![script]).run(40 * SECOND).snapshot())));
    for (keys, call) in [("7", "PQexec"), ("oo", "recv")] {
        let screen = live.press(keys).screen();
        let row = live.line(6);
        let (_, place) = row.split_once("serve-1").unwrap_or_else(|| panic!("{screen}"));
        assert_eq!(
            place.trim(),
            format!("shop::serve › shop::load › shop::query › {call}"),
            "{screen}"
        );
    }
}

#[test]
fn a_range_without_waits_says_so() {
    let mut live = Live::new(80, 24, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(World::deep().run(10 * SECOND).snapshot())));
    let screen = live.press("7").screen();
    assert!(screen.contains("no long wait of a shown thread was observed"), "{screen}");
    // Keys of rows have none to work on.
    live.press("jGg<enter>yAIux!");
    live.press("1");
    assert!(live.selected().contains("deep"));
}

/// Fifty threads that wait for their database, again and again: more waits than are listed.
#[test]
fn waits_that_are_not_listed_are_counted() {
    let waits = |n: u64| -> Does {
        Box::new(move |tick| Doing::Waits {
            call: RECVFROM,
            fd: 37,
            stack: "start_thread;shop::serve:41;shop::Db::query:3;recv",
            wait: 1_000 * n + tick / 4,
        })
    };
    let script = |n| Script { pid: PID, name: format!("serve-{n}"), doing: waits(n) };
    let snapshot = Arc::new(World::new((0..50).map(script).collect()).run(40 * SECOND).snapshot());
    for (width, height, words) in [
        (80, 24, "FOR WHAT  500 shorter dropped"),
        (120, 40, "FOR WHAT, AND WHERE  the 1000 longest waits; 500 shorter dropped"),
        (200, 60, "FOR WHAT, AND WHERE  the 1000 longest waits; 500 shorter dropped"),
    ] {
        let mut live = Live::new(width, height, AppConfig::default());
        live.send(Input::Snapshot(snapshot.clone()));
        golden(&format!("waits-dropped-{width}x{height}.txt"), &live.press("7").screen());
        assert!(live.screen().contains(words), "{}", live.screen());
    }
}
