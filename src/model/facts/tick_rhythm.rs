//! When ticks come: the intervals achieved, and how late they are.

use std::collections::VecDeque;

use crate::model::vocabulary::event::Tick;
use crate::model::vocabulary::frame::{Ns, SECOND};

/// Maximum ticks that are kept; the newest are.
const MAX_TICKS: usize = 1_000;
/// Time over which the achieved intervals are averaged.
const ACHIEVED_OVER: Ns = 5 * SECOND;

/// A tick, and the number of sampling intervals since the one before.
struct Kept {
    at: Ns,
    intervals: f64,
    visit: Option<Ns>,
}

#[derive(Default)]
pub struct TickRhythm {
    /// Lateness of the newest ticks.
    late: VecDeque<Ns>,
    /// The newest ticks, newest last.
    ticks: VecDeque<Kept>,
}

impl TickRhythm {
    pub fn add(&mut self, tick: &Tick) {
        self.late.push_back(tick.late_ns);
        if self.late.len() > MAX_TICKS {
            self.late.pop_front();
        }
        // A tick interval is at least a sampling interval.
        let intervals = tick.tick_interval_ns as f64 / tick.interval_ns.max(1) as f64;
        let visit = tick.visit_interval_ns;
        self.ticks.push_back(Kept { at: tick.at, intervals: intervals.max(1.0), visit });
        // Two ticks define an interval, however long.
        while self.ticks.len() > MAX_TICKS
            || (self.ticks.len() > 2
                && self.ticks.front().is_some_and(|first| first.at + ACHIEVED_OVER < tick.at))
        {
            self.ticks.pop_front();
        }
    }

    /// Records a gap: the time between the ticks around it is no interval.
    pub fn gap(&mut self) {
        self.ticks.clear();
    }

    /// Returns the mean sampling interval, ns; 0 if unknown.
    pub fn interval(&self) -> Ns {
        self.mean(|tick| tick.intervals)
    }

    /// Returns the mean time after which a thread is visited again, ns; 0 if unknown. It is the
    /// one from tick to tick, or the visit interval where visits are rationed.
    pub fn visit_interval(&self) -> Ns {
        let rationed = self.ticks.iter().filter_map(|tick| tick.visit).max();
        rationed.unwrap_or(0).max(self.mean(|_| 1.0))
    }

    fn mean(&self, parts: impl Fn(&Kept) -> f64) -> Ns {
        let Some((first, last)) = self.ticks.front().zip(self.ticks.back()) else { return 0 };
        let parts: f64 = self.ticks.iter().skip(1).map(parts).sum();
        if parts > 0.0 { (last.at.saturating_sub(first.at) as f64 / parts) as Ns } else { 0 }
    }

    /// Returns the 99th percentile of lateness, ns.
    pub fn late_p99(&self) -> Ns {
        let mut late: Vec<Ns> = self.late.iter().copied().collect();
        if late.is_empty() {
            return 0;
        }
        let nth = (late.len() * 99).div_ceil(100) - 1;
        *late.select_nth_unstable(nth).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;

    #[test]
    fn samples_and_ticks_have_their_own_intervals() {
        let mut rhythm = TickRhythm::default();
        let mut add = |at: Ns, planned: Ns| {
            rhythm.add(&Tick { tick_interval_ns: planned * MS, ..Tick::new(at * MS, 7) });
            (rhythm.interval() / MS, rhythm.visit_interval() / MS)
        };
        assert_eq!(add(0, 10), (0, 0), "one tick defines no interval");
        assert_eq!(add(10, 10), (10, 10));
        assert_eq!(add(60, 50), (10, 30));
        // Twice as late as planned: every other sample is missing.
        assert_eq!(add(160, 50).0, 14);
        rhythm.gap();
        assert_eq!(rhythm.interval(), 0);
    }
}
