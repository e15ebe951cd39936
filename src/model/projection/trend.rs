//! How the time of rows is spread over the range: by slices of it, and from its older half to its
//! newer one.
//!
//! While the facts are read, each cell's time is also booked to a slice, a run of whole buckets.
//! That is cheap. Only the rows on the screen are summed up, when they are drawn; all of them only
//! where they are ordered by change (see `changes`).

use super::columns::NONE;
use super::sampling_error::{Pair, Sampled, Sums, between, quantile, reach};
use super::{Projection, Totals};
use crate::model::facts::history::Weights;
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::state::State;

/// Slices of a range.
pub const SLICES: usize = 8;

/// Change of a share that is drawn as zero, percentage points.
const LEAST_CHANGE: f64 = 0.05;

/// The slices of a range.
#[derive(Clone, Debug)]
pub(super) struct Slices {
    /// By bucket.
    of_bucket: Vec<u8>,
    /// From the start of a slice's first bucket to the end of its last; empty without a bucket.
    spans: [(Ns, Ns); SLICES],
    /// Of wait times, ns.
    resolution: Ns,
}

impl Slices {
    /// Returns the slices of a range with these buckets; `None` without a bucket. A bucket belongs
    /// to the slice that contains its middle, so wide buckets leave slices empty. `resolution`: of
    /// wait times.
    pub fn new(buckets: &[(Ns, Ns)], resolution: Ns) -> Option<Slices> {
        let (from, till) = (buckets.first()?.0, buckets.last()?.1);
        let length = u128::from(till.saturating_sub(from)).max(1);
        let mut slices = Slices { of_bucket: Vec::new(), spans: [(0, 0); SLICES], resolution };
        for (start, end) in buckets {
            let middle = u128::from((start + (end - start) / 2).saturating_sub(from));
            let slice = ((middle * SLICES as u128 / length) as usize).min(SLICES - 1);
            let span = &mut slices.spans[slice];
            *span = if slices.of_bucket.last() == Some(&(slice as u8)) {
                (span.0, *end)
            } else {
                (*start, *end)
            };
            slices.of_bucket.push(slice as u8);
        }
        Some(slices)
    }

    /// Returns the whole range.
    fn range(&self) -> (Ns, Ns) {
        let first = self.of_bucket.first().map_or(0, |slice| self.spans[usize::from(*slice)].0);
        let last = self.of_bucket.last().map_or(0, |slice| self.spans[usize::from(*slice)].1);
        (first, last)
    }

    /// Returns the slice that contains the middle of each eighth of the range.
    fn of_eighths(&self) -> [usize; SLICES] {
        let (from, till) = self.range();
        std::array::from_fn(|eighth| {
            let middle = from + (till - from) / (2 * SLICES as u64) * (2 * eighth as u64 + 1);
            let contains = |(start, end): &(Ns, Ns)| *start <= middle && middle < *end;
            self.spans.iter().position(contains).unwrap_or(SLICES - 1)
        })
    }
}

/// Time of some stacks in a slice.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Amount {
    wall_ns: u64,
    cpu_ns: u64,
    run_ns: u64,
    rdy_ns: u64,
    hits: u32,
    cpu_hits: u32,
}

impl Amount {
    fn add_fact(&mut self, state: State, weights: &Weights) {
        self.wall_ns += weights.wall_ns;
        self.cpu_ns += weights.cpu_ns;
        self.hits = self.hits.saturating_add(weights.hits);
        self.cpu_hits = self.cpu_hits.saturating_add(weights.cpu_hits);
        match state {
            State::Run => self.run_ns += weights.wall_ns,
            State::Rdy => self.rdy_ns += weights.wall_ns,
            _ => {}
        }
    }

    pub fn add(&mut self, more: &Amount) {
        self.wall_ns += more.wall_ns;
        self.cpu_ns += more.cpu_ns;
        self.run_ns += more.run_ns;
        self.rdy_ns += more.rdy_ns;
        self.hits = self.hits.saturating_add(more.hits);
        self.cpu_hits = self.cpu_hits.saturating_add(more.cpu_hits);
    }

    /// Returns what of the totals is known.
    fn totals(&self) -> Totals {
        let mut totals = Totals {
            wall_ns: self.wall_ns,
            cpu_ns: self.cpu_ns,
            hits: self.hits.into(),
            cpu_hits: self.cpu_hits.into(),
            ..Totals::default()
        };
        totals.states_ns[State::Run as usize] = self.run_ns;
        totals.states_ns[State::Rdy as usize] = self.rdy_ns;
        totals.settle_off();
        totals
    }
}

/// The time of one cell in one slice.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The cell; later its node, counted from the number of groups, or its group.
    place: u32,
    slice: u8,
    amount: Amount,
}

/// The parts of all cells, while facts are read and after that.
#[derive(Clone, Debug)]
pub(super) struct Trend {
    slices: Slices,
    /// The slice of the facts that are being read.
    slice: u8,
    /// A cell has one part for each slice in which it has time.
    parts: Vec<Part>,
    /// By cell: its newest part.
    newest: Vec<u32>,
    /// By slice: all time, also what filters hide.
    everything: [Amount; SLICES],
}

impl Trend {
    /// `old`: a trend whose memory is reused.
    pub fn new(slices: Slices, old: Option<Trend>) -> Trend {
        let (mut parts, mut newest) =
            old.map_or_else(Default::default, |old| (old.parts, old.newest));
        parts.clear();
        newest.clear();
        Trend { slices, slice: 0, parts, newest, everything: [Amount::default(); SLICES] }
    }

    #[cfg(test)]
    pub fn part_memory(&self) -> *const u8 {
        self.parts.as_ptr().cast()
    }

    /// Notes the bucket of the facts that follow.
    pub fn set_bucket(&mut self, bucket: usize) {
        self.slice = self.slices.of_bucket.get(bucket).copied().unwrap_or(SLICES as u8 - 1);
    }

    /// Counts a fact, whether filters hide it or not.
    pub fn count(&mut self, state: State, weights: &Weights) {
        self.everything[usize::from(self.slice)].add_fact(state, weights);
    }

    /// Books a fact to its cell.
    pub fn add(&mut self, cell: u32, state: State, weights: &Weights) {
        let at = cell as usize;
        if at >= self.newest.len() {
            self.newest.resize(at + 1, NONE);
        }
        let newest = &mut self.newest[at];
        match self.parts.get_mut(*newest as usize) {
            Some(part) if part.slice == self.slice => part.amount.add_fact(state, weights),
            _ => {
                *newest = self.parts.len() as u32;
                let mut amount = Amount::default();
                amount.add_fact(state, weights);
                self.parts.push(Part { place: cell, slice: self.slice, amount });
            }
        }
    }

    /// Replaces cells by the places that have their time; drops the parts of hidden ones.
    pub fn place(&mut self, place_of: impl Fn(u32) -> Option<u32>) {
        self.parts.retain_mut(|part| match place_of(part.place) {
            Some(place) => {
                part.place = place;
                true
            }
            None => false,
        });
    }

    /// Returns the time of each group, then of each node, in each half of the range.
    pub fn halves_of_places(&self, projection: &Projection) -> Vec<Pair<Amount>> {
        let groups = projection.groups.len();
        let mut halves = vec![Pair::<Amount>::default(); groups + projection.nodes.len()];
        for part in &self.parts {
            let of_place = &mut halves[part.place as usize];
            let is_older = usize::from(part.slice) < SLICES / 2;
            (if is_older { &mut of_place.before } else { &mut of_place.after }).add(&part.amount);
        }
        let mut include = |place: usize, within: usize| {
            let Pair { before, after } = halves[place];
            halves[within].before.add(&before);
            halves[within].after.add(&after);
        };
        // Callers precede their callees.
        for node in (0..projection.nodes.len() as u32).rev() {
            if let Some(parent) = projection.parent(node) {
                include(groups + node as usize, groups + parent as usize);
            }
        }
        for (at, group) in projection.groups.iter().enumerate() {
            projection.roots(group).for_each(|root| include(groups + root as usize, at));
        }
        halves
    }

    /// Returns the halves as profiles. `compared`: number of rows whose changes hold together.
    pub fn halves(&self, metric: Metric, compared: usize) -> Halves {
        let mut all = [Amount::default(); SLICES];
        self.parts.iter().for_each(|part| all[usize::from(part.slice)].add(&part.amount));
        Halves::new(&all, &self.everything, metric, self.slices.resolution, compared)
    }
}

/// What a row stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RowOf {
    /// Indexes into [`Projection::groups`].
    Groups(Vec<u32>),
    Nodes(Vec<u32>),
    /// Index into [`Projection::methods`].
    Method(u32),
}

/// A row's time over the range.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RowTrend {
    /// The row's time in each slice, ns; sums to its total, but for off-CPU time, which is floored
    /// in each slice.
    pub slices: [u64; SLICES],
    /// Time per time in each eighth of the range, as a part of the highest, 0..=1. `None` if all of
    /// the range is one slice.
    pub levels: Option<[f64; SLICES]>,
    /// Change of the row's share of what is shown from the older half of the range to the newer,
    /// percentage points. `None` where it may be due to sampling.
    pub change: Option<f64>,
}

impl Projection {
    /// Returns whether it knows the trends of rows.
    pub fn has_trends(&self) -> bool {
        self.trend.is_some()
    }

    /// Returns the trends of rows; none if they are unknown. A row that includes another comes
    /// before it. The changes of all these rows hold together with 95 %.
    pub fn trends(&self, rows: &[RowOf], metric: Metric) -> Vec<RowTrend> {
        self.trends_among(rows, metric, rows.len())
    }

    /// Does the same for rows that were chosen by their changes from `compared` rows: the changes
    /// of all of those hold together with 95 %.
    pub fn trends_among(&self, rows: &[RowOf], metric: Metric, compared: usize) -> Vec<RowTrend> {
        let Some(trend) = &self.trend else { return Vec::new() };
        let owners = match rows.iter().any(|row| matches!(row, RowOf::Method(_))) {
            true => Owners::of_methods(self, rows),
            false => Owners::of_tree(self, rows),
        };
        let lines = owners.sum_up(&trend.parts, rows.len());
        let (eighths, spans) = (trend.slices.of_eighths(), &trend.slices.spans);
        let several = eighths.iter().any(|slice| *slice != eighths[0]);
        let halves = trend.halves(metric, compared);
        let row_trend = |line: &[Amount; SLICES]| {
            let slices = line.map(|amount| amount.totals().value(metric));
            let rates = eighths.map(|slice| {
                let (start, end) = spans[slice];
                slices[slice] as f64 / (end - start).max(1) as f64
            });
            let highest = rates.into_iter().fold(0.0, f64::max);
            let level = |rate: f64| if highest > 0.0 { rate / highest } else { 0.0 };
            RowTrend {
                slices,
                levels: several.then(|| rates.map(level)),
                change: halves.change(&in_halves(line)),
            }
        };
        lines.iter().map(row_trend).collect()
    }
}

/// Sums the slices of each half.
fn in_halves(line: &[Amount; SLICES]) -> Pair<Amount> {
    let sum = |slices: &[Amount]| {
        let mut sum = Amount::default();
        slices.iter().for_each(|slice| sum.add(slice));
        sum
    };
    let (before, after) = line.split_at(SLICES / 2);
    Pair { before: sum(before), after: sum(after) }
}

/// The two halves of a range, as two profiles.
pub(super) struct Halves {
    metric: Metric,
    /// Percentage points per ns; 0 if nothing is shown.
    scale: Pair<f64>,
    sampled: Pair<Sampled>,
    quantile: f64,
}

impl Halves {
    fn new(
        shown: &[Amount; SLICES],
        everything: &[Amount; SLICES],
        metric: Metric,
        resolution: Ns,
        compared: usize,
    ) -> Halves {
        let scale = in_halves(shown).map(|amount| match amount.totals().value(metric) {
            0 => 0.0,
            shown => 100.0 / shown as f64,
        });
        let sampled = in_halves(everything)
            .map(|amount| Sampled::of(std::iter::once(&amount.totals()), metric, resolution));
        Halves { metric, scale, sampled, quantile: quantile(compared) }
    }

    /// See [`RowTrend::change`]. A half in which nothing is shown has no shares.
    pub fn change(&self, row: &Pair<Amount>) -> Option<f64> {
        if self.scale.before == 0.0 || self.scale.after == 0.0 {
            return None;
        }
        let row = row.map(|amount| Sums::of(&amount.totals(), self.metric));
        let shares = Pair {
            before: row.before.value_ns as f64 * self.scale.before,
            after: row.after.value_ns as f64 * self.scale.after,
        };
        // Bounds are costly, and most rows of a large tree are small.
        if (shares.after - shares.before).abs() < LEAST_CHANGE {
            return None;
        }
        let before = reach(&row.before, &row.after, &self.sampled.before, self.quantile);
        let after = reach(&row.after, &row.before, &self.sampled.after, self.quantile);
        let change = between(&row.map(|sums| sums.value_ns), &self.scale, before, after);
        change.is_resolved().then_some(change.change)
    }
}

/// Minimum parts of an owner whose time is summed up before it goes to the owners above it; a part
/// of all parts, and a number that is worth the memory.
const HEAVY: (usize, u32) = if cfg!(test) { (8, 2) } else { (256, 64) };

/// A row, and the rows that include it.
struct Owner {
    row: u32,
    /// The next owner further out, or [`NONE`]; it has a lower number.
    above: u32,
    /// A bit for the row of this one and of each above it, by the row modulo 128.
    rows: u128,
}

/// Added to the index of an owner's sum, in the list of counts: more parts than there are.
const LIGHT: u32 = 1 << 31;

/// Which rows the time of each place belongs to.
struct Owners {
    list: Vec<Owner>,
    /// By place (see [`Part::place`]): the innermost owner, or [`NONE`].
    of_place: Vec<u32>,
}

impl Owners {
    /// Returns the time of each row.
    fn sum_up(&self, parts: &[Part], rows: usize) -> Vec<[Amount; SLICES]> {
        let mut counts = vec![0u32; self.list.len()];
        for part in parts {
            if let Some(count) = counts.get_mut(self.of_place[part.place as usize] as usize) {
                *count += 1;
            }
        }
        for (at, owner) in self.list.iter().enumerate().rev() {
            if owner.above != NONE {
                counts[owner.above as usize] += counts[at];
            }
        }
        let least = ((parts.len() / HEAVY.0) as u32).max(HEAVY.1);
        // The owner above a heavy one is heavy too.
        let heavy: Vec<u32> =
            (0..self.list.len() as u32).filter(|at| counts[*at as usize] >= least).collect();
        heavy.iter().zip(0..).for_each(|(at, nth)| counts[*at as usize] = LIGHT + nth);
        let mut sums = vec![[Amount::default(); SLICES]; heavy.len()];
        let mut lines = vec![[Amount::default(); SLICES]; rows];
        for part in parts {
            let mut at = self.of_place[part.place as usize];
            while at != NONE {
                let owner = &self.list[at as usize];
                let count = counts[at as usize];
                if count >= LIGHT {
                    sums[(count - LIGHT) as usize][usize::from(part.slice)].add(&part.amount);
                    break;
                }
                lines[owner.row as usize][usize::from(part.slice)].add(&part.amount);
                at = owner.above;
            }
        }
        for (nth, at) in heavy.iter().enumerate().rev() {
            let owner = &self.list[*at as usize];
            let sum = sums[nth];
            let add = |to: &mut [Amount; SLICES]| {
                to.iter_mut().zip(&sum).for_each(|(to, more)| to.add(more));
            };
            add(&mut lines[owner.row as usize]);
            if owner.above != NONE {
                add(&mut sums[(counts[owner.above as usize] - LIGHT) as usize]);
            }
        }
        lines
    }

    /// Each row is an owner.
    fn of_tree(projection: &Projection, rows: &[RowOf]) -> Owners {
        let groups = projection.groups.len();
        let mut list: Vec<Owner> =
            (0..rows.len() as u32).map(|row| Owner { row, above: NONE, rows: 0 }).collect();
        let mut of_place = vec![NONE; groups + projection.nodes.len()];
        // By row: the row of the same place that includes it: a line of small rows that is open.
        let mut around = vec![NONE; rows.len()];
        for (row, of) in (0..).zip(rows) {
            let (first, indexes) = match of {
                RowOf::Groups(indexes) => (0, indexes),
                RowOf::Nodes(indexes) => (groups, indexes),
                RowOf::Method(_) => continue,
            };
            for index in indexes {
                let place = &mut of_place[first + *index as usize];
                around[row as usize] = std::mem::replace(place, row);
            }
        }
        let mut include = |place: &mut u32, outer: u32| {
            let mut at = *place;
            if at == NONE {
                *place = outer;
                return;
            }
            while around[at as usize] != NONE {
                list[at as usize].above = around[at as usize];
                at = around[at as usize];
            }
            list[at as usize].above = outer;
        };
        for (place, group) in projection.groups.iter().enumerate() {
            include(&mut of_place[place], NONE);
            for root in projection.roots(group) {
                let owner = of_place[place];
                include(&mut of_place[groups + root as usize], owner);
            }
        }
        for (node, parent) in projection.nodes.parents().enumerate() {
            if parent != NONE {
                let owner = of_place[groups + parent as usize];
                include(&mut of_place[groups + node], owner);
            }
        }
        Owners { list, of_place }
    }

    /// A method has an owner for each of its outermost nodes, so a recursive one counts once.
    fn of_methods(projection: &Projection, rows: &[RowOf]) -> Owners {
        let groups = projection.groups.len();
        let mut row_of = vec![NONE; projection.methods().len()];
        for (row, of) in (0..).zip(rows) {
            if let RowOf::Method(method) = of {
                row_of[*method as usize] = row;
            }
        }
        let mut list: Vec<Owner> = Vec::new();
        let mut of_place = vec![NONE; groups + projection.nodes.len()];
        let methods = projection.method_of();
        for (node, (method, parent)) in methods.iter().zip(projection.nodes.parents()).enumerate() {
            let above = if parent == NONE { NONE } else { of_place[groups + parent as usize] };
            let row = row_of.get(*method as usize).copied().unwrap_or(NONE);
            of_place[groups + node] = match row != NONE && !is_within(&list, above, row) {
                true => {
                    let outer = list.get(above as usize).map_or(0, |owner: &Owner| owner.rows);
                    list.push(Owner { row, above, rows: outer | 1 << (row % 128) });
                    list.len() as u32 - 1
                }
                false => above,
            };
        }
        Owners { list, of_place }
    }
}

/// Returns whether an owner, or one above it, is of this row.
fn is_within(list: &[Owner], owner: u32, row: u32) -> bool {
    let mut at = owner;
    while let Some(owner) = list.get(at as usize).filter(|o| o.rows & 1 << (row % 128) != 0) {
        if owner.row == row {
            return true;
        }
        at = owner.above;
    }
    false
}
