//! Trends of rows: sums by slice, changes between the halves of a range.

use proptest::prelude::*;

use super::properties::{fact, settings, world};
use super::*;
use crate::model::projection::RowOf;
use crate::model::projection::settings::{Level, SortColumn};
use crate::model::projection::trend::Slices;
use crate::model::vocabulary::frame::SECOND;

/// The spans of buckets that are one second wide.
fn seconds(count: u64) -> Vec<(Ns, Ns)> {
    (0..count).map(|n| (n * SECOND, (n + 1) * SECOND)).collect()
}

impl World {
    /// Projects with trends; `bucket` gets the number of a fact. Waits are exact.
    fn with_trends(
        &mut self,
        settings: &Settings,
        buckets: &[(Ns, Ns)],
        bucket: impl Fn(usize) -> usize,
    ) -> Projection {
        self.with_slices(settings, Slices::new(buckets, 1), bucket)
    }

    fn with_slices(
        &mut self,
        settings: &Settings,
        slices: Option<Slices>,
        bucket: impl Fn(usize) -> usize,
    ) -> Projection {
        let snapshot = self.snapshot();
        let mut order: Vec<usize> = (0..self.facts.len()).collect();
        order.sort_by_key(|at| bucket(*at));
        Projector::default().project_facts(&snapshot, settings, slices, &mut |f| {
            for at in &order {
                f(bucket(*at), &self.facts[*at].0, &self.facts[*at].1);
            }
            (0, 100)
        })
    }
}

/// A thread that runs in `a` and in `b` for these times, ms, in each of some seconds, with a sample
/// every 10 ms.
fn running(seconds_of: &[(u64, u64)]) -> Projection {
    let mut world = World::new();
    let thread = ThreadKey { pid: 1, tid: 1, start: 1 };
    for times in seconds_of {
        for (name, ms) in [("main;a", times.0), ("main;b", times.1)] {
            let weights = world.fact_of(thread, "work", name, State::Run, ms * 1_000_000);
            (weights.hits, weights.cpu_hits) = (ms as u32 / 10, ms as u32 / 10);
        }
    }
    let slices = Slices::new(&seconds(seconds_of.len() as u64), 10_000_000);
    world.with_slices(&Settings::default(), slices, |n| n / 2)
}

/// Returns the trends of main, a and b.
fn trends(projection: &Projection) -> [RowTrend; 3] {
    let node = |name: &str| {
        let named = |node: &u32| &*projection.name(*node).function == name;
        RowOf::Nodes(vec![(0..projection.node_count()).find(named).expect("a node")])
    };
    let rows = ["main", "a", "b"].map(node);
    projection.trends(&rows, Metric::Wall).try_into().expect("three rows")
}

#[test]
fn levels_are_of_the_highest_and_by_time() {
    let [main, a, _] = trends(&running(&[(0, 0), (100, 0), (200, 0), (400, 0)]));
    // Four buckets: each is two eighths of the range.
    assert_eq!(a.levels, Some([0.0, 0.0, 0.25, 0.25, 0.5, 0.5, 1.0, 1.0]));
    assert_eq!(main.levels, a.levels);
    assert_eq!(a.slices.iter().sum::<u64>(), 700_000_000);
    // Slices of three and four buckets are equally high where the rate is the same.
    let [main, ..] = trends(&running(&[(500, 0); 30]));
    assert_eq!(main.levels, Some([1.0; SLICES]));
    assert!(main.slices.iter().any(|ns| *ns != main.slices[0]), "{main:?}");
    let [_, _, b] = trends(&running(&[(500, 0); 30]));
    assert_eq!(b.levels, Some([0.0; SLICES]), "a row without time");
}

#[test]
fn a_change_is_of_shares_and_beyond_the_error_of_sampling() {
    let halves = |older, newer| [vec![older; 15], vec![newer; 15]].concat();
    let changes = |seconds: &[(u64, u64)]| trends(&running(seconds)).map(|trend| trend.change);
    assert_eq!(changes(&halves((300, 300), (300, 300))), [None; 3], "equal halves");
    assert_eq!(changes(&halves((300, 300), (900, 900))), [None; 3], "shares are as before");
    let [main, a, b] = changes(&halves((800, 200), (600, 400)));
    assert_eq!(main, None, "it has all time in both");
    let is = |change: Option<f64>, points: f64| {
        assert!(change.is_some_and(|change| (change - points).abs() < 1e-9), "{change:?}");
    };
    is(a, -20.0);
    is(b, 20.0);
    // A row that only exists in the newer half.
    is(changes(&halves((1000, 0), (700, 300)))[2], 30.0);
    is(changes(&halves((700, 300), (1000, 0)))[2], -30.0);
    // Few samples: 11 and 10 of 21 instead of 10 and 11.
    assert_eq!(changes(&[(100, 110), (110, 100)]), [None; 3]);
    // A half without any time has no shares.
    assert_eq!(changes(&halves((0, 0), (600, 400))), [None; 3]);
}

/// Rows of the same figures change by chance more often, the more of them are on the screen.
#[test]
fn more_rows_need_more_evidence() {
    let projection = running(&[[(500, 500); 4], [(630, 370); 4]].concat());
    let change = |count: usize| {
        let a = (0..projection.node_count()).find(|n| &*projection.name(*n).function == "a");
        let rows = vec![RowOf::Nodes(vec![a.expect("a node")]); 1];
        let others = std::iter::repeat_n(RowOf::Groups(Vec::new()), count - 1);
        let rows: Vec<RowOf> = rows.into_iter().chain(others).collect();
        projection.trends(&rows, Metric::Wall)[0].change
    };
    assert!(change(1).is_some_and(|points| (points - 13.0).abs() < 1e-9), "{:?}", change(1));
    assert_eq!(change(1000), None);
}

#[test]
fn a_range_of_one_bucket_has_no_trend() {
    let [main, a, b] = trends(&running(&[(700, 300)]));
    for (row, ns) in [(main, 1000), (a, 700), (b, 300)] {
        assert_eq!((row.levels, row.change), (None, None));
        assert_eq!(row.slices.iter().sum::<u64>(), ns * 1_000_000);
    }
    let nothing = World::new().with_trends(&Settings::default(), &[], |_| 0);
    assert!(
        !nothing.has_trends() && nothing.trends(&[RowOf::Groups(vec![])], Metric::Wall).is_empty()
    );
}

/// A bucket of a minute among seconds is as high as its rate, over all of its time.
#[test]
fn wide_buckets_fill_the_eighths_that_they_cover() {
    let mut world = World::new();
    let thread = ThreadKey { pid: 1, tid: 1, start: 1 };
    world.fact_of(thread, "work", "main", State::Io, 30 * SECOND);
    world.fact_of(thread, "work", "main", State::Io, 20 * SECOND);
    let buckets = [(0, 60 * SECOND), (60 * SECOND, 80 * SECOND)];
    let projection = world.with_trends(&Settings::default(), &buckets, |n| n);
    let trend = projection.trends(&[RowOf::Groups(vec![0])], Metric::Wall)[0];
    assert_eq!(trend.levels, Some([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0]));
}

/// A bucket counts for the half that contains its middle.
#[test]
fn a_bucket_on_both_sides_of_the_middle_is_of_one_half() {
    let mut world = World::new();
    let thread = ThreadKey { pid: 1, tid: 1, start: 1 };
    for (name, seconds) in [("a", 8), ("b", 2), ("a", 30), ("b", 30)] {
        world.fact_of(thread, "work", name, State::Io, seconds * SECOND);
    }
    let buckets = [(0, 30 * SECOND), (30 * SECOND, 100 * SECOND)];
    let projection = world.with_trends(&Settings::default(), &buckets, |n| n / 2);
    let rows = [RowOf::Nodes(vec![0]), RowOf::Nodes(vec![1])];
    let changes = projection.trends(&rows, Metric::Wall).into_iter().map(|row| row.change);
    let changes: Vec<f64> = changes.map(|change| change.expect("a change").round()).collect();
    assert_eq!(changes, [-30.0, 30.0]);
}

/// Waits are measured, so a change may be certain and too small to be drawn.
#[test]
fn a_change_that_would_be_drawn_as_zero_is_none() {
    let of = |more: u64| {
        let mut world = World::new();
        let thread = ThreadKey { pid: 1, tid: 1, start: 1 };
        for (name, wall) in
            [("a", 50_000), ("b", 50_000), ("a", 50_000 + more), ("b", 50_000 - more)]
        {
            world.fact_of(thread, "work", name, State::Io, wall * 1_000);
        }
        let projection = world.with_trends(&Settings::default(), &seconds(2), |n| n / 2);
        projection.trends(&[RowOf::Nodes(vec![0])], Metric::Wall)[0].change.is_some()
    };
    assert!(!of(40) && of(60));
}

/// The time of groups that are one to the reader, where the filters hide all frames.
#[test]
fn groups_of_several_parts_have_the_time_of_all() {
    let mut world = World::new();
    for (tid, name) in (1..).zip(["~GC #1", "~VM Thread", "work", "zoo"]) {
        let thread = ThreadKey { pid: 1, tid, start: 1 };
        world.fact_of(thread, name, "main", State::Run, u64::from(tid) * 10);
    }
    let mut settings = Settings::default();
    settings.filters.hide = Filter::set(regex::Regex::new("^main$").expect("a pattern"));
    let projection = world.with_trends(&settings, &seconds(1), |_| 0);
    let groups: Vec<&str> = projection.groups.iter().map(|group| &*group.name).collect();
    assert_eq!(groups, ["[JVM]", "work", "zoo"]);
    let rows: Vec<RowOf> = (0..3).map(|group| RowOf::Groups(vec![group])).collect();
    let trends = projection.trends(&rows, Metric::Wall);
    assert_eq!(
        trends.iter().map(|row| row.slices.iter().sum::<u64>()).collect::<Vec<_>>(),
        [30, 30, 40]
    );
}

/// What filters and idle hide does not count, and the sampling error is that of all samples.
#[test]
fn hidden_time_is_not_in_a_trend() {
    let mut world = World::new();
    let thread = |tid| ThreadKey { pid: 1, tid, start: 1 };
    for _ in 0..8 {
        world.fact_of(thread(1), "work", "main", State::Io, 10);
        world.fact_of(thread(2), "pool", "main;epoll", State::Poll, 1000);
    }
    let projection = world.with_trends(&Settings::default(), &seconds(8), |n| n / 2);
    assert_eq!(projection.groups.len(), 1);
    let trend = projection.trends(&[RowOf::Groups(vec![0])], Metric::Wall)[0];
    assert_eq!(trend.slices, [10; SLICES]);
}

/// The lines of small rows, where they are open, include the rows below them.
#[test]
fn a_line_of_several_rows_has_the_sum_of_them() {
    let projection = running(&[(700, 300); 8]);
    let [main, a, b] = ["main", "a", "b"].map(|name| {
        (0..projection.node_count()).find(|n| &*projection.name(*n).function == name).expect("one")
    });
    let rows = [
        RowOf::Groups(vec![0]),
        RowOf::Nodes(vec![a, b]),
        RowOf::Nodes(vec![a]),
        RowOf::Nodes(vec![b]),
    ];
    let sums = projection.trends(&rows, Metric::Wall).into_iter().map(|row| row.slices[0]);
    assert_eq!(sums.collect::<Vec<_>>(), [1000, 1000, 700, 300].map(|ms| ms * 1_000_000));
    let all = projection.trends(&[RowOf::Nodes(vec![main])], Metric::Cpu)[0];
    assert_eq!(all.slices, [1_000_000_000; SLICES]);
    let off = projection.trends(&[RowOf::Nodes(vec![main])], Metric::Off)[0];
    assert_eq!(off.slices, [0; SLICES]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// The slices of each row sum to its total, and the projection is that without trends.
    #[test]
    fn slices_sum_to_totals(
        facts in prop::collection::vec(fact(), 0..40),
        settings in settings(),
        count in 1u64..20,
        spread in 1usize..40,
    ) {
        let mut world = world(&facts);
        let bucket = |n: usize| n * spread % count as usize;
        let projection = world.with_trends(&settings, &seconds(count), bucket);
        prop_assert_eq!(projection.has_trends(), true);
        for metric in [Metric::Wall, Metric::Cpu] {
            let groups = projection.groups.iter().map(|group| group.total);
            let nodes = (0..projection.node_count()).map(|node| projection.total(node));
            let totals: Vec<u64> = groups.chain(nodes).map(|total| total.value(metric)).collect();
            let groups = (0..projection.groups.len() as u32).map(|group| RowOf::Groups(vec![group]));
            let nodes = (0..projection.node_count()).map(|node| RowOf::Nodes(vec![node]));
            let rows: Vec<RowOf> = groups.chain(nodes).collect();
            let sum = |row: &RowTrend| row.slices.iter().sum::<u64>();
            let sums: Vec<u64> = projection.trends(&rows, metric).iter().map(sum).collect();
            prop_assert_eq!(&sums, &totals);
            // Also where only some of them are on the screen.
            let some: Vec<RowOf> = rows.iter().skip(1).step_by(3).cloned().collect();
            let expected: Vec<u64> = totals.iter().skip(1).step_by(3).copied().collect();
            let sums: Vec<u64> = projection.trends(&some, metric).iter().map(sum).collect();
            prop_assert_eq!(sums, expected);
            let methods: Vec<RowOf> =
                (0..projection.methods().len() as u32).rev().map(RowOf::Method).collect();
            let expected: Vec<u64> =
                projection.methods().iter().rev().map(|method| method.total.value(metric)).collect();
            let sums: Vec<u64> = projection.trends(&methods, metric).iter().map(sum).collect();
            prop_assert_eq!(sums, expected);
        }
        let plain = world.project(&settings);
        prop_assert_eq!(format!("{:?}", plain.groups), format!("{:?}", projection.groups));
        prop_assert_eq!(plain.total, projection.total);
    }
}

/// Returns whether values are in descending order.
fn descends(values: &[f64]) -> bool {
    values.windows(2).all(|pair| pair[0] >= pair[1])
}

/// Returns the change of each row, among as many as are compared where rows are ordered by it; 0
/// where it may be due to sampling.
fn changes(projection: &Projection, rows: &[RowOf], metric: Metric) -> Vec<f64> {
    let change = |row: &RowOf| {
        let compared = projection.compared_with(row);
        projection.trends_among(std::slice::from_ref(row), metric, compared)[0].change
    };
    rows.iter().map(|row| change(row).unwrap_or(0.0)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// What is ordered by change is ordered by what is drawn, in each list of rows.
    #[test]
    fn order_by_change_is_that_of_the_drawn_changes(
        facts in prop::collection::vec(fact(), 0..40),
        settings in settings(),
        count in 1u64..20,
        spread in 1usize..40,
    ) {
        let mut world = world(&facts);
        let bucket = |n: usize| n * spread % count as usize;
        let projection = world.with_trends(&settings, &seconds(count), bucket);
        let by_change = Settings { sort: SortColumn::Change, reverse: false, ..settings.clone() };
        let ordered = projection.ordered(&by_change);
        let metric = by_change.metric;
        let groups: Vec<RowOf> =
            ordered.groups().into_iter().map(|group| RowOf::Groups(vec![group])).collect();
        prop_assert!(descends(&changes(&projection, &groups, metric)));
        let nodes = |nodes: Vec<u32>| -> Vec<RowOf> {
            nodes.into_iter().map(|node| RowOf::Nodes(vec![node])).collect()
        };
        for group in &projection.groups {
            prop_assert!(descends(&changes(&projection, &nodes(ordered.roots(group)), metric)));
        }
        for node in 0..projection.node_count() {
            prop_assert!(descends(&changes(&projection, &nodes(ordered.children(node)), metric)));
        }
        if by_change.level != Level::Mine {
            let methods: Vec<RowOf> = ordered.methods().into_iter().map(RowOf::Method).collect();
            prop_assert!(descends(&changes(&projection, &methods, metric)));
        }
    }

    /// Under each column and metric the order of rows is total, and reversed it is the same but for
    /// equal rows.
    #[test]
    fn every_order_has_every_row_once(
        facts in prop::collection::vec(fact(), 0..40),
        settings in settings(),
        count in 1u64..20,
    ) {
        let mut world = world(&facts);
        let projection = world.with_trends(&settings, &seconds(count), |n| n % count as usize);
        for (sort, metric) in SortColumn::ALL.into_iter().flat_map(|sort| {
            Metric::ALL.into_iter().map(move |metric| (sort, metric))
        }) {
            for reverse in [false, true] {
                let settings = Settings { sort, metric, reverse, ..settings.clone() };
                let ordered = projection.ordered(&settings);
                let all = |mut rows: Vec<u32>| { rows.sort_unstable(); rows };
                prop_assert_eq!(
                    all(ordered.groups()),
                    (0..projection.groups.len() as u32).collect::<Vec<_>>()
                );
                prop_assert_eq!(
                    all(ordered.methods()),
                    (0..projection.methods().len() as u32).collect::<Vec<_>>()
                );
                let roots = projection.groups.iter().map(|group| ordered.roots(group));
                let children = (0..projection.node_count()).map(|node| ordered.children(node));
                for sorted in roots.chain(children) {
                    // The order does not depend on where the rows were before.
                    let again = ordered.sorted(sorted.iter().rev().copied());
                    prop_assert_eq!(&again, &sorted);
                    for (at, node) in sorted.iter().enumerate() {
                        let after = &sorted[at + 1..];
                        prop_assert!(after.iter().all(|b| ordered.by_node(*node, *b).is_lt()));
                    }
                }
            }
        }
    }
}
