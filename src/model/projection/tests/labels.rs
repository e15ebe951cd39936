//! Labels that a program gives to its work: groups by them, and no other trace of them.

use super::*;
use crate::model::projection::base_mark;
use crate::model::projection::base_marks::BaseMark;
use crate::model::projection::samples::samples_of;
use crate::model::projection::settings::{Grouping, Level, RollUp};
use crate::model::vocabulary::role::Role;

const BY: &[(&str, &str, u64)] = &[
    ("[labels handler=/catalog, tenant=7]", "#runtime.goexit;#main.serve;#main.catalog", 1),
    ("[labels handler=/catalog, tenant=8]", "#runtime.goexit;#main.serve;#main.catalog", 2),
    ("[labels handler=/cart, tenant=7]", "#runtime.goexit;#main.serve;#main.cart", 4),
    ("[labels tenant=7]", "#runtime.goexit;#main.serve", 8),
    ("[labels (other)]", "#runtime.goexit;#main.serve;#main.cart", 16),
    ("", "#runtime.goexit;#main.serve;#main.catalog", 32),
    ("", "start_thread;compress", 64),
];

/// A world with or without labels.
fn world(labelled: bool) -> World {
    let mut world = World::new();
    for (labels, stack, wall) in BY {
        let stack = match *labels {
            labels if labelled && !labels.is_empty() => format!("{labels};{stack}"),
            _ => stack.to_string(),
        };
        world.fact("shop", &stack, State::Run, *wall);
    }
    world
}

fn by(key: Option<&str>) -> Settings {
    Settings { grouping: Grouping::Label(key.map(Into::into)), ..Settings::default() }
}

fn groups(settings: &Settings) -> Vec<String> {
    let group = |g: &Group| format!("{} {}", g.name, g.total.wall_ns);
    world(true).project(settings).groups.iter().map(group).collect()
}

#[test]
fn threads_are_grouped_by_labels() {
    let all = [
        "(no labels) 96",
        "(other labels) 16",
        "handler=/cart, tenant=7 4",
        "handler=/catalog, tenant=7 1",
        "handler=/catalog, tenant=8 2",
        "tenant=7 8",
    ];
    assert_eq!(groups(&by(None)), all);
    let of_handlers =
        ["(no handler) 8", "(no labels) 96", "(other labels) 16", "/cart 4", "/catalog 3"];
    assert_eq!(groups(&by(Some("handler"))), of_handlers);
    assert_eq!(groups(&by(Some("tenant")))[2..], ["7 13", "8 2"]);
    assert_eq!(groups(&by(Some("none")))[..2], ["(no labels) 96", "(no none) 15"]);
    // The filter of threads is for the names of groups.
    let threads = Filter::set(regex::Regex::new("^/cat").unwrap());
    let filters = Filters { threads, ..Filters::default() };
    assert_eq!(groups(&Settings { filters, ..by(Some("handler")) }), ["/catalog 3"]);
}

#[test]
fn labels_are_no_rows_in_any_view() {
    for level in Level::ALL {
        for roll_up in RollUp::ALL {
            for grouping in [Grouping::Rules, Grouping::None, Grouping::Thread] {
                let settings = Settings { level, roll_up, grouping, ..Settings::default() };
                let shown = world(true).shows(&settings);
                assert_eq!(shown, world(false).shows(&settings));
            }
        }
    }
    let threads = Filter::set(regex::Regex::new("^/").unwrap());
    let filters = Filters { threads, ..Filters::default() };
    let expected = "
        /cart 4 0
          runtime.goexit 4 0
            main.serve 4 0
              main.cart 4 4
        /catalog 3 0
          runtime.goexit 3 0
            main.serve 3 0
              main.catalog 3 3
        ";
    assert_shows(world(true).shows(&Settings { filters, ..by(Some("handler")) }), expected);
}

#[test]
fn a_pattern_for_frames_groups_by_no_label_and_a_focus_finds_labels() {
    let pattern = regex::Regex::new("cat").unwrap();
    let by_frame = Settings { grouping: Grouping::Frame(pattern.clone()), ..Settings::default() };
    assert_eq!(groups(&by_frame), ["(no match) 92", "main.catalog 35"]);
    let filters = Filters {
        focus: Filter::set(regex::Regex::new("tenant=7").unwrap()),
        ..Filters::default()
    };
    assert_eq!(world(true).project(&Settings { filters, ..Settings::default() }).total.wall_ns, 13);
}

#[test]
fn labels_say_nothing_about_what_a_thread_does() {
    for text in ["[labels job=handleRequest]", "[labels (other)]", "[task main.run]"] {
        let location = Location::named(text, FrameKind::Marker);
        assert_eq!(base_mark(&location, Role::Marker), BaseMark::Neutral, "{text}");
    }
    let torn = Location::named("[torn]", FrameKind::Marker);
    assert_ne!(base_mark(&torn, Role::Marker), BaseMark::Neutral);
}

#[test]
fn samples_carry_their_labels() {
    let mut world = world(true);
    let snapshot = world.snapshot();
    let found = samples_of(&snapshot, &Settings::default(), &mut |f| {
        world.facts.iter().for_each(|(key, weights)| f(0, key, weights));
        (0, 100)
    });
    let labels = |sample: &Sample| {
        let text = sample.labels.as_ref().map_or("", |labels| &*labels.function);
        (text.to_owned(), sample.wall_ns)
    };
    let mut found: Vec<(String, u64)> = found.samples.iter().map(labels).collect();
    found.sort_by_key(|(_, wall)| *wall);
    let expected: Vec<(String, u64)> =
        BY.iter().map(|(labels, _, wall)| (labels.to_string(), *wall)).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_first_keys_are_known_in_their_order() {
    assert_eq!(
        world(true).project(&Settings::default()).label_keys,
        ["handler".into(), "tenant".into()]
    );
    let mut many = World::new();
    for nth in (0..20).rev() {
        many.fact("shop", &format!("[labels k{nth:02}=x];#main.serve"), State::Run, 1);
    }
    let keys = many.project(&Settings::default()).label_keys;
    assert_eq!((keys.len(), &*keys[0], &*keys[7]), (8, "k12", "k19"));
}
