//! A table of facts that still grows: found by key, published as shared chunks. Also folds facts if
//! there are too many.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::facts::chunks::Chunks;
use crate::model::facts::fact::{Fact, FactKey, Weights, merged_thread};
use crate::model::facts::tables::{BlockerId, NameId, StackId};
use crate::model::vocabulary::frame::ThreadKey;
use crate::model::vocabulary::state::RawState;

/// Facts in chunks of 20 KB: the amount that a change after a snapshot copies.
pub type FactChunks = Chunks<Fact, 256>;

/// Memory of a fact in a [`FactTable`], including the index, bytes.
pub const BYTES_PER_FACT: usize = 192;

#[derive(Default)]
pub struct FactTable {
    facts: FactChunks,
    index: FxHashMap<FactKey, u32>,
    /// The slot that was used last: a thread's time, CPU time and hits arrive one by one.
    last: usize,
}

impl FactTable {
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    pub fn facts(&self) -> &FactChunks {
        &self.facts
    }

    pub fn contains(&self, key: &FactKey) -> bool {
        self.index.contains_key(key)
    }

    /// Returns the weights of `key`, initially zero.
    pub fn entry(&mut self, key: &FactKey) -> &mut Weights {
        let slot = match self.facts.get(self.last) {
            Some((last, _)) if last == key => self.last,
            _ => match self.index.get(key) {
                Some(slot) => *slot as usize,
                None => {
                    let slot = self.facts.len();
                    self.facts.push((*key, Weights::default()));
                    self.index.insert(*key, slot as u32);
                    slot
                }
            },
        };
        self.last = slot;
        let (_, weights) = self.facts.get_mut(slot).expect("the index names existing slots");
        weights
    }

    /// Moves the facts of every thread for which `gone` holds to the merged thread of its process.
    pub fn merge_threads(&mut self, gone: impl Fn(&ThreadKey) -> bool) {
        let mut slot = 0;
        while let Some((key, _)) = self.facts.get(slot) {
            let merged = merged_thread(key.thread.pid);
            if key.thread == merged || !gone(&key.thread) {
                slot += 1;
                continue;
            }
            let Some((key, weights)) = self.facts.swap_remove(slot) else { break };
            self.index.remove(&key);
            if let Some((moved, _)) = self.facts.get(slot) {
                self.index.insert(*moved, slot as u32);
            }
            self.entry(&FactKey { thread: merged, ..key }).add(&weights);
        }
    }

    /// Folds the smallest facts until at most `limit` are left; see [`fold`]. Returns the number
    /// folded.
    pub fn fold(&mut self, limit: usize, hard: usize, other: StackId, groups: &[NameId]) -> u64 {
        let facts = self.facts.iter().copied().collect();
        let (facts, folded) = fold(facts, limit, hard, other, groups);
        *self = FactTable::default();
        for (key, weights) in facts {
            self.entry(&key).add(&weights);
        }
        folded
    }

    /// Returns the memory used, including the index, bytes.
    pub fn bytes(&self) -> usize {
        self.facts.bytes() + self.index.capacity() * (size_of::<(FactKey, u32)>() + 1) * 8 / 7
    }
}

/// Folds the smallest facts into the stack `other`, with the same thread, name and state. Stops at
/// `limit` facts, or where those are more, at one per (thread, name, state) and half of `limit`; at
/// most at `hard`.
///
/// If threads, names and states alone are more than `hard`, merges threads by name before. If still
/// more, merges names by group (`groups`, indexed by name). If still more, drops the names. Sums do
/// not change. Returns the number of facts removed.
pub fn fold(
    mut facts: Vec<Fact>,
    limit: usize,
    hard: usize,
    other: StackId,
    groups: &[NameId],
) -> (Vec<Fact>, u64) {
    let before = facts.len();
    if before <= limit {
        return (facts, 0);
    }
    let merged = |key: FactKey| FactKey { thread: merged_thread(key.thread.pid), ..key };
    let group = |name: NameId| groups.get(name.0 as usize).copied().unwrap_or(name);
    let by_group = |key: FactKey| FactKey { name: group(key.name), ..key };
    let without_names = |key: FactKey| FactKey { name: NameId::OTHER, ..key };
    let steps: [&dyn Fn(FactKey) -> FactKey; 3] = [&merged, &by_group, &without_names];
    let mut held = holders(&facts);
    for step in steps {
        if held <= hard {
            break;
        }
        facts = rename(facts, step);
        held = holders(&facts);
    }
    let most = limit.max((held + limit / 2).min(hard));
    if facts.len() > most {
        facts = fold_stacks(facts, most, other);
    }
    let folded = (before - facts.len()) as u64;
    (facts, folded)
}

/// Returns the key with another stack. What was waited for in the former one is forgotten.
fn in_stack(key: FactKey, stack: StackId) -> FactKey {
    FactKey { stack, blocker: BlockerId::NONE, ..key }
}

/// Sums facts under new keys.
pub fn rename(facts: Vec<Fact>, new: impl Fn(FactKey) -> FactKey) -> Vec<Fact> {
    let mut sums: FxHashMap<FactKey, Weights> = FxHashMap::default();
    for (key, weights) in facts {
        sums.entry(new(key)).or_default().add(&weights);
    }
    sums.into_iter().collect()
}

/// Unit of times in merged buckets, ns: ten microseconds. Finer digits mean nothing in a sum of
/// that many hits, and would be most of a file's size.
pub const GRAIN: u64 = 10_000;

/// Rounds times down to multiples of [`GRAIN`]. The remainder goes to the next fact of the same
/// thread, name and state, and the last of them keeps it. So their sums do not change, and no fact
/// is off by a grain.
pub fn round(facts: &mut [Fact]) {
    facts.sort_unstable_by_key(|(key, _)| (holder(key), key.stack));
    for same in facts.chunk_by_mut(|(a, _), (b, _)| holder(a) == holder(b)) {
        let (mut wall, mut cpu) = (0, 0);
        for (_, weights) in same.iter_mut() {
            for (carried, value) in
                [(&mut wall, &mut weights.wall_ns), (&mut cpu, &mut weights.cpu_ns)]
            {
                let all = value.saturating_add(*carried);
                *value = all / GRAIN * GRAIN;
                *carried = all % GRAIN;
            }
        }
        if let Some((_, last)) = same.last_mut() {
            last.wall_ns += wall;
            last.cpu_ns += cpu;
        }
    }
}

type Holder = (ThreadKey, NameId, RawState);

fn holder(key: &FactKey) -> Holder {
    (key.thread, key.name, key.state)
}

/// Returns the number of different holders.
fn holders(facts: &[Fact]) -> usize {
    facts.iter().map(|(key, _)| holder(key)).collect::<FxHashSet<Holder>>().len()
}

fn fold_stacks(mut facts: Vec<Fact>, limit: usize, other: StackId) -> Vec<Fact> {
    // Smallest first, equal ones by key, so that equal facts are folded equally.
    facts.sort_unstable_by_key(|(key, weights)| (weights.wall_ns.max(weights.cpu_ns), *key));
    // Folding the first fact of a holder without an `other` removes none; each further one removes
    // one.
    let mut folds: FxHashMap<Holder, u32> = FxHashMap::default();
    for (key, _) in facts.iter().filter(|(key, _)| key.stack == other) {
        folds.insert(holder(key), 1);
    }
    let mut marked = vec![false; facts.len()];
    let mut left = facts.len();
    for (at, (key, _)) in facts.iter().enumerate() {
        if left <= limit {
            break;
        }
        if key.stack == other {
            continue;
        }
        let count = folds.entry(holder(key)).or_insert(0);
        left -= usize::from(*count > 0);
        *count += 1;
        marked[at] = true;
    }
    let mut kept = Vec::with_capacity(left);
    let mut folded = Vec::new();
    for ((key, weights), marked) in facts.into_iter().zip(marked) {
        // A single fact of a holder is kept as it is.
        if key.stack == other
            || (marked && folds.get(&holder(&key)).is_some_and(|count| *count > 1))
        {
            folded.push((in_stack(key, other), weights));
        } else {
            kept.push((key, weights));
        }
    }
    kept.extend(rename(folded, |key| key));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::vocabulary::state::State;

    const OTHER: StackId = StackId(1);

    fn fact(tid: u32, stack: u32, wall_ns: u64) -> Fact {
        let thread = ThreadKey { pid: 1, tid, start: 9 };
        let state = RawState::Known(State::Run);
        let key = FactKey::new(thread, NameId(tid), StackId(stack), state);
        (key, Weights { wall_ns, cpu_ns: wall_ns / 2, hits: 1, ..Weights::default() })
    }

    fn sorted(mut facts: Vec<Fact>) -> Vec<Fact> {
        facts.sort_unstable_by_key(|f| f.0);
        facts
    }

    #[test]
    fn the_smallest_fold_and_keep_their_thread() {
        let facts =
            vec![fact(1, 10, 5), fact(1, 11, 50), fact(1, 12, 7), fact(1, 13, 100), fact(2, 10, 1)];
        let (facts, folded) = fold(facts, 4, 100, OTHER, &[]);
        let mut other = fact(1, OTHER.0, 12);
        other.1.cpu_ns = 2 + 3;
        other.1.hits = 2;
        // Thread 2's only fact is even smaller, but folding it would remove none.
        let expected = vec![other, fact(1, 11, 50), fact(1, 13, 100), fact(2, 10, 1)];
        assert_eq!((sorted(facts), folded), (sorted(expected), 1));
    }

    #[test]
    fn rounding_keeps_the_sum_of_each_thread() {
        let grain = GRAIN;
        let mut facts = vec![
            fact(1, 10, grain + 7),
            fact(1, 11, 3 * grain - 5),
            fact(1, 12, 2),
            fact(1, 13, grain),
            fact(2, 10, grain / 2),
            fact(2, 11, grain / 2 + 1),
        ];
        round(&mut facts);
        let wall: Vec<u64> = sorted(facts).iter().map(|(_, weights)| weights.wall_ns).collect();
        assert_eq!(wall, [grain, 3 * grain, 0, grain + 4, 0, grain + 1]);
    }

    #[test]
    fn too_many_threads_merge_per_name_then_all() {
        let facts: Vec<Fact> = (0..50).map(|tid| fact(tid, 10, 3)).collect();
        let (kept, _) = fold(facts.clone(), 10, 50, OTHER, &[]);
        assert_eq!(kept.len(), 50, "one fact per thread stays");
        let same_name: Vec<Fact> =
            facts.iter().map(|(k, w)| (FactKey { name: NameId(5), ..*k }, *w)).collect();
        let (merged, folded) = fold(same_name, 10, 49, OTHER, &[]);
        assert_eq!((merged.len(), folded, merged[0].1.wall_ns, merged[0].1.hits), (1, 49, 150, 50));
        assert_eq!((merged[0].0.thread, merged[0].0.stack), (merged_thread(1), StackId(10)));
        let (merged, _) = fold(facts, 10, 49, OTHER, &[]);
        assert_eq!((merged.len(), merged[0].1.wall_ns, merged[0].0.name), (1, 150, NameId::OTHER));
    }

    #[test]
    fn too_many_threads_keep_the_heaviest_stacks_of_all() {
        // Each thread runs in a stack that all have, and in one of its own.
        let facts: Vec<Fact> =
            (0..50).flat_map(|tid| [fact(tid, 10, 30), fact(tid, 100 + tid, tid.into())]).collect();
        let groups: Vec<NameId> = (0..50).map(|tid| NameId(tid % 2)).collect();
        let (kept, folded) = fold(facts, 8, 49, OTHER, &groups);
        let kept = sorted(kept).into_iter().map(|(key, weights)| {
            assert_eq!(key.thread, merged_thread(1));
            (key.name.0, key.stack.0, weights.wall_ns)
        });
        let kept: Vec<_> = kept.collect();
        let of_even = [(0, OTHER.0, (0..46).step_by(2).sum()), (0, 10, 750), (0, 146, 46)];
        let of_odd = [(1, OTHER.0, (1..46).step_by(2).sum()), (1, 10, 750), (1, 147, 47)];
        let expected = [&of_even[..], &[(0, 148, 48)], &of_odd, &[(1, 149, 49)]].concat();
        assert_eq!((kept, folded), (expected, 100 - 8));
    }

    #[test]
    fn more_threads_than_facts_leave_room_for_the_heaviest_stacks() {
        let mut facts: Vec<Fact> =
            (1..=30).flat_map(|tid| [fact(tid, 10, 1), fact(tid, 11, 2)]).collect();
        facts.extend((0..10).map(|stack| fact(0, 20 + stack, u64::from(100 + stack))));
        let (kept, folded) = fold(facts, 10, 60, OTHER, &[]);
        // One for each thread, and half of the limit.
        assert_eq!((kept.len(), folded), (31 + 5, 34));
        let busy = sorted(kept).into_iter().filter(|(key, _)| key.name == NameId(0));
        let stacks: Vec<u32> = busy.map(|(key, _)| key.stack.0).collect();
        assert_eq!(stacks, [OTHER.0, 25, 26, 27, 28, 29]);
    }

    #[test]
    fn a_table_finds_its_facts_after_threads_merged() {
        let mut table = FactTable::default();
        for tid in 1..600 {
            let (key, weights) = fact(tid, tid % 3 + 10, 10);
            table.entry(&FactKey { name: NameId(7), ..key }).add(&weights);
        }
        table.merge_threads(|thread| thread.tid % 2 == 0);
        assert_eq!(table.len(), 300 + 3);
        let total: u64 = table.facts().iter().map(|(_, w)| w.wall_ns).sum();
        assert_eq!(total, 599 * 10);
        let keys: Vec<FactKey> = table.facts().iter().map(|f| f.0).collect();
        for key in keys {
            table.entry(&key).hits += 1000;
        }
        assert_eq!(table.len(), 303, "every key was found again");
        assert!(table.facts().iter().all(|(_, w)| w.hits >= 1000));
    }
}
