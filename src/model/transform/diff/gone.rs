//! What has time only in the profile before. Views of the profile after have no place for it, so
//! the rows above say how much it is.

use super::{Diff, NONE, Pair, Sums};

/// Calls that are gone, without those below them.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Gone {
    /// Number of calls, each on its path of callers.
    pub calls: u32,
    /// Their time in the profile before.
    pub total: Sums,
}

impl Gone {
    fn add(&mut self, more: &Gone) {
        self.calls += more.calls;
        self.total.add(&more.total);
    }

    /// Returns its time on both sides, for [`Diff::change`].
    pub fn pair(&self) -> Pair<Sums> {
        Pair { before: self.total, after: Sums::default() }
    }
}

/// What is gone at any depth below each row that is still there; nothing below one that is gone.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct GoneBelow {
    /// Below everything.
    pub all: Gone,
    /// By index into [`Diff::groups`].
    pub groups: Vec<Gone>,
    /// By index into [`Diff::nodes`].
    pub nodes: Vec<Gone>,
}

fn is_gone(total: &Pair<Sums>) -> bool {
    total.before.value_ns > 0 && total.after.value_ns == 0
}

/// Returns what a call adds to the row above it: itself if it is gone, else what is gone below it.
fn seen_from_above(total: &Pair<Sums>, below: &Gone) -> Gone {
    if is_gone(total) { Gone { calls: 1, total: total.before } } else { *below }
}

impl Diff {
    /// Sums up what is gone below each row. Reads every row once.
    pub fn gone(&self) -> GoneBelow {
        let mut below = GoneBelow {
            all: Gone::default(),
            groups: vec![Gone::default(); self.groups.len()],
            nodes: vec![Gone::default(); self.nodes.len()],
        };
        // Callers precede their callees.
        for at in (0..self.nodes.len()).rev() {
            let node = &self.nodes[at];
            let gone = seen_from_above(&node.total, &below.nodes[at]);
            if node.parent != NONE {
                below.nodes[node.parent as usize].add(&gone);
            }
            if is_gone(&node.total) {
                below.nodes[at] = Gone::default();
            }
        }
        for (at, group) in (0..).zip(&self.groups) {
            let mut gone = Gone::default();
            for root in self.roots_of(at) {
                let root = root as usize;
                gone.add(&seen_from_above(&self.nodes[root].total, &below.nodes[root]));
            }
            if is_gone(&group.total) {
                // Also the time of stacks whose frames are all hidden.
                gone.total = group.total.before;
                gone.calls = gone.calls.max(1);
            } else {
                below.groups[at as usize] = gone;
            }
            below.all.add(&gone);
        }
        below
    }
}
