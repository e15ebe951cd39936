//! Which nodes share a line, and which are drawn.

use super::*;

/// Returns a projection of these stacks and their wall times, in one thread.
fn world(stacks: &[(&str, u64)]) -> Projection {
    let mut world = World::new();
    for (stack, wall) in stacks {
        world.fact("main", stack, State::Run, *wall);
    }
    world.project(&Settings::default())
}

fn find(projection: &Projection, name: &str) -> u32 {
    (0..projection.node_count())
        .find(|node| &*projection.name(*node).function == name)
        .expect("a node")
}

fn by(projection: &Projection, metric: Metric) -> Ordered<'_> {
    projection.ordered(&Settings { metric, ..Settings::default() })
}

fn line_of(projection: &Projection, name: &str) -> (String, u32) {
    let chain = chain(&by(projection, Metric::Wall), find(projection, name));
    (projection.name(chain.last).function.to_string(), chain.swallowed)
}

#[test]
fn a_node_is_swallowed_if_its_callee_has_all_but_half_a_percent() {
    // Of 1000: a has 4 beside its callee b, under 0.5 %; b has nothing beside c.
    let projection = world(&[("a", 2), ("a;b;c", 994), ("a;x", 2), ("y", 2)]);
    assert_eq!(line_of(&projection, "a"), ("c".into(), 2));
    assert_eq!(line_of(&projection, "b"), ("c".into(), 1));
    assert_eq!(line_of(&projection, "c"), ("c".into(), 0));
    // A caller with a branch keeps its line, also if one callee has 99 %.
    let projection = world(&[("a;b;c", 990), ("a;x", 10)]);
    assert_eq!(line_of(&projection, "a"), ("a".into(), 0));
    assert_eq!(line_of(&projection, "b"), ("c".into(), 1));
    // 5 of 1000 are not under 0.5 %, be it self time or several light callees.
    for stacks in [&[("a", 5), ("a;b;c", 995)][..], &[("a;w", 3), ("a;x", 2), ("a;b;c", 995)]] {
        assert_eq!(line_of(&world(stacks), "a"), ("a".into(), 0), "{stacks:?}");
    }
}

#[test]
fn what_a_function_calls_elsewhere_does_not_take_its_line() {
    let mut world = World::new();
    world.fact("main", "a;b;libc.so.6!malloc", State::Run, 100);
    let projection = world.project(&Settings {
        level: crate::model::projection::settings::Level::Mine,
        ..Settings::default()
    });
    assert_eq!(line_of(&projection, "a"), ("b".into(), 1));
    assert!(projection.is_entry(find(&projection, "malloc")));
}

#[test]
fn where_the_metric_counts_nothing_only_an_only_child_takes_the_line() {
    let mut world = World::new();
    world.fact("main", "a;b;c", State::Io, 10);
    world.fact("main", "a;b;d", State::Io, 10);
    let projection = world.project(&Settings::default());
    let chain = chain(&by(&projection, Metric::Cpu), find(&projection, "a"));
    assert_eq!(chain, Chain { last: find(&projection, "b"), swallowed: 1 });
}

#[test]
fn small_is_under_half_a_percent_of_what_is_shown() {
    let projection = world(&[("a", 995), ("b", 5)]);
    let ordered = by(&projection, Metric::Wall);
    assert!(is_small(&ordered, 4) && !is_small(&ordered, 5));
    assert!(!is_small(&by(&world(&[]), Metric::Wall), 0), "of nothing, nothing is small");
}

#[test]
fn rows_under_the_minimum_share_are_not_drawn() {
    let projection = world(&[("a", 99), ("b", 1)]);
    let drawn = |percent, on| {
        let min_percent = Filter { value: Some(percent), on };
        let settings = Settings {
            filters: Filters { min_percent, ..Filters::default() },
            ..Settings::default()
        };
        is_drawn(&projection, &settings, &projection.total(find(&projection, "b")))
    };
    assert!(drawn(1.0, true) && !drawn(1.1, true) && drawn(1.1, false));
}
