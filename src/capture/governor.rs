//! Limits sampletop's own CPU use. Where it costs more than permitted, an interval is stretched. It
//! is shortened again, slowly, once that is affordable. [`pace`] says which interval.
//!
//! The governor is pure: times and CPU figures come from outside. Intervals are steps of a ladder
//! (10, 15, 20, 30, 50, ... ms for 10 ms asked), so that the figure on the screen rarely changes.
//! Three rules keep it stable:
//!
//! * It is stretched at once when the CPU time permitted in 5 s has been used up since the last
//!   change, or in the last 5 s if that is later. The cost decides by how many steps.
//! * It is shortened only after a time of patience, and only if the expected cost stays well below
//!   the bound. The estimate takes too much of it to depend on the interval. So with less room one
//!   step is tried after a longer time.
//! * A shorter interval that soon proves too expensive is taken back. The patience doubles, and
//!   from then on intervals shorten one step at a time. An interval that lasts halves the patience.

pub mod pace;

use std::collections::VecDeque;

use crate::model::vocabulary::frame::{Ns, SECOND};

/// Time over which use is averaged, ns.
const SPAN: Ns = 5 * SECOND;
/// Time after the start that is not governed, ns: mappings are read and unwind tables loaded, once.
const ATTACHING: Ns = SECOND;
/// Share of the bound that a stretched interval aims at.
const AIM: f64 = 0.9;
/// Share of the bound below which the expected cost of a shorter interval must lie.
const ROOM: f64 = 0.75;
/// Maximum factor of one stretch, so that a single burst is soon undone.
const MAX_STRETCH: f64 = 4.0;
/// Patience at first, and at most, ns.
const PATIENCE: (Ns, Ns) = (10 * SECOND, 640 * SECOND);
/// Time after which a shorter interval counts as lasting, ns.
const LASTED: Ns = 600 * SECOND;
/// Multiple of the patience after which a step is tried although its cost is uncertain.
const TRY_AFTER: u64 = 6;
/// Minimum time between recorded readings of use, ns.
const NOTE_EVERY: Ns = SECOND / 4;

/// The changes that a governor may make, and what they change.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct May {
    pub stretch: bool,
    pub shorten: bool,
    /// Part of the cost that falls with a longer interval, 0 to 1: an estimate, at most.
    pub part: f64,
}

/// Decides on the interval.
pub struct Governor {
    /// CPU time that may be used, ns per ns.
    bound: f64,
    asked: Ns,
    /// Maximum interval, ns, unless `asked` is longer.
    longest: Ns,
    /// Step of the ladder above `asked`.
    step: u32,
    /// Readings (time, total CPU ns) since the last change, oldest first, up to
    /// [`Governor::patience`] ago.
    used: VecDeque<(Ns, u64)>,
    /// Use before this time is not counted.
    from: Option<Ns>,
    changed: Ns,
    patience: Ns,
    /// Step before the last change, if that made the interval shorter and it is not known yet
    /// whether it lasts.
    on_trial: Option<u32>,
}

impl Governor {
    /// Makes a governor with a bound of `percent` of one core. `asked`: the shortest interval;
    /// `longest`: the longest one, unless `asked` is longer.
    pub fn new(percent: f64, asked: Ns, longest: Ns) -> Governor {
        Governor {
            bound: percent / 100.0,
            asked: asked.max(1),
            longest,
            step: 0,
            used: VecDeque::new(),
            from: None,
            changed: 0,
            patience: PATIENCE.0,
            on_trial: None,
        }
    }

    /// Sets the interval that the user asks for.
    pub fn ask(&mut self, asked: Ns) {
        (self.asked, self.step, self.on_trial) = (asked.max(1), 0, None);
        self.used.clear();
    }

    /// Returns the interval in force.
    pub fn interval(&self) -> Ns {
        self.rung(self.step)
    }

    pub fn is_stretched(&self) -> bool {
        self.interval() > self.asked
    }

    pub fn is_longest(&self) -> bool {
        self.interval() >= self.longest
    }

    /// Takes the total CPU time at `at`. Returns the new interval, if it changes.
    pub fn observe(&mut self, at: Ns, cpu_ns: u64, may: May) -> Option<Ns> {
        let from = *self.from.get_or_insert(at + ATTACHING);
        if at < from {
            return None;
        }
        let Some((last, last_cpu)) = self.used.back().copied() else {
            self.begin(at, cpu_ns);
            return None;
        };
        let interval = self.interval();
        // Nothing was sampled in between: that time is not its cost.
        if at < last || cpu_ns < last_cpu || at - last > SECOND.max(3 * interval) {
            self.begin(at, cpu_ns);
            return None;
        }
        if at - last < NOTE_EVERY {
            return None;
        }
        self.used.push_back((at, cpu_ns));
        // The last reading before the span stays, so that the whole span is covered.
        while self.used.get(1).is_some_and(|(time, _)| *time + self.patience.max(SPAN) <= at) {
            self.used.pop_front();
        }
        let mut step = None;
        if may.stretch {
            step = self.stretched(at, cpu_ns);
        }
        if may.shorten {
            step = step.or_else(|| self.shortened(at, cpu_ns, may.part));
        }
        self.step = step?;
        self.begin(at, cpu_ns);
        Some(self.interval())
    }

    /// Discards all readings: something else has changed the cost.
    pub fn begin(&mut self, at: Ns, cpu_ns: u64) {
        self.used.clear();
        self.used.push_back((at, cpu_ns));
        self.changed = at;
    }

    /// Returns the CPU ns used per ns, and the CPU ns used. Covers the last `span`, or the time
    /// since the last change if that is shorter.
    fn used_within(&self, span: Ns, at: Ns, cpu_ns: u64) -> (f64, u64) {
        let begin =
            self.used.iter().rev().find(|(time, _)| time + span <= at).or(self.used.front());
        let (from, before) = begin.copied().unwrap_or((at, cpu_ns));
        let used = cpu_ns - before;
        (used as f64 / (at - from).max(1) as f64, used)
    }

    /// Returns the step to stretch to, if too much is used.
    fn stretched(&mut self, at: Ns, cpu_ns: u64) -> Option<u32> {
        let interval = self.interval();
        let (rate, used) = self.used_within(SPAN, at, cpu_ns);
        // With a long interval one tick may use any amount, if the whole interval makes up for it.
        let too_much = rate > self.bound && used as f64 > self.bound * SPAN as f64;
        if !too_much || self.is_longest() {
            return None;
        }
        if let Some(before) = self.on_trial.take() {
            self.patience = (2 * self.patience).min(PATIENCE.1);
            return Some(before);
        }
        let factor = (rate / (AIM * self.bound)).min(MAX_STRETCH);
        let wanted = (interval as f64 * factor) as Ns;
        let mut step = self.step + 1;
        while self.rung(step) < wanted.min(self.longest) {
            step += 1;
        }
        Some(step)
    }

    /// Returns the step to shorten to, if there is room.
    fn shortened(&mut self, at: Ns, cpu_ns: u64, part: f64) -> Option<u32> {
        let unchanged = at.saturating_sub(self.changed);
        if self.on_trial.is_some() && unchanged >= LASTED {
            self.patience = (self.patience / 2).max(PATIENCE.0);
            self.on_trial = None;
        }
        let interval = self.interval();
        if self.step == 0 || unchanged < self.patience.max(2 * interval) {
            return None;
        }
        let (rate, _) = self.used_within(self.patience, at, cpu_ns);
        let room = ROOM * self.bound;
        let costs_at =
            |step: u32| rate * (1.0 - part + part * interval as f64 / self.rung(step) as f64);
        let fewest = if self.patience > PATIENCE.0 { self.step - 1 } else { 0 };
        let mut step = self.step;
        while step > fewest && costs_at(step - 1) <= room {
            step -= 1;
        }
        if step == self.step && rate <= room && unchanged >= TRY_AFTER * self.patience {
            step -= 1;
        }
        (step < self.step).then(|| {
            self.on_trial = Some(self.step);
            step
        })
    }

    /// Returns `asked` stretched by 1, 1.5, 2, 3, 5, 7, 10, 15, ...: at most `longest`, and never
    /// below `asked`.
    fn rung(&self, step: u32) -> Ns {
        const TENTHS: [u64; 6] = [10, 15, 20, 30, 50, 70];
        let tens = 10u64.saturating_pow(step / TENTHS.len() as u32);
        let tenths = u128::from(TENTHS[step as usize % TENTHS.len()]);
        let stretched = (u128::from(self.asked) * u128::from(tens)).saturating_mul(tenths) / 10;
        let longest = self.longest.max(self.asked);
        Ns::try_from(stretched).unwrap_or(Ns::MAX).clamp(self.asked, longest)
    }
}

#[cfg(test)]
mod tests;
