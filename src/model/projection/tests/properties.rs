//! Compares projections of random facts under random settings with a simple computation per stack.

mod oracle;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use regex::Regex;

pub(super) use self::oracle::row_name;
use self::oracle::{Oracle, only_waits, rows, totals};
use super::*;
use crate::model::facts::tables::{Blocker, BlockerId, Holder};
use crate::model::projection::settings::{
    Filters, Grouping, Level, NativeFrames, RollUp, SortColumn,
};
use crate::model::vocabulary::blocker::BlockerKind;

/// Frames of random stacks: plain, in libraries, inlined, all idle kinds, a marker, the kernel's,
/// Python's, Go's.
const FRAMES: &[&str] = &[
    "start",
    "main:1",
    "main:2",
    "shop::cart:5",
    "shop::pay:6+shop::vat:7",
    "lib!copy",
    "lib!copy:4+shop::hook:3",
    "wrap",
    POOL,
    LOOP,
    PLUMBING,
    "[torn]",
    "vmlinux!vfs_read",
    "vmlinux!copy",
    "vmlinux![kernel]",
    "vmlinux!asm_common_interrupt",
    "@web.cart:8",
    "@web.pay:9",
    "@=web.pay:9",
    GLUE,
    INTERPRETER,
    "#runtime.goexit",
    "#runtime.mcall",
    "#runtime.main",
    "#main.work:3",
];
/// Number of Go's.
const OF_GO: usize = 4;
const POOL: &str = "rayon_core::sleep::Sleep::sleep";
const LOOP: &str = "uv__io_poll";
const GLUE: &str = "libpython3.12.so.1.0!_PyEval_Vector";
const INTERPRETER: &str = "libpython3.12.so.1.0!long_add";
const PLUMBING: &str = "libc.so.6!wait";

const NAMES: &[&str] = &["work-1", "work-2", "main", "7", "~GC #1", "~GC #2", "^work-3"];
/// The group and inner name of each thread name.
const GROUPS: &[(&str, Option<&str>)] = &[
    ("work-", None),
    ("work-", None),
    ("main", None),
    ("(unnamed)", None),
    ("[JVM]", Some("GC ")),
    ("[JVM]", Some("GC ")),
    ("work-", None),
];

/// Kind, class and address of what threads wait for, with the name of the group by it. One lock has
/// one name, also where its class was not always known.
const BLOCKERS: &[(BlockerKind, Option<&str>, u64, &str)] = &[
    (BlockerKind::Mutex, None, 16, "mutex 0x10"),
    (BlockerKind::Mutex, None, 32, "mutex 0x20"),
    (BlockerKind::Monitor, None, 32, "monitor of Tax 0x20"),
    (BlockerKind::Monitor, Some("Tax"), 32, "monitor of Tax 0x20"),
];

#[derive(Clone, Debug)]
pub(super) struct FactSpec {
    tid: u32,
    name: usize,
    stack: Vec<usize>,
    state: usize,
    /// Of [`BLOCKERS`].
    blocker: Option<usize>,
    wall_ns: u64,
    cpu_ns: u64,
    hits: u32,
    cpu_hits: u32,
    longest_ns: u64,
    longest_from: u64,
}

prop_compose! {
    pub(super) fn fact()(
        tid in 1u32..5,
        name in 0..NAMES.len(),
        stack in prop::collection::vec(0..FRAMES.len() - OF_GO, 0..7),
        state in 0..State::COUNT,
        blocker in prop::option::of(0..BLOCKERS.len()),
        (wall_ns, cpu_ns) in (0u64..50, 0u64..50),
        (hits, cpu_hits) in (0u32..4, 0u32..3),
        (longest_ns, longest_from) in (0u64..5, 0u64..100),
    ) -> FactSpec {
        FactSpec { tid, name, stack, state, blocker, wall_ns, cpu_ns, hits: hits + cpu_hits, cpu_hits, longest_ns, longest_from }
    }
}

prop_compose! {
    /// With functions of Go, by which it is decided whether a thread of Go waits for work. In these
    /// states none does.
    fn fact_of_go()(
        fact in fact(),
        outermost in prop::option::of(FRAMES.len() - OF_GO..FRAMES.len()),
        stack in prop::collection::vec(0..FRAMES.len(), 0..4),
        runs in any::<bool>(),
    ) -> FactSpec {
        let stack = outermost.into_iter().chain(stack).collect();
        FactSpec { stack, state: if runs { State::Run } else { State::Lock } as usize, ..fact }
    }
}

fn any_fact() -> impl Strategy<Value = FactSpec> {
    prop_oneof![fact(), fact_of_go()]
}

impl FactSpec {
    /// In a runtime's own thread.
    pub(super) fn is_internal(&self) -> bool {
        of_kind(NAMES[self.name]).1 == ThreadKind::Internal
    }

    fn weights(&self) -> Weights {
        Weights {
            wall_ns: self.wall_ns,
            cpu_ns: self.cpu_ns,
            hits: self.hits,
            cpu_hits: self.cpu_hits,
            open: 0,
            longest_ns: self.longest_ns,
            longest_from: if self.longest_ns > 0 { self.longest_from } else { 0 },
        }
    }

    /// Runnable without a core, after it waited for work.
    pub(super) fn is_woken_from_idle(&self, settings: &Settings) -> bool {
        let texts = self.stack.iter().flat_map(|frame| FRAMES[*frame].split('+'));
        State::ALL[self.state] == State::Rdy
            && !self.is_internal()
            && texts.map(|text| location(text, false)).any(|l| only_waits(&l, settings))
    }
}

/// Returns the time of each node at each of its locations.
fn lines(projection: &Projection) -> Vec<String> {
    let mut lines = Vec::new();
    for node in 0..projection.node_count() {
        projection.nodes.each_line(node, |at| {
            let location = &projection.nodes.places.locations[at.location as usize];
            lines.push(format!("{node} {location:?} {} {}", at.wall_ns, at.cpu_ns));
        });
    }
    lines.sort();
    lines
}

pub(super) fn world(facts: &[FactSpec]) -> World {
    let mut world = World::new();
    let blockers = BLOCKERS.iter().map(|(kind, class, object, _)| {
        world.interner.blocker(Blocker {
            kind: *kind,
            pid: 1,
            object: *object,
            class: class.map(Into::into),
            holder: Holder::Unknown,
        })
    });
    let blockers: Vec<BlockerId> = blockers.collect();
    for fact in facts {
        let stack: Vec<&str> = fact.stack.iter().map(|frame| FRAMES[*frame]).collect();
        let thread = ThreadKey { pid: 1, tid: fact.tid, start: 1 };
        *world.fact_of(thread, NAMES[fact.name], &stack.join(";"), State::ALL[fact.state], 0) =
            fact.weights();
        if let Some(blocker) = fact.blocker {
            world.facts.last_mut().expect("just added").0.blocker = blockers[blocker];
        }
    }
    world
}

fn filter<T: std::fmt::Debug + Clone + 'static>(values: Vec<T>) -> BoxedStrategy<Filter<T>> {
    let set = (prop::sample::select(values), any::<bool>());
    prop_oneof![
        Just(Filter::default()),
        set.prop_map(|(value, on)| Filter { value: Some(value), on })
    ]
    .boxed()
}

fn patterns(texts: &[&str]) -> Vec<Regex> {
    texts.iter().map(|text| Regex::new(text).unwrap()).collect()
}

fn filters() -> impl Strategy<Value = Filters> {
    let prefixes = [&["shop::"][..], &["lib", "nothing"], &["/src/"], &["main", "rayon"]];
    let prefixes =
        prefixes.iter().map(|list| list.iter().map(|p| (*p).to_owned()).collect()).collect();
    (
        filter(prefixes),
        filter(patterns(&["cart|poll", "^main$"])),
        filter(patterns(&["pay|hook", "wrap"])),
        filter(patterns(&["wrap|copy", "^start$|^main$", ""])),
        filter(patterns(&["^work-$", "^work-1$|main", "^GC $|3", "JVM"])),
        any::<(bool, bool, bool)>(),
        prop::sample::select(&NativeFrames::ALL[..]),
    )
        .prop_map(
            |(interesting, focus, ignore, hide, threads, (no_kernel, skip_daemon, gil), native)| {
                let min_percent = Filter::default();
                Filters {
                    interesting,
                    focus,
                    ignore,
                    hide,
                    no_kernel,
                    native,
                    threads,
                    skip_daemon,
                    gil,
                    min_percent,
                }
            },
        )
}

fn grouping() -> impl Strategy<Value = Grouping> {
    let frame = Grouping::Frame(Regex::new("shop::|sleep").unwrap());
    prop::sample::select(vec![
        Grouping::Rules,
        Grouping::Name,
        Grouping::Thread,
        Grouping::Process,
        Grouping::Blocker,
        Grouping::None,
        Grouping::Label(None),
        frame,
    ])
}

prop_compose! {
    pub(super) fn settings()(
        metric in prop::sample::select(&Metric::ALL[..]),
        roll_up in prop::sample::select(&RollUp::ALL[..]),
        grouping in grouping(),
        filters in filters(),
        (idle, idle_main, reverse, inverted) in any::<(bool, bool, bool, bool)>(),
        sort in prop::sample::select(&SortColumn::ALL[..]),
        level in prop::sample::select(&[Level::Chains, Level::All][..]),
    ) -> Settings {
        let idle_at = if idle_main { patterns(&["^main$"]) } else { Vec::new() };
        Settings { metric, roll_up, grouping, filters, idle, idle_at, sort, reverse, inverted, level, ..Settings::default() }
    }
}

/// Settings of which a part replaces the present ones, as keys do.
#[derive(Clone, Debug)]
struct Change {
    to: Settings,
    level: Level,
    /// What changes: grouping, roll-up, level, idle, filters, idle frames.
    parts: [bool; 6],
}

impl Change {
    fn of(self, before: Settings) -> Settings {
        let Change { to, level, parts: [grouping, roll_up, levels, idle, filters, idle_at] } = self;
        Settings {
            grouping: if grouping { to.grouping } else { before.grouping },
            roll_up: if roll_up { to.roll_up } else { before.roll_up },
            level: if levels { level } else { before.level },
            idle: if idle { to.idle } else { before.idle },
            filters: if filters { to.filters } else { before.filters },
            idle_at: if idle_at { to.idle_at } else { before.idle_at },
            ..before
        }
    }
}

fn changed() -> impl Strategy<Value = Change> {
    let level = prop::sample::select(&[Level::Mine, Level::Chains, Level::All][..]);
    (settings(), level, any::<[bool; 6]>()).prop_map(|(to, level, parts)| Change {
        to,
        level,
        parts,
    })
}

fn sum<'a>(totals: impl IntoIterator<Item = &'a Totals>) -> Totals {
    totals.into_iter().fold(Totals::default(), |mut sum, totals| {
        sum.add(totals);
        sum
    })
}

/// Clears the off-CPU time. It is floored per row, so it is no sum of facts: see
/// [`off_is_within_its_bounds_and_parents_have_what_their_children_have`].
fn without_off(totals: Totals) -> Totals {
    Totals { off_ns: 0, ..totals }
}

/// Returns the sum of all facts.
fn everything(facts: &[FactSpec]) -> Totals {
    facts.iter().fold(Totals::default(), |mut sum, fact| {
        sum.add(&totals(fact));
        sum
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn every_grouping_has_the_same_totals(
        facts in prop::collection::vec(fact(), 0..30),
        settings in settings(),
        other in grouping(),
    ) {
        // Names of groups decide which threads that filter shows.
        let mut settings = settings;
        settings.filters.threads.on = false;
        let mut world = world(&facts);
        let one = world.project(&settings);
        let other = world.project(&Settings { grouping: other, ..settings });
        prop_assert_eq!(without_off(one.total), without_off(other.total));
        let hidden = |of: &Projection| of.hidden.parts().map(|part| without_off(*part));
        prop_assert_eq!(hidden(&one), hidden(&other));
        prop_assert_eq!(
            without_off(sum(one.groups.iter().map(|group| &group.total))),
            without_off(sum(other.groups.iter().map(|group| &group.total)))
        );
        let locks = |of: &Projection| -> Vec<(u64, u64, u32)> {
            of.locks.iter().map(|lock| (lock.object, lock.waited_ns, lock.threads)).collect()
        };
        prop_assert_eq!(locks(&one), locks(&other));
    }

    #[test]
    fn a_projection_is_what_the_words_mean(
        facts in prop::collection::vec(any_fact(), 0..30),
        settings in settings(),
    ) {
        let projection = world(&facts).project(&settings);
        let oracle = Oracle::new(&facts, &settings);
        prop_assert_eq!(without_off(projection.total), oracle.shown);
        prop_assert_eq!(projection.hidden.parts().map(|part| without_off(*part)), oracle.hidden);

        let groups: BTreeMap<String, _> = projection
            .groups
            .iter()
            .map(|g| (g.name.to_string(), (without_off(g.total), without_off(g.own), g.threads.iter().map(|t| t.thread.tid).collect())))
            .collect();
        prop_assert_eq!(&groups, &oracle.groups);
        let shown = rows(&projection, &settings);
        prop_assert_eq!(shown.keys().collect::<Vec<_>>(), oracle.rows.keys().collect::<Vec<_>>());
        for ((key, (location, total, own)), expected) in shown.iter().zip(oracle.rows.values()) {
            prop_assert_eq!((without_off(*total), without_off(*own)), (expected.total, expected.own), "{:?}", key);
            prop_assert_eq!(location.line, expected.line(settings.metric), "{:?}", key);
        }
        let methods: BTreeMap<String, &Method> =
            projection.methods().iter().map(|m| (row_name(m.location(settings.metric), settings.roll_up), m)).collect();
        prop_assert_eq!(methods.len(), projection.methods().len(), "a method, twice");
        let most_ns = projection.methods().iter().map(|m| m.own.cpu_ns).max().unwrap_or(0);
        let is_hot = most_ns > 0 && most_ns * 2 >= projection.total.cpu_ns;
        let hottest = projection.methods().iter().find(|m| is_hot && m.own.cpu_ns == most_ns);
        prop_assert_eq!(format!("{hottest:?}"), format!("{:?}", projection.hottest().map(|hottest| &hottest.method)));
        prop_assert_eq!(methods.keys().collect::<Vec<_>>(), oracle.methods.keys().collect::<Vec<_>>());
        for ((name, method), expected) in methods.iter().zip(oracle.methods.values()) {
            let found = (without_off(method.total), without_off(method.own));
            prop_assert_eq!(found, (expected.total, expected.own), "{}", name);
            prop_assert_eq!(method.threads as usize, expected.threads.len(), "{}", name);
            prop_assert_eq!(method.location(settings.metric).line, expected.line(settings.metric), "{}", name);
        }
    }

    #[test]
    fn of_the_nodes_that_only_one_thread_was_in_the_one_that_ran_most_is_told(
        facts in prop::collection::vec(fact(), 0..30),
        settings in settings(),
    ) {
        let projection = world(&facts).project(&settings);
        // The last one was seen nowhere.
        for thread in 0..=projection.threads.len() as u32 {
            let is_alone = |node: &u32| {
                let mut here = projection.seen.iter().filter(|(_, at)| at == node).peekable();
                here.peek().is_some() && here.all(|(of, _)| *of == thread)
            };
            let alone = (0..projection.node_count()).filter(is_alone);
            let timed = alone.map(|node| (node, projection.node(node, Metric::Cpu).own.cpu_ns));
            let expected = timed.filter(|(_, ns)| *ns > 0).max_by_key(|(_, ns)| *ns);
            prop_assert_eq!(projection.nodes.alone_in(&projection.seen, thread), expected);
        }
    }

    #[test]
    fn sums_add_up(facts in prop::collection::vec(fact(), 0..60), settings in settings()) {
        let projection = world(&facts).project(&settings);
        let nodes: Vec<_> = (0..projection.node_count()).map(|node| projection.node(node, Metric::Wall)).collect();
        let all = sum(projection.hidden.parts().into_iter().chain([&projection.total]));
        prop_assert_eq!(without_off(all), everything(&facts));
        prop_assert_eq!(sum(projection.groups.iter().map(|g| &g.total)), projection.total);
        for group in &projection.groups {
            let roots = projection.roots(group).map(|root| &nodes[root as usize].total);
            prop_assert_eq!(sum(roots.chain([&group.own])), group.total);
        }
        for (at, node) in (0..).zip(&nodes) {
            let children = projection.children(at).map(|child| &nodes[child as usize].total);
            prop_assert_eq!(sum(children.chain([&node.own])), node.total);
        }
        let own = nodes.iter().map(|n| &n.own).chain(projection.groups.iter().map(|g| &g.own));
        prop_assert_eq!(sum(own), projection.total);
        let threads = (0..projection.node_count()).filter(|at| projection.name(*at).kind == FrameKind::Thread);
        let own = projection.methods().iter().map(|m| &m.own).chain(projection.groups.iter().map(|g| &g.own));
        prop_assert_eq!(sum(own.chain(threads.map(|at| &nodes[at as usize].own))), projection.total);
        for totals in nodes.iter().map(|n| &n.total).chain([&projection.total]) {
            prop_assert_eq!(totals.states_ns.iter().sum::<u64>(), totals.wall_ns);
        }
    }

    #[test]
    fn grouping_cutting_and_hiding_frames_change_no_total(
        facts in prop::collection::vec(fact(), 0..60),
        settings in settings(),
        other in settings(),
    ) {
        // The thread filter also matches groups.
        let mut settings = settings;
        settings.filters.threads = Filter::default();
        let mut changed = settings.clone();
        changed.grouping = other.grouping;
        changed.filters.interesting = other.filters.interesting;
        changed.filters.hide = other.filters.hide;
        changed.filters.no_kernel = other.filters.no_kernel;
        changed.filters.native = other.filters.native;
        changed.roll_up = other.roll_up;
        let mut world = world(&facts);
        let (before, after) = (world.project(&settings), world.project(&changed));
        prop_assert_eq!(without_off(before.total), without_off(after.total));
        prop_assert_eq!(before.hidden, after.hidden);
    }

    /// No row exceeds its caller's, for any metric. `off` is at least wall minus CPU time and at
    /// most wall time.
    #[test]
    fn off_is_within_its_bounds_and_parents_have_what_their_children_have(
        facts in prop::collection::vec(fact(), 0..60),
        settings in settings(),
    ) {
        let projection = world(&facts).project(&settings);
        let off = |totals: &Totals| totals.value(Metric::Off);
        let mut all = 0;
        for group in &projection.groups {
            let roots: u64 = projection.roots(group).map(|root| projection.value(root, Metric::Off)).sum();
            prop_assert_eq!(off(&group.total), off(&group.own) + roots);
            prop_assert_eq!(off(&group.own), group.own.wall_ns.saturating_sub(group.own.cpu_ns));
            all += off(&group.total);
        }
        prop_assert_eq!(all, off(&projection.total));
        let settled = |totals: &&Totals| off(totals) == totals.wall_ns.saturating_sub(totals.cpu_ns);
        prop_assert!(projection.hidden.parts().iter().all(settled));
        for node in 0..projection.node_count() {
            let Node { total, own, .. } = projection.node(node, Metric::Off);
            let children: u64 = projection.children(node).map(|child| projection.value(child, Metric::Off)).sum();
            prop_assert_eq!(off(&total), off(&own) + children);
            prop_assert_eq!(off(&own), own.wall_ns.saturating_sub(own.cpu_ns));
            prop_assert!(off(&total) >= total.wall_ns.saturating_sub(total.cpu_ns) && off(&total) <= total.wall_ns);
        }
        // If no fact has more CPU than wall time, off is the difference.
        if facts.iter().all(|fact| fact.cpu_ns <= fact.wall_ns) {
            prop_assert_eq!(off(&projection.total), projection.total.wall_ns - projection.total.cpu_ns);
        }
    }

    #[test]
    fn the_order_of_facts_does_not_matter(
        facts in prop::collection::vec(fact(), 0..30),
        settings in settings(),
        seed in prop::collection::vec(any::<u32>(), 30),
    ) {
        let mut world = world(&facts);
        let before = world.project(&settings);
        let mut keyed: Vec<_> = seed.into_iter().chain(0..).zip(world.facts.clone()).collect();
        keyed.sort_by_key(|(key, _)| *key);
        world.facts = keyed.into_iter().map(|(_, fact)| fact).collect();
        prop_assert_eq!(format!("{before:?}"), format!("{:?}", world.project(&settings)));
    }

    #[test]
    fn a_projector_gives_what_a_fresh_one_gives(
        facts in prop::collection::vec(any_fact(), 1..40),
        scan in prop::collection::vec((0usize..40, changed(), prop::option::of(0..FRAMES.len()), any::<bool>()), 1..8),
        late in prop::collection::vec(0..FRAMES.len(), 0..6),
    ) {
        let mut projector = Projector::default();
        let mut settings = Settings::default();
        let mut growing = World::new();
        let named = |world: &mut World, frame: usize, pending: bool| {
            let raw = world.frame(FRAMES[frame]);
            let proper: Vec<Location> = FRAMES[frame].split('+').enumerate().map(|(depth, text)| location(text, depth > 0)).collect();
            let locations = if pending { vec![location("app!0x77", false)] } else { proper };
            world.interner.set_named(raw, Named { pending, ..Named::known(locations) });
        };
        for frame in late {
            named(&mut growing, frame, true);
        }
        for (count, change, arrives, reuse) in scan {
            // More facts or another range, and sometimes other settings or a late name.
            if count % 3 == 0 {
                growing.facts.clear();
            }
            for fact in facts.iter().take(count) {
                let stack: Vec<&str> = fact.stack.iter().map(|frame| FRAMES[*frame]).collect();
                let thread = ThreadKey { pid: 1, tid: fact.tid, start: 1 };
                *growing.fact_of(thread, NAMES[fact.name], &stack.join(";"), State::ALL[fact.state], 0) = fact.weights();
            }
            settings = change.of(settings);
            if let Some(frame) = arrives {
                named(&mut growing, frame, false);
            }
            let snapshot = growing.snapshot();
            let again = growing.project_with_trends(&mut projector, &snapshot, &settings);
            let fresh = growing.project_with_trends(&mut Projector::default(), &snapshot, &settings);
            prop_assert_eq!(format!("{again:?}"), format!("{fresh:?}"));
            prop_assert_eq!(lines(&again), lines(&fresh));
            prop_assert_eq!((&again.busiest, again.unnamed_ns), (&fresh.busiest, fresh.unnamed_ns));
            prop_assert_eq!(&again.busy, &fresh.busy);
            prop_assert_eq!(&again.locks, &fresh.locks);
            prop_assert_eq!((&again.threads, &again.seen), (&fresh.threads, &fresh.seen));
            prop_assert_eq!(format!("{:?}", again.trend), format!("{:?}", fresh.trend));
            if reuse {
                projector.reuse(again);
            }
        }
    }
}
