//! The callers and callees of a function, against a computation per stack.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::properties::{fact, settings, world};
use super::*;
use crate::model::projection::settings::{Level, RollUp};

/// Returns the index of the method of this name.
fn method(projection: &Projection, name: &str) -> u32 {
    let methods = projection.methods();
    let found = methods.iter().position(|m| &*m.location(Metric::Wall).function == name);
    found.expect("a method of this name") as u32
}

/// Formats neighbours in their order, with their wall time.
fn listed(projection: &Projection, neighbours: &[Neighbour]) -> String {
    let text = |Neighbour { of, total }: &Neighbour| {
        let name = match of {
            NeighbourOf::Thread => "-".to_owned(),
            NeighbourOf::Method(method) => {
                projection.methods()[*method as usize].location(Metric::Wall).function.to_string()
            }
            NeighbourOf::Entry(node) => format!("[{}]", projection.name(*node).function),
        };
        format!("{name} {}", total.wall_ns)
    };
    neighbours.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Formats a graph by wall time: callers, callees, own time, time of recursion.
fn graph_of(projection: &Projection, name: &str) -> (String, String, u64, u64) {
    let graph = projection.call_graph(method(projection, name), Metric::Wall);
    (
        listed(projection, &graph.callers),
        listed(projection, &graph.callees),
        graph.own.wall_ns,
        graph.recursive.wall_ns,
    )
}

#[test]
fn a_function_has_the_callers_and_callees_of_all_its_frames() {
    let mut world = World::new();
    for (thread, stack, wall) in [
        ("one", "main;left;f;x", 1),
        ("one", "main;right;f;x", 2),
        ("two", "main;right;f;y", 4),
        ("two", "f", 8),
        ("two", "main;right;f", 16),
        ("two", "main;right", 32),
    ] {
        world.fact(thread, stack, State::Run, wall);
    }
    let projection = world.project(&Settings::default());
    let expected = ("right 22, - 8, left 1".into(), "y 4, x 3".into(), 24, 0);
    assert_eq!(graph_of(&projection, "f"), expected);
    let expected = ("- 55".into(), "right 54, left 1".into(), 0, 0);
    assert_eq!(graph_of(&projection, "main"), expected);
    assert_eq!(graph_of(&projection, "x"), ("f 3".into(), "".into(), 3, 0));
}

#[test]
fn a_recursive_function_counts_once_per_stack() {
    let mut world = World::new();
    for (stack, wall) in [
        ("a;b;a;c", 1),
        ("a;b;a", 2),
        ("a;b", 4),
        ("a;a;a;b", 8),
        ("d;a;b;a;b;a;e;g", 16),
        ("d;b", 32),
    ] {
        world.fact("main", stack, State::Run, wall);
    }
    let projection = world.project(&Settings::default());
    let expected = ("d 16, - 15".into(), "e 16, b 12, c 1".into(), 2, 27);
    assert_eq!(graph_of(&projection, "a"), expected);
    let expected = ("d 32, a 31".into(), "a 19".into(), 44, 16);
    assert_eq!(graph_of(&projection, "b"), expected);
}

/// `b` is called by `a` alone, and in each of these stacks calls it again.
#[test]
fn what_lies_between_two_frames_of_a_function_is_no_callee() {
    let mut world = World::new();
    world.fact("main", "a;b;a;c", State::Run, 3);
    let projection = world.project(&Settings::default());
    assert_eq!(graph_of(&projection, "a"), ("- 3".into(), "c 3".into(), 0, 3));
    assert_eq!(graph_of(&projection, "b"), ("a 3".into(), "a 3".into(), 0, 0));
}

#[test]
fn the_metric_orders_neighbours_and_names_order_equal_ones() {
    let mut world = World::new();
    for (stack, state, wall) in [
        ("main;f;z", State::Run, 5),
        ("main;f;y", State::Run, 5),
        ("f;x", State::Io, 10),
        ("f;x", State::Run, 1),
        ("at;f;w", State::Run, 11),
    ] {
        world.fact("main", stack, state, wall);
    }
    let projection = world.project(&Settings::default());
    let by = |metric| {
        let graph = projection.call_graph(method(&projection, "f"), metric);
        (listed(&projection, &graph.callers), listed(&projection, &graph.callees))
    };
    assert_eq!(by(Metric::Wall), ("- 11, at 11, main 10".into(), "w 11, x 11, y 5, z 5".into()));
    assert_eq!(by(Metric::Cpu), ("at 11, main 10, - 11".into(), "w 11, y 5, z 5, x 11".into()));
}

#[test]
fn names_of_threads_are_no_callers() {
    let mut world = World::new();
    world.fact("~GC #1", "start;run", State::Run, 5);
    let projection = world.project(&Settings::default());
    assert_eq!(&*projection.name(0).function, "GC ", "the runtime's threads are one group");
    assert_eq!(graph_of(&projection, "start"), ("- 5".into(), "run 5".into(), 0, 0));
}

/// The entries of a function are its callees, those of its callees are their time.
#[test]
fn entries_are_callees_of_the_users_function_alone() {
    let mut world = World::new();
    for (stack, wall) in [
        ("main;cart", 1),
        ("main;cart;libc.so.6!malloc", 2),
        ("main;cart;libc.so.6!malloc;libc.so.6!grow", 4),
        ("main;pay;cart;libc.so.6!malloc", 8),
        ("main;cart;libc.so.6!free", 16),
    ] {
        world.fact("main", stack, State::Run, wall);
    }
    let projection = world.project(&Settings { level: Level::Mine, ..Settings::default() });
    let expected = ("main 23, pay 8".into(), "[free] 16, [malloc] 14".into(), 1, 0);
    assert_eq!(graph_of(&projection, "cart"), expected);
    assert_eq!(graph_of(&projection, "main"), ("- 31".into(), "cart 23, pay 8".into(), 0, 0));
}

#[test]
fn what_is_no_method_has_no_neighbours() {
    let mut world = World::new();
    world.fact("main", "main", State::Run, 5);
    world.fact("~GC #1", "start", State::Run, 5);
    let projection = world.project(&Settings::default());
    for method in [projection.methods().len() as u32, columns::NONE] {
        let CallGraph { callers, callees, own, recursive } =
            projection.call_graph(method, Metric::Wall);
        assert!(callers.is_empty() && callees.is_empty());
        assert_eq!((own, recursive), Default::default());
    }
}

/// Names a neighbour; an entry by the first node of its row.
fn key(projection: &Projection, of: NeighbourOf) -> String {
    match of {
        NeighbourOf::Entry(node) => format!("entry {}", projection.nodes.row(node)),
        of => format!("{of:?}"),
    }
}

/// The sums of a graph, without the longest waits.
#[derive(PartialEq, Debug, Default)]
struct Expected {
    callers: BTreeMap<String, Totals>,
    callees: BTreeMap<String, Totals>,
    own: Totals,
    recursive: Totals,
}

fn without_longest(totals: Totals) -> Totals {
    Totals { longest_ns: 0, longest_from: 0, ..totals }
}

/// Computes the graph stack by stack, each a path from its leaf outwards.
fn per_stack(projection: &Projection, method: u32) -> Expected {
    let mut expected = Expected::default();
    let methods = projection.method_of_nodes();
    for leaf in 0..projection.node_count() {
        let mut time = without_longest(projection.node(leaf, Metric::Wall).own);
        for entry in projection.children(leaf).filter(|child| projection.is_entry(*child)) {
            time.subtract(&without_longest(projection.node(entry, Metric::Wall).own));
        }
        if time == Totals::default() {
            continue;
        }
        let path: Vec<u32> =
            std::iter::successors(Some(leaf), |node| projection.parent(*node)).collect();
        let is_method = |node: &u32| methods[*node as usize] == Some(method);
        let Some(innermost) = path.iter().position(is_method) else { continue };
        let outermost = path.iter().rposition(is_method).expect("there is one");
        let caller = path.get(outermost + 1).and_then(|node| methods[*node as usize]);
        let caller = caller.map_or(NeighbourOf::Thread, NeighbourOf::Method);
        expected.callers.entry(key(projection, caller)).or_default().add(&time);
        match innermost.checked_sub(1) {
            None => expected.own.add(&time),
            Some(callee) => {
                let node = path[callee];
                let of = methods[node as usize];
                let of = of.map_or(NeighbourOf::Entry(node), NeighbourOf::Method);
                expected.callees.entry(key(projection, of)).or_default().add(&time);
            }
        }
        if innermost != outermost {
            expected.recursive.add(&time);
        }
    }
    expected
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_graph_is_the_sum_of_its_stacks(
        facts in prop::collection::vec(fact(), 0..40),
        settings in settings(),
        level in prop::sample::select(&[Level::Mine, Level::Chains, Level::All][..]),
        roll_up in prop::sample::select(&RollUp::ALL[..]),
    ) {
        let projection = world(&facts).project(&Settings { level, roll_up, ..settings.clone() });
        for (method, row) in (0..).zip(projection.methods()) {
            let graph = projection.call_graph(method, settings.metric);
            let mut sums = [Totals::default(), graph.own];
            for (list, sum) in [&graph.callers, &graph.callees].into_iter().zip(&mut sums) {
                list.iter().for_each(|neighbour| sum.add(&neighbour.total));
                let values: Vec<u64> = list.iter().map(|n| n.total.value(settings.metric)).collect();
                prop_assert!(values.is_sorted_by(|a, b| a >= b), "{values:?}");
            }
            prop_assert_eq!(sums[0], row.total);
            prop_assert_eq!(without_longest(sums[1]), without_longest(row.total));
            let named = |list: &[Neighbour]| -> BTreeMap<String, Totals> {
                list.iter().map(|n| (key(&projection, n.of), without_longest(n.total))).collect()
            };
            let (mut callers, mut callees) = (named(&graph.callers), named(&graph.callees));
            prop_assert_eq!(callers.len(), graph.callers.len(), "a caller, twice");
            prop_assert_eq!(callees.len(), graph.callees.len(), "a callee, twice");
            // An observation may have a duration only.
            for neighbours in [&mut callers, &mut callees] {
                neighbours.retain(|_, total| *total != Totals::default());
            }
            let [own, recursive] = [graph.own, graph.recursive].map(without_longest);
            prop_assert_eq!(
                Expected { callers, callees, own, recursive },
                per_stack(&projection, method)
            );
        }
    }
}
