//! Adds up who woke whom in several profiles: times, counts and costs of all of them.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::wakeup::{Cost, PAIRS_MAX, Pair, SUM_MAX, Waker, Wakeups, Woken};

/// The sums so far.
#[derive(Default)]
pub struct JoinedWakeups {
    /// All but the pairs; `None` before the first.
    head: Option<Wakeups>,
    pairs: FxHashMap<(Woken, Waker), u64>,
    /// Of all pairs.
    counted: u64,
}

fn sum(a: u64, b: u64) -> u64 {
    a.saturating_add(b).min(SUM_MAX)
}

impl JoinedWakeups {
    /// Adds counts that began at `from` of the common clock. `pid` returns the merged number of a
    /// process.
    pub fn add(&mut self, wakeups: &Wakeups, from: Ns, mut pid: impl FnMut(u32) -> u32) {
        let head = self.head.get_or_insert_with(|| Wakeups {
            from,
            duration_ns: 0,
            pairs: Vec::new(),
            lost: 0,
            seen: 0,
            cost: Cost::Measured(0),
        });
        head.from = head.from.min(from);
        head.duration_ns = sum(head.duration_ns, wakeups.duration_ns);
        head.lost = sum(head.lost, wakeups.lost);
        head.seen = sum(head.seen, wakeups.seen);
        head.cost = match (head.cost, wakeups.cost) {
            (Cost::Measured(a), Cost::Measured(b)) => Cost::Measured(sum(a, b)),
            (Cost::Measured(a) | Cost::Estimated(a), Cost::Measured(b) | Cost::Estimated(b)) => {
                Cost::Estimated(sum(a, b))
            }
        };
        for Pair { waker, woken, count } in &wakeups.pairs {
            let woken = Woken { pid: pid(woken.pid), ..*woken };
            let mut waker = waker.clone();
            if let Waker::Thread { pid: of, .. } = &mut waker {
                *of = pid(*of);
            }
            let count = (*count).min(SUM_MAX - self.counted);
            let is_full = self.pairs.len() >= PAIRS_MAX;
            match self.pairs.get_mut(&(woken, waker.clone())) {
                Some(known) => *known += count,
                None if is_full => {
                    head.lost = sum(head.lost, count);
                    continue;
                }
                None => drop(self.pairs.insert((woken, waker), count)),
            }
            self.counted += count;
        }
    }

    pub fn finish(self) -> Option<Wakeups> {
        let pair = |((woken, waker), count)| Pair { waker, woken, count };
        let mut pairs: Vec<Pair> = self.pairs.into_iter().map(pair).collect();
        pairs.sort_by(|a, b| {
            let key = |pair: &Pair| (Reverse(pair.count), pair.woken);
            key(a).cmp(&key(b)).then_with(|| a.waker.cmp(&b.waker))
        });
        self.head.map(|head| Wakeups { pairs, ..head })
    }
}
