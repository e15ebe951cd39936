//! Estimates how exact a row's share is, and when small rows will be exact.

use super::Totals;
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::frame::{Ns, SECOND};
use crate::model::vocabulary::state::State;

/// Observations needed to trust a share.
pub const HITS_NEEDED: u64 = 10;

/// The two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// The precision of a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Confidence {
    /// Bounds of the row's share, 0..=1: Wilson's 95 % interval of its on-CPU part, plus its waits,
    /// each measured to one interval.
    pub low: f64,
    pub high: f64,
    /// hits < 10 and time per hit < 10 intervals: drawn dim with `~`.
    pub unresolved: bool,
}

/// Returns the precision of `row` as a part of `shown` (the total of everything shown). Wilson's n
/// is the hits of `shown`; for the metric cpu only its on-CPU hits.
pub fn confidence(row: &Totals, shown: &Totals, metric: Metric, interval: Ns) -> Confidence {
    let (value, hits) = (row.value(metric), row.value_hits(metric));
    let per_hit = value / hits.max(1);
    let unresolved = hits < HITS_NEEDED && per_hit < interval.saturating_mul(10);

    let whole = shown.value(metric);
    if whole == 0 {
        return Confidence { low: 0.0, high: 1.0, unresolved };
    }
    let whole = whole as f64;
    let sampled = match metric {
        Metric::Wall => row.states_ns[State::Run as usize] + row.states_ns[State::Rdy as usize],
        Metric::Cpu => row.cpu_ns,
        // Time off a core while runnable is measured too (schedstat's run delay).
        Metric::Off => 0,
    };
    let (mut low, mut high) = match sampled {
        0 => (0.0, 0.0),
        _ => wilson((sampled as f64 / whole).min(1.0), shown.value_hits(metric)),
    };
    let measured = value.saturating_sub(sampled) as f64;
    let waits = row.hits.saturating_sub(row.cpu_hits) as f64;
    // Each wait is known to one interval. Of many some are taken for longer and some for shorter,
    // so their errors grow with the root of their number.
    let error = if measured > 0.0 { waits.min(2.0 * waits.sqrt()) * interval as f64 } else { 0.0 };
    low += (measured - error).max(0.0) / whole;
    high += (measured + error) / whole;
    Confidence { low: low.clamp(0.0, 1.0), high: high.clamp(0.0, 1.0), unresolved }
}

/// Returns Wilson's 95 % score interval of the proportion `p` seen in `n` independent observations.
fn wilson(p: f64, n: u64) -> (f64, f64) {
    if n == 0 {
        return (0.0, 1.0);
    }
    let n = n as f64;
    let z2 = Z * Z;
    let middle = p + z2 / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    (((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0))
}

/// Returns the seconds until a row of 1 % has ten hits, at the rate so far. 0 if it has them
/// already, `None` without a rate.
pub fn seconds_for_one_percent(shown: &Totals, metric: Metric, elapsed: Ns) -> Option<f64> {
    let hits = shown.value_hits(metric);
    if hits == 0 || elapsed == 0 {
        return None;
    }
    let missing = (100 * HITS_NEEDED).saturating_sub(hits);
    Some(missing as f64 * (elapsed as f64 / SECOND as f64) / hits as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn on_cpu(ns: u64, hits: u64) -> Totals {
        let mut totals =
            Totals { wall_ns: ns, cpu_ns: ns, hits, cpu_hits: hits, ..Totals::default() };
        totals.states_ns[State::Run as usize] = ns;
        totals
    }

    fn waited(ns: u64, hits: u64) -> Totals {
        let mut totals = Totals { wall_ns: ns, hits, ..Totals::default() };
        totals.states_ns[State::Wait as usize] = ns;
        totals
    }

    #[test]
    fn wilson_gives_the_textbook_figures() {
        // 10 of 100: 0.0552 .. 0.1744; 0 of 10: 0 .. 0.2775; 50 of 100: 0.4038 .. 0.5962.
        for (p, n, low, high) in
            [(0.1, 100, 0.0552, 0.1744), (0.0, 10, 0.0, 0.2775), (0.5, 100, 0.4038, 0.5962)]
        {
            let (l, h) = wilson(p, n);
            assert!((l - low).abs() < 5e-5 && (h - high).abs() < 5e-5, "{p} of {n}: {l}..{h}");
        }
    }

    #[test]
    fn cpu_counts_only_hits_on_a_core() {
        let mut shown = on_cpu(1000 * MS, 100);
        shown.add(&waited(9000 * MS, 900));
        let row = on_cpu(100 * MS, 10);
        let by_cpu = confidence(&row, &shown, Metric::Cpu, 10 * MS);
        assert!(
            (by_cpu.low - 0.0552).abs() < 5e-5 && (by_cpu.high - 0.1744).abs() < 5e-5,
            "{by_cpu:?}"
        );
        // Under wall it is 1 % of 1000 observations: 0.0054 .. 0.0183.
        let by_wall = confidence(&row, &shown, Metric::Wall, 10 * MS);
        assert!(
            (by_wall.low - 0.00544).abs() < 5e-5 && (by_wall.high - 0.01831).abs() < 5e-5,
            "{by_wall:?}"
        );
    }

    #[test]
    fn a_wait_is_known_to_one_interval() {
        let mut shown = on_cpu(1000 * MS, 100);
        shown.add(&waited(1000 * MS, 1));
        let c = confidence(&waited(1000 * MS, 1), &shown, Metric::Wall, 10 * MS);
        assert!((c.low - 0.495).abs() < 1e-9 && (c.high - 0.505).abs() < 1e-9, "{c:?}");
        assert!(!c.unresolved);
    }

    /// Ten threads wait a thousand times each for 4 ms of every 6, and are seen every 50 ms.
    #[test]
    fn errors_of_many_waits_cancel_each_other() {
        let (row, mut shown) = (waited(40_000 * MS, 1_200), waited(20_000 * MS, 600));
        shown.add(&row);
        let c = confidence(&row, &shown, Metric::Wall, 50 * MS);
        let error = 2.0 * 1_200f64.sqrt() * 50.0 / 60_000.0;
        assert!((c.low - (2.0 / 3.0 - error)).abs() < 1e-9 && error < 0.06, "{c:?}");
        assert!((c.high - (2.0 / 3.0 + error)).abs() < 1e-9, "{c:?}");
    }

    #[test]
    fn wall_time_ready_for_a_core_is_sampled_and_not_measured() {
        let mut shown = on_cpu(900 * MS, 90);
        let mut row = on_cpu(40 * MS, 10);
        // In the same stack it waited for a core for 60 ms.
        row.wall_ns += 60 * MS;
        row.states_ns[State::Rdy as usize] = 60 * MS;
        row.settle_off();
        shown.add(&row);
        let c = confidence(&row, &shown, Metric::Wall, 10 * MS);
        // 100 ms of 1,000 by 100 hits: as on a core.
        assert!((c.low - 0.0552).abs() < 5e-5 && (c.high - 0.1744).abs() < 5e-5, "{c:?}");
        // With an additional wait of 100 ms: that is known to one interval, and the rest is as
        // exact as before.
        row.add(&waited(100 * MS, 1));
        shown.add(&waited(100 * MS, 0));
        let c = confidence(&row, &shown, Metric::Wall, 10 * MS);
        let (low, high) = wilson(100.0 / 1100.0, 100);
        let (low, high) = (low + 90.0 / 1100.0, high + 110.0 / 1100.0);
        assert!((c.low - low).abs() < 1e-9 && (c.high - high).abs() < 1e-9, "{c:?}");
    }

    #[test]
    fn time_off_a_core_is_measured_also_where_it_was_spent_ready() {
        let mut row = on_cpu(40 * MS, 10);
        row.wall_ns += 60 * MS;
        row.states_ns[State::Rdy as usize] = 60 * MS;
        row.settle_off();
        let mut shown = waited(540 * MS, 5);
        shown.settle_off();
        shown.add(&row);
        // 60 of 600 ms, none of it estimated from hits.
        let c = confidence(&row, &shown, Metric::Off, 10 * MS);
        assert!((c.low - 0.1).abs() < 1e-9 && (c.high - 0.1).abs() < 1e-9, "{c:?}");
        // Two additional waits are known to one interval each.
        row.add(&waited(0, 2));
        let c = confidence(&row, &shown, Metric::Off, 10 * MS);
        let error = 20.0 / 600.0;
        assert!(
            (c.low - (0.1 - error)).abs() < 1e-9 && (c.high - (0.1 + error)).abs() < 1e-9,
            "{c:?}"
        );
    }

    #[test]
    fn nothing_is_known_of_a_part_of_nothing() {
        let nothing = Totals::default();
        for metric in Metric::ALL {
            let c = confidence(&nothing, &nothing, metric, 10 * MS);
            assert_eq!(c, Confidence { low: 0.0, high: 1.0, unresolved: true });
        }
    }

    #[test]
    fn few_light_hits_are_unresolved() {
        let shown = on_cpu(10_000 * MS, 1000);
        let of = |row: &Totals, metric| confidence(row, &shown, metric, 10 * MS).unresolved;
        assert!(of(&on_cpu(90 * MS, 9), Metric::Wall));
        assert!(!of(&on_cpu(100 * MS, 10), Metric::Wall));
        // One wait of 100 ms is ten intervals: measured exactly despite few hits.
        assert!(!of(&waited(100 * MS, 1), Metric::Wall));
        assert!(of(&waited(99 * MS, 1), Metric::Wall));
        assert!(of(&waited(5 * MS, 0), Metric::Wall));
        assert!(!of(&on_cpu(100 * MS, 10), Metric::Cpu));
    }

    #[test]
    fn a_one_percent_row_needs_a_thousand_hits() {
        assert_eq!(seconds_for_one_percent(&on_cpu(MS, 500), Metric::Cpu, 5 * SECOND), Some(5.0));
        assert_eq!(seconds_for_one_percent(&on_cpu(MS, 1000), Metric::Wall, 5 * SECOND), Some(0.0));
        assert_eq!(seconds_for_one_percent(&waited(MS, 3), Metric::Cpu, 5 * SECOND), None);
        assert_eq!(seconds_for_one_percent(&waited(MS, 0), Metric::Wall, 5 * SECOND), None);
        // Hits but no time yet: without a rate the result is `None`, not 0.
        assert_eq!(seconds_for_one_percent(&on_cpu(MS, 500), Metric::Cpu, 0), None);
    }
}
