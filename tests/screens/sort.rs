//! Orders of rows: the keys and the titles that sort, and the column with the arrow.

use sampletop::model::projection::settings::SortColumn;

use super::*;

fn titles(live: &Live) -> String {
    live.screen().lines().nth(5).expect("the titles").to_string()
}

/// The title that has the arrow.
fn marked(live: &Live) -> String {
    let titles = titles(live);
    let (_, from) = titles.split_once(['▾', '▴']).unwrap_or_else(|| panic!("{titles}"));
    from.split("  ").next().expect("a title").trim().to_owned()
}

fn click(live: &mut Live, title: &str) {
    let titles = titles(live);
    let byte = titles.find(title).unwrap_or_else(|| panic!("{title}: {titles}"));
    let column = titles[..byte].chars().count() as u16;
    let row = 5;
    live.send(Input::Mouse(Mouse { kind: MouseKind::Press, column, row }));
}

/// The figures of the rows under a title that is right-aligned, of group rows only.
fn group_figures(live: &Live, title: &str) -> Vec<f64> {
    let titles: Vec<char> = titles(live).chars().collect();
    let title: Vec<char> = title.chars().collect();
    let at = titles.windows(title.len()).position(|cells| cells == title).expect("the title");
    let figure = |line: &str| -> f64 {
        let cells: Vec<char> =
            line.chars().take(at + title.len()).skip(at.saturating_sub(4)).collect();
        let text: String = cells.into_iter().collect();
        text.trim().trim_start_matches('↑').parse().unwrap_or(0.0)
    };
    let screen = live.screen();
    screen
        .lines()
        .skip(6)
        .filter(|line| line.ends_with("thread") || line.ends_with("threads"))
        .map(figure)
        .collect()
}

#[test]
fn keys_walk_all_columns_and_each_sorts() {
    let mut live = Live::shop(120, 40);
    let mut walked = vec![marked(&live)];
    loop {
        live.press("><down><up>");
        let next = marked(&live);
        if walked.last() == Some(&next) {
            break;
        }
        walked.push(next);
    }
    assert_eq!(
        walked,
        ["BUSY%", "SELF%", "CPU%", "+/- TREND", "THR STATE", "STATE", "HITS", "WHERE", "MODULE"]
    );
    live.press("<lt><lt>");
    assert_eq!(marked(&live), "HITS");
    let hits = group_figures(&live, "HITS");
    assert!(hits.len() == 4 && hits.is_sorted_by(|a, b| a >= b), "{hits:?}");
    assert!(group_figures(live.press("R"), "HITS").is_sorted(), "{}", live.screen());
    // A narrow screen keeps the column.
    live.send(Input::Resize { width: 80, height: 24 });
    (live.width, live.height) = (80, 24);
    golden("sorted-by-hits-80x24.txt", &live.press("R").screen());
    live.send(Input::Resize { width: 60, height: 24 });
    live.width = 60;
    assert_eq!(marked(&live), "HITS", "{}", live.screen());
    assert_eq!(marked(live.press("<lt>")), "STATE", "it has no room otherwise: {}", live.screen());
}

#[test]
fn what_grew_comes_first() {
    for (width, height) in [(120, 40), (200, 60)] {
        let mut live = Live::shop(width, height);
        click(&mut live, "+/-");
        assert_eq!(live.app.settings().sort, SortColumn::Change);
        golden(&format!("sorted-by-change-{width}x{height}.txt"), &live.screen());
        click(&mut live, "TREND");
        assert!(live.app.settings().reverse, "it is the same order");
        live.press("2");
        assert!(marked(&live).starts_with("+/-"), "{}", live.screen());
        live.press("5");
        assert!(marked(&live).starts_with("+/-"), "{}", live.screen());
    }
    // A narrow screen reads the trends too then, and shows the column.
    let mut live = Live::shop(120, 24);
    click(&mut live, "+/-");
    live.send(Input::Resize { width: 80, height: 24 });
    live.width = 80;
    golden("sorted-by-change-80x24.txt", &live.screen());
    // Facts of all time have no time: the sentence says what the order is.
    let screen = live.press("r").screen();
    assert!(screen.contains("all time since the start has no +/-"), "{screen}");
    assert_eq!(marked(&live), "BUSY%");
    assert!(marked(live.press("r")).starts_with("+/-"), "{}", live.screen());
}

#[test]
fn a_click_on_a_title_sorts_and_again_reverses() {
    let mut live = Live::shop(200, 60);
    for (title, order) in [
        ("SELF%", SortColumn::SelfTime),
        ("MODULE", SortColumn::Module),
        ("TOTAL ms", SortColumn::Total),
        ("HITS", SortColumn::Hits),
        ("WHERE", SortColumn::Name),
        ("SHARE", SortColumn::Total),
        ("STATE", SortColumn::State),
        ("THR", SortColumn::Threads),
    ] {
        click(&mut live, title);
        assert_eq!((live.app.settings().sort, live.app.settings().reverse), (order, false));
        let forward = live.screen();
        click(&mut live, title);
        assert!(live.app.settings().reverse, "{title}");
        assert!(titles(&live).contains('▴') && !titles(&live).contains('▾'), "{}", live.screen());
        click(&mut live, title);
        assert_eq!(live.screen(), forward, "{title}");
    }
    // The view of threads has columns of its own.
    live.press("5");
    click(&mut live, "STATES");
    assert_eq!(live.app.settings().sort, SortColumn::State);
    let before = live.app.settings().reverse;
    click(&mut live, "MOSTLY IN");
    assert_eq!(
        (live.app.settings().sort, live.app.settings().reverse),
        (SortColumn::State, before)
    );
}

/// Under the metric cpu the column beside the total is wall time.
#[test]
fn the_column_beside_the_total_sorts_by_what_it_shows() {
    let mut live = Live::shop(120, 40);
    live.press("m");
    click(&mut live, "BUSY%");
    let shares = group_figures(&live, "BUSY%");
    assert!(shares.len() >= 2 && shares.is_sorted_by(|a, b| a >= b), "{}", live.screen());
}
