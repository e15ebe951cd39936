//! Saves the log of spans: what threads did in order in the last two minutes. Each block can be
//! decoded without the others. Newer blocks come first, and one without all newer ones is of no
//! use: the log would have a gap.
//!
//! ```text
//! block  number of newer blocks, from, dropped, base, length of each column, columns
//!
//! keys   what the spans are of: facts without weights, as in `model::facts::packed`
//! key    index, as difference from the span before. Spans are sorted by thread and start
//! flags  one byte: which of the numbers in brackets follow
//! start  difference from the end of the thread's spans before; of its first span from base
//! length [length]; without it the span ends with the wait that the span before is of: a thread
//!        that was woken waits for a core
//! cpu    [length - CPU time]
//! hits   [hits, on-CPU hits]
//! wait   [start - start of the wait, end of the wait - end]
//! ```
//!
//! With all newer blocks the log is complete since `from`. `dropped` is the number of spans that
//! were dropped when they were logged.

use std::collections::HashMap;
use std::io::{self, Write};

use super::bytes::{LONGEST, Put, Take};
use super::history::SUM_MAX;
use super::{Budget, kind};
use crate::model::facts::history::{Fact, FactKey, Spans, Weights};
use crate::model::facts::packed::Packed;
use crate::model::facts::span_log::{Collected, MAX_BYTES, Piece, Span};
use crate::model::facts::tables::Tables;
use crate::model::vocabulary::frame::{Ns, ThreadKey};

/// Maximum spans of a block: four times what is written.
const SPANS_MAX: usize = 64 << 10;

/// Maximum bytes of a key: more than its numbers take as varints.
const KEY_MAX: usize = 48;

/// Maximum hits of a span; one is added where a wait goes on.
const HITS_MAX: u32 = u32::MAX / 2;

const COLUMNS: usize = 8;

const CPU: u8 = 1;
const HITS: u8 = 2;
const WAIT: u8 = 4;
/// It ends with the wait that the span before is of.
const ENDS_WITH_WAIT: u8 = 8;

pub fn write(spans: &Spans, out: &mut dyn Write) -> io::Result<()> {
    for (nth, piece) in spans.pieces().enumerate() {
        write_piece(nth, piece, spans.dropped(), out)?;
    }
    Ok(())
}

fn write_piece(nth: usize, piece: Piece, dropped: u64, out: &mut dyn Write) -> io::Result<()> {
    let Piece { from, mut spans } = piece;
    spans.sort_by_key(|span| (span.key.thread, span.from, span.till));
    let mut keys: Vec<FactKey> = spans.iter().map(|span| span.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let index: HashMap<FactKey, i64> = keys.iter().copied().zip(0..).collect();
    let base = spans.iter().map(|span| span.from).min().unwrap_or(0);
    let mut columns: [Put; COLUMNS - 1] = Default::default();
    let [key, flags, start, length, cpu, hits, wait] = &mut columns;
    let mut before = Before::new(base);
    for span in &spans {
        let at = index[&span.key];
        key.signed(at - before.key);
        let (end, wait_end) = before.ends(span.key.thread);
        start.signed(span.from.wrapping_sub(end) as i64);
        let flag = |flag, is_set: bool| if is_set { flag } else { 0 };
        let set = flag(CPU, span.cpu_ns > 0)
            | flag(HITS, span.hits > 0 || span.cpu_hits > 0)
            | flag(WAIT, span.is_wait())
            | flag(ENDS_WITH_WAIT, wait_end == Some(span.till));
        flags.bytes.push(set);
        let ns = span.till - span.from;
        if set & ENDS_WITH_WAIT == 0 {
            length.number(ns);
        }
        if set & CPU != 0 {
            cpu.signed(ns.wrapping_sub(span.cpu_ns) as i64);
        }
        if set & HITS != 0 {
            hits.number(span.hits.into());
            hits.number(span.cpu_hits.into());
        }
        if set & WAIT != 0 {
            wait.signed(span.from.wrapping_sub(span.longest_from) as i64);
            wait.signed(wait_end_of(span).wrapping_sub(span.till) as i64);
        }
        before.follow(at, span);
    }
    let keys: Vec<Fact> = keys.into_iter().map(|key| (key, Weights::default())).collect();
    let keys = Packed::new(0, 0, keys);
    let columns = columns.iter().map(|column| &column.bytes[..]);
    let columns: Vec<&[u8]> = std::iter::once(keys.as_bytes()).chain(columns).collect();
    let mut head = Put::default();
    head.count(nth);
    [from, dropped, base].into_iter().for_each(|number| head.number(number));
    columns.iter().for_each(|column| head.count(column.len()));
    super::block::write(out, kind::SPANS, &[&[&head.bytes[..]], &columns[..]].concat())
}

/// Returns the end of the wait that a span is of.
fn wait_end_of(span: &Span) -> Ns {
    span.longest_from.wrapping_add(span.longest_ns)
}

/// What a span's numbers are differences from.
struct Before {
    base: Ns,
    key: i64,
    /// The thread, and the end of its spans.
    thread: Option<(ThreadKey, Ns)>,
    /// The end of the wait of its last span.
    wait_end: Option<Ns>,
}

impl Before {
    fn new(base: Ns) -> Before {
        Before { base, key: 0, thread: None, wait_end: None }
    }

    /// Returns the end of the spans of a thread, and of the wait of its last one.
    fn ends(&self, of: ThreadKey) -> (Ns, Option<Ns>) {
        match self.thread {
            Some((thread, till)) if thread == of => (till, self.wait_end),
            _ => (self.base, None),
        }
    }

    fn follow(&mut self, key: i64, span: &Span) {
        let (till, _) = self.ends(span.key.thread);
        self.key = key;
        self.thread = Some((span.key.thread, till.max(span.till)));
        self.wait_end = span.is_wait().then(|| wait_end_of(span));
    }
}

/// The blocks read so far, newest first.
pub struct Found {
    started: Ns,
    /// Number of blocks.
    blocks: u64,
    /// Since when the log is complete.
    from: Ns,
    collected: Option<Collected>,
    spans: u64,
    /// Wall and CPU time of all spans, ns.
    sums: (u64, u64),
}

impl Found {
    /// `started`: the start of the session's seconds.
    pub fn new(started: Ns) -> Found {
        Found { started, blocks: 0, from: Ns::MAX, collected: None, spans: 0, sums: (0, 0) }
    }

    /// Decodes a block. `None` if it is corrupt or a newer one is missing; nothing of it is kept.
    pub fn take(&mut self, block: &[u8], tables: &Tables, budget: &mut Budget) -> Option<()> {
        let mut take = Take(block);
        let nth = take.number().filter(|nth| *nth == self.blocks)?;
        // What is complete with older blocks is so from an earlier moment on.
        let from = take.ns().filter(|from| (self.started..=self.from).contains(from))?;
        let (dropped, base) = (take.ns()?, take.ns()?);
        let mut lengths = [0; COLUMNS];
        for length in &mut lengths {
            *length = usize::try_from(take.number()?).ok()?;
        }
        let mut column = |nth: usize| {
            let (column, rest) = take.0.split_at_checked(lengths[nth])?;
            take.0 = rest;
            Some(column)
        };
        let keys = column(0)?;
        let columns = Columns {
            key: Take(column(1)?),
            flags: column(2)?,
            start: Take(column(3)?),
            length: Take(column(4)?),
            cpu: Take(column(5)?),
            hits: Take(column(6)?),
            wait: Take(column(7)?),
        };
        let count = columns.flags.len();
        if !take.0.is_empty() || count > SPANS_MAX {
            return None;
        }
        match &mut self.collected {
            Some(collected) if collected.is_full() => collected.drop(count as u64),
            _ => {
                let keys = known_keys(keys, count, tables)?;
                let (spans, sums) = columns.spans(&keys, base, self.started, self.sums)?;
                if self.collected.is_none() {
                    budget.take(MAX_BYTES)?;
                }
                let new = || Collected::new(self.started, MAX_BYTES, dropped);
                self.collected.get_or_insert_with(new).add(&Piece { from, spans });
                self.sums = sums;
            }
        }
        (self.blocks, self.from) = (nth + 1, from);
        self.spans += count as u64;
        Some(())
    }

    /// Returns the log, and the number of its spans that are missing. `all`: the number of spans
    /// that the file promises.
    pub fn log(self, all: u64) -> (Spans, u64) {
        let spans = self.collected.map(Collected::spans).unwrap_or_default();
        (spans, all.saturating_sub(self.spans))
    }
}

/// Decodes the keys. `None` if they are corrupt or name ids that the tables lack.
fn known_keys(bytes: &[u8], spans: usize, tables: &Tables) -> Option<Vec<FactKey>> {
    // An empty list has a few bytes, too.
    if bytes.len() > (spans.min(SPANS_MAX) + 1) * KEY_MAX {
        return None;
    }
    let packed = Packed::from_bytes(0, 0, bytes)?;
    let keys: Vec<FactKey> = packed.iter().map(|(key, _)| key).collect();
    let is_known = |key: &FactKey| {
        (key.stack.0 as usize) < tables.stack_count()
            && (key.name.0 as usize) < tables.name_count()
            && key.blocker.0 as usize <= tables.blocker_count()
    };
    (keys.len() <= spans && keys.iter().all(is_known)).then_some(keys)
}

struct Columns<'a> {
    key: Take<'a>,
    flags: &'a [u8],
    start: Take<'a>,
    length: Take<'a>,
    cpu: Take<'a>,
    hits: Take<'a>,
    wait: Take<'a>,
}

impl Columns<'_> {
    /// Decodes the spans, and adds them to the sums. `None` if one is corrupt.
    fn spans(
        mut self,
        keys: &[FactKey],
        base: Ns,
        started: Ns,
        mut sums: (u64, u64),
    ) -> Option<(Vec<Span>, (u64, u64))> {
        let mut spans = Vec::with_capacity(self.flags.len());
        let (mut before, mut last) = (Before::new(base), None);
        for flags in self.flags {
            let (at, span) = self.span(*flags, keys, &before)?;
            // In order, each key is in few chunks.
            let place = Some((span.key.thread, span.from));
            let is_sound = std::mem::replace(&mut last, place) <= place
                && (started..=LONGEST).contains(&span.from)
                && [span.cpu_ns, span.longest_ns, span.longest_from]
                    .iter()
                    .all(|ns| *ns <= LONGEST)
                && span.hits.max(span.cpu_hits) <= HITS_MAX;
            if !is_sound {
                return None;
            }
            let with = |sum: u64, more: u64| sum.checked_add(more).filter(|sum| *sum <= SUM_MAX);
            sums = (with(sums.0, span.till - span.from)?, with(sums.1, span.cpu_ns)?);
            before.follow(at, &span);
            spans.push(span);
        }
        let Columns { key, start, length, cpu, hits, wait, .. } = self;
        let is_all = [key, start, length, cpu, hits, wait].iter().all(|rest| rest.0.is_empty());
        is_all.then_some((spans, sums))
    }

    /// Decodes a span, and the index of its key. Its times may be any but for its length.
    fn span(&mut self, flags: u8, keys: &[FactKey], before: &Before) -> Option<(i64, Span)> {
        let at = before.key.checked_add(self.key.signed()?)?;
        let key = *keys.get(usize::try_from(at).ok()?)?;
        let (end, wait_end) = before.ends(key.thread);
        let from = end.wrapping_add(self.start.signed()? as u64);
        let length = match flags & ENDS_WITH_WAIT {
            0 => self.length.number()?,
            _ => wait_end?.checked_sub(from)?,
        };
        let till = from.checked_add(length).filter(|_| length <= LONGEST)?;
        let mut span = Span::new(key, from, till);
        if flags & CPU != 0 {
            span.cpu_ns = length.wrapping_sub(self.cpu.signed()? as u64);
        }
        if flags & HITS != 0 {
            (span.hits, span.cpu_hits) = (self.hits.small()?, self.hits.small()?);
        }
        if flags & WAIT != 0 {
            span.longest_from = from.wrapping_sub(self.wait.signed()? as u64);
            let wait_end = till.wrapping_add(self.wait.signed()? as u64);
            span.longest_ns = wait_end.wrapping_sub(span.longest_from);
        }
        let is_known = flags & !(CPU | HITS | WAIT | ENDS_WITH_WAIT) == 0;
        // A wait without a length is none.
        (is_known && (flags & WAIT == 0 || span.is_wait())).then_some((at, span))
    }
}

#[cfg(test)]
#[path = "spans/tests.rs"]
mod tests;
