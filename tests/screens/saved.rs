//! What was looked up and counted goes into the saved file, and is shown when that is opened.

use sampletop::app::Counted;
use sampletop::formats::saved;
use sampletop::model::facts::observed_waits::ObservedWait;
use sampletop::model::projection::settings::Settings;
use sampletop::model::projection::woken_threads;
use sampletop::model::vocabulary::wakeup::Wakeups;

use super::*;

/// Returns the snapshot that key `x` saves.
fn exported(live: &mut Live) -> Snapshot {
    live.effects.clear();
    live.press("x");
    match live.effects.pop() {
        Some(Effect::Export { snapshot, .. }) => Snapshot::clone(&snapshot),
        other => panic!("{other:?}"),
    }
}

/// Shows a snapshot as it is after writing and reading.
fn opened(snapshot: &Snapshot) -> Live {
    let mut file = Vec::new();
    saved::write(snapshot, &Settings::default(), &mut file).expect("memory takes it");
    let snapshot = saved::read(&file).expect("just written").snapshot;
    let mut live = Live::new(80, 24, AppConfig { saved: true, ..AppConfig::default() });
    live.send(Input::Snapshot(Arc::new(snapshot)));
    live
}

fn about(live: &Live) -> String {
    live.screen().lines().rev().nth(1).expect("the line").trim_end().to_owned()
}

#[test]
fn a_saved_profile_says_what_its_threads_waited_for() {
    const WAITS: &str = "recv fd 37 -> 10.0.3.9:5432";
    let mut live = Live::shop(80, 24);
    live.press("/receive$<enter>");
    let line = about(&live);
    assert!(line.contains(WAITS), "{line}");
    let snapshot = exported(&mut live);
    let waits = &snapshot.observed_waits;
    assert_eq!(waits.len(), 5, "{waits:?}");
    let is_recv = |wait: &ObservedWait| wait.waits_for.to_string() == WAITS;
    assert!(waits.iter().all(|wait| is_recv(wait) && wait.at <= snapshot.at), "{waits:?}");

    let mut saved = opened(&snapshot);
    assert_eq!(about(saved.press("/receive$<enter>")), line);
    assert!(!saved.effects.iter().any(|effect| matches!(effect, Effect::AskWaits(_))));
    let without = Snapshot { observed_waits: Arc::default(), ..snapshot };
    let line = about(opened(&without).press("/receive$<enter>"));
    assert!(!line.contains(WAITS), "{line}");
}

/// The answer says nothing of a thread that is elsewhere by now, or of a lock's address.
#[test]
fn answers_are_kept_for_the_place_they_were_asked_for() {
    let mut live = Live::shop(80, 24);
    live.press("Cg<down>");
    assert!(about(&live).contains("mutex held by"), "{}", about(&live));
    let snapshot = exported(&mut live);
    let kept = |wait: &ObservedWait| {
        let now = snapshot.threads.iter().find(|now| now.thread == wait.thread);
        now.is_some_and(|now| (now.stack, now.syscall) == (wait.stack, Some(wait.call)))
            && wait.waits_for.what == "recv"
    };
    let waits = &snapshot.observed_waits;
    assert!(!waits.is_empty() && waits.iter().all(kept), "{waits:?}");
    // An older snapshot may not have those stacks.
    let older = Arc::new(Snapshot { at: snapshot.at - 1, ..Snapshot::clone(&shop()) });
    assert_eq!(live.app.with_looked_up(&older).observed_waits.len(), 0);
}

#[test]
fn what_is_chosen_for_a_saved_profile_stays_there() {
    let mut saved = opened(&shop());
    saved.press("m");
    saved.effects.clear();
    saved.press("W");
    assert!(saved.effects.is_empty(), "{:?}", saved.effects);
    assert!(saved.screen().contains("W saves those of a live session"), "{}", saved.screen());
}

#[test]
fn a_saved_profile_says_who_woke_its_threads() {
    let mut live = Live::shop(80, 24);
    live.press("/^http-nio<enter>u");
    live.send(Input::Woken(Ok(wakers::counted().into())));
    let page = live.screen();
    live.press("q");
    let snapshot = exported(&mut live);
    assert_eq!(*snapshot.wakeups.clone().expect("they are kept"), wakers::counted().wakeups);

    let mut saved = opened(&snapshot);
    saved.press("/^http-nio<enter>");
    saved.effects.clear();
    saved.press("u");
    let [Effect::NameWakers(kept)] = &saved.effects[..] else { panic!("{:?}", saved.effects) };
    let with = Snapshot { wakeups: Some(kept.clone()), ..snapshot };
    let threads = woken_threads(&with, &Settings::default());
    let counted = Counted { wakeups: Wakeups::clone(kept), threads };
    saved.send(Input::Woken(Ok(counted.into())));
    assert_eq!(
        saved.screen().lines().skip(1).collect::<Vec<_>>(),
        page.lines().skip(1).collect::<Vec<_>>()
    );
}
