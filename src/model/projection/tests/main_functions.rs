//! The main function of each group.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::properties::{fact, settings, world};
use super::*;
use crate::model::projection::settings::Level;
use crate::model::vocabulary::role::Role;

fn at(level: Level) -> Settings {
    Settings { level, ..Settings::default() }
}

/// Returns the main functions, with their callers.
fn main_functions(world: &mut World, level: Level, metric: Metric) -> Vec<String> {
    let projection = world.project(&at(level));
    let path = |node: u32| {
        let callers = std::iter::successors(Some(node), |at| projection.parent(*at));
        let mut names: Vec<&str> = callers.map(|at| &*projection.name(at).function).collect();
        names.reverse();
        names.join(" ")
    };
    let main = projection.main_functions(metric).iter().copied();
    main.map(|node| node.map_or(String::new(), path)).collect()
}

#[test]
fn calls_outside_of_the_users_code_count_for_the_function_that_makes_them() {
    let mut world = World::new();
    world.fact("w", "main;serve;cart", State::Run, 10);
    world.fact("w", "main;serve;cart;libc.so.6!malloc", State::Run, 20);
    world.fact("w", "main;serve;cart;libc.so.6!malloc;libc.so.6!grow", State::Run, 5);
    world.fact("w", "main;serve;libc.so.6!read", State::Io, 34);
    world.fact("w", "main;serve;libc.so.6!qsort;compare", State::Run, 33);
    for level in [Level::Mine, Level::Chains, Level::All] {
        assert_eq!(
            main_functions(&mut world, level, Metric::Wall),
            ["main serve cart"],
            "{level:?}"
        );
        assert_eq!(main_functions(&mut world, level, Metric::Off), ["main serve"], "{level:?}");
    }
    // What is called back is no time of its caller.
    world.fact("w", "main;serve;libc.so.6!qsort;compare", State::Run, 3);
    let compare = main_functions(&mut world, Level::All, Metric::Cpu);
    assert_eq!(compare, ["main serve qsort compare"]);
    let compare = main_functions(&mut world, Level::Mine, Metric::Cpu);
    assert_eq!(compare, ["main serve compare"]);
}

#[test]
fn each_group_has_its_own_and_without_the_users_code_it_is_a_librarys() {
    let mut world = World::new();
    world.fact("a", "main;cart", State::Run, 1);
    world.fact("a", "libc.so.6!clone3;libm.so.6!erf", State::Io, 9);
    world.fact("b", "libc.so.6!qsort;libm.so.6!pow;vmlinux!page", State::Run, 4);
    world.fact("b", "libc.so.6!qsort;libm.so.6!pow", State::Run, 1);
    world.fact("b", "libc.so.6!qsort", State::Run, 4);
    world.fact("c", "vmlinux!page", State::Run, 4);
    world.fact("d", "", State::Run, 4);
    let all = main_functions(&mut world, Level::All, Metric::Wall);
    assert_eq!(all, ["main cart", "qsort pow", "", ""]);
    let off = main_functions(&mut world, Level::All, Metric::Off);
    assert_eq!(off, ["clone3 erf", "", "", ""], "the user's code has no such time");
    let mine = main_functions(&mut world, Level::Mine, Metric::Wall);
    assert_eq!(mine[..2], ["main cart", "qsort"], "the row that stands for the library");
}

#[test]
fn of_equal_functions_the_first_by_name_is_the_main_one() {
    let mut world = World::new();
    for name in ["pay", "cart", "tax"] {
        world.fact("w", &format!("main;{name}"), State::Run, 10);
    }
    assert_eq!(main_functions(&mut world, Level::Mine, Metric::Wall), ["main cart"]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_main_function_has_the_most_time_up_to_the_next_one_of_the_user(
        facts in prop::collection::vec(fact(), 1..30),
        settings in settings(),
        level in prop::sample::select(&[Level::Mine, Level::Chains, Level::All][..]),
    ) {
        let projection = world(&facts).project(&Settings { level, ..settings.clone() });
        let metric = settings.metric;
        let main = projection.main_functions(metric);
        prop_assert_eq!(main.len(), projection.groups.len());
        for (group, main) in projection.groups.iter().zip(main) {
            // Walks down from each function, to the next ones of the same role.
            let mut todo: Vec<u32> = projection.roots(group).collect();
            let mut times: BTreeMap<u32, u64> = BTreeMap::new();
            while let Some(node) = todo.pop() {
                todo.extend(projection.children(node));
                let role = projection.role(node);
                let mut within = vec![node];
                while let Some(inner) = within.pop() {
                    within.extend(projection.children(inner).filter(|child| projection.role(*child) != role));
                    let own = projection.node(inner, metric).own.value(metric);
                    // The caller has the time of its entries.
                    *times.entry(node).or_default() += if projection.is_entry(inner) { 0 } else { own };
                }
            }
            let most = |role: Role| {
                let of_role = times.iter().filter(|(node, _)| projection.role(**node) == role);
                of_role.map(|(_, ns)| *ns).max().filter(|ns| *ns > 0)
            };
            let expected = most(Role::App).map(|ns| (Role::App, ns));
            let expected = expected.or_else(|| Some((Role::Library, most(Role::Library)?)));
            prop_assert_eq!(main.map(|node| (projection.role(node), times[&node])), expected);
        }
    }
}
