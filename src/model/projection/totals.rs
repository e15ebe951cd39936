//! Sums over stacks, and the figures derived from them.

use crate::model::projection::settings::Metric;
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::state::State;

/// Sums over a set of stacks. Always has both `wall_ns` and `cpu_ns`; the metric only selects what
/// is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    pub wall_ns: u64,
    pub cpu_ns: u64,
    /// Off-CPU time: wall minus cpu of a row's own time, at least 0, plus that of the rows below
    /// it.
    pub off_ns: u64,
    pub hits: u64,
    pub cpu_hits: u64,
    pub longest_ns: u64,
    pub longest_from: Ns,
    /// Wall time by state, indexed by [`State`]; sums to `wall_ns`.
    pub states_ns: [u64; State::COUNT],
}

impl Totals {
    /// Adds `other`'s stacks. Commutative and associative: of equally long waits the earlier one is
    /// kept.
    pub fn add(&mut self, other: &Totals) {
        self.wall_ns += other.wall_ns;
        self.cpu_ns += other.cpu_ns;
        self.off_ns += other.off_ns;
        self.hits += other.hits;
        self.cpu_hits += other.cpu_hits;
        self.add_longest(other.longest_ns, other.longest_from);
        for (mine, theirs) in self.states_ns.iter_mut().zip(&other.states_ns) {
            *mine += theirs;
        }
    }

    /// Subtracts stacks that were added. If the longest wait is one of theirs, the longest of the
    /// others is unknown and becomes 0.
    pub(super) fn subtract(&mut self, added: &Totals) {
        self.wall_ns -= added.wall_ns;
        self.cpu_ns -= added.cpu_ns;
        self.off_ns -= added.off_ns;
        self.hits -= added.hits;
        self.cpu_hits -= added.cpu_hits;
        if (self.longest_ns, self.longest_from) == (added.longest_ns, added.longest_from) {
            (self.longest_ns, self.longest_from) = (0, 0);
        }
        for (mine, theirs) in self.states_ns.iter_mut().zip(&added.states_ns) {
            *mine -= theirs;
        }
    }

    pub(super) fn add_longest(&mut self, ns: u64, from: Ns) {
        let longer = ns > self.longest_ns;
        let earlier = ns == self.longest_ns && ns > 0 && from < self.longest_from;
        if longer || earlier {
            (self.longest_ns, self.longest_from) = (ns, from);
        }
    }

    /// Sets the off-CPU time of a row's own time, or of time that is not divided into rows.
    pub fn settle_off(&mut self) {
        self.off_ns = self.wall_ns.saturating_sub(self.cpu_ns);
    }

    /// Returns whether no time was booked.
    pub fn is_empty(&self) -> bool {
        self.wall_ns == 0 && self.cpu_ns == 0
    }

    /// Returns the metric's time, ns.
    pub fn value(&self, metric: Metric) -> u64 {
        match metric {
            Metric::Wall => self.wall_ns,
            Metric::Cpu => self.cpu_ns,
            Metric::Off => self.off_ns,
        }
    }

    /// Returns the number of observations behind [`Totals::value`]: for the metric cpu those on a
    /// core, else all.
    pub fn value_hits(&self, metric: Metric) -> u64 {
        match metric {
            Metric::Cpu => self.cpu_hits,
            Metric::Wall | Metric::Off => self.hits,
        }
    }

    /// Returns this row's part of `shown` under the metric, 0..=1; 0 if nothing is shown.
    pub fn share(&self, metric: Metric, shown: &Totals) -> f64 {
        ratio(self.value(metric), shown.value(metric))
    }

    /// Returns the average number of threads in it (column THR); under the metric cpu those on a
    /// core, under off the others.
    pub fn threads(&self, metric: Metric, elapsed: Ns) -> f64 {
        ratio(self.value(metric), elapsed)
    }

    /// Returns the average number of cores used: cpu / elapsed (column CPU).
    pub fn cores(&self, elapsed: Ns) -> f64 {
        ratio(self.cpu_ns, elapsed)
    }

    /// Returns the state with the largest part of the metric's time (tie: the first in display
    /// order), and that part, 0..=1.
    pub fn main_state(&self, metric: Metric) -> Option<(State, f64)> {
        let of = |state: State| match (metric, state) {
            (Metric::Wall, _) => self.states_ns[state as usize],
            (Metric::Cpu, State::Run) => self.cpu_ns,
            (Metric::Cpu, _) => 0,
            (Metric::Off, State::Run) => self.states_ns[state as usize].saturating_sub(self.cpu_ns),
            (Metric::Off, _) => self.states_ns[state as usize],
        };
        let (state, ns) = State::ALL
            .into_iter()
            .map(|state| (state, of(state)))
            .reduce(|best, next| if next.1 > best.1 { next } else { best })?;
        let all = State::ALL.into_iter().map(of).sum();
        (ns > 0).then(|| (state, ratio(ns, all)))
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_is_wall_minus_cpu_and_never_negative() {
        let mut row = Totals { wall_ns: 10, cpu_ns: 4, ..Totals::default() };
        row.settle_off();
        assert_eq!([Metric::Wall, Metric::Cpu, Metric::Off].map(|m| row.value(m)), [10, 4, 6]);
        let mut late = Totals { wall_ns: 4, cpu_ns: 10, ..Totals::default() };
        late.settle_off();
        assert_eq!(late.value(Metric::Off), 0);
        row.add(&late);
        assert_eq!(row.value(Metric::Off), 6, "it adds up");
    }

    #[test]
    fn thr_and_cores_are_per_elapsed_time() {
        let row = Totals { wall_ns: 61, cpu_ns: 20, off_ns: 42, ..Totals::default() };
        assert_eq!(Metric::ALL.map(|metric| row.threads(metric, 10)), [6.1, 2.0, 4.2]);
        assert_eq!((row.cores(10), row.cores(0)), (2.0, 0.0));
        assert_eq!(Metric::ALL.map(|metric| row.threads(metric, 0)), [0.0; 3]);
    }

    #[test]
    fn share_is_of_what_is_shown() {
        let row = Totals { wall_ns: 30, cpu_ns: 5, off_ns: 25, ..Totals::default() };
        let shown = Totals { wall_ns: 60, cpu_ns: 50, off_ns: 50, ..Totals::default() };
        assert_eq!(
            [Metric::Wall, Metric::Cpu, Metric::Off].map(|m| row.share(m, &shown)),
            [0.5, 0.1, 0.5]
        );
        assert_eq!(row.share(Metric::Wall, &Totals::default()), 0.0);
    }

    #[test]
    fn the_longest_wait_is_kept_and_of_equals_the_first() {
        let wait =
            |longest_ns, longest_from| Totals { longest_ns, longest_from, ..Totals::default() };
        let sum = |waits: &[Totals]| {
            waits.iter().fold(Totals::default(), |mut sum, wait| {
                sum.add(wait);
                sum
            })
        };
        let (a, b, c) = (wait(5, 100), wait(7, 300), wait(7, 200));
        assert_eq!(sum(&[a, b, c]), c);
        assert_eq!(sum(&[c, b, a]), c);
        assert_eq!(sum(&[wait(0, 0), wait(0, 9)]).longest_from, 0);
    }

    #[test]
    fn what_was_added_can_be_subtracted() {
        let of = |ns, longest_ns, state: State| {
            let mut totals =
                Totals { wall_ns: ns, cpu_ns: ns / 2, longest_ns, ..Totals::default() };
            totals.settle_off();
            (totals.hits, totals.cpu_hits) = (ns / 3, ns / 4);
            totals.states_ns[state as usize] = ns;
            totals
        };
        let (a, b) = (of(10, 5, State::Io), of(25, 7, State::Lock));
        let mut rest = a;
        rest.add(&b);
        let both = rest;
        rest.subtract(&a);
        assert_eq!(rest, b, "its wait was the longest");
        let mut rest = both;
        rest.subtract(&b);
        assert_eq!(rest, Totals { longest_ns: 0, ..a }, "its longest wait is unknown");
    }

    #[test]
    fn the_main_state_is_where_most_time_went() {
        let mut row = Totals::default();
        let main = |row: &Totals| row.main_state(Metric::Wall);
        assert_eq!(main(&row), None);
        row.wall_ns = 10;
        row.states_ns[State::Io as usize] = 6;
        row.states_ns[State::Run as usize] = 4;
        assert_eq!(main(&row), Some((State::Io, 0.6)));
        row.states_ns[State::Run as usize] = 6;
        assert_eq!(main(&row).map(|(s, _)| s), Some(State::Run));
    }

    #[test]
    fn the_main_state_is_of_the_metric() {
        let mut row = Totals { wall_ns: 20, cpu_ns: 2, ..Totals::default() };
        for (state, ns) in [(State::Run, 5), (State::Rdy, 12), (State::Io, 3)] {
            row.states_ns[state as usize] = ns;
        }
        let states = Metric::ALL.map(|metric| row.main_state(metric));
        assert_eq!(
            states,
            [Some((State::Rdy, 0.6)), Some((State::Run, 1.0)), Some((State::Rdy, 12.0 / 18.0))]
        );
        // Waits have no CPU time; running has only CPU time.
        let waits = Totals { cpu_ns: 0, ..row };
        assert_eq!(waits.main_state(Metric::Cpu), None);
        let mut runs = Totals { wall_ns: 5, cpu_ns: 5, ..Totals::default() };
        runs.states_ns[State::Run as usize] = 5;
        assert_eq!(runs.main_state(Metric::Off), None);
    }
}
