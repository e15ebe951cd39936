//! Chooses a row's heaviest line, which is shown with it.

use std::cmp::Reverse;
use std::sync::Arc;

use super::Totals;
use crate::model::facts::tables::Location;
use crate::model::projection::settings::Metric;

/// All known locations, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    pub locations: Vec<Arc<Location>>,
    /// The number of the first location at the same line of the same function, whatever its tier.
    pub line_of: Vec<u32>,
}

/// Time of a node at one of its locations.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub node: u32,
    pub location: u32,
    pub wall_ns: u64,
    pub cpu_ns: u64,
}

impl At {
    fn value(&self, metric: Metric) -> u64 {
        let mut totals = Totals { wall_ns: self.wall_ns, cpu_ns: self.cpu_ns, ..Totals::default() };
        totals.settle_off();
        totals.value(metric)
    }
}

impl Places {
    /// Sorts for [`Places::heaviest`]: entries of one line become adjacent.
    pub fn sort(&self, seen: &mut [At]) {
        seen.sort_unstable_by_key(|at| (at.node, self.line_of[at.location as usize], at.location));
    }

    /// Returns the location with the heaviest line (tie: the lowest; unknown lines last), and there
    /// the tier with the most time. All of `seen` must be of one node.
    pub fn heaviest(&self, seen: &[At], metric: Metric) -> Option<u32> {
        let line_of = |at: &At| self.line_of[at.location as usize];
        let rank = |line: &[At]| {
            let sum = line.iter().fold(At { wall_ns: 0, cpu_ns: 0, ..line[0] }, |sum, at| At {
                wall_ns: sum.wall_ns + at.wall_ns,
                cpu_ns: sum.cpu_ns + at.cpu_ns,
                ..sum
            });
            let location = &self.locations[sum.location as usize];
            (
                Reverse(sum.value(metric)),
                location.line.is_none(),
                location.line,
                location.file.clone(),
            )
        };
        let line = seen.chunk_by(|a, b| line_of(a) == line_of(b)).min_by_key(|line| rank(line))?;
        let tier =
            |at: &&At| (Reverse(at.value(metric)), self.locations[at.location as usize].tier);
        line.iter().min_by_key(tier).map(|at| at.location)
    }
}
