//! History as a snapshot reads it: buckets of time, and the cumulative table.
//! [`crate::model::facts::buckets::Buckets`] writes it.

use std::sync::Arc;

pub use crate::model::facts::fact::{Fact, FactKey, Weights};
use crate::model::facts::fact_table::FactChunks;
use crate::model::facts::packed::Packed;
use crate::model::vocabulary::frame::Ns;

/// Which part of history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// The last ns, ending at the newest tick.
    Rolling(Ns),
    /// Since the start, or since the mark `since` (CLOCK_MONOTONIC).
    Cumulative { since: Option<Ns> },
}

/// A bucket that may still be added to.
#[derive(Clone, Debug)]
pub(super) struct OpenBucket {
    pub start: Ns,
    pub end: Ns,
    pub facts: FactChunks,
}

/// All buckets that are kept, and the cumulative table. Cloning costs pointers.
#[derive(Clone, Debug)]
pub struct History {
    pub(super) started: Ns,
    /// Time up to which facts are booked.
    pub(super) at: Ns,
    /// Oldest first; none of them reaches into `open`.
    pub(super) sealed: Arc<[Arc<Packed>]>,
    pub(super) open: Arc<[OpenBucket]>,
    /// The sum of all sealed buckets there ever were.
    pub(super) cumulative: FactChunks,
}

impl Default for History {
    fn default() -> History {
        History {
            started: 0,
            at: 0,
            sealed: Arc::new([]),
            open: Arc::new([]),
            cumulative: FactChunks::default(),
        }
    }
}

/// A history as it is kept in a file. Buckets are oldest first.
#[derive(Debug, Default)]
pub struct Parts {
    pub started: Ns,
    /// Time up to which facts are booked.
    pub at: Ns,
    pub sealed: Vec<Packed>,
    /// Buckets that the cumulative table does not hold yet.
    pub open: Vec<Packed>,
    pub cumulative: Vec<Fact>,
}

impl History {
    /// `None`: buckets are empty spans, overlap, or are not in order.
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
        })
    }

    /// When buckets began, and up to when facts are booked.
    pub fn span(&self) -> (Ns, Ns) {
        (self.started, self.at)
    }

    /// What [`Parts::sealed`] holds.
    pub fn sealed(&self) -> &[Arc<Packed>] {
        &self.sealed
    }

    /// What [`Parts::open`] holds.
    pub fn open(&self) -> impl DoubleEndedIterator<Item = Packed> + ExactSizeIterator {
        let pack = |open: &OpenBucket| {
            Packed::new(open.start, open.end, open.facts.iter().copied().collect())
        };
        self.open.iter().map(pack)
    }

    /// What [`Parts::cumulative`] holds.
    pub fn cumulative(&self) -> &FactChunks {
        &self.cumulative
    }

    /// Calls `f` with every fact of `range`, a rolling one ending at `at`; the same key may come
    /// several times (once per bucket). `open` is already added to `hits` where it counts (in the
    /// range's first bucket), and zero.
    ///
    /// Returns what was read, `(from, till)`, ns: whole buckets. So the start is up to 1 s before
    /// the one asked for (10 s, 1 min where that is older than 10 minutes, 70 minutes), or is the
    /// oldest that is kept; the end is that of the bucket `at` falls into, or the newest booked
    /// time. `Range::Cumulative { since: None }` alone reads the cumulative table: everything since
    /// the session began, however little of it is kept in buckets.
    pub fn read(&self, range: Range, at: Ns, f: &mut dyn FnMut(&FactKey, &Weights)) -> (Ns, Ns) {
        let (wanted, at) = match range {
            Range::Rolling(window) => {
                let at = at.clamp(self.started, self.at.max(self.started));
                (at.saturating_sub(window).max(self.started), at)
            }
            Range::Cumulative { since: Some(mark) } if mark > self.started => {
                (mark.min(self.at), self.at)
            }
            Range::Cumulative { .. } => return self.read_all(f),
        };
        let mut reader = Reader { read: None, f };
        // What was seen since the newest tick is there already, and belongs to "now".
        let now = at >= self.at;
        for bucket in self.sealed.iter().filter(|b| b.end > wanted && (now || b.start < at)) {
            reader.bucket(bucket.start, bucket.end, bucket.iter());
        }
        for bucket in self.open.iter().filter(|b| b.end > wanted && (now || b.start < at)) {
            reader.bucket(bucket.start, bucket.end, bucket.facts.iter().copied());
        }
        let (from, till) = reader.read.unwrap_or((wanted.min(at), at));
        (from, if now { self.at.max(from) } else { till.min(self.at) })
    }

    fn read_all(&self, f: &mut dyn FnMut(&FactKey, &Weights)) -> (Ns, Ns) {
        // What was open when history began was counted where its first bucket was sealed; it may be
        // open still.
        let mut reader = Reader { read: Some((self.started, self.started)), f };
        reader.bucket(self.started, self.started, self.cumulative.iter().copied());
        for bucket in self.open.iter() {
            if bucket.start == self.started {
                reader.read = None;
            }
            reader.bucket(bucket.start, bucket.end, bucket.facts.iter().copied());
        }
        (self.started, self.at.max(self.started))
    }

    /// The start of the oldest bucket that is kept.
    pub fn oldest(&self) -> Ns {
        let sealed = self.sealed.first().map(|bucket| bucket.start);
        sealed.or(self.open.first().map(|bucket| bucket.start)).unwrap_or(self.started)
    }
}

struct Reader<'a> {
    /// From the first bucket's start till the last one's end.
    read: Option<(Ns, Ns)>,
    f: &'a mut dyn FnMut(&FactKey, &Weights),
}

impl Reader<'_> {
    fn bucket(&mut self, start: Ns, end: Ns, facts: impl Iterator<Item = Fact>) {
        let first = self.read.is_none();
        self.read = Some((self.read.map_or(start, |(from, _)| from), end));
        for (key, mut weights) in facts {
            if first {
                weights.hits = weights.hits.saturating_add(weights.open);
            }
            weights.open = 0;
            (self.f)(&key, &weights);
        }
    }
}
