//! Finds the moments in which many threads waited together, apart from which they do not wait:
//! hiccups.

use rustc_hash::FxHashMap;

use crate::model::vocabulary::frame::{Ns, SECOND};

/// Waits of this duration are kept, up to this number for one exit from the user's code: of what
/// happens more often one does not say when.
const LONG: Ns = SECOND / 10;
const MAX_KEPT: usize = 256;
/// This number of threads wait together, for as long as a wait that is kept.
const MIN_THREADS: u32 = 4;
/// Maximum moments of a range, and maximum part of it that they take.
const MAX_TIMES: u32 = 10;
const MAX_PART: f64 = 0.2;
/// Of the waited time this part is of those moments.
const MIN_SHARE: f64 = 0.8;

/// Long waits of one exit from the user's code: by thread and start, the longest duration seen, ns.
#[derive(Default)]
pub(super) struct LongWaits {
    waits: FxHashMap<(u32, Ns), Ns>,
    too_many: bool,
}

/// Moments in which many threads waited together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bursts {
    pub times: u32,
    /// When the last one began.
    pub last_from: Ns,
    /// The longest time that [`MIN_THREADS`] threads at least waited together, ns, and the most
    /// threads of one moment.
    pub longest_ns: u64,
    pub threads: u32,
}

impl LongWaits {
    /// Adds the longest wait of a thread in a bucket.
    pub(super) fn add(&mut self, thread: u32, from: Ns, ns: u64) {
        if ns < LONG || self.too_many {
            return;
        }
        let known = self.waits.entry((thread, from)).or_default();
        *known = ns.max(*known);
        if self.waits.len() > MAX_KEPT {
            (self.waits, self.too_many) = (FxHashMap::default(), true);
        }
    }

    /// Returns the moments in a range of this duration; `None` if threads also wait apart from
    /// them. `waited_ns`: by all of them, in all waits.
    pub(super) fn bursts(&self, waited_ns: u64, range: Ns) -> Option<Bursts> {
        if (self.waits.len() as u32) < MIN_THREADS {
            return None;
        }
        let starts = self.waits.keys().map(|(_, from)| (*from, 1i32));
        let ends = self.waits.iter().map(|((_, from), ns)| (from + ns, -1));
        let mut edges: Vec<(Ns, i32)> = starts.chain(ends).collect();
        // An end goes before a start at the same time.
        edges.sort_unstable();
        let (mut waiting, mut since, mut threads) = (0u32, None, 0);
        let mut found = Bursts { times: 0, last_from: 0, longest_ns: 0, threads: 0 };
        let (mut together_ns, mut whole_ns) = (0, 0);
        let mut before = 0;
        for (at, step) in edges {
            if since.is_some() {
                together_ns += u64::from(waiting) * (at - before);
            }
            before = at;
            waiting = waiting.saturating_add_signed(step);
            threads = threads.max(waiting);
            match since {
                None if waiting >= MIN_THREADS => (since, threads) = (Some(at), waiting),
                Some(from) if waiting < MIN_THREADS => {
                    since = None;
                    whole_ns += at - from;
                    if at - from >= LONG {
                        found.times += 1;
                        found.last_from = from;
                        found.longest_ns = found.longest_ns.max(at - from);
                        found.threads = found.threads.max(threads);
                    }
                }
                _ => {}
            }
        }
        let is_rare = whole_ns as f64 <= range as f64 * MAX_PART && found.times <= MAX_TIMES;
        let is_most = together_ns as f64 >= waited_ns as f64 * MIN_SHARE;
        (found.times > 0 && is_rare && is_most).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = SECOND / 1000;

    /// Waits of threads 0..: starts and durations, ms.
    fn bursts(waits: &[(u64, u64)], others_ms: u64, range_s: u64) -> Option<Bursts> {
        let mut long = LongWaits::default();
        for (thread, (from, ms)) in (0..).zip(waits) {
            long.add(thread, from * MS, ms * MS);
        }
        let waited: u64 = waits.iter().map(|(_, ms)| ms * MS).sum();
        long.bursts(waited + others_ms * MS, range_s * SECOND)
    }

    const FOUR: [(u64, u64); 4] = [(5000, 300), (5010, 290), (5005, 295), (5020, 290)];

    #[test]
    fn threads_that_wait_together_once_are_a_burst() {
        let expected = Bursts { times: 1, last_from: 5020 * MS, longest_ns: 280 * MS, threads: 4 };
        assert_eq!(bursts(&FOUR, 0, 10), Some(expected));
        assert_eq!(bursts(&FOUR[..3], 0, 10), None, "three threads");
        let short = FOUR.map(|(from, _)| (from, 110));
        assert_eq!(bursts(&short, 0, 10), None, "together for 90 ms");
    }

    #[test]
    fn what_also_happens_apart_from_them_is_no_burst() {
        let waited: u64 = FOUR.iter().map(|(_, ms)| ms).sum();
        let together = 280 * 4 + 10 + 10 + 10;
        assert!(together < waited);
        assert!(bursts(&FOUR, 100, 10).is_some());
        assert_eq!(bursts(&FOUR, 300, 10), None, "less than 80 % of the waits");
        assert_eq!(bursts(&FOUR, 0, 1), None, "28 % of the range");
    }

    #[test]
    fn several_are_counted_and_many_are_none() {
        let times = |times: u64| -> Vec<(u64, u64)> {
            (0..times).flat_map(|nth| FOUR.map(|(from, ms)| (from + 2000 * nth, ms))).collect()
        };
        let found = bursts(&times(10), 0, 100).expect("bursts");
        assert_eq!((found.times, found.last_from), (10, 23_020 * MS));
        assert_eq!(bursts(&times(11), 0, 100), None);
        assert_eq!(bursts(&times(65), 0, 10_000), None, "more waits than are kept");
    }

    #[test]
    fn a_wait_that_goes_on_in_the_next_bucket_is_one() {
        let mut long = LongWaits::default();
        for thread in 0..4 {
            long.add(thread, 900 * MS, 100 * MS);
            long.add(thread, 900 * MS, 250 * MS);
        }
        let found = long.bursts(1000 * MS, 10 * SECOND).expect("a burst");
        assert_eq!((found.longest_ns, found.threads), (250 * MS, 4));
    }
}
