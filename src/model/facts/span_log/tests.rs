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
    let wait = prop::option::of((1..SECOND, 0..SECOND));
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
                let goes_on = u32::from(span.longest_ns > 0 && span.from < cut[0]);
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
