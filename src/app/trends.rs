//! The time of the visible rows over the range. It is summed up again only if other rows are
//! visible, or another metric is.

use super::rows::{Row, Tree, What};
use crate::model::projection::settings::Metric;
use crate::model::projection::{Projection, RowOf, RowTrend};

/// The trends of some rows of one projection.
#[derive(Default)]
pub struct Trends {
    /// The metric, whether rows were chosen by their changes, and the rows.
    of: Option<(Metric, bool, Vec<RowOf>)>,
    /// Index of the first row.
    top: usize,
    rows: Vec<RowTrend>,
}

impl Trends {
    /// Returns the trend of a visible row, by its index among all rows.
    pub fn row(&self, row: usize) -> Option<&RowTrend> {
        self.rows.get(row.checked_sub(self.top)?)
    }

    /// Sums up the trends of these rows, the first of which has the index `top`, unless they are
    /// known. `by_change`: rows were chosen by their changes.
    pub fn read(
        &mut self,
        projection: &Projection,
        metric: Metric,
        by_change: bool,
        (top, rows): (usize, Vec<RowOf>),
    ) {
        self.top = top;
        let of = Some((metric, by_change, rows));
        if self.of != of {
            let rows = of.as_ref().map_or(&[][..], |(.., rows)| rows);
            self.rows = match rows.first() {
                Some(first) if by_change => {
                    projection.trends_among(rows, metric, projection.compared_with(first))
                }
                _ => projection.trends(rows, metric),
            };
            self.of = of;
        }
    }
}

/// Returns what a line of the tree stands for.
pub fn row_of(tree: &Tree<'_>, row: &Row) -> RowOf {
    let projection = tree.ordered.projection;
    match row.what {
        What::Group(group) => RowOf::Groups(vec![group]),
        What::Node(node) => RowOf::Nodes(vec![node]),
        What::Small(Some(node)) => RowOf::Nodes(tree.small(projection.children(node)).collect()),
        What::Small(None) => {
            let group = row.group.and_then(|group| projection.groups.get(group as usize));
            let small = |group| tree.small(projection.roots(group)).collect();
            RowOf::Nodes(group.map(small).unwrap_or_default())
        }
        What::SmallGroups => RowOf::Groups(tree.small_group_indexes().collect()),
    }
}
