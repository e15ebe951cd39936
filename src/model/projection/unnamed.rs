//! How much time has stacks of which names are still read.

use rustc_hash::FxHashMap;

use super::columns::Columns;
use crate::model::facts::tables::{StackId, Tables};
use crate::model::projection::settings::Metric;

/// Returns the wall time of stacks with frames whose names are still read. `shown`: stacks, and
/// where `sums` has their time.
pub(super) fn unnamed_ns(
    tables: &Tables,
    sums: &Columns,
    shown: impl Iterator<Item = (StackId, u32)>,
) -> u64 {
    let mut known: FxHashMap<StackId, bool> = FxHashMap::default();
    let mut way = Vec::new();
    let mut is_unnamed = |stack: StackId| {
        let mut at = stack;
        let unnamed = loop {
            if at == StackId::EMPTY {
                break false;
            } else if let Some(unnamed) = known.get(&at) {
                break *unnamed;
            }
            way.push(at);
            if tables.named(tables.top(at)).pending {
                break true;
            }
            at = tables.parent(at);
        };
        known.extend(way.drain(..).map(|at| (at, unnamed)));
        unnamed
    };
    let unnamed = shown.filter(|(stack, _)| is_unnamed(*stack));
    unnamed.map(|(_, at)| sums.value(at, Metric::Wall)).sum()
}
