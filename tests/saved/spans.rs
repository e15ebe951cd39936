//! What threads did in order: a file shows ranges below a second as the session does.

use proptest::prelude::*;
use sampletop::model::facts::buckets::{Buckets, HORIZON};
use sampletop::model::facts::history::FactKey;
use sampletop::model::facts::interner::Interner;
use sampletop::model::facts::recorder::Limits;
use sampletop::model::facts::snapshot::Snapshot;
use sampletop::model::facts::span_log::Span;
use sampletop::model::projection::Projector;
use sampletop::model::projection::timeline::{Members, Timeline};
use sampletop::model::transform::merge::Merger;
use sampletop::model::transform::redact::{Key, Redactor};
use sampletop::model::vocabulary::frame::{FrameCode, Ns, RawFrame, RawName, ThreadKey};
use sampletop::model::vocabulary::state::{RawState, State};

use super::sessions::{MS, START, session, snapshot};
use super::*;

/// Returns the spans that are at least in part after `from`, by thread and time.
pub fn spans_since(snapshot: &Snapshot, from: Ns) -> Vec<Span> {
    let mut spans = Vec::new();
    snapshot.history.spans().read(from, Ns::MAX, &mut |span, _| spans.push(*span));
    spans.sort_by_key(|span| (span.key, span.from, span.till, span.cpu_ns, span.hits));
    spans
}

/// Returns a range that begins after these thousandths of the kept time.
fn range(snapshot: &Snapshot, from: u64, length: Ns) -> Range {
    let (kept, at) = (snapshot.history.spans().from(), snapshot.at);
    let from = kept + at.saturating_sub(kept) * from / 1_000;
    Range::Between { from, till: from + length }
}

/// Returns what the threads of each group did when.
fn timelines(snapshot: &Snapshot, settings: &Settings) -> Vec<Timeline> {
    let mut projector = Projector::default();
    let projection = projector.project(snapshot, settings);
    let members = projection.groups.iter().map(Members::of);
    let members: Vec<Members> = members.collect();
    let timeline = |members| projector.timeline(snapshot, settings, &projection, members, 30);
    members.iter().map(timeline).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_range_below_a_second_is_as_it_was(
        seed in any::<u64>(),
        scan in 1usize..400,
        ranges in prop::collection::vec((0u64..1_000, 1..2_000 * MS), 1..4),
        settings in views::settings(),
    ) {
        let snapshot = session(seed, scan, false);
        let opened = saved::read(&written(&snapshot, &settings)).expect("a profile").snapshot;
        let mut exact = 0;
        for (from, length) in ranges {
            let range = range(&snapshot, from, length);
            let settings = Settings { range, ..settings.clone() };
            prop_assert_eq!(opened.history.exact(range), snapshot.history.exact(range));
            exact += u32::from(opened.history.exact(range).is_some());
            prop_assert!(rendered(&opened, &settings) == rendered(&snapshot, &settings));
            prop_assert_eq!(timelines(&opened, &settings), timelines(&snapshot, &settings));
        }
        prop_assert!(exact > 0 || snapshot.at == START, "a range that is not whole seconds");
    }
}

/// Books `threads` threads that run and wait in each of `ticks` ticks of 10 ms.
fn busy(threads: u32, ticks: u64, limits: Limits) -> Snapshot {
    let mut interner = Interner::new(1_000);
    let (name, other) = (interner.name(RawName::new(b"work")), interner.other());
    let stack = interner.stack(&[RawFrame::new(FrameCode::Runtime { id: 7 })]);
    let key = |tid, state| {
        let thread = ThreadKey { pid: 9, tid, start: 7 };
        FactKey::new(thread, name, stack, RawState::Known(state))
    };
    let mut buckets = Buckets::new(START, limits, other);
    let mut at = START;
    for nth in 0..ticks {
        for tid in 1..=threads {
            // Each runs for a time of its own in each tick.
            let ran = MS + (nth * 7_919 + u64::from(tid) * 104_729) % (7 * MS);
            buckets.book(&key(tid, State::Run), at, at + ran);
            buckets.book(&key(tid, State::Io), at + ran, at + 10 * MS);
        }
        at += 10 * MS;
        buckets.keep_house(at, HORIZON, &|_: &ThreadKey| false);
    }
    let history = buckets.history(at, std::iter::empty());
    Snapshot { at, history, tables: interner.tables(), ..snapshot() }
}

/// Returns the file without these blocks of spans.
fn without(file: &[u8], lost: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut left = saved::block::HEAD.to_vec();
    let mut nth = 0;
    for block in saved::block::blocks(file) {
        let is_lost = block.kind == saved::kind::SPANS && lost(nth);
        nth += usize::from(block.kind == saved::kind::SPANS);
        if !is_lost {
            saved::block::write(&mut left, block.kind, &[&block.unpack().expect("sound")])
                .expect("memory takes it");
        }
    }
    left
}

#[test]
fn what_is_newer_than_a_lost_block_is_exact() {
    let snapshot = busy(20, 2_000, Limits::default());
    let file = written(&snapshot, &Settings::default());
    let spans = snapshot.history.spans();
    let whole = spans_since(&snapshot, 0);
    assert_eq!((whole.len(), spans.from()), (80_000, START));
    let opened = saved::read(&file).expect("a profile");
    assert_eq!((opened.lost, spans_since(&opened.snapshot, 0)), (None, whole));
    let sizes: Vec<usize> = spans.pieces().map(|piece| piece.spans.len()).collect();
    let mut froms = Vec::new();
    for lost in 0..5 {
        let opened = saved::read(&without(&file, |nth| nth == lost)).expect("a profile");
        let (history, said) = (&opened.snapshot.history, opened.lost.expect("told"));
        let spans = history.spans();
        let missing: usize = sizes[lost..].iter().sum();
        let of = format!("{missing} of 80000 spans of the last two minutes");
        let all = "all 80000 spans of the last two minutes".to_owned();
        assert!(said.ends_with(&if lost == 0 { all } else { of }), "{said}");
        froms.push(spans.from());
        let range = |from| Range::Between { from, till: from + 50 * MS };
        let before = spans.from().min(snapshot.at) - 60 * MS;
        assert_eq!((history.exact(range(before)), history.is_widened(range(before))), (None, true));
        if lost > 0 {
            let since = spans.from();
            assert_eq!(spans_since(&opened.snapshot, since), spans_since(&snapshot, since));
            assert!(history.exact(range(since + 1)).is_some());
        }
        compare_sums(&opened.snapshot, &snapshot);
    }
    assert!(froms.is_sorted_by(|a, b| a > b), "{froms:?}");
}

fn compare_sums(a: &Snapshot, b: &Snapshot) {
    assert!(damaged::sums(a) == damaged::sums(b), "spans that are lost cost nothing else");
}

#[test]
fn without_names_the_order_stays_and_merged_profiles_have_none() {
    let snapshot = session(11, 300, false);
    let redacted = Redactor::new(Key([1, 2])).snapshot(&snapshot);
    let opened = saved::read(&written(&redacted, &Settings::default())).expect("a profile");
    assert_eq!(opened.lost, None);
    assert!(snapshot.history.spans().count() > 100);
    assert_eq!(spans_since(&opened.snapshot, 0), spans_since(&snapshot, 0));

    let mut merger = Merger::new(Limits::default());
    merger.add(&snapshot).expect("it fits");
    let (merged, _) = merger.finish().expect("one was added");
    let opened = saved::read(&written(&merged, &Settings::default())).expect("a profile");
    assert_eq!((opened.lost, opened.snapshot.history.spans().is_kept()), (None, false));
    let range = Range::Between { from: merged.at - 51 * MS, till: merged.at - MS };
    assert!(opened.snapshot.history.is_widened(range));
}

/// Files of versions that did not keep spans.
#[test]
fn without_spans_a_range_is_whole_seconds() {
    let snapshot = session(3, 200, false);
    let kept = range(&snapshot, 500, 50 * MS);
    assert!(!snapshot.history.is_widened(kept));
    let history = snapshot.history.clone().without_spans();
    let plain = Snapshot { history, ..snapshot.clone() };
    let file = written(&plain, &Settings::default());
    assert!(saved::block::blocks(&file).all(|block| block.kind != saved::kind::SPANS));
    let opened = saved::read(&file).expect("a profile");
    assert_eq!(opened.lost, None);
    compare(&opened.snapshot, &plain);
    let history = &opened.snapshot.history;
    assert!(!history.spans().is_kept() && history.is_widened(kept));
    let settings = Settings { range: kept, ..Settings::default() };
    assert!(timelines(&opened.snapshot, &settings).iter().all(|timeline| !timeline.is_exact));
    compare_sums(&opened.snapshot, &snapshot);
}

#[test]
fn a_full_log_is_small_and_opens_as_it_was() {
    // A quarter of it is for the log.
    let limits = Limits { history_bytes: 8 << 20, ..Limits::default() };
    let snapshot = busy(50, 3_000, limits);
    let spans = snapshot.history.spans();
    assert!(spans.dropped() > 0, "it is full");
    let with = written(&snapshot, &Settings::default()).len();
    let history = snapshot.history.clone().without_spans();
    let plain = Snapshot { history, ..snapshot.clone() };
    let more = with - written(&plain, &Settings::default()).len();
    println!("{} spans take {more} bytes of a file", spans.count());
    assert!(more < (2 << 20) / 2 && more < 5 * spans.count());
    let opened = saved::read(&written(&snapshot, &Settings::default())).expect("a profile");
    assert_eq!(opened.lost, None);
    let found = opened.snapshot.history.spans();
    assert_eq!((found.count(), found.from()), (spans.count(), spans.from()));
    assert_eq!(found.dropped(), spans.dropped());
}
