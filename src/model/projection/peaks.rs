//! Which buckets of history stand out from those around them.

use crate::model::facts::buckets::WIDTHS;
use crate::model::vocabulary::frame::Ns;

/// Buckets before and after a bucket that it is compared with.
const AROUND: u64 = 60;
/// Minimum distance from the median, in median absolute deviations. Of normal noise, which has a
/// standard deviation of 1.48 of them, 1 bucket in 20,000 is that far above.
const DEVIATIONS: f64 = 6.0;

/// What stands out by less than this multiple of what is needed is weak: real noise has more
/// outliers than normal noise.
const STRONG: f64 = 2.0;
/// A weak peak does not count if another one is at least this multiple as far out...
const MORE: f64 = 2.0;
/// ... and at most this number of buckets away.
const NEAR: u64 = 2 * AROUND;

/// From which size on a figure may stand out.
struct Figure {
    /// Minimum distance from the median.
    least: f64,
    /// The same, as a part of the median.
    least_part: f64,
}

/// Busy threads: one that waits for 150 ms of a second. The longest wait, ns: waits differ more
/// than numbers of threads.
const FIGURES: [Figure; 2] =
    [Figure { least: 0.15, least_part: 0.1 }, Figure { least: 50_000_000.0, least_part: 2.0 }];

/// A bucket: its span, ns since the start of the session, and its [`FIGURES`].
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub from: Ns,
    pub till: Ns,
    pub figures: [f64; 2],
}

/// Finds the buckets that stand out.
///
/// Averages over ten seconds vary less than those over one, and their longest waits are longer. So
/// a bucket is compared at its own width: narrower buckets are summed up to it, wider ones do not
/// count.
pub(super) struct Peaks {
    places: Vec<Place>,
    /// For each of [`WIDTHS`], all history that is known in that width or a narrower one.
    series: [Vec<Place>; WIDTHS.len()],
    /// By bucket: the series of its width. `None` for a bucket wider than all, in which nothing was
    /// observed.
    width_of: Vec<Option<usize>>,
    /// By bucket, where it is known already: see [`Peaks::excess`].
    known: Vec<Option<f64>>,
    /// The figures around a bucket.
    around: Vec<f64>,
}

impl Peaks {
    /// `places`: oldest first.
    pub fn new(places: Vec<Place>) -> Peaks {
        let length = |place: &Place| place.till - place.from;
        let width_of = |place: &Place| WIDTHS.iter().position(|width| length(place) <= *width);
        let width_of: Vec<_> = places.iter().map(width_of).collect();
        let series = std::array::from_fn(|nth| summed_up(&places, &width_of, nth));
        Peaks { known: vec![None; places.len()], around: Vec::new(), places, series, width_of }
    }

    /// Returns the last bucket before the index `end` that stands out.
    pub fn previous(&mut self, end: usize) -> Option<usize> {
        let mut till = end;
        while let Some(at) = (0..till).rev().find(|at| self.excess(*at) >= 1.0) {
            let (first, peak, _) = self.run(at);
            if peak < end && !self.is_outdone(peak) {
                return Some(peak);
            }
            till = first;
        }
        None
    }

    /// Returns the first bucket from the index `from` on that stands out.
    pub fn next(&mut self, from: usize) -> Option<usize> {
        let mut next = from;
        while let Some(at) = (next..self.places.len()).find(|at| self.excess(*at) >= 1.0) {
            let (_, peak, end) = self.run(at);
            if peak >= from && !self.is_outdone(peak) {
                return Some(peak);
            }
            next = end;
        }
        None
    }

    /// Returns the buckets in a row around `at` that stand out, and of them the one that does most:
    /// `(first, most, the one after the last)`.
    fn run(&mut self, at: usize) -> (usize, usize, usize) {
        let (mut first, mut end) = (at, at + 1);
        while first > 0 && self.excess(first - 1) >= 1.0 {
            first -= 1;
        }
        while end < self.places.len() && self.excess(end) >= 1.0 {
            end += 1;
        }
        let mut most = first;
        for at in first..end {
            if self.excess(at) > self.excess(most) {
                most = at;
            }
        }
        (first, most, end)
    }

    /// Returns whether a bucket stands out by little, and one near it by much more.
    fn is_outdone(&mut self, at: usize) -> bool {
        let (excess, place) = (self.excess(at), self.places[at]);
        let Some(width) = self.width_of[at].filter(|_| excess < STRONG) else { return false };
        let near = NEAR * WIDTHS[width];
        let first =
            self.places.partition_point(|other| other.from.saturating_add(near) < place.from);
        let end =
            self.places.partition_point(|other| other.from <= place.from.saturating_add(near));
        // A file may have buckets that are narrower than any that are written.
        let first = first.max(at.saturating_sub(NEAR as usize));
        let end = end.min(at + 1 + NEAR as usize);
        (first..end).any(|other| self.excess(other) >= MORE * excess)
    }

    /// Returns by how much a bucket is above what is usual around it, as a multiple of what stands
    /// out: from 1 on it does.
    fn excess(&mut self, at: usize) -> f64 {
        if let Some(known) = self.known[at] {
            return known;
        }
        let excess = self.width_of[at].map_or(0.0, |width| {
            let of_width = &self.series[width];
            let (place, reach) = (self.places[at], AROUND * WIDTHS[width]);
            let first =
                of_width.partition_point(|other| other.from.saturating_add(reach) < place.from);
            let end =
                of_width.partition_point(|other| other.from <= place.from.saturating_add(reach));
            let here = of_width.partition_point(|other| other.from < place.from);
            let first = first.max(here.saturating_sub(AROUND as usize));
            let end = end.min(here + 1 + AROUND as usize);
            let by_figure = FIGURES.iter().enumerate().map(|(nth, figure)| {
                let others = of_width[first..end].iter().map(|other| other.figures[nth]);
                figure.excess(place.figures[nth], others, &mut self.around)
            });
            by_figure.fold(0.0, f64::max)
        });
        self.known[at] = Some(excess);
        excess
    }
}

impl Figure {
    /// `others`: those around it, itself included. `around`: a buffer.
    fn excess(&self, value: f64, others: impl Iterator<Item = f64>, around: &mut Vec<f64>) -> f64 {
        // Most buckets of a program that does little are below: nothing need be sorted.
        if value < self.least {
            return 0.0;
        }
        around.clear();
        around.extend(others);
        let usual = median(around);
        let least = self.least.max(self.least_part * usual);
        if value - usual < least {
            return 0.0;
        }
        around.iter_mut().for_each(|value| *value = (*value - usual).abs());
        let least = least.max(DEVIATIONS * median(around));
        (value - usual) / least
    }
}

/// Returns the buckets of one of [`WIDTHS`], and the narrower ones summed up to that width where at
/// least half of it is known; oldest first.
fn summed_up(places: &[Place], width_of: &[Option<usize>], width: usize) -> Vec<Place> {
    let mut all: Vec<Place> = Vec::new();
    let slot = |place: &Place| place.from / WIDTHS[width];
    let mut places = places.iter().zip(width_of).peekable();
    while let Some((place, of)) = places.next() {
        match of {
            Some(of) if *of == width => all.push(*place),
            Some(of) if *of < width => {
                let (mut sum, mut known) = (*place, place.till - place.from);
                sum.figures[0] *= known as f64;
                let is_same = |(next, of): &(&Place, &Option<usize>)| {
                    of.is_some_and(|of| of < width) && slot(next) == slot(place)
                };
                while let Some((next, _)) = places.next_if(is_same) {
                    let length = next.till - next.from;
                    (sum.till, known) = (next.till, known + length);
                    sum.figures[0] += next.figures[0] * length as f64;
                    sum.figures[1] = sum.figures[1].max(next.figures[1]);
                }
                if known * 2 >= WIDTHS[width] {
                    sum.figures[0] /= known as f64;
                    all.push(sum);
                }
            }
            _ => {}
        }
    }
    all
}

/// Returns the median; the lower one of two. 0 without values. Changes their order.
fn median(values: &mut [f64]) -> f64 {
    let Some(middle) = values.len().checked_sub(1).map(|last| last / 2) else { return 0.0 };
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests;
