//! What a bar of the flame graph says of the baseline, while both are compared. Bars are those of
//! the shown range alone: their widths do not change.

use super::flame::BarOf;
use super::pane::Pane;
use super::view::View;
use crate::model::transform::diff::{Change, Gone, Pair};

/// A difference that is drawn as zero, percentage points.
pub const ZERO: f64 = 0.05;
/// Minimum difference that stands out, percentage points.
const STRONG: f64 = 5.0;

/// How a bar differs from the baseline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Same,
    /// The difference may be due to sampling.
    Unsure,
    More,
    Less,
    /// It had no time before.
    New,
}

/// A bar and the baseline.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BarChange {
    pub change: Change,
    pub verdict: Verdict,
    /// What is gone below it has no bar.
    pub gone: Gone,
    /// Other bars have the same names, but for numbers and directories: the change is of them
    /// together.
    pub is_sum: bool,
}

impl BarChange {
    /// Returns whether the difference stands out among those that are no chance.
    pub fn is_strong(&self) -> bool {
        self.change.change.abs() >= STRONG
    }
}

fn verdict(change: &Change, ns: &Pair<u64>) -> Verdict {
    match change {
        _ if change.change.abs() < ZERO => Verdict::Same,
        _ if !change.is_resolved() => Verdict::Unsure,
        _ if ns.before == 0 => Verdict::New,
        _ if change.change > 0.0 => Verdict::More,
        _ => Verdict::Less,
    }
}

impl View {
    /// Returns what has changed about a bar; `None` where nothing is compared.
    pub fn bar_change(&self, of: BarOf) -> Option<BarChange> {
        let compared = self.compared.as_ref().filter(|_| self.pane == Pane::ChangedFlame)?;
        let diff = &compared.diff;
        let (change, ns, gone) = match of {
            BarOf::All => {
                let ns = diff.whole.map(|whole| whole.total.value(diff.metric));
                (diff.measured(&ns), ns, compared.gone.all)
            }
            BarOf::Group(group) => {
                let at = diff.group_of(group)? as usize;
                let group = &diff.groups[at];
                let ns = group.total.map(|sums| sums.value_ns);
                (diff.change_of_group(group), ns, compared.gone.groups[at])
            }
            BarOf::Node(node) => {
                let at = diff.node_of(node)? as usize;
                let total = &diff.nodes[at].total;
                (diff.change(total), total.map(|sums| sums.value_ns), compared.gone.nodes[at])
            }
        };
        let is_sum = ns.after != self.bar_totals(of).0.value(diff.metric);
        Some(BarChange { change, verdict: verdict(&change, &ns), gone, is_sum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_chance_is_neither_more_nor_less() {
        let verdict = |before: u64, after: u64, error: f64| {
            let [b, a] = [before, after].map(|share| share as f64);
            let change = Change {
                before: b,
                after: a,
                change: a - b,
                low: a - b - error,
                high: a - b + error,
            };
            super::verdict(&change, &Pair { before, after })
        };
        assert_eq!(verdict(7, 7, 0.0), Verdict::Same);
        assert_eq!(verdict(7, 12, 5.5), Verdict::Unsure);
        assert_eq!(verdict(0, 12, 12.5), Verdict::Unsure);
        assert_eq!(verdict(7, 12, 4.5), Verdict::More);
        assert_eq!(verdict(12, 7, 4.5), Verdict::Less);
        assert_eq!(verdict(0, 12, 4.5), Verdict::New);
        assert_eq!(verdict(12, 0, 4.5), Verdict::Less);
    }
}
