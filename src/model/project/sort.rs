//! The order of rows: by the column chosen, heaviest first; equals by name, so that they do not change places.

use std::cmp::Ordering;

use super::{Group, Method, Node, Totals};
use crate::model::settings::{Settings, SortColumn};
use crate::model::tables::Location;

/// Every node's children.
pub(super) fn children(settings: &Settings, nodes: &mut [Node]) {
    for node in 0..nodes.len() {
        if nodes[node].children.len() > 1 {
            let mut children = std::mem::take(&mut nodes[node].children);
            self::nodes(settings, nodes, &mut children);
            nodes[node].children = children;
        }
    }
}

pub(super) fn nodes(settings: &Settings, nodes: &[Node], rows: &mut [u32]) {
    rows.sort_unstable_by(|a, b| {
        let (a, b) = (&nodes[*a as usize], &nodes[*b as usize]);
        order(settings, (&a.total, &a.own), (&b.total, &b.own), || by_location(&a.location, &b.location))
    });
}

pub(super) fn methods(settings: &Settings, methods: &mut [Method]) {
    methods.sort_unstable_by(|a, b| {
        order(settings, (&a.total, &a.own), (&b.total, &b.own), || by_location(&a.location, &b.location))
    });
}

pub(super) fn groups(settings: &Settings, groups: &mut [Group]) {
    // Two threads may be shown under one name; their ids tell them apart.
    let first = |group: &Group| group.threads.first().map(|t| t.thread);
    groups.sort_unstable_by(|a, b| {
        order(settings, (&a.total, &a.own), (&b.total, &b.own), || {
            a.name.cmp(&b.name).then_with(|| first(a).cmp(&first(b)))
        })
    });
}

/// A row is (total, self). Reversing turns the column round, never the order of equals.
fn order(
    settings: &Settings,
    (a, a_own): (&Totals, &Totals),
    (b, b_own): (&Totals, &Totals),
    by_name: impl Fn() -> Ordering,
) -> Ordering {
    let metric = settings.metric;
    let by_total = || b.value(metric).cmp(&a.value(metric));
    let by_column = match settings.sort {
        SortColumn::Total => by_total(),
        // Groups have no self time to speak of: they fall back to their totals.
        SortColumn::SelfTime => b_own.value(metric).cmp(&a_own.value(metric)).then_with(by_total),
        SortColumn::Threads => b.wall_ns.cmp(&a.wall_ns),
        SortColumn::Cpu => b.cpu_ns.cmp(&a.cpu_ns),
        SortColumn::State => state_rank(a).cmp(&state_rank(b)).then_with(by_total),
        SortColumn::Name => by_name(),
    };
    let by_column = if settings.reverse { by_column.reverse() } else { by_column };
    by_column.then_with(by_name)
}

/// In display order; a row without wall time last.
fn state_rank(totals: &Totals) -> u8 {
    totals.main_state().map_or(u8::MAX, |(state, _)| state as u8)
}

/// By what is always the same for one row first: its heaviest line may change from one look to the next.
fn by_location(a: &Location, b: &Location) -> Ordering {
    let name = |l: &Location| (l.kind, l.tier);
    let place = |l: &Location| (l.line, l.file.clone());
    (&a.function, &a.module)
        .cmp(&(&b.function, &b.module))
        .then_with(|| name(a).cmp(&name(b)))
        .then_with(|| place(a).cmp(&place(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::settings::Metric;
    use crate::model::state::State;
    use crate::model::tables::FrameKind;

    fn method(name: &str, total: u64, own: u64) -> Method {
        let totals = |wall_ns| Totals { wall_ns, ..Totals::default() };
        let location = Location {
            function: name.into(),
            module: "app".into(),
            file: None,
            line: None,
            kind: FrameKind::Native,
            tier: None,
        };
        Method { location: location.into(), total: totals(total), own: totals(own), threads: 1 }
    }

    fn sorted(sort: SortColumn, reverse: bool, mut rows: Vec<Method>) -> String {
        let settings = Settings { sort, reverse, ..Settings::default() };
        methods(&settings, &mut rows);
        rows.iter().map(|row| &*row.location.function).collect()
    }

    #[test]
    fn every_column_sorts_and_reverses() {
        let mut rows = vec![method("a", 30, 0), method("b", 10, 10), method("c", 20, 5)];
        rows[0].total.cpu_ns = 1;
        rows[1].total.cpu_ns = 3;
        rows[2].total.cpu_ns = 2;
        for (row, state) in rows.iter_mut().zip([State::Wait, State::Run, State::Io]) {
            row.total.states_ns[state as usize] = row.total.wall_ns;
        }
        for (column, forward, backward) in [
            (SortColumn::Total, "acb", "bca"),
            (SortColumn::SelfTime, "bca", "acb"),
            (SortColumn::Threads, "acb", "bca"),
            (SortColumn::Cpu, "bca", "acb"),
            (SortColumn::State, "bac", "cab"),
            (SortColumn::Name, "abc", "cba"),
        ] {
            assert_eq!(sorted(column, false, rows.clone()), forward, "{column:?}");
            assert_eq!(sorted(column, true, rows.clone()), backward, "{column:?} reversed");
        }
    }

    #[test]
    fn equals_keep_their_order_by_name_even_reversed() {
        let rows = vec![method("c", 10, 0), method("a", 10, 0), method("b", 10, 0), method("d", 20, 0)];
        assert_eq!(sorted(SortColumn::Total, false, rows.clone()), "dabc");
        assert_eq!(sorted(SortColumn::Total, true, rows), "abcd");
    }

    #[test]
    fn the_metric_decides_what_total_means() {
        let mut rows = vec![method("a", 30, 0), method("b", 10, 0)];
        rows[0].total.cpu_ns = 25;
        let settings = Settings { metric: Metric::Off, ..Settings::default() };
        methods(&settings, &mut rows);
        assert_eq!(&*rows[0].location.function, "b");
    }
}
