//! The change of every row from the older half of the range to the newer, for their order.

use std::sync::OnceLock;

use super::columns::NONE;
use super::methods::recursive;
use super::sampling_error::Pair;
use super::trend::Amount;
use super::{Projection, RowOf};
use crate::model::projection::settings::Metric;

/// The changes of all rows of a projection under one metric, computed when they are first read.
/// In percentage points; 0 where a change may be due to sampling.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// Of each group, then of each node.
    places: OnceLock<Vec<f64>>,
    methods: OnceLock<Vec<f64>>,
}

impl Projection {
    /// Computes the changes of all groups and nodes now, and not when the first one is read. Reads
    /// every node once.
    pub fn read_changes(&self, metric: Metric) {
        self.place_changes(metric);
    }

    /// Returns the number of rows that are compared where rows like this are ordered by change; see
    /// [`Projection::trends_among`].
    pub fn compared_with(&self, row: &RowOf) -> usize {
        match row {
            RowOf::Groups(_) | RowOf::Nodes(_) => self.groups.len() + self.nodes.len(),
            RowOf::Method(_) => self.methods().len(),
        }
    }

    pub(super) fn change_of_group(&self, group: u32, metric: Metric) -> f64 {
        self.place_changes(metric).get(group as usize).copied().unwrap_or(0.0)
    }

    pub(super) fn change_of_node(&self, node: u32, metric: Metric) -> f64 {
        let place = self.groups.len() + node as usize;
        self.place_changes(metric).get(place).copied().unwrap_or(0.0)
    }

    pub(super) fn change_of_method(&self, method: u32, metric: Metric) -> f64 {
        let changes = &self.changes[metric as usize];
        let changes = changes.methods.get_or_init(|| self.find_method_changes(metric));
        changes.get(method as usize).copied().unwrap_or(0.0)
    }

    fn place_changes(&self, metric: Metric) -> &[f64] {
        self.changes[metric as usize].places.get_or_init(|| {
            let Some(trend) = &self.trend else { return Vec::new() };
            let rows = trend.halves_of_places(self);
            let halves = trend.halves(metric, rows.len());
            rows.iter().map(|row| halves.change(row).unwrap_or(0.0)).collect()
        })
    }

    fn find_method_changes(&self, metric: Metric) -> Vec<f64> {
        let Some(trend) = &self.trend else { return Vec::new() };
        let mut rows = vec![Pair::<Amount>::default(); self.methods().len()];
        let method_of = self.method_of();
        let recursive = recursive(&self.nodes, &self.groups, method_of, rows.len());
        let of_nodes = trend.halves_of_places(self).into_iter().skip(self.groups.len());
        for (of_node, (method, recursive)) in of_nodes.zip(method_of.iter().zip(recursive)) {
            // Below another node of its method, its stacks count already.
            if *method != NONE && !recursive {
                let row = &mut rows[*method as usize];
                row.before.add(&of_node.before);
                row.after.add(&of_node.after);
            }
        }
        let halves = trend.halves(metric, rows.len());
        rows.iter().map(|row| halves.change(row).unwrap_or(0.0)).collect()
    }
}
