use proptest::prelude::*;

use super::pieces::PIECE_CHUNKS;
use super::*;
use crate::model::facts::tables::{NameId, StackId};
use crate::model::vocabulary::frame::ThreadKey;
use crate::model::vocabulary::state::{RawState, State};

const MS: Ns = SECOND / 1_000;
const START: Ns = 77 * SECOND + 5;

fn key(tid: u32, stack: u32, state: State) -> FactKey {
    let thread = ThreadKey { pid: 1, tid, start: 3 };
    FactKey::new(thread, NameId(tid), StackId(stack), RawState::Known(state))
}

fn span() -> impl Strategy<Value = Span> {
    let time = (0..3 * SECOND, 0..2 * SECOND);
    let wait = prop::option::of((1..SECOND, START - SECOND..START + 3 * SECOND));
    (time, 1u32..4, 0u32..5, 0..SECOND, 0u32..9, wait).prop_map(
        |((from, length), tid, stack, cpu_ns, hits, wait)| {
            let (longest_ns, longest_from) = wait.unwrap_or((0, 0));
            let state = if longest_ns > 0 { State::Io } else { State::Run };
            let from = START + from;
            let span = Span::new(key(tid, stack, state), from, from + length);
            Span { cpu_ns, hits, cpu_hits: hits / 2, longest_ns, longest_from, ..span }
        },
    )
}

fn read(log: &mut SpanLog, from: Ns, till: Ns) -> Vec<(Span, Weights)> {
    let mut found = Vec::new();
    log.published(std::iter::empty()).read(from, till, &mut |span, weights| {
        found.push((*span, *weights));
    });
    found
}

proptest! {
    #[test]
    fn a_chunk_gives_back_its_spans(spans in prop::collection::vec(span(), 0..50)) {
        let chunk = Chunk::new(&spans);
        prop_assert_eq!(chunk.iter().collect::<Vec<_>>(), spans);
    }

    /// Parts of a span add up to it.
    #[test]
    fn parts_are_the_whole(span in span(), cuts in prop::collection::vec(START - SECOND..START + 6 * SECOND, 0..6)) {
        let mut cuts = [vec![0], cuts, vec![Ns::MAX]].concat();
        cuts.sort_unstable();
        let mut sum = Weights::default();
        for cut in cuts.windows(2) {
            if let Some(part) = span.within(cut[0], cut[1], START) {
                // A wait that goes on is a hit of each part.
                let wait = span.longest_from + 1..span.longest_from + span.longest_ns;
                let goes_on = u32::from(span.from <= cut[0] && wait.contains(&cut[0]));
                prop_assert!(part.wall_ns <= cut[1] - cut[0] && part.longest_ns <= span.longest_ns);
                sum.follow(&Weights { hits: part.hits - goes_on, ..part });
            }
        }
        let of = |w: &Weights| (w.wall_ns, w.cpu_ns, w.hits, w.cpu_hits);
        prop_assert_eq!(of(&sum), (span.till - span.from, span.cpu_ns, span.hits, span.cpu_hits));
    }
}

#[test]
fn what_is_too_much_or_too_old_is_dropped_and_counted() {
    let mut log = SpanLog::new(START, 100_000);
    // Two stacks in turn, so that no span continues the one before.
    let push = |log: &mut SpanLog, nth: u64| {
        let from = START + nth * MS;
        log.push(Span::new(key(1, nth as u32 % 2, State::Run), from, from + MS));
    };
    (0..30_000).for_each(|nth| push(&mut log, nth));
    assert!(log.bytes() <= 100_000 + CHUNK * size_of::<Span>(), "{}", log.bytes());
    let spans = log.published(std::iter::empty());
    let kept: Vec<_> = read(&mut log, START, Ns::MAX);
    assert_eq!(spans.dropped() + kept.len() as u64, 30_000);
    assert!(spans.dropped() > 10_000 && kept.len() > 5_000, "{}", kept.len());
    // Complete from there on.
    assert_eq!(kept[0].0.from, spans.from());
    log.keep_house(START + 30 * SECOND + KEPT);
    let after = log.published(std::iter::empty());
    assert_eq!((after.dropped(), after.from() > spans.from()), (spans.dropped(), true));
    // What is published does not change.
    let mut count = 0;
    spans.read(START, Ns::MAX, &mut |_, _| count += 1);
    assert_eq!(count, kept.len());
}

#[test]
fn nothing_is_packed_again_for_no_time() {
    let mut log = SpanLog::new(START, MAX_BYTES);
    let gone = key(1, 1, State::Run);
    (0..CHUNK as u64).for_each(|nth| log.push(Span::at(gone, START + nth, 10, 0, 0)));
    assert!(log.tail.is_empty());
    let before = log.chunks[0].clone();
    log.take_back(&gone, 0, START);
    assert!(Arc::ptr_eq(&before, &log.chunks[0]));
}

#[test]
fn of_a_span_the_part_since_the_start_is_kept() {
    let mut log = SpanLog::new(START, MAX_BYTES);
    let key = key(1, 1, State::Run);
    let span = |from, till| Span::new(key, from, till);
    log.push(span(START - 9 * MS, START - 5 * MS));
    log.push(Span { cpu_ns: 7, ..span(START - 5 * MS, START + MS) });
    // Buckets have such counts in their first second, too.
    log.push(Span::at(key, START - MS, 1, 1, 0));
    let growing = [span(START - MS, START + 3 * MS), span(START - MS, START)];
    let mut found = Vec::new();
    log.published(growing.into_iter()).read(0, Ns::MAX, &mut |span, weights| {
        found.push((span.from, weights.wall_ns, weights.cpu_ns, weights.hits));
    });
    assert_eq!(found, [(START, MS, 7, 0), (START, 0, 1, 1), (START, 3 * MS, 0, 0)]);
}

#[test]
fn a_wait_is_a_hit_only_where_it_is() {
    // It waited from before the span to the middle of it.
    let at = |ms| START + ms * MS;
    let key = key(1, 1, State::Io);
    let span = Span { longest_ns: 15 * MS, longest_from: at(10), ..Span::new(key, at(15), at(35)) };
    let of = |from, till| {
        let weights = span.within(at(from), at(till), START).expect("a part");
        (weights.hits, weights.longest_ns / MS)
    };
    assert_eq!(of(10, 40), (0, 15));
    assert_eq!(of(15, 20), (1, 10));
    assert_eq!(of(20, 40), (1, 15));
    assert_eq!(of(25, 40), (0, 0));
    assert_eq!(of(30, 40), (0, 0));
}

#[test]
fn a_parked_thread_takes_one_span() {
    let mut log = SpanLog::new(START, MAX_BYTES);
    let parked = key(1, 1, State::Run);
    for nth in 0..1_000 {
        log.push(Span::new(parked, START + nth * MS, START + (nth + 1) * MS));
    }
    let found = read(&mut log, START + 10 * MS, START + 30 * MS);
    assert_eq!((log.tail.len(), found.len(), found[0].1.wall_ns), (1, 1, 20 * MS));
}

#[test]
fn time_that_was_too_much_is_taken_back_where_it_was_booked() {
    let mut log = SpanLog::new(START, MAX_BYTES);
    let (gone, other) = (key(1, 1, State::Run), key(2, 1, State::Run));
    for nth in 0..CHUNK as u64 + 2 {
        log.push(Span::at(if nth % 2 == 0 { gone } else { other }, START + nth, 10, 0, 0));
    }
    log.take_back(&gone, 25, START);
    let cpu: Vec<u64> = read(&mut log, START, Ns::MAX).iter().map(|(_, w)| w.cpu_ns).collect();
    let mut expected = vec![10; CHUNK + 2];
    (expected[CHUNK], expected[CHUNK - 2], expected[CHUNK - 4]) = (0, 0, 5);
    assert_eq!(cpu, expected);
}

/// Puts the log of these pieces together.
fn collected(pieces: &[Piece], max_bytes: usize, dropped: u64) -> (Spans, bool) {
    let mut collected = Collected::new(START, max_bytes, dropped);
    pieces.iter().for_each(|piece| collected.add(piece));
    let is_full = collected.is_full();
    let spans = collected.spans();
    assert!(spans.chunks.iter().map(|chunk| chunk.memory()).sum::<usize>() <= max_bytes);
    (spans, is_full)
}

/// Returns all spans that a range from there on has, by time.
fn all(spans: &Spans, from: Ns) -> Vec<(Span, Weights)> {
    let mut found = Vec::new();
    spans.read(from, Ns::MAX, &mut |span, weights| found.push((*span, *weights)));
    found.sort_by_key(|(span, _)| (span.from, span.key));
    found
}

/// A log of `count` spans, before `open` that still grow.
fn long_log(count: u64, open: u64, max_bytes: usize) -> Spans {
    let mut log = SpanLog::new(START, max_bytes);
    let span = |nth: u64| {
        // Some are booked late, also in the next chunk.
        let late = if nth.is_multiple_of(7) { nth.min(300) } else { 0 };
        let from = START + (nth - late) * MS;
        let span = Span::new(key(1, nth as u32 % 5, State::Io), from, from + MS);
        Span { longest_ns: MS, longest_from: from, ..span }
    };
    (0..count).for_each(|nth| log.push(span(nth)));
    log.published((count..count + open).map(span))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// The newest pieces are a log that is complete from where they say; all are the whole log.
    #[test]
    fn pieces_are_the_log(count in 0u64..40_000, open in 0u64..3_000, newest in 0usize..5) {
        let log = long_log(count, open, MAX_BYTES);
        let pieces: Vec<Piece> = log.pieces().collect();
        prop_assert_eq!(pieces.iter().map(|piece| piece.spans.len()).sum::<usize>(), log.count());
        prop_assert!(pieces.iter().all(|piece| piece.spans.len() <= PIECE_CHUNKS * CHUNK));
        prop_assert!(pieces.is_sorted_by(|a, b| a.from >= b.from));
        let (again, is_full) = collected(&pieces, MAX_BYTES, 7);
        prop_assert_eq!((again.from(), again.dropped(), is_full), (log.from(), 7, false));
        prop_assert_eq!(again.count(), log.count());
        prop_assert!(all(&again, log.from()) == all(&log, log.from()));
        let newest = newest.min(pieces.len());
        let (part, _) = collected(&pieces[..newest], MAX_BYTES, 0);
        prop_assert_eq!(part.is_kept(), newest > 0);
        if newest > 0 {
            prop_assert_eq!(part.from(), pieces[newest - 1].from);
            prop_assert!(all(&part, part.from()) == all(&log, part.from()));
        }
    }
}

#[test]
fn an_empty_log_is_a_piece_and_no_log_is_none() {
    let log = SpanLog::new(START, MAX_BYTES).published(std::iter::empty());
    let pieces: Vec<Piece> = log.pieces().collect();
    assert_eq!(pieces, [Piece { from: START, spans: Vec::new() }]);
    let (again, _) = collected(&pieces, MAX_BYTES, 0);
    assert_eq!((again.is_kept(), again.from(), again.count()), (true, START, 0));
    assert_eq!(Spans::default().pieces().count(), 0);
    assert!(!Spans::default().is_kept());
}

#[test]
fn pieces_for_which_there_is_no_room_are_dropped_and_counted() {
    let log = long_log(100_000, 0, 600_000);
    let (count, dropped) = (log.count() as u64, log.dropped());
    assert!(dropped > 0);
    let pieces: Vec<Piece> = log.pieces().collect();
    // Those that ended before the log is complete are of no use.
    let kept =
        |log: &Spans| log.chunks.iter().map(|chunk| chunk.spans).sum::<usize>() + log.recent.len();
    assert!(log.count() < kept(&log));
    assert_eq!(pieces.iter().map(|piece| piece.spans.len()).sum::<usize>(), log.count());
    let (whole, _) = collected(&pieces, MAX_BYTES, dropped);
    assert_eq!((whole.count() as u64, whole.dropped(), whole.from()), (count, dropped, log.from()));
    let (part, is_full) = collected(&pieces, 300_000, dropped);
    assert!(is_full && part.count() > 0);
    assert_eq!(kept(&part) as u64 + part.dropped(), count + dropped);
    assert!(part.from() > log.from());
    assert!(all(&part, part.from()) == all(&log, part.from()));
    // Behind the first one that is dropped there is a gap.
    let few = |from| Piece { from: START + from, spans: pieces[0].spans[..1].to_vec() };
    let (part, is_full) = collected(&[few(9), pieces[0].clone(), few(0)], 1_000, 0);
    let dropped = pieces[0].spans.len() as u64 + 1;
    assert_eq!((part.from(), part.dropped(), is_full), (START + 9, dropped, true));
}
