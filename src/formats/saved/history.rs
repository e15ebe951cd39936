//! Saves the history in blocks. Each holds some buckets and can be decoded without the others.
//!
//! ```text
//! block  = count, (start, width, head)*, first columns*, second columns* ...
//! ```
//!
//! Heads and columns are those of `model::facts::packed`. The columns of all buckets are stored
//! together, which compresses better. The cumulative table is written in pieces of the same form,
//! which have no time.

use std::io::{self, Write};

use super::bytes::{LONGEST, Put, Take};
use super::{Budget, kind};
use crate::model::facts::history::{Fact, History, Parts, Spans};
use crate::model::facts::packed::{COLUMNS, COLUMNS_BEFORE_BLOCKERS, Head, Packed};
use crate::model::facts::tables::Tables;

/// Maximum thread time of all buckets, of the cumulative table, and of all spans, ns. The sum of
/// two of them fits in 64 bits.
pub const SUM_MAX: u64 = u64::MAX / 2;

/// Numbers of buckets and facts in a history. The file states them first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub sealed: u64,
    pub open: u64,
    /// In facts, not buckets.
    pub cumulative: u64,
}

impl Counts {
    pub fn of(history: &History) -> Counts {
        Counts {
            sealed: history.sealed().len() as u64,
            open: history.open().len() as u64,
            cumulative: history.cumulative().len() as u64,
        }
    }
}

/// Writes the newest buckets first, so that a truncated file still has them.
pub fn write(history: &History, out: &mut dyn Write) -> io::Result<()> {
    let mut block =
        Buckets { kind: kind::OPEN, count: 0, heads: Put::default(), columns: Default::default() };
    for bucket in history.open().rev() {
        block.add(&bucket, out)?;
    }
    block.end(out)?;

    block.kind = kind::CUMULATIVE;
    let mut facts: Vec<Fact> = history.cumulative().iter().copied().collect();
    facts.sort_unstable_by_key(|(key, _)| *key);
    // Start times of waits are relative to this time.
    let (started, _) = history.span();
    for piece in facts.chunks(2_000) {
        block.add(&Packed::new(started, started, piece.to_vec()), out)?;
    }
    block.end(out)?;

    block.kind = kind::SEALED;
    for bucket in history.sealed().iter().rev() {
        block.add(bucket, out)?;
    }
    block.end(out)
}

/// Target size of a block, bytes: a damaged block loses this much history.
const BLOCK: usize = 128 << 10;

struct Buckets {
    kind: u32,
    count: usize,
    heads: Put,
    columns: [Vec<u8>; COLUMNS],
}

impl Buckets {
    fn add(&mut self, bucket: &Packed, out: &mut dyn Write) -> io::Result<()> {
        let Some((head, columns)) = bucket.columns() else { return Ok(()) };
        self.count += 1;
        self.heads.number(bucket.start);
        self.heads.number(bucket.end - bucket.start);
        head.put(&mut self.heads.bytes);
        for (all, column) in self.columns.iter_mut().zip(columns) {
            all.extend_from_slice(column);
        }
        let bytes = self.heads.bytes.len() + self.columns.iter().map(Vec::len).sum::<usize>();
        if bytes >= BLOCK { self.end(out) } else { Ok(()) }
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let mut heads = Put::default();
        heads.count(std::mem::take(&mut self.count));
        heads.bytes.append(&mut self.heads.bytes);
        let columns = self.columns.each_mut().map(std::mem::take);
        let parts: Vec<&[u8]> =
            [&heads.bytes].into_iter().chain(&columns).map(Vec::as_slice).collect();
        super::block::write(out, self.kind, &parts)
    }
}

/// The buckets read so far.
#[derive(Default)]
pub struct Found {
    sealed: Vec<Packed>,
    open: Vec<Packed>,
    cumulative: Vec<Packed>,
    /// Wall and CPU time of all buckets, and of the cumulative table, ns. Each sum must fit.
    sums: [(u64, u64); 2],
}

impl Found {
    /// Decodes a block of one of the three kinds. `None` if it is corrupt; the buckets before the
    /// corrupt one are kept.
    pub fn take(
        &mut self,
        format: u64,
        kind: u32,
        block: &[u8],
        tables: &Tables,
        budget: &mut Budget,
    ) -> Option<()> {
        let mut take = Take(block);
        let mut heads = Vec::new();
        for _ in 0..take.count(4)? {
            let start = take.ns()?;
            let end = start.checked_add(take.ns()?)?;
            let columns = if format < 2 { COLUMNS_BEFORE_BLOCKERS } else { COLUMNS };
            heads.push((start, end, Head::take_columns(&mut take.0, columns)?));
        }
        // The offset of the next bucket's part in each column.
        let mut columns: [&[u8]; COLUMNS] = [&[]; COLUMNS];
        for (nth, column) in columns.iter_mut().enumerate() {
            let lengths = heads.iter().map(|(.., head)| head.lengths[nth]);
            let length = lengths.fold(0_usize, usize::saturating_add);
            (*column, take.0) = take.0.split_at_checked(length)?;
        }
        for (start, end, head) in heads {
            let mut bytes = Vec::new();
            head.put(&mut bytes);
            for (column, length) in columns.iter_mut().zip(head.lengths) {
                let (part, rest) = column.split_at_checked(length)?;
                bytes.extend_from_slice(part);
                *column = rest;
            }
            budget.take(bytes.len() + size_of::<Packed>() + 64)?;
            let packed = Packed::from_bytes(start, end, &bytes)?;
            if kind != kind::SEALED {
                // Facts of these kinds are not kept packed in memory.
                budget.take(packed.len() * size_of::<Fact>())?;
            }
            let sums = &mut self.sums[usize::from(kind == kind::CUMULATIVE)];
            let sums_with = check(&packed, *sums, tables)?;
            *sums = sums_with;
            match kind {
                kind::SEALED => self.sealed.push(packed),
                kind::OPEN => self.open.push(packed),
                _ => self.cumulative.push(packed),
            }
        }
        Some(())
    }

    /// Builds the history, and counts what is missing in it.
    pub fn history(
        mut self,
        (started, at): (u64, u64),
        counts: Counts,
        spans: Spans,
    ) -> Option<(History, Counts)> {
        self.sealed.sort_by_key(|bucket| bucket.start);
        self.open.sort_by_key(|bucket| bucket.start);
        // sampletop writes no overlapping buckets, so these are corrupt. The cumulative table has
        // each fact once.
        let mut till = 0;
        let mut follows = |bucket: &Packed| {
            let follows = till <= bucket.start && bucket.start < bucket.end;
            till = if follows { bucket.end } else { till };
            follows
        };
        self.sealed.retain(&mut follows);
        self.open.retain(&mut follows);
        let mut cumulative: Vec<Fact> = self.cumulative.iter().flat_map(Packed::iter).collect();
        cumulative.sort_unstable_by_key(|(key, _)| *key);
        cumulative.dedup_by_key(|(key, _)| *key);
        let missing = |found: usize, all: u64| all.saturating_sub(found as u64);
        let lost = Counts {
            sealed: missing(self.sealed.len(), counts.sealed),
            open: missing(self.open.len(), counts.open),
            cumulative: missing(cumulative.len(), counts.cumulative),
        };
        let (sealed, open) = (self.sealed, self.open);
        Some((History::from_parts(Parts { started, at, sealed, open, cumulative, spans })?, lost))
    }
}

/// Adds these facts to the sums. `None` if they name ids that the tables lack, or exceed the
/// maximum time.
fn check(packed: &Packed, (mut wall, mut cpu): (u64, u64), tables: &Tables) -> Option<(u64, u64)> {
    for (key, weights) in packed.iter() {
        let known = (key.stack.0 as usize) < tables.stack_count()
            && (key.name.0 as usize) < tables.name_count();
        wall = wall.checked_add(weights.wall_ns).filter(|sum| *sum <= SUM_MAX && known)?;
        cpu = cpu.checked_add(weights.cpu_ns).filter(|sum| *sum <= SUM_MAX)?;
        if weights.longest_ns > LONGEST || weights.longest_from > LONGEST {
            return None;
        }
    }
    Some((wall, cpu))
}
