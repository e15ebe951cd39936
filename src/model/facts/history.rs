//! History as a snapshot reads it: buckets of time, and the cumulative table.
//! [`crate::model::facts::buckets::Buckets`] writes it.

use std::borrow::Borrow;
use std::sync::Arc;

pub use crate::model::facts::fact::{Fact, FactKey, Weights};
use crate::model::facts::fact_table::FactChunks;
use crate::model::facts::packed::Packed;
pub use crate::model::facts::span_log::{Span, Spans};
use crate::model::vocabulary::frame::{Ns, SECOND};

/// The part of history to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// The last given ns, up to the newest tick.
    Rolling(Ns),
    /// Since the start, or since the mark `since` (CLOCK_MONOTONIC).
    Cumulative { since: Option<Ns> },
    /// The time `from..till` (CLOCK_MONOTONIC): exactly where [`Spans`] have it, else the buckets
    /// that overlap it.
    Between { from: Ns, till: Ns },
}

/// A bucket that may still receive time.
#[derive(Clone, Debug)]
pub(super) struct OpenBucket {
    pub start: Ns,
    pub end: Ns,
    pub facts: FactChunks,
}

/// All kept buckets, and the cumulative table. Cloning copies only pointers.
#[derive(Clone, Debug)]
pub struct History {
    pub(super) started: Ns,
    /// Time up to which facts are booked.
    pub(super) at: Ns,
    /// Oldest first; none overlaps `open`.
    pub(super) sealed: Arc<[Arc<Packed>]>,
    pub(super) open: Arc<[OpenBucket]>,
    /// The sum of all buckets ever sealed.
    pub(super) cumulative: FactChunks,
    /// The last two minutes in order.
    pub(super) spans: Spans,
}

impl Default for History {
    fn default() -> History {
        History {
            started: 0,
            at: 0,
            sealed: Arc::new([]),
            open: Arc::new([]),
            cumulative: FactChunks::default(),
            spans: Spans::default(),
        }
    }
}

/// The history as a file holds it. Buckets are oldest first.
#[derive(Debug, Default)]
pub struct Parts {
    pub started: Ns,
    /// Time up to which facts are booked.
    pub at: Ns,
    pub sealed: Vec<Packed>,
    /// Buckets that the cumulative table does not include yet.
    pub open: Vec<Packed>,
    pub cumulative: Vec<Fact>,
    /// No span begins before `started`.
    pub spans: Spans,
}

impl History {
    /// Builds a history. `None` if buckets are empty spans, overlap, or are out of order.
    pub fn from_parts(parts: Parts) -> Option<History> {
        let mut till = 0;
        for bucket in parts.sealed.iter().chain(&parts.open) {
            if bucket.start < till || bucket.end <= bucket.start {
                return None;
            }
            till = bucket.end;
        }
        let chunks = |facts: &mut dyn Iterator<Item = Fact>| {
            let mut chunks = FactChunks::default();
            facts.for_each(|fact| chunks.push(fact));
            chunks
        };
        Some(History {
            started: parts.started,
            at: parts.at,
            sealed: parts.sealed.into_iter().map(Arc::new).collect(),
            open: (parts.open.iter())
                .map(|open| OpenBucket {
                    start: open.start,
                    end: open.end,
                    facts: chunks(&mut open.iter()),
                })
                .collect(),
            cumulative: chunks(&mut parts.cumulative.into_iter()),
            spans: parts.spans,
        })
    }

    /// Returns the start of the buckets, and the time up to which facts are booked.
    pub fn span(&self) -> (Ns, Ns) {
        (self.started, self.at)
    }

    /// Returns the buckets of [`Parts::sealed`].
    pub fn sealed(&self) -> &[Arc<Packed>] {
        &self.sealed
    }

    /// Returns the buckets of [`Parts::open`].
    pub fn open(&self) -> impl DoubleEndedIterator<Item = Packed> + ExactSizeIterator {
        let pack = |open: &OpenBucket| {
            Packed::new(open.start, open.end, open.facts.iter().copied().collect())
        };
        self.open.iter().map(pack)
    }

    /// Returns what the threads did in order. Merged profiles, profiles of other tools and files of
    /// older versions have none.
    pub fn spans(&self) -> &Spans {
        &self.spans
    }

    /// Returns the history of whole seconds, without what the threads did in order.
    pub fn without_spans(self) -> History {
        History { spans: Spans::default(), ..self }
    }

    /// Returns the part of a range that is read from the spans: a part of history that is not whole
    /// seconds, as far as it is booked. `None` where buckets are read: for whole seconds, whose
    /// sums are the same, and for time of which no spans are kept any more.
    pub fn exact(&self, range: Range) -> Option<(Ns, Ns)> {
        let Range::Between { from, till } = range else { return None };
        let kept = from >= self.spans.from() && from < till && from < self.at;
        (kept && !self.is_whole(from, till)).then_some((from, till.min(self.at)))
    }

    /// Returns whether more than the given part of history is read, because only seconds, or older
    /// buckets, are kept of it.
    pub fn is_widened(&self, range: Range) -> bool {
        match range {
            Range::Between { from, till } => {
                !self.is_whole(from, till) && self.exact(range).is_none()
            }
            Range::Rolling(_) | Range::Cumulative { .. } => false,
        }
    }

    /// Returns whether a part of history begins and ends with a second, or ends with the newest
    /// facts.
    fn is_whole(&self, from: Ns, till: Ns) -> bool {
        let is_whole =
            |at: Ns| at.checked_sub(self.started).is_some_and(|since| since.is_multiple_of(SECOND));
        is_whole(from) && (is_whole(till) || till >= self.at)
    }

    /// Returns the facts of [`Parts::cumulative`].
    pub fn cumulative(&self) -> &FactChunks {
        &self.cumulative
    }

    /// Calls `f` with every fact of `range`; a rolling one ends at `at`. The same key may come
    /// several times, once per bucket. `open` is zero: it is added to `hits` where it counts, in
    /// the range's first bucket.
    ///
    /// Returns the span that was read, `(from, till)`, ns: whole buckets. So the start is up to 1 s
    /// before the requested one, or that of the oldest kept bucket. Beyond an age of 10 minutes it
    /// is up to 10 s before, beyond 70 minutes up to 1 min. The end is that of the bucket that
    /// contains `at`, or the newest booked time. Where no bucket is kept, it is
    /// the requested span. Where the range is read from the spans, it is exactly the requested one:
    /// see [`History::exact`].
    ///
    /// Only `Range::Cumulative { since: None }` reads the cumulative table: everything since the
    /// session began, even if few buckets are kept.
    pub fn read(&self, range: Range, at: Ns, f: &mut dyn FnMut(&FactKey, &Weights)) -> (Ns, Ns) {
        self.read_by_bucket(range, at, &mut |_, key, weights| f(key, weights))
    }

    /// Does the same; `f` also gets the index of the fact's bucket in [`History::buckets`].
    pub fn read_by_bucket(
        &self,
        range: Range,
        at: Ns,
        f: &mut dyn FnMut(usize, &FactKey, &Weights),
    ) -> (Ns, Ns) {
        if let Some((from, till)) = self.exact(range) {
            self.spans.read(from, till, &mut |span, weights| f(0, &span.key, weights));
            return (from, till);
        }
        let Some(wanted) = self.wanted(range, at) else { return self.read_all(f) };
        let mut reader = Reader { read: None, nth: 0, f };
        for bucket in self.sealed.iter().filter(|b| wanted.includes(b.start, b.end)) {
            reader.bucket(bucket.start, bucket.end, bucket.iter());
        }
        for bucket in self.open.iter().filter(|b| wanted.includes(b.start, b.end)) {
            reader.bucket(bucket.start, bucket.end, bucket.facts.iter());
        }
        let (from, till) = reader.read.unwrap_or((wanted.from.min(wanted.at), wanted.at));
        (from, if wanted.now { self.at.max(from) } else { till.min(self.at).max(from) })
    }

    /// Returns the spans of the buckets that [`History::read`] reads, oldest first, as far as time
    /// is booked. Empty where it reads the cumulative table, whose facts have no time.
    pub fn buckets(&self, range: Range, at: Ns) -> Vec<(Ns, Ns)> {
        if let Some(exact) = self.exact(range) {
            return vec![exact];
        }
        let Some(wanted) = self.wanted(range, at) else { return Vec::new() };
        let sealed = self.sealed.iter().map(|bucket| (bucket.start, bucket.end));
        let open = self.open.iter().map(|bucket| (bucket.start, bucket.end));
        let spans = sealed.chain(open).filter(|(start, end)| wanted.includes(*start, *end));
        spans.map(|(start, end)| (start, end.min(self.at).max(start))).collect()
    }

    /// Returns all kept buckets, oldest first.
    pub fn kept(&self) -> impl Iterator<Item = Kept<'_>> {
        let kept =
            |from: Ns, end: Ns, facts| Kept { from, till: end.min(self.at).max(from), facts };
        let sealed = self.sealed.iter();
        let sealed =
            sealed.map(move |bucket| kept(bucket.start, bucket.end, KeptFacts::Sealed(bucket)));
        let open = self.open.iter();
        let open =
            open.map(move |bucket| kept(bucket.start, bucket.end, KeptFacts::Open(&bucket.facts)));
        sealed.chain(open)
    }

    /// Returns which buckets belong to the range; `None` for the cumulative table.
    fn wanted(&self, range: Range, at: Ns) -> Option<Wanted> {
        let (from, at) = match range {
            Range::Rolling(window) => {
                let at = at.clamp(self.started, self.at.max(self.started));
                (at.saturating_sub(window).max(self.started), at)
            }
            Range::Cumulative { since: Some(mark) } if mark > self.started => {
                (mark.min(self.at), self.at)
            }
            Range::Cumulative { .. } => return None,
            // Of an empty range, the bucket that contains it.
            Range::Between { from, till } => (from, till.max(from.saturating_add(1))),
        };
        // Includes the observations since the newest tick, which belong to "now".
        Some(Wanted { from, at, now: at >= self.at })
    }

    /// Returns whether the range ends before the newest facts.
    pub fn is_past(&self, range: Range) -> bool {
        matches!(range, Range::Between { till, .. } if till < self.at)
    }

    fn read_all(&self, f: &mut dyn FnMut(usize, &FactKey, &Weights)) -> (Ns, Ns) {
        // Waits already open at the start were counted when the first bucket was sealed. They may
        // still be in an open bucket.
        let mut reader = Reader { read: Some((self.started, self.started)), nth: 0, f };
        reader.bucket(self.started, self.started, self.cumulative.iter());
        for bucket in self.open.iter() {
            if bucket.start == self.started {
                reader.read = None;
            }
            reader.bucket(bucket.start, bucket.end, bucket.facts.iter());
        }
        (self.started, self.at.max(self.started))
    }

    /// Returns the start of the oldest kept bucket.
    pub fn oldest(&self) -> Ns {
        let sealed = self.sealed.first().map(|bucket| bucket.start);
        sealed.or(self.open.first().map(|bucket| bucket.start)).unwrap_or(self.started)
    }
}

/// A kept bucket.
pub struct Kept<'a> {
    /// Its span, ns, as far as time is booked.
    pub from: Ns,
    pub till: Ns,
    facts: KeptFacts<'a>,
}

enum KeptFacts<'a> {
    Sealed(&'a Arc<Packed>),
    Open(&'a FactChunks),
}

impl<'a> Kept<'a> {
    /// Returns the sealed bucket, whose facts do not change; `None` if it may still receive time.
    pub fn sealed(&self) -> Option<&'a Arc<Packed>> {
        match self.facts {
            KeptFacts::Sealed(packed) => Some(packed),
            KeptFacts::Open(_) => None,
        }
    }

    /// Calls `f` with each of its facts.
    pub fn each(&self, f: &mut dyn FnMut(&FactKey, &Weights)) {
        match self.facts {
            KeptFacts::Sealed(packed) => packed.iter().for_each(|(key, weights)| f(&key, &weights)),
            KeptFacts::Open(facts) => facts.iter().for_each(|(key, weights)| f(key, weights)),
        }
    }
}

/// The part of the buckets that a range selects.
struct Wanted {
    from: Ns,
    at: Ns,
    /// The range ends with the newest facts.
    now: bool,
}

impl Wanted {
    fn includes(&self, start: Ns, end: Ns) -> bool {
        end > self.from && (self.now || start < self.at)
    }
}

struct Reader<'a> {
    /// From the start of the first bucket to the end of the last.
    read: Option<(Ns, Ns)>,
    /// Number of buckets read.
    nth: usize,
    f: &'a mut dyn FnMut(usize, &FactKey, &Weights),
}

impl Reader<'_> {
    fn bucket<F: Borrow<Fact>>(&mut self, start: Ns, end: Ns, facts: impl Iterator<Item = F>) {
        let first = self.read.is_none();
        self.read = Some((self.read.map_or(start, |(from, _)| from), end));
        for fact in facts {
            let (key, weights) = fact.borrow();
            let more = if first { weights.open } else { 0 };
            let hits = weights.hits.saturating_add(more);
            (self.f)(self.nth, key, &Weights { hits, open: 0, ..*weights });
        }
        self.nth += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::tables::{NameId, StackId};
    use crate::model::vocabulary::frame::ThreadKey;
    use crate::model::vocabulary::state::{RawState, State};

    fn fact(hits: u32, open: u32) -> Fact {
        let (thread, state) = (ThreadKey { pid: 1, tid: 1, start: 1 }, RawState::Known(State::Io));
        let key = FactKey::new(thread, NameId(0), StackId(0), state);
        (key, Weights { wall_ns: 7, hits, open, ..Weights::default() })
    }

    #[test]
    fn waits_that_were_open_are_hits_of_the_first_bucket_that_is_read() {
        let bucket = |start, fact| Packed::new(start, start + 10, vec![fact]);
        let read = |history: &History, range| {
            let mut found = Vec::new();
            history.read_by_bucket(range, 30, &mut |nth, _, weights| {
                assert_eq!((weights.wall_ns, weights.open), (7, 0));
                found.push((nth, weights.hits));
            });
            found
        };
        let parts = |sealed, open| Parts {
            started: 0,
            at: 30,
            sealed,
            open,
            cumulative: vec![fact(16, 32)],
            spans: Spans::default(),
        };
        let sealed = vec![bucket(0, fact(1, 2)), bucket(10, fact(u32::MAX - 1, 9))];
        let history = History::from_parts(parts(sealed, vec![bucket(20, fact(4, 8))])).unwrap();
        assert_eq!(read(&history, Range::Rolling(30)), [(0, 3), (1, u32::MAX - 1), (2, 4)]);
        assert_eq!(read(&history, Range::Rolling(20)), [(0, u32::MAX), (1, 4)]);
        assert_eq!(read(&history, Range::Rolling(10)), [(0, 12)]);
        // The table has them as hits; the buckets that it does not include yet go on from it.
        let all = Range::Cumulative { since: None };
        assert_eq!(read(&history, all), [(0, 16), (1, 4)]);
        // A part of the past: the buckets that it touches, as of its end.
        let between = |from, till| Range::Between { from, till };
        for (range, hits, span) in [
            (between(10, 20), vec![(0, u32::MAX)], (10, 20)),
            (between(9, 11), vec![(0, 3), (1, u32::MAX - 1)], (0, 20)),
            (between(15, 15), vec![(0, u32::MAX)], (10, 20)),
            (between(19, 21), vec![(0, u32::MAX), (1, 4)], (10, 30)),
            (between(25, 90), vec![(0, 12)], (20, 30)),
            (between(90, 95), vec![], (90, 90)),
        ] {
            assert_eq!(read(&history, range), hits, "{range:?}");
            assert_eq!(history.read(range, 30, &mut |_, _| {}), span, "{range:?}");
            let buckets = history.buckets(range, 30);
            assert_eq!(buckets.len(), hits.len(), "{range:?}");
            assert!(hits.is_empty() || (buckets[0].0, buckets[hits.len() - 1].1) == span);
        }
        let is_past = |from, till| history.is_past(between(from, till));
        assert!(is_past(0, 29) && !is_past(0, 30) && !history.is_past(Range::Rolling(1)));
        // Until the first bucket is sealed.
        let open = vec![bucket(0, fact(1, 2)), bucket(10, fact(4, 8))];
        let history = History::from_parts(parts(Vec::new(), open)).unwrap();
        assert_eq!(read(&history, all), [(0, 16), (1, 3), (2, 4)]);
    }
}
