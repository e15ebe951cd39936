//! Properties of the difference of any two profiles, and examples small enough to compute by hand.

use proptest::prelude::*;

use super::*;
use crate::model::projection::settings::RollUp;
use crate::model::projection::test_projections;
use crate::model::vocabulary::frame::SECOND;

const MS: u64 = 1_000_000;
const INTERVAL: Ns = 10 * MS;

fn location(text: &str) -> Location {
    let (module, function) = text.split_once('!').unwrap_or(("/opt/app", text));
    let kind = if module.ends_with(".js") { FrameKind::Jit } else { FrameKind::Native };
    Location {
        module: module.into(),
        file: Some("/src/app.c".into()),
        ..Location::named(function, kind)
    }
}

/// Group, frames outermost first, state, ms, hits.
type Stack<'a> = (&'a str, &'a str, State, u64, u64);

fn totals(state: State, ms: u64, hits: u64) -> Totals {
    let mut totals = Totals { wall_ns: ms * MS, hits, ..Totals::default() };
    totals.states_ns[state as usize] = ms * MS;
    if state == State::Run {
        (totals.cpu_ns, totals.cpu_hits) = (ms * MS, hits);
    }
    totals
}

fn profile(stacks: &[Stack<'_>], seconds: u64) -> Projection {
    let stacks: Vec<_> = stacks
        .iter()
        .map(|(group, frames, state, ms, hits)| {
            let frames =
                frames.split(';').filter(|frame| !frame.is_empty()).map(location).collect();
            ((*group).to_owned(), frames, totals(*state, *ms, *hits))
        })
        .collect();
    let mut projection = test_projections::projection(&stacks);
    (projection.from, projection.till) = (5 * SECOND, (5 + seconds) * SECOND);
    projection
}

fn of(before: &Projection, after: &Projection, settings: &Settings, per: Per) -> Diff {
    let side = |projection| Side { projection, resolution: INTERVAL };
    diff(side(before), side(after), settings, per)
}

fn per(before: &Projection, after: &Projection, per: Per) -> Diff {
    of(before, after, &Settings::default(), per)
}

fn function<'a>(diff: &'a Diff, name: &str) -> &'a FunctionDiff {
    let mut found = diff.functions.iter().filter(|function| *function.location.function == *name);
    let function = found.next().unwrap_or_else(|| panic!("{name} is not there"));
    assert!(found.next().is_none(), "{name} is there twice");
    function
}

fn own(diff: &Diff, name: &str) -> Change {
    diff.change_of(&function(diff, name).own)
}

/// Returns the tree as text: `depth name change`.
fn tree(diff: &Diff) -> Vec<String> {
    let mut lines = Vec::new();
    for group in &diff.groups {
        let change = diff.change_of_group(group).change;
        lines.push(format!("{} {change:.0}", group.name));
        let mut todo: Vec<(u32, usize)> =
            diff.roots(group).into_iter().rev().map(|node| (node, 1)).collect();
        while let Some((node, depth)) = todo.pop() {
            let known = &diff.nodes[node as usize];
            let change = diff.change(&known.total).change;
            lines.push(format!("{}{} {change:.0}", " ".repeat(depth), known.location.function));
            todo.extend(diff.children(node).into_iter().rev().map(|child| (child, depth + 1)));
        }
    }
    lines
}

#[test]
fn rows_meet_by_name_and_the_greatest_change_comes_first() {
    let before = profile(
        &[
            ("work-", "main;run;fast", State::Run, 300, 30),
            ("work-", "main;run;slow", State::Run, 700, 70),
        ],
        1,
    );
    let after = profile(
        &[
            ("work-", "main;run;slow", State::Run, 1500, 150),
            ("work-", "main;run;fast", State::Run, 310, 31),
            ("new-", "main;idle", State::Sleep, 2000, 2),
        ],
        2,
    );
    let diff = per(&before, &after, Per::Run);
    assert_eq!(
        tree(&diff),
        [
            "new- 2000",
            " main 2000",
            "  idle 2000",
            "work- 810",
            " main 810",
            "  run 810",
            "   slow 800",
            "   fast 10"
        ]
    );
    assert!(own(&diff, "slow").is_resolved() && !own(&diff, "fast").is_resolved());
    let groups: Vec<_> = diff.ordered_groups().iter().map(|at| &*diff.groups[*at].name).collect();
    assert_eq!(groups, ["new-", "work-"]);
    assert_eq!(diff.groups[0].threads, Pair { before: 0, after: 1 });
    let functions = diff
        .ordered_functions()
        .into_iter()
        .map(|at| diff.functions[at].location.function.to_string());
    assert_eq!(functions.take(3).collect::<Vec<_>>(), ["idle", "slow", "fast"]);
    assert_eq!(diff.state(&function(&diff, "idle").own), Some(State::Sleep));
    assert_eq!(diff.state(&function(&diff, "main").own), None);
}

#[test]
fn figures_are_per_run_second_or_share() {
    let before = profile(&[("a", "f", State::Run, 500, 50), ("a", "g", State::Run, 500, 50)], 1);
    let after = profile(&[("a", "f", State::Run, 3000, 300), ("a", "g", State::Run, 1000, 100)], 4);
    let figure = |of: Per| {
        let change = own(&per(&before, &after, of), "f");
        [change.before, change.after, change.change]
    };
    assert_eq!(figure(Per::Run), [500.0, 3000.0, 2500.0]);
    assert_eq!(figure(Per::Second), [500.0, 750.0, 250.0]);
    assert_eq!(figure(Per::Share), [50.0, 75.0, 25.0]);
}

#[test]
fn a_function_is_itself_in_another_folder_but_not_in_another_module_of_one_profile() {
    let before = profile(&[("a", "/old/app;/usr/lib/libz.so.1!init", State::Run, 100, 10)], 1);
    let moved = profile(&[("a", "/old/app;/opt/lib/libz.so.2!init", State::Run, 100, 10)], 1);
    assert_eq!(own(&per(&before, &moved, Per::Run), "init").change, 0.0);
    let two = profile(
        &[
            ("a", "/old/app;/opt/lib/libz.so.1!init", State::Run, 100, 10),
            ("a", "/old/app;/opt/lib/liby.so!init", State::Run, 70, 7),
        ],
        1,
    );
    let diff = per(&before, &two, Per::Run);
    let mut changes: Vec<(String, f64)> = (diff.functions.iter())
        .filter(|function| *function.location.function == *"init")
        .map(|function| {
            (function.location.module.to_string(), diff.change_of(&function.own).change)
        })
        .collect();
    changes.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(changes, [("/opt/lib/liby.so".into(), 70.0), ("/opt/lib/libz.so.1".into(), 0.0)]);
}

#[test]
fn the_numbers_of_processes_and_threads_are_no_part_of_their_names() {
    for (grouping, before, after, name) in [
        (Grouping::Process, "42 app --port 80", "4711 app --port 80", "app --port 80"),
        (Grouping::Thread, "worker (7) (43)", "worker (7) (99)", "worker (7)"),
        (Grouping::Name, "worker (43)", "worker (43)", "worker (43)"),
        (Grouping::Blocker, "monitor of X 0x7f", "monitor of X 0x80 of process 7", "monitor of X"),
        (Grouping::Blocker, "child 42", "child 43", "child"),
        (Grouping::Blocker, "file lock 42", "file lock 42", "file lock 42"),
        (Grouping::Blocker, "(not waiting)", "(not waiting)", "(not waiting)"),
    ] {
        let settings = Settings { grouping, ..Settings::default() };
        let [before, after] =
            [before, after].map(|name| profile(&[(name, "f", State::Run, 10, 1)], 1));
        let diff = of(&before, &after, &settings, Per::Run);
        let names: Vec<&str> = diff.groups.iter().map(|group| &*group.name).collect();
        assert_eq!(names, [name]);
    }
}

#[test]
fn totals_are_measured_unless_stacks_decide_what_is_in_them() {
    let before = profile(&[("a", "f", State::Run, 100, 10)], 1);
    let after = profile(&[("a", "f", State::Run, 101, 10)], 1);
    let settings = Settings::default();
    let diff = of(&before, &after, &settings, Per::Run);
    assert!(diff.change_of_group(&diff.groups[0]).is_resolved());
    let by_frame = Grouping::Frame(regex::Regex::new("f").expect("one"));
    for grouping in [by_frame, Grouping::Blocker] {
        let settings = Settings { grouping, ..settings.clone() };
        let diff = of(&before, &after, &settings, Per::Run);
        assert!(!diff.change_of_group(&diff.groups[0]).is_resolved());
    }
}

#[test]
fn a_long_wait_is_sure_and_short_ones_are_not() {
    let before =
        profile(&[("a", "f;lock", State::Lock, 1000, 1), ("a", "f;poll", State::Io, 100, 10)], 10);
    let after =
        profile(&[("a", "f;lock", State::Lock, 1200, 1), ("a", "f;poll", State::Io, 160, 16)], 10);
    let diff = per(&before, &after, Per::Run);
    assert!(own(&diff, "lock").is_resolved(), "{:?}", own(&diff, "lock"));
    assert!(!own(&diff, "poll").is_resolved(), "{:?}", own(&diff, "poll"));
}

#[test]
fn waiting_for_a_core_makes_samples_worth_less() {
    // A second on a core and nine waiting for one: the samples stand for widely different times.
    let mut busy = totals(State::Run, 1000, 100);
    (busy.wall_ns, busy.states_ns[State::Rdy as usize]) = (10_000 * MS, 9_000 * MS);
    let crowded = test_projections::projection(&[("a".into(), vec![location("f")], busy)]);
    let calm = profile(&[("a", "f", State::Run, 1000, 100)], 1);
    let samples =
        |projection: &Projection| per(projection, projection, Per::Run).whole.after.sampled.samples;
    assert_eq!((samples(&crowded), samples(&calm)), (10.0, 100.0));
    let cpu = Settings { metric: Metric::Cpu, ..Settings::default() };
    assert_eq!(of(&crowded, &crowded, &cpu, Per::Run).whole.after.sampled.samples, 100.0);
}

#[test]
fn lines_are_drawn_where_something_changed_beyond_noise() {
    let before = profile(
        &[
            ("w", "main;run;turn;slow", State::Run, 1000, 100),
            ("w", "main;run;quiet", State::Run, 1000, 100),
        ],
        3,
    );
    let after = profile(
        &[
            ("w", "main;run;turn;slow", State::Run, 2000, 200),
            ("w", "main;run;quiet", State::Run, 1010, 101),
        ],
        3,
    );
    let diff = per(&before, &after, Per::Run);
    let drawn = diff.worth_drawing(10.0);
    let names = |which: &[bool]| -> Vec<String> {
        let nodes = diff.nodes.iter().zip(which).filter(|(_, drawn)| **drawn);
        nodes.map(|(node, _)| node.location.function.to_string()).collect()
    };
    let mut shown = names(&drawn);
    shown.sort();
    assert_eq!(shown, ["main", "run", "slow", "turn"]);
    let root = diff.roots(&diff.groups[0])[0];
    let chain = diff
        .chain(root, &drawn)
        .into_iter()
        .map(|node| diff.nodes[node as usize].location.function.to_string());
    assert_eq!(chain.collect::<Vec<_>>(), ["main", "run", "turn", "slow"]);
    assert!(names(&diff.worth_drawing(2000.0)).is_empty());
}

#[derive(Clone, Debug)]
struct Random {
    group: usize,
    frames: Vec<usize>,
    own: Totals,
}

const GROUPS: &[&str] = &["work-", "main", "pool-"];
const FRAMES: &[&str] =
    &["main", "run", "/lib/a.so!init", "/lib/b.so!init", "/tmp/b.so!init", "turn"];

fn random() -> impl Strategy<Value = Vec<Random>> {
    let stack = (
        0..GROUPS.len(),
        prop::collection::vec(0..FRAMES.len(), 0..6),
        (0..State::COUNT, 0u64..3_000, 0u64..3_000),
        (0u64..40, 0u64..40),
    );
    let stack = stack.prop_map(|(group, frames, (state, wall, cpu), (cpu_hits, waits))| {
        let mut own = Totals {
            wall_ns: wall * MS,
            cpu_ns: cpu * MS,
            hits: cpu_hits + waits,
            cpu_hits,
            ..Totals::default()
        };
        own.states_ns[state] = own.wall_ns;
        Random { group, frames, own }
    });
    prop::collection::vec(stack, 0..20)
}

fn projected(stacks: &[Random], seconds: u64) -> Projection {
    let stacks: Vec<_> = stacks
        .iter()
        .map(|stack| {
            let frames = stack.frames.iter().map(|frame| location(FRAMES[*frame])).collect();
            (GROUPS[stack.group].to_owned(), frames, stack.own)
        })
        .collect();
    let mut projection = test_projections::projection(&stacks);
    (projection.from, projection.till) = (0, seconds * SECOND);
    projection
}

fn settings() -> impl Strategy<Value = (Settings, Per)> {
    let by = prop::sample::select(vec![RollUp::Function, RollUp::Line]);
    (prop::sample::select(Metric::ALL.to_vec()), by, prop::sample::select(Per::ALL.to_vec()))
        .prop_map(|(metric, roll_up, per)| {
            (Settings { metric, roll_up, ..Settings::default() }, per)
        })
}

/// Returns every change with its subject: groups, paths of nodes, functions. A name may occur
/// several times, in different modules.
fn changes(diff: &Diff) -> Vec<(String, Change)> {
    let mut changes: Vec<(String, Change)> = Vec::new();
    for group in &diff.groups {
        changes.push((group.name.to_string(), diff.change_of_group(group)));
        let mut todo: Vec<(u32, String)> =
            diff.roots(group).into_iter().map(|node| (node, format!("{}/", group.name))).collect();
        while let Some((node, path)) = todo.pop() {
            let known = &diff.nodes[node as usize];
            let path = format!("{path}/{}", known.location.function);
            changes.push((format!("{path} total"), diff.change(&known.total)));
            changes.push((format!("{path} self"), diff.change(&known.own)));
            todo.extend(diff.children(node).into_iter().map(|child| (child, path.clone())));
        }
    }
    for function in &diff.functions {
        changes
            .push((format!("{} self", function.location.function), diff.change_of(&function.own)));
        changes.push((
            format!("{} total", function.location.function),
            diff.change_of(&function.total),
        ));
    }
    sort(&mut changes);
    changes
}

fn sort(changes: &mut [(String, Change)]) {
    let place = |(name, change): &(String, Change)| {
        let figures =
            [change.before, change.after, change.low, change.high].map(|figure| figure.to_bits());
        (name.clone(), figures)
    };
    changes.sort_by_key(place);
}

/// Returns the change in the other direction.
fn turned(change: &Change) -> Change {
    let Change { before, after, change, low, high } = *change;
    Change { before: after, after: before, change: 0.0 - change, low: 0.0 - high, high: 0.0 - low }
}

proptest! {
    #[test]
    fn nothing_differs_from_itself(stacks in random(), (settings, per) in settings()) {
        let diff = of(&projected(&stacks, 3), &projected(&stacks, 3), &settings, per);
        for (what, change) in changes(&diff) {
            prop_assert!(change.change == 0.0 && change.before == change.after && !change.is_resolved(), "{} {:?}", what, change);
            prop_assert!(change.low <= 0.0 && change.high >= 0.0);
        }
        prop_assert!(diff.groups.iter().all(|group| group.threads.before == group.threads.after));
    }

    #[test]
    fn looking_the_other_way_changes_the_sign_only(one in random(), other in random(), seconds in 1u64..5, (settings, per) in settings()) {
        let (one, other) = (projected(&one, seconds), projected(&other, 2));
        let mut there = changes(&of(&one, &other, &settings, per));
        let mut back = changes(&of(&other, &one, &settings, per));
        for (_, change) in &mut back {
            *change = turned(change);
        }
        // The sign of a zero is ignored.
        for (_, Change { low, high, change, .. }) in there.iter_mut().chain(&mut back) {
            [low, high, change].into_iter().for_each(|figure| *figure += 0.0);
        }
        sort(&mut there);
        sort(&mut back);
        prop_assert_eq!(&there, &back);
        for (what, change) in there {
            prop_assert!(change.low <= change.change && change.change <= change.high, "{} {:?}", what, change);
        }
    }

    /// Checks the tree, on each side and as change, and the functions' own time.
    #[test]
    fn parts_sum_to_the_whole(one in random(), other in random(), (settings, per) in settings()) {
        let (before, after) = (projected(&one, 3), projected(&other, 3));
        let metric = settings.metric;
        let diff = of(&before, &after, &settings, per);
        let values = |row: &Pair<Sums>| [row.before.value_ns, row.after.value_ns];
        let plus = |a: [u64; 2], b: [u64; 2]| [a[0] + b[0], a[1] + b[1]];
        for node in &diff.nodes {
            let mut sum = values(&node.own);
            let mut child = node.first_child;
            while child != NONE {
                sum = plus(sum, values(&diff.nodes[child as usize].total));
                child = diff.nodes[child as usize].next;
            }
            prop_assert_eq!(sum, values(&node.total));
        }
        let mut all = [0; 2];
        for group in &diff.groups {
            let roots = diff.roots(group).into_iter().map(|root| values(&diff.nodes[root as usize].total));
            prop_assert_eq!(roots.fold(values(&group.own), plus), values(&group.total));
            all = plus(all, values(&group.total));
        }
        prop_assert_eq!(all, [before.total.value(metric), after.total.value(metric)]);
        let functions = diff.functions.iter().map(|f| [f.own.before.value(metric), f.own.after.value(metric)]);
        let frameless = diff.groups.iter().map(|group| values(&group.own));
        prop_assert_eq!(functions.chain(frameless).fold([0; 2], plus), all);
        if per == Per::Share && all[0] > 0 && all[1] > 0 {
            let sum: f64 = diff.groups.iter().map(|group| diff.change_of_group(group).change).sum();
            prop_assert!(sum.abs() < 1e-9, "{}", sum);
        }
    }

    /// Each row of the profile after is part of the row with its names, and all of them together
    /// are its time after.
    #[test]
    fn rows_of_the_profile_after_are_found(one in random(), other in random(), (settings, per) in settings()) {
        let (before, after) = (projected(&one, 3), projected(&other, 3));
        let diff = of(&before, &after, &settings, per);
        let mut sums = vec![0; diff.nodes.len()];
        for node in 0..after.node_count() {
            let found = diff.node_of(node).expect("a row");
            prop_assert_eq!(&after.name(node).function, &diff.nodes[found as usize].location.function);
            prop_assert_eq!(after.parent(node).and_then(|caller| diff.node_of(caller)), diff.caller_of(found));
            sums[found as usize] += after.total(node).value(settings.metric);
        }
        let after_ns: Vec<u64> = diff.nodes.iter().map(|node| node.total.after.value_ns).collect();
        prop_assert_eq!(sums, after_ns);
        for (at, group) in (0..).zip(&after.groups) {
            let found = &diff.groups[diff.group_of(at).expect("a group") as usize];
            prop_assert_eq!(&found.name, &group_name(&group.name, &settings.grouping));
        }
        prop_assert_eq!((diff.node_of(after.node_count()), diff.group_of(100)), (None, None));
    }

    /// What is gone, with the own time before of what is still there, is all time before.
    #[test]
    fn what_is_gone_is_counted_once(one in random(), other in random(), (settings, per) in settings()) {
        let diff = of(&projected(&one, 3), &projected(&other, 3), &settings, per);
        let gone = diff.gone();
        let is_there = |total: &Pair<Sums>| total.after.value_ns > 0;
        let is_gone = |total: &Pair<Sums>| total.before.value_ns > 0 && !is_there(total);
        let mut kept = 0;
        for (node, below) in diff.nodes.iter().zip(&gone.nodes) {
            kept += if is_there(&node.total) { node.own.before.value_ns } else { 0 };
            prop_assert!(!is_gone(&node.total) || *below == Gone::default());
            prop_assert!(below.total.value_ns <= node.total.before.value_ns);
        }
        for (group, below) in diff.groups.iter().zip(&gone.groups) {
            kept += if is_there(&group.total) { group.own.before.value_ns } else { 0 };
            prop_assert!(below.total.value_ns <= group.total.before.value_ns);
        }
        // What is gone below a row is what its callees add to it.
        let seen = |total: &Pair<Sums>, below: &Gone| match is_gone(total) {
            true => (1, total.before.value_ns),
            false => (below.calls, below.total.value_ns),
        };
        let sum = |nodes: &mut dyn Iterator<Item = u32>| nodes.fold((0, 0), |sum, node| {
            let at = node as usize;
            let (calls, ns) = seen(&diff.nodes[at].total, &gone.nodes[at]);
            (sum.0 + calls, sum.1 + ns)
        });
        for (node, at) in diff.nodes.iter().zip(0..).filter(|(node, _)| !is_gone(&node.total)) {
            let below = &gone.nodes[at as usize];
            let callees = sum(&mut diff.callees_of(at));
            prop_assert_eq!((below.calls, below.total.value_ns), callees, "{:?}", node.location);
        }
        for (group, at) in diff.groups.iter().zip(0..).filter(|(group, _)| !is_gone(&group.total)) {
            let below = &gone.groups[at as usize];
            let roots = sum(&mut diff.roots_of(at));
            prop_assert_eq!((below.calls, below.total.value_ns), roots, "{}", group.name);
        }
        prop_assert_eq!(gone.all.total.value_ns + kept, diff.whole.before.total.value(settings.metric));
        // A gone call has a caller that is there, or none.
        let topmost = (0..diff.nodes.len() as u32).filter(|node| {
            let there = |caller| is_there(&diff.nodes[caller as usize].total);
            is_gone(&diff.nodes[*node as usize].total) && diff.caller_of(*node).is_none_or(there)
        });
        let frameless = diff.groups.iter().zip(0..).filter(|(group, at)| {
            is_gone(&group.total) && diff.roots_of(*at).all(|root| !is_gone(&diff.nodes[root as usize].total))
        });
        prop_assert_eq!(gone.all.calls as usize, topmost.count() + frameless.count());
    }
}

/// Of another build they begin elsewhere.
#[test]
fn functions_of_javascript_without_a_name_are_alike_in_one_file() {
    let before = profile(
        &[
            ("main", "/a/app.js!(anonymous app.js:9:12);f", State::Run, 100, 10),
            ("main", "/a/app.js!(anonymous db.js:9:12);f", State::Run, 100, 10),
            ("main", "(anonymous app.js:9:12)", State::Run, 100, 10),
        ],
        1,
    );
    let after = profile(
        &[
            ("main", "/b/app.js!(anonymous app.js:10:12);f", State::Run, 100, 10),
            ("main", "/b/app.js!(anonymous db.js:1:1);f", State::Run, 100, 10),
            ("main", "(anonymous app.js:10:12)", State::Run, 100, 10),
        ],
        1,
    );
    let diff = per(&before, &after, Per::Second);
    let mut changed: Vec<String> = tree(&diff);
    changed.retain(|line| !line.ends_with(" 0"));
    let native = ["(anonymous app.js:10:12)", "(anonymous app.js:9:12)"];
    assert_eq!(changed.len(), native.len(), "{changed:?}");
    assert!(
        native.iter().all(|name| changed.iter().any(|line| line.contains(name))),
        "{changed:?}"
    );
}
