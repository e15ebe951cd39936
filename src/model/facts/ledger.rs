//! Places the booked time of one thread: each moment once. Writes it to the buckets and to the log
//! of spans.
//!
//! The parts between two readings of a thread's counters are known by length: it ran for 4 ms, then
//! it waited. A sample or a wait says about where such a part was. Two of them may want the same
//! moment. The later one to be booked then gets the nearest moments that are free. So a thread's
//! time in any range is the time for which it was observed there, as far as it is booked.

use crate::model::facts::buckets::{Buckets, Split};
use crate::model::facts::fact::FactKey;
use crate::model::facts::span_log::Span;
use crate::model::facts::tables::BlockerId;
use crate::model::vocabulary::frame::{Ns, SECOND};
use crate::model::vocabulary::state::{RawState, State};

/// Maximum time for which a span grows, ns. So the log can drop what is old.
const MAX_SPAN: Ns = 10 * SECOND;

/// Maximum holes in a thread's booked time. Beyond it the oldest are filled first.
const MAX_HOLES: usize = 8;

/// The moments of a thread that have no booked time yet: disjoint, oldest first. The last one has
/// no end.
struct Free(Vec<(Ns, Ns)>);

impl Free {
    fn new(from: Ns) -> Free {
        Free(vec![(from, Ns::MAX)])
    }

    /// Takes `amount` of free time, in `from..till` where possible, else as near as possible,
    /// before rather than after it. Calls `f` with each part.
    fn take(&mut self, from: Ns, till: Ns, amount: Ns, mut f: impl FnMut(Ns, Ns)) {
        if amount == 0 {
            return;
        }
        if let [(start, _)] = &mut self.0[..]
            && *start == from
            && till - from == amount
        {
            *start = till;
            return f(from, till);
        }
        let from = if self.0.len() > MAX_HOLES { 0 } else { from };
        let mut left = amount;
        let mut at = self.0.partition_point(|(_, end)| *end <= from);
        while left > 0 && self.0[at].0.max(from) < till {
            let (start, end) = self.0[at];
            let start = start.max(from);
            let end = end.min(till).min(start.saturating_add(left));
            left -= end - start;
            f(start, end);
            at = self.carve(at, start, end);
        }
        let mut at = self.0.partition_point(|(start, _)| *start < from);
        while left > 0 && at > 0 {
            at -= 1;
            let (start, end) = self.0[at];
            let end = end.min(from);
            let start = start.max(end.saturating_sub(left));
            left -= end - start;
            f(start, end);
            self.carve(at, start, end);
        }
        let mut at = self.0.partition_point(|(start, _)| *start < till);
        while left > 0 {
            let (start, end) = self.0[at];
            let end = end.min(start.saturating_add(left));
            left -= end - start;
            f(start, end);
            at = self.carve(at, start, end);
        }
    }

    /// Removes `start..end` from the interval `at`. Returns the index of what follows it.
    fn carve(&mut self, at: usize, start: Ns, end: Ns) -> usize {
        let (before, after) = ((self.0[at].0, start), (end, self.0[at].1));
        match (before.0 < before.1, after.0 < after.1) {
            (true, true) => {
                self.0[at] = before;
                self.0.insert(at + 1, after);
                at + 1
            }
            (true, false) => {
                self.0[at] = before;
                at + 1
            }
            (false, true) => {
                self.0[at] = after;
                at
            }
            (false, false) => {
                self.0.remove(at);
                at
            }
        }
    }
}

pub struct Ledger {
    free: Free,
    /// The newest span, which may grow.
    open: Option<Span>,
}

impl Ledger {
    /// Creates the ledger of a thread that is observed from `from` on.
    pub fn new(from: Ns) -> Ledger {
        Ledger { free: Free::new(from), open: None }
    }

    /// Returns the span that may still grow.
    pub fn open(&self) -> Option<Span> {
        self.open
    }

    /// Forgets the span that may still grow: ids have changed.
    pub fn forget(&mut self) {
        self.open = None;
    }

    /// Writes the last span to the log: the thread has ended.
    pub fn finish(&mut self, buckets: &mut Buckets) {
        self.open.take().into_iter().for_each(|span| buckets.log().push(span));
    }

    /// Books the span `from..till` to `key`. `ready` of it, spread evenly over the buckets, is
    /// waiting for a core, at the end of each part. `wait`: the start of the unbroken wait that
    /// includes this span.
    pub fn wall(
        &mut self,
        key: &FactKey,
        from: Ns,
        till: Ns,
        ready: Ns,
        wait: Option<Ns>,
        buckets: &mut Buckets,
    ) {
        if from >= till {
            return;
        }
        if ready == 0 {
            return self.place(key, (from, till), till - from, wait, buckets);
        }
        let ready_key = ready_key(key);
        let mut split = Split::new(ready.min(till - from), till - from);
        let mut at = from;
        while at < till {
            let next = buckets.end_of(at, till);
            let ready = split.next(next - at);
            let woken = next - ready;
            self.place(key, (at, woken), woken - at, wait, buckets);
            self.place(&ready_key, (woken, next), ready, None, buckets);
            at = next;
        }
    }

    /// Books wall and CPU time that was spent within `from..till`, spread evenly over the buckets.
    pub fn spread(
        &mut self,
        key: &FactKey,
        from: Ns,
        till: Ns,
        wall: Ns,
        cpu: Ns,
        buckets: &mut Buckets,
    ) {
        if from >= till {
            self.place(key, (till, till), wall, None, buckets);
            self.count(key, till, cpu, 0, 0, buckets);
            return;
        }
        let (mut wall, mut cpu) = (Split::new(wall, till - from), Split::new(cpu, till - from));
        let mut at = from;
        while at < till && wall.is_left() | cpu.is_left() {
            let next = buckets.end_of(at, till);
            self.place(key, (at, next), wall.next(next - at), None, buckets);
            self.count(key, at, cpu.next(next - at), 0, 0, buckets);
            at = next;
        }
    }

    /// Books CPU time and hits of one moment.
    pub fn count(
        &mut self,
        key: &FactKey,
        at: Ns,
        cpu_ns: Ns,
        hits: u32,
        cpu_hits: u32,
        buckets: &mut Buckets,
    ) {
        let counted = Span::at(*key, at, cpu_ns, hits, cpu_hits);
        if counted.is_plain() {
            return;
        }
        let weights = buckets.entry(at, key);
        weights.cpu_ns += cpu_ns;
        weights.hits += hits;
        weights.cpu_hits += cpu_hits;
        let log = buckets.log();
        if let Some(open) = &mut self.open
            && open.key == *key
            && log.second(open.from) == log.second(at)
            && ((open.from..=open.till).contains(&at) || open.from == open.till)
        {
            open.cpu_ns += cpu_ns;
            open.hits += hits;
            open.cpu_hits += cpu_hits;
            return;
        }
        self.open.replace(counted).into_iter().for_each(|span| log.push(span));
    }

    /// Returns the free moments for the time `from..till`, which another account books.
    pub fn reserve(&mut self, from: Ns, till: Ns) -> Vec<(Ns, Ns)> {
        let mut parts = Vec::new();
        self.free
            .take(from, till, till.saturating_sub(from), |from, till| parts.push((from, till)));
        parts
    }

    fn place(
        &mut self,
        key: &FactKey,
        (from, till): (Ns, Ns),
        amount: Ns,
        wait: Option<Ns>,
        buckets: &mut Buckets,
    ) {
        let Ledger { free, open } = self;
        let wanted = (from, till);
        let mut placed = None;
        free.take(from, till, amount, |from, till| {
            placed = Some((from, till));
            buckets.wall(key, from, till, wait.filter(|_| wanted == (from, till)));
            let log = buckets.log();
            let grown = open.as_mut().filter(|open| {
                let is_instant = open.from == open.till;
                let continues = open.till == from && till - open.from <= MAX_SPAN;
                let contains = is_instant && (from..=till).contains(&open.from);
                let same_second = contains && log.second(open.from) == log.second(from);
                open.key == *key && (same_second || continues && !contains)
            });
            let span = match grown {
                Some(span) => {
                    span.from = span.from.min(from);
                    span.till = till;
                    span
                }
                None => {
                    open.take().into_iter().for_each(|span| log.push(span));
                    open.insert(Span::new(*key, from, till))
                }
            };
            if let Some(began) = wait {
                span.note_wait(began, till);
            }
        });
        // What a wait lasted does not depend on where its time found room.
        if let Some(began) = wait
            && placed != Some(wanted)
        {
            buckets.note_wait(key, from, till, began);
        }
    }
}

/// Returns the key of the same thread and stack that waits for a core.
pub fn ready_key(key: &FactKey) -> FactKey {
    FactKey { state: RawState::Known(State::Rdy), blocker: BlockerId::NONE, ..*key }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is taken is disjoint, of the wanted length, and as wanted where nothing was taken.
        #[test]
        fn each_moment_is_taken_once(
            wanted in prop::collection::vec((0u64..1_000, 0u64..60, 0u64..100), 1..40),
        ) {
            let mut free = Free::new(100);
            let mut taken: Vec<(Ns, Ns)> = Vec::new();
            for (from, length, percent) in wanted {
                let (till, amount) = (from + length, length * percent.min(100) / 100);
                let before = taken.clone();
                let is_free = |from, till| before.iter().all(|(a, b)| till <= *a || *b <= from);
                let mut got = 0;
                free.take(from, till, amount, |from, till| {
                    got += till - from;
                    taken.push((from, till));
                });
                prop_assert_eq!(got, amount);
                if amount == length && from >= 100 && is_free(from, till) && free.0.len() < MAX_HOLES {
                    prop_assert!(amount == 0 || taken.last() == Some(&(from, till)));
                }
            }
            taken.retain(|(from, till)| from < till);
            taken.sort_unstable();
            prop_assert!(taken.iter().all(|(from, _)| *from >= 100));
            prop_assert!(taken.windows(2).all(|two| two[0].1 <= two[1].0), "{:?}", taken);
        }
    }

    #[test]
    fn what_has_no_room_goes_before_it_and_then_after_it() {
        let mut free = Free::new(0);
        let mut take = |from, till| {
            let mut parts = Vec::new();
            free.take(from, till, till - from, |a, b| parts.push((a, b)));
            parts
        };
        assert_eq!(take(40, 60), [(40, 60)]);
        assert_eq!(take(50, 70), [(60, 70), (30, 40)]);
        assert_eq!(take(30, 70), [(0, 30), (70, 80)]);
        assert_eq!(take(10, 20), [(80, 90)]);
    }
}
