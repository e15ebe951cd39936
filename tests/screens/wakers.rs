//! Key `u`: who wakes the threads of a row.

use super::*;
use sampletop::app::Counted;
use sampletop::model::projection::settings::Settings;
use sampletop::model::projection::woken_threads;
use sampletop::model::vocabulary::wakeup::{Cost, Pair, Waker, Wakeups, Woken};

/// The threads of the shop are numbered from its process's number.
const WOKEN: u32 = fixture::PID;

/// Three wakers of the first thread, one of another thread, which is not in the row.
pub fn counted() -> Counted {
    let thread = |pid, tid, call| Waker::Thread {
        pid,
        tid,
        name: "kernel's name".into(),
        process: "redis-server".into(),
        call,
    };
    let woken = |tid, waker, count| Pair { waker, woken: Woken { pid: fixture::PID, tid }, count };
    let wakeups = Wakeups {
        from: 0,
        duration_ns: 10 * SECOND,
        pairs: vec![
            woken(WOKEN, thread(fixture::PID, WOKEN + 1, 202), 9_120),
            woken(WOKEN, thread(812, 812, 44), 40),
            woken(WOKEN, Waker::Interrupt, 1),
            woken(u32::MAX, Waker::Interrupt, 77),
        ],
        lost: 3,
        seen: 20_000,
        cost: Cost::Estimated(2_450_000),
    };
    let snapshot = Snapshot { wakeups: Some(wakeups.clone().into()), ..Snapshot::clone(&shop()) };
    Counted { wakeups, threads: woken_threads(&snapshot, &Settings::default()) }
}

fn counts(live: &mut Live) -> bool {
    let effects = std::mem::take(&mut live.effects);
    matches!(effects[..], [Effect::CountWakeups(time)] if time.as_secs() == 10)
}

#[test]
fn a_row_is_counted_once_and_shown_when_it_is_done() {
    let mut live = Live::shop(80, 24);
    live.press("/^http-nio<enter>u");
    assert!(counts(&mut live));
    assert!(live.screen().contains("counting who wakes whom for 10 s: at most 0.2 us a wakeup"));
    live.press("u");
    assert!(live.effects.is_empty() && live.screen().contains("still counting"));
    let view = live.press("<esc>").screen();
    live.send(Input::Woken(Ok(counted().into())));
    golden("wakers-80x24.txt", &live.screen());
    assert_eq!(live.press("jjq").screen(), view, "it is left as help is");
    live.press("u");
    assert!(counts(&mut live), "and is counted again");
}

#[test]
fn another_page_stays_open() {
    let mut live = Live::shop(80, 24);
    live.press("u?");
    live.effects.clear();
    live.send(Input::Woken(Ok(counted().into())));
    assert!(live.screen().starts_with(" sampletop "), "{}", live.screen());
    live.press("qu");
    assert!(live.effects.is_empty(), "what was counted is shown");
    assert!(live.screen().starts_with(" Who woke the threads of "), "{}", live.screen());
}

#[test]
fn a_refusal_is_a_sentence_and_the_key_works_again() {
    let mut live = Live::shop(120, 40);
    live.press("u");
    live.effects.clear();
    live.send(Input::Woken(Err("wakeups cannot be counted: no".into())));
    assert!(live.screen().contains("wakeups cannot be counted: no"));
    live.press("u");
    assert!(counts(&mut live));
    let mut saved = Live::new(80, 24, AppConfig { saved: true, ..AppConfig::default() });
    saved.send(Input::Snapshot(shop())).press("u");
    assert!(saved.effects.is_empty() && saved.screen().contains("was not counted"));
}

/// A function's row has the threads that were in it, in both views.
#[test]
fn a_functions_row_has_its_own_threads() {
    let mut live = Live::shop(120, 40);
    live.press("E/receive$<enter>u");
    live.effects.clear();
    live.send(Input::Woken(Ok(counted().into())));
    let tree = live.screen();
    assert!(tree.starts_with(" Who woke the threads of ") && tree.contains("receive"), "{tree}");
    live.press("q2/receive$<enter>u");
    live.effects.clear();
    live.send(Input::Woken(Ok(counted().into())));
    assert_eq!(
        live.screen().lines().skip(2).collect::<Vec<_>>(),
        tree.lines().skip(2).collect::<Vec<_>>()
    );
}
