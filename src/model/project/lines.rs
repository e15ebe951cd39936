//! Of the lines a row was seen at, the heaviest one is shown with it.

use super::Totals;
use super::rows::Rows;
use crate::model::settings::Metric;
use crate::model::tables::Location;

/// Time of a row at one of its locations; the same may come several times.
pub(super) struct At {
    pub row: u32,
    pub location: u32,
    pub wall_ns: u64,
    pub cpu_ns: u64,
}

impl At {
    fn value(&self, metric: Metric) -> u64 {
        Totals { wall_ns: self.wall_ns, cpu_ns: self.cpu_ns, ..Totals::default() }.value(metric)
    }
}

/// Calls `found` with each row and its heaviest location; of equals the lowest line.
pub(super) fn heaviest(mut seen: Vec<At>, metric: Metric, rows: &Rows, mut found: impl FnMut(u32, u32)) {
    seen.sort_unstable_by_key(|at| (at.row, at.location));
    seen.dedup_by(|next, sum| {
        let same = (next.row, next.location) == (sum.row, sum.location);
        if same {
            sum.wall_ns += next.wall_ns;
            sum.cpu_ns += next.cpu_ns;
        }
        same
    });
    for row in seen.chunk_by(|a, b| a.row == b.row) {
        let best = row.iter().reduce(|best, next| {
            let (value, least) = (next.value(metric), best.value(metric));
            let lower = || place(rows.location(next.location)) < place(rows.location(best.location));
            if value > least || (value == least && lower()) { next } else { best }
        });
        if let Some(best) = best {
            found(best.row, best.location);
        }
    }
}

/// A line that is not known comes last.
fn place(location: &Location) -> (bool, Option<u32>, Option<&str>) {
    (location.line.is_none(), location.line, location.file.as_deref())
}
