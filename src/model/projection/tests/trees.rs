//! Trees, groups, roll-up, methods.

use super::*;
use crate::model::facts::snapshot::ThreadNow;
use crate::model::facts::tables::{BlockerId, StackId};
use crate::model::projection::settings::{Grouping, Range, Rename, RollUp};

fn shop() -> World {
    let mut world = World::new();
    world.fact("work-1", "start;main:10;cart", State::Run, 30);
    world.fact("work-2", "start;main:10;pay", State::Io, 40);
    world.fact("work-2", "start;main:12;cart", State::Run, 5);
    world.fact("main", "start;main:99", State::Sleep, 25);
    world
}

fn name(method: &Method) -> &str {
    &method.location(Metric::Wall).function
}

fn is_called(method: &Method, function: &str) -> bool {
    name(method) == function
}

/// Iterates over the methods in default order.
fn methods(projection: &Projection) -> impl Iterator<Item = &Method> {
    let order = projection.ordered(&Settings::default()).methods();
    order.into_iter().map(|at| &projection.methods()[at as usize])
}

#[test]
fn a_tree_sums_what_is_below() {
    assert_shows(
        shop().shows(&Settings::default()),
        "
        work- 75 0
          start 75 0
            main:10 75 0
              pay 40 40
              cart 35 35
        main 25 0
          start 25 0
            main:99 25 25
        ",
    );
}

#[test]
fn by_line_two_lines_of_a_function_are_two_rows() {
    let settings = Settings { roll_up: RollUp::Line, ..Settings::default() };
    assert_shows(
        shop().shows(&settings),
        "
        work- 75 0
          start 75 0
            main:10 70 0
              pay 40 40
              cart 30 30
            main:12 5 0
              cart 5 5
        main 25 0
          start 25 0
            main:99 25 25
        ",
    );
}

#[test]
fn the_metric_chooses_what_is_drawn_and_sorted() {
    let settings = Settings { metric: Metric::Cpu, ..Settings::default() };
    assert_shows(
        shop().shows(&settings),
        "
        work- 35 0
          start 35 0
            main:10 35 0
              cart 35 35
              pay 0 0
        main 0 0
          start 0 0
            main:99 0 0
        ",
    );
}

#[test]
fn totals_carry_states_hits_and_the_longest_wait() {
    let mut world = shop();
    *world.fact("work-1", "start;main:10;pay", State::Io, 20) =
        Weights { wall_ns: 20, hits: 2, longest_ns: 15, longest_from: 3, ..Weights::default() };
    let projection = world.project(&Settings::default());
    let mut expected =
        Totals { wall_ns: 95, cpu_ns: 35, off_ns: 60, hits: 5, cpu_hits: 2, ..Totals::default() };
    (expected.longest_ns, expected.longest_from) = (15, 3);
    expected.states_ns[State::Run as usize] = 35;
    expected.states_ns[State::Io as usize] = 60;
    let heaviest = projection.ordered(&Settings::default()).groups()[0];
    assert_eq!(projection.groups[heaviest as usize].total, expected);
    assert_eq!((projection.from, projection.till, projection.elapsed()), (0, 100, 100));
    assert_eq!(projection.total.wall_ns, 120);
}

#[test]
fn inlined_functions_are_rows_of_their_own() {
    let mut world = World::new();
    world.fact("main", "main:1;run:7+get:3;read", State::Io, 4);
    world.fact("main", "main:1;run:7+get:3", State::Run, 2);
    world.fact("main", "main:1;run:9", State::Run, 1);
    assert_shows(
        world.shows(&Settings::default()),
        "
        main 7 0
          main:1 7 0
            run:7 7 1
              get:3 6 2
                read 4 4
        ",
    );
}

#[test]
fn a_function_is_one_row_however_it_is_run() {
    let mut world = World::new();
    world.fact("main", "main:1+get:3", State::Run, 4);
    world.fact("main", "main:1;get:3", State::Run, 3);
    world.fact("main", "main:1;get:5", State::Run, 6);
    for (roll_up, expected) in [
        (RollUp::Function, "main 13 0\n  main:1 13 0\n    get:3 13 13\n"),
        (RollUp::Line, "main 13 0\n  main:1 13 0\n    get:3 7 7\n    get:5 6 6\n"),
    ] {
        let settings = Settings { roll_up, ..Settings::default() };
        assert_shows(world.shows(&settings), expected);
        // Line 3 has 7, mostly inlined; each of its tiers alone has less than line 5.
        let projection = world.project(&settings);
        let get = projection
            .methods()
            .iter()
            .find(|m| is_called(m, "get"))
            .unwrap()
            .location(Metric::Wall);
        assert_eq!((get.line, get.tier), (Some(3), Some(Tier::Inlined)));
    }
}

#[test]
fn what_belongs_together_is_one_row_and_neighbours_one_node() {
    let mut world = World::new();
    world.fact("main", "main;a::B::run;a::B::step;a::c::push;libc!copy", State::Run, 3);
    world.fact("main", "main;a::B::run;a::c::push;a::B::step", State::Run, 4);
    world.fact("main", "main;a::B::step", State::Run, 5);
    let by = |world: &mut World, roll_up| world.shows(&Settings { roll_up, ..Settings::default() });
    assert_shows(
        by(&mut world, RollUp::Class),
        "
        main 12 0
          app 12 0
            a::B 12 5
              a::c 7 0
                a::B 4 4
                libc 3 3
        ",
    );
    assert_shows(
        by(&mut world, RollUp::Package),
        "
        main 12 0
          app 12 0
            a 12 9
              libc 3 3
        ",
    );
    assert_shows(
        by(&mut world, RollUp::Module),
        "
        main 12 0
          app 12 9
            libc 3 3
        ",
    );
    let projection = world.project(&Settings { roll_up: RollUp::Class, ..Settings::default() });
    let of_b = projection.methods().iter().find(|m| is_called(m, "a::B")).unwrap();
    assert_eq!((of_b.total.wall_ns, of_b.own.wall_ns), (12, 9), "a recursion counts once");
}

#[test]
fn a_row_is_shown_at_its_heaviest_line_and_of_equals_the_lowest() {
    let mut world = World::new();
    for (line, wall) in [(7, 5), (9, 4), (9, 4), (3, 1)] {
        world.fact("main", &format!("main:1;run:{line}"), State::Run, wall);
    }
    world.fact("main", "main:1;run:3;x", State::Run, 7);
    world.fact("main", "main:1;run:2;y", State::Io, 8);
    let line = |world: &mut World, metric| {
        let projection = world.project(&Settings { metric, ..Settings::default() });
        let row = projection
            .methods()
            .iter()
            .find(|m| is_called(m, "run"))
            .unwrap()
            .location(metric)
            .line;
        let mut nodes = (0..projection.node_count()).map(|node| projection.location(node, metric));
        let node = nodes.find(|l| &*l.function == "run").unwrap().line;
        assert_eq!(row, node);
        node
    };
    // Lines 2, 3 and 9 have 8 each of wall time; of CPU time 3 and 9 have 8 and 7 has 5.
    assert_eq!(line(&mut world, Metric::Wall), Some(2));
    assert_eq!(line(&mut world, Metric::Cpu), Some(3));
    world.fact("main", "main:1;run:9;z", State::Io, 1);
    assert_eq!(line(&mut world, Metric::Wall), Some(9));
}

#[test]
fn markers_are_frames() {
    let mut world = World::new();
    world.fact("main", "[torn];run;leaf", State::Run, 3);
    world.fact("main", "[running, not sampled]", State::Run, 1);
    assert_shows(
        world.shows(&Settings::default()),
        "
        main 4 0
          [torn] 3 0
            run 3 0
              leaf 3 3
          [running, not sampled] 1 1
        ",
    );
}

#[test]
fn a_stack_without_frames_is_the_groups_own_time() {
    let mut world = World::new();
    world.fact("main", "", State::Run, 3);
    assert_shows(world.shows(&Settings::default()), "main 3 3");
}

#[test]
fn an_unknown_stack_is_a_stack_without_frames() {
    let mut world = shop();
    world.facts[0].0.stack = StackId(77_777);
    let projection = world.project(&Settings::default());
    let group = projection.groups.iter().find(|group| group.own.wall_ns > 0).unwrap();
    assert_eq!((&*group.name, group.own.wall_ns, projection.total.wall_ns), ("work-", 30, 100));
}

#[test]
fn methods_sum_over_trees_and_count_a_recursion_once() {
    let mut world = World::new();
    world.fact("a-1", "main;fib;fib;fib", State::Run, 10);
    world.fact("a-2", "main;fib;leaf", State::Run, 5);
    world.fact("b-1", "fib;main", State::Run, 2);
    world.fact("b-1", "fib;main;fib", State::Run, 1);
    let projection = world.project(&Settings::default());
    let rows: Vec<(&str, u64, u64, u32)> = methods(&projection)
        .map(|m| (name(m), m.total.wall_ns, m.own.wall_ns, m.threads))
        .collect();
    assert_eq!(rows, [("fib", 18, 11, 3), ("main", 18, 2, 3), ("leaf", 5, 5, 1)]);
}

#[test]
fn a_method_is_shown_at_the_line_of_a_recursions_outermost_frame() {
    let mut world = World::new();
    world.fact("a-1", "main;fib:5;fib:6;fib:6", State::Run, 10);
    let projection = world.project(&Settings::default());
    let fib = projection.methods().iter().find(|m| is_called(m, "fib")).unwrap();
    assert_eq!(fib.location(Metric::Wall).line, Some(5));
}

#[test]
fn groups_go_by_what_the_settings_say() {
    let thread = |tid| ThreadKey { pid: 1, tid, start: 1 };
    let mut world = World::new();
    world.fact_of(thread(2), "http-8", "accept;handle_cart;run", State::Run, 1);
    world.fact_of(thread(3), "http-8", "accept;handle_pay;handle_cart", State::Run, 2);
    world.fact_of(thread(3), "http-9", "accept;poll", State::Io, 4);
    world.fact_of(ThreadKey { pid: 7, ..thread(4) }, "", "idle", State::Io, 8);
    let groups = |world: &mut World, grouping| {
        let settings = Settings { grouping, ..Settings::default() };
        let projection = world.project(&settings);
        let order = projection.ordered(&settings).groups();
        let groups = order.iter().map(|at| &projection.groups[*at as usize]);
        let groups = groups.map(|g| format!("{}={}/{}", g.name, g.total.wall_ns, g.threads.len()));
        groups.collect::<Vec<_>>().join(", ")
    };
    let frame = || Grouping::Frame(regex::Regex::new("^handle").unwrap());
    assert_eq!(groups(&mut world, Grouping::Rules), "(unnamed)=8/1, http-=7/2");
    assert_eq!(groups(&mut world, Grouping::Name), "=8/1, http-9=4/1, http-8=3/2");
    assert_eq!(groups(&mut world, Grouping::Thread), " (4)=8/1, http-9 (3)=6/1, http-8 (2)=1/1");
    assert_eq!(groups(&mut world, Grouping::Process), "7=8/1, 1 shop --port 80=7/2");
    assert_eq!(groups(&mut world, Grouping::None), "(all)=15/3");
    assert_eq!(groups(&mut world, frame()), "(no match)=12/2, handle_pay=2/1, handle_cart=1/1");
}

#[test]
fn a_runtimes_own_threads_are_one_group_that_opens_to_their_names() {
    let mut world = World::new();
    world.fact("~C2 Compiler0", "start;compile", State::Run, 3);
    world.fact("~C2 Compiler1", "start;compile;optimize", State::Run, 4);
    world.fact("~GC Thread#3", "start;mark", State::Run, 5);
    world.fact("main", "start;main", State::Run, 1);
    assert_shows(
        world.shows(&Settings::default()),
        "
        [JVM] 12 0
          C2 Compiler 7 0
            start 7 0
              compile 7 3
                optimize 4 4
          GC Thread 5 0
            start 5 0
              mark 5 5
        main 1 0
          start 1 0
            main 1 1
        ",
    );
    let projection = world.project(&Settings::default());
    let group = projection.groups.iter().find(|group| &*group.name == INTERNAL).unwrap();
    assert!(
        group.threads.len() == 3
            && group.threads.iter().all(|thread| thread.kind == ThreadKind::Internal)
    );
    // It is no function and so no method, and no chain of calls hides it.
    assert!(projection.methods().iter().all(|m| !is_called(m, "GC Thread")));
    let node = (0..projection.node_count())
        .find(|n| &*projection.name(*n).function == "GC Thread")
        .unwrap();
    assert_eq!(chain(&projection.ordered(&Settings::default()), node).swallowed, 0);
    // With every other grouping they are ordinary threads.
    let by_name = world.project(&Settings { grouping: Grouping::Name, ..Settings::default() });
    assert_eq!(by_name.groups.len(), 4);
    let together = world.project(&Settings { grouping: Grouping::None, ..Settings::default() });
    assert_eq!((together.groups.len(), together.groups[0].threads.len()), (1, 4));
}

#[test]
fn renames_merge_groups() {
    let rename = vec![Rename::parse("s/^(work-|main)$/all work/").unwrap()];
    let projection = shop().project(&Settings { rename, ..Settings::default() });
    assert_eq!(projection.groups.iter().map(|g| &*g.name).collect::<Vec<_>>(), ["all work"]);
    assert_eq!((projection.groups[0].total.wall_ns, projection.groups[0].threads.len()), (100, 3));
}

#[test]
fn collectors_count_whatever_is_shown() {
    let mut world = World::new();
    world.fact("main", "main;work", State::Run, 50);
    world.fact("~GC Thread#0", "start_thread;run", State::Run, 30);
    world.fact("~GC Thread#0", "start_thread;wait", State::Wait, 1000);
    world.fact("~VM Thread", "start_thread;run", State::Run, 7);
    world.fact("~C2 CompilerThread0", "start_thread;run", State::Run, 5);
    // A thread of the program that is only called so.
    world.fact("GC Thread#9", "main;work", State::Run, 11);
    for skip_daemon in [false, true] {
        let filters = Filters { skip_daemon, ..Filters::default() };
        let projection = world.project(&Settings { filters, ..Settings::default() });
        assert_eq!(projection.collection.cpu_ns(), 37, "{skip_daemon}");
    }
}

#[test]
fn a_thread_carries_its_newest_name_in_the_group() {
    let thread = ThreadKey { pid: 1, tid: 5, start: 1 };
    let mut world = World::new();
    for name in ["GET-1", "GET-2", "GET-3", "POST-1"] {
        world.fact_of(thread, name, "main", State::Run, 1);
    }
    let names = |snapshot: &Snapshot, world: &World| {
        let projection =
            world.project_with(&mut Projector::default(), snapshot, &Settings::default());
        projection
            .groups
            .iter()
            .map(|g| (g.name.to_string(), g.threads[0].name.to_string()))
            .collect::<Vec<_>>()
    };
    let mut snapshot = world.snapshot();
    let named = |get: &str| {
        vec![("GET-".to_owned(), get.to_owned()), ("POST-".to_owned(), "POST-1".to_owned())]
    };
    assert_eq!(names(&snapshot, &world), named("GET-3"));
    let now = ThreadNow {
        thread,
        name: world.facts[1].0.name,
        stack: StackId::EMPTY,
        state: RawState::Known(State::Run),
        since: 0,
        syscall: None,
        blocker: BlockerId::NONE,
        run_ns: 0,
        recovered: false,
    };
    snapshot.threads = [now].into();
    assert_eq!(names(&snapshot, &world), named("GET-2"));
}

#[test]
fn a_projector_follows_names_that_come_late() {
    let mut world = World::new();
    let settings = Settings {
        filters: Filters {
            focus: Filter::set(regex::Regex::new("work").unwrap()),
            ..Filters::default()
        },
        ..Settings::default()
    };
    world.fact("main", "start;late", State::Run, 5);
    let late = world.frames["late"];
    world
        .interner
        .set_named(late, Named { pending: true, ..Named::known([location("0x77", false)]) });
    let mut projector = Projector::default();
    let snapshot = world.snapshot();
    let before = world.project_with(&mut projector, &snapshot, &settings);
    assert_eq!((before.total.wall_ns, before.hidden.focus.wall_ns), (0, 5));

    world.interner.set_named(late, Named::known([location("work:3", false)]));
    let snapshot = world.snapshot();
    let after = world.project_with(&mut projector, &snapshot, &settings);
    assert_shows(
        drawn(&after, &settings),
        "
        main 5 0
          start 5 0
            work:3 5 5
        ",
    );
}

#[test]
fn a_projector_takes_other_settings_and_other_sessions() {
    let mut projector = Projector::default();
    for range in [Range::Cumulative { since: None }, Range::Rolling(50)] {
        for mut world in [shop(), World::new(), shop()] {
            world.fact("other", "start;run", State::Run, 1);
            let snapshot = world.snapshot();
            for grouping in [Grouping::Rules, Grouping::None, Grouping::Thread, Grouping::Rules] {
                let settings = Settings { grouping, range, ..Settings::default() };
                let again = world.project_with(&mut projector, &snapshot, &settings);
                assert_eq!(drawn(&again, &settings), world.shows(&settings));
            }
        }
    }
}

#[test]
fn a_projection_takes_the_memory_of_an_old_one() {
    let mut world = shop();
    // A function at two lines.
    world.fact("main", "start;both:1", State::Run, 1);
    world.fact("main", "start;both:2", State::Run, 2);
    let (mut projector, snapshot) = (Projector::default(), world.snapshot());
    let first = world.project_with_trends(&mut projector, &snapshot, &Settings::default());
    let memory = |projection: &Projection| {
        let Projection { nodes, seen, trend, .. } = projection;
        let parts = trend.as_ref().map(|trend| trend.part_memory());
        ((nodes.memory(), nodes.owns.memory(), nodes.totals.memory()), seen.as_ptr(), parts)
    };
    let (before, shown) = (memory(&first), drawn(&first, &Settings::default()));
    let spans = first.nodes.span_count();
    assert!(spans > 0);
    projector.reuse(first);
    let second = world.project_with_trends(&mut projector, &snapshot, &Settings::default());
    assert_eq!((memory(&second), second.nodes.span_count()), (before, spans));
    assert_eq!(drawn(&second, &Settings::default()), shown);
}

#[test]
fn the_busiest_thread_has_its_newest_name() {
    let mut world = World::new();
    let thread = ThreadKey { pid: 1, tid: 7, start: 1 };
    world.fact_of(thread, "old", "start;run", State::Run, 5);
    world.fact_of(thread, "new", "start;run", State::Run, 1);
    let busiest = world.project(&Settings::default()).busiest.expect("it ran");
    assert_eq!((&*busiest.name, busiest.cpu_ns), ("new", 6));
}
