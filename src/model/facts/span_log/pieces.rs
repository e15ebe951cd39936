//! The log in pieces, newest first: as a file holds it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::{CHUNK, Chunk, Ns, Span, Spans};

/// Chunks per piece.
pub(super) const PIECE_CHUNKS: usize = 16;

/// A part of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// With this piece and all newer ones the log is complete from here on.
    pub from: Ns,
    /// In no order.
    pub spans: Vec<Span>,
}

/// Up to [`CHUNK`] spans.
enum Part<'a> {
    Packed(&'a Chunk),
    Recent(&'a [Span]),
}

impl Part<'_> {
    fn till(&self) -> Ns {
        match self {
            Part::Packed(chunk) => chunk.till,
            Part::Recent(spans) => spans.iter().map(|span| span.till).max().unwrap_or(0),
        }
    }

    /// Calls `f` with each span that is at least in part after `since`.
    fn each(&self, since: Ns, f: &mut dyn FnMut(Span)) {
        let is_since = |span: &Span| span.from >= since || span.till > since;
        match self {
            Part::Packed(chunk) => chunk.iter().filter(is_since).for_each(f),
            Part::Recent(spans) => spans.iter().copied().filter(is_since).for_each(f),
        }
    }
}

impl Spans {
    /// Returns whether there is a log. It may be empty.
    pub fn is_kept(&self) -> bool {
        self.from < Ns::MAX
    }

    fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let packed = self.chunks.iter().map(|chunk| Part::Packed(chunk));
        packed.chain(self.recent.chunks(CHUNK).map(Part::Recent))
    }

    /// Returns the number of spans since the moment from which on the log is complete.
    pub fn count(&self) -> usize {
        let mut count = 0;
        self.parts().for_each(|part| part.each(self.from, &mut |_| count += 1));
        count
    }

    /// Returns the log in pieces, newest first. An empty log is one piece without spans. Spans of
    /// the time before the log is complete, which no range shows, are in none.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> {
        let parts: Vec<Part<'_>> = self.parts().collect();
        let mut from = self.from;
        let mut pieces: Vec<(Ns, Range<usize>)> = Vec::new();
        // The newest pieces are whole, the oldest one may have less.
        let first = parts.len() % PIECE_CHUNKS;
        let is_edge = |nth: usize| nth % PIECE_CHUNKS == first;
        for (nth, part) in parts.iter().enumerate() {
            match pieces.last_mut() {
                Some((_, piece)) if !is_edge(nth) => piece.end = nth + 1,
                _ => pieces.push((from, nth..nth + 1)),
            }
            // As where older chunks are dropped.
            from = from.max(part.till());
        }
        if pieces.is_empty() && self.is_kept() {
            pieces.push((from, 0..0));
        }
        pieces.into_iter().rev().map(move |(from, range)| {
            let mut spans = Vec::with_capacity(range.len() * CHUNK);
            let mut push = |span| spans.push(span);
            parts[range].iter().for_each(|part| part.each(self.from, &mut push));
            Piece { from, spans }
        })
    }
}

/// Puts a log together from pieces, newest first.
pub struct Collected {
    started: Ns,
    max_bytes: usize,
    /// Oldest first.
    chunks: VecDeque<Arc<Chunk>>,
    bytes: usize,
    from: Ns,
    dropped: u64,
    is_full: bool,
}

impl Collected {
    /// `started`: the start of the session's seconds, not after any span. `max_bytes`: of memory.
    /// `dropped`: the number of spans that were dropped when they were logged.
    pub fn new(started: Ns, max_bytes: usize, dropped: u64) -> Collected {
        let chunks = VecDeque::new();
        Collected { started, max_bytes, chunks, bytes: 0, from: Ns::MAX, dropped, is_full: false }
    }

    /// Returns whether there is no room for older pieces.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Adds the piece before the last one. If there is no room for it, this one and all older ones
    /// are dropped instead.
    pub fn add(&mut self, piece: &Piece) {
        let chunks: Vec<Chunk> = piece.spans.chunks(CHUNK).map(Chunk::new).collect();
        let bytes: usize = chunks.iter().map(Chunk::memory).sum();
        if self.is_full || self.bytes + bytes > self.max_bytes {
            return self.drop(piece.spans.len() as u64);
        }
        self.bytes += bytes;
        self.from = piece.from;
        chunks.into_iter().rev().for_each(|chunk| self.chunks.push_front(Arc::new(chunk)));
    }

    /// Counts spans of an older piece as dropped.
    pub fn drop(&mut self, spans: u64) {
        self.is_full = true;
        self.dropped = self.dropped.saturating_add(spans);
    }

    /// Returns the log.
    pub fn spans(self) -> Spans {
        Spans {
            started: self.started,
            from: self.from,
            chunks: self.chunks.into_iter().collect(),
            recent: Arc::new([]),
            dropped: self.dropped,
        }
    }
}
