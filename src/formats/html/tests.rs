use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::formats::fixture::{self, Stack, ran, service, stack, waited};
use crate::model::facts::tables::Holder;
use crate::model::projection::settings::{Metric, Range};
use crate::model::vocabulary::blocker::BlockerKind;

fn written(stacks: &[Stack], settings: &Settings) -> String {
    let mut out = Vec::new();
    let projections = [fixture::projection(stacks), fixture::projection(stacks)];
    render(&fixture::snapshot(), settings, &projections, &mut out)
        .expect("memory takes everything");
    String::from_utf8(out).expect("UTF-8")
}

/// Reads what the page's script reads.
fn read(page: &str) -> Value {
    let data = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next());
    serde_json::from_str(data.expect("data")).expect("it is JSON")
}

fn numbers(value: &Value) -> Vec<i64> {
    value
        .as_array()
        .expect("a list")
        .iter()
        .map(|number| number.as_i64().expect("a number"))
        .collect()
}

#[test]
fn the_page_holds_every_stack_with_its_figures() {
    let mut stacks = service();
    stacks.push(stack("main", &[], ran(3, 1)));
    let data = read(&written(&stacks, &Settings { metric: Metric::Cpu, ..Settings::default() }));
    assert_eq!((&data["metric"], &data["elapsed"]), (&1.into(), &10_000_000_000_u64.into()));
    let tree = &data["levels"][1];
    let (parents, names) = (numbers(&tree["parents"]), numbers(&tree["names"]));
    let name =
        |node: i64| tree["functions"][names[node as usize] as usize][0].as_str().expect("a name");
    let path = |node: i64| {
        let outer = |node: &i64| Some(parents[*node as usize]).filter(|parent| *parent >= 0);
        let nodes = std::iter::successors(Some(node), outer);
        let mut names: Vec<&str> = nodes.map(name).collect();
        names.reverse();
        names.join(";")
    };
    let mut found: Vec<(String, Vec<i64>)> =
        (tree["own"].as_array().expect("figures").iter().map(numbers))
            .map(|own| (path(own[0]), own[1..].to_vec()))
            .collect();
    found.sort();
    let mut wanted: Vec<(String, Vec<i64>)> = (stacks.iter())
        .map(|stack| {
            let frames =
                if stack.frames.is_empty() { FRAMELESS.to_owned() } else { stack.frames.join(";") };
            let own = &stack.own;
            let mut figures = [own.cpu_ns, own.hits, own.cpu_hits].to_vec();
            for (state, ns) in (0..).zip(own.states_ns).filter(|(_, ns)| *ns > 0) {
                figures.extend([state, ns]);
            }
            (
                format!("all;{};{frames}", stack.group),
                figures.into_iter().map(|n| n as i64).collect(),
            )
        })
        .collect();
    wanted.sort();
    assert_eq!(found, wanted);
    for (node, parent) in (0..).zip(&parents) {
        assert!(*parent < node, "callers come first");
    }
    assert!(
        data["head"].as_str().expect("text").contains("Losses       dropped 7"),
        "{}",
        data["head"]
    );
}

#[test]
fn the_page_is_whole_and_fetches_nothing() {
    let page = written(&service(), &Settings::default());
    assert!(page.contains("default-src 'none'") && page.trim_end().ends_with("</html>"));
    for placeholder in ["/*STYLE*/", "/*DATA*/", "/*SCRIPT*/"] {
        assert!(
            PAGE.matches(placeholder).count() == 1 && !page.contains(placeholder),
            "{placeholder}"
        );
    }
    for fetching in ["http:", "https:", "//cdn", "@import", "url(", " src=", "innerHTML", "eval("] {
        assert!(!page.contains(fetching), "{fetching}");
    }
}

#[test]
fn names_cannot_end_the_data() {
    let names =
        ["</script><script>alert(1)</script>", "<!--", "]]>", "\u{2028}\u{2029}&lt;", "\"\\"];
    let page =
        written(&[stack(names[0], &names, waited(State::Io, 5, 1, 5))], &Settings::default());
    assert_eq!(page.matches("</script>").count(), PAGE.matches("</script>").count());
    assert!(!page.contains("<!--") && !page.contains(['\u{2028}', '\u{2029}']), "{page}");
    let data = read(&page);
    let read: Vec<&str> = data["levels"][1]["functions"]
        .as_array()
        .expect("functions")
        .iter()
        .map(|f| f[0].as_str().expect("a name"))
        .collect();
    assert!(names.iter().all(|name| read.contains(name)), "{read:?}");
}

#[test]
fn depth_is_no_matter() {
    let deep: Vec<&str> = std::iter::repeat_n("r", 20_000).collect();
    let data = read(&written(&[stack("g", &deep, ran(1, 1))], &Settings::default()));
    assert_eq!(numbers(&data["levels"][1]["parents"]).len(), 20_002);
}

/// A session with random blockers, read from a file.
fn session_with_locks() -> Snapshot {
    let file = include_bytes!("../../../tests/saved/format-2.sampletop");
    crate::formats::saved::read(file).expect("a profile").snapshot
}

#[test]
fn a_frame_has_what_its_stacks_waited_for_and_who_held_it() {
    let snapshot = session_with_locks();
    let range = Range::Cumulative { since: None };
    let settings = Settings { range, idle: true, level: Level::All, ..Settings::default() };
    let mut page = Vec::new();
    write(&snapshot, &settings, &mut page).expect("memory takes everything");
    let data = read(&String::from_utf8(page).expect("UTF-8"));
    let projection = trees::project(&snapshot, &settings);
    assert!(projection.locks.len() >= 5);
    let tree = &data["levels"][1];
    let mut sums = vec![0; projection.locks.len()];
    let mut by_holder: BTreeMap<(usize, &str), u64> = BTreeMap::new();
    let nodes = tree["parents"].as_array().expect("nodes").len() as i64;
    for wait in tree["waits"].as_array().expect("waits") {
        let [node, lock, holder, ns] = numbers(wait)[..] else { panic!("{wait}") };
        assert!((0..nodes).contains(&node));
        sums[lock as usize] += ns as u64;
        let text = tree["holders"][holder.max(0) as usize].as_str().expect("text");
        let text = if holder < 0 { "" } else { text };
        *by_holder.entry((lock as usize, text)).or_default() += ns as u64;
    }
    for (nth, lock) in projection.locks.iter().enumerate() {
        assert_eq!(sums[nth], lock.waited_ns);
        let class = lock.class.as_ref().map(|class| format!(" of {class}")).unwrap_or_default();
        let name = tree["locks"][nth].as_str().expect("a name");
        assert!(name.starts_with(&format!("{}{class}", lock.kind.word())), "{name}");
        // A thread that holds it is said with its name, with the time of all its places.
        for held in &lock.holders {
            let Holder::Thread { .. } = held.holder else { continue };
            let of_end = lock.kind == BlockerKind::ThreadEnd;
            let text = format!("{} {}", if of_end { "of" } else { "held by" }, held.name);
            assert!(by_holder[&(nth, &*text)] >= held.waited_ns, "{name} {text}: {by_holder:?}");
        }
    }
    let text = data["locks"].as_str().expect("text");
    assert!(
        text.starts_with("LOCKS    SECONDS WAITED") && text.contains("held by work-"),
        "{text}"
    );
    assert_eq!(numbers(&data["lock_counts"]), [0, projection.locks.len() as i64]);
    // The same sentences as in text, which wraps them.
    let mut page = Vec::new();
    crate::formats::text::write(&snapshot, &settings, &mut page).expect("memory takes everything");
    let page = String::from_utf8(page).expect("UTF-8");
    let sentences: Vec<&str> =
        data["sentences"].as_array().expect("a list").iter().filter_map(|s| s.as_str()).collect();
    assert!(!sentences.is_empty());
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for sentence in sentences {
        assert!(words(&page).contains(&format!("! {}", words(sentence))), "{sentence}");
    }
}

#[test]
fn without_locks_there_is_no_table_of_them() {
    let data = read(&written(&service(), &Settings::default()));
    assert_eq!((&data["locks"], numbers(&data["lock_counts"])), (&"".into(), vec![0, 0]));
}
