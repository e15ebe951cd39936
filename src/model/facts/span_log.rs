//! What the threads did in order: the spans booked in the last two minutes.
//!
//! Buckets sum a second; within it their facts have no order. The log keeps the same bookings one
//! by one. So a range of milliseconds is read exactly as far as the booking knows it:
//!
//! * Wall time is exact: a thread is in one span at each moment that is booked.
//!   [`Ledger`](crate::model::facts::ledger::Ledger) sees to that.
//! * CPU time and hits are known at observations only. They are spread evenly over the part of
//!   their span in the second in which it begins. So they equal the buckets' over whole seconds.
//! * Threads that were never observed have no spans: their time stands at the moment at which it
//!   was counted.

mod pieces;

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::facts::fact::{FactKey, Weights};
use crate::model::facts::packed::{put, take, unzigzag, zigzag};
use crate::model::vocabulary::frame::{Ns, SECOND};
pub use pieces::{Collected, Piece};

/// Time for which spans are kept, ns.
pub const KEPT: Ns = 120 * SECOND;

/// Maximum memory of the log, bytes. A tick in which a thread runs and waits takes about 40 of
/// them, so 50 threads that do so at each of 100 ticks a second fill it in a minute and a half.
pub const MAX_BYTES: usize = 16 << 20;

/// Spans per packed chunk.
const CHUNK: usize = 1_024;

/// A thread in one stack and state without interruption; if it waits, one wait or a part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub key: FactKey,
    pub from: Ns,
    /// Equal to `from` where only CPU time or hits are known.
    pub till: Ns,
    /// CPU time, ns, and hits, in the second in which the span begins.
    pub cpu_ns: u64,
    pub hits: u32,
    pub cpu_hits: u32,
    /// How long the wait that it is of has lasted, and when that began; 0 if it is no wait. It may
    /// have begun before the span.
    pub longest_ns: u64,
    pub longest_from: Ns,
}

impl Span {
    pub fn new(key: FactKey, from: Ns, till: Ns) -> Span {
        Span { key, from, till, cpu_ns: 0, hits: 0, cpu_hits: 0, longest_ns: 0, longest_from: 0 }
    }

    /// Returns a span with CPU time or hits alone.
    pub fn at(key: FactKey, at: Ns, cpu_ns: u64, hits: u32, cpu_hits: u32) -> Span {
        Span { cpu_ns, hits, cpu_hits, ..Span::new(key, at, at) }
    }

    /// Returns whether it has neither CPU time nor hits.
    pub fn is_plain(&self) -> bool {
        self.cpu_ns == 0 && self.hits == 0 && self.cpu_hits == 0
    }

    /// Returns whether only CPU time or hits of a moment are known.
    pub fn is_instant(&self) -> bool {
        self.from == self.till
    }

    /// Returns whether it is of a wait whose start is known.
    pub fn is_wait(&self) -> bool {
        self.longest_ns > 0
    }

    /// Returns the part since `started`, with all CPU time and hits; `None` if nothing is left.
    fn since(self, started: Ns) -> Option<Span> {
        if self.from >= started {
            return Some(self);
        }
        let span = Span { from: started, till: self.till.max(started), ..self };
        (!span.is_instant() || !span.is_plain()).then_some(span)
    }

    /// Notes a wait that lasted from `began` at least to `till`.
    pub fn note_wait(&mut self, began: Ns, till: Ns) {
        let waited = till.saturating_sub(began);
        if waited > self.longest_ns {
            (self.longest_ns, self.longest_from) = (waited, began);
        }
    }

    /// Returns which numbers a chunk has of it.
    fn flags(&self) -> u64 {
        let length = self.till - self.from;
        let flag = |flag, is_set: bool| if is_set { flag } else { 0 };
        let is_whole = (self.longest_ns, self.longest_from) == (length, self.from);
        flag(COUNTS, !self.is_plain())
            | flag(ALL_CPU, self.cpu_ns == length)
            | flag(WAIT, self.is_wait())
            | flag(ALL_WAIT, self.is_wait() && is_whole)
    }

    /// Returns the weights of the part in `from..till`; `None` if it is empty. A wait that had
    /// begun before is a hit of the range. `started`: the start of the seconds.
    pub fn within(&self, from: Ns, till: Ns, started: Ns) -> Option<Weights> {
        let (start, end) = (self.from.max(from), self.till.min(till));
        let is_instant = self.is_instant();
        if is_instant && !(from..till).contains(&self.from) || !is_instant && start >= end {
            return None;
        }
        let edge = started + ((self.from - started) / SECOND + 1) * SECOND;
        let length = self.till.min(edge) - self.from;
        let done = |at: Ns| (at - self.from).min(length);
        let share = |amount: u64| match length {
            0 => amount,
            _ => ceil(amount, done(end), length) - ceil(amount, done(start), length),
        };
        let wait_end = self.longest_from.saturating_add(self.longest_ns);
        // Of its parts only one reaches over `from`.
        let goes_on = self.from <= from && self.longest_from < from && from < wait_end;
        let mut weights = Weights {
            wall_ns: end - start,
            cpu_ns: share(self.cpu_ns),
            hits: share(self.hits.into()) as u32 + u32::from(goes_on),
            cpu_hits: share(self.cpu_hits.into()) as u32,
            ..Weights::default()
        };
        if self.key.is_of_unobserved() {
            weights.wall_ns = weights.cpu_ns;
        }
        let wait_end = wait_end.min(till);
        if self.is_wait() && wait_end > from {
            weights.longest(wait_end.saturating_sub(self.longest_from), self.longest_from);
        }
        Some(weights)
    }
}

/// Returns the part of `amount` up to `done` of `length`, rounded up: a single hit is at the start.
fn ceil(amount: u64, done: u64, length: u64) -> u64 {
    (u128::from(amount) * u128::from(done)).div_ceil(u128::from(length)) as u64
}

/// What the number before a span says, besides its key: which numbers follow.
const COUNTS: u64 = 1;
/// Its CPU time is its length.
const ALL_CPU: u64 = 2;
const WAIT: u64 = 4;
/// The span is the whole wait.
const ALL_WAIT: u64 = 8;
const KEY_SHIFT: u32 = 4;

/// Spans as varints, in the order in which they were booked. Their keys are in a table.
#[derive(Debug)]
struct Chunk {
    /// The first start and the last end.
    from: Ns,
    till: Ns,
    spans: usize,
    keys: Box<[FactKey]>,
    bytes: Box<[u8]>,
}

impl Chunk {
    fn new(spans: &[Span]) -> Chunk {
        let mut keys: Vec<FactKey> = Vec::new();
        let mut index: FxHashMap<FactKey, u64> = FxHashMap::default();
        index.reserve(spans.len() / 4);
        let mut bytes = Vec::with_capacity(spans.len() * 20);
        let from = spans.iter().map(|span| span.from).min().unwrap_or(0);
        let till = spans.iter().map(|span| span.till).max().unwrap_or(0);
        let mut before = from;
        for span in spans {
            let key = *index.entry(span.key).or_insert_with(|| {
                keys.push(span.key);
                keys.len() as u64 - 1
            });
            let length = span.till - span.from;
            let flags = span.flags();
            put(&mut bytes, key << KEY_SHIFT | flags);
            put(&mut bytes, zigzag(span.from.wrapping_sub(before) as i64));
            put(&mut bytes, length);
            if flags & COUNTS != 0 {
                if flags & ALL_CPU == 0 {
                    put(&mut bytes, span.cpu_ns);
                }
                put(&mut bytes, span.hits.into());
                put(&mut bytes, span.cpu_hits.into());
            }
            if flags & WAIT != 0 && flags & ALL_WAIT == 0 {
                put(&mut bytes, span.longest_ns);
                put(&mut bytes, zigzag(span.from.wrapping_sub(span.longest_from) as i64));
            }
            before = span.from;
        }
        Chunk { from, till, spans: spans.len(), keys: keys.into(), bytes: bytes.into() }
    }

    fn memory(&self) -> usize {
        size_of::<Chunk>() + self.keys.len() * size_of::<FactKey>() + self.bytes.len()
    }

    fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        let (mut bytes, mut before) = (&*self.bytes, self.from);
        (0..self.spans).map_while(move |_| {
            let bytes = &mut bytes;
            let first = take(bytes)?;
            let key = *self.keys.get((first >> KEY_SHIFT) as usize)?;
            before = before.wrapping_add(unzigzag(take(bytes)?) as u64);
            let length = take(bytes)?;
            let mut span = Span::new(key, before, before + length);
            if first & COUNTS != 0 {
                span.cpu_ns = if first & ALL_CPU != 0 { length } else { take(bytes)? };
                span.hits = take(bytes)? as u32;
                span.cpu_hits = take(bytes)? as u32;
            }
            if first & ALL_WAIT != 0 {
                (span.longest_ns, span.longest_from) = (length, before);
            } else if first & WAIT != 0 {
                span.longest_ns = take(bytes)?;
                span.longest_from = before.wrapping_sub(unzigzag(take(bytes)?) as u64);
            }
            Some(span)
        })
    }
}

/// Writes the log.
pub struct SpanLog {
    started: Ns,
    max_bytes: usize,
    /// Oldest first.
    chunks: VecDeque<Arc<Chunk>>,
    bytes: usize,
    /// The newest spans, less than [`CHUNK`].
    tail: Vec<Span>,
    /// The log is complete from here on.
    from: Ns,
    dropped: u64,
    /// The chunks as last published.
    published: Option<Arc<[Arc<Chunk>]>>,
}

impl SpanLog {
    /// Creates an empty log from `started` on.
    pub fn new(started: Ns, max_bytes: usize) -> SpanLog {
        SpanLog {
            started,
            max_bytes,
            chunks: VecDeque::new(),
            bytes: 0,
            tail: Vec::new(),
            from: started,
            dropped: 0,
            published: None,
        }
    }

    /// Returns the start of the session's seconds.
    pub fn started(&self) -> Ns {
        self.started
    }

    /// Adds a span. One that continues the last one is merged with it. Wall time from before the
    /// start is no part of this history.
    pub fn push(&mut self, span: Span) {
        let Some(span) = span.since(self.started) else { return };
        if let Some(last) = self.tail.last_mut()
            && last.key == span.key
            && last.till == span.from
            && span.is_plain()
            && !last.is_wait()
            && !span.is_wait()
        {
            last.till = span.till;
            return;
        }
        self.tail.push(span);
        if self.tail.len() < CHUNK {
            return;
        }
        let chunk = Chunk::new(&self.tail);
        self.tail.clear();
        self.bytes += chunk.memory();
        self.chunks.push_back(Arc::new(chunk));
        self.published = None;
        while self.bytes > self.max_bytes
            && let Some(spans) = self.drop_oldest()
        {
            self.dropped += spans;
        }
    }

    /// Drops chunks that ended more than [`KEPT`] before `now`.
    pub fn keep_house(&mut self, now: Ns) {
        while self.chunks.front().is_some_and(|chunk| chunk.till + KEPT < now) {
            self.drop_oldest();
        }
    }

    /// Returns the number of spans dropped.
    fn drop_oldest(&mut self) -> Option<u64> {
        let chunk = self.chunks.pop_front()?;
        self.bytes -= chunk.memory();
        self.from = self.from.max(chunk.till);
        self.published = None;
        Some(chunk.spans as u64)
    }

    /// Takes CPU time back from the newest spans of `key` that begin at `oldest` or later.
    pub fn take_back(&mut self, key: &FactKey, mut cpu: Ns, oldest: Ns) {
        if cpu == 0 {
            return;
        }
        let mut take = |span: &mut Span| {
            if span.key == *key {
                let part = cpu.min(span.cpu_ns);
                (span.cpu_ns, cpu) = (span.cpu_ns - part, cpu - part);
            }
            cpu == 0
        };
        if self.tail.iter_mut().rev().any(&mut take) {
            return;
        }
        for chunk in self.chunks.iter_mut().rev().take_while(|chunk| chunk.till >= oldest) {
            if !chunk.keys.contains(key) {
                continue;
            }
            let mut spans: Vec<Span> = chunk.iter().collect();
            let done = spans.iter_mut().rev().any(&mut take);
            let changed = Chunk::new(&spans);
            self.bytes = self.bytes - chunk.memory() + changed.memory();
            *chunk = Arc::new(changed);
            self.published = None;
            if done {
                break;
            }
        }
    }

    /// Returns the memory of the log, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.tail.capacity() * size_of::<Span>()
    }

    /// Returns the log as it is now. `open`: spans that still grow.
    pub fn published(&mut self, open: impl Iterator<Item = Span>) -> Spans {
        let (chunks, started) = (&self.chunks, self.started);
        let chunks = self.published.get_or_insert_with(|| chunks.iter().cloned().collect());
        Spans {
            started,
            from: self.from,
            chunks: chunks.clone(),
            recent: self
                .tail
                .iter()
                .copied()
                .chain(open.filter_map(|span| span.since(started)))
                .collect(),
            dropped: self.dropped,
        }
    }
}

/// Reads the log of a snapshot. Cloning copies only pointers.
#[derive(Clone, Debug)]
pub struct Spans {
    started: Ns,
    from: Ns,
    chunks: Arc<[Arc<Chunk>]>,
    recent: Arc<[Span]>,
    dropped: u64,
}

/// Without spans: complete from the end of time on.
impl Default for Spans {
    fn default() -> Spans {
        let (chunks, recent) = (Arc::new([]), Arc::new([]));
        Spans { started: 0, from: Ns::MAX, chunks, recent, dropped: 0 }
    }
}

impl Spans {
    /// Returns the moment from which on the log is complete.
    pub fn from(&self) -> Ns {
        self.from
    }

    /// Returns the number of spans that were dropped before their time to stay within the limit.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Calls `f` with each span that is at least in part within `from..till`, and with the weights
    /// of that part. Spans are in no order.
    pub fn read(&self, from: Ns, till: Ns, f: &mut dyn FnMut(&Span, &Weights)) {
        let mut each = |span: &Span| {
            if let Some(weights) = span.within(from, till, self.started) {
                f(span, &weights);
            }
        };
        for chunk in self.chunks.iter().filter(|chunk| chunk.till >= from && chunk.from < till) {
            chunk.iter().for_each(|span| each(&span));
        }
        self.recent.iter().for_each(each);
    }
}

#[cfg(test)]
#[path = "span_log/tests.rs"]
mod tests;
