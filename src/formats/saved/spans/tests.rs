use proptest::prelude::*;

use super::*;
use crate::formats::saved::block::blocks;
use crate::model::facts::interner::Interner;
use crate::model::facts::span_log::SpanLog;
use crate::model::facts::tables::{Blocker, BlockerId, Holder, NameId, StackId};
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::frame::{RawFrame, RawName, SECOND};
use crate::model::vocabulary::state::{RawState, State};

const START: Ns = 77 * SECOND + 5;

/// Names and stacks with the ids 0, 1, 2 at least, and one blocker.
fn tables() -> Tables {
    let mut interner = Interner::new(100);
    for nth in 0..3u8 {
        interner.name(RawName::new(&[b'a' + nth]));
        interner
            .stack(&[RawFrame::marker(crate::model::vocabulary::frame::Marker::ALL[nth as usize])]);
    }
    let kind = BlockerKind::Mutex;
    interner.blocker(Blocker { kind, pid: 1, object: 2, class: None, holder: Holder::Free });
    interner.tables()
}

fn key(tid: u32, stack: u32, state: RawState, blocker: u32) -> FactKey {
    let thread = ThreadKey { pid: 1, tid, start: 3 };
    let blocker = BlockerId(blocker);
    FactKey { blocker, ..FactKey::new(thread, NameId(stack), StackId(stack), state) }
}

prop_compose! {
    fn span()(
        (from, length) in (0..3 * SECOND, prop_oneof![Just(0), 0..2 * SECOND]),
        (tid, stack, blocker) in (1u32..4, 0u32..3, 0u32..2),
        state in prop::sample::select(vec![RawState::Futex, RawState::Known(State::Run)]),
        cpu_ns in prop_oneof![Just(0), Just(SECOND), 0..SECOND],
        is_running in any::<bool>(),
        (hits, cpu_hits) in (0u32..3, 0u32..3),
        wait in prop_oneof![
            Just((0, 0)),
            // All of it, see below.
            Just((1, 0)),
            (1..SECOND, START - SECOND..START + 3 * SECOND),
        ],
    ) -> Span {
        let from = START + from;
        let span = Span::new(key(tid, stack, state, blocker), from, from + length);
        let (longest_ns, longest_from) = if wait == (1, 0) && length > 0 { (length, from) } else { wait };
        let cpu_ns = if is_running { length } else { cpu_ns };
        Span { cpu_ns, hits, cpu_hits, longest_ns, longest_from, ..span }
    }
}

fn written(spans: &Spans) -> Vec<Vec<u8>> {
    let mut file = Vec::new();
    write(spans, &mut file).expect("memory takes it");
    blocks(&file).map(|block| block.unpack().expect("just written")).collect()
}

fn found(blocks: &[Vec<u8>]) -> Found {
    let mut found = Found::new(START);
    for block in blocks {
        let _ = found.take(block, &tables(), &mut Budget(usize::MAX));
    }
    found
}

/// Returns the spans that ranges show, by thread and time.
fn all(spans: &Spans) -> Vec<Span> {
    let mut all = Vec::new();
    spans.read(spans.from(), Ns::MAX, &mut |span, _| all.push(*span));
    all.sort_by_key(|span| {
        (span.key.thread, span.from, span.till, span.key, span.cpu_ns, span.hits, span.cpu_hits)
    });
    all
}

proptest! {
    #[test]
    fn a_file_gives_back_the_log(logged in prop::collection::vec(span(), 0..60), open in prop::collection::vec(span(), 0..4)) {
        let mut log = SpanLog::new(START, MAX_BYTES);
        logged.into_iter().for_each(|span| log.push(span));
        let log = log.published(open.into_iter());
        let blocks = written(&log);
        prop_assert_eq!(blocks.len(), 1);
        let (again, lost) = found(&blocks).log(log.count() as u64);
        prop_assert_eq!((lost, again.from(), again.dropped()), (0, log.from(), 0));
        prop_assert_eq!(all(&again), all(&log));
    }

    #[test]
    fn changed_bytes_are_sound_or_refused(logged in prop::collection::vec(span(), 1..20), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut log = SpanLog::new(START, MAX_BYTES);
        logged.into_iter().for_each(|span| log.push(span));
        let mut blocks = written(&log.published(std::iter::empty()));
        let at = at.index(blocks[0].len());
        blocks[0][at] = byte;
        let (spans, _) = found(&blocks).log(0);
        for span in all(&spans) {
            prop_assert!(START <= span.from && span.from <= span.till && span.till <= 2 * LONGEST);
            prop_assert!(span.key.stack.0 < 9 && span.key.blocker.0 < 2);
        }
        // It can be saved again.
        let (again, _) = found(&written(&spans)).log(0);
        prop_assert_eq!(all(&again), all(&spans));
    }
}

/// The contents of a block.
#[derive(Clone)]
struct Block {
    /// Number of newer blocks, start, dropped, base.
    head: [u64; 4],
    keys: Vec<FactKey>,
    /// key, flags, start, length, cpu, hits, wait.
    columns: [Vec<u8>; COLUMNS - 1],
    after: Vec<u8>,
}

impl Block {
    fn new(numbers: [&[i64]; COLUMNS - 1], keys: Vec<FactKey>) -> Block {
        let mut columns = numbers.map(|numbers| {
            let mut put = Put::default();
            numbers.iter().for_each(|number| put.signed(*number));
            put.bytes
        });
        for nth in [1, 3, 5] {
            // These are no signed numbers.
            let mut put = Put::default();
            numbers[nth].iter().for_each(|number| put.number(*number as u64));
            columns[nth] = put.bytes;
        }
        Block { head: [0, START, 0, START], keys, columns, after: Vec::new() }
    }

    fn bytes(&self) -> Vec<u8> {
        let keys = self.keys.iter().map(|key| (*key, Weights::default())).collect();
        let keys = Packed::new(0, 0, keys);
        let mut put = Put::default();
        self.head.iter().for_each(|number| put.number(*number));
        put.count(keys.as_bytes().len());
        self.columns.iter().for_each(|column| put.count(column.len()));
        [&put.bytes, keys.as_bytes(), &self.columns.concat(), &self.after].concat()
    }

    fn read(&self) -> Option<Vec<Span>> {
        let mut found = Found::new(START);
        let taken = found.take(&self.bytes(), &tables(), &mut Budget(usize::MAX));
        let (spans, _) = found.log(0);
        assert_eq!(taken.is_some(), spans.is_kept(), "all of a block, or nothing");
        taken.map(|()| all(&spans))
    }
}

/// A thread that runs, waits, waits for a core, and goes on waiting; another one of which a sample
/// is known.
fn block() -> Block {
    let [run, wait, ready] = [State::Run, State::Io, State::Rdy].map(RawState::Known);
    let keys = vec![key(1, 0, run, 0), key(1, 1, ready, 0), key(1, 1, wait, 1), key(2, 0, run, 0)];
    let flags = [CPU | HITS, WAIT | HITS, ENDS_WITH_WAIT, WAIT, CPU | HITS].map(i64::from);
    Block::new(
        [
            &[0, 2, -1, 1, 1],
            &flags,
            &[0, 0, 0, 0, 7],
            &[10, 20, 30, 0],
            &[0, -9],
            &[2, 1, 1, 0, 1, 1],
            &[-5, 4, 30, 5],
        ],
        keys,
    )
}

#[test]
fn the_numbers_of_a_block_are_what_they_are() {
    let keys = block().keys;
    let span = |key: usize, from, till| Span::new(keys[key], START + from, START + till);
    let wait = |ns, from| (ns, START + from);
    let (of_first, of_second) = (wait(19, 15), wait(65, 4));
    assert_eq!(
        block().read().expect("it is sound"),
        [
            Span { cpu_ns: 10, hits: 2, cpu_hits: 1, ..span(0, 0, 10) },
            Span { hits: 1, longest_ns: of_first.0, longest_from: of_first.1, ..span(2, 10, 30) },
            span(1, 30, 34),
            Span { longest_ns: of_second.0, longest_from: of_second.1, ..span(2, 34, 64) },
            Span { cpu_ns: 9, hits: 1, cpu_hits: 1, ..span(3, 7, 7) },
        ]
    );
}

#[test]
fn spans_are_written_in_few_bytes() {
    let mut collected = Collected::new(START, MAX_BYTES, 0);
    let spans = block().read().expect("it is sound");
    collected.add(&Piece { from: START, spans });
    assert_eq!(written(&collected.spans()), [block().bytes()]);
}

#[test]
fn what_cannot_be_is_refused() {
    let number = |value: u64| {
        let mut put = Put::default();
        put.number(value);
        put.bytes
    };
    let signed = |value: i64| {
        let mut put = Put::default();
        put.signed(value);
        put.bytes
    };
    // A column with its number at this index replaced. All numbers are of one byte.
    let replaced = |column: usize, at: usize, new: &[u8]| {
        let mut block = block();
        block.columns[column].splice(at..=at, new.iter().copied());
        block
    };
    let mut refused: Vec<(&str, Block)> = Vec::new();
    for (what, at, value) in [
        ("a newer block is missing", 0, 1),
        ("complete since before the start", 1, START - 1),
        ("complete since too late", 1, LONGEST + 1),
        ("too many dropped", 2, LONGEST + 1),
        ("a base in the far future", 3, LONGEST + 1),
        ("a base before the start", 3, START - 1),
    ] {
        let mut block = block();
        block.head[at] = value;
        refused.push((what, block));
    }
    for (what, nth, key) in [
        ("an unknown stack", 3, FactKey { stack: StackId(9_999), ..block().keys[3] }),
        ("an unknown name", 3, FactKey { name: NameId(9_999), ..block().keys[3] }),
        ("an unknown blocker", 3, FactKey { blocker: BlockerId(2), ..block().keys[3] }),
        ("a key that is there twice", 1, block().keys[0]),
    ] {
        let mut block = block();
        block.keys[nth] = key;
        refused.push((what, block));
    }
    refused.extend([
        ("a key before the first", replaced(0, 0, &signed(-1))),
        ("a key after the last", replaced(0, 4, &signed(3))),
        ("a key beyond all numbers", replaced(0, 4, &signed(i64::MAX))),
        ("an unknown flag", replaced(1, 0, &[CPU | HITS | 16])),
        ("a start before the first second", replaced(2, 0, &signed(-1))),
        ("a start before that of the span before", replaced(2, 1, &signed(-11))),
        ("a start in the far future", replaced(2, 0, &signed(LONGEST as i64))),
        ("a start before time began", replaced(2, 0, &signed(i64::MIN))),
        ("a span that is too long", replaced(3, 0, &number(LONGEST + 1))),
        ("a length beyond 64 bits", replaced(3, 0, &number(u64::MAX))),
        ("the end of a wait that is none", replaced(6, 1, &signed(-1))),
        ("too much CPU time", replaced(4, 0, &signed(-(LONGEST as i64) - 1))),
        ("less CPU time than none", replaced(4, 0, &signed(11))),
        ("too many hits", replaced(5, 0, &number(u64::from(HITS_MAX) + 1))),
        ("too many hits on a core", replaced(5, 1, &number(u64::from(HITS_MAX) + 1))),
        ("hits beyond 32 bits", replaced(5, 0, &number(1 << 32))),
        ("a wait that begins too early", replaced(6, 0, &signed(i64::MAX))),
        ("a wait that is too long", replaced(6, 3, &signed(i64::MAX))),
        ("a wait without a length", replaced(6, 3, &signed(-60))),
        ("a wait that ends before it begins", replaced(6, 3, &signed(-61))),
        ("bytes after the columns", Block { after: vec![0], ..block() }),
    ]);
    let mut unused = block();
    unused.keys.extend((10..12).map(|tid| key(tid, 0, RawState::Known(State::Run), 0)));
    refused.push(("more keys than spans", unused));
    let mut order = block();
    order.columns[0] = [3, -1, -1, 1, -2].map(signed).concat();
    refused.push(("threads in no order", order));
    for column in 0..COLUMNS - 1 {
        let (mut more, mut less) = (block(), block());
        more.columns[column].push(0);
        less.columns[column].pop();
        refused.extend([("a column with more numbers", more), ("a column with less", less)]);
    }
    for (what, block) in refused {
        assert_eq!(block.read(), None, "{what}");
    }
    for end in 0..block().bytes().len() {
        let cut = &block().bytes()[..end];
        assert!(Found::new(START).take(cut, &tables(), &mut Budget(usize::MAX)).is_none(), "{end}");
    }
    // No room, and too many spans.
    assert!(Found::new(START).take(&block().bytes(), &tables(), &mut Budget(100)).is_none());
    let many = |count: usize| {
        let of = |byte: u8| vec![byte; count];
        let columns = [of(0), of(0), of(0), of(1), Vec::new(), Vec::new(), Vec::new()];
        Block { columns, ..block() }
    };
    assert_eq!(many(SPANS_MAX).read().map(|spans| spans.len()), Some(SPANS_MAX));
    assert_eq!(many(SPANS_MAX + 1).read(), None);
}

/// The sums of what is read fit in 64 bits.
#[test]
fn a_file_cannot_hold_more_than_all_time() {
    let long = Block::new(
        [&[0], &[0], &[0], &[LONGEST as i64], &[], &[], &[]],
        vec![key(1, 0, RawState::Futex, 0)],
    );
    let mut found = Found::new(START);
    for nth in 0..9 {
        let block = Block { head: [nth, START, 0, START], ..long.clone() };
        let taken = found.take(&block.bytes(), &tables(), &mut Budget(usize::MAX));
        assert_eq!(taken.is_some(), nth < 3, "{nth}");
    }
    assert_eq!(found.sums, (3 * LONGEST, 0));
}

#[test]
fn blocks_before_a_missing_one_are_of_no_use() {
    let of = |nth: u64, from: u64| {
        let block = Block { head: [nth, START + from, 5, START], ..block() };
        block.bytes()
    };
    let blocks = [of(0, 30), of(1, 20), of(2, 20), of(3, 10)];
    let read = |order: &[usize]| {
        let blocks: Vec<_> = order.iter().map(|nth| blocks[*nth].clone()).collect();
        let (spans, lost) = found(&blocks).log(20);
        (lost, spans.is_kept().then(|| spans.from() - START), spans.dropped())
    };
    assert_eq!(read(&[0, 1, 2, 3]), (0, Some(10), 5));
    assert_eq!(read(&[0, 1, 3]), (10, Some(20), 5));
    assert_eq!(read(&[0, 0, 1, 0]), (10, Some(20), 5));
    assert_eq!(read(&[1, 2, 3]), (20, None, 0));
    // An older block that is complete only since later.
    let later = [of(0, 20), of(1, 30)];
    assert_eq!(found(&later).log(10).0.from(), START + 20);
}
