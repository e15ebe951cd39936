//! The inverted trees against the upright ones.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::properties::{fact, settings, world};
use super::*;
use crate::model::projection::rows::NO_ROOM;
use crate::model::projection::settings::{Grouping, Level, RollUp};

/// A group and the names of a path.
type Way = (String, Vec<String>);

fn name(projection: &Projection, node: u32) -> String {
    let Location { function, module, .. } = &**projection.name(node);
    format!("{module}!{function}")
}

/// Returns the names from a node to its root, in a group.
fn way(projection: &Projection, group: &Group, node: u32) -> Way {
    let above = std::iter::successors(Some(node), |node| projection.parent(*node));
    (group.name.to_string(), above.map(|node| name(projection, node)).collect())
}

/// Calls `f` with each node of each group.
fn each_node<'a>(projection: &'a Projection, mut f: impl FnMut(&'a Group, u32)) {
    for group in &projection.groups {
        let mut todo: Vec<u32> = projection.roots(group).collect();
        while let Some(node) = todo.pop() {
            f(group, node);
            todo.extend(projection.children(node));
        }
    }
}

/// Returns the time of stacks by their whole path, from the innermost row to the outermost.
fn stacks(projection: &Projection, inverted: bool) -> BTreeMap<Way, Totals> {
    let mut stacks = BTreeMap::new();
    each_node(projection, |group, node| {
        let own = match inverted {
            false => projection.nodes.own_without_entries(node),
            // The stacks that begin here.
            true => {
                let mut own = projection.total(node);
                projection.children(node).for_each(|child| own.subtract(&projection.total(child)));
                own
            }
        };
        if own.wall_ns + own.cpu_ns + own.hits > 0 {
            let (group, mut path) = way(projection, group, node);
            if inverted {
                path.reverse();
            }
            // The longest wait of a caller with entries is not known. Time off CPU is settled by
            // row, so the difference of two rows is none.
            let own = Totals { longest_ns: 0, longest_from: 0, off_ns: 0, ..own };
            stacks.entry((group, path)).or_insert_with(Totals::default).add(&own);
        }
    });
    stacks
}

fn is_whole(inverted: &Projection) -> bool {
    (0..inverted.node_count()).all(|node| &*inverted.name(node).function != NO_ROOM)
}

fn inverted_settings(settings: Settings, level: Level) -> Settings {
    Settings { inverted: true, level, ..settings }
}

const LEVELS: [Level; 3] = [Level::Mine, Level::Chains, Level::All];

#[test]
fn callers_stand_below_what_they_call() {
    let mut world = World::new();
    world.fact("one", "main;left;f;x", State::Run, 1);
    world.fact("one", "main;right;f;x", State::Io, 2);
    world.fact("two", "main;right;x", State::Run, 4);
    world.fact("two", "x", State::Run, 8);
    let settings = Settings { inverted: true, grouping: Grouping::None, ..Settings::default() };
    let projection = world.project(&settings);
    let inverted = projection.inverted().expect("it was asked for");
    assert_shows(
        drawn(inverted, &settings),
        "
        (all) 15 0
          x 15 15
            right 4 0
              main 4 0
            f 3 0
              right 2 0
                main 2 0
              left 1 0
                main 1 0
        ",
    );
    assert!(world.project(&Settings::default()).inverted().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn every_stack_is_a_path_in_both_trees(
        facts in prop::collection::vec(fact(), 0..9),
        settings in settings(),
        level in prop::sample::select(&LEVELS[..]),
    ) {
        let projection = world(&facts).project(&inverted_settings(settings, level));
        let inverted = projection.inverted().expect("it was asked for");
        if is_whole(inverted) {
            prop_assert_eq!(stacks(&projection, false), stacks(inverted, true));
        }
    }

    #[test]
    fn sums_and_groups_are_those_of_the_upright_tree(
        facts in prop::collection::vec(fact(), 0..40),
        settings in settings(),
        level in prop::sample::select(&LEVELS[..]),
    ) {
        let projection = world(&facts).project(&inverted_settings(settings, level));
        let inverted = projection.inverted().expect("it was asked for");
        let no_off = |totals: Totals| Totals { off_ns: 0, ..totals };
        let add = |sum: &mut Totals, nodes: Siblings<'_>| {
            nodes.for_each(|node| sum.add(&inverted.total(node)));
        };
        prop_assert_eq!(projection.total, inverted.total);
        prop_assert_eq!(projection.groups.len(), inverted.groups.len());
        for (upright, group) in projection.groups.iter().zip(&inverted.groups) {
            prop_assert_eq!(&upright.threads, &group.threads);
            let mut sum = group.own;
            add(&mut sum, inverted.roots(group));
            // Off-CPU time is settled part by part, and the parts are others here: where one has
            // more CPU than wall time, the sums differ.
            prop_assert_eq!(no_off(upright.total), no_off(sum));
        }
        for node in 0..inverted.node_count() {
            let (mut sum, total) = (Totals::default(), inverted.total(node));
            add(&mut sum, inverted.children(node));
            for part in [|of: Totals| of.wall_ns, |of: Totals| of.cpu_ns, |of: Totals| of.hits] {
                prop_assert!(part(sum) <= part(total));
            }
            let own = match inverted.parent(node) {
                None => total,
                Some(_) => Totals::default(),
            };
            prop_assert_eq!(inverted.nodes.own(node), own);
        }
        // No more nodes than allowed, and a marker below each.
        prop_assert!(inverted.node_count() <= 2 * 24 + projection.groups.len() as u32);
    }

    /// A line is shown with a row only where it has most of the row's time.
    #[test]
    fn a_row_has_its_heaviest_line(
        facts in prop::collection::vec(fact(), 0..9),
        settings in settings(),
    ) {
        let mut settings = Settings { inverted: true, roll_up: RollUp::Line, ..settings };
        let mut world = world(&facts);
        let lines = world.project(&settings);
        let lines = lines.inverted().expect("it was asked for");
        settings.roll_up = RollUp::Function;
        let functions = world.project(&settings);
        let functions = functions.inverted().expect("it was asked for");
        if !is_whole(lines) || !is_whole(functions) {
            return Ok(());
        }
        let mut times: BTreeMap<Way, BTreeMap<Option<u32>, u64>> = BTreeMap::new();
        each_node(lines, |group, node| {
            let ns = lines.total(node).wall_ns;
            let times = times.entry(way(lines, group, node)).or_default();
            *times.entry(lines.name(node).line).or_default() += ns;
        });
        let mut wrong = Vec::new();
        each_node(functions, |group, node| {
            let times = &times[&way(functions, group, node)];
            let line = functions.location(node, Metric::Wall).line;
            if times.get(&line) != times.values().max() {
                wrong.push((line, times.clone()));
            }
        });
        prop_assert!(wrong.is_empty(), "{:?}", wrong);
    }

    /// The threads of a row are those whose stacks have its path.
    #[test]
    fn a_row_has_the_threads_of_its_stacks(
        facts in prop::collection::vec(fact(), 0..9),
        settings in settings(),
    ) {
        let settings = Settings { inverted: true, ..settings };
        let projection = world(&facts).project(&settings);
        let inverted = projection.inverted().expect("it was asked for");
        if is_whole(inverted) {
            let threads = |of: &Projection, inverted: bool| {
                let mut threads: BTreeMap<Way, Vec<ThreadKey>> = BTreeMap::new();
                each_node(of, |group, node| {
                    let (group, mut path) = way(of, group, node);
                    if inverted {
                        path.reverse();
                    }
                    let seen = of.seen.iter().filter(|(_, at)| *at == node);
                    let seen: Vec<ThreadKey> = seen.map(|(of_seen, _)| of.threads[*of_seen as usize]).collect();
                    if !seen.is_empty() {
                        threads.entry((group, path)).or_default().extend(seen);
                    }
                });
                threads.values_mut().for_each(|threads| { threads.sort(); threads.dedup(); });
                threads
            };
            prop_assert_eq!(threads(&projection, false), threads(inverted, true));
        }
    }
}
