//! Of the lines a row was seen at, the heaviest one is shown with it.

use super::Totals;
use crate::model::settings::Metric;
use crate::model::tables::Location;

/// Time of a node at one of its locations.
#[derive(Clone, Copy, Debug)]
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
