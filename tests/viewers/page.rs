//! The page of format html, in a browser.

use std::collections::BTreeMap;
use std::path::Path;

use sampletop::config::Format;
use sampletop::formats::saved;
use sampletop::model::projection::project;
use sampletop::model::projection::settings::{Level, Metric, Settings};

use super::{
    HOSTILE, frames, functions, hostile, is_near, observe, session, stacks, texts, whole, written,
};

/// A time as the page writes it, and half of its last digit, ms: `1.234 s`, `45 us`; a dot is none.
fn page_time(text: &str) -> (f64, f64) {
    let mut words = text.split(' ');
    let number = words.next().expect("a number");
    if number == "\u{b7}" {
        return (0.0, 0.0);
    }
    let unit = match words.next() {
        Some("s") => 1000.0,
        Some("ms") => 1.0,
        Some("us") => 0.001,
        other => panic!("no unit: {other:?} in {text}"),
    };
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len() as i32);
    (number.parse::<f64>().expect("a number") * unit, 0.5 * unit / 10_f64.powi(decimals))
}

#[test]
fn a_browser_shows_the_page_and_walks_through_it() {
    let snapshot = session();
    let settings = whole();
    // One function alone is called so.
    let name = "pthread_mutex_lock";
    let bytes = written(Format::Html, &snapshot, &settings);
    let Some(seen) = observe("html.mjs", "x.html", &bytes, &[name]) else { return };
    assert_eq!(seen["complaints"], serde_json::json!([]));
    assert_eq!(texts(&seen["requests"]).len(), 1, "only itself: {}", seen["requests"]);
    assert_eq!(seen["title"], "java -jar größe.jar and 1 more - sampletop");
    assert!(
        seen["head"].as_str().expect("text").contains("Losses       dropped 2"),
        "{}",
        seen["head"]
    );

    // The table, by wall and CPU time. Two functions of one name are two rows.
    let stacks = stacks(&snapshot, &settings);
    for metric in [Metric::Wall, Metric::Cpu] {
        let functions = functions(&stacks, metric);
        let mut shown: BTreeMap<&str, [(f64, f64); 2]> = BTreeMap::new();
        for row in seen["rows"][metric.word()].as_array().expect("rows") {
            let cells = texts(row);
            let sums = shown.entry(cells[3]).or_default();
            for (sum, (time, step)) in
                sums.iter_mut().zip([page_time(cells[0]), page_time(cells[1])])
            {
                *sum = (sum.0 + time, sum.1 + step);
            }
        }
        assert!(shown.len() >= 10, "{shown:?}");
        for (name, [(own, own_step), (total, total_step)]) in &shown {
            let wanted = functions[name];
            is_near(*own, wanted.0, *own_step, name);
            // A stack with two functions of one name counts for each of them.
            if seen["rows"][metric.word()]
                .as_array()
                .expect("rows")
                .iter()
                .filter(|row| row[3] == *name)
                .count()
                == 1
            {
                is_near(*total, wanted.1, *total_step, name);
            }
        }
    }

    // The graph: the details that the pointer shows of frames, wherever they are.
    let all: f64 = stacks.values().map(|time| time[0]).sum();
    let mut drawn = frames(&snapshot, &settings);
    drawn.push(("all".to_owned(), all));
    let tips = seen["tips"].as_array().expect("tips");
    assert!(tips.len() >= 20, "{tips:?}");
    for tip in tips {
        let (name, (total, step)) =
            (tip[0].as_str().expect("a name"), page_time(tip[1].as_str().expect("a time")));
        let is_it =
            |(frame, ms): &(String, f64)| frame == name && (ms - total).abs() <= step + 0.05;
        assert!(drawn.iter().any(is_it), "{tip}");
    }

    // A click and a key zoom; the table's row marks its frames; the search shows its share.
    let text = |what: &str| seen[what].as_str().unwrap_or_else(|| panic!("no {what}: {seen}"));
    assert!(
        text("clicked").starts_with(text("under")) && seen["zoomed"] == true,
        "{} {}",
        text("clicked"),
        text("under")
    );
    assert!(text("walked") != text("clicked") && seen["unzoomed"] == true, "{}", text("walked"));
    let share = 100.0 * functions(&stacks, Metric::Wall)[name].1 / all;
    let matched: f64 =
        text("matched").split(' ').next().expect("a share").parse().expect("a number");
    assert!((matched - share).abs() < 0.06, "{matched} is not {share}");
    assert_eq!(seen["found"], serde_json::json!([name]));
    // Only stacks with it, and only one group.
    let (only, _) = page_time(text("only").split("  ").nth(1).expect("a time"));
    assert!((only / all * 100.0 - share).abs() < 0.06, "{}", text("only"));
    // Its callers: the heaviest of those right above it comes first.
    let (callers, step) = page_time(text("callers").split("  ").nth(1).expect("a time"));
    is_near(callers, functions(&stacks, Metric::Wall)[name].1, step, "callers");
    assert!(text("called").starts_with(&format!("{name}  ")), "{}", text("called"));
    let mut above: BTreeMap<&str, f64> = BTreeMap::new();
    for (stack, time) in &stacks {
        if let Some(at) = stack.iter().position(|frame| frame == name) {
            *above.entry(stack[at - 1].trim()).or_default() += time[0];
        }
    }
    let (caller, time) = text("caller").split_once("  ").expect("a time");
    let (time, step) = page_time(time);
    is_near(time, above[caller.trim()], step, caller);
    assert!(above.values().all(|ms| *ms <= time + step + 0.05), "{caller}: {above:?}");
    assert!(
        text("back").starts_with("all  ") && text("back") != text("callers"),
        "{}",
        text("back")
    );
    // The user's own functions: what they call elsewhere is their own time.
    assert_eq!(
        (&seen["all"]["rows"], &seen["all"]["line"]),
        (&seen["rows"]["wall"], &seen["back"])
    );
    assert_eq!(seen["mine"]["line"], seen["back"], "the time is the same");
    let mine = project(&snapshot, &Settings { level: Level::Mine, ..settings.clone() });
    let mut wanted: BTreeMap<&str, f64> = BTreeMap::new();
    for method in mine.methods() {
        *wanted.entry(method.location(Metric::Wall).function.trim()).or_default() +=
            method.own.wall_ns as f64 / 1e6;
    }
    let mut own: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for row in seen["mine"]["rows"].as_array().expect("rows") {
        let cells = texts(row);
        let (time, step) = page_time(cells[0]);
        let sum = own.entry(cells[3]).or_default();
        *sum = (sum.0 + time, sum.1 + step);
    }
    for (name, (time, step)) in &own {
        let ms = wanted.get(name).copied().unwrap_or(0.0);
        is_near(*time, ms, *step, name);
    }
    let heaviest = wanted.iter().max_by(|a, b| a.1.total_cmp(b.1)).expect("a function");
    assert!(own.contains_key(heaviest.0), "{heaviest:?}: {own:?}");
    assert!(own.len() < functions(&stacks, Metric::Wall).len(), "{own:?}");

    let group = text("group").split(" (").next().expect("a name");
    let wanted: f64 =
        stacks.iter().filter(|(stack, _)| stack[0] == group).map(|(_, time)| time[0]).sum();
    let (shown, step) = page_time(text("grouped").split("  ").nth(1).expect("a time"));
    is_near(shown, wanted, step, group);
}

#[test]
fn a_frame_says_what_it_waited_for() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/saved/format-2.sampletop");
    let file = std::fs::read(path).expect("a file of the repository");
    let snapshot = saved::read(&file).expect("a profile").snapshot;
    let bytes = written(Format::Html, &snapshot, &whole());
    let Some(seen) = observe("html.mjs", "waits.html", &bytes, &["pthread_mutex_lock"]) else {
        return;
    };
    assert_eq!(seen["complaints"], serde_json::json!([]));
    let projection = project(&snapshot, &whole());
    assert!(!texts(&seen["sentences"]).is_empty());
    let table = seen["locks"].as_str().expect("text");
    let title = format!("{} locks that threads waited for", projection.locks.len());
    assert!(table.contains(&title) && table.contains("SECONDS WAITED"), "{table}");
    // The frame of all has the lock with most waited time in the first place, or what it was held
    // by most.
    let tips = seen["tips"].as_array().expect("tips");
    let all = tips.iter().find(|tip| tip[0] == "all").expect("the root");
    let waits = texts(&all[2]);
    assert_eq!(waits.len(), 3, "{all}");
    assert!(waits.iter().any(|text| text.contains(", held by ")), "{waits:?}");
}

#[test]
fn names_cannot_break_out_of_the_page() {
    let bytes = written(Format::Html, &hostile(), &whole());
    let Some(seen) = observe("html.mjs", "hostile.html", &bytes, &[HOSTILE[1]]) else { return };
    assert_eq!((&seen["complaints"], &seen["whole"]), (&serde_json::json!([]), &true.into()));
    assert_eq!(texts(&seen["requests"]).len(), 1, "{}", seen["requests"]);
    let shown: Vec<&str> =
        seen["rows"]["wall"].as_array().expect("rows").iter().map(|row| texts(row)[3]).collect();
    for name in HOSTILE {
        assert!(shown.contains(&name), "{name}: {shown:?}");
    }
}
