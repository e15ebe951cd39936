//! Of the lines a row was seen at, the heaviest one is shown with it.

use super::Totals;
use super::rows::Rows;
use crate::model::settings::Metric;
use crate::model::tables::Location;

/// Time of a node at one of its locations; the same may come several times.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub node: u32,
    pub location: u32,
    pub wall_ns: u64,
    pub cpu_ns: u64,
}

/// What is compared: the heavier, of equals the lower line, wins. A line that is not known is the highest.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    value: u64,
    location: &'a Location,
}

impl<'a> Line<'a> {
    pub(super) fn new(metric: Metric, location: &'a Location, wall_ns: u64, cpu_ns: u64) -> Line<'a> {
        Line { value: Totals { wall_ns, cpu_ns, ..Totals::default() }.value(metric), location }
    }

    pub(super) fn beats(&self, other: &Line<'a>) -> bool {
        let place = |l: &'a Location| (l.line.is_none(), l.line, l.file.as_deref());
        let lower = || place(self.location) < place(other.location);
        self.value > other.value || (self.value == other.value && lower())
    }
}

/// Calls `found` with each node and its heaviest location.
pub(super) fn heaviest_of_nodes(mut seen: Vec<At>, metric: Metric, rows: &Rows, mut found: impl FnMut(u32, u32)) {
    seen.sort_unstable_by_key(|at| (at.node, at.location));
    seen.dedup_by(|next, sum| {
        let same = (next.node, next.location) == (sum.node, sum.location);
        if same {
            sum.wall_ns += next.wall_ns;
            sum.cpu_ns += next.cpu_ns;
        }
        same
    });
    let line = |at: &At| Line::new(metric, rows.location(at.location), at.wall_ns, at.cpu_ns);
    for node in seen.chunk_by(|a, b| a.node == b.node) {
        let best = node.iter().reduce(|best, next| if line(next).beats(&line(best)) { next } else { best });
        if let Some(best) = best {
            found(best.node, best.location);
        }
    }
}
