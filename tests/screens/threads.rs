//! The view of threads: a row per thread or group.

use sampletop::model::projection::settings::Filter;

use super::*;

fn rows(live: &Live) -> Vec<String> {
    live.screen().lines().skip(6).take_while(|row| !row.is_empty()).map(str::to_owned).collect()
}

#[test]
fn a_row_says_what_its_threads_do_and_where() {
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        golden(
            &format!("threads-{width}x{height}.txt"),
            &Live::shop(width, height).press("5").screen(),
        );
    }
    golden("each-thread-80x24.txt", &Live::shop(80, 24).press("tt5").screen());
}

#[test]
fn rows_are_sorted_as_elsewhere_and_the_selected_one_stays() {
    let mut live = Live::shop(120, 40);
    live.press("5jj");
    let selected = live.selected();
    assert!(selected.contains(" main "), "{selected}");
    let before = rows(&live);
    live.press("R");
    let reversed: Vec<String> = before.iter().rev().cloned().collect();
    assert_eq!(rows(&live), reversed);
    assert_eq!(live.selected(), selected, "{}", live.screen());
    // A group that is in view is found by its name and by its function.
    assert!(live.press("/log-wr<enter>").selected().contains("log-writer"));
    // So is one by the name of a thread of it.
    assert!(live.press("/http-nio-exec-7<enter>").selected().contains("http-nio-exec-"));
    let in_function = live.press("/Connection<enter>").selected();
    assert!(in_function.contains("Connection"), "{in_function}");
}

#[test]
fn enter_shows_only_those_threads_and_again_all() {
    let mut live = Live::shop(120, 40);
    let all = live.screen();
    live.press("5/log-wr<enter>");
    live.press("<enter>");
    let screen = live.screen();
    assert!(screen.contains("log-writer") && !screen.contains("http-nio"), "{screen}");
    live.press("5");
    assert_eq!(rows(&live).len(), 1, "{}", live.screen());
    live.press("<enter>1");
    let shown =
        |screen: &str| screen.lines().skip(6).take(20).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(shown(&live.screen()), shown(&all), "{}", live.screen());
    // One thread of a name that others begin with, too.
    live.press("tt5/^http-nio-exec-1 <enter><enter>");
    let screen = live.press("5").screen();
    assert_eq!(rows(&live).len(), 1, "{screen}");
}

#[test]
fn a_filter_of_ones_own_comes_back() {
    let mut config = AppConfig::default();
    config.settings.filters.threads = Filter::set(regex::Regex::new("exec|worker").expect("valid"));
    let mut live = Live::new(120, 40, config);
    live.send(Input::Snapshot(shop()));
    let own = rows(live.press("5"));
    assert_eq!(own.len(), 2, "{}", live.screen());
    assert_eq!(rows(live.press("<enter>5")).len(), 1, "{}", live.screen());
    assert_eq!(rows(live.press("<enter>")), own);
    // Groups of another kind have other names.
    live.press("<enter>5t");
    // Names of threads have 15 bytes: three of them are equal.
    assert_eq!(rows(&live).len(), 14, "{}", live.screen());
}

#[test]
fn a_row_of_threads_is_no_call() {
    let mut live = Live::shop(120, 40);
    for key in ["A", "I"] {
        assert!(live.press("5").press(key).screen().contains("select a call first"), "{key}");
    }
}

#[test]
fn a_group_that_is_shown_alone_is_neither_saved_nor_kept_for_another_process() {
    let threads = |live: &Live| {
        live.app.settings().filters.threads.active().map(|pattern| pattern.as_str().to_owned())
    };
    let mut live = Live::shop(80, 24);
    live.press("5<enter>");
    assert!(threads(&live).is_some());
    live.effects.clear();
    live.press("W");
    let [Effect::SaveChoices(choices)] = &live.effects[..] else { panic!("{:?}", live.effects) };
    assert!(choices.settings.filters.threads.active().is_none());
    assert!(threads(&live).is_some(), "it is shown alone still");
    live.send(Input::Detached);
    assert_eq!(threads(&live), None);
}
