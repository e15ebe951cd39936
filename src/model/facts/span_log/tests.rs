use proptest::prelude::*;

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
