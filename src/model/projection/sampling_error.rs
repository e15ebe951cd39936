//! Estimates the sampling error of a difference between two profiles, or two parts of a range.
//!
//! Time on a core is a share of an exactly known total. The share is estimated from the samples
//! that hit: Wilson's score interval. A wait is timed to one interval, and shorter waits are
//! observed at random: the score interval of a count, each counting one interval. The two errors
//! are independent, and so are the two profiles, so half-widths add as squares. (For differences of
//! shares that is Newcombe's method 10, Statistics in Medicine 17:873, 1998.)

use super::Totals;
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::state::State;

/// The values of one property in both profiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pair<T> {
    pub before: T,
    pub after: T,
}

impl<T> Pair<T> {
    /// Applies `f` to both.
    pub fn map<'a, U>(&'a self, f: impl Fn(&'a T) -> U) -> Pair<U> {
        Pair { before: f(&self.before), after: f(&self.after) }
    }
}

/// A figure in both profiles.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Change {
    pub before: f64,
    pub after: f64,
    /// after - before, and its bounds by sampling error.
    pub change: f64,
    pub low: f64,
    pub high: f64,
}

impl Change {
    /// Returns whether the change exceeds the sampling error.
    pub fn is_resolved(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// One row's time in one profile, ns, and the data for its error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// All time under the metric.
    pub value_ns: u64,
    /// The part attributed by on-CPU samples; the rest is waits.
    pub sampled_ns: u64,
    /// Number of waits.
    pub waits: u64,
}

impl Sums {
    /// Returns the sums of a row under the metric.
    pub(in crate::model) fn of(totals: &Totals, metric: Metric) -> Sums {
        let value_ns = totals.value(metric);
        let [run, rdy] = [State::Run, State::Rdy].map(|state| totals.states_ns[state as usize]);
        let sampled_ns = match metric {
            Metric::Wall => run + rdy,
            Metric::Cpu => value_ns,
            Metric::Off => rdy,
        };
        let waits = match metric {
            Metric::Cpu => 0,
            Metric::Wall | Metric::Off => totals.hits.saturating_sub(totals.cpu_hits),
        };
        Sums { value_ns, sampled_ns: sampled_ns.min(value_ns), waits }
    }

    pub fn add(&mut self, more: &Sums) {
        self.value_ns += more.value_ns;
        self.sampled_ns += more.sampled_ns;
        self.waits += more.waits;
    }

    fn waited_ns(&self) -> u64 {
        self.value_ns.saturating_sub(self.sampled_ns)
    }
}

/// The whole that all rows of one profile are shares of.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::model) struct Sampled {
    /// Time attributed by samples, including hidden time, ns.
    pub ns: u64,
    /// Number of independent samples.
    pub samples: f64,
    /// Resolution of wait times, ns.
    pub resolution: Ns,
}

impl Sampled {
    /// Returns the whole of these parts, which include hidden time: the time per sample is that of
    /// all samples.
    pub(in crate::model) fn of<'a>(
        parts: impl Iterator<Item = &'a Totals> + Clone,
        metric: Metric,
        resolution: Ns,
    ) -> Sampled {
        let state = |state: State| -> u64 {
            parts.clone().map(|totals| totals.states_ns[state as usize]).sum()
        };
        let on_core = state(State::Run);
        let runnable = on_core + state(State::Rdy);
        let hits: u64 = parts.clone().map(|totals| totals.cpu_hits).sum();
        // Time waiting for a core is booked to the next sample's stack, and varies widely between
        // samples.
        let share_on_core = if runnable > 0 { on_core as f64 / runnable as f64 } else { 1.0 };
        let samples = match metric {
            Metric::Cpu => hits as f64,
            Metric::Wall | Metric::Off => hits as f64 * share_on_core,
        };
        let ns = parts.map(|totals| Sums::of(totals, metric).sampled_ns).sum();
        Sampled { ns, samples, resolution }
    }
}

/// Returns the change. `before` and `after`: sampling error of each side below and above, ns.
pub(in crate::model) fn between(
    ns: &Pair<u64>,
    scale: &Pair<f64>,
    before: (f64, f64),
    after: (f64, f64),
) -> Change {
    let (then, now) = (ns.before as f64 * scale.before, ns.after as f64 * scale.after);
    let change = now - then;
    let low = change - f64::hypot(before.1 * scale.before, after.0 * scale.after);
    let high = change + f64::hypot(before.0 * scale.before, after.1 * scale.after);
    Change { before: then, after: now, change, low, high }
}

/// Returns the error of a row's time below and above its value, ns. `z`: confidence, as a quantile
/// of the normal distribution. `other`: the same row in the other profile; a row seen in neither
/// has no error.
pub(in crate::model) fn reach(row: &Sums, other: &Sums, of: &Sampled, z: f64) -> (f64, f64) {
    let (mut less, mut more) = (0.0, 0.0);
    if row.sampled_ns > 0 || other.sampled_ns > 0 {
        let whole = of.ns.max(row.sampled_ns) as f64;
        let share = if whole > 0.0 { row.sampled_ns as f64 / whole } else { 0.0 };
        let (low, high) = share_within(share, of.samples, z);
        less = (share - low) * whole;
        more = (high - share) * whole;
    }
    if row.waited_ns() > 0 || other.waited_ns() > 0 {
        let (low, high) = count_within(row.waits as f64, z);
        let resolution = of.resolution as f64;
        less = f64::hypot(less, (low * resolution).min(row.waited_ns() as f64));
        more = f64::hypot(more, high * resolution);
    }
    (less, more)
}

/// Returns Wilson's score interval of a share seen in `n` observations.
fn share_within(share: f64, n: f64, z: f64) -> (f64, f64) {
    if n <= 0.0 {
        return (0.0, 1.0);
    }
    let z2 = z * z;
    let middle = share + z2 / (2.0 * n);
    let half = z * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    // Despite rounding the interval must contain the share.
    (((middle - half) / scale).clamp(0.0, share), ((middle + half) / scale).clamp(share, 1.0))
}

/// Returns the error of an observed count below and above (score interval of a Poisson mean).
fn count_within(count: f64, z: f64) -> (f64, f64) {
    let half = z * (count + z * z / 4.0).sqrt();
    (half - z * z / 2.0, half + z * z / 2.0)
}

/// Returns the quantile for which the bounds of `rows` differences hold together with 95 %
/// (Bonferroni).
pub(in crate::model) fn quantile(rows: usize) -> f64 {
    upper_quantile(0.025 / rows.max(1) as f64)
}

/// Returns the quantile of the normal distribution with upper `tail` (up to 0.5); error below
/// 0.00045 (Abramowitz and Stegun, 26.2.23).
fn upper_quantile(tail: f64) -> f64 {
    let t = (-2.0 * tail.ln()).sqrt();
    t - (2.515517 + t * (0.802853 + t * 0.010328))
        / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (tail, z) in
            [(0.5, 0.0), (0.025, 1.959964), (0.0025, 2.807034), (0.025 / 1000.0, 4.055627)]
        {
            assert!((upper_quantile(tail) - z).abs() < 4.5e-4, "{tail}: {}", upper_quantile(tail));
        }
        assert!(quantile(0) == quantile(1) && quantile(1) < quantile(100));
    }

    #[test]
    fn shares_and_counts_have_the_textbook_bounds() {
        let (low, high) = share_within(0.1, 100.0, 1.959964);
        assert!((low - 0.0552).abs() < 5e-5 && (high - 0.1744).abs() < 5e-5, "{low}..{high}");
        assert_eq!(share_within(0.3, 0.0, 2.0), (0.0, 1.0));
        // Count of 10: 5.43 .. 18.4; of 0: 0 .. 3.84.
        let (less, more) = count_within(10.0, 1.959964);
        assert!(
            (10.0 - less - 5.432).abs() < 5e-3 && (10.0 + more - 18.41).abs() < 5e-3,
            "-{less} +{more}"
        );
        let (less, more) = count_within(0.0, 1.959964);
        assert!(less.abs() < 1e-9 && (more - 3.8415).abs() < 1e-3, "-{less} +{more}");
    }

    #[test]
    fn what_neither_profile_has_adds_no_error() {
        let of = Sampled { ns: 1000 * MS, samples: 100.0, resolution: 10 * MS };
        let ran = Sums { value_ns: 100 * MS, sampled_ns: 100 * MS, waits: 0 };
        let waited = Sums { value_ns: 400 * MS, sampled_ns: 0, waits: 4 };
        let nothing = Sums::default();
        assert_eq!(reach(&nothing, &nothing, &of, 2.0), (0.0, 0.0));
        let (less, more) = reach(&ran, &ran, &of, 1.959964);
        assert!(
            (less / 1e6 - 44.8).abs() < 0.1 && (more / 1e6 - 74.4).abs() < 0.1,
            "-{less} +{more}"
        );
        // One wait of a second is known to a few intervals, whatever its number of observations.
        let (less, more) = reach(&waited, &nothing, &of, 1.959964);
        assert!(less < 30e6 && more < 70e6, "-{less} +{more}");
        let (less, more) = reach(&nothing, &waited, &of, 1.959964);
        assert!(less == 0.0 && (more / 1e6 - 38.4).abs() < 0.1, "-{less} +{more}");
        let (less, more) = reach(&nothing, &ran, &of, 1.959964);
        assert!(less == 0.0 && (more / 1e6 - 37.0).abs() < 0.1, "-{less} +{more}");
        // A wait's lower bound is not below zero.
        let short = Sums { value_ns: 3 * MS, sampled_ns: 0, waits: 1 };
        assert_eq!(reach(&short, &nothing, &of, 3.0).0, (3 * MS) as f64);
    }
}
