//! Saved profiles. Input: a file as it is; or, after a first byte of 1, the contents of its blocks:
//! for each its kind, and its content with a 16-bit length before it. These blocks then get
//! checksums.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::config::Format;
use sampletop::formats;
use sampletop::formats::diff::Profile;
use sampletop::formats::saved::{self, block};
use sampletop::model::facts::history::{FactKey, Spans};
use sampletop::model::facts::recorder::Limits;
use sampletop::model::facts::tables::FrameId;
use sampletop::model::projection::Projector;
use sampletop::model::projection::settings::{Range, Settings};
use sampletop::model::projection::timeline::Members;
use sampletop::model::transform::diff::{Pair, Per};
use sampletop::model::transform::merge::Merger;
use sampletop::model::transform::redact::{Key, Redactor};
use sampletop::model::vocabulary::text::NAME_CAP;
use sampletop::model::vocabulary::wakeup::{SUM_MAX, Waker};
use sampletop_fuzz::{Input, assert_clean, within};

/// Maximum wall and CPU time of all spans, ns, so that sums fit in 64 bits.
const SPANS_SUM_MAX: u64 = u64::MAX / 2;

fuzz_target!(|data: &[u8]| {
    let mut file = data.to_vec();
    if let Some((1, content)) = data.split_first() {
        let mut input = Input(content);
        file = block::HEAD.to_vec();
        while !input.is_empty() {
            let kind = input.u8().into();
            block::write(&mut file, kind, &[input.piece()]).expect("a vector takes it");
        }
    }
    let opened = match within(3000, || saved::read(&file)) {
        Ok(opened) => opened,
        Err(error) => return assert_clean(&error.to_string(), 300),
    };
    assert_clean(&opened.lost.unwrap_or_default(), 1000);
    let snapshot = opened.snapshot;
    for id in 0..snapshot.tables.frame_count().min(1_000) {
        for location in snapshot.tables.named(FrameId(id as u32)).locations.iter() {
            assert_clean(&location.function, NAME_CAP);
            assert_clean(&location.module, NAME_CAP);
            assert_clean(location.file.as_deref().unwrap_or(""), NAME_CAP);
        }
    }
    for wait in snapshot.observed_waits.iter() {
        assert!(
            (wait.stack.0 as usize) < snapshot.tables.stack_count()
                && !wait.waits_for.what.is_empty()
        );
        assert_clean(&wait.waits_for.object, NAME_CAP);
        if let Some(peer) = &wait.waits_for.peer {
            assert!(!peer.processes.is_empty());
            assert_clean(&peer.title, NAME_CAP);
            peer.processes.iter().for_each(|process| assert_clean(&process.name, NAME_CAP));
        }
    }
    if let Some(wakeups) = &snapshot.wakeups {
        assert!(wakeups.counted() <= SUM_MAX);
        for pair in &wakeups.pairs {
            if let Waker::Thread { name, process, .. } = &pair.waker {
                assert_clean(name, NAME_CAP);
                assert_clean(process, NAME_CAP);
            }
        }
    }
    let (started, at) = snapshot.history.span();
    let spans = snapshot.history.spans();
    spans.read(0, u64::MAX, &mut |span, weights| {
        let FactKey { name, stack, blocker, .. } = span.key;
        assert!((name.0 as usize) < snapshot.tables.name_count());
        assert!((stack.0 as usize) < snapshot.tables.stack_count());
        assert!(blocker.0 as usize <= snapshot.tables.blocker_count());
        assert!(started <= span.from && span.from <= span.till);
        assert!(weights.wall_ns <= SPANS_SUM_MAX && weights.cpu_ns <= SPANS_SUM_MAX);
    });
    // An opened profile can be shown, and writing and reading it again loses nothing.
    let write = |format, settings: &Settings| {
        let mut bytes = Vec::new();
        formats::write(format, &snapshot, settings, &mut bytes).expect("a vector takes it");
        bytes
    };
    write(Format::Text, &opened.settings);
    write(
        Format::Json,
        &Settings { range: Range::Cumulative { since: None }, ..Settings::default() },
    );
    // Also a part of it that is not whole seconds.
    let range = Range::Between { from: started + 1, till: at.max(started + 2) };
    let part = Settings { range, ..opened.settings.clone() };
    write(Format::Text, &part);
    let mut projector = Projector::default();
    let projection = projector.project(&snapshot, &part);
    for group in &projection.groups {
        projector.timeline(&snapshot, &part, &projection, &Members::of(group), 40);
    }
    let again =
        saved::read(&write(Format::Sampletop, &opened.settings)).expect("it was just written");
    assert_eq!(again.lost, None);
    assert_eq!(again.snapshot.wakeups, snapshot.wakeups);
    assert_eq!(again.snapshot.observed_waits.len(), snapshot.observed_waits.len());
    let of_log = |spans: &Spans| (spans.from(), spans.count(), spans.dropped());
    assert_eq!(of_log(again.snapshot.history.spans()), of_log(spans));

    // It can be compared, merged with another, and shown without its names.
    let profile = Profile { name: "x", snapshot: &snapshot };
    let mut out = Vec::new();
    let both = Pair { before: profile, after: profile };
    formats::diff::write(Format::Text, &both, &opened.settings, Per::Share, &mut out)
        .expect("a vector takes it");
    let merged = within(3000, || {
        let mut merger = Merger::new(Limits::default());
        let fits = [&snapshot, &again.snapshot].map(|snapshot| merger.add(snapshot).is_ok());
        merger.finish().filter(|_| fits[0])
    });
    let mut redactor = Redactor::new(Key([1, 2]));
    for snapshot in merged.iter().map(|(merged, _)| merged).chain([&snapshot]) {
        let mut out = Vec::new();
        saved::write(&redactor.snapshot(snapshot), &opened.settings, &mut out)
            .expect("a vector takes it");
        assert_eq!(saved::read(&out).expect("it was just written").lost, None);
    }
});
