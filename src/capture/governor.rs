//! How often to look, so that sampletop itself stays cheap: where looking costs more than it may,
//! the interval is stretched, and made shorter again, slowly, once that is affordable.
//!
//! Pure: the times and the CPU figures come from outside. Intervals are steps of a ladder (10, 15,
//! 20, 30, 50, ... ms for 10 ms asked), so that a figure on the screen stands still. Three rules
//! keep it there:
//!
//! * Longer at once when what may be used in 5 s has been used up since the last change (but at
//!   most 5 s ago), by as many steps as the cost asks for.
//! * Shorter only after a time of patience, and only where the cost at the shorter interval, all of
//!   it taken for the cost of looks, stays well below the bound. (Some of the cost does not depend
//!   on the interval; so where there is room, but not that much, one step is tried after a longer
//!   time.)
//! * What has to be taken back soon is: to the interval before, with twice the patience, and one
//!   step at a time from then on. What lasted halves the patience.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::vocabulary::frame::{Ns, SECOND};

/// The bound, and the CPU time that counts beside the sampler's.
#[derive(Clone, Debug)]
pub struct Overhead {
    /// Of one core.
    pub percent: f64,
    /// CPU time of the reducer, ns since it began, which its thread writes here.
    pub reducer_ns: Arc<AtomicU64>,
}

/// The time over which use is averaged.
const SPAN: Ns = 5 * SECOND;
/// Attaching is not governed: mappings are read and unwind tables loaded, once.
const ATTACHING: Ns = SECOND;
/// Intervals are not stretched beyond this.
const LONGEST: Ns = 10 * SECOND;
/// A decision aims below the bound by so much.
const AIM: f64 = 0.9;
/// What a shorter interval is expected to cost must be below this part of the bound.
const ROOM: f64 = 0.75;
/// One change stretches by this factor at most: what was a single burst is soon undone.
const STRETCH_MOST: f64 = 4.0;
/// At first, and at most.
const PATIENCE: (Ns, Ns) = (10 * SECOND, 640 * SECOND);
/// Time after which a shorter interval that was kept has proved itself.
const LASTED: Ns = 600 * SECOND;
/// A step for which there may or may not be room is tried after this multiple of the patience.
const TRY_AFTER: u64 = 6;
/// Use is noted so often.
const NOTE_EVERY: Ns = SECOND / 4;

/// Decides on the interval.
pub struct Governor {
    /// CPU ns that may be used per ns.
    bound: f64,
    asked: Ns,
    /// On the ladder above `asked`.
    step: u32,
    /// (when, CPU ns until then) since the last change, oldest first, up to [`Governor::patience`]
    /// ago.
    used: VecDeque<(Ns, u64)>,
    /// Nothing counts before this.
    from: Option<Ns>,
    changed: Ns,
    patience: Ns,
    /// The last change made the interval shorter, from this step, and it is not known yet whether
    /// that lasts.
    on_trial: Option<u32>,
}

impl Governor {
    /// `percent` of one core; `asked` is the shortest interval.
    pub fn new(percent: f64, asked: Ns) -> Governor {
        Governor {
            bound: percent / 100.0,
            asked: asked.max(1),
            step: 0,
            used: VecDeque::new(),
            from: None,
            changed: 0,
            patience: PATIENCE.0,
            on_trial: None,
        }
    }

    /// The user asks for another interval, from now on.
    pub fn ask(&mut self, asked: Ns) {
        (self.asked, self.step, self.on_trial) = (asked.max(1), 0, None);
        self.used.clear();
    }

    /// The interval in force.
    pub fn interval(&self) -> Ns {
        rung(self.asked, self.step)
    }

    /// Takes in what was used until `at`, since whenever; the interval from now on, if it changes.
    pub fn observe(&mut self, at: Ns, cpu_ns: u64) -> Option<Ns> {
        let from = *self.from.get_or_insert(at + ATTACHING);
        if at < from {
            return None;
        }
        let Some((last, last_cpu)) = self.used.back().copied() else {
            self.begin(at, cpu_ns);
            return None;
        };
        let interval = self.interval();
        // There was no observation in between: that is not its cost.
        if at < last || cpu_ns < last_cpu || at - last > SECOND.max(3 * interval) {
            self.begin(at, cpu_ns);
            return None;
        }
        if at - last < NOTE_EVERY {
            return None;
        }
        self.used.push_back((at, cpu_ns));
        // The first reading before the time that counts stays, so that all of that time is covered.
        while self.used.get(1).is_some_and(|(time, _)| *time + self.patience.max(SPAN) <= at) {
            self.used.pop_front();
        }
        let step = self.stretched(at, cpu_ns).or_else(|| self.shortened(at, cpu_ns))?;
        self.step = step;
        self.begin(at, cpu_ns);
        Some(self.interval())
    }

    fn begin(&mut self, at: Ns, cpu_ns: u64) {
        self.used.clear();
        self.used.push_back((at, cpu_ns));
        self.changed = at;
    }

    /// CPU ns used per ns in the last `span`, or in less if the last change was later; and the ns
    /// used.
    fn used_within(&self, span: Ns, at: Ns, cpu_ns: u64) -> (f64, u64) {
        let begin =
            self.used.iter().rev().find(|(time, _)| time + span <= at).or(self.used.front());
        let (from, before) = begin.copied().unwrap_or((at, cpu_ns));
        let used = cpu_ns - before;
        (used as f64 / (at - from).max(1) as f64, used)
    }

    /// The step to take where too much is used.
    fn stretched(&mut self, at: Ns, cpu_ns: u64) -> Option<u32> {
        let interval = self.interval();
        let (rate, used) = self.used_within(SPAN, at, cpu_ns);
        // Of a slow rhythm one look may use as much as it likes, if its whole interval makes up for
        // it.
        let too_much = rate > self.bound && used as f64 > self.bound * SPAN as f64;
        if !too_much || interval >= LONGEST {
            return None;
        }
        if let Some(before) = self.on_trial.take() {
            self.patience = (2 * self.patience).min(PATIENCE.1);
            return Some(before);
        }
        let factor = (rate / (AIM * self.bound)).min(STRETCH_MOST);
        let wanted = (interval as f64 * factor) as Ns;
        let mut step = self.step + 1;
        while rung(self.asked, step) < wanted.min(LONGEST) {
            step += 1;
        }
        Some(step)
    }

    /// The step to come back to where there is room.
    fn shortened(&mut self, at: Ns, cpu_ns: u64) -> Option<u32> {
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
        let costs_at = |step: u32| rate * (interval as f64 / rung(self.asked, step) as f64);
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
}

/// `asked` stretched by 1, 1.5, 2, 3, 5, 7, 10, 15, ...; at most [`LONGEST`], and never below
/// `asked`.
fn rung(asked: Ns, step: u32) -> Ns {
    const TENTHS: [u64; 6] = [10, 15, 20, 30, 50, 70];
    let tens = 10u64.saturating_pow(step / TENTHS.len() as u32);
    let tenths = u128::from(TENTHS[step as usize % TENTHS.len()]);
    let stretched = (u128::from(asked) * u128::from(tens)).saturating_mul(tenths) / 10;
    Ns::try_from(stretched).unwrap_or(Ns::MAX).clamp(asked, LONGEST.max(asked))
}

/// The interval asked for, and what the governor makes of it where there is one.
pub struct Pace {
    asked: Ns,
    governed: Option<(Governor, Overhead)>,
}

impl Pace {
    pub fn new(asked: Ns, overhead: Option<Overhead>) -> Pace {
        Pace {
            asked,
            governed: overhead.map(|overhead| (Governor::new(overhead.percent, asked), overhead)),
        }
    }

    pub fn asked(&self) -> Ns {
        self.asked
    }

    pub fn ask(&mut self, asked: Ns) {
        self.asked = asked;
        if let Some((governor, _)) = &mut self.governed {
            governor.ask(asked);
        }
    }

    /// See [`Governor::observe`]; the reducer's time is added here.
    pub fn observe(&mut self, at: Ns, sampler_ns: u64) -> Option<Ns> {
        let (governor, overhead) = self.governed.as_mut()?;
        governor.observe(at, sampler_ns + overhead.reducer_ns.load(Ordering::Relaxed))
    }

    /// What the user is told while the interval is stretched.
    pub fn notice(&self) -> Option<String> {
        let (governor, overhead) = self.governed.as_ref()?;
        let ms = |ns: Ns| format!("{}ms", ns as f64 / 1e6);
        (governor.interval() > self.asked).then(|| {
            format!(
                "samples every {} instead of {}, or sampletop would use more than {} % of a core (--max-overhead)",
                ms(governor.interval()),
                ms(self.asked),
                overhead.percent
            )
        })
    }
}

#[cfg(test)]
mod tests;
