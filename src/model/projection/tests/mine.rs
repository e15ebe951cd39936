//! Level *mine*: rows are the user's functions, with what they call elsewhere as entries.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::locks::now;
use super::properties::{fact, world};
use super::*;
use crate::model::projection::settings::{Filter, Level, RollUp, SortColumn, Whose};
use crate::model::vocabulary::role::{Origin, Role};

fn mine() -> Settings {
    Settings { level: Level::Mine, ..Settings::default() }
}

/// A thread that computes, allocates and waits for a lock below `cart`; and one that only waits in
/// a library.
fn shop() -> World {
    let mut world = World::new();
    let base = "libc.so.6!clone3;start_thread;main;std::invoke;cart";
    world.fact("work-1", base, State::Run, 10);
    world.fact("work-1", &format!("{base};libc.so.6!malloc;libc.so.6!grow"), State::Run, 20);
    world.fact(
        "work-1",
        &format!("{base};std::mutex::lock;libc.so.6!lll_lock_wait;vmlinux!futex_wait"),
        State::Lock,
        60,
    );
    world.fact("work-1", &format!("{base};libc.so.6!qsort;libc.so.6!merge;compare"), State::Run, 8);
    world.fact("net-1", "start_thread;libm.so.6!nothing;pthread_cond_wait", State::Lock, 2);
    world
}

#[test]
fn rows_are_the_users_functions_and_what_they_call() {
    assert_shows(
        shop().shows(&mine()),
        "
        work- 98 0
          main 98 0
            cart 98 90
              std::mutex::lock 60 60
              malloc 20 20
              compare 8 8
        net- 2 0
          nothing 2 2
        ",
    );
}

#[test]
fn entries_keep_their_own_time_whatever_their_caller_sums_up() {
    let mut world = World::new();
    // One stack in each call of `cart`, two in the first of `pay`; neither has time of its own.
    for (stack, ms) in [
        ("main;cart;libc.so.6!malloc", 1),
        ("main;cart;libc.so.6!free", 2),
        ("main;pay;libc.so.6!malloc", 4),
        ("main;pay;libc.so.6!malloc;libc.so.6!grow", 8),
        ("main;pay;libc.so.6!free", 16),
    ] {
        world.fact("w", stack, State::Run, ms);
    }
    assert_shows(
        world.shows(&mine()),
        "
        w 31 0
          main 31 0
            pay 28 28
              free 16 16
              malloc 12 12
            cart 3 3
              free 2 2
              malloc 1 1
        ",
    );
}

#[test]
fn a_runtimes_own_threads_are_rows_without_frames() {
    let mut world = World::new();
    world.fact("w", "main;cart", State::Run, 5);
    let loops = "libc.so.6!clone3;start_thread;libjvm.so!CompileBroker::compiler_thread_loop";
    world.fact("~C2 Thread0", loops, State::Run, 3);
    world.fact("~C2 Thread1", &format!("{loops};libc.so.6!memcpy"), State::Run, 2);
    world.fact("~GC Thread#0", "libc.so.6!clone3;start_thread;libjvm.so!work", State::Run, 4);
    assert_shows(
        world.shows(&mine()),
        "
        [JVM] 9 0
          C2 Thread 5 5
          GC Thread 4 4
        w 5 0
          main 5 0
            cart 5 5
    ",
    );
    let mut names = |settings: &Settings| -> Vec<String> {
        let projection = world.project(settings);
        let methods = projection.methods().iter();
        methods.map(|method| method.location(Metric::Wall).function.to_string()).collect()
    };
    assert_eq!(names(&mine()), ["main", "cart"]);
    assert_eq!(names(&Settings::default()).len(), 7);
}

#[test]
fn a_thread_that_was_woken_from_waiting_for_work_wants_a_core() {
    let mut world = World::new();
    let event_loop = "libc.so.6!clone3;start_thread;run;libc.so.6!epoll_wait";
    let kernel = "vmlinux!ep_poll;vmlinux!schedule";
    world.fact("w-1", &format!("{event_loop};{kernel}"), State::Rdy, 40);
    world.fact("w-2", "start_thread;rayon_core::sleep::Sleep::sleep;next", State::Rdy, 30);
    // In its work it only has no core, or waited for something else.
    world.fact("w-1", "start_thread;run;serve", State::Rdy, 7);
    world.fact("w-1", "start_thread;run;serve;libc.so.6!pthread_cond_wait", State::Rdy, 6);
    world.fact("w-1", "start_thread;run;libc.so.6!pthread_mutex_lock", State::Rdy, 5);
    world.fact("w-1", "start_thread;run;libc.so.6!poll", State::Rdy, 4);
    world.fact("w-1", "start_thread;run", State::Rdy, 3);
    assert_shows(
        world.shows(&mine()),
        "
        w- 95 0
          (wants a core) 70 70
          run 25 12
            serve 13 13
              pthread_cond_wait 6 6
            pthread_mutex_lock 5 5
            poll 4 4
        ",
    );
    let projection = world.project(&mine());
    assert_eq!(projection.total.states_ns[State::Rdy as usize], 95);
    let chains = Settings { level: Level::Chains, ..mine() };
    assert!(world.shows(&chains).contains("\n  (wants a core) 70 70\n"));
    let all = Settings { level: Level::All, ..mine() };
    assert!(!world.shows(&all).contains("wants a core"));
}

#[test]
fn what_a_runtimes_own_thread_does_without_a_core_is_not_told_apart() {
    let mut world = World::new();
    world.fact("~GC Thread#0", "libjvm.so!VMThread::loop;pthread_cond_wait", State::Rdy, 4);
    assert_shows(
        world.shows(&mine()),
        "
        [JVM] 4 0
          GC Thread 4 4
    ",
    );
}

#[test]
fn entering_the_kernel_is_no_call() {
    let mut world = World::new();
    world.fact("w", "main", State::Run, 5);
    let interrupt = "vmlinux!asm_sysvec_apic_timer_interrupt;vmlinux!irq_exit_rcu";
    world.fact("w", &format!("main;{interrupt}"), State::Run, 4);
    world.fact("w", &format!("main;std::invoke;{interrupt}"), State::Run, 3);
    world.fact("w", &format!("main;libc.so.6!malloc;{interrupt}"), State::Run, 2);
    let call =
        "vmlinux!entry_SYSCALL_64_after_hwframe;vmlinux!do_syscall_64;vmlinux!__x64_sys_read";
    world.fact("w", &format!("main;{call};vmlinux!vfs_read"), State::Run, 1);
    assert_shows(
        world.shows(&mine()),
        "
        w 15 0
          main 15 15
            malloc 2 2
            __x64_sys_read 1 1
        ",
    );
}

#[test]
fn the_first_call_out_of_the_users_code_names_the_way_out() {
    let mut world = World::new();
    world.fact("w", "main;pthread_mutex_lock;libm.so.6!more", State::Lock, 5);
    assert_shows(
        world.shows(&mine()),
        "
        w 5 0
          main 5 5
            pthread_mutex_lock 5 5
    ",
    );
}

#[test]
fn entries_are_no_methods_and_their_time_is_self_time_of_the_caller() {
    let projection = shop().project(&mine());
    let mut methods: Vec<(String, u64, u64)> = projection
        .methods()
        .iter()
        .map(|m| (m.location(Metric::Wall).function.to_string(), m.total.wall_ns, m.own.wall_ns))
        .collect();
    methods.sort();
    let is = |name: &str, total, own| (name.to_owned(), total, own);
    assert_eq!(
        methods,
        [is("cart", 98, 90), is("compare", 8, 8), is("main", 98, 0), is("nothing", 2, 2)]
    );
    let entry_of = |name: &str, metric| {
        let method = projection
            .methods()
            .iter()
            .find(|method| &*method.location(metric).function == name)
            .expect("a method");
        method.entry(metric).map(|entry| entry.function.to_string())
    };
    // 60 of 90 wait for the lock; of 30 on a core, 20 are in malloc.
    assert_eq!(entry_of("cart", Metric::Wall).as_deref(), Some("std::mutex::lock"));
    assert_eq!(entry_of("cart", Metric::Off).as_deref(), Some("std::mutex::lock"));
    assert_eq!(entry_of("cart", Metric::Cpu).as_deref(), Some("malloc"));
    assert_eq!(entry_of("main", Metric::Wall), None);
    let entries: Vec<&str> = (0..projection.node_count())
        .filter(|node| projection.is_entry(*node))
        .map(|node| &*projection.name(node).function)
        .collect();
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert_eq!(projection.total.off_ns, 62, "waiting is counted once");
    let cart = (0..projection.node_count())
        .find(|node| &*projection.name(*node).function == "cart")
        .expect("shown");
    assert_eq!(projection.node(cart, Metric::Wall).own.off_ns, 60);
    assert_eq!(projection.role(cart), Role::App);
}

#[test]
fn a_stack_without_the_users_code_shows_its_most_telling_frame() {
    for (stack, expected) in [
        ("libc.so.6!clone3;start_thread;libx.so.6!poller;epoll_wait", "epoll_wait"),
        ("libc.so.6!clone3;start_thread;std::cleanup;epoll_wait;vmlinux!do_poll", "std::cleanup"),
        ("start_thread;pthread_cond_wait;vmlinux!futex", "pthread_cond_wait"),
        ("clone3;start_thread;std::rt::run;std::panic::run", "std::rt::run"),
        ("runtime.mcall;runtime.goexit0;runtime.schedule;runtime.findRunnable", "scheduler"),
        ("runtime.mstart;runtime.sysmon;runtime.usleep", "scheduler"),
        ("pthread_cond_wait;vmlinux!futex", "pthread_cond_wait"),
        ("vmlinux!futex;vmlinux!schedule", "futex"),
        ("[torn]", "[torn]"),
    ] {
        let mut world = World::new();
        world.fact("work", stack, State::Lock, 5);
        // `libx` is not known to be the system's, so its frames are the user's.
        let expected = if stack.contains("libx") { "poller" } else { expected };
        let projection = world.project(&mine());
        let root = projection.roots(&projection.groups[0]).next().expect("a row");
        assert_eq!(&*projection.name(root).function, expected, "{stack}");
        assert!(
            !projection.is_entry(root) && !projection.has_children(root) || expected == "poller"
        );
    }
}

#[test]
fn libraries_that_call_each_other_are_named_by_the_outermost_and_the_innermost() {
    let mut world = World::new();
    let serves = "start_thread;hyper::serve;hyper::route";
    world.fact("w", serves, State::Run, 1);
    world.fact("w", &format!("{serves};libc.so.6!malloc"), State::Run, 2);
    world.fact("w", &format!("{serves};tokio::net::send;mio::write;mio::flush"), State::Run, 4);
    let back = "tokio::net::send;hyper::frame;std::vec::push;hyper::body";
    world.fact("w", &format!("{serves};{back};libc.so.6!memcpy"), State::Run, 8);
    // The user's function is a row without the frameworks that call it, and calls by one entry.
    world.fact(
        "w",
        &format!("{serves};tokio::net::send;cart;mio::write;tokio::net::send"),
        State::Run,
        16,
    );
    world.fact("w", &format!("{serves};tokio::net::send;cart"), State::Run, 32);
    assert_shows(
        world.shows(&mine()),
        "
        w 63 0
          cart 48 48
            mio::write 16 16
          hyper::serve 15 3
            hyper::frame 8 8
            mio::write 4 4
        ",
    );
    let projection = world.project(&mine());
    let names: BTreeMap<&str, u64> = projection
        .methods()
        .iter()
        .map(|method| (&*method.location(Metric::Wall).function, method.own.wall_ns))
        .collect();
    let expected = [("cart", 48), ("hyper::frame", 8), ("hyper::serve", 3), ("mio::write", 4)];
    assert_eq!(names, BTreeMap::from(expected));
    // A library that a standard function calls is named as well.
    let mut world = World::new();
    world.fact("w", "start_thread;std::vec::each;mio::poll", State::Run, 5);
    assert!(world.shows(&mine()).contains("    mio::poll 5 5\n"), "{}", world.shows(&mine()));
}

#[test]
fn a_thread_that_is_hidden_with_a_program_at_rest_is_not_said_to_wait() {
    // The range has 100 ns: 1 ns is at rest, 2 ns are not.
    for (ns, shown) in [(1, false), (2, true)] {
        let mut world = World::new();
        world.fact("w", "start_thread;mio::tick;libc.so.6!recv", State::Io, ns);
        let (key, _) = world.facts[0];
        let mut snapshot = world.snapshot();
        snapshot.threads = [now(&key)].into();
        let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
        let expected = shown.then_some(key.thread);
        assert_eq!((projection.now.longest_wait, projection.now.busy_count()), (expected, 1));
    }
}

#[test]
fn what_a_program_at_rest_does_for_itself_is_hidden_as_idle() {
    // The range has 100 ns: 2 % of one thread's time are 2 ns.
    for (own, upkeep, shown) in [
        ("start_thread;mio::tick", 1, false),
        ("start_thread;mio::tick", 2, true),
        ("app", 1, true),
    ] {
        let mut world = World::new();
        world.fact("w-1", "start_thread;loop;epoll_wait", State::Poll, 100);
        world.fact("w-2", own, State::Run, upkeep);
        let projection = world.project(&mine());
        assert_eq!(projection.total.is_empty(), !shown, "{own} {upkeep}");
        let everything = projection.total.wall_ns + projection.hidden.idle.wall_ns;
        assert_eq!(everything, 100 + upkeep, "{own} {upkeep}");
        assert_eq!(projection.hidden.idle_threads, if shown { 1 } else { 2 });
        assert_eq!(projection.groups.is_empty(), !shown);
    }
    // A runtime's own threads, and threads that only want a core, are at rest together.
    let mut world = World::new();
    world.fact("~C2 Thread0", "libjvm.so!work", State::Run, 1);
    assert!(world.project(&mine()).total.is_empty());
    world.fact("w", "start_thread;loop;epoll_wait", State::Rdy, 1);
    assert_eq!(world.project(&mine()).total.wall_ns, 2);
    // Who asks for these threads, for frames, for what is idle or for all frames gets them.
    let mut world = World::new();
    world.fact("w", "start_thread;mio::tick", State::Run, 1);
    let pattern = |text: &str| Filter::set(regex::Regex::new(text).expect("a pattern"));
    for asks in [
        |settings: &mut Settings, all: Filter<regex::Regex>| settings.filters.threads = all,
        |settings, all| settings.filters.focus = all,
        |settings, _| settings.idle = true,
        |settings, _| settings.level = Level::All,
    ] as [fn(&mut Settings, Filter<regex::Regex>); 4]
    {
        let mut settings = mine();
        asks(&mut settings, pattern("."));
        assert_eq!(world.project(&settings).total.wall_ns, 1);
    }
}

#[test]
fn what_is_no_function_is_the_last_of_the_methods() {
    let mut world = World::new();
    world.fact("w", "start_thread;loop;epoll_wait", State::Rdy, 90);
    world.fact("w", "main;cart", State::Run, 5);
    world.fact("w", "start_thread;mio::tick", State::Run, 4);
    world.fact("w", "start_thread", State::Run, 50);
    let mut names = |settings: &Settings| -> Vec<String> {
        let projection = world.project(settings);
        let method = |at: u32| projection.methods()[at as usize].location(Metric::Wall);
        let ordered = projection.ordered(settings).methods();
        ordered.into_iter().map(|at| method(at).function.to_string()).collect()
    };
    let settings = Settings { sort: SortColumn::SelfTime, ..mine() };
    assert_eq!(names(&settings)[..2], ["cart", "mio::tick"]);
    assert_eq!(names(&settings).last().map(String::as_str), Some("start_thread"));
    let chains = Settings { level: Level::Chains, ..settings };
    assert_eq!(names(&chains)[0], "(wants a core)");
}

#[test]
fn the_users_corrections_decide_the_last_one_first() {
    let whose = |texts: &[(&str, bool)]| Settings {
        whose: texts
            .iter()
            .map(|(text, mine)| Whose {
                pattern: regex::Regex::new(text).expect("a pattern"),
                mine: *mine,
            })
            .collect(),
        ..mine()
    };
    let mut shop = shop();
    assert_shows(
        shop.shows(&whose(&[("^cart$", false), ("malloc", true)])),
        "
        work- 98 0
          main 98 70
            cart 70 70
            malloc 20 20
              grow 20 20
            compare 8 8
        net- 2 0
          nothing 2 2
        ",
    );
    // By module, and the later one holds.
    let by_module = shop.shows(&whose(&[("^libc.so", true), ("grow", false)]));
    assert!(by_module.contains("      malloc 20 20\n          grow 20 20\n"), "{by_module}");
    assert!(shop.shows(&whose(&[("cart", false), ("cart", true)])).contains("cart 98 90"));
}

#[test]
fn rolled_up_entries_of_the_same_unit_join_their_caller() {
    let mut world = World::new();
    world.fact("work", "main;std::vector<int>::push_back", State::Run, 5);
    world.fact("work", "main;libc.so.6!malloc", State::Run, 5);
    let settings = Settings { roll_up: RollUp::Module, ..mine() };
    assert_shows(
        world.shows(&settings),
        "
        work 10 0
          app 10 10
            libc.so.6 5 5
        ",
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// No level changes a total, and self time at *mine* is that of the stacks whose innermost
    /// function of the user it is.
    #[test]
    fn levels_agree(facts in prop::collection::vec(fact(), 1..30), idle in any::<bool>()) {
        let mut world = world(&facts);
        let settings = Settings { idle, ..mine() };
        let shown = world.project(&settings);
        let all = world.project(&Settings { level: Level::All, ..settings.clone() });
        // The other levels show idle time where there is nothing else.
        prop_assume!(!all.only_idle);
        // Off-CPU time is floored per row, so it depends on the rows.
        let without_off = |totals: &Totals| Totals { off_ns: 0, ..*totals };
        prop_assert_eq!(without_off(&shown.total), without_off(&all.total));
        prop_assert_eq!(&shown.hidden, &all.hidden);
        let totals = |projection: &Projection| -> Vec<(String, Totals)> {
            projection.groups.iter().map(|g| (g.name.to_string(), without_off(&g.total))).collect()
        };
        prop_assert_eq!(totals(&shown), totals(&all));

        // The user's functions have the same total at both levels, in his own threads and but for
        // threads that only want a core.
        let is_own = |fact: &&super::properties::FactSpec| {
            !fact.is_internal() && !fact.is_woken_from_idle(&settings)
        };
        let in_own: Vec<_> = facts.iter().filter(is_own).cloned().collect();
        let in_own = super::properties::world(&in_own).project(&Settings { level: Level::All, ..settings.clone() });
        prop_assume!(!in_own.only_idle);
        let by_name = |projection: &Projection| -> BTreeMap<String, (u64, u32)> {
            projection.methods().iter().map(|method| {
                let location = method.location(Metric::Wall);
                (format!("{}!{}", location.module, location.function), (method.total.wall_ns, method.threads))
            }).collect()
        };
        let (in_mine, in_all) = (by_name(&shown), by_name(&in_own));
        for name in ["app!main", "app!start", "app!shop::cart", "app!shop::vat", "lib!copy", "app!wrap"] {
            prop_assert_eq!(in_mine.get(name), in_all.get(name), "{}", name);
        }

        // Each stack's time is self time of exactly one method, and no entry has callees.
        let own: u64 = shown.methods().iter().map(|method| method.own.wall_ns).sum();
        let of_groups: u64 = shown.groups.iter().map(|group| group.own.wall_ns).sum();
        let of_threads: u64 = (0..shown.node_count())
            .filter(|node| shown.name(*node).kind == FrameKind::Thread)
            .map(|node| shown.node(node, Metric::Wall).own.wall_ns)
            .sum();
        prop_assert_eq!(own + of_groups + of_threads, shown.total.wall_ns);
        for node in 0..shown.node_count() {
            let is_entry = shown.is_entry(node);
            prop_assert!(!(is_entry && shown.has_children(node)));
            let of_app = shown.parent(node).is_some_and(|caller| shown.role(caller) == Role::App);
            prop_assert_eq!(is_entry, of_app && !matches!(shown.role(node), Role::App | Role::Marker));
        }
    }

    #[test]
    fn the_hottest_function_is_the_first_of_those_with_most_self_time(
        facts in prop::collection::vec(fact(), 1..20),
        same_ns in any::<bool>(),
    ) {
        let mut world = world(&facts);
        // So that there are ties.
        world.facts.iter_mut().filter(|_| same_ns).for_each(|(_, weights)| weights.cpu_ns = 10);
        let shown = world.project(&mine());
        let most_ns = shown.methods().iter().map(|method| method.own.cpu_ns).max().unwrap_or(0);
        let is_hot = most_ns > 0 && most_ns * 2 >= shown.total.cpu_ns;
        let first = shown.methods().iter().position(|m| is_hot && m.own.cpu_ns == most_ns);
        let hottest = shown.hottest();
        prop_assert_eq!(
            format!("{:?}", hottest.map(|hottest| &hottest.method)),
            format!("{:?}", first.map(|first| &shown.methods()[first]))
        );
        let of_nodes = shown.method_of_nodes();
        let node = hottest.map(|hottest| of_nodes[hottest.node as usize]);
        prop_assert_eq!(node, first.map(|first| Some(first as u32)));
    }
}

#[test]
fn of_equals_the_hottest_function_is_the_first_and_a_call_out_of_another_is_no_function() {
    let mut world = World::new();
    // The call to `power` is the first node of its row, but an entry.
    world.fact("a", "main;libm.so.6!power", State::Io, 5);
    world.fact("a", "main;first", State::Run, 50);
    world.fact("b", "libm.so.6!power", State::Run, 50);
    let projection = world.project(&mine());
    let name = |method: &Method| method.location(Metric::Cpu).function.to_string();
    let equals = projection.methods().iter().filter(|method| method.own.cpu_ns == 50);
    assert_eq!(equals.map(name).collect::<Vec<_>>(), ["first", "power"]);
    let hottest = projection.hottest().expect("half of the CPU time");
    assert_eq!(name(&hottest.method), "first");
    assert_eq!(&*projection.name(hottest.node).function, "first");
}

#[test]
fn a_frame_whose_place_becomes_known_gets_its_role_and_so_does_each_inlined_function() {
    let mut world = World::new();
    world.fact("w", "main;late", State::Run, 5);
    let late = world.frames["late"];
    let java = |name: &str| Location::named(name, FrameKind::Java);
    let locations: Arc<[Location]> = Arc::new([java("com.shop.Cart.sum"), java("com.lib.Json.of")]);
    let set = |world: &mut World, pending, origins: [Origin; 2]| {
        let origins = origins.into_iter().collect();
        let named = Named { pending, origins, ..Named::known(locations.clone()) };
        world.interner.set_named(late, named);
    };
    set(&mut world, true, [Origin::Unknown; 2]);
    let mut projector = Projector::default();
    let snapshot = world.snapshot();
    let before = world.project_with(&mut projector, &snapshot, &mine());
    assert_shows(
        drawn(&before, &mine()),
        "
        w 5 0
          main 5 0
            com.shop.Cart.sum 5 0
              com.lib.Json.of 5 5
        ",
    );
    set(&mut world, false, [Origin::App, Origin::Library]);
    let snapshot = world.snapshot();
    let after = world.project_with(&mut projector, &snapshot, &mine());
    assert_shows(
        drawn(&after, &mine()),
        "
        w 5 0
          main 5 0
            com.shop.Cart.sum 5 5
              com.lib.Json.of 5 5
        ",
    );
}
