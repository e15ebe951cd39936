//! What the shown range is compared with, and the comparison.

use std::sync::Arc;

use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::Range;
use crate::model::transform::diff::{Diff, GoneBelow};
use crate::model::vocabulary::frame::Ns;

/// A range of a snapshot. The snapshot does not change, so the range is fixed, whatever its kind.
#[derive(Clone, Debug)]
pub struct Baseline {
    pub snapshot: Arc<Snapshot>,
    pub range: Range,
    /// The name of the file; `None` for a range of the present session.
    pub file: Option<Arc<str>>,
}

/// The displayed range and the baseline, as one tree and one list.
#[derive(Clone, Debug)]
pub struct Compared {
    pub baseline: Baseline,
    /// The baseline's range as it was read.
    pub from: Ns,
    pub till: Ns,
    /// In percentage points.
    pub diff: Diff,
    /// What rows of the displayed range have no place for.
    pub gone: GoneBelow,
}
