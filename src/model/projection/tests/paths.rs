//! Which nodes share a line, are opened at start, and are drawn.

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
fn a_light_node_with_one_heavy_child_is_swallowed() {
    // Of 1000: a has self 4 (under 0.5 %), its child b 95 % of its 996.
    let projection = world(&[("a", 4), ("a;b;c", 947), ("a;x", 45), ("y", 4)]);
    assert_eq!(line_of(&projection, "a"), ("c".into(), 2));
    assert_eq!(line_of(&projection, "b"), ("c".into(), 1));
    assert_eq!(line_of(&projection, "c"), ("c".into(), 0));
    // b has 946 of 996: under 95 %.
    let projection = world(&[("a", 4), ("a;b;c", 946), ("a;x", 46), ("y", 4)]);
    assert_eq!(line_of(&projection, "a"), ("a".into(), 0));
    // a has self 5: 0.5 %.
    let projection = world(&[("a", 5), ("a;b;c", 991), ("y", 4)]);
    assert_eq!(line_of(&projection, "a"), ("a".into(), 0));
    assert_eq!(line_of(&projection, "b"), ("c".into(), 1));
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

fn opened(projection: &Projection) -> Vec<String> {
    let ordered = by(projection, Metric::Wall);
    let path = hottest_path(&ordered, hottest_group(&ordered).expect("a group"));
    path.into_iter().map(|node| projection.name(node).function.to_string()).collect()
}

#[test]
fn the_hottest_path_opens_down_to_its_first_fork() {
    let projection = world(&[("a;b;c", 50), ("a;b;d;e", 50), ("a;b", 50)]);
    assert_eq!(opened(&projection), ["a", "b"]);
    // An only child is no fork, whatever its share; nor is a heavy one beside a light one.
    let projection = world(&[("a;b", 50), ("a", 50), ("z", 1), ("a;b;c", 9), ("a;b;c;d", 9)]);
    assert_eq!(opened(&projection), ["a", "b", "c"]);
    // The group itself forks: nothing below is opened.
    let projection = world(&[("a;b", 50), ("z;y", 50)]);
    assert!(opened(&projection).is_empty());
    assert!(hottest_group(&by(&world(&[]), Metric::Wall)).is_none());
}

#[test]
fn the_hottest_group_is_the_heaviest_of_the_metric() {
    let mut world = World::new();
    world.fact("a", "main", State::Io, 10);
    world.fact("b", "main", State::Run, 9);
    let projection = world.project(&Settings::default());
    let name = |metric| &*projection.groups[hottest_group(&by(&projection, metric)).unwrap()].name;
    assert_eq!((name(Metric::Wall), name(Metric::Cpu)), ("a", "b"));
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
